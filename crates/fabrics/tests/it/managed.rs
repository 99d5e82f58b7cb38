//! A host that manages a drive, and others that use it.

use ebof_drive::firmware::{Image, Personality};
use ebof_drive::{Profile, Settings};
use ebof_fabrics::{RefusalReason, Step, Task};
use ebof_nvme::connect::{Connect, Property};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::feature::AsyncEventConfig;
use ebof_nvme::firmware::{Commit, CommitAction, Download};
use ebof_nvme::identify::{Cns, ControllerList, IdentifyController, IdentifyNamespace, NamespaceList};
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::namespace::{AttachmentSelect, ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::admin;
use ebof_nvme::property::offset;
use ebof_nvme::{ControllerId, Nsid, QueueId, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::support::{ALICE, BOB, DRIVE, Done, MANAGED, World, admin_connect, connect_data, nqn, with_data};

fn identify(cns: Cns, nsid: Nsid) -> Sqe {
    with_data(Sqe::new(admin::IDENTIFY).with_nsid(nsid).with_cdw(10, u32::from(cns.0)), 4096)
}

pub(crate) fn create(world: &mut World, at: u64, wanted: &NewNamespace) -> Done {
    let command = NamespaceManagement { select: ManagementSelect::Create, csi: ebof_nvme::identify::Csi::NVM };
    world.run_with(at, with_data(command.encode(Nsid::NONE), 4096), wanted.as_bytes())
}

pub(crate) fn delete(world: &mut World, at: u64, nsid: Nsid) -> Done {
    let command = NamespaceManagement { select: ManagementSelect::Delete, csi: ebof_nvme::identify::Csi::NVM };
    world.run(at, with_data(command.encode(nsid), 0))
}

pub(crate) fn attach(world: &mut World, at: u64, select: AttachmentSelect, nsid: Nsid, controllers: &[u16]) -> Done {
    let list = ControllerList::starting_at(ControllerId(0), controllers.iter().map(|&cntlid| ControllerId(cntlid)));
    world.run_with(at, with_data(select.encode(nsid), 4096), list.as_bytes())
}

fn nsids(world: &mut World, at: u64, cns: Cns) -> Vec<u32> {
    let data = world.run(at, identify(cns, Nsid(0))).data;
    NamespaceList::ref_from_bytes(&data).unwrap().iter().map(|nsid| nsid.0).collect()
}

pub(crate) fn controllers(world: &mut World, at: u64, cns: Cns, nsid: Nsid) -> Vec<u16> {
    let data = world.run(at, identify(cns, nsid)).data;
    ControllerList::ref_from_bytes(&data).unwrap().iter().map(|cntlid| cntlid.0).collect()
}

#[test]
fn a_host_creates_attaches_and_uses_a_namespace() {
    let mut world = World::managed();
    let (admin, cntlid) = world.controller(MANAGED, ALICE);
    assert_eq!(cntlid, ControllerId(0));
    let data = world.run(admin, identify(Cns::CONTROLLER, Nsid(0))).data;
    let controller = IdentifyController::ref_from_bytes(&data).unwrap();
    assert_eq!((controller.tnvmcap.get(), controller.unvmcap.get(), controller.nn.get()), (1 << 30, 1 << 30, 128));
    // create-ns, attach-ns -c 0, list-ns, list-ctrl, detach-ns, delete-ns
    assert_eq!(create(&mut world, admin, &NewNamespace::new(0x1000)).result(), 1);
    assert_eq!(nsids(&mut world, admin, Cns::ACTIVE_NAMESPACE_LIST), [0_u32; 0]);
    assert_eq!(nsids(&mut world, admin, Cns::ALLOCATED_NAMESPACE_LIST), [1]);
    assert!(attach(&mut world, admin, AttachmentSelect::Attach, Nsid(1), &[0]).status().is_success());
    assert_eq!(nsids(&mut world, admin, Cns::ACTIVE_NAMESPACE_LIST), [1]);
    assert_eq!(controllers(&mut world, admin, Cns::CONTROLLER_LIST, Nsid(0)), [0]);
    assert_eq!(controllers(&mut world, admin, Cns::NAMESPACE_CONTROLLER_LIST, Nsid(1)), [0]);
    let data = world.run(admin, identify(Cns::NAMESPACE, Nsid(1))).data;
    let namespace = IdentifyNamespace::ref_from_bytes(&data).unwrap();
    assert_eq!((namespace.nsze.get(), namespace.nvmcap.get(), namespace.nmic), (0x1000, 2 << 20, 0));
    let formats = namespace.lba_formats().iter().map(|format| (format.lbads, format.ms.get()));
    assert_eq!(formats.collect::<Vec<_>>(), [(9, 0), (12, 0), (9, 8), (12, 8)]);
    // Metadata after each block; types 1 to 3, protection information first or last.
    assert_eq!((namespace.flbas, namespace.mc, namespace.dpc, namespace.dps), (0, 1, 0x1f, 0));
    assert!(attach(&mut world, admin, AttachmentSelect::Detach, Nsid(1), &[0]).status().is_success());
    assert!(delete(&mut world, admin, Nsid(1)).status().is_success());
    assert_eq!(nsids(&mut world, admin, Cns::ALLOCATED_NAMESPACE_LIST), [0_u32; 0]);
}

#[test]
fn a_host_sees_only_its_namespaces_and_is_notified_of_changes() {
    let mut world = World::managed();
    let (alice, _) = world.controller(MANAGED, ALICE);
    let (bob, _) = world.controller(MANAGED, BOB);
    for at in [alice, bob] {
        let config =
            Sqe::new(admin::SET_FEATURES).with_cdw(10, 0x0b).with_cdw(11, AsyncEventConfig::NAMESPACE_ATTRIBUTE.0);
        assert!(world.run(at, config).status().is_success());
        assert_eq!(world.run(at, Sqe::new(admin::ASYNC_EVENT_REQUEST)).step, "held");
    }
    let mut shared = NewNamespace::new(8);
    shared.nmic = 1;
    create(&mut world, alice, &shared);
    assert!(world.events.is_empty(), "nobody is attached yet");
    attach(&mut world, alice, AttachmentSelect::Attach, Nsid(1), &[1]);
    let event = u64::from(AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED.encode());
    assert_eq!(world.events.iter().map(|(at, cqe)| (*at, cqe.result())).collect::<Vec<_>>(), [(bob, event)]);
    assert_eq!(nsids(&mut world, bob, Cns::ACTIVE_NAMESPACE_LIST), [1]);
    assert_eq!(nsids(&mut world, alice, Cns::ACTIVE_NAMESPACE_LIST), [0_u32; 0]);
    // I/O commands fail, too: Alice is not attached.
    let read = || with_data(ebof_nvme::io::BlockRange::new(0, 1).encode(ebof_nvme::opcode::nvm::READ, Nsid(1)), 512);
    for (host, cntlid, status) in [(BOB, 1, Status::SUCCESS), (ALICE, 0, Status::INVALID_NAMESPACE.dnr().more())] {
        let io = world.io_queue(MANAGED, host, ControllerId(cntlid), 1);
        assert_eq!(world.run(io, read()).status(), status, "{host}");
    }
    // Deleting detaches it from all controllers.
    delete(&mut world, alice, Nsid(1));
    assert_eq!(nsids(&mut world, bob, Cns::ACTIVE_NAMESPACE_LIST), [0_u32; 0]);
}

#[test]
fn a_reconnecting_host_has_its_controller_id_and_namespaces_again() {
    let mut world = World::managed();
    let (first, _) = world.controller(MANAGED, ALICE);
    create(&mut world, first, &NewNamespace::new(8));
    attach(&mut world, first, AttachmentSelect::Attach, Nsid(1), &[0]);
    // The old controller still exists: the link was lost, and the keep-alive timer has not expired.
    let (second, cntlid) = world.controller(MANAGED, ALICE);
    assert_eq!(cntlid, ControllerId(1));
    assert_eq!(nsids(&mut world, second, Cns::ACTIVE_NAMESPACE_LIST), [1]);
    world.close(first);
    world.close(second);
    let (third, cntlid) = world.controller(MANAGED, ALICE);
    assert_eq!(cntlid, ControllerId(0));
    assert_eq!(nsids(&mut world, third, Cns::ACTIVE_NAMESPACE_LIST), [1]);
    let (other, cntlid) = world.controller(MANAGED, BOB);
    assert_eq!(cntlid, ControllerId(2));
    assert_eq!(nsids(&mut world, other, Cns::ACTIVE_NAMESPACE_LIST), [0_u32; 0]);
}

#[test]
fn every_invalid_command_has_the_status_of_the_specification() {
    let mut world = World::managed();
    let (alice, _) = world.controller(MANAGED, ALICE);
    let (bob, _) = world.controller(MANAGED, BOB);
    let (plain, _) = world.controller(DRIVE, ALICE);
    let management =
        |sel: u32, nsid: u32| Sqe::new(admin::NAMESPACE_MANAGEMENT).with_nsid(Nsid(nsid)).with_cdw(10, sel);
    let attachment =
        |sel: u32, nsid: u32| Sqe::new(admin::NAMESPACE_ATTACHMENT).with_nsid(Nsid(nsid)).with_cdw(10, sel);
    let new = |change: &dyn Fn(&mut NewNamespace)| {
        let mut new = NewNamespace::new(8);
        change(&mut new);
        new.as_bytes().to_vec()
    };
    let list = |num: u16, ids: &[u16]| {
        let mut list = ControllerList::default();
        list.num.set(num);
        list.identifier.iter_mut().zip(ids).for_each(|(to, &id)| to.set(id));
        list.as_bytes().to_vec()
    };
    let good = || new(&|_| {});
    let create = || with_data(management(0, 0), 4096);
    let cases: Vec<(u64, Sqe, Vec<u8>, Status)> = vec![
        (bob, create(), good(), Status::OPERATION_DENIED),
        (bob, with_data(management(1, 1), 0), vec![], Status::OPERATION_DENIED),
        (bob, with_data(attachment(0, 1), 4096), list(1, &[1]), Status::OPERATION_DENIED),
        (plain, create(), good(), Status::INVALID_OPCODE),
        (alice, with_data(management(2, 0), 4096), good(), Status::INVALID_FIELD),
        (alice, with_data(management(0, 1), 4096), good(), Status::INVALID_FIELD),
        (alice, with_data(management(0, 0), 512), good(), Status::DATA_SGL_LENGTH_INVALID),
        (alice, create().with_cdw(11, 2 << 24), good(), Status::COMMAND_SET_NOT_SUPPORTED),
        (alice, create(), new(&|new| new.nsze.set(0)), Status::INVALID_FIELD),
        (alice, create(), new(&|new| new.ncap.set(9)), Status::INVALID_FIELD),
        (alice, create(), new(&|new| new.nmic = 2), Status::INVALID_FIELD),
        (alice, create(), new(&|new| new.nvmsetid.set(1)), Status::INVALID_FIELD),
        (alice, create(), new(&|new| new.endgid.set(2)), Status::INVALID_FIELD),
        (alice, create(), new(&|new| new.nphndls.set(1)), Status::INVALID_FIELD),
        (alice, create(), new(&|new| new.anagrpid.set(129)), Status::ANA_GROUP_INVALID),
        (alice, create(), new(&|new| new.set_format(9, false)), Status::INVALID_FORMAT),
        (alice, create(), new(&|new| new.set_format(4, true)), Status::INVALID_FORMAT),
        // Metadata in a separate buffer: not supported over fabrics.
        (alice, create(), new(&|new| new.set_format(2, false)), Status::INVALID_FORMAT),
        (alice, create(), new(&|new| new.dps = 1), Status::INVALID_FORMAT),
        (alice, create(), new(&|new| (new.set_format(1, true), new.dps = 3).1), Status::INVALID_FORMAT),
        (alice, create(), new(&|new| (new.set_format(3, true), new.dps = 4).1), Status::INVALID_FORMAT),
        (alice, create(), new(&|new| (new.set_format(3, true), new.dps = 0x11).1), Status::INVALID_FIELD),
        (alice, create(), new(&|new| (new.set_format(3, true), new.lbstm.set(1)).1), Status::INVALID_FIELD),
        (alice, create(), NewNamespace::new(3 << 20).as_bytes().to_vec(), Status::NAMESPACE_INSUFFICIENT_CAPACITY),
        (alice, with_data(management(1, 0), 0), vec![], Status::INVALID_NAMESPACE),
        (alice, with_data(management(1, 129), 0), vec![], Status::INVALID_NAMESPACE),
        (alice, with_data(management(1, 7), 0), vec![], Status::INVALID_NAMESPACE),
        (alice, with_data(attachment(2, 1), 4096), list(1, &[0]), Status::INVALID_FIELD),
        (alice, with_data(attachment(0, u32::MAX), 4096), list(1, &[0]), Status::INVALID_FIELD),
        (alice, with_data(attachment(0, 0), 4096), list(1, &[0]), Status::INVALID_NAMESPACE),
        (alice, with_data(attachment(0, 7), 4096), list(1, &[0]), Status::INVALID_NAMESPACE),
        (alice, with_data(attachment(0, 1), 4096), list(0, &[0]), Status::CONTROLLER_LIST_INVALID),
        (alice, with_data(attachment(0, 1), 4096), list(2048, &[0]), Status::CONTROLLER_LIST_INVALID),
        (alice, with_data(attachment(0, 1), 4096), list(2, &[1, 0]), Status::CONTROLLER_LIST_INVALID),
        (alice, with_data(attachment(0, 1), 4096), list(1, &[0xfff0]), Status::CONTROLLER_LIST_INVALID),
        (alice, with_data(attachment(0, 1), 4096), list(2, &[0, 5]), Status::CONTROLLER_LIST_INVALID),
        (alice, with_data(attachment(1, 1), 4096), list(1, &[0]), Status::NAMESPACE_NOT_ATTACHED),
        (alice, identify(Cns::ALLOCATED_NAMESPACE, Nsid(129)), vec![], Status::INVALID_NAMESPACE),
        (plain, identify(Cns::ALLOCATED_NAMESPACE_LIST, Nsid(0)), vec![], Status::INVALID_FIELD),
    ];
    assert_eq!(world.run_with(alice, create(), &good()).result(), 1);
    for (at, sqe, data, status) in cases {
        let done = world.run_with(at, sqe, &data);
        assert_eq!(done.status(), status.dnr().more(), "{sqe:?}");
    }
    assert_eq!(nsids(&mut world, alice, Cns::ALLOCATED_NAMESPACE_LIST), [1], "a refusal changes nothing");
}

/// The only endurance group and any ANA group may be named, and protection information may be at
/// either end of the metadata.
#[test]
fn a_namespace_is_created_as_its_fields_say() {
    let mut world = World::managed();
    let (admin, _) = world.controller(MANAGED, ALICE);
    let mut created = |change: &dyn Fn(&mut NewNamespace)| {
        let mut new = NewNamespace::new(8);
        change(&mut new);
        let nsid = Nsid(u32::try_from(create(&mut world, admin, &new).result()).unwrap());
        let data = world.run(admin, identify(Cns::ALLOCATED_NAMESPACE, nsid)).data;
        let data = IdentifyNamespace::ref_from_bytes(&data).unwrap();
        (data.endgid.get(), data.anagrpid.get(), data.nmic, data.flbas, data.dps)
    };
    let plain = created(&|_| {});
    assert_eq!(plain, (1, 1, 0, 0, 0));
    assert_eq!(created(&|new| new.endgid.set(1)), plain);
    assert_eq!(created(&|new| new.anagrpid.set(1)), plain);
    assert_eq!(created(&|new| new.anagrpid.set(128)), (1, 128, 0, 0, 0));
    assert_eq!(created(&|new| new.nmic = 1), (1, plain.1, 1, 0, 0));
    for dps in [0, 1, 2, 3, 9, 10, 11] {
        let new = created(&|new| (new.set_format(3, true), new.dps = dps).1);
        assert_eq!(new, (1, plain.1, 0, 0x13, dps));
    }
}

/// A firmware image of whole pages, with its personality modified by `change`.
fn image(revision: &str, change: impl FnOnce(&mut Personality)) -> Vec<u8> {
    let mut personality = Personality::default();
    change(&mut personality);
    let image = Image { product: "ebof-drive".to_string(), revision: revision.to_string(), personality };
    let mut bytes = image.encode().unwrap();
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    bytes
}

#[test]
fn firmware_is_downloaded_in_pieces_and_activated_by_a_reset() {
    let mut world = World::managed();
    let (admin, cntlid) = world.controller(MANAGED, ALICE);
    let controller = |world: &mut World| {
        let data = world.run(admin, identify(Cns::CONTROLLER, Nsid(0))).data;
        IdentifyController::read_from_bytes(&data).unwrap()
    };
    let before = controller(&mut world);
    assert_eq!(before.frmw, 4 << 1 | 1 << 4 | 1 << 5);
    let bytes = image("9.9", |personality| personality.compare = false);
    let piece = |offset: u64, bytes: &[u8]| {
        let download = Download { offset, bytes: bytes.len() as u64 };
        with_data(download.encode(), u32::try_from(bytes.len()).unwrap())
    };
    let commit = |action, slot| with_data(Commit { action, slot, boot_partition: 0 }.encode(), 0);
    let refused = |world: &mut World, sqe, data: &[u8]| world.run_with(admin, sqe, data).status();
    let activate = || commit(CommitAction::ReplaceAndActivate, 3);
    assert!(refused(&mut world, activate(), &[]).is(Status::INVALID_FIRMWARE_IMAGE));
    assert!(refused(&mut world, piece(100, &bytes), &bytes).is(Status::INVALID_FIELD));
    let mut torn = bytes.clone();
    torn[70] ^= 1;
    assert!(refused(&mut world, piece(0, &torn), &torn).is_success());
    assert!(refused(&mut world, piece(0, &torn), &torn).is(Status::OVERLAPPING_RANGE));
    assert!(refused(&mut world, activate(), &[]).is(Status::INVALID_FIRMWARE_IMAGE));
    assert!(refused(&mut world, piece(0, &bytes), &bytes).is_success());
    assert!(refused(&mut world, commit(CommitAction::ReplaceAndActivate, 7), &[]).is(Status::INVALID_FIRMWARE_SLOT));
    assert!(refused(&mut world, piece(0, &bytes), &bytes).is_success());
    assert!(refused(&mut world, activate(), &[]).is_success());
    assert_eq!(controller(&mut world).firmware_revision().as_str(), before.firmware_revision().as_str());
    // The reset that activates it: the target requests the change from the drive.
    world.tell_drive(admin, &ebof_drive::Request::Reset);
    let after = controller(&mut world);
    assert_eq!(after.firmware_revision().as_str(), Some("9.9"));
    assert_eq!(after.oncs.get() & 1, 0);
    let io = world.io_queue(MANAGED, ALICE, cntlid, 1);
    create(&mut world, admin, &NewNamespace::new(8));
    attach(&mut world, admin, AttachmentSelect::Attach, Nsid(1), &[0]);
    let compare = ebof_nvme::io::BlockRange::new(0, 1).encode(ebof_nvme::opcode::nvm::COMPARE, Nsid(1));
    assert!(world.run(io, with_data(compare, 512)).status().is(Status::INVALID_OPCODE));
}

#[test]
fn log_pages_of_the_drive_can_be_read() {
    let mut world = World::managed();
    let (admin, _) = world.controller(MANAGED, ALICE);
    create(&mut world, admin, &NewNamespace::new(8));
    attach(&mut world, admin, AttachmentSelect::Attach, Nsid(1), &[0]);
    let get = |lid: Lid, bytes: u64, change: &dyn Fn(&mut GetLogPage)| {
        let mut get = GetLogPage::new(lid, bytes);
        change(&mut get);
        with_data(get.encode(Nsid::ALL), u32::try_from(bytes).unwrap())
    };
    let read =
        |world: &mut World, lid, bytes, change: &dyn Fn(&mut GetLogPage)| world.run(admin, get(lid, bytes, change));
    let supported = read(&mut world, Lid::SUPPORTED_LOG_PAGES, 1024, &|_| {}).data;
    for (lid, bytes) in [
        (Lid::ERROR_INFORMATION, 64),
        (Lid::SMART_HEALTH, 512),
        (Lid::FIRMWARE_SLOTS, 512),
        (Lid::PERSISTENT_EVENT, 512),
    ] {
        assert_eq!(supported[usize::from(lid.0) * 4] & 1, 1, "{lid:?}");
        let establish = |get: &mut GetLogPage| get.lsp = u8::from(lid == Lid::PERSISTENT_EVENT);
        assert_eq!(read(&mut world, lid, bytes, &establish).data.len() as u64, bytes, "{lid:?}");
    }
    let group = |number: u16| move |get: &mut GetLogPage| get.lsi = number;
    assert_eq!(read(&mut world, Lid::ENDURANCE_GROUP, 512, &group(1)).data.len(), 512);
    assert!(read(&mut world, Lid::ENDURANCE_GROUP, 512, &group(2)).status().is(Status::INVALID_FIELD));
    let beyond = |get: &mut GetLogPage| get.offset = 4096;
    assert!(read(&mut world, Lid::SMART_HEALTH, 512, &beyond).status().is(Status::INVALID_FIELD));
    let own = |nsid| with_data(GetLogPage::new(Lid::SMART_HEALTH, 512).encode(Nsid(nsid)), 512);
    assert_eq!(world.run(admin, own(1)).data.len(), 512);
    assert!(world.run(admin, own(7)).status().is(Status::INVALID_NAMESPACE));
    // Errors are kept until they are recorded persistently.
    let errors = world.registry.errors_since(&nqn(MANAGED), 0);
    assert_eq!(errors.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(errors[2].1.status.is(Status::INVALID_NAMESPACE));
}

#[test]
fn a_drive_enforces_the_limits_of_its_profile() {
    let mut world = World::managed();
    let settings = Settings { profile: Profile::ethernet_ssd(), ..world.drive.settings().clone() };
    world.drive.configure(settings);
    world.publish_drive();
    let (admin, cntlid) = world.controller(MANAGED, ALICE);
    let data = world.run(admin, identify(Cns::CONTROLLER, Nsid(0))).data;
    let controller = IdentifyController::ref_from_bytes(&data).unwrap();
    assert_eq!((controller.nn.get(), controller.frmw >> 1 & 7, controller.maxcmd.get()), (128, 2, 64));
    // CAP.MQES is 0's based.
    let cap = world.run(admin, Property::get(offset::CAP, 8)).result();
    assert_eq!(cap & 0xffff, 63);
    let mut connect = |qid: u16, entries: u32| {
        let at = world.open();
        let connect = Connect { qid: QueueId(qid), entries, ..admin_connect() };
        world.connect(at, connect, &connect_data(MANAGED, ALICE, cntlid)).1.map(|refusal| refusal.reason)
    };
    assert_eq!(connect(1, 65), Some(RefusalReason::QueueSize));
    assert_eq!(connect(1, 64), None);
    // All queues together have fewer than 8192 entries: 127 of 64, and one that is smaller. The
    // port allows 8 a controller.
    let mut total = 64;
    let mut host = 0;
    let refused = loop {
        host += 1;
        let name = format!("nqn.2014-08.org.example:host{host}");
        let (_, cntlid) = world.controller(MANAGED, &name);
        let mut refused = None;
        for qid in 1..=8 {
            let at = world.open();
            let connect = Connect { qid: QueueId(qid), entries: 64, ..admin_connect() };
            refused = world.connect(at, connect, &connect_data(MANAGED, &name, cntlid)).1;
            if refused.is_some() {
                break;
            }
            total += 64;
        }
        if let Some(refused) = refused {
            break refused.reason;
        }
    };
    assert_eq!((refused, total), (RefusalReason::EntriesExhausted, 127 * 64));
    let (_, cntlid) = world.controller(MANAGED, BOB);
    for (qid, entries, refused) in [(1, 64, true), (1, 63, false), (2, 2, true)] {
        let at = world.open();
        let connect = Connect { qid: QueueId(qid), entries, ..admin_connect() };
        let (_, refusal) = world.connect(at, connect, &connect_data(MANAGED, BOB, cntlid));
        assert_eq!(refusal.is_some(), refused, "{entries}");
    }
}

#[test]
fn a_firmware_without_a_command_refuses_it() {
    use ebof_nvme::opcode::nvm;

    let mut world = World::managed();
    let (admin, cntlid) = world.controller(MANAGED, ALICE);
    create(&mut world, admin, &NewNamespace::new(0x1000));
    attach(&mut world, admin, AttachmentSelect::Attach, Nsid(1), &[0]);
    let io = world.io_queue(MANAGED, ALICE, cntlid, 1);
    // Without data none of the others succeeds; what they are refused with is not that.
    let refused = |world: &mut World, at: u64, opcode: u8| {
        world.run(at, with_data(Sqe::new(opcode).with_nsid(Nsid(1)), 0)).status().is(Status::INVALID_OPCODE)
    };
    let of_io = [
        nvm::COMPARE,
        nvm::WRITE_ZEROES,
        nvm::DATASET_MANAGEMENT,
        nvm::VERIFY,
        nvm::COPY,
        nvm::WRITE_UNCORRECTABLE,
        nvm::RESERVATION_REGISTER,
        nvm::RESERVATION_REPORT,
        nvm::RESERVATION_ACQUIRE,
        nvm::RESERVATION_RELEASE,
    ];
    let of_admin = [admin::DEVICE_SELF_TEST, admin::FORMAT_NVM, admin::SANITIZE];
    let commands = of_io.map(|opcode| (io, opcode)).into_iter().chain(of_admin.map(|opcode| (admin, opcode)));
    for (at, opcode) in commands.clone().filter(|&(at, _)| at == io) {
        assert!(!refused(&mut world, at, opcode), "{opcode:#x}");
    }
    world.replace_model(|model| {
        let subsystem = std::sync::Arc::make_mut(&mut model.subsystems[2]);
        let drive = std::sync::Arc::make_mut(subsystem.drive.as_mut().unwrap());
        drive.personality = Personality {
            compare: false,
            copy: false,
            dataset_management: false,
            verify: false,
            write_uncorrectable: false,
            write_zeroes: false,
            reservations: false,
            device_self_test: false,
            format: false,
            sanitize: false,
            ..Personality::default()
        };
    });
    for (at, opcode) in commands {
        assert!(refused(&mut world, at, opcode), "{opcode:#x}");
    }
    for opcode in [nvm::READ, nvm::WRITE, nvm::FLUSH] {
        assert!(!refused(&mut world, io, opcode), "{opcode:#x}");
    }
    // Only drives remember which blocks cannot be read.
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    let plain = world.io_queue(DRIVE, ALICE, cntlid, 1);
    assert!(refused(&mut world, plain, nvm::WRITE_UNCORRECTABLE) && refused(&mut world, plain, 0x7f));
    assert!(!refused(&mut world, plain, nvm::COPY));
}

#[test]
fn uncorrectable_blocks_and_their_list() {
    use ebof_nvme::io::BlockRange;
    use ebof_nvme::lba_status::{CompletionCondition, GetLbaStatus, StatusAction, read_status_list};
    use ebof_nvme::opcode::nvm;

    let mut world = World::managed();
    let (admin, cntlid) = world.controller(MANAGED, ALICE);
    create(&mut world, admin, &NewNamespace::new(0x1000));
    attach(&mut world, admin, AttachmentSelect::Attach, Nsid(1), &[0]);
    let io = world.io_queue(MANAGED, ALICE, cntlid, 1);
    let mark = |slba, blocks| BlockRange::new(slba, blocks).encode(nvm::WRITE_UNCORRECTABLE, Nsid(1));
    let done = world.run(io, mark(8, 2));
    assert!(
        done.status().is_success() && done.step.contains("offset_bytes: 4096, length_bytes: 1024"),
        "{}",
        done.step
    );
    assert!(world.run(io, mark(0xfff, 2)).status().is(Status::LBA_OUT_OF_RANGE));
    // Above WUSL, 16 MiB.
    assert!(world.run(io, mark(0, 0x8001)).status().is(Status::INVALID_FIELD));

    let get = |action, bytes: u32| {
        let get = GetLbaStatus { slba: 4, bytes: bytes.into(), blocks: 0, action };
        with_data(get.encode(Nsid(1)), bytes)
    };
    // The world reports a block, and 2^33 blocks, which do not fit into one descriptor.
    let done = world.run(admin, get(StatusAction::TRACKED, 128));
    let (header, entries) = read_status_list(&done.data).unwrap();
    let entries: Vec<_> = entries.iter().map(|entry| (entry.dslba.get(), entry.nlb.get())).collect();
    let most = u32::MAX;
    assert_eq!(entries, [(4, 1), (6, most), (6 + u64::from(most), most), (6 + 2 * u64::from(most), 2)]);
    assert_eq!((header.condition(), done.data.len()), (CompletionCondition::Complete, 128));
    let done = world.run(admin, get(StatusAction::TRACKED, 24));
    assert_eq!(read_status_list(&done.data).unwrap().0.condition(), CompletionCondition::Incomplete);
    let done = world.run(admin, get(StatusAction::ALLOCATED, 128));
    assert_eq!(read_status_list(&done.data).unwrap().0.condition(), CompletionCondition::Incomplete);
    // What is looked at ends where the command or the namespace does, and is told up to its length.
    let part = |slba, blocks, bytes: u32| {
        let get = GetLbaStatus { slba, bytes: bytes.into(), blocks, action: StatusAction::TRACKED };
        with_data(get.encode(Nsid(1)), bytes)
    };
    for (slba, blocks, bytes, expected) in [
        (0xffe, 0, 128, Ok((0xffe..0x1000, 7))),
        (0xffe, 2, 128, Ok((0xffe..0x1000, 7))),
        (100, 50, 24, Ok((100..150, 1))),
        (100, 50, 8, Ok((100..150, 0))),
        (0xffe, 3, 128, Err(Status::LBA_OUT_OF_RANGE)),
        (0x1000, 0, 128, Err(Status::LBA_OUT_OF_RANGE)),
        (0, 1, 4, Err(Status::INVALID_FIELD)),
    ] {
        let now_ms = world.now_ms;
        let step = world.queues.get_mut(&admin).unwrap().submit(&part(slba, blocks, bytes), now_ms);
        let found = match &step {
            Step::Execute(_, Task::LbaStatus(query)) => Ok((query.range.clone(), query.ranges_max)),
            _ => Err(()),
        };
        assert_eq!(found.ok(), expected.clone().ok(), "{slba:#x} {blocks} {bytes}");
        let done = world.carry_out(admin, step, &[]);
        assert!(expected.map_or_else(|status| done.status().is(status), |_| done.status().is_success()));
    }
    assert!(world.run(admin, get(StatusAction(1), 128)).status().is(Status::INVALID_FIELD));
    // Without a drive these commands are not supported.
    let (other, _) = world.controller(DRIVE, ALICE);
    assert!(world.run(other, get(StatusAction::TRACKED, 128)).status().is(Status::INVALID_OPCODE));
}
