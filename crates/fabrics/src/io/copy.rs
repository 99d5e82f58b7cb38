//! Copy: checked against the namespaces that it names and turned into ranges of devices. The target
//! moves the bytes.
//!
//! NVM Command Set, "Copy command".

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ebof_drive::reservation::Access;
use ebof_nvme::copy::{Copy, CopyFormat, CopySource};
use ebof_nvme::identify::IdentifyNamespace;
use ebof_nvme::opcode::Direction;
use ebof_nvme::protection::{Rules, Tags, prinfo};
use ebof_nvme::{Sqe, Status};

use crate::association::Association;
use crate::io::extent::{namespace, place, writable};
use crate::io::protection::rules;
use crate::io::reservation;
use crate::model::{Limits, Namespace, Subsystem};
use crate::task::executing::Executing;
use crate::task::outcome::{Decision, Fault, Outcome, byte};
use crate::task::{self, CopyChecks, CopyPlan, CopyRange, IoTask, Task};

/// Takes a command.
pub(crate) fn submit(association: &Association, subsystem: &Subsystem, sqe: &Sqe) -> Outcome {
    let destination = namespace(subsystem, sqe.nsid())?;
    reservation::check(destination, Access::Write)?;
    writable(destination)?;
    let copy = Copy::decode(sqe);
    let format = CopyFormat::decode(copy.format).ok_or(Fault::field(byte::CDW12 + 1))?;
    // Deviation: 1h and 3h are for 32-bit and 64-bit guards, and taken where there are none at all:
    // what they have besides does not matter there.
    let protected = destination.metadata.is_protected();
    if format.has_long_tags() && protected {
        return Err(Fault::at(Status::INVALID_FORMAT, byte::CDW12 + 1));
    }
    // Host Behavior Support: a host says that it knows what it means to name other namespaces.
    let enabled = association.copy_formats.load(Ordering::Relaxed) >> format.encode() & 1 != 0;
    if format.names_namespace() && !enabled {
        return Err(Fault::field(byte::CDW12 + 1));
    }
    if copy.directive != 0 {
        return Err(Fault::field(byte::CDW12 + 2));
    }
    // Without protection information neither PRINFOR nor PRINFOW make sense, and there is no
    // storage tag that could be checked.
    let wanted = !protected && copy.read_protection | copy.write_protection != 0;
    if wanted || copy.storage_tag_check_read || copy.storage_tag_check_write {
        return Err(Fault::at(Status::INVALID_PROTECTION_INFORMATION, byte::CDW12 + 3));
    }
    if protected {
        // Stripped and not inserted again, or the other way round: that is a copy to another
        // format.
        if (copy.read_protection ^ copy.write_protection) & prinfo::ACTION != 0 {
            return Err(Fault::field(byte::CDW12 + 1));
        }
        write_rules(destination, &copy)?;
    }
    if copy.ranges > association.limits.copy_ranges {
        return Err(Fault::at(Status::COMMAND_SIZE_LIMIT_EXCEEDED, byte::CDW12));
    }
    let bytes = u64::from(copy.ranges) * format.entry_bytes() as u64;
    let length = association.io_sgl().at_least(sqe, Direction::HostToController, bytes)?;
    Ok(Decision::Go(Task::Receive, length))
}

/// Goes on with a command whose source ranges have come. Whatever is wrong with any of them is
/// found before the first is copied: dword 0 of a refusal, the lowest range that is not copied,
/// is 0.
pub(crate) fn resume(association: &Association, subsystem: &Subsystem, executing: &Executing, data: &[u8]) -> Outcome {
    let destination = namespace(subsystem, executing.nsid())?;
    // It may have become reserved or write protected while the data was on its way.
    reservation::check(destination, Access::Write)?;
    writable(destination)?;
    let copy = Copy::decode(&executing.sqe());
    let format = CopyFormat::decode(copy.format).expect("it was looked at before the ranges were fetched");
    let sources = CopySource::decode_all(format, data);
    let limits = &association.limits;
    let shift = destination.block_shift;
    let blocks: u64 = sources.iter().map(|source| u64::from(source.blocks)).sum();
    let too_long = sources.iter().any(|source| source.blocks > range_blocks(limits, shift));
    if too_long || blocks > all_blocks(limits, shift).into() {
        return Err(Fault::new(Status::COMMAND_SIZE_LIMIT_EXCEEDED));
    }
    let offset_bytes = place(destination, copy.slba, blocks)?;
    let length_bytes = blocks * destination.block_bytes();
    let target = CopyRange { device: destination.device, nsid: destination.nsid, offset_bytes, length_bytes };
    let own = !format.names_namespace();
    let ranges: Result<Vec<_>, _> =
        sources.iter().map(|source| range(subsystem, destination, own, source, &target)).collect();
    let ranges = ranges?;
    let checks = destination.metadata.is_protected().then(|| checks(destination, &copy, &sources)).transpose()?;
    let fua = copy.fua || !association.write_cache.load(Ordering::Relaxed);
    let length = u32::try_from(blocks << shift).expect("below the limit of a command");
    let data_bytes = 1 << shift;
    let metadata_bytes = destination.metadata.bytes;
    let plan = CopyPlan { target, data_bytes, metadata_bytes, checks, sources: ranges, fua };
    Ok(Decision::Go(Task::Io(IoTask::Copy(Box::new(task::Copy::new(plan)))), length))
}

/// What is done about protection information, which source and destination have in the same way.
fn checks(destination: &Namespace, copy: &Copy, sources: &[CopySource]) -> Result<CopyChecks, Fault> {
    let read = |source: &CopySource| {
        let CopySource { application_tag, application_mask, .. } = *source;
        let tags = tags(source.reference_tag(), application_tag, application_mask);
        rules(destination, copy.read_protection, source.slba, &tags).map_err(|fault| Fault::new(fault.status))
    };
    let read: Result<Vec<_>, _> = sources.iter().map(read).collect();
    Ok(CopyChecks { read: read?, write: write_rules(destination, copy)? })
}

fn write_rules(destination: &Namespace, copy: &Copy) -> Result<Rules, Fault> {
    let tags = tags(copy.reference_tag, copy.application_tag, copy.application_mask);
    rules(destination, copy.write_protection, copy.slba, &tags)
}

fn tags(reference: u32, application: u16, application_mask: u16) -> Tags {
    Tags { storage_and_reference: reference.into(), application, application_mask, check_storage: false }
}

/// The bytes of a source range; `own` of the destination's namespace, which formats 0h and 1h do
/// not name.
fn range(
    subsystem: &Subsystem,
    destination: &Namespace,
    own: bool,
    source: &CopySource,
    target: &CopyRange,
) -> Result<CopyRange, Fault> {
    let from = match own {
        true => destination,
        false => namespace(subsystem, source.nsid).map_err(|fault| Fault::new(fault.status))?,
    };
    reservation::check(from, Access::Read)?;
    let shape =
        |namespace: &Namespace| (namespace.block_shift, namespace.metadata.bytes, namespace.metadata.protection);
    if shape(from) != shape(destination) {
        return Err(Fault::new(Status::INCOMPATIBLE_NAMESPACE));
    }
    // It is done by reading and writing, whatever namespaces are concerned: a host that does not
    // want that does as well by itself.
    if source.fast_only {
        return Err(Fault::new(Status::FAST_COPY_NOT_POSSIBLE));
    }
    let offset_bytes = place(from, source.slba, source.blocks.into()).map_err(|fault| Fault::new(fault.status))?;
    let length_bytes = u64::from(source.blocks) * from.block_bytes();
    let range = CopyRange { device: from.device, nsid: from.nsid, offset_bytes, length_bytes };
    if range.overlaps(target) {
        return Err(Fault::new(Status::OVERLAPPING_IO_RANGE));
    }
    Ok(range)
}

/// Says in Identify what is enforced here.
pub(crate) fn announce(data: &mut IdentifyNamespace, limits: &Limits, block_shift: u8) {
    data.mssrl.set(u16::try_from(range_blocks(limits, block_shift)).unwrap_or(u16::MAX));
    data.mcl.set(all_blocks(limits, block_shift));
    data.msrc = u8::try_from(limits.copy_ranges.clamp(1, 256) - 1).expect("at most 255");
}

/// Blocks of a source range at most (MSSRL).
fn range_blocks(limits: &Limits, block_shift: u8) -> u32 {
    (limits.copy_range_bytes >> block_shift).clamp(1, u16::MAX.into())
}

/// Blocks of all source ranges together at most (MCL).
fn all_blocks(limits: &Limits, block_shift: u8) -> u32 {
    (limits.copy_bytes >> block_shift).max(1)
}
