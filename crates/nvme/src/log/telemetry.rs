//! Telemetry Host-Initiated (07h) and Controller-Initiated (08h): the header of 512 bytes that
//! describes the data areas behind it. What is in the areas is the controller's own.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Lid;

/// Telemetry log page header; data blocks of 512 bytes follow. NVMe Base 2.1, "Telemetry
/// Host-Initiated log page", "Telemetry Controller-Initiated log page".
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TelemetryHeader {
    /// Log Page Identifier, 07h or 08h.
    pub lpi: u8,
    /// Reserved.
    pub rsvd1: [u8; 4],
    /// IEEE OUI Identifier of who can read the data, least significant byte first.
    pub ieee: [u8; 3],
    /// Data Area 1 Last Block.
    pub da1lb: U16,
    /// Data Area 2 Last Block.
    pub da2lb: U16,
    /// Data Area 3 Last Block.
    pub da3lb: U16,
    /// Reserved.
    pub rsvd14: [u8; 2],
    /// Data Area 4 Last Block.
    pub da4lb: U32,
    /// Reserved.
    pub rsvd20: [u8; 360],
    /// Telemetry Host-Initiated Scope, of 07h: `telemetry_scope`.
    pub ths: u8,
    /// Of 07h: Telemetry Host-Initiated Data Generation Number. Of 08h: Telemetry
    /// Controller-Initiated Scope.
    pub thdgn_or_tcs: u8,
    /// Telemetry Controller-Initiated Data Available, 0 or 1.
    pub tcda: u8,
    /// Telemetry Controller-Initiated Data Generation Number.
    pub tcdgn: u8,
    /// Reason Identifier: the controller's own.
    pub rident: [u8; 128],
}

const _: () = assert!(size_of::<TelemetryHeader>() == 512);

impl TelemetryHeader {
    /// Length of a data block, in bytes.
    pub const BLOCK_BYTES: u64 = 512;

    /// A header of `lid` with the last blocks of the four areas.
    #[must_use]
    pub fn new(lid: Lid, last_blocks: [u16; 3], last_block_4: u32) -> Self {
        let [one, two, three] = last_blocks;
        Self {
            lpi: lid.0,
            da1lb: one.into(),
            da2lb: two.into(),
            da3lb: three.into(),
            da4lb: last_block_4.into(),
            ..Self::new_zeroed()
        }
    }

    /// The last block of data areas 1 to `area` (1 to 4); blocks count from 1, 0 is an empty area.
    /// Areas contain those before them.
    #[must_use]
    pub fn last_block(&self, area: u8) -> u32 {
        match area {
            0 => 0,
            1 => u32::from(self.da1lb.get()),
            2 => u32::from(self.da2lb.get()),
            3 => u32::from(self.da3lb.get()),
            _ => self.da4lb.get(),
        }
    }

    /// Bytes of the log page up to the end of data area `area`, the header included.
    #[must_use]
    pub fn bytes_up_to(&self, area: u8) -> u64 {
        (u64::from(self.last_block(area)) + 1) * Self::BLOCK_BYTES
    }
}

impl Default for TelemetryHeader {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Scope of telemetry data: THS and TCS.
pub mod telemetry_scope {
    /// Not said.
    pub const UNKNOWN: u8 = 0;
    /// The controller.
    pub const CONTROLLER: u8 = 1;
    /// The NVM subsystem.
    pub const SUBSYSTEM: u8 = 2;
}
