//! The installed fio on files and on a namespace. Skipped without fio.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use ebof_bench::{Job, LoadProgress, Mix};
use ebof_manage::config::{Namespace, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::Nqn;
use ebof_qualify::engine::{EngineError, Load, LoadResult, LoadTarget, fio, programs};
use ebof_server::{Settings, Target};

const NQN: &str = "nqn.2014-08.org.example:drive0";
const FILE_BYTES: u64 = 32 << 20;

/// Whether there is a fio; says so if not.
pub(crate) fn has_fio() -> bool {
    let found = programs::find_fio();
    if let Err(error) = &found {
        println!("SKIPPED: {error}");
    }
    found.is_ok()
}

/// Half a second, paced: the figures are known, and the machine is left to others.
pub(crate) fn paced(rw: Mix) -> Job {
    Job { runtime: Some(Duration::from_millis(1100)), rate_iops: Some(500), threads: 2, ..Job::new(rw) }
}

pub(crate) fn run(place: &LoadTarget, jobs: &[Job], directory: &Path) -> Result<LoadResult, EngineError> {
    let load = Load { place, jobs, until_bytes: None, directory, size_bytes: FILE_BYTES };
    fio::run(&load, |_| ControlFlow::Continue(()))
}

fn file(directory: &Path) -> LoadTarget {
    // Its name has what fio takes for a separator.
    let path = directory.join("a drive:0,1");
    File::create(&path).unwrap().set_len(FILE_BYTES).unwrap();
    LoadTarget::Path(path)
}

/// A directory whose file system has `O_DIRECT`.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Whether the rate of a paced job was kept, with room for a busy machine.
pub(crate) fn is_paced(outcome: &LoadResult, iops: f64) -> bool {
    let report = &outcome.reports[0];
    report.errors == 0 && report.total.iops > iops * 0.5 && report.total.iops < iops * 1.2
}

#[test]
fn a_file_is_measured_and_the_report_is_one_of_ebofs() {
    if !has_fio() {
        return;
    }
    let directory = directory();
    let place = file(directory.path());
    let readers = Job { name: "readers".to_owned(), ..paced(Mix::RandRead) };
    let writer = Job { name: "writer".to_owned(), block_bytes: 64 << 10, threads: 1, ..paced(Mix::Rw) };
    let outcome = run(&place, &[readers.clone(), writer], directory.path()).unwrap();
    assert!(is_paced(&outcome, 1000.0), "{:?}", outcome.reports[0]);
    let report = &outcome.reports[0];
    assert_eq!((&report.job, report.write.is_none()), (&readers, true));
    let latency = &report.total.latency;
    assert!(latency.min_us > 0.0 && latency.min_us <= latency.percentile_us(50.0).unwrap());
    assert!(latency.mean_us < latency.max_us);
    let both = &outcome.reports[1];
    let sum = both.read.as_ref().unwrap().operations + both.write.as_ref().unwrap().operations;
    assert_eq!((both.total.operations, both.total.bytes >= sum * (64 << 10)), (sum, true));
    assert!(!outcome.series.is_empty() && outcome.series.iter().all(|point| point.iops > 0.0), "{:?}", outcome.series);
    assert_eq!(outcome.command[0], "fio");
}

#[test]
fn passes_and_bytes_are_counted() {
    if !has_fio() {
        return;
    }
    let directory = directory();
    let place = file(directory.path());
    let job = Job { block_bytes: 128 << 10, depth: 8, runtime: None, ..Job::new(Mix::Write) };
    let bytes = |job: &Job, until_bytes| {
        let jobs = [job.clone()];
        let load =
            Load { place: &place, jobs: &jobs, until_bytes, directory: directory.path(), size_bytes: FILE_BYTES };
        fio::run(&load, |_| ControlFlow::Continue(())).unwrap().reports[0].total.bytes
    };
    assert_eq!(bytes(&job, None), FILE_BYTES);
    assert_eq!(bytes(&job, Some(2 * FILE_BYTES)), 2 * FILE_BYTES);
    assert_eq!(bytes(&job, Some(FILE_BYTES / 2)), FILE_BYTES / 2);
    // Four threads divide it.
    assert_eq!(bytes(&Job { threads: 4, ..job.clone() }, None), FILE_BYTES);
    let limited = Job { runtime: Some(Duration::from_secs(20)), ..job };
    assert_eq!(bytes(&limited, Some(3 * FILE_BYTES)), 3 * FILE_BYTES);
    let random = Job { rw: Mix::RandWrite, threads: 2, runtime: None, ..limited };
    assert_eq!(bytes(&random, None), FILE_BYTES);
    // The file is as long as before.
    let LoadTarget::Path(path) = &place else { return };
    assert_eq!(path.metadata().unwrap().len(), FILE_BYTES);
}

#[test]
fn it_can_be_ended_early() {
    if !has_fio() {
        return;
    }
    let directory = directory();
    let place = file(directory.path());
    let jobs = [Job { runtime: Some(Duration::from_secs(100)), ..paced(Mix::RandRead) }];
    let started = Instant::now();
    let load =
        Load { place: &place, jobs: &jobs, until_bytes: None, directory: directory.path(), size_bytes: FILE_BYTES };
    let outcome = fio::run(&load, |progress: &LoadProgress| {
        assert_eq!(progress.total, Some(Duration::from_secs(100)));
        if progress.iops > 0.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let report = outcome.unwrap().reports.remove(0);
    assert!(report.total.operations > 100 && report.errors == 0 && report.elapsed_s < 50.0, "{report:?}");
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_device_that_is_not_there_is_not_made() {
    if !has_fio() {
        return;
    }
    let directory = directory();
    let path = directory.path().join("nvme9n1");
    let error =
        run(&LoadTarget::Path(path.clone()), &[paced(Mix::RandWrite)], directory.path()).unwrap_err().to_string();
    assert!(error.contains("to do:  the device is not there"), "{error}");
    assert!(!path.exists());
    // A directory is no device.
    let error = run(&LoadTarget::Path(directory.path().into()), &[paced(Mix::RandRead)], directory.path()).unwrap_err();
    assert!(matches!(error, EngineError::Failed { .. }), "{error}");
}

#[test]
fn the_null_device_is_measured() {
    if !has_fio() {
        return;
    }
    let directory = directory();
    assert!(is_paced(&run(&LoadTarget::Null, &[paced(Mix::RandWrite)], directory.path()).unwrap(), 1000.0));
}

fn serve(drive: &str) -> (Target, LoadTarget) {
    let nqn = Nqn::parse(NQN).unwrap();
    let port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
    let mut subsystem = Subsystem::new(nqn.clone());
    subsystem.allow_any_host = true;
    subsystem.ports = vec![port.name.clone()];
    subsystem.namespaces.push(Namespace::new(1, drive.parse().unwrap()));
    let config = Config { ports: vec![port], subsystems: vec![subsystem], ..Config::default() };
    let target = Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap();
    let uri = format!("nvme+tcp://127.0.0.1:{}/{NQN}/1", target.addresses()[0].1.port());
    let options = vec![("hostnqn".to_owned(), "nqn.2014-08.org.example:bench".to_owned())];
    (target, LoadTarget::Namespace { uri, options })
}

/// Whether this fio and the engine fit each other.
fn has_engine() -> bool {
    if !has_fio() {
        return false;
    }
    let version = programs::fio_version().unwrap_or_default();
    let known = ["fio-3.31", "fio-3.32", "fio-3.33", "fio-3.38", "fio-3.39"];
    if !known.iter().any(|known| version.starts_with(known)) {
        println!("SKIPPED: {version} is none that the engine is for");
        return false;
    }
    // Cargo builds it beside this program, because this program could link it.
    programs::find_engine_library().unwrap();
    true
}

#[test]
fn a_namespace_is_measured_through_ebofs_engine() {
    if !has_engine() {
        return;
    }
    let directory = directory();
    let (_target, place) = serve("mem:32Mi");
    for rw in [Mix::RandRead, Mix::Write] {
        let outcome = run(&place, &[paced(rw)], directory.path()).unwrap();
        assert!(is_paced(&outcome, 1000.0), "{:?}", outcome.reports[0]);
        assert!(outcome.command.iter().any(|word| word.ends_with("/libebof_fio.so")), "{:?}", outcome.command);
    }
    let wrong = LoadTarget::Namespace { uri: format!("nvme+tcp://127.0.0.1:1/{NQN}/1"), options: Vec::new() };
    let error = run(&wrong, &[paced(Mix::RandRead)], directory.path()).unwrap_err().to_string();
    assert!(error.contains("nobody listens there") && error.ends_with("what the engine says"), "{error}");
}

/// The target ends in the middle: what was measured is kept, and the reason is told.
#[test]
fn a_target_that_vanishes_leaves_what_was_measured() {
    if !has_engine() {
        return;
    }
    let directory = directory();
    let (target, place) = serve("mem:32Mi");
    let mut target = Some(target);
    let jobs = [Job { runtime: Some(Duration::from_secs(100)), ..paced(Mix::RandRead) }];
    let load =
        Load { place: &place, jobs: &jobs, until_bytes: None, directory: directory.path(), size_bytes: FILE_BYTES };
    let outcome = fio::run(&load, |progress: &LoadProgress| {
        if progress.iops > 0.0 {
            drop(target.take());
        }
        ControlFlow::Continue(())
    });
    let report = outcome.unwrap().reports.remove(0);
    assert!(report.errors > 0 && report.total.operations > 100, "{report:?}");
    assert!(report.elapsed_s < 50.0 && report.first_error.is_some(), "{report:?}");
    println!("{:?}", report.first_error);
}
