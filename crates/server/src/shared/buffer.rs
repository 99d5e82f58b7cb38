//! Payload buffers of one reactor: taken when a command needs one, returned when its bytes have
//! been sent.
//!
//! Bounded: no more than the budget is ever in use, and commands wait for a buffer instead. Small
//! buffers are cut out of regions; what of a region is not in use stays as long as a part of it is.
//! Not shared between threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebof_backend::{Buffer, Region};
use ebof_region::CHUNK_BYTES;

/// Sizes in which buffers are handed out, bytes.
const CLASSES: [usize; 6] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20];

/// Buffers of sizes up to this are cut out of regions of [`REGION_BYTES`]; the others are regions
/// by themselves, of which those of a memory drive's chunk can be given to it.
const PIECE_BYTES_MAX: usize = 16 << 10;
const REGION_BYTES: usize = 256 << 10;

/// A bounded pool of page-aligned buffers.
#[derive(Debug)]
pub(crate) struct Pool {
    free: [Vec<Buffer>; CLASSES.len()],
    free_bytes: usize,
    outstanding_bytes: usize,
    budget_bytes: usize,
    host_share_bytes: usize,
    /// Bytes in buffers that connections keep between commands.
    kept_bytes: usize,
}

/// The part of the budget that connections may keep besides it.
const KEPT_PART: usize = 16;

impl Pool {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        let host_share_bytes = budget_bytes;
        Self {
            free: Default::default(),
            free_bytes: 0,
            outstanding_bytes: 0,
            budget_bytes,
            host_share_bytes,
            kept_bytes: 0,
        }
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

    /// A buffer of at least `len` bytes with unspecified content, or `None` while the budget is
    /// used up.
    ///
    /// A `len` beyond the largest class is served by a buffer of its own, within the same budget.
    pub(crate) fn take(&mut self, len: usize) -> Option<Buffer> {
        self.take_within(len, self.budget_bytes)
    }

    #[inline]
    fn take_within(&mut self, len: usize, limit_bytes: usize) -> Option<Buffer> {
        let class = Self::class_of(len);
        let bytes = class.map_or_else(|| len.next_multiple_of(4096), |class| CLASSES[class]);
        if self.outstanding_bytes + bytes > limit_bytes {
            return None;
        }
        self.outstanding_bytes += bytes;
        let buffer = self.find(class, bytes);
        // By its size it is taken off when it comes back.
        debug_assert!(buffer.capacity() == bytes, "a buffer of {} bytes for {bytes}", buffer.capacity());
        Some(buffer)
    }

    #[inline]
    fn find(&mut self, class: Option<usize>, bytes: usize) -> Buffer {
        if let Some(buffer) = class.and_then(|class| self.free[class].pop()) {
            self.free_bytes -= bytes;
            return buffer;
        }
        self.allocate(class, bytes)
    }

    #[cold]
    fn allocate(&mut self, class: Option<usize>, bytes: usize) -> Buffer {
        let region_bytes = if bytes <= PIECE_BYTES_MAX { REGION_BYTES } else { bytes };
        let more = region_bytes - bytes;
        if self.outstanding_bytes + self.free_bytes + more > self.budget_bytes {
            // Those of other sizes: the budget holds for both together.
            self.shrink();
        }
        match class {
            Some(class) if more > 0 && self.outstanding_bytes + self.free_bytes + more <= self.budget_bytes => {
                let count = u32::try_from(region_bytes / bytes).expect("a region has 16 or 64 buffers");
                self.free[class].extend(Buffer::zeroed_together(bytes, count));
                self.free_bytes += more;
                self.free[class].pop().expect("a region has some")
            }
            _ if bytes == CHUNK_BYTES => Buffer::chunk(),
            _ => Buffer::zeroed(bytes),
        }
    }

    /// The smallest class for `len` bytes.
    #[inline]
    fn class_of(len: usize) -> Option<usize> {
        if len <= CLASSES[0] { Some(0) } else { CLASSES.iter().position(|&size| size >= len) }
    }

    /// Bytes that a buffer for `len` bytes takes.
    #[inline]
    pub(crate) fn size_of(len: usize) -> usize {
        Self::class_of(len).map_or_else(|| len.next_multiple_of(4096), |class| CLASSES[class])
    }

    /// As [`Pool::take`], but leaves a sixteenth of the budget for commands that cannot wait.
    pub(crate) fn take_leaving_reserve(&mut self, len: usize) -> Option<Buffer> {
        let reserve = if self.outstanding_bytes == 0 { 0 } else { self.budget_bytes / 16 };
        self.take_within(len, self.budget_bytes - reserve)
    }

    /// Whether a buffer of `len` bytes is available now.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.outstanding_bytes + Self::size_of(len) <= self.budget_bytes
    }

    /// Returns a buffer, which is kept for reuse: until [`Pool::shrink`], or until another
    /// size needs its memory.
    pub(crate) fn put(&mut self, buffer: Buffer) {
        self.forget(buffer.capacity());
        self.store(buffer);
    }

    #[inline]
    fn store(&mut self, buffer: Buffer) {
        let bytes = buffer.capacity();
        if let Some(class) = Self::class_of(bytes).filter(|class| CLASSES[*class] == bytes) {
            self.free_bytes += bytes;
            self.free[class].push(buffer);
        }
    }

    /// Buffers of so many bytes will not be returned: they are freed with who has them.
    ///
    /// # Panics
    /// More comes back than was taken: the budget would not hold any more. Each buffer has one
    /// owner, and nobody exchanges one for a buffer of another size.
    #[inline]
    pub(crate) fn forget(&mut self, bytes: usize) {
        self.outstanding_bytes = self.outstanding_bytes.checked_sub(bytes).expect("it was taken from this pool");
    }

    /// Has a connection keep a buffer of so many bytes between its commands, if there is room for
    /// that: it does not count as in use any more.
    pub(crate) fn keep(&mut self, bytes: usize) -> bool {
        if self.kept_bytes + bytes > self.budget_bytes / KEPT_PART {
            return false;
        }
        self.kept_bytes += bytes;
        self.forget(bytes);
        true
    }

    /// Returns a buffer that was kept.
    pub(crate) fn put_kept(&mut self, buffer: Buffer) {
        self.forget_kept(buffer.capacity());
        self.store(buffer);
    }

    /// Kept buffers of so many bytes will not be returned.
    pub(crate) fn forget_kept(&mut self, bytes: usize) {
        self.kept_bytes = self.kept_bytes.checked_sub(bytes).expect("it was kept");
    }

    /// Bytes in buffers that are in use.
    pub(crate) fn outstanding_bytes(&self) -> usize {
        self.outstanding_bytes
    }

    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Another budget, of a test.
    #[cfg(test)]
    pub(crate) fn set_budget(&mut self, bytes: usize) {
        self.budget_bytes = bytes;
    }

    /// Frees the regions of which nothing is in use: of which all buffers are here, but for those
    /// that were forgotten and are freed.
    pub(crate) fn shrink(&mut self) {
        for free in &mut self.free {
            let mut counts: BTreeMap<*const Region, usize> = BTreeMap::new();
            for buffer in &*free {
                *counts.entry(Arc::as_ptr(buffer.region())).or_default() += 1;
            }
            let is_in_use = |region: &Arc<Region>| Arc::strong_count(region) > counts[&Arc::as_ptr(region)];
            // Before any of them is dropped.
            let in_use: BTreeSet<*const Region> =
                free.iter().map(Buffer::region).filter(|region| is_in_use(region)).map(Arc::as_ptr).collect();
            free.retain(|buffer| in_use.contains(&Arc::as_ptr(buffer.region())));
            free.shrink_to_fit();
        }
        self.free_bytes = self.free.iter().zip(CLASSES).map(|(free, bytes)| free.len() * bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // @test speed.bounded-memory
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

    // @test speed.bounded-memory
    #[test]
    fn freed_buffers_are_kept_within_the_budget() {
        let mut pool = Pool::new(64 << 20);
        let busiest: Vec<Buffer> = (0..64).map(|_| pool.take(1 << 20).unwrap()).collect();
        busiest.into_iter().for_each(|buffer| pool.put(buffer));
        assert_eq!(pool.free_bytes, 64 << 20);
        let small: Vec<Buffer> = (0..16).map(|_| pool.take(4096).unwrap()).collect();
        assert!(pool.free_bytes < REGION_BYTES, "the memory of large buffers was needed");
        small.into_iter().for_each(|buffer| pool.put(buffer));
        pool.shrink();
        assert_eq!(pool.free_bytes, 0);
    }

    #[test]
    fn a_region_is_freed_when_none_of_its_buffers_is_in_use() {
        let mut pool = Pool::new(4 << 20);
        let mut small: Vec<Buffer> = (0..2 * REGION_BYTES / 4096).map(|_| pool.take(1000).unwrap()).collect();
        assert_eq!(pool.free_bytes, 0, "there are two regions");
        let kept = small.swap_remove(5);
        small.into_iter().for_each(|buffer| pool.put(buffer));
        pool.shrink();
        assert_eq!((pool.free_bytes, pool.outstanding_bytes()), (REGION_BYTES - 4096, 4096));
        pool.put(kept);
        pool.shrink();
        assert_eq!((pool.free_bytes, pool.outstanding_bytes()), (0, 0));
    }

    /// Of a connection that was given up: its buffer is freed with its queue pair.
    #[test]
    fn a_region_is_freed_when_one_of_its_buffers_was_forgotten_and_is_freed() {
        let mut pool = Pool::new(4 << 20);
        let (kept, forgotten) = (pool.take(1000).unwrap(), pool.take(1000).unwrap());
        let region = Arc::downgrade(kept.region());
        pool.put(kept);
        pool.forget(forgotten.capacity());
        pool.shrink();
        assert_eq!(pool.free_bytes, REGION_BYTES - 4096);
        drop(forgotten);
        pool.shrink();
        assert_eq!((pool.free_bytes, pool.outstanding_bytes(), region.strong_count()), (0, 0, 0));
    }

    #[test]
    fn connections_keep_a_part_of_the_budget_besides_it() {
        let mut pool = Pool::new(16 * 8192);
        let mut taken: Vec<Buffer> = (0..32).map(|_| pool.take(4096).unwrap()).collect();
        assert!(pool.take(1).is_none());
        assert_eq!([(); 3].map(|()| pool.keep(4096)), [true, true, false]);
        assert_eq!((pool.outstanding_bytes(), pool.kept_bytes()), (30 * 4096, 2 * 4096));
        pool.put_kept(taken.pop().unwrap());
        pool.forget_kept(4096);
        assert_eq!((pool.outstanding_bytes(), pool.kept_bytes()), (30 * 4096, 0));
    }

    #[test]
    fn a_nearly_used_budget_has_room_for_a_buffer_but_not_for_a_region() {
        let mut pool = Pool::new((1 << 20) + 4096);
        let large = pool.take(1 << 20).unwrap();
        let small = pool.take(4096).unwrap();
        assert!(pool.take(1).is_none() && pool.free_bytes == 0);
        assert_eq!(small.region().capacity(), 4096);
        pool.put(large);
        pool.put(small);
        assert_eq!(pool.free_bytes, (1 << 20) + 4096);
    }
}
