//! A connection over RDMA on its way from the control thread to a reactor, and the budget of what
//! queue pairs have for messages.
//!
//! That memory is registered with the device, and pinned: a host that connects many deep queues is
//! not to take all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ebof_rdma::controller::Connection;
use ebof_verbs::QueuePair;

use crate::ports::shared_receives::Share;

/// A connection that was accepted on the control thread.
#[derive(Debug)]
pub(crate) struct RdmaConnection {
    pub(crate) core: Connection,
    /// Messages to the host that may be under way, and
    pub(crate) sends: u32,
    /// commands that may be outstanding.
    pub(crate) entries: u32,
    /// The device can send responses that invalidate a key.
    pub(crate) sends_with_invalidate: bool,
    /// Its receives are not its own.
    pub(crate) shares_receives: bool,
    /// Its port has completions polled.
    pub(crate) is_busy_polled: bool,
    pub(crate) pair: Registered,
}

/// A queue pair, with its part of the budget. In this order: the memory is free when the queue pair
/// is gone.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) pair: QueuePair,
    _share: Option<Share>,
    _memory: Reserved,
}

/// Memory of queue pairs for messages, over all connections.
#[derive(Debug)]
pub(crate) struct MessageMemory {
    used_bytes: AtomicUsize,
    max_bytes: usize,
}

/// A part of it, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    all: Arc<MessageMemory>,
    bytes: usize,
}

impl MessageMemory {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { used_bytes: AtomicUsize::new(0), max_bytes }
    }

    /// All of it, in bytes.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// What connections have of it, in bytes.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Relaxed)
    }

    /// A part of it; `None` if there is not so much left.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reserved> {
        let more = |used: usize| used.checked_add(bytes).filter(|&used| used <= self.max_bytes);
        self.used_bytes.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Reserved { all: Arc::clone(self), bytes })
    }
}

impl Registered {
    /// `share`: where its receives are, if they are not its own.
    pub(crate) fn new(pair: QueuePair, share: Option<Share>, memory: Reserved) -> Self {
        Self { pair, _share: share, _memory: memory }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.all.used_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_all_queue_pairs_is_bounded() {
        let all = Arc::new(MessageMemory::new(100));
        let first = all.reserve(60).unwrap();
        assert!(all.reserve(41).is_none() && all.reserve(usize::MAX).is_none());
        let second = all.reserve(40).unwrap();
        drop(first);
        assert!(all.reserve(61).is_none() && all.reserve(60).is_some());
        drop(second);
        assert_eq!(all.used_bytes.load(Relaxed), 0);
    }
}
