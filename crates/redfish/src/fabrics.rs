//! Fabrics: `/redfish/v1/Fabrics/NVMeoF` for hosts on a network, `/redfish/v1/Fabrics/PCIe` for
//! virtual machines at direct ports. Endpoints are subsystems, functions and hosts; zones are
//! ports; connections are permissions.

mod change;
mod connection;
mod endpoint;
mod fabric;
mod hosts;
mod site;
mod zone;

use ebof_manage::enclosure::PortKind;
use http::Method;
use serde_json::Value;

use crate::area::{ACTION, Area, Change, DELETE, Done, GET_POST, PATCH, PATCH_DELETE, READ};
use crate::head::{Collection, json};
use crate::input::Input;
use crate::message::Problem;
use crate::names::is_target;
use crate::place::Place;
use crate::view::View;
use crate::wanted::{Demand, carry_out};
use endpoint::Party;
pub(crate) use site::Site;
use zone::ZonePort;

/// One of the two fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// NVMe over Fabrics.
    Nvmeof,
    /// PCI Express, for virtual machines.
    Pcie,
}

/// Addresses below `/redfish/v1/Fabrics`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FabricPlace {
    /// Both fabrics.
    Collection,
    /// A fabric.
    Fabric(Kind),
    /// Its endpoints.
    Endpoints(Kind),
    /// An endpoint.
    Endpoint(Kind, String),
    /// Its connections.
    Connections(Kind),
    /// A connection.
    Connection(Kind, String),
    /// The action that gives a volume to the host of a connection.
    AddVolume(Kind, String),
    /// The action that takes it away.
    RemoveVolume(Kind, String),
    /// Its zones.
    Zones(Kind),
    /// A zone.
    Zone(Kind, String),
    /// The action that gives a function to the port of a zone.
    AddEndpoint(Kind, String),
    /// The action that takes it away.
    RemoveEndpoint(Kind, String),
}

impl Kind {
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

impl Area for FabricPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        let [collection, below @ ..] = segments else { return None };
        if *collection != "Fabrics" {
            return None;
        }
        let [fabric, below @ ..] = below else { return Some(Self::Collection) };
        let kind = Kind::ALL.into_iter().find(|kind| kind.id() == *fabric)?;
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
        let (kind, below): (Kind, &[&str]) = match self {
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
            Self::Endpoints(Kind::Nvmeof) | Self::Connections(Kind::Nvmeof) => GET_POST,
            Self::Endpoint(Kind::Nvmeof, id) if !is_target(id) => DELETE,
            Self::Connection(Kind::Nvmeof, _) => PATCH_DELETE,
            Self::Zone(..) => PATCH,
            Self::AddVolume(..) | Self::RemoveVolume(..) | Self::AddEndpoint(..) | Self::RemoveEndpoint(..) => ACTION,
            _ => READ,
        }
    }

    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => {
                json(&Collection::new(Self::Collection, "Fabric", "Fabrics", Kind::ALL.map(Self::Fabric)))
            }
            Self::Fabric(kind) => json(&fabric::Fabric::new(*kind)),
            Self::Endpoints(kind) => {
                let ids = Party::all(view, *kind).into_iter().map(|party| Self::Endpoint(*kind, party.id(view)));
                json(&Collection::new(self.clone(), "Endpoint", "Endpoints", ids))
            }
            Self::Endpoint(kind, id) => {
                let party = Party::find(view, *kind, id).ok_or_else(|| self.missing())?;
                json(&endpoint::Endpoint::new(view, *kind, id, &party))
            }
            Self::Connections(kind) => {
                let ids = connection::ids(view, *kind).into_iter().map(|id| Self::Connection(*kind, id));
                json(&Collection::new(self.clone(), "Connection", "Connections", ids))
            }
            Self::Connection(kind, id) => {
                json(&connection::Connection::new(view, *kind, id).ok_or_else(|| self.missing())?)
            }
            Self::Zones(kind) => {
                let ids = ZonePort::all(view, *kind).map(|zone| Self::Zone(*kind, zone.id.to_owned()));
                json(&Collection::new(self.clone(), "Zone", "Zones", ids))
            }
            Self::Zone(kind, id) => json(&zone::Zone::new(view, &self.zone(view, *kind, id)?)),
            _ => return Err(self.missing()),
        })
    }

    fn translate(&self, method: &Method, input: Input, view: &View<'_>) -> Result<Demand, Problem> {
        match self {
            Self::Endpoints(_) => hosts::add(input, view),
            Self::Endpoint(kind, id) => {
                let party = Party::find(view, *kind, id).ok_or_else(|| self.missing())?;
                hosts::remove(&party, input, view)
            }
            Self::Connections(_) => connection::change::allow(input, view),
            Self::Connection(kind, id) => {
                let permission = connection::find(view, *kind, id).ok_or_else(|| self.missing())?;
                match *method == Method::DELETE {
                    true => connection::change::forbid(&permission, input, view),
                    false => connection::change::alter(&permission, input, &self.read(view)?, view),
                }
            }
            Self::AddVolume(kind, id) | Self::RemoveVolume(kind, id) => {
                let permission = connection::find(view, *kind, id).ok_or_else(|| self.missing())?;
                connection::change::volume(&permission, matches!(self, Self::AddVolume(..)), input)
            }
            Self::Zone(kind, id) => change::alter(&self.zone(view, *kind, id)?, input, &self.read(view)?, view),
            Self::AddEndpoint(kind, id) | Self::RemoveEndpoint(kind, id) => {
                let zone = self.zone(view, *kind, id)?;
                change::one(&zone, matches!(self, Self::AddEndpoint(..)), input, view)
            }
            _ => Err(self.missing()),
        }
    }

    fn change(&self, method: &Method, input: Input, request: &Change<'_>) -> Result<Done, Problem> {
        carry_out(self.translate(method, input, request.view)?, request)
    }
}

impl FabricPlace {
    fn missing(&self) -> Problem {
        Problem::not_found(&Place::from(self.clone()))
    }

    fn zone<'v>(&self, view: &'v View<'_>, kind: Kind, id: &str) -> Result<ZonePort<'v>, Problem> {
        ZonePort::find(view, kind, id).ok_or_else(|| self.missing())
    }
}
