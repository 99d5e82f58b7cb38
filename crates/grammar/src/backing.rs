//! The specification of a drive's backing: a file, a block device, memory, nothing, or what else a
//! program has a scheme for.
//!
//! ```text
//! disk.img                      a file or block device, as it is
//! disk2.img:10G                 the same with its size: created (sparse) if it is missing
//! disk.img,size=10G,direct      with options
//! mem:1G  null:1T               memory; reads zeros and forgets writes
//! SCHEME:NAME,readonly          something else, where the program knows the scheme
//! ```
//! Sizes are those of [`parse_size`]. A comma that is part of a path is written twice.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

use crate::units::{SIZE_FORM, SizeError, format_size, parse_size};

/// A drive to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The source of the bytes.
    pub source: Source,
    /// Refuse to change it.
    pub read_only: bool,
    /// It may contain a drive that hosts manage, which a host keeps in its namespace.
    pub nested: bool,
    /// The block size in which to offer it, 512 or 4096; `None`: 512, or the medium's own where
    /// that is larger.
    pub block_bytes: Option<BlockBytes>,
}

/// A block size that can be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockBytes {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

impl BlockBytes {
    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            BlockBytes::B512 => 512,
            BlockBytes::B4096 => 4096,
        }
    }
}

/// The source of a drive's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In memory; lost with the process.
    Memory {
        /// Size, not 0.
        size_bytes: u64,
    },
    /// Nowhere: reads give zeros, writes are forgotten.
    Null {
        /// Size, not 0.
        size_bytes: u64,
    },
    /// In a regular file or on a block device.
    Path {
        /// The path.
        path: PathBuf,
        /// The size it has to have, not 0; a file that is missing is created with it.
        size_bytes: Option<u64>,
        /// Bypass the page cache; `None`: for block devices only.
        direct: Option<bool>,
    },
    /// Somewhere else. Only texts that are parsed [with its scheme](Spec::parse) have it.
    Named {
        /// What is in front of the first colon.
        scheme: String,
        /// What is behind it, which only that scheme's owner understands.
        name: String,
    },
}

impl Spec {
    /// Parses a text in which, besides memory and the null device, sources have one of `schemes`.
    /// With others a colon belongs to a path.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str, schemes: &[&str]) -> Result<Self, BackingError> {
        let mut words = split_commas(text).into_iter();
        let head = words.next().unwrap_or_default();
        let mut options = Options::default();
        words.try_for_each(|word| options.take(&word))?;
        let (kind, rest) = head.split_once(':').unwrap_or((&head, ""));
        let source = match kind {
            "mem" | "memory" => Source::Memory { size_bytes: options.capacity("mem", rest)? },
            "null" => Source::Null { size_bytes: options.capacity("null", rest)? },
            scheme if head.contains(':') && schemes.contains(&scheme) => options.named(scheme, rest)?,
            _ => options.path(&head)?,
        };
        let read_only = options.read_only.unwrap_or(false);
        let nested = options.nested.unwrap_or(false);
        Ok(Self { source, read_only, nested, block_bytes: options.block_bytes })
    }

    /// The file or block device at `path`, with the defaults.
    #[must_use]
    pub fn path(path: impl Into<PathBuf>) -> Spec {
        let source = Source::Path { path: path.into(), size_bytes: None, direct: None };
        Spec { source, read_only: false, nested: false, block_bytes: None }
    }

    /// Memory of `size_bytes`, with the defaults.
    #[must_use]
    pub fn memory(size_bytes: u64) -> Spec {
        Spec { source: Source::Memory { size_bytes }, read_only: false, nested: false, block_bytes: None }
    }

    /// A null device of `size_bytes`, with the defaults.
    #[must_use]
    pub fn null(size_bytes: u64) -> Spec {
        Spec { source: Source::Null { size_bytes }, read_only: false, nested: false, block_bytes: None }
    }
}

/// The error of an invalid drive.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BackingError {
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
        /// The text in place of the size.
        text: String,
        /// The error.
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
        /// The text.
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
    /// No block size that can be offered.
    #[error("`block` is `{value}`")]
    Block {
        /// The text.
        value: String,
    },
    /// Neither yes nor no.
    #[error("`{option}` is `{value}`")]
    Switch {
        /// The option.
        option: &'static str,
        /// The text.
        value: String,
    },
}

impl BackingError {
    /// The correction.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Empty | Self::Nul => DRIVE_FORM.into(),
            Self::NoSize { kind } => format!("write \"{kind}:1G\", or \"./{kind}\" for a file of that name"),
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
            Self::Block { .. } => "accepted: 512 or 4096".into(),
            Self::Switch { .. } => "accepted: yes or no".into(),
        }
    }
}

/// The syntax of a [`Spec`], for messages.
pub const DRIVE_FORM: &str = "accepted: PATH, PATH:SIZE (made when missing), mem:SIZE or null:SIZE";

impl FromStr for Spec {
    type Err = BackingError;

    /// Without other schemes.
    fn from_str(text: &str) -> Result<Self, BackingError> {
        Self::parse(text, &[])
    }
}

/// Splits at single commas; a double one is a comma of the text.
#[must_use]
pub fn split_commas(text: &str) -> Vec<String> {
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
    block_bytes: Option<BlockBytes>,
}

impl Options {
    fn take(&mut self, word: &str) -> Result<(), BackingError> {
        let (option, value) = word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        match option {
            "size" => self.size(value.unwrap_or_default()),
            "direct" => once("direct", &mut self.direct, switch("direct", value)?),
            "readonly" | "ro" => once("readonly", &mut self.read_only, switch("readonly", value)?),
            "nested" => once("nested", &mut self.nested, switch("nested", value)?),
            "block" => once("block", &mut self.block_bytes, block(value.unwrap_or_default())?),
            _ => Err(BackingError::UnknownOption { option: word.to_owned() }),
        }
    }

    fn size(&mut self, text: &str) -> Result<(), BackingError> {
        once("size", &mut self.size_bytes, checked_size(text)?)
    }

    /// The size of a drive that is no file.
    fn capacity(&mut self, kind: &'static str, text: &str) -> Result<u64, BackingError> {
        self.refuse_file_options()?;
        if !text.is_empty() {
            self.size(text)?;
        }
        self.size_bytes.ok_or(BackingError::NoSize { kind })
    }

    /// What has another scheme has a size of its own.
    fn named(&self, scheme: &str, name: &str) -> Result<Source, BackingError> {
        self.refuse_file_options()?;
        if self.size_bytes.is_some() {
            return Err(BackingError::FileOption { option: "size" });
        }
        Ok(Source::Named { scheme: scheme.to_owned(), name: checked_path(name)?.to_owned() })
    }

    fn refuse_file_options(&self) -> Result<(), BackingError> {
        if self.direct.is_some() {
            return Err(BackingError::FileOption { option: "direct" });
        }
        if self.nested.is_some() {
            return Err(BackingError::FileOption { option: "nested" });
        }
        Ok(())
    }

    /// Splits `PATH:SIZE`. What follows the last colon is a size when it begins with a digit and
    /// has only digits and letters: `/dev/disk/by-path/pci-0000:03:00.0-nvme-1` is a path,
    /// `disk.img:10X` is a wrong size. With `size=` every colon belongs to the path.
    fn path(&mut self, head: &str) -> Result<Source, BackingError> {
        let mut path = head;
        if let Some((before, size)) = head.rsplit_once(':')
            && self.size_bytes.is_none()
            && looks_like_size(size)
        {
            self.size(size)?;
            path = before;
        }
        let path = PathBuf::from(checked_path(path)?);
        Ok(Source::Path { path, size_bytes: self.size_bytes, direct: self.direct })
    }
}

/// Whether what follows a colon is meant as a size rather than as part of a name such as
/// `/dev/disk/by-path/pci-0000:00:1f.2-ata-1`: a digit first, then only what a person would write
/// in a size.
fn looks_like_size(text: &str) -> bool {
    let fraction_of_unit = text.contains('.') && text.ends_with(|last: char| last.is_ascii_alphabetic());
    text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || (c == '.' && fraction_of_unit))
}

fn once<T>(option: &'static str, slot: &mut Option<T>, value: T) -> Result<(), BackingError> {
    if slot.replace(value).is_some() { Err(BackingError::Twice { option }) } else { Ok(()) }
}

fn block(text: &str) -> Result<BlockBytes, BackingError> {
    match text {
        "512" => Ok(BlockBytes::B512),
        "4096" | "4K" | "4k" => Ok(BlockBytes::B4096),
        other => Err(BackingError::Block { value: other.to_owned() }),
    }
}

/// Reads the value of an option that is on or off: on where there is only its name.
///
/// # Errors
/// [`BackingError::Switch`].
pub fn switch(option: &'static str, value: Option<&str>) -> Result<bool, BackingError> {
    match value {
        None | Some("yes" | "on" | "true" | "1") => Ok(true),
        Some("no" | "off" | "false" | "0") => Ok(false),
        Some(other) => Err(BackingError::Switch { option, value: other.to_owned() }),
    }
}

/// A path that the system can have.
///
/// # Errors
/// [`BackingError::Empty`] or [`BackingError::Nul`].
pub fn checked_path(path: &str) -> Result<&str, BackingError> {
    match path {
        "" => Err(BackingError::Empty),
        path if path.contains('\0') => Err(BackingError::Nul),
        path => Ok(path),
    }
}

/// Reads the size of something that is stored: not 0, and at most [`SIZE_BYTES_MAX`].
///
/// # Errors
/// [`BackingError::ZeroSize`] or [`BackingError::Size`].
pub fn checked_size(text: &str) -> Result<u64, BackingError> {
    let size = match parse_size(text) {
        Ok(0) => return Err(BackingError::ZeroSize),
        Ok(size) if size <= SIZE_BYTES_MAX => Ok(size),
        Ok(_) => Err(SizeError::TooLarge),
        Err(error) => Err(error),
    };
    size.map_err(|source| BackingError::Size { text: text.to_owned(), source })
}

/// The largest size: file offsets are signed.
pub const SIZE_BYTES_MAX: u64 = i64::MAX.unsigned_abs();

impl fmt::Display for Spec {
    /// Text that parses to the same drive (a path that is not UTF-8 excepted).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Memory { size_bytes } => write!(f, "mem:{}", format_size(*size_bytes))?,
            Source::Null { size_bytes } => write!(f, "null:{}", format_size(*size_bytes))?,
            Source::Named { scheme, name } => write!(f, "{scheme}:{}", name.replace(',', ",,"))?,
            Source::Path { path, size_bytes, direct } => {
                write_path(f, path)?;
                if let Some(size) = size_bytes {
                    write!(f, ",size={}", format_size(*size))?;
                }
                if let Some(direct) = direct {
                    f.write_str(if *direct { ",direct" } else { ",direct=no" })?;
                }
            }
        }
        if self.read_only {
            f.write_str(",readonly")?;
        }
        if self.nested {
            f.write_str(",nested")?;
        }
        match self.block_bytes {
            Some(block) => write!(f, ",block={}", block.bytes()),
            None => Ok(()),
        }
    }
}

fn write_path(f: &mut fmt::Formatter<'_>, path: &Path) -> fmt::Result {
    let text = path.to_string_lossy();
    if matches!(text.split(':').next(), Some("mem" | "memory" | "null")) {
        f.write_str("./")?;
    }
    f.write_str(&text.replace(',', ",,"))
}

#[cfg(test)]
mod tests;
