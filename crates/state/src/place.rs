//! A directory that only its owner may write to, and what is believed of its content.
//!
//! Owns how directories of this program are made and opened: by one descriptor, whose owner and
//! permissions are looked at, never by a path that others can change meanwhile. In directories that
//! all may write to, such as `/tmp`, whoever comes first has a name; what strangers put there is
//! not believed.

use std::fs::{DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::calls::{Calls, SystemCalls};
use crate::files::{Existing, FileMode, Files, read_whole};
use crate::{StateError, StoreError, WriteError};

/// OwnedBy directories are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedBy {
    /// This user's.
    Me,
    /// This user's and the superuser's: to read, and to connect to a socket in it.
    MeOrRoot,
}

/// An open directory that its owner alone may write to.
#[derive(Debug)]
pub struct Place {
    files: Files,
    owner: u32,
}

impl Place {
    /// Opens a directory; `None` if there is none.
    ///
    /// # Errors
    /// It is somebody else's, others may write to it, it is no directory, or the system refuses.
    pub fn open(path: &Path, whose: OwnedBy) -> Result<Option<Self>, StateError> {
        let opened = match open(path) {
            Err(Errno::NOENT) => return Ok(None),
            // open(2), O_NOFOLLOW with O_DIRECTORY: also where a symbolic link is.
            Err(Errno::NOTDIR) => {
                check_link(path)?;
                fs::open(path, DIRECTORY, Mode::empty())
            }
            opened => opened,
        };
        match opened {
            Ok(directory) => Self::checked(path, directory, whose).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR) => {
                Err(StateError::Kind { path: path.to_owned(), found: "something else", expected: "a directory" })
            }
            Err(error) => Err(StateError::system("opening", path, error)),
        }
    }

    /// Opens this user's directory, which is made with `mode` if there is none, with its parents.
    ///
    /// # Errors
    /// As [`Place::open`]; it cannot be made.
    pub fn make(path: &Path, mode: u32) -> Result<Self, StateError> {
        if let Some(place) = Self::open(path, OwnedBy::Me)? {
            return Ok(place);
        }
        make(path, mode)?;
        let gone = || StateError::system("opening", path, Errno::NOENT);
        Self::open(path, OwnedBy::Me)?.ok_or_else(gone)
    }

    fn checked(path: &Path, directory: OwnedFd, whose: OwnedBy) -> Result<Self, StateError> {
        let stat = fs::fstat(&directory).map_err(|error| StateError::system("opening", path, error))?;
        let (owner, user) = (stat.st_uid, geteuid().as_raw());
        if owner != user && !(whose == OwnedBy::MeOrRoot && owner == 0) {
            return Err(StateError::Owner { path: path.to_owned(), owner, user });
        }
        let mode = stat.st_mode & 0o777;
        if mode & 0o022 != 0 {
            return Err(StateError::Mode { path: path.to_owned(), mode });
        }
        Ok(Self { files: Files::new(path.to_owned(), directory, Box::new(SystemCalls)), owner })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// The same with other system calls than those of the system.
    #[must_use]
    pub fn with_calls(self, calls: Box<dyn Calls>) -> Self {
        Self { files: self.files.with_calls(calls), ..self }
    }

    /// Its descriptor, and how files are changed there.
    pub(crate) fn into_files(self) -> Files {
        self.files
    }

    /// The names in it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> Result<Vec<String>, StateError> {
        let failed = |error: Errno| StateError::system("reading", self.path(), error);
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.files).map_err(failed)? {
            names.extend(entry.map_err(failed)?.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }

    /// Makes a directory in it; `false` if something has that name.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_below(&self, name: &str, mode: u32) -> Result<bool, StateError> {
        match fs::mkdirat(&self.files, name, Mode::from_raw_mode(mode)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(StateError::system("making", &self.files.path_of(name), error)),
        }
    }

    /// Opens a directory in it, which is the same owner's; `None` if there is none.
    ///
    /// # Errors
    /// As [`Place::open`]; a symbolic link is none of ours here.
    pub fn below(&self, name: &str) -> Result<Option<Self>, StateError> {
        let path = self.files.path_of(name);
        match fs::openat(&self.files, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(directory) => {
                let place = Self::checked(&path, directory, OwnedBy::MeOrRoot)?;
                self.check_owner(&path, place.owner)?;
                Ok(Some(place))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR) => Err(StateError::Kind { path, found: "something else", expected: "a directory" }),
            Err(error) => Err(StateError::system("opening", &path, error)),
        }
    }

    /// Opens a regular file of the directory's owner to read it; `None` if there is none.
    ///
    /// # Errors
    /// It is somebody else's, no regular file, or the system refuses.
    pub fn file(&self, name: &str) -> Result<Option<File>, StateError> {
        self.open_file(name, OFlags::RDONLY, 0)
    }

    /// Opens a file of the directory's owner to lock it; it is made, readable for all who may enter
    /// the directory, if there is none.
    ///
    /// # Errors
    /// As [`Place::file`]; it cannot be made.
    pub fn lock_file(&self, name: &str) -> Result<File, StateError> {
        let gone = || StateError::system("opening", &self.files.path_of(name), Errno::NOENT);
        self.open_file(name, OFlags::RDWR | OFlags::CREATE, 0o644)?.ok_or_else(gone)
    }

    fn open_file(&self, name: &str, flags: OFlags, mode: u32) -> Result<Option<File>, StateError> {
        let path = self.files.path_of(name);
        // Opening a FIFO must not block; it is refused below.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = fs::openat(&self.files, name, flags, Mode::from_raw_mode(mode));
        if matches!(opened, Err(Errno::NOENT)) {
            return Ok(None);
        }
        let (file, stat) = regular_file(&path, opened)?;
        self.check_owner(&path, stat.st_uid)?;
        Ok(Some(file))
    }

    /// The content of a file of at most `bytes_max` bytes; `None` if there is none.
    ///
    /// # Errors
    /// As [`Place::file`]; it is longer.
    pub fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, StateError> {
        let Some(file) = self.file(name)? else { return Ok(None) };
        read_at_most(&self.files.path_of(name), file, bytes_max).map(Some)
    }

    /// Replaces a file. When this returns, it is on the medium; a crash before leaves the old
    /// content or the new one.
    ///
    /// # Errors
    /// It is not stored, or it is not known what is stored.
    pub fn replace(&self, name: &str, mode: u32, bytes: &[u8]) -> Result<(), StoreError> {
        let path = || self.files.path_of(name);
        match self.files.replace(name.as_ref(), FileMode::AtMost(mode), Existing::Replaced, bytes) {
            Ok(()) => Ok(()),
            Err(WriteError::NotStored(error)) => {
                Err(StateError::writing("writing", &path(), bytes.len(), error).into())
            }
            Err(WriteError::Unknown(source)) => Err(StoreError::Unknown { path: path(), source }),
        }
    }

    fn check_owner(&self, path: &Path, owner: u32) -> Result<(), StateError> {
        if owner == self.owner {
            return Ok(());
        }
        Err(StateError::Owner { path: path.to_owned(), owner, user: self.owner })
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    fs::open(path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// A symbolic link at the path itself is followed, as systemd has one for a service with a dynamic
/// user, unless a stranger has made it.
fn check_link(path: &Path) -> Result<(), StateError> {
    let Ok(stat) = fs::lstat(path) else { return Ok(()) };
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink && stat.st_uid != 0 {
        return check_owner(path, &stat);
    }
    Ok(())
}

/// Makes the directory, with its parents; a crash may lose them.
fn make(path: &Path, mode: u32) -> Result<(), StateError> {
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|error| StateError::writing("making", path, 0, error))
}

/// Nobody else may say what a target serves, not even to root.
pub(crate) fn check_owner(path: &Path, stat: &Stat) -> Result<(), StateError> {
    let user = geteuid().as_raw();
    if stat.st_uid == user {
        return Ok(());
    }
    Err(StateError::Owner { path: path.to_owned(), owner: stat.st_uid, user })
}

/// A file that was opened with `O_NOFOLLOW` and `O_NONBLOCK`, if it is one, and what it is. Whose
/// it is has still to be asked.
pub(crate) fn regular_file(path: &Path, opened: Result<OwnedFd, Errno>) -> Result<(File, Stat), StateError> {
    let not_a_file = |found| StateError::Kind { path: path.to_owned(), found, expected: "a regular file" };
    let file = match opened {
        Ok(file) => file,
        // open(2), ELOOP: O_NOFOLLOW, and it is a symbolic link.
        Err(Errno::LOOP) => return Err(not_a_file("a symbolic link")),
        Err(error) => return Err(StateError::system("opening", path, error)),
    };
    let stat = fs::fstat(&file).map_err(|error| StateError::system("reading", path, error))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((file.into(), stat)),
        other => Err(not_a_file(kind(other))),
    }
}

/// The content of a file, unless it is longer than `bytes_max` bytes.
pub(crate) fn read_at_most(path: &Path, file: File, bytes_max: u64) -> Result<Vec<u8>, StateError> {
    let read = read_whole(file, bytes_max.saturating_add(1));
    let bytes = read.map_err(|error| StateError::system("reading", path, error))?;
    if bytes.len() as u64 > bytes_max {
        return Err(StateError::TooLarge { path: path.to_owned() });
    }
    Ok(bytes)
}

fn kind(found: FileType) -> &'static str {
    match found {
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    }
}
