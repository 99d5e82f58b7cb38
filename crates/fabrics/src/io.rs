//! The commands of an I/O queue: checked against the namespace and turned into extents of a device.
//! Apart from Dataset Management nothing here allocates, and nothing takes a lock.
#![deny(clippy::wildcard_enum_match_arm)]

pub(crate) mod copy;
mod extent;
mod protection;
pub(crate) mod reservation;

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ebof_drive::reservation::Access;
use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::opcode::{Direction, fabrics, nvm};
use ebof_nvme::{Sqe, Status};
use zerocopy::FromBytes;

use crate::association::Association;
use crate::connect::authentication;
use crate::model::{Namespace, Subsystem};
use crate::task::executing::Executing;
use crate::task::outcome::{Decision, Fault, Outcome, byte};
use crate::task::{ByteRange, FUSED_BLOCKS_MAX, FusedHalf, IoTask, Task, Transfer, TransferKind};

use extent::{extent, namespace, place, writable};

/// Takes a command.
#[inline]
pub(crate) fn submit(association: &Association, subsystem: &Subsystem, sqe: &Sqe) -> Outcome {
    if sqe.opcode == nvm::READ && association.is_ready() {
        return transfer(association, namespace(subsystem, sqe.nsid())?, sqe, TransferKind::Read, None);
    }
    if sqe.opcode == nvm::WRITE && association.is_ready() {
        return transfer(association, namespace(subsystem, sqe.nsid())?, sqe, TransferKind::Write, None);
    }
    submit_other(association, subsystem, sqe)
}

/// Takes a command that is not one of the two that matter for speed.
fn submit_other(association: &Association, subsystem: &Subsystem, sqe: &Sqe) -> Outcome {
    if let Some(fctype) = sqe.fctype() {
        if association.is_memory_based() {
            return Err(Fault::at(Status::INVALID_OPCODE, byte::OPCODE));
        }
        return fabrics_command(association, sqe, fctype);
    }
    ready(association)?;
    if !is_offered(subsystem, sqe.opcode) {
        return Err(Fault::at(Status::INVALID_OPCODE, byte::OPCODE));
    }
    if let Some(kind) = transfer_kind(sqe.opcode) {
        return transfer(association, namespace(subsystem, sqe.nsid())?, sqe, kind, None);
    }
    match sqe.opcode {
        nvm::FLUSH => flush(subsystem, sqe),
        nvm::COPY => copy::submit(association, subsystem, sqe),
        nvm::DATASET_MANAGEMENT => dataset_management(association, subsystem, sqe),
        opcode if reservation::is_one(opcode) => {
            reservation::submit(association, namespace(subsystem, sqe.nsid())?, sqe)
        }
        _ => Err(Fault::at(Status::INVALID_OPCODE, byte::OPCODE)),
    }
}

/// Takes a half of Compare and Write, by its opcode.
pub(crate) fn submit_half(association: &Association, subsystem: &Subsystem, sqe: &Sqe, half: FusedHalf) -> Outcome {
    ready(association)?;
    if !is_offered(subsystem, nvm::COMPARE) {
        return Err(Fault::field(byte::FLAGS));
    }
    if BlockRange::decode(sqe).blocks > FUSED_BLOCKS_MAX {
        return Err(Fault::at(Status::ATOMIC_WRITE_UNIT_EXCEEDED, byte::CDW12));
    }
    let kind = match half {
        FusedHalf::First { .. } => TransferKind::Compare,
        FusedHalf::Second { .. } => TransferKind::Write,
    };
    transfer(association, namespace(subsystem, sqe.nsid())?, sqe, kind, Some(half))
}

fn ready(association: &Association) -> Result<(), Fault> {
    if association.is_ready() {
        return Ok(());
    }
    Err(if association.is_closing() {
        Fault::transient(Status::ABORTED_SQ_DELETION)
    } else {
        Fault::new(Status::COMMAND_SEQUENCE_ERROR)
    })
}

/// Whether the firmware that runs on the drive has the command; the mandatory ones it has.
fn is_offered(subsystem: &Subsystem, opcode: u8) -> bool {
    // Only drives remember which blocks cannot be read.
    let Some(drive) = &subsystem.drive else { return opcode != nvm::WRITE_UNCORRECTABLE };
    match opcode {
        nvm::COMPARE => drive.personality.compare,
        nvm::WRITE_ZEROES => drive.personality.write_zeroes,
        nvm::DATASET_MANAGEMENT => drive.personality.dataset_management,
        nvm::VERIFY => drive.personality.verify,
        nvm::COPY => drive.personality.copy,
        nvm::WRITE_UNCORRECTABLE => drive.personality.write_uncorrectable,
        opcode if reservation::is_one(opcode) => drive.personality.reservations,
        _ => true,
    }
}

/// Goes on with a command whose data has come.
pub(crate) fn resume(association: &Association, subsystem: &Subsystem, executing: &Executing, data: &[u8]) -> Outcome {
    if executing.opcode() == nvm::DATASET_MANAGEMENT {
        return deallocate(association, subsystem, executing, data);
    }
    if executing.opcode() == nvm::COPY {
        return copy::resume(association, subsystem, executing, data);
    }
    if reservation::is_one(executing.opcode()) {
        return reservation::resume(executing, data);
    }
    unreachable!("no other command of an I/O queue has parameter data: {:02x}h", executing.opcode())
}

fn fabrics_command(association: &Association, sqe: &Sqe, fctype: u8) -> Outcome {
    match fctype {
        _ if authentication::is_one(sqe.opcode, fctype) && association.proves => {
            authentication::submit(sqe, association.io_sgl())
        }
        // RECFMT of Disconnect.
        fabrics::DISCONNECT if sqe.cdw10.get() & 0xffff != 0 => {
            Err(Fault::at(Status::CONNECT_INCOMPATIBLE_FORMAT, byte::CDW10))
        }
        fabrics::DISCONNECT => Ok(Decision::Disconnect),
        // Deviation: the specification has Command Sequence Error for a Connect to a queue that
        // exists. SPDK's bdevio tries opcode 7Fh, with its namespace where FCTYPE is, and wants
        // Invalid Opcode, as Linux' target answers here.
        _ => Err(Fault::at(Status::INVALID_OPCODE, byte::NSID)),
    }
}

/// What a command does with one run of blocks; `None` if it is not about one.
fn transfer_kind(opcode: u8) -> Option<TransferKind> {
    Some(match opcode {
        nvm::READ => TransferKind::Read,
        nvm::WRITE => TransferKind::Write,
        nvm::COMPARE => TransferKind::Compare,
        nvm::VERIFY => TransferKind::Verify,
        nvm::WRITE_ZEROES => TransferKind::WriteZeroes,
        nvm::WRITE_UNCORRECTABLE => TransferKind::WriteUncorrectable,
        _ => return None,
    })
}

/// Checks a command that is about one run of blocks. Inlined where the kind is known, so that
/// little of this is left.
#[inline(always)]
#[expect(clippy::inline_always, reason = "Read and Write are made of it, and cost a fifth more instructions otherwise")]
fn transfer(
    association: &Association,
    namespace: &Namespace,
    sqe: &Sqe,
    kind: TransferKind,
    fused: Option<FusedHalf>,
) -> Outcome {
    admit(namespace, kind, sqe)?;
    let limits = &association.limits;
    let mut range = BlockRange::decode(sqe);
    let limit_bytes = match kind {
        TransferKind::Read | TransferKind::Write | TransferKind::Compare => limits.transfer_bytes,
        TransferKind::Verify => limits.verify_bytes,
        TransferKind::WriteZeroes => limits.write_zeroes_bytes,
        TransferKind::WriteUncorrectable => {
            // What other commands have there is reserved.
            range.fua = false;
            range.prinfo = 0;
            limits.write_zeroes_bytes
        }
    };
    let is_checked = namespace.metadata.is_protected() && kind != TransferKind::WriteUncorrectable;
    let checks = if is_checked { Some(protection::checks(namespace, kind, sqe, &mut range)?) } else { None };
    let mut extent = extent(namespace, range, limit_bytes)?;
    let transfer_bytes = checks.as_ref().map_or(extent.length_bytes, |checks| checks.transfer_bytes);
    if kind.moves_data() {
        let direction = if kind.takes_data() { Direction::HostToController } else { Direction::ControllerToHost };
        association.io_sgl().exactly(sqe, direction, transfer_bytes.into())?;
    }
    match kind {
        TransferKind::Write => extent.fua |= !association.write_cache.load(Ordering::Relaxed),
        TransferKind::WriteZeroes => {
            extent.fua |= !association.write_cache.load(Ordering::Relaxed);
            extent.deallocate = !is_checked && range.deallocate && namespace.deallocates;
        }
        TransferKind::Read | TransferKind::Compare | TransferKind::Verify | TransferKind::WriteUncorrectable => {}
    }
    let transfer = Transfer { kind, extent, fused, checks };
    Ok(Decision::Go(Task::Io(IoTask::Transfer(transfer)), range.blocks << namespace.block_shift))
}

/// Whether the host may have this done to the namespace.
#[inline]
fn admit(namespace: &Namespace, kind: TransferKind, sqe: &Sqe) -> Result<(), Fault> {
    if !kind.is_change() {
        return reservation::check(namespace, Access::Read);
    }
    reservation::check(namespace, Access::Write)?;
    writable(namespace)?;
    // DTYPE: no directives.
    if kind == TransferKind::Write && sqe.cdw12.get() & 0x00f0_0000 != 0 {
        return Err(Fault::field(byte::CDW12 + 2));
    }
    Ok(())
}

fn flush(subsystem: &Subsystem, sqe: &Sqe) -> Outcome {
    // VWC says that FFFFFFFFh is refused; it names no namespace.
    let namespace = namespace(subsystem, sqe.nsid())?;
    reservation::check_flush(namespace)?;
    Ok(Decision::Go(Task::Io(IoTask::Flush(namespace.device)), 0))
}

fn dataset_management(association: &Association, subsystem: &Subsystem, sqe: &Sqe) -> Outcome {
    let namespace = namespace(subsystem, sqe.nsid())?;
    reservation::check(namespace, Access::Write)?;
    let dsm = Dsm::decode(sqe);
    if dsm.ranges > association.limits.dsm_ranges {
        return Err(Fault::at(Status::COMMAND_SIZE_LIMIT_EXCEEDED, byte::CDW10));
    }
    if dsm.deallocate {
        writable(namespace)?;
    }
    // Linux always sends the 4096 bytes that hold the most ranges, however few it means.
    let bytes = u64::from(dsm.ranges) * RANGE_BYTES;
    let length = association.io_sgl().at_least(sqe, Direction::HostToController, bytes)?;
    Ok(Decision::Go(Task::Receive, length))
}

fn deallocate(association: &Association, subsystem: &Subsystem, executing: &Executing, data: &[u8]) -> Outcome {
    let namespace = namespace(subsystem, executing.nsid())?;
    let [ranges, ..] = executing.cdw10().to_le_bytes();
    let Some((ranges, _)) = <[DsmRange]>::ref_from_prefix_with_elems(data, usize::from(ranges) + 1).ok() else {
        return Err(Fault::new(Status::DATA_SGL_LENGTH_INVALID));
    };
    let limit = association.limits.dsm_range_blocks;
    let all: u64 = ranges.iter().map(|range| u64::from(range.nlb.get())).sum();
    if association.limits.dsm_blocks != 0 && all > association.limits.dsm_blocks {
        return Err(Fault::new(Status::COMMAND_SIZE_LIMIT_EXCEEDED));
    }
    let mut chosen = Vec::with_capacity(ranges.len());
    for range in ranges {
        let slba = range.slba.get();
        let blocks = range.nlb.get();
        if limit != 0 && blocks > limit {
            return Err(Fault::new(Status::COMMAND_SIZE_LIMIT_EXCEEDED));
        }
        let offset_bytes = place(namespace, slba, blocks.into())?;
        if blocks != 0 {
            chosen.push(ByteRange { offset_bytes, length_bytes: u64::from(blocks) * namespace.block_bytes() });
        }
    }
    // AD: without it the ranges are hints about use, which nothing here profits from.
    let wanted = executing.cdw11() & 4 != 0;
    if !wanted || !namespace.deallocates || chosen.is_empty() {
        return Ok(Decision::Done(0));
    }
    // It may have become reserved or write protected while the data was on its way.
    reservation::check(namespace, Access::Write)?;
    writable(namespace)?;
    Ok(Decision::Go(Task::Io(IoTask::Deallocate(namespace.device, merged(chosen))), executing.length()))
}

/// The same bytes as ranges in order that do not touch: what is named several times is done once.
fn merged(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.sort_unstable_by_key(|range| range.offset_bytes);
    // Namespaces end below 2^64 bytes.
    ranges.dedup_by(|next, range| {
        let end = range.offset_bytes + range.length_bytes;
        let touches = next.offset_bytes <= end;
        if touches {
            range.length_bytes = end.max(next.offset_bytes + next.length_bytes) - range.offset_bytes;
        }
        touches
    });
    ranges
}

/// Bytes of a range of Dataset Management.
const RANGE_BYTES: u64 = 16;
