//! What the target has to do for a command: one description of it from the queue's decision until
//! the command completes, with how far it has got.
//!
//! What a device does is an [`IoTask`]. Decisions by kind name all kinds: a new one that changes
//! blocks must not slip past what orders changes.
#![deny(clippy::wildcard_enum_match_arm)]

mod copy;
mod drive;
pub(crate) mod executing;
pub(crate) mod handle;
pub(crate) mod outcome;
mod quiesce;
pub mod step;
mod transfer;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use ebof_authentication::Work;
use ebof_nvme::{Cid, Nsid, QueueId};

use crate::model::DeviceId;

pub use copy::{Copy, CopyChecks, CopyPlan, CopyRange};
pub use drive::DriveTask;
pub use quiesce::{Quiesce, QuiesceStep};
pub(crate) use transfer::FUSED_BLOCKS_MAX;
pub use transfer::{Extent, FusedHalf, ProtectionChecks, Transfer, TransferKind};

use handle::Handle;

/// What is to be done for a command. Where nothing else is said, it completes when that is done.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Task {
    /// Have a device do something.
    Io(IoTask),
    /// Send these bytes to the host, no more than its buffer holds. Send or drop them before
    /// submitting much more.
    Reply(Vec<u8>),
    /// Fetch [`Executing::length`](crate::Executing::length) bytes from the host, then
    /// `Queue::resume`.
    Receive,
    /// Fetch the 1024 bytes of Connect data, then `Registry::connect`.
    Connect,
    /// Keep the Connect data, and ask `Registry::connect` again at
    /// [`Notice::Connect`](crate::Notice::Connect): queues of the same host have work at devices
    /// that must not end after what this queue will bring. Have the threads of these queues look
    /// whether their connections have ended, wait for what they have at devices, and call
    /// `Registry::acknowledge_check` for each.
    DeferConnect(Vec<Handle>),
    /// `Registry::execute`, under the target's lock.
    Shared,
    /// Ask the drive of the queue's subsystem, then `Queue::answer`.
    Drive(Box<DriveTask>),
    /// Look at the device, then `Queue::lba_status`.
    LbaStatus(LbaStatusQuery),
    /// Try to abort the command on the queue of that connection, then `complete_with` dword 0: bit
    /// 0 set if it was not aborted.
    Abort(Handle, Cid),
    /// Close and flush what is named, then complete with success: CC.EN was cleared or CC.SHN set.
    Reset(Box<Quiesce>),
    /// What an Authentication Send asks for.
    Authenticate(Box<Authenticate>),
    /// Have the link change the queues in the host's memory. Where it cannot, the status says why.
    Rings(RingTask),
}

/// What is to be done for an Authentication Send.
#[derive(Debug, PartialEq, Eq)]
pub enum Authenticate {
    /// Call `Queue::authenticate` with this message and fresh random bytes.
    Message(Vec<u8>),
    /// Compute this where nobody waits, then call `Queue::computed`. `None` while that is so.
    Compute(Option<Work>),
}

/// What a device does for a command.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum IoTask {
    /// Do something with one run of blocks.
    Transfer(Transfer),
    /// Copy, source by source; when it fails, with [`Copy::source`] as dword 0.
    Copy(Box<Copy>),
    /// Bring everything that the device acknowledged to the medium.
    Flush(DeviceId),
    /// Deallocate these bytes; there may be none.
    Deallocate(DeviceId, Vec<ByteRange>),
}

impl Task {
    /// What a device does for it.
    #[must_use]
    #[inline]
    pub fn io(&self) -> Option<&IoTask> {
        if let Self::Io(io) = self { Some(io) } else { None }
    }

    /// Whether the host sends data, blocks or parameters.
    #[must_use]
    #[inline]
    pub fn takes_data(&self) -> bool {
        match self {
            Self::Io(io) => io.takes_data(),
            Self::Receive | Self::Connect => true,
            Self::Reply(_)
            | Self::DeferConnect(_)
            | Self::Shared
            | Self::Drive(_)
            | Self::LbaStatus(_)
            | Self::Abort(..)
            | Self::Reset(_)
            | Self::Authenticate(_)
            | Self::Rings(_) => false,
        }
    }
}

impl IoTask {
    /// The device.
    #[must_use]
    #[inline]
    pub fn device(&self) -> Option<DeviceId> {
        match self {
            Self::Transfer(transfer) => Some(transfer.extent.device),
            Self::Flush(device) | Self::Deallocate(device, _) => Some(*device),
            // It reads several; an error is about the one that is written.
            Self::Copy(_) => self.changed_device(),
        }
    }

    /// The device whose bytes it changes, if it changes any.
    #[must_use]
    pub fn changed_device(&self) -> Option<DeviceId> {
        match self {
            Self::Transfer(transfer) => transfer.kind.is_change().then_some(transfer.extent.device),
            Self::Copy(copy) => copy.changed().map(|_| copy.target_device()),
            Self::Deallocate(device, _) => Some(*device),
            Self::Flush(_) => None,
        }
    }

    /// Whether it changes some of these bytes of its device.
    #[must_use]
    pub fn changes(&self, range: &Range<u64>) -> bool {
        match self {
            Self::Transfer(transfer) => transfer.kind.is_change() && overlap(&transfer.extent.bytes(), range),
            Self::Copy(copy) => copy.changed().is_some_and(|changed| overlap(&changed, range)),
            Self::Deallocate(_, ranges) => ranges.iter().any(|changed| overlap(&changed.bytes(), range)),
            Self::Flush(_) => false,
        }
    }

    /// Whether it changes the medium, now or later.
    #[must_use]
    pub fn may_change(&self) -> bool {
        matches!(self, Self::Copy(_)) || self.changed_device().is_some()
    }

    /// Whether it reads blocks of this namespace besides those of the command's own.
    #[must_use]
    pub fn is_source(&self, nsid: Nsid) -> bool {
        match self {
            Self::Copy(copy) => copy.reads(nsid),
            Self::Transfer(_) | Self::Flush(_) | Self::Deallocate(..) => false,
        }
    }

    /// What it does with one run of blocks, if that is what it does.
    #[must_use]
    #[inline]
    pub fn transfer(&self) -> Option<&Transfer> {
        if let Self::Transfer(transfer) = self { Some(transfer) } else { None }
    }

    /// The half of a Compare and Write that it is.
    #[must_use]
    #[inline]
    pub fn fused(&self) -> Option<FusedHalf> {
        self.transfer().and_then(|transfer| transfer.fused)
    }

    /// Whether the host sends data.
    #[must_use]
    #[inline]
    pub fn takes_data(&self) -> bool {
        self.transfer().is_some_and(|transfer| transfer.kind.takes_data())
    }

    /// Whether its bytes are counted: data that travel between host and controller, or are copied;
    /// not those of a zeroed or verified range.
    #[must_use]
    #[inline]
    pub fn moves_data(&self) -> bool {
        match self {
            Self::Transfer(transfer) => transfer.kind.moves_data(),
            Self::Copy(_) => true,
            Self::Flush(_) | Self::Deallocate(..) => false,
        }
    }

    /// Bytes of buffer that it needs.
    #[must_use]
    #[inline]
    pub fn buffer_bytes(&self) -> usize {
        match self {
            Self::Transfer(transfer) => transfer.buffer_bytes(),
            Self::Copy(copy) => copy.buffer_bytes(),
            Self::Flush(_) | Self::Deallocate(..) => 0,
        }
    }

    /// Dword 0 of the completion where it fails.
    #[must_use]
    pub fn failed_result(&self) -> u64 {
        match self {
            // Copy, Completion Queue Entry Dword 0: the lowest numbered source range that was not
            // copied.
            Self::Copy(copy) => copy.source(),
            Self::Transfer(_) | Self::Flush(_) | Self::Deallocate(..) => 0,
        }
    }
}

impl fmt::Display for IoTask {
    /// For people: what is done, how much of it and where.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transfer(Transfer { kind, extent, .. }) => {
                write!(f, "{} of {} bytes at {}", kind.name(), extent.length_bytes, extent.offset_bytes)
            }
            Self::Copy(_) => f.write_str("copy"),
            Self::Flush(_) => f.write_str("flush"),
            Self::Deallocate(_, ranges) => write!(f, "deallocate {} ranges", ranges.len()),
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
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

impl ByteRange {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes.saturating_add(self.length_bytes)
    }
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

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const DEVICE: DeviceId = DeviceId(7);

    fn transfer(kind: TransferKind) -> IoTask {
        let extent = Extent {
            device: DEVICE,
            nsid: Nsid(1),
            offset_bytes: 4096,
            length_bytes: 4096,
            fua: false,
            deallocate: false,
        };
        IoTask::Transfer(Transfer { kind, extent, fused: None, checks: None })
    }

    #[test]
    fn what_changes_blocks_says_which() {
        let deallocate = IoTask::Deallocate(DEVICE, vec![ByteRange { offset_bytes: 4096, length_bytes: 4096 }]);
        let changes = [
            transfer(TransferKind::Write),
            transfer(TransferKind::WriteZeroes),
            transfer(TransferKind::WriteUncorrectable),
            deallocate,
        ];
        for io in changes {
            assert_eq!((io.changed_device(), io.may_change()), (Some(DEVICE), true), "{io}");
            assert!(io.changes(&(0..4097)) && io.changes(&(8191..9000)), "{io}");
            assert!(!io.changes(&(0..4096)) && !io.changes(&(8192..9000)), "{io}");
        }
        for kind in [TransferKind::Read, TransferKind::Compare, TransferKind::Verify] {
            let io = transfer(kind);
            assert!(!io.may_change() && !io.changes(&(0..u64::MAX)), "{io}");
        }
        assert!(!IoTask::Flush(DEVICE).may_change());
    }
}
