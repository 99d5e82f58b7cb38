//! Splits a copy of ranges into Copy commands within the namespace's limits. Does not run them.

use std::collections::VecDeque;

use ebof_nvme::copy::{Copy, CopyFormat, CopySource};
use ebof_nvme::identify::{IdentifyNamespace, ProtectionType};
use ebof_nvme::protection::prinfo;
use ebof_nvme::{Nsid, Sqe};

use crate::error::Error;

/// The rest of a copy: ranges of (lba, blocks), and the destination LBA of the first block.
#[derive(Debug)]
pub(crate) struct Copies {
    rest: VecDeque<(u64, u64)>,
    to: u64,
}

/// Limits of one command, all at least 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyLimits {
    /// Ranges (MSRC).
    ranges: u16,
    /// Blocks of a range (MSSRL).
    range_blocks: u64,
    /// Blocks of all ranges together (MCL).
    blocks: u64,
}

impl CopyLimits {
    pub(crate) fn from_identify(identify: &IdentifyNamespace) -> Self {
        Self {
            ranges: u16::from(identify.msrc) + 1,
            range_blocks: u64::from(identify.mssrl.get()).max(1),
            blocks: u64::from(identify.mcl.get()).max(1),
        }
    }
}

impl Copies {
    /// A copy of ranges of (lba, blocks), one after the other, to `to`. All are within the
    /// namespace, `total` blocks. No source may overlap the destination, so that any part may be
    /// repeated.
    pub(crate) fn new(ranges: &[(u64, u64)], to: u64, total: u64) -> Result<Self, Error> {
        let rest: VecDeque<(u64, u64)> = ranges.iter().copied().filter(|(_, blocks)| *blocks > 0).collect();
        match rest.iter().find(|&&(lba, blocks)| lba < to + total && to < lba + blocks) {
            Some(&(lba, blocks)) => Err(Error::Overlap { lba, blocks, to, total }),
            None => Ok(Self { rest, to }),
        }
    }

    /// The next command and its data.
    pub(crate) fn next(
        &mut self,
        limits: CopyLimits,
        nsid: Nsid,
        protection: ProtectionType,
    ) -> Option<(Sqe, Vec<u8>)> {
        let to = self.to;
        let mut left = limits.blocks;
        let mut list = Vec::new();
        let mut ranges = 0;
        while ranges < limits.ranges && left > 0 {
            let Some((lba, blocks)) = self.rest.pop_front() else { break };
            let now = blocks.min(limits.range_blocks).min(left);
            let mut source = CopySource::new(lba, u32::try_from(now).unwrap_or(u32::MAX));
            source.set_reference_tag(low(lba));
            source.encode(CopyFormat::Format0, &mut list);
            ranges += 1;
            left -= now;
            self.to += now;
            if now < blocks {
                self.rest.push_front((lba + now, blocks - now));
            }
        }
        let mut copy = Copy { slba: to, ranges, format: CopyFormat::Format0.encode(), ..Copy::default() };
        if protection != ProtectionType::None {
            // As with Read and Write: the controller checks what it strips, and inserts the
            // destination's.
            copy.read_protection = prinfo::ACTION | prinfo::CHECK_GUARD;
            copy.write_protection = prinfo::ACTION;
            copy.reference_tag = if protection == ProtectionType::Type3 { 0 } else { low(to) };
        }
        (ranges > 0).then(|| (copy.encode(nsid), list))
    }
}

/// A reference tag: the low 32 bits of the block's address.
fn low(lba: u64) -> u32 {
    u32::try_from(lba & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // @test host.asynchronous
        #[test]
        fn every_block_is_copied_once_within_the_limits(
            ranges in proptest::collection::vec((0u64..1 << 40, 1u64..300), 0..20),
            to in any::<u32>(),
            limits in (1u16..=256, 1u64..100, 1u64..500),
        ) {
            let limits = CopyLimits { ranges: limits.0, range_blocks: limits.1, blocks: limits.2 };
            let mut copies = Copies { rest: ranges.iter().copied().collect(), to: to.into() };
            let wanted: Vec<u64> = ranges.iter().flat_map(|&(lba, blocks)| lba..lba + blocks).collect();
            let mut copied = BTreeMap::new();
            while let Some((sqe, data)) = copies.next(limits, Nsid(1), ProtectionType::None) {
                let copy = Copy::decode(&sqe);
                let sources = CopySource::decode_all(CopyFormat::Format0, &data);
                prop_assert_eq!(sources.len(), usize::from(copy.ranges));
                prop_assert!(copy.ranges <= limits.ranges);
                prop_assert!(sources.iter().all(|source| (1..=limits.range_blocks).contains(&source.blocks.into())));
                let blocks: Vec<u64> =
                    sources.iter().flat_map(|source| source.slba..source.slba + u64::from(source.blocks)).collect();
                prop_assert!(blocks.len() as u64 <= limits.blocks);
                copied.extend((copy.slba..).zip(blocks));
            }
            prop_assert_eq!(copied, (u64::from(to)..).zip(wanted).collect());
        }
    }
}
