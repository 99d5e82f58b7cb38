//! A target that goes by its state directory: what was changed is there after a restart, however
//! the target ended, and what cannot be stored is not changed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::program::ebof;
use crate::serving::Serving;

const NQN: &str = "nqn.2014-08.org.example:disks";

/// A configuration with these namespaces.
fn text(namespaces: &str) -> String {
    format!(
        "[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\nnqn = \"{NQN}\"\n\
         allow_any_host = true\nnamespaces = [{namespaces}]\n"
    )
}

fn serve(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = ebof(directory);
    command.args(["serve", "-o", "json", "--control", "control.sock"]).args(arguments);
    command
}

/// A target that goes by the state directory `state`.
fn start(directory: &Path) -> Serving {
    Serving::start(serve(directory, &["--state", "state"]), directory)
}

/// The error of a target that does not start, as it is to have all that it serves.
fn refused(directory: &Path, arguments: &[&str]) -> String {
    let output = serve(directory, arguments).arg("--strict").stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{told}");
    told
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

fn apply(serving: &Serving, namespaces: &str) -> String {
    std::fs::write(serving.directory.join("new.toml"), text(namespaces)).unwrap();
    serving.told(&["config", "apply", "new.toml", "--yes"])
}

fn exported(serving: &Serving) -> Value {
    json(&serving.run(&["config", "export", "-o", "json"]))["configuration"].clone()
}

fn backings(serving: &Serving) -> Vec<String> {
    let status = json(&serving.run(&["target", "status", "-o", "json"]));
    let subsystems = status["status"]["subsystems"].as_array().unwrap();
    let namespaces = subsystems.iter().flat_map(|it| it["namespaces"].as_array().unwrap());
    namespaces.map(|it| it["drive"].as_str().unwrap().to_owned()).collect()
}

/// A host that was away during two restarts may hold either of two objects: that is not forgotten.
#[test]
fn what_nsids_have_named_survives_restarts() {
    let directory = tempfile::tempdir().unwrap();
    for file in ["a.img", "b.img"] {
        std::fs::write(directory.path().join(file), vec![0; 1 << 20]).unwrap();
    }
    let served = |file: &str| {
        std::fs::write(directory.path().join("served.toml"), text(&format!("\"{file}\""))).unwrap();
        let command = serve(directory.path(), &["--state", "state", "--config", "served.toml"]);
        drop(Serving::start(command, directory.path()));
        let objects = std::fs::read_to_string(directory.path().join("state/objects")).unwrap();
        let line = objects.lines().find(|line| line.starts_with("1 ") && line.ends_with(NQN)).unwrap();
        let words: Vec<_> = line.split(' ').collect();
        (words[1].to_owned(), words[2].to_owned())
    };
    let told = ["a.img", "a.img", "b.img", "b.img", "a.img"].map(served);
    let changes = told.each_ref().map(|(change, _)| change.as_str());
    assert_eq!(changes, ["first", "first", "changed", "changed", "changed"]);
    let [a, again, b, ..] = told.each_ref().map(|(_, object)| object);
    assert!(a == again && a != b, "{told:?}");
}

#[test]
fn what_was_changed_is_there_after_a_kill_and_can_be_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(directory.path());
    let state = directory.path().join("state").display().to_string();
    assert_eq!(first.started["state"], state.as_str());
    assert_eq!(first.started["status"]["ports"].as_array().unwrap().len(), 0, "an empty target at first");
    let before = exported(&first);
    assert_eq!(before["source"], serde_json::json!({ "kind": "state", "path": state }));
    assert_eq!(before["generation"], 1);
    let told = apply(&first, "\"mem:1Mi\"");
    assert!(told.contains("is in force and stored as generation 2") && !told.contains("note:"), "{told}");
    apply(&first, "\"mem:1Mi\", \"mem:2Mi\"");
    let revision = exported(&first)["revision"].clone();
    // SIGKILL.
    drop(first);

    let second = start(directory.path());
    let now = exported(&second);
    assert_eq!((&now["revision"], &now["generation"]), (&revision, &Value::from(3)), "the same is not stored again");
    assert_eq!(backings(&second), ["mem:1Mi", "mem:2Mi"]);

    let history = json(&second.run(&["config", "history", "-o", "json"]))["history"].clone();
    let asked = &history["generations"][2]["cause"];
    assert_eq!((&asked["action"], &asked["by"]["kind"]), (&Value::from("apply new.toml"), &Value::from("local")));
    assert_eq!(asked["by"]["uid"], rustix::process::getuid().as_raw());
    assert!(asked["by"]["pid"].as_i64().unwrap() > 0 && asked["by"]["program"] == "ebof", "{asked}");
    assert_eq!(history["generations"][2]["changes"][0], format!("add namespace 2 to {NQN}: mem:2Mi"));

    let told = second.refused(&["config", "rollback"]);
    assert!(told.contains(&format!("- remove namespace 2 of {NQN}")) && told.contains("--yes"), "{told}");
    let told = second.told(&["config", "rollback", "--yes"]);
    assert!(told.contains("stored as generation 4"), "{told}");
    assert_eq!(backings(&second), ["mem:1Mi"]);
    let revision = revision.as_str().unwrap();
    second.told(&["config", "rollback", &revision[..8], "--yes"]);
    assert_eq!(backings(&second), ["mem:1Mi", "mem:2Mi"]);
    second.told(&["config", "rollback", "1", "--yes"]);
    assert!(backings(&second).is_empty());
    let told = second.refused(&["config", "rollback", "17", "--yes"]);
    assert!(told.contains("no generation or revision 17 is stored") && told.contains("config history"), "{told}");
    let told = second.told(&["config", "history"]);
    assert!(told.lines().nth(2).unwrap().starts_with("6* "), "{told}");
}

#[test]
fn a_damaged_directory_is_refused_and_another_start_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let serving = start(directory.path());
    apply(&serving, "\"mem:1Mi\"");
    apply(&serving, "\"mem:2Mi\"");
    drop(serving);
    let last = directory.path().join("state/configuration-3.toml");
    let good = std::fs::read(&last).unwrap();
    std::fs::write(&last, &good[..good.len() / 2]).unwrap();
    let told = refused(directory.path(), &["--state", "state"]);
    for part in [&format!("{} is damaged: it has", last.display()), "no older configuration is served", "--import FILE"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(std::fs::read(&last).unwrap(), good[..good.len() / 2]);
    // A file goes beside it.
    std::fs::write(directory.path().join("file.toml"), text("\"mem:9Mi\"")).unwrap();
    let serving =
        Serving::start(serve(directory.path(), &["--config", "file.toml", "--state", "state"]), directory.path());
    assert_eq!(backings(&serving), ["mem:9Mi"]);
    drop(serving);
    assert!(refused(directory.path(), &["--state", "state"]).contains("is damaged"));
    // An older one, because somebody says so.
    let older = "state/configuration-2.toml";
    let serving = Serving::start(serve(directory.path(), &["--state", "state", "--import", older]), directory.path());
    assert_eq!(backings(&serving), ["mem:1Mi"]);
    drop(serving);
    assert!(directory.path().join("state/configuration-3.toml.damaged-1").exists());
    assert_eq!(backings(&start(directory.path())), ["mem:1Mi"]);
}

#[test]
fn a_directory_has_one_target() {
    let directory = tempfile::tempdir().unwrap();
    let serving = start(directory.path());
    let told = refused(directory.path(), &["--state", "state"]);
    let pid = serving.child.id();
    assert!(told.contains(&format!("belongs to process {pid}")) && told.contains("directories of their own"), "{told}");
    std::fs::write(directory.path().join("file.toml"), text("\"mem:9Mi\"")).unwrap();
    let told = refused(directory.path(), &["--state", "state", "--config", "file.toml"]);
    assert!(told.contains(&format!("belongs to process {pid}")), "a directory that was named: {told}");
    drop(serving);
    // The default one: who comes second goes without.
    let first = Serving::start(serve(directory.path(), &["--config", "file.toml"]), directory.path());
    assert_eq!(first.started["state"], directory.path().join("run/state").display().to_string().as_str());
    let other = tempfile::tempdir().unwrap();
    let file = directory.path().join("file.toml");
    let mut second = serve(other.path(), &["--config", file.to_str().unwrap()]);
    second.env("EBOF_RUNTIME_DIR", directory.path().join("run"));
    let second = Serving::start(second, other.path());
    assert_eq!(second.started["state"], Value::Null);
    assert!(second.refused(&["config", "rollback"]).contains("the target has no state directory"));
    let told = refused(directory.path(), &["--state", "none"]);
    assert!(told.contains("there is nothing to serve"), "{told}");
    let told = refused(directory.path(), &["--listen", "tcp://127.0.0.1:0"]);
    assert!(told.contains("--listen is for drives on the command line"), "{told}");
}

/// Where the control socket is, and what was told.
fn socket(directory: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (String, String) {
    let mut command = ebof(directory);
    command.env_remove("EBOF_RUNTIME_DIR").env_remove("EBOF_STATE_DIR").envs(variables.iter().copied());
    let output = command.args(["target", "show"]).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let path = told.split([' ', '\n']).find(|word| word.contains("control.sock")).unwrap_or_default().to_owned();
    (path, told)
}

#[test]
fn the_runtime_directory_is_named_by_an_option_or_a_variable_and_its_old_name_warns() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).display().to_string();
    let (new, old) = (place("new"), place("old"));
    let (new, old) = (("EBOF_RUNTIME_DIR", new.as_str()), ("EBOF_STATE_DIR", old.as_str()));
    for (arguments, variables, expected, warns) in [
        (&["--runtime-dir", "given"][..], &[new, old][..], "given", false),
        (&["--runtime-dir", "given"], &[old], "given", false),
        (&[], &[new, old], "new", false),
        (&[], &[old], "old", true),
    ] {
        let (path, told) = socket(directory.path(), arguments, variables);
        assert!(path.contains(&place(expected)), "{arguments:?} {variables:?}: {told}");
        assert_eq!(told.contains("EBOF_STATE_DIR is an old name of EBOF_RUNTIME_DIR"), warns, "{told}");
    }
}

#[test]
fn a_file_stays_the_source_and_there_is_a_way_back_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file.toml"), text("\"mem:1Mi\"")).unwrap();
    let arguments = ["--config", "file.toml", "--state", "state"];
    let serving = Serving::start(serve(directory.path(), &arguments), directory.path());
    assert!(apply(&serving, "\"mem:2Mi\"").contains("file.toml says something else"));
    serving.told(&["config", "rollback", "--yes"]);
    assert_eq!(backings(&serving), ["mem:1Mi"]);
    assert!(apply(&serving, "\"mem:3Mi\"").contains("generation 4"));
    drop(serving);
    let serving = Serving::start(serve(directory.path(), &arguments), directory.path());
    assert_eq!(backings(&serving), ["mem:1Mi"]);
    serving.told(&["config", "rollback", "4", "--yes"]);
    assert_eq!(backings(&serving), ["mem:3Mi"]);
}

#[test]
fn what_cannot_be_stored_is_not_changed() {
    let Some(small) = Small::new() else {
        println!("SKIPPED: no permission to mount a small file system");
        return;
    };
    full(small.0.path(), &small.state());
}

// @test output.advice
#[test]
fn a_drive_that_was_pulled_out_comes_back_as_is_advised() {
    let Some(small) = Small::new() else {
        println!("SKIPPED: no permission to mount a small file system");
        return;
    };
    pulled_out(small.0.path(), &small.state());
}

/// A directory whose state directory is a small file system.
struct Small(tempfile::TempDir);

impl Small {
    /// `None` without the permission to mount one.
    fn new() -> Option<Self> {
        let small = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(small.state()).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs"]).arg(small.state());
        mount.output().is_ok_and(|output| output.status.success()).then_some(small)
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }
}

impl Drop for Small {
    /// Without one that is mounted, it fails.
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("--lazy").arg(self.state()).output();
    }
}

fn pulled_out(directory: &Path, state: &Path) {
    let mut serving = start(directory);
    let drive = format!(
        "[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:0\"\n[[drives]]\nname = \"d0\"\nbacking = \"d0.img\"\n\
         size = \"16M\"\n[[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\ndrive = \"d0\"\n"
    );
    std::fs::write(directory.join("new.toml"), drive).unwrap();
    serving.told(&["config", "apply", "new.toml", "--yes"]);
    serving.told(&["target", "add", "namespace", "d0", "1M"]);
    let is_there = |serving: &Serving| assert!(serving.told(&["target", "show", "d0"]).contains("ns1"));
    is_there(&serving);
    let again = "ebof target add drive name=d0,backing=PATH";
    let pull = ["target", "remove", "drive", "d0", "--surprise"];
    for is_restarted in [false, true] {
        std::fs::write(state.join("fills"), vec![0; 1 << 20]).unwrap_err();
        let told = serving.refused(&pull);
        for part in [
            "drive d0 is pulled out: all commands to it fail, and the target still shows it",
            "`ebof target remove drive d0 --surprise` tries again",
            &format!(
                "to have the drive back, remove it and add it again (`{again} --nqn {NQN}`), or start the target again"
            ),
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        std::fs::remove_file(state.join("fills")).unwrap();
        if is_restarted {
            drop(serving);
            serving = start(directory);
        } else {
            serving.told(&pull);
            serving.told(&["target", "add", "drive", "name=d0,backing=d0.img", "--nqn", NQN, "--allow-any-host"]);
        }
        is_there(&serving);
    }
}

fn full(directory: &Path, state: &Path) {
    let serving = start(directory);
    apply(&serving, "\"mem:1Mi\"");
    let before = exported(&serving);
    std::fs::write(state.join("fills"), vec![0; 1 << 20]).unwrap_err();
    std::fs::write(directory.join("new.toml"), text("\"mem:2Mi\"")).unwrap();
    let told = serving.refused(&["config", "apply", "new.toml", "--yes"]);
    for part in ["cannot be stored for the next start, and is not in force", "there is no room to store", "make room"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(exported(&serving), before);
    assert_eq!(backings(&serving), ["mem:1Mi"]);
    std::fs::remove_file(state.join("fills")).unwrap();
    apply(&serving, "\"mem:2Mi\"");
    drop(serving);
    let serving = start(directory);
    assert_eq!((backings(&serving), exported(&serving)["generation"].clone()), (vec!["mem:2Mi".to_owned()], 3.into()));
}

// @test output.made-once
#[test]
fn a_start_makes_what_is_new_and_misses_what_it_had() {
    let directory = tempfile::tempdir().unwrap();
    let (first, drive) = (directory.path().join("a.img"), directory.path().join("d.img"));
    let arguments = ["--listen", "tcp://127.0.0.1:0", "--drive", "name=d0,backing=d.img,size=16M", "a.img:1M"];
    let serving = Serving::start(serve(directory.path(), &arguments), directory.path());
    assert_eq!(serving.started["made"], serde_json::json!(["a.img", "d.img"]));
    drop(serving);
    let serving = Serving::start(serve(directory.path(), &arguments), directory.path());
    assert_eq!(serving.started["made"], serde_json::json!([]));
    drop(serving);
    // The file systems are not mounted.
    for path in [&first, &drive] {
        let kept = path.with_extension("kept");
        std::fs::rename(path, &kept).unwrap();
        let told = refused(directory.path(), &arguments);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(told.contains(name) && told.contains("was served before") && told.contains("--create"), "{told}");
        assert!(!path.exists(), "{told}");
        std::fs::rename(&kept, path).unwrap();
    }
    // What is new beside it is made, and the rest where that is asked for.
    let more = [&arguments[..], &["b.img:1M"]].concat();
    let serving = Serving::start(serve(directory.path(), &more), directory.path());
    assert_eq!(serving.started["made"], serde_json::json!(["b.img"]));
    drop(serving);
    std::fs::remove_file(&first).unwrap();
    let asked = [&more[..], &["--create"]].concat();
    let serving = Serving::start(serve(directory.path(), &asked), directory.path());
    assert_eq!(serving.started["made"], serde_json::json!(["a.img"]));
    drop(serving);
    // Without a memory a file says nothing of what is new.
    std::fs::write(directory.path().join("file.toml"), text("\"c.img:1M\"")).unwrap();
    let told = refused(directory.path(), &["--config", "file.toml", "--state", "none"]);
    assert!(told.contains("without a state directory"), "{told}");
}
