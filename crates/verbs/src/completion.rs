//! What becomes of posted work.

use std::fmt;

/// Something that was posted is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkCompletion {
    /// A message is in a receive slot, which belongs to the owner of the queue pair until it posts
    /// it again.
    Received {
        /// The slot.
        slot: u32,
        /// Bytes of the message.
        length: u32,
        /// The key that the peer has invalidated with it.
        invalidated: Option<u32>,
    },
    /// The peer's adapter has a message; its slot is free again.
    Sent {
        /// The slot.
        slot: u32,
    },
    /// An RDMA READ, or an RDMA WRITE with an id, has moved its data.
    Done {
        /// As posted.
        id: u64,
    },
    /// Something was not done, or not completely. The queue pair is in error: everything that is
    /// posted comes back like this.
    Failed {
        /// What it was. Receive and send slots, and buffers, belong to the owner again.
        what: WorkRequest,
        /// What the adapter reports; [`WorkStatus::Flushed`] if something before it had failed.
        status: WorkStatus,
    },
}

/// What was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkRequest {
    /// A receive slot.
    Receive(u32),
    /// A send slot.
    Send(u32),
    /// An RDMA READ or WRITE with this id.
    Operation(u64),
    /// An RDMA WRITE without an id.
    Unsignalled,
}

/// Why work has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkStatus {
    /// The queue pair was in error before it was done.
    Flushed,
    /// A message was longer than its slot.
    LocalLength,
    /// The memory of this end is not registered as it should be.
    LocalProtection,
    /// The peer refused the key, or the range.
    RemoteAccess,
    /// The peer could not take it, such as a message longer than its slot.
    RemoteInvalidRequest,
    /// The peer's adapter failed.
    RemoteOperation,
    /// The peer did not acknowledge it: it is gone, or the network is broken.
    RetryExceeded,
    /// The peer had posted no receive for it.
    RnrRetryExceeded,
    /// Another one, by its number in `enum ibv_wc_status`.
    Other(u32),
}

impl fmt::Display for WorkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flushed => "flushed, since the queue pair was in error",
            Self::LocalLength => "the message is longer than the receive buffer",
            Self::LocalProtection => "the memory of this end is not registered for it",
            Self::RemoteAccess => "the other end refuses the memory key or the range",
            Self::RemoteInvalidRequest => "the other end cannot accept the request",
            Self::RemoteOperation => "the other end's adapter failed",
            Self::RetryExceeded => "the other end does not answer",
            Self::RnrRetryExceeded => "the other end has posted no receive buffer",
            // Soft-RoCE reports messages that are too long like this.
            Self::Other(2) => "the adapter cannot do the work, such as to receive a long message (status 2)",
            Self::Other(number) => return write!(f, "work completion status {number}"),
        })
    }
}
