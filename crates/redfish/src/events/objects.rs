//! The resources of ebof's objects, by the names that events and metrics have for these: `d3`,
//! `d3/vf2`, `d3/ns4`, `fabric0`, an NQN.
//!
//! What is not there any more has the address that it had, as far as its name tells: a subscriber
//! learns from it what was removed.

use ebof_manage::enclosure::PortKind;

use crate::managed::names::host_endpoint_id;
use crate::managed::site::nsid;
use crate::managed::view::View;
use crate::place::id::slug;
use crate::place::{ChassisPlace, FabricKind, FabricPlace, PRIMARY, Place, StoragePlace, is_function};

/// A drive.
pub(crate) fn drive(name: &str, view: &View<'_>) -> ChassisPlace {
    ChassisPlace::Drive(storage_id(name, view))
}

/// A subsystem, by its NQN or the name of its drive.
pub(crate) fn subsystem(name: &str, view: &View<'_>) -> StoragePlace {
    StoragePlace::Subsystem(storage_id(name, view))
}

/// A part of a subsystem: a function (`d3/vf2`), a namespace (`d3/ns4`), all namespaces (`d3/ns*`).
/// `None` if the name is that of something else.
pub(crate) fn part(name: &str, view: &View<'_>) -> Option<StoragePlace> {
    let (storage, part) = name.rsplit_once('/')?;
    let id = || storage_id(storage, view);
    match part {
        "ns*" => Some(StoragePlace::Volumes(id())),
        _ if nsid(part).is_some() => Some(StoragePlace::Volume(id(), part.to_owned())),
        _ if part == PRIMARY || is_function(part) => Some(StoragePlace::Controller(id(), part.to_owned())),
        _ => None,
    }
}

/// A port: a direct one is only a zone.
pub(crate) fn port(name: &str, view: &View<'_>) -> Place {
    let id = view.port_id(name).map_or_else(|| slug(name), str::to_owned);
    match view.port(&id).map(|port| port.kind) {
        Some(PortKind::Direct) => FabricPlace::Zone(FabricKind::Pcie, id).into(),
        _ => ChassisPlace::Port(id).into(),
    }
}

/// A host, by its NQN.
pub(crate) fn host(nqn: &str, view: &View<'_>) -> FabricPlace {
    let id = view.names().host_endpoint(nqn).map_or_else(|| host_endpoint_id(nqn), str::to_owned);
    FabricPlace::Endpoint(FabricKind::Nvmeof, id)
}

/// The identifier of a drive or subsystem.
fn storage_id(name: &str, view: &View<'_>) -> String {
    let known = view.storage_id(name);
    let by_nqn = || view.storages().find(|(_, storage)| storage.nqn() == name).map(|(id, _)| id);
    known.or_else(by_nqn).map_or_else(|| slug(name), str::to_owned)
}
