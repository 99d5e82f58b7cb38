//! Connect: which host gets a controller, and which queue a connection becomes (NVMe over Fabrics,
//! Connect Command).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ebof_authentication::Group;
use ebof_authentication::controller::{Credentials, Demand, Policy};
use ebof_authentication::response::Names;
use ebof_drive::View;
use ebof_nvme::command::ControllerInstance;
use ebof_nvme::connect::ConnectResult;
use ebof_nvme::{ControllerId, HostId, Nqn};

use super::controllers::{AttachedQueue, ControllerEntry, ControllerKey, Draining};
use super::drain::Deferral;
use super::fence::Fence;
use super::replaced::Replaced;
use super::{Handle, Registry};
use crate::association::error_log::ErrorLog;
use crate::association::{Association, Counters, Identity};
use crate::connect::authentication::{Authenticator, FirstProof};
use crate::connect::{Arrival, ConnectRequest, Refusal, RefusalReason, SubmissionQueue, Tolerated};
use crate::controller::{Controller, Kind};
use crate::model::discovery::ADMIN_QUEUE_ENTRIES;
use crate::model::function;
use crate::model::secrets::HostSecrets;
use crate::model::secrets::{Channel, PskSource, TlsPeer};
use crate::model::{Port, Subsystem, TlsUse};
use crate::queue::{Live, Queue, Role, gate};
use crate::task::Task;
use crate::task::executing::Executing;
use crate::task::step::Step;

/// The result of a Connect that is not refused.
enum Verdict {
    Granted(Live),
    /// It waits; these queues have to be checked first.
    Deferred(Vec<Handle>),
}

/// An I/O queue that a host may have, unless something drains.
struct IoQueue {
    key: ControllerKey,
    association: Arc<Association>,
    /// The subsystem as the host sees it.
    view: Arc<Subsystem>,
    entries: u16,
    authenticator: Option<Box<Authenticator>>,
}

/// A Connect on which is decided.
pub(super) struct Admission<'r> {
    registry: &'r mut Registry,
    request: &'r ConnectRequest,
    arrival: &'r Arrival,
    now_ms: u64,
}

impl<'r> Admission<'r> {
    pub(super) fn new(
        registry: &'r mut Registry,
        request: &'r ConnectRequest,
        arrival: &'r Arrival,
        now_ms: u64,
    ) -> Self {
        Self { registry, request, arrival, now_ms }
    }

    /// Decides on a Connect.
    pub(super) fn decide(&mut self, queue: &mut Queue, executing: Executing) -> (Step, Option<Refusal>) {
        let verdict = if self.request.connect.qid.is_admin() {
            self.admit_controller().map(Verdict::Granted)
        } else {
            self.admit_or_defer()
        };
        match verdict {
            Ok(Verdict::Deferred(looks)) => (Step::Execute(executing, Task::DeferConnect(looks)), None),
            Ok(Verdict::Granted(live)) => {
                let authreq = live.authenticator.as_ref().map_or(0, |authenticator| authenticator.authreq());
                let result = ConnectResult::Connected { cntlid: live.association.cntlid, authreq }.encode();
                (queue.install(&executing, live, result), None)
            }
            Err(reason) => {
                self.registry.drains.forget(self.arrival.handle);
                let ConnectRequest { host, subsystem, .. } = self.request.clone();
                refuse(queue, executing, reason, Some(host), Some(subsystem))
            }
        }
    }

    /// Decides on a host that is attached directly.
    pub(super) fn decide_attached(&mut self) -> Result<Live, RefusalReason> {
        if self.request.connect.qid.is_admin() {
            return self.admit_controller();
        }
        let admissible = self.check_io_queue()?;
        if self.registry.controllers.is_draining(admissible.key) {
            return Err(RefusalReason::Draining);
        }
        Ok(self.grant_io_queue(admissible))
    }

    fn admit_controller(&mut self) -> Result<Live, RefusalReason> {
        let Self { request, arrival, now_ms, .. } = *self;
        let port = self.registry.model.port(arrival.port).ok_or(RefusalReason::PortRemoved)?.clone();
        let entries = self.queue_entries(&port, None)?;
        // Only the dynamic controller model: the host may not choose a controller.
        if request.cntlid != ControllerId::DYNAMIC {
            return Err(RefusalReason::StaticController);
        }
        let discovery = self.registry.model.is_discovery(&request.subsystem);
        let (nqn, kind) = if discovery {
            (self.registry.model.discovery.nqn.clone(), Kind::Discovery(self.registry.model.discovery.clone()))
        } else {
            let subsystem = self.find();
            let here =
                subsystem.filter(|subsystem| !port.discovery_only && function::is_offered_at(subsystem, port.id));
            let subsystem = here.ok_or_else(|| self.missing(&request.subsystem))?;
            // Who is behind a direct port was decided when the function was given to it.
            let is_given = port.is_memory_based() && subsystem.function.is_some();
            if !(is_given || if request.nameless { subsystem.allow_any_host } else { subsystem.allows(&request.host) })
            {
                return Err(RefusalReason::HostNotAllowed);
            }
            self.check_host_id(subsystem)?;
            if self.registry.controllers.drains_too_much(&subsystem.nqn, &request.host) {
                return Err(RefusalReason::Draining);
            }
            (subsystem.nqn.clone(), Kind::Io(subsystem.shown_to(&request.host, request.host_id, &port.states)))
        };
        self.check_channel(&kind, &port)?;
        let authenticator = self.authenticator(&kind, &port)?;
        self.registry.controllers.check_share(&request.host, 1, &self.registry.limits)?;
        let is_due = authenticator.as_ref().is_some_and(|authenticator| authenticator.is_due());
        let instance = self.next_instance(&nqn, &kind, &port, is_due)?;
        let identity = self.identity(&nqn, &kind, instance, authenticator.is_some());
        let psk = arrival.channel.psk();
        let association =
            Arc::new(Association::new(identity, port, self.registry.limits_of(&kind), self.error_log(&kind)));
        let counters = Arc::new(Counters::default());
        counters.last_command_ms.store(now_ms, Ordering::Relaxed);
        let attached = attached(request, arrival, entries, &counters);
        let mut entry = ControllerEntry {
            association: Arc::clone(&association),
            is_open: false,
            peer: arrival.peer.clone(),
            network: arrival.network.clone(),
            local: arrival.local.clone(),
            connected_ms: now_ms,
            queues: vec![attached],
            proving: Vec::new(),
            command_of_gone_ms: 0,
            keep_alive: None,
            enable_by_ms: Some(now_ms.saturating_add(self.registry.limits.enable_timeout_ms.into())),
            replaced: Replaced::default(),
            states: association.port.states.clone(),
            fence: Fence::default(),
            reset_by: Vec::new(),
        };
        entry.set_keep_alive(self.registry.keep_alive_ms(discovery, request.connect.kato_ms), now_ms);
        self.registry.generated_psks.note_use(psk.and_then(PskSource::channel));
        self.registry.controllers.add(arrival.handle, entry);
        let role = Role::Admin(Box::new(Controller::new(Arc::clone(&association), kind)));
        Ok(granted(request, arrival, entries, association, counters, now_ms, (role, authenticator)))
    }

    /// Whose controller a new one is, and which.
    fn identity(&self, nqn: &Nqn, kind: &Kind, instance: ControllerInstance, proves: bool) -> Identity {
        let ConnectRequest { host, host_id, nameless, .. } = self.request.clone();
        let (function, drive) = match kind {
            Kind::Io(subsystem) => (subsystem.function.as_ref().map(|of| of.id), subsystem.drive_nqn().clone()),
            Kind::Discovery(_) => (None, nqn.clone()),
        };
        Identity {
            instance,
            subsystem: nqn.clone(),
            known_as: kind.known_as(nqn).clone(),
            function,
            drive,
            host,
            host_id,
            nameless,
            discovery: matches!(kind, Kind::Discovery(_)),
            proves,
            psk: self.arrival.channel.psk(),
        }
    }

    /// A number for a new controller that no other one has, and by which this one is told from
    /// those that have had it before.
    fn next_instance(
        &mut self,
        nqn: &Nqn,
        kind: &Kind,
        port: &Port,
        is_due: bool,
    ) -> Result<ControllerInstance, RefusalReason> {
        let Self { request, arrival, .. } = *self;
        let id = match secondary_controller(kind, port) {
            Some((drive, id)) => (!self.registry.controllers.cntlids_in_use(&drive).contains(&id)).then_some(id),
            None => self.registry.waiting().give_cntlid((nqn, kind), &request.host, &arrival.network, is_due),
        };
        let id = id.ok_or(RefusalReason::ControllersExhausted)?;
        let uniquifier = self.registry.controllers.instances.next_uniquifier(kind.known_as(nqn), id);
        Ok(ControllerInstance { id, uniquifier, random: arrival.random })
    }

    /// The host's identifier is no other host's.
    fn check_host_id(&self, subsystem: &Subsystem) -> Result<(), RefusalReason> {
        let ConnectRequest { host, host_id, .. } = self.request;
        self.registry.controllers.check_host_id(host, *host_id, subsystem.drive_nqn())?;
        let is_of_another = self.registry.proven_host_ids.is_of_another(*host_id, host);
        if is_of_another { Err(RefusalReason::HostIdInUse) } else { Ok(()) }
    }

    /// A connection over TLS is of the host and the subsystem whose PSK it has, and of no others.
    fn check_channel(&self, kind: &Kind, port: &Port) -> Result<(), RefusalReason> {
        let request = self.request;
        match (&self.arrival.channel, kind) {
            (Channel::Tls(peer), _) => {
                let TlsPeer { names, psk } = &**peer;
                let is_theirs = !request.nameless && names.host == request.host && names.subsystem == request.subsystem;
                // It may have been taken away since the handshake.
                let registry = &*self.registry;
                let is_live = |channel| registry.controllers.have_channel(channel);
                let is_good = |channel| registry.generated_psks.has(channel, is_live, self.now_ms);
                let has_key = registry.model.has_key(&names.host, *psk) && psk.channel().is_none_or(is_good);
                if is_theirs && has_key { Ok(()) } else { Err(RefusalReason::TlsIdentity) }
            }
            // Of the port as it is now: the connection may be older.
            (Channel::Plain, _) if port.tls == TlsUse::Required => Err(RefusalReason::TlsRequired),
            (Channel::Plain, Kind::Io(subsystem)) if subsystem.tls_only && !port.is_memory_based() => {
                // It may be the first half of secure channel concatenation.
                if self.may_concatenate(port) { Ok(()) } else { Err(RefusalReason::TlsRequired) }
            }
            (Channel::Plain, _) => Ok(()),
        }
    }

    /// By what the host has to prove who it is; `None` if it need not. Who is behind a direct port
    /// is known, and what the discovery subsystem tells a host is no secret.
    fn authenticator(&self, kind: &Kind, port: &Port) -> Result<Option<Box<Authenticator>>, RefusalReason> {
        let Kind::Io(subsystem) = kind else { return Ok(None) };
        if port.is_memory_based() {
            return Ok(None);
        }
        let model = &self.registry.model;
        let secrets = model.secrets.get(&self.request.host).filter(|_| !self.request.nameless);
        match secrets {
            Some(secrets) => {
                let names = Names { host: self.request.host.clone(), subsystem: self.request.subsystem.clone() };
                let HostSecrets { host, controller } = HostSecrets::clone(secrets);
                let credentials = Credentials { names, host, controller };
                let (first, secure_channel) = self.demands(subsystem, port);
                let mut policy = Policy { secure_channel, ..model.authentication.clone() };
                // Nobody reads along, and TLS has had an exchange of its own: one that takes
                // milliseconds, on each queue, would add nothing. The sort is stable.
                if self.arrival.channel.psk().is_some() && secure_channel == Demand::Refused {
                    policy.groups.sort_by_key(|group| *group != Group::Null);
                }
                Ok(Some(Box::new(Authenticator::new(credentials, policy, first))))
            }
            None if subsystem.authenticated_only => Err(RefusalReason::NoSecret),
            None => Ok(None),
        }
    }

    /// What a host that has a secret has to prove on this queue, and which part secure channel
    /// concatenation has in it: it begins on an Admin Queue without TLS, and its PSK may be
    /// replaced on one that has TLS by it.
    fn demands(&self, subsystem: &Subsystem, port: &Port) -> (FirstProof, Demand) {
        let is_admin = self.request.connect.qid.is_admin();
        match self.arrival.channel.psk() {
            Some(PskSource::Generated(_)) if is_admin => (FirstProof::Given, Demand::Allowed { over_tls: true }),
            Some(PskSource::Generated(_)) => (FirstProof::Given, Demand::Refused),
            None if self.may_concatenate(port) && subsystem.tls_only => {
                (FirstProof::DueForSecureChannel, Demand::Required)
            }
            None if self.may_concatenate(port) => (FirstProof::Due, Demand::Allowed { over_tls: false }),
            _ => (FirstProof::Due, Demand::Refused),
        }
    }

    /// Whether this is an Admin Queue without TLS whose host may authenticate and come again with
    /// TLS.
    fn may_concatenate(&self, port: &Port) -> bool {
        let ConnectRequest { connect, host, nameless, .. } = self.request;
        connect.qid.is_admin()
            && port.tls == TlsUse::Allowed
            && !nameless
            && self.registry.model.secrets.contains_key(host)
    }

    fn admit_or_defer(&mut self) -> Result<Verdict, RefusalReason> {
        let admissible = self.check_io_queue()?;
        Ok(
            match self.registry.drains.defer(
                &self.registry.controllers,
                self.arrival.handle,
                admissible.key,
                self.now_ms,
            )? {
                Deferral::Wait(looks) => Verdict::Deferred(looks),
                Deferral::None => Verdict::Granted(self.grant_io_queue(admissible)),
            },
        )
    }

    fn check_io_queue(&self) -> Result<IoQueue, RefusalReason> {
        let Self { request, arrival, .. } = *self;
        if self.registry.model.is_discovery(&request.subsystem) {
            return Err(RefusalReason::QueueId);
        }
        let Some(subsystem) = self.find().cloned() else { return Err(self.missing(&request.subsystem)) };
        let key = self.registry.controllers.names.get(&(subsystem.nqn.clone(), request.cntlid)).copied();
        let key = key.ok_or(RefusalReason::UnknownController)?;
        let entry = self.registry.controllers.entry(key);
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
        let entries = self.queue_entries(&association.port, drive)?;
        self.registry.controllers.check_entries(subsystem.drive_nqn(), drive, entries)?;
        self.registry.controllers.check_share(&request.host, 0, &self.registry.limits)?;
        let kind = Kind::Io(Arc::clone(&view));
        // The port may have been removed: then the controller is about to end.
        self.check_channel(&kind, self.registry.model.port(arrival.port).unwrap_or(&association.port))?;
        if association.psk != arrival.channel.psk() {
            return Err(RefusalReason::OtherHost);
        }
        let authenticator = match self.authenticator(&kind, &association.port)? {
            // The host has its secret only since its Admin Queue came, without a proof: its
            // controller is about to end.
            Some(_) if !association.proves => return Err(RefusalReason::NoSecret),
            None if association.proves => return Err(RefusalReason::NoSecret),
            authenticator => authenticator,
        };
        Ok(IoQueue { key, association, view, entries, authenticator })
    }

    fn grant_io_queue(&mut self, queue: IoQueue) -> Live {
        let IoQueue { key, association, view, entries, authenticator } = queue;
        let Self { request, arrival, now_ms, .. } = *self;
        let counters = Arc::new(Counters::default());
        counters.last_command_ms.store(now_ms, Ordering::Relaxed);
        let entry = self.registry.controllers.entry_mut(key);
        let queue = attached(request, arrival, entries, &counters);
        if authenticator.as_ref().is_some_and(|authenticator| authenticator.is_due()) {
            entry.proving.push(queue);
        } else {
            entry.queues.push(queue);
            entry.count_io_queues();
        }
        self.registry.controllers.handles.insert(arrival.handle, key);
        granted(request, arrival, entries, association, counters, now_ms, (Role::Io(view), authenticator))
    }

    /// The subsystem that is asked for, be it at this port or not. Only who is attached directly
    /// names one by another NQN than that by which it is known.
    fn find(&self) -> Option<&Arc<Subsystem>> {
        let asked = &self.request.subsystem;
        let named = self.registry.effective.get(asked);
        let port = self.registry.model.port(self.arrival.port);
        let Some(port) = port.filter(|port| !port.is_memory_based()) else { return named };
        let named = named.filter(|subsystem| function::known_as(subsystem) == asked);
        if named.is_some_and(|subsystem| subsystem.ports.contains(&port.id)) {
            return named;
        }
        let function = function::at_port(&self.registry.model, asked, port.id);
        function.and_then(|subsystem| self.registry.effective.get(&subsystem.nqn)).or(named)
    }

    /// The refusal for a subsystem that is not served.
    fn missing(&self, nqn: &Nqn) -> RefusalReason {
        let is_known_as = |missing: &Nqn| {
            let function = self.registry.effective.get(missing);
            function.is_some_and(|subsystem| function::known_as(subsystem) == nqn)
        };
        let is_function = |missing: &Nqn| function::is_function_of(nqn, missing);
        let is_of =
            |all: &[Nqn]| all.iter().any(|missing| missing == nqn || is_function(missing) || is_known_as(missing));
        if is_of(&self.registry.model.returning) {
            return RefusalReason::SubsystemReturning;
        }
        if is_of(&self.registry.model.disabled) {
            return RefusalReason::SubsystemDisabled;
        }
        let function = self.registry.effective.get(nqn).and_then(|subsystem| subsystem.function.as_ref());
        let is_offline = function.is_some_and(|function| !function.online);
        if is_offline { RefusalReason::FunctionOffline } else { RefusalReason::UnknownSubsystem }
    }

    /// SQSIZE: at least two entries, at most CAP.MQES, which limits I/O queues only: the discovery
    /// log promises an Admin Queue of 32 entries, and hosts request as many.
    fn queue_entries(&self, port: &Port, drive: Option<&View>) -> Result<u16, RefusalReason> {
        let request = self.request;
        if request.connect.qid.is_admin() && port.is_memory_based() {
            // AQA has no other limit.
            let entries = u16::try_from(request.connect.entries).ok();
            return entries.filter(|entries| (2..=4096).contains(entries)).ok_or(RefusalReason::QueueSize);
        }
        let of_drive = drive.and_then(|drive| drive.profile.queue_entries).unwrap_or(u16::MAX);
        let least = if request.connect.qid.is_admin() { ADMIN_QUEUE_ENTRIES } else { 2 };
        let most = port.max_queue_entries.min(self.registry.limits.queue_entries).min(of_drive).max(least);
        let entries = u16::try_from(request.connect.entries).ok().filter(|entries| (2..=most).contains(entries));
        entries.ok_or(RefusalReason::QueueSize)
    }

    /// The Error Information log of a new controller.
    fn error_log(&mut self, kind: &Kind) -> Arc<ErrorLog> {
        match kind {
            Kind::Io(subsystem) if subsystem.drive.is_some() => {
                let drive = subsystem.drive_nqn().clone();
                Arc::clone(self.registry.errors.entry(drive).or_insert_with(|| Arc::new(ErrorLog::new())))
            }
            _ => Arc::new(ErrorLog::new()),
        }
    }
}

/// The controller that a function is at a direct port: its number is the function's.
fn secondary_controller(kind: &Kind, port: &Port) -> Option<(Nqn, ControllerId)> {
    let Kind::Io(subsystem) = kind else { return None };
    let function = subsystem.function.as_ref().filter(|_| port.is_memory_based())?;
    Some((function.drive.clone(), ControllerId(function.id.0)))
}

fn attached(request: &ConnectRequest, arrival: &Arrival, entries: u16, counters: &Arc<Counters>) -> AttachedQueue {
    AttachedQueue {
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
    (role, authenticator): (Role, Option<Box<Authenticator>>),
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
        authenticator,
    }
}

pub(super) fn refuse(
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
