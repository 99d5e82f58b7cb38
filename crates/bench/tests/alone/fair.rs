//! Functions that share a slow drive, over NVMe/TCP and over the in-memory transport, with threads
//! and in real time.
//!
//! What functions get in virtual time, exactly, is tested in `ebof-shares` and `ebof-server`. On a
//! busy machine a host may not be there when it is its turn: each figure has several attempts, and
//! only what never may be is asserted of all of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "test code; the benchmark uses all of what they share"
)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use ebof_bench::{Job, Mix};
use ebof_drive::Share;

#[path = "../../examples/fair/rig.rs"]
mod rig;
#[path = "../../examples/fair/simulated.rs"]
mod simulated;

use rig::{Backing, FUNCTIONS, Rig};

fn reader(depth: u16) -> Job {
    let ramp = Duration::from_millis(300);
    Job { depth, threads: 2, runtime: Some(Duration::from_millis(700)), ramp, ..Job::new(Mix::RandRead) }
}

/// Operations per second of all functions, the first one with another depth.
fn measure(rig: &Rig, first: u16) -> Vec<f64> {
    let jobs: Vec<_> =
        (1..=FUNCTIONS).map(|function| (function, reader(if function == 1 { first } else { 32 }))).collect();
    rig.load(&jobs).iter().map(|report| report.total.iops).collect()
}

/// One test at a time has the machine.
static TURN: Mutex<()> = Mutex::new(());

/// Attempts for a figure that a busy machine may spoil.
const ATTEMPTS: usize = 8;

/// Whether `holds` of what is measured, in one of several attempts.
fn holds_once(rig: &Rig, holds: impl Fn(&[f64]) -> bool) {
    let got: Vec<Vec<f64>> = (0..ATTEMPTS).map_while(|_| Some(measure(rig, 256)).filter(|got| !holds(got))).collect();
    assert!(got.len() < ATTEMPTS, "{got:?}");
}

fn functions_share(mut rig: Rig, in_memory: bool) {
    rig.in_memory = in_memory;
    holds_once(&rig, |got| {
        let mean = got.iter().sum::<f64>() / 5.0;
        got.iter().all(|got| (got / mean - 1.0).abs() < 0.15)
    });
    rig.set_share(1, Share { weight: 4, ..Share::default() });
    rig.set_share(2, Share { iops: Some(1_000), ..Share::default() });
    holds_once(&rig, |got| {
        assert!(got[1] < 1_100.0, "a limit is never exceeded: {got:?}");
        (got[0] / got[3] - 4.0).abs() < 0.6 && got[1] > 900.0
    });
    let loads = rig.target.function_loads();
    assert_eq!(loads.len(), 6, "the primary controller, too");
    assert!(loads[2].throttled_us > 0 && loads[1].queued_us > 0, "{loads:?}");
    assert!(loads.iter().all(|load| load.waiting == 0), "{loads:?}");
    assert!((loads.iter().map(|load| load.part).sum::<f64>() - 1.0).abs() < 1e-6);
}

#[test]
fn functions_share_a_drive_over_tcp_and_in_memory() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for in_memory in [false, true] {
        functions_share(Rig::new(&Backing::Simulated, 2, true), in_memory);
    }
}

/// What a stress test may take before it counts as stuck.
const STUCK: Duration = Duration::from_secs(120);

/// A small generator.
fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// Hosts of four functions come, read or write and leave, over three threads, while shares and
/// limits change and the fifth function is given to a port and taken from it, which changes the
/// model.
fn come_and_go(rig: &Rig) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for function in 1..FUNCTIONS {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut random = 7 * u64::from(function);
                while !is_over.load(Relaxed) {
                    let mix = if next(&mut random).is_multiple_of(4) { Mix::RandRw } else { Mix::RandRead };
                    let block_bytes = if next(&mut random).is_multiple_of(3) { 128 << 10 } else { 4096 };
                    let depth = [1, 8, 64][usize::try_from(next(&mut random) % 3).unwrap()];
                    let runtime = Some(Duration::from_millis(50 + next(&mut random) % 200));
                    let job = Job { block_bytes, depth, threads: 2, runtime, ramp: Duration::ZERO, ..Job::new(mix) };
                    rig.load(&[(function, job)]);
                }
            });
        }
        let mut random = 1;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(4) {
            let rate =
                |random: &mut u64, most: u64| (next(random).is_multiple_of(3)).then(|| 200 + next(random) % most);
            let weight = u16::try_from(1 + next(&mut random) % 1000).unwrap();
            let bytes_per_second = rate(&mut random, 1_000).map(|rate| rate * 100_000);
            let iops = rate(&mut random, 20_000);
            // A minimum above a limit is refused.
            let minimum_iops = if iops.is_none() { rate(&mut random, 5_000) } else { None };
            let share = Share { weight, iops, bytes_per_second, minimum_iops };
            rig.set_share(u16::try_from(1 + next(&mut random) % 4).unwrap(), share);
            if next(&mut random).is_multiple_of(4) {
                rig.give(FUNCTIONS, next(&mut random).is_multiple_of(2));
            }
            std::thread::sleep(Duration::from_millis(next(&mut random) % 10));
        }
        is_over.store(true, Relaxed);
    });
    let loads = rig.target.function_loads();
    assert!(loads.iter().all(|load| load.waiting == 0), "{loads:?}");
    assert!(loads[1..5].iter().all(|load| load.throttled_us > 0 && load.scheduled > 0), "{loads:?}");
}

#[test]
fn no_command_is_forgotten_while_shares_limits_and_functions_change() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (over, is_over) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        come_and_go(&Rig::new(&Backing::Simulated, 3, true));
        over.send(()).unwrap();
    });
    match is_over.recv_timeout(STUCK) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a command was forgotten"),
        _ => thread.join().unwrap(),
    }
}
