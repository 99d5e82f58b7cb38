//! End to end: a target in this process, a daemon in another (this program again), a block device
//! in between.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek, SeekFrom, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebof_attach::state::{Record, StateDir};
use ebof_attach::{Attached, Error, Kind, Request, Select, connect_in, disconnect_in, loopdev, open_in, usage};
use ebof_initiator::{AdminData, Overrides};
use ebof_manage::api::Target as _;
use ebof_manage::config::{IdentityRule, Namespace, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::identify::IdentifyController;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nqn, Nsid, Sqe};
use ebof_server::{Settings, Target};
use rustix::process::{Pid, Signal};
use zerocopy::FromBytes;

use crate::front::{Aligned, O_DIRECT, pattern, run};

/// The expected remains.
pub(crate) const NOTHING: [&str; 0] = [];
pub(crate) const NQN: &str = "nqn.2014-08.org.example:drive0";

/// A target and a state directory; everything attached is removed on drop, in any state.
pub(crate) struct Line {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) states: StateDir,
    pub(crate) config: Config,
    pub(crate) target: Option<Target>,
    pub(crate) address: SocketAddr,
    kind: Kind,
}

impl Line {
    pub(crate) fn new(kind: Kind, drives: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let states = StateDir::at(&directory.path().join("state"));
        let nqn = Nqn::parse(NQN).unwrap();
        let mut subsystem = Subsystem::new(nqn.clone());
        subsystem.allow_any_host = true;
        // Memory is to be the same disk after a restart of the target.
        subsystem.identity = IdentityRule::Name;
        // It answers for what it was before a restart.
        subsystem.cntlid_max = 1000;
        for (nsid, drive) in (1..).zip(drives) {
            let drive = drive.replace("DIR", directory.path().to_str().unwrap());
            subsystem.namespaces.push(Namespace::new(nsid, drive.parse().unwrap()));
        }
        let config = Config { subsystems: vec![subsystem], ..Config::default() };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut line = Self { directory, states, config, target: None, address, kind };
        line.start();
        line
    }

    /// Starts the target, at its previous port.
    pub(crate) fn start(&mut self) {
        let port = Port::new(1, Listen::new(self.address.ip(), self.address.port()));
        self.config.subsystems[0].ports = vec![port.name.clone()];
        self.config.ports = vec![port];
        let settings = || Settings { threads: Some(1), pin: false, ..Settings::default() };
        // The port may be held for a moment by connections that are closing.
        let target = eventually(|| Target::start(self.config.clone(), settings()).ok()).expect("a target");
        self.address = target.addresses()[0].1;
        self.target = Some(target);
    }

    pub(crate) fn stop(&mut self) {
        self.target.take().expect("a target").stop(Duration::from_millis(100));
    }

    pub(crate) fn request(&self) -> Request {
        Request {
            traddr: self.address.ip().to_string(),
            trsvcid: self.address.port(),
            nqn: NQN.to_owned(),
            overrides: Overrides { nr_io_queues: Some(2), reconnect_delay: Some(1), ..Overrides::default() },
            kind: self.kind,
            ..Request::default()
        }
    }

    pub(crate) fn request_with(&self, change: impl FnOnce(&mut Overrides)) -> Request {
        let mut request = self.request();
        change(&mut request.overrides);
        request
    }

    pub(crate) fn connect(&self) -> Attached {
        connect_in(&self.states, &self.request()).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.states.records().unwrap()
    }

    /// What is left in the state directory except for its lock, and loop devices and mounts.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left: Vec<String> = self.records().into_iter().map(|record| record.name).collect();
        let loops = loopdev::all().into_iter().filter(|(_, file)| file.starts_with(self.directory.path()));
        left.extend(loops.map(|(path, _)| path.display().to_string()));
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let place = self.directory.path().to_str().unwrap();
        left.extend(mounts.lines().filter(|line| line.contains(place)).map(str::to_owned));
        left
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let place = self.directory.path().join("fs");
        if place.exists() {
            // An error means not mounted, as expected.
            let _status = Command::new("umount").arg("-l").arg(place).stderr(std::process::Stdio::null()).status();
        }
        for record in self.states.records().unwrap_or_default() {
            if std::thread::panicking() {
                let log = std::fs::read_to_string(record.log()).unwrap_or_default();
                println!("--- log of {}:\n{log}", record.name);
            }
        }
        if let Err(error) = disconnect_in(&self.states, &Select::All, true) {
            println!("cleaning up: {error}");
        }
    }
}

/// Repeats `look` until it finds something, for 30 seconds.
pub(crate) fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn path(attached: &Attached) -> PathBuf {
    attached.devices[0].path.clone().expect("a device")
}

pub(crate) fn direct(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(path).unwrap()
}

/// Bytes that the target counted on each queue: read, written.
fn bytes_by_queue(target: &Target) -> Vec<(u16, u64, u64)> {
    let totals = target.totals();
    let all = totals.iter().map(|(series, kinds)| (series.queue, kinds[0].bytes, kinds[1].bytes));
    all.filter(|(_, read, written)| read + written > 0).collect()
}

pub(crate) fn reads_and_writes_have_queues_of_their_own(kind: Kind) {
    let mut line = Line::new(kind, &["DIR/disk.img:64Mi"]);
    let request =
        line.request_with(|overrides| (overrides.nr_io_queues, overrides.nr_write_queues) = (Some(1), Some(1)));
    let attached = connect_in(&line.states, &request).unwrap_or_else(|error| panic!("{error}"));
    let device = path(&attached);
    let data = Aligned::new(&pattern(3, 4 << 20));
    for round in 0..2 {
        direct(&device).write_all_at(data.bytes(), 4 << 20).unwrap();
        let mut back = Aligned::new(&vec![0; 4 << 20]);
        direct(&device).read_exact_at(back.bytes_mut(), 4 << 20).unwrap();
        assert!(back.bytes() == data.bytes());
        let queues = bytes_by_queue(line.target.as_ref().expect("a target"));
        let written: Vec<u16> =
            queues.iter().filter(|(_, _, written)| *written > 0).map(|&(queue, ..)| queue).collect();
        let read: Vec<_> =
            queues.iter().filter(|(queue, read, _)| *read >= 4 << 20 && !written.contains(queue)).collect();
        assert!(written.len() == 1 && read.len() == 1, "round {round}: {queues:?}");
        // Both recover after a loss.
        if round == 0 {
            line.stop();
            line.start();
        }
    }
    // Commands of clients use a free queue.
    let mut client = open_in(&line.states, &attached.devices[0].name).unwrap();
    let mut block = vec![0; client.device().unwrap().block_bytes as usize];
    let read = BlockRange::new(0, 1).encode(nvm::READ, Nsid(1));
    assert!(client.io(&read, AdminData::ToHost(&mut block)).unwrap().status().is_success());
}

pub(crate) fn a_connection_leaves_a_device_behind(kind: Kind) {
    let line = Line::new(kind, &["DIR/disk.img:64Mi", "mem:16Mi"]);
    let attached = line.connect();
    assert_eq!(attached.devices.len(), 2);
    let device = path(&attached);
    let data = Aligned::new(&pattern(1, 8 << 20));
    direct(&device).write_all_at(data.bytes(), 1 << 20).unwrap();
    let mut back = Aligned::new(&vec![0; 8 << 20]);
    direct(&device).read_exact_at(back.bytes_mut(), 1 << 20).unwrap();
    assert!(back.bytes() == data.bytes());

    // Connecting twice is refused, unless duplicates are requested.
    match connect_in(&line.states, &line.request()) {
        Err(Error::AlreadyConnected(existing)) => assert_eq!(existing.name, attached.name),
        other => panic!("{other:?}"),
    }
    let again = Request { duplicate_connect: true, ..line.request() };
    let second = connect_in(&line.states, &again).unwrap();
    assert_ne!(second.name, attached.name);
    let report = disconnect_in(&line.states, &Select::Device(second.name.clone()), false).unwrap();
    assert_eq!(report.disconnected, [(second.name, NQN.to_owned())]);

    // Commands through the daemon read what was written to the device.
    let mut client = open_in(&line.states, &attached.devices[0].name).unwrap();
    assert_eq!((client.info().subnqn.as_str(), client.device().unwrap().nsid), (NQN, 1));
    let mut identify = [0; 4096];
    let sqe = Sqe::new(admin::IDENTIFY).with_cdw(10, 1);
    assert!(client.admin(&sqe, AdminData::ToHost(&mut identify), None).unwrap().status().is_success());
    let identify = IdentifyController::read_from_bytes(&identify).unwrap();
    assert_eq!(identify.subsystem_nqn(), NQN);
    let block_bytes = client.device().unwrap().block_bytes;
    let mut block = vec![0; block_bytes as usize];
    let read = BlockRange::new((1 << 20) / u64::from(block_bytes), 1).encode(nvm::READ, Nsid(1));
    assert!(client.io(&read, AdminData::ToHost(&mut block)).unwrap().status().is_success());
    assert!(block == data.bytes()[..block.len()]);
    let refused =
        client.io(&BlockRange::new(u64::MAX - 7, 1).encode(nvm::READ, Nsid(1)), AdminData::ToHost(&mut block));
    assert!(!refused.unwrap().status().is_success());
    assert_eq!(client.status().unwrap().state, "live");

    // A mounted device is not removed unless forced.
    run("mkfs.ext4", &["-q", "-F", device.to_str().unwrap()]);
    let place = line.directory.path().join("fs");
    std::fs::create_dir(&place).unwrap();
    run("mount", &[device.to_str().unwrap(), place.to_str().unwrap()]);
    std::fs::write(place.join("file"), data.bytes()).unwrap();
    let report = disconnect_in(&line.states, &Select::Nqn(NQN.to_owned()), false).unwrap();
    assert!(matches!(report.failed.as_slice(), [(_, Error::InUse { .. })]), "{report:?}");
    assert!(std::fs::read(place.join("file")).unwrap() == data.bytes());
    run("umount", &[place.to_str().unwrap()]);
    let report = disconnect_in(&line.states, &Select::Nqn(NQN.to_owned()), false).unwrap();
    assert_eq!(report.disconnected.len(), 1, "{report:?}");
    assert_eq!(line.leftovers(), NOTHING);
    assert!(open_in(&line.states, &attached.name).is_err());
}

/// A process that does something with a device, until it is dropped.
struct User(Child);

impl User {
    /// Runs a shell that does `what` and then prints a line.
    fn new(program: &[&str], what: &str) -> Self {
        let script = format!("{what} && echo && read _line");
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let begun = BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        assert!(begun > 0, "{what}");
        Self(child)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ended = self.0.wait();
    }
}

// @test host.disconnect
pub(crate) fn a_disconnect_asks_who_uses_the_device(kind: Kind) {
    let line = Line::new(kind, &["mem:16Mi", "mem:16Mi"]);
    let attached = line.connect();
    let device = path(&attached);
    let name = device.to_str().unwrap();
    run("mkfs.ext4", &["-q", "-F", name]);
    let place = line.directory.path().join("fs");
    std::fs::create_dir(&place).unwrap();
    let place = place.to_str().unwrap();
    let elsewhere = ["unshare", "--mount", "--propagation", "private", "sh", "-c"];
    for (program, what, said) in [
        (&["sh", "-c"][..], format!("exec 3<{name}"), "(sh)"),
        (&elsewhere[..], format!("mount {name} {place}"), "mount namespace of"),
    ] {
        let user = User::new(program, &what);
        assert!(usage::used_by(&device).is_some_and(|used_by| used_by.contains(said)), "{:?}", usage::used_by(&device));
        let report = disconnect_in(&line.states, &Select::All, false).unwrap();
        let refused = matches!(report.failed.as_slice(), [(_, Error::InUse { used_by, .. })] if used_by.contains(said));
        assert!(refused && report.disconnected.is_empty(), "{what}: {report:?}");
        // A signal is no answer, either.
        let daemon = line.records()[0].state.clone().unwrap().pid;
        rustix::process::kill_process(Pid::from_raw(daemon.try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
        let told = || std::fs::read_to_string(line.records()[0].log()).unwrap().contains("a device is in use");
        assert!(eventually(|| told().then_some(())).is_some());
        drop(user);
        direct(&device).read_exact_at(Aligned::new(&[0; 4096]).bytes_mut(), 0).unwrap();
    }
    let report = disconnect_in(&line.states, &Select::All, false).unwrap();
    assert_eq!(report.disconnected.len(), 1, "{report:?}");
    assert_eq!(line.leftovers(), NOTHING);
}

/// What a [`proxy`] does.
#[derive(Default)]
struct Valve {
    frozen: AtomicBool,
    /// Something waits in it.
    holds: AtomicBool,
}

/// Passes bytes between a host and a target, until it is frozen.
fn proxy(target: SocketAddr, valve: &Arc<Valve>) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let valve = Arc::clone(valve);
    std::thread::spawn(move || {
        for host in listener.incoming() {
            let (host, target) = (host.unwrap(), TcpStream::connect(target).unwrap());
            for (mut from, mut to) in [(host.try_clone().unwrap(), target.try_clone().unwrap()), (target, host)] {
                let valve = Arc::clone(&valve);
                std::thread::spawn(move || {
                    let mut bytes = [0; 1 << 16];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        while valve.frozen.load(Ordering::Acquire) {
                            valve.holds.store(true, Ordering::Release);
                            std::thread::sleep(Duration::from_millis(10));
                        }
                        to.write_all(&bytes[..read]).unwrap();
                    }
                    let _closed = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    address
}

// @test host.disconnect
pub(crate) fn a_daemon_that_waits_for_its_target_keeps_the_device(kind: Kind) {
    let line = Line::new(kind, &["mem:16Mi"]);
    let valve = Arc::<Valve>::default();
    let trsvcid = proxy(line.address, &valve).port();
    let attached = connect_in(&line.states, &Request { trsvcid, ..line.request() }).unwrap();
    let device = path(&attached);
    valve.frozen.store(true, Ordering::Release);
    let mut client = open_in(&line.states, &attached.name).unwrap();
    let rescan = std::thread::spawn(move || client.rescan());
    eventually(|| valve.holds.load(Ordering::Acquire).then_some(())).expect("the daemon asks its target");
    let began = Instant::now();
    let report = disconnect_in(&line.states, &Select::All, false).unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(matches!(report.failed.as_slice(), [(_, Error::MayBeInUse { .. })]), "{report:?}");
    assert!(report.failed[0].1.to_string().contains("--force"), "{report:?}");
    valve.frozen.store(false, Ordering::Release);
    rescan.join().unwrap().unwrap();
    // What was refused does not happen later: the main thread has come to it meanwhile.
    let mut client = open_in(&line.states, &attached.name).unwrap();
    client.rescan().unwrap();
    direct(&device).read_exact_at(Aligned::new(&[0; 4096]).bytes_mut(), 0).unwrap();
    let report = disconnect_in(&line.states, &Select::All, false).unwrap();
    assert_eq!(report.disconnected.len(), 1, "{report:?}");
}

// @test host.killed-daemon
pub(crate) fn a_killed_daemon_is_repaired(kind: Kind) {
    let line = Line::new(kind, &["DIR/disk.img:64Mi"]);
    let attached = line.connect();
    let device = path(&attached);
    run("mkfs.ext4", &["-q", "-F", device.to_str().unwrap()]);
    let place = line.directory.path().join("fs");
    std::fs::create_dir(&place).unwrap();
    run("mount", &[device.to_str().unwrap(), place.to_str().unwrap()]);
    let data = pattern(3, 4 << 20);
    std::fs::write(place.join("file"), &data).unwrap();
    run("sync", &["-f", place.to_str().unwrap()]);
    let state = line.records()[0].state.clone().unwrap();
    assert!(line.records()[0].live);
    kill(state.pid);
    assert!(!line.records()[0].live, "a killed daemon is seen as dead at once");
    // Users of the device get errors, and do not hang.
    assert!(
        eventually(|| std::fs::write(place.join("other"), "x")
            .and_then(|()| File::open(place.join("other"))?.sync_all())
            .err())
        .is_some()
    );
    // The next connect cleans up, although the old file system is still mounted.
    let again = line.connect();
    let repaired = path(&again);
    let _status = Command::new("umount").arg(&place).status();
    run("mount", &[repaired.to_str().unwrap(), place.to_str().unwrap()]);
    assert!(std::fs::read(place.join("file")).unwrap() == data, "what was flushed is there");
    run("umount", &[place.to_str().unwrap()]);
    // Again, cleaned up by a disconnect.
    let state = line.records()[0].state.clone().unwrap();
    kill(state.pid);
    let report = disconnect_in(&line.states, &Select::All, false).unwrap();
    assert!(report.disconnected.is_empty() && report.repaired.len() == 1, "{report:?}");
    assert_eq!(line.leftovers(), NOTHING);
    assert!(eventually(|| (!is_block_device(&repaired)).then_some(())).is_some(), "{} stays", repaired.display());
}

fn kill(pid: u32) {
    let process = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(process, Signal::KILL).unwrap();
}

/// A loop device that looks like ours may belong to a daemon in another mount namespace.
pub(crate) fn loop_devices_of_other_mount_namespaces_are_left_alone(kind: Kind) {
    let line = Line::new(kind, &["mem:16Mi"]);
    let attached = line.connect();
    let state = line.records()[0].state.clone().unwrap();
    let place = line.records()[0].directory.join("mnt");
    kill(state.pid);
    let place = place.display();
    let name = &attached.devices[0].name;
    // It exists as long as the mount namespace, and its device has the same backing path as ours.
    let script = format!(
        "umount -l {place}; mount -t tmpfs none {place} && truncate -s 1M {place}/{name} && \
         device=$(losetup --find --show {place}/{name}) && echo $device && {{ read _line; losetup --detach $device; }}"
    );
    let mut other = Command::new("unshare");
    other.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut theirs = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut theirs).unwrap();
    let theirs = PathBuf::from(theirs.trim_end());
    let repaired = ebof_attach::repair(&line.states).unwrap();
    let own = format!("detached {}", path(&attached).display());
    let is_there = is_block_device(&theirs);
    drop(other.stdin.take());
    other.wait().unwrap();
    assert!(is_there, "{} is gone: {repaired:?}", theirs.display());
    assert!(repaired.len() == 1 && repaired[0].actions.contains(&own), "{repaired:?}");
    assert_eq!(line.leftovers(), NOTHING);
}

/// At a shutdown a file system on a device whose target is away has to be let go of.
// @test host.forced-disconnect
pub(crate) fn a_forced_disconnect_fails_requests_whose_target_is_away(kind: Kind) {
    let mut line = Line::new(kind, &["mem:16Mi"]);
    let attached = connect_in(&line.states, &line.request_with(|options| options.ctrl_loss_tmo = Some(-1))).unwrap();
    let file = direct(&path(&attached));
    line.stop();
    let lost = || line.records()[0].state.as_ref().is_some_and(|state| state.state != "live").then_some(());
    eventually(lost).expect("the daemon notices that the target is gone");
    let reader = std::thread::spawn(move || {
        let mut buffer = Aligned::new(&[0; 4096]);
        file.read_exact_at(buffer.bytes_mut(), 0).map_err(|error| error.raw_os_error())
    });
    // Long enough for the request to reach the daemon, where it waits.
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    let report = disconnect_in(&line.states, &Select::All, true).unwrap();
    assert_eq!(report.disconnected.len(), 1, "{report:?}");
    assert!(report.repaired.is_empty(), "the daemon had to be killed: {report:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(reader.join().unwrap().is_err(), "the read fails");
    assert_eq!(line.leftovers(), NOTHING);
}

pub(crate) fn devices_are_announced_to_udev(kind: Kind) {
    let line = Line::new(kind, &["mem:16Mi"]);
    let attached = connect_in(&line.states, &Request { owner: Some("me".to_owned()), ..line.request() }).unwrap();
    let device = path(&attached);
    let told = line.states.path().join("udev").join(device.file_name().unwrap());
    let text = std::fs::read_to_string(&told).unwrap();
    assert!(text.starts_with(&format!("EBOF_NAME=nvme0n1\nEBOF_NQN={NQN}\nEBOF_NSID=1\nEBOF_ID=uuid.")), "{text}");
    // Of another owner.
    let report = disconnect_in(&line.states, &Select::Owner("other".to_owned()), false).unwrap();
    assert!(report.disconnected.is_empty() && told.exists());
    let report = disconnect_in(&line.states, &Select::Owner("me".to_owned()), false).unwrap();
    assert_eq!(report.disconnected.len(), 1, "{report:?}");
    assert!(!told.exists());
}

/// Whether there is a device with a backing file.
fn is_block_device(path: &Path) -> bool {
    std::fs::read_to_string(format!("/sys/block/{}/size", path.file_name().unwrap().to_str().unwrap()))
        .is_ok_and(|size| size.trim() != "0")
}

// @test host.lost-connection
pub(crate) fn devices_wait_for_a_target_that_comes_back(kind: Kind) {
    let mut line = Line::new(kind, &["DIR/disk.img:64Mi"]);
    let attached = line.connect();
    let device = path(&attached);
    let writer = std::thread::spawn({
        let device = device.clone();
        move || {
            let device = direct(&device);
            for round in 0..200_u64 {
                let data = Aligned::new(&pattern(round, 64 << 10));
                device.write_all_at(data.bytes(), round * (64 << 10)).unwrap();
                if round % 16 == 0 {
                    device.sync_data().unwrap();
                }
            }
        }
    });
    for _ in 0..2 {
        line.stop();
        line.start();
    }
    writer.join().expect("no write fails");
    let device = direct(&device);
    let mut back = Aligned::new(&vec![0; 64 << 10]);
    for round in 0..200_u64 {
        device.read_exact_at(back.bytes_mut(), round * (64 << 10)).unwrap();
        assert!(back.bytes() == pattern(round, 64 << 10), "round {round}");
    }
}

// @test host.time-outs
pub(crate) fn devices_fail_when_the_target_stays_away(kind: Kind) {
    let mut line = Line::new(kind, &["DIR/disk.img:16Mi"]);
    let request =
        line.request_with(|overrides| (overrides.fast_io_fail_tmo, overrides.ctrl_loss_tmo) = (Some(1), Some(4)));
    let attached = connect_in(&line.states, &request).unwrap();
    let device = direct(&path(&attached));
    let mut block = Aligned::new(&[0; 4096]);
    device.read_exact_at(block.bytes_mut(), 0).unwrap();
    line.stop();
    let before = Instant::now();
    assert!(device.read_exact_at(block.bytes_mut(), 8192).is_err(), "fast_io_fail_tmo");
    assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
    drop(device);
    // After ctrl_loss_tmo the controller and everything else is removed, except for the record.
    let name = attached.name.as_str();
    let gone = eventually(|| (line.leftovers() == [name] && !line.records()[0].live).then_some(()));
    assert!(gone.is_some(), "{:?}", line.leftovers());
}

pub(crate) fn namespaces_come_and_go(kind: Kind) {
    let mut line = Line::new(kind, &["DIR/disk.img:16Mi"]);
    let attached = line.connect();
    assert_eq!(attached.devices.len(), 1);
    let devices = |line: &Line| -> Vec<(u32, bool)> {
        let state = line.records()[0].state.clone().unwrap();
        state
            .devices
            .iter()
            .map(|device| (device.nsid, device.path.as_ref().is_some_and(|path| path.exists())))
            .collect()
    };
    line.config.subsystems[0].namespaces.push(Namespace::new(5, "mem:8Mi".parse().unwrap()));
    line.target.as_ref().unwrap().apply(line.config.clone()).unwrap();
    let added = eventually(|| (devices(&line) == [(1, true), (5, true)]).then_some(()));
    assert!(added.is_some(), "{:?}", devices(&line));
    let name = format!("{}n5", attached.name);
    let fifth = open_in(&line.states, &name).unwrap().device().unwrap().path.clone().unwrap();
    let mut block = Aligned::new(&[1; 4096]);
    direct(&fifth).read_exact_at(block.bytes_mut(), 0).unwrap();
    line.config.subsystems[0].namespaces.pop();
    line.target.as_ref().unwrap().apply(line.config.clone()).unwrap();
    let removed = eventually(|| (devices(&line) == [(1, true)]).then_some(()));
    assert!(removed.is_some(), "{:?}", devices(&line));
    direct(&path(&attached)).read_exact_at(block.bytes_mut(), 0).unwrap();
    // The backing of the other namespace grows, and its device follows.
    let ebof_manage::Drive::File(file) = &mut line.config.subsystems[0].namespaces[0].drive else { unreachable!() };
    File::options().write(true).open(&file.path).unwrap().set_len(24 << 20).unwrap();
    file.size_bytes = Some(24 << 20);
    line.target.as_ref().unwrap().apply(line.config.clone()).unwrap();
    let size = || {
        let place = line.records()[0].state.clone()?.devices.first()?.path.clone()?;
        File::open(place).ok()?.seek(SeekFrom::End(0)).ok()
    };
    assert!(eventually(|| (size() == Some(24 << 20)).then_some(())).is_some(), "{:?}", size());
}

pub(crate) fn write_protection_does_not_end_a_device(kind: Kind) {
    let mut line = Line::new(kind, &["mem:16Mi"]);
    let device = path(&line.connect());
    // Open for as long as the test lasts, as by a mounted file system.
    let reader = direct(&device);
    let mut block = Aligned::new(&[1; 4096]);
    for write_protect in [true, false] {
        line.config.subsystems[0].namespaces[0].write_protect = write_protect;
        line.target.as_ref().unwrap().apply(line.config.clone()).unwrap();
        let read_only = || Some(line.records()[0].state.clone()?.devices.first()?.read_only);
        let followed = eventually(|| (read_only() == Some(write_protect)).then_some(()));
        assert!(followed.is_some(), "{:?}", line.records());
        let opened = File::options().write(true).open(&device);
        let written = opened.and_then(|file| file.write_all_at(&[1; 4096], 0).and_then(|()| file.sync_all()));
        assert_eq!(written.is_err(), write_protect, "{written:?}");
        reader.read_exact_at(block.bytes_mut(), 0).unwrap();
        assert_eq!(block.bytes()[0], u8::from(!write_protect));
        let state = line.records()[0].state.clone().unwrap();
        assert!(state.ended.is_empty() && state.devices[0].path.as_ref() == Some(&device), "{state:?}");
    }
}

// @test host.failed-connect
pub(crate) fn what_cannot_be_connected_leaves_nothing(kind: Kind) {
    let line = Line::new(kind, &["mem:16Mi"]);
    let wrong = Request { nqn: "nqn.2014-08.org.example:nobody".to_owned(), ..line.request() };
    let error = connect_in(&line.states, &wrong).unwrap_err();
    assert!(matches!(&error, Error::Daemon { kind: Some(_), .. }), "{error:?}");
    assert!(error.to_string().contains("nqn.2014-08.org.example:nobody"), "{error}");
    assert_eq!(line.leftovers(), NOTHING);
    let nonsense = Request { nqn: "not an NQN\n".to_owned(), ..line.request() };
    assert!(connect_in(&line.states, &nonsense).is_err());
    assert_eq!(line.leftovers(), NOTHING);
}
