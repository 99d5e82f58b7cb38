//! Objects of a running target are added, changed, disabled and removed by verbs: each change is
//! there after a restart, and two administrators do not lose each other's.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use ebof_initiator::{Controller, Options};
use ebof_nvme::{Nqn, Nsid};
use serde_json::Value;

use crate::program::ebof;
use crate::serving::Serving;

const NQN: &str = "nqn.2014-08.org.example:disks";

fn start(directory: &Path) -> Serving {
    let mut command = ebof(directory);
    command.args(["serve", "-o", "json", "--control", "control.sock", "--state", "state"]);
    Serving::start(command, directory)
}

fn status(serving: &Serving) -> Value {
    let output = serving.run(&["target", "status", "-o", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["status"].clone()
}

/// The address of the first port.
fn port(serving: &Serving) -> u16 {
    let status = status(serving);
    status["ports"][0]["address"].as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap()
}

fn connect(serving: &Serving) -> Result<Controller, String> {
    let mut options = Options::new("127.0.0.1", port(serving), Nqn::parse(NQN).unwrap());
    options.nr_io_queues = 1;
    Controller::connect(&options).map_err(|error| format!("{error:#}"))
}

/// A target with a port, and a subsystem that has a file as its namespace.
fn filled(directory: &Path) -> Serving {
    let serving = start(directory);
    serving.told(&["target", "add", "port", "tcp://127.0.0.1:0", "--name", "a"]);
    let told =
        serving.told(&["target", "add", "subsystem", NQN, "--drive", "one.img:1Mi", "--allow-any-host", "model=disk"]);
    assert!(
        told.contains(&format!("+ add subsystem {NQN} with 1 namespace")) && told.contains("generation 3"),
        "{told}"
    );
    serving
}

#[test]
fn an_empty_target_is_filled_by_verbs_and_comes_back_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let serving = filled(directory.path());
    serving.told(&["target", "add", "namespace", NQN, "mem", "--size", "2Mi", "--block-size", "4096"]);
    serving.told(&["target", "add", "host", "nqn.2014-08.org.example:alice", "--subsystem", NQN]);
    serving.told(&["target", "set", "port", "a", "max_queue_size=128"]);
    assert_eq!(connect(&serving).unwrap().namespaces().unwrap(), [Nsid(1), Nsid(2)]);
    let before = serving.told(&["config", "export"]);
    assert!(directory.path().join("one.img").exists(), "relative to the user's directory");
    drop(serving);
    let serving = start(directory.path());
    assert_eq!(serving.told(&["config", "export"]), before);
    assert_eq!(connect(&serving).unwrap().namespaces().unwrap(), [Nsid(1), Nsid(2)]);
    for arguments in [
        &["target", "remove", "namespace", &format!("{NQN}/2")][..],
        &["target", "remove", "host", "nqn.2014-08.org.example:alice"],
        &["target", "remove", "subsystem", NQN],
        &["target", "remove", "port", "a"],
    ] {
        // A host that has just left may still be there.
        serving.told(&[arguments, &["--yes"]].concat());
    }
    assert_eq!(status(&serving)["subsystems"].as_array().unwrap().len(), 0);
    let told = serving.refused(&["target", "remove", "port", "a"]);
    assert!(told.contains("port a: there is no such thing"), "{told}");
    let told = serving.refused(&["target", "set", "target", "threads=2"]);
    assert!(told.contains("needs a new start"), "{told}");
    let told = serving.refused(&["target", "add", "port", "tcp://127.0.0.1:0", "max_queue_size=1"]);
    assert!(told.contains("`max_queue_size` is 1") && told.contains("accepted: an integer from 2 to 1024"), "{told}");
}

#[test]
fn connected_hosts_are_named_before_and_disabled_things_refuse_them() {
    let directory = tempfile::tempdir().unwrap();
    let serving = filled(directory.path());
    let host = connect(&serving).unwrap();
    let told = serving.refused(&["target", "disable", "subsystem", NQN]);
    assert!(told.contains("its connection ends: its subsystem is disabled") && told.contains("--yes"), "{told}");
    assert_eq!(host.namespaces().unwrap(), [Nsid(1)], "nothing was done");
    serving.told(&["target", "disable", "subsystem", NQN, "--yes"]);
    host.disconnect();
    connect(&serving).unwrap_err();
    let mut stream = UnixStream::connect(directory.path().join("control.sock")).unwrap();
    stream.write_all(b"GET /v1/refused HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut refused = String::new();
    stream.read_to_string(&mut refused).unwrap();
    assert!(
        refused.contains("\"reason\":\"subsystem-disabled\"") && refused.contains("ebof target enable"),
        "{refused}"
    );
    serving.told(&["target", "enable", "subsystem", NQN]);
    let host = connect(&serving).unwrap();
    serving.told(&["target", "disable", "namespace", &format!("{NQN}/1"), "--yes"]);
    assert!(host.namespaces().unwrap().is_empty());
    drop(serving);
    let serving = start(directory.path());
    let host = connect(&serving).unwrap();
    assert!(host.namespaces().unwrap().is_empty(), "it is disabled after a new start, too");
    serving.told(&["target", "enable", "namespace", &format!("{NQN}/1")]);
    assert_eq!(host.namespaces().unwrap(), [Nsid(1)]);
}

#[test]
fn a_port_is_drained() {
    let directory = tempfile::tempdir().unwrap();
    let serving = filled(directory.path());
    let address = port(&serving);
    let host = connect(&serving).unwrap();
    let told = serving.refused(&["target", "drain", "a"]);
    assert!(told.contains("its connection ends: port a changes"), "{told}");
    serving.told(&["target", "drain", "a", "--yes", "--wait", "30s"]);
    assert_eq!(status(&serving)["controllers"].as_array().unwrap().len(), 0);
    std::net::TcpStream::connect(("127.0.0.1", address)).unwrap_err();
    host.disconnect();
    serving.told(&["target", "enable", "port", "a"]);
    connect(&serving).unwrap();
}

// @test data.interrupted-file-change
#[test]
fn a_file_grows_with_its_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let serving = filled(directory.path());
    let host = connect(&serving).unwrap();
    let namespace = format!("{NQN}/1");
    serving.told(&["target", "resize", &namespace, "4Mi"]);
    assert_eq!(std::fs::metadata(directory.path().join("one.img")).unwrap().len(), 4 << 20);
    assert_eq!(status(&serving)["subsystems"][0]["namespaces"][0]["size_bytes"], 4 << 20);
    let seen = host.namespace(Nsid(1)).unwrap();
    assert_eq!(seen.blocks() * u64::from(seen.block_bytes()), 4 << 20);
    let told = serving.refused(&["target", "resize", &namespace, "2Mi"]);
    assert!(told.contains("4194304") || told.contains("4 MiB") || told.contains("4Mi"), "{told}");
    drop(serving);
    // Killed in the next one, when the file was larger and nothing was stored: what was noted
    // before is on the medium, and what has changed is taken back.
    let noted = serde_json::json!([{
        "change": "extend", "path": directory.path().join("one.img"), "from_bytes": 4 << 20, "to_bytes": 68_000_000,
    }]);
    let state = ebof_state::StateDirectory::open(&directory.path().join("state")).unwrap();
    state.replace("configuration-changes.json", noted.to_string().as_bytes()).unwrap();
    drop(state);
    let file = std::fs::File::options().write(true).open(directory.path().join("one.img")).unwrap();
    file.set_len(68_001_792).unwrap();
    let serving = start(directory.path());
    assert_eq!(status(&serving)["subsystems"][0]["namespaces"][0]["size_bytes"], 4 << 20);
    assert!(!directory.path().join("state/configuration-changes.json").exists());
    serving.told(&["target", "resize", &namespace, "68000000"]);
    assert!(!directory.path().join("state/configuration-changes.json").exists());
    serving.told(&["target", "add", "namespace", NQN, "mem:1Mi"]);
    let told = serving.refused(&["target", "resize", &format!("{NQN}/2"), "2Mi"]);
    assert!(told.contains("memory and null drives keep the size"), "{told}");
}

// @test data.planned-revision
#[test]
fn two_administrators_do_not_lose_each_others_changes() {
    let directory = tempfile::tempdir().unwrap();
    let serving = filled(directory.path());
    // One who sends what was planned before the other's change is refused.
    let planned = post(directory.path(), "/v1/edits?plan=1", "", HOST);
    let revision = planned.1["revision"].as_str().unwrap().to_owned();
    serving.told(&["target", "add", "host", "nqn.2014-08.org.example:bob"]);
    let condition = format!("If-Match: \"{revision}\"\r\n");
    let (status, refused) = post(directory.path(), "/v1/edits", &condition, HOST);
    assert_eq!((status, &refused["mistakes"][0]["kind"]), (412, &Value::from("outdated")), "{refused}");
    assert_eq!(post(directory.path(), "/v1/edits", "", HOST).0, 428, "without a condition");
    // Who sends what the plan promised loses nothing by a change that is none of this one's
    // business.
    let promise = planned.1["promise"].as_str().unwrap();
    let promised = HOST.replacen('{', &format!("{{\"promise\": \"{promise}\", "), 1);
    let (status, applied) = post(directory.path(), "/v1/edits", &condition, &promised);
    assert_eq!((status, applied["plan"].as_array().map(Vec::len)), (200, Some(1)), "{applied}");
    let (status, refused) = post(directory.path(), "/v1/edits", &condition, &promised);
    assert_eq!((status, &refused["mistakes"][0]["kind"]), (412, &Value::from("outdated")), "it is there: {refused}");
}

/// Changes that have nothing to do with each other are made one after the other, however many come
/// at once; of those that contradict each other one is made.
// @test data.parallel-edits
#[test]
fn of_many_changes_at_once_each_is_made() {
    const COUNT: usize = 30;
    let directory = tempfile::tempdir().unwrap();
    let serving = filled(directory.path());
    std::thread::scope(|scope| {
        for number in 0..COUNT {
            let serving = &serving;
            let nqn = format!("{NQN}{number}");
            scope.spawn(move || match number % 3 {
                0 => serving.told(&["target", "add", "host", &nqn]),
                1 => serving.told(&["target", "add", "port", "tcp://127.0.0.1:0", "--name", &format!("p{number}")]),
                _ => serving.told(&["target", "add", "subsystem", &nqn, "--drive", "mem:1Mi", "--allow-any-host"]),
            });
        }
    });
    let status = status(&serving);
    let count = |key: &str| status[key].as_array().unwrap().len();
    assert_eq!((count("ports"), count("subsystems")), (1 + COUNT / 3, 1 + COUNT / 3));
    let made = std::thread::scope(|scope| {
        let add = |_| scope.spawn(|| serving.run(&["target", "add", "host", "nqn.2014-08.org.example:one"]));
        let all: Vec<_> = (0..6).map(add).collect();
        all.into_iter().map(|one| one.join().unwrap()).filter(|output| output.status.success()).count()
    });
    assert_eq!(made, 1);
}

const HOST: &str = r#"{"edits": [{"edit": "add-host", "keys": {"nqn": "nqn.2014-08.org.example:late"}}]}"#;

fn post(directory: &Path, path: &str, lines: &str, body: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(directory.join("control.sock")).unwrap();
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}Content-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[test]
fn what_is_no_edit_is_refused_with_what_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let _serving = filled(directory.path());
    let told = |path: &str, body: &str| {
        let (status, answer) = post(directory.path(), path, "", body);
        (status, answer["mistakes"][0]["message"].as_str().unwrap().to_owned())
    };
    for (path, body, status, part) in [
        ("/v1/edits?plan=1", "", 400, "the body is not understood"),
        ("/v1/edits?plan=1", "{\"edits\": [{\"edit\": \"paint\"}]}", 400, "unknown variant"),
        ("/v1/edits?plan=1", "{\"edits\": []}", 422, "there are 0 edits"),
        ("/v1/edits?plan=1", "{\"edits\": [], \"base\": \"here\"}", 400, "`base` is too long, or no absolute path"),
        ("/v1/edits?plan=2", HOST, 400, "`plan=2` in the query"),
        (
            "/v1/edits?plan=1",
            "{\"edits\": [{\"edit\": \"remove\", \"object\": {\"port\": \"b\"}}]}",
            404,
            "no such thing",
        ),
        (
            "/v1/edits?plan=1",
            "{\"edits\": [{\"edit\": \"set\", \"object\": {\"port\": \"a\"}, \"keys\": {\"tos\": -1}}]}",
            422,
            "`tos` is -1",
        ),
    ] {
        let (code, message) = told(path, body);
        assert!(code == status && message.contains(part), "{path} {body}: {code} {message}");
    }
}

/// Memory keeps its size: the way that is advised ends with another namespace of the size wanted.
// @test output.destroying-advice
#[test]
fn memory_gets_another_size_as_the_advice_says() {
    let directory = tempfile::tempdir().unwrap();
    let serving = filled(directory.path());
    serving.told(&["target", "add", "namespace", NQN, "mem:1Mi"]);
    let uri = |nsid: u32| format!("nvme+tcp://127.0.0.1:{}/{NQN}/{nsid}", port(&serving));
    let host_does = |args: &[&str]| assert!(ebof(directory.path()).args(args).status().unwrap().success(), "{args:?}");
    let data = directory.path().join("data");
    std::fs::write(&data, [7; 4096]).unwrap();
    host_does(&["write", &uri(2), "-s", "0", "-d", "data"]);
    let told = serving.refused(&["target", "resize", &format!("{NQN}/2"), "2Mi"]);
    let advice = "add another one of that size, have hosts copy what they need, and remove this one then";
    assert!(told.contains(advice) && told.contains("data are lost"), "{told}");
    serving.told(&["target", "add", "namespace", NQN, "mem:2Mi"]);
    host_does(&["read", &uri(2), "-s", "0", "-z", "4096", "-d", "copy"]);
    host_does(&["write", &uri(3), "-s", "0", "-d", "copy"]);
    serving.told(&["target", "remove", "namespace", &format!("{NQN}/2"), "--yes"]);
    let host = connect(&serving).unwrap();
    assert_eq!(host.namespaces().unwrap(), [Nsid(1), Nsid(3)]);
    host_does(&["read", &uri(3), "-s", "0", "-z", "4096", "-d", "again"]);
    assert_eq!(std::fs::read(directory.path().join("again")).unwrap(), [7; 4096]);
}
