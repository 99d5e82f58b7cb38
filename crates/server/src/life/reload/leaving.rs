//! What is open and does not stay as it is: what of it a configuration wants after all, and what
//! stands in the way of something else.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_backend::{BackingId, Device, Persistent, Spec};
use ebof_clock::Clock;
use ebof_manage::config::{ManagedDrive, Namespace, Port, Subsystem};
use ebof_manage::{Drive, Listen};

use super::deferred::Deferred;
use crate::environment::Storage;
use crate::life::control::Listening;
use crate::life::startup::{NamespaceKey, OpenDrive, OpenNamespace};
use crate::ports::port::PortState;

/// How long requests may take to end on what is to be released.
pub(super) const DRAIN: Duration = Duration::from_secs(10);

/// What is open, less what was found to stay. It is removed when it is closed or has its new name.
pub(super) struct Leaving {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) namespaces: BTreeMap<NamespaceKey, OpenNamespace>,
    pub(super) drives: Vec<OpenDrive>,
    pub(super) ports: Vec<Listening>,
}

/// What was released, and has to be taken again on the way back.
#[derive(Default)]
pub(super) struct Released {
    /// Hidden from hosts.
    pub(super) namespaces: BTreeSet<NamespaceKey>,
    /// Closed: drives and their subsystems as they were.
    pub(super) drives: Vec<(ManagedDrive, Subsystem)>,
    pub(super) backings: Vec<Arc<dyn Device>>,
    pub(super) ports: Vec<Arc<PortState>>,
}

impl Leaving {
    /// Takes out the device of a namespace, if that is to store its data there.
    pub(super) fn keep_namespace(&mut self, key: &NamespaceKey, namespace: &Namespace) -> Option<OpenNamespace> {
        let plain = self.namespaces.get(key)?;
        if self.is_for(plain, namespace) || is_at_path(plain, namespace) { self.namespaces.remove(key) } else { None }
    }

    /// Another namespace whose device this one is to have, unless that is `moving` already.
    pub(super) fn find_moved(
        &self,
        namespace: &Namespace,
        moving: &[(NamespaceKey, NamespaceKey)],
    ) -> Option<(&NamespaceKey, &OpenNamespace)> {
        let moving: HashSet<&NamespaceKey> = moving.iter().map(|(from, _)| from).collect();
        let mut keys = self.namespaces.iter().filter(|(key, _)| !moving.contains(key));
        keys.find(|(_, plain)| plain.device.persistent().is_some() && self.is_for(plain, namespace))
    }

    /// Takes out a drive that stays.
    pub(super) fn keep_drive(&mut self, drive: &ManagedDrive, subsystem: &Subsystem) -> Option<OpenDrive> {
        let is_it = |opened: &OpenDrive| opened.config.is_same(drive) && opened.subsystem.nqn == subsystem.nqn;
        let at = self.drives.iter().position(is_it)?;
        Some(self.drives.swap_remove(at))
    }

    /// Takes out a port that listens there already.
    pub(super) fn keep_port(&mut self, port: &Port) -> Option<Listening> {
        let at = self.ports.iter().position(|listening| listening.port.config.is_same(port))?;
        Some(self.ports.remove(at))
    }

    /// Whether a drive or a device is left.
    pub(super) fn has_devices(&self) -> bool {
        !(self.namespaces.is_empty() && self.drives.is_empty())
    }

    /// Whether something of this stands in the way of what is to be opened.
    pub(super) fn is_in_the_way(&self, deferred: &Deferred<'_>) -> bool {
        match deferred {
            Deferred::Rebind(..) => true,
            Deferred::Port(port) => self.ports.iter().any(|open| collide(&open.port, &port.listen)),
            Deferred::Namespace(..) | Deferred::Drive(..) => {
                let Some(id) = deferred.backing_id(&*self.storage) else { return false };
                let mut open = self.namespaces.values().map(|plain| &plain.device);
                let mut drives = self.drives.iter().map(|opened| &opened.backing);
                open.any(|device| is_on(device, &id)) || drives.any(|device| is_on(device, &id))
            }
        }
    }

    /// Whether a device is what the namespace is to store its data in, and is open in the way that
    /// it wants.
    fn is_for(&self, plain: &OpenNamespace, namespace: &Namespace) -> bool {
        match (plain.device.persistent(), &namespace.drive) {
            (Some(backing), drive @ Drive::File(_)) => {
                let wanted = || self.storage.id(&Spec::from(drive));
                is_open_as(plain, namespace) && backing.id().is_some_and(|id| wanted() == Some(id))
            }
            (None, drive) => plain.drive == *drive && is_open_as(plain, namespace),
            (Some(_), _) => false,
        }
    }

    /// The ports that cannot listen beside one of these.
    fn colliding(&self, wanted: &Listen) -> impl Iterator<Item = &Arc<PortState>> {
        self.ports.iter().map(|open| &open.port).filter(|port| collide(port, wanted))
    }

    /// What of it has to be released for what is to be opened, and for devices that move to another
    /// namespace.
    pub(super) fn choose(&self, deferred: &[Deferred<'_>], moves: &[(NamespaceKey, NamespaceKey)]) -> Released {
        let mut released = Released::default();
        released.namespaces.extend(moves.iter().map(|(from, _)| from.clone()));
        let mut all = false;
        for wanted in deferred {
            match wanted {
                Deferred::Rebind(before, _) => released.ports.push(Arc::clone(&before.port)),
                Deferred::Port(port) => released.ports.extend(self.colliding(&port.listen).cloned()),
                // What it needs is unknown: release all that leaves.
                _ if !self.is_in_the_way(wanted) => all = true,
                _ => {}
            }
        }
        let ids: HashSet<BackingId> = deferred.iter().filter_map(|wanted| wanted.backing_id(&*self.storage)).collect();
        let is_wanted = |device: &Arc<dyn Device>| {
            all || device.persistent().and_then(Persistent::id).is_some_and(|id| ids.contains(&id))
        };
        let plain = self.namespaces.iter().filter(|(_, plain)| is_wanted(&plain.device));
        released.namespaces.extend(plain.map(|(key, _)| key.clone()));
        let drives = self.drives.iter().filter(|opened| is_wanted(&opened.backing));
        released.drives = drives.map(|opened| (opened.config.clone(), opened.subsystem.clone())).collect();
        released
    }

    /// All devices and the backings of all drives, which are not kept here any more.
    pub(super) fn take_devices(&mut self) -> Vec<Arc<dyn Device>> {
        let drives = self.drives.drain(..).map(|opened| opened.backing);
        std::mem::take(&mut self.namespaces).into_values().map(|plain| plain.device).chain(drives).collect()
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
            wish.direct.unwrap_or(file.is_block_device()) == file.bypasses_cache()
                && wish.read_only == geometry.read_only
        }
        _ => true,
    };
    way && blocks == geometry.logical_block_bytes
}

fn is_on(device: &Arc<dyn Device>, id: &BackingId) -> bool {
    device.persistent().and_then(Persistent::id).as_ref() == Some(id)
}

/// Whether two ports cannot listen at the same time. Those of TCP and RDMA can, as far as is known
/// here: whether a device has the ports of its own is the system's matter.
fn collide(open: &PortState, wanted: &Listen) -> bool {
    let address = open.address;
    let overlap = address.ip() == wanted.address || address.ip().is_unspecified() || wanted.is_wildcard();
    wanted.transport == open.config.listen.transport
        && wanted.port != 0
        && address.port() == wanted.port
        && address.is_ipv4() == wanted.address.is_ipv4()
        && overlap
}

/// Waits until nothing is under way on a device that has so many owners, beside those that use it;
/// `false` if something is at `end`.
pub(super) fn drain(device: &Arc<dyn Device>, owners: usize, clock: &Clock, end: Instant) -> bool {
    let is_idle = || Arc::strong_count(device) <= owners && device.persistent().is_none_or(Persistent::is_idle);
    while !is_idle() {
        if clock.now() >= end {
            return false;
        }
        clock.sleep(Duration::from_millis(1));
    }
    true
}
