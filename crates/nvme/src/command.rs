//! The submission queue entry and the completion queue entry (Base, Common Command Format and
//! Common Completion Queue Entry Layout).

mod cross_controller_reset;
pub mod data_pointer;
pub mod opcode;
pub mod sgl;
pub mod status;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::name::id::{Cid, Nsid, QueueId};

use data_pointer::DataPointer;
use opcode::FABRICS;
use sgl::SglDescriptor;
use status::Status;

pub use cross_controller_reset::{ControllerInstance, IMMEDIATE_RESET, is_reset_at_once};

/// A submission queue entry: one command, 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Sqe {
    /// Opcode (OPC).
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6. For Fabrics commands PSDT holds the same meaning.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// Namespace identifier; for Fabrics commands byte 0 is the command type (FCTYPE) and the rest
    /// reserved.
    pub nsid: U32,
    /// Command dword 2.
    pub cdw2: U32,
    /// Command dword 3.
    pub cdw3: U32,
    /// Metadata pointer.
    pub mptr: U64,
    /// Data pointer: over fabrics always one SGL descriptor; see [`Sqe::data_pointer`].
    pub dptr: SglDescriptor,
    /// Command dword 10.
    pub cdw10: U32,
    /// Command dword 11.
    pub cdw11: U32,
    /// Command dword 12.
    pub cdw12: U32,
    /// Command dword 13.
    pub cdw13: U32,
    /// Command dword 14.
    pub cdw14: U32,
    /// Command dword 15.
    pub cdw15: U32,
}
const _: () = assert!(size_of::<Sqe>() == 64);

/// The FUSE field of a command (Base, Command Dword 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuse {
    /// A command on its own.
    Normal,
    /// First command of a fused operation.
    First,
    /// Second command of a fused operation.
    Second,
    /// The reserved value 11b.
    Reserved,
}

impl Default for Sqe {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Sqe {
    /// PSDT value of every command over a message-based transport: SGLs, metadata by address (bits
    /// 7:6 = 01b).
    pub const PSDT_SGL: u8 = 0x40;

    /// PSDT within the flags.
    pub const PSDT_MASK: u8 = 0xc0;

    /// A command of `opcode` with SGL data pointer and everything else zero.
    #[must_use]
    pub fn new(opcode: u8) -> Self {
        Self { opcode, flags: Self::PSDT_SGL, ..Self::default() }
    }

    /// The command identifier.
    #[must_use]
    pub fn cid(&self) -> Cid {
        Cid(self.cid.get())
    }

    /// The namespace identifier.
    #[must_use]
    pub fn nsid(&self) -> Nsid {
        Nsid(self.nsid.get())
    }

    /// FCTYPE, when this is a Fabrics command.
    #[must_use]
    pub fn fctype(&self) -> Option<u8> {
        (self.opcode == FABRICS).then(|| self.nsid.to_bytes()[0])
    }

    /// The data pointer.
    #[must_use]
    #[inline]
    pub const fn data_pointer(&self) -> DataPointer {
        DataPointer::from_command(self)
    }

    /// The FUSE field.
    #[must_use]
    pub fn fuse(&self) -> Fuse {
        match self.flags & 0x03 {
            0 => Fuse::Normal,
            1 => Fuse::First,
            2 => Fuse::Second,
            _ => Fuse::Reserved,
        }
    }

    /// Sets the namespace.
    #[must_use]
    pub fn with_nsid(mut self, nsid: Nsid) -> Self {
        self.nsid = nsid.0.into();
        self
    }

    /// Sets command dword `n`, 10 to 15; other numbers leave the command as it is.
    #[must_use]
    pub fn with_cdw(mut self, n: u8, value: u32) -> Self {
        match n {
            10 => self.cdw10 = value.into(),
            11 => self.cdw11 = value.into(),
            12 => self.cdw12 = value.into(),
            13 => self.cdw13 = value.into(),
            14 => self.cdw14 = value.into(),
            15 => self.cdw15 = value.into(),
            _ => {}
        }
        self
    }
}

/// A completion queue entry, 16 bytes. The phase tag (status bit 0) is not used over fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Cqe {
    /// Command specific, dword 0.
    pub dw0: U32,
    /// Command specific, dword 1.
    pub dw1: U32,
    /// SQ head pointer; reserved when SQ flow control is disabled.
    pub sqhd: U16,
    /// SQ identifier; reserved over fabrics.
    pub sqid: U16,
    /// Command identifier of the command that completed.
    pub cid: U16,
    /// Phase tag in bit 0, status in bits 15:1.
    pub status: U16,
}
const _: () = assert!(size_of::<Cqe>() == 16);

impl Default for Cqe {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Cqe {
    /// A completion of `cid` with `status` and no result.
    #[must_use]
    pub fn new(cid: Cid, status: Status) -> Self {
        Self { cid: cid.0.into(), status: (status.0 << 1).into(), ..Self::default() }
    }

    /// The command that completed.
    #[must_use]
    pub fn cid(&self) -> Cid {
        Cid(self.cid.get())
    }

    /// The status without the phase tag.
    #[must_use]
    pub fn status(&self) -> Status {
        Status(self.status.get() >> 1)
    }

    /// Dwords 0 and 1 as one number (Property Get returns eight bytes there).
    #[must_use]
    pub fn result(&self) -> u64 {
        u64::from(self.dw0.get()) | u64::from(self.dw1.get()) << 32
    }

    /// Sets dwords 0 and 1.
    #[must_use]
    pub fn with_result(mut self, result: u64) -> Self {
        let bytes = result.to_le_bytes();
        self.dw0 = U32::from_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.dw1 = U32::from_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        self
    }

    /// Sets the SQ head pointer.
    #[must_use]
    pub fn with_sqhd(mut self, sqhd: u16) -> Self {
        self.sqhd = sqhd.into();
        self
    }

    /// Sets the queue identifier (zero over fabrics).
    #[must_use]
    pub fn with_sqid(mut self, queue: QueueId) -> Self {
        self.sqid = queue.0.into();
        self
    }
}
