//! The drives of a target, and what all threads and hosts are shown of them: the table of devices,
//! and the model.
//!
//! The configuration's thread and the drives' threads change both. One lock orders them; it is
//! taken before the registry's, and never while a drive's thread is waited for.

mod actor;
mod audience;
pub(crate) mod device;
mod direct_ports;
pub(crate) mod drain;
mod faults;
mod handover;
mod jobs;
mod leftovers;
mod log;
mod monitor;
mod open;
mod open_error;
mod owed_ends;
mod report;
mod request;
mod sensor;
mod start;
mod state;
mod target;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebof_backend::Device;
use ebof_drive::VolumeId;
use ebof_fabrics::model::TableError;
use ebof_fabrics::{Backing, DeviceId, Function, Model, PortId, Registry, Subsystem, Usage, adopt_drive};
use ebof_medium::{Stepper, Thin};
use ebof_nvme::Nqn;
use ebof_nvme::event::AsyncEvent;

pub(crate) use actor::DriveActor;
pub(crate) use audience::Audience;
use device::{DeviceIds, DeviceTable};
use direct_ports::DirectPorts;
pub(crate) use handover::Lost;
pub(crate) use monitor::Observed;
pub(crate) use open::{Opened, open, settings};
pub use open_error::DriveOpenError;
pub(crate) use request::{DriveReply, SubmittedRequest};
pub(crate) use target::{DriveCallbacks, Event};

/// What runs the drives.
pub(crate) enum DriveThreads<'a> {
    /// Threads of each drive's own.
    Own,
    /// The caller, which takes them from here and steps them.
    Stepped(&'a mut Vec<SteppedDrive>),
}

/// A drive without threads.
pub(crate) struct SteppedDrive {
    pub(crate) actor: Arc<DriveActor>,
    pub(crate) stepper: Stepper,
}

/// What hosts and threads are shown of a target's drives, behind one lock.
#[derive(Default)]
pub(crate) struct Drives {
    state: Mutex<DriveTable>,
    ids: DeviceIds,
}

/// The devices and drives of a target.
#[derive(Default)]
pub(crate) struct DriveTable {
    /// Devices of the configuration's own namespaces.
    plain: Vec<(DeviceId, Arc<dyn Device>)>,
    /// Drive actors by the subsystem of the drive.
    actors: BTreeMap<Nqn, ServedDrive>,
    /// Ports by name: functions are given to them.
    ports: BTreeMap<String, PortId>,
    /// Subsystems of functions that hosts are kept from.
    withheld: BTreeMap<Nqn, Withheld>,
    direct: DirectPorts,
}

/// Where hosts are kept from a function that changes its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// Everywhere.
    All,
    /// At some ports.
    Ports {
        /// They find it there already, beside the ports that it has.
        joined: BTreeSet<PortId>,
        /// They do not come there any more. Those that are there find its namespaces inaccessible,
        /// and take another path.
        leaving: BTreeSet<PortId>,
        /// It is there no more.
        left: BTreeSet<PortId>,
    },
}

/// A drive, and the names of its namespaces' devices.
#[derive(Clone)]
struct ServedDrive {
    actor: Arc<DriveActor>,
    names: BTreeMap<VolumeId, (DeviceId, Arc<dyn Device>)>,
}

impl Drives {
    /// With the names of devices that `ids` gives out.
    pub(crate) fn new(ids: DeviceIds) -> Self {
        Self { state: Mutex::default(), ids }
    }

    /// The actor of the drive behind a subsystem.
    pub(crate) fn actor(&self, subsystem: &Nqn) -> Option<Arc<DriveActor>> {
        Some(Arc::clone(&self.shown().actors.get(subsystem)?.actor))
    }

    /// The namespace of a drive behind `device`, with the drive's actor.
    pub(crate) fn thin(&self, subsystem: &Nqn, device: DeviceId) -> Option<(Arc<DriveActor>, Arc<Thin>)> {
        let shown = self.shown();
        let served = shown.actors.get(subsystem)?;
        let (&volume, _) = served.names.iter().find(|(_, (named, _))| *named == device)?;
        Some((Arc::clone(&served.actor), served.actor.medium().thin(volume)?))
    }

    /// All actors.
    pub(crate) fn actors(&self) -> Vec<(Nqn, Arc<DriveActor>)> {
        self.shown().actors.iter().map(|(nqn, served)| (nqn.clone(), Arc::clone(&served.actor))).collect()
    }

    fn shown(&self) -> MutexGuard<'_, DriveTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows what the configuration says: its own devices, its drives, and `model` with the
    /// namespaces of the drives put in. Gives the actors that are no longer needed, to be stopped.
    ///
    /// # Errors
    /// The namespaces of a drive do not make a table, or `show` has failed; nothing has changed
    /// then.
    pub(crate) fn put_in_force(
        &self,
        plain: Vec<(DeviceId, Arc<dyn Device>)>,
        actors: &[(Nqn, Arc<DriveActor>)],
        ports: BTreeMap<String, PortId>,
        mut model: Model,
        show: impl FnOnce(Arc<DeviceTable>, Model) -> io::Result<()>,
    ) -> Result<Vec<Arc<DriveActor>>, NotShown> {
        let mut shown = self.shown();
        let (withheld, direct) = (shown.withheld.clone(), shown.direct.clone());
        let mut next = DriveTable { plain, actors: BTreeMap::new(), ports, withheld, direct };
        for (nqn, actor) in actors {
            let before = shown.actors.get(nqn).filter(|served| Arc::ptr_eq(&served.actor, actor));
            let served = ServedDrive {
                actor: Arc::clone(actor),
                names: self.names(actor, before.map_or(&BTreeMap::new(), |served| &served.names)),
            };
            if let Some(at) = model.subsystems.iter().position(|subsystem| subsystem.nqn == *nqn) {
                let own = Subsystem::clone(&model.subsystems[at]);
                let subsystems = served.subsystems(own, &next.ports);
                let subsystems = subsystems.map_err(|error| NotShown::Namespaces(nqn.clone(), error))?;
                model.subsystems.splice(at..=at, subsystems.into_iter().map(Arc::new));
            }
            next.actors.insert(nqn.clone(), served);
        }
        next.direct.settle_model(&mut model);
        next.withhold(&mut model);
        show(Arc::new(next.table()), model).map_err(NotShown::NotStored)?;
        let before = std::mem::replace(&mut *shown, next);
        let served = |actor: &Arc<DriveActor>| shown.actors.values().any(|served| Arc::ptr_eq(&served.actor, actor));
        Ok(before.actors.into_values().map(|served| served.actor).filter(|actor| !served(actor)).collect())
    }

    /// Shows what the drive of a subsystem has become, by a command of host `by` if it was one. On
    /// the drive's thread.
    pub(crate) fn publish(
        &self,
        nqn: &Nqn,
        by: Option<&Nqn>,
        reservations: &[Event],
        events: &[AsyncEvent],
        audience: &dyn Audience,
    ) {
        let mut free = Vec::new();
        let mut shown = self.shown();
        self.name_devices(&mut shown, nqn, audience);
        let mut registry = audience.registry();
        if let Some(ports) = shown.publish(nqn, by, &mut registry, audience) {
            free = ports;
            audience.deliver(registry.reservation_notices(nqn, reservations));
            events.iter().for_each(|&event| audience.deliver(registry.raise(nqn, event)));
        }
        drop(registry);
        let waiting = shown.waiting_for(&free, nqn);
        drop(shown);
        waiting.iter().for_each(|drive| self.publish(drive, None, &[], &[], audience));
    }

    /// Whether a function could be shown at a port: it is there, serves more than discovery, and,
    /// if it is a direct one, has no other subsystem.
    pub(crate) fn is_free_for(&self, port: &str, nqn: &Nqn) -> bool {
        let shown = self.shown();
        shown.ports.get(port).is_some_and(|port| shown.direct.is_free_for(*port, nqn))
    }

    /// The identifiers of ports.
    pub(crate) fn port_ids<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> BTreeSet<PortId> {
        let shown = self.shown();
        names.into_iter().filter_map(|name| shown.ports.get(name).copied()).collect()
    }

    /// Keeps a function's subsystem from hosts: those that it has are told to leave, and those that
    /// come may try again.
    pub(crate) fn withhold(&self, nqn: &Nqn, what: Withheld, audience: &dyn Audience) {
        let mut shown = self.shown();
        shown.withheld.insert(nqn.clone(), what);
        let mut registry = audience.registry();
        let mut model = Model::clone(registry.model());
        model.generation += 1;
        shown.withhold(&mut model);
        let notices = registry.replace_model(Arc::new(model));
        audience.deliver(notices);
    }

    /// Shows hosts a function's subsystem again, at the port that it is given to now.
    pub(crate) fn show_again(&self, drive: &Nqn, nqn: &Nqn, audience: &dyn Audience) {
        let mut shown = self.shown();
        shown.withheld.remove(nqn);
        self.name_devices(&mut shown, drive, audience);
        let mut registry = audience.registry();
        // With its ports first: until then a host may try again, instead of learning that there is
        // no such subsystem.
        let free = shown.publish(drive, None, &mut registry, audience).unwrap_or_default();
        let mut model = Model::clone(registry.model());
        model.generation += 1;
        model.returning.retain(|returning| returning != nqn);
        let notices = registry.replace_model(Arc::new(model));
        audience.deliver(notices);
        drop(registry);
        let waiting = shown.waiting_for(&free, drive);
        drop(shown);
        waiting.iter().for_each(|drive| self.publish(drive, None, &[], &[], audience));
    }

    /// Gives names to a drive's devices, and shows all to the queues: before they learn of a
    /// namespace they find its device.
    fn name_devices(&self, shown: &mut DriveTable, nqn: &Nqn, audience: &dyn Audience) {
        let Some(served) = shown.actors.get_mut(nqn) else { return };
        served.names = self.names(&served.actor, &served.names);
        let table = Arc::new(shown.table());
        audience.show_devices(&table);
    }

    /// The devices of a drive's namespaces; those that had a name keep it. A volume that no
    /// namespace has is none: it is left of a request that failed, and another one may be made
    /// under its identifier.
    fn names(
        &self,
        actor: &DriveActor,
        before: &BTreeMap<VolumeId, (DeviceId, Arc<dyn Device>)>,
    ) -> BTreeMap<VolumeId, (DeviceId, Arc<dyn Device>)> {
        let named = |(volume, device): (VolumeId, _)| {
            let known = before.get(&volume).cloned();
            (volume, known.unwrap_or_else(|| (self.ids.next(), device)))
        };
        let view = actor.view();
        let is_used = |volume: VolumeId| view.namespaces.iter().any(|(_, namespace)| namespace.volume == volume);
        actor.devices().into_iter().filter(|(volume, _)| is_used(*volume)).map(named).collect()
    }
}

/// Why hosts cannot be shown what the configuration says.
#[derive(Debug)]
pub(crate) enum NotShown {
    /// The namespaces of a subsystem do not make a table.
    Namespaces(Nqn, TableError),
    /// What they are shown cannot be remembered.
    NotStored(io::Error),
}

impl DriveTable {
    /// Shows what a drive is now, by a command of host `by` if it was one, if that is possible.
    /// Gives the direct ports that are free now.
    fn publish(
        &mut self,
        nqn: &Nqn,
        by: Option<&Nqn>,
        registry: &mut Registry,
        audience: &dyn Audience,
    ) -> Option<Vec<PortId>> {
        let (served, subsystem) = (self.actors.get(nqn)?, registry.model().subsystem(nqn)?);
        let mut subsystems = match served.subsystems(Subsystem::clone(subsystem), &self.ports) {
            Ok(subsystems) => subsystems,
            Err(error) => {
                tracing::error!(%nqn, "the namespaces of the drive cannot be shown: {error}");
                return None;
            }
        };
        let free = self.direct.settle_drive(&mut subsystems);
        for subsystem in &mut subsystems {
            if let Some(withheld) = self.withheld.get(&subsystem.nqn) {
                withheld.apply(subsystem);
            }
        }
        if registry.objects().would_note(&subsystems) {
            let mut objects = registry.objects().clone();
            objects.note_all(&subsystems);
            // The drive has made it already; what is forgotten, only another process would know.
            if let Err(error) = audience.store(&objects) {
                tracing::error!(%nqn, "which namespaces are served cannot be stored: {error}");
            }
        }
        // Delivered under the lock, so that no queue hears of an older model later.
        let notices = registry.replace_subsystems(subsystems, by);
        audience.follow(registry.model());
        audience.deliver(notices);
        Some(free)
    }

    /// Drives beside `nqn` with functions that are given to one of these ports.
    fn waiting_for(&self, free: &[PortId], nqn: &Nqn) -> Vec<Nqn> {
        let wants = |served: &ServedDrive| {
            let view = served.actor.view();
            let given = view.functions.values().flat_map(|function| function.ports.iter());
            given.filter_map(|port| self.ports.get(port)).any(|port| free.contains(port))
        };
        let others = self.actors.iter().filter(|(other, served)| *other != nqn && !free.is_empty() && wants(served));
        others.map(|(other, _)| other.clone()).collect()
    }

    /// Takes the ports from the subsystems that hosts are kept from.
    fn withhold(&self, model: &mut Model) {
        for subsystem in &mut model.subsystems {
            let Some(withheld) = self.withheld.get(&subsystem.nqn) else { continue };
            withheld.apply(Arc::make_mut(subsystem));
            if !model.returning.contains(&subsystem.nqn) {
                model.returning.push(subsystem.nqn.clone());
            }
        }
    }

    fn table(&self) -> DeviceTable {
        let plain = self.plain.iter().map(|(id, device)| (*id, Arc::clone(device)));
        let named = self.actors.values().flat_map(|served| served.names.values());
        DeviceTable::new(plain.chain(named.map(|(id, device)| (*id, Arc::clone(device)))))
    }
}

impl Withheld {
    fn apply(&self, subsystem: &mut Subsystem) {
        match self {
            Self::All => subsystem.ports.clear(),
            Self::Ports { joined, leaving, left } => {
                let new = joined.iter().filter(|port| !subsystem.ports.contains(port)).copied();
                let new: Vec<PortId> = new.collect();
                subsystem.ports.extend(new);
                subsystem.ports.retain(|port| !left.contains(port));
                if let Some(function) = &mut subsystem.function {
                    function.leaving.clone_from(leaving);
                }
            }
        }
    }
}

impl ServedDrive {
    /// The subsystem of the drive, made of its own, and those of the drive's functions.
    fn subsystems(&self, mut own: Subsystem, ports: &BTreeMap<String, PortId>) -> Result<Vec<Subsystem>, TableError> {
        self.adopt(&mut own)?;
        let functions = Function::subsystems(&own, |port| ports.get(port).copied());
        Ok([own].into_iter().chain(functions).collect())
    }

    /// Makes `subsystem` that of the drive.
    fn adopt(&self, subsystem: &mut Subsystem) -> Result<(), TableError> {
        adopt_drive(subsystem, self.actor.shown(), |namespace| {
            let (device, backing) = self.names.get(&namespace.volume)?;
            let geometry = backing.geometry();
            let thin = self.actor.medium().thin(namespace.volume)?;
            Some(Backing {
                device: *device,
                used: Usage::new(move || thin.allocated_bytes()),
                deallocates: geometry.deallocates,
                volatile_cache: geometry.volatile_cache,
                read_only: geometry.read_only,
            })
        })
    }
}
