//! Namespace Granularity List (CNS 16h): sizes and capacities that waste nothing when a namespace
//! is created.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Namespace Granularity List. NVM Command Set 1.1, section of that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NamespaceGranularityList {
    /// Namespace Granularity Attributes: bit 0, each LBA format has the descriptor of its index
    /// (`per_format`).
    pub nga: U32,
    /// Number of Descriptors, 0's based: `descriptors`.
    pub nod: u8,
    /// Reserved.
    pub rsvd5: [u8; 27],
    /// Namespace Granularity Descriptors.
    pub ngd: [Granularity; 16],
    /// Reserved.
    pub rsvd288: [u8; 3808],
}

const _: () = assert!(size_of::<NamespaceGranularityList>() == 4096);

/// Namespace Granularity Descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Granularity {
    /// Namespace Size Granularity, bytes; 0 is not said.
    pub nszeg: U64,
    /// Namespace Capacity Granularity, bytes; 0 is not said.
    pub ncapg: U64,
}

impl NamespaceGranularityList {
    /// One granularity of `bytes` for size and capacity of every format.
    #[must_use]
    pub fn of_all_formats(bytes: u64) -> Self {
        let mut list = Self::default();
        list.ngd[0] = Granularity { nszeg: bytes.into(), ncapg: bytes.into() };
        list
    }

    /// For each format the bytes of data that are its granularity of size and capacity; of 16
    /// formats at most.
    #[must_use]
    pub fn of_formats(bytes: impl IntoIterator<Item = u64>) -> Self {
        let mut list = Self { nga: U32::new(1), ..Self::default() };
        for (at, (entry, bytes)) in (0..).zip(list.ngd.iter_mut().zip(bytes)) {
            *entry = Granularity { nszeg: bytes.into(), ncapg: bytes.into() };
            list.nod = at;
        }
        list
    }

    /// Whether descriptors belong to LBA formats by index; otherwise the first is for all formats.
    #[must_use]
    pub fn per_format(&self) -> bool {
        self.nga.get() & 1 != 0
    }

    /// The descriptors, 1 to 16.
    #[must_use]
    pub fn descriptors(&self) -> &[Granularity] {
        &self.ngd[..self.ngd.len().min(usize::from(self.nod) + 1)]
    }

    /// What applies to LBA format `index`; `None` where nothing is said of it.
    #[must_use]
    pub fn of_format(&self, index: usize) -> Option<Granularity> {
        self.descriptors().get(if self.per_format() { index } else { 0 }).copied()
    }
}

impl Default for NamespaceGranularityList {
    fn default() -> Self {
        Self::new_zeroed()
    }
}
