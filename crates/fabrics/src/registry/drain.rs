//! Queues that have ended while their commands may still reach the medium: the host's next I/O
//! queues wait for them, so that no old write is executed after a newer one.
//!
//! A queue *drains* from the time at which it was asked to end, or its connection or association
//! ended, until the target reports it [`closed`](super::Registry::closed). A Connect for an I/O
//! queue is deferred while a queue of the same host drains in the same subsystem, for a limited
//! time; after that it fails with Controller Busy.
//!
//! Before that, the queues of the host's other associations are checked: the end of their
//! connections may have arrived without having been read; or it never arrives, because the network
//! lost it. So if an association has received nothing for longer than a live host is silent, the
//! Connect is also deferred until the association's commands at devices have completed.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use ebof_nvme::{Nqn, QueueId};

use super::controllers::{ControllerKey, Controllers, same_host};
use crate::association::Association;
use crate::connect::RefusalReason;
use crate::notice::{Notice, Notices};
use crate::task::handle::Handle;

/// How long a Connect is deferred at most, milliseconds. Shorter than the hosts' time-outs for it.
pub const CONNECT_HOLD_MS: u64 = 5_000;

/// After how long a queue that drains is reported, milliseconds.
pub const SLOW_DRAIN_MS: u64 = 10_000;

/// A Connect that waits for queues that drain.
#[derive(Debug)]
struct Deferred {
    host: ControllerKey,
    until_ms: u64,
    /// Its time has expired: the Connect is to be tried again, and is then refused.
    is_overdue: bool,
    /// Queues of the host that have not been checked yet.
    looks: usize,
}

/// The decision about a Connect with regard to queues that drain.
pub(super) enum Deferral {
    /// No queue drains.
    None,
    /// It waits; these queues have to be checked first.
    Wait(Vec<Handle>),
}

/// A queue that has been draining for long, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The host.
    pub host: Nqn,
    /// The subsystem.
    pub subsystem: Nqn,
    /// The queue.
    pub queue: QueueId,
    /// The host's address.
    pub peer: String,
}

/// What is known of queues that drain, beside the queues themselves.
#[derive(Debug, Default)]
pub(super) struct Drains {
    /// Connects that wait: at most one for each connection.
    deferred: BTreeMap<Handle, Deferred>,
    /// Checks that have not come to an end, of connections whose Connect was refused meanwhile:
    /// which Connect a check was for, nobody can tell, so that the next one waits for these, too.
    owed: BTreeMap<Handle, usize>,
    /// Queues that have been draining for long, to be logged: each once.
    slow: Vec<Drain>,
}

impl Drains {
    /// Whether a Connect for an I/O queue of the controller `key` may be granted now.
    pub(super) fn defer(
        &mut self,
        controllers: &Controllers,
        handle: Handle,
        key: ControllerKey,
        now_ms: u64,
    ) -> Result<Deferral, RefusalReason> {
        let is_new = !self.deferred.contains_key(&handle);
        let looks = if is_new { controllers.to_be_checked(key, now_ms) } else { Vec::new() };
        let until_ms = now_ms.saturating_add(CONNECT_HOLD_MS);
        let is_draining = controllers.is_draining(key);
        let Self { deferred, owed, .. } = self;
        let deferred = deferred.entry(handle).or_insert_with(|| {
            let looks = looks.len() + owed.remove(&handle).unwrap_or(0);
            Deferred { host: key, until_ms, is_overdue: false, looks }
        });
        if deferred.looks == 0 && !is_draining {
            self.forget(handle);
            return Ok(Deferral::None);
        }
        if deferred.until_ms <= now_ms {
            self.forget(handle);
            return Err(RefusalReason::Draining);
        }
        Ok(Deferral::Wait(looks))
    }

    /// Connects that wait.
    pub(super) fn held_connects(&self) -> usize {
        self.deferred.len()
    }

    /// The Connect of this connection does not wait any more.
    pub(super) fn forget(&mut self, handle: Handle) {
        if let Some(looks) = self.deferred.remove(&handle).map(|deferred| deferred.looks).filter(|looks| *looks > 0) {
            self.owed.insert(handle, looks);
        }
    }

    /// The connection ends.
    pub(super) fn end(&mut self, handle: Handle) {
        self.deferred.remove(&handle);
        self.owed.remove(&handle);
    }

    /// A queue of another association of the host has been checked for a deferred Connect, and the
    /// commands that it had at devices then have completed.
    pub(super) fn acknowledge_check(&mut self, controllers: &Controllers, deferred: Handle) -> Notices {
        if let Some(waiting) = self.deferred.get_mut(&deferred) {
            // Those of earlier Connects of the connection are included.
            waiting.looks = waiting.looks.checked_sub(1).expect("a check that ends was waited for");
            return self.free(controllers);
        }
        // Neither is there when the connection has ended.
        if let Some(owed) = self.owed.get_mut(&deferred) {
            *owed -= 1;
            if *owed == 0 {
                self.owed.remove(&deferred);
            }
        }
        Notices::new()
    }

    /// The Connects that are to be tried again because no queue of their hosts drains any more.
    pub(super) fn free(&self, controllers: &Controllers) -> Notices {
        if self.deferred.is_empty() {
            return Notices::new();
        }
        let draining: Vec<&Association> = controllers.draining().collect();
        let waits = |deferred: &Deferred| {
            let own = controllers.entries.get(&deferred.host);
            own.is_some_and(|own| draining.iter().any(|entry| same_host(&own.association, entry)))
        };
        let free = self.deferred.iter().filter(|(_, deferred)| deferred.looks == 0 && !waits(deferred));
        free.map(|(&handle, _)| (handle, Notice::Connect)).collect()
    }

    /// The Connects whose time has expired: they are to be tried again, and are then refused.
    pub(super) fn expire(&mut self, now_ms: u64, notices: &mut Notices) {
        for (&handle, deferred) in
            self.deferred.iter_mut().filter(|(_, deferred)| !deferred.is_overdue && deferred.until_ms <= now_ms)
        {
            deferred.is_overdue = true;
            notices.push((handle, Notice::Connect));
        }
    }

    /// Updates the times of queues that drain, and records those that have been draining for
    /// [`SLOW_DRAIN_MS`].
    pub(super) fn watch(&mut self, controllers: &mut Controllers, now_ms: u64) {
        for entry in controllers.entries.values_mut().filter(|entry| entry.is_open) {
            let closing = entry.association.is_closing();
            for queue in entry.queues.iter_mut().filter(|queue| queue.detached || closing) {
                let since_ms = *queue.draining.since_ms.get_or_insert(now_ms);
                if !queue.draining.reported && since_ms.saturating_add(SLOW_DRAIN_MS) <= now_ms {
                    queue.draining.reported = true;
                    self.slow.push(Drain {
                        host: entry.association.host.clone(),
                        subsystem: entry.association.subsystem.clone(),
                        queue: queue.id,
                        peer: entry.peer.clone(),
                    });
                }
            }
        }
    }

    /// When a deferred Connect, or the report of a queue that drains, is due.
    pub(super) fn deadline(&self, controllers: &Controllers) -> Option<u64> {
        let deferred = self.deferred.values().filter(|deferred| !deferred.is_overdue).map(|deferred| deferred.until_ms);
        let slow = controllers.entries.values().flat_map(|entry| {
            let draining = entry.queues.iter().filter(|queue| entry.drains(queue) && !queue.draining.reported);
            draining.map(|queue| queue.draining.since_ms.map_or(0, |since| since.saturating_add(SLOW_DRAIN_MS)))
        });
        let lost = controllers.entries.values().filter(|entry| entry.is_open && entry.association.is_closing());
        let queues = lost.flat_map(|entry| &entry.queues).filter(|queue| !queue.id.is_admin());
        deferred.chain(slow).chain(queues.filter_map(|queue| queue.draining.fence_at_ms())).min()
    }

    /// The queues that [`watch`](Self::watch) found to have been draining for [`SLOW_DRAIN_MS`]:
    /// each once.
    pub(super) fn take_slow(&mut self) -> Vec<Drain> {
        core::mem::take(&mut self.slow)
    }
}
