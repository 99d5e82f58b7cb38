//! Which change it was that failed.

use ebof_manage::Plan;
use ebof_manage::api::{ApplyError, ConfigStoreError};
use ebof_manage::config::Host;
use ebof_manage::plan::Change;

use crate::life::startup::StartError;

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

/// What to say of a change that could not be stored and was taken back, save what is `lost`.
pub(super) fn not_stored(error: ConfigStoreError, lost: Vec<String>) -> ApplyError {
    match error {
        ConfigStoreError::NotStored(source) => ApplyError::NotStored { source, lost },
        ConfigStoreError::Unknown(source) => ApplyError::Unknown { source, lost },
    }
}

/// The change of the plan that an error is about.
fn culprit(plan: &Plan, error: &StartError) -> Change {
    let is_it = |change: &&Change| match (error, change) {
        (
            StartError::Drive { subsystem, nsid, .. }
            | StartError::HoldsDrive { subsystem, nsid, .. }
            | StartError::SameObject { subsystem, nsid, .. }
            | StartError::SameUuid { subsystem, nsid, .. }
            | StartError::TakenForOther { subsystem, nsid },
            Change::AddNamespace { subsystem: nqn, namespace, .. }
            | Change::AlterNamespace { subsystem: nqn, to: namespace, .. },
        ) => nqn.as_str() == subsystem.as_str() && namespace.nsid == *nsid,
        (
            StartError::Drive { subsystem, .. }
            | StartError::HoldsDrive { subsystem, .. }
            | StartError::SameObject { subsystem, .. }
            | StartError::SameUuid { subsystem, .. },
            Change::AddSubsystem { subsystem: added },
        ) => added.nqn == *subsystem,
        (StartError::Busy { subsystem, nsid, .. }, Change::RemoveNamespace { subsystem: nqn, nsid: removed }) => {
            nqn.as_str() == subsystem.as_str() && *nsid == Some(*removed)
        }
        (StartError::Busy { subsystem, .. }, Change::RemoveSubsystem { nqn }) => nqn.as_str() == subsystem.as_str(),
        (StartError::ManagedDrive { name, .. } | StartError::SameDrive { name, .. }, Change::AddDrive { drive }) => {
            drive.name == *name
        }
        (StartError::ManagedDrive { name, .. }, Change::AlterDrive { to, .. }) => to.name == *name,
        (StartError::ManagedDrive { name, .. }, Change::AddSubsystem { subsystem }) => {
            subsystem.drive.as_ref() == Some(name)
        }
        (StartError::Listen { listen, .. }, Change::AddPort { port } | Change::AlterPort { to: port, .. }) => {
            port.listen == **listen
        }
        (StartError::Namespaces { subsystem, .. }, Change::AddSubsystem { subsystem: changed })
        | (StartError::Namespaces { subsystem, .. }, Change::AlterSubsystem { to: changed, .. })
        | (StartError::PortsTaken { subsystem, .. }, Change::AddSubsystem { subsystem: changed })
        | (StartError::PortsTaken { subsystem, .. }, Change::AlterSubsystem { to: changed, .. }) => {
            changed.nqn == *subsystem
        }
        (StartError::HostKey { host, .. }, Change::AddHost { host: added } | Change::AlterHost { to: added, .. }) => {
            added.nqn == *host
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
        (StartError::HostKey { host, .. }, _) => {
            Change::AlterHost { to: Host::new(host.clone()), differences: Vec::new() }
        }
        (_, Some(first)) => first.clone(),
        (_, None) => Change::AlterTarget { to: ebof_manage::config::TargetOptions::default(), differences: Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ebof_manage::Listen;
    use ebof_manage::config::{Namespace, Port, Subsystem};
    use ebof_nvme::Nqn;

    use super::*;

    fn nqn(name: &str) -> Nqn {
        Nqn::parse(&format!("nqn.2014-08.org.example:{name}")).expect("legal")
    }

    // @test data.failed-reload
    #[test]
    fn an_error_names_the_change_that_caused_it() {
        let a = nqn("a");
        let b = nqn("b");
        let add = |nqn: &Nqn, nsid| Change::AddNamespace {
            subsystem: nqn.to_string(),
            namespace: Namespace::new(nsid, "mem:1Mi".parse().expect("a drive")),
            seen_as: None,
        };
        let remove = |nqn: &Nqn, nsid| Change::RemoveNamespace { subsystem: nqn.to_string(), nsid };
        let plan = Plan {
            changes: vec![
                remove(&a, 1),
                remove(&a, 2),
                Change::RemoveSubsystem { nqn: b.to_string() },
                Change::AddPort { port: Port::new(1, Listen::new([127, 0, 0, 1].into(), 4420)) },
                Change::AddSubsystem { subsystem: Subsystem::new(b.clone()) },
                add(&a, 2),
                add(&a, 3),
            ],
        };
        let holds = |subsystem: &Nqn, nsid| StartError::HoldsDrive {
            subsystem: subsystem.clone(),
            nsid,
            path: "d.img".to_owned(),
        };
        let busy = |subsystem: &Nqn, nsid| StartError::Busy {
            subsystem: subsystem.clone(),
            nsid,
            what: "file".to_owned(),
            waited: Duration::ZERO,
        };
        let of = |error: StartError| plan.changes.iter().position(|change| *change == culprit(&plan, &error));
        assert_eq!(of(holds(&a, 3)), Some(6));
        assert_eq!(of(holds(&b, 3)), Some(4));
        assert_eq!(of(busy(&a, Some(2))), Some(1));
        assert_eq!(of(busy(&b, Some(1))), Some(2));
        assert_eq!(of(busy(&b, None)), Some(2));
    }
}
