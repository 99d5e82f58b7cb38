//! The audit log of a target, as users see it: `ebof target audit`.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::program::ebof;
use crate::serving::Serving;

const NQN: &str = "nqn.2014-08.org.example:audited";

/// A target that sends its records to a receiver of syslog.
fn serve(directory: &Path) -> Serving {
    let text = format!(
        "[target]\naudit_syslog = \"unix:{0}/syslog\"\ncontrol = \"{0}/control.sock\"\nstate = \"{0}/state\"\n\
         [[ports]]\nname = \"here\"\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[hosts]]\nnqn = \"nqn.2014-08.org.example:friend\"\n[[subsystems]]\nnqn = \"{NQN}\"\n\
         allowed_hosts = [\"nqn.2014-08.org.example:friend\"]\nnamespaces = [\"mem:1Mi\"]\n",
        directory.display()
    );
    std::fs::write(directory.join("ebof.toml"), text).unwrap();
    let mut command = ebof(directory);
    command.args(["serve", "--config", "ebof.toml", "-o", "json"]);
    Serving::start(command, directory)
}

fn audit(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = ebof(directory);
    command.args(["target", "audit"]).args(arguments);
    // A copy of the log is no target's.
    if !arguments.contains(&"--directory") {
        command.args(["--control", "control.sock"]);
    }
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap() + std::str::from_utf8(&output.stderr).unwrap()
}

fn log_file(directory: &Path) -> PathBuf {
    let mut files = std::fs::read_dir(directory.join("state")).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|end| end == "log")).unwrap()
}

/// The records that have this text, once there are some.
fn wait_for(directory: &Path, what: &str) -> Vec<Value> {
    loop {
        let told = audit(directory, &["-o", "json"]);
        assert!(told.status.success(), "{}", text(&told));
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        let records = told["audit"]["records"].as_array().unwrap();
        let found: Vec<Value> = records.iter().filter(|record| record.to_string().contains(what)).cloned().collect();
        if !found.is_empty() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

// @test audit.chain
#[test]
fn who_did_what_is_in_the_log_and_a_changed_log_shows() {
    let directory = tempfile::tempdir().unwrap();
    let receiver = UnixDatagram::bind(directory.path().join("syslog")).unwrap();
    let serving = serve(directory.path());
    // A change through the control socket, and a host that is refused.
    serving.told(&["target", "add", "host", "nqn.2014-08.org.example:other", "--yes"]);
    let listening = serving.started["listening"][0].as_str().unwrap().to_owned();
    let uri = format!("nvme+{listening}/{NQN}");
    let mut host = ebof(directory.path());
    host.args(["id-ctrl", &uri, "--hostnqn", "nqn.2014-08.org.example:stranger"]);
    assert!(!host.output().unwrap().status.success());
    let change = &wait_for(directory.path(), "/v1/edits")[0];
    assert_eq!((&change["outcome"], &change["from"]), (&"done".into(), &"the control socket".into()), "{change}");
    assert!(change["who"].as_str().unwrap().contains(", ebof)"), "{change}");
    assert!(change["detail"].as_str().unwrap().contains("add host nqn.2014-08.org.example:other"), "{change}");
    let refused = &wait_for(directory.path(), "stranger")[0];
    let kind = (&refused["kind"], &refused["outcome"], &refused["who"]);
    assert_eq!(kind, (&"connection".into(), &"refused".into(), &"nqn.2014-08.org.example:stranger".into()));
    assert!(refused["detail"].as_str().unwrap().contains("from 127.0.0.1"), "{refused}");
    assert_eq!(refused["from"], "127.0.0.1", "{refused}");
    // The receiver has it all.
    let (mut buffer, mut messages) = ([0; 8192], String::new());
    receiver.set_nonblocking(true).unwrap();
    while let Ok(bytes) = receiver.recv(&mut buffer) {
        messages += std::str::from_utf8(&buffer[..bytes]).unwrap();
    }
    assert!(messages.starts_with("<109>1 20") && messages.contains("/v1/edits") && messages.contains("stranger"));
    let told = audit(directory.path(), &["--verify"]);
    assert!(told.status.success() && text(&told).contains("as they were written"), "{}", text(&told));
    let head = text(&told).lines().find_map(|line| line.strip_prefix("head ")).unwrap().to_owned();
    // Stopped in order and started again, the chain goes on.
    serving.terminate();
    let copy = directory.path().join("state").display().to_string();
    let told = audit(directory.path(), &["--verify", "--directory", &copy, "--head", &head]);
    assert!(told.status.success(), "{}", text(&told));
    assert!(text(&audit(directory.path(), &["--directory", &copy])).contains("target-stopping"));
    // Somebody takes out what they did, and nobody looks until the target runs again.
    let file = log_file(directory.path());
    let before = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = before.lines().filter(|line| !line.contains("/v1/edits")).collect();
    std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    let told = audit(directory.path(), &["--verify", "--directory", &copy]);
    assert_eq!(told.status.code(), Some(1));
    // What was taken out may have been the first record of all.
    let is_told = ["does not follow", "is not the first"].iter().any(|words| text(&told).contains(words));
    assert!(text(&told).contains("THE LOG WAS CHANGED") && is_told, "{}", text(&told));
    let serving = serve(directory.path());
    wait_for(directory.path(), "damaged");
    let told = audit(directory.path(), &["--verify", "--since", "1h"]);
    assert!(told.status.code() == Some(1) && text(&told).contains("THE LOG WAS CHANGED"), "{}", text(&told));
    serving.terminate();
}

#[test]
fn a_target_without_a_state_directory_says_that_it_has_no_log() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = ebof(directory.path());
    command.args(["serve", "mem:1Mi", "--listen", "tcp://127.0.0.1:0", "--state", "none", "-o", "json"]);
    command.args(["--control", "control.sock"]);
    let _serving = Serving::start(command, directory.path());
    let told = audit(directory.path(), &[]);
    assert!(told.status.code() == Some(1) && text(&told).contains("has no audit log"), "{}", text(&told));
}

/// What somebody does to the files while the target runs, or between two starts, is told by what it
/// is, and nothing that was answered is missing.
// @test audit.removed-file
#[test]
fn removed_files_hide_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let receiver = UnixDatagram::bind(directory.path().join("syslog")).unwrap();
    let serving = serve(directory.path());
    serving.told(&["target", "add", "host", "nqn.2014-08.org.example:one", "--yes"]);
    let (file, head) = (log_file(directory.path()), directory.path().join("state/audit-head"));
    std::fs::remove_file(&file).unwrap();
    // The target remembers the end, and so does the file: that is one finding.
    let told = text(&audit(directory.path(), &["--verify"]));
    assert_eq!(told.matches("all records are missing").count(), 1, "{told}");
    assert!(told.contains("audit-head, the running target: "), "{told}");
    serving.told(&["target", "add", "host", "nqn.2014-08.org.example:two", "--yes"]);
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains("add host nqn.2014-08.org.example:one") && written.contains("example:two"), "{written}");
    let told = audit(directory.path(), &["--verify"]);
    let is_told = text(&told).contains("was removed while the target ran, and its records up to");
    assert!(told.status.code() == Some(1) && is_told, "{}", text(&told));
    // A change that is refused is told with what it was about, and why.
    let mut again = ebof(directory.path());
    again.args(["target", "add", "host", "nqn.2014-08.org.example:two", "--yes", "--control", "control.sock"]);
    assert!(!again.output().unwrap().status.success());
    let refused = &wait_for(directory.path(), "\"refused\"")[0];
    assert!(refused["what"].as_str().unwrap().starts_with("POST /v1/edits"), "{refused}");
    let told = "add host nqn.2014-08.org.example:two: a value is not accepted";
    assert!(refused["detail"].as_str().unwrap().contains(told), "{refused}");
    serving.terminate();
    // Without what says where it ends, the end cannot be checked.
    std::fs::remove_file(&head).unwrap();
    let copy = directory.path().join("state").display().to_string();
    let wanted = format!("999:{}", "0".repeat(64));
    let told = text(&audit(directory.path(), &["--verify", "--directory", &copy, "--head", &wanted]));
    assert!(told.contains("audit-head: it is missing") && told.contains("  --head: the end is missing"), "{told}");
    let serving = serve(directory.path());
    wait_for(directory.path(), "head-missing");
    serving.terminate();
    std::fs::remove_file(log_file(directory.path())).unwrap();
    let told = text(&audit(directory.path(), &["--verify", "--directory", &copy]));
    assert!(told.contains("all records are missing") && told.ends_with("no record is left\n"), "{told}");
    drop(receiver);
}
