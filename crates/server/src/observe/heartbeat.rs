//! Signs of life that threads owe, and when they were asked for. A thread that has not answered is
//! not asked again, so that nothing piles up in its mailbox.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When each thread was asked for the sign of life that it still owes: the reactors by number, then
/// the control thread.
pub(crate) struct Heartbeats {
    owed: Mutex<Vec<Option<Instant>>>,
    came: Condvar,
}

impl Heartbeats {
    pub(crate) fn for_reactors(reactors: usize) -> Self {
        Self { owed: Mutex::new(vec![None; reactors + 1]), came: Condvar::new() }
    }

    /// The thread with this number has taken a turn.
    pub(crate) fn beat(&self, thread: usize) {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_thread) = owed.get_mut(thread) {
            *of_thread = None;
        }
        self.came.notify_all();
    }

    /// The threads that owe nothing, which owe a sign of life from now on.
    pub(crate) fn ask(&self) -> Vec<usize> {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let free = owed.iter_mut().enumerate().filter(|(_, since)| since.is_none());
        free.map(|(thread, since)| {
            *since = Some(now);
            thread
        })
        .collect()
    }

    /// Waits until no thread owes one, at most for that time; then those that do.
    pub(crate) fn wait(&self, limit: Duration) -> Vec<(usize, Duration)> {
        let owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.came.wait_timeout_while(owed, limit, |owed| owed.iter().any(Option::is_some));
        let (owed, _) = waited.unwrap_or_else(PoisonError::into_inner);
        owed.iter().enumerate().filter_map(|(thread, since)| Some((thread, (*since)?.elapsed()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_not_answered_is_named_and_not_asked_again() {
        let heartbeats = Heartbeats::for_reactors(2);
        assert_eq!(heartbeats.ask(), [0, 1, 2]);
        heartbeats.beat(0);
        heartbeats.beat(2);
        let silent = heartbeats.wait(Duration::from_millis(1));
        assert_eq!(silent.iter().map(|(thread, _)| *thread).collect::<Vec<_>>(), [1]);
        assert_eq!(heartbeats.ask(), [0, 2], "the silent one has a question already");
        heartbeats.beat(0);
        heartbeats.beat(1);
        heartbeats.beat(2);
        assert!(heartbeats.wait(Duration::ZERO).is_empty());
        heartbeats.beat(7);
    }
}
