//! A host that tests, formats and sanitizes a drive, and reads its telemetry.

use ebof_drive::firmware::{Image, Personality};
use ebof_nvme::firmware::{Commit, CommitAction, Download};
use ebof_nvme::identify::field::{lpa, oacs};
use ebof_nvme::identify::{Cns, Csi, IdentifyController, IdentifyNamespace, ProtectionType};
use ebof_nvme::io::BlockRange;
use ebof_nvme::log::{GetLogPage, Lid, SanitizeLog, SanitizeState, SelfTestCode, SelfTestLog, SelfTestResult};
use ebof_nvme::media::{Format, Sanitize, SanitizeAction, SecureErase, SelfTest};
use ebof_nvme::namespace::{AttachmentSelect, ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{ControllerId, Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::support::{ALICE, BOB, MANAGED, World, with_data};

fn bare(sqe: Sqe) -> Sqe {
    with_data(sqe, 0)
}

fn test(code: SelfTestCode, nsid: u32) -> Sqe {
    bare(SelfTest { code }.encode(Nsid(nsid)))
}

fn format(change: impl FnOnce(&mut Format), nsid: u32) -> Sqe {
    let mut format = Format::new(0);
    change(&mut format);
    bare(format.encode(Nsid(nsid)))
}

fn with_metadata(format: &mut Format, index: u8, protection: ProtectionType) {
    *format = Format { lba_format: index, metadata_extended: true, protection, ..*format };
}

/// A namespace of 4096 blocks, attached to Alice's controller.
fn create(world: &mut World, at: u64) {
    let command = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM };
    let done = world.run_with(at, with_data(command.encode(Nsid::NONE), 4096), NewNamespace::new(4096).as_bytes());
    let nsid = Nsid(u32::try_from(done.result()).unwrap());
    let list = ebof_nvme::identify::ControllerList::starting_at(ControllerId(0), [ControllerId(0)]);
    let attach = with_data(AttachmentSelect::Attach.encode(nsid), 4096);
    assert!(world.run_with(at, attach, list.as_bytes()).status().is_success());
}

fn log<T: FromBytes>(world: &mut World, at: u64, lid: Lid) -> T {
    let bytes = size_of::<T>();
    let get = GetLogPage::new(lid, bytes as u64).encode(Nsid::ALL);
    let data = world.run(at, with_data(get, u32::try_from(bytes).unwrap())).data;
    T::read_from_bytes(&data).unwrap()
}

fn controller(world: &mut World, at: u64) -> IdentifyController {
    let sqe = with_data(Sqe::new(admin::IDENTIFY).with_cdw(10, u32::from(Cns::CONTROLLER.0)), 4096);
    IdentifyController::read_from_bytes(&world.run(at, sqe).data).unwrap()
}

fn namespace(world: &mut World, at: u64) -> IdentifyNamespace {
    let sqe = with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(1)), 4096);
    IdentifyNamespace::read_from_bytes(&world.run(at, sqe).data).unwrap()
}

#[test]
fn every_invalid_command_has_the_status_of_the_specification() {
    let mut world = World::managed();
    let (alice, _) = world.controller(MANAGED, ALICE);
    let (bob, _) = world.controller(MANAGED, BOB);
    create(&mut world, alice);
    let sanitize = |change: &dyn Fn(&mut Sanitize)| {
        let mut command = Sanitize::new(SanitizeAction::BlockErase);
        change(&mut command);
        bare(command.encode())
    };
    let cases = [
        (alice, test(SelfTestCode(0), 0), Status::INVALID_FIELD),
        (alice, test(SelfTestCode::REFRESH, 0), Status::INVALID_FIELD),
        (alice, test(SelfTestCode::SHORT, 129), Status::INVALID_NAMESPACE),
        (alice, test(SelfTestCode::SHORT, 7), Status::INVALID_NAMESPACE),
        (bob, test(SelfTestCode::SHORT, 1), Status::INVALID_FIELD),
        (bob, format(|_| {}, 1), Status::OPERATION_DENIED),
        (alice, format(|_| {}, 0), Status::INVALID_NAMESPACE),
        (alice, format(|_| {}, 7), Status::INVALID_NAMESPACE),
        (alice, format(|format| format.lba_format = 2, 1), Status::INVALID_FORMAT),
        (alice, format(|format| format.lba_format = 63, 1), Status::INVALID_FORMAT),
        (alice, format(|format| format.lba_format = 4, 1), Status::INVALID_FORMAT),
        (alice, format(|format| format.protection = ProtectionType::Type1, 1), Status::INVALID_FORMAT),
        (alice, format(|format| with_metadata(format, 0, ProtectionType::Type1), 1), Status::INVALID_FORMAT),
        (alice, format(|format| with_metadata(format, 3, ProtectionType::Reserved(4)), 1), Status::INVALID_FORMAT),
        (alice, format(|format| format.erase = SecureErase::Cryptographic, 1), Status::INVALID_FIELD),
        (alice, format(|format| format.erase = SecureErase::Reserved(5), 1), Status::INVALID_FIELD),
        (bob, sanitize(&|_| {}), Status::OPERATION_DENIED),
        (alice, sanitize(&|command| command.action = SanitizeAction::CryptoErase), Status::INVALID_FIELD),
        (alice, sanitize(&|command| command.action = SanitizeAction::Reserved(0)), Status::INVALID_FIELD),
        (alice, sanitize(&|command| command.enter_verification = true), Status::INVALID_FIELD),
        (alice, sanitize(&|command| command.no_deallocate = true), Status::INVALID_FIELD),
    ];
    for (at, sqe, status) in cases {
        assert_eq!(world.run(at, sqe).status(), status.dnr().more(), "{sqe:?}");
    }
    let protect = |on: u32| Sqe::new(admin::SET_FEATURES).with_nsid(Nsid(1)).with_cdw(10, 0x84).with_cdw(11, on);
    assert!(world.run(alice, protect(1)).status().is_success());
    assert!(world.run(alice, format(|_| {}, 1)).status().is(Status::NAMESPACE_WRITE_PROTECTED));
    assert!(world.run(alice, sanitize(&|_| {})).status().is(Status::NAMESPACE_WRITE_PROTECTED));
}

#[test]
fn self_tests_run_one_at_a_time_and_the_log_has_the_result() {
    let mut world = World::managed();
    let (admin, _) = world.controller(MANAGED, ALICE);
    create(&mut world, admin);
    assert!(world.run(admin, test(SelfTestCode::ABORT, 0)).status().is_success(), "there is none, which is as well");
    assert!(world.run(admin, test(SelfTestCode::SHORT, 1)).status().is_success());
    assert!(world.run(admin, test(SelfTestCode::EXTENDED, 0)).status().is(Status::SELF_TEST_IN_PROGRESS));
    assert_eq!(log::<SelfTestLog>(&mut world, admin, Lid::DEVICE_SELF_TEST).current(), Some((SelfTestCode::SHORT, 0)));
    let (change, ended) = world.drive.self_test_stepped(Ok(()));
    world.drive.apply(change);
    assert!(!ended);
    let current = log::<SelfTestLog>(&mut world, admin, Lid::DEVICE_SELF_TEST).current();
    assert_eq!(current, Some((SelfTestCode::SHORT, 33)));
    assert!(world.run(admin, test(SelfTestCode::ABORT, 0)).status().is_success());
    assert!(world.run(admin, test(SelfTestCode::SHORT, 1)).status().is_success());
    assert!(world.run(admin, format(|_| {}, 1)).status().is_success());
    assert!(world.run(admin, test(SelfTestCode::SHORT, 0)).status().is_success());
    world.tell_drive(admin, &ebof_drive::Request::Reset);
    let page: SelfTestLog = log(&mut world, admin, Lid::DEVICE_SELF_TEST);
    let results: Vec<_> = page.results().map(|entry| entry.result()).collect();
    let expected =
        [SelfTestResult::ABORTED_BY_RESET, SelfTestResult::ABORTED_BY_FORMAT, SelfTestResult::ABORTED_BY_COMMAND];
    assert_eq!((page.current(), results.as_slice()), (None, &expected[..]));
}

#[test]
fn a_format_changes_the_blocks_and_commands_wait_while_it_erases() {
    let mut world = World::managed();
    let (admin, cntlid) = world.controller(MANAGED, ALICE);
    create(&mut world, admin);
    let before = namespace(&mut world, admin);
    assert!(world.run(admin, format(|format| format.lba_format = 1, u32::MAX)).status().is_success());
    let after = namespace(&mut world, admin);
    assert_eq!((after.nsze.get(), after.ncap.get(), after.format_index()), (512, 512, 1));
    assert_eq!((after.nguid, after.fpi), (before.nguid, 0x80));
    let io = world.io_queue(MANAGED, ALICE, cntlid, 1);
    let read = || with_data(BlockRange::new(0, 1).encode(nvm::READ, Nsid(1)), 4096);
    assert!(world.run(io, read()).step.starts_with("read"));
    let volume = world.drive.state().namespaces[&1].volume;
    world.drive.set_erasing(&[volume], Some(40));
    world.tell_drive(admin, &ebof_drive::Request::AssignCntlid);
    assert_eq!(namespace(&mut world, admin).format_percent_left(), Some(40));
    let flush = || bare(Sqe::new(nvm::FLUSH).with_nsid(Nsid(1)));
    for sqe in [read(), flush()] {
        assert!(world.run(io, sqe).status().is(Status::FORMAT_IN_PROGRESS));
    }
    assert!(world.run(admin, format(|_| {}, 1)).status().is(Status::FORMAT_IN_PROGRESS));
    world.drive.set_erasing(&[volume], None);
    world.tell_drive(admin, &ebof_drive::Request::AssignCntlid);
    assert!(world.run(io, read()).step.starts_with("read"));
}

#[test]
fn during_a_sanitize_only_allowed_commands_are_executed() {
    let mut world = World::managed();
    let (admin, cntlid) = world.controller(MANAGED, ALICE);
    create(&mut world, admin);
    let io = world.io_queue(MANAGED, ALICE, cntlid, 1);
    let sanitize = || bare(Sanitize::new(SanitizeAction::BlockErase).encode());
    assert!(world.run(admin, sanitize()).status().is_success());
    let read = || with_data(BlockRange::new(0, 1).encode(nvm::READ, Nsid(1)), 512);
    let get = |lid: Lid| with_data(GetLogPage::new(lid, 512).encode(Nsid::ALL), 512);
    let waits = [
        (io, read()),
        (io, with_data(BlockRange::new(0, 1).encode(nvm::WRITE, Nsid(1)), 512)),
        (admin, sanitize()),
        (admin, format(|_| {}, 1)),
        (admin, test(SelfTestCode::SHORT, 0)),
        (admin, get(Lid::TELEMETRY_HOST)),
    ];
    for (at, sqe) in waits {
        assert!(world.run(at, sqe).status().is(Status::SANITIZE_IN_PROGRESS), "{sqe:?}");
    }
    assert!(world.run(io, bare(Sqe::new(nvm::FLUSH).with_nsid(Nsid(1)))).step.starts_with("flush"));
    assert!(world.run(admin, get(Lid::SMART_HEALTH)).status().is_success());
    world.drive.set_sanitized_bytes(1 << 29);
    let page: SanitizeLog = log(&mut world, admin, Lid::SANITIZE_STATUS);
    assert_eq!((page.state(), page.percent()), (SanitizeState::InProgress, Some(50)));
    let origin = world.queues[&admin].association().unwrap().origin();
    let ended = world.drive.sanitize_ended(false, &origin, &ebof_drive::DecisionInput::default()).unwrap();
    ended.changes.into_iter().for_each(|change| world.drive.apply(change));
    world.tell_drive(admin, &ebof_drive::Request::AssignCntlid);
    assert!(world.run(io, read()).status().is(Status::SANITIZE_FAILED));
    let exit = Sanitize::new(SanitizeAction::ExitFailure);
    assert!(world.run(admin, bare(exit.encode())).status().is(Status::SANITIZE_FAILED), "it was not allowed to");
    assert!(world.run(admin, sanitize()).status().is_success());
    let ended = world.drive.sanitize_ended(true, &origin, &ebof_drive::DecisionInput::default()).unwrap();
    ended.changes.into_iter().for_each(|change| world.drive.apply(change));
    world.tell_drive(admin, &ebof_drive::Request::AssignCntlid);
    assert!(world.run(io, read()).step.starts_with("read"));
}

#[test]
fn commands_that_the_firmware_profile_lacks_are_refused() {
    let mut world = World::managed();
    let (admin, _) = world.controller(MANAGED, ALICE);
    let before = controller(&mut world, admin);
    let media = oacs::FORMAT_NVM | oacs::DEVICE_SELF_TEST;
    assert_eq!((before.oacs.get() & media, before.lpa & lpa::TELEMETRY), (media, lpa::TELEMETRY));
    assert!(before.sanicap.get() & 7 == 6 && before.edstt.get() > 0 && before.dsto == 1 && before.fna == 0);
    let personality = Personality {
        format: false,
        sanitize: false,
        device_self_test: false,
        telemetry: false,
        ..Personality::default()
    };
    let image = Image { product: "ebof-drive".to_string(), revision: "9.9".to_string(), personality };
    let mut bytes = image.encode().unwrap();
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    let length = u32::try_from(bytes.len()).unwrap();
    let download = with_data(Download { offset: 0, bytes: length.into() }.encode(), length);
    assert!(world.run_with(admin, download, &bytes).status().is_success());
    let commit = Commit { action: CommitAction::ReplaceAndActivate, slot: 2, boot_partition: 0 };
    assert!(world.run(admin, bare(commit.encode())).status().is_success());
    world.tell_drive(admin, &ebof_drive::Request::Reset);
    let after = controller(&mut world, admin);
    assert_eq!(
        (after.oacs.get() & media, after.lpa & lpa::TELEMETRY, after.sanicap.get(), after.edstt.get()),
        (0, 0, 0, 0)
    );
    let sanitize = bare(Sanitize::new(SanitizeAction::BlockErase).encode());
    for sqe in [test(SelfTestCode::SHORT, 0), format(|_| {}, 1), sanitize] {
        assert!(world.run(admin, sqe).status().is(Status::INVALID_OPCODE));
    }
    for lid in [Lid::DEVICE_SELF_TEST, Lid::SANITIZE_STATUS, Lid::TELEMETRY_HOST, Lid::TELEMETRY_CONTROLLER] {
        let get = with_data(GetLogPage::new(lid, 512).encode(Nsid::ALL), 512);
        assert!(world.run(admin, get).status().is(Status::INVALID_LOG_PAGE));
    }
}
