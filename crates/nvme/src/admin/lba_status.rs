//! Get LBA Status: its dwords and the list of descriptors that it returns.
//!
//! NVM Command Set 1.1, "Get LBA Status command".

use alloc::vec::Vec;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Sqe;
use crate::command::opcode::admin;
use crate::name::id::Nsid;
use crate::table::values;

/// Get LBA Status, dwords 10 to 13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLbaStatus {
    /// Starting LBA (SLBA).
    pub slba: u64,
    /// Most that is to be returned (MNDW), in bytes: 4 to 2^34.
    pub bytes: u64,
    /// Range Length (RL), blocks; 0 reaches to the end of the namespace.
    pub blocks: u16,
    /// Action Type (ATYPE).
    pub action: StatusAction,
}

impl GetLbaStatus {
    /// From dwords 10 to 13; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [low, high, _, action] = sqe.cdw13.to_bytes();
        Self {
            slba: u64::from(sqe.cdw10.get()) | u64::from(sqe.cdw11.get()) << 32,
            bytes: (u64::from(sqe.cdw12.get()) + 1) * 4,
            blocks: u16::from_le_bytes([low, high]),
            action: StatusAction(action),
        }
    }

    /// The command for `nsid`; `bytes` is rounded down to dwords and cut to what the field holds.
    #[must_use]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        let [a, b, c, d, e, f, g, h] = self.slba.to_le_bytes();
        Sqe::new(admin::GET_LBA_STATUS)
            .with_nsid(nsid)
            .with_cdw(10, u32::from_le_bytes([a, b, c, d]))
            .with_cdw(11, u32::from_le_bytes([e, f, g, h]))
            .with_cdw(12, u32::try_from((self.bytes / 4).saturating_sub(1)).unwrap_or(u32::MAX))
            .with_cdw(13, u32::from(self.blocks) | u32::from(self.action.0) << 24)
    }
}

/// Action Type (ATYPE) of Get LBA Status. Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatusAction(pub u8);

impl StatusAction {
    /// 02h: blocks that are allocated, as they are tracked.
    pub const ALLOCATED: Self = Self(0x02);
    /// 10h: scan for blocks that may be unrecoverable, and return those found and those known.
    pub const SCAN: Self = Self(0x10);
    /// 11h: return the blocks that are known to be maybe unrecoverable.
    pub const TRACKED: Self = Self(0x11);
}

values! {
    /// Completion Condition (CMPC).
    pub enum CompletionCondition, 8 bits {
        /// Nothing is said.
        NotSaid = 0;
        /// There is more than could be returned or scanned.
        Incomplete = 1;
        /// All of the range is covered.
        Complete = 2;
    }
}

/// Header of the LBA Status Descriptor List, 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct StatusListHeader {
    /// Number of LBA Status Descriptors.
    pub nlsd: U32,
    /// Completion Condition: `condition`.
    pub cmpc: u8,
    /// Reserved.
    pub rsvd5: [u8; 3],
}

const _: () = assert!(size_of::<StatusListHeader>() == 8);

impl StatusListHeader {
    /// How far the command came.
    #[must_use]
    pub const fn condition(&self) -> CompletionCondition {
        CompletionCondition::decode(self.cmpc)
    }
}

/// LBA Status Descriptor Entry, 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct StatusDescriptor {
    /// Descriptor Starting LBA.
    pub dslba: U64,
    /// Number of Logical Blocks.
    pub nlb: U32,
    /// Reserved.
    pub rsvd12: u8,
    /// LBA Range Status, bits 2:0.
    pub status: u8,
    /// Reserved.
    pub rsvd14: [u8; 2],
}

const _: () = assert!(size_of::<StatusDescriptor>() == 16);

/// The list for `ranges` (first block, blocks, status); as many as fit into `bytes_max` bytes, with
/// Incomplete instead of `condition` where not all do.
#[must_use]
pub fn status_list(ranges: &[(u64, u32, u8)], condition: CompletionCondition, bytes_max: usize) -> Vec<u8> {
    let room = bytes_max.saturating_sub(size_of::<StatusListHeader>()) / size_of::<StatusDescriptor>();
    let taken = ranges.get(..room).unwrap_or(ranges);
    let condition = if taken.len() < ranges.len() { CompletionCondition::Incomplete } else { condition };
    let header = StatusListHeader {
        nlsd: u32::try_from(taken.len()).unwrap_or(u32::MAX).into(),
        cmpc: condition.encode(),
        ..StatusListHeader::default()
    };
    let mut out = header.as_bytes().to_vec();
    for &(dslba, nlb, status) in taken {
        let entry = StatusDescriptor { dslba: dslba.into(), nlb: nlb.into(), status, ..StatusDescriptor::default() };
        out.extend_from_slice(entry.as_bytes());
    }
    out
}

/// Reads a list: the header and the descriptors that are in `data`, at most as many as the header
/// counts. `None` where `data` is shorter than the header.
#[must_use]
pub fn read_status_list(data: &[u8]) -> Option<(StatusListHeader, Vec<StatusDescriptor>)> {
    let (header, rest) = StatusListHeader::read_from_prefix(data).ok()?;
    let count = usize::try_from(header.nlsd.get()).unwrap_or(usize::MAX);
    let entries = rest.chunks_exact(size_of::<StatusDescriptor>()).take(count);
    Some((header, entries.filter_map(|entry| StatusDescriptor::read_from_bytes(entry).ok()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_command_has_the_layout_of_the_specification() {
        let get = GetLbaStatus { slba: 0x1_0000_0002, bytes: 4096, blocks: 8, action: StatusAction::SCAN };
        let sqe = get.encode(Nsid(3));
        let dwords = [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13].map(|dword| dword.get());
        assert_eq!((sqe.opcode, dwords), (0x86, [2, 1, 1023, 0x1000_0008]));
        assert_eq!(GetLbaStatus::decode(&sqe), get);
    }

    #[test]
    fn a_list_has_the_entries_that_fit_and_says_if_there_are_more() {
        let ranges = [(0x10, 2, 1), (0x20, 3, 0)];
        let list = status_list(&ranges, CompletionCondition::Complete, 40);
        assert_eq!(list[..8], [2, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(list[8..24], [0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(status_list(&ranges, CompletionCondition::Complete, 39)[..8], [1, 0, 0, 0, 1, 0, 0, 0]);
        let (header, read) = read_status_list(&list).unwrap();
        assert_eq!((header.condition(), read.len(), read[1].nlb.get()), (CompletionCondition::Complete, 2, 3));
        assert_eq!(read_status_list(&list[..39]).unwrap().1.len(), 1);
        assert_eq!(read_status_list(&list[..7]), None);
    }

    proptest! {
        #[test]
        fn any_command_decodes_and_round_trips(dwords in any::<[u32; 4]>()) {
            let mut sqe = Sqe::new(admin::GET_LBA_STATUS).with_nsid(Nsid(1));
            for (at, dword) in (10..).zip(dwords) {
                sqe = sqe.with_cdw(at, dword);
            }
            let again = GetLbaStatus::decode(&sqe).encode(Nsid(1));
            prop_assert_eq!((again.cdw10, again.cdw11, again.cdw12), (sqe.cdw10, sqe.cdw11, sqe.cdw12));
            prop_assert_eq!(again.cdw13.get(), dwords[3] & 0xff00_ffff);
        }
    }
}
