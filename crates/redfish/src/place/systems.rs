//! Addresses of the machine as a system.

use super::Address;

/// Addresses below `/redfish/v1/Systems`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SystemPlace {
    /// All systems.
    Collection,
    /// The one that serves the drives.
    System,
    /// Its network interfaces.
    Interfaces,
    /// One of them.
    Interface(String),
}

/// The identifier of the one system.
const EBOF: &str = "ebof";

impl Address for SystemPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        Some(match segments {
            ["Systems"] => Self::Collection,
            ["Systems", EBOF] => Self::System,
            ["Systems", EBOF, "EthernetInterfaces"] => Self::Interfaces,
            ["Systems", EBOF, "EthernetInterfaces", id] => Self::Interface((*id).to_owned()),
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("ComputerSystemCollection", "Systems"),
            ("ComputerSystem", "Systems/ebof"),
            ("EthernetInterfaceCollection", "Systems/ebof/EthernetInterfaces"),
            ("EthernetInterface", "Systems/ebof/EthernetInterfaces/{EthernetInterfaceId}"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        match self {
            Self::Collection => vec!["Systems"],
            Self::System => vec!["Systems", EBOF],
            Self::Interfaces => vec!["Systems", EBOF, "EthernetInterfaces"],
            Self::Interface(id) => vec!["Systems", EBOF, "EthernetInterfaces", id],
        }
    }
}
