//! The in-memory transport: a queue between a host and a target in one process. Linux calls its own
//! `loop`.
//!
//! Whole commands, data and completions are passed, without a byte stream and PDUs. There is no
//! thread, no socket and no descriptor: an end that waits provides a [`Bell`], which the other end
//! rings.
//!
//! | from | | to |
//! |---|---|---|
//! | [`HostEnd::submit`] | [`Capsule`]: a command, and the data that the controller may fetch | [`TargetEnd::take`] |
//! | [`TargetEnd::complete`] | [`CompletionMessage`]: data for the host, and the result of the command | [`HostEnd::poll`] |
//!
//! Commands have a transport SGL for their data ([`ebof_nvme::Sgl::Transport`]), and none in their
//! capsule. Data of the host are shared, and the target copies them when it has a buffer, like an
//! RDMA READ. Data of the controller are moved.
//!
//! A connection is one queue, as in NVMe/TCP: it begins with Connect, or is attached to a
//! controller without one. It holds at most as many commands as its size, counted until their
//! completions are polled.
#![forbid(unsafe_code)]

mod ends;
mod pipe;
mod port;

pub use ends::{Breaker, Closed, HostEnd, SubmitError, TargetEnd, pair};
pub use port::{ConnectError, Port};

use std::sync::Arc;

use ebof_nvme::{ControllerId, Cqe, HostId, Nqn, QueueId, Sqe};

/// Wakes one end. Called on the other end's thread, without a lock, when something arrives at an
/// end that had nothing, and when the connection ends. It must not block.
pub type Bell = Arc<dyn Fn() + Send + Sync>;

/// A host that is attached to a target directly, without a Connect: see [`Port::attach`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The queue.
    pub queue: QueueId,
    /// The controller of an I/O queue; [`ControllerId::DYNAMIC`] for the Admin Queue, which creates
    /// one.
    pub controller: ControllerId,
    /// The subsystem.
    pub subsystem: Nqn,
    /// The host's NQN, and
    pub host: Nqn,
    /// its identifier.
    pub host_id: HostId,
}

/// A command for the target.
#[derive(Clone, Debug)]
pub struct Capsule {
    /// The command.
    pub sqe: Sqe,
    /// The data that its SGL describes, if any.
    pub data: Option<Arc<[u8]>>,
}

/// A completion for the host.
#[derive(Clone, Debug)]
pub struct CompletionMessage {
    /// The completion queue entry.
    pub cqe: Cqe,
    /// The data that the command requested; empty if it failed or requested none.
    pub data: Vec<u8>,
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
