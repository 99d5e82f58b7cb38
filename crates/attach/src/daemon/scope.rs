//! An attach daemon that systemd leaves alone: file systems on its devices need it longer than
//! whoever has connected them runs.
//!
//! Where systemd runs the machine, the superuser's daemons get a scope of their own: neither the
//! end of a session nor that of a unit ends them, and a shutdown unmounts file systems first. At
//! the very end of a shutdown systemd spares processes of the superuser whose first argument begins
//! with `@`, so that what is still mounted then can be written.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::state::StateDir;

const SYSTEMD_RUN: &str = "/usr/bin/systemd-run";

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
    // Without these a shutdown would end it along with everything else, before its devices are
    // unmounted.
    command.args(["--property=DefaultDependencies=no", "--description=Attach daemon of ebof", "--"]).arg(program);
    command
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
