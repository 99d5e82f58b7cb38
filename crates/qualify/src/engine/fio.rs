//! The stock fio as a load generator: its command for a load, its process, its report and logs as
//! ebof's own.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ebof_bench::{LoadPhase, LoadProgress};

use super::child::{Finish, Generator, Words};
use super::{EngineError, Load, LoadResult, LoadTarget, programs};

mod command;
mod live;
mod message;
mod output;
mod series;
#[cfg(test)]
mod tests;

pub use command::command;

/// fio's report in the load's directory, and the beginning of its logs' names there.
const REPORT: &str = "fio.json";
const LOGS: &str = "fio";
/// The largest report that is read. A report has about 20 KB for each job.
const REPORT_BYTES_MAX: u64 = 64 << 20;
/// How long fio may take beyond the load's time: to open devices, to connect, to write its report.
const OVERTIME_MAX: Duration = Duration::from_secs(120);

/// Runs a load with the installed fio; `progress` is called about four times a second, and ends it
/// early by `Break`: what was measured until then is the outcome.
///
/// # Errors
/// Nothing was measured: the job does not fit the device, fio or the engine that it needs is not
/// installed, or it failed at once. If it fails later, the outcome has what was measured until
/// then, and `errors` and `first_error` of its reports tell of the failure.
pub fn run(
    load: &Load<'_>,
    mut progress: impl FnMut(&LoadProgress) -> ControlFlow<()>,
) -> Result<LoadResult, EngineError> {
    run_with(&programs::find_fio()?, load, &mut progress)
}

/// [`run`] with this fio.
fn run_with(
    fio: &Path,
    load: &Load<'_>,
    progress: &mut dyn FnMut(&LoadProgress) -> ControlFlow<()>,
) -> Result<LoadResult, EngineError> {
    check(fio, load)?;
    let words = command::to_run(load, &engine_library(load)?);
    let cannot = |error: io::Error| EngineError::Run { program: words[0].clone(), error };
    clear(load.directory).map_err(|error| {
        let directory = load.directory.display().to_string();
        EngineError::Directory { directory, error }
    })?;
    let mut process = Command::new(fio);
    process.args(&words[1..]);
    let mut generator = Generator::start(process, live::PREFIX).map_err(cannot)?;
    let mut bytes = 0.0;
    let mut last = Duration::ZERO;
    let total = command::time(load.jobs);
    let end = generator.wait(total.map(|total| total + OVERTIME_MAX), |elapsed, status| {
        let rate = live::rate(status);
        bytes += rate.bytes_per_s * (elapsed - last).as_secs_f64();
        last = elapsed;
        progress(&progress_of(load, elapsed, rate, bytes))
    });
    let end = end.map_err(cannot)?;
    let said = generator.words();
    outcome(load, words, end, &said)
}

/// Whether fio can run this load at all.
fn check(fio: &Path, load: &Load<'_>) -> Result<(), EngineError> {
    for job in load.jobs {
        job.check(load.size_bytes, 1, u64::MAX)?;
        if job.verify {
            let why =
                "ebof's pattern is not verified by fio: use fio's own verification (`ebof man ebof-fio`)".to_owned();
            return Err(EngineError::Unsupported(why));
        }
    }
    match load.place {
        LoadTarget::Memory(_) => Err(EngineError::Unsupported("fio has no engine for a device in memory".to_owned())),
        LoadTarget::Iscsi(_) if !programs::fio_has_engine(fio, "libiscsi") => {
            Err(EngineError::Unsupported("this fio was built without its engine libiscsi".to_owned()))
        }
        LoadTarget::Nbd(_) if !programs::fio_has_engine(fio, "nbd") => {
            Err(EngineError::Unsupported("this fio was built without its engine nbd".to_owned()))
        }
        _ => Ok(()),
    }
}

/// Where ebof's engine is, for a load that needs it.
fn engine_library(load: &Load<'_>) -> Result<PathBuf, EngineError> {
    match load.place {
        LoadTarget::Namespace { .. } => programs::find_engine_library(),
        _ => Ok(programs::LIBRARY.into()),
    }
}

/// Removes the report of an earlier run, so that it cannot be taken for this one's.
fn clear(directory: &Path) -> io::Result<()> {
    match std::fs::remove_file(directory.join(REPORT)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => series::clear(directory),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate; it is for a display")]
fn progress_of(load: &Load<'_>, elapsed: Duration, rate: live::Speed, bytes: f64) -> LoadProgress {
    let ramp = load.jobs.first().map(|job| job.ramp).unwrap_or_default();
    LoadProgress {
        phase: if elapsed < ramp { LoadPhase::Ramp } else { LoadPhase::Measure },
        elapsed,
        total: command::time(load.jobs),
        iops: rate.iops,
        bytes_per_s: rate.bytes_per_s,
        mean_us: None,
        bytes: bytes as u64,
        errors: 0,
    }
}

/// What fio left behind when it had ended.
fn outcome(load: &Load<'_>, command: Vec<String>, end: Finish, said: &Words) -> Result<LoadResult, EngineError> {
    let told = message::Told::new(load, &command, end, said);
    let text = match read(&load.directory.join(REPORT)) {
        Ok(text) => text,
        // A fio that fails early writes none.
        Err(_) if !end.is_success() => return Err(told.failed()),
        Err(error) => return Err(told.unreadable(error.to_string())),
    };
    let mut reports = match output::reports(&text, load) {
        Ok(reports) => reports,
        Err(_) if matches!(end, Finish::Exited(status) if !status.success()) => return Err(told.failed()),
        Err(error) => return Err(told.unreadable(error.to_string())),
    };
    // It counts operations that failed, too, but no time for them.
    let has_measured = reports.iter().any(|report| report.total.iops > 0.0);
    match end {
        Finish::Exited(status) if status.success() => {}
        Finish::Asked(_) if !has_measured => return Err(EngineError::Ended(told.what())),
        Finish::Asked(_) => {}
        _ if !has_measured => return Err(told.failed()),
        // It failed in the middle: one of its jobs has to say so.
        _ => {
            if reports.iter().all(|report| report.errors == 0)
                && let Some(first) = reports.first_mut()
            {
                first.errors = 1;
            }
        }
    }
    for report in reports.iter_mut().filter(|report| report.errors > 0) {
        report.first_error = Some(told.said());
    }
    Ok(LoadResult { reports, series: series::read(load), command })
}

/// A file's text, if it is not too long.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(REPORT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > REPORT_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 64 MiB"));
    }
    Ok(text)
}
