//! The state that queues share: the model in force, the controllers with their connections and
//! timers, and the notices of changes. `admission` decides who may connect, `execute` executes the
//! commands that need this state.

mod admission;
mod announced;
mod drain;
mod execute;
mod holders;
mod objects;
mod replaced;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ebof_drive::error_log::Error;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::feature::KeepAliveTimer;
use ebof_nvme::{ControllerId, HostId, Nqn, Nsid, QueueId};

use crate::association::{Association, Counters, Counts};
use crate::discovery::{self, Entries as _};
use crate::error_log::ErrorLog;
use crate::identify::KEEP_ALIVE_GRANULARITY_MS;
use crate::model::{Limits, Model, PortId, Subsystem};
use crate::notice::{CloseReason, Handle, Notice, Notices};
pub use announced::Announced;
pub use drain::{CONNECT_HOLD_MS, DRAINING_MAX, Drain, SILENT_MS, SLOW_DRAIN_MS};
use drain::{Deferred, Draining};
use holders::{Holder, Holders};
pub use objects::{ObjectRecord, Objects};
use replaced::Replaced;

/// A change by a host of a namespace's write protection (feature 84h), to be stored with the
/// model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectionChange {
    /// The subsystem.
    pub subsystem: Nqn,
    /// The namespace.
    pub nsid: Nsid,
    /// Whether it is now write protected.
    pub protected: bool,
}

/// A controller, for status and metrics.
#[derive(Clone, Debug)]
pub struct ControllerInfo {
    /// Host, subsystem and port; also whether the controller is ready.
    pub association: Arc<Association>,
    /// The subsystem.
    pub subsystem: Nqn,
    /// The controller.
    pub cntlid: ControllerId,
    /// The host.
    pub host: Nqn,
    /// The host's identifier.
    pub host_id: HostId,
    /// The port.
    pub port: PortId,
    /// The host's address.
    pub peer: String,
    /// Whether it is a discovery controller.
    pub discovery: bool,
    /// When the Admin Queue was connected, on the clock of `now_ms`.
    pub connected_ms: u64,
    /// Keep alive time-out, 0 for none.
    pub keep_alive_ms: u32,
    /// Its queues, the Admin Queue first.
    pub queues: Vec<QueueInfo>,
}

/// A queue, for status and metrics.
#[derive(Clone, Debug)]
pub struct QueueInfo {
    /// The queue.
    pub id: QueueId,
    /// Its connection.
    pub handle: Handle,
    /// Its entries.
    pub entries: u32,
    /// Its counters.
    pub counts: Counts,
}

/// The state that queues share. It has no lock of its own: the target puts it behind one.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
    seed: u64,
    model: Arc<Model>,
    /// The model's subsystems, with the changes by hosts.
    effective: BTreeMap<Nqn, Arc<Subsystem>>,
    /// Write protection that hosts set, where it differs from the model's.
    protection: BTreeMap<(Nqn, Nsid), bool>,
    protection_changes: Vec<ProtectionChange>,
    /// What NSIDs have named.
    objects: Objects,
    /// Which hosts know of all changes of these.
    holders: Holders,
    entries: BTreeMap<Key, Entry>,
    names: BTreeMap<(Nqn, ControllerId), Key>,
    handles: BTreeMap<Handle, Key>,
    next_key: u64,
    /// Where the search for a free controller ID starts.
    next_cntlid: BTreeMap<Nqn, u16>,
    /// Errors of all controllers of a drive.
    errors: BTreeMap<Nqn, Arc<ErrorLog>>,
    /// The counters of queues that have ended.
    retired: BTreeMap<Nqn, Counts>,
    /// Connects that wait for queues that drain: at most one for each connection.
    deferred: BTreeMap<Handle, Deferred>,
    /// Queues that have been draining for long, to be logged: each once.
    slow_drains: Vec<Drain>,
}

/// A controller's key in the registry; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u64);

/// A controller.
#[derive(Debug)]
struct Entry {
    association: Arc<Association>,
    /// The gate of its Admin Queue is open: what its host does, or leaves behind, counts for
    /// others.
    is_open: bool,
    peer: String,
    local: String,
    connected_ms: u64,
    /// The Admin Queue first.
    queues: Vec<Attached>,
    /// When the last command of a queue that is gone came: it counts for the keep-alive timer.
    command_of_gone_ms: u64,
    keep_alive: Option<KeepAlive>,
    /// The time by which the host has to enable the controller.
    enable_by_ms: Option<u64>,
    /// Changes of its namespaces that the host does not know of yet.
    replaced: Replaced,
}

/// A connected queue.
#[derive(Debug)]
struct Attached {
    id: QueueId,
    handle: Handle,
    entries: u16,
    counters: Arc<Counters>,
    /// It was asked to end by a reset, or its connection has ended; its identifier may be reused.
    detached: bool,
    draining: Draining,
}

/// A keep-alive timer (Base, Keep Alive, Traffic Based Keep Alive). When it expires, it is
/// restarted if there was a command since its start.
#[derive(Clone, Copy, Debug)]
struct KeepAlive {
    timeout_ms: u32,
    armed_ms: u64,
    /// It expired once while the target was not running: see [`KeepAlive::expired`].
    forgiven: bool,
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
            seed,
            effective: effective.collect(),
            model,
            protection: BTreeMap::new(),
            protection_changes: Vec::new(),
            objects,
            holders: Holders::default(),
            entries: BTreeMap::new(),
            names: BTreeMap::new(),
            handles: BTreeMap::new(),
            next_key: 0,
            next_cntlid: BTreeMap::new(),
            errors: BTreeMap::new(),
            retired: BTreeMap::new(),
            deferred: BTreeMap::new(),
            slow_drains: Vec::new(),
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

    /// Installs `model`. The caller delivers the notices. Devices that the new model does not have
    /// may be closed when every queue has processed its notice and its commands have completed.
    pub fn replace_model(&mut self, model: Arc<Model>) -> Notices {
        self.replace(model, None)
    }

    /// The same, after a command of host `by`, which knows about the change. Other hosts are shown
    /// each replaced namespace as gone before they are shown another one with its NSID.
    fn replace(&mut self, model: Arc<Model>, by: Option<&Nqn>) -> Notices {
        self.objects.note(&model);
        let last = core::mem::replace(&mut self.model, model);
        self.keep_protection(&last);
        let subsystems = self.model.subsystems.iter();
        let next: BTreeMap<_, _> =
            subsystems.map(|subsystem| (subsystem.nqn.clone(), self.with_protection(subsystem))).collect();
        let before = core::mem::replace(&mut self.effective, next);
        self.retired.retain(|nqn, _| self.effective.contains_key(nqn));
        self.errors.retain(|nqn, _| self.effective.contains_key(nqn));
        self.next_cntlid.retain(|nqn, _| self.effective.contains_key(nqn) || *nqn == self.model.discovery.nqn);
        let mut notices = Notices::new();
        for entry in self.entries.values_mut().filter(|entry| !entry.association.is_closing()) {
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
                && before.get(&association.subsystem) != Some(now)
            {
                if let Some(before) = before.get(&association.subsystem) {
                    let shown = |all: &Arc<Subsystem>| all.shown_to(&association.host, association.host_id());
                    // A manager's command is one to the drive's own subsystem.
                    let own = association.function.is_none() && by == Some(&association.host);
                    entry.replaced.note(&shown(before), &shown(now), own, association);
                }
                entry.notify(now, &mut notices);
            }
            entry.note_holder(&mut self.holders, &self.objects);
        }
        notices
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

    /// Changes by hosts of the write protection of namespaces since the last call.
    pub fn take_protection_changes(&mut self) -> Vec<ProtectionChange> {
        core::mem::take(&mut self.protection_changes)
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
        let Some(key) = self.handles.remove(&handle) else { return notices };
        let Some(entry) = self.entries.get_mut(&key) else { return notices };
        let Some(at) = entry.queues.iter().position(|queue| queue.handle == handle) else { return notices };
        entry.command_of_gone_ms = entry.last_command_ms();
        let queue = entry.queues.remove(at);
        let association = Arc::clone(&entry.association);
        if !association.discovery && self.effective.contains_key(&association.subsystem) {
            let sum = self.retired.entry(association.subsystem.clone()).or_default();
            *sum = sum.plus(queue.counters.read());
        }
        entry.count_io_queues();
        if entry.queues.is_empty() {
            self.entries.remove(&key);
            let name = (association.subsystem.clone(), association.cntlid);
            // A host that reconnected has taken the controller ID over, if IDs are kept for hosts.
            if self.names.get(&name) == Some(&key) {
                self.names.remove(&name);
            }
        }
        notices.extend(self.free_deferred());
        notices
    }

    /// Ends the associations whose timers have expired. Each is reported once; it is removed when
    /// all its connections are [`closed`](Self::closed).
    pub fn expire(&mut self, now_ms: u64) -> Notices {
        let mut notices = Notices::new();
        for entry in self.entries.values_mut().filter(|entry| !entry.association.is_closing()) {
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
        self.expire_deferred(now_ms, &mut notices);
        self.watch_drains(now_ms);
        notices
    }

    /// Hosts that came back to another object have had their time to look at it.
    fn expire_proofs(&mut self, now_ms: u64, notices: &mut Notices) {
        for entry in self.entries.values_mut().filter(|entry| !entry.association.is_closing()) {
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
        let entries = self.entries.values().filter(|entry| !entry.association.is_closing());
        let deadlines = entries.map(|entry| {
            let keep_alive = entry.keep_alive.map(|timer| timer.deadline_ms());
            entry.enable_by_ms.into_iter().chain(keep_alive).chain(entry.replaced.deadline_ms()).min()
        });
        deadlines.flatten().chain(self.drain_deadline()).min()
    }

    /// The controllers, including those whose association is ending.
    pub fn controllers(&self) -> impl Iterator<Item = ControllerInfo> + '_ {
        self.entries.values().map(|entry| {
            let association = &entry.association;
            let queues = entry.queues.iter();
            ControllerInfo {
                association: Arc::clone(association),
                subsystem: association.subsystem.clone(),
                cntlid: association.cntlid,
                host: association.host.clone(),
                host_id: association.host_id(),
                port: association.port.id,
                peer: entry.peer.clone(),
                discovery: association.discovery,
                connected_ms: entry.connected_ms,
                keep_alive_ms: association.keep_alive_ms.load(Ordering::Relaxed),
                queues: queues
                    .map(|queue| QueueInfo {
                        id: queue.id,
                        handle: queue.handle,
                        entries: queue.entries.into(),
                        counts: queue.counters.read(),
                    })
                    .collect(),
            }
        })
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
        let entries = self.entries.values().filter(|entry| entry.association.drive == *drive);
        let live = entries.filter(|entry| !entry.association.is_closing() && !entry.association.discovery);
        live.filter_map(|entry| Some((entry.queues.first()?.handle, Notice::Event(event)))).collect()
    }

    /// The same on one controller, if it still exists.
    pub fn raise_on(&self, drive: &Nqn, controller: ControllerId, event: AsyncEvent) -> Notices {
        let is_it = |entry: &&Entry| {
            let association = &entry.association;
            association.drive == *drive && association.cntlid == controller && !association.is_closing()
        };
        let live = self.entries.values().filter(is_it);
        live.filter_map(|entry| Some((entry.queues.first()?.handle, Notice::Event(event)))).collect()
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
        let of_subsystem = |entry: &&Entry| entry.association.subsystem == *nqn && !entry.association.discovery;
        let live = self.entries.values().filter(of_subsystem).flat_map(|entry| &entry.queues);
        let retired = self.retired.get(nqn).copied().unwrap_or_default();
        live.map(|queue| queue.counters.read()).fold(retired, Counts::plus)
    }

    /// Removes the protection set by hosts if the new model changes it, or does not have the
    /// namespace.
    fn keep_protection(&mut self, last: &Model) {
        let model = &self.model;
        let said = |model: &Model, nqn: &Nqn, nsid| Some(model.subsystem(nqn)?.namespaces.find(nsid)?.write_protected);
        self.protection.retain(|(nqn, nsid), protected| {
            let now = said(model, nqn, *nsid);
            now.is_some() && now == said(last, nqn, *nsid) && now != Some(*protected)
        });
    }

    fn with_protection(&self, subsystem: &Arc<Subsystem>) -> Arc<Subsystem> {
        let of_subsystem = self.protection.iter().filter(|((nqn, _), _)| *nqn == subsystem.nqn);
        let mut effective = Arc::clone(subsystem);
        for ((_, nsid), &protected) in of_subsystem {
            let namespaces = effective.namespaces.with_write_protection(*nsid, protected);
            Arc::make_mut(&mut effective).namespaces = namespaces;
        }
        effective
    }

    /// The time-out for a host that requests `wanted_ms`.
    fn keep_alive_ms(&self, discovery: bool, wanted_ms: u32) -> u32 {
        // A discovery controller without a time-out would stay for ever: most hosts do not
        // disconnect.
        let wanted = if discovery && wanted_ms == 0 { self.limits.discovery_keep_alive_ms } else { wanted_ms };
        KeepAliveTimer { timeout_ms: wanted }.rounded_up(KEEP_ALIVE_GRANULARITY_MS).timeout_ms
    }
}

/// Why an association cannot continue with the new model.
fn no_longer_served(model: &Model, association: &Association) -> Option<CloseReason> {
    let Some(port) = model.port(association.port.id) else { return Some(CloseReason::PortRemoved) };
    if association.discovery {
        return None;
    }
    let subsystem = model.subsystem(&association.subsystem);
    match subsystem.filter(|subsystem| !port.discovery_only && subsystem.ports.contains(&port.id)) {
        Some(subsystem) if association.may_use(subsystem) => None,
        Some(_) => Some(CloseReason::HostNotAllowed),
        None if subsystem.is_some_and(|subsystem| subsystem.function.is_some()) => Some(CloseReason::FunctionTaken),
        None => Some(CloseReason::SubsystemRemoved),
    }
}

impl Entry {
    /// Ends the association: its queues execute no more commands, and all its connections are to be
    /// closed.
    fn close(&mut self, reason: CloseReason, notices: &mut Notices) {
        self.association.ready.store(false, Ordering::Relaxed);
        self.association.closing.store(true, Ordering::Relaxed);
        notices.extend(self.queues.iter().map(|queue| (queue.handle, Notice::Close(reason))));
    }

    /// Sends every queue of the changed subsystem the part that its host may see.
    fn notify(&self, subsystem: &Arc<Subsystem>, notices: &mut Notices) {
        let (admin, io) = self.views(subsystem);
        let queues = self.queues.iter().filter(|queue| !queue.detached);
        let view = |queue: &Attached| if queue.id.is_admin() { &admin } else { &io };
        notices.extend(queues.map(|queue| (queue.handle, Notice::Subsystem(Arc::clone(view(queue))))));
    }

    /// If its host knows of all changes of objects, that is remembered beyond the controller.
    fn note_holder(&self, holders: &mut Holders, objects: &Objects) {
        if self.is_open && self.replaced.is_known() && !self.association.discovery {
            holders.put(Holder::of(&self.association), objects.changes_count());
        }
    }

    /// The subsystem as the host's Admin Queue and its I/O queues are shown it.
    fn views(&self, subsystem: &Arc<Subsystem>) -> (Arc<Subsystem>, Arc<Subsystem>) {
        self.replaced.views(subsystem.shown_to(&self.association.host, self.association.host_id()))
    }

    fn last_command_ms(&self) -> u64 {
        let queues = self.queues.iter();
        let of_queues = queues.map(|queue| queue.counters.last_command_ms.load(Ordering::Relaxed));
        of_queues.fold(self.command_of_gone_ms, u64::max)
    }

    fn count_io_queues(&self) {
        let queues = self.queues.iter().filter(|queue| !queue.id.is_admin() && !queue.detached).count();
        self.association.io_queues.store(u32::try_from(queues).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Sets the keep alive time-out, 0 for none, and starts its timer.
    fn set_keep_alive(&mut self, timeout_ms: u32, now_ms: u64) {
        self.association.keep_alive_ms.store(timeout_ms, Ordering::Relaxed);
        self.keep_alive = (timeout_ms != 0).then_some(KeepAlive { timeout_ms, armed_ms: now_ms, forgiven: false });
    }
}

impl KeepAlive {
    fn deadline_ms(&self) -> u64 {
        self.armed_ms.saturating_add(self.timeout_ms.into())
    }

    /// Whether the host has sent nothing for the whole time-out. If it has sent a command, an
    /// expired timer is restarted.
    fn expired(&mut self, last_command_ms: u64, now_ms: u64) -> bool {
        let deadline_ms = self.deadline_ms();
        if now_ms < deadline_ms {
            return false;
        }
        if last_command_ms >= self.armed_ms {
            *self = Self { armed_ms: now_ms, forgiven: false, ..*self };
            return false;
        }
        // If this call is much too late, the target itself was not running (a stopped process, a
        // suspended machine), and what the host has sent is still unread: restart the timer once.
        let late = now_ms - deadline_ms > u64::from(self.timeout_ms) / 2 + 1000;
        if late && !self.forgiven {
            *self = Self { armed_ms: now_ms, forgiven: true, ..*self };
            return false;
        }
        true
    }
}
