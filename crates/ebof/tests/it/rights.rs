//! A target that has given up all that it can, as hosts, users and virtual machines see it: what it
//! does goes on, what it must not is refused, and it tells.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};

use ebof_nvme::Status;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::direct_rig::{DATA, Guest, transfer};
use crate::https::PASSWORD;
use crate::program::ebof;
use crate::serving::Serving;

const OPEN: &str = "nqn.2014-08.org.example:open";
const PROVEN: &str = "nqn.2014-08.org.example:proven";
const SEALED: &str = "nqn.2014-08.org.example:sealed";
const HOST: &str = "nqn.2014-08.org.example:blade1";

/// What a target of all kinds serves from `own`. Beside that, the folders `drives`, `keys` and
/// `sockets` are named by it, `more` by `confine_paths`, and `other` by nobody.
fn configuration(namespaces: &str) -> String {
    format!(
        "[target]\nconfine = \"all\"\nconfine_strict = true\nconfine_paths = [\"../more\"]\nmetrics = \"127.0.0.1:0\"\n\
         https = \"127.0.0.1:0\"\nthreads = 2\n\
         [[ports]]\nname = \"open\"\nlisten = \"tcp://127.0.0.1:0\"\n\
         [[ports]]\nname = \"sealed\"\nlisten = \"tcp://127.0.0.1:0\"\ntls = \"required\"\n\
         [[ports]]\nname = \"direct\"\nlisten = \"vfio-user:../sockets/guest\"\n\
         [[hosts]]\nnqn = \"{HOST}\"\ndhchap_key = {{ file = \"../keys/dhchap\" }}\ntls_psk = {{ file = \"../keys/psk\" }}\n\
         [[drives]]\nname = \"d0\"\nbacking = \"../drives/d0.img\"\nsize = \"64Mi\"\nencryption = true\nkey_file = \"../keys/drive\"\n\
         [[subsystems]]\nnqn = \"{OPEN}\"\nallow_any_host = true\nports = [\"open\"]\nnamespaces = [{namespaces}]\n\
         [[subsystems]]\nnqn = \"{PROVEN}\"\nallowed_hosts = [\"{HOST}\"]\nports = [\"open\"]\n\
         security = \"authenticated\"\nnamespaces = [\"mem:1Mi\"]\n\
         [[subsystems]]\nnqn = \"{SEALED}\"\nallowed_hosts = [\"{HOST}\"]\nports = [\"sealed\"]\nsecurity = \"tls\"\n\
         namespaces = [\"mem:1Mi\"]\n\
         [[subsystems]]\nnqn = \"nqn.2014-08.org.example:guest\"\nallow_any_host = true\nports = [\"direct\"]\n\
         namespaces = [\"../drives/guest.img:1Mi\"]\n\
         [[subsystems]]\nnqn = \"nqn.2014-08.org.example:drive\"\nallow_any_host = true\nports = [\"open\"]\n\
         drive = \"d0\"\n"
    )
}

const NAMESPACES: &str = "\"../drives/a.img:1Mi\", \"mem:1Mi\"";

/// Such a target.
struct Confined {
    serving: Serving,
    directory: tempfile::TempDir,
}

impl Confined {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for folder in ["own", "drives", "keys", "sockets", "more", "other"] {
            std::fs::create_dir(at(folder)).unwrap();
        }
        for (name, verb) in [("dhchap", "gen-dhchap-key"), ("psk", "gen-tls-key")] {
            let made = ebof(directory.path()).arg(verb).output().unwrap();
            private(&at("keys").join(name), &made.stdout);
        }
        private(&at("keys/drive"), &[7; 32]);
        std::fs::write(at("own/a.toml"), configuration(NAMESPACES)).unwrap();
        let mut command = ebof(&at("own"));
        command.args(["serve", "--config", "a.toml", "--state", "state", "--create", "-o", "json"]);
        command.args(["--control", "control.sock"]);
        Self { serving: Serving::start(command, &at("own")), directory }
    }

    /// `nvme+tcp://127.0.0.1:4420/NQN` at the port with this index.
    fn uri(&self, port: usize, nqn: &str) -> String {
        let listening = self.serving.started["listening"][port].as_str().unwrap();
        format!("nvme+{listening}/{nqn}")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = ebof(self.directory.path());
        command.args(arguments).env("HOME", self.directory.path()).env_remove("XDG_CONFIG_HOME");
        command
    }

    /// As an administrator over HTTPS.
    fn remote(&self, arguments: &[&str]) -> Output {
        let started = |key: &str| self.serving.started[key].as_str().unwrap().to_owned();
        let mut command = self.command(&[&["target"], arguments].concat());
        command.args(["--server", &started("https"), "--fingerprint", &started("fingerprint"), "--user", "jo"]);
        command.env("EBOF_PASSWORD", PASSWORD).output().unwrap()
    }
}

/// A file that nobody else may read.
pub(crate) fn private(path: &Path, content: &[u8]) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(content).unwrap();
}

fn told(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

// @test hostile.rights
#[test]
fn every_feature_works_without_what_is_given_up() {
    let target = Confined::start();
    let run = |arguments: &[&str]| told(&target.command(arguments).output().unwrap());
    // Files and memory, by hosts without and with a proof, in the clear and over TLS.
    for nsid in ["1", "2"] {
        let uri = target.uri(0, OPEN);
        let mut write = target.command(&["write", &uri, "-n", nsid, "-z", "512", "-d", "keys/drive"]);
        told(&write.output().unwrap());
        assert!(run(&["read", &uri, "-n", nsid, "-z", "512"]).as_bytes().starts_with(&[7; 32]));
    }
    let proof = ["--hostnqn", HOST, "--dhchap-secret-file", "keys/dhchap"];
    run(&[&["id-ctrl", &target.uri(1, SEALED), "--tls", "--tls-key-file", "keys/psk"], &proof[..]].concat());
    run(&[&["id-ctrl", &target.uri(0, PROVEN)], &proof[..]].concat());
    // A drive with encrypted namespaces.
    let drive = target.uri(0, "nqn.2014-08.org.example:drive");
    run(&["create-ns", &drive, "-S", "16Mi"]);
    run(&["attach-ns", &drive, "-n", "1", "-c", "0"]);
    // A virtual machine, whose memory is shared.
    let mut guest = Guest::enabled(&target.directory.path().join("sockets/guest"));
    let mut rings = guest.create(1, 8);
    guest.put(DATA, &[9; 512]);
    assert_eq!(guest.call(&mut rings, transfer(1, 0, 1, DATA, 0)).status(), Status::SUCCESS);
    assert_eq!(guest.call(&mut rings, transfer(2, 0, 1, DATA + 4096, 0)).status(), Status::SUCCESS);
    assert_eq!(guest.get(DATA + 4096, 512), [9; 512]);
    // Metrics, the control socket, HTTPS.
    let metrics = target.serving.started["metrics"].as_str().unwrap();
    let (address, path) = metrics.trim_start_matches("http://").split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("ebof_connections_limit"), "{answer}");
    private(&target.serving.directory.join("password"), PASSWORD.as_bytes());
    let account = ["target", "account", "add", "jo", "--role", "Administrator", "--new-password-file", "password"];
    target.serving.told(&account);
    assert!(told(&target.remote(&["status"])).contains(OPEN));
    told(&target.remote(&["certificate", "show"]));
    target.serving.told(&["target", "show"]);
    target.serving.told(&["target", "slow"]);
    // What it tells, and what the kernel says.
    let status: Value = serde_json::from_str(&target.serving.told(&["target", "status", "-o", "json"])).unwrap();
    let confinement = &status["status"]["confinement"];
    let measures = confinement["measures"].as_array().unwrap();
    assert_eq!(measures.len(), 5);
    assert!(measures.iter().all(|it| it["state"] == "on"), "{confinement}");
    let more = std::fs::canonicalize(target.directory.path().join("more")).unwrap();
    let may_write = |path: &Path| {
        let right = json!({ "path": path.to_str().unwrap(), "access": "write" });
        confinement["paths"].as_array().unwrap().contains(&right)
    };
    assert!(may_write(&more) && !may_write(&more.with_file_name("other")), "{confinement}");
    let text = target.serving.told(&["target", "status"]);
    assert!(text.contains("given up: privileges, capabilities, system-calls, paths, dumps\n"), "{text}");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", target.serving.child.id())).unwrap();
    for task in tasks.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap();
        assert!(status.contains("NoNewPrivs:\t1\n") && status.contains("Seccomp:\t2\n"), "{status}");
    }
}

// @test hostile.rights
#[test]
fn a_change_that_names_what_was_given_up_is_refused_and_changes_nothing() {
    let target = Confined::start();
    let config = target.directory.path().join("own/a.toml");
    let with = |namespace: &str| {
        std::fs::write(&config, configuration(&format!("{NAMESPACES}, {{ drive = \"{namespace}\", nsid = 3 }}")))
            .unwrap();
    };
    // Where the configuration names another file, and where it says that others may be.
    for inside in ["../drives/b.img:1Mi", "../more/c.img:1Mi"] {
        with(inside);
        target.serving.told(&["target", "reload"]);
        let uri = target.uri(0, OPEN);
        told(&target.command(&["read", &uri, "-n", "3", "-z", "512"]).output().unwrap());
    }
    let outside = std::fs::canonicalize(target.directory.path().join("other")).unwrap();
    with("../other/d.img:1Mi");
    let refused = target.serving.refused(&["target", "reload"]);
    let advice = format!("add {} to `confine_paths` in [target] or by `--confine-path`", outside.display());
    assert!(refused.contains("given up its right to open") && refused.contains(&advice), "{refused}");
    assert!(refused.contains("nothing was changed"), "{refused}");
    let subsystem = ["target", "add", "subsystem", "nqn.2014-08.org.example:x", "--allow-any-host", "--drive"];
    let by_command = |drive: &'static str| [&subsystem[..], &[drive, "--yes"]].concat();
    let refused = target.serving.refused(&by_command("../other/e.img:1Mi"));
    assert!(refused.contains(&advice), "{refused}");
    target.serving.told(&by_command("../more/e.img:1Mi"));
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    // All that there was is served.
    let uri = target.uri(0, OPEN);
    for nsid in ["1", "2", "3"] {
        told(&target.command(&["read", &uri, "-n", nsid, "-z", "512"]).output().unwrap());
    }
    // What is given up stays given up.
    let text = configuration(NAMESPACES).replace("confine = \"all\"", "confine = \"none\"");
    std::fs::write(&config, text).unwrap();
    let refused = target.serving.refused(&["target", "reload"]);
    assert!(refused.contains("confine"), "{refused}");
}

/// Without a supervisor nobody starts it; with one it ends, and is started.
#[test]
fn a_restart_is_a_supervisors_where_no_program_can_be_started() {
    for is_supervised in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let notify = directory.path().join("notify");
        let _supervisor = UnixDatagram::bind(&notify).unwrap();
        let mut command = ebof(directory.path());
        command.args(["serve", "mem:1Mi", "--listen", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0", "-o", "json"]);
        command.args(["--state", "state", "--control", "control.sock", "--confine", "system-calls"]);
        if is_supervised {
            command.env("NOTIFY_SOCKET", &notify);
        }
        let mut serving = Serving::start(command, directory.path());
        std::fs::write(directory.path().join("password"), PASSWORD).unwrap();
        serving.told(&["target", "account", "add", "jo", "--role", "Administrator", "--new-password-file", "password"]);
        let port = serving.started["http"].as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
        let reset = "/redfish/v1/Managers/ebof/Actions/Manager.Reset";
        let body = json!({ "ResetType": "ForceRestart" });
        let (status, answer) = crate::restart::request(port, ("jo", PASSWORD), "POST", reset, &body).unwrap();
        if is_supervised {
            assert_eq!(status, 204, "{answer}");
            assert_eq!(serving.child.wait().unwrap().code(), Some(75));
        } else {
            assert!((400..600).contains(&status), "{answer}");
            assert!(answer.to_string().contains("has given up its right to start a program"), "{answer}");
            kill_process(Pid::from_child(&serving.child), Signal::TERM).unwrap();
            assert_eq!(serving.child.wait().unwrap().code(), Some(0));
        }
    }
}

#[test]
fn what_is_to_be_given_up_is_said_in_words_that_are_known() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| ebof(directory.path()).args(arguments).output().unwrap();
    let output = run(&["serve", "mem:1Mi", "--confine", "path"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("`path` is not a measure; accepted: all, none, or some of privileges"), "{error}");
    let output = run(&["connect", "-a", "127.0.0.1", "-n", "x", "--confine", "paths"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("`paths` is for targets"), "{error}");
}
