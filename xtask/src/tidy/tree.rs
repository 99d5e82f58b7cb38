//! The text of all files that are, or would be, committed. Owns their selection; knows no rule.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::source::Source;

/// Files by their path from the root, with slashes.
#[derive(Default)]
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    rust: BTreeMap<String, Source>,
    /// Paths of binary files and of links.
    others: Vec<String>,
}

impl Tree {
    /// Loads the files that git tracks, and new ones that are not ignored, so that they are checked
    /// before they are committed.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("running git ls-files")?;
        if !listing.status.success() {
            bail!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr).trim());
        }
        let mut tree = Self::default();
        for path in String::from_utf8_lossy(&listing.stdout).split_terminator('\0') {
            let file = root.join(path);
            // What a link leads to is listed by its own path.
            if file.is_symlink() {
                tree.others.push(path.to_owned());
                continue;
            }
            // Files whose deletion is not committed are still listed.
            let Ok(bytes) = std::fs::read(file) else { continue };
            match String::from_utf8(bytes) {
                Ok(text) if !path.starts_with("fuzz/corpus/") => tree.add(path, &text),
                _ => tree.others.push(path.to_owned()),
            }
        }
        Ok(tree)
    }

    pub(crate) fn add(&mut self, path: &str, text: &str) {
        if is_rust(path) {
            self.rust.insert(path.to_owned(), Source::new(text));
        }
        self.texts.insert(path.to_owned(), text.to_owned());
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len() + self.others.len()
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.rust.iter().map(|(path, source)| (path.as_str(), source))
    }

    pub(crate) fn rust_file(&self, path: &str) -> Option<&Source> {
        self.rust.get(path)
    }

    /// Whether there is a file or a directory of this name.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let is_it = |file: &str| file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        path.is_empty() || self.texts.keys().chain(&self.others).any(|file| is_it(file))
    }
}

fn is_rust(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extension == "rs")
}

/// A tree of a few files, for tests.
#[cfg(test)]
pub(crate) fn with_files(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::default();
    for (path, text) in files {
        tree.add(path, text);
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_implies_its_directories() {
        let tree = with_files(&[("crates/nvme/src/lib.rs", "//! x\n")]);
        for path in ["crates", "crates/nvme", "crates/nvme/", "crates/nvme/src/lib.rs"] {
            assert!(tree.exists(path), "{path}");
        }
        for path in ["crates/nv", "crates/nvme/src/lib", "docs"] {
            assert!(!tree.exists(path), "{path}");
        }
    }
}
