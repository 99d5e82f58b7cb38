//! The state that queues share: the model in force, the controllers with their connections and
//! timers, and the notices of changes. `admission` decides who may connect, `execute` executes the
//! commands that need this state.

mod admission;
mod announced;
mod controllers;
mod drain;
mod execute;
mod fence;
mod generated;
mod holders;
mod host_ids;
mod info;
mod instances;
mod objects;
mod proof;
mod protection;
mod replaced;
mod reset;
mod waiting;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_authentication::response::Names;
use ebof_authentication::{Identity, KeyMaterial, Psk};
use ebof_drive::FunctionId;
use ebof_drive::error_log::Error;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::feature::KeepAliveTimer;
use ebof_nvme::log::ReservationEvent;
use ebof_nvme::property::Cap;
use ebof_nvme::{ControllerId, HostId, Nqn, Nsid, Status};

use crate::admin::identify::KEEP_ALIVE_GRANULARITY_MS;
use crate::admin::memory;
use crate::association::error_log::ErrorLog;
use crate::association::{Association, Counts};
use crate::connect::authentication;
use crate::connect::{self, Arrival, Attachment, ConnectRequest, Refusal};
use crate::controller::Kind;
use crate::model::discovery::{self, Entries as _};
use crate::model::function::{self, Function};
use crate::model::secrets::{PskSource, SecureChannelId};
use crate::model::{DeviceId, Limits, Model, PortId, Subsystem};
use crate::notice::{CloseReason, Notice, Notices};
use crate::queue::Queue;
use crate::task::executing::Executing;
use crate::task::handle::Handle;
use crate::task::outcome::Fault;
use crate::task::step::Step;
use admission::Admission;
pub use announced::Announced;
use controllers::{ControllerEntry, ControllerKey, Controllers, RemovedQueue, no_longer_served};
pub use controllers::{DRAINING_MAX, SILENT_MS};
use drain::Drains;
pub use drain::{CONNECT_HOLD_MS, Drain, SLOW_DRAIN_MS};
use execute::SharedCommand;
pub use fence::FENCE_MS;
use fence::Fences;
use generated::GeneratedPsks;
use holders::{Holder, Holders};
use host_ids::ProvenHostIds;
pub use info::{ControllerInfo, QueueInfo};
pub use objects::{ObjectRecord, Objects};
use proof::Proving;
use protection::Protection;
pub use protection::ProtectionChange;
use replaced::Replaced;
pub use waiting::WAITING_MAX;
use waiting::WaitingControllers;

/// The state that queues share. It has no lock of its own: the target puts it behind one.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
    model: Arc<Model>,
    /// The model's subsystems, with the changes by hosts.
    effective: BTreeMap<Nqn, Arc<Subsystem>>,
    /// Write protection that hosts set, where it differs from the model's.
    protection: Protection,
    /// What NSIDs have named.
    objects: Objects,
    /// Which hosts know of all changes of these.
    holders: Holders,
    controllers: Controllers,
    drains: Drains,
    /// Errors of all controllers of a drive.
    errors: BTreeMap<Nqn, Arc<ErrorLog>>,
    /// The counters of queues that have ended.
    retired: BTreeMap<Nqn, Counts>,
    /// PSKs for TLS that authentication has generated.
    generated_psks: GeneratedPsks,
    proven_host_ids: ProvenHostIds,
    /// What Connect has done to others.
    notices: Notices,
}

impl Registry {
    /// An empty registry that serves `model`. `seed` decides which controller IDs are assigned
    /// first, so that a host of an earlier process does not reach another host's controller.
    #[must_use]
    pub fn new(limits: Limits, model: Arc<Model>, seed: u64) -> Self {
        Self::with_objects(limits, model, seed, Objects::default())
    }

    /// The same after an earlier process, which has served `objects`.
    #[must_use]
    pub fn with_objects(limits: Limits, model: Arc<Model>, seed: u64, mut objects: Objects) -> Self {
        objects.note(&model);
        let effective = model.subsystems.iter().map(|subsystem| (subsystem.nqn.clone(), Arc::clone(subsystem)));
        Self {
            limits,
            effective: effective.collect(),
            model,
            protection: Protection::default(),
            objects,
            holders: Holders::default(),
            controllers: Controllers::new(seed),
            drains: Drains::default(),
            errors: BTreeMap::new(),
            retired: BTreeMap::new(),
            generated_psks: GeneratedPsks::default(),
            proven_host_ids: ProvenHostIds::default(),
            notices: Notices::new(),
        }
    }

    /// The model in force.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// What NSIDs have named so far.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Host identifiers belong to the hosts that have proven them to an earlier process, as far as
    /// these still have a key here.
    pub fn restore_host_ids(&mut self, proven: impl IntoIterator<Item = (HostId, Nqn)>) {
        self.proven_host_ids = ProvenHostIds::restored(proven);
        self.proven_host_ids.retain_hosts(|host| self.model.can_prove(host));
    }

    /// How often hosts have proven new host identifiers or lost them, and all that are proven;
    /// `None` if that was `seen` times.
    #[must_use]
    pub fn host_ids_after(&self, seen: u64) -> Option<(u64, Vec<(HostId, Nqn)>)> {
        self.proven_host_ids.after(seen)
    }

    /// Decides a [`Task::Connect`](crate::Task::Connect); `data` is the host's Connect data. After
    /// a refusal another Connect may follow on the queue. The caller delivers what
    /// [`take_notices`](Self::take_notices) has then.
    pub fn connect(
        &mut self,
        queue: &mut Queue,
        executing: Executing,
        data: &[u8],
        arrival: &Arrival,
        now_ms: u64,
    ) -> (Step, Option<Refusal>) {
        let (step, refusal) = self.admit(queue, executing, data, arrival, now_ms);
        // Where no proof is demanded, the gate opens at once.
        if queue.live().is_some_and(|live| !live.is_due()) {
            self.open(queue, now_ms);
        }
        (step, refusal)
    }

    /// The same as far as the gate, which stays shut.
    fn admit(
        &mut self,
        queue: &mut Queue,
        executing: Executing,
        data: &[u8],
        arrival: &Arrival,
        now_ms: u64,
    ) -> (Step, Option<Refusal>) {
        let request = match connect::decode(&executing, data) {
            Ok(request) => request,
            Err((reason, host, subsystem)) => return admission::refuse(queue, executing, reason, host, subsystem),
        };
        Admission::new(self, &request, arrival, now_ms).decide(queue, executing)
    }

    /// Makes `queue` the queue of a host that is attached directly, like a Connect: for the same
    /// hosts, within the same limits. Unlike a Connect, an I/O queue does not wait for the host's
    /// earlier ones: it is refused while one of them drains. Nor are the host's other queues looked
    /// at: call this once the ends of its earlier queues are known ([`ending`](Self::ending)).
    ///
    /// # Errors
    /// It is refused. The refusal is for the connection log.
    pub fn attach(
        &mut self,
        queue: &mut Queue,
        attachment: &Attachment,
        arrival: &Arrival,
        now_ms: u64,
    ) -> Result<(), Refusal> {
        let request = ConnectRequest::from(attachment);
        match Admission::new(self, &request, arrival, now_ms).decide_attached() {
            Ok(live) => {
                queue.go_live(live);
                self.open(queue, now_ms);
                Ok(())
            }
            Err(reason) => {
                let host = Some(request.host);
                let subsystem = Some(request.subsystem);
                Err(Refusal { reason, status: reason.fault().status, queue: attachment.queue, host, subsystem })
            }
        }
    }

    /// Opens the gate of a queue that Connect has succeeded on. Only now has its host an effect on
    /// others.
    fn open(&mut self, queue: &mut Queue, now_ms: u64) {
        let key = queue.live().and_then(|live| self.controllers.of_handle(live.handle));
        let shown = key.and_then(|key| if queue.is_admin() { self.come(key, now_ms) } else { self.shown_to(key) });
        queue.open(shown);
    }

    /// The subsystem as the I/O queues of a controller are shown it.
    fn shown_to(&self, key: ControllerKey) -> Option<Arc<Subsystem>> {
        let entry = self.controllers.entry(key);
        // It may have been removed: then the controller is about to end.
        let subsystem = self.effective.get(&entry.association.subsystem)?;
        Some(entry.views(subsystem).1)
    }

    /// The host of a controller is there from now on. Returns its subsystem as the controller is
    /// shown it, unless it is for discovery: of what its host may hold, other objects may be behind
    /// the NSIDs now.
    fn come(&mut self, key: ControllerKey, now_ms: u64) -> Option<Arc<Subsystem>> {
        let owns_host_id = self.controllers.owns_host_id(key);
        let entry = self.controllers.entry_mut(key);
        entry.is_open = true;
        let association = &entry.association;
        if owns_host_id {
            self.proven_host_ids.note(association.host_id(), &association.host);
        }
        let subsystem = self.effective.get(&association.subsystem).filter(|_| !association.discovery)?;
        let shown = entry.shown(subsystem);
        let holder = Holder::of(association);
        let count = self.objects.changes_count();
        let knows = self.holders.come(holder, association.is_memory_based(), count, now_ms);
        let missed = |nsid| self.objects.last_change(&shown.nqn, nsid) > knows;
        entry.replaced = Replaced::of(self.objects.of(&shown.nqn), &shown, missed);
        entry.note_holder(&mut self.holders, &self.objects);
        let (admin, _) = entry.replaced.views(shown);
        Some(admin)
    }

    /// Executes a [`Task::Shared`](crate::Task::Shared) command of `queue`. The caller delivers the
    /// notices before it sends the completion, even if the step is a refusal.
    ///
    /// # Panics
    /// It is another command: a fault of the caller.
    pub fn execute(&mut self, queue: &mut Queue, executing: Executing, now_ms: u64) -> (Step, Notices) {
        if authentication::is_one(executing.opcode(), executing.fctype()) {
            let mut notices = Notices::new();
            let outcome = Proving { registry: self, now_ms, notices: &mut notices }.decide(queue, &executing);
            return (queue.conclude(executing, outcome), notices);
        }
        let mut notices = Notices::new();
        let key = queue.live().and_then(|live| self.controllers.of_handle(live.handle));
        if let (Some(_), Some(subsystem)) = (key, queue.io_subsystem().cloned()) {
            let outcome = self.controllers.report(&subsystem, &executing);
            return (queue.conclude(executing, outcome), notices);
        }
        let outcome = match (key, queue.controller_mut()) {
            (Some(key), Some(controller)) => {
                SharedCommand { registry: self, key, executing: &executing, now_ms, notices: &mut notices }
                    .decide(controller)
            }
            // Its connection, or its controller, has ended.
            _ => Err(Fault::transient(Status::ABORTED_SQ_DELETION)),
        };
        (queue.conclude(executing, outcome), notices)
    }

    /// Installs `model`. The caller delivers the notices. Devices that the new model does not have
    /// may be closed when every queue has processed its notice and its commands have completed.
    pub fn replace_model(&mut self, model: Arc<Model>) -> Notices {
        self.replace(model, None)
    }

    /// The controllers that would end with this model, by subsystem and number, and why.
    #[must_use]
    pub fn ended_by(&self, model: &Model) -> Vec<(Nqn, ControllerId, CloseReason)> {
        self.controllers.ended_by(model)
    }

    /// The same, after a command of host `by`, which knows about the change. Other hosts are shown
    /// each replaced namespace as gone before they are shown another one with its NSID.
    fn replace(&mut self, model: Arc<Model>, by: Option<&Nqn>) -> Notices {
        self.objects.note(&model);
        let last = core::mem::replace(&mut self.model, model);
        self.protection.follow(&last, &self.model);
        let Self { generated_psks, controllers, model, .. } = self;
        let has_lost_one = |host: &Nqn| last.has_more_secrets(model, host);
        let is_live = |channel| controllers.have_channel(channel);
        generated_psks.follow_secrets(|host| model.secrets.contains_key(host), has_lost_one, is_live);
        self.proven_host_ids.retain_hosts(|host| self.model.can_prove(host));
        let next = self.model.subsystems.iter().map(|one| (one.nqn.clone(), self.protection.of(one)));
        let before = core::mem::replace(&mut self.effective, next.collect());
        self.retired.retain(|nqn, _| self.effective.contains_key(nqn));
        self.errors.retain(|nqn, _| self.effective.contains_key(nqn));
        let (effective, discovery) = (&self.effective, &self.model.discovery.nqn);
        self.controllers.retain_subsystems(|nqn| effective.contains_key(nqn) || nqn == discovery);
        let mut notices = Notices::new();
        for entry in self.controllers.entries.values_mut().filter(|entry| !entry.association.is_closing()) {
            let association = &entry.association;
            if let Some(reason) = no_longer_served(&self.model, association) {
                entry.close(reason, &mut notices);
            } else if association.discovery {
                let view =
                    discovery::View { host: association.named_host(), port: association.port.id, local: &entry.local };
                if last.entries(view, false) != self.model.entries(view, false) {
                    notices.extend(entry.queues.first().map(|admin| (admin.handle, Notice::Discovery)));
                }
            } else if let Some(now) = self.effective.get(&association.subsystem)
                && let Some(port) = self.model.port(association.port.id)
            {
                // A manager's command is one to the drive's own subsystem.
                let own = association.function.is_none() && by == Some(&association.host);
                let last = before.get(&association.subsystem);
                entry.follow(last, now, function::states_at(now, port), own, &mut notices);
            }
            let association = &entry.association;
            let secrets = |model: &Model| model.secrets.get(&association.host).filter(|_| association.proves).cloned();
            if let Some(now) = secrets(&self.model)
                && secrets(&last).as_ref() != Some(&now)
            {
                let all = entry.queues.iter().chain(&entry.proving);
                notices.extend(all.map(|queue| (queue.handle, Notice::Secrets(Arc::clone(&now)))));
            }
            entry.note_holder(&mut self.holders, &self.objects);
        }
        notices
    }

    /// The key that TLS has for an identity of a PSK which authentication generated, and the secure
    /// channel that it is of.
    #[must_use]
    pub fn generated_psk(&self, identity: &Identity, now_ms: u64) -> Option<(KeyMaterial, SecureChannelId)> {
        self.generated_psks.find(identity, |channel| self.controllers.have_channel(channel), now_ms)
    }

    /// Keeps a PSK that the authentication of an association has generated.
    fn keep_psk(&mut self, association: &Association, psk: &Psk, now_ms: u64) {
        let names = Names { host: association.host.clone(), subsystem: association.known_as.clone() };
        let replaced = association.psk.and_then(PskSource::channel);
        let Self { controllers, generated_psks, .. } = self;
        generated_psks.add(names, psk, replaced, |channel| controllers.have_channel(channel), now_ms);
    }

    /// What is attached to a direct port is another host from now on, or has let go of everything.
    pub fn forget_hosts_at(&mut self, port: PortId) {
        self.holders.forget(port);
    }

    /// Replaces the subsystems with the NQNs of `subsystems`; does nothing for one that there is
    /// not. `by` is the host whose command caused the change, if any: its controllers are shown the
    /// namespaces immediately, others in two steps. The caller delivers the notices.
    pub fn replace_subsystems(&mut self, subsystems: Vec<Subsystem>, by: Option<&Nqn>) -> Notices {
        let mut model = Model::clone(&self.model);
        let mut is_discovered = false;
        let mut next: BTreeMap<Nqn, Subsystem> =
            subsystems.into_iter().map(|subsystem| (subsystem.nqn.clone(), subsystem)).collect();
        for place in &mut model.subsystems {
            let Some(subsystem) = next.remove(&place.nqn) else { continue };
            is_discovered |= place.ports != subsystem.ports;
            if **place != subsystem {
                *place = Arc::new(subsystem);
            }
        }
        model.generation += u64::from(is_discovered);
        self.replace(Arc::new(model), by)
    }

    /// Notices of what Connect has done to others. The caller delivers them.
    #[must_use]
    pub fn take_notices(&mut self) -> Notices {
        core::mem::take(&mut self.notices)
    }

    /// For a controller that waits for the proof of its host, or is to have room beside those.
    fn waiting(&mut self) -> WaitingControllers<'_> {
        WaitingControllers { controllers: &mut self.controllers, limits: &self.limits, notices: &mut self.notices }
    }

    /// Changes by hosts of the write protection of namespaces since the last call.
    pub fn take_protection_changes(&mut self) -> Vec<ProtectionChange> {
        self.protection.take_changes()
    }

    /// The connection `handle` ends, or has ended: it accepts no more commands, but earlier ones
    /// may still be at a device. If it is the Admin Queue's, the association ends. The caller
    /// delivers the notices, and calls [`closed`](Self::closed) when no command of the queue can
    /// reach the medium any more.
    pub fn ending(&mut self, handle: Handle) -> Notices {
        let mut notices = Notices::new();
        self.drains.end(handle);
        // Nobody's, before Connect has succeeded.
        let Some(key) = self.controllers.of_handle(handle) else { return notices };
        let entry = self.controllers.entry_mut(key);
        // One that has proven nothing leaves nothing behind.
        let Some(queue) = entry.queues.iter_mut().find(|queue| queue.handle == handle) else { return notices };
        queue.detached = true;
        let is_admin = queue.id.is_admin();
        entry.count_io_queues();
        if is_admin && !entry.association.is_closing() {
            entry.close(CloseReason::AdminQueueLost, &mut notices);
            // It does not need a notice.
            notices.retain(|(to, _)| *to != handle);
        }
        notices
    }

    /// The connection `handle` has ended, and no command of its queue can reach the medium any more
    /// (also for connections that never had a queue). If it was the Admin Queue's, the association
    /// ends.
    ///
    /// Deviation: in the specification the loss of any I/O queue ends the association of a host
    /// that cannot delete single queues. Linux closes its I/O queues without notice and then shuts
    /// the controller down through the Admin Queue, which therefore has to outlive them.
    pub fn closed(&mut self, handle: Handle) -> Notices {
        let mut notices = self.ending(handle);
        let Some(removed) = self.controllers.remove_queue(handle) else { return notices };
        let RemovedQueue { queue, association, was_open, reset_by } = removed;
        if was_open && !association.discovery && self.effective.contains_key(&association.subsystem) {
            let sum = self.retired.entry(association.subsystem.clone()).or_default();
            *sum = sum.plus(queue.counters.read());
        }
        if let Some(reset_by) = reset_by.filter(|_| was_open && !association.discovery) {
            notices.extend(reset::on_end(&mut self.controllers.instances, &association, reset_by));
        }
        if queue.draining.is_fenced {
            self.fences(&mut notices).follow(&association);
        }
        notices.extend(self.drains.free(&self.controllers));
        notices
    }

    /// The connection `handle` has ended, and these devices have commands of its queue that change
    /// something. Until this is known, all may have some.
    pub fn note_drain(&mut self, handle: Handle, devices: BTreeSet<DeviceId>) {
        self.controllers.note_drain(handle, devices);
    }

    fn fences<'r>(&'r mut self, notices: &'r mut Notices) -> Fences<'r> {
        Fences { controllers: &mut self.controllers, effective: &self.effective, notices }
    }

    /// Ends the associations whose timers have expired. Each is reported once; it is removed when
    /// all its connections are [`closed`](Self::closed).
    pub fn expire(&mut self, now_ms: u64) -> Notices {
        let mut notices = Notices::new();
        for entry in self.controllers.entries.values_mut().filter(|entry| !entry.association.is_closing()) {
            if entry.association.is_ready() {
                entry.enable_by_ms = None;
            }
            let last_command_ms = entry.last_command_ms();
            if entry.enable_by_ms.is_some_and(|by| by <= now_ms) {
                entry.close(CloseReason::NotEnabled, &mut notices);
            } else if entry.keep_alive.as_mut().is_some_and(|timer| timer.expired(last_command_ms, now_ms)) {
                entry.close(CloseReason::KeepAlive, &mut notices);
            }
        }
        self.expire_proofs(now_ms, &mut notices);
        self.drains.expire(now_ms, &mut notices);
        self.drains.watch(&mut self.controllers, now_ms);
        self.fences(&mut notices).raise(now_ms);
        notices
    }

    /// Hosts that came back to another object have had their time to look at it.
    fn expire_proofs(&mut self, now_ms: u64, notices: &mut Notices) {
        for entry in self.controllers.entries.values_mut().filter(|entry| !entry.association.is_closing()) {
            if entry.replaced.expire(now_ms)
                && let Some(now) = self.effective.get(&entry.association.subsystem)
            {
                entry.notify(now, notices);
                entry.note_holder(&mut self.holders, &self.objects);
            }
        }
    }

    /// When [`expire`](Self::expire) has to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let entries = self.controllers.entries.values().filter(|entry| !entry.association.is_closing());
        let deadlines = entries.map(|entry| {
            let keep_alive = entry.keep_alive.map(|timer| timer.deadline_ms());
            entry.enable_by_ms.into_iter().chain(keep_alive).chain(entry.replaced.deadline_ms()).min()
        });
        deadlines.flatten().chain(self.drains.deadline(&self.controllers)).min()
    }

    /// Controllers that have ended except for commands of their queues at devices.
    #[must_use]
    pub fn draining_controllers(&self) -> usize {
        self.controllers.entries.values().filter(|entry| entry.association.is_closing()).count()
    }

    /// Connects that wait.
    #[must_use]
    pub fn held_connects(&self) -> usize {
        self.drains.held_connects()
    }

    /// A queue of another association of the host has been checked for a deferred Connect, and the
    /// commands that it had at devices then have completed.
    pub fn acknowledge_check(&mut self, deferred: Handle) -> Notices {
        self.drains.acknowledge_check(&self.controllers, deferred)
    }

    /// The queues that [`expire`](Self::expire) found to have been draining for [`SLOW_DRAIN_MS`]:
    /// each once.
    pub fn take_slow_drains(&mut self) -> Vec<Drain> {
        self.drains.take_slow()
    }

    /// What controllers of this drive or function announce, at the port that allows most; `None` if
    /// it is none.
    #[must_use]
    pub fn announced(&self, nqn: &Nqn) -> Option<Announced> {
        let subsystem = self.effective.get(nqn)?;
        announced::announced(subsystem, &self.model, &self.limits_of(&Kind::Io(Arc::clone(subsystem))))
    }

    /// The controllers, including those whose association is ending; not those whose hosts have
    /// still to prove who they are.
    pub fn controllers(&self) -> impl Iterator<Item = ControllerInfo> + '_ {
        self.controllers.entries.values().filter(|entry| entry.is_open).map(ControllerInfo::of)
    }

    /// What will be controllers, once their hosts have proven who they are.
    pub fn proving(&self) -> impl Iterator<Item = ControllerInfo> + '_ {
        self.controllers.entries.values().filter(|entry| entry.is_proving()).map(ControllerInfo::of)
    }

    /// The errors of a drive's controllers after number `after`, with their numbers, for a log that
    /// is kept persistently.
    #[must_use]
    pub fn errors_since(&self, nqn: &Nqn, after: u64) -> Vec<(u64, Error)> {
        self.errors.get(nqn).map(|log| log.since(after)).unwrap_or_default()
    }

    /// Raises an event on all controllers of a drive, those of its functions included. The caller
    /// delivers the notices.
    #[must_use]
    pub fn raise(&self, drive: &Nqn, event: AsyncEvent) -> Notices {
        self.raise_where(event, |association| association.drive == *drive && !association.discovery)
    }

    /// The same on one controller, if it still exists.
    pub fn raise_on(&self, drive: &Nqn, controller: ControllerId, event: AsyncEvent) -> Notices {
        self.raise_where(event, |association| association.drive == *drive && association.cntlid == controller)
    }

    fn raise_where(&self, event: AsyncEvent, is_it: impl Fn(&Association) -> bool) -> Notices {
        let live = self.controllers.entries.values().filter(|entry| !entry.association.is_closing());
        let meant = live.filter(|entry| is_it(&entry.association));
        meant.filter_map(|entry| Some((entry.queues.first()?.handle, Notice::Event(event)))).collect()
    }

    /// The subsystems of a drive: its own, and those of its functions.
    pub fn subsystems_of(&self, drive: &Nqn) -> impl Iterator<Item = &Nqn> {
        let of_drive = self.model.subsystems.iter().filter(move |subsystem| subsystem.drive_nqn() == drive);
        of_drive.map(|subsystem| &subsystem.nqn)
    }

    /// The counters of a subsystem since the registry was created, including those of controllers
    /// that have ended.
    #[must_use]
    pub fn subsystem_counts(&self, nqn: &Nqn) -> Counts {
        let of_subsystem = |entry: &&ControllerEntry| {
            entry.is_open && entry.association.subsystem == *nqn && !entry.association.discovery
        };
        let live = self.controllers.entries.values().filter(of_subsystem).flat_map(|entry| &entry.queues);
        let retired = self.retired.get(nqn).copied().unwrap_or_default();
        live.map(|queue| queue.counters.read()).fold(retired, Counts::plus)
    }

    /// Notifies the controllers of hosts of changes of their registrations and reservations. The
    /// caller delivers the notices.
    pub fn reservation_notices(&self, drive: &Nqn, events: &[(Nsid, HostId, ReservationEvent)]) -> Notices {
        self.controllers.reservation_notices(drive, events)
    }

    /// The I/O queues of those who have lost a namespace of a drive ([`Nsid::ALL`]: all of them),
    /// as far as they are ending, too: a function's, or (`None`) those of hosts of the drive's own
    /// subsystem that are not attached to it now.
    pub fn queues_that_lost(&self, drive: &Nqn, nsid: Nsid, function: Option<FunctionId>) -> Vec<Handle> {
        let own = self.effective.get(drive).filter(|_| function.is_none());
        let namespace = own.and_then(|subsystem| subsystem.allocated().find(nsid));
        self.controllers.io_queues_of(|association| {
            let is_there = association.drive == *drive && association.function == function;
            is_there && !namespace.is_some_and(|namespace| namespace.is_attached(&association.host))
        })
    }

    /// The I/O queues of a host's controllers at a drive, including those that are ending: their
    /// commands may still reach the medium.
    pub fn queues_of(&self, drive: &Nqn, host: HostId) -> Vec<Handle> {
        let is_its = |other: HostId| other == host && host != HostId::default();
        self.controllers.io_queues_of(|association| association.drive == *drive && is_its(association.host_id()))
    }

    /// CAP of the controllers at a port whose hosts have their queues in memory: they read it
    /// before there is a controller. `None` if there is no such port.
    #[must_use]
    pub fn capabilities(&self, port: PortId) -> Option<Cap> {
        let subsystem = self.subsystem_at(port);
        let limits = subsystem.map(|subsystem| self.limits_of(&Kind::Io(Arc::clone(subsystem))));
        let limits = limits.unwrap_or_else(|| self.limits.clone());
        let port = self.model.port(port)?;
        let entries = port.max_queue_entries.min(limits.queue_entries).max(2);
        Some(memory::capabilities(entries, limits.ready_timeout_ms))
    }

    /// The subsystem that a port serves whose hosts have their queues in memory: there is one at
    /// most.
    #[must_use]
    pub fn subsystem_at(&self, port: PortId) -> Option<&Arc<Subsystem>> {
        self.effective.values().find(|subsystem| subsystem.ports.contains(&port))
    }

    /// The limits that a new controller announces: a drive's may be lower than the target's.
    fn limits_of(&self, kind: &Kind) -> Limits {
        let mut limits = self.limits.clone();
        if let Kind::Io(subsystem) = kind
            && let Some(drive) = &subsystem.drive
        {
            let of_function = subsystem.function.as_ref().map_or(u16::MAX, Function::io_queues);
            limits.io_queues = limits.io_queues.min(drive.profile.queue_pairs.unwrap_or(u16::MAX)).min(of_function);
            limits.queue_entries = limits.queue_entries.min(drive.profile.queue_entries.unwrap_or(u16::MAX));
        }
        limits
    }

    fn change_protection(&mut self, nqn: Nqn, nsid: Nsid, protected: bool, notices: &mut Notices) {
        self.protection.set(&nqn, nsid, protected);
        let subsystem = self.model.subsystem(&nqn).expect("what is in force is the model's, with the changes by hosts");
        let subsystem = self.protection.of(subsystem);
        let entries = self.controllers.entries.values().filter(|entry| !entry.association.is_closing());
        for entry in entries.filter(|entry| !entry.association.discovery && entry.association.subsystem == nqn) {
            entry.notify(&subsystem, notices);
        }
        self.effective.insert(nqn, Arc::clone(&subsystem));
    }

    /// The time-out for a host that requests `wanted_ms`.
    fn keep_alive_ms(&self, discovery: bool, wanted_ms: u32) -> u32 {
        // A discovery controller without a time-out would stay for ever: most hosts do not
        // disconnect.
        let wanted = if discovery && wanted_ms == 0 { self.limits.discovery_keep_alive_ms } else { wanted_ms };
        KeepAliveTimer { timeout_ms: wanted }.rounded_up(KEEP_ALIVE_GRANULARITY_MS).timeout_ms
    }
}
