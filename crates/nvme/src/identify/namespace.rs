//! Identify Namespace (CNS 00h, 11h) and its I/O command set independent sister (CNS 08h): layouts,
//! and fields in plain units.

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::field;
use crate::protection::INFORMATION_BYTES;
use crate::table::values;

/// Identify Namespace data structure of the NVM command set. NVM Command Set 1.1, "Identify
/// Namespace data structure".
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Namespace Size, blocks.
    pub nsze: U64,
    /// Namespace Capacity, blocks.
    pub ncap: U64,
    /// Namespace Utilization, blocks.
    pub nuse: U64,
    /// Namespace Features: `field::nsfeat`.
    pub nsfeat: u8,
    /// Number of LBA Formats, 0's based: `lba_formats`.
    pub nlbaf: u8,
    /// Formatted LBA Size: `format_index`, `metadata_extended`.
    pub flbas: u8,
    /// Metadata Capabilities: `field::mc`.
    pub mc: u8,
    /// End-to-end Data Protection Capabilities: `field::dpc`.
    pub dpc: u8,
    /// End-to-end Data Protection Type Settings: `protection`, `field::dps`.
    pub dps: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities: `field::nmic`.
    pub nmic: u8,
    /// Reservation Capabilities: `field::rescap`.
    pub rescap: u8,
    /// Format Progress Indicator: `format_percent_left`.
    pub fpi: u8,
    /// Deallocate Logical Block Features: `field::dlfeat`.
    pub dlfeat: u8,
    /// Namespace Atomic Write Unit Normal, blocks, 0's based.
    pub nawun: U16,
    /// Namespace Atomic Write Unit Power Fail, blocks, 0's based.
    pub nawupf: U16,
    /// Namespace Atomic Compare & Write Unit, blocks, 0's based.
    pub nacwu: U16,
    /// Namespace Atomic Boundary Size Normal, blocks, 0's based.
    pub nabsn: U16,
    /// Namespace Atomic Boundary Offset, blocks.
    pub nabo: U16,
    /// Namespace Atomic Boundary Size Power Fail, blocks, 0's based.
    pub nabspf: U16,
    /// Namespace Optimal I/O Boundary, blocks.
    pub noiob: U16,
    /// NVM Capacity, bytes.
    pub nvmcap: U128,
    /// Namespace Preferred Write Granularity, blocks, 0's based.
    pub npwg: U16,
    /// Namespace Preferred Write Alignment, blocks, 0's based.
    pub npwa: U16,
    /// Namespace Preferred Deallocate Granularity, blocks, 0's based.
    pub npdg: U16,
    /// Namespace Preferred Deallocate Alignment, blocks, 0's based.
    pub npda: U16,
    /// Namespace Optimal Write Size, blocks, 0's based.
    pub nows: U16,
    /// Maximum Single Source Range Length of Copy, blocks.
    pub mssrl: U16,
    /// Maximum Copy Length, blocks.
    pub mcl: U32,
    /// Maximum Source Range Count of Copy, 0's based.
    pub msrc: u8,
    /// Key Per I/O Status.
    pub kpios: u8,
    /// Number of Unique Attribute LBA Formats.
    pub nulbaf: u8,
    /// Reserved.
    pub rsvd83: u8,
    /// Key Per I/O Data Access Alignment and Granularity.
    pub kpiodaag: U32,
    /// Reserved.
    pub rsvd88: [u8; 4],
    /// ANA Group Identifier; 0 in none.
    pub anagrpid: U32,
    /// Reserved.
    pub rsvd96: [u8; 3],
    /// Namespace Attributes: `field::nsattr`.
    pub nsattr: u8,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace Globally Unique Identifier, big endian; all zeros for none.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier, big endian; all zeros for none.
    pub eui64: [u8; 8],
    /// LBA Format Support.
    pub lbaf: [LbaFormat; 64],
    /// Vendor Specific.
    pub vs: [u8; 3712],
}

const _: () = assert!(size_of::<IdentifyNamespace>() == 4096);

impl IdentifyNamespace {
    /// Which entry of `lbaf` the namespace is formatted with, 0 to 63.
    #[must_use]
    pub fn format_index(&self) -> usize {
        let low = usize::from(self.flbas & 0x0f);
        let high = usize::from((self.flbas >> 5) & 3);
        // FLBAS: with 16 formats or fewer the host ignores bits 6:5, which older controllers may
        // set to anything.
        if self.lba_formats().len() > 16 { high << 4 | low } else { low }
    }

    /// Sets FLBAS to entry `index` (modulo 64) of `lbaf`, with metadata at the end of each block if
    /// `extended`.
    pub fn set_format(&mut self, index: u8, extended: bool) {
        self.flbas = (index & 0x0f) | (index & 0x30) << 1 | u8::from(extended) << 4;
    }

    /// Whether metadata is transferred at the end of each block.
    #[must_use]
    pub const fn metadata_extended(&self) -> bool {
        self.flbas & 0x10 != 0
    }

    /// The LBA formats the controller names: 1 to 64.
    #[must_use]
    pub fn lba_formats(&self) -> &[LbaFormat] {
        let formats = usize::from(self.nlbaf) + usize::from(self.nulbaf) + 1;
        &self.lbaf[..formats.min(self.lbaf.len())]
    }

    /// The LBA format in use.
    #[must_use]
    pub fn format(&self) -> LbaFormat {
        self.lbaf[self.format_index()]
    }

    /// Protection information as the namespace is formatted.
    #[must_use]
    pub const fn protection(&self) -> ProtectionType {
        ProtectionType::decode(self.dps)
    }

    /// The protection information that a host without a place for metadata leaves to the controller
    /// ([`crate::protection::left_to_controller`]), which is none where there are no metadata.
    /// `None` where there are others: such a host cannot use the namespace.
    #[must_use]
    pub fn protection_by_controller(&self) -> Option<ProtectionType> {
        match (usize::from(self.format().ms.get()), self.protection()) {
            (0, _) => Some(ProtectionType::None),
            // Only 16-bit guards are so short that there is room for nothing else.
            (INFORMATION_BYTES, kind @ (ProtectionType::Type1 | ProtectionType::Type2 | ProtectionType::Type3)) => {
                Some(kind)
            }
            _ => None,
        }
    }

    /// Percent of a Format NVM that is still to be done, 0 to 127 as it came; `None` where the
    /// controller does not say.
    #[must_use]
    pub const fn format_percent_left(&self) -> Option<u8> {
        if self.fpi & field::fpi::SUPPORTED == 0 { None } else { Some(self.fpi & field::fpi::PERCENT_MASK) }
    }

    /// Size in bytes, without metadata; `None` where the format in use is not legal.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u128> {
        Some(u128::from(self.nsze.get()) * u128::from(self.format().block_bytes()?))
    }
}

impl Default for IdentifyNamespace {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

values! {
    /// Protection Information Type: bits 2:0 of DPS, PI of Format NVM.
    #[derive(Default)]
    pub enum ProtectionType, 3 bits {
        /// No protection information.
        #[default]
        None = 0;
        /// Guard, application tag and a reference tag that counts blocks.
        Type1 = 1;
        /// As 1, and the reference tag begins where the command says.
        Type2 = 2;
        /// Guard and application tag.
        Type3 = 3;
    }
}

/// LBA Format, an entry of LBAF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata Size, bytes for each block.
    pub ms: U16,
    /// LBA Data Size, a power of two; 0 is an entry not in use: `block_bytes`.
    pub lbads: u8,
    /// Relative Performance, bits 1:0; 0 is best.
    pub rp: u8,
}

const _: () = assert!(size_of::<LbaFormat>() == 4);

impl LbaFormat {
    /// A format of 2^`lbads` bytes without metadata and with the best performance.
    #[must_use]
    pub const fn data_only(lbads: u8) -> Self {
        Self { ms: U16::ZERO, lbads, rp: 0 }
    }

    /// Data bytes of a block; `None` below 512 bytes (not in use) and beyond 2 GiB (nonsense).
    #[must_use]
    pub fn block_bytes(self) -> Option<u32> {
        if self.lbads < 9 { None } else { 1_u32.checked_shl(u32::from(self.lbads)) }
    }
}

/// I/O command set independent Identify Namespace data structure (CNS 08h). NVMe Base 2.1, section
/// of that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IndependentNamespace {
    /// Common Namespace Features: `field::independent_nsfeat`.
    pub nsfeat: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities: `field::nmic`.
    pub nmic: u8,
    /// Reservation Capabilities: `field::rescap`.
    pub rescap: u8,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// ANA Group Identifier.
    pub anagrpid: U32,
    /// Namespace Attributes: `field::nsattr`.
    pub nsattr: u8,
    /// Reserved.
    pub rsvd9: u8,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace Status: `field::nstat`.
    pub nstat: u8,
    /// Key Per I/O Status.
    pub kpios: u8,
    /// Maximum Key Tag.
    pub maxkt: U16,
    /// Reserved.
    pub rsvd18: [u8; 2],
    /// Reachability Group Identifier.
    pub rgrpid: U32,
    /// Reserved.
    pub rsvd24: [u8; 4072],
}

const _: () = assert!(size_of::<IndependentNamespace>() == 4096);

impl Default for IndependentNamespace {
    fn default() -> Self {
        Self::new_zeroed()
    }
}
