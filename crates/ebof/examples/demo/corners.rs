//! The demonstration's measurement: the four corners on a local file and on a similar one over the
//! fabric, alternately. `ebof_bench` defines the corners.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use comfy_table::{CellAlignment, Table, presets};
use ebof::{Nsid, Options, Uri};
use ebof_bench::corner::{Comparison, Unit, compare, four};
use ebof_bench::{Job, Mix, Report, Source};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::{Mode, OFlags};

use super::stage::Stage;

/// The measured files: two of the same size on the same file system, one of them served.
pub(super) struct Scratch {
    /// The served one as an argument of `ebof serve`, relative to the stage's directory.
    pub(super) drive: String,
    local: String,
}

/// The served one is the second namespace.
const NSID: Nsid = Nsid(2);

/// Creates the files.
pub(super) fn prepare(stage: &Stage, quick: bool) -> anyhow::Result<Scratch> {
    let mib = if quick { 32 } else { 256 };
    stage.shell(&format!("truncate -s {mib}M scratch.img local.img"))?;
    let path = stage.path("local.img");
    let direct = takes_direct(&path);
    if !direct {
        stage.tell("this file system knows no direct I/O: both sides are measured through the page cache");
    }
    let word = if direct { "direct=on" } else { "direct=off" };
    Ok(Scratch { drive: format!("scratch.img,{word}"), local: format!("{},{word}", comma_safe(&path)) })
}

/// Whether the page cache can be bypassed.
fn takes_direct(path: &Path) -> bool {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

/// A path for the specification of a drive, in which a comma of the path is written twice.
fn comma_safe(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Runs the corners alternately, with a progress bar on a terminal.
pub(super) fn measure(stage: &Stage, scratch: &Scratch, uri: &str, quick: bool) -> anyhow::Result<Comparison> {
    let options = Options::from_uri(&Uri::parse(uri)?);
    let sources =
        [("local", Source::Local(scratch.local.parse()?)), ("fabric", Source::Fabric(Box::new(options), NSID))];
    let (runtime, ramp) = if quick { (200, 50) } else { (3000, 500) };
    let jobs = four(Duration::from_millis(runtime), Duration::from_millis(ramp));
    let bar = ProgressBar::new((runtime + ramp) * 2 * jobs.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}")?);
    // Both files are written first: reads of holes would not measure the disk.
    for (side, source) in &sources {
        let fill = Job { block_bytes: 128 << 10, depth: 64, runtime: None, ..Job::new(Mix::Write) };
        bar.set_message(format!("filling the {side} file"));
        run(stage, source, &fill, &bar, 0)?;
    }
    let mut local = Vec::new();
    let mut fabric = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        for (turn, (side, source)) in sources.iter().enumerate() {
            let done = (runtime + ramp) * (2 * at as u64 + turn as u64);
            bar.set_message(format!("{}, {side}", job.name));
            let report = run(stage, source, job, &bar, done)?;
            if *side == "local" { &mut local } else { &mut fabric }.push(report);
        }
    }
    bar.finish_and_clear();
    Ok(compare(&local, &fabric))
}

/// Runs one job, and moves the progress bar from `done` on.
fn run(stage: &Stage, source: &Source, job: &Job, bar: &ProgressBar, done: u64) -> anyhow::Result<Report> {
    stage.check()?;
    let report = ebof_bench::run(source, job, |progress| {
        if progress.total.is_some() {
            bar.set_position(done + u64::try_from(progress.elapsed.as_millis()).unwrap_or(u64::MAX / 2));
        }
        if stage.is_interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    stage.check()?;
    if report.errors > 0 {
        let first = report.first_error.unwrap_or_default();
        bail!("{} against {}: {} operations failed: {first}", job.name, report.source, report.errors);
    }
    Ok(report)
}

/// Both columns and their ratio.
pub(super) fn table(comparison: &Comparison) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["depth 64, one queue", "local file", "over NVMe/TCP", "ratio", "local mean", "fabric mean"]);
    for row in &comparison.rows {
        let value = |value: f64| match row.unit {
            Unit::MegabytesPerSecond => format!("{value:.0} MB/s"),
            Unit::Iops => format!("{value:.0} IOPS"),
        };
        table.add_row([
            row.name.clone(),
            value(row.local),
            value(row.fabric),
            format!("{:.0} %", row.ratio * 100.0),
            format!("{:.0} us", row.local_mean_us),
            format!("{:.0} us", row.fabric_mean_us),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_columns_and_their_ratio_are_shown() {
        let job = Job { runtime: Some(Duration::from_millis(20)), ..Job::new(Mix::RandRead) };
        let source = Source::Local("mem:1Mi".parse().unwrap());
        let report = ebof_bench::run(&source, &job, |_| ControlFlow::Continue(())).unwrap();
        let text = table(&compare(std::slice::from_ref(&report), std::slice::from_ref(&report)));
        assert!(text.contains("randread") && text.contains(" IOPS") && text.contains("100 %"), "{text}");
    }

    #[test]
    fn a_comma_in_a_path_does_not_start_an_option() {
        assert_eq!(comma_safe(Path::new("/tmp/a,b")), "/tmp/a,,b");
    }
}
