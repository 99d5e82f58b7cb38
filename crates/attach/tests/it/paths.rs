//! Several paths to one block device: joined and left while it is in use, states of access, losses.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ebof_attach::state::PathState;
use ebof_attach::{Attached, Error, Kind, PathSettings, Request, Select, connect_in, disconnect_in, open_in};
use ebof_initiator::{AdminData, Controller, Options};
use ebof_manage::Listen;
use ebof_manage::api::Target as _;
use ebof_manage::config::{Attach, IdentityRule, ManagedDrive, Namespace, Port, Subsystem};
use ebof_nvme::identify::Csi;
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, Release,
    ReleaseAction, ReleaseKey, ReservationType,
};
use ebof_nvme::{Nqn, Nsid, Sqe, Status, Uuid};
use ebof_server::{Settings, Target};
use zerocopy::IntoBytes as _;

use crate::front::{Aligned, pattern};
use crate::line::{Line, NOTHING, NQN, direct, eventually, path};

/// A target with a second port.
struct Two {
    line: Line,
    second: u16,
}

impl Two {
    fn new(kind: Kind) -> Self {
        Self::at(Line::new(kind, &["DIR/disk.img:64Mi"]))
    }

    /// Of a drive with one namespace, which has reservations.
    fn of_drive(kind: Kind) -> Self {
        let mut line = Line::new(kind, &[]);
        line.stop();
        let mut drive = ManagedDrive::new("d0", "mem:64Mi".parse().unwrap());
        drive.attach = Attach::Everyone;
        let allow_any_host = true;
        let subsystem = Subsystem { allow_any_host, ..Subsystem::of_drive(Nqn::parse(NQN).unwrap(), &drive) };
        (line.config.subsystems, line.config.drives) = (vec![subsystem], vec![drive]);
        line.start();
        let options = Options::new(line.address.ip().to_string(), line.address.port(), Nqn::parse(NQN).unwrap());
        let controller = Controller::connect(&options).unwrap();
        let create = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM };
        let wanted = NewNamespace { nmic: 1, ..NewNamespace::new(32 << 11) };
        let made = controller.admin(create.encode(Nsid::NONE), AdminData::FromHost(wanted.as_bytes()), None).unwrap();
        assert!(made.status().is_success(), "{}", made.status());
        controller.disconnect();
        Self::at(line)
    }

    fn at(mut line: Line) -> Self {
        let mut second = Port::new(2, Listen::new(line.address.ip(), 0));
        second.name = "second".to_owned();
        line.config.subsystems[0].ports.push(second.name.clone());
        line.config.ports.push(second);
        let mut two = Self { line, second: 0 };
        two.apply();
        let addresses = two.target().addresses();
        two.second = addresses.iter().find(|(name, _)| name == "second").expect("the second port").1.port();
        two.line.config.ports[1].listen = Listen::new(two.line.address.ip(), two.second);
        two
    }

    fn target(&self) -> &Target {
        self.line.target.as_ref().expect("a target")
    }

    fn apply(&self) {
        self.target().apply(self.line.config.clone()).unwrap();
    }

    fn second(&self) -> Request {
        Request { trsvcid: self.second, ..self.line.request() }
    }

    fn connect(&self) -> (Attached, Attached) {
        let first = self.line.connect();
        let second = connect_in(&self.line.states, &self.second()).unwrap_or_else(|error| panic!("{error}"));
        (first, second)
    }

    /// Sets a group's state at one of the ports.
    fn set(&mut self, port: usize, state: &str) {
        let states: ebof_manage::config::AnaStates = serde_json::from_value(serde_json::json!({ "1": state })).unwrap();
        self.line.config.ports[port].ana = states;
        self.apply();
    }

    fn paths(&self) -> Vec<PathState> {
        open_in(&self.line.states, "nvme0")
            .and_then(|mut client| Ok(client.status()?.paths.clone()))
            .unwrap_or_default()
    }

    /// The paths by their states, once they are as they should be.
    fn await_paths(&self, wanted: &[(&str, Option<&str>)]) {
        let look = || {
            let paths = self.paths();
            let states: Vec<(&str, Option<&str>)> =
                paths.iter().map(|path| (path.state.as_str(), path.access.get("1").map(String::as_str))).collect();
            (states == wanted).then_some(())
        };
        assert!(eventually(look).is_some(), "{wanted:?}: {:?}", self.paths());
    }
}

/// Writes a block with a number that grows, again and again, and reads it back.
struct Load {
    ends: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<Duration>,
}

impl Load {
    fn start(file: File) -> Self {
        let (ends, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_over, count) = (Arc::clone(&ends), Arc::clone(&rounds));
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            for number in 0_u64.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let began = Instant::now();
                let data = Aligned::new(&number.to_le_bytes().repeat(512));
                let at = number % 64 * 4096;
                file.write_all_at(data.bytes(), at).unwrap();
                let mut back = Aligned::new(&[0; 4096]);
                file.read_exact_at(back.bytes_mut(), at).unwrap();
                assert!(back.bytes() == data.bytes(), "round {number}");
                longest = longest.max(began.elapsed());
                count.store(number, Ordering::Relaxed);
            }
            longest
        });
        Self { ends, rounds, thread }
    }

    /// Waits until some more rounds have ended.
    fn goes_on(&self) {
        let before = self.rounds.load(Ordering::Relaxed);
        let more = || (self.rounds.load(Ordering::Relaxed) > before + 20 || self.thread.is_finished()).then_some(());
        assert!(eventually(more).is_some(), "I/O stands still");
    }

    /// The longest round.
    fn end(self) -> Duration {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("every block reads as it was written")
    }
}

// @test paths.one-device
pub(crate) fn a_second_port_is_a_path_of_the_same_device(kind: Kind) {
    let two = Two::new(kind);
    let (first, second) = two.connect();
    assert_eq!((second.name.as_str(), second.path.as_deref()), (first.name.as_str(), Some("nvme0c1")));
    assert_eq!(second.devices, first.devices);
    assert_eq!(two.line.records().len(), 1);
    two.await_paths(&[("live", Some("optimized")), ("live", Some("optimized"))]);
    for request in [two.line.request(), two.second()] {
        let again = connect_in(&two.line.states, &request).unwrap_err();
        assert!(matches!(again, Error::AlreadyConnected(_)), "{again}");
    }
    // Each path is used when it is asked for.
    let file = direct(&path(&first));
    let data = Aligned::new(&pattern(1, 1 << 20));
    let mut client = open_in(&two.line.states, "nvme0").unwrap();
    for (number, address) in ["nvme0c1", &format!("127.0.0.1:{}", two.line.address.port())].into_iter().enumerate() {
        client.set_paths(&PathSettings { prefer: Some(address.to_owned()), ..PathSettings::default() }).unwrap();
        let before: Vec<u64> = two.paths().iter().map(|path| path.completed).collect();
        file.write_all_at(data.bytes(), 0).unwrap();
        let after: Vec<u64> = two.paths().iter().map(|path| path.completed).collect();
        let grew: Vec<bool> = before.iter().zip(&after).map(|(before, after)| after > before).collect();
        assert_eq!(grew, [number == 1, number == 0], "{before:?} {after:?}");
        let written = client.stats().unwrap().paths.iter().map(|path| path.kinds[1].bytes).collect::<Vec<_>>();
        assert_eq!(written, if number == 0 { [0, 1 << 20] } else { [1 << 20, 1 << 20] });
    }
    client
        .set_paths(&PathSettings {
            policy: Some("round-robin".to_owned()),
            prefer: Some("none".to_owned()),
            ..PathSettings::default()
        })
        .unwrap();
    let before: Vec<u64> = two.paths().iter().map(|path| path.completed).collect();
    (0..64).for_each(|block| file.write_all_at(&data.bytes()[..4096], block * 4096).unwrap());
    let after: Vec<u64> = two.paths().iter().map(|path| path.completed).collect();
    assert!(before.iter().zip(&after).all(|(before, after)| *after >= before + 30), "{before:?} {after:?}");
    // What is wrong changes nothing.
    for (wrong, said) in [
        (PathSettings { policy: Some("fastest".to_owned()), ..PathSettings::default() }, "queue-depth"),
        (PathSettings { prefer: Some("nvme0c9".to_owned()), ..PathSettings::default() }, "nvme0c1 (tcp://127.0.0.1:"),
    ] {
        let error = client.set_paths(&wrong).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(client.status().unwrap().policy.as_deref(), Some("round-robin"));
    drop(file);
    let report = disconnect_in(&two.line.states, &Select::All, false).unwrap();
    assert_eq!(report.disconnected.len(), 1);
    assert_eq!(two.line.leftovers(), NOTHING);
}

// @test paths.join-and-leave
pub(crate) fn paths_join_and_leave_under_load(kind: Kind) {
    let two = Two::new(kind);
    let first = two.line.connect();
    let load = Load::start(direct(&path(&first)));
    load.goes_on();
    for round in 1..=3 {
        let name = format!("nvme0c{round}");
        let second = connect_in(&two.line.states, &two.second()).unwrap();
        assert_eq!(second.path.as_deref(), Some(name.as_str()));
        load.goes_on();
        let mut client = open_in(&two.line.states, "nvme0").unwrap();
        client.set_paths(&PathSettings { disable: Some("nvme0c0".to_owned()), ..PathSettings::default() }).unwrap();
        load.goes_on();
        let last = PathSettings { disable: Some(name.clone()), ..PathSettings::default() };
        let refused = client.set_paths(&last).unwrap_err().to_string();
        assert!(refused.contains("the only path that is enabled"), "{refused}");
        client.set_paths(&PathSettings { enable: Some("nvme0c0".to_owned()), ..PathSettings::default() }).unwrap();
        let report = disconnect_in(&two.line.states, &Select::Device(name.clone()), false).unwrap();
        assert_eq!(report.disconnected, [(name, NQN.to_owned())]);
        load.goes_on();
    }
    let only = disconnect_in(&two.line.states, &Select::Device("nvme0c0".to_owned()), false).unwrap();
    assert!(only.failed[0].1.to_string().contains("the only path"), "{:?}", only.failed);
    // Of two that are taken away at once one stays.
    let second = connect_in(&two.line.states, &two.second()).unwrap().path.unwrap();
    let removed = std::thread::scope(|scope| {
        let remove = |name: &str| {
            let (states, select) = (two.line.states.clone(), Select::Device(name.to_owned()));
            scope.spawn(move || disconnect_in(&states, &select, false).unwrap().disconnected.len())
        };
        let both = [remove("nvme0c0"), remove(&second)];
        both.map(|thread| thread.join().unwrap()).iter().sum::<usize>()
    });
    assert_eq!((removed, two.paths().len()), (1, 1), "{:?}", two.paths());
    load.goes_on();
    let other = if two.paths()[0].trsvcid == two.second { two.line.request() } else { two.second() };
    connect_in(&two.line.states, &other).unwrap();
    let first_name = two.paths()[0].name.clone();
    disconnect_in(&two.line.states, &Select::Device(first_name), false).unwrap();
    if two.paths()[0].trsvcid == two.second {
        connect_in(&two.line.states, &two.line.request()).unwrap();
        let first_name = two.paths()[0].name.clone();
        disconnect_in(&two.line.states, &Select::Device(first_name), false).unwrap();
    }
    // The first one may go as well.
    connect_in(&two.line.states, &two.second()).unwrap();
    let first_name = two.paths()[0].name.clone();
    let report = disconnect_in(&two.line.states, &Select::Device(first_name), false).unwrap();
    assert_eq!(report.disconnected.len(), 1, "{:?}", report.failed);
    load.goes_on();
    load.end();
}

// @test paths.reservations
pub(crate) fn a_reservation_holds_for_all_paths_of_a_device(kind: Kind) {
    let two = Two::of_drive(kind);
    let first = two.line.connect();
    let reserve = |sqe: Sqe, data: &[u8]| {
        let mut client = open_in(&two.line.states, "nvme0").unwrap();
        client.io(&sqe, AdminData::FromHost(data)).unwrap().status()
    };
    let is_shut_out = || {
        let mut options = Options::new(two.line.address.ip().to_string(), two.second, Nqn::parse(NQN).unwrap());
        options.set_host_nqn(Nqn::parse("nqn.2014-08.org.example:other").unwrap());
        let other = Controller::connect(&options).unwrap();
        let written = other.namespace(Nsid(1)).unwrap().write(0, &[9; 512], false);
        other.disconnect();
        written.is_err_and(|error| error.status().is_some_and(|status| status.is(Status::RESERVATION_CONFLICT)))
    };
    let (ignore_existing_key, rtype) = (false, ReservationType::WriteExclusive.encode());
    let register = |action| Register { action, ignore_existing_key, persistence: PersistenceChange::None };
    let keys = RegisterKeys { crkey: 0.into(), nrkey: 7.into() };
    let status = reserve(register(RegisterAction::Register).encode(Nsid(1)), keys.as_bytes());
    assert!(status.is_success(), "{status}");
    let acquire = Acquire { action: AcquireAction::Acquire, ignore_existing_key, rtype };
    let keys = AcquireKeys { crkey: 7.into(), prkey: 0.into() };
    assert!(reserve(acquire.encode(Nsid(1)), keys.as_bytes()).is_success());
    // A path that joins later is let in, and the one that it was registered over goes.
    let second = connect_in(&two.line.states, &two.second()).unwrap();
    let settings = PathSettings { prefer: second.path, ..PathSettings::default() };
    open_in(&two.line.states, "nvme0").unwrap().set_paths(&settings).unwrap();
    let file = direct(&path(&first));
    let data = Aligned::new(&pattern(1, 4096));
    file.write_all_at(data.bytes(), 0).unwrap();
    let report = disconnect_in(&two.line.states, &Select::Device("nvme0c0".to_owned()), false).unwrap();
    assert_eq!(report.disconnected.len(), 1, "{:?}", report.failed);
    file.write_all_at(data.bytes(), 4096).unwrap();
    assert!(is_shut_out());
    // What is refused is told.
    let wrong = RegisterKeys { crkey: 8.into(), nrkey: 9.into() };
    let status = reserve(register(RegisterAction::Replace).encode(Nsid(1)), wrong.as_bytes());
    assert!(status.is(Status::RESERVATION_CONFLICT), "{status}");
    let release = Release { action: ReleaseAction::Release, ignore_existing_key, rtype };
    assert!(reserve(release.encode(Nsid(1)), ReleaseKey { crkey: 7.into() }.as_bytes()).is_success());
    assert!(!is_shut_out());
}

// @test paths.access
pub(crate) fn io_follows_the_states_of_access(kind: Kind) {
    let mut two = Two::new(kind);
    let (first, _) = two.connect();
    let load = Load::start(direct(&path(&first)));
    for (here, there) in [
        ("non-optimized", "optimized"),
        ("inaccessible", "optimized"),
        ("optimized", "inaccessible"),
        ("persistent-loss", "non-optimized"),
        ("optimized", "change"),
        ("optimized", "optimized"),
    ] {
        two.set(1, there);
        two.set(0, here);
        two.await_paths(&[("live", Some(here)), ("live", Some(there))]);
        load.goes_on();
        let before: Vec<u64> = two.paths().iter().map(|path| path.completed).collect();
        load.goes_on();
        let after: Vec<u64> = two.paths().iter().map(|path| path.completed).collect();
        let is_used = |number: usize| after[number] > before[number];
        let is_second = here != "optimized";
        assert!(
            is_used(usize::from(is_second)) && !is_used(usize::from(!is_second)),
            "{here} {there}: {before:?} {after:?}"
        );
    }
    load.end();
}

// @test paths.loss
pub(crate) fn a_path_that_is_lost_is_left_and_comes_back(kind: Kind) {
    let mut two = Two::new(kind);
    let (first, _) = two.connect();
    let load = Load::start(direct(&path(&first)));
    for number in [0, 1, 0] {
        let name = two.line.config.ports[number].name.clone();
        load.goes_on();
        two.line.config.subsystems[0].ports.retain(|port| *port != name);
        two.apply();
        let states = if number == 0 { ["connecting", "live"] } else { ["live", "connecting"] };
        let look = || {
            let now: Vec<String> = two.paths().into_iter().map(|path| path.state).collect();
            (now == states).then_some(())
        };
        assert!(eventually(look).is_some(), "{:?}", two.paths());
        // What is open over a path that is away is not gone.
        open_in(&two.line.states, "nvme0").unwrap().rescan().unwrap();
        load.goes_on();
        two.line.config.subsystems[0].ports = two.line.config.ports.iter().map(|port| port.name.clone()).collect();
        two.apply();
        two.await_paths(&[("live", Some("optimized")), ("live", Some("optimized"))]);
    }
    let longest = load.end();
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    let told = open_in(&two.line.states, "nvme0").unwrap().stats().unwrap().paths;
    for (number, path) in told.iter().enumerate() {
        let reconnects = [2, 1][number];
        assert!(path.reconnects >= reconnects && path.kinds[1].bytes > 0, "{path:?}");
    }
    // What was under way when a path was lost has gone on over the other.
    assert!(told.iter().map(|path| path.failovers).sum::<u64>() > 0, "{told:?}");
}

// @test paths.refused
pub(crate) fn what_leads_elsewhere_is_no_path(kind: Kind) {
    let two = Two::new(kind);
    let first = two.line.connect();
    // The same NQN at another target.
    let mut other = Subsystem::new(Nqn::parse(NQN).unwrap());
    other.allow_any_host = true;
    other.identity = IdentityRule::Name;
    other.serial = two.line.config.subsystems[0].serial.clone();
    let start = |namespace: Namespace, serial: Option<&str>| {
        let mut subsystem = other.clone();
        subsystem.namespaces = vec![namespace];
        if let Some(serial) = serial {
            serial.clone_into(&mut subsystem.serial);
        }
        let port = Port::new(1, Listen::new(two.line.address.ip(), 0));
        subsystem.ports = vec![port.name.clone()];
        let config = ebof_manage::Config { subsystems: vec![subsystem], ports: vec![port], ..Default::default() };
        Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap()
    };
    let refused = |target: &Target| {
        let request = Request { trsvcid: target.addresses()[0].1.port(), ..two.line.request() };
        connect_in(&two.line.states, &request).unwrap_err().to_string()
    };
    let same = Namespace::new(1, "mem:64Mi".parse().unwrap());
    let serial = refused(&start(same.clone(), Some("OTHER")));
    assert!(serial.contains("serial number is \"OTHER\"") && serial.contains("not a path"), "{serial}");
    let uuid = refused(&start(Namespace { uuid: Some(Uuid([7; 16])), ..same.clone() }, None));
    assert!(uuid.contains("not a path of the same device"), "{uuid}");
    let nobody = Request { trsvcid: 1, ..two.line.request() };
    let nobody = connect_in(&two.line.states, &nobody).unwrap_err();
    assert!(matches!(&nobody, Error::Daemon { kind: Some(kind), .. } if kind == "refused"), "{nobody}");
    let states: Vec<String> = two.paths().into_iter().map(|path| path.state).collect();
    assert_eq!(states, ["live"], "nothing has changed");
    let data = Aligned::new(&pattern(1, 4096));
    direct(&path(&first)).write_all_at(data.bytes(), 0).unwrap();
}
