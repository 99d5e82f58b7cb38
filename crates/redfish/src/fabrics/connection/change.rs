//! Changes of who may connect, by a changed configuration, and of which volumes a host has.

use ebof_manage::Config;
use ebof_manage::config::Subsystem;
use ebof_manage::enclosure::{Attachee, Change, NamespaceName};
use serde_json::Value;

use super::Found;
use crate::area::demand::{Creates, Demand};
use crate::fabrics::endpoint::Party;
use crate::fabrics::hosts::described;
use crate::managed::site::{Site, nsid};
use crate::managed::view::{Namespace, Storage, View};
use crate::place::{FabricKind, FabricPlace, Place, StoragePlace};
use crate::request::input::Input;
use crate::response::message::{Message, Problem};

/// A new connection: one host, or every one, and the endpoints of one subsystem.
pub(in crate::fabrics) fn allow(mut input: Input, view: &View<'_>) -> Result<Demand, Problem> {
    input.one_of("ConnectionType", &[("Storage", ())]);
    let (initiators, targets) = input
        .object("Links", |links| (links.links("InitiatorEndpoints"), links.links("TargetEndpoints")))
        .unwrap_or_default();
    let any = input.ebof(|own| own.flag("AnyHost")).flatten().unwrap_or_default();
    let host = match (any, initiators.as_deref()) {
        (true, None | Some([])) => None,
        (false, Some([one])) => host_of(&mut input, one, view),
        _ => {
            let why = "a connection has one initiator, or Oem.Ebof.AnyHost and none";
            input.mistake("Links/InitiatorEndpoints", Message::property_error("InitiatorEndpoints", why, ONE_HOST));
            None
        }
    };
    let nqn = storage_of(&mut input, targets.as_deref().unwrap_or_default(), view);
    input.finish(None)?;
    let nqn = nqn.unwrap_or_default();
    let mut config = view.config().clone();
    let is_new = match host {
        None => edit(&mut config, &nqn, |subsystem| !std::mem::replace(&mut subsystem.allow_any_host, true)),
        Some(host) => {
            let is_new = edit(&mut config, &nqn, |subsystem| {
                let is_new = !subsystem.allowed_hosts.iter().any(|one| one.as_str() == host);
                subsystem.allowed_hosts.extend(described(host).filter(|_| is_new).map(|host| host.nqn));
                is_new
            });
            if !config.hosts.iter().any(|one| one.nqn.as_str() == host) {
                config.hosts.extend(described(host));
            }
            is_new
        }
    };
    if !is_new {
        return Err(Problem::bad_request(Message::resource_exists("Connection", "Links", &nqn)));
    }
    Ok(Demand::configuration(config, Some(Creates::Permission { nqn, host: host.map(str::to_owned) })))
}

const ONE_HOST: &str = "Send one reference to an endpoint of a host";

/// Changes a subsystem of a configuration; `false` if there is none.
fn edit(config: &mut Config, nqn: &str, change: impl FnOnce(&mut Subsystem) -> bool) -> bool {
    config.subsystems.iter_mut().find(|subsystem| subsystem.nqn.as_str() == nqn).is_some_and(change)
}

/// The NQN of the host that an endpoint is.
fn host_of<'v>(input: &mut Input, place: &Place, view: &'v View<'_>) -> Option<&'v str> {
    let found = match place {
        Place::Fabrics(FabricPlace::Endpoint(FabricKind::Nvmeof, id)) => Party::find(view, FabricKind::Nvmeof, id),
        _ => None,
    };
    match found {
        Some(Party::Host(at)) => view.names().hosts.get(at).map(String::as_str),
        _ => {
            input.mistake("Links/InitiatorEndpoints/0", Message::not_this_kind(place, "an endpoint of a host"));
            None
        }
    }
}

/// The NQN of the one subsystem that endpoints are of.
fn storage_of(input: &mut Input, targets: &[Place], view: &View<'_>) -> Option<String> {
    let mut found: Option<&str> = None;
    for (at, place) in targets.iter().enumerate() {
        let site = match place {
            Place::Fabrics(FabricPlace::Endpoint(FabricKind::Nvmeof, id)) => Site::find(view, id),
            _ => None,
        };
        let accepted = "endpoints of targets, all of one subsystem";
        match site {
            Some(site) if found.is_none_or(|storage| storage == site.storage) => found = Some(site.storage),
            _ => input.mistake(&format!("Links/TargetEndpoints/{at}"), Message::not_this_kind(place, accepted)),
        }
    }
    let nqn = found.and_then(|id| view.storage(id)).map(|storage| storage.nqn().to_owned());
    if targets.is_empty() {
        return input.required("Links/TargetEndpoints", nqn);
    }
    nqn
}

/// A host, or every one, may not connect any more.
pub(in crate::fabrics) fn forbid(found: &Found<'_>, input: Input, view: &View<'_>) -> Result<Demand, Problem> {
    input.finish(None)?;
    let mut config = view.config().clone();
    let is_found = edit(&mut config, found.storage.nqn(), |subsystem| {
        match found.host {
            None => subsystem.allow_any_host = false,
            Some(host) => subsystem.allowed_hosts.retain(|one| one.as_str() != host),
        }
        true
    });
    assert!(is_found, "a permission is one of a subsystem of the configuration");
    Ok(Demand::configuration(config, None))
}

/// The volumes that a host is to reach. Those that it reaches by a function, or because every host
/// does, stay.
pub(in crate::fabrics) fn set_volumes(
    found: &Found<'_>,
    mut input: Input,
    current: &Value,
    view: &View<'_>,
) -> Result<Demand, Problem> {
    let volumes = input.objects("VolumeInfo", |info| {
        let volume = info.link("Volume");
        info.value("AccessState");
        info.value("AccessCapabilities");
        info.required("Volume", volume)
    });
    let Some(volumes) = volumes else {
        input.finish(Some(current))?;
        return Err(Problem::bad_request(Message::no_operation()));
    };
    let mut wanted = Vec::new();
    for (at, place) in volumes.iter().enumerate() {
        match place.as_ref().map(|place| (place, nsid_of(found, place))) {
            Some((_, Some(nsid))) => wanted.push(nsid),
            Some((place, None)) => {
                let message = Message::not_this_kind(place, "a volume of the connection's subsystem");
                input.mistake(&format!("VolumeInfo/{at}/Volume"), message);
            }
            None => {}
        }
    }
    let mut changes = Vec::new();
    for namespace in found.storage.namespaces(view) {
        let (is_wanted, is_given) = (wanted.contains(&namespace.nsid()), found.is_given(namespace));
        if is_wanted && !found.reaches(view, namespace) {
            changes.extend(attachment(found, namespace, true));
        } else if !is_wanted && is_given {
            changes.extend(attachment(found, namespace, false));
        } else if !is_wanted && found.reaches(view, namespace) {
            let why = format!("{} is reached by a function, or by every host", namespace.id());
            let message = Message::property_error("VolumeInfo", &why, "Detach it there, or send it, too");
            input.mistake("VolumeInfo", message);
        }
    }
    for nsid in wanted.iter().filter(|nsid| found.storage.namespaces(view).iter().all(|one| one.nsid() != **nsid)) {
        input.mistake("VolumeInfo", Message::resource_missing(&format!("ns{nsid}")));
    }
    input.finish(Some(current))?;
    Demand::changes(changes)
}

/// The NSID of a volume of the connection's subsystem.
fn nsid_of(found: &Found<'_>, place: &Place) -> Option<u32> {
    match place {
        Place::Storage(StoragePlace::Volume(storage, volume)) if storage == found.storage_id => nsid(volume),
        _ => None,
    }
}

/// What gives a namespace to the connection's host, or takes it away.
fn attachment(found: &Found<'_>, namespace: Namespace<'_>, attach: bool) -> Option<Change> {
    let Namespace::OfDrive(_, own) = namespace else { return None };
    change_of(found, own.name.clone(), attach)
}

fn change_of(found: &Found<'_>, namespace: NamespaceName, attach: bool) -> Option<Change> {
    let who: Attachee = found.key().parse().ok()?;
    Some(match attach {
        true => Change::AttachNamespace { namespace, to: who },
        false => Change::DetachNamespace { namespace, from: who },
    })
}

/// `Connection.AddVolumeInfo` and `RemoveVolumeInfo`.
pub(in crate::fabrics) fn add_or_remove_volume(
    found: &Found<'_>,
    add: bool,
    mut input: Input,
) -> Result<Demand, Problem> {
    let action = if add { "Connection.AddVolumeInfo" } else { "Connection.RemoveVolumeInfo" };
    let Storage::Drive(drive) = found.storage else {
        return Err(Problem::bad_request(Message::action_not_supported(action)));
    };
    let place = input.link("Volume");
    let place = input.parameter(action, "Volume", place);
    let nsid = place.as_ref().and_then(|place| nsid_of(found, place));
    if let (Some(place), None) = (&place, nsid) {
        input.mistake("Volume", Message::not_this_kind(place, "a volume of the connection's subsystem"));
    }
    input.finish(None)?;
    let name = NamespaceName { drive: drive.name.clone(), nsid: nsid.unwrap_or_default() };
    Demand::changes(change_of(found, name, add).into_iter().collect())
}
