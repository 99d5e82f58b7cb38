//! One direction of a connection: the unread items.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Bell;

/// Items from one end to the other, in order. Its users bound it: they count commands.
pub(crate) struct Pipe<T> {
    items: Mutex<VecDeque<T>>,
    /// Whether there may be items: avoids the lock if there are none.
    pending: AtomicBool,
    bell: Mutex<Option<Bell>>,
}

impl<T> Pipe<T> {
    pub(crate) fn new() -> Self {
        Self { items: Mutex::default(), pending: AtomicBool::new(false), bell: Mutex::default() }
    }

    pub(crate) fn set_bell(&self, bell: Bell) {
        *self.bell.lock().unwrap_or_else(PoisonError::into_inner) = Some(bell);
    }

    /// Adds items; rings if there were none.
    pub(crate) fn put(&self, more: impl IntoIterator<Item = T>) {
        let mut items = self.items();
        let was_empty = items.is_empty();
        items.extend(more);
        let rings = was_empty && !items.is_empty();
        self.pending.store(!items.is_empty(), Ordering::Release);
        drop(items);
        if rings {
            self.ring();
        }
    }

    /// Appends all items to `into`.
    pub(crate) fn take(&self, into: &mut VecDeque<T>) {
        if !self.pending.load(Ordering::Acquire) {
            return;
        }
        let mut items = self.items();
        self.pending.store(false, Ordering::Release);
        if into.is_empty() {
            std::mem::swap(&mut *items, into);
        } else {
            into.append(&mut items);
        }
    }

    pub(crate) fn clear(&self) {
        self.items().clear();
    }

    /// Wakes the receiver.
    pub(crate) fn ring(&self) {
        let bell = self.bell.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(bell) = bell {
            bell();
        }
    }

    fn items(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Pipe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("items", &self.items().len()).finish_non_exhaustive()
    }
}
