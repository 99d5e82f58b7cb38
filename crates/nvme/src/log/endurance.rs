//! Endurance Group Information (09h) and Endurance Group Event Aggregate (0Fh).

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Endurance Group Information; the group is named by LSI of the command. NVMe Base 2.1, section of
/// that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EnduranceGroupInformation {
    /// Critical Warning: `endurance_warning`.
    pub cw: u8,
    /// Endurance Group Features: bit 0, media is rotational.
    pub egfeat: u8,
    /// Reserved.
    pub rsvd2: u8,
    /// Available Spare, percent.
    pub avsp: u8,
    /// Available Spare Threshold, percent.
    pub avspt: u8,
    /// Percentage Used, 255 for more than 254.
    pub pused: u8,
    /// Domain Identifier.
    pub did: U16,
    /// Reserved.
    pub rsvd8: [u8; 24],
    /// Endurance Estimate: billions of bytes that may be written, 0 not said.
    pub ee: U128,
    /// Data Units Read, billions of bytes, rounded up: `data_units`.
    pub dur: U128,
    /// Data Units Written, billions of bytes, rounded up: `data_units`.
    pub duw: U128,
    /// Media Units Written, billions of bytes, rounded up; includes what the controller writes by
    /// itself.
    pub muw: U128,
    /// Host Read Commands.
    pub hrc: U128,
    /// Host Write Commands.
    pub hwc: U128,
    /// Media and Data Integrity Errors.
    pub mdie: U128,
    /// Number of Error Information Log Entries.
    pub neile: U128,
    /// Total Endurance Group Capacity, bytes.
    pub tegcap: U128,
    /// Unallocated Endurance Group Capacity, bytes.
    pub uegcap: U128,
    /// Reserved.
    pub rsvd192: [u8; 320],
}

const _: () = assert!(size_of::<EnduranceGroupInformation>() == 512);

impl EnduranceGroupInformation {
    /// Bytes as the page counts them: in billions, rounded up.
    #[must_use]
    pub const fn data_units(bytes: u128) -> u128 {
        bytes.div_ceil(1_000_000_000)
    }
}

impl Default for EnduranceGroupInformation {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// The bits of Critical Warning of an endurance group; those of its summary in SMART / Health
/// (EGCWS) and of the Endurance Group Event Configuration feature are the same.
pub mod endurance_warning {
    /// Available spare below its threshold.
    pub const SPARE: u8 = 1 << 0;
    /// Reliability is degraded.
    pub const DEGRADED: u8 = 1 << 2;
    /// The namespaces of the group are read only.
    pub const READ_ONLY: u8 = 1 << 3;
}

/// Endurance Group Event Aggregate: the groups that had events, in ascending order. NVMe Base 2.1,
/// section of that name. Identifiers beyond 65535 cannot exist; 0 is left out.
#[must_use]
pub fn endurance_aggregate(groups: impl IntoIterator<Item = u16>) -> Vec<u8> {
    let mut out = U64::ZERO.as_bytes().to_vec();
    let mut count = 0_u64;
    for group in groups.into_iter().filter(|&group| group != 0) {
        out.extend_from_slice(U16::new(group).as_bytes());
        count += 1;
    }
    out[..8].copy_from_slice(&count.to_le_bytes());
    out
}

/// Reads the groups of an Endurance Group Event Aggregate that are in `data`; `None` where not even
/// their number is.
#[must_use]
pub fn read_endurance_aggregate(data: &[u8]) -> Option<Vec<u16>> {
    let (count, rest) = U64::read_from_prefix(data).ok()?;
    let count = usize::try_from(count.get()).unwrap_or(usize::MAX);
    Some(rest.chunks_exact(2).take(count).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect())
}
