//! A target in a process of its own, for tests that kill or watch it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use tempfile::TempDir;

use crate::program::ebof;

/// The process; it is killed on drop.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    /// Its state directory is in it.
    _directory: TempDir,
}

impl Server {
    /// `ebof serve` on a free port of loopback, with these additional arguments.
    pub(crate) fn start(nqn: &str, args: &[&str]) -> Self {
        Self::start_with(nqn, args, Stdio::null())
    }

    /// The same, with its log in this file.
    pub(crate) fn start_with(nqn: &str, args: &[&str], log: Stdio) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut child = ebof(directory.path())
            .args(["serve", "--listen", "tcp://127.0.0.1:0", "--nqn", nqn, "-o", "json"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let started: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            output.read_to_string(&mut line).unwrap();
            panic!("the target does not start: {line}")
        });
        let listening = started["listening"][0].as_str().unwrap();
        let port = listening.rsplit(':').next().unwrap().parse().unwrap();
        Self { child, port, _directory: directory }
    }

    /// Ends it with SIGTERM, and waits for it.
    pub(crate) fn terminate(mut self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// SIGABRT, and waits until it is gone.
    pub(crate) fn abort(mut self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::ABORT).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "{status}");
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    /// Kills it with SIGKILL, and waits for it.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
