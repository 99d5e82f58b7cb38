//! The in-memory transport: a queue between a host and a target that are in one process. Linux
//! calls its own `loop`.
//!
//! Whole commands, data and completions travel, no bytes of a stream and no PDUs. There is no
//! thread, no socket and no descriptor: whoever waits gives a [`Bell`], which the other end rings.
//!
//! | from | | to |
//! |---|---|---|
//! | [`HostEnd::submit`] | [`Capsule`]: a command, and the data that the controller may fetch | [`TargetEnd::take`] |
//! | [`TargetEnd::complete`] | [`Completion`]: data for the host, and how the command ended | [`HostEnd::poll`] |
//!
//! Commands have a transport SGL for their data ([`ebof_nvme::Sgl::Transport`]), and none in their
//! capsule. Data of the host are shared, and the target copies them when it has a buffer, as RDMA
//! READ does. Data of the controller are handed over.
//!
//! A connection is one queue, as in NVMe/TCP: it begins with Connect, or is attached to a
//! controller without one. It holds at most as many commands as it was made for, counted until
//! their completions are taken.
#![forbid(unsafe_code)]

mod ends;
mod pipe;
mod port;

pub use ends::{Breaker, Closed, HostEnd, SubmitError, TargetEnd, pair};
pub use port::{ConnectError, Port};

use std::sync::Arc;

use ebof_nvme::{ControllerId, Cqe, HostId, Nqn, QueueId, Sqe};

/// Wakes one end up. Called by the other end's thread, without a lock held, when something has come
/// to an end that had nothing, and when the connection ends. It must not block.
pub type Bell = Arc<dyn Fn() + Send + Sync>;

/// Who is attached to a target directly, in place of a Connect, see [`Port::attach`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The queue.
    pub queue: QueueId,
    /// The controller of an I/O queue; [`ControllerId::DYNAMIC`] for the Admin Queue, which makes
    /// one.
    pub controller: ControllerId,
    /// The subsystem.
    pub subsystem: Nqn,
    /// The host's name, and
    pub host: Nqn,
    /// its identifier.
    pub host_id: HostId,
}

/// A command on its way to the target.
#[derive(Clone, Debug)]
pub struct Capsule {
    /// The command.
    pub sqe: Sqe,
    /// The data that it announces in its SGL, where it brings any.
    pub data: Option<Arc<[u8]>>,
}

/// The end of a command on its way to the host.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The completion queue entry.
    pub cqe: Cqe,
    /// The data that the command asked for; empty where it failed or asked for none.
    pub data: Vec<u8>,
}
