//! Queues in the host's memory: commands wait there until they are fetched, and CC is a register.

use ebof_fabrics::queue::REGISTER_WRITE;
use ebof_fabrics::{Attachment, Executing, Handle, Step, Task};
use ebof_nvme::command::Fuse;
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, Csts};
use ebof_nvme::{ControllerId, Nsid, QueueId, Sqe, Status};

use zerocopy::FromZeros;

use crate::support::{ALICE, DRIVE, World, arrival, host_id, nqn};

/// A queue of a host that is attached directly.
fn attach(world: &mut World, controller: ControllerId, qid: u16, entries: u32) -> u64 {
    let attachment = Attachment {
        queue: QueueId(qid),
        entries,
        controller,
        subsystem: nqn(DRIVE),
        host: nqn(ALICE),
        host_id: host_id(ALICE),
    };
    let at = world.open();
    let arrival = arrival(at, world.port, &world.local);
    let queue = world.queues.get_mut(&at).unwrap();
    world.registry.attach(queue, &attachment, &arrival, world.now_ms).unwrap();
    at
}

/// A controller that is enabled, with an Admin Queue of so many entries.
fn controller(world: &mut World, entries: u32) -> (u64, ControllerId) {
    world.replace_model(|model| model.ports[0].trtype = ebof_nvme::log::TrType::PCIE);
    let at = attach(world, ControllerId::DYNAMIC, 0, entries);
    let queue = world.queues.get_mut(&at).unwrap();
    assert!(is_success(&queue.write_cc(Cc::ENABLE.0, 1000)));
    (at, queue.association().unwrap().cntlid)
}

fn is_success(step: &Step) -> bool {
    matches!(step, Step::Complete(cqe) if cqe.status().is_success())
}

fn submit(world: &mut World, at: u64, sqe: Sqe, cid: u16) -> Step {
    world.queues.get_mut(&at).unwrap().submit(&Sqe { cid: cid.into(), ..sqe }, 1000)
}

fn executing(step: Step) -> Executing {
    match step {
        Step::Execute(executing, _) => executing,
        step => panic!("{step:?}"),
    }
}

#[test]
fn commands_are_fetched_while_there_is_room_and_none_is_refused() {
    let mut world = World::new();
    let (_, cntlid) = controller(&mut world, 32);
    let io = attach(&mut world, cntlid, 1, 4);
    let write = Sqe::new(nvm::FLUSH).with_nsid(Nsid(1));
    let mut under_way = Vec::new();
    for cid in 0..4 {
        assert!(world.queues[&io].may_fetch(), "{cid}");
        under_way.push(executing(submit(&mut world, io, write, cid)));
    }
    assert!(!world.queues[&io].may_fetch());
    let done = under_way.pop().unwrap();
    assert!(world.queues.get_mut(&io).unwrap().complete(done, Status::SUCCESS).status().is_success());
    assert!(world.queues[&io].may_fetch());
    // The first half of a pair takes the last entry, and its second comes when there is room.
    let first = Sqe { flags: Fuse::First as u8, ..Sqe::new(nvm::COMPARE).with_nsid(Nsid(1)) };
    let first = executing(submit(&mut world, io, crate::support::with_data(first, 512), 7));
    assert!(!world.queues[&io].may_fetch());
    let done = under_way.pop().unwrap();
    let _ = world.queues.get_mut(&io).unwrap().complete(done, Status::SUCCESS);
    assert!(world.queues[&io].may_fetch());
    under_way.push(first);
    for done in under_way {
        world.queues.get_mut(&io).unwrap().abandon(done);
    }
    // One that is in the queue of a network has come, and is refused.
    assert!(ebof_fabrics::Queue::new().may_fetch());
}

#[test]
fn events_that_are_waited_for_take_no_room() {
    let mut world = World::new();
    let (at, _) = controller(&mut world, 2);
    let mut cid = 0;
    let held = loop {
        assert!(world.queues[&at].may_fetch(), "{cid}");
        match submit(&mut world, at, Sqe::new(admin::ASYNC_EVENT_REQUEST), cid) {
            Step::Held => cid += 1,
            Step::Complete(cqe) if cqe.status().is(Status::ASYNC_EVENT_LIMIT_EXCEEDED) => break cid,
            step => panic!("{step:?}"),
        }
    };
    assert!(held >= 4);
    // The room is for what is executed.
    let abort = |cid: u32| Sqe::new(admin::ABORT).with_cdw(10, cid << 16 | 9);
    assert!(world.queues[&at].may_fetch());
    assert!(is_success(&submit(&mut world, at, Sqe::new(admin::GET_FEATURES).with_cdw(10, 7), 1000)));
    assert!(matches!(submit(&mut world, at, abort(5), 1001), Step::Execute(_, Task::Shared)));
    assert!(matches!(submit(&mut world, at, Sqe::new(admin::DELETE_IO_SQ).with_cdw(10, 1), 1002), Step::Complete(_)));
    assert!(world.queues[&at].may_fetch());
    assert!(matches!(submit(&mut world, at, abort(6), 1003), Step::Execute(_, Task::Shared)));
    assert!(!world.queues[&at].may_fetch());
    // CC is no command, and is written all the same.
    let queue = world.queues.get_mut(&at).unwrap();
    let Step::Execute(reset, Task::Shared) = queue.write_cc(0, 1000) else { panic!("it is not reset") };
    assert_eq!(queue.csts(), Some(Csts(Csts::READY)));
    let Step::Execute(reset, Task::Reset(_)) = world.registry.execute(queue, reset, 1000).0 else { panic!() };
    assert!(queue.complete(reset, Status::SUCCESS).status().is_success());
    assert_eq!(queue.csts(), Some(Csts(0)));
}

#[test]
fn the_write_of_a_register_is_nothing_that_a_host_can_name() {
    let mut world = World::new();
    let (at, _) = controller(&mut world, 32);
    // It may be written before the Abort comes to the Admin Queue.
    let abort = Sqe::new(admin::ABORT).with_cdw(10, u32::from(REGISTER_WRITE.0) << 16);
    match submit(&mut world, at, abort, 1) {
        Step::Complete(cqe) => assert_eq!((cqe.status(), cqe.result()), (Status::SUCCESS, 1), "it is not aborted"),
        step => panic!("{step:?}"),
    }
    // The same identifier in an I/O queue is a command's, as any other.
    let abort = Sqe::new(admin::ABORT).with_cdw(10, u32::from(REGISTER_WRITE.0) << 16 | 1);
    assert!(matches!(submit(&mut world, at, abort, 2), Step::Execute(_, Task::Shared)));
    let step = submit(&mut world, at, Sqe::new(admin::GET_FEATURES).with_cdw(10, 7), REGISTER_WRITE.0);
    assert!(matches!(step, Step::Complete(cqe) if cqe.status().is(Status::INVALID_FIELD)));
    assert!(!world.queues[&at].is_outstanding(REGISTER_WRITE));
}

#[test]
fn a_queue_is_deleted_when_it_is_there_and_the_drive_is_not_reset_by_it() {
    let mut world = World::new();
    let (at, cntlid) = controller(&mut world, 32);
    // By PRPs, at address 0.
    let create = |opcode, flags| {
        let sqe = Sqe::new(opcode).with_cdw(10, 15 << 16 | 1).with_cdw(11, flags);
        Sqe { flags: 0, dptr: FromZeros::new_zeroed(), ..sqe }
    };
    let completion = executing(submit(&mut world, at, create(admin::CREATE_IO_CQ, 1), 1));
    let queue = world.queues.get_mut(&at).unwrap();
    assert!(queue.complete(completion, Status::SUCCESS).status().is_success());
    let submission = executing(submit(&mut world, at, create(admin::CREATE_IO_SQ, 1 << 16 | 1), 2));
    // The link has not made it yet.
    let delete = Sqe::new(admin::DELETE_IO_SQ).with_cdw(10, 1);
    let refused = |step: Step, status| matches!(step, Step::Complete(cqe) if cqe.status().is(status));
    assert!(refused(submit(&mut world, at, delete, 3), Status::INVALID_QUEUE_ID));
    let delete_completion = Sqe::new(admin::DELETE_IO_CQ).with_cdw(10, 1);
    assert!(refused(submit(&mut world, at, delete_completion, 4), Status::INVALID_QUEUE_DELETION));
    let io = attach(&mut world, cntlid, 1, 16);
    let queue = world.queues.get_mut(&at).unwrap();
    assert!(queue.complete(submission, Status::SUCCESS).status().is_success());
    let deleting = executing(submit(&mut world, at, delete, 5));
    let queue = world.queues.get_mut(&at).unwrap();
    let Step::Execute(deleting, Task::Reset(quiesce)) = world.registry.execute(queue, deleting, 1000).0 else {
        panic!("nothing is closed")
    };
    assert_eq!((quiesce.close, quiesce.is_reset), (vec![Handle(io)], false));
    assert!(queue.complete(deleting, Status::SUCCESS).status().is_success());
    assert!(refused(submit(&mut world, at, delete, 6), Status::INVALID_QUEUE_ID));
    // One that could not be made can be made again.
    for cid in [7, 8] {
        let submission = executing(submit(&mut world, at, create(admin::CREATE_IO_SQ, 1 << 16 | 1), cid));
        let queue = world.queues.get_mut(&at).unwrap();
        assert!(queue.complete(submission, Status::INTERNAL_ERROR).status().is(Status::INTERNAL_ERROR));
    }
}
