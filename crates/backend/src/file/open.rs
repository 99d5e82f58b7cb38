//! Opens a file or block device.
//!
//! Checks everything that could fail later and can be known now: size, block size, permissions,
//! other users. A new file is durable, with its name and size, before it is used.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use super::block::{self, Lock};
use crate::error::name::Name;
use crate::error::size::{is_size, round_up};
use crate::geometry::check_blocks;
use crate::job::open_file::{Handle, Kind, OpenFile};
use crate::{Buffer, Geometry, OpenError};

/// How long to wait for the lock of a process that has ended.
const DEAD_HOLDER_TIMEOUT: Duration = Duration::from_secs(5);

/// A file or block device to be opened, and how.
pub(crate) struct PathSpec<'a> {
    pub(crate) path: &'a Path,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) uncached: Option<bool>,
    pub(crate) read_only: bool,
    pub(crate) block_bytes: Option<u32>,
}

impl PathSpec<'_> {
    pub(crate) fn open(&self) -> Result<OpenFile, OpenError> {
        let path = || self.path.to_owned();
        let metadata = match fs::metadata(self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.create(),
            Err(error) => return Err(self.system("look at it", error)),
        };
        let kind = metadata.file_type();
        if kind.is_file() {
            self.open_file(&metadata)
        } else if kind.is_block_device() {
            self.open_block_device(&metadata)
        } else if kind.is_dir() {
            Err(OpenError::Directory { path: path() })
        } else {
            let kind = if kind.is_char_device() {
                "character device"
            } else if kind.is_fifo() {
                "pipe"
            } else {
                "socket"
            };
            Err(OpenError::NotStorage { path: path(), kind })
        }
    }

    fn open_file(&self, metadata: &fs::Metadata) -> Result<OpenFile, OpenError> {
        // Root could write to it, but the permissions say that nobody should.
        if !self.read_only && metadata.mode() & 0o222 == 0 {
            let source = Errno::ACCESS.into();
            return Err(OpenError::NotWritable { path: self.path.to_owned(), source });
        }
        let uncached = self.uncached == Some(true);
        let file = self.lock(self.open_with(uncached, 0)?)?;
        // Of the file that was opened and locked: the path may have changed since.
        let metadata = file.metadata().map_err(|error| self.system("look at it", error))?;
        if metadata.len() == 0 {
            return Err(OpenError::Empty { path: self.path.to_owned() });
        }
        self.finish_file(file, &metadata, uncached)
    }

    /// Creates a sparse file, and makes its name and size durable.
    fn create(&self) -> Result<OpenFile, OpenError> {
        let path = || self.path.to_owned();
        if self.path.starts_with("/dev") && !self.path.starts_with("/dev/shm") {
            return Err(OpenError::MissingDevice { path: path() });
        }
        let Some(size_bytes) = self.size_bytes.map(round_up) else {
            return Err(OpenError::Missing { path: path() });
        };
        if self.read_only {
            return Err(OpenError::CreateReadOnly { path: path() });
        }
        check_blocks(self.name(), size_bytes, self.block_bytes.unwrap_or(512))?;
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if !directory.is_dir() {
            return Err(OpenError::MissingDirectory { path: path(), directory: directory.to_owned() });
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let made = options.open(self.path).map_err(|error| self.system("create it", error))?;
        let made = self.create_in(made, directory, size_bytes);
        if made.is_err() {
            // Without it the next attempt finds no file of the wrong size. The first error is the
            // one to report.
            let _removed: io::Result<()> = fs::remove_file(self.path);
        }
        made
    }

    fn create_in(&self, file: File, directory: &Path, size_bytes: u64) -> Result<OpenFile, OpenError> {
        // Locked while it is empty: another process that opens it now is refused, and loses nothing
        // if the file is removed again.
        let file = self.lock(file)?;
        file.set_len(size_bytes).map_err(|error| self.system("give it its size", error))?;
        file.sync_all().map_err(|error| self.system("put it on the medium", error))?;
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| self.system("put its name on the medium", error))?;
        let uncached = self.uncached == Some(true);
        if uncached {
            rustix::fs::fcntl_setfl(&*file, OFlags::DIRECT)
                .map_err(|source| OpenError::CannotBypassCache { path: self.path.to_owned(), source: source.into() })?;
        }
        let metadata = file.metadata().map_err(|error| self.system("look at it", error))?;
        self.finish_file(file, &metadata, uncached)
    }

    fn open_with(&self, uncached: bool, flags: i32) -> Result<File, OpenError> {
        let mut options = OpenOptions::new();
        let flags = if uncached { flags | libc::O_DIRECT } else { flags };
        options.read(true).write(!self.read_only).custom_flags(flags);
        options.open(self.path).map_err(|source| {
            let path = self.path.to_owned();
            match Errno::from_io_error(&source) {
                // Whoever may not read it, either, gets no further without writing.
                Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) if !self.read_only && self.is_readable() => {
                    OpenError::NotWritable { path, source }
                }
                Some(Errno::INVAL) if uncached => OpenError::CannotBypassCache { path, source },
                Some(Errno::BUSY) => OpenError::Claimed { path },
                _ => self.system("open it", source),
            }
        })
    }

    fn is_readable(&self) -> bool {
        rustix::fs::access(self.path, rustix::fs::Access::READ_OK).is_ok()
    }

    /// Locks the file: exclusively, or shared with other readers if it is opened read-only. Refuses
    /// a file that others have locked or that is behind a loop device.
    fn lock(&self, file: File) -> Result<Handle, OpenError> {
        // From here on the lock is released with the file, whatever fails.
        let file = Handle::from(file);
        let path = || self.path.to_owned();
        let operation = if self.read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        let metadata = file.metadata().map_err(|error| self.system("look at it", error))?;
        let give_up = Instant::now() + DEAD_HOLDER_TIMEOUT;
        loop {
            match rustix::fs::flock(&*file, operation) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) => {
                    let holder = block::lock_holder(&metadata, Lock::Whole).unwrap_or_default();
                    // The kernel tears the ring of a killed process down asynchronously: its
                    // requests hold the file, and with it the lock, for a moment after the process
                    // has ended. `/proc/locks` does not list the lock then.
                    let is_dead = holder.process_id.is_none_or(block::is_gone);
                    if is_dead && Instant::now() < give_up {
                        std::thread::sleep(DEAD_HOLDER_TIMEOUT / 500);
                        continue;
                    }
                    return Err(OpenError::Locked { path: path(), holder });
                }
                Err(error) => return Err(self.system("lock it", error.into())),
            }
        }
        if self.read_only {
            return Ok(file);
        }
        if let Some(holder) = block::lock_holder(&metadata, Lock::Ranges) {
            return Err(OpenError::Locked { path: path(), holder });
        }
        match block::loop_device_of(self.path) {
            Some(loop_device) => Err(OpenError::LoopBacking { path: path(), loop_device }),
            None => Ok(file),
        }
    }

    fn finish_file(&self, file: Handle, metadata: &fs::Metadata, uncached: bool) -> Result<OpenFile, OpenError> {
        let size_bytes = metadata.len();
        self.check_size(size_bytes)?;
        let block_bytes = if uncached { self.uncached_block_bytes(&file, size_bytes)? } else { 1 };
        let logical_block_bytes = self.logical_block_bytes(size_bytes, block_bytes, uncached)?;
        let punches = !self.read_only && can_punch(&file, size_bytes);
        let geometry = Geometry {
            capacity_bytes: size_bytes,
            block_bytes,
            logical_block_bytes,
            read_only: self.read_only,
            deallocates: punches,
            deallocate_granularity_bytes: u32::try_from(metadata.blksize()).unwrap_or(u32::MAX),
            writes_zeroes: !self.read_only,
            volatile_cache: !self.read_only,
        };
        Ok(self.shared(file, Kind::File, uncached, geometry))
    }

    fn open_block_device(&self, metadata: &fs::Metadata) -> Result<OpenFile, OpenError> {
        let path = || self.path.to_owned();
        let properties = block::properties(metadata.rdev());
        if properties.read_only && !self.read_only {
            return Err(OpenError::NotWritable { path: path(), source: Errno::ROFS.into() });
        }
        let uncached = self.uncached.unwrap_or(true);
        // O_EXCL: fails if the device is mounted or part of another one, and keeps it from becoming
        // so.
        let file = self.open_with(uncached, libc::O_EXCL)?;
        let size_bytes = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0));
        let size_bytes = size_bytes.map_err(|error| self.system("find out its size", error.into()))?;
        let medium_bytes = rustix::fs::ioctl_blksszget(&file);
        let medium_bytes = medium_bytes.map_err(|error| self.system("find out its block size", error.into()))?;
        if size_bytes == 0 {
            return Err(OpenError::NoMedium { name: self.name() });
        }
        if medium_bytes != 512 && medium_bytes != 4096 {
            return Err(OpenError::BlockUnsupported { name: self.name(), medium_bytes: medium_bytes.into() });
        }
        self.check_size(size_bytes)?;
        let logical_block_bytes = self.logical_block_bytes(size_bytes, medium_bytes, false)?;
        let geometry = Geometry {
            capacity_bytes: size_bytes,
            block_bytes: medium_bytes,
            logical_block_bytes,
            read_only: self.read_only,
            deallocates: properties.punches && !self.read_only,
            deallocate_granularity_bytes: properties.discard_granularity_bytes.max(medium_bytes),
            writes_zeroes: properties.writes_zeroes && !self.read_only,
            volatile_cache: !self.read_only && (properties.volatile_cache || !uncached),
        };
        Ok(self.shared(file.into(), Kind::BlockDevice, uncached, geometry))
    }

    fn shared(&self, handle: Handle, kind: Kind, uncached: bool, geometry: Geometry) -> OpenFile {
        let path = fs::canonicalize(self.path).unwrap_or_else(|_gone| self.path.to_owned());
        OpenFile {
            handle,
            name: path.display().to_string().into(),
            path,
            kind,
            uncached,
            geometry,
            capacity_bytes: AtomicU64::new(geometry.capacity_bytes),
            punches: AtomicBool::new(geometry.deallocates),
            // Found out with the first request: file systems do not tell, and for block devices the
            // kernel emulates it.
            zeroes: AtomicBool::new(true),
            cache_lost: AtomicBool::new(false),
        }
    }

    fn check_size(&self, actual_bytes: u64) -> Result<(), OpenError> {
        match self.size_bytes {
            Some(asked_bytes) if !is_size(actual_bytes, asked_bytes) => {
                Err(OpenError::SizeDiffers { name: self.name(), actual_bytes, asked_bytes })
            }
            _ => Ok(()),
        }
    }

    fn logical_block_bytes(&self, size: u64, medium_bytes: u32, uncached_file: bool) -> Result<u32, OpenError> {
        let asked_bytes = self.block_bytes.unwrap_or_else(|| medium_bytes.max(512));
        if asked_bytes < medium_bytes {
            return Err(OpenError::BlockTooSmall { name: self.name(), medium_bytes, asked_bytes, uncached_file });
        }
        check_blocks(self.name(), size, asked_bytes)?;
        Ok(asked_bytes)
    }

    /// The smallest unit of direct I/O on this file. Tries it, because some file systems accept
    /// O_DIRECT when the file is opened and refuse the reads.
    fn uncached_block_bytes(&self, file: &File, size_bytes: u64) -> Result<u32, OpenError> {
        let mut buffer = Buffer::zeroed(4096);
        let mut refusal = Errno::INVAL;
        for (block_bytes, len) in [(512, 512), (4096, 4096)] {
            // At an offset that is no multiple of a larger block, where the file is long enough.
            let offset = if size_bytes >= 2 * u64::from(block_bytes) { u64::from(block_bytes) } else { 0 };
            match rustix::io::pread(file, &mut buffer.as_mut_slice()[..len], offset) {
                Ok(_) => return Ok(block_bytes),
                Err(error @ (Errno::INVAL | Errno::OPNOTSUPP)) => refusal = error,
                Err(error) => return Err(self.system("read its first blocks", error.into())),
            }
        }
        Err(OpenError::CannotBypassCache { path: self.path.to_owned(), source: refusal.into() })
    }

    fn name(&self) -> Name {
        Name::from(self.path)
    }

    fn system(&self, what: &'static str, source: io::Error) -> OpenError {
        OpenError::System { path: self.path.to_owned(), what, source }
    }
}

/// Whether the file system punches holes: tries it behind the end of the file.
fn can_punch(file: &File, size_bytes: u64) -> bool {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let behind = size_bytes.next_multiple_of(1 << 20);
    rustix::fs::fallocate(file, mode, behind, 4096).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(path: &Path) -> PathSpec<'_> {
        PathSpec { path, size_bytes: Some(4096), uncached: None, read_only: false, block_bytes: None }
    }

    #[test]
    fn a_file_that_was_closed_can_be_opened_while_a_process_that_is_being_started_still_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let path_spec = small(&path);
        let file = path_spec.open().unwrap();
        // What a child has between fork and exec: a descriptor of the same open file.
        let of_child = file.handle.try_clone().unwrap();
        assert!(matches!(path_spec.open(), Err(OpenError::Locked { .. })));
        drop(file);
        path_spec.open().unwrap();
        drop(of_child);
    }

    #[test]
    fn a_file_that_could_not_be_opened_is_not_locked_while_a_process_that_is_being_started_still_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let path_spec = small(&path);
        let file = File::create_new(&path).unwrap();
        let of_child = file.try_clone().unwrap();
        // Fails after the file was locked.
        let made = path_spec.create_in(file, &directory.path().join("missing"), 4096);
        assert!(matches!(made, Err(OpenError::System { what: "put its name on the medium", .. })));
        path_spec.open().unwrap();
        drop(of_child);
    }
}
