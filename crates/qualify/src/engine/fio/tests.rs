//! fio's commands, reports and failures, without fio.

use std::os::unix::fs::PermissionsExt as _;

use ebof_bench::{Job, Mix, PERCENTILES, Rate};

use super::*;

const RECORDED: &str = include_str!("../../../testdata/fio-readers-mix.json");

/// The two jobs of the recorded report.
fn jobs() -> Vec<Job> {
    let time = |job: Job| Job {
        runtime: Some(Duration::from_millis(1500)),
        ramp: Duration::from_millis(500),
        size_bytes: Some(64 << 20),
        rate_iops: Some(300),
        ..job
    };
    let readers = Job { name: "readers".to_owned(), threads: 2, ..Job::new(Mix::RandRead) };
    let mix = Job { name: "mix".to_owned(), block_bytes: 8192, depth: 4, read_percent: 70, ..Job::new(Mix::RandRw) };
    [readers, mix].map(time).into()
}

fn load<'a>(place: &'a LoadTarget, jobs: &'a [Job], directory: &'a Path) -> Load<'a> {
    Load { place, jobs, until_bytes: None, directory, size_bytes: 1 << 30 }
}

fn line(place: &LoadTarget, job: Job, change: impl FnOnce(&mut Load<'_>)) -> String {
    let jobs = [job];
    let mut load = load(place, &jobs, Path::new("/run/report"));
    change(&mut load);
    command(&load).join(" ")
}

fn drive() -> LoadTarget {
    LoadTarget::Path("/dev/nvme0n1".into())
}

#[test]
fn the_commands_are_those_of_the_documents() {
    let job = |name: &str, job: Job| Job { name: name.to_owned(), ..job };
    // ODCC-2021-05008, 6.4.1: both preconditionings.
    let sequential = Job { block_bytes: 128 << 10, depth: 8, runtime: None, ..Job::new(Mix::Write) };
    let start =
        "fio --name=init_seq --ioengine=libaio --filename=/dev/nvme0n1 --allow_file_create=0 --direct=1 --thread";
    assert_eq!(
        line(&drive(), job("init_seq", sequential), |load| load.until_bytes = Some(2 << 30)),
        format!("{start} --norandommap --rw=write --bs=128k --iodepth=8 --numjobs=1 --loops=2")
    );
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let ramp = minutes(1);
    let random = Job { depth: 256, threads: 8, ramp, runtime: Some(minutes(240)), ..Job::new(Mix::RandWrite) };
    assert!(line(&drive(), job("init_rand", random), |_| {}).ends_with(
        "--norandommap --rw=randwrite --bs=4k --iodepth=256 --numjobs=8 --time_based --runtime=14400 --ramp_time=60 \
         --group_reporting"
    ));
    // Threads of a sequential load divide the device.
    let four = Job { block_bytes: 128 << 10, depth: 128, threads: 4, ..Job::new(Mix::Read) };
    let line_of_four = line(&drive(), job("read", four), |_| {});
    assert!(line_of_four.contains("--numjobs=4 --size=256m --offset_increment=256m --time_based"), "{line_of_four}");
}

#[test]
fn every_setting_of_a_job_has_its_option() {
    let job = Job {
        offset_bytes: 1 << 20,
        size_bytes: Some(5_000_000),
        runtime: Some(Duration::from_millis(1500)),
        rate: Rate { read: Some(1_000_000), write: None },
        rate_iops: Some(7),
        continue_on_error: true,
        processors: vec![0, 1000 * std::thread::available_parallelism().unwrap().get()],
        read_percent: 30,
        ..Job::new(Mix::Rw)
    };
    let text = line(&drive(), job.clone(), |load| load.until_bytes = Some(4096 * 10));
    for option in [
        "--rwmixread=30",
        "--offset=1m",
        "--size=4880k",
        "--io_size=40k",
        "--runtime=1500ms",
        "--rate_iops=7",
        "--rate=1000000,",
        "--continue_on_error=io",
        "--cpus_allowed=0,0 --cpus_allowed_policy=split",
    ] {
        assert!(text.contains(option), "{option}: {text}");
    }
    assert!(!text.contains("--time_based"), "{text}");
    assert!(line(&LoadTarget::Null, job, |_| {}).contains("--ioengine=null"));
}

#[test]
fn every_place_has_its_engine() {
    let line = |place: LoadTarget| line(&place, Job::new(Mix::RandRead), |_| {});
    let options = vec![("hostnqn".to_owned(), "nqn.2014-08.org.example:h".to_owned())];
    let uri = "nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:a/1".to_owned();
    let text = line(LoadTarget::Namespace { uri, options });
    let engine = "--ioengine=external:libebof_fio.so --uri=nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:a/1";
    assert!(text.contains(&format!("{engine} --hostnqn=nqn.2014-08.org.example:h")), "{text}");
    assert!(line(LoadTarget::Iscsi("iscsi://h/iqn.a:b/1".to_owned())).contains("--filename=iscsi\\://h/iqn.a\\:b/1"));
    assert!(line(LoadTarget::Nbd("nbd://h/a".to_owned())).contains("--ioengine=nbd --uri=nbd://h/a"));
    assert!(line(LoadTarget::Path("/dev/disk/by-path/pci-0000:01".into())).contains("pci-0000\\:01 "));
    assert_eq!(line(LoadTarget::Memory(1)), "");
    assert!(line(LoadTarget::Null).contains("--ioengine=null") && line(LoadTarget::Null).contains("--size=1g"));
}

#[test]
fn a_recorded_report_has_fios_own_figures() {
    let (place, jobs) = (drive(), jobs());
    let reports = output::reports(&format!("an engine's words\n{RECORDED}bye"), &load(&place, &jobs, Path::new("/")));
    let reports = reports.unwrap();
    let document: serde_json::Value = serde_json::from_str(RECORDED).unwrap();
    let group = |index: usize, side: &str| document["jobs"][index][side].clone();
    let (readers, mix) = (&reports[0], &reports[1]);
    assert_eq!((readers.total.operations, readers.errors, readers.write.is_none()), (900, 0, true));
    assert!((readers.total.iops - 599.600_266).abs() < 1e-6 && (readers.elapsed_s - 1.501).abs() < 1e-9);
    assert!((readers.total.latency.mean_us - 5.039_741).abs() < 1e-6);
    // From the histogram, and as fio computes them.
    for (side, own) in [(readers.read.as_ref(), group(0, "read")), (mix.write.as_ref(), group(1, "write"))] {
        for at in PERCENTILES {
            let ns = own["lat_ns"]["percentile"][format!("{at:.6}")].as_f64().unwrap();
            assert!((side.unwrap().latency.percentile_us(at).unwrap() - ns / 1000.0).abs() < 1e-9, "{at}");
        }
    }
    // Reads and writes together.
    let (read, write) = (mix.read.as_ref().unwrap(), mix.write.as_ref().unwrap());
    assert_eq!((mix.total.operations, mix.total.bytes), (675, read.bytes + write.bytes));
    assert!((mix.total.iops - read.iops - write.iops).abs() < 1e-6);
    let mean = (read.latency.mean_us * 450.0 + write.latency.mean_us * 225.0) / 675.0;
    assert!((mix.total.latency.mean_us - mean).abs() < 1e-3);
    assert!(mix.total.latency.stddev_us > 0.0 && mix.total.latency.min_us <= write.latency.min_us);
    // 0.6 % of three seconds for 900 operations.
    assert!((readers.cpu_us_per_operation - 20.0).abs() < 0.1 && (readers.cpu_percent - 1.2).abs() < 0.01);
    assert!((readers.process.unwrap().cpu_us_per_operation - 39_000.0 / 1575.0).abs() < 0.1);
}

/// The report cut at every place, and with damaged figures: an error, or a report; never a panic.
#[test]
fn a_damaged_report_is_an_error() {
    let (place, jobs) = (drive(), jobs());
    let load = load(&place, &jobs, Path::new("/"));
    let end = RECORDED.trim_end().len();
    for at in (0..end).step_by(7) {
        assert!(output::reports(&RECORDED[..at], &load).is_err(), "{at}");
    }
    let figures = ["\"iops\" : ", "\"N\" : ", "\"min\" : ", "\"runtime\" : ", "\"2320\" : ", "\"usr_cpu\" : "];
    for figure in figures.iter().filter(|figure| RECORDED.contains(**figure)) {
        for wrong in ["-1", "1e400", "null", "\"x\"", "18446744073709551615", "{}", "NaN"] {
            let text = RECORDED.replace(figure, &format!("{figure}{wrong}, \"x\" : "));
            if let Ok(reports) = output::reports(&text, &load) {
                assert!(
                    reports.iter().all(|report| report.total.iops >= 0.0 && report.cpu_percent >= 0.0),
                    "{figure} {wrong}"
                );
            }
        }
    }
    assert!(output::reports(&RECORDED.replace("\"2320\" : ", "\"-5\" : "), &load).is_err());
    let one = Load { jobs: &jobs[..1], ..load };
    let error = output::reports(RECORDED, &one).unwrap_err().to_string();
    assert_eq!(error, "it has 2 groups of jobs instead of 1");
}

#[test]
fn logs_of_all_threads_add_up() {
    let directory = tempfile::tempdir().unwrap();
    let (place, jobs) = (drive(), jobs());
    let load = load(&place, &jobs, directory.path());
    assert_eq!(series::read(&load), []);
    let log = |number: u32, text: &str| {
        std::fs::write(directory.path().join(format!("fio_iops.{number}.log")), text).unwrap();
    };
    log(1, "499, 300, 0, 0, 0\n1004, 310, 0, 0, 0\n1499, 1, 0, 0, 0\n");
    log(2, "500, 300, 0, 0, 0\nnonsense\n-5, 1\n1000, 290, 0, 0, 0\n");
    log(3, "499, 300, 0, 0, 0\n499, 150, 1, 0, 0\n1000, 100, 0, 0, 0\n1000, 50, 1, 0, 0\n99999999999999999999, 5\n");
    let point = |at_s: f64, small: f64, large: f64| crate::document::Point {
        at_s,
        iops: small + large,
        bytes_per_s: small * 4096.0 + large * 8192.0,
        mean_us: None,
    };
    // The last interval is that of one thread only.
    assert_eq!(series::read(&load), [point(1.0, 600.0, 450.0), point(1.5, 600.0, 150.0)]);
    let long: String = (1..5000).map(|index| format!("{}, 7, 0\n", index * 500)).collect();
    log(1, &long);
    log(2, &long);
    log(3, &long);
    let points = series::read(&load);
    assert!(points.len() <= crate::document::SERIES_MAX && points.len() > 500);
    assert!(points.iter().all(|point| (point.iops - 21.0).abs() < 1e-9));
    series::clear(directory.path()).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A program in place of fio: a script that has the path of the report in `$report`.
fn run_script(script: &str, progress: ControlFlow<()>) -> Result<LoadResult, EngineError> {
    let directory = tempfile::tempdir().unwrap();
    let fio = directory.path().join("script");
    std::fs::write(directory.path().join("recorded"), RECORDED).unwrap();
    let find = "for word; do case $word in --output=*) report=${word#--output=};; esac; done; cd ${report%/*}";
    std::fs::write(&fio, format!("#!/bin/sh\n{find}\n{script}\n")).unwrap();
    std::fs::set_permissions(&fio, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (place, jobs) = (drive(), jobs());
    run_with(&fio, &load(&place, &jobs, directory.path()), &mut |_| progress)
}

#[test]
fn failures_say_what_fio_said_and_what_to_do() {
    let run = |script: &str| run_script(script, ControlFlow::Continue(())).unwrap_err().to_string();
    let text =
        run("echo 'mix: (g=1): rw=x'; echo 'fio: pid=7, func=open(/dev/nvme0n1), error=Permission denied' >&2; exit 1");
    assert!(
        text.starts_with("fio on /dev/nvme0n1 (randread, 4096 bytes) failed\n  tried:  fio --name=readers "),
        "{text}"
    );
    assert!(text.contains("\n  answer: fio: pid=7, func=open(/dev/nvme0n1), error=Permission denied\n"), "{text}");
    assert!(text.ends_with("\n  to do:  run it as root, or give this user access to the device"), "{text}");
    let text = run("echo 'fio: engine libiscsi not loadable' >&2; exit 1");
    assert!(text.ends_with("see `fio --enghelp`"), "{text}");
    let text = run("kill -9 $$");
    assert!(text.contains("answer: it was killed by signal 9"), "{text}");
    let text = run("head -c 9000 recorded > $report");
    assert!(text.contains("its report cannot be read: EOF while parsing"), "{text}");
    assert!(text.contains("directory of the report full"), "{text}");
    let text = run(": > $report");
    assert!(text.contains("its report cannot be read: it is empty"), "{text}");
    let text = run("echo 'fio: output file open error: No such file or directory'; exit 1");
    assert!(text.contains("to do:  check the directory of the report"), "{text}");
    // A read-only device: all of its first operations fail, which fio counts.
    let failed = "io_u error on file /dev/nvme0n1: Operation not permitted: write offset=";
    let counted = "sed 's/\"iops\" : [0-9.]*/\"iops\" : 0.0/' recorded > $report";
    let text = run(&format!("{counted}; echo 'fio: {failed}4096'; echo 'fio: {failed}8192'; exit 1"));
    assert!(text.contains(&format!("answer: fio: {failed}4096\n")), "{text}");
    assert!(text.ends_with("permit writing to the device"), "{text}");
    let text = run("exit 0");
    assert!(text.contains("its report cannot be read: No such file"), "{text}");
    let text = run("yes 'words without end' | head -c 5000000; exit 1");
    assert!(text.contains("words without end") && text.len() < 4000, "{}", text.len());
}

#[test]
fn what_was_measured_before_a_failure_is_kept() {
    let script = "cp recorded $report; echo 'fio: io_u error on file /dev/nvme0n1: Input/output error' >&2; exit 1";
    let outcome = run_script(script, ControlFlow::Continue(())).unwrap();
    assert_eq!((outcome.reports[0].errors, outcome.reports[0].total.operations), (1, 900));
    assert!(outcome.reports[0].first_error.as_ref().unwrap().contains("Input/output error"));
    let script = "sed 's/\"error\" : 0/\"error\" : 5/' recorded > $report; exit 1";
    let outcome = run_script(script, ControlFlow::Continue(())).unwrap();
    assert!(outcome.reports.iter().all(|report| report.errors == 1));
}

#[test]
fn ending_it_early_keeps_what_was_measured() {
    let script = "trap 'cp recorded $report; exit 128' INT; while :; do sleep 0.01; done";
    let outcome = run_script(script, ControlFlow::Break(())).unwrap();
    assert_eq!((outcome.reports.len(), outcome.reports[0].errors), (2, 0));
    let error = run_script(
        "trap 'sed \"s/\\\"iops\\\" : [0-9.]*/\\\"iops\\\" : 0.0/\" recorded > $report; exit 128' INT; while :; do sleep 0.01; done",
        ControlFlow::Break(()),
    );
    assert!(error.unwrap_err().to_string().contains("was ended before it had measured anything"));
}

#[test]
fn a_job_that_does_not_fit_is_not_started() {
    let place = drive();
    let jobs = [Job { size_bytes: Some(2 << 30), ..Job::new(Mix::Read) }];
    let load = load(&place, &jobs, Path::new("/nonexistent"));
    let start = |load: &Load<'_>| run_with(Path::new("/nonexistent/fio"), load, &mut |_| ControlFlow::Continue(()));
    let error = start(&load).unwrap_err();
    assert!(error.to_string().contains("are not within the medium of 1073741824 bytes"), "{error}");
    let memory = LoadTarget::Memory(1 << 30);
    assert!(matches!(start(&Load { place: &memory, jobs: &[], ..load }), Err(EngineError::Unsupported(_))));
    let error = start(&Load { jobs: &[], ..load }).unwrap_err().to_string();
    assert!(error.starts_with("the directory /nonexistent for fio's report and logs cannot be used: "), "{error}");
}
