//! Registries of messages and privileges: `/redfish/v1/Registries`.

mod messages;
mod privileges;

use serde::Serialize;
use serde_json::Value;

use crate::area::Area;
use crate::managed::view::View;
use crate::place::{Place, Registry, RegistryPlace};
use crate::response::head::{Collection, Head, json};
use crate::response::message::{self, Problem};

impl Area for RegistryPlace {
    fn read(&self, _view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => {
                let members = Registry::ALL.map(Self::File);
                json(&Collection::new(Self::Collection, "MessageRegistryFile", "Registries", members))
            }
            Self::File(registry) => json(&MessageRegistryFile::new(*registry)),
            Self::Messages => messages::registry(),
            Self::Privileges => privileges::registry(),
        })
    }
}

/// `MessageRegistryFile`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct MessageRegistryFile {
    #[serde(flatten)]
    head: Head,
    registry: &'static str,
    languages: [&'static str; 1],
    location: [Location; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Location {
    language: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<Place>,
    #[serde(skip_serializing_if = "Option::is_none")]
    publication_uri: Option<String>,
}

impl MessageRegistryFile {
    fn new(registry: Registry) -> Self {
        // The name and version, as messages begin with it, and where it is if it is here.
        let (version, uri) = match registry {
            Registry::Base => (message::BASE, None),
            Registry::Ebof => (message::OWN, Some(RegistryPlace::Messages.into())),
            Registry::Privileges => ("EbofPrivileges.1.0", Some(RegistryPlace::Privileges.into())),
        };
        let published = format!("https://redfish.dmtf.org/registries/{version}.0.json");
        let publication_uri = uri.is_none().then_some(published);
        Self {
            head: Head::new(
                RegistryPlace::File(registry),
                "#MessageRegistryFile.v1_1_5.MessageRegistryFile",
                registry.id(),
                "Where a registry is",
            ),
            registry: version,
            languages: ["en"],
            location: [Location { language: "en", uri, publication_uri }],
        }
    }
}
