//! Where a namespace stores its data, as written on the command line and in the configuration:
//! `disk.img`, `disk.img:10Gi`, `disk.img,size=10Gi,direct,readonly`, `/dev/nvme0n1`, `mem:1Gi`,
//! `null:1Ti`.
//!
//! The syntax is that of [`ebof_grammar::backing`], without options that a configuration has keys
//! for. Files are not accessed here.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use ebof_grammar::backing::{BackingError, SIZE_BYTES_MAX, Source, Spec};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::keys::Absent::{Required, Value, Words};
use crate::keys::{Form, Key};
use crate::units::format_size;

/// Where a namespace stores its data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Drive {
    /// Memory of the target, lost when it ends. `mem:SIZE`
    Memory {
        /// Capacity in bytes.
        size_bytes: u64,
    },
    /// Reads zeros and discards writes, for benchmarks. `null:SIZE`
    Null {
        /// Capacity in bytes.
        size_bytes: u64,
    },
    /// A regular file or a block device. `PATH` or `PATH:SIZE`
    File(FileDrive),
}

/// A regular file or a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileDrive {
    /// The path.
    pub path: String,
    /// Capacity in bytes. A missing file is created with this size, sparse; an existing one must
    /// have it. Without a size, the file must exist.
    pub size_bytes: Option<u64>,
    /// Whether to bypass the page cache (`O_DIRECT`); `None`: for block devices only.
    pub direct: Option<bool>,
    /// Whether to open it read-only; its namespace is then write-protected.
    pub read_only: bool,
    /// Whether it may contain a drive of ebof's, which a host keeps in its namespace.
    pub nested: bool,
}

impl Drive {
    /// A file or block device that exists, opened for reading and writing through the page cache.
    #[must_use]
    pub fn file(path: impl Into<String>) -> Self {
        Self::File(FileDrive { path: path.into(), ..FileDrive::default() })
    }

    /// The capacity in bytes, if it is given.
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

    /// Whether both store their data in the same place and access them in the same way; a file may
    /// have another size. Drives without a path are the same if they are equal.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(file), Self::File(other)) => {
                let way = |file: &FileDrive| (file.direct, file.read_only);
                file.path == other.path && way(file) == way(other)
            }
            _ => self == other,
        }
    }

    /// Whether both store their data in the same place, however they access them. Drives without a
    /// path are the same if they are equal.
    #[must_use]
    pub fn has_same_data(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(file), Self::File(other)) => file.path == other.path,
            _ => self == other,
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

impl FileDrive {
    pub(crate) const KEYS: &[Key<Self>] = &[
        Key {
            name: "path",
            form: Form::Other("string"),
            default: Required,
            text: "used literally, including colons and commas",
        },
        Key {
            name: "size",
            form: Form::Size {
                range: 1..=SIZE_BYTES_MAX,
                step: 1,
                set: Some(|file, bytes| file.size_bytes = Some(bytes)),
            },
            default: Words("that of the file"),
            text: "at least one block; a missing file is created with this size, sparse",
        },
        Key {
            name: "direct",
            form: Form::Boolean { set: Some(|file, direct| file.direct = Some(direct)) },
            default: Words("`true` for block devices, otherwise `false`"),
            text: "bypasses the page cache (`O_DIRECT`)",
        },
        Key {
            name: "read_only",
            form: Form::Boolean { set: Some(|file, read_only| file.read_only = read_only) },
            default: Value,
            text: "opened read-only; the namespace is write-protected",
        },
        Key {
            name: "nested",
            form: Form::Boolean { set: Some(|file, nested| file.nested = nested) },
            default: Value,
            text: "the file may contain a drive that hosts manage. Without it such a file is \
                   refused, because serving it as a plain namespace would overwrite the drive. \
                   With it, a host may create a drive in its namespace, and nothing that a host \
                   writes there can prevent the target from starting",
        },
    ];
}

impl FromStr for Drive {
    type Err = BackingError;

    fn from_str(text: &str) -> Result<Self, BackingError> {
        let spec: Spec = text.parse().map_err(|error| match error {
            BackingError::Block { .. } => BackingError::BlockOption,
            other => other,
        })?;
        if spec.block_bytes.is_some() {
            return Err(BackingError::BlockOption);
        }
        let read_only = spec.read_only;
        let nested = spec.nested;
        let in_memory =
            |drive| if read_only { Err(BackingError::FileOption { option: "readonly" }) } else { Ok(drive) };
        match spec.source {
            Source::Memory { size_bytes } => in_memory(Self::Memory { size_bytes }),
            Source::Null { size_bytes } => in_memory(Self::Null { size_bytes }),
            Source::Named { .. } => unreachable!("the text was parsed without schemes"),
            Source::Path { path, size_bytes, direct } => {
                let path = path.into_os_string().into_string().expect("it was read from a text");
                Ok(Self::File(FileDrive { path, size_bytes, direct, read_only, nested }))
            }
        }
    }
}

impl From<&Drive> for Spec {
    fn from(drive: &Drive) -> Self {
        match drive {
            Drive::Memory { size_bytes } => Self::memory(*size_bytes),
            Drive::Null { size_bytes } => Self::null(*size_bytes),
            Drive::File(FileDrive { path, size_bytes, direct, read_only, nested }) => {
                let source = Source::Path { path: path.into(), size_bytes: *size_bytes, direct: *direct };
                Self { source, read_only: *read_only, nested: *nested, block_bytes: None }
            }
        }
    }
}

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Spec::from(self).fmt(f)
    }
}

/// Written as the configuration reads it: a string, or a table for a file.
impl Serialize for Drive {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self::File(file) = self else { return serializer.collect_str(self) };
        let mut table = serializer.serialize_struct("drive", 5)?;
        table.serialize_field("path", &file.path)?;
        if let Some(size) = file.size_bytes {
            table.serialize_field("size", &format_size(size))?;
        }
        if let Some(direct) = file.direct {
            table.serialize_field("direct", &direct)?;
        }
        table.serialize_field("read_only", &file.read_only)?;
        if file.nested {
            table.serialize_field("nested", &file.nested)?;
        }
        table.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_parsed_from_text() {
        assert_eq!("disk.img".parse(), Ok(Drive::file("disk.img")));
        assert_eq!("mem:1Gi".parse(), Ok(Drive::Memory { size_bytes: 1 << 30 }));
        assert_eq!("null:1Ti".parse(), Ok(Drive::Null { size_bytes: 1 << 40 }));
        let drive: Drive = "disk2.img:10Gi".parse().unwrap();
        assert_eq!((drive.path(), drive.size_bytes()), (Some("disk2.img"), Some(10 << 30)));
        let sizes = |text: &str| text.parse::<Drive>().unwrap().size_bytes();
        assert_eq!((sizes("a:10G"), sizes("a:1.5T")), (Some(10_000_000_000), Some(1_500_000_000_000)));
    }

    #[test]
    fn a_path_may_contain_colons() {
        for path in ["/dev/disk/by-path/pci-0000:03:00.0-nvme-1", "a:b", "a:", "/dev/disk/by-id/wwn-0x5:part"] {
            assert_eq!(path.parse(), Ok(Drive::file(path)), "{path}");
        }
        let drive: Drive = "a:10Gi,size=1Mi".parse().unwrap();
        assert_eq!((drive.path(), drive.size_bytes()), (Some("a:10Gi"), Some(1 << 20)));
    }

    #[test]
    fn invalid_text_is_refused_with_what_to_write() {
        let message = |text: &str| {
            let error = text.parse::<Drive>().unwrap_err();
            format!("{error}; {}", error.advice())
        };
        assert_eq!(message("mem"), "`mem` needs a size; write \"mem:1G\", or \"./mem\" for a file of that name");
        assert_eq!(message("null:"), "`null` needs a size; write \"null:1G\", or \"./null\" for a file of that name");
        assert_eq!(message("mem:0"), "the size is 0; give it a size of at least one block");
        assert_eq!(
            message(""),
            "the drive is empty; accepted: PATH, PATH:SIZE (made when missing), mem:SIZE or null:SIZE"
        );
        assert_eq!(
            message("disk.img:10X"),
            "the size `10X` has an unknown unit; accepted: bytes, or a number with K, M, G, T or P (powers of 1000) or Ki, \
             Mi, Gi, Ti or Pi (powers of 1024), such as \"10G\""
        );
        assert_eq!(
            message("disk.img,drect"),
            "`drect` is not an option of a drive; \
             accepted: size=SIZE, direct[=yes|no], readonly[=yes|no], nested[=yes|no]; a comma in a path is written twice"
        );
        assert_eq!(message("a:1Gi,size=1Gi,size=2Gi"), "`size` is given twice; write it once");
        assert_eq!(message("a,direct=maybe"), "`direct` is `maybe`; accepted: yes or no");
        assert_eq!(
            message("a,block=512"),
            "the block size belongs to the namespace; write block_size = 512 or 4096 beside the drive; on the \
             command line of serve, --block-size 512 or 4096"
        );
        assert_eq!(message("mem:1Gi,direct"), "`direct` is for files and block devices; leave it out");
        assert_eq!(message("null:1Gi,nested"), "`nested` is for files and block devices; leave it out");
        assert!(matches!(
            "mem:8192Pi".parse::<Drive>(),
            Err(BackingError::Size { source: crate::units::SizeError::TooLarge, .. })
        ));
    }

    #[test]
    fn options_and_commas_round_trip() {
        for text in [
            "disk.img,size=10Gi,direct,readonly,nested",
            "disk.img,nested",
            "a,,b,direct=no",
            "mem:1Gi",
            "/dev/nvme0n1",
        ] {
            assert_eq!(text.parse::<Drive>().unwrap().to_string(), text);
        }
        assert_eq!("a,,b".parse::<Drive>().unwrap().path(), Some("a,b"));
    }
}
