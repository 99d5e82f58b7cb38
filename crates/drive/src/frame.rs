//! Journal frames and checkpoints: records to bytes and back.
//!
//! A frame has 4 KiB: who wrote it (drive, generation, incarnation, sequence number), records, and
//! a CRC-32C over all of it. Frames that were written together are a group: all of them count, or
//! none. A checkpoint has a header of the same size, which is written last, and a body with a
//! CRC-32C of its own. Whatever is read here may be garbage: it is found out, and no length is
//! believed.

mod kind;

use alloc::vec;
use alloc::vec::Vec;

use crc_fast::CrcAlgorithm;
pub use kind::Kind;

use crate::block_format::BlockFormat;
use crate::mark::{FLUSHED_BYTES, Flushed};
use crate::namespace::VolumeId;
use crate::tag::Tag;

/// Bytes of a frame, and of a checkpoint's header.
pub const FRAME_BYTES: usize = 4096;
/// Bytes of a [`Record::Change`] at most.
pub const CHANGE_BYTES_MAX: usize = 1 << 20;

const HEADER_BYTES: usize = 64;
/// Where a frame says how many bytes of records it has, and how many frames of its group follow.
const USED_AT: usize = 48;
const LEFT_AT: usize = 52;
/// Where it says how much of its journal was flushed when it was written. Older versions left zeros
/// there.
const FLUSHED_AT: usize = 56;
const PAYLOAD_BYTES: usize = FRAME_BYTES - HEADER_BYTES - 4;
const FRAME_MAGIC: [u8; 8] = *b"EBOFJRN1";
const CHECKPOINT_MAGIC: [u8; 8] = *b"EBOFCHK1";
/// Extents that one map record holds at most, so that a frame has room for it.
const MAP_EXTENTS_MAX: usize = 900;
/// Tags that one record holds at most, for the same reason: all that a frame has room for.
const TAGS_MAX: usize = (PAYLOAD_BYTES - 21) / 16;
/// Bytes of a part of a change, so that a frame has room for it.
const PART_BYTES_MAX: usize = PAYLOAD_BYTES - 16;

/// What the journal keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A namespace is on the medium.
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
    /// A namespace is not on the medium any more.
    Remove(VolumeId),
    /// A namespace has no extents and no bad blocks any more.
    Clear(VolumeId),
    /// Extents of a namespace have places.
    Map {
        /// The namespace, by its name on the medium.
        volume: VolumeId,
        /// The first of them.
        first: u32,
        /// Their places.
        extents: Vec<u32>,
    },
    /// Extents of a namespace have none any more.
    Unmap {
        /// The namespace, by its name on the medium.
        volume: VolumeId,
        /// The first of them.
        first: u32,
        /// How many.
        count: u32,
    },
    /// Blocks of a namespace are bad, or are not any more.
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
    /// for this one, or for one before it.
    Tags {
        /// The namespace, by its name on the medium.
        volume: VolumeId,
        /// The first of them.
        first: u64,
        /// Their tags.
        tags: Vec<Tag>,
    },
    /// The same where it is known that no tag before these can be right any more. Only checkpoints
    /// have such records.
    OnlyTags {
        /// The namespace, by its name on the medium.
        volume: VolumeId,
        /// The first of them.
        first: u64,
        /// Their tags.
        tags: Vec<Tag>,
    },
    /// From this extent on none was ever used.
    HighWater(u32),
    /// Something of the owner of the medium.
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
    u32::try_from(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) & 0xffff_ffff).unwrap_or_default()
}

/// A group of frames with these records, the first of them number `sequence`, written in
/// incarnation `incarnation` of the drive when so much was flushed: bytes that go to the journal in
/// one piece.
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
                for (at, part) in (0_u32..).zip(extents.chunks(MAP_EXTENTS_MAX)) {
                    let first = first + at * u32::try_from(MAP_EXTENTS_MAX).unwrap_or_default();
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
            Record::HighWater(extent) => self.put(Kind::HighWater, |out| out.extend(extent.to_le_bytes())),
        }
    }

    /// A record goes into one frame, whole.
    fn put(&mut self, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let mut record = vec![kind.number()];
        write(&mut record);
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
        // The checksum comes when the length of the group is known.
        self.bytes.resize(begin + FRAME_BYTES, 0);
        self.sequence += 1;
    }
}

fn length(value: usize) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes()
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

/// Puts the parts of changes together.
#[derive(Debug, Default)]
pub struct Joiner {
    partial: Vec<u8>,
}

impl Joiner {
    /// Takes the next piece; gives a record when it is whole. Parts of what has no beginning, or an
    /// end elsewhere, are nothing.
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

/// What a frame says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The generation of its journal.
    pub generation: u64,
    /// Its number in there.
    pub sequence: u64,
    /// In which incarnation of the drive it was written.
    pub incarnation: u64,
    /// How many frames of its group follow.
    pub left: u32,
    /// What was flushed when it was written.
    pub flushed: Flushed,
}

/// What a frame of drive `id` says of itself, of whatever journal it is; `None` if these bytes are
/// no such frame.
#[must_use]
pub fn frame_head(id: [u8; 16], bytes: &[u8]) -> Option<FrameHead> {
    let frame = bytes.first_chunk::<FRAME_BYTES>()?;
    let (covered, sum) = frame.split_at(FRAME_BYTES - 4);
    let mut reader = Reader(covered);
    if reader.take(8)? != FRAME_MAGIC || reader.take(16)? != id || sum != crc(covered).to_le_bytes() {
        return None;
    }
    let (generation, sequence, incarnation) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (_used, left) = (reader.size()?, reader.u32()?);
    Some(FrameHead { generation, sequence, incarnation, left, flushed: Flushed::decode(reader.array()?) })
}

/// What frame number `sequence` holds; `None` if these bytes are not that frame.
#[must_use]
pub fn decode_frame(series: Series, sequence: u64, bytes: &[u8]) -> Option<Frame> {
    let frame = bytes.first_chunk::<FRAME_BYTES>()?;
    let (covered, sum) = frame.split_at(FRAME_BYTES - 4);
    let mut reader = Reader(covered);
    let head = reader.take(8)? == FRAME_MAGIC && reader.take(16)? == series.id;
    if !head || reader.u64()? != series.generation || reader.u64()? != sequence || sum != crc(covered).to_le_bytes() {
        return None;
    }
    let (incarnation, used, left) = (reader.u64()?, reader.size()?, reader.u32()?);
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
                let (total, at, bytes) = (self.size()?, self.size()?, self.size()?);
                let bytes = self.take(bytes)?.to_vec();
                let fits = total <= CHANGE_BYTES_MAX && at.checked_add(bytes.len())? <= total;
                return fits.then_some(Piece::Part { total, at, bytes });
            }
            Kind::Tags => Record::Tags { volume: VolumeId(self.u64()?), first: self.u64()?, tags: self.tags()? },
            Kind::OnlyTags => {
                Record::OnlyTags { volume: VolumeId(self.u64()?), first: self.u64()?, tags: self.tags()? }
            }
        };
        Some(Piece::Whole(record))
    }
}

/// What is known of everything at one moment: the records that make it, and the owner's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The owner's state.
    pub state: Vec<u8>,
    /// Records that lead from an empty medium to this one, and changes that the state does not
    /// contain.
    pub records: Vec<Record>,
    /// Whether nothing was to come after it.
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
    /// Whether nothing was to come after it.
    pub clean: bool,
    /// Frames of the journal before this checkpoint, if they are known: with the checkpoint before
    /// they come to the same.
    pub previous: Option<u16>,
}

impl Checkpoint {
    /// The header, and the body that lies behind it and is written first. `previous` is what the
    /// header is to say.
    #[must_use]
    pub fn encode(&self, series: Series, incarnation: u64, previous: Option<u16>) -> (Vec<u8>, Vec<u8>) {
        let mut body = Vec::with_capacity(self.state.len() + 4096);
        body.extend(length(self.state.len()));
        body.extend(&self.state);
        // Records are those of frames, without the frames around them.
        let mut frames = Frames { series, incarnation, sequence: 0, bytes: Vec::new(), payload: Vec::new() };
        for record in &self.records {
            frames.push(record);
            // A record that was larger than what was left has sealed a frame: only its payload is
            // wanted.
            for frame in frames.bytes.chunks_exact(FRAME_BYTES) {
                let used = Reader(&frame[USED_AT..]).size().unwrap_or_default();
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

    /// What a header says; `None` if it is none of drive `id`.
    #[must_use]
    pub fn header(id: [u8; 16], bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.first_chunk::<FRAME_BYTES>()?;
        let (covered, sum) = bytes.split_at(FRAME_BYTES - 4);
        let mut reader = Reader(covered);
        if reader.take(8)? != CHECKPOINT_MAGIC || reader.take(16)? != id || sum != crc(covered).to_le_bytes() {
            return None;
        }
        let (generation, body_bytes, incarnation) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let body_sum = reader.u32()?;
        let clean = reader.array::<2>()?[0] != 0;
        let previous = Flushed::decode(reader.array()?).previous;
        Some(Header { generation, body_bytes, incarnation, body_sum, clean, previous })
    }

    /// What the body says; `None` if it is not that of `header`.
    #[must_use]
    pub fn decode(header: &Header, body: &[u8]) -> Option<Self> {
        let body = body.get(..usize::try_from(header.body_bytes).ok()?)?;
        if crc(body) != header.body_sum {
            return None;
        }
        let mut reader = Reader(body);
        let state = reader.size()?;
        let state = reader.take(state)?.to_vec();
        let (mut records, mut joiner) = (Vec::new(), Joiner::default());
        while !reader.0.is_empty() {
            records.extend(joiner.push(reader.piece()?));
        }
        Some(Self { state, records, clean: header.clean })
    }
}

#[cfg(test)]
mod tests;
