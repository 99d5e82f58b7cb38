//! What the owner of a drive leaves with its thread: work on the store, done in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::shared::Shared;
use crate::store::Store;

/// Something that the drive's thread does between requests.
pub(crate) enum OwnerWork {
    Run(Box<dyn FnOnce(&mut Store) + Send>),
    /// Close the drive, and end.
    Stop,
}

/// The way of work to the drive's thread.
pub(crate) struct WorkQueue {
    shared: Arc<Shared>,
    /// `None` when nothing is taken any more.
    works: Mutex<Option<VecDeque<OwnerWork>>>,
}

impl WorkQueue {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared, works: Mutex::new(Some(VecDeque::new())) })
    }

    fn works(&self) -> MutexGuard<'_, Option<VecDeque<OwnerWork>>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves work with the drive's thread; it is dropped when that has ended.
    pub(crate) fn post(&self, work: OwnerWork) {
        match &mut *self.works() {
            Some(works) => works.push_back(work),
            // Dropped behind the lock: what is in it may ask for more.
            None => return,
        }
        self.shared.wake();
    }

    /// Everything that there is.
    pub(crate) fn take(&self) -> VecDeque<OwnerWork> {
        self.works().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether there is any.
    pub(crate) fn is_empty(&self) -> bool {
        self.works().as_ref().is_none_or(VecDeque::is_empty)
    }

    /// From now on nothing is taken; gives what is left.
    pub(crate) fn stop(&self) -> VecDeque<OwnerWork> {
        self.works().take().unwrap_or_default()
    }
}
