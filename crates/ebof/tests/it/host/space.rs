//! A drive that has no space left, and what its messages advise then, carried out to its end.

use std::path::Path;
use std::process::Command;

use super::Run;
use crate::program::ebof;
use crate::serving::Serving;

const NQN: &str = "nqn.2014-08.org.example:space";

/// A target whose directory is a file system of its own.
struct Rig {
    serving: Serving,
    uri: String,
}

impl Rig {
    fn start(directory: &Path, drive: &str) -> Self {
        std::fs::write(directory.join("data"), [0x5a; 1 << 20]).unwrap();
        let mut command = ebof(directory);
        command.args(["serve", "-o", "json", "--control", "control.sock", "--listen", "tcp://127.0.0.1:0"]);
        command.args(["--nqn", NQN, "--allow-any-host", "--threads", "1", "--drive", drive]);
        let serving = Serving::start(command, directory);
        let listening = serving.started["listening"][0].as_str().unwrap();
        let uri = format!("nvme+{listening}/{NQN}");
        let rig = Self { serving, uri };
        rig.host("create-ns", "", &["-S", "48M"]).ok();
        rig.host("attach-ns", "", &["-n", "1"]).ok();
        rig
    }

    /// `ebof VERB URI/REST ...`.
    fn host(&self, verb: &str, rest: &str, args: &[&str]) -> Run {
        let mut command = ebof(&self.serving.directory);
        command.args([verb, &format!("{}{rest}", self.uri)]).args(args).output().unwrap().into()
    }

    /// Writes this MiB of a namespace.
    fn write(&self, nsid: u32, mib: u32) -> Run {
        let block = (mib * 2048).to_string();
        self.host("write", &format!("/{nsid}"), &["-s", &block, "-d", "data"])
    }

    /// Writes a namespace until that is refused: how much has been written, and the message.
    fn fill(&self, nsid: u32) -> (u32, String) {
        let refused = |mib| Some(self.write(nsid, mib)).filter(|run| run.code != Some(0)).map(|run| (mib, run.stderr));
        (0..48).find_map(refused).expect("the drive is never full")
    }
}

/// A directory that is a file system of 100 MiB.
struct Small(tempfile::TempDir);

impl Small {
    /// `None` without the permission to mount one.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        mount("size=100m", directory.path()).then_some(Self(directory))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        assert!(Command::new("umount").arg("--lazy").arg(self.0.path()).status().unwrap().success());
    }
}

fn mount(options: &str, place: &Path) -> bool {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(place).output();
    mounted.is_ok_and(|output| output.status.success())
}

/// What is advised in a message, from the most harmless on.
#[track_caller]
fn advises(message: &str, parts: &[&str]) {
    let mut rest = message;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part} is not there, or too early: {message}"));
        rest = &rest[at..];
    }
}

// @test output.advice
#[test]
fn an_overcommitted_drive_that_is_full_is_used_again_as_is_advised() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::start(directory.path(), "name=d0,backing=disk.img,size=32M,overcommit");
    rig.host("create-ns", "", &["-S", "8M"]).ok();
    rig.host("attach-ns", "", &["-n", "2"]).ok();
    rig.write(2, 0).ok();
    let (written, message) = rig.fill(1);
    assert!((16..40).contains(&written), "{written}");
    advises(&message, &["is full", "deallocate what they do not need (`fstrim`)"]);
    let event = rig.serving.told(&["target", "events"]);
    let parts =
        ["the drive is full", "(`fstrim`)", "move data to another drive", "or delete a namespace", "may be lost"];
    advises(&event, &parts);
    // Blocks that are not needed.
    rig.host("dsm", "/1", &["-d", "--slbs", "0", "--blocks", "2048"]).ok();
    rig.write(1, written).ok();
    assert!(rig.write(1, written + 1).failed().contains("is full"));
    // A namespace, whose data are lost.
    rig.host("delete-ns", "", &["-n", "2", "--force"]).ok();
    rig.write(1, written + 1).ok();
}

// @test output.advice
#[test]
fn a_sanitize_operation_that_failed_is_left_or_repeated_as_is_advised() {
    let Some(small) = Small::new() else {
        println!("SKIPPED: no permission to mount a small file system");
        return;
    };
    let rig = Rig::start(small.0.path(), "name=d0,backing=disk.img,size=64M");
    let (_, message) = rig.fill(1);
    advises(&message, &["is full", "the target's log"]);
    let overwrite = ["target", "sanitize", "d0", "--action", "overwrite", "--yes-destroy-data", "d0"];
    let leave = ["target", "sanitize", "d0", "--action", "exit-failure"];
    let unrestricted = [&overwrite[..], &["--allow-exit-after-failure"]].concat();

    // One that may be left: by the administrator, and by a host.
    let message = rig.serving.refused(&unrestricted);
    advises(&message, &["see the target's log", "leave that state", "exit-failure`)", "again", "all data are lost"]);
    rig.serving.told(&leave);
    rig.host("read", "/1", &["-c", "0"]).ok();
    rig.serving.refused(&unrestricted);
    let refused = rig.host("read", "/1", &["-c", "0"]);
    let parts = ["sanitize-log", "leave that state", "--ause", "sanitize the drive again", "all data are lost"];
    advises(refused.failed(), &parts);
    for command in super::advice::advised(refused.failed()) {
        let [verb, uri, options @ ..] = command.as_slice() else { panic!("{command:?}") };
        let rest = uri.strip_prefix(&rig.uri).unwrap();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        rig.host(verb, rest, &options).ok();
    }
    rig.host("read", "/1", &["-c", "0"]).ok();

    // One that may not: nobody is told to leave it, or to allow that now.
    rig.serving.refused(&overwrite);
    for refused in [rig.serving.refused(&leave), rig.serving.refused(&unrestricted)] {
        advises(&refused, &["if the sanitize operation that failed allowed that", "without", "all data are lost"]);
    }
    for args in [&["-a", "exit-failure"][..], &["-a", "start-overwrite", "--ause"]] {
        let refused = rig.host("sanitize", "", &[args, &["--force"]].concat());
        advises(refused.failed(), &["the target's log", "cannot be left", "without --ause", "all data are lost"]);
        assert!(!refused.stderr.contains("exit-failure"), "it goes in a circle: {}", refused.stderr);
    }
    // The log says what is missing.
    assert!(mount("remount,size=200m", small.0.path()));
    rig.serving.told(&overwrite);
    rig.write(1, 40).ok();
}
