//! Runs the demonstration's commands and prints them. Tracks what has to be cleaned up: a
//! directory, a target, a connection, a mount. Everything is undone in reverse order, also after an
//! error, a panic or Ctrl-C.

use std::fs::File;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use ebof_cli::Server;
use ebof_cli::output::{print, say};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tempfile::TempDir;

/// Directories of system programs, which are not in every user's PATH.
const ADMIN_PATHS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// A running demonstration.
pub(super) struct Stage {
    /// The result is JSON: messages go to standard error.
    json: bool,
    step: u32,
    interrupted: Arc<AtomicBool>,
    /// The program `ebof`.
    program: PathBuf,
    /// PATH of the commands: begins with a directory that has that program.
    path: std::ffi::OsString,
    directory: Option<TempDir>,
    server: Option<Server>,
    /// The subsystem that is, or may be, connected.
    connected: Option<String>,
    mounted: bool,
}

impl Stage {
    /// Creates a temporary directory in `parent`.
    pub(super) fn new(program: &Path, parent: &Path, json: bool) -> anyhow::Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("catching signals")?;
        }
        let making = || format!("making a temporary directory in {}", parent.display());
        let directory = tempfile::Builder::new().prefix("ebof-demo.").tempdir_in(parent).with_context(making)?;
        let bin = directory.path().join("bin");
        std::fs::create_dir(&bin)?;
        std::os::unix::fs::symlink(program, bin.join("ebof"))?;
        let users = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(bin).chain(std::env::split_paths(&users)).chain(ADMIN_PATHS.map(PathBuf::from));
        let path = std::env::join_paths(paths).context("the search path")?;
        let stage = Self {
            json,
            step: 0,
            interrupted,
            program: program.to_owned(),
            path,
            directory: Some(directory),
            server: None,
            connected: None,
            mounted: false,
        };
        stage.tell(&format!("$ cd {}", stage.path("").display()));
        Ok(stage)
    }

    /// The program `ebof`.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// A path in the directory of the demonstration.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.as_ref().map(TempDir::path).unwrap_or(Path::new("/nonexistent")).join(name)
    }

    /// Prints a heading.
    pub(super) fn step(&mut self, what: &str) {
        self.step += 1;
        self.tell(&format!("\n{}. {what}", self.step));
    }

    /// Prints a message.
    pub(super) fn tell(&self, text: &str) {
        if self.json {
            say(text);
        } else {
            // A closed output must not prevent the clean-up.
            let _unheard = print(format!("{text}\n").as_bytes());
        }
    }

    /// Whether the user has interrupted it.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// # Errors
    /// The user has interrupted it.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.is_interrupted() { bail!("interrupted") } else { Ok(()) }
    }

    /// Whether there is such a program.
    pub(super) fn has(&self, program: &str) -> bool {
        std::env::split_paths(&self.path).any(|directory| directory.join(program).is_file())
    }

    /// Runs a line in a shell, in the directory, and prints the line and its output; returns the
    /// output.
    ///
    /// # Errors
    /// It failed (with its output), or the user has interrupted the demonstration.
    pub(super) fn shell(&self, line: &str) -> anyhow::Result<String> {
        self.check()?;
        self.tell(&format!("$ {line}"));
        let output = self.quietly(line)?;
        for printed in output.lines() {
            self.tell(&format!("  {printed}"));
        }
        self.check()?;
        Ok(output)
    }

    /// Runs a line; returns its output.
    pub(super) fn quietly(&self, line: &str) -> anyhow::Result<String> {
        let output = self.run(line)?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(printed);
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = if said.trim().is_empty() { printed } else { said };
        bail!("`{line}` failed ({}): {}", output.status, said.trim())
    }

    fn run(&self, line: &str) -> anyhow::Result<Output> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PATH", &self.path).env("LC_ALL", "C").stdin(Stdio::null());
        // A process group of its own, which the terminal's Ctrl-C does not reach: this program
        // handles it, and cleans up.
        command.current_dir(self.path("")).process_group(0);
        command.output().with_context(|| format!("running `{line}`"))
    }

    /// Serves `drives` as `nqn` on `port` of 127.0.0.1, or on another one if that is in use;
    /// returns address and port.
    pub(super) fn serve(&mut self, port: u16, nqn: &str, drives: &[&str]) -> anyhow::Result<(String, u16)> {
        let taken = port != 0
            && TcpListener::bind(("127.0.0.1", port)).is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
        if taken {
            self.tell(&format!("port {port} is taken: another one is used"));
        }
        let wanted = if taken { 0 } else { port };
        match self.start(wanted, nqn, drives) {
            Err(error) if wanted != 0 && !self.is_interrupted() => {
                self.tell(&format!("port {wanted} cannot be used: {error:#}; another one is used"));
                self.start(0, nqn, drives)
            }
            started => started,
        }
    }

    fn start(&mut self, port: u16, nqn: &str, drives: &[&str]) -> anyhow::Result<(String, u16)> {
        let listen = format!("tcp://127.0.0.1:{port}");
        self.tell(&format!("$ ebof serve --listen {listen} --nqn {nqn} {} &", drives.join(" ")));
        let log = File::create(self.path("serve.log")).context("serve.log")?;
        let arguments = [&["--listen", &listen, "--control", "none", "--nqn", nqn], drives].concat();
        let server = Server::start(&self.program, &arguments, &self.path(""), log.into(), || self.is_interrupted())?;
        let (address, port) = server.place();
        let place = (address.to_owned(), port);
        self.tell(&format!("  listening on tcp://{address}:{port}"));
        self.server = Some(server);
        Ok(place)
    }

    /// Serves a configuration of the stage's directory.
    pub(super) fn serve_configuration(&mut self, file: &str, arguments: &[&str]) -> anyhow::Result<()> {
        self.tell(&format!("$ ebof serve --config {file} {} &", arguments.join(" ")));
        let log = File::create(self.path("serve.log")).context("serve.log")?;
        let arguments = [&["--config", file], arguments].concat();
        self.server =
            Some(Server::start(&self.program, &arguments, &self.path(""), log.into(), || self.is_interrupted())?);
        Ok(())
    }

    /// Connects with the command `line`. Returns its JSON output, or the reason why this machine
    /// cannot create a block device.
    ///
    /// # Errors
    /// Any other failure.
    pub(super) fn connect(&mut self, line: &str, nqn: &str) -> anyhow::Result<Result<Value, String>> {
        self.check()?;
        self.tell(&format!("$ {line}"));
        // Set before the command, which may be interrupted half-way.
        self.connected = Some(nqn.to_owned());
        let output = self.run(&format!("{line} -o json"))?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let document: Value = serde_json::from_str(&printed)
            .with_context(|| format!("`{line}`: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
        let error = &document["error"];
        let message = error["message"].as_str().unwrap_or_default().to_owned();
        match error["kind"].as_str() {
            None if output.status.success() => {
                for namespace in document["namespaces"].as_array().into_iter().flatten() {
                    let name = namespace["name"].as_str();
                    let path = namespace["path"].as_str();
                    self.tell(&format!("  {}: {}", name.unwrap_or_default(), path.unwrap_or("no block device")));
                }
                self.check()?;
                Ok(Ok(document))
            }
            Some("no-block-device" | "holder") => Ok(Err(message)),
            _ => bail!("`{line}` failed: {message}"),
        }
    }

    /// Disconnects what is connected.
    pub(super) fn disconnect(&mut self) -> anyhow::Result<()> {
        let Some(nqn) = self.connected.take() else { return Ok(()) };
        let line = format!("ebof disconnect -n {nqn}");
        self.tell(&format!("$ {line}"));
        match self.quietly(&line) {
            Ok(printed) => {
                self.tell(&format!("  {}", printed.trim()));
                Ok(())
            }
            // Better lose the demonstration's data than leave a device behind.
            Err(error) => self.quietly(&format!("{line} --force")).map(drop).map_err(|_| error),
        }
    }

    /// Mounts a device on `mnt`.
    pub(super) fn mount(&mut self, device: &str) -> anyhow::Result<()> {
        self.check()?;
        self.mounted = true;
        self.shell(&format!("mkdir mnt && mount {device} mnt")).map(drop)
    }

    /// Unmounts `mnt`.
    pub(super) fn unmount(&mut self) -> anyhow::Result<()> {
        if !std::mem::take(&mut self.mounted) {
            return Ok(());
        }
        self.tell("$ umount mnt");
        // Another program may access a new mount for a moment; a lazy unmount completes when it has
        // finished.
        self.quietly("umount mnt || umount -l mnt").map(drop)
    }

    /// Cleans up everything; returns the first error after all steps were tried.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        let unmounted = self.unmount();
        let disconnected = self.disconnect();
        if let Some(server) = self.server.take() {
            self.tell(&format!("$ kill {}", server.id()));
            drop(server);
        }
        if let Some(directory) = self.directory.take() {
            self.tell(&format!("$ rm -r {}", directory.path().display()));
            // Never remove files through a mount that is still there.
            if unmounted.is_ok() {
                directory.close().context("removing the temporary directory")?;
            } else {
                self.tell(&format!("  {} stays: it is still mounted", directory.keep().display()));
            }
        }
        unmounted.and(disconnected)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Only after a panic is anything left to clean up.
        if let Err(error) = self.clear() {
            self.tell(&format!("{error:#}"));
        }
    }
}

/// Whether we are root.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_reported_and_everything_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let mut stage = Stage::new(&std::env::current_exe().unwrap(), parent.path(), true).unwrap();
        assert_eq!(stage.quietly("echo hello").unwrap(), "hello\n");
        let error = stage.quietly("echo oh no >&2; false").unwrap_err().to_string();
        assert!(error.contains("oh no"), "{error}");
        stage.clear().unwrap();
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
