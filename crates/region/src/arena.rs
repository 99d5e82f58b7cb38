//! Pieces of large mappings, which the system is asked to back with huge pages: for memory that is
//! larger than what the processor can translate in pages of 4 KiB. Either from the first write on,
//! or later, when somebody asks for it ([`Arena::collapse`]).
//!
//! The memory is private to the process, or in files of memory that can be handed to another
//! process ([`Arena::into_files`]).
//!
//! Soundness rests on one rule, that of a heap: a piece that has been taken belongs to its
//! [`Pages`] alone, and is free again when these are dropped. A mapping ends with the last of those
//! who have it: the source and the pieces. A file leaves the process only when no piece of it has
//! an owner here any more, and its mapping has ended: nobody changes the bytes behind a reference.
//! It is sealed against becoming shorter.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags};
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

/// Where the memory of an arena is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArenaMemory {
    /// In the process, and nowhere else.
    Private,
    /// In files of memory.
    Files,
}

/// Where a piece is in the files of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkPlace {
    /// Number of the file.
    pub file: u32,
    /// Number of the piece in it.
    pub piece: u32,
}

/// A file of an arena: memory that lives as long as somebody has a descriptor of it.
#[derive(Debug)]
pub struct ArenaFile {
    /// Its number, as in [`ChunkPlace`].
    pub number: u32,
    /// Its size. What was not written takes no memory.
    pub bytes: usize,
    /// The file.
    pub file: OwnedFd,
}

/// A mapping that is cut into pieces of one size.
struct Mapping {
    /// Which one of its arena it is.
    number: u32,
    first: NonNull<Page>,
    bytes: usize,
    /// What is mapped; private memory otherwise.
    file: Option<OwnedFd>,
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

impl Pieces {
    fn all_free(bytes: usize, arena: &Arena) -> Self {
        let pieces = bytes / PAGE_BYTES / arena.piece_pages;
        // The first ones are taken first.
        let free = (0..u32::try_from(pieces).expect("at most a mapping's pages")).rev().collect();
        Self { free, taken: vec![0; bytes / HUGE_BYTES], full: Vec::new(), later: arena.huge == Huge::Later }
    }
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
    fn new(number: u32, bytes: usize, arena: &Arena) -> Result<Mapping, Errno> {
        let file = match arena.location {
            ArenaMemory::Private => None,
            ArenaMemory::Files => Some(new_file(bytes)?),
        };
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
        // Owns the range from here on.
        let mapping = Mapping {
            number,
            first: NonNull::new(first.cast()).ok_or(Errno::NOMEM)?,
            bytes,
            file,
            piece_pages: arena.piece_pages,
            pieces: Mutex::new(Pieces::all_free(bytes, arena)),
        };
        if let Some(file) = &mapping.file {
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            // SAFETY: the range is the mapping's, nobody has an address in it, and the file is as
            // long.
            // JUSTIFICATION: a file at an address of this alignment has no safe interface.
            unsafe { rustix::mm::mmap(first, bytes, protection, flags, file, 0)? };
        }
        if arena.huge == Huge::AtFirstWrite {
            // Where the system has none, the pages are small ones. SAFETY: the range is the
            // mapping's, and the advice changes no bytes.
            // JUSTIFICATION: there is no safe interface.
            let _without = unsafe { rustix::mm::madvise(first, bytes, Advice::LinuxHugepage) };
        }
        Ok(mapping)
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

    /// The number of the piece that begins there.
    fn piece_at(&self, first: NonNull<Page>) -> u32 {
        let pages = (first.addr().get() - self.first.addr().get()) / PAGE_BYTES;
        u32::try_from(pages / self.piece_pages).expect("as it was when it was taken")
    }

    /// Gives the memory of a piece back to the system: it reads as zeros from then on.
    fn free(&self, first: NonNull<Page>) {
        let bytes = self.piece_pages * PAGE_BYTES;
        // The other advice would leave the pages of a file in it.
        let advice = if self.file.is_some() { Advice::LinuxRemove } else { Advice::LinuxDontNeed };
        // SAFETY: the piece is within the mapping, and its last owner has just given it up.
        // JUSTIFICATION: there is no safe interface.
        let given_back = unsafe { rustix::mm::madvise(first.as_ptr().cast(), bytes, advice) };
        if given_back.is_err() {
            // Locked memory stays. SAFETY: as above.
            // JUSTIFICATION: as above.
            unsafe { ptr::write_bytes(first.as_ptr(), 0, self.piece_pages) };
        }
        let piece = self.piece_at(first);
        let (part, _) = self.part(piece);
        let mut pieces = self.lock();
        // A piece has one owner, who frees it once: one more would have two owners of the same
        // bytes next time.
        assert!(pieces.taken[part] > 0, "a piece is freed that nobody had");
        pieces.taken[part] -= 1;
        pieces.free.push(piece);
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
            Err(Errno::from_io_error(&io::Error::last_os_error()).expect("a system call that failed has set it"))
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Fails where the system has merged it with a neighbour and has no mapping left to divide
        // it: then it stays, and nobody uses it.
        // SAFETY: the range is the mapping's, and no piece has an owner: each holds the mapping.
        // JUSTIFICATION: there is no safe interface.
        let _stays = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.bytes) };
    }
}

/// A file of memory, all zero. Nobody can make it shorter: an access behind its end would be a
/// signal.
fn new_file(bytes: usize) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::memfd_create(c"ebof-arena", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// A source of pieces of one size, all zero. Its mappings grow with what is taken.
pub struct Arena {
    piece_pages: usize,
    huge: Huge,
    location: ArenaMemory,
    /// None is ever removed: its index is its number.
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
        Self::with(piece_bytes, Huge::AtFirstWrite, ArenaMemory::Private)
    }

    /// The same with small pages, which [`Arena::collapse`] replaces.
    ///
    /// # Panics
    /// As [`Arena::new`].
    #[must_use]
    pub const fn small_at_first(piece_bytes: usize) -> Arena {
        Self::with(piece_bytes, Huge::Later, ArenaMemory::Private)
    }

    /// The same in files of memory, which can be handed to another process. First writes, pieces
    /// that are freed and huge pages cost more there
    /// ([0106](../../../docs/adr/0106-memory-to-be-handed-over.md)).
    ///
    /// # Panics
    /// As [`Arena::new`].
    #[must_use]
    pub const fn small_in_files(piece_bytes: usize) -> Arena {
        Self::with(piece_bytes, Huge::Later, ArenaMemory::Files)
    }

    const fn with(piece_bytes: usize, huge: Huge, location: ArenaMemory) -> Arena {
        assert!(piece_bytes >= PAGE_BYTES && HUGE_BYTES.is_multiple_of(piece_bytes));
        Arena { piece_pages: piece_bytes / PAGE_BYTES, huge, location, mappings: Mutex::new(Vec::new()) }
    }

    /// Whether `pages` are a piece that is in a file of this arena.
    #[must_use]
    pub fn keeps(&self, pages: &Pages) -> bool {
        let Some(mapping) = pages.mapping.as_ref().filter(|mapping| mapping.file.is_some()) else { return false };
        self.lock().get(mapping.number as usize).is_some_and(|own| Arc::ptr_eq(own, mapping))
    }

    /// Gives a piece up without freeing it: its bytes stay in the file that it is in, and are found
    /// by the place.
    ///
    /// # Errors
    /// It is in no file [of this arena](Self::keeps), and is given back.
    pub fn give_up(&self, pages: Pages) -> Result<ChunkPlace, Pages> {
        if !self.keeps(&pages) {
            return Err(pages);
        }
        // Not freed, and no owner of the mapping any more.
        let mut pages = ManuallyDrop::new(pages);
        let mapping = pages.mapping.take().expect("what is kept in a file is of a mapping");
        Ok(ChunkPlace { file: mapping.number, piece: mapping.piece_at(pages.first) })
    }

    /// The files that the memory is in, to be handed to another process. What was
    /// [given up](Self::give_up) is in them, and all other pieces are zero.
    ///
    /// # Errors
    /// Somebody has a piece, and nothing has changed.
    pub fn into_files(self) -> Result<Vec<ArenaFile>, Arena> {
        let mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        // Only this arena makes more owners of a mapping, and it is owned here.
        let has_owners = mappings.iter().any(|mapping| Arc::strong_count(mapping) > 1);
        drop(mappings);
        if has_owners {
            return Err(self);
        }
        let mappings = self.mappings.into_inner().unwrap_or_else(PoisonError::into_inner);
        let files = mappings.into_iter().map(|mapping| {
            let mut mapping = Arc::into_inner(mapping).expect("it had one owner, and nobody makes another");
            let file = mapping.file.take();
            file.map(|file| ArenaFile { number: mapping.number, bytes: mapping.bytes, file })
        });
        Ok(files.flatten().collect())
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
            let number = u32::try_from(mappings.len()).expect("a process has fewer mappings");
            if let Ok(mapping) = Mapping::new(number, bytes, self).map(Arc::new)
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
mod tests;
