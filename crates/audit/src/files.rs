//! The files of the log: their names, and where they are read from: the state directory of the
//! target that writes them, or a copy.

use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ebof_state::{Appended, StateDirectory};
use serde::{Deserialize, Serialize};

use crate::chain::ChainHead;

/// The file that says where the log ends.
pub(crate) const HEAD_FILE: &str = "audit-head";

/// The largest file that is read, bytes: larger than one becomes.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;

/// What [`HEAD_FILE`] says: what the log had when it was stored. The log may have more since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kept {
    /// The number of the first record that is kept: those before it made room.
    pub(crate) first: u64,
    pub(crate) head: ChainHead,
}

/// The name of the file that begins with a record; in the order of names, they are in that of
/// records.
pub(crate) fn name_of(first: u64) -> String {
    format!("audit-{first:020}.log")
}

/// The record that a file begins with.
pub(crate) fn first_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix("audit-")?.strip_suffix(".log")?;
    let is_number = number.len() == 20 && number.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| number.parse().ok())?
}

/// Where a log is read.
pub trait Source {
    /// The names of all files there.
    ///
    /// # Errors
    /// They cannot be listed.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The content of a file of the log; `None` if it is gone.
    ///
    /// # Errors
    /// It cannot be read.
    fn lines(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// The content of a file of the state directory; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    fn stored(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// The permissions of a file, such as 0o600; `None` if there is none.
    ///
    /// # Errors
    /// They cannot be read.
    fn mode(&self, name: &str) -> io::Result<Option<u32>>;
}

impl Source for StateDirectory {
    fn names(&self) -> io::Result<Vec<String>> {
        Self::names(self).map_err(io::Error::other)
    }

    fn lines(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Appended::read(self, name, FILE_BYTES_MAX).map_err(io::Error::other)
    }

    fn stored(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.read(name).map_err(io::Error::other)
    }

    fn mode(&self, name: &str) -> io::Result<Option<u32>> {
        self.mode_of(name).map_err(io::Error::other)
    }
}

/// A directory with the files of a log that nobody writes to: a copy, or that of a target that does
/// not run.
#[derive(Clone, Debug)]
pub struct LogCopy(PathBuf);

impl LogCopy {
    /// In this directory.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

impl Source for LogCopy {
    fn names(&self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn lines(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match std::fs::File::open(self.0.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > FILE_BYTES_MAX {
            true => Err(io::Error::other("it is larger than a file of the log")),
            false => Ok(Some(bytes)),
        }
    }

    fn stored(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        ebof_state::read_stored(&self.0.join(name)).map_err(io::Error::other)
    }

    fn mode(&self, name: &str) -> io::Result<Option<u32>> {
        match std::fs::metadata(self.0.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => Ok(Some(file?.permissions().mode() & 0o7777)),
        }
    }
}

/// What is stored of where the log ends.
pub(crate) fn kept(source: &dyn Source) -> io::Result<Option<Kept>> {
    let Some(bytes) = source.stored(HEAD_FILE)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other)
}

/// The files of a log, in their order: the record that each begins with, and its name.
pub(crate) fn all(source: &dyn Source) -> io::Result<Vec<(u64, String)>> {
    let mut all: Vec<_> = source.names()?.into_iter().filter_map(|name| Some((first_of(&name)?, name))).collect();
    all.sort();
    Ok(all)
}

/// What others than the owner may do with the files of a log, in words: a target makes them with
/// mode 0600.
pub(crate) fn open_to_others(source: &dyn Source) -> io::Result<Vec<String>> {
    let mut told = Vec::new();
    for name in all(source)?.into_iter().map(|(_, name)| name).chain([HEAD_FILE.to_owned()]) {
        let Some(mode) = source.mode(&name)?.filter(|mode| mode & 0o077 != 0) else { continue };
        let what = if mode & 0o022 != 0 { "change" } else { "read" };
        told.push(format!("others may {what} {name}, which has mode {mode:04o}: `chmod 600` it"));
    }
    Ok(told)
}
