//! A drive without threads: its caller runs what the threads would run, a part at a time.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::Options;
use crate::event_loop::flusher::Flusher;
use crate::event_loop::work::WorkQueue;
use crate::event_loop::{EventLoop, refuse_all};
use crate::extents::zeroing::{ZeroRequest, Zeroing};
use crate::store::Store;
use crate::thin::shared::Shared;

/// Runs the work of a drive's threads on the caller's, see [`open_stepped`](crate::open_stepped).
/// The owner calls [`turn`](Self::turn), [`flush`](Self::flush) and [`zero`](Self::zero) in any
/// order, as often as there is something to do.
///
/// Dropping it before [`is_over`](Self::is_over) is like killing the process: nothing more is
/// written, and pending requests are refused.
pub struct Stepper {
    shared: Arc<Shared>,
    work: Arc<WorkQueue>,
    /// `None` after the drive was closed.
    event_loop: Option<EventLoop>,
    flusher: Flusher,
    zeroing: Zeroing,
    zero_requests: mpsc::Receiver<ZeroRequest>,
    /// Taken from `zero_requests`.
    to_zero: VecDeque<ZeroRequest>,
}

impl Stepper {
    pub(crate) fn new(mut store: Store, work: Arc<WorkQueue>, options: &Options) -> Self {
        let shared = Arc::clone(&store.order.shared);
        let (sender, zero_requests) = mpsc::channel();
        store.order.extents.set_zeroing_thread(sender);
        Self {
            flusher: Flusher::new(&shared, options),
            zeroing: Zeroing::new(&shared, options),
            event_loop: Some(EventLoop::new(store, Arc::clone(&work))),
            shared,
            work,
            zero_requests,
            to_zero: VecDeque::new(),
        }
    }

    /// One turn of the drive's thread: a batch of requests, a step of a job, or maintenance if
    /// there is nothing else. Does nothing if nothing is due.
    pub fn turn(&mut self) {
        let Some(event_loop) = &mut self.event_loop else { return };
        let plan = event_loop.plan();
        let messages = self.shared.take(Some(Duration::ZERO));
        if event_loop.turn(&plan, messages) {
            return;
        }
        if let Some(event_loop) = self.event_loop.take() {
            event_loop.close();
        }
        // As with threads: flushes and zeroing that are queued are still done, but the drive is not
        // notified any more.
        refuse_all(&self.shared, &self.work);
        while self.flush() || self.zero() {}
        self.shared.drop_namespaces();
    }

    /// When [`turn`](Self::turn) has something to do, as far as is known now: not in the future if
    /// it has something to do at once, `None` if it has nothing to do before the next request.
    pub fn due(&mut self) -> Option<Instant> {
        let event_loop = self.event_loop.as_mut()?;
        let due = event_loop.plan().due;
        if self.shared.has_messages() || !self.work.is_empty() { Some(self.shared.clock.now()) } else { due }
    }

    /// Does the pending flushes of the flush thread; `false` if there were none.
    pub fn flush(&mut self) -> bool {
        let flushes = self.shared.take_flushes();
        let any = !flushes.is_empty();
        if any {
            self.flusher.flush(flushes);
        }
        any
    }

    /// Whether [`flush`](Self::flush) has something to do.
    #[must_use]
    pub fn has_flushes(&self) -> bool {
        self.shared.has_flushes()
    }

    /// Zeroes the next freed extents that wait for the zeroing thread; `false` if there were none.
    pub fn zero(&mut self) -> bool {
        self.to_zero.extend(self.zero_requests.try_iter());
        let Some(zero_request) = self.to_zero.pop_front() else { return false };
        self.zeroing.zero(zero_request);
        true
    }

    /// Whether [`zero`](Self::zero) has something to do.
    pub fn has_zeroing(&mut self) -> bool {
        self.to_zero.extend(self.zero_requests.try_iter());
        !self.to_zero.is_empty()
    }

    /// Whether the drive was stopped ([`Medium::stop`](crate::Medium::stop)) and is closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.event_loop.is_none()
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        // Before pending work is refused: it must not find a store.
        self.event_loop = None;
        refuse_all(&self.shared, &self.work);
        drop(self.shared.take_flushes());
        self.shared.drop_namespaces();
    }
}

impl fmt::Debug for Stepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepper").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}
