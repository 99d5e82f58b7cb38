//! Log pages of drives against golden bytes, and their decoders against any bytes of a peer.

use ebof_nvme::identify::Csi;
use ebof_nvme::log::persistent_event::{ChangeNamespaceEvent, FirmwareCommitEvent, SetFeatureEvent, hardware_error};
use ebof_nvme::log::{
    EnduranceGroupInformation, EventKind, GetLogPage, Lid, PersistentEventHeader, PersistentEvents, ReservationEvent,
    ReservationNotification, SanitizeLog, SanitizeState, SelfTestCode, SelfTestEntry, SelfTestLog, SelfTestResult,
    TelemetryHeader, endurance_aggregate, endurance_warning, lba_status_log, persistent_event_lsp, push_event,
    read_endurance_aggregate, telemetry_lsp, telemetry_scope,
};
use ebof_nvme::{ControllerId, Nqn, Nsid, Sqe, Status};
use ebof_testkit::hex;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

const PERSISTENT: &str = include_str!("../../testdata/persistent_event_log.hex");
const SELF_TEST: &str = include_str!("../../testdata/self_test_log.hex");
const ENDURANCE: &str = include_str!("../../testdata/endurance_group.hex");
const SANITIZE: &str = include_str!("../../testdata/sanitize_log.hex");
const TELEMETRY: &str = include_str!("../../testdata/telemetry_header.hex");

fn persistent_log() -> Vec<u8> {
    let commit = FirmwareCommitEvent {
        ofwrev: *b"1.0     ",
        nfwrev: *b"1.1     ",
        fwca: 3,
        fwslot: 2,
        sct: Status::INVALID_FIRMWARE_IMAGE.code_type(),
        sc: Status::INVALID_FIRMWARE_IMAGE.code(),
        ..FirmwareCommitEvent::default()
    };
    let created = ChangeNamespaceEvent {
        nsze: 0x1000.into(),
        ncap: 0x800.into(),
        flbas: 1,
        dps: 2,
        nmic: 1,
        anagrpid: 3.into(),
        nvmsetid: 4.into(),
        endgid: 5.into(),
        nsid: 6.into(),
        ..ChangeNamespaceEvent::default()
    };
    let mut events = Vec::new();
    push_event(&mut events, EventKind::FIRMWARE_COMMIT, ControllerId(1), 2 << 48 | 1000, commit.as_bytes());
    push_event(&mut events, EventKind::CHANGE_NAMESPACE, ControllerId(2), 2 << 48 | 2000, created.as_bytes());
    let mut header = PersistentEventHeader::new(2, events.len() as u64);
    header.tstmp = 0x0002_018a_3b4f_2000.into();
    header.poh = 333.into();
    header.pcc = 7.into();
    header.vid = 0x0201.into();
    header.ssvid = 0x0403.into();
    header.gnum = 9.into();
    header.rci = (2 | 1 << 16 | 1 << 18).into();
    header.set_subsystem("EB01", "ebof drive", &Nqn::parse("nqn.2014-08.org.example:drive0").expect("a legal NQN"));
    header.set_supported([EventKind::FIRMWARE_COMMIT, EventKind::CHANGE_NAMESPACE]);
    [header.as_bytes(), &events].concat()
}

#[test]
fn a_persistent_event_log_encodes_to_and_decodes_from_the_golden_bytes() {
    let golden = hex::read(PERSISTENT);
    assert_eq!(persistent_log(), golden);
    let (header, events) = PersistentEvents::new(&golden).unwrap();
    assert_eq!((header.tne.get(), header.tll.get(), header.milliseconds()), (2, 630, 0x018a_3b4f_2000));
    assert_eq!(header.supported().collect::<Vec<_>>(), [EventKind(2), EventKind(6)]);
    assert!(header.context_existed() && header.supports(EventKind(6)) && !header.supports(EventKind(255)));
    assert_eq!(header.serial_number(), "EB01");
    assert_eq!(header.model_number(), "ebof drive");
    assert_eq!(header.subsystem_nqn(), "nqn.2014-08.org.example:drive0");
    let events: Vec<_> = events.collect();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].header.kind().name(), Some("Firmware Commit"));
    let commit = FirmwareCommitEvent::read_from_bytes(events[0].data).unwrap();
    assert_eq!(commit.status(), Status::INVALID_FIRMWARE_IMAGE);
    assert_eq!((commit.old_revision().to_string(), commit.new_revision().to_string()), ("1.0".into(), "1.1".into()));
    assert_eq!((events[1].header.milliseconds(), events[1].header.cntlid.get()), (2000, 2));
    let created = ChangeNamespaceEvent::read_from_bytes(events[1].data).unwrap();
    assert_eq!((created.nsid.get(), created.ncap.get(), created.endgid.get()), (6, 0x800, 5));
}

#[test]
fn events_with_vendor_data_and_longer_headers_are_decoded() {
    let mut log = persistent_log();
    // The first event: two more header bytes, three of the vendor's, five of data; the log says 500
    // bytes of header.
    log.splice(512.., [&[0xde, 1, 23][..], &[0; 17], &[3, 0, 8, 0, 9, 9], b"vendorXX"].concat());
    log[8..16].copy_from_slice(&546_u64.to_le_bytes());
    let event = PersistentEvents::new(&log).unwrap().1.next().unwrap();
    assert_eq!((event.vendor, event.data), (&b"ven"[..], &b"dorXX"[..]));
    assert_eq!(event.header.kind(), EventKind::VENDOR);
    log[8..16].copy_from_slice(&545_u64.to_le_bytes());
    assert_eq!(PersistentEvents::new(&log).unwrap().1.count(), 0);
}

#[test]
fn a_set_feature_event_has_the_lengths_of_its_data() {
    let event = SetFeatureEvent::new(3, true, 16);
    assert_eq!(event.as_bytes(), [0x0b, 0, 16, 0]);
    assert_eq!((event.command_dwords(), event.has_completion(), event.data_bytes()), (3, true, 16));
    assert_eq!(hardware_error::name(8), Some("unsafe shutdown"));
}

#[test]
fn a_self_test_log_encodes_to_and_decodes_from_the_golden_bytes() {
    let golden = hex::read(SELF_TEST);
    let mut log = SelfTestLog::new();
    assert_eq!((log.current(), log.results().count()), (None, 0));
    log.set_current(Some((SelfTestCode::EXTENDED, 25)));
    log.results[0] = SelfTestEntry::new(SelfTestCode::SHORT, SelfTestResult::FAILED_SEGMENT, 264);
    log.results[0].snum = 2;
    log.results[0].set_failure(Nsid(3), 0x40000, Status::UNRECOVERED_READ_ERROR);
    log.results[1] = SelfTestEntry::new(SelfTestCode::SHORT, SelfTestResult::PASSED, 263);
    assert_eq!(log.as_bytes(), golden);
    let read = SelfTestLog::read_from_bytes(&golden).unwrap();
    assert_eq!(read.current(), Some((SelfTestCode::EXTENDED, 25)));
    let results: Vec<_> = read.results().collect();
    assert_eq!(
        (results.len(), results[0].code().name(), results[0].result().name()),
        (2, Some("short"), Some("failed"))
    );
    assert_eq!((results[0].failing_nsid(), results[0].failing_lba()), (Some(Nsid(3)), Some(0x40000)));
    assert_eq!(results[0].failing_status(), Some(Status::UNRECOVERED_READ_ERROR));
    assert_eq!((results[1].failing_nsid(), results[1].failing_lba(), results[1].failing_status()), (None, None, None));
}

#[test]
fn an_endurance_group_encodes_to_and_decodes_from_the_golden_bytes() {
    let golden = hex::read(ENDURANCE);
    let group = EnduranceGroupInformation {
        cw: endurance_warning::DEGRADED,
        egfeat: 1,
        avsp: 99,
        avspt: 10,
        pused: 5,
        did: 0x102.into(),
        ee: 0x11.into(),
        dur: 0x12.into(),
        duw: 0x13.into(),
        muw: 0x14.into(),
        hrc: 0x15.into(),
        hwc: 0x16.into(),
        mdie: 0x17.into(),
        neile: 0x18.into(),
        tegcap: 0x19.into(),
        uegcap: 0x1a.into(),
        ..EnduranceGroupInformation::default()
    };
    assert_eq!(group.as_bytes(), golden);
    assert_eq!(EnduranceGroupInformation::read_from_bytes(&golden).unwrap(), group);
    assert_eq!([0, 1, 1_000_000_001].map(EnduranceGroupInformation::data_units), [0, 1, 2]);
    let aggregate = endurance_aggregate([0, 2, 513]);
    assert_eq!(aggregate, [2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 2]);
    assert_eq!(read_endurance_aggregate(&aggregate), Some(vec![2, 513]));
    assert_eq!(read_endurance_aggregate(&aggregate[..11]), Some(vec![2]));
    assert_eq!(read_endurance_aggregate(&[0xff; 9]), Some(vec![]));
    assert_eq!(read_endurance_aggregate(&[0xff; 7]), None);
}

#[test]
fn a_sanitize_log_encodes_to_and_decodes_from_the_golden_bytes() {
    let golden = hex::read(SANITIZE);
    let never = SanitizeLog::new();
    assert_eq!((never.state(), never.percent(), never.eto.get()), (SanitizeState::Never, None, u32::MAX));
    let mut log = SanitizeLog {
        sprog: 0x4000.into(),
        scdw10: 0x33.into(),
        eto: 1.into(),
        etbe: 2.into(),
        etce: 3.into(),
        etond: 4.into(),
        etbend: 5.into(),
        etcend: 6.into(),
        etpvds: 7.into(),
        ssi: 1,
        ..SanitizeLog::new()
    };
    log.set_status(SanitizeState::InProgress, 2, false);
    assert_eq!(log.as_bytes(), golden);
    let read = SanitizeLog::read_from_bytes(&golden).unwrap();
    assert_eq!((read.state(), read.passes(), read.percent()), (SanitizeState::InProgress, 2, Some(25)));
    log.set_status(SanitizeState::SucceededDeallocated, 255, true);
    assert_eq!((log.sstat.get(), log.passes(), log.global_data_erased()), (0x01fc, 31, true));
    let hostile = SanitizeLog::read_from_bytes(&[0xff; 512]).unwrap();
    assert_eq!((hostile.state(), hostile.percent()), (SanitizeState::Reserved(7), None));
}

#[test]
fn a_telemetry_header_encodes_to_and_decodes_from_the_golden_bytes() {
    let golden = hex::read(TELEMETRY);
    let mut header = TelemetryHeader::new(Lid::TELEMETRY_HOST, [2, 5, 5], 9);
    header.ieee = [1, 2, 3];
    header.ths = telemetry_scope::SUBSYSTEM;
    header.thdgn_or_tcs = 0x21;
    header.tcda = 1;
    header.tcdgn = 0x22;
    header.rident[..3].copy_from_slice(b"abc");
    assert_eq!(header.as_bytes(), golden);
    assert_eq!([0, 1, 3, 4].map(|area| header.bytes_up_to(area)), [512, 1536, 3072, 5120]);
}

#[test]
fn a_reservation_notification_has_the_layout_of_the_specification() {
    let page = ReservationNotification::new(0x0102, ReservationEvent::ReservationPreempted, Nsid(5), 300);
    assert_eq!(page.as_bytes()[..16], [2, 1, 0, 0, 0, 0, 0, 0, 3, 255, 0, 0, 5, 0, 0, 0]);
    assert_eq!(page.kind().map(ReservationEvent::name), Some("reservation preempted"));
    assert_eq!(ReservationNotification::default().kind(), None);
    assert_eq!(ReservationEvent::RegistrationPreempted.mask_bit(), 2);
}

#[test]
fn an_lba_status_log_lists_ranges_by_namespace() {
    let log = lba_status_log(3, 0x11, &[(Nsid(1), &[(5, 2)]), (Nsid(2), &[])]);
    assert_eq!(log.len(), 16 + 16 + 16 + 16);
    assert_eq!(log[..16], [64, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 3, 0]);
    assert_eq!(log[16..32], [1, 0, 0, 0, 1, 0, 0, 0, 0x11, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(log[32..48], [5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn get_log_page_has_the_layout_of_the_specification() {
    let get = GetLogPage {
        lsp: telemetry_lsp::CREATE | 3 << telemetry_lsp::AREA_SHIFT,
        retain_event: true,
        lsi: 0x0102,
        offset: 0x1_0000_0200,
        index_offset: true,
        uuid_index: 2,
        csi: Csi::ZONED,
        ..GetLogPage::new(Lid::TELEMETRY_HOST, 0x10_0004 * 4)
    };
    let sqe = get.encode(Nsid::ALL);
    assert_eq!((sqe.opcode, sqe.nsid()), (2, Nsid::ALL));
    let dwords = [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14].map(|dword| dword.get());
    assert_eq!(dwords, [0x0003_8707, 0x0102_0010, 0x200, 1, 0x0280_0002]);
    assert_eq!(GetLogPage::decode(&sqe), get);
    assert_eq!(persistent_event_lsp::RELEASE & persistent_event_lsp::ACTION_MASK, 2);
}

proptest! {
    #[test]
    fn get_log_page_round_trips(
        (lid, lsp, retain_event, dwords) in (any::<u8>(), 0..=0x7f_u8, any::<bool>(), 1..=1_u64 << 32),
        (lsi, offset, index_offset, uuid_index, csi) in
            (any::<u16>(), any::<u64>(), any::<bool>(), 0..=0x7f_u8, any::<u8>()),
        nsid in any::<u32>(),
    ) {
        let get = GetLogPage {
            lid: Lid(lid), lsp, retain_event, bytes: dwords * 4, lsi, offset, index_offset, uuid_index, csi: Csi(csi),
        };
        let sqe = get.encode(Nsid(nsid));
        prop_assert_eq!(sqe.nsid(), Nsid(nsid));
        prop_assert_eq!(GetLogPage::decode(&sqe), get);
    }

    #[test]
    fn any_get_log_page_decodes_and_round_trips(dwords in any::<[u32; 5]>()) {
        let mut sqe = Sqe::new(2);
        for (at, dword) in (10..).zip(dwords) {
            sqe = sqe.with_cdw(at, dword);
        }
        let again = GetLogPage::decode(&sqe).encode(Nsid(0));
        let decoded = [again.cdw10, again.cdw11, again.cdw12, again.cdw13].map(|dword| dword.get());
        prop_assert_eq!(&decoded, &dwords[..4]);
        prop_assert_eq!(again.cdw14.get(), dwords[4] & 0xff80_007f);
    }

    #[test]
    fn reading_any_persistent_events_ends(
        bytes in proptest::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..2000)
    ) {
        if let Some((_, events)) = PersistentEvents::new(&bytes) {
            let read: usize = events.map(|event| 24 + event.vendor.len() + event.data.len()).sum();
            prop_assert!(read <= bytes.len());
        }
    }
}
