//! A command's data pointer: one type for what every transport has in its place.

use crate::command::Sqe;
use crate::sgl::Sgl;

/// Where a command's data are (Base, Common Command Format: PSDT and DPTR). What can be done with
/// it depends on the transport: over TCP it is data in the capsule or a length, over RDMA memory of
/// the host with its key, of a directly attached host a page list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPointer {
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
    pub const NONE: Self = Self::Sgl(Sgl::None);

    /// The bytes that it announces; `None` where the command's other fields do.
    #[must_use]
    pub const fn length(&self) -> Option<u32> {
        match self {
            Self::Sgl(sgl) => Some(sgl.length()),
            Self::Prp { .. } => None,
        }
    }

    /// Whether the data are in the command's capsule.
    #[must_use]
    #[inline]
    pub const fn is_in_capsule(&self) -> bool {
        matches!(self, Self::Sgl(Sgl::InCapsule { .. }))
    }
}

impl Sqe {
    /// The data pointer, decoded as PSDT says.
    #[must_use]
    #[inline]
    pub fn data_pointer(&self) -> DataPointer {
        if self.flags & Self::PSDT_MASK == 0 {
            let entries = self.dptr.prp();
            return DataPointer::Prp { first: entries[0], second: entries[1] };
        }
        DataPointer::Sgl(self.dptr.decode())
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::sgl::SglDescriptor;

    #[test]
    fn psdt_tells_pages_from_descriptors() {
        let sgl = Sgl::Keyed { address: 0x1000, length: 4096, key: 7, invalidate: false };
        let mut sqe = Sqe { dptr: SglDescriptor::encode(sgl), ..Sqe::new(2) };
        assert_eq!(sqe.data_pointer(), DataPointer::Sgl(sgl));
        assert_eq!(sqe.data_pointer().length(), Some(4096));
        sqe.flags = 0;
        sqe.as_mut_bytes()[24..40].copy_from_slice(&[0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sqe.data_pointer(), DataPointer::Prp { first: 0x1000, second: 0x2000 });
        assert_eq!(sqe.data_pointer().length(), None);
    }
}
