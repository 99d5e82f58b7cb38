//! The commands of an I/O queue: checked against the namespace and turned into extents of a device. Apart from Dataset
//! Management nothing here allocates, and nothing takes a lock.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ebof_drive::reservation::Access;
use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::opcode::{Direction, fabrics, nvm};
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::association::Association;
use crate::fused::{self, Half};
use crate::model::{Namespace, Subsystem};
use crate::outcome::{Action, Fault, Next, Outcome, Resumed, byte};
use crate::step::{ByteRange, Executing, Extent, Step};
use crate::{copy, protection, reservation};

/// Takes a command.
pub(crate) fn submit(association: &Association, subsystem: &Subsystem, sqe: &Sqe) -> Outcome {
    if let Some(fctype) = sqe.fctype() {
        return fabrics_command(sqe, fctype);
    }
    ready(association)?;
    if sqe.opcode > nvm::READ && !is_offered(subsystem, sqe.opcode) {
        return Err(Fault::at(Status::INVALID_OPCODE, byte::OPCODE));
    }
    match sqe.opcode {
        nvm::READ | nvm::WRITE | nvm::COMPARE => transfer(association, subsystem, sqe),
        nvm::WRITE_ZEROES | nvm::VERIFY | nvm::WRITE_UNCORRECTABLE => without_data(association, subsystem, sqe),
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
pub(crate) fn fused(association: &Association, subsystem: &Subsystem, sqe: &Sqe, half: Half) -> Outcome {
    ready(association)?;
    if !is_offered(subsystem, nvm::COMPARE) {
        return Err(Fault::field(byte::FLAGS));
    }
    if BlockRange::decode(sqe).blocks > fused::BLOCKS_MAX {
        return Err(Fault::at(Status::ATOMIC_WRITE_UNIT_EXCEEDED, byte::CDW12));
    }
    let namespace = namespace(subsystem, sqe.nsid())?;
    if namespace.metadata.is_protected() {
        return protection::transfer(association, namespace, sqe, |executing, extent| half.step(executing, extent));
    }
    let extent = checked(association, namespace, sqe)?;
    Ok(Action::Go(half.step(Executing::new(sqe, data_bytes(namespace, sqe)), extent)))
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
pub(crate) fn resume(association: &Association, subsystem: &Subsystem, executing: &Executing, data: &[u8]) -> Resumed {
    if executing.opcode == nvm::DATASET_MANAGEMENT {
        return deallocate(association, subsystem, executing, data);
    }
    if executing.opcode == nvm::COPY {
        return copy::resume(association, subsystem, executing, data);
    }
    if reservation::is_one(executing.opcode) {
        return reservation::resume(executing, data);
    }
    Err(Fault::new(Status::INTERNAL_ERROR))
}

fn fabrics_command(sqe: &Sqe, fctype: u8) -> Outcome {
    match fctype {
        // RECFMT of Disconnect.
        fabrics::DISCONNECT if sqe.cdw10.get() & 0xffff != 0 => {
            Err(Fault::at(Status::CONNECT_INCOMPATIBLE_FORMAT, byte::CDW10))
        }
        fabrics::DISCONNECT => Ok(Action::Disconnect),
        // Deviation: the specification has Command Sequence Error for a Connect to a queue that exists. SPDK's bdevio tries opcode 7Fh,
        // with its namespace where FCTYPE is, and wants Invalid Opcode, as Linux' target answers here.
        _ => Err(Fault::at(Status::INVALID_OPCODE, byte::NSID)),
    }
}

/// Read, Write and Compare.
fn transfer(association: &Association, subsystem: &Subsystem, sqe: &Sqe) -> Outcome {
    let namespace = namespace(subsystem, sqe.nsid())?;
    let step = |executing, extent| match sqe.opcode {
        nvm::READ => Step::Read(executing, extent),
        nvm::WRITE => Step::Write(executing, extent),
        _ => Step::Compare(executing, extent),
    };
    if namespace.metadata.is_protected() {
        return protection::transfer(association, namespace, sqe, step);
    }
    let extent = checked(association, namespace, sqe)?;
    Ok(Action::Go(step(Executing::new(sqe, data_bytes(namespace, sqe)), extent)))
}

/// The bytes that a Read, Write or Compare names, without their metadata.
#[inline]
fn data_bytes(namespace: &Namespace, sqe: &Sqe) -> u32 {
    BlockRange::decode(sqe).blocks << namespace.block_shift
}

#[inline]
fn checked(association: &Association, namespace: &Namespace, sqe: &Sqe) -> Result<Extent, Fault> {
    admit(namespace, sqe)?;
    let range = BlockRange::decode(sqe);
    let mut extent = extent(namespace, range, association.limits.transfer_bytes)?;
    association.io_sgl().exactly(sqe, direction(sqe), extent.length_bytes.into())?;
    if sqe.opcode == nvm::WRITE {
        extent.fua |= !association.write_cache.load(Ordering::Relaxed);
    }
    Ok(extent)
}

/// Where the data of a Read, Write or Compare go.
#[inline]
pub(crate) fn direction(sqe: &Sqe) -> Direction {
    if sqe.opcode == nvm::READ { Direction::ControllerToHost } else { Direction::HostToController }
}

/// Whether the host may do what a Read, Write or Compare wants to be done to the namespace.
#[inline]
pub(crate) fn admit(namespace: &Namespace, sqe: &Sqe) -> Result<(), Fault> {
    if sqe.opcode == nvm::WRITE {
        reservation::check(namespace, Access::Write)?;
        writable(namespace)?;
        // DTYPE: no directives.
        if sqe.cdw12.get() & 0x00f0_0000 != 0 {
            return Err(Fault::field(byte::CDW12 + 2));
        }
        Ok(())
    } else {
        reservation::check(namespace, Access::Read)
    }
}

/// Write Zeroes, Verify and Write Uncorrectable: blocks, but no data.
fn without_data(association: &Association, subsystem: &Subsystem, sqe: &Sqe) -> Outcome {
    let namespace = namespace(subsystem, sqe.nsid())?;
    let range = BlockRange::decode(sqe);
    let limits = &association.limits;
    let executing = Executing::new(sqe, range.blocks << namespace.block_shift);
    let protected = namespace.metadata.is_protected();
    if sqe.opcode == nvm::VERIFY {
        reservation::check(namespace, Access::Read)?;
        if protected {
            let (extent, guarding) = protection::extent(namespace, sqe, limits.verify_bytes)?;
            return Ok(guarding.around(Step::Verify(executing, extent)));
        }
        let extent = extent(namespace, range, limits.verify_bytes)?;
        return Ok(Action::Go(Step::Verify(executing, extent)));
    }
    reservation::check(namespace, Access::Write)?;
    writable(namespace)?;
    if sqe.opcode == nvm::WRITE_UNCORRECTABLE {
        // What other commands have there is reserved.
        let range = BlockRange { fua: false, prinfo: 0, ..range };
        let extent = extent(namespace, range, limits.write_zeroes_bytes)?;
        return Ok(Action::Go(Step::WriteUncorrectable(executing, extent)));
    }
    let cached = association.write_cache.load(Ordering::Relaxed);
    if protected {
        let (mut extent, guarding) = protection::extent(namespace, sqe, limits.write_zeroes_bytes)?;
        extent.fua |= !cached;
        return Ok(guarding.around(Step::WriteZeroes(executing, extent)));
    }
    let mut extent = extent(namespace, range, limits.write_zeroes_bytes)?;
    extent.fua |= !cached;
    extent.deallocate = range.deallocate && namespace.deallocates;
    Ok(Action::Go(Step::WriteZeroes(executing, extent)))
}

fn flush(subsystem: &Subsystem, sqe: &Sqe) -> Outcome {
    // VWC says that FFFFFFFFh is refused; it names no namespace.
    let namespace = namespace(subsystem, sqe.nsid())?;
    reservation::check_flush(namespace)?;
    Ok(Action::Go(Step::Flush(Executing::new(sqe, 0), namespace.device)))
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
    Ok(Action::Go(Step::Receive(Executing::new(sqe, length), length)))
}

fn deallocate(association: &Association, subsystem: &Subsystem, executing: &Executing, data: &[u8]) -> Resumed {
    let namespace = namespace(subsystem, executing.nsid)?;
    let [ranges, ..] = executing.cdw10.to_le_bytes();
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
        let (slba, blocks) = (range.slba.get(), range.nlb.get());
        if limit != 0 && blocks > limit {
            return Err(Fault::new(Status::COMMAND_SIZE_LIMIT_EXCEEDED));
        }
        let offset_bytes = place(namespace, slba, blocks.into())?;
        if blocks != 0 {
            chosen.push(ByteRange { offset_bytes, length_bytes: u64::from(blocks) * namespace.block_bytes() });
        }
    }
    // AD: without it the ranges are hints about use, which nothing here profits from.
    let wanted = executing.cdw11 & 4 != 0;
    if !wanted || !namespace.deallocates || chosen.is_empty() {
        return Ok(Next::Done(0));
    }
    // It may have become reserved or write protected while the data was on its way.
    reservation::check(namespace, Access::Write)?;
    writable(namespace)?;
    Ok(Next::Deallocate(namespace.device, merged(chosen)))
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

pub(crate) fn namespace(subsystem: &Subsystem, nsid: Nsid) -> Result<&Namespace, Fault> {
    // Deviation: for an NSID that could exist and does not, the specification names Invalid Field in Command; Linux and
    // SPDK targets answer Invalid Namespace or Format for both, and hosts turn that into an I/O error rather than
    // "operation not supported".
    subsystem.namespaces.find(nsid).ok_or(Fault::at(Status::INVALID_NAMESPACE, byte::NSID))
}

pub(crate) fn writable(namespace: &Namespace) -> Result<(), Fault> {
    if namespace.is_protected() { Err(Fault::new(Status::NAMESPACE_WRITE_PROTECTED)) } else { Ok(()) }
}

/// The bytes of `range` on the device; of data at most `limit_bytes`.
#[inline]
pub(crate) fn extent(namespace: &Namespace, range: BlockRange, limit_bytes: u32) -> Result<Extent, Fault> {
    // Without protection information PRACT and PRCHK make no sense.
    if range.prinfo != 0 {
        return Err(Fault::at(Status::INVALID_PROTECTION_INFORMATION, byte::CDW12 + 3));
    }
    // At most 65536 blocks of 4 KiB: 256 MiB.
    let data_bytes = range.blocks << namespace.block_shift;
    // CTRATT, MEM: what a limit limits is data.
    if data_bytes > limit_bytes {
        return Err(Fault::field(byte::CDW12));
    }
    let length_bytes = data_bytes + range.blocks * u32::from(namespace.metadata.bytes);
    let offset_bytes = place(namespace, range.slba, range.blocks.into())?;
    Ok(Extent {
        device: namespace.device,
        nsid: namespace.nsid,
        offset_bytes,
        length_bytes,
        fua: range.fua,
        deallocate: false,
    })
}

/// Where `blocks` from `slba` on begin on the device.
#[inline]
pub(crate) fn place(namespace: &Namespace, slba: u64, blocks: u64) -> Result<u64, Fault> {
    match slba.checked_add(blocks) {
        // The table holds only namespaces whose end is below 2^64 bytes.
        Some(end) if end <= namespace.blocks => {
            let metadata = if namespace.metadata.bytes == 0 { 0 } else { slba * u64::from(namespace.metadata.bytes) };
            Ok(namespace.offset_bytes + (slba << namespace.block_shift) + metadata)
        }
        _ => Err(Fault::at(Status::LBA_OUT_OF_RANGE, byte::CDW10)),
    }
}

/// Bytes of a range of Dataset Management.
const RANGE_BYTES: u64 = 16;
