//! The program, without anything of this machine: a state directory of the test's own.

use std::path::Path;
use std::process::{Command, Stdio};

/// `ebof`, in this directory, which is not to be the state directory of two targets at a time:
/// what it keeps is in `run`, and in `run/state` if it serves.
pub(crate) fn ebof(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebof"));
    alone(&mut command, directory);
    command.stdin(Stdio::null());
    command
}

/// The same for a command that runs the program.
pub(crate) fn alone(command: &mut Command, directory: &Path) {
    command.current_dir(directory).env("EBOF_RUNTIME_DIR", directory.join("run"));
    command.env_remove("EBOF_LOG").env_remove("STATE_DIRECTORY");
}
