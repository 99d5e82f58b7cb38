//! Why a medium cannot be opened, and why the drive's thread refuses something; what of the drive's
//! own data is damaged.

pub(crate) mod damage;

use ebof_backend::Class;
use thiserror::Error;

use crate::{Damage, VolumeId};

/// Why the drive's thread did not do what it was asked for.
#[derive(Debug, Error)]
pub enum Error {
    /// The backing device failed.
    #[error(transparent)]
    Device(#[from] ebof_backend::Error),
    /// No such namespace.
    #[error("namespace {} is not on this medium", .0.0)]
    Unknown(VolumeId),
    /// The name is taken.
    #[error("namespace {} is on this medium already", .0.0)]
    Exists(VolumeId),
    /// Longer than the journal takes.
    #[error("changes of {bytes} bytes at once: at most {bytes_max} go into the journal together")]
    TooLarge {
        /// How long they are.
        bytes: usize,
        /// The most.
        bytes_max: usize,
    },
    /// More than a checkpoint takes.
    #[error("the drive has {bytes} bytes to remember, and room for {bytes_max}")]
    NoRoom {
        /// How much it is.
        bytes: usize,
        /// The most.
        bytes_max: usize,
    },
    /// Blocks that no namespace on this medium can have.
    #[error("blocks of {bytes} bytes: a namespace on this medium has blocks of 512 or 4096, and at least {bytes_min}")]
    BlockSize {
        /// The size asked for.
        bytes: u32,
        /// What the backing device has.
        bytes_min: u32,
    },
    /// Larger than the map of a namespace can be.
    #[error("a namespace of {size_bytes} bytes: at most {bytes_max} are possible on this medium")]
    TooBig {
        /// The size asked for.
        size_bytes: u64,
        /// The most.
        bytes_max: u64,
    },
    /// As many namespaces, or ranges of blocks marked bad, as a medium keeps.
    #[error("the medium keeps at most {max} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The system gives no random bytes.
    #[error("no key can be made: the system gives no random bytes")]
    NoRandomness,
    /// The drive is damaged, and is not written.
    #[error("the drive is damaged and open for reading only")]
    ReadOnly,
    /// The drive's thread has ended.
    #[error("the drive's thread has ended")]
    Stopped,
}

impl Error {
    /// What this means to the one who has to answer for it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Error::Device(error) => error.class(),
            Error::Unknown(_) | Error::Stopped => Class::Gone,
            Error::TooMany { .. } | Error::TooBig { .. } | Error::NoRoom { .. } => Class::OutOfSpace,
            Error::NoRandomness => Class::Internal,
            Error::ReadOnly => Class::ReadOnly,
            Error::Exists(_) | Error::TooLarge { .. } | Error::BlockSize { .. } => Class::Invalid,
        }
    }
}

/// Why a medium could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no drive, and none is to be made.
    #[error("{device}: there is no drive on it; give its size to make one (`size=100G`)")]
    NoDrive {
        /// The backing device.
        device: String,
    },
    /// The drive that is there has another size.
    #[error(
        "{device}: the drive on it has {actual_bytes} bytes, not {asked_bytes}; leave the size out to use it as it is"
    )]
    SizeDiffers {
        /// The backing device.
        device: String,
        /// What it has.
        actual_bytes: u64,
        /// What was asked for.
        asked_bytes: u64,
    },
    /// It cannot hold a drive of that size.
    #[error("{device}: {source}")]
    Layout {
        /// The backing device.
        device: String,
        /// Why not.
        source: ebof_drive::layout::LayoutError,
    },
    /// Something else is on it.
    #[error(
        "{device}: it holds something else (byte {at} is not zero), and no drive is made over that; name another file, or add \
         `overwrite` to the drive if what it holds may be lost"
    )]
    HoldsData {
        /// The backing device.
        device: String,
        /// Where its first byte is that is not zero.
        at: u64,
    },
    /// What is there contradicts itself.
    #[error("{device}: the drive on it is damaged: {what}")]
    Damaged {
        /// The backing device.
        device: String,
        /// What was found.
        what: String,
    },
    /// A part of what it says of itself is lost.
    #[error(
        "{device}: the drive on it is damaged: {damage}. Nothing was written to it. Copy it before anything else is tried; \
         `read_only_if_damaged` serves what can still be known, without writing (`read-only-if-damaged` in --drive); \
         see \"A damaged drive\" in `ebof man ebof-operations`"
    )]
    Lost {
        /// The backing device.
        device: String,
        /// What was found, and where.
        damage: Damage,
    },
    /// Its keys are wrapped, and there is nothing to unwrap them with.
    #[error("{device}: the drive on it is encrypted with a key that is not on it; name its file (`key-file=PATH`)")]
    KeyMissing {
        /// The backing device.
        device: String,
    },
    /// Its keys are wrapped with another key.
    #[error("{device}: the key that was given is not the one with which the drive on it is encrypted")]
    KeyWrong {
        /// The backing device.
        device: String,
    },
    /// The backing device is read-only.
    #[error("{device}: a drive needs a backing device that may be written")]
    ReadOnly {
        /// The backing device.
        device: String,
    },
    /// The backing device failed.
    #[error("{device}: {source}")]
    Device {
        /// The backing device.
        device: String,
        /// What it said.
        source: ebof_backend::Error,
    },
    /// No thread or no I/O for the drive.
    #[error("no thread for the drive: {0}")]
    Thread(std::io::Error),
}
