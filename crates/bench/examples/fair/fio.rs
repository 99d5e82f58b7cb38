//! The loads of `equal`, made by fio: a group of jobs for each function, with the engine
//! `libebof_fio.so`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::rig::{FUNCTIONS, Rig};

/// IOPS of each function: random reads of 4 KiB, depth 32, four jobs. One process has all of them,
/// because processes of their own would not begin at the same moment, and each would measure for a
/// while what it gets beside fewer others.
pub(crate) fn run(rig: &Rig, engine: &Path, runtime: Duration) -> Vec<f64> {
    let mut command = Command::new("fio");
    command.args(["--thread", "--group_reporting", "--output-format=json"]);
    for function in 1..=FUNCTIONS {
        command.args([format!("--name=function{function}"), "--new_group".to_owned()]);
        command.args(["--rw=randread", "--bs=4k", "--iodepth=32", "--numjobs=4", "--time_based", "--ramp_time=500ms"]);
        command.arg(format!("--runtime={}ms", runtime.as_millis()));
        command.arg(format!("--ioengine=external:{}", engine.display()));
        command.args([format!("--uri={}", rig.uri(function)), format!("--hostnqn={}", rig.host())]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().expect("fio is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    // There may be messages in front of it.
    let json = text.find('{').and_then(|at| serde_json::from_str::<serde_json::Value>(&text[at..]).ok());
    let groups = json.as_ref().and_then(|json| json["jobs"].as_array());
    let iops: Vec<f64> = groups.into_iter().flatten().filter_map(|group| group["read"]["iops"].as_f64()).collect();
    assert!(output.status.success() && iops.len() == usize::from(FUNCTIONS), "fio: {}\n{text}", output.status);
    iops
}
