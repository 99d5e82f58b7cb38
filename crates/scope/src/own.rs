//! What is in a scope at one moment: the names that somebody may hear of, and which objects have
//! them.

use std::collections::BTreeSet;

use crate::Scope;
use ebof_manage::api::{MissingKind, MissingObject, Status};
use ebof_manage::config::Config;
use ebof_manage::enclosure::{Change, Inventory};

/// The names of what is in a scope.
pub(crate) struct Own {
    drives: BTreeSet<String>,
    /// Of subsystems: those of drives and of functions, too.
    nqns: BTreeSet<String>,
    ports: BTreeSet<String>,
    /// Hosts that may connect to it, are connected to it or have a namespace of it.
    hosts: BTreeSet<String>,
}

impl Own {
    /// Of a scope, as far as there is what it names.
    pub(crate) fn from_scope(scope: &Scope, config: &Config, inventory: &Inventory) -> Self {
        let mut own = Self {
            drives: scope.drives.clone(),
            nqns: scope.subsystems.clone(),
            ports: BTreeSet::new(),
            hosts: BTreeSet::new(),
        };
        own.add_partners(config, inventory);
        for subsystem in config.subsystems.iter().filter(|one| own.nqns.contains(one.nqn.as_str())) {
            own.ports.extend(subsystem.ports.iter().cloned());
            own.hosts.extend(subsystem.allowed_hosts.iter().map(ToString::to_string));
        }
        for drive in inventory.drives.iter().filter(|drive| own.drives.contains(&drive.name)) {
            own.ports.extend(drive.ports.iter().cloned());
            own.hosts.extend(drive.hosts.iter().map(|host| host.nqn.clone()));
            own.hosts.extend(drive.namespaces.iter().flat_map(|namespace| namespace.hosts.iter().cloned()));
            for function in &drive.functions {
                own.nqns.insert(function.nqn.clone());
                own.ports.extend(function.ports.iter().cloned());
                own.hosts.extend(function.hosts.iter().map(|host| host.nqn.clone()));
            }
        }
        for subsystem in inventory.subsystems.iter().filter(|one| own.nqns.contains(&one.nqn)) {
            own.ports.extend(subsystem.ports.iter().cloned());
            own.hosts.extend(subsystem.hosts.iter().map(|host| host.nqn.clone()));
        }
        own
    }

    /// A drive and its subsystem are one thing under two names.
    fn add_partners(&mut self, config: &Config, inventory: &Inventory) {
        let configured = config.subsystems.iter().filter_map(|one| Some((one.drive.as_deref()?, one.nqn.as_str())));
        let present = inventory.drives.iter().map(|drive| (drive.name.as_str(), drive.nqn.as_str()));
        for (drive, nqn) in configured.chain(present) {
            if self.drives.contains(drive) || self.nqns.contains(nqn) {
                self.drives.insert(drive.to_owned());
                self.nqns.insert(nqn.to_owned());
            }
        }
    }

    pub(crate) fn has_drive(&self, name: &str) -> bool {
        self.drives.contains(name)
    }

    pub(crate) fn has_subsystem(&self, nqn: &str) -> bool {
        self.nqns.contains(nqn)
    }

    pub(crate) fn has_port(&self, name: &str) -> bool {
        self.ports.contains(name)
    }

    pub(crate) fn has_host(&self, nqn: &str) -> bool {
        self.hosts.contains(nqn)
    }

    /// Whether a name is that of a drive, of a subsystem, or of a part of one: `d3`, `d3/vf2`,
    /// `NQN/ns1`.
    pub(crate) fn has_object(&self, name: &str) -> bool {
        let is_whole = |name: &str| self.has_drive(name) || self.has_subsystem(name);
        is_whole(name) || name.rsplit_once('/').is_some_and(|(of, _part)| is_whole(of))
    }

    /// Whether all that changes are about is here.
    pub(crate) fn has_all_of(&self, changes: &[Change]) -> bool {
        !changes.is_empty() && changes.iter().all(|change| change.drive().is_some_and(|drive| self.has_drive(drive)))
    }

    pub(crate) fn has_missing(&self, missing: &MissingObject) -> bool {
        match missing.kind {
            MissingKind::Drive => self.has_drive(&missing.name),
            MissingKind::Namespace => self.has_object(&missing.name),
            MissingKind::Port => self.has_port(&missing.name),
            _ => false,
        }
    }

    /// Whether all controllers of a host are here, so that what the host does is done here.
    pub(crate) fn has_all_controllers_of(&self, host: &str, status: &Status) -> bool {
        let mut controllers = status.controllers.iter().filter(|controller| controller.host_nqn == host).peekable();
        controllers.peek().is_some() && controllers.all(|controller| self.has_subsystem(&controller.subsystem_nqn))
    }
}
