//! ICResp: the controller's answer to ICReq (NVMe/TCP, Initialize Connection Response).

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Common, Layout, PduType};

/// Initialize Connection Response, 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IcResp {
    /// Common header.
    pub common: Common,
    /// PDU Format Version; 0 is the only one.
    pub pfv: U16,
    /// Controller PDU Data Alignment, 0's based dwords, 0 to 31.
    pub cpda: u8,
    /// Bit 0: header digest used; bit 1: data digest used.
    pub dgst: u8,
    /// Maximum data bytes of an H2CData PDU.
    pub maxh2cdata: U32,
    /// Reserved.
    pub reserved: [u8; 112],
}
const _: () = assert!(size_of::<IcResp>() == 128);

impl IcResp {
    /// Byte offset of PFV.
    pub const PFV: u32 = 8;
    /// Byte offset of CPDA.
    pub const CPDA: u32 = 10;
    /// Byte offset of DGST.
    pub const DGST: u32 = 11;
    /// Byte offset of MAXH2CDATA.
    pub const MAXH2CDATA: u32 = 12;

    /// An ICResp. `alignment` and `h2c_data_max` in bytes.
    #[must_use]
    pub fn new(alignment: u32, header_digest: bool, data_digest: bool, h2c_data_max: u32) -> Self {
        Self {
            common: Layout::PLAIN.common(PduType::IcResp, 0, 0),
            pfv: 0.into(),
            cpda: super::alignment_field(alignment),
            dgst: super::digest_field(header_digest, data_digest),
            maxh2cdata: h2c_data_max.into(),
            reserved: [0; 112],
        }
    }
}
