//! The PDUs of NVMe/TCP as they stand on the wire, one file each. Layouts and encoding only: which
//! PDU may come when, and what its fields must hold, is decided by the two ends.

pub mod c2h_data;
pub mod capsule_cmd;
pub mod capsule_resp;
pub mod h2c_data;
pub mod ic_req;
pub mod ic_resp;
pub mod r2t;
pub mod term_req;

use alloc::vec::Vec;

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::digest::crc32c;

pub use c2h_data::C2hData;
pub use capsule_cmd::CapsuleCmd;
pub use capsule_resp::CapsuleResp;
pub use h2c_data::H2cData;
pub use ic_req::IcReq;
pub use ic_resp::IcResp;
pub use r2t::R2t;
pub use term_req::TermReq;

/// The common header (CH) of every PDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Common {
    /// PDU-Type.
    pub pdu_type: u8,
    /// FLAGS: see the constants.
    pub flags: u8,
    /// HLEN: bytes of the header without its digest.
    pub hlen: u8,
    /// PDO: where data begin, from the start of the PDU. Without data, zero or anything.
    pub pdo: u8,
    /// PLEN: bytes of the PDU, digests, padding and data included.
    pub plen: U32,
}
const _: () = assert!(size_of::<Common>() == Common::SIZE);

impl Common {
    /// Bytes of the common header.
    pub const SIZE: usize = 8;
    /// HDGSTF: a header digest follows the header.
    pub const HDGSTF: u8 = 1 << 0;
    /// DDGSTF: a data digest follows the data.
    pub const DDGSTF: u8 = 1 << 1;
    /// LAST_PDU: H2CData: the last of its R2T; C2HData: the last of its command.
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS (C2HData): no response follows, the command succeeded.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Byte offsets of common header fields, for Fatal Error Information.
pub mod field {
    /// PDU-Type.
    pub const TYPE: u32 = 0;
    /// FLAGS.
    pub const FLAGS: u32 = 1;
    /// HLEN.
    pub const HLEN: u32 = 2;
    /// PDO.
    pub const PDO: u32 = 3;
    /// PLEN.
    pub const PLEN: u32 = 4;
}

/// A PDU type that this crate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PduType {
    /// Initialize Connection Request.
    IcReq = 0x00,
    /// Initialize Connection Response.
    IcResp = 0x01,
    /// Host to Controller Terminate Connection Request.
    H2cTermReq = 0x02,
    /// Controller to Host Terminate Connection Request.
    C2hTermReq = 0x03,
    /// Command Capsule.
    CapsuleCmd = 0x04,
    /// Response Capsule.
    CapsuleResp = 0x05,
    /// Host to Controller Data Transfer.
    H2cData = 0x06,
    /// Controller to Host Data Transfer.
    C2hData = 0x07,
    /// Ready to Transfer.
    R2t = 0x09,
}

impl PduType {
    /// The type with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0x00 => Self::IcReq,
            0x01 => Self::IcResp,
            0x02 => Self::H2cTermReq,
            0x03 => Self::C2hTermReq,
            0x04 => Self::CapsuleCmd,
            0x05 => Self::CapsuleResp,
            0x06 => Self::H2cData,
            0x07 => Self::C2hData,
            0x09 => Self::R2t,
            _ => return None,
        })
    }

    /// Whether a host sends it; otherwise a controller does.
    #[must_use]
    pub const fn is_from_host(self) -> bool {
        self as u8 & 1 == 0
    }

    /// The one HLEN that is right for the type.
    #[must_use]
    pub const fn hlen(self) -> u8 {
        match self {
            Self::IcReq | Self::IcResp => 128,
            Self::CapsuleCmd => 72,
            Self::H2cTermReq | Self::C2hTermReq | Self::CapsuleResp | Self::H2cData | Self::C2hData | Self::R2t => 24,
        }
    }

    /// The flags that mean something for the type.
    #[must_use]
    pub const fn flags(self) -> u8 {
        match self {
            Self::IcReq | Self::IcResp | Self::H2cTermReq | Self::C2hTermReq => 0,
            Self::CapsuleResp | Self::R2t => Common::HDGSTF,
            Self::CapsuleCmd => Common::HDGSTF | Common::DDGSTF,
            Self::H2cData => Common::HDGSTF | Common::DDGSTF | Common::LAST,
            Self::C2hData => Common::HDGSTF | Common::DDGSTF | Common::LAST | Common::SUCCESS,
        }
    }

    /// Whether data (and a data digest) may follow the header.
    #[must_use]
    pub const fn may_carry_data(self) -> bool {
        self.flags() & Common::DDGSTF != 0
    }
}

/// How PDUs of one direction are laid out on this connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// Alignment of data in bytes, a multiple of 4.
    pub(crate) alignment: u32,
}

impl Layout {
    /// Before and during initialization: no digests, no alignment.
    pub(crate) const PLAIN: Self = Self { header_digest: false, data_digest: false, alignment: 4 };

    /// The common header of a PDU of `kind` with `data` bytes of data.
    #[inline]
    pub(crate) fn common(self, kind: PduType, flags: u8, data: u32) -> Common {
        let hlen = kind.hlen();
        let mut flags = flags;
        let mut plen = u32::from(hlen);
        if self.header_digest {
            flags |= Common::HDGSTF;
            plen += 4;
        }
        let mut pdo = 0;
        if data > 0 {
            plen = plen.next_multiple_of(self.alignment);
            pdo = plen;
            plen += data;
            if self.data_digest {
                flags |= Common::DDGSTF;
                plen += 4;
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "76 rounded up to a multiple of at most 128")]
        Common { pdu_type: kind as u8, flags, hlen, pdo: pdo as u8, plen: plen.into() }
    }

    /// Appends a header with its digest and the padding before data, if any.
    #[inline]
    pub(crate) fn append<H: IntoBytes + Immutable>(self, header: &H, pdo: u8, out: &mut Vec<u8>) {
        let start = out.len();
        let bytes = header.as_bytes();
        out.extend_from_slice(bytes);
        if self.header_digest {
            out.extend_from_slice(&crc32c(bytes));
        }
        let data_at = start + usize::from(pdo);
        if data_at > out.len() {
            out.resize(data_at, 0);
        }
    }

    /// The trailer for `payload`.
    #[inline]
    pub(crate) fn trailer(self, payload: &[u8]) -> Option<[u8; 4]> {
        (self.data_digest && !payload.is_empty()).then(|| crc32c(payload))
    }
}

/// DGST of ICReq and ICResp.
fn digest_field(header: bool, data: bool) -> u8 {
    u8::from(header) | u8::from(data) << 1
}

/// HPDA and CPDA: 0's based dwords from bytes, kept within 0 to 31.
fn alignment_field(bytes: u32) -> u8 {
    (bytes.div_ceil(4).saturating_sub(1)).min(31) as u8
}

/// Bytes from an HPDA or CPDA that was checked to be at most 31.
pub(crate) fn alignment_bytes(field: u8) -> u32 {
    (u32::from(field) + 1) * 4
}

/// The header at the front of `bytes`.
#[inline]
pub(crate) fn read_header<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> &T {
    T::ref_from_prefix(bytes).expect("the receiver gives a header out when all of HLEN is there").0
}
