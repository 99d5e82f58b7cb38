//! Addresses of fabrics.

use ebof_manage::enclosure::PortKind;
use http::Method;

use super::{ACTION, Address, DELETE, GET_POST, PATCH, PATCH_DELETE, PLAIN, PRIMARY, READ};

/// Addresses below `/redfish/v1/Fabrics`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FabricPlace {
    /// Both fabrics.
    Collection,
    /// A fabric.
    Fabric(FabricKind),
    /// Its endpoints.
    Endpoints(FabricKind),
    /// An endpoint.
    Endpoint(FabricKind, String),
    /// Its connections.
    Connections(FabricKind),
    /// A connection.
    Connection(FabricKind, String),
    /// The action that gives a volume to the host of a connection.
    AddVolume(FabricKind, String),
    /// The action that takes it away.
    RemoveVolume(FabricKind, String),
    /// Its zones.
    Zones(FabricKind),
    /// A zone.
    Zone(FabricKind, String),
    /// The action that gives a function to the port of a zone.
    AddEndpoint(FabricKind, String),
    /// The action that takes it away.
    RemoveEndpoint(FabricKind, String),
}

/// One of the two fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FabricKind {
    /// NVMe over Fabrics.
    Nvmeof,
    /// PCI Express, for virtual machines.
    Pcie,
}

impl FabricKind {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Nvmeof, Self::Pcie];

    /// The fabric that ports of a kind are of.
    pub(crate) const fn of(port: PortKind) -> Self {
        match port {
            PortKind::Fabric => Self::Nvmeof,
            PortKind::Direct => Self::Pcie,
        }
    }

    const fn id(self) -> &'static str {
        match self {
            Self::Nvmeof => "NVMeoF",
            Self::Pcie => "PCIe",
        }
    }

    /// `Protocol.Protocol`.
    pub(crate) const fn protocol(self) -> &'static str {
        match self {
            Self::Nvmeof => "NVMeOverFabrics",
            Self::Pcie => "PCIe",
        }
    }
}

impl Address for FabricPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        let [collection, below @ ..] = segments else { return None };
        if *collection != "Fabrics" {
            return None;
        }
        let [fabric, below @ ..] = below else { return Some(Self::Collection) };
        let kind = FabricKind::ALL.into_iter().find(|kind| kind.id() == *fabric)?;
        let name = |name: &&str| (*name).to_owned();
        Some(match below {
            [] => Self::Fabric(kind),
            ["Endpoints"] => Self::Endpoints(kind),
            ["Endpoints", id] => Self::Endpoint(kind, name(id)),
            ["Connections"] => Self::Connections(kind),
            ["Connections", id] => Self::Connection(kind, name(id)),
            ["Connections", id, "Actions", "Connection.AddVolumeInfo"] => Self::AddVolume(kind, name(id)),
            ["Connections", id, "Actions", "Connection.RemoveVolumeInfo"] => Self::RemoveVolume(kind, name(id)),
            ["Zones"] => Self::Zones(kind),
            ["Zones", id] => Self::Zone(kind, name(id)),
            ["Zones", id, "Actions", "Zone.AddEndpoint"] => Self::AddEndpoint(kind, name(id)),
            ["Zones", id, "Actions", "Zone.RemoveEndpoint"] => Self::RemoveEndpoint(kind, name(id)),
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("FabricCollection", "Fabrics"),
            ("Fabric", "Fabrics/NVMeoF"),
            ("EndpointCollection", "Fabrics/NVMeoF/Endpoints"),
            ("Endpoint", "Fabrics/NVMeoF/Endpoints/{EndpointId}"),
            ("ConnectionCollection", "Fabrics/NVMeoF/Connections"),
            ("Connection", "Fabrics/NVMeoF/Connections/{ConnectionId}"),
            ("ZoneCollection", "Fabrics/NVMeoF/Zones"),
            ("Zone", "Fabrics/NVMeoF/Zones/{ZoneId}"),
            ("", "Fabrics/NVMeoF/Zones/{ZoneId}/Actions/Zone.AddEndpoint"),
            ("", "Fabrics/NVMeoF/Zones/{ZoneId}/Actions/Zone.RemoveEndpoint"),
            ("", "Fabrics/NVMeoF/Connections/{ConnectionId}/Actions/Connection.AddVolumeInfo"),
            ("", "Fabrics/NVMeoF/Connections/{ConnectionId}/Actions/Connection.RemoveVolumeInfo"),
            ("Fabric", "Fabrics/PCIe"),
            ("EndpointCollection", "Fabrics/PCIe/Endpoints"),
            ("Endpoint", "Fabrics/PCIe/Endpoints/{EndpointId}"),
            ("ConnectionCollection", "Fabrics/PCIe/Connections"),
            ("Connection", "Fabrics/PCIe/Connections/{ConnectionId}"),
            ("ZoneCollection", "Fabrics/PCIe/Zones"),
            ("Zone", "Fabrics/PCIe/Zones/{ZoneId}"),
            ("", "Fabrics/PCIe/Zones/{ZoneId}/Actions/Zone.AddEndpoint"),
            ("", "Fabrics/PCIe/Zones/{ZoneId}/Actions/Zone.RemoveEndpoint"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        let (kind, below): (FabricKind, &[&str]) = match self {
            Self::Collection => return vec!["Fabrics"],
            Self::Fabric(kind) => (*kind, &[]),
            Self::Endpoints(kind) => (*kind, &["Endpoints"]),
            Self::Endpoint(kind, id) => (*kind, &["Endpoints", id]),
            Self::Connections(kind) => (*kind, &["Connections"]),
            Self::Connection(kind, id) => (*kind, &["Connections", id]),
            Self::AddVolume(kind, id) => (*kind, &["Connections", id, "Actions", "Connection.AddVolumeInfo"]),
            Self::RemoveVolume(kind, id) => (*kind, &["Connections", id, "Actions", "Connection.RemoveVolumeInfo"]),
            Self::Zones(kind) => (*kind, &["Zones"]),
            Self::Zone(kind, id) => (*kind, &["Zones", id]),
            Self::AddEndpoint(kind, id) => (*kind, &["Zones", id, "Actions", "Zone.AddEndpoint"]),
            Self::RemoveEndpoint(kind, id) => (*kind, &["Zones", id, "Actions", "Zone.RemoveEndpoint"]),
        };
        [&["Fabrics", kind.id()], below].concat()
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::Endpoints(FabricKind::Nvmeof) | Self::Connections(FabricKind::Nvmeof) => GET_POST,
            Self::Endpoint(FabricKind::Nvmeof, id) if !is_target(id) => DELETE,
            Self::Connection(FabricKind::Nvmeof, _) => PATCH_DELETE,
            Self::Zone(..) => PATCH,
            Self::AddVolume(..) | Self::RemoveVolume(..) | Self::AddEndpoint(..) | Self::RemoveEndpoint(..) => ACTION,
            _ => READ,
        }
    }
}

/// What identifiers of hosts' endpoints begin with: no drive and no subsystem is called so.
pub(crate) const HOST_PREFIX: &str = "host~";

/// Whether an identifier of an endpoint is that of a target; those of hosts are none.
fn is_target(id: &str) -> bool {
    let last = id.rsplit_once('-').filter(|_| !id.starts_with(HOST_PREFIX)).map(|(_, last)| last);
    last.is_some_and(|last| last == PRIMARY || last == PLAIN || is_function(last))
}

/// Whether a text is `vf` and a number.
pub(crate) fn is_function(text: &str) -> bool {
    text.strip_prefix("vf").is_some_and(|digits| digits.parse::<u16>().is_ok())
}
