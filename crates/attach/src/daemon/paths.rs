//! The paths of a daemon's devices: added, taken away, and what is said of them, by clients' calls.
//! Which path a command takes is decided by the initiator.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use ebof_initiator::{AddPathError, PathId, PathPolicy, PathReport};
use ebof_nvme::Nsid;

use super::serve::rescan;
use super::{Shared, listen_to_events, options};
use crate::control::Answer;
use crate::request::Request;
use crate::state::{PathState, State};

/// What a client says of the paths; what is `None` stays.
#[derive(Debug)]
pub(super) struct PathChange {
    pub(super) policy: Option<String>,
    pub(super) prefer: Option<String>,
    pub(super) enable: Option<String>,
    pub(super) disable: Option<String>,
}

/// The name of a path of the instance `instance`.
fn name(instance: &str, path: PathId) -> String {
    format!("{instance}c{}", path.0)
}

/// Updates what changes by itself.
pub(super) fn refresh(state: &mut State, shared: &Shared) {
    let reports = shared.subsystem.paths();
    shared.subsystem.state().name().clone_into(&mut state.state);
    if let Some(first) = reports.first() {
        state.cntlid = first.controller.id().0;
        state.peer = first.controller.peer().to_string();
    }
    let nsids: Vec<u32> = state.devices.iter().map(|device| device.nsid).collect();
    let instance = state.name.clone();
    state.paths = reports.iter().map(|report| describe(shared, &instance, report, &nsids)).collect();
    state.policy = Some(shared.subsystem.policy().name().to_owned());
}

fn describe(shared: &Shared, instance: &str, report: &PathReport, nsids: &[u32]) -> PathState {
    let requests = shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
    let request = requests.iter().find(|(id, _)| *id == report.id).map(|(_, request)| request);
    let options = report.controller.options();
    let access = nsids.iter().filter_map(|&nsid| {
        let state = shared.subsystem.access(report.id, Nsid(nsid))?;
        Some((nsid.to_string(), state.name().to_owned()))
    });
    PathState {
        name: name(instance, report.id),
        state: report.controller.state().name().to_owned(),
        transport: request.map(|request| request.transport.clone()).unwrap_or_default(),
        traddr: options.traddr.clone(),
        trsvcid: options.trsvcid,
        host_traddr: options.host_traddr.clone(),
        host_iface: options.host_iface.clone(),
        peer: report.controller.peer().to_string(),
        cntlid: report.controller.id().0,
        enabled: report.is_enabled,
        preferred: report.is_preferred,
        access: access.collect::<BTreeMap<_, _>>(),
        in_flight: report.in_flight,
        completed: report.completed,
    }
}

/// Connects another controller as a path of the devices.
pub(super) fn add(shared: &Shared, request: Request) -> Answer {
    let options = match options::of(&request) {
        Ok(options) => options,
        Err(error) => return Answer::Failed { message: error.to_string() },
    };
    let address = request.address();
    let _turn = shared.adding.lock().unwrap_or_else(PoisonError::into_inner);
    let way = |request: &Request| {
        let from = (request.overrides.host_traddr.clone(), request.overrides.host_iface.clone());
        (request.transport.clone(), request.traddr.clone(), request.trsvcid, from)
    };
    let is_there = |(_, other): &(PathId, Request)| way(other) == way(&request);
    if shared.requests.lock().unwrap_or_else(PoisonError::into_inner).iter().any(is_there) {
        let message = format!("{address} is a path of the device already: `ebof list-subsys` shows it");
        return Answer::Failed { message };
    }
    let id = match shared.subsystem.add(&options) {
        Ok(id) => id,
        Err(error) => {
            tracing::warn!(address, %error, "a path is not added");
            let kind = error.connect_kind().map(|kind| kind.name().to_owned());
            let message = message(&address, &error);
            return match kind {
                Some(kind) => Answer::NotConnected { kind, message },
                None => Answer::Failed { message },
            };
        }
    };
    tracing::info!(address, path = id.0, "a path is added");
    shared.requests.lock().unwrap_or_else(PoisonError::into_inner).push((id, request));
    let messages = shared.messages.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let reports = shared.subsystem.paths();
    let listens = reports.iter().find(|report| report.id == id).map(|path| listen_to_events(path, messages));
    if let Some(Err(error)) = listens {
        shared.subsystem.remove(id);
        return Answer::Failed { message: error.to_string() };
    }
    let instance = shared.state.lock().unwrap_or_else(PoisonError::into_inner).name.clone();
    announce(shared);
    Answer::PathAdded { path: name(&instance, id) }
}

fn message(address: &str, error: &AddPathError) -> String {
    match error {
        // It says of itself where it went.
        AddPathError::Connect(_) => error.to_string(),
        _ => format!("{address}: {error}"),
    }
}

/// Takes a path away; commands go on over the others.
pub(super) fn remove(shared: &Shared, wanted: &str) -> Answer {
    match find(shared, wanted) {
        Ok(id) if shared.subsystem.remove(id) => {
            tracing::info!(path = id.0, "a path is taken away");
            shared.requests.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, _)| *of != id);
            announce(shared);
            Answer::Done
        }
        Ok(_) => Answer::Failed {
            message: format!(
                "{wanted} is the only path: `ebof disconnect` the device itself, or connect another path first"
            ),
        },
        Err(message) => Answer::Failed { message },
    }
}

/// Changes what is said of the paths: all of it, or nothing.
pub(super) fn set(shared: &Shared, change: &PathChange) -> Answer {
    match checked(shared, change) {
        Ok(change) => {
            change();
            announce(shared);
            Answer::Done
        }
        Err(message) => Answer::Failed { message },
    }
}

/// The change, if it can be made.
fn checked<'s>(shared: &'s Shared, change: &PathChange) -> Result<impl FnOnce() + use<'s>, String> {
    let PathChange { policy, prefer, enable, disable } = change;
    let policy = match policy {
        None => None,
        Some(name) => Some(PathPolicy::from_name(name).ok_or_else(|| {
            let known = PathPolicy::ALL.map(PathPolicy::name).join(", ");
            format!("there is no policy {name:?}: {known}")
        })?),
    };
    let found = |wanted: &Option<String>| wanted.as_deref().map(|wanted| find(shared, wanted)).transpose();
    let prefer = match prefer.as_deref() {
        Some("none") => Some(None),
        Some(wanted) => Some(Some(find(shared, wanted)?)),
        None => None,
    };
    let (enable, disable) = (found(enable)?, found(disable)?);
    if let Some(id) = disable {
        let stays = |path: &PathReport| path.id != id && (path.is_enabled || Some(path.id) == enable);
        if !shared.subsystem.paths().iter().any(stays) {
            return Err("it is the only path that is enabled: enable another one first".to_owned());
        }
    }
    Ok(move || {
        policy.into_iter().for_each(|policy| shared.subsystem.set_policy(policy));
        prefer.into_iter().for_each(|preferred| shared.subsystem.prefer(preferred));
        for (id, is_enabled) in [(enable, true), (disable, false)] {
            // It was looked at before; if it has gone meanwhile, there is nothing to say of it.
            let _gone = id.map(|id| shared.subsystem.set_enabled(id, is_enabled));
        }
    })
}

/// The path with this name or address.
fn find(shared: &Shared, wanted: &str) -> Result<PathId, String> {
    let instance = shared.state.lock().unwrap_or_else(PoisonError::into_inner).name.clone();
    let reports = shared.subsystem.paths();
    let described: Vec<(PathId, PathState)> =
        reports.iter().map(|report| (report.id, describe(shared, &instance, report, &[]))).collect();
    let mut found = described.iter().filter(|(_, path)| path.is_called(wanted));
    match (found.next(), found.next()) {
        (Some((id, _)), None) => Ok(*id),
        (found, _) => {
            let known: Vec<String> =
                described.iter().map(|(_, path)| format!("{} ({})", path.name, path.address())).collect();
            let what = if found.is_some() { "several paths are" } else { "no path is" };
            Err(format!("{what} called {wanted}; there are {}", known.join(", ")))
        }
    }
}

/// The main thread looks at the namespaces and writes the state file, before whoever has asked for
/// the change is answered.
fn announce(shared: &Shared) {
    if let Answer::Failed { message } = rescan(shared) {
        tracing::warn!(message, "looking at the namespaces");
    }
}
