//! What a drive reads of its medium: whatever is there, and with checksums that are right.

use std::hint::black_box;

use ebof_drive::State;
use ebof_drive::frame::{
    ChangeAssembler, Checkpoint, FRAME_BYTES, Flushed, Record, Series, crc, decode_frame, encode_frames, frame_header,
};
use ebof_drive::layout::{Layout, SUPERBLOCK_BYTES, Superblock};
use ebof_drive::mark::Mark;

const SERIES: Series = Series { id: [7; 16], generation: 3 };

/// Superblocks, journal frames, checkpoints, and the owner's state and changes.
///
/// # Panics
/// When something is written back otherwise than it was read.
pub fn drive_medium(input: &[u8]) {
    black_box((Layout::decode(input), decode_frame(SERIES, 0, input), Checkpoint::header(SERIES.id, input)));
    if let Superblock::Drive(layout) = Layout::decode(&signed(Layout::new(1 << 30, SERIES.id), input)) {
        assert_eq!(Layout::decode(&layout.encode()), Superblock::Drive(layout));
    }
    black_box((frame_header(SERIES.id, input), Mark::decode(SERIES.id, input)));
    frame(input);
    checkpoint(input);
    for state in [State::restore(input, &[]), State::restore(b"", &[input.to_vec()])].into_iter().flatten() {
        let again = State::restore(&state.to_bytes(), &[]);
        assert_eq!(again.ok(), Some(state), "the next checkpoint");
    }
}

/// A superblock with the sizes of the input.
fn signed<E>(layout: Result<Layout, E>, input: &[u8]) -> Vec<u8> {
    let mut block = layout.map_or_else(|_| vec![0; SUPERBLOCK_BYTES], |layout| layout.encode());
    let sizes = input.len().min(16);
    block[8..8 + sizes].copy_from_slice(&input[..sizes]);
    sign(&mut block);
    block
}

fn sign(block: &mut [u8]) {
    let sum = crc(&block[..FRAME_BYTES - 4]);
    block[FRAME_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
}

/// A frame whose records are the input, as long as it says.
fn frame(input: &[u8]) {
    let mut frame = encode_frames(SERIES, 1, 0, Flushed::default(), &[Record::HighWater(0)]);
    let len = input.len().min(FRAME_BYTES - 4 - 64);
    frame[64..64 + len].copy_from_slice(&input[..len]);
    if let Ok(used) = u32::try_from(len) {
        frame[48..52].copy_from_slice(&used.to_le_bytes());
    }
    sign(&mut frame);
    let Some(read) = decode_frame(SERIES, 0, &frame) else { return };
    let mut assembler = ChangeAssembler::default();
    let records: Vec<Record> = read.pieces.into_iter().filter_map(|piece| assembler.push(piece)).collect();
    let again = encode_frames(SERIES, read.incarnation, 0, Flushed::default(), &records);
    let mut assembler = ChangeAssembler::default();
    let back = (0..).zip(again.chunks_exact(FRAME_BYTES)).filter_map(|(at, bytes)| decode_frame(SERIES, at, bytes));
    let pieces = back.flat_map(|frame| frame.pieces);
    // Map records may have been cut: the extents are the same.
    let count = |records: &mut dyn Iterator<Item = Record>| {
        records.fold((0, 0), |(all, extents), record| match record {
            Record::Map { extents: more, .. } => (all, extents + more.len()),
            _ => (all + 1, extents),
        })
    };
    let first = count(&mut records.into_iter());
    assert_eq!(count(&mut pieces.filter_map(|piece| assembler.push(piece))), first);
}

/// A checkpoint whose body is the input.
fn checkpoint(input: &[u8]) {
    let whole = Checkpoint { state: input.to_vec(), records: Vec::new(), clean: false };
    let (header, body) = whole.encode(SERIES, 1, None);
    let Some(header) = Checkpoint::header(SERIES.id, &header) else { return };
    assert_eq!(Checkpoint::decode(&header, &body), Some(whole));
    let mut bent = Checkpoint { state: Vec::new(), records: Vec::new(), clean: false }.encode(SERIES, 1, None).0;
    // The header's sizes and sum are those of the input.
    bent[32..40].copy_from_slice(&(input.len() as u64).to_le_bytes());
    bent[48..52].copy_from_slice(&crc(input).to_le_bytes());
    sign(&mut bent);
    if let Some(header) = Checkpoint::header(SERIES.id, &bent) {
        black_box(Checkpoint::decode(&header, input));
    }
}
