//! Counters of one queue and namespace: written by the thread that owns the queue, read by anyone.
//!
//! Each counter has one writer, so an increment is a plain load and store: no atomic
//! read-modify-write on the data path.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the latency buckets, microseconds; one more bucket holds what is slower.
pub const LATENCY_BOUNDS_US: [u64; 16] =
    [10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000, 10_000_000];

/// Namespaces that one queue counts separately.
pub(crate) const SERIES_MAX: usize = 64;

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`; only the owning thread may call this.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The value now.
    #[must_use]
    pub(crate) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

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

/// Counters of one kind of command.
#[derive(Debug, Default)]
pub(crate) struct KindStats {
    /// Commands completed.
    pub commands: Counter,
    /// Bytes of data moved.
    pub bytes: Counter,
    /// Commands completed with a status other than success.
    pub errors: Counter,
    /// Sum of the latencies, microseconds.
    pub latency_sum_us: Counter,
    /// Commands by latency: see [`LATENCY_BOUNDS_US`].
    pub latency: [Counter; LATENCY_BOUNDS_US.len() + 1],
}

/// Counters of one queue and one namespace.
#[derive(Debug)]
pub(crate) struct QueueStats {
    /// Host NQN.
    pub host: String,
    /// Subsystem NQN.
    pub subsystem: String,
    /// Queue ID.
    pub queue: u16,
    /// Namespace; 0 for commands that are about none.
    pub nsid: u32,
    /// By kind, in the order of [`Kind::ALL`].
    pub kinds: [KindStats; 3],
}

impl QueueStats {
    /// Counts one completed command.
    #[inline]
    pub(crate) fn count(&self, kind: Kind, bytes: u64, failed: bool, latency_us: u64) {
        let stats = &self.kinds[kind as usize];
        stats.commands.add(1);
        stats.bytes.add(bytes);
        if failed {
            stats.errors.add(1);
        }
        stats.latency_sum_us.add(latency_us);
        let bucket = LATENCY_BOUNDS_US.iter().position(|&bound| latency_us <= bound).unwrap_or(LATENCY_BOUNDS_US.len());
        stats.latency[bucket].add(1);
    }
}

/// Which commands a total is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Series {
    /// Host NQN.
    pub host: String,
    /// Subsystem NQN.
    pub subsystem: String,
    /// Queue ID.
    pub queue: u16,
    /// Namespace; 0 gathers what is not counted separately.
    pub nsid: u32,
}

/// The counters of one kind of command, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindTotals {
    /// Commands completed.
    pub commands: u64,
    /// Bytes of data moved.
    pub bytes: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Sum of the latencies, microseconds.
    pub latency_sum_us: u64,
    /// Commands by latency: see [`LATENCY_BOUNDS_US`].
    pub latency: [u64; LATENCY_BOUNDS_US.len() + 1],
}

impl KindTotals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.commands += other.commands;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency_sum_us += other.latency_sum_us;
        for (sum, bucket) in self.latency.iter_mut().zip(&other.latency) {
            *sum += bucket;
        }
    }
}

/// Counters added up over queues.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    series: BTreeMap<Series, [KindTotals; 3]>,
}

/// Series that totals hold; hosts choose their NQNs, so what comes beyond is gathered under an
/// empty host name.
const TOTALS_MAX: usize = 4096;

impl Totals {
    /// Adds the counters of one queue.
    pub(crate) fn add(&mut self, stats: &QueueStats) {
        let mut key = Series {
            host: stats.host.clone(),
            subsystem: stats.subsystem.clone(),
            queue: stats.queue,
            nsid: stats.nsid,
        };
        if self.series.len() >= TOTALS_MAX && !self.series.contains_key(&key) {
            key = Series { host: String::new(), subsystem: key.subsystem, queue: 0, nsid: 0 };
        }
        let totals = self.series.entry(key).or_default();
        for (total, kind) in totals.iter_mut().zip(&stats.kinds) {
            total.commands += kind.commands.value();
            total.bytes += kind.bytes.value();
            total.errors += kind.errors.value();
            total.latency_sum_us += kind.latency_sum_us.value();
            for (sum, bucket) in total.latency.iter_mut().zip(&kind.latency) {
                *sum += bucket.value();
            }
        }
    }

    /// The series, in order, with their totals in the order of [`Kind::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (&Series, &[KindTotals; 3])> {
        self.series.iter()
    }
}
