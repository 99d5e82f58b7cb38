//! The files of an open directory: how they are replaced, removed and renamed, so that it is known
//! what is on the medium afterwards.
//!
//! Every file that has to survive a crash is written here, and nowhere else. Who may have the
//! directory, and what is in the files, is up to those who use it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use zeroize::{Zeroize as _, Zeroizing};

use crate::calls::{Calls, SystemCall};
use crate::frame::HEADER_BYTES_MAX;
use crate::{BYTES_MAX, WriteError};

/// What becomes of a file that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is replaced.
    Replaced,
    /// It stays, and nothing is stored ([`io::ErrorKind::AlreadyExists`]).
    Kept,
}

/// The permissions of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMode {
    /// These.
    Exactly(u32),
    /// These, without what the process's umask takes away.
    AtMost(u32),
}

/// The name under which a file is complete before it gets its own: no name of a state file begins
/// with a dot.
pub(crate) fn temporary(name: &OsStr, end: &str) -> OsString {
    let mut new = OsString::from(".");
    new.push(name);
    new.push(".");
    new.push(end);
    new
}

/// What was there before a change.
#[derive(Debug)]
pub(crate) enum Before {
    Nothing,
    /// A file, with these bytes, damaged or not.
    File(Zeroizing<Vec<u8>>),
    /// Something that cannot be put back.
    Other,
}

/// An open directory whose files are changed.
#[derive(Debug)]
pub(crate) struct Files {
    path: PathBuf,
    directory: OwnedFd,
    calls: Box<dyn Calls>,
}

impl AsFd for Files {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl Files {
    pub(crate) fn new(path: PathBuf, directory: OwnedFd, calls: Box<dyn Calls>) -> Self {
        Self { path, directory, calls }
    }

    pub(crate) fn with_calls(self, calls: Box<dyn Calls>) -> Self {
        Self { calls, ..self }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn path_of(&self, name: impl AsRef<std::path::Path>) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn calls(&self) -> &dyn Calls {
        &*self.calls
    }

    /// Gives a file these bytes. When this returns, they are on the medium; a crash before leaves
    /// the old content or the new one.
    pub(crate) fn replace(
        &self,
        name: &OsStr,
        mode: FileMode,
        existing: Existing,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        // Whose processes write there one after the other: what one that was killed has left is
        // overwritten by the next.
        self.replace_by(&temporary(name, "new"), name, mode, existing, bytes)
    }

    /// The same by a temporary file of this name.
    pub(crate) fn replace_by(
        &self,
        new: &OsStr,
        name: &OsStr,
        mode: FileMode,
        existing: Existing,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        match self.put(new, name, mode, existing, bytes) {
            // All of it again: a sync that comes after one that has failed may do nothing
            // (fsync(2)). The name is this file's already.
            Err(WriteError::Unknown(_)) if self.put(new, name, mode, Existing::Replaced, bytes).is_ok() => Ok(()),
            outcome => outcome,
        }
    }

    /// Removes a file that is there.
    pub(crate) fn remove(&self, name: &OsStr) -> Result<(), WriteError> {
        match self.take_out(name) {
            Err(WriteError::Unknown(_)) if self.sync_anew().is_ok() => Ok(()),
            outcome => outcome,
        }
    }

    /// Renames a file to a name that nothing has.
    pub(crate) fn rename(&self, name: &OsStr, to: &OsStr) -> Result<(), WriteError> {
        let identity = |name: &OsStr| {
            fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|it| (it.st_dev, it.st_ino))
        };
        let file = identity(name).map_err(|error| WriteError::NotStored(error.into()))?;
        let renamed = self.call(SystemCall::Rename, name, &mut || {
            Ok(fs::renameat_with(&self.directory, name, &self.directory, to, RenameFlags::NOREPLACE)?)
        });
        if let Err(error) = renamed {
            // It may have got that name all the same.
            match identity(to) {
                Ok(found) if found == file => {}
                Ok(_) | Err(Errno::NOENT) => return Err(WriteError::NotStored(error)),
                Err(_) => return Err(WriteError::Unknown(error)),
            }
        }
        self.sync().or_else(|_again| self.sync_anew()).map_err(WriteError::Unknown)
    }

    /// What is there.
    pub(crate) fn before(&self, name: &OsStr) -> Before {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Before::Nothing,
            Err(_) => return Before::Other,
        };
        let most = (BYTES_MAX + HEADER_BYTES_MAX) as u64;
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= most);
        match is_file.then(|| read_whole(file, most)) {
            Some(Ok(bytes)) => Before::File(Zeroizing::new(bytes)),
            _ => Before::Other,
        }
    }

    /// Sees to it that what was there before is on the medium.
    pub(crate) fn restore(&self, name: &OsStr, mode: FileMode, before: &Before) -> io::Result<()> {
        let restored = match before {
            Before::File(bytes) => self.put(&temporary(name, "new"), name, mode, Existing::Replaced, bytes),
            Before::Nothing if matches!(self.before(name), Before::Nothing) => return self.sync_anew(),
            Before::Nothing => self.take_out(name),
            // What is there has to do.
            Before::Other => return self.sync_anew(),
        };
        restored.map_err(|(WriteError::NotStored(error) | WriteError::Unknown(error))| error)
    }

    fn call(&self, call: SystemCall, name: &OsStr, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.calls.make(call, &self.path_of(name), work)
    }

    fn put(
        &self,
        new: &OsStr,
        name: &OsStr,
        mode: FileMode,
        existing: Existing,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        let not_stored = |error| {
            let _gone = fs::unlinkat(&self.directory, new, AtFlags::empty());
            WriteError::NotStored(error)
        };
        let file = self.write(new, mode, bytes).map_err(not_stored)?;
        let renamed = self.call(SystemCall::Rename, name, &mut || match existing {
            Existing::Replaced => Ok(fs::renameat(&self.directory, new, &self.directory, name)?),
            Existing::Kept => self.rename_to_free(new, name),
        });
        if let Err(error) = renamed {
            // The file may have got its name all the same.
            match self.is_at(name, &file) {
                Ok(true) => {}
                Ok(false) => return Err(not_stored(error)),
                Err(_) => return Err(WriteError::Unknown(error)),
            }
        }
        self.sync().map_err(WriteError::Unknown)
    }

    /// Gives a file a name, if nothing has it.
    fn rename_to_free(&self, new: &OsStr, name: &OsStr) -> io::Result<()> {
        match fs::renameat_with(&self.directory, new, &self.directory, name, RenameFlags::NOREPLACE) {
            // rename(2): not every file system knows the flag.
            Err(Errno::INVAL | Errno::NOSYS) => {
                fs::linkat(&self.directory, new, &self.directory, name, AtFlags::empty())?;
                Ok(fs::unlinkat(&self.directory, new, AtFlags::empty())?)
            }
            renamed => Ok(renamed?),
        }
    }

    fn take_out(&self, name: &OsStr) -> Result<(), WriteError> {
        let removed =
            self.call(SystemCall::Remove, name, &mut || Ok(fs::unlinkat(&self.directory, name, AtFlags::empty())?));
        if let Err(error) = removed
            && !matches!(self.before(name), Before::Nothing)
        {
            return Err(WriteError::NotStored(error));
        }
        self.sync().map_err(WriteError::Unknown)
    }

    /// Puts the names on the medium, whatever has become of them.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        self.sync().or_else(|_again| self.sync_anew())
    }

    /// Puts the names on the medium.
    fn sync(&self) -> io::Result<()> {
        self.calls.make(SystemCall::SyncDirectory, &self.path, &mut || Ok(fs::fsync(&self.directory)?))
    }

    /// The same after it has failed: there has to be something to put there.
    fn sync_anew(&self) -> io::Result<()> {
        let new = OsStr::new(".synced.new");
        self.write(new, FileMode::AtMost(0o600), b"")?;
        self.call(SystemCall::Remove, new, &mut || Ok(fs::unlinkat(&self.directory, new, AtFlags::empty())?))?;
        self.sync()
    }

    /// Whether a file has this name.
    fn is_at(&self, name: &OsStr, file: &File) -> io::Result<bool> {
        let there = match fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            there => there?,
        };
        let stat = fs::fstat(file)?;
        Ok((there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino))
    }

    /// Writes a new file, whose content is on the medium afterwards.
    fn write(&self, name: &OsStr, mode: FileMode, content: &[u8]) -> io::Result<File> {
        // What a process that was killed has left.
        match fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (FileMode::Exactly(bits) | FileMode::AtMost(bits)) = mode;
        let mut made = None;
        self.call(SystemCall::Create, name, &mut || {
            made = Some(File::from(fs::openat(&self.directory, name, flags, Mode::from_raw_mode(bits))?));
            Ok(())
        })?;
        let mut file = made.ok_or(io::ErrorKind::NotFound)?;
        if matches!(mode, FileMode::Exactly(_)) {
            fs::fchmod(&file, Mode::from_raw_mode(bits))?;
        }
        self.call(SystemCall::Write, name, &mut || file.write_all(content))?;
        self.call(SystemCall::SyncFile, name, &mut || file.sync_all())?;
        Ok(file)
    }
}

/// The content of a file, or its first `most` bytes. It may have keys in it: no part of it is left
/// in memory that is given back meanwhile, as by `read_to_end` when its buffer grows.
pub(crate) fn read_whole(mut file: File, most: u64) -> io::Result<Vec<u8>> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let expected = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    // One more, so that the end is found without growing.
    let mut bytes = vec![0; expected.saturating_add(1).min(most)];
    let mut filled = 0;
    while filled < most {
        if filled == bytes.len() {
            let mut larger = vec![0; bytes.len().saturating_mul(2).clamp(64, most.max(64))];
            larger[..filled].copy_from_slice(&bytes);
            bytes.zeroize();
            bytes = larger;
        }
        let end = bytes.len().min(most);
        match file.read(&mut bytes[filled..end]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                bytes.zeroize();
                return Err(error);
            }
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
