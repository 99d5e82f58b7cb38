//! Pieces of large mappings, which the system is asked to back with huge pages: for memory that is
//! larger than what the processor can translate in pages of 4 KiB. Either from the first write on,
//! or later, when somebody asks for it ([`Arena::collapse`]).
//!
//! Soundness rests on one rule, that of a heap: a piece that has been taken belongs to its
//! [`Pages`] alone, and is free again when these are dropped. A mapping ends with the last of those
//! who have it: the source and the pieces.

use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use zerocopy::IntoBytes;

use crate::page::{PAGE_BYTES, Page, zeroed_pages};

/// A huge page of x86-64 and of ARM with pages of 4 KiB.
const HUGE_BYTES: usize = 2 << 20;

/// Bytes of the largest mapping: a thousand of them are a terabyte, and a process may have 65,530.
const MAPPING_BYTES_MAX: usize = 1 << 30;

/// Owned, page-aligned memory: of the heap, or a piece of a mapping.
pub struct Pages {
    first: NonNull<Page>,
    count: usize,
    /// Where it is a piece of one.
    mapping: Option<Arc<Mapping>>,
}

// SAFETY: it owns its pages, as a box of them would.
// JUSTIFICATION: pages are behind a pointer, because they are part of a larger allocation.
unsafe impl Send for Pages {}
// SAFETY: a shared reference gives shared access to the pages only.
// JUSTIFICATION: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `count` zeroed pages of the heap. Aborts the process when memory is exhausted.
    #[must_use]
    pub fn zeroed(count: usize) -> Pages {
        let pages = zeroed_pages(count);
        Pages { first: NonNull::from(Box::leak(pages)).cast(), count, mapping: None }
    }

    /// A zeroed chunk of [`CHUNK_BYTES`](crate::CHUNK_BYTES), under which a huge page is put as
    /// soon as that disturbs nobody. Aborts the process when memory is exhausted.
    #[must_use]
    pub fn chunk() -> Pages {
        crate::chunk::take()
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Where they begin. For regions, whose buffers have parts of them: as long as one of these is
    /// used, no reference to the pages as a whole may be made.
    pub(crate) const fn first(&self) -> NonNull<Page> {
        self.first
    }

    /// Their bytes.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the pages are there until this is dropped, are initialised (zeros, until they are
        // written), and belong to nobody else.
        // JUSTIFICATION: they are part of a larger allocation.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.count) }.as_bytes()
    }

    /// Their bytes, to be written.
    #[inline]
    #[must_use]
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_bytes`; they are borrowed exclusively.
        // JUSTIFICATION: as in `as_bytes`.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.count) }.as_mut_bytes()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        match self.mapping.take() {
            Some(mapping) => mapping.free(self.first),
            None => {
                let pages = NonNull::slice_from_raw_parts(self.first, self.count);
                // SAFETY: pointer and length are those of the box that was leaked in `zeroed`, and
                // nobody uses them any more: this owned them.
                // JUSTIFICATION: pages are behind a pointer, because a piece of a mapping has no
                // box.
                drop(unsafe { Box::from_raw(pages.as_ptr()) });
            }
        }
    }
}

impl fmt::Debug for Pages {
    /// The size only: the bytes are hosts' data and belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("count", &self.count).finish_non_exhaustive()
    }
}

/// `madvise`: puts a huge page under a range, with its bytes copied. Linux 6.1 and later.
const MADV_COLLAPSE: libc::c_int = 25;

/// When huge pages are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Huge {
    /// The first write to one zeroes all of it, and waits until the system has the memory.
    AtFirstWrite,
    /// First writes get small pages; [`Arena::collapse`] replaces those of a huge page's size whose
    /// pieces are all taken.
    Later,
}

/// A mapping that is cut into pieces of one size.
struct Mapping {
    first: NonNull<Page>,
    bytes: usize,
    piece_pages: usize,
    pieces: Mutex<Pieces>,
}

/// Who has the pieces of a mapping.
struct Pieces {
    /// Those that nobody has, by their number. Those freed last are taken first.
    free: Vec<u32>,
    /// How many are taken, for each part of a huge page's size.
    taken: Vec<u32>,
    /// Parts that have been taken completely since they were last offered for a huge page; at most
    /// all parts.
    full: Vec<u32>,
    /// Parts become full, and are offered.
    later: bool,
}

// SAFETY: its memory belongs to the owners of the pieces; this only says which are free, behind a
// lock.
// JUSTIFICATION: the memory is behind a pointer.
unsafe impl Send for Mapping {}
// SAFETY: as above.
// JUSTIFICATION: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `bytes`, a multiple of [`HUGE_BYTES`], which is a multiple of a piece's.
    fn new(bytes: usize, piece_pages: usize, huge: Huge) -> Result<Mapping, Errno> {
        // Private memory of a process, which takes none before it is written. Larger, so that it
        // has an aligned part.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let all = bytes + HUGE_BYTES;
        // SAFETY: a new mapping at an address that the system chooses changes no memory of others.
        // JUSTIFICATION: the heap has no memory of this alignment that can be given back in parts.
        let mapped = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), all, protection, flags)? };
        let before = mapped.align_offset(HUGE_BYTES);
        let behind = HUGE_BYTES - before;
        // SAFETY: both parts are of the mapping, and nobody has an address in them.
        // JUSTIFICATION: as above.
        let first = unsafe {
            let first = mapped.byte_add(before);
            if before > 0 {
                rustix::mm::munmap(mapped, before)?;
            }
            if behind > 0 {
                rustix::mm::munmap(first.byte_add(bytes), behind)?;
            }
            first
        };
        if huge == Huge::AtFirstWrite {
            // Where the system has none, the pages are small ones. SAFETY: the range is the
            // mapping's, and the advice changes no bytes.
            // JUSTIFICATION: there is no safe interface.
            let _without = unsafe { rustix::mm::madvise(first, bytes, Advice::LinuxHugepage) };
        }
        let pieces = bytes / PAGE_BYTES / piece_pages;
        // The first ones are taken first.
        let free = (0..u32::try_from(pieces).expect("at most a mapping's pages")).rev().collect();
        let taken = vec![0; bytes / HUGE_BYTES];
        Ok(Mapping {
            first: NonNull::new(first.cast()).ok_or(Errno::NOMEM)?,
            bytes,
            piece_pages,
            pieces: Mutex::new(Pieces { free, taken, full: Vec::new(), later: huge == Huge::Later }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        // Nothing panics while it is held.
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of a huge page's size that a piece is in, and how many pieces such a part has.
    fn part(&self, piece: u32) -> (usize, u32) {
        let pieces = u32::try_from(HUGE_BYTES / PAGE_BYTES / self.piece_pages).expect("at most 512");
        ((piece / pieces) as usize, pieces)
    }

    /// A piece, and whether it was the last one of its part that [`Arena::collapse`] waits for.
    fn take(self: &Arc<Self>) -> Option<(Pages, bool)> {
        let mut pieces = self.lock();
        let piece = pieces.free.pop()?;
        let (part, all) = self.part(piece);
        pieces.taken[part] += 1;
        let is_full = pieces.later && pieces.taken[part] == all;
        if is_full {
            let part = u32::try_from(part).expect("fewer than pieces");
            if !pieces.full.contains(&part) {
                pieces.full.push(part);
            }
        }
        drop(pieces);
        // SAFETY: the piece is within the mapping.
        // JUSTIFICATION: the memory has no slice to index.
        let first = unsafe { self.first.add(piece as usize * self.piece_pages) };
        Some((Pages { first, count: self.piece_pages, mapping: Some(Arc::clone(self)) }, is_full))
    }

    /// Gives the memory of a piece back to the system: it reads as zeros from then on.
    fn free(&self, first: NonNull<Page>) {
        let bytes = self.piece_pages * PAGE_BYTES;
        // SAFETY: the piece is within the mapping, and its last owner has just given it up.
        // JUSTIFICATION: there is no safe interface.
        let given_back = unsafe { rustix::mm::madvise(first.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
        if given_back.is_err() {
            // Locked memory stays. SAFETY: as above.
            // JUSTIFICATION: as above.
            unsafe { ptr::write_bytes(first.as_ptr(), 0, self.piece_pages) };
        }
        let pages = (first.addr().get() - self.first.addr().get()) / PAGE_BYTES;
        let piece = u32::try_from(pages / self.piece_pages).expect("as it was when it was taken");
        let (part, _) = self.part(piece);
        let mut pieces = self.lock();
        pieces.free.push(piece);
        pieces.taken[part] -= 1;
    }

    /// Takes the next part that was taken completely, and still is.
    fn next_full(&self) -> Option<u32> {
        let (_, all) = self.part(0);
        let mut pieces = self.lock();
        while let Some(part) = pieces.full.pop() {
            if pieces.taken[part as usize] == all {
                return Some(part);
            }
        }
        None
    }

    /// Puts a huge page under a part, whoever has its pieces: threads that use them meanwhile wait
    /// for the copy. A piece that is freed at the same time reads as zeros all the same: the system
    /// orders the two.
    fn collapse(&self, part: u32) -> Result<(), Errno> {
        // SAFETY: the part is within the mapping, which lives while it is borrowed, and the advice
        // changes no bytes.
        // JUSTIFICATION: there is no safe interface.
        let refused = unsafe {
            let first = self.first.as_ptr().cast::<libc::c_void>().byte_add(part as usize * HUGE_BYTES);
            libc::madvise(first, HUGE_BYTES, MADV_COLLAPSE)
        };
        if refused == 0 {
            Ok(())
        } else {
            Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL))
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping's, and all pieces are free: each holds the mapping.
        // JUSTIFICATION: there is no safe interface.
        let _ours = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.bytes) };
    }
}

/// A source of pieces of one size, all zero. Its mappings grow with what is taken.
pub struct Arena {
    piece_pages: usize,
    huge: Huge,
    mappings: Mutex<Vec<Arc<Mapping>>>,
}

impl Arena {
    /// Of pieces of `piece_bytes`, which is at least a page, and divides 2 MiB. The first write to
    /// each 2 MiB gets a huge page, where the system has one.
    ///
    /// # Panics
    /// It is another number.
    #[must_use]
    pub const fn new(piece_bytes: usize) -> Arena {
        Self::with(piece_bytes, Huge::AtFirstWrite)
    }

    /// The same with small pages, which [`Arena::collapse`] replaces.
    ///
    /// # Panics
    /// As [`Arena::new`].
    #[must_use]
    pub const fn small_at_first(piece_bytes: usize) -> Arena {
        Self::with(piece_bytes, Huge::Later)
    }

    const fn with(piece_bytes: usize, huge: Huge) -> Arena {
        assert!(piece_bytes >= PAGE_BYTES && HUGE_BYTES.is_multiple_of(piece_bytes));
        Arena { piece_pages: piece_bytes / PAGE_BYTES, huge, mappings: Mutex::new(Vec::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Mapping>>> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A zeroed piece; of the heap, where the system gives no mapping. Aborts the process when
    /// memory is exhausted.
    #[must_use]
    pub fn piece(&self) -> Pages {
        self.take().0
    }

    /// The same, and whether [`Arena::collapse`] has something more to do.
    pub(crate) fn take(&self) -> (Pages, bool) {
        let mut mappings = self.lock();
        // The one that was added last is the largest.
        if let Some(taken) = mappings.iter().rev().find_map(Mapping::take) {
            return taken;
        }
        let all: usize = mappings.iter().map(|mapping| mapping.bytes).sum();
        let wanted = all.next_power_of_two().clamp(HUGE_BYTES, MAPPING_BYTES_MAX);
        for bytes in [wanted, HUGE_BYTES] {
            if let Ok(mapping) = Mapping::new(bytes, self.piece_pages, self.huge).map(Arc::new)
                && let Some(taken) = mapping.take()
            {
                mappings.push(mapping);
                return taken;
            }
        }
        (Pages::zeroed(self.piece_pages), false)
    }

    /// Whether [`Arena::collapse`] has something to do.
    #[must_use]
    pub fn has_full_parts(&self) -> bool {
        self.lock().iter().any(|mapping| !mapping.lock().full.is_empty())
    }

    /// Puts a huge page under 2 MiB whose pieces have all been taken since this was last done for
    /// them: about 0.2 ms, or several where a hypervisor has to provide the memory. Threads that
    /// use one of these pieces, or memory that they have not used before, wait meanwhile. `None`:
    /// there is nothing to do.
    ///
    /// # Errors
    /// The system's: it has no huge page left, or is too old for this (Linux before 6.1).
    pub fn collapse(&self) -> Option<Result<(), Errno>> {
        let next = self.lock().iter().find_map(|mapping| Some((Arc::clone(mapping), mapping.next_full()?)));
        next.map(|(mapping, part)| mapping.collapse(part))
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("piece_pages", &self.piece_pages).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 128 << 10;

    fn mappings(arena: &Arena) -> Vec<(usize, usize)> {
        let mappings = arena.mappings.lock().unwrap();
        mappings.iter().map(|mapping| (mapping.bytes, mapping.lock().free.len())).collect()
    }

    #[test]
    fn pieces_are_zero_aligned_and_do_not_overlap() {
        let arena = Arena::new(PIECE);
        let mut pieces: Vec<Pages> = (0..40).map(|_| arena.piece()).collect();
        for (byte, piece) in (1..).zip(&mut pieces) {
            assert!(piece.as_bytes().len() == PIECE && piece.as_bytes().iter().all(|byte| *byte == 0));
            assert!(piece.mapping.is_some() && piece.as_bytes().as_ptr().align_offset(PAGE_BYTES) == 0);
            piece.as_mut_bytes().fill(byte);
        }
        assert!((1..).zip(&pieces).all(|(byte, piece)| piece.as_bytes() == [byte; PIECE]));
        assert_eq!(pieces[0].as_bytes().as_ptr().align_offset(HUGE_BYTES), 0, "and lie in huge pages");
        // One after the other, as they are taken.
        assert_eq!(pieces[1].as_bytes().as_ptr(), pieces[0].as_bytes().as_ptr_range().end);
        // Twice as many as before, each time.
        assert_eq!(mappings(&arena), [(HUGE_BYTES, 0), (HUGE_BYTES, 0), (2 * HUGE_BYTES, 24)]);
    }

    #[test]
    fn a_freed_piece_is_given_back_and_reads_as_zeros() {
        let arena = Arena::new(PIECE);
        let mut pieces: Vec<Pages> = (0..16).map(|_| arena.piece()).collect();
        pieces.iter_mut().for_each(|piece| piece.as_mut_bytes().fill(7));
        let address = pieces[5].as_bytes().as_ptr();
        drop(pieces.swap_remove(5));
        assert_eq!(mappings(&arena), [(HUGE_BYTES, 1)]);
        let again = arena.piece();
        assert_eq!(again.as_bytes().as_ptr(), address);
        assert!(again.as_bytes().iter().all(|byte| *byte == 0));
        assert!(pieces.iter().all(|piece| piece.as_bytes() == [7; PIECE]), "the others are as they were");
    }

    #[test]
    fn parts_whose_pieces_are_all_taken_get_huge_pages_and_keep_their_bytes() {
        let arena = Arena::small_at_first(PIECE);
        let mut pieces: Vec<Pages> = (0..15).map(|_| arena.piece()).collect();
        assert!(!arena.has_full_parts() && arena.collapse().is_none(), "one piece is free");
        pieces.push(arena.piece());
        for (byte, piece) in (1..).zip(&mut pieces) {
            piece.as_mut_bytes().fill(byte);
        }
        assert!(arena.has_full_parts());
        match arena.collapse() {
            Some(Ok(())) => {}
            // An old kernel, or one without huge pages.
            Some(Err(refused)) => assert!(matches!(refused, Errno::INVAL | Errno::NOMEM | Errno::AGAIN), "{refused}"),
            None => panic!("nothing to do"),
        }
        assert!((1..).zip(&pieces).all(|(byte, piece)| piece.as_bytes() == [byte; PIECE]));
        assert!(arena.collapse().is_none(), "once");
        pieces.truncate(15);
        pieces.push(arena.piece());
        assert!(pieces[15].as_bytes().iter().all(|byte| *byte == 0), "a part of a huge page is given back");
        assert!(arena.has_full_parts(), "and the rest needs another one");
        pieces.truncate(15);
        assert!(arena.collapse().is_none(), "which it does not get while a piece is free");
    }

    #[test]
    fn a_piece_outlives_its_source_on_any_thread() {
        let arena = Arena::new(PIECE);
        let mut piece = arena.piece();
        piece.as_mut_bytes().fill(9);
        drop(arena);
        std::thread::spawn(move || assert_eq!(piece.as_bytes(), [9; PIECE])).join().unwrap();
    }

    #[test]
    fn threads_take_and_free_pieces_at_the_same_time() {
        let arena = Arena::new(PIECE);
        std::thread::scope(|scope| {
            for byte in 1..=4 {
                let arena = &arena;
                scope.spawn(move || {
                    for _ in 0..50 {
                        let mut pieces: Vec<Pages> = (0..5).map(|_| arena.piece()).collect();
                        assert!(pieces.iter().all(|piece| piece.as_bytes().iter().all(|found| *found == 0)));
                        pieces.iter_mut().for_each(|piece| piece.as_mut_bytes().fill(byte));
                        assert!(pieces.iter().all(|piece| piece.as_bytes() == [byte; PIECE]));
                    }
                });
            }
        });
        assert!(mappings(&arena).iter().all(|(bytes, free)| *free == bytes / PIECE));
    }
}
