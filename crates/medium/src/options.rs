//! What a medium is opened with, and what it tells its owner by itself.

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
    /// Whether a backing device that is made into a drive is known to read as zeros (a file that
    /// was just created): then nothing has to be zeroed before it is used for the first time.
    pub zeroed: bool,
    /// A new drive is made although the backing device holds something else, which is lost. A drive
    /// that is there, or was damaged, is never overwritten.
    pub overwrite: bool,
    /// What makes a new drive's records its own: random bytes, or its UUID.
    pub id: [u8; 16],
    /// What the keys of encrypted namespaces are wrapped with on the medium; without it they are
    /// there as they are. A drive whose keys are not wrapped yet has them wrapped from now on.
    pub key: Option<DriveKey>,
    /// What the drive's threads do their I/O with.
    pub io: IoFactory,
    /// The drive's time, and where its keys come from. The system's where it has threads.
    pub clock: Clock,
    /// Bytes of memory for tags of blocks (checksums and metadata), for all namespaces together; 0
    /// for 16 MiB. At least 4 MiB are used where there are namespaces with tags.
    pub tag_cache_bytes: usize,
    /// Where a part of what the drive says of itself is lost: opens it for reading what can still
    /// be known, instead of not at all. Nothing is written then.
    pub read_only_if_damaged: bool,
    /// Is told what happens on the medium.
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

/// What the owner of a medium should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A write was refused: the namespace has all that it may have.
    QuotaReached(VolumeId),
    /// A write was refused: the drive has no free extent.
    Full(VolumeId),
    /// There are free extents again, after [`Notice::Full`].
    Room,
    /// The journal could not be written: changes are refused until it can.
    JournalFailed(Class),
    /// The journal is written again.
    JournalRecovered,
    /// The backing device fails at this, for the first time since it worked: requests are refused
    /// as long as they fail.
    Fails(BackingFault),
    /// It works again, as far as can be seen.
    Works(BackingFault),
    /// A block is not what was written to it: it cannot be read before it is written again. At most
    /// 16 are told in a second.
    Corrupt {
        /// Whose it is.
        volume: VolumeId,
        /// Its number (LBA).
        block: u64,
    },
}
