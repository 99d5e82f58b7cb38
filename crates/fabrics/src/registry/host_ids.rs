//! Host identifiers of hosts that have proven who they are. Reservations and attachments go by
//! them: nobody else may use one, also while its host is away.

use alloc::vec::Vec;

use ebof_nvme::{HostId, Nqn};

/// The most identifiers of a host that are kept: the latest.
const IDS_MAX: usize = 8;

/// Which host an identifier belongs to, by the order in which they were proven.
#[derive(Debug, Default)]
pub(super) struct ProvenHostIds(Vec<(HostId, Nqn)>);

impl ProvenHostIds {
    /// Whether another host has proven that it has this identifier. Zeros are none.
    pub(super) fn is_of_another(&self, host_id: HostId, host: &Nqn) -> bool {
        self.0.iter().any(|(known, owner)| *known == host_id && owner != host)
    }

    /// `host` has proven who it is, and has this identifier. Of two that come with the same one,
    /// the first has it.
    pub(super) fn note(&mut self, host_id: HostId, host: &Nqn) {
        if host_id == HostId::default() || self.0.iter().any(|(known, _)| *known == host_id) {
            return;
        }
        let is_of_host = |(_, owner): &(HostId, Nqn)| owner == host;
        if self.0.iter().filter(|known| is_of_host(known)).count() >= IDS_MAX
            && let Some(oldest) = self.0.iter().position(is_of_host)
        {
            self.0.remove(oldest);
        }
        self.0.push((host_id, host.clone()));
    }

    /// Forgets those of hosts that cannot prove anything any more.
    pub(super) fn retain_hosts(&mut self, can_prove: impl Fn(&Nqn) -> bool) {
        self.0.retain(|(_, owner)| can_prove(owner));
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
        ids.retain_hosts(|host| *host == bob);
        assert!(!ids.is_of_another(id(9), &bob));
    }
}
