//! `DriveMetrics`: the health of a drive and its logs.

use ebof_manage::enclosure::{DriveDetails, DriveObject, ErrorObject, EventObject, SelfTestKind, SelfTestOutcome};
use serde::Serialize;

use crate::managed::view::View;
use crate::place::ChassisPlace;
use crate::response::head::{Head, Oem, oem};
use crate::response::health::CriticalWarnings;
use crate::response::time::date_time;

/// A data unit of SMART / Health Information is 1000 blocks of 512 bytes; Redfish counts the
/// blocks.
const BLOCK_BYTES: u64 = 512;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DriveMetrics {
    #[serde(flatten)]
    head: Head,
    #[serde(skip_serializing_if = "Option::is_none")]
    power_on_hours: Option<u64>,
    #[serde(rename = "ReadIOKiBytes", skip_serializing_if = "Option::is_none")]
    read_kib: Option<u64>,
    #[serde(rename = "WriteIOKiBytes", skip_serializing_if = "Option::is_none")]
    write_kib: Option<u64>,
    #[serde(rename = "NVMeSMART", skip_serializing_if = "Option::is_none")]
    smart: Option<Smart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oem: Option<Oem<OemDriveMetrics>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Smart {
    critical_warnings: CriticalWarnings,
    #[serde(skip_serializing_if = "Option::is_none")]
    composite_temperature_celsius: Option<i32>,
    available_spare_percent: u8,
    available_spare_threshold_percent: u8,
    percentage_used: u8,
    data_units_read: u64,
    data_units_written: u64,
    power_cycles: u64,
    power_on_hours: u64,
    unsafe_shutdowns: u64,
    media_and_data_integrity_errors: u64,
    number_of_error_information_log_entries: u64,
    warning_composite_temp_time_minutes: u64,
    critical_composite_temp_time_minutes: u64,
}

/// `EbofDriveMetrics.v1_0_0.Logs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemDriveMetrics {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    allocated_bytes: u64,
    unallocated_bytes: u64,
    rated_written_bytes: Option<u64>,
    written_bytes: u64,
    warning_celsius: i32,
    critical_celsius: i32,
    self_tests: Vec<SelfTest>,
    errors: Vec<LogError>,
    events_total: u64,
    events: Vec<LogEvent>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SelfTest {
    kind: Option<&'static str>,
    passed: bool,
    result: u8,
    message: String,
    power_on_hours: u64,
    segment: Option<u8>,
    namespace_id: Option<u32>,
    #[serde(rename = "LBA")]
    lba: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct LogError {
    number: u64,
    message: String,
    status_type: u8,
    status_code: u8,
    queue: Option<u16>,
    command_id: Option<u16>,
    opcode: Option<u8>,
    namespace_id: Option<u32>,
    #[serde(rename = "LBA")]
    lba: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct LogEvent {
    event_type: u8,
    message: String,
    timestamp: String,
    controller_id: Option<u16>,
}

impl DriveMetrics {
    pub(super) fn new(view: &View<'_>, id: &str, drive: &DriveObject) -> Self {
        let details = view.details(&drive.name);
        let health = details.as_ref().map(|details| details.health);
        Self {
            head: Head::new(
                ChassisPlace::DriveMetrics(id.to_owned()),
                "#DriveMetrics.v1_3_0.DriveMetrics",
                format!("Health of drive {}", drive.name),
                "SMART / Health Information and logs of the drive",
            ),
            power_on_hours: health.map(|health| health.power_on_hours),
            read_kib: health.map(|health| health.host_read_bytes / 1024),
            write_kib: health.map(|health| health.host_written_bytes / 1024),
            smart: details.as_deref().map(Smart::new),
            oem: details.as_deref().map(|details| oem(OemDriveMetrics::new(drive, details))),
        }
    }
}

impl Smart {
    fn new(details: &DriveDetails) -> Self {
        let (health, temperature) = (&details.health, &details.temperature);
        Self {
            critical_warnings: CriticalWarnings::new(health.critical_warning),
            composite_temperature_celsius: temperature.now_kelvin.map(celsius),
            available_spare_percent: health.available_spare_percent,
            available_spare_threshold_percent: health.available_spare_threshold_percent,
            percentage_used: health.percentage_used,
            data_units_read: health.host_read_bytes / BLOCK_BYTES,
            data_units_written: health.host_written_bytes / BLOCK_BYTES,
            power_cycles: health.power_cycles,
            power_on_hours: health.power_on_hours,
            unsafe_shutdowns: health.unsafe_shutdowns,
            media_and_data_integrity_errors: health.media_errors,
            number_of_error_information_log_entries: health.error_log_entries,
            warning_composite_temp_time_minutes: temperature.warning_minutes,
            critical_composite_temp_time_minutes: temperature.critical_minutes,
        }
    }
}

impl OemDriveMetrics {
    fn new(drive: &DriveObject, details: &DriveDetails) -> Self {
        Self {
            kind: "#EbofDriveMetrics.v1_0_0.Logs",
            allocated_bytes: details.allocated_bytes,
            unallocated_bytes: drive.unallocated_bytes,
            rated_written_bytes: details.endurance.rated_bytes,
            written_bytes: details.endurance.written_bytes,
            warning_celsius: celsius(details.temperature.warning_kelvin),
            critical_celsius: celsius(details.temperature.critical_kelvin),
            self_tests: details.self_test.results.iter().map(SelfTest::new).collect(),
            errors: details.errors.iter().map(LogError::new).collect(),
            events_total: details.events.total,
            events: details.events.latest.iter().map(LogEvent::new).collect(),
        }
    }
}

impl SelfTest {
    fn new(outcome: &SelfTestOutcome) -> Self {
        Self {
            kind: outcome.kind.map(|kind| match kind {
                SelfTestKind::Short => "Short",
                SelfTestKind::Extended => "Extended",
                SelfTestKind::Abort => "Abort",
            }),
            passed: outcome.passed,
            result: outcome.result,
            message: outcome.meaning.clone(),
            power_on_hours: outcome.power_on_hours,
            segment: outcome.segment,
            namespace_id: outcome.nsid,
            lba: outcome.lba,
        }
    }
}

impl LogError {
    fn new(error: &ErrorObject) -> Self {
        Self {
            number: error.number,
            message: error.meaning.clone(),
            status_type: error.status_type,
            status_code: error.status_code,
            queue: error.queue,
            command_id: error.cid,
            opcode: error.opcode,
            namespace_id: error.nsid,
            lba: error.lba,
        }
    }
}

impl LogEvent {
    fn new(event: &EventObject) -> Self {
        Self {
            event_type: event.kind,
            message: event.name.clone(),
            timestamp: date_time(event.unix_ms),
            controller_id: event.cntlid,
        }
    }
}

/// Whole degrees Celsius, as NVMe's thresholds are converted.
pub(super) fn celsius(kelvin: u16) -> i32 {
    i32::from(kelvin) - 273
}
