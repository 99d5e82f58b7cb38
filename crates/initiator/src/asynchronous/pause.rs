//! Pauses without a runtime: one thread serves all of them, and ends when there are none.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ebof_clock::Clock;

use crate::lock::lock;

/// The tasks that wait, by deadline.
#[derive(Debug)]
pub(super) struct Pauses {
    clock: Clock,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: BTreeMap<(Instant, u64), Waker>,
    next: u64,
    running: bool,
}

impl Pauses {
    /// No pauses yet. The thread sleeps by the system's clock, whatever `clock` is.
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, inner: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for `time`.
    pub(super) fn pause(self: &Arc<Self>, time: Duration) -> Pause {
        Pause { pauses: Arc::clone(self), due: self.clock.now() + time, number: None }
    }

    /// Wakes tasks at their deadlines until none waits.
    fn run(&self) {
        let mut inner = lock(&self.inner);
        loop {
            let now = self.clock.now();
            while let Some(entry) = inner.waiting.first_entry().filter(|entry| entry.key().0 <= now) {
                let waker = entry.remove();
                drop(inner);
                waker.wake();
                inner = lock(&self.inner);
            }
            let Some((&(due, _), _)) = inner.waiting.first_key_value() else {
                inner.running = false;
                return;
            };
            let time = due.saturating_duration_since(now);
            inner = self.changed.wait_timeout(inner, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A pause. Does nothing before it is polled.
pub(super) struct Pause {
    pauses: Arc<Pauses>,
    due: Instant,
    number: Option<u64>,
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.pauses.clock.now() >= self.due {
            return Poll::Ready(());
        }
        let pauses = Arc::clone(&self.pauses);
        let mut inner = lock(&pauses.inner);
        let number = self.number.unwrap_or(inner.next);
        if self.number.is_none() {
            inner.next += 1;
            self.number = Some(number);
        }
        // Dropped without the lock: this may drop another task that waits here.
        let before = inner.waiting.insert((self.due, number), context.waker().clone());
        pauses.changed.notify_one();
        if !inner.running {
            inner.running = true;
            let run = Arc::clone(&pauses);
            if std::thread::Builder::new().name("nvme-pauses".to_owned()).spawn(move || run.run()).is_err() {
                // Without the thread there is no pause.
                inner.running = false;
                return Poll::Ready(());
            }
        }
        drop(inner);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = lock(&self.pauses.inner).waiting.remove(&(self.due, number));
            drop(waker);
        }
    }
}
