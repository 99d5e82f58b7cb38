//! Files of the state directory that grow: what is appended is on the medium when that returns, or
//! not in the file.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{StateDirectory, check_name};
use crate::calls::SystemCall;
use crate::place::{check_owner, read_at_most, regular_file};
use crate::{StateError, StoreError};

/// A file that grows. Who has it, has it alone.
#[derive(Debug)]
pub struct Appended {
    file: File,
    name: String,
    /// Its bytes that are on the medium.
    bytes: u64,
    /// Whether there may be more behind them, of something that was not appended in whole.
    has_rest: bool,
}

/// What became of a file while it was open, by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its name is still its own, and it is as long as it was written.
    InPlace,
    /// Its name is gone.
    Removed,
    /// Another file has its name.
    Replaced,
    /// It is shorter than what was appended to it.
    Shorter,
}

impl Appended {
    /// Opens a file that grows, or makes it, empty.
    ///
    /// # Errors
    /// It is not this user's or no file, or cannot be made.
    pub fn open(directory: &StateDirectory, name: &str) -> Result<Self, StateError> {
        check_name(name)?;
        let path = directory.path_of(name);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut is_new = false;
        let mut opened = fs::openat(directory.files(), name, flags, Mode::empty());
        if matches!(opened, Err(Errno::NOENT)) {
            is_new = true;
            let made = directory.files().calls().make(SystemCall::Create, &path, &mut || {
                let mode = Mode::RUSR | Mode::WUSR;
                opened = fs::openat(directory.files(), name, flags | OFlags::CREATE | OFlags::EXCL, mode);
                opened.as_ref().map(|_made| ()).map_err(|error| (*error).into())
            });
            made.map_err(|error| StateError::writing("making", &path, 0, error))?;
        }
        let (file, stat) = regular_file(&path, opened)?;
        check_owner(&path, &stat)?;
        if is_new {
            directory.files().sync_names().map_err(|error| StateError::writing("making", &path, 0, error))?;
        }
        let bytes = u64::try_from(stat.st_size).unwrap_or_default();
        Ok(Self { file, name: name.to_owned(), bytes, has_rest: false })
    }

    /// Appends bytes, all or none, and puts them on the medium.
    ///
    /// # Errors
    /// They are not appended. What of them may be in the file is taken out, now or before the next
    /// ones are appended.
    pub fn append(&mut self, directory: &StateDirectory, bytes: &[u8]) -> io::Result<()> {
        if self.has_rest {
            self.cut(directory, self.bytes)?;
        }
        self.has_rest = true;
        let path = directory.path_of(&self.name);
        let calls = directory.files().calls();
        let written = calls.make(SystemCall::Write, &path, &mut || {
            self.file.seek(SeekFrom::Start(self.bytes))?;
            self.file.write_all(bytes)
        });
        let stored = written.and_then(|()| calls.make(SystemCall::SyncFile, &path, &mut || self.file.sync_data()));
        if let Err(error) = stored {
            let _tried_again_later = self.cut(directory, self.bytes);
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        self.has_rest = false;
        Ok(())
    }

    /// Takes out what is behind so many bytes.
    ///
    /// # Errors
    /// It may still be there, and is taken out before anything is appended.
    pub fn cut(&mut self, directory: &StateDirectory, bytes: u64) -> io::Result<()> {
        let path = directory.path_of(&self.name);
        self.bytes = self.bytes.min(bytes);
        self.has_rest = true;
        let calls = directory.files().calls();
        calls.make(SystemCall::Write, &path, &mut || self.file.set_len(self.bytes))?;
        calls.make(SystemCall::SyncFile, &path, &mut || self.file.sync_data())?;
        self.has_rest = false;
        Ok(())
    }

    /// Whether the file still has its name and its length. What is appended to a file without a
    /// name is lost.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn standing(&self, directory: &StateDirectory) -> io::Result<Standing> {
        let open = fs::fstat(&self.file)?;
        let named = match fs::statat(directory.files(), self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(Standing::Removed),
            named => named?,
        };
        if (named.st_dev, named.st_ino) != (open.st_dev, open.st_ino) {
            return Ok(Standing::Replaced);
        }
        let is_shorter = u64::try_from(open.st_size).unwrap_or_default() < self.bytes;
        Ok(if is_shorter { Standing::Shorter } else { Standing::InPlace })
    }

    /// Writes a file anew that has lost its name: what was appended to it is read from the open
    /// file.
    ///
    /// # Errors
    /// Its name is taken, it cannot be read any more, or not be written. It stays open as it is.
    pub fn restore(&mut self, directory: &StateDirectory) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(self.bytes).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, 0)?;
        let mut new = Self::open(directory, &self.name).map_err(io::Error::other)?;
        if new.bytes > 0 {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if let Err(error) = new.append(directory, &bytes) {
            // An empty file would have the name when this is tried again.
            let _still_there = Self::remove(directory, &self.name);
            return Err(error);
        }
        *self = new;
        Ok(())
    }

    /// The content of a file that grows; `None` if there is no such file. At most `most` bytes.
    ///
    /// # Errors
    /// It is not this user's or no file, cannot be read, or is larger.
    pub fn read(directory: &StateDirectory, name: &str, most: u64) -> Result<Option<Vec<u8>>, StateError> {
        check_name(name)?;
        let path = directory.path_of(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = fs::openat(directory.files(), name, flags, Mode::empty());
        if matches!(opened, Err(Errno::NOENT)) {
            return Ok(None);
        }
        let (file, stat) = regular_file(&path, opened)?;
        check_owner(&path, &stat)?;
        read_at_most(&path, file, most).map(Some)
    }

    /// Removes a file that grows; whether there was one. It is not read for that, and not put back.
    ///
    /// # Errors
    /// It is still there, or may come back after a crash.
    pub fn remove(directory: &StateDirectory, name: &str) -> Result<bool, StoreError> {
        check_name(name)?;
        let path = directory.path_of(name);
        let mut existed = true;
        let removed = directory.files().calls().make(SystemCall::Remove, &path, &mut || {
            match fs::unlinkat(directory.files(), name, fs::AtFlags::empty()) {
                Err(Errno::NOENT) => existed = false,
                Err(error) => return Err(error.into()),
                Ok(()) => {}
            }
            Ok(())
        });
        removed.map_err(|error| StateError::writing("removing", &path, 0, error))?;
        directory.files().sync_names().map_err(|source| StoreError::Unknown { path, source })?;
        Ok(existed)
    }

    /// Its length, bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Calls;

    #[test]
    fn what_is_appended_is_there_when_it_is_opened_again() {
        let place = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(place.path()).unwrap();
        let mut file = Appended::open(&directory, "grows.log").unwrap();
        file.append(&directory, b"one\n").unwrap();
        file.append(&directory, b"two\n").unwrap();
        drop(file);
        let mut file = Appended::open(&directory, "grows.log").unwrap();
        assert_eq!(file.bytes(), 8);
        file.cut(&directory, 4).unwrap();
        file.append(&directory, b"three\n").unwrap();
        assert_eq!(Appended::read(&directory, "grows.log", 10).unwrap().unwrap(), b"one\nthree\n");
        assert!(matches!(Appended::read(&directory, "grows.log", 9), Err(StateError::TooLarge { .. })));
        let mode = std::os::unix::fs::MetadataExt::mode(&directory.path_of("grows.log").metadata().unwrap());
        assert_eq!(mode & 0o777, 0o600);
        assert!(
            Appended::remove(&directory, "grows.log").unwrap() && !Appended::remove(&directory, "grows.log").unwrap()
        );
        assert_eq!(Appended::read(&directory, "grows.log", 10).unwrap(), None);
        std::os::unix::fs::symlink("/etc/passwd", directory.path_of("link.log")).unwrap();
        Appended::open(&directory, "link.log").unwrap_err();
        Appended::read(&directory, "link.log", 10).unwrap_err();
    }

    #[test]
    fn a_file_that_has_lost_its_name_is_written_anew() {
        let place = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(place.path()).unwrap();
        let mut file = Appended::open(&directory, "grows.log").unwrap();
        file.append(&directory, b"one\n").unwrap();
        assert_eq!(file.standing(&directory).unwrap(), Standing::InPlace);
        let path = directory.path_of("grows.log");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.standing(&directory).unwrap(), Standing::Removed);
        file.restore(&directory).unwrap();
        file.append(&directory, b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        // What `sed -i` does.
        std::fs::write(directory.path_of("other"), "none\n").unwrap();
        std::fs::rename(directory.path_of("other"), &path).unwrap();
        assert_eq!(file.standing(&directory).unwrap(), Standing::Replaced);
        assert_eq!(file.restore(&directory).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        directory.set_aside("grows.log").unwrap();
        file.restore(&directory).unwrap();
        assert_eq!(
            (std::fs::read(&path).unwrap(), file.standing(&directory).unwrap()),
            (b"one\ntwo\n".to_vec(), Standing::InPlace)
        );
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(file.standing(&directory).unwrap(), Standing::Shorter);
        assert_eq!(directory.mode_of("grows.log").unwrap(), Some(0o600));
        assert_eq!(directory.mode_of("none.log").unwrap(), None);
    }

    /// A medium on which one kind of call fails, the write in its middle.
    #[derive(Debug)]
    struct Failing(SystemCall, Arc<AtomicBool>);

    impl Calls for Failing {
        fn make(&self, call: SystemCall, _path: &Path, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
            let fails = call == self.0 && self.1.load(Ordering::Relaxed);
            work()?;
            if fails { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
        }
    }

    #[test]
    fn what_could_not_be_appended_is_not_in_the_file() {
        for call in [SystemCall::Write, SystemCall::SyncFile] {
            let place = tempfile::tempdir().unwrap();
            let fails = Arc::new(AtomicBool::new(false));
            let calls = Failing(call, Arc::clone(&fails));
            let directory = StateDirectory::open_with(place.path(), Box::new(calls)).unwrap();
            let mut file = Appended::open(&directory, "grows.log").unwrap();
            file.append(&directory, b"one\n").unwrap();
            fails.store(true, Ordering::Relaxed);
            assert_eq!(file.append(&directory, b"lost, and longer\n").unwrap_err().raw_os_error(), Some(28));
            fails.store(false, Ordering::Relaxed);
            file.append(&directory, b"two\n").unwrap();
            assert_eq!(Appended::read(&directory, "grows.log", 100).unwrap().unwrap(), b"one\ntwo\n", "{call:?}");
        }
    }
}
