//! A load as a command line of fio, with the options that the documents' own commands have.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use ebof_bench::{Ioengine, Job};

use super::{LOGS, Load, LoadTarget, REPORT};
use crate::document::SERIES_MAX;
use crate::engine::programs::LIBRARY;

/// The most passes that `loops` counts; more are given as bytes.
const LOOPS_MAX: u64 = 16;

/// The command that does what the load does: for a reader who wants to check it with fio. Empty for
/// a device that fio cannot reach.
#[must_use]
pub fn command(load: &Load<'_>) -> Vec<String> {
    if matches!(load.place, LoadTarget::Memory(_)) {
        return Vec::new();
    }
    words(load, Path::new(LIBRARY), &[])
}

/// The same with ebof's engine at this path, and with reports and logs in the load's directory.
pub(super) fn to_run(load: &Load<'_>, library: &Path) -> Vec<String> {
    let logs = load.directory.join(LOGS);
    let for_each_job = [
        // Submission and completion apart are not reported: 30 ns for each operation less to do.
        "--disable_slat=1".to_owned(),
        "--disable_clat=1".to_owned(),
        "--lat_percentiles=1".to_owned(),
        "--clat_percentiles=0".to_owned(),
        // Sampled by a thread of its own, unlike the log of latencies, which costs 25 ns for each
        // operation.
        format!("--write_iops_log={}", logs.display()),
        format!("--log_avg_msec={}", interval(load.jobs).as_millis()),
    ];
    let mut words = words(load, library, &for_each_job);
    words.push("--output-format=json+".to_owned());
    words.push(format!("--output={}", load.directory.join(REPORT).display()));
    words.extend(["--eta=always", "--eta-newline=1000ms"].map(str::to_owned));
    words
}

/// The time between two points of a series.
pub(super) fn interval(jobs: &[Job]) -> Duration {
    let runtime = jobs.first().and_then(|job| job.runtime).unwrap_or_default();
    let points = u32::try_from(SERIES_MAX).unwrap_or(u32::MAX);
    let each = runtime / points;
    // fio's own sampling is not exact below.
    if runtime.is_zero() || runtime > Duration::from_secs(30) {
        each.max(Duration::from_secs(1))
    } else {
        each.max(Duration::from_millis(500))
    }
}

/// How long a load takes; `None` if it ends with its bytes.
pub(super) fn time(jobs: &[Job]) -> Option<Duration> {
    jobs.iter().map(|job| Some(job.ramp + job.runtime?)).max()?
}

fn words(load: &Load<'_>, library: &Path, for_each_job: &[String]) -> Vec<String> {
    let mut words = vec!["fio".to_owned()];
    let is_group = load.jobs.len() > 1 || load.jobs.iter().any(|job| job.threads > 1);
    for (index, job) in load.jobs.iter().enumerate() {
        words.push(format!("--name={}", job.name));
        words.extend(place(load.place, job, library));
        words.extend(["--direct=1", "--thread", "--norandommap"].map(str::to_owned));
        words.extend(pattern(job));
        words.extend(extent(job, load));
        words.extend(limits(job, load));
        if is_group {
            words.push("--group_reporting".to_owned());
        }
        if index > 0 {
            words.push("--new_group".to_owned());
        }
        words.extend_from_slice(for_each_job);
    }
    words
}

/// The engine, and the device in its words.
fn place(place: &LoadTarget, job: &Job, library: &Path) -> Vec<String> {
    // fio divides file names at colons.
    let escaped = |name: &str| name.replace('\\', "\\\\").replace(':', "\\:");
    match place {
        LoadTarget::Path(path) => vec![
            format!("--ioengine={}", local(job)),
            format!("--filename={}", escaped(&path.to_string_lossy())),
            // A device that has vanished must not become a file in /dev.
            "--allow_file_create=0".to_owned(),
        ],
        LoadTarget::Namespace { uri, options } => {
            let engine = [format!("--ioengine=external:{}", library.display()), format!("--uri={uri}")];
            engine.into_iter().chain(options.iter().map(|(name, value)| format!("--{name}={value}"))).collect()
        }
        LoadTarget::Iscsi(uri) => vec!["--ioengine=libiscsi".to_owned(), format!("--filename={}", escaped(uri))],
        LoadTarget::Nbd(uri) => vec!["--ioengine=nbd".to_owned(), format!("--uri={uri}")],
        LoadTarget::Null | LoadTarget::Memory(_) => vec!["--ioengine=null".to_owned()],
    }
}

/// The documents use libaio.
fn local(job: &Job) -> &'static str {
    match job.ioengine {
        Ioengine::Auto => "libaio",
        Ioengine::IoUring => "io_uring",
        Ioengine::Threads if job.depth == 1 => "psync",
        Ioengine::Threads => "posixaio",
    }
}

fn pattern(job: &Job) -> Vec<String> {
    let mut words = vec![
        format!("--rw={}", job.rw),
        format!("--bs={}", bytes(job.block_bytes.into())),
        format!("--iodepth={}", job.depth),
        format!("--numjobs={}", job.threads),
    ];
    if job.rw.reads() && job.rw.writes() {
        words.push(format!("--rwmixread={}", job.read_percent));
    }
    words
}

/// The part of the device. What is all of it is not said.
fn extent(job: &Job, load: &Load<'_>) -> Vec<String> {
    let Ok((offset, part)) = job.check(load.size_bytes, 1, u64::MAX) else { return Vec::new() };
    let mut words = Vec::new();
    if offset > 0 {
        words.push(format!("--offset={}", bytes(offset)));
    }
    if job.threads > 1 && !job.rw.is_random() {
        // Sequential threads divide the part between them, as ebof's do: threads that follow each
        // other over the same blocks would measure a cache.
        let block = u64::from(job.block_bytes);
        let share = bytes(part / block / u64::from(job.threads) * block);
        words.extend([format!("--size={share}"), format!("--offset_increment={share}")]);
    } else if job.size_bytes.is_some() || matches!(load.place, LoadTarget::Null) {
        words.push(format!("--size={}", bytes(part)));
    }
    words
}

/// When it ends, and how fast it goes.
fn limits(job: &Job, load: &Load<'_>) -> Vec<String> {
    let mut words = Vec::new();
    let part = job.check(load.size_bytes, 1, u64::MAX).map_or(0, |(_, part)| part);
    let threads = u64::from(job.threads.max(1));
    let ends = load.until_bytes.or_else(|| job.runtime.is_none().then_some(part));
    match ends {
        None => words.push("--time_based".to_owned()),
        Some(ends) => {
            // Sequential passes over the whole part, as the white paper's preconditioning.
            let loops = ends.checked_div(part).unwrap_or(0);
            let is_whole = ends.checked_rem(part) == Some(0) && (1..=LOOPS_MAX).contains(&loops);
            if !job.rw.is_random() && is_whole && job.ramp.is_zero() {
                if loops > 1 {
                    words.push(format!("--loops={loops}"));
                }
            } else {
                words.push(format!("--io_size={}", bytes(ends / threads)));
            }
        }
    }
    words.extend(job.runtime.map(|runtime| format!("--runtime={}", seconds(runtime))));
    if !job.ramp.is_zero() {
        words.push(format!("--ramp_time={}", seconds(job.ramp)));
    }
    words.extend(job.rate_iops.map(|rate| format!("--rate_iops={rate}")));
    if job.rate.read.is_some() || job.rate.write.is_some() {
        let side = |rate: Option<u64>| rate.map(|rate| rate.to_string()).unwrap_or_default();
        words.push(format!("--rate={},{}", side(job.rate.read), side(job.rate.write)));
    }
    if job.continue_on_error {
        words.push("--continue_on_error=io".to_owned());
    }
    words.extend(processors(&job.processors));
    words
}

/// Each thread has one of the processors.
fn processors(list: &[usize]) -> Vec<String> {
    let available = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let mut text = String::new();
    for processor in list {
        let separator = if text.is_empty() { "" } else { "," };
        let _infallible = write!(text, "{separator}{}", processor % available);
    }
    if text.is_empty() {
        return Vec::new();
    }
    vec![format!("--cpus_allowed={text}"), "--cpus_allowed_policy=split".to_owned()]
}

/// `4k`, `1m`; fio's units are powers of two.
fn bytes(count: u64) -> String {
    for (shift, unit) in [(30, "g"), (20, "m"), (10, "k")] {
        if count > 0 && count.trailing_zeros() >= shift {
            return format!("{}{unit}", count >> shift);
        }
    }
    count.to_string()
}

/// `300`, or `1500ms`.
fn seconds(time: Duration) -> String {
    if time.subsec_nanos() == 0 { time.as_secs().to_string() } else { format!("{}ms", time.as_millis()) }
}
