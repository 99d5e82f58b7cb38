//! An open file or block device, as all requests under way on it share it: the descriptor, and what
//! was learnt about it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::{Action, Error, Geometry};

/// What every request under way shares: the open file and what was learnt about it.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) handle: File,
    pub(crate) path: PathBuf,
    /// What errors call it.
    pub(crate) name: Arc<str>,
    pub(crate) kind: Kind,
    pub(crate) direct: bool,
    /// As it was opened; `deallocates` and `writes_zeroes` are joined by the flags below, the
    /// capacity is replaced by the one below.
    pub(crate) geometry: Geometry,
    /// It only grows.
    pub(crate) capacity_bytes: AtomicU64,
    pub(crate) punches: AtomicBool,
    pub(crate) zeroes: AtomicBool,
    pub(crate) cache_lost: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    BlockDevice,
}

// The flags are hints that only ever go one way, each on its own: no ordering is needed.
impl OpenFile {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.geometry.block_bytes
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn geometry(&self) -> Geometry {
        Geometry { capacity_bytes: self.capacity_bytes(), ..self.geometry }
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    pub(crate) fn zero_method(&self, deallocate: bool) -> ZeroMethod {
        if deallocate && self.punches.load(Ordering::Relaxed) {
            ZeroMethod::Punch
        } else if self.zeroes.load(Ordering::Relaxed) {
            ZeroMethod::Range
        } else {
            ZeroMethod::Write
        }
    }

    pub(crate) fn cannot_punch(&self) {
        self.punches.store(false, Ordering::Relaxed);
    }

    pub(crate) fn cannot_zero(&self) {
        self.zeroes.store(false, Ordering::Relaxed);
    }

    pub(crate) fn lose_cache(&self) {
        if !self.cache_lost.swap(true, Ordering::Relaxed) {
            tracing::error!(path = %self.path.display(), "a flush failed: data written before it may be lost");
        }
    }

    pub(crate) fn check_cache(&self, action: Action) -> Result<(), Error> {
        if self.cache_lost.load(Ordering::Relaxed) {
            return Err(Error::CacheLost { device: self.name(), action });
        }
        Ok(())
    }
}

impl Drop for OpenFile {
    /// Gives up the lock, if there is one. Closing the descriptor is not enough: the lock belongs
    /// to the open file, and a process that another thread is starting right now has a descriptor
    /// of it until its exec.
    fn drop(&mut self) {
        // Cannot fail: the descriptor is open, and unlocking does not wait.
        let _unlocked: Result<(), Errno> = rustix::fs::flock(&self.handle, FlockOperation::Unlock);
    }
}

/// How blocks are made zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZeroMethod {
    /// By punching a hole.
    Punch,
    /// By asking the file system or the device.
    Range,
    /// By writing zeros.
    Write,
}
