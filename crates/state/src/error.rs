//! What can go wrong with the directory and its files, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::{BYTES_MAX, Damage, NAME_BYTES_MAX, SET_ASIDE_MAX};

/// Why a state directory cannot be had, or a file of it not read or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Another process has the directory.
    #[error("the state directory {} belongs to {}", .path.display(), holder(*.pid))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// That process, if it can be told.
        pid: Option<u32>,
    },
    /// Another user has the directory or the file.
    #[error("{} belongs to user {owner}, and this process runs as user {user}", .path.display())]
    Owner {
        /// The directory or file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        user: u32,
    },
    /// Others could replace what is in the directory.
    #[error("the state directory {} may be written by others than its owner (mode {mode:03o})", .path.display())]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file with keys can be read by others.
    #[error("{} has keys in it, and others than its owner may read or change it (mode {mode:03o})", .path.display())]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is something else than a directory, or than a regular file.
    #[error("{} is {found}, and should be {expected}", .path.display())]
    Kind {
        /// What it is about.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A file is not what was stored. It is left as it is.
    #[error("the state file {} is damaged: {damage}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        damage: Damage,
    },
    /// A file is larger, or is to be larger, than any that is stored.
    #[error("the state file {} has more than {BYTES_MAX} bytes", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// There is no room for the new content. The old one is still there.
    #[error("there is no room to store {} ({bytes} bytes): {source}", .path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// The size of the new content.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing is stored, because it is not known what is on the medium of an earlier change.
    #[error("nothing is stored while it is not known what is in {}: {source}", .path.display())]
    Unsettled {
        /// The file of that change.
        path: PathBuf,
        /// What the system said when its old content was to be put back.
        source: io::Error,
    },
    /// A name that no state file has.
    #[error("`{}` is no name of a state file", .name.escape_debug())]
    Name {
        /// The name.
        name: String,
    },
    /// Too many damaged files were set aside.
    #[error("{} cannot be set aside: there are {SET_ASIDE_MAX} damaged ones already", .path.display())]
    TooManyAside {
        /// The file.
        path: PathBuf,
    },
    /// The system refused something.
    #[error("{doing} {}: {source}", .path.display())]
    System {
        /// What was tried, such as `reading`.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Why a change is not known to be stored. Whoever has it knows which of both it is: what is built
/// on *not stored* must not be built on *unknown*, so the one does not become the other by `?`.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It is not stored: what was there before is still there, and stays.
    #[error(transparent)]
    NotStored(#[from] StateError),
    /// It is not known whether the change is on the medium: a crash decides whether the old content
    /// or the new one is there.
    #[error("it is not known whether {} is stored: {source}", .path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What the system said first.
        source: io::Error,
    },
}

impl StoreError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::NotStored(error) => error.advice(),
            Self::Unknown { .. } => UNKNOWN_ADVICE.into(),
        }
    }
}

/// The same of a file that a user has named ([`crate::store_file`]), in the system's words.
#[derive(Debug)]
pub enum WriteError {
    /// It is not stored: what was there before is still there, and stays.
    NotStored(io::Error),
    /// A crash decides whether the old content or the new one is there.
    Unknown(io::Error),
}

const UNKNOWN_ADVICE: &str =
    "see to that file system (`dmesg` tells of its errors); the next change puts the old content back first";

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl StateError {
    pub(crate) fn system(doing: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        Self::System { doing, path: path.to_owned(), source: error.into() }
    }

    /// The error of a write of `bytes` bytes.
    pub(crate) fn writing(doing: &'static str, path: &Path, bytes: usize, error: impl Into<io::Error>) -> Self {
        let source = error.into();
        let code = source.raw_os_error().map(Errno::from_raw_os_error);
        match code {
            // A quota, and a limit of the process (`ulimit -f`), are as full as a file system.
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::Full { path: path.to_owned(), bytes, source },
            _ => Self::System { doing, path: path.to_owned(), source },
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::InUse { .. } => "several targets on one machine need directories of their own".into(),
            Self::Owner { path, user, .. } => {
                format!("give it to that user (`chown -R {user} {}`), or use another directory", path.display())
            }
            Self::Mode { path, .. } => format!("`chmod go-w {}`, after a look at what is in it", path.display()),
            Self::Readable { path, .. } => format!(
                "`chmod 600 {}`; if somebody may have read it, give its hosts new keys (`ebof target rotate key HOST`)",
                path.display()
            ),
            Self::Kind { .. } => "move it away, or use another directory".into(),
            Self::Damaged { path, .. } => {
                format!("restore it from a backup, or move it away (`mv {0} {0}.damaged`)", path.display())
            }
            Self::TooLarge { .. } => format!("accepted: at most {BYTES_MAX} bytes"),
            Self::Full { .. } => "make room on that file system; what was stored before is still there".into(),
            Self::Unsettled { .. } => UNKNOWN_ADVICE.into(),
            Self::Name { .. } => {
                format!("accepted: 1 to {NAME_BYTES_MAX} letters, digits, `.`, `-` and `_`, beginning with a letter")
            }
            Self::TooManyAside { .. } => "remove those that nobody needs any more".into(),
            Self::System { .. } => "see to it that this user may write there, or use another directory".into(),
        }
    }
}
