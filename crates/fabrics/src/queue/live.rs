//! What a connection is after Connect, with its counters and its entries in the error log.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use ebof_drive::error_log::Error;
use ebof_nvme::opcode::{FABRICS, nvm};
use ebof_nvme::{Cid, Nsid, QueueId, Sqe, Status};

use super::Role;
use crate::association::{Association, Counters};
use crate::connect::authentication::Authenticator;
use crate::connect::{SubmissionQueue, Tolerated};
use crate::task::executing::Executing;
use crate::task::handle::Handle;
use crate::task::outcome::Fault;

/// A queue after Connect.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: QueueId,
    pub(crate) handle: Handle,
    pub(crate) association: Arc<Association>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) last_command_ms: u64,
    pub(crate) tolerated: Option<Tolerated>,
    pub(crate) submission_queue: SubmissionQueue,
    pub(crate) role: Role,
    /// Of a host that has to prove who it is, and may have to again.
    pub(crate) authenticator: Option<Box<Authenticator>>,
}

impl Live {
    /// Whether its gate is shut until the host has authenticated.
    pub(crate) fn is_due(&self) -> bool {
        self.authenticator.as_ref().is_some_and(|authenticator| authenticator.is_due())
    }

    /// Whether a PSK for TLS was generated with its host.
    pub(super) fn has_generated(&self) -> bool {
        self.authenticator.as_ref().is_some_and(|authenticator| authenticator.has_generated())
    }

    #[inline]
    pub(super) fn count(&self, opcode: u8, length: u32) {
        match (&self.role, opcode) {
            (Role::Io(_), nvm::READ | nvm::COMPARE | nvm::VERIFY) => self.counters.count_read(length),
            (Role::Io(_), nvm::WRITE) => self.counters.count_write(length),
            (Role::Io(_), nvm::WRITE_ZEROES) => self.counters.count_write(0),
            // Base, SMART Host Read Command, SMART Data Units Read Command: it reads user data; and
            // it writes them.
            (Role::Io(_), nvm::COPY) => {
                self.counters.count_read(length);
                self.counters.count_write(length);
            }
            _ => self.counters.count_other(),
        }
    }

    /// Enters a failed command into counters and error log; its status, with M set if the log has
    /// it.
    pub(super) fn record(&self, subject: &FailedCommand, fault: Fault) -> Status {
        let mut status = fault.status;
        // The error log and the counters are others' as well.
        if matches!(self.role, Role::Gated(_)) {
            return status;
        }
        if status.is(Status::NAMESPACE_NOT_READY) && !status.is_dnr() {
            self.association.has_refused.store(true, Ordering::Relaxed);
            // Deviation: Linux repeats a command five times, and at once unless it is told to wait.
            if self.association.retry_delays.load(Ordering::Relaxed) {
                status = status.retry_after(1);
            }
        }
        // Neither is anything wrong with the command or the drive.
        if [Status::COMPARE_FAILURE, Status::ABORT_REQUESTED, Status::ABORTED_SQ_DELETION].iter().any(|&s| status.is(s))
        {
            self.counters.count_error(false);
            return status;
        }
        self.counters.count_error(status.code_type() == 2);
        let io = matches!(self.role, Role::Io(_));
        let entry = Error {
            queue: self.id,
            cid: subject.cid,
            status: status.more(),
            location: fault.location,
            nsid: if subject.opcode == FABRICS { Nsid::NONE } else { subject.nsid },
            lba: if io { subject.lba } else { 0 },
            opcode: subject.opcode,
            information: fault.detail.information(),
        };
        if self.association.errors.record(&entry) { status.more() } else { status }
    }
}

/// What the error log wants to know about a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedCommand {
    pub(super) cid: Cid,
    pub(super) opcode: u8,
    pub(super) nsid: Nsid,
    pub(super) lba: u64,
}

impl FailedCommand {
    pub(super) fn of_command(sqe: &Sqe) -> Self {
        let lba = u64::from(sqe.cdw10.get()) | u64::from(sqe.cdw11.get()) << 32;
        Self { cid: sqe.cid(), opcode: sqe.opcode, nsid: sqe.nsid(), lba }
    }

    pub(super) fn of_ticket(executing: &Executing) -> Self {
        let cid = executing.cid();
        let opcode = executing.opcode();
        let nsid = executing.nsid();
        Self { cid, opcode, nsid, lba: executing.starting_lba() }
    }
}
