//! Work on the store that the owner of a drive queues for its thread, done in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::Store;
use crate::thin::shared::Shared;

/// Something that the drive's thread does between requests.
pub(crate) enum OwnerWork {
    Run(Box<dyn FnOnce(&mut Store) + Send>),
    /// Close the drive, and end.
    Stop,
}

/// The owner's work that waits for the drive's thread.
pub(crate) struct WorkQueue {
    shared: Arc<Shared>,
    /// `None` when no more is taken.
    works: Mutex<Option<VecDeque<OwnerWork>>>,
}

impl WorkQueue {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared, works: Mutex::new(Some(VecDeque::new())) })
    }

    fn works(&self) -> MutexGuard<'_, Option<VecDeque<OwnerWork>>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues work for the drive's thread; drops it if that has ended.
    pub(crate) fn post(&self, work: OwnerWork) {
        match &mut *self.works() {
            Some(works) => works.push_back(work),
            // `work` is dropped after the lock is released: dropping it may queue more.
            None => return,
        }
        self.shared.wake();
    }

    /// Takes all pending work.
    pub(crate) fn take(&self) -> VecDeque<OwnerWork> {
        self.works().as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.works().as_ref().is_none_or(VecDeque::is_empty)
    }

    /// Takes no work from now on. Returns what is left.
    pub(crate) fn stop(&self) -> VecDeque<OwnerWork> {
        self.works().take().unwrap_or_default()
    }
}
