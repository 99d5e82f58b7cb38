//! What a status means for the command that got it: whether the same command may have another
//! answer, and how long to try. One table for every way to send commands that retries. Sends
//! nothing, and has no clock.

use std::time::{Duration, Instant};

use ebof_nvme::Status;

/// How often a command is retried that is not about the path, as Linux' `nvme_max_retries`.
const RETRIES_MAX: u32 = 5;
/// The pause before the first of them; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest pause while a path is unusable: an event ends it early where events are received.
const PATH_PAUSE_MAX: Duration = Duration::from_millis(250);

/// Whether a command is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No: the answer would be the same, or the controller says so (Do Not Retry).
    Never,
    /// A few times.
    Soon,
    /// Until the controller has the namespace again on this path, for as long as
    /// [`Options::path_loss_tmo`](crate::Options::path_loss_tmo).
    Path,
}

/// Statuses that say what is wrong with the command itself, what the state of the namespace
/// forbids, or that a block is lost: without DNR, too, they come again. Linux retries them five
/// times for the same answer; of a lost block, each counts as another media error of the drive.
const SAME_AGAIN: [Status; 23] = [
    Status::INVALID_OPCODE,
    Status::INVALID_FIELD,
    Status::INVALID_NAMESPACE,
    Status::COMMAND_SEQUENCE_ERROR,
    Status::INVALID_SGL_SEGMENT,
    Status::INVALID_SGL_COUNT,
    Status::DATA_SGL_LENGTH_INVALID,
    Status::METADATA_SGL_LENGTH_INVALID,
    Status::SGL_TYPE_INVALID,
    Status::PRP_OFFSET_INVALID,
    Status::ATOMIC_WRITE_UNIT_EXCEEDED,
    Status::OPERATION_DENIED,
    Status::SGL_OFFSET_INVALID,
    Status::SANITIZE_FAILED,
    Status::NAMESPACE_WRITE_PROTECTED,
    Status::PROHIBITED_BY_LOCKDOWN,
    Status::LBA_OUT_OF_RANGE,
    Status::CAPACITY_EXCEEDED,
    Status::RESERVATION_CONFLICT,
    Status::UNRECOVERED_READ_ERROR,
    Status::COMPARE_FAILURE,
    Status::ACCESS_DENIED,
    Status::DEALLOCATED_BLOCK,
];

/// Status Code Type of what a command set or Fabrics defines for single commands.
const COMMAND_SPECIFIC: u8 = 1;
/// Status Code Type of what is about the path to the namespace.
const PATH_RELATED: u8 = 3;

impl Retry {
    /// The rule for a command of the NVM command set that has completed with `status`.
    #[must_use]
    pub fn from_status(status: Status) -> Self {
        // Deviation: Linux with multipath waits for ever for another path after Persistent Loss.
        let is_lost = status.is(Status::ANA_PERSISTENT_LOSS);
        if status.is_success() || status.is_dnr() || is_lost || SAME_AGAIN.iter().any(|&same| status.is(same)) {
            return Self::Never;
        }
        match status.code_type() {
            COMMAND_SPECIFIC => Self::Never,
            PATH_RELATED => Self::Path,
            _ => Self::Soon,
        }
    }

    /// Whether `status` says nothing of the command, but that this path does not give access to the
    /// namespace, now or any more: another path may have another answer.
    #[must_use]
    pub fn is_about_path(status: Status) -> bool {
        Self::from_status(status) == Self::Path || status.is(Status::ANA_PERSISTENT_LOSS)
    }

    /// Whether `status` says nothing of the command, but that its queue is going: the connection
    /// ends, and another one may have another answer. A part of the command may be executed, and no
    /// more of it will be.
    #[must_use]
    pub fn is_about_queue(status: Status) -> bool {
        status.is(Status::ABORTED_SQ_DELETION) && !status.is_dnr()
    }
}

/// The retries of one command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retries {
    soon: u32,
    on_path: u32,
    /// When the path became unusable for the command.
    path_since: Option<Instant>,
}

impl Retries {
    /// The pause before the command is sent again, which has completed with `status`; `None` if it
    /// has failed. `path_limit` is [`Options::path_loss_tmo`](crate::Options::path_loss_tmo).
    pub fn next(&mut self, status: Status, now: Instant, path_limit: Option<Duration>) -> Option<Duration> {
        match Retry::from_status(status) {
            Retry::Never => None,
            Retry::Soon => self.once_more(),
            Retry::Path => {
                let since = *self.path_since.get_or_insert(now);
                let is_over = path_limit.is_some_and(|limit| now.saturating_duration_since(since) >= limit);
                let pause = (PAUSE * (1 << self.on_path.min(8))).min(PATH_PAUSE_MAX);
                self.on_path = self.on_path.saturating_add(1);
                (!is_over).then_some(pause)
            }
        }
    }

    /// The pause before one of the few retries; `None` once there were all of them.
    pub fn once_more(&mut self) -> Option<Duration> {
        let pause = (self.soon < RETRIES_MAX).then(|| PAUSE * (1 << self.soon));
        self.soon += u32::from(pause.is_some());
        pause
    }

    /// Whether the path was unusable for the command and has not been usable since.
    #[must_use]
    pub const fn is_on_path(&self) -> bool {
        self.path_since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux 6.12 does (`nvme_decide_disposition`): `Retry` five times; `Failover` to wait for
    /// a path, with native multipath. Each status here without DNR.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Linux {
        Retry,
        Failover,
    }

    #[test]
    fn statuses_are_retried_as_the_table_says() {
        use Linux::{Failover, Retry as Again};
        let table = [
            (Status::INVALID_OPCODE, Again, Retry::Never),
            (Status::INVALID_FIELD, Again, Retry::Never),
            (Status::CID_CONFLICT, Again, Retry::Soon),
            (Status::DATA_TRANSFER_ERROR, Again, Retry::Soon),
            (Status::POWER_LOSS_ABORT, Again, Retry::Soon),
            (Status::INTERNAL_ERROR, Again, Retry::Soon),
            (Status::ABORT_REQUESTED, Again, Retry::Soon),
            (Status::ABORTED_SQ_DELETION, Again, Retry::Soon),
            (Status::INVALID_NAMESPACE, Again, Retry::Never),
            (Status::COMMAND_SEQUENCE_ERROR, Again, Retry::Never),
            (Status::DATA_SGL_LENGTH_INVALID, Again, Retry::Never),
            (Status::OPERATION_DENIED, Again, Retry::Never),
            (Status::PREEMPT_ABORT, Again, Retry::Soon),
            (Status::SANITIZE_FAILED, Again, Retry::Never),
            (Status::SANITIZE_IN_PROGRESS, Again, Retry::Soon),
            (Status::NAMESPACE_WRITE_PROTECTED, Again, Retry::Never),
            (Status::COMMAND_INTERRUPTED, Again, Retry::Soon),
            (Status::TRANSIENT_TRANSPORT_ERROR, Again, Retry::Soon),
            (Status::PROHIBITED_BY_LOCKDOWN, Again, Retry::Never),
            (Status::LBA_OUT_OF_RANGE, Again, Retry::Never),
            (Status::CAPACITY_EXCEEDED, Again, Retry::Never),
            (Status::NAMESPACE_NOT_READY, Again, Retry::Soon),
            (Status::RESERVATION_CONFLICT, Again, Retry::Never),
            (Status::FORMAT_IN_PROGRESS, Again, Retry::Soon),
            (Status::WRITE_FAULT, Again, Retry::Soon),
            (Status::UNRECOVERED_READ_ERROR, Again, Retry::Never),
            (Status::GUARD_CHECK_ERROR, Again, Retry::Soon),
            (Status::APPLICATION_TAG_CHECK_ERROR, Again, Retry::Soon),
            (Status::REFERENCE_TAG_CHECK_ERROR, Again, Retry::Soon),
            (Status::COMPARE_FAILURE, Again, Retry::Never),
            (Status::ACCESS_DENIED, Again, Retry::Never),
            (Status::DEALLOCATED_BLOCK, Again, Retry::Never),
            // Conflicting Attributes and Attempted Write to Read Only Range of the NVM command set.
            (Status(0x180), Again, Retry::Never),
            (Status(0x182), Again, Retry::Never),
            (Status::INTERNAL_PATH_ERROR, Failover, Retry::Path),
            (Status::ANA_PERSISTENT_LOSS, Failover, Retry::Never),
            (Status::ANA_INACCESSIBLE, Failover, Retry::Path),
            (Status::ANA_TRANSITION, Failover, Retry::Path),
            (Status::CONTROLLER_PATHING_ERROR, Failover, Retry::Path),
            (Status::HOST_PATHING_ERROR, Failover, Retry::Path),
            (Status::HOST_ABORTED, Failover, Retry::Path),
            // A vendor's.
            (Status(0x7c1), Again, Retry::Soon),
        ];
        for (status, linux, here) in table {
            assert_eq!(Retry::from_status(status), here, "{status}");
            assert_eq!(Retry::from_status(status.dnr()), Retry::Never, "{status} with DNR, as on Linux");
            assert_eq!(linux == Failover, status.code_type() == PATH_RELATED, "{status}");
        }
        assert_eq!(Retry::from_status(Status::SUCCESS), Retry::Never);
    }

    #[test]
    fn a_few_retries_end_and_a_path_is_waited_for_until_the_limit() {
        let now = Instant::now();
        let mut retries = Retries::default();
        let limit = Some(Duration::from_secs(2));
        let pauses: Vec<u128> = std::iter::from_fn(|| retries.next(Status::INTERNAL_ERROR, now, limit))
            .map(|pause| pause.as_millis())
            .collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320]);
        // Path-related ones do not count among them.
        let at = |ms| now + Duration::from_millis(ms);
        assert!(retries.next(Status::ANA_INACCESSIBLE, at(0), limit).is_some() && retries.is_on_path());
        assert_eq!(retries.next(Status::ANA_TRANSITION, at(1999), limit).map(|pause| pause.as_millis()), Some(40));
        assert_eq!(retries.next(Status::ANA_INACCESSIBLE, at(2000), limit), None);
        let mut endless = Retries::default();
        for ms in 0..100_000 {
            assert!(
                endless
                    .next(Status::ANA_INACCESSIBLE, at(ms * 1000), None)
                    .is_some_and(|pause| pause <= PATH_PAUSE_MAX)
            );
        }
        assert_eq!(endless.next(Status::ANA_PERSISTENT_LOSS, now, None), None);
    }
}
