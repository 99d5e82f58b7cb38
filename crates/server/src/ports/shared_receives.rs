//! Receives that queue pairs of a port share: one set for each reactor and device, made with the
//! first queue pair that uses it and gone with the last one.
//!
//! Owns who shares with whom, and the sets' part of the memory for capsules. The receives
//! themselves are the adapter's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ebof_verbs::{DeviceAttributes, Protocol, SharedReceives};

use crate::ports::rdma_connection::{MessageMemory, Reserved};

/// The sets of a port.
#[derive(Debug, Default)]
pub(crate) struct ReceiveSets {
    /// By reactor and name of the device.
    sets: Mutex<HashMap<(usize, String), Weak<ReceiveSet>>>,
}

/// Receives of one reactor's queue pairs on one device. In this order: the memory is free when the
/// receives are gone.
#[derive(Debug)]
struct ReceiveSet {
    receives: SharedReceives,
    /// Commands that the hosts of its queue pairs may have outstanding.
    entries: AtomicU32,
    _memory: Reserved,
}

/// A queue pair's part in a set.
#[derive(Debug)]
pub(crate) struct Share {
    set: Arc<ReceiveSet>,
    entries: u32,
}

/// What a queue pair could share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Receives of a set.
    pub(crate) count: u32,
    /// Bytes of each.
    pub(crate) bytes: u32,
    /// Commands that its host may have outstanding.
    pub(crate) entries: u32,
}

/// There is no memory left for this many bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoMemory {
    pub(crate) bytes: usize,
}

impl ReceiveSets {
    /// A part in the set of a reactor and device. `None`: the queue pair has to have receives of
    /// its own.
    ///
    /// # Errors
    /// A new set does not fit into the memory for capsules.
    pub(crate) fn share(
        &self,
        reactor: usize,
        device: &DeviceAttributes,
        wish: Wish,
        memory: &Arc<MessageMemory>,
    ) -> Result<Option<Share>, NoMemory> {
        // A queue pair's completion queue has room for all of them: it never overflows, whatever
        // its host sends.
        let most = device.shared_receive_entries.min(device.completion_entries / 2);
        let count = wish.count.min(most);
        if count == 0 || device.shared_receive_queues == 0 {
            return Ok(None);
        }
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.retain(|_, set| set.strong_count() > 0);
        let key = (reactor, device.name.clone());
        let found = sets.get(&key).and_then(Weak::upgrade);
        let used = found.as_ref().map_or(0, |set| set.entries.load(Relaxed));
        // A message without a receive is repeated with InfiniBand and RoCE (RNR NAK). With iWARP it
        // ends its connection: hosts must not be promised more than there are.
        if device.protocol == Protocol::Iwarp && used.saturating_add(wish.entries) > count {
            return Ok(None);
        }
        let set = match found {
            Some(set) => set,
            None => {
                let bytes = (count as usize).saturating_mul(wish.bytes as usize);
                let memory = memory.reserve(bytes).ok_or(NoMemory { bytes })?;
                let receives = SharedReceives::new(count, wish.bytes);
                let set = Arc::new(ReceiveSet { receives, entries: AtomicU32::new(0), _memory: memory });
                sets.insert(key, Arc::downgrade(&set));
                set
            }
        };
        set.entries.fetch_add(wish.entries, Relaxed);
        Ok(Some(Share { set, entries: wish.entries }))
    }
}

impl Share {
    /// What the queue pair is to be opened with.
    pub(crate) fn receives(&self) -> SharedReceives {
        self.set.receives.clone()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set.entries.fetch_sub(self.entries, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use ebof_verbs::simulated;

    use super::*;

    const WISH: Wish = Wish { count: 100, bytes: 10, entries: 64 };

    #[test]
    fn queue_pairs_of_one_reactor_and_device_share() {
        let memory = Arc::new(MessageMemory::new(2_500));
        let sets = ReceiveSets::default();
        let device = simulated::device();
        let share = |reactor, device| sets.share(reactor, device, WISH, &memory);
        let one = share(0, &device).unwrap().unwrap();
        let two = share(0, &device).unwrap().unwrap();
        assert_eq!((one.receives().id(), one.receives().count()), (two.receives().id(), 100));
        assert_eq!(memory.used_bytes(), 1_000);
        let other = share(1, &device).unwrap().unwrap();
        assert_ne!(one.receives().id(), other.receives().id());
        let elsewhere = DeviceAttributes { name: "other".to_owned(), ..device.clone() };
        assert!(share(0, &elsewhere).is_err_and(|NoMemory { bytes }| bytes == 1_000));
        drop((one, other));
        assert_eq!(memory.used_bytes(), 1_000, "one still uses it");
        drop(two);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn sets_are_no_larger_than_the_device_allows() {
        let memory = Arc::new(MessageMemory::new(1 << 20));
        let count = |device: &DeviceAttributes| {
            let share = ReceiveSets::default().share(0, device, WISH, &memory).unwrap();
            share.map(|share| share.receives().count())
        };
        let device = simulated::device();
        assert_eq!(count(&DeviceAttributes { shared_receive_entries: 40, ..device.clone() }), Some(40));
        assert_eq!(count(&DeviceAttributes { completion_entries: 60, ..device.clone() }), Some(30));
        assert_eq!(count(&DeviceAttributes { shared_receive_queues: 0, ..device.clone() }), None);
        assert_eq!(count(&DeviceAttributes { shared_receive_entries: 0, ..device }), None);
    }

    #[test]
    fn with_iwarp_no_more_commands_are_outstanding_than_there_are_receives() {
        let memory = Arc::new(MessageMemory::new(1 << 20));
        let sets = ReceiveSets::default();
        let device = DeviceAttributes { protocol: Protocol::Iwarp, ..simulated::device() };
        let share = |entries| sets.share(0, &device, Wish { entries, ..WISH }, &memory).unwrap();
        let one = share(64);
        assert!(one.is_some() && share(37).is_none() && share(101).is_none());
        let two = share(36);
        assert!(two.is_some() && share(1).is_none());
        drop(one);
        assert!(share(64).is_some());
    }
}
