//! Fabrics: `/redfish/v1/Fabrics/NVMeoF` for hosts on a network, `/redfish/v1/Fabrics/PCIe` for
//! virtual machines at direct ports. Endpoints are subsystems, functions and hosts; zones are
//! ports; connections are permissions.

mod change;
mod connection;
mod endpoint;
mod fabric;
mod hosts;
mod zone;

use http::Method;
use serde_json::Value;

use crate::area::carry_out::carry_out;
use crate::area::demand::{Demand, Preview};
use crate::area::{Area, ChangeRequest, Done};
use crate::managed::view::View;
use crate::place::{FabricKind, FabricPlace};
use crate::request::input::Input;
use crate::response::head::{Collection, json};
use crate::response::message::Problem;
use endpoint::Party;
use zone::ZonePort;

impl Area for FabricPlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => {
                json(&Collection::new(Self::Collection, "Fabric", "Fabrics", FabricKind::ALL.map(Self::Fabric)))
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

    fn preview(&self, method: &Method, input: Input, view: &View<'_>) -> Result<Preview, Problem> {
        self.translate(method, input, view).map(Preview::Demand)
    }

    fn change(&self, method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        carry_out(self.translate(method, input, request.view)?, request)
    }
}

impl FabricPlace {
    /// What a request asks for.
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
                    false => connection::change::set_volumes(&permission, input, &self.read(view)?, view),
                }
            }
            Self::AddVolume(kind, id) | Self::RemoveVolume(kind, id) => {
                let permission = connection::find(view, *kind, id).ok_or_else(|| self.missing())?;
                connection::change::add_or_remove_volume(&permission, matches!(self, Self::AddVolume(..)), input)
            }
            Self::Zone(kind, id) => change::set_endpoints(&self.zone(view, *kind, id)?, input, &self.read(view)?, view),
            Self::AddEndpoint(kind, id) | Self::RemoveEndpoint(kind, id) => {
                let zone = self.zone(view, *kind, id)?;
                change::add_or_remove_endpoint(&zone, matches!(self, Self::AddEndpoint(..)), input, view)
            }
            _ => Err(self.missing()),
        }
    }

    fn zone<'v>(&self, view: &'v View<'_>, kind: FabricKind, id: &str) -> Result<ZonePort<'v>, Problem> {
        ZonePort::find(view, kind, id).ok_or_else(|| self.missing())
    }
}
