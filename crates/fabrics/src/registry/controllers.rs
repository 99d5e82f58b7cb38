//! The controllers that there are, with their queues and timers, and what their number and their
//! names allow to a host that comes beside them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ebof_drive::View;
use ebof_nvme::command::ControllerInstance;
use ebof_nvme::log::ReservationEvent;
use ebof_nvme::{ControllerId, HostId, Nqn, Nsid, QueueId};

use super::fence::Fence;
use super::holders::{Holder, Holders};
use super::instances::Instances;
use super::objects::Objects;
use super::replaced::Replaced;
use crate::association::{Association, Counters};
use crate::connect::RefusalReason;
use crate::controller::Kind;
use crate::io::reservation;
use crate::model::secrets::{PskSource, SecureChannelId};
use crate::model::{DeviceId, GroupStates, Limits, Model, Subsystem, TlsUse};
use crate::notice::{CloseReason, Notice, Notices};
use crate::task::executing::Executing;
use crate::task::handle::Handle;
use crate::task::outcome::Outcome;

/// After how long without a command a host without a keep-alive time-out may be gone,
/// milliseconds. For others it is half of their time-out.
pub const SILENT_MS: u64 = 2_000;

/// The most associations of one host with one subsystem that may be draining when it requests
/// another controller. If a device hangs and the host reconnects again and again, this bounds what
/// the target keeps of it.
pub const DRAINING_MAX: usize = 64;

/// All controllers, those included that are ending.
#[derive(Debug)]
pub(super) struct Controllers {
    pub(super) entries: BTreeMap<ControllerKey, ControllerEntry>,
    pub(super) names: BTreeMap<(Nqn, ControllerId), ControllerKey>,
    pub(super) handles: BTreeMap<Handle, ControllerKey>,
    /// Which of them have had which identifiers.
    pub(super) instances: Instances,
    next_key: u64,
    /// Where the search for a free controller ID starts.
    next_cntlid: BTreeMap<Nqn, u16>,
    seed: u64,
}

/// A controller's key in the registry; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ControllerKey(u64);

/// A controller.
#[derive(Debug)]
pub(super) struct ControllerEntry {
    pub(super) association: Arc<Association>,
    /// The gate of its Admin Queue is open: what its host does, or leaves behind, counts for
    /// others.
    pub(super) is_open: bool,
    pub(super) peer: String,
    pub(super) network: String,
    pub(super) local: String,
    pub(super) connected_ms: u64,
    /// The Admin Queue first.
    pub(super) queues: Vec<AttachedQueue>,
    /// I/O queues whose gates are shut: the identifier of none is taken by that.
    pub(super) proving: Vec<AttachedQueue>,
    /// When the last command of a queue that is gone came: it counts for the keep-alive timer.
    pub(super) command_of_gone_ms: u64,
    pub(super) keep_alive: Option<KeepAlive>,
    /// The time by which the host has to enable the controller.
    pub(super) enable_by_ms: Option<u64>,
    /// Changes of its namespaces that the host does not know of yet.
    pub(super) replaced: Replaced,
    /// The states of ANA groups at its port.
    pub(super) states: GroupStates,
    /// What lost controllers of the host have left behind.
    pub(super) fence: Fence,
    /// The Admin Queues of the host's other controllers by which it has had this one reset: they
    /// are told when nothing of it is left.
    pub(super) reset_by: Vec<Handle>,
}

/// A connected queue.
#[derive(Debug)]
pub(super) struct AttachedQueue {
    pub(super) id: QueueId,
    pub(super) handle: Handle,
    pub(super) entries: u16,
    pub(super) counters: Arc<Counters>,
    /// It was asked to end by a reset, or its connection has ended; its identifier may be reused.
    pub(super) detached: bool,
    pub(super) draining: Draining,
}

/// A queue whose connection has ended.
#[derive(Debug)]
pub(super) struct RemovedQueue {
    pub(super) queue: AttachedQueue,
    /// Whose it was.
    pub(super) association: Arc<Association>,
    /// Whether its gate was open.
    pub(super) was_open: bool,
    /// If it was the last one of its controller: those that wait for the end of that.
    pub(super) reset_by: Option<Vec<Handle>>,
}

/// A keep-alive timer (Base, Keep Alive, Traffic Based Keep Alive). When it expires, it is
/// restarted if there was a command since its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepAlive {
    pub(super) timeout_ms: u32,
    armed_ms: u64,
    /// It expired once while the target was not running: see [`KeepAlive::expired`].
    forgiven: bool,
}

/// Since when a queue drains, and whether that was reported.
#[derive(Clone, Debug, Default)]
pub(super) struct Draining {
    pub(super) since_ms: Option<u64>,
    pub(super) reported: bool,
    /// Its host's other controllers do not use what it has left behind.
    pub(super) is_fenced: bool,
    /// The devices that have commands of it; `None` while they are not known.
    pub(super) devices: Option<BTreeSet<DeviceId>>,
}

/// See [`Controllers::entry`].
const IS_THERE: &str = "connections and names are those of controllers that are there";

impl Controllers {
    /// None yet. `seed` decides which controller IDs are assigned first.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            entries: BTreeMap::new(),
            names: BTreeMap::new(),
            handles: BTreeMap::new(),
            instances: Instances::new(seed),
            next_key: 0,
            next_cntlid: BTreeMap::new(),
            seed,
        }
    }

    /// Adds a controller, whose Admin Queue has the connection `handle`.
    pub(super) fn add(&mut self, handle: Handle, entry: ControllerEntry) {
        let key = ControllerKey(self.next_key);
        self.next_key += 1;
        self.names.insert((entry.association.subsystem.clone(), entry.association.cntlid), key);
        self.handles.insert(handle, key);
        self.entries.insert(key, entry);
    }

    /// The controller of a key that was found by a connection or by a name, and since then none was
    /// removed: there is one, because both are forgotten with it.
    pub(super) fn entry(&self, key: ControllerKey) -> &ControllerEntry {
        self.entries.get(&key).expect(IS_THERE)
    }

    /// The same, to be changed.
    pub(super) fn entry_mut(&mut self, key: ControllerKey) -> &mut ControllerEntry {
        self.entries.get_mut(&key).expect(IS_THERE)
    }

    /// The controller that the connection belongs to.
    pub(super) fn of_handle(&self, handle: Handle) -> Option<ControllerKey> {
        self.handles.get(&handle).copied()
    }

    /// Whether there is a controller of this secure channel.
    pub(super) fn have_channel(&self, channel: SecureChannelId) -> bool {
        self.entries.values().any(|entry| entry.association.psk.and_then(PskSource::channel) == Some(channel))
    }

    /// Whether the host of this controller proves that its host identifier is its own: it has
    /// proven who it is, and no other host has come with that identifier before and is still there.
    pub(super) fn owns_host_id(&self, key: ControllerKey) -> bool {
        let own = &self.entry(key).association;
        if !own.is_proven() || own.discovery {
            return false;
        }
        !self.entries.values().filter(|entry| entry.is_open && !entry.association.is_closing()).any(|entry| {
            let other = &entry.association;
            !other.discovery && other.host_id() == own.host_id() && other.host != own.host
        })
    }

    /// Those that would end with this model, by subsystem and number, and why.
    pub(super) fn ended_by(&self, model: &Model) -> Vec<(Nqn, ControllerId, CloseReason)> {
        let live = self.entries.values().filter(|entry| !entry.association.is_closing());
        let ended = |entry: &ControllerEntry| {
            let association = &entry.association;
            let reason = no_longer_served(model, association)?;
            Some((association.subsystem.clone(), association.cntlid, reason))
        };
        live.filter_map(ended).collect()
    }

    /// Forgets which controller IDs come next, and who had them, in subsystems that there are no
    /// more.
    pub(super) fn retain_subsystems(&mut self, is_there: impl Fn(&Nqn) -> bool) {
        self.next_cntlid.retain(|nqn, _| is_there(nqn));
        self.instances.retain_subsystems(is_there);
    }

    /// Removes a queue whose connection has ended, and its controller if it was the last one.
    pub(super) fn remove_queue(&mut self, handle: Handle) -> Option<RemovedQueue> {
        let key = self.handles.remove(&handle)?;
        let entry = self.entry_mut(key);
        if let Some(at) = entry.proving.iter().position(|queue| queue.handle == handle) {
            let queue = entry.proving.remove(at);
            let association = Arc::clone(&entry.association);
            return Some(RemovedQueue { queue, association, was_open: false, reset_by: None });
        }
        let at = entry.queues.iter().position(|queue| queue.handle == handle);
        let at = at.expect("a connection that belongs to a controller has one of its queues");
        entry.command_of_gone_ms = entry.last_command_ms();
        let queue = entry.queues.remove(at);
        let association = Arc::clone(&entry.association);
        let was_open = entry.is_open;
        entry.count_io_queues();
        if queue.id.is_admin() {
            self.forget_reset_by(handle);
        }
        let entry = self.entry(key);
        let mut reset_by = None;
        if entry.queues.is_empty()
            && let Some(gone) = self.entries.remove(&key)
        {
            for queue in gone.proving {
                self.handles.remove(&queue.handle);
            }
            reset_by = Some(gone.reset_by);
            let name = (association.subsystem.clone(), association.cntlid);
            // A host that reconnected has taken the controller ID over, if IDs are kept for hosts.
            if self.names.get(&name) == Some(&key) {
                self.names.remove(&name);
            }
        }
        Some(RemovedQueue { queue, association, was_open, reset_by })
    }

    /// The controller of a subsystem that this is, ending or not.
    pub(super) fn of_instance(&self, subsystem: &Nqn, instance: ControllerInstance) -> Option<ControllerKey> {
        let is_it = |entry: &ControllerEntry| {
            entry.association.instance() == instance && entry.association.known_as == *subsystem
        };
        self.entries.iter().find(|(_, entry)| entry.is_open && is_it(entry)).map(|(key, _)| *key)
    }

    /// Whether a controller of a subsystem is this instance but for the random number.
    pub(super) fn has_like(&self, subsystem: &Nqn, instance: ControllerInstance) -> bool {
        let is_like = |entry: &ControllerEntry| {
            let here = entry.association.instance();
            (here.id, here.uniquifier) == (instance.id, instance.uniquifier)
        };
        self.entries.values().any(|entry| entry.association.known_as == *subsystem && is_like(entry))
    }

    /// What hosts are told of changes of their registrations and reservations.
    pub(super) fn reservation_notices(&self, drive: &Nqn, events: &[(Nsid, HostId, ReservationEvent)]) -> Notices {
        let of_subsystem =
            |entry: &&ControllerEntry| entry.association.drive == *drive && !entry.association.is_closing();
        let mut notices = Notices::new();
        for entry in self.entries.values().filter(of_subsystem) {
            let own = events.iter().filter(|(_, host, _)| *host == entry.association.host_id());
            let admin = entry.queues.first().filter(|queue| queue.id.is_admin());
            notices
                .extend(own.filter_map(|(nsid, _, event)| Some((admin?.handle, Notice::Reservation(*nsid, *event)))));
        }
        notices
    }

    /// The I/O queues of some controllers, of those that are ending, too.
    pub(super) fn io_queues_of(&self, is_meant: impl Fn(&Association) -> bool) -> Vec<Handle> {
        let meant = self.entries.values().filter(|entry| is_meant(&entry.association));
        let queues = meant.flat_map(|entry| &entry.queues).filter(|queue| !queue.id.is_admin());
        queues.map(|queue| queue.handle).collect()
    }

    /// The devices that have commands of a queue whose connection has ended.
    pub(super) fn note_drain(&mut self, handle: Handle, devices: BTreeSet<DeviceId>) {
        let Some(key) = self.of_handle(handle) else { return };
        if let Some(queue) = self.entry_mut(key).queues.iter_mut().find(|queue| queue.handle == handle) {
            queue.draining.devices = Some(devices);
        }
    }

    /// The Admin Queue of this connection is gone: it waits for no reset any more.
    fn forget_reset_by(&mut self, handle: Handle) {
        for entry in self.entries.values_mut() {
            entry.reset_by.retain(|waiting| *waiting != handle);
        }
    }

    /// The entries of all I/O queues of a drive together.
    pub(super) fn check_entries(&self, nqn: &Nqn, drive: Option<&View>, more: u16) -> Result<(), RefusalReason> {
        let Some(most) = drive.and_then(|drive| drive.profile.queue_entries_total) else { return Ok(()) };
        let of_drive = self.entries.values().filter(|entry| entry.association.drive == *nqn);
        let queues = of_drive.flat_map(|entry| &entry.queues).filter(|queue| !queue.id.is_admin() && !queue.detached);
        let in_use: u32 = queues.map(|queue| u32::from(queue.entries)).sum();
        if in_use + u32::from(more) > most { Err(RefusalReason::EntriesExhausted) } else { Ok(()) }
    }

    /// Whether the host may have one more queue, and `controllers` more controllers. Those in other
    /// subsystems count, too, and those that are ending.
    pub(super) fn check_share(&self, host: &Nqn, controllers: u32, limits: &Limits) -> Result<(), RefusalReason> {
        let of_host = self.entries.values().filter(|entry| entry.is_open && entry.association.host == *host);
        let count = |(had, queues): (usize, usize), entry: &ControllerEntry| (had + 1, queues + entry.queues.len());
        let (had, queues) = of_host.fold((0, 0), count);
        let fits = |count: usize, most: u32| u32::try_from(count).is_ok_and(|count| count < most);
        let controller = controllers == 0 || fits(had, limits.host_controllers);
        if controller && fits(queues, limits.host_queues) { Ok(()) } else { Err(RefusalReason::HostShare) }
    }

    /// A host identifier belongs to one host, and so to one host NQN; cloned machines often share
    /// it.
    pub(super) fn check_host_id(&self, host: &Nqn, host_id: HostId, drive: &Nqn) -> Result<(), RefusalReason> {
        let open = self.entries.values().filter(|entry| entry.is_open);
        let conflict = open.map(|entry| &entry.association).any(|other| {
            !other.discovery
                && !other.is_closing()
                && other.drive == *drive
                && other.host_id() == host_id
                && other.host != *host
        });
        // Zeros mean no identifier.
        if conflict && host_id != HostId::default() { Err(RefusalReason::HostIdInUse) } else { Ok(()) }
    }

    /// Whether the gate of a queue may open. Since its Connect others have come, whom it could not
    /// hold up; what they have now, it does not get.
    pub(super) fn check_opening(
        &self,
        key: ControllerKey,
        handle: Handle,
        subsystem: Option<&Subsystem>,
        limits: &Limits,
    ) -> Result<(), RefusalReason> {
        let entry = self.entry(key);
        let association = &entry.association;
        if association.is_closing() {
            return Err(RefusalReason::UnknownController);
        }
        if !entry.is_open {
            self.check_host_id(&association.host, association.host_id(), &association.drive)?;
            self.check_share(&association.host, 1, limits)?;
            let most = usize::try_from(limits.controllers).unwrap_or(usize::MAX);
            return if self.open_count() < most { Ok(()) } else { Err(RefusalReason::ControllersExhausted) };
        }
        // A reset asks those to end that prove themselves, and they do not come back.
        let queue = entry.proving.iter().find(|queue| queue.handle == handle).ok_or(RefusalReason::NotReady)?;
        if !association.is_ready() {
            return Err(RefusalReason::NotReady);
        }
        if entry.queues.iter().any(|other| other.id == queue.id && !other.detached) {
            return Err(RefusalReason::QueueInUse);
        }
        if self.is_draining(key) {
            return Err(RefusalReason::Draining);
        }
        self.check_entries(&association.drive, subsystem.and_then(|of| of.drive.as_deref()), queue.entries)?;
        self.check_share(&association.host, 0, limits)
    }

    pub(super) fn open_count(&self) -> usize {
        self.entries.values().filter(|entry| entry.is_open).count()
    }

    /// A controller ID that is not in use, while there are fewer than `most` controllers. They are
    /// assigned in ascending order, so that one is not soon reused by another host.
    pub(super) fn free_cntlid(&mut self, nqn: &Nqn, kind: &Kind, host: &Nqn, most: u32) -> Option<ControllerId> {
        // Those who have proven nothing yet take no place of others.
        if self.open_count() >= usize::try_from(most).unwrap_or(usize::MAX) {
            return None;
        }
        let (least, most) = match kind {
            Kind::Io(subsystem) => (subsystem.cntlid_min.0, subsystem.cntlid_max.0.min(ControllerId::MAX.0)),
            Kind::Discovery(_) => (1, ControllerId::MAX.0),
        };
        if let Kind::Io(subsystem) = kind
            && let Some(drive) = &subsystem.drive
        {
            let in_use = self.cntlids_in_use(subsystem.drive_nqn());
            return drive.cntlid_for(host.as_str(), least, most, |cntlid| in_use.contains(&cntlid));
        }
        let span = u64::from(most.checked_sub(least)?) + 1;
        let start = match self.next_cntlid.get(nqn) {
            // The range may have been another one.
            Some(next) => u64::from(next.saturating_sub(least)) % span,
            None => self.seed % span,
        };
        let mut candidates = (0..span).map(|turn| {
            let offset = (start + turn) % span;
            ControllerId(least + u16::try_from(offset).expect("less than 65536"))
        });
        let free = candidates.find(|&cntlid| !self.names.contains_key(&(nqn.clone(), cntlid)))?;
        self.next_cntlid.insert(nqn.clone(), free.0 + 1);
        Some(free)
    }

    /// The controllers of a drive, through whichever subsystem, that are not ending.
    pub(super) fn cntlids_in_use(&self, drive: &Nqn) -> BTreeSet<ControllerId> {
        let all = self.entries.values().map(|entry| &entry.association);
        let live = all.filter(|association| association.drive == *drive && !association.is_closing());
        live.map(|association| association.cntlid).collect()
    }

    /// The queues of the host's other associations that have to be checked.
    pub(super) fn to_be_checked(&self, key: ControllerKey, now_ms: u64) -> Vec<Handle> {
        let own = self.entry(key);
        let others = self.entries.iter().filter(|(other, entry)| {
            **other != key
                && entry.is_open
                && !entry.association.is_closing()
                && same_host(&own.association, &entry.association)
        });
        let queues = others.flat_map(|(_, entry)| {
            let is_silent = entry.is_silent(now_ms);
            entry.queues.iter().filter(move |queue| !queue.detached && (queue.id.is_admin() || is_silent))
        });
        queues.map(|queue| queue.handle).collect()
    }

    /// Whether queues of this controller's host drain.
    pub(super) fn is_draining(&self, key: ControllerKey) -> bool {
        let own = &self.entry(key).association;
        self.draining().any(|entry| same_host(own, entry))
    }

    /// The associations with queues that drain.
    pub(super) fn draining(&self) -> impl Iterator<Item = &Association> {
        let draining = self.entries.values().filter(|entry| entry.queues.iter().any(|queue| entry.drains(queue)));
        draining.map(|entry| &*entry.association)
    }

    /// Whether too many associations of a host drain for it to get another controller.
    pub(super) fn drains_too_much(&self, subsystem: &Nqn, host: &Nqn) -> bool {
        let draining = self.entries.values().filter(|entry| {
            let association = &entry.association;
            entry.is_open
                && association.is_closing()
                && association.subsystem == *subsystem
                && association.host == *host
        });
        draining.count() >= DRAINING_MAX
    }

    /// Reservation Report, the only command of I/O queues that needs the shared state.
    pub(super) fn report(&self, subsystem: &Subsystem, executing: &Executing) -> Outcome {
        let entries = || self.entries.values().filter(|entry| entry.is_open).map(|entry| &entry.association);
        let here = |association: &&Arc<Association>| {
            association.drive == *subsystem.drive_nqn() && !association.discovery && !association.is_closing()
        };
        reservation::report(subsystem, executing, |host| {
            entries()
                .filter(here)
                .find(|association| association.host_id() == host)
                .map(|association| association.cntlid)
        })
    }
}

impl ControllerEntry {
    /// Whether the queue is only waited for. Behind a gate that was never open nothing can be.
    pub(super) fn drains(&self, queue: &AttachedQueue) -> bool {
        self.is_open && (queue.detached || self.association.is_closing())
    }

    /// Whether the host has been silent for so long that its connection may be lost.
    pub(super) fn is_silent(&self, now_ms: u64) -> bool {
        let keep_alive_ms = self.keep_alive.map_or(2 * SILENT_MS, |timer| u64::from(timer.timeout_ms));
        self.last_command_ms().saturating_add(keep_alive_ms / 2) <= now_ms
    }

    /// Its host has still to prove who it is.
    pub(super) fn is_proving(&self) -> bool {
        !self.is_open && !self.association.is_closing()
    }

    /// Ends the association: its queues execute no more commands, and all its connections are to be
    /// closed.
    pub(super) fn close(&mut self, reason: CloseReason, notices: &mut Notices) {
        self.association.ready.store(false, Ordering::Relaxed);
        self.association.closing.store(true, Ordering::Relaxed);
        let all = self.queues.iter().chain(&self.proving);
        notices.extend(all.map(|queue| (queue.handle, Notice::Close(reason))));
    }

    /// The I/O queue of that connection is there from now on. An Admin Queue was before.
    pub(super) fn come(&mut self, handle: Handle) {
        if let Some(at) = self.proving.iter().position(|queue| queue.handle == handle) {
            let queue = self.proving.remove(at);
            self.queues.push(queue);
            self.count_io_queues();
        }
    }

    /// Sends every queue of the changed subsystem the part that its host may see.
    pub(super) fn notify(&self, subsystem: &Arc<Subsystem>, notices: &mut Notices) {
        // What is behind a gate is shown the subsystem when it opens.
        if !self.is_open {
            return;
        }
        let (admin, io) = self.views(subsystem);
        let queues = self.queues.iter().filter(|queue| !queue.detached);
        let view = |queue: &AttachedQueue| if queue.id.is_admin() { &admin } else { &io };
        notices.extend(queues.map(|queue| (queue.handle, Notice::Subsystem(Arc::clone(view(queue))))));
    }

    /// The subsystem, which was as `last` if it was there, is as `now`, and the ANA groups at the
    /// port are in `states`. `own` says that a command of the host itself is the cause.
    pub(super) fn follow(
        &mut self,
        last: Option<&Arc<Subsystem>>,
        now: &Arc<Subsystem>,
        states: GroupStates,
        own: bool,
        notices: &mut Notices,
    ) {
        if last == Some(now) && self.states == states {
            return;
        }
        if let Some(last) = last {
            let (last, now) = (self.shown(last), self.shown(now));
            self.replaced.note(&last, &now, own, &self.association);
        }
        self.states = states;
        self.notify(now, notices);
    }

    /// If its host knows of all changes of objects, that is remembered beyond the controller.
    pub(super) fn note_holder(&self, holders: &mut Holders, objects: &Objects) {
        if self.is_open && self.replaced.is_known() && !self.association.discovery {
            holders.put(Holder::of(&self.association), objects.changes_count());
        }
    }

    /// What the controller knows of the subsystem once its host knows of all changes.
    pub(super) fn shown(&self, subsystem: &Arc<Subsystem>) -> Arc<Subsystem> {
        subsystem.shown_to(&self.association.host, self.association.host_id(), &self.states)
    }

    /// The subsystem as the host's Admin Queue and its I/O queues are shown it.
    pub(super) fn views(&self, subsystem: &Arc<Subsystem>) -> (Arc<Subsystem>, Arc<Subsystem>) {
        let (admin, io) = self.replaced.views(self.shown(subsystem));
        (admin, self.fence.bar(io))
    }

    pub(super) fn last_command_ms(&self) -> u64 {
        let queues = self.queues.iter();
        let of_queues = queues.map(|queue| queue.counters.last_command_ms.load(Ordering::Relaxed));
        of_queues.fold(self.command_of_gone_ms, u64::max)
    }

    pub(super) fn count_io_queues(&self) {
        let queues = self.queues.iter().filter(|queue| !queue.id.is_admin() && !queue.detached).count();
        self.association.io_queues.store(u32::try_from(queues).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Sets the keep alive time-out, 0 for none, and starts its timer.
    pub(super) fn set_keep_alive(&mut self, timeout_ms: u32, now_ms: u64) {
        self.association.keep_alive_ms.store(timeout_ms, Ordering::Relaxed);
        self.keep_alive = (timeout_ms != 0).then_some(KeepAlive { timeout_ms, armed_ms: now_ms, forgiven: false });
    }
}

impl KeepAlive {
    pub(super) fn deadline_ms(&self) -> u64 {
        self.armed_ms.saturating_add(self.timeout_ms.into())
    }

    /// Whether the host has sent nothing for the whole time-out. If it has sent a command, an
    /// expired timer is restarted.
    pub(super) fn expired(&mut self, last_command_ms: u64, now_ms: u64) -> bool {
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

/// Whether both may be of the same host: hosts reconnect with another identifier or another NQN.
pub(super) fn same_host(one: &Association, other: &Association) -> bool {
    one.known_as == other.known_as
        && !one.discovery
        && !other.discovery
        && (one.host == other.host || one.host_id() == other.host_id() && one.host_id() != ebof_nvme::HostId::default())
}

/// Why an association cannot continue with the new model.
pub(super) fn no_longer_served(model: &Model, association: &Association) -> Option<CloseReason> {
    let Some(port) = model.port(association.port.id) else { return Some(CloseReason::PortRemoved) };
    match (association.psk, association.named_host()) {
        (Some(source), Some(host)) if model.has_key(host, source) => {}
        (Some(_), _) => return Some(CloseReason::KeyRemoved),
        (None, _) if port.tls == TlsUse::Required => return Some(CloseReason::TlsDemanded),
        (None, _) => {}
    }
    if association.discovery {
        return None;
    }
    let subsystem = model.subsystem(&association.subsystem);
    match subsystem.filter(|subsystem| !port.discovery_only && subsystem.ports.contains(&port.id)) {
        Some(subsystem) if !association.may_use(subsystem) => Some(CloseReason::HostNotAllowed),
        Some(subsystem) => lacks_proof(model, subsystem, association),
        None if subsystem.is_some_and(|subsystem| subsystem.function.is_some()) => Some(CloseReason::FunctionTaken),
        None => Some(CloseReason::SubsystemRemoved),
    }
}

/// What the host has to prove now, and did not.
fn lacks_proof(model: &Model, subsystem: &Subsystem, association: &Association) -> Option<CloseReason> {
    let has_secret = association.named_host().is_some_and(|host| model.secrets.contains_key(host));
    let is_demanded = !association.is_memory_based() && (has_secret || subsystem.authenticated_only);
    let lacks_tls = subsystem.tls_only && !association.is_secured() && !association.is_memory_based();
    match (association.proves, has_secret) {
        (false, _) if is_demanded => Some(CloseReason::ProofDemanded),
        (true, false) if is_demanded => Some(CloseReason::KeyRemoved),
        _ => lacks_tls.then_some(CloseReason::TlsDemanded),
    }
}
