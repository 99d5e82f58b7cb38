//! The paths that a process may open, by Landlock.
//!
//! A rule is for a directory with all below it, or a file, as they are when the process is
//! confined: what takes the place of a file has to be in a directory that has a rule. File systems
//! that are mounted below such a directory later are in it; one that is mounted over it is not.

use std::io;
use std::path::{Component, Path, PathBuf};

use ebof_manage::api::{PathAccess, PathRight};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};

/// What is known of Landlock here. Later versions restrict more, which is asked for when it was
/// tried.
const VERSION: ABI = ABI::V7;

/// Paths, and what may be done there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths(Vec<PathRight>);

impl Paths {
    /// Allows reading what is there.
    pub fn read(&mut self, path: impl Into<PathBuf>) {
        self.add(path.into(), PathAccess::Read);
    }

    /// Allows reading and writing, and making and removing files.
    pub fn write(&mut self, path: impl Into<PathBuf>) {
        self.add(path.into(), PathAccess::Write);
    }

    fn add(&mut self, path: PathBuf, access: PathAccess) {
        // Where it leads to now; what is not there has no rule.
        let Ok(path) = std::fs::canonicalize(path) else { return };
        match self.0.iter_mut().find(|right| Path::new(&right.path) == path) {
            Some(right) => right.access = right.access.max(access),
            None => self.0.push(PathRight { path: path.display().to_string(), access }),
        }
    }

    /// What is allowed.
    #[must_use]
    pub fn rights(&self) -> &[PathRight] {
        &self.0
    }

    /// Whether a path may be opened in that way, wherever it leads to. Of one that is not there,
    /// the directory counts that it would be made in.
    #[must_use]
    pub fn allow(&self, path: &Path, access: PathAccess) -> bool {
        let path = resolved(path);
        self.0.iter().any(|right| right.access >= access && path.starts_with(&right.path))
    }

    /// Confines the calling thread, and those that it makes, to these paths. Whether the kernel
    /// knows all that is asked of it.
    ///
    /// # Errors
    /// Of Landlock's system calls.
    pub(crate) fn confine(&self) -> Result<RulesetStatus, RulesetError> {
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
        let ruleset = ruleset.handle_access(AccessFs::from_all(VERSION))?.scope(Scope::Signal)?;
        let mut ruleset = ruleset.create()?;
        for right in &self.0 {
            // Removed a moment ago.
            let Ok(file) = PathFd::new(&right.path) else { continue };
            let access = landlock_rights(right.access, Path::new(&right.path).is_dir());
            ruleset = ruleset.add_rule(PathBeneath::new(file, access))?;
        }
        Ok(ruleset.restrict_self()?.ruleset)
    }
}

/// No program is started, and no device made.
fn landlock_rights(access: PathAccess, is_directory: bool) -> BitFlags<AccessFs> {
    // A device is asked for its size and blocks.
    let read = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    let write = AccessFs::from_write(VERSION) & !(AccessFs::MakeBlock | AccessFs::MakeChar | AccessFs::MakeFifo);
    let access = match access {
        PathAccess::Read => read,
        PathAccess::Write => read | write,
    };
    if is_directory { access } else { access & AccessFs::from_file(VERSION) }
}

/// The path without links and dots, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut ancestors = path.ancestors();
    let found = ancestors.find_map(|part| Some((part, real(part).ok()?)));
    let Some((part, mut real)) = found else { return path };
    for component in path.strip_prefix(part).unwrap_or(Path::new("")).components() {
        match component {
            Component::ParentDir => {
                real.pop();
            }
            Component::Normal(name) => real.push(name),
            _ => {}
        }
    }
    real
}

fn real(path: &Path) -> io::Result<PathBuf> {
    std::fs::canonicalize(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_allowed_by_where_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::os::unix::fs::symlink(at("b"), at("a/b")).unwrap();
        let mut paths = Paths::default();
        paths.read(at("a"));
        let may = |path: &str, access| paths.allow(&at(path), access);
        assert!(may("a", PathAccess::Read) && may("a/new/file", PathAccess::Read));
        assert!(!may("a", PathAccess::Write) && !may("ab", PathAccess::Read) && !may("b", PathAccess::Read));
        assert!(!may("a/b/file", PathAccess::Read), "a link leads elsewhere");
        assert!(!may("a/new/../../b/file", PathAccess::Read));
        paths.write(at("a"));
        assert_eq!(paths.rights().len(), 1);
        assert!(paths.allow(&at("a/x"), PathAccess::Write));
    }
}
