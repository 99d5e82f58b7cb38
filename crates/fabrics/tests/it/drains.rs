//! Queues that have ended while their commands are at a device, and Connects of their host during
//! that time.

use ebof_fabrics::registry::{CONNECT_HOLD_MS, DRAINING_MAX, FENCE_MS, SILENT_MS, SLOW_DRAIN_MS};
use ebof_fabrics::{Attachment, CloseReason, Executing, Handle, IoTask, Quiesce, RefusalReason, Step, Task};
use ebof_nvme::connect::{Connect, ConnectData, Property};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::{admin as admin_opcode, nvm};
use ebof_nvme::property::{Cc, Csts, offset};
use ebof_nvme::{Cid, ControllerId, Nsid, QueueId, Sqe, Status};
use zerocopy::IntoBytes;

use crate::support::{ALICE, BOB, DRIVE, OTHER, World, admin_connect, arrival, connect_data, host_id, nqn, with_data};

/// A write that is at a device.
fn write(world: &mut World, at: u64) -> Executing {
    let sqe = with_data(BlockRange::new(0, 8).encode(nvm::WRITE, Nsid(1)), 4096);
    let Step::Execute(executing, Task::Io(IoTask::Transfer(_))) =
        world.queues.get_mut(&at).unwrap().submit(&sqe, world.now_ms)
    else {
        panic!("no write")
    };
    executing
}

/// The connection has ended, but its outstanding commands have not.
fn end(world: &mut World, at: u64) {
    let notices = world.registry.ending(Handle(at));
    world.deliver(notices);
}

/// A Connect for an I/O queue, and the registry's decision.
struct Waiting {
    at: u64,
    data: ConnectData,
    executing: Executing,
}

fn ask(world: &mut World, host: &str, cntlid: ControllerId, qid: u16) -> Waiting {
    let at = world.open();
    ask_at(world, at, host, cntlid, qid)
}

/// The same over a connection that there is.
fn ask_at(world: &mut World, at: u64, host: &str, cntlid: ControllerId, qid: u16) -> Waiting {
    let data = connect_data(DRIVE, host, cntlid);
    let sqe = with_data(Connect { qid: QueueId(qid), entries: 64, ..admin_connect() }.encode(), 1024);
    let Step::Execute(executing, Task::Connect) = world.queues.get_mut(&at).unwrap().submit(&sqe, world.now_ms) else {
        panic!("no Connect step")
    };
    Waiting { at, data, executing }
}

/// `Ok` when it is held, otherwise how it completed.
fn decide(world: &mut World, waiting: Waiting) -> Result<Waiting, (Status, Option<RefusalReason>)> {
    let Waiting { at, data, executing } = waiting;
    match world.ask_registry(at, executing, data.as_bytes()) {
        (Step::Execute(executing, Task::DeferConnect(looks)), None) => {
            assert!(looks.is_empty(), "they have been looked at");
            Ok(Waiting { at, data, executing })
        }
        (Step::Complete(cqe), refusal) => Err((cqe.status(), refusal.map(|refusal| refusal.reason))),
        other => panic!("{other:?}"),
    }
}

fn granted(outcome: &Result<Waiting, (Status, Option<RefusalReason>)>) -> bool {
    matches!(outcome, Err((status, None)) if status.is_success())
}

// @test data.old-association
#[test]
fn io_queues_of_a_new_association_wait_for_commands_of_the_old_one_at_devices() {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let _at_device = write(&mut world, io);
    // Its connections are lost; the Admin Queue has no outstanding commands.
    end(&mut world, io);
    world.close(admin);
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    let waiting = ask(&mut world, ALICE, cntlid, 1);
    let waiting = decide(&mut world, waiting).expect("it is held");
    // Other hosts do not wait, and this one does not wait in other subsystems.
    let (_, bobs) = world.controller(DRIVE, BOB);
    let of_bob = ask(&mut world, BOB, bobs, 1);
    assert!(granted(&decide(&mut world, of_bob)));
    let (_, elsewhere) = world.controller(OTHER, ALICE);
    world.io_queue(OTHER, ALICE, elsewhere, 1);
    assert!(world.retries.is_empty());
    world.close(io);
    assert_eq!(world.retries, [waiting.at], "now it is tried again");
    assert!(granted(&decide(&mut world, waiting)));
}

/// A host is recognised by its NQN or by its identifier: one of them may change when it is
/// reinstalled, or with each connection.
#[test]
fn a_host_that_reconnects_with_another_identifier_or_nqn_waits_as_well() {
    let mallory = "nqn.2014-08.org.example:mallory";
    for (name, id, waits) in [(ALICE, BOB, true), (mallory, ALICE, true), (mallory, BOB, false)] {
        let mut world = World::new();
        world.replace_model(|model| std::sync::Arc::make_mut(&mut model.subsystems[0]).allow_any_host = true);
        let (admin, cntlid) = world.controller(DRIVE, ALICE);
        let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
        let _at_device = write(&mut world, io);
        end(&mut world, io);
        world.close(admin);
        let as_host = |cntlid| {
            let mut data = connect_data(DRIVE, name, cntlid);
            data.hostid = host_id(id).0;
            data
        };
        let admin = world.open();
        let (cqe, refusal) = world.connect(admin, admin_connect(), &as_host(ControllerId::DYNAMIC));
        assert_eq!(refusal, None);
        world.run(admin, Property::set(offset::CC, Cc::ENABLE.0));
        let cntlid = ebof_nvme::connect::ConnectResult::connected(cqe.result()).0;
        let waiting = Waiting { data: as_host(cntlid), ..ask(&mut world, name, cntlid, 1) };
        let outcome = decide(&mut world, waiting);
        assert_eq!((outcome.is_ok(), granted(&outcome)), (waits, !waits), "{name} with the identifier of {id}");
    }
}

// @test data.old-association
#[test]
fn an_association_that_a_timer_or_an_administrator_ends_drains_as_well() {
    for reason in [CloseReason::KeepAlive, CloseReason::HostNotAllowed] {
        let mut world = World::new();
        let admin = world.open();
        let connect = Connect { kato_ms: 5000, ..admin_connect() };
        let (cqe, _) = world.connect(admin, connect, &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
        let cntlid = ebof_nvme::connect::ConnectResult::connected(cqe.result()).0;
        world.run(admin, Property::set(offset::CC, Cc::ENABLE.0));
        let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
        let _at_device = write(&mut world, io);
        match reason {
            CloseReason::KeepAlive => {
                // Commands have arrived since the timer was started: it expires the second time.
                world.expire_at(world.now_ms + 5100);
                world.expire_at(world.now_ms + 5100);
            }
            _ => {
                let any = |allow| {
                    move |model: &mut ebof_fabrics::Model| {
                        std::sync::Arc::make_mut(&mut model.subsystems[0]).allow_any_host = allow;
                    }
                };
                world.replace_model(any(false));
                world.replace_model(any(true));
            }
        }
        assert!(world.closes.contains(&(io, reason)), "{:?}", world.closes);
        world.close(admin);
        // The thread of the I/O queue has not been notified yet.
        let (_, cntlid) = world.controller(DRIVE, ALICE);
        let waiting = ask(&mut world, ALICE, cntlid, 1);
        let waiting = decide(&mut world, waiting).expect("it is held");
        world.close(io);
        assert_eq!(world.retries, [waiting.at]);
        assert!(granted(&decide(&mut world, waiting)));
    }
}

#[test]
fn a_queue_whose_connection_was_lost_is_connected_again_when_it_has_drained() {
    let mut world = World::new();
    let (_admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let _at_device = write(&mut world, io);
    end(&mut world, io);
    let waiting = ask(&mut world, ALICE, cntlid, 1);
    let waiting = decide(&mut world, waiting).expect("it is held, not in use");
    world.close(io);
    assert!(granted(&decide(&mut world, waiting)));
}

// @test data.hanging-device
#[test]
fn a_hanging_device_delays_a_connect_for_a_limited_time_and_is_reported_once() {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let _at_device = write(&mut world, io);
    end(&mut world, io);
    world.close(admin);
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    let asked = ask(&mut world, ALICE, cntlid, 1);
    let waiting = decide(&mut world, asked).expect("it is held");
    assert_eq!(world.registry.held_connects(), 1);
    world.expire_at(world.now_ms);
    let until = world.now_ms + CONNECT_HOLD_MS;
    assert_eq!(world.registry.next_deadline(), Some(world.now_ms + FENCE_MS));
    world.expire_at(world.now_ms + FENCE_MS);
    assert_eq!(world.registry.next_deadline(), Some(until));
    world.expire_at(until);
    assert_eq!(world.retries, [waiting.at]);
    let Err((status, reason)) = decide(&mut world, waiting) else { panic!("still held") };
    assert_eq!(reason, Some(RefusalReason::Draining));
    assert!(status.is(Status::CONNECT_CONTROLLER_BUSY) && !status.is_dnr(), "{status}");
    let later = world.now_ms - CONNECT_HOLD_MS + SLOW_DRAIN_MS;
    assert!(world.registry.take_slow_drains().is_empty());
    assert_eq!(world.registry.next_deadline(), Some(later));
    world.expire_at(later);
    let slow = world.registry.take_slow_drains();
    assert_eq!(slow.len(), 1);
    assert_eq!((slow[0].host.as_str(), slow[0].queue), (ALICE, QueueId(1)));
    world.expire_at(later + 1);
    assert!(world.registry.take_slow_drains().is_empty(), "it has been told");
    assert_eq!(world.registry.next_deadline(), None, "nothing is to be looked at again");
    // It reconnects again and again: its state is bounded, and others are served.
    let mut refused = None;
    for _ in 0..DRAINING_MAX {
        let (admin, _) = world.controller(DRIVE, ALICE);
        end(&mut world, admin);
        let at = world.open();
        let data = connect_data(DRIVE, ALICE, ControllerId::DYNAMIC);
        let (cqe, refusal) = world.connect(at, admin_connect(), &data);
        if let Some(refusal) = refusal {
            refused = Some((cqe.status(), refusal.reason));
            break;
        }
        end(&mut world, at);
    }
    let (status, reason) = refused.expect("at some point there is an end to it");
    assert!(status.is(Status::CONNECT_CONTROLLER_BUSY));
    assert_eq!(reason, RefusalReason::Draining);
    let (_, bobs) = world.controller(DRIVE, BOB);
    let of_bob = ask(&mut world, BOB, bobs, 1);
    assert!(granted(&decide(&mut world, of_bob)));
}

/// Has the registry decide a Connect, without what the checks that it wants come to.
fn connect_once(world: &mut World, at: u64, executing: Executing, data: &ConnectData) -> Step {
    let arrival = crate::support::arrival(at, world.port, &world.local);
    let queue = world.queues.get_mut(&at).unwrap();
    world.registry.connect(queue, executing, data.as_bytes(), &arrival, world.now_ms).0
}

// @test data.old-association
#[test]
fn a_connect_first_checks_other_admin_queues_of_its_host_and_all_queues_of_a_silent_association() {
    for silent_ms in [0, SILENT_MS - 1, SILENT_MS] {
        let mut world = World::new();
        let (old, cntlid) = world.controller(DRIVE, ALICE);
        let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
        let _at_device = write(&mut world, io);
        // The end of its connection has arrived and was not read, or has not arrived.
        world.now_ms += silent_ms;
        let (_, cntlid) = world.controller(DRIVE, ALICE);
        let Waiting { at, data, executing } = ask(&mut world, ALICE, cntlid, 1);
        let step = connect_once(&mut world, at, executing, &data);
        let Step::Execute(executing, Task::DeferConnect(looks)) = step else { panic!("{step:?}") };
        let is_silent = silent_ms >= SILENT_MS;
        assert_eq!(looks, [Handle(old), Handle(io)][..if is_silent { 2 } else { 1 }]);
        if !is_silent {
            world.close(old);
        }
        let notices = world.registry.acknowledge_check(Handle(at));
        world.deliver(notices);
        assert!(world.retries.is_empty(), "the old queue drains, or has something at a device");
        if is_silent {
            let notices = world.registry.acknowledge_check(Handle(at));
            world.deliver(notices);
        } else {
            world.close(io);
        }
        assert_eq!(world.retries, [at]);
        assert!(granted(&decide(&mut world, Waiting { at, data, executing })));
    }
}

/// A Connect that was refused may be followed by another one, over the same connection, while the
/// checks for the first have not come to an end.
// @test data.old-association
#[test]
fn checks_for_a_connect_that_was_refused_are_no_checks_for_the_next_one() {
    let mut world = World::new();
    let (old, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let _at_device = write(&mut world, io);
    world.now_ms += SILENT_MS;
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    let at = world.open();
    let connect = |world: &mut World, Waiting { data, executing, .. }: Waiting| {
        let step = connect_once(world, at, executing, &data);
        match step {
            Step::Execute(executing, Task::DeferConnect(looks)) => Ok((Waiting { at, data, executing }, looks)),
            Step::Complete(cqe) => Err(cqe.status()),
            step => panic!("{step:?}"),
        }
    };
    let acknowledge = |world: &mut World| {
        let notices = world.registry.acknowledge_check(Handle(at));
        world.deliver(notices);
    };
    let first = ask_at(&mut world, at, ALICE, cntlid, 1);
    let (first, looks) = connect(&mut world, first).unwrap();
    assert_eq!(looks, [Handle(old), Handle(io)]);
    acknowledge(&mut world);
    // The device hangs.
    world.now_ms += CONNECT_HOLD_MS;
    assert_eq!(connect(&mut world, first).err(), Some(Status::CONNECT_CONTROLLER_BUSY));
    let second = ask_at(&mut world, at, ALICE, cntlid, 1);
    let (second, looks) = connect(&mut world, second).unwrap();
    assert_eq!(looks.len(), 2);
    acknowledge(&mut world);
    acknowledge(&mut world);
    assert!(world.retries.is_empty(), "of these one was for the first");
    acknowledge(&mut world);
    assert_eq!(world.retries, [at]);
    assert_eq!(connect(&mut world, second).err(), Some(Status::SUCCESS));
}

/// They may come to an end when nobody waits for them any more, and when the connection is gone.
#[test]
fn checks_that_end_late_are_for_nobody() {
    let mut world = World::new();
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let _at_device = write(&mut world, io);
    world.now_ms += SILENT_MS;
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    let Waiting { at, data, executing } = ask(&mut world, ALICE, cntlid, 1);
    let step = connect_once(&mut world, at, executing, &data);
    let Step::Execute(executing, Task::DeferConnect(looks)) = step else { panic!("{step:?}") };
    assert_eq!(looks.len(), 2);
    world.now_ms += CONNECT_HOLD_MS;
    let step = connect_once(&mut world, at, executing, &data);
    assert!(matches!(step, Step::Complete(_)), "{step:?}");
    assert!(world.registry.acknowledge_check(Handle(at)).is_empty(), "the Connect was refused");
    world.close(at);
    assert!(world.registry.acknowledge_check(Handle(at)).is_empty(), "the connection is gone");
    assert_eq!(world.registry.held_connects(), 0);
}

/// A host that sends commands now and then is silent after half of its time-out.
#[test]
fn an_association_is_silent_after_half_a_keep_alive_time_out() {
    let mut world = World::new();
    let admin = world.open();
    let connect = Connect { kato_ms: 10_000, ..admin_connect() };
    let (cqe, _) = world.connect(admin, connect, &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    let cntlid = ebof_nvme::connect::ConnectResult::connected(cqe.result()).0;
    world.run(admin, Property::set(offset::CC, Cc::ENABLE.0));
    world.io_queue(DRIVE, ALICE, cntlid, 1);
    for (more_ms, count) in [(4_999, 1), (1, 2)] {
        world.now_ms += more_ms;
        let (newest, cntlid) = world.controller(DRIVE, ALICE);
        let Waiting { at, data, executing } = ask(&mut world, ALICE, cntlid, 1);
        let step = connect_once(&mut world, at, executing, &data);
        assert!(matches!(&step, Step::Execute(_, Task::DeferConnect(looks)) if looks.len() == count), "{step:?}");
        world.close(at);
        world.close(newest);
    }
}

/// A command that needs the registry may come to its turn after its connection has ended.
#[test]
fn a_command_of_a_connection_that_has_ended_is_aborted_and_does_nothing() {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let mut shut_down: Sqe = Property::set(offset::CC, Cc::ENABLE.with_shutdown(1).0);
    shut_down.cid = 7.into();
    let abort = Sqe::new(admin_opcode::ABORT).with_cdw(10, 5 << 16 | 1);
    let queue = world.queues.get_mut(&admin).unwrap();
    let tickets = [abort, shut_down].map(|sqe| match queue.submit(&sqe, world.now_ms) {
        Step::Execute(executing, Task::Shared) => executing,
        step => panic!("{step:?}"),
    });
    let notices = world.registry.closed(Handle(admin));
    assert!(notices.iter().any(|(at, _)| *at == Handle(io)), "the association ends");
    for executing in tickets {
        let (step, notices) = world.registry.execute(queue, executing, world.now_ms);
        let Step::Complete(cqe) = step else { panic!("{step:?}") };
        assert!(cqe.status().is(Status::ABORTED_SQ_DELETION) && notices.is_empty(), "{cqe:?}");
    }
    assert_eq!((queue.executing(), queue.outstanding()), (0, 0));
}

/// Writes CC; returns the queues to be closed, and the ticket.
fn write_cc(world: &mut World, admin: u64, cc: Cc, cid: u16) -> (Executing, Quiesce) {
    let mut sqe: Sqe = Property::set(offset::CC, cc.0);
    sqe.cid = cid.into();
    let queue = world.queues.get_mut(&admin).unwrap();
    let Step::Execute(executing, Task::Shared) = queue.submit(&sqe, world.now_ms) else {
        panic!("not for the registry")
    };
    let (step, notices) = world.registry.execute(queue, executing, world.now_ms);
    assert!(notices.is_empty());
    let Step::Execute(executing, Task::Reset(quiesce)) = step else { panic!("{step:?}") };
    (executing, *quiesce)
}

#[test]
fn a_reset_during_a_shutdown_waits_for_the_same_queues() {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let _at_device = write(&mut world, io);
    let (shutdown, first) = write_cc(&mut world, admin, Cc::ENABLE.with_shutdown(2), 901);
    assert_eq!(first.close, [Handle(io)]);
    let (reset, second) = write_cc(&mut world, admin, Cc(0), 902);
    assert_eq!(second.close, [Handle(io)], "it is still there");
    let csts = |world: &mut World| world.run(admin, Property::get(offset::CSTS, 4)).result();
    let done = world.queues.get_mut(&admin).unwrap().complete(shutdown, Status::SUCCESS);
    assert_eq!(done.cid(), Cid(901));
    assert_eq!(csts(&mut world) & u64::from(Csts::READY), u64::from(Csts::READY));
    let _done = world.queues.get_mut(&admin).unwrap().complete(reset, Status::SUCCESS);
    assert_eq!(csts(&mut world), 0);
}

// @test data.reset-and-shutdown
#[test]
fn a_preempt_waits_for_queues_that_a_reset_closes() {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let _at_device = write(&mut world, io);
    let _resetting = write_cc(&mut world, admin, Cc(0), 901);
    let host = crate::support::host_id(ALICE);
    assert_eq!(world.registry.queues_of(&crate::support::nqn(DRIVE), host), [Handle(io)]);
    world.close(io);
    assert_eq!(world.registry.queues_of(&crate::support::nqn(DRIVE), host), []);
}

/// Nobody waits for a direct attachment: it is granted or refused at once.
#[test]
fn a_host_that_is_attached_has_io_queues_on_each_of_its_controllers_once_nothing_drains() {
    let mut world = World::new();
    let (_, first) = world.controller(DRIVE, ALICE);
    let (_, second) = world.controller(DRIVE, ALICE);
    let attach = |world: &mut World, controller, qid| {
        let attachment = Attachment {
            queue: QueueId(qid),
            entries: 64,
            controller,
            subsystem: nqn(DRIVE),
            host: nqn(ALICE),
            host_id: host_id(ALICE),
        };
        let at = world.open();
        let arrival = arrival(at, world.port, &world.local);
        let queue = world.queues.get_mut(&at).unwrap();
        let attached = world.registry.attach(queue, &attachment, &arrival, world.now_ms);
        attached.map(|()| at).map_err(|refusal| refusal.reason)
    };
    let io = attach(&mut world, first, 1).unwrap();
    attach(&mut world, second, 1).unwrap();
    let _at_device = write(&mut world, io);
    end(&mut world, io);
    assert_eq!(attach(&mut world, second, 2), Err(RefusalReason::Draining));
    world.close(io);
    attach(&mut world, second, 2).unwrap();
    assert_eq!(world.registry.held_connects(), 0);
}
