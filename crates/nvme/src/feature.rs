//! Features: their identifiers, how Get Features and Set Features name one (dword 10), and their
//! values in dword 11, dword 0 of the completion or a data structure. Which a controller has, saves
//! and refuses is decided elsewhere.
//!
//! NVMe Base 2.1, "Get Features command", "Set Features command"; NVM Command Set 1.1, "Feature
//! Specific Information".

use crate::table::{Bits, dword, numbers, values};

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

impl Bits for Fid {
    fn of_bits(bits: u32) -> Self {
        Self(Bits::of_bits(bits))
    }

    fn bits(self) -> u32 {
        self.0.bits()
    }
}

numbers! { Fid:
    ARBITRATION = 0x01, "Arbitration" => Arbitration;
    POWER_MANAGEMENT = 0x02, "Power Management" => PowerManagement;
    LBA_RANGE_TYPE = 0x03, "LBA Range Type";
    TEMPERATURE_THRESHOLD = 0x04, "Temperature Threshold" => TemperatureThreshold;
    ERROR_RECOVERY = 0x05, "Error Recovery" => ErrorRecovery;
    VOLATILE_WRITE_CACHE = 0x06, "Volatile Write Cache" => VolatileWriteCache;
    NUMBER_OF_QUEUES = 0x07, "Number of Queues" => NumberOfQueues;
    /// Not for message-based transports.
    INTERRUPT_COALESCING = 0x08, "Interrupt Coalescing";
    /// Not for message-based transports.
    INTERRUPT_VECTOR = 0x09, "Interrupt Vector Configuration";
    WRITE_ATOMICITY = 0x0a, "Write Atomicity Normal" => WriteAtomicity;
    ASYNC_EVENT_CONFIG = 0x0b, "Asynchronous Event Configuration" => AsyncEventConfig;
    AUTONOMOUS_POWER_STATE = 0x0c, "Autonomous Power State Transition";
    HOST_MEMORY_BUFFER = 0x0d, "Host Memory Buffer";
    TIMESTAMP = 0x0e, "Timestamp" => Timestamp;
    KEEP_ALIVE_TIMER = 0x0f, "Keep Alive Timer" => KeepAliveTimer;
    THERMAL_MANAGEMENT = 0x10, "Host Controlled Thermal Management" => ThermalManagement;
    NON_OPERATIONAL_POWER_STATE = 0x11, "Non-Operational Power State Config" => NonOperationalPower;
    READ_RECOVERY_LEVEL = 0x12, "Read Recovery Level Config";
    PREDICTABLE_LATENCY_MODE = 0x13, "Predictable Latency Mode Config";
    PREDICTABLE_LATENCY_WINDOW = 0x14, "Predictable Latency Mode Window";
    LBA_STATUS_ATTRIBUTES = 0x15, "LBA Status Information Attributes" => LbaStatusAttributes;
    HOST_BEHAVIOR_SUPPORT = 0x16, "Host Behavior Support" => HostBehaviorSupport;
    SANITIZE_CONFIG = 0x17, "Sanitize Config" => SanitizeConfig;
    ENDURANCE_GROUP_EVENT = 0x18, "Endurance Group Event Configuration" => EnduranceGroupEvents;
    IO_COMMAND_SET_PROFILE = 0x19, "I/O Command Set Profile";
    SPINUP_CONTROL = 0x1a, "Spinup Control";
    MANAGEMENT_CONTROLLER_ADDRESS = 0x78, "Embedded Management Controller Address";
    MANAGEMENT_AGENT_ADDRESS = 0x79, "Host Management Agent Address";
    ENHANCED_CONTROLLER_METADATA = 0x7d, "Enhanced Controller Metadata";
    CONTROLLER_METADATA = 0x7e, "Controller Metadata";
    NAMESPACE_METADATA = 0x7f, "Namespace Metadata";
    /// Pre-boot Software Load Count in bits 7:0.
    SOFTWARE_PROGRESS_MARKER = 0x80, "Software Progress Marker";
    /// A data structure of 16 bytes over fabrics.
    HOST_IDENTIFIER = 0x81, "Host Identifier";
    RESERVATION_NOTIFICATION_MASK = 0x82, "Reservation Notification Mask" => ReservationMask;
    RESERVATION_PERSISTENCE = 0x83, "Reservation Persistence" => ReservationPersistence;
    WRITE_PROTECTION = 0x84, "Namespace Write Protection Config" => WriteProtection;
    BOOT_PARTITION_WRITE_PROTECTION = 0x85, "Boot Partition Write Protection Config";
}

dword! {
    /// Dword 10 of Get Features.
    pub struct GetFeature {
        /// Which feature.
        fid: Fid = 7:0;
        /// Which of its values.
        select: Select = 10:8;
    }
}

dword! {
    /// Dword 10 of Set Features.
    pub struct SetFeature {
        /// Which feature.
        fid: Fid = 7:0;
        /// Save (SV): the value outlives power cycles and resets.
        save: bool = 31:31;
    }
}

values! {
    /// Select (SEL) of Get Features.
    pub enum Select, 3 bits {
        /// The current value.
        Current = 0;
        /// The default value.
        Default = 1;
        /// The saved value; the default where none is saved.
        Saved = 2;
        /// What can be done with the feature: `Capabilities`.
        Supported = 3;
    }
}

dword! {
    /// What Get Features returns in dword 0 for `Select::Supported`.
    #[derive(Default)]
    pub struct Capabilities {
        /// Bit 0: the value can be saved.
        saveable: bool = 0:0;
        /// Bit 1: the value is that of a namespace, not of the controller.
        namespace_specific: bool = 1:1;
        /// Bit 2: the value can be changed.
        changeable: bool = 2:2;
    }
}
