//! Log pages: which there are (`Lid`) and their layouts. What a controller records and when it is
//! cleared is decided elsewhere.
//!
//! NVMe Base 2.1, "Get Log Page command".

mod ana;
mod command;
mod discovery;
mod discovery_field;
mod effects;
mod endurance;
mod health;
mod lba_status;
mod lists;
mod persistent;
pub mod persistent_event;
mod reservation;
mod sanitize;
mod self_test;
mod telemetry;

pub use ana::{AnaGroup, AnaGroupHeader, AnaGroups, AnaHeader, AnaState, AnaWriter};
pub use command::{GetLogPage, ana_lsp, persistent_event_lsp, telemetry_lsp};
pub use discovery::{DiscoveryEntries, DiscoveryEntry, DiscoveryHeader, RdmaAddress, lsp};
pub use discovery_field::{
    AddressFamily, EntryFlags, RdmaProvider, RdmaQueuePair, SecType, SubsystemType, TrType, Treq,
};
pub use effects::{
    CommandEffects, CommandsSupportedAndEffects, FeatureEffects, FeaturesSupportedAndEffects, Submission, scope,
};
pub use endurance::{EnduranceGroupInformation, endurance_aggregate, endurance_warning, read_endurance_aggregate};
pub use health::{ErrorInformation, FirmwareSlots, ParameterErrorLocation, SmartHealth, critical_warning};
pub use lba_status::{LbaRange, LbaStatusElement, LbaStatusHeader, lba_status_log};
pub use lists::{ChangedNamespaces, LidSupport, SupportedLogPages};
pub use persistent::{EventHeader, EventKind, PersistentEvent, PersistentEventHeader, PersistentEvents, push_event};
pub use reservation::{ReservationEvent, ReservationNotification};
pub use sanitize::{SanitizeLog, SanitizeState};
pub use self_test::{SelfTestCode, SelfTestEntry, SelfTestLog, SelfTestResult, self_test_valid};
pub use telemetry::{TelemetryHeader, telemetry_scope};

/// Log Page Identifier (LID), dword 10 bits 7:0 of Get Log Page. Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lid(pub u8);

impl Lid {
    /// 00h: `SupportedLogPages`.
    pub const SUPPORTED_LOG_PAGES: Self = Self(0x00);
    /// 01h: `ErrorInformation` entries, newest first.
    pub const ERROR_INFORMATION: Self = Self(0x01);
    /// 02h: `SmartHealth`.
    pub const SMART_HEALTH: Self = Self(0x02);
    /// 03h: `FirmwareSlots`.
    pub const FIRMWARE_SLOTS: Self = Self(0x03);
    /// 04h: `ChangedNamespaces`, those attached to the controller.
    pub const CHANGED_NAMESPACES: Self = Self(0x04);
    /// 05h: `CommandsSupportedAndEffects`.
    pub const COMMAND_EFFECTS: Self = Self(0x05);
    /// 06h: `SelfTestLog`.
    pub const DEVICE_SELF_TEST: Self = Self(0x06);
    /// 07h: Telemetry Host-Initiated: `TelemetryHeader`, data blocks.
    pub const TELEMETRY_HOST: Self = Self(0x07);
    /// 08h: Telemetry Controller-Initiated: `TelemetryHeader`, data blocks.
    pub const TELEMETRY_CONTROLLER: Self = Self(0x08);
    /// 09h: `EnduranceGroupInformation`.
    pub const ENDURANCE_GROUP: Self = Self(0x09);
    /// 0Ah: Predictable Latency Per NVM Set.
    pub const PREDICTABLE_LATENCY: Self = Self(0x0a);
    /// 0Bh: Predictable Latency Event Aggregate.
    pub const PREDICTABLE_LATENCY_AGGREGATE: Self = Self(0x0b);
    /// 0Ch: Asymmetric Namespace Access: `AnaHeader`, `AnaGroups`.
    pub const ANA: Self = Self(0x0c);
    /// 0Dh: Persistent Event Log: `PersistentEventHeader`, `PersistentEvents`.
    pub const PERSISTENT_EVENT: Self = Self(0x0d);
    /// 0Eh: LBA Status Information: `lba_status_log`.
    pub const LBA_STATUS: Self = Self(0x0e);
    /// 0Fh: Endurance Group Event Aggregate: `endurance_aggregate`.
    pub const ENDURANCE_GROUP_AGGREGATE: Self = Self(0x0f);
    /// 10h: Media Unit Status.
    pub const MEDIA_UNIT_STATUS: Self = Self(0x10);
    /// 11h: Supported Capacity Configuration List.
    pub const CAPACITY_CONFIGURATIONS: Self = Self(0x11);
    /// 12h: `FeaturesSupportedAndEffects`.
    pub const FEATURE_EFFECTS: Self = Self(0x12);
    /// 13h: NVMe-MI Commands Supported and Effects.
    pub const MI_COMMAND_EFFECTS: Self = Self(0x13);
    /// 14h: Command and Feature Lockdown.
    pub const LOCKDOWN: Self = Self(0x14);
    /// 15h: Boot Partition.
    pub const BOOT_PARTITION: Self = Self(0x15);
    /// 16h: Rotational Media Information.
    pub const ROTATIONAL_MEDIA: Self = Self(0x16);
    /// 17h: Dispersed Namespace Participating NVM Subsystems.
    pub const DISPERSED_NAMESPACE: Self = Self(0x17);
    /// 18h: Management Address List.
    pub const MANAGEMENT_ADDRESSES: Self = Self(0x18);
    /// 19h: Physical Interface Receiver Eye Opening Measurement.
    pub const EYE_OPENING: Self = Self(0x19);
    /// 1Ah: Reachability Groups.
    pub const REACHABILITY_GROUPS: Self = Self(0x1a);
    /// 1Bh: Reachability Associations.
    pub const REACHABILITY_ASSOCIATIONS: Self = Self(0x1b);
    /// 1Ch: Changed Allocated Namespace List: `ChangedNamespaces`, whether attached or not.
    pub const CHANGED_ALLOCATED_NAMESPACES: Self = Self(0x1c);
    /// 70h: Discovery: `DiscoveryHeader`, `DiscoveryEntry`.
    pub const DISCOVERY: Self = Self(0x70);
    /// 71h: Host Discovery.
    pub const HOST_DISCOVERY: Self = Self(0x71);
    /// 72h: AVE Discovery.
    pub const AVE_DISCOVERY: Self = Self(0x72);
    /// 73h: Pull Model DDC Request.
    pub const PULL_MODEL_DDC_REQUEST: Self = Self(0x73);
    /// 80h: `ReservationNotification`.
    pub const RESERVATION_NOTIFICATION: Self = Self(0x80);
    /// 81h: `SanitizeLog`.
    pub const SANITIZE_STATUS: Self = Self(0x81);
    /// BFh: Changed Zone List.
    pub const CHANGED_ZONES: Self = Self(0xbf);

    /// The title of the log page, as for a person; `None` where no specification names it.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::SUPPORTED_LOG_PAGES => "Supported Log Pages",
            Self::ERROR_INFORMATION => "Error Information",
            Self::SMART_HEALTH => "SMART / Health Information",
            Self::FIRMWARE_SLOTS => "Firmware Slot Information",
            Self::CHANGED_NAMESPACES => "Changed Namespace List",
            Self::COMMAND_EFFECTS => "Commands Supported and Effects",
            Self::DEVICE_SELF_TEST => "Device Self-test",
            Self::TELEMETRY_HOST => "Telemetry Host-Initiated",
            Self::TELEMETRY_CONTROLLER => "Telemetry Controller-Initiated",
            Self::ENDURANCE_GROUP => "Endurance Group Information",
            Self::PREDICTABLE_LATENCY => "Predictable Latency Per NVM Set",
            Self::PREDICTABLE_LATENCY_AGGREGATE => "Predictable Latency Event Aggregate",
            Self::ANA => "Asymmetric Namespace Access",
            Self::PERSISTENT_EVENT => "Persistent Event Log",
            Self::LBA_STATUS => "LBA Status Information",
            Self::ENDURANCE_GROUP_AGGREGATE => "Endurance Group Event Aggregate",
            Self::MEDIA_UNIT_STATUS => "Media Unit Status",
            Self::CAPACITY_CONFIGURATIONS => "Supported Capacity Configuration List",
            Self::FEATURE_EFFECTS => "Feature Identifiers Supported and Effects",
            Self::MI_COMMAND_EFFECTS => "NVMe-MI Commands Supported and Effects",
            Self::LOCKDOWN => "Command and Feature Lockdown",
            Self::BOOT_PARTITION => "Boot Partition",
            Self::ROTATIONAL_MEDIA => "Rotational Media Information",
            Self::DISPERSED_NAMESPACE => "Dispersed Namespace Participating NVM Subsystems",
            Self::MANAGEMENT_ADDRESSES => "Management Address List",
            Self::EYE_OPENING => "Physical Interface Receiver Eye Opening Measurement",
            Self::REACHABILITY_GROUPS => "Reachability Groups",
            Self::REACHABILITY_ASSOCIATIONS => "Reachability Associations",
            Self::CHANGED_ALLOCATED_NAMESPACES => "Changed Allocated Namespace List",
            Self::DISCOVERY => "Discovery",
            Self::HOST_DISCOVERY => "Host Discovery",
            Self::AVE_DISCOVERY => "AVE Discovery",
            Self::PULL_MODEL_DDC_REQUEST => "Pull Model DDC Request",
            Self::RESERVATION_NOTIFICATION => "Reservation Notification",
            Self::SANITIZE_STATUS => "Sanitize Status",
            Self::CHANGED_ZONES => "Changed Zone List",
            _ => return None,
        })
    }
}
