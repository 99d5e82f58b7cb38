//! What is measured: the loads, and the figures that are made of their reports.

use std::time::{Duration, Instant};

use ebof_bench::{Job, Mix, Report};
use ebof_drive::Share;

use crate::rig::{FUNCTIONS, Rig};

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Rig, Duration) -> Rows,
}

/// What was measured, and its value.
pub(crate) type Rows = Vec<(&'static str, f64)>;

pub(crate) const ALL: &[Scenario] = &[
    Scenario { name: "equal", run: equal },
    Scenario { name: "deep", run: deep },
    Scenario { name: "large", run: large },
    Scenario { name: "writer", run: writer },
    Scenario { name: "two", run: two },
    Scenario { name: "weights", run: weights },
    Scenario { name: "p99", run: p99 },
    Scenario { name: "limits", run: limits },
    Scenario { name: "converges", run: converges },
    // Only with fio's engine.
    Scenario { name: "fio", run: |_, _| Rows::new() },
];

/// From where to where a figure is as it should be.
pub(crate) fn goal(what: &str) -> Option<(f64, f64)> {
    Some(match what {
        "spread" | "spread of the others" => (0.0, 0.01),
        "Jain" | "Jain, 4K" | "Jain, reads" | "Jain, others" => (0.999, f64::INFINITY),
        "of depth 256, fair: 1" | "cost of 128K, fair: 1" => (0.95, 1.05),
        "both, of one alone" => (0.95, f64::INFINITY),
        "first of mean, wanted: 4" => (3.8, 4.2),
        "times" => (0.0, 3.0),
        "IOPS, limit 5000" => (4_750.0, 5_250.0),
        "bytes/s, limit 20 M" => (19e6, 21e6),
        "3:1 within, ms" => (0.0, 100.0),
        _ => return None,
    })
}

/// What five equal loads have got.
pub(crate) fn spread_of(got: &[f64]) -> Rows {
    vec![("IOPS of all", got.iter().sum()), ("spread", spread(got)), ("Jain", jain(got))]
}

fn job(mix: Mix, runtime: Duration) -> Job {
    let ramp = Duration::from_millis(500);
    Job { block_bytes: 4096, depth: 32, threads: 4, runtime: Some(runtime), ramp, ..Job::new(mix) }
}

/// The jobs of all functions: that of the first one, and that of each other one.
fn jobs(first: Job, others: &Job) -> Vec<(u16, Job)> {
    let others = (2..=FUNCTIONS).map(|function| (function, others.clone()));
    std::iter::once((1, first)).chain(others).collect()
}

fn iops(reports: &[Report]) -> Vec<f64> {
    reports.iter().map(|report| report.total.iops).collect()
}

/// In units of one for the operation and one for each page.
fn cost(reports: &[Report]) -> Vec<f64> {
    reports.iter().map(|report| report.total.iops * (1.0 + f64::from(report.job.block_bytes.div_ceil(4096)))).collect()
}

/// (max - min) / mean.
fn spread(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    (most - least) / mean(values)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / float(values.len())
}

fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    sum * sum / (float(values.len()) * values.iter().map(|value| value * value).sum::<f64>())
}

#[expect(clippy::cast_precision_loss, reason = "a few")]
fn float(count: usize) -> f64 {
    count as f64
}

fn p99_us(report: &Report) -> f64 {
    report.total.latency.percentiles.iter().find(|(percentile, _)| (*percentile - 99.0).abs() < 0.01).unwrap().1
}

fn equal(rig: &Rig, runtime: Duration) -> Rows {
    let reader = job(Mix::RandRead, runtime);
    spread_of(&iops(&rig.load(&jobs(reader.clone(), &reader))))
}

fn deep(rig: &Rig, runtime: Duration) -> Rows {
    let reader = job(Mix::RandRead, runtime);
    let got = iops(&rig.load(&jobs(Job { depth: 256, ..reader.clone() }, &reader)));
    vec![("IOPS of all", got.iter().sum()), ("of depth 256, fair: 1", got[0] / mean(&got[1..])), ("Jain", jain(&got))]
}

fn large(rig: &Rig, runtime: Duration) -> Rows {
    let reader = job(Mix::RandRead, runtime);
    let reports = rig.load(&jobs(Job { block_bytes: 128 << 10, ..reader.clone() }, &reader));
    let got = cost(&reports);
    vec![
        ("128K, bytes/s", reports[0].total.bytes_per_s),
        ("4K, mean IOPS", mean(&iops(&reports[1..]))),
        ("cost of 128K, fair: 1", got[0] / mean(&got[1..])),
        ("Jain, 4K", jain(&got[1..])),
    ]
}

fn writer(rig: &Rig, runtime: Duration) -> Rows {
    let reader = job(Mix::RandRead, runtime);
    let got = iops(&rig.load(&jobs(job(Mix::RandWrite, runtime), &reader)));
    vec![
        ("writes per second", got[0]),
        ("reads, mean IOPS", mean(&got[1..])),
        ("reads per write", mean(&got[1..]) / got[0]),
        ("Jain, reads", jain(&got[1..])),
    ]
}

fn two(rig: &Rig, runtime: Duration) -> Rows {
    let reader = job(Mix::RandRead, runtime);
    let alone = iops(&rig.load(&[(1, Job { threads: 8, ..reader.clone() })]));
    let got = iops(&rig.load(&[(1, reader.clone()), (2, reader)]));
    vec![
        ("IOPS of one alone", alone[0]),
        ("both, of one alone", got.iter().sum::<f64>() / alone[0]),
        ("spread", spread(&got)),
    ]
}

fn weights(rig: &Rig, runtime: Duration) -> Rows {
    rig.set_share(1, Share { weight: 4, ..Share::default() });
    let reader = job(Mix::RandRead, runtime);
    let got = iops(&rig.load(&jobs(reader.clone(), &reader)));
    rig.set_share(1, Share::default());
    vec![("first of mean, wanted: 4", got[0] / mean(&got[1..])), ("Jain, others", jain(&got[1..]))]
}

fn p99(rig: &Rig, runtime: Duration) -> Rows {
    let reader = Job { depth: 1, threads: 1, ..job(Mix::RandRead, runtime) };
    let stream = Job { block_bytes: 128 << 10, depth: 8, threads: 1, ..job(Mix::Read, runtime) };
    let alone = p99_us(&rig.load(&[(1, reader.clone())])[0]);
    let reports = rig.load(&jobs(reader, &stream));
    let beside = p99_us(&reports[0]);
    let streams: f64 = reports[1..].iter().map(|report| report.total.bytes_per_s).sum();
    vec![("alone, us", alone), ("beside streams, us", beside), ("times", beside / alone), ("streams, bytes/s", streams)]
}

fn limits(rig: &Rig, runtime: Duration) -> Rows {
    let reader = job(Mix::RandRead, runtime);
    let mut rows = Rows::new();
    rig.set_share(1, Share { iops: Some(5_000), ..Share::default() });
    rig.set_share(2, Share { bytes_per_second: Some(20_000_000), ..Share::default() });
    let reports = rig.load(&jobs(reader.clone(), &reader));
    rows.push(("IOPS, limit 5000", reports[0].total.iops));
    rows.push(("bytes/s, limit 20 M", reports[1].total.bytes_per_s));
    rows.push(("spread of the others", spread(&iops(&reports[2..]))));
    for function in 1..=2 {
        rig.set_share(function, Share::default());
    }
    rows
}

/// How long a change of weight takes, until the shares within 20 ms are those that were asked for,
/// to within 15 %.
fn converges(rig: &Rig, runtime: Duration) -> Rows {
    const WINDOW: Duration = Duration::from_millis(20);
    let reader = job(Mix::RandRead, runtime);
    let took = std::thread::scope(|scope| {
        scope.spawn(|| rig.load(&[(1, reader.clone()), (2, reader.clone())]));
        std::thread::sleep(Duration::from_millis(500) + runtime / 2);
        rig.set_share(1, Share { weight: 3, ..Share::default() });
        let changed = Instant::now();
        let commands = || [1, 2].map(|function| rig.commands(function));
        let mut before = commands();
        loop {
            std::thread::sleep(WINDOW);
            let now = commands();
            let [first, second] = [0, 1].map(|at| float(usize::try_from(now[at] - before[at]).unwrap()));
            if (first / second - 3.0).abs() < 0.45 {
                break changed.elapsed();
            }
            if changed.elapsed() > runtime / 3 {
                break Duration::MAX;
            }
            before = now;
        }
    });
    rig.set_share(1, Share::default());
    if took == Duration::MAX { Vec::new() } else { vec![("3:1 within, ms", took.as_secs_f64() * 1e3)] }
}
