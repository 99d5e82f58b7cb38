//! What the threads of services have told and the main thread has not looked at yet. It is bounded:
//! the main thread may be connecting for minutes while a service changes every second.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::watch::Heard;

/// Maximum number of messages of one service beside its log.
const MESSAGES_MAX: usize = 8;

type Queue = Arc<Mutex<VecDeque<(usize, Heard)>>>;

/// The main thread's end.
pub(super) struct Mailbox {
    queue: Queue,
    wake: Receiver<()>,
    sender: SyncSender<()>,
}

/// The end of a service's thread.
pub(super) struct Outlet {
    id: usize,
    queue: Queue,
    wake: SyncSender<()>,
}

impl Mailbox {
    pub(super) fn new() -> Self {
        let (sender, wake) = sync_channel(1);
        Self { queue: Queue::default(), wake, sender }
    }

    /// Where service `id` tells.
    pub(super) fn outlet(&self, id: usize) -> Outlet {
        Outlet { id, queue: Arc::clone(&self.queue), wake: self.sender.clone() }
    }

    /// The next message, with the service that it is from; waits so long for one.
    pub(super) fn take(&self, wait: Duration) -> Option<(usize, Heard)> {
        let next = || self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next().or_else(|| {
            // After a message that was taken without waiting, this returns at once.
            let _woken = self.wake.recv_timeout(wait);
            next()
        })
    }
}

impl Outlet {
    /// Tells something. A log replaces one that nobody has looked at, as does what is on a network.
    pub(super) fn tell(&self, heard: Heard) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let is_log = |heard: &Heard| matches!(heard, Heard::Log(_) | Heard::Neighbours(_));
        let same = |(id, other): &(usize, Heard)| *id == self.id && is_log(other) == is_log(&heard);
        let max = if is_log(&heard) { 1 } else { MESSAGES_MAX };
        if queue.iter().filter(|message| same(message)).count() >= max
            && let Some(oldest) = queue.iter().position(same)
        {
            queue.remove(oldest);
        }
        queue.push_back((self.id, heard));
        drop(queue);
        // If it is full, the main thread is about to look.
        let _is_awake = self.wake.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::log;
    use super::*;

    // @test host.persistent-bounds
    #[test]
    fn of_each_service_the_newest_log_and_a_few_messages_are_kept() {
        let mailbox = Mailbox::new();
        let (one, two) = (mailbox.outlet(1), mailbox.outlet(2));
        for left_out in 0..1000 {
            one.tell(Heard::Log(log(&[], left_out)));
            one.tell(Heard::Lost(left_out.to_string()));
        }
        two.tell(Heard::Log(log(&[], 0)));
        let heard: Vec<_> = std::iter::from_fn(|| mailbox.take(Duration::ZERO)).collect();
        assert_eq!(heard.len(), 1 + MESSAGES_MAX + 1);
        let logs: Vec<_> = heard
            .iter()
            .filter_map(|(id, heard)| match heard {
                Heard::Log(log) => Some((*id, log.left_out)),
                _ => None,
            })
            .collect();
        assert_eq!(logs, [(1, 999), (2, 0)]);
        assert!(matches!(&heard[heard.len() - 2].1, Heard::Lost(last) if last == "999"));
    }

    #[test]
    fn a_message_ends_the_wait() {
        let mailbox = Mailbox::new();
        let outlet = mailbox.outlet(7);
        let thread = std::thread::spawn(move || outlet.tell(Heard::Back));
        assert!(matches!(mailbox.take(Duration::from_secs(60)), Some((7, Heard::Back))));
        thread.join().unwrap();
    }
}
