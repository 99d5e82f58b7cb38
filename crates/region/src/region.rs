//! Regions, which can be registered as a whole with whoever moves the bytes (a ring of the kernel,
//! an adapter), and the buffers cut out of them. Buffers are owned, page-aligned, and zeroed when
//! they are made.
//!
//! Soundness rests on one rule. The pages of a region are accessed through its buffers only; these
//! are made together with the region, or when nobody else has it, without overlap, and cannot be
//! copied; one that is cut in two gives its pages up to the pieces. So the owner
//! of a buffer owns its pages exclusively, and they are freed when the last buffer and the last
//! other owner of the region are dropped. A ring may give the address of a region to the kernel,
//! which then holds the pages itself; it accesses them only for requests, which own their buffers.
//! An adapter's registration is kept by the region and dropped before its pages are freed; the
//! adapter accesses them only for operations, which own their buffers, or for a peer that was given
//! the key of an operation's buffer.

use std::fmt;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use zerocopy::IntoBytes;

use crate::arena::Pages;
use crate::chunk::Chunks;
use crate::page::PAGE_BYTES;
use crate::registration::{Registration, Registrations};
use crate::table::TableEntry;

/// Page-aligned memory that is registered, and freed, as a whole. Its bytes are accessed through
/// its buffers only.
pub struct Region {
    /// Of adapters. Before the pages: dropped in this order.
    registrations: Registrations,
    /// Its entry in a ring's table of buffers.
    entry: OnceLock<TableEntry>,
    /// Transfers of rings while it was not registered.
    uses: AtomicU32,
    pages: Pages,
}

impl Region {
    fn new(pages: Pages) -> Region {
        Region { registrations: Registrations::default(), entry: OnceLock::new(), uses: AtomicU32::new(0), pages }
    }

    /// Size in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.pages.count() * PAGE_BYTES
    }

    /// Where it begins: for who registers it with a kernel or an adapter, and answers for what that
    /// does with it.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        self.pages.first().as_ptr().cast()
    }

    /// What the adapter `owner` has registered, if that is a `T`.
    #[inline]
    #[must_use]
    pub fn registration<T: Registration>(&self, owner: u64) -> Option<&T> {
        self.registrations.find(owner)
    }

    /// Keeps `registration` until the region ends.
    ///
    /// # Errors
    /// Its owner has one already, which stays; `registration` is given back.
    pub fn register<T: Registration>(&self, registration: T) -> Result<(), T> {
        self.registrations.add(registration)
    }

    /// Its entry in a ring's table, if it has one.
    #[inline]
    #[must_use]
    pub fn entry(&self) -> Option<&TableEntry> {
        self.entry.get()
    }

    /// `false` if there is one already: then `entry` is dropped.
    pub fn set_entry(&self, entry: TableEntry) -> bool {
        self.entry.set(entry).is_ok()
    }

    /// In how many transfers it was before this one, while it had no entry.
    pub fn count_use(&self) -> u32 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }
}

impl fmt::Debug for Region {
    /// The size only: the bytes are hosts' data and belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

/// An owned, page-aligned run of bytes: a piece of a [`Region`]. Moving the `Buffer` never moves
/// the bytes.
pub struct Buffer {
    region: Arc<Region>,
    /// Pages of the region, from this one on. Two small numbers, so that a buffer is no larger than
    /// a boxed slice.
    first: u32,
    count: u32,
}

impl Buffer {
    /// A buffer of at least `len` bytes, all zero, in a region of its own. The capacity is `len`
    /// rounded up to whole pages.
    ///
    /// Aborts the process when memory is exhausted, as every allocation of the standard library
    /// does: `len` has to be bounded by the caller, below 16 TiB.
    #[must_use]
    pub fn zeroed(len: usize) -> Buffer {
        Buffer::from_pages(Pages::zeroed(len.div_ceil(PAGE_BYTES)))
    }

    /// A buffer of [`CHUNK_BYTES`](crate::CHUNK_BYTES), all zero, in a region of its own, of the
    /// memory that memory drives consist of: to be exchanged with a part of one.
    #[must_use]
    pub fn chunk() -> Buffer {
        Buffer::chunk_of(&Chunks::of_process())
    }

    /// The same of the memory of memory drives that consist of `chunks`.
    #[must_use]
    pub fn chunk_of(chunks: &Chunks) -> Buffer {
        Buffer::from_pages(chunks.take())
    }

    fn from_pages(pages: Pages) -> Buffer {
        let count = u32::try_from(pages.count()).expect("less than 16 TiB");
        Buffer { region: Arc::new(Region::new(pages)), first: 0, count }
    }

    /// `count` such buffers in one region, which is freed when all of them are dropped.
    #[must_use]
    pub fn zeroed_together(len: usize, count: u32) -> Vec<Buffer> {
        let pages = u32::try_from(len.div_ceil(PAGE_BYTES)).expect("less than 16 TiB");
        let all = pages.checked_mul(count).expect("less than 16 TiB");
        let region = Arc::new(Region::new(Pages::zeroed(all as usize)));
        let buffer = |at: u32| Buffer { region: Arc::clone(&region), first: at * pages, count: pages };
        (0..count).map(buffer).collect()
    }

    /// All of a region that has no buffer left, with whatever its bytes are.
    ///
    /// # Errors
    /// Somebody else has the region, which is given back.
    pub fn of_unused(mut region: Arc<Region>) -> Result<Buffer, Arc<Region>> {
        if Arc::get_mut(&mut region).is_none() {
            return Err(region);
        }
        let count = u32::try_from(region.pages.count()).expect("less than 16 TiB");
        Ok(Buffer { region, first: 0, count })
    }

    /// Cuts off the first `len` bytes, rounded up to whole pages; `None` where there are fewer.
    #[must_use]
    pub fn cut(&mut self, len: usize) -> Option<Buffer> {
        let pages = u32::try_from(len.div_ceil(PAGE_BYTES)).ok()?;
        let left = self.count.checked_sub(pages)?;
        let piece = Buffer { region: Arc::clone(&self.region), first: self.first, count: pages };
        (self.first, self.count) = (self.first + pages, left);
        Some(piece)
    }

    /// The region that it belongs to.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Its offset in the region, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.first as usize * PAGE_BYTES
    }

    /// How many bytes fit: a multiple of [`PAGE_BYTES`].
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.count as usize * PAGE_BYTES
    }

    /// All bytes, up to the capacity.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `first` and `count` are within the region, whose pages were initialised when it
        // was made and live as long as this buffer holds it; no other buffer has them, and nobody
        // changes them while this one is borrowed.
        // JUSTIFICATION: safe code cannot give parts of one allocation to several owners.
        unsafe {
            slice::from_raw_parts(self.region.pages.first().add(self.first as usize).as_ptr(), self.count as usize)
        }
        .as_bytes()
    }

    /// All bytes, up to the capacity, to be written.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; this buffer is borrowed exclusively.
        // JUSTIFICATION: as in `as_slice`.
        unsafe {
            slice::from_raw_parts_mut(self.region.pages.first().add(self.first as usize).as_ptr(), self.count as usize)
        }
        .as_mut_bytes()
    }

    /// Swaps its pages with `pages`. `false` if their number differs, others use the region, or an
    /// adapter has registered it: to register other pages takes longer than to copy them.
    pub fn exchange(&mut self, pages: &mut Pages) -> bool {
        if pages.count() != self.count as usize {
            return false;
        }
        match Arc::get_mut(&mut self.region) {
            Some(region) if region.pages.count() == pages.count() && region.registrations.is_empty() => {
                // What is known of the region, an entry in a ring's table for one, is of its pages.
                let own = std::mem::replace(&mut region.pages, Pages::zeroed(0));
                *region = Region::new(std::mem::replace(pages, own));
                true
            }
            _ => false,
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl fmt::Debug for Buffer {
    /// The size only: the bytes are a host's data and belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

const _: () = assert!(size_of::<Buffer>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_whole_pages_and_the_bytes_are_aligned_and_zero() {
        for (len, capacity) in [(0, 0), (1, 4096), (4096, 4096), (4097, 8192), (1 << 20, 1 << 20)] {
            let buffer = Buffer::zeroed(len);
            assert_eq!(buffer.capacity(), capacity);
            assert_eq!(buffer.as_slice().len(), capacity);
            assert_eq!(buffer.as_slice().as_ptr().align_offset(PAGE_BYTES), 0);
            assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn moving_a_buffer_does_not_move_its_bytes() {
        let mut buffer = Buffer::zeroed(4096);
        buffer.as_mut_slice()[17] = 3;
        let before = buffer.as_slice().as_ptr();
        let moved = Box::new(buffer);
        assert_eq!(moved.as_slice().as_ptr(), before);
        assert_eq!(moved.as_slice()[17], 3);
    }

    #[test]
    fn buffers_of_a_region_do_not_overlap_and_are_dropped_independently() {
        let mut buffers = Buffer::zeroed_together(5000, 8);
        assert_eq!(buffers[0].region().capacity(), 8 * 8192);
        for (byte, buffer) in (1..).zip(&mut buffers) {
            assert_eq!((buffer.capacity(), buffer.offset()), (8192, usize::from(byte - 1) * 8192));
            buffer.as_mut_slice().fill(byte);
        }
        // On other threads, and when their neighbours are gone.
        let threads: Vec<_> = (1_u8..)
            .zip(buffers)
            .filter(|(byte, _)| byte % 2 == 0)
            .map(|(byte, mut buffer)| {
                std::thread::spawn(move || {
                    assert!(buffer.as_slice().iter().all(|found| *found == byte));
                    buffer.as_mut_slice().fill(0);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(Buffer::zeroed_together(4096, 0).is_empty());
    }

    #[test]
    fn a_buffer_is_cut_into_pieces_and_whole_again_when_they_are_gone() {
        let mut rest = Buffer::zeroed(4 * PAGE_BYTES);
        let region = Arc::clone(rest.region());
        let mut piece = rest.cut(5000).unwrap();
        piece.as_mut_slice().fill(1);
        rest.as_mut_slice().fill(2);
        assert_eq!((piece.capacity(), piece.offset()), (2 * PAGE_BYTES, 0));
        assert_eq!((rest.capacity(), rest.offset()), (2 * PAGE_BYTES, 2 * PAGE_BYTES));
        assert!(piece.as_slice().iter().all(|byte| *byte == 1), "not of the other piece");
        assert!(rest.cut(2 * PAGE_BYTES + 1).is_none());
        let last = rest.cut(2 * PAGE_BYTES).unwrap();
        assert_eq!((last.capacity(), rest.capacity()), (2 * PAGE_BYTES, 0));
        drop((rest, last));
        let region = Buffer::of_unused(region).unwrap_err();
        drop(piece);
        let whole = Buffer::of_unused(region).unwrap();
        assert_eq!((whole.capacity(), whole.offset(), whole.as_slice()[0]), (4 * PAGE_BYTES, 0, 1));
    }

    #[test]
    fn pages_are_exchanged_only_with_a_whole_region() {
        let mut pages = Pages::zeroed(2);
        pages.as_mut_bytes().fill(7);
        let mut alone = Buffer::zeroed(8192);
        alone.as_mut_slice().fill(1);
        assert!(alone.exchange(&mut pages));
        assert!(alone.as_slice() == [7; 8192] && pages.as_bytes() == [1; 8192]);
        assert!(!Buffer::zeroed(4096).exchange(&mut pages));
        let mut piece = Buffer::zeroed_together(8192, 2).swap_remove(0);
        assert!(!piece.exchange(&mut pages) && pages.as_bytes() == [1; 8192]);
        let shared = Arc::clone(alone.region());
        assert!(!alone.exchange(&mut pages));
        drop(shared);
        assert!(alone.exchange(&mut pages));
        assert!(alone.region().register(Key).is_ok() && !alone.exchange(&mut pages));
    }

    #[derive(Debug)]
    struct Key;

    impl Registration for Key {
        fn owner(&self) -> u64 {
            1
        }
    }
}
