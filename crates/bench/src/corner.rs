//! The four-corner test of the white paper on Ethernet drives: 128 KiB sequential and 4 KiB random,
//! writes and reads, at depth 64; and two runs of it side by side.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::job::{Job, Mix};
use crate::report::Report;

/// The four jobs, writes before the reads of the same kind so that there is something to read.
#[must_use]
pub fn four(runtime: Duration, ramp: Duration) -> [Job; 4] {
    let corner = |name: &str, rw, block_bytes| Job {
        name: name.to_owned(),
        block_bytes,
        depth: 64,
        runtime: Some(runtime),
        ramp,
        ..Job::new(rw)
    };
    [
        corner("128K sequential write", Mix::Write, 128 << 10),
        corner("128K sequential read", Mix::Read, 128 << 10),
        corner("4K random write", Mix::RandWrite, 4096),
        corner("4K random read", Mix::RandRead, 4096),
    ]
}

/// The unit of a corner's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Megabytes (10^6 bytes) per second.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// Operations per second.
    #[serde(rename = "IOPS")]
    Iops,
}

impl Unit {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MegabytesPerSecond => "MB/s",
            Self::Iops => "IOPS",
        }
    }
}

/// One line of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The job's name.
    pub name: String,
    /// Of both values.
    pub unit: Unit,
    /// The local medium.
    pub local: f64,
    /// The same over the fabric.
    pub fabric: f64,
    /// Fabric by local; 0 where local is 0.
    pub ratio: f64,
    /// Mean latency of the local medium, in microseconds.
    pub local_mean_us: f64,
    /// The same over the fabric.
    pub fabric_mean_us: f64,
}

/// The name and version of the comparison's schema.
pub const COMPARISON_SCHEMA: &str = "ebof-bench-comparison/1";

/// Two runs of the same jobs side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`COMPARISON_SCHEMA`].
    pub schema: String,
    /// The source of the local column.
    pub local: String,
    /// The source of the fabric column.
    pub fabric: String,
    /// One for each job that both have.
    pub rows: Vec<Row>,
}

/// Puts the reports of the same jobs (by name) side by side. For blocks of 64 KiB and
/// more the unit is MB/s, otherwise IOPS.
#[must_use]
pub fn compare(local: &[Report], fabric: &[Report]) -> Comparison {
    let source = |reports: &[Report]| reports.first().map(|report| report.source.clone()).unwrap_or_default();
    let rows = local.iter().filter_map(|local| {
        let fabric = fabric.iter().find(|fabric| fabric.job.name == local.job.name)?;
        let unit = if local.job.block_bytes >= 64 << 10 { Unit::MegabytesPerSecond } else { Unit::Iops };
        let value = |report: &Report| match unit {
            Unit::MegabytesPerSecond => report.total.bytes_per_s / 1e6,
            Unit::Iops => report.total.iops,
        };
        let local_value = value(local);
        let fabric_value = value(fabric);
        Some(Row {
            name: local.job.name.clone(),
            unit,
            local: local_value,
            fabric: fabric_value,
            ratio: if local_value > 0.0 { fabric_value / local_value } else { 0.0 },
            local_mean_us: local.total.latency.mean_us,
            fabric_mean_us: fabric.total.latency.mean_us,
        })
    });
    Comparison {
        schema: COMPARISON_SCHEMA.to_owned(),
        local: source(local),
        fabric: source(fabric),
        rows: rows.collect(),
    }
}
