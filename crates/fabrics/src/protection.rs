//! Commands that name blocks with protection information: which of their wishes are legal, how much travels between host and
//! controller, and how much between controller and device. Carrying it out is the target's business.
//!
//! NVM Command Set 1.1, "End-to-end Data Protection".

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::protection::{Rules, Tags};
use ebof_nvme::{Sqe, Status};

use crate::association::Association;
use crate::io::{self, admit, direction};
use crate::model::Namespace;
use crate::outcome::{Action, Fault, Outcome, byte};
use crate::step::{Executing, Extent, Guarding, Step};

/// Read, Write and Compare, also as halves of a pair; `step` makes the step of the command.
#[cold]
pub(crate) fn transfer(
    association: &Association,
    namespace: &Namespace,
    sqe: &Sqe,
    step: impl FnOnce(Executing, Extent) -> Step,
) -> Outcome {
    admit(namespace, sqe)?;
    let (mut extent, guarding) = extent(namespace, sqe, association.limits.transfer_bytes)?;
    association.io_sgl().exactly(sqe, direction(sqe), guarding.transfer_bytes.into())?;
    if sqe.opcode == nvm::WRITE {
        extent.fua |= !association.write_cache.load(Ordering::Relaxed);
    }
    let executing = Executing::new(sqe, BlockRange::decode(sqe).blocks << namespace.block_shift);
    Ok(guarding.around(step(executing, extent)))
}

/// The blocks of a command on the device, and what is done about their protection information; of data at most `limit_bytes`.
#[cold]
pub(crate) fn extent(namespace: &Namespace, sqe: &Sqe, limit_bytes: u32) -> Result<(Extent, Guarding), Fault> {
    let range = BlockRange::decode(sqe);
    let rules = rules(namespace, range.prinfo, range.slba, &Tags::decode(sqe))?;
    // What is compared or verified is checked as it stands: there is nothing to insert or strip.
    if rules.acts() && matches!(sqe.opcode, nvm::COMPARE | nvm::VERIFY) {
        return Err(Fault::at(Status::INVALID_PROTECTION_INFORMATION, PRINFO));
    }
    let extent = io::extent(namespace, BlockRange { prinfo: 0, ..range }, limit_bytes)?;
    let guarding = Guarding {
        rules,
        data_bytes: 1 << namespace.block_shift,
        // PRACT, with nothing but protection information for metadata: the host transfers data alone.
        transfer_bytes: if rules.acts() { range.blocks << namespace.block_shift } else { extent.length_bytes },
        device_bytes: extent.length_bytes,
    };
    Ok((extent, guarding))
}

/// What these fields of a command want of blocks from `slba` on.
pub(crate) fn rules(namespace: &Namespace, prinfo: u8, slba: u64, tags: &Tags) -> Result<Rules, Fault> {
    Rules::new(namespace.metadata.protection, prinfo, slba, tags).map_err(|status| Fault::at(status, PRINFO))
}

impl Guarding {
    /// The step with this on its way.
    pub(crate) fn around(self, step: Step) -> Action {
        Action::Go(Step::Guarded(Box::new(self), Box::new(step)))
    }
}

/// The byte of PRINFO (of Copy: PRINFOW) in a command.
const PRINFO: u8 = byte::CDW12 + 3;
