//! What happens to a connection, beside its completions.

/// Of a queue pair, from the connection manager or the adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is made. A target can have received messages before.
    Established {
        /// The target's, for a host; may be followed by zeros up to
        /// [`ACCEPT_PRIVATE_DATA_MAX`](crate::ACCEPT_PRIVATE_DATA_MAX). Nothing for a target.
        private_data: Vec<u8>,
        /// How many RDMA READs of the peer this end serves at a time.
        responder_resources: u8,
        /// How many RDMA READs this end may have outstanding.
        initiator_depth: u8,
    },
    /// The connection was refused.
    Rejected {
        /// [`Event::BY_CONSUMER`] if the program at the other end did it; otherwise the connection
        /// manager's number (8: nobody listens), or a negative error number with iWARP.
        reason: i32,
        /// The target's; may be followed by zeros up to
        /// [`REJECT_PRIVATE_DATA_MAX`](crate::REJECT_PRIVATE_DATA_MAX).
        private_data: Vec<u8>,
    },
    /// The connection could not be made: nobody answers, or the peer gave up. The status is the
    /// connection manager's, usually a negative error number.
    Unreachable(i32),
    /// The peer has ended the connection, or its end is confirmed. Work that is under way comes
    /// back after [`QueuePair::disconnect`](crate::QueuePair::disconnect).
    Disconnected,
    /// The adapter is going away: the queue pair has to be dropped soon.
    DeviceRemoved,
    /// The address has moved to another interface; the connection may work on or not.
    AddressChanged,
    /// The queue pair is in error, for this reason.
    Fatal(&'static str),
}

impl Event {
    /// `reason` of a reject by the program at the other end (InfiniBand Architecture Specification,
    /// REJ: consumer reject).
    pub const BY_CONSUMER: i32 = 28;
    /// `reason` of a reject since nobody listens (REJ: invalid service ID).
    pub const NOBODY_LISTENS: i32 = 8;
}
