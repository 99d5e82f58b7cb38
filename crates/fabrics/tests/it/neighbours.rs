//! What is done for one subsystem, drive, host or queue concerns no other.

use std::sync::Arc;

use ebof_fabrics::{CloseReason, Counts, Handle, Model, NamespaceTable, Notices, RefusalReason, Step, Subsystem, Task};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::identify::Cns;
use ebof_nvme::io::BlockRange;
use ebof_nvme::log::{ErrorInformation, Lid, ReservationEvent};
use ebof_nvme::namespace::{AttachmentSelect, NewNamespace};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{ControllerId, HostId, Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::events::set_feature;
use crate::managed::{attach, controllers, create};
use crate::support::{
    ALICE, BOB, DRIVE, MANAGED, OTHER, World, admin_connect, connect_data, host_id, namespace, nqn, with_data,
};

fn told(notices: Notices) -> Vec<u64> {
    notices.into_iter().map(|(Handle(at), _)| at).collect()
}

fn numbers(handles: Vec<Handle>) -> Vec<u64> {
    handles.into_iter().map(|Handle(at)| at).collect()
}

fn transfer(opcode: u8, nsid: u32, slba: u64) -> Sqe {
    with_data(BlockRange::new(slba, 1).encode(opcode, Nsid(nsid)), if nsid == 2 { 4096 } else { 512 })
}

fn protect(world: &mut World, at: u64, value: u32) -> Status {
    world.run(at, set_feature(0x84, value, 1)).status()
}

/// Alice is at a drive and elsewhere, with the same identifier, and Bob at the drive.
#[test]
fn events_and_queues_are_of_one_drive_and_of_those_who_are_there() {
    let mut world = World::managed();
    let (elsewhere, at_drive) = world.controller(DRIVE, ALICE);
    let (alice, alice_id) = world.controller(MANAGED, ALICE);
    let (bob, bob_id) = world.controller(MANAGED, BOB);
    let io = [(DRIVE, ALICE, at_drive), (MANAGED, ALICE, alice_id), (MANAGED, BOB, bob_id)]
        .map(|(subsystem, host, cntlid)| world.io_queue(subsystem, host, cntlid, 1));
    create(&mut world, alice, &NewNamespace::new(64));
    attach(&mut world, alice, AttachmentSelect::Attach, Nsid(1), &[bob_id.0]);
    let (managed, event) = (nqn(MANAGED), AsyncEvent::SANITIZE_COMPLETED);
    let reserved = |world: &World, host| {
        let event = (Nsid(1), host_id(host), ReservationEvent::ReservationReleased);
        told(world.registry.reservation_notices(&managed, &[event]))
    };
    let lost = |world: &World, nsid| numbers(world.registry.queues_that_lost(&managed, nsid, None));
    let of_host = |world: &World, drive, host| numbers(world.registry.queues_of(&nqn(drive), host));

    assert_eq!(told(world.registry.raise(&managed, event)), [alice, bob]);
    assert_eq!(told(world.registry.raise(&nqn(DRIVE), event)), [elsewhere]);
    assert_eq!(told(world.registry.raise_on(&managed, bob_id, event)), [bob]);
    assert_eq!(told(world.registry.raise_on(&nqn(DRIVE), bob_id, event)), [0; 0]);
    assert_eq!((reserved(&world, ALICE), reserved(&world, BOB)), (vec![alice], vec![bob]));
    assert_eq!(of_host(&world, MANAGED, host_id(ALICE)), [io[1]]);
    assert_eq!(of_host(&world, DRIVE, host_id(ALICE)), [io[0]]);
    assert_eq!(of_host(&world, MANAGED, HostId::default()), [0; 0], "zeros are nobody's");
    assert_eq!((lost(&world, Nsid::ALL), lost(&world, Nsid(1))), (vec![io[1], io[2]], vec![io[1]]));

    // One who leaves is told nothing more, and has his queues until they are closed.
    let notices = world.registry.ending(Handle(bob));
    assert_eq!(told(notices), [io[2]]);
    assert_eq!(told(world.registry.raise(&managed, event)), [alice]);
    assert_eq!(told(world.registry.raise_on(&managed, bob_id, event)), [0; 0]);
    assert_eq!((reserved(&world, ALICE), reserved(&world, BOB)), (vec![alice], vec![]));
    assert_eq!(of_host(&world, MANAGED, host_id(BOB)), [io[2]]);
    assert_eq!(lost(&world, Nsid::ALL), [io[1], io[2]]);
    // His identifier is his when he comes back, whatever others have elsewhere.
    assert_eq!(world.controller(MANAGED, BOB).1, bob_id);
}

#[test]
fn controllers_are_listed_in_their_own_subsystem() {
    let mut world = World::managed();
    let (elsewhere, at_drive) = world.controller(DRIVE, ALICE);
    let (alice, alice_id) = world.controller(MANAGED, ALICE);
    let (_, bob_id) = world.controller(MANAGED, BOB);
    create(&mut world, alice, &NewNamespace::new(64));
    attach(&mut world, alice, AttachmentSelect::Attach, Nsid(1), &[bob_id.0]);
    let list = |world: &mut World, at, cns, nsid| controllers(world, at, cns, Nsid(nsid));
    assert_eq!(list(&mut world, elsewhere, Cns::CONTROLLER_LIST, 0), [at_drive.0]);
    assert_eq!(list(&mut world, alice, Cns::CONTROLLER_LIST, 0), [alice_id.0, bob_id.0]);
    assert_eq!(list(&mut world, alice, Cns::NAMESPACE_CONTROLLER_LIST, 1), [bob_id.0]);
}

/// The queues of the others go on with the namespaces that they have.
#[test]
fn write_protection_in_one_subsystem_is_none_in_another() {
    let mut world = World::new();
    let (_, at_drive) = world.controller(DRIVE, ALICE);
    let (other, at_other) = world.controller(OTHER, ALICE);
    let there = world.io_queue(DRIVE, ALICE, at_drive, 1);
    let here = world.io_queue(OTHER, ALICE, at_other, 1);
    assert!(protect(&mut world, other, 1).is_success());
    assert!(world.run(here, transfer(nvm::WRITE, 1, 0)).status().is(Status::NAMESPACE_WRITE_PROTECTED));
    for nsid in [1, 2] {
        assert_eq!(world.run(there, transfer(nvm::WRITE, nsid, 0)).status(), Status::SUCCESS, "{nsid}");
    }
}

/// What a host has set counts until the configuration says something else, or has not got the
/// namespace.
#[test]
fn write_protection_by_a_host_ends_with_what_it_was_about() {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let configure = |world: &mut World, protected: Option<bool>| {
        let old = world.registry.model().subsystems[0].namespaces.clone();
        let rest = old.iter().filter(|namespace| namespace.nsid != Nsid(1)).cloned();
        let first = protected.map(|write_protected| ebof_fabrics::Namespace { write_protected, ..namespace(1) });
        let table = NamespaceTable::new(rest.chain(first).collect()).unwrap();
        world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).namespaces = table);
    };
    let is_protected = |world: &mut World| world.run(io, transfer(nvm::WRITE, 1, 0)).status() != Status::SUCCESS;
    // Set and cleared again: that it is not protected is the configuration's word.
    assert!(protect(&mut world, admin, 1).is_success() && is_protected(&mut world));
    assert!(protect(&mut world, admin, 0).is_success() && !is_protected(&mut world));
    configure(&mut world, Some(true));
    assert!(is_protected(&mut world));
    assert!(protect(&mut world, admin, 0).is_success() && !is_protected(&mut world));
    configure(&mut world, None);
    configure(&mut world, Some(true));
    assert!(is_protected(&mut world), "it is another namespace");
}

#[test]
fn controller_identifiers_go_up_and_around() {
    let mut world = World::new();
    world.replace_model(|model| {
        let subsystem = Arc::make_mut(&mut model.subsystems[0]);
        (subsystem.cntlid_min, subsystem.cntlid_max) = (ControllerId(1), ControllerId(4));
    });
    let mut hosts = 0;
    let mut connect = |world: &mut World| {
        hosts += 1;
        let at = world.open();
        let host = format!("nqn.2014-08.org.example:{hosts:0>16}");
        let (cqe, refusal) = world.connect(at, admin_connect(), &connect_data(DRIVE, &host, ControllerId::DYNAMIC));
        match refusal {
            None => Ok((at, ebof_nvme::connect::ConnectResult::connected(cqe.result()).0.0)),
            Some(refusal) => Err(refusal.reason),
        }
    };
    // One that is given back is not the next one's.
    let (first, id) = connect(&mut world).unwrap();
    world.close(first);
    let all: Vec<(u64, u16)> = (0..4).map(|_| connect(&mut world).unwrap()).collect();
    let after = |id: u16| id % 4 + 1;
    assert_eq!(all[0].1, after(id));
    assert!(all.windows(2).all(|pair| pair[1].1 == after(pair[0].1)), "{all:?}");
    assert_eq!(connect(&mut world), Err(RefusalReason::ControllersExhausted));
    world.close(all[1].0);
    world.close(all[3].0);
    assert_eq!(connect(&mut world).unwrap().1, all[1].1);
    assert_eq!(connect(&mut world).unwrap().1, all[3].1);
}

/// A subsystem that leaves a port takes its hosts there along, and a port that is for discovery
/// only has no others.
#[test]
fn nobody_is_served_where_a_subsystem_is_not() {
    let mut world = World::new();
    let (drive, _) = world.controller(DRIVE, ALICE);
    let (other, _) = world.controller(OTHER, ALICE);
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).ports.clear());
    assert_eq!(world.closes, [(drive, CloseReason::SubsystemRemoved)]);
    world.replace_model(|model| model.ports[0].discovery_only = true);
    assert_eq!(world.closes[1..], [(other, CloseReason::SubsystemRemoved)]);
}

/// Hosts read the discovery log again only if something in it has changed.
#[test]
fn the_generation_counts_changes_of_ports() {
    let mut world = World::managed();
    let generation = |world: &World| world.registry.model().generation;
    let before = generation(&world);
    world.publish_drive();
    assert_eq!(generation(&world), before);
    for (ports, expected) in [(vec![], 1), (vec![], 1), (vec![ebof_fabrics::PortId(1)], 2)] {
        let subsystem = world.registry.model().subsystem(&nqn(MANAGED)).unwrap();
        let next = Subsystem { ports, ..Subsystem::clone(subsystem) };
        let notices = world.registry.replace_subsystems(vec![next], None);
        world.deliver(notices);
        assert_eq!(generation(&world), before + expected);
    }
}

#[test]
fn errors_of_one_host_are_not_anothers() {
    let mut world = World::new();
    let (alice, cntlid) = world.controller(DRIVE, ALICE);
    let (bob, _) = world.controller(DRIVE, BOB);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    // The block is one of 64 bits.
    let slba = (1 << 33) + 5;
    assert!(world.run(io, transfer(nvm::READ, 1, slba)).status().is(Status::LBA_OUT_OF_RANGE));
    let log = Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, u32::from(Lid::ERROR_INFORMATION.0) | 15 << 16);
    let mut newest = |at| {
        let data = world.run(at, with_data(log, 64)).data;
        let error = ErrorInformation::read_from_bytes(&data).unwrap();
        (error.ec.get(), error.lba.get())
    };
    assert_eq!((newest(alice), newest(bob)), ((1, slba), (0, 0)));
}

#[test]
fn commands_are_counted_by_kind_where_they_were_executed() {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let (other, _) = world.controller(OTHER, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let counts = |world: &World, name| world.registry.subsystem_counts(&nqn(name));
    let before = counts(&world, DRIVE);
    let (of_other, in_sum) = (counts(&world, OTHER), |counts: Counts| counts.read_commands + counts.write_commands);
    assert_eq!(in_sum(of_other), 0);
    // A millisecond for a command that is over before the next one comes; those of Admin Queues do
    // not count.
    world.now_ms = 1500;
    assert!(world.run(admin, Sqe::new(admin::GET_FEATURES).with_cdw(10, 7)).status().is_success());
    assert!(world.run(io, transfer(nvm::READ, 1, 0)).status().is_success());
    assert!(
        world.run(io, with_data(BlockRange::new(0, 8).encode(nvm::WRITE_ZEROES, Nsid(1)), 0)).status().is_success()
    );
    assert!(world.run(io, with_data(Sqe::new(nvm::FLUSH).with_nsid(Nsid(1)), 0)).status().is_success());
    let quick = counts(&world, DRIVE);
    assert_eq!((quick.read_commands, quick.read_bytes), (1, 512));
    assert_eq!((quick.write_commands, quick.write_bytes), (1, 0));
    assert_eq!(quick.other_commands - before.other_commands, 2, "Get Features and Flush");
    assert_eq!(quick.busy_ms - before.busy_ms, 1);
    // All of the time of one that is under way.
    let write = Sqe { cid: 999.into(), ..transfer(nvm::WRITE, 1, 0) };
    let step = world.queues.get_mut(&io).unwrap().submit(&write, 1500);
    world.now_ms = 1700;
    assert!(world.run(admin, Sqe::new(admin::GET_FEATURES).with_cdw(10, 7)).status().is_success());
    world.device_status = Status::UNRECOVERED_READ_ERROR;
    assert!(!world.run(io, transfer(nvm::READ, 1, 0)).status().is_success());
    world.device_status = Status::SUCCESS;
    assert!(world.carry_out(io, step, &[]).status().is_success());
    for _ in 0..2 {
        assert!(!world.run(io, Sqe::new(0x7f).with_nsid(Nsid(1))).status().is_success());
    }
    let slow = counts(&world, DRIVE);
    assert_eq!(slow.busy_ms - quick.busy_ms, 200);
    assert_eq!((slow.write_commands, slow.write_bytes), (2, 512));
    assert_eq!((slow.errors - before.errors, slow.media_errors), (3, 1));
    assert_eq!(counts(&world, OTHER), of_other);
    // They stay while the subsystem does.
    world.close(io);
    world.close(admin);
    assert_eq!(counts(&world, DRIVE), slow);
    world.replace_model(|model| model.subsystems.truncate(1));
    world.close(other);
    assert_eq!(counts(&world, OTHER), Counts::default());
}

/// Number of Queues is asked for before there are any.
#[test]
fn queues_that_are_there_are_counted() {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let wanted = Sqe::new(admin::SET_FEATURES).with_cdw(10, 7).with_cdw(11, 3 << 16 | 3);
    assert!(world.run(admin, wanted).status().is_success());
    let io = [1, 2].map(|qid| world.io_queue(DRIVE, ALICE, cntlid, qid));
    for at in io {
        assert!(world.run(admin, wanted).status().is(Status::COMMAND_SEQUENCE_ERROR));
        world.close(at);
    }
    assert!(world.run(admin, wanted).status().is_success());
}

/// More commands than a queue has entries are not executed.
#[test]
fn a_queue_that_is_overrun_refuses() {
    let mut world = World::new();
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let mut submit = |cid: u16| {
        let sqe = Sqe { cid: cid.into(), ..transfer(nvm::READ, 1, 0) };
        world.queues.get_mut(&io).unwrap().submit(&sqe, 1000)
    };
    let under_way: Vec<_> = (0..64).map(&mut submit).collect();
    assert!(under_way.iter().all(|step| matches!(step, Step::Execute(..))));
    let Step::Complete(cqe) = submit(64) else { panic!("the queue has no room") };
    assert!(cqe.status().is(Status::COMMAND_SEQUENCE_ERROR), "{}", cqe.status());
    let Step::Complete(cqe) = submit(5) else { panic!("there is such a command") };
    assert!(cqe.status().is(Status::COMMAND_SEQUENCE_ERROR) || cqe.status().is(Status::CID_CONFLICT));
    for step in under_way {
        let _ = world.carry_out(io, step, &[]);
    }
}

/// A look that was asked for before a namespace was replaced, and is answered after that, says
/// nothing of what is there now: the host has not seen yet that its namespace is gone.
#[test]
fn a_look_at_what_was_there_is_none_at_what_is_there() {
    let list = with_data(Sqe::new(admin::IDENTIFY).with_cdw(10, u32::from(Cns::ACTIVE_NAMESPACE_LIST.0)), 4096);
    let first = with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(1)), 4096);
    for asked in [list, first] {
        let mut world = World::new();
        let (admin, cntlid) = world.controller(DRIVE, ALICE);
        let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
        let listed = |world: &mut World| {
            let data = world.run(admin, list).data;
            let nsids = ebof_nvme::identify::NamespaceList::ref_from_bytes(&data).unwrap();
            nsids.iter().map(|nsid| nsid.0).collect::<Vec<_>>()
        };
        let replaced = |world: &mut World, nsid: u32, byte: u32| {
            let mut model = Model::clone(world.registry.model());
            let namespaces = &mut Arc::make_mut(&mut model.subsystems[0]).namespaces;
            let others = namespaces.iter().filter(|namespace| namespace.nsid != Nsid(nsid)).cloned();
            let another = ebof_fabrics::Namespace { nsid: Nsid(nsid), ..namespace(byte) };
            *namespaces = NamespaceTable::new(others.chain([another]).collect()).unwrap();
            world.registry.replace_model(Arc::new(model))
        };
        assert_eq!(listed(&mut world), [1, 2, 3, 5]);
        for (nsid, byte) in [(5, 8), (1, 9)] {
            let command = Sqe { cid: 999.into(), ..asked };
            let step = world.queues.get_mut(&admin).unwrap().submit(&command, 1000);
            let notices = replaced(&mut world, nsid, byte);
            let (step, looked) = match step {
                Step::Execute(executing, Task::Shared) => {
                    let queue = world.queues.get_mut(&admin).unwrap();
                    world.registry.execute(queue, executing, 1000)
                }
                // A host that knew of all changes.
                step => (step, Notices::new()),
            };
            world.deliver(notices);
            world.deliver(looked);
            assert!(world.carry_out(admin, step, &[]).status().is_success());
        }
        assert!(!world.run(io, transfer(nvm::WRITE, 1, 0)).status().is_success());
        assert_eq!(listed(&mut world), [2, 3]);
    }
}

/// Whoever comes back after its namespace was away is told if it is another one.
#[test]
fn what_is_gone_is_remembered() {
    let mut world = World::new();
    let known = |world: &World| world.registry.objects().iter().len();
    let before = known(&world);
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[1]).namespaces = NamespaceTable::default());
    assert_eq!((known(&world), world.registry.objects().is_incomplete()), (before, false));
    let table = NamespaceTable::new(vec![namespace(7)]).unwrap();
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[1]).namespaces = table);
    assert_eq!((known(&world), world.registry.objects().is_incomplete()), (before + 1, false));
}
