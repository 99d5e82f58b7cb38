//! Addresses of firmware.

use ebof_access::Privilege;
use http::Method;

use super::{ACTION, Address, READ};

/// Addresses below `/redfish/v1/UpdateService`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum UpdatePlace {
    /// The service.
    Service,
    /// Where images are sent.
    Upload,
    /// Has images of slots run.
    Activate,
    /// All images.
    Inventory,
    /// The program, or a slot of a drive: `d3-slot2`.
    Image(String),
}

impl Address for UpdatePlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        let ["UpdateService", rest @ ..] = segments else { return None };
        Some(match rest {
            [] => Self::Service,
            ["upload"] => Self::Upload,
            ["Actions", Self::ACTIVATE] => Self::Activate,
            ["FirmwareInventory"] => Self::Inventory,
            ["FirmwareInventory", id] => Self::Image((*id).to_owned()),
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("UpdateService", "UpdateService"),
            ("", "UpdateService/upload"),
            ("", "UpdateService/Actions/UpdateService.Activate"),
            ("SoftwareInventoryCollection", "UpdateService/FirmwareInventory"),
            ("SoftwareInventory", "UpdateService/FirmwareInventory/{SoftwareInventoryId}"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        let below: &[&str] = match self {
            Self::Service => &[],
            Self::Upload => &["upload"],
            Self::Activate => &["Actions", Self::ACTIVATE],
            Self::Inventory => &["FirmwareInventory"],
            Self::Image(id) => &["FirmwareInventory", id],
        };
        [&["UpdateService"], below].concat()
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::Upload | Self::Activate => ACTION,
            _ => READ,
        }
    }

    fn privilege(&self, method: &Method) -> Option<Privilege> {
        Some(if *method == Method::GET { Privilege::Login } else { Privilege::ConfigureComponents })
    }
}

impl UpdatePlace {
    /// The action that has images run.
    pub(crate) const ACTIVATE: &str = "UpdateService.Activate";
}
