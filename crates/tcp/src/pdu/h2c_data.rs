//! H2CData: data that an R2T asked for (NVMe/TCP, Host To Controller Data Transfer PDU).

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Common;

/// Host To Controller Data Transfer PDU header, 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct H2cData {
    /// Common header.
    pub common: Common,
    /// Command Capsule CID.
    pub cccid: U16,
    /// Transfer Tag of the R2T that is answered.
    pub ttag: U16,
    /// Offset of the data in the command's data, bytes.
    pub datao: U32,
    /// Length of the data, bytes.
    pub datal: U32,
    /// Reserved.
    pub reserved: [u8; 4],
}
const _: () = assert!(size_of::<H2cData>() == 24);

impl H2cData {
    /// Byte offset of CCCID.
    pub const CCCID: u32 = 8;
    /// Byte offset of TTAG.
    pub const TTAG: u32 = 10;
    /// Byte offset of DATAL.
    pub const DATAL: u32 = 16;
}
