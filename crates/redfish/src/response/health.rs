//! How drives are, and how bad events are, as Redfish says it.

use ebof_manage::enclosure::DriveObject;
use ebof_manage::events::EventSeverity;
use serde::Serialize;

use crate::response::head::{Health, State, Status};

/// The health that the bits of Critical Warning are: a drive that is too warm or short of spare is
/// warned of, one that is unreliable or read-only has failed.
pub(crate) const fn health_of(critical_warning: u8) -> Health {
    const WARNINGS: u8 = 0b11;
    if critical_warning == 0 {
        Health::OK
    } else if critical_warning & !WARNINGS == 0 {
        Health::Warning
    } else {
        Health::Critical
    }
}

/// The state of a drive: most commands are refused while it is sanitized.
pub(crate) const fn status_of(drive: &DriveObject) -> Status {
    let state = if drive.sanitize_percent.is_some() {
        State::Quiesced
    } else if drive.self_test_percent.is_some() {
        State::InTest
    } else {
        State::Enabled
    };
    Status { state, health: Some(health_of(drive.critical_warning)) }
}

/// `StorageController.NVMeSMARTCriticalWarnings`: the bits of Critical Warning.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CriticalWarnings {
    spare_capacity_worn_out: bool,
    overall_subsystem_degraded: bool,
    media_in_read_only: bool,
    power_backup_failed: bool,
    #[serde(rename = "PMRUnreliable")]
    pmr_unreliable: bool,
}

impl CriticalWarnings {
    pub(crate) const fn new(bits: u8) -> Self {
        Self {
            spare_capacity_worn_out: bits & 1 != 0,
            overall_subsystem_degraded: bits & (1 << 2) != 0,
            media_in_read_only: bits & (1 << 3) != 0,
            power_backup_failed: bits & (1 << 4) != 0,
            pmr_unreliable: bits & (1 << 5) != 0,
        }
    }
}

/// How bad an event is.
pub(crate) const fn health(severity: EventSeverity) -> Health {
    match severity {
        EventSeverity::Ok => Health::OK,
        EventSeverity::Warning => Health::Warning,
        EventSeverity::Critical => Health::Critical,
    }
}
