//! The document that a procedure produces: what was measured, on what, with which settings, under
//! which conditions. Reports are made from it alone, and a run is resumed from it.
//!
//! What is computed from its runs is in `document/results.rs`. The schema is versioned: fields are
//! added, never changed or removed, within one number.

pub(crate) mod results;

use ebof_bench::corner::Unit;
use ebof_bench::{Job, Report};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// The name and version of the document's schema.
pub const SCHEMA: &str = "ebof-qualify/1";

/// The procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Procedure {
    /// The white paper on Ethernet SSDs, chapter 6: preconditioning and four tests.
    Odcc,
    /// Four corners at depth 128 with four jobs, raw and on ext4.
    Corners,
    /// The eight patterns that disk benchmarks for desktops show.
    Cdm,
    /// Small reads beside large writes, over shared and separate queues.
    Mixed,
    /// Operations per second against latency.
    Curve,
    /// Several hosts at the same time.
    Fairness,
    /// The same load over several protocols.
    Compare,
}

impl Procedure {
    /// Its word on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Odcc => "odcc",
            Self::Corners => "corners",
            Self::Cdm => "cdm",
            Self::Mixed => "mixed",
            Self::Curve => "curve",
            Self::Fairness => "fairness",
            Self::Compare => "compare",
        }
    }
}

/// How a procedure ended, or that it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is running, or was killed.
    Running,
    /// All of it was done.
    Complete,
    /// The user ended it: what is there was measured.
    Interrupted,
    /// It could not go on: what is there was measured before.
    Failed,
}

/// Everything that a run of a procedure found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// Which procedure.
    pub procedure: Procedure,
    /// Its title, for people.
    pub title: String,
    /// How it ended.
    pub state: State,
    /// Why it ended early.
    pub trouble: Option<String>,
    /// Everything was shortened: times and preconditioned sizes are divided by this.
    pub quick: Option<u32>,
    /// The command line.
    pub command: Vec<String>,
    /// The program and its version, as in "ebof 0.2.0".
    pub program: String,
    /// When it was started, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When the last run ended, in milliseconds since 1970.
    pub ended_unix_ms: u64,
    /// How many times it was resumed.
    #[serde(default)]
    pub resumed: u32,
    /// The machine that measured.
    pub machine: Machine,
    /// Runs of each measurement, for each column.
    pub rounds: u32,
    /// What is compared: a device, by an engine, in a variant.
    pub columns: Vec<Column>,
    /// The phases, in their order.
    pub phases: Vec<Phase>,
    /// What a reader has to know: deviations from the document, what could not be seen.
    pub notes: Vec<String>,
    /// The results by phase and column, computed from the runs: for programs.
    #[serde(default)]
    pub results: Vec<PhaseResult>,
}

/// The load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineName {
    /// ebof's own.
    Ebof,
    /// The stock fio.
    Fio,
    /// `iscsi-perf` of libiscsi, for a fio without an engine for iSCSI.
    IscsiPerf,
}

impl EngineName {
    /// The name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ebof => "ebof",
            Self::Fio => "fio",
            Self::IscsiPerf => "iscsi-perf",
        }
    }
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Short and unique in the document: `A`, `B`.
    pub id: String,
    /// For people, as short as it is unambiguous.
    pub label: String,
    /// What is measured.
    pub device: Identity,
    /// By what.
    pub engine: EngineName,
    /// How, if several ways are compared: "shared queue".
    pub variant: Option<String>,
    /// The index of the column that its ratios refer to.
    pub base: Option<usize>,
    /// The settings of the connection or of the file that differ from the defaults.
    pub settings: Vec<(String, String)>,
}

/// What a device says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// As it was named on the command line.
    pub name: String,
    /// `nvme+tcp`, `nvme+rdma`, `block`, `file`, `memory`, `null`, `iscsi`, `nbd`.
    pub kind: String,
    /// Bytes; 0 is not known.
    pub capacity_bytes: u64,
    /// Bytes of a logical block; 0 is not known.
    pub block_bytes: u32,
    /// Model, serial number, firmware, address and whatever else it reports.
    pub details: Vec<(String, String)>,
}

/// What a phase is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// It brings the device into the state in which it is measured.
    Precondition,
    /// It measures.
    Measure,
}

/// A step of a procedure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Unique in the document: `rand-read-4k`.
    pub id: String,
    /// For people.
    pub title: String,
    /// What it is for.
    pub purpose: Purpose,
    /// The file system that its file is on; `None` is the raw device.
    pub file_system: Option<String>,
    /// The program that measures it, on the block device, in place of a load generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
    /// The unit of its figure.
    pub unit: Unit,
    /// The groups of threads that run together; the first one's figure is the phase's.
    pub jobs: Vec<Job>,
    /// Where in a curve this is: outstanding operations of all threads.
    pub depth_total: u32,
    /// Runs of each column.
    pub rounds: u32,
    /// It also ends when so many bytes were transferred.
    pub until_bytes: Option<u64>,
    /// The columns that it measures, by index.
    pub columns: Vec<usize>,
    /// All columns run at the same time, instead of one after the other.
    pub together: bool,
    /// The document's own figures.
    pub references: Vec<Reference>,
    /// It was left out, and why.
    pub skipped: Option<String>,
    /// What was run, in the order in which it was.
    pub runs: Vec<Run>,
}

/// What measures a phase in place of a load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// `hdparm -T --direct`: the same part of the device, again and again.
    HdparmCached,
    /// `hdparm -t --direct`: from its beginning, for three seconds.
    HdparmDisk,
    /// `dd` of zeros in blocks of 1 MiB. Unlike in the article, it ends when they are on the
    /// device.
    Dd,
}

/// A figure of a document, for what a phase measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Which document, as in "ODCC-2021-05008, table 1".
    pub document: String,
    /// What was measured there, as in "Ethernet SSD over RoCE".
    pub what: String,
    /// In the phase's unit; `None` where it states a ratio only.
    pub value: Option<f64>,
    /// Over the fabric, divided by the local drive.
    pub ratio: Option<f64>,
}

/// One run of a phase on one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The column, by index.
    pub column: usize,
    /// From 1.
    pub round: u32,
    /// Its start, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// A report for each job of the phase; empty if it failed.
    pub reports: Vec<Report>,
    /// What happened over time: at most [`SERIES_MAX`] points.
    pub series: Vec<Point>,
    /// The machine meanwhile.
    pub conditions: Conditions,
    /// Why it does not count: the hypervisor took time, or the machine was busy with something
    /// else.
    pub disturbed: Option<String>,
    /// Why it has no result, or an incomplete one.
    pub failed: Option<String>,
    /// The command line of another program that generated the load.
    pub command: Option<Vec<String>>,
    /// Whether the device was in a steady state; `None` if the run was too short to tell.
    pub steady: Option<Steady>,
}

/// Points of a series, at most: neighbours are merged in longer runs.
pub const SERIES_MAX: usize = 600;

/// What was done in a part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The end of this part, in seconds since the run's start.
    pub at_s: f64,
    /// Operations per second in it.
    pub iops: f64,
    /// Bytes per second in it.
    pub bytes_per_s: f64,
    /// The mean latency in it, in microseconds; `None` if the engine does not tell.
    pub mean_us: Option<f64>,
}

/// The machine during a run. What cannot be seen is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The share of the processors' time that the hypervisor took, in percent.
    pub steal_percent: Option<f64>,
    /// The time of other programs than the load generator and the target, in percent of one
    /// processor.
    pub others_percent: Option<f64>,
    /// The busiest of them.
    pub busiest_other: Option<String>,
    /// Processor time of the load generator for each operation, in microseconds.
    pub host_us_per_io: Option<f64>,
    /// The same of the target, if it runs on this machine.
    pub target_us_per_io: Option<f64>,
    /// The processor that interrupts took most of.
    #[serde(default)]
    pub interrupts_processor: Option<u32>,
    /// Its time in interrupts, in percent.
    #[serde(default)]
    pub interrupts_percent: Option<f64>,
    /// Its time in all that it did, in percent.
    #[serde(default)]
    pub interrupts_busy_percent: Option<f64>,
    /// The mean frequency of the processors at the end, in MHz.
    pub frequency_mhz: Option<f64>,
    /// The hottest processor sensor at the end, in degrees Celsius.
    pub processor_celsius: Option<f64>,
    /// The device's temperature at the end, in degrees Celsius.
    pub device_celsius: Option<f64>,
}

/// Whether the last part of a run was a steady state: the test of the SNIA's performance test
/// specification, over a window of five parts. Steady is an excursion of at most 20 %, and a slope
/// of at most 10 % over the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// When it was reached, in seconds since the run's start; `None` if it was not.
    pub reached_s: Option<f64>,
    /// Largest minus smallest value of the last window, in percent of its mean.
    pub excursion_percent: f64,
    /// The change over the last window by the line of best fit, in percent of its mean.
    pub slope_percent: f64,
}

/// The results of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// The phase.
    pub phase: String,
    /// Of each column that has results.
    pub columns: Vec<ColumnResult>,
    /// Of a phase whose columns run together: Jain's index of their shares, 1 is fair.
    pub jain: Option<f64>,
    /// Of such a phase: the largest share by the smallest.
    pub spread: Option<f64>,
}

/// The results of a column in a phase: medians over its rounds, without disturbed runs where there
/// are others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnResult {
    /// The column, by index.
    pub column: usize,
    /// In the phase's unit (MB/s or IOPS).
    pub value: Summary,
    /// Operations per second.
    pub iops: f64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Pairs of percentile and latency in microseconds, each the median over the rounds.
    pub percentiles: Vec<(f64, f64)>,
    /// The value divided by that of the column's base; `None` without one.
    pub ratio: Option<f64>,
    /// Between which ratios the single rounds are: the smallest value by the largest of the base,
    /// and the largest by the smallest. `None` with a single round, whose spread nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_range: Option<(f64, f64)>,
    /// The mean latency divided by that of the base.
    pub latency_ratio: Option<f64>,
    /// Its part of what all columns did together, 0 to 1, where they ran together.
    pub share: Option<f64>,
    /// Processor time for each operation of the load generator, in microseconds.
    pub host_us_per_io: Option<f64>,
    /// The same of the target.
    pub target_us_per_io: Option<f64>,
    /// The runs that count are disturbed ones: there were no others.
    pub is_disturbed: bool,
    /// Of a second group of threads that ran along: its operations and bytes per second.
    pub beside: Option<(f64, f64)>,
}

pub use ebof_statistics::Summary;
