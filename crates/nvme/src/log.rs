//! Log pages: which there are (`Lid`) and their layouts. What a controller records and when it is
//! cleared is decided elsewhere.
//!
//! NVMe Base 2.1, "Get Log Page command".

use crate::table::numbers;

mod ana;
mod command;
mod cross_controller_reset;
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
pub use command::{GetLogPage, ana_lsp, cross_controller_reset_lsp, persistent_event_lsp, telemetry_lsp};
pub use cross_controller_reset::{
    CrossControllerResetEntry, CrossControllerResetHeader, CrossControllerResetState, ccrf, cross_controller_reset_log,
    read_cross_controller_reset_log,
};
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

numbers! { Lid:
    SUPPORTED_LOG_PAGES = 0x00, "Supported Log Pages" => SupportedLogPages;
    /// `ErrorInformation` entries, newest first.
    ERROR_INFORMATION = 0x01, "Error Information";
    SMART_HEALTH = 0x02, "SMART / Health Information" => SmartHealth;
    FIRMWARE_SLOTS = 0x03, "Firmware Slot Information" => FirmwareSlots;
    /// `ChangedNamespaces`, those attached to the controller.
    CHANGED_NAMESPACES = 0x04, "Changed Namespace List";
    COMMAND_EFFECTS = 0x05, "Commands Supported and Effects" => CommandsSupportedAndEffects;
    DEVICE_SELF_TEST = 0x06, "Device Self-test" => SelfTestLog;
    /// `TelemetryHeader`, data blocks.
    TELEMETRY_HOST = 0x07, "Telemetry Host-Initiated";
    /// `TelemetryHeader`, data blocks.
    TELEMETRY_CONTROLLER = 0x08, "Telemetry Controller-Initiated";
    ENDURANCE_GROUP = 0x09, "Endurance Group Information" => EnduranceGroupInformation;
    PREDICTABLE_LATENCY = 0x0a, "Predictable Latency Per NVM Set";
    PREDICTABLE_LATENCY_AGGREGATE = 0x0b, "Predictable Latency Event Aggregate";
    /// `AnaHeader`, `AnaGroups`.
    ANA = 0x0c, "Asymmetric Namespace Access";
    /// `PersistentEventHeader`, `PersistentEvents`.
    PERSISTENT_EVENT = 0x0d, "Persistent Event Log";
    LBA_STATUS = 0x0e, "LBA Status Information" => lba_status_log;
    ENDURANCE_GROUP_AGGREGATE = 0x0f, "Endurance Group Event Aggregate" => endurance_aggregate;
    MEDIA_UNIT_STATUS = 0x10, "Media Unit Status";
    CAPACITY_CONFIGURATIONS = 0x11, "Supported Capacity Configuration List";
    FEATURE_EFFECTS = 0x12, "Feature Identifiers Supported and Effects" => FeaturesSupportedAndEffects;
    MI_COMMAND_EFFECTS = 0x13, "NVMe-MI Commands Supported and Effects";
    LOCKDOWN = 0x14, "Command and Feature Lockdown";
    BOOT_PARTITION = 0x15, "Boot Partition";
    ROTATIONAL_MEDIA = 0x16, "Rotational Media Information";
    DISPERSED_NAMESPACE = 0x17, "Dispersed Namespace Participating NVM Subsystems";
    MANAGEMENT_ADDRESSES = 0x18, "Management Address List";
    EYE_OPENING = 0x19, "Physical Interface Receiver Eye Opening Measurement";
    REACHABILITY_GROUPS = 0x1a, "Reachability Groups";
    REACHABILITY_ASSOCIATIONS = 0x1b, "Reachability Associations";
    /// `ChangedNamespaces`, whether attached or not.
    CHANGED_ALLOCATED_NAMESPACES = 0x1c, "Changed Allocated Namespace List";
    /// `CrossControllerResetHeader`, `CrossControllerResetEntry`.
    CROSS_CONTROLLER_RESET = 0x1e, "Cross-Controller Reset";
    /// `DiscoveryHeader`, `DiscoveryEntry`.
    DISCOVERY = 0x70, "Discovery";
    HOST_DISCOVERY = 0x71, "Host Discovery";
    AVE_DISCOVERY = 0x72, "AVE Discovery";
    PULL_MODEL_DDC_REQUEST = 0x73, "Pull Model DDC Request";
    RESERVATION_NOTIFICATION = 0x80, "Reservation Notification" => ReservationNotification;
    SANITIZE_STATUS = 0x81, "Sanitize Status" => SanitizeLog;
    CHANGED_ZONES = 0xbf, "Changed Zone List";
}
