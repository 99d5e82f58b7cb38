//! What a namespace stores its data in, as written on the command line and in the configuration: `disk.img`,
//! `disk.img:10G`, `/dev/nvme0n1`, `mem:1G`, `null:1T`.
//!
//! Reads the words only; whether a file exists and can be opened is for whoever opens it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::units::{SIZE_FORM, SizeError, format_size, parse_size};

/// What a namespace stores its data in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Drive {
    /// Memory of the target: gone when it ends. `mem:SIZE`
    Memory {
        /// Capacity in bytes.
        size_bytes: u64,
    },
    /// Reads zeros and forgets what is written, for measuring. `null:SIZE`
    Null {
        /// Capacity in bytes.
        size_bytes: u64,
    },
    /// A regular file or a block device. `PATH` or `PATH:SIZE`
    File(FileDrive),
}

/// A regular file or a block device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileDrive {
    /// Where it is.
    pub path: String,
    /// Capacity in bytes. A missing file is made with this size, sparse; one that exists must have it. Without a size
    /// the file must exist.
    pub size_bytes: Option<u64>,
    /// Whether to go past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Whether to open it for reading only; its namespace is write-protected then.
    pub read_only: bool,
}

/// Why a text is not a drive.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DriveError {
    /// Nothing.
    #[error("the drive is empty")]
    Empty,
    /// `mem:` or `null:` without a size.
    #[error("`{kind}` needs a size")]
    NoSize {
        /// `mem` or `null`.
        kind: &'static str,
    },
    /// The size is not one.
    #[error("the size `{text}` {source}")]
    Size {
        /// What stands where the size should.
        text: String,
        /// What is wrong with it.
        source: SizeError,
    },
    /// A capacity of nothing.
    #[error("the size is 0")]
    ZeroSize,
    /// A NUL, which no path can have.
    #[error("the path has a NUL character")]
    Nul,
}

impl DriveError {
    /// What to write instead.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Empty | Self::Nul => DRIVE_FORM.into(),
            Self::NoSize { kind } => format!("write \"{kind}:1G\""),
            Self::Size { .. } => format!("accepted: {SIZE_FORM}; a path that ends so is written with `file:` in front"),
            Self::ZeroSize => "give it a size of at least one block".into(),
        }
    }
}

/// What [`Drive`] is read from, for messages.
pub const DRIVE_FORM: &str = "accepted: PATH, PATH:SIZE (made when missing), mem:SIZE or null:SIZE";

impl Drive {
    /// A file or block device that exists, opened for reading and writing through the page cache.
    #[must_use]
    pub fn file(path: impl Into<String>) -> Self {
        Self::File(FileDrive { path: path.into(), size_bytes: None, direct: false, read_only: false })
    }

    /// The capacity in bytes where the description says it.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::Memory { size_bytes } | Self::Null { size_bytes } => Some(*size_bytes),
            Self::File(file) => file.size_bytes,
        }
    }

    /// The path, where there is one.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::File(file) => Some(&file.path),
            Self::Memory { .. } | Self::Null { .. } => None,
        }
    }

    /// Puts `base` in front of a relative path.
    pub(crate) fn rebase(&mut self, base: &Path) {
        if let Self::File(file) = self
            && Path::new(&file.path).is_relative()
            && let Some(joined) = base.join(&file.path).to_str()
        {
            joined.clone_into(&mut file.path);
        }
    }
}

impl FromStr for Drive {
    type Err = DriveError;

    fn from_str(text: &str) -> Result<Self, DriveError> {
        if let Some(size) = text.strip_prefix("mem:") {
            return Ok(Self::Memory { size_bytes: capacity("mem", size)? });
        }
        if let Some(size) = text.strip_prefix("null:") {
            return Ok(Self::Null { size_bytes: capacity("null", size)? });
        }
        match text {
            "mem" => return Err(DriveError::NoSize { kind: "mem" }),
            "null" => return Err(DriveError::NoSize { kind: "null" }),
            _ => {}
        }
        // `file:` takes the rest as it is: for paths that would be read otherwise.
        let (path, size) = match text.strip_prefix("file:") {
            Some(path) => (path, None),
            None => split_size(text)?,
        };
        let path = checked_path(path)?.to_owned();
        Ok(Self::File(FileDrive { path, size_bytes: size, direct: false, read_only: false }))
    }
}

pub(crate) fn checked_path(path: &str) -> Result<&str, DriveError> {
    match path {
        "" => Err(DriveError::Empty),
        path if path.contains('\0') => Err(DriveError::Nul),
        path => Ok(path),
    }
}

pub(crate) fn checked_size(text: &str) -> Result<u64, DriveError> {
    match parse_size(text) {
        Ok(0) => Err(DriveError::ZeroSize),
        Ok(size) => Ok(size),
        Err(source) => Err(DriveError::Size { text: text.to_owned(), source }),
    }
}

fn capacity(kind: &'static str, size: &str) -> Result<u64, DriveError> {
    if size.is_empty() { Err(DriveError::NoSize { kind }) } else { checked_size(size) }
}

/// Splits `PATH:SIZE`. What follows the last colon is a size when it begins with a digit and has only digits and
/// letters: `/dev/disk/by-path/pci-0000:03:00.0-nvme-1` is a path, `disk.img:10X` is a wrong size.
fn split_size(text: &str) -> Result<(&str, Option<u64>), DriveError> {
    let Some((path, size)) = text.rsplit_once(':') else { return Ok((text, None)) };
    let meant = size.starts_with(|c: char| c.is_ascii_digit()) && size.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if meant { Ok((path, Some(checked_size(size)?))) } else { Ok((text, None)) }
}

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { size_bytes } => write!(f, "mem:{}", format_size(*size_bytes)),
            Self::Null { size_bytes } => write!(f, "null:{}", format_size(*size_bytes)),
            Self::File(file) => {
                f.write_str(&file.path)?;
                file.size_bytes.map_or(Ok(()), |size| write!(f, ":{}", format_size(size)))?;
                f.write_str(if file.direct { " (direct)" } else { "" })?;
                f.write_str(if file.read_only { " (read-only)" } else { "" })
            }
        }
    }
}

/// Written as the configuration reads it: a string, or a table for a file.
impl Serialize for Drive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self::File(file) = self else { return serializer.collect_str(self) };
        let mut table = serializer.serialize_struct("drive", 4)?;
        table.serialize_field("path", &file.path)?;
        if let Some(size) = file.size_bytes {
            table.serialize_field("size", &format_size(size))?;
        }
        table.serialize_field("direct", &file.direct)?;
        table.serialize_field("read_only", &file.read_only)?;
        table.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_as_people_write_them() {
        assert_eq!("disk.img".parse(), Ok(Drive::file("disk.img")));
        assert_eq!("mem:1G".parse(), Ok(Drive::Memory { size_bytes: 1 << 30 }));
        assert_eq!("null:1T".parse(), Ok(Drive::Null { size_bytes: 1 << 40 }));
        let drive: Drive = "disk2.img:10G".parse().unwrap();
        assert_eq!((drive.path(), drive.size_bytes()), (Some("disk2.img"), Some(10 << 30)));
    }

    #[test]
    fn a_path_with_colons_stays_a_path() {
        for path in ["/dev/disk/by-path/pci-0000:03:00.0-nvme-1", "a:b", "a:", "/dev/disk/by-id/wwn-0x5:part"] {
            assert_eq!(path.parse(), Ok(Drive::file(path)), "{path}");
        }
        assert_eq!("file:disk:10G".parse(), Ok(Drive::file("disk:10G")));
        assert_eq!("file:mem:1G".parse(), Ok(Drive::file("mem:1G")));
    }

    #[test]
    fn nonsense_is_refused_with_what_to_write() {
        let message = |text: &str| {
            let error = text.parse::<Drive>().unwrap_err();
            format!("{error}; {}", error.advice())
        };
        assert_eq!(message("mem"), "`mem` needs a size; write \"mem:1G\"");
        assert_eq!(message("null:"), "`null` needs a size; write \"null:1G\"");
        assert_eq!(message("mem:0"), "the size is 0; give it a size of at least one block");
        assert_eq!(
            message(""),
            "the drive is empty; accepted: PATH, PATH:SIZE (made when missing), mem:SIZE or null:SIZE"
        );
        assert_eq!(
            message("disk.img:10X"),
            "the size `10X` has an unknown suffix; accepted: bytes, or a whole number with K, M, G, T or P (binary: 1K \
             is 1024), such as \"10G\"; a path that ends so is written with `file:` in front"
        );
    }
}
