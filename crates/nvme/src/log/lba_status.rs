//! LBA Status Information (0Eh): logical blocks that may not be recoverable, by namespace.

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::name::id::Nsid;

/// LBA Status Information header, 16 bytes; elements follow. NVM Command Set 1.1, section of that
/// name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LbaStatusHeader {
    /// LBA Status Log Page Length, bytes, this header included.
    pub lslplen: U32,
    /// Number of LBA Status Log Namespace Elements.
    pub nlslne: U32,
    /// Estimate of Unrecoverable Logical Blocks.
    pub estulb: U32,
    /// Reserved.
    pub rsvd12: [u8; 2],
    /// LBA Status Generation Counter.
    pub lsgc: U16,
}

const _: () = assert!(size_of::<LbaStatusHeader>() == 16);

/// LBA Status Log Namespace Element, 16 bytes; range descriptors follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LbaStatusElement {
    /// Namespace Element Identifier: a namespace.
    pub neid: U32,
    /// Number of LBA Range Descriptors; FFFFFFFFh: ask Get LBA Status.
    pub nlrd: U32,
    /// Recommended Action Type: an ATYPE of Get LBA Status.
    pub ratype: u8,
    /// Reserved.
    pub rsvd9: [u8; 7],
}

const _: () = assert!(size_of::<LbaStatusElement>() == 16);

/// LBA Range Descriptor, 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LbaRange {
    /// Range Starting LBA.
    pub rslba: U64,
    /// Range Number of Logical Blocks.
    pub rnlb: U32,
    /// Reserved.
    pub rsvd12: [u8; 4],
}

const _: () = assert!(size_of::<LbaRange>() == 16);

/// The log page: ranges (first block, blocks) by namespace, with the ATYPE to ask for more.
#[must_use]
pub fn lba_status_log(generation: u16, action: u8, namespaces: &[(Nsid, &[(u64, u32)])]) -> Vec<u8> {
    let mut out = LbaStatusHeader::default().as_bytes().to_vec();
    let mut blocks = 0_u32;
    for (nsid, ranges) in namespaces {
        let nlrd = u32::try_from(ranges.len()).unwrap_or(u32::MAX - 1);
        let element =
            LbaStatusElement { neid: nsid.0.into(), nlrd: nlrd.into(), ratype: action, ..LbaStatusElement::default() };
        out.extend_from_slice(element.as_bytes());
        for &(first, count) in *ranges {
            let range = LbaRange { rslba: first.into(), rnlb: count.into(), ..LbaRange::default() };
            out.extend_from_slice(range.as_bytes());
            blocks = blocks.saturating_add(count);
        }
    }
    let header = LbaStatusHeader {
        lslplen: u32::try_from(out.len()).unwrap_or(u32::MAX).into(),
        nlslne: u32::try_from(namespaces.len()).unwrap_or(u32::MAX).into(),
        estulb: blocks.into(),
        lsgc: generation.into(),
        ..LbaStatusHeader::default()
    };
    out[..size_of::<LbaStatusHeader>()].copy_from_slice(header.as_bytes());
    out
}
