//! `ebof target` as an administrator sees it: a running target, its control socket and the verbs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::ebof;
use crate::serving::Serving;

const BOX: &str = r#"
[target]
control = "control.sock"
[[ports]]
name = "fabric0"
listen = "tcp://127.0.0.1:0"
[[ports]]
name = "fabric1"
listen = "tcp://127.0.0.1:0"
[[drives]]
name = "d0"
backing = "mem:256Mi"
functions = 2
[[subsystems]]
nqn = "nqn.2014-08.org.example:box:d0"
allow_any_host = true
ports = ["fabric0"]
drive = "d0"
"#;

/// `ebof serve --config` in a directory of its own, managed by `ebof target`.
struct Box(Serving);

impl Box {
    fn start(directory: &Path) -> Self {
        Self(Serving::start(serve(directory), directory))
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.0.run(&[&["target"], arguments].concat())
    }

    fn told(&self, arguments: &[&str]) -> String {
        self.0.told(&[&["target"], arguments].concat())
    }

    fn refused(&self, arguments: &[&str]) -> String {
        self.0.refused(&[&["target"], arguments].concat())
    }

    fn inventory(&self) -> Value {
        serde_json::from_str::<Value>(&self.told(&["show", "-o", "json"])).unwrap()["inventory"].clone()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0.child), signal).unwrap();
    }
}

fn serve(directory: &Path) -> Command {
    let config = directory.join("box.toml");
    if !config.exists() {
        std::fs::write(&config, BOX).unwrap();
    }
    let mut command = ebof(directory);
    command.args(["serve", "-o", "json", "--config"]).arg(config);
    command
}

#[test]
fn functions_are_given_moved_and_limited_by_verbs() {
    let directory = tempfile::tempdir().unwrap();
    let running = Box::start(directory.path());
    let path = directory.path().join("control.sock");
    assert_eq!(running.0.started["control"], path.to_str().unwrap());
    let done = running.told(&["assign", "d0/vf1", "--port", "fabric0"]);
    assert!(done.starts_with("give d0/vf1 to port fabric0: done in "), "{done}");
    running.told(&["move", "d0/vf1", "--to", "fabric1"]);
    running.told(&["weight", "d0/vf1", "4"]);
    running.told(&["limit", "d0/vf1", "--iops", "50k", "--bandwidth", "1G"]);
    let shown = running.told(&["show"]);
    let row = shown.lines().find(|line| line.trim_start().starts_with("vf1")).unwrap();
    for cell in ["online", "fabric1", " 4 ", "50000 IOPS, 1.00 GB/s"] {
        assert!(row.contains(cell), "{cell}: {shown}");
    }
    let inventory = running.inventory();
    assert_eq!(inventory["ports"][1]["functions"][0], "d0/vf1");
    assert_eq!(inventory["drives"][0]["temperature_kelvin"], Value::Null, "memory has no sensor");

    let task: Value = serde_json::from_str(&running.told(&["assign", "d0/vf2", "--none", "-o", "json"])).unwrap();
    assert_eq!((&task["schema"], &task["task"]["state"]), (&"ebof/target-task/1".into(), &"done".into()));
    // The text has no number if the task has ended by then.
    let begun: Value = serde_json::from_str(&running.told(&["reset", "d0", "--no-wait", "-o", "json"])).unwrap();
    assert_eq!(begun["task"]["what"], "reset the primary controller of drive d0", "{begun}");
    running.told(&["tasks", &begun["task"]["id"].to_string(), "--wait"]);
    assert_eq!(running.inventory()["drives"][0]["functions"][0]["online"], false);
    assert_eq!(running.told(&["tasks"]).lines().count(), 2 + 6);
}

#[test]
fn namespaces_and_drives_are_changed_by_verbs() {
    let directory = tempfile::tempdir().unwrap();
    let running = Box::start(directory.path());
    let added = running.told(&["add", "namespace", "d0", "8M", "--attach", "d0/vf1"]);
    assert!(added.ends_with(" ms\nd0/ns1\n"), "{added}");
    running.told(&["set", "d0/ns1", "write-protect=on"]);
    assert!(running.told(&["show"]).contains("ns1 protected"));
    let told = running.refused(&["remove", "namespace", "d0/ns1", "--yes-destroy-data", "d0/ns1"]);
    assert!(told.contains("write-protect=off"), "{told}");
    running.told(&["set", "d0/ns1", "write-protect=off"]);
    running.told(&["detach", "d0/ns1", "d0/vf1"]);
    running.told(&["attach", "d0/ns1", "*"]);

    // Nobody can be asked here.
    let told = running.refused(&["format", "d0/ns1", "--block-size", "512"]);
    assert!(told.contains("d0/ns1, 8.00 MB, attached to every host"), "{told}");
    assert!(told.contains("say --yes-destroy-data d0/ns1"), "{told}");
    let told = running.refused(&["format", "d0/ns1", "--yes-destroy-data", "d0"]);
    assert!(told.contains("d0 is another one than d0/ns1: nothing was done"), "{told}");
    let format = ["format", "d0/ns1", "--block-size", "512", "--erase", "user-data"];
    running.told(&[&format[..], &["--yes-destroy-data", "d0/ns1"]].concat());
    running.told(&["self-test", "d0"]);
    running.told(&["sanitize", "d0", "--yes-destroy-data", "d0"]);

    let image = directory.path().join("new.img");
    let image = image.to_str().unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_ebof")).args(["fw-image", image, "-r", "9.1"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let told = running.told(&["firmware", "d0", "--file", image, "--activate"]);
    assert!(told.starts_with("activate firmware slot 2 of drive d0: done"), "{told}");
    let shown = running.told(&["show", "d0"]);
    for text in ["slot 2: 9.1, active", "sanitize    succeeded", "Sanitize Completion"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(shown.lines().any(|line| line.starts_with("short ") && line.ends_with(" passed")), "{shown}");
    let told = running.refused(&["firmware", "d0", "--file", "/dev/null"]);
    assert!(told.contains("this is no firmware image"), "{told}");
    assert!(running.refused(&["show", "d9"]).contains("there is no such drive"));
    running.told(&["remove", "namespace", "d0/ns1", "--yes-destroy-data", "d0/ns1"]);
    assert_eq!(running.inventory()["drives"][0]["namespaces"], Value::Array(Vec::new()));
}

/// The keys of a document, with their places.
pub(crate) fn keys(place: &str, value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => entries.iter().for_each(|(key, value)| keys(&format!("{place}.{key}"), value, into)),
        Value::Array(entries) => entries.iter().for_each(|value| keys(&format!("{place}[]"), value, into)),
        _ => drop(into.insert(place.to_owned())),
    }
}

#[test]
fn the_keys_of_json_are_stable_and_documented() {
    let directory = tempfile::tempdir().unwrap();
    let running = Box::start(directory.path());
    let verbs: [&[&str]; 7] = [
        &["assign", "d0/vf1", "--port", "fabric0", "-o", "json"],
        &["add", "namespace", "d0", "8M", "--attach", "d0/vf1", "-o", "json"],
        &["show", "-o", "json"],
        &["show", "d0", "-o", "json"],
        &["tasks", "-o", "json"],
        &["tasks", "ID", "-o", "json"],
        &["move", "d0/vf9", "--to", "fabric1", "-o", "json"],
    ];
    let (mut text, mut first) = (String::new(), String::new());
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    for verb in verbs {
        let words: Vec<&str> = verb.iter().map(|&word| if word == "ID" { &*first } else { word }).collect();
        let printed = running.run(&words).stdout;
        let document: Value = serde_json::from_slice(&printed).unwrap();
        if first.is_empty() {
            first = document["task"]["id"].to_string();
        }
        let schema = document["schema"].as_str().unwrap();
        assert!(manual.contains(schema), "{schema} is not in docs/json.md");
        let mut all = BTreeSet::new();
        keys("", &document, &mut all);
        // What the machine has.
        all.retain(|key| !key.starts_with(".inventory.sensors"));
        text += &format!("{schema}: {}\n", verb[0]);
        all.iter().for_each(|key| text += &format!("  {key}\n"));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn mistakes_are_explained_all_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let running = Box::start(directory.path());
    let told = running.refused(&["move", "d0/vf9", "--to", "fabric7"]);
    for part in ["2 mistakes, and nothing was changed", "drive d0 has vf1 to vf2", "did you mean fabric0?"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let told = running.refused(&["tasks", "77"]);
    assert!(told.contains("task 77: it is not remembered"), "{told}");
    let transaction = r#"{"changes": [{"change": "weight", "function": "d0/vf1", "weight": 7},
        {"change": "add-drive", "drive": {"name": "d9", "backing": "/nonexistent/d9.img", "size": "1G"}}]}"#;
    std::fs::write(directory.path().join("t.json"), transaction).unwrap();
    let told = running.refused(&["change", "t.json"]);
    assert!(told.contains("cannot add drive d9") && told.contains("(configuring)"), "{told}");
    assert_eq!(running.inventory()["drives"][0]["functions"][0]["share"]["weight"], 1);
    let output = running.run(&["weight", "d0/vf1", "0", "-o", "json"]);
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["error"]["kind"], "refused-change", "{error}");
}

#[test]
fn drives_come_and_go_beside_sighup() {
    let directory = tempfile::tempdir().unwrap();
    let running = Box::start(directory.path());
    let added = running.told(&["add", "drive", "name=d1,backing=d1.img,size=64Mi"]);
    assert!(added.contains("drive d1 is served until the next start or reload"), "{added}");
    let drives: Vec<_> =
        running.told(&["show"]).lines().filter(|line| line.starts_with("drive ")).map(str::to_owned).collect();
    assert!(!drives[0].contains("added") && drives[1].contains("added until the next start"), "{drives:?}");
    assert!(directory.path().join("d1.img").exists(), "a relative path is relative to the user's directory");
    assert_eq!(running.inventory()["drives"][1]["nqn"], "nqn.2014-08.org.example:box:d1");
    let told = running.refused(&["add", "drive", "name=d1,backing=d1.img"]);
    assert!(told.contains("used twice"), "{told}");
    running.told(&["remove", "drive", "d1"]);
    assert_eq!(running.inventory()["drives"].as_array().unwrap().len(), 1);
    // What the file does not have goes with the next reload.
    running.told(&["add", "drive", "name=d2,backing=mem:64Mi"]);
    running.signal(Signal::HUP);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while running.inventory()["drives"].as_array().unwrap().len() > 1 {
        assert!(std::time::Instant::now() < end, "the drive stays");
    }
    let removed = running.told(&["remove", "drive", "d0", "--surprise"]);
    assert!(removed.contains("drive d0 is in the configuration"), "{removed}");
    assert_eq!(running.inventory()["drives"], Value::Array(Vec::new()));
}

#[test]
fn a_live_socket_is_refused_and_a_stale_one_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let running = Box::start(directory.path());
    let second = serve(directory.path()).output().unwrap();
    assert!(!second.status.success());
    let told = String::from_utf8_lossy(&second.stdout);
    assert!(told.contains("a running target has the control socket") && told.contains("--control PATH"), "{told}");
    assert_eq!(running.inventory()["pid"], running.0.child.id());
    drop(running);
    assert!(directory.path().join("control.sock").exists(), "it was killed");
    let running = Box::start(directory.path());
    assert_eq!(running.inventory()["pid"], running.0.child.id());
    running.signal(Signal::TERM);
    let mut child = { running };
    assert!(child.0.child.wait().unwrap().success());
    assert!(!directory.path().join("control.sock").exists());
    let told = child.refused(&["show"]);
    assert!(told.contains("no target has its control socket there"), "{told}");
}

/// Advice in words, of which one part destroys: each part leads on, the harmless ones first.
// @test output.destroying-advice
#[test]
fn a_full_drive_is_used_again_as_the_advice_says() {
    let directory = tempfile::tempdir().unwrap();
    let second = "[[drives]]\nname = \"d1\"\nbacking = \"mem:64Mi\"\n[[subsystems]]\nnqn = \"nqn.2014-08.org.example:box:d1\"\n\
                  allow_any_host = true\nports = [\"fabric1\"]\ndrive = \"d1\"\n";
    let full = BOX.replace("functions = 2\n", "functions = 2\nnamespaces = 2\n");
    std::fs::write(directory.path().join("box.toml"), full + second).unwrap();
    let running = Box::start(directory.path());
    let add = |drive: &str, size: &str| ["add".to_owned(), "namespace".to_owned(), drive.to_owned(), size.to_owned()];
    let told = |words: &[String]| running.told(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let refused = |words: &[String]| running.refused(&words.iter().map(String::as_str).collect::<Vec<_>>());
    told(&add("d0", "150M"));
    let text = refused(&add("d0", "200M"));
    assert!(
        text.contains("choose a smaller size") && text.contains("or delete a namespace whose data may be lost"),
        "{text}"
    );
    told(&add("d0", "8M"));
    let text = refused(&add("d0", "8M"));
    let advice = "use another drive; or delete one whose data may be lost (`ebof target remove namespace NAMESPACE`)";
    assert!(text.contains(advice), "{text}");
    told(&add("d1", "8M"));
    let remove = |name: &str| running.told(&["remove", "namespace", name, "--yes-destroy-data", name]);
    remove("d0/ns2");
    told(&add("d0", "8M"));
    remove("d0/ns1");
    told(&add("d0", "200M"));
}
