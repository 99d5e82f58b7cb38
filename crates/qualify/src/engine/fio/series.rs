//! fio's logs of operations per second: one file for each thread, added up.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read as _};
use std::path::Path;

use ebof_bench::Job;

use super::command::interval;
use super::{LOGS, Load};
use crate::document::{Point, SERIES_MAX};

/// How much of a log is read: more than a day in seconds.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// Removes the logs of an earlier run.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    let start = format!("{LOGS}_");
    for entry in fs::read_dir(directory)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&start) && name.ends_with(".log") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// An interval of all threads.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    iops: f64,
    bytes_per_s: f64,
    /// How many threads reported it.
    threads: u32,
}

/// The load's series; empty if there are no logs, as for a short run.
pub(super) fn read(load: &Load<'_>) -> Vec<Point> {
    let each_ms = u64::try_from(interval(load.jobs).as_millis()).unwrap_or(u64::MAX).max(1);
    let mut sums = BTreeMap::new();
    let mut number = 0;
    for job in load.jobs {
        for _ in 0..job.threads {
            number += 1;
            let path = load.directory.join(format!("{LOGS}_iops.{number}.log"));
            // A thread that did nothing may have none.
            if let Ok(file) = File::open(path) {
                add(&mut sums, BufReader::new(file.take(LOG_BYTES_MAX)), job, each_ms);
            }
        }
    }
    let ramp = load.jobs.first().map(|job| job.ramp.as_secs_f64()).unwrap_or_default();
    let all: Vec<(u64, Sum)> = sums.into_iter().collect();
    merged(&all, ramp, each_ms)
}

/// Adds one thread's log: lines of time, value, direction, block size, and more.
fn add(sums: &mut BTreeMap<u64, Sum>, log: impl io::BufRead, job: &Job, each_ms: u64) {
    let mut last = None;
    for line in log.lines().map_while(Result::ok) {
        let mut fields = line.split(',').map(str::trim);
        let Some(at_ms) = fields.next().and_then(|text| text.parse::<u64>().ok()) else { continue };
        let Some(value) = fields.next().and_then(|text| text.parse::<u32>().ok()) else { continue };
        // A sample is taken a few milliseconds late at times.
        let index = at_ms.saturating_add(each_ms / 2) / each_ms;
        if index == 0 || (sums.len() > SERIES_MAX * 100 && !sums.contains_key(&index)) {
            continue;
        }
        let sum: &mut Sum = sums.entry(index).or_default();
        sum.iops += f64::from(value);
        sum.bytes_per_s += f64::from(value) * f64::from(job.block_bytes);
        // Both directions have a line each.
        if last != Some(index) {
            sum.threads += 1;
            last = Some(index);
        }
    }
}

/// At most [`SERIES_MAX`] points. The last interval is left out if not all threads saw it to its
/// end.
fn merged(all: &[(u64, Sum)], ramp_s: f64, each_ms: u64) -> Vec<Point> {
    let most = all.iter().map(|(_, sum)| sum.threads).max().unwrap_or(0);
    let whole = match all.split_last() {
        Some(((_, last), rest)) if last.threads < most => rest,
        _ => all,
    };
    let group = whole.len().div_ceil(SERIES_MAX).max(1);
    let points = whole.chunks(group).filter_map(|chunk| {
        let count = f64::from(u32::try_from(chunk.len()).ok()?);
        let mean = |pick: fn(&Sum) -> f64| chunk.iter().map(|(_, sum)| pick(sum)).sum::<f64>() / count;
        let (index, _) = chunk.last()?;
        #[expect(clippy::cast_precision_loss, reason = "a time in milliseconds")]
        let at_s = ramp_s + index.saturating_mul(each_ms) as f64 / 1000.0;
        Some(Point { at_s, iops: mean(|sum| sum.iops), bytes_per_s: mean(|sum| sum.bytes_per_s), mean_us: None })
    });
    points.collect()
}
