//! Background jobs of the drive's thread, and when the next step of each is due. `event_loop.rs`
//! runs them.

use std::time::{Duration, Instant};

use crate::Store;
use crate::thin::shared::AwaitedBlocks;

/// Background work in steps, between which requests are served.
pub trait Job: Send {
    /// Does a part: about 1 MiB of I/O, or a few milliseconds.
    fn step(&mut self, store: &mut Store) -> Progress;
}

/// What becomes of a [`Job`] after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do.
    Again,
    /// There is more to do, in so many milliseconds.
    Later(u64),
    /// The job is done, and is dropped.
    Done,
}

/// The jobs of a drive.
#[derive(Default)]
pub(crate) struct Jobs {
    due: Vec<Due>,
}

/// A job, and when its next step is due.
pub(crate) struct Due {
    job: Box<dyn Job>,
    at: Instant,
    /// Blocks for which [`Store::execute`] has failed last in it: its own place among those who
    /// wait.
    awaited: Option<AwaitedBlocks>,
}

impl Jobs {
    /// Adds a job whose first step is due now.
    pub(crate) fn start(&mut self, job: Box<dyn Job>, now: Instant) {
        self.due.push(Due { job, at: now, awaited: None });
    }

    /// When the next step is due; `None` without jobs.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.due.iter().map(|due| due.at).min()
    }

    /// Takes the job that has been due longest; `None` if none is due at `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Due> {
        let next = self.due.iter().enumerate().filter(|(_, due)| due.at <= now).min_by_key(|(_, due)| due.at);
        next.map(|(at, _)| at).map(|at| self.due.remove(at))
    }

    /// Puts a job back after a step, unless it is done.
    pub(crate) fn put_back(&mut self, mut due: Due, progress: Progress, now: Instant) {
        match progress {
            Progress::Again => due.at = now,
            Progress::Later(ms) => due.at = now + Duration::from_millis(ms),
            Progress::Done => return,
        }
        self.due.push(due);
    }
}

impl Due {
    /// Does one step.
    pub(crate) fn step(&mut self, store: &mut Store) -> Progress {
        store.awaited = self.awaited.take();
        let progress = self.job.step(store);
        self.awaited = store.awaited.take();
        progress
    }
}
