//! What describes the resources: schemas of DMTF and SNIA by their public addresses, ebof's own
//! CSDL, `$metadata`, and the OpenAPI document.
//!
//! The types in use are listed once, in [`KINDS`]; a resource of another type fails the tests
//! ([`Head::new`](crate::head::Head::new)), and a test walks the tree for those that are not used.

mod openapi;

use ebof_access::Privilege;
use http::Method;
use serde::Serialize;
use serde_json::Value;

use crate::area::Area;
use crate::head::{Collection, Head, json};
use crate::message::Problem;
use crate::place::Place;
use crate::view::View;
pub(crate) use openapi::openapi;

/// The types of resources and payloads, with their versions. Collections have none.
pub(crate) const KINDS: &[&str] = &[
    "AccountService.v1_18_0",
    "Certificate.v1_11_0",
    "CertificateCollection",
    "CertificateLocations.v1_0_4",
    "CertificateService.v1_2_1",
    "Chassis.v1_28_0",
    "ChassisCollection",
    "Connection.v1_4_0",
    "ConnectionCollection",
    "Drive.v1_22_0",
    "DriveCollection",
    "DriveMetrics.v1_3_0",
    "Endpoint.v1_8_2",
    "EndpointCollection",
    "EnvironmentMetrics.v1_5_0",
    "Event.v1_13_0",
    "EventDestination.v1_16_0",
    "EventDestinationCollection",
    "EventService.v1_12_0",
    "Fabric.v1_4_0",
    "FabricCollection",
    "Fan.v1_6_0",
    "FanCollection",
    "JsonSchemaFile.v1_1_5",
    "JsonSchemaFileCollection",
    "LogEntry.v1_21_0",
    "LogEntryCollection",
    "LogService.v1_9_0",
    "LogServiceCollection",
    "Manager.v1_24_0",
    "ManagerAccount.v1_14_0",
    "ManagerAccountCollection",
    "ManagerCollection",
    "ManagerNetworkProtocol.v1_12_0",
    "Message.v1_3_0",
    "MessageRegistry.v1_3_5",
    "MessageRegistryFile.v1_1_5",
    "MessageRegistryFileCollection",
    "MetricDefinition.v1_3_5",
    "MetricDefinitionCollection",
    "MetricReport.v1_5_2",
    "MetricReportCollection",
    "MetricReportDefinition.v1_4_7",
    "MetricReportDefinitionCollection",
    "NetworkAdapter.v1_14_0",
    "NetworkAdapterCollection",
    "PCIeDevice.v1_21_0",
    "PCIeDeviceCollection",
    "PCIeFunction.v1_7_0",
    "PCIeFunctionCollection",
    "Port.v1_18_0",
    "PortCollection",
    "PortMetrics.v1_8_1",
    "PrivilegeRegistry.v1_2_0",
    "Role.v1_3_3",
    "RoleCollection",
    "Sensor.v1_12_0",
    "SensorCollection",
    "ServiceRoot.v1_20_0",
    "Session.v1_8_0",
    "SessionCollection",
    "SessionService.v1_2_0",
    "SoftwareInventory.v1_13_0",
    "SoftwareInventoryCollection",
    "Storage.v1_21_0",
    "StorageCollection",
    "StorageController.v1_11_0",
    "StorageControllerCollection",
    "Task.v1_7_4",
    "TaskCollection",
    "TaskService.v1_3_0",
    "TelemetryService.v1_4_1",
    "ThermalMetrics.v1_3_2",
    "ThermalSubsystem.v1_5_0",
    "UpdateService.v1_17_0",
    "Volume.v1_10_2",
    "VolumeCollection",
    "VolumeMetrics.v1_1_1",
    "Zone.v1_6_3",
    "ZoneCollection",
];

/// Schemas that others refer to.
const REFERRED: &[&str] = &["RedfishError.v1_0_2", "RedfishExtensions.v1_0_0", "Resource", "Settings.v1_4_0"];

/// Types that SNIA publishes.
const SWORDFISH: &[&str] = &["Volume", "VolumeCollection", "VolumeMetrics"];

/// ebof's own schemas: the file, and its text.
pub(crate) const OWN: &[(&str, &str)] = &[
    ("EbofChassis_v1.xml", include_str!("../schemas/EbofChassis_v1.xml")),
    ("EbofConfiguration_v1.xml", include_str!("../schemas/EbofConfiguration_v1.xml")),
    ("EbofConnection_v1.xml", include_str!("../schemas/EbofConnection_v1.xml")),
    ("EbofDrive_v1.xml", include_str!("../schemas/EbofDrive_v1.xml")),
    ("EbofDriveMetrics_v1.xml", include_str!("../schemas/EbofDriveMetrics_v1.xml")),
    ("EbofEndpoint_v1.xml", include_str!("../schemas/EbofEndpoint_v1.xml")),
    ("EbofLogEntry_v1.xml", include_str!("../schemas/EbofLogEntry_v1.xml")),
    ("EbofManager_v1.xml", include_str!("../schemas/EbofManager_v1.xml")),
    ("EbofPCIeFunction_v1.xml", include_str!("../schemas/EbofPCIeFunction_v1.xml")),
    ("EbofPort_v1.xml", include_str!("../schemas/EbofPort_v1.xml")),
    ("EbofPortMetrics_v1.xml", include_str!("../schemas/EbofPortMetrics_v1.xml")),
    ("EbofSessionService_v1.xml", include_str!("../schemas/EbofSessionService_v1.xml")),
    ("EbofStorage_v1.xml", include_str!("../schemas/EbofStorage_v1.xml")),
    ("EbofStorageController_v1.xml", include_str!("../schemas/EbofStorageController_v1.xml")),
    ("EbofTask_v1.xml", include_str!("../schemas/EbofTask_v1.xml")),
    ("EbofVolume_v1.xml", include_str!("../schemas/EbofVolume_v1.xml")),
    ("EbofVolumeMetrics_v1.xml", include_str!("../schemas/EbofVolumeMetrics_v1.xml")),
];

/// Addresses of schemas.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SchemaPlace {
    /// All JSON schemas.
    Collection,
    /// Where a JSON schema is: `Drive.v1_22_0`.
    File(String),
    /// A schema of ebof's own: `EbofTask_v1.xml`.
    Own(&'static str),
}

impl Area for SchemaPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        match segments {
            ["JsonSchemas"] => Some(Self::Collection),
            ["JsonSchemas", kind] => Some(Self::File((*kind).to_owned())),
            ["schemas", file] => OWN.iter().find(|(own, _)| own == file).map(|(own, _)| Self::Own(own)),
            _ => None,
        }
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("JsonSchemaFileCollection", "JsonSchemas"),
            ("JsonSchemaFile", "JsonSchemas/{JsonSchemaFileId}"),
            ("", "schemas/EbofConfiguration_v1.xml"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        match self {
            Self::Collection => vec!["JsonSchemas"],
            Self::File(kind) => vec!["JsonSchemas", kind],
            Self::Own(file) => vec!["schemas", file],
        }
    }

    fn privilege(&self, _method: &Method) -> Option<Privilege> {
        match self {
            // `$metadata`, which is public, refers to them.
            Self::Own(_) => None,
            _ => Some(Privilege::Login),
        }
    }

    fn read(&self, _view: &View<'_>) -> Result<Value, Problem> {
        match self {
            Self::Collection => {
                let members = KINDS.iter().map(|kind| Self::File((*kind).to_owned()));
                Ok(json(&Collection::new(Self::Collection, "JsonSchemaFile", "JSON Schemas", members)))
            }
            Self::File(kind) if KINDS.contains(&kind.as_str()) => Ok(json(&JsonSchemaFile::new(kind))),
            _ => Err(Problem::not_found(&Place::from(self.clone()))),
        }
    }

    fn document(&self, _view: &View<'_>) -> Option<(&'static str, String)> {
        let Self::Own(file) = self else { return None };
        let (_, text) = OWN.iter().find(|(own, _)| own == file)?;
        Some(("application/xml", (*text).to_owned()))
    }
}

/// The name of a type without its version.
pub(crate) fn unversioned(kind: &str) -> &str {
    kind.split('.').next().unwrap_or_default()
}

/// Whether a type (`#Drive.v1_22_0.Drive`) is one of those in use, or ebof's own.
pub(crate) fn is_known(kind: &str) -> bool {
    let namespace = kind.trim_start_matches('#').rsplit_once('.').map_or("", |(namespace, _)| namespace);
    KINDS.contains(&namespace) || OWN.iter().any(|(_, text)| text.contains(&format!("Namespace=\"{namespace}\"")))
}

/// `JsonSchemaFile`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct JsonSchemaFile {
    #[serde(flatten)]
    head: Head,
    schema: String,
    languages: [&'static str; 1],
    location: [Location; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Location {
    language: &'static str,
    publication_uri: String,
}

impl JsonSchemaFile {
    fn new(kind: &str) -> Self {
        let publication_uri = format!("{}{kind}.json", published(kind));
        Self {
            head: Head::new(
                SchemaPlace::File(kind.to_owned()),
                "#JsonSchemaFile.v1_1_5.JsonSchemaFile",
                kind,
                "Where a JSON schema is",
            ),
            schema: format!("#{kind}.{}", unversioned(kind)),
            languages: ["en"],
            location: [Location { language: "en", publication_uri }],
        }
    }
}

/// Where a schema is published.
fn published(kind: &str) -> &'static str {
    if SWORDFISH.contains(&unversioned(kind)) {
        "http://redfish.dmtf.org/schemas/swordfish/v1/"
    } else {
        "http://redfish.dmtf.org/schemas/v1/"
    }
}

/// The metadata document: which schemas there are (DSP0266, "OData metadata").
pub(crate) fn metadata() -> String {
    let mut references = String::new();
    for kind in KINDS.iter().chain(REFERRED) {
        let (name, uri) = (unversioned(kind), published(kind));
        let mut namespaces = vec![name];
        if *kind != name {
            namespaces.push(kind);
        }
        references.push_str(&reference(
            &format!("{uri}{name}_v1.xml"),
            &namespaces,
            *kind == "RedfishExtensions.v1_0_0",
        ));
    }
    for (file, text) in OWN {
        let uri = Place::from(SchemaPlace::Own(file)).to_string();
        let all =
            text.split("<Schema ").skip(1).filter_map(|rest| rest.split("Namespace=\"").nth(1)?.split('"').next());
        references.push_str(&reference(&uri, &all.collect::<Vec<_>>(), false));
    }
    let root = KINDS.iter().find(|kind| kind.starts_with("ServiceRoot.")).copied().unwrap_or_default();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <edmx:Edmx xmlns:edmx=\"http://docs.oasis-open.org/odata/ns/edmx\" Version=\"4.0\">\n\
         {references}  <edmx:DataServices>\n    \
         <Schema xmlns=\"http://docs.oasis-open.org/odata/ns/edm\" Namespace=\"Service\">\n      \
         <EntityContainer Name=\"Service\" Extends=\"{root}.ServiceContainer\"/>\n    \
         </Schema>\n  </edmx:DataServices>\n</edmx:Edmx>\n"
    )
}

fn reference(uri: &str, namespaces: &[&str], is_redfish: bool) -> String {
    let alias = if is_redfish { " Alias=\"Redfish\"" } else { "" };
    let include = |namespace: &&str| {
        let alias = if namespace.contains('.') { alias } else { "" };
        format!("    <edmx:Include Namespace=\"{namespace}\"{alias}/>\n")
    };
    let includes: String = namespaces.iter().map(include).collect();
    format!("  <edmx:Reference Uri=\"{uri}\">\n{includes}  </edmx:Reference>\n")
}

#[cfg(test)]
mod csdl;
#[cfg(test)]
mod tests;
