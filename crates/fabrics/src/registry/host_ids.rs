//! Host identifiers of hosts that have proven who they are. Reservations and attachments go by
//! them: nobody else may use one, also while its host is away.

use alloc::vec::Vec;

use ebof_nvme::{HostId, Nqn};

/// The most identifiers of a host that are kept: those that it came with last.
const IDS_MAX: usize = 8;

/// Which host an identifier belongs to, by the order in which they were proven.
#[derive(Debug, Default)]
pub(super) struct ProvenHostIds {
    known: Vec<(HostId, Nqn)>,
    /// How often that has changed.
    changes: u64,
}

impl ProvenHostIds {
    /// What an earlier target knew.
    pub(super) fn restored(known: impl IntoIterator<Item = (HostId, Nqn)>) -> Self {
        let mut restored = Self::default();
        known.into_iter().for_each(|(host_id, host)| restored.note(host_id, &host));
        restored.changes = 0;
        restored
    }

    /// How often they have changed, and what there is; `None` if that is `seen` changes.
    pub(super) fn after(&self, seen: u64) -> Option<(u64, Vec<(HostId, Nqn)>)> {
        (self.changes != seen).then(|| (self.changes, self.known.clone()))
    }

    /// Whether another host has proven that it has this identifier. Zeros are none.
    pub(super) fn is_of_another(&self, host_id: HostId, host: &Nqn) -> bool {
        self.known.iter().any(|(known, owner)| *known == host_id && owner != host)
    }

    /// `host` has proven who it is, and has this identifier. Of two that come with the same one,
    /// the first has it.
    pub(super) fn note(&mut self, host_id: HostId, host: &Nqn) {
        if host_id == HostId::default() {
            return;
        }
        let is_of_host = |(_, owner): &(HostId, Nqn)| owner == host;
        if let Some(at) = self.known.iter().position(|(known, _)| *known == host_id) {
            // The latest of its host, if it is its own.
            if is_of_host(&self.known[at]) && self.known[at + 1..].iter().any(is_of_host) {
                let known = self.known.remove(at);
                self.known.push(known);
                self.changes += 1;
            }
            return;
        }
        if self.known.iter().filter(|known| is_of_host(known)).count() >= IDS_MAX
            && let Some(oldest) = self.known.iter().position(is_of_host)
        {
            self.known.remove(oldest);
        }
        self.known.push((host_id, host.clone()));
        self.changes += 1;
    }

    /// Forgets those of hosts that cannot prove anything any more.
    pub(super) fn retain_hosts(&mut self, can_prove: impl Fn(&Nqn) -> bool) {
        let before = self.known.len();
        self.known.retain(|(_, owner)| can_prove(owner));
        self.changes += u64::from(self.known.len() != before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_belongs_to_the_host_that_proved_it_first() {
        let [alice, bob] =
            ["nqn.2014-08.org.example:alice", "nqn.2014-08.org.example:bob"].map(|name| Nqn::parse(name).unwrap());
        let id = |byte| HostId([byte; 16]);
        let mut ids = ProvenHostIds::default();
        ids.note(id(0), &alice);
        ids.note(id(1), &alice);
        ids.note(id(1), &bob);
        assert!(ids.is_of_another(id(1), &bob) && !ids.is_of_another(id(1), &alice));
        assert!(!ids.is_of_another(id(0), &bob), "zeros are no identifier");
        // No host has more than it needs.
        for byte in 2..=9 {
            ids.note(id(byte), &alice);
        }
        assert!(!ids.is_of_another(id(1), &bob) && ids.is_of_another(id(2), &bob));
        // One that it goes on using is not the one that goes.
        ids.note(id(2), &alice);
        ids.note(id(10), &alice);
        assert!(ids.is_of_another(id(2), &bob) && !ids.is_of_another(id(3), &bob));
        // What is stored is what there is, and only if there is something new.
        let (changes, known) = ids.after(0).expect("it has changed");
        assert!(ids.after(changes).is_none());
        let mut later = ProvenHostIds::restored(known);
        assert!(later.after(0).is_none() && later.is_of_another(id(2), &bob) && !later.is_of_another(id(2), &alice));
        for ids in [&mut ids, &mut later] {
            ids.retain_hosts(|host| *host == alice);
        }
        assert!(ids.after(changes).is_none() && later.after(0).is_none(), "nobody has gone");
        for ids in [&mut ids, &mut later] {
            ids.retain_hosts(|host| *host == bob);
            assert!(!ids.is_of_another(id(9), &bob));
        }
        assert!(ids.after(changes).is_some() && later.after(0).is_some());
    }
}
