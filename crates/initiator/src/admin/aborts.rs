//! Which Abort commands are outstanding, and which commands wait to be aborted. Sends nothing.

use std::collections::VecDeque;

use ebof_nvme::{Cid, QueueId};

/// Aborts outstanding at once. Linux uses the controller's limit, which is usually 4.
pub(super) const OUTSTANDING_MAX: usize = 4;
/// Commands that wait; further ones are dropped. Their connection is reset when the time-out of an
/// abort has passed.
const WAITING_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct Aborts {
    outstanding: usize,
    waiting: VecDeque<(QueueId, Cid)>,
}

impl Aborts {
    pub(super) fn push(&mut self, queue: QueueId, cid: Cid) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((queue, cid));
        }
    }

    /// The next command to abort, unless [`OUTSTANDING_MAX`] Aborts are outstanding. Call
    /// [`Aborts::sent`] or [`Aborts::not_sent`] with it.
    pub(super) fn next(&mut self) -> Option<(QueueId, Cid)> {
        if self.outstanding < OUTSTANDING_MAX { self.waiting.pop_front() } else { None }
    }

    pub(super) fn sent(&mut self) {
        self.outstanding += 1;
    }

    /// There was no slot for it: [`Aborts::next`] returns it again.
    pub(super) fn not_sent(&mut self, queue: QueueId, cid: Cid) {
        self.waiting.push_front((queue, cid));
    }

    pub(super) fn completed(&mut self) {
        // Each was counted when it was sent, and those of an earlier connection do not come here.
        self.outstanding = self.outstanding.checked_sub(1).expect("an Abort that completes was sent");
    }
}
