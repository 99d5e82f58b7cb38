//! The root of the tree: versions, the service root, and the OData documents.

use ebof_access::Privilege;
use http::Method;
use serde::Serialize;
use serde_json::{Value, json};

use crate::accounts::AccountPlace;
use crate::area::{Area, READ};
use crate::chassis::ChassisPlace;
use crate::head::{Head, Link, json, link};
use crate::manager::ManagerPlace;
use crate::message::Problem;
use crate::place::Place;
use crate::query::LEVELS_MAX;
use crate::sessions::SessionPlace;
use crate::tasks::TaskPlace;
use crate::view::View;

/// Addresses at the root.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RootPlace {
    /// `/redfish`.
    Versions,
    /// `/redfish/v1/`.
    Service,
    /// `/redfish/v1/odata`.
    Odata,
    /// `/redfish/v1/$metadata`.
    Metadata,
}

impl Area for RootPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        match segments {
            ["odata"] => Some(Self::Odata),
            ["$metadata"] => Some(Self::Metadata),
            _ => None,
        }
    }

    fn segments(&self) -> Vec<&str> {
        match self {
            Self::Versions | Self::Service => vec![],
            Self::Odata => vec!["odata"],
            Self::Metadata => vec!["$metadata"],
        }
    }

    fn methods(&self) -> &'static [Method] {
        READ
    }

    fn privilege(&self, _method: &Method) -> Option<Privilege> {
        None
    }

    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Versions => json!({ "v1": Place::from(Self::Service) }),
            Self::Service => json(&ServiceRoot::new(view)),
            Self::Odata => odata(),
            Self::Metadata => return Err(Problem::not_found(&"the document as JSON")),
        })
    }

    fn document(&self, _view: &View<'_>) -> Option<(&'static str, String)> {
        (*self == Self::Metadata).then(|| ("application/xml", metadata()))
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
    chassis: Link,
    session_service: Link,
    account_service: Link,
    tasks: Link,
    managers: Link,
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
            chassis: link(ChassisPlace::Collection),
            session_service: link(SessionPlace::Service),
            account_service: link(AccountPlace::Service),
            tasks: link(TaskPlace::Service),
            managers: link(ManagerPlace::Collection),
            links: RootLinks { sessions: link(SessionPlace::Sessions) },
        }
    }
}

/// The OData service document: the resources of the service root by name.
fn odata() -> Value {
    let entry = |name: &str, place: Place| json!({ "name": name, "kind": "Singleton", "url": place });
    json!({
        "@odata.context": "/redfish/v1/$metadata",
        "value": [
            entry("Service", RootPlace::Service.into()),
            entry("Chassis", ChassisPlace::Collection.into()),
            entry("SessionService", SessionPlace::Service.into()),
            entry("Sessions", SessionPlace::Sessions.into()),
            entry("AccountService", AccountPlace::Service.into()),
            entry("Tasks", TaskPlace::Service.into()),
            entry("Managers", ManagerPlace::Collection.into()),
        ],
    })
}

/// Schemas of DMTF and SNIA that resources are described by: the file, and its namespaces.
const SCHEMAS: &[(&str, &[&str])] = &[
    ("ServiceRoot", &["ServiceRoot", "ServiceRoot.v1_20_0"]),
    ("ChassisCollection", &["ChassisCollection"]),
    ("Chassis", &["Chassis", "Chassis.v1_28_0"]),
    ("DriveCollection", &["DriveCollection"]),
    ("Drive", &["Drive", "Drive.v1_22_0"]),
    ("SessionService", &["SessionService", "SessionService.v1_2_0"]),
    ("SessionCollection", &["SessionCollection"]),
    ("Session", &["Session", "Session.v1_8_0"]),
    ("AccountService", &["AccountService", "AccountService.v1_18_0"]),
    ("ManagerAccountCollection", &["ManagerAccountCollection"]),
    ("ManagerAccount", &["ManagerAccount", "ManagerAccount.v1_14_0"]),
    ("RoleCollection", &["RoleCollection"]),
    ("Role", &["Role", "Role.v1_3_3"]),
    ("TaskService", &["TaskService", "TaskService.v1_3_0"]),
    ("TaskCollection", &["TaskCollection"]),
    ("Task", &["Task", "Task.v1_7_4"]),
    ("ManagerCollection", &["ManagerCollection"]),
    ("Manager", &["Manager", "Manager.v1_24_0"]),
    ("ManagerNetworkProtocol", &["ManagerNetworkProtocol", "ManagerNetworkProtocol.v1_12_0"]),
    ("LogServiceCollection", &["LogServiceCollection"]),
    ("LogService", &["LogService", "LogService.v1_9_0"]),
    ("LogEntryCollection", &["LogEntryCollection"]),
    ("LogEntry", &["LogEntry", "LogEntry.v1_21_0"]),
];

/// The metadata document: which schemas there are (DSP0266, "OData metadata").
fn metadata() -> String {
    let include = |file: &str, namespaces: &[&str]| {
        let includes: String =
            namespaces.iter().map(|namespace| format!("    <edmx:Include Namespace=\"{namespace}\"/>\n")).collect();
        let uri = format!("http://redfish.dmtf.org/schemas/v1/{file}_v1.xml");
        format!("  <edmx:Reference Uri=\"{uri}\">\n{includes}  </edmx:Reference>\n")
    };
    let references: String = SCHEMAS.iter().map(|(file, namespaces)| include(file, namespaces)).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <edmx:Edmx xmlns:edmx=\"http://docs.oasis-open.org/odata/ns/edmx\" Version=\"4.0\">\n\
         {references}  <edmx:DataServices>\n    \
         <Schema xmlns=\"http://docs.oasis-open.org/odata/ns/edm\" Namespace=\"Service\">\n      \
         <EntityContainer Name=\"Service\" Extends=\"ServiceRoot.v1_20_0.ServiceContainer\"/>\n    \
         </Schema>\n  </edmx:DataServices>\n</edmx:Edmx>\n"
    )
}
