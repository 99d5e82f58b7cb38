//! SIGHUP and SIGUSR1, as an administrator sees them: the program, its configuration file and its
//! log.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::program::ebof;

/// `ebof serve --config`; it is killed on drop.
struct Server {
    child: Child,
    config: PathBuf,
    listening: Vec<SocketAddr>,
    log: Receiver<String>,
}

impl Server {
    fn start(directory: &Path, text: &str) -> Self {
        let config = directory.join("ebof.toml");
        std::fs::write(&config, text).unwrap();
        let mut child = ebof(directory)
            .args(["serve", "-o", "json", "--config"])
            .arg(&config)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, log) = channel();
        let errors = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{:?}", log.try_recv()));
        let address = |value: &serde_json::Value| value.as_str().unwrap().trim_start_matches("tcp://").parse().unwrap();
        let listening = started["listening"].as_array().unwrap().iter().map(address).collect();
        Self { child, config, listening, log }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Writes another configuration, and sends SIGHUP.
    fn reload(&self, text: &str) {
        std::fs::write(&self.config, text).unwrap();
        self.signal(Signal::HUP);
    }

    /// The lines of the log up to the one that contains `what`.
    fn wait(&self, what: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.log.recv_timeout(Duration::from_secs(60)) {
                Ok(line) => lines.push(line),
                Err(error) => panic!("{error}, and no line with {what:?} in {lines:#?}"),
            }
            if lines.last().unwrap().contains(what) {
                return lines;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PORTS: &str = "[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n[[ports]]\nlisten = \"tcp://127.0.0.2:0\"\n";

fn disks(list: &str) -> String {
    format!("[[subsystems]]\nnqn = \"nqn.2014-08.org.example:disks\"\nallow_any_host = true\nnamespaces = [{list}]\n")
}

// @test data.truncated-configuration
#[test]
fn a_truncated_configuration_removes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("{PORTS}{}", disks("\"mem:1Mi\""));
    let server = Server::start(directory.path(), &text);
    for cut in ["", PORTS] {
        server.reload(cut);
        let lines = server.wait("stays as it was");
        assert!(lines.last().unwrap().contains("it says nothing of subsystems"), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("remove ")), "{lines:#?}");
    }
    server.reload(&text[..text.len() - "namespaces = [\"mem:1Mi\"]\n".len()]);
    assert!(server.wait("stays as it was").last().unwrap().contains("nothing of the namespaces"));
    server.reload(&text);
    server.wait("the configuration has not changed");
    // An explicit empty list removes them.
    server.reload(&format!("subsystems = []\n{PORTS}"));
    server.wait("remove subsystem nqn.2014-08.org.example:disks");
}

#[test]
fn the_warnings_of_a_configuration_are_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("{PORTS}{}", disks("\"mem:1Mi\""));
    let server = Server::start(directory.path(), &text);
    server.reload(&text.replace("allow_any_host = true\n", ""));
    let lines = server.wait("no host may connect to this subsystem");
    assert!(lines.iter().any(|line| line.contains("alter subsystem")), "{lines:#?}");
    assert!(lines.last().unwrap().contains("WARN"), "{lines:#?}");
}

// @test data.stable-ids
#[test]
fn removing_the_first_of_two_ports_and_of_two_drives_does_not_affect_the_second() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.img", "b.img"] {
        File::create(directory.path().join(name)).unwrap().set_len(1 << 20).unwrap();
    }
    let server = Server::start(directory.path(), &format!("{PORTS}{}", disks("\"a.img\", \"b.img\"")));
    let second = format!("[[ports]]{}", PORTS.rsplit("[[ports]]").next().unwrap());
    server.reload(&format!("{second}{}", disks("\"b.img\"")));
    let lines = server.wait("remove port tcp://127.0.0.1:0");
    let changes: Vec<_> = lines.iter().filter_map(|line| line.split("INFO ").nth(1)).collect();
    assert_eq!(
        changes,
        ["remove namespace 1 of nqn.2014-08.org.example:disks by=SIGHUP", "remove port tcp://127.0.0.1:0 by=SIGHUP"],
        "{lines:#?}"
    );
    TcpStream::connect(server.listening[1]).unwrap();
    server.reload(&format!("{second}{}", disks("\"b.img\"")));
    server.wait("the configuration has not changed");
}

// @test data.grown-file
#[test]
fn a_target_notices_a_grown_file_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.img");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let server = Server::start(directory.path(), &format!("{PORTS}{}", disks("\"a.img\"")));
    let rescan = |process: u32| {
        let program = Command::new(env!("CARGO_BIN_EXE_ebof"))
            .args(["ns-rescan", "--serve", &process.to_string()])
            .output()
            .unwrap();
        (program.status.success(), String::from_utf8(program.stderr).unwrap())
    };
    assert!(rescan(server.child.id()).0);
    server.wait("nothing has grown");
    File::options().write(true).open(&path).unwrap().set_len(3 << 20).unwrap();
    assert!(rescan(server.child.id()).0);
    server.wait("grow namespace 1 of nqn.2014-08.org.example:disks: 1Mi -> 3Mi");
    // Also when the configuration is read again.
    File::options().write(true).open(&path).unwrap().set_len(4 << 20).unwrap();
    server.signal(Signal::HUP);
    server.wait("grow namespace 1 of nqn.2014-08.org.example:disks: 3Mi -> 4Mi");
    // Other processes are not sent the signal, which would end them.
    let (success, errors) = rescan(std::process::id());
    assert!(!success && errors.contains("is no target"), "{errors}");
}
