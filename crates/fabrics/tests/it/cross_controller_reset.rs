//! Cross-Controller Reset: a host that has lost a path has the controller behind it reset through
//! another one.

use ebof_fabrics::registry::FENCE_MS;
use ebof_fabrics::{CloseReason, Executing, Handle, IoTask, Port, Step, Task};
use ebof_nvme::command::{ControllerInstance, is_reset_at_once};
use ebof_nvme::connect::Property;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::feature::{AsyncEventConfig, Fid, SetFeature};
use ebof_nvme::identify::IdentifyController;
use ebof_nvme::io::BlockRange;
use ebof_nvme::log::{
    CommandsSupportedAndEffects, CrossControllerResetEntry, CrossControllerResetState, GetLogPage, Lid,
    SupportedLogPages, cross_controller_reset_lsp, read_cross_controller_reset_log,
};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::{ControllerId, Cqe, Nqn, Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::support::{
    ALICE, BOB, DRIVE, MANAGED, OTHER, World, admin_connect, connect_data, host_id, model, nqn, with_data,
};

fn identify(world: &mut World, at: u64) -> Box<IdentifyController> {
    let data = world.run(at, with_data(Sqe::new(admin::IDENTIFY), 4096).with_cdw(10, 1)).data;
    Box::new(IdentifyController::read_from_bytes(&data).unwrap())
}

fn instance(world: &mut World, at: u64) -> ControllerInstance {
    identify(world, at).instance().expect("it is told")
}

fn reset(world: &mut World, by: u64, instance: ControllerInstance) -> Cqe {
    world.run(by, instance.reset_command()).cqe.unwrap()
}

/// The completion of a reset that is accepted and goes on.
fn accepted(world: &mut World, by: u64, instance: ControllerInstance) {
    let cqe = reset(world, by, instance);
    assert!(cqe.status().is_success() && !is_reset_at_once(&cqe), "{}", cqe.status());
}

fn log_page(lsp: u8, bytes: u64) -> Sqe {
    let log = GetLogPage { lsp, ..GetLogPage::new(Lid::CROSS_CONTROLLER_RESET, bytes) };
    with_data(log.encode(Nsid::NONE), u32::try_from(bytes).unwrap())
}

fn entries(world: &mut World, at: u64, lsp: u8) -> Vec<(u16, u8, CrossControllerResetState)> {
    let data = world.run(at, log_page(lsp, 4096)).data;
    let entries = read_cross_controller_reset_log(&data).unwrap();
    assert!(entries.iter().all(|entry| (entry.acid.get(), entry.ccrf) == (0xffff, 3)));
    entries.iter().map(|entry| (entry.icid.get(), entry.ciu, entry.state())).collect()
}

fn listen(world: &mut World, at: u64) {
    let set = SetFeature { fid: Fid::ASYNC_EVENT_CONFIG, save: false }.encode();
    let bits = AsyncEventConfig::CROSS_CONTROLLER_RESET.0;
    let done = world.run(at, Sqe::new(admin::SET_FEATURES).with_cdw(10, set).with_cdw(11, bits));
    assert!(done.status().is_success(), "{}", done.status());
    assert!(world.run(at, Sqe::new(admin::ASYNC_EVENT_REQUEST)).cqe.is_none());
}

/// A command that is at a device.
fn at_device(world: &mut World, at: u64, opcode: u8) -> Executing {
    let sqe = with_data(BlockRange::new(0, 8).encode(opcode, Nsid(1)), 4096);
    let step = world.queues.get_mut(&at).unwrap().submit(&sqe, world.now_ms);
    let Step::Execute(executing, Task::Io(IoTask::Transfer(_))) = step else { panic!("{step:?}") };
    executing
}

// @test data.cross-controller-reset
#[test]
fn a_controller_is_gone_before_its_reset_is_successful() {
    for opcode in [nvm::WRITE, nvm::READ] {
        let mut world = World::new();
        let (lost, cntlid) = world.controller(DRIVE, ALICE);
        let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
        let _at_device = at_device(&mut world, io, opcode);
        let impacted = instance(&mut world, lost);
        let (other, _) = world.controller(DRIVE, ALICE);
        listen(&mut world, other);
        accepted(&mut world, other, impacted);
        assert_eq!(world.closes, [(lost, CloseReason::ResetByHost), (io, CloseReason::ResetByHost)]);
        // It executes nothing more, although its connections have not been closed yet.
        let late = world.run(io, with_data(BlockRange::new(0, 8).encode(nvm::WRITE, Nsid(1)), 4096));
        assert!(late.status().is(Status::ABORTED_SQ_DELETION), "{}", late.status());
        let pending = (impacted.id.0, impacted.uniquifier, CrossControllerResetState::InProgress);
        let remove = cross_controller_reset_lsp::REMOVE_COMPLETED;
        assert_eq!(entries(&mut world, other, remove), [pending]);
        assert!(reset(&mut world, other, impacted).status().is(Status::CROSS_CONTROLLER_RESET_IN_PROGRESS));
        world.close(lost);
        let notices = world.registry.ending(Handle(io));
        world.deliver(notices);
        assert_eq!((entries(&mut world, other, 0), world.events.len()), (vec![pending], 0), "the device has a command");
        world.close(io);
        let event = u64::from(AsyncEvent::CROSS_CONTROLLER_RESET_COMPLETED.encode());
        assert_eq!(world.events.iter().map(|(at, cqe)| (*at, cqe.result())).collect::<Vec<_>>(), [(other, event)]);
        let done = (impacted.id.0, impacted.uniquifier, CrossControllerResetState::Successful);
        assert_eq!(entries(&mut world, other, 0), [done]);
        assert_eq!(entries(&mut world, other, remove), [done]);
        assert_eq!(entries(&mut world, other, 0), []);
        // What has gone is reset at once, however often.
        for _ in 0..2 {
            let cqe = reset(&mut world, other, impacted);
            assert!(cqe.status().is_success() && is_reset_at_once(&cqe));
        }
        assert_eq!(entries(&mut world, other, 0), []);
    }
}

#[test]
fn a_controller_that_ends_by_itself_is_waited_for() {
    let mut world = World::new();
    let (lost, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let _at_device = at_device(&mut world, io, nvm::WRITE);
    let impacted = instance(&mut world, lost);
    let paths = [ALICE; 2].map(|host| world.controller(DRIVE, host).0);
    world.close(lost);
    assert_eq!(world.closes, [(io, CloseReason::AdminQueueLost)]);
    for by in paths {
        listen(&mut world, by);
        accepted(&mut world, by, impacted);
    }
    assert_eq!(world.closes.len(), 1, "it is told once");
    // One of those that wait ends, too.
    world.close(paths[0]);
    world.close(io);
    assert_eq!(world.events.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [paths[1]]);
}

#[test]
fn an_identifier_that_is_used_again_has_another_uniquifier() {
    let mut world = World::new();
    // As few as there can be.
    world.replace_model(|model| {
        let subsystem = std::sync::Arc::make_mut(&mut model.subsystems[0]);
        (subsystem.cntlid_min, subsystem.cntlid_max) = (ControllerId(1), ControllerId(2));
    });
    let mut last: Option<ControllerInstance> = None;
    let mut seen = Vec::new();
    for _ in 0..2 * 300 {
        let (at, _) = world.controller(DRIVE, ALICE);
        let now = instance(&mut world, at);
        assert_eq!(identify(&mut world, at).instance(), Some(now), "it stays");
        assert_ne!(now.uniquifier, 0);
        if let Some(before) = seen.iter().rev().find(|before: &&ControllerInstance| before.id == now.id) {
            assert_eq!(now.uniquifier, before.uniquifier.checked_add(1).unwrap_or(1));
        }
        assert_ne!(last.map(|last| last.random), Some(now.random));
        world.close(at);
        seen.push(now);
        last = Some(now);
    }
}

#[test]
fn who_asks_names_the_instance_and_not_itself() {
    let mut world = World::new();
    let (lost, _) = world.controller(DRIVE, ALICE);
    let (other, _) = world.controller(DRIVE, ALICE);
    let own = instance(&mut world, other);
    let impacted = instance(&mut world, lost);
    let mistaken = [
        own,
        ControllerInstance { random: impacted.random ^ 1, ..impacted },
        ControllerInstance { id: ControllerId(0), uniquifier: 0, random: 0 },
    ];
    for instance in mistaken {
        let cqe = reset(&mut world, other, instance);
        assert!(cqe.status().is(Status::INVALID_FIELD) && cqe.status().is_dnr(), "{instance:?}: {}", cqe.status());
    }
    assert_eq!((world.closes.len(), entries(&mut world, other, 0)), (0, vec![]));
    accepted(&mut world, other, impacted);
}

// @test data.cross-controller-reset
#[test]
fn controllers_of_other_hosts_and_subsystems_are_not_reset() {
    let mut world = World::new();
    let (bobs, _) = world.controller(DRIVE, BOB);
    let (elsewhere, _) = world.controller(OTHER, ALICE);
    let (alices, _) = world.controller(DRIVE, ALICE);
    let of_bob = instance(&mut world, bobs);
    let cqe = reset(&mut world, alices, of_bob);
    assert!(cqe.status().is(Status::OPERATION_DENIED) && cqe.status().is_dnr(), "{}", cqe.status());
    let of_other = instance(&mut world, elsewhere);
    assert!(reset(&mut world, alices, of_other).status().is(Status::INVALID_FIELD));
    assert!(world.closes.is_empty());
}

// @test data.cross-controller-reset
#[test]
fn what_an_earlier_process_had_is_gone_but_not_what_another_target_has() {
    let mut world = World::new();
    let (lost, _) = world.controller(DRIVE, ALICE);
    let (other, _) = world.controller(DRIVE, ALICE);
    let here = instance(&mut world, lost);
    let before = [
        ControllerInstance { uniquifier: here.uniquifier.wrapping_add(1), ..here },
        ControllerInstance { id: ControllerId(here.id.0 + 7), ..here },
    ];
    // Without a range of its own any identifier may be another target's; with one, those outside.
    for (most, gone) in
        [(ControllerId::MAX.0, [false, false]), (here.id.0 + 7, [true, true]), (here.id.0 + 6, [true, false])]
    {
        world.replace_model(|model| {
            let subsystem = model.subsystems.iter_mut().find(|subsystem| subsystem.nqn == nqn(DRIVE)).unwrap();
            std::sync::Arc::make_mut(subsystem).cntlid_max = ControllerId(most);
        });
        for (instance, is_gone) in before.into_iter().zip(gone) {
            let cqe = reset(&mut world, other, instance);
            assert_eq!(cqe.status().is_success() && is_reset_at_once(&cqe), is_gone, "{most} {instance:?}");
            assert!(is_gone || cqe.status().is(Status::INVALID_FIELD), "{}", cqe.status());
        }
    }
    assert!(world.closes.is_empty(), "who is here stays");
}

#[test]
fn a_host_with_another_identifier_is_another_host() {
    let mut world = World::new();
    let (lost, _) = world.controller(DRIVE, ALICE);
    let impacted = instance(&mut world, lost);
    let admin = world.open();
    let mut data = connect_data(DRIVE, ALICE, ControllerId::DYNAMIC);
    data.hostid = host_id(BOB).0;
    let (cqe, refusal) = world.connect(admin, admin_connect(), &data);
    assert!(cqe.status().is_success() && refusal.is_none());
    world.run(admin, Property::set(offset::CC, Cc::ENABLE.0));
    assert!(reset(&mut world, admin, impacted).status().is(Status::OPERATION_DENIED));
    assert!(world.closes.is_empty());
}

// @test data.cross-controller-reset
#[test]
fn resets_and_their_entries_are_limited() {
    let limits = ebof_fabrics::Limits { host_controllers: 4096, host_queues: 4096, ..ebof_fabrics::Limits::default() };
    let mut world = World::with(limits, model());
    let (other, _) = world.controller(DRIVE, ALICE);
    let ccrl = identify(&mut world, other).ccrl;
    let mut lost = Vec::new();
    for _ in 0..=ccrl {
        let (at, _) = world.controller(DRIVE, ALICE);
        lost.push((at, instance(&mut world, at)));
    }
    for (_, impacted) in &lost[..usize::from(ccrl)] {
        accepted(&mut world, other, *impacted);
    }
    let (last, beyond) = lost.pop().unwrap();
    let cqe = reset(&mut world, other, beyond);
    assert!(cqe.status().is(Status::CROSS_CONTROLLER_RESET_LIMIT_EXCEEDED) && !cqe.status().is_dnr());
    assert!(!world.closes.iter().any(|(at, _)| *at == last), "nothing has been done");
    lost.iter().for_each(|(at, _)| world.close(*at));
    // Those that are over stay until they are removed, and take the room of others.
    let mut cqe = reset(&mut world, other, beyond);
    world.close(last);
    while cqe.status().is_success() {
        let (at, _) = world.controller(DRIVE, ALICE);
        let next = instance(&mut world, at);
        cqe = reset(&mut world, other, next);
        world.close(at);
    }
    assert!(cqe.status().is(Status::CROSS_CONTROLLER_RESET_LOG_FULL) && !cqe.status().is_dnr(), "{}", cqe.status());
    let full = entries(&mut world, other, 0).len();
    // The header and two entries.
    let two = 8 + 2 * size_of::<CrossControllerResetEntry>() as u64;
    world.run(other, log_page(cross_controller_reset_lsp::REMOVE_COMPLETED, two - 4));
    assert_eq!(entries(&mut world, other, 0).len(), full - 1, "the second one was not returned as a whole");
    world.run(other, log_page(cross_controller_reset_lsp::REMOVE_COMPLETED, 4096));
    assert_eq!(entries(&mut world, other, 0), []);
}

#[test]
fn resets_that_are_over_do_not_outlive_a_reset_of_who_asked() {
    let mut world = World::new();
    let lost = [ALICE; 2].map(|host| world.controller(DRIVE, host).0);
    let (other, _) = world.controller(DRIVE, ALICE);
    for at in lost {
        let impacted = instance(&mut world, at);
        accepted(&mut world, other, impacted);
    }
    world.close(lost[0]);
    for value in [0, Cc::ENABLE.0] {
        world.run(other, Property::set(offset::CC, value));
    }
    let states = |world: &mut World| entries(world, other, 0).iter().map(|entry| entry.2).collect::<Vec<_>>();
    assert_eq!(states(&mut world), [CrossControllerResetState::InProgress]);
    world.close(lost[1]);
    assert_eq!(states(&mut world), [CrossControllerResetState::Successful]);
}

#[test]
fn who_has_the_command_announces_it() {
    let mut world = World::managed();
    for subsystem in [DRIVE, MANAGED] {
        let (at, _) = world.controller(subsystem, ALICE);
        let data = identify(&mut world, at);
        assert!(data.ccrl > 0 && data.oaes.get() & AsyncEventConfig::CROSS_CONTROLLER_RESET.0 != 0);
        let page = |world: &mut World, lid, bytes: u32| {
            world.run(at, with_data(GetLogPage::new(lid, bytes.into()).encode(Nsid::NONE), bytes)).data
        };
        let pages = page(&mut world, Lid::SUPPORTED_LOG_PAGES, 1024);
        let pages = SupportedLogPages::ref_from_bytes(&pages).unwrap();
        assert!(pages.support(Lid::CROSS_CONTROLLER_RESET).is_supported());
        let effects = page(&mut world, Lid::COMMAND_EFFECTS, 4096);
        let effects = CommandsSupportedAndEffects::ref_from_bytes(&effects).unwrap();
        assert_eq!(effects.admin(admin::CROSS_CONTROLLER_RESET).0 & 1, 1);
    }
    let discovery = world.controller(Nqn::DISCOVERY, ALICE).0;
    let data = identify(&mut world, discovery);
    assert_eq!((data.instance(), data.ccrl), (None, 0));
    let any = ControllerInstance { id: ControllerId(1), uniquifier: 1, random: 1 };
    assert!(reset(&mut world, discovery, any).status().is(Status::INVALID_OPCODE));
}

/// A port whose states are not all optimized: the command names no namespace.
#[test]
fn it_passes_in_every_state_of_a_path() {
    let mut world = World::new();
    let (lost, _) = world.controller(DRIVE, ALICE);
    let (other, _) = world.controller(DRIVE, ALICE);
    let impacted = instance(&mut world, lost);
    world.replace_model(|model| {
        for port in &mut model.ports {
            let states = ebof_fabrics::GroupStates::new([(1, ebof_nvme::log::AnaState::PERSISTENT_LOSS)]);
            *port = Port { states, ..port.clone() };
        }
    });
    accepted(&mut world, other, impacted);
    world.close(lost);
    assert_eq!(entries(&mut world, other, 0).len(), 1);
}

/// A controller that is lost, and leaves a write at a device behind.
fn lose(world: &mut World) -> u64 {
    let (lost, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    let _at_device = at_device(world, io, nvm::WRITE);
    world.close(lost);
    let notices = world.registry.ending(Handle(io));
    world.deliver(notices);
    io
}

/// The statuses of a write and a read of a namespace, whose device does them at once.
fn io(world: &mut World, at: u64, nsid: u32) -> [Status; 2] {
    [nvm::WRITE, nvm::READ].map(|opcode| {
        let blocks = if nsid == 2 { 1 } else { 8 };
        world.run(at, with_data(BlockRange::new(0, blocks).encode(opcode, Nsid(nsid)), 4096)).status()
    })
}

// @test data.command-quiesce-time
#[test]
fn what_a_lost_controller_has_at_a_device_that_hangs_is_not_overtaken_after_cqt() {
    for devices in [None, Some(vec![1]), Some(vec![])] {
        let mut world = World::new();
        let (other, cntlid) = world.controller(DRIVE, ALICE);
        let path = world.io_queue(DRIVE, ALICE, cntlid, 1);
        let (_, bobs) = world.controller(DRIVE, BOB);
        let of_bob = world.io_queue(DRIVE, BOB, bobs, 1);
        let lost = lose(&mut world);
        let device = |nsid| {
            let drive = world.registry.model().subsystem(&nqn(DRIVE)).unwrap();
            drive.namespaces.find(Nsid(nsid)).unwrap().device
        };
        if let Some(nsids) = &devices {
            let devices = nsids.iter().copied().map(device).collect();
            world.registry.note_drain(Handle(lost), devices);
        }
        let begin = world.now_ms;
        world.expire_at(begin);
        assert_eq!(world.registry.next_deadline(), Some(begin + FENCE_MS));
        world.expire_at(begin + FENCE_MS - 1);
        let executed = [Status::SUCCESS; 2];
        assert_eq!([1, 2].map(|nsid| io(&mut world, path, nsid)), [executed; 2]);
        // Long before CQT.
        let cqt = u64::from(identify(&mut world, other).cqt.get());
        assert!(2 * FENCE_MS <= cqt, "{cqt}");
        world.expire_at(begin + FENCE_MS);
        let is_barred = |nsid| devices.as_ref().is_none_or(|nsids| nsids.contains(&nsid));
        for nsid in [1, 2] {
            let refused =
                io(&mut world, path, nsid).map(|status| status.is(Status::ANA_TRANSITION) && !status.is_dnr());
            assert_eq!(refused, [is_barred(nsid); 2], "namespace {nsid} of {devices:?}");
            assert_eq!(io(&mut world, of_bob, nsid), executed, "others do not wait");
        }
        world.expire_at(begin + 10 * cqt);
        assert_eq!(io(&mut world, path, 1).map(|status| status.is_success()), [!is_barred(1); 2], "however long");
        world.close(lost);
        assert_eq!([1, 2].map(|nsid| io(&mut world, path, nsid)), [executed; 2]);
    }
}
