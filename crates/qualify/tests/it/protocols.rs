//! NBD and iSCSI, with servers of other projects. Skipped without them.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ebof_bench::{Job, Mix};
use ebof_qualify::engine::{EngineError, Load, LoadTarget, fio, iscsi_perf, programs};

use crate::fio::{directory, has_fio, is_paced, paced, run};

const MIB: u64 = 32;
const IQN: &str = "iqn.2014-08.org.example:drive0";

/// A server; killed on drop.
struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Waits until something is so.
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// nbdkit, or QEMU's server.
fn nbd(directory: &Path) -> Option<(Server, LoadTarget)> {
    let socket = directory.join("nbd.sock");
    let name = socket.to_string_lossy().into_owned();
    let server = if let Some(nbdkit) = programs::find("nbdkit") {
        Server::start(Command::new(nbdkit).args(["-f", "-U", &name, "memory", &format!("{MIB}M")]))
    } else if let Some(qemu) = programs::find("qemu-nbd") {
        let image = directory.join("image");
        File::create(&image).unwrap().set_len(MIB << 20).unwrap();
        Server::start(Command::new(qemu).args(["-t", "-e", "8", "-f", "raw", "-k", &name]).arg(&image))
    } else {
        println!("SKIPPED: there is no server of NBD (Debian's packages nbdkit and qemu-utils)");
        return None;
    };
    wait_for("the server's socket", || socket.exists());
    Some((server, LoadTarget::Nbd(format!("nbd+unix:///?socket={name}"))))
}

#[test]
fn nbd_is_measured_through_fios_engine() {
    if !has_fio() {
        return;
    }
    if !programs::has_engine("nbd") {
        println!("SKIPPED: this fio has no engine nbd");
        return;
    }
    // The path of a socket is short.
    let short = tempfile::tempdir().unwrap();
    let directory = directory();
    let Some((server, place)) = nbd(short.path()) else { return };
    for rw in [Mix::RandWrite, Mix::Read] {
        let outcome = run(&place, &[Job { depth: 4, ..paced(rw) }], directory.path()).unwrap();
        assert!(is_paced(&outcome, 1000.0), "{:?}", outcome.reports[0]);
    }
    drop(server);
    let error = run(&place, &[paced(Mix::RandRead)], directory.path()).unwrap_err();
    assert!(matches!(error, EngineError::Failed { .. }), "{error}");
}

/// tgtd with one unit. It needs root.
fn tgt(directory: &Path) -> Option<(Server, LoadTarget)> {
    let (Some(daemon), Some(admin)) = (programs::find("tgtd"), programs::find("tgtadm")) else {
        println!("SKIPPED: there is no iSCSI target (Debian's package tgt)");
        return None;
    };
    if !is_root() {
        println!("SKIPPED: tgtd needs root");
        return None;
    }
    let image = directory.join("unit");
    File::create(&image).unwrap().set_len(MIB << 20).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // Another tgtd of this machine has the usual one.
    let control = directory.join("tgt.sock");
    let portal = format!("portal=127.0.0.1:{port}");
    let mut command = Command::new(&daemon);
    command.args(["-f", "--iscsi", &portal]).env("TGT_IPC_SOCKET", &control);
    let server = Server::start(&mut command);
    let tell = |words: &str| {
        let mut command = Command::new(&admin);
        command.env("TGT_IPC_SOCKET", &control).args(["--lld", "iscsi"]).args(words.split(' '));
        command.output().unwrap().status.success()
    };
    wait_for("tgtd", || tell("--op show --mode sys"));
    assert!(tell(&format!("--op new --mode target --tid 1 -T {IQN}")));
    let unit = format!("--op new --mode logicalunit --tid 1 --lun 1 -b {}", image.display());
    assert!(tell(&unit) && tell("--op bind --mode target --tid 1 -I ALL"));
    Some((server, LoadTarget::Iscsi(format!("iscsi://127.0.0.1:{port}/{IQN}/1"))))
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

#[test]
fn iscsi_is_measured_by_iscsi_perf_where_fio_cannot() {
    let directory = directory();
    if let Err(error) = programs::find_iscsi_perf() {
        println!("SKIPPED: {error}");
        return;
    }
    let short = tempfile::tempdir().unwrap();
    let Some((server, place)) = tgt(short.path()) else { return };
    let job = Job { depth: 8, runtime: Some(Duration::from_secs(2)), ..Job::new(Mix::RandRead) };
    let measure = |place: &LoadTarget| {
        let jobs = [job.clone()];
        let load = Load { place, jobs: &jobs, until_bytes: None, directory: directory.path(), size_bytes: MIB << 20 };
        iscsi_perf::run(&load, |_| ControlFlow::Continue(()))
    };
    let report = measure(&place).unwrap().reports.remove(0);
    assert!(report.total.iops > 100.0 && report.errors == 0, "{report:?}");
    let wrong = LoadTarget::Iscsi(match &place {
        LoadTarget::Iscsi(uri) => uri.replace("drive0", "drive1"),
        _ => String::new(),
    });
    let error = measure(&wrong).unwrap_err().to_string();
    assert!(error.contains("to do:  check the address"), "{error}");
    if has_fio() && programs::has_engine("libiscsi") {
        assert!(is_paced(&run(&place, &[paced(Mix::RandWrite)], directory.path()).unwrap(), 1000.0));
    } else {
        let jobs = [job.clone()];
        let size_bytes = MIB << 20;
        let load = Load { place: &place, jobs: &jobs, until_bytes: None, directory: directory.path(), size_bytes };
        let error = fio::run(&load, |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(error, EngineError::Unsupported(_) | EngineError::Missing { .. }), "{error}");
    }
    drop(server);
}
