//! The memory of a transfer: one buffer from its beginning, or segments of several buffers that are
//! contiguous on the device.

use std::fmt;
use std::ops::Range;

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
    #[expect(clippy::box_collection, reason = "no larger than a buffer, so that requests stay as small as they are")]
    Several(Box<Vec<Segment>>),
}

impl From<Buffer> for Segments {
    fn from(buffer: Buffer) -> Segments {
        Segments(Memory::One(buffer))
    }
}

impl From<Vec<Segment>> for Segments {
    fn from(segments: Vec<Segment>) -> Segments {
        Segments(Memory::Several(Box::new(segments)))
    }
}

impl Segments {
    /// How many bytes fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match &self.0 {
            Memory::One(buffer) => buffer.capacity(),
            Memory::Several(segments) => segments.iter().map(|segment| segment.range.len()).sum(),
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

    /// The segments; a single buffer is one segment.
    #[must_use]
    pub fn into_segments(self) -> Vec<Segment> {
        match self.0 {
            Memory::One(buffer) => {
                let range = 0..buffer.capacity();
                vec![Segment { buffer, range }]
            }
            Memory::Several(segments) => *segments,
        }
    }

    /// Calls `visit` with the parts of memory that `range` covers, in order. Bytes beyond the
    /// capacity are left out.
    pub fn for_each<'a>(&'a self, range: Range<usize>, mut visit: impl FnMut(&'a [u8])) {
        match &self.0 {
            Memory::One(buffer) => visit(&buffer.as_slice()[within(&range, 0, buffer.capacity())]),
            Memory::Several(segments) => {
                let mut at = 0;
                for segment in segments.iter() {
                    let part = within(&range, at, segment.range.len());
                    at += segment.range.len();
                    if !part.is_empty() {
                        visit(&segment.as_ref()[part]);
                    }
                }
            }
        }
    }

    /// The same, mutable.
    pub fn for_each_mut<'a>(&'a mut self, range: Range<usize>, mut visit: impl FnMut(&'a mut [u8])) {
        match &mut self.0 {
            Memory::One(buffer) => {
                let part = within(&range, 0, buffer.capacity());
                visit(&mut buffer.as_mut_slice()[part]);
            }
            Memory::Several(segments) => {
                let mut at = 0;
                for segment in segments.iter_mut() {
                    let part = within(&range, at, segment.range.len());
                    at += segment.range.len();
                    if !part.is_empty() {
                        visit(&mut segment.as_mut()[part]);
                    }
                }
            }
        }
    }

    /// Copies the first `len` bytes, or as many as there are, to a new buffer.
    #[must_use]
    pub fn gather(&self, len: usize) -> Buffer {
        let mut buffer = Buffer::zeroed(len);
        let mut rest = buffer.as_mut_slice();
        self.for_each(0..len, |part| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(part.len());
            now.copy_from_slice(part);
            rest = later;
        });
        buffer
    }

    /// Copies `bytes` to the beginning, as far as they fit.
    pub fn scatter(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        self.for_each_mut(0..bytes.len(), |part| {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
        });
    }

    /// Whether every segment begins and ends at a multiple of `bytes`. A single buffer does at its
    /// beginning; its end is checked with the length of the transfer.
    pub(crate) fn is_aligned(&self, bytes: usize) -> bool {
        match &self.0 {
            Memory::One(_) => true,
            Memory::Several(segments) => segments
                .iter()
                .all(|Segment { range, .. }| range.start.is_multiple_of(bytes) && range.end.is_multiple_of(bytes)),
        }
    }
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
        let mut left = bytes;
        segments.for_each_mut(range, |part| {
            let (now, later) = left.split_at(part.len());
            part.copy_from_slice(now);
            left = later;
        });
        assert!(left.is_empty());
    }

    #[test]
    fn scattered_bytes_are_gathered() {
        let mut segments = several();
        segments.scatter(b"abcdefg");
        assert_eq!(&segments.gather(6).as_slice()[..8], b"abcdef\0\0");
        assert_eq!(get(&segments, 0..9), b"abcdefg\0\0");
    }

    fn get(segments: &Segments, range: Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::new();
        segments.for_each(range, |part| bytes.extend_from_slice(part));
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
