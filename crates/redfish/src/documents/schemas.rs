//! What describes the resources: schemas of DMTF and SNIA by their public addresses, ebof's own
//! CSDL, `$metadata`, and the OpenAPI document.

mod openapi;

use serde::Serialize;
use serde_json::Value;

use crate::area::Area;
use crate::managed::view::View;
use crate::place::kinds::{KINDS, unversioned};
use crate::place::{OwnSchema, Place, SchemaPlace};
use crate::response::head::{Collection, Head, json};
use crate::response::message::Problem;
pub(crate) use openapi::openapi;

/// Schemas that others refer to.
const REFERRED: &[&str] = &["RedfishError.v1_0_2", "RedfishExtensions.v1_0_0", "Resource", "Settings.v1_4_0"];

/// Types that SNIA publishes.
const SWORDFISH: &[&str] = &["Volume", "VolumeCollection", "VolumeMetrics"];

impl Area for SchemaPlace {
    fn read(&self, _view: &View<'_>) -> Result<Value, Problem> {
        match self {
            Self::Collection => {
                let members = KINDS.iter().map(|kind| Self::File((*kind).to_owned()));
                Ok(json(&Collection::new(Self::Collection, "JsonSchemaFile", "JSON Schemas", members)))
            }
            Self::File(kind) if KINDS.contains(&kind.as_str()) => Ok(json(&JsonSchemaFile::new(kind))),
            _ => Err(self.missing()),
        }
    }

    fn document(&self, _view: &View<'_>) -> Option<(&'static str, String)> {
        let Self::Own(schema) = self else { return None };
        Some(("application/xml", schema.text().to_owned()))
    }
}

impl SchemaPlace {
    /// Where the schema of a type is: of `Drive.v1_22_0`, of `EbofTask.v1_0_0`.
    pub(crate) fn of_type(kind: &str) -> Self {
        let name = unversioned(kind);
        let own = OwnSchema::all().find(|schema| schema.file().strip_suffix("_v1.xml") == Some(name));
        own.map_or_else(|| Self::File(kind.to_owned()), Self::Own)
    }
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
    for schema in OwnSchema::all() {
        let uri = Place::from(SchemaPlace::Own(schema)).to_string();
        let all = schema
            .text()
            .split("<Schema ")
            .skip(1)
            .filter_map(|rest| rest.split("Namespace=\"").nth(1)?.split('"').next());
        references.push_str(&reference(&uri, &all.collect::<Vec<_>>(), false));
    }
    let root = KINDS.iter().find(|kind| kind.starts_with("ServiceRoot.")).expect("the root has a type");
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
