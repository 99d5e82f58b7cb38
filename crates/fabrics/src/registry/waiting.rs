//! Controllers whose hosts have not proven who they are yet: how many there may be, and which of
//! them ends when there are too many. Whoever knows the name of a host can have some, and must
//! neither keep the host out by that nor others.

use alloc::collections::BTreeMap;

use ebof_nvme::{ControllerId, Nqn};

use super::controllers::{ControllerEntry, ControllerKey, Controllers};
use crate::association::Association;
use crate::controller::Kind;
use crate::model::Limits;
use crate::notice::{CloseReason, Notices};

/// The most controllers of one host NQN whose hosts have proven nothing yet: more than a host
/// connects at a time.
pub const WAITING_MAX: usize = 64;

/// Finds room for controllers that wait, by ending others that do.
pub(super) struct WaitingControllers<'r> {
    pub(super) controllers: &'r mut Controllers,
    pub(super) limits: &'r Limits,
    /// What those are told that end.
    pub(super) notices: &'r mut Notices,
}

impl WaitingControllers<'_> {
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
        let most = self.limits.controllers;
        let free = self.controllers.free_cntlid(nqn, kind, host, most);
        if free.is_some() || self.controllers.open_count() >= usize::try_from(most).unwrap_or(usize::MAX) {
            return free;
        }
        let (drive, range) = match kind {
            Kind::Io(subsystem) => (subsystem.drive_nqn(), subsystem.cntlid_min..=subsystem.cntlid_max),
            Kind::Discovery(_) => (nqn, ControllerId(0)..=ControllerId::MAX),
        };
        self.end_one(|of| of.drive == *drive && range.contains(&of.cntlid), network);
        self.controllers.free_cntlid(nqn, kind, host, most)
    }

    /// Has others end, so that one more may wait with the name of `host`.
    fn make_room(&mut self, host: &Nqn, network: &str) {
        if self.all(|of| of.host == *host).count() >= WAITING_MAX {
            self.end_one(|of| of.host == *host, network);
        }
        if self.all(|_| true).count() >= usize::try_from(self.limits.controllers).unwrap_or(usize::MAX) {
            self.end_one(|_| true, network);
        }
    }

    /// Those that wait, the oldest first.
    fn all(&self, is_one: impl Fn(&Association) -> bool) -> impl Iterator<Item = (ControllerKey, &ControllerEntry)> {
        let waits = move |entry: &ControllerEntry| entry.is_proving() && is_one(&entry.association);
        self.controllers.entries.iter().filter(move |(_, entry)| waits(entry)).map(|(&key, entry)| (key, entry))
    }

    /// Ends one of those that wait, because one comes from `network`: the oldest of the network
    /// that has most of them. So many from one network end none from another.
    fn end_one(&mut self, is_one: impl Fn(&Association) -> bool, network: &str) {
        let mut counts = BTreeMap::from([(network, 1)]);
        for (_, entry) in self.all(&is_one) {
            *counts.entry(entry.network.as_str()).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let mut all = self.all(&is_one);
        // None may wait: others have the numbers.
        let Some((key, _)) = all.find(|(_, entry)| counts.get(entry.network.as_str()).copied() == most) else {
            return;
        };
        drop(all);
        let entry = self.controllers.entry_mut(key);
        entry.close(CloseReason::MadeRoom, self.notices);
        let name = (entry.association.subsystem.clone(), entry.association.cntlid);
        // Its number is another one's from now on.
        if self.controllers.names.get(&name) == Some(&key) {
            self.controllers.names.remove(&name);
        }
    }
}
