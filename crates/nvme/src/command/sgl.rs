//! The SGL descriptor in a command's data pointer (Base, Scatter Gather List), as message
//! transports use it.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A 16-byte SGL descriptor as it stands in the capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SglDescriptor {
    /// Address, or offset into the capsule.
    pub address: U64,
    /// Length in bytes; for keyed descriptors the low three bytes.
    pub length: U32,
    /// Reserved for data blocks; bytes 12 to 14 of a keyed descriptor are the remote key's low
    /// bytes.
    pub reserved: [u8; 3],
    /// SGL identifier: type in bits 7:4, subtype in bits 3:0.
    pub identifier: u8,
}
const _: () = assert!(size_of::<SglDescriptor>() == 16);

/// An SGL descriptor, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sgl {
    /// All zero: the command has no data (or says nothing about it).
    None,
    /// SGL Data Block with offset subtype: `length` bytes of data inside the capsule, `offset`
    /// bytes after the in-capsule data offset (ICDOFF).
    InCapsule {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        length: u32,
    },
    /// Transport SGL Data Block (type 5h, subtype Ah): the transport moves `length` bytes by its
    /// own means.
    Transport {
        /// Length in bytes.
        length: u32,
    },
    /// Keyed SGL Data Block (type 4h), for RDMA.
    Keyed {
        /// Remote virtual address.
        address: u64,
        /// Length in bytes, 24 bits.
        length: u32,
        /// Remote key.
        key: u32,
        /// Whether the key is to be invalidated with the completion (subtype Fh).
        invalidate: bool,
    },
    /// SGL Last Segment with offset subtype: `length` bytes of further descriptors inside the
    /// capsule, `offset` bytes after ICDOFF, for RDMA.
    LastSegment {
        /// Offset in bytes.
        offset: u64,
        /// Length of the descriptors in bytes, 16 for each.
        length: u32,
    },
    /// Anything else: not usable on a message transport.
    Unsupported {
        /// The identifier byte.
        identifier: u8,
    },
}

impl Sgl {
    /// The bytes of data that the descriptor announces; 0 for a segment, whose descriptors do.
    #[must_use]
    pub const fn length(&self) -> u32 {
        match *self {
            Self::InCapsule { length, .. } | Self::Transport { length } | Self::Keyed { length, .. } => length,
            Self::None | Self::LastSegment { .. } | Self::Unsupported { .. } => 0,
        }
    }
}

impl SglDescriptor {
    /// Data block, offset subtype.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Last segment, offset subtype.
    pub const LAST_SEGMENT: u8 = 0x31;
    /// Transport data block.
    pub const TRANSPORT: u8 = 0x5a;
    /// Keyed data block, address subtype.
    pub const KEYED: u8 = 0x40;
    /// Keyed data block, invalidate subtype.
    pub const KEYED_INVALIDATE: u8 = 0x4f;

    /// Decodes the descriptor. Total: what is not known is [`Sgl::Unsupported`].
    #[must_use]
    pub fn decode(&self) -> Sgl {
        match self.identifier {
            Self::IN_CAPSULE => Sgl::InCapsule { offset: self.address.get(), length: self.length.get() },
            Self::LAST_SEGMENT => Sgl::LastSegment { offset: self.address.get(), length: self.length.get() },
            Self::TRANSPORT => Sgl::Transport { length: self.length.get() },
            Self::KEYED | Self::KEYED_INVALIDATE => {
                let high = self.length.to_bytes();
                Sgl::Keyed {
                    address: self.address.get(),
                    length: self.length.get() & 0x00ff_ffff,
                    key: u32::from_le_bytes([high[3], self.reserved[0], self.reserved[1], self.reserved[2]]),
                    invalidate: self.identifier == Self::KEYED_INVALIDATE,
                }
            }
            0 if self.length.get() == 0 => Sgl::None,
            identifier => Sgl::Unsupported { identifier },
        }
    }

    /// The same 16 bytes as PRP entries 1 and 2.
    pub(crate) fn prp(&self) -> [u64; 2] {
        let bytes = self.as_bytes();
        let (first, second) = bytes.split_at(8);
        [first, second].map(|half| half.iter().rev().fold(0, |entry, &byte| entry << 8 | u64::from(byte)))
    }

    /// Encodes `sgl`; [`Sgl::Unsupported`] keeps only its identifier.
    #[must_use]
    pub fn encode(sgl: Sgl) -> Self {
        let mut out = Self::new_zeroed();
        match sgl {
            Sgl::None => {}
            Sgl::InCapsule { offset, length } => {
                out.address = offset.into();
                out.length = length.into();
                out.identifier = Self::IN_CAPSULE;
            }
            Sgl::LastSegment { offset, length } => {
                out.address = offset.into();
                out.length = length.into();
                out.identifier = Self::LAST_SEGMENT;
            }
            Sgl::Transport { length } => {
                out.length = length.into();
                out.identifier = Self::TRANSPORT;
            }
            Sgl::Keyed { address, length, key, invalidate } => {
                let len = length.to_le_bytes();
                let key = key.to_le_bytes();
                out.address = address.into();
                out.length = U32::from_bytes([len[0], len[1], len[2], key[0]]);
                out.reserved = [key[1], key[2], key[3]];
                out.identifier = if invalidate { Self::KEYED_INVALIDATE } else { Self::KEYED };
            }
            Sgl::Unsupported { identifier } => out.identifier = identifier,
        }
        out
    }
}

impl Default for SglDescriptor {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_descriptor_round_trips(bytes: [u8; 16]) {
            let descriptor = SglDescriptor::read_from_bytes(&bytes[..]).unwrap();
            let decoded = descriptor.decode();
            if !matches!(decoded, Sgl::Unsupported { .. }) {
                prop_assert_eq!(SglDescriptor::encode(decoded).decode(), decoded);
            }
        }
    }

    #[test]
    fn a_keyed_descriptor_splits_length_and_key() {
        let sgl =
            Sgl::Keyed { address: 0x1122_3344_5566_7788, length: 0x0001_0203, key: 0xa1b2_c3d4, invalidate: true };
        let bytes = SglDescriptor::encode(sgl);
        assert_eq!(bytes.as_bytes()[8..], [0x03, 0x02, 0x01, 0xd4, 0xc3, 0xb2, 0xa1, 0x4f]);
        assert_eq!(bytes.decode(), sgl);
    }
}
