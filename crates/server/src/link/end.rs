//! Why a connection ends, as the log says it.

use std::io;

use ebof_fabrics::{CloseReason, RefusalReason};
use ebof_nvme::QueueId;
use ebof_tcp::{FatalError, Termination};
use ebof_verbs::WorkStatus;

use super::STALLED_MS;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("the host closed the connection")]
    PeerClosed,
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
    #[error("the host broke the transport: {0}")]
    Fatal(#[from] FatalError),
    #[error("the host broke the transport: {0}")]
    Capsule(#[from] ebof_rdma::FatalError),
    #[error(
        "the host broke the transport: Connect is for queue {connect}, and the private data were for {private_data}"
    )]
    OtherQueue { private_data: QueueId, connect: QueueId },
    #[error("the queue pair failed: {0}")]
    Work(WorkStatus),
    #[error("the connection manager says that the host cannot be reached")]
    Unreachable,
    #[error("the adapter gave up the connection ({0}), and the host has connected again")]
    CameBack(WorkStatus),
    #[error("the adapter gave up the connection ({0}), and the host has not come back")]
    Lost(WorkStatus),
    #[error("the queue pair failed: {0}")]
    QueuePair(&'static str),
    #[error("the host did not complete the RDMA connection: {0}")]
    NotEstablished(io::Error),
    #[error("the RDMA connection failed: {0}")]
    Verbs(#[from] ebof_verbs::Error),
    #[error("the RDMA device was removed")]
    DeviceRemoved,
    #[error("the host sent a TermReq: {0}")]
    TermReceived(Termination),
    #[error("the host may not be attached: {0}")]
    NotAttached(RefusalReason),
    #[error("no valid Connect within {0} ms")]
    Handshake(u64),
    #[error("the host read nothing for {STALLED_MS} ms")]
    Stalled,
    #[error("the host announced data and sent nothing for {STALLED_MS} ms")]
    Silent,
    #[error("{0}")]
    Association(CloseReason),
    #[error("the host reset the controller")]
    Reset,
    #[error("the port was removed")]
    PortGone,
    #[error("the target shuts down")]
    Shutdown,
}
