//! What a supervisor is told: the start, signs of life, reloads with their outcome, the end.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::program::ebof;

/// Longer than anything here takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A target with the test as its supervisor; killed on drop.
struct Supervised {
    child: Child,
    socket: UnixDatagram,
}

impl Supervised {
    fn start(directory: &Path, config: &Path) -> Self {
        let path = directory.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        let child = ebof(directory)
            .args(["serve", "--control", "none", "--config"])
            .arg(config)
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "200000")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, socket }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let bytes = self.socket.recv(&mut buffer).expect("the target tells something");
        String::from_utf8(buffer[..bytes].to_vec()).unwrap()
    }

    /// The next message that is no sign of life.
    fn told(&self) -> String {
        let deadline = Instant::now() + LONG;
        loop {
            let text = self.next();
            if text != "WATCHDOG=1" {
                return text;
            }
            assert!(Instant::now() < deadline, "only signs of life");
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// @test hostile.watchdog
#[test]
fn a_supervisor_is_told_of_start_life_reloads_and_end() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("ebof.toml");
    let text = "[[ports]]\nlisten = \"tcp://127.0.0.1:0\"\n[[subsystems]]\nnqn = \"nqn.2014-08.org.example:drive0\"\n\
                allow_any_host = true\nnamespaces = [\"mem:1Mi\"]\n";
    std::fs::write(&config, text).unwrap();
    let mut target = Supervised::start(directory.path(), &config);
    assert_eq!(target.told(), "READY=1\nSTATUS=serving 1 subsystem at 1 port");
    // Every reactor is asked for each of them, also while all sleep.
    for _ in 0..3 {
        assert_eq!(target.next(), "WATCHDOG=1");
    }

    let second =
        "[[subsystems]]\nnqn = \"nqn.2014-08.org.example:drive1\"\nallow_any_host = true\nnamespaces = [\"mem:1Mi\"]\n";
    std::fs::write(&config, format!("{text}{second}")).unwrap();
    target.signal(Signal::HUP);
    assert!(target.told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(target.told(), "READY=1\nSTATUS=serving 2 subsystems at 1 port");

    std::fs::write(&config, "no configuration\n").unwrap();
    target.signal(Signal::HUP);
    assert!(target.told().starts_with("RELOADING=1\n"));
    let told = target.told();
    assert!(
        told.starts_with("READY=1\nSTATUS=serving 2 subsystems at 1 port; the last reload was refused: "),
        "{told}"
    );

    target.signal(Signal::TERM);
    assert_eq!(target.told(), "STOPPING=1\nSTATUS=stopping");
    assert!(target.child.wait().unwrap().success());
}
