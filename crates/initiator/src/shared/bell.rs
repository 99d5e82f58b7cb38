//! What wakes a thread that looks after a controller: its state has changed, or the access to its
//! namespaces.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::wait::lock::lock;

/// Counts how often it was rung. Nobody misses a ring: whoever waits says which one was the last.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        *lock(&self.rung) += 1;
        self.changed.notify_all();
    }

    /// How often it was rung.
    pub(crate) fn rung(&self) -> u64 {
        *lock(&self.rung)
    }

    /// Waits until it was rung since it had been rung `seen` times, for at most `limit`.
    pub(crate) fn wait(&self, seen: u64, limit: Option<Duration>) {
        let rung = lock(&self.rung);
        match limit {
            Some(limit) => {
                let waited = self.changed.wait_timeout_while(rung, limit, |rung| *rung == seen);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
            None => {
                let waited = self.changed.wait_while(rung, |rung| *rung == seen);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}
