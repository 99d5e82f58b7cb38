//! R2T: the controller asks for data of a command (NVMe/TCP, Ready to Transfer PDU).

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Common;

/// Ready to Transfer PDU, 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct R2t {
    /// Common header.
    pub common: Common,
    /// Command Capsule CID.
    pub cccid: U16,
    /// Transfer Tag, to be repeated in the H2CData PDUs that answer.
    pub ttag: U16,
    /// Offset of the wanted data in the command's data, bytes.
    pub r2to: U32,
    /// Length of the wanted data, bytes.
    pub r2tl: U32,
    /// Reserved.
    pub reserved: [u8; 4],
}
const _: () = assert!(size_of::<R2t>() == 24);

impl R2t {
    /// Byte offset of CCCID.
    pub const CCCID: u32 = 8;
    /// Byte offset of R2TL.
    pub const R2TL: u32 = 16;
}
