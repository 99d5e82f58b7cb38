//! Where the runtime directory is if the user says it: by `--runtime-dir`, or by a variable of the
//! environment. What is in it ends with the machine's boot: records of attached controllers,
//! sockets. The state directory, which outlives it, is in `path`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The variable that names the runtime directory.
const VARIABLE: &str = "EBOF_RUNTIME_DIR";

/// What the variable was called before there was a state directory. It counts where the other one
/// is not set.
const OLD_VARIABLE: &str = "EBOF_STATE_DIR";

/// What this process was told by an option.
static OPTION: OnceLock<PathBuf> = OnceLock::new();

/// Sets the runtime directory of this process, which counts more than the environment. The first
/// one that is set stays.
pub fn set_runtime_directory(path: PathBuf) {
    let _first = OPTION.set(std::path::absolute(&path).unwrap_or(path));
}

/// The runtime directory that the user has named, if one was.
#[must_use]
pub fn runtime_directory() -> Option<PathBuf> {
    OPTION.get().cloned().or_else(|| named(|name| std::env::var_os(name)))
}

/// What to tell a user who names it in the old way.
#[must_use]
pub fn runtime_directory_warning() -> Option<String> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    (OPTION.get().is_none() && !is_set(VARIABLE) && is_set(OLD_VARIABLE)).then(|| {
        format!("warning: {OLD_VARIABLE} is an old name of {VARIABLE}, which names the runtime directory: use that")
    })
}

/// Has a process that is started go by the same runtime directory.
pub fn hand_on_runtime_directory(command: &mut Command) -> &mut Command {
    match runtime_directory() {
        Some(path) => command.env(VARIABLE, std::path::absolute(&path).unwrap_or(path)),
        None => command,
    }
}

/// What the environment says.
pub(crate) fn named(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    set(VARIABLE).or_else(|| set(OLD_VARIABLE)).map(|path| Path::new(&path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_name_counts_where_the_new_one_is_not_set() {
        let at = |set: &[(&str, &str)]| {
            named(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into()))
        };
        let some = |path: &str| Some(PathBuf::from(path));
        assert_eq!(at(&[]), None);
        assert_eq!(at(&[("EBOF_RUNTIME_DIR", "/a")]), some("/a"));
        assert_eq!(at(&[("EBOF_STATE_DIR", "/b")]), some("/b"));
        assert_eq!(at(&[("EBOF_RUNTIME_DIR", "/a"), ("EBOF_STATE_DIR", "/b")]), some("/a"));
        assert_eq!(at(&[("EBOF_RUNTIME_DIR", ""), ("EBOF_STATE_DIR", "/b")]), some("/b"));
        assert_eq!(at(&[("EBOF_RUNTIME_DIR", ""), ("EBOF_STATE_DIR", "")]), None);
    }
}
