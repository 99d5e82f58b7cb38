//! Queues in the host's memory: commands wait there until they are fetched, and CC is a register.

use ebof_fabrics::queue::REGISTER_WRITE;
use ebof_fabrics::{Arrival, Attachment, CloseReason, Executing, Function, Handle, RingTask, Step, Task};
use ebof_nvme::command::Fuse;
use ebof_nvme::feature::Fid;
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::media::{Sanitize, SanitizeAction};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, Csts};
use ebof_nvme::{ControllerId, Nsid, QueueId, Sqe, Status};

use zerocopy::FromZeros;

use crate::support::{ALICE, BOB, DRIVE, MANAGED, OTHER, World, arrival, host_id, nqn};

/// A queue of a host that is attached directly.
fn attach(world: &mut World, controller: ControllerId, qid: u16, entries: u32) -> u64 {
    attach_to(world, DRIVE, controller, qid, entries)
}

fn attach_to(world: &mut World, subsystem: &str, controller: ControllerId, qid: u16, entries: u32) -> u64 {
    let attachment = Attachment {
        queue: QueueId(qid),
        entries,
        controller,
        subsystem: nqn(subsystem),
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
    controller_of(world, DRIVE, entries)
}

fn controller_of(world: &mut World, subsystem: &str, entries: u32) -> (u64, ControllerId) {
    world.replace_model(|model| model.ports[0].trtype = ebof_nvme::log::TrType::PCIE);
    let at = attach_to(world, subsystem, ControllerId::DYNAMIC, 0, entries);
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

/// Other commands that end meanwhile do not end it: its queues are not closed yet.
#[test]
fn a_reset_is_over_when_its_queues_are() {
    let mut world = World::new();
    let (at, _) = controller(&mut world, 32);
    let other = executing(submit(&mut world, at, Sqe::new(admin::ABORT).with_cdw(10, 5 << 16 | 9), 1));
    let queue = world.queues.get_mut(&at).unwrap();
    let Step::Execute(reset, Task::Shared) = queue.write_cc(0, 1000) else { panic!("it is not reset") };
    let Step::Execute(reset, Task::Reset(_)) = world.registry.execute(queue, reset, 1000).0 else { panic!() };
    assert!(queue.complete(other, Status::SUCCESS).status().is_success());
    assert_eq!(queue.csts(), Some(Csts(Csts::READY)));
    assert!(queue.complete(reset, Status::SUCCESS).status().is_success());
    assert_eq!(queue.csts(), Some(Csts(0)));
}

/// The registry may hear of it after a reset, with which the host has said nothing, or after its
/// subsystem was removed.
#[test]
fn a_host_that_says_who_it_is_may_be_heard_too_late() {
    let say = |world: &mut World, at: u64, cid: u16| {
        let sqe = Sqe::new(admin::SET_FEATURES).with_cdw(10, Fid::HOST_IDENTIFIER.0.into()).with_cdw(11, 1);
        let executing = executing(submit(world, at, Sqe { flags: 0, ..sqe }, cid));
        let queue = world.queues.get_mut(&at).unwrap();
        match queue.resume(executing, &host_id(ALICE).0, 1000) {
            Step::Execute(executing, Task::Shared) => executing,
            step => panic!("{step:?}"),
        }
    };
    let mut world = World::new();
    let (at, _) = controller(&mut world, 32);
    let said = [1, 2].map(|cid| say(&mut world, at, cid));
    let outcomes = said.map(|executing| {
        let queue = world.queues.get_mut(&at).unwrap();
        status(&world.registry.execute(queue, executing, 1000).0)
    });
    assert_eq!(outcomes, [Status::SUCCESS, Status::INTERNAL_ERROR.dnr().more()], "what was said last counts once");
    let executing = say(&mut world, at, 3);
    world.replace_model(|model| model.subsystems.clear());
    let queue = world.queues.get_mut(&at).unwrap();
    let (step, notices) = world.registry.execute(queue, executing, 1000);
    assert!(is_success(&step) && notices.is_empty(), "{step:?}");
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

/// A command that creates an I/O queue of 16 entries, at address 0.
fn create(opcode: u8, id: u32, flags: u32) -> Sqe {
    let sqe = Sqe::new(opcode).with_cdw(10, 15 << 16 | id).with_cdw(11, flags);
    Sqe { flags: 0, dptr: FromZeros::new_zeroed(), ..sqe }
}

/// Success, or that the link is to do something, as success; else the status.
fn status(step: &Step) -> Status {
    match step {
        Step::Complete(cqe) => cqe.status(),
        Step::Execute(..) => Status::SUCCESS,
        step => panic!("{step:?}"),
    }
}

/// Submits commands to an Admin Queue, each of which has the status beside it.
fn are_answered(world: &mut World, at: u64, commands: impl IntoIterator<Item = (Sqe, Status)>) {
    for (cid, (sqe, expected)) in (2..).zip(commands) {
        let step = submit(world, at, sqe, cid);
        assert!(status(&step).is(expected), "{sqe:?}: {step:?}");
        if let Step::Execute(executing, _) = step {
            let _ = world.queues.get_mut(&at).unwrap().complete(executing, Status::SUCCESS);
        }
    }
}

#[test]
fn submission_and_completion_queues_are_granted_apart() {
    let mut world = World::new();
    let (at, _) = controller(&mut world, 32);
    // As SPDK's nvme_compliance asks for them: two Completion Queues, four Submission Queues.
    let wanted = 1 << 16 | 3;
    for command in [
        Sqe::new(admin::SET_FEATURES).with_cdw(10, 7).with_cdw(11, wanted),
        Sqe::new(admin::GET_FEATURES).with_cdw(10, 7),
    ] {
        match submit(&mut world, at, command, 1) {
            Step::Complete(cqe) => assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, wanted)),
            step => panic!("{step:?}"),
        }
    }
    let (cq, sq) = (admin::CREATE_IO_CQ, admin::CREATE_IO_SQ);
    let commands = [
        (create(cq, 1, 1), Status::SUCCESS),
        (create(cq, 2, 1), Status::SUCCESS),
        (create(cq, 3, 1), Status::INVALID_QUEUE_ID),
        (create(sq, 1, 2 << 16 | 1), Status::SUCCESS),
        (create(sq, 2, 2 << 16 | 1), Status::SUCCESS),
        (create(sq, 3, 3 << 16 | 1), Status::INVALID_QUEUE_ID),
        (create(sq, 3, 2 << 16 | 1), Status::SUCCESS),
        (create(sq, 4, 1 << 16 | 1), Status::SUCCESS),
        (create(sq, 5, 1 << 16 | 1), Status::INVALID_QUEUE_ID),
    ];
    are_answered(&mut world, at, commands);
}

/// The place, the interrupt and the entries of a queue are those of the command.
#[test]
fn a_queue_is_made_where_the_host_says_or_not_at_all() {
    let mut world = World::new();
    let (at, _) = controller(&mut world, 32);
    let placed = |opcode, id, flags, first: u64| {
        let dptr: Vec<u8> = [first, 0x9000].iter().flat_map(|entry| entry.to_le_bytes()).collect();
        Sqe { dptr: zerocopy::FromBytes::read_from_bytes(&dptr).unwrap(), ..create(opcode, id, flags) }
    };
    let (cq, sq) = (admin::CREATE_IO_CQ, admin::CREATE_IO_SQ);
    let mut cid = 0;
    let mut made = |world: &mut World, sqe: Sqe| {
        cid += 1;
        match submit(world, at, sqe, cid) {
            Step::Execute(executing, Task::Rings(task)) => {
                let _ = world.queues.get_mut(&at).unwrap().complete(executing, Status::SUCCESS);
                Ok(task)
            }
            Step::Complete(cqe) => Err(cqe.status()),
            step => panic!("{step:?}"),
        }
    };
    let completion =
        |id, vector| Ok(RingTask::CreateCompletionQueue { id: QueueId(id), entries: 16, base: 0x5000, vector });
    // Nine vectors, for eight I/O queues: the last one, and one beyond; without an interrupt, too.
    for (flags, status) in [
        (9 << 16 | 3, Status::INVALID_INTERRUPT_VECTOR),
        (9 << 16 | 1, Status::INVALID_INTERRUPT_VECTOR),
        (2, Status::INVALID_FIELD),
    ] {
        assert!(made(&mut world, placed(cq, 1, flags, 0x5000)).unwrap_err().is(status), "{flags:#x}");
    }
    assert!(made(&mut world, placed(cq, 1, 3, 0x5004)).unwrap_err().is(Status::PRP_OFFSET_INVALID));
    assert_eq!(made(&mut world, placed(cq, 1, 8 << 16 | 3, 0x5000)), completion(1, Some(8)));
    assert_eq!(made(&mut world, placed(cq, 2, 1, 0x5000)), completion(2, None));
    let submission =
        RingTask::CreateSubmissionQueue { id: QueueId(1), entries: 16, base: 0x6000, completion: QueueId(2) };
    // How many there may be is settled by now.
    let number = Sqe::new(admin::SET_FEATURES).with_cdw(10, 7);
    let refused = |world: &mut World, cid| status(&submit(world, at, number, cid)).is(Status::COMMAND_SEQUENCE_ERROR);
    assert!(refused(&mut world, 100));
    assert_eq!(made(&mut world, placed(sq, 1, 2 << 16 | 1, 0x6000)), Ok(submission));
    assert!(refused(&mut world, 101));
}

/// PRP entries for Admin commands, SGLs for others, too; how many bytes they are about, the command
/// says.
#[test]
fn data_are_where_the_command_says_and_as_many() {
    let mut world = World::new();
    let (at, cntlid) = controller(&mut world, 32);
    let io = attach(&mut world, cntlid, 1, 16);
    let flagged = |sqe: Sqe, flags| Sqe { flags, dptr: FromZeros::new_zeroed(), ..sqe };
    let identify = Sqe::new(admin::IDENTIFY).with_cdw(10, 1);
    let read = ebof_nvme::io::BlockRange::new(8, 16).encode(nvm::READ, Nsid(1));
    let mut length = |at, sqe, flags| match submit(&mut world, at, flagged(sqe, flags), 1) {
        Step::Execute(executing, _) => {
            let bytes = executing.length();
            let _ = world.queues.get_mut(&at).unwrap().complete(executing, Status::SUCCESS);
            Some(bytes)
        }
        Step::Complete(cqe) if cqe.status().is(Status::INVALID_FIELD) => None,
        step => panic!("{step:?}"),
    };
    let (sgl, metadata) = (Sqe::PSDT_SGL, Sqe::PSDT_SGL << 1);
    assert_eq!([0, sgl, metadata].map(|flags| length(at, identify, flags)), [Some(4096), None, None]);
    assert_eq!([0, sgl, metadata].map(|flags| length(io, read, flags)), [Some(8192), Some(8192), None]);
}

// @test data.guest-sanitize
#[test]
fn queues_come_and_go_while_the_drive_is_sanitized() {
    let mut world = World::managed();
    let (at, _) = controller_of(&mut world, MANAGED, 32);
    let sanitize = Sanitize::new(SanitizeAction::BlockErase).encode();
    let sanitize = Sqe { flags: 0, dptr: FromZeros::new_zeroed(), ..sanitize };
    assert!(world.run(at, sanitize).status().is_success());
    let commands = [
        (Sqe::new(admin::DEVICE_SELF_TEST), Status::SANITIZE_IN_PROGRESS),
        (create(admin::CREATE_IO_CQ, 1, 1), Status::SUCCESS),
        (create(admin::CREATE_IO_SQ, 1, 1 << 16 | 1), Status::SUCCESS),
        (create(admin::DOORBELL_BUFFER_CONFIG, 0, 0), Status::SUCCESS),
        // That there are such queues is looked at.
        (Sqe::new(admin::DELETE_IO_SQ).with_cdw(10, 2), Status::INVALID_QUEUE_ID),
        (Sqe::new(admin::DELETE_IO_CQ).with_cdw(10, 1), Status::INVALID_QUEUE_DELETION),
    ];
    are_answered(&mut world, at, commands);
}

#[test]
fn every_mandatory_feature_is_there_without_a_namespace() {
    let mut world = World::new();
    let (at, _) = controller(&mut world, 32);
    let get = |fid: u32| Sqe::new(admin::GET_FEATURES).with_cdw(10, fid);
    // Arbitration to Host Identifier, as drivers over PCIe ask for them.
    for fid in [1, 2, 4, 5, 7, 8, 9, 0xa, 0xb, 0xf] {
        let step = submit(&mut world, at, get(fid), 1);
        assert!(is_success(&step), "{fid:#x}: {step:?}");
    }
    let set = |nsid: Nsid, value| Sqe::new(admin::SET_FEATURES).with_nsid(nsid).with_cdw(10, 5).with_cdw(11, value);
    let value = |world: &mut World, nsid: Nsid| match submit(world, at, get(5).with_nsid(nsid), 2) {
        Step::Complete(cqe) => (cqe.status().is_success(), cqe.dw0.get()),
        step => panic!("{step:?}"),
    };
    assert_eq!(value(&mut world, Nsid::NONE), (true, 0));
    for of_all in [Nsid::NONE, Nsid::ALL] {
        assert!(is_success(&submit(&mut world, at, set(of_all, 7 + of_all.0 % 2), 3)));
        let expected = (true, 7 + of_all.0 % 2);
        assert_eq!((value(&mut world, Nsid::NONE), value(&mut world, Nsid(1))), (expected, expected));
    }
    assert!(is_success(&submit(&mut world, at, set(Nsid(1), 9), 4)));
    assert_eq!((value(&mut world, Nsid::NONE), value(&mut world, Nsid(1))), ((true, 8), (true, 9)));
    assert!(!value(&mut world, Nsid::ALL).0);
}

/// Nothing is coalesced, but what the host has said is what it reads.
#[test]
fn features_of_interrupts_are_kept() {
    let mut world = World::new();
    let (at, _) = controller(&mut world, 32);
    let mut run = |opcode: u8, fid: u32, value: u32| match submit(
        &mut world,
        at,
        Sqe::new(opcode).with_cdw(10, fid).with_cdw(11, value),
        1,
    ) {
        Step::Complete(cqe) => cqe.status().is_success().then_some(cqe.result()),
        step => panic!("{step:?}"),
    };
    let (get, set) = (admin::GET_FEATURES, admin::SET_FEATURES);
    assert_eq!((run(set, 8, 0xabcd_1234), run(get, 8, 0)), (Some(0), Some(0x1234)));
    assert_eq!((run(get, 9, 1), run(get, 9, 2)), (Some(1), Some(2)));
    let disabled = 1 | 1 << 16;
    assert_eq!(run(set, 9, disabled), Some(0));
    assert_eq!([run(get, 9, 1), run(get, 9, 2), run(get, 9 | 1 << 8, 1)], [Some(disabled.into()), Some(2), Some(1)]);
    assert_eq!((run(set, 9, 1), run(get, 9, 1)), (Some(0), Some(1)));
    let vectors = (0..).take_while(|&vector| run(get, 9, vector).is_some()).count();
    assert_eq!(vectors, 9, "one for each of the queues");
}

#[test]
fn a_queue_is_deleted_when_it_is_there_and_the_drive_is_not_reset_by_it() {
    let mut world = World::new();
    let (at, cntlid) = controller(&mut world, 32);
    let create = |opcode, flags| create(opcode, 1, flags);
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

/// Who is behind a direct port was decided when a function was given to it. Any other subsystem
/// names its hosts there, too, and a function those of any other port.
#[test]
fn the_host_behind_a_port_that_has_a_function_needs_no_other_permission() {
    // Whether it is admitted, and stays when the subsystem names no hosts any more.
    let is_admitted = |is_direct: bool, is_function: bool, host: &str| {
        let mut world = World::new();
        world.replace_model(|model| {
            if is_direct {
                model.ports[0].trtype = ebof_nvme::log::TrType::PCIE;
            }
            let function = Function {
                drive: nqn(DRIVE),
                id: ebof_drive::FunctionId(1),
                online: true,
                queues: 4,
                interrupts: 4,
                share: ebof_drive::Share::default(),
                is_of_drive: false,
                leaving: Default::default(),
            };
            std::sync::Arc::make_mut(&mut model.subsystems[1]).function = is_function.then_some(function);
        });
        let attachment = Attachment {
            queue: QueueId::ADMIN,
            entries: 32,
            controller: ControllerId::DYNAMIC,
            subsystem: nqn(OTHER),
            host: nqn(host),
            host_id: host_id(host),
        };
        let at = world.open();
        let arrival = arrival(at, world.port, &world.local);
        let queue = world.queues.get_mut(&at).unwrap();
        let is_admitted = world.registry.attach(queue, &attachment, &arrival, world.now_ms).is_ok();
        world.replace_model(|model| std::sync::Arc::make_mut(&mut model.subsystems[1]).allowed_hosts.clear());
        (is_admitted, world.closes.is_empty())
    };
    for (is_direct, is_function) in [(true, true), (true, false), (false, true), (false, false)] {
        let what = format!("direct: {is_direct}, function: {is_function}");
        let is_given = is_direct && is_function;
        assert_eq!(is_admitted(is_direct, is_function, ALICE), (true, is_given), "{what}");
        assert_eq!(is_admitted(is_direct, is_function, BOB).0, is_given, "{what}");
    }
}

/// It is a command of message-based transports.
#[test]
fn a_controller_of_a_host_that_is_attached_resets_no_others() {
    let mut world = World::new();
    let (lost, _) = world.controller(DRIVE, ALICE);
    let impacted = world.queues[&lost].association().unwrap().instance();
    let (at, _) = controller(&mut world, 32);
    let log = GetLogPage::new(Lid::CROSS_CONTROLLER_RESET, 4096).encode(Nsid::NONE);
    for (sqe, status) in [(impacted.reset_command(), Status::INVALID_OPCODE), (log, Status::INVALID_LOG_PAGE)] {
        let Step::Complete(cqe) = submit(&mut world, at, Sqe { flags: 0, ..sqe }, 9) else { panic!("it is executed") };
        assert!(cqe.status().is(status), "{}", cqe.status());
    }
    assert!(!world.closes.iter().any(|(_, reason)| *reason == CloseReason::ResetByHost));
}

/// Neither is that of a target without randomness.
#[test]
fn a_controller_without_a_random_number_is_not_reset_by_others() {
    let mut world = World::new();
    let at = world.open();
    let arrival = Arrival { random: 0, ..arrival(at, world.port, &world.local) };
    let attachment = Attachment {
        queue: QueueId::ADMIN,
        entries: 32,
        controller: ControllerId::DYNAMIC,
        subsystem: nqn(DRIVE),
        host: nqn(ALICE),
        host_id: host_id(ALICE),
    };
    world.registry.attach(world.queues.get_mut(&at).unwrap(), &attachment, &arrival, world.now_ms).unwrap();
    let instance = world.queues[&at].association().unwrap().instance();
    let (other, _) = world.controller(DRIVE, ALICE);
    let status = world.run(other, instance.reset_command()).status();
    assert!(status.is(Status::INVALID_FIELD) && world.closes.is_empty(), "{status}");
}
