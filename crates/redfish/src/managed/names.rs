//! The identifiers of everything in the tree, made once for a request.

use std::collections::BTreeSet;

use ebof_manage::Config;
use ebof_manage::enclosure::{HostObject, Inventory, PortKind};

use crate::place::HOST_PREFIX;
use crate::place::id::{Ids, slug};

/// The most hosts that are shown.
const HOSTS_MAX: usize = 4096;

/// Identifiers, each in the order of the objects.
#[derive(Debug)]
pub(crate) struct Names {
    /// Of drives, and behind them of plain subsystems.
    pub(crate) storages: Ids,
    /// Of ports.
    pub(crate) ports: Ids,
    /// Hosts on fabrics: those that are configured, connected, or named by a namespace.
    pub(crate) hosts: Vec<String>,
    /// Of the endpoints of `hosts`.
    pub(crate) host_endpoints: Ids,
    /// Who may connect to what.
    pub(crate) permissions: Vec<Permission>,
    /// Of `permissions`.
    pub(crate) connections: Ids,
    /// Of temperatures of the machine, and behind them of fans.
    pub(crate) sensors: Ids,
}

/// A host may connect to a subsystem and to the functions of its drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    /// The index of the drive or plain subsystem.
    pub(crate) storage: usize,
    /// The host's NQN; `None` is every host.
    pub(crate) host: Option<String>,
}

impl Names {
    pub(crate) fn new(inventory: &Inventory, config: &Config) -> Self {
        let drives = inventory.drives.iter().map(|drive| drive.name.as_str());
        let subsystems = inventory.subsystems.iter().map(|subsystem| subsystem.nqn.as_str());
        let storages = Ids::new(drives.chain(subsystems));
        let hosts = hosts(inventory, config);
        let host_endpoints = Ids::of_ids(hosts.iter().map(|nqn| host_endpoint_id(nqn)));
        let permissions = permissions(inventory, config);
        // An NQN begins with `nqn.`, and is not `any`.
        let host = |one: &Permission| one.host.as_deref().map_or_else(|| "any".to_owned(), slug);
        let connections =
            Ids::of_ids(permissions.iter().map(|one| format!("{},{}", storages.at(one.storage), host(one))));
        let temperatures = inventory.sensors.temperatures.iter().map(|sensor| format!("temperature-{}", sensor.name));
        let fans = inventory.sensors.fans.iter().map(|fan| format!("fan-{}", fan.name));
        let sensors: Vec<String> = temperatures.chain(fans).collect();
        Self {
            ports: Ids::new(inventory.ports.iter().map(|port| port.name.as_str())),
            storages,
            hosts,
            host_endpoints,
            permissions,
            connections,
            sensors: Ids::new(sensors.iter().map(String::as_str)),
        }
    }

    /// The identifier of the endpoint of a host.
    pub(crate) fn host_endpoint(&self, nqn: &str) -> Option<&str> {
        let at = self.hosts.iter().position(|host| host == nqn)?;
        Some(self.host_endpoints.at(at))
    }
}

/// The identifier of the endpoint of a host.
pub(crate) fn host_endpoint_id(nqn: &str) -> String {
    format!("{HOST_PREFIX}{}", slug(nqn))
}

/// Hosts on fabrics; those that are configured first.
fn hosts(inventory: &Inventory, config: &Config) -> Vec<String> {
    let mut all: Vec<String> = config.hosts.iter().map(|host| host.nqn.to_string()).collect();
    let mut known: BTreeSet<String> = all.iter().cloned().collect();
    let mut add = |nqn: &str| {
        if all.len() < HOSTS_MAX && !nqn.is_empty() && known.insert(nqn.to_owned()) {
            all.push(nqn.to_owned());
        }
    };
    let is_remote = |host: &&HostObject| inventory.port(&host.port).is_none_or(|port| port.kind == PortKind::Fabric);
    for drive in &inventory.drives {
        let connected = drive.hosts.iter().chain(drive.functions.iter().flat_map(|function| &function.hosts));
        connected.filter(is_remote).for_each(|host| add(&host.nqn));
        drive
            .namespaces
            .iter()
            .flat_map(|namespace| &namespace.hosts)
            .filter(|nqn| *nqn != "*")
            .for_each(|nqn| add(nqn));
    }
    inventory
        .subsystems
        .iter()
        .flat_map(|subsystem| &subsystem.hosts)
        .filter(is_remote)
        .for_each(|host| add(&host.nqn));
    all
}

/// Who may connect to what, by the configuration.
fn permissions(inventory: &Inventory, config: &Config) -> Vec<Permission> {
    let drives = inventory.drives.iter().map(|drive| &drive.nqn);
    let nqns = drives.chain(inventory.subsystems.iter().map(|subsystem| &subsystem.nqn));
    let mut all = Vec::new();
    for (storage, nqn) in nqns.enumerate() {
        let Some(subsystem) = config.subsystems.iter().find(|subsystem| subsystem.nqn.as_str() == *nqn) else {
            continue;
        };
        if subsystem.allow_any_host {
            all.push(Permission { storage, host: None });
        }
        let hosts = subsystem.allowed_hosts.iter().map(|nqn| Some(nqn.to_string()));
        all.extend(hosts.map(|host| Permission { storage, host }));
    }
    all
}
