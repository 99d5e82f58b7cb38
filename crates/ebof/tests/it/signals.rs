//! Signals of a target whose configuration file was replaced: it ends on request, whatever the file
//! is now.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::program::{alone, ebof};

/// Longer than anything here takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

const CONFIG: &str = "[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\nnqn = \"nqn.2014-08.org.example:drive0\"\n\
                      allow_any_host = true\nnamespaces = [\"mem:1Mi\"]\n";

/// `ebof serve --config`; killed on drop.
struct Server {
    child: Child,
    log: Receiver<String>,
}

impl Server {
    fn start(config: &Path) -> Self {
        let mut child = ebof(config.parent().unwrap())
            .args(["serve", "-o", "json", "--config"])
            .arg(config)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = lines(child.stderr.take().unwrap());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("\"listening\""), "{line}");
        Self { child, log }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for a line of the log with these words.
    fn expect(&self, words: &str) {
        let mut read = Vec::new();
        loop {
            match self.log.recv_timeout(LONG) {
                Ok(line) if line.contains(words) => return,
                Ok(line) => read.push(line),
                Err(error) => panic!("no {words:?} in the log: {error}; {read:#?}"),
            }
        }
    }

    fn ends(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: ChildStderr) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { break };
            if send.send(line).is_err() {
                break;
            }
        }
    });
    receive
}

// @test data.sigterm
#[test]
fn no_configuration_file_delays_signals_or_exhausts_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ebof.toml");
    std::fs::write(&path, CONFIG).unwrap();
    let mut server = Server::start(&path);
    let before = server.resident_bytes();

    std::fs::remove_file(&path).unwrap();
    symlink("/dev/zero", &path).unwrap();
    server.signal(Signal::HUP);
    server.expect("it is a character device");

    std::fs::remove_file(&path).unwrap();
    // 1 TiB, sparse.
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    server.signal(Signal::HUP);
    server.expect("it has more than 16777216 bytes");

    std::fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    server.signal(Signal::HUP);
    server.expect("it is a pipe");

    // A key file that is never readable does not delay it either.
    let key = directory.path().join("key");
    assert!(Command::new("mkfifo").arg(&key).status().unwrap().success());
    let drive = "[[drives]]\nname = \"d0\"\nbacking = \"d0.img\"\nsize = \"64Mi\"\nencryption = true\nkey_file = \"key\"\n\
                 [[subsystems]]\nnqn = \"nqn.2014-08.org.example:d0\"\nallow_any_host = true\ndrive = \"d0\"\n";
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, format!("{CONFIG}{drive}")).unwrap();
    server.signal(Signal::HUP);
    server.expect("it is no regular file");

    assert!(server.resident_bytes() < before + (128 << 20), "{} bytes", server.resident_bytes());
    server.signal(Signal::TERM);
    assert!(server.ends().success());
}

// @test data.threads
#[test]
fn a_target_that_cannot_serve_with_every_thread_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("prlimit");
    alone(&mut command, directory.path());
    command.args(["--nofile=14:14", env!("CARGO_BIN_EXE_ebof"), "serve", "--listen", "tcp://127.0.0.1:0"]);
    command.args(["--threads", "8", "mem:1Mi"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("Too many open files"), "{said}");
}

/// A limit on the size of files makes a write fail, and does not end the process: the file is
/// removed.
#[test]
fn a_drive_larger_than_the_file_size_limit_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_ebof");
    let script = format!(
        "ulimit -f 20000; exec {program} serve --listen tcp://127.0.0.1:0 --drive name=d0,backing=d0.img,size=1Gi"
    );
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    alone(&mut command, state.path());
    let output = command.args(["-c", &script]).current_dir(&directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}: {said}", output.status);
    assert!(said.contains("File too large"), "{said}");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "{said}");
}
