//! Sanitize Status (81h).

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::table::values;

/// Sanitize Status log page. NVMe Base 2.1, section of that name. Times are in seconds, FFFFFFFFh
/// is not said.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SanitizeLog {
    /// Sanitize Progress, in 65536ths; FFFFh where no operation is under way.
    pub sprog: U16,
    /// Sanitize Status: `state`, `passes`, `global_data_erased`.
    pub sstat: U16,
    /// Sanitize Command Dword 10 of the latest operation.
    pub scdw10: U32,
    /// Estimated Time For Overwrite.
    pub eto: U32,
    /// Estimated Time For Block Erase.
    pub etbe: U32,
    /// Estimated Time For Crypto Erase.
    pub etce: U32,
    /// Estimated Time For Overwrite With No-Deallocate Media Modification.
    pub etond: U32,
    /// Estimated Time For Block Erase With No-Deallocate Media Modification.
    pub etbend: U32,
    /// Estimated Time For Crypto Erase With No-Deallocate Media Modification.
    pub etcend: U32,
    /// Estimated Time For Post-Verification Deallocation State.
    pub etpvds: U32,
    /// Sanitize State Information: state in bits 3:0, the state a failure was in in bits 7:4.
    pub ssi: u8,
    /// Reserved.
    pub rsvd37: [u8; 475],
}

const _: () = assert!(size_of::<SanitizeLog>() == 512);

impl SanitizeLog {
    /// SPROG where no operation is under way.
    pub const NO_PROGRESS: u16 = u16::MAX;
    /// A time that is not said.
    pub const UNKNOWN_SECONDS: u32 = u32::MAX;

    /// A log of a subsystem that never was sanitized, without estimates.
    #[must_use]
    pub fn new() -> Self {
        let unknown = U32::new(Self::UNKNOWN_SECONDS);
        Self {
            sprog: U16::new(Self::NO_PROGRESS),
            sstat: U16::ZERO,
            scdw10: U32::ZERO,
            eto: unknown,
            etbe: unknown,
            etce: unknown,
            etond: unknown,
            etbend: unknown,
            etcend: unknown,
            etpvds: unknown,
            ssi: 0,
            rsvd37: [0; 475],
        }
    }

    /// SOS, bits 2:0 of SSTAT.
    #[must_use]
    pub fn state(&self) -> SanitizeState {
        SanitizeState::decode(self.sstat.get().to_le_bytes()[0])
    }

    /// Completed Overwrite passes, 0 to 31.
    #[must_use]
    pub fn passes(&self) -> u8 {
        self.sstat.get().to_le_bytes()[0] >> 3
    }

    /// Global Data Erased: nothing was written since the subsystem was made or last sanitized.
    #[must_use]
    pub fn global_data_erased(&self) -> bool {
        self.sstat.get() & 1 << 8 != 0
    }

    /// Sets SSTAT; `passes` is cut to 31.
    pub fn set_status(&mut self, state: SanitizeState, passes: u8, global_data_erased: bool) {
        let low = state.encode() | passes.min(31) << 3;
        self.sstat.set(u16::from_le_bytes([low, u8::from(global_data_erased)]));
    }

    /// The part that is done, in percent from 0 to 100; `None` where no operation is under way.
    #[must_use]
    pub fn percent(&self) -> Option<u8> {
        let underway = self.state() == SanitizeState::InProgress;
        underway.then(|| (u32::from(self.sprog.get()) * 100 / 65_536).to_le_bytes()[0])
    }
}

impl Default for SanitizeLog {
    fn default() -> Self {
        Self::new()
    }
}

values! {
    /// Sanitize Operation Status (SOS), bits 2:0 of SSTAT.
    pub enum SanitizeState, 3 bits {
        /// Never sanitized.
        Never = 0, "never sanitized";
        /// The latest operation succeeded.
        Succeeded = 1, "succeeded";
        /// An operation is under way.
        InProgress = 2, "in progress";
        /// The latest operation failed.
        Failed = 3, "failed";
        /// The latest operation succeeded, and deallocated although No-Deallocate was asked for.
        SucceededDeallocated = 4, "succeeded with deallocation";
    }
}
