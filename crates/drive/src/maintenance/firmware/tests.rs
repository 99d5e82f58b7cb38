//! Tests: images, downloads and commits as hosts see them.

use super::*;
use alloc::vec::Vec;
use ebof_nvme::ControllerId;
use ebof_nvme::firmware::{Commit, CommitAction};
use proptest::prelude::*;

const HOST: ControllerId = ControllerId(1);

fn limits() -> Limits {
    Limits {
        slots: 3,
        slot_1_read_only: false,
        product: "ebof-drive".into(),
        builtin: Content { revision: "0.1.0".into(), personality: Personality::default() },
    }
}

fn image(revision: &str) -> Image {
    Image { product: "ebof-drive".into(), revision: revision.into(), personality: Personality::default() }
}

fn download(bytes: &[u8]) -> Download {
    let mut download = Download::default();
    for (n, piece) in bytes.chunks(GRANULARITY_BYTES).enumerate() {
        download.take(HOST, u64::try_from(n * GRANULARITY_BYTES).unwrap(), piece).unwrap();
    }
    download
}

/// Commit Action `action` and Firmware Slot `slot`, as in dword 10.
fn ca(action: u8, slot: u8) -> Commit {
    Commit { action: CommitAction::decode(action), slot, boot_partition: 0 }
}

/// A whole update, as nvme-cli does it.
#[track_caller]
fn update(firmware: &Firmware, image: &Image, action: u8, slot: u8) -> Done {
    firmware.commit(&download(&image.encode().unwrap()), &ca(action, slot), &limits()).unwrap()
}

#[track_caller]
fn refused(firmware: &Firmware, download: &Download, action: u8, slot: u8) -> Status {
    firmware.commit(download, &ca(action, slot), &limits()).unwrap_err().status
}

/// AFI and the revisions of the slots.
fn page(firmware: &Firmware) -> (u8, u8, [String; 3]) {
    let page = firmware.page(&limits());
    let revisions = [1, 2, 3].map(|slot| page.revision(slot).map_or_else(String::new, |text| alloc::format!("{text}")));
    (page.active_slot(), page.next_slot(), revisions)
}

#[test]
fn an_image_round_trips() {
    let personality = Personality { model_suffix: "-RO".into(), copy: false, ..Personality::default() };
    let made = Image { personality, ..image("9.9.9") };
    let bytes = made.encode().unwrap();
    assert!(bytes.len().is_multiple_of(GRANULARITY_BYTES));
    assert_eq!(&bytes[..8], b"EBOFFW\r\n");
    assert_eq!(Image::decode(&bytes).unwrap(), made);
    // Without the padding, too, and with defaults for missing fields.
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    assert_eq!(Image::decode(&bytes[..end]).unwrap(), made);
}

/// An image with the given payload and correct checksums.
fn with_payload(payload: &[u8]) -> Vec<u8> {
    let mut bytes = image("1").encode().unwrap();
    bytes.truncate(64);
    bytes[12..16].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
    let crc = |bytes: &[u8]| {
        u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes)).unwrap().to_le_bytes()
    };
    bytes[16..20].copy_from_slice(&crc(payload));
    let header = crc(&bytes[..60]);
    bytes[60..].copy_from_slice(&header);
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn damaged_and_foreign_images_are_distinguished() {
    let good = image("2.0").encode().unwrap();
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        Image::decode(&bytes).unwrap_err()
    };
    assert!(matches!(Image::decode(&good[..63]), Err(ImageError::Size(63))));
    assert!(matches!(Image::decode(&[0; IMAGE_BYTES_MAX + 1]), Err(ImageError::Size(_))));
    assert!(matches!(changed(0), ImageError::Magic));
    assert!(matches!(changed(8), ImageError::Format(0x11)));
    for at in [10, 12, 16, 20, 30, 63] {
        assert!(matches!(changed(at), ImageError::HeaderChecksum { .. }), "byte {at}");
    }
    assert!(matches!(changed(64), ImageError::PayloadChecksum { .. }));
    assert!(matches!(changed(good.len() - 1), ImageError::Trailing(at) if at == good.len() - 1));
    assert!(matches!(Image::decode(&good[..100]), Err(ImageError::Truncated { found: 36, .. })));
    assert!(matches!(Image::decode(&with_payload(b"{\"copy\":1}")), Err(ImageError::Personality(_))));
    assert!(matches!(Image::decode(&with_payload(b"{\"teleport\":true}")), Err(ImageError::Personality(_))));
    assert!(matches!(Image::decode(&with_payload(b"{\"model-suffix\":\"a b\"}")), Err(ImageError::Text(_))));
    assert_eq!(Image::decode(&with_payload(b"{}")).unwrap(), image("1"));
    assert!(matches!(image("123456789").encode(), Err(ImageError::Text(_))));
    assert!(matches!(image("").encode(), Err(ImageError::Text(_))));
}

#[test]
fn pieces_come_in_any_order_and_once() {
    let mut bytes = image("2.0").encode().unwrap();
    bytes.resize(4 * GRANULARITY_BYTES, 0);
    let pieces: Vec<&[u8]> = bytes.chunks(GRANULARITY_BYTES).collect();
    let mut download = Download::default();
    for n in [2_u8, 0, 3] {
        download.take(HOST, u64::from(n) * 4096, pieces[usize::from(n)]).unwrap();
    }
    let firmware = Firmware::default();
    assert!(refused(&firmware, &download, 0, 2).is(Status::INVALID_FIRMWARE_IMAGE), "a gap");
    for (offset, length) in [(0, 1), (2, 1), (1, 2), (0, 4)] {
        let overlap = download.take(HOST, offset * 4096, &bytes[..length * 4096]).unwrap_err();
        assert!(overlap.status.is(Status::OVERLAPPING_RANGE), "{offset} {length}");
    }
    download.take(HOST, 4096, pieces[1]).unwrap();
    let done = firmware.commit(&download, &ca(0, 2), &limits()).unwrap();
    assert_eq!((done.revision.as_str(), done.status, done.dword0), ("2.0", Status::SUCCESS, 0));
    // The next image starts a new download.
    download.finish();
    assert!(download.is_empty());
    download.take(HOST, 0, pieces[0]).unwrap();
}

#[test]
fn misaligned_pieces_and_those_beyond_the_end_are_refused() {
    let mut download = Download::default();
    let end = u64::try_from(IMAGE_BYTES_MAX).unwrap();
    let table =
        [(4, 4096, 44), (end, 4096, 44), (u64::MAX, 4096, 44), (0, 4092, 40), (0, 0, 40), (end - 4096, 8192, 40)];
    for (offset, length, byte) in table {
        let refusal = download.take(HOST, offset, &[0; 8192][..length]).unwrap_err();
        assert!(refusal.status.is(Status::INVALID_FIELD));
        assert_eq!(refusal.location.map(|at| at.byte), Some(byte), "{offset} {length}");
    }
    assert!(download.is_empty());
    download.take(HOST, end - 4096, &[0; 4096]).unwrap();
}

#[test]
fn a_reset_discards_the_download_of_that_controller() {
    let mut download = download(&image("2.0").encode().unwrap());
    download.reset(ControllerId(2));
    assert!(!download.is_empty());
    download.reset(HOST);
    assert!(download.is_empty());
    assert!(refused(&Firmware::default(), &download, 1, 2).is(Status::INVALID_FIRMWARE_IMAGE));
}

#[test]
fn several_controllers_in_one_update_are_detected() {
    let bytes = image("2.0").encode().unwrap();
    let mut download = download(&bytes);
    assert_eq!(download.take(ControllerId(2), 8192, &[0; 4096]).unwrap(), 1);
    download.take(HOST, 4096, &[0; 4096]).unwrap();
    assert_eq!(Firmware::default().commit(&download, &ca(0, 2), &limits()).unwrap().dword0, 1);
}

#[test]
fn a_commit_replaces_immediately_and_activates_as_requested() {
    let firmware = Firmware::default();
    assert_eq!(page(&firmware), (1, 0, ["0.1.0".into(), String::new(), String::new()]));
    // 0: replace only.
    let firmware = update(&firmware, &image("2.0"), 0, 2).next;
    assert_eq!(page(&firmware), (1, 0, ["0.1.0".into(), "2.0".into(), String::new()]));
    assert_eq!(firmware.at_reset(&limits()), None);
    // 2: activate at reset.
    let firmware = firmware.commit(&Download::default(), &ca(2, 2), &limits()).unwrap().next;
    assert_eq!(page(&firmware).1, 2);
    assert_eq!(firmware.running(&limits()).revision, "0.1.0");
    let firmware = firmware.at_reset(&limits()).unwrap();
    assert_eq!(page(&firmware), (2, 0, ["0.1.0".into(), "2.0".into(), String::new()]));
    assert_eq!(firmware.running(&limits()).revision, "2.0");
    // 1: replace and activate at reset.
    let firmware = update(&firmware, &image("3.0"), 1, 3).next;
    assert_eq!((page(&firmware).0, page(&firmware).1), (2, 3));
    let firmware = firmware.at_reset(&limits()).unwrap();
    assert_eq!(firmware.running(&limits()).revision, "3.0");
    // 3 without an image: activate the existing one immediately.
    let done = firmware.commit(&Download::default(), &ca(3, 1), &limits()).unwrap();
    assert!(done.activated && done.status.is_success());
    assert_eq!(done.next.running(&limits()).revision, "0.1.0");
    // 3 with an image.
    let done = update(&done.next, &image("4.0"), 3, 2);
    assert!(done.activated);
    assert_eq!(page(&done.next), (2, 0, ["0.1.0".into(), "4.0".into(), "3.0".into()]));
    assert_eq!(done.next.at_reset(&limits()), None);
}

#[test]
fn changes_visible_to_hosts_require_a_reset() {
    let firmware = Firmware::default();
    let less = Personality { copy: false, ..Personality::default() };
    let renamed = Personality { model_suffix: "X".into(), ..Personality::default() };
    let slow = Personality { activates_without_reset: false, ..Personality::default() };
    for personality in [less, renamed, slow] {
        let done = update(&firmware, &Image { personality: personality.clone(), ..image("5") }, 3, 2);
        assert!(done.status.is(Status::FIRMWARE_NEEDS_RESET) && !done.activated);
        assert_eq!(done.next.running(&limits()).revision, "0.1.0");
        let firmware = done.next.at_reset(&limits()).unwrap();
        assert_eq!(firmware.running(&limits()).personality, personality);
        // Back to the first slot: only the revision changes.
        let back = firmware.commit(&Download::default(), &ca(3, 1), &limits()).unwrap();
        assert_eq!(back.activated, personality.model_suffix.is_empty());
    }
}

#[test]
fn overwriting_the_active_slot_takes_effect_at_a_reset() {
    let firmware = update(&Firmware::default(), &image("2.0"), 1, 1).next;
    assert_eq!(firmware.running(&limits()).revision, "0.1.0");
    assert_eq!(page(&firmware), (1, 1, ["2.0".into(), String::new(), String::new()]));
    let kept: Firmware = serde_json::from_slice(&serde_json::to_vec(&firmware).unwrap()).unwrap();
    assert_eq!(kept, firmware);
    assert_eq!(kept.at_reset(&limits()).unwrap().running(&limits()).revision, "2.0");
    // Without activation it is refused, unless there is no other slot.
    let bytes = image("3.0").encode().unwrap();
    assert!(refused(&firmware, &download(&bytes), 0, 1).is(Status::COMMAND_SEQUENCE_ERROR));
    let one = Limits { slots: 1, ..limits() };
    let done = Firmware::default().commit(&download(&bytes), &ca(0, 1), &one).unwrap();
    assert_eq!(done.next.running(&one).revision, "0.1.0");
    assert_eq!(done.next.pending_slot(), Some(1));
}

#[test]
fn invalid_slots_actions_and_images_change_nothing() {
    let firmware = update(&Firmware::default(), &image("2.0"), 1, 2).next.at_reset(&limits()).unwrap();
    let good = download(&image("3.0").encode().unwrap());
    for action in [4, 5, 6, 7] {
        assert!(refused(&firmware, &good, action, 2).is(Status::INVALID_FIELD));
    }
    for action in 0..4 {
        assert!(refused(&firmware, &good, action, 4).is(Status::INVALID_FIRMWARE_SLOT));
    }
    let read_only = Limits { slot_1_read_only: true, ..limits() };
    for action in [0, 1, 3] {
        let refusal = firmware.commit(&good, &ca(action, 1), &read_only).unwrap_err();
        assert!(refusal.status.is(Status::INVALID_FIRMWARE_SLOT));
    }
    assert!(firmware.commit(&good, &ca(2, 1), &read_only).is_ok(), "it can still be activated");
    // Nothing downloaded, or nothing in the slot.
    let nothing = Download::default();
    for action in [0, 1] {
        assert!(refused(&firmware, &nothing, action, 3).is(Status::INVALID_FIRMWARE_IMAGE));
    }
    for action in [2, 3] {
        assert!(refused(&firmware, &nothing, action, 3).is(Status::INVALID_FIRMWARE_IMAGE));
    }
    // A wrong checksum, another product, a truncated image.
    let mut damaged = image("3.0").encode().unwrap();
    damaged[70] ^= 1;
    let foreign = Image { product: "toaster".into(), ..image("3.0") }.encode().unwrap();
    for bytes in [damaged, foreign, alloc::vec![0; 4096]] {
        for action in [0, 1, 3] {
            assert!(refused(&firmware, &download(&bytes), action, 3).is(Status::INVALID_FIRMWARE_IMAGE));
        }
    }
    assert_eq!(firmware.running(&limits()).revision, "2.0");
}

#[test]
fn the_drive_chooses_an_unused_slot() {
    let read_only = Limits { slot_1_read_only: true, ..limits() };
    let mut firmware = Firmware::default();
    for (revision, expected) in [("2", 2), ("3", 3), ("4", 2), ("5", 3)] {
        let done = firmware.commit(&download(&image(revision).encode().unwrap()), &ca(1, 0), &read_only).unwrap();
        assert_eq!(done.slot, expected, "{revision}");
        firmware = done.next.at_reset(&read_only).unwrap();
        assert_eq!(firmware.running(&read_only).revision, revision);
    }
    // To be activated: the one that was written last.
    let back = firmware.commit(&Download::default(), &ca(2, 1), &read_only).unwrap().next.at_reset(&read_only).unwrap();
    assert_eq!(back.commit(&Download::default(), &ca(2, 0), &read_only).unwrap().slot, 3);
}

#[test]
fn with_fewer_slots_an_existing_one_is_used() {
    let firmware = update(&Firmware::default(), &image("3.0"), 1, 3).next;
    let fewer = Limits { slots: 2, ..limits() };
    let after = firmware.at_reset(&fewer).unwrap();
    assert_eq!((after.active_slot(), after.running(&fewer).revision.as_str()), (1, "0.1.0"));
    assert_eq!(limits().frmw(), 0b11_0110);
}

proptest! {
    #[test]
    fn any_bytes_are_accepted_or_refused_without_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        at in 0_usize..200,
        byte: u8,
    ) {
        let _ = Image::decode(&bytes);
        let mut almost = image("2.0").encode().unwrap();
        almost[at] = byte;
        if let Ok(read) = Image::decode(&almost) {
            prop_assert_eq!(read, image("2.0"));
        }
    }

    #[test]
    fn a_download_is_complete_only_if_every_byte_came_once(
        pieces in proptest::collection::vec((0_usize..8, 1_usize..4), 1..20),
    ) {
        let mut download = Download::default();
        let mut model = [false; 12];
        for (begin, count) in pieces {
            let taken = download.take(HOST, u64::try_from(begin * 4096).unwrap(), &alloc::vec![1; count * 4096]);
            let free = model[begin..begin + count].iter().all(|covered| !covered);
            prop_assert_eq!(taken.is_ok(), free);
            if free {
                model[begin..begin + count].fill(true);
            }
        }
        let end = model.iter().rposition(|&covered| covered).unwrap() + 1;
        let whole = model[..end].iter().all(|&covered| covered);
        prop_assert_eq!(download.image().map(<[u8]>::len), whole.then_some(end * 4096));
    }
}
