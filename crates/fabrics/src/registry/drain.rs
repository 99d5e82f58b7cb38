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

use alloc::string::String;
use alloc::vec::Vec;

use ebof_nvme::{Nqn, QueueId};

use super::{Attached, Entry, Handle, Key, Notice, Notices, Registry};
use crate::association::Association;
use crate::connect::RefusalReason;

/// How long a Connect is deferred at most, milliseconds. Shorter than the hosts' time-outs for it.
pub const CONNECT_HOLD_MS: u64 = 5_000;

/// After how long without a command a host without a keep-alive time-out may be gone,
/// milliseconds. For others it is half of their time-out.
pub const SILENT_MS: u64 = 2_000;

/// After how long a queue that drains is reported, milliseconds.
pub const SLOW_DRAIN_MS: u64 = 10_000;

/// The most associations of one host with one subsystem that may be draining when it requests
/// another controller. If a device hangs and the host reconnects again and again, this bounds what
/// the target keeps of it.
pub const DRAINING_MAX: usize = 64;

/// A Connect that waits for queues that drain.
#[derive(Debug)]
pub(super) struct Deferred {
    host: Key,
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

/// Since when a queue drains, and whether that was reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Draining {
    since_ms: Option<u64>,
    reported: bool,
}

impl Entry {
    /// Whether the queue is only waited for. Behind a gate that was never open nothing can be.
    fn drains(&self, queue: &Attached) -> bool {
        self.is_open && (queue.detached || self.association.is_closing())
    }

    /// Whether the host has been silent for so long that its connection may be lost.
    fn is_silent(&self, now_ms: u64) -> bool {
        let keep_alive_ms = self.keep_alive.map_or(2 * SILENT_MS, |timer| u64::from(timer.timeout_ms));
        self.last_command_ms().saturating_add(keep_alive_ms / 2) <= now_ms
    }
}

/// Whether both may be of the same host: hosts reconnect with another identifier or another NQN.
fn same_host(one: &Association, other: &Association) -> bool {
    one.subsystem == other.subsystem
        && !one.discovery
        && !other.discovery
        && (one.host == other.host || one.host_id() == other.host_id() && one.host_id() != ebof_nvme::HostId::default())
}

impl Registry {
    /// Whether a Connect for an I/O queue of the controller `key` may be granted now.
    pub(super) fn defer(&mut self, handle: Handle, key: Key, now_ms: u64) -> Result<Deferral, RefusalReason> {
        let looks = if self.deferred.contains_key(&handle) { Vec::new() } else { self.others(key, now_ms) };
        let until_ms = now_ms.saturating_add(CONNECT_HOLD_MS);
        let is_draining = self.is_draining(key);
        let first = Deferred { host: key, until_ms, is_overdue: false, looks: looks.len() };
        let deferred = self.deferred.entry(handle).or_insert(first);
        if deferred.looks == 0 && !is_draining {
            self.deferred.remove(&handle);
            return Ok(Deferral::None);
        }
        if deferred.until_ms <= now_ms {
            self.deferred.remove(&handle);
            return Err(RefusalReason::Draining);
        }
        Ok(Deferral::Wait(looks))
    }

    /// The queues of the host's other associations that have to be checked.
    fn others(&self, key: Key, now_ms: u64) -> Vec<Handle> {
        let Some(own) = self.entries.get(&key) else { return Vec::new() };
        let others = self.entries.iter().filter(|(other, entry)| {
            **other != key
                && entry.is_open
                && !entry.association.is_closing()
                && same_host(&own.association, &entry.association)
        });
        let queues = others.flat_map(|(_, entry)| {
            let is_silent = entry.is_silent(now_ms);
            entry.queues.iter().filter(move |queue| !queue.detached && (queue.id.is_admin() || is_silent))
        });
        queues.map(|queue| queue.handle).collect()
    }

    /// Whether queues of this controller's host drain.
    pub(super) fn is_draining(&self, key: Key) -> bool {
        self.entries.get(&key).is_some_and(|own| self.draining().any(|entry| same_host(&own.association, entry)))
    }

    /// The associations with queues that drain.
    fn draining(&self) -> impl Iterator<Item = &Association> {
        let draining = self.entries.values().filter(|entry| entry.queues.iter().any(|queue| entry.drains(queue)));
        draining.map(|entry| &*entry.association)
    }

    /// Controllers that have ended except for commands of their queues at devices.
    #[must_use]
    pub fn draining_controllers(&self) -> usize {
        self.entries.values().filter(|entry| entry.association.is_closing()).count()
    }

    /// Whether too many associations of a host drain for it to get another controller.
    pub(super) fn drains_too_much(&self, subsystem: &Nqn, host: &Nqn) -> bool {
        let draining = self.entries.values().filter(|entry| {
            let association = &entry.association;
            entry.is_open
                && association.is_closing()
                && association.subsystem == *subsystem
                && association.host == *host
        });
        draining.count() >= DRAINING_MAX
    }

    /// The connection `handle` ends, or has ended: it accepts no more commands, but earlier ones
    /// may still be at a device. If it is the Admin Queue's, the association ends. The caller
    /// delivers the notices, and calls [`closed`](Self::closed) when no command of the queue can
    /// reach the medium any more.
    pub fn ending(&mut self, handle: Handle) -> Notices {
        let mut notices = Notices::new();
        self.deferred.remove(&handle);
        let entry = self.handles.get(&handle).and_then(|key| self.entries.get_mut(key));
        let Some(entry) = entry else { return notices };
        let Some(queue) = entry.queues.iter_mut().find(|queue| queue.handle == handle) else { return notices };
        queue.detached = true;
        let is_admin = queue.id.is_admin();
        entry.count_io_queues();
        if is_admin && !entry.association.is_closing() {
            entry.close(super::CloseReason::AdminQueueLost, &mut notices);
            // It does not need a notice.
            notices.retain(|(to, _)| *to != handle);
        }
        notices
    }

    /// Connects that wait.
    #[must_use]
    pub fn held_connects(&self) -> usize {
        self.deferred.len()
    }

    /// A queue of another association of the host has been checked for a deferred Connect, and the
    /// commands that it had at devices then have completed.
    pub fn looked(&mut self, deferred: Handle) -> Notices {
        let Some(waiting) = self.deferred.get_mut(&deferred) else { return Notices::new() };
        waiting.looks = waiting.looks.saturating_sub(1);
        self.free_deferred()
    }

    /// The Connects that are to be tried again because no queue of their hosts drains any more.
    pub(super) fn free_deferred(&self) -> Notices {
        if self.deferred.is_empty() {
            return Notices::new();
        }
        let draining: Vec<&Association> = self.draining().collect();
        let waits = |deferred: &Deferred| {
            let own = self.entries.get(&deferred.host);
            own.is_some_and(|own| draining.iter().any(|entry| same_host(&own.association, entry)))
        };
        let free = self.deferred.iter().filter(|(_, deferred)| deferred.looks == 0 && !waits(deferred));
        free.map(|(&handle, _)| (handle, Notice::Connect)).collect()
    }

    /// The Connects whose time has expired: they are to be tried again, and are then refused.
    pub(super) fn expire_deferred(&mut self, now_ms: u64, notices: &mut Notices) {
        for (&handle, deferred) in
            self.deferred.iter_mut().filter(|(_, deferred)| !deferred.is_overdue && deferred.until_ms <= now_ms)
        {
            deferred.is_overdue = true;
            notices.push((handle, Notice::Connect));
        }
    }

    /// Updates the times of queues that drain, and records those that have been draining for
    /// [`SLOW_DRAIN_MS`].
    pub(super) fn watch_drains(&mut self, now_ms: u64) {
        for entry in self.entries.values_mut().filter(|entry| entry.is_open) {
            let closing = entry.association.is_closing();
            for queue in entry.queues.iter_mut().filter(|queue| queue.detached || closing) {
                let since_ms = *queue.draining.since_ms.get_or_insert(now_ms);
                if !queue.draining.reported && since_ms.saturating_add(SLOW_DRAIN_MS) <= now_ms {
                    queue.draining.reported = true;
                    self.slow_drains.push(Drain {
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
    pub(super) fn drain_deadline(&self) -> Option<u64> {
        let deferred = self.deferred.values().filter(|deferred| !deferred.is_overdue).map(|deferred| deferred.until_ms);
        let slow = self.entries.values().flat_map(|entry| {
            let draining = entry.queues.iter().filter(|queue| entry.drains(queue) && !queue.draining.reported);
            draining.map(|queue| queue.draining.since_ms.map_or(0, |since| since.saturating_add(SLOW_DRAIN_MS)))
        });
        deferred.chain(slow).min()
    }

    /// The queues that [`expire`](Self::expire) found to have been draining for [`SLOW_DRAIN_MS`]:
    /// each once.
    pub fn take_slow_drains(&mut self) -> Vec<Drain> {
        core::mem::take(&mut self.slow_drains)
    }
}
