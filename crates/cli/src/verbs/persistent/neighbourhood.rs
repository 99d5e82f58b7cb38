//! Services that multicast DNS has found: which are held because of that, and which have gone.
//!
//! Multicast DNS authenticates nobody, and anybody may say that a service has gone. So one whose
//! connection is there is held as before; only when that is lost, too, has it gone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ebof_mdns::Neighbour;

use super::HeldService;

/// What somebody looks for with certain options, and what was found.
pub(super) struct Neighbourhood {
    /// The options.
    pub(super) held: HeldService,
    met: HashMap<String, Met>,
    /// Services that were held for what is at another address now.
    left: HashSet<usize>,
    stop: Arc<AtomicBool>,
}

/// A service that was found.
struct Met {
    neighbour: Neighbour,
    /// The one that is held for it, unless it is left alone.
    service: Option<usize>,
    /// Multicast DNS does not know it any more.
    is_gone: bool,
}

/// What follows from what is there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NeighbourChanges {
    /// To be held.
    pub(super) new: Vec<Neighbour>,
    /// Not there any more: let go, unless their connections are there.
    pub(super) gone: Vec<usize>,
}

impl Neighbourhood {
    pub(super) fn new(held: HeldService, stop: Arc<AtomicBool>) -> Self {
        Self { held, met: HashMap::new(), left: HashSet::new(), stop }
    }

    /// These are there now, and no others.
    pub(super) fn update(&mut self, there: &[Neighbour]) -> NeighbourChanges {
        let mut news = NeighbourChanges::default();
        let is_there = |name: &str, met: &Met| there.iter().any(|it| it.name == name && *it == met.neighbour);
        self.met.retain(|name, met| {
            met.is_gone = !is_there(name, met);
            if !met.is_gone {
                return true;
            }
            news.gone.extend(met.service);
            // What is held for it is let go later, or now.
            met.service.is_some()
        });
        let is_new = |it: &&Neighbour| self.met.get(&it.name).is_none_or(|met| met.neighbour != **it);
        news.new = there.iter().filter(is_new).cloned().collect();
        news
    }

    /// A service is held for what was found, or it is left alone. One that was held under its name,
    /// at another address, is given back.
    pub(super) fn meet(&mut self, neighbour: Neighbour, service: Option<usize>) -> Option<usize> {
        let met = Met { service, is_gone: false, neighbour };
        let before = self.met.insert(met.neighbour.name.clone(), met)?.service;
        self.left.extend(before);
        before
    }

    /// Whether a service was found here and is not there any more.
    pub(super) fn has_lost(&self, service: usize) -> bool {
        self.left.contains(&service) || self.met.values().any(|met| met.service == Some(service) && met.is_gone)
    }

    /// Whether a service was found here, and is there.
    pub(super) fn knows(&self, service: usize) -> bool {
        self.met.values().any(|met| met.service == Some(service) && !met.is_gone)
    }

    /// A service is not held any more.
    pub(super) fn forget(&mut self, service: usize) {
        self.left.remove(&service);
        self.met.retain(|_, met| met.service != Some(service));
    }
}

impl Drop for Neighbourhood {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::services::DiscoveryService;
    use crate::verbs::services::conf::options_of;
    use ebof_attach::Kind;

    fn neighbour(name: &str, address: &str) -> Neighbour {
        let (transport, address) = ("tcp".to_owned(), address.to_owned());
        Neighbour { name: name.to_owned(), transport, address, port: 8009, nqn: None }
    }

    // @test host.mdns-gone
    #[test]
    fn services_come_change_and_go() {
        let service = DiscoveryService::new(options_of("-t tcp -a 192.0.2.1").unwrap());
        let held = HeldService { service, front: Kind::default(), first_log: None };
        let mut here = Neighbourhood::new(held, Arc::default());
        let (one, two, moved) =
            (neighbour("one", "192.0.2.1"), neighbour("two", "192.0.2.2"), neighbour("one", "192.0.2.9"));
        let there = [one.clone(), two.clone()];
        assert_eq!(here.update(&there), NeighbourChanges { new: there.to_vec(), gone: vec![] });
        assert_eq!((here.meet(one.clone(), Some(1)), here.meet(two.clone(), None)), (None, None));
        assert_eq!(here.update(&there), NeighbourChanges::default());
        // One goes, and comes back before its connection is lost.
        assert_eq!(here.update(std::slice::from_ref(&two)), NeighbourChanges { new: vec![], gone: vec![1] });
        assert!(here.has_lost(1));
        assert_eq!(here.update(&there), NeighbourChanges::default());
        assert!(!here.has_lost(1));
        // It is somewhere else.
        assert_eq!(
            here.update(std::slice::from_ref(&moved)),
            NeighbourChanges { new: vec![moved.clone()], gone: vec![1] }
        );
        assert_eq!(here.meet(moved.clone(), Some(3)), Some(1));
        assert_eq!((here.has_lost(1), here.update(&[])), (true, NeighbourChanges { new: vec![], gone: vec![3] }));
        here.forget(3);
        assert_eq!(here.update(std::slice::from_ref(&moved)), NeighbourChanges { new: vec![moved], gone: vec![] });
    }
}
