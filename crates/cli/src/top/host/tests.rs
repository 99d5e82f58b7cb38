//! A host with recorded files of the kernel, and with daemons that answer as they like.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;

use ebof_attach::Request;
use ebof_attach::stats::{CountedKind, CountedPath};
use rustix::fs::{FlockOperation, flock};

use super::*;

/// A host whose files are in a directory.
fn host(directory: &Path, only: Option<&str>) -> ThisHost {
    let states = StateDir::at(&directory.join("state"));
    ThisHost::at(states, &directory.join("proc"), &directory.join("sys"), only.map(str::to_owned))
}

fn disks(directory: &Path, reads: u64) {
    let line = |name: &str| format!("259 0 {name} {reads} 0 {} {} 0 0 0 0 2 0 0\n", reads * 8, reads / 10);
    std::fs::create_dir_all(directory.join("proc")).unwrap();
    std::fs::write(directory.join("proc/diskstats"), line("nvme0n1") + &line("nvme0n1p1") + &line("nvme7n1")).unwrap();
    let device = directory.join("sys/block/nvme7n1/device");
    std::fs::create_dir_all(&device).unwrap();
    std::fs::write(device.join("state"), "live\n").unwrap();
    std::fs::write(device.join("subsysnqn"), "nqn.2014-08.org.example:far\n").unwrap();
}

fn names(table: &LiveTable) -> Vec<String> {
    table.rows.iter().map(|row| row.object.to_string()).collect()
}

/// Looks again after as long as two looks have to be apart.
fn look_again(host: &mut ThisHost) -> (LiveTable, Vec<String>) {
    std::thread::sleep(Duration::from_millis(ebof_manage::history::live::LOOK_MS_MIN + 10));
    host.look().unwrap()
}

#[test]
fn devices_of_the_kernel_are_measured() {
    let directory = tempfile::tempdir().unwrap();
    let mut nothing = host(directory.path(), None);
    let (table, remarks) = nothing.look().unwrap();
    assert!(table.rows.is_empty() && remarks[0].contains("`ebof connect`"), "{remarks:?}");
    disks(directory.path(), 1_000);
    let mut host = host(directory.path(), None);
    host.look().unwrap();
    disks(directory.path(), 3_000);
    let (table, remarks) = look_again(&mut host);
    assert_eq!(
        (names(&table), remarks.len()),
        (vec!["namespace:nvme0n1".to_owned(), "namespace:nvme7n1".to_owned()], 0)
    );
    let row = &table.rows[1];
    let read = &row.sample.read;
    assert!(read.commands_per_s > 0.0 && read.commands_per_s <= 8_000.0, "{read:?}");
    assert!((read.bytes_per_s / read.commands_per_s - 4096.0).abs() < 1.0, "{read:?}");
    assert_eq!((read.mean_us, read.p99_us, row.in_flight), (Some(100.0), None, Some(2)));
    let labels = ["state", "subsystem", "path", "front"].map(|label| row.labels[label].as_str());
    assert_eq!(labels, ["live", "nqn.2014-08.org.example:far", "/dev/nvme7n1", "kernel"]);
    assert!(!table.rows[0].labels.contains_key("state"), "what is not known is not told");
}

#[test]
fn one_device_can_be_chosen() {
    let directory = tempfile::tempdir().unwrap();
    disks(directory.path(), 1);
    for only in ["nvme7n1", "/dev/nvme7n1", "nvme7", "/dev/nvme7"] {
        let (table, _) = host(directory.path(), Some(only)).look().unwrap();
        assert_eq!(names(&table), ["namespace:nvme7n1"], "{only}");
    }
    let error = host(directory.path(), Some("nvme3")).look().unwrap_err();
    assert!(error.to_string().contains("`nvme3` is not attached"), "{error}");
}

/// A daemon that answers requests with these lines and data.
fn daemon(directory: &Path, answers: Vec<(String, Vec<u8>)>) -> (std::fs::File, std::thread::JoinHandle<()>) {
    let states = StateDir::at(&directory.join("state"));
    let guard = states.lock().unwrap();
    let (record, lock) = states.create(&guard, &Request::default()).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let mut state = crate::output::example_state(&record.name);
    state.pid = std::process::id();
    std::fs::write(record.directory.join("state.json"), serde_json::to_vec(&state).unwrap()).unwrap();
    let listener = UnixListener::bind(record.socket()).unwrap();
    let told = serde_json::json!({"result": "status", "state": state, "data_bytes": 0}).to_string();
    let thread = std::thread::spawn(move || {
        for (line, data) in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = BufReader::new(stream);
            let mut call = String::new();
            stream.read_line(&mut call).unwrap();
            assert!(call.contains("status"), "{call}");
            writeln!(stream.get_mut(), "{told}").unwrap();
            call.clear();
            stream.read_line(&mut call).unwrap();
            assert!(call.contains("stats"), "{call}");
            // The client may have given it up.
            let _gone = writeln!(stream.get_mut(), "{line}").and_then(|()| stream.get_mut().write_all(&data));
        }
    });
    (lock, thread)
}

#[test]
fn a_daemon_is_not_believed_blindly() {
    let directory = tempfile::tempdir().unwrap();
    let huge =
        CountedKind { commands: u64::MAX, latency: vec![(usize::MAX, 1), (3, u64::MAX)], ..CountedKind::default() };
    let counted = |id| Counted { id, in_flight: u64::MAX, kinds: [huge.clone(), huge.clone(), huge.clone()] };
    let stats = Stats {
        queues: vec![counted(1), counted(u32::MAX)],
        namespaces: vec![counted(1), counted(0)],
        paths: vec![CountedPath { id: 7, failovers: u64::MAX, ..CountedPath::default() }; 2],
        troubles: [("data-digest", 18_457), ("repeated", u64::MAX), ("nonsense", 1)]
            .map(|(name, count)| (name.to_owned(), count))
            .into(),
    };
    let good = serde_json::to_vec(&stats).unwrap();
    let counted = |bytes: usize| format!(r#"{{"result": "counted", "data_bytes": {bytes}}}"#);
    let answers = vec![
        (
            r#"{"result": "failed", "message": "the call is not understood: unknown variant `stats`"}"#.to_owned(),
            vec![],
        ),
        (counted(4_294_967_295), vec![]),
        (counted(2), b"{}".to_vec()),
        (r#"{"result": "done"}"#.to_owned(), vec![]),
        ("nonsense".to_owned(), vec![]),
        (counted(good.len()), good),
    ];
    let rounds = answers.len();
    let (_lock, thread) = daemon(directory.path(), answers);
    let mut host = host(directory.path(), None);
    let mut told = Vec::new();
    for round in 0..rounds {
        let (table, remarks) = host.look().unwrap();
        assert!(names(&table).contains(&"controller:nvme0".to_owned()), "{round}: {table:?}");
        told.extend(remarks);
        std::thread::sleep(Duration::from_millis(ebof_manage::history::live::LOOK_MS_MIN + 10));
        if round + 1 == rounds {
            let queues: Vec<_> = names(&table).into_iter().filter(|name| name.starts_with("queue:")).collect();
            assert_eq!(queues, ["queue:nvme0/q1".to_owned(), format!("queue:nvme0/q{}", u32::MAX)]);
            assert!(names(&table).contains(&"namespace:nvme0, others".to_owned()), "{table:?}");
            let row = table.rows.iter().find(|row| row.object.to_string() == "controller:nvme0").unwrap();
            assert_eq!(row.labels.get("data-digest").map(String::as_str), Some("18457"));
            assert!(!row.labels.contains_key("nonsense"), "{:?}", row.labels);
            let told = told.pop().unwrap();
            assert!(told.starts_with("nvme0: since it was connected: 18457 data digest errors"), "{told}");
        }
    }
    thread.join().unwrap();
    assert_eq!(told.len(), rounds - 1, "{told:?}");
    assert!(told[0].contains("of a version that counts nothing"), "{told:?}");
}
