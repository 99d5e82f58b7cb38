//! The latencies that a load reports, against a device that knows them: each request takes a time
//! of its own, and the device notes when it came and when it was completed.
//!
//! The load begins an operation when it has seen the slot's last completion, and ends it when it
//! sees the next one. So each latency is at least what the device had the request for, and at most
//! the time from the completion before it to the request behind it, however late the load's thread
//! is woken. The first and the last request of each slot fail: failed ones are not counted, and so
//! each one that counts has both neighbours.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "test code")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ebof_backend::{Action, Class, Device, Error, Geometry, Io, Null, Remote, Request, Submitted};
use ebof_bench::{Job, LoadProgress, Mix, Report, Source, run};

const BLOCK_BYTES: u64 = 4096;
/// The percentiles that are compared.
const COMPARED: [f64; 6] = [10.0, 50.0, 90.0, 95.0, 99.0, 99.9];
/// The histogram's share: it keeps three digits.
const QUANTUM: f64 = 0.001;

/// 2 ms in 70 of 100 requests, 5 ms in 20, 20 ms in 9, 50 ms in one, well mixed.
fn delay(index: usize) -> Duration {
    Duration::from_millis(match index * 37 % 100 {
        0..70 => 2,
        70..90 => 5,
        90..99 => 20,
        _ => 50,
    })
}

/// A request: its slot, when it came, and when it was completed.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    slot: u64,
    came: Instant,
    done: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    stamps: Vec<Stamp>,
    /// By the time when they are due, with the index of the stamp.
    under_way: BTreeMap<(Instant, usize), (Request, Remote)>,
    /// The last request of each slot: held until each slot has one and `released` is set, so that
    /// no slot has two.
    last: Vec<(Request, Remote)>,
    released: bool,
    closed: bool,
}

#[derive(Debug)]
struct Known {
    depth: usize,
    /// Requests that succeed.
    count: usize,
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Known {
    fn new(depth: u16, count: usize) -> Self {
        let shared: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let of_thread = Arc::clone(&shared);
        let thread = Some(std::thread::spawn(move || complete_all(&of_thread)));
        Self { depth: depth.into(), count, shared, thread }
    }

    /// Lets the load end.
    fn release(&self) {
        let mut state = self.shared.0.lock().unwrap();
        state.released = true;
        self.end(&mut state);
    }

    fn end(&self, state: &mut State) {
        if state.released && state.last.len() == self.depth {
            for (request, remote) in state.last.drain(..) {
                remote.deliver(request.complete(refused()));
            }
        }
    }

    /// The time that requests which succeeded were in the device, on average, in microseconds.
    fn mean_us(&self) -> f64 {
        let state = self.shared.0.lock().unwrap();
        let counted = &state.stamps[self.depth..self.depth + self.count];
        mean(&counted.iter().map(|stamp| us(stamp.came, stamp.done)).collect::<Vec<_>>())
    }

    /// The same, but with all the time from a slot's first one to its last: the load began each
    /// when it saw the one before, so that only two wake-ups for each slot are uncertain.
    fn chain_us(&self) -> (f64, f64) {
        let state = self.shared.0.lock().unwrap();
        let chains = (0..self.depth as u64).map(|slot| {
            let of: Vec<Stamp> = state.stamps.iter().filter(|stamp| stamp.slot == slot).copied().collect();
            (us(of[1].came, of[of.len() - 2].done), us(of[0].done.unwrap(), Some(of[of.len() - 1].came)))
        });
        let (least, most): (Vec<f64>, Vec<f64>) = chains.unzip();
        (least.iter().sum::<f64>() / float(self.count), most.iter().sum::<f64>() / float(self.count))
    }

    /// Of each request that succeeded, the shortest and the longest latency that can be true, in
    /// microseconds.
    fn bounds(&self) -> Vec<(f64, f64)> {
        let stamps = &self.shared.0.lock().unwrap().stamps;
        let bounds = (self.depth..self.depth + self.count).map(|index| {
            let Stamp { slot, came, done } = stamps[index];
            let before = stamps[..index].iter().rfind(|stamp| stamp.slot == slot).unwrap();
            let behind = stamps[index + 1..].iter().find(|stamp| stamp.slot == slot).unwrap();
            (us(came, done), us(before.done.unwrap(), Some(behind.came)))
        });
        bounds.collect()
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.shared.0.lock().unwrap().closed = true;
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn us(from: Instant, to: Option<Instant>) -> f64 {
    to.unwrap().duration_since(from).as_secs_f64() * 1e6
}

fn refused() -> Result<(), Error> {
    let (action, class, reason) = (Action::Read, Class::Busy, "this one is not counted");
    Err(Error::Refused { action, offset: 0, len: BLOCK_BYTES, class, reason })
}

impl Device for Known {
    fn geometry(&self) -> Geometry {
        Null::new((self.count + 2 * self.depth) as u64 * BLOCK_BYTES, 512, false).geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        let came = Instant::now();
        let mut state = self.shared.0.lock().unwrap();
        let index = state.stamps.len();
        let mut stamp = Stamp { slot: request.tag, came, done: None };
        if index < self.depth {
            stamp.done = Some(came);
            state.stamps.push(stamp);
            return Submitted::Done(request.complete(refused()));
        }
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        state.stamps.push(stamp);
        if index < self.depth + self.count {
            let first = state.under_way.first_key_value().map(|((due, _), _)| *due);
            let due = came + delay(index);
            state.under_way.insert((due, index), (request, remote));
            if first.is_none_or(|first| due < first) {
                self.shared.1.notify_one();
            }
            return Submitted::Pending;
        }
        state.last.push((request, remote));
        self.end(&mut state);
        Submitted::Pending
    }

    fn describe(&self) -> String {
        "a device with known latencies".to_owned()
    }
}

fn complete_all((state, changed): &(Mutex<State>, Condvar)) {
    let mut state = state.lock().unwrap();
    while !state.closed {
        let now = Instant::now();
        let due = state.under_way.first_entry().filter(|first| first.key().0 <= now).map(|first| first.remove_entry());
        let Some(((_, index), (request, remote))) = due else {
            let next = state.under_way.first_key_value().map_or(Duration::from_secs(1), |((due, _), _)| *due - now);
            state = changed.wait_timeout(state, next).unwrap().0;
            continue;
        };
        // Before the load can see it.
        state.stamps[index].done = Some(Instant::now());
        remote.deliver(request.complete(Ok(())));
    }
}

/// The load's report, what it told meanwhile, and the device.
fn measured(depth: u16, count: usize, rate_iops: Option<u64>) -> (Report, Vec<LoadProgress>, Arc<Known>) {
    let device = Arc::new(Known::new(depth, count));
    let source = Source::Device(Arc::clone(&device) as Arc<dyn Device>, "known".to_owned());
    let job = Job { runtime: None, depth, rate_iops, continue_on_error: true, ..Job::new(Mix::Read) };
    let mut told = Vec::new();
    let report = run(&source, &job, |progress| {
        told.push(*progress);
        // Progress is about all that counts, then.
        if progress.bytes == count as u64 * BLOCK_BYTES || progress.elapsed > Duration::from_secs(30) {
            device.release();
        }
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert_eq!((report.total.operations, report.errors), (count as u64, 2 * u64::from(depth)));
    (report, told, device)
}

/// The mean of all that progress told, by its rates and times.
fn mean_of_progress(told: &[LoadProgress]) -> f64 {
    let (mut sum, mut operations, mut before) = (0.0, 0.0, Duration::ZERO);
    for one in told {
        let more = one.iops * (one.elapsed - before).as_secs_f64();
        sum += one.mean_us.unwrap_or(0.0) * more;
        operations += more;
        before = one.elapsed;
    }
    sum / operations
}

/// As in the report: the value that `percent` percent do not exceed.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (float(sorted.len()) * percent / 100.0).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn float(number: usize) -> f64 {
    number as f64
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / float(values.len())
}

/// `count` is such that no compared percentile falls between two operations.
fn check(depth: u16, count: usize) {
    let (report, told, device) = measured(depth, count, None);
    let latency = &report.total.latency;
    let (mut least, mut most): (Vec<f64>, Vec<f64>) = device.bounds().into_iter().unzip();
    let chain = device.chain_us();
    least.sort_by(f64::total_cmp);
    most.sort_by(f64::total_cmp);
    let mut rows = vec![
        ("min".to_owned(), latency.min_us, least[0], most[0]),
        ("mean".to_owned(), latency.mean_us, chain.0, chain.1),
        ("max".to_owned(), latency.max_us, least[count - 1], most[count - 1]),
    ];
    rows.extend(COMPARED.map(|percent| {
        let reported = latency.percentile_us(percent).unwrap();
        (format!("p{percent}"), reported, percentile(&least, percent), percentile(&most, percent))
    }));
    for (name, reported, least, most) in &rows {
        eprintln!("depth {depth:2} {name:5} {reported:9.1} us, by the device {least:9.1} to {most:9.1}");
        let allowed = least * (1.0 - QUANTUM)..=most * (1.0 + QUANTUM);
        assert!(allowed.contains(reported), "depth {depth}, {name}: {reported} us is not within {allowed:?}");
    }
    // The wake-ups are in the mean but for the first and the last of each slot.
    let (error, told) = ((latency.mean_us / chain.0 - 1.0).abs(), mean_of_progress(&told));
    assert!(error < 0.01, "depth {depth}: the mean is off by {error}");
    assert!((told / latency.mean_us - 1.0).abs() < QUANTUM, "depth {depth}: progress says {told} us on average");
}

#[test]
fn latencies_are_those_of_the_device_at_depth_1() {
    check(1, 203);
}

#[test]
fn latencies_are_those_of_the_device_at_depth_16() {
    check(16, 1607);
}

/// Each slot has 20 ms for an operation, four times what the device takes on average.
#[test]
fn pauses_between_operations_at_a_rate_are_not_latency() {
    let (report, told, device) = measured(4, 203, Some(200));
    let (mean_us, told, least) = (report.total.latency.mean_us, mean_of_progress(&told), device.mean_us());
    eprintln!(
        "200 operations in a second: mean {mean_us:.1} us, in progress {told:.1} us, in the device {least:.1} us"
    );
    // The load is woken at most so late, on average, on a machine that is busy.
    let wake_up_us = 2000.0;
    assert!((least * (1.0 - QUANTUM)..=least * 1.01 + wake_up_us).contains(&mean_us), "{mean_us} us, {least} us");
    assert!((told / mean_us - 1.0).abs() < QUANTUM, "{mean_us} us, progress says {told} us on average");
}
