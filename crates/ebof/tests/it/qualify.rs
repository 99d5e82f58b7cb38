//! `ebof qualify` and `ebof report` as a user sees them: procedures over the fabric and on a file
//! system, what is not destroyed, an interruption and what comes after it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

use crate::program::ebof;
use crate::server::Server;

const NQN: &str = "nqn.2014-08.org.example:qualify";
/// Half a second for each measurement, and one round.
const SHORT: [&str; 4] = ["--quick=1000000", "--rounds", "1", "--no-repeat"];

fn qualify(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = ebof(directory);
    command.args(["-o", "json", "qualify"]).args(arguments).args(SHORT);
    command.output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", told(output)))
}

fn report(directory: &Path) -> Value {
    serde_json::from_slice(&fs::read(directory.join("report.json")).unwrap()).unwrap()
}

#[test]
fn a_namespace_is_compared_with_a_local_device_in_a_report_for_people_and_programs() {
    let server = Server::start(NQN, &["mem:64Mi"]);
    let uri = format!("nvme+tcp://127.0.0.1:{}/{NQN}/1", server.port);
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["odcc", uri.as_str(), "--against", "mem:64Mi", "--yes-destroy-data", "--report", "out/"];
    let output = qualify(directory.path(), &arguments);
    assert!(output.status.success(), "{}", told(&output));
    let printed = document(&output);
    assert_eq!((&printed["schema"], &printed["document"]["state"]), (&"ebof/qualify/1".into(), &"complete".into()));
    let out = directory.path().join("out");
    let html = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("ODCC") && html.contains("1000000"), "it says that it is shortened");
    assert!(fs::read_to_string(out.join("report.md")).unwrap().contains("139,000"), "the paper's figures");
    let kept = report(&out);
    let results = kept["results"].as_array().unwrap();
    let of_write = results.iter().find(|result| result["phase"] == "rand-write-4k").unwrap();
    assert!(of_write["columns"][0]["ratio"].as_f64().unwrap() > 0.0);
    // The target's process is found by its port.
    let run = &kept["phases"][1]["runs"][0];
    assert!(run["conditions"]["target_us_per_io"].as_f64().is_some_and(|us| us > 0.0), "{}", run["conditions"]);
    assert_eq!(kept["columns"][0]["device"]["details"][0], serde_json::json!(["model", "ebof"]));

    // Again is refused; beside itself it is shown.
    let again = qualify(directory.path(), &arguments);
    assert!(!again.status.success() && told(&again).contains("--resume"), "{}", told(&again));
    let mut beside = ebof(directory.path());
    let beside = beside.args(["-o", "json", "report", "out", "out", "--html"]).output().unwrap();
    assert!(beside.status.success(), "{}", told(&beside));
    assert_eq!(document(&beside)["runs"].as_array().unwrap().len(), 2);
    assert!(fs::read_to_string(directory.path().join("comparison.html")).unwrap().contains("</html>"));
}

#[test]
fn several_hosts_and_queue_maps_are_measured_over_the_fabric() {
    let server = Server::start(NQN, &["mem:128Mi", "mem:128Mi"]);
    let uri = |nsid: u32| format!("nvme+tcp://127.0.0.1:{}/{NQN}/{nsid}", server.port);
    let directory = tempfile::tempdir().unwrap();
    let fairness = qualify(directory.path(), &["fairness", &uri(1), &uri(2), "--report", "fair"]);
    assert!(fairness.status.success(), "{}", told(&fairness));
    let together = report(&directory.path().join("fair"))["results"][1].clone();
    assert_eq!(together["phase"], "read-4k-together");
    assert!(together["jain"].as_f64().unwrap() > 0.5 && together["columns"].as_array().unwrap().len() == 2);
    let mixed = qualify(directory.path(), &["mixed", &uri(1), "--yes-destroy-data", "--report", "mixed"]);
    assert!(mixed.status.success(), "{}", told(&mixed));
    let kept = report(&directory.path().join("mixed"));
    let beside = kept["results"].as_array().unwrap().last().unwrap();
    assert_eq!((&beside["phase"], beside["columns"].as_array().unwrap().len()), (&"beside".into(), 3));
    assert!(beside["columns"][2]["beside"][1].as_f64().unwrap() > 0.0, "the writer is told, too");
}

#[test]
fn corners_are_measured_on_ext4_too() {
    if !geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        println!("SKIPPED: a file system needs root and loop devices");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let output = qualify(directory.path(), &["corners", "disk.img:128Mi", "--report", "out"]);
    assert!(output.status.success(), "{}", told(&output));
    let kept = report(&directory.path().join("out"));
    let on_ext4 = kept["results"].as_array().unwrap().iter();
    let on_ext4 = on_ext4.filter(|result| result["phase"].as_str().unwrap().ends_with("-ext4")).count();
    let skipped: Vec<_> = kept["phases"].as_array().unwrap().iter().map(|phase| phase["skipped"].clone()).collect();
    assert_eq!(on_ext4, 5, "{skipped:?}");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains("ebof-qualify."), "{mounts}");

    // What was measured is left without a file system.
    let made = |arguments: &[&str]| {
        let status = Command::new("sh").arg("-c").arg(arguments.join(" ")).current_dir(directory.path()).status();
        status.unwrap().code()
    };
    assert_eq!(made(&["PATH=$PATH:/usr/sbin:/sbin", "blkid", "-p", "disk.img"]), Some(2), "nothing is found");
    assert_eq!(made(&["PATH=$PATH:/usr/sbin:/sbin", "mkfs.ext4", "-q", "-F", "disk.img"]), Some(0));
    let refused = qualify(directory.path(), &["cdm", "disk.img", "--yes-destroy-data", "--report", "other"]);
    assert!(!refused.status.success() && told(&refused).contains("ext4"), "{}", told(&refused));
    assert!(!directory.path().join("other").exists());
}

#[test]
fn data_are_not_destroyed_without_a_word() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = vec![7; 8 << 20];
    fs::write(directory.path().join("disk.img"), &bytes).unwrap();
    let refused = qualify(directory.path(), &["cdm", "disk.img"]);
    assert!(!refused.status.success(), "{}", told(&refused));
    assert_eq!(document(&refused)["error"]["kind"], "not-confirmed");
    assert_eq!(fs::read(directory.path().join("disk.img")).unwrap(), bytes);
    // Reading needs no question, and no right to write.
    fs::set_permissions(directory.path().join("disk.img"), fs::Permissions::from_mode(0o444)).unwrap();
    let warning = "say `--report DIRECTORY`";
    let reads = qualify(directory.path(), &["cdm", "disk.img", "--reads-only", "--report", "out"]);
    assert!(reads.status.success() && !told(&reads).contains(warning), "{}", told(&reads));
    // As it was named before.
    let reads = qualify(directory.path(), &["cdm", "disk.img", "--reads-only", "-o", "old"]);
    assert!(reads.status.success() && told(&reads).contains(warning), "{}", told(&reads));
    assert_eq!(report(&directory.path().join("old"))["state"], "complete");
    assert_eq!(fs::read(directory.path().join("disk.img")).unwrap(), bytes);
}

#[test]
fn ctrl_c_leaves_a_partial_report_that_is_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let line = ["qualify", "cdm", "mem:64Mi", "--report", "out", "--quick=60", "--rounds", "1", "--no-repeat"];
    let mut command: Command = ebof(directory.path());
    let mut child = command.args(line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = directory.path().join("out");
    let until = Instant::now() + Duration::from_secs(60);
    while !fs::read(out.join("report.json")).is_ok_and(|text| String::from_utf8_lossy(&text).contains("\"results\":[{"))
    {
        assert!(Instant::now() < until && child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", told(&output));
    assert!(told(&output).contains("a partial report is out/report.html"), "{}", told(&output));
    assert_eq!(report(&out)["state"], "interrupted");
    assert!(fs::read_to_string(out.join("report.html")).unwrap().to_lowercase().contains("interrupted"));
    let output = ebof(directory.path()).args(line).arg("--resume").output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let kept = report(&out);
    assert_eq!(
        (&kept["state"], &kept["resumed"], kept["results"].as_array().unwrap().len()),
        (&"complete".into(), &1.into(), 9)
    );
}

#[test]
fn a_target_that_goes_away_ends_the_procedure_and_the_rest_is_kept() {
    let server = Server::start(NQN, &["mem:64Mi"]);
    let uri = format!("nvme+tcp://127.0.0.1:{}/{NQN}/1", server.port);
    let directory = tempfile::tempdir().unwrap();
    let mut command = ebof(directory.path());
    command.args(["qualify", "cdm", &uri, "--yes-destroy-data", "--report", "out", "--quick=60", "--no-repeat"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = directory.path().join("out");
    let until = Instant::now() + Duration::from_secs(60);
    while !fs::read(out.join("report.json")).is_ok_and(|text| String::from_utf8_lossy(&text).contains("\"results\":[{"))
    {
        assert!(Instant::now() < until && child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    drop(server);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let kept = report(&out);
    assert_eq!(kept["state"], "failed");
    assert!(
        !kept["results"].as_array().unwrap().is_empty() && kept["trouble"].as_str().unwrap().contains("127.0.0.1"),
        "{}",
        kept["trouble"]
    );
}
