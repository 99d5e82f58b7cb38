//! Fused operations: which two commands of a queue belong together, and what each gets when they do
//! not. The one such operation is Compare and Write; that nothing comes between the two halves on
//! the medium is the target's business.
//!
//! Base, "Fused Operations"; NVM Command Set, "Compare and Write".

use alloc::boxed::Box;

use ebof_nvme::command::Fuse;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Cid, Nsid, Sqe, Status};

use super::{Live, Queue, Role};
use crate::io;
use crate::task::FusedHalf;
use crate::task::outcome::{Fault, Outcome, byte};
use crate::task::step::Step;
use crate::task::{IoTask, Task};

/// A first command whose second has to be the next of the queue.
#[derive(Debug)]
pub(super) enum First {
    /// It waits.
    Waiting { cid: Cid, nsid: Nsid, range: BlockRange },
    /// It has failed already.
    Failed,
}

impl Queue {
    /// Takes a command of an I/O queue that is fused, or follows the first of a pair.
    #[cold]
    pub(super) fn submit_fused(&mut self, sqe: &Sqe) -> Step {
        match (sqe.fuse(), self.fused.take()) {
            (Fuse::Second, Some(First::Waiting { cid, nsid, range })) => self.second(sqe, cid, nsid, range),
            (Fuse::Second, Some(First::Failed)) => {
                self.accept_refused(sqe, Fault::transient(Status::ABORTED_FAILED_FUSED))
            }
            (Fuse::Second, None) => self.accept_refused(sqe, Fault::new(Status::ABORTED_MISSING_FUSED)),
            (_, Some(First::Waiting { cid, .. })) => {
                let next = self.first_or_other(sqe);
                Step::Unpaired(cid, Status::ABORTED_MISSING_FUSED.dnr(), Box::new(next))
            }
            _ => self.first_or_other(sqe),
        }
    }

    /// Refuses a command of an I/O queue, which may be fused, or follow the first of a pair.
    pub(super) fn refuse_fused(&mut self, sqe: &Sqe, fault: Fault) -> Step {
        let first = self.fused.take();
        let refused = self.accept_refused(sqe, fault);
        if sqe.fuse() == Fuse::First {
            self.fused = Some(First::Failed);
        }
        let Some(First::Waiting { cid, .. }) = first else { return refused };
        let status = match sqe.fuse() {
            Fuse::Second => Status::ABORTED_FAILED_FUSED,
            _ => Status::ABORTED_MISSING_FUSED.dnr(),
        };
        Step::Unpaired(cid, status, Box::new(refused))
    }

    /// Whether the first half of a pair waits for its second.
    #[must_use]
    pub fn awaits_second(&self) -> bool {
        matches!(self.fused, Some(First::Waiting { .. }))
    }

    /// A command that failed is no half of a pair any more.
    pub(super) fn first_failed(&mut self, failed: Cid) {
        if let Some(First::Waiting { cid, .. }) = &self.fused
            && *cid == failed
        {
            self.fused = Some(First::Failed);
        }
    }

    fn first_or_other(&mut self, sqe: &Sqe) -> Step {
        match sqe.fuse() {
            Fuse::Normal => self.submit_one(sqe),
            Fuse::First => {
                let step = self.accept(sqe, |live| {
                    if sqe.opcode == nvm::COMPARE {
                        half(live.as_deref(), sqe, FusedHalf::First { second: None })
                    } else {
                        Err(Fault::field(byte::FLAGS))
                    }
                });
                self.fused = Some(if is_half(&step) {
                    First::Waiting { cid: sqe.cid(), nsid: sqe.nsid(), range: BlockRange::decode(sqe) }
                } else {
                    First::Failed
                });
                step
            }
            Fuse::Second | Fuse::Reserved => self.accept_refused(sqe, Fault::field(byte::FLAGS)),
        }
    }

    fn second(&mut self, sqe: &Sqe, first: Cid, nsid: Nsid, of_first: BlockRange) -> Step {
        if sqe.opcode != nvm::WRITE {
            let next = self.accept_refused(sqe, Fault::field(byte::FLAGS));
            return Step::Unpaired(first, Status::ABORTED_MISSING_FUSED.dnr(), Box::new(next));
        }
        let range = BlockRange::decode(sqe);
        if (sqe.nsid(), range.slba, range.blocks) != (nsid, of_first.slba, of_first.blocks) {
            let wrong = if sqe.nsid() == nsid { byte::CDW10 } else { byte::NSID };
            let next = self.accept_refused(sqe, Fault::field(wrong));
            return Step::Unpaired(first, Status::INVALID_FIELD.dnr(), Box::new(next));
        }
        match self.accept(sqe, |live| half(live.as_deref(), sqe, FusedHalf::Second { first })) {
            step if is_half(&step) => step,
            refused => Step::Unpaired(first, Status::ABORTED_FAILED_FUSED, Box::new(refused)),
        }
    }

    fn accept_refused(&mut self, sqe: &Sqe, fault: Fault) -> Step {
        self.accept(sqe, |_| Err(fault))
    }
}

fn half(live: Option<&Live>, sqe: &Sqe, half: FusedHalf) -> Outcome {
    match live {
        Some(Live { role: Role::Io(subsystem), association, .. }) => io::submit_half(association, subsystem, sqe, half),
        _ => unreachable!("only I/O queues have pairs, and they stay what they are"),
    }
}

/// Whether the step goes on with a half of a pair.
fn is_half(step: &Step) -> bool {
    matches!(step, Step::Execute(_, Task::Io(IoTask::Transfer(transfer))) if transfer.fused.is_some())
}
