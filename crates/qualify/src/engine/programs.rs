//! Finds the programs that generate loads, their versions, and what they can do.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::EngineError;

/// The file name of ebof's engine for fio.
pub(super) const LIBRARY: &str = "libebof_fio.so";

/// A variable of the environment with the path of ebof's engine for fio.
pub const LIBRARY_VARIABLE: &str = "EBOF_FIO_ENGINE";

/// The stock fio.
///
/// # Errors
/// It is not installed.
pub fn find_fio() -> Result<PathBuf, EngineError> {
    find("fio").ok_or(EngineError::Missing { what: "fio", todo: "apt install fio" })
}

/// `iscsi-perf` of libiscsi.
///
/// # Errors
/// It is not installed.
pub fn find_iscsi_perf() -> Result<PathBuf, EngineError> {
    find("iscsi-perf").ok_or(EngineError::Missing { what: "iscsi-perf", todo: "apt install libiscsi-bin" })
}

/// A program in `PATH`.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    find_in(&env::var_os("PATH")?, name)
}

fn find_in(path: &OsStr, name: &str) -> Option<PathBuf> {
    let is_program =
        |file: &PathBuf| file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    env::split_paths(path).map(|directory| directory.join(name)).find(is_program)
}

/// The version as the installed fio prints it: `fio-3.33`. `None` without fio.
#[must_use]
pub fn fio_version() -> Option<String> {
    printed(&find("fio")?, "--version").map(|text| text.trim().to_owned()).filter(|version| !version.is_empty())
}

/// Whether the installed fio has this I/O engine.
#[must_use]
pub fn has_engine(name: &str) -> bool {
    find("fio").is_some_and(|fio| fio_has_engine(&fio, name))
}

pub(super) fn fio_has_engine(fio: &Path, name: &str) -> bool {
    printed(fio, "--enghelp").is_some_and(|text| text.lines().any(|line| line.trim() == name))
}

/// What a program prints with one option; `None` if it fails.
fn printed(program: &Path, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `libebof_fio.so`: [`LIBRARY_VARIABLE`], or beside this program, or where the package puts it.
///
/// # Errors
/// It is in none of these places.
pub fn find_engine_library() -> Result<PathBuf, EngineError> {
    if let Some(named) = env::var_os(LIBRARY_VARIABLE) {
        let named = PathBuf::from(named);
        return if named.is_file() {
            Ok(named)
        } else {
            Err(EngineError::Missing {
                what: "engine library at the path of EBOF_FIO_ENGINE",
                todo: "correct the path, or unset the variable",
            })
        };
    }
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
    let packaged = PathBuf::from(format!("/usr/lib/{}-linux-gnu/ebof", env::consts::ARCH));
    let mut places = [beside, Some(packaged)].into_iter().flatten().map(|directory| directory.join(LIBRARY));
    places.find(|file| file.is_file()).ok_or(EngineError::Missing {
        what: "libebof_fio.so, through which fio reaches a namespace",
        todo: "install the package ebof, or run `make build`, or set EBOF_FIO_ENGINE to its path",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tool");
        let path = directory.path().as_os_str();
        assert_eq!(find_in(path, "tool"), None);
        std::fs::write(&file, "#!/bin/sh\necho '  libiscsi'\necho nbd\n").unwrap();
        assert_eq!(find_in(path, "tool"), None);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_in(path, "tool").as_ref(), Some(&file));
        assert!(fio_has_engine(&file, "libiscsi") && !fio_has_engine(&file, "iscsi"));
    }
}
