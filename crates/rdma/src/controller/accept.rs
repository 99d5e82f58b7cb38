//! What a host asks for in the private data, against what this end has.

use super::Connection;
use crate::capsule::{COMMAND_BYTES, RESPONSE_BYTES};
use crate::private_data::{ConnectAccept, ConnectRequest, RejectStatus};
use crate::segments::SEGMENTS_MAX;

/// What this end has for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of the Admin Queue at most; hosts use 32.
    pub admin_entries: u16,
    /// Entries of an I/O queue at most: CAP.MQES + 1, and no more than the device's receive queues
    /// have.
    pub io_entries: u16,
    /// The largest queue identifier.
    pub io_queues: u16,
    /// Bytes of data that a command capsule may carry.
    pub in_capsule_bytes: u32,
    /// RDMA READs that the device can have outstanding on a queue pair.
    pub reads: u8,
    /// Entries that the device's send queues have; at least 32.
    pub send_queue_entries: u32,
}

/// A connection that can be accepted, and what its queue pair needs.
#[derive(Debug)]
pub struct Accepted {
    /// This end, which posts nothing before [`Connection::on_established`].
    pub connection: Connection,
    /// What the host asked for.
    pub request: ConnectRequest,
    /// The private data to accept it with.
    pub reply: [u8; ConnectAccept::BYTES],
    /// Receives to be posted before it is accepted.
    pub receives: u32,
    /// Bytes of each.
    pub receive_bytes: u32,
    /// Messages that may be under way.
    pub sends: u32,
    /// Bytes of each.
    pub send_bytes: u32,
    /// Entries that the send queue needs beside those of the messages.
    pub operations: u32,
    /// RDMA READs that may be outstanding (the initiator depth to accept it with).
    pub reads: u8,
}

/// Entries of the smallest send queue. WRITEs have no completion of their own, so a response has to
/// find room besides as many of them as a list can ask for, and a few READs besides those.
const SEND_QUEUE_MIN: u32 = 2 * SEGMENTS_MAX;

/// Entries of the smallest queue (Base, CAP.MQES).
const ENTRIES_MIN: u32 = 2;

/// What a request is accepted with: how much of everything there will be.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) request: ConnectRequest,
    /// Messages that may be under way.
    pub(super) sends: u32,
    /// RDMA READs that may be outstanding.
    pub(super) reads: u32,
    /// Entries of the send queue beside those of the messages.
    operations: u32,
}

impl Terms {
    /// Those for what came with a request, on a device whose host answers so many RDMA READs at a
    /// time; or what it has to be rejected with.
    pub(super) fn negotiate(private_data: &[u8], limits: &Limits, host_reads: u8) -> Result<Self, RejectStatus> {
        let request = ConnectRequest::decode(private_data)?;
        let ConnectRequest { qid, host_receives, entries, .. } = request;
        if qid.0 > limits.io_queues {
            return Err(RejectStatus::INVALID_QID);
        }
        let entries_max = if qid.is_admin() { limits.admin_entries } else { limits.io_entries };
        if entries < ENTRIES_MIN || entries > entries_max.into() {
            return Err(RejectStatus::INVALID_HSQSIZE);
        }
        if host_receives == 0 {
            return Err(RejectStatus::INVALID_HRQSIZE);
        }
        if limits.send_queue_entries < SEND_QUEUE_MIN {
            return Err(RejectStatus::NO_RESOURCES);
        }
        // Deviation: a host that answers no READs could not write. Connection managers without
        // enhanced connection setup (MPA version 1 of iWARP) report 0 whatever the host offers.
        let reads = u32::from(host_reads.min(limits.reads).max(1)).min(limits.send_queue_entries / 4);
        // A WRITE for each message, and for one of them those of a list.
        let spare = limits.send_queue_entries - reads;
        let sends = entries.min(host_receives.into()).min(spare / 2);
        let operations = reads + sends.max(SEGMENTS_MAX).min(spare - sends);
        Ok(Self { request, sends, reads, operations })
    }

    /// Capsules of commands that the host may have under way.
    pub(super) fn capsules(&self) -> u16 {
        u16::try_from(self.request.entries).unwrap_or(u16::MAX)
    }

    /// What the queue pair of a connection needs.
    pub(super) fn accepted(self, connection: Connection, in_capsule_bytes: u32) -> Accepted {
        Accepted {
            connection,
            reply: ConnectAccept { controller_receives: self.capsules() }.encode(),
            receives: self.request.entries,
            receive_bytes: COMMAND_BYTES.saturating_add(in_capsule_bytes),
            sends: self.sends,
            send_bytes: RESPONSE_BYTES,
            operations: self.operations,
            reads: u8::try_from(self.reads).unwrap_or(u8::MAX),
            request: self.request,
        }
    }
}
