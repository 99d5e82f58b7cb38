//! Whether all threads that serve are alive: each is asked for a sign of life, and has to take a
//! turn to answer.
//!
//! Whoever supervises the target (systemd's watchdog, a health check) must not be told that all is
//! well by a thread of its own while a reactor hangs.

use std::fmt;
use std::time::Duration;

use crate::life::control::{Order, Orders};
use crate::shared::Shared;
use crate::shared::mailbox::Message;

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

/// Has every thread that serves take a turn, and waits for that for at most `limit`.
///
/// # Errors
/// The thread that has been silent for longest.
pub(crate) fn check(shared: &Shared, orders: &Orders, limit: Duration) -> Result<(), Silent> {
    let reactors = shared.reactors();
    for thread in shared.heartbeats.ask() {
        match reactors.get(thread) {
            Some(mailbox) => mailbox.post(Message::Beat),
            None => orders.give(Order::Beat),
        }
    }
    let silent = shared.heartbeats.wait(limit).into_iter().max_by_key(|(_, since)| *since);
    let Some((number, since)) = silent else { return Ok(()) };
    let is_reactor = number < reactors.len();
    let thread = if is_reactor { format!("ebof-reactor{number}") } else { "ebof-control".to_owned() };
    Err(Silent { thread, since })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::serve::Target;

    // @test hostile.watchdog
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
