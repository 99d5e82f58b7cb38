//! The drives of a target, and what all threads and hosts are shown of them: the table of devices,
//! and the model.
//!
//! The configuration's thread and the drives' threads change both. One lock orders them; it is
//! taken before the registry's, and never while a drive's thread is waited for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ebof_backend::Device;
use ebof_drive::VolumeId;
use ebof_drive::health::Usage as Work;
use ebof_fabrics::model::TableError;
use ebof_fabrics::{Backing, DeviceId, Model, Subsystem, Usage};
use ebof_medium::{Stepper, Thin};
use ebof_nvme::Nqn;
use ebof_nvme::event::AsyncEvent;

use crate::device::{DeviceIds, DeviceTable};
use crate::mailbox::Message;
use crate::shared::Shared;
use crate::stats::Kind;

mod actor;
mod faults;
mod jobs;
mod monitor;
mod open;
mod request;
mod sensor;
#[cfg(test)]
mod tests;

pub use actor::DriveOpenError;
pub(crate) use actor::{DriveActor, DriveCallbacks, Event};
use monitor::Observed;
pub(crate) use open::{open, settings};
pub(crate) use request::SubmittedRequest;

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
    /// The namespaces of a drive do not make a table; nothing has changed then.
    pub(crate) fn put_in_force(
        &self,
        plain: Vec<(DeviceId, Arc<dyn Device>)>,
        actors: &[(Nqn, Arc<DriveActor>)],
        mut model: Model,
        show: impl FnOnce(Arc<DeviceTable>, Model),
    ) -> Result<Vec<Arc<DriveActor>>, (Nqn, TableError)> {
        let mut shown = self.shown();
        let mut next = DriveTable { plain, actors: BTreeMap::new() };
        for (nqn, actor) in actors {
            let before = shown.actors.get(nqn).filter(|served| Arc::ptr_eq(&served.actor, actor));
            let served = ServedDrive {
                actor: Arc::clone(actor),
                names: self.names(actor, before.map_or(&BTreeMap::new(), |served| &served.names)),
            };
            if let Some(subsystem) = model.subsystems.iter_mut().find(|subsystem| subsystem.nqn == *nqn) {
                served.adopt(Arc::make_mut(subsystem)).map_err(|error| (nqn.clone(), error))?;
            }
            next.actors.insert(nqn.clone(), served);
        }
        show(Arc::new(next.table()), model);
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
        shared: &Shared,
    ) {
        let mut shown = self.shown();
        let Some(served) = shown.actors.get(nqn) else { return };
        let served = ServedDrive { actor: Arc::clone(&served.actor), names: self.names(&served.actor, &served.names) };
        shown.actors.insert(nqn.clone(), served.clone());
        // Devices first: a queue that learns of a namespace finds its device.
        let table = Arc::new(shown.table());
        shared.post_all(|| Message::Devices(Arc::clone(&table)));
        let mut registry = shared.registry();
        let Some(subsystem) = registry.model().subsystem(nqn) else { return };
        let mut subsystem = Subsystem::clone(subsystem);
        match served.adopt(&mut subsystem) {
            Ok(()) => {
                // Delivered under the lock, so that no queue hears of an older model later.
                let notices = registry.replace_subsystem(Arc::new(subsystem), by);
                shared.deliver(notices);
                shared.deliver(registry.reservation_notices(nqn, reservations));
                events.iter().for_each(|&event| shared.deliver(registry.raise(nqn, event)));
            }
            Err(error) => tracing::error!(%nqn, "the namespaces of the drive cannot be shown: {error}"),
        }
    }

    /// Has every drive publish through `shared`.
    pub(crate) fn connect(shared: &Arc<Shared>, actors: &[(Nqn, Arc<DriveActor>)]) {
        for (nqn, actor) in actors {
            let of_publish: (Weak<Shared>, Nqn) = (Arc::downgrade(shared), nqn.clone());
            let of_observe = of_publish.clone();
            let of_send_event = of_publish.clone();
            actor.join(DriveCallbacks {
                publish: Box::new(move |by, reservations, events| {
                    let (shared, nqn) = &of_publish;
                    if let Some(shared) = shared.upgrade() {
                        shared.drives.publish(nqn, by, reservations, events, &shared);
                    }
                }),
                send_event: Box::new(move |controller, event| {
                    let (shared, nqn) = &of_send_event;
                    if let Some(shared) = shared.upgrade() {
                        let registry = shared.registry();
                        shared.deliver(registry.raise_on(nqn, controller, event));
                    }
                }),
                observe: Box::new(move |after| {
                    let (shared, nqn) = &of_observe;
                    shared.upgrade().map(|shared| observe(&shared, nqn, after)).unwrap_or_default()
                }),
            });
        }
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

impl DriveTable {
    fn table(&self) -> DeviceTable {
        let plain = self.plain.iter().map(|(id, device)| (*id, Arc::clone(device)));
        let named = self.actors.values().flat_map(|served| served.names.values());
        DeviceTable::new(plain.chain(named.map(|(id, device)| (*id, Arc::clone(device)))))
    }
}

impl ServedDrive {
    /// Makes `subsystem` that of the drive.
    fn adopt(&self, subsystem: &mut Subsystem) -> Result<(), TableError> {
        subsystem.adopt(self.actor.view(), |namespace| {
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

/// What the hosts of a drive did since the target was started.
fn observe(shared: &Shared, nqn: &Nqn, after: u64) -> Observed {
    let mut usage: BTreeMap<u32, Work> = BTreeMap::new();
    let mut writers: BTreeMap<u32, BTreeMap<String, u64>> = BTreeMap::new();
    let totals = shared.totals();
    for (series, kinds) in totals.iter().filter(|(series, _)| series.subsystem == nqn.as_str()) {
        let [read, write] = [Kind::Read, Kind::Write].map(|kind| kinds[kind as usize]);
        usage.entry(series.nsid).or_default().add(&Work {
            bytes_read: read.bytes,
            bytes_written: write.bytes,
            read_commands: read.commands,
            write_commands: write.commands,
        });
    }
    for (series, kinds) in totals.iter().filter(|(series, _)| series.subsystem == nqn.as_str()) {
        let count = kinds[Kind::Write as usize].commands;
        *writers.entry(series.nsid).or_default().entry(series.host.clone()).or_default() += count;
    }
    let registry = shared.registry();
    let counts = registry.subsystem_counts(nqn);
    let errors = registry.errors_since(nqn, after);
    Observed { errors, usage, writers, busy_ms: counts.busy_ms, media_errors: counts.media_errors }
}
