//! H2CTermReq and C2HTermReq: one end gives the connection up (NVMe/TCP, Terminate Connection
//! Request).

use alloc::vec::Vec;

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Common, Layout, PduType};
use crate::error::FatalError;

/// Terminate Connection Request header, 24 bytes; the header of the offending PDU follows as data.
/// It never has digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TermReq {
    /// Common header.
    pub common: Common,
    /// Fatal Error Status.
    pub fes: U16,
    /// Fatal Error Information.
    pub fei: U32,
    /// Reserved.
    pub reserved: [u8; 10],
}
const _: () = assert!(size_of::<TermReq>() == 24);

impl TermReq {
    /// The most that PLEN may be.
    pub const PLEN_MAX: u32 = 152;
    /// The most of the offending PDU's header that is repeated, bytes.
    pub const HEADER_MAX: usize = 128;

    /// Appends a TermReq of `kind` about `error`.
    pub(crate) fn append(kind: PduType, error: &FatalError, out: &mut Vec<u8>) {
        let header = &error.header[..error.header.len().min(Self::HEADER_MAX)];
        let mut common = Layout::PLAIN.common(kind, 0, 0);
        #[expect(clippy::cast_possible_truncation, reason = "at most 128, cut one line above")]
        let length = header.len() as u32;
        common.plen = (u32::from(common.hlen) + length).into();
        let fes = (error.status as u16).into();
        let term = Self { common, fes, fei: error.information.into(), reserved: [0; 10] };
        out.extend_from_slice(term.as_bytes());
        out.extend_from_slice(header);
    }
}
