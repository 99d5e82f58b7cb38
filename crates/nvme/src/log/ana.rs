//! The Asymmetric Namespace Access log page (0Ch): writing it, and reading one that anybody may
//! have sent.

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::name::id::Nsid;
use crate::table::numbers;

/// Header of the ANA log page. NVMe Base 2.1, "Asymmetric Namespace Access log page".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AnaHeader {
    /// Change Count; 0 where it is not counted.
    pub chgcnt: U64,
    /// Number of ANA Group Descriptors.
    pub nagd: U16,
    /// Reserved.
    pub rsvd10: [u8; 6],
}

const _: () = assert!(size_of::<AnaHeader>() == 16);

/// ANA Group Descriptor without its namespaces, which follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AnaGroupHeader {
    /// ANA Group ID.
    pub agid: U32,
    /// Number of NSID Values.
    pub nnv: U32,
    /// Change Count of the group.
    pub chgcnt: U64,
    /// ANA State in bits 3:0: `AnaState`.
    pub anas: u8,
    /// Reserved.
    pub rsvd17: [u8; 15],
}

const _: () = assert!(size_of::<AnaGroupHeader>() == 32);

impl AnaGroupHeader {
    /// ANA State of the group's namespaces.
    #[must_use]
    pub const fn state(&self) -> AnaState {
        AnaState(self.anas & 0x0f)
    }
}

/// Asymmetric Namespace Access State. Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnaState(pub u8);

numbers! { AnaState, else "reserved":
    /// ANA Optimized state.
    OPTIMIZED = 0x1, "optimized";
    /// ANA Non-Optimized state.
    NON_OPTIMIZED = 0x2, "non-optimized";
    /// ANA Inaccessible state.
    INACCESSIBLE = 0x3, "inaccessible";
    /// ANA Persistent Loss state.
    PERSISTENT_LOSS = 0x4, "persistent-loss";
    /// ANA Change state.
    CHANGE = 0xf, "change";
}

/// Builds an ANA log page. Its size is the caller's: 16 bytes, 32 for each group and 4 for each
/// namespace.
#[derive(Clone, Debug)]
pub struct AnaWriter {
    bytes: Vec<u8>,
    header: AnaHeader,
}

impl AnaWriter {
    /// A log page without groups.
    #[must_use]
    pub fn new(chgcnt: u64) -> Self {
        let header = AnaHeader { chgcnt: chgcnt.into(), ..AnaHeader::default() };
        Self { bytes: Vec::from(header.as_bytes()), header }
    }

    /// Appends a group, of which there are at most 65535. Groups ascend by `agid`, namespaces by
    /// their identifier; none are given where the host asked for groups only (RGO).
    pub fn push(&mut self, agid: u32, chgcnt: u64, state: AnaState, nsids: impl IntoIterator<Item = Nsid>) {
        let start = self.bytes.len();
        let mut group = AnaGroupHeader { agid: agid.into(), chgcnt: chgcnt.into(), ..AnaGroupHeader::default() };
        group.anas = state.0 & 0x0f;
        self.bytes.extend_from_slice(group.as_bytes());
        for nsid in nsids {
            self.bytes.extend_from_slice(&nsid.0.to_le_bytes());
            group.nnv += 1;
        }
        self.bytes[start..start + size_of::<AnaGroupHeader>()].copy_from_slice(group.as_bytes());
        self.header.nagd = self.header.nagd.get().saturating_add(1).into();
    }

    /// The log page.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes[..size_of::<AnaHeader>()].copy_from_slice(self.header.as_bytes());
        self.bytes
    }
}

/// An ANA Group Descriptor in a log page that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnaGroup<'a> {
    /// The descriptor.
    pub header: &'a AnaGroupHeader,
    /// NSIDs of the group.
    pub nsids: &'a [U32],
}

/// Reads an ANA log page of any length and content; ends where a group is cut short, or after as
/// many as the header says.
#[derive(Clone, Debug)]
pub struct AnaGroups<'a> {
    rest: &'a [u8],
    left: u16,
}

impl<'a> AnaGroups<'a> {
    /// The header and the groups of `log`; `None` where the header is cut short.
    #[must_use]
    pub fn new(log: &'a [u8]) -> Option<(&'a AnaHeader, Self)> {
        let (header, rest) = AnaHeader::ref_from_prefix(log).ok()?;
        Some((header, Self { rest, left: header.nagd.get() }))
    }

    /// Groups the header announced that have not come: not 0 at the end means that the log was cut
    /// short.
    #[must_use]
    pub const fn missing(&self) -> u16 {
        self.left
    }
}

impl<'a> Iterator for AnaGroups<'a> {
    type Item = AnaGroup<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let left = self.left.checked_sub(1)?;
        let (header, rest) = AnaGroupHeader::ref_from_prefix(self.rest).ok()?;
        let count = usize::try_from(header.nnv.get()).ok()?;
        let (nsids, rest) = <[U32]>::ref_from_prefix_with_elems(rest, count).ok()?;
        self.left = left;
        self.rest = rest;
        Some(AnaGroup { header, nsids })
    }
}
