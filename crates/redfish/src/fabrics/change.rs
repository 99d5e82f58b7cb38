//! What is at a port: functions are given to it, moved to it and taken from it by one transaction;
//! the subsystems of drives and plain subsystems by a changed configuration.

use std::collections::BTreeSet;

use ebof_manage::enclosure::{Change, FunctionObject};
use serde_json::Value;

use super::zone::ZonePort;
use crate::area::Area as _;
use crate::area::demand::Demand;
use crate::managed::site::{AnyController, Site};
use crate::managed::view::View;
use crate::place::{FabricKind, FabricPlace, Place};
use crate::request::input::Input;
use crate::response::etag;
use crate::response::message::{Message, Problem};

/// The endpoints that a zone is to have.
pub(super) fn set_endpoints(
    zone: &ZonePort<'_>,
    mut input: Input,
    current: &Value,
    view: &View<'_>,
) -> Result<Demand, Problem> {
    let here = zone.sites(view);
    let places: Vec<Place> =
        here.iter().map(|site| FabricPlace::Endpoint(zone.kind, site.endpoint_id()).into()).collect();
    let wanted = input.object("Links", |links| {
        let wanted = links.changed_links("Endpoints", &places)?;
        let mut sites = Vec::new();
        for (at, place) in wanted.iter().enumerate() {
            match target(view, zone.kind, place) {
                Some(site) => sites.push(site),
                None => links.mistake(&format!("Endpoints/{at}"), not_a_target(zone.kind, place)),
            }
        }
        Some(sites)
    });
    input.finish(Some(current))?;
    let Some(wanted) = wanted.flatten() else { return Err(Problem::bad_request(Message::no_operation())) };
    let is_in = |site: &Site<'_>, all: &[Site<'_>]| all.iter().any(|one| one.endpoint_id() == site.endpoint_id());
    let mut added: Vec<Site<'_>> = Vec::new();
    for site in wanted.iter().filter(|site| !is_in(site, &here)) {
        if !is_in(site, &added) {
            added.push(*site);
        }
    }
    let removed: Vec<Site<'_>> = here.iter().filter(|site| !is_in(site, &wanted)).copied().collect();
    changes(zone, &added, &removed, view)
}

/// `Zone.AddEndpoint` and `Zone.RemoveEndpoint`, with the ETags that both had when they were read.
pub(super) fn add_or_remove_endpoint(
    zone: &ZonePort<'_>,
    add: bool,
    mut input: Input,
    view: &View<'_>,
) -> Result<Demand, Problem> {
    let action = if add { "Zone.AddEndpoint" } else { "Zone.RemoveEndpoint" };
    let place = input.link("Endpoint");
    let place = input.parameter(action, "Endpoint", place);
    let tags = [("ZoneETag", Some(Place::from(zone.place()))), ("EndpointETag", place.clone())];
    let mut is_outdated = false;
    for (name, tagged) in tags {
        let Some(expected) = input.text(name) else { continue };
        let resource = match tagged {
            Some(Place::Fabrics(place)) => place.read(view).ok(),
            _ => None,
        };
        is_outdated |= resource.is_none_or(|resource| !etag::matches(&expected, &etag::compute(&resource)));
    }
    let site = place.as_ref().and_then(|place| target(view, zone.kind, place));
    if let (Some(place), None) = (&place, &site) {
        input.mistake("Endpoint", not_a_target(zone.kind, place));
    }
    input.finish(None)?;
    if is_outdated {
        return Err(Problem::new(http::StatusCode::PRECONDITION_FAILED, Message::precondition_failed()));
    }
    let site: Vec<Site<'_>> = site.into_iter().filter(|site| site.is_at(&zone.port.name) != add).collect();
    if add { changes(zone, &site, &[], view) } else { changes(zone, &[], &site, view) }
}

/// The target that an endpoint of this fabric is.
fn target<'v>(view: &'v View<'_>, kind: FabricKind, place: &Place) -> Option<Site<'v>> {
    match place {
        Place::Fabrics(FabricPlace::Endpoint(own, id)) if *own == kind => Site::find(view, id),
        _ => None,
    }
}

fn not_a_target(kind: FabricKind, place: &Place) -> Message {
    let endpoints = Place::from(FabricPlace::Endpoints(kind));
    Message::not_this_kind(place, &format!("an endpoint of {endpoints} whose entity is a target"))
}

fn function<'v>(site: &Site<'v>) -> Option<&'v FunctionObject> {
    match site.controller {
        AnyController::Function(_, function) => Some(function),
        _ => None,
    }
}

/// What gives `added` to a port and takes `removed` from it.
fn changes(zone: &ZonePort<'_>, added: &[Site<'_>], removed: &[Site<'_>], view: &View<'_>) -> Result<Demand, Problem> {
    let port = &zone.port.name;
    let taken = removed.iter().filter_map(function).map(|one| {
        let (function, mut left) = (one.name.clone(), one.ports.clone());
        left.remove(port);
        if left.is_empty() { Change::Assign { function, ports: left } } else { Change::Move { function, to: left } }
    });
    // Removals come first: a direct port has room for one function.
    let mut all: Vec<Change> = taken.collect();
    all.extend(added.iter().filter_map(function).map(|one| {
        let (function, here) = (one.name.clone(), BTreeSet::from([port.clone()]));
        match one.ports.is_empty() {
            true => Change::Assign { function, ports: here },
            false => Change::Move { function, to: here },
        }
    }));
    let is_subsystem = |site: &&Site<'_>| function(site).is_none();
    let subsystems = added.iter().chain(removed).filter(is_subsystem).count();
    if subsystems == 0 {
        return Demand::changes(all);
    }
    if !all.is_empty() {
        let why = "functions and subsystems of drives cannot change their ports in one request";
        let message =
            Message::property_error("Endpoints", why, "Send two requests, the endpoints ending in -pf by themselves");
        return Err(Problem::bad_request(message.about("/Links/Endpoints")));
    }
    let mut config = view.config().clone();
    for subsystem in &mut config.subsystems {
        let is_it = |site: &&Site<'_>| site.nqn() == subsystem.nqn.as_str();
        if removed.iter().any(|site| is_it(&site)) {
            subsystem.ports.retain(|own| own != port);
        }
        if added.iter().any(|site| is_it(&site)) {
            subsystem.ports.push(port.clone());
        }
    }
    Ok(Demand::configuration(config, None))
}
