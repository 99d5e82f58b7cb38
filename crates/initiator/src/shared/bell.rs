//! What wakes a thread that looks after a controller: its state has changed, or the access to its
//! namespaces.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::wait::Waiter;
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

    /// As [`Bell::wait`], until `deadline`: gives way where it is stepped.
    pub(crate) async fn wait_with(&self, waiter: &Waiter, seen: u64, deadline: Option<Instant>) {
        if !waiter.is_stepped() {
            let now = waiter.time.now();
            return self.wait(seen, deadline.map(|deadline| deadline.saturating_duration_since(now)));
        }
        while self.rung() == seen && deadline.is_none_or(|deadline| waiter.time.now() < deadline) {
            // It fails only where it sleeps.
            let _stepped = waiter.wait(None, &[], deadline).await;
        }
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
