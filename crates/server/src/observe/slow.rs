//! Slow commands: which were, and where their time went
//! ([0071](../../../../docs/adr/0071-what-happens-while-it-runs.md)).
//!
//! A command has three time stamps beside that of its arrival ([`Marks`]), taken from the clock of
//! the turn, where it goes on after something that may take long. Whether it was slow is one
//! comparison when it completes; all else is done for slow commands only.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ebof_fabrics::Executing;
use ebof_manage::slow::{SLOW_MAX, SLOW_SCHEMA, SlowCommand, SlowCommands, SlowParts};
use ebof_nvme::opcode::{nvm, nvm_name};
use ebof_nvme::{Nsid, Status};

use crate::observe::stats::QueueStats;

/// Slow commands, as numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlowFigures {
    pub(crate) total: u64,
    /// `None` where none is slow.
    pub(crate) threshold_us: Option<u64>,
}

/// When a command went on, microseconds of the target's clock; 0 where it did not have to wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// It got a buffer after it had waited for one.
    pub(crate) buffered_us: u64,
    /// Its data had come from the host.
    pub(crate) fetched_us: u64,
    /// It was handed to its device.
    pub(crate) submitted_us: u64,
}

impl Marks {
    /// The parts of the time from `started_us` to `done_us`.
    fn parts(self, started_us: u64, done_us: u64) -> SlowParts {
        let mut from_us = started_us;
        let mut until = |mark_us: u64| {
            let to_us = if mark_us == 0 { from_us } else { mark_us.clamp(from_us, done_us.max(from_us)) };
            to_us - std::mem::replace(&mut from_us, to_us)
        };
        let buffer_us = until(self.buffered_us);
        let network_us = until(self.fetched_us);
        // What never came to a device waited until its end.
        let queue_us = until(if self.submitted_us == 0 { done_us } else { self.submitted_us });
        SlowParts { buffer_us, network_us, queue_us, device_us: until(done_us) }
    }
}

/// How a command completes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) status: Status,
    pub(crate) bytes: u32,
    pub(crate) started_us: u64,
    pub(crate) marks: Marks,
    pub(crate) now_us: u64,
    pub(crate) time_unix_ms: u64,
    /// What waits to be sent before its answer.
    pub(crate) unsent_bytes: usize,
}

/// The slow commands of a target.
pub(crate) struct Slow {
    /// [`u64::MAX`] where none is slow.
    threshold_us: AtomicU64,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    total: u64,
    latest: VecDeque<Entry>,
}

/// A slow command, as its thread notes it.
struct Entry {
    time_unix_ms: u64,
    stats: Arc<QueueStats>,
    nsid: Nsid,
    opcode: u8,
    lba: u64,
    bytes: u32,
    status: Status,
    total_us: u64,
    parts: SlowParts,
    unsent_bytes: u64,
}

impl Slow {
    pub(crate) fn new(threshold: Duration) -> Self {
        let slow = Self { threshold_us: AtomicU64::new(u64::MAX), noted: Mutex::default() };
        slow.set_threshold(threshold);
        slow
    }

    /// From now on commands are slow that take as long; none for 0.
    pub(crate) fn set_threshold(&self, threshold: Duration) {
        let us = u64::try_from(threshold.as_micros()).unwrap_or(u64::MAX);
        self.threshold_us.store(if us == 0 { u64::MAX } else { us }, Relaxed);
    }

    /// Whether a command was slow.
    #[inline]
    pub(crate) fn is_slow(&self, latency_us: u64) -> bool {
        latency_us >= self.threshold_us.load(Relaxed)
    }

    /// Notes a slow command that completes.
    #[cold]
    #[inline(never)]
    pub(crate) fn note(&self, executing: &Executing, stats: &Arc<QueueStats>, done: &Done) {
        let entry = Entry {
            time_unix_ms: done.time_unix_ms,
            stats: Arc::clone(stats),
            nsid: executing.nsid(),
            opcode: executing.opcode(),
            lba: executing.starting_lba(),
            bytes: done.bytes,
            status: done.status,
            total_us: done.now_us.saturating_sub(done.started_us),
            parts: done.marks.parts(done.started_us, done.now_us),
            unsent_bytes: done.unsent_bytes as u64,
        };
        let mut noted = self.noted();
        noted.total += 1;
        if noted.latest.len() == SLOW_MAX {
            noted.latest.pop_front();
        }
        noted.latest.push_back(entry);
    }

    /// How many there were, and from when on commands are slow.
    pub(crate) fn figures(&self) -> SlowFigures {
        SlowFigures { total: self.noted().total, threshold_us: self.threshold_us() }
    }

    fn threshold_us(&self) -> Option<u64> {
        Some(self.threshold_us.load(Relaxed)).filter(|us| *us != u64::MAX)
    }

    /// The latest, and how many there were. `object` gives the name of a subsystem elsewhere.
    pub(crate) fn commands(&self, object: impl Fn(&str) -> String) -> SlowCommands {
        let threshold_us = self.threshold_us();
        let noted = self.noted();
        let ids = noted.total + 1 - noted.latest.len() as u64..;
        let commands = ids.zip(&noted.latest).map(|(id, entry)| entry.shown(id, &object)).collect();
        SlowCommands { slow_schema: SLOW_SCHEMA, threshold_us, total: noted.total, commands }
    }

    /// Forgets the latest. They are counted all the same, and numbers go on.
    pub(crate) fn forget(&self) -> usize {
        std::mem::take(&mut self.noted().latest).len()
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// As others see it; `object` is the name of its subsystem elsewhere.
    fn shown(&self, id: u64, object: impl Fn(&str) -> String) -> SlowCommand {
        let QueueStats { host, subsystem, port, queue, .. } = &*self.stats;
        let name = nvm_name(self.opcode).unwrap_or("unknown").to_lowercase().replace(' ', "-");
        // Copy names the first block that it writes; these name none.
        let has_lba = !matches!(self.opcode, nvm::FLUSH | nvm::DATASET_MANAGEMENT);
        SlowCommand {
            id,
            time_unix_ms: self.time_unix_ms,
            host_nqn: host.clone(),
            subsystem_nqn: subsystem.clone(),
            object: object(subsystem),
            port: port.clone(),
            queue: *queue,
            nsid: self.nsid.0,
            opcode: self.opcode,
            command: name,
            lba: has_lba.then_some(self.lba),
            bytes: self.bytes,
            status: self.status.to_string(),
            total_us: self.total_us,
            parts: self.parts,
            unsent_bytes: self.unsent_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_all_of_the_time() {
        let parts = |buffered_us, fetched_us, submitted_us| {
            let parts = Marks { buffered_us, fetched_us, submitted_us }.parts(1000, 2000);
            parts.named().map(|(_, us)| us)
        };
        assert_eq!(parts(1100, 1300, 1600), [100, 200, 300, 400]);
        assert_eq!(parts(0, 0, 1000), [0, 0, 0, 1000]);
        assert_eq!(parts(0, 1300, 1300), [0, 300, 0, 700]);
        assert_eq!(parts(0, 1300, 0), [0, 300, 700, 0], "it was given up before a device had it");
        assert_eq!(parts(5000, 1, 1), [1000, 0, 0, 0]);
        let parts = Marks::default().parts(2000, 1000);
        assert_eq!(parts, SlowParts::default());
    }

    #[test]
    fn no_threshold_is_never_reached() {
        let slow = Slow::new(Duration::ZERO);
        assert!(!slow.is_slow(u64::MAX - 1));
        slow.set_threshold(Duration::from_millis(100));
        assert_eq!((slow.is_slow(99_999), slow.is_slow(100_000)), (false, true));
    }
}
