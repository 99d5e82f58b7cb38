//! Devices whose bytes are in this process's memory: reads and writes without a buffer in between.
//!
//! Lent bytes are read-locked. A caller that holds a loan must not block for another one: a writer
//! that waits between the two would deadlock with it. Hence the parameter `may_block` of
//! [`Resident::lend`].

use std::fmt;
use std::ops::Range;
use std::sync::RwLockReadGuard;

use zerocopy::IntoBytes;

use crate::Error;
use ebof_region::{Page, Pages};

/// The contents of unwritten parts of a device.
pub(crate) static ZEROS: [Page; 32] = [Page::ZERO; 32];

/// Direct access to the bytes of a device in memory. Ranges must have passed
/// [`Geometry::check_transfer`](crate::Geometry::check_transfer).
pub trait Resident {
    /// The first bytes of `offset..offset + len` that are contiguous in memory: at least one if
    /// `len` is not zero. They do not change as long as the loan is held.
    ///
    /// `None` if they are being written and `may_block` is false. Only callers that hold no other
    /// loan may block.
    fn lend(&self, offset: u64, len: usize, may_block: bool) -> Option<Lent<'_>>;

    /// Stores `bytes` at `offset`, as [`Operation::Write`](crate::Operation::Write) does.
    ///
    /// # Errors
    /// `OutOfRange`, `Misaligned` or `ReadOnly`.
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Error>;
}

/// Bytes of a device, read-locked.
pub struct Lent<'a> {
    memory: Memory<'a>,
    range: Range<usize>,
}

enum Memory<'a> {
    Zeros,
    Chunk(RwLockReadGuard<'a, Option<Pages>>),
}

impl<'a> Lent<'a> {
    /// Up to `len` zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        Self { memory: Memory::Zeros, range: 0..len.min(ZEROS.as_bytes().len()) }
    }

    /// The bytes `range` of a chunk; one that does not exist reads as zeros.
    pub(crate) fn chunk(guard: RwLockReadGuard<'a, Option<Pages>>, range: Range<usize>) -> Self {
        if guard.is_none() {
            return Self::zeros(range.len());
        }
        Self { memory: Memory::Chunk(guard), range }
    }
}

impl AsRef<[u8]> for Lent<'_> {
    fn as_ref(&self) -> &[u8] {
        let bytes = match &self.memory {
            Memory::Chunk(guard) => guard.as_ref().map_or(&[][..], Pages::as_bytes),
            Memory::Zeros => ZEROS.as_bytes(),
        };
        &bytes[self.range.clone()]
    }
}

impl fmt::Debug for Lent<'_> {
    /// The range only: the bytes are a host's data, and must not be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("range", &self.range).finish_non_exhaustive()
    }
}
