//! The devices of a daemon: how they follow the namespaces of the controller, which come, go,
//! change, and become others.

use std::path::Path;
use std::sync::PoisonError;

use ebof_initiator::Namespace as Open;
use ebof_nvme::Nsid;
use ebof_nvme::identify::ProtectionType;

use super::{Daemon, Held, Served};
use crate::error::Error;
use crate::request::Device;
use crate::state::{self, ENDED_MAX, Ended, StateDir};
use crate::{blocks, claims, describe, syslog};

/// Namespaces of a controller that become block devices, at most: a target may claim any number.
const DEVICES_MAX: usize = 1024;

impl Daemon {
    /// Makes the devices follow the namespaces.
    pub(super) fn rescan(&mut self) -> Result<(), Error> {
        let there = self.shared.controller.namespaces().map_err(|error| Error::Initiator(Box::new(error)))?;
        let mut there = there;
        if there.len() > DEVICES_MAX {
            tracing::warn!(namespaces = there.len(), "only the first {DEVICES_MAX} namespaces become block devices");
            there.truncate(DEVICES_MAX);
        }
        let gone = self.devices.iter().map(|held| held.device.nsid).filter(|&nsid| !there.contains(&Nsid(nsid)));
        for nsid in gone.collect::<Vec<u32>>() {
            self.end(nsid, "the namespace is not there any more");
        }
        for nsid in there {
            self.look_at(nsid);
        }
        self.publish();
        Ok(())
    }

    fn look_at(&mut self, nsid: Nsid) {
        self.end_replaced(nsid);
        let described = describe::describe(&self.shared.controller, self.front_max_bytes, nsid);
        // Seen only now: it was another one when it was opened again.
        self.end_replaced(nsid);
        let known = self.devices.iter().position(|held| held.device.nsid == nsid.0);
        match (described, known) {
            // A loss of the connection is no reason to take a device away.
            (Err(describe::Unusable::Unanswered(error)), Some(_)) if error.is_connection() => {}
            (Ok((namespace, open)), Some(index)) => self.change(index, namespace, open),
            (Ok((namespace, open)), None) => self.add(nsid, Some(Served { described: namespace, open }), None),
            (Err(problem), known) => {
                if known.is_some() {
                    self.end(nsid.0, &problem.to_string());
                }
                tracing::warn!(nsid = nsid.0, %problem, "no block device");
                self.add(nsid, None, Some(problem.to_string()));
            }
        }
    }

    /// Ends a device whose namespace is another one by now, as Linux does.
    fn end_replaced(&mut self, nsid: Nsid) {
        let held = self.devices.iter().find(|held| held.device.nsid == nsid.0);
        let Some(served) = held.and_then(|held| held.namespace.as_ref()) else { return };
        match served.open.check() {
            // It is away: what is there instead, or why nothing is, is found out next.
            Ok(()) | Err(ebof_initiator::Error::NoSuchNamespace(_)) => {}
            Err(error) => self.end(nsid.0, &error.to_string()),
        }
    }

    fn change(&mut self, index: usize, namespace: blocks::Namespace, open: Open) {
        let Held { device, namespace: before } = &mut self.devices[index];
        let Some(served) = before.as_mut().filter(|served| {
            let before = &served.described;
            before.binding == namespace.binding
                && before.block_bytes == namespace.block_bytes
                && before.read_only == namespace.read_only
        }) else {
            let nsid = device.nsid;
            self.end(nsid, "the namespace can be used in another way than before");
            return self.add(Nsid(nsid), Some(Served { described: namespace, open }), None);
        };
        if served.described == namespace {
            return;
        }
        // Other limits of commands alone are no matter for the device: commands are cut where they
        // are sent.
        let resized = served.described.blocks != namespace.blocks;
        match self.front.update(&device.name, &namespace) {
            Ok(followed) if followed || !resized => {
                tracing::info!(name = device.name, blocks = namespace.blocks, "the namespace changed");
                device.blocks = namespace.blocks;
                *served = Served { described: namespace, open };
            }
            _ => {
                let nsid = device.nsid;
                self.end(nsid, "the namespace has another size");
                self.add(Nsid(nsid), Some(Served { described: namespace, open }), None);
            }
        }
    }

    fn add(&mut self, nsid: Nsid, served: Option<Served>, problem: Option<String>) {
        let name = format!("{}n{}", self.name(), nsid.0);
        let described = served.as_ref().map(|served| &served.described);
        let (block_bytes, blocks, read_only) =
            described.map_or((0, 0, false), |namespace| (namespace.block_bytes, namespace.blocks, namespace.read_only));
        let protected = described.is_some_and(|namespace| namespace.protection != ProtectionType::None);
        let metadata_bytes = if protected { 8 } else { 0 };
        let identifiers = served.as_ref().map(|served| served.open.identifiers()).unwrap_or_default();
        let mut device = Device {
            file: self.front.file(&name),
            name,
            nsid: nsid.0,
            path: None,
            problem,
            block_bytes,
            metadata_bytes,
            blocks,
            read_only,
            identifiers,
        };
        if let Some(Served { described, .. }) = &served {
            // Into the state file before it exists: others see whose it is, and a daemon that is
            // killed leaves a trace.
            match self.claim(&mut device).and_then(|()| self.front.add(&device.name, described)) {
                Ok(path) => device.path = Some(path),
                Err(error) => {
                    tracing::error!(%error, name = device.name, "no block device");
                    device.problem = Some(error.to_string());
                }
            }
        }
        tracing::info!(?device, "added");
        // A namespace without a device is not kept open: it is looked at anew with every change.
        let namespace = served.filter(|_| device.path.is_some());
        self.devices.retain(|held| held.device.nsid != nsid.0);
        self.devices.push(Held { device, namespace });
        self.devices.sort_by_key(|held| held.device.nsid);
        self.publish();
    }

    /// Makes a namespace ours alone, for as long as the device is in the state file.
    fn claim(&mut self, device: &mut Device) -> Result<(), Error> {
        self.devices.retain(|held| held.device.nsid != device.nsid);
        if !self.duplicates {
            let base = self.directory.parent().unwrap_or(Path::new("/"));
            let states = StateDir::at(base);
            let guard = states.lock()?;
            let own = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(existing) = claims::taken(&states, &guard, &own, device)? {
                self.taken = Some(existing.clone());
                return Err(Error::AlreadyConnected(existing));
            }
            self.devices.push(Held { device: device.clone(), namespace: None });
            self.write_state()?;
            return Ok(());
        }
        self.devices.push(Held { device: device.clone(), namespace: None });
        self.publish();
        Ok(())
    }

    /// Takes a device away for good, and remembers why.
    fn end(&mut self, nsid: u32, reason: &str) {
        let Some(index) = self.devices.iter().position(|held| held.device.nsid == nsid) else { return };
        let Held { device, .. } = self.devices.remove(index);
        match self.front.remove(&device.name) {
            Ok(()) => tracing::warn!(?device, reason, "the device ends"),
            Err(error) => tracing::error!(%error, ?device, reason, "taking the device away"),
        }
        let Device { name, nsid, path, .. } = device;
        // What never was a device ends without a word.
        let Some(path) = path else { return };
        syslog::error(&format!("{name} ({}) ends: {reason}", path.display()));
        self.ended.push(Ended { name, nsid, path: Some(path), reason: reason.to_owned(), at: state::now() });
        self.ended.drain(..self.ended.len().saturating_sub(ENDED_MAX));
    }
}
