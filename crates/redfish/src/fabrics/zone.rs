//! `Zone`: a port, with what it shows to hosts.

use ebof_manage::enclosure::PortObject;
use serde::Serialize;

use crate::managed::site::Site;
use crate::managed::view::View;
use crate::place::{FabricKind, FabricPlace};
use crate::response::head::{Head, Link, ResourceAction, Status, links};

/// A port that functions can be given to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZonePort<'v> {
    /// The zone's identifier, which is the port's.
    pub(super) id: &'v str,
    /// The fabric.
    pub(super) kind: FabricKind,
    pub(super) port: &'v PortObject,
}

impl<'v> ZonePort<'v> {
    /// All of a fabric.
    pub(super) fn all(view: &'v View<'_>, kind: FabricKind) -> impl Iterator<Item = Self> {
        let ports =
            view.ports().filter(move |(_, port)| FabricKind::of_port(port.kind) == kind && !port.discovery_only);
        ports.map(move |(id, port)| Self { id, kind, port })
    }

    /// The one of an identifier.
    pub(super) fn find(view: &'v View<'_>, kind: FabricKind, id: &str) -> Option<Self> {
        Self::all(view, kind).find(|zone| zone.id == id)
    }

    /// What is at the port.
    pub(super) fn sites(&self, view: &'v View<'_>) -> Vec<Site<'v>> {
        Site::all(view).filter(|site| site.is_at(&self.port.name)).collect()
    }

    /// Its address.
    pub(super) fn place(&self) -> FabricPlace {
        FabricPlace::Zone(self.kind, self.id.to_owned())
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Zone {
    #[serde(flatten)]
    head: Head,
    zone_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_accessibility: Option<&'static str>,
    status: Status,
    links: ZoneLinks,
    actions: Actions,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ZoneLinks {
    endpoints: Vec<Link>,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#Zone.AddEndpoint")]
    add: ResourceAction,
    #[serde(rename = "#Zone.RemoveEndpoint")]
    remove: ResourceAction,
}

impl Zone {
    pub(super) fn new(view: &View<'_>, zone: &ZonePort<'_>) -> Self {
        let (kind, id) = (zone.kind, || zone.id.to_owned());
        // Whoever has the address and the permission of a connection.
        let accessibility = (kind == FabricKind::Nvmeof).then_some("GloballyAccessible");
        let endpoint = |site: Site<'_>| FabricPlace::Endpoint(kind, site.endpoint_id());
        Self {
            head: Head::new(
                zone.place(),
                "#Zone.v1_6_3.Zone",
                zone.port.name.clone(),
                "A port, with the subsystems and functions at it",
            ),
            zone_type: "ZoneOfEndpoints",
            external_accessibility: accessibility,
            status: Status::OK,
            links: ZoneLinks { endpoints: links(zone.sites(view).into_iter().map(endpoint)) },
            actions: Actions {
                add: ResourceAction::new(FabricPlace::AddEndpoint(kind, id())),
                remove: ResourceAction::new(FabricPlace::RemoveEndpoint(kind, id())),
            },
        }
    }
}
