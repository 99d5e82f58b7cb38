//! The history of what objects did, and what the thread that feeds it waits for. What it feeds it
//! with is in `report/sampling.rs`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ebof_manage::history::{History, SERIES_MAX};

/// The history, and what the thread waits for.
pub(crate) struct Sampler {
    history: Mutex<History>,
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { history: Mutex::new(History::new(SERIES_MAX)), stopped: Mutex::default(), wake: Condvar::new() }
    }
}

impl Sampler {
    /// Ends the thread.
    pub(crate) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits; returns false when it is time to end.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.wake.wait_timeout_while(stopped, time, |stopped| !*stopped);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
