//! The instances of controllers: the uniquifier of each (CIU), and which of them have ended and
//! left nothing behind.

use alloc::collections::{BTreeMap, VecDeque};

use ebof_nvme::command::ControllerInstance;
use ebof_nvme::{ControllerId, HostId, Nqn};

use crate::association::Association;

/// Instances that have ended and are remembered, of all hosts.
const ENDED_MAX: usize = 1024;

/// The same of one host, so that one that comes and goes does not push out those of others.
const ENDED_OF_HOST_MAX: usize = 32;

/// What is known of instances beyond the controllers that there are.
#[derive(Debug)]
pub(super) struct Instances {
    /// The last uniquifier of each identifier that was used.
    last: BTreeMap<Nqn, BTreeMap<ControllerId, u8>>,
    /// The first one of an identifier: another one than that of an earlier process, in most cases.
    first: u8,
    /// Instances that are gone, with all that they had at devices; the oldest first.
    ended: VecDeque<Ended>,
}

#[derive(Debug)]
struct Ended {
    owner: Owner,
    instance: ControllerInstance,
}

/// Whose controller one is.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    subsystem: Nqn,
    host: Nqn,
    host_id: HostId,
    nameless: bool,
}

impl Owner {
    fn of(association: &Association) -> Self {
        let Association { known_as, host, nameless, .. } = association;
        let (subsystem, host) = (known_as.clone(), host.clone());
        Self { subsystem, host, host_id: association.host_id(), nameless: *nameless }
    }
}

impl Instances {
    pub(super) fn new(seed: u64) -> Self {
        let first = u8::try_from(seed % 255).expect("less than 255") + 1;
        Self { last: BTreeMap::new(), first, ended: VecDeque::new() }
    }

    /// The uniquifier of a new controller: 1 to 255.
    pub(super) fn next_uniquifier(&mut self, subsystem: &Nqn, id: ControllerId) -> u8 {
        let first = self.first;
        let of_subsystem = self.last.entry(subsystem.clone()).or_default();
        let next = of_subsystem.get(&id).map_or(first, |last| last.checked_add(1).unwrap_or(1));
        of_subsystem.insert(id, next);
        next
    }

    /// The last queue of a controller is gone, and nothing of it is at a device.
    pub(super) fn note_end(&mut self, association: &Association) {
        let host = &association.host;
        let of_host = |ended: &Ended| ended.owner.host == *host;
        let is_full = self.ended.iter().filter(|ended| of_host(ended)).count() >= ENDED_OF_HOST_MAX;
        if let Some(oldest) = self.ended.iter().position(of_host).filter(|_| is_full) {
            self.ended.remove(oldest);
        } else if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { owner: Owner::of(association), instance: association.instance() });
    }

    /// Whether this was a controller of the same host in the same subsystem. Of one that is
    /// forgotten nothing is claimed.
    pub(super) fn has_ended(&self, association: &Association, instance: ControllerInstance) -> bool {
        let owner = Owner::of(association);
        self.ended.iter().any(|ended| ended.instance == instance && ended.owner == owner)
    }

    /// Forgets what was in subsystems that there are no more.
    pub(super) fn retain_subsystems(&mut self, is_there: impl Fn(&Nqn) -> bool) {
        self.last.retain(|nqn, _| is_there(nqn));
        self.ended.retain(|ended| is_there(&ended.owner.subsystem));
    }
}
