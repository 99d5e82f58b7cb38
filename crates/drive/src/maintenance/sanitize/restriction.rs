//! Which commands are executed while the drive is sanitized, or after that has failed.
//!
//! NVMe Base 2.1, "Admin Command Processing Restrictions", "Sanitize Operation Restrictions".

use ebof_nvme::Status;
use ebof_nvme::feature::Fid;
use ebof_nvme::log::Lid;
use ebof_nvme::opcode::{FABRICS, admin, nvm};

use crate::request::Refusal;

/// The restriction of commands during an operation, or after one that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restriction {
    status: Status,
}

impl Restriction {
    /// Commands are refused with this status.
    pub(super) const fn new(status: Status) -> Self {
        Self { status }
    }

    /// Whether an admin command, or a Fabrics command, is executed: `cdw10` names its log page or
    /// feature. Error Information is returned without LBAs.
    ///
    /// # Errors
    /// Sanitize In Progress or Sanitize Failed.
    pub fn check_admin(self, opcode: u8, cdw10: u32) -> Result<(), Refusal> {
        let [id, ..] = cdw10.to_le_bytes();
        let allowed = match opcode {
            admin::ABORT
            | admin::ASYNC_EVENT_REQUEST
            | admin::CREATE_IO_CQ
            | admin::CREATE_IO_SQ
            | admin::DELETE_IO_CQ
            | admin::DELETE_IO_SQ
            // Deviation: it is not in the specification's list, but, as those before, about queues
            // only; a host that starts meanwhile asks for it once.
            | admin::DOORBELL_BUFFER_CONFIG
            // Deviation: nor is it; it is about controllers only, and must not wait.
            | admin::CROSS_CONTROLLER_RESET
            | admin::GET_FEATURES
            | admin::IDENTIFY
            | admin::KEEP_ALIVE
            | admin::SANITIZE
            | FABRICS => true,
            admin::SET_FEATURES => Fid(id) != Fid::WRITE_PROTECTION,
            admin::GET_LOG_PAGE => ALLOWED_LOGS.contains(&Lid(id)),
            _ => false,
        };
        if allowed { Ok(()) } else { Err(self.refusal()) }
    }

    /// Whether an I/O command is executed: only Flush.
    ///
    /// # Errors
    /// Sanitize In Progress or Sanitize Failed.
    pub fn check_io(self, opcode: u8) -> Result<(), Refusal> {
        if opcode == nvm::FLUSH { Ok(()) } else { Err(self.refusal()) }
    }

    /// The status of commands that are refused, and of those in flight, which are aborted.
    #[must_use]
    pub fn status(self) -> Status {
        self.status
    }

    /// An operation ends by itself; a failure has to be recovered from first.
    fn refusal(self) -> Refusal {
        if self.status.is(Status::SANITIZE_IN_PROGRESS) {
            Refusal::transient(self.status)
        } else {
            Refusal::new(self.status)
        }
    }
}

const ALLOWED_LOGS: [Lid; 7] = [
    Lid::ERROR_INFORMATION,
    Lid::SMART_HEALTH,
    Lid::CHANGED_NAMESPACES,
    Lid::RESERVATION_NOTIFICATION,
    Lid::ANA,
    // Deviation: as the command.
    Lid::CROSS_CONTROLLER_RESET,
    Lid::SANITIZE_STATUS,
];
