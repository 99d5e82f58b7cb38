//! fio's report (`--output-format=json+`) as ebof's own. Its histogram has 64 buckets for each
//! power of two and prints the middle of a bucket: latencies of percentiles are off by at most 0.8
//! %.

use std::collections::BTreeMap;

use ebof_bench::{Job, Latency, PERCENTILES, ProcessCost, REPORT_SCHEMA, Report, Side};
use serde::Deserialize;

use super::Load;

/// fio's report. Only what is used.
#[derive(Debug, Deserialize)]
struct Output {
    jobs: Vec<Group>,
}

/// A group of threads.
#[derive(Debug, Deserialize)]
struct Group {
    /// The number of the error that ended it.
    error: i64,
    /// Milliseconds of all its threads together.
    #[serde(default)]
    job_runtime: u64,
    /// In percent of that.
    #[serde(default)]
    usr_cpu: f64,
    #[serde(default)]
    sys_cpu: f64,
    /// With `continue_on_error`.
    #[serde(default)]
    total_err: u64,
    read: Direction,
    write: Direction,
}

#[derive(Debug, Deserialize)]
struct Direction {
    io_bytes: u64,
    bw_bytes: f64,
    iops: f64,
    /// Milliseconds.
    runtime: u64,
    total_ios: u64,
    lat_ns: Latencies,
}

#[derive(Debug, Deserialize)]
struct Latencies {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    /// Latencies of buckets in nanoseconds, and how many operations were in each.
    #[serde(default)]
    bins: BTreeMap<String, u64>,
}

/// What is wrong with a report.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    #[error("it is empty")]
    Empty,
    #[error("it has no line that begins with a brace")]
    NoDocument,
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("it has {found} groups of jobs instead of {wanted}")]
    Groups { found: usize, wanted: usize },
    #[error("a latency of {0:?} nanoseconds")]
    Bin(String),
    #[error("{0} of it is less than nothing")]
    Negative(&'static str),
}

/// The reports of a load's jobs.
pub(super) fn reports(text: &str, load: &Load<'_>) -> Result<Vec<Report>, OutputError> {
    let output = document(text)?;
    if output.jobs.len() != load.jobs.len() {
        return Err(OutputError::Groups { found: output.jobs.len(), wanted: load.jobs.len() });
    }
    let groups = load.jobs.iter().zip(&output.jobs);
    let mut reports = groups.map(|(job, group)| report(job, group, load)).collect::<Result<Vec<_>, _>>()?;
    let process = process(&output.jobs, &reports);
    reports.iter_mut().for_each(|report| report.process = Some(process));
    Ok(reports)
}

/// Engines print lines of their own before the document.
fn document(text: &str) -> Result<Output, OutputError> {
    if text.trim().is_empty() {
        return Err(OutputError::Empty);
    }
    let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
    let start = starts.into_iter().find(|&at| text[at..].starts_with('{')).ok_or(OutputError::NoDocument)?;
    let mut deserializer = serde_json::Deserializer::from_str(&text[start..]);
    Ok(Output::deserialize(&mut deserializer)?)
}

fn report(job: &Job, group: &Group, load: &Load<'_>) -> Result<Report, OutputError> {
    let read = histogram(&group.read.lat_ns)?;
    let write = histogram(&group.write.lat_ns)?;
    let used = |direction: &Direction| direction.total_ios > 0;
    let sides = [(&group.read, &read), (&group.write, &write)].map(|(direction, histogram)| {
        used(direction).then(|| side(direction, latency(&direction.lat_ns, histogram))).transpose()
    });
    let [read_side, write_side] = sides;
    let (read_side, write_side) = (read_side?, write_side?);
    let total = match (&read_side, &write_side) {
        (Some(one), None) | (None, Some(one)) => one.clone(),
        _ => both(group, &read, &write)?,
    };
    let elapsed_ms = group.read.runtime.max(group.write.runtime);
    for (value, what) in [(group.usr_cpu, "usr_cpu"), (group.sys_cpu, "sys_cpu")] {
        if value < 0.0 {
            return Err(OutputError::Negative(what));
        }
    }
    let cpu_s = (group.usr_cpu + group.sys_cpu) / 100.0 * float(group.job_runtime) / 1000.0;
    let elapsed_s = float(elapsed_ms) / 1000.0;
    Ok(Report {
        schema: REPORT_SCHEMA.to_owned(),
        source: load.place.name(),
        job: job.clone(),
        elapsed_s,
        cpu_us_per_operation: cpu_s * 1e6 / float(total.operations.max(1)),
        cpu_percent: if elapsed_ms > 0 { cpu_s * 100.0 / elapsed_s } else { 0.0 },
        total,
        read: read_side,
        write: write_side,
        errors: group.total_err.max(u64::from(group.error != 0)),
        first_error: None,
        verified_bytes: 0,
        process: None,
        depth: job.depth,
    })
}

/// The threads of all groups; fio's other threads do next to nothing.
fn process(groups: &[Group], reports: &[Report]) -> ProcessCost {
    let operations = reports.iter().map(|report| float(report.total.operations)).sum::<f64>().max(1.0);
    // Percent of milliseconds are tens of microseconds.
    let us = |pick: fn(&Group) -> f64| groups.iter().map(|one| pick(one) * float(one.job_runtime) * 10.0).sum::<f64>();
    let (user, system) = (us(|one| one.usr_cpu), us(|one| one.sys_cpu));
    ProcessCost {
        cpu_percent: reports.iter().map(|report| report.cpu_percent).sum(),
        cpu_us_per_operation: (user + system) / operations,
        user_us_per_operation: user / operations,
        system_us_per_operation: system / operations,
    }
}

fn side(direction: &Direction, latency: Latency) -> Result<Side, OutputError> {
    if direction.iops < 0.0 || direction.bw_bytes < 0.0 || latency.mean_us < 0.0 || latency.stddev_us < 0.0 {
        return Err(OutputError::Negative("a rate or a latency"));
    }
    Ok(Side {
        operations: direction.total_ios,
        bytes: direction.io_bytes,
        iops: direction.iops,
        bytes_per_s: direction.bw_bytes,
        latency,
    })
}

/// Reads and writes together.
fn both(group: &Group, read: &[(u64, u64)], write: &[(u64, u64)]) -> Result<Side, OutputError> {
    let (a, b) = (&group.read, &group.write);
    let mut merged: BTreeMap<u64, u64> = BTreeMap::new();
    for &(ns, count) in read.iter().chain(write) {
        let sum = merged.entry(ns).or_default();
        *sum = sum.saturating_add(count);
    }
    let merged: Vec<(u64, u64)> = merged.into_iter().collect();
    let latencies = pooled(&a.lat_ns, &b.lat_ns);
    let sum = Direction {
        io_bytes: a.io_bytes.saturating_add(b.io_bytes),
        bw_bytes: a.bw_bytes + b.bw_bytes,
        iops: a.iops + b.iops,
        runtime: a.runtime.max(b.runtime),
        total_ios: a.total_ios.saturating_add(b.total_ios),
        lat_ns: latencies,
    };
    side(&sum, latency(&sum.lat_ns, &merged))
}

/// Mean and deviation of two sets together.
fn pooled(a: &Latencies, b: &Latencies) -> Latencies {
    let (first, second) = (float(a.count), float(b.count));
    let all = (first + second).max(1.0);
    let mean = (a.mean * first + b.mean * second) / all;
    let squares = |one: &Latencies| one.stddev.powi(2) + (one.mean - mean).powi(2);
    let variance = (squares(a) * first + squares(b) * second) / all;
    let of_used = |pick: fn(&Latencies) -> u64| [a, b].into_iter().filter(|one| one.count > 0).map(pick);
    Latencies {
        min: of_used(|one| one.min).min().unwrap_or(0),
        max: of_used(|one| one.max).max().unwrap_or(0),
        mean,
        stddev: variance.sqrt(),
        count: a.count.saturating_add(b.count),
        bins: BTreeMap::new(),
    }
}

/// Buckets in ascending order.
fn histogram(latencies: &Latencies) -> Result<Vec<(u64, u64)>, OutputError> {
    let bin = |(ns, count): (&String, &u64)| Ok((ns.parse().map_err(|_| OutputError::Bin(ns.clone()))?, *count));
    let mut bins = latencies.bins.iter().map(bin).collect::<Result<Vec<(u64, u64)>, OutputError>>()?;
    bins.sort_unstable();
    Ok(bins)
}

fn latency(latencies: &Latencies, histogram: &[(u64, u64)]) -> Latency {
    let us = |ns: f64| ns / 1000.0;
    Latency {
        min_us: us(float(latencies.min)),
        mean_us: us(latencies.mean),
        stddev_us: us(latencies.stddev),
        max_us: us(float(latencies.max)),
        percentiles: PERCENTILES.iter().map(|&at| (at, us(float(percentile(histogram, at))))).collect(),
    }
}

/// As fio does it: the first bucket up to which there are so many percent of all.
fn percentile(histogram: &[(u64, u64)], at: f64) -> u64 {
    let all: f64 = histogram.iter().map(|&(_, count)| float(count)).sum();
    let mut sum = 0.0;
    for &(ns, count) in histogram {
        sum += float(count);
        if sum >= at / 100.0 * all {
            return ns;
        }
    }
    histogram.last().map_or(0, |&(ns, _)| ns)
}

#[expect(clippy::cast_precision_loss, reason = "a report has fewer digits than an f64")]
const fn float(value: u64) -> f64 {
    value as f64
}
