//! `Fabric`.

use serde::Serialize;

use crate::place::{FabricKind, FabricPlace, ManagerPlace};
use crate::response::head::{Head, Link, Status, link, links};

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Fabric {
    #[serde(flatten)]
    head: Head,
    fabric_type: &'static str,
    status: Status,
    endpoints: Link,
    connections: Link,
    zones: Link,
    links: FabricLinks,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FabricLinks {
    managed_by: Vec<Link>,
}

impl Fabric {
    pub(super) fn new(kind: FabricKind) -> Self {
        let (name, description) = match kind {
            FabricKind::Nvmeof => ("NVMe over Fabrics", "Subsystems and functions at ports that a network reaches"),
            FabricKind::Pcie => ("PCI Express", "Functions at direct ports, each for a virtual machine"),
        };
        Self {
            head: Head::new(FabricPlace::Fabric(kind), "#Fabric.v1_4_0.Fabric", name, description),
            fabric_type: kind.protocol(),
            status: Status::OK,
            endpoints: link(FabricPlace::Endpoints(kind)),
            connections: link(FabricPlace::Connections(kind)),
            zones: link(FabricPlace::Zones(kind)),
            links: FabricLinks { managed_by: links([ManagerPlace::Manager]) },
        }
    }
}
