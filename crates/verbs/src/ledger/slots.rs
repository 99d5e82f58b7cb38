//! Receive slots of simulated queue pairs: memory for one message each, owned by whoever may access
//! it. The slots that several queue pairs share are here, too.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A slot that is posted, or holds a message.
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) memory: Box<[u8]>,
}

/// Somebody who waits for a slot.
pub(crate) trait Waiting: Send + Sync {
    /// There are slots again, perhaps.
    fn retry(&self);
}

/// Slots for messages that several queue pairs share (a shared receive queue for each device that
/// they are opened on). Clones are the same slots.
///
/// A slot is named by the queue pair that has received a message in it, until that posts it again;
/// a queue pair that ends posts its slots itself. With soft-RoCE, a slot is lost if a queue pair
/// ends while it receives a message of several packets.
#[derive(Clone)]
pub struct SharedReceives {
    count: u32,
    bytes: u32,
    id: u64,
    pool: Arc<Mutex<Pool>>,
}

/// The slots of simulated queue pairs.
#[derive(Default)]
struct Pool {
    filled: bool,
    slots: VecDeque<Slot>,
    waiting: Vec<Weak<dyn Waiting>>,
}

impl SharedReceives {
    /// `count` slots of `bytes` each, for each device. They are allocated with the first queue pair
    /// on it.
    #[must_use]
    pub fn new(count: u32, bytes: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { count, bytes, id: NEXT.fetch_add(1, Ordering::Relaxed), pool: Arc::default() }
    }

    /// Number of slots, for each device.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Size of each, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Which slots they are: unique in the process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Takes a slot for a message; `None`: `waiting` is notified when there are some.
    pub(crate) fn take(&self, waiting: impl FnOnce() -> Weak<dyn Waiting>) -> Option<Slot> {
        let mut pool = self.pool();
        let slot = pool.slots.pop_front();
        if slot.is_none() {
            let waiting = waiting();
            if !pool.waiting.iter().any(|other| other.ptr_eq(&waiting)) {
                pool.waiting.push(waiting);
            }
        }
        slot
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pool().slots.is_empty()
    }

    /// Allocates them, unless that was done.
    pub(crate) fn fill(&self) {
        let mut pool = self.pool();
        if !std::mem::replace(&mut pool.filled, true) {
            pool.slots = slots(self.count, self.bytes);
        }
    }

    /// Puts slots back. Called without locks.
    pub(crate) fn post(&self, slots: impl IntoIterator<Item = Slot>) {
        let waiting = {
            let mut pool = self.pool();
            pool.slots.extend(slots);
            std::mem::take(&mut pool.waiting)
        };
        waiting.iter().filter_map(Weak::upgrade).for_each(|waiting| waiting.retry());
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedReceives {
    /// Without the messages, which belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, bytes, id, .. } = self;
        f.debug_struct("SharedReceives")
            .field("id", id)
            .field("count", count)
            .field("bytes", bytes)
            .finish_non_exhaustive()
    }
}

/// `count` slots of `bytes` each.
pub(crate) fn slots(count: u32, bytes: u32) -> VecDeque<Slot> {
    (0..count).map(|number| Slot { number, memory: vec![0; bytes as usize].into() }).collect()
}
