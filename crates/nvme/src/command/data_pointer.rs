//! A command's data pointer: one type for what every transport has in its place.

use zerocopy::byteorder::little_endian::{U32, U64};

use crate::command::Sqe;
use crate::command::sgl::{Sgl, SglDescriptor};

/// A command's data pointer (Base, Common Command Format: PSDT and DPTR) as it stands there, so
/// that keeping it costs next to nothing: whoever moves the data decodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPointer {
    dptr: SglDescriptor,
    /// PSDT says that it is an SGL descriptor.
    is_sgl: bool,
}

/// Where a command's data are. What can be done with it depends on the transport: over TCP it is
/// data in the capsule or a length, over RDMA memory of the host with its key, of a directly
/// attached host a page list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLocation {
    /// An SGL descriptor: always over message-based transports.
    Sgl(Sgl),
    /// Physical region pages, of memory-based transports. How many bytes they are about, the
    /// command's other fields say.
    Prp {
        /// PRP entry 1: the first page, with an offset in it.
        first: u64,
        /// PRP entry 2: the second page, or a list of those that follow.
        second: u64,
    },
}

impl DataPointer {
    /// Of a command that has no data, or whose data have moved.
    pub const NONE: Self = Self {
        dptr: SglDescriptor { address: U64::ZERO, length: U32::ZERO, reserved: [0; 3], identifier: 0 },
        is_sgl: true,
    };

    /// Where the data are.
    #[must_use]
    #[inline]
    pub fn decode(&self) -> DataLocation {
        if self.is_sgl {
            return DataLocation::Sgl(self.dptr.decode());
        }
        let [first, second] = self.dptr.prp();
        DataLocation::Prp { first, second }
    }

    /// That of a command.
    #[inline]
    pub(super) const fn from_command(sqe: &Sqe) -> Self {
        Self { dptr: sqe.dptr, is_sgl: sqe.flags & Sqe::PSDT_MASK != 0 }
    }

    /// The SGL descriptor as it stands in the command; `None` where PSDT says that it is none.
    #[must_use]
    #[inline]
    pub const fn descriptor(&self) -> Option<SglDescriptor> {
        if self.is_sgl { Some(self.dptr) } else { None }
    }

    /// Whether the data are in the command's capsule.
    #[must_use]
    #[inline]
    pub const fn is_in_capsule(&self) -> bool {
        self.is_sgl && self.dptr.identifier == SglDescriptor::IN_CAPSULE
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn psdt_distinguishes_prps_from_sgls() {
        let sgl = Sgl::Keyed { address: 0x1000, length: 4096, key: 7, invalidate: false };
        let mut sqe = Sqe { dptr: SglDescriptor::encode(sgl), ..Sqe::new(2) };
        assert_eq!(sqe.data_pointer().decode(), DataLocation::Sgl(sgl));
        sqe.flags = 0;
        sqe.as_mut_bytes()[24..40].copy_from_slice(&[0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sqe.data_pointer().decode(), DataLocation::Prp { first: 0x1000, second: 0x2000 });
    }

    #[test]
    fn only_a_descriptor_can_point_into_the_capsule() {
        let sgl = Sgl::InCapsule { offset: 0, length: 512 };
        let mut sqe = Sqe { dptr: SglDescriptor::encode(sgl), ..Sqe::new(1) };
        assert!(sqe.data_pointer().is_in_capsule());
        sqe.flags = 0;
        assert!(!sqe.data_pointer().is_in_capsule());
        assert!(!DataPointer::NONE.is_in_capsule());
        assert_eq!(DataPointer::NONE.decode(), DataLocation::Sgl(Sgl::None));
    }
}
