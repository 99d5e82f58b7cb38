//! A drive's medium: thin namespaces cut from one backing device, and the journal that keeps them.
//!
//! Owns the order of writes on the backing device, the drive's thread (allocation, journal,
//! background jobs), and the devices through which namespaces are read and written. The formats on
//! the medium are in `ebof-drive`. It knows no command, no queue and no socket.
//!
//! ```
//! use std::sync::{Arc, mpsc};
//!
//! use ebof_backend::Memory;
//! use ebof_medium::{BlockFormat, VolumeId, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backing = Arc::new(Memory::new(ebof_medium::medium_bytes(16 << 20)?, 512, false));
//! let opened = ebof_medium::open(backing, Options { create: Some(16 << 20), ..Options::default() })?;
//! let (answer, answers) = mpsc::channel();
//! opened.medium.run(Box::new(move |store| {
//!     let made = store.create(VolumeId(1), 1 << 18, 1 << 11, BlockFormat::plain(12));
//!     let _gone = answer.send(made.and_then(|_device| store.commit(&[b"a namespace"])));
//! }));
//! answers.recv()??;
//! let namespace = opened.medium.device(VolumeId(1)).ok_or("just made")?; // a backend::Device
//! # drop(namespace);
//! opened.medium.stop(); // a checkpoint, marked clean
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it | and what is not |
//! |---|---|---|---|
//! | 9 | `medium/lib.rs` | what the crate offers | |
//! | 8 | `open` | finding or making a drive; its threads, or the `Stepper` in their place; the handle, `Medium` | |
//! | 7 | `event_loop` | what the drive's thread serves: queues, deallocation, the owner's work; flushes with a mark | what is done without it: `thin` |
//! | 6 | `store` | `Store`: batches of requests, the order of writes, checkpoints, replay, what goes into flux and out of it; background jobs, purging, retries | what is written where: `journal` |
//! | 5 | `extents` | which extents are free; draining and zeroing them | which of them a namespace has: `thin` |
//! | 5 | `tags` | checksums and metadata of blocks, their recovery; blocks in flux | when tags are settled: `medium/store/settle.rs` |
//! | 4 | `thin` | a namespace as a device: translation, locks, bad blocks, checked reads and writes; what threads share | |
//! | 3 | `blank` | checks that a device holds nothing; overwriting | |
//! | 3 | `journal` | the journal, its checkpoints and marks, and what recovery finds of them | encoding: `drive/layout/frame.rs` |
//! | 3 | `keys` | the keys of encrypted namespaces, and the cipher | |
//! | 2 | `options` | how a drive is opened, and what its owner is told | |
//! | 1 | `disk` | synchronous I/O on the backing device, and its faults | |
//! | 1 | `error` | why something is refused; damage, where it is and how it is known | |
//! | 1 | `pages` | pages of tags in memory | their I/O: `tags` |
//!
//! # Threads
//!
//! - The drive's thread (`EventLoop::serve`), asleep without work, executes what the drive's owner
//!   asks for, writes the journal, allocates extents, and does background work in steps. Reads and
//!   writes of allocated blocks bypass it: [`Thin`] translates them and they go to the caller's
//!   `Io` (ADR 0018), unless blocks have metadata (ADR 0021), or checksums that are not in memory
//!   or have to be in the journal first (ADR 0064).
//! - A second thread does flushes that require a mark in the journal (ADR 0030), and a third one
//!   zeroes deallocated extents (ADR 0025).
//! - A [`Stepper`] does all of it in place of threads, when its caller says so (ADR 0038).
#![forbid(unsafe_code)]

mod blank;
mod disk;
mod error;
mod event_loop;
mod extents;
mod journal;
mod keys;
mod open;
mod options;
mod pages;
mod store;
mod tags;
mod thin;

use std::sync::Arc;

pub use disk::fault::BackingFault;
use ebof_backend::{Device, IoFactory};
use ebof_clock::Clock;
pub use ebof_drive::{BlockFormat, VolumeId};
pub use error::damage::{Content, Damage, Part, Proof};
pub use error::{Error, OpenError};
pub use open::medium::{Capacity, Medium};
pub use open::stepper::Stepper;
pub use open::{Opened, open, open_stepped};
pub use options::drive_key::DriveKey;
pub use options::{Notice, Notify, Options};
pub use store::Store;
pub use store::jobs::{Job, Progress};
pub use store::purge::Purge;
pub use thin::{Run, Thin};

/// Whether a device holds a drive, whole or damaged. Any other use of the device would destroy it.
///
/// # Errors
/// It cannot be read.
pub fn has_drive(device: &Arc<dyn Device>, io: &IoFactory) -> Result<bool, ebof_backend::Error> {
    blank::has_drive(&mut disk::Disk::new(Arc::clone(device), io, &Clock::system())?)
}

/// What remains on a device of a drive whose superblocks are gone, if anything. The drive can be
/// repaired as long as nothing is written over it.
///
/// # Errors
/// It cannot be read.
pub fn remains(device: &Arc<dyn Device>, io: &IoFactory) -> Result<Option<&'static str>, ebof_backend::Error> {
    blank::remains(&mut disk::Disk::new(Arc::clone(device), io, &Clock::system())?)
}

/// Bytes that a backing device must have for a drive of `capacity_bytes` (rounded up to extents):
/// what [`Options::create`] then makes of it.
///
/// # Errors
/// `Layout`: no drive has that capacity.
pub fn medium_bytes(capacity_bytes: u64) -> Result<u64, OpenError> {
    match ebof_drive::layout::Layout::new(capacity_bytes, [0; 16]) {
        Ok(layout) => Ok(layout.medium_bytes()),
        Err(source) => Err(OpenError::Layout { device: "a drive".to_owned(), source }),
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
