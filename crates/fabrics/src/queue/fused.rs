//! Fused operations: which two commands of a queue belong together, and what each gets when they do
//! not. The one such operation is Compare and Write; that nothing comes between the two halves on
//! the medium is the target's business, and what a half means by itself `io`'s.
//!
//! Base, "Fused Operations"; NVM Command Set, "Compare and Write".

use alloc::boxed::Box;

use ebof_nvme::command::Fuse;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Cid, Nsid, Sqe, Status};

use crate::task::outcome::{Fault, byte};
use crate::task::step::Step;
use crate::task::{FusedHalf, IoTask, Task};

/// The pairs of an I/O queue: what is known of a first command whose second has to be the next.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    first: Option<First>,
}

#[derive(Debug)]
enum First {
    /// It waits.
    Waiting { cid: Cid, nsid: Nsid, range: BlockRange },
    /// It has failed already.
    Failed,
}

/// A first command that has lost its second, with the status that it completes with.
pub(super) type Unpaired = (Cid, Status);

/// What a command is.
pub(super) enum FusedPart {
    /// It stands for itself.
    Single,
    /// It is a half of a pair, if nothing else is wrong with it.
    Half(FusedHalf),
    /// It is refused.
    Refused(Fault),
}

/// What becomes of a command, and of the first one that waited when it came.
pub(super) struct FusedPlace {
    pub(super) part: FusedPart,
    /// The first one completes in any case.
    pub(super) unpaired: Option<Unpaired>,
    /// It does if the command is no half.
    pub(super) unpaired_unless_half: Option<Unpaired>,
}

impl Pairs {
    /// Whether the next command is the second of a pair, or should be.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.first.is_some()
    }

    /// Whether the first half of a pair waits for its second.
    pub(super) fn awaits_second(&self) -> bool {
        matches!(self.first, Some(First::Waiting { .. }))
    }

    /// The place of a command that is fused, or follows the first of a pair. What comes of it is to
    /// be [noted](Self::note).
    pub(super) fn place(&mut self, sqe: &Sqe) -> FusedPlace {
        let refused =
            |fault| FusedPlace { part: FusedPart::Refused(fault), unpaired: None, unpaired_unless_half: None };
        match (sqe.fuse(), self.first.take()) {
            (Fuse::Second, Some(First::Waiting { cid, nsid, range })) => second(sqe, cid, nsid, range),
            (Fuse::Second, Some(First::Failed)) => refused(Fault::transient(Status::ABORTED_FAILED_FUSED)),
            (Fuse::Second, None) => refused(Fault::new(Status::ABORTED_MISSING_FUSED)),
            (_, first) => {
                let waited = match first {
                    Some(First::Waiting { cid, .. }) => Some((cid, Status::ABORTED_MISSING_FUSED.dnr())),
                    Some(First::Failed) | None => None,
                };
                FusedPlace { part: first_or_other(sqe), unpaired: waited, unpaired_unless_half: None }
            }
        }
    }

    /// A command is refused, which may be fused, or follow the first of a pair.
    pub(super) fn refuse(&mut self, sqe: &Sqe) -> Option<Unpaired> {
        let Some(First::Waiting { cid, .. }) = self.first.take() else { return None };
        let status = match sqe.fuse() {
            Fuse::Second => Status::ABORTED_FAILED_FUSED,
            _ => Status::ABORTED_MISSING_FUSED.dnr(),
        };
        Some((cid, status))
    }

    /// What has come of a command that was [placed](Self::place) or [refused](Self::refuse): the
    /// next one may be the second to it.
    pub(super) fn note(&mut self, sqe: &Sqe, is_half: bool) {
        if sqe.fuse() == Fuse::First {
            self.first = Some(if is_half {
                First::Waiting { cid: sqe.cid(), nsid: sqe.nsid(), range: BlockRange::decode(sqe) }
            } else {
                First::Failed
            });
        }
    }

    /// A command that failed is no half of a pair any more.
    pub(super) fn failed(&mut self, failed: Cid) {
        if let Some(First::Waiting { cid, .. }) = &self.first
            && *cid == failed
        {
            self.first = Some(First::Failed);
        }
    }
}

/// The part of a command that is not second.
fn first_or_other(sqe: &Sqe) -> FusedPart {
    match sqe.fuse() {
        Fuse::Normal => FusedPart::Single,
        Fuse::First if sqe.opcode == nvm::COMPARE => FusedPart::Half(FusedHalf::First { second: None }),
        Fuse::First | Fuse::Second | Fuse::Reserved => FusedPart::Refused(Fault::field(byte::FLAGS)),
    }
}

/// The place of the second command of a pair.
fn second(sqe: &Sqe, first: Cid, nsid: Nsid, of_first: BlockRange) -> FusedPlace {
    let refused = |location, status| FusedPlace {
        part: FusedPart::Refused(Fault::field(location)),
        unpaired: Some((first, status)),
        unpaired_unless_half: None,
    };
    if sqe.opcode != nvm::WRITE {
        return refused(byte::FLAGS, Status::ABORTED_MISSING_FUSED.dnr());
    }
    let range = BlockRange::decode(sqe);
    if (sqe.nsid(), range.slba, range.blocks) != (nsid, of_first.slba, of_first.blocks) {
        let wrong = if sqe.nsid() == nsid { byte::CDW10 } else { byte::NSID };
        return refused(wrong, Status::INVALID_FIELD.dnr());
    }
    FusedPlace {
        part: FusedPart::Half(FusedHalf::Second { first }),
        unpaired: None,
        unpaired_unless_half: Some((first, Status::ABORTED_FAILED_FUSED)),
    }
}

/// The step of a command, with which the first of a pair may complete.
pub(super) fn with_unpaired(unpaired: Option<Unpaired>, step: Step) -> Step {
    match unpaired {
        Some((first, status)) => Step::Unpaired(first, status, Box::new(step)),
        None => step,
    }
}

/// Whether the step goes on with a half of a pair.
pub(super) fn is_half(step: &Step) -> bool {
    matches!(step, Step::Execute(_, Task::Io(IoTask::Transfer(transfer))) if transfer.fused.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(cid: u16, opcode: u8, fuse: u8) -> Sqe {
        let mut sqe = Sqe::new(opcode);
        sqe.cid = cid.into();
        sqe.flags |= fuse;
        sqe
    }

    #[test]
    fn a_write_that_follows_its_compare_is_its_second() {
        let mut pairs = Pairs::default();
        let compare = command(1, nvm::COMPARE, 1);
        assert!(matches!(pairs.place(&compare).part, FusedPart::Half(FusedHalf::First { second: None })));
        pairs.note(&compare, true);
        assert!(pairs.is_open() && pairs.awaits_second());
        let place = pairs.place(&command(2, nvm::WRITE, 2));
        assert!(matches!(place.part, FusedPart::Half(FusedHalf::Second { first: Cid(1) })));
        assert_eq!(place.unpaired, None);
        assert_eq!(place.unpaired_unless_half, Some((Cid(1), Status::ABORTED_FAILED_FUSED)));
        assert!(!pairs.is_open());
    }

    #[test]
    fn a_first_without_its_second_completes_with_what_comes_instead() {
        let mut pairs = Pairs::default();
        let compare = command(1, nvm::COMPARE, 1);
        for (next, status) in [
            (command(2, nvm::READ, 0), Status::ABORTED_MISSING_FUSED.dnr()),
            (command(2, nvm::READ, 2), Status::ABORTED_MISSING_FUSED.dnr()),
            (command(2, nvm::WRITE, 2).with_cdw(10, 9), Status::INVALID_FIELD.dnr()),
        ] {
            pairs.note(&compare, true);
            assert_eq!(pairs.place(&next).unpaired, Some((Cid(1), status)));
        }
        pairs.note(&compare, true);
        pairs.failed(Cid(2));
        assert!(pairs.awaits_second());
        pairs.failed(Cid(1));
        assert!(pairs.is_open() && !pairs.awaits_second());
        assert!(matches!(pairs.place(&command(2, nvm::WRITE, 2)).part, FusedPart::Refused(_)));
    }
}
