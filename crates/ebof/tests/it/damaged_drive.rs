//! A drive with a damaged journal: `ebof serve` refuses it with the damage and what can be done, or
//! serves the rest read-only. It is never written.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Options};
use ebof_nvme::{Nqn, Nsid, Status};

use crate::program;
use crate::server::Server;

const NQN: &str = "nqn.2014-08.org.example:damaged";

fn drive(file: &Path, more: &str) -> String {
    format!("name=d0,backing={},size=16Mi,attach=everyone,checksums{more}", file.display())
}

fn ebof(port: u16, verb: &str, args: &[&str]) -> Output {
    let uri = format!("nvme+tcp://127.0.0.1:{port}/{NQN}");
    Command::new(env!("CARGO_BIN_EXE_ebof")).arg(verb).arg(uri).args(args).output().unwrap()
}

fn create(port: u16) {
    let run = ebof(port, "create-ns", &["-S", "4Mi", "-b", "4096"]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

fn connect(port: u16) -> Controller {
    let mut options = Options::new("127.0.0.1", port, Nqn::parse(NQN).unwrap());
    options.nr_io_queues = 1;
    Controller::connect(&options).unwrap()
}

/// The range of the newest journal's frames in the file.
fn frames(file: &File) -> Vec<u64> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for at in (1 << 20..33 << 20).step_by(4096) {
        let mut head = [0; 32];
        file.read_exact_at(&mut head, at).unwrap();
        if head.starts_with(b"EBOFJRN1") {
            found.push((u64::from_le_bytes(head[24..].try_into().unwrap()), at));
        }
    }
    let newest = found.iter().map(|(generation, _)| *generation).max().unwrap();
    found.into_iter().filter(|(generation, _)| *generation == newest).map(|(_, at)| at).collect()
}

/// A drive with two namespaces, with written and flushed blocks, killed. Returns where its journal
/// was damaged.
fn make(file: &Path) -> u64 {
    let server = Server::start(NQN, &["--drive", &drive(file, "")]);
    create(server.port);
    let controller = connect(server.port);
    let namespace = controller.namespace(Nsid(1)).unwrap();
    for lba in [0, 1, 100] {
        namespace.write(lba, &[lba as u8 + 1; 4096], false).unwrap();
    }
    namespace.flush().unwrap();
    create(server.port);
    drop((namespace, controller, server));
    let image = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let frames = frames(&image);
    assert!(frames.len() > 6, "{frames:?}");
    // In the middle: the first namespace was created before it, the second after it.
    let at = frames[frames.len() - 3];
    let mut byte = [0];
    image.read_exact_at(&mut byte, at + 80).unwrap();
    image.write_all_at(&[byte[0] ^ 1], at + 80).unwrap();
    at
}

// @test drive.damaged-record
#[test]
fn a_damaged_drive_is_refused_with_the_damage_and_what_can_be_done() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("drive.img");
    let at = make(&file);
    let before = std::fs::read(&file).unwrap();
    let run = program::ebof(directory.path())
        .args(["serve", "--listen", "tcp://127.0.0.1:0", "--nqn", NQN, "--drive", &drive(&file, "")])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{told}");
    let name = file.display().to_string();
    let place = format!("4096 bytes from {at} on");
    for word in
        [&name[..], "is damaged", "its journal", &place, "flushed", "Nothing was written", "read-only-if-damaged"]
    {
        assert!(told.contains(word), "`{word}` is not in: {told}");
    }
    assert!(std::fs::read(&file).unwrap() == before, "it was written");
}

// @test drive.read-only-rest
#[test]
fn the_rest_of_a_damaged_drive_is_served_read_only_and_hosts_are_notified() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("drive.img");
    let log = directory.path().join("log");
    let at = make(&file);
    let before = std::fs::read(&file).unwrap();
    let stderr = File::create(&log).unwrap();
    let server = Server::start_with(NQN, &["--drive", &drive(&file, ",read-only-if-damaged")], stderr.into());
    let told = std::fs::read_to_string(&log).unwrap();
    assert!(told.contains("open for reading only") && told.contains(&at.to_string()), "{told}");
    let controller = connect(server.port);
    let namespace = controller.namespace(Nsid(1)).unwrap();
    let mut data = [0; 4096];
    for lba in [0, 1, 100] {
        namespace.read(lba, &mut data).unwrap();
        assert_eq!(data, [lba as u8 + 1; 4096]);
    }
    // Blocks that seem unwritten may have been written by lost records.
    assert!(namespace.read(500, &mut data).is_err());
    let refused = namespace.write(0, &data, false).unwrap_err();
    let protected = Status::NAMESPACE_WRITE_PROTECTED;
    assert!(refused.to_string().contains("Write Protected"), "{refused}, not {protected:?}");
    // Soon after the start, at the first check.
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let run = ebof(server.port, "smart-log", &["-o", "json"]);
        let page: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
        // Reliability degraded, and media in read only mode.
        if page["critical_warning"].as_u64().is_some_and(|warning| warning & 0xc == 0xc) {
            break;
        }
        assert!(Instant::now() < end, "{page}");
        std::thread::yield_now();
    }
    let refused = ebof(server.port, "create-ns", &["-S", "4Mi"]);
    assert!(!refused.status.success());
    let advice = String::from_utf8_lossy(&refused.stderr);
    assert!(advice.contains("the drive is open for reading only") && !advice.contains("set-feature"), "{advice}");
    let errors = ebof(server.port, "error-log", &["-o", "json"]);
    let errors: serde_json::Value = serde_json::from_slice(&errors.stdout).unwrap();
    assert!(errors.to_string().contains("65535"), "an entry that is no command's: {errors}");
    drop((namespace, controller));
    server.terminate();
    assert!(std::fs::read(&file).unwrap() == before, "it was written");
}
