//! `bench --compare-raw`: 4 KiB random reads from a memory drive over one connection, alternating
//! with the raw limit of TCP (`ebof_bench::raw`); and the CPU time of an idle target.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use comfy_table::{CellAlignment, Table, presets};
use ebof_bench::{Job, Mix, Source, raw};
use ebof_initiator::{Controller, Options};
use ebof_nvme::{Nqn, Nsid};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::server::Server;
use crate::failure::Failure;
use crate::global::Global;
use crate::output::json::Object;
use crate::output::text::si;
use crate::output::{View, show};
use crate::program::verb::Outcome;

pub(super) const HEADING: &str = "The limit of the loopback";
/// The name and version of the schema.
const SCHEMA: &str = "bench-raw";
/// Controllers of the idle target, each with an Admin Queue and an I/O queue.
const IDLE_CONTROLLERS: usize = 32;
const NQN: &str = "nqn.2014-08.org.example:ebof-bench";

/// The argument of `--compare-raw`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Limit {
    /// Compare a memory drive with raw TCP, and measure an idle target
    #[arg(long, help_heading = HEADING, conflicts_with = "sources")]
    compare_raw: bool,
    /// Runs of each, alternating
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = HEADING, value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: u16,
    /// Seconds of each run
    #[arg(long, value_name = "SECONDS", default_value = "1.5", help_heading = HEADING, value_parser = super::seconds)]
    each: Duration,
    /// Seconds of observing the idle target
    #[arg(long, value_name = "SECONDS", default_value = "10", help_heading = HEADING, value_parser = super::seconds)]
    idle: Duration,
    /// Write all results to this file as JSON
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    json: Option<PathBuf>,
}

impl Limit {
    pub(super) fn is_wanted(&self) -> bool {
        self.compare_raw
    }
}

/// All runs of one depth.
#[derive(Clone, Debug, Serialize)]
struct Row {
    depth: u16,
    ebof: Runs,
    raw: Runs,
    /// ebof's median divided by that of raw TCP.
    ratio: f64,
    /// Mean latency of ebof's median run, in microseconds.
    ebof_mean_us: f64,
}

/// Operations per second of several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Runs {
    median: f64,
    /// Difference of maximum and minimum, divided by the median.
    spread: f64,
    all: Vec<f64>,
}

/// The idle target.
#[derive(Clone, Debug, Serialize)]
struct Idle {
    /// Open TCP connections.
    connections: usize,
    seconds: f64,
    /// Percent of one processor.
    cpu_percent: f64,
    resident_bytes: u64,
}

/// All results.
#[derive(Clone, Debug, Serialize)]
struct Figures {
    processors: usize,
    seconds_each: f64,
    rows: Vec<Row>,
    idle: Idle,
}

/// Measures.
pub(super) fn run(args: &Limit, global: &Global, stop: &AtomicBool) -> Outcome {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let steps = u64::from(args.runs) * raw::DEPTHS.len() as u64 * 2 + 1;
    let bar = ProgressBar::new(steps).with_style(ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}")?);
    let rows = depths(args, &bar, stop)?;
    bar.set_message("idle");
    let idle = idle(args.idle, stop)?;
    bar.finish_and_clear();
    let figures = Figures { processors, seconds_each: args.each.as_secs_f64(), rows, idle };
    if let Some(path) = &args.json {
        let text = figures.json(false).to_text()?;
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    show(global, &figures)?;
    Ok(ExitCode::SUCCESS)
}

fn interrupted(stop: &AtomicBool) -> anyhow::Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::new("interrupted", "interrupted", "nothing was measured").into());
    }
    Ok(())
}

/// Measures ebof and raw TCP alternately, so that other load affects both.
fn depths(args: &Limit, bar: &ProgressBar, stop: &AtomicBool) -> anyhow::Result<Vec<Row>> {
    // The target's thread is bound to the first processor, the host to the second.
    let server = serve(&["--threads", "1"], stop)?;
    let source = Source::Fabric(Box::new(options(&server)?), Nsid(1));
    let mut rows = Vec::new();
    for depth in raw::DEPTHS {
        let mut ebof: Vec<(f64, f64)> = Vec::new();
        let mut limit = Vec::new();
        for turn in 1..=args.runs {
            interrupted(stop)?;
            bar.set_message(format!("depth {depth}, run {turn} of {}: raw TCP", args.runs));
            limit.push(raw::read_4k(depth, args.each, [0, 1]).context("raw TCP")?.requests_per_s);
            bar.inc(1);
            bar.set_message(format!("depth {depth}, run {turn} of {}: ebof", args.runs));
            ebof.push(read_4k(&source, depth, args.each, stop)?);
            bar.inc(1);
        }
        rows.push(row(depth, &ebof, limit));
    }
    Ok(rows)
}

/// Operations per second and mean latency of one run against the target.
fn read_4k(source: &Source, depth: u16, each: Duration, stop: &AtomicBool) -> anyhow::Result<(f64, f64)> {
    let ramp = Duration::from_millis(200).min(each / 4);
    let job = Job { depth, runtime: Some(each), ramp, processors: vec![1], ..Job::new(Mix::RandRead) };
    let report = ebof_bench::run(source, &job, |_| {
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    interrupted(stop)?;
    if let Some(first) = report.first_error {
        bail!("depth {depth}: {} reads failed: {first}", report.errors);
    }
    Ok((report.total.iops, report.total.latency.mean_us))
}

fn row(depth: u16, ebof: &[(f64, f64)], limit: Vec<f64>) -> Row {
    let mut sorted = ebof.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ebof_mean_us = sorted.get(sorted.len() / 2).map_or(0.0, |run| run.1);
    let ebof = Runs::new(ebof.iter().map(|run| run.0).collect());
    let raw = Runs::new(limit);
    Row { depth, ratio: ebof.median / raw.median.max(f64::MIN_POSITIVE), ebof, raw, ebof_mean_us }
}

impl Runs {
    fn new(all: Vec<f64>) -> Self {
        let mut sorted = all.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(at(middle.saturating_sub(1)), at(middle))
        } else {
            at(middle)
        };
        let spread = (at(sorted.len().saturating_sub(1)) - at(0)) / median.max(f64::MIN_POSITIVE);
        Self { median, spread, all }
    }
}

/// A target with a memory drive on a free port.
fn serve(more: &[&str], stop: &AtomicBool) -> anyhow::Result<Server> {
    let arguments = [&["--listen", "tcp://127.0.0.1:0", "--control", "none", "--nqn", NQN, "mem:1Gi"], more].concat();
    let program = std::env::current_exe().context("finding this program")?;
    Server::start(&program, &arguments, Path::new("/"), Stdio::null(), || stop.load(Ordering::Relaxed))
}

fn options(server: &Server) -> anyhow::Result<Options> {
    let (address, port) = server.place();
    let mut options = Options::new(address, port, NQN.parse::<Nqn>()?);
    options.nr_io_queues = 1;
    Ok(options)
}

/// Measures a target whose connections only have Keep Alive commands.
fn idle(time: Duration, stop: &AtomicBool) -> anyhow::Result<Idle> {
    let server = serve(&[], stop)?;
    let pid = server.id();
    let before = sockets(pid)?;
    let options = options(&server)?;
    let mut held = Vec::new();
    for _ in 0..IDLE_CONTROLLERS {
        interrupted(stop)?;
        let controller = Controller::connect(&options)?;
        // An I/O queue is connected on first use.
        let queue = controller.queue_pair::<Vec<u8>>()?;
        held.push((queue, controller));
    }
    let connections = sockets(pid)?.saturating_sub(before);
    // Let the work of connecting finish.
    wait(Duration::from_millis(500).min(time), stop)?;
    let cpu = processor_time(pid)?;
    let started = Instant::now();
    wait(time, stop)?;
    let used = processor_time(pid)?.saturating_sub(cpu);
    let elapsed = started.elapsed();
    let resident_bytes = resident(pid)?;
    drop(held);
    let seconds = elapsed.as_secs_f64();
    let cpu_percent = used.as_secs_f64() * 100.0 / seconds.max(1e-9);
    Ok(Idle { connections, seconds, cpu_percent, resident_bytes })
}

fn wait(time: Duration, stop: &AtomicBool) -> anyhow::Result<()> {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        interrupted(stop)?;
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
    Ok(())
}

/// Number of open sockets of a process.
fn sockets(pid: u32) -> anyhow::Result<usize> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).context("looking at the target's files")?;
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Ok(links.filter(|link| link.to_string_lossy().starts_with("socket:")).count())
}

/// CPU time of a process, in clock ticks' resolution.
fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("looking at the target's time")?;
    let ticks = ticks(&stat).context("the kernel's words about the target's time")?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Ok(Duration::from_micros(ticks.saturating_mul(1_000_000) / per_second))
}

/// User and system time of /proc/PID/stat, fields 14 and 15; the second field is a name in brackets
/// that may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("looking at the target's memory")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().context("VmRSS")?;
    Ok(kib << 10)
}

impl View for Figures {
    fn text(&self, _verbose: bool) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header([
            "4K random reads",
            "ebof, mem",
            "raw TCP",
            "ratio",
            "ebof mean",
            "spread ebof",
            "spread raw",
        ]);
        for row in &self.rows {
            table.add_row([
                format!("QD {}", row.depth),
                format!("{:.0} IOPS", row.ebof.median),
                format!("{:.0} /s", row.raw.median),
                format!("{:.0} %", row.ratio * 100.0),
                format!("{:.1} us", row.ebof_mean_us),
                format!("{:.0} %", row.ebof.spread * 100.0),
                format!("{:.0} %", row.raw.spread * 100.0),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let runs = self.rows.first().map_or(0, |row| row.raw.all.len());
        let idle = &self.idle;
        format!(
            "{table}\nmedians of {runs} runs of {:.1} s in turns, one connection, target on processor 0, host on 1, of {}\n\
             idle with {} connections for {:.0} s: {:.2} % of a processor, {} resident\n",
            self.seconds_each,
            self.processors,
            idle.connections,
            idle.seconds,
            idle.cpu_percent,
            si(idle.resident_bytes.into()),
        )
    }

    fn json(&self, _verbose: bool) -> Object {
        let value = |value: serde_json::Result<serde_json::Value>| value.unwrap_or_default();
        Object::document(SCHEMA, 1)
            .with("processors", self.processors as u64)
            .with("seconds_each", value(serde_json::to_value(self.seconds_each)))
            .with("rows", value(serde_json::to_value(&self.rows)))
            .with("idle", value(serde_json::to_value(&self.idle)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_spread_are_computed() {
        assert_eq!(Runs::new(vec![30.0, 10.0, 20.0]), Runs { median: 20.0, spread: 1.0, all: vec![30.0, 10.0, 20.0] });
        assert_eq!(Runs::new(vec![10.0, 30.0]).median, 20.0);
        assert_eq!(Runs::new(Vec::new()).median, 0.0);
        let row = row(32, &[(100.0, 3.0), (300.0, 1.0), (200.0, 2.0)], vec![400.0]);
        assert_eq!((row.ratio, row.ebof_mean_us), (0.5, 2.0));
    }

    #[test]
    fn a_process_with_any_name_is_read() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (x) S 1"), None);
        let pid = std::process::id();
        assert!(resident(pid).unwrap() > 1 << 20);
        assert!(processor_time(pid).is_ok() && sockets(pid).is_ok());
    }
}
