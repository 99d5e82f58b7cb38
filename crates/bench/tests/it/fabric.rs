//! Loads over NVMe/TCP against a running target, compared with the same on its drive.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::ops::ControlFlow;
use std::time::Duration;

use ebof_bench::{BenchError, Job, JobError, LoadProgress, Mix, QueueUse, Rate, Source, corner, run, run_together};
use ebof_initiator::Options;
use ebof_manage::config::{Namespace, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Settings, Target};

fn quiet(_: &LoadProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn serve(drive: &str) -> (Target, Options) {
    let nqn = Nqn::parse("nqn.2014-08.org.example:drive0").unwrap();
    let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
    let mut subsystem = Subsystem::new(nqn.clone());
    subsystem.allow_any_host = true;
    subsystem.ports = vec![port.name.clone()];
    subsystem.namespaces.push(Namespace::new(1, drive.parse().unwrap()));
    let config = Config { ports: vec![port], subsystems: vec![subsystem], ..Config::default() };
    let target = Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap();
    let address = target.addresses()[0].1;
    (target, Options::new(address.ip().to_string(), address.port(), nqn))
}

#[test]
fn every_mix_is_verified_over_the_fabric() {
    let (_target, options) = serve("mem:8Mi");
    for (header, data) in [(false, false), (true, true)] {
        let mut options = options.clone();
        (options.hdr_digest, options.data_digest) = (header, data);
        let source = Source::Fabric(Box::new(options), Nsid(1));
        for (rw, block_bytes) in [(Mix::Write, 4096), (Mix::RandRw, 512), (Mix::Rw, 128 << 10), (Mix::RandRead, 4096)] {
            let job = Job { block_bytes, depth: 16, threads: 2, runtime: None, verify: true, ..Job::new(rw) };
            let report = run(&source, &job, quiet).unwrap();
            assert_eq!((report.errors, &report.first_error), (0, &None), "{rw} {block_bytes}");
            assert!(report.verified_bytes > 0);
        }
    }
}

/// Both over one port: they are two controllers all the same.
#[test]
fn loads_run_over_several_paths() {
    let (_target, options) = serve("mem:8Mi");
    let source = Source::Paths(vec![options.clone(), options.clone()], Nsid(1));
    assert_eq!(source.describe().matches("nvme+tcp://127.0.0.1:").count(), 2);
    for (rw, depth) in [(Mix::RandRw, 16), (Mix::Read, 1)] {
        let job = Job { depth, threads: 2, runtime: None, verify: rw.writes(), ..Job::new(rw) };
        let report = run(&source, &job, quiet).unwrap();
        assert_eq!((report.errors, &report.first_error), (0, &None), "{rw}");
    }
    let shared = QueueUse { shared: true, size: None };
    let error = run_together(&source, &[Job::new(Mix::Read)], shared, |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("several paths"), "{error}");
    let mut dead = options.clone();
    dead.trsvcid = 1;
    let error = run(&Source::Paths(vec![options.clone(), dead], Nsid(1)), &Job::new(Mix::Read), quiet).unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    let mut other = options.clone();
    other.nqn = Nqn::parse("nqn.2014-08.org.example:drive1").unwrap();
    let error = run(&Source::Paths(vec![options, other], Nsid(1)), &Job::new(Mix::Read), quiet).unwrap_err();
    assert!(error.to_string().contains("drive1"), "{error}");
}

#[test]
fn the_four_corners_are_compared_with_those_of_the_drive() {
    let (_target, options) = serve("mem:64Mi");
    let source = Source::Fabric(Box::new(options), Nsid(1));
    let local = Source::Local("mem:64Mi".parse().unwrap());
    let jobs = corner::four(Duration::from_millis(400), Duration::from_millis(20));
    let all = |source: &Source| jobs.iter().map(|job| run(source, job, quiet).unwrap()).collect::<Vec<_>>();
    let comparison = corner::compare(&all(&local), &all(&source));
    assert_eq!(comparison.rows.len(), 4);
    assert!(comparison.rows.iter().all(|row| row.fabric > 0.0 && row.ratio > 0.0 && row.ratio < 1.5), "{comparison:?}");
    assert!(comparison.fabric.starts_with("nvme+tcp://127.0.0.1:"));
}

#[test]
fn a_block_beyond_the_targets_limit_is_refused_with_the_limit() {
    let (_target, options) = serve("mem:64Mi");
    let source = Source::Fabric(Box::new(options), Nsid(1));
    let job = Job { block_bytes: 16 << 20, ..Job::new(Mix::Read) };
    let error = run(&source, &job, quiet).unwrap_err();
    assert!(matches!(error, BenchError::Job(JobError::Transfer { .. })), "{error}");
}

/// 16 threads that read small blocks one at a time, and one that writes large ones at depth.
fn readers_and_a_writer(runtime: Duration) -> [Job; 2] {
    let job = |name: &str, rw| Job { name: name.to_owned(), runtime: Some(runtime), ..Job::new(rw) };
    [
        Job { threads: 16, size_bytes: Some(16 << 20), ..job("readers", Mix::RandRead) },
        Job { block_bytes: 1 << 20, depth: 8, offset_bytes: 16 << 20, ..job("writer", Mix::Write) },
    ]
}

#[test]
fn groups_run_concurrently_on_own_and_on_shared_queues() {
    let (_target, options) = serve("mem:64Mi");
    let jobs = readers_and_a_writer(Duration::from_millis(400));
    let own = QueueUse::default();
    for (queues, asked) in [(own, (0, 0, 0)), (QueueUse { shared: true, size: None }, (1, 1, 0))] {
        let mut options = options.clone();
        (options.nr_io_queues, options.nr_write_queues, options.nr_poll_queues) = asked;
        let source = Source::Fabric(Box::new(options), Nsid(1));
        let reports = run_together(&source, &jobs, queues, quiet).unwrap();
        assert_eq!(reports.iter().map(|report| report.job.name.as_str()).collect::<Vec<_>>(), ["readers", "writer"]);
        for report in &reports {
            assert_eq!((report.errors, &report.first_error), (0, &None), "{queues:?}");
            assert!(report.total.operations > 0, "{queues:?} {}", report.job.name);
            assert!(report.process.is_some_and(|process| process.cpu_us_per_operation > 0.0));
        }
        assert!(reports[0].write.is_none() && reports[1].read.is_none());
    }
}

#[test]
fn shared_queues_are_verified_at_any_depth_and_class() {
    let (_target, options) = serve("mem:8Mi");
    for (asked, hipri, depth) in
        [((1, 0, 0), false, 1), ((1, 0, 0), false, 16), ((2, 1, 0), false, 8), ((1, 0, 1), true, 4)]
    {
        let mut options = options.clone();
        (options.nr_io_queues, options.nr_write_queues, options.nr_poll_queues) = asked;
        let source = Source::Fabric(Box::new(options), Nsid(1));
        let job = Job { depth, hipri, threads: 3, runtime: None, verify: true, ..Job::new(Mix::Rw) };
        let reports = run_together(&source, &[job], QueueUse { shared: true, size: Some(8) }, quiet).unwrap();
        assert_eq!((reports[0].errors, &reports[0].first_error), (0, &None), "{asked:?} {depth}");
        assert_eq!(reports[0].total.operations, 2046, "{asked:?} {depth}");
    }
}

#[test]
fn a_rate_limit_applies_to_each_thread_and_direction() {
    let (_target, options) = serve("mem:8Mi");
    let source = Source::Fabric(Box::new(options), Nsid(1));
    let rate = Rate { read: Some(400 << 10), write: Some(200 << 10) };
    let job = Job { rate, threads: 2, runtime: Some(Duration::from_secs(1)), ..Job::new(Mix::RandRw) };
    let report = run(&source, &job, quiet).unwrap();
    // Reads wait for writes and vice versa: the slower direction limits the rate of a thread, which
    // never exceeds the requested one.
    assert!(report.read.unwrap().bytes <= 900 << 10);
    assert!(report.write.unwrap().bytes <= 500 << 10);
    let one = Job { rate: Rate { read: Some(400 << 10), write: None }, ..Job { rw: Mix::RandRead, ..job } };
    let bytes = run(&source, &one, quiet).unwrap().total.bytes;
    assert!((500 << 10..=900 << 10).contains(&bytes), "{bytes}");
}

#[test]
fn a_queue_smaller_than_the_depth_is_refused_and_jobs_of_different_length_too() {
    let (_target, options) = serve("mem:8Mi");
    let source = Source::Fabric(Box::new(options), Nsid(1));
    let job = Job { depth: 32, ..Job::new(Mix::RandRead) };
    let small = QueueUse { shared: false, size: Some(32) };
    let error = run_together(&source, std::slice::from_ref(&job), small, quiet).unwrap_err().to_string();
    assert_eq!(error, "a queue of 32 entries takes 31 commands at a time, less than the depth of 32");
    let longer = Job { runtime: Some(Duration::from_secs(11)), ..job.clone() };
    let error = run_together(&source, &[job, longer], QueueUse::default(), quiet).unwrap_err();
    assert!(matches!(error, BenchError::Job(JobError::Together)), "{error}");
}
