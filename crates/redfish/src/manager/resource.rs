//! `Manager` and `ManagerNetworkProtocol`.

use serde::Serialize;

use super::reset::KINDS;
use crate::managed::missing::StatusOfMissing;
use crate::managed::parts::Door;
use crate::managed::view::View;
use crate::place::{CertificatePlace, ChassisPlace, FabricKind, FabricPlace, ManagerPlace, PlanPlace, SystemPlace};
use crate::response::head::{Head, Link, Oem, ResourceAction, Status, link, links, oem};

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Manager {
    #[serde(flatten)]
    head: Head,
    manager_type: &'static str,
    manufacturer: &'static str,
    model: &'static str,
    firmware_version: String,
    version: String,
    #[serde(rename = "UUID")]
    uuid: String,
    #[serde(rename = "ServiceEntryPointUUID")]
    entry_point: String,
    last_reset_time: String,
    power_state: &'static str,
    status: StatusOfMissing,
    network_protocol: Link,
    ethernet_interfaces: Link,
    log_services: Link,
    links: ManagerLinks,
    actions: Actions,
    oem: Oem<OemManager>,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#Manager.Reset")]
    reset: ResourceAction,
    #[serde(rename = "Oem")]
    oem: OemActions,
}

#[derive(Serialize)]
struct OemActions {
    #[serde(rename = "#EbofManager.PlanChanges")]
    plan: ResourceAction,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ManagerLinks {
    manager_for_chassis: Vec<Link>,
    manager_in_chassis: Link,
    manager_for_fabrics: Vec<Link>,
    manager_for_servers: Vec<Link>,
}

/// `EbofManager.Manager`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemManager {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    configuration: Link,
    /// Connections of hosts that are open.
    connections: u32,
    connections_max: u32,
    uptime_seconds: u64,
    /// What drives remember and the configuration contradicts.
    contradictions: Vec<String>,
}

impl Manager {
    pub(super) fn new(view: &View<'_>) -> Self {
        let (parts, status) = (view.parts, view.status());
        let ebof = OemManager {
            kind: "#EbofManager.v1_0_0.Manager",
            configuration: link(ManagerPlace::Configuration),
            connections: status.connections,
            connections_max: status.connections_max,
            uptime_seconds: status.uptime_s,
            contradictions: view.inventory().contradictions.clone(),
        };
        Self {
            head: Head::new(
                ManagerPlace::Manager,
                "#Manager.v1_24_0.Manager",
                "ebof",
                "The target, which manages itself",
            ),
            manager_type: "Service",
            manufacturer: "ebof",
            model: "ebof",
            firmware_version: status.version.clone(),
            version: status.version.clone(),
            uuid: parts.uuid.to_string(),
            entry_point: parts.uuid.to_string(),
            last_reset_time: view.started(),
            power_state: "On",
            status: StatusOfMissing::without(Status::OK, &status.missing),
            network_protocol: link(ManagerPlace::NetworkProtocol),
            ethernet_interfaces: link(SystemPlace::Interfaces),
            log_services: link(ManagerPlace::Logs),
            links: ManagerLinks {
                manager_for_chassis: links([ChassisPlace::Enclosure]),
                manager_in_chassis: link(ChassisPlace::Enclosure),
                manager_for_fabrics: links(FabricKind::ALL.map(FabricPlace::Fabric)),
                manager_for_servers: links([SystemPlace::System]),
            },
            actions: Actions {
                reset: ResourceAction::new(ManagerPlace::Reset)
                    .accepts("ResetType@Redfish.AllowableValues", KINDS.to_vec()),
                oem: OemActions { plan: plan_action() },
            },
            oem: oem(ebof),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NetworkProtocol {
    #[serde(flatten)]
    head: Head,
    host_name: String,
    #[serde(rename = "FQDN")]
    fqdn: String,
    #[serde(rename = "HTTP")]
    http: Protocol,
    #[serde(rename = "HTTPS")]
    https: Https,
    #[serde(rename = "SSDP")]
    ssdp: Announced,
    status: Status,
}

/// A protocol that there is not.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Announced {
    protocol_enabled: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Protocol {
    protocol_enabled: bool,
    port: Option<u16>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Https {
    #[serde(flatten)]
    protocol: Protocol,
    certificates: Link,
}

impl NetworkProtocol {
    pub(super) fn new(view: &View<'_>) -> Self {
        let parts = view.parts;
        let protocol = |Door { port, .. }: Door| Protocol { protocol_enabled: port.is_some(), port };
        let doors = parts.program.doors();
        Self {
            head: Head::new(
                ManagerPlace::NetworkProtocol,
                "#ManagerNetworkProtocol.v1_12_0.ManagerNetworkProtocol",
                "Network Protocol",
                "How this service is reached",
            ),
            host_name: parts.host_name.split('.').next().unwrap_or_default().to_owned(),
            fqdn: parts.host_name.clone(),
            http: protocol(doors.http),
            https: Https { protocol: protocol(doors.https), certificates: link(CertificatePlace::Https) },
            ssdp: Announced { protocol_enabled: false },
            status: Status::OK,
        }
    }
}

/// What says what a request would change.
fn plan_action() -> ResourceAction {
    ResourceAction::new(PlanPlace::Plan).accepts("Method@Redfish.AllowableValues", vec!["POST", "PATCH", "DELETE"])
}
