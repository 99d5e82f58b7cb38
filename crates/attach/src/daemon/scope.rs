//! An attach daemon that systemd leaves alone: file systems on its devices need it longer than
//! whoever has connected them runs.
//!
//! Where systemd runs the machine, the superuser's daemons get a scope of their own: neither the
//! end of a session nor that of a unit ends them, and a shutdown unmounts file systems first. At
//! the very end of a shutdown systemd spares processes of the superuser whose first argument begins
//! with `@`, so that what is still mounted then can be written.
//!
//! In its scope a daemon opens those devices only that it makes its own of, whatever capabilities
//! it has: the machine's other disks are not for whoever takes it over.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::state::StateDir;

const SYSTEMD_RUN: &str = "/usr/bin/systemd-run";

/// What a daemon may open, beside random numbers and the like: FUSE and loop devices, adapters for
/// RDMA.
const DEVICES: &[&str] =
    &["/dev/fuse", "/dev/loop-control", "block-loop", "char-infiniband_verbs", "/dev/infiniband/rdma_cm"];

/// What makes ublk devices.
const UBLK_CONTROL: &str = "/dev/ublk-control";

/// The same where there are ublk devices. The kernel gives them numbers of one range with disks on
/// NVMe and with partitions, which are open for a daemon, too, then.
const UBLK_DEVICES: &[&str] = &[UBLK_CONTROL, "char-ublk-char", "block-blkext"];

/// The name by which a daemon is spared.
const SPARED: &str = "@ebof";

/// The command that starts `program` as the daemon of the instance at `directory`: in a scope of
/// its own, where it can have one.
pub(crate) fn command(program: &Path, directory: &Path) -> Command {
    let name = directory.file_name().unwrap_or_default();
    if !has_systemd(directory) || !Path::new(SYSTEMD_RUN).exists() {
        return Command::new(program);
    }
    let mut unit = OsStr::new("--unit=ebof-attach-").to_owned();
    unit.push(name);
    let mut command = Command::new(SYSTEMD_RUN);
    command.args(["--scope", "--quiet", "--collect"]).arg(unit);
    command.args(devices(Path::new(UBLK_CONTROL).exists()));
    // Without these a shutdown would end it along with everything else, before its devices are
    // unmounted.
    command.args(["--property=DefaultDependencies=no", "--description=Attach daemon of ebof", "--"]).arg(program);
    command
}

/// The properties of a scope that leave its processes these devices only.
fn devices(has_ublk: bool) -> impl Iterator<Item = String> {
    let ublk = if has_ublk { UBLK_DEVICES } else { &[] };
    let allowed = DEVICES.iter().chain(ublk).map(|device| format!("--property=DeviceAllow={device} rw"));
    std::iter::once("--property=DevicePolicy=closed".to_owned()).chain(allowed)
}

/// Makes this process, the daemon of the instance at `directory`, one that is spared at the end of
/// a shutdown, by starting it once more with that `argument`. Goes on without if that fails.
pub(crate) fn be_spared(argument: &str, directory: &Path) {
    let is_spared = std::env::args_os().next().is_some_and(|name| name.as_bytes().starts_with(b"@"));
    if is_spared || !has_systemd(directory) {
        return;
    }
    // The program may have been replaced meanwhile.
    if let Ok(program) = std::env::current_exe() {
        let error = Command::new(program).arg0(SPARED).arg(argument).arg(directory).exec();
        tracing::debug!(%error, "the daemon may be ended at the end of a shutdown");
    }
}

/// Whether systemd runs this machine, and the instance is the superuser's.
fn has_systemd(directory: &Path) -> bool {
    let is_root = rustix::process::geteuid().is_root() && directory.parent() == Some(StateDir::of_root().path());
    is_root && Path::new("/run/systemd/private").exists()
}
