//! `ebof top`: a target and a host under a load, as administrators and programs see them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::host::can_attach;
use crate::monitoring::Running;
use crate::program::{alone, ebof};
use crate::serving::Serving;
use crate::terminal::Terminal;

const NQN: &str = "nqn.2014-08.org.example:top";

/// A target with one namespace, whose control socket is where `ebof` looks for it first.
fn serve(directory: &Path) -> Serving {
    let mut command = ebof(directory);
    command.args(["serve", "-o", "json", "-l", "tcp://127.0.0.1:0", "-n", NQN, "mem:64Mi"]);
    command.args(["--control", "run/control.sock"]);
    std::fs::create_dir_all(directory.join("run")).unwrap();
    Serving::start(command, directory)
}

/// The documents that the program prints, one to a line.
fn documents(directory: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = ebof(directory).args(arguments).args(["-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let manual = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md")).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let documents: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for document in &documents {
        let schema = document["schema"].as_str().unwrap();
        assert!(manual.contains(&format!("`{schema}`")), "{schema} is not in docs/json.md");
    }
    documents
}

/// What is attached, removed at the end.
struct Attached<'a>(&'a Path);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        let _ended = ebof(self.0).args(["disconnect-all", "--force"]).output();
    }
}

/// Attaches the target's namespace: its controller and its block device.
fn attach(target: &Serving) -> (String, PathBuf) {
    let listening = target.started["listening"][0].as_str().unwrap();
    let port = listening.rsplit_once(':').unwrap().1;
    let mut connect = ebof(&target.directory);
    connect.args(["connect", "-t", "tcp", "-a", "127.0.0.1", "-s", port, "-n", NQN, "-i", "2", "--front", "loop"]);
    let output = connect.args(["-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = told["namespaces"][0]["path"].as_str().unwrap();
    (told["device"].as_str().unwrap().to_owned(), path.into())
}

/// Reads of 4 KiB, until it is dropped.
fn load(directory: &Path, device: &Path) -> Running {
    let mut bench = ebof(directory);
    bench.arg("bench").arg(device).args(["--rw", "randread", "--bs", "4K", "--iodepth", "4", "--runtime", "300"]);
    Running(bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The rows of the latest of several tables in which something was done.
fn busy(directory: &Path, arguments: &[&str]) -> Vec<Value> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let tables = documents(directory, arguments);
        assert_eq!(tables.len(), 2);
        let rows = tables[1]["live"]["rows"].as_array().unwrap();
        let done: Vec<Value> = rows.iter().filter(|row| number(&row["all"]["commands_per_s"]) > 0.0).cloned().collect();
        if !done.is_empty() || Instant::now() > end {
            assert!(!done.is_empty(), "nothing was done: {}", tables[1]);
            return done;
        }
    }
}

#[test]
fn the_load_of_queues_and_namespaces_is_shown_at_both_ends() {
    if !can_attach() {
        println!("SKIPPED: no /dev/fuse or /dev/loop-control here, or no right to use them");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let target = serve(directory.path());
    let _attached = Attached(directory.path());
    let (controller, device) = attach(&target);
    let _load = load(directory.path(), &device);
    let directory = directory.path();
    let namespaces = busy(directory, &["top", device.to_str().unwrap(), "--count", "2"]);
    let [namespace] = namespaces.as_slice() else { panic!("{namespaces:?}") };
    assert_eq!(namespace["object"], format!("namespace:{controller}n1"));
    assert_eq!(
        (&namespace["labels"]["path"], &namespace["labels"]["state"], &namespace["labels"]["subsystem"]),
        (&device.to_str().unwrap().into(), &"live".into(), &NQN.into())
    );
    let read = &namespace["read"];
    assert!((number(&read["bytes_per_s"]) / number(&read["commands_per_s"]) - 4096.0).abs() < 1.0, "{read}");
    assert!(number(&read["p50_us"]) <= number(&read["p99_us"]) && number(&read["mean_us"]) > 0.0, "{read}");
    assert!(number(&namespace["in_flight"]) <= 4.0, "{namespace}");
    let queues = busy(directory, &["top", &controller, "--kind", "queues", "--count", "2"]);
    let of_target = busy(directory, &["top", "--kind", "queues", "--count", "2"]);
    let queue = |row: &Value| row["labels"]["queue"].as_str().unwrap().to_owned();
    let at_target: Vec<String> = of_target.iter().map(queue).collect();
    assert!(queues.iter().map(queue).any(|queue| at_target.contains(&queue)), "{queues:?} {of_target:?}");
    let name = of_target[0]["object"].as_str().unwrap();
    assert!(name.starts_with(&format!("queue:{NQN}/c")), "{name}");
    assert!(of_target[0]["labels"]["host"].as_str().unwrap().starts_with("nqn."), "{}", of_target[0]);
    // Without an argument, the target that runs here is shown; elsewhere than on a terminal as
    // lines.
    let [table] = documents(directory, &["top", "--count", "1"]).try_into().unwrap();
    assert_eq!(table["schema"], "ebof/target-top/1");
    let output = ebof(directory).args(["top", "--host", "--count", "1", "--sort", "depth"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("this host:") && text.contains(device.to_str().unwrap()) && !text.contains('\x1b'), "{text}");
}

#[test]
fn what_cannot_be_shown_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let failed = |arguments: &[&str]| {
        let output = ebof(directory.path()).args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (arguments, why) in [
        (&["top", "nvme77"][..], "`nvme77` is not attached to this host"),
        (&["top", "--target"], "control.sock"),
        (&["top", "--control", "none.sock"], "none.sock"),
        (&["top", "--host", "--kind", "ports"], "a host shows no ports"),
        (&["top", "--target", "--kind", "controllers"], "a target shows no controllers"),
        (&["top", "nvme0", "--server", "https://box.example.org"], "leave one of them out"),
        (&["top", "nvme0", "--target"], "cannot be used with"),
    ] {
        let told = failed(arguments);
        assert!(told.contains(why), "{arguments:?}: {told}");
    }
    // No target runs here: it is this host, with nothing that ebof has attached.
    let [table] = documents(directory.path(), &["top", "--count", "1"]).try_into().unwrap();
    assert_eq!(table["schema"], "ebof/host-top/1");
}

#[test]
fn keys_change_the_table_and_the_side() {
    let directory = tempfile::tempdir().unwrap();
    let _target = serve(directory.path());
    let mut script = Command::new("script");
    alone(&mut script, directory.path());
    let mut terminal = Terminal::start(script, "top");
    terminal.shows("commands/s").shows("PORT").shows("u queues t target");
    terminal.types("u").shows("QUEUE").types("x").shows("this host:").shows("NAMESPACE").shows("q ends");
    terminal.types("c").shows("CONTROLLER").types("x").shows("x this host q ends").types("q");
    let (code, shown) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.ends_with("\x1b[?25h\x1b[?1049l"), "the terminal is as it was: {shown:?}");
}
