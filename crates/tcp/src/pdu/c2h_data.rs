//! C2HData: data of a command to the host (NVMe/TCP, Controller To Host Data Transfer PDU).

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Common;

/// Controller To Host Data Transfer PDU header, 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct C2hData {
    /// Common header.
    pub common: Common,
    /// Command Capsule CID.
    pub cccid: U16,
    /// Reserved.
    pub reserved10: [u8; 2],
    /// Offset of the data in the command's data, bytes.
    pub datao: U32,
    /// Length of the data, bytes.
    pub datal: U32,
    /// Reserved.
    pub reserved20: [u8; 4],
}
const _: () = assert!(size_of::<C2hData>() == 24);

impl C2hData {
    /// Byte offset of CCCID.
    pub const CCCID: u32 = 8;
    /// Byte offset of DATAL.
    pub const DATAL: u32 = 16;
}
