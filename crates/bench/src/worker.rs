//! One thread of a load: submits, waits, counts. The clock is read once per iteration, not per
//! operation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::block::Block;
use crate::job::Job;
use crate::job::plan::{Next, ThreadPlan};
use crate::lane::{Lane, LaneCompletion};
use crate::pattern;

/// Counters of a thread, for the progress line. Written by that thread only.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) operations: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// The latencies of all operations together.
    pub(crate) latency_ns: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// The measurements of one direction.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Latencies in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

/// The measurements of a thread.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) read: Measured,
    pub(crate) write: Measured,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) verified_bytes: u64,
    /// CPU time while measuring.
    pub(crate) cpu: Duration,
    /// Maximum number of outstanding operations.
    pub(crate) depth: u16,
    /// From the end of the ramp to the last operation that counts.
    pub(crate) measured: Duration,
}

/// When to begin measuring and when to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) measure_from: Instant,
    pub(crate) stop_at: Option<Instant>,
}

/// The longest latency that is recorded: 100 s, with three significant digits.
const LATENCY_MAX_NS: u64 = 100_000_000_000;
/// Maximum time of a wait, so that a request to stop is noticed.
const LOOK_AROUND: Duration = Duration::from_millis(100);

impl Measured {
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("1 to 100 s with three digits is legal");
        Self { latency, operations: 0, bytes: 0 }
    }
}

impl Stats {
    pub(crate) fn new() -> Self {
        Self {
            read: Measured::new(),
            write: Measured::new(),
            errors: 0,
            first_error: None,
            verified_bytes: 0,
            cpu: Duration::ZERO,
            depth: 0,
            measured: Duration::ZERO,
        }
    }

    fn fail(&mut self, error: String) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }
}

/// The state of a thread.
pub(crate) struct Worker<'a> {
    lane: Lane,
    plan: ThreadPlan,
    job: &'a Job,
    stop: &'a AtomicBool,
    counters: &'a Counters,
    /// Slots that are free, with their buffers.
    idle: Vec<(u64, Block)>,
    /// The next operation, if it is not due yet.
    held: Option<Next>,
    /// By slot.
    outstanding: Vec<Outstanding>,
    in_flight: usize,
    /// Completed operations that are not counted yet.
    completed: Vec<LaneCompletion>,
    written: Written,
    stats: Stats,
    failed: bool,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        lane: Lane,
        plan: ThreadPlan,
        job: &'a Job,
        part: (u64, u64),
        stop: &'a AtomicBool,
        counters: &'a Counters,
    ) -> Self {
        let length = usize::try_from(job.block_bytes).unwrap_or(0);
        let depth = usize::from(job.depth).min(lane.capacity());
        let mut idle: Vec<(u64, Block)> = (0..).zip(lane.blocks(length, depth)).collect();
        for (slot, block) in &mut idle {
            // Not zeros: some media handle those faster.
            pattern::fill(job.seed, *slot * u64::from(job.block_bytes), block.as_mut());
        }
        let now = Instant::now();
        let stats = Stats { depth: u16::try_from(depth).unwrap_or(u16::MAX), ..Stats::new() };
        Self {
            lane,
            plan,
            job,
            stop,
            counters,
            idle,
            held: None,
            outstanding: vec![
                Outstanding { next: Next { write: false, offset: 0 }, since: now, is_known: false };
                depth
            ],
            in_flight: 0,
            completed: Vec::with_capacity(depth),
            written: Written::new(job, part.0, part.1),
            stats,
            failed: false,
        }
    }

    /// Runs the load to its end, and then verifies what was written, if requested.
    pub(crate) fn run(mut self, times: Times) -> Stats {
        let mut now = Instant::now();
        let mut more = true;
        let mut measuring = false;
        let mut cpu_from = ebof_idle::cpu_time();
        let mut paced = Pace::new(self.job, now);
        loop {
            if !measuring && now >= times.measure_from {
                measuring = true;
                cpu_from = ebof_idle::cpu_time();
            }
            more &= !self.failed && !self.stop.load(Ordering::Relaxed) && times.stop_at.is_none_or(|at| now < at);
            let pause = if more { self.submit_all(now, &mut paced, &mut more) } else { LOOK_AROUND };
            if self.in_flight == 0 && !more {
                break;
            }
            let deadline = now + pause.min(LOOK_AROUND);
            let waited = self.lane.wait(deadline);
            let waited = waited.map(|first| first.map(|first| self.gather(first)));
            // Behind the last of them: an operation that is completed after this time would seem
            // shorter than it was.
            now = Instant::now();
            match waited {
                Ok(Some(())) => self.take_all(now, measuring, times),
                Ok(None) => {
                    // A lane without operations does not wait. Operations that are started next
                    // begin after the pause.
                    if self.in_flight == 0 && now < deadline {
                        std::thread::sleep(deadline - now);
                        now = Instant::now();
                    }
                }
                Err(error) => {
                    self.stats.fail(error);
                    self.failed |= !self.job.continue_on_error;
                    // A failed lane returns no completions.
                    if self.failed || self.in_flight > 0 {
                        break;
                    }
                }
            }
        }
        let end = times.stop_at.map_or(now, |at| now.min(at));
        self.stats.measured = end.saturating_duration_since(times.measure_from);
        self.stats.cpu = ebof_idle::cpu_time().saturating_sub(cpu_from);
        if self.job.verify && self.job.rw.writes() && !self.failed {
            self.read_back();
        }
        self.stats
    }

    /// Submits as much as depth and rate allow; returns the maximum time to wait.
    fn submit_all(&mut self, now: Instant, paced: &mut Pace, more: &mut bool) -> Duration {
        while let Some((slot, mut block)) = self.idle.pop() {
            let Some(next) = self.held.take().or_else(|| self.plan.next()) else {
                self.idle.push((slot, block));
                *more = false;
                return LOOK_AROUND;
            };
            let wait = paced.wait(next.write, now);
            if wait > Duration::ZERO {
                self.idle.push((slot, block));
                self.held = Some(next);
                return wait;
            }
            if next.write && self.job.verify {
                pattern::fill(self.job.seed, next.offset, block.as_mut());
            }
            let is_known = !next.write && self.job.verify && self.written.expects(next.offset);
            if !self.start(Outstanding { next, since: now, is_known }, slot, block) {
                *more &= self.job.continue_on_error;
                return LOOK_AROUND;
            }
            paced.took_one(next.write);
        }
        LOOK_AROUND
    }

    fn start(&mut self, operation: Outstanding, slot: u64, block: Block) -> bool {
        self.outstanding[usize::try_from(slot).unwrap_or(0)] = operation;
        match self.lane.submit(operation.next, slot, block) {
            Ok(()) => {
                self.in_flight += 1;
                true
            }
            Err((error, block)) => {
                self.stats.fail(error);
                self.idle.push((slot, block));
                self.failed |= !self.job.continue_on_error;
                false
            }
        }
    }

    /// Takes all operations that are completed from the lane; `first` is one.
    fn gather(&mut self, first: LaneCompletion) {
        self.completed.push(first);
        while let Some(next) = self.lane.next_ready() {
            self.completed.push(next);
        }
    }

    /// Counts the gathered operations, which were all completed at `now`.
    fn take_all(&mut self, now: Instant, measuring: bool, times: Times) {
        let counts = measuring && times.stop_at.is_none_or(|at| now <= at);
        let mut operations = 0;
        let mut errors = 0;
        let mut latency_ns: u64 = 0;
        while let Some(one) = self.completed.pop() {
            operations += 1;
            errors += u64::from(one.result.is_err());
            latency_ns = latency_ns.wrapping_add(self.take(one, now, counts));
        }
        // One writer: a plain load and store, no read-modify-write.
        let add = |counter: &AtomicU64, more| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&self.counters.latency_ns, latency_ns);
        add(&self.counters.operations, operations - errors);
        add(&self.counters.bytes, (operations - errors) * u64::from(self.job.block_bytes));
        add(&self.counters.errors, errors);
    }

    /// Counts an operation, and returns its latency; 0 if it failed.
    fn take(&mut self, done: LaneCompletion, now: Instant, counts: bool) -> u64 {
        self.in_flight -= 1;
        let mut latency_ns = 0;
        let Outstanding { next, since, is_known } = self.outstanding[usize::try_from(done.slot).unwrap_or(0)];
        match done.result {
            Ok(()) => {
                latency_ns = u64::try_from(now.saturating_duration_since(since).as_nanos()).unwrap_or(u64::MAX);
                if counts {
                    let side = if next.write { &mut self.stats.write } else { &mut self.stats.read };
                    side.latency.saturating_record(latency_ns);
                    side.operations += 1;
                    side.bytes += u64::from(self.job.block_bytes);
                }
                if next.write {
                    self.written.note(next.offset);
                } else if is_known {
                    self.compare(next.offset, done.block.as_ref());
                }
            }
            Err(error) => {
                self.stats.fail(error);
                self.failed |= !self.job.continue_on_error;
            }
        }
        self.idle.push((done.slot, done.block));
        latency_ns
    }

    fn compare(&mut self, offset: u64, bytes: &[u8]) {
        match pattern::first_difference(self.job.seed, offset, bytes) {
            None => self.stats.verified_bytes += bytes.len() as u64,
            Some(at) => {
                self.stats.fail(format!("verify: the byte at offset {at} is not what was written there"));
                self.failed |= !self.job.continue_on_error;
            }
        }
    }

    /// Reads everything that was written and verifies it.
    fn read_back(&mut self) {
        let mut offsets = std::mem::take(&mut self.written).offsets();
        let mut more = true;
        while more || self.in_flight > 0 {
            let now = Instant::now();
            while more && let Some((slot, block)) = self.idle.pop() {
                match offsets.next().filter(|_| !self.failed) {
                    Some(offset) => {
                        let next = Next { write: false, offset };
                        more = self.start(Outstanding { next, since: now, is_known: true }, slot, block);
                    }
                    None => {
                        self.idle.push((slot, block));
                        more = false;
                    }
                }
            }
            let mut done = match self.lane.wait(now + LOOK_AROUND) {
                Ok(done) => done,
                Err(error) => return self.stats.fail(error),
            };
            while let Some(one) = done {
                self.in_flight -= 1;
                let offset = self.outstanding[usize::try_from(one.slot).unwrap_or(0)].next.offset;
                match one.result {
                    Ok(()) => self.compare(offset, one.block.as_ref()),
                    Err(error) => self.stats.fail(error),
                }
                self.idle.push((one.slot, one.block));
                done = self.lane.next_ready();
            }
        }
    }
}

/// An operation that was started.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    next: Next,
    since: Instant,
    /// It reads a block that has been written. That was so when it was started: a read beside the
    /// first write of its block may have been before it, also if it completes later.
    is_known: bool,
}

/// The blocks that this thread has written.
#[derive(Debug, Default)]
struct Written {
    bits: Vec<u64>,
    start: u64,
    block: u64,
    /// All of them: a job that only reads expects the pattern everywhere.
    everything: bool,
}

impl Written {
    fn new(job: &Job, start: u64, size: u64) -> Self {
        let block = u64::from(job.block_bytes);
        let tracked = job.verify && job.rw.writes();
        let words = if tracked { usize::try_from((size / block).div_ceil(64)).unwrap_or(0) } else { 0 };
        Self { bits: vec![0; words], start, block, everything: !job.rw.writes() }
    }

    /// Index of the word, and the bit in it, of the block at `offset`.
    fn word_and_bit(&self, offset: u64) -> (usize, u64) {
        let index = (offset - self.start) / self.block;
        (usize::try_from(index / 64).unwrap_or(usize::MAX), 1 << (index % 64))
    }

    fn note(&mut self, offset: u64) {
        if self.bits.is_empty() {
            return;
        }
        let (word, bit) = self.word_and_bit(offset);
        if let Some(word) = self.bits.get_mut(word) {
            *word |= bit;
        }
    }

    fn expects(&self, offset: u64) -> bool {
        let (word, bit) = self.word_and_bit(offset);
        self.everything || self.bits.get(word).is_some_and(|word| word & bit != 0)
    }

    fn offsets(self) -> impl Iterator<Item = u64> {
        let Self { bits, start, block, .. } = self;
        bits.into_iter().enumerate().flat_map(move |(word, bits)| {
            let set = (0..64u64).filter(move |bit| bits >> bit & 1 != 0);
            set.map(move |bit| start + (word as u64 * 64 + bit) * block)
        })
    }
}

/// Limits the rates of reads and of writes separately, as fio does: an operation is due at fixed
/// intervals, and operations that were missed in a stall are not caught up.
struct Pace {
    /// Intervals of reads and of writes.
    every: [Option<Duration>; 2],
    due: [Instant; 2],
}

impl Pace {
    fn new(job: &Job, now: Instant) -> Self {
        const SECOND_NS: u128 = 1_000_000_000;
        let every = |rate: Option<u64>| {
            let by_bytes = rate.map(|rate| u128::from(job.block_bytes) * SECOND_NS / u128::from(rate.max(1)));
            let by_operations = job.rate_iops.map(|rate| SECOND_NS / u128::from(rate.max(1)));
            // The stricter limit applies.
            by_bytes.max(by_operations).map(|ns| Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
        };
        Self { every: [every(job.rate.read), every(job.rate.write)], due: [now; 2] }
    }

    fn wait(&mut self, write: bool, now: Instant) -> Duration {
        let side = usize::from(write);
        if self.every[side].is_none() {
            return Duration::ZERO;
        }
        self.due[side] = self.due[side].max(now.checked_sub(LOOK_AROUND).unwrap_or(now));
        self.due[side].saturating_duration_since(now)
    }

    fn took_one(&mut self, write: bool) {
        let side = usize::from(write);
        if let Some(every) = self.every[side] {
            self.due[side] += every;
        }
    }
}
