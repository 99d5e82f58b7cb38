//! The directory: who may have it, and how its files are read and replaced.
//!
//! Everything goes through the descriptor of the directory that was checked when it was opened.
//! Files that are being replaced are complete under another name before they get theirs.

pub(crate) mod appended;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::calls::{Calls, SystemCalls};
use crate::files::{Before, Existing, FileMode, Files};
use crate::frame::{self, HEADER_BYTES_MAX};
use crate::lock::{Lock, LockError};
use crate::parents;
use crate::place::{OwnedBy, Place, check_owner, read_at_most, regular_file};
use crate::{BYTES_MAX, NAME_BYTES_MAX, SET_ASIDE_MAX, StateError, StoreError, WriteError};

/// A state directory that this process has for itself, until it is dropped.
#[derive(Debug)]
pub struct StateDirectory {
    files: Files,
    /// Held while a file is replaced: two threads that replace the same one have one temporary
    /// file. In it the file of which it is not known what is stored.
    writing: Mutex<Option<Unsettled>>,
    /// Locked as long as this is there.
    _lock: Lock,
}

/// A file of which it is not known what is on the medium. Nothing else is stored before it is
/// known.
#[derive(Debug)]
struct Unsettled {
    name: String,
    before: Before,
}

/// The file that is locked.
const LOCK: &str = ".lock";

/// The longest file that is stored: a content and what is before it.
const STORED_BYTES_MAX: u64 = (BYTES_MAX + HEADER_BYTES_MAX) as u64;

impl StateDirectory {
    /// Opens the directory, which is made if there is none, with its parents.
    ///
    /// # Errors
    /// Another process has it; it is not this user's, or others may write to it; it cannot be made.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        Self::open_with(path, Box::new(SystemCalls))
    }

    /// The same with other system calls than those of the system.
    ///
    /// # Errors
    /// As [`StateDirectory::open`].
    pub fn open_with(path: &Path, calls: Box<dyn Calls>) -> Result<Self, StateError> {
        if Place::open(path, OwnedBy::Me)?.is_none() {
            let _made = parents::open_or_make(path, &*calls)?;
        }
        let files = Place::make(path, 0o700)?.with_calls(calls).into_files();
        // Who locked it before has seen to that.
        if fs::statat(&files, LOCK, AtFlags::SYMLINK_NOFOLLOW).is_err() {
            parents::sync(path, files.calls())?;
        }
        let lock = lock(path, &files)?;
        Ok(Self { files, writing: Mutex::default(), _lock: lock })
    }

    const fn files(&self) -> &Files {
        &self.files
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// Where a file of it is.
    #[must_use]
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.files.path_of(name)
    }

    /// The content of a file; `None` if there is no such file.
    ///
    /// # Errors
    /// It is damaged, not this user's, or cannot be read. It is left as it is.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        self.read_if(name, |_, _| Ok(()))
    }

    /// The same of a file with keys.
    ///
    /// # Errors
    /// As with [`StateDirectory::read`], or others than its owner may read or change it.
    pub fn read_private(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        self.read_if(name, |path, stat| match stat.st_mode & 0o777 {
            mode if mode & 0o077 != 0 => Err(StateError::Readable { path: path.to_owned(), mode }),
            _ => Ok(()),
        })
    }

    fn read_if(
        &self,
        name: &str,
        check: impl FnOnce(&Path, &fs::Stat) -> Result<(), StateError>,
    ) -> Result<Option<Vec<u8>>, StateError> {
        check_name(name)?;
        let path = self.path_of(name);
        // Opening a FIFO must not block; it is refused below.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = fs::openat(&self.files, name, flags, Mode::empty());
        if matches!(opened, Err(Errno::NOENT)) {
            return Ok(None);
        }
        let (file, stat) = regular_file(&path, opened)?;
        check_owner(&path, &stat)?;
        check(&path, &stat)?;
        // Some files have keys in them.
        let bytes = Zeroizing::new(read_at_most(&path, file, STORED_BYTES_MAX)?);
        match frame::decode(&bytes) {
            Ok(content) => Ok(Some(content.to_vec())),
            Err(damage) => Err(StateError::Damaged { path, damage }),
        }
    }

    /// Replaces the content of a file, or makes it. When this returns, the content is on the
    /// medium; a crash before leaves the old content or the new one.
    ///
    /// # Errors
    /// It is not stored: the old content is still there, and stays. Or it is not known what is
    /// stored: a crash decides, and nothing else is stored before the old content could be put back
    /// ([`StateError::Unsettled`]).
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        check_name(name)?;
        let path = self.path_of(name);
        if content.len() > BYTES_MAX {
            return Err(StateError::TooLarge { path }.into());
        }
        let mut unsettled = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.resolve_unsettled(&mut unsettled)?;
        let before = self.files.before(name.as_ref());
        let bytes = Zeroizing::new(frame::encode(content));
        match self.files.replace(name.as_ref(), MODE, Existing::Replaced, &bytes) {
            Ok(()) => Ok(()),
            Err(WriteError::NotStored(error)) => {
                Err(StateError::writing("storing", &path, content.len(), error).into())
            }
            Err(WriteError::Unknown(error)) => Err(self.take_back(&mut unsettled, name, before, "storing", error)),
        }
    }

    /// Removes a file; whether there was one.
    ///
    /// # Errors
    /// It cannot be removed. As with [`StateDirectory::replace`], it may be that a crash decides.
    pub fn remove(&self, name: &str) -> Result<bool, StoreError> {
        check_name(name)?;
        let mut unsettled = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.resolve_unsettled(&mut unsettled)?;
        let before = self.files.before(name.as_ref());
        if matches!(before, Before::Nothing) {
            return Ok(false);
        }
        match self.files.remove(name.as_ref()) {
            Ok(()) => Ok(true),
            Err(WriteError::NotStored(error)) => Err(StateError::system("removing", &self.path_of(name), error).into()),
            Err(WriteError::Unknown(error)) => Err(self.take_back(&mut unsettled, name, before, "removing", error)),
        }
    }

    /// Renames a file that is damaged to `NAME.damaged-N`, and returns where it is now. For those
    /// who asked for it: afterwards the file is missing, as if it had never been stored.
    ///
    /// # Errors
    /// There is no such file, it cannot be renamed, or there are [`SET_ASIDE_MAX`] such files. Or
    /// it is not known which name it has.
    pub fn set_aside(&self, name: &str) -> Result<PathBuf, StoreError> {
        check_name(name)?;
        let path = self.path_of(name);
        let mut unsettled = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.resolve_unsettled(&mut unsettled)?;
        for number in 1..=SET_ASIDE_MAX {
            let aside = format!("{name}.damaged-{number}");
            match self.files.rename(name.as_ref(), aside.as_ref()) {
                Ok(()) => return Ok(self.path_of(&aside)),
                Err(WriteError::NotStored(error)) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(WriteError::NotStored(error)) => {
                    return Err(StateError::system("setting aside", &path, error).into());
                }
                Err(WriteError::Unknown(source)) => {
                    *unsettled = Some(Unsettled { name: name.to_owned(), before: Before::Other });
                    return Err(StoreError::Unknown { path, source });
                }
            }
        }
        Err(StateError::TooManyAside { path }.into())
    }

    /// The permissions of a file, such as 0o600; `None` if there is no such file.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn mode_of(&self, name: &str) -> Result<Option<u32>, StateError> {
        check_name(name)?;
        match fs::statat(&self.files, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(StateError::system("reading", &self.path_of(name), error)),
            Ok(stat) => Ok(Some(stat.st_mode & 0o7777)),
        }
    }

    /// The names of the files, in order; those that were set aside, too.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self) -> Result<Vec<String>, StateError> {
        let failed = |error: Errno| StateError::system("reading", self.path(), error);
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.files).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Ok(name) = entry.file_name().to_str()
                && check_name(name).is_ok()
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Takes a change back of which it is not known whether it is on the medium.
    fn take_back(
        &self,
        unsettled: &mut Option<Unsettled>,
        name: &str,
        before: Before,
        doing: &'static str,
        error: io::Error,
    ) -> StoreError {
        let path = self.path_of(name);
        if !matches!(before, Before::Other) && self.files.restore(name.as_ref(), MODE, &before).is_ok() {
            return StateError::system(doing, &path, error).into();
        }
        *unsettled = Some(Unsettled { name: name.to_owned(), before });
        StoreError::Unknown { path, source: error }
    }

    /// Has it known what is stored, or stores nothing else.
    fn resolve_unsettled(&self, unsettled: &mut Option<Unsettled>) -> Result<(), StateError> {
        let Some(Unsettled { name, before }) = unsettled else { return Ok(()) };
        let restored = self.files.restore((*name).as_ref(), MODE, before);
        restored.map_err(|source| StateError::Unsettled { path: self.path_of(name), source })?;
        *unsettled = None;
        Ok(())
    }
}

/// The content of a file that a state directory had stored, in a copy of that directory; `None` if
/// there is no such file.
///
/// # Errors
/// It is damaged, or cannot be read.
pub fn read_stored(path: &Path) -> Result<Option<Vec<u8>>, StateError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StateError::system("opening", path, error)),
    };
    let bytes = read_at_most(path, file, STORED_BYTES_MAX)?;
    match frame::decode(&bytes) {
        Ok(content) => Ok(Some(content.to_vec())),
        Err(damage) => Err(StateError::Damaged { path: path.to_owned(), damage }),
    }
}

/// Nobody else reads what a target has stored.
const MODE: FileMode = FileMode::AtMost(0o600);

/// Locks the directory, and writes into the lock who has it.
fn lock(path: &Path, directory: &impl AsFd) -> Result<Lock, StateError> {
    let failed = |error: std::io::Error| StateError::writing("locking", path, 0, error);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(directory, LOCK, flags, Mode::RUSR | Mode::WUSR).map_err(|error| failed(error.into()))?;
    let lock = match Lock::take(File::from(file)) {
        Ok(lock) => lock,
        Err(LockError::Held(mut file)) => {
            let mut text = String::new();
            let read = (&mut file).take(16).read_to_string(&mut text);
            let pid = read.ok().and_then(|_bytes| text.trim().parse().ok());
            return Err(StateError::InUse { path: path.to_owned(), pid });
        }
        Err(LockError::System(error)) => return Err(failed(error)),
    };
    // Only for messages: on a full file system the lock is held without it.
    let _named = lock.set_len(0).and_then(|()| writeln!(&*lock, "{}", std::process::id()));
    Ok(lock)
}

fn check_name(name: &str) -> Result<(), StateError> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let begins = name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
    if begins && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_good) {
        return Ok(());
    }
    Err(StateError::Name { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_free_as_soon_as_it_is_dropped() {
        let place = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(place.path()).unwrap();
        // What a process has until its exec.
        let inherited = directory._lock.try_clone().unwrap();
        assert!(matches!(StateDirectory::open(place.path()), Err(StateError::InUse { .. })));
        drop(directory);
        StateDirectory::open(place.path()).unwrap();
        drop(inherited);
    }
}
