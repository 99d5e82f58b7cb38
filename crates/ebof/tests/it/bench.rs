//! `ebof bench` as a user sees it: groups that run together, queues as with `connect`, sources that
//! are compared.

use std::process::{Command, Output};

use crate::server::Server;
use serde_json::Value;

const NQN: &str = "nqn.2014-08.org.example:bench";

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebof"))
        .args(["-o", "json", "bench", "--ramp-time", "0"])
        .args(arguments)
        .output()
        .unwrap()
}

fn document(arguments: &[&str]) -> Value {
    let output = bench(arguments);
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {told}"))
}

fn target() -> (Server, String) {
    let server = Server::start(NQN, &["mem:64Mi"]);
    let uri = format!("nvme+tcp://127.0.0.1:{}/{NQN}/1", server.port);
    (server, uri)
}

/// 16 threads that read 4 KiB at a time, and one that writes 1 MiB at depth: with separate queues,
/// with one shared queue, and with separate queues for reads and writes.
#[test]
fn small_readers_and_a_large_writer_run_together_and_are_reported_separately() {
    let (_server, uri) = target();
    let groups = [
        "--job",
        "name=readers,rw=randread,bs=4k,numjobs=16,iodepth=1,size=16Mi",
        "--job",
        "name=writer,rw=write,bs=1M,iodepth=8,offset=16M",
    ];
    for queues in
        [&[][..], &["-i", "1"], &["-i", "1", "-W", "1"], &["--nr-io-queues=1", "--nr-poll-queues=1", "--hipri"]]
    {
        let mut line = vec![uri.as_str(), "--overwrite", "--runtime", "0.5"];
        line.extend_from_slice(&groups);
        line.extend_from_slice(queues);
        let document = document(&line);
        assert_eq!((&document["schema"], &document["comparison"]), (&"ebof/bench/1".into(), &Value::Array(Vec::new())));
        let reports = document["reports"].as_array().unwrap();
        let names: Vec<_> = reports.iter().map(|report| report["job"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["readers", "writer"]);
        assert!(reports[0]["read"]["operations"].as_u64() > Some(0) && reports[0]["write"].is_null(), "{queues:?}");
        assert!(reports[1]["write"]["operations"].as_u64() > Some(0) && reports[1]["read"].is_null(), "{queues:?}");
        let process = &reports[0]["process"];
        let part = |key: &str| process[key].as_f64().unwrap();
        let sum = part("user_us_per_operation") + part("system_us_per_operation");
        assert!(sum > 0.0 && (sum - part("cpu_us_per_operation")).abs() < 1e-6, "{process}");
        let percentiles = reports[0]["read"]["latency"]["percentiles"].as_array().unwrap();
        assert_eq!(percentiles.last().unwrap()[0], 99.999);
    }
}

#[test]
fn a_file_and_a_namespace_are_compared() {
    let (_server, uri) = target();
    let directory = tempfile::tempdir().unwrap();
    let file = format!("{}:16Mi", directory.path().join("disk.img").display());
    let common = ["--rw", "randwrite", "--overwrite", "--size", "16M", "--runtime", "0.3", "--iodepth", "4"];
    for engine in [&["--ioengine", "threads", "--direct", "0"][..], &["--ioengine", "auto"]] {
        let mut line = vec![file.as_str(), uri.as_str()];
        line.extend_from_slice(&common);
        line.extend_from_slice(engine);
        let document = document(&line);
        let rows = document["comparison"].as_array().unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["ratio"], 1.0);
        let expected = rows[1]["iops"].as_f64().unwrap() / rows[0]["iops"].as_f64().unwrap();
        assert!((rows[1]["ratio"].as_f64().unwrap() - expected).abs() < 1e-9);
        assert_eq!(rows[1]["source"].as_str().unwrap(), uri);
    }
    let output = Command::new(env!("CARGO_BIN_EXE_ebof"))
        .args(["bench", "mem:16Mi", &uri, "--runtime", "0.2", "--ramp-time", "0"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("ratio") && text.contains("99.999 %") && text.contains("(this process)"), "{text}");
}

#[test]
fn mistakes_in_a_group_and_a_queue_are_explained() {
    let (_server, uri) = target();
    let fails = |arguments: &[&str], says: &str| {
        let output = bench(arguments);
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(says), "{arguments:?}: {told}");
    };
    fails(&[&uri, "--job", "rw=randread,deep=3"], "this key is not known");
    fails(&[&uri, "--job", "rw=write"], "--overwrite");
    fails(&[&uri, "--iodepth", "64", "-Q", "32"], "takes 31 commands at a time");
    fails(&[&uri, "--rate", "0"], "a rate of 0");
}

// @test output.destroying-advice
#[test]
fn what_is_advised_in_place_of_overwriting_works() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk.img");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let source = file.to_str().unwrap();
    let is_whole = || std::fs::read(&file).unwrap().iter().all(|&byte| byte == 7);
    let write = ["--rw", "write", "--runtime", "0.2"];
    let output = bench(&[&[source], &write[..]].concat());
    let error = serde_json::from_slice::<Value>(&output.stdout).unwrap()["error"].clone();
    assert_eq!((output.status.code(), &error["kind"]), (Some(2), &"usage".into()), "{error}");
    let advice = "measure reads, or a device without data; say --overwrite if they may be lost";
    assert_eq!(error["advice"], advice);
    document(&[source, "--rw", "read", "--runtime", "0.2"]);
    document(&[&["mem:1Mi"], &write[..]].concat());
    assert!(is_whole(), "it was written to");
    document(&[&[source, "--overwrite"], &write[..]].concat());
    assert!(!is_whole());
}
