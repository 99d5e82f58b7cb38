//! Closing what clients have sent, on a thread of its own.
//!
//! The last close of a file takes as long as its owner likes: one in a file system of FUSE, a
//! socket that lingers, a UNIX socket with such descriptors in it. The end of a large mapping takes
//! long, too. Neither may keep a reactor, or other ports, from their work. Each port has a reaper,
//! so that one whose clients block it harms nobody but itself: while it has much to close, nothing
//! more is taken from its clients.

use std::any::Any;
use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::DirectClient;

/// Closes things.
#[derive(Default)]
pub(crate) struct Reaper {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Box<dyn Any + Send>>,
    /// Taken by the thread, and not closed yet.
    closing: usize,
    has_thread: bool,
}

/// Things that are being closed beyond which no more is taken from clients.
const PENDING_MAX: usize = 64;

/// How long a thread without work waits for more.
const LINGER: Duration = Duration::from_secs(1);

impl Reaper {
    /// Drops `what` elsewhere.
    pub(crate) fn close(self: &Arc<Self>, what: impl Any + Send) {
        let mut state = self.lock();
        state.waiting.push(Box::new(what));
        if state.has_thread {
            drop(state);
            return self.bell.notify_one();
        }
        let this = Arc::clone(self);
        match std::thread::Builder::new().name("closing".to_owned()).spawn(move || this.work()) {
            Ok(_) => state.has_thread = true,
            // It waits for the next one.
            Err(error) => tracing::error!("no thread to close what virtual machines have sent: {error}"),
        }
    }

    /// The client sees that it is left, also while the descriptors that it sent are being closed.
    pub(crate) fn hang_up(self: &Arc<Self>, socket: UnixStream) {
        let client = DirectClient::new(socket);
        client.hang_up();
        self.close(client);
    }

    /// Whether more may be taken from clients that has to be closed some time.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.lock();
        state.waiting.len() + state.closing < PENDING_MAX
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            let (guard, timeout) = self
                .bell
                .wait_timeout_while(state, LINGER, |state| state.waiting.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if timeout.timed_out() && state.waiting.is_empty() {
                state.has_thread = false;
                return;
            }
            let taken = std::mem::take(&mut state.waiting);
            state.closing = taken.len();
            drop(state);
            for what in taken {
                drop(what);
                self.lock().closing -= 1;
            }
            state = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper").field("waiting", &self.lock().waiting.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Its drop waits until it may end.
    struct Slow(mpsc::Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn what_takes_long_holds_up_nobody_and_is_bounded() {
        let reaper = Arc::new(Reaper::default());
        let mut senders = Vec::new();
        while reaper.has_room() {
            let (sender, receiver) = mpsc::channel();
            senders.push(sender);
            reaper.close(Slow(receiver));
        }
        assert_eq!(senders.len(), PENDING_MAX);
        drop(senders);
        while !reaper.has_room() {
            std::thread::yield_now();
        }
        // Also after its thread has nothing to do.
        let (sender, receiver) = mpsc::channel::<()>();
        reaper.close(sender);
        assert!(receiver.recv().is_err());
    }
}
