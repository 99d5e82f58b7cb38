//! The history of one object: its counters at the beginning of each interval, and the rings.

use super::ring::SampleRing;
use super::{KindCounters, ObjectCounters, Resolution, Sample};

/// Between two records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elapsed {
    /// The second that the earlier one ended.
    pub(super) from_s: u64,
    /// The second that the later one ends.
    pub(super) to_s: u64,
    /// The time between them by the clock.
    pub(super) elapsed_ms: u64,
}

/// The history of one object.
#[derive(Clone, Debug)]
pub(super) struct ObjectHistory {
    /// The counters as they were last.
    last: ObjectCounters,
    /// What was done since the last second, the last ten, and the last minute.
    intervals: [Interval; 3],
    began_s: u64,
    active_s: u64,
}

#[derive(Clone, Debug, Default)]
struct Interval {
    done: ObjectCounters,
    elapsed_ms: u64,
    ring: SampleRing,
}

impl ObjectHistory {
    /// Of an object that had these counters when the span began, and was idle until then.
    pub(super) fn new(span: Elapsed, last: ObjectCounters) -> Self {
        let intervals = Resolution::ALL.map(|resolution| {
            let elapsed_ms = span.from_s % resolution.step_s() * 1000;
            Interval { elapsed_ms, ..Interval::default() }
        });
        Self { last, intervals, began_s: span.from_s, active_s: span.to_s }
    }

    /// Commands since the start.
    pub(super) fn commands(&self) -> u64 {
        self.last.commands()
    }

    /// The second after which there are samples.
    pub(super) fn began_s(&self) -> u64 {
        self.began_s
    }

    /// The last second in which it did something.
    pub(super) fn active_s(&self) -> u64 {
        self.active_s
    }

    /// Takes the counters at the end of a span.
    pub(super) fn take(&mut self, span: Elapsed, counters: &ObjectCounters) {
        let done = counters.since(&self.last);
        self.last = counters.clone();
        if done.waiting > 0 || done.commands() > 0 {
            self.active_s = span.to_s;
        }
        for interval in &mut self.intervals {
            interval.done.add(&done);
        }
    }

    /// Ends those intervals that end with a span, whether or not the object had counters in it.
    pub(super) fn end_intervals(&mut self, span: Elapsed) {
        for (interval, resolution) in self.intervals.iter_mut().zip(Resolution::ALL) {
            interval.elapsed_ms += span.elapsed_ms;
            let (step_s, slots_max) = (resolution.step_s(), resolution.samples_max());
            let (before, slot) = (span.from_s / step_s, span.to_s / step_s);
            if slot == before {
                continue;
            }
            let done = std::mem::take(&mut interval.done);
            let elapsed_ms = std::mem::take(&mut interval.elapsed_ms);
            // Seconds that nobody looked at are like each other.
            let first = (before + 1).max(slot.saturating_sub(slots_max as u64 - 1));
            (first..=slot).for_each(|slot| interval.ring.push(slot, slots_max, &done, elapsed_ms));
        }
    }

    /// What was done in an interval.
    pub(super) fn sample(&self, resolution: Resolution, slot: u64) -> Sample {
        let [second, ten_seconds, minute] = &self.intervals;
        let interval = match resolution {
            Resolution::Second => second,
            Resolution::TenSeconds => ten_seconds,
            Resolution::Minute => minute,
        };
        interval.ring.sample(slot)
    }
}

impl ObjectCounters {
    /// What was counted since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let kinds = std::array::from_fn(|at| self.kinds[at].since(&before.kinds[at]));
        Self { kinds, waiting: self.waiting }
    }

    /// Commands of all kinds.
    pub(super) fn commands(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.commands).sum()
    }

    /// Adds what was counted later.
    fn add(&mut self, later: &Self) {
        self.kinds.iter_mut().zip(&later.kinds).for_each(|(sum, kind)| sum.add(kind));
        self.waiting = later.waiting;
    }
}

impl KindCounters {
    /// What was counted since `before`: nothing, if they went back. They began anew then, or lost
    /// what somebody counted who is gone; both would look like a burst of commands.
    fn since(&self, before: &Self) -> Self {
        if self.commands < before.commands {
            return Self::default();
        }
        let mut latency = self.latency.clone();
        latency.0.iter_mut().zip(&before.latency.0).for_each(|(now, before)| *now = now.saturating_sub(*before));
        Self {
            commands: self.commands - before.commands,
            bytes: self.bytes.saturating_sub(before.bytes),
            errors: self.errors.saturating_sub(before.errors),
            latency_sum_us: self.latency_sum_us.saturating_sub(before.latency_sum_us),
            latency,
        }
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Self) {
        self.commands += other.commands;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency_sum_us += other.latency_sum_us;
        self.latency.add(&other.latency);
    }
}
