//! Payload buffers of one reactor: taken when a command needs one, given back when its bytes have left.
//!
//! Bounded: a reactor never holds more than its budget, and commands wait for a buffer instead. Not shared between
//! threads.

use ebof_backend::Buffer;

/// Sizes in which buffers are handed out, bytes.
const CLASSES: [usize; 6] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20];

/// A bounded pool of page-aligned buffers.
#[derive(Debug)]
pub(crate) struct Pool {
    free: [Vec<Buffer>; CLASSES.len()],
    free_bytes: usize,
    outstanding_bytes: usize,
    budget_bytes: usize,
    host_share_bytes: usize,
}

impl Pool {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        let host_share_bytes = budget_bytes;
        Self { free: Default::default(), free_bytes: 0, outstanding_bytes: 0, budget_bytes, host_share_bytes }
    }

    /// The same, of which one host may have so many percent.
    pub(crate) fn shared_by_hosts(self, percent: u8) -> Self {
        Self { host_share_bytes: self.budget_bytes / 100 * usize::from(percent.clamp(1, 100)), ..self }
    }

    /// What one host may have.
    #[inline]
    pub(crate) fn host_share_bytes(&self) -> usize {
        self.host_share_bytes
    }

    /// A buffer of at least `len` bytes with unspecified content, or `None` while the budget is used up.
    ///
    /// A `len` beyond the largest class is served by a buffer of its own, within the same budget.
    pub(crate) fn take(&mut self, len: usize) -> Option<Buffer> {
        if !self.has_room(len) {
            return None;
        }
        let bytes = Self::size_of(len);
        self.outstanding_bytes += bytes;
        let class = CLASSES.iter().position(|&size| size == bytes);
        if let Some(buffer) = class.and_then(|class| self.free[class].pop()) {
            self.free_bytes -= bytes;
            return Some(buffer);
        }
        if self.outstanding_bytes + self.free_bytes > self.budget_bytes {
            // Those of other sizes: the budget holds for both together.
            self.shrink();
        }
        Some(Buffer::zeroed(bytes))
    }

    /// Bytes that a buffer for `len` bytes takes.
    pub(crate) fn size_of(len: usize) -> usize {
        CLASSES.iter().find(|&&size| size >= len).copied().unwrap_or(len.next_multiple_of(4096))
    }

    /// As [`Pool::take`], but leaves a sixteenth of the budget for those who cannot wait.
    pub(crate) fn take_leaving_reserve(&mut self, len: usize) -> Option<Buffer> {
        let reserve = self.budget_bytes / 16;
        let fits = self.outstanding_bytes + Self::size_of(len) + reserve <= self.budget_bytes;
        if fits || self.outstanding_bytes == 0 { self.take(len) } else { None }
    }

    /// Whether a buffer of `len` bytes can be had now.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.outstanding_bytes + Self::size_of(len) <= self.budget_bytes
    }

    /// Takes a buffer back, and keeps it for the next: until [`Pool::shrink`], or until another size needs its memory.
    pub(crate) fn put(&mut self, buffer: Buffer) {
        let bytes = buffer.capacity();
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(bytes);
        if let Some(class) = CLASSES.iter().position(|&size| size == bytes) {
            self.free_bytes += bytes;
            self.free[class].push(buffer);
        }
    }

    /// Bytes in buffers that are in use.
    pub(crate) fn outstanding_bytes(&self) -> usize {
        self.outstanding_bytes
    }

    /// Another budget, of a test.
    #[cfg(test)]
    pub(crate) fn set_budget(&mut self, bytes: usize) {
        self.budget_bytes = bytes;
    }

    /// Frees what is not in use.
    pub(crate) fn shrink(&mut self) {
        self.free = Default::default();
        self.free_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_and_buffers_are_reused() {
        let mut pool = Pool::new(2 << 20);
        let a = pool.take(1 << 20).unwrap();
        let b = pool.take((1 << 20) - 5).unwrap();
        assert!(pool.take(1).is_none());
        let address = a.as_slice().as_ptr();
        pool.put(a);
        let again = pool.take(1 << 20).unwrap();
        assert_eq!(again.as_slice().as_ptr(), address);
        pool.put(again);
        pool.put(b);
        assert_eq!(pool.outstanding_bytes(), 0);
    }

    #[test]
    fn what_was_needed_is_kept_and_the_budget_holds_for_all_of_it() {
        let mut pool = Pool::new(64 << 20);
        let busiest: Vec<Buffer> = (0..64).map(|_| pool.take(1 << 20).unwrap()).collect();
        busiest.into_iter().for_each(|buffer| pool.put(buffer));
        assert_eq!(pool.free_bytes, 64 << 20);
        let small: Vec<Buffer> = (0..16).map(|_| pool.take(4096).unwrap()).collect();
        assert_eq!(pool.free_bytes, 0, "the memory of large buffers was needed");
        small.into_iter().for_each(|buffer| pool.put(buffer));
        pool.shrink();
        assert_eq!(pool.free_bytes, 0);
    }
}
