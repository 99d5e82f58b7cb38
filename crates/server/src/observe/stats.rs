//! Counters of one queue and namespace: written by the thread that owns the queue, read by anyone.
//!
//! The counters themselves are in `ebof_manage::history::tally`.

use std::collections::BTreeMap;

pub use ebof_manage::history::KindCounters as KindTotals;
use ebof_manage::history::tally::KindTally;

use crate::observe::host_labels::OTHERS;

/// Namespaces that one queue counts separately.
pub(crate) const SERIES_MAX: usize = 64;

/// What commands are counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read, Compare and Verify.
    Read = 0,
    /// Write and Write Zeroes.
    Write = 1,
    /// Everything else.
    Other = 2,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// The label in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// Counters of one queue and one namespace.
#[derive(Debug)]
pub(crate) struct QueueStats {
    /// Host NQN.
    pub host: String,
    /// The name under which the host is counted with others: see [`crate::observe::host_labels`].
    pub counted_as: String,
    /// Subsystem NQN.
    pub subsystem: String,
    /// Name of the port.
    pub port: String,
    /// Controller ID.
    pub controller: u16,
    /// Queue ID.
    pub queue: u16,
    /// Namespace; 0 for commands that are about none.
    pub nsid: u32,
    /// By kind, in the order of [`Kind::ALL`].
    pub kinds: [KindTally; 3],
}

impl QueueStats {
    /// Counts one completed command.
    #[inline]
    pub(crate) fn count(&self, kind: Kind, bytes: u64, failed: bool, latency_us: u64) {
        self.kinds[kind as usize].count(bytes, failed, latency_us);
    }

    /// Counts one command that was completed at once, whose latency is not known yet.
    #[inline]
    pub(crate) fn count_untimed(&self, kind: Kind, bytes: u64, failed: bool) {
        self.kinds[kind as usize].count_untimed(bytes, failed);
    }

    /// The latency of so many commands that were counted without it.
    pub(crate) fn time(&self, kind: Kind, commands: u32, latency_us: u64) {
        self.kinds[kind as usize].time(commands, latency_us);
    }

    /// Commands of all kinds.
    pub(crate) fn commands(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.commands.value()).sum()
    }
}

/// Which commands a total is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Series {
    /// Host NQN, or [`OTHERS`].
    pub host: String,
    /// Subsystem NQN.
    pub subsystem: String,
    /// Name of the port.
    pub port: String,
    /// Queue ID.
    pub queue: u16,
    /// Namespace; 0 gathers what is not counted separately.
    pub nsid: u32,
}

/// Counters added up over queues.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    series: BTreeMap<Series, [KindTotals; 3]>,
}

/// Series that totals hold; what comes beyond is gathered under [`OTHERS`].
const TOTALS_MAX: usize = 4096;

impl Totals {
    /// Adds the counters of one queue.
    pub(crate) fn add(&mut self, stats: &QueueStats) {
        let mut key = Series {
            host: stats.counted_as.clone(),
            subsystem: stats.subsystem.clone(),
            port: stats.port.clone(),
            queue: stats.queue,
            nsid: stats.nsid,
        };
        if self.series.len() >= TOTALS_MAX && !self.series.contains_key(&key) {
            key = Series { host: OTHERS.to_owned(), queue: 0, nsid: 0, ..key };
        }
        let totals = self.series.entry(key).or_default();
        for (total, kind) in totals.iter_mut().zip(&stats.kinds) {
            kind.add_to(total);
        }
    }

    /// I/O commands of all series.
    pub(crate) fn commands(&self) -> u64 {
        self.series.values().flatten().map(|kind| kind.commands).sum()
    }

    /// The series, in order, with their totals in the order of [`Kind::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (&Series, &[KindTotals; 3])> {
        self.series.iter()
    }
}
