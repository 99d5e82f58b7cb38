//! Events of hosts, ports, configurations and tasks: their words
//! ([0071](../../../../docs/adr/0071-what-happens-while-it-runs.md)).
//!
//! All of it is on control paths: Connect, the end of a connection, changes. Which events there
//! are, and how many are remembered, is in `ebof_manage::events`; those of drives are in
//! `drives/report.rs`.

use std::fmt::Display;
use std::sync::atomic::Ordering::Relaxed;

use ebof_fabrics::Association;
use ebof_manage::Plan;
use ebof_manage::api::{ApplyError, Asker};
use ebof_manage::enclosure::{self, Task, TaskState};
use ebof_manage::events::{EventKind, EventSeverity, NewEvent};
use ebof_manage::plan::Change;

use crate::ports::peer::Peer;
use crate::ports::port::PortState;

use super::Shared;
use super::owners::Owners;

/// A host has a controller.
pub(crate) fn connected(shared: &Shared, association: &Association, peer: &Peer) {
    if association.discovery {
        return;
    }
    let object = Owners::from_shared(shared).object(association.subsystem.as_str());
    let (cntlid, port) = (association.cntlid.0, &peer.port.name);
    let message = format!("controller {cntlid} connected from {} through port {port}", peer.address);
    shared.report(NewEvent::new(EventKind::HostConnected, object, message).who(association.host.to_string()));
}

/// The connection of an Admin Queue ends, and with it the controller.
pub(crate) fn ended(shared: &Shared, association: &Association, peer: &Peer, end: &dyn Display, is_wanted: bool) {
    if association.discovery {
        return;
    }
    let kind = if is_wanted { EventKind::HostDisconnected } else { EventKind::ControllerFailed };
    let object = Owners::from_shared(shared).object(association.subsystem.as_str());
    let (cntlid, port) = (association.cntlid.0, &peer.port.name);
    let message = format!("controller {cntlid} of {} through port {port} ended: {end}", peer.address);
    shared.report(NewEvent::new(kind, object, message).who(association.host.to_string()));
}

/// A port accepts connections, or does not any more.
pub(crate) fn port(shared: &Shared, port: &PortState, reason: Result<(), &str>) {
    port.counts.is_listening.store(reason.is_ok(), Relaxed);
    let name = port.name.as_str();
    shared.report(match reason {
        Ok(()) => NewEvent::new(EventKind::PortUp, name, "accepts connections"),
        Err(reason) => NewEvent::new(EventKind::PortDown, name, format!("accepts no connections: {reason}")),
    });
}

/// A configuration was applied, or refused.
pub(crate) fn applied(shared: &Shared, applied: &Result<Plan, ApplyError>, by: &Asker) {
    let report = |event: NewEvent| shared.report(event.by(by));
    match applied {
        Ok(plan) if plan.is_empty() => {}
        // Somebody else was faster: whoever asked looks again.
        Err(ApplyError::Outdated { .. }) => {}
        Ok(plan) => {
            plan.changes.iter().filter_map(changed).for_each(report);
            let first = plan.changes.first().map(ToString::to_string).unwrap_or_default();
            let message = match plan.changes.len() {
                1 => first,
                several => format!("{several} changes: {first}; and {} more", several - 1),
            };
            report(NewEvent::new(EventKind::ConfigurationChanged, "", message));
        }
        Err(error) => {
            let event = NewEvent::new(EventKind::ConfigurationRefused, "", error.to_string());
            report(match error {
                ApplyError::Incomplete { .. } => event.severity(EventSeverity::Critical),
                _ => event,
            });
        }
    }
}

/// A task has begun, has come further, or has ended.
pub(crate) fn task(shared: &Shared, task: &Task) {
    let object = format!("task {}", task.id);
    let Task { what, phase, percent, .. } = task;
    let report = |event: NewEvent| {
        shared.report(match &task.by {
            Some(by) => event.by(by),
            None => event,
        });
    };
    report(match (task.state, &task.error) {
        (TaskState::Running, _) if task.revision == 1 => NewEvent::new(EventKind::TaskBegan, object, what),
        (TaskState::Running, _) => {
            let detail = task.detail.as_ref().map(|detail| format!(", {detail}")).unwrap_or_default();
            NewEvent::new(EventKind::TaskProgress, object, format!("{what}: {phase}, {percent} %{detail}"))
        }
        (TaskState::Done, _) => {
            task.changes.iter().filter_map(event_of).for_each(report);
            let remark = task.remark.as_ref().map(|remark| format!("; {remark}")).unwrap_or_default();
            NewEvent::new(EventKind::TaskEnded, object, format!("{what}{remark}"))
        }
        (TaskState::Failed, Some(error)) => {
            NewEvent::new(EventKind::TaskFailed, object, format!("{what}: {}", error.message)).advice(&error.advice)
        }
        (TaskState::Failed, None) => NewEvent::new(EventKind::TaskFailed, object, what),
    });
}

/// What a change of the configuration is to what it is about; `None` where that has an event
/// already, or is nobody's.
fn changed(change: &Change) -> Option<NewEvent> {
    let (kind, object) = match change {
        Change::AddSubsystem { subsystem } => (EventKind::SubsystemAdded, subsystem.nqn.to_string()),
        Change::RemoveSubsystem { nqn } => (EventKind::SubsystemRemoved, nqn.clone()),
        Change::AlterSubsystem { to, .. } => (EventKind::SubsystemChanged, to.nqn.to_string()),
        Change::AddDrive { drive } => (EventKind::DriveAdded, drive.name.clone()),
        Change::RemoveDrive { name } => (EventKind::DriveRemoved, name.clone()),
        Change::AddNamespace { subsystem, namespace, .. } => {
            (EventKind::NamespaceAdded, format!("{subsystem}/ns{}", namespace.nsid))
        }
        Change::RemoveNamespace { subsystem, nsid } => (EventKind::NamespaceRemoved, format!("{subsystem}/ns{nsid}")),
        Change::AlterNamespace { subsystem, to, .. } => {
            (EventKind::NamespaceChanged, format!("{subsystem}/ns{}", to.nsid))
        }
        _ => return None,
    };
    Some(NewEvent::new(kind, object, change.to_string()))
}

/// What a change of the box is to the function that it is about; drives and namespaces say
/// themselves what became of them.
fn event_of(change: &enclosure::Change) -> Option<NewEvent> {
    use enclosure::Change as Of;
    let function = change.function()?;
    let (kind, message) = match change {
        Of::Assign { ports, .. } if ports.is_empty() => (EventKind::FunctionTaken, "taken from its port".to_owned()),
        Of::Assign { ports, .. } => (EventKind::FunctionGiven, format!("given to {}", enclosure::named_ports(ports))),
        Of::Move { to, .. } => (EventKind::FunctionMoved, format!("moved to {}", enclosure::named_ports(to))),
        other => (EventKind::FunctionChanged, other.to_string()),
    };
    Some(NewEvent::new(kind, function.to_string(), message))
}
