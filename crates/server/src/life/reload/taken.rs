//! What was taken for a configuration: devices, drives and ports, and what was missing, if it is
//! there now.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ebof_manage::config::{Namespace, Subsystem};
use ebof_manage::{Config, Drive};

use super::deferred::Deferred;
use super::files::FileChanges;
use crate::drives::DriveThreads;
use crate::environment::Environment;
use crate::life::control::Listening;
use crate::life::missing::{Missing, MissingKey};
use crate::life::startup::{Devices, NamespaceKey, OpenDrive, OpenNamespace, StartError, listen, listen_at};

/// What was taken, and what of the old configuration could not be.
pub(super) struct Taken<'c> {
    environment: &'c Environment,
    old: &'c Config,
    /// To open devices with.
    pub(super) blank: Devices,
    /// Devices for new namespaces.
    pub(super) namespaces: BTreeMap<NamespaceKey, OpenNamespace>,
    pub(super) drives: Vec<OpenDrive>,
    pub(super) ports: Vec<Listening>,
    pub(super) files: FileChanges,
    /// What of the old configuration was missing.
    was_missing: Vec<Missing>,
    /// What of it still is.
    pub(super) still_missing: Vec<Missing>,
}

impl<'c> Taken<'c> {
    pub(super) fn new(
        environment: &'c Environment,
        old: &'c Config,
        blank: Devices,
        was_missing: Vec<Missing>,
    ) -> Self {
        Self {
            environment,
            old,
            blank,
            namespaces: BTreeMap::new(),
            drives: Vec::new(),
            ports: Vec::new(),
            files: FileChanges::new(Arc::clone(&environment.storage)),
            was_missing,
            still_missing: Vec::new(),
        }
    }

    /// Whether nothing was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.drives.is_empty() && self.ports.is_empty()
    }

    /// Takes something, unless it was missing before: then it may be missing still. What is new has
    /// to be there.
    pub(super) fn take(&mut self, deferred: &Deferred<'c>) -> Result<(), StartError> {
        let Some(before) = self.was_missing(deferred) else { return self.take_one(deferred) };
        // What was served once is not made anew because it is not there.
        let is_away = deferred.path().is_some_and(|path| !path.exists());
        let taken = if is_away { None } else { Some(self.take_one(deferred)) };
        match taken {
            Some(Ok(())) => {}
            Some(Err(error)) => self.still_missing.push(Missing { reason: error.to_string(), ..before }),
            None => self.still_missing.push(before),
        }
        Ok(())
    }

    /// What was known of something that is missing, and is the same in the new configuration.
    fn was_missing(&self, deferred: &Deferred<'_>) -> Option<Missing> {
        let (key, is_same) = match deferred {
            Deferred::Namespace(nqn, namespace) => {
                let key = ((*nqn).clone(), namespace.nsid);
                let is_same = namespace_at(self.old, &key) == Some(*namespace);
                (MissingKey::Namespace(key), is_same)
            }
            Deferred::Drive(drive, subsystem) => {
                let is_of = |old: &Subsystem| old.nqn == subsystem.nqn && old.drive == subsystem.drive;
                let is_same = self.old.drives.contains(drive) && self.old.subsystems.iter().any(is_of);
                (MissingKey::Drive(drive.name.clone()), is_same)
            }
            Deferred::Port(port) => (MissingKey::Port(port.name.clone()), self.old.ports.contains(port)),
            Deferred::Rebind(..) => return None,
        };
        self.was_missing.iter().find(|missing| missing.key == key).filter(|_| is_same).cloned()
    }

    fn take_one(&mut self, deferred: &Deferred<'c>) -> Result<(), StartError> {
        match deferred {
            Deferred::Namespace(nqn, namespace) => {
                let made = path_without_file(&namespace.drive);
                let plain = self.blank.open_plain(nqn, namespace)?;
                made.into_iter().for_each(|path| self.files.note_made(path, &plain.device));
                self.namespaces.insert(((*nqn).clone(), namespace.nsid), plain);
            }
            Deferred::Drive(drive, subsystem) => {
                let made = path_without_file(&drive.backing);
                let opened = self.blank.open_drive(drive, subsystem, &mut DriveThreads::Own)?;
                made.into_iter().for_each(|path| self.files.note_made(path, &opened.backing));
                self.drives.push(opened);
            }
            Deferred::Port(port) => self.ports.push(listen(port, self.environment)?),
            Deferred::Rebind(before, port) => {
                let (bound, _) = listen_at(port, Some(before.port.address), self.environment)?;
                let port = Arc::new(before.port.altered((*port).clone()));
                self.ports.push(Listening { port, bound: Some(bound) });
            }
        }
        Ok(())
    }

    /// Gives up all of it, and undoes what was done to files.
    pub(super) fn give_up(&mut self) {
        self.files.take_back_extensions();
        self.namespaces.clear();
        self.ports.clear();
        self.drives.drain(..).for_each(|opened| opened.actor.stop());
        self.files.remove_made();
    }
}

/// The path of a file that is not there.
fn path_without_file(drive: &Drive) -> Option<PathBuf> {
    drive.path().map(PathBuf::from).filter(|path| !path.exists())
}

/// A namespace of a configuration.
pub(super) fn namespace_at<'c>(config: &'c Config, key: &NamespaceKey) -> Option<&'c Namespace> {
    let subsystem = config.subsystems.iter().find(|subsystem| subsystem.nqn == key.0)?;
    subsystem.namespaces.iter().find(|namespace| namespace.nsid == key.1)
}
