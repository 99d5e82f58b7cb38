//! Connect: which hosts may have a queue, and how others are refused (NVMe over Fabrics, Connect
//! Command).

pub(crate) mod authentication;

use alloc::string::String;

use ebof_nvme::connect::{Connect, ConnectData, ConnectResult};
use ebof_nvme::opcode::{Direction, fabrics};
use ebof_nvme::{ControllerId, HostId, Nqn, QueueId, Sqe, Status, Uuid};
use zerocopy::FromBytes;

use crate::model::PortId;
use crate::model::secrets::Channel;
use crate::task::Task;
use crate::task::executing::Executing;
use crate::task::handle::Handle;
use crate::task::outcome::{Decision, Fault, Outcome, SglRules, byte};

/// How a connection came.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The target's name for the connection.
    pub handle: Handle,
    /// The port that accepted it.
    pub port: PortId,
    /// The local address that the host reached, without the TCP port: what discovery says for
    /// wildcard listeners.
    pub local: String,
    /// The host's address, for status and connection log.
    pub peer: String,
    /// As much of it as its owner cannot choose: those with the name of a host that have proven
    /// nothing are told apart by it.
    pub network: String,
    /// What the connection is worth as a proof of who the host is.
    pub channel: Channel,
    /// A random number for the controller that it may become the Admin Queue of (CIRN); 0 for none.
    pub random: u64,
}

/// What a host that is attached directly would say in a Connect: its transport has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The queue: the Admin Queue, or an I/O queue of its controller.
    pub queue: QueueId,
    /// Entries of the queue.
    pub entries: u32,
    /// The controller of an I/O queue; [`ControllerId::DYNAMIC`] for the Admin Queue.
    pub controller: ControllerId,
    /// The subsystem.
    pub subsystem: Nqn,
    /// NQN of the host.
    pub host: Nqn,
    /// Its host identifier.
    pub host_id: HostId,
}

/// What a host and its controller agree on about a Submission Queue. The link that brings the
/// commands keeps its head and tail; a [`Queue`](crate::Queue) takes no more commands at a time
/// than there are entries, and knows nothing else of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmissionQueue {
    /// Entries, at least two.
    pub entries: u16,
    /// The host has disabled SQ flow control: it does not look at the head (SQHD) in completions.
    pub flow_disabled: bool,
}

/// A Connect that was refused, for the connection log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// The status that was sent to the host.
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
    /// The subsystem is missing for a moment.
    #[error("the subsystem is being opened anew")]
    SubsystemReturning,
    /// The subsystem is disabled.
    #[error("the subsystem is disabled")]
    SubsystemDisabled,
    /// The function whose subsystem it is is offline: on no port, for now.
    #[error("the function is offline")]
    FunctionOffline,
    /// The host is not on the subsystem's list.
    #[error("the host is not allowed to use this subsystem")]
    HostNotAllowed,
    /// The subsystem wants a proof of who the host is, and has no secret of it.
    #[error("the subsystem only admits hosts that prove who they are, and has no secret of this one")]
    NoSecret,
    /// The port or the subsystem wants TLS, and the connection has none.
    #[error("only hosts over TLS are admitted here, and this connection has none")]
    TlsRequired,
    /// The PSK of the connection is one of other names, or was taken away since.
    #[error("the host's TLS key is of another host NQN or subsystem than it says in Connect, or was taken away")]
    TlsIdentity,
    /// Another host NQN uses the same host identifier, or has proven that it has it.
    #[error("another host NQN is connected with the same host identifier, or has proven that it is its own")]
    HostIdInUse,
    /// CNTLID of an I/O queue names no controller of the subsystem.
    #[error("there is no such controller")]
    UnknownController,
    /// CNTLID of an Admin Queue is not FFFFh.
    #[error("controllers cannot be chosen: CNTLID of an admin queue has to be FFFFh")]
    StaticController,
    /// The host NQN or port differ from those of the controller's Admin Queue.
    #[error("the controller belongs to another host, or was connected through another port")]
    OtherHost,
    /// All controllers are in use.
    #[error("no free controller")]
    ControllersExhausted,
    /// The host has as many controllers or queues as one host may have.
    #[error("the host has as many controllers or connections as one host may have")]
    HostShare,
    /// The queues of a drive have as many entries together as its profile allows.
    #[error("the drive's queues have as many entries together as its profile allows")]
    EntriesExhausted,
    /// QID above what Number of Queues granted, or an I/O queue of a discovery controller.
    #[error("the queue identifier is not within what was granted")]
    QueueId,
    /// The queue exists already.
    #[error("the queue exists already")]
    QueueInUse,
    /// An I/O queue before CSTS.RDY.
    #[error("the controller is not ready")]
    NotReady,
    /// Commands of the host's earlier queues are still at a device, for longer than a Connect can
    /// wait.
    #[error("commands of the host's earlier queues are still under way at a device")]
    Draining,
    /// The port that accepted the connection is no longer configured.
    #[error("the port is being removed")]
    PortRemoved,
}

/// A Connect, decoded: what the host wants.
#[derive(Clone, Debug)]
pub(crate) struct ConnectRequest {
    pub(crate) connect: Connect,
    pub(crate) cntlid: ControllerId,
    pub(crate) host_id: HostId,
    /// The host's name; where it said none, one made of its identifier.
    pub(crate) host: Nqn,
    pub(crate) nameless: bool,
    pub(crate) subsystem: Nqn,
}

impl From<&Attachment> for ConnectRequest {
    fn from(attachment: &Attachment) -> Self {
        let Attachment { queue, entries, controller, subsystem, host, host_id } = attachment.clone();
        // An attached host sends no Keep Alive, and its transport keeps the head of its queue.
        let connect = Connect { recfmt: 0, qid: queue, entries, cattr: Connect::CATTR_DISABLE_SQ_FLOW, kato_ms: 0 };
        Self { connect, cntlid: controller, host_id, host, nameless: false, subsystem }
    }
}

/// What is wrong with a Connect that was accepted nevertheless, for the log of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Tolerated {
    /// HOSTNQN is empty.
    #[error("the host said no NQN: it goes by one made of its host identifier")]
    NoHostNqn,
    /// HOSTID of an I/O queue is neither that of the Admin Queue nor zeros.
    #[error("the host identifier is not that of the Admin Queue, which counts")]
    OtherHostId,
}

/// Takes a command before the queue is connected: it can only be Connect.
pub(crate) fn submit(sqe: &Sqe) -> Outcome {
    if sqe.fctype() != Some(fabrics::CONNECT) {
        return Err(Fault::new(Status::COMMAND_SEQUENCE_ERROR));
    }
    // The transport of the queue is not known here; it refuses descriptors that it does not have.
    let rules = SglRules { capsule_bytes: 8192, keyed: true, memory: None };
    let length = rules.exactly(sqe, Direction::HostToController, ConnectData::BYTES as u64)?;
    Ok(Decision::Go(Task::Connect, length))
}

/// Decodes command and data as far as they are well-formed; the refusal contains what could be read
/// before the fault.
pub(crate) fn decode(
    executing: &Executing,
    data: &[u8],
) -> Result<ConnectRequest, (RefusalReason, Option<Nqn>, Option<Nqn>)> {
    let connect = Connect::decode(&executing.sqe());
    if connect.recfmt != 0 {
        return Err((RefusalReason::Format, None, None));
    }
    let data = ConnectData::ref_from_bytes(data).map_err(|_| (RefusalReason::Length, None, None))?;
    let subsystem = Nqn::from_field(&data.subnqn);
    let nameless = data.hostnqn[0] == 0;
    // Deviation: the specification wants an NQN. SPDK's perf sends none unless one is configured,
    // and SPDK's and Linux' targets take that where any host may connect. Such a host is identified
    // by its identifier.
    let host = if nameless { Ok(Nqn::from_uuid(Uuid(data.hostid))) } else { Nqn::from_field(&data.hostnqn) };
    let (subsystem, host) = match (subsystem, host) {
        (Ok(subsystem), Ok(host)) => (subsystem, host),
        (Err(_), host) => return Err((RefusalReason::MalformedSubsystem, host.ok(), None)),
        (Ok(subsystem), Err(_)) => return Err((RefusalReason::MalformedHost, None, Some(subsystem))),
    };
    Ok(ConnectRequest {
        connect,
        cntlid: ControllerId(data.cntlid.get()),
        host_id: data.host_id(),
        host,
        nameless,
        subsystem,
    })
}

impl RefusalReason {
    /// The status for the host. DNR, with which Linux (6.10 and later) gives a controller up for
    /// good, where an administrator has to do something first, or the command can never succeed; as
    /// Linux' target does. What may be otherwise a moment later, because another host leaves or the
    /// host begins a new association, goes without.
    pub(crate) fn fault(self) -> Fault {
        let invalid = |in_data, offset| {
            let result = ConnectResult::Invalid { in_data, offset }.encode();
            Fault::transient(Status::CONNECT_INVALID_PARAMETERS).with_result(result)
        };
        let never = |fault: Fault| Fault { status: fault.status.dnr(), ..fault };
        match self {
            Self::Format => Fault::at(Status::CONNECT_INCOMPATIBLE_FORMAT, byte::CDW10),
            Self::Length => Fault::new(Status::DATA_SGL_LENGTH_INVALID),
            Self::MalformedSubsystem => never(invalid(true, ConnectData::SUBNQN_OFFSET)),
            Self::MalformedHost => never(invalid(true, ConnectData::HOSTNQN_OFFSET)),
            Self::QueueSize => never(invalid(false, Connect::SQSIZE_OFFSET)),
            Self::QueueId => never(invalid(false, Connect::QID_OFFSET)),
            Self::UnknownSubsystem => never(invalid(true, ConnectData::SUBNQN_OFFSET)),
            Self::SubsystemReturning | Self::SubsystemDisabled | Self::FunctionOffline | Self::PortRemoved => {
                invalid(true, ConnectData::SUBNQN_OFFSET)
            }
            Self::HostNotAllowed | Self::NoSecret | Self::TlsRequired | Self::TlsIdentity => {
                Fault::new(Status::CONNECT_INVALID_HOST)
            }
            Self::StaticController => never(invalid(true, ConnectData::CNTLID_OFFSET)),
            Self::HostIdInUse => invalid(true, ConnectData::HOSTID_OFFSET),
            Self::UnknownController => invalid(true, ConnectData::CNTLID_OFFSET),
            Self::OtherHost => invalid(true, ConnectData::HOSTNQN_OFFSET),
            Self::ControllersExhausted | Self::HostShare | Self::EntriesExhausted | Self::Draining => {
                Fault::transient(Status::CONNECT_CONTROLLER_BUSY)
            }
            Self::QueueInUse | Self::NotReady => Fault::transient(Status::COMMAND_SEQUENCE_ERROR),
        }
    }
}
