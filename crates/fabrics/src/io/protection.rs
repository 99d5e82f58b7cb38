//! Commands that name blocks with protection information: which of their wishes are legal, how much
//! travels between host and controller, and how much between controller and device. Carrying it out
//! is the target's business.
//!
//! NVM Command Set 1.1, "End-to-end Data Protection".
#![deny(clippy::wildcard_enum_match_arm)]

use alloc::boxed::Box;

use ebof_nvme::io::BlockRange;
use ebof_nvme::protection::{Rules, Tags};
use ebof_nvme::{Sqe, Status};

use crate::model::Namespace;
use crate::task::outcome::{Fault, byte};
use crate::task::{ProtectionChecks, TransferKind};

/// What is done about the protection information of a command's blocks. `range` is the command's;
/// what it says of protection is dealt with then.
#[cold]
pub(crate) fn checks(
    namespace: &Namespace,
    kind: TransferKind,
    sqe: &Sqe,
    range: &mut BlockRange,
) -> Result<Box<ProtectionChecks>, Fault> {
    let rules = rules(namespace, range.prinfo, range.slba, &Tags::decode(sqe))?;
    // What is compared or verified is checked as it stands: there is nothing to insert or strip.
    if rules.acts() && matches!(kind, TransferKind::Compare | TransferKind::Verify) {
        return Err(Fault::at(Status::INVALID_PROTECTION_INFORMATION, PRINFO));
    }
    range.prinfo = 0;
    let data_bytes = range.blocks << namespace.block_shift;
    let device_bytes = data_bytes + range.blocks * u32::from(namespace.metadata.bytes);
    Ok(Box::new(ProtectionChecks {
        rules,
        data_bytes: 1 << namespace.block_shift,
        // PRACT, with nothing but protection information for metadata: the host transfers data
        // alone.
        transfer_bytes: if rules.acts() { data_bytes } else { device_bytes },
        device_bytes,
    }))
}

/// What these fields of a command want of blocks from `slba` on.
pub(crate) fn rules(namespace: &Namespace, prinfo: u8, slba: u64, tags: &Tags) -> Result<Rules, Fault> {
    Rules::new(namespace.metadata.protection, prinfo, slba, tags).map_err(|status| Fault::at(status, PRINFO))
}

/// The byte of PRINFO (of Copy: PRINFOW) in a command.
const PRINFO: u8 = byte::CDW12 + 3;
