//! Names of devices for messages.

use std::fmt;
use std::path::PathBuf;

/// The name of a device: shown as `mem`, `null` or its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Memory.
    Memory,
    /// The null device.
    Null,
    /// A file or block device.
    Path(PathBuf),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Memory => f.write_str("mem"),
            Name::Null => f.write_str("null"),
            Name::Path(path) => path.display().fmt(f),
        }
    }
}
