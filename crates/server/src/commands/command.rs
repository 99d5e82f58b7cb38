//! A command on its way through the target: what is to be done with it, and where it stands.
#![deny(clippy::wildcard_enum_match_arm)]

use ebof_backend::{Buffer, Error, Segments};
use ebof_fabrics::{DeviceId, Executing, FusedHalf, IoTask, Task, Transfer, TransferKind};
use ebof_nvme::{Cid, DataPointer, Nsid, Status};
use ebof_region::Way;

use crate::observe::slow::Marks;
use crate::observe::stats::Kind;
use crate::shared::mailbox::CommandRef;
use crate::shared::range_lock::RangeLock;
use crate::shared::shares::Ticket;

/// Where a command stands. Each leaves exactly once, through `Execution::finish` or
/// `Execution::forget`.
///
/// ```text
/// submit -> AwaitingBuffer -> Receiving (in-capsule data, R2T) -> Waiting (pairs) -> Held -> AtDevice -> finish
///        \_____________________________________________________________________________________/^
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandPhase {
    /// Waits for a buffer.
    AwaitingBuffer,
    /// Waits for data from the host.
    Receiving,
    /// Has all that it needs, and waits for its other half or for a lock.
    Waiting,
    /// Has all that it needs, and waits for its function's share of the drive.
    Held,
    /// Waits for the device.
    AtDevice,
    /// Waits for another queue (Abort, reset) or the drive.
    Elsewhere,
}

impl CommandPhase {
    /// Whether nothing of the command has been done, and ending it is up to its queue.
    pub(crate) fn is_before_device(self) -> bool {
        match self {
            Self::AwaitingBuffer | Self::Receiving | Self::Waiting | Self::Held => true,
            Self::AtDevice | Self::Elsewhere => false,
        }
    }
}

/// What is to be done when a command has gone as far as it can by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum CommandOutcome {
    /// Nothing: it waits for something, or was completed.
    Continues,
    /// The parameters of the command in this slot have come, or the data of Connect.
    Parameters(u32),
    /// A device has done what the reset in this slot asked for.
    Flushed(u32),
    /// The connection has ended, and nobody hears of the command.
    Forgotten,
}

/// What is known of a command when the queue decides about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) cid: Cid,
    pub(crate) nsid: Nsid,
    /// Where its data are, until they have moved.
    pub(crate) pointer: DataPointer,
    /// Bytes of data behind the command in its capsule.
    pub(crate) in_capsule: u32,
}

impl Origin {
    /// A command of which no more data will come.
    pub(crate) fn without_data(cid: Cid, nsid: Nsid) -> Self {
        Self { cid, nsid, pointer: DataPointer::NONE, in_capsule: 0 }
    }
}

/// One command under way.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) cid: Cid,
    pub(crate) nsid: Nsid,
    /// Where its data are, until they have been transferred.
    pub(crate) pointer: DataPointer,
    pub(crate) executing: Executing,
    pub(crate) task: Task,
    pub(crate) phase: CommandPhase,
    pub(crate) buffer: Option<Buffer>,
    /// Where the link has mapped them: its data, in place of a buffer.
    pub(crate) mapped: Option<Segments>,
    /// Bytes of data that the command moves.
    pub(crate) length: u32,
    /// The status that it will fail with once its data have arrived (a data digest did not match).
    pub(crate) failed: Option<Status>,
    /// The first block that something is wrong with, where that is known: the error log will name
    /// it.
    pub(crate) failed_lba: Option<u64>,
    /// Clock of the target when it arrived, microseconds.
    pub(crate) started_us: u64,
    /// When it went on after that.
    pub(crate) marks: Marks,
    /// Its lock on the blocks that it changes.
    pub(crate) lock: Option<Box<RangeLock>>,
    /// The place of its counters, if it is counted by namespace.
    pub(crate) counters: Option<usize>,
    /// While it waits for its share of the drive, or is at the device with it.
    pub(crate) ticket: Option<Ticket>,
}

impl Command {
    /// A command that begins now.
    pub(crate) fn new(
        origin: Origin,
        executing: Executing,
        (task, length): (Task, u32),
        counters: Option<usize>,
        now_us: u64,
    ) -> Self {
        Self {
            cid: origin.cid,
            nsid: origin.nsid,
            pointer: origin.pointer,
            executing,
            task,
            phase: CommandPhase::Elsewhere,
            buffer: None,
            mapped: None,
            length,
            failed: None,
            failed_lba: None,
            started_us: now_us,
            marks: Marks::default(),
            lock: None,
            counters,
            ticket: None,
        }
    }

    /// What the queue may decide about next: its parameters have come, or its drive has answered.
    pub(crate) fn origin(&self) -> Origin {
        Origin { cid: self.cid, nsid: self.nsid, pointer: self.pointer, in_capsule: 0 }
    }

    /// Notes the block that an error is about, if it is known, for the error log.
    pub(crate) fn locate(&mut self, error: &Error) {
        if let Error::Corrupt { block, .. } = error
            && !matches!(self.task, Task::Io(IoTask::Copy(_)))
        {
            // The devices of a drive have one namespace on them and nothing else: the block's
            // number is its address.
            self.failed_lba = Some(*block);
        }
    }

    /// Whether it reads or changes this namespace, or any for [`Nsid::ALL`].
    pub(crate) fn concerns(&self, nsid: Nsid) -> bool {
        self.task.io().is_some_and(|io| nsid == Nsid::ALL || self.nsid == nsid || io.is_source(nsid))
    }

    /// Whether it has failed without having reached a device, and is only kept until data of the
    /// host that are on their way have come.
    pub(crate) fn only_awaits_data(&self) -> bool {
        self.failed.is_some() && self.phase.is_before_device()
    }

    /// The memory that a device reads or writes.
    pub(crate) fn take_memory(&mut self) -> Option<Segments> {
        if self.mapped.is_some() {
            return self.mapped.take();
        }
        self.buffer.take().map(Segments::from)
    }

    /// Bytes of buffer that it needs.
    pub(crate) fn buffer_bytes(&self) -> usize {
        match self.task.io() {
            _ if self.mapped.is_some() => 0,
            Some(io) => io.buffer_bytes(),
            None if self.task.takes_data() => self.length as usize,
            None => 0,
        }
    }

    /// The direction in which a device may use the host's memory itself: nothing is looked at on
    /// the way, which the host could change meanwhile.
    pub(crate) fn mapped_way(&self) -> Option<Way> {
        let Task::Io(IoTask::Transfer(Transfer { kind, checks: None, fused: None, .. })) = self.task else {
            return None;
        };
        match kind {
            TransferKind::Read => Some(Way::ToHost),
            TransferKind::Write => Some(Way::FromHost),
            TransferKind::Compare
            | TransferKind::Verify
            | TransferKind::WriteZeroes
            | TransferKind::WriteUncorrectable => None,
        }
    }

    /// Compare: the device's bytes stand in front, the host's behind them. Anything else is a
    /// success.
    pub(crate) fn compared(&self) -> Status {
        if self.transfer_kind() != Some(TransferKind::Compare) {
            return Status::SUCCESS;
        }
        let buffer = self.buffer.as_ref().expect("a device gives back the memory that it read into");
        let (read, sent) = buffer.as_slice()[..2 * self.length as usize].split_at(self.length as usize);
        if read == sent { Status::SUCCESS } else { Status::COMPARE_FAILURE }
    }

    /// What it does with one run of blocks, if that is what it does.
    #[inline]
    pub(crate) fn transfer_kind(&self) -> Option<TransferKind> {
        self.task.io()?.transfer().map(|transfer| transfer.kind)
    }

    /// The half of a Compare and Write that it is.
    #[inline]
    pub(crate) fn fused(&self) -> Option<FusedHalf> {
        self.task.io()?.fused()
    }

    /// How it is counted.
    pub(crate) fn kind(&self) -> Kind {
        match self.task.io() {
            Some(IoTask::Transfer(transfer)) => match transfer.kind {
                TransferKind::Read | TransferKind::Compare | TransferKind::Verify => Kind::Read,
                TransferKind::Write | TransferKind::WriteZeroes => Kind::Write,
                TransferKind::WriteUncorrectable => Kind::Other,
            },
            Some(IoTask::Copy(_)) => Kind::Write,
            Some(IoTask::Flush(_) | IoTask::Deallocate(..)) | None => Kind::Other,
        }
    }

    /// The device that it is about, if it is about one.
    pub(crate) fn device(&self) -> Option<DeviceId> {
        self.task.io()?.device()
    }
}

/// An Abort addressed to a command of this queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AbortRequest {
    pub(crate) cid: Cid,
    pub(crate) reply: CommandRef,
}
