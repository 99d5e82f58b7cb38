//! Addresses of registries of messages and privileges.

use ebof_access::Privilege;
use http::Method;

use super::Address;

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

impl Address for RegistryPlace {
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
}

impl Registry {
    /// All registries.
    pub(crate) const ALL: [Self; 3] = [Self::Base, Self::Ebof, Self::Privileges];

    /// Its identifier.
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Base => "Base",
            Self::Ebof => "Ebof",
            Self::Privileges => "EbofPrivileges",
        }
    }

    /// Its file, if it is here.
    pub(crate) const fn file(self) -> Option<&'static str> {
        match self {
            Self::Base => None,
            Self::Ebof => Some("Ebof.1.0.0.json"),
            Self::Privileges => Some("EbofPrivileges.1.0.0.json"),
        }
    }
}
