//! Runs jobs: threads, their synchronized start, the progress, the report.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::job::plan::ThreadPlan;
use crate::job::{Job, JobError};
use crate::lane::Lane;
use crate::process::{Cost, Sample, float};
use crate::report::Report;
use crate::source::{OpenedSource, QueueUse, Source, SourceError};
use crate::worker::{Counters, Stats, Times, Worker};

/// The error of a run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The job is invalid for this medium.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The medium cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A thread could not be started.
    #[error("a thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPhase {
    /// Not measuring yet.
    Ramp,
    /// Measuring.
    Measure,
}

/// The progress of a job, for a live display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadProgress {
    /// The state of the job.
    pub phase: LoadPhase,
    /// Since the start.
    pub elapsed: Duration,
    /// Ramp and runtime together; `None` where the job ends with its size.
    pub total: Option<Duration>,
    /// Operations per second since the last call.
    pub iops: f64,
    /// Bytes per second since the last call.
    pub bytes_per_s: f64,
    /// Mean latency since the last call, in microseconds; `None` if nothing was completed.
    pub mean_us: Option<f64>,
    /// Bytes since the start.
    pub bytes: u64,
    /// Failed operations since the start.
    pub errors: u64,
}

/// Time between two calls of the progress function.
const TICK: Duration = Duration::from_millis(250);

/// Runs `job` against `source`; `progress` is called about four times a second, and ends the job
/// early by `Break`.
///
/// Failed operations are no error here: the report counts them and contains the first.
///
/// # Errors
/// The job does not fit the medium, or the medium cannot be opened.
pub fn run(
    source: &Source,
    job: &Job,
    progress: impl FnMut(&LoadProgress) -> ControlFlow<()>,
) -> Result<Report, BenchError> {
    let mut reports = run_together(source, std::slice::from_ref(job), QueueUse::default(), progress)?;
    Ok(reports.pop().expect("one job has one report"))
}

/// As [`run`], for several jobs at the same time over one controller or on one local device. All
/// threads start together, and there is a report for each job.
///
/// # Errors
/// As [`run`]; also if the jobs differ in ramp or runtime.
pub fn run_together(
    source: &Source,
    jobs: &[Job],
    queues: QueueUse,
    mut progress: impl FnMut(&LoadProgress) -> ControlFlow<()>,
) -> Result<Vec<Report>, BenchError> {
    let reports =
        run_all(&[Load { source, jobs, queues }], |all| all.first().map_or(ControlFlow::Continue(()), &mut progress))?;
    Ok(reports.into_iter().flatten().collect())
}

/// What runs on one source, for [`run_all`].
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The source.
    pub source: &'a Source,
    /// The jobs that run on it.
    pub jobs: &'a [Job],
    /// The queues that they use.
    pub queues: QueueUse,
}

/// As [`run_together`], on several sources at the same time, each opened for itself, as by a host
/// of its own. `progress` has an entry for each load; the result has the reports of each.
///
/// # Errors
/// As [`run_together`].
pub fn run_all(
    loads: &[Load<'_>],
    mut progress: impl FnMut(&[LoadProgress]) -> ControlFlow<()>,
) -> Result<Vec<Vec<Report>>, BenchError> {
    let Some(first) = loads.iter().find_map(|load| load.jobs.first()) else {
        return Ok(loads.iter().map(|_| Vec::new()).collect());
    };
    for load in loads {
        check(load, first)?;
    }
    let opened = loads.iter().map(Opening::open).collect::<Result<Vec<_>, _>>()?;
    let job_threads: Vec<JobThread<'_>> =
        loads.iter().enumerate().flat_map(|(load, one)| threads_of(load, one.jobs, &opened[load])).collect();
    let (stats, costs) = run_threads(first, loads.len(), &job_threads, &mut progress)?;
    let mut all: Vec<Vec<Vec<Stats>>> =
        loads.iter().map(|load| load.jobs.iter().map(|_| Vec::new()).collect()).collect();
    for (thread, stats) in job_threads.iter().zip(stats) {
        all[thread.load][thread.group].push(stats);
    }
    let reports = loads.iter().zip(all).map(|(load, by_job)| {
        let source = load.source.describe();
        let jobs = load.jobs.iter().zip(by_job);
        jobs.map(|(job, stats)| Report::new(source.clone(), job.clone(), stats, costs)).collect()
    });
    Ok(reports.collect())
}

/// Checks what does not depend on the medium.
fn check(load: &Load<'_>, first: &Job) -> Result<(), JobError> {
    if load.jobs.iter().any(|job| (job.ramp, job.runtime) != (first.ramp, first.runtime)) {
        return Err(JobError::Together);
    }
    let queues = load.queues;
    let deep = |entries: u16| load.jobs.iter().find(|job| !queues.shared && job.depth >= entries);
    match queues.size.and_then(|entries| Some((entries, deep(entries)?))) {
        Some((entries, job)) => Err(JobError::QueueSize { entries, depth: job.depth }),
        None => Ok(()),
    }
}

/// An open source, with the part of it that each job uses.
struct Opening {
    opened: OpenedSource,
    parts: Vec<(u64, u64)>,
}

impl Opening {
    fn open(load: &Load<'_>) -> Result<Self, BenchError> {
        let opened = load.source.open(load.jobs, load.queues)?;
        let (capacity, unit, transfer_max) = opened.geometry();
        let parts = load.jobs.iter().map(|job| job.check(capacity, unit, transfer_max));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { opened, parts })
    }
}

fn threads_of<'a>(load: usize, jobs: &'a [Job], opening: &'a Opening) -> impl Iterator<Item = JobThread<'a>> {
    jobs.iter().zip(&opening.parts).enumerate().flat_map(move |(group, (job, &part))| {
        let opened = &opening.opened;
        (0..job.threads).map(move |thread| JobThread {
            load,
            group,
            job,
            opened,
            part,
            thread,
            counters: Counters::default(),
        })
    })
}

/// Starts the threads, watches them, and collects what they measured; with the CPU time of the
/// process meanwhile.
fn run_threads(
    first: &Job,
    loads: usize,
    job_threads: &[JobThread<'_>],
    progress: &mut impl FnMut(&[LoadProgress]) -> ControlFlow<()>,
) -> Result<(Vec<Stats>, Option<Cost>), BenchError> {
    let stop = AtomicBool::new(false);
    let start = Start::default();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut refused = None;
        for job_thread in job_threads {
            let (stop, start) = (&stop, &start);
            let work = move || job_thread.run(stop, start);
            match std::thread::Builder::new().name(format!("ebof-bench{}", threads.len())).spawn_scoped(scope, work) {
                Ok(handle) => threads.push(handle),
                Err(error) => {
                    refused = Some(error);
                    stop.store(true, Ordering::Relaxed);
                    break;
                }
            }
        }
        let times = start.begin(first, threads.len());
        let cost = watch((first, loads, job_threads), &stop, times, progress, || {
            threads.iter().all(|thread| thread.is_finished())
        });
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let stats = joined.collect::<Result<Vec<Stats>, SourceError>>();
        match refused {
            Some(error) => Err(BenchError::Thread(error)),
            None => stats.map(|stats| (stats, cost)).map_err(BenchError::from),
        }
    })
}

/// A thread of a job, with its counters.
struct JobThread<'a> {
    /// The load's index.
    load: usize,
    /// The job's index.
    group: usize,
    job: &'a Job,
    opened: &'a OpenedSource,
    part: (u64, u64),
    thread: u16,
    counters: Counters,
}

/// Starts all threads together, once each has opened the medium (or failed to).
#[derive(Default)]
struct Start {
    state: Mutex<(usize, Option<Times>)>,
    changed: Condvar,
}

impl Start {
    /// Waits for `threads` threads and starts them.
    fn begin(&self, job: &Job, threads: usize) -> Times {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.0 < threads {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let measure_from = Instant::now() + job.ramp;
        let times = Times { measure_from, stop_at: job.runtime.map(|runtime| measure_from + runtime) };
        state.1 = Some(times);
        self.changed.notify_all();
        times
    }

    /// Called by each thread: reports that it is ready, and waits for the others.
    fn arrive(&self) -> Times {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        self.changed.notify_all();
        loop {
            if let Some(times) = state.1 {
                return times;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl JobThread<'_> {
    /// The thread's main function.
    fn run(&self, stop: &AtomicBool, start: &Start) -> Result<Stats, SourceError> {
        let Self { job, opened, part, thread, counters, .. } = self;
        if let Some(count) = NonZeroUsize::new(job.processors.len()) {
            stay_on(job.processors[usize::from(*thread) % count]);
        }
        let lane = Lane::open(opened, job, usize::try_from(job.block_bytes).unwrap_or(0));
        let plan = ThreadPlan::new(job, *thread, part.0, part.1);
        let worker = lane.map(|lane| Worker::new(lane, plan, job, *part, stop, counters));
        let times = start.arrive();
        worker.map(|worker| worker.run(times)).inspect_err(|_| stop.store(true, Ordering::Relaxed))
    }
}

/// Binds the calling thread to one processor, if it exists and the system permits that.
pub(crate) fn stay_on(processor: usize) {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor % processors.min(rustix::thread::CpuSet::MAX_CPU));
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Calls `progress` until all threads have ended; returns the CPU time of the process while they
/// measured.
fn watch(
    (job, loads, job_threads): (&Job, usize, &[JobThread<'_>]),
    stop: &AtomicBool,
    times: Times,
    progress: &mut impl FnMut(&[LoadProgress]) -> ControlFlow<()>,
    done: impl Fn() -> bool,
) -> Option<Cost> {
    let sample = || Sample::new((0..loads).map(|load| Sums::collect(load, job_threads).operations).sum());
    let mut begun = None;
    let mut ended = None;
    let started = Instant::now();
    let mut last = started;
    let mut sums = vec![Sums::default(); loads];
    while !done() {
        // Short, so that the end of a short job is noticed soon; measurements do not depend on it.
        std::thread::sleep(Duration::from_millis(10));
        let now = Instant::now();
        if begun.is_none() && now >= times.measure_from {
            begun = Some(sample());
        }
        if ended.is_none() && times.stop_at.is_some_and(|at| now >= at) {
            // Sampled before the data are read back.
            ended = Some(sample());
        }
        let since = now.duration_since(last);
        if since < TICK {
            continue;
        }
        let phase = if now < times.measure_from { LoadPhase::Ramp } else { LoadPhase::Measure };
        let elapsed = now.duration_since(started);
        let total = job.runtime.map(|runtime| runtime + job.ramp);
        let all = sums.iter_mut().enumerate().map(|(load, before)| {
            let sums = Sums::collect(load, job_threads);
            let more = sums.since(std::mem::replace(before, sums));
            let per_second = |more: u64| float(more) / since.as_secs_f64();
            LoadProgress {
                phase,
                elapsed,
                total,
                iops: per_second(more.operations),
                bytes_per_s: per_second(more.bytes),
                mean_us: (more.operations > 0).then(|| float(more.latency_ns) / float(more.operations) / 1000.0),
                bytes: sums.bytes,
                errors: sums.errors,
            }
        });
        if progress(&all.collect::<Vec<_>>()).is_break() {
            stop.store(true, Ordering::Relaxed);
        }
        last = now;
    }
    begun.map(|begun| begun.until(ended.unwrap_or_else(sample)))
}

/// The counters of all threads of a load.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    operations: u64,
    bytes: u64,
    latency_ns: u64,
    errors: u64,
}

impl Sums {
    fn collect(load: usize, job_threads: &[JobThread<'_>]) -> Self {
        let sum = |pick: fn(&Counters) -> &AtomicU64| {
            let threads = job_threads.iter().filter(|thread| thread.load == load);
            threads.map(|thread| pick(&thread.counters).load(Ordering::Relaxed)).fold(0, u64::saturating_add)
        };
        Self {
            operations: sum(|one| &one.operations),
            bytes: sum(|one| &one.bytes),
            latency_ns: sum(|one| &one.latency_ns),
            errors: sum(|one| &one.errors),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            operations: self.operations - before.operations,
            bytes: self.bytes - before.bytes,
            latency_ns: self.latency_ns.saturating_sub(before.latency_ns),
            errors: self.errors - before.errors,
        }
    }
}
