//! `Connection`: a host may connect to a subsystem and the functions of its drive, and reaches
//! these volumes; or, at a direct port, a virtual machine has a function.

pub(super) mod change;

use ebof_manage::config::AnaState;
use ebof_manage::enclosure::PortObject;
use serde::Serialize;

use super::endpoint::{direct_ports, machine_id};
use crate::managed::names::Permission;
use crate::managed::site::{AnyController, Site};
use crate::managed::view::{Namespace, Storage, View};
use crate::place::{FabricKind, FabricPlace, StoragePlace};
use crate::response::head::{Head, Link, Oem, ResourceAction, State, Status, link, links, oem};

/// A permission, with what it is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'v> {
    id: &'v str,
    storage_id: &'v str,
    storage: Storage<'v>,
    /// The host's NQN; `None` is every host.
    host: Option<&'v str>,
}

/// The identifiers of the connections of a fabric.
pub(super) fn ids(view: &View<'_>, kind: FabricKind) -> Vec<String> {
    match kind {
        FabricKind::Nvmeof => view.names().connections.iter().map(str::to_owned).collect(),
        FabricKind::Pcie => {
            let used = direct_ports(view).filter(|(_, port)| at_port(view, port).is_some());
            used.map(|(id, _)| id.to_owned()).collect()
        }
    }
}

/// The permission of an identifier. Those of direct ports follow from what is there.
pub(super) fn find<'v>(view: &'v View<'_>, kind: FabricKind, id: &str) -> Option<Found<'v>> {
    if kind != FabricKind::Nvmeof {
        return None;
    }
    let names = view.names();
    let index = names.connections.index(id)?;
    let Permission { storage, host } = names.permissions.get(index)?;
    let storage_id = names.storages.at(*storage);
    Some(Found {
        id: names.connections.at(index),
        storage_id,
        storage: view.storage(storage_id)?,
        host: host.as_deref(),
    })
}

/// What is at a direct port.
pub(super) fn at_port<'v>(view: &'v View<'_>, port: &PortObject) -> Option<Site<'v>> {
    Site::all(view).find(|site| site.is_at(&port.name))
}

/// The connections that a target is part of.
pub(super) fn of_target(view: &View<'_>, kind: FabricKind, site: &Site<'_>) -> Vec<FabricPlace> {
    let names = view.names();
    match kind {
        FabricKind::Nvmeof if is_shown(view, site) => {
            let own =
                names.permissions.iter().enumerate().filter(|(_, one)| names.storages.at(one.storage) == site.storage);
            own.map(|(at, _)| FabricPlace::Connection(kind, names.connections.at(at).to_owned())).collect()
        }
        FabricKind::Nvmeof => Vec::new(),
        FabricKind::Pcie => {
            let ports = direct_ports(view).filter(|(_, port)| site.is_at(&port.name));
            ports.map(|(id, _)| FabricPlace::Connection(kind, id.to_owned())).collect()
        }
    }
}

/// The connections that a host is part of.
pub(super) fn of_host(view: &View<'_>, nqn: &str) -> Vec<FabricPlace> {
    let names = view.names();
    let own = names.permissions.iter().enumerate();
    let own = own.filter(|(_, one)| one.host.as_deref().is_none_or(|host| host == nqn));
    own.map(|(at, _)| FabricPlace::Connection(FabricKind::Nvmeof, names.connections.at(at).to_owned())).collect()
}

/// Whether a network reaches a target. The subsystem itself is always part of its permissions.
fn is_shown(view: &View<'_>, site: &Site<'_>) -> bool {
    let AnyController::Function(_, function) = site.controller else { return true };
    function.ports.iter().any(|port| !view.inventory().is_direct(port))
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Connection {
    #[serde(flatten)]
    head: Head,
    connection_type: &'static str,
    status: Status,
    volume_info: Vec<VolumeInfo>,
    links: ConnectionLinks,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<Actions>,
    oem: Oem<OemConnection>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct VolumeInfo {
    volume: Link,
    access_capabilities: Vec<&'static str>,
    access_state: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ConnectionLinks {
    initiator_endpoints: Vec<Link>,
    target_endpoints: Vec<Link>,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#Connection.AddVolumeInfo")]
    add: ResourceAction,
    #[serde(rename = "#Connection.RemoveVolumeInfo")]
    remove: ResourceAction,
}

/// `EbofConnection.v1_0_0.Connection`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemConnection {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    any_host: bool,
    connected: bool,
}

impl Connection {
    pub(super) fn new(view: &View<'_>, kind: FabricKind, id: &str) -> Option<Self> {
        match kind {
            FabricKind::Nvmeof => find(view, kind, id).map(|found| Self::permission(view, &found)),
            FabricKind::Pcie => {
                let (_, port) = direct_ports(view).find(|(own, _)| *own == id)?;
                Some(Self::direct(view, id, port, &at_port(view, port)?))
            }
        }
    }

    fn permission(view: &View<'_>, found: &Found<'_>) -> Self {
        let names = view.names();
        let sites: Vec<Site<'_>> = AnyController::all(found.storage)
            .into_iter()
            .map(|controller| Site::new(found.storage_id, controller))
            .filter(|site| is_shown(view, site))
            .collect();
        let hosts = names.hosts.iter().enumerate().filter(|(_, nqn)| found.is_for(nqn));
        let initiators = hosts.map(|(at, _)| endpoint(FabricKind::Nvmeof, names.host_endpoints.at(at)));
        let connected = sites.iter().flat_map(|site| site.hosts()).any(|host| found.is_for(&host.nqn));
        let place = |place: fn(FabricKind, String) -> FabricPlace| place(FabricKind::Nvmeof, found.id.to_owned());
        let volumes = found.storage.namespaces(view).into_iter().filter(|namespace| found.reaches(view, *namespace));
        let of_drive = matches!(found.storage, Storage::Drive(_));
        Self {
            head: Head::new(
                place(FabricPlace::Connection),
                KIND,
                format!("{} for {}", found.storage.name(), found.host.unwrap_or("every host")),
                "Who may connect to a subsystem, and what they reach",
            ),
            connection_type: "Storage",
            status: Status::with_state(if connected { State::Enabled } else { State::StandbyOffline }),
            volume_info: volumes
                .map(|namespace| {
                    let state = access_state(view, namespace, |port| sites.iter().any(|site| site.is_at(port)));
                    VolumeInfo::new(found.storage_id, namespace, state)
                })
                .collect(),
            links: ConnectionLinks {
                initiator_endpoints: links(initiators),
                target_endpoints: links(sites.iter().map(|site| endpoint(FabricKind::Nvmeof, &site.endpoint_id()))),
            },
            actions: of_drive.then(|| Actions {
                add: ResourceAction::new(place(FabricPlace::AddVolume)),
                remove: ResourceAction::new(place(FabricPlace::RemoveVolume)),
            }),
            oem: oem(OemConnection { kind: OWN, any_host: found.host.is_none(), connected }),
        }
    }

    fn direct(view: &View<'_>, id: &str, port: &PortObject, site: &Site<'_>) -> Self {
        let storage = view.storage(site.storage);
        let namespaces = storage.map_or(Vec::new(), |storage| storage.namespaces(view));
        let reached = namespaces.into_iter().filter(|namespace| match (namespace, site.controller) {
            (Namespace::OfDrive(_, one), AnyController::Function(_, function)) => {
                one.functions.contains(&function.name)
            }
            (Namespace::OfDrive(_, one), _) => !one.hosts.is_empty(),
            (Namespace::Plain(..), _) => true,
        });
        let connected = site.hosts().iter().any(|host| host.port == port.name);
        Self {
            head: Head::new(
                FabricPlace::Connection(FabricKind::Pcie, id.to_owned()),
                KIND,
                format!("{} at {}", site.controller.object(), port.name),
                "The function that a virtual machine has",
            ),
            connection_type: "Storage",
            status: Status::with_state(if connected { State::Enabled } else { State::StandbyOffline }),
            volume_info: reached
                .map(|namespace| {
                    VolumeInfo::new(site.storage, namespace, access_state(view, namespace, |name| name == port.name))
                })
                .collect(),
            links: ConnectionLinks {
                initiator_endpoints: links([endpoint(FabricKind::Pcie, &machine_id(view, id))]),
                target_endpoints: links([endpoint(FabricKind::Pcie, &site.endpoint_id())]),
            },
            actions: None,
            oem: oem(OemConnection { kind: OWN, any_host: false, connected }),
        }
    }
}

const KIND: &str = "#Connection.v1_4_0.Connection";
const OWN: &str = "#EbofConnection.v1_0_0.Connection";

fn endpoint(kind: FabricKind, id: &str) -> FabricPlace {
    FabricPlace::Endpoint(kind, id.to_owned())
}

/// The best state in which a namespace can be reached through one of these ports: what a host that
/// has all of them has. Without a port it is as where none says anything else.
fn access_state(view: &View<'_>, namespace: Namespace<'_>, is_one: impl Fn(&str) -> bool) -> &'static str {
    let group = match namespace {
        Namespace::OfDrive(_, namespace) => namespace.ana_group,
        Namespace::Plain(_, namespace) => namespace.ana_group,
    };
    let states = view.config().ports.iter().filter(|port| is_one(&port.name)).map(|port| port.ana.of(group));
    // `Connection`'s words, in the order in which hosts prefer them.
    const WORDS: [&str; 4] = ["Optimized", "NonOptimized", "Transitioning", "Unavailable"];
    let rank = |state| match state {
        AnaState::OPTIMIZED => 0,
        AnaState::NON_OPTIMIZED => 1,
        AnaState::CHANGE => 2,
        _ => 3,
    };
    // No path to a drive that fails is better than its limit.
    let least = match namespace {
        Namespace::Plain(..) => 0,
        Namespace::OfDrive(_, namespace) => {
            let drive = view.status().drives.iter().find(|drive| drive.name == namespace.name.drive);
            match drive.and_then(|drive| drive.ana_limit.as_deref()) {
                None => 0,
                Some(limit) if limit == AnaState::NON_OPTIMIZED.name() => 1,
                Some(_) => 3,
            }
        }
    };
    WORDS[states.map(rank).min().unwrap_or(0).max(least)]
}

impl VolumeInfo {
    fn new(storage: &str, namespace: Namespace<'_>, access_state: &'static str) -> Self {
        Self {
            volume: link(StoragePlace::Volume(storage.to_owned(), namespace.id())),
            access_capabilities: namespace.access_capabilities(),
            access_state,
        }
    }
}

impl Found<'_> {
    /// Whether a host is one of those that it is for.
    fn is_for(&self, nqn: &str) -> bool {
        self.host.is_none_or(|host| host == nqn)
    }

    /// What a namespace is attached to for it: the host's NQN, or `*`.
    fn key(&self) -> &str {
        self.host.unwrap_or("*")
    }

    /// Whether the host is given a namespace itself, and not by a function or as one of all.
    fn is_given(&self, namespace: Namespace<'_>) -> bool {
        match namespace {
            Namespace::OfDrive(_, namespace) => namespace.hosts.iter().any(|host| host == self.key()),
            Namespace::Plain(..) => true,
        }
    }

    /// Whether the host reaches a namespace: it has it, all have it, or a function on a network
    /// has.
    fn reaches(&self, view: &View<'_>, namespace: Namespace<'_>) -> bool {
        let Namespace::OfDrive(drive, own) = namespace else { return true };
        let by_function = || {
            let functions = drive.functions.iter().filter(|function| own.functions.contains(&function.name));
            functions
                .into_iter()
                .any(|function| is_shown(view, &Site::new(self.storage_id, AnyController::Function(drive, function))))
        };
        self.is_given(namespace) || own.hosts.iter().any(|host| host == "*") || by_function()
    }
}
