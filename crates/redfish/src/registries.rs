//! Registries of messages and privileges: `/redfish/v1/Registries`.

mod messages;
mod privileges;

use ebof_access::Privilege;
use http::Method;
use serde::Serialize;
use serde_json::Value;

use crate::area::Area;
use crate::head::{Collection, Head, json};
use crate::message::Problem;
use crate::place::Place;
use crate::view::View;
pub(crate) use messages::is_own;

/// Addresses below `/redfish/v1/Registries`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RegistryPlace {
    /// All registries.
    Collection,
    /// Where a registry is.
    File(Registry),
    /// The registry itself, if it is ebof's.
    Document(Registry),
}

/// A registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Registry {
    /// DMTF's messages.
    Base,
    /// ebof's messages.
    Ebof,
    /// Who may do what.
    Privileges,
}

impl Registry {
    const ALL: [Self; 3] = [Self::Base, Self::Ebof, Self::Privileges];

    const fn id(self) -> &'static str {
        match self {
            Self::Base => "Base",
            Self::Ebof => "Ebof",
            Self::Privileges => "EbofPrivileges",
        }
    }

    /// The name and version, as messages begin with it.
    const fn version(self) -> &'static str {
        match self {
            Self::Base => crate::message::BASE,
            Self::Ebof => crate::message::OWN,
            Self::Privileges => "EbofPrivileges.1.0",
        }
    }

    /// Its file, if it is here.
    const fn file(self) -> Option<&'static str> {
        match self {
            Self::Base => None,
            Self::Ebof => Some("Ebof.1.0.0.json"),
            Self::Privileges => Some("EbofPrivileges.1.0.0.json"),
        }
    }
}

impl Area for RegistryPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        let ["Registries", rest @ ..] = segments else { return None };
        let named = |id: &str| Registry::ALL.into_iter().find(|registry| registry.id() == id);
        match rest {
            [] => Some(Self::Collection),
            [id] => named(id).map(Self::File),
            [id, file] => named(id).filter(|registry| registry.file() == Some(file)).map(Self::Document),
            _ => None,
        }
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("MessageRegistryFileCollection", "Registries"),
            ("MessageRegistryFile", "Registries/Base"),
            ("MessageRegistryFile", "Registries/Ebof"),
            ("MessageRegistryFile", "Registries/EbofPrivileges"),
            ("MessageRegistry", "Registries/Ebof/Ebof.1.0.0.json"),
            ("PrivilegeRegistry", "Registries/EbofPrivileges/EbofPrivileges.1.0.0.json"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        match self {
            Self::Collection => vec!["Registries"],
            Self::File(registry) => vec!["Registries", registry.id()],
            Self::Document(registry) => vec!["Registries", registry.id(), registry.file().unwrap_or_default()],
        }
    }

    fn privilege(&self, _method: &Method) -> Option<Privilege> {
        Some(Privilege::Login)
    }

    fn read(&self, _view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => {
                let members = Registry::ALL.map(Self::File);
                json(&Collection::new(Self::Collection, "MessageRegistryFile", "Registries", members))
            }
            Self::File(registry) => json(&MessageRegistryFile::new(*registry)),
            Self::Document(Registry::Ebof) => messages::registry(),
            Self::Document(Registry::Privileges) => privileges::registry(),
            Self::Document(_) => return Err(Problem::not_found(&Place::from(self.clone()))),
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
