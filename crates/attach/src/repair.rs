//! Cleaning up after a daemon: when it ends, and when it was killed.
//!
//! Everything is found through the kernel and the state file. Nothing is removed that the state
//! file or the state directory does not prove to be ours.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::fuse;
use crate::loopdev;
use crate::request::Device;
use crate::state::udev;
use crate::state::{Guard, Record, SECRETS, StateDir};
use crate::usage::{self, Use};

/// What was cleaned up after one dead daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The controller.
    pub name: String,
    /// What was done, and what has to be done by hand.
    pub actions: Vec<String>,
}

/// Cleans up after all dead daemons.
///
/// # Errors
/// The state directory cannot be read.
pub fn repair(states: &StateDir) -> Result<Vec<Repaired>, Error> {
    if states.records()?.iter().all(|record| record.live || record.given_up().is_some()) {
        return Ok(Vec::new());
    }
    let guard = states.lock()?;
    repair_locked(states, &guard)
}

/// As [`repair`], for callers that hold the lock.
pub(crate) fn repair_locked(states: &StateDir, _guard: &Guard) -> Result<Vec<Repaired>, Error> {
    // Read under the lock, which is held while instances are made. A daemon that gave its
    // controller up has cleaned up itself; its record is left for people.
    let dead = states.records()?.into_iter().filter(|record| !record.live && record.given_up().is_none());
    Ok(dead.map(|record| clean(&record)).collect())
}

fn clean(record: &Record) -> Repaired {
    let mut actions = Vec::new();
    let mounted_at = mount_point(&record.directory);
    let devices = record.state.as_ref().map(|state| state.devices.as_slice()).unwrap_or_default();
    let loops = loopdev::all().into_iter();
    let loops = loops.filter(|(path, file)| devices.iter().any(|device| is_loop_of(device, &mounted_at, path, file)));
    for (path, _) in loops {
        let used = usage::look(&path);
        match loopdev::detach(&path) {
            Ok(()) => actions.push(format!("detached {}", path.display())),
            Err(error) => actions.push(format!("could not detach {}: {error}", path.display())),
        }
        if let Use::Held(used_by) | Use::Open(used_by) = used {
            actions.push(format!("{used_by}: its data is out of reach, unmount or close it"));
        }
    }
    match fuse::unmount(&mounted_at) {
        Ok(()) => {}
        Err(error) => actions.push(format!("could not unmount {}: {error}", mounted_at.display())),
    }
    for path in devices.iter().filter_map(|device| device.path.as_deref()).filter(|path| crate::ublk::is_ours(path)) {
        match crate::ublk::delete(path, record.state.as_ref().map_or(0, |state| state.pid)) {
            Ok(true) => actions.push(format!("deleted {}", path.display())),
            Ok(false) => {}
            Err(error) => actions.push(format!("could not delete {}: {error}", path.display())),
        }
    }
    if let Some(states) = record.directory.parent() {
        devices.iter().for_each(|device| udev::retract(states, device));
    }
    match remove(&record.directory) {
        Ok(()) => actions.push(format!("removed {}", record.directory.display())),
        Err(error) => actions.push(format!("could not remove {}: {error}", record.directory.display())),
    }
    for action in &actions {
        tracing::info!(name = record.name, action, "cleaned up behind an attach daemon that was killed");
    }
    Repaired { name: record.name.clone(), actions }
}

/// Whether the loop device at `path` on `file` is this device. The path alone does not identify it:
/// a daemon of the same name in another mount namespace has the same one.
fn is_loop_of(device: &Device, mounted_at: &Path, path: &Path, file: &Path) -> bool {
    match &device.file {
        Some(name) => file.file_name() == Some(name.as_ref()),
        // Written by an earlier version.
        None => {
            let orphan = Path::new("/").join(&device.name);
            device.path.as_deref() == Some(path) && (file == mounted_at.join(&device.name) || file == orphan)
        }
    }
}

/// The mount point of an instance's FUSE file system.
pub(crate) fn mount_point(directory: &Path) -> PathBuf {
    directory.join("mnt")
}

/// Removes what only a live daemon needs; state and log stay.
pub(crate) fn retire(directory: &Path) -> std::io::Result<()> {
    for file in ["request.json", ".request.json.new", "request.new", "control.sock"] {
        gone(std::fs::remove_file(directory.join(file)))?;
    }
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let name = entry?.file_name();
        // With a dot before it, it was about to be written.
        let bare = name.to_string_lossy().trim_start_matches('.').to_owned();
        if SECRETS.iter().any(|secret| bare.starts_with(secret)) {
            gone(std::fs::remove_file(directory.join(name)))?;
        }
    }
    gone(std::fs::remove_dir(mount_point(directory)))
}

/// Ignores that a file does not exist.
fn gone(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes an instance's directory with the files that a daemon makes, and no others.
pub(crate) fn remove(directory: &Path) -> std::io::Result<()> {
    retire(directory)?;
    for file in ["state.json", ".state.json.new", "state.new", "holder.log", "holder.log.old"] {
        gone(std::fs::remove_file(directory.join(file)))?;
    }
    gone(std::fs::remove_file(directory.join("lock")))?;
    gone(std::fs::remove_dir(directory))
}
