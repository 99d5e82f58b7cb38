//! An NSID that gets another namespace while hosts are connected.
//!
//! Linux removes its disk when it finds other identifiers for an NSID, and looks for the new
//! namespace only at the next event. Until it has looked, its writes are meant for the old
//! namespace.

use std::sync::Arc;

use ebof_fabrics::{DataId, DeviceId, Namespace, NamespaceTable};
use ebof_nvme::connect::Property;
use ebof_nvme::identify::NamespaceList;
use ebof_nvme::log::ChangedNamespaces;
use ebof_nvme::namespace::{AttachmentSelect, NewNamespace};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::{ControllerId, Nsid, Sqe, Status, Uuid};
use zerocopy::FromBytes;

use crate::managed::{attach, create, delete};
use crate::support::{ALICE, BOB, DRIVE, MANAGED, World, namespace, with_data};

/// A host's controller and one I/O queue.
pub(crate) struct Host {
    pub(crate) admin: u64,
    pub(crate) cntlid: ControllerId,
    pub(crate) io: u64,
}

pub(crate) fn connect(world: &mut World, name: &str, requests: u16) -> Host {
    connect_to(world, DRIVE, name, requests)
}

pub(crate) fn connect_to(world: &mut World, subsystem: &str, name: &str, requests: u16) -> Host {
    let (admin, cntlid) = world.controller(subsystem, name);
    let io = world.io_queue(subsystem, name, cntlid, 1);
    for _ in 0..requests {
        assert_eq!(world.run(admin, Sqe::new(admin::ASYNC_EVENT_REQUEST)).cqe, None);
    }
    Host { admin, cntlid, io }
}

/// Namespace 1 as another one, on device 77.
pub(crate) fn other() -> Namespace {
    Namespace {
        object: DataId([0x77; 16]),
        uuid: Uuid([0x77; 16]),
        nguid: [0x77; 16],
        eui64: [0x77; 8],
        device: DeviceId(77),
        ..namespace(1)
    }
}

pub(crate) fn reload(world: &mut World, namespaces: &[Namespace]) {
    let table = NamespaceTable::new(namespaces.to_vec()).unwrap();
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).namespaces = table);
}

pub(crate) fn identify(world: &mut World, host: &Host, cns: u32, nsid: u32) -> ebof_nvme::Status {
    world.run(host.admin, with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)), 4096).with_cdw(10, cns)).status()
}

pub(crate) fn list(world: &mut World, host: &Host) -> Vec<u32> {
    list_after(world, host, 2, 0)
}

/// The namespaces after an NSID: the attached ones (CNS 02h), or all allocated ones (10h).
fn list_after(world: &mut World, host: &Host, cns: u32, after: u32) -> Vec<u32> {
    let sqe = with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(after)), 4096).with_cdw(10, cns);
    let data = world.run(host.admin, sqe).data;
    NamespaceList::ref_from_bytes(&data).unwrap().iter().map(|nsid| nsid.0).collect()
}

pub(crate) fn changed(world: &mut World, host: &Host) -> Vec<u32> {
    let get = with_data(Sqe::new(admin::GET_LOG_PAGE), 4096).with_cdw(10, 4 | 1023 << 16);
    let data = world.run(host.admin, get).data;
    ChangedNamespaces::ref_from_bytes(&data).unwrap().iter().map(|nsid| nsid.0).collect()
}

/// The result of a write to namespace 1: its status and the device.
pub(crate) fn write(world: &mut World, host: &Host) -> (Status, String) {
    let done = world.run(host.io, with_data(Sqe::new(nvm::WRITE).with_nsid(Nsid(1)), 512));
    (done.status(), done.step)
}

pub(crate) const NONE: [u32; 0] = [];
pub(crate) const ABSENT: Status = Status::INVALID_NAMESPACE.dnr().more();
pub(crate) const NOT_YET: Status = Status::NAMESPACE_NOT_READY.more();

/// ebof's own host, which compares: it lists namespaces, listens to events after that, and has its
/// I/O queues later, the more so if it has to authenticate on each.
#[test]
fn a_host_that_hears_of_a_change_before_it_has_io_queues_is_no_one_that_compares_nothing() {
    let mut world = World::new();
    reload(&mut world, &[namespace(1), namespace(2)]);
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let mut host = Host { admin, cntlid, io: 0 };
    assert_eq!(list(&mut world, &host), [1, 2]);
    for _ in 0..4 {
        assert_eq!(world.run(admin, Sqe::new(admin::ASYNC_EVENT_REQUEST)).cqe, None);
    }
    reload(&mut world, &[other(), namespace(2)]);
    assert_eq!((changed(&mut world, &host), list(&mut world, &host)), (vec![1], vec![2]));
    host.io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    assert_eq!((list(&mut world, &host), write(&mut world, &host).0), (vec![1, 2], NOT_YET));
    assert_eq!(identify(&mut world, &host, 0, 1), Status::SUCCESS);
    assert!(write(&mut world, &host).0.is_success());
}

// @test data.replaced-namespace
#[test]
fn removal_and_addition_are_two_events_and_no_write_reaches_the_wrong_namespace() {
    let mut world = World::new();
    reload(&mut world, &[namespace(1), namespace(2)]);
    let host = connect(&mut world, ALICE, 4);
    reload(&mut world, &[other(), namespace(2)]);
    let events = |world: &World| world.events.iter().filter(|(at, _)| *at == host.admin).count();
    assert_eq!(events(&world), 1);
    assert_eq!(write(&mut world, &host).0, ABSENT);
    // As Linux does: the log, then the list, which does not have namespace 1. After that the second
    // event is sent.
    assert_eq!(changed(&mut world, &host), [1]);
    assert_eq!(events(&world), 1);
    assert_eq!(list(&mut world, &host), [2]);
    assert_eq!(events(&world), 2);
    // The host may not have removed its disk yet.
    assert_eq!(write(&mut world, &host).0, NOT_YET);
    assert_eq!(changed(&mut world, &host), [1]);
    assert_eq!(list(&mut world, &host), [1, 2]);
    assert_eq!(write(&mut world, &host).0, NOT_YET);
    // Now it has identified the new namespace.
    assert_eq!(identify(&mut world, &host, 3, 1), Status::SUCCESS);
    let (status, step) = write(&mut world, &host);
    assert!(status.is_success() && step.contains("DeviceId(77)"), "{status} {step}");
    assert_eq!((events(&world), changed(&mut world, &host)), (2, vec![0_u32; 0]));
    // The change is complete: the next one is announced again.
    reload(&mut world, &[namespace(1), namespace(2)]);
    assert_eq!((events(&world), list(&mut world, &host)), (3, vec![2]));
}

// @test data.replaced-namespace
#[test]
fn an_identify_before_the_log_was_read_does_not_count() {
    let mut world = World::new();
    reload(&mut world, &[namespace(1)]);
    let host = connect(&mut world, ALICE, 4);
    reload(&mut world, &[other()]);
    // Another program lists namespaces before the kernel, which then reads the log and must not
    // find the new one either.
    assert_eq!(list(&mut world, &host), NONE);
    assert_eq!(changed(&mut world, &host), [1]);
    assert_eq!(list(&mut world, &host), NONE);
    assert_eq!(list(&mut world, &host), [1]);
    assert_eq!(world.events.len(), 2);
}

#[test]
fn an_identify_or_list_covers_only_its_own_nsids() {
    let mut world = World::new();
    let renewed = |byte: u8| [1, 2].map(|nsid| Namespace { uuid: Uuid([byte; 16]), ..namespace(nsid) });
    reload(&mut world, &renewed(0x50));
    let host = connect(&mut world, ALICE, 4);
    reload(&mut world, &renewed(0x51));
    assert_eq!(changed(&mut world, &host), [1, 2]);
    // Identify of its NSID, of the other one, and a list that begins after it.
    assert_eq!(identify(&mut world, &host, 3, 1), ABSENT);
    assert_eq!(changed(&mut world, &host), [1]);
    assert_eq!(list(&mut world, &host), [1]);
    assert_eq!(identify(&mut world, &host, 3, 2), Status::SUCCESS);
    assert_eq!(write(&mut world, &host).0, NOT_YET);
    assert_eq!(identify(&mut world, &host, 3, 1), Status::SUCCESS);
    assert!(write(&mut world, &host).0.is_success());
    reload(&mut world, &renewed(0x52));
    assert_eq!(changed(&mut world, &host), [1, 2]);
    assert_eq!(list_after(&mut world, &host, 2, 1), NONE);
    assert_eq!(list(&mut world, &host), [2]);
}

/// When the host has seen that it is gone, nothing about it is kept.
#[test]
fn a_namespace_added_after_the_host_saw_the_removal_is_new() {
    let mut world = World::new();
    reload(&mut world, &[namespace(1), namespace(2)]);
    let host = connect(&mut world, ALICE, 4);
    reload(&mut world, &[namespace(2)]);
    assert_eq!((changed(&mut world, &host), list(&mut world, &host)), (vec![1], vec![2]));
    reload(&mut world, &[other(), namespace(2)]);
    assert!(write(&mut world, &host).0.is_success());
    assert_eq!(list(&mut world, &host), [1, 2]);
}

#[test]
fn hosts_without_events_find_it_when_they_identify_again() {
    let mut world = World::new();
    reload(&mut world, &[namespace(1)]);
    // One has no request outstanding, one has switched the event off, one never reads the log.
    let idle = connect(&mut world, ALICE, 0);
    let off = connect(&mut world, BOB, 2);
    let deaf = connect(&mut world, BOB, 2);
    assert!(world.run(off.admin, Sqe::new(admin::SET_FEATURES).with_cdw(10, 0xb)).status().is_success());
    reload(&mut world, &[other()]);
    for host in [&idle, &off] {
        assert_eq!(list(&mut world, host), NONE);
        assert_eq!(list(&mut world, host), [1]);
    }
    assert_eq!((list(&mut world, &deaf), list(&mut world, &deaf)), (vec![0_u32; 0], vec![0_u32; 0]));
    assert_eq!(list(&mut world, &deaf), [1]);
    // A host that identifies the namespace by its NSID is shown it as gone once, too.
    let by_number = connect(&mut world, ALICE, 0);
    assert_eq!(identify(&mut world, &by_number, 0, 1), Status::SUCCESS);
    reload(&mut world, &[namespace(1)]);
    assert_eq!(identify(&mut world, &by_number, 3, 1), ABSENT);
    assert_eq!(write(&mut world, &by_number).0, NOT_YET);
    assert_eq!(identify(&mut world, &by_number, 3, 1), Status::SUCCESS);
    assert!(write(&mut world, &by_number).0.is_success());
}

// @test data.replaced-namespace
#[test]
fn removal_and_addition_in_two_reloads_are_the_same_and_new_hosts_see_the_current_state() {
    let mut world = World::new();
    reload(&mut world, &[namespace(1), namespace(2)]);
    let host = connect(&mut world, ALICE, 4);
    reload(&mut world, &[namespace(2)]);
    reload(&mut world, &[other(), namespace(2)]);
    assert_eq!((world.events.len(), write(&mut world, &host).0), (1, ABSENT));
    let fresh = connect(&mut world, ALICE, 4);
    assert_eq!(list(&mut world, &fresh), [1, 2]);
    assert_eq!(identify(&mut world, &fresh, 0, 1), Status::SUCCESS);
    assert!(write(&mut world, &fresh).0.is_success());
    // Another I/O queue of the first controller has the same view as the others.
    let io = world.io_queue(DRIVE, ALICE, host.cntlid, 2);
    let second = Host { io, ..host };
    assert_eq!(write(&mut world, &second).0, ABSENT);
    assert_eq!(changed(&mut world, &second), [1]);
    assert_eq!(list(&mut world, &second), [2]);
    assert_eq!((write(&mut world, &second).0, world.events.len()), (NOT_YET, 2));
    // A removed namespace is gone after the look; one that is added again unchanged is not
    // reported.
    reload(&mut world, &[other()]);
    reload(&mut world, &[other(), namespace(2)]);
    assert_eq!(list(&mut world, &second), [1, 2]);
}

#[test]
fn a_namespace_that_only_grows_stays_in_use() {
    let mut world = World::new();
    reload(&mut world, &[namespace(1)]);
    let host = connect(&mut world, ALICE, 4);
    reload(&mut world, &[Namespace { blocks: 4096, ..namespace(1) }]);
    assert!(write(&mut world, &host).0.is_success());
    assert_eq!((changed(&mut world, &host), list(&mut world, &host)), (vec![1], vec![1]));
    // Without any identifier only the device distinguishes them.
    let bare =
        |device| Namespace { uuid: Uuid::NIL, nguid: [0; 16], eui64: [0; 8], device: DeviceId(device), ..namespace(3) };
    reload(&mut world, &[bare(3)]);
    let host = connect(&mut world, BOB, 4);
    reload(&mut world, &[bare(4)]);
    assert_eq!(list(&mut world, &host), NONE);
}

#[test]
fn a_reset_does_not_change_what_the_host_knows() {
    let mut world = World::new();
    reload(&mut world, &[namespace(1)]);
    let host = connect(&mut world, ALICE, 2);
    reload(&mut world, &[other()]);
    for cc in [0, Cc::ENABLE.0] {
        assert!(world.run(host.admin, Property::set(offset::CC, cc)).status().is_success());
    }
    // Linux scans after a reset, and finds other identifiers only if there are any.
    assert_eq!(list(&mut world, &host), NONE);
    assert_eq!(world.run(host.admin, Sqe::new(admin::ASYNC_EVENT_REQUEST)).cqe, None);
    assert_eq!(world.events.last().unwrap().1.result(), 0x0004_0002);
    assert_eq!(list(&mut world, &host), [1]);
}

/// `by` deletes namespace 1 and creates another one with its NSID, attached to `to` and to itself.
pub(crate) fn recreate(world: &mut World, by: &Host, to: &[&Host]) {
    if volume(world).is_some() {
        assert!(delete(world, by.admin, Nsid(1)).status().is_success());
    }
    let shared = NewNamespace { nmic: 1, ..NewNamespace::new(8) };
    assert_eq!(create(world, by.admin, &shared).result(), 1);
    let mut controllers: Vec<u16> = to.iter().map(|host| host.cntlid.0).collect();
    controllers.sort_unstable();
    assert!(attach(world, by.admin, AttachmentSelect::Attach, Nsid(1), &controllers).status().is_success());
}

// @test data.replaced-namespace
#[test]
fn a_host_that_makes_a_namespace_may_not_know_yet_that_another_host_has_deleted_one_before() {
    let mut world = World::managed_by(&[ALICE, BOB]);
    let alice = connect_to(&mut world, MANAGED, ALICE, 4);
    let bob = connect_to(&mut world, MANAGED, BOB, 4);
    recreate(&mut world, &alice, &[&alice, &bob]);
    assert!(write(&mut world, &alice).0.is_success());
    assert!(delete(&mut world, bob.admin, Nsid(1)).status().is_success());
    // What waits in Alice's disk is meant for the first one, whatever her administrator does.
    recreate(&mut world, &alice, &[&alice, &bob]);
    assert_eq!((write(&mut world, &alice).0, changed(&mut world, &alice)), (ABSENT, vec![1]));
    assert_eq!((write(&mut world, &alice).0, list(&mut world, &alice)), (ABSENT, vec![]));
    assert_eq!((write(&mut world, &alice).0, list(&mut world, &alice)), (NOT_YET, vec![1]));
    assert_eq!(identify(&mut world, &alice, 3, 1), Status::SUCCESS);
    assert!(write(&mut world, &alice).0.is_success());
    // Once she has seen that it is gone, the next one is hers at once.
    assert!(delete(&mut world, bob.admin, Nsid(1)).status().is_success());
    assert_eq!((changed(&mut world, &alice), list(&mut world, &alice)), (vec![1], vec![]));
    recreate(&mut world, &alice, &[&alice, &bob]);
    assert!(write(&mut world, &alice).0.is_success());
}

/// The number of events about attached namespaces that a host has received.
fn events(world: &World, host: &Host) -> usize {
    world.events.iter().filter(|(at, cqe)| *at == host.admin && cqe.result() == 0x0004_0002).count()
}

// @test data.replaced-namespace
#[test]
fn a_replacement_by_one_host_is_two_events_for_the_others() {
    let mut world = World::managed();
    let alice = connect_to(&mut world, MANAGED, ALICE, 4);
    let bob = connect_to(&mut world, MANAGED, BOB, 4);
    recreate(&mut world, &alice, &[&alice, &bob]);
    assert_eq!((changed(&mut world, &bob), list(&mut world, &bob)), (vec![1], vec![1]));
    assert!(write(&mut world, &bob).0.is_success());
    let before = events(&world, &bob);
    // Deleted, created and attached before the other host has looked.
    recreate(&mut world, &alice, &[&alice, &bob]);
    assert_eq!(events(&world, &bob), before + 1);
    assert_eq!(write(&mut world, &bob).0, ABSENT);
    assert_eq!(list_after(&mut world, &bob, 0x10, 0), [1], "it is not attached, as far as this host is concerned");
    assert_eq!((changed(&mut world, &bob), list(&mut world, &bob)), (vec![1], vec![0_u32; 0]));
    assert_eq!(events(&world, &bob), before + 2);
    assert_eq!((changed(&mut world, &bob), list(&mut world, &bob)), (vec![1], vec![1]));
    assert_eq!(write(&mut world, &bob).0, NOT_YET);
    assert_eq!(identify(&mut world, &bob, 3, 1), Status::SUCCESS);
    let (status, step) = write(&mut world, &bob);
    let device = format!("DeviceId({})", 1000 + volume(&world).unwrap());
    assert!(status.is_success() && step.contains(&device), "{status} {step}");
}

#[test]
fn what_a_host_changes_itself_says_nothing_of_other_namespaces() {
    let mut world = World::managed_by(&[ALICE, BOB]);
    let alice = connect_to(&mut world, MANAGED, ALICE, 4);
    let bob = connect_to(&mut world, MANAGED, BOB, 4);
    recreate(&mut world, &alice, &[&alice, &bob]);
    assert!(write(&mut world, &bob).0.is_success());
    recreate(&mut world, &alice, &[&alice, &bob]);
    let created = create(&mut world, bob.admin, &NewNamespace::new(8));
    assert_eq!((created.status(), created.result()), (Status::SUCCESS, 2));
    let attached = attach(&mut world, bob.admin, AttachmentSelect::Attach, Nsid(2), &[bob.cntlid.0]);
    assert!(attached.status().is_success());
    assert_eq!((write(&mut world, &bob).0, list(&mut world, &bob)), (ABSENT, vec![2]));
}

/// The drive's volume of namespace 1.
fn volume(world: &World) -> Option<u64> {
    Some(world.drive.view().namespaces.first()?.1.volume.0)
}

// @test data.replaced-namespace
#[test]
fn a_host_that_replaces_a_namespace_sees_it_immediately() {
    let mut world = World::managed();
    let alice = connect_to(&mut world, MANAGED, ALICE, 4);
    let bob = connect_to(&mut world, MANAGED, BOB, 4);
    // Another controller of the same host, which deletes and creates through the first.
    let second = connect_to(&mut world, MANAGED, ALICE, 0);
    for _ in 0..2 {
        recreate(&mut world, &alice, &[&alice, &bob]);
        for host in [&alice, &second] {
            assert_eq!(list(&mut world, host), [1]);
            assert!(write(&mut world, host).0.is_success());
        }
    }
    // A change by the drive itself is announced to all hosts, until a host that has looked changes
    // it again.
    world.publish_drive();
    let gone = |world: &mut World| {
        let mut model = ebof_fabrics::Model::clone(world.registry.model());
        Arc::make_mut(model.subsystems.last_mut().unwrap()).namespaces = NamespaceTable::default();
        let notices = world.registry.replace_model(Arc::new(model));
        world.deliver(notices);
    };
    gone(&mut world);
    world.publish_drive();
    assert_eq!(write(&mut world, &alice).0, Status::SUCCESS, "it is the same");
    gone(&mut world);
    assert_eq!((changed(&mut world, &alice), list(&mut world, &alice)), (vec![1], vec![]));
    recreate(&mut world, &alice, &[&alice, &bob]);
    assert!(write(&mut world, &alice).0.is_success(), "its own");
    assert_eq!(write(&mut world, &bob).0, ABSENT);
}

#[test]
fn attaching_another_namespace_is_a_replacement_and_the_same_one_is_not() {
    let mut world = World::managed();
    let alice = connect_to(&mut world, MANAGED, ALICE, 4);
    let bob = connect_to(&mut world, MANAGED, BOB, 4);
    recreate(&mut world, &alice, &[&bob]);
    assert!(write(&mut world, &bob).0.is_success());
    for select in [AttachmentSelect::Detach, AttachmentSelect::Attach] {
        assert!(attach(&mut world, alice.admin, select, Nsid(1), &[bob.cntlid.0]).status().is_success());
    }
    assert!(write(&mut world, &bob).0.is_success());
    // A host to which the old one was not attached is shown the new one immediately.
    recreate(&mut world, &alice, &[&alice, &bob]);
    assert!(write(&mut world, &alice).0.is_success());
    assert_eq!(write(&mut world, &bob).0, ABSENT);
}
