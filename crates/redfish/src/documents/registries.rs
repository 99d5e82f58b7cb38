//! Registries of messages and privileges: `/redfish/v1/Registries`.

mod messages;
mod privileges;

use serde::Serialize;
use serde_json::Value;

use crate::area::Area;
use crate::managed::view::View;
use crate::place::{Place, Registry, RegistryPlace};
use crate::response::head::{Collection, Head, json};
use crate::response::message::Problem;

impl Registry {
    /// The name and version, as messages begin with it.
    const fn version(self) -> &'static str {
        match self {
            Self::Base => crate::response::message::BASE,
            Self::Ebof => crate::response::message::OWN,
            Self::Privileges => "EbofPrivileges.1.0",
        }
    }
}

impl Area for RegistryPlace {
    fn read(&self, _view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => {
                let members = Registry::ALL.map(Self::File);
                json(&Collection::new(Self::Collection, "MessageRegistryFile", "Registries", members))
            }
            Self::File(registry) => json(&MessageRegistryFile::new(*registry)),
            Self::Document(Registry::Ebof) => messages::registry(),
            Self::Document(Registry::Privileges) => privileges::registry(),
            Self::Document(_) => return Err(self.missing()),
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
        let uri = registry.file().map(|_| RegistryPlace::Document(registry).into());
        let published = format!("https://redfish.dmtf.org/registries/{}.0.json", registry.version());
        let publication_uri = uri.is_none().then_some(published);
        Self {
            head: Head::new(
                RegistryPlace::File(registry),
                "#MessageRegistryFile.v1_1_5.MessageRegistryFile",
                registry.id(),
                "Where a registry is",
            ),
            registry: registry.version(),
            languages: ["en"],
            location: [Location { language: "en", uri, publication_uri }],
        }
    }
}
