//! Taking what is free: devices, drives and ports, and what was missing, if it is there now.

use std::path::PathBuf;
use std::sync::Arc;

use ebof_backend::{Device, Persistent};
use ebof_manage::config::Subsystem;

use super::sort::{missing, path_of};
use super::{Deferred, Purpose, Reload, namespace_at};
use crate::drives::DriveThreads;
use crate::life::control::Listening;
use crate::life::missing::{Missing, MissingKey};
use crate::life::startup::{OpenNamespace, StartError, listen, listen_at};

impl<'c> Reload<'c> {
    /// Takes what stood in each other's way.
    pub(super) fn take(&mut self) -> Result<(), StartError> {
        for (from, to) in self.moves.clone() {
            if let Some(plain) = self.leaving.remove(&from) {
                // Another name: what is still on its way to the old namespace does not arrive
                // at the new one.
                self.taken.insert(to, OpenNamespace { id: self.blank.ids.next(), ..plain });
            }
        }
        if let Some(released) = &mut self.released {
            self.leaving.retain(|key, _| !released.namespaces.contains(key));
            released.backings.clear();
        }
        std::mem::take(&mut self.deferred).into_iter().try_for_each(|deferred| self.take_if_there(deferred))
    }

    /// As `take_one`, unless it was missing before: then it may be missing still. What is new has
    /// to be there.
    pub(super) fn take_if_there(&mut self, deferred: Deferred<'c>) -> Result<(), StartError> {
        let Some(before) = self.was_missing(&deferred) else { return self.take_one(deferred) };
        // What was served once is not made anew because it is not there.
        let is_away = path_of(&deferred).is_some_and(|path| !path.exists());
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
        self.missing.iter().find(|missing| missing.key == key).filter(|_| is_same).cloned()
    }

    /// Whether it was to take what is missing, and nothing of that is there.
    pub(super) fn has_found_nothing(&self) -> bool {
        let has_taken = !(self.taken.is_empty() && self.taken_drives.is_empty() && self.taken_ports.is_empty());
        self.purpose == Purpose::Find && !has_taken && self.released.is_none()
    }

    fn take_one(&mut self, deferred: Deferred<'c>) -> Result<(), StartError> {
        match deferred {
            Deferred::Namespace(nqn, namespace) => {
                let missing = missing(&namespace.drive);
                let plain = self.blank.open_plain(nqn, namespace)?;
                self.note_made(missing, &plain.device);
                self.taken.insert((nqn.clone(), namespace.nsid), plain);
            }
            Deferred::Drive(drive, subsystem) => {
                let missing = missing(&drive.backing);
                let opened = self.blank.open_drive(drive, subsystem, &mut DriveThreads::Own)?;
                self.note_made(missing, &opened.backing);
                self.taken_drives.push(opened);
            }
            Deferred::Port(port) => self.taken_ports.push(listen(port, self.environment())?),
            Deferred::Rebind(before, port) => {
                let (bound, _) = listen_at(port, Some(before.port.address), self.environment())?;
                let port = Arc::new(before.port.altered(port.clone()));
                self.taken_ports.push(Listening { port, bound: Some(bound) });
            }
        }
        Ok(())
    }

    fn note_made(&mut self, path: Option<PathBuf>, device: &Arc<dyn Device>) {
        if let Some(path) = path
            && let Some(id) = device.persistent().and_then(Persistent::id)
        {
            self.made.push((path, id));
        }
    }
}
