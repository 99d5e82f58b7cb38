//! `Endpoint`: a target, or a host.

use std::net::IpAddr;

use ebof_manage::Listen;
use ebof_manage::enclosure::{HostObject, PortKind, PortObject};
use ebof_manage::listen::Transport;
use serde::Serialize;

use super::connection;
use crate::managed::site::{AnyController, Site};
use crate::managed::view::View;
use crate::place::{ChassisPlace, FabricKind, FabricPlace, Place};
use crate::response::head::{Head, Identifier, Link, Oem, State, Status, link, links, oem};

/// Who is at an end of a fabric.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Party<'v> {
    /// What hosts connect to.
    Target(Site<'v>),
    /// A host on a network, by its index among the known ones.
    Host(usize),
    /// The virtual machine at a direct port.
    Machine(&'v PortObject),
}

impl<'v> Party<'v> {
    /// All of a fabric. Every target is one of both: it may be given to any port.
    pub(super) fn all(view: &'v View<'_>, kind: FabricKind) -> Vec<Self> {
        let targets = Site::all(view).map(Self::Target);
        match kind {
            FabricKind::Nvmeof => targets.chain((0..view.names().hosts.len()).map(Self::Host)).collect(),
            FabricKind::Pcie => targets.chain(direct_ports(view).map(|(_, port)| Self::Machine(port))).collect(),
        }
    }

    /// The one of an identifier.
    pub(super) fn find(view: &'v View<'_>, kind: FabricKind, id: &str) -> Option<Self> {
        if let Some(site) = Site::find(view, id) {
            return Some(Self::Target(site));
        }
        match kind {
            FabricKind::Nvmeof => view.names().host_endpoints.index(id).map(Self::Host),
            FabricKind::Pcie => {
                direct_ports(view).find(|(port, _)| machine_id(view, port) == id).map(|(_, port)| Self::Machine(port))
            }
        }
    }

    /// Its identifier.
    pub(super) fn id(&self, view: &View<'_>) -> String {
        match self {
            Self::Target(site) => site.endpoint_id(),
            Self::Host(at) => view.names().host_endpoints.at(*at).to_owned(),
            Self::Machine(port) => machine_id(view, view.port_id(&port.name).expect("it is a port of the view")),
        }
    }
}

/// Direct ports, each with its identifier.
pub(super) fn direct_ports<'v>(view: &'v View<'_>) -> impl Iterator<Item = (&'v str, &'v PortObject)> {
    view.ports().filter(|(_, port)| port.kind == PortKind::Direct)
}

/// The identifier of the virtual machine at a port, which no target has.
pub(super) fn machine_id(view: &View<'_>, port: &str) -> String {
    let mut id = format!("host-{port}");
    while Site::find(view, &id).is_some() {
        id.push('-');
    }
    id
}

/// The NQN of the virtual machine at a direct port.
pub(super) fn machine_nqn(view: &View<'_>, port: &PortObject) -> Option<String> {
    let config = view.config().ports.iter().find(|config| config.name == port.name)?;
    config.direct_host().map(|nqn| nqn.to_string())
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Endpoint {
    #[serde(flatten)]
    head: Head,
    endpoint_protocol: &'static str,
    connected_entities: Vec<Entity>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    identifiers: Vec<Identifier>,
    #[serde(rename = "IPTransportDetails", skip_serializing_if = "Vec::is_empty")]
    transports: Vec<TransportDetails>,
    status: Status,
    links: EndpointLinks,
    oem: Oem<OemEndpoint>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Entity {
    entity_type: &'static str,
    entity_role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    entity_link: Option<Link>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    identifiers: Vec<Identifier>,
}

#[derive(Serialize)]
struct TransportDetails {
    #[serde(rename = "TransportProtocol")]
    protocol: &'static str,
    #[serde(rename = "IPv4Address", skip_serializing_if = "Option::is_none")]
    ipv4: Option<Address>,
    #[serde(rename = "IPv6Address", skip_serializing_if = "Option::is_none")]
    ipv6: Option<Address>,
    #[serde(rename = "Port")]
    port: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Address {
    address: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct EndpointLinks {
    connections: Vec<Link>,
    zones: Vec<Link>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    local_ports: Vec<Link>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    connected_ports: Vec<Link>,
}

/// `EbofEndpoint.v1_0_0.Endpoint`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemEndpoint {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    object: String,
    connected: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    configured: Option<bool>,
    addresses: Vec<String>,
}

impl OemEndpoint {
    fn new<'h>(object: &str, configured: Option<bool>, hosts: impl IntoIterator<Item = &'h HostObject>) -> Self {
        let mut addresses: Vec<String> = hosts.into_iter().map(|host| host.peer.clone()).collect();
        let connected = !addresses.is_empty();
        addresses.sort();
        addresses.dedup();
        Self { kind: "#EbofEndpoint.v1_0_0.Endpoint", object: object.to_owned(), connected, configured, addresses }
    }
}

impl Endpoint {
    pub(super) fn new(view: &View<'_>, kind: FabricKind, id: &str, party: &Party<'_>) -> Self {
        match party {
            Party::Target(site) => Self::target(view, kind, site),
            Party::Host(at) => Self::host(view, id, view.names().hosts.get(*at).map_or("", String::as_str)),
            Party::Machine(port) => Self::machine(view, id, port),
        }
    }

    fn target(view: &View<'_>, kind: FabricKind, site: &Site<'_>) -> Self {
        let place = FabricPlace::Endpoint(kind, site.endpoint_id());
        let ports: Vec<(&str, &PortObject)> = view
            .ports()
            .filter(|(_, port)| {
                FabricKind::of_port(port.kind) == kind && !port.discovery_only && site.is_at(&port.name)
            })
            .collect();
        let is_online = match site.controller {
            AnyController::Function(_, function) => function.online,
            _ => true,
        };
        let state = if ports.is_empty() || !is_online { State::StandbyOffline } else { State::Enabled };
        let zones = ports.iter().map(|(id, _)| FabricPlace::Zone(kind, (*id).to_owned()));
        let local = ports.iter().filter(|_| kind == FabricKind::Nvmeof);
        let is_here = |host: &&HostObject| ports.iter().any(|(_, port)| port.name == host.port);
        Self {
            head: head(place, site.controller.object(), "What hosts connect to"),
            endpoint_protocol: kind.protocol(),
            connected_entities: vec![Entity {
                entity_type: "StorageSubsystem",
                entity_role: "Target",
                entity_link: Some(link(site.place())),
                identifiers: Vec::new(),
            }],
            identifiers: vec![Identifier::nqn(site.nqn())],
            transports: ports.iter().filter_map(|(_, port)| TransportDetails::of_port(view, port)).collect(),
            status: Status::with_state(state),
            links: EndpointLinks {
                connections: links(connection::of_target(view, kind, site)),
                zones: links(zones),
                local_ports: links(local.map(|(id, _)| ChassisPlace::Port((*id).to_owned()))),
                connected_ports: Vec::new(),
            },
            oem: oem(OemEndpoint::new(&site.controller.object(), None, site.hosts().iter().filter(is_here))),
        }
    }

    fn host(view: &View<'_>, id: &str, nqn: &str) -> Self {
        let inventory = view.inventory();
        let all: Vec<&HostObject> =
            Site::all(view).flat_map(|site| site.hosts()).filter(|host| host.nqn == nqn).collect();
        let ports = view.ports().filter(|(_, port)| all.iter().any(|host| host.port == port.name));
        let ports: Vec<&str> = ports.filter(|(_, port)| !inventory.is_direct(&port.name)).map(|(id, _)| id).collect();
        let is_configured = view.config().hosts.iter().any(|host| host.nqn.as_str() == nqn);
        let state = if all.is_empty() { State::StandbyOffline } else { State::Enabled };
        Self {
            head: head(FabricPlace::Endpoint(FabricKind::Nvmeof, id.to_owned()), nqn.to_owned(), "A host"),
            endpoint_protocol: FabricKind::Nvmeof.protocol(),
            connected_entities: vec![Entity {
                entity_type: "StorageInitiator",
                entity_role: "Initiator",
                entity_link: None,
                identifiers: vec![Identifier::nqn(nqn)],
            }],
            identifiers: vec![Identifier::nqn(nqn)],
            transports: Vec::new(),
            status: Status::with_state(state),
            links: EndpointLinks {
                connections: links(connection::of_host(view, nqn)),
                zones: Vec::new(),
                local_ports: Vec::new(),
                connected_ports: links(ports.into_iter().map(|id| ChassisPlace::Port(id.to_owned()))),
            },
            oem: oem(OemEndpoint::new(nqn, Some(is_configured), all)),
        }
    }

    fn machine(view: &View<'_>, id: &str, port: &PortObject) -> Self {
        let nqn = machine_nqn(view, port);
        let identifiers: Vec<Identifier> = nqn.iter().map(|nqn| Identifier::nqn(nqn)).collect();
        let all: Vec<&HostObject> =
            Site::all(view).flat_map(|site| site.hosts()).filter(|host| host.port == port.name).collect();
        let port_id = view.port_id(&port.name).expect("it is a port of the view");
        let state = if all.is_empty() { State::StandbyOffline } else { State::Enabled };
        Self {
            head: head(
                FabricPlace::Endpoint(FabricKind::Pcie, id.to_owned()),
                format!("The virtual machine at {}", port.name),
                "Who uses a direct port",
            ),
            endpoint_protocol: FabricKind::Pcie.protocol(),
            connected_entities: vec![Entity {
                entity_type: "RootComplex",
                entity_role: "Initiator",
                entity_link: None,
                identifiers: identifiers.clone(),
            }],
            identifiers,
            transports: Vec::new(),
            status: Status::with_state(state),
            links: EndpointLinks {
                connections: links(
                    connection::at_port(view, port)
                        .map(|_| FabricPlace::Connection(FabricKind::Pcie, port_id.to_owned())),
                ),
                zones: Vec::new(),
                local_ports: Vec::new(),
                connected_ports: Vec::new(),
            },
            oem: oem(OemEndpoint::new(nqn.as_deref().unwrap_or(&port.name), None, all)),
        }
    }
}

fn head(place: FabricPlace, name: String, description: &str) -> Head {
    Head::new(Place::from(place), "#Endpoint.v1_8_2.Endpoint", name, description)
}

impl TransportDetails {
    /// Of a port on a network, with the address that discovery names.
    fn of_port(view: &View<'_>, port: &PortObject) -> Option<Self> {
        let listen: Listen = port.listen.parse().ok()?;
        let protocol = match listen.transport {
            Transport::Tcp => "TCP",
            Transport::Rdma => "RoCEv2",
            Transport::VfioUser => return None,
        };
        let config = view.config().ports.iter().find(|config| config.name == port.name);
        let status = view.status().ports.iter().find(|status| status.name == port.name);
        let address = config.and_then(|config| config.advertise).unwrap_or(listen.address);
        let text = || Some(Address { address: address.to_string() });
        Some(Self {
            protocol,
            ipv4: matches!(address, IpAddr::V4(_)).then(text).flatten(),
            ipv6: matches!(address, IpAddr::V6(_)).then(text).flatten(),
            port: status.map_or(listen.port, |status| status.address.port()),
        })
    }
}
