//! A namespace as a local block device for the time of a measurement: connected and disconnected by
//! ebof's verbs, with records of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use super::resources::Resources;
use super::targets::NQN;

/// A connected device. Dropping it disconnects.
pub(super) struct Device {
    ebof: PathBuf,
    records: TempDir,
    path: PathBuf,
}

impl Device {
    /// Connects the only namespace of the target on `port`.
    ///
    /// # Errors
    /// The verb fails, or prints no device.
    pub(super) fn connect(port: u16, resources: &Resources) -> Result<Self> {
        let records = TempDir::new().context("a directory for records")?;
        let mut device = Self { ebof: resources.ebof.clone(), records, path: PathBuf::new() };
        let port = port.to_string();
        let printed = device.run(&["connect", "-t", "tcp", "-a", "127.0.0.1", "-s", &port, "-n", NQN])?;
        let path = printed.split_whitespace().find(|word| word.starts_with("/dev/"));
        device.path = path.with_context(|| format!("no device in {printed:?}"))?.into();
        Ok(device)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.ebof);
        let output = command.args(words).env("EBOF_RUNTIME_DIR", self.records.path()).output();
        let output = output.with_context(|| format!("ebof {}", words[0]))?;
        if !output.status.success() {
            bail!("ebof {}: {}", words[0], String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _nothing_connected = self.run(&["disconnect-all"]);
    }
}

/// What is missing for block devices; `None` if nothing is.
pub(super) fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("block devices need root");
    }
    let any = ["/dev/fuse", "/dev/ublk-control"].iter().any(|path| Path::new(path).exists());
    (!any).then_some("block devices need FUSE or ublk")
}
