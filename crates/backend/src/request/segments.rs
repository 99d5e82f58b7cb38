//! The memory of a transfer: one buffer from its beginning, segments of several buffers, or pieces
//! of memory that another process shares, which are contiguous on the device.
//!
//! Shared memory changes at any time and has no slices: it is copied, or left to the kernel.

use std::fmt;
use std::ops::Range;

use ebof_region::{SharedIoSlice, SharedPiece};

use crate::Buffer;

/// A piece of a buffer.
pub struct Segment {
    buffer: Buffer,
    range: Range<usize>,
}

impl Segment {
    /// The bytes `range` of `buffer`; `None` if they are beyond its capacity.
    #[must_use]
    pub fn new(buffer: Buffer, range: Range<usize>) -> Option<Segment> {
        (range.start <= range.end && range.end <= buffer.capacity()).then_some(Segment { buffer, range })
    }

    /// Its bytes, as a range of its buffer.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The whole buffer.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

impl AsRef<[u8]> for Segment {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.as_slice()[self.range.clone()]
    }
}

impl AsMut<[u8]> for Segment {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut_slice()[self.range.clone()]
    }
}

impl fmt::Debug for Segment {
    /// The range only: the bytes are a host's data, and must not be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("range", &self.range).finish_non_exhaustive()
    }
}

/// The memory of a transfer, in the order of the device's bytes. A single buffer, which most
/// transfers have, takes no additional memory.
#[derive(Debug)]
pub struct Segments(Memory);

#[derive(Debug)]
enum Memory {
    One(Buffer),
    /// No larger than a buffer, so that requests stay as small as they are.
    Several(Box<Several>),
}

#[derive(Debug)]
enum Several {
    Buffers(Vec<Segment>),
    Shared(Vec<SharedPiece>),
}

impl From<Buffer> for Segments {
    fn from(buffer: Buffer) -> Segments {
        Segments(Memory::One(buffer))
    }
}

impl From<Vec<Segment>> for Segments {
    fn from(segments: Vec<Segment>) -> Segments {
        Segments(Memory::Several(Box::new(Several::Buffers(segments))))
    }
}

impl From<Vec<SharedPiece>> for Segments {
    /// For a read of the device, all of them have to be writable: what is read is not put where
    /// that is not permitted.
    fn from(pieces: Vec<SharedPiece>) -> Segments {
        Segments(Memory::Several(Box::new(Several::Shared(pieces))))
    }
}

impl Segments {
    /// How many bytes fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match &self.0 {
            Memory::One(buffer) => buffer.capacity(),
            Memory::Several(several) => several.capacity(),
        }
    }

    /// The buffer; `None` for several segments.
    #[must_use]
    pub fn as_buffer(&self) -> Option<&Buffer> {
        match &self.0 {
            Memory::One(buffer) => Some(buffer),
            Memory::Several(_) => None,
        }
    }

    /// The same, mutable.
    #[must_use]
    pub fn as_mut_buffer(&mut self) -> Option<&mut Buffer> {
        match &mut self.0 {
            Memory::One(buffer) => Some(buffer),
            Memory::Several(_) => None,
        }
    }

    /// The buffer; several segments are dropped, and give `None`.
    #[must_use]
    pub fn into_buffer(self) -> Option<Buffer> {
        match self.0 {
            Memory::One(buffer) => Some(buffer),
            Memory::Several(_) => None,
        }
    }

    /// The segments of buffers; a single buffer is one segment. Shared memory is dropped, and gives
    /// none.
    #[must_use]
    pub fn into_segments(self) -> Vec<Segment> {
        match self.0 {
            Memory::One(buffer) => {
                let range = 0..buffer.capacity();
                vec![Segment { buffer, range }]
            }
            Memory::Several(several) => match *several {
                Several::Buffers(segments) => segments,
                Several::Shared(_) => Vec::new(),
            },
        }
    }

    /// The pieces of shared memory; `None` for buffers.
    #[must_use]
    pub fn as_shared(&self) -> Option<&[SharedPiece]> {
        match &self.0 {
            Memory::Several(several) => match &**several {
                Several::Shared(pieces) => Some(pieces),
                Several::Buffers(_) => None,
            },
            Memory::One(_) => None,
        }
    }

    /// The pieces of shared memory; buffers are dropped, and give `None`.
    #[must_use]
    pub fn into_shared(self) -> Option<Vec<SharedPiece>> {
        match self.0 {
            Memory::Several(several) => match *several {
                Several::Shared(pieces) => Some(pieces),
                Several::Buffers(_) => None,
            },
            Memory::One(_) => None,
        }
    }

    /// The segments of several buffers, as far as they are covered by `range`, in order. Those of
    /// shared memory are [`shared`](Self::shared).
    pub(crate) fn slices(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let segments = match &self.0 {
            Memory::Several(several) => several.segments(),
            Memory::One(_) => &[],
        };
        parts(segments, range, |segment| segment.range.len()).map(|(segment, part)| &segment.as_ref()[part])
    }

    /// The same, mutable.
    pub(crate) fn slices_mut(&mut self, range: Range<usize>) -> impl Iterator<Item = &mut [u8]> {
        let segments = match &mut self.0 {
            Memory::Several(several) => several.segments_mut(),
            Memory::One(_) => &mut [],
        };
        let mut at = 0;
        segments.iter_mut().filter_map(move |segment| {
            let part = within(&range, at, segment.range.len());
            at += segment.range.len();
            (!part.is_empty()).then(|| &mut segment.as_mut()[part])
        })
    }

    /// The shared memory that `range` covers, in order; `None` for buffers.
    #[inline]
    pub(crate) fn shared(&self, range: Range<usize>) -> Option<SharedRange<'_>> {
        self.as_shared().map(|pieces| SharedRange { pieces, range })
    }

    /// Copies bytes from position `at` on out. What is beyond the capacity is left as it is in
    /// `into`.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let range = at..at.saturating_add(into.len());
        if let Some(pieces) = self.as_shared() {
            let mut rest = into;
            for (piece, part) in parts(pieces, range, SharedPiece::length) {
                let (now, later) = std::mem::take(&mut rest).split_at_mut(part.len());
                piece.read(part.start, now);
                rest = later;
            }
            return;
        }
        if let Some(buffer) = self.as_buffer() {
            let part = within(&range, 0, buffer.capacity());
            into[..part.len()].copy_from_slice(&buffer.as_slice()[part]);
            return;
        }
        let mut rest = into;
        for part in self.slices(range) {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(part.len());
            now.copy_from_slice(part);
            rest = later;
        }
    }

    /// Copies `from` to position `at` and behind, as far as it fits.
    pub fn write(&mut self, at: usize, from: &[u8]) {
        let range = at..at.saturating_add(from.len());
        if let Some(pieces) = self.as_shared() {
            let mut rest = from;
            for (piece, part) in parts(pieces, range, SharedPiece::length) {
                let (now, later) = rest.split_at(part.len());
                piece.write(part.start, now);
                rest = later;
            }
            return;
        }
        if let Some(buffer) = self.as_mut_buffer() {
            let part = within(&range, 0, buffer.capacity());
            let length = part.len();
            buffer.as_mut_slice()[part].copy_from_slice(&from[..length]);
            return;
        }
        let mut rest = from;
        for part in self.slices_mut(range) {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
        }
    }

    /// Fills the bytes `range` with zeros, as far as there are any.
    pub fn clear(&mut self, range: Range<usize>) {
        if let Some(buffer) = self.as_mut_buffer() {
            let part = within(&range, 0, buffer.capacity());
            buffer.as_mut_slice()[part].fill(0);
        } else if let Some(pieces) = self.as_shared() {
            parts(pieces, range, SharedPiece::length).for_each(|(piece, part)| piece.clear(part.start, part.len()));
        } else {
            self.slices_mut(range).for_each(|part| part.fill(0));
        }
    }

    /// Copies the first `len` bytes, or as many as there are, to a new buffer.
    #[must_use]
    pub fn gather(&self, len: usize) -> Buffer {
        let mut buffer = Buffer::zeroed(len);
        self.read(0, &mut buffer.as_mut_slice()[..len]);
        buffer
    }

    /// Copies `bytes` to the beginning, as far as they fit.
    pub fn scatter(&mut self, bytes: &[u8]) {
        self.write(0, bytes);
    }

    /// Whether every segment or piece begins and ends at a multiple of `bytes`. A single buffer
    /// does at its beginning; its end is checked with the length of the transfer.
    pub(crate) fn is_aligned(&self, bytes: usize) -> bool {
        match &self.0 {
            Memory::One(_) => true,
            Memory::Several(several) => several.is_aligned(bytes),
        }
    }
}

impl Several {
    fn capacity(&self) -> usize {
        match self {
            Several::Buffers(segments) => segments.iter().map(|segment| segment.range.len()).sum(),
            Several::Shared(pieces) => pieces.iter().map(SharedPiece::length).sum(),
        }
    }

    fn segments(&self) -> &[Segment] {
        match self {
            Several::Buffers(segments) => segments,
            Several::Shared(_) => &[],
        }
    }

    fn segments_mut(&mut self) -> &mut [Segment] {
        match self {
            Several::Buffers(segments) => segments,
            Several::Shared(_) => &mut [],
        }
    }

    fn is_aligned(&self, bytes: usize) -> bool {
        match self {
            Several::Buffers(segments) => segments
                .iter()
                .all(|Segment { range, .. }| range.start.is_multiple_of(bytes) && range.end.is_multiple_of(bytes)),
            Several::Shared(pieces) => {
                let is_aligned = |piece: &SharedPiece| piece.address().addr().is_multiple_of(bytes);
                pieces.iter().all(|piece| is_aligned(piece) && piece.length().is_multiple_of(bytes))
            }
        }
    }
}

/// A part of the shared memory of a transfer.
#[derive(Debug)]
pub(crate) struct SharedRange<'a> {
    pieces: &'a [SharedPiece],
    range: Range<usize>,
}

impl<'a> SharedRange<'a> {
    /// What a system call takes, in order. None of them is empty.
    #[inline]
    pub(crate) fn io_slices(&self) -> impl Iterator<Item = SharedIoSlice<'a>> {
        parts(self.pieces, self.range.clone(), SharedPiece::length)
            .map(|(piece, part)| piece.io_slice(part.start, part.len()))
    }
}

/// The parts that are covered by `range`, in order, none of them empty.
#[inline]
fn parts<T>(all: &[T], range: Range<usize>, len: impl Fn(&T) -> usize) -> impl Iterator<Item = (&T, Range<usize>)> {
    let mut at = 0;
    all.iter().filter_map(move |each| {
        let part = within(&range, at, len(each));
        at += len(each);
        (!part.is_empty()).then_some((each, part))
    })
}

/// The part of `range` in a segment of `len` bytes that begins at `at`, relative to the segment.
fn within(range: &Range<usize>, at: usize, len: usize) -> Range<usize> {
    let end = range.end.saturating_sub(at).min(len);
    range.start.saturating_sub(at).min(end)..end
}

const _: () = assert!(size_of::<Segments>() == size_of::<Buffer>());

#[cfg(test)]
mod tests {
    use super::*;

    fn several() -> Segments {
        let segment = |range: Range<usize>| Segment::new(Buffer::zeroed(4096), range).unwrap();
        Segments::from(vec![segment(10..13), segment(0..0), segment(4094..4096), segment(0..4)])
    }

    fn put(segments: &mut Segments, range: Range<usize>, bytes: &[u8]) {
        assert_eq!(range.len(), bytes.len());
        segments.write(range.start, bytes);
    }

    #[test]
    fn scattered_bytes_are_gathered() {
        let mut segments = several();
        segments.scatter(b"abcdefg");
        assert_eq!(&segments.gather(6).as_slice()[..8], b"abcdef\0\0");
        assert_eq!(get(&segments, 0..9), b"abcdefg\0\0");
    }

    /// As many bytes of the range as there are.
    fn get(segments: &Segments, range: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len().min(segments.capacity().saturating_sub(range.start))];
        segments.read(range.start, &mut bytes);
        bytes
    }

    #[test]
    fn the_bytes_of_segments_are_contiguous() {
        let mut segments = several();
        assert_eq!(segments.capacity(), 9);
        put(&mut segments, 0..9, b"123456789");
        put(&mut segments, 2..6, b"cdef");
        assert_eq!(get(&segments, 0..100), b"12cdef789");
        assert_eq!((get(&segments, 3..4), get(&segments, 9..12), get(&segments, 5..5)), (vec![b'd'], vec![], vec![]));
        let parts = segments.into_segments();
        assert_eq!(
            parts.iter().map(|part| part.as_ref().to_vec()).collect::<Vec<_>>(),
            [b"12c".to_vec(), Vec::new(), b"de".to_vec(), b"f789".to_vec()]
        );
        assert_eq!(parts[0].range(), 10..13);
    }

    #[test]
    fn one_buffer_is_its_own_segment() {
        let mut one = Segments::from(Buffer::zeroed(4096));
        put(&mut one, 1..3, b"ab");
        assert_eq!((get(&one, 0..4), one.capacity()), (b"\0ab\0".to_vec(), 4096));
        assert!(one.as_buffer().is_some() && one.as_mut_buffer().is_some());
        assert_eq!(one.into_buffer().unwrap().capacity(), 4096);
        assert!(several().as_buffer().is_none() && several().into_buffer().is_none());
        assert!(Segment::new(Buffer::zeroed(4096), 0..4097).is_none());
    }

    #[test]
    fn every_piece_has_to_be_aligned() {
        let segment = |range: Range<usize>| Segment::new(Buffer::zeroed(4096), range).unwrap();
        let segments = Segments::from(vec![segment(0..512), segment(1024..2048)]);
        assert!(segments.is_aligned(512) && !segments.is_aligned(1024));
    }
}
