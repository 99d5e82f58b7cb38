//! Devices whose bytes are in this process's memory: their bytes can be sent from where they are,
//! and taken from where they arrived, without a buffer in between.
//!
//! What is lent is held still by a lock. Whoever holds one loan and wants another must not wait for
//! it: a writer that waits between two readers would stop both for ever. That is what
//! [`Resident::lend`]'s `patient` is about.

use std::fmt;
use std::ops::Range;
use std::sync::RwLockReadGuard;

use zerocopy::IntoBytes;

use crate::Error;
use crate::page::Page;

/// What an unwritten or imaginary device is made of.
pub(crate) static ZEROS: [Page; 32] = [Page::ZERO; 32];

/// Direct access to the bytes of a device in memory. Ranges must have passed
/// [`Geometry::check_transfer`](crate::Geometry::check_transfer).
pub trait Resident {
    /// The first bytes of `offset..offset + len`, as many as lie in one piece: at least one where
    /// `len` is not zero. They do not change while the loan lasts.
    ///
    /// `None` when they are being changed right now and the caller is not `patient`. Patience is
    /// only for those who hold no other loan.
    fn lend(&self, offset: u64, len: usize, patient: bool) -> Option<Lent<'_>>;

    /// Stores `bytes` at `offset`, as [`Operation::Write`](crate::Operation::Write) does.
    ///
    /// # Errors
    /// `OutOfRange`, `Misaligned` or `ReadOnly`.
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Error>;
}

/// Bytes of a device, held still.
pub struct Lent<'a> {
    place: Place<'a>,
    within: Range<usize>,
}

enum Place<'a> {
    Zeros,
    Chunk(RwLockReadGuard<'a, Option<Box<[Page]>>>),
}

impl<'a> Lent<'a> {
    /// Up to `len` zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        Self { place: Place::Zeros, within: 0..len.min(ZEROS.as_bytes().len()) }
    }

    /// The bytes `within` a chunk; one that does not exist reads as zeros.
    pub(crate) fn chunk(guard: RwLockReadGuard<'a, Option<Box<[Page]>>>, within: Range<usize>) -> Self {
        if guard.is_none() {
            return Self::zeros(within.len());
        }
        Self { place: Place::Chunk(guard), within }
    }
}

impl AsRef<[u8]> for Lent<'_> {
    fn as_ref(&self) -> &[u8] {
        let bytes = match &self.place {
            Place::Chunk(guard) => guard.as_ref().map_or(&[][..], |pages| pages.as_bytes()),
            Place::Zeros => ZEROS.as_bytes(),
        };
        &bytes[self.within.clone()]
    }
}

impl fmt::Debug for Lent<'_> {
    /// The place only: the bytes are a host's data and belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("within", &self.within).finish_non_exhaustive()
    }
}
