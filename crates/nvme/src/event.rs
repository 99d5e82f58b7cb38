//! Asynchronous events: what dword 0 of the completion of an Asynchronous Event Request says, and
//! which bits of the Asynchronous Event Configuration feature let it be sent. When an event is sent
//! is decided elsewhere.
//!
//! NVMe Base 2.1, "Asynchronous Event Request command"; NVM Command Set 1.1, section of that name.

use crate::feature::AsyncEventConfig;
use crate::log::Lid;

/// An asynchronous event, dword 0 of the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AsyncEvent {
    /// Asynchronous Event Type (AET), bits 2:0.
    pub kind: EventType,
    /// Asynchronous Event Information (AEI), bits 15:8; its meaning depends on the type.
    pub info: u8,
    /// Log Page Identifier (LID), bits 23:16: reading it clears the event.
    pub log_page: Lid,
}

impl AsyncEvent {
    /// Error: a write to the doorbell of a queue that is not there.
    pub const INVALID_DOORBELL_REGISTER: Self = Self::error(0x00);
    /// Error: a doorbell value that cannot be.
    pub const INVALID_DOORBELL_VALUE: Self = Self::error(0x01);
    /// Error: diagnostic failure.
    pub const DIAGNOSTIC_FAILURE: Self = Self::error(0x02);
    /// Error: persistent internal error.
    pub const PERSISTENT_INTERNAL_ERROR: Self = Self::error(0x03);
    /// Error: transient internal error.
    pub const TRANSIENT_INTERNAL_ERROR: Self = Self::error(0x04);
    /// Error: firmware image load error.
    pub const FIRMWARE_LOAD_ERROR: Self = Self { log_page: Lid::FIRMWARE_SLOTS, ..Self::error(0x05) };
    /// SMART / health: reliability is compromised.
    pub const RELIABILITY: Self = Self::smart(0x00);
    /// SMART / health: a temperature went beyond a threshold.
    pub const TEMPERATURE_THRESHOLD: Self = Self::smart(0x01);
    /// SMART / health: spare below its threshold.
    pub const SPARE_BELOW_THRESHOLD: Self = Self::smart(0x02);
    /// Notice: Identify data of attached namespaces changed, or which are attached.
    pub const NAMESPACE_ATTRIBUTE_CHANGED: Self = Self::notice(0x00, Lid::CHANGED_NAMESPACES);
    /// Notice: firmware activation starts.
    pub const FIRMWARE_ACTIVATION_STARTING: Self = Self::notice(0x01, Lid::FIRMWARE_SLOTS);
    /// Notice: telemetry log changed.
    pub const TELEMETRY_LOG_CHANGED: Self = Self::notice(0x02, Lid::TELEMETRY_CONTROLLER);
    /// Notice: asymmetric namespace access change.
    pub const ANA_CHANGE: Self = Self::notice(0x03, Lid::ANA);
    /// Notice: predictable latency event aggregate log change.
    pub const PREDICTABLE_LATENCY_CHANGE: Self = Self::notice(0x04, Lid::PREDICTABLE_LATENCY_AGGREGATE);
    /// Notice: LBA status information alert.
    pub const LBA_STATUS_ALERT: Self = Self::notice(0x05, Lid::LBA_STATUS);
    /// Notice: endurance group event aggregate log change.
    pub const ENDURANCE_GROUP_CHANGE: Self = Self::notice(0x06, Lid::ENDURANCE_GROUP_AGGREGATE);
    /// Notice: Identify data of allocated namespaces changed, or which there are, or which are
    /// attached.
    pub const ALLOCATED_NAMESPACE_ATTRIBUTE_CHANGED: Self = Self::notice(0x09, Lid::CHANGED_ALLOCATED_NAMESPACES);
    /// Notice: zone descriptor changed.
    pub const ZONE_DESCRIPTOR_CHANGED: Self = Self::notice(0xef, Lid::CHANGED_ZONES);
    /// Notice: discovery log page change.
    pub const DISCOVERY_LOG_CHANGE: Self = Self::notice(0xf0, Lid::DISCOVERY);
    /// Notice: a Cross-Controller Reset that had been accepted has succeeded, or failed.
    pub const CROSS_CONTROLLER_RESET_COMPLETED: Self = Self::notice(0xf4, Lid::CROSS_CONTROLLER_RESET);
    /// NVM command set: reservation log page available.
    pub const RESERVATION_LOG_AVAILABLE: Self = Self::command_set(0x00, Lid::RESERVATION_NOTIFICATION);
    /// NVM command set: sanitize operation completed.
    pub const SANITIZE_COMPLETED: Self = Self::command_set(0x01, Lid::SANITIZE_STATUS);
    /// NVM command set: sanitize operation completed with unexpected deallocation.
    pub const SANITIZE_COMPLETED_DEALLOCATED: Self = Self::command_set(0x02, Lid::SANITIZE_STATUS);
    /// NVM command set: sanitize operation entered the Media Verification state.
    pub const SANITIZE_VERIFICATION: Self = Self::command_set(0x03, Lid::SANITIZE_STATUS);

    /// An event from dword 0. Never fails: what is unknown is kept, reserved bits are ignored.
    #[must_use]
    pub const fn decode(dw0: u32) -> Self {
        let [kind, info, lid, _] = dw0.to_le_bytes();
        Self { kind: EventType::decode(kind), info, log_page: Lid(lid) }
    }

    /// Dword 0.
    #[must_use]
    pub const fn encode(self) -> u32 {
        u32::from_le_bytes([self.kind.encode(), self.info, self.log_page.0, 0])
    }

    /// The bits of Asynchronous Event Configuration of which one must be set for this event to be
    /// sent; none where the host cannot switch it off. Those about reservations are kept away by
    /// `feature::ReservationMask`, those about sanitize by nothing.
    #[must_use]
    pub fn config_bits(self) -> AsyncEventConfig {
        match (self.kind, self.info) {
            (EventType::SmartHealth, 0x00) => AsyncEventConfig::DEGRADED
                .with(AsyncEventConfig::READ_ONLY)
                .with(AsyncEventConfig::VOLATILE_BACKUP)
                .with(AsyncEventConfig::PERSISTENT_MEMORY),
            (EventType::SmartHealth, 0x01) => AsyncEventConfig::TEMPERATURE,
            (EventType::SmartHealth, 0x02) => AsyncEventConfig::SPARE,
            // The first notices have the bits from 8 on in their order, the last ones those up to
            // 31 likewise.
            (EventType::Notice, info @ 0x00..=0x06) => AsyncEventConfig(1 << (8 + info)),
            (EventType::Notice, 0x09) => AsyncEventConfig::ALLOCATED_NAMESPACE_ATTRIBUTE,
            (EventType::Immediate, 0x00) => AsyncEventConfig::NORMAL_SHUTDOWN,
            (EventType::Immediate, 0x01) => AsyncEventConfig::TEMPERATURE_HYSTERESIS,
            (EventType::Notice, 0xef) => AsyncEventConfig::ZONE_DESCRIPTOR,
            (EventType::Notice, 0xf0) => AsyncEventConfig::DISCOVERY_LOG,
            (EventType::Notice, 0xf4) => AsyncEventConfig::CROSS_CONTROLLER_RESET,
            _ => AsyncEventConfig::default(),
        }
    }

    /// Whether a controller configured with `config` sends this event.
    #[must_use]
    pub fn is_enabled_by(self, config: AsyncEventConfig) -> bool {
        let bits = self.config_bits();
        bits.0 == 0 || bits.0 & config.0 != 0
    }

    /// In words, as for a person; `None` where no specification names it.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        // The log page is of no account: the type and the information name the event.
        Some(match (self.kind, self.info) {
            (EventType::Error, 0x00) => "write to invalid doorbell register",
            (EventType::Error, 0x01) => "invalid doorbell write value",
            (EventType::Error, 0x02) => "diagnostic failure",
            (EventType::Error, 0x03) => "persistent internal error",
            (EventType::Error, 0x04) => "transient internal error",
            (EventType::Error, 0x05) => "firmware image load error",
            (EventType::SmartHealth, 0x00) => "NVM subsystem reliability",
            (EventType::SmartHealth, 0x01) => "temperature threshold",
            (EventType::SmartHealth, 0x02) => "spare below threshold",
            (EventType::Notice, 0x00) => "namespace attribute changed",
            (EventType::Notice, 0x01) => "firmware activation starting",
            (EventType::Notice, 0x02) => "telemetry log changed",
            (EventType::Notice, 0x03) => "asymmetric namespace access change",
            (EventType::Notice, 0x04) => "predictable latency event aggregate log change",
            (EventType::Notice, 0x05) => "LBA status information alert",
            (EventType::Notice, 0x06) => "endurance group event aggregate log change",
            (EventType::Notice, 0x09) => "allocated namespace attribute changed",
            (EventType::Notice, 0xef) => "zone descriptor changed",
            (EventType::Notice, 0xf0) => "discovery log page change",
            (EventType::Notice, 0xf4) => "Cross-Controller Reset completed",
            (EventType::Immediate, 0x00) => "normal NVM subsystem shutdown",
            (EventType::Immediate, 0x01) => "temperature threshold hysteresis recovery",
            (EventType::IoCommandSet, 0x00) => "reservation log page available",
            (EventType::IoCommandSet, 0x01) => "sanitize operation completed",
            (EventType::IoCommandSet, 0x02) => "sanitize operation completed with unexpected deallocation",
            (EventType::IoCommandSet, 0x03) => "sanitize operation entered the media verification state",
            _ => return None,
        })
    }

    const fn error(info: u8) -> Self {
        Self { kind: EventType::Error, info, log_page: Lid::ERROR_INFORMATION }
    }

    const fn smart(info: u8) -> Self {
        Self { kind: EventType::SmartHealth, info, log_page: Lid::SMART_HEALTH }
    }

    const fn notice(info: u8, log_page: Lid) -> Self {
        Self { kind: EventType::Notice, info, log_page }
    }

    const fn command_set(info: u8, log_page: Lid) -> Self {
        Self { kind: EventType::IoCommandSet, info, log_page }
    }
}

/// Asynchronous Event Type (AET). Of each type at most one event is outstanding until its log page
/// is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// 0: error status.
    Error,
    /// 1: SMART / health status.
    SmartHealth,
    /// 2: notice.
    Notice,
    /// 3: immediate.
    Immediate,
    /// 4: one-shot.
    OneShot,
    /// 6: specific to an I/O command set.
    IoCommandSet,
    /// 7: vendor specific.
    Vendor,
    /// 5: what no specification names yet.
    Reserved,
}

impl EventType {
    /// How many types there are; `encode` is below it.
    pub const COUNT: usize = 8;

    /// From bits 2:0; the others are ignored.
    #[must_use]
    pub const fn decode(bits: u8) -> Self {
        match bits & 7 {
            0 => Self::Error,
            1 => Self::SmartHealth,
            2 => Self::Notice,
            3 => Self::Immediate,
            4 => Self::OneShot,
            6 => Self::IoCommandSet,
            7 => Self::Vendor,
            _ => Self::Reserved,
        }
    }

    /// To bits 2:0.
    #[must_use]
    pub const fn encode(self) -> u8 {
        match self {
            Self::Error => 0,
            Self::SmartHealth => 1,
            Self::Notice => 2,
            Self::Immediate => 3,
            Self::OneShot => 4,
            Self::Reserved => 5,
            Self::IoCommandSet => 6,
            Self::Vendor => 7,
        }
    }
}
