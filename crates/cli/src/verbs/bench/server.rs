//! A target in a process of its own, started as a user would start it. It has its own process
//! group, so that a terminal's Ctrl-C does not reach it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use std::os::unix::process::CommandExt as _;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Time limit for its start, and for its end.
const LIMIT: Duration = Duration::from_secs(30);

/// A running `ebof serve`. Dropping it ends the process.
pub struct Server {
    child: Child,
    /// The address that it listens on.
    address: String,
    port: u16,
}

impl Server {
    /// `ebof serve` with `arguments`, in `directory`; its log goes to `log`. `program` is `ebof`.
    ///
    /// # Errors
    /// It did not start (with its output), or `interrupted` returned true.
    pub fn start(
        program: &Path,
        arguments: &[&str],
        directory: &Path,
        log: Stdio,
        interrupted: impl Fn() -> bool,
    ) -> anyhow::Result<Self> {
        let mut child = ebof_state::hand_on_runtime_directory(&mut Command::new(program))
            // What is served for a demonstration or a measurement leaves nothing in the state
            // directory.
            .args(["-o", "json", "serve", "--state", "none"])
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("starting `ebof serve`")?;
        let (sender, lines) = channel();
        let stdout = child.stdout.take();
        // From here on, dropping it ends the process.
        let mut server = Self { child, address: String::new(), port: 0 };
        // The thread ends at the end of the target's output, at the latest with the target.
        std::thread::spawn(move || {
            let mut lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines().map_while(Result::ok));
            lines.try_for_each(|line| sender.send(line))
        });
        let first = first_line(&lines, interrupted);
        let document = first.as_deref().and_then(|line| serde_json::from_str::<Value>(line).ok());
        let listening = document.as_ref().and_then(|document| document["listening"][0].as_str());
        match listening.and_then(address_of) {
            Some((address, port)) => {
                (server.address, server.port) = (address, port);
                Ok(server)
            }
            None => {
                drop(server);
                let printed = first.into_iter().chain(lines).collect::<Vec<_>>().join("\n");
                let document: Value = serde_json::from_str(&printed).unwrap_or_default();
                let message = document["error"]["message"].as_str().unwrap_or("it said nothing");
                Err(anyhow::anyhow!("`ebof serve` did not start: {message}"))
            }
        }
    }

    /// The address and port that it listens on.
    #[must_use]
    pub fn place(&self) -> (&str, u16) {
        (&self.address, self.port)
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

/// Terminates the process, and kills it if that takes too long.
impl Drop for Server {
    fn drop(&mut self) {
        let _gone = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// The first line, or `None` after the time limit.
fn first_line(lines: &Receiver<String>, interrupted: impl Fn() -> bool) -> Option<String> {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline && !interrupted() {
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => return Some(line),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    None
}

/// Address and port of `tcp://127.0.0.1:4420`.
fn address_of(uri: &str) -> Option<(String, u16)> {
    let (address, port) = uri.strip_prefix("tcp://")?.rsplit_once(':')?;
    Some((address.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_split() {
        assert_eq!(address_of("tcp://127.0.0.1:4420"), Some(("127.0.0.1".to_owned(), 4420)));
        assert_eq!(address_of("tcp://[::1]:4420"), Some(("[::1]".to_owned(), 4420)));
        assert_eq!(address_of("rdma://127.0.0.1:4420"), None);
        assert_eq!(address_of("tcp://127.0.0.1:x"), None);
    }
}
