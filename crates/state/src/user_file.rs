//! A file in a directory that the user has named, or that is the user's own: a report, an exported
//! configuration, what is remembered between two commands. It has no first line of ours, and the
//! directory is not checked: it is the user's word.

use std::path::Path;

use rustix::fs::{self, Mode, OFlags};

use crate::WriteError;
use crate::calls::{Calls, SystemCalls};
use crate::files::{Existing, FileMode, Files, temporary};

/// Writes a file as a whole, in a directory that is there. When this returns, it is on the medium;
/// a crash before leaves the old content or the new one.
///
/// # Errors
/// It is not stored, or it is not known what is stored.
pub fn store_file(path: &Path, mode: FileMode, existing: Existing, bytes: &[u8]) -> Result<(), WriteError> {
    store_file_with(path, mode, existing, bytes, Box::new(SystemCalls))
}

/// The same with other system calls than those of the system.
///
/// # Errors
/// As [`store_file`].
pub fn store_file_with(
    path: &Path,
    mode: FileMode,
    existing: Existing,
    bytes: &[u8],
    calls: Box<dyn Calls>,
) -> Result<(), WriteError> {
    let not_stored = |error: rustix::io::Errno| WriteError::NotStored(error.into());
    let name = path.file_name().ok_or(rustix::io::Errno::INVAL).map_err(not_stored)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = fs::open(parent, flags, Mode::empty()).map_err(not_stored)?;
    let files = Files::new(parent.to_owned(), directory, calls);
    // Several commands may write it at the same time.
    let new = temporary(name, &format!("{}.new", std::process::id()));
    files.replace_by(&new, name, mode, existing, bytes)
}
