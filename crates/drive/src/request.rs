//! What is asked of a drive, by whom and when; and what it answers.

use alloc::vec::Vec;

use ebof_nvme::log::ParameterErrorLocation;
use ebof_nvme::{ControllerId, HostId, Nqn, Status};

/// Whose command it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The controller that took the command.
    pub cntlid: ControllerId,
    /// The host of that controller.
    pub host: Nqn,
    /// The host's identifier (Connect, HOSTID).
    pub host_id: HostId,
}

/// What a decision needs that a drive cannot know by itself: the time, and chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionInput {
    /// Milliseconds since 1970, as the system's clock says.
    pub unix_ms: u64,
    /// Milliseconds since the drive was opened.
    pub uptime_ms: u64,
    /// Bits that nobody can guess, new for every request: identifiers are made of them.
    pub entropy: [u8; 32],
}

/// A refusal: the status, and where in the command or its data the reason stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status for the host; Do Not Retry is set where repeating is pointless.
    pub status: Status,
    /// Byte of the command (not of its data) that is wrong, if one is.
    pub location: Option<ParameterErrorLocation>,
    /// Command Specific Information of the error log entry, 0 for none.
    pub information: u64,
}

/// What a request comes to when it is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Dwords 0 and 1 of the completion.
    Done(u64),
    /// It was done, and the host is told something besides: a status, and dwords 0 and 1 of the
    /// completion.
    Warned(Status, u64),
    /// Bytes for the host; the whole structure or log page, of which the command may want a part.
    Data(Vec<u8>),
    /// The part that the command wants of something larger; nothing where it is empty.
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
