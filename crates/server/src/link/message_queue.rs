//! The Submission Queue of a link whose commands and completions are messages: what completions
//! tell the host about its head.
//!
//! Owns the head of one Submission Queue. It is one of two ways to keep the rings of a queue pair,
//! and neither the command side nor `ebof_fabrics::Queue` knows which of them a link has:
//!
//! - Where commands and completions are messages (TCP, RDMA, the in-memory transport), the target
//!   has no rings. The host counts, and reads in SQHD which entries are free. The Completion Queue
//!   has as many entries as the Submission Queue, so there is room for the completion of every
//!   command that the host may send.
//! - Where the rings are in the host's memory (vfio-user, PCI), the transport keeps head and tail
//!   of both, and the phase tag, in a type beside this one. The Submission Queue's head moves when
//!   an entry is copied out, not when a command completes. The Completion Queue may be smaller than
//!   what is outstanding, and several Submission Queues may share it: completions then wait until
//!   the host has taken others.

use ebof_fabrics::SubmissionQueue;
use ebof_nvme::Cqe;

/// What completions tell about the head of one Submission Queue (Base, Completion Queue Entry:
/// SQHD).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageQueue {
    /// SQHD of the next completion.
    next: u16,
    /// Entries of the queue; 0 where the host wants to know nothing of them.
    entries: u16,
}

impl MessageQueue {
    /// SQHD of the response to a Connect that disables SQ flow control.
    const DISABLED: u16 = 0xffff;

    /// A queue before its Connect: its head stays where it is.
    pub(crate) const fn new() -> Self {
        Self { next: 0, entries: 1 }
    }

    /// The next completion is the response to a Connect that has succeeded.
    pub(crate) fn open(&mut self, queue: SubmissionQueue) {
        *self = if queue.flow_disabled {
            // NVMe over Fabrics, Connect, response: SQHD. It is reserved in all others.
            Self { next: Self::DISABLED, entries: 0 }
        } else {
            Self { next: 1, entries: queue.entries }
        };
    }

    /// The completion as it goes to the host.
    ///
    /// The host may have as many commands outstanding as entries that it knows to be free, so an
    /// entry is given back with the completion, not when the command was taken.
    #[inline]
    pub(crate) fn complete(&mut self, cqe: &Cqe) -> Cqe {
        let sqhd = self.next;
        self.withdraw();
        cqe.with_sqhd(sqhd)
    }

    /// A command has ended without a completion: its entry is free all the same.
    #[inline]
    pub(crate) fn withdraw(&mut self) {
        let next = self.next.wrapping_add(1);
        self.next = if next < self.entries { next } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use ebof_nvme::{Cid, Status};

    use super::*;

    fn heads<const N: usize>(queue: &mut MessageQueue) -> [u16; N] {
        std::array::from_fn(|_| queue.complete(&Cqe::new(Cid(1), Status::SUCCESS)).sqhd.get())
    }

    #[test]
    fn every_completion_frees_an_entry_and_the_head_wraps() {
        let mut queue = MessageQueue::new();
        assert_eq!(heads(&mut queue), [0, 0], "before Connect there is one entry");
        queue.open(SubmissionQueue { entries: 4, flow_disabled: false });
        assert_eq!(heads(&mut queue), [1, 2, 3, 0, 1, 2]);
    }

    #[test]
    fn a_command_that_ends_without_a_completion_frees_its_entry_with_the_next_one() {
        let mut queue = MessageQueue::new();
        queue.open(SubmissionQueue { entries: 8, flow_disabled: false });
        assert_eq!(heads(&mut queue), [1]);
        queue.withdraw();
        queue.withdraw();
        assert_eq!(heads(&mut queue), [4, 5]);
    }

    #[test]
    fn without_flow_control_the_connect_response_says_so_and_no_head_is_reported() {
        let mut queue = MessageQueue::new();
        queue.open(SubmissionQueue { entries: 4, flow_disabled: true });
        assert_eq!(heads(&mut queue), [0xffff, 0, 0]);
        queue.withdraw();
        assert_eq!(heads(&mut queue), [0]);
    }
}
