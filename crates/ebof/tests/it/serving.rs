//! A target that the program serves from a directory, and the verbs that manage it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::program::ebof;

/// `ebof serve -o json`, whose control socket is `control.sock` in its directory; it is killed on
/// drop.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) directory: PathBuf,
    /// What it printed when it served.
    pub(crate) started: Value,
}

impl Serving {
    pub(crate) fn start(mut command: Command, directory: &Path) -> Self {
        Self::start_with(command.stderr(Stdio::null()), directory)
    }

    /// The same with its log in a file.
    pub(crate) fn start_with_log(mut command: Command, directory: &Path, log: std::fs::File) -> Self {
        Self::start_with(command.stderr(log), directory)
    }

    fn start_with(command: &mut Command, directory: &Path) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut serving = Self { child, directory: directory.to_owned(), started: Value::Null };
        let mut line = String::new();
        BufReader::new(serving.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        serving.started = serde_json::from_str(&line).unwrap();
        serving
    }

    /// Ends it with SIGTERM, and waits for it.
    pub(crate) fn terminate(mut self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        ebof(&self.directory).args(arguments).args(["--control", "control.sock"]).output().unwrap()
    }

    /// Its output; it has to succeed.
    pub(crate) fn told(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Its error; it has to fail.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
