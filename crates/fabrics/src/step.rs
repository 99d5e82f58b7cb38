//! What the target has to do next with a command, and the ticket that it gives back when it has done so.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use ebof_nvme::protection::Rules;
use ebof_nvme::{Cid, Cqe, Nsid, Sqe, Status};

use crate::model::DeviceId;
use crate::registry::Handle;

/// A command under way. Whoever holds it owes the queue exactly one `Queue::complete`, `Queue::complete_with` or
/// `Queue::abandon`; it can be neither copied nor made up.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a command that is not completed hangs the host"]
pub struct Executing {
    pub(crate) cid: Cid,
    pub(crate) opcode: u8,
    /// FCTYPE of a Fabrics command, else 0.
    pub(crate) fctype: u8,
    pub(crate) nsid: Nsid,
    /// Bytes that the data pointer announces; for I/O commands that name blocks, the bytes of those without metadata.
    pub(crate) length: u32,
    /// Bytes of the reply that carries this ticket, else 0.
    pub(crate) reply_bytes: u32,
    pub(crate) cdw10: u32,
    pub(crate) cdw11: u32,
    pub(crate) cdw12: u32,
    pub(crate) cdw13: u32,
    pub(crate) cdw14: u32,
    pub(crate) cdw15: u32,
    /// The first block that something is wrong with, where that is known.
    pub(crate) failed_lba: Option<u64>,
}

impl Executing {
    pub(crate) fn new(sqe: &Sqe, length: u32) -> Self {
        Self {
            cid: sqe.cid(),
            opcode: sqe.opcode,
            fctype: sqe.fctype().unwrap_or(0),
            nsid: sqe.nsid(),
            length,
            reply_bytes: 0,
            cdw10: sqe.cdw10.get(),
            cdw11: sqe.cdw11.get(),
            cdw12: sqe.cdw12.get(),
            cdw13: sqe.cdw13.get(),
            cdw14: sqe.cdw14.get(),
            cdw15: sqe.cdw15.get(),
            failed_lba: None,
        }
    }

    /// The command's dwords 10 to 15 as they came.
    pub(crate) fn dwords(&self) -> Sqe {
        let dwords = (10..).zip([self.cdw10, self.cdw11, self.cdw12, self.cdw13, self.cdw14, self.cdw15]);
        dwords.fold(Sqe::new(self.opcode).with_nsid(self.nsid), |sqe, (at, dword)| sqe.with_cdw(at, dword))
    }

    /// The command identifier.
    #[must_use]
    pub fn cid(&self) -> Cid {
        self.cid
    }

    /// The opcode.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.opcode
    }

    /// The namespace that the command names.
    #[must_use]
    pub fn nsid(&self) -> Nsid {
        self.nsid
    }

    /// Data bytes to or from the host, as the command's data pointer says; for I/O commands that name blocks, the bytes of
    /// those without metadata.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Of the blocks that the command names, this one, counted from 0, is the first that something is wrong with: the error log
    /// will name it.
    pub fn failed_at(&mut self, block: u64) {
        self.failed_at_lba(self.starting_lba().wrapping_add(block));
    }

    /// The first block that the command names; of commands that name none, whatever stands there.
    fn starting_lba(&self) -> u64 {
        u64::from(self.cdw10) | u64::from(self.cdw11) << 32
    }

    /// The block that an error is about: the one that is known to be wrong, else the first.
    pub(crate) fn error_lba(&self) -> u64 {
        self.failed_lba.unwrap_or_else(|| self.starting_lba())
    }

    /// Of the blocks that the command names, the one with this address is the first that something is wrong with.
    pub fn failed_at_lba(&mut self, lba: u64) {
        self.failed_lba = Some(lba);
    }
}

/// Bytes of a device, checked against the namespace's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The device.
    pub device: DeviceId,
    /// The namespace, for counters and labels.
    pub nsid: Nsid,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Bytes, at least one block.
    pub length_bytes: u32,
    /// Force unit access: a write is on the medium before it completes; also set for every write when the host has
    /// switched the volatile write cache off.
    pub fua: bool,
    /// Write Zeroes may deallocate the blocks, which then read as zeros.
    pub deallocate: bool,
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

/// What is done about the protection information of a command's blocks, on their way between host and device. On the device
/// every block has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarding {
    /// What is checked, and whether it is inserted or stripped; then the host transfers data alone.
    pub rules: Rules,
    /// Bytes of a block's data; its protection information follows.
    pub data_bytes: u32,
    /// Bytes to or from the host.
    pub transfer_bytes: u32,
    /// Bytes to or from the device.
    pub device_bytes: u32,
}

/// What Copy does about protection information: it is checked as it is read from each source, and inserted, or checked again, as
/// it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyGuarding {
    /// For each source.
    pub read: Vec<Rules>,
    /// For the target.
    pub write: Rules,
}

/// What Copy copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copying {
    /// Where to.
    pub target: CopyRange,
    /// Bytes of a block's data.
    pub data_bytes: u32,
    /// Bytes of its metadata.
    pub metadata_bytes: u16,
    /// Where blocks have protection information: what is done about it.
    pub guarding: Option<CopyGuarding>,
    /// Where from, one behind the other: as many bytes together as the target has, and none of those.
    pub sources: Vec<CopyRange>,
    /// What is written is on the medium before the command completes.
    pub fua: bool,
}

/// Which blocks of a namespace Get LBA Status is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusWish {
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
}

/// What to do next with a command.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Send this completion.
    Complete(Cqe),
    /// Send this completion, then close the connection (Disconnect).
    Disconnect(Cqe),
    /// Nothing now: an Asynchronous Event Request that waits for its event (`Queue::poll_event`).
    Held,
    /// Send these bytes to the host, no more than its buffer holds, then complete. Send or drop them before submitting
    /// much more: `Queue::reply_bytes` says how much waits.
    Reply(Executing, Vec<u8>),
    /// Fetch so many bytes from the host (in the capsule, or by R2T), then `Queue::resume`.
    Receive(Executing, u32),
    /// Fetch the 1024 bytes of Connect data, then `Registry::connect`.
    Connect(Executing),
    /// Keep the Connect data, and ask `Registry::connect` again at [`Notice::Connect`](crate::Notice::Connect): queues of the
    /// same host have work at devices that must not end after what this queue will bring. Have the threads of these queues
    /// look whether their connections have ended, wait for what they have at devices, and call `Registry::looked` for each.
    Hold(Executing, Vec<Handle>),
    /// `Registry::execute`, under the target's lock.
    Shared(Executing),
    /// Ask the drive of the queue's subsystem, then `Queue::answer`.
    Drive(Executing, Box<ebof_drive::Request>),
    /// The other step, which is `Read`, `Write`, `Compare`, one of their fused sisters, `Verify` or `WriteZeroes`, on blocks with
    /// protection information.
    Guarded(Box<Guarding>, Box<Step>),
    /// Read the extent and send it, then complete.
    Read(Executing, Extent),
    /// Fetch the extent's data from the host and write it, then complete.
    Write(Executing, Extent),
    /// Fetch data from the host and compare it with the extent; `Status::COMPARE_FAILURE` when it differs.
    Compare(Executing, Extent),
    /// As `Compare`, and keep the completion back: the first half of a Compare and Write, whose second half is with the next
    /// step of this queue, or is missing.
    CompareFirst(Executing, Extent),
    /// Fetch the data; when those of the first half are there too, compare and write as one: nothing else changes these bytes
    /// in between. When the first half fails, this one is Aborted due to Failed Fused Command, and the other way round.
    WriteSecond(Executing, Extent, Cid),
    /// The first half of this identifier has no second: complete it with this status, then go on with the other step.
    Unpaired(Cid, Status, Box<Step>),
    /// Check that the extent can be read; no data to the host.
    Verify(Executing, Extent),
    /// Make the extent read as zeros.
    WriteZeroes(Executing, Extent),
    /// Copy, source by source, then complete; when it fails, with the number of the first source that was not copied whole as
    /// dword 0.
    Copy(Executing, Box<Copying>),
    /// Have the drive remember that the extent cannot be read until it is written, then complete.
    WriteUncorrectable(Executing, Extent),
    /// Look at the device, then `Queue::lba_status`.
    LbaStatus(Executing, StatusWish),
    /// Bring everything that the device acknowledged to the medium.
    Flush(Executing, DeviceId),
    /// Deallocate these bytes; there may be none.
    Deallocate(Executing, DeviceId, Vec<ByteRange>),
    /// Try to abort the command on the queue of that connection, then `complete_with` dword 0: bit 0 set if it was not
    /// aborted.
    Abort(Executing, Handle, Cid),
    /// Close and flush what is named, then complete with success: CC.EN was cleared or CC.SHN set.
    Reset(Executing, Quiesce),
}

impl Step {
    /// What is to be done, whatever is done about protection information on the way.
    pub(crate) fn work(&self) -> &Self {
        match self {
            Self::Guarded(_, step) => step,
            step => step,
        }
    }
}
