//! Asymmetric Namespace Access: what hosts at ports with different states are told and may do.

use std::sync::Arc;

use ebof_fabrics::{GroupStates, Namespace, NamespaceTable, PortId};
use ebof_nvme::identify::{IdentifyController, IdentifyNamespace, field};
use ebof_nvme::log::{AnaGroups, AnaState};
use ebof_nvme::namespace::{AttachmentSelect, NewNamespace};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::events::{changed, set_feature};
use crate::managed::{attach, create};
use crate::support::{ALICE, DRIVE, MANAGED, World, namespace, port, with_data};

const PASSED: Status = Status::SUCCESS;

/// Namespaces 1 (group 1) and 7 (group 2) at ports 1 and 3.
fn two_ports() -> World {
    let mut world = World::new();
    world.replace_model(|model| {
        model.ports.push(port(3, "192.0.2.3", "4420"));
        let subsystem = Arc::make_mut(&mut model.subsystems[0]);
        subsystem.ports = vec![PortId(1), PortId(3)];
        let second = Namespace { ana_group: 2, ..namespace(7) };
        subsystem.namespaces = NamespaceTable::new(vec![namespace(1), second]).unwrap();
    });
    world
}

fn set_states(world: &mut World, at: u16, states: &[(u32, AnaState)]) {
    world.replace_model(|model| {
        let port = model.ports.iter_mut().find(|port| port.id == PortId(at)).unwrap();
        port.states = GroupStates::new(states.iter().copied());
    });
}

/// A controller with an I/O queue at a port.
fn path(world: &mut World, at: u16) -> (u64, u64) {
    world.port = PortId(at);
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    (admin, world.io_queue(DRIVE, ALICE, cntlid, 1))
}

fn read(world: &mut World, at: u64, nsid: u32) -> Status {
    world.run(at, with_data(Sqe::new(nvm::READ).with_nsid(Nsid(nsid)), 512)).status()
}

/// Change count, and groups with state, change count and namespaces.
type Log = (u64, Vec<(u32, AnaState, u64, Vec<u32>)>);

fn log(world: &mut World, at: u64, rgo: bool) -> Log {
    let lsp = u32::from(rgo) << 8;
    let data = world.run(at, with_data(Sqe::new(admin::GET_LOG_PAGE), 4096).with_cdw(10, 0xc | lsp | 1023 << 16)).data;
    let (header, groups) = AnaGroups::new(&data).unwrap();
    let groups = groups.map(|group| {
        let nsids = group.nsids.iter().map(|nsid| nsid.get()).collect();
        (group.header.agid.get(), group.header.state(), group.header.chgcnt.get(), nsids)
    });
    (header.chgcnt.get(), groups.collect())
}

#[test]
fn a_controller_announces_the_states_that_its_log_may_have() {
    let mut world = two_ports();
    let (admin, _) = path(&mut world, 1);
    let identify = |world: &mut World, cns, nsid| {
        world.run(admin, with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)), 4096).with_cdw(10, cns)).data
    };
    let bytes = identify(&mut world, 1, 0);
    let data = IdentifyController::ref_from_bytes(&bytes).unwrap();
    assert_ne!(data.cmic & field::cmic::ANA, 0);
    assert_ne!(data.oaes.get() & field::oaes::ANA_CHANGE, 0);
    // All five states; a group may change while a namespace is attached (bit 6), and hosts cannot
    // choose one (bit 7).
    assert_eq!((data.anacap, data.anatt), (0x1f, 10));
    // Linux refuses a log whose groups do not fit.
    assert_eq!((data.anagrpmax.get(), data.nanagrpid.get()), (128, 128));
    let bytes = identify(&mut world, 0, 7);
    assert_eq!(IdentifyNamespace::ref_from_bytes(&bytes).unwrap().anagrpid.get(), 2);
    let independent = identify(&mut world, 8, 7);
    assert_eq!(independent[4..8], [2, 0, 0, 0]);
    let supported = world.run(admin, with_data(Sqe::new(admin::GET_LOG_PAGE), 1024).with_cdw(10, 255 << 16)).data;
    assert_eq!(supported[0xc * 4] & 1, 1);
}

#[test]
fn the_log_has_the_groups_of_the_port_and_counts_their_changes() {
    let mut world = two_ports();
    let (first, _) = path(&mut world, 1);
    let (third, _) = path(&mut world, 3);
    let before = (1, vec![(1, AnaState::OPTIMIZED, 1, vec![1]), (2, AnaState::OPTIMIZED, 1, vec![7])]);
    assert_eq!(log(&mut world, first, false), before);
    assert_eq!(log(&mut world, third, false), before);
    world.run(first, Sqe::new(admin::ASYNC_EVENT_REQUEST));
    world.run(third, Sqe::new(admin::ASYNC_EVENT_REQUEST));
    set_states(&mut world, 3, &[(2, AnaState::NON_OPTIMIZED)]);
    let told: Vec<_> = world.ana_events.iter().map(|(at, cqe)| (*at, cqe.result())).collect();
    assert_eq!((told, world.events.len()), (vec![(third, 0x000c_0302)], 0));
    assert_eq!(log(&mut world, first, false), before);
    let after = (2, vec![(1, AnaState::OPTIMIZED, 1, vec![1]), (2, AnaState::NON_OPTIMIZED, 2, vec![7])]);
    assert_eq!(log(&mut world, third, false), after);
    // A host may ask for the groups alone.
    let groups = (2, vec![(1, AnaState::OPTIMIZED, 1, vec![]), (2, AnaState::NON_OPTIMIZED, 2, vec![])]);
    assert_eq!(log(&mut world, third, true), groups);
    // A later controller is told the states of its port.
    let (late, _) = path(&mut world, 3);
    assert_eq!(log(&mut world, late, false).1[1].1, AnaState::NON_OPTIMIZED);
}

/// Hosts make room for as many groups and namespaces as a controller announces, and read that in
/// pieces, however short the page is.
#[test]
fn the_log_can_be_read_as_far_as_it_may_reach() {
    let mut world = two_ports();
    let (admin, _) = path(&mut world, 1);
    let read = |world: &mut World, offset: u32| {
        let get = with_data(Sqe::new(admin::GET_LOG_PAGE), 4096).with_cdw(10, 0xc | 1023 << 16).with_cdw(12, offset);
        world.run(admin, get)
    };
    let announced = 16 + 128 * 32 + 1024 * 4;
    for offset in (0..announced).step_by(4096) {
        let done = read(&mut world, offset);
        assert_eq!((done.status(), done.data.len()), (PASSED, 4096), "{offset}");
        assert!(offset == 0 || done.data.iter().all(|byte| *byte == 0), "{offset}");
    }
    assert!(read(&mut world, announced + 4).status().is(Status::INVALID_FIELD));
}

/// A host that gets the event of a new namespace only does not know in which state it is.
#[test]
fn a_namespace_that_is_added_is_told_by_both_events() {
    let mut world = two_ports();
    let (admin, _) = path(&mut world, 1);
    for _ in 0..6 {
        world.run(admin, Sqe::new(admin::ASYNC_EVENT_REQUEST));
    }
    let added = |world: &mut World, nsids: &[(u32, u32)]| {
        let all = nsids.iter().map(|&(nsid, ana_group)| Namespace { ana_group, ..namespace(nsid) });
        let table = NamespaceTable::new(all.collect()).unwrap();
        world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).namespaces = table);
        [&mut world.events, &mut world.ana_events].map(|events| std::mem::take(events).len())
    };
    assert_eq!(added(&mut world, &[(1, 1), (7, 2), (9, 3)]), [1, 1]);
    changed(&mut world, admin, false);
    let page = log(&mut world, admin, false);
    assert_eq!(page.1[2], (3, AnaState::OPTIMIZED, 2, vec![9]));
    // So is one that is moved to another group.
    assert_eq!(added(&mut world, &[(1, 1), (7, 2), (9, 2)]), [1, 1]);
    changed(&mut world, admin, false);
    let page = log(&mut world, admin, false);
    assert_eq!((page.0, page.1.len(), page.1[1].3.clone()), (3, 2, vec![7, 9]));
    // That one is gone is no news of its state; the log counts it all the same.
    assert_eq!(added(&mut world, &[(1, 1), (7, 2)]), [1, 0]);
    assert_eq!(log(&mut world, admin, false).0, 4);
}

#[test]
fn commands_to_a_group_are_refused_where_its_state_leaves_none() {
    let mut world = two_ports();
    let (_, first) = path(&mut world, 1);
    let (_, third) = path(&mut world, 3);
    for (state, status) in [
        (AnaState::OPTIMIZED, PASSED),
        (AnaState::NON_OPTIMIZED, PASSED),
        (AnaState::INACCESSIBLE, Status::ANA_INACCESSIBLE),
        (AnaState::PERSISTENT_LOSS, Status::ANA_PERSISTENT_LOSS),
        (AnaState::CHANGE, Status::ANA_TRANSITION),
        (AnaState::OPTIMIZED, PASSED),
    ] {
        set_states(&mut world, 3, &[(2, state)]);
        // The statuses have no Do Not Retry: the host is to take another path.
        let expected = if status == PASSED { PASSED } else { status.more() };
        assert_eq!(read(&mut world, third, 7), expected, "{}", state.name());
        assert_eq!([read(&mut world, third, 1), read(&mut world, first, 7)], [PASSED, PASSED], "{}", state.name());
        let flush = world.run(third, Sqe::new(nvm::FLUSH).with_nsid(Nsid(7))).status();
        assert_eq!(flush, expected, "flush, {}", state.name());
        let zeroes = world.run(third, Sqe::new(nvm::WRITE_ZEROES).with_nsid(Nsid(7))).status();
        assert_eq!(zeroes, expected, "write zeroes, {}", state.name());
    }
    // A queue that comes later finds the same.
    set_states(&mut world, 3, &[(2, AnaState::INACCESSIBLE)]);
    let (_, late) = path(&mut world, 3);
    assert_eq!(read(&mut world, late, 7), Status::ANA_INACCESSIBLE.more());
}

/// The table of `admin::ana::check`, for a namespace of a drive.
#[test]
fn commands_of_the_admin_queue_pass_as_the_specification_lists_them() {
    let mut world = World::managed();
    let (at, _) = world.controller(MANAGED, ALICE);
    let mut data = [0; 4096];
    data[0] = 64;
    data[8] = 64;
    let create = with_data(Sqe::new(admin::NAMESPACE_MANAGEMENT), 4096);
    assert_eq!(world.run_with(at, create, &data).result(), 1);
    let get = |fid| with_data(Sqe::new(admin::GET_FEATURES), 4096).with_cdw(10, fid).with_nsid(Nsid(1));
    let log = |lid: u32| with_data(Sqe::new(admin::GET_LOG_PAGE), 512).with_cdw(10, lid | 127 << 16);
    let identify = with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(1)), 4096).with_cdw(10, 0x11);
    // Whether the command passes while the group is inaccessible or changes, and while it is lost.
    let rows = [
        ("Identify", identify, true, true),
        ("Get Log Page", log(2).with_nsid(Nsid(1)), true, true),
        ("Get Features 05h", get(5), false, false),
        ("Get Features 0Ah", get(0xa), false, false),
        ("Get Features 82h", get(0x82), false, false),
        ("Get Features 83h", get(0x83), false, false),
        ("Get Features 84h", get(0x84), true, true),
        ("Set Features 05h", set_feature(5, 0, 1), false, false),
        ("Set Features 82h", set_feature(0x82, 0, 1), false, false),
        ("Set Features 84h", set_feature(0x84, 0, 1), false, false),
        ("Set Features 0Bh", set_feature(0xb, 0x100, 0), true, true),
        ("Set Features 0Bh, all", set_feature(0xb, 0x100, u32::MAX), false, false),
        ("Get LBA Status", Sqe::new(admin::GET_LBA_STATUS).with_nsid(Nsid(1)), false, false),
        ("Device Self-test", Sqe::new(admin::DEVICE_SELF_TEST).with_nsid(Nsid(1)).with_cdw(10, 0xf), false, false),
        ("Format NVM", Sqe::new(admin::FORMAT_NVM).with_nsid(Nsid(1)), false, false),
        ("Format NVM, all", Sqe::new(admin::FORMAT_NVM).with_nsid(Nsid(u32::MAX)), false, false),
        ("attach", with_data(Sqe::new(admin::NAMESPACE_ATTACHMENT).with_nsid(Nsid(1)), 4096), false, false),
        ("delete", Sqe::new(admin::NAMESPACE_MANAGEMENT).with_nsid(Nsid(1)).with_cdw(10, 1), false, false),
        ("create", create, true, true),
        ("Keep Alive", Sqe::new(admin::KEEP_ALIVE), true, true),
    ];
    for state in [AnaState::INACCESSIBLE, AnaState::CHANGE, AnaState::PERSISTENT_LOSS] {
        set_states(&mut world, 1, &[(1, state)]);
        let status = ebof_fabrics::refusal(state).unwrap().more();
        for (name, sqe, otherwise, lost) in &rows {
            let passes = if state == AnaState::PERSISTENT_LOSS { *lost } else { *otherwise };
            // Whatever becomes of a command that passes.
            let is_refused = world.run_with(at, *sqe, &[0; 4096]).status() == status;
            assert_eq!(is_refused, !passes, "{name}, {}", state.name());
        }
    }
    set_states(&mut world, 1, &[]);
    for (name, sqe, ..) in &rows {
        assert_ne!(world.run_with(at, *sqe, &[0; 4096]).status().code_type(), 3, "{name}");
    }
}

/// Set Features of a feature that is not of a namespace: passes unless the path is lost for good.
#[test]
fn a_lost_path_takes_no_set_features() {
    let mut world = two_ports();
    let (admin, _) = path(&mut world, 3);
    for (state, passes) in [(AnaState::INACCESSIBLE, true), (AnaState::PERSISTENT_LOSS, false)] {
        set_states(&mut world, 3, &[(2, state)]);
        // Of the wrong scope, which is another error.
        let status = world.run(admin, set_feature(0xb, 0, 7)).status();
        assert_eq!(status.code_type() != 3, passes, "{}", state.name());
    }
}

#[test]
fn a_namespace_that_cannot_be_reached_shows_no_use() {
    let mut world = two_ports();
    let (admin, _) = path(&mut world, 3);
    let sizes = |world: &mut World| {
        let sqe = with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(7)), 4096);
        let bytes = world.run(admin, sqe).data;
        let data = IdentifyNamespace::ref_from_bytes(&bytes).unwrap();
        [data.nsze.get(), data.ncap.get(), data.nuse.get()]
    };
    for (state, used) in [
        (AnaState::OPTIMIZED, 1024),
        (AnaState::NON_OPTIMIZED, 1024),
        (AnaState::CHANGE, 1024),
        (AnaState::INACCESSIBLE, 0),
        (AnaState::PERSISTENT_LOSS, 0),
    ] {
        set_states(&mut world, 3, &[(2, state)]);
        // Linux takes one without capacity for one that is gone.
        assert_eq!(sizes(&mut world), [1024, 1024, used], "{}", state.name());
    }
}

/// A subsystem whose drive fails: the worse state of that and of the port's is told and enforced.
#[test]
fn no_port_is_better_than_the_best_that_a_subsystem_can_be() {
    let mut world = two_ports();
    let (admin, io) = path(&mut world, 3);
    world.run(admin, Sqe::new(admin::ASYNC_EVENT_REQUEST));
    for (best, port, told) in [
        (AnaState::NON_OPTIMIZED, AnaState::OPTIMIZED, AnaState::NON_OPTIMIZED),
        (AnaState::NON_OPTIMIZED, AnaState::INACCESSIBLE, AnaState::INACCESSIBLE),
        (AnaState::INACCESSIBLE, AnaState::NON_OPTIMIZED, AnaState::INACCESSIBLE),
        (AnaState::INACCESSIBLE, AnaState::PERSISTENT_LOSS, AnaState::PERSISTENT_LOSS),
        (AnaState::OPTIMIZED, AnaState::OPTIMIZED, AnaState::OPTIMIZED),
    ] {
        set_states(&mut world, 3, &[(2, port)]);
        world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).states = GroupStates::at_best(best));
        let states: Vec<_> = log(&mut world, admin, true).1.iter().map(|(_, state, ..)| *state).collect();
        assert_eq!(states, [best, told]);
        let refused = |state| match state {
            AnaState::PERSISTENT_LOSS => Status::ANA_PERSISTENT_LOSS,
            AnaState::INACCESSIBLE => Status::ANA_INACCESSIBLE,
            _ => PASSED,
        };
        for (nsid, state) in [(1, best), (7, told)] {
            let status = read(&mut world, io, nsid);
            assert!(status.is(refused(state)), "{nsid} {state:?}: {status}");
        }
    }
    let told: Vec<_> = world.ana_events.iter().map(|(at, cqe)| (*at, cqe.result())).collect();
    assert_eq!(told, [(admin, 0x000c_0302)], "hosts are told by the event");
}

#[test]
fn hosts_of_a_drive_choose_the_group_of_what_they_create() {
    let mut world = World::managed();
    let (admin, _) = world.controller(MANAGED, ALICE);
    let identify = with_data(Sqe::new(admin::IDENTIFY), 4096).with_cdw(10, 1);
    let bytes = world.run(admin, identify).data;
    assert_eq!(IdentifyController::ref_from_bytes(&bytes).unwrap().anacap, 0x9f);
    let mut new = NewNamespace::new(8);
    new.anagrpid.set(5);
    assert_eq!(create(&mut world, admin, &new).result(), 1);
    assert!(attach(&mut world, admin, AttachmentSelect::Attach, Nsid(1), &[0]).status().is_success());
    assert_eq!(log(&mut world, admin, false).1, [(5, AnaState::OPTIMIZED, 1, vec![1])]);
}
