//! A drive whose backing device fails: hosts get the correct statuses, a warning, an event and log
//! entries, and the target's log has a line for each fault. Everything works again, without a
//! restart, when the cause is gone.

use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, Once};
use std::time::Duration;

use ebof_initiator::{AdminData, Controller, Event, Namespace};
use ebof_manage::Target as _;
use ebof_manage::config::AnaOnFailure;
use ebof_nvme::feature::{AsyncEventConfig, EnduranceGroupEvents, Fid};
use ebof_nvme::identify::Csi;
use ebof_nvme::log::{
    AnaGroups, AnaState, EventKind, GetLogPage, Lid, PersistentEvent, PersistentEvents, SelfTestCode, SelfTestLog,
    SelfTestResult, TelemetryHeader, critical_warning, endurance_warning, persistent_event, persistent_event_lsp,
    read_endurance_aggregate,
};
use ebof_nvme::media::SelfTest;
use ebof_nvme::namespace::{ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nsid, Sqe, Status};
use ebof_server::{Settings, Target};
use zerocopy::{FromBytes, IntoBytes};

use crate::config;
use crate::drive_rig::{self, LoopDevice, SmallFileSystem, connect, create, errors, health, start, status, wait};

/// The log of the targets in this process.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Tee;

impl Write for Tee {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// From now on what the targets log can be looked at.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Tee).init());
}

/// The number of lines with this file and this text.
fn logged(backing: &Path, words: &str) -> usize {
    lines_with(&[backing.to_str().unwrap(), words])
}

/// How many lines have all of these words.
pub(crate) fn lines_with(words: &[&str]) -> usize {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    log.lines().filter(|line| words.iter().all(|words| line.contains(words))).count()
}

/// Enables all health events of the controller.
fn watch(host: &Controller) -> std::sync::mpsc::Receiver<Event> {
    let config = AsyncEventConfig::NAMESPACE_ATTRIBUTE
        .with(AsyncEventConfig::SPARE)
        .with(AsyncEventConfig::DEGRADED)
        .with(AsyncEventConfig::READ_ONLY);
    let set = Sqe::new(admin::SET_FEATURES).with_cdw(10, Fid::ASYNC_EVENT_CONFIG.0.into()).with_cdw(11, config.0);
    assert!(drive_rig::admin(host, set).is_success());
    host.events()
}

/// Another controller, with events for the endurance group.
fn group_watcher(address: std::net::SocketAddr) -> (Controller, std::sync::mpsc::Receiver<Event>) {
    let host = drive_rig::connect_as(address, drive_rig::BOB);
    let events = AsyncEventConfig::NAMESPACE_ATTRIBUTE.with(AsyncEventConfig::ENDURANCE_GROUP);
    let warnings = EnduranceGroupEvents { group: 1, warnings: endurance_warning::SPARE };
    for (fid, value) in [(Fid::ASYNC_EVENT_CONFIG, events.0), (Fid::ENDURANCE_GROUP_EVENT, warnings.encode())] {
        let set = Sqe::new(admin::SET_FEATURES).with_cdw(10, fid.0.into()).with_cdw(11, value);
        assert!(drive_rig::admin(&host, set).is_success());
    }
    let get = Sqe::new(admin::GET_FEATURES).with_cdw(10, Fid::ENDURANCE_GROUP_EVENT.0.into()).with_cdw(11, 1);
    let current = host.admin(get, AdminData::None, None).unwrap().result();
    assert_eq!(current & 0xffff_ffff, u64::from(warnings.encode()));
    assert_eq!(groups(&host), [0_u16; 0]);
    let told = host.events();
    (host, told)
}

/// Endurance groups with unread events.
fn groups(host: &Controller) -> Vec<u16> {
    let mut page = [0; 12];
    let get = GetLogPage::new(Lid::ENDURANCE_GROUP_AGGREGATE, 12).encode(Nsid::NONE);
    assert!(host.admin(get, AdminData::ToHost(&mut page), None).unwrap().status().is_success());
    read_endurance_aggregate(&page).unwrap()
}

/// Waits for a health event.
fn raised(events: &std::sync::mpsc::Receiver<Event>, wanted: u8) {
    let event = Event::Asynchronous { kind: 1, info: wanted, log_page: Lid::SMART_HEALTH.0 };
    wait("the event", || events.try_iter().any(|seen| seen == event).then_some(()));
}

/// Warnings in the Persistent Event Log.
fn warnings(host: &Controller) -> usize {
    let mut page = vec![0; 64 << 10];
    let act = |lsp| GetLogPage { lsp, ..GetLogPage::new(Lid::PERSISTENT_EVENT, 64 << 10) }.encode(Nsid::NONE);
    let read = act(persistent_event_lsp::ESTABLISH);
    assert!(host.admin(read, AdminData::ToHost(&mut page), None).unwrap().status().is_success());
    let release = act(persistent_event_lsp::RELEASE);
    assert!(host.admin(release, AdminData::ToHost(&mut [0; 64 << 10]), None).unwrap().status().is_success());
    let (_, events) = PersistentEvents::new(&page).unwrap();
    let is_one = |event: &PersistentEvent<'_>| {
        event.header.etype == EventKind::HARDWARE_ERROR.0
            && event.data[..2] == persistent_event::hardware_error::CRITICAL_WARNING.to_le_bytes()
    };
    events.filter(is_one).count()
}

const BLOCKS: u64 = 192 << 11;
const MIB: usize = 1 << 20;

fn write(namespace: &Namespace, mib: u64, byte: u8) -> Status {
    status(namespace.write(mib << 11, &vec![byte; MIB], false))
}

fn reads(namespace: &Namespace, mib: u64, byte: u8) -> bool {
    let mut data = vec![!byte; MIB];
    namespace.read(mib << 11, &mut data).unwrap();
    data == vec![byte; MIB]
}

#[test]
fn a_full_file_system_is_reported_until_there_is_room() {
    let Some(small) = SmallFileSystem::new(100) else {
        println!("SKIPPED: no permission to mount a small file system");
        return;
    };
    listen();
    let backing = small.path().join("drive.img");
    let (target, address) = start(&backing, Some(256 << 20));
    let host = connect(address);
    let events = watch(&host);
    let namespace = host.namespace(create(&host, BLOCKS)).unwrap();
    let (other, group_events) = group_watcher(address);
    let full = (0..192).find(|&mib| write(&namespace, mib, 7) != Status::SUCCESS).unwrap();
    assert!(full > 20, "{full} MiB found room");
    for _ in 0..200 {
        let refused = write(&namespace, full, 7);
        assert!(refused.is(Status::CAPACITY_EXCEEDED), "{refused}");
    }
    raised(&events, 2);
    let event = Event::Asynchronous { kind: 2, info: 6, log_page: Lid::ENDURANCE_GROUP_AGGREGATE.0 };
    wait("the event of the group", || group_events.try_iter().any(|seen| seen == event).then_some(()));
    assert_eq!(groups(&other), [1]);
    let read = GetLogPage { lsi: 1, ..GetLogPage::new(Lid::ENDURANCE_GROUP, 512) }.encode(Nsid::NONE);
    assert!(other.admin(read, AdminData::ToHost(&mut [0; 512]), None).unwrap().status().is_success());
    assert_eq!(groups(&other), [0_u16; 0], "who has read about the group knows");
    let page = health(&host);
    assert_eq!((page.cw & critical_warning::SPARE, page.avsp), (critical_warning::SPARE, 0));
    let newest = errors(&host, 1)[0];
    assert!(newest.status().is(Status::CAPACITY_EXCEEDED) && newest.lba.get() == full << 11, "{newest:?}");
    assert!(page.neile.get() >= 201);
    assert_eq!(logged(&backing, "device error"), 1, "one line, not one for each command");
    assert_eq!(logged(&backing, "there is no space below the drive"), 1);
    // Mapped blocks can be read and written.
    assert!(reads(&namespace, 0, 7) && write(&namespace, 1, 8).is_success());
    assert_eq!(logged(&backing, "again"), 0);

    small.resize(400);
    wait("the space to be seen", || (health(&host).cw == 0).then_some(()));
    assert_eq!(logged(&backing, "there is space below the drive again"), 1);
    for mib in full..192 {
        assert_eq!(write(&namespace, mib, 9), Status::SUCCESS);
    }
    assert_eq!((warnings(&host), health(&host).avsp), (1, 100));
    host.disconnect();
    target.stop(Duration::from_secs(5));
    drop((target, namespace));
    let (_target, address) = start(&backing, None);
    let host = connect(address);
    let namespace = host.namespace(Nsid(1)).unwrap();
    assert!(reads(&namespace, 0, 7) && reads(&namespace, 1, 8) && reads(&namespace, 191, 9));
    assert_eq!(warnings(&host), 1, "it is remembered");
}

#[test]
fn a_truncated_file_is_reported_until_it_is_restored() {
    listen();
    let directory = tempfile::tempdir().unwrap();
    let backing = directory.path().join("drive.img");
    let (target, address) = start(&backing, Some(256 << 20));
    let host = connect(address);
    let events = watch(&host);
    let namespace = host.namespace(create(&host, BLOCKS)).unwrap();
    for mib in 0..16 {
        assert_eq!(write(&namespace, mib, 7), Status::SUCCESS);
    }
    let whole = std::fs::metadata(&backing).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&backing).unwrap();
    file.set_len(whole - (256 << 20) + (8 << 20)).unwrap();
    assert!(reads(&namespace, 0, 7));
    for _ in 0..100 {
        let refused = status(namespace.read(8 << 11, &mut [0; MIB]));
        assert!(refused.is(Status::UNRECOVERED_READ_ERROR), "{refused}");
    }
    raised(&events, 0);
    let page = health(&host);
    assert_eq!((page.cw, page.mdie.get()), (critical_warning::DEGRADED, 100));
    let newest = errors(&host, 1)[0];
    assert!(newest.status().is(Status::UNRECOVERED_READ_ERROR) && newest.lba.get() == 8 << 11, "{newest:?}");
    assert_eq!((logged(&backing, "device error"), logged(&backing, "reading fails below the drive")), (1, 1));

    file.set_len(whole).unwrap();
    wait("the file to be seen", || (health(&host).cw == 0).then_some(()));
    assert_eq!(logged(&backing, "can be read again"), 1);
    assert!(reads(&namespace, 8, 0), "what was cut off is gone, and no error any more");
    assert!(write(&namespace, 8, 9).is_success() && reads(&namespace, 8, 9) && reads(&namespace, 7, 7));
    host.disconnect();
    target.stop(Duration::from_secs(5));
    drop((target, namespace));
    let (_target, address) = start(&backing, None);
    assert!(reads(&connect(address).namespace(Nsid(1)).unwrap(), 8, 9));
}

/// Telemetry Controller-Initiated as it is now, with data areas 1 to 3; the event is kept.
fn telemetry(host: &Controller) -> (TelemetryHeader, String) {
    let read = |bytes: u64| {
        let mut page = vec![0; usize::try_from(bytes).unwrap()];
        let get = GetLogPage { retain_event: true, ..GetLogPage::new(Lid::TELEMETRY_CONTROLLER, bytes) };
        let done = host.admin(get.encode(Nsid::ALL), AdminData::ToHost(&mut page), None).unwrap();
        assert!(done.status().is_success(), "{}", done.status());
        page
    };
    let header = TelemetryHeader::read_from_bytes(&read(512)).unwrap();
    let page = read(header.bytes_up_to(3));
    (header, String::from_utf8_lossy(&page[512..]).into_owned())
}

#[test]
fn a_self_test_finds_unreadable_blocks_and_the_drive_captures_telemetry() {
    let directory = tempfile::tempdir().unwrap();
    let backing = directory.path().join("drive.img");
    let (_target, address) = start(&backing, Some(256 << 20));
    let host = connect(address);
    let namespace = host.namespace(create(&host, BLOCKS)).unwrap();
    for mib in 0..16 {
        assert_eq!(write(&namespace, mib, 7), Status::SUCCESS);
    }
    assert_eq!(telemetry(&host).0.tcda, 0, "nothing has happened");
    let whole = std::fs::metadata(&backing).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&backing).unwrap();
    file.set_len(whole - (256 << 20) + (8 << 20)).unwrap();
    assert!(drive_rig::admin(&host, SelfTest { code: SelfTestCode::EXTENDED }.encode(Nsid::ALL)).is_success());
    let page = wait("the self-test", || {
        let page: SelfTestLog = drive_rig::log(&host, Lid::DEVICE_SELF_TEST);
        page.current().is_none().then_some(page)
    });
    let found = &page.results[0];
    assert_eq!((found.code(), found.result()), (SelfTestCode::EXTENDED, SelfTestResult::FAILED_SEGMENT));
    let status = Status(u16::from(found.scode) | u16::from(found.stype) << 8);
    let lba = found.flba.get();
    assert_eq!((found.nsid.get(), lba, status), (1, 8 << 11, Status::UNRECOVERED_READ_ERROR), "{found:?}");

    let (header, text) = wait("telemetry", || Some(telemetry(&host)).filter(|(header, _)| header.tcda == 1));
    assert_eq!((header.lpi, header.tcdgn), (Lid::TELEMETRY_CONTROLLER.0, 1));
    assert!(text.contains(r#""capacity-bytes":268435456"#) && text.contains(r#""degraded":true"#), "{text}");
    // Reading it without Retain Asynchronous Event clears the event.
    host.log_page(Nsid::ALL, Lid::TELEMETRY_CONTROLLER.0, 0, &mut [0; 512]).unwrap();
    assert_eq!(telemetry(&host).0.tcda, 0);

    file.set_len(whole).unwrap();
    wait("the file to be seen", || (health(&host).cw == 0).then_some(()));
    let other = drive_rig::connect_as(address, drive_rig::BOB);
    let events = other.events();
    let config = AsyncEventConfig::NAMESPACE_ATTRIBUTE.with(AsyncEventConfig::TELEMETRY_LOG);
    let set = Sqe::new(admin::SET_FEATURES).with_cdw(10, Fid::ASYNC_EVENT_CONFIG.0.into()).with_cdw(11, config.0);
    assert!(drive_rig::admin(&other, set).is_success());
    file.set_len(whole - (256 << 20) + (8 << 20)).unwrap();
    assert!(drive_rig::status(namespace.read(15 << 11, &mut [0; MIB])).is(Status::UNRECOVERED_READ_ERROR));
    let event = Event::Asynchronous { kind: 2, info: 2, log_page: Lid::TELEMETRY_CONTROLLER.0 };
    wait("the event", || events.try_iter().any(|seen| seen == event).then_some(()));
    assert_eq!(telemetry(&host).0.tcdgn, 2);
}

/// The states of the ANA groups that a controller is told.
fn ana_states(host: &Controller) -> Vec<AnaState> {
    let mut page = vec![0; 4096];
    let get = GetLogPage::new(Lid::ANA, 4096).encode(Nsid::ALL);
    assert!(host.admin(get, AdminData::ToHost(&mut page), None).unwrap().status().is_success());
    let (_, groups) = AnaGroups::new(&page).unwrap();
    groups.map(|group| group.header.state()).collect()
}

// @test wire.ana-on-failure
#[test]
fn the_paths_to_a_drive_that_fails_are_worse_until_it_works() {
    listen();
    let directory = tempfile::tempdir().unwrap();
    let backing = directory.path().join("drive.img");
    let mut drive = drive_rig::drive(&backing, Some(256 << 20));
    drive.ana_on_failure = AnaOnFailure::NonOptimized;
    let (target, address) = drive_rig::serve(&drive);
    let host = connect(address);
    let config = AsyncEventConfig::NAMESPACE_ATTRIBUTE.with(AsyncEventConfig::ANA_CHANGE);
    let set = Sqe::new(admin::SET_FEATURES).with_cdw(10, Fid::ASYNC_EVENT_CONFIG.0.into()).with_cdw(11, config.0);
    assert!(drive_rig::admin(&host, set).is_success());
    let events = host.events();
    let namespace = host.namespace(create(&host, BLOCKS)).unwrap();
    for mib in 0..16 {
        assert_eq!(write(&namespace, mib, 7), Status::SUCCESS);
    }
    assert_eq!(ana_states(&host), [AnaState::OPTIMIZED]);
    events.try_iter().for_each(drop);
    let whole = std::fs::metadata(&backing).unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&backing).unwrap();
    file.set_len(whole - (256 << 20) + (8 << 20)).unwrap();
    assert!(status(namespace.read(8 << 11, &mut [0; MIB])).is(Status::UNRECOVERED_READ_ERROR));
    let change = Event::Asynchronous { kind: 2, info: 3, log_page: Lid::ANA.0 };
    wait("the event", || events.try_iter().any(|seen| seen == change).then_some(()));
    assert_eq!(ana_states(&host), [AnaState::NON_OPTIMIZED]);
    assert!(reads(&namespace, 0, 7), "what can be read is read");
    assert_eq!(target.status().drives[0].ana_limit.as_deref(), Some("non-optimized"));
    file.set_len(whole).unwrap();
    wait("the file to be seen", || (ana_states(&host) == [AnaState::OPTIMIZED]).then_some(()));
    assert_eq!(target.status().drives[0].ana_limit, None);
    let lines = ["all paths to it are non-optimized", "in the states of their ports again"];
    // The line follows what hosts are told.
    wait("the log to tell it", || (lines.map(|line| lines_with(&[line])) == [1, 1]).then_some(()));
}

/// A loop device whose file has no space, and then is truncated, fails like a disk that cannot
/// write and cannot read.
#[test]
fn a_failing_block_device_is_reported_until_it_works() {
    let Some(small) = SmallFileSystem::new(100) else {
        println!("SKIPPED: no permission to mount a small file system");
        return;
    };
    let file = small.path().join("disk.img");
    let Some(device) = LoopDevice::new(&file, 400 << 20) else {
        println!("SKIPPED: no permission to make a loop device");
        return;
    };
    listen();
    let (target, address) = start(device.path(), None);
    let host = connect(address);
    let events = watch(&host);
    let namespace = host.namespace(create(&host, BLOCKS)).unwrap();
    let full = (0..192).find(|&mib| write(&namespace, mib, 7) != Status::SUCCESS).unwrap();
    assert!(write(&namespace, full, 7).is(Status::CAPACITY_EXCEEDED));
    raised(&events, 2);
    assert_eq!(health(&host).cw & critical_warning::SPARE, critical_warning::SPARE);
    assert!(errors(&host, 1)[0].status().is(Status::CAPACITY_EXCEEDED));
    assert!(reads(&namespace, 0, 7));
    small.resize(600);
    wait("the space to be seen", || (health(&host).cw == 0).then_some(()));
    for mib in full..192 {
        assert_eq!(write(&namespace, mib, 9), Status::SUCCESS);
    }
    host.disconnect();
    target.stop(Duration::from_secs(5));
    drop((target, namespace));

    let (_target, address) = start(device.path(), None);
    let host = connect(address);
    let events = watch(&host);
    let namespace = host.namespace(Nsid(1)).unwrap();
    assert!(reads(&namespace, 0, 7) && reads(&namespace, full, 9) && reads(&namespace, 191, 9));
    let cut = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    cut.set_len(100 << 20).unwrap();
    let refused = status(namespace.read(191 << 11, &mut [0; MIB]));
    assert!(refused.is(Status::UNRECOVERED_READ_ERROR), "{refused}");
    raised(&events, 0);
    assert_eq!(health(&host).cw, critical_warning::DEGRADED);
    assert!(reads(&namespace, 0, 7));
    cut.set_len(400 << 20).unwrap();
    wait("the disk to be seen", || (health(&host).cw == 0).then_some(()));
    assert!(write(&namespace, 191, 5).is_success() && reads(&namespace, 191, 5));
}

#[test]
fn overwriting_remains_of_a_drive_causes_a_warning() {
    listen();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("drive.img");
    let (target, _) = start(&file, Some(64 << 20));
    target.stop(Duration::from_secs(5));
    drop(target);
    let image = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &[0; 8192], 0).unwrap();
    drop(image);
    let config = config::one_subsystem([file.to_str().unwrap()]);
    let settings = || Settings { threads: Some(1), pin: false, ..Settings::default() };
    let target = wait("the lock of the file", || Target::start(config.clone(), settings()).ok());
    assert_eq!(logged(&file, "of a drive is there, whose superblocks are gone"), 1);
    target.stop(Duration::from_secs(5));
}

#[test]
fn a_host_that_writes_beyond_a_namespace_s_capacity_does_not_fill_the_log() {
    listen();
    let directory = tempfile::tempdir().unwrap();
    let mut drive = drive_rig::drive(&directory.path().join("drive.img"), Some(64 << 20));
    drive.name = "small".to_owned();
    let (_target, address) = drive_rig::serve(&drive);
    let host = connect(address);
    let command = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::NVM };
    let mut wanted = NewNamespace::new(32 << 11);
    wanted.ncap = (1 << 11).into();
    let cqe = host.admin(command.encode(Nsid::NONE), AdminData::FromHost(wanted.as_bytes()), None).unwrap();
    assert!(cqe.status().is_success(), "{}", cqe.status());
    let namespace = wait("the namespace", || host.namespace(Nsid(1)).ok());
    assert!(write(&namespace, 0, 1).is_success());
    for _ in 0..50 {
        assert!(write(&namespace, 16, 1).is(Status::CAPACITY_EXCEEDED));
    }
    let lines = lines_with(&["drive=\"small\"", "has all that it may have"]);
    assert!((1..=5).contains(&lines), "{lines} lines");
}
