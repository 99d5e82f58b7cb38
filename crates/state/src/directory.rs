//! The directory: who may have it, and how its files are read and replaced.
//!
//! Everything goes through the descriptor of the directory that was checked when it was opened.
//! Files that are being replaced are complete under another name before they get theirs.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::calls::{Calls, SystemCall, SystemCalls};
use crate::frame::{self, HEADER_BYTES_MAX};
use crate::lock::{Lock, LockError};
use crate::parents;
use crate::place::{OwnedBy, Place};
use crate::{BYTES_MAX, NAME_BYTES_MAX, SET_ASIDE_MAX, StateError};

/// A state directory that this process has for itself, until it is dropped.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    directory: OwnedFd,
    calls: Box<dyn Calls>,
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

/// What was there before a change.
#[derive(Debug)]
enum Before {
    Nothing,
    /// A file, with these bytes, damaged or not.
    File(Vec<u8>),
    /// Something that cannot be put back.
    Other,
}

/// Why something did not get onto the medium.
enum Failed {
    /// Nothing has changed.
    NotStored(io::Error),
    /// A crash decides.
    Unknown(io::Error),
}

/// The file that is locked.
const LOCK: &str = ".lock";

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
        let directory = Place::make(path, 0o700)?.into_directory();
        // Who locked it before has seen to that.
        if fs::statat(&directory, LOCK, AtFlags::SYMLINK_NOFOLLOW).is_err() {
            parents::sync(path, &*calls)?;
        }
        let lock = lock(path, &directory)?;
        Ok(Self { path: path.to_owned(), directory, calls, writing: Mutex::default(), _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a file of it is.
    #[must_use]
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The content of a file; `None` if there is no such file.
    ///
    /// # Errors
    /// It is damaged, not this user's, or cannot be read. It is left as it is.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        check_name(name)?;
        let path = self.path_of(name);
        // Opening a FIFO must not block; it is refused below.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            // open(2), ELOOP: O_NOFOLLOW, and it is a symbolic link.
            Err(Errno::LOOP) => return Err(not_a_file(path, "a symbolic link")),
            Err(error) => return Err(StateError::system("opening", &path, error)),
        };
        let stat = fs::fstat(&file).map_err(|error| StateError::system("reading", &path, error))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            other => return Err(not_a_file(path, kind(other))),
        }
        check_owner(&path, &stat)?;
        let mut bytes = Vec::new();
        let most = BYTES_MAX + HEADER_BYTES_MAX;
        let read = File::from(file).take(most as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| StateError::system("reading", &path, error))?;
        if bytes.len() > most {
            return Err(StateError::TooLarge { path });
        }
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
    /// stored ([`StateError::Unknown`]): a crash decides, and nothing else is stored before the
    /// old content could be put back ([`StateError::Unsettled`]).
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), StateError> {
        check_name(name)?;
        let path = self.path_of(name);
        if content.len() > BYTES_MAX {
            return Err(StateError::TooLarge { path });
        }
        let mut unsettled = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.settle(&mut unsettled)?;
        let before = self.before(name);
        let bytes = frame::encode(content);
        match self.put(name, &bytes) {
            Ok(()) => Ok(()),
            Err(Failed::NotStored(error)) => Err(StateError::writing("storing", &path, content.len(), error)),
            // All of it again: a sync that comes after one that has failed may do nothing
            // (fsync(2)).
            Err(Failed::Unknown(_)) if self.put(name, &bytes).is_ok() => Ok(()),
            Err(Failed::Unknown(error)) => Err(self.take_back(&mut unsettled, name, before, "storing", error)),
        }
    }

    /// Removes a file; whether there was one.
    ///
    /// # Errors
    /// It cannot be removed. As with [`StateDirectory::replace`], it may be that a crash decides.
    pub fn remove(&self, name: &str) -> Result<bool, StateError> {
        check_name(name)?;
        let mut unsettled = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.settle(&mut unsettled)?;
        let before = self.before(name);
        if matches!(before, Before::Nothing) {
            return Ok(false);
        }
        let path = self.path_of(name);
        match self.take_out(name) {
            Ok(()) => Ok(true),
            Err(Failed::NotStored(error)) => Err(StateError::system("removing", &path, error)),
            Err(Failed::Unknown(_)) if self.sync_anew().is_ok() => Ok(true),
            Err(Failed::Unknown(error)) => Err(self.take_back(&mut unsettled, name, before, "removing", error)),
        }
    }

    /// Renames a file that is damaged to `NAME.damaged-N`, and returns where it is now. For those
    /// who asked for it: afterwards the file is missing, as if it had never been stored.
    ///
    /// # Errors
    /// There is no such file, it cannot be renamed, or there are [`SET_ASIDE_MAX`] such files.
    pub fn set_aside(&self, name: &str) -> Result<PathBuf, StateError> {
        check_name(name)?;
        let path = self.path_of(name);
        let mut unsettled = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.settle(&mut unsettled)?;
        for number in 1..=SET_ASIDE_MAX {
            let aside = format!("{name}.damaged-{number}");
            let flags = RenameFlags::NOREPLACE;
            let renamed = self.call(SystemCall::Rename, name, &mut || {
                Ok(fs::renameat_with(&self.directory, name, &self.directory, &*aside, flags)?)
            });
            match renamed {
                Ok(()) => {
                    if let Err(error) = self.sync().or_else(|_again| self.sync_anew()) {
                        *unsettled = Some(Unsettled { name: name.to_owned(), before: Before::Other });
                        return Err(StateError::Unknown { path, source: error });
                    }
                    return Ok(self.path_of(&aside));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(StateError::system("setting aside", &path, error)),
            }
        }
        Err(StateError::TooManyAside { path })
    }

    /// The names of the files, in order; those that were set aside, too.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn names(&self) -> Result<Vec<String>, StateError> {
        let failed = |error: Errno| StateError::system("reading", &self.path, error);
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.directory).map_err(failed)? {
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

    fn call(&self, call: SystemCall, name: &str, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.calls.make(call, &self.path_of(name), work)
    }

    /// Gives a file these bytes.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Failed> {
        // No name of a file begins with a dot.
        let new = format!(".{name}.new");
        let not_stored = |error| {
            let _gone = fs::unlinkat(&self.directory, &*new, AtFlags::empty());
            Failed::NotStored(error)
        };
        let file = self.write(&new, bytes).map_err(not_stored)?;
        let renamed = self
            .call(SystemCall::Rename, name, &mut || Ok(fs::renameat(&self.directory, &*new, &self.directory, name)?));
        if let Err(error) = renamed {
            // The file may have got its name all the same.
            match self.is_at(name, &file) {
                Ok(true) => {}
                Ok(false) => return Err(not_stored(error)),
                Err(_) => return Err(Failed::Unknown(error)),
            }
        }
        self.sync().map_err(Failed::Unknown)
    }

    /// Removes a file that is there.
    fn take_out(&self, name: &str) -> Result<(), Failed> {
        let removed =
            self.call(SystemCall::Remove, name, &mut || Ok(fs::unlinkat(&self.directory, name, AtFlags::empty())?));
        if let Err(error) = removed
            && !matches!(self.before(name), Before::Nothing)
        {
            return Err(Failed::NotStored(error));
        }
        self.sync().map_err(Failed::Unknown)
    }

    /// Puts the names on the medium.
    fn sync(&self) -> io::Result<()> {
        self.calls.make(SystemCall::SyncDirectory, &self.path, &mut || Ok(fs::fsync(&self.directory)?))
    }

    /// The same after it has failed: there has to be something to put there.
    fn sync_anew(&self) -> io::Result<()> {
        let new = ".synced.new";
        self.write(new, b"")?;
        self.call(SystemCall::Remove, new, &mut || Ok(fs::unlinkat(&self.directory, new, AtFlags::empty())?))?;
        self.sync()
    }

    /// Whether a file has this name.
    fn is_at(&self, name: &str, file: &File) -> io::Result<bool> {
        let there = match fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            there => there?,
        };
        let stat = fs::fstat(file)?;
        Ok((there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino))
    }

    /// What is there.
    fn before(&self, name: &str) -> Before {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Before::Nothing,
            Err(_) => return Before::Other,
        };
        let mut bytes = Vec::new();
        let most = (BYTES_MAX + HEADER_BYTES_MAX) as u64;
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= most);
        match is_file && file.take(most).read_to_end(&mut bytes).is_ok() {
            true => Before::File(bytes),
            false => Before::Other,
        }
    }

    /// Takes a change back of which it is not known whether it is on the medium.
    fn take_back(
        &self,
        unsettled: &mut Option<Unsettled>,
        name: &str,
        before: Before,
        doing: &'static str,
        error: io::Error,
    ) -> StateError {
        let path = self.path_of(name);
        if !matches!(before, Before::Other) && self.restore(name, &before).is_ok() {
            return StateError::system(doing, &path, error);
        }
        *unsettled = Some(Unsettled { name: name.to_owned(), before });
        StateError::Unknown { path, source: error }
    }

    /// Sees to it that what was there before is on the medium.
    fn restore(&self, name: &str, before: &Before) -> io::Result<()> {
        let restored = match before {
            Before::File(bytes) => self.put(name, bytes),
            Before::Nothing if matches!(self.before(name), Before::Nothing) => return self.sync_anew(),
            Before::Nothing => self.take_out(name),
            // What is there has to do.
            Before::Other => return self.sync_anew(),
        };
        restored.map_err(|(Failed::NotStored(error) | Failed::Unknown(error))| error)
    }

    /// Has it known what is stored, or stores nothing else.
    fn settle(&self, unsettled: &mut Option<Unsettled>) -> Result<(), StateError> {
        let Some(Unsettled { name, before }) = unsettled else { return Ok(()) };
        self.restore(name, before).map_err(|source| StateError::Unsettled { path: self.path_of(name), source })?;
        *unsettled = None;
        Ok(())
    }

    /// Writes a new file, whose content is on the medium afterwards.
    fn write(&self, name: &str, content: &[u8]) -> io::Result<File> {
        // What a process that was killed has left.
        match fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut made = None;
        self.call(SystemCall::Create, name, &mut || {
            made = Some(File::from(fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)?));
            Ok(())
        })?;
        let mut file = made.ok_or(io::ErrorKind::NotFound)?;
        self.call(SystemCall::Write, name, &mut || file.write_all(content))?;
        self.call(SystemCall::SyncFile, name, &mut || file.sync_all())?;
        Ok(file)
    }
}

/// A symbolic link at the path itself is followed, as systemd has one for a service with a dynamic
/// user, unless a stranger has made it.
pub(crate) fn check_link(path: &Path) -> Result<(), StateError> {
    let Ok(stat) = fs::lstat(path) else { return Ok(()) };
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink && stat.st_uid != 0 {
        return check_owner(path, &stat);
    }
    Ok(())
}

/// Makes the directory, with its parents; a crash may lose them.
pub(crate) fn make(path: &Path, mode: u32) -> Result<(), StateError> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|error| StateError::writing("making", path, 0, error))
}

/// Nobody else may say what a target serves, not even to root.
fn check_owner(path: &Path, stat: &Stat) -> Result<(), StateError> {
    let user = geteuid().as_raw();
    if stat.st_uid == user {
        return Ok(());
    }
    Err(StateError::Owner { path: path.to_owned(), owner: stat.st_uid, user })
}

/// Locks the directory, and writes into the lock who has it.
fn lock(path: &Path, directory: &OwnedFd) -> Result<Lock, StateError> {
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

pub(crate) fn not_a_file(path: PathBuf, found: &'static str) -> StateError {
    StateError::Kind { path, found, expected: "a regular file" }
}

pub(crate) fn kind(found: FileType) -> &'static str {
    match found {
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    }
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
