//! Controllers that wait behind gates that are shut: how many there may be, and which of them ends
//! when there are too many. Whoever knows the name of a host can have some, and must neither keep
//! the host out by that nor others.

use alloc::collections::BTreeMap;

use ebof_nvme::{ControllerId, Nqn};

use super::Registry;
use super::controllers::{ControllerEntry, ControllerKey, Controllers};
use crate::association::Association;
use crate::controller::Kind;
use crate::notice::{CloseReason, Notices};

/// The most controllers of one host NQN whose hosts have proven nothing yet: more than a host
/// connects at a time.
pub const WAITING_MAX: usize = 64;

impl Registry {
    /// Notices of what Connect has done to others. The caller delivers them.
    #[must_use]
    pub fn take_notices(&mut self) -> Notices {
        core::mem::take(&mut self.notices)
    }

    /// Has others end, so that one more may wait with the name of `host`.
    fn make_room(&mut self, host: &Nqn, network: &str) {
        let Self { controllers, notices, limits, .. } = self;
        if controllers.waiting(|of| of.host == *host).count() >= WAITING_MAX {
            controllers.end_one(|of| of.host == *host, network, notices);
        }
        if controllers.waiting(|_| true).count() >= usize::try_from(limits.controllers).unwrap_or(usize::MAX) {
            controllers.end_one(|_| true, network, notices);
        }
    }

    /// A controller ID for a host from `network`, which one that waits gives up where all are in
    /// use. `is_due` says that the host waits, too.
    pub(super) fn give_cntlid(
        &mut self,
        (nqn, kind): (&Nqn, &Kind),
        host: &Nqn,
        network: &str,
        is_due: bool,
    ) -> Option<ControllerId> {
        if is_due {
            self.make_room(host, network);
        }
        let Self { controllers, notices, limits, .. } = self;
        let free = controllers.free_cntlid(nqn, kind, host, limits.controllers);
        if free.is_some() || controllers.open_count() >= usize::try_from(limits.controllers).unwrap_or(usize::MAX) {
            return free;
        }
        let (drive, range) = match kind {
            Kind::Io(subsystem) => (subsystem.drive_nqn(), subsystem.cntlid_min..=subsystem.cntlid_max),
            Kind::Discovery(_) => (nqn, ControllerId(0)..=ControllerId::MAX),
        };
        controllers.end_one(|of| of.drive == *drive && range.contains(&of.cntlid), network, notices);
        controllers.free_cntlid(nqn, kind, host, limits.controllers)
    }
}

impl Controllers {
    /// Those that wait, the oldest first.
    fn waiting(
        &self,
        is_one: impl Fn(&Association) -> bool,
    ) -> impl Iterator<Item = (ControllerKey, &ControllerEntry)> {
        let waits = move |entry: &ControllerEntry| {
            !entry.is_open && !entry.association.is_closing() && is_one(&entry.association)
        };
        self.entries.iter().filter(move |(_, entry)| waits(entry)).map(|(&key, entry)| (key, entry))
    }

    /// Ends one of those that wait, because one comes from `network`: the oldest of the network
    /// that has most of them. So many from one network end none from another.
    fn end_one(&mut self, is_one: impl Fn(&Association) -> bool, network: &str, notices: &mut Notices) {
        let mut counts = BTreeMap::from([(network, 1)]);
        for (_, entry) in self.waiting(&is_one) {
            *counts.entry(entry.network.as_str()).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let mut waiting = self.waiting(&is_one);
        let Some((key, _)) = waiting.find(|(_, entry)| counts.get(entry.network.as_str()).copied() == most) else {
            return;
        };
        drop(waiting);
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.close(CloseReason::MadeRoom, notices);
        let name = (entry.association.subsystem.clone(), entry.association.cntlid);
        // Its number is another one's from now on.
        if self.names.get(&name) == Some(&key) {
            self.names.remove(&name);
        }
    }
}
