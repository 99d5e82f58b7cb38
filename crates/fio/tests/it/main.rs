//! The engine in the distribution's fio, against a target in this process. Skipped without fio.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "test code")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ebof_manage::config::{Namespace, Port, Subsystem};
use ebof_manage::{Config, Listen};
use ebof_nvme::Nqn;
use ebof_server::{Settings, Target};
use serde_json::Value;

const NQN: &str = "nqn.2014-08.org.example:drive0";

/// A target, the engine, and a directory to run in.
struct Bench {
    target: Target,
    port: u16,
    directory: tempfile::TempDir,
}

/// `None`, with a message, if no supported fio is installed.
fn bench(drive: &str, change: impl FnOnce(&mut Subsystem, &mut Port)) -> Option<Bench> {
    let Ok(version) = Command::new("fio").arg("--version").output() else {
        println!("SKIPPED: there is no fio (Debian's package fio)");
        return None;
    };
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    if !["fio-3.31", "fio-3.32", "fio-3.33", "fio-3.38", "fio-3.39"].iter().any(|known| version.starts_with(known)) {
        println!("SKIPPED: {version} is none that the engine is for");
        return None;
    }
    let nqn = Nqn::parse(NQN).unwrap();
    let mut port = Port::new(1, Listen::new([127, 0, 0, 1].into(), 0));
    let mut subsystem = Subsystem::new(nqn.clone());
    subsystem.allow_any_host = true;
    subsystem.ports = vec![port.name.clone()];
    subsystem.namespaces.push(Namespace::new(1, drive.parse().unwrap()));
    change(&mut subsystem, &mut port);
    let config = Config { ports: vec![port], subsystems: vec![subsystem], ..Config::default() };
    let target = Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap();
    let port = target.addresses()[0].1.port();
    Some(Bench { target, port, directory: tempfile::tempdir().unwrap() })
}

fn plain(drive: &str) -> Option<Bench> {
    bench(drive, |_, _| {})
}

fn engine() -> PathBuf {
    // Cargo builds it beside this program, because this program could link it.
    let built = std::env::current_exe().unwrap().with_file_name("libebof_fio.so");
    assert!(built.exists(), "{} is not there", built.display());
    built
}

impl Bench {
    fn uri(&self) -> String {
        format!("nvme+tcp://127.0.0.1:{}/{NQN}/1", self.port)
    }

    /// Runs an example in short.
    fn runs_example(&self, path: &Path) {
        let short: String = std::fs::read_to_string(path)
            .unwrap()
            .lines()
            .map(|line| match line.split_once('=') {
                Some(("runtime", _)) => "runtime=1\n".to_owned(),
                Some(("ramp_time", _)) => "ramp_time=0\n".to_owned(),
                _ => format!("{line}\n"),
            })
            .collect();
        let file = self.directory.path().join(path.file_name().unwrap());
        std::fs::write(&file, short).unwrap();
        let mut command = Command::new("fio");
        command.env("EBOF_ENGINE", engine()).env("EBOF_URI", self.uri());
        let output = command.args(["--output-format=json".as_ref(), file.as_os_str()]).output().unwrap();
        let jobs = jobs(&output);
        assert!(jobs.iter().all(|job| done(job, "read") + done(job, "write") > 0), "{}", path.display());
    }

    /// Escaped for a file name of fio.
    fn escaped(&self) -> String {
        self.uri().replace(':', "\\:")
    }

    fn command(&self) -> Command {
        let mut command = Command::new("fio");
        command.current_dir(self.directory.path());
        command.args(["--output-format=json", &format!("--ioengine=external:{}", engine().display())]);
        command
    }

    fn fio(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// Runs fio with the URI as file name; it must succeed. Returns the jobs of fio's report.
    fn run(&self, arguments: &[&str]) -> Vec<Value> {
        let name = format!("--filename={}", self.escaped());
        let mut all = vec!["--name=job", name.as_str()];
        all.extend_from_slice(arguments);
        jobs(&self.fio(&all))
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn jobs(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", text(output));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let json = stdout.find('{').map_or("", |at| &stdout[at..]);
    let report: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {}", text(output)));
    let jobs = report["jobs"].as_array().unwrap().clone();
    assert!(jobs.iter().all(|job| job["error"] == 0), "{}", text(output));
    jobs
}

fn done(job: &Value, side: &str) -> u64 {
    job[side]["total_ios"].as_u64().unwrap()
}

#[test]
fn written_data_are_read_back_and_verified() {
    let Some(bench) = plain("mem:64Mi") else { return };
    for more in
        [&["--bs=4k"][..], &["--bs=512", "--size=1m"], &["--bssplit=4k/50:64k/50", "--hdr_digest=1", "--data_digest=1"]]
    {
        let mut arguments = vec!["--rw=randwrite", "--iodepth=32", "--verify=crc32c", "--do_verify=1", "--size=16m"];
        arguments.extend_from_slice(more);
        let jobs = bench.run(&arguments);
        assert!(done(&jobs[0], "write") > 256, "{more:?}");
        assert_eq!(done(&jobs[0], "read"), done(&jobs[0], "write"), "{more:?}");
    }
}

#[test]
fn changed_data_fail_the_verification() {
    let Some(bench) = plain("mem:8Mi") else { return };
    let name = format!("--filename={}", bench.escaped());
    bench.run(&["--rw=write", "--bs=4k", "--verify=crc32c", "--do_verify=0"]);
    let verify = ["--name=job", &name, "--rw=read", "--bs=4k", "--verify=crc32c", "--iodepth=8"];
    jobs(&bench.fio(&verify));
    bench.run(&["--rw=write", "--bs=4k", "--offset=1m", "--size=4k"]);
    let output = bench.fio(&verify);
    assert!(!output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("verify: bad"), "{}", text(&output));
}

#[test]
fn the_depth_is_reached_and_commands_are_sent_in_batches() {
    let Some(bench) = plain("mem:64Mi") else { return };
    let jobs = bench.run(&["--rw=randread", "--bs=4k", "--iodepth=32", "--runtime=1", "--time_based"]);
    assert!(done(&jobs[0], "read") > 1000);
    assert!(jobs[0]["iodepth_level"]["32"].as_f64().unwrap() > 90.0, "{}", jobs[0]["iodepth_level"]);
    // The depths that were reached: on average more than one command at a time.
    assert!(jobs[0]["iodepth_submit"]["4"].as_f64().unwrap() < 90.0, "{}", jobs[0]["iodepth_submit"]);
}

#[test]
fn jobs_are_threads_or_processes_with_a_connection_each() {
    let Some(bench) = plain("mem:64Mi") else { return };
    for thread in ["--thread=1", "--thread=0"] {
        let arguments = ["--rw=randrw", "--bs=4k", "--iodepth=4", "--numjobs=4", "--size=4m", thread];
        let jobs = bench.run(&arguments);
        assert_eq!(jobs.len(), 4);
        assert!(jobs.iter().all(|job| done(job, "read") + done(job, "write") == 1024), "{thread}");
    }
}

#[test]
fn trim_and_fsync_reach_the_target() {
    let Some(bench) = plain("mem:64Mi") else { return };
    bench.run(&["--rw=write", "--bs=64k"]);
    let jobs = bench.run(&["--rw=trim", "--bs=64k", "--iodepth=8"]);
    assert_eq!(done(&jobs[0], "trim"), 1024);
    // Trimmed memory reads as zeros.
    bench.run(&["--rw=read", "--bs=64k", "--verify=pattern", "--verify_pattern=0x00"]);
    for sync in ["--fsync=8", "--fdatasync=8"] {
        let jobs = bench.run(&["--rw=randwrite", "--bs=4k", "--iodepth=4", "--size=1m", "--end_fsync=1", sync]);
        assert!(jobs[0]["sync"]["lat_ns"]["N"].as_u64().unwrap() >= 30, "{}", jobs[0]["sync"]);
    }
}

#[test]
fn a_block_beyond_the_transfer_limit_and_a_depth_beyond_the_queue_are_divided() {
    let Some(bench) = plain("mem:256Mi") else { return };
    let arguments = ["--rw=randwrite", "--bs=8m", "--iodepth=16", "--queue_size=8", "--verify=crc32c", "--do_verify=1"];
    let name = format!("--filename={}", bench.escaped());
    let mut all = vec!["--name=job", &name];
    all.extend_from_slice(&arguments);
    let output = bench.fio(&all);
    assert!(
        text(&output).contains("iodepth=16, but a queue takes 7 commands at a time (queue_size=8)"),
        "{}",
        text(&output)
    );
    // The note is printed before the report.
    let jobs = jobs(&output);
    assert_eq!((done(&jobs[0], "write"), done(&jobs[0], "read")), (32, 32));
}

#[test]
fn the_namespace_can_be_given_in_three_ways_and_several_at_once() {
    let Some(bench) = bench("mem:8Mi", |subsystem, _| {
        let second = Namespace::new(2, "mem:4Mi".parse().unwrap());
        subsystem.namespaces.push(second);
    }) else {
        return;
    };
    let uri = bench.uri();
    let port = bench.port;
    let words = format!("--filename=traddr=127.0.0.1 trsvcid={port} subnqn={} ns=2", NQN.replace(':', "\\:"));
    let two = format!("--filename={0}1:{0}2", bench.escaped().strip_suffix('1').unwrap());
    for (name, bytes) in [(format!("--uri={uri}"), 8 << 20), (words, 4 << 20), (two, 12 << 20)] {
        let jobs = jobs(&bench.fio(&["--name=job", &name, "--rw=read", "--bs=64k", "--iodepth=8"]));
        assert_eq!(jobs[0]["read"]["io_bytes"].as_u64().unwrap(), bytes, "{name}");
    }
}

/// Passes connections on until it is told to end them, and takes no new ones then. First it holds
/// what comes, so that commands are outstanding at the end.
fn relay(to: u16) -> (u16, impl FnOnce()) {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = Arc::new(Mutex::new(Some(Vec::<TcpStream>::new())));
    let (for_thread, holds) = (Arc::clone(&open), Arc::new(AtomicBool::new(false)));
    let is_held = Arc::clone(&holds);
    std::thread::spawn(move || {
        for host in listener.incoming().map_while(Result::ok) {
            let mut open = for_thread.lock().unwrap();
            let Some(open) = &mut *open else { continue };
            let target = TcpStream::connect(("127.0.0.1", to)).unwrap();
            for (from, to) in [(&host, &target), (&target, &host)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                to.set_nodelay(true).unwrap();
                open.push(to.try_clone().unwrap());
                let is_held = Arc::clone(&is_held);
                std::thread::spawn(move || {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        if is_held.load(Ordering::Relaxed) || to.write_all(&bytes[..count]).is_err() {
                            std::thread::sleep(Duration::from_millis(500));
                            break;
                        }
                    }
                    let _gone = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    let cut = move || {
        holds.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        for stream in open.lock().unwrap().take().unwrap() {
            let _gone = stream.shutdown(Shutdown::Both);
        }
    };
    (port, cut)
}

// @test paths.fio
#[test]
fn uris_with_a_comma_between_them_are_paths_and_a_job_goes_on_when_one_is_cut() {
    let Some(bench) = plain("mem:64Mi") else { return };
    let (port, cut) = relay(bench.port);
    let first = bench.uri().replace(&format!(":{}/", bench.port), &format!(":{port}/"));
    let both = format!("{first},{}", bench.uri());
    let mut command = bench.command();
    command.args(["--name=job", &format!("--uri={both}"), "--rw=randwrite", "--bs=4k", "--iodepth=16"]);
    command.args(["--size=32m", "--rate_iops=4000", "--verify=crc32c", "--do_verify=1"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    cut();
    let output = child.wait_with_output().unwrap();
    let jobs = jobs(&output);
    assert_eq!((done(&jobs[0], "write"), done(&jobs[0], "read")), (8192, 8192));
    // A path that is not there is told, and does not matter; in a file name every colon is escaped.
    let name = format!("--filename={}", both.replace(':', "\\:"));
    let output = bench.fio(&["--name=job", &name, "--rw=read", "--bs=64k", "--size=1m"]);
    assert!(text(&output).contains("without this path") && output.status.success(), "{}", text(&output));
}

#[test]
fn mistakes_are_explained() {
    let Some(bench) = plain("mem:8Mi") else { return };
    let escaped = bench.escaped();
    let fails = |arguments: &[&str], says: &[&str]| {
        let mut all = vec!["--name=job", "--bs=4k", "--rw=randread", "--size=1m"];
        all.extend_from_slice(arguments);
        let output = bench.fio(&all);
        let told = text(&output);
        assert!(!output.status.success(), "{arguments:?}: {told}");
        assert!(says.iter().all(|word| told.contains(word)), "{arguments:?}: {told}");
    };
    let wrong = format!("--filename={}", escaped.replace("drive0", "drive9"));
    fails(&[&wrong], &["drive9", "tried:", "answer:", "to do:"]);
    fails(&[&format!("--uri=nvme+tcp://127.0.0.1:1/{NQN}/1")], &["127.0.0.1:1", "nobody listens there"]);
    fails(&[&format!("--filename={}", bench.uri())], &["fio divided the file name at its colons", "--uri="]);
    fails(&[&format!("--uri={}", bench.uri().replace("drive0/1", "drive0/7"))], &["namespace 7", "list-ns"]);
    let name = format!("--filename={escaped}");
    fails(&[&name, "--bs=1000", "--thread"], &["1000 bytes", "blocks of 512 bytes", "multiple of 512"]);
    fails(&[&name, "--hostid=nonsense"], &["hostid=nonsense", "want a UUID"]);
    fails(&[], &["says no namespace"]);
}

#[test]
fn writes_to_a_write_protected_namespace_report_that() {
    let Some(bench) = bench("mem:8Mi", |subsystem, _| subsystem.namespaces[0].write_protect = true) else { return };
    let name = format!("--filename={}", bench.escaped());
    let output = bench.fio(&["--name=job", &name, "--rw=write", "--bs=4k"]);
    assert!(!output.status.success());
    assert!(text(&output).contains("read-only"), "{}", text(&output));
    bench.run(&["--rw=read", "--bs=4k"]);
}

/// A target that ends in the middle of a job: fio ends soon, and reports why.
#[test]
fn the_end_of_the_target_ends_the_job_with_the_reason() {
    let Some(bench) = plain("mem:64Mi") else { return };
    let uri = format!("--uri={}", bench.uri());
    let mut command = bench.command();
    command.args(["--name=job", &uri, "--rw=randread", "--bs=4k", "--iodepth=32", "--numjobs=2"]);
    command.args(["--time_based", "--runtime=60"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let Bench { target, directory: _kept, .. } = bench;
    let waited = Instant::now();
    let reads = || {
        let metrics = target.metrics(ebof_server::Exposition::OpenMetrics, ebof_server::MetricsDetail::Queue);
        let mut lines = metrics.lines();
        lines.any(|line| line.starts_with("ebof_commands_total") && !line.ends_with(" 0"))
    };
    while !reads() {
        assert!(waited.elapsed() < Duration::from_secs(30), "the jobs do not read");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = Instant::now();
    drop(target);
    let output = child.wait_with_output().unwrap();
    assert!(ended.elapsed() < Duration::from_secs(40), "it took {:?}", ended.elapsed());
    let told = text(&output);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("ebof: ") && told.contains("what to do: see whether the target still runs"), "{told}");
}

#[test]
fn the_engine_shows_its_options() {
    let Some(bench) = plain("mem:8Mi") else { return };
    let output = Command::new("fio").arg(format!("--enghelp={}", engine().display())).output().unwrap();
    let told = text(&output);
    for option in ["uri", "hostnqn", "hdr_digest", "data_digest", "queue_size", "tos", "poll", "spin_us", "batch"] {
        assert!(told.contains(option), "{option}: {told}");
    }
    let jobs =
        bench.run(&["--rw=randread", "--bs=4k", "--size=1m", "--poll=1", "--queue_size=16", "--tos=32", "--batch=4"]);
    assert_eq!(done(&jobs[0], "read"), 256);
}

/// The examples of docs/fio, a second for each job, side by side with a target each.
#[test]
fn the_examples_run() {
    if plain("mem:64Mi").is_none() {
        return;
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fio");
    let examples = std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path());
    let examples: Vec<PathBuf> =
        examples.filter(|path| path.extension().is_some_and(|extension| extension == "fio")).collect();
    assert_eq!(examples.len(), 6);
    std::thread::scope(|scope| {
        for path in &examples {
            scope.spawn(|| plain("mem:64Mi").unwrap().runs_example(path));
        }
    });
}
