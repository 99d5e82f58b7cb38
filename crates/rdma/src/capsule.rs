//! Capsules: a command with the data or descriptors behind it, and a response.
//!
//! NVMe/RDMA, "Capsules and SGLs". In-capsule data begin directly behind the command (ICDOFF 0).

use ebof_nvme::data_pointer::DataLocation;
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cqe, Sgl, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::FatalError;
use crate::segments::Remote;

/// Bytes of a command, without what is behind it in its capsule.
pub const COMMAND_BYTES: u32 = 64;
const _: () = assert!(size_of::<Sqe>() == COMMAND_BYTES as usize);

/// Bytes of a response capsule.
pub const RESPONSE_BYTES: u32 = 16;
const _: () = assert!(size_of::<Cqe>() == RESPONSE_BYTES as usize);

/// Bytes that a keyed descriptor can announce.
pub const KEYED_LENGTH_MAX: u32 = (1 << 24) - 1;

/// What a command's data pointer says, within its capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Located<'a> {
    /// No data; or a pointer that is no SGL, which a command with data is refused for elsewhere.
    None,
    /// `length` bytes in the capsule, `offset` bytes behind the command.
    InCapsule { offset: u32, length: u32 },
    /// One piece of the host's memory.
    Keyed { remote: Remote, length: u32, invalidate: bool },
    /// A list of descriptors, which have not been decoded.
    List(&'a [SglDescriptor]),
}

/// Splits a command capsule.
#[inline]
pub(crate) fn split(capsule: &[u8]) -> Result<(Sqe, &[u8]), FatalError> {
    Sqe::read_from_prefix(capsule).map_err(|_short| FatalError::ShortCommand { length: capsule.len() })
}

/// What the command's data pointer says. `behind` is what came behind the command, as far as it may
/// be used.
#[inline]
pub(crate) fn locate<'a>(sqe: &Sqe, behind: &'a [u8]) -> Result<Located<'a>, Status> {
    let DataLocation::Sgl(sgl) = sqe.data_pointer().decode() else { return Ok(Located::None) };
    match sgl {
        Sgl::Keyed { length: 0, .. } | Sgl::Transport { length: 0 } | Sgl::None => Ok(Located::None),
        Sgl::Keyed { address, length, key, invalidate } => {
            Ok(Located::Keyed { remote: Remote { address, key }, length, invalidate })
        }
        Sgl::InCapsule { offset, length } => {
            let offset = within(behind, offset, length)?.0;
            Ok(if length == 0 { Located::None } else { Located::InCapsule { offset, length } })
        }
        Sgl::LastSegment { offset, length } => list(behind, offset, length),
        // Base, SGL Data Block: other types and subtypes are not for message-based transports, and
        // a Transport SGL says nothing about where the data are.
        Sgl::Transport { .. } | Sgl::Unsupported { .. } => Err(Status::SGL_TYPE_INVALID.dnr()),
    }
}

/// Base, SGL Last Segment: its length is that of the descriptors, at least one.
fn list(behind: &[u8], offset: u64, length: u32) -> Result<Located<'_>, Status> {
    if length == 0 {
        return Err(Status::INVALID_SGL_SEGMENT.dnr());
    }
    let (_, bytes) = within(behind, offset, length)?;
    let descriptors = <[SglDescriptor]>::ref_from_bytes(bytes).map_err(|_partial| Status::INVALID_SGL_SEGMENT.dnr())?;
    Ok(Located::List(descriptors))
}

/// The range of `behind`, and its offset.
fn within(behind: &[u8], offset: u64, length: u32) -> Result<(u32, &[u8]), Status> {
    let invalid = || Status::SGL_OFFSET_INVALID.dnr();
    let offset = u32::try_from(offset).map_err(|_large| invalid())?;
    let rest = behind.get(offset as usize..).ok_or_else(invalid)?;
    Ok((offset, rest.get(..length as usize).ok_or_else(invalid)?))
}

/// Reads a response capsule.
#[inline]
pub(crate) fn response(capsule: &[u8]) -> Result<Cqe, FatalError> {
    Cqe::read_from_bytes(capsule).map_err(|_length| FatalError::ResponseLength { length: capsule.len() })
}

/// The bytes of a response capsule.
#[must_use]
#[inline]
pub fn encode_response(cqe: &Cqe) -> [u8; RESPONSE_BYTES as usize] {
    let mut bytes = [0; RESPONSE_BYTES as usize];
    bytes.copy_from_slice(cqe.as_bytes());
    bytes
}
