//! Pauses without a runtime: one thread serves all of them, and ends when there are none.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ebof_clock::Clock;

use crate::wait::lock::lock;

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

#[cfg(test)]
mod tests {
    use std::task::Wake;
    use std::thread::Thread;

    use super::*;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn wait_for(mut pause: Pause) {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        while Pin::new(&mut pause).poll(&mut Context::from_waker(&waker)).is_pending() {
            std::thread::park();
        }
    }

    #[test]
    fn a_pause_lasts_as_long_as_it_says_and_the_thread_ends() {
        let pauses = Arc::new(Pauses::new(Clock::default()));
        let began = Instant::now();
        let [long, short] = [40, 20].map(|milliseconds| pauses.pause(Duration::from_millis(milliseconds)));
        // One that nobody waits for any more.
        let mut dropped = pauses.pause(Duration::from_secs(3600));
        assert!(Pin::new(&mut dropped).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(dropped);
        for (pause, least) in [(short, 20), (long, 40)] {
            wait_for(pause);
            assert!(began.elapsed() >= Duration::from_millis(least), "{:?}", began.elapsed());
        }
        while lock(&pauses.inner).running {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
