//! Commands and reports of reservations against golden bytes, and whatever a peer may send.

use super::*;
use ebof_testkit::hex;
use proptest::prelude::*;

const EXTENDED: &str = include_str!("../../../testdata/reservation_extended.hex");
const PLAIN: &str = include_str!("../../../testdata/reservation_report.hex");

fn registrants() -> [ReportedRegistrant; 2] {
    let first = ReportedRegistrant {
        controller: ControllerId(1),
        holder: true,
        key: 0xabcd,
        host_id: *b"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f",
    };
    let second = ReportedRegistrant {
        controller: ControllerId::DYNAMIC,
        holder: false,
        key: u64::MAX,
        host_id: *b"\x20\x21\x22\x23\x24\x25\x26\x27\0\0\0\0\0\0\0\0",
    };
    [first, second]
}

#[test]
fn a_report_encodes_to_and_decodes_from_the_golden_bytes() {
    let held = Some(ReservationType::WriteExclusiveRegistrants);
    assert_eq!(report(7, held, true, &registrants(), true), hex::read(EXTENDED));
    let (status, read) = read_report(&hex::read(EXTENDED), true).unwrap();
    assert_eq!((status.r#gen.get(), status.rtype, status.ptpls), (7, 3, 1));
    assert_eq!(read, registrants());

    assert_eq!(report(7, None, false, &registrants(), false), hex::read(PLAIN));
    let (status, read) = read_report(&hex::read(PLAIN), false).unwrap();
    assert_eq!((status.rtype, status.ptpls, read.len()), (0, 0, 2));
    assert_eq!(read[0].host_id[..9], [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0]);
    assert_eq!(read[1], registrants()[1]);
}

#[test]
fn a_truncated_report_gives_its_complete_entries() {
    let golden = hex::read(EXTENDED);
    assert_eq!(read_report(&golden[..191], true).unwrap().1.len(), 1);
    assert_eq!(read_report(&golden[..24], true).unwrap().1.len(), 0);
    assert!(read_report(&golden[..23], true).is_none());
}

#[test]
fn commands_have_the_layout_of_the_specification() {
    let register =
        Register { action: RegisterAction::Replace, ignore_existing_key: true, persistence: PersistenceChange::Set };
    let sqe = register.encode(Nsid(1));
    assert_eq!((sqe.opcode, sqe.cdw10.get()), (0x0d, 0xc000_000a));
    let acquire = Acquire { action: AcquireAction::PreemptAndAbort, ignore_existing_key: false, rtype: 6 };
    let sqe = acquire.encode(Nsid(1));
    assert_eq!((sqe.opcode, sqe.cdw10.get()), (0x11, 0x0602));
    let release = Release { action: ReleaseAction::Clear, ignore_existing_key: true, rtype: 1 };
    let sqe = release.encode(Nsid(1));
    assert_eq!((sqe.opcode, sqe.cdw10.get()), (0x15, 0x0109));
    let report = Report { bytes: 4096, extended: true };
    let sqe = report.encode(Nsid(1));
    assert_eq!((sqe.opcode, sqe.cdw10.get(), sqe.cdw11.get()), (0x0e, 1023, 1));
    assert_eq!(Report::decode(&sqe), report);
    assert_eq!(Report { bytes: 0, extended: false }.encode(Nsid(1)).cdw10.get(), 0);
    assert_eq!(Report::decode(&Report { bytes: u64::MAX, extended: false }.encode(Nsid(1))).bytes, 1 << 34);
}

#[test]
fn the_six_types_allow_different_commands() {
    let mut capabilities = 0;
    for kind in ReservationType::ALL {
        assert_eq!(ReservationType::decode(kind.encode()), Some(kind));
        assert!(!kind.all_registrants() || kind.admits_registrants());
        capabilities |= kind.capability();
    }
    assert_eq!(capabilities, 0x7e);
    assert_eq!([0, 7, 255].map(ReservationType::decode), [None; 3]);
    assert_eq!(ReservationType::ALL.iter().filter(|kind| kind.is_exclusive_access()).count(), 3);
    assert_eq!(ReservationType::ALL.iter().filter(|kind| kind.admits_registrants()).count(), 4);
}

proptest! {
    #[test]
    fn any_dword_decodes_and_its_defined_bits_round_trip(cdw10 in any::<u32>(), cdw11 in any::<u32>()) {
        let sqe = Sqe::new(0).with_cdw(10, cdw10).with_cdw(11, cdw11);
        prop_assert_eq!(Register::decode(&sqe).encode(Nsid(1)).cdw10.get(), cdw10 & 0xc000_000f);
        prop_assert_eq!(Acquire::decode(&sqe).encode(Nsid(1)).cdw10.get(), cdw10 & 0xff0f);
        prop_assert_eq!(Release::decode(&sqe).encode(Nsid(1)).cdw10.get(), cdw10 & 0xff0f);
        prop_assert_eq!(Report::decode(&sqe).encode(Nsid(1)).cdw10.get(), cdw10);
        prop_assert_eq!(Report::decode(&sqe).encode(Nsid(1)).cdw11.get(), cdw11 & 1);
    }

    #[test]
    fn reading_any_report_ends(bytes in proptest::collection::vec(any::<u8>(), 0..600), extended: bool) {
        if let Some((status, registrants)) = read_report(&bytes, extended) {
            prop_assert!(registrants.len() <= usize::from(status.regstrnt.get()));
            prop_assert!(registrants.len() * 24 <= bytes.len());
        }
    }
}
