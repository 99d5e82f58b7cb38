//! The results of a load, in numbers that people and programs can compare. The schema is versioned:
//! fields are added, never changed or removed, within one number.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::job::Job;
use crate::process::{Cost, float};
use crate::worker::{Measured, Stats};

/// The name and version of the report's schema.
pub const REPORT_SCHEMA: &str = "ebof-bench/1";

/// The results of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_SCHEMA`].
    pub schema: String,
    /// The source.
    pub source: String,
    /// The load.
    pub job: Job,
    /// Measured time, in seconds.
    pub elapsed_s: f64,
    /// Reads and writes together.
    pub total: Side,
    /// Reads, if there were any.
    pub read: Option<Side>,
    /// Writes, if there were any.
    pub write: Option<Side>,
    /// Operations that failed, ramp included.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// Bytes that were verified.
    pub verified_bytes: u64,
    /// CPU time of the load's threads, in microseconds for each operation.
    pub cpu_us_per_operation: f64,
    /// CPU time of the load's threads, in percent of one processor.
    pub cpu_percent: f64,
    /// CPU time of the whole process, for all jobs that ran together; `None` if they ended before
    /// measuring began.
    #[serde(default)]
    pub process: Option<ProcessCost>,
    /// Maximum number of outstanding operations of each thread: the job's depth, or less if the
    /// target's queue is smaller.
    #[serde(default)]
    pub depth: u16,
}

/// CPU time of this process while the jobs were measured: of all its threads, in user space and in
/// the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessCost {
    /// In percent of one processor.
    pub cpu_percent: f64,
    /// In microseconds for each operation of all jobs.
    pub cpu_us_per_operation: f64,
    /// Of that, in user space.
    pub user_us_per_operation: f64,
    /// Of that, in the kernel.
    pub system_us_per_operation: f64,
}

impl From<Cost> for ProcessCost {
    fn from(cost: Cost) -> Self {
        let each = cost.cpu.as_secs_f64() * 1e6 / float(cost.operations.max(1));
        Self {
            cpu_percent: percent(cost.cpu, cost.elapsed),
            cpu_us_per_operation: each,
            user_us_per_operation: each * cost.user_part,
            system_us_per_operation: each * (1.0 - cost.user_part),
        }
    }
}

/// What `cpu` is of `elapsed`; 0 of a job that failed before it was measured.
fn percent(cpu: Duration, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { cpu.as_secs_f64() * 100.0 / elapsed.as_secs_f64() }
}

/// One direction, or both together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Operations that were measured.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Operations per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Their latencies.
    pub latency: Latency,
}

/// Latencies in microseconds, from the moment when the thread had an operation to submit to the
/// moment when it saw its completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The shortest.
    pub min_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// The standard deviation.
    pub stddev_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Pairs of percentile and latency.
    pub percentiles: Vec<(f64, f64)>,
}

/// The percentiles of a report: those of fio, up to 99.999.
pub const PERCENTILES: [f64; 18] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999];

impl Report {
    pub(crate) fn new(source: String, job: Job, threads: Vec<Stats>, cost: Option<Cost>) -> Self {
        let depth = threads.iter().map(|stats| stats.depth).min().unwrap_or(job.depth);
        let mut all = Stats::new();
        for stats in threads {
            add(&mut all.read, &stats.read);
            add(&mut all.write, &stats.write);
            all.errors += stats.errors;
            all.first_error = all.first_error.or(stats.first_error);
            all.verified_bytes += stats.verified_bytes;
            all.cpu += stats.cpu;
            all.measured = all.measured.max(stats.measured);
        }
        let elapsed = all.measured;
        let side = |measured: &Measured| (measured.operations > 0).then(|| Side::new(measured, elapsed));
        let read = side(&all.read);
        let write = side(&all.write);
        add(&mut all.read, &all.write);
        let operations = all.read.operations.max(1);
        Self {
            schema: REPORT_SCHEMA.to_owned(),
            source,
            job,
            elapsed_s: elapsed.as_secs_f64(),
            total: Side::new(&all.read, elapsed),
            read,
            write,
            errors: all.errors,
            first_error: all.first_error,
            verified_bytes: all.verified_bytes,
            cpu_us_per_operation: all.cpu.as_secs_f64() * 1e6 / float(operations),
            cpu_percent: percent(all.cpu, elapsed),
            process: cost.map(ProcessCost::from),
            depth,
        }
    }
}

fn add(sum: &mut Measured, more: &Measured) {
    sum.latency.add(&more.latency).expect("all histograms have the same bounds");
    sum.operations += more.operations;
    sum.bytes += more.bytes;
}

impl Side {
    fn new(measured: &Measured, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        Self {
            operations: measured.operations,
            bytes: measured.bytes,
            iops: float(measured.operations) / seconds,
            bytes_per_s: float(measured.bytes) / seconds,
            latency: Latency::new(&measured.latency),
        }
    }
}

impl Latency {
    fn new(histogram: &Histogram<u64>) -> Self {
        let us = |ns: u64| float(ns) / 1000.0;
        let percentiles =
            PERCENTILES.iter().map(|&percentile| (percentile, us(histogram.value_at_percentile(percentile))));
        Self {
            min_us: if histogram.is_empty() { 0.0 } else { us(histogram.min()) },
            mean_us: histogram.mean() / 1000.0,
            stddev_us: histogram.stdev() / 1000.0,
            max_us: us(histogram.max()),
            percentiles: percentiles.collect(),
        }
    }

    /// The latency that `percentile` percent of operations do not exceed; `None` if the report does
    /// not have this percentile.
    #[must_use]
    pub fn percentile_us(&self, percentile: f64) -> Option<f64> {
        self.percentiles.iter().find(|(at, _)| (at - percentile).abs() < 1e-9).map(|(_, us)| *us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Mix;

    fn stats(reads: &[u64], writes: &[u64]) -> Stats {
        let mut stats = Stats::new();
        for (side, values) in [(&mut stats.read, reads), (&mut stats.write, writes)] {
            for &ns in values {
                side.latency.record(ns).unwrap();
                side.operations += 1;
                side.bytes += 4096;
            }
        }
        stats.measured = Duration::from_secs(2);
        stats.cpu = Duration::from_micros(30);
        stats
    }

    #[test]
    fn threads_and_directions_add_up() {
        let threads = vec![stats(&[1000, 3000], &[]), stats(&[2000], &[10_000])];
        let report = Report::new("mem".to_owned(), Job::new(Mix::Rw), threads, None);
        assert_eq!((report.total.operations, report.total.bytes), (4, 16_384));
        assert!((report.total.iops - 2.0).abs() < 1e-9);
        let read = report.read.unwrap();
        assert_eq!((read.operations, read.latency.percentile_us(50.0).map(f64::round)), (3, Some(2.0)));
        assert_eq!(report.write.unwrap().latency.max_us.round(), 10.0);
        assert!((report.cpu_us_per_operation - 15.0).abs() < 1e-9);
    }

    /// From 100 ns to 100 s.
    #[test]
    fn a_percentile_is_the_latency_of_its_operation_within_a_thousandth() {
        let mut values = vec![100_u64];
        while let Some(&last) = values.last().filter(|&&last| last < 99_000_000_000) {
            values.push(last + last / 97 + 1);
        }
        values.push(100_000_000_000);
        let total = u64::try_from(values.len()).unwrap();
        assert!(total > 1900);
        let latency = Latency::new(&stats(&values, &[]).read.latency);
        let near =
            |reported_us: f64, ns: f64| assert!((reported_us * 1000.0 / ns - 1.0).abs() < 0.001, "{reported_us} {ns}");
        for (percentile, reported) in &latency.percentiles {
            // In thousandths of a percent, so that no fraction is rounded.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "100 000 at most")]
            let rank = (total * (percentile * 1000.0).round() as u64).div_ceil(100_000);
            near(*reported, float(values[usize::try_from(rank).unwrap() - 1]));
        }
        near(latency.min_us, 100.0);
        near(latency.max_us, 1e11);
        near(latency.mean_us, float(values.iter().sum()) / float(total));
    }

    #[test]
    fn the_schema_is_stable() {
        let report = Report::new("null".to_owned(), Job::new(Mix::RandRead), vec![stats(&[1000], &[])], None);
        let json = serde_json::to_value(&report).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(json["schema"], "ebof-bench/1");
        assert_eq!(
            keys(&json),
            "cpu_percent cpu_us_per_operation depth elapsed_s errors first_error job process read schema source total \
             verified_bytes write"
        );
        assert_eq!(keys(&json["total"]), "bytes bytes_per_s iops latency operations");
        assert_eq!(keys(&json["total"]["latency"]), "max_us mean_us min_us percentiles stddev_us");
        assert_eq!(json["job"]["rw"], "randread");
        assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
    }
}
