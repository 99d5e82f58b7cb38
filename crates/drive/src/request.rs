//! Input of a drive's decisions besides the request itself, and their results.

use alloc::vec::Vec;

use ebof_nvme::log::ParameterErrorLocation;
use ebof_nvme::{ControllerId, HostId, Nqn, Status};

use crate::function::FunctionId;

/// The origin of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The controller that received the command.
    pub cntlid: ControllerId,
    /// The host of that controller.
    pub host: Nqn,
    /// The host's identifier (Connect, HOSTID).
    pub host_id: HostId,
    /// The function that the host reached the drive through; `None` for the drive's own subsystem.
    pub function: Option<FunctionId>,
    /// The box itself asks, which may do everything.
    pub is_box: bool,
}

impl Origin {
    /// A host that reached the drive through its own subsystem.
    #[must_use]
    pub fn host(cntlid: ControllerId, host: Nqn, host_id: HostId) -> Self {
        Self { cntlid, host, host_id, function: None, is_box: false }
    }

    /// The box that the drive is in: no host and no controller.
    #[must_use]
    pub fn box_() -> Self {
        // Only for messages: a host may call itself the same.
        let host = Nqn::discovery();
        Self { cntlid: ControllerId::DYNAMIC, host, host_id: HostId::default(), function: None, is_box: true }
    }
}

/// Time and random bytes for a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionInput {
    /// Milliseconds since 1970, as the system's clock says.
    pub unix_ms: u64,
    /// Milliseconds since the drive was opened.
    pub uptime_ms: u64,
    /// Random bytes for identifiers, new for every request.
    pub entropy: [u8; 32],
}

/// Why a request is refused: the status, and which byte of the command is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status for the host; with Do Not Retry if repeating is pointless.
    pub status: Status,
    /// Byte of the command (not of its data) that is wrong, if one is.
    pub location: Option<ParameterErrorLocation>,
    /// Command Specific Information of the error log entry, 0 for none.
    pub information: u64,
}

/// The answer to a request that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Dwords 0 and 1 of the completion.
    Done(u64),
    /// It was done, but completes with this status; and dwords 0 and 1 of the completion.
    Warned(Status, u64),
    /// A whole structure or log page; the command may want only a part of it.
    Data(Vec<u8>),
    /// The part of a larger structure that the command wants.
    Part(Vec<u8>),
}

impl Refusal {
    /// The command is wrong as it stands: repeating it is pointless.
    #[must_use]
    pub const fn new(status: Status) -> Self {
        Self { status: status.dnr(), location: None, information: 0 }
    }

    /// The same, with the byte of the command that is wrong.
    #[must_use]
    pub const fn at(status: Status, byte: u8) -> Self {
        Self { location: Some(ParameterErrorLocation { byte, bit: 0 }), ..Self::new(status) }
    }

    /// The command may succeed later.
    #[must_use]
    pub const fn transient(status: Status) -> Self {
        Self { status, location: None, information: 0 }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::new(status)
    }
}
