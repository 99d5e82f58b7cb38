//! Which hosts may still hold what an NSID named before they came back: those that were here then,
//! and have not been shown the change since.

use alloc::collections::BTreeMap;

use ebof_nvme::{HostId, Nqn};

use crate::association::Association;
use crate::model::PortId;

/// A host at a subsystem, by one of the target's ports: a host with several paths finds out by each
/// of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    port: PortId,
    subsystem: Nqn,
    host: Nqn,
    /// SPDK's processes have one each. A directly attached host sets it later; there is only one.
    id: HostId,
}

impl Holder {
    pub(super) fn of(association: &Association) -> Self {
        let id = if association.is_memory_based() { HostId::default() } else { association.host_id() };
        let Association { host, subsystem, port, .. } = association;
        Self { port: port.id, subsystem: subsystem.clone(), host: host.clone(), id }
    }
}

/// The hosts, and how many changes of objects there were when each last knew of all of them.
#[derive(Debug, Default)]
pub(super) struct Holders {
    known: BTreeMap<Holder, u64>,
    /// There were more than are remembered.
    is_incomplete: bool,
    /// When the first one came.
    since_ms: Option<u64>,
}

/// So many are remembered. Beyond that they are forgotten together.
const HOLDERS_MAX: usize = 4096;

/// How long a host that is not known may be one that the process before this one knew,
/// milliseconds: as long as Linux tries to come back, and a little more.
const RETURN_MS: u64 = 900_000;

impl Holders {
    /// A host comes, when there have been `count` changes. Returns which of them it knows of: the
    /// first so many.
    pub(super) fn come(&mut self, holder: Holder, is_memory_based: bool, count: u64, now_ms: u64) -> u64 {
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        let may_return = self.is_incomplete || now_ms < since_ms.saturating_add(RETURN_MS);
        let new = if may_return && !is_memory_based { 0 } else { count };
        let knows = self.known.get(&holder).copied().unwrap_or(new);
        self.put(holder, knows);
        knows
    }

    /// A host knows of all changes.
    pub(super) fn put(&mut self, holder: Holder, count: u64) {
        if self.known.len() >= HOLDERS_MAX && !self.known.contains_key(&holder) {
            self.known.clear();
            self.is_incomplete = true;
        }
        self.known.insert(holder, count);
    }

    /// Whoever was attached to a direct port holds nothing any more.
    pub(super) fn forget(&mut self, port: PortId) {
        self.known.retain(|holder, _| holder.port != port);
    }
}
