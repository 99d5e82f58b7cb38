//! A drive without threads: what its threads would do, a part at a time, when the caller says so.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::Options;
use crate::event_loop::{EventLoop, refuse_all};
use crate::flusher::Flusher;
use crate::shared::Shared;
use crate::store::Store;
use crate::work::WorkQueue;
use crate::zeroing::{ZeroRequest, Zeroing};

/// What the threads of a drive would do, see [`open_stepped`](crate::open_stepped). Whoever holds
/// it calls [`turn`](Self::turn), [`flush`](Self::flush) and [`zero`](Self::zero) in any order, as
/// often as something is to be done.
///
/// Dropping it before [`is_over`](Self::is_over) is what a kill is to a process: nothing more is
/// written, and what was asked for is refused.
pub struct Stepper {
    shared: Arc<Shared>,
    work: Arc<WorkQueue>,
    /// `None` when it is over.
    event_loop: Option<EventLoop>,
    flusher: Flusher,
    zeroing: Zeroing,
    zero_requests: mpsc::Receiver<ZeroRequest>,
    /// Taken from `zero_requests`.
    to_zero: VecDeque<ZeroRequest>,
}

impl Stepper {
    pub(crate) fn new(mut store: Store, work: Arc<WorkQueue>, options: &Options) -> Self {
        let shared = Arc::clone(&store.shared);
        let (sender, zero_requests) = mpsc::channel();
        store.extents.set_zeroing_thread(sender);
        let (flusher, zeroing) = (Flusher::new(&shared, options), Zeroing::new(&shared, options));
        let event_loop = Some(EventLoop::new(store, Arc::clone(&work)));
        Self { shared, work, event_loop, flusher, zeroing, zero_requests, to_zero: VecDeque::new() }
    }

    /// One turn of the drive's thread: some of what was asked for, a step of a job, or what can be
    /// done when there is nothing else. Nothing happens where nothing is due.
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
        // As the threads do: flushes and zeroing that were begun are done, though nothing is told
        // of them.
        refuse_all(&self.shared, &self.work);
        while self.flush() || self.zero() {}
        self.shared.forget();
    }

    /// When [`turn`](Self::turn) has something to do, as far as is known now: a moment that is not
    /// in the future where it has something to do at once, `None` where it has not before it is
    /// asked for something.
    pub fn due(&mut self) -> Option<Instant> {
        let event_loop = self.event_loop.as_mut()?;
        let due = event_loop.plan().due;
        if self.shared.has_messages() || !self.work.is_empty() { Some(self.shared.clock.now()) } else { due }
    }

    /// Does the flushes that wait for the thread beside the drive's; `false` if there were none.
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

    /// Zeroes the next extents that were given back and are to be zeroed in the background; `false`
    /// if there were none.
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
        // Before what was asked for is refused: its work is not to find a store.
        self.event_loop = None;
        refuse_all(&self.shared, &self.work);
        drop(self.shared.take_flushes());
        self.shared.forget();
    }
}

impl fmt::Debug for Stepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepper").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}
