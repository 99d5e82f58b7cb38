//! One run: the load of a phase on one column, or on several at the same time, by the engine of the
//! column; and what the machine did meanwhile.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use ebof_bench::{Job, LoadProgress, Report, Source, run_all};

use super::steps::RunStep;
use super::{Observer, now_ms};
use crate::conditions::{Observation, listener};
use crate::device::Kind;
use crate::document::{Conditions, EngineName, Phase, Point, Run, SERIES_MAX, Tool};
use crate::engine::{self, EngineError, LoadTarget, fio, iscsi_perf, programs, tools};
use crate::file_system::{Attach, BlockDevice, Mount};
use crate::procedure::{ColumnPlan, DeviceUnderTest};
use crate::steady::steady;

/// How the reason of a run begins that an engine cannot do.
pub(super) const NOT_MEASURED: &str = "not measured: ";

/// What a run needs.
pub(super) struct Loading<'a> {
    pub(super) devices: &'a [DeviceUnderTest],
    pub(super) columns: &'a [ColumnPlan],
    pub(super) phase: &'a Phase,
    pub(super) step: &'a RunStep,
    /// The file of each column of the step, on a file system.
    pub(super) mounts: &'a [Option<Mount>],
    /// The directory of the report.
    pub(super) directory: &'a Path,
}

/// What came of it.
pub(super) struct Done {
    pub(super) run: Run,
    /// The procedure cannot go on.
    pub(super) is_fatal: bool,
}

/// What an engine measured on one column.
#[derive(Default)]
struct Measured {
    reports: Vec<Report>,
    series: Vec<Point>,
    command: Option<Vec<String>>,
    failed: Option<(String, bool)>,
}

/// Runs a step; a result for each of its columns. `attach` makes block devices of namespaces.
pub(super) fn run(setting: &Loading<'_>, attach: &dyn Attach, observer: &mut dyn Observer) -> Vec<Done> {
    let started_unix_ms = now_ms();
    let began = Instant::now();
    let targets = setting.step.columns.iter().filter_map(|&column| {
        let device = &setting.devices[setting.columns[column].device].device;
        device.local_port().and_then(listener)
    });
    let observation = Observation::start(targets.collect());
    let is_own = |column: &usize| setting.columns[*column].column.engine == EngineName::Ebof;
    let measured = if let Some(tool) = setting.phase.tool {
        setting.step.columns.iter().map(|&column| run_tool(setting, tool, column, attach)).collect()
    } else if setting.step.columns.iter().all(is_own) {
        run_own(setting, observer)
    } else {
        run_others(setting, observer)
    };
    let seconds = began.elapsed().as_secs_f64();
    let all = measured.iter().flat_map(|one| &one.reports);
    let conditions = observation.end(all.map(|report| report.total.iops * seconds).sum());
    let columns = setting.step.columns.iter().zip(measured);
    columns.map(|(&column, measured)| done(setting, column, measured, conditions.clone(), started_unix_ms)).collect()
}

fn done(
    setting: &Loading<'_>,
    column: usize,
    measured: Measured,
    conditions: Conditions,
    started_unix_ms: u64,
) -> Done {
    let Measured { reports, series, command, failed } = measured;
    let host_us_per_io = reports
        .first()
        .filter(|report| report.total.operations > 0)
        .map(|report| report.process.map_or(report.cpu_us_per_operation, |process| process.cpu_us_per_operation));
    let device = &setting.devices[setting.columns[column].device].device;
    let conditions = Conditions { host_us_per_io, device_celsius: device.celsius(), ..conditions };
    // Operations that failed are a device that failed.
    let errors = reports.iter().find(|report| report.errors > 0).map(|report| {
        let first = report.first_error.clone().unwrap_or_default();
        (format!("{}: {} operations failed: {first}", device.name, report.errors), true)
    });
    let nothing = reports
        .iter()
        .find(|report| report.total.operations == 0)
        .map(|_| (format!("{}: no operation was completed while it was measured", device.name), true));
    let failed = failed.or(errors).or(nothing);
    let is_fatal = failed.as_ref().is_some_and(|(_, is_fatal)| *is_fatal);
    let run = Run {
        column,
        round: setting.step.round,
        started_unix_ms,
        reports,
        steady: steady(&series),
        series,
        conditions,
        disturbed: None,
        failed: failed.map(|(why, _)| why),
        command,
    };
    Done { run, is_fatal }
}

/// The jobs of a phase, for the file of a file system if there is one.
fn jobs(phase: &Phase, mount: Option<&Mount>) -> Vec<Job> {
    let size = |job: &Job| mount.map_or(job.size_bytes, |mount| Some(mount.bytes));
    phase.jobs.iter().map(|job| Job { size_bytes: size(job), ..job.clone() }).collect()
}

/// By a program for block devices.
fn run_tool(setting: &Loading<'_>, tool: Tool, column: usize, attach: &dyn Attach) -> Measured {
    let device = &setting.devices[setting.columns[column].device].device;
    let not_measured = |why: String| Measured::failed(&format!("{NOT_MEASURED}{why}"), false);
    let Some(job) = setting.phase.jobs.first() else { return not_measured("it has no job".to_owned()) };
    let block = match BlockDevice::open(device, attach) {
        Ok(block) => block,
        Err(why) => return not_measured(why),
    };
    match tools::run(tool, &block.path, job) {
        Ok(outcome) => Measured { reports: outcome.reports, command: Some(outcome.command), ..Measured::default() },
        Err(EngineError::Unsupported(why)) => not_measured(why),
        Err(error) => Measured::failed(&error.to_string(), true),
    }
}

/// By ebof's own load generator.
fn run_own(setting: &Loading<'_>, observer: &mut dyn Observer) -> Vec<Measured> {
    let columns = setting.step.columns.iter().map(|&column| &setting.columns[column]);
    let mut sources = Vec::new();
    for (column, mount) in columns.clone().zip(setting.mounts) {
        match source(setting, column, mount.as_ref()) {
            Some(source) => sources.push((source, jobs(setting.phase, mount.as_ref()), column.queues)),
            None => return vec![Measured::failed("there is no source for this device", true)],
        }
    }
    let loads: Vec<ebof_bench::Load<'_>> =
        sources.iter().map(|(source, jobs, queues)| ebof_bench::Load { source, jobs, queues: *queues }).collect();
    let mut recorders: Vec<Recorder> = loads.iter().map(|_| Recorder::default()).collect();
    let until = setting.phase.until_bytes.unwrap_or(u64::MAX);
    let reports = run_all(&loads, |all| {
        recorders.iter_mut().zip(all).for_each(|(recorder, one)| recorder.note(one));
        if let Some(sum) = together(all) {
            observer.progress(&sum);
        }
        let is_over = observer.is_stopped() || all.iter().all(|one| one.bytes >= until);
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match reports {
        Ok(reports) => {
            let is_stopped = observer.is_stopped();
            let all = reports.into_iter().zip(recorders).map(|(reports, recorder)| Measured {
                reports,
                series: recorder.points,
                command: None,
                failed: is_stopped.then(|| ("interrupted".to_owned(), false)),
            });
            all.collect()
        }
        Err(error) => {
            let why = error.to_string();
            recorders
                .into_iter()
                .map(|recorder| Measured { series: recorder.points, ..Measured::failed(&why, true) })
                .collect()
        }
    }
}

fn source(setting: &Loading<'_>, column: &ColumnPlan, mount: Option<&Mount>) -> Option<Source> {
    if let Some(mount) = mount {
        return Source::local(&mount.specification(), None).ok();
    }
    let device = &setting.devices[column.device].device;
    match (&device.kind, &column.options) {
        (Kind::Namespace(_, nsid), Some(options)) => Some(Source::Fabric(options.clone(), *nsid)),
        _ => device.source(),
    }
}

/// The sum of what several loads do.
fn together(all: &[LoadProgress]) -> Option<LoadProgress> {
    let first = *all.first()?;
    let iops: f64 = all.iter().map(|one| one.iops).sum();
    let weighted: f64 = all.iter().filter_map(|one| Some(one.mean_us? * one.iops)).sum();
    Some(LoadProgress {
        iops,
        bytes_per_s: all.iter().map(|one| one.bytes_per_s).sum(),
        mean_us: (iops > 0.0).then(|| weighted / iops),
        bytes: all.iter().map(|one| one.bytes).fold(0, u64::saturating_add),
        errors: all.iter().map(|one| one.errors).fold(0, u64::saturating_add),
        ..first
    })
}

/// What a thread with another program reports.
enum Told {
    Progress(LoadProgress),
    Ended(usize, Box<Measured>),
}

/// Interval of checks whether to stop.
const TICK: Duration = Duration::from_millis(100);

/// By other programs, each in a thread of its own. Columns that run together have the same engine.
fn run_others(setting: &Loading<'_>, observer: &mut dyn Observer) -> Vec<Measured> {
    let stop = AtomicBool::new(false);
    let (tell, told) = channel();
    let mut all: Vec<Measured> = setting.step.columns.iter().map(|_| Measured::default()).collect();
    std::thread::scope(|scope| {
        for index in 0..all.len() {
            let (tell, stop) = (tell.clone(), &stop);
            scope.spawn(move || {
                let measured = Box::new(run_other(setting, index, stop, &tell));
                // The receiver waits for all of them.
                let _ended = tell.send(Told::Ended(index, measured));
            });
        }
        let mut left = all.len();
        while left > 0 {
            match told.recv_timeout(TICK) {
                Ok(Told::Progress(progress)) => observer.progress(&progress),
                Ok(Told::Ended(index, measured)) => {
                    all[index] = *measured;
                    left -= 1;
                }
                Err(_nothing_yet) => {}
            }
            if observer.is_stopped() {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    all
}

fn run_other(setting: &Loading<'_>, index: usize, stop: &AtomicBool, tell: &Sender<Told>) -> Measured {
    let column = &setting.columns[setting.step.columns[index]];
    let mount = setting.mounts.get(index).and_then(Option::as_ref);
    let DeviceUnderTest { device, seen } = &setting.devices[column.device];
    let place = place(setting, column, mount);
    let phase = &setting.phase;
    let name = format!("{}-{}-{}", phase.id, column.column.id, setting.step.round);
    let directory = setting.directory.join("runs").join(name);
    if let Err(error) = std::fs::create_dir_all(&directory) {
        return Measured::failed(&format!("making {}: {error}", directory.display()), true);
    }
    let jobs = jobs(phase, mount);
    let load = engine::Load {
        place: &place,
        jobs: &jobs,
        until_bytes: phase.until_bytes,
        directory: &directory,
        size_bytes: mount.map_or_else(|| size(seen.identity.capacity_bytes, &jobs), |mount| mount.bytes),
    };
    let progress = |progress: &LoadProgress| {
        // Only the first one's progress is shown: one bar for all.
        if index == 0 {
            let _ended = tell.send(Told::Progress(*progress));
        }
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let is_iscsi = matches!(device.kind, Kind::Iscsi) && !programs::has_engine("libiscsi");
    let outcome = if is_iscsi { iscsi_perf::run(&load, progress) } else { fio::run(&load, progress) };
    let interrupted = stop.load(Ordering::Relaxed).then(|| ("interrupted".to_owned(), false));
    match outcome {
        Ok(outcome) => Measured {
            reports: outcome.reports,
            series: outcome.series,
            command: Some(outcome.command),
            failed: interrupted,
        },
        Err(EngineError::Unsupported(why)) => Measured::failed(&format!("{NOT_MEASURED}{why}"), false),
        Err(error) => Measured { failed: interrupted.or(Some((error.to_string(), true))), ..Measured::default() },
    }
}

/// Bytes of a device; of one that does not tell, as many as the jobs use.
fn size(capacity_bytes: u64, jobs: &[Job]) -> u64 {
    let used = jobs.iter().filter_map(|job| Some(job.offset_bytes.saturating_add(job.size_bytes?))).max();
    if capacity_bytes > 0 { capacity_bytes } else { used.unwrap_or(0) }
}

/// Where another program finds the device of a column.
pub(crate) fn place_of(device: &crate::device::Device, options: Option<&ebof_initiator::Options>) -> LoadTarget {
    match &device.kind {
        Kind::Namespace(plain, nsid) => {
            let options = options.unwrap_or(plain);
            let source = Source::Fabric(Box::new(options.clone()), *nsid);
            let host = ("hostnqn".to_owned(), options.host_nqn.to_string());
            LoadTarget::Namespace { uri: source.describe(), options: vec![host] }
        }
        Kind::Path(path, _) => LoadTarget::Path(path.clone()),
        Kind::Opened(_, "null") => LoadTarget::Null,
        Kind::Opened(source, _) => LoadTarget::Memory(match source {
            Source::Device(device, _) => device.geometry().capacity_bytes,
            _ => 0,
        }),
        Kind::Iscsi => LoadTarget::Iscsi(device.name.clone()),
        Kind::Nbd => LoadTarget::Nbd(device.name.clone()),
    }
}

fn place(setting: &Loading<'_>, column: &ColumnPlan, mount: Option<&Mount>) -> LoadTarget {
    match mount {
        Some(mount) => LoadTarget::Path(mount.file.clone()),
        None => place_of(&setting.devices[column.device].device, column.options.as_deref()),
    }
}

impl Measured {
    fn failed(why: &str, is_fatal: bool) -> Self {
        Self { failed: Some((why.to_owned(), is_fatal)), ..Self::default() }
    }
}

/// What happens over time: at most [`SERIES_MAX`] points. When there are more, neighbours are
/// merged, and from then on each point is of twice as many parts.
#[derive(Debug)]
struct Recorder {
    points: Vec<Point>,
    /// Parts in a point.
    parts: u32,
    /// Parts of the last point so far.
    of_last: u32,
    last_at_s: f64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { points: Vec::new(), parts: 1, of_last: 0, last_at_s: 0.0 }
    }
}

impl Recorder {
    fn note(&mut self, progress: &LoadProgress) {
        let at_s = progress.elapsed.as_secs_f64();
        let point = Point { at_s, iops: progress.iops, bytes_per_s: progress.bytes_per_s, mean_us: progress.mean_us };
        let since = self.last_at_s;
        match self.points.last_mut() {
            Some(last) if self.of_last < self.parts => {
                let begin = last.at_s.min(since) - f64::from(self.of_last) * (at_s - since).max(0.0);
                *last = merge(begin, *last, point);
                self.of_last += 1;
            }
            _ => {
                self.points.push(point);
                self.of_last = 1;
            }
        }
        self.last_at_s = at_s;
        if self.points.len() > SERIES_MAX {
            let mut begin = 0.0;
            let pairs = self.points.chunks(2).map(|pair| {
                let merged = pair.iter().copied().reduce(|one, next| merge(begin, one, next));
                begin = merged.map_or(begin, |point| point.at_s);
                merged
            });
            self.points = pairs.flatten().collect();
            self.parts = self.parts.saturating_mul(2);
            self.of_last = self.parts;
        }
    }
}

/// Two neighbouring points as one; the first one begins at `begin`.
fn merge(begin: f64, one: Point, next: Point) -> Point {
    let (first, second) = ((one.at_s - begin).max(0.0), (next.at_s - one.at_s).max(0.0));
    let whole = (first + second).max(f64::MIN_POSITIVE);
    let mean = |a: f64, b: f64| (a * first + b * second) / whole;
    let operations = [one.iops * first, next.iops * second];
    let mean_us = match (one.mean_us, next.mean_us) {
        (Some(a), Some(b)) if operations[0] + operations[1] > 0.0 => {
            Some((a * operations[0] + b * operations[1]) / (operations[0] + operations[1]))
        }
        (a, b) => a.or(b),
    };
    Point {
        at_s: next.at_s,
        iops: mean(one.iops, next.iops),
        bytes_per_s: mean(one.bytes_per_s, next.bytes_per_s),
        mean_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_bench::LoadPhase as Part;

    #[test]
    fn a_long_series_keeps_its_sum_in_few_points() {
        let mut recorder = Recorder::default();
        let mut bytes = 0.0;
        for tick in 1..=20_000u32 {
            let iops = f64::from(tick % 100);
            bytes += iops * 4096.0 * 0.25;
            recorder.note(&LoadProgress {
                phase: Part::Measure,
                elapsed: Duration::from_millis(u64::from(tick) * 250),
                total: None,
                iops,
                bytes_per_s: iops * 4096.0,
                mean_us: Some(10.0),
                bytes: 0,
                errors: 0,
            });
        }
        let points = &recorder.points;
        assert!(points.len() <= SERIES_MAX && points.len() > SERIES_MAX / 4, "{}", points.len());
        let mut before = 0.0;
        let mut sum = 0.0;
        for point in points {
            assert!(point.at_s > before && (point.mean_us.unwrap() - 10.0).abs() < 1e-6);
            sum += point.bytes_per_s * (point.at_s - before);
            before = point.at_s;
        }
        assert!((sum / bytes - 1.0).abs() < 0.01, "{sum} {bytes}");
        assert_eq!(before, 5000.0);
    }
}
