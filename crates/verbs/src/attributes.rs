//! What a queue pair is made with, and what its ends tell each other.

use std::time::Duration;

use crate::SharedReceives;

/// The sizes of a queue pair. All its memory and all entries of its queues are allocated when it is
/// opened.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// Slots for messages of the peer; all are posted when the queue pair is opened. With
    /// `shared_receives` not used.
    pub receives: u32,
    /// Size of each, in bytes: a longer message breaks the connection. With `shared_receives` not
    /// used.
    pub receive_bytes: u32,
    /// Slots for messages to the peer.
    pub sends: u32,
    /// Size of each, in bytes.
    pub send_bytes: u32,
    /// Entries of the send queue for RDMA READs and WRITEs, beside those for the messages.
    pub operations: u32,
    /// Memory windows that can be bound at a time; each binding, and each invalidation, is one of
    /// the `operations` while it is under way.
    pub windows: u32,
    /// Takes its messages from slots that it shares with others, instead of slots of its own.
    pub shared_receives: Option<SharedReceives>,
    /// The owner polls and never waits: there are no notifications of completions, only of events.
    pub polled: bool,
}

/// How to make a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Type of service of its packets.
    pub tos: Option<u8>,
    /// How long each of the steps, address and route, may take.
    pub timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { tos: None, timeout: Duration::from_secs(2) }
    }
}

/// What one end says when the connection is made, and how its adapter behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Handshake<'a> {
    /// For the layer above; limits are
    /// [`REQUEST_PRIVATE_DATA_MAX`](crate::REQUEST_PRIVATE_DATA_MAX) and
    /// [`ACCEPT_PRIVATE_DATA_MAX`](crate::ACCEPT_PRIVATE_DATA_MAX).
    pub private_data: &'a [u8],
    /// How many RDMA READs of the peer this end serves at a time.
    pub responder_resources: u8,
    /// How many RDMA READs this end has outstanding at most; more are delayed by the adapter.
    pub initiator_depth: u8,
    /// How often something that was not acknowledged is sent again, 0 to 7.
    pub retry_count: u8,
    /// How often a message is sent again that the peer had no receive for, 0 to 6; 7: until it has
    /// one.
    pub rnr_retry_count: u8,
}
