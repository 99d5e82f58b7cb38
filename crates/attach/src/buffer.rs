//! Memory for the data of block commands. It lies in regions, so that over RDMA the controller
//! moves them without a copy in between: what the front reads from the kernel is sent from there.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

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

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Keeps the first `length` bytes, if there are more.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
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

impl ebof_initiator::Buffer for Buffer {
    fn region(&self) -> Option<&Arc<Region>> {
        self.memory.as_ref().map(ebof_region::Buffer::region)
    }
}

/// Buffers to be used again. A new one costs calls of the system, and over RDMA its registration.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    buffers: VecDeque<Buffer>,
    bytes: usize,
}

/// The most bytes that are kept: what a queue of 128 commands with 128 KiB has.
const SPARE_BYTES: usize = 16 << 20;

impl Spare {
    /// `length` bytes, from a spare buffer where one fits without waste: with whatever was in it
    /// before, which were data of the same controller.
    pub(crate) fn take(&mut self, length: usize) -> Buffer {
        let most = length.max(PAGE_BYTES).saturating_mul(4);
        let fits = |spare: &Buffer| (length..=most).contains(&spare.capacity());
        let found = if length > 0 { self.buffers.iter().rposition(fits) } else { None };
        match found.and_then(|index| self.buffers.swap_remove_back(index)) {
            Some(buffer) => {
                self.bytes -= buffer.capacity();
                Buffer { length, ..buffer }
            }
            None => Buffer::zeroed(length),
        }
    }

    /// Takes a buffer back, in place of those that were not used for the longest time.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        if buffer.capacity() == 0 {
            return;
        }
        self.bytes += buffer.capacity();
        self.buffers.push_back(buffer);
        while self.bytes > SPARE_BYTES
            && let Some(oldest) = self.buffers.pop_front()
        {
            self.bytes -= oldest.capacity();
        }
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn spare_buffers_are_bounded_and_the_last_ones_stay() {
        let mut spare = Spare::default();
        (0..40).for_each(|_| spare.give(Buffer::zeroed(1 << 20)));
        assert_eq!((spare.buffers.len(), spare.bytes), (16, 16 << 20));
        (0..300).for_each(|_| spare.give(Buffer::zeroed(1)));
        assert_eq!(spare.buffers.iter().filter(|buffer| buffer.capacity() == PAGE_BYTES).count(), 300);
        assert!(spare.bytes <= SPARE_BYTES);
        spare.give(Buffer::zeroed(32 << 20));
        assert_eq!((spare.buffers.len(), spare.bytes), (0, 0), "too large to be kept");
    }
}
