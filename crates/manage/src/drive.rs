//! What a namespace stores its data in, as written on the command line and in the configuration: `disk.img`,
//! `disk.img:10Gi`, `disk.img,size=10Gi,direct,readonly`, `/dev/nvme0n1`, `mem:1Gi`, `null:1Ti`.
//!
//! Reads the words only; whether a file exists and can be opened is for whoever opens it. The words are those of the
//! backend crate's drive specification, which this crate cannot see: a change there is a change here.

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileDrive {
    /// Where it is.
    pub path: String,
    /// Capacity in bytes. A missing file is made with this size, sparse; one that exists must have it. Without a size
    /// the file must exist.
    pub size_bytes: Option<u64>,
    /// Whether to go past the page cache (`O_DIRECT`); `None`: for block devices only.
    pub direct: Option<bool>,
    /// Whether to open it for reading only; its namespace is write-protected then.
    pub read_only: bool,
    /// Whether what is in it may be a drive of ebof's: one that a host keeps in its namespace.
    pub nested: bool,
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
    /// An option that there is not.
    #[error("`{option}` is not an option of a drive")]
    UnknownOption {
        /// What was written.
        option: String,
    },
    /// An option of the namespace.
    #[error("the block size belongs to the namespace")]
    BlockOption,
    /// An option that only files have.
    #[error("`{option}` is for files and block devices")]
    FileOption {
        /// The option.
        option: &'static str,
    },
    /// An option more than once, or a size in two places.
    #[error("`{option}` is given twice")]
    Twice {
        /// The option.
        option: &'static str,
    },
    /// Neither yes nor no.
    #[error("`{option}` is `{value}`")]
    Switch {
        /// The option.
        option: &'static str,
        /// What was written.
        value: String,
    },
}

impl DriveError {
    /// What to write instead.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Empty | Self::Nul => DRIVE_FORM.into(),
            Self::NoSize { kind } => format!("write \"{kind}:1G\""),
            Self::Size { .. } => format!("accepted: {SIZE_FORM}"),
            Self::ZeroSize => "give it a size of at least one block".into(),
            Self::UnknownOption { .. } => {
                "accepted: size=SIZE, direct[=yes|no], readonly[=yes|no], nested[=yes|no]; a comma in a path is written \
                 twice"
                    .into()
            }
            Self::BlockOption => {
                "write block_size = 512 or 4096 beside the drive; on the command line of serve, --block-size 512 or 4096".into()
            }
            Self::FileOption { option: "readonly" } => {
                "leave it out; write_protect = true (--write-protect of serve) keeps hosts from writing".into()
            }
            Self::FileOption { .. } => "leave it out".into(),
            Self::Twice { .. } => "write it once".into(),
            Self::Switch { .. } => "accepted: yes or no".into(),
        }
    }
}

/// What [`Drive`] is read from, for messages.
pub const DRIVE_FORM: &str = "accepted: PATH, PATH:SIZE (made when missing), mem:SIZE or null:SIZE";

impl Drive {
    /// A file or block device that exists, opened for reading and writing through the page cache.
    #[must_use]
    pub fn file(path: impl Into<String>) -> Self {
        Self::File(FileDrive { path: path.into(), ..FileDrive::default() })
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

    /// Whether both store their data in the same place and get at it in the same way: a file may have another size. What has
    /// no name is the same where all of it is equal.
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

    /// Whether both store their data in the same place, however they get at it. What has no name is the same where all of it
    /// is equal.
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

impl FromStr for Drive {
    type Err = DriveError;

    fn from_str(text: &str) -> Result<Self, DriveError> {
        let mut words = split_commas(text).into_iter();
        let head = words.next().unwrap_or_default();
        let mut options = Options::default();
        words.try_for_each(|word| options.take(&word))?;
        let (kind, size) = head.split_once(':').unwrap_or((&head, ""));
        match kind {
            "mem" | "memory" => Ok(Self::Memory { size_bytes: options.capacity("mem", size)? }),
            "null" => Ok(Self::Null { size_bytes: options.capacity("null", size)? }),
            _ => options.file(&head).map(Self::File),
        }
    }
}

/// Splits at single commas; a double one is a comma of the text.
pub(crate) fn split_commas(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ',' && chars.next_if_eq(&',').is_none() {
            words.push(String::new());
        } else if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    words
}

#[derive(Default)]
struct Options {
    size_bytes: Option<u64>,
    direct: Option<bool>,
    read_only: Option<bool>,
    nested: Option<bool>,
}

impl Options {
    fn take(&mut self, word: &str) -> Result<(), DriveError> {
        let (option, value) = word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        match option {
            "size" => self.size(value.unwrap_or_default()),
            "direct" => once("direct", &mut self.direct, switch("direct", value)?),
            "readonly" | "ro" => once("readonly", &mut self.read_only, switch("readonly", value)?),
            "nested" => once("nested", &mut self.nested, switch("nested", value)?),
            "block" => Err(DriveError::BlockOption),
            _ => Err(DriveError::UnknownOption { option: word.to_owned() }),
        }
    }

    fn size(&mut self, text: &str) -> Result<(), DriveError> {
        once("size", &mut self.size_bytes, checked_size(text)?)
    }

    /// The size of a drive that is no file.
    fn capacity(mut self, kind: &'static str, text: &str) -> Result<u64, DriveError> {
        if self.direct.is_some() {
            return Err(DriveError::FileOption { option: "direct" });
        }
        if self.read_only.is_some() {
            return Err(DriveError::FileOption { option: "readonly" });
        }
        if self.nested.is_some() {
            return Err(DriveError::FileOption { option: "nested" });
        }
        if !text.is_empty() {
            self.size(text)?;
        }
        self.size_bytes.ok_or(DriveError::NoSize { kind })
    }

    /// Splits `PATH:SIZE`. What follows the last colon is a size when it begins with a digit and has only digits and
    /// letters: `/dev/disk/by-path/pci-0000:03:00.0-nvme-1` is a path, `disk.img:10X` is a wrong size. With `size=`
    /// every colon belongs to the path.
    fn file(mut self, head: &str) -> Result<FileDrive, DriveError> {
        let mut path = head;
        if let Some((before, size)) = head.rsplit_once(':')
            && self.size_bytes.is_none()
            && looks_like_size(size)
        {
            self.size(size)?;
            path = before;
        }
        let path = checked_path(path)?.to_owned();
        let (size_bytes, direct) = (self.size_bytes, self.direct);
        let (read_only, nested) = (self.read_only.unwrap_or(false), self.nested.unwrap_or(false));
        Ok(FileDrive { path, size_bytes, direct, read_only, nested })
    }
}

/// Whether what follows a colon is meant as a size rather than as part of a name such as
/// `/dev/disk/by-path/pci-0000:00:1f.2-ata-1`: a digit first, then only what a person would write in a size.
fn looks_like_size(text: &str) -> bool {
    let fraction_of_unit = text.contains('.') && text.ends_with(|last: char| last.is_ascii_alphabetic());
    text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || (c == '.' && fraction_of_unit))
}

fn once<T>(option: &'static str, slot: &mut Option<T>, value: T) -> Result<(), DriveError> {
    if slot.replace(value).is_some() { Err(DriveError::Twice { option }) } else { Ok(()) }
}

pub(crate) fn switch(option: &'static str, value: Option<&str>) -> Result<bool, DriveError> {
    match value {
        None | Some("yes" | "on" | "true" | "1") => Ok(true),
        Some("no" | "off" | "false" | "0") => Ok(false),
        Some(other) => Err(DriveError::Switch { option, value: other.to_owned() }),
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
    let size = match parse_size(text) {
        Ok(0) => return Err(DriveError::ZeroSize),
        Ok(size) if size <= SIZE_BYTES_MAX => Ok(size),
        Ok(_) => Err(SizeError::TooLarge),
        Err(error) => Err(error),
    };
    size.map_err(|source| DriveError::Size { text: text.to_owned(), source })
}

/// File offsets are signed.
pub(crate) const SIZE_BYTES_MAX: u64 = i64::MAX.unsigned_abs();

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { size_bytes } => write!(f, "mem:{}", format_size(*size_bytes)),
            Self::Null { size_bytes } => write!(f, "null:{}", format_size(*size_bytes)),
            Self::File(file) => {
                f.write_str(&file.path.replace(',', ",,"))?;
                file.size_bytes.map_or(Ok(()), |size| write!(f, ",size={}", format_size(size)))?;
                match file.direct {
                    None => {}
                    Some(true) => f.write_str(",direct")?,
                    Some(false) => f.write_str(",direct=no")?,
                }
                f.write_str(if file.read_only { ",readonly" } else { "" })?;
                f.write_str(if file.nested { ",nested" } else { "" })
            }
        }
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
    fn drives_as_people_write_them() {
        assert_eq!("disk.img".parse(), Ok(Drive::file("disk.img")));
        assert_eq!("mem:1Gi".parse(), Ok(Drive::Memory { size_bytes: 1 << 30 }));
        assert_eq!("null:1Ti".parse(), Ok(Drive::Null { size_bytes: 1 << 40 }));
        let drive: Drive = "disk2.img:10Gi".parse().unwrap();
        assert_eq!((drive.path(), drive.size_bytes()), (Some("disk2.img"), Some(10 << 30)));
        let sizes = |text: &str| text.parse::<Drive>().unwrap().size_bytes();
        assert_eq!((sizes("a:10G"), sizes("a:1.5T")), (Some(10_000_000_000), Some(1_500_000_000_000)));
    }

    #[test]
    fn a_path_with_colons_stays_a_path() {
        for path in ["/dev/disk/by-path/pci-0000:03:00.0-nvme-1", "a:b", "a:", "/dev/disk/by-id/wwn-0x5:part"] {
            assert_eq!(path.parse(), Ok(Drive::file(path)), "{path}");
        }
        let drive: Drive = "a:10Gi,size=1Mi".parse().unwrap();
        assert_eq!((drive.path(), drive.size_bytes()), (Some("a:10Gi"), Some(1 << 20)));
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
        assert!(matches!("mem:8192Pi".parse::<Drive>(), Err(DriveError::Size { source: SizeError::TooLarge, .. })));
    }

    #[test]
    fn options_and_commas_read_back_as_written() {
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
