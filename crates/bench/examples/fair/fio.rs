//! The loads of `equal`, made by fio: a process for each function, with the engine
//! `libebof_fio.so`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::rig::{FUNCTIONS, Rig};

/// IOPS of each function: random reads of 4 KiB, depth 32, four jobs.
pub(crate) fn run(rig: &Rig, engine: &Path, runtime: Duration) -> Vec<f64> {
    let start = |function| {
        let mut command = Command::new("fio");
        command.args(["--name=equal", "--rw=randread", "--bs=4k", "--iodepth=32", "--numjobs=4", "--thread"]);
        command.args(["--time_based", "--ramp_time=500ms", "--group_reporting", "--output-format=json"]);
        command.arg(format!("--runtime={}ms", runtime.as_millis()));
        command.arg(format!("--ioengine=external:{}", engine.display()));
        command.args([format!("--uri={}", rig.uri(function)), format!("--hostnqn={}", rig.host())]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("fio is installed")
    };
    let processes: Vec<Child> = (1..=FUNCTIONS).map(start).collect();
    processes.into_iter().map(read_iops).collect()
}

fn read_iops(process: Child) -> f64 {
    let output = process.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // There may be messages in front of it.
    let json = text.find('{').and_then(|at| serde_json::from_str::<serde_json::Value>(&text[at..]).ok());
    let iops = json.and_then(|json| json["jobs"][0]["read"]["iops"].as_f64());
    iops.filter(|_| output.status.success()).unwrap_or_else(|| panic!("fio: {}\n{text}", output.status))
}
