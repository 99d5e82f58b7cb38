//! State directories that are damaged or full: the target starts, or says which file it is and what
//! to do; and nothing of it is lost.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::serving::Serving;

const PASSWORD: &str = "correct horse battery";

/// What serves from the state directory `state`, managed over HTTP.
fn arguments(command: &mut Command, directory: &Path) {
    command
        .args(["serve", "--state", "state", "-o", "json", "--control", "control.sock"])
        .args(["--https", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .current_dir(directory)
        .env("EBOF_RUNTIME_DIR", directory.join("run"))
        .env_remove("EBOF_LOG");
}

fn serve(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebof"));
    arguments(&mut command, directory);
    command
}

/// Status and body of the answer to a request of the administrator `boss`.
fn ask(serving: &Serving, method: &str, path: &str, body: &str) -> (u16, Value) {
    let address = serving.started["http"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    // boss:correct horse battery
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Authorization: Basic Ym9zczpjb3JyZWN0IGhvcnNlIGJhdHRlcnk=\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
}

/// A target that has something in every file of its state directory.
fn filled(directory: &Path) -> Serving {
    let serving = Serving::start(serve(directory), directory);
    std::fs::write(directory.join("password"), PASSWORD).unwrap();
    let boss = ["target", "account", "add", "boss", "--role", "Administrator", "--new-password-file", "password"];
    serving.told(&boss);
    let text = "[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\n\
                nqn = \"nqn.2014-08.org.example:disks\"\nallow_any_host = true\nnamespaces = [\"null:1Mi\"]\n";
    std::fs::write(directory.join("new.toml"), text).unwrap();
    serving.told(&["config", "apply", "new.toml", "--yes"]);
    let subscription = r#"{"Destination": "http://127.0.0.1:9/", "Protocol": "Redfish", "Context": "mine"}"#;
    let (status, body) = ask(&serving, "POST", "/redfish/v1/EventService/Subscriptions", subscription);
    assert_eq!(status, 201, "{body}");
    serving.told(&["target", "certificate", "request", "box.example"]);
    serving.told(&["target", "add", "key", "nqn.2014-08.org.example:blade1", "--output-file", "blade1.key"]);
    serving
}

/// What is served, and by whom it is managed.
fn shown(serving: &Serving) -> Vec<Value> {
    let get = |path: &str| ask(serving, "GET", path, "");
    let json = |arguments: &[&str]| {
        let text = serving.told(arguments);
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let subscription = get("/redfish/v1/EventService/Subscriptions/1");
    let exported = json(&["config", "export", "-o", "json"])["configuration"].clone();
    let accounts = json(&["target", "account", "list", "-o", "json"]);
    let context = subscription.1["Context"].clone();
    let keys = json(&["target", "show", "keys", "-o", "json"]);
    vec![exported, accounts, keys, context, serving.started["fingerprint"].clone()]
}

fn contents(state: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().path());
    entries
        // What a process that was killed was about to replace is no file of the state.
        .filter(|path| path.is_file() && !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')))
        // Each start has records of its own, and says what it finds of those before.
        .filter(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("audit-")))
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// What becomes of a start that is to have all of it: the error, or `None` if it serves.
fn start(directory: &Path) -> Option<String> {
    let mut child = serve(directory)
        .arg("--strict")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    if line.contains("fingerprint") {
        child.kill().unwrap();
        child.wait().unwrap();
        return None;
    }
    stdout.read_to_string(&mut line).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut line).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{line}");
    Some(line)
}

/// Does what is advised where a file is damaged: it is moved away, and the target starts then. What
/// it had is still there.
fn follow(directory: &Path, path: &Path, told: &str) {
    let Some(command) = told.split('`').find(|part| part.starts_with("mv ")) else { return };
    let damaged = std::fs::read(path).unwrap();
    let state = path.parent().unwrap();
    let before = contents(state);
    let moved = path.with_file_name(format!("{}.damaged", path.file_name().unwrap().to_str().unwrap()));
    let status = Command::new("sh").args(["-c", command]).current_dir(directory).status().unwrap();
    assert!(status.success() && !path.exists(), "{command}");
    let mut started = serve(directory);
    started.arg("--create");
    drop(Serving::start(started, directory));
    assert_eq!(std::fs::read(&moved).unwrap(), damaged, "{told}");
    // As before: a start without accounts, say, makes another first password, too.
    contents(state).keys().for_each(|made| std::fs::remove_file(made).unwrap());
    for (path, content) in &before {
        std::fs::write(path, content).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    }
}

// @test output.destroying-advice
#[test]
fn each_file_that_is_damaged_is_named_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let serving = filled(directory.path());
    let before = shown(&serving);
    drop(serving);
    let files = contents(&state);
    let names: Vec<&str> = files.keys().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    for expected in [
        "accounts.json",
        "initial-password",
        "keys.json",
        "objects",
        "subscriptions.json",
        "tls.pem",
        "tls-requested.pem",
    ] {
        assert!(names.contains(&expected), "{names:?}");
    }
    assert!(names.iter().filter(|name| name.starts_with("configuration-")).count() == 2, "{names:?}");
    for (path, good) in &files {
        let mut flipped = good.clone();
        let middle = good.len() * 3 / 4;
        flipped[middle] ^= 4;
        let name = path.file_name().unwrap().to_str().unwrap();
        // Others are only read when somebody needs them.
        let is_read_at_start = !["initial-password", "tls-requested.pem", "configuration-1.toml"].contains(&name);
        for (what, damaged) in [("cut", &good[..good.len() / 2]), ("flipped", &flipped), ("empty", &[][..])] {
            std::fs::write(path, damaged).unwrap();
            let told = start(directory.path());
            assert_eq!(told.is_some(), is_read_at_start, "{name}, {what}: {told:?}");
            if let Some(told) = told {
                assert!(told.contains(name) && told.contains("damaged"), "{name}, {what}: {told}");
                assert!(
                    ["move it away", "restore it", "--import"].iter().any(|advice| told.contains(advice)),
                    "{told}"
                );
                if what == "flipped" {
                    follow(directory.path(), path, &told);
                }
            }
            assert_eq!(std::fs::read(path).unwrap(), damaged, "{name}, {what}: it is left as it is");
        }
        std::fs::remove_file(path).unwrap();
        std::fs::create_dir(path).unwrap();
        let told = start(directory.path());
        assert_eq!(told.is_some(), is_read_at_start, "{name}: {told:?}");
        if let Some(told) = told {
            assert!(
                told.contains(name) && told.contains("is a directory, and should be a regular file"),
                "{name}: {told}"
            );
        }
        std::fs::remove_dir(path).unwrap();
        std::fs::write(path, good).unwrap();
        if !rustix::process::geteuid().is_root() && is_read_at_start {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o0)).unwrap();
            let told = start(directory.path()).unwrap();
            assert!(told.contains(name) && told.contains("ermission denied"), "{name}: {told}");
        }
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
        let mut now = contents(&state);
        for (path, content) in &files {
            assert!(now.remove(path).as_ref() == Some(content), "{name}: {} has changed", path.display());
        }
        assert!(now.is_empty(), "{name}: {:?} was made", now.keys());
    }
    assert_eq!(shown(&Serving::start(serve(directory.path()), directory.path())), before);
}

/// As on a full file system: beyond the limit of a process a write fails.
#[test]
fn in_a_full_directory_nothing_changes_and_the_target_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let serving = filled(directory.path());
    let before = shown(&serving);
    drop(serving);
    let files = contents(&directory.path().join("state"));
    // A signal that is ignored stays so across exec.
    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ebof")]);
    arguments(&mut limited, directory.path());
    let serving = Serving::start(limited, directory.path());
    let (service, account) = ("/redfish/v1/EventService", "/redfish/v1/AccountService/Accounts");
    for (method, path, body) in [
        ("POST", account.to_owned(), r#"{"UserName": "jo", "Password": "a new password", "RoleId": "Operator"}"#),
        ("PATCH", format!("{account}/1"), r#"{"Password": "a new password"}"#),
        ("DELETE", format!("{account}/1"), ""),
        ("PATCH", "/redfish/v1/SessionService".to_owned(), r#"{"SessionTimeout": 600}"#),
        ("PATCH", service.to_owned(), r#"{"DeliveryRetryAttempts": 9}"#),
        ("DELETE", format!("{service}/Subscriptions/1"), ""),
        ("POST", format!("{service}/Subscriptions/1/Actions/EventDestination.SuspendSubscription"), "{}"),
        ("POST", "/ebof/v1/accounts".to_owned(), r#"{"name": "jo", "password": "a new password", "role": "Operator"}"#),
        ("DELETE", "/ebof/v1/accounts/admin".to_owned(), ""),
        ("DELETE", "/ebof/v1/keys/k1".to_owned(), ""),
        ("DELETE", "/redfish/v1/KeyService/NVMeoFSecrets/k1".to_owned(), ""),
    ] {
        let (status, answer) = ask(&serving, method, &path, body);
        assert_eq!(status, 500, "{method} {path}: {answer}");
        assert!(answer.to_string().contains("there is no room to store"), "{method} {path}: {answer}");
    }
    let password = ["target", "account", "set-password", "admin", "--new-password-file", "password"];
    assert!(serving.refused(&password).contains("there is no room to store"));
    std::fs::write(directory.path().join("other.toml"), "subsystems = []\n").unwrap();
    let told = serving.refused(&["config", "apply", "other.toml", "--yes"]);
    assert!(told.contains("cannot be stored for the next start, and is not in force"), "{told}");
    assert_eq!(shown(&serving), before);
    drop(serving);
    assert_eq!(contents(&directory.path().join("state")), files);
    assert_eq!(shown(&Serving::start(serve(directory.path()), directory.path())), before);
}
