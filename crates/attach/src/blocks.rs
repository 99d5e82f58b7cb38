//! The seam between a block device front (FUSE, ublk) and what stores the blocks: submit and poll,
//! no threads, no copies.
//!
//! The front owns a [`Blocks`] in each of its threads; the real one drives a queue pair of the
//! initiator, tests bring one in memory. It deliberately knows nothing of file systems, of NVMe
//! status codes or of connections.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebof_initiator::Binding;
use ebof_nvme::identify::ProtectionType;
use rustix::io::Errno;

/// A namespace as the fronts see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its number, 1 and up.
    pub nsid: u32,
    /// Bytes in a logical block: a power of two, 512 and up.
    pub block_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Nothing can be written to it.
    pub read_only: bool,
    /// The largest Read or Write, bytes: a multiple of `block_bytes`.
    pub transfer_max_bytes: u32,
    /// The largest Write Zeroes, blocks, 1 to 65536; 0 where the controller has no such command.
    pub write_zeroes_max_blocks: u32,
    /// Write Zeroes may deallocate, and what it deallocated reads as zeros.
    pub zeroes_deallocate: bool,
    /// Dataset Management is there.
    pub deallocate: bool,
    /// The protection information that is left to the controller.
    pub protection: ProtectionType,
    /// Tells it from others that have its number before or after it; absent where there is no
    /// controller.
    pub binding: Option<Binding>,
}

/// What a command says of the namespace that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceRef {
    /// The namespace's number.
    pub nsid: u32,
    /// As in [`Namespace::binding`].
    pub binding: Option<Binding>,
    /// Bytes in a logical block.
    pub block_bytes: u32,
    /// The protection information of its blocks, which is left to the controller.
    pub protection: ProtectionType,
}

impl Namespace {
    /// What commands for it say.
    #[must_use]
    pub const fn reference(&self) -> NamespaceRef {
        let Self { nsid, binding, block_bytes, protection, .. } = *self;
        NamespaceRef { nsid, binding, block_bytes, protection }
    }

    /// Size in bytes; saturates.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_bytes))
    }

    /// The blocks of a byte range, or `EINVAL` where it is not made of whole blocks, `ENOSPC` where
    /// it ends outside.
    ///
    /// # Errors
    /// As said.
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

/// What to do with blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer from the blocks.
    Read,
    /// Store the buffer, through to the medium with `fua`.
    Write {
        /// Force Unit Access.
        fua: bool,
    },
    /// What was acknowledged before reaches the medium. Asked for always: whether there is a cache
    /// is known to [`Blocks`] alone, and may change with every connection.
    Flush,
    /// The blocks read as zeros from now on.
    WriteZeroes {
        /// Give the space back as well.
        deallocate: bool,
    },
    /// Nobody needs what the blocks hold.
    Deallocate,
}

/// One command on its way.
#[derive(Debug)]
pub struct Io {
    /// The namespace.
    pub reference: NamespaceRef,
    /// What to do.
    pub op: Op,
    /// The first block.
    pub slba: u64,
    /// How many; 0 for [`Op::Flush`].
    pub blocks: u32,
    /// Data of a write, room for a read (all of it is used), empty otherwise.
    pub data: Vec<u8>,
    /// Comes back with the result.
    pub user: u64,
}

/// What became of an [`Io`]. Each comes back exactly once.
#[derive(Debug)]
pub struct Done {
    /// From [`Io::user`].
    pub user: u64,
    /// The error that the block layer gets.
    pub result: Result<(), Errno>,
    /// The buffer: filled after a successful read.
    pub data: Vec<u8>,
}

/// Something that stores blocks, owned by one thread.
pub trait Blocks {
    /// Takes a command, or gives it back when as many are under way as fit. Nothing need be sent
    /// before [`Blocks::flush`].
    ///
    /// # Errors
    /// The command itself: submit it again after the next completion.
    fn submit(&mut self, io: Io) -> Result<(), Io>;

    /// Sends what was taken.
    fn flush(&mut self);

    /// Appends what has completed to `done`; never blocks. Returns how long the caller may sleep at
    /// most.
    fn poll(&mut self, done: &mut Vec<Done>) -> Option<Duration>;

    /// Becomes readable when [`Blocks::poll`] has something to do. It stays the same for the life
    /// of the value.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// The namespaces that are there now, shared by the threads of a front: read on every change only.
#[derive(Debug, Default)]
pub struct Table {
    generation: AtomicU64,
    entries: Mutex<Arc<Vec<Entry>>>,
}

/// A namespace in the [`Table`], with a number that is never used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Names this appearance of the namespace, 2 and up: one that went and came back has another.
    pub id: u64,
    /// The name of its file and device.
    pub name: String,
    /// What it is like.
    pub namespace: Namespace,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self { generation: AtomicU64::new(2), entries: Mutex::default() }
    }

    /// Moves with every change.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The namespaces now.
    #[must_use]
    pub fn entries(&self) -> Arc<Vec<Entry>> {
        Arc::clone(&self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a namespace, in place of one with the same name, and says the number it got.
    pub fn insert(&self, name: &str, namespace: Namespace) -> u64 {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: the number is unique because nobody else moves the generation meanwhile.
        let id = self.generation.load(Ordering::Acquire);
        let mut next: Vec<Entry> = entries.iter().filter(|entry| entry.name != name).cloned().collect();
        next.push(Entry { id, name: name.to_owned(), namespace });
        *entries = Arc::new(next);
        self.generation.store(id + 1, Ordering::Release);
        id
    }

    /// Changes what a namespace is like and keeps its number; `false` where there is none, or its
    /// blocks have another size.
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

    /// Takes a namespace out; says whether it was there.
    pub fn remove(&self, name: &str) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let next: Vec<Entry> = entries.iter().filter(|entry| entry.name != name).cloned().collect();
        let found = next.len() != entries.len();
        *entries = Arc::new(next);
        self.generation.fetch_add(1, Ordering::AcqRel);
        found
    }
}

/// What a thread of a front keeps of a [`Table`]: looked at without a lock until something changes.
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

    /// The namespaces, as of now.
    pub fn entries(&mut self) -> &[Entry] {
        let generation = self.table.generation();
        if generation != self.generation {
            self.generation = generation;
            self.entries = self.table.entries();
        }
        &self.entries
    }

    /// The namespace with this number, as of now.
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
            binding: None,
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
    fn a_namespace_that_comes_back_is_another_one() {
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
