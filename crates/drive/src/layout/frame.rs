//! Journal frames and checkpoints: records to bytes and back.
//!
//! A frame has 4 KiB: a header (drive, generation, incarnation, sequence number), records, and a
//! CRC-32C over all of it. Frames that were written together are a group: all of them count, or
//! none. A checkpoint has a header of the same size, which is written last, and a body with a
//! CRC-32C of its own. Decoding takes any bytes: no length in them is trusted.

mod flushed;
mod kind;

use alloc::vec;
use alloc::vec::Vec;

use crc_fast::CrcAlgorithm;
pub use flushed::{FLUSHED_BYTES, Flushed};
pub use kind::Kind;

use crate::layout::tag::Tag;
use crate::namespace::VolumeId;
use crate::namespace::block_format::{BlockFormat, TAGS_PER_PAGE};

/// Bytes of a frame, and of a checkpoint's header.
pub const FRAME_BYTES: usize = 4096;
/// Bytes of a [`Record::Change`] at most.
pub const CHANGE_BYTES_MAX: usize = 1 << 20;

const HEADER_BYTES: usize = 64;
/// Offset of the number of bytes of records in a frame.
const USED_AT: usize = 48;
/// Offset of the number of frames of its group that follow.
const LEFT_AT: usize = 52;
/// Offset of how much of its journal was flushed when it was written. Older versions left zeros
/// there.
const FLUSHED_AT: usize = 56;
const PAYLOAD_BYTES: usize = FRAME_BYTES - HEADER_BYTES - 4;
const FRAME_MAGIC: [u8; 8] = *b"EBOFJRN1";
const CHECKPOINT_MAGIC: [u8; 8] = *b"EBOFCHK1";
/// Extents that one map record holds at most, so that a frame has room for it.
const MAP_EXTENTS_MAX: usize = 900;
/// Tags that one record holds at most, for the same reason: all that a frame has room for.
const TAGS_MAX: usize = (PAYLOAD_BYTES - Kind::Tags.fixed_bytes()) / Kind::Tags.entry_bytes();
/// Words of a mask with a bit for each block of a page of tags.
pub const PAGE_MASK_WORDS: usize = 4;
const _: () = assert!(TAGS_PER_PAGE <= 64 * PAGE_MASK_WORDS as u64);
/// Bytes of a part of a change, so that a frame has room for it.
const PART_BYTES_MAX: usize = PAYLOAD_BYTES - 16;
const _: () = assert!(Kind::Map.fixed_bytes() + MAP_EXTENTS_MAX * Kind::Map.entry_bytes() <= PAYLOAD_BYTES);
const _: () = assert!(Kind::Change.fixed_bytes() + PART_BYTES_MAX <= PAYLOAD_BYTES);

/// A record of the journal, or of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A namespace is created.
    Create {
        /// Its name.
        volume: VolumeId,
        /// Its blocks.
        blocks: u64,
        /// Extents that it may have.
        quota: u32,
        /// How they are kept.
        block_format: BlockFormat,
    },
    /// A namespace is removed.
    Remove(VolumeId),
    /// All extents of a namespace are unmapped, and it has no bad blocks.
    Clear(VolumeId),
    /// Extents of a namespace are mapped.
    Map {
        /// The namespace, by its name on the medium.
        volume: VolumeId,
        /// The first of them.
        first: u32,
        /// The extents of the medium for it and those behind it.
        extents: Vec<u32>,
    },
    /// Extents of a namespace are unmapped.
    Unmap {
        /// The namespace, by its name on the medium.
        volume: VolumeId,
        /// The first of them.
        first: u32,
        /// How many.
        count: u32,
    },
    /// Blocks of a namespace are marked bad, or are good again.
    Bad {
        /// The namespace, by its name on the medium.
        volume: VolumeId,
        /// The first of them.
        start: u64,
        /// How many.
        blocks: u64,
        /// Whether they are bad now.
        bad: bool,
    },
    /// Blocks of a namespace, one behind the other, are about to get these tags: each has the data
    /// for this tag, or for an earlier one.
    Tags {
        /// The namespace, by its name on the medium.
        volume: VolumeId,
        /// The first of them.
        first: u64,
        /// Their tags.
        tags: Vec<Tag>,
    },
    /// The same where no earlier tag can be right: in checkpoints, and for data that are durable.
    OnlyTags {
        /// The namespace, by its name on the medium.
        volume: VolumeId,
        /// The first of them.
        first: u64,
        /// Their tags.
        tags: Vec<Tag>,
    },
    /// Blocks are in flux until [`Record::Settled`]: they may be written without their tags being
    /// in the journal, so that whatever is there after a crash is accepted.
    Flux {
        /// The namespace, by its name on the medium.
        volume: VolumeId,
        /// The first block of a page of tags.
        first: u64,
        /// Which blocks from this one on, a bit each, the least significant first.
        blocks: [u64; PAGE_MASK_WORDS],
    },
    /// No block of a namespace is in flux any more; records behind this one may say otherwise.
    Settled(VolumeId),
    /// The high-water mark: from this extent of the medium on none was ever used.
    HighWater(u32),
    /// A change of the owner's state.
    Change(Vec<u8>),
}

/// Which journal a frame is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// The drive.
    pub id: [u8; 16],
    /// The generation of the journal.
    pub generation: u64,
}

/// CRC-32C.
#[must_use]
pub fn crc(bytes: &[u8]) -> u32 {
    let sum = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) & 0xffff_ffff;
    u32::try_from(sum).expect("the upper half was masked")
}

/// The bytes of a group of frames with these records. The first frame has number `sequence`;
/// `flushed` is how much of the journal is flushed.
#[must_use]
pub fn encode_frames(series: Series, incarnation: u64, sequence: u64, flushed: Flushed, records: &[Record]) -> Vec<u8> {
    let mut frames = Frames { series, incarnation, sequence, bytes: Vec::new(), payload: Vec::new() };
    for record in records {
        frames.push(record);
    }
    frames.seal();
    let mut bytes = frames.bytes;
    let count = bytes.len() / FRAME_BYTES;
    for (at, frame) in bytes.chunks_exact_mut(FRAME_BYTES).enumerate() {
        frame[LEFT_AT..LEFT_AT + 4].copy_from_slice(&length(count - at - 1));
        frame[FLUSHED_AT..FLUSHED_AT + FLUSHED_BYTES].copy_from_slice(&flushed.encode());
        let sum = crc(&frame[..FRAME_BYTES - 4]);
        frame[FRAME_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// Records that are to be written: how many of a kind, and the entries of all their lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Their kind.
    pub kind: Kind,
    /// How many there are at most.
    pub records: usize,
    /// Extents, tags or bytes of all of them at most; 0 if this kind has no list.
    pub entries: usize,
}

impl Planned {
    /// Bytes that they take, without the frames.
    fn bytes(self) -> usize {
        let Self { kind, records, entries } = self;
        let pieces = match kind {
            Kind::Map => records + entries / MAP_EXTENTS_MAX,
            Kind::Change => records + entries / PART_BYTES_MAX,
            Kind::Tags | Kind::OnlyTags => records + entries / TAGS_MAX,
            _ => records,
        };
        pieces * kind.fixed_bytes() + entries * kind.entry_bytes()
    }
}

/// Frames that a group of these records takes at most, in any order.
#[must_use]
pub fn frames_max(planned: &[Planned]) -> usize {
    let bytes: usize = planned.iter().map(|planned| planned.bytes()).sum();
    // The records of a frame and the first one of the next do not fit into one.
    2 * bytes / PAYLOAD_BYTES + 1
}

struct Frames {
    series: Series,
    incarnation: u64,
    sequence: u64,
    bytes: Vec<u8>,
    payload: Vec<u8>,
}

impl Frames {
    fn push(&mut self, record: &Record) {
        match record {
            Record::Map { volume, first, extents } => {
                for (at, part) in (0_u32..).step_by(MAP_EXTENTS_MAX).zip(extents.chunks(MAP_EXTENTS_MAX)) {
                    let first = first.saturating_add(at);
                    self.put(Kind::Map, |out| {
                        out.extend(volume.0.to_le_bytes());
                        out.extend(first.to_le_bytes());
                        out.extend(length(part.len()));
                        part.iter().for_each(|extent| out.extend(extent.to_le_bytes()));
                    });
                }
            }
            Record::Change(change) => {
                let total = length(change.len());
                let parts = change.chunks(PART_BYTES_MAX).chain(change.is_empty().then_some(&change[..]));
                for (at, part) in parts.enumerate() {
                    self.put(Kind::Change, |out| {
                        out.extend(total);
                        out.extend(length(at * PART_BYTES_MAX));
                        out.extend(length(part.len()));
                        out.extend(part);
                    });
                }
            }
            Record::Create { volume, blocks, quota, block_format } => self.put(Kind::Create, |out| {
                out.extend(volume.0.to_le_bytes());
                out.extend(blocks.to_le_bytes());
                out.extend(quota.to_le_bytes());
                out.extend(block_format.encode().to_le_bytes());
            }),
            Record::Remove(volume) => self.put(Kind::Remove, |out| out.extend(volume.0.to_le_bytes())),
            Record::Clear(volume) => self.put(Kind::Clear, |out| out.extend(volume.0.to_le_bytes())),
            Record::Unmap { volume, first, count } => self.put(Kind::Unmap, |out| {
                out.extend(volume.0.to_le_bytes());
                out.extend(first.to_le_bytes());
                out.extend(count.to_le_bytes());
            }),
            Record::Bad { volume, start, blocks, bad } => self.put(Kind::Bad, |out| {
                out.extend(volume.0.to_le_bytes());
                out.extend(start.to_le_bytes());
                out.extend(blocks.to_le_bytes());
                out.push(u8::from(*bad));
            }),
            Record::Tags { volume, first, tags } | Record::OnlyTags { volume, first, tags } => {
                let kind = if matches!(record, Record::Tags { .. }) { Kind::Tags } else { Kind::OnlyTags };
                for (at, part) in (0_u64..).zip(tags.chunks(TAGS_MAX)) {
                    self.put(kind, |out| {
                        out.extend(volume.0.to_le_bytes());
                        out.extend((first.saturating_add(at * TAGS_MAX as u64)).to_le_bytes());
                        out.extend(length(part.len()));
                        part.iter().for_each(|tag| out.extend(tag.0));
                    });
                }
            }
            Record::Flux { volume, first, blocks } => self.put(Kind::Flux, |out| {
                out.extend(volume.0.to_le_bytes());
                out.extend(first.to_le_bytes());
                blocks.iter().for_each(|word| out.extend(word.to_le_bytes()));
            }),
            Record::Settled(volume) => self.put(Kind::Settled, |out| out.extend(volume.0.to_le_bytes())),
            Record::HighWater(extent) => self.put(Kind::HighWater, |out| out.extend(extent.to_le_bytes())),
        }
    }

    /// Appends a record. It is not split over frames.
    fn put(&mut self, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let mut record = vec![kind.number()];
        write(&mut record);
        let entries_bytes = record.len().checked_sub(kind.fixed_bytes());
        let is_of_kind = entries_bytes.is_some_and(|bytes| bytes == 0 || bytes.is_multiple_of(kind.entry_bytes()));
        assert!(is_of_kind, "room in the journal is reserved by these sizes, see `Planned`");
        assert!(record.len() <= PAYLOAD_BYTES, "lists are split so that a frame has room, see the constants");
        if self.payload.len() + record.len() > PAYLOAD_BYTES {
            self.seal();
        }
        self.payload.extend(record);
    }

    fn seal(&mut self) {
        if self.payload.is_empty() {
            return;
        }
        let begin = self.bytes.len();
        self.bytes.extend(FRAME_MAGIC);
        self.bytes.extend(self.series.id);
        self.bytes.extend(self.series.generation.to_le_bytes());
        self.bytes.extend(self.sequence.to_le_bytes());
        self.bytes.extend(self.incarnation.to_le_bytes());
        self.bytes.extend(length(self.payload.len()));
        self.bytes.resize(begin + HEADER_BYTES, 0);
        self.bytes.append(&mut self.payload);
        // The checksum is added when the length of the group is known.
        self.bytes.resize(begin + FRAME_BYTES, 0);
        self.sequence += 1;
    }
}

fn length(value: usize) -> [u8; 4] {
    u32::try_from(value).expect("what is encoded is in memory, and has its own limits").to_le_bytes()
}

/// A record as a frame holds it: a change may be in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A whole record.
    Whole(Record),
    /// A part of a change.
    Part {
        /// Bytes of the whole change.
        total: usize,
        /// Where this part begins.
        at: usize,
        /// The part.
        bytes: Vec<u8>,
    },
}

/// A frame that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// In which incarnation of the drive it was written: a frame of an earlier incarnation than the
    /// one before it was left over there.
    pub incarnation: u64,
    /// How many frames of its group follow.
    pub left: u32,
    /// What it holds.
    pub pieces: Vec<Piece>,
}

/// Puts changes together that are in several parts.
#[derive(Debug, Default)]
pub struct ChangeAssembler {
    partial: Vec<u8>,
}

impl ChangeAssembler {
    /// Takes the next piece. Returns the record that is whole with it, if any. Parts that do not
    /// continue the parts before them are dropped.
    pub fn push(&mut self, piece: Piece) -> Option<Record> {
        match piece {
            Piece::Whole(record) => Some(record),
            Piece::Part { total, at, bytes } => {
                if at == 0 {
                    self.partial.clear();
                }
                if self.partial.len() == at {
                    self.partial.extend(bytes);
                }
                (self.partial.len() == total).then(|| Record::Change(core::mem::take(&mut self.partial)))
            }
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The generation of its journal.
    pub generation: u64,
    /// Its number in the journal.
    pub sequence: u64,
    /// In which incarnation of the drive it was written.
    pub incarnation: u64,
    /// How many frames of its group follow.
    pub left: u32,
    /// What was flushed when it was written.
    pub flushed: Flushed,
}

/// The header of a frame of drive `id`, of any journal; `None` if these bytes are no such frame.
#[must_use]
pub fn frame_header(id: [u8; 16], bytes: &[u8]) -> Option<FrameHeader> {
    let frame = bytes.first_chunk::<FRAME_BYTES>()?;
    let (covered, sum) = frame.split_at(FRAME_BYTES - 4);
    let mut reader = Reader(covered);
    if reader.take(8)? != FRAME_MAGIC || reader.take(16)? != id || sum != crc(covered).to_le_bytes() {
        return None;
    }
    let generation = reader.u64()?;
    let sequence = reader.u64()?;
    let incarnation = reader.u64()?;
    let _used = reader.size()?;
    let left = reader.u32()?;
    Some(FrameHeader { generation, sequence, incarnation, left, flushed: Flushed::decode(reader.array()?) })
}

/// Decodes frame number `sequence`; `None` if these bytes are not that frame, or have records that
/// this version does not know.
#[must_use]
pub fn decode_frame(series: Series, sequence: u64, bytes: &[u8]) -> Option<Frame> {
    let frame = bytes.first_chunk::<FRAME_BYTES>()?;
    let (covered, sum) = frame.split_at(FRAME_BYTES - 4);
    let mut reader = Reader(covered);
    let is_frame = reader.take(8)? == FRAME_MAGIC && reader.take(16)? == series.id;
    if !is_frame || reader.u64()? != series.generation || reader.u64()? != sequence || sum != crc(covered).to_le_bytes()
    {
        return None;
    }
    let incarnation = reader.u64()?;
    let used = reader.size()?;
    let left = reader.u32()?;
    let mut reader = Reader(covered.get(HEADER_BYTES..HEADER_BYTES.checked_add(used)?)?);
    let mut pieces = Vec::new();
    while !reader.0.is_empty() {
        pieces.push(reader.piece()?);
    }
    Some(Frame { incarnation, left, pieces })
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.u32()?).ok()
    }

    fn extents(&mut self) -> Option<Vec<u32>> {
        let count = self.size()?;
        let bytes = self.take(count.checked_mul(4)?)?;
        let extent = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Some(bytes.chunks_exact(4).map(extent).collect())
    }

    fn tags(&mut self) -> Option<Vec<Tag>> {
        let count = self.size()?;
        let bytes = self.take(count.checked_mul(16)?)?;
        Some(bytes.chunks_exact(16).map(|bytes| Tag(core::array::from_fn(|at| bytes[at]))).collect())
    }

    fn piece(&mut self) -> Option<Piece> {
        let [number] = self.array()?;
        let record = match Kind::with_number(number)? {
            Kind::Create => Record::Create {
                volume: VolumeId(self.u64()?),
                blocks: self.u64()?,
                quota: self.u32()?,
                block_format: BlockFormat::decode(self.u32()?)?,
            },
            Kind::Remove => Record::Remove(VolumeId(self.u64()?)),
            Kind::Clear => Record::Clear(VolumeId(self.u64()?)),
            Kind::Map => Record::Map { volume: VolumeId(self.u64()?), first: self.u32()?, extents: self.extents()? },
            Kind::Unmap => Record::Unmap { volume: VolumeId(self.u64()?), first: self.u32()?, count: self.u32()? },
            Kind::Bad => Record::Bad {
                volume: VolumeId(self.u64()?),
                start: self.u64()?,
                blocks: self.u64()?,
                bad: self.array::<1>()? != [0],
            },
            Kind::HighWater => Record::HighWater(self.u32()?),
            Kind::Change => {
                let total = self.size()?;
                let at = self.size()?;
                let len = self.size()?;
                let bytes = self.take(len)?.to_vec();
                let fits = total <= CHANGE_BYTES_MAX && at.checked_add(bytes.len())? <= total;
                return fits.then_some(Piece::Part { total, at, bytes });
            }
            Kind::Tags => Record::Tags { volume: VolumeId(self.u64()?), first: self.u64()?, tags: self.tags()? },
            Kind::OnlyTags => {
                Record::OnlyTags { volume: VolumeId(self.u64()?), first: self.u64()?, tags: self.tags()? }
            }
            Kind::Flux => Record::Flux {
                volume: VolumeId(self.u64()?),
                first: self.u64()?,
                blocks: [self.u64()?, self.u64()?, self.u64()?, self.u64()?],
            },
            Kind::Settled => Record::Settled(VolumeId(self.u64()?)),
        };
        Some(Piece::Whole(record))
    }
}

/// A checkpoint: all that the journal before it amounts to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The owner's state.
    pub state: Vec<u8>,
    /// Records that lead from an empty medium to this one, and changes that the state does not
    /// include.
    pub records: Vec<Record>,
    /// Whether the drive was closed with it.
    pub clean: bool,
}

/// The header of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Generation of the journal that goes on from here.
    pub generation: u64,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// In which incarnation of the drive it was written.
    pub incarnation: u64,
    body_sum: u32,
    /// Whether the drive was closed with it.
    pub clean: bool,
    /// Frames of the journal of the generation before, if known: with the checkpoint before, they
    /// amount to this one.
    pub previous: Option<u16>,
}

impl Checkpoint {
    /// The header, and the body behind it, which is to be written first. `previous`: see
    /// [`Header::previous`].
    #[must_use]
    pub fn encode(&self, series: Series, incarnation: u64, previous: Option<u16>) -> (Vec<u8>, Vec<u8>) {
        let mut body = Vec::with_capacity(self.state.len() + 4096);
        body.extend(length(self.state.len()));
        body.extend(&self.state);
        // Records are encoded as in frames, but without the frames.
        let mut frames = Frames { series, incarnation, sequence: 0, bytes: Vec::new(), payload: Vec::new() };
        for record in &self.records {
            frames.push(record);
            // Only the payloads of frames that are full are wanted.
            for frame in frames.bytes.chunks_exact(FRAME_BYTES) {
                let used = Reader(&frame[USED_AT..]).size().expect("a frame has `FRAME_BYTES`");
                body.extend(&frame[HEADER_BYTES..HEADER_BYTES + used]);
            }
            frames.bytes.clear();
            body.append(&mut frames.payload);
        }
        let mut header = Vec::with_capacity(FRAME_BYTES);
        header.extend(CHECKPOINT_MAGIC);
        header.extend(series.id);
        header.extend(series.generation.to_le_bytes());
        header.extend((body.len() as u64).to_le_bytes());
        header.extend(incarnation.to_le_bytes());
        header.extend(crc(&body).to_le_bytes());
        header.push(u8::from(self.clean));
        header.push(0);
        header.extend(Flushed { previous, ..Flushed::default() }.encode());
        header.resize(FRAME_BYTES - 4, 0);
        let sum = crc(&header);
        header.extend(sum.to_le_bytes());
        body.resize(body.len().next_multiple_of(FRAME_BYTES), 0);
        (header, body)
    }

    /// Decodes a header; `None` if it is none of drive `id`, or damaged.
    #[must_use]
    pub fn header(id: [u8; 16], bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.first_chunk::<FRAME_BYTES>()?;
        let (covered, sum) = bytes.split_at(FRAME_BYTES - 4);
        let mut reader = Reader(covered);
        if reader.take(8)? != CHECKPOINT_MAGIC || reader.take(16)? != id || sum != crc(covered).to_le_bytes() {
            return None;
        }
        let generation = reader.u64()?;
        let body_bytes = reader.u64()?;
        let incarnation = reader.u64()?;
        let body_sum = reader.u32()?;
        let clean = reader.array::<2>()?[0] != 0;
        let previous = Flushed::decode(reader.array()?).previous;
        Some(Header { generation, body_bytes, incarnation, body_sum, clean, previous })
    }

    /// Decodes a body; `None` if it is not that of `header`, or has records that this version does
    /// not know.
    #[must_use]
    pub fn decode(header: &Header, body: &[u8]) -> Option<Self> {
        let body = body.get(..usize::try_from(header.body_bytes).ok()?)?;
        if crc(body) != header.body_sum {
            return None;
        }
        let mut reader = Reader(body);
        let state = reader.size()?;
        let state = reader.take(state)?.to_vec();
        let mut records = Vec::new();
        let mut assembler = ChangeAssembler::default();
        while !reader.0.is_empty() {
            records.extend(assembler.push(reader.piece()?));
        }
        Some(Self { state, records, clean: header.clean })
    }
}

#[cfg(test)]
mod tests;
