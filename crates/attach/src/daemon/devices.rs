//! The devices of a daemon: added, changed and removed as the controller's namespaces are. Writes
//! the state file with each change. What else a daemon does is not known here.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use ebof_nvme::Nsid;
use ebof_nvme::identify::ProtectionType;

use super::{Shared, instance, paths};
use crate::block_queue;
use crate::daemon::claims;
use crate::daemon::describe;
use crate::daemon::syslog;
use crate::device::{Front, InUse};
use crate::error::{Error, Existing};
use crate::request::Device;
use crate::state::udev;
use crate::state::{self, ENDED_MAX, Ended, StateDir};

/// The most block devices of a controller: a target may report any number of namespaces.
const DEVICES_MAX: usize = 1024;

/// Whether an error is about the namespace, in place of an answer that did not come.
fn is_unusable(error: &ebof_initiator::Error) -> bool {
    matches!(error, ebof_initiator::Error::Format { .. } | ebof_initiator::Error::Replaced { .. })
}

/// Why a device ends whose namespace was deleted or detached.
const GONE: &str = "the namespace is not there any more";

/// The devices of an instance, and the front that makes them.
pub(super) struct Devices {
    directory: PathBuf,
    shared: Arc<Shared>,
    front: Front,
    /// The largest transfer that the front was made for, bytes.
    front_max_bytes: u32,
    /// Whether namespaces may be another daemon's block devices, too.
    duplicates: bool,
    held: Vec<AttachedNamespace>,
    /// See [`State::ended`](crate::state::State::ended).
    ended: Vec<Ended>,
    /// The last namespace found that is another daemon's device.
    taken: Option<Existing>,
}

/// A namespace of the controller.
struct AttachedNamespace {
    device: Device,
    /// While it is served; `None` if it cannot be a block device.
    namespace: Option<Served>,
}

struct Served {
    described: block_queue::Namespace,
    identifiers: String,
}

impl Devices {
    /// None yet: [`prepare`](Self::prepare) makes the first ones.
    pub(super) fn new(
        directory: PathBuf,
        shared: Arc<Shared>,
        front: Front,
        front_max_bytes: u32,
        duplicates: bool,
    ) -> Self {
        Self { directory, shared, front, front_max_bytes, duplicates, held: Vec::new(), ended: Vec::new(), taken: None }
    }

    /// Scans the namespaces for the first time. It is a failure if one is another daemon's device,
    /// or if there are some and none can be a device.
    pub(super) fn prepare(&mut self) -> Result<(), Error> {
        self.rescan()?;
        if let Some(existing) = self.taken.take() {
            return Err(Error::AlreadyConnected(existing));
        }
        let made = self.held.iter().filter(|held| held.device.path.is_some()).count();
        if let (0, Some(AttachedNamespace { device, .. })) = (made, self.held.first()) {
            let problem = device.problem.clone().unwrap_or_default();
            return Err(Error::daemon(format!("{} cannot be a block device: {problem}", device.name)));
        }
        Ok(())
    }

    /// All of them, also those that cannot be block devices.
    pub(super) fn list(&self) -> Vec<Device> {
        self.held.iter().map(|held| held.device.clone()).collect()
    }

    /// The paths of those that are block devices.
    pub(super) fn paths(&self) -> Vec<String> {
        self.held.iter().filter_map(|held| Some(held.device.path.as_ref()?.display().to_string())).collect()
    }

    /// Who uses one of them.
    pub(super) fn user(&self) -> Option<String> {
        self.front.user()
    }

    /// Takes all of them away, used or not. Requests that have not ended are waited for.
    pub(super) fn stop(self) {
        self.held.iter().for_each(|held| udev::retract(self.states(), &held.device));
        self.front.stop();
    }

    /// Writes the state file; an error is logged.
    pub(super) fn publish(&self) {
        if let Err(error) = self.write_state() {
            tracing::error!(%error, "the state file is not written");
        }
    }

    /// Writes the state file.
    fn write_state(&self) -> Result<(), Error> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.devices = self.list();
        state.ended.clone_from(&self.ended);
        paths::refresh(&mut state, &self.shared);
        state::write_state(&self.directory, &state)
    }

    /// Scans the namespaces and updates the devices.
    pub(super) fn rescan(&mut self) -> Result<(), Error> {
        let mut there = self.shared.subsystem.namespaces().map_err(|error| Error::Initiator(Box::new(error)))?;
        if there.len() > DEVICES_MAX {
            tracing::warn!(namespaces = there.len(), "only the first {DEVICES_MAX} namespaces become block devices");
            there.truncate(DEVICES_MAX);
        }
        let gone = self.held.iter().map(|held| held.device.nsid).filter(|&nsid| !there.contains(&Nsid(nsid)));
        for nsid in gone.collect::<Vec<u32>>() {
            self.end(nsid, GONE);
        }
        for nsid in there {
            self.look_at(nsid);
        }
        self.publish();
        Ok(())
    }

    fn look_at(&mut self, nsid: Nsid) {
        self.end_replaced(nsid);
        let described = describe::describe(&self.shared.subsystem, self.front_max_bytes, nsid);
        // Replaced since the last scan.
        self.end_replaced(nsid);
        let known = self.held.iter().position(|held| held.device.nsid == nsid.0);
        match (described, known) {
            // Deleted since the list was read.
            (Err(describe::Unusable::Unanswered(ebof_initiator::Error::NoSuchNamespace(_))), known) => {
                if known.is_some() {
                    self.end(nsid.0, GONE);
                }
            }
            // Neither a lost connection nor a refused command says that the device has to go.
            (Err(describe::Unusable::Unanswered(error)), Some(_)) if !is_unusable(&error) => {
                tracing::warn!(nsid = nsid.0, %error, "the namespace was not described: its device stays");
            }
            (Ok((described, open)), Some(index)) => {
                self.change(index, Served { described, identifiers: open.identifiers() });
            }
            (Ok((described, open)), None) => {
                self.add(nsid, Some(Served { described, identifiers: open.identifiers() }), None);
            }
            (Err(problem), known) => {
                if known.is_some() {
                    self.end(nsid.0, &problem.to_string());
                }
                tracing::warn!(nsid = nsid.0, %problem, "no block device");
                self.add(nsid, None, Some(problem.to_string()));
            }
        }
    }

    /// Removes a device whose namespace was replaced, as Linux does.
    fn end_replaced(&mut self, nsid: Nsid) {
        let held = self.held.iter().find(|held| held.device.nsid == nsid.0);
        let Some(head) = held.and_then(|held| held.namespace.as_ref()).and_then(|served| served.described.head) else {
            return;
        };
        match self.shared.subsystem.check(head) {
            // It is removed: the new namespace, or why there is none, is found next.
            Ok(()) | Err(ebof_initiator::Error::NoSuchNamespace(_)) => {}
            Err(error) => self.end(nsid.0, &error.to_string()),
        }
    }

    fn change(&mut self, index: usize, now: Served) {
        let namespace = now.described.clone();
        let AttachedNamespace { device, namespace: before } = &mut self.held[index];
        let Some(served) = before.as_mut().filter(|served| {
            let before = &served.described;
            before.head == namespace.head && before.block_bytes == namespace.block_bytes
        }) else {
            let nsid = device.nsid;
            self.end(nsid, "the namespace can be used in another way than before");
            return self.add(Nsid(nsid), Some(now), None);
        };
        if served.described == namespace {
            return;
        }
        // Changed limits do not matter to the device: commands are split when they are sent.
        let resized = served.described.blocks != namespace.blocks;
        match self.front.update(&device.name, &namespace) {
            Ok(followed) if followed || !resized => {
                let block_queue::Namespace { blocks, read_only, .. } = namespace;
                tracing::info!(name = device.name, blocks, read_only, "the namespace changed");
                device.blocks = blocks;
                device.read_only = read_only;
                *served = now;
            }
            followed => {
                let nsid = device.nsid;
                if let Err(error) = followed {
                    tracing::error!(%error, name = device.name, "the device cannot follow");
                }
                // Looked at again with every change of a namespace, and with every rescan.
                if let Some(used_by) = self.front.used_by(&device.name) {
                    let name = &device.name;
                    tracing::error!(
                        name,
                        used_by,
                        "the namespace changed, but its device is in use: it stays as it is"
                    );
                    syslog::error(&format!(
                        "{name} stays as it was, although its namespace changed: {used_by}; take it out of use, then \
                         `ebof ns-rescan` it"
                    ));
                    return;
                }
                self.end(
                    nsid,
                    if resized { "the namespace has another size" } else { "it cannot follow the namespace" },
                );
                self.add(Nsid(nsid), Some(now), None);
            }
        }
    }

    /// Adds a device. The state file has its path when the next one is claimed, or the scan ends:
    /// of a thousand it is long.
    fn add(&mut self, nsid: Nsid, served: Option<Served>, problem: Option<String>) {
        let name = format!("{}n{}", instance(&self.directory), nsid.0);
        let described = served.as_ref().map(|served| &served.described);
        let (block_bytes, blocks, read_only) =
            described.map_or((0, 0, false), |namespace| (namespace.block_bytes, namespace.blocks, namespace.read_only));
        let protected = described.is_some_and(|namespace| namespace.protection != ProtectionType::None);
        let metadata_bytes = if protected { 8 } else { 0 };
        let identifiers = served.as_ref().map(|served| served.identifiers.clone()).unwrap_or_default();
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
            // Written to the state file before it is made, so that others see the claim and a
            // killed daemon's device can be repaired.
            match self.claim(&mut device).and_then(|()| self.front.add(&device.name, described)) {
                Ok(path) => {
                    device.path = Some(path);
                    udev::announce(self.states(), self.shared.subsystem.nqn().as_str(), &device);
                }
                Err(error) => {
                    tracing::error!(%error, name = device.name, "no block device");
                    device.problem = Some(error.to_string());
                }
            }
        }
        let path = device.path.as_deref().map(|path| path.display().to_string());
        let Device { name, problem, .. } = &device;
        tracing::info!(name, path, nsid = nsid.0, block_bytes, blocks, read_only, problem, "added");
        // A namespace without a device is not kept open; it is inspected again with every change.
        if device.path.is_none() {
            self.close(served.as_ref());
        }
        let namespace = served.filter(|_| device.path.is_some());
        self.held.retain(|held| held.device.nsid != nsid.0);
        self.held.push(AttachedNamespace { device, namespace });
        self.held.sort_by_key(|held| held.device.nsid);
    }

    /// Claims a namespace for as long as its device is in the state file.
    fn claim(&mut self, device: &mut Device) -> Result<(), Error> {
        self.held.retain(|held| held.device.nsid != device.nsid);
        if !self.duplicates {
            let states = StateDir::at(self.states());
            let guard = states.lock()?;
            let own = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(existing) = claims::find(&states, &guard, &own, device)? {
                self.taken = Some(existing.clone());
                return Err(Error::AlreadyConnected(existing));
            }
            self.held.push(AttachedNamespace { device: device.clone(), namespace: None });
            self.write_state()?;
            return Ok(());
        }
        self.held.push(AttachedNamespace { device: device.clone(), namespace: None });
        self.publish();
        Ok(())
    }

    /// Removes the devices unless one is in use.
    pub(super) fn release(&mut self) -> Result<(), InUse> {
        let released = self.front.remove_unused();
        if released.is_err() {
            self.follow_front();
        }
        released
    }

    /// Takes over paths that have changed: a device that was taken away, and came back as another.
    fn follow_front(&mut self) {
        let mut moved = false;
        for AttachedNamespace { device, .. } in &mut self.held {
            let path = self.front.path(&device.name).map(Path::to_owned);
            if device.path.is_some() && device.path != path {
                let states = self.directory.parent().unwrap_or(Path::new("/"));
                udev::retract(states, device);
                device.path = path;
                udev::announce(states, self.shared.subsystem.nqn().as_str(), device);
                moved = true;
            }
        }
        if moved {
            self.publish();
        }
    }

    /// A namespace is not served any more.
    fn close(&self, served: Option<&Served>) {
        if let Some(head) = served.and_then(|served| served.described.head) {
            self.shared.subsystem.close(head);
        }
    }

    /// The state directory.
    fn states(&self) -> &Path {
        self.directory.parent().unwrap_or(Path::new("/"))
    }

    /// Removes a device and records why.
    fn end(&mut self, nsid: u32, reason: &str) {
        let Some(index) = self.held.iter().position(|held| held.device.nsid == nsid) else { return };
        let AttachedNamespace { device, namespace } = self.held.remove(index);
        udev::retract(self.states(), &device);
        match self.front.remove(&device.name) {
            Ok(()) => tracing::warn!(name = device.name, reason, "the device ends"),
            Err(error) => tracing::error!(%error, name = device.name, reason, "taking the device away"),
        }
        self.close(namespace.as_ref());
        let Device { name, nsid, path, .. } = device;
        // Nothing is recorded for a namespace without a device.
        let Some(path) = path else { return };
        syslog::error(&format!("{name} ({}) ends: {reason}", path.display()));
        self.ended.push(Ended { name, nsid, path: Some(path), reason: reason.to_owned(), at: state::now() });
        self.ended.drain(..self.ended.len().saturating_sub(ENDED_MAX));
    }
}
