//! Pages of the process alone, which the system is asked neither to swap nor to dump.
//!
//! They are not wiped in a process that is forked (`MADV_WIPEONFORK`): nothing here forks without
//! starting another program, and a program that embeds this and forks would go on with keys of
//! zeros, by which it proves itself and accepts others. Its copies are not dumped either.
//!
//! Soundness: a mapping is anonymous, private, readable and writable from its making until it is
//! dropped, and nothing but its owner has its address.

use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// What the system does not do for the pages of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unprotected {
    /// They are not locked.
    #[error(
        "keys may be swapped to a disk, because their memory cannot be locked ({0}): raise the limit of locked memory (`ulimit -l`, LimitMEMLOCK= of systemd) by a MiB, or have no swap"
    )]
    Swapped(Errno),
    /// They are in core dumps.
    #[error(
        "keys are in core dumps, because the system does not leave out their memory ({0}): `ulimit -c 0` (LimitCORE=0 of systemd) has none made"
    )]
    Dumped(Errno),
}

/// The first that was noticed.
static UNPROTECTED: OnceLock<Unprotected> = OnceLock::new();

/// Whether the system has refused to protect the memory of a key so far, and what to do.
#[must_use]
pub fn unprotected() -> Option<Unprotected> {
    UNPROTECTED.get().copied()
}

/// Some pages.
pub(crate) struct LockedPages {
    first: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its pages, as a box of them would.
// JUSTIFICATION: memory of the heap shares pages with what may be swapped and dumped.
unsafe impl Send for LockedPages {}

impl LockedPages {
    /// At least so many bytes, which are zeros; `None` if there is no memory. That they are not
    /// protected is told once.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.next_multiple_of(rustix::param::page_size());
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address that the system chooses changes no memory of others.
        // JUSTIFICATION: as above.
        let mapped = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, flags) };
        let pages = Self { first: NonNull::new(mapped.ok()?.cast())?, bytes };
        // SAFETY: the range is the mapping's, and the advice changes no bytes.
        // JUSTIFICATION: there is no safe interface.
        let left_out = unsafe { rustix::mm::madvise(mapped_at(&pages), bytes, Advice::LinuxDontDump) };
        // SAFETY: as above.
        // JUSTIFICATION: as above.
        let locked = unsafe { rustix::mm::mlock(mapped_at(&pages), bytes) };
        if let Some(refused) = locked.map_err(Unprotected::Swapped).and(left_out.map_err(Unprotected::Dumped)).err()
            && UNPROTECTED.set(refused).is_ok()
        {
            tracing::warn!("{refused}");
        }
        Some(pages)
    }

    /// Where they begin.
    pub(crate) fn first(&self) -> NonNull<u8> {
        self.first
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How far behind their beginning an address is, if it is in them.
    pub(crate) fn offset_of(&self, address: NonNull<u8>) -> Option<usize> {
        let offset = address.addr().get().checked_sub(self.first.addr().get())?;
        (offset < self.bytes).then_some(offset)
    }
}

fn mapped_at(pages: &LockedPages) -> *mut std::ffi::c_void {
    pages.first.as_ptr().cast()
}

impl Drop for LockedPages {
    fn drop(&mut self) {
        // Fails where the system has merged it with a neighbour and has no mapping left to divide
        // it: then it stays, and nobody uses it.
        // SAFETY: nobody has an address in it.
        // JUSTIFICATION: there is no safe interface.
        let _left = unsafe { rustix::mm::munmap(mapped_at(self), self.bytes) };
    }
}
