//! Tests: captures and pages as hosts read them.

use super::*;
use proptest::prelude::*;
use zerocopy::FromBytes;

const CREATE: u8 = 1;

fn capture(lengths: [usize; 3]) -> Capture {
    let area = |(letter, length): (&str, usize)| letter.repeat(length);
    let areas = [("a", lengths[0]), ("b", lengths[1]), ("c", lengths[2])].map(area);
    Capture { reason: "checksum error in extent 7".into(), areas, private: Some("who they are".into()) }
}

/// The whole page, and its header.
fn whole(page: &Page) -> (TelemetryHeader, Vec<u8>) {
    let bytes = page.read(0, usize::try_from(page.header().bytes_up_to(3)).unwrap()).unwrap();
    (TelemetryHeader::read_from_prefix(&bytes).unwrap().0, bytes)
}

#[test]
fn a_capture_can_be_read_until_the_host_requests_another() {
    let mut host = HostTelemetry::default();
    let telemetry = Telemetry::default();
    let (header, bytes) = whole(&host.execute(0, Reader::Other, &telemetry, || panic!("not asked for")));
    assert_eq!((header.lpi, header.last_block(3), header.thdgn_or_tcs, bytes.len()), (7, 0, 0, 512));
    let (header, bytes) = whole(&host.execute(CREATE, Reader::Other, &telemetry, || capture([10, 513, 0])));
    assert_eq!([1, 2, 3].map(|area| header.last_block(area)), [1, 3, 3]);
    assert_eq!((header.ths, header.thdgn_or_tcs, header.tcda), (2, 1, 0));
    assert!(header.rident.starts_with(b"checksum error in extent 7\0"));
    assert_eq!((&bytes[512..523], &bytes[1024..1026]), (&b"aaaaaaaaaa\0"[..], &b"bb"[..]));
    let again = host.execute(0, Reader::Other, &telemetry, || panic!("not asked for"));
    assert_eq!(whole(&again).1, bytes);
    let (header, _) = whole(&host.execute(CREATE, Reader::Other, &telemetry, || capture([1, 1, 1])));
    assert_eq!((header.thdgn_or_tcs, header.last_block(3)), (2, 3));
    host.clear();
    let (header, _) = whole(&host.execute(0, Reader::Other, &telemetry, || panic!("not asked for")));
    assert_eq!((header.thdgn_or_tcs, header.last_block(1)), (2, 0));
}

#[test]
fn only_managers_can_read_identities_of_hosts() {
    let telemetry = Telemetry::default().captured(capture([3, 3, 3]));
    let text = |page: &Page| String::from_utf8_lossy(&whole(page).1[512..]).into_owned();
    assert!(text(&telemetry.page(Reader::Manager)).contains("ccc\nwho they are\0"));
    let others = text(&telemetry.page(Reader::Other));
    assert!(others.contains("ccc\0") && !others.contains("who"), "{others}");
    let mut host = HostTelemetry::default();
    // Both hosts read the same capture, each with its own form of identities.
    host.execute(CREATE, Reader::Manager, &telemetry, || capture([1, 1, 1]));
    assert!(text(&host.execute(0, Reader::Manager, &telemetry, Capture::default)).contains("who they are"));
    assert!(!text(&host.execute(0, Reader::Other, &telemetry, Capture::default)).contains("who"));
    // Without area 3 there are no identities.
    let page = host.execute(CREATE | 2 << 1, Reader::Manager, &telemetry, || capture([1, 1, 1]));
    assert!(!text(&page).contains("who"));
}

// @test hostile.telemetry
#[test]
fn a_capture_of_an_earlier_version_is_for_managers() {
    let old = r#"{"capture":{"reason":"r","areas":["nqn.a","nqn.b","nqn.c"]},"generation":3,"available":true}"#;
    let telemetry: Telemetry = serde_json::from_str(old).unwrap();
    let text = |reader| String::from_utf8_lossy(&whole(&telemetry.page(reader)).1).into_owned();
    assert!(["nqn.a", "nqn.b", "nqn.c"].iter().all(|nqn| text(Reader::Manager).contains(nqn)));
    assert!(!text(Reader::Other).contains("nqn"));
    assert_eq!(telemetry.page(Reader::Other).header().tcdgn, 3);
}

#[test]
fn a_host_can_limit_the_areas() {
    let mut host = HostTelemetry::default();
    for (areas, last) in [(1, 1), (2, 2), (3, 3), (4, 3), (0, 3)] {
        let page = host.execute(CREATE | areas << 1, Reader::Other, &Telemetry::default(), || capture([1, 1, 1]));
        assert_eq!(page.header().last_block(3), last, "{areas}");
    }
}

#[test]
fn the_drives_capture_survives_restarts_until_it_is_read() {
    let telemetry = Telemetry::default().captured(capture([600, 10, 10]));
    let telemetry: Telemetry = serde_json::from_slice(&serde_json::to_vec(&telemetry).unwrap()).unwrap();
    let (header, bytes) = whole(&telemetry.page(Reader::Other));
    assert_eq!((header.lpi, header.tcda, header.tcdgn, header.thdgn_or_tcs), (8, 1, 1, 2));
    assert_eq!((header.last_block(1), header.last_block(3), bytes.len()), (2, 4, 512 * 5));
    // The host-initiated log reports its existence.
    assert_eq!(HostTelemetry::default().execute(0, Reader::Other, &telemetry, Capture::default).header().tcda, 1);
    let read = telemetry.acknowledged().unwrap();
    assert_eq!(
        (read.page(Reader::Other).header().tcda, read.page(Reader::Other).header().tcdgn, read.acknowledged()),
        (0, 1, None)
    );
    assert_eq!(whole(&read.page(Reader::Other)).1[512..], bytes[512..]);
    assert_eq!(read.captured(Capture::default()).page(Reader::Other).header().tcdgn, 2);
}

#[test]
fn captures_are_cut_and_generations_roll_over() {
    let mut telemetry = Telemetry::default();
    for _ in 0..257 {
        telemetry = telemetry.captured(capture([1, 1, 1]));
    }
    assert_eq!(telemetry.page(Reader::Other).header().tcdgn, 1);
    let large = Capture { reason: "ü".repeat(100), ..capture([1000, CONTROLLER_BYTES_MAX, 1000]) };
    let (header, bytes) = whole(&telemetry.captured(large).page(Reader::Other));
    assert_eq!(bytes.len(), 512 + CONTROLLER_BYTES_MAX);
    assert_eq!((header.last_block(2), header.last_block(3)), (256, 256));
    assert_eq!(header.rident, *"ü".repeat(64).as_bytes());
}

#[test]
fn pages_are_read_in_blocks() {
    let page = Telemetry::default().captured(capture([5000, 0, 0])).page(Reader::Other);
    for (offset, bytes) in [(4, 512), (513, 512), (0, 4), (512, 1000)] {
        assert!(page.read(offset, bytes).unwrap_err().status.is(Status::INVALID_FIELD), "{offset} {bytes}");
    }
    assert_eq!(page.read(1 << 40, 512).unwrap(), [0; 512]);
    assert_eq!(page.read(u64::MAX - 511, 1024).unwrap(), [0; 1024]);
}

proptest! {
    #[test]
    fn pieces_are_the_same_as_the_whole_page(lengths: [u8; 3], offset in 0_u64..8, blocks in 0_usize..8) {
        let page = Telemetry::default().captured(capture(lengths.map(|length| usize::from(length) * 9))).page(Reader::Other);
        let mut all = whole(&page).1;
        all.resize(512 * 32, 0);
        let begin = usize::try_from(offset).unwrap() * 512;
        prop_assert_eq!(&page.read(offset * 512, blocks * 512).unwrap(), &all[begin..begin + blocks * 512]);
    }
}
