//! A target whose drive's thread is kept busy: responses to a host while work of its last
//! association is queued there.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test fails by panicking; sizes are small")]

#[allow(dead_code, reason = "not every test uses all of it")]
#[path = "../../../tests/it/raw.rs"]
mod raw;

use std::sync::mpsc;
use std::time::Instant;

use ebof_manage::Listen;
use ebof_manage::api::Target as _;
use ebof_manage::config::{Attach, ManagedDrive, Port, Subsystem};
use ebof_nvme::connect::{ConnectData, Property};
use ebof_nvme::identify::Csi;
use ebof_nvme::io::BlockRange;
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::nvm;
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::{Nqn, Nsid, Sqe};
use zerocopy::IntoBytes;

use self::raw::{Raw, connect, connect_data};
use super::*;

fn start(directory: &std::path::Path) -> (Target, SocketAddr) {
    let file = directory.join("drive.img");
    let mut drive = ManagedDrive::new("d0", file.to_str().unwrap().parse().unwrap());
    drive.size_bytes = Some(64 << 20);
    drive.attach = Attach::Everyone;
    let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
    let nqn = Nqn::parse("nqn.2014-08.org.example:drive0").unwrap();
    let mut subsystem = Subsystem::of_drive(nqn, &drive);
    subsystem.allow_any_host = true;
    subsystem.ports = vec![port.name.clone()];
    let config = Config { ports: vec![port], subsystems: vec![subsystem], drives: vec![drive], ..Config::default() };
    let target = Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap();
    let address = target.addresses()[0].1;
    (target, address)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what} takes longer than a minute");
        std::thread::yield_now();
    }
}

/// A host that connects again and again while the drive's thread hangs queues work there each time,
/// which must be bounded.
#[test]
fn controllers_that_come_and_go_while_the_drives_thread_hangs_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address) = start(directory.path());
    let (open, gate) = mpsc::channel::<()>();
    let (_, actor) = target.shared.drives.actors().remove(0);
    actor.medium().run(Box::new(move |_| _ = gate.recv()));
    let mut granted = 0_u64;
    let refusal = loop {
        let mut admin = Raw::initialized(address);
        admin.send(connect(0, 32), 0, connect_data(0xffff).as_bytes());
        let status = admin.completion().status();
        if !status.is_success() {
            break status;
        }
        granted += 1;
        drop(admin);
        until("seeing the end", || target.shared.registry().draining_controllers() == granted as usize);
        assert!(granted < 1000, "there is no end of it");
    };
    assert_eq!((granted, refusal), (64, ebof_nvme::Status::CONNECT_CONTROLLER_BUSY));
    open.send(()).unwrap();
    until("draining", || target.shared.registry().draining_controllers() == 0);
    let (_admin, _controller) = Raw::admin_and_controller(address);
}

/// Whoever still has what was in force, such as a request for the status, is not in the way.
// @test data.port-again
#[test]
fn a_port_that_was_removed_can_be_added_again_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address) = start(directory.path());
    let mut with = target.config();
    with.ports[0].listen.port = address.port();
    let mut without = with.clone();
    without.ports.clear();
    without.subsystems.iter_mut().for_each(|subsystem| subsystem.ports.clear());
    for _ in 0..20 {
        let held = target.in_force().clone();
        target.apply(without.clone()).unwrap();
        std::net::TcpListener::bind(address).expect("it is free for others, too");
        target.apply(with.clone()).unwrap();
        let (_admin, _controller) = Raw::admin_and_controller(address);
        drop(held);
    }
}

/// A requested check is executed once, however many commands fail before the drive's thread gets to
/// it.
#[test]
fn failures_while_the_drives_thread_is_busy_cause_one_check() {
    let directory = tempfile::tempdir().unwrap();
    let (target, _address) = start(directory.path());
    let (_, actor) = target.shared.drives.actors().remove(0);
    let (open, gate) = mpsc::channel::<()>();
    let (begun, busy) = mpsc::channel::<()>();
    actor.medium().run(Box::new(move |_| {
        begun.send(()).unwrap();
        _ = gate.recv();
    }));
    // Work of the start is done then, and does not count.
    busy.recv().unwrap();
    let before = Arc::strong_count(&actor);
    (0..1000).for_each(|_| actor.collect_soon());
    assert_eq!(Arc::strong_count(&actor), before + 1);
    open.send(()).unwrap();
    until("the look", || Arc::strong_count(&actor) == before);
    actor.collect_soon();
    until("another look", || Arc::strong_count(&actor) == before);
}

#[test]
fn the_log_uses_the_current_name_of_a_drive() {
    let directory = tempfile::tempdir().unwrap();
    let (target, _address) = start(directory.path());
    let mut config = target.config();
    config.drives[0].name = "other".to_owned();
    let nqn = config.subsystems[0].nqn.clone();
    config.subsystems[0].drive = Some("other".to_owned());
    target.apply(config).unwrap();
    assert_eq!(target.shared.drives.actor(&nqn).unwrap().name(), "other");
}

// @test data.old-association
#[test]
fn requests_of_an_old_queue_on_the_drives_thread_end_before_the_next_queue_begins() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address) = start(directory.path());
    let (mut admin, controller) = Raw::admin_and_controller(address);
    let create = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM }.encode(Nsid::NONE);
    admin.send(create, 3, NewNamespace::new(16 << 11).as_bytes());
    assert!(admin.completion().status().is_success());
    let mut io = Raw::initialized(address);
    io.send(connect(1, 32), 1, connect_data(controller).as_bytes());
    assert!(io.completion().status().is_success());
    // From here on the drive's thread is blocked.
    let (open, gate) = mpsc::channel::<()>();
    let (_, actor) = target.shared.drives.actors().remove(0);
    actor.medium().run(Box::new(move |_| _ = gate.recv()));
    io.send(BlockRange::new(0, 8).encode(nvm::WRITE_UNCORRECTABLE, Nsid(1)), 2, &[]);
    drop((admin, io));
    let (_admin, controller) = Raw::admin_and_controller(address);
    let mut io = Raw::initialized(address);
    io.send(connect(1, 32), 1, connect_data(controller).as_bytes());
    until("holding the Connect", || target.shared.registry().held_connects() == 1);
    open.send(()).unwrap();
    assert!(io.completion().status().is_success());
    // The blocks were marked before: what is written now stays.
    io.send(BlockRange::new(0, 1).encode(nvm::WRITE, Nsid(1)), 2, &[7; 512]);
    assert!(io.completion().status().is_success());
    io.send(BlockRange::new(0, 1).encode(nvm::VERIFY, Nsid(1)), 3, &[]);
    assert!(io.completion().status().is_success());
}

/// A host with an Admin Queue and an I/O queue; its name and identifier are made from `id`.
struct Host {
    _admin: Raw,
    io: Raw,
}

impl Host {
    fn connect(address: SocketAddr, id: u8) -> Self {
        let data = |controller| {
            let nqn = Nqn::parse(&format!("nqn.2014-08.org.example:host{id}")).unwrap().to_field();
            ConnectData { hostid: [id; 16], hostnqn: nqn, ..connect_data(controller) }
        };
        let mut admin = Raw::initialized(address);
        let mut io = Raw::initialized(address);
        admin.send(connect(0, 32), 1, data(0xffff).as_bytes());
        let connected = admin.completion();
        assert!(connected.status().is_success());
        admin.send(Property::set(offset::CC, Cc::ENABLE.0), 2, &[]);
        assert!(admin.completion().status().is_success());
        io.send(connect(1, 32), 1, data(connected.dw0.get() as u16).as_bytes());
        assert!(io.completion().status().is_success());
        Self { _admin: admin, io }
    }

    fn run(&mut self, sqe: Sqe, data: &[u8]) {
        self.io.send(sqe, 2, data);
        let cqe = self.io.completion();
        assert!(cqe.status().is_success(), "{}", cqe.status());
    }
}

/// A reservation command with two keys.
fn reserve(opcode: u8, cdw10: u32) -> Sqe {
    Sqe::new(opcode).with_nsid(Nsid(1)).with_cdw(10, cdw10)
}

fn keys(first: u64, second: u64) -> Vec<u8> {
    [first.to_le_bytes(), second.to_le_bytes()].concat()
}

/// Exclusive Access.
const EXCLUSIVE: u32 = 2 << 8;

#[test]
fn preempt_and_abort_waits_for_requests_of_the_other_host_on_the_drives_thread() {
    for leaves in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (target, address) = start(directory.path());
        // There is one reactor: after two responses it has processed everything before.
        let (mut observer, _) = Raw::admin_and_controller(address);
        let mut settle = move || {
            for _ in 0..3 {
                observer.send(Sqe::new(ebof_nvme::opcode::admin::KEEP_ALIVE), 9, &[]);
                assert!(observer.completion().status().is_success());
            }
        };
        let (mut manager, _) = Raw::admin_and_controller(address);
        let create = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM }.encode(Nsid::NONE);
        manager.send(create, 3, NewNamespace::new(16 << 11).as_bytes());
        assert!(manager.completion().status().is_success());
        let mut alice = Host::connect(address, 1);
        let mut bob = Host::connect(address, 2);
        alice.run(reserve(nvm::RESERVATION_REGISTER, 0), &keys(0, 0xa));
        bob.run(reserve(nvm::RESERVATION_REGISTER, 0), &keys(0, 0xb));
        alice.run(reserve(nvm::RESERVATION_ACQUIRE, EXCLUSIVE), &keys(0xa, 0));
        // The drive's thread does nothing until all of it is there: the preemption, and behind it a
        // mark of the one that is preempted, which the reservation allowed when it came.
        let actor = target.shared.drives.actors().remove(0).1;
        let hold = |gate: mpsc::Receiver<()>, entered: mpsc::Sender<()>| {
            actor.medium().run(Box::new(move |_| {
                let _told = entered.send(());
                let _opened = gate.recv();
            }));
        };
        let (open_first, first) = mpsc::channel();
        let (open_second, second) = mpsc::channel();
        let (entered, reached) = mpsc::channel();
        hold(first, entered.clone());
        reached.recv().unwrap();
        // RACQA 2h: Preempt and Abort.
        bob.io.send(reserve(nvm::RESERVATION_ACQUIRE, EXCLUSIVE | 2), 3, &keys(0xb, 0xa));
        settle();
        hold(second, entered);
        alice.io.send(BlockRange::new(0, 8).encode(nvm::WRITE_UNCORRECTABLE, Nsid(1)), 3, &[]);
        settle();
        let mut alice = Some(alice);
        if leaves {
            alice = None;
            settle();
        }
        open_first.send(()).unwrap();
        reached.recv().unwrap();
        // The preemption is executed, the blocks are not marked.
        settle();
        bob.io.0.set_nonblocking(true).unwrap();
        let early = std::io::Read::read(&mut bob.io.0, &mut [0; 8]);
        assert!(early.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "it is over; left: {leaves}");
        bob.io.0.set_nonblocking(false).unwrap();
        open_second.send(()).unwrap();
        let cqe = bob.io.completion();
        assert!(cqe.status().is_success(), "{}", cqe.status());
        // The blocks were marked before: what is written now stays.
        bob.run(BlockRange::new(0, 8).encode(nvm::WRITE, Nsid(1)), &[7; 4096]);
        bob.run(BlockRange::new(0, 8).encode(nvm::VERIFY, Nsid(1)), &[]);
        drop(alice);
    }
}
