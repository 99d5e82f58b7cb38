//! Runs jobs: threads, their synchronized start, the progress, the report.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::job::{Job, JobError};
use crate::lane::Lane;
use crate::plan::Plan;
use crate::process::{Cost, Sample};
use crate::report::{Report, float};
use crate::source::{Opened, QueueUse, Source, SourceError};
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
pub enum Phase {
    /// Not measuring yet.
    Ramp,
    /// Measuring.
    Measure,
}

/// The progress of a job, for a live display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The state of the job.
    pub phase: Phase,
    /// Since the start.
    pub elapsed: Duration,
    /// Ramp and runtime together; `None` where the job ends with its size.
    pub total: Option<Duration>,
    /// Operations per second since the last call.
    pub iops: f64,
    /// Bytes per second since the last call.
    pub bytes_per_s: f64,
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
    progress: impl FnMut(&Progress) -> ControlFlow<()>,
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
    mut progress: impl FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Vec<Report>, BenchError> {
    let Some(first) = jobs.first() else { return Ok(Vec::new()) };
    if jobs.iter().any(|job| (job.ramp, job.runtime) != (first.ramp, first.runtime)) {
        return Err(JobError::Together.into());
    }
    if let Some(entries) = queues.size
        && let Some(job) = jobs.iter().find(|job| !queues.shared && job.depth >= entries)
    {
        return Err(JobError::QueueSize { entries, depth: job.depth }.into());
    }
    let opened = source.open(jobs, queues)?;
    let (capacity, unit, transfer_max) = opened.geometry();
    let parts = jobs.iter().map(|job| job.check(capacity, unit, transfer_max)).collect::<Result<Vec<_>, _>>()?;
    let threads = jobs.iter().zip(&parts).enumerate().flat_map(|(group, (job, &part))| {
        (0..job.threads).map(move |thread| JobThread { group, job, part, thread, counters: Counters::default() })
    });
    let job_threads: Vec<JobThread<'_>> = threads.collect();
    let stop = AtomicBool::new(false);
    let start = Start::default();
    let (stats, cost) = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut refused = None;
        for job_thread in &job_threads {
            let opened = &opened;
            let stop = &stop;
            let start = &start;
            let work = move || job_thread.run(opened, stop, start);
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
        let cost = watch(first, &job_threads, &stop, times, &mut progress, || {
            threads.iter().all(|thread| thread.is_finished())
        });
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let stats = joined.collect::<Result<Vec<Stats>, SourceError>>();
        match refused {
            Some(error) => Err(BenchError::Thread(error)),
            None => stats.map(|stats| (stats, cost)).map_err(BenchError::from),
        }
    })?;
    let mut by_job: Vec<Vec<Stats>> = jobs.iter().map(|_| Vec::new()).collect();
    for (job_thread, stats) in job_threads.iter().zip(stats) {
        by_job[job_thread.group].push(stats);
    }
    let reports = jobs.iter().zip(by_job);
    Ok(reports.map(|(job, stats)| Report::new(source.describe(), job.clone(), stats, cost)).collect())
}

/// A thread of a job, with its counters.
struct JobThread<'a> {
    /// The job's index.
    group: usize,
    job: &'a Job,
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
    fn run(&self, opened: &Opened, stop: &AtomicBool, start: &Start) -> Result<Stats, SourceError> {
        let Self { job, part, thread, counters, .. } = self;
        if let Some(count) = NonZeroUsize::new(job.processors.len()) {
            stay_on(job.processors[usize::from(*thread) % count]);
        }
        let lane = Lane::open(opened, job, usize::try_from(job.block_bytes).unwrap_or(0));
        let plan = Plan::new(job, *thread, part.0, part.1);
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
    job: &Job,
    job_threads: &[JobThread<'_>],
    stop: &AtomicBool,
    times: Times,
    progress: &mut impl FnMut(&Progress) -> ControlFlow<()>,
    done: impl Fn() -> bool,
) -> Option<Cost> {
    let sum = |pick: fn(&Counters) -> &AtomicU64| -> u64 {
        job_threads.iter().map(|job_thread| pick(&job_thread.counters).load(Ordering::Relaxed)).sum()
    };
    let sample = || Sample::new(sum(|one| &one.operations));
    let mut begun = None;
    let mut ended = None;
    let started = Instant::now();
    let mut last = (started, 0, 0);
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
        let since = now.duration_since(last.0);
        if since < TICK {
            continue;
        }
        let operations = sum(|one| &one.operations);
        let bytes = sum(|one| &one.bytes);
        let per_second = |more: u64| float(more) / since.as_secs_f64();
        let told = progress(&Progress {
            phase: if now < times.measure_from { Phase::Ramp } else { Phase::Measure },
            elapsed: now.duration_since(started),
            total: job.runtime.map(|runtime| runtime + job.ramp),
            iops: per_second(operations - last.1),
            bytes_per_s: per_second(bytes - last.2),
            bytes,
            errors: sum(|one| &one.errors),
        });
        if told.is_break() {
            stop.store(true, Ordering::Relaxed);
        }
        last = (now, operations, bytes);
    }
    begun.map(|begun| begun.until(ended.unwrap_or_else(sample)))
}
