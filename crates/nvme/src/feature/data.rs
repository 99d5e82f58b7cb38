//! Feature values that are data structures: Host Behavior Support (16h) and Timestamp (0Eh).

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Host Behavior Support (16h). NVMe Base 2.1, section of that name. 1 enables, 0 does not.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HostBehaviorSupport {
    /// Advanced Command Retry Enable: the host understands CRD in a status.
    pub acre: u8,
    /// Extended Telemetry Data Area 4 Supported.
    pub etdas: u8,
    /// LBA Format Extension Enable: the host understands more than 16 formats and ELBAF.
    pub lbafee: u8,
    /// Host Dispersed Namespace Support.
    pub hdisns: u8,
    /// Copy Descriptor Formats Enable, one bit each.
    pub cdfe: U16,
    /// Reserved.
    pub rsvd6: [u8; 506],
}

const _: () = assert!(size_of::<HostBehaviorSupport>() == 512);

impl Default for HostBehaviorSupport {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Timestamp (0Eh). NVMe Base 2.1, section of that name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Timestamp {
    /// Timestamp, little endian: `milliseconds`.
    pub timestamp: [u8; 6],
    /// Attributes, of Get Features only: bit 0 the controller may have stopped counting, bits 3:1
    /// where it began.
    pub attr: u8,
    /// Reserved.
    pub rsvd7: u8,
}

const _: () = assert!(size_of::<Timestamp>() == 8);

impl Timestamp {
    /// A time of `milliseconds` since 1970 (48 bits, the rest is cut).
    #[must_use]
    pub const fn new(milliseconds: u64) -> Self {
        let [a, b, c, d, e, f, _, _] = milliseconds.to_le_bytes();
        Self { timestamp: [a, b, c, d, e, f], attr: 0, rsvd7: 0 }
    }

    /// Milliseconds since 1970, or since the last reset where the host has not set it.
    #[must_use]
    pub const fn milliseconds(self) -> u64 {
        let [a, b, c, d, e, f] = self.timestamp;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// Whether a host has set it (Timestamp Origin 1), and not a reset (0).
    #[must_use]
    pub const fn set_by_host(self) -> bool {
        self.attr >> 1 & 7 == 1
    }

    /// Whether the controller may have stopped counting for a while (Synch).
    #[must_use]
    pub const fn may_have_stopped(self) -> bool {
        self.attr & 1 != 0
    }

    /// The same time as Get Features returns it.
    #[must_use]
    pub fn with_attributes(self, set_by_host: bool, may_have_stopped: bool) -> Self {
        Self { attr: u8::from(may_have_stopped) | u8::from(set_by_host) << 1, ..self }
    }
}
