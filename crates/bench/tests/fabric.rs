//! Loads over NVMe/TCP against a running target, beside the same on its drive.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::ops::ControlFlow;
use std::time::Duration;

use ebof_bench::{BenchError, Job, JobError, Mix, Progress, Source, corner, run};
use ebof_initiator::Options;
use ebof_manage::config::{Namespace, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::{Nqn, Nsid};
use ebof_target::{Settings, Target};

fn quiet(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn serve(drive: &str) -> (Target, Options) {
    let nqn = Nqn::parse("nqn.2014-08.org.example:drive0").unwrap();
    let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
    let mut subsystem = Subsystem::new(nqn.clone());
    subsystem.allow_any_host = true;
    subsystem.ports = vec![port.name.clone()];
    subsystem.namespaces.push(Namespace::new(&nqn, 1, drive.parse().unwrap()));
    let config = Config { ports: vec![port], subsystems: vec![subsystem], ..Config::default() };
    let target = Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap();
    let address = target.addresses()[0].1;
    (target, Options::new(address.ip().to_string(), address.port(), nqn))
}

#[test]
fn every_mix_is_verified_over_the_fabric() {
    let (_target, options) = serve("mem:8M");
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

#[test]
fn the_four_corners_stand_beside_those_of_the_drive() {
    let (_target, options) = serve("mem:64M");
    let source = Source::Fabric(Box::new(options), Nsid(1));
    let local = Source::Local("mem:64M".parse().unwrap());
    let jobs = corner::four(Duration::from_millis(100), Duration::from_millis(20));
    let all = |source: &Source| jobs.iter().map(|job| run(source, job, quiet).unwrap()).collect::<Vec<_>>();
    let comparison = corner::compare(&all(&local), &all(&source));
    assert_eq!(comparison.rows.len(), 4);
    assert!(comparison.rows.iter().all(|row| row.fabric > 0.0 && row.ratio > 0.0 && row.ratio < 1.5), "{comparison:?}");
    assert!(comparison.fabric.starts_with("nvme+tcp://127.0.0.1:"));
}

#[test]
fn a_block_beyond_the_targets_limit_is_refused_with_the_limit() {
    let (_target, options) = serve("mem:64M");
    let source = Source::Fabric(Box::new(options), Nsid(1));
    let job = Job { block_bytes: 16 << 20, ..Job::new(Mix::Read) };
    let error = run(&source, &job, quiet).unwrap_err();
    assert!(matches!(error, BenchError::Job(JobError::Transfer { .. })), "{error}");
}
