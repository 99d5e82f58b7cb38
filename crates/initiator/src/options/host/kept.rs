//! An identity that was made at random, in a small file: for machines that nothing names.
//!
//! A file that came with the image of another machine is not taken: it has the name of the machine
//! that it was made for, and containers have names of their own.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use ebof_clock::Clock;
use ebof_nvme::Uuid;
use ebof_state::{Existing, FileMode, WriteError, store_file};
use rustix::fs::FlockOperation;

/// `UUID MACHINE`.
const FILE: &str = "host-identity";

/// More than the file has.
const FILE_BYTES_MAX: u64 = 512;

/// Where an identity is kept: what outlives a start of the machine first.
pub(super) fn directories(root: &Path) -> Vec<PathBuf> {
    let is_root = rustix::process::geteuid().is_root();
    if root != Path::new("/") || is_root {
        let of_root = [root.join("var/lib/ebof"), root.join("run/ebof")];
        return elsewhere(ebof_state::runtime_directory(), |name| std::env::var_os(name))
            .filter(|_| root == Path::new("/"))
            .into_iter()
            .chain(of_root)
            .collect();
    }
    of_user(ebof_state::runtime_directory(), |name| std::env::var_os(name))
}

fn of_user(runtime: Option<PathBuf>, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    // Relative paths in these variables are to be ignored (XDG Base Directory Specification).
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let places = state.into_iter().chain(absolute("XDG_RUNTIME_DIR")).map(|base| base.join("ebof"));
    elsewhere(runtime, &variable).into_iter().chain(places).collect()
}

/// Where everything of ebof is elsewhere, or a service has a directory of its own.
fn elsewhere(runtime: Option<PathBuf>, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("STATE_DIRECTORY").or_else(|| runtime.filter(|path| path.is_absolute()))
}

/// What this machine is called, now.
pub(super) fn name_of(root: &Path) -> String {
    let text = fs::read_to_string(root.join("proc/sys/kernel/hostname")).unwrap_or_default();
    text.split_ascii_whitespace().next().unwrap_or("-").to_owned()
}

/// The identity that is kept in the first directory that has one, or takes one.
pub(super) fn identity(directories: &[PathBuf], machine: &str) -> Option<Uuid> {
    let kept = directories.iter().find_map(|directory| read(directory, machine));
    kept.or_else(|| directories.iter().find_map(|directory| make(directory, machine).ok()))
}

/// The identity in a file that nobody else could write.
fn read(directory: &Path, machine: &str) -> Option<Uuid> {
    let path = directory.join(FILE);
    let metadata = fs::symlink_metadata(&path).ok()?;
    let own = rustix::process::geteuid().as_raw();
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX || ![0, own].contains(&metadata.uid()) {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    let mut words = text.split_ascii_whitespace();
    let uuid = words.next().and_then(Uuid::parse)?;
    (words.next() == Some(machine)).then_some(uuid)
}

/// Makes an identity and keeps it, in the place of that of another machine. Another process that
/// does the same at the same time may be faster: its identity counts.
fn make(directory: &Path, machine: &str) -> io::Result<Uuid> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let lock = File::open(directory)?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
    if let Some(kept) = read(directory, machine) {
        return Ok(kept);
    }
    let uuid = random();
    let text = format!("{uuid} {machine}\n");
    match store_file(&directory.join(FILE), FileMode::AtMost(0o600), Existing::Replaced, text.as_bytes()) {
        // A power cut may take it back; until then it is what others find, too.
        Ok(()) | Err(WriteError::Unknown(_)) => {}
        Err(WriteError::NotStored(error)) => return Err(error),
    }
    read(directory, machine).ok_or_else(|| io::Error::other("what was written is not there"))
}

/// A UUID of version 4 (RFC 9562).
pub(super) fn random() -> Uuid {
    let mut bytes = [0; 16];
    if Clock::system().fill(&mut bytes).is_err() {
        // Better than what others have, too.
        let now = u64::try_from(Clock::system().unix_time().as_nanos()).unwrap_or(u64::MAX);
        bytes[..8].copy_from_slice(&now.to_be_bytes());
        bytes[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_begin_at_once_have_one_identity() {
        let directory = tempfile::tempdir().unwrap();
        let at = vec![directory.path().join("a/ebof")];
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn({
                    let at = at.clone();
                    move || identity(&at, "m")
                })
            })
            .collect();
        let mut found: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
        found.dedup();
        assert_eq!(found.len(), 1);
        assert_eq!(fs::read_dir(&at[0]).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn what_is_kept_is_found_wherever_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (lasting, passing) = (directory.path().join("lasting"), directory.path().join("passing"));
        let own = identity(std::slice::from_ref(&passing), "m").unwrap();
        assert_eq!(identity(&[lasting.clone(), passing], "m"), Some(own));
        assert!(!lasting.exists());
        fs::write(directory.path().join("file"), "").unwrap();
        assert_eq!(identity(&[directory.path().join("file/ebof")], "m"), None);
    }

    #[test]
    fn a_user_has_a_place_of_its_own() {
        let at = |set: &[(&str, &str)]| {
            let found =
                of_user(None, |name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into()));
            found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(at(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", "/r")]), ["/h/.local/state/ebof", "/r/ebof"]);
        assert_eq!(at(&[("XDG_STATE_HOME", "/s"), ("HOME", "h")]), ["/s/ebof"]);
        assert_eq!(
            at(&[("STATE_DIRECTORY", "/var/lib/box"), ("HOME", "/h")]),
            ["/var/lib/box", "/h/.local/state/ebof"]
        );
        assert!(at(&[]).is_empty());
    }
}
