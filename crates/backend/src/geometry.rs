//! The size and abilities of a device, and the checks of every request: range, alignment, buffer,
//! write protection.

use crate::error::name::Name;
use crate::{Action, Error, OpenError, Operation};

/// The size and abilities of a device. Most of it is fixed when it is opened. An ability may be
/// lost later (whether a file system can punch holes is only known after the first try), and the
/// capacity may grow ([`Persistent::grow`](crate::Persistent::grow)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size in bytes, a multiple of `logical_block_bytes`.
    pub capacity_bytes: u64,
    /// The unit of offsets and lengths: 1 for memory and buffered files, 512 or 4096 for direct I/O
    /// and block devices. Requests that are not multiples of it are refused.
    pub block_bytes: u32,
    /// The block size of namespaces on the device (`block=` of the
    /// [`Spec`](crate::Spec), otherwise 512 or the medium's own): 512 or 4096, and a multiple of
    /// `block_bytes`.
    pub logical_block_bytes: u32,
    /// Writes of any kind are refused.
    pub read_only: bool,
    /// `Deallocate` frees storage, and deallocated bytes read as zeros.
    pub deallocates: bool,
    /// The unit in which storage is freed, in bytes; smaller parts are only zeroed. 0 if
    /// `!deallocates`.
    pub deallocate_granularity_bytes: u32,
    /// `WriteZeroes` does not have to write zeros.
    pub writes_zeroes: bool,
    /// A power loss may undo writes until a `Flush` completes.
    pub volatile_cache: bool,
}

impl Geometry {
    /// Checks an operation against this geometry.
    ///
    /// # Errors
    /// `OutOfRange`, `Misaligned`, `BufferTooSmall` or `ReadOnly`.
    pub fn check(&self, operation: &Operation) -> Result<(), Error> {
        let action = operation.action();
        if self.read_only && action.modifies() {
            return Err(Error::ReadOnly { action });
        }
        match operation {
            Operation::Read { offset, len, data } | Operation::Write { offset, len, data, .. } => {
                if *len > data.capacity() {
                    return Err(Error::BufferTooSmall { action, len: *len, capacity: data.capacity() });
                }
                self.check_range(action, *offset, u64::try_from(*len).expect("an address space has at most 64 bits"))
            }
            Operation::WriteZeroes { offset, len, .. } => self.check_range(action, *offset, *len),
            // A range that ends before it begins has no bytes.
            Operation::Deallocate { ranges } => ranges
                .iter()
                .try_for_each(|range| self.check_range(action, range.start, range.end.saturating_sub(range.start))),
            Operation::Flush => Ok(()),
        }
    }

    /// As [`Geometry::check`], for a read or write without a buffer.
    ///
    /// # Errors
    /// `OutOfRange`, `Misaligned` or `ReadOnly`.
    pub fn check_transfer(&self, action: Action, offset: u64, len: u64) -> Result<(), Error> {
        if self.read_only && action.modifies() {
            return Err(Error::ReadOnly { action });
        }
        self.check_range(action, offset, len)
    }

    fn check_range(&self, action: Action, offset: u64, len: u64) -> Result<(), Error> {
        let capacity = self.capacity_bytes;
        if offset.checked_add(len).is_none_or(|end| end > capacity) {
            return Err(Error::OutOfRange { action, offset, len, capacity });
        }
        let block_bytes = u64::from(self.block_bytes);
        if !offset.is_multiple_of(block_bytes) || !len.is_multiple_of(block_bytes) {
            return Err(Error::Misaligned { action, offset, len, block_bytes: self.block_bytes });
        }
        Ok(())
    }
}

/// Refuses the size of a device that is not a whole number of blocks.
pub(crate) fn check_blocks(name: Name, size_bytes: u64, block_bytes: u32) -> Result<(), OpenError> {
    if size_bytes != 0 && size_bytes.is_multiple_of(u64::from(block_bytes)) {
        return Ok(());
    }
    Err(OpenError::NotWholeBlocks { name, size_bytes, block_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Class};

    const GEOMETRY: Geometry = Geometry {
        capacity_bytes: 1 << 20,
        block_bytes: 512,
        logical_block_bytes: 512,
        read_only: false,
        deallocates: true,
        deallocate_granularity_bytes: 4096,
        writes_zeroes: true,
        volatile_cache: false,
    };

    fn read(offset: u64, len: usize) -> Operation {
        Operation::Read { offset, len, data: Buffer::zeroed(8192).into() }
    }

    #[test]
    fn ranges_are_checked_to_the_last_byte_and_without_overflow() {
        assert!(GEOMETRY.check(&read((1 << 20) - 512, 512)).is_ok());
        assert!(GEOMETRY.check(&read(1 << 20, 0)).is_ok());
        for (offset, len) in [(1 << 20, 512), ((1 << 20) - 512, 1024), (u64::MAX - 511, 512), (u64::MAX, 8192)] {
            let error = GEOMETRY.check(&read(offset, len)).unwrap_err();
            assert_eq!(error.class(), Class::OutOfRange, "{offset} {len}");
        }
        let zeroes = |offset, len| Operation::WriteZeroes { offset, len, deallocate: false, fua: false };
        assert_eq!(GEOMETRY.check(&zeroes(512, u64::MAX)).unwrap_err().class(), Class::OutOfRange);
        let deallocate = |ranges| GEOMETRY.check(&Operation::Deallocate { ranges });
        assert_eq!(deallocate(vec![0..512, 512..(1 << 20) + 512]).unwrap_err().class(), Class::OutOfRange);
        let range = |start: u64, end: u64| std::iter::once(start..end).collect();
        assert!(deallocate(range(1024, 512)).is_ok(), "it has no bytes");
        assert_eq!(deallocate(range((1 << 20) + 512, 0)).unwrap_err().class(), Class::OutOfRange);
    }

    #[test]
    fn a_transfer_larger_than_its_buffer_or_not_of_whole_blocks_is_invalid() {
        assert_eq!(GEOMETRY.check(&read(0, 8704)).unwrap_err().class(), Class::Invalid);
        assert_eq!(GEOMETRY.check(&read(256, 512)).unwrap_err().class(), Class::Invalid);
        assert_eq!(GEOMETRY.check(&read(0, 100)).unwrap_err().class(), Class::Invalid);
    }

    #[test]
    fn a_read_only_device_refuses_every_change_and_nothing_else() {
        let geometry = Geometry { read_only: true, ..GEOMETRY };
        let buffer = Buffer::zeroed(512);
        let changes = [
            Operation::Write { offset: 0, len: 512, data: buffer.into(), fua: false },
            Operation::WriteZeroes { offset: 0, len: 512, deallocate: true, fua: false },
            Operation::Deallocate { ranges: Vec::new() },
        ];
        for change in changes {
            assert_eq!(geometry.check(&change).unwrap_err().class(), Class::ReadOnly);
        }
        assert!(geometry.check(&Operation::Flush).is_ok());
        assert!(geometry.check(&read(0, 512)).is_ok());
    }
}
