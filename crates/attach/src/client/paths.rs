//! Paths from a client's side: whether a request is one for another path of devices that are there,
//! and calls about paths to their daemon.

use super::{host_of, open_record};
use crate::control::{Answer, Call};
use crate::error::{Error, Existing};
use crate::request::{Attached, Request};
use crate::state::{self, PathState, Record, StateDir};

/// What a request becomes.
#[derive(Debug)]
pub(super) enum Destination {
    /// A daemon of its own.
    New,
    /// A path of the devices of this one.
    Path(Box<Record>),
    /// One of the two: a daemon of the subsystem is about to begin.
    Later(String),
}

/// Where a request belongs. Refuses what the kernel refuses: the same subsystem at the same address
/// (by any name) as the same host. Duplicate namespaces of other subsystems are found after
/// connecting: see [`crate::daemon::claims`].
pub(super) fn destination(states: &StateDir, request: &Request, addresses: &[String]) -> Result<Destination, Error> {
    let mut destination = Destination::New;
    for record in states.records()?.into_iter().filter(|record| record.live) {
        let Some(first) = record.request() else { continue };
        if first.nqn != request.nqn || host_of(&first) != host_of(request) || first.duplicate_connect {
            continue;
        }
        if let Some(address) = same_path(&record, &first, request, addresses) {
            let (name, nqn) = (record.name, first.nqn.clone());
            return Err(Error::AlreadyConnected(Existing { name, nqn, address, device: None }));
        }
        destination = match (&record.state, destination) {
            (_, Destination::Path(found)) => Destination::Path(found),
            (Some(_), _) => Destination::Path(Box::new(record)),
            (None, _) => Destination::Later(record.name),
        };
    }
    Ok(destination)
}

/// The address of a path of `record` that goes the same way as the request would.
fn same_path(record: &Record, first: &Request, request: &Request, addresses: &[String]) -> Option<String> {
    let wanted = (&request.transport, &request.overrides.host_traddr, &request.overrides.host_iface);
    let is_there = |traddr: &str, trsvcid: u16, peer: Option<&str>| {
        trsvcid == request.trsvcid && traddr == request.traddr
            || peer.is_some_and(|peer| addresses.iter().any(|address| address == peer))
    };
    let paths = record.state.as_ref().map(|state| state.paths.as_slice()).unwrap_or_default();
    if paths.is_empty() {
        let from = (&first.transport, &first.overrides.host_traddr, &first.overrides.host_iface);
        let peer = record.state.as_ref().map(|state| state.peer.as_str());
        return (from == wanted && is_there(&first.traddr, first.trsvcid, peer)).then(|| first.address());
    }
    let same = |path: &&PathState| {
        (&path.transport, &path.host_traddr, &path.host_iface) == wanted
            && is_there(&path.traddr, path.trsvcid, Some(&path.peer))
    };
    paths.iter().find(same).map(PathState::address)
}

/// Has the daemon of `record` connect another path.
pub(super) fn join(record: &Record, request: &Request) -> Result<Attached, Error> {
    let request = state::keep_secrets_of_path(&record.directory, request)?;
    let mut client = open_record(record.clone(), None)?;
    match client.exchange(&Call::AddPath { request: Box::new(request) }, &[])? {
        (Answer::PathAdded { path }, _) => {
            let devices = client.status()?.devices.clone();
            Ok(Attached { name: record.name.clone(), path: Some(path), devices })
        }
        _ => Err(client.nonsense()),
    }
}

/// Whether the record has a path with this name.
pub(super) fn is_path_of(record: &Record, name: &str) -> bool {
    let number = name.strip_prefix(&record.name).and_then(|rest| rest.strip_prefix('c'));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Has the daemon of `record` take a path away.
pub(super) fn remove(record: &Record, name: &str) -> Result<(), Error> {
    let call = Call::RemovePath { path: name.to_owned() };
    open_record(record.clone(), None)?.exchange(&call, &[]).map(|_done| ())
}

/// What is said of the paths of devices; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSettings {
    /// How commands are divided: `numa`, `round-robin`, `queue-depth`, `latency`.
    pub policy: Option<String>,
    /// The path that is preferred among its equals, by name or address; `none` for none.
    pub prefer: Option<String>,
    /// The path that is used again.
    pub enable: Option<String>,
    /// The path that is not used any more.
    pub disable: Option<String>,
}
