//! The controller itself: `show-regs`, `reset`, `reauthenticate`, `ns-rescan`.

use std::process::ExitCode;

use anyhow::Context as _;
use ebof_attach::Authenticated;

use super::Outcome;
use crate::command;
use crate::device::{Device, DeviceArgs, Needs, UriArgs, namespace_of};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::done::Done;
use crate::output::lists::ns_id_view;
use crate::output::registers::{PROPERTIES, RegistersView};
use crate::output::show;

/// The controller's properties.
pub(crate) fn show_regs((): &(), device: &mut dyn Device) -> anyhow::Result<RegistersView> {
    let mut values = Vec::new();
    for (offset, symbol, bytes, _) in PROPERTIES {
        if let Some(value) = command::property(device, offset, bytes)? {
            values.push((symbol, value));
        }
    }
    Ok(RegistersView { values })
}

/// The namespace that a device names.
pub(crate) fn get_ns_id((): &(), device: &mut dyn Device) -> anyhow::Result<Done> {
    let nsid = namespace_of(device, None)?;
    Ok(ns_id_view(device.name(), nsid))
}

/// A verb about a controller without options.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Plain {
    #[command(flatten)]
    device: DeviceArgs,
}

impl Plain {
    /// Closes the connections and connects again.
    pub(crate) fn reset(self, global: &Global) -> Outcome {
        self.device.open(Needs::Admin, global)?.reset()?;
        show(global, &Done::new("reset", self.device.name(), "Success"))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Authenticates again, with the secret as it is now.
    pub(crate) fn reauthenticate(self, global: &Global) -> Outcome {
        let mut device = self.device.open(Needs::Admin, global)?;
        let Authenticated { hash, group, mutual, tls_key_replaced } = device.reauthenticate()?;
        let also = if mutual { ", and so is the target" } else { "" };
        let replaced = if tls_key_replaced { "; the key for TLS is replaced" } else { "" };
        let line = format!("this host is authenticated by {hash} and {group}{also}{replaced}");
        let done = Done::new("reauthenticate", device.name(), &line)
            .with("hash", hash)
            .with("group", group)
            .with("mutual", mutual)
            .with("tls_key_replaced", tls_key_replaced);
        show(global, &done)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Rescans namespaces, or a target's files.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NsRescan {
    /// A connected device (nvme0, nvme0n1) whose block devices are updated
    #[arg(value_name = "DEVICE", required_unless_present = "serve")]
    device: Option<String>,
    /// On the target's machine: process id of the `ebof serve` that is to check the sizes of its
    /// files and block devices again
    #[arg(long, value_name = "PID", conflicts_with = "device")]
    serve: Option<u32>,
    #[command(flatten)]
    uri: UriArgs,
}

impl NsRescan {
    /// Updates block devices, or makes a target check its files.
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let done = match self.serve {
            Some(process) => {
                ask_target(process)?;
                let line = format!("process {process} looks again; its log says what has grown");
                Done::new("ns-rescan", &format!("process {process}"), &line)
            }
            None => {
                let device = DeviceArgs::new(self.device.unwrap_or_default(), self.uri);
                device.open(Needs::Admin, global)?.rescan()?;
                Done::new("ns-rescan", device.name(), "Success")
            }
        };
        show(global, &done)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Sends SIGUSR1 to a process that is known to handle it; it would end others.
fn ask_target(process: u32) -> anyhow::Result<()> {
    let advice = "give the process of `ebof serve` (`pidof ebof`, `systemctl show -p MainPID ebof`)";
    let pid = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.with_context(|| format!("{process} cannot be a process"))?;
    // Refers to the same process for ever: what is looked at is what is told.
    let opened = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
    let opened = opened.map_err(|error| Failure::usage(format!("there is no process {process}: {error}"), advice))?;
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .map_err(|error| Failure::usage(format!("there is no process {process}: {error}"), advice))?;
    if !takes_signal(&status) {
        return Err(Failure::usage(format!("process {process} is no target that looks again"), advice).into());
    }
    rustix::process::pidfd_send_signal(&opened, rustix::process::Signal::USR1)
        .with_context(|| format!("process {process} cannot be told; the user that it runs as can, and root"))
}

/// Whether `/proc/PID/status` is that of an ebof that catches SIGUSR1.
fn takes_signal(status: &str) -> bool {
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let caught = value("SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    let bit = 1 << (signal_hook::consts::SIGUSR1 - 1);
    value("Name:").is_some_and(|name| name.starts_with("ebof")) && caught & bit != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_target_that_catches_the_signal_gets_it() {
        assert!(takes_signal("Name:\tebof\nSigCgt:\t0000000000004a03\n"));
        assert!(!takes_signal("Name:\tebof\nSigCgt:\t0000000000004803\n"), "an earlier version, a daemon");
        assert!(!takes_signal("Name:\tdd\nSigCgt:\t0000000000004a03\n"));
        assert!(!takes_signal(""));
    }
}
