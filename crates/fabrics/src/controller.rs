//! A controller as its Admin Queue's thread sees it: registers, features, events, and what notices
//! do to them.

mod ana;
mod event;
mod features;
pub(crate) mod property;
mod resets;
mod rings;

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use ebof_drive::reservation::NotificationLog;
use ebof_nvme::command::ControllerInstance;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::feature::AsyncEventConfig;
use ebof_nvme::log::{ChangedNamespaces, Lid, ReservationEvent, critical_warning};
use ebof_nvme::{Nqn, Nsid};

use crate::association::Association;
use crate::model::function;
use crate::model::{DiscoveryIdentity, Namespace, NamespaceTable, Subsystem};
use ana::AnaLog;
use event::Events;
pub(crate) use features::Features;
use property::Registers;
pub(crate) use resets::{RESETS_MAX, Resets};
use rings::Rings;

/// The state of a controller, owned by the thread of its Admin Queue.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) association: Arc<Association>,
    pub(crate) kind: Kind,
    pub(crate) registers: Registers,
    pub(crate) features: Features,
    pub(crate) events: Events,
    /// Namespaces that changed since the Changed Namespace List was read; more than the list holds
    /// are just "many".
    pub(crate) changed: BTreeSet<Nsid>,
    /// The same of a drive's namespaces, attached to this controller or not.
    pub(crate) changed_allocated: BTreeSet<Nsid>,
    /// The Asymmetric Namespace Access log.
    pub(crate) ana: AnaLog,
    /// The drive's endurance group has had a warning that the host wants to know of, and has not
    /// read of yet.
    pub(crate) group_event: bool,
    /// What became of the host's registrations and reservations.
    pub(crate) reservations: NotificationLog,
    /// Resets of other controllers that this one was asked for.
    pub(crate) resets: Resets,
    /// The I/O queues, if they are in the host's memory.
    pub(crate) rings: Rings,
    /// Abort commands under way.
    pub(crate) aborts: usize,
    /// Critical warnings that hold, so that only new ones become events.
    warnings: u8,
}

/// What a controller is for.
#[derive(Debug)]
pub(crate) enum Kind {
    /// I/O to the namespaces of a subsystem.
    Io(Arc<Subsystem>),
    /// Discovery.
    Discovery(DiscoveryIdentity),
}

impl Kind {
    /// The NQN by which hosts know the subsystem `nqn`.
    pub(crate) fn known_as<'k>(&'k self, nqn: &'k Nqn) -> &'k Nqn {
        match self {
            Self::Io(subsystem) => function::known_as(subsystem),
            Self::Discovery(_) => nqn,
        }
    }
}

impl Controller {
    pub(crate) fn new(association: Arc<Association>, kind: Kind) -> Self {
        let features = Features::new(&kind);
        let ana = match &kind {
            Kind::Io(subsystem) => AnaLog::for_subsystem(subsystem),
            Kind::Discovery(_) => AnaLog::default(),
        };
        Self {
            association,
            kind,
            registers: Registers::default(),
            features,
            events: Events::default(),
            changed: BTreeSet::new(),
            changed_allocated: BTreeSet::new(),
            ana,
            group_event: false,
            reservations: NotificationLog::default(),
            resets: Resets::default(),
            rings: Rings::default(),
            aborts: 0,
            warnings: 0,
        }
    }

    pub(crate) fn subsystem(&self) -> Option<&Subsystem> {
        match &self.kind {
            Kind::Io(subsystem) => Some(subsystem),
            Kind::Discovery(_) => None,
        }
    }

    /// The host, which has seen nothing of the subsystem so far, is shown it as `shown`.
    pub(crate) fn begin_with(&mut self, shown: Arc<Subsystem>) {
        let Kind::Io(current) = &mut self.kind else { unreachable!("{NO_SUBSYSTEM}") };
        self.ana = AnaLog::for_subsystem(&shown);
        *current = shown;
    }

    /// The subsystem is now as `next`.
    pub(crate) fn replace_subsystem(&mut self, next: Arc<Subsystem>) {
        let Kind::Io(current) = &mut self.kind else { unreachable!("{NO_SUBSYSTEM}") };
        let last = core::mem::replace(current, next);
        let changed = differing(&last.namespaces, &current.namespaces);
        if current.drive.is_some() {
            // What is attached to whom is part of it.
            let mut allocated = differing(last.allocated(), current.allocated());
            allocated.extend(&changed);
            if keep(&mut self.changed_allocated, allocated) {
                self.events.raise(AsyncEvent::ALLOCATED_NAMESPACE_ATTRIBUTE_CHANGED, self.features.events);
            }
        }
        if keep(&mut self.changed, changed) {
            self.events.raise(AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED, self.features.events);
        }
        // Behind the event of the namespaces: in which group and state a new one is, a host has to
        // read once it knows of it.
        if self.ana.follow(current) {
            self.events.raise(AsyncEvent::ANA_CHANGE, self.features.events);
        }
        self.check_health();
    }

    /// Whether the host waits for events about namespaces.
    pub(crate) fn hears_of_namespaces(&self) -> bool {
        self.events.waiting() > 0 && AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED.is_enabled_by(self.features.events)
    }

    /// Has the host look at a namespace once more.
    pub(crate) fn call_to(&mut self, nsid: Nsid) {
        if keep(&mut self.changed, BTreeSet::from([nsid])) {
            self.events.raise(AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED, self.features.events);
        }
    }

    /// What this host may discover has changed.
    pub(crate) fn discovery_changed(&mut self) {
        self.events.raise(AsyncEvent::DISCOVERY_LOG_CHANGE, self.features.events);
    }

    /// A controller that this one was asked to reset is gone.
    pub(crate) fn reset_done(&mut self, instance: ControllerInstance) {
        if self.resets.complete(instance) {
            self.events.raise(AsyncEvent::CROSS_CONTROLLER_RESET_COMPLETED, self.features.events);
        }
    }

    /// Another host changed what this one had registered or held.
    pub(crate) fn on_reservation(&mut self, nsid: Nsid, event: ReservationEvent) {
        let attached = self.subsystem().is_some_and(|subsystem| subsystem.namespaces.find(nsid).is_some());
        if attached && !self.features.reservation_mask(nsid).hides(event) {
            self.reservations.push(nsid, event);
            self.events.raise(AsyncEvent::RESERVATION_LOG_AVAILABLE, self.features.events);
        }
    }

    /// Takes the oldest notice for the host; the event comes again while there are more.
    pub(crate) fn take_reservation_notice(&mut self) {
        self.reservations.pop();
        self.events.log_read(Lid::RESERVATION_NOTIFICATION);
        if !self.reservations.is_empty() {
            self.events.raise(AsyncEvent::RESERVATION_LOG_AVAILABLE, self.features.events);
        }
    }

    /// The critical warnings that hold now (SMART log, Critical Warning).
    pub(crate) fn critical_warnings(&self) -> u8 {
        let Some(subsystem) = self.subsystem() else { return 0 };
        let health = &subsystem.health;
        let warning = |holds: bool, bit: u8| if holds { bit } else { 0 };
        let kelvin = health.temperature_kelvin;
        let beyond = kelvin >= self.features.over_kelvin || kelvin <= self.features.under_kelvin;
        warning(health.available_spare < health.available_spare_threshold, critical_warning::SPARE)
            | warning(kelvin != 0 && beyond, critical_warning::TEMPERATURE)
            | warning(health.degraded, critical_warning::DEGRADED)
            | warning(health.read_only, critical_warning::READ_ONLY)
    }

    /// Raises events for critical warnings that hold now and did not before.
    pub(crate) fn check_health(&mut self) {
        let now = self.critical_warnings();
        let new = now & !self.warnings;
        self.warnings = now;
        self.tell_of_group(new);
        let wanted = AsyncEventConfig(self.features.events.0 & u32::from(new));
        let events = [AsyncEvent::SPARE_BELOW_THRESHOLD, AsyncEvent::TEMPERATURE_THRESHOLD, AsyncEvent::RELIABILITY];
        for event in events {
            if event.is_enabled_by(wanted) {
                self.events.raise(event, wanted);
            }
        }
    }

    /// Enters the endurance group in its aggregate log if one of these critical warnings is one
    /// that the host wants to know of.
    pub(crate) fn tell_of_group(&mut self, warnings: u8) {
        // The warnings of a group have the bits of a drive's; a temperature it has none.
        if warnings & self.features.group_warnings != 0 {
            self.group_event = true;
            self.events.raise(AsyncEvent::ENDURANCE_GROUP_CHANGE, self.features.events);
        }
    }

    /// Controller level reset: everything but the host's identity, keep alive and the error log
    /// begins anew.
    pub(crate) fn reset(&mut self) {
        self.features = Features::new(&self.kind);
        self.events.reset();
        self.changed.clear();
        self.changed_allocated.clear();
        self.group_event = false;
        self.reservations.clear();
        self.resets.remove_completed(|_| true);
        self.warnings = 0;
        self.rings = Rings::default();
        let association = &self.association;
        association.write_cache.store(true, Ordering::Relaxed);
        association.copy_formats.store(0, Ordering::Relaxed);
        association.retry_delays.store(false, Ordering::Relaxed);
        // Another driver may be in charge, such as an operating system's after the firmware's.
        association.has_listed.store(false, Ordering::Relaxed);
        association.grant_all_queues();
    }
}

/// Why no subsystem is shown to a discovery controller.
const NO_SUBSYSTEM: &str = "the registry has none for the associations of discovery controllers";

/// Namespaces that are not in both tables with the same attributes.
fn differing(last: &NamespaceTable, now: &NamespaceTable) -> BTreeSet<Nsid> {
    let of = |table: &NamespaceTable, nsid| table.find(nsid).map(Namespace::attributes);
    let nsids = last.iter().chain(now.iter()).map(|namespace| namespace.nsid);
    nsids.filter(|&nsid| of(last, nsid) != of(now, nsid)).collect()
}

/// Adds namespaces that changed to those to be reported; returns whether there are any. One more
/// than a list has room for stands for all.
fn keep(list: &mut BTreeSet<Nsid>, changed: BTreeSet<Nsid>) -> bool {
    let any = !changed.is_empty();
    let room = ChangedNamespaces::ENTRIES_MAX + 1 - list.len();
    list.extend(changed.into_iter().take(room));
    any
}
