//! The control socket: requests, wrong requests, and peers that are silent.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ebof_cli::Supervisor;
use ebof_manage::api::Asker;
use ebof_manage::enclosure::{DriveDetails, Enclosure, Inventory, StoredImage, TaskState};
use ebof_server::{Settings, Target};
use serde_json::Value;
use tokio::sync::watch;

use super::*;
use crate::reload::{Reloads, StartedWith};
use crate::rights::Confined;

mod configuration;
mod hostile;
mod keys;
mod watching;

const BOX: &str = "[[ports]]\nname = \"fabric0\"\nlisten = \"tcp://127.0.0.1:0\"\n\
                   [[drives]]\nname = \"d0\"\nbacking = \"mem:64Mi\"\nfunctions = 2\n\
                   [[subsystems]]\nnqn = \"nqn.2014-08.org.example:box:d0\"\nallow_any_host = true\ndrive = \"d0\"\n";

/// Longer than any response takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(20);

struct Rig {
    control: ControlEndpoint,
    _directory: tempfile::TempDir,
}

fn target() -> Arc<Target> {
    let config = ebof_manage::load("a.toml", BOX).unwrap().config;
    Arc::new(Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap())
}

fn reloads(origin: Option<PathBuf>, target: &Arc<Target>) -> Arc<Reloads> {
    let started_with = origin.map_or(StartedWith::Arguments, StartedWith::File);
    let supervisor = Arc::new(Supervisor::none());
    Arc::new(Reloads::start(started_with, None, Confined::default(), Arc::clone(target), supervisor).unwrap())
}

fn rig(lifetime: Duration) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let target = target();
    let reloads = reloads(None, &target);
    let control =
        serve_at(&directory.path().join("control.sock"), Managed::new(&target, &reloads, None), lifetime).unwrap();
    Rig { control, _directory: directory }
}

impl Rig {
    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.control.path()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Status code and body of the answer.
    fn request(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.request_with("", method, path, body)
    }

    /// The same with more lines in the head, each with its end.
    fn request_with(&self, lines: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = self.connect();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // A body that is too long need not be taken.
        let _sent = stream.write_all(body.as_bytes());
        let mut answer = String::new();
        let _end = stream.read_to_string(&mut answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.request("GET", path, "")
    }

    /// The task that makes these changes, once it has ended.
    fn change(&self, changes: &str) -> Task {
        let (status, task) = self.request("POST", "/v1/changes", &format!("{{\"changes\": [{changes}]}}"));
        assert_eq!(status, 202, "{task}");
        let mut task: Task = serde_json::from_value(task).unwrap();
        while !task.is_over() {
            let (_, next) = self.get(&format!("/v1/tasks/{}?revision={}&wait_ms=10000", task.id, task.revision));
            task = serde_json::from_value(next).unwrap();
        }
        task
    }

    fn inventory(&self) -> Inventory {
        let (status, inventory) = self.get("/v1/inventory");
        assert_eq!(status, 200);
        serde_json::from_value(inventory).unwrap()
    }
}

#[test]
fn a_drive_is_added_and_removed() {
    let rig = rig(LONG);
    assert_eq!(rig.inventory().drives.len(), 1);
    let task = rig.change(r#"{"change": "add-drive", "drive": {"name": "d1", "backing": "mem:64Mi"}}"#);
    assert_eq!((task.state, &task.error), (TaskState::Done, &None));
    let drive = rig.inventory().drive("d1").cloned().unwrap();
    assert_eq!((drive.nqn.as_str(), drive.temperature_kelvin), ("nqn.2014-08.org.example:box:d1", None));
    for surprise in [false, true] {
        let name = if surprise { "d1" } else { "d0" };
        let task = rig.change(&format!(r#"{{"change": "remove-drive", "drive": "{name}", "surprise": {surprise}}}"#));
        assert_eq!((task.state, &task.error), (TaskState::Done, &None));
    }
    assert!(rig.inventory().drives.is_empty());
    let (_, tasks) = rig.get("/v1/tasks");
    assert_eq!(tasks.as_array().unwrap().len(), 3);
}

#[test]
fn a_transaction_that_fails_leaves_nothing() {
    let rig = rig(LONG);
    // What is wrong with the second one is only found when its file is opened.
    let task = rig.change(
        r#"{"change": "add-drive", "drive": {"name": "d1", "backing": "mem:64Mi"}},
        {"change": "add-drive", "drive": {"name": "d2", "backing": "/nonexistent/d2.img", "size": "1G"}}"#,
    );
    let error = task.error.unwrap();
    assert_eq!((task.state, error.change, &error.remains), (TaskState::Failed, 1, &Vec::new()), "{error}");
    assert!(error.message.starts_with("cannot add drive d2: ") && error.message.contains("d2.img"), "{error}");
    assert_eq!(rig.inventory().drives.len(), 1);
}

#[test]
fn wrong_requests_are_answered_with_what_is_accepted() {
    let rig = rig(LONG);
    let large = format!("{{\"changes\": [], \"x\": \"{}\"}}", "x".repeat(BODY_BYTES_MAX));
    let deep = "[".repeat(100_000);
    let image = "x".repeat(ebof_manage::enclosure::IMAGE_BYTES_MAX + 1);
    for (method, path, body, expected) in [
        ("GET", "/v1/drives/d9", "", 404),
        ("GET", "/v1/drives/%00%0a", "", 404),
        ("GET", "/v1/drives/", "", 404),
        ("DELETE", "/v1/drives/d0", "", 405),
        ("POST", "/v1/images", "no image", 422),
        ("POST", "/v1/images", "", 422),
        ("POST", "/v1/images", &image, 413),
        ("GET", "/v1/images", "", 405),
        ("GET", "/v2/inventory", "", 404),
        ("GET", "/v1/tasks/7", "", 404),
        ("GET", "/v1/tasks/seven", "", 404),
        ("GET", "/v1/tasks/7?later=1", "", 400),
        ("POST", "/v1/inventory", "", 405),
        ("DELETE", "/v1/tasks/7", "", 405),
        ("POST", "/v1/changes", "", 400),
        ("POST", "/v1/changes", "{\"changes\": [{\"change\": \"explode\"}]}", 400),
        ("POST", "/v1/changes", &deep, 400),
        ("POST", "/v1/changes", &large, 413),
        ("POST", "/v1/changes", "{\"changes\": []}", 422),
        (
            "POST",
            "/v1/changes",
            "{\"changes\": [{\"change\": \"weight\", \"function\": \"d0/vf9\", \"weight\": 1}]}",
            422,
        ),
    ] {
        let (status, answer) = rig.request(method, path, body);
        assert_eq!(status, expected, "{method} {path}: {answer}");
        let refused: Refused = serde_json::from_value(answer).unwrap();
        assert!(!refused.mistakes[0].advice.is_empty(), "{refused}");
    }
    assert_eq!(rig.get("/v1").0, 200);
    assert_eq!(rig.get("/v1/status").1["schema"], 1);
    assert_eq!(rig.get("/v1/drives/d0").1["details_schema"], 1);
    assert_eq!(rig.get("/v1/refused").0, 200);
}

#[test]
fn silent_peers_do_not_block_others() {
    let rig = rig(Duration::from_secs(3600));
    let mut silent = Vec::new();
    for at in 0..3 * listener::CONNECTIONS {
        let mut stream = rig.connect();
        match at % 3 {
            0 => {}
            1 => stream.write_all(b"GET /v1/inventory HTTP/1.1\r\nHost:").unwrap(),
            _ => stream.write_all(b"POST /v1/changes HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n{").unwrap(),
        }
        silent.push(stream);
        if at % 20 == 0 {
            assert_eq!(rig.get("/v1/inventory").0, 200);
        }
    }
    assert_eq!(rig.get("/v1/inventory").0, 200);
}

#[test]
fn a_thousand_connections_and_endless_heads_do_not_block_others() {
    let rig = rig(Duration::from_secs(3600));
    let mut open = std::collections::VecDeque::new();
    for at in 0..1000 {
        let mut stream = rig.connect();
        stream.write_all(b"GET /v1/inventory HTTP/1.1\r\nX: ").unwrap();
        open.push_back(stream);
        open.drain(..open.len().saturating_sub(100));
        if at % 250 == 0 {
            assert_eq!(rig.get("/v1/inventory").0, 200);
        }
    }
    // A head without an end, in one line and in many: the connection ends before it is kept whole.
    for piece in ["x".repeat(1 << 16), "X: y\r\n".repeat(1 << 13)] {
        let mut stream = rig.connect();
        stream.set_write_timeout(Some(LONG)).unwrap();
        let mut sent = stream.write_all(b"GET /v1/inventory HTTP/1.1\r\nX: ").map(|()| 0);
        while let Ok(bytes) = sent {
            assert!(bytes < 16 << 20, "a head of {bytes} bytes is taken");
            sent = stream.write_all(piece.as_bytes()).map(|()| bytes + piece.len());
        }
    }
    assert_eq!(rig.get("/v1/inventory").0, 200);
}

#[test]
fn a_connection_has_a_time_limit() {
    let rig = rig(Duration::from_millis(50));
    let mut rest = Vec::new();
    assert_eq!(rig.connect().read_to_end(&mut rest).unwrap(), 0);
}

#[test]
fn requests_that_wait_do_not_block_others() {
    let rig = rig(LONG);
    let task = rig.change(r#"{"change": "add-drive", "drive": {"name": "d1", "backing": "mem:64Mi"}}"#);
    // A task that has ended is not waited for.
    let (status, _) = rig.get(&format!("/v1/tasks/{}?revision={}&wait_ms=3600000", task.id, task.revision));
    assert_eq!(status, 200);
}

/// Has one task, which comes one step further when it is told.
#[derive(Clone)]
struct Slow(Arc<AtomicU64>);

impl Enclosure for Slow {
    fn inventory(&self) -> Inventory {
        unreachable!("nobody asks")
    }

    fn begin_for(&self, _transaction: Transaction, _by: &Asker) -> Result<Task, Refused> {
        unreachable!("nobody asks")
    }

    fn tasks(&self) -> Vec<Task> {
        self.task(1, None, Duration::ZERO).into_iter().collect()
    }

    fn task(&self, id: u64, _known: Option<u64>, wait: Duration) -> Option<Task> {
        assert_eq!(wait, Duration::ZERO, "no thread may wait");
        let task = serde_json::json!({
            "task_schema": 1, "id": id, "revision": self.0.load(Relaxed), "state": "running", "what": "", "changes": [],
            "change": 0, "phase": "draining", "percent": 20, "detail": null, "began_unix_ms": 0, "ended_unix_ms": null,
            "elapsed_ms": 0, "remark": null, "error": null,
        });
        Some(serde_json::from_value(task).unwrap())
    }

    fn drive_details(&self, _drive: &str) -> Option<DriveDetails> {
        unreachable!("nobody asks")
    }

    fn store_image(&self, _bytes: &[u8]) -> Result<StoredImage, Refused> {
        unreachable!("nobody asks")
    }
}

#[test]
fn requests_whose_clients_have_gone_do_not_wait() {
    let slow = Slow(Arc::new(AtomicU64::new(1)));
    let steps = watch::Sender::new(());
    let directory = tempfile::tempdir().unwrap();
    let target = target();
    let managed = Managed::with(&target, Arc::new(slow.clone()), &reloads(None, &target), None, steps.clone());
    let control = serve_at(&directory.path().join("control.sock"), managed, LONG).unwrap();
    let rig = Rig { control, _directory: directory };
    let waiting = "/v1/tasks/1?revision=1&wait_ms=20000";
    // One after the other, and then as many as there may be connections.
    let mut there = Vec::new();
    for at in 0..8 * listener::CONNECTIONS {
        let mut stream = rig.connect();
        stream.write_all(format!("GET {waiting} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        if at > 7 * listener::CONNECTIONS + 1 {
            there.push(stream);
        }
    }
    let began = std::time::Instant::now();
    assert_eq!(rig.get("/v1/tasks").0, 200);
    assert_eq!(rig.get("/v1/status").0, 200);
    // Who still waits is told as soon as the task goes on.
    std::thread::scope(|scope| {
        let told = scope.spawn(|| rig.get(waiting).1);
        std::thread::sleep(Duration::from_millis(50));
        slow.0.store(2, Relaxed);
        steps.send_modify(|()| ());
        assert_eq!(told.join().unwrap()["revision"], 2);
    });
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}
