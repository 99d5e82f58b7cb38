//! Drives whose hosts create their namespaces: capacity and health.

use std::fmt;

use ebof_manage::api::DriveStatus;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::{Labels, signed};

type Value = fn(&DriveStatus) -> u64;

/// What can go up and down, in whole units.
const GAUGES: &[(&str, &str, Option<Unit>, Value)] = &[
    ("ebof_drive_capacity", "Usable capacity of a drive", Some(Unit::Bytes), |drive| drive.capacity_bytes),
    ("ebof_drive_unallocated", "Capacity that no namespace has claimed", Some(Unit::Bytes), |drive| {
        drive.unallocated_bytes
    }),
    ("ebof_drive_allocated", "Capacity that data take", Some(Unit::Bytes), |drive| drive.allocated_bytes),
    ("ebof_drive_namespaces", "Namespaces of a drive, attached or not", None, |drive| drive.namespaces.into()),
    ("ebof_drive_namespaces_limit", "Namespaces of a drive at most", None, |drive| drive.namespaces_max.into()),
    (
        "ebof_drive_critical_warning",
        "Critical Warning of SMART / Health Information, its bits as a number",
        None,
        |drive| drive.health.critical_warning.into(),
    ),
];

/// Parts of a whole: 1 is all of it.
const RATIOS: &[(&str, &str, Value)] = &[
    ("ebof_drive_available_spare", "Available Spare", |drive| drive.health.available_spare_percent.into()),
    ("ebof_drive_available_spare_threshold", "Available Spare below which there is a critical warning", |drive| {
        drive.health.available_spare_threshold_percent.into()
    }),
    (
        "ebof_drive_used_endurance",
        "Percentage Used: of what may be written over the life, 2.55 where it is more",
        |drive| drive.health.percentage_used.into(),
    ),
];

/// Counts for the life of the drive.
const COUNTERS: &[(&str, &str, Option<Unit>, Value)] = &[
    ("ebof_drive_media_errors", "Media and Data Integrity Errors", None, |drive| drive.health.media_errors),
    ("ebof_drive_error_log_entries", "Entries of the Error Information log", None, |drive| {
        drive.health.error_log_entries
    }),
    ("ebof_drive_power_cycles", "Times the drive was opened", None, |drive| drive.health.power_cycles),
    ("ebof_drive_unsafe_shutdowns", "Times the drive was opened without having been closed", None, |drive| {
        drive.health.unsafe_shutdowns
    }),
    ("ebof_drive_power_on", "Time that the drive was open, in whole hours", Some(Unit::Seconds), |drive| {
        drive.health.power_on_hours.saturating_mul(3600)
    }),
    ("ebof_drive_host_read", "Data that hosts have read", Some(Unit::Bytes), |drive| drive.health.host_read_bytes),
    ("ebof_drive_host_written", "Data that hosts have written", Some(Unit::Bytes), |drive| {
        drive.health.host_written_bytes
    }),
];

pub(super) fn encode(drives: &[DriveStatus], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, unit, value) in GAUGES {
        let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for drive in drives {
            ConstGauge::new(signed(value(drive))).encode(family.encode_family(&labels(drive))?)?;
        }
    }
    let ratio = Unit::Other("ratio".to_owned());
    for (name, help, value) in RATIOS {
        let mut family = encoder.encode_descriptor(name, help, Some(&ratio), MetricType::Gauge)?;
        for drive in drives {
            let part = f64::from(u32::try_from(value(drive)).unwrap_or(u32::MAX)) / 100.0;
            ConstGauge::new(part).encode(family.encode_family(&labels(drive))?)?;
        }
    }
    let help = "Composite temperature of drives that have a sensor";
    let mut family =
        encoder.encode_descriptor("ebof_drive_temperature", help, Some(&Unit::Celsius), MetricType::Gauge)?;
    for drive in drives {
        let Some(kelvin) = drive.health.temperature_kelvin else { continue };
        let celsius = i64::from(kelvin) - 273;
        ConstGauge::new(celsius).encode(family.encode_family(&labels(drive))?)?;
    }
    for (name, help, unit, value) in COUNTERS {
        let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        for drive in drives {
            ConstCounter::new(value(drive)).encode(family.encode_family(&labels(drive))?)?;
        }
    }
    Ok(())
}

fn labels(drive: &DriveStatus) -> Labels {
    let subsystem = drive.subsystem_nqn.clone().unwrap_or_default();
    vec![("drive", drive.name.clone()), ("subsystem", subsystem)]
}
