//! A command on its way through the target: what is to be done with it, and where it stands.
//!
//! Every decision by kind names all kinds: a new one that changes blocks must not slip past what
//! orders changes.
#![deny(clippy::wildcard_enum_match_arm)]

use std::fmt;
use std::ops::Range;

use ebof_backend::{Buffer, Error, Segments};
use ebof_drive::Answer;
use ebof_fabrics::{ByteRange, DeviceId, Executing, Extent, FusedHalf, Transfer, TransferKind};
use ebof_nvme::{Cid, DataPointer, Nsid, Status};
use ebof_region::Way;

use crate::commands::copy::Copy;
use crate::drives::drain::DrainToken;
use crate::observe::slow::Marks;
use crate::observe::stats::Kind;
use crate::shared::Shared;
use crate::shared::mailbox::{CommandRef, Message};
use crate::shared::range_lock::RangeLock;
use crate::shared::shares::Ticket;

/// The work of a command, once its data (if any) have arrived.
#[derive(Debug)]
pub(crate) enum Work {
    Transfer(Transfer),
    Copy(Copy),
    Flush(DeviceId),
    Deallocate(DeviceId, Vec<ByteRange>),
    /// Parameter data of an admin command.
    Parameter,
    /// The data of Connect.
    Connect,
    /// An Abort that waits for another queue's answer.
    Abort,
    /// A queue in the host's memory that the reactor creates.
    Rings,
    /// A request that waits for the drive's answer; with the answer, for so many queues whose
    /// commands it preempts.
    Drive {
        waiting: usize,
        answer: Option<Answer>,
    },
    /// A reset or shutdown of the controller: so many connections are still to close, then these
    /// devices are flushed.
    Reset {
        closing: usize,
        flush: Vec<DeviceId>,
        /// The drive was notified, and has not answered yet; or it need not be.
        drive_notified: bool,
    },
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transfer(Transfer { kind, extent, .. }) => {
                write!(f, "{} of {} bytes at {}", kind.name(), extent.length_bytes, extent.offset_bytes)
            }
            Self::Copy(_) => f.write_str("copy"),
            Self::Flush(_) => f.write_str("flush"),
            Self::Deallocate(_, ranges) => write!(f, "deallocate {} ranges", ranges.len()),
            Self::Parameter => f.write_str("parameter data"),
            Self::Connect => f.write_str("connect"),
            Self::Abort => f.write_str("abort"),
            Self::Rings => f.write_str("create a queue"),
            Self::Drive { .. } => f.write_str("a request to the drive"),
            Self::Reset { .. } => f.write_str("reset"),
        }
    }
}

/// Where a command stands. Each leaves exactly once, through `Commands::finish` or
/// `Commands::forget`.
///
/// ```text
/// submit -> AwaitingBuffer -> Receiving (in-capsule data, R2T) -> Waiting (pairs) -> Held -> AtDevice -> finish
///        \_____________________________________________________________________________________/^
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
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

impl Phase {
    /// Whether nothing of the command has been done, and ending it is up to its queue.
    pub(crate) fn is_before_device(self) -> bool {
        match self {
            Self::AwaitingBuffer | Self::Receiving | Self::Waiting | Self::Held => true,
            Self::AtDevice | Self::Elsewhere => false,
        }
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
    pub(crate) work: Work,
    pub(crate) phase: Phase,
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
    /// Index of its counters in the connection's list.
    pub(crate) stats: Option<usize>,
    /// While it waits for its share of the drive, or is at the device with it.
    pub(crate) ticket: Option<Ticket>,
}

impl Command {
    /// Notes the block that an error is about, if it is known, for the error log.
    pub(crate) fn locate(&mut self, error: &Error) {
        if let Error::Corrupt { block, .. } = error
            && !matches!(self.work, Work::Copy(_))
        {
            // The devices of a drive have one namespace on them and nothing else: the block's
            // number is its address.
            self.failed_lba = Some(*block);
        }
    }

    /// Whether it reads or changes this namespace, or any for [`Nsid::ALL`].
    pub(crate) fn concerns(&self, nsid: Nsid) -> bool {
        let is_source = || if let Work::Copy(copy) = &self.work { copy.reads(nsid) } else { false };
        self.work.is_io() && (nsid == Nsid::ALL || self.nsid == nsid || is_source())
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
        if self.mapped.is_some() { 0 } else { self.work.buffer_bytes(self.length) }
    }

    /// The direction in which a device may use the host's memory itself: nothing is looked at on
    /// the way, which the host could change meanwhile.
    pub(crate) fn direct_way(&self) -> Option<Way> {
        let Work::Transfer(Transfer { kind, checks: None, fused: None, .. }) = self.work else { return None };
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
        if self.work.transfer_kind() != Some(TransferKind::Compare) {
            return Status::SUCCESS;
        }
        let length = self.length as usize;
        match &self.buffer {
            Some(buffer) if buffer.as_slice()[..length] == buffer.as_slice()[length..2 * length] => Status::SUCCESS,
            _ => Status::COMPARE_FAILURE,
        }
    }
}

impl Work {
    /// What it does with blocks, if it is a transfer.
    #[inline]
    pub(crate) fn transfer_kind(&self) -> Option<TransferKind> {
        if let Self::Transfer(transfer) = self { Some(transfer.kind) } else { None }
    }

    /// How it is counted.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Transfer(transfer) => match transfer.kind {
                TransferKind::Read | TransferKind::Compare | TransferKind::Verify => Kind::Read,
                TransferKind::Write | TransferKind::WriteZeroes => Kind::Write,
                TransferKind::WriteUncorrectable => Kind::Other,
            },
            Self::Copy(_) => Kind::Write,
            Self::Flush(_)
            | Self::Deallocate(..)
            | Self::Parameter
            | Self::Connect
            | Self::Abort
            | Self::Rings
            | Self::Drive { .. }
            | Self::Reset { .. } => Kind::Other,
        }
    }

    /// Where in the buffer the host's data start, of `length` bytes. Compare keeps them behind the
    /// place where the device's go.
    pub(crate) fn data_offset(&self, length: u32) -> usize {
        if self.transfer_kind() == Some(TransferKind::Compare) { length as usize } else { 0 }
    }

    /// Bytes of buffer that the work needs; `length` are those that move between host and
    /// controller.
    pub(crate) fn buffer_bytes(&self, length: u32) -> usize {
        match self {
            Self::Transfer(Transfer { kind, checks, .. }) => {
                let bytes = match kind {
                    TransferKind::Compare => 2 * length as usize,
                    TransferKind::Read | TransferKind::Write | TransferKind::Verify => length as usize,
                    TransferKind::WriteZeroes | TransferKind::WriteUncorrectable => 0,
                };
                checks.as_ref().map_or(bytes, |checks| bytes.max(checks.device_bytes as usize))
            }
            Self::Copy(copy) => copy.buffer_bytes(),
            Self::Parameter | Self::Connect => length as usize,
            Self::Flush(_)
            | Self::Deallocate(..)
            | Self::Abort
            | Self::Rings
            | Self::Drive { .. }
            | Self::Reset { .. } => 0,
        }
    }

    /// Whether its bytes are counted: data that travel between host and controller, or are copied;
    /// not those of a zeroed or verified range.
    pub(crate) fn moves_data(&self) -> bool {
        match self {
            Self::Transfer(transfer) => transfer.kind.moves_data(),
            Self::Copy(_) => true,
            Self::Flush(_)
            | Self::Deallocate(..)
            | Self::Parameter
            | Self::Connect
            | Self::Abort
            | Self::Rings
            | Self::Drive { .. }
            | Self::Reset { .. } => false,
        }
    }

    /// Dword 0 of the completion where it fails.
    pub(crate) fn failed_result(&self) -> u64 {
        match self {
            // Copy, Completion Queue Entry Dword 0: the lowest numbered source range that was not
            // copied.
            Self::Copy(copy) => copy.source(),
            Self::Transfer(_)
            | Self::Flush(_)
            | Self::Deallocate(..)
            | Self::Parameter
            | Self::Connect
            | Self::Abort
            | Self::Rings
            | Self::Drive { .. }
            | Self::Reset { .. } => 0,
        }
    }

    /// Whether a device does it.
    pub(crate) fn is_io(&self) -> bool {
        match self {
            Self::Transfer(_) | Self::Copy(_) | Self::Flush(_) | Self::Deallocate(..) => true,
            Self::Parameter | Self::Connect | Self::Abort | Self::Rings | Self::Drive { .. } | Self::Reset { .. } => {
                false
            }
        }
    }

    /// The device that it is about, if it is about one.
    pub(crate) fn device(&self) -> Option<DeviceId> {
        match self {
            Self::Transfer(transfer) => Some(transfer.extent.device),
            Self::Flush(device) | Self::Deallocate(device, _) => Some(*device),
            Self::Copy(_) => self.changed_device(),
            Self::Parameter | Self::Connect | Self::Abort | Self::Rings | Self::Drive { .. } | Self::Reset { .. } => {
                None
            }
        }
    }

    /// The device whose bytes it changes, if it changes any.
    pub(crate) fn changed_device(&self) -> Option<DeviceId> {
        match self {
            Self::Transfer(transfer) => transfer.kind.is_change().then_some(transfer.extent.device),
            Self::Copy(copy) => copy.changed().map(|_| copy.target_device()),
            Self::Deallocate(device, _) => Some(*device),
            Self::Flush(_)
            | Self::Parameter
            | Self::Connect
            | Self::Abort
            | Self::Rings
            | Self::Drive { .. }
            | Self::Reset { .. } => None,
        }
    }

    /// Whether it changes some of these bytes of that device.
    pub(crate) fn changes(&self, range: &Range<u64>) -> bool {
        match self {
            Self::Transfer(transfer) => transfer.kind.is_change() && overlap(&bytes_of(&transfer.extent), range),
            Self::Copy(copy) => copy.changed().is_some_and(|changed| overlap(&changed, range)),
            Self::Deallocate(_, ranges) => ranges.iter().any(|changed| {
                let end = changed.offset_bytes.saturating_add(changed.length_bytes);
                overlap(&(changed.offset_bytes..end), range)
            }),
            Self::Flush(_)
            | Self::Parameter
            | Self::Connect
            | Self::Abort
            | Self::Rings
            | Self::Drive { .. }
            | Self::Reset { .. } => false,
        }
    }

    /// The half of a Compare and Write that it is.
    pub(crate) fn fused(&self) -> Option<FusedHalf> {
        if let Self::Transfer(transfer) = self { transfer.fused } else { None }
    }

    /// Whether it may change the medium.
    pub(crate) fn may_change(&self) -> bool {
        matches!(self, Self::Copy(_)) || self.changed_device().is_some()
    }

    /// Whether the host sends data.
    pub(crate) fn takes_data(&self) -> bool {
        match self {
            Self::Transfer(transfer) => transfer.kind.takes_data(),
            Self::Parameter | Self::Connect => true,
            Self::Copy(_)
            | Self::Flush(_)
            | Self::Deallocate(..)
            | Self::Abort
            | Self::Rings
            | Self::Drive { .. }
            | Self::Reset { .. } => false,
        }
    }
}

/// The bytes of its device.
pub(crate) fn bytes_of(extent: &Extent) -> Range<u64> {
    extent.offset_bytes..extent.offset_bytes.saturating_add(extent.length_bytes.into())
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// A waiter until commands of a connection cannot change the medium any more.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// Reservation Acquire with Preempt and Abort: for all commands to this namespace.
    Preempt(Nsid, CommandRef),
    /// The host has lost the namespace, or all for [`Nsid::ALL`]; the token is dropped.
    Drain(Nsid, #[expect(dead_code, reason = "dropping it is the notice")] DrainToken),
    /// A Connect of the same host: for these, by slot and time of arrival, and, if `on_drive`,
    /// until the drive's thread has begun what was asked of it before.
    Connect { reply: CommandRef, commands: Vec<(u32, u64)>, on_drive: bool },
}

impl Waiter {
    /// There are none any more.
    pub(crate) fn notify(&self, shared: &Shared) {
        match *self {
            Self::Drain(..) => {}
            Self::Preempt(_, reply) => shared.post(reply.handle, Message::Preempted { reply }),
            Self::Connect { reply, .. } => shared.looked(reply.handle),
        }
    }
}

/// An Abort addressed to a command of this queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AbortRequest {
    pub(crate) cid: Cid,
    pub(crate) reply: CommandRef,
}
