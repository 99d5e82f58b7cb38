//! Connect: which hosts get a queue, and the refusals of others.

use crate::support::*;
use ebof_fabrics::{CloseReason, Limits, PortId, RefusalReason, Step, SubmissionQueue, Task};
use ebof_nvme::connect::{Connect, ConnectData, ConnectResult, disconnect, field_name};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::{ControllerId, Nqn, QueueId, Sqe, Status};

/// The result of a refused Connect: status and, for Connect Invalid Parameters, the field.
fn told(cqe: &ebof_nvme::Cqe) -> (Status, Option<&'static str>) {
    let (in_data, at) = ConnectResult::invalid(cqe.result());
    let field = cqe.status().is(Status::CONNECT_INVALID_PARAMETERS).then(|| field_name(in_data, at));
    (cqe.status(), field.flatten())
}

const INVALID: Status = Status::CONNECT_INVALID_PARAMETERS;

// @test wire.do-not-retry
#[test]
fn every_refusal_of_an_admin_queue_has_its_field() {
    let good = connect_data(DRIVE, ALICE, ControllerId::DYNAMIC);
    let of = |change: fn(&mut ConnectData)| {
        let mut data = good;
        change(&mut data);
        data
    };
    let connect = |change: fn(&mut Connect)| {
        let mut connect = admin_connect();
        change(&mut connect);
        connect
    };
    let same = || connect(|_| ());
    use RefusalReason as Reason;
    let rows = [
        (connect(|c| c.recfmt = 1), good, Reason::Format, Status::CONNECT_INCOMPATIBLE_FORMAT.dnr(), None),
        (connect(|c| c.entries = 1), good, Reason::QueueSize, INVALID.dnr(), Some("Submission Queue Size (SQSIZE)")),
        (connect(|c| c.entries = 129), good, Reason::QueueSize, INVALID.dnr(), Some("Submission Queue Size (SQSIZE)")),
        (
            same(),
            of(|d| d.subnqn = [0; 256]),
            Reason::MalformedSubsystem,
            INVALID.dnr(),
            Some("NVM Subsystem NQN (SUBNQN)"),
        ),
        (same(), of(|d| d.hostnqn = [b'x'; 256]), Reason::MalformedHost, INVALID.dnr(), Some("Host NQN (HOSTNQN)")),
        (
            same(),
            of(|d| d.subnqn[3] = b'X'),
            Reason::UnknownSubsystem,
            INVALID.dnr(),
            Some("NVM Subsystem NQN (SUBNQN)"),
        ),
        (same(), of(|d| d.cntlid = 1.into()), Reason::StaticController, INVALID.dnr(), Some("Controller ID (CNTLID)")),
        (
            same(),
            of(|d| d.cntlid = 0xfffe.into()),
            Reason::StaticController,
            INVALID.dnr(),
            Some("Controller ID (CNTLID)"),
        ),
        (
            same(),
            connect_data(OTHER, BOB, ControllerId::DYNAMIC),
            Reason::HostNotAllowed,
            Status::CONNECT_INVALID_HOST.dnr(),
            None,
        ),
    ];
    let mut world = World::new();
    for (connect, data, reason, status, field) in rows {
        let at = world.open();
        let (cqe, refusal) = world.connect(at, connect, &data);
        assert_eq!((refusal.unwrap().reason, told(&cqe)), (reason, (status, field)));
        assert!(!world.queues[&at].is_connected());
        // Another Connect may follow on a refused queue.
        assert_eq!(world.connect(at, admin_connect(), &good).1, None);
    }
}

// @test wire.do-not-retry
// @test limits.granted
#[test]
fn every_refusal_of_an_io_queue_has_its_field() {
    let mut world = World::new();
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    world.io_queue(DRIVE, ALICE, cntlid, 1);
    let io = |qid| Connect { qid: QueueId(qid), ..admin_connect() };
    let good = connect_data(DRIVE, ALICE, cntlid);
    let wrong = ControllerId(cntlid.0 + 1);
    let sequence = Status::COMMAND_SEQUENCE_ERROR;
    use RefusalReason as Reason;
    let rows = [
        (io(1), good, Reason::QueueInUse, sequence, None),
        (io(9), good, Reason::QueueId, INVALID.dnr(), Some("Queue ID (QID)")),
        (io(2), connect_data(DRIVE, ALICE, wrong), Reason::UnknownController, INVALID, Some("Controller ID (CNTLID)")),
        (io(2), connect_data(DRIVE, BOB, cntlid), Reason::OtherHost, INVALID, Some("Host NQN (HOSTNQN)")),
        (io(2), connect_data(OTHER, ALICE, cntlid), Reason::UnknownController, INVALID, Some("Controller ID (CNTLID)")),
        (io(1), connect_data(Nqn::DISCOVERY, ALICE, cntlid), Reason::QueueId, INVALID.dnr(), Some("Queue ID (QID)")),
        (
            Connect { entries: 1024, ..io(2) },
            good,
            Reason::QueueSize,
            INVALID.dnr(),
            Some("Submission Queue Size (SQSIZE)"),
        ),
    ];
    for (connect, data, reason, status, field) in rows {
        let at = world.open();
        let (cqe, refusal) = world.connect(at, connect, &data);
        assert_eq!((refusal.unwrap().reason, told(&cqe)), (reason, (status, field)));
    }
    // Port 2 exists, but the controller is on port 1.
    world.port = PortId(2);
    let at = world.open();
    assert_eq!(world.connect(at, io(2), &good).1.unwrap().reason, Reason::OtherHost);
}

#[test]
fn an_io_queue_before_the_controller_is_ready_is_a_sequence_error() {
    let mut world = World::new();
    let admin = world.open();
    let (cqe, _) = world.connect(admin, admin_connect(), &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    let (cntlid, authreq) = ConnectResult::connected(cqe.result());
    assert_eq!(authreq, 0);
    let at = world.open();
    let connect = Connect { qid: QueueId(1), ..admin_connect() };
    let (cqe, refusal) = world.connect(at, connect, &connect_data(DRIVE, ALICE, cntlid));
    assert_eq!(refusal.unwrap().reason, RefusalReason::NotReady);
    assert_eq!(cqe.status(), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn only_connect_is_allowed_before_connect() {
    let mut world = World::new();
    let at = world.open();
    for sqe in [Sqe::new(nvm::READ), Sqe::new(admin::IDENTIFY), disconnect()] {
        assert_eq!(world.run(at, sqe).status(), Status::COMMAND_SEQUENCE_ERROR.dnr());
    }
    let short = with_data(admin_connect().encode(), 512);
    assert_eq!(world.run(at, short).status(), Status::DATA_SGL_LENGTH_INVALID.dnr());
    // A second time it is refused.
    let (admin, _) = world.controller(DRIVE, ALICE);
    let again = with_data(admin_connect().encode(), 1024);
    assert_eq!(world.run(admin, again).status(), Status::COMMAND_SEQUENCE_ERROR.dnr().more());
}

#[test]
fn a_host_identifier_belongs_to_one_host() {
    let mut world = World::new();
    world.controller(DRIVE, ALICE);
    let clone = ConnectData { hostid: host_id(ALICE).0, ..connect_data(DRIVE, BOB, ControllerId::DYNAMIC) };
    let at = world.open();
    let (cqe, refusal) = world.connect(at, admin_connect(), &clone);
    assert_eq!(refusal.unwrap().reason, RefusalReason::HostIdInUse);
    assert_eq!(told(&cqe), (INVALID, Some("Host Identifier (HOSTID)")));
    // The same host may have several controllers.
    let (_, first) = world.controller(DRIVE, ALICE);
    let (_, second) = world.controller(DRIVE, ALICE);
    assert_ne!(first, second);
}

#[test]
fn controllers_are_limited_and_reused() {
    let mut world = World::with(Limits { controllers: 2, ..Limits::default() }, model());
    let (first, _) = world.controller(DRIVE, ALICE);
    world.controller(Nqn::DISCOVERY, BOB);
    let at = world.open();
    let (cqe, refusal) = world.connect(at, admin_connect(), &connect_data(DRIVE, BOB, ControllerId::DYNAMIC));
    assert_eq!(refusal.unwrap().reason, RefusalReason::ControllersExhausted);
    assert_eq!(cqe.status(), Status::CONNECT_CONTROLLER_BUSY);
    world.close(first);
    assert_eq!(world.connect(at, admin_connect(), &connect_data(DRIVE, BOB, ControllerId::DYNAMIC)).1, None);
}

// @test hostile.shares
#[test]
fn one_host_leaves_controllers_and_queues_for_others() {
    let limits = Limits { controllers: 4, host_controllers: 3, host_queues: 5, ..Limits::default() };
    let mut world = World::with(limits, model());
    let refusal = |world: &mut World, at, host| {
        world.connect(at, admin_connect(), &connect_data(DRIVE, host, ControllerId::DYNAMIC)).1.map(|it| it.reason)
    };
    // Those of discovery and of other subsystems are counted.
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    world.controller(OTHER, ALICE);
    let (discovery, _) = world.controller(Nqn::DISCOVERY, ALICE);
    let at = world.open();
    assert_eq!(refusal(&mut world, at, ALICE), Some(RefusalReason::HostShare));
    assert_eq!(refusal(&mut world, at, BOB), None);
    // Five queues: three Admin Queues and two more.
    world.io_queue(DRIVE, ALICE, cntlid, 1);
    let second = world.io_queue(DRIVE, ALICE, cntlid, 2);
    let at = world.open();
    let third = Connect { qid: QueueId(3), ..admin_connect() };
    let (cqe, refused) = world.connect(at, third, &connect_data(DRIVE, ALICE, cntlid));
    assert_eq!(refused.unwrap().reason, RefusalReason::HostShare);
    assert_eq!(cqe.status(), Status::CONNECT_CONTROLLER_BUSY);
    world.close(second);
    assert_eq!(world.connect(at, third, &connect_data(DRIVE, ALICE, cntlid)).1, None);
    world.close(discovery);
    let at = world.open();
    assert_eq!(refusal(&mut world, at, ALICE), None);
}

#[test]
fn controller_ids_are_in_range_and_start_at_the_seed() {
    let mut model = model();
    let drive = std::sync::Arc::make_mut(&mut model.subsystems[0]);
    drive.cntlid_min = ControllerId(10);
    drive.cntlid_max = ControllerId(12);
    let mut world = World::with(Limits::default(), model);
    // 41 modulo 3 is 2.
    let ids: Vec<u16> = (0..3).map(|_| world.controller(DRIVE, ALICE).1.0).collect();
    assert_eq!(ids, [12, 10, 11]);
    let at = world.open();
    let (cqe, _) = world.connect(at, admin_connect(), &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    assert_eq!(cqe.status(), Status::CONNECT_CONTROLLER_BUSY);
}

/// Where the next one is looked for may be outside of a range that a reload has moved.
#[test]
fn controller_ids_are_in_their_range_when_that_moves() {
    let mut world = World::new();
    for range in [1..=3, 10..=12, 2..=5, 0x7000..=0xffff] {
        world.replace_model(|model| {
            let drive = std::sync::Arc::make_mut(&mut model.subsystems[0]);
            (drive.cntlid_min, drive.cntlid_max) = (ControllerId(*range.start()), ControllerId(*range.end()));
        });
        for _ in 0..3 {
            let (at, cntlid) = world.controller(DRIVE, ALICE);
            assert!(range.contains(&cntlid.0), "{cntlid:?} of {range:?}");
            world.close(at);
        }
    }
}

#[test]
fn a_discovery_only_port_serves_nothing_else() {
    let mut world = World::new();
    world.port = PortId(2);
    let at = world.open();
    let (_, refusal) = world.connect(at, admin_connect(), &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    assert_eq!(refusal.unwrap().reason, RefusalReason::UnknownSubsystem);
    for name in [Nqn::DISCOVERY, OWN_DISCOVERY] {
        world.controller(name, BOB);
    }
}

#[test]
fn a_subsystem_is_at_its_ports_only() {
    let mut world = World::new();
    world.replace_model(|model| model.ports.push(port(3, "192.0.2.3", "4420")));
    for (at_port, is_there) in [(1, true), (3, false)] {
        world.port = PortId(at_port);
        let at = world.open();
        let (_, refusal) = world.connect(at, admin_connect(), &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
        let expected = (!is_there).then_some(RefusalReason::UnknownSubsystem);
        assert_eq!(refusal.map(|refusal| refusal.reason), expected, "port {at_port}");
    }
}

#[test]
fn the_transport_gets_the_submission_queue_and_moves_its_head() {
    let mut world = World::new();
    for (cattr, flow_disabled) in [(0, false), (Connect::CATTR_DISABLE_SQ_FLOW, true)] {
        let at = world.open();
        assert_eq!(world.queues[&at].submission_queue(), None);
        let connect = Connect { entries: 4, cattr, ..admin_connect() };
        let (cqe, _) = world.connect(at, connect, &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
        assert_eq!(cqe.sqhd.get(), 0);
        assert_eq!(world.queues[&at].submission_queue(), Some(SubmissionQueue { entries: 4, flow_disabled }));
        let get = world.run(at, ebof_nvme::connect::Property::get(offset::VS, 4));
        assert_eq!(get.cqe.unwrap().sqhd.get(), 0);
    }
}

#[test]
fn the_end_of_the_admin_queue_ends_the_others() {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let (bystander, _) = world.controller(DRIVE, BOB);
    world.close(admin);
    assert_eq!(world.closes, [(io, CloseReason::AdminQueueLost)]);
    assert!(world.queues[&io].is_closing());
    let late = with_data(Sqe::new(nvm::READ).with_nsid(ebof_nvme::Nsid(1)), 512);
    assert_eq!(world.run(io, late).status(), Status::ABORTED_SQ_DELETION);
    assert_eq!(world.registry.controllers().count(), 2);
    world.close(io);
    assert_eq!(world.registry.controllers().count(), 1);
    assert!(!world.queues[&bystander].is_closing());
}

#[test]
fn an_io_queue_can_be_disconnected_and_connected_again() {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let wrong = disconnect().with_cdw(10, 1);
    assert_eq!(world.run(io, wrong).status(), Status::CONNECT_INCOMPATIBLE_FORMAT.dnr().more());
    let done = world.run(io, disconnect());
    assert_eq!((done.status(), done.step.as_str()), (Status::SUCCESS, "disconnect"));
    assert!(world.queues[&io].is_closing());
    world.close(io);
    world.io_queue(DRIVE, ALICE, cntlid, 1);
    assert_eq!(world.run(admin, disconnect()).status(), Status::INVALID_QUEUE_TYPE.dnr().more());
}

#[test]
fn associations_that_a_new_model_does_not_allow_end() {
    let mut world = World::new();
    let (drive, _) = world.controller(DRIVE, ALICE);
    let (other, _) = world.controller(OTHER, ALICE);
    world.replace_model(|model| {
        let other = std::sync::Arc::make_mut(&mut model.subsystems[1]);
        other.allowed_hosts = vec![nqn(BOB)];
    });
    assert_eq!(world.closes, [(other, CloseReason::HostNotAllowed)]);
    world.replace_model(|model| {
        model.subsystems.remove(0);
    });
    assert_eq!(world.closes[1..], [(drive, CloseReason::SubsystemRemoved)]);
    // Its commands are not executed any more, not even those already sent.
    let get = world.run(drive, ebof_nvme::connect::Property::get(offset::VS, 4));
    assert_eq!(get.status(), Status::ABORTED_SQ_DELETION);
}

/// They are there until the target has closed them, and what comes by then is not executed: caches
/// are flushed already.
#[test]
fn io_queues_execute_nothing_while_their_controller_ends() {
    for cc in [Cc::ENABLE.with_shutdown(1), Cc::ENABLE.with_shutdown(2), Cc(0)] {
        let mut world = World::new();
        let (admin, cntlid) = world.controller(DRIVE, ALICE);
        let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
        let set = Sqe { cid: 999.into(), ..ebof_nvme::connect::Property::set(offset::CC, cc.0) };
        let queue = world.queues.get_mut(&admin).unwrap();
        let Step::Execute(executing, Task::Shared) = queue.submit(&set, 1000) else { panic!("CC is not written") };
        let (step, notices) = world.registry.execute(queue, executing, 1000);
        world.deliver(notices);
        let write = with_data(Sqe::new(nvm::WRITE).with_nsid(ebof_nvme::Nsid(1)), 512);
        assert!(world.run(io, write).status().is(Status::COMMAND_SEQUENCE_ERROR), "{:#x}", cc.0);
        assert!(world.carry_out(admin, step, &[]).status().is_success());
    }
}

#[test]
fn a_reset_closes_io_queues_and_the_controller_can_be_enabled_again() {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 3);
    let set = |world: &mut World, cc| world.run(admin, ebof_nvme::connect::Property::set(offset::CC, cc));
    let csts = |world: &mut World| world.run(admin, ebof_nvme::connect::Property::get(offset::CSTS, 4)).result();
    assert_eq!(csts(&mut world), 1);
    let reset = set(&mut world, 0);
    assert!(reset.step.contains(&format!("Handle({io})")), "{}", reset.step);
    assert_eq!(csts(&mut world), 0);
    assert!(set(&mut world, Cc::ENABLE.0).status().is_success());
    world.io_queue(DRIVE, ALICE, cntlid, 3);
    let abrupt = set(&mut world, Cc::ENABLE.with_shutdown(2).0);
    assert!(abrupt.step.contains("flush: [], is_reset: true,"), "{}", abrupt.step);
    set(&mut world, 0);
    assert!(set(&mut world, Cc::ENABLE.0).status().is_success());
    world.io_queue(DRIVE, ALICE, cntlid, 3);
    // A normal shutdown also flushes the caches: devices 1, 2 and 3 have one.
    let shutdown = set(&mut world, Cc::ENABLE.with_shutdown(1).0);
    let flushed = "flush: [DeviceId(1), DeviceId(2), DeviceId(3)], is_reset: true,";
    assert!(shutdown.step.contains(flushed), "{}", shutdown.step);
    assert_eq!(csts(&mut world), 0b1001);
    assert_eq!(world.run(admin, Sqe::new(admin::KEEP_ALIVE)).status(), Status::COMMAND_SEQUENCE_ERROR.dnr().more());
}
