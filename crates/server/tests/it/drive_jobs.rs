//! Self-tests, formats and sanitize operations of a drive: the initiator against a target over
//! loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ebof_drive::VolumeId;
use ebof_drive::tag::Tag;
use ebof_initiator::{AdminData, Controller, Error, Event};
use ebof_manage::config::ManagedDrive;
use ebof_nvme::feature::{AsyncEventConfig, Fid};
use ebof_nvme::log::{
    ChangedNamespaces, GetLogPage, Lid, SanitizeLog, SanitizeState, SelfTestCode, SelfTestLog, SelfTestResult,
    TelemetryHeader, telemetry_lsp,
};
use ebof_nvme::media::{Format, Sanitize, SanitizeAction, SecureErase, SelfTest};
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::admin as opcode;
use ebof_nvme::{Nsid, Sqe, Status};
use ebof_server::Target;
use zerocopy::{FromBytes, IntoBytes};

use crate::drive_rig::{self, admin, create, log, serve, try_serve, wait};

const BLOCKS: u64 = 32 << 11;
const OLD: u8 = 0xa7;

/// A target with a drive of 64 MiB in a file, whose namespaces are attached to all controllers.
fn start(directory: &Path) -> (Target, SocketAddr) {
    start_with(directory, |_| {})
}

fn start_with(directory: &Path, change: impl Fn(&mut ManagedDrive)) -> (Target, SocketAddr) {
    let mut drive = drive_rig::drive(&directory.join("drive.img"), Some(64 << 20));
    change(&mut drive);
    serve(&drive)
}

fn connect(address: SocketAddr) -> Controller {
    drive_rig::connect_with(address, |options| options.nr_io_queues = 1)
}

fn fill(controller: &Controller, bytes: u64) {
    let namespace = wait("the namespace", || controller.namespace(Nsid(1)).ok());
    let block = u64::from(namespace.block_bytes());
    let data = vec![OLD; 1 << 20];
    for lba in (0..bytes / block).step_by(usize::try_from((1 << 20) / block).unwrap()) {
        namespace.write(lba, &data, false).unwrap();
    }
    namespace.flush().unwrap();
}

/// Whether the drive's file has none of the written data.
fn is_gone(directory: &Path) -> bool {
    let image = std::fs::read(directory.join("drive.img")).unwrap();
    !image.chunks_exact(512).any(|block| block.iter().all(|&byte| byte == OLD))
}

fn reads_zeros(controller: &Controller) -> bool {
    let namespace = controller.namespace(Nsid(1)).unwrap();
    let mut data = vec![1; 1 << 20];
    namespace.read(0, &mut data).unwrap();
    data.iter().all(|&byte| byte == 0)
}

fn last_test(controller: &Controller) -> Option<SelfTestLog> {
    let page: SelfTestLog = log(controller, Lid::DEVICE_SELF_TEST);
    page.current().is_none().then_some(page)
}

fn last_sanitize(controller: &Controller) -> Option<SanitizeLog> {
    let page: SanitizeLog = log(controller, Lid::SANITIZE_STATUS);
    (page.state() != SanitizeState::InProgress).then_some(page)
}

#[test]
fn a_self_test_reads_the_medium_and_its_result_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address) = start(directory.path());
    let host = connect(address);
    create(&host, BLOCKS);
    fill(&host, 24 << 20);
    let test = |code| SelfTest { code }.encode(Nsid::ALL);
    for code in [SelfTestCode::SHORT, SelfTestCode::EXTENDED] {
        assert!(admin(&host, test(code)).is_success());
        let page = wait("the self-test", || last_test(&host));
        assert_eq!((page.results[0].code(), page.results[0].result()), (code, SelfTestResult::PASSED));
    }
    host.disconnect();
    target.stop(Duration::from_secs(5));
    drop(target);
    let (_target, address) = start(directory.path());
    let page = last_test(&connect(address)).unwrap();
    assert_eq!(
        page.results().map(|entry| entry.code()).collect::<Vec<_>>(),
        [SelfTestCode::EXTENDED, SelfTestCode::SHORT]
    );
}

#[test]
fn a_formatted_namespace_has_the_new_block_size_and_no_data() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address) = start(directory.path());
    let host = connect(address);
    create(&host, BLOCKS);
    fill(&host, 8 << 20);
    let before = host.identify_namespace(Nsid(1)).unwrap();
    assert!(!is_gone(directory.path()));
    let format = |index, erase| Format { erase, ..Format::new(index) }.encode(Nsid(1));
    assert!(admin(&host, format(1, SecureErase::UserData)).is_success());
    assert!(is_gone(directory.path()), "it is erased when the command completes");
    let after = host.identify_namespace(Nsid(1)).unwrap();
    assert_eq!((after.nsze.get(), after.flbas & 0x0f), (BLOCKS / 8, 1));
    assert_eq!((after.nguid, after.eui64, after.fpi), (before.nguid, before.eui64, 0x80));
    wait("the host's view", || host.namespace(Nsid(1)).ok().filter(|namespace| namespace.block_bytes() == 4096));
    assert!(reads_zeros(&host));
    fill(&host, 8 << 20);
    assert!(admin(&host, format(1, SecureErase::None)).is_success());
    wait("the new device", || reads_zeros(&host).then_some(()));
    host.disconnect();
    target.stop(Duration::from_secs(5));
    drop(target);
    let (_target, address) = start(directory.path());
    let host = connect(address);
    assert_eq!(host.identify_namespace(Nsid(1)).unwrap().nsze.get(), BLOCKS / 8);
    assert!(reads_zeros(&host));
}

/// Journals and checkpoints contain checksums and metadata of blocks.
// @test data.erase
#[test]
fn erased_data_are_not_in_the_file() {
    const BYTES: u64 = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let (_target, address) = start_with(directory.path(), |drive| drive.checksums = true);
    let host = connect(address);
    create(&host, BYTES >> 9);
    // Each format gives the namespace a new volume id.
    let tags = |volume| -> Vec<[u8; 16]> {
        let tag = |lba| Tag::new(VolumeId(volume), lba, &[OLD; 512], [0; 8]).0;
        (0..BYTES >> 9).step_by(100).map(tag).collect()
    };
    let found = |volume| {
        let image = std::fs::read(directory.path().join("drive.img")).unwrap();
        let used: Vec<&[u8]> = image.chunks(4096).filter(|chunk| *chunk != [0; 4096]).collect();
        let is_there = |tag: &[u8; 16]| used.iter().any(|chunk| chunk.windows(16).any(|window| window == tag));
        tags(volume).iter().filter(|tag| is_there(tag)).count()
    };
    let sanitize = |action| Sanitize::new(action).encode();
    let overwrite = Sanitize { overwrite_passes: 2, ..Sanitize::new(SanitizeAction::Overwrite) }.encode();
    let format = Format { erase: SecureErase::UserData, ..Format::new(0) }.encode(Nsid(1));
    for (volume, erase) in (0..).zip([format, sanitize(SanitizeAction::BlockErase), overwrite]) {
        fill(&host, BYTES);
        assert!(found(volume) > 0, "{volume}: the test looks for something else");
        assert!(admin(&host, erase).is_success());
        wait("sanitizing", || last_sanitize(&host));
        assert_eq!(found(volume), 0, "{volume}");
        assert!(is_gone(directory.path()));
        wait("the namespace", || host.namespace(Nsid(1)).ok().filter(|namespace| namespace.verify(0, 8).is_ok()));
    }
}

#[test]
fn an_encrypted_namespace_is_erased_with_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address) = start(directory.path());
    let host = connect(address);
    create(&host, BLOCKS);
    fill(&host, 4 << 20);
    let crypto_format = Format { erase: SecureErase::Cryptographic, ..Format::new(1) }.encode(Nsid(1));
    let crypto_erase = Sanitize::new(SanitizeAction::CryptoErase).encode();
    assert_eq!(host.identify().fna & 4, 0);
    assert!(admin(&host, crypto_format).is(Status::INVALID_FIELD), "nothing is encrypted");
    assert!(admin(&host, crypto_erase).is(Status::INVALID_FIELD));
    host.disconnect();
    target.stop(Duration::from_secs(5));
    drop(target);

    let key_file = directory.path().join("drive.key");
    std::fs::write(&key_file, format!("{}\n", "1f".repeat(32))).unwrap();
    let encrypted = |drive: &mut ManagedDrive| {
        drive.encryption = true;
        drive.key_file = Some(key_file.to_str().unwrap().to_owned());
    };
    let (target, address) = start_with(directory.path(), encrypted);
    let host = connect(address);
    assert_eq!(host.identify().fna & 4, 4);
    assert!(!is_gone(directory.path()), "what is there stays as it is");
    // Data from before encryption was enabled are overwritten.
    assert!(admin(&host, crypto_format).is_success());
    assert!(is_gone(directory.path()));
    wait("the host's view", || host.namespace(Nsid(1)).ok().filter(|namespace| namespace.block_bytes() == 4096));
    fill(&host, 4 << 20);
    assert!(is_gone(directory.path()), "the file has nothing of it as it is");
    let mut data = vec![0; 1 << 20];
    host.namespace(Nsid(1)).unwrap().read(0, &mut data).unwrap();
    assert!(data.iter().all(|&byte| byte == OLD));
    host.disconnect();
    target.stop(Duration::from_secs(5));
    drop(target);

    let (_target, address) = start_with(directory.path(), encrypted);
    let host = connect(address);
    host.namespace(Nsid(1)).unwrap().read(0, &mut data).unwrap();
    assert!(data.iter().all(|&byte| byte == OLD), "it is there after a restart");
    assert!(admin(&host, crypto_erase).is_success());
    let page = wait("sanitizing", || last_sanitize(&host));
    assert!(page.state() == SanitizeState::Succeeded && page.global_data_erased());
    wait("the namespace", || host.namespace(Nsid(1)).ok().filter(|namespace| namespace.verify(0, 8).is_ok()));
    assert!(reads_zeros(&host));
}

#[test]
fn an_encrypted_drive_does_not_open_without_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.img");
    let key = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Some(path.to_str().unwrap().to_owned())
    };
    let with = |key_file: Option<String>| {
        let mut drive = drive_rig::drive(&path, Some(64 << 20));
        drive.encryption = true;
        drive.key_file = key_file;
        try_serve(&drive)
    };
    let right = key("right", &[7; 32]);
    let target = with(right.clone()).unwrap();
    let host = connect(target.addresses()[0].1);
    create(&host, BLOCKS);
    host.disconnect();
    target.stop(Duration::from_secs(5));
    drop(target);
    for (key_file, words) in [
        (None, "name its file"),
        (key("wrong", &[8; 32]), "is not the one"),
        (key("short", b"abc"), "64 hexadecimal digits"),
        (Some("/nowhere/key".to_owned()), "cannot be read"),
    ] {
        let refused = wait("the lock of the file", || {
            let error = with(key_file.clone()).err()?.to_string();
            (!error.contains("in use") && !error.contains("lock")).then_some(error)
        });
        assert!(refused.contains(words), "{refused}");
    }
    wait("the lock of the file", || with(right.clone()).ok());
}

#[test]
fn a_sanitized_drive_has_no_data_and_refuses_commands_until_then() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address) = start(directory.path());
    let host = connect(address);
    let events = host.events();
    create(&host, BLOCKS);
    fill(&host, 8 << 20);
    assert_eq!(last_sanitize(&host).unwrap().state(), SanitizeState::Never);
    let overwrite = Sanitize { overwrite_passes: 16, pattern: 0x1234_5678, ..Sanitize::new(SanitizeAction::Overwrite) };
    assert!(admin(&host, overwrite.encode()).is_success());
    let page: SanitizeLog = log(&host, Lid::SANITIZE_STATUS);
    assert_eq!(page.state(), SanitizeState::InProgress, "16 passes over 64 MiB take longer than a command");
    assert!(admin(&host, Format::new(0).encode(Nsid(1))).is(Status::SANITIZE_IN_PROGRESS));
    assert!(admin(&host, overwrite.encode()).is(Status::SANITIZE_IN_PROGRESS));
    wait("the restriction", || {
        let namespace = host.namespace(Nsid(1)).unwrap();
        let read = namespace.read(0, &mut [0; 512]);
        let refused = matches!(read, Err(Error::Status { status, .. }) if status.is(Status::SANITIZE_IN_PROGRESS));
        (refused || last_sanitize(&host).is_some()).then_some(())
    });
    let page = wait("sanitizing", || last_sanitize(&host));
    assert_eq!((page.state(), page.passes(), page.sprog.get()), (SanitizeState::Succeeded, 16, 0xffff));
    wait("the event", || {
        let raised = events
            .try_iter()
            .any(|event| event == Event::Asynchronous { kind: 6, info: 1, log_page: Lid::SANITIZE_STATUS.0 });
        raised.then_some(())
    });
    assert!(is_gone(directory.path()));
    wait("the namespace", || host.namespace(Nsid(1)).ok().filter(|namespace| namespace.verify(0, 8).is_ok()));
    assert!(reads_zeros(&host));
    fill(&host, 8 << 20);
    assert!(admin(&host, Sanitize::new(SanitizeAction::BlockErase).encode()).is_success());
    let page = wait("sanitizing", || last_sanitize(&host));
    assert!(page.state() == SanitizeState::Succeeded && page.global_data_erased());
    assert!(is_gone(directory.path()));
}

#[test]
fn sanitizing_continues_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address) = start(directory.path());
    let host = connect(address);
    create(&host, BLOCKS);
    fill(&host, 8 << 20);
    let overwrite = Sanitize { overwrite_passes: 16, ..Sanitize::new(SanitizeAction::Overwrite) };
    assert!(admin(&host, overwrite.encode()).is_success());
    target.stop(Duration::ZERO);
    drop((host, target));
    let (_target, address) = start(directory.path());
    let host = connect(address);
    let page = wait("sanitizing", || last_sanitize(&host));
    assert_eq!((page.state(), page.passes()), (SanitizeState::Succeeded, 16));
    assert!(is_gone(directory.path()));
    assert!(reads_zeros(&host));
}

#[test]
fn telemetry_has_the_state_of_the_drive() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address) = start(directory.path());
    let host = connect(address);
    create(&host, BLOCKS);
    fill(&host, 1 << 20);
    let mut header = [0; 512];
    let create = GetLogPage { lsp: telemetry_lsp::CREATE, ..GetLogPage::new(Lid::TELEMETRY_HOST, 512) };
    let done = host.admin(create.encode(Nsid::ALL), AdminData::ToHost(&mut header), None).unwrap();
    assert!(done.status().is_success());
    let header = TelemetryHeader::read_from_bytes(&header).unwrap();
    let mut page = vec![0; usize::try_from(header.bytes_up_to(3)).unwrap()];
    host.log_page(Nsid::ALL, Lid::TELEMETRY_HOST.0, 0, &mut page).unwrap();
    let text = |from: u64, to: u64| {
        let area = &page[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()];
        String::from_utf8(area.iter().copied().take_while(|&byte| byte != 0).collect()).unwrap()
    };
    let [first, second, third] = [1, 2, 3].map(|area| header.bytes_up_to(area));
    assert!(text(512, first).contains(r#""capacity-bytes":67108864"#), "{}", text(512, first));
    assert!(text(first, second).contains(r#""allocated-extents":4"#), "{}", text(first, second));
    assert!(text(second, third).contains(r#""errors""#));
}

/// A drive always deallocates in a sanitize: with No-Deallocate it refuses the command, or executes
/// it and reports that.
#[test]
fn no_deallocate_is_refused_or_executed_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address) = start(directory.path());
    let host = connect(address);
    create(&host, BLOCKS);
    fill(&host, 1 << 20);
    let page: SanitizeLog = log(&host, Lid::SANITIZE_STATUS);
    let unknown = SanitizeLog::UNKNOWN_SECONDS;
    assert_eq!(
        (page.eto.get(), page.etbe.get(), page.etbend.get()),
        (unknown, unknown, unknown),
        "nothing was measured"
    );
    let keep = Sanitize { no_deallocate: true, ..Sanitize::new(SanitizeAction::BlockErase) };
    assert!(admin(&host, keep.encode()).is(Status::INVALID_FIELD));
    let feature = u32::from(Fid::SANITIZE_CONFIG.0);
    let set = |value| admin(&host, Sqe::new(opcode::SET_FEATURES).with_cdw(10, feature).with_cdw(11, value));
    let mode = || {
        let get = Sqe::new(opcode::GET_FEATURES).with_cdw(10, feature);
        host.admin(get, AdminData::None, None).unwrap().result() & 0xffff_ffff
    };
    assert!(set(2).is(Status::INVALID_FIELD));
    assert_eq!(mode(), 0);
    assert!(set(1).is_success());
    assert_eq!(mode(), 1);
    assert!(admin(&host, keep.encode()).is_success());
    let page = wait("sanitizing", || last_sanitize(&host));
    assert_eq!(page.state(), SanitizeState::SucceededDeallocated);
    assert!((1..60).contains(&page.etbe.get()) && page.eto.get() == unknown, "{page:?}");
    assert!(is_gone(directory.path()));
    assert!(set(0).is_success() && admin(&host, keep.encode()).is(Status::INVALID_FIELD));
}

/// Changes of namespaces are announced to every controller that enables the event, even if they are
/// not attached.
#[test]
fn changes_of_allocated_namespaces_are_announced() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address) = start(directory.path());
    let host = connect(address);
    let events = host.events();
    let config = AsyncEventConfig::NAMESPACE_ATTRIBUTE.with(AsyncEventConfig::ALLOCATED_NAMESPACE_ATTRIBUTE);
    assert_ne!(host.identify().oaes.get() & AsyncEventConfig::ALLOCATED_NAMESPACE_ATTRIBUTE.0, 0);
    let set = Sqe::new(opcode::SET_FEATURES).with_cdw(10, Fid::ASYNC_EVENT_CONFIG.0.into()).with_cdw(11, config.0);
    assert!(admin(&host, set).is_success());
    // The initiator reads the log after every event, so another controller is used for the list.
    let other = connect(address);
    let changed = || log::<ChangedNamespaces>(&other, Lid::CHANGED_ALLOCATED_NAMESPACES).iter().collect::<Vec<_>>();
    let lid = Lid::CHANGED_ALLOCATED_NAMESPACES.0;
    let told = || {
        let event = Event::Asynchronous { kind: 2, info: 9, log_page: lid };
        wait("the event", || events.try_iter().any(|seen| seen == event).then_some(()));
    };
    assert_eq!(changed(), []);
    let mut create = NewNamespace::new(BLOCKS);
    create.nmic = 0;
    let manage = |select| NamespaceManagement { select, csi: ebof_nvme::identify::Csi::NVM };
    let data = AdminData::FromHost(create.as_bytes());
    let done = host.admin(manage(ManagementSelect::Create).encode(Nsid::NONE), data, None).unwrap();
    assert!(done.status().is_success());
    told();
    assert_eq!((changed(), changed()), (vec![Nsid(1)], vec![]));
    assert!(admin(&host, Format::new(1).encode(Nsid(1))).is_success());
    told();
    assert_eq!(changed(), [Nsid(1)]);
    assert!(admin(&host, manage(ManagementSelect::Delete).encode(Nsid(1))).is_success());
    told();
    assert_eq!(changed(), [Nsid(1)]);
}
