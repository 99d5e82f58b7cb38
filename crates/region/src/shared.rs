//! Memory that another process shares with this one, and changes whenever it wants to.
//!
//! Soundness rests on three rules.
//!
//! - No reference to such memory is ever made, neither `&[u8]` nor `&mut [u8]`: its bytes change
//!   behind the compiler's back. They are copied, by raw pointers; what is copied is checked in the
//!   copy. Doorbells and phase tags are accessed atomically.
//! - A mapping lives as long as somebody holds a piece of it, and every access is checked against
//!   its length.
//! - An access beyond the end of a file is a signal that ends a process (SIGBUS), and a client
//!   could shorten its file at any time. So the file is sealed against that before its size is
//!   looked at; or `shared/guard.rs` puts zeros where its pages are gone, and the access is looked
//!   at again.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::page::PAGE_BYTES;

mod access;
mod guard;

pub use access::{MapError, MappingAccess};

use guard::Guard;

/// A range of a file, mapped. Unmapped when it and all its [pieces](SharedPiece) are dropped.
pub struct SharedMapping {
    first: NonNull<u8>,
    length: usize,
    access: MappingAccess,
    /// What is mapped: whole pages of the file, which may be huge ones. The bytes above are in it.
    pages: (NonNull<u8>, usize),
    /// If the file may become shorter.
    guard: Option<Guard>,
    /// Something of it was gone, or of another mapping that reports to the same owner.
    has_failed: Arc<AtomicBool>,
}

// SAFETY: it gives no reference to the memory, which other processes change at any time anyway:
// threads of this one may do so, too. It belongs to no thread.
// JUSTIFICATION: the memory is behind a pointer.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
// JUSTIFICATION: as above.
unsafe impl Sync for SharedMapping {}

/// What file systems of memory call themselves.
const HUGETLBFS: i64 = 0x9584_58f6;
const TMPFS: i64 = 0x0102_1994;
/// Copies up to this many bytes read each word exactly once.
const SMALL_BYTES: usize = 512;
const WORD_BYTES: usize = size_of::<u64>();

impl SharedMapping {
    /// Maps `length` bytes from `offset` on; both are multiples of [`PAGE_BYTES`]. The file is not
    /// needed afterwards.
    ///
    /// # Errors
    /// The file may become shorter, is too short, or cannot be mapped.
    pub fn map(file: impl AsFd, offset: u64, length: u64, access: MappingAccess) -> Result<Arc<Self>, MapError> {
        let mapping = Self::map_any(file, offset, length, access, &Arc::default())?;
        if mapping.may_be_lost() { Err(MapError::NotSealed) } else { Ok(mapping) }
    }

    /// The same also for memory that [may be lost](Self::may_be_lost): it may become shorter, or is
    /// in huge pages of the system, where holes that are punched cannot always be filled again.
    /// `has_failed` is set when something that was accessed was gone. An owner of many mappings has
    /// one for all of them.
    ///
    /// The first such mapping makes ebof's handler that of the process for SIGBUS; signals that
    /// are not about such memory go on to the handler before.
    ///
    /// # Errors
    /// The file is no memory, is too short, or cannot be mapped.
    pub fn map_any(
        file: impl AsFd,
        offset: u64,
        length: u64,
        access: MappingAccess,
        has_failed: &Arc<AtomicBool>,
    ) -> Result<Arc<Self>, MapError> {
        let file = file.as_fd();
        let page = PAGE_BYTES as u64;
        if length == 0 || !offset.is_multiple_of(page) || !length.is_multiple_of(page) {
            return Err(MapError::Misaligned { offset, length });
        }
        let is_sealed = match rustix::fs::fcntl_get_seals(file) {
            Ok(seals) => seals.contains(SealFlags::SHRINK),
            // A file without seals.
            Err(Errno::INVAL) => false,
            Err(error) => return Err(MapError::System(error.into())),
        };
        let system = rustix::fs::fstatfs(file).map_err(io::Error::from)?;
        #[expect(clippy::useless_conversion, reason = "its type differs between architectures")]
        let kind = i64::from(system.f_type);
        let stat = rustix::fs::fstat(file).map_err(io::Error::from)?;
        let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile;
        if !is_file || ![TMPFS, HUGETLBFS].contains(&kind) {
            return Err(MapError::NotMemory);
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let fits = offset.checked_add(length).is_some_and(|end| end <= size);
        let (true, Ok(bytes)) = (fits, usize::try_from(length)) else {
            return Err(MapError::TooShort { offset, length, size });
        };
        // Both file systems tell their pages so.
        let page_bytes = usize::try_from(system.f_bsize).ok().filter(|bytes| bytes.is_power_of_two());
        let page_bytes = page_bytes.unwrap_or(PAGE_BYTES);
        let mut mapping = Self::map_checked(file, offset, bytes, page_bytes, access).map_err(MapError::System)?;
        mapping.has_failed = Arc::clone(has_failed);
        if !is_sealed || kind == HUGETLBFS {
            let (first, bytes) = mapping.pages;
            let protection = Self::protection(access).bits().cast_signed();
            let guard = Guard::new(first.as_ptr().expose_provenance(), bytes, page_bytes, protection);
            mapping.guard = Some(guard.map_err(MapError::System)?);
        }
        Ok(Arc::new(mapping))
    }

    /// New memory of `length` bytes (a multiple of [`PAGE_BYTES`]), all zero, and the file to share
    /// it by. It is sealed: nobody can change its size.
    ///
    /// # Errors
    /// The system has no memory or no descriptor left.
    ///
    /// # Panics
    /// The name has a NUL.
    pub fn create(name: &str, length: u64) -> Result<(OwnedFd, Arc<Self>), MapError> {
        let name = CString::new(name).expect("a name of memory has no NUL");
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(&name, flags).map_err(io::Error::from)?;
        rustix::fs::ftruncate(&file, length).map_err(io::Error::from)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(io::Error::from)?;
        let mapping = Self::map(&file, 0, length, MappingAccess::ALL)?;
        Ok((file, mapping))
    }

    fn protection(access: MappingAccess) -> ProtFlags {
        if access.writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ }
    }

    /// Maps a range that is in the file, with the whole pages around it.
    fn map_checked(
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        page_bytes: usize,
        access: MappingAccess,
    ) -> io::Result<Self> {
        let before = offset % page_bytes as u64;
        let skipped = usize::try_from(before).expect("less than a page");
        let bytes = (skipped + length).next_multiple_of(page_bytes);
        let protection = Self::protection(access);
        // SAFETY: a new mapping at an address that the system chooses changes no memory of others.
        // JUSTIFICATION: memory of another process can be accessed only where it is mapped.
        let pages =
            unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, offset - before)? };
        let pages = NonNull::new(pages.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // SAFETY: less than a page, and at least one is mapped.
        // JUSTIFICATION: the memory has no slice to index.
        let first = unsafe { pages.add(skipped) };
        let mapping = Self { first, length, access, pages: (pages, bytes), guard: None, has_failed: Arc::default() };
        // A host's memory is not ours to write into a core dump. SAFETY: the range is the
        // mapping's, and the advice changes no bytes.
        // JUSTIFICATION: there is no safe interface.
        unsafe { rustix::mm::madvise(pages.as_ptr().cast(), bytes, Advice::LinuxDontDump)? };
        Ok(mapping)
    }

    /// Bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Bytes of addresses that it takes: those of the whole pages around it, which may be huge.
    #[must_use]
    pub const fn mapped_bytes(&self) -> u64 {
        self.pages.1 as u64
    }

    /// What may be done with it.
    #[must_use]
    pub const fn access(&self) -> MappingAccess {
        self.access
    }

    /// Whether the pages of `length` bytes at `offset` are in memory: accessing them makes no new
    /// ones. A page may go at any time.
    #[must_use]
    pub fn is_present(&self, offset: usize, length: usize) -> bool {
        const PAGES: usize = 64;
        let first = offset - offset % PAGE_BYTES;
        let end = offset.saturating_add(length);
        (first..end).step_by(PAGES * PAGE_BYTES).all(|at| {
            let bytes = (end - at).min(PAGES * PAGE_BYTES);
            let Some(begin) = self.at(at, bytes) else { return false };
            let mut pages = [0_u8; PAGES];
            // SAFETY: the range is within the mapping and begins at a page; a byte is written for
            // each page of it, of which there are no more than in `pages`.
            // JUSTIFICATION: there is no safe interface.
            let known = unsafe { libc::mincore(begin.as_ptr().cast(), bytes, pages.as_mut_ptr()) } == 0;
            known && pages[..bytes.div_ceil(PAGE_BYTES)].iter().all(|page| page & 1 != 0)
        })
    }

    /// Whether the file may become shorter, or lose pages for good. What is gone is zeros then, and
    /// accesses fail from the first one on that finds it so. The kernel and adapters find an error
    /// (EFAULT) where no access has been, and access the zeros where one has: they must not be
    /// given such memory.
    #[must_use]
    #[inline]
    pub const fn may_be_lost(&self) -> bool {
        self.guard.is_some()
    }

    /// `None` if something that was accessed was gone. To be asked after each access, and before
    /// it: pages that are put where others were are this process' own.
    #[inline]
    fn still_there(&self) -> Option<()> {
        match &self.guard {
            Some(guard) if guard.is_lost() => self.fail(),
            _ => Some(()),
        }
    }

    #[cold]
    fn fail(&self) -> Option<()> {
        self.has_failed.store(true, Ordering::Relaxed);
        None
    }

    /// The address of `length` bytes at `offset`; `None` if they are not all there, or the mapping
    /// is known to be lost.
    #[inline]
    fn at(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return None;
        }
        self.still_there()?;
        // SAFETY: within the mapping, which was checked.
        // JUSTIFICATION: the memory has no slice to index.
        Some(unsafe { self.first.add(offset) })
    }

    /// The same, to be written.
    #[inline]
    fn at_mut(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        if self.access.writable { self.at(offset, length) } else { None }
    }

    /// Copies bytes out. `None`, and zeros, if they are not all there.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Option<()> {
        let from = self.at(offset, into.len());
        let copied = from.map(|from| copy_out(from, into)).and_then(|()| self.still_there());
        if copied.is_none() {
            // Some of it may be of before.
            into.fill(0);
        }
        copied
    }

    /// Copies bytes in. `None` if there is not room for all of them, or they may not be written.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) -> Option<()> {
        copy_in(from, self.at_mut(offset, from.len())?);
        self.still_there()
    }

    /// Fills with zeros. `None` as for [`write`](Self::write).
    pub fn clear(&self, offset: usize, length: usize) -> Option<()> {
        let into = self.at_mut(offset, length)?;
        // SAFETY: so many bytes are there and may be written.
        // JUSTIFICATION: the memory has no slice to fill.
        unsafe { into.as_ptr().write_bytes(0, length) };
        self.still_there()
    }

    /// Loads a little-endian number atomically; what another process stored before it stored this
    /// one is seen afterwards. `None` if it is not there or not aligned.
    #[inline]
    #[must_use]
    pub fn load(&self, offset: usize) -> Option<u32> {
        let word = aligned::<u32>(self.at(offset, size_of::<u32>())?)?;
        // SAFETY: the number is in the mapping, and aligned; this process accesses it at the same
        // time at most by copies, which give any of its values, as another process would.
        // JUSTIFICATION: a number that others store needs an atomic access.
        let value = unsafe { AtomicU32::from_ptr(word.as_ptr()) }.load(Ordering::Acquire);
        self.still_there()?;
        Some(u32::from_le(value))
    }

    /// Stores a little-endian number atomically, after everything that was written before, and
    /// before anything is loaded that is loaded afterwards. `None` as for [`write`](Self::write),
    /// or if it is not aligned.
    #[inline]
    pub fn store(&self, offset: usize, value: u32) -> Option<()> {
        let word = aligned::<u32>(self.at_mut(offset, size_of::<u32>())?)?;
        // SAFETY: as in `load`.
        // JUSTIFICATION: as in `load`.
        unsafe { AtomicU32::from_ptr(word.as_ptr()) }.store(value.to_le(), Ordering::Release);
        fence(Ordering::SeqCst);
        self.still_there()
    }

    /// Writes 16 bytes, the last 4 of them after the others and after everything that was written
    /// before. `None` as for [`store`](Self::store); aligned is a multiple of 16.
    #[inline]
    pub fn write_tagged(&self, offset: usize, entry: &[u8; 16]) -> Option<()> {
        let into = self.at_mut(offset, entry.len())?;
        if !offset.is_multiple_of(entry.len()) {
            return None;
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l, tag @ ..] = *entry;
        let first = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let second = u32::from_ne_bytes([i, j, k, l]);
        let third = u32::from_ne_bytes(tag);
        let (first_at, second_at) = (aligned::<u64>(into)?, aligned::<u32>(self.at(offset + 8, 8)?)?);
        // SAFETY: 16 bytes are in the mapping, may be written and are aligned to 16, as the mapping
        // is to a page.
        // JUSTIFICATION: another process reads the tag while this is written.
        unsafe {
            AtomicU64::from_ptr(first_at.as_ptr()).store(first, Ordering::Relaxed);
            AtomicU32::from_ptr(second_at.as_ptr()).store(second, Ordering::Relaxed);
            AtomicU32::from_ptr(second_at.as_ptr().add(1)).store(third, Ordering::Release);
        }
        self.still_there()
    }

    /// A piece of it, for I/O. `None` if its bytes are not all there.
    #[must_use]
    #[inline]
    pub fn piece(self: &Arc<Self>, offset: usize, length: usize) -> Option<SharedPiece> {
        self.at(offset, length)?;
        Some(SharedPiece { mapping: Arc::clone(self), offset, length })
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // Others may get its addresses.
        self.guard = None;
        let (first, bytes) = self.pages;
        // SAFETY: the range is that of the mapping. Nobody has a piece of it any more, and no
        // reference was ever made to it.
        // JUSTIFICATION: there is no safe interface.
        let unmapped = unsafe { rustix::mm::munmap(first.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping can be unmapped");
    }
}

impl fmt::Debug for SharedMapping {
    /// The size only: the bytes are a host's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMapping").field("length", &self.length).field("access", &self.access).finish()
    }
}

/// Bytes of a mapping, which it keeps alive: the memory of a transfer.
#[derive(Clone, Debug)]
pub struct SharedPiece {
    mapping: Arc<SharedMapping>,
    offset: usize,
    length: usize,
}

impl SharedPiece {
    /// Bytes.
    #[must_use]
    #[inline]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Whether it may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.mapping.access.writable
    }

    /// Its first byte. Who passes this on to the kernel or an adapter keeps the piece meanwhile,
    /// and has them write there only if it [is writable](Self::is_writable).
    #[must_use]
    #[inline]
    pub fn address(&self) -> *mut u8 {
        self.mapping.first.as_ptr().wrapping_add(self.offset)
    }

    /// Copies bytes out, from `at` on. What is beyond its end is left as it is in `into`; what
    /// [was lost](SharedMapping::may_be_lost) is 0.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let length = into.len().min(self.length.saturating_sub(at));
        let copied = self.mapping.read(self.offset.saturating_add(at), &mut into[..length]);
        debug_assert!(copied.is_some() || length == 0 || self.mapping.may_be_lost(), "a piece is within its mapping");
    }

    /// Copies bytes in, from `at` on, as far as it goes. Nothing if it may not be written.
    pub fn write(&self, at: usize, from: &[u8]) {
        let length = from.len().min(self.length.saturating_sub(at));
        let copied = self.mapping.write(self.offset.saturating_add(at), &from[..length]);
        debug_assert!(
            copied.is_some() || length == 0 || self.mapping.may_be_lost(),
            "a piece for a read of a device is writable"
        );
    }

    /// Fills with zeros, from `at` on. Nothing if it may not be written.
    pub fn clear(&self, at: usize, length: usize) {
        let length = length.min(self.length.saturating_sub(at));
        let cleared = self.mapping.clear(self.offset.saturating_add(at), length);
        debug_assert!(
            cleared.is_some() || length == 0 || self.mapping.may_be_lost(),
            "a piece for a read of a device is writable"
        );
    }

    /// A part of it, for a system call: from `at` on, at most `length` bytes.
    #[must_use]
    pub fn io_slice(&self, at: usize, length: usize) -> SharedIoSlice<'_> {
        let at = at.min(self.length);
        let length = length.min(self.length - at);
        let vector = libc::iovec { iov_base: self.address().wrapping_add(at).cast(), iov_len: length };
        SharedIoSlice { vector, writable: self.is_writable(), piece: PhantomData }
    }
}

/// A part of a [`SharedPiece`], as a system call takes it. Unlike [`io::IoSlice`], it is no slice.
#[derive(Clone, Copy)]
pub struct SharedIoSlice<'a> {
    vector: libc::iovec,
    writable: bool,
    piece: PhantomData<&'a SharedPiece>,
}

// SAFETY: it is an address and a length within a mapping that may be accessed by any thread.
// JUSTIFICATION: a pointer is in it.
unsafe impl Send for SharedIoSlice<'_> {}

impl SharedIoSlice<'_> {
    /// First byte and number of bytes, for the kernel. As for [`SharedPiece::address`].
    #[must_use]
    pub fn as_iovec(&self) -> libc::iovec {
        self.vector
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.vector.iov_len
    }
}

impl fmt::Debug for SharedIoSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedIoSlice").field("length", &self.length()).finish_non_exhaustive()
    }
}

/// Reads from a file at `offset` into shared memory, as preadv does. At most 1024 slices.
///
/// # Errors
/// As preadv; EFAULT if a slice may not be written.
pub fn read_at(file: BorrowedFd<'_>, into: &[SharedIoSlice<'_>], offset: u64) -> io::Result<usize> {
    if into.iter().any(|slice| !slice.writable) {
        return Err(Errno::FAULT.into());
    }
    let vectors: Vec<libc::iovec> = into.iter().map(SharedIoSlice::as_iovec).collect();
    let (count, offset) = vector_arguments(&vectors, offset)?;
    // SAFETY: each vector is within a mapping that may be written and lives as long as its piece,
    // which `into` borrows.
    // JUSTIFICATION: rustix and nix take slices, which must not be made of this memory.
    let done = unsafe { libc::preadv(file.as_raw_fd(), vectors.as_ptr(), count, offset) };
    transferred(done)
}

/// Writes shared memory to a file at `offset`, as pwritev does; with `sync` they are durable
/// afterwards (RWF_DSYNC). At most 1024 slices.
///
/// # Errors
/// As pwritev2.
pub fn write_at(file: BorrowedFd<'_>, from: &[SharedIoSlice<'_>], offset: u64, sync: bool) -> io::Result<usize> {
    let vectors: Vec<libc::iovec> = from.iter().map(SharedIoSlice::as_iovec).collect();
    let (count, offset) = vector_arguments(&vectors, offset)?;
    let file = file.as_raw_fd();
    // SAFETY: each vector is within a mapping that lives as long as its piece, which `from`
    // borrows.
    // JUSTIFICATION: rustix and nix take slices, which must not be made of this memory.
    let done = unsafe {
        if sync {
            libc::pwritev2(file, vectors.as_ptr(), count, offset, libc::RWF_DSYNC)
        } else {
            libc::pwritev(file, vectors.as_ptr(), count, offset)
        }
    };
    transferred(done)
}

fn vector_arguments(vectors: &[libc::iovec], offset: u64) -> io::Result<(libc::c_int, libc::off_t)> {
    let count = libc::c_int::try_from(vectors.len()).map_err(|_many| Errno::INVAL)?;
    let offset = libc::off_t::try_from(offset).map_err(|_large| Errno::INVAL)?;
    Ok((count, offset))
}

fn transferred(done: isize) -> io::Result<usize> {
    usize::try_from(done).map_err(|_negative| io::Error::last_os_error())
}

/// The pointer, if it is aligned for a `T`.
#[inline]
fn aligned<T>(pointer: NonNull<u8>) -> Option<NonNull<T>> {
    let pointer = pointer.cast::<T>();
    pointer.is_aligned().then_some(pointer)
}

/// Copies `into.len()` bytes, all of which are in a mapping.
#[inline]
fn copy_out(from: NonNull<u8>, into: &mut [u8]) {
    match aligned::<u64>(from) {
        // What is decided by, such as commands and pointers, is loaded once, whatever is done with
        // the copy: a volatile access cannot be repeated.
        Some(words) if into.len() <= SMALL_BYTES && into.len().is_multiple_of(WORD_BYTES) => {
            for (at, place) in into.as_chunks_mut::<WORD_BYTES>().0.iter_mut().enumerate() {
                // SAFETY: the caller's bytes are there, these are some of them, and aligned.
                // JUSTIFICATION: another process changes them; safe code could not read them.
                *place = unsafe { words.add(at).as_ptr().read_volatile() }.to_ne_bytes();
            }
        }
        _ => copy_bytes(from.as_ptr(), into.as_mut_ptr(), into.len()),
    }
}

/// Copies `from` to a mapping that has room for it and may be written.
#[inline]
fn copy_in(from: &[u8], into: NonNull<u8>) {
    copy_bytes(from.as_ptr(), into.as_ptr(), from.len());
}

/// A call, so that its bytes are read where it stands, and once: the compiler must not take them
/// from the other process's memory again where the copy is used.
#[inline(never)]
fn copy_bytes(from: *const u8, into: *mut u8, length: usize) {
    // SAFETY: callers have checked that so many bytes are at both; memory of this process and of a
    // mapping do not overlap.
    // JUSTIFICATION: there is no slice of a mapping to copy from or to.
    unsafe { ptr::copy_nonoverlapping(from, into, length) };
}

#[cfg(test)]
mod tests;
