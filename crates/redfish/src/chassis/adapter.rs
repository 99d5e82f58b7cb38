//! `NetworkAdapter` and its `Port`s: where a network reaches the box.

use ebof_manage::api::PortStatus;
use ebof_manage::enclosure::PortObject;
use serde::Serialize;

use crate::managed::view::View;
use crate::place::{ChassisPlace, FabricKind, FabricPlace};
use crate::response::head::{Head, Link, Oem, Status, link, links, oem};

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NetworkAdapter {
    #[serde(flatten)]
    head: Head,
    manufacturer: &'static str,
    model: &'static str,
    status: Status,
    ports: Link,
}

impl NetworkAdapter {
    pub(super) fn new() -> Self {
        Self {
            head: Head::new(
                ChassisPlace::Adapter,
                "#NetworkAdapter.v1_14_0.NetworkAdapter",
                "fabric",
                "What has all ports that hosts on a network reach",
            ),
            manufacturer: "ebof",
            model: "ebof",
            status: Status::OK,
            ports: link(ChassisPlace::Ports),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Port {
    #[serde(flatten)]
    head: Head,
    port_id: String,
    port_protocol: &'static str,
    port_type: &'static str,
    link_network_technology: &'static str,
    link_state: &'static str,
    link_status: &'static str,
    interface_enabled: bool,
    status: Status,
    metrics: Link,
    links: PortLinks,
    oem: Oem<OemPort>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PortLinks {
    associated_endpoints: Vec<Link>,
}

/// `EbofPort.v1_0_0.Port`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemPort {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    object: String,
    listen: String,
    transport: String,
    is_discovery_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<Link>,
}

impl Port {
    pub(super) fn new(view: &View<'_>, id: &str, port: &PortObject) -> Self {
        let status = status_of(view, port);
        let connected = view.names().hosts.iter().enumerate().filter(|(_, nqn)| is_connected(view, port, nqn));
        let endpoint =
            |at: usize| FabricPlace::Endpoint(FabricKind::Nvmeof, view.names().host_endpoints.at(at).to_owned());
        Self {
            head: Head::new(
                ChassisPlace::Port(id.to_owned()),
                "#Port.v1_18_0.Port",
                port.name.clone(),
                "An address at which hosts reach the box",
            ),
            port_id: status.map_or_else(|| port.name.clone(), |status| status.id.to_string()),
            port_protocol: "NVMeOverFabrics",
            port_type: "UpstreamPort",
            link_network_technology: "Ethernet",
            link_state: "Enabled",
            link_status: "LinkUp",
            interface_enabled: true,
            status: Status::OK,
            metrics: link(ChassisPlace::PortMetrics(id.to_owned())),
            links: PortLinks { associated_endpoints: links(connected.map(|(at, _)| endpoint(at))) },
            oem: oem(OemPort {
                kind: "#EbofPort.v1_0_0.Port",
                object: port.name.clone(),
                listen: port.listen.clone(),
                transport: port.listen.split(':').next().unwrap_or_default().to_owned(),
                is_discovery_only: port.discovery_only,
                zone: (!port.discovery_only).then(|| link(FabricPlace::Zone(FabricKind::Nvmeof, id.to_owned()))),
            }),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PortMetrics {
    #[serde(flatten)]
    head: Head,
    oem: Oem<Counters>,
}

/// `EbofPortMetrics.v1_0_0.Connections`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Counters {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    open: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<u64>,
}

impl PortMetrics {
    pub(super) fn new(view: &View<'_>, id: &str, port: &PortObject) -> Self {
        let status = status_of(view, port);
        Self {
            head: Head::new(
                ChassisPlace::PortMetrics(id.to_owned()),
                "#PortMetrics.v1_8_1.PortMetrics",
                format!("Counters of port {}", port.name),
                "Connections of hosts since the target was started",
            ),
            oem: oem(Counters {
                kind: "#EbofPortMetrics.v1_0_0.Connections",
                open: status.map_or(port.connections, |status| status.connections),
                accepted: status.map(|status| status.accepted),
                refused: status.map(|status| status.refused),
            }),
        }
    }
}

fn status_of<'v>(view: &'v View<'_>, port: &PortObject) -> Option<&'v PortStatus> {
    view.status().ports.iter().find(|status| status.name == port.name)
}

/// Whether a host has a controller through this port.
fn is_connected(view: &View<'_>, port: &PortObject, nqn: &str) -> bool {
    view.status().controllers.iter().any(|controller| controller.port == port.name && controller.host_nqn == nqn)
}
