//! Namespace Identification Descriptors (CNS 03h): writing a list, and reading one that anybody may
//! have sent.

use core::fmt::{self, Display};

use super::{Csi, IDENTIFY_BYTES};
use crate::name::id::uuid::Uuid;

/// Bytes before the identifier: NIDT, NIDL, two reserved.
const HEADER_BYTES: usize = 4;

/// A Namespace Identification Descriptor. NVMe Base 2.1, "Namespace Identification Descriptor".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceIdDescriptor<'a> {
    /// NIDT 01h: IEEE Extended Unique Identifier, big endian.
    Eui64([u8; 8]),
    /// NIDT 02h: Namespace Globally Unique Identifier, big endian.
    Nguid([u8; 16]),
    /// NIDT 03h: Namespace UUID.
    Uuid(Uuid),
    /// NIDT 04h: the I/O command set of the namespace.
    Csi(Csi),
    /// A type no specification names yet.
    Other {
        /// Namespace Identifier Type.
        nidt: u8,
        /// Namespace Identifier, 1 to 255 bytes.
        nid: &'a [u8],
    },
}

impl<'a> NamespaceIdDescriptor<'a> {
    /// NIDT.
    #[must_use]
    pub const fn nidt(&self) -> u8 {
        match self {
            Self::Eui64(_) => 1,
            Self::Nguid(_) => 2,
            Self::Uuid(_) => 3,
            Self::Csi(_) => 4,
            Self::Other { nidt, .. } => *nidt,
        }
    }

    /// NID.
    #[must_use]
    pub fn nid(&self) -> &[u8] {
        match self {
            Self::Eui64(nid) => nid,
            Self::Nguid(nid) | Self::Uuid(Uuid(nid)) => nid,
            Self::Csi(csi) => core::slice::from_ref(&csi.0),
            Self::Other { nid, .. } => nid,
        }
    }

    fn decode(nidt: u8, nid: &'a [u8]) -> Option<Self> {
        Some(match nidt {
            1 => Self::Eui64(nid.try_into().ok()?),
            2 => Self::Nguid(nid.try_into().ok()?),
            3 => Self::Uuid(Uuid(nid.try_into().ok()?)),
            4 => {
                let [csi] = nid.try_into().ok()?;
                Self::Csi(Csi(csi))
            }
            nidt => Self::Other { nidt, nid },
        })
    }
}

/// Writes a descriptor list into an Identify data structure; what is not written stays zero and so
/// ends the list.
#[derive(Debug)]
pub struct DescriptorWriter<'a> {
    buffer: &'a mut [u8; IDENTIFY_BYTES],
    used: usize,
}

impl<'a> DescriptorWriter<'a> {
    /// Clears `buffer`: an empty list.
    pub fn new(buffer: &'a mut [u8; IDENTIFY_BYTES]) -> Self {
        buffer.fill(0);
        Self { buffer, used: 0 }
    }

    /// Appends a descriptor.
    ///
    /// # Errors
    /// `Full` if it does not fit, or if its identifier is empty or longer than 255 bytes; nothing
    /// is written then.
    pub fn push(&mut self, descriptor: &NamespaceIdDescriptor<'_>) -> Result<(), Full> {
        let nid = descriptor.nid();
        let nidl = u8::try_from(nid.len()).ok().filter(|&nidl| nidl > 0).ok_or(Full)?;
        let end = self.used + HEADER_BYTES + nid.len();
        let room = self.buffer.get_mut(self.used..end).ok_or(Full)?;
        room[..2].copy_from_slice(&[descriptor.nidt(), nidl]);
        room[HEADER_BYTES..].copy_from_slice(nid);
        self.used = end;
        Ok(())
    }
}

/// The descriptor does not fit into the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the namespace identification descriptor does not fit into its list")
    }
}

impl core::error::Error for Full {}

/// Reads a descriptor list of any length and content. Ends at NIDL 0 or at the end of the bytes; a
/// descriptor of a wrong length is an error and the next follows, one that is cut short is an error
/// and the last.
#[derive(Clone, Debug)]
pub struct Descriptors<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Descriptors<'a> {
    /// The descriptors in `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }
}

impl<'a> Iterator for Descriptors<'a> {
    type Item = Result<NamespaceIdDescriptor<'a>, DescriptorError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        let rest = self.bytes.get(offset..)?;
        let [nidt, nidl, _, _, rest @ ..] = rest else {
            self.offset = self.bytes.len();
            return rest.iter().any(|&byte| byte != 0).then_some(Err(DescriptorError::Truncated { offset }));
        };
        if *nidl == 0 {
            self.offset = self.bytes.len();
            return None;
        }
        let Some(nid) = rest.get(..usize::from(*nidl)) else {
            self.offset = self.bytes.len();
            return Some(Err(DescriptorError::Truncated { offset }));
        };
        self.offset = offset + HEADER_BYTES + nid.len();
        let wrong_length = DescriptorError::Length { offset, nidt: *nidt, nidl: *nidl };
        Some(NamespaceIdDescriptor::decode(*nidt, nid).ok_or(wrong_length))
    }
}

/// Why a descriptor cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorError {
    /// The bytes end within a descriptor.
    Truncated {
        /// Where the descriptor begins, in bytes.
        offset: usize,
    },
    /// NIDL is not the length that NIDT demands.
    Length {
        /// Where the descriptor begins, in bytes.
        offset: usize,
        /// Namespace Identifier Type.
        nidt: u8,
        /// Namespace Identifier Length.
        nidl: u8,
    },
}

impl Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { offset } => {
                write!(f, "the namespace identification descriptor at byte {offset} is cut short")
            }
            Self::Length { offset, nidt, nidl } => {
                write!(f, "the namespace identification descriptor at byte {offset} has type {nidt} but {nidl} bytes")
            }
        }
    }
}

impl core::error::Error for DescriptorError {}
