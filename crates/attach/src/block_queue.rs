//! The interface between a block device front (FUSE, ublk) and block storage: submit and poll,
//! without threads or copies.
//!
//! A front owns a [`BlockQueue`] in each of its threads. The real one uses a queue pair of the
//! initiator (`nvme_queue`), over buffers in regions (`buffer`), and is counted (`counting`); tests
//! have one in memory. This file knows nothing of file systems, NVMe status codes or connections.

pub mod buffer;
pub(crate) mod counting;
pub(crate) mod nvme_queue;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebof_initiator::NamespaceHead;
use ebof_nvme::identify::ProtectionType;
use rustix::io::Errno;

use crate::block_queue::buffer::Buffer;

/// A namespace as a front sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its NSID.
    pub nsid: u32,
    /// Bytes in a logical block: a power of two, 512 and up.
    pub block_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// It is write-protected.
    pub read_only: bool,
    /// The largest Read or Write, bytes: a multiple of `block_bytes`.
    pub transfer_max_bytes: u32,
    /// The largest Write Zeroes, blocks, 1 to 65536; 0 if the controller does not have it.
    pub write_zeroes_max_blocks: u32,
    /// Write Zeroes may deallocate, and deallocated blocks read as zeros.
    pub zeroes_deallocate: bool,
    /// The controller has Dataset Management.
    pub deallocate: bool,
    /// The type of protection information, which the controller inserts and strips.
    pub protection: ProtectionType,
    /// Distinguishes it from earlier and later namespaces with its NSID, whichever path leads to
    /// it; `None` without a controller.
    pub head: Option<NamespaceHead>,
}

/// The namespace of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceRef {
    /// The NSID.
    pub nsid: u32,
    /// As in [`Namespace::head`].
    pub head: Option<NamespaceHead>,
    /// Bytes in a logical block.
    pub block_bytes: u32,
    /// As in [`Namespace::protection`].
    pub protection: ProtectionType,
}

impl Namespace {
    /// The reference for commands to it.
    #[must_use]
    pub const fn reference(&self) -> NamespaceRef {
        let Self { nsid, head, block_bytes, protection, .. } = *self;
        NamespaceRef { nsid, head, block_bytes, protection }
    }

    /// Size in bytes; saturates.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_bytes))
    }

    /// The first block and number of blocks of a byte range.
    ///
    /// # Errors
    /// `EINVAL` if it is not a multiple of blocks, `ENOSPC` if it ends outside of the namespace.
    pub fn range(&self, offset_bytes: u64, bytes: u64) -> Result<(u64, u64), Errno> {
        let size = u64::from(self.block_bytes);
        if !offset_bytes.is_multiple_of(size) || !bytes.is_multiple_of(size) {
            return Err(Errno::INVAL);
        }
        let slba = offset_bytes / size;
        let blocks = bytes / size;
        match slba.checked_add(blocks) {
            Some(end) if end <= self.blocks => Ok((slba, blocks)),
            _ => Err(Errno::NOSPC),
        }
    }
}

/// An operation on blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read the blocks into the buffer.
    Read,
    /// Write the buffer to the blocks; with `fua`, durably.
    Write {
        /// Force Unit Access.
        fua: bool,
    },
    /// Make all acknowledged writes durable. Always sent by fronts: whether the controller has a
    /// volatile cache is known to the [`BlockQueue`] only, and may change with a reconnect.
    Flush,
    /// Write zeros to the blocks.
    WriteZeroes {
        /// Deallocate them, too.
        deallocate: bool,
    },
    /// Deallocate the blocks; their contents are not needed any more.
    Deallocate,
}

impl Op {
    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write { .. } => "write",
            Self::Flush => "flush",
            Self::WriteZeroes { .. } => "write zeroes",
            Self::Deallocate => "deallocate",
        }
    }
}

/// A command.
#[derive(Debug)]
pub struct Io {
    /// The namespace.
    pub reference: NamespaceRef,
    /// The operation.
    pub op: Op,
    /// The first block.
    pub slba: u64,
    /// How many; 0 for [`Op::Flush`].
    pub blocks: u32,
    /// Data of a write, buffer of a read (filled completely), otherwise empty.
    pub data: Buffer,
    /// Returned with the result.
    pub user: u64,
}

/// The result of an [`Io`]. Each completes exactly once.
#[derive(Debug)]
pub struct Done {
    /// From [`Io::user`].
    pub user: u64,
    /// Success, or the error for the block layer.
    pub result: Result<(), Errno>,
    /// The buffer, filled after a successful read.
    pub data: Buffer,
}

/// A queue of block commands, owned by one thread.
pub trait BlockQueue {
    /// Queues a command. It may not be sent before [`BlockQueue::flush`].
    ///
    /// # Errors
    /// The queue is full: the command is given back, to be submitted after the next completion.
    fn submit(&mut self, io: Io) -> Result<(), Io>;

    /// Sends queued commands.
    fn flush(&mut self);

    /// Appends completed commands to `done` without blocking. Returns the longest time that the
    /// caller may sleep before the next call.
    fn poll(&mut self, done: &mut Vec<Done>) -> Option<Duration>;

    /// Readable when [`BlockQueue::poll`] has something to do. The descriptor never changes.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// The present namespaces, shared by the threads of a front.
#[derive(Debug, Default)]
pub struct Table {
    generation: AtomicU64,
    entries: Mutex<Arc<Vec<Entry>>>,
}

/// A namespace in the [`Table`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A unique number, 2 and up. A namespace that was removed and added again gets another one.
    pub id: u64,
    /// The name of its file and device.
    pub name: String,
    /// Its properties.
    pub namespace: Namespace,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self { generation: AtomicU64::new(2), entries: Mutex::default() }
    }

    /// Increases with every change.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The present namespaces.
    #[must_use]
    pub fn entries(&self) -> Arc<Vec<Entry>> {
        Arc::clone(&self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a namespace, replacing one with the same name. Returns its id.
    pub fn insert(&self, name: &str, namespace: Namespace) -> u64 {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // The lock makes the id unique: the generation changes only under it.
        let id = self.generation.load(Ordering::Acquire);
        let mut next: Vec<Entry> = entries.iter().filter(|entry| entry.name != name).cloned().collect();
        next.push(Entry { id, name: name.to_owned(), namespace });
        *entries = Arc::new(next);
        self.generation.store(id + 1, Ordering::Release);
        id
    }

    /// Changes the properties of a namespace, which keeps its id; `false` if it is not there or has
    /// another block size.
    pub fn update(&self, name: &str, namespace: &Namespace) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = entries.as_ref().clone();
        let entry = next.iter_mut().find(|entry| entry.name == name);
        match entry.filter(|entry| entry.namespace.block_bytes == namespace.block_bytes) {
            Some(entry) => entry.namespace = namespace.clone(),
            None => return false,
        }
        *entries = Arc::new(next);
        self.generation.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Removes a namespace; `false` if it was not there.
    pub fn remove(&self, name: &str) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let next: Vec<Entry> = entries.iter().filter(|entry| entry.name != name).cloned().collect();
        let found = next.len() != entries.len();
        *entries = Arc::new(next);
        self.generation.fetch_add(1, Ordering::AcqRel);
        found
    }
}

/// A thread's copy of a [`Table`], which takes the lock only after a change.
#[derive(Debug)]
pub struct View {
    table: Arc<Table>,
    generation: u64,
    entries: Arc<Vec<Entry>>,
}

impl View {
    /// A view of `table`.
    #[must_use]
    pub fn new(table: Arc<Table>) -> Self {
        let generation = table.generation();
        let entries = table.entries();
        Self { table, generation, entries }
    }

    /// The present namespaces.
    pub fn entries(&mut self) -> &[Entry] {
        let generation = self.table.generation();
        if generation != self.generation {
            self.generation = generation;
            self.entries = self.table.entries();
        }
        &self.entries
    }

    /// The present namespace with this id.
    pub fn by_id(&mut self, id: u64) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace() -> Namespace {
        Namespace {
            nsid: 1,
            block_bytes: 4096,
            blocks: 10,
            read_only: false,
            transfer_max_bytes: 1 << 20,
            write_zeroes_max_blocks: 65_536,
            zeroes_deallocate: true,
            protection: ProtectionType::None,
            deallocate: true,
            head: None,
        }
    }

    #[test]
    fn ranges_are_whole_blocks_inside() {
        let namespace = namespace();
        assert_eq!(namespace.range(4096, 8192), Ok((1, 2)));
        assert_eq!(namespace.range(40_960, 0), Ok((10, 0)));
        assert_eq!(namespace.range(512, 4096), Err(Errno::INVAL));
        assert_eq!(namespace.range(4096, 100), Err(Errno::INVAL));
        assert_eq!(namespace.range(36_864, 8192), Err(Errno::NOSPC));
        assert_eq!(namespace.range(u64::MAX - 4095, 8192), Err(Errno::NOSPC));
    }

    #[test]
    fn a_replaced_namespace_is_a_different_one() {
        let table = Arc::new(Table::new());
        let mut view = View::new(Arc::clone(&table));
        let first = table.insert("nvme0n1", namespace());
        assert!(view.by_id(first).is_some());
        assert!(table.remove("nvme0n1"));
        assert!(!table.remove("nvme0n1"));
        assert!(view.by_id(first).is_none());
        let second = table.insert("nvme0n1", namespace());
        assert_ne!(first, second);
        assert!(first >= 2 && view.by_id(first).is_none() && view.by_id(second).is_some());
    }
}
