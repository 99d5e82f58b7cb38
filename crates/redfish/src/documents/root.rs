//! The root of the tree: versions, the service root, and the OData documents.

use serde::Serialize;
use serde_json::{Value, json};

use crate::area::Area;
use crate::documents::schemas::{metadata, openapi};
use crate::managed::view::View;
use crate::place::{
    AccountPlace, CertificatePlace, ChassisPlace, EventPlace, FabricPlace, KeyPlace, ManagerPlace, Place,
    RegistryPlace, RootPlace, SchemaPlace, SessionPlace, StoragePlace, SystemPlace, TaskPlace, TelemetryPlace,
    UpdatePlace,
};
use crate::request::query::LEVELS_MAX;
use crate::response::head::{Head, Link, json, link};
use crate::response::message::Problem;

impl Area for RootPlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Versions => json!({ "v1": Place::from(Self::Service) }),
            Self::Service => json(&ServiceRoot::new(view)),
            Self::Odata => odata(),
            Self::Metadata | Self::OpenApi => return Err(Problem::not_found(&"the document as JSON")),
        })
    }

    fn document(&self, _view: &View<'_>) -> Option<(&'static str, String)> {
        match self {
            Self::Metadata => Some(("application/xml", metadata())),
            Self::OpenApi => Some(("application/yaml", openapi())),
            _ => None,
        }
    }
}

/// `ServiceRoot`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ServiceRoot {
    #[serde(flatten)]
    head: Head,
    redfish_version: &'static str,
    #[serde(rename = "UUID")]
    uuid: String,
    product: &'static str,
    vendor: &'static str,
    protocol_features_supported: ProtocolFeatures,
    systems: Link,
    chassis: Link,
    storage: Link,
    fabrics: Link,
    session_service: Link,
    account_service: Link,
    tasks: Link,
    managers: Link,
    event_service: Link,
    telemetry_service: Link,
    certificate_service: Link,
    key_service: Link,
    update_service: Link,
    registries: Link,
    json_schemas: Link,
    links: RootLinks,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct RootLinks {
    sessions: Link,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ProtocolFeatures {
    excerpt_query: bool,
    expand_query: ExpandQuery,
    filter_query: bool,
    only_member_query: bool,
    select_query: bool,
    top_skip_query: bool,
    #[serde(rename = "MultipleHTTPRequests")]
    multiple_http_requests: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ExpandQuery {
    expand_all: bool,
    levels: bool,
    links: bool,
    max_levels: u64,
    no_links: bool,
}

impl ServiceRoot {
    fn new(view: &View<'_>) -> Self {
        let name = format!("ebof at {}", view.parts.host_name);
        let description = "Drives over NVMe over Fabrics, served from user space";
        Self {
            head: Head::new(RootPlace::Service, "#ServiceRoot.v1_20_0.ServiceRoot", name, description)
                .with_id("RootService"),
            redfish_version: "1.22.0",
            uuid: view.parts.uuid.to_string(),
            product: "ebof",
            vendor: "ebof",
            protocol_features_supported: ProtocolFeatures {
                excerpt_query: false,
                expand_query: ExpandQuery {
                    expand_all: true,
                    levels: true,
                    links: true,
                    max_levels: LEVELS_MAX,
                    no_links: true,
                },
                filter_query: true,
                only_member_query: true,
                select_query: true,
                top_skip_query: true,
                multiple_http_requests: true,
            },
            systems: link(SystemPlace::Collection),
            chassis: link(ChassisPlace::Collection),
            session_service: link(SessionPlace::Service),
            account_service: link(AccountPlace::Service),
            tasks: link(TaskPlace::Service),
            managers: link(ManagerPlace::Collection),
            event_service: link(EventPlace::Service),
            telemetry_service: link(TelemetryPlace::Service),
            certificate_service: link(CertificatePlace::Service),
            key_service: link(KeyPlace::Service),
            update_service: link(UpdatePlace::Service),
            registries: link(RegistryPlace::Collection),
            json_schemas: link(SchemaPlace::Collection),
            links: RootLinks { sessions: link(SessionPlace::Sessions) },
            storage: link(StoragePlace::Collection),
            fabrics: link(FabricPlace::Collection),
        }
    }
}

/// The OData service document: the resources of the service root by name.
fn odata() -> Value {
    let entry = |name: &str, place: Place| json!({ "name": name, "kind": "Singleton", "url": place });
    json!({
        "@odata.context": Place::from(RootPlace::Metadata),
        "value": [
            entry("Service", RootPlace::Service.into()),
            entry("Systems", SystemPlace::Collection.into()),
            entry("Chassis", ChassisPlace::Collection.into()),
            entry("Storage", StoragePlace::Collection.into()),
            entry("Fabrics", FabricPlace::Collection.into()),
            entry("SessionService", SessionPlace::Service.into()),
            entry("Sessions", SessionPlace::Sessions.into()),
            entry("AccountService", AccountPlace::Service.into()),
            entry("Tasks", TaskPlace::Service.into()),
            entry("Managers", ManagerPlace::Collection.into()),
            entry("EventService", EventPlace::Service.into()),
            entry("TelemetryService", TelemetryPlace::Service.into()),
            entry("CertificateService", CertificatePlace::Service.into()),
            entry("KeyService", KeyPlace::Service.into()),
            entry("UpdateService", UpdatePlace::Service.into()),
            entry("Registries", RegistryPlace::Collection.into()),
            entry("JsonSchemas", SchemaPlace::Collection.into()),
        ],
    })
}
