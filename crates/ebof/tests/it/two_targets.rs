//! Two targets with one subsystem: what contradicts is told, before they run and while they do.

use std::path::Path;

use serde_json::Value;

use crate::program::ebof;
use crate::serving::Serving;

const NQN: &str = "nqn.2014-08.org.example:disks";

/// Writes the configuration of a target that agrees with its peer.
fn write(directory: &Path, number: u16) {
    let (least, most) = (number * 1000 + 1, number * 1000 + 1000);
    let text = format!(
        "[[ports]]\nname = \"a\"\nid = {number}\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\ncntlid_min = {least}\ncntlid_max = {most}\n\
         namespaces = [{{ drive = \"null:1M\", uuid = \"6f3a1f1e-8f0b-4a57-9d0e-0d8f5b2f8c11\" }}]\n"
    );
    std::fs::write(directory.join("a.toml"), text).unwrap();
}

fn serve(directory: &Path) -> Serving {
    let mut command = ebof(directory);
    command.args(["serve", "--import", "a.toml", "--state", "state", "-o", "json", "--control", "control.sock"]);
    Serving::start(command, directory)
}

/// The exit status, and the kinds of contradictions.
fn compare(a: &Path, b: &Path) -> (Option<i32>, Vec<String>) {
    let output = ebof(a.parent().unwrap()).args(["target", "compare", "-o", "json"]).args([a, b]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let findings = document["findings"].as_array().unwrap().iter();
    let wrong = findings.filter(|finding| finding["grade"] == "contradiction");
    (output.status.code(), wrong.map(|finding| finding["kind"].as_str().unwrap().to_owned()).collect())
}

// @test wire.two-targets
#[test]
fn running_targets_are_compared_by_what_is_in_force() {
    let directories = [1, 2].map(|number| {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), number);
        directory
    });
    let [a, b] = directories.each_ref().map(|directory| directory.path());
    assert_eq!(compare(&a.join("a.toml"), &b.join("a.toml")), (Some(0), vec![]));
    let [target, other] = [serve(a), serve(b)];
    assert_eq!(compare(&a.join("control.sock"), b), (Some(0), vec![]), "a directory is that of the socket");
    target.told(&["target", "set", "port", "a", "ana.1=inaccessible", "--yes"]);
    assert_eq!(compare(a, b), (Some(0), vec![]), "the other one has a path");
    other.told(&["target", "set", "port", "a", "ana.1=persistent-loss", "--yes"]);
    other.told(&["target", "add", "namespace", NQN, "mem:1M", "--nsid", "2"]);
    target.told(&["target", "add", "namespace", NQN, "mem:1M", "--nsid", "2"]);
    assert_eq!(compare(a, b), (Some(1), ["ana-state", "identity"].map(str::to_owned).to_vec()));
    assert_eq!(compare(a, &b.join("a.toml")).0, Some(0), "one that runs with the file of another");
    let refused = target.run(&["target", "compare", "control.sock", "."]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && told.contains("leave --control and --server out"), "{told}");
    let same = ebof(a).args(["target", "compare", "control.sock", "."]).output().unwrap();
    assert!(String::from_utf8_lossy(&same.stderr).contains("both are the same target"), "{same:?}");
    let text = ebof(a).args(["target", "compare", "."]).arg(b).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("contradiction: ANA group 1: no port") && text.contains("    A: a inaccessible\n"), "{text}");
}
