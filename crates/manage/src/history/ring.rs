//! The samples of one object at one resolution, packed: idle intervals take no memory.

use std::collections::VecDeque;

use super::latency::{self, Latencies};
use super::{Flow, KINDS, KindCounters, ObjectCounters, Sample};

/// The part of the commands of each percentile.
const PARTS: [f64; 3] = [0.5, 0.99, 0.999];

/// The bucket of a percentile without commands.
const NONE: u8 = u8::MAX;
const _: () = assert!(latency::BUCKETS < NONE as usize);

/// Samples of one resolution, the latest last.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleRing(VecDeque<Packed>);

#[derive(Clone, Copy, Debug)]
struct Packed {
    /// The number of the interval.
    slot: u64,
    kinds: [PackedKind; KINDS],
    /// Percentiles of all commands, as buckets.
    all: [u8; 3],
    waiting: u32,
}

#[derive(Clone, Copy, Debug)]
struct PackedKind {
    commands_per_s: f32,
    bytes_per_s: f32,
    errors_per_s: f32,
    mean_us: f32,
    percentiles: [u8; 3],
}

impl SampleRing {
    /// Remembers what was done in interval `slot`, which took `elapsed_ms`. Of what is older than
    /// `slots_max` intervals nothing is remembered.
    pub(super) fn push(&mut self, slot: u64, slots_max: usize, done: &ObjectCounters, elapsed_ms: u64) {
        self.forget(slot, slots_max);
        if done.waiting == 0 && done.commands() == 0 {
            return;
        }
        if self.0.len() == self.0.capacity() {
            // Doubling would take twice of what it may grow to.
            self.0.reserve_exact(STEP.min(slots_max - self.0.len().min(slots_max)).max(1));
        }
        self.0.push_back(Packed::new(slot, done, elapsed_ms));
    }

    /// Forgets what is too old at interval `slot`.
    pub(super) fn forget(&mut self, slot: u64, slots_max: usize) {
        let oldest = slot.saturating_sub(slots_max as u64 - 1);
        while self.0.front().is_some_and(|front| front.slot < oldest) {
            self.0.pop_front();
        }
    }

    /// What was done in an interval; its time is left to the caller.
    pub(super) fn sample(&self, slot: u64) -> Sample {
        let found = self.0.binary_search_by_key(&slot, |packed| packed.slot);
        found.map_or_else(|_| Sample::default(), |at| self.0[at].unpack())
    }
}

/// What was done in `elapsed_ms`; its time is left to the caller.
pub(super) fn sample_of(done: &ObjectCounters, elapsed_ms: u64) -> Sample {
    Packed::new(0, done, elapsed_ms).unpack()
}

/// By how many samples a ring grows.
const STEP: usize = 60;

impl Packed {
    fn new(slot: u64, done: &ObjectCounters, elapsed_ms: u64) -> Self {
        let mut all = Latencies::default();
        done.kinds.iter().for_each(|kind| all.add(&kind.latency));
        let kinds = std::array::from_fn(|at| PackedKind::new(&done.kinds[at], elapsed_ms));
        Self { slot, kinds, all: buckets(&all), waiting: done.waiting }
    }

    fn unpack(&self) -> Sample {
        let [read, write, other] = self.kinds.map(|kind| kind.unpack());
        let kinds = [read, write, other];
        let sum = |of: fn(&Flow) -> f32| kinds.iter().map(of).sum::<f32>();
        let commands_per_s = sum(|flow| flow.commands_per_s);
        let waited_us: f32 = kinds.iter().map(|flow| flow.mean_us.unwrap_or_default() * flow.commands_per_s).sum();
        let [p50_us, p99_us, p999_us] = self.all.map(latency_us);
        let all = Flow {
            commands_per_s,
            bytes_per_s: sum(|flow| flow.bytes_per_s),
            errors_per_s: sum(|flow| flow.errors_per_s),
            mean_us: (commands_per_s > 0.0).then(|| waited_us / commands_per_s),
            p50_us,
            p99_us,
            p999_us,
        };
        Sample { time_unix_ms: 0, all, read, write, other, waiting: self.waiting }
    }
}

impl PackedKind {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "rates for people")]
    fn new(done: &KindCounters, elapsed_ms: u64) -> Self {
        let per_s = |count: u64| (count as f64 * 1000.0 / elapsed_ms as f64) as f32;
        Self {
            commands_per_s: per_s(done.commands),
            bytes_per_s: per_s(done.bytes),
            errors_per_s: per_s(done.errors),
            mean_us: (done.latency_sum_us as f64 / done.commands.max(1) as f64) as f32,
            percentiles: buckets(&done.latency),
        }
    }

    fn unpack(self) -> Flow {
        let [p50_us, p99_us, p999_us] = self.percentiles.map(latency_us);
        Flow {
            commands_per_s: self.commands_per_s,
            bytes_per_s: self.bytes_per_s,
            errors_per_s: self.errors_per_s,
            mean_us: (self.commands_per_s > 0.0).then_some(self.mean_us),
            p50_us,
            p99_us,
            p999_us,
        }
    }
}

fn buckets(latencies: &Latencies) -> [u8; 3] {
    PARTS.map(|part| latencies.bucket_of(part).and_then(|bucket| u8::try_from(bucket).ok()).unwrap_or(NONE))
}

fn latency_us(bucket: u8) -> Option<u32> {
    (bucket != NONE).then(|| u32::try_from(latency::middle_us(bucket.into())).unwrap_or(u32::MAX))
}
