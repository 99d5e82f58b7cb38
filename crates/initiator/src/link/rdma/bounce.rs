//! Memory for data whose buffers an adapter cannot access.
//!
//! Buffers stay registered while they are here, so that a command costs a copy and no registration.

use ebof_region::{Buffer, PAGE_BYTES};

/// Buffers of sizes that are powers of two, up to a budget.
#[derive(Debug)]
pub(super) struct Bounce {
    /// Free ones, by size: of one page, two pages, and so on.
    free: [Vec<Buffer>; SIZES],
    /// Bytes of all, those in use included.
    bytes: usize,
    /// Bytes of those in use.
    used: usize,
    bytes_max: usize,
}

/// From a page to 16 MiB.
const SIZES: usize = 13;

impl Bounce {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { free: Default::default(), bytes: 0, used: 0, bytes_max }
    }

    /// A buffer of at least `length` bytes, with whatever was in it before. `None`: the budget is
    /// spent. One buffer there is in any case.
    pub(super) fn take(&mut self, length: usize) -> Option<Buffer> {
        let bytes = length.max(PAGE_BYTES).next_power_of_two();
        let buffer = match self.free.get_mut(size_of(bytes)).and_then(Vec::pop) {
            Some(buffer) => buffer,
            None => {
                self.shrink(bytes);
                if self.bytes + bytes > self.bytes_max && self.used > 0 {
                    return None;
                }
                self.bytes += bytes;
                Buffer::zeroed(bytes)
            }
        };
        self.used += bytes;
        Some(buffer)
    }

    /// Takes a buffer back.
    pub(super) fn give(&mut self, buffer: Buffer) {
        let bytes = buffer.capacity();
        self.used -= bytes;
        match self.free.get_mut(size_of(bytes)) {
            Some(free) if self.bytes <= self.bytes_max => free.push(buffer),
            _ => self.bytes -= bytes,
        }
    }

    /// Frees buffers of other sizes until there is room for `bytes` more.
    fn shrink(&mut self, bytes: usize) {
        while self.bytes + bytes > self.bytes_max {
            let Some(buffer) = self.free.iter_mut().rev().find_map(Vec::pop) else { return };
            self.bytes -= buffer.capacity();
        }
    }
}

/// The place of buffers of `bytes`, which is a power of two and at least a page.
fn size_of(bytes: usize) -> usize {
    (bytes / PAGE_BYTES).trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_bounded() {
        let mut bounce = Bounce::new(64 << 10);
        let first = bounce.take(5000).unwrap();
        assert_eq!(first.capacity(), 8192);
        let place = first.as_slice().as_ptr();
        bounce.give(first);
        let again = bounce.take(8000).unwrap();
        assert_eq!(again.as_slice().as_ptr(), place);
        let large = bounce.take(32 << 10).unwrap();
        assert!(bounce.take(32 << 10).is_none(), "8 + 32 + 32 KiB are more than 64");
        bounce.give(again);
        assert!(bounce.take(32 << 10).is_some(), "the small one was freed");
        bounce.give(large);
    }

    #[test]
    fn a_buffer_beyond_the_budget_is_there_if_no_other_is_in_use() {
        let mut bounce = Bounce::new(64 << 10);
        let small = bounce.take(1).unwrap();
        assert!(bounce.take(1 << 20).is_none());
        bounce.give(small);
        let large = bounce.take(1 << 20).unwrap();
        assert!(bounce.take(1).is_none());
        bounce.give(large);
        assert_eq!((bounce.bytes, bounce.used), (0, 0), "it is not kept");
        let huge = bounce.take(20 << 20).unwrap();
        bounce.give(huge);
        assert_eq!(bounce.bytes, 0);
    }
}
