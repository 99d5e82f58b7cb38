//! Connect: which host gets a controller, and which queue a connection becomes (NVMe over Fabrics,
//! Connect Command).

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ebof_drive::View;
use ebof_nvme::connect::ConnectResult;
use ebof_nvme::property::Cap;
use ebof_nvme::{ControllerId, HostId, Nqn};

use super::drain::{Deferral, Draining};
use super::holders::Holder;
use super::replaced::Replaced;
use super::{Attached, Entry, Handle, Key, Registry};
use crate::association::{Association, Counters, Identity};
use crate::connect::{self, Arrival, Attachment, ConnectRequest, Refusal, RefusalReason, SubmissionQueue, Tolerated};
use crate::controller::{Controller, Kind};
use crate::discovery::ADMIN_QUEUE_ENTRIES;
use crate::error_log::ErrorLog;
use crate::executing::Executing;
use crate::function::Function;
use crate::memory;
use crate::model::{Limits, Port, PortId, Subsystem};
use crate::queue::{Live, Queue, Role, gate};
use crate::step::Step;
use crate::task::Task;

/// The result of a Connect that is not refused.
enum Verdict {
    Granted(Live),
    /// It waits; these queues have to be checked first.
    Deferred(Vec<Handle>),
}

/// An I/O queue that a host may have, unless something drains.
struct IoQueue {
    key: Key,
    association: Arc<Association>,
    /// The subsystem as the host sees it.
    view: Arc<Subsystem>,
    entries: u16,
}

impl Registry {
    /// Decides a [`Task::Connect`]; `data` is the host's Connect data. After a refusal another
    /// Connect may follow on the queue.
    pub fn connect(
        &mut self,
        queue: &mut Queue,
        executing: Executing,
        data: &[u8],
        arrival: &Arrival,
        now_ms: u64,
    ) -> (Step, Option<Refusal>) {
        let (step, refusal) = self.admit(queue, executing, data, arrival, now_ms);
        // No subsystem demands a proof: every gate opens at once.
        if queue.is_connected() {
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
            Err((reason, host, subsystem)) => return refuse(queue, executing, reason, host, subsystem),
        };
        let verdict = if request.connect.qid.is_admin() {
            self.admit_controller(&request, arrival, now_ms).map(Verdict::Granted)
        } else {
            self.admit_or_defer(&request, arrival, now_ms)
        };
        match verdict {
            Ok(Verdict::Deferred(looks)) => (Step::Execute(executing, Task::DeferConnect(looks)), None),
            Ok(Verdict::Granted(live)) => {
                // AUTHREQ 0: no authentication required.
                let result = ConnectResult::Connected { cntlid: live.association.cntlid, authreq: 0 }.encode();
                (queue.install(&executing, live, result), None)
            }
            Err(reason) => {
                self.deferred.remove(&arrival.handle);
                refuse(queue, executing, reason, Some(request.host), Some(request.subsystem))
            }
        }
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
        let granted = if attachment.queue.is_admin() {
            self.admit_controller(&request, arrival, now_ms)
        } else {
            self.check_io_queue(&request, arrival).and_then(|admissible| {
                if self.is_draining(admissible.key) {
                    return Err(RefusalReason::Draining);
                }
                Ok(self.grant_io_queue(&request, arrival, admissible, now_ms))
            })
        };
        match granted {
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
        let key = queue.live().and_then(|live| self.handles.get(&live.handle)).copied();
        let shown = key.filter(|_| queue.is_admin()).and_then(|key| self.come(key, now_ms));
        queue.open(shown);
    }

    /// The host of a controller is there from now on. Returns its subsystem as the controller is
    /// shown it, unless it is for discovery: of what its host may hold, other objects may be behind
    /// the NSIDs now.
    fn come(&mut self, key: Key, now_ms: u64) -> Option<Arc<Subsystem>> {
        let entry = self.entries.get_mut(&key)?;
        entry.is_open = true;
        let association = &entry.association;
        let subsystem = self.effective.get(&association.subsystem).filter(|_| !association.discovery)?;
        let shown = subsystem.shown_to(&association.host, association.host_id());
        let holder = Holder::of(association);
        let count = self.objects.changes_count();
        let knows = self.holders.come(holder, association.is_memory_based(), count, now_ms);
        let missed = |nsid| self.objects.last_change(&shown.nqn, nsid) > knows;
        entry.replaced = Replaced::of(self.objects.of(&shown.nqn), &shown, missed);
        entry.note_holder(&mut self.holders, &self.objects);
        let (admin, _) = entry.replaced.views(shown);
        Some(admin)
    }

    fn admit_controller(
        &mut self,
        request: &ConnectRequest,
        arrival: &Arrival,
        now_ms: u64,
    ) -> Result<Live, RefusalReason> {
        let port = self.model.port(arrival.port).ok_or(RefusalReason::PortRemoved)?.clone();
        let entries = self.queue_entries(request, &port, None)?;
        // Only the dynamic controller model: the host may not choose a controller.
        if request.cntlid != ControllerId::DYNAMIC {
            return Err(RefusalReason::StaticController);
        }
        let discovery = self.model.is_discovery(&request.subsystem);
        let (nqn, kind) = if discovery {
            (self.model.discovery.nqn.clone(), Kind::Discovery(self.model.discovery.clone()))
        } else {
            let subsystem = self.effective.get(&request.subsystem);
            let here = subsystem.filter(|subsystem| !port.discovery_only && subsystem.ports.contains(&port.id));
            let subsystem = here.ok_or_else(|| self.missing(&request.subsystem))?;
            // Who is behind a direct port was decided when the function was given to it.
            let is_given = port.is_memory_based() && subsystem.function.is_some();
            if !(is_given || if request.nameless { subsystem.allow_any_host } else { subsystem.allows(&request.host) })
            {
                return Err(RefusalReason::HostNotAllowed);
            }
            self.check_host_id(request, subsystem.drive_nqn())?;
            if self.drains_too_much(&subsystem.nqn, &request.host) {
                return Err(RefusalReason::Draining);
            }
            (subsystem.nqn.clone(), Kind::Io(subsystem.shown_to(&request.host, request.host_id)))
        };
        self.check_share(&request.host, 1)?;
        let cntlid = match secondary_controller(&kind, &port) {
            Some((drive, cntlid)) => (!self.cntlids_in_use(&drive).contains(&cntlid)).then_some(cntlid),
            None => self.free_cntlid(&nqn, &kind, &request.host),
        };
        let cntlid = cntlid.ok_or(RefusalReason::ControllersExhausted)?;
        let ConnectRequest { host, host_id, nameless, .. } = request.clone();
        let (function, drive) = match &kind {
            Kind::Io(subsystem) => (subsystem.function.as_ref().map(|of| of.id), subsystem.drive_nqn().clone()),
            Kind::Discovery(_) => (None, nqn.clone()),
        };
        let identity = Identity { cntlid, subsystem: nqn.clone(), function, drive, host, host_id, nameless, discovery };
        let association = Arc::new(Association::new(identity, port, self.limits_of(&kind), self.error_log(&kind)));
        let counters = Arc::new(Counters::default());
        counters.last_command_ms.store(now_ms, Ordering::Relaxed);
        let attached = attached(request, arrival, entries, &counters);
        let mut entry = Entry {
            association: Arc::clone(&association),
            is_open: false,
            peer: arrival.peer.clone(),
            local: arrival.local.clone(),
            connected_ms: now_ms,
            queues: vec![attached],
            command_of_gone_ms: 0,
            keep_alive: None,
            enable_by_ms: Some(now_ms.saturating_add(self.limits.enable_timeout_ms.into())),
            replaced: Replaced::default(),
        };
        entry.set_keep_alive(self.keep_alive_ms(discovery, request.connect.kato_ms), now_ms);
        let key = Key(self.next_key);
        self.next_key += 1;
        self.entries.insert(key, entry);
        self.names.insert((nqn, cntlid), key);
        self.handles.insert(arrival.handle, key);
        let role = Role::Admin(Box::new(Controller::new(Arc::clone(&association), kind)));
        Ok(granted(request, arrival, entries, association, counters, now_ms, role))
    }

    fn admit_or_defer(
        &mut self,
        request: &ConnectRequest,
        arrival: &Arrival,
        now_ms: u64,
    ) -> Result<Verdict, RefusalReason> {
        let admissible = self.check_io_queue(request, arrival)?;
        Ok(match self.defer(arrival.handle, admissible.key, now_ms)? {
            Deferral::Wait(looks) => Verdict::Deferred(looks),
            Deferral::None => Verdict::Granted(self.grant_io_queue(request, arrival, admissible, now_ms)),
        })
    }

    fn check_io_queue(&self, request: &ConnectRequest, arrival: &Arrival) -> Result<IoQueue, RefusalReason> {
        if self.model.is_discovery(&request.subsystem) {
            return Err(RefusalReason::QueueId);
        }
        let Some(subsystem) = self.effective.get(&request.subsystem).cloned() else {
            return Err(self.missing(&request.subsystem));
        };
        let key = self.names.get(&(request.subsystem.clone(), request.cntlid)).copied();
        let key = key.ok_or(RefusalReason::UnknownController)?;
        let entry = self.entries.get(&key).ok_or(RefusalReason::UnknownController)?;
        let association = Arc::clone(&entry.association);
        if association.is_closing() {
            return Err(RefusalReason::UnknownController);
        }
        // The same host and port as the Admin Queue's. Deviation: the specification requires the
        // same host identifier, too, or zeros. TrueNAS' Python client sends another one for each
        // queue: the Admin Queue's is used, and the log has both. If the host has no NQN, the
        // identifiers have to be the same: only they distinguish it from others, and its NQN is
        // derived from them.
        let same_host = association.nameless == request.nameless && association.host == request.host;
        if !same_host || association.port.id != arrival.port {
            return Err(RefusalReason::OtherHost);
        }
        if !association.is_ready() {
            return Err(RefusalReason::NotReady);
        }
        if u32::from(request.connect.qid.0) > association.granted_queues.load(Ordering::Relaxed) {
            return Err(RefusalReason::QueueId);
        }
        if entry.queues.iter().any(|queue| queue.id == request.connect.qid && !queue.detached) {
            return Err(RefusalReason::QueueInUse);
        }
        let (_, view) = entry.views(&subsystem);
        let drive = subsystem.drive.as_deref();
        let entries = self.queue_entries(request, &association.port, drive)?;
        self.check_entries(subsystem.drive_nqn(), drive, entries)?;
        self.check_share(&request.host, 0)?;
        Ok(IoQueue { key, association, view, entries })
    }

    fn grant_io_queue(
        &mut self,
        request: &ConnectRequest,
        arrival: &Arrival,
        IoQueue { key, association, view, entries }: IoQueue,
        now_ms: u64,
    ) -> Live {
        let counters = Arc::new(Counters::default());
        counters.last_command_ms.store(now_ms, Ordering::Relaxed);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.queues.push(attached(request, arrival, entries, &counters));
            entry.count_io_queues();
        }
        self.handles.insert(arrival.handle, key);
        granted(request, arrival, entries, association, counters, now_ms, Role::Io(view))
    }

    /// The refusal for a subsystem that is not served.
    fn missing(&self, nqn: &Nqn) -> RefusalReason {
        let is_of =
            |all: &[Nqn]| all.iter().any(|missing| missing == nqn || crate::function::is_function_of(nqn, missing));
        if is_of(&self.model.returning) {
            return RefusalReason::SubsystemReturning;
        }
        if is_of(&self.model.disabled) {
            return RefusalReason::SubsystemDisabled;
        }
        let function = self.effective.get(nqn).and_then(|subsystem| subsystem.function.as_ref());
        let is_offline = function.is_some_and(|function| !function.online);
        if is_offline { RefusalReason::FunctionOffline } else { RefusalReason::UnknownSubsystem }
    }

    /// SQSIZE: at least two entries, at most CAP.MQES, which limits I/O queues only: the discovery
    /// log promises an Admin Queue of 32 entries, and hosts request as many.
    fn queue_entries(&self, request: &ConnectRequest, port: &Port, drive: Option<&View>) -> Result<u16, RefusalReason> {
        if request.connect.qid.is_admin() && port.is_memory_based() {
            // AQA has no other limit.
            let entries = u16::try_from(request.connect.entries).ok();
            return entries.filter(|entries| (2..=4096).contains(entries)).ok_or(RefusalReason::QueueSize);
        }
        let of_drive = drive.and_then(|drive| drive.profile.queue_entries).unwrap_or(u16::MAX);
        let least = if request.connect.qid.is_admin() { ADMIN_QUEUE_ENTRIES } else { 2 };
        let most = port.max_queue_entries.min(self.limits.queue_entries).min(of_drive).max(least);
        let entries = u16::try_from(request.connect.entries).ok().filter(|entries| (2..=most).contains(entries));
        entries.ok_or(RefusalReason::QueueSize)
    }

    /// The entries of all I/O queues of a drive together.
    fn check_entries(&self, nqn: &Nqn, drive: Option<&View>, more: u16) -> Result<(), RefusalReason> {
        let Some(most) = drive.and_then(|drive| drive.profile.queue_entries_total) else { return Ok(()) };
        let of_drive = self.entries.values().filter(|entry| entry.association.drive == *nqn);
        let queues = of_drive.flat_map(|entry| &entry.queues).filter(|queue| !queue.id.is_admin() && !queue.detached);
        let in_use: u32 = queues.map(|queue| u32::from(queue.entries)).sum();
        if in_use + u32::from(more) > most { Err(RefusalReason::EntriesExhausted) } else { Ok(()) }
    }

    /// Whether the host may have one more queue, and `controllers` more controllers. Those in other
    /// subsystems count, too, and those that are ending.
    fn check_share(&self, host: &Nqn, controllers: u32) -> Result<(), RefusalReason> {
        let of_host = self.entries.values().filter(|entry| entry.is_open && entry.association.host == *host);
        let count = |(had, queues): (usize, usize), entry: &Entry| (had + 1, queues + entry.queues.len());
        let (had, queues) = of_host.fold((0, 0), count);
        let fits = |count: usize, most: u32| u32::try_from(count).is_ok_and(|count| count < most);
        let controller = controllers == 0 || fits(had, self.limits.host_controllers);
        if controller && fits(queues, self.limits.host_queues) { Ok(()) } else { Err(RefusalReason::HostShare) }
    }

    /// A host identifier belongs to one host, and so to one host NQN; cloned machines often share
    /// it.
    fn check_host_id(&self, request: &ConnectRequest, drive: &Nqn) -> Result<(), RefusalReason> {
        let open = self.entries.values().filter(|entry| entry.is_open);
        let conflict = open.map(|entry| &entry.association).any(|other| {
            !other.discovery
                && !other.is_closing()
                && other.drive == *drive
                && other.host_id() == request.host_id
                && other.host != request.host
        });
        // Zeros mean no identifier.
        if conflict && request.host_id != HostId::default() { Err(RefusalReason::HostIdInUse) } else { Ok(()) }
    }

    /// A controller ID that is not in use. They are assigned in ascending order, so that one is not
    /// soon reused by another host.
    fn free_cntlid(&mut self, nqn: &Nqn, kind: &Kind, host: &Nqn) -> Option<ControllerId> {
        if self.entries.len() >= usize::try_from(self.limits.controllers).unwrap_or(usize::MAX) {
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
}

impl Registry {
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
    pub(super) fn limits_of(&self, kind: &Kind) -> Limits {
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

    /// The Error Information log of a new controller.
    fn error_log(&mut self, kind: &Kind) -> Arc<ErrorLog> {
        match kind {
            Kind::Io(subsystem) if subsystem.drive.is_some() => {
                let drive = subsystem.drive_nqn().clone();
                Arc::clone(self.errors.entry(drive).or_insert_with(|| Arc::new(ErrorLog::new())))
            }
            _ => Arc::new(ErrorLog::new()),
        }
    }

    /// The controllers of a drive, through whichever subsystem, that are not ending.
    fn cntlids_in_use(&self, drive: &Nqn) -> BTreeSet<ControllerId> {
        let all = self.entries.values().map(|entry| &entry.association);
        let live = all.filter(|association| association.drive == *drive && !association.is_closing());
        live.map(|association| association.cntlid).collect()
    }
}

/// The controller that a function is at a direct port: its number is the function's.
fn secondary_controller(kind: &Kind, port: &Port) -> Option<(Nqn, ControllerId)> {
    let Kind::Io(subsystem) = kind else { return None };
    let function = subsystem.function.as_ref().filter(|_| port.is_memory_based())?;
    Some((function.drive.clone(), ControllerId(function.id.0)))
}

fn attached(request: &ConnectRequest, arrival: &Arrival, entries: u16, counters: &Arc<Counters>) -> Attached {
    Attached {
        id: request.connect.qid,
        handle: arrival.handle,
        entries,
        counters: Arc::clone(counters),
        detached: false,
        draining: Draining::default(),
    }
}

fn granted(
    request: &ConnectRequest,
    arrival: &Arrival,
    entries: u16,
    association: Arc<Association>,
    counters: Arc<Counters>,
    now_ms: u64,
    role: Role,
) -> Live {
    let id = request.connect.qid;
    let other_id = !id.is_admin() && request.host_id != association.host_id() && request.host_id != HostId::default();
    let tolerated = match (id.is_admin() && request.nameless, other_id) {
        (true, _) => Some(Tolerated::NoHostNqn),
        (_, true) => Some(Tolerated::OtherHostId),
        _ => None,
    };
    let submission_queue = SubmissionQueue { entries, flow_disabled: request.connect.disables_sq_flow() };
    Live {
        id,
        handle: arrival.handle,
        association,
        counters,
        last_command_ms: now_ms,
        tolerated,
        submission_queue,
        role: gate::shut(role),
    }
}

fn refuse(
    queue: &mut Queue,
    executing: Executing,
    reason: RefusalReason,
    host: Option<Nqn>,
    subsystem: Option<Nqn>,
) -> (Step, Option<Refusal>) {
    let fault = reason.fault();
    let [_, _, low, high] = executing.cdw10().to_le_bytes();
    let id = ebof_nvme::QueueId(u16::from_le_bytes([low, high]));
    let refusal = Refusal { reason, status: fault.status, queue: id, host, subsystem };
    (queue.conclude(executing, Err(fault)), Some(refusal))
}

#[cfg(test)]
mod tests;
