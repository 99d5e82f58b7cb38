//! CapsuleCmd: a command and perhaps its data (NVMe/TCP, Command Capsule PDU).

use ebof_nvme::Sqe;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Common;

/// Command Capsule PDU header, 72 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CapsuleCmd {
    /// Common header.
    pub common: Common,
    /// The submission queue entry (CCSQE).
    pub sqe: Sqe,
}
const _: () = assert!(size_of::<CapsuleCmd>() == 72);
