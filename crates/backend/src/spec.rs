//! How a drive is written on the command line and in the configuration: parsing, printing, and what is wrong with it.
//!
//! Purely about text: whether the path exists is found out by [`open`](crate::open()).
//!
//! ```text
//! disk.img                      a file or block device, as it is
//! disk2.img:10G                 the same with its size: created (sparse) if it is missing
//! disk.img,size=10G,direct      with options
//! mem:1G  null:1T               memory; reads zeros and forgets writes
//! ```
//! Sizes mean what they mean in nvme-cli: `10G` is 10 * 1000^3 bytes, `10Gi` 10 * 1024^3. A comma that is part of a path is
//! written twice.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// A drive to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Where the bytes are.
    pub source: Source,
    /// Refuse to change it.
    pub read_only: bool,
    /// The block size in which to offer it, 512 or 4096; `None`: 512, or the medium's own where that is larger.
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

/// Where the bytes of a drive are.
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
        /// Which.
        path: PathBuf,
        /// The size it has to have, not 0; a file that is missing is created with it.
        size_bytes: Option<u64>,
        /// Bypass the page cache; `None`: for block devices only.
        direct: Option<bool>,
    },
}

impl Spec {
    /// The file or block device at `path`, with the defaults.
    #[must_use]
    pub fn path(path: impl Into<PathBuf>) -> Spec {
        let source = Source::Path { path: path.into(), size_bytes: None, direct: None };
        Spec { source, read_only: false, block_bytes: None }
    }

    /// Memory of `size_bytes`, with the defaults.
    #[must_use]
    pub fn memory(size_bytes: u64) -> Spec {
        Spec { source: Source::Memory { size_bytes }, read_only: false, block_bytes: None }
    }

    /// A null device of `size_bytes`, with the defaults.
    #[must_use]
    pub fn null(size_bytes: u64) -> Spec {
        Spec { source: Source::Null { size_bytes }, read_only: false, block_bytes: None }
    }
}

/// What a device is called in a message: `mem`, `null` or its path.
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

/// Why a text is no drive.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("drive `{argument}`: {problem}")]
pub struct SpecError {
    /// All of the text.
    pub argument: String,
    /// What is wrong with it.
    pub problem: SpecProblem,
}

const OPTIONS: &str = "size=SIZE, direct[=yes|no], readonly[=yes|no], block=512|4096";
const SIZES: &str = "bytes, or a number with K, M, G, T or P (powers of 1000) or Ki, Mi, Gi, Ti or Pi (powers of 1024)";

/// What can be wrong with a drive's text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpecProblem {
    /// Nothing there.
    #[error("a path, `mem:SIZE` or `null:SIZE` is expected")]
    Empty,
    /// `mem` or `null` alone.
    #[error("`{kind}` needs a size, for example `{kind}:1G`; for a file of that name write `./{kind}`")]
    NoSize {
        /// Which of them.
        kind: &'static str,
    },
    /// Not a number, or an unknown suffix.
    #[error("`{text}` is not a size: {SIZES}")]
    BadSize {
        /// The text.
        text: String,
    },
    /// 0 bytes.
    #[error("a drive of size 0 is of no use: give {SIZES}")]
    ZeroSize,
    /// Beyond 2^63-1 bytes.
    #[error("`{text}` is too large: a drive has at most 8191Pi")]
    HugeSize {
        /// The text.
        text: String,
    },
    /// Behind the colon and as an option.
    #[error("the size is given twice")]
    TwoSizes,
    /// The same option again.
    #[error("the option `{option}` is given twice")]
    Twice {
        /// Which.
        option: String,
    },
    /// An option that does not exist.
    #[error("unknown option `{option}`; accepted: {OPTIONS} (a comma in a path is written twice)")]
    UnknownOption {
        /// What was written.
        option: String,
    },
    /// A value that the option does not take.
    #[error("`{option}={value}`: accepted: {accepted}")]
    BadValue {
        /// Which option.
        option: &'static str,
        /// What was written.
        value: String,
        /// What may be written.
        accepted: &'static str,
    },
    /// An option without its value.
    #[error("the option `{option}` needs a value: {OPTIONS}")]
    NoValue {
        /// Which option.
        option: &'static str,
    },
    /// `direct` where there is no page cache to bypass.
    #[error("`direct` is for files and block devices; `{kind}` has no page cache to bypass")]
    DirectWithoutFile {
        /// `mem` or `null`.
        kind: &'static str,
    },
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(argument: &str) -> Result<Spec, SpecError> {
        parse(argument).map_err(|problem| SpecError { argument: argument.to_owned(), problem })
    }
}

#[derive(Default)]
struct Options {
    size_bytes: Option<u64>,
    direct: Option<bool>,
    read_only: Option<bool>,
    block_bytes: Option<BlockBytes>,
}

fn parse(argument: &str) -> Result<Spec, SpecProblem> {
    let mut parts = split_commas(argument).into_iter();
    let head = parts.next().filter(|head| !head.is_empty()).ok_or(SpecProblem::Empty)?;
    let mut options = Options::default();
    for part in parts {
        options.take(&part)?;
    }
    let source = match head.as_str() {
        "mem" | "memory" => Source::Memory { size_bytes: options.size_for("mem")? },
        "null" => Source::Null { size_bytes: options.size_for("null")? },
        _ => match head.split_once(':') {
            Some(("mem" | "memory", size)) => {
                options.set_size(size)?;
                Source::Memory { size_bytes: options.size_for("mem")? }
            }
            Some(("null", size)) => {
                options.set_size(size)?;
                Source::Null { size_bytes: options.size_for("null")? }
            }
            _ => parse_path(&head, &mut options)?,
        },
    };
    Ok(Spec { source, read_only: options.read_only.unwrap_or(false), block_bytes: options.block_bytes })
}

fn parse_path(head: &str, options: &mut Options) -> Result<Source, SpecProblem> {
    let path = match head.rsplit_once(':') {
        // With `size=` given, a colon is part of the name: the way out for a name that ends like a size.
        Some((path, size)) if options.size_bytes.is_none() && looks_like_size(size) => {
            options.set_size(size)?;
            path
        }
        _ => head,
    };
    if path.is_empty() {
        return Err(SpecProblem::Empty);
    }
    Ok(Source::Path { path: PathBuf::from(path), size_bytes: options.size_bytes, direct: options.direct })
}

/// Whether what follows a colon is meant as a size rather than as part of a name such as
/// `/dev/disk/by-path/pci-0000:00:1f.2-ata-1`: a digit first, then only what a person would write in a size.
fn looks_like_size(text: &str) -> bool {
    let fraction_of_suffix = text.contains('.') && text.ends_with(|last: char| last.is_ascii_alphabetic());
    text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || (c == '.' && fraction_of_suffix))
}

impl Options {
    fn take(&mut self, part: &str) -> Result<(), SpecProblem> {
        let (option, value) = match part.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (part, None),
        };
        match option {
            "size" => self.set_size(value.ok_or(SpecProblem::NoValue { option: "size" })?),
            "direct" => set_once(&mut self.direct, option, parse_switch("direct", value)?),
            "readonly" | "ro" => set_once(&mut self.read_only, option, parse_switch("readonly", value)?),
            "block" => {
                let block = match value.ok_or(SpecProblem::NoValue { option: "block" })? {
                    "512" => BlockBytes::B512,
                    "4096" | "4K" | "4k" => BlockBytes::B4096,
                    other => {
                        let value = other.to_owned();
                        return Err(SpecProblem::BadValue { option: "block", value, accepted: "512, 4096" });
                    }
                };
                set_once(&mut self.block_bytes, option, block)
            }
            _ => Err(SpecProblem::UnknownOption { option: option.to_owned() }),
        }
    }

    fn set_size(&mut self, text: &str) -> Result<(), SpecProblem> {
        if self.size_bytes.replace(parse_size(text)?).is_some() {
            return Err(SpecProblem::TwoSizes);
        }
        Ok(())
    }

    fn size_for(&self, kind: &'static str) -> Result<u64, SpecProblem> {
        if self.direct.is_some() {
            return Err(SpecProblem::DirectWithoutFile { kind });
        }
        self.size_bytes.ok_or(SpecProblem::NoSize { kind })
    }
}

fn set_once<T>(slot: &mut Option<T>, option: &str, value: T) -> Result<(), SpecProblem> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(SpecProblem::Twice { option: option.to_owned() }),
    }
}

fn parse_switch(option: &'static str, value: Option<&str>) -> Result<bool, SpecProblem> {
    match value {
        None | Some("yes" | "on" | "true" | "1") => Ok(true),
        Some("no" | "off" | "false" | "0") => Ok(false),
        Some(other) => Err(SpecProblem::BadValue { option, value: other.to_owned(), accepted: "yes, no" }),
    }
}

/// Splits at single commas; a double one is a comma that belongs to the text.
fn split_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ',' && chars.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// The letters of sizes, and the power of 1000 or 1024.
const LETTERS: [(char, u32); 5] = [('K', 1), ('M', 2), ('G', 3), ('T', 4), ('P', 5)];
/// Digits behind the point of a size.
const FRACTION_DIGITS_MAX: usize = 9;

/// A size in bytes: a number, alone or with a unit: `10G`, `10g` and `10GB` are 10 * 1000^3, `10Gi` and `10GiB` 10 * 1024^3;
/// with a unit it may have a fraction, as in `1.5T`.
///
/// # Errors
/// `BadSize`, `ZeroSize` or `HugeSize`.
pub fn parse_size(text: &str) -> Result<u64, SpecProblem> {
    let bad = || SpecProblem::BadSize { text: text.to_owned() };
    let huge = || SpecProblem::HugeSize { text: text.to_owned() };
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = factor(unit).ok_or_else(bad)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    let has_point = number.contains('.');
    if whole.is_empty() || !digits(whole) || !digits(fraction) || (has_point && (fraction.is_empty() || factor == 1)) {
        return Err(bad());
    }
    if fraction.len() > FRACTION_DIGITS_MAX {
        return Err(bad());
    }
    let whole: u128 = whole.parse().map_err(|_too_many_digits| huge())?;
    let scaled = whole.checked_mul(factor).ok_or_else(huge)?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).expect("at most nine digits"));
    let part = fraction.parse::<u128>().map_or(0, |part| part * factor / scale);
    let size =
        u64::try_from(scaled.saturating_add(part)).ok().filter(|size| i64::try_from(*size).is_ok()).ok_or_else(huge)?;
    if size == 0 { Err(SpecProblem::ZeroSize) } else { Ok(size) }
}

/// How many bytes a unit is, in letters of either case; 1 for none and for `B`.
fn factor(unit: &str) -> Option<u128> {
    let unit = unit.to_ascii_uppercase();
    let unit = unit.strip_suffix('B').unwrap_or(&unit);
    let (letter, base) = match unit.strip_suffix('I') {
        Some(letter) => (letter, 1024_u128),
        None => (unit, 1000),
    };
    let mut letters = letter.chars();
    match (letters.next(), letters.next()) {
        (None, _) => (base == 1000).then_some(1),
        (Some(letter), None) => {
            let (_, power) = LETTERS.iter().find(|(known, _)| *known == letter)?;
            Some(base.pow(*power))
        }
        _ => None,
    }
}

/// The shortest text that [`parse_size`] reads back as `bytes`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let with = |base: u64, suffix: &str| {
        let largest = LETTERS.iter().rev().find_map(|(letter, power)| {
            let factor = base.pow(*power);
            (bytes != 0 && bytes.is_multiple_of(factor)).then(|| format!("{}{letter}{suffix}", bytes / factor))
        });
        largest.unwrap_or_else(|| bytes.to_string())
    };
    let (decimal, binary) = (with(1000, ""), with(1024, "i"));
    if decimal.len() < binary.len() { decimal } else { binary }
}

impl fmt::Display for Spec {
    /// Text that parses to the same drive (a path that is not UTF-8 excepted).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Memory { size_bytes } => write!(f, "mem:{}", format_size(*size_bytes))?,
            Source::Null { size_bytes } => write!(f, "null:{}", format_size(*size_bytes))?,
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
