//! Feature values of one dword that drives have: thermal management, sanitize, endurance groups,
//! reservations, LBA status. Every decoder accepts any value and ignores reserved bits; every
//! encoder leaves them clear.

use crate::log::ReservationEvent;

/// Host Controlled Thermal Management (10h), kelvin; 0 switches a threshold off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThermalManagement {
    /// Thermal Management Temperature 1 (TMT1): light throttling from here.
    pub light_kelvin: u16,
    /// Thermal Management Temperature 2 (TMT2): heavy throttling from here; above TMT1.
    pub heavy_kelvin: u16,
}

impl ThermalManagement {
    /// From dword 11 or dword 0.
    #[must_use]
    pub const fn decode(dword: u32) -> Self {
        let [a, b, c, d] = dword.to_le_bytes();
        Self { heavy_kelvin: u16::from_le_bytes([a, b]), light_kelvin: u16::from_le_bytes([c, d]) }
    }

    /// To dword 11 or dword 0.
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self.heavy_kelvin) | u32::from(self.light_kelvin) << 16
    }
}

/// Non-Operational Power State Config (11h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NonOperationalPower {
    /// Non-Operational Power State Permissive Mode Enable (NOPPME).
    pub permissive: bool,
}

impl NonOperationalPower {
    /// From dword 11 or dword 0.
    #[must_use]
    pub const fn decode(dword: u32) -> Self {
        Self { permissive: dword & 1 != 0 }
    }

    /// To dword 11 or dword 0.
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self.permissive)
    }
}

/// LBA Status Information Attributes (15h), units of 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LbaStatusAttributes {
    /// LBA Status Information Report Interval (LSIRI).
    pub report_interval_100ms: u16,
    /// LBA Status Information Poll Interval (LSIPI), of Get Features only.
    pub poll_interval_100ms: u16,
}

impl LbaStatusAttributes {
    /// From dword 11 or dword 0.
    #[must_use]
    pub const fn decode(dword: u32) -> Self {
        let [a, b, c, d] = dword.to_le_bytes();
        Self { report_interval_100ms: u16::from_le_bytes([a, b]), poll_interval_100ms: u16::from_le_bytes([c, d]) }
    }

    /// To dword 11 or dword 0.
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self.report_interval_100ms) | u32::from(self.poll_interval_100ms) << 16
    }
}

/// Sanitize Config (17h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SanitizeConfig {
    /// No-Deallocate Response Mode (NODRM): Sanitize with No-Deallocate where that is inhibited is
    /// carried out with a warning, instead of refused.
    pub warn: bool,
}

impl SanitizeConfig {
    /// From dword 11 or dword 0.
    #[must_use]
    pub const fn decode(dword: u32) -> Self {
        Self { warn: dword & 1 != 0 }
    }

    /// To dword 11 or dword 0.
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self.warn)
    }
}

/// Endurance Group Event Configuration (18h). Get Features names the group in dword 11 too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnduranceGroupEvents {
    /// Endurance Group Identifier (ENDGID).
    pub group: u16,
    /// Endurance Group Critical Warnings (EGCW): bits of `log::endurance_warning`.
    pub warnings: u8,
}

impl EnduranceGroupEvents {
    /// From dword 11; dword 0 has the warnings in the same place.
    #[must_use]
    pub const fn decode(dword: u32) -> Self {
        let [low, high, warnings, _] = dword.to_le_bytes();
        Self { group: u16::from_le_bytes([low, high]), warnings }
    }

    /// To dword 11 or dword 0.
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self.group) | u32::from(self.warnings) << 16
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

/// Reservation Persistence (83h), of a namespace: Persist Through Power Loss (PTPL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationPersistence {
    /// Reservations and registrants outlive a loss of power.
    pub persist: bool,
}

impl ReservationPersistence {
    /// From dword 11 or dword 0.
    #[must_use]
    pub const fn decode(dword: u32) -> Self {
        Self { persist: dword & 1 != 0 }
    }

    /// To dword 11 or dword 0.
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self.persist)
    }
}
