//! Addresses at the root: versions, the service root, and the OData documents.

use ebof_access::Privilege;
use http::Method;

use super::{Address, READ};

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
    /// `/redfish/v1/openapi.yaml`.
    OpenApi,
}

impl Address for RootPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        match segments {
            ["odata"] => Some(Self::Odata),
            ["$metadata"] => Some(Self::Metadata),
            ["openapi.yaml"] => Some(Self::OpenApi),
            _ => None,
        }
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[("ServiceRoot", ""), ("", "odata"), ("", "$metadata"), ("", "openapi.yaml")]
    }

    fn segments(&self) -> Vec<&str> {
        match self {
            Self::Versions | Self::Service => vec![],
            Self::Odata => vec!["odata"],
            Self::Metadata => vec!["$metadata"],
            Self::OpenApi => vec!["openapi.yaml"],
        }
    }

    fn methods(&self) -> &'static [Method] {
        READ
    }

    fn privilege(&self, _method: &Method) -> Option<Privilege> {
        None
    }
}
