//! Feature values of one dword: dword 11 of Set Features, dword 0 of the completion of Get
//! Features. Every decoder accepts any value and ignores reserved bits; every encoder leaves them
//! clear.

use crate::identify::field::oaes;
use crate::log::critical_warning;
use crate::table::{dword, flags, values};

/// Arbitration (01h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arbitration {
    /// Arbitration Burst (AB), the power of two; 7 is without limit.
    pub burst_log2: u8,
    /// Low Priority Weight, commands, 1 to 256.
    pub low_weight: u16,
    /// Medium Priority Weight, commands, 1 to 256.
    pub medium_weight: u16,
    /// High Priority Weight, commands, 1 to 256.
    pub high_weight: u16,
}

impl Arbitration {
    /// From dword 11 or dword 0.
    #[must_use]
    pub fn decode(dword: u32) -> Self {
        let [burst, low, medium, high] = dword.to_le_bytes();
        let weight = |field| u16::from(field) + 1;
        Self {
            burst_log2: burst & 7,
            low_weight: weight(low),
            medium_weight: weight(medium),
            high_weight: weight(high),
        }
    }

    /// To dword 11 or dword 0. Weights out of range become the nearest in it.
    #[must_use]
    pub fn encode(self) -> u32 {
        let field = |weight: u16| u8::try_from(weight.saturating_sub(1)).unwrap_or(u8::MAX);
        let [low, medium, high] = [self.low_weight, self.medium_weight, self.high_weight].map(field);
        u32::from_le_bytes([self.burst_log2 & 7, low, medium, high])
    }

    /// Commands taken at once from a queue; `None` is without limit.
    #[must_use]
    pub fn burst_commands(self) -> Option<u8> {
        (self.burst_log2 < 7).then(|| 1 << self.burst_log2)
    }
}

impl Default for Arbitration {
    fn default() -> Self {
        Self::decode(0)
    }
}

dword! {
    /// Power Management (02h).
    #[derive(Default)]
    pub struct PowerManagement {
        /// Power State (PS), 0 to 31.
        power_state: u8 = 4:0;
        /// Workload Hint (WH), 0 to 7.
        workload_hint: u8 = 7:5;
    }
}

dword! {
    /// Temperature Threshold (04h).
    pub struct TemperatureThreshold {
        /// Temperature Threshold (TMPTH), kelvin.
        kelvin: u16 = 15:0;
        /// Threshold Temperature Select (TMPSEL): 0 composite, 1 to 8 a sensor, 15 all (Set
        /// Features only).
        sensor: u8 = 19:16;
        /// Threshold Type Select (THSEL).
        threshold: ThresholdType = 21:20;
        /// Temperature Threshold Hysteresis (TMPTHH), kelvin, 0 to 7.
        hysteresis: u8 = 24:22;
    }
}

impl TemperatureThreshold {
    /// TMPSEL for all temperatures.
    pub const ALL_SENSORS: u8 = 15;
}

values! {
    /// Threshold Type Select (THSEL).
    pub enum ThresholdType, 2 bits {
        /// Over temperature threshold.
        Over = 0;
        /// Under temperature threshold.
        Under = 1;
    }
}

dword! {
    /// Error Recovery (05h), of a namespace.
    #[derive(Default)]
    pub struct ErrorRecovery {
        /// Time Limited Error Recovery (TLER), units of 100 ms; 0 is without limit.
        time_limit_100ms: u16 = 15:0;
        /// Deallocated or Unwritten Logical Block Error Enable (DULBE).
        deallocated_error: bool = 16:16;
    }
}

dword! {
    /// Volatile Write Cache (06h).
    #[derive(Default)]
    pub struct VolatileWriteCache {
        /// Volatile Write Cache Enable (WCE).
        enabled: bool = 0:0;
    }
}

/// Number of Queues (07h): what a host asks for, and what it is given. 0's based only on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberOfQueues {
    /// I/O submission queues (NSQR, NSQA), 1 to 65535.
    pub submission: u16,
    /// I/O completion queues (NCQR, NCQA), 1 to 65535.
    pub completion: u16,
}

impl NumberOfQueues {
    /// From dword 11 or dword 0; `None` for a number of 65536, which is refused as an invalid
    /// field.
    #[must_use]
    pub fn decode(dword: u32) -> Option<Self> {
        let [low, high, low_completion, high_completion] = dword.to_le_bytes();
        Some(Self {
            submission: u16::from_le_bytes([low, high]).checked_add(1)?,
            completion: u16::from_le_bytes([low_completion, high_completion]).checked_add(1)?,
        })
    }

    /// To dword 11 or dword 0; 0 is taken for 1.
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self.submission.saturating_sub(1)) | u32::from(self.completion.saturating_sub(1)) << 16
    }
}

dword! {
    /// Write Atomicity Normal (0Ah).
    #[derive(Default)]
    pub struct WriteAtomicity {
        /// Disable Normal (DN): only AWUPF need be honoured, not AWUN.
        disable_normal: bool = 0:0;
    }
}

/// Asynchronous Event Configuration (0Bh): dword 11 or dword 0 as it is. Bits 7:0 are those of
/// Critical Warning, the notices' those of OAES.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AsyncEventConfig(pub u32);

flags!(AsyncEventConfig);

impl AsyncEventConfig {
    /// Critical warning: spare.
    pub const SPARE: Self = Self::warning(critical_warning::SPARE);
    /// Critical warning: temperature.
    pub const TEMPERATURE: Self = Self::warning(critical_warning::TEMPERATURE);
    /// Critical warning: reliability.
    pub const DEGRADED: Self = Self::warning(critical_warning::DEGRADED);
    /// Critical warning: media read only.
    pub const READ_ONLY: Self = Self::warning(critical_warning::READ_ONLY);
    /// Critical warning: backup of volatile memory.
    pub const VOLATILE_BACKUP: Self = Self::warning(critical_warning::VOLATILE_BACKUP);
    /// Critical warning: persistent memory region.
    pub const PERSISTENT_MEMORY: Self = Self::warning(critical_warning::PERSISTENT_MEMORY);
    /// Namespace attribute changed.
    pub const NAMESPACE_ATTRIBUTE: Self = Self(oaes::NAMESPACE_ATTRIBUTE);
    /// Firmware activation.
    pub const FIRMWARE_ACTIVATION: Self = Self(oaes::FIRMWARE_ACTIVATION);
    /// Telemetry log; announced by LPA, not by OAES.
    pub const TELEMETRY_LOG: Self = Self(1 << 10);
    /// Asymmetric namespace access change.
    pub const ANA_CHANGE: Self = Self(oaes::ANA_CHANGE);
    /// Predictable latency event aggregate log change.
    pub const PREDICTABLE_LATENCY: Self = Self(oaes::PREDICTABLE_LATENCY);
    /// LBA status information alert.
    pub const LBA_STATUS: Self = Self(oaes::LBA_STATUS);
    /// Endurance group event aggregate log change.
    pub const ENDURANCE_GROUP: Self = Self(oaes::ENDURANCE_GROUP);
    /// Normal NVM subsystem shutdown.
    pub const NORMAL_SHUTDOWN: Self = Self(oaes::NORMAL_SHUTDOWN);
    /// Temperature threshold hysteresis recovery.
    pub const TEMPERATURE_HYSTERESIS: Self = Self(oaes::TEMPERATURE_HYSTERESIS);
    /// Reachability association change; announced together with that of groups.
    // NVMe Base, Asynchronous Event Configuration: RASSN is bit 17, RGRP0 bit 18.
    pub const REACHABILITY_ASSOCIATION: Self = Self(oaes::REACHABILITY);
    /// Reachability group change.
    pub const REACHABILITY_GROUP: Self = Self(1 << 18);
    /// Allocated namespace attribute changed.
    pub const ALLOCATED_NAMESPACE_ATTRIBUTE: Self = Self(oaes::ALLOCATED_NAMESPACE_ATTRIBUTE);
    /// Cross-Controller Reset completed.
    pub const CROSS_CONTROLLER_RESET: Self = Self(oaes::CROSS_CONTROLLER_RESET);
    /// Zone descriptor changed.
    pub const ZONE_DESCRIPTOR: Self = Self(oaes::ZONE_DESCRIPTOR);
    /// Discovery log page change.
    pub const DISCOVERY_LOG: Self = Self(oaes::DISCOVERY_LOG);

    const fn warning(bit: u8) -> Self {
        Self(u32::from_le_bytes([bit, 0, 0, 0]))
    }
}

/// Keep Alive Timer (0Fh): the Keep Alive Timeout (KATO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAliveTimer {
    /// Milliseconds; 0 is off.
    pub timeout_ms: u32,
}

impl KeepAliveTimer {
    /// From dword 11 or dword 0.
    #[must_use]
    pub const fn decode(dword: u32) -> Self {
        Self { timeout_ms: dword }
    }

    /// To dword 11 or dword 0.
    #[must_use]
    pub const fn encode(self) -> u32 {
        self.timeout_ms
    }

    /// The time-out rounded up to the controller's granularity (KAS): what a controller keeps and
    /// returns.
    #[must_use]
    pub const fn rounded_up(self, granularity_ms: u32) -> Self {
        match self.timeout_ms.checked_next_multiple_of(granularity_ms) {
            Some(timeout_ms) => Self { timeout_ms },
            None => self,
        }
    }
}

/// Namespace Write Protection Config (84h): the Write Protection State (WPS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteProtection {
    /// 0: No Write Protect.
    #[default]
    None,
    /// 1: Write Protect.
    Protected,
    /// 2: Write Protect Until Power Cycle.
    UntilPowerCycle,
    /// 3: Permanent Write Protect.
    Permanent,
    /// 4 to 7: what no specification names yet.
    Reserved(u8),
}

impl WriteProtection {
    /// From dword 11 or dword 0.
    #[must_use]
    pub const fn decode(dword: u32) -> Self {
        match dword.to_le_bytes()[0] & 7 {
            0 => Self::None,
            1 => Self::Protected,
            2 => Self::UntilPowerCycle,
            3 => Self::Permanent,
            reserved => Self::Reserved(reserved),
        }
    }

    /// To dword 11 or dword 0.
    #[must_use]
    pub fn encode(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Protected => 1,
            Self::UntilPowerCycle => 2,
            Self::Permanent => 3,
            Self::Reserved(reserved) => u32::from(reserved & 7),
        }
    }
}
