//! Commands of the NVM command set that name logical blocks (NVM Command Set, I/O Commands).

pub mod copy;
pub mod reservation;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Sqe;
use crate::command::opcode::nvm;
use crate::name::id::Nsid;

/// Where a command reads or writes, and how: the fields that Read, Write, Compare, Verify and Write
/// Zeroes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// Starting LBA (SLBA).
    pub slba: u64,
    /// Number of logical blocks, 1 to 65536 (NLB + 1).
    pub blocks: u32,
    /// Force Unit Access (dword 12, bit 30).
    pub fua: bool,
    /// Limited Retry (dword 12, bit 31).
    pub limited_retry: bool,
    /// Deallocate (dword 12, bit 25), of Write Zeroes.
    pub deallocate: bool,
    /// Protection information fields (dword 12, bits 29:26).
    pub prinfo: u8,
}

impl BlockRange {
    /// A plain range.
    #[must_use]
    pub const fn new(slba: u64, blocks: u32) -> Self {
        Self { slba, blocks, fua: false, limited_retry: false, deallocate: false, prinfo: 0 }
    }

    /// Decodes dwords 10 to 12.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let cdw12 = sqe.cdw12.get();
        let [_, _, _, high] = sqe.cdw12.to_bytes();
        Self {
            slba: u64::from(sqe.cdw10.get()) | u64::from(sqe.cdw11.get()) << 32,
            blocks: (cdw12 & 0xffff) + 1,
            fua: cdw12 & 1 << 30 != 0,
            limited_retry: cdw12 & 1 << 31 != 0,
            deallocate: cdw12 & 1 << 25 != 0,
            prinfo: high >> 2 & 0xf,
        }
    }

    /// A command of `opcode` on this range; `blocks` of 0 or above 65536 are cut to what the field
    /// holds.
    #[must_use]
    pub fn encode(&self, opcode: u8, nsid: Nsid) -> Sqe {
        let [a, b, c, d, e, f, g, h] = self.slba.to_le_bytes();
        let cdw12 = (self.blocks.clamp(1, 65_536) - 1)
            | u32::from(self.deallocate) << 25
            | u32::from(self.prinfo & 0xf) << 26
            | u32::from(self.fua) << 30
            | u32::from(self.limited_retry) << 31;
        let mut sqe = Sqe::new(opcode).with_nsid(nsid).with_cdw(12, cdw12);
        sqe.cdw10 = U32::from_bytes([a, b, c, d]);
        sqe.cdw11 = U32::from_bytes([e, f, g, h]);
        sqe
    }
}

/// One range of Dataset Management, 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DsmRange {
    /// Context attributes.
    pub cattr: U32,
    /// Length in logical blocks.
    pub nlb: U32,
    /// Starting LBA.
    pub slba: U64,
}
const _: () = assert!(size_of::<DsmRange>() == 16);

/// Dataset Management, decoded from dwords 10 and 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dsm {
    /// Number of ranges, 1 to 256 (NR + 1).
    pub ranges: u16,
    /// AD: deallocate the ranges.
    pub deallocate: bool,
    /// IDW: integral dataset for write.
    pub integral_write: bool,
    /// IDR: integral dataset for read.
    pub integral_read: bool,
}

impl Dsm {
    /// Decodes the command.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let cdw11 = sqe.cdw11.get();
        Self {
            ranges: u16::from(sqe.cdw10.to_bytes()[0]) + 1,
            integral_read: cdw11 & 1 != 0,
            integral_write: cdw11 & 2 != 0,
            deallocate: cdw11 & 4 != 0,
        }
    }

    /// The command for `nsid`; `ranges` of 0 or above 256 are cut to what the field holds.
    #[must_use]
    pub fn encode(&self, nsid: Nsid) -> Sqe {
        let cdw11 =
            u32::from(self.integral_read) | u32::from(self.integral_write) << 1 | u32::from(self.deallocate) << 2;
        Sqe::new(nvm::DATASET_MANAGEMENT)
            .with_nsid(nsid)
            .with_cdw(10, u32::from(self.ranges.clamp(1, 256) - 1))
            .with_cdw(11, cdw11)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn block_ranges_round_trip(slba: u64, blocks in 1u32..=65_536, fua: bool, limited_retry: bool, deallocate: bool, prinfo in 0u8..16) {
            let range = BlockRange { slba, blocks, fua, limited_retry, deallocate, prinfo };
            prop_assert_eq!(BlockRange::decode(&range.encode(nvm::READ, Nsid(1))), range);
        }
    }

    #[test]
    fn dataset_management_counts_from_one() {
        let dsm = Dsm { ranges: 256, deallocate: true, integral_write: false, integral_read: false };
        let sqe = dsm.encode(Nsid(2));
        assert_eq!((sqe.cdw10.get(), sqe.cdw11.get()), (255, 4));
        assert_eq!(Dsm::decode(&sqe), dsm);
    }
}
