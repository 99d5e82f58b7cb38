//! The options with which a medium is opened, and the notices that it sends its owner.

pub(crate) mod drive_key;

use std::fmt;
use std::sync::Arc;

use ebof_backend::{Class, IoFactory};
use ebof_clock::Clock;

use crate::{BackingFault, DriveKey, VolumeId};

/// How a medium is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Makes a new drive of so many bytes where the backing device holds none. `Some(0)`: as large
    /// as the backing device allows. A drive that is there already is opened as it is.
    pub create: Option<u64>,
    /// The backing device is known to read as zeros (a file that was just created): a new drive
    /// need not zero extents before they are used for the first time.
    pub zeroed: bool,
    /// Makes a new drive even if the backing device holds other data, which are lost. A drive that
    /// is there, whole or damaged, is never overwritten.
    pub overwrite: bool,
    /// Identifies a new drive in all its structures: random bytes, or its UUID.
    pub id: [u8; 16],
    /// Wraps the keys of encrypted namespaces on the medium; without it they are stored unwrapped.
    /// If a drive's keys are not wrapped yet, they are from now on.
    pub key: Option<DriveKey>,
    /// Makes the `Io` of each of the drive's threads.
    pub io: IoFactory,
    /// Time, and random bytes for keys. Must be the system's if the drive has threads.
    pub clock: Clock,
    /// Bytes of memory for tags of blocks (checksums and metadata), for all namespaces together; 0
    /// for 16 MiB. At least 4 MiB are used where there are namespaces with tags.
    pub tag_cache_bytes: usize,
    /// Opens a damaged drive read-only, to read what is still known to be right, instead of
    /// refusing it.
    pub read_only_if_damaged: bool,
    /// Called with notices about the medium.
    pub notify: Option<Notify>,
}

/// See [`Options::notify`]. Called on the drive's thread: it must not wait for that thread.
#[derive(Clone)]
pub struct Notify(pub Arc<dyn Fn(Notice) + Send + Sync>);

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notify")
    }
}

/// What a medium notifies its owner of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A write was refused: the namespace has as many extents as it may have.
    QuotaReached(VolumeId),
    /// A write was refused: the drive has no free extent.
    Full(VolumeId),
    /// There are free extents again, after [`Notice::Full`].
    Room,
    /// The journal could not be written: changes are refused until it can.
    JournalFailed(Class),
    /// The journal is written again.
    JournalRecovered,
    /// The backing device has a new fault. Each request is still tried.
    Fails(BackingFault),
    /// The fault is over.
    Works(BackingFault),
    /// A block was being written when the drive ended without a stop, and its data do not match its
    /// checksum: it was never flushed, and is taken as it is. At most 16 are reported in a second.
    Mended {
        /// The namespace.
        volume: VolumeId,
        /// Its number (LBA).
        block: u64,
    },
    /// The checksum of a block does not match its data: it cannot be read before it is written
    /// again. At most 16 are reported in a second.
    Corrupt {
        /// The namespace.
        volume: VolumeId,
        /// Its number (LBA).
        block: u64,
    },
}
