//! What a change makes of files: those that it makes, and those that it makes larger.

use std::path::PathBuf;
use std::sync::Arc;

use ebof_backend::{BackingId, Device, Persistent, Spec};
use ebof_manage::config::Namespace;
use ebof_manage::plan::Change;

use crate::environment::Storage;
use crate::life::startup::{Devices, NamespaceKey, OpenNamespace, StartError};

/// Changes of files, until they are in force or taken back.
pub(super) struct FileChanges {
    storage: Arc<dyn Storage>,
    /// Files that were made.
    made: Vec<(PathBuf, BackingId)>,
    grown: Vec<Grown>,
    /// Files that were made larger, and what they had before.
    extended: Vec<(Arc<dyn Device>, u64)>,
}

/// Something that has become larger.
struct Grown {
    key: NamespaceKey,
    from_bytes: u64,
    to_bytes: u64,
}

impl FileChanges {
    /// None so far.
    pub(super) fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, made: Vec::new(), grown: Vec::new(), extended: Vec::new() }
    }

    /// A file was made at `path`, and opened as `device`.
    pub(super) fn note_made(&mut self, path: PathBuf, device: &Arc<dyn Device>) {
        if let Some(id) = device.persistent().and_then(Persistent::id) {
            self.made.push((path, id));
        }
    }

    /// Makes the file of a namespace larger if that is wanted, notes what has grown, and refuses
    /// what has shrunk.
    pub(super) fn check(
        &mut self,
        key: &NamespaceKey,
        plain: &OpenNamespace,
        namespace: &Namespace,
    ) -> Result<(), StartError> {
        let Some(backing) = plain.device.persistent() else { return Ok(()) };
        let failed = |error| {
            let (subsystem, nsid) = key.clone();
            StartError::Drive { subsystem, nsid, error }
        };
        // A size that the configuration did not have before is wanted.
        let wanted = namespace.drive.size_bytes().filter(|size| plain.drive.size_bytes() != Some(*size));
        if let Some(wanted) = wanted {
            let extended = backing.extend(wanted).map_err(failed)?;
            self.extended.extend(extended.map(|before| (Arc::clone(&plain.device), before)));
        }
        let to_bytes = backing.current_bytes(namespace.drive.size_bytes()).map_err(failed)?;
        let from_bytes = plain.device.geometry().capacity_bytes;
        if to_bytes > from_bytes {
            self.grown.push(Grown { key: key.clone(), from_bytes, to_bytes });
        }
        if let Some(path) = namespace.drive.path()
            && self.storage.id(&Spec::from(&namespace.drive)) != backing.id()
        {
            tracing::warn!(path, "is another file now: what was opened is served until the namespace is taken away");
        }
        Ok(())
    }

    /// How often this has a device, to make it as small as it was.
    pub(super) fn holds(&self, device: &Arc<dyn Device>) -> usize {
        self.extended.iter().filter(|(extended, _)| Arc::ptr_eq(extended, device)).count()
    }

    /// Has `devices` offer what has grown. Gives what that was.
    pub(super) fn offer(&self, devices: &Devices) -> Vec<Change> {
        self.grown.iter().map(|grown| grown.offer(devices)).collect()
    }

    /// Makes files as small as they were.
    pub(super) fn take_back_extensions(&mut self) {
        for (device, before) in self.extended.drain(..) {
            let taken_back = device.persistent().map_or(Ok(()), |backing| backing.take_back_extension(before));
            if let Err(error) = taken_back {
                let what = device.describe();
                tracing::error!(what, "was made larger, and cannot be made as small as it was: {error}");
            }
        }
    }

    /// Removes files that were made.
    pub(super) fn remove_made(&mut self) {
        for (path, id) in self.made.drain(..) {
            // Made a moment ago, and empty.
            if self.storage.id(&Spec::path(&path)) == Some(id)
                && let Err(error) = std::fs::remove_file(&path)
            {
                tracing::warn!(path = %path.display(), "made and not used, cannot be removed: {error}");
            }
        }
    }
}

impl Grown {
    fn offer(&self, devices: &Devices) -> Change {
        if let Some(backing) = devices.open.get(&self.key).and_then(|plain| plain.device.persistent()) {
            backing.grow(self.to_bytes);
        }
        let subsystem = self.key.0.to_string();
        let nsid = self.key.1;
        Change::GrowNamespace { subsystem, nsid, from_bytes: self.from_bytes, to_bytes: self.to_bytes }
    }
}
