//! A regular file or a block device at work: what is decided when a request arrives, before the first system call.
//!
//! Opening one, with all its refusals, is in `open.rs`; what happens after the first system call in `job.rs`.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::job::{Job, Method};
use crate::{Action, Device, Error, Geometry, Io, Operation, Request, Submitted, format_size};

/// What every request under way shares: the open file and what was learnt about it.
#[derive(Debug)]
pub(crate) struct Medium {
    pub(crate) file: File,
    pub(crate) path: Arc<Path>,
    pub(crate) kind: Kind,
    pub(crate) direct: bool,
    /// As it was opened; `deallocates` and `writes_zeroes` are joined by the flags below.
    pub(crate) geometry: Geometry,
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
impl Medium {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn path(&self) -> Arc<Path> {
        Arc::clone(&self.path)
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.geometry.block_bytes
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.geometry.capacity_bytes
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    pub(crate) fn zero_method(&self, deallocate: bool) -> Method {
        if deallocate && self.punches.load(Ordering::Relaxed) {
            Method::Punch
        } else if self.zeroes.load(Ordering::Relaxed) {
            Method::Range
        } else {
            Method::Write
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
            return Err(Error::CacheLost { path: self.path(), action });
        }
        Ok(())
    }
}

/// A drive in a regular file or on a block device.
#[derive(Debug)]
pub(crate) struct FileDevice {
    medium: Arc<Medium>,
}

impl FileDevice {
    pub(crate) fn new(medium: Medium) -> FileDevice {
        FileDevice { medium: Arc::new(medium) }
    }

    /// What can be answered without asking the medium.
    fn answer(&self, request: &mut Request) -> Option<Result<(), Error>> {
        let medium = &self.medium;
        if let Err(error) = medium.geometry.check(&request.operation) {
            return Some(Err(error));
        }
        let action = request.operation.action();
        match &mut request.operation {
            Operation::Read { len: 0, .. } | Operation::Write { len: 0, .. } => Some(Ok(())),
            Operation::WriteZeroes { len: 0, .. } => Some(Ok(())),
            Operation::Flush if medium.geometry.read_only => Some(Ok(())),
            Operation::Flush | Operation::Write { fua: true, .. } | Operation::WriteZeroes { fua: true, .. } => {
                medium.check_cache(action).err().map(Err)
            }
            Operation::Deallocate { ranges } => {
                ranges.retain(|range| range.start < range.end);
                (ranges.is_empty() || !medium.punches.load(Ordering::Relaxed)).then_some(Ok(()))
            }
            Operation::Read { .. } | Operation::Write { .. } | Operation::WriteZeroes { .. } => None,
        }
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        let medium = &self.medium;
        let deallocates = medium.geometry.deallocates && medium.punches.load(Ordering::Relaxed);
        Geometry {
            deallocates,
            deallocate_granularity_bytes: if deallocates { medium.geometry.deallocate_granularity_bytes } else { 0 },
            writes_zeroes: medium.geometry.writes_zeroes && medium.zeroes.load(Ordering::Relaxed),
            ..medium.geometry
        }
    }

    fn submit(&self, io: &mut Io, mut request: Request) -> Submitted {
        if let Some(result) = self.answer(&mut request) {
            return Submitted::Done(request.complete(result));
        }
        match io.start(Job::new(Arc::clone(&self.medium), request)) {
            Ok(()) => Submitted::Pending,
            Err(job) => Submitted::Busy(job.into_request()),
        }
    }

    fn describe(&self) -> String {
        let medium = &self.medium;
        let kind = match medium.kind {
            Kind::File => "file",
            Kind::BlockDevice => "block device",
        };
        let size = format_size(medium.geometry.capacity_bytes);
        let cache = if medium.direct { "direct" } else { "buffered" };
        let access = if medium.geometry.read_only { ", read-only" } else { "" };
        format!("{kind} {}, {size}, {cache}{access}", medium.path.display())
    }
}
