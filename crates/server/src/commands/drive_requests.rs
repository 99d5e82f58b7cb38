//! The requests to the drive that commands of one connection wait for. What they ask, and what
//! becomes of the commands, is not known here.

use std::collections::BTreeMap;

use crate::drives::SubmittedRequest;

/// The requests of one connection, by the slots of their commands.
#[derive(Debug, Default)]
pub(crate) struct DriveRequests {
    /// Those without an answer.
    waiting: BTreeMap<u32, SubmittedRequest>,
    /// Those that were withdrawn and that the drive's thread has still to skip.
    withdrawn: Vec<SubmittedRequest>,
}

/// Requests that may be withdrawn and not skipped yet: a host that aborts what it has just sent,
/// again and again, does not fill the queue of a drive's thread that is busy.
const WITHDRAWN_MAX: usize = 32;

impl DriveRequests {
    pub(crate) fn insert(&mut self, slot: u32, request: SubmittedRequest) {
        self.waiting.insert(slot, request);
    }

    /// The drive has answered.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.waiting.remove(&slot);
    }

    /// Whether none is without an answer.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Withdraws the request of the command in `slot`, which gets no answer then. `false` if the
    /// drive's thread has begun it, if there is none, or if too many were withdrawn already.
    pub(crate) fn withdraw(&mut self, slot: u32) -> bool {
        self.withdrawn.retain(SubmittedRequest::is_queued);
        if self.withdrawn.len() >= WITHDRAWN_MAX {
            return false;
        }
        let Some(request) = self.waiting.remove(&slot) else { return false };
        if request.withdraw() {
            self.withdrawn.push(request);
            return true;
        }
        self.waiting.insert(slot, request);
        false
    }

    /// Withdraws all that the drive's thread has not begun. Returns whether that thread has still
    /// to do or to skip any.
    pub(crate) fn withdraw_all(&mut self) -> bool {
        let Self { waiting, mut withdrawn } = std::mem::take(self);
        withdrawn.retain(SubmittedRequest::is_queued);
        for request in waiting.values() {
            request.withdraw();
        }
        !(waiting.is_empty() && withdrawn.is_empty())
    }
}
