//! Features: their identifiers, how Get Features and Set Features name one (dword 10), and their
//! values in dword 11, dword 0 of the completion or a data structure. Which a controller has, saves
//! and refuses is decided elsewhere.
//!
//! NVMe Base 2.1, "Get Features command", "Set Features command"; NVM Command Set 1.1, "Feature
//! Specific Information".

mod data;
mod drive;
mod value;

pub use data::{HostBehaviorSupport, Timestamp};
pub use drive::{
    EnduranceGroupEvents, LbaStatusAttributes, NonOperationalPower, ReservationMask, ReservationPersistence,
    SanitizeConfig, ThermalManagement,
};
pub use value::{
    Arbitration, AsyncEventConfig, ErrorRecovery, KeepAliveTimer, NumberOfQueues, PowerManagement,
    TemperatureThreshold, ThresholdType, VolatileWriteCache, WriteAtomicity, WriteProtection,
};

/// Feature Identifier (FID). Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fid(pub u8);

impl Fid {
    /// 01h: `Arbitration`.
    pub const ARBITRATION: Self = Self(0x01);
    /// 02h: `PowerManagement`.
    pub const POWER_MANAGEMENT: Self = Self(0x02);
    /// 03h: LBA Range Type.
    pub const LBA_RANGE_TYPE: Self = Self(0x03);
    /// 04h: `TemperatureThreshold`.
    pub const TEMPERATURE_THRESHOLD: Self = Self(0x04);
    /// 05h: `ErrorRecovery`.
    pub const ERROR_RECOVERY: Self = Self(0x05);
    /// 06h: `VolatileWriteCache`.
    pub const VOLATILE_WRITE_CACHE: Self = Self(0x06);
    /// 07h: `NumberOfQueues`.
    pub const NUMBER_OF_QUEUES: Self = Self(0x07);
    /// 08h: Interrupt Coalescing; not for message-based transports.
    pub const INTERRUPT_COALESCING: Self = Self(0x08);
    /// 09h: Interrupt Vector Configuration; not for message-based transports.
    pub const INTERRUPT_VECTOR: Self = Self(0x09);
    /// 0Ah: `WriteAtomicity`.
    pub const WRITE_ATOMICITY: Self = Self(0x0a);
    /// 0Bh: `AsyncEventConfig`.
    pub const ASYNC_EVENT_CONFIG: Self = Self(0x0b);
    /// 0Ch: Autonomous Power State Transition.
    pub const AUTONOMOUS_POWER_STATE: Self = Self(0x0c);
    /// 0Dh: Host Memory Buffer.
    pub const HOST_MEMORY_BUFFER: Self = Self(0x0d);
    /// 0Eh: `Timestamp`.
    pub const TIMESTAMP: Self = Self(0x0e);
    /// 0Fh: `KeepAliveTimer`.
    pub const KEEP_ALIVE_TIMER: Self = Self(0x0f);
    /// 10h: Host Controlled Thermal Management: `ThermalManagement`.
    pub const THERMAL_MANAGEMENT: Self = Self(0x10);
    /// 11h: `NonOperationalPower`.
    pub const NON_OPERATIONAL_POWER_STATE: Self = Self(0x11);
    /// 12h: Read Recovery Level Config.
    pub const READ_RECOVERY_LEVEL: Self = Self(0x12);
    /// 13h: Predictable Latency Mode Config.
    pub const PREDICTABLE_LATENCY_MODE: Self = Self(0x13);
    /// 14h: Predictable Latency Mode Window.
    pub const PREDICTABLE_LATENCY_WINDOW: Self = Self(0x14);
    /// 15h: `LbaStatusAttributes`.
    pub const LBA_STATUS_ATTRIBUTES: Self = Self(0x15);
    /// 16h: `HostBehaviorSupport`.
    pub const HOST_BEHAVIOR_SUPPORT: Self = Self(0x16);
    /// 17h: `SanitizeConfig`.
    pub const SANITIZE_CONFIG: Self = Self(0x17);
    /// 18h: Endurance Group Event Configuration: `EnduranceGroupEvents`.
    pub const ENDURANCE_GROUP_EVENT: Self = Self(0x18);
    /// 19h: I/O Command Set Profile.
    pub const IO_COMMAND_SET_PROFILE: Self = Self(0x19);
    /// 1Ah: Spinup Control.
    pub const SPINUP_CONTROL: Self = Self(0x1a);
    /// 78h: Embedded Management Controller Address.
    pub const MANAGEMENT_CONTROLLER_ADDRESS: Self = Self(0x78);
    /// 79h: Host Management Agent Address.
    pub const MANAGEMENT_AGENT_ADDRESS: Self = Self(0x79);
    /// 7Dh: Enhanced Controller Metadata.
    pub const ENHANCED_CONTROLLER_METADATA: Self = Self(0x7d);
    /// 7Eh: Controller Metadata.
    pub const CONTROLLER_METADATA: Self = Self(0x7e);
    /// 7Fh: Namespace Metadata.
    pub const NAMESPACE_METADATA: Self = Self(0x7f);
    /// 80h: Software Progress Marker: Pre-boot Software Load Count in bits 7:0.
    pub const SOFTWARE_PROGRESS_MARKER: Self = Self(0x80);
    /// 81h: Host Identifier, a data structure of 16 bytes over fabrics.
    pub const HOST_IDENTIFIER: Self = Self(0x81);
    /// 82h: `ReservationMask`.
    pub const RESERVATION_NOTIFICATION_MASK: Self = Self(0x82);
    /// 83h: `ReservationPersistence`.
    pub const RESERVATION_PERSISTENCE: Self = Self(0x83);
    /// 84h: `WriteProtection`.
    pub const WRITE_PROTECTION: Self = Self(0x84);
    /// 85h: Boot Partition Write Protection Config.
    pub const BOOT_PARTITION_WRITE_PROTECTION: Self = Self(0x85);

    /// The title of the feature, as for a person; `None` where no specification names it.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::ARBITRATION => "Arbitration",
            Self::POWER_MANAGEMENT => "Power Management",
            Self::LBA_RANGE_TYPE => "LBA Range Type",
            Self::TEMPERATURE_THRESHOLD => "Temperature Threshold",
            Self::ERROR_RECOVERY => "Error Recovery",
            Self::VOLATILE_WRITE_CACHE => "Volatile Write Cache",
            Self::NUMBER_OF_QUEUES => "Number of Queues",
            Self::INTERRUPT_COALESCING => "Interrupt Coalescing",
            Self::INTERRUPT_VECTOR => "Interrupt Vector Configuration",
            Self::WRITE_ATOMICITY => "Write Atomicity Normal",
            Self::ASYNC_EVENT_CONFIG => "Asynchronous Event Configuration",
            Self::AUTONOMOUS_POWER_STATE => "Autonomous Power State Transition",
            Self::HOST_MEMORY_BUFFER => "Host Memory Buffer",
            Self::TIMESTAMP => "Timestamp",
            Self::KEEP_ALIVE_TIMER => "Keep Alive Timer",
            Self::THERMAL_MANAGEMENT => "Host Controlled Thermal Management",
            Self::NON_OPERATIONAL_POWER_STATE => "Non-Operational Power State Config",
            Self::READ_RECOVERY_LEVEL => "Read Recovery Level Config",
            Self::PREDICTABLE_LATENCY_MODE => "Predictable Latency Mode Config",
            Self::PREDICTABLE_LATENCY_WINDOW => "Predictable Latency Mode Window",
            Self::LBA_STATUS_ATTRIBUTES => "LBA Status Information Attributes",
            Self::HOST_BEHAVIOR_SUPPORT => "Host Behavior Support",
            Self::SANITIZE_CONFIG => "Sanitize Config",
            Self::ENDURANCE_GROUP_EVENT => "Endurance Group Event Configuration",
            Self::IO_COMMAND_SET_PROFILE => "I/O Command Set Profile",
            Self::SPINUP_CONTROL => "Spinup Control",
            Self::MANAGEMENT_CONTROLLER_ADDRESS => "Embedded Management Controller Address",
            Self::MANAGEMENT_AGENT_ADDRESS => "Host Management Agent Address",
            Self::ENHANCED_CONTROLLER_METADATA => "Enhanced Controller Metadata",
            Self::CONTROLLER_METADATA => "Controller Metadata",
            Self::NAMESPACE_METADATA => "Namespace Metadata",
            Self::SOFTWARE_PROGRESS_MARKER => "Software Progress Marker",
            Self::HOST_IDENTIFIER => "Host Identifier",
            Self::RESERVATION_NOTIFICATION_MASK => "Reservation Notification Mask",
            Self::RESERVATION_PERSISTENCE => "Reservation Persistence",
            Self::WRITE_PROTECTION => "Namespace Write Protection Config",
            Self::BOOT_PARTITION_WRITE_PROTECTION => "Boot Partition Write Protection Config",
            _ => return None,
        })
    }
}

/// Dword 10 of Get Features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetFeature {
    /// Which feature.
    pub fid: Fid,
    /// Which of its values.
    pub select: Select,
}

impl GetFeature {
    /// From dword 10; reserved bits are ignored.
    #[must_use]
    pub const fn decode(cdw10: u32) -> Self {
        let [fid, select, _, _] = cdw10.to_le_bytes();
        Self { fid: Fid(fid), select: Select::decode(select) }
    }

    /// To dword 10.
    #[must_use]
    pub const fn encode(self) -> u32 {
        u32::from_le_bytes([self.fid.0, self.select.encode(), 0, 0])
    }
}

/// Dword 10 of Set Features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFeature {
    /// Which feature.
    pub fid: Fid,
    /// Save (SV): the value outlives power cycles and resets.
    pub save: bool,
}

impl SetFeature {
    /// From dword 10; reserved bits are ignored.
    #[must_use]
    pub const fn decode(cdw10: u32) -> Self {
        Self { fid: Fid(cdw10.to_le_bytes()[0]), save: cdw10 >> 31 != 0 }
    }

    /// To dword 10.
    #[must_use]
    pub const fn encode(self) -> u32 {
        u32::from_le_bytes([self.fid.0, 0, 0, if self.save { 0x80 } else { 0 }])
    }
}

/// Select (SEL) of Get Features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// 0: the current value.
    Current,
    /// 1: the default value.
    Default,
    /// 2: the saved value; the default where none is saved.
    Saved,
    /// 3: what can be done with the feature: `Capabilities`.
    Supported,
    /// 4 to 7: what no specification names yet.
    Reserved(u8),
}

impl Select {
    /// From the three low bits; the others are ignored.
    #[must_use]
    pub const fn decode(bits: u8) -> Self {
        match bits & 7 {
            0 => Self::Current,
            1 => Self::Default,
            2 => Self::Saved,
            3 => Self::Supported,
            reserved => Self::Reserved(reserved),
        }
    }

    /// To the three low bits.
    #[must_use]
    pub const fn encode(self) -> u8 {
        match self {
            Self::Current => 0,
            Self::Default => 1,
            Self::Saved => 2,
            Self::Supported => 3,
            Self::Reserved(reserved) => reserved & 7,
        }
    }
}

/// What Get Features returns in dword 0 for `Select::Supported`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Bit 0: the value can be saved.
    pub saveable: bool,
    /// Bit 1: the value is that of a namespace, not of the controller.
    pub namespace_specific: bool,
    /// Bit 2: the value can be changed.
    pub changeable: bool,
}

impl Capabilities {
    /// From dword 0; reserved bits are ignored.
    #[must_use]
    pub const fn decode(dw0: u32) -> Self {
        Self { saveable: dw0 & 1 != 0, namespace_specific: dw0 & 2 != 0, changeable: dw0 & 4 != 0 }
    }

    /// To dword 0.
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self.saveable) | u32::from(self.namespace_specific) << 1 | u32::from(self.changeable) << 2
    }
}
