//! Signs of life: every thread that serves is asked for one, and has to take a turn to answer.
//!
//! Whoever supervises the target (systemd's watchdog, a health check) must not be told that all is
//! well by a thread of its own while a reactor hangs. A thread that has not answered is not asked
//! again, so that nothing piles up in its mailbox.

use std::fmt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When each thread was asked for the sign of life that it still owes: the reactors by number, then
/// the control thread.
pub(crate) struct Heartbeats {
    owed: Mutex<Vec<Option<Instant>>>,
    came: Condvar,
}

/// A thread that has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Its name, as the system shows it.
    pub thread: String,
    /// For how long.
    pub since: Duration,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} has been silent for {} ms", self.thread, self.since.as_millis())
    }
}

impl Heartbeats {
    pub(crate) fn of(reactors: usize) -> Self {
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
    use crate::mailbox::Message;
    use crate::serve::Target;

    #[test]
    fn a_thread_that_has_not_answered_is_named_and_not_asked_again() {
        let heartbeats = Heartbeats::of(2);
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

    #[test]
    fn threads_of_a_target_answer_also_when_they_sleep_and_one_that_hangs_is_told() {
        let text = r#"
            [target]
            threads = 2
            [[ports]]
            name = "here"
            listen = "tcp://127.0.0.1:0"
            [[subsystems]]
            nqn = "nqn.2014-08.org.example:beat"
            allow_any_host = true
            namespaces = ["mem:1Mi"]
        "#;
        let target = Target::start_text(text).unwrap();
        for _ in 0..3 {
            assert_eq!(target.check_threads(Duration::from_secs(20)), Ok(()));
            std::thread::sleep(Duration::from_millis(5));
        }
        // A reactor that hangs.
        let (go_on, held) = std::sync::mpsc::channel();
        target.shared.reactors()[1].post(Message::Hang(held));
        let silent = target.check_threads(Duration::from_millis(50)).unwrap_err();
        assert_eq!(silent.thread, "ebof-reactor1");
        assert!(silent.since >= Duration::from_millis(50) && silent.to_string().contains("ebof-reactor1"));
        drop(go_on);
        assert_eq!(target.check_threads(Duration::from_secs(20)), Ok(()));
        target.stop(Duration::ZERO);
    }
}
