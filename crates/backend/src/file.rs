//! A regular file or block device: the checks of a request before its first system call.
//!
//! Opening is in `file/open.rs`, what an extension left that was interrupted in
//! `file/interrupted.rs`; the open file and the execution of a request are in `job.rs`.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::error::name::Name;
use crate::error::size::{is_size, round_up};
use crate::geometry::check_blocks;
use crate::job::Job;
use crate::job::open_file::{Kind, OpenFile};
use crate::request::bounce::Bounce;
use crate::{
    BackingId, DataOrigin, Device, Error, Geometry, Io, OpenError, Operation, Persistent, Request, Segments, Submitted,
    format_size,
};

mod block;
pub(crate) mod interrupted;
mod open;
mod origin;

pub(crate) use open::PathSpec;

/// A drive in a regular file or on a block device.
#[derive(Debug)]
pub struct FileDevice {
    file: Arc<OpenFile>,
}

impl FileDevice {
    pub(crate) fn new(file: OpenFile) -> FileDevice {
        FileDevice { file: Arc::new(file) }
    }

    /// Whether it is a block device, and not a regular file.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.file.kind == Kind::BlockDevice
    }

    /// Whether it uses direct I/O, without the page cache.
    #[must_use]
    pub fn bypasses_cache(&self) -> bool {
        self.file.uncached
    }

    /// Whether its memory is shared, and not made of whole blocks.
    #[inline]
    fn needs_bounce(&self, request: &Request) -> bool {
        match &request.operation {
            Operation::Read { data, .. } | Operation::Write { data, .. } => !self.uses(data),
            _ => false,
        }
    }

    /// The result of a request that needs no system call; `None` for others.
    fn complete_early(&self, request: &mut Request) -> Option<Result<(), Error>> {
        let file = &self.file;
        if let Err(error) = file.geometry().check(&request.operation) {
            return Some(Err(error));
        }
        let action = request.operation.action();
        if let Operation::Read { offset, len, data } | Operation::Write { offset, len, data, .. } = &request.operation {
            let block_bytes = file.geometry.block_bytes;
            if data.as_shared().is_none() && !data.is_aligned(block_bytes as usize) {
                return Some(Err(Error::Misaligned { action, offset: *offset, len: *len as u64, block_bytes }));
            }
        }
        match &mut request.operation {
            Operation::Read { len: 0, .. } | Operation::Write { len: 0, .. } => Some(Ok(())),
            Operation::WriteZeroes { len: 0, .. } => Some(Ok(())),
            Operation::Flush if file.geometry.read_only => Some(Ok(())),
            Operation::Flush | Operation::Write { fua: true, .. } | Operation::WriteZeroes { fua: true, .. } => {
                file.check_cache(action).err().map(Err)
            }
            Operation::Deallocate { ranges } => {
                ranges.retain(|range| range.start < range.end);
                (ranges.is_empty() || !file.punches.load(Ordering::Relaxed)).then_some(Ok(()))
            }
            Operation::Read { .. } | Operation::Write { .. } | Operation::WriteZeroes { .. } => None,
        }
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        let file = &self.file;
        let deallocates = file.geometry.deallocates && file.punches.load(Ordering::Relaxed);
        Geometry {
            deallocates,
            deallocate_granularity_bytes: if deallocates { file.geometry.deallocate_granularity_bytes } else { 0 },
            writes_zeroes: file.geometry.writes_zeroes && file.zeroes.load(Ordering::Relaxed),
            ..file.geometry()
        }
    }

    fn file(&self) -> Option<&FileDevice> {
        Some(self)
    }

    fn persistent(&self) -> Option<&dyn Persistent> {
        Some(self)
    }

    fn submit(&self, io: &mut Io, mut request: Request) -> Submitted {
        if let Some(result) = self.complete_early(&mut request) {
            return Submitted::Done(request.complete(result));
        }
        let bounce = if self.needs_bounce(&request) { Bounce::begin(&mut request) } else { None };
        match io.start(Job::new(Arc::clone(&self.file), request)) {
            Ok(()) => Submitted::Pending,
            Err(job) => {
                let mut request = job.into_request();
                if let Some(bounce) = bounce {
                    bounce.undo(&mut request);
                }
                Submitted::Busy(request)
            }
        }
    }

    fn uses(&self, memory: &Segments) -> bool {
        memory.as_buffer().is_some() || memory.is_aligned(self.file.geometry.block_bytes as usize)
    }

    fn next_data(&self, from: u64) -> Option<u64> {
        // Moves the position of the open file, which nothing else uses.
        match rustix::fs::seek(&*self.file.handle, SeekFrom::Data(from)) {
            Err(Errno::NXIO) => None,
            found => Some(found.unwrap_or(from)),
        }
    }

    fn describe(&self) -> String {
        let file = &self.file;
        let kind = match file.kind {
            Kind::File => "file",
            Kind::BlockDevice => "block device",
        };
        let size = format_size(file.capacity_bytes());
        let cache = if file.uncached { "direct" } else { "buffered" };
        let access = if file.geometry.read_only { ", read-only" } else { "" };
        format!("{kind} {}, {size}, {cache}{access}", file.path.display())
    }
}

impl Persistent for FileDevice {
    fn id(&self) -> Option<BackingId> {
        self.file.handle.metadata().ok().and_then(|metadata| id_of(&metadata))
    }

    fn origin(&self) -> DataOrigin {
        match self.file.kind {
            Kind::File => origin::of_file(&self.file.handle),
            Kind::BlockDevice => {
                self.file.handle.metadata().map_or(DataOrigin::Unknown, |it| origin::of_device(it.rdev()))
            }
        }
    }

    fn record(&self, identity: [u8; 16]) -> bool {
        self.file.kind == Kind::File && !self.file.geometry.read_only && origin::record(&self.file.handle, identity)
    }

    fn is_idle(&self) -> bool {
        // Each request holds the file until it is complete.
        Arc::strong_count(&self.file) == 1
    }

    fn current_bytes(&self, asked_bytes: Option<u64>) -> Result<u64, OpenError> {
        let file = &self.file;
        let name = || Name::from(file.path.as_path());
        let size = match file.kind {
            Kind::File => file.handle.metadata().map(|metadata| metadata.len()),
            Kind::BlockDevice => rustix::fs::seek(&*file.handle, rustix::fs::SeekFrom::End(0)).map_err(io::Error::from),
        };
        let actual_bytes =
            size.map_err(|source| OpenError::System { path: file.path.clone(), what: "find out its size", source })?;
        let offered_bytes = file.capacity_bytes();
        if actual_bytes < offered_bytes {
            return Err(OpenError::Shrunk { name: name(), actual_bytes, offered_bytes });
        }
        if let Some(asked_bytes) = asked_bytes.filter(|&asked| !is_size(actual_bytes, asked)) {
            return Err(OpenError::SizeDiffers { name: name(), actual_bytes, asked_bytes });
        }
        check_blocks(name(), actual_bytes, file.geometry.logical_block_bytes)?;
        Ok(actual_bytes)
    }

    /// Of a regular file.
    fn extend(&self, asked_bytes: u64) -> Result<Option<u64>, OpenError> {
        let file = &self.file;
        let failed = |what| move |source| OpenError::System { path: file.path.clone(), what, source };
        if file.kind != Kind::File || file.geometry.read_only {
            return Ok(None);
        }
        let before = file.handle.metadata().map_err(failed("find out its size"))?.len();
        if before >= asked_bytes {
            return Ok(None);
        }
        file.handle.set_len(round_up(asked_bytes)).map_err(failed("give it another size"))?;
        file.handle.sync_all().map_err(failed("put it on the medium"))?;
        Ok(Some(before))
    }

    fn take_back_extension(&self, before_bytes: u64) -> io::Result<()> {
        if before_bytes < self.file.capacity_bytes() {
            return Ok(());
        }
        self.file.handle.set_len(before_bytes)
    }

    fn grow(&self, capacity_bytes: u64) {
        self.file.capacity_bytes.fetch_max(capacity_bytes, Ordering::Relaxed);
    }
}

/// The file or block device at `path`; `None` if there is none, or neither of them.
pub(crate) fn id_at(path: &Path) -> Option<BackingId> {
    fs::metadata(path).ok().and_then(|metadata| id_of(&metadata))
}

fn id_of(metadata: &fs::Metadata) -> Option<BackingId> {
    let kind = metadata.file_type();
    if kind.is_block_device() {
        // Several nodes may stand for one device. One that was away may have another number.
        Some(BackingId::changing("block", metadata.rdev().to_string()))
    } else {
        kind.is_file().then(|| BackingId::lasting("file", format!("{}.{}", metadata.dev(), metadata.ino())))
    }
}
