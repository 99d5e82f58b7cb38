//! Discovery services that are found on this network by multicast DNS (TP8009): once, or for as
//! long as somebody holds them. Who answers is not authenticated; what is asked of a service, and
//! how, is said by the options of whoever looks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ebof_mdns::{Browser, Neighbour, Sighting};
use ebof_nvme::uri::Transport;

use super::fabric::FabricArgs;
use super::services::DiscoveryService;
use crate::failure::Failure;

/// How long answers are waited for.
const LOOK: Duration = Duration::from_secs(3);

/// How often somebody who holds services looks whether it is to end.
const TICK: Duration = Duration::from_millis(500);

/// The services that are there now.
///
/// # Errors
/// There is none; multicast DNS cannot be used.
pub(super) fn find(options: &FabricArgs) -> Result<Vec<DiscoveryService>, Failure> {
    let mut browser = browser()?;
    let (mut there, end) = (BTreeMap::new(), Instant::now() + LOOK);
    while let Some(sighting) = browser.next(end.saturating_duration_since(Instant::now())) {
        note(&mut there, sighting);
    }
    let services: Vec<_> = there.values().filter_map(|neighbour| service_of(options, neighbour)).collect();
    if services.is_empty() {
        let message = "no discovery service of this network answers to multicast DNS";
        let advice = "say where one is: -a ADDRESS; a port of ebof's target answers with `mdns = true`";
        return Err(Failure::new("not-found", message, advice));
    }
    Ok(services)
}

/// Tells all that are there whenever that changes, until it is to stop.
///
/// # Errors
/// Multicast DNS cannot be used.
pub(super) fn watch(stop: &Arc<AtomicBool>, tell: impl Fn(Vec<Neighbour>)) -> Result<(), Failure> {
    let mut browser = browser()?;
    let mut there = BTreeMap::new();
    while !stop.load(Relaxed) {
        if let Some(sighting) = browser.next(TICK) {
            note(&mut there, sighting);
            tell(there.values().cloned().collect());
        }
    }
    Ok(())
}

fn browser() -> Result<Browser, Failure> {
    Browser::new()
        .map_err(|error| Failure::new("io", error.to_string(), "say where a discovery service is: -a ADDRESS"))
}

fn note(there: &mut BTreeMap<String, Neighbour>, sighting: Sighting) {
    match sighting {
        Sighting::There(neighbour) => drop(there.insert(neighbour.name.clone(), neighbour)),
        Sighting::Gone(name) => drop(there.remove(&name)),
    }
}

/// How a service is asked that was found by somebody with these options.
pub(super) fn service_of(options: &FabricArgs, found: &Neighbour) -> Option<DiscoveryService> {
    let Neighbour { name, transport, address, port, nqn } = found;
    let fabric = FabricArgs {
        traddr: Some(address.clone()),
        trsvcid: Some(*port),
        nqn: nqn.clone(),
        mdns: false,
        ..options.over(Transport::from_name(transport)?)
    };
    let place = Some(format!("multicast DNS ({name})"));
    Some(DiscoveryService { fabric, listed: None, place })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::services::conf::options_of;

    fn neighbour(name: &str, transport: &str) -> Neighbour {
        let (address, transport) = ("fe80::1%eth0".to_owned(), transport.to_owned());
        Neighbour { name: name.to_owned(), transport, address, port: 8009, nqn: None }
    }

    #[test]
    fn what_is_found_is_asked_with_the_options_of_whoever_looks() {
        let options = options_of("-t tcp -a x --data-digest --vanished disconnect -k 5").unwrap();
        let options = FabricArgs { traddr: None, mdns: true, ..options };
        let tcp = service_of(&options, &neighbour("one", "tcp")).unwrap().fabric;
        assert_eq!((tcp.traddr.as_deref(), tcp.trsvcid, tcp.mdns), (Some("fe80::1%eth0"), Some(8009), false));
        assert!(tcp.overrides.data_digest && tcp.goes_when_vanished());
        let rdma = service_of(&options, &neighbour("one", "rdma")).unwrap();
        assert!(rdma.fabric.transport == "rdma" && !rdma.fabric.overrides.data_digest);
        assert_eq!(rdma.place.as_deref(), Some("multicast DNS (one)"));
        assert!(service_of(&options, &neighbour("one", "fc")).is_none());
    }

    #[test]
    fn what_is_there_is_what_was_seen_last() {
        let mut there = BTreeMap::new();
        note(&mut there, Sighting::There(neighbour("one", "tcp")));
        note(&mut there, Sighting::There(neighbour("two", "tcp")));
        note(&mut there, Sighting::There(neighbour("one", "rdma")));
        note(&mut there, Sighting::Gone("two".to_owned()));
        assert_eq!(there.into_values().collect::<Vec<_>>(), [neighbour("one", "rdma")]);
    }
}
