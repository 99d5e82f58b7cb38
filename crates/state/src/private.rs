//! Files that nobody else may read: keys. They are read only; who has put them there, keeps them.

pub(crate) mod keyring;

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use thiserror::Error;
use zeroize::Zeroizing;

/// Why a private file is not read.
#[derive(Debug, Error)]
pub enum PrivateFileError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is a directory, a pipe, ...
    #[error("it is no regular file")]
    NoFile,
    /// Others may read it.
    #[error("others than its owner may read or change it (mode {mode:03o}): `chmod 600` keeps it to one user")]
    Open {
        /// Its mode.
        mode: u32,
    },
    /// Somebody else could change it.
    #[error("it belongs to user {owner}, who could change it: it has to be root's or this user's own")]
    Foreign {
        /// Its owner.
        owner: u32,
    },
    /// It is too long to be one.
    #[error("it has more than {most} bytes, too many for keys")]
    Long {
        /// How many it may have.
        most: usize,
    },
    /// It is not text.
    #[error("it is not text")]
    NotText,
}

/// Reads at most `bytes_max` of text from a file that belongs to root or this user, and that nobody
/// else may read. The text is erased when it is dropped.
///
/// # Errors
/// It cannot be read, or others could have read or changed it.
pub fn read_private(path: &Path, bytes_max: usize) -> Result<Zeroizing<String>, PrivateFileError> {
    read(path, bytes_max, true)
}

/// The same where somebody else sees to it who may read the file, as systemd does with credentials.
///
/// # Errors
/// It cannot be read.
pub fn read_credential(path: &Path, bytes_max: usize) -> Result<Zeroizing<String>, PrivateFileError> {
    read(path, bytes_max, false)
}

fn read(path: &Path, bytes_max: usize, is_checked: bool) -> Result<Zeroizing<String>, PrivateFileError> {
    // A pipe without a writer must not be waited for.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open(2) is an int");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Of the file that is open: another one may be at the path a moment later.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(PrivateFileError::NoFile);
    }
    let mode = metadata.mode() & 0o777;
    if is_checked && mode & 0o077 != 0 {
        return Err(PrivateFileError::Open { mode });
    }
    let owner = metadata.uid();
    if is_checked && owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(PrivateFileError::Foreign { owner });
    }
    // With room for all of it, so that nothing is left behind where it grew.
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max + 1));
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(PrivateFileError::Long { most: bytes_max });
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| PrivateFileError::NotText)?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_files_of_one_user_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert!(matches!(read_private(&path, 10), Err(PrivateFileError::Unreadable(_))));
        fs::write(&path, "0123456789").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o777] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let refused = read_private(&path, 10).unwrap_err();
            assert!(matches!(refused, PrivateFileError::Open { mode: found } if found == mode), "{refused}");
            assert_eq!(*read_credential(&path, 10).unwrap(), "0123456789");
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(*read_private(&path, 10).unwrap(), "0123456789");
        }
        assert!(matches!(read_private(&path, 9), Err(PrivateFileError::Long { most: 9 })));
        assert!(matches!(read_private(directory.path(), 9), Err(PrivateFileError::NoFile)));
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(read_private(&path, 9), Err(PrivateFileError::NotText)));
    }

    /// Only root can make one.
    #[test]
    fn files_of_others_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "key").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
            let refused = read_private(&path, 9).unwrap_err();
            assert!(matches!(refused, PrivateFileError::Foreign { owner: 12345 }), "{refused}");
        }
    }
}
