//! What of a configuration is open already, what can be taken beside it, and what has to wait for
//! something to be released.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebof_backend::{BackingId, Device, Persistent};
use ebof_manage::config::{Namespace, Port};
use ebof_manage::{Drive, Listen};
use ebof_nvme::Nqn;

use super::{Deferred, Grown, Purpose, Reload};
use crate::life::control::Listening;
use crate::life::startup::{NamespaceKey, OpenDrive, OpenNamespace, StartError, drive_of};
use crate::ports::port::PortState;
use crate::ports::sockets;

impl<'c> Reload<'c> {
    /// Finds out what stays, and takes what can be taken beside it.
    pub(super) fn sort(&mut self) -> Result<(), StartError> {
        let rest = self.sort_devices()?;
        self.sort_drives();
        let rest_of_ports = self.sort_ports();
        for (nqn, namespace) in rest {
            self.take_or_defer(Deferred::Namespace(nqn, namespace))?;
        }
        for subsystem in self.config.enabled_subsystems() {
            let open = self.drives_stay.iter().any(|(_, now)| now.subsystem.nqn == subsystem.nqn);
            if let Some(drive) = drive_of(self.config, subsystem).filter(|_| !open) {
                self.take_or_defer(Deferred::Drive(drive, subsystem))?;
            }
        }
        for port in rest_of_ports {
            self.take_or_defer(Deferred::Port(port))?;
        }
        Ok(())
    }

    /// Gives the namespaces for which nothing is open.
    fn sort_devices(&mut self) -> Result<Vec<(&'c Nqn, &'c Namespace)>, StartError> {
        let all = self.config.enabled_subsystems();
        let all = all.flat_map(|subsystem| subsystem.enabled_namespaces().map(|namespace| (&subsystem.nqn, namespace)));
        let mut others = Vec::new();
        let mut rest = Vec::new();
        for (nqn, namespace) in all {
            let key = (nqn.clone(), namespace.nsid);
            match self.leaving.remove(&key) {
                Some(plain) if self.is_for(&plain, namespace) || is_at_path(&plain, namespace) => {
                    self.look(&key, &plain, namespace)?;
                    self.stay.insert(key, plain);
                }
                Some(plain) => {
                    self.leaving.insert(key, plain);
                    others.push((nqn, namespace));
                }
                None => others.push((nqn, namespace)),
            }
        }
        for (nqn, namespace) in others {
            let moving: HashSet<&NamespaceKey> = self.moves.iter().map(|(from, _)| from).collect();
            let mut keys = self.leaving.iter().filter(|(key, _)| !moving.contains(key));
            match keys.find(|(_, plain)| plain.device.persistent().is_some() && self.is_for(plain, namespace)) {
                Some((from, plain)) => {
                    let from = from.clone();
                    let plain = plain.clone();
                    let to = (nqn.clone(), namespace.nsid);
                    self.look(&to, &plain, namespace)?;
                    self.moves.push((from, to));
                }
                None => rest.push((nqn, namespace)),
            }
        }
        Ok(rest)
    }

    /// Notes what has grown, and refuses what has shrunk.
    fn look(&mut self, key: &NamespaceKey, plain: &OpenNamespace, namespace: &Namespace) -> Result<(), StartError> {
        if self.purpose == Purpose::Find {
            return Ok(());
        }
        let Some(backing) = plain.device.persistent() else { return Ok(()) };
        let (subsystem, nsid) = key.clone();
        // A size that the configuration did not have before is wanted.
        let wanted = namespace.drive.size_bytes().filter(|size| plain.drive.size_bytes() != Some(*size));
        if let Some(wanted) = wanted {
            let extended = backing.extend(wanted).map_err(|error| {
                let (subsystem, nsid) = key.clone();
                StartError::Drive { subsystem, nsid, error }
            })?;
            self.extended.extend(extended.map(|before| (Arc::clone(&plain.device), before)));
        }
        let to_bytes = backing.current_bytes(namespace.drive.size_bytes()).map_err(|error| StartError::Drive {
            subsystem,
            nsid,
            error,
        })?;
        let from_bytes = plain.device.geometry().capacity_bytes;
        if to_bytes > from_bytes {
            self.grown.push(Grown { key: key.clone(), from_bytes, to_bytes });
        }
        if let Some(path) = namespace.drive.path()
            && self.id_of(&namespace.drive) != backing.id()
        {
            tracing::warn!(path, "is another file now: what was opened is served until the namespace is taken away");
        }
        Ok(())
    }

    fn sort_drives(&mut self) {
        for subsystem in self.config.enabled_subsystems() {
            let Some(drive) = drive_of(self.config, subsystem) else { continue };
            let is_it = |opened: &OpenDrive| opened.config.is_same(drive) && opened.subsystem.nqn == subsystem.nqn;
            if let Some(at) = self.leaving_drives.iter().position(is_it) {
                let before = self.leaving_drives.swap_remove(at);
                let now = OpenDrive { config: drive.clone(), subsystem: subsystem.clone(), ..before.clone() };
                self.drives_stay.push((before, now));
            }
        }
    }

    /// Gives the ports for which nothing is open.
    fn sort_ports(&mut self) -> Vec<&'c Port> {
        let mut rest = Vec::new();
        for port in self.config.enabled_ports() {
            match self.leaving_ports.iter().position(|listening| listening.port.config.is_same(port)) {
                None => rest.push(port),
                Some(at) => {
                    let before = self.leaving_ports.remove(at);
                    if sockets::is_same(&before.port.config, port) {
                        let now = if before.port.config == *port {
                            Arc::clone(&before.port)
                        } else {
                            Arc::new(before.port.altered(port.clone()))
                        };
                        let bound = before.bound.clone();
                        self.ports_stay.push((before, Listening { port: now, bound }));
                    } else {
                        self.deferred.push(Deferred::Rebind(before.clone(), port));
                        self.leaving_ports.push(before);
                    }
                }
            }
        }
        rest
    }

    /// Takes something now, unless something that leaves is in the way.
    fn take_or_defer(&mut self, deferred: Deferred<'c>) -> Result<(), StartError> {
        if self.is_in_the_way(&deferred) {
            self.deferred.push(deferred);
            return Ok(());
        }
        let device = !matches!(deferred, Deferred::Port(_) | Deferred::Rebind(..));
        match self.take_if_there(deferred.clone()) {
            // A disk and its partitions, a file behind a loop device: who is in the way of whom is
            // the system's business.
            Err(error)
                if device && error.is_in_use() && !(self.leaving.is_empty() && self.leaving_drives.is_empty()) =>
            {
                self.deferred.push(deferred);
                Ok(())
            }
            other => other,
        }
    }

    pub(super) fn is_in_the_way(&self, deferred: &Deferred<'_>) -> bool {
        match deferred {
            Deferred::Rebind(..) => true,
            Deferred::Port(port) => self.leaving_ports.iter().any(|open| collide(&open.port, &port.listen)),
            Deferred::Namespace(..) | Deferred::Drive(..) => {
                let Some(id) = self.wanted_id(deferred) else { return false };
                let mut open = self.leaving.values().map(|plain| &plain.device);
                let mut drives = self.leaving_drives.iter().map(|opened| &opened.backing);
                open.any(|device| is_on(device, &id)) || drives.any(|device| is_on(device, &id))
            }
        }
    }

    /// Whether a device is what the namespace is to store its data in, and is open in the way that
    /// it wants.
    fn is_for(&self, plain: &OpenNamespace, namespace: &Namespace) -> bool {
        match (plain.device.persistent(), &namespace.drive) {
            (Some(backing), drive @ Drive::File(_)) => {
                is_open_as(plain, namespace) && backing.id().is_some_and(|id| self.id_of(drive) == Some(id))
            }
            (None, drive) => plain.drive == *drive && is_open_as(plain, namespace),
            (Some(_), _) => false,
        }
    }

    /// Which backing it is that is wanted.
    pub(super) fn wanted_id(&self, deferred: &Deferred<'_>) -> Option<BackingId> {
        self.id_of(drive_in(deferred)?)
    }
}

/// Whether a device was opened by the same path, whatever is there now, and in the way that the
/// namespace wants.
fn is_at_path(plain: &OpenNamespace, namespace: &Namespace) -> bool {
    plain.device.persistent().is_some() && plain.drive.path() == namespace.drive.path() && is_open_as(plain, namespace)
}

fn is_open_as(plain: &OpenNamespace, namespace: &Namespace) -> bool {
    let geometry = plain.device.geometry();
    let own = geometry.block_bytes.max(512);
    let blocks = namespace.block_size.map_or(own, ebof_manage::config::BlockSize::bytes);
    let way = match (plain.device.file(), &namespace.drive) {
        (Some(file), Drive::File(wish)) => {
            wish.direct.unwrap_or(file.is_block_device()) == file.is_direct() && wish.read_only == geometry.read_only
        }
        _ => true,
    };
    way && blocks == geometry.logical_block_bytes
}

fn is_on(device: &Arc<dyn Device>, id: &BackingId) -> bool {
    device.persistent().and_then(Persistent::id).as_ref() == Some(id)
}

/// What is to be opened.
fn drive_in<'d>(deferred: &'d Deferred<'_>) -> Option<&'d Drive> {
    match deferred {
        Deferred::Namespace(_, namespace) => Some(&namespace.drive),
        Deferred::Drive(drive, _) => Some(&drive.backing),
        Deferred::Port(_) | Deferred::Rebind(..) => None,
    }
}

/// Where it is.
pub(super) fn path_of<'d>(deferred: &'d Deferred<'_>) -> Option<&'d Path> {
    drive_in(deferred)?.path().map(Path::new)
}

/// The path of a file that is not there.
pub(super) fn missing(drive: &Drive) -> Option<PathBuf> {
    drive.path().map(PathBuf::from).filter(|path| !path.exists())
}

/// Whether two ports cannot listen at the same time. Those of TCP and RDMA can, as far as is known
/// here: whether a device has the ports of its own is the system's matter.
pub(super) fn collide(open: &PortState, wanted: &Listen) -> bool {
    let address = open.address;
    let overlap = address.ip() == wanted.address || address.ip().is_unspecified() || wanted.is_wildcard();
    wanted.transport == open.config.listen.transport
        && wanted.port != 0
        && address.port() == wanted.port
        && address.is_ipv4() == wanted.address.is_ipv4()
        && overlap
}
