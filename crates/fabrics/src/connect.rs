//! Connect: who may have a queue, and what to say to those who may not (NVMe over Fabrics, Connect Command).

use alloc::string::String;

use ebof_nvme::{Nqn, QueueId, Status};

use crate::model::PortId;
use crate::registry::Handle;

/// How a connection came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The target's name for the connection.
    pub handle: Handle,
    /// The port that accepted it.
    pub port: PortId,
    /// The local address that the host reached, without the TCP port: what discovery says for wildcard listeners.
    pub local: String,
    /// The host's address, for status and journal.
    pub peer: String,
}

/// A Connect that was refused, for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// What the host was told.
    pub status: Status,
    /// The queue that it wanted.
    pub queue: QueueId,
    /// Host NQN, if it was legible.
    pub host: Option<Nqn>,
    /// Subsystem NQN, if it was legible.
    pub subsystem: Option<Nqn>,
}

/// Why a Connect was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RefusalReason {
    /// RECFMT is not 0.
    #[error("the record format of the Connect command is unknown")]
    Format,
    /// Not 1024 bytes of Connect data.
    #[error("the Connect data is not 1024 bytes long")]
    Length,
    /// SUBNQN is not an NQN.
    #[error("the subsystem NQN is malformed")]
    MalformedSubsystem,
    /// HOSTNQN is not an NQN.
    #[error("the host NQN is malformed")]
    MalformedHost,
    /// SQSIZE is 0 or above MQES.
    #[error("the queue size is not within what the port allows")]
    QueueSize,
    /// No subsystem of that name on that port.
    #[error("there is no such subsystem on this port")]
    UnknownSubsystem,
    /// The host is not on the subsystem's list.
    #[error("the host is not allowed to use this subsystem")]
    HostNotAllowed,
    /// Another host NQN uses the same host identifier.
    #[error("another host NQN is connected with the same host identifier")]
    HostIdInUse,
    /// CNTLID names no controller of this host's, or a static one was asked for.
    #[error("there is no such controller")]
    UnknownController,
    /// The host NQN, host identifier or port differ from those of the controller's Admin Queue.
    #[error("the host is not the one that the controller belongs to")]
    OtherHost,
    /// All controllers are in use.
    #[error("no free controller")]
    ControllersExhausted,
    /// QID above what Number of Queues granted, or an I/O queue of a discovery controller.
    #[error("the queue identifier is not within what was granted")]
    QueueId,
    /// The queue exists already.
    #[error("the queue exists already")]
    QueueInUse,
    /// An I/O queue before CSTS.RDY.
    #[error("the controller is not ready")]
    NotReady,
    /// The port that accepted the connection is no longer configured.
    #[error("the port is being removed")]
    PortRemoved,
}
