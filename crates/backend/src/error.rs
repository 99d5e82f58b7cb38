//! Errors of devices, with messages that say what to do, and a class for programs.
//!
//! [`enum@Error`] is for requests, [`OpenError`] for opening. The caller maps [`Class`] to a status
//! for its host. How messages call a device, and sizes that a drive can have, are in the folder.

pub(crate) mod name;
pub(crate) mod size;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use thiserror::Error;

use name::Name;
use size::round_up;

/// The kind of an [`Operation`](crate::Operation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `Operation::Read`
    Read,
    /// `Operation::Write`
    Write,
    /// `Operation::Flush`
    Flush,
    /// `Operation::WriteZeroes`
    WriteZeroes,
    /// `Operation::Deallocate`
    Deallocate,
}

impl Action {
    /// Whether it changes what the device holds.
    #[must_use]
    pub fn modifies(self) -> bool {
        matches!(self, Action::Write | Action::WriteZeroes | Action::Deallocate)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Read => "read",
            Action::Write => "write",
            Action::Flush => "flush",
            Action::WriteZeroes => "write zeroes",
            Action::Deallocate => "deallocate",
        })
    }
}

/// The class of an [`enum@Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// No space where the device stores its bytes.
    OutOfSpace,
    /// The device must not be written.
    ReadOnly,
    /// Beyond the end of the device.
    OutOfRange,
    /// The bytes could not be read.
    MediumRead,
    /// The bytes could not be stored, or were acknowledged and then lost.
    MediumWrite,
    /// A temporary condition: trying again may succeed.
    Busy,
    /// Cancelled by [`Io::cancel`](crate::Io::cancel).
    Aborted,
    /// The medium cannot do this.
    Unsupported,
    /// The medium is gone: unplugged, or its connection is down.
    Gone,
    /// The caller broke the rules of this crate (alignment, buffer size).
    Invalid,
    /// The kernel does no I/O at all: the thread's `Io` cannot be used any more.
    Internal,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfSpace => "out of space",
            Self::ReadOnly => "read-only",
            Self::OutOfRange => "out of range",
            Self::MediumRead => "cannot be read",
            Self::MediumWrite => "cannot be written",
            Self::Busy => "busy",
            Self::Aborted => "aborted",
            Self::Unsupported => "unsupported",
            Self::Gone => "gone",
            Self::Invalid => "invalid",
            Self::Internal => "no I/O",
        })
    }
}

/// A failed operation, or an [`Io`](crate::Io) that cannot work.
#[derive(Debug, Error)]
pub enum Error {
    /// See [`Class::OutOfRange`].
    #[error("{action} of {len} bytes at offset {offset} goes beyond the end of the device, which has {capacity} bytes")]
    OutOfRange {
        /// What was tried.
        action: Action,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Size of the device.
        capacity: u64,
    },
    /// Not in whole blocks of the medium.
    #[error("{action} of {len} bytes at offset {offset}: the medium takes multiples of {block_bytes} bytes only")]
    Misaligned {
        /// What was tried.
        action: Action,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The medium's unit.
        block_bytes: u32,
    },
    /// The transfer is longer than the buffer it came with.
    #[error("{action} of {len} bytes with a buffer of {capacity} bytes")]
    BufferTooSmall {
        /// What was tried.
        action: Action,
        /// Bytes to transfer.
        len: usize,
        /// Bytes that fit.
        capacity: usize,
    },
    /// The device was opened read-only.
    #[error("{action} refused: the device was opened read-only")]
    ReadOnly {
        /// What was tried.
        action: Action,
    },
    /// Cancelled before it was done; a write may have been done in part.
    #[error("{action} cancelled")]
    Aborted {
        /// What was cancelled.
        action: Action,
    },
    /// The operating system reported an error.
    #[error("{action} of {len} bytes at offset {offset} of {device}: {source}{}", advice(source))]
    Device {
        /// The device's name, for people: of a file or block device its path.
        device: Arc<str>,
        /// What was tried.
        action: Action,
        /// First byte that was not transferred.
        offset: u64,
        /// Bytes that were left to transfer.
        len: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The file ends before the device does.
    #[error(
        "{action} at offset {offset} of {device}: the file has become shorter than the {capacity} bytes it had when it was \
         opened; do not truncate a file that is in use"
    )]
    Truncated {
        /// The device's name, for people.
        device: Arc<str>,
        /// What was tried.
        action: Action,
        /// Where the end was met.
        offset: u64,
        /// Size when it was opened.
        capacity: u64,
    },
    /// An earlier flush failed, so data that was acknowledged may be lost. The kernel reports this
    /// once and drops the data, so a later flush would succeed although they are lost.
    #[error(
        "{action} refused: an earlier flush of {device} failed, so data written before it may be lost; check the medium, \
         then open the device again"
    )]
    CacheLost {
        /// The device's name, for people.
        device: Arc<str>,
        /// What was tried.
        action: Action,
    },
    /// A device of a kind that was registered reported an error.
    #[error("{action} of {len} bytes at offset {offset} of {device}: {source}")]
    Failed {
        /// The device's name, for people.
        device: Arc<str>,
        /// What was tried.
        action: Action,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// What it means.
        class: Class,
        /// Why, and what to do.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A device that lies on another one refuses it for a reason of its own.
    #[error("{action} of {len} bytes at offset {offset}: {reason}")]
    Refused {
        /// What was tried.
        action: Action,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// What it means.
        class: Class,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// What is stored is not what was written: a checksum does not fit.
    #[error(
        "{action}: block {block} of {of} is damaged: its checksum does not fit what is there; write it to use it again, and \
         check the medium"
    )]
    Corrupt {
        /// What was tried.
        action: Action,
        /// Number of the first such block.
        block: u64,
        /// Of what.
        of: String,
    },
    /// The kernel's I/O interface failed as a whole.
    #[error("cannot {what}: {source}{hint}")]
    Engine {
        /// What was tried.
        what: &'static str,
        /// What to do about it, or nothing.
        hint: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// The class of this error.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Error::OutOfRange { .. } => Class::OutOfRange,
            Error::Misaligned { .. } | Error::BufferTooSmall { .. } => Class::Invalid,
            Error::ReadOnly { .. } => Class::ReadOnly,
            Error::Aborted { .. } => Class::Aborted,
            Error::Device { action, source, .. } => classify(*action, source),
            Error::Truncated { action, .. } => medium(*action),
            Error::CacheLost { .. } => Class::MediumWrite,
            Error::Failed { class, .. } | Error::Refused { class, .. } => *class,
            Error::Corrupt { .. } => Class::MediumRead,
            Error::Engine { .. } => Class::Internal,
        }
    }
}

fn medium(action: Action) -> Class {
    if action == Action::Read { Class::MediumRead } else { Class::MediumWrite }
}

fn classify(action: Action, source: &io::Error) -> Class {
    match Errno::from_io_error(source) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Class::OutOfSpace,
        Some(Errno::ROFS | Errno::PERM | Errno::ACCESS) => Class::ReadOnly,
        Some(Errno::AGAIN | Errno::INTR | Errno::BUSY | Errno::NOMEM | Errno::NOBUFS) => Class::Busy,
        Some(Errno::CANCELED) => Class::Aborted,
        Some(Errno::OPNOTSUPP | Errno::NOSYS) => Class::Unsupported,
        Some(Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM | Errno::SHUTDOWN | Errno::NOLINK) => Class::Gone,
        Some(Errno::INVAL) => Class::Invalid,
        _ => medium(action),
    }
}

/// Advice about an error of the operating system, to be appended to its text.
fn advice(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::NOSPC) => "; free space on the file system that holds it",
        Some(Errno::ACCESS | Errno::PERM) => {
            "; give this user the right to it (owner, group or mode of the file and its directories), or run this as one who has it"
        }
        Some(Errno::DQUOT) => "; raise the quota of its owner or free space",
        Some(Errno::FBIG) => "; the file system or `ulimit -f` allows no file this large",
        Some(Errno::ROFS) => "; its file system has become read-only: see the kernel log",
        Some(Errno::IO | Errno::NODATA | Errno::REMOTEIO) => "; the medium failed: see the kernel log",
        Some(Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM) => "; the device is gone: check that it is plugged in",
        _ => "",
    }
}

/// Why a drive could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// No such file, and no size to make one.
    #[error(
        "{} does not exist: check the path, or add a size to create it (for example {}:10G)",
        path.display(), path.display()
    )]
    Missing {
        /// As it was given.
        path: PathBuf,
    },
    /// No such device node; a file of that name would be a mistake.
    #[error("{} does not exist: no such device (`lsblk` lists what there is)", path.display())]
    MissingDevice {
        /// As it was given.
        path: PathBuf,
    },
    /// A file is to be created in a directory that does not exist.
    #[error("{} cannot be created: the directory {} does not exist; create it first", path.display(), directory.display())]
    MissingDirectory {
        /// As it was given.
        path: PathBuf,
        /// What is missing.
        directory: PathBuf,
    },
    /// A new file would be read-only, and could never be written.
    #[error("{} does not exist, and a new file cannot be read-only: drop `readonly` or check the path", path.display())]
    CreateReadOnly {
        /// As it was given.
        path: PathBuf,
    },
    /// It may be read but not written.
    #[error(
        "{} cannot be opened for writing ({source}): offer it as it is with `{},readonly`, or make it writable",
        path.display(), path.display()
    )]
    NotWritable {
        /// As it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory.
    #[error("{} is a directory: a drive is a regular file or a block device", path.display())]
    Directory {
        /// As it was given.
        path: PathBuf,
    },
    /// A character device, socket or pipe.
    #[error("{} is a {kind}: a drive is a regular file or a block device", path.display())]
    NotStorage {
        /// As it was given.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Nothing in it.
    #[error(
        "{} is empty: give it a size (for example `truncate -s '>10G' {}`), or move it away and have it made (for example {}:10G)",
        path.display(), path.display(), path.display()
    )]
    Empty {
        /// As it was given.
        path: PathBuf,
    },
    /// Not a whole number of blocks.
    #[error(
        "{name} has {size_bytes} bytes, which is not a multiple of the block size {block_bytes}: {}",
        whole_blocks_advice(name, *size_bytes, *block_bytes)
    )]
    NotWholeBlocks {
        /// As it was given.
        name: Name,
        /// Its size.
        size_bytes: u64,
        /// The block size asked for.
        block_bytes: u32,
    },
    /// More than a table of memory is made for.
    #[error(
        "mem: {size_bytes} bytes are more than {}, the most a drive in memory can have",
        crate::format_size(*bytes_max)
    )]
    MemoryTooLarge {
        /// The size asked for.
        size_bytes: u64,
        /// The most.
        bytes_max: u64,
    },
    /// A block device of size 0: a card reader without a card, an unbound loop device.
    #[error("{name} has no medium: its size is 0")]
    NoMedium {
        /// As it was given.
        name: Name,
    },
    /// The size asked for is not the size it has.
    #[error(
        "{name} has {actual_bytes} bytes ({actual}), but {asked_bytes} bytes ({asked}) were asked for{}: write the size as \
         {actual} or leave it out to use it as it is{}",
        units(*actual_bytes, *asked_bytes), size_advice(name, *actual_bytes, *asked_bytes),
        actual = crate::format_size(*actual_bytes), asked = crate::format_size(*asked_bytes)
    )]
    SizeDiffers {
        /// As it was given.
        name: Name,
        /// What it has.
        actual_bytes: u64,
        /// What was asked for.
        asked_bytes: u64,
    },
    /// It has become smaller than what is offered of it.
    #[error(
        "{name} has {actual_bytes} bytes ({}), fewer than the {offered_bytes} ({}) that hosts use: it does not shrink while \
         it is in use; make it as large again{}, or take the namespace away first",
        crate::format_size(*actual_bytes), crate::format_size(*offered_bytes), truncate_advice(name, *offered_bytes)
    )]
    Shrunk {
        /// As it was found.
        name: Name,
        /// What it has.
        actual_bytes: u64,
        /// What hosts were told.
        offered_bytes: u64,
    },
    /// Another process holds a lock on it.
    #[error("{} is in use{holder}: two writers would destroy it; stop the other one first", path.display())]
    Locked {
        /// As it was given.
        path: PathBuf,
        /// Who it is, as far as can be told.
        holder: Holder,
    },
    /// A block device that is mounted, or part of something else.
    #[error(
        "{} is in use: it is mounted, used as swap, or part of a RAID, LVM or multipath device (see `lsblk {}`); \
         release it first",
        path.display(), path.display()
    )]
    Claimed {
        /// As it was given.
        path: PathBuf,
    },
    /// A file behind a loop device.
    #[error(
        "{} is in use: it is the backing file of {}; detach it first (`losetup -d {}`)",
        path.display(), loop_device.display(), loop_device.display()
    )]
    LoopBacking {
        /// As it was given.
        path: PathBuf,
        /// Which one.
        loop_device: PathBuf,
    },
    /// No direct I/O there.
    #[error("{}: its file system does not do direct I/O ({source}); leave out `direct`", path.display())]
    CannotBypassCache {
        /// As it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Blocks smaller than the medium's.
    #[error(
        "{name} has blocks of {medium_bytes} bytes and cannot be offered with blocks of {asked_bytes}: \
         offer it in blocks of {medium_bytes} bytes (serve: `--block-size {medium_bytes}`; configuration: `block_size = {medium_bytes}`; bench: `block={medium_bytes}`){}",
        if *uncached_file { ", or leave out `direct`" } else { "" }
    )]
    BlockTooSmall {
        /// As it was given.
        name: Name,
        /// What the medium has.
        medium_bytes: u32,
        /// What was asked for.
        asked_bytes: u32,
        /// It is a file, and only direct I/O is in the way.
        uncached_file: bool,
    },
    /// A block device whose blocks no host can use here.
    #[error("{name} has blocks of {medium_bytes} bytes: only 512 and 4096 are supported")]
    BlockUnsupported {
        /// As it was given.
        name: Name,
        /// What the medium has.
        medium_bytes: u64,
    },
    /// Nobody has registered that kind.
    #[error("{spec}: nothing here opens backings of that kind")]
    UnknownKind {
        /// As it was given.
        spec: String,
    },
    /// A kind of backing that was registered refuses it for a reason of its own.
    #[error("{name}: {source}")]
    Refused {
        /// As it was given.
        name: Name,
        /// It is in use by others.
        is_in_use: bool,
        /// Why, and what to do.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operating system refused something else.
    #[error("{}: cannot {what}: {source}{}", path.display(), advice(source))]
    System {
        /// As it was given.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    /// Whether it is in use by others: opening it may succeed later.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        match self {
            Self::Locked { .. } | Self::Claimed { .. } | Self::LoopBacking { .. } => true,
            Self::Refused { is_in_use, .. } => *is_in_use,
            _ => false,
        }
    }
}

/// Advice for a size that is not whole blocks: a larger one, or smaller blocks if these fit.
fn whole_blocks_advice(name: &Name, size_bytes: u64, block_bytes: u32) -> String {
    let enough = size_bytes.checked_next_multiple_of(u64::from(block_bytes)).unwrap_or(size_bytes);
    let larger = match name.truncate_command(enough) {
        Some(command) => format!("make it larger ({command})"),
        None => format!("{enough} bytes would be"),
    };
    let smaller = if block_bytes > 512 && size_bytes.is_multiple_of(512) {
        ", or offer it in blocks of 512 bytes (serve: `--block-size 512`; configuration: `block_size = 512`; bench: `block=512`)"
    } else {
        ""
    };
    larger + smaller
}

/// How it gets the size that was asked for, in whole blocks. What is larger is not cut.
fn size_advice(name: &Name, actual_bytes: u64, asked_bytes: u64) -> String {
    if actual_bytes > asked_bytes {
        return "; what is behind the size that was asked for may be data".to_owned();
    }
    format!(", or make it larger first{}", truncate_advice(name, round_up(asked_bytes)))
}

/// The command that makes a file larger, in parentheses; nothing for what has no path.
fn truncate_advice(name: &Name, bytes: u64) -> String {
    name.truncate_command(bytes).map_or_else(String::new, |command| format!(" ({command})"))
}

/// A hint if one size is the binary and the other the decimal reading of the same text.
fn units(actual_bytes: u64, asked_bytes: u64) -> &'static str {
    let mut powers = (1..=6).map(|power| (1000_u128.pow(power), 1024_u128.pow(power)));
    let same = |(decimal, binary)| u128::from(actual_bytes) * decimal == u128::from(asked_bytes) * binary;
    if powers.any(same) { " (K, M, G are powers of 1000 here, Ki, Mi, Gi powers of 1024)" } else { "" }
}

/// The holder of a lock, as far as the system tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Process id, if it is visible from here.
    pub process_id: Option<u32>,
    /// The process' name.
    pub name: Option<Box<str>>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.process_id, &self.name) {
            (Some(id), Some(name)) => write!(f, " by process {id} ({name})"),
            (Some(id), None) => write!(f, " by process {id}"),
            (None, _) => f.write_str(" by another process (`lsof` may tell which)"),
        }
    }
}
