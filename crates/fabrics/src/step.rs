//! What the target has to do next with a command.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use ebof_nvme::protection::Rules;
use ebof_nvme::{Cid, Cqe, Nsid, QueueId, Status};

use crate::executing::Executing;
use crate::model::DeviceId;
use crate::notice::Handle;
use crate::transfer::Transfer;

/// What becomes of a command that a queue has taken or gone on with.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Send this completion.
    Complete(Cqe),
    /// Send this completion, then close the connection (Disconnect).
    Disconnect(Cqe),
    /// Nothing now: an Asynchronous Event Request that waits for its event (`Queue::poll_event`).
    Held,
    /// The first half of this identifier has no second: complete it with this status, then go on
    /// with the other step.
    Unpaired(Cid, Status, Box<Step>),
    /// An Asynchronous Event Request has ended without a completion, to make room for this command:
    /// the host has its entry of the Submission Queue back. Go on with the other step.
    Withdrawn(Box<Step>),
    /// Carry out the task, and give the ticket back to the queue.
    Execute(Executing, Task),
}

/// What is to be done for a command. Where nothing else is said, it completes when that is done.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Task {
    /// Do something with blocks.
    Transfer(Transfer),
    /// Send these bytes to the host, no more than its buffer holds. Send or drop them before
    /// submitting much more.
    Reply(Vec<u8>),
    /// Fetch [`Executing::length`] bytes from the host, then `Queue::resume`.
    Receive,
    /// Fetch the 1024 bytes of Connect data, then `Registry::connect`.
    Connect,
    /// Keep the Connect data, and ask `Registry::connect` again at
    /// [`Notice::Connect`](crate::Notice::Connect): queues of the same host have work at devices
    /// that must not end after what this queue will bring. Have the threads of these queues look
    /// whether their connections have ended, wait for what they have at devices, and call
    /// `Registry::looked` for each.
    DeferConnect(Vec<Handle>),
    /// `Registry::execute`, under the target's lock.
    Shared,
    /// Ask the drive of the queue's subsystem, then `Queue::answer`.
    Drive(Box<ebof_drive::Request>),
    /// Copy, source by source; when it fails, with the number of the first source that was not
    /// copied whole as dword 0.
    Copy(Box<CopyPlan>),
    /// Look at the device, then `Queue::lba_status`.
    LbaStatus(LbaStatusQuery),
    /// Bring everything that the device acknowledged to the medium.
    Flush(DeviceId),
    /// Deallocate these bytes; there may be none.
    Deallocate(DeviceId, Vec<ByteRange>),
    /// Try to abort the command on the queue of that connection, then `complete_with` dword 0: bit
    /// 0 set if it was not aborted.
    Abort(Handle, Cid),
    /// Close and flush what is named, then complete with success: CC.EN was cleared or CC.SHN set.
    Reset(Box<Quiesce>),
    /// Have the link change the queues in the host's memory. Where it cannot, the status says why.
    Rings(RingTask),
}

/// What is done with queues in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingTask {
    /// A new I/O Completion Queue.
    CreateCompletionQueue {
        /// Its identifier, which is free.
        id: QueueId,
        /// Its entries.
        entries: u16,
        /// Where it begins in the host's memory: at a page.
        base: u64,
        /// The interrupt that tells of its entries.
        vector: Option<u16>,
    },
    /// A Completion Queue without Submission Queues goes away.
    DeleteCompletionQueue {
        /// Its identifier.
        id: QueueId,
    },
    /// A new I/O Submission Queue: attach it (`Registry::attach`).
    CreateSubmissionQueue {
        /// Its identifier, which is free.
        id: QueueId,
        /// Its entries.
        entries: u16,
        /// Where it begins in the host's memory: at a page.
        base: u64,
        /// Its Completion Queue, which exists.
        completion: QueueId,
    },
    /// The host writes doorbells to memory, and says by an event index when it wants to be asked
    /// to write the registers, too (Doorbell Buffer Config).
    ShadowDoorbells {
        /// The page of the doorbells.
        doorbells: u64,
        /// The page of the event indexes.
        event_indexes: u64,
    },
}

/// Bytes of a device to deallocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Bytes, at least one block.
    pub length_bytes: u64,
}

/// Bytes of a namespace that are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// The device.
    pub device: DeviceId,
    /// The namespace.
    pub nsid: Nsid,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Bytes, at least one block.
    pub length_bytes: u64,
}

impl CopyRange {
    /// Whether both have bytes in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        // Namespaces end below 2^64 bytes.
        self.device == other.device
            && self.offset_bytes < other.offset_bytes + other.length_bytes
            && other.offset_bytes < self.offset_bytes + self.length_bytes
    }
}

/// What Copy does about protection information: it is checked as it is read from each source, and
/// inserted, or checked again, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyChecks {
    /// For each source.
    pub read: Vec<Rules>,
    /// For the target.
    pub write: Rules,
}

/// What Copy copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    /// Where to.
    pub target: CopyRange,
    /// Bytes of a block's data.
    pub data_bytes: u32,
    /// Bytes of its metadata.
    pub metadata_bytes: u16,
    /// Where blocks have protection information: what is done about it.
    pub checks: Option<CopyChecks>,
    /// Where from, one behind the other: as many bytes together as the target has, and none of
    /// those.
    pub sources: Vec<CopyRange>,
    /// What is written is on the medium before the command completes.
    pub fua: bool,
}

/// Which blocks of a namespace Get LBA Status is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LbaStatusQuery {
    /// The device.
    pub device: DeviceId,
    /// Blocks of the namespace, at least one.
    pub range: Range<u64>,
    /// Those that are allocated are wanted; otherwise those that cannot be read.
    pub allocated: bool,
    /// Ranges for which the host has room.
    pub ranges_max: usize,
}

/// What must happen before a reset or shutdown of the controller completes, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quiesce {
    /// Close these connections (I/O queues): accepted commands end, no completion is owed.
    pub close: Vec<Handle>,
    /// Then flush these devices (normal shutdown).
    pub flush: Vec<DeviceId>,
    /// Then tell the drive: the controller is reset or shut down. Otherwise a queue is deleted,
    /// which is no matter of the drive's.
    pub is_reset: bool,
}
