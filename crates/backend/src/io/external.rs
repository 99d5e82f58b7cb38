//! The engine without a kernel: all requests are completed through a [`Remote`].
//!
//! For simulations, where a device is a model in the same thread: it keeps requests and their
//! [`Remote`]s, and completes them in any order. Files and block devices do not work on it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::io::remote::{Inbox, Remote};
use crate::io::stats::IoStats;
use crate::job::Job;
use crate::{Class, Completion, Error};

/// Advances the simulation, and returns whether anything has happened.
pub(crate) type Advance = Box<dyn FnMut() -> bool>;

/// Requests in flight, each of which is completed through a [`Remote`].
pub(crate) struct External {
    inbox: Arc<Inbox>,
    /// Taken from the inbox, not yet returned.
    arrived: VecDeque<Completion>,
    in_flight: usize,
    in_flight_max: usize,
    advance: Advance,
    stats: IoStats,
}

impl External {
    pub(crate) fn new(entries: usize, advance: Advance) -> External {
        External {
            inbox: Inbox::without_event(),
            arrived: VecDeque::new(),
            in_flight: 0,
            in_flight_max: entries,
            advance,
            stats: IoStats::default(),
        }
    }

    /// Completes a job with an error: it would need system calls.
    pub(crate) fn start(&mut self, job: Job) -> Result<(), Box<Job>> {
        let Some(remote) = self.remote() else { return Err(Box::new(job)) };
        let action = job.action();
        let reason = "files and block devices need an engine of the system";
        let error = Error::Refused { action, offset: 0, len: 0, class: Class::Unsupported, reason };
        remote.deliver(job.complete(Err(error)));
        Ok(())
    }

    pub(crate) fn remote(&mut self) -> Option<Remote> {
        if self.in_flight == self.in_flight_max {
            return None;
        }
        self.in_flight += 1;
        self.stats.accepted += 1;
        Some(Remote::new(&self.inbox))
    }

    pub(crate) fn poll(&mut self) -> Option<Completion> {
        if self.arrived.is_empty() {
            self.inbox.drain(&mut self.arrived);
        }
        let completion = self.arrived.pop_front()?;
        // Each handle delivers one completion.
        self.in_flight = self.in_flight.checked_sub(1).expect("what has arrived was in flight");
        self.stats.completed += 1;
        Some(completion)
    }

    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Option<Completion> {
        loop {
            let completion = self.poll();
            if completion.is_some() || self.in_flight == 0 {
                return completion;
            }
            if !(self.advance)() {
                assert!(
                    timeout.is_some(),
                    "{} requests are in flight, and nothing is left to end them",
                    self.in_flight
                );
                return None;
            }
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn stats(&self) -> IoStats {
        self.stats
    }
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External")
            .field("in_flight", &self.in_flight)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
