//! The Cross-Controller Reset log page (1Eh): writing it, and reading one that anybody may have
//! sent.
//!
//! The layout is that of Base 2.3 as libnvme 3 has it; it was not compared with another controller.

use alloc::vec::Vec;

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::id::ControllerId;
use crate::table::values;

/// Header of the Cross-Controller Reset log page, 8 bytes. NVMe Base 2.3, "Cross-Controller Reset
/// log page".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CrossControllerResetHeader {
    /// Number of Entries.
    pub ne: U16,
    /// Reserved.
    pub rsvd2: [u8; 6],
}

const _: () = assert!(size_of::<CrossControllerResetHeader>() == 8);

/// Cross-Controller Reset Entry data structure: a reset that this controller was asked for, and has
/// not done at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CrossControllerResetEntry {
    /// Impacted Controller ID: whom the command named.
    pub icid: U16,
    /// Controller Instance Uniquifier, as in the command.
    pub ciu: u8,
    /// Reserved.
    pub rsvd3: u8,
    /// Alternate Controller ID: where the reset might succeed; FFFFh is nowhere.
    pub acid: U16,
    /// Cross-Controller Reset Status: `CrossControllerResetState`.
    pub ccrs: u8,
    /// Cross-Controller Reset Flags: `ccrf`.
    pub ccrf: u8,
}

const _: () = assert!(size_of::<CrossControllerResetEntry>() == 8);

impl CrossControllerResetEntry {
    /// Entries of a log page, which has 4096 bytes.
    pub const ENTRIES_MAX: usize = 511;

    /// ACID where there is no such controller.
    pub const NO_ALTERNATE: ControllerId = ControllerId(0xffff);

    /// CCRS.
    #[must_use]
    pub const fn state(&self) -> CrossControllerResetState {
        CrossControllerResetState::decode(self.ccrs)
    }

    /// Whether the entry is about this controller.
    #[must_use]
    pub fn is_about(&self, id: ControllerId, uniquifier: u8) -> bool {
        self.icid.get() == id.0 && self.ciu == uniquifier
    }
}

values! {
    /// Cross-Controller Reset Status (CCRS).
    pub enum CrossControllerResetState, 8 bits {
        /// The controller is not reset yet: its commands may still be executed.
        InProgress = 0, "in progress";
        /// The controller is reset, and none of its commands is executed any more.
        Successful = 1, "successful";
        /// The controller could not be reset; its commands may still be executed.
        Failed = 2, "failed";
    }
}

/// The bits of Cross-Controller Reset Flags (CCRF).
pub mod ccrf {
    /// Validated (V): the controller is there, and is the instance that was meant.
    pub const VALIDATED: u8 = 1 << 0;
    /// Controller Level Reset Initiated (CLRI).
    pub const INITIATED: u8 = 1 << 1;
}

/// The log page: at most 511 entries, the rest is left out.
#[must_use]
pub fn cross_controller_reset_log(entries: impl IntoIterator<Item = CrossControllerResetEntry>) -> Vec<u8> {
    let mut bytes = Vec::from(CrossControllerResetHeader::default().as_bytes());
    let mut header = CrossControllerResetHeader::default();
    for entry in entries.into_iter().take(CrossControllerResetEntry::ENTRIES_MAX) {
        bytes.extend_from_slice(entry.as_bytes());
        header.ne = header.ne.get().saturating_add(1).into();
    }
    bytes[..size_of::<CrossControllerResetHeader>()].copy_from_slice(header.as_bytes());
    bytes
}

/// The entries of a log page of any length and content: as many as the header says, or as there
/// are; `None` where the header is cut short.
#[must_use]
pub fn read_cross_controller_reset_log(log: &[u8]) -> Option<&[CrossControllerResetEntry]> {
    let (header, rest) = CrossControllerResetHeader::ref_from_prefix(log).ok()?;
    let there = rest.len() / size_of::<CrossControllerResetEntry>();
    let count = usize::from(header.ne.get()).min(there);
    let (entries, _) = <[CrossControllerResetEntry]>::ref_from_prefix_with_elems(rest, count).ok()?;
    Some(entries)
}
