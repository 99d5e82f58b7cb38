//! CapsuleResp: a completion (NVMe/TCP, Response Capsule PDU).

use ebof_nvme::Cqe;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Common;

/// Response Capsule PDU header, 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CapsuleResp {
    /// Common header.
    pub common: Common,
    /// The completion queue entry (RCCQE).
    pub cqe: Cqe,
}
const _: () = assert!(size_of::<CapsuleResp>() == 24);

impl CapsuleResp {
    /// Byte offset of the completion's command identifier.
    pub const CID: u32 = 20;
}
