//! The demonstration of `make run` and `ebof bench` as a user sees them: their output, their ends,
//! and that nothing is left behind.

#[expect(dead_code, reason = "it is a program: its parts are tested here, and the whole below")]
#[path = "../../examples/demo/main.rs"]
mod program;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::examples::example;

fn ebof(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebof")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn demonstration() -> Command {
    example("demo")
}

/// Runs the demonstration in a directory of its own; it must succeed.
fn demo(arguments: &[&str]) -> (Value, String) {
    let parent = tempfile::tempdir().unwrap();
    let files = parent.path().join("files");
    fs::create_dir_all(files.join("a directory")).unwrap();
    for (name, bytes) in [("small", 1), ("a directory/larger one", 300_000), ("empty", 0)] {
        fs::write(files.join(name), (0..bytes).map(|at| (at % 251) as u8).collect::<Vec<_>>()).unwrap();
    }
    let place = parent.path().join("place");
    fs::create_dir(&place).unwrap();
    let fixed = ["-o", "json", "--quick", "--directory", place.to_str().unwrap(), "--files", files.to_str().unwrap()];
    let output = demonstration().args(fixed).args(arguments).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stdout));
    assert_nothing_left(&place);
    (serde_json::from_slice(&output.stdout).unwrap(), told)
}

/// No file, mount, loop device or process that belongs to `place` is left.
fn assert_nothing_left(place: &Path) {
    let name = place.to_str().unwrap();
    assert_eq!(fs::read_dir(place).unwrap().count(), 0, "{name} is not empty");
    assert!(!fs::read_to_string("/proc/mounts").unwrap().contains(name), "something is mounted");
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let directory = fs::read_link(process.path().join("cwd")).unwrap_or_default();
        assert!(!directory.starts_with(place), "process {} is still there", process.file_name().display());
    }
}

/// Whether this machine permits block devices backed by files, and mounts.
fn can_mount() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    let sys_admin = u64::from_str_radix(capabilities, 16).unwrap() >> 21 & 1 == 1;
    let opens = |path: &str| fs::File::options().read(true).write(true).open(path).is_ok();
    let front = opens("/dev/ublk-control") || (opens("/dev/fuse") && opens("/dev/loop-control"));
    rustix::process::geteuid().is_root() && sys_admin && front
}

#[test]
fn a_box_is_demonstrated() {
    let place = tempfile::tempdir().unwrap();
    let fixed = ["-o", "json", "--box", "--quick", "--directory", place.path().to_str().unwrap()];
    let output = demonstration().args(fixed).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stdout));
    assert_nothing_left(place.path());
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let measured = shown["measured"].as_array().unwrap();
    let ports: Vec<&str> = measured.iter().filter_map(|measured| measured["port"].as_str()).collect();
    assert_eq!(ports, ["fabric0", "fabric0", "fabric1", "fabric1", "direct1", "direct1"], "{shown}");
    assert!(measured.iter().all(|measured| measured["iops"].as_f64().unwrap() > 0.0), "{shown}");
    assert!(told.contains("move d0/vf1 to port fabric1: done") && told.contains("2853.5 MB/s"), "{told}");
}

fn assert_shown(shown: &Value, told: &str) {
    assert_eq!(shown["schema"], "ebof/demo/1");
    // Three files, and the program itself.
    assert_eq!((&shown["files"], &shown["differing"]), (&4.into(), &Value::Array(Vec::new())), "{told}");
    let rows = shown["comparison"]["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["128K sequential write", "128K sequential read", "4K random write", "4K random read"]);
    assert!(rows.iter().all(|row| row["local"].as_f64() > Some(0.0) && row["fabric"].as_f64() > Some(0.0)), "{rows:?}");
    assert!(told.contains("all checksums are equal: 4 files"), "{told}");
    assert!(told.contains("$ ebof discover -t tcp -a 127.0.0.1 -s "), "{told}");
}

#[test]
fn the_demonstration_runs_and_cleans_up() {
    // The port is in use: another one is used, and that is printed.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (shown, told) = demo(&["--port", &port.to_string()]);
    assert!(told.contains(&format!("port {port} is taken")), "{told}");
    assert_shown(&shown, &told);
    if can_mount() {
        let device = shown["device"].as_str().unwrap_or_else(|| panic!("it was not mounted:\n{told}"));
        assert!(told.contains(&format!("$ mkdir mnt && mount {device} mnt")), "{told}");
    } else {
        println!("SKIPPED on a block device: this machine lets us make none");
        assert!(shown["device"].is_null() && told.contains("Read back through the library"), "{told}");
    }
}

#[test]
fn without_a_mount_the_library_verifies_the_drive() {
    let (shown, told) = demo(&["--port", "0", "--no-mount"]);
    assert_shown(&shown, &told);
    assert!(shown["device"].is_null() && told.contains("not attached as a block device here: --no-mount"), "{told}");
}

#[test]
fn an_interrupted_demonstration_cleans_up() {
    let parent = tempfile::tempdir().unwrap();
    // Not the quick one, which might end before it is interrupted.
    let mut child = demonstration()
        .args(["--port", "0", "--directory", parent.path().to_str().unwrap()])
        .current_dir(parent.path().parent().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains(". Measured")), "it did not come to the measurement");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let rest: Vec<String> = lines.collect();
    assert!(!child.wait().unwrap().success());
    assert!(rest.iter().any(|line| line.starts_with("$ rm -r ")), "{rest:?}");
    assert_nothing_left(parent.path());
}

#[test]
fn a_load_is_measured_and_reported() {
    let output = ebof(&[
        "-o",
        "json",
        "bench",
        "mem:16Mi",
        "null:1Gi",
        "--rw",
        "randrw",
        "--runtime",
        "0.2",
        "--ramp-time",
        "0",
    ]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "ebof/bench/1");
    let reports = document["reports"].as_array().unwrap();
    assert_eq!(reports.iter().map(|report| report["source"].as_str().unwrap()).collect::<Vec<_>>(), ["mem", "null"]);
    for report in reports {
        assert_eq!((&report["schema"], &report["errors"]), (&"ebof-bench/1".into(), &0.into()));
        assert!(report["read"]["iops"].as_f64() > Some(100.0) && report["write"]["iops"].as_f64() > Some(100.0));
    }
    let refused = ebof(&["bench", "/tmp/some-file", "--rw", "write"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--overwrite"));
}

#[test]
fn the_limit_of_the_loopback_is_compared() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("bench.json");
    let line =
        ["bench", "--compare-raw", "--runs", "1", "--each", "0.1", "--idle", "0.5", "--json", file.to_str().unwrap()];
    let output = ebof(&line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(document["schema"], "ebof/bench-raw/1");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["depth"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 32, 128]);
    assert!(rows.iter().all(|row| row["ratio"].as_f64() > Some(0.0)), "{rows:?}");
    assert_eq!(document["idle"]["connections"], 64);
    // The promise is 50 MB, which the debug build keeps, too.
    assert!(document["idle"]["resident_bytes"].as_u64().unwrap() < 50_000_000, "{}", document["idle"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("QD 128"));
}
