//! Where blocks of a namespace are on its device.

use ebof_nvme::io::BlockRange;
use ebof_nvme::{Nsid, Status};

use crate::model::{Namespace, Subsystem};
use crate::task::Extent;
use crate::task::outcome::{Fault, byte};

/// The namespace that an I/O command names.
pub(crate) fn namespace(subsystem: &Subsystem, nsid: Nsid) -> Result<&Namespace, Fault> {
    // Deviation: for an NSID that could exist and does not, the specification names Invalid Field
    // in Command; Linux and SPDK targets answer Invalid Namespace or Format for both, and hosts
    // turn that into an I/O error rather than "operation not supported".
    subsystem.namespaces.find(nsid).ok_or(Fault::at(Status::INVALID_NAMESPACE, byte::NSID))
}

/// Refuses what changes a namespace that is write protected.
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
