//! What objects of a running target did in each second: for charts, tables and reports.
//!
//! Owns the latency buckets ([`latency`]), [`ObjectCounters`] as they are counted since the start,
//! and [`History`], which keeps the differences in rings of bounded memory. Deliberately knows no
//! clock and no target: times and counters are parameters. Slow commands, each for itself, are in
//! [`slow`]. The JSON form is stable (see
//! `docs/json.md`), guarded by snapshots.

pub mod latency;
pub mod live;
mod name;
mod ring;
mod series;
pub mod slow;
pub mod tally;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::diagnostic::nearest::names;

pub use latency::Latencies;
pub use name::{SeriesKind, SeriesName, SeriesNameError};
use series::{Elapsed, ObjectHistory};
use slow::SlowCommands;

/// The version of the JSON shape of [`Samples`] and [`Overview`].
pub const HISTORY_SCHEMA: u32 = 1;

/// Objects that are remembered, unless told otherwise: at 240 kB each for one that is busy all day,
/// next to nothing for an idle one.
pub const SERIES_MAX: usize = 256;

/// Commands are counted by kind: read (and compare, verify), write (and write zeroes), others.
pub const KINDS: usize = 3;

/// What one object has done since the start, of one kind of command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindCounters {
    /// Commands completed.
    pub commands: u64,
    /// Bytes of data transferred.
    pub bytes: u64,
    /// Of the commands, those with an error status.
    pub errors: u64,
    /// Sum of the latencies, microseconds.
    pub latency_sum_us: u64,
    /// The latencies.
    pub latency: Latencies,
}

/// What one object has done since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounters {
    /// Reads, writes, others.
    pub kinds: [KindCounters; KINDS],
    /// Commands that wait for their turn now.
    pub waiting: u32,
}

names! {
    /// How finely samples are told apart, and how far back they reach.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum Resolution {
        /// One second, for ten minutes.
        #[serde(rename = "1s")]
        Second = "1s";
        /// Ten seconds, for two hours.
        #[serde(rename = "10s")]
        TenSeconds = "10s";
        /// A minute, for a day.
        #[serde(rename = "60s")]
        Minute = "60s";
    }
}

/// What an object did of one kind of command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Commands in a second.
    pub commands_per_s: f32,
    /// Bytes in a second.
    pub bytes_per_s: f32,
    /// Of the commands, those that failed, in a second.
    pub errors_per_s: f32,
    /// The mean latency, microseconds; `None` without commands.
    pub mean_us: Option<f32>,
    /// The latency that half of the commands do not exceed, microseconds, within 6 %.
    pub p50_us: Option<u32>,
    /// As `p50_us`, of 99 in 100.
    pub p99_us: Option<u32>,
    /// As `p50_us`, of 999 in 1000.
    pub p999_us: Option<u32>,
}

/// What an object did in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The end of the interval, in milliseconds since 1970-01-01T00:00:00Z.
    pub time_unix_ms: u64,
    /// All commands.
    pub all: Flow,
    /// Reads.
    pub read: Flow,
    /// Writes.
    pub write: Flow,
    /// Other commands.
    pub other: Flow,
    /// Commands that waited for their turn at the end of the interval.
    pub waiting: u32,
}

/// The samples of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// [`HISTORY_SCHEMA`].
    pub history_schema: u32,
    /// The object.
    pub object: SeriesName,
    /// How long each interval is.
    pub resolution: Resolution,
    /// The intervals, the latest last. None is missing: one without commands is all zeros.
    pub samples: Vec<Sample>,
}

/// What every object did in the latest second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// [`HISTORY_SCHEMA`].
    pub history_schema: u32,
    /// The end of that second, in milliseconds since 1970-01-01T00:00:00Z; 0 before the first.
    pub time_unix_ms: u64,
    /// The most objects that are remembered.
    pub series_max: usize,
    /// Objects that have made room for others since the start, with their past.
    pub dropped: u64,
    /// Objects of the latest second for which there is no room.
    pub left_out: u64,
    /// The objects, by kind and name.
    pub objects: Vec<ObjectSample>,
}

/// What an object did in the latest second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectSample {
    /// The object.
    pub object: SeriesName,
    /// Its part, 0 to 1, of what all objects of its kind had, functions of what those of their
    /// drive had: commands and their pages of 4 KiB count. `None` where nothing was done.
    pub share: Option<f32>,
    /// What it did.
    #[serde(flatten)]
    pub sample: Sample,
}

/// Which samples are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Of which object.
    pub object: SeriesName,
    /// How fine.
    pub resolution: Resolution,
    /// Intervals that end later than this only, in milliseconds since 1970-01-01T00:00:00Z.
    pub after_unix_ms: u64,
    /// Intervals that end later than this not.
    pub until_unix_ms: u64,
}

/// There are no samples of an object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0} has had no I/O commands since the target was started, or has made room for others that had")]
pub struct NoSamples(pub SeriesName);

/// A running target that remembers what its objects did.
pub trait Measured: Send + Sync {
    /// What every object did in the latest second.
    fn overview(&self) -> Overview;

    /// What an object did, interval by interval.
    ///
    /// # Errors
    /// Nothing is known about it.
    fn samples(&self, query: &Query) -> Result<Samples, NoSamples>;

    /// What each queue with I/O commands did in the latest second.
    fn queues(&self) -> live::LiveTable;

    /// The commands that took long: the latest, and how many there were.
    fn slow(&self) -> SlowCommands;

    /// Forgets them, and tells how many were remembered.
    fn forget_slow(&self) -> usize;
}

/// What objects did.
#[derive(Clone, Debug)]
pub struct History {
    series: HashMap<SeriesName, ObjectHistory>,
    /// Commands of objects of the latest second for which there is no room.
    outside: HashMap<SeriesName, u64>,
    series_max: usize,
    dropped: u64,
    left_out: u64,
    /// The latest second that is complete, since the start.
    latest_s: u64,
    /// When it ended, by the clock of the caller.
    latest_ms: u64,
    /// When the target was started, in milliseconds since 1970-01-01T00:00:00Z.
    start_unix_ms: u64,
}

impl History {
    /// Of nothing yet. It remembers at most `series_max` objects.
    #[must_use]
    pub fn new(series_max: usize) -> Self {
        let (series, outside, dropped, left_out) = (HashMap::new(), HashMap::new(), 0, 0);
        Self { series, outside, series_max, dropped, left_out, latest_s: 0, latest_ms: 0, start_unix_ms: 0 }
    }

    /// Takes the counters of all objects at `now_ms`, milliseconds since the start, when it is
    /// `now_unix_ms` for people. To be called once in a second; what is called too early is
    /// ignored, what is late covers several seconds, which then are alike.
    pub fn record<'c>(
        &mut self,
        now_ms: u64,
        now_unix_ms: u64,
        objects: impl IntoIterator<Item = (SeriesName, &'c ObjectCounters)>,
    ) {
        let Some(elapsed) = self.advance(now_ms, now_unix_ms) else { return };
        self.left_out = 0;
        let outside = std::mem::take(&mut self.outside);
        for (name, counters) in objects {
            match self.series.get_mut(&name) {
                Some(series) => series.take(elapsed, counters),
                None => self.begin(elapsed, outside.get(&name).copied(), name, counters),
            }
        }
        self.series.values_mut().for_each(|series| series.end_intervals(elapsed));
    }

    /// As `record` with counters that have not changed.
    pub fn record_idle(&mut self, now_ms: u64, now_unix_ms: u64) {
        let Some(elapsed) = self.advance(now_ms, now_unix_ms) else { return };
        self.left_out = 0;
        self.series.values_mut().for_each(|series| series.end_intervals(elapsed));
    }

    /// The time since the last record; `None` if that was in this second.
    fn advance(&mut self, now_ms: u64, now_unix_ms: u64) -> Option<Elapsed> {
        let now_s = now_ms.saturating_add(500) / 1000;
        if now_s <= self.latest_s {
            return None;
        }
        let elapsed_ms = now_ms.saturating_sub(self.latest_ms).max(1);
        let elapsed = Elapsed { from_s: self.latest_s, to_s: now_s, elapsed_ms };
        (self.latest_s, self.latest_ms) = (now_s, now_ms);
        self.start_unix_ms = now_unix_ms.saturating_sub(now_ms);
        Some(elapsed)
    }

    /// Begins to remember an object if it does something, and if there is room. `before` is how
    /// many commands it had when it was seen last and not remembered.
    fn begin(&mut self, span: Elapsed, before: Option<u64>, name: SeriesName, counters: &ObjectCounters) {
        let commands = counters.commands();
        if commands == before.unwrap_or(0) && counters.waiting == 0 {
            // What was never seen and did nothing is not worth an entry.
            if before.is_some() {
                self.put_outside(name, commands);
            }
            return;
        }
        if !self.make_room(name.kind, span.to_s) {
            self.left_out += 1;
            self.put_outside(name, commands);
            return;
        }
        // What one did that was not remembered is not what it did in this second.
        let last = if before.is_some() { counters.clone() } else { ObjectCounters::default() };
        let mut series = ObjectHistory::new(span, last);
        series.take(span, counters);
        self.series.insert(name, series);
    }

    /// Remembers how many commands an object has had for which there is no room.
    fn put_outside(&mut self, name: SeriesName, commands: u64) {
        if self.outside.len() < OUTSIDE_MAX {
            self.outside.insert(name, commands);
        }
    }

    /// The latest second of every object.
    #[must_use]
    pub fn overview(&self) -> Overview {
        let mut objects: Vec<_> = self.series.iter().map(|(name, series)| self.latest(name, series)).collect();
        objects.sort_by(|one, other| one.object.cmp(&other.object));
        let mut totals = HashMap::<String, f32>::new();
        for ObjectSample { object, sample, .. } in &objects {
            *totals.entry(object.group()).or_default() += sample.all.service_per_s();
        }
        for ObjectSample { object, sample, share } in &mut objects {
            let total = totals.get(&object.group()).copied().unwrap_or_default();
            *share = (total > 0.0).then(|| sample.all.service_per_s() / total);
        }
        let time_unix_ms = if self.latest_s == 0 { 0 } else { self.unix_ms(self.latest_s) };
        let Self { series_max, dropped, left_out, .. } = *self;
        Overview { history_schema: HISTORY_SCHEMA, time_unix_ms, series_max, dropped, left_out, objects }
    }

    /// The samples of an object.
    ///
    /// # Errors
    /// Nothing is known about it.
    pub fn samples(&self, query: &Query) -> Result<Samples, NoSamples> {
        let Query { object, resolution, after_unix_ms, until_unix_ms } = query;
        let series = self.series.get(object).ok_or_else(|| NoSamples(object.clone()))?;
        let step_s = resolution.step_s();
        let last = self.latest_s / step_s;
        let first = last.saturating_sub(resolution.samples_max() as u64 - 1).max(series.began_s() / step_s + 1);
        let wanted = (first..=last).filter_map(|slot| {
            let time_unix_ms = self.unix_ms(slot * step_s);
            let is_wanted = time_unix_ms > *after_unix_ms && time_unix_ms <= *until_unix_ms;
            is_wanted.then(|| Sample { time_unix_ms, ..series.sample(*resolution, slot) })
        });
        let samples = wanted.collect();
        Ok(Samples { history_schema: HISTORY_SCHEMA, object: object.clone(), resolution: *resolution, samples })
    }

    fn latest(&self, name: &SeriesName, series: &ObjectHistory) -> ObjectSample {
        let time_unix_ms = self.unix_ms(self.latest_s);
        let sample = Sample { time_unix_ms, ..series.sample(Resolution::Second, self.latest_s) };
        ObjectSample { object: name.clone(), share: None, sample }
    }

    fn unix_ms(&self, second: u64) -> u64 {
        self.start_unix_ms.saturating_add(second.saturating_mul(1000))
    }

    /// Whether there is room for another object of this kind; the one that has been idle for
    /// longest makes it, unless all are busy. Hosts choose their names, and so have a part of it
    /// only.
    fn make_room(&mut self, kind: SeriesKind, now_s: u64) -> bool {
        let is_host = kind == SeriesKind::Host;
        let hosts_max = self.series_max / 4;
        let room = if is_host { hosts_max } else { self.series_max - hosts_max };
        let rivals = || self.series.iter().filter(|(name, _)| (name.kind == SeriesKind::Host) == is_host);
        if rivals().count() < room {
            return true;
        }
        let idlest = rivals()
            .min_by_key(|(_, series)| series.active_s())
            .filter(|(_, series)| now_s.saturating_sub(series.active_s()) >= IDLE_S);
        let Some(idlest) = idlest.map(|(name, _)| name.clone()) else { return false };
        if let Some(series) = self.series.remove(&idlest) {
            self.put_outside(idlest, series.commands());
        }
        self.dropped += 1;
        true
    }
}

/// Objects without room that are remembered by their commands only. Of more than that, some would
/// show what they did before as one burst.
const OUTSIDE_MAX: usize = 16384;

/// How long an object must have been idle to make room for another, seconds.
const IDLE_S: u64 = 60;

impl Resolution {
    /// The length of an interval, seconds.
    #[must_use]
    pub const fn step_s(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::TenSeconds => 10,
            Self::Minute => 60,
        }
    }

    /// Intervals that are remembered.
    #[must_use]
    pub const fn samples_max(self) -> usize {
        match self {
            Self::Second => 600,
            Self::TenSeconds => 720,
            Self::Minute => 1440,
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resolution| resolution.name() == name)
    }
}

impl Flow {
    /// Commands that were under way, on average.
    #[must_use]
    pub fn depth(&self) -> f32 {
        self.commands_per_s * self.mean_us.unwrap_or_default() / 1e6
    }

    /// What shares are measured in: one for each command, and one for each 4 KiB.
    #[must_use]
    pub fn service_per_s(&self) -> f32 {
        self.commands_per_s + self.bytes_per_s / 4096.0
    }
}

#[cfg(test)]
mod tests;
