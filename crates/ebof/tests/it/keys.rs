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
            // One that another took the place of.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => panic!("{}: {error}", file.display()),
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

/// Command lines with a key where its file or a name is to be.
fn misplaced(key: &str, uri: &str) -> Vec<Vec<String>> {
    let psk = key.replace("DHHC-1", "NVMeTLSkey-1");
    let option = format!("--dhchap-secret-file={key}");
    let connect = ["connect", "-a", "127.0.0.1", "-n", NQN];
    let lines = [
        &["target", "add", "key", HOST, "--key-file", key][..],
        &["target", "add", "key", HOST, key],
        &["target", "add", "key", key],
        &["target", "remove", "key", key, "--all"],
        &["target", "remove", "key", HOST, key],
        &["check-dhchap-key", "--keyfile", key],
        &["check-dhchap-key", key],
        &["check-tls-key", "--keyfile", &psk],
        &["check-tls-key", "--keydata", key],
        &["config", "check", key],
        &[key],
        &[&connect[..], &["--dhchap-secret-file", key]].concat(),
        &[&connect[..], &["--tls", "--tls-key-file", &psk]].concat(),
        &[&connect[..], &["--tls", "--tls-key", &psk]].concat(),
        &[&connect[..], &["--tls", "--tls-key", key]].concat(),
        &[&connect[..], &["-q", key]].concat(),
        &["id-ctrl", uri, &option],
        &["id-ctrl", uri, "--tls", "--tls-key-file", &psk],
        &["id-ctrl", uri, "--tls", "--tls-key", &psk],
    ];
    lines.iter().map(|line| line.iter().map(|&word| word.to_owned()).collect()).collect()
}

/// Requests with a key where it belongs and where it does not, each of which is refused.
fn bodies(key: &str) -> Vec<(&'static str, String)> {
    vec![
        ("keys", format!(r#"{{"host": "{key}", "kind": "dhchap", "key": "x"}}"#)),
        ("keys", format!(r#"{{"host": "{HOST}", "kind": "{key}", "key": "x"}}"#)),
        ("keys", format!(r#"{{"host": "{HOST}", "kind": "dhchap", "key": "{key}", "{key}": 1}}"#)),
        ("keys", format!(r#"{{"host": "{HOST}", "kind": "dhchap", "replace": "{key}"}}"#)),
        ("keys", key.to_owned()),
        ("edits", format!(r#"{{"edits": [{{"edit": "add", "object": {{"host": "{key}"}}, "keys": {{}}}}]}}"#)),
        (
            "edits",
            format!(
                r#"{{"edits": [{{"edit": "add", "object": {{"host": "{HOST}"}}, "keys": {{"dhchap_key": "{key}"}}}}]}}"#
            ),
        ),
        ("edits", format!(r#"{{"{key}": 1}}"#)),
        ("changes", format!(r#"{{"changes": [{{"change": "{key}"}}]}}"#)),
    ]
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
    // The key where its file or a name is to be.
    let listening = serving.started["listening"][0].as_str().unwrap();
    for arguments in misplaced(&key, &format!("nvme+{listening}/{NQN}")) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert!(!say(&arguments), "{arguments:?}");
        assert!(!say(&[&arguments[..], &["-o", "json"]].concat()), "{arguments:?}");
    }
    // And in a configuration.
    for (name, value) in [("plain", format!("\"{key}\"")), ("file", format!("{{ file = \"{key}\" }}"))] {
        let name = format!("{name}.toml");
        std::fs::write(at(&name), format!("[[hosts]]\nnqn = \"{HOST}\"\ndhchap_key = {value}\n")).unwrap();
        for verb in ["check", "diff", "apply", "show"] {
            assert!(!say(&["config", verb, &name]) && !say(&["config", verb, &name, "-o", "json"]), "{verb}");
        }
        std::fs::remove_file(at(&name)).unwrap();
    }
    // Whatever a body has, and wherever.
    for (path, body) in bodies(&key) {
        let mut stream = std::os::unix::net::UnixStream::connect(at("control.sock")).unwrap();
        let head = format!(
            "POST /v1/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
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

// @test keys.secret
#[test]
fn a_key_in_a_configuration_that_is_read_again_is_not_in_the_log() {
    const MARK: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh";
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let configuration = "[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\nnqn = \"nqn.2014-08.org.example:locked\"\n\
                         allow_any_host = true\nnamespaces = [\"mem:64Mi\"]\n";
    std::fs::write(at("ebof.toml"), configuration).unwrap();
    let log = std::fs::File::create(at("log")).unwrap();
    let mut command = ebof(directory.path());
    command.args(["serve", "--config", "ebof.toml", "-o", "json", "--control", "control.sock", "--state", "state"]);
    let serving = Serving::start_with_log(command, directory.path(), log);
    for value in [format!("\"DHHC-1:01:{MARK}+KfiaR:\""), format!("{{ file = \"DHHC-1:01:{MARK}+KfiaR:\" }}")] {
        let host = format!("{configuration}[[hosts]]\nnqn = \"{HOST}\"\ndhchap_key = {value}\n");
        std::fs::write(at("ebof.toml"), host).unwrap();
        let refused = serving.refused(&["target", "reload"]);
        assert!(refused.contains("key itself") && !refused.contains(MARK), "{refused}");
    }
    let log = std::fs::read_to_string(at("log")).unwrap();
    assert!(log.contains("key itself") && !log.contains(&MARK[..12]), "{log}");
}

/// A file of a mode.
fn file(directory: &Path, name: &str, content: impl AsRef<[u8]>, mode: u32) {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_with_keys_are_checked_as_they_are_used() {
    const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let directory = tempfile::tempdir().unwrap();
    let made = |arguments: &[&str]| String::from_utf8(ebof(directory.path()).args(arguments).output().unwrap().stdout);
    let (other, psk) = (made(&["gen-dhchap-key", "-m", "3"]).unwrap(), made(&["gen-tls-key"]).unwrap());
    for (name, content) in [
        ("one", KEY.to_owned()),
        ("two", format!("# of blade1\n{KEY}\n\n{other}")),
        ("psk", psk.clone()),
        ("empty", "# none\n\n".to_owned()),
        ("broken", format!("{KEY}\nDHHC-1:01:x\n")),
    ] {
        file(directory.path(), name, content, 0o600);
    }
    file(directory.path(), "open", KEY, 0o644);
    file(directory.path(), "bytes", [0xff, 0xfe], 0o600);
    assert!(Command::new("mkfifo").arg("-m600").arg(directory.path().join("pipe")).status().unwrap().success());
    let serving = serve(directory.path(), &["--state", "state"]);
    for (name, checked, added) in [
        ("one", Ok("valid: 32 bytes"), None),
        ("two", Ok("line 4: The key is valid: 64 bytes"), Some("there are several keys in it")),
        ("psk", Err("this is a key for TLS"), Some("a key for TLS")),
        ("empty", Err("empty: there is no key in it"), Some("there is no key in it")),
        ("broken", Err("broken: line 2: the key has to have the form DHHC-1:hh:BASE64:"), Some("several keys")),
        ("open", Ok("will be refused in use: others than its owner may read"), Some("chmod 600")),
        ("bytes", Err("it is not text"), Some("it is not text")),
        ("pipe", Err("it is no regular file"), Some("it is no regular file")),
        ("none", Err("No such file"), Some("No such file")),
    ] {
        let output = alone(directory.path(), &["check-dhchap-key", "--keyfile", name]);
        assert_eq!(output.0, checked.is_ok(), "{name}: {}", output.1);
        let text = checked.unwrap_or_else(|text| text);
        assert!(output.1.contains(text), "{name}: {}", output.1);
        let output = serving.run(&["target", "add", "key", HOST, "--key-file", name]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), added.is_none(), "{name}: {told}");
        assert!(told.contains(added.unwrap_or_default()), "{name}: {told}");
    }
    let (good, told) = alone(directory.path(), &["check-dhchap-key", "--keyfile", "two", "-o", "json"]);
    assert!(good && told.contains("\"keys\"") && told.contains("\"line\": 2"), "{told}");
    let (good, told) = alone(directory.path(), &["check-tls-key", "--keyfile", "one"]);
    assert!(!good && told.contains("this is a secret for DH-HMAC-CHAP"), "{told}");
    // A host says which one it uses.
    let told =
        alone(directory.path(), &["connect", "-a", "127.0.0.1", "-s", "1", "-n", NQN, "--dhchap-secret-file", "two"]);
    assert!(!told.0 && told.1.contains("has 2 keys, and this host uses the first"), "{}", told.1);
    // What nobody can answer is asked for in words that help.
    let told = serving.refused(&["target", "account", "add", "anna", "--role", "operator"]);
    assert!(told.contains("--new-password-file FILE") && !told.contains(" --password-file"), "{told}");
}

/// Whether a verb succeeds, and all that it says.
fn alone(directory: &Path, arguments: &[&str]) -> (bool, String) {
    let output = ebof(directory).args(arguments).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), told)
}
