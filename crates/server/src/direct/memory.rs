//! The memory of a virtual machine: what its client has mapped.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ebof_region::{GuestMemory, GuestMemoryError, MapError, MappingAccess, SharedMapping, SharedPiece, Way};
use ebof_vfio::message::{DMA_MAPS_MAX, DmaMap, DmaUnmap};
use ebof_vfio::pointer::Piece;
use ebof_vfio::{Errno, Fault, Memory};

/// The memory.
#[derive(Debug)]
pub(crate) struct HostMemory {
    guest: GuestMemory,
    /// Address and bytes of the ranges, and what is mapped there.
    ranges: Vec<(u64, u64, Option<Mapped>)>,
    /// Bytes of those that are mapped.
    mapped_bytes: u64,
    /// A range was mapped whose file may become shorter, or lose pages.
    may_be_lost: bool,
    /// Something of such a range was gone.
    has_failed: Arc<AtomicBool>,
}

/// A range of a file.
#[derive(Debug)]
struct Mapped {
    /// I/O has others.
    mapping: Arc<SharedMapping>,
    share: AddressSpace,
}

/// Memory that the virtual machine does not have any more. Dropping it unmaps it.
#[derive(Debug, Default)]
pub(crate) struct Unmapped(Vec<Mapped>);

impl Unmapped {
    /// Whether no I/O uses it any more.
    pub(crate) fn is_unused(&self) -> bool {
        self.0.iter().all(|mapped| Arc::strong_count(&mapped.mapping) == 1)
    }

    /// Whether unmapping takes so long that others notice.
    pub(crate) fn is_large(&self) -> bool {
        self.0.iter().map(|mapped| mapped.mapping.length()).sum::<usize>() >= LARGE_BYTES
    }

    /// Joins the memory of `other`.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }
}

/// What a range takes of this process.
#[derive(Debug)]
struct AddressSpace {
    bytes: u64,
    mappings: u64,
}

/// Bytes of addresses that all ranges have, and mappings of the system.
static MAPPED: AtomicU64 = AtomicU64::new(0);
static MAPPINGS: AtomicU64 = AtomicU64::new(0);

impl AddressSpace {
    fn for_mapping(mapping: &SharedMapping) -> Option<Self> {
        // What replaces a part of it is one, and divides the rest.
        let mappings = if mapping.may_be_lost() { 3 } else { 1 };
        Self::take(mapping.mapped_bytes(), mappings)
    }

    fn take(bytes: u64, mappings: u64) -> Option<Self> {
        if !add(&MAPPINGS, mappings, PROCESS_MAX_MAPPINGS) {
            return None;
        }
        if !add(&MAPPED, bytes, PROCESS_MAX_BYTES) {
            MAPPINGS.fetch_sub(mappings, Ordering::Relaxed);
            return None;
        }
        Some(Self { bytes, mappings })
    }
}

/// Adds to a sum, unless that makes it larger than `max`.
fn add(sum: &AtomicU64, more: u64, max: u64) -> bool {
    let add = |sum: u64| sum.checked_add(more).filter(|sum| *sum <= max);
    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        MAPPED.fetch_sub(self.bytes, Ordering::Relaxed);
        MAPPINGS.fetch_sub(self.mappings, Ordering::Relaxed);
    }
}

/// A virtual machine maps at most so many bytes: 1 TiB.
const MACHINE_MAX_BYTES: u64 = 1 << 40;
/// All of them together map so many: 32 TiB, of the 128 TiB of addresses that a process has.
const PROCESS_MAX_BYTES: u64 = 32 << 40;
/// All of them together have so many mappings: half of what a process has by default
/// (`vm.max_map_count`). Allocating memory needs some, too.
const PROCESS_MAX_MAPPINGS: u64 = 32 << 10;
/// Unmapping so many takes longer than handing them to another thread, if they were used.
const LARGE_BYTES: usize = 4 << 20;

/// Why memory is not mapped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Table(#[from] GuestMemoryError),
    #[error(
        "more than {} GiB are mapped, by this virtual machine, or {} GiB or {PROCESS_MAX_MAPPINGS} ranges (three for \
         each that may be lost) by all",
        MACHINE_MAX_BYTES >> 30,
        PROCESS_MAX_BYTES >> 30
    )]
    TooLarge,
}

impl MemoryError {
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::Map(MapError::NotSealed | MapError::NotMemory) => Errno::ACCESS,
            Self::Map(MapError::TooShort { .. } | MapError::Misaligned { .. }) => Errno::INVALID,
            Self::Map(MapError::System(_)) => Errno::IO,
            Self::Table(GuestMemoryError::TooMany { .. }) | Self::TooLarge => Errno::NO_SPACE,
            Self::Table(GuestMemoryError::Overlaps { .. }) => Errno::EXISTS,
            Self::Table(GuestMemoryError::NotMapped { .. }) => Errno::NO_ENTRY,
            Self::Table(GuestMemoryError::Range { .. }) => Errno::INVALID,
        }
    }
}

impl HostMemory {
    pub(crate) fn new() -> Self {
        Self {
            guest: GuestMemory::new(DMA_MAPS_MAX),
            ranges: Vec::new(),
            mapped_bytes: 0,
            may_be_lost: false,
            has_failed: Arc::default(),
        }
    }

    /// Maps a range, of a file if there is one. Returns whether it is the first one whose file may
    /// become shorter, or lose pages.
    pub(crate) fn map(&mut self, map: &DmaMap, file: Option<BorrowedFd<'_>>) -> Result<bool, MemoryError> {
        let DmaMap { address, size, offset, direction } = *map;
        self.guest.check(address, size)?;
        let access = MappingAccess { readable: direction.readable, writable: direction.writable };
        let mapped = file.map(|file| self.map_file(file, offset, size, access)).transpose()?;
        self.guest.insert(address, size, access, mapped.as_ref().map(|mapped| Arc::clone(&mapped.mapping)))?;
        let may_be_lost = mapped.as_ref().is_some_and(|mapped| mapped.mapping.may_be_lost());
        self.mapped_bytes += mapped.as_ref().map_or(0, |mapped| mapped.share.bytes);
        self.ranges.push((address, size, mapped));
        let is_first = may_be_lost && !self.may_be_lost;
        self.may_be_lost |= may_be_lost;
        Ok(is_first)
    }

    /// Whether memory may be gone when it is accessed.
    #[inline]
    pub(crate) fn may_be_lost(&self) -> bool {
        self.may_be_lost
    }

    /// Whether memory was not there any more when it was accessed, since this was last asked.
    #[inline]
    pub(crate) fn take_failed(&self) -> bool {
        self.may_be_lost && self.has_failed.load(Ordering::Relaxed) && self.has_failed.swap(false, Ordering::Relaxed)
    }

    fn map_file(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        size: u64,
        access: MappingAccess,
    ) -> Result<Mapped, MemoryError> {
        let fits = |bytes| self.mapped_bytes.checked_add(bytes).is_some_and(|sum| sum <= MACHINE_MAX_BYTES);
        if !fits(size) {
            return Err(MemoryError::TooLarge);
        }
        // How much it takes depends on the pages of the file.
        let mapping = SharedMapping::map_any(file, offset, size, access, &self.has_failed)?;
        let share =
            AddressSpace::for_mapping(&mapping).filter(|share| fits(share.bytes)).ok_or(MemoryError::TooLarge)?;
        Ok(Mapped { mapping, share })
    }

    /// Unmaps what is named; nothing is accessed there from now on but by I/O that has begun.
    pub(crate) fn unmap(&mut self, unmap: &DmaUnmap) -> Result<Unmapped, Errno> {
        match *unmap {
            DmaUnmap::All => Ok(self.clear()),
            DmaUnmap::Range { address, size } => {
                self.guest.remove(address, size).map_err(|error| MemoryError::from(error).errno())?;
                let gone = self.ranges.extract_if(.., |range| (range.0, range.1) == (address, size));
                let gone: Vec<Mapped> = gone.filter_map(|(_, _, mapped)| mapped).collect();
                self.mapped_bytes -= gone.iter().map(|mapped| mapped.share.bytes).sum::<u64>();
                Ok(Unmapped(gone))
            }
        }
    }

    /// Unmaps everything.
    pub(crate) fn clear(&mut self) -> Unmapped {
        self.guest.clear();
        self.mapped_bytes = 0;
        Unmapped(self.ranges.drain(..).filter_map(|(_, _, mapped)| mapped).collect())
    }

    /// The memory of a transfer.
    pub(crate) fn pieces(&self, pieces: &[Piece], way: Way) -> Result<Vec<SharedPiece>, Fault> {
        let mut memory = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let found = self.guest.pieces(piece.address, piece.length as usize, way, &mut memory);
            found.map_err(|fault| Fault { address: fault.address })?;
        }
        Ok(memory)
    }
}

impl HostMemory {
    /// Whether accessing the pieces makes no new pages.
    #[cold]
    pub(crate) fn are_present(&self, pieces: &[Piece], way: Way) -> bool {
        pieces.iter().all(|piece| self.guest.is_present(piece.address, piece.length as usize, way))
    }
}

impl Memory for HostMemory {
    #[inline]
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.guest.read(address, into).map_err(|fault| Fault { address: fault.address })
    }

    #[inline]
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.guest.write(address, from).map_err(|fault| Fault { address: fault.address })
    }

    #[inline]
    fn load(&self, address: u64) -> Result<u32, Fault> {
        self.guest.load(address).map_err(|fault| Fault { address: fault.address })
    }

    #[inline]
    fn store(&self, address: u64, value: u32) -> Result<(), Fault> {
        self.guest.store(address, value).map_err(|fault| Fault { address: fault.address })
    }

    #[inline]
    fn write_completion(&self, address: u64, entry: &[u8; 16]) -> Result<(), Fault> {
        self.guest.write_tagged(address, entry).map_err(|fault| Fault { address: fault.address })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use ebof_vfio::message::Direction;

    use super::*;

    #[test]
    fn ranges_take_what_they_may_become() {
        let direction = Direction { readable: true, writable: true };
        let map = DmaMap { address: 0, size: 8192, offset: 0, direction };
        let unsealed = rustix::fs::memfd_create(c"guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&unsealed, 8192).unwrap();
        let (sealed, _mapping) = SharedMapping::create("guest", 8192).unwrap();
        for (file, mappings) in [(&sealed, 1), (&unsealed, 3)] {
            let mut memory = HostMemory::new();
            memory.map(&map, Some(file.as_fd())).unwrap();
            let share = &memory.ranges[0].2.as_ref().unwrap().share;
            assert_eq!((share.bytes, share.mappings, memory.mapped_bytes), (8192, mappings, 8192));
            memory.unmap(&DmaUnmap::Range { address: 0, size: 8192 }).unwrap();
            assert_eq!(memory.mapped_bytes, 0);
        }
        let large = AddressSpace::take(PROCESS_MAX_BYTES, 1);
        assert!(large.is_none_or(|large| AddressSpace::take(PROCESS_MAX_BYTES, 1).is_none() && large.mappings == 1));
        assert!(AddressSpace::take(0, PROCESS_MAX_MAPPINGS + 1).is_none());
    }

    #[test]
    fn what_is_unmapped_is_used_until_the_last_transfer_has_ended() {
        const BYTES: u64 = 1 << 20;
        let (file, _mapping) = SharedMapping::create("guest", BYTES).unwrap();
        let mut memory = HostMemory::new();
        let direction = Direction { readable: true, writable: true };
        memory.map(&DmaMap { address: 0, size: BYTES, offset: 0, direction }, Some(file.as_fd())).unwrap();
        let piece = Piece { address: 4096, length: 512 };
        let mut transfers = memory.pieces(&[piece, piece], Way::ToHost).unwrap();
        let unmapped = memory.unmap(&DmaUnmap::Range { address: 0, size: BYTES }).unwrap();
        assert!(memory.pieces(&[piece], Way::ToHost).is_err(), "no other one begins");
        while !transfers.is_empty() {
            assert!(!unmapped.is_unused(), "{} have not ended", transfers.len());
            transfers.pop();
        }
        assert!(unmapped.is_unused());
    }
}
