//! Events of a controller that its host does not cause: changes of the model, other hosts,
//! time-outs.

use std::sync::Arc;

use ebof_fabrics::{CloseReason, Health, Limits, NamespaceTable, ProtectionChange};
use ebof_nvme::connect::{Connect, Property};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::feature::AsyncEventConfig;
use ebof_nvme::identify::IdentifyNamespace;
use ebof_nvme::log::{ChangedNamespaces, GetLogPage, Lid, critical_warning};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::{ControllerId, Nqn, Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::support::{
    ALICE, BOB, DRIVE, MANAGED, World, admin_connect, connect_data, model, namespace, nqn, with_data,
};

const REQUEST: u8 = admin::ASYNC_EVENT_REQUEST;
const NAMESPACES_CHANGED: u64 = 0x0004_0002;

pub(crate) fn changed(world: &mut World, at: u64, retain: bool) -> Vec<u32> {
    let cdw10 = 4 | 1023 << 16 | if retain { 1 << 15 } else { 0 };
    let data = world.run(at, with_data(Sqe::new(admin::GET_LOG_PAGE), 4096).with_cdw(10, cdw10)).data;
    ChangedNamespaces::ref_from_bytes(&data).unwrap().iter().map(|nsid| nsid.0).collect()
}

pub(crate) fn set_feature(fid: u32, value: u32, nsid: u32) -> Sqe {
    Sqe::new(admin::SET_FEATURES).with_cdw(10, fid).with_cdw(11, value).with_nsid(Nsid(nsid))
}

fn set_namespaces(world: &mut World, nsids: &[u32]) {
    let table = NamespaceTable::new(nsids.iter().map(|&nsid| namespace(nsid)).collect()).unwrap();
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).namespaces = table);
}

// @test data.add-namespace
#[test]
fn added_and_removed_namespaces_are_announced_once_until_the_log_is_read() {
    let mut world = World::new();
    let (at, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    for _ in 0..4 {
        assert_eq!(world.run(at, Sqe::new(REQUEST)).cqe, None);
    }
    set_namespaces(&mut world, &[1, 7]);
    assert_eq!(
        world.events.iter().map(|(at, cqe)| (*at, cqe.result())).collect::<Vec<_>>(),
        [(at, NAMESPACES_CHANGED)]
    );
    // I/O queues are notified immediately.
    let read = |nsid| with_data(Sqe::new(nvm::READ).with_nsid(Nsid(nsid)), 512);
    assert_eq!(world.run(io, read(7)).status(), Status::SUCCESS);
    assert_eq!(world.run(io, read(3)).status(), Status::INVALID_NAMESPACE.dnr().more());
    set_namespaces(&mut world, &[1, 7, 8]);
    assert_eq!(world.events.len(), 1);
    // Namespace 1 is unchanged. If the event is retained, so is the list, and no event follows.
    assert_eq!(changed(&mut world, at, true), [2, 3, 5, 7, 8]);
    set_namespaces(&mut world, &[1, 7]);
    assert_eq!(world.events.len(), 1);
    assert_eq!(changed(&mut world, at, false), [2, 3, 5, 7, 8]);
    assert_eq!(changed(&mut world, at, false), [] as [u32; 0]);
    set_namespaces(&mut world, &[1]);
    assert_eq!(world.events.len(), 2);
    assert_eq!(changed(&mut world, at, false), [7]);
}

#[test]
fn disabled_events_are_not_sent_and_requests_are_limited() {
    let mut world = World::with(Limits { async_events: 2, ..Limits::default() }, model());
    let (at, _) = world.controller(DRIVE, ALICE);
    assert!(world.run(at, set_feature(0xb, 0, 0)).status().is_success());
    assert_eq!(world.run(at, Sqe::new(REQUEST)).cqe, None);
    assert_eq!(world.run(at, Sqe::new(REQUEST)).cqe, None);
    let third = world.run(at, Sqe::new(REQUEST));
    assert_eq!(third.status(), Status::ASYNC_EVENT_LIMIT_EXCEEDED.dnr().more());
    assert_eq!(world.queues[&at].outstanding(), 2);
    set_namespaces(&mut world, &[1]);
    assert_eq!(world.events, []);
    // Requests also end by abort and reset.
    let held = world.queues[&at].outstanding();
    assert!(world.run(at, Property::set(offset::CC, 0)).status().is_success());
    assert_eq!(world.events.len(), held);
    assert!(world.events.iter().all(|(_, cqe)| cqe.status() == Status::ABORTED_SQ_DELETION));
    assert_eq!(world.queues[&at].outstanding(), 0);
}

#[test]
fn a_request_can_be_aborted() {
    let mut world = World::new();
    let (at, _) = world.controller(DRIVE, ALICE);
    let mut request = Sqe::new(REQUEST);
    request.cid = 500.into();
    assert_eq!(world.queues.get_mut(&at).unwrap().submit(&request, 0), ebof_fabrics::Step::Held);
    let abort = world.run(at, Sqe::new(admin::ABORT).with_cdw(10, 500 << 16));
    assert_eq!(abort.result(), 0);
    assert_eq!(world.events.len(), 1);
    assert_eq!((world.events[0].1.cid().0, world.events[0].1.status()), (500, Status::ABORT_REQUESTED));
}

#[test]
fn enabled_critical_warnings_become_events() {
    let mut world = World::new();
    let (alice, _) = world.controller(DRIVE, ALICE);
    let (bob, _) = world.controller(DRIVE, BOB);
    // Alice enables events for temperature, Bob for spare.
    assert!(world.run(alice, set_feature(0xb, 0x02, 0)).status().is_success());
    assert!(world.run(bob, set_feature(0xb, 0x01, 0)).status().is_success());
    assert!(world.run(alice, set_feature(4, 330, 0)).status().is_success());
    for at in [alice, bob] {
        world.run(at, Sqe::new(REQUEST));
    }
    let health = Health { temperature_kelvin: 340, available_spare: 5, ..Health::default() };
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).health = health);
    let told: Vec<_> = world.events.iter().map(|(at, cqe)| (*at, cqe.result())).collect();
    assert_eq!(told, [(alice, 0x0002_0101), (bob, 0x0002_0201)]);
    let smart = |world: &mut World, at| {
        world.run(at, with_data(Sqe::new(admin::GET_LOG_PAGE), 512).with_cdw(10, 2 | 127 << 16)).data
    };
    // Critical Warning: the threshold is Alice's own.
    assert_eq!((smart(&mut world, alice)[0], smart(&mut world, bob)[0]), (0b11, 0b01));
}

#[test]
fn write_protection_applies_to_every_host_and_is_kept() {
    let mut world = World::new();
    let (alice, _) = world.controller(DRIVE, ALICE);
    let (bob, cntlid) = world.controller(DRIVE, BOB);
    let io = world.io_queue(DRIVE, BOB, cntlid, 1);
    world.run(bob, Sqe::new(REQUEST));
    let write = with_data(Sqe::new(nvm::WRITE).with_nsid(Nsid(1)), 512);
    assert_eq!(world.run(io, write).status(), Status::SUCCESS);
    assert!(world.run(alice, set_feature(0x84, 1, 1)).status().is_success());
    assert_eq!(world.run(io, write).status(), Status::NAMESPACE_WRITE_PROTECTED.dnr().more());
    assert_eq!(world.events.len(), 1, "Bob is told");
    let protected = ProtectionChange { subsystem: nqn(DRIVE), nsid: Nsid(1), protected: true };
    assert_eq!(world.registry.take_protection_changes(), std::slice::from_ref(&protected));
    assert_eq!(world.registry.take_protection_changes(), []);
    // Only the last change of each namespace is of interest.
    for protected in [0, 1] {
        assert!(world.run(alice, set_feature(0x84, protected, 1)).status().is_success());
    }
    assert_eq!(world.registry.take_protection_changes(), [protected]);
    let get = Sqe::new(admin::GET_FEATURES).with_cdw(10, 0x84).with_nsid(Nsid(1));
    assert_eq!(world.run(bob, get).result(), 1);
    let data = world.run(bob, with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(1)), 4096)).data;
    assert_eq!(IdentifyNamespace::ref_from_bytes(&data).unwrap().nsattr, 1);
    // A model without a change of the protection keeps it, and so does one that sets it; one that
    // clears it does not.
    world.replace_model(|model| model.ports[0].max_io_queues = 4);
    assert_eq!(world.run(io, write).status(), Status::NAMESPACE_WRITE_PROTECTED.dnr().more());
    let protect = |world: &mut World, protected| {
        let mut table: Vec<_> = world.registry.model().subsystems[0].namespaces.iter().cloned().collect();
        table[0].write_protected = protected;
        let table = NamespaceTable::new(table).unwrap();
        world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).namespaces = table);
    };
    protect(&mut world, true);
    assert_eq!(world.run(io, write).status(), Status::NAMESPACE_WRITE_PROTECTED.dnr().more());
    protect(&mut world, false);
    assert_eq!(world.run(io, write).status(), Status::SUCCESS);
}

fn with_keep_alive(world: &mut World, subsystem: &str, kato_ms: u32) -> u64 {
    let at = world.open();
    let connect = Connect { kato_ms, ..admin_connect() };
    let (_, refusal) = world.connect(at, connect, &connect_data(subsystem, ALICE, ControllerId::DYNAMIC));
    assert_eq!(refusal, None);
    assert!(world.run(at, Property::set(offset::CC, Cc::ENABLE.0)).status().is_success());
    at
}

/// Advances time in the steps that the registry requests, until `until_ms`.
fn pass(world: &mut World, until_ms: u64) {
    while let Some(next) = world.registry.next_deadline().filter(|&next| next <= until_ms) {
        world.expire_at(next.max(world.now_ms));
    }
    world.now_ms = until_ms;
}

// @test hostile.keep-alive
#[test]
fn a_silent_hosts_association_ends_after_its_time_out() {
    let mut world = World::new();
    let at = with_keep_alive(&mut world, DRIVE, 4500);
    let get = Sqe::new(admin::GET_FEATURES).with_cdw(10, 0xf);
    assert_eq!(world.run(at, get).result(), 5000, "rounded up to the granularity");
    // Commands came within the first period, none in the second.
    pass(&mut world, 10_999);
    assert_eq!(world.closes, []);
    pass(&mut world, 11_000);
    assert_eq!(world.closes, [(at, CloseReason::KeepAlive)]);
    pass(&mut world, 60_000);
    assert_eq!(world.closes.len(), 1);
    world.close(at);
    assert_eq!(world.registry.next_deadline(), None);
}

#[test]
fn any_command_on_any_queue_restarts_the_keep_alive_timer() {
    let mut world = World::new();
    let at = with_keep_alive(&mut world, DRIVE, 5000);
    let cntlid = world.registry.controllers().next().unwrap().cntlid;
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    for second in 2..30 {
        pass(&mut world, second * 2000);
        assert!(world.run(io, with_data(Sqe::new(nvm::READ).with_nsid(Nsid(1)), 512)).status().is_success());
    }
    assert_eq!(world.closes, []);
    for second in 30..60 {
        pass(&mut world, second * 2000);
        assert!(world.run(at, Sqe::new(admin::KEEP_ALIVE)).status().is_success());
    }
    assert_eq!(world.closes, []);
    // Without a time-out silence is allowed.
    assert!(world.run(at, set_feature(0xf, 0, 0)).status().is_success());
    assert_eq!(world.registry.next_deadline(), None);
}

/// A target that was stopped for more than half the time-out and a second has not read what hosts
/// have sent meanwhile: their time begins once more, once.
#[test]
fn a_target_that_was_stopped_forgives_its_hosts_once() {
    let world = || {
        let mut world = World::new();
        let at = with_keep_alive(&mut world, DRIVE, 5000);
        // Commands came within the first period, at its beginning.
        world.expire_at(6000);
        assert_eq!((world.closes.len(), world.registry.next_deadline()), (0, Some(11_000)));
        (world, at)
    };
    let (mut punctual, at) = world();
    punctual.expire_at(14_500);
    assert_eq!(punctual.closes, [(at, CloseReason::KeepAlive)]);
    let (mut late, at) = world();
    late.expire_at(14_501);
    assert_eq!((late.closes.len(), late.registry.next_deadline()), (0, Some(19_501)));
    late.expire_at(29_501);
    assert_eq!(late.closes, [(at, CloseReason::KeepAlive)]);
}

/// Linux sends no Keep Alive while other commands complete, and closes its I/O queues some time
/// before it shuts the controller down through the Admin Queue.
#[test]
fn commands_of_a_queue_that_has_ended_count_for_the_keep_alive_timer() {
    let mut world = World::new();
    let at = with_keep_alive(&mut world, DRIVE, 5000);
    let cntlid = world.registry.controllers().next().unwrap().cntlid;
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    // The timer is restarted at 6 s, and expires at 11 s.
    for second in 6..=10 {
        pass(&mut world, second * 1000);
        assert!(world.run(io, with_data(Sqe::new(nvm::READ).with_nsid(Nsid(1)), 512)).status().is_success());
    }
    world.close(io);
    pass(&mut world, 12_000);
    assert_eq!(world.closes, [], "the host was last heard 2 s ago");
    assert!(world.run(at, Sqe::new(admin::KEEP_ALIVE)).status().is_success());
}

// @test hostile.keep-alive
#[test]
fn after_the_target_was_stopped_timers_are_restarted_once() {
    let mut world = World::new();
    let at = with_keep_alive(&mut world, DRIVE, 5000);
    pass(&mut world, 6000);
    world.expire_at(600_000);
    assert_eq!(world.closes, []);
    world.expire_at(1_200_000);
    assert_eq!(world.closes, [(at, CloseReason::KeepAlive)]);
}

#[test]
fn a_discovery_controller_always_has_a_time_out() {
    let mut world = World::new();
    let at = with_keep_alive(&mut world, Nqn::DISCOVERY, 0);
    pass(&mut world, 1000 + 240_000);
    assert_eq!(world.closes, [(at, CloseReason::KeepAlive)]);
}

#[test]
fn a_controller_that_is_never_enabled_ends() {
    let mut world = World::new();
    let at = world.open();
    world.connect(at, admin_connect(), &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    pass(&mut world, 1000 + 120_000);
    assert_eq!(world.closes, [(at, CloseReason::NotEnabled)]);
}

/// A warning is an event once, for those who want to know of it.
#[test]
fn warnings_are_told_once_to_those_who_want_to_know() {
    let mut world = World::new();
    let (at, _) = world.controller(DRIVE, ALICE);
    let wanted = u32::from(critical_warning::SPARE | critical_warning::DEGRADED);
    assert!(world.run(at, set_feature(0x0b, wanted, 0)).status().is_success());
    for _ in 0..4 {
        assert_eq!(world.run(at, Sqe::new(REQUEST)).step, "held");
    }
    let mut told = |change: fn(&mut Health)| {
        world.replace_model(|model| change(&mut Arc::make_mut(&mut model.subsystems[0]).health));
        let events: Vec<u64> = world.events.drain(..).map(|(_, cqe)| cqe.result()).collect();
        // Whoever reads the log hears of the next warning.
        let log = Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, u32::from(Lid::SMART_HEALTH.0) | 127 << 16);
        assert!(world.run(at, with_data(log, 512).with_nsid(Nsid::ALL)).status().is_success());
        (events, world.events.len())
    };
    let only = |events: &[AsyncEvent]| (events.iter().map(|event| event.encode().into()).collect::<Vec<u64>>(), 0);
    let enough = |health: &mut Health| (health.available_spare, health.available_spare_threshold) = (10, 10);
    assert_eq!(told(enough), only(&[]));
    assert_eq!(told(|health| health.available_spare = 9), only(&[AsyncEvent::SPARE_BELOW_THRESHOLD]));
    assert_eq!(told(|health| health.percentage_used = 5), only(&[]));
    assert_eq!(told(|health| health.degraded = true), only(&[AsyncEvent::RELIABILITY]));
    assert_eq!(told(|health| health.read_only = true), only(&[]));
}

/// Likewise of the endurance group, for which each host says which warnings it wants to know of.
#[test]
fn a_group_is_told_of_by_the_warnings_that_are_wanted() {
    let mut world = World::managed();
    let (at, _) = world.controller(MANAGED, ALICE);
    let of_group = 1 | u32::from(critical_warning::DEGRADED) << 16;
    for (fid, value) in [(0x0b, AsyncEventConfig::ENDURANCE_GROUP.0), (0x18, of_group)] {
        assert!(world.run(at, set_feature(fid, value, 0)).status().is_success());
    }
    for _ in 0..3 {
        assert_eq!(world.run(at, Sqe::new(REQUEST)).step, "held");
    }
    let told = |world: &mut World, change: fn(&mut Health)| {
        world.replace_model(|model| change(&mut Arc::make_mut(&mut model.subsystems[2]).health));
        world.events.drain(..).map(|(_, cqe)| cqe.result()).collect::<Vec<u64>>()
    };
    let read = |world: &mut World, lid: Lid, retain_event: bool| {
        let lsi = u16::from(lid == Lid::ENDURANCE_GROUP);
        let log = GetLogPage { retain_event, lsi, ..GetLogPage::new(lid, 512) };
        let done = world.run(at, with_data(log.encode(Nsid::ALL), 512));
        assert!(done.status().is_success());
        done.data
    };
    let listed = |world: &mut World| read(world, Lid::ENDURANCE_GROUP_AGGREGATE, true)[0];
    let change = [u64::from(AsyncEvent::ENDURANCE_GROUP_CHANGE.encode())];
    let spare: fn(&mut Health) = |health| (health.available_spare, health.available_spare_threshold) = (9, 10);
    assert_eq!(told(&mut world, spare), [0; 0]);
    assert_eq!(listed(&mut world), 0);
    assert_eq!(told(&mut world, |health| health.degraded = true), change);
    // It is listed, and not told of again, until the host has read what it is about.
    for (lid, retain) in [(Lid::ENDURANCE_GROUP, true), (Lid::SMART_HEALTH, false)] {
        read(&mut world, lid, retain);
        assert_eq!(told(&mut world, |health| health.degraded = false), [0; 0]);
        assert_eq!(told(&mut world, |health| health.degraded = true), [0; 0], "{lid:?}");
        assert_eq!(listed(&mut world), 1, "{lid:?}");
    }
    read(&mut world, Lid::ENDURANCE_GROUP, false);
    assert_eq!(listed(&mut world), 0);
}
