//! `ebof target events`, `top` and `slow` as an administrator sees them.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::monitoring::{Running, start};
use crate::serving::Serving;

fn json(target: &Serving, arguments: &[&str]) -> Value {
    let told = target.told(&[arguments, &["-o", "json"]].concat());
    let document: Value = serde_json::from_str(told.lines().collect::<String>().as_str()).unwrap();
    let manual = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md")).unwrap();
    let schema = document["schema"].as_str().unwrap();
    assert!(manual.contains(&format!("`{schema}`")), "{schema} is not in docs/json.md");
    document
}

#[test]
fn events_are_shown_and_followed() {
    let directory = tempfile::tempdir().unwrap();
    let target = start(directory.path());
    target.told(&["target", "assign", "d0/vf1", "--port", "fabric0"]);
    let shown = target.told(&["target", "events"]);
    let line = shown.lines().find(|line| line.contains(" function-given ")).unwrap_or_else(|| panic!("{shown}"));
    let (told, who) = line.split_once(" [").unwrap_or_else(|| panic!("{line}"));
    assert!(told.ends_with("Z ok function-given d0/vf1: given to port fabric0"), "{line}");
    let user = format!("user {} (process ", std::fs::metadata(directory.path()).unwrap().uid());
    assert!(who.starts_with(&user) && who.ends_with(", ebof)]"), "{line}");
    let all = json(&target, &["target", "events"]);
    let latest = all["events"]["latest"].to_string();
    let mut follower = Command::new(env!("CARGO_BIN_EXE_ebof"))
        .args(["target", "events", "--follow", "--since", &latest, "-o", "json", "--control", "control.sock"])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let _follower = Running(follower);
    target.told(&["target", "weight", "d0/vf1", "4"]);
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let first = events.next().unwrap();
    assert_eq!((&first["schema"], &first["event"]["kind"]), (&"ebof/target-event/1".into(), &"task-began".into()));
    let changed = events.find(|line| line["event"]["kind"] == "function-changed").unwrap();
    assert_eq!(changed["event"]["object"], "d0/vf1");
}

#[test]
fn what_objects_do_and_slow_commands_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let target = start(directory.path());
    // Elsewhere than on a terminal there are no escape sequences.
    let shown = target.told(&["target", "top", "ports", "--count", "2"]);
    assert_eq!(shown.matches("SHARE PORT").count(), 2, "{shown}");
    assert!(!shown.contains('\x1b'), "{shown}");
    let overview = json(&target, &["target", "top", "target", "--count", "1"]);
    assert_eq!(overview["overview"]["objects"], Value::Array(Vec::new()), "nobody has done anything");
    assert_eq!(target.told(&["target", "slow"]), "0 commands of 100.0 ms or more since the start\n");
    assert_eq!(json(&target, &["target", "slow"])["slow"]["threshold_us"], 100_000);
}
