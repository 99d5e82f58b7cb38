//! ICReq: the host's offer, the first PDU of a connection (NVMe/TCP, Initialize Connection
//! Request).

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Common, Layout, PduType};

/// Initialize Connection Request, 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcReq {
    /// Common header.
    pub common: Common,
    /// PDU Format Version; 0 is the only one.
    pub pfv: U16,
    /// Host PDU Data Alignment, 0's based dwords, 0 to 31.
    pub hpda: u8,
    /// Bit 0: header digest wanted; bit 1: data digest wanted.
    pub dgst: u8,
    /// Maximum Number of Outstanding R2T, 0's based.
    pub maxr2t: U32,
    /// Reserved.
    pub reserved: [u8; 112],
}
const _: () = assert!(size_of::<IcReq>() == 128);

impl IcReq {
    /// Byte offset of PFV.
    pub const PFV: u32 = 8;
    /// Byte offset of HPDA.
    pub const HPDA: u32 = 10;
    /// Byte offset of DGST.
    pub const DGST: u32 = 11;

    /// An ICReq. `alignment` in bytes, `r2t_max` a plain count of at least 1.
    #[must_use]
    pub fn new(alignment: u32, header_digest: bool, data_digest: bool, r2t_max: u32) -> Self {
        Self {
            common: Layout::PLAIN.common(PduType::IcReq, 0, 0),
            pfv: 0.into(),
            hpda: super::alignment_field(alignment),
            dgst: super::digest_field(header_digest, data_digest),
            maxr2t: r2t_max.saturating_sub(1).into(),
            reserved: [0; 112],
        }
    }
}
