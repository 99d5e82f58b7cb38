//! Load generators that are other programs: where they find a device, what they are asked to do,
//! and what comes back. Knows nothing of procedures.

use std::path::{Path, PathBuf};

use ebof_bench::{Job, Latency, REPORT_SCHEMA, Report, Side};

use crate::document::Point;

mod child;
pub mod fio;
pub mod iscsi_perf;
pub mod programs;
pub mod tools;

/// Where another program finds a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadTarget {
    /// A local file or block device.
    Path(PathBuf),
    /// A namespace of a target.
    Namespace {
        /// `nvme+tcp://HOST:PORT/NQN/NSID`, or the same with `nvme+rdma`.
        uri: String,
        /// Options of fio's engine, as `hostnqn`.
        options: Vec<(String, String)>,
    },
    /// `iscsi://HOST[:PORT]/IQN/LUN`.
    Iscsi(String),
    /// `nbd://HOST[:PORT]/NAME`, or `nbd+unix:///NAME?socket=PATH`.
    Nbd(String),
    /// A device that does nothing.
    Null,
    /// So many bytes of this process's memory, which no other program reaches.
    Memory(u64),
}

impl LoadTarget {
    /// As its user wrote it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Namespace { uri, .. } | Self::Iscsi(uri) | Self::Nbd(uri) => uri.clone(),
            Self::Null => "null".to_owned(),
            Self::Memory(_) => "memory".to_owned(),
        }
    }
}

/// A load for another program.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The device.
    pub place: &'a LoadTarget,
    /// The groups of threads, all at the same time.
    pub jobs: &'a [Job],
    /// Each job ends after so many bytes of all its threads, too.
    pub until_bytes: Option<u64>,
    /// An existing directory for the program's reports and logs.
    pub directory: &'a Path,
    /// Bytes of the device.
    pub size_bytes: u64,
}

/// What another program measured.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadResult {
    /// One for each job. If a job failed in the middle, `errors` is not 0, and `first_error` is
    /// what the program said.
    pub reports: Vec<Report>,
    /// All jobs together, over time. The ramp is left out.
    pub series: Vec<Point>,
    /// The command that was run.
    pub command: Vec<String>,
}

/// Another program measured nothing.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// It cannot do this: not measured, but no failure either.
    #[error("{0}")]
    Unsupported(String),
    /// The job does not fit the device.
    #[error(transparent)]
    Job(#[from] ebof_bench::JobError),
    /// It is not installed.
    #[error("there is no {what}: {todo}")]
    Missing {
        /// The program or library, as people call it.
        what: &'static str,
        /// How to get it.
        todo: &'static str,
    },
    /// Its report and logs cannot be written.
    #[error("the directory {directory} for fio's report and logs cannot be used: {error}")]
    Directory {
        /// The directory.
        directory: String,
        /// The system's answer.
        error: std::io::Error,
    },
    /// It could not be started or watched.
    #[error("{program} cannot be run: {error}")]
    Run {
        /// Its name.
        program: String,
        /// The system's answer.
        error: std::io::Error,
    },
    /// It failed before it had measured anything.
    #[error("{what} failed\n  tried:  {tried}\n  answer: {said}\n  to do:  {todo}")]
    Failed {
        /// The program and the load.
        what: String,
        /// The command line.
        tried: String,
        /// What the program said.
        said: String,
        /// What may help.
        todo: &'static str,
    },
    /// Its report is not what such a report is.
    #[error("{what}: its report cannot be read: {why}\n  tried:  {tried}\n  answer: {said}\n  to do:  {todo}")]
    Output {
        /// The program and the load.
        what: String,
        /// What is wrong with it.
        why: String,
        /// The command line.
        tried: String,
        /// What the program said.
        said: String,
        /// What may help.
        todo: &'static str,
    },
    /// The user ended it before it had measured anything.
    #[error("{0} was ended before it had measured anything")]
    Ended(String),
}

/// The report of a program that prints no more than a rate: of its latencies only a mean is known.
fn report_of_rate(source: String, job: &Job, elapsed_s: f64, iops: f64, mean_us: f64) -> Report {
    let bytes_per_s = iops * f64::from(job.block_bytes);
    let latency = Latency { min_us: 0.0, mean_us, stddev_us: 0.0, max_us: 0.0, percentiles: Vec::new() };
    // Rounded: whole numbers come back as they were.
    let (operations, bytes) = (count((iops * elapsed_s).round()), count((bytes_per_s * elapsed_s).round()));
    let side = Side { operations, bytes, iops, bytes_per_s, latency };
    Report {
        schema: REPORT_SCHEMA.to_owned(),
        source,
        job: job.clone(),
        elapsed_s,
        read: job.rw.reads().then(|| side.clone()),
        write: job.rw.writes().then(|| side.clone()),
        total: side,
        errors: 0,
        first_error: None,
        verified_bytes: 0,
        cpu_us_per_operation: 0.0,
        cpu_percent: 0.0,
        process: None,
        depth: job.depth,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
const fn count(value: f64) -> u64 {
    value as u64
}
