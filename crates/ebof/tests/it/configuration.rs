//! The configuration of a running target, changed by `ebof config` and `ebof target`: the program,
//! its file, and a host whose I/O goes on.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ebof_initiator::{Controller, Options};
use ebof_nvme::{Nqn, Nsid};
use serde_json::Value;

use crate::program::ebof;
use crate::serving::Serving;
use crate::target::keys;

const NQN: &str = "nqn.2014-08.org.example:disks";

/// The configuration with these namespaces.
fn text(namespaces: &str) -> String {
    format!(
        "[target]\ncontrol = \"control.sock\"\n[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[subsystems]]\nnqn = \"{NQN}\"\nallow_any_host = true\nnamespaces = [{namespaces}]\n"
    )
}

/// `ebof serve --config ebof.toml`.
struct Running {
    serving: Serving,
    address: SocketAddr,
}

impl Running {
    /// In a directory with the file `disk.img`.
    fn start(directory: &Path) -> Self {
        std::fs::write(directory.join("disk.img"), vec![0; 1 << 20]).unwrap();
        std::fs::write(directory.join("ebof.toml"), text("\"disk.img\"")).unwrap();
        let mut command = ebof(directory);
        // A relative path: what is in force is the same for whoever works in another directory.
        command.args(["serve", "-o", "json", "--config", "ebof.toml"]);
        let serving = Serving::start(command, directory);
        let listening = serving.started["listening"][0].as_str().unwrap();
        let address = listening.trim_start_matches("tcp://").parse().unwrap();
        Self { serving, address }
    }

    fn told(&self, arguments: &[&str]) -> String {
        self.serving.told(arguments)
    }

    fn refused(&self, arguments: &[&str]) -> String {
        self.serving.refused(arguments)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_slice(&self.serving.run(&[arguments, &["-o", "json"]].concat()).stdout).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.serving.directory.join(name), text).unwrap();
    }

    /// Puts a text in force if this revision is.
    fn put(&self, revision: &str, toml: &str) -> (String, Value) {
        let body = serde_json::json!({ "toml": toml, "base": self.serving.directory }).to_string();
        let mut stream = UnixStream::connect(self.serving.directory.join("control.sock")).unwrap();
        let length = body.len();
        let head = format!(
            "PUT /v1/configuration HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIf-Match: \"{revision}\"\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap())
    }

    fn connect(&self) -> Controller {
        let mut options = Options::new(self.address.ip().to_string(), self.address.port(), Nqn::parse(NQN).unwrap());
        options.nr_io_queues = 1;
        Controller::connect(&options).unwrap()
    }
}

/// Writes and reads back until told to end; counts the rounds.
fn io(controller: &Controller, ends: &AtomicBool, rounds: &AtomicU64) {
    let namespace = controller.namespace(Nsid(1)).unwrap();
    let mut read = vec![0; 4096];
    while !ends.load(Relaxed) {
        let round = rounds.load(Relaxed);
        let written = vec![round as u8; 4096];
        namespace.write(round % 16 * 8, &written, false).unwrap();
        namespace.read(round % 16 * 8, &mut read).unwrap();
        assert_eq!(read, written);
        rounds.store(round + 1, Relaxed);
    }
}

/// Ends a host's I/O on every way out.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Waits until the host has done some more.
fn goes_on(rounds: &AtomicU64) {
    let before = rounds.load(Relaxed);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while rounds.load(Relaxed) < before + 20 {
        assert!(std::time::Instant::now() < end, "the host's I/O stands still");
        std::thread::yield_now();
    }
}

// @test data.planned-revision
#[test]
fn a_configuration_is_changed_while_a_host_does_io() {
    let directory = tempfile::tempdir().unwrap();
    let running = Running::start(directory.path());
    let controller = running.connect();
    let (ends, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let host = scope.spawn(|| io(&controller, &ends, &rounds));
        let ended = Ends(&ends);
        goes_on(&rounds);
        let exported = running.json(&["config", "export"])["configuration"].clone();
        assert_eq!(exported["source"]["differs"], false, "{exported}");
        assert_eq!(running.told(&["config", "diff"]), "nothing changes\n");

        // Without a terminal nobody can be asked.
        running.write("new.toml", &text("\"disk.img\", \"mem:1Mi\""));
        let told = running.refused(&["config", "apply", "new.toml"]);
        assert!(told.contains(&format!("+ add namespace 2 to {NQN}: mem:1Mi")) && told.contains("--yes"), "{told}");
        let told = running.told(&["config", "apply", "new.toml", "--yes"]);
        for part in
            [&format!("+ add namespace 2 to {NQN}: mem:1Mi\n"), "1 change was made", "ebof.toml says something else"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
        goes_on(&rounds);
        assert_eq!(controller.namespaces().unwrap(), [Nsid(1), Nsid(2)]);

        // Who has planned from what there was before is refused, and nothing changes.
        let now = running.json(&["config", "export"])["configuration"]["revision"].clone();
        let planned = exported["revision"].as_str().unwrap();
        let (status, refused) = running.put(planned, &text("\"disk.img\", \"mem:3Mi\""));
        assert_eq!(status, "HTTP/1.1 412 Precondition Failed", "{refused}");
        let message = refused["mistakes"][0]["message"].as_str().unwrap();
        assert!(message.contains(planned) && message.contains(now.as_str().unwrap()), "{message}");
        assert_eq!(running.json(&["config", "export"])["configuration"]["revision"], now);

        // What a host would notice is told before.
        let told = running.told(&["config", "diff"]);
        assert!(told.contains(&format!("- remove namespace 2 of {NQN} (connected hosts notice)")), "{told}");
        assert!(told.contains("namespace 2 goes"), "{told}");
        goes_on(&rounds);

        // The file that the target was started with is wrong: the reload fails with the reason.
        running.write("ebof.toml", "[[ports]]\nlisten = 7\n");
        let told = running.refused(&["target", "reload"]);
        assert!(told.contains("error: ") && told.contains("ebof.toml:2:10\n") && told.contains('^'), "{told}");
        running.write("ebof.toml", &text("\"disk.img\"").replace("[target]", "[target]\nthreads = 3"));
        let told = running.refused(&["target", "reload"]);
        assert!(
            told.contains("only a new start can alter target: threads one for each processor (default) -> 3"),
            "{told}"
        );
        goes_on(&rounds);
        assert_eq!(controller.namespaces().unwrap(), [Nsid(1), Nsid(2)]);
        running.write("ebof.toml", &text("\"disk.img\""));
        let told = running.told(&["target", "reload"]);
        assert!(told.contains(&format!("- remove namespace 2 of {NQN}")), "{told}");
        goes_on(&rounds);
        assert_eq!(controller.namespaces().unwrap(), [Nsid(1)]);

        let status = running.told(&["target", "status"]);
        assert!(status.contains(&format!("subsystem {NQN}: for any host (security: anyone), at a")), "{status}");
        drop(ended);
        host.join().unwrap();
    });
    assert!(rounds.load(Relaxed) > 100);
}

#[test]
fn a_wrong_file_is_told_before_anything_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("bad.toml"), "[[port]]\n").unwrap();
    let run = |arguments: &[&str]| {
        let output = ebof(directory.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for verb in ["diff", "apply"] {
        let told = run(&["config", verb, "bad.toml", "--control", "none.sock"]);
        assert!(told.contains("bad.toml:1:3\n") && told.contains("did you mean `ports`?"), "{told}");
        let told = run(&["config", verb, "missing.toml", "--control", "none.sock"]);
        assert!(told.contains("reading the configuration missing.toml: No such file"), "{told}");
    }
    for arguments in [["config", "export"], ["config", "diff"], ["target", "reload"], ["target", "status"]] {
        let told = run(&[&arguments[..], &["--control", "none.sock"]].concat());
        assert!(told.contains("no target has its control socket there"), "{told}");
    }
}

#[test]
fn an_exported_file_is_the_configuration_in_force() {
    let directory = tempfile::tempdir().unwrap();
    let running = Running::start(directory.path());
    let told = running.told(&["config", "export", "all.toml"]);
    assert!(told.starts_with("all.toml: revision "), "{told}");
    assert_eq!(running.told(&["config", "diff", "all.toml"]), "nothing changes\n");
    let output = running.serving.run(&["config", "export", "all.toml"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--force"), "{output:?}");
    assert_eq!(output.status.code(), Some(2), "as every wrong command line");
    running.told(&["config", "export", "all.toml", "--force"]);
    assert_eq!(
        running.told(&["config", "export"]),
        std::fs::read_to_string(directory.path().join("all.toml")).unwrap()
    );
}

#[test]
fn the_keys_of_json_are_stable_and_documented() {
    let directory = tempfile::tempdir().unwrap();
    let running = Running::start(directory.path());
    let _controller = running.connect();
    running.write("new.toml", &text("\"mem:1Mi\""));
    running.write("bad.toml", "[[port]]\n");
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let verbs: [&[&str]; 6] = [
        &["config", "export"],
        &["config", "diff", "new.toml"],
        &["config", "apply", "new.toml", "--yes"],
        &["target", "reload"],
        &["target", "status"],
        &["config", "apply", "bad.toml"],
    ];
    let mut text = String::new();
    for verb in verbs {
        let document = running.json(verb);
        let schema = document["schema"].as_str().unwrap();
        assert!(manual.contains(schema), "{schema} is not in docs/json.md");
        let mut all = BTreeSet::new();
        keys("", &document, &mut all);
        text += &format!("{schema}\n");
        all.iter().for_each(|key| text += &format!("  {key}\n"));
    }
    insta::assert_snapshot!(text);
}
