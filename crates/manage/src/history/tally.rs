//! Counters of commands that one thread writes and anyone reads.
//!
//! Each counter has one writer, so an increment is a plain load and store: no atomic
//! read-modify-write on the data path, no lock, no allocation. What the counters are about is up to
//! who owns them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::KindCounters;
use super::latency;

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`; only the owning thread may call this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters of one kind of command.
#[derive(Debug)]
pub struct KindTally {
    /// Commands completed.
    pub commands: Counter,
    /// Bytes of data moved.
    pub bytes: Counter,
    /// Commands completed with a status other than success.
    pub errors: Counter,
    /// Sum of the latencies, microseconds.
    pub latency_sum_us: Counter,
    /// Commands by latency: see [`latency::bucket`].
    pub latency: [Counter; latency::BUCKETS],
}

impl Default for KindTally {
    fn default() -> Self {
        Self {
            commands: Counter::default(),
            bytes: Counter::default(),
            errors: Counter::default(),
            latency_sum_us: Counter::default(),
            latency: std::array::from_fn(|_| Counter::default()),
        }
    }
}

impl KindTally {
    /// Counts one completed command; only the owning thread may call this.
    #[inline]
    pub fn count(&self, bytes: u64, failed: bool, latency_us: u64) {
        self.commands.add(1);
        self.bytes.add(bytes);
        if failed {
            self.errors.add(1);
        }
        self.latency_sum_us.add(latency_us);
        self.latency[latency::bucket(latency_us)].add(1);
    }

    /// Counts one completed command without its latency, which [`KindTally::time`] tells later;
    /// only the owning thread may call this.
    #[inline]
    pub fn count_untimed(&self, bytes: u64, failed: bool) {
        self.commands.add(1);
        self.bytes.add(bytes);
        if failed {
            self.errors.add(1);
        }
    }

    /// So many commands took so long each; only the owning thread may call this.
    pub fn time(&self, commands: u32, latency_us: u64) {
        self.latency_sum_us.add(latency_us.saturating_mul(commands.into()));
        self.latency[latency::bucket(latency_us)].add(commands.into());
    }

    /// Adds what was counted to `sum`.
    pub fn add_to(&self, sum: &mut KindCounters) {
        sum.commands += self.commands.value();
        sum.bytes += self.bytes.value();
        sum.errors += self.errors.value();
        sum.latency_sum_us += self.latency_sum_us.value();
        for (sum, bucket) in sum.latency.0.iter_mut().zip(&self.latency) {
            *sum += bucket.value();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_added() {
        let tally = KindTally::default();
        tally.count(4096, false, 100);
        tally.count(0, true, 20_000);
        let mut sum = KindCounters { commands: 1, ..KindCounters::default() };
        tally.add_to(&mut sum);
        assert_eq!((sum.commands, sum.bytes, sum.errors, sum.latency_sum_us), (3, 4096, 1, 20_100));
        assert_eq!(sum.latency.count(), 2);
        tally.count_untimed(512, false);
        tally.time(1, 7);
        let mut sum = KindCounters::default();
        tally.add_to(&mut sum);
        assert_eq!((sum.commands, sum.bytes, sum.latency_sum_us), (3, 4608, 20_107));
        assert_eq!((sum.latency.count(), sum.latency.below(8)), (3, 1));
    }
}
