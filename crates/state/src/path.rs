//! Where the state directory is if nobody says it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::runtime::runtime_directory;

/// Where the state directory is by default: what systemd says (`$STATE_DIRECTORY`), also where the
/// unit has its sockets in a runtime directory, which does not outlive it; or `state` in the
/// runtime directory that the user has named ([`crate::runtime_directory`]), where everything of
/// ebof is elsewhere; otherwise `/var/lib/ebof` for root, and `$XDG_STATE_HOME/ebof` or
/// `~/.local/state/ebof` for others. `None` if the environment does not tell.
#[must_use]
pub fn standard_path() -> Option<PathBuf> {
    standard(rustix::process::geteuid().is_root(), runtime_directory(), |name| std::env::var_os(name))
}

fn standard(is_root: bool, elsewhere: Option<PathBuf>, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // Relative paths in these variables are to be ignored (XDG Base Directory Specification), and
    // mean nothing to a service.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd.exec(5): several directories are separated by colons. The first is ours.
    let of_systemd = variable("STATE_DIRECTORY").and_then(|paths| {
        let first = paths.as_bytes().split(|&byte| byte == b':').next()?;
        Some(Path::new(std::ffi::OsStr::from_bytes(first)).to_owned()).filter(|path| path.is_absolute())
    });
    let elsewhere = elsewhere.and_then(|path| Some(std::path::absolute(path).ok()?.join("state")));
    match of_systemd.or(elsewhere) {
        Some(path) => Some(path),
        None if is_root => Some("/var/lib/ebof".into()),
        None => absolute("XDG_STATE_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".local/state")))
            .map(|base| base.join("ebof")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_path_is_systemds_or_the_users() {
        let at = |is_root, set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
            standard(is_root, crate::runtime::named(value), value).map(|path| path.display().to_string())
        };
        let some = |path: &str| Some(path.to_owned());
        assert_eq!(at(true, &[("HOME", "/root")]), some("/var/lib/ebof"));
        assert_eq!(at(true, &[("STATE_DIRECTORY", "/var/lib/box:/var/lib/other")]), some("/var/lib/box"));
        assert_eq!(at(false, &[("STATE_DIRECTORY", "/var/lib/box"), ("HOME", "/users/a")]), some("/var/lib/box"));
        assert_eq!(at(false, &[("HOME", "/users/a")]), some("/users/a/.local/state/ebof"));
        assert_eq!(at(false, &[("HOME", "/users/a"), ("XDG_STATE_HOME", "/s")]), some("/s/ebof"));
        assert_eq!(at(false, &[("HOME", "/users/a"), ("XDG_STATE_HOME", "s")]), some("/users/a/.local/state/ebof"));
        assert_eq!(at(false, &[("STATE_DIRECTORY", "box"), ("HOME", "")]), None);
        assert_eq!(at(true, &[("EBOF_STATE_DIR", "/tmp/x"), ("STATE_DIRECTORY", "/box")]), some("/box"));
        assert_eq!(at(true, &[("EBOF_STATE_DIR", "/tmp/x")]), some("/tmp/x/state"));
        assert_eq!(at(true, &[("EBOF_STATE_DIR", "")]), some("/var/lib/ebof"));
    }
}
