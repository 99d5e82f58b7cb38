//! The memory of a host as its devices see it: which address is which byte of which mapping.
//!
//! Owns the table of what the host has mapped. The mappings, and everything unsafe, are in
//! `shared.rs`.

use std::sync::Arc;

use thiserror::Error;

use crate::shared::{MappingAccess, SharedMapping, SharedPiece};

/// An access to an address that is not mapped, has no file to access it by, or may not be accessed
/// like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the host's memory at {address:#x} cannot be accessed")]
pub struct GuestFault {
    /// The first address that cannot.
    pub address: u64,
}

/// Why the table does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GuestMemoryError {
    /// As many ranges as allowed are mapped.
    #[error("more than {max} ranges of memory")]
    TooMany {
        /// Ranges at most.
        max: usize,
    },
    /// A part of it is mapped already.
    #[error("the range at {address:#x} overlaps one that is mapped")]
    Overlaps {
        /// Where it begins.
        address: u64,
    },
    /// It is empty, or its end is not below 2^64.
    #[error("the range at {address:#x} is empty or too large")]
    Range {
        /// Where it begins.
        address: u64,
    },
    /// No range begins and ends there.
    #[error("no range of {length} bytes is mapped at {address:#x}")]
    NotMapped {
        /// Where it should begin.
        address: u64,
        /// Its bytes.
        length: u64,
    },
}

/// Which way data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Out of the host's memory.
    FromHost,
    /// Into it.
    ToHost,
}

#[derive(Debug)]
struct Range {
    address: u64,
    length: u64,
    access: MappingAccess,
    /// `None`: mapped without a file, so it is there and cannot be accessed.
    mapping: Option<Arc<SharedMapping>>,
}

impl Range {
    fn end(&self) -> u64 {
        self.address + self.length
    }

    fn permits(&self, way: Way) -> bool {
        match way {
            Way::FromHost => self.access.readable,
            Way::ToHost => self.access.writable,
        }
    }
}

/// The memory of a host: ranges of its addresses, which do not overlap.
#[derive(Debug)]
pub struct GuestMemory {
    /// Sorted by address.
    ranges: Vec<Range>,
    max: usize,
}

impl GuestMemory {
    /// No memory yet, and at most `max` ranges of it.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { ranges: Vec::new(), max }
    }

    /// How many ranges are mapped.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Whether [`insert`](Self::insert) would take this range: to be asked before it is mapped.
    ///
    /// # Errors
    /// It would not.
    pub fn check(&self, address: u64, length: u64) -> Result<(), GuestMemoryError> {
        self.place(address, length).map(|_place| ())
    }

    /// The host's addresses from `address` on are the bytes of `mapping`, or are there without
    /// being accessible.
    ///
    /// # Errors
    /// They are mapped already, or too many are. `mapping` has another length.
    pub fn insert(
        &mut self,
        address: u64,
        length: u64,
        access: MappingAccess,
        mapping: Option<Arc<SharedMapping>>,
    ) -> Result<(), GuestMemoryError> {
        let place = self.place(address, length)?;
        if mapping.as_ref().is_some_and(|mapping| mapping.length() as u64 != length) {
            return Err(GuestMemoryError::Range { address });
        }
        self.ranges.insert(place, Range { address, length, access, mapping });
        Ok(())
    }

    /// The index that a new range would have.
    fn place(&self, address: u64, length: u64) -> Result<usize, GuestMemoryError> {
        let end = address.checked_add(length).filter(|_| length > 0).ok_or(GuestMemoryError::Range { address })?;
        if self.ranges.len() >= self.max {
            return Err(GuestMemoryError::TooMany { max: self.max });
        }
        let place = self.ranges.partition_point(|range| range.address < address);
        let before = place.checked_sub(1).map_or(0, |before| self.ranges[before].end());
        let after = self.ranges.get(place).map_or(u64::MAX, |after| after.address);
        if before > address || after < end { Err(GuestMemoryError::Overlaps { address }) } else { Ok(place) }
    }

    /// Removes the range that has exactly these numbers. Pieces of it keep the memory until they
    /// are dropped.
    ///
    /// # Errors
    /// There is none.
    pub fn remove(&mut self, address: u64, length: u64) -> Result<(), GuestMemoryError> {
        let at = self.ranges.partition_point(|range| range.address < address);
        match self.ranges.get(at) {
            Some(range) if range.address == address && range.length == length => {
                self.ranges.remove(at);
                Ok(())
            }
            _ => Err(GuestMemoryError::NotMapped { address, length }),
        }
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        self.ranges = Vec::new();
    }

    /// The mapping with the byte at `address`, the byte's offset in it, and how many bytes follow
    /// there, at most `length`.
    #[inline]
    fn find(&self, address: u64, length: usize, way: Way) -> Result<(&Arc<SharedMapping>, usize, usize), GuestFault> {
        let fault = GuestFault { address };
        let after = self.ranges.partition_point(|range| range.address <= address);
        let range = after.checked_sub(1).and_then(|at| self.ranges.get(at)).ok_or(fault)?;
        let offset = address - range.address;
        if offset >= range.length || !range.permits(way) {
            return Err(fault);
        }
        let mapping = range.mapping.as_ref().ok_or(fault)?;
        let offset = usize::try_from(offset).map_err(|_large| fault)?;
        Ok((mapping, offset, (mapping.length() - offset).min(length)))
    }

    /// Calls `each` with the parts of mappings that a range is made of, in order: mapping, offset
    /// in it, and which bytes of the range these are.
    #[inline]
    fn for_each(
        &self,
        address: u64,
        length: usize,
        way: Way,
        mut each: impl FnMut(&Arc<SharedMapping>, usize, std::ops::Range<usize>) -> Option<()>,
    ) -> Result<(), GuestFault> {
        let mut done = 0;
        while done < length {
            let at = address.checked_add(done as u64).ok_or(GuestFault { address })?;
            let (mapping, offset, bytes) = self.find(at, length - done, way)?;
            each(mapping, offset, done..done + bytes).ok_or(GuestFault { address: at })?;
            done += bytes;
        }
        Ok(())
    }

    /// Copies bytes out; the range may be in several mappings.
    ///
    /// # Errors
    /// A part of it cannot be read.
    #[inline]
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), GuestFault> {
        self.for_each(address, into.len(), Way::FromHost, |mapping, offset, bytes| {
            mapping.read(offset, &mut into[bytes])
        })
    }

    /// Copies bytes in; the range may be in several mappings.
    ///
    /// # Errors
    /// A part of it cannot be written. What is before that part was.
    #[inline]
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), GuestFault> {
        self.for_each(address, from.len(), Way::ToHost, |mapping, offset, bytes| mapping.write(offset, &from[bytes]))
    }

    /// Whether all pages of a range [are present](SharedMapping::is_present). One that cannot be
    /// accessed is: that costs nothing.
    #[must_use]
    pub fn is_present(&self, address: u64, length: usize, way: Way) -> bool {
        let mut is_present = true;
        let found = self.for_each(address, length, way, |mapping, offset, bytes| {
            is_present &= mapping.is_present(offset, bytes.len());
            Some(())
        });
        is_present || found.is_err()
    }

    /// [`SharedMapping::load`].
    ///
    /// # Errors
    /// It cannot be read, or is not aligned.
    #[inline]
    pub fn load(&self, address: u64) -> Result<u32, GuestFault> {
        let (mapping, offset, _) = self.find(address, 4, Way::FromHost)?;
        mapping.load(offset).ok_or(GuestFault { address })
    }

    /// [`SharedMapping::store`].
    ///
    /// # Errors
    /// It cannot be written, or is not aligned.
    #[inline]
    pub fn store(&self, address: u64, value: u32) -> Result<(), GuestFault> {
        let (mapping, offset, _) = self.find(address, 4, Way::ToHost)?;
        mapping.store(offset, value).ok_or(GuestFault { address })
    }

    /// [`SharedMapping::write_tagged`].
    ///
    /// # Errors
    /// It cannot be written, or is not aligned.
    #[inline]
    pub fn write_tagged(&self, address: u64, entry: &[u8; 16]) -> Result<(), GuestFault> {
        let (mapping, offset, _) = self.find(address, 16, Way::ToHost)?;
        mapping.write_tagged(offset, entry).ok_or(GuestFault { address })
    }

    /// Appends the pieces of a range, for I/O: one, unless it is in several mappings.
    ///
    /// # Errors
    /// A part of it cannot be accessed; some pieces may have been appended.
    #[inline]
    pub fn pieces(
        &self,
        address: u64,
        length: usize,
        way: Way,
        pieces: &mut Vec<SharedPiece>,
    ) -> Result<(), GuestFault> {
        self.for_each(address, length, way, |mapping, offset, bytes| {
            pieces.push(mapping.piece(offset, bytes.len())?);
            Some(())
        })
    }
}

#[cfg(test)]
mod tests;
