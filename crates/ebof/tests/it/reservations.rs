//! Reservations of a host that has several paths to a namespace, by the library: registered once,
//! valid on all; what becomes of a command that is lost with its path; targets that share none.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use ebof::initiator::{AdminData, ReservationRegistrant};
use ebof::nvme::identify::Csi;
use ebof::nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof::nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, Release,
    ReleaseAction, ReleaseKey, ReservationType,
};
use ebof::nvme::{HostId, Status};
use ebof::{AddPathError, Controller, Error, Nqn, Nsid, Options, PathNamespace, PathPolicy, Subsystem, Target};
use zerocopy::IntoBytes as _;

use crate::library::{CLOSED, MUTE, NQN, PASSES, Relay, SILENT, await_live, options};

const ALICE: &str = "nqn.2014-08.org.example:alice";
const BOB: &str = "nqn.2014-08.org.example:bob";
const KEY: u64 = 0xa11ce;

/// A target with a drive that has reservations, at two ports; its controllers are numbered from
/// `first` on.
fn start(backing: &str, first: u16) -> (Target, [SocketAddr; 2]) {
    let text = format!(
        "[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[ports]]\nname = \"b\"\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[drives]]\nname = \"d0\"\nattach = \"everyone\"\n{backing}\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\ndrive = \"d0\"\ncntlid_min = {first}\n\
         cntlid_max = {}\n",
        first + 999
    );
    let end = Instant::now() + Duration::from_secs(20);
    // The kernel releases a file a little after it was closed.
    let target = loop {
        match Target::start_text(&text) {
            Ok(target) => break target,
            Err(error) => assert!(Instant::now() < end, "{error:#}"),
        }
    };
    let addresses = target.addresses();
    let of = |name: &str| addresses.iter().find(|(port, _)| port == name).unwrap().1;
    let both = [of("a"), of("b")];
    (target, both)
}

fn host(mut options: Options, name: &str) -> Options {
    options.set_host_nqn(Nqn::parse(name).unwrap());
    options.nr_io_queues = 4;
    options
}

/// Connects over relays, and opens namespace 1, which is made if it is not there.
fn connect(relays: &[&Relay]) -> (Subsystem, PathNamespace) {
    let addresses: Vec<Options> = relays.iter().map(|relay| host(relay.options(), ALICE)).collect();
    let subsystem = Subsystem::connect(&addresses).unwrap();
    if subsystem.namespaces().unwrap().is_empty() {
        create(&subsystem.controller());
    }
    let namespace = eventually(|| subsystem.namespace(Nsid(1)).ok());
    (subsystem, namespace)
}

fn create(controller: &Controller) {
    let command = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM };
    let wanted = NewNamespace { nmic: 1, ..NewNamespace::new(16 << 11) };
    let cqe = controller.admin(command.encode(Nsid::NONE), AdminData::FromHost(wanted.as_bytes()), None).unwrap();
    assert!(cqe.status().is_success(), "{}", cqe.status());
}

fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn register(namespace: &PathNamespace, action: RegisterAction, crkey: u64, nrkey: u64) -> Result<(), Error> {
    let register = Register { action, ignore_existing_key: false, persistence: PersistenceChange::None };
    namespace.reservations().register(register, RegisterKeys { crkey: crkey.into(), nrkey: nrkey.into() })
}

fn acquire(namespace: &PathNamespace, key: u64) -> Result<(), Error> {
    let rtype = ReservationType::WriteExclusive.encode();
    let acquire = Acquire { action: AcquireAction::Acquire, ignore_existing_key: false, rtype };
    namespace.reservations().acquire(acquire, AcquireKeys { crkey: key.into(), prkey: 0.into() })
}

/// A write of another host, which is refused.
fn is_shut_out(address: SocketAddr) -> bool {
    let controller = Controller::connect(&host(options(address), BOB)).unwrap();
    let written = controller.namespace(Nsid(1)).unwrap().write(0, &[9; 512], false);
    controller.disconnect();
    written.is_err_and(|error| error.status().is_some_and(|status| status.is(Status::RESERVATION_CONFLICT)))
}

// @test paths.reservations
#[test]
fn a_host_registers_once_for_all_paths_and_for_those_that_join_later() {
    let (target, addresses) = start("backing = \"mem:64Mi\"", 1);
    let relays = addresses.map(Relay::new);
    let (subsystem, namespace) = connect(&[&relays[0]]);
    register(&namespace, RegisterAction::Register, 0, KEY).unwrap();
    acquire(&namespace, KEY).unwrap();
    assert!(addresses.into_iter().all(is_shut_out));
    // One that joins later.
    let second = subsystem.add(&host(relays[1].options(), ALICE)).unwrap();
    subsystem.set_policy(PathPolicy::RoundRobin);
    for block in 0..32 {
        namespace.write(block, &[1; 512], false).unwrap();
    }
    assert!(subsystem.paths().iter().all(|path| path.completed >= 10), "{:?}", subsystem.paths());
    // The one that it was registered over goes.
    relays[0].set(CLOSED);
    await_live(&subsystem, 1);
    namespace.write(0, &[2; 512], false).unwrap();
    assert!(is_shut_out(addresses[1]));
    let report = namespace.reservations().report().unwrap();
    let host_id = subsystem.controller().options().host_id;
    let me = ReservationRegistrant { host_id, key: KEY, is_holder: true };
    assert_eq!((report.registrants.as_slice(), report.held), (&[me][..], Some(ReservationType::WriteExclusive)));
    assert!(subsystem.paths().iter().any(|path| path.id == second && path.completed > 16));
    // It is released over the other one, too.
    let release = Release { action: ReleaseAction::Release, ignore_existing_key: false, rtype: 1 };
    namespace.reservations().release(release, ReleaseKey { crkey: KEY.into() }).unwrap();
    assert!(!is_shut_out(addresses[1]));
    subsystem.disconnect();
    target.stop(Duration::from_secs(5));
}

#[test]
fn a_command_that_was_lost_with_its_path_is_executed_once() {
    let (target, addresses) = start("backing = \"mem:64Mi\"", 1);
    let relays = addresses.map(Relay::new);
    let (subsystem, namespace) = connect(&relays.each_ref());
    let observer = Controller::connect(&host(options(addresses[1]), BOB)).unwrap();
    let other = Subsystem::new(observer).unwrap();
    let seen = || other.namespace(Nsid(1)).unwrap().reservations().report().unwrap();
    register(&namespace, RegisterAction::Register, 0, KEY).unwrap();
    let host_id: HostId = subsystem.controller().options().host_id;
    // Executed, and its answer is lost; then lost before it reaches the target.
    for (number, mode) in [(1, MUTE), (2, SILENT)] {
        let before = seen();
        await_live(&subsystem, 2);
        subsystem.prefer(Some(subsystem.paths()[0].id));
        let (old, new) = (KEY + number - 1, KEY + number);
        relays[0].set(mode);
        std::thread::scope(|scope| {
            let replaced = scope.spawn(|| register(&namespace, RegisterAction::Replace, old, new));
            if mode == MUTE {
                eventually(|| seen().registrant(host_id).filter(|one| one.key == new).copied());
            } else {
                std::thread::sleep(Duration::from_millis(200));
                assert_eq!(seen(), before);
            }
            relays[0].set(CLOSED);
            replaced.join().unwrap().unwrap();
        });
        let after = seen();
        assert_eq!((after.registrant(host_id).unwrap().key, after.generation), (new, before.generation + 1));
        relays[0].set(PASSES);
    }
    // What is refused stays refused.
    let refused = register(&namespace, RegisterAction::Replace, 7, 8).unwrap_err();
    assert!(refused.status().is_some_and(|status| status.is(Status::RESERVATION_CONFLICT)), "{refused}");
    subsystem.disconnect();
    other.disconnect();
    target.stop(Duration::from_secs(5));
}

#[test]
fn targets_that_do_not_share_reservations_are_no_paths_of_a_namespace_with_some() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let backing = |path: &Path| format!("backing = {:?}\nsize = \"64Mi\"", path.to_str().unwrap());
    let (target, [first, _]) = start(&backing(&file("a.img")), 1);
    let relay = Relay::new(first);
    let (subsystem, namespace) = connect(&[&relay]);
    drop(namespace);
    subsystem.disconnect();
    target.stop(Duration::from_secs(5));
    drop(target);
    // The same data, and reservations of their own.
    std::fs::copy(file("a.img"), file("b.img")).unwrap();
    let (here, [first, _]) = start(&backing(&file("a.img")), 1);
    let (there, [second, _]) = start(&backing(&file("b.img")), 1001);
    let relays = [first, second].map(Relay::new);
    let (subsystem, namespace) = connect(&relays.each_ref());
    subsystem.set_policy(PathPolicy::RoundRobin);
    subsystem.prefer(Some(subsystem.paths()[0].id));
    register(&namespace, RegisterAction::Register, 0, KEY).unwrap();
    subsystem.prefer(None);
    let before = subsystem.paths()[1].completed;
    for block in 0..16 {
        namespace.write(block, &[1; 512], false).unwrap();
    }
    assert_eq!(subsystem.paths()[1].completed, before, "it is not used any more");
    assert!(subsystem.remove(subsystem.paths()[1].id));
    let error = subsystem.add(&host(relays[1].options(), ALICE)).unwrap_err();
    let AddPathError::Namespace { what, here: told, there: other, .. } = &error else { panic!("{error}") };
    assert!(*what == "reservations" && told.starts_with("1 ") && other.starts_with("0 "), "{error}");
    assert!(!error.to_string().contains("a11ce"), "{error}");
    subsystem.disconnect();
    here.stop(Duration::from_secs(5));
    there.stop(Duration::from_secs(5));
}
