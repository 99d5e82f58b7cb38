//! Keys of hosts, as those use them who manage a target: they are made, given, rotated and removed
//! by verbs, are there after a restart, and are nowhere but in their files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::program::ebof;
use crate::serving::Serving;

const NQN: &str = "nqn.2014-08.org.example:locked";
const HOST: &str = "nqn.2014-08.org.example:blade1";

fn serve(directory: &Path, more: &[&str]) -> Serving {
    let mut command = ebof(directory);
    command.args(["serve", "mem:64Mi", "--nqn", NQN, "--listen", "tcp://127.0.0.1:0", "--authenticated", "-o", "json"]);
    command.args(["--control", "control.sock"]).args(more);
    Serving::start(command, directory)
}

/// A verb of a host that connects, proving itself by a file or not at all.
fn host(serving: &Serving, file: Option<&str>) -> Output {
    let listening = serving.started["listening"][0].as_str().unwrap();
    let mut command = ebof(&serving.directory);
    command.args(["id-ctrl", &format!("nvme+{listening}/{NQN}"), "--hostnqn", HOST]);
    if let Some(file) = file {
        command.args(["--dhchap-secret-file", file]);
    }
    command.output().unwrap()
}

fn connects(serving: &Serving, file: Option<&str>) -> bool {
    host(serving, file).status.success()
}

fn json(serving: &Serving, arguments: &[&str]) -> Value {
    serde_json::from_str(&serving.told(&[arguments, &["-o", "json"]].concat())).unwrap()
}

/// Verified writes and reads that go on until it is told to end, by the key of a file.
fn load(serving: &Serving, file: &str) -> Child {
    let listening = serving.started["listening"][0].as_str().unwrap();
    let mut command = ebof(&serving.directory);
    command.args(["bench", &format!("nvme+{listening}/{NQN}/1"), "--hostnqn", HOST, "--dhchap-secret-file", file]);
    command.args(["--rw", "randwrite", "--verify", "--runtime", "4", "--overwrite", "-o", "json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

// @test keys.rotated
// @test keys.stored
#[test]
fn keys_are_added_rotated_and_removed_by_verbs_and_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let serving = serve(directory.path(), &["--state", "state"]);
    assert!(!connects(&serving, None));
    let told = serving.told(&["target", "add", "key", HOST, "--output-file", "one.key"]);
    assert!(told.contains("k1: dhchap key of") && told.contains("--dhchap-secret-file one.key"), "{told}");
    let mode = directory.path().join("one.key").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(connects(&serving, Some("one.key")) && !connects(&serving, None));
    // A file that is there is not written over, and nothing is given.
    let refused = serving.run(&["target", "rotate", "key", HOST, "--output-file", "one.key"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let refused = serving.run(&["target", "rotate", "key", "nqn.2014-08.org.example:other"]);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("has no dhchap key"));
    // Rotated while data go on.
    let mut load = load(&serving, "one.key");
    let shown = || json(&serving, &["target", "show", "keys"])["keys"][0]["connected"].clone();
    while shown().as_u64().is_none_or(|connected| connected == 0) {
        assert!(load.try_wait().unwrap().is_none(), "it is connected sooner or later");
    }
    let rotated = json(&serving, &["target", "rotate", "key", HOST, "--output-file", "two.key"]);
    assert_eq!((&rotated["outcome"], &rotated["added"]["id"]), (&"rotated".into(), &"k2".into()), "{rotated}");
    assert!(rotated.get("key").is_none(), "{rotated}");
    assert!(connects(&serving, Some("one.key")) && connects(&serving, Some("two.key")));
    let removed = json(&serving, &["target", "remove", "key", HOST, "--old"]);
    assert_eq!(removed["removed"][0]["id"], "k1", "{removed}");
    assert!(!connects(&serving, Some("one.key")) && connects(&serving, Some("two.key")));
    assert!(load.try_wait().unwrap().is_none(), "it goes on");
    let load = load.wait_with_output().unwrap();
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    // One that is printed, once.
    let printed = serving.run(&["target", "rotate", "key", HOST, "-m", "3"]);
    let (key, told) = (String::from_utf8(printed.stdout).unwrap(), String::from_utf8(printed.stderr).unwrap());
    assert!(key.starts_with("DHHC-1:03:") && key.lines().count() == 1, "{key}");
    assert!(told.contains("k3: dhchap key") && !told.contains("DHHC"), "{told}");
    let three = directory.path().join("three.key");
    std::fs::write(&three, &key).unwrap();
    std::fs::set_permissions(&three, std::fs::Permissions::from_mode(0o600)).unwrap();
    let before = json(&serving, &["target", "show", "keys"]);
    serving.terminate();
    let serving = serve(directory.path(), &["--state", "state"]);
    assert_eq!(json(&serving, &["target", "show", "keys"])["keys"], before["keys"]);
    assert!(connects(&serving, Some("two.key")) && connects(&serving, Some("three.key")));
    assert!(!connects(&serving, Some("one.key")) && !connects(&serving, None));
    // What takes the last one away is asked for, or said.
    let refused = serving.refused(&["target", "remove", "key", HOST, "--all"]);
    assert!(refused.contains("cannot connect to") && refused.contains("--yes"), "{refused}");
    serving.told(&["target", "remove", "key", HOST, "--all", "--yes"]);
    assert!(!connects(&serving, Some("two.key")));
    assert_eq!(json(&serving, &["target", "show", "keys"])["keys"], Value::Array(Vec::new()));
    // By a key of the user's.
    serving.told(&["target", "add", "key", HOST, "--key-file", "two.key"]);
    assert!(connects(&serving, Some("two.key")));
    assert_eq!(json(&serving, &["target", "show", "keys"])["keys"][0]["id"], "k4");
}

#[test]
fn without_a_state_directory_keys_end_with_the_target_and_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let serving = serve(directory.path(), &["--state", "none"]);
    let told = serving.told(&["target", "add", "key", HOST, "--output-file", "one.key"]);
    assert!(told.contains("in its memory, and gone when it ends"), "{told}");
    assert!(connects(&serving, Some("one.key")));
    assert!(serving.told(&["target", "show", "keys"]).contains("in its memory only"));
}

// @test keys.stored
#[test]
fn a_key_that_was_answered_is_there_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mut answered: Vec<String> = Vec::new();
    for round in 0..6 {
        let mut serving = serve(directory.path(), &["--state", "state"]);
        let stored = ids(&serving);
        assert!(answered.iter().all(|id| stored.contains(id)), "round {round}: {answered:?}, {stored:?}");
        let numbers: std::collections::BTreeSet<&String> = stored.iter().collect();
        assert_eq!(numbers.len(), stored.len(), "each has a number of its own: {stored:?}");
        let host = format!("nqn.2014-08.org.example:r{round}");
        let added = json(&serving, &["target", "add", "key", &host]);
        answered.push(added["added"]["id"].as_str().unwrap().to_owned());
        // Another one is under way when the target is killed.
        let mut command = ebof(directory.path());
        command.args(["target", "rotate", "key", &host, "-o", "json", "--control", "control.sock"]);
        let mut rotating = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        if round % 2 == 0 {
            // What it has to store begins with the file beside the other one.
            while rotating.try_wait().unwrap().is_none() && !directory.path().join("state/.keys.json.new").exists() {}
        }
        serving.child.kill().unwrap();
        let rotated = rotating.wait_with_output().unwrap();
        if rotated.status.success() {
            let rotated: Value = serde_json::from_slice(&rotated.stdout).unwrap();
            answered.push(rotated["added"]["id"].as_str().unwrap().to_owned());
        }
    }
    let serving = serve(directory.path(), &["--state", "state"]);
    let stored = ids(&serving);
    assert!(answered.iter().all(|id| stored.contains(id)), "{answered:?}, {stored:?}");
}

fn ids(serving: &Serving) -> Vec<String> {
    let keys = json(serving, &["target", "show", "keys"])["keys"].clone();
    keys.as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap().to_owned()).collect()
}

/// All text that a target and its verbs leave anywhere but in the files that are for keys.
fn everything(serving: &Serving, files: &[PathBuf]) -> String {
    let mut all = String::new();
    for arguments in [
        &["target", "show", "keys"][..],
        &["target", "show"],
        &["target", "show", "hosts"],
        &["target", "status"],
        &["target", "events"],
        &["target", "audit"],
        &["config", "export"],
        &["config", "history"],
        &["config", "diff", "other.toml"],
    ] {
        for format in [&[][..], &["-o", "json"], &["-v"]] {
            let output = serving.run(&[arguments, format].concat());
            all += &String::from_utf8_lossy(&output.stdout);
            all += &String::from_utf8_lossy(&output.stderr);
        }
    }
    let metrics = serving.started["metrics"].as_str().unwrap();
    let mut stream =
        std::net::TcpStream::connect(metrics.trim_start_matches("http://").split('/').next().unwrap()).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
    assert!(text.contains("ebof_"), "{text}");
    all += &text;
    let process = format!("/proc/{}", serving.child.id());
    for name in ["cmdline", "environ"] {
        all += &String::from_utf8_lossy(&std::fs::read(format!("{process}/{name}")).unwrap());
    }
    for file in files {
        match std::fs::read(file) {
            Ok(bytes) => all += &String::from_utf8_lossy(&bytes),
            // One that was written beside another, and took its place since.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}: {error}", file.display()),
        }
    }
    all
}

/// The files below a directory, but for those with these names.
fn files(directory: &Path, but: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(files(&path, but));
        } else if kind.is_file() && !but.iter().any(|name| path.file_name().unwrap() == *name) {
            found.push(path);
        }
    }
    found
}

// @test keys.secret
#[test]
fn a_key_is_nowhere_but_in_the_files_that_are_for_it() {
    const MARK: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh";
    let directory = tempfile::tempdir().unwrap();
    let key = format!("DHHC-1:01:{MARK}+KfiaR:");
    let at = |name: &str| directory.path().join(name);
    // One of them is not whole: what is wrong with it is told without it.
    for (name, key) in [("marked.key", key.clone()), ("broken.key", key.replace("KfiaR", "KfiaX"))] {
        std::fs::write(at(name), key).unwrap();
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    std::fs::write(at("other.toml"), "subsystems = []\n").unwrap();
    let log = std::fs::File::create(at("log")).unwrap();
    let mut command: Command = ebof(directory.path());
    command.args(["serve", "mem:64Mi", "--nqn", NQN, "--listen", "tcp://127.0.0.1:0", "--authenticated", "-o", "json"]);
    command.args(["--control", "control.sock", "--state", "state", "--metrics", "127.0.0.1:0"]);
    command.env("EBOF_LOG", "trace");
    let serving = Serving::start_with_log(command, directory.path(), log);
    let mut told = String::new();
    let mut say = |arguments: &[&str]| {
        let output = serving.run(arguments);
        told += &String::from_utf8_lossy(&output.stdout);
        told += &String::from_utf8_lossy(&output.stderr);
        output.status.success()
    };
    for kind in ["dhchap", "dhchap-ctrl"] {
        assert!(!say(&["target", "add", "key", HOST, "--kind", kind, "--key-file", "broken.key"]));
        assert!(say(&["target", "add", "key", HOST, "--kind", kind, "--key-file", "marked.key", "-o", "json"]));
        // Twice, of the wrong kind, and with the key where something else is to be.
        assert!(!say(&["target", "add", "key", HOST, "--kind", kind, "--key-file", "marked.key"]));
    }
    assert!(!say(&["target", "add", "key", HOST, "--kind", "tls", "--key-file", "marked.key"]));
    // Whatever a body has, and wherever.
    for body in [
        format!(r#"{{"host": "{key}", "kind": "dhchap", "key": "x"}}"#),
        format!(r#"{{"host": "{HOST}", "kind": "{key}", "key": "x"}}"#),
        format!(r#"{{"host": "{HOST}", "kind": "dhchap", "key": "{key}", "{key}": 1}}"#),
        format!(r#"{{"host": "{HOST}", "kind": "dhchap", "replace": "{key}"}}"#),
        key.clone(),
    ] {
        let mut stream = std::os::unix::net::UnixStream::connect(at("control.sock")).unwrap();
        let head =
            format!("POST /v1/keys HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        std::io::Write::write_all(&mut stream, (head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 4") && !answer.contains(MARK), "{answer}");
    }
    assert!(connects(&serving, Some("marked.key")));
    let mut running = load(&serving, "marked.key");
    let cmdline = std::fs::read(format!("/proc/{}/cmdline", running.id())).unwrap();
    told += &String::from_utf8_lossy(&cmdline);
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(!connects(&serving, Some("broken.key")));
    let others = files(directory.path(), &["marked.key", "broken.key", "keys.json"]);
    assert!(others.iter().any(|path| path.ends_with("log")) && others.len() > 5, "{others:?}");
    told += &everything(&serving, &others);
    assert!(told.contains("key-added") && told.contains("dhchap key of"), "{told}");
    for part in [MARK, &MARK[2..30], "KfiaR", "KfiaX"] {
        let found = told.lines().find(|line| line.contains(part));
        assert_eq!(found, None, "{part}");
    }
    let stored = std::fs::read_to_string(at("state/keys.json")).unwrap();
    assert!(stored.contains(MARK), "the one place");
}
