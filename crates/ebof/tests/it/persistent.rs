//! `connect-all --persistent`: what comes to a target is connected, what goes is told, and a
//! discovery service that is away for a while is heard again.

use std::io::{BufRead as _, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::ebof;
use crate::serving::Serving;

/// As long as any change may take.
const LONG: Duration = Duration::from_secs(60);

fn nqn(name: &str) -> String {
    format!("nqn.2014-08.org.example:{name}")
}

/// A target with a port, and its address.
fn start(directory: &Path) -> (Serving, SocketAddr) {
    let mut command = ebof(directory);
    command.args(["serve", "-o", "json", "--control", "control.sock", "--state", "state"]);
    let serving = Serving::start(command, directory);
    serving.told(&["target", "add", "port", "tcp://127.0.0.1:0", "--name", "a"]);
    let status: Value = serde_json::from_str(&serving.told(&["target", "status", "-o", "json"])).unwrap();
    let address = status["status"]["ports"][0]["address"].as_str().unwrap();
    let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
    (serving, SocketAddr::from(([127, 0, 0, 1], port)))
}

/// A subsystem without namespaces: no block device is made.
fn add(serving: &Serving, name: &str) {
    serving.told(&["target", "add", "subsystem", &nqn(name), "--allow-any-host"]);
}

fn delete(serving: &Serving, name: &str) {
    serving.told(&["target", "remove", "subsystem", &nqn(name), "--yes"]);
}

/// A running `connect-all --persistent`, and what it says.
struct Held {
    child: Child,
    lines: Receiver<String>,
    directory: Arc<tempfile::TempDir>,
}

impl Held {
    fn start(more: &[&str]) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), more)
    }

    /// With what another one has connected.
    fn start_in(directory: Arc<tempfile::TempDir>, more: &[&str]) -> Self {
        let mut command = ebof(directory.path());
        command.arg("connect-all").args(more).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, directory }
    }

    fn of(address: SocketAddr, more: &[&str]) -> Self {
        let port = address.port().to_string();
        let service = ["-t", "tcp", "-a", "127.0.0.1", "-s", &port, "--persistent", "-o", "json"];
        Self::start(&[&service, more].concat())
    }

    /// The next change, which has to be this one of this subsystem, if one is named.
    #[track_caller]
    fn next(&self, change: &str, name: Option<&str>) -> Value {
        let line = self.lines.recv_timeout(LONG).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&told["schema"], &told["change"]), (&"ebof/discovery-change/1".into(), &change.into()), "{line}");
        if let Some(name) = name {
            assert_eq!(told["nqn"], nqn(name), "{line}");
        }
        told
    }

    /// Waits for a line with this text.
    #[track_caller]
    fn says(&self, part: &str) {
        let mut lines = std::iter::repeat_with(|| self.lines.recv_timeout(LONG).unwrap());
        assert!(lines.any(|line| line.contains(part)));
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = ebof(self.directory.path()).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// The subsystems that are connected.
    fn connected(&self) -> Vec<String> {
        let text = self.run(&["list-subsys", "-o", "json"]);
        let mut names: Vec<String> =
            text.split('"').filter(|word| word.starts_with("nqn.2014-08.org.example:")).map(str::to_owned).collect();
        names.dedup();
        names
    }

    /// Ends it as a supervisor would.
    fn terminate(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.run(&["disconnect-all", "--force"]);
    }
}

// @test host.persistent-discovery
#[test]
fn what_comes_is_connected_and_what_goes_is_disconnected_if_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let (serving, address) = start(directory.path());
    add(&serving, "one");
    let mut held = Held::of(address, &["--vanished", "disconnect"]);
    let told = held.next("connected", Some("one"));
    assert_eq!(told["address"], format!("tcp://127.0.0.1:{}", address.port()));
    add(&serving, "two");
    held.next("connected", Some("two"));
    assert_eq!(held.connected(), [nqn("one"), nqn("two")]);
    delete(&serving, "two");
    held.next("vanished", Some("two"));
    held.next("disconnected", Some("two"));
    assert_eq!(held.connected(), [nqn("one")]);
    // It comes back, as another one.
    add(&serving, "two");
    held.next("connected", Some("two"));
    // What was connected stays when nobody looks any more.
    held.terminate();
    assert_eq!(held.connected(), [nqn("one"), nqn("two")]);
}

// @test host.persistent-discovery
#[test]
fn what_goes_stays_connected_unless_that_is_asked_for_and_others_connections_stay() {
    let directory = tempfile::tempdir().unwrap();
    let (serving, address) = start(directory.path());
    add(&serving, "one");
    let held = Held::of(address, &[]);
    held.next("connected", Some("one"));
    delete(&serving, "one");
    held.next("vanished", Some("one"));
    add(&serving, "two");
    held.next("connected", Some("two"));
    assert!(held.connected().contains(&nqn("one")));
    drop(held);

    // Somebody else has connected it.
    let held = Held::start(&["-a", "127.0.0.1", "-s", &address.port().to_string()]);
    while held.lines.recv_timeout(LONG).is_ok() {}
    assert_eq!(held.connected(), [nqn("two")]);
    let port = address.port().to_string();
    let service = ["-a", "127.0.0.1", "-s", &port, "-p", "--vanished", "disconnect"];
    let held = Held::start_in(Arc::clone(&held.directory), &service);
    held.says("connected already as nvme0");
    delete(&serving, "two");
    held.says("is not listed any more");
    add(&serving, "three");
    held.says("connected nvme1: ");
    assert!(held.connected().contains(&nqn("two")));
}

/// A way to a target that can be cut.
struct Way {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn new(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&open);
        std::thread::spawn(move || {
            for host in listener.incoming().map_while(Result::ok) {
                let target = TcpStream::connect(target).unwrap();
                let ends = [(&host, &target), (&target, &host)].map(|(from, to)| (from.try_clone(), to.try_clone()));
                all.lock().unwrap().extend([host, target]);
                for (from, to) in ends {
                    let (mut from, mut to) = (from.unwrap(), to.unwrap());
                    std::thread::spawn(move || {
                        let _ended = std::io::copy(&mut from, &mut to);
                        let _gone = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Self { address, open }
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }
}

// @test host.persistent-discovery
#[test]
fn a_service_that_was_away_is_heard_again() {
    let directory = tempfile::tempdir().unwrap();
    let (serving, address) = start(directory.path());
    add(&serving, "one");
    let way = Way::new(address);
    let held = Held::of(way.address, &["--vanished", "disconnect"]);
    held.next("connected", Some("one"));
    way.cut();
    held.next("service-lost", None);
    held.next("service-back", None);
    add(&serving, "two");
    held.next("connected", Some("two"));
    // Nothing has vanished meanwhile.
    assert_eq!(held.connected(), [nqn("one"), nqn("two")]);
}

// @test host.persistent-discovery
#[test]
fn entries_of_the_file_of_connections_are_held() {
    let directory = tempfile::tempdir().unwrap();
    let (serving, address) = start(directory.path());
    add(&serving, "one");
    let file = directory.path().join("connections.toml");
    let text = format!(
        "[[discoveries]]\ntraddr = \"127.0.0.1\"\ntrsvcid = {}\npersistent = true\nvanished = \"disconnect\"\n",
        address.port()
    );
    std::fs::write(&file, &text).unwrap();
    let arguments = ["--connections", file.to_str().unwrap(), "--retry", "--owner", "unit"];
    let mut held = Held::start(&arguments);
    held.says(&format!("connected nvme0: {}", nqn("one")));
    add(&serving, "two");
    held.says(&format!("connected nvme1: {}", nqn("two")));
    held.terminate();
    // The next one knows what is its owner's.
    let held = Held::start_in(Arc::clone(&held.directory), &arguments);
    held.says("connected already as nvme1");
    delete(&serving, "two");
    held.says("disconnected nvme1");
}

// @test host.persistent-discovery
#[test]
fn a_signal_ends_it_although_a_target_of_the_file_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let (serving, address) = start(directory.path());
    add(&serving, "one");
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let file = directory.path().join("connections.toml");
    let text = format!(
        "[[discoveries]]\ntraddr = \"127.0.0.1\"\ntrsvcid = {}\npersistent = true\n\
         [[connections]]\ntraddr = \"127.0.0.1\"\ntrsvcid = {}\nnqn = \"{}\"\n",
        address.port(),
        away.port(),
        nqn("away")
    );
    std::fs::write(&file, &text).unwrap();
    let mut held = Held::start(&["--connections", file.to_str().unwrap(), "--retry"]);
    // The other one may have taken the name nvme0 for a while.
    held.says(&format!(": {} at ", nqn("one")));
    held.terminate();
    assert_eq!(held.connected(), [nqn("one")]);
}

// @test host.persistent-own
#[test]
fn of_devices_that_somebody_else_connected_only_the_added_path_goes() {
    let directory = tempfile::tempdir().unwrap();
    let (serving, address) = start(directory.path());
    serving.told(&["target", "add", "port", "tcp://127.0.0.1:0", "--name", "b"]);
    add(&serving, "one");
    let port = address.port().to_string();
    let service = ["-a", "127.0.0.1", "-s", &port, "-p", "--vanished", "disconnect"];
    let own = Arc::new(tempfile::tempdir().unwrap());
    let connect = ["connect", "-t", "tcp", "-a", "127.0.0.1", "-s", &port, "-n", &nqn("one")];
    assert!(ebof(own.path()).args(connect).status().unwrap().success());
    let held = Held::start_in(own, &service);
    held.says("connected nvme0c1: ");
    delete(&serving, "one");
    held.says("disconnected nvme0c1");
    assert_eq!(held.connected(), [nqn("one")]);
}

// @test host.persistent-discovery
#[test]
fn a_service_that_is_asked_once_and_is_away_is_told_and_the_others_are_held() {
    let directory = tempfile::tempdir().unwrap();
    let (serving, address) = start(directory.path());
    add(&serving, "one");
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let file = directory.path().join("nvme-fabrics.conf");
    let entry = |port: u16, more: &str| {
        format!("[Discovery Controller]\ncontroller = transport=tcp;traddr=127.0.0.1;trsvcid={port}\n{more}")
    };
    let text = entry(away.port(), "persistent = no\n") + &entry(address.port(), "");
    std::fs::write(&file, &text).unwrap();
    let mut held = Held::start(&["--config", file.to_str().unwrap(), "-p"]);
    held.says("failed");
    held.says(&format!("connected nvme0: {}", nqn("one")));
    kill_process(Pid::from_child(&held.child), Signal::TERM).unwrap();
    assert_eq!(held.child.wait().unwrap().code(), Some(1));
}
