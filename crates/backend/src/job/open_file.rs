//! An open file or block device: the descriptor, and what is known about it. All requests in flight
//! share it.

use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::{Action, Error, Geometry};

/// An open file or block device.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) handle: Handle,
    pub(crate) path: PathBuf,
    /// The name in errors.
    pub(crate) name: Arc<str>,
    pub(crate) kind: Kind,
    pub(crate) uncached: bool,
    /// As it was when the device was opened. The current capacity, and whether it can punch and
    /// zero, are below.
    pub(crate) geometry: Geometry,
    /// Never shrinks.
    pub(crate) capacity_bytes: AtomicU64,
    /// Cleared when punching holes turns out to be unsupported.
    pub(crate) punches: AtomicBool,
    /// Cleared when zeroing ranges turns out to be unsupported.
    pub(crate) zeroes: AtomicBool,
    /// Set when a flush fails.
    pub(crate) cache_lost: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    BlockDevice,
}

// Each flag changes once and independently of the others: no ordering is needed.
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

    pub(crate) fn bypasses_cache(&self) -> bool {
        self.uncached
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

/// The descriptor. Its lock, if it has one, is released when it is dropped.
#[derive(Debug)]
pub(crate) struct Handle(File);

impl From<File> for Handle {
    fn from(file: File) -> Handle {
        Handle(file)
    }
}

impl Deref for Handle {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for Handle {
    /// Closing the descriptor is not enough: the lock belongs to the open file, and a process that
    /// another thread is starting right now has a descriptor of it until its exec.
    fn drop(&mut self) {
        // Cannot fail: the descriptor is open, and unlocking does not wait.
        let _unlocked: Result<(), Errno> = rustix::fs::flock(&self.0, FlockOperation::Unlock);
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
