//! Identify data structures of an I/O command set: the NVM command set's namespace (CNS 05h) and
//! controller (CNS 06h), and which combinations of command sets there are (CNS 1Ch).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Csi;

/// NVM command set specific Identify Namespace (CNS 05h, CSI 00h). NVM Command Set 1.1, section of
/// that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmNamespace {
    /// Logical Block Storage Tag Mask.
    pub lbstm: U64,
    /// Protection Information Capabilities.
    pub pic: u8,
    /// Protection Information Format Attributes.
    pub pifa: u8,
    /// Reserved.
    pub rsvd10: [u8; 2],
    /// Extended LBA Format Support, beside LBAF of Identify Namespace: `storage_tag_bits`,
    /// `protection_format`.
    pub elbaf: [U32; 64],
    /// Namespace Preferred Deallocate Granularity Large, blocks.
    pub npdgl: U32,
    /// Namespace Preferred Read Granularity, blocks.
    pub nprg: U32,
    /// Namespace Preferred Read Alignment, blocks.
    pub npra: U32,
    /// Namespace Optimal Read Size, blocks.
    pub nors: U32,
    /// Namespace Preferred Deallocate Alignment Large, blocks.
    pub npdal: U32,
    /// LBA Format Placement Shard Size, bytes.
    pub lbapss: U32,
    /// Tracked LBA Allocation Granularity.
    pub tlbaag: U32,
    /// Reserved.
    pub rsvd296: [u8; 3800],
}

const _: () = assert!(size_of::<NvmNamespace>() == 4096);

impl NvmNamespace {
    /// Storage Tag Size (STS) of format `index` (0 to 63), in bits; 0 beyond.
    #[must_use]
    pub fn storage_tag_bits(&self, index: usize) -> u8 {
        self.elbaf.get(index).map_or(0, |elbaf| elbaf.to_bytes()[0] & 0x7f)
    }

    /// Protection Information Format (PIF) of format `index` (0 to 63).
    #[must_use]
    pub fn protection_format(&self, index: usize) -> ProtectionFormat {
        match self.elbaf.get(index).map_or(0, |elbaf| elbaf.get() >> 7 & 3) {
            0 => ProtectionFormat::Guard16,
            1 => ProtectionFormat::Guard32,
            2 => ProtectionFormat::Guard64,
            _ => ProtectionFormat::Qualified,
        }
    }
}

impl Default for NvmNamespace {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Protection Information Format (PIF).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectionFormat {
    /// 16b Guard Protection Information.
    Guard16,
    /// 32b Guard Protection Information.
    Guard32,
    /// 64b Guard Protection Information.
    Guard64,
    /// The Qualified Protection Information Format field says it.
    Qualified,
}

/// NVM command set specific Identify Controller (CNS 06h, CSI 00h). NVM Command Set 1.1, section of
/// that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NvmController {
    /// Verify Size Limit, a power of two in units of CAP.MPSMIN; 0 is without limit.
    pub vsl: u8,
    /// Write Zeroes Size Limit, a power of two in units of CAP.MPSMIN; 0 is without limit.
    pub wzsl: u8,
    /// Write Uncorrectable Size Limit, a power of two in units of CAP.MPSMIN; 0 is without limit.
    pub wusl: u8,
    /// Dataset Management Ranges Limit; 0 is without limit.
    pub dmrl: u8,
    /// Dataset Management Range Size Limit, blocks; 0 is without limit.
    pub dmrsl: U32,
    /// Dataset Management Size Limit, blocks of all ranges; 0 is without limit.
    pub dmsl: U64,
    /// Key Per I/O Capabilities.
    pub kpiocap: u8,
    /// Write Zeroes With Deallocate Size Limit.
    pub wzdsl: u8,
    /// Admin Optional Command Support.
    pub aocs: U16,
    /// Version of the command set specification.
    pub ver: U32,
    /// LBA Migration Queue Format.
    pub lbamqf: u8,
    /// Reserved.
    pub rsvd25: [u8; 4071],
}

const _: () = assert!(size_of::<NvmController>() == 4096);

impl Default for NvmController {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Identify I/O Command Set data structure (CNS 1Ch): combinations of command sets that may be
/// enabled together.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IoCommandSets {
    /// I/O Command Set Vectors, a bit for each command set; the first zero ends the list.
    pub iocsc: [U64; 512],
}

const _: () = assert!(size_of::<IoCommandSets>() == 4096);

impl IoCommandSets {
    /// The one combination that consists of the NVM command set alone.
    #[must_use]
    pub fn nvm_only() -> Self {
        let mut sets = Self::default();
        sets.iocsc[0] = U64::new(1 << Csi::NVM.0);
        sets
    }

    /// The combinations in order, each with its bits; the index is what the I/O Command Set Profile
    /// feature selects.
    pub fn combinations(&self) -> impl Iterator<Item = u64> {
        self.iocsc.iter().map(|vector| vector.get()).take_while(|&vector| vector != 0)
    }
}

impl Default for IoCommandSets {
    fn default() -> Self {
        Self::new_zeroed()
    }
}
