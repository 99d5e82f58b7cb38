//! `iscsi-perf` of libiscsi, for a fio without an engine for iSCSI: one connection that reads,
//! sequentially or at random, the whole logical unit. It prints operations per second, no
//! latencies.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ebof_bench::{Job, LoadPhase, LoadProgress, Report};

use super::child::{Finish, Generator};
use super::{EngineError, Load, LoadResult, LoadTarget, count, programs, report_of_rate};

/// How the line begins that it prints again and again.
const STATUS: &str = "iops average ";
/// How long it may take beyond the load's time.
const OVERTIME_MAX: Duration = Duration::from_secs(30);
/// The unit of its option `-b`, with nearly all targets.
const BLOCK_BYTES: u32 = 512;

/// The command for a load.
///
/// # Errors
/// [`EngineError::Unsupported`]: it cannot do this.
pub fn command(load: &Load<'_>) -> Result<Vec<String>, EngineError> {
    let unsupported = |why: &str| Err(EngineError::Unsupported(format!("iscsi-perf {why}")));
    let LoadTarget::Iscsi(uri) = load.place else { return unsupported("is for iSCSI only") };
    let [job] = load.jobs else { return unsupported("has no second group of threads") };
    let is_limited = job.rate_iops.is_some() || job.rate.read.is_some() || job.rate.write.is_some();
    let Some(runtime) = job.runtime else { return unsupported("ends with its time only") };
    match () {
        () if job.rw.writes() => unsupported("only reads"),
        () if job.threads > 1 => unsupported("has one thread and connection"),
        () if is_limited => unsupported("has no limit of its rate"),
        () if job.offset_bytes > 0 || job.size_bytes.is_some_and(|size| size < load.size_bytes) => {
            unsupported("uses the whole device only")
        }
        () if !job.block_bytes.is_multiple_of(BLOCK_BYTES) || job.block_bytes == 0 => {
            unsupported("reads whole blocks of 512 bytes")
        }
        () => {
            let time = (job.ramp + runtime).as_secs_f64().ceil().max(2.0);
            let mut words: Vec<String> = ["iscsi-perf", "-m"].map(str::to_owned).into();
            words.extend([job.depth.to_string(), "-b".to_owned(), (job.block_bytes / BLOCK_BYTES).to_string()]);
            if job.rw.is_random() {
                words.push("-r".to_owned());
            }
            words.extend(["-t".to_owned(), format!("{time}"), uri.clone()]);
            Ok(words)
        }
    }
}

/// Runs a load; `progress` is called about four times a second, and ends it early by `Break`: what
/// was measured until then is the outcome.
///
/// # Errors
/// It cannot do this, is not installed, or failed.
pub fn run(load: &Load<'_>, progress: impl FnMut(&LoadProgress) -> ControlFlow<()>) -> Result<LoadResult, EngineError> {
    run_with(&programs::find_iscsi_perf()?, load, progress)
}

fn run_with(
    program: &Path,
    load: &Load<'_>,
    mut progress: impl FnMut(&LoadProgress) -> ControlFlow<()>,
) -> Result<LoadResult, EngineError> {
    let words = command(load)?;
    let [job] = load.jobs else { return Err(EngineError::Unsupported("one group of threads".to_owned())) };
    let cannot = |error| EngineError::Run { program: words[0].clone(), error };
    let mut process = Command::new(program);
    process.args(&words[1..]);
    let mut generator = Generator::start(process, STATUS).map_err(cannot)?;
    let total = job.ramp + job.runtime.unwrap_or_default();
    let mut elapsed_s = total.as_secs_f64();
    let end = generator.wait(Some(total + OVERTIME_MAX), |elapsed, status| {
        elapsed_s = elapsed.as_secs_f64();
        let iops = average(status).unwrap_or(0.0);
        let bytes_per_s = iops * f64::from(job.block_bytes);
        progress(&LoadProgress {
            phase: LoadPhase::Measure,
            elapsed,
            total: Some(total),
            iops,
            bytes_per_s,
            mean_us: None,
            bytes: count(bytes_per_s * elapsed_s),
            errors: 0,
        })
    });
    let end = end.map_err(cannot)?;
    let said = generator.words();
    let was_asked = matches!(end, Finish::Asked(_));
    let what = || format!("iscsi-perf on {} ({}, {} bytes)", load.place.name(), job.rw, job.block_bytes);
    let Some(iops) = average(said.status()) else {
        if was_asked {
            return Err(EngineError::Ended(what()));
        }
        let lines: Vec<String> = said.lines().map(str::to_owned).chain(end.reason()).collect();
        let lines = if lines.is_empty() { "nothing".to_owned() } else { lines.join("; ") };
        let todo = "check the address, the target's name and the number of the logical unit: iscsi-ls -s iscsi://HOST";
        return Err(EngineError::Failed { what: what(), tried: words.join(" "), said: lines, todo });
    };
    let mut report = report(job, load, iops, elapsed_s);
    if !end.is_success() && !was_asked {
        report.errors = 1;
        report.first_error = Some(said.lines().last().unwrap_or("it failed").to_owned());
    }
    Ok(LoadResult { reports: vec![report], series: Vec::new(), command: words })
}

/// Of `iops average 29405 (114 MB/s)`.
fn average(status: &str) -> Option<f64> {
    let number = status.strip_prefix(STATUS.trim_end())?.split_whitespace().next()?;
    number.parse::<u32>().ok().map(f64::from)
}

fn report(job: &Job, load: &Load<'_>, iops: f64, elapsed_s: f64) -> Report {
    // Little's law: it keeps so many requests outstanding all the time.
    let mean_us = if iops > 0.0 { f64::from(job.depth) * 1e6 / iops } else { 0.0 };
    report_of_rate(load.place.name(), job, elapsed_s, iops, mean_us)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use ebof_bench::Mix;

    use super::*;

    fn place() -> LoadTarget {
        LoadTarget::Iscsi("iscsi://127.0.0.1:3260/iqn.2014-08.org.example:a/1".to_owned())
    }

    fn run_script(script: &str, told: ControlFlow<()>) -> Result<LoadResult, EngineError> {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("iscsi-perf");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let jobs = [Job { depth: 32, ..Job::new(Mix::RandRead) }];
        let load =
            Load { place: &place(), jobs: &jobs, until_bytes: None, directory: directory.path(), size_bytes: 1 << 30 };
        run_with(&program, &load, |_| told)
    }

    #[test]
    fn its_average_is_the_result() {
        let script = "printf 'iops average 10 (1 MB/s)   \\riops average 32000 (114 MB/s)   \\n\\nfinished.\\n'";
        let outcome = run_script(script, ControlFlow::Continue(())).unwrap();
        let total = &outcome.reports[0].total;
        assert_eq!((total.iops, total.bytes_per_s, total.latency.mean_us), (32_000.0, 131_072_000.0, 1000.0));
        let uri = "iscsi://127.0.0.1:3260/iqn.2014-08.org.example:a/1";
        assert_eq!(outcome.command.join(" "), format!("iscsi-perf -m 32 -b 8 -r -t 10 {uri}"));
    }

    #[test]
    fn its_failure_is_explained_and_what_was_measured_is_kept() {
        let error = run_script("echo 'Failed to connect to LUN' >&2; exit 10", ControlFlow::Continue(())).unwrap_err();
        assert!(error.to_string().contains("answer: Failed to connect to LUN\n  to do:  check the address"), "{error}");
        let script = "printf 'iops average 7 (1 MB/s)\\n'; echo 'task failed' >&2; exit 1";
        let report = run_script(script, ControlFlow::Continue(())).unwrap().reports.remove(0);
        assert_eq!((report.errors, report.total.iops), (1, 7.0));
        let endless = "printf 'iops average 7 (1 MB/s)\\n'; exec sleep 100";
        assert_eq!(run_script(endless, ControlFlow::Break(())).unwrap().reports[0].errors, 0);
        assert!(matches!(run_script("exec sleep 100", ControlFlow::Break(())), Err(EngineError::Ended(_))));
        assert!(run_script("printf 'iops average -5 (1'", ControlFlow::Continue(())).is_err());
    }

    #[test]
    fn what_it_cannot_do_is_said() {
        let place = place();
        let why = |job: Job| {
            let jobs = [job];
            let directory = Path::new("/");
            let load = Load { place: &place, jobs: &jobs, until_bytes: None, directory, size_bytes: 1 << 30 };
            command(&load).unwrap_err().to_string()
        };
        let job = Job::new(Mix::Read);
        assert_eq!(why(Job::new(Mix::RandWrite)), "iscsi-perf only reads");
        assert_eq!(why(Job { threads: 4, ..job.clone() }), "iscsi-perf has one thread and connection");
        assert_eq!(why(Job { offset_bytes: 512, ..job.clone() }), "iscsi-perf uses the whole device only");
        assert_eq!(why(Job { block_bytes: 100, ..job.clone() }), "iscsi-perf reads whole blocks of 512 bytes");
        assert_eq!(why(Job { runtime: None, ..job }), "iscsi-perf ends with its time only");
    }
}
