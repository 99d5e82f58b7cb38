//! The directory: who may have it, and how its files are read and replaced.
//!
//! Everything goes through the descriptor of the directory that was checked when it was opened.
//! Files that are being replaced are complete under another name before they get theirs.

use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::frame::{self, HEADER_BYTES_MAX};
use crate::{BYTES_MAX, NAME_BYTES_MAX, SET_ASIDE_MAX, StateError};

/// A state directory that this process has for itself, until it is dropped.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    directory: OwnedFd,
    /// Held while a file is replaced: two threads that replace the same one have one temporary
    /// file.
    writing: Mutex<()>,
    /// Locked as long as it is open.
    _lock: File,
}

/// The file that is locked.
const LOCK: &str = ".lock";

impl StateDirectory {
    /// Opens the directory, which is made if there is none, with its parents.
    ///
    /// # Errors
    /// Another process has it; it is not this user's, or others may write to it; it cannot be made.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        check_link(path)?;
        let directory = open_or_make(path)?;
        check_directory(path, &directory)?;
        let lock = lock(path, &directory)?;
        Ok(Self { path: path.to_owned(), directory, writing: Mutex::new(()), _lock: lock })
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
    /// It cannot be stored. The old content is still there, except that after an error of the last
    /// step ([`StateError::System`] with `storing the name of`) a crash decides which one it is.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), StateError> {
        check_name(name)?;
        let path = self.path_of(name);
        if content.len() > BYTES_MAX {
            return Err(StateError::TooLarge { path });
        }
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // No name of a file begins with a dot.
        let new = format!(".{name}.new");
        let stored =
            self.write(&new, content).and_then(|()| Ok(fs::renameat(&self.directory, &*new, &self.directory, name)?));
        if let Err(error) = stored {
            let _gone = fs::unlinkat(&self.directory, &*new, AtFlags::empty());
            return Err(StateError::writing("storing", &path, content.len(), error));
        }
        fs::fsync(&self.directory).map_err(|error| StateError::system("storing the name of", &path, error))
    }

    /// Removes a file; whether there was one.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: &str) -> Result<bool, StateError> {
        check_name(name)?;
        let path = self.path_of(name);
        match fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(StateError::system("removing", &path, error)),
        }
        fs::fsync(&self.directory).map_err(|error| StateError::system("removing the name of", &path, error))?;
        Ok(true)
    }

    /// Renames a file that is damaged to `NAME.damaged-N`, and returns where it is now. For those
    /// who asked for it: afterwards the file is missing, as if it had never been stored.
    ///
    /// # Errors
    /// There is no such file, it cannot be renamed, or there are [`SET_ASIDE_MAX`] such files.
    pub fn set_aside(&self, name: &str) -> Result<PathBuf, StateError> {
        check_name(name)?;
        let path = self.path_of(name);
        for number in 1..=SET_ASIDE_MAX {
            let aside = format!("{name}.damaged-{number}");
            match fs::renameat_with(&self.directory, name, &self.directory, &*aside, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    let synced = fs::fsync(&self.directory);
                    synced.map_err(|error| StateError::system("setting aside", &path, error))?;
                    return Ok(self.path_of(&aside));
                }
                Err(Errno::EXIST) => {}
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

    /// Writes a new file, whose content is on the medium afterwards.
    fn write(&self, name: &str, content: &[u8]) -> std::io::Result<()> {
        // What a process that was killed has left.
        match fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(&frame::encode(content))?;
        file.sync_all()
    }
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

fn open_or_make(path: &Path) -> Result<OwnedFd, StateError> {
    let open = || fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let opened = match open() {
        Err(Errno::NOENT) => {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|error| StateError::writing("making", path, 0, error))?;
            sync_parent(path)?;
            open()
        }
        opened => opened,
    };
    opened.map_err(|error| match error {
        Errno::NOTDIR => StateError::Kind { path: path.to_owned(), found: "something else", expected: "a directory" },
        error => StateError::system("opening", path, error),
    })
}

fn sync_parent(path: &Path) -> Result<(), StateError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(parent).and_then(|parent| parent.sync_all());
    synced.map_err(|error| StateError::system("storing the name of", path, error))
}

fn check_directory(path: &Path, directory: &OwnedFd) -> Result<(), StateError> {
    let stat = fs::fstat(directory).map_err(|error| StateError::system("opening", path, error))?;
    check_owner(path, &stat)?;
    let mode = stat.st_mode & 0o777;
    if mode & 0o022 != 0 {
        return Err(StateError::Mode { path: path.to_owned(), mode });
    }
    Ok(())
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
fn lock(path: &Path, directory: &OwnedFd) -> Result<File, StateError> {
    let failed = |error: std::io::Error| StateError::writing("locking", path, 0, error);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(directory, LOCK, flags, Mode::RUSR | Mode::WUSR).map_err(|error| failed(error.into()))?;
    let mut file = File::from(file);
    match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut text = String::new();
            let read = (&mut file).take(16).read_to_string(&mut text);
            let pid = read.ok().and_then(|_bytes| text.trim().parse().ok());
            return Err(StateError::InUse { path: path.to_owned(), pid });
        }
        Err(error) => return Err(failed(error.into())),
    }
    // Only for messages: on a full file system the lock is held without it.
    let _named = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn check_name(name: &str) -> Result<(), StateError> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let begins = name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
    if begins && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_good) {
        return Ok(());
    }
    Err(StateError::Name { name: name.to_owned() })
}

fn not_a_file(path: PathBuf, found: &'static str) -> StateError {
    StateError::Kind { path, found, expected: "a regular file" }
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
