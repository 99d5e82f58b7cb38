//! Targets whose certificates were trusted before: `known_targets` in the user's configuration
//! directory, a line `HOST:PORT FINGERPRINT` for each.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ebof_state::{Existing, FileMode, WriteError, store_file};

use super::server::Fingerprint;
use crate::failure::Failure;
use crate::file::Kind;

/// The largest file: ten thousand targets.
const BYTES_MAX: u64 = 2 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct KnownTargets {
    path: PathBuf,
}

/// What is known of a target.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Unknown,
    /// Its fingerprint, and the line that says so.
    Known(Fingerprint, usize),
}

impl KnownTargets {
    /// In `$XDG_CONFIG_HOME` or `~/.config`.
    pub(super) fn standard() -> Result<Self, Failure> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
        let base = base.ok_or_else(|| {
            let advice = "set HOME, or say --fingerprint SHA256 or --ca FILE";
            Failure::new("io", "there is no directory for the certificates that are known", advice)
        })?;
        Ok(Self { path: base.join("ebof/known_targets") })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn verdict(&self, place: &str) -> Result<Verdict, Failure> {
        for (at, line) in self.text()?.lines().enumerate() {
            let Some((known, fingerprint)) = line.split_once(' ').filter(|_| !line.starts_with('#')) else { continue };
            if known == place {
                let fingerprint = Fingerprint::parse(fingerprint.trim()).ok_or_else(|| {
                    let message = format!("{}: line {} has no fingerprint", self.path.display(), at + 1);
                    Failure::new("io", message, "correct the line, or take it out and trust the certificate again")
                })?;
                return Ok(Verdict::Known(fingerprint, at + 1));
            }
        }
        Ok(Verdict::Unknown)
    }

    /// Remembers a target. The file is replaced as a whole.
    pub(super) fn add(&self, place: &str, fingerprint: Fingerprint) -> Result<(), Failure> {
        let mut text = self.text()?;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text += &format!("{place} {fingerprint}\n");
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(WriteError::NotStored);
        // Only its owner may read it.
        let mode = FileMode::AtMost(0o600);
        let stored = made.and_then(|()| store_file(&self.path, mode, Existing::Replaced, text.as_bytes()));
        stored.map_err(|error| {
            let path = self.path.display();
            let message = match error {
                WriteError::NotStored(error) => format!("{path}: {error}"),
                WriteError::Unknown(error) => format!("{path}: it is not known whether it is stored: {error}"),
            };
            Failure::new("io", message, "make room or permissions for it, or say --fingerprint SHA256")
        })
    }

    fn text(&self) -> Result<String, Failure> {
        match std::fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
            _ => {}
        }
        let text = crate::file::read_text(&self.path, "the targets that are known", BYTES_MAX, Kind::Regular);
        text.map_err(|error| {
            Failure::new("io", format!("{error:#}"), "mend it, or move it away: the targets are trusted anew then")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_remembered_by_host_and_port() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownTargets { path: directory.path().join("a/b/known_targets") };
        let (one, other) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        assert_eq!(known.verdict("box:1").unwrap(), Verdict::Unknown);
        known.add("box:1", one).unwrap();
        known.add("box:2", other).unwrap();
        assert_eq!(known.verdict("box:1").unwrap(), Verdict::Known(one, 1));
        assert_eq!(known.verdict("box:2").unwrap(), Verdict::Known(other, 2));
        assert_eq!(known.verdict("box").unwrap(), Verdict::Unknown);
        std::fs::write(known.path(), "# mine\n\nbox:1 hello").unwrap();
        assert!(known.verdict("box:1").unwrap_err().to_string().contains("line 3"));
        known.add("box:3", one).unwrap();
        assert_eq!(known.verdict("box:3").unwrap(), Verdict::Known(one, 4));
    }
}
