//! A regular file or a block device at work: what is decided when a request arrives, before the first system call.
//!
//! Opening one, with all its refusals, is in `open.rs`; what happens after the first system call in `job.rs`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::job::{Job, Method};
use crate::name::Name;
use crate::open::{check_blocks, made_bytes};
use crate::{Action, Device, Error, Geometry, Io, OpenError, Operation, Request, Submitted, format_size};

/// What every request under way shares: the open file and what was learnt about it.
#[derive(Debug)]
pub(crate) struct Medium {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    /// What errors call it.
    pub(crate) name: Arc<str>,
    pub(crate) kind: Kind,
    pub(crate) direct: bool,
    /// As it was opened; `deallocates` and `writes_zeroes` are joined by the flags below, the capacity is replaced by the
    /// one below.
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
impl Medium {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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
    fn geometry(&self) -> Geometry {
        Geometry { capacity_bytes: self.capacity_bytes(), ..self.geometry }
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
            return Err(Error::CacheLost { device: self.name(), action });
        }
        Ok(())
    }
}

/// Which file or block device it is, whatever the path by which it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    block_device: bool,
    /// Of a block device its own number, otherwise that of the file system.
    device: u64,
    inode: u64,
}

impl FileId {
    /// What is at `path`; `None` where nothing is, or nothing that can be a drive.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().and_then(|metadata| Self::from(&metadata))
    }

    fn from(metadata: &fs::Metadata) -> Option<Self> {
        let kind = metadata.file_type();
        if kind.is_block_device() {
            // Several nodes may stand for one device.
            Some(Self { block_device: true, device: metadata.rdev(), inode: 0 })
        } else {
            kind.is_file().then(|| Self { block_device: false, device: metadata.dev(), inode: metadata.ino() })
        }
    }
}

/// A drive in a regular file or on a block device.
#[derive(Debug)]
pub struct FileDevice {
    medium: Arc<Medium>,
}

impl FileDevice {
    pub(crate) fn new(medium: Medium) -> FileDevice {
        FileDevice { medium: Arc::new(medium) }
    }

    /// Which file or block device it is.
    #[must_use]
    pub fn id(&self) -> Option<FileId> {
        self.medium.file.metadata().ok().and_then(|metadata| FileId::from(&metadata))
    }

    /// Whether it is a block device, and not a regular file.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.medium.kind == Kind::BlockDevice
    }

    /// Whether it goes past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.medium.direct
    }

    /// Whether no request is under way on it, on whatever thread. Others may begin at once: ask when nobody has it any
    /// more who could.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        // Each request holds the medium until it is complete.
        Arc::strong_count(&self.medium) == 1
    }

    /// How large the file or block device is now, to be offered with [`grow`](Self::grow). `asked_bytes` is the size that
    /// it has to have, if any.
    ///
    /// # Errors
    /// It is smaller than what is offered, is no whole number of blocks, or has not the size that was asked for.
    pub fn look(&self, asked_bytes: Option<u64>) -> Result<u64, OpenError> {
        let medium = &self.medium;
        let path = || medium.path.clone();
        let size = match medium.kind {
            Kind::File => medium.file.metadata().map(|metadata| metadata.len()),
            Kind::BlockDevice => rustix::fs::seek(&medium.file, rustix::fs::SeekFrom::End(0)).map_err(io::Error::from),
        };
        let actual_bytes =
            size.map_err(|source| OpenError::System { path: path(), what: "find out its size", source })?;
        let offered_bytes = medium.capacity_bytes();
        if actual_bytes < offered_bytes {
            return Err(OpenError::Shrunk { path: path(), actual_bytes, offered_bytes });
        }
        if let Some(asked_bytes) =
            asked_bytes.filter(|&asked| asked != actual_bytes && made_bytes(asked) != actual_bytes)
        {
            return Err(OpenError::SizeDiffers { path: path(), actual_bytes, asked_bytes });
        }
        check_blocks(Name::Path(path()), actual_bytes, medium.geometry.logical_block_bytes)?;
        Ok(actual_bytes)
    }

    /// Offers `capacity_bytes` from now on, which [`look`](Self::look) has found. A device never offers less than before.
    pub fn grow(&self, capacity_bytes: u64) {
        self.medium.capacity_bytes.fetch_max(capacity_bytes, Ordering::Relaxed);
    }

    /// What can be answered without asking the medium.
    fn answer(&self, request: &mut Request) -> Option<Result<(), Error>> {
        let medium = &self.medium;
        if let Err(error) = medium.geometry().check(&request.operation) {
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
            ..medium.geometry()
        }
    }

    fn file(&self) -> Option<&FileDevice> {
        Some(self)
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

    fn next_data(&self, from: u64) -> Option<u64> {
        // Nobody uses the file's own position.
        match rustix::fs::seek(&self.medium.file, SeekFrom::Data(from)) {
            Err(Errno::NXIO) => None,
            found => Some(found.unwrap_or(from)),
        }
    }

    fn describe(&self) -> String {
        let medium = &self.medium;
        let kind = match medium.kind {
            Kind::File => "file",
            Kind::BlockDevice => "block device",
        };
        let size = format_size(medium.capacity_bytes());
        let cache = if medium.direct { "direct" } else { "buffered" };
        let access = if medium.geometry.read_only { ", read-only" } else { "" };
        format!("{kind} {}, {size}, {cache}{access}", medium.path.display())
    }
}
