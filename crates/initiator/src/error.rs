//! Errors of a connected controller, and its states. Why a connection could not be made is in
//! `error/connect_error.rs`. Knows nothing of commands and connections.

pub(crate) mod connect_error;
pub(crate) mod state;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ebof_nvme::{Nsid, Status};
use ebof_tcp::Termination;
use ebof_verbs::WorkStatus;
use rustix::io::Errno;

use connect_error::{ConnectError, errno_text};
use state::State;

/// Why a command failed, or a call that runs commands.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The controller completed a command with something other than success.
    #[error("{command}: {status}")]
    Status {
        /// The command's name in the specification.
        command: &'static str,
        /// The status.
        status: Status,
    },
    /// The connection was lost while the command was outstanding: it may or may not have been
    /// executed.
    #[error("the connection was lost: {0}")]
    Lost(Loss),
    /// The command was not answered in time. It may or may not have been executed.
    #[error("no answer within {after_ms} ms")]
    Timeout {
        /// The time waited.
        after_ms: u64,
    },
    /// There is no connection; the command was not sent.
    #[error("not connected: {0}")]
    NotConnected(NotConnected),
    /// As many commands are outstanding as the queue holds.
    #[error("the queue is full")]
    QueueFull,
    /// All I/O queues that the controller granted are in use.
    #[error("all {granted} I/O queues that the controller granted are in use")]
    NoFreeQueue {
        /// Granted queues.
        granted: u16,
    },
    /// The data do not fit into one command.
    #[error("{bytes} bytes are more than one command can carry")]
    TooLarge {
        /// Length of the data.
        bytes: usize,
    },
    /// What was read changed before it was read completely, again and again.
    #[error("{0} changes faster than it can be read")]
    Unsettled(&'static str),
    /// No active namespace has this identifier.
    #[error("there is no namespace {0}")]
    NoSuchNamespace(Nsid),
    /// The NSID refers to another namespace than when it was opened; the command was not sent.
    #[error(
        "namespace {nsid} is another one than before: it was deleted and created again, or the target serves something \
         else under its number; nothing was sent to it, and it has to be opened anew"
    )]
    Replaced {
        /// The namespace.
        nsid: Nsid,
    },
    /// Over one path of a subsystem the namespace is another one than over the others, or has
    /// another size or format.
    #[error(transparent)]
    PathsDiffer(Arc<PathsDiffer>),
    /// The namespace is formatted in a way that cannot be used here.
    #[error("namespace {nsid} cannot be used: {reason}")]
    Format {
        /// The namespace.
        nsid: Nsid,
        /// What is wrong with the format.
        reason: &'static str,
    },
    /// The length is not a multiple of the block size.
    #[error("{bytes} bytes are not a multiple of the block size of {block_bytes} bytes")]
    Unaligned {
        /// Length of the data.
        bytes: usize,
        /// Block size.
        block_bytes: u32,
    },
    /// The blocks are not all within the namespace.
    #[error("blocks {lba} to {} are not within the namespace of {size} blocks", .lba.saturating_add(*.blocks).saturating_sub(1))]
    OutOfRange {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u64,
        /// Size of the namespace in blocks.
        size: u64,
    },
    /// A range of a copy overlaps the destination; nothing was sent.
    #[error("blocks {lba} to {} cannot be copied to {to} to {}: they overlap",
        .lba.saturating_add(*.blocks).saturating_sub(1), .to.saturating_add(*.total).saturating_sub(1))]
    Overlap {
        /// First block of a range.
        lba: u64,
        /// Its blocks.
        blocks: u64,
        /// First block of the destination.
        to: u64,
        /// Blocks of all ranges together.
        total: u64,
    },
    /// The controller's answer violates the specification or contradicts itself.
    #[error("the controller's answer makes no sense: {0}")]
    Malformed(&'static str),
    /// A queue could not be connected.
    #[error(transparent)]
    Connect(Arc<ConnectError>),
    /// The controller has no thread of its own, so a call that waits for it would wait for ever;
    /// nothing was done. [`crate::stepped`] has the same operations in steps.
    #[error("the controller is stepped by its caller: use the operations of `stepped`, which do not wait")]
    Stepped,
    /// The operating system refused something.
    #[error("{action}: {}", errno_text(*.errno))]
    System {
        /// What was tried.
        action: &'static str,
        /// The answer.
        errno: Errno,
    },
}

/// A namespace that is not the same over all paths of a subsystem.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "namespace {nsid} is not the same over all paths: the {what} is {there} by {address}, and {here} by the others; two \
     targets may have one subsystem only if they have the same data"
)]
pub struct PathsDiffer {
    /// The namespace.
    pub nsid: Nsid,
    /// The path that differs.
    pub address: Arc<str>,
    /// What differs: `size in blocks`.
    pub what: &'static str,
    /// By the paths before it.
    pub here: Arc<str>,
    /// By this one.
    pub there: Arc<str>,
}

impl Error {
    /// The kind of error in kebab-case, for output that programs read. Stable.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::Lost(_) => "connection-lost",
            Self::Timeout { .. } => "timeout",
            Self::NotConnected(_) => "not-connected",
            Self::QueueFull => "queue-full",
            Self::NoFreeQueue { .. } => "no-free-queue",
            Self::TooLarge { .. } => "too-large",
            Self::Unsettled(_) => "unsettled",
            Self::NoSuchNamespace(_) => "no-such-namespace",
            Self::Replaced { .. } => "namespace-replaced",
            Self::PathsDiffer(_) => "paths-differ",
            Self::Format { .. } => "unusable-format",
            Self::Unaligned { .. } => "unaligned",
            Self::OutOfRange { .. } => "out-of-range",
            Self::Overlap { .. } => "overlap",
            Self::Malformed(_) => "malformed-answer",
            Self::Connect(_) => "connect",
            Self::Stepped => "stepped",
            Self::System { .. } => "system",
        }
    }

    /// The NVMe status, when that is what failed.
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the command was sent, and the controller may have executed it, or still will.
    #[must_use]
    pub const fn is_fate_unknown(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Timeout { .. })
    }

    /// Whether the command may succeed over a new connection.
    #[must_use]
    pub const fn is_connection(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Timeout { .. } | Self::NotConnected(_) | Self::Connect(_))
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Self::Connect(Arc::new(error))
    }
}

/// Why there is no connection: see [`Error::NotConnected`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotConnected {
    /// The controller's state.
    pub state: State,
    /// The target's address: `127.0.0.1:4420`.
    pub address: Arc<str>,
    /// How long the connection has been lost.
    pub lost_for: Duration,
    /// After what time of loss the controller is given up; `None` for never.
    pub limit: Option<Duration>,
}

impl fmt::Display for NotConnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = &self.address;
        match (self.state, self.limit) {
            (State::Dead, _) => write!(f, "{address} did not come back in time and was given up"),
            (State::Disconnected, _) => write!(f, "disconnected from {address} on request"),
            // Live: this connection is lost, but the background thread has not noticed yet.
            (State::Reconnecting | State::Live, limit) => {
                let away = self.lost_for.as_secs();
                write!(f, "the connection to {address} was lost {away} s ago; trying to reconnect ")?;
                match limit {
                    Some(limit) => write!(f, "for {} s more", limit.saturating_sub(self.lost_for).as_secs()),
                    None => f.write_str("without a limit of time"),
                }
            }
        }
    }
}

/// How a connection was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// The target closed it.
    #[error("the target closed the connection")]
    Closed,
    /// The network or the target's operating system broke it.
    #[error("{}", errno_text(*.0))]
    Network(Errno),
    /// The target violated the protocol.
    #[error("the target broke the protocol: {0}")]
    Protocol(Arc<str>),
    /// The header of a PDU did not match its digest.
    #[error("the target broke the protocol: {0}")]
    HeaderDigest(Arc<str>),
    /// The target ended it with a reason (`C2HTermReq`).
    #[error("the target ended the connection: {0}")]
    Terminated(Termination),
    /// The RDMA adapter reported that work on the queue has failed.
    #[error("RDMA work failed: {0}")]
    Rdma(WorkStatus),
    /// The RDMA adapter reported an event that ends the connection.
    #[error("{0}")]
    RdmaEvent(&'static str),
    /// A function of rdma-core failed.
    #[error("{call}: {}", errno_text(*.errno))]
    RdmaCall {
        /// Its name.
        call: &'static str,
        /// What it returned.
        errno: Errno,
    },
    /// Keep Alive was not answered in time.
    #[error("the target did not answer Keep Alive")]
    KeepAlive,
    /// A command was not answered in time and could not be aborted.
    #[error("the target did not answer a command in time, nor its abort")]
    CommandTimeout,
    /// Another connection of the same controller was lost, which ends all of them.
    #[error("another connection of the controller was lost")]
    Association,
    /// It was closed on request.
    #[error("it was closed on request")]
    Requested,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_reported_with_address_and_times() {
        let text = |state, lost_s, limit_s: Option<u64>| {
            let lost_for = Duration::from_secs(lost_s);
            let limit = limit_s.map(Duration::from_secs);
            NotConnected { state, address: "192.0.2.1:4420".into(), lost_for, limit }.to_string()
        };
        let lost = "the connection to 192.0.2.1:4420 was lost 4 s ago; trying to reconnect ";
        assert_eq!(text(State::Reconnecting, 4, Some(600)), format!("{lost}for 596 s more"));
        assert_eq!(text(State::Live, 4, Some(3)), format!("{lost}for 0 s more"));
        assert_eq!(text(State::Reconnecting, 4, None), format!("{lost}without a limit of time"));
        assert_eq!(text(State::Dead, 4, Some(3)), "192.0.2.1:4420 did not come back in time and was given up");
        assert_eq!(text(State::Disconnected, 4, None), "disconnected from 192.0.2.1:4420 on request");
    }

    #[test]
    fn a_command_that_timed_out_is_reported_with_the_time() {
        let error = crate::link::stop::Stop::TimedOut.into_error(Duration::from_millis(1500));
        assert_eq!(error.to_string(), "no answer within 1500 ms");
    }
}
