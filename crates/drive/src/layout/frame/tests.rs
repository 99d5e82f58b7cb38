//! Records are encoded into frames and decoded.

use super::*;
use alloc::string::String;
use proptest::prelude::*;

const SERIES: Series = Series { id: [9; 16], generation: 5 };
const FLUSHED: Flushed = Flushed { frames: 3, data: 2, previous: Some(9) };

fn record() -> impl Strategy<Value = Record> {
    let volume = any::<u64>().prop_map(VolumeId);
    prop_oneof![
        (volume.clone(), any::<u64>(), any::<u32>(), any::<bool>()).prop_map(|(volume, blocks, quota, checked)| {
            Record::Create { volume, blocks, quota, block_format: BlockFormat { checked, ..BlockFormat::plain(12) } }
        }),
        volume.clone().prop_map(Record::Remove),
        volume.clone().prop_map(Record::Clear),
        (volume.clone(), 0..1_u32 << 20, proptest::collection::vec(any::<u32>(), 1..2000).no_shrink())
            .prop_map(|(volume, first, extents)| Record::Map { volume, first, extents }),
        (volume.clone(), any::<u32>(), any::<u32>()).prop_map(|(volume, first, count)| Record::Unmap {
            volume,
            first,
            count
        }),
        (
            volume.clone(),
            0..1_u64 << 60,
            proptest::collection::vec(any::<[u8; 16]>().prop_map(Tag), 1..600).no_shrink()
        )
            .prop_map(|(volume, first, tags)| Record::Tags { volume, first, tags }),
        (volume.clone(), any::<u64>(), any::<[u8; 16]>()).prop_map(|(volume, first, tag)| Record::OnlyTags {
            volume,
            first,
            tags: vec![Tag(tag)]
        }),
        (volume.clone(), any::<u64>(), any::<u64>(), any::<bool>())
            .prop_map(|(volume, start, blocks, bad)| Record::Bad { volume, start, blocks, bad }),
        (volume.clone(), any::<u64>(), any::<[u64; 4]>()).prop_map(|(volume, first, blocks)| Record::Flux {
            volume,
            first,
            blocks
        }),
        volume.prop_map(Record::Settled),
        any::<u32>().prop_map(Record::HighWater),
        proptest::collection::vec(any::<u8>(), 0..9000).no_shrink().prop_map(Record::Change),
    ]
}

/// Records that were split to fit are reassembled.
fn joined(records: Vec<Record>) -> Vec<Record> {
    let mut out: Vec<Record> = Vec::new();
    for record in records {
        if let (Some(Record::Map { volume, first, extents }), Record::Map { volume: i, first: f, extents: e }) =
            (out.last_mut(), &record)
            && volume == i
            && u64::from(*first) + extents.len() as u64 == u64::from(*f)
        {
            extents.extend(e);
            continue;
        }
        if let (Some(Record::Tags { volume, first, tags }), Record::Tags { volume: i, first: f, tags: t }) =
            (out.last_mut(), &record)
            && volume == i
            && *first + tags.len() as u64 == *f
        {
            tags.extend(t);
            continue;
        }
        out.push(record);
    }
    out
}

fn read(frames: &[u8], sequence: u64) -> Vec<Piece> {
    let count = u32::try_from(frames.len() / FRAME_BYTES).unwrap();
    let frames = frames
        .chunks_exact(FRAME_BYTES)
        .zip(sequence..)
        .map(|(frame, at)| (decode_frame(SERIES, at, frame).unwrap(), at));
    let group = frames.inspect(|(frame, at)| {
        assert_eq!((frame.incarnation, u64::from(count - frame.left - 1)), (7, at - sequence));
    });
    group.flat_map(|(frame, _)| frame.pieces).collect()
}

proptest! {
    #[test]
    fn records_round_trip(records in proptest::collection::vec(record(), 0..30), sequence in 0..1000_u64) {
        let frames = encode_frames(SERIES, 7, sequence, FLUSHED, &records);
        prop_assert!(frames.len().is_multiple_of(FRAME_BYTES));
        let mut assembler = ChangeAssembler::default();
        let read_records = read(&frames, sequence).into_iter().filter_map(|piece| assembler.push(piece)).collect();
        prop_assert!(joined(read_records) == joined(records.clone()));
        let checkpoint = Checkpoint { state: vec![7; 5000], records, clean: sequence % 2 == 0 };
        let (header, body) = checkpoint.encode(SERIES, 4, Some(11));
        let header = Checkpoint::header(SERIES.id, &header).unwrap();
        prop_assert_eq!((header.generation, header.incarnation, header.previous), (5, 4, Some(11)));
        let read = Checkpoint::decode(&header, &body).unwrap();
        prop_assert_eq!((read.state, read.clean), (checkpoint.state, checkpoint.clean));
        prop_assert!(joined(read.records) == joined(checkpoint.records));
    }

    #[test]
    fn garbage_is_neither_a_frame_nor_a_checkpoint(bytes in proptest::collection::vec(any::<u8>(), 0..FRAME_BYTES * 2), at in 0..FRAME_BYTES, flip in 1..=255_u8) {
        prop_assert_eq!(decode_frame(SERIES, 0, &bytes), None);
        prop_assert_eq!(Checkpoint::header(SERIES.id, &bytes), None);
        let mut frame = encode_frames(SERIES, 7, 3, FLUSHED, &[Record::HighWater(7), Record::Change(vec![1; 100])]);
        frame[at] ^= flip;
        prop_assert_eq!(decode_frame(SERIES, 3, &frame), None);
        prop_assert_eq!(frame_header(SERIES.id, &frame), None);
    }
}

#[test]
fn a_change_may_be_longer_than_a_frame() {
    for len in [0, 1, PART_BYTES_MAX, PART_BYTES_MAX + 1, CHANGE_BYTES_MAX] {
        let change: Vec<u8> = (0..=255).cycle().take(len).collect();
        let frames = encode_frames(SERIES, 7, 0, FLUSHED, &[Record::Change(change.clone())]);
        let mut assembler = ChangeAssembler::default();
        let whole: Vec<Record> = read(&frames, 0).into_iter().filter_map(|piece| assembler.push(piece)).collect();
        assert!(whole == [Record::Change(change)], "{len}");
    }
}

#[test]
fn a_frame_of_another_generation_or_drive_is_not_accepted() {
    let frame = encode_frames(SERIES, 7, 3, FLUSHED, &[Record::HighWater(7)]);
    assert!(decode_frame(SERIES, 3, &frame).is_some());
    let head = FrameHeader { generation: 5, sequence: 3, incarnation: 7, left: 0, flushed: FLUSHED };
    assert_eq!((frame_header(SERIES.id, &frame), frame_header([8; 16], &frame)), (Some(head), None));
    assert!(decode_frame(SERIES, 4, &frame).is_none());
    assert!(decode_frame(Series { generation: 4, ..SERIES }, 3, &frame).is_none());
    assert!(decode_frame(Series { id: [8; 16], ..SERIES }, 3, &frame).is_none());
}

#[test]
fn a_checkpoint_of_another_drive_or_with_another_byte_is_not_accepted() {
    let (header, _) = Checkpoint::default().encode(SERIES, 4, None);
    assert!(Checkpoint::header(SERIES.id, &header).is_some());
    assert_eq!(Checkpoint::header([8; 16], &header), None);
    for at in [0, 8, 24, 32, 40, 48, 52, 54, FRAME_BYTES - 5, FRAME_BYTES - 1] {
        let mut damaged = header.clone();
        damaged[at] ^= 1;
        assert_eq!(Checkpoint::header(SERIES.id, &damaged), None, "{at}");
    }
}

#[test]
fn a_part_of_a_change_lies_within_it() {
    let part = |total: usize, at: usize| {
        let mut payload = vec![Kind::Change.number()];
        [total, at, 4].into_iter().for_each(|number| payload.extend(length(number)));
        payload.extend([7; 4]);
        Reader(&payload).piece()
    };
    for (total, at) in [(4, 0), (10, 6), (CHANGE_BYTES_MAX, CHANGE_BYTES_MAX - 4)] {
        assert_eq!(part(total, at), Some(Piece::Part { total, at, bytes: vec![7; 4] }));
    }
    for (total, at) in [(3, 0), (10, 7), (CHANGE_BYTES_MAX + 1, 0), (CHANGE_BYTES_MAX, CHANGE_BYTES_MAX)] {
        assert_eq!(part(total, at), None, "{total}, {at}");
    }
}

#[test]
fn kinds_are_numbered_from_1_without_gaps() {
    let numbers: Vec<u8> = Kind::ALL.iter().map(|kind| kind.number()).collect();
    assert_eq!(numbers, (1..=12).collect::<Vec<u8>>(), "none is retired so far");
    for number in 0..=u8::MAX {
        assert_eq!(Kind::with_number(number).map(Kind::number), numbers.contains(&number).then_some(number));
    }
}

/// A record of each kind, with the bytes of existing drives.
fn golden() -> Vec<(Record, &'static str)> {
    let (volume, first) = (VolumeId(0x1122), 0x0304);
    let block_format = BlockFormat { block_shift: 12, metadata_bytes: 8, checked: true, encrypted: true };
    let tags = vec![Tag([0x5a; 16]), Tag::UNWRITTEN];
    vec![
        (
            Record::Create { volume, blocks: 0x0506, quota: 7, block_format },
            "01 2211000000000000 0605000000000000 07000000 0c080003",
        ),
        (Record::Remove(volume), "02 2211000000000000"),
        (Record::Clear(volume), "03 2211000000000000"),
        (
            Record::Map { volume, first, extents: vec![9, 0x0a0b] },
            "04 2211000000000000 04030000 02000000 09000000 0b0a0000",
        ),
        (Record::Unmap { volume, first, count: 3 }, "05 2211000000000000 04030000 03000000"),
        (
            Record::Bad { volume, start: 5, blocks: 6, bad: true },
            "06 2211000000000000 0500000000000000 0600000000000000 01",
        ),
        (Record::HighWater(0x1000), "07 00100000"),
        (Record::Change(b"{}".to_vec()), "08 02000000 00000000 02000000 7b7d"),
        (
            Record::Tags { volume, first: 8, tags: tags.clone() },
            "09 2211000000000000 0800000000000000 02000000 \
             5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a 00000000000000000000000000000000",
        ),
        (
            Record::OnlyTags { volume, first: 8, tags },
            "0a 2211000000000000 0800000000000000 02000000 \
             5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a 00000000000000000000000000000000",
        ),
        (
            Record::Flux { volume, first: 0xff, blocks: [0x0506, 0, 0, 1 << 62] },
            "0b 2211000000000000 ff00000000000000 \
             0605000000000000 0000000000000000 0000000000000000 0000000000000040",
        ),
        (Record::Settled(volume), "0c 2211000000000000"),
    ]
}

#[test]
fn every_kind_of_record_has_golden_bytes() {
    assert_eq!(golden().len(), Kind::ALL.len());
    for ((record, hex), kind) in golden().into_iter().zip(Kind::ALL) {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let digit = |at: usize| u8::try_from(char::from(digits[at]).to_digit(16).unwrap()).unwrap();
        let bytes: Vec<u8> = (0..digits.len() / 2).map(|at| digit(2 * at) << 4 | digit(2 * at + 1)).collect();
        let frame = encode_frames(SERIES, 7, 3, FLUSHED, &[record]);
        let used = usize::from(u16::from_le_bytes([frame[USED_AT], frame[USED_AT + 1]]));
        assert_eq!((&frame[HEADER_BYTES..HEADER_BYTES + used], bytes[0]), (&bytes[..], kind.number()), "{kind:?}");
    }
}

/// Rows of the document's table of records: number, kind, bytes.
fn documented() -> Vec<(u8, &'static str, &'static str)> {
    let text = include_str!("../../../../../docs/data-file.md");
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let number = cells.next()?.parse().ok()?;
        let kind = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((number, kind, cells.next()?))
    });
    rows.collect()
}

#[test]
fn the_document_has_every_kind_with_its_number_and_its_length() {
    let rows = documented();
    let named: Vec<(u8, String)> = rows.iter().map(|&(number, kind, _)| (number, kind.into())).collect();
    let kinds: Vec<(u8, String)> = Kind::ALL.iter().map(|kind| (kind.number(), alloc::format!("{kind:?}"))).collect();
    assert_eq!(named, kinds);
    for ((record, _), (_, kind, bytes)) in golden().into_iter().zip(rows) {
        let n = 2;
        let (fixed, each) = bytes.split_once(" + ").unwrap_or((bytes, "0 n"));
        let each: usize = each.strip_suffix(" n").unwrap().parse().unwrap();
        let frame = encode_frames(SERIES, 7, 3, FLUSHED, &[record]);
        let used = usize::from(u16::from_le_bytes([frame[USED_AT], frame[USED_AT + 1]]));
        assert_eq!(used, fixed.parse::<usize>().unwrap() + each * n, "{kind}");
    }
}

/// How many entries the list of a record has.
fn entries(record: &Record) -> usize {
    match record {
        Record::Map { extents, .. } => extents.len(),
        Record::Tags { tags, .. } | Record::OnlyTags { tags, .. } => tags.len(),
        Record::Change(change) => change.len(),
        _ => 0,
    }
}

fn planned(record: &Record, count: usize) -> Planned {
    let number = encode_frames(SERIES, 7, 3, FLUSHED, core::slice::from_ref(record))[HEADER_BYTES];
    Planned { kind: Kind::with_number(number).unwrap(), records: count, entries: entries(record) * count }
}

/// Whoever makes room for records before they are encoded counts what the encoding takes.
#[test]
fn the_lengths_of_every_kind_are_those_of_the_encoding() {
    for ((record, _), kind) in golden().into_iter().zip(Kind::ALL) {
        let frame = encode_frames(SERIES, 7, 3, FLUSHED, core::slice::from_ref(&record));
        let used = usize::from(u16::from_le_bytes([frame[USED_AT], frame[USED_AT + 1]]));
        let planned = planned(&record, 1);
        assert_eq!((planned.kind, planned.bytes()), (kind, used));
        for count in [1, 80, 1000, 20_000] {
            let frames = encode_frames(SERIES, 7, 3, FLUSHED, &vec![record.clone(); count]).len() / FRAME_BYTES;
            let most = frames_max(&[Planned { records: count, entries: planned.entries * count, ..planned }]);
            assert!((frames..=2 * frames + 1).contains(&most), "{count} of {kind:?}: {most} for {frames}");
        }
    }
}

proptest! {
    #[test]
    fn there_is_room_for_all_records(records in proptest::collection::vec(record(), 0..60)) {
        let planned: Vec<Planned> = records.iter().map(|record| planned(record, 1)).collect();
        let frames = encode_frames(SERIES, 7, 3, FLUSHED, &records).len() / FRAME_BYTES;
        prop_assert!(frames <= frames_max(&planned), "{} frames", frames);
    }
}
