//! Loads against local devices: counting, verification, rates and ends.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ebof_backend::Spec;
use ebof_bench::{BenchError, Job, JobError, Load, LoadProgress, Mix, QueueUse, Source, corner, run, run_all};

fn quiet(_: &LoadProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn once(rw: Mix) -> Job {
    Job { runtime: None, depth: 8, ..Job::new(rw) }
}

#[test]
fn a_sequential_job_covers_the_medium_once() {
    let source = Source::Local(Spec::null(1 << 20));
    let report = run(&source, &Job { threads: 2, ..once(Mix::Read) }, quiet).unwrap();
    assert_eq!((report.total.operations, report.total.bytes, report.errors), (256, 1 << 20, 0));
    assert!(report.write.is_none());
    assert!(report.total.latency.mean_us > 0.0 && report.elapsed_s > 0.0);
    let bounds = report.total.latency.percentiles.windows(2);
    assert!(bounds.into_iter().all(|pair| pair[0].1 <= pair[1].1));
}

#[test]
fn data_written_to_a_file_are_verified() {
    let directory = tempfile::tempdir().unwrap();
    let spec: Spec = format!("{}:1Mi", directory.path().join("disk.img").display()).parse().unwrap();
    let source = Source::Local(spec);
    for rw in [Mix::Write, Mix::RandWrite, Mix::RandRw] {
        let report = run(&source, &Job { verify: true, threads: 2, ..once(rw) }, quiet).unwrap();
        assert_eq!((report.errors, &report.first_error), (0, &None), "{rw}");
        assert!(report.verified_bytes >= 4096, "{rw}");
    }
    let report = run(&source, &Job { verify: true, ..once(Mix::Write) }, quiet).unwrap();
    assert_eq!(report.verified_bytes, 1 << 20);
    // A job that only reads finds the same pattern; with another seed it finds another.
    let report = run(&source, &Job { verify: true, ..once(Mix::RandRead) }, quiet).unwrap();
    assert_eq!((report.errors, report.verified_bytes), (0, 1 << 20));
    let other = Job { verify: true, seed: 1, continue_on_error: true, ..once(Mix::Read) };
    assert_eq!(run(&source, &other, quiet).unwrap().errors, 256);
}

/// A drive in memory reports what is done at once in the opposite order.
#[test]
fn a_read_started_before_the_first_write_of_its_block_may_find_either() {
    let source = Source::Local(Spec::memory(64 << 10));
    for seed in 0..10 {
        let runtime = Some(Duration::from_millis(50));
        let job = Job { verify: true, depth: 16, seed, runtime, ..once(Mix::RandRw) };
        let report = run(&source, &job, quiet).unwrap();
        assert_eq!((report.errors, report.first_error), (0, None), "seed {seed}");
        assert!(report.verified_bytes > 0);
    }
}

#[test]
fn a_medium_that_loses_writes_is_detected_and_ends_the_job() {
    let source = Source::Local(Spec::null(1 << 20));
    let report = run(&source, &Job { verify: true, ..once(Mix::Write) }, quiet).unwrap();
    let error = report.first_error.unwrap();
    assert!(error.starts_with("verify: the byte at offset "), "{error}");
    assert!(report.errors >= 1 && report.verified_bytes == 0);
}

#[test]
fn errors_of_the_medium_are_counted() {
    let mut spec = Spec::memory(1 << 20);
    spec.read_only = true;
    let job = once(Mix::Write);
    let report = run(&Source::Local(spec.clone()), &job, quiet).unwrap();
    assert_eq!(report.first_error.as_deref(), Some("write refused: the device was opened read-only"));
    assert_eq!(report.total.operations, 0);
    let report = run(&Source::Local(spec), &Job { continue_on_error: true, ..job }, quiet).unwrap();
    assert_eq!(report.errors, 256);
}

#[test]
fn runtime_ramp_time_and_rate_are_respected() {
    let source = Source::Local(Spec::memory(1 << 20));
    let mut job = Job { depth: 4, ..Job::new(Mix::RandRead) };
    job.runtime = Some(Duration::from_millis(600));
    job.ramp = Duration::from_millis(200);
    job.rate_iops = Some(1000);
    let started = Instant::now();
    let mut ticks = 0;
    let report = run(&source, &job, |progress| {
        ticks += 1;
        assert_eq!(progress.total, Some(Duration::from_millis(800)));
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(800));
    assert!((0.55..=0.61).contains(&report.elapsed_s), "{}", report.elapsed_s);
    assert!((200.0..=1100.0).contains(&report.total.iops), "{}", report.total.iops);
    assert!(ticks >= 2);
    assert!(report.cpu_percent < 50.0, "a paced job sleeps: {} %", report.cpu_percent);
}

#[test]
fn latencies_of_a_paced_job_are_without_its_pauses() {
    let source = Source::Local(Spec::memory(1 << 20));
    let mut job = Job::new(Mix::RandRead);
    job.runtime = Some(Duration::from_millis(600));
    job.rate_iops = Some(50);
    let report = run(&source, &job, quiet).unwrap();
    // An operation is due every 20 ms. Half of them may be late on a busy machine.
    let median_us = report.read.unwrap().latency.percentile_us(50.0).unwrap();
    assert!(median_us < 2000.0, "{median_us} us");
}

#[test]
fn several_sources_run_at_the_same_time_and_report_for_themselves() {
    let sources = ["mem:1Mi", "null:1Gi"].map(|text| Source::Local(text.parse().unwrap()));
    let jobs = [Job { runtime: Some(Duration::from_millis(600)), ..Job::new(Mix::RandRead) }];
    let loads = sources.each_ref().map(|source| Load { source, jobs: &jobs, queues: QueueUse::default() });
    let mut told = Vec::new();
    let reports = run_all(&loads, |all| {
        told.push(all.to_vec());
        ControlFlow::Continue(())
    });
    let reports = reports.unwrap();
    assert_eq!(reports.iter().map(|of| of[0].source.as_str()).collect::<Vec<_>>(), ["mem", "null"]);
    assert!(reports.iter().all(|of| of.len() == 1 && of[0].total.operations > 0));
    let last = told.last().unwrap();
    // Both are told, each with its own mean, which is near that of the report.
    assert_eq!(last.len(), 2);
    for (one, reports) in last.iter().zip(&reports) {
        let (mean, report) = (one.mean_us.unwrap(), reports[0].total.latency.mean_us);
        assert!(one.iops > 0.0 && mean > 0.0 && mean < 20.0 * report, "{mean} {report}");
    }
    assert!(run_all(&[], |_| ControlFlow::Continue(())).unwrap().is_empty());
}

#[test]
fn a_job_can_be_stopped_early() {
    let source = Source::Local(Spec::memory(1 << 20));
    let job = Job { runtime: Some(Duration::from_secs(600)), threads: 2, ..Job::new(Mix::RandRw) };
    let report = run(&source, &job, |_| ControlFlow::Break(())).unwrap();
    assert!(report.elapsed_s < 60.0 && report.total.operations > 0);
    assert!(report.read.unwrap().operations > 0 && report.write.unwrap().operations > 0);
}

#[test]
fn a_job_larger_than_the_medium_is_refused() {
    let source = Source::Local(Spec::memory(1 << 20));
    let error = run(&source, &Job { block_bytes: 2 << 20, ..once(Mix::Read) }, quiet).unwrap_err();
    assert!(matches!(error, BenchError::Job(JobError::TooSmall { .. })), "{error}");
    let missing = Source::Local(Spec::path("/nonexistent/disk.img"));
    assert!(matches!(run(&missing, &once(Mix::Read), quiet), Err(BenchError::Source(_))));
}

#[test]
fn the_four_corners_are_compared_by_name() {
    let source = Source::Local(Spec::memory(64 << 20));
    let reports: Vec<_> = corner::four(Duration::from_millis(200), Duration::ZERO)
        .iter()
        .map(|job| run(&source, job, quiet).unwrap())
        .collect();
    assert!(reports.iter().all(|report| report.job.depth == 64 && report.errors == 0));
    let comparison = corner::compare(&reports, &reports[1..]);
    let rows: Vec<(&str, &str)> = comparison.rows.iter().map(|row| (row.name.as_str(), row.unit.name())).collect();
    assert_eq!(rows, [("128K sequential read", "MB/s"), ("4K random write", "IOPS"), ("4K random read", "IOPS")]);
    assert!(comparison.rows.iter().all(|row| (row.ratio - 1.0).abs() < 1e-9));
}
