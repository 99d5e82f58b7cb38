//! What becomes of a command that has not succeeded over one of several paths: one rule for
//! whoever sends commands. It decides only; who sends waits, and sends again
//! ([`Requeue::keep`](crate::Requeue::keep)).

use std::sync::Arc;

use ebof_nvme::Status;

use crate::command::fate::Fate;
use crate::command::retry::Retry;
use crate::error::Error;
use crate::shared::fence::Fence;

/// What becomes of a command that has not succeeded.
#[derive(Clone, Debug)]
pub enum PathVerdict {
    /// It is sent again at once, over another path: this one does not take it.
    Elsewhere,
    /// It is sent again after a pause for this status, if it was not sent too often.
    Later(Status),
    /// The connection is gone. It is sent again as soon as there is one, of any path, and not
    /// before the fence is over, if there is one: the controller that had it may still execute it.
    Lost(Option<Arc<Fence>>),
    /// It has failed.
    Failed,
}

/// What is to be known of the paths to a namespace when one of them has not done a command.
pub(crate) trait OtherPaths {
    /// The path refuses commands to the namespace, or has none there. Returns whether another one
    /// may take them: until the access changes, this one is not asked again.
    fn refuse(&mut self) -> bool;

    /// Whether a path may still give access to the namespace, which this one has lost for good.
    fn may_come_back(&self) -> bool;

    /// Of the association that had the command; `None` if none had it.
    fn fence(&self) -> Option<Arc<Fence>>;
}

impl PathVerdict {
    /// Of a command that a controller has completed with `status`.
    pub(crate) fn of_status(status: Status, paths: &mut impl OtherPaths) -> Self {
        if Retry::is_about_path(status) && paths.refuse() {
            return Self::Elsewhere;
        }
        // The others may refuse it now, and give access later.
        let is_waited_for = status.is(Status::ANA_PERSISTENT_LOSS) && paths.may_come_back();
        let status = if is_waited_for { Status::ANA_INACCESSIBLE } else { status };
        if Retry::from_status(status) == Retry::Never { Self::Failed } else { Self::Later(status) }
    }

    /// Of a command that has come back without a completion, or was not sent. `fate` is what may be
    /// done with it if it may have been executed.
    pub(crate) fn of_error(error: &Error, fate: Fate, paths: &mut impl OtherPaths) -> Self {
        match error {
            Error::Status { status, .. } => Self::of_status(*status, paths),
            Error::NoSuchNamespace(_)
            | Error::Replaced { .. }
            | Error::Format { .. }
            | Error::NoFreeQueue { .. }
            | Error::TooLarge { .. }
                if paths.refuse() =>
            {
                Self::Elsewhere
            }
            error if error.is_connection() => match fate {
                _ if !error.is_fate_unknown() => Self::Lost(None),
                Fate::Repeat => Self::Lost(None),
                Fate::Wait => Self::Lost(paths.fence()),
                Fate::Fail => Self::Failed,
            },
            _ => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use ebof_nvme::Nsid;

    use super::*;
    use crate::error::state::State;
    use crate::error::{Loss, NotConnected};

    /// Paths of which another one takes commands, or may later.
    struct Paths {
        takes: bool,
        may_come_back: bool,
        refusals: u32,
        fence: Option<Arc<Fence>>,
    }

    impl OtherPaths for Paths {
        fn refuse(&mut self) -> bool {
            self.refusals += 1;
            self.takes
        }

        fn may_come_back(&self) -> bool {
            self.may_come_back
        }

        fn fence(&self) -> Option<Arc<Fence>> {
            self.fence.clone()
        }
    }

    fn paths(takes: bool, may_come_back: bool) -> Paths {
        Paths { takes, may_come_back, refusals: 0, fence: Some(Arc::default()) }
    }

    #[test]
    fn a_refusal_sends_a_command_over_another_path_or_is_waited_for() {
        let of = |status, takes, may_come_back| {
            let mut paths = paths(takes, may_come_back);
            (PathVerdict::of_status(status, &mut paths), paths.refusals)
        };
        let later =
            |verdict: &PathVerdict, wanted: Status| matches!(verdict, PathVerdict::Later(status) if *status == wanted);
        for status in [Status::ANA_INACCESSIBLE, Status::ANA_TRANSITION, Status::ANA_PERSISTENT_LOSS] {
            assert!(matches!(of(status, true, false), (PathVerdict::Elsewhere, 1)), "{status}");
        }
        assert!(later(&of(Status::ANA_TRANSITION, false, false).0, Status::ANA_TRANSITION));
        assert!(later(&of(Status::ANA_PERSISTENT_LOSS, false, true).0, Status::ANA_INACCESSIBLE));
        assert!(matches!(of(Status::ANA_PERSISTENT_LOSS, false, false).0, PathVerdict::Failed));
        // What says nothing of the path is not asked for elsewhere.
        let (busy, refusals) = of(Status::INTERNAL_ERROR, true, true);
        assert!(later(&busy, Status::INTERNAL_ERROR) && refusals == 0);
        for status in [Status::RESERVATION_CONFLICT, Status::ANA_INACCESSIBLE.dnr()] {
            assert!(matches!(of(status, true, true), (PathVerdict::Failed, 0)), "{status}");
        }
    }

    // @test paths.fate
    #[test]
    fn after_a_loss_the_fate_decides_unless_the_command_was_not_sent() {
        let of = |error: &Error, fate| PathVerdict::of_error(error, fate, &mut paths(true, true));
        for unknown in [Error::Lost(Loss::Closed), Error::Timeout { after_ms: 1 }] {
            assert!(matches!(of(&unknown, Fate::Repeat), PathVerdict::Lost(None)), "{unknown}");
            assert!(matches!(of(&unknown, Fate::Wait), PathVerdict::Lost(Some(_))), "{unknown}");
            assert!(matches!(of(&unknown, Fate::Fail), PathVerdict::Failed), "{unknown}");
        }
        let why = NotConnected { state: State::Live, address: "a".into(), lost_for: Default::default(), limit: None };
        for fate in [Fate::Repeat, Fate::Wait, Fate::Fail] {
            assert!(matches!(of(&Error::NotConnected(why.clone()), fate), PathVerdict::Lost(None)), "{fate:?}");
        }
    }

    #[test]
    fn what_one_path_cannot_do_another_may() {
        let gone = Error::NoSuchNamespace(Nsid(1));
        assert!(matches!(PathVerdict::of_error(&gone, Fate::Wait, &mut paths(true, false)), PathVerdict::Elsewhere));
        assert!(matches!(PathVerdict::of_error(&gone, Fate::Wait, &mut paths(false, true)), PathVerdict::Failed));
        let refused = Error::Status { command: "Write", status: Status::ANA_INACCESSIBLE };
        assert!(matches!(PathVerdict::of_error(&refused, Fate::Wait, &mut paths(true, false)), PathVerdict::Elsewhere));
        let mut same = paths(true, true);
        let unaligned = Error::Unaligned { bytes: 1, block_bytes: 512 };
        assert!(matches!(PathVerdict::of_error(&unaligned, Fate::Repeat, &mut same), PathVerdict::Failed));
        assert_eq!(same.refusals, 0);
    }
}
