//! The engine for a thread that waits for each single request: blocking system calls of its own.
//!
//! io_uring is for many requests at a time. A single one that is waited for gains nothing by it,
//! and a write into the page cache or a flush goes to a thread of the kernel and back: two changes
//! of threads, which take longer than the write.

use std::time::Duration;

use crate::io::stats::IoStats;
use crate::io::threads::perform;
use crate::job::{Job, Progress};
use crate::{Completion, Error};

/// The last request that was done, until its completion is taken.
#[derive(Debug, Default)]
pub(crate) struct CallerIo {
    finished: Option<(Job, Result<(), Error>)>,
    stats: IoStats,
}

impl CallerIo {
    /// Does the job, or returns it if the completion of the last one was not taken.
    pub(crate) fn start(&mut self, mut job: Job) -> Result<(), Box<Job>> {
        if self.finished.is_some() {
            return Err(Box::new(job));
        }
        self.stats.accepted += 1;
        self.stats.handovers += 1;
        let result = loop {
            let outcome = perform(&mut job);
            if let Progress::Finished(result) = job.advance(outcome) {
                break result;
            }
        };
        self.finished = Some((job, result));
        Ok(())
    }

    pub(crate) fn poll(&mut self) -> Option<Completion> {
        let (job, result) = self.finished.take()?;
        self.stats.completed += 1;
        Some(job.complete(result))
    }

    /// Whatever was accepted is done.
    pub(crate) fn wait(&mut self, _timeout: Option<Duration>) -> Result<Option<Completion>, Error> {
        Ok(self.poll())
    }

    pub(crate) fn in_flight(&self) -> usize {
        usize::from(self.finished.is_some())
    }

    /// Whether this one is done, and not taken: too late to be cancelled, but found.
    pub(crate) fn cancel(&self, tag: u64) -> bool {
        self.finished.as_ref().is_some_and(|(job, _)| job.tag() == tag)
    }

    pub(crate) fn stats(&self) -> IoStats {
        self.stats
    }
}
