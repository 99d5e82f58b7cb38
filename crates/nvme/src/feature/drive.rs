//! Feature values of one dword that drives have: thermal management, sanitize, endurance groups,
//! reservations, LBA status. Every decoder accepts any value and ignores reserved bits; every
//! encoder leaves them clear.

use crate::log::ReservationEvent;
use crate::table::dword;

dword! {
    /// Host Controlled Thermal Management (10h), kelvin; 0 switches a threshold off.
    #[derive(Default)]
    pub struct ThermalManagement {
        /// Thermal Management Temperature 1 (TMT1): light throttling from here.
        light_kelvin: u16 = 31:16;
        /// Thermal Management Temperature 2 (TMT2): heavy throttling from here; above TMT1.
        heavy_kelvin: u16 = 15:0;
    }
}

dword! {
    /// Non-Operational Power State Config (11h).
    #[derive(Default)]
    pub struct NonOperationalPower {
        /// Non-Operational Power State Permissive Mode Enable (NOPPME).
        permissive: bool = 0:0;
    }
}

dword! {
    /// LBA Status Information Attributes (15h), units of 100 ms.
    #[derive(Default)]
    pub struct LbaStatusAttributes {
        /// LBA Status Information Report Interval (LSIRI).
        report_interval_100ms: u16 = 15:0;
        /// LBA Status Information Poll Interval (LSIPI), of Get Features only.
        poll_interval_100ms: u16 = 31:16;
    }
}

dword! {
    /// Sanitize Config (17h).
    #[derive(Default)]
    pub struct SanitizeConfig {
        /// No-Deallocate Response Mode (NODRM): Sanitize with No-Deallocate where that is inhibited
        /// is carried out with a warning, instead of refused.
        warn: bool = 0:0;
    }
}

dword! {
    /// Endurance Group Event Configuration (18h). Get Features names the group in dword 11 too.
    #[derive(Default)]
    pub struct EnduranceGroupEvents {
        /// Endurance Group Identifier (ENDGID).
        group: u16 = 15:0;
        /// Endurance Group Critical Warnings (EGCW): bits of `log::endurance_warning`.
        warnings: u8 = 23:16;
    }
}

/// Reservation Notification Mask (82h), of a namespace: notifications that are kept away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationMask(pub u32);

impl ReservationMask {
    /// Registration preempted, reservation released and reservation preempted.
    pub const ALL: Self = Self(0x0e);

    /// From dword 11 or dword 0.
    #[must_use]
    pub const fn decode(dword: u32) -> Self {
        Self(dword & Self::ALL.0)
    }

    /// To dword 11 or dword 0.
    #[must_use]
    pub const fn encode(self) -> u32 {
        self.0 & Self::ALL.0
    }

    /// Whether notifications of `event` are kept away.
    #[must_use]
    pub fn masks(self, event: ReservationEvent) -> bool {
        self.0 & event.mask_bit() != 0
    }
}

dword! {
    /// Reservation Persistence (83h), of a namespace: Persist Through Power Loss (PTPL).
    #[derive(Default)]
    pub struct ReservationPersistence {
        /// Reservations and registrants outlive a loss of power.
        persist: bool = 0:0;
    }
}
