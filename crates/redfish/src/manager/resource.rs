//! `Manager` and `ManagerNetworkProtocol`.

use ebof_manage::api::MissingObject;
use ebof_manage::events::EventKind;
use serde::Serialize;

use crate::head::{Action, Head, Health, Link, Oem, Status, link, links, oem};
use crate::message::{OWN, camel};
use crate::place::{CertificatePlace, ChassisPlace, FabricKind, FabricPlace, ManagerPlace, PlanPlace};
use crate::time::date_time;
use crate::view::View;

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
    status: ManagerStatus,
    network_protocol: Link,
    log_services: Link,
    links: Links,
    actions: Actions,
    oem: Oem<OemManager>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Actions {
    oem: OemActions,
}

#[derive(Serialize)]
struct OemActions {
    #[serde(rename = "#EbofManager.PlanChanges")]
    plan: Action,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Links {
    manager_for_chassis: Vec<Link>,
    manager_in_chassis: Link,
    manager_for_fabrics: Vec<Link>,
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
            last_reset_time: date_time(parts.events.since(0, 0).started_unix_ms),
            power_state: "On",
            status: ManagerStatus::new(&status.missing),
            network_protocol: link(ManagerPlace::NetworkProtocol),
            log_services: link(ManagerPlace::Logs),
            links: Links {
                manager_for_chassis: links([ChassisPlace::Enclosure]),
                manager_in_chassis: link(ChassisPlace::Enclosure),
                manager_for_fabrics: links(FabricKind::ALL.map(FabricPlace::Fabric)),
            },
            actions: Actions { oem: OemActions { plan: plan_action() } },
            oem: oem(ebof),
        }
    }
}

/// `Resource.Status`, with what is to be served and cannot be had.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ManagerStatus {
    #[serde(flatten)]
    status: Status,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
}

/// `Resource.Condition`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Condition {
    message_id: String,
    message: String,
    message_args: Vec<String>,
    severity: Health,
    timestamp: String,
}

impl ManagerStatus {
    fn new(missing: &[MissingObject]) -> Self {
        let conditions: Vec<Condition> = missing.iter().map(Condition::new).collect();
        let status = if conditions.is_empty() { Status::OK } else { Status::enabled(Health::Critical) };
        Self { status, conditions }
    }
}

impl Condition {
    fn new(missing: &MissingObject) -> Self {
        let MissingObject { kind, name, reason, since_unix_ms } = missing;
        let message = format!("{kind} {name} is missing: {reason}");
        let message_id = format!("{OWN}.{}", camel(EventKind::ObjectMissing.name()));
        let (message_args, timestamp) = (vec![message.clone()], date_time(*since_unix_ms));
        Self { message_id, message, message_args, severity: Health::Critical, timestamp }
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
    status: Status,
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
        let protocol = |port: Option<u16>| Protocol { protocol_enabled: port.is_some(), port };
        Self {
            head: Head::new(
                ManagerPlace::NetworkProtocol,
                "#ManagerNetworkProtocol.v1_12_0.ManagerNetworkProtocol",
                "Network Protocol",
                "How this service is reached",
            ),
            host_name: parts.host_name.split('.').next().unwrap_or_default().to_owned(),
            fqdn: parts.host_name.clone(),
            http: protocol(parts.http_port),
            https: Https { protocol: protocol(parts.https_port), certificates: link(CertificatePlace::Https) },
            status: Status::OK,
        }
    }
}

/// What says what a request would change.
fn plan_action() -> Action {
    Action::new(PlanPlace::Plan).accepts("Method@Redfish.AllowableValues", vec!["POST", "PATCH", "DELETE"])
}
