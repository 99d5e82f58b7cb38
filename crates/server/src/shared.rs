//! What all threads of a target share, and how they reach each other.
//!
//! The registry's lock is taken on the control path only: Connect, the end of a connection,
//! commands that need a view of the whole, changes of the configuration.

pub(crate) mod audience;
pub(crate) mod buffer;
pub(crate) mod exponentiation;
pub(crate) mod handle;
pub(crate) mod host_limits;
pub(crate) mod mailbox;
pub(crate) mod owners;
pub(crate) mod priority;
pub(crate) mod range_lock;
pub(crate) mod reactor_context;
pub(crate) mod reports;
pub(crate) mod shares;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebof_fabrics::{Handle, Notices, Refusal, RefusalReason as Reason, Registry};
use ebof_manage::api::{ConnectionLog, Refusal as LoggedRefusal, RefusalReason};
use ebof_manage::events::{self, SharedEvents};
use ebof_manage::events::{EventKind, Events as _, NewEvent};
use ebof_nvme::{Nqn, Nsid};

use crate::drives::Drives;
use crate::environment::settings::Settings;
use crate::observe::heartbeat::Heartbeats;
use crate::observe::host_labels::HostLabels;
use crate::observe::log_limit::{Kind, LogLimit, LogSubject, Suppressed};
use crate::observe::queues::Queues;
use crate::observe::sampler::Sampler;
use crate::observe::sent::Counts;
use crate::observe::slow::Slow;
use crate::observe::stats::{QueueStats, Totals};
use crate::observe::troubles::{Trouble, Troubles};
pub(crate) use crate::observe::uptime::Uptime;
use crate::ports::peer::{Peer, PeerAddress};
use crate::ports::port::PortState;
use crate::ports::rdma_connection::{MessageMemory, Registered};
use crate::shared::exponentiation::Exponentiation;
use crate::shared::host_limits::Unadmitted;
use crate::shared::mailbox::{Mailbox, Message, mailbox_of};
use crate::shared::range_lock::FusedLocks;
use crate::shared::shares::Shares;

/// What both ends of a queue's stream have agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// Who makes the records of TLS here, where there are any.
    pub(crate) tls_records: Option<&'static str>,
}

/// Shared by all threads of one target.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) clock: Uptime,
    pub(crate) connections: AtomicU32,
    pub(crate) unadmitted: Arc<Unadmitted>,
    pub(crate) zerocopy: Counts,
    pub(crate) drives: Drives,
    pub(crate) fused_locks: Arc<FusedLocks>,
    pub(crate) shares: Shares,
    pub(crate) log_limit: LogLimit,
    pub(crate) events: Arc<SharedEvents>,
    host_labels: HostLabels,
    /// Trouble that no status tells of.
    pub(crate) troubles: Troubles,
    pub(crate) sampler: Sampler,
    /// What queues do, while somebody asks.
    pub(crate) queues: Queues,
    pub(crate) slow: Slow,
    /// What queue pairs of RDMA have for messages.
    pub(crate) message_memory: Arc<MessageMemory>,
    /// Queue pairs that are done with. To destroy one takes the system longer than a reactor should
    /// be away.
    graveyard: Mutex<Vec<Registered>>,
    registry: Mutex<Registry>,
    connection_log: Mutex<ConnectionLog>,
    stats: Mutex<Stats>,
    /// What the streams of the connected queues are like.
    agreed: Mutex<HashMap<Handle, Agreed>>,
    /// Nothing is accepted any more.
    pub(crate) stopping: AtomicBool,
    /// For connections that may go to any reactor: how many there were.
    next_reactor: AtomicUsize,
    reactors: Vec<Mailbox>,
    control: Mailbox,
    pub(crate) heartbeats: Heartbeats,
    /// What hosts prove themselves with.
    pub(crate) exponentiation: Exponentiation,
}

#[derive(Default)]
struct Stats {
    live: Vec<Arc<QueueStats>>,
    /// Of queues that are gone.
    past: Totals,
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        registry: Registry,
        drives: Drives,
        reactors: Vec<Mailbox>,
        control: Mailbox,
    ) -> Self {
        let message_memory = Arc::new(MessageMemory::new(settings.message_memory_bytes));
        let clock = Uptime::start(settings.environment.clock.clone());
        let exponentiation = Exponentiation::new(settings.environment.clock.clone(), reactors.clone());
        let shares = Shares::new(reactors.clone(), clock.clone());
        shares.follow(registry.model());
        let of_events = clock.clone();
        let events = SharedEvents::new(events::ENTRIES_MAX, move || of_events.unix_ms());
        let events = Arc::new(events.numbered_by_start());
        Self {
            connection_log: Mutex::new(ConnectionLog::new(settings.refused_journal)),
            shares,
            clock,
            slow: Slow::new(settings.slow_threshold),
            settings,
            connections: AtomicU32::new(0),
            unadmitted: Arc::default(),
            zerocopy: Counts::default(),
            drives,
            fused_locks: Arc::new(FusedLocks::new(reactors.clone())),
            log_limit: LogLimit::default(),
            events,
            host_labels: HostLabels::default(),
            troubles: Troubles::default(),
            sampler: Sampler::default(),
            queues: Queues::default(),
            message_memory,
            graveyard: Mutex::default(),
            registry: Mutex::new(registry),
            stats: Mutex::default(),
            agreed: Mutex::default(),
            stopping: AtomicBool::new(false),
            next_reactor: AtomicUsize::new(0),
            heartbeats: Heartbeats::for_reactors(reactors.len()),
            exponentiation,
            reactors,
            control,
        }
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reactors(&self) -> &[Mailbox] {
        &self.reactors
    }

    /// Which reactor gets a connection that may go to any.
    pub(crate) fn next_reactor(&self) -> usize {
        self.next_reactor.fetch_add(1, Relaxed) % self.reactors.len().max(1)
    }

    /// The mailbox of the reactor that serves `handle`.
    pub(crate) fn mailbox_of(&self, handle: Handle) -> &Mailbox {
        mailbox_of(&self.reactors, handle)
    }

    /// Leaves a message with the reactor that serves `handle`.
    pub(crate) fn post(&self, handle: Handle, message: Message) {
        self.mailbox_of(handle).post(message);
    }

    /// Leaves the same message with every reactor.
    pub(crate) fn post_all(&self, message: impl Fn() -> Message) {
        for mailbox in &self.reactors {
            mailbox.post(message());
        }
    }

    pub(crate) fn deliver(&self, notices: Notices) {
        for (handle, notice) in notices {
            self.post(handle, Message::Notice { handle, notice });
        }
    }

    /// The connection `handle` ends; what its queue has under way may not have ended.
    pub(crate) fn ending(&self, handle: Handle) {
        let mut registry = self.registry();
        let notices = registry.ending(handle);
        self.deliver(notices);
    }

    /// An Admin Queue has been looked at for the Connect of this connection.
    pub(crate) fn acknowledge_check(&self, held: Handle) {
        let mut registry = self.registry();
        let notices = registry.acknowledge_check(held);
        self.deliver(notices);
    }

    /// Whether a line of the log that others can cause is to be written; then with what was left
    /// out before it.
    pub(crate) fn may_log(&self, about: LogSubject, kind: Kind) -> Option<Suppressed> {
        let more = self.log_limit.admit(about, kind, self.clock.now_us());
        if self.log_limit.is_begun() {
            // The control thread logs what was left out when the time has come.
            self.wake_control();
        }
        more
    }

    /// The queue of `handle` is gone, and nothing of it is at a device.
    pub(crate) fn closed(&self, handle: Handle) {
        let mut registry = self.registry();
        let notices = registry.closed(handle);
        self.deliver(notices);
    }

    /// Has the control thread look at the registry's deadlines again.
    pub(crate) fn wake_control(&self) {
        self.control.ring();
    }

    /// The control thread destroys the queue pair.
    pub(crate) fn leave_to_control(&self, pair: Registered) {
        self.graveyard.lock().unwrap_or_else(PoisonError::into_inner).push(pair);
        self.wake_control();
    }

    /// Destroys the queue pairs that were left.
    pub(crate) fn bury(&self) {
        let pairs = std::mem::take(&mut *self.graveyard.lock().unwrap_or_else(PoisonError::into_inner));
        drop(pairs);
    }

    pub(crate) fn connection_gone(&self, port: &PortState) {
        self.connections.fetch_sub(1, Relaxed);
        port.counts.connections.fetch_sub(1, Relaxed);
    }

    /// Reports an event of any object.
    pub(crate) fn report(&self, event: NewEvent) {
        self.events.report(event);
    }

    /// Counts trouble of a host, which may be told at once.
    pub(crate) fn trouble(&self, host: &str, trouble: Trouble) {
        if let Some(event) = self.troubles.note(host, trouble, self.clock.now_ms()) {
            tracing::warn!(host, "{}", event.message);
            self.report(event);
        }
    }

    /// Tells of trouble that was counted.
    pub(crate) fn tell_troubles(&self) {
        for event in self.troubles.due(self.clock.now_ms()) {
            tracing::warn!(host = event.who, "in the last minute: {}", event.message);
            self.report(event);
        }
    }

    /// The name under which a host is counted that has connected. Takes the registry's lock.
    pub(crate) fn host_label(&self, host: &Nqn, peer: &Peer) -> String {
        let model = Arc::clone(self.registry().model());
        let is_named = model.subsystems.iter().any(|subsystem| subsystem.allowed_hosts.contains(host));
        let address = match peer.address {
            PeerAddress::Network { remote, .. } => Some(remote.ip()),
            PeerAddress::SameProcess | PeerAddress::Direct => None,
        };
        self.host_labels.label(host.as_str(), is_named, address)
    }

    pub(crate) fn add_stats(&self, stats: &Arc<QueueStats>) {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).live.push(Arc::clone(stats));
    }

    /// Everything counted since the start, by host, subsystem, queue and namespace.
    pub(crate) fn totals(&self) -> Totals {
        let stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals = stats.past.clone();
        for live in &stats.live {
            totals.add(live);
        }
        totals
    }

    /// The counters of the queues that are there now.
    pub(crate) fn live_stats(&self) -> Vec<Arc<QueueStats>> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).live.clone()
    }

    /// I/O commands that were completed since the start.
    pub(crate) fn commands(&self) -> u64 {
        let stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.past.commands() + stats.live.iter().map(|live| live.commands()).sum::<u64>()
    }

    /// Notes what the stream of a connected queue is like.
    pub(crate) fn set_agreed(&self, handle: Handle, agreed: Agreed) {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, agreed);
    }

    /// What the stream of a queue is like.
    pub(crate) fn agreed(&self, handle: Handle) -> Agreed {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner).get(&handle).copied().unwrap_or_default()
    }

    pub(crate) fn refusals(&self) -> Vec<LoggedRefusal> {
        self.connection_log.lock().unwrap_or_else(PoisonError::into_inner).entries()
    }

    pub(crate) fn forget_refusals(&self) -> usize {
        self.connection_log.lock().unwrap_or_else(PoisonError::into_inner).clear()
    }

    /// The queue of `handle` is gone: what it counted stays in the sums.
    pub(crate) fn retire(&self, handle: Handle, counted: &[(Nsid, Arc<QueueStats>)]) {
        if !counted.is_empty() {
            let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
            for (_, gone) in counted {
                stats.live.retain(|live| !Arc::ptr_eq(live, gone));
                stats.past.add(gone);
            }
        }
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }

    /// Notes a Connect that was refused.
    pub(crate) fn refuse_connect(&self, peer: &Peer, refusal: &Refusal) {
        let reason = match refusal.reason {
            Reason::Format
            | Reason::Length
            | Reason::MalformedSubsystem
            | Reason::MalformedHost
            | Reason::StaticController => RefusalReason::InvalidConnect,
            Reason::QueueSize | Reason::QueueId | Reason::QueueInUse | Reason::NotReady => RefusalReason::QueueRefused,
            Reason::UnknownSubsystem if peer.port.config.discovery_only => RefusalReason::DiscoveryPort,
            Reason::UnknownSubsystem => RefusalReason::UnknownSubsystem,
            Reason::SubsystemDisabled => RefusalReason::SubsystemDisabled,
            Reason::FunctionOffline => RefusalReason::SubsystemNotOnPort,
            Reason::HostNotAllowed => RefusalReason::HostNotAllowed,
            Reason::NoSecret => RefusalReason::NoSecret,
            Reason::TlsRequired => RefusalReason::TlsRequired,
            Reason::TlsIdentity => RefusalReason::TlsIdentity,
            Reason::HostIdInUse => RefusalReason::HostIdConflict,
            Reason::UnknownController => RefusalReason::ControllerNotFound,
            Reason::OtherHost => RefusalReason::ControllerOfOtherHost,
            Reason::ControllersExhausted | Reason::EntriesExhausted => RefusalReason::NoFreeController,
            Reason::HostShare => RefusalReason::HostShare,
            Reason::PortRemoved | Reason::SubsystemReturning => RefusalReason::ShuttingDown,
            Reason::Draining => RefusalReason::QueuesDraining,
        };
        let detail = format!("queue {}: {}; answered {}", refusal.queue, refusal.reason, refusal.status);
        self.refuse(peer.address, &peer.port, reason, refusal.host.as_ref(), refusal.subsystem.as_ref(), detail);
    }

    /// Notes a connection that was refused, with the advice of the reason.
    pub(crate) fn refuse(
        &self,
        peer: PeerAddress,
        port: &PortState,
        reason: RefusalReason,
        host: Option<&Nqn>,
        subsystem: Option<&Nqn>,
        detail: String,
    ) {
        self.refuse_with(peer, port, (reason, reason.advice()), host, subsystem, detail);
    }

    /// Notes a connection that was refused, with this advice.
    pub(crate) fn refuse_with(
        &self,
        peer: PeerAddress,
        port: &PortState,
        (reason, advice): (RefusalReason, &'static str),
        host: Option<&Nqn>,
        subsystem: Option<&Nqn>,
        detail: String,
    ) {
        port.counts.refused.fetch_add(1, Relaxed);
        let host_nqn = host.map(Nqn::to_string);
        let subsystem_nqn = subsystem.map(Nqn::to_string);
        if let Some(more) = self.may_log(peer.about(), Kind::Refused(reason)) {
            let name = &port.name;
            tracing::warn!(%peer, port = name, %reason, host_nqn, subsystem_nqn, "refused: {detail}; {advice}{more}");
        }
        let time_unix_ms = self.clock.unix_ms();
        let advice = advice.to_owned();
        let peer = peer.for_api();
        let entry = LoggedRefusal { time_unix_ms, peer, host_nqn, subsystem_nqn, reason, detail, advice, count: 1 };
        self.report_refused(&port.name, &entry);
        self.connection_log.lock().unwrap_or_else(PoisonError::into_inner).record(entry);
    }

    /// A connection was refused.
    fn report_refused(&self, port: &str, refusal: &LoggedRefusal) {
        let LoggedRefusal { peer, host_nqn, subsystem_nqn, detail, advice, .. } = refusal;
        let to = subsystem_nqn.as_ref().map(|nqn| format!(" to {nqn}")).unwrap_or_default();
        // The address without its port, which is another one with each try.
        let address = peer.ip().map_or_else(|| peer.to_string(), |ip| ip.to_string());
        let message = format!("from {address}{to}: {detail}");
        let who = host_nqn.clone().unwrap_or_else(|| address.clone());
        self.report(NewEvent::new(EventKind::ConnectionRefused, port, message).advice(advice).who(who).from(address));
    }
}
