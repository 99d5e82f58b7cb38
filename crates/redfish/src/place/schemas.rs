//! Addresses of schemas.

use ebof_access::Privilege;
use http::Method;

use super::Address;
use crate::place::kinds::{OWN, unversioned};

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

impl Address for SchemaPlace {
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
}

impl SchemaPlace {
    /// Where the schema of a type is: of `Drive.v1_22_0`, of `EbofTask.v1_0_0`.
    pub(crate) fn of(kind: &str) -> Self {
        let name = unversioned(kind);
        let own = OWN.iter().find(|(file, _)| file.strip_suffix("_v1.xml") == Some(name));
        own.map_or_else(|| Self::File(kind.to_owned()), |(file, _)| Self::Own(file))
    }
}
