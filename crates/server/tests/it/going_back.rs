//! A reload that fails at its last step: what was opened is closed, and what was released is
//! reopened.

use std::fs::Permissions;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Options};
use ebof_manage::api::{ApplyError, Target as _};
use ebof_manage::config::{BlockSize, Port};
use ebof_manage::{Change, Config, Listen};
use ebof_nvme::{Nqn, Status};
use ebof_server::Target;
use zerocopy::IntoBytes;

use crate::config::NQN;
use crate::drive_rig;
use crate::raw::{self, Raw, connect_data};
use crate::reload_rig::{Over, a_number, block, connect, image, namespace, start_at_a_number, text};

/// A wildcard port that includes the one at `at`, and cannot be bound while the returned listener,
/// which has one of its addresses, exists. A reload binds ports last.
fn out_of_reach(config: &mut Config, at: usize) -> TcpListener {
    let number = widen(config, at);
    TcpListener::bind(("127.0.0.2", number)).unwrap()
}

/// The same port for all addresses.
fn widen(config: &mut Config, at: usize) -> u16 {
    let Port { id, listen: Listen { port, .. }, .. } = config.ports[at];
    config.ports[at] = Port::new(id, Listen::new([0, 0, 0, 0].into(), port));
    everywhere(config);
    port
}

/// All subsystems on all ports.
fn everywhere(config: &mut Config) {
    let names: Vec<_> = config.ports.iter().map(|port| port.name.clone()).collect();
    config.subsystems.iter_mut().for_each(|subsystem| subsystem.ports.clone_from(&names));
}

/// The reload fails because of its port, and the old configuration is completely in force again.
fn fails_and_leaves(target: &Target, config: Config, before: &Config) {
    let error = target.apply(config).unwrap_err();
    let ApplyError::Failed { change, .. } = &error else { panic!("{error}") };
    assert!(matches!(**change, Change::AddPort { .. }), "{change}");
    assert_eq!(target.config(), *before);
}

/// A second port at a number.
fn with_second_port(target: &Target, config: &mut Config) {
    for _ in 0..100 {
        let number = a_number();
        let mut wanted = config.clone();
        wanted.ports.push(Port::new(2, Listen::new([127, 0, 0, 1].into(), number)));
        everywhere(&mut wanted);
        if target.apply(wanted.clone()).is_ok() {
            *config = wanted;
            return;
        }
    }
    unreachable!("a hundred free ports were taken at once")
}

// @test data.failed-reload
#[test]
fn a_file_opened_with_other_options_is_reopened_as_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 1 << 20, 7);
    let (target, config, address) = start_at_a_number(&[text(&path)]);
    let mut other = config.clone();
    other.subsystems[0].namespaces[0].block_size = Some(BlockSize::B4096);
    let _listener = out_of_reach(&mut other, 0);
    fails_and_leaves(&target, other, &config);
    assert_eq!(block(&namespace(&connect(address), 1)), [7; 512]);
}

/// A file that only changes its NSID is never closed: it may be impossible to open it again.
// @test data.failed-reload
#[test]
fn a_file_that_only_changed_its_nsid_is_never_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path(), "a.img", 1 << 20, 7);
    let (target, config, address) = start_at_a_number(&[text(&path)]);
    std::fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    let mut other = config.clone();
    other.subsystems[0].namespaces[0].nsid = 5;
    let _listener = out_of_reach(&mut other, 0);
    fails_and_leaves(&target, other, &config);
    let seen = namespace(&connect(address), 1);
    seen.write(0, &[8; 512], false).unwrap();
    assert_eq!(block(&seen), [8; 512]);
}

// @test data.failed-reload
#[test]
fn ports_are_restored_with_their_limits_and_order() {
    let (target, mut config, address) = start_at_a_number(&["mem:1Mi"]);
    with_second_port(&target, &mut config);
    let addresses = target.addresses();
    // The first can be bound, and is closed again; the second cannot.
    let mut other = config.clone();
    widen(&mut other, 0);
    let listener = out_of_reach(&mut other, 1);
    fails_and_leaves(&target, other, &config);
    assert_eq!(target.addresses(), addresses);
    assert!(addresses.iter().all(|(_, address)| connect(*address).io_queues() > 0));
    // One stays, after the other; its new limits are not in force.
    let mut other = config.clone();
    other.ports[1].max_queue_size = 64;
    widen(&mut other, 0);
    let also = TcpListener::bind(("127.0.0.2", address.port())).unwrap();
    fails_and_leaves(&target, other, &config);
    assert_eq!(target.addresses(), addresses);
    assert!(connect(addresses[1].1).cap().mqes() > 64);
    // Without the conflicting listener both are bound to wildcards, one after the other.
    drop((listener, also));
    for at in 0..2 {
        widen(&mut config, at);
        target.apply(config.clone()).unwrap();
    }
    assert!(target.addresses().iter().all(|(_, address)| address.ip().is_unspecified()));
}

/// Another process listens as soon as the port is released.
// @test data.failed-reload
#[test]
fn a_port_taken_by_another_process_is_no_longer_served() {
    let (target, mut config, address) = start_at_a_number(&["mem:1Mi"]);
    with_second_port(&target, &mut config);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thief = scope.spawn(|| {
            loop {
                match TcpListener::bind(address) {
                    Err(_) if !over.load(Relaxed) => {}
                    outcome => return outcome,
                }
            }
        });
        let end = Instant::now() + Duration::from_secs(120);
        let mut other = config.clone();
        let _listener = out_of_reach(&mut other, 0);
        let error = loop {
            let error = target.apply(other.clone()).unwrap_err();
            if matches!(error, ApplyError::Incomplete { .. }) || Instant::now() > end {
                break error;
            }
        };
        over.store(true, Relaxed);
        let _taken = thief.join().unwrap().unwrap();
        let ApplyError::Incomplete { lost, .. } = &error else { panic!("{error}") };
        assert!(lost.len() == 1 && lost[0].starts_with("port tcp://127.0.0.1:"), "{lost:?}");
        assert_eq!(target.config().ports, config.ports[1..]);
        assert_eq!(target.addresses().len(), 1);
    });
    // The next configuration tries it again.
    target.apply(config.clone()).unwrap();
    assert_eq!((target.config(), target.addresses()[0].1), (config, address));
    assert!(connect(address).io_queues() > 0);
}

const OTHER: &str = "nqn.2014-08.org.example:drive1";

fn connect_to(target: &Target, nqn: &str) -> Result<Controller, ebof_initiator::ConnectError> {
    let address = target.addresses()[0].1;
    Controller::connect(&Options::new(address.ip().to_string(), address.port(), Nqn::parse(nqn).unwrap()))
}

/// A target with a drive in a file, whose namespace 1 is filled with sevens.
fn with_drive(path: &Path) -> (Target, Config) {
    let drive = drive_rig::drive(path, Some(64 << 20));
    let (target, mut config, _) = start_at_a_number(&[]);
    let mut subsystem = ebof_manage::config::Subsystem::of_drive(Nqn::parse(NQN).unwrap(), &drive);
    subsystem.allow_any_host = true;
    config.subsystems = vec![subsystem];
    config.drives = vec![drive];
    everywhere(&mut config);
    target.apply(config.clone()).unwrap();
    let controller = connect_to(&target, NQN).unwrap();
    let nsid = drive_rig::create(&controller, 2048);
    namespace(&controller, nsid.0).write(0, &[7; 512], true).unwrap();
    (target, config)
}

/// The same configuration, with another name of the drive's file: the drive has to be reopened.
fn by_another_path(config: &Config, directory: &Path) -> (Config, PathBuf) {
    let link = directory.join("link.img");
    if !link.exists() {
        std::fs::hard_link(config.drives[0].backing.path().unwrap(), &link).unwrap();
    }
    let mut other = config.clone();
    other.drives[0].backing = text(&link).parse().unwrap();
    (other, link)
}

/// The result of connecting to the subsystem.
fn connect_status(address: SocketAddr) -> Status {
    let mut host = Raw::initialized(address);
    host.send(raw::connect(0, 32), 1, connect_data(0xffff).as_bytes());
    host.completion().status()
}

/// Linux removes a controller if Do Not Retry is set.
// @test wire.do-not-retry
#[test]
fn while_a_drive_is_reopened_refusals_allow_retries() {
    let directory = tempfile::tempdir().unwrap();
    let (target, config) = with_drive(&directory.path().join("d.img"));
    let (other, _) = by_another_path(&config, directory.path());
    let address = target.addresses()[0].1;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    assert_ne!(connect_status(address), Status::CONNECT_INVALID_PARAMETERS.dnr());
                }
            });
        }
        let _at_the_end_whatever_happens = Over(&over);
        for turn in 0..20 {
            target.apply(if turn % 2 == 0 { other.clone() } else { config.clone() }).unwrap();
        }
    });
}

// @test data.failed-reload
#[test]
fn a_drive_opened_for_another_subsystem_is_reopened_as_before() {
    let directory = tempfile::tempdir().unwrap();
    let (target, config) = with_drive(&directory.path().join("d.img"));
    let mut other = config.clone();
    other.subsystems[0].nqn = Nqn::parse(OTHER).unwrap();
    let listener = out_of_reach(&mut other, 0);
    fails_and_leaves(&target, other, &config);
    let controller = connect_to(&target, NQN).unwrap();
    assert_eq!(block(&namespace(&controller, 1)), [7; 512]);
    assert!(connect_to(&target, OTHER).is_err());
    // A drive that only gets another name stays open, and keeps the old name.
    let mut other = config.clone();
    (other.drives[0].name, other.subsystems[0].drive) = ("other".to_owned(), Some("other".to_owned()));
    widen(&mut other, 0);
    fails_and_leaves(&target, other, &config);
    drop(listener);
    assert_eq!(target.status().drives[0].name, "d0");
    assert_eq!(block(&namespace(&controller, 1)), [7; 512]);
}

// @test data.failed-reload
#[test]
fn a_drive_that_cannot_be_reopened_is_reported_and_retried_by_the_next_reload() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d.img");
    let (target, config) = with_drive(&path);
    std::fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    let (mut other, _) = by_another_path(&config, directory.path());
    // The drive is opened first; the port shows that the error is not about it.
    let _listener = out_of_reach(&mut other, 0);
    let error = target.apply(other).unwrap_err();
    let ApplyError::Incomplete { lost, .. } = &error else { panic!("{error}") };
    assert!(lost.len() == 1 && lost[0].starts_with(&format!("subsystem {NQN}: ")), "{lost:?}");
    let now = target.config();
    assert_eq!((now.subsystems.len(), now.drives.len(), target.status().drives.len()), (0, 0, 0));
    // It will not return: hosts may give up.
    assert_eq!(connect_status(target.addresses()[0].1), Status::CONNECT_INVALID_PARAMETERS.dnr());
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    target.apply(config.clone()).unwrap();
    assert_eq!(target.config(), config);
    assert_eq!(block(&namespace(&connect_to(&target, NQN).unwrap(), 1)), [7; 512]);
}
