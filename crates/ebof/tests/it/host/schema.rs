//! The keys of every JSON document, as a snapshot. If a key is removed or changes its type, the
//! number in the document's schema has to be increased.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::{FRIEND_NQN, NQN, Rig};

/// Adds `path: type` for everything in `value`. The elements of a list share one path.
pub(super) fn walk(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(values) => {
            values.iter().for_each(|value| walk(&format!("{path}[]"), value, found));
            "list"
        }
        Value::Object(values) => {
            values.iter().for_each(|(key, value)| walk(&format!("{path}.{key}"), value, found));
            "object"
        }
    };
    found.insert(format!("{path}: {kind}"));
}

/// Runs verbs in turn and lists the keys of their documents.
fn keys(rig: &Rig, verbs: &[&[&str]]) -> String {
    let mut shown = String::new();
    for &args in verbs {
        let run = rig.run(&[args, &["-o", "json"]].concat());
        assert_eq!(run.code, Some(0), "{args:?}: {}", String::from_utf8_lossy(&run.stdout));
        let json = run.json();
        // A list's elements have the schema; an empty one has none.
        let first = json.as_array().map_or(Some(&json), |list| list.first());
        let schema =
            first.map_or_else(|| format!("ebof/{}/2", args[0]), |json| json["schema"].as_str().unwrap().to_owned());
        let expected = if args[0] == "config" { "config-check" } else { args[0] };
        assert!(schema.starts_with(&format!("ebof/{expected}/")), "{schema}");
        let mut found = BTreeSet::new();
        walk("", &json, &mut found);
        writeln!(shown, "{schema}").unwrap();
        // Where the device is a key, it is another one with each run.
        let device = args.iter().find(|arg| arg.starts_with("nvme+")).copied().unwrap_or("\0");
        let found: BTreeSet<String> = found.iter().map(|line| line.replace(device, "DEVICE")).collect();
        found.iter().for_each(|line| writeln!(shown, "  {line}").unwrap());
    }
    shown
}

// @test output.json
#[test]
fn json_keys_are_stable() {
    let rig = Rig::new();
    let controller = rig.uri(NQN, "");
    let namespace = rig.uri(NQN, "/1");
    let port = rig.address("any").port().to_string();
    let file = rig.path("data");
    super::write(&file, &[7; 512]);
    let config = rig.path("ebof.toml");
    super::write(&config, b"[[ports]]\nlisten = \"tcp://127.0.0.1:4420\"\n");
    let verbs: [&[&str]; 37] = [
        &["discover", "-a", "127.0.0.1", "-s", &port, "-q", FRIEND_NQN],
        &["list"],
        &["list-subsys"],
        &["show-topology"],
        &["disconnect", "-n", NQN],
        &["disconnect-all"],
        &["id-ctrl", &controller, "-V"],
        &["id-ns", &namespace, "-V"],
        &["list-ns", &controller],
        &["list-ctrl", &controller],
        &["ns-descs", &namespace],
        &["show-regs", &controller],
        &["get-ns-id", &namespace],
        &["get-property", &controller, "-O", "0x1c"],
        &["set-property", &controller, "-O", "0x14", "-V", "0x460001"],
        &["admin-passthru", &controller, "-O", "6", "-4", "1", "-l", "4096"],
        &["io-passthru", &namespace, "-O", "0"],
        &["get-log", &controller, "-i", "2", "-l", "8"],
        &["smart-log", &controller],
        &["error-log", &controller, "-e", "1"],
        &["fw-log", &controller],
        &["effects-log", &controller],
        &["changed-ns-list-log", &controller],
        &["supported-log-pages", &controller],
        &["get-feature", &controller, "-f", "7"],
        &["set-feature", &controller, "-f", "0x0b", "-V", "0"],
        &["reset", &controller],
        &["write", &namespace, "-d", &file],
        &["read", &namespace, "-d", &file],
        &["compare", &namespace, "-d", &file],
        &["write-zeroes", &namespace],
        &["verify", &namespace],
        &["dsm", &namespace, "-d", "-s", "0", "-b", "1"],
        &["flush", &namespace],
        &["config", "check", &config],
        &["gen-hostnqn"],
        &["show-hostnqn"],
    ];
    insta::assert_snapshot!(keys(&rig, &verbs));
}

#[test]
fn json_keys_of_a_drives_verbs_are_stable() {
    let rig = Rig::of_drive("mem:16Mi");
    let controller = rig.uri(NQN, "");
    let namespace = rig.uri(NQN, "/1");
    let image = rig.path("image");
    let verbs: [&[&str]; 24] = [
        &["create-ns", &controller, "-S", "4M", "-m", "1"],
        &["attach-ns", &controller, "-n", "1", "-c", "0"],
        &["list-ns", &controller, "--all"],
        &["list-ctrl", &controller, "-n", "1"],
        &["id-ctrl", &controller],
        &["id-ns", &namespace],
        &["nvm-id-ctrl", &controller],
        &["nvm-id-ns", &namespace],
        &["cmdset-ind-id-ns", &namespace],
        &["id-ns-granularity", &controller],
        &["list-endgrp", &controller],
        &["resv-register", &namespace, "--nrkey", "1"],
        &["resv-acquire", &namespace, "--crkey", "1", "-t", "1"],
        &["resv-report", &namespace],
        &["resv-release", &namespace, "--crkey", "1", "-t", "1"],
        &["resv-notif-log", &controller],
        &["smart-log", &controller],
        &["fw-log", &controller],
        &["endurance-log", &controller],
        &["persistent-event-log", &controller],
        &["fw-image", &image, "-r", "2.0"],
        &["fw-commit", &controller, "-f", &image, "-s", "2", "-a", "0"],
        &["detach-ns", &controller, "-n", "1", "-c", "0"],
        &["delete-ns", &controller, "-n", "1", "--force"],
    ];
    insta::assert_snapshot!(keys(&rig, &verbs));
}

// @test output.json
#[test]
fn every_schema_is_documented() {
    let read = |path: &str| std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let manual = read("../../docs/json.md");
    let snapshots = ["json_keys_are_stable", "json_keys_of_a_drives_verbs_are_stable"]
        .map(|name| read(&format!("tests/it/host/snapshots/it__host__schema__{name}.snap")))
        .concat();
    let schemas = snapshots.lines().filter(|line| line.starts_with("ebof/"));
    for schema in schemas.chain(["ebof/serve/1", "ebof/error/1", "ebof/connect/1", "ebof/connect-all/1"]) {
        assert!(manual.contains(schema), "{schema} is not in docs/json.md");
    }
}
