//! A host that was away while an NSID got another object. Linux repeats what waited as soon as its
//! queues are connected again, and looks at the namespaces afterwards.

use std::sync::Arc;

use ebof_fabrics::{DataId, Namespace, NamespaceTable, Objects, Registry};
use ebof_nvme::copy::Copy;
use ebof_nvme::feature::Fid;
use ebof_nvme::feature::HostBehaviorSupport;
use ebof_nvme::identify::IdentifyController;
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nsid, Sqe, Status, Uuid};
use zerocopy::{FromBytes, IntoBytes};

use crate::copy::{copy, enable, of, to};
use crate::managed::delete;
use crate::replaced::{
    ABSENT, Host, NONE, NOT_YET, changed, connect, connect_to, identify, list, other, recreate, reload, write,
};
use crate::support::{ALICE, BOB, DRIVE, MANAGED, World, model, namespace, nqn, with_data};

/// A connection of a host ends without a goodbye.
fn lose(world: &mut World, host: &Host) {
    world.close(host.io);
    world.close(host.admin);
}

fn read(world: &mut World, host: &Host) -> Status {
    world.run(host.io, with_data(Sqe::new(nvm::READ).with_nsid(Nsid(1)), 512)).status()
}

/// Alice holds namespace 1, and is away while it becomes another one.
fn replaced_meanwhile() -> World {
    let mut world = World::new();
    reload(&mut world, &[namespace(1), namespace(2)]);
    let host = connect(&mut world, ALICE, 4);
    assert!(write(&mut world, &host).0.is_success());
    lose(&mut world, &host);
    reload(&mut world, &[other(), namespace(2)]);
    world
}

// @test wire.other-object
#[test]
fn what_waited_while_the_object_was_replaced_reaches_no_other_one() {
    let mut world = replaced_meanwhile();
    let host = connect(&mut world, ALICE, 4);
    // Its queues are there, and what waited is sent at once.
    assert_eq!((write(&mut world, &host).0, read(&mut world, &host)), (NOT_YET, NOT_YET));
    assert_eq!(list(&mut world, &host), [1, 2]);
    // It finds other identifiers, and gives its disk up after that. What is repeated meanwhile is
    // still meant for the old object.
    assert_eq!(identify(&mut world, &host, 3, 1), Status::SUCCESS);
    assert_eq!((write(&mut world, &host).0, read(&mut world, &host)), (NOT_YET, NOT_YET));
    assert_eq!(identify(&mut world, &host, 8, 1), Status::SUCCESS);
    assert_eq!((write(&mut world, &host).0, read(&mut world, &host)), (NOT_YET, NOT_YET));
    // The event has it look again, when the old disk is gone.
    assert_eq!((world.events.len(), changed(&mut world, &host)), (1, vec![1]));
    assert_eq!((list(&mut world, &host), write(&mut world, &host).0), (vec![1, 2], NOT_YET));
    assert_eq!(identify(&mut world, &host, 3, 1), Status::SUCCESS);
    let (status, step) = write(&mut world, &host);
    assert!(status.is_success() && step.contains("DeviceId(77)"), "{status} {step}");
}

// @test wire.other-object
#[test]
fn a_host_that_finds_what_it_holds_goes_on() {
    let mut world = replaced_meanwhile();
    let first = connect(&mut world, ALICE, 4);
    assert_eq!(identify(&mut world, &first, 0, 1), Status::SUCCESS);
    assert!(write(&mut world, &first).0.is_success());
    lose(&mut world, &first);
    // Nothing has changed since, but that there once was another one is not forgotten. Linux reads
    // a third structure of a namespace that it keeps.
    for second_structure in [8, 0] {
        let host = connect(&mut world, ALICE, 4);
        assert_eq!(write(&mut world, &host).0, NOT_YET);
        for cns in [3, second_structure, 0] {
            assert_eq!(write(&mut world, &host).0, NOT_YET, "before {cns:02x}h");
            assert_eq!(identify(&mut world, &host, cns, 1), Status::SUCCESS);
        }
        assert!(write(&mut world, &host).0.is_success());
        // Namespace 2 was never another one.
        let other = Sqe::new(nvm::WRITE).with_nsid(Nsid(2));
        assert!(world.run(host.io, with_data(other, 512)).status().is_success());
    }
}

#[test]
fn hosts_that_look_first_wait_for_nothing() {
    // Firmware, FreeBSD.
    for cns in [0, 5, 8] {
        let mut world = replaced_meanwhile();
        let host = connect(&mut world, BOB, 4);
        assert_eq!(identify(&mut world, &host, cns, 1), Status::SUCCESS);
        assert!(write(&mut world, &host).0.is_success(), "after {cns:02x}h");
        assert!(world.events.is_empty());
    }
    // Of another namespace.
    let mut world = replaced_meanwhile();
    let host = connect(&mut world, BOB, 4);
    assert_eq!((identify(&mut world, &host, 0, 2), write(&mut world, &host).0), (Status::SUCCESS, NOT_YET));
}

/// A host that connects as SPDK does: it listens to events and lists namespaces, looks at each that
/// there is, and has I/O queues after that. It compares nothing. Returns what it was shown.
fn connect_as_spdk(world: &mut World, name: &str) -> (Host, Vec<u32>) {
    connect_to_as_spdk(world, DRIVE, name)
}

fn connect_to_as_spdk(world: &mut World, subsystem: &str, name: &str) -> (Host, Vec<u32>) {
    let (admin, cntlid) = world.controller(subsystem, name);
    for _ in 0..16 {
        assert_eq!(world.run(admin, Sqe::new(admin::ASYNC_EVENT_REQUEST)).cqe, None);
    }
    let mut host = Host { admin, cntlid, io: 0 };
    let shown = list(world, &host);
    for nsid in &shown {
        for cns in [0, 3] {
            assert_eq!(identify(world, &host, cns, *nsid), Status::SUCCESS);
        }
    }
    host.io = world.io_queue(subsystem, name, cntlid, 1);
    (host, shown)
}

/// It has been told that what it held is gone. What waits for that is refused, until there is
/// nothing that could.
fn is_shown_the_change(world: &mut World, host: &Host) {
    let first = world.events.len();
    assert_eq!(write(world, host).0, ABSENT);
    assert_eq!((changed(world, host), list(world, host)), (vec![1], vec![2]));
    refuses_what_waited(world, host, first);
}

/// It has seen that what it held is gone, after so many events.
fn refuses_what_waited(world: &mut World, host: &Host, events: usize) {
    assert_eq!((world.events.len(), write(world, host).0), (events + 1, ABSENT));
    world.expire_at(world.now_ms + 100_000);
    let looked_ms = world.now_ms;
    assert_eq!((changed(world, host), list(world, host)), (vec![1], vec![1, 2]));
    for cns in [0, 3] {
        assert_eq!((identify(world, host, cns, 1), write(world, host).0), (Status::SUCCESS, ABSENT));
    }
    world.expire_at(looked_ms + 9_999);
    assert_eq!((world.events.len(), list(world, host), write(world, host).0), (events + 1, vec![1, 2], ABSENT));
    assert!(world.registry.next_deadline().is_some_and(|at| at <= looked_ms + 10_000));
    world.expire_at(looked_ms + 10_000);
    // What has found it meanwhile finds it gone, has time to let go of it, and finds it there.
    assert_eq!((world.events.len(), write(world, host).0), (events + 2, ABSENT));
    let looked_ms = looked_ms + 100_000;
    world.expire_at(looked_ms);
    assert_eq!((changed(world, host), list(world, host)), (vec![1], vec![2]));
    world.expire_at(looked_ms + 9_999);
    assert_eq!((world.events.len(), list(world, host), write(world, host).0), (events + 2, vec![2], ABSENT));
    world.expire_at(looked_ms + 10_000);
    assert_eq!((world.events.len(), write(world, host).0), (events + 3, NOT_YET));
    assert_eq!((changed(world, host), list(world, host)), (vec![1], vec![1, 2]));
    assert_eq!(identify(world, host, 0, 1), Status::SUCCESS);
    let (status, step) = write(world, host);
    assert!(status.is_success() && step.contains("DeviceId(77)"), "{status} {step}");
}

// @test wire.spdk-other-object
#[test]
fn a_host_that_looks_and_does_not_compare_is_shown_that_its_object_is_gone() {
    let mut world = replaced_meanwhile();
    let (host, shown) = connect_as_spdk(&mut world, ALICE);
    assert_eq!((shown, world.events.len()), (vec![2], 1));
    // It goes once more before it has looked.
    lose(&mut world, &host);
    let (host, shown) = connect_as_spdk(&mut world, ALICE);
    assert_eq!(shown, [2]);
    is_shown_the_change(&mut world, &host);
    lose(&mut world, &host);
    // What it holds now is what there is, until that changes again.
    let (host, shown) = connect_as_spdk(&mut world, ALICE);
    assert_eq!(shown, [1, 2]);
    assert!(write(&mut world, &host).0.is_success());
    lose(&mut world, &host);
    let third = Namespace { object: DataId([0x99; 16]), uuid: Uuid([0x99; 16]), ..other() };
    reload(&mut world, &[third, namespace(2)]);
    assert_eq!(connect_as_spdk(&mut world, ALICE).1, [2]);
}

// @test wire.spdk-other-object
#[test]
fn a_host_that_cannot_hold_another_object_is_shown_all_at_once() {
    // The firmware of a host that held it: it does not wait for events.
    let mut world = replaced_meanwhile();
    let host = connect(&mut world, ALICE, 0);
    assert_eq!((list(&mut world, &host), identify(&mut world, &host, 0, 1)), (vec![1, 2], Status::SUCCESS));
    assert!(write(&mut world, &host).0.is_success());
    // A host that comes for the first time may have been there before the target began; later not.
    let mut world = replaced_meanwhile();
    assert_eq!(connect_as_spdk(&mut world, BOB).1, [2]);
    let mut world = replaced_meanwhile();
    world.now_ms += 900_000;
    let (host, shown) = connect_as_spdk(&mut world, BOB);
    assert_eq!(shown, [1, 2]);
    assert!(write(&mut world, &host).0.is_success());
    assert_eq!(connect_as_spdk(&mut world, ALICE).1, [2]);
    // One that was there when it changed knows.
    let mut world = World::new();
    reload(&mut world, &[namespace(1), namespace(2)]);
    let (host, _) = connect_as_spdk(&mut world, ALICE);
    reload(&mut world, &[other(), namespace(2)]);
    is_shown_the_change(&mut world, &host);
    lose(&mut world, &host);
    assert_eq!(connect_as_spdk(&mut world, ALICE).1, [1, 2]);
}

// @test wire.spdk-other-object
#[test]
fn an_object_that_comes_long_after_such_a_host_refuses_what_waited_too() {
    // The one it holds is missing when it comes back.
    let mut world = World::new();
    reload(&mut world, &[namespace(1), namespace(2)]);
    let (host, _) = connect_as_spdk(&mut world, ALICE);
    lose(&mut world, &host);
    reload(&mut world, &[namespace(2)]);
    let (host, shown) = connect_as_spdk(&mut world, ALICE);
    assert_eq!((shown, write(&mut world, &host).0), (vec![2], ABSENT));
    world.expire_at(world.now_ms + 1_000_000);
    reload(&mut world, &[other(), namespace(2)]);
    refuses_what_waited(&mut world, &host, 0);
    // It goes on with the one that it holds, which was missing.
    lose(&mut world, &host);
    reload(&mut world, &[namespace(2)]);
    let (host, shown) = connect_as_spdk(&mut world, ALICE);
    assert_eq!(shown, [2]);
    reload(&mut world, &[other(), namespace(2)]);
    assert!(write(&mut world, &host).0.is_success());
    // Nobody knows which one it holds.
    lose(&mut world, &host);
    reload(&mut world, &[namespace(1), namespace(2)]);
    reload(&mut world, &[namespace(2)]);
    let (host, shown) = connect_as_spdk(&mut world, ALICE);
    assert_eq!(shown, [2]);
    let first = world.events.len();
    reload(&mut world, &[other(), namespace(2)]);
    refuses_what_waited(&mut world, &host, first);
}

// @test wire.spdk-other-object
#[test]
fn such_a_host_that_makes_a_namespace_itself_may_still_hold_what_another_has_deleted() {
    let mut world = World::managed_by(&[ALICE, BOB]);
    let bob = connect_to(&mut world, MANAGED, BOB, 4);
    let (alice, shown) = connect_to_as_spdk(&mut world, MANAGED, ALICE);
    assert_eq!(shown, NONE);
    recreate(&mut world, &alice, &[&alice, &bob]);
    assert!(write(&mut world, &alice).0.is_success());
    assert!(delete(&mut world, bob.admin, Nsid(1)).status().is_success());
    assert_eq!((changed(&mut world, &alice), list(&mut world, &alice)), (vec![1], NONE.to_vec()));
    // It knows that the first one is gone. What waits for it is sent when the number is back.
    recreate(&mut world, &alice, &[&alice, &bob]);
    assert_eq!((write(&mut world, &alice).0, list(&mut world, &alice)), (ABSENT, vec![1]));
    assert_eq!((identify(&mut world, &alice, 0, 1), write(&mut world, &alice).0), (Status::SUCCESS, ABSENT));
    world.expire_at(world.now_ms + 10_000);
    assert_eq!((changed(&mut world, &alice), list(&mut world, &alice)), (vec![1], NONE.to_vec()));
    world.expire_at(world.now_ms + 10_000);
    assert_eq!((write(&mut world, &alice).0, list(&mut world, &alice)), (NOT_YET, vec![1]));
    assert_eq!(identify(&mut world, &alice, 0, 1), Status::SUCCESS);
    assert!(write(&mut world, &alice).0.is_success());
}

// @test wire.spdk-other-object
#[test]
fn one_more_change_begins_it_anew_for_such_a_host() {
    let third = Namespace { object: DataId([0x99; 16]), uuid: Uuid([0x99; 16]), ..namespace(1) };
    let mut world = World::new();
    reload(&mut world, &[namespace(1), namespace(2)]);
    let (host, _) = connect_as_spdk(&mut world, ALICE);
    // While it is refused, and when it is announced.
    reload(&mut world, &[third.clone(), namespace(2)]);
    assert_eq!((changed(&mut world, &host), list(&mut world, &host)), (vec![1], vec![2]));
    assert_eq!((changed(&mut world, &host), list(&mut world, &host)), (vec![1], vec![1, 2]));
    reload(&mut world, &[namespace(1), namespace(2)]);
    assert_eq!((changed(&mut world, &host), list(&mut world, &host)), (vec![1], vec![2]));
    assert_eq!((changed(&mut world, &host), list(&mut world, &host)), (vec![1], vec![1, 2]));
    world.expire_at(world.now_ms + 10_000);
    assert_eq!((changed(&mut world, &host), list(&mut world, &host)), (vec![1], vec![2]));
    world.expire_at(world.now_ms + 10_000);
    assert_eq!(write(&mut world, &host).0, NOT_YET);
    reload(&mut world, &[other(), namespace(2)]);
    is_shown_the_change(&mut world, &host);
}

#[test]
fn such_a_host_that_goes_before_it_has_seen_all_of_it_begins_anew() {
    // Gone, refused, withdrawn, announced.
    for steps in 0..4 {
        let mut world = World::new();
        reload(&mut world, &[namespace(1), namespace(2)]);
        let (host, _) = connect_as_spdk(&mut world, ALICE);
        reload(&mut world, &[other(), namespace(2)]);
        for step in 0..steps {
            assert_eq!((changed(&mut world, &host), list(&mut world, &host).len()), (vec![1], 1 + step % 2));
            if step > 0 {
                world.expire_at(world.now_ms + 10_000);
            }
        }
        lose(&mut world, &host);
        let (host, shown) = connect_as_spdk(&mut world, ALICE);
        assert_eq!(shown, [2], "after {steps}");
        is_shown_the_change(&mut world, &host);
        lose(&mut world, &host);
        assert_eq!(connect_as_spdk(&mut world, ALICE).1, [1, 2]);
    }
}

/// Linux before 6.1 reads two structures of a new namespace, then its partitions, and looks again
/// only after that.
#[test]
fn partitions_of_a_new_disk_are_read_before_the_host_has_looked_again() {
    let mut world = replaced_meanwhile();
    let host = connect(&mut world, BOB, 4);
    for cns in [3, 0] {
        assert_eq!(identify(&mut world, &host, cns, 1), Status::SUCCESS);
    }
    assert_eq!((read(&mut world, &host), write(&mut world, &host).0), (Status::SUCCESS, NOT_YET));
    assert_eq!((changed(&mut world, &host), identify(&mut world, &host, 3, 1)), (vec![1], Status::SUCCESS));
    assert!(write(&mut world, &host).0.is_success());
}

#[test]
fn a_host_that_does_not_look_again_is_believed_after_a_while() {
    let mut world = replaced_meanwhile();
    let host = connect(&mut world, ALICE, 4);
    assert_eq!((write(&mut world, &host).0, identify(&mut world, &host, 3, 1)), (NOT_YET, Status::SUCCESS));
    let looked_ms = world.now_ms;
    world.expire_at(looked_ms + 179_999);
    assert_eq!(write(&mut world, &host).0, NOT_YET);
    assert!(world.registry.next_deadline().is_some_and(|at| at <= looked_ms + 180_000));
    world.expire_at(looked_ms + 180_000);
    assert!(write(&mut world, &host).0.is_success());
    // One that never looks is not.
    let blind = connect(&mut world, BOB, 4);
    world.run(blind.admin, Sqe::new(admin::KEEP_ALIVE));
    world.expire_at(world.now_ms + 1_000_000);
    assert_eq!(write(&mut world, &blind).0, NOT_YET);
}

#[test]
fn it_begins_anew_when_the_object_changes_again() {
    let mut world = replaced_meanwhile();
    let host = connect(&mut world, ALICE, 4);
    for cns in [3, 8] {
        assert_eq!((write(&mut world, &host).0, identify(&mut world, &host, cns, 1)), (NOT_YET, Status::SUCCESS));
    }
    let third = Namespace { object: DataId([0x99; 16]), uuid: Uuid([0x99; 16]), ..other() };
    reload(&mut world, &[third, namespace(2)]);
    for cns in [3, 8, 3] {
        assert_eq!((write(&mut world, &host).0, identify(&mut world, &host, cns, 1)), (NOT_YET, Status::SUCCESS));
    }
    assert!(write(&mut world, &host).0.is_success());
}

// @test wire.other-object
#[test]
fn nothing_that_names_the_namespace_is_executed() {
    let mut world = replaced_meanwhile();
    let host = connect(&mut world, ALICE, 4);
    let one = |opcode| Sqe::new(opcode).with_nsid(Nsid(1));
    let without_data = [nvm::FLUSH, nvm::WRITE_ZEROES, nvm::VERIFY];
    for opcode in without_data {
        assert_eq!(world.run(host.io, one(opcode)).status(), NOT_YET, "{opcode:02x}h");
    }
    for (opcode, bytes) in
        [(nvm::READ, 512), (nvm::WRITE, 512), (nvm::COMPARE, 512), (nvm::DATASET_MANAGEMENT, 4096), (nvm::COPY, 4096)]
    {
        assert_eq!(world.run(host.io, with_data(one(opcode), bytes)).status(), NOT_YET, "{opcode:02x}h");
    }
    for (fuse, status) in [(1, NOT_YET), (2, Status::ABORTED_FAILED_FUSED.more())] {
        let sqe = with_data(one(if fuse == 1 { nvm::COMPARE } else { nvm::WRITE }), 512);
        let half = Sqe { flags: sqe.flags | fuse, ..sqe };
        assert_eq!(world.run(host.io, half).status(), status, "half {fuse}");
    }
    // As a source of Copy from another namespace.
    enable(&mut world, host.admin, 1 << 2);
    let done = copy(&mut world, host.io, 2, Copy { format: 2, ..to(8) }, &[of(1, 100, 1)]);
    assert_eq!(done.status(), NOT_YET);
}

#[test]
fn a_host_that_can_wait_is_told_for_how_long() {
    let mut world = replaced_meanwhile();
    let host = connect(&mut world, ALICE, 4);
    let data = world.run(host.admin, with_data(Sqe::new(admin::IDENTIFY), 4096).with_cdw(10, 1)).data;
    assert_eq!(IdentifyController::ref_from_bytes(&data).unwrap().crdt1.get(), 10);
    let set = with_data(Sqe::new(admin::SET_FEATURES), 512).with_cdw(10, u32::from(Fid::HOST_BEHAVIOR_SUPPORT.0));
    let support = HostBehaviorSupport { acre: 1, ..Default::default() };
    assert!(world.run_with(host.admin, set, support.as_bytes()).status().is_success());
    assert_eq!(write(&mut world, &host).0, NOT_YET.retry_after(1));
    assert!(world.run_with(host.admin, set, HostBehaviorSupport::default().as_bytes()).status().is_success());
    assert_eq!(write(&mut world, &host).0, NOT_YET);
}

#[test]
fn an_nsid_that_named_nothing_when_the_host_came_back_is_told_apart_too() {
    let mut world = World::new();
    reload(&mut world, &[namespace(1), namespace(2)]);
    reload(&mut world, &[namespace(2)]);
    let host = connect(&mut world, ALICE, 4);
    assert_eq!(write(&mut world, &host).0, ABSENT);
    // Before it has looked, there is another one.
    reload(&mut world, &[other(), namespace(2)]);
    assert_eq!((write(&mut world, &host).0, list(&mut world, &host)), (ABSENT, vec![2]));
    assert_eq!((write(&mut world, &host).0, list(&mut world, &host)), (NOT_YET, vec![1, 2]));
    assert_eq!(identify(&mut world, &host, 3, 1), Status::SUCCESS);
    assert!(write(&mut world, &host).0.is_success());
    // One that came when there was none, and has looked, holds nothing.
    reload(&mut world, &[namespace(2)]);
    let host = connect(&mut world, BOB, 4);
    assert_eq!(list(&mut world, &host), [2]);
    reload(&mut world, &[other(), namespace(2)]);
    assert!(write(&mut world, &host).0.is_success());
    let none = connect(&mut world, BOB, 4);
    reload(&mut world, &[]);
    assert_eq!(list(&mut world, &none), NONE);
}

// @test wire.other-object
#[test]
fn another_host_has_deleted_and_created_it_meanwhile() {
    let mut world = World::managed();
    let alice = connect_to(&mut world, MANAGED, ALICE, 4);
    let bob = connect_to(&mut world, MANAGED, BOB, 4);
    recreate(&mut world, &alice, &[&alice, &bob]);
    assert!(write(&mut world, &bob).0.is_success());
    lose(&mut world, &bob);
    let second = connect_to(&mut world, MANAGED, BOB, 4);
    recreate(&mut world, &alice, &[&alice, &second]);
    lose(&mut world, &second);
    let back = connect_to(&mut world, MANAGED, BOB, 4);
    assert_eq!(write(&mut world, &back).0, NOT_YET);
    for cns in [3, 8, 3] {
        assert_eq!((write(&mut world, &back).0, identify(&mut world, &back, cns, 1)), (NOT_YET, Status::SUCCESS));
    }
    assert!(write(&mut world, &back).0.is_success());
    // Its own controller has known all the time.
    assert!(write(&mut world, &alice).0.is_success());
}

/// A world that goes on with another process, which serves `namespaces` as those of the first
/// subsystem.
fn restarted(objects: Objects, namespaces: &[Namespace]) -> World {
    let mut model = model();
    Arc::make_mut(&mut model.subsystems[0]).namespaces = NamespaceTable::new(namespaces.to_vec()).unwrap();
    let mut world = World::new();
    world.registry = Registry::with_objects(ebof_fabrics::Limits::default(), Arc::new(model), 43, objects);
    world
}

// @test wire.spdk-other-object
// @test wire.other-object
#[test]
fn what_an_earlier_process_served_counts() {
    let mut world = World::new();
    reload(&mut world, &[namespace(1)]);
    let objects = world.registry.objects().clone();
    // The same: there is nothing to prove.
    let mut world = restarted(objects.clone(), &[namespace(1)]);
    let host = connect(&mut world, ALICE, 4);
    assert!(write(&mut world, &host).0.is_success());
    // Another one, then one restart more with the same, and one with the first: the host was away
    // all the time, and another one may have come between.
    let mut world = restarted(objects, &[other(), namespace(2)]);
    assert_eq!(connect_as_spdk(&mut world, ALICE).1, [2]);
    let objects = world.registry.objects().clone();
    let host = connect(&mut world, ALICE, 4);
    assert_eq!(write(&mut world, &host).0, NOT_YET);
    for again in [other(), namespace(1)] {
        let mut world = restarted(objects.clone(), &[again]);
        let host = connect(&mut world, ALICE, 4);
        assert_eq!(write(&mut world, &host).0, NOT_YET);
    }
    // Other data under the same identifiers.
    let pinned = Namespace { object: DataId([0x55; 16]), ..other() };
    let mut world = restarted(objects.clone(), &[pinned]);
    let host = connect(&mut world, ALICE, 4);
    assert_eq!(write(&mut world, &host).0, NOT_YET);
    // None of that NSID, and then another one.
    let world = restarted(objects, &[namespace(2)]);
    let mut world = restarted(world.registry.objects().clone(), &[namespace(1), namespace(2)]);
    let host = connect(&mut world, ALICE, 4);
    assert_eq!(write(&mut world, &host).0, NOT_YET);
}

// @test wire.other-object
#[test]
fn what_does_not_fit_is_thought_to_have_changed() {
    let known = World::new().registry.objects().iter().next().map(|(_, known)| *known).unwrap();
    let many = (0..Objects::GONE_MAX + 10).map(|at| {
        let name = format!("nqn.2014-08.org.example:gone-{at}");
        ((nqn(&name), Nsid(1)), known)
    });
    let world = restarted(Objects::restored(many, false), &[namespace(1)]);
    let objects = world.registry.objects();
    assert!(objects.is_incomplete() && objects.iter().len() < 10, "{}", objects.iter().len());
    // Those that are new now may have been there before.
    let mut world = restarted(objects.clone(), &[namespace(1), namespace(9)]);
    let host = connect_to(&mut world, DRIVE, ALICE, 4);
    assert!(write(&mut world, &host).0.is_success());
    let ninth = with_data(Sqe::new(nvm::WRITE).with_nsid(Nsid(9)), 512);
    assert_eq!(world.run(host.io, ninth).status(), NOT_YET);
}
