//! Which change it was that failed.

use ebof_manage::Plan;
use ebof_manage::api::ApplyError;
use ebof_manage::plan::Change;

use crate::realise::StartError;

/// What to say of a change that failed and was taken back, save what is `lost`.
pub(super) fn report(plan: &Plan, error: StartError, lost: Vec<String>) -> ApplyError {
    let change = Box::new(culprit(plan, &error));
    let source = Box::new(error);
    if lost.is_empty() {
        ApplyError::Failed { change, source }
    } else {
        ApplyError::Incomplete { change, source, lost }
    }
}

/// The change of the plan that an error is about.
fn culprit(plan: &Plan, error: &StartError) -> Change {
    let is_it = |change: &&Change| match (error, change) {
        (StartError::Drive { subsystem, nsid, .. }, Change::AddNamespace { subsystem: nqn, namespace })
        | (StartError::Drive { subsystem, nsid, .. }, Change::AlterNamespace { subsystem: nqn, to: namespace, .. }) => {
            nqn.as_str() == subsystem.as_str() && namespace.nsid == *nsid
        }
        (StartError::Drive { subsystem, .. }, Change::AddSubsystem { subsystem: added }) => added.nqn == *subsystem,
        (StartError::ManagedDrive { name, .. }, Change::AddDrive { drive }) => drive.name == *name,
        (StartError::ManagedDrive { name, .. }, Change::AlterDrive { to, .. }) => to.name == *name,
        (StartError::ManagedDrive { name, .. }, Change::AddSubsystem { subsystem }) => {
            subsystem.drive.as_ref() == Some(name)
        }
        (StartError::Listen { listen, .. }, Change::AddPort { port } | Change::AlterPort { to: port, .. }) => {
            port.listen == **listen
        }
        (StartError::Namespaces { subsystem, .. }, Change::AddSubsystem { subsystem: changed })
        | (StartError::Namespaces { subsystem, .. }, Change::AlterSubsystem { to: changed, .. }) => {
            changed.nqn == *subsystem
        }
        (StartError::Namespaces { subsystem, .. }, Change::AddNamespace { subsystem: nqn, .. }) => {
            nqn.as_str() == subsystem.as_str()
        }
        _ => false,
    };
    if let Some(change) = plan.changes.iter().find(is_it) {
        return change.clone();
    }
    match (error, plan.changes.first()) {
        // Nothing is to change there: it is what lies below that is no longer as it was.
        (StartError::Drive { subsystem, nsid, .. }, _) => {
            Change::GrowNamespace { subsystem: subsystem.to_string(), nsid: *nsid, from_bytes: 0, to_bytes: 0 }
        }
        (_, Some(first)) => first.clone(),
        (_, None) => Change::AlterTarget { to: ebof_manage::config::TargetOptions::default(), differences: Vec::new() },
    }
}
