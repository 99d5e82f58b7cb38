//! A drive's medium as its own thread has it: everything here is done when it returns.

use std::ops::Range;
use std::sync::Arc;

use ebof_backend::{Completion, Device, Operation};

use crate::{Error, Instance, OpenError, Opened, Options, Thin};

/// A drive's medium, in the hands of the drive's thread.
#[derive(Debug)]
pub struct Store {}

/// Background work in steps, between which requests are served.
pub trait Job: Send {
    /// Does a part: about 1 MiB of I/O, or a few milliseconds.
    fn step(&mut self, store: &mut Store) -> Progress;
}

/// What becomes of a [`Job`] after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do.
    Again,
    /// There is more to do, but not before so many milliseconds have passed.
    Later(u64),
    /// It is over; it is dropped.
    Done,
}

impl Store {
    /// Opens the drive on `backing`, or makes it, and starts its thread.
    ///
    /// # Errors
    /// Says what is wrong with the medium and what to do.
    pub fn open(backing: Arc<dyn Device>, options: Options) -> Result<Opened, OpenError> {
        let _ = (backing, options);
        todo!("follows")
    }

    /// Makes changes durable: all of them or, after an error, none. They come back from [`Store::open`] until a snapshot
    /// has taken their place. At most 1 MiB together.
    ///
    /// # Errors
    /// `TooLarge`, or `Device`: nothing of it has happened, and nothing has to be restarted when the cause is gone.
    pub fn commit(&mut self, changes: &[&[u8]]) -> Result<(), Error> {
        let _ = changes;
        todo!("follows")
    }

    /// Makes a namespace of `size_bytes`, which may allocate `quota_bytes` (rounded up to extents). Durable when it
    /// returns. Its blocks have `logical_block_bytes`, a multiple of the backing device's.
    ///
    /// # Errors
    /// `Exists`, `TooBig`, `TooMany` or `Device`.
    pub fn create(
        &mut self,
        instance: Instance,
        size_bytes: u64,
        quota_bytes: u64,
        logical_block_bytes: u32,
    ) -> Result<Arc<dyn Device>, Error> {
        let _ = (instance, size_bytes, quota_bytes, logical_block_bytes);
        todo!("follows")
    }

    /// Removes a namespace, durably. Requests that are under way end; later ones find it gone. Its extents are given back
    /// in the background and zeroed before they are used again.
    ///
    /// # Errors
    /// `Unknown` or `Device`.
    pub fn remove(&mut self, instance: Instance) -> Result<(), Error> {
        let _ = instance;
        todo!("follows")
    }

    /// Takes everything out of a namespace, durably: it reads as zeros, and has no bad blocks.
    ///
    /// # Errors
    /// `Unknown` or `Device`.
    pub fn clear(&mut self, instance: Instance) -> Result<(), Error> {
        let _ = instance;
        todo!("follows")
    }

    /// Marks blocks bad, durably: reading them fails as [`Class::MediumRead`](ebof_backend::Class::MediumRead) until they
    /// are written, zeroed or deallocated.
    ///
    /// # Errors
    /// `Unknown`, `TooMany` or `Device` (out of range).
    pub fn mark_bad(&mut self, instance: Instance, blocks: Range<u64>) -> Result<(), Error> {
        let _ = (instance, blocks);
        todo!("follows")
    }

    /// Runs one operation on a namespace, and returns when it is over. Up to a few MiB: the drive waits meanwhile.
    pub fn execute(&mut self, instance: Instance, operation: Operation) -> Completion {
        let _ = (instance, operation);
        todo!("follows")
    }

    /// The namespace with this name.
    #[must_use]
    pub fn thin(&self, instance: Instance) -> Option<Arc<Thin>> {
        let _ = instance;
        todo!("follows")
    }

    /// Starts background work; the works take turns, a step at a time.
    pub fn start(&mut self, job: Box<dyn Job>) {
        drop(job);
        todo!("follows")
    }

    /// Who is asked for the owner's state when a checkpoint is written. It must contain every change committed so far, and
    /// none that is not. At most 4 MiB; asked on the drive's thread.
    pub fn set_snapshot(&mut self, snapshot: Box<dyn Fn() -> Vec<u8>>) {
        drop(snapshot);
        todo!("follows")
    }

    /// Reads a firmware slot (1 to 7) from `offset`, as much as the buffer takes.
    ///
    /// # Errors
    /// `Device`, also when it is out of range.
    pub fn read_slot(&mut self, slot: u8, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let _ = (slot, offset, into);
        todo!("follows")
    }

    /// Writes a firmware slot (1 to 7; 1 MiB each) from its beginning, durably. Not atomic: a slot's contents have a
    /// checksum of their own.
    ///
    /// # Errors
    /// `Device`, also when it is out of range.
    pub fn write_slot(&mut self, slot: u8, bytes: &[u8]) -> Result<(), Error> {
        let _ = (slot, bytes);
        todo!("follows")
    }
}
