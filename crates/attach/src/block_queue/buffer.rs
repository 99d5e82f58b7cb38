//! Memory for the data of block commands. It lies in regions, so that over RDMA the controller
//! moves them without a copy in between: what the front reads from the kernel is sent from there.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use ebof_region::{PAGE_BYTES, Region};

/// The first bytes of a page-aligned buffer, as many as a command has.
#[derive(Debug, Default)]
pub struct Buffer {
    /// `None` without bytes.
    memory: Option<ebof_region::Buffer>,
    length: usize,
}

impl Buffer {
    /// `length` bytes, all zero.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        Self { memory: (length > 0).then(|| ebof_region::Buffer::zeroed(length)), length }
    }

    /// The first `length` bytes of `memory`.
    pub(crate) fn from_region(memory: ebof_region::Buffer, length: usize) -> Self {
        debug_assert!((1..=memory.capacity()).contains(&length), "within the memory");
        Self { memory: Some(memory), length }
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    fn capacity(&self) -> usize {
        self.memory.as_ref().map_or(0, ebof_region::Buffer::capacity)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory.as_slice()[..self.length])
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory.as_mut_slice()[..self.length])
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl ebof_initiator::IoBuffer for Buffer {
    fn region(&self) -> Option<&Arc<Region>> {
        self.memory.as_ref().map(ebof_region::Buffer::region)
    }
}

/// How long a thread without work keeps memory for the next.
pub(crate) const KEPT_TIME: Duration = Duration::from_secs(1);

/// Spare bytes that are kept whatever was in use: loads change.
const SPARE_BYTES: usize = 16 << 20;

/// Buffers to be used again. A new one costs calls of the system and a page fault for each page,
/// and over RDMA its registration.
///
/// As many bytes are kept as were taken at the same time at most ([`SPARE_BYTES`] at least): what
/// completes together is taken together again. A thread that has been asleep for [`KEPT_TIME`]
/// drops them.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    buffers: VecDeque<Buffer>,
    bytes: usize,
    /// In buffers that were taken and not given back.
    taken_bytes: usize,
    /// The most that these were since the last [`Spare::trim`].
    peak_bytes: usize,
}

impl Spare {
    /// `length` bytes, from a spare buffer where one fits without waste: with whatever was in it
    /// before, which were data of the same controller.
    pub(crate) fn take(&mut self, length: usize) -> Buffer {
        let most = length.max(PAGE_BYTES).saturating_mul(4);
        let fits = |spare: &Buffer| (length..=most).contains(&spare.capacity());
        let found = if length > 0 { self.buffers.iter().rposition(fits) } else { None };
        let buffer = match found.and_then(|index| self.buffers.swap_remove_back(index)) {
            Some(buffer) => {
                self.bytes -= buffer.capacity();
                Buffer { length, ..buffer }
            }
            None => Buffer::zeroed(length),
        };
        self.taken_bytes += buffer.capacity();
        self.peak_bytes = self.peak_bytes.max(self.taken_bytes);
        self.fit();
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        if buffer.capacity() == 0 {
            return;
        }
        self.taken_bytes = self.taken_bytes.saturating_sub(buffer.capacity());
        self.bytes += buffer.capacity();
        self.buffers.push_back(buffer);
        self.fit();
    }

    /// Drops what was not used for the longest time, beyond the peak.
    fn fit(&mut self) {
        let most = self.peak_bytes.saturating_sub(self.taken_bytes).max(SPARE_BYTES);
        while self.bytes > most
            && let Some(oldest) = self.buffers.pop_front()
        {
            self.bytes -= oldest.capacity();
        }
    }

    /// Whether something is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.bytes > 0
    }

    /// Keeps nothing.
    pub(crate) fn trim(&mut self) {
        self.peak_bytes = self.taken_bytes;
        (self.bytes, self.buffers) = (0, VecDeque::new());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn buffers_are_used_again_if_they_fit() {
        let mut spare = Spare::default();
        assert_eq!((spare.take(0).len(), spare.take(0).capacity()), (0, 0));
        let mut large = spare.take(5000);
        large.fill(7);
        let place = large.as_ptr();
        spare.give(large);
        let small = spare.take(100);
        assert_eq!((small.len(), small.as_ptr()), (100, place), "two pages for one are not much");
        let mut large = spare.take(64 << 10);
        large[0] = 7;
        spare.give(large);
        assert_eq!(spare.take(4096)[0], 0, "a new one");
        assert_eq!(spare.take(60 << 10)[0], 7);
        assert_eq!((spare.buffers.len(), spare.bytes), (0, 0));
    }

    /// A deep queue whose commands complete together: the same memory for each round.
    // @test speed.block-device-memory
    #[test]
    fn what_a_deep_queue_had_is_kept_until_it_is_trimmed() {
        let mut spare = Spare::default();
        let round = |spare: &mut Spare| {
            let buffers: Vec<_> = (0..256).map(|_| spare.take(128 << 10)).collect();
            let places: BTreeSet<_> = buffers.iter().map(|buffer| buffer.as_ptr() as usize).collect();
            buffers.into_iter().for_each(|buffer| spare.give(buffer));
            places
        };
        let first = round(&mut spare);
        assert!((0..3).all(|_| round(&mut spare) == first));
        assert_eq!((spare.bytes, spare.peak_bytes), (32 << 20, 32 << 20));
        // Other sizes take the place of these.
        let large: Vec<_> = (0..16).map(|_| spare.take(1 << 20)).collect();
        assert_eq!(spare.bytes, 16 << 20);
        spare.trim();
        assert!(!spare.is_kept());
        large.into_iter().for_each(|buffer| spare.give(buffer));
        assert_eq!(spare.bytes, 16 << 20);
        spare.trim();
        assert_eq!((spare.bytes, spare.buffers.len()), (0, 0));
    }
}
