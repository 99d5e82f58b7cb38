//! Where the data of a command are in the host's memory: one piece, or a list of pieces.
//!
//! A list stays with the connection from the command to its response. What is passed on with the
//! command is a number.

use alloc::vec::Vec;

use ebof_nvme::data_pointer::{DataLocation, DataPointer};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Sgl, Sqe, Status};

/// Descriptors of a list at most (MSDBD).
pub const SEGMENTS_MAX: u32 = 16;

/// A place in the host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Virtual address.
    pub address: u64,
    /// Remote key.
    pub key: u32,
}

/// Where the data of a command are in the host's memory. Of the connection that the command came
/// over, and until its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    length: u32,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    One { remote: Remote, invalidate: bool },
    List(u16),
}

impl Segments {
    /// What the data pointer of a command says, as it stands in [`Command::sqe`]; `None` where the
    /// command has no data or has them in its capsule.
    ///
    /// [`Command::sqe`]: crate::controller::Command::sqe
    #[must_use]
    #[inline]
    pub fn from_pointer(pointer: &DataPointer) -> Option<Self> {
        match pointer.decode() {
            DataLocation::Sgl(Sgl::Keyed { address, length, key, invalidate }) if length > 0 => {
                Some(Self::one(Remote { address, key }, length, invalidate))
            }
            DataLocation::Sgl(Sgl::Transport { length }) if length > 0 => {
                let number = pointer.descriptor()?.address.get();
                Some(Self { length, place: Place::List(u16::try_from(number).ok()?) })
            }
            _ => None,
        }
    }

    pub(crate) const fn one(remote: Remote, length: u32, invalidate: bool) -> Self {
        Self { length, place: Place::One { remote, invalidate } }
    }

    /// Bytes, place, and whether its key is to be invalidated; `None` where they are a list.
    #[inline]
    pub(crate) const fn single(&self) -> Option<(u32, Remote, bool)> {
        match self.place {
            Place::One { remote, invalidate } => Some((self.length, remote, invalidate)),
            Place::List(_) => None,
        }
    }

    /// Bytes of data, not zero.
    #[must_use]
    #[inline]
    pub const fn length(&self) -> u32 {
        self.length
    }
}

/// A descriptor of a list.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    remote: Remote,
    length: u32,
}

#[derive(Clone, Debug)]
struct List {
    segments: [Segment; SEGMENTS_MAX as usize],
    count: usize,
    invalidate: Option<u32>,
    is_free: bool,
}

/// The lists of a connection's outstanding commands.
#[derive(Debug)]
pub(crate) struct Lists {
    table: Vec<List>,
    free: Vec<u16>,
    /// Lists at most.
    max: usize,
}

impl Lists {
    pub(crate) const fn new(max: u16) -> Self {
        Self { table: Vec::new(), free: Vec::new(), max: max as usize }
    }

    /// Takes in the descriptors of a command, which are all keyed; `None` if they announce nothing.
    /// The first of them that allows it has its key invalidated: a response has room for one.
    pub(crate) fn insert(&mut self, descriptors: &[SglDescriptor]) -> Result<Option<Segments>, Status> {
        let mut list =
            List { segments: [Segment::default(); SEGMENTS_MAX as usize], count: 0, invalidate: None, is_free: false };
        if descriptors.len() > SEGMENTS_MAX as usize {
            return Err(Status::INVALID_SGL_COUNT.dnr());
        }
        let mut total = 0;
        for descriptor in descriptors {
            let Sgl::Keyed { address, length, key, invalidate } = descriptor.decode() else {
                return Err(Status::SGL_TYPE_INVALID.dnr());
            };
            if length == 0 {
                continue;
            }
            if invalidate && list.invalidate.is_none() {
                list.invalidate = Some(key);
            }
            list.segments[list.count] = Segment { remote: Remote { address, key }, length };
            list.count += 1;
            // At most 16 times 24 bits.
            total += length;
        }
        if total == 0 {
            return Ok(None);
        }
        let number = self.place(list).ok_or(Status::INTERNAL_ERROR)?;
        Ok(Some(Segments { length: total, place: Place::List(number) }))
    }

    fn place(&mut self, list: List) -> Option<u16> {
        if let Some(number) = self.free.pop() {
            self.table[usize::from(number)] = list;
            return Some(number);
        }
        if self.table.len() == self.max {
            return None;
        }
        if self.table.is_empty() {
            // With the first list: most connections have none.
            self.table.reserve_exact(self.max);
            self.free.reserve_exact(self.max);
        }
        self.table.push(list);
        u16::try_from(self.table.len() - 1).ok()
    }

    /// The command is over.
    #[inline]
    pub(crate) fn remove(&mut self, segments: Segments) {
        if let Place::List(number) = segments.place
            && let Some(list) = self.table.get_mut(usize::from(number))
            && !list.is_free
        {
            list.is_free = true;
            self.free.push(number);
        }
    }

    /// The key that the response invalidates.
    #[inline]
    pub(crate) fn invalidate(&self, segments: Segments) -> Option<u32> {
        match segments.place {
            Place::One { remote, invalidate } => invalidate.then_some(remote.key),
            Place::List(number) => self.table.get(usize::from(number))?.invalidate,
        }
    }

    /// The segment with this index.
    #[inline]
    fn get(&self, segments: Segments, index: usize) -> Option<Segment> {
        match segments.place {
            Place::One { remote, .. } => (index == 0).then_some(Segment { remote, length: segments.length }),
            Place::List(number) => {
                let list = self.table.get(usize::from(number))?;
                list.segments[..list.count].get(index).copied()
            }
        }
    }
}

/// A piece of a command's data: one RDMA READ or WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) remote: Remote,
}

/// The pieces of a command's data that are not posted yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    segments: Segments,
    next: u8,
    offset: u32,
    left: u32,
}

impl Pieces {
    /// The first `length` bytes; what the segments do not have is left out.
    #[inline]
    pub(crate) fn new(segments: Segments, length: u32) -> Self {
        Self { segments, next: 0, offset: 0, left: length.min(segments.length) }
    }

    #[inline]
    pub(crate) const fn is_done(&self) -> bool {
        self.left == 0
    }

    /// The next one.
    #[inline]
    pub(crate) fn next(&mut self, lists: &Lists) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        // If a host uses an identifier twice, its list may have gone with the answer to the other
        // command, and another one may be in its place: only that host's own memory is concerned.
        let Some(segment) = lists.get(self.segments, usize::from(self.next)) else {
            self.left = 0;
            return None;
        };
        let piece = Piece { offset: self.offset, length: segment.length.min(self.left), remote: segment.remote };
        self.next += 1;
        self.offset += piece.length;
        self.left -= piece.length;
        Some(piece)
    }
}

/// Replaces the data pointer of a command whose data are described by a list: by a Transport SGL,
/// whose address says which, or by one of no length.
pub(crate) fn refer(sqe: &mut Sqe, segments: Option<Segments>) {
    sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: segments.map_or(0, |segments| segments.length) });
    if let Some(Segments { place: Place::List(number), .. }) = segments {
        sqe.dptr.address = u64::from(number).into();
    }
}
