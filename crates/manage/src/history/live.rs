//! What objects do now that have no history: queues of a target, and what a host has attached.
//!
//! Owns [`Live`], which makes rates and percentiles of two looks at counters, and [`LiveTable`],
//! whose JSON form is stable (see `docs/json.md`). Who looks, and when, is up to the caller: of
//! objects that nobody asks about nothing is kept.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use super::{ObjectCounters, Sample, ring};
use crate::diagnostic::nearest::names;

/// The version of the JSON shape of [`LiveTable`].
pub const LIVE_SCHEMA: u32 = 1;

/// Looks that are closer than this to the one before are ignored: rates of a few milliseconds are
/// noise.
pub const LOOK_MS_MIN: u64 = 250;

names! {
    /// What an object is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum LiveKind {
        /// A controller that a host is connected to.
        Controller = "controller";
        /// A namespace that a host has as a block device.
        Namespace = "namespace";
        /// A path to a subsystem that a host has.
        Path = "path";
        /// A queue.
        Queue = "queue";
    }
}

/// The name of an object, `queue:d3/vf2/c1/q2` in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LiveName {
    /// What it is.
    pub kind: LiveKind,
    /// Its name among those of its kind.
    pub name: String,
}

/// Why a text names no object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` does not name an object: want controller:NAME, namespace:NAME, path:NAME or queue:NAME")]
pub struct LiveNameError(String);

/// An object, and what it has counted since it began.
#[derive(Clone, Debug)]
pub struct LiveObject {
    /// The object.
    pub object: LiveName,
    /// What it has counted.
    pub counters: ObjectCounters,
    /// Commands that are under way now, if that is counted.
    pub in_flight: Option<u64>,
    /// What else is known about it, for people and programs.
    pub labels: BTreeMap<String, String>,
}

/// What objects did between the latest two looks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveTable {
    /// [`LIVE_SCHEMA`].
    pub live_schema: u32,
    /// When they were looked at, in milliseconds since 1970-01-01T00:00:00Z; 0 before the second
    /// look.
    pub time_unix_ms: u64,
    /// The most rows.
    pub rows_max: usize,
    /// Objects for which there is no row: those that did least.
    pub left_out: u64,
    /// The objects, by kind and name.
    pub rows: Vec<LiveRow>,
}

/// What an object did between the latest two looks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveRow {
    /// The object.
    pub object: LiveName,
    /// Its part, 0 to 1, of what all rows of its kind had: commands and their pages of 4 KiB count.
    /// `None` where nothing was done.
    pub share: Option<f32>,
    /// Commands that were under way at the second look; `None` where that is not counted.
    pub in_flight: Option<u64>,
    /// What else is known about it.
    pub labels: BTreeMap<String, String>,
    /// What it did.
    #[serde(flatten)]
    pub sample: Sample,
}

/// The counters of the latest look, and what was done before it.
#[derive(Clone, Debug)]
pub struct Live {
    objects_max: usize,
    last: HashMap<LiveName, ObjectCounters>,
    latest_ms: Option<u64>,
    table: LiveTable,
}

impl Live {
    /// At most `objects_max` objects are looked at, and at most `rows_max` of them have a row.
    #[must_use]
    pub fn new(objects_max: usize, rows_max: usize) -> Self {
        let table = LiveTable { live_schema: LIVE_SCHEMA, time_unix_ms: 0, rows_max, left_out: 0, rows: Vec::new() };
        Self { objects_max, last: HashMap::new(), latest_ms: None, table }
    }

    /// Takes the counters of all objects at `now_ms` of a clock that only goes on, when it is
    /// `now_unix_ms` for people. What was not there at the look before has done nothing yet: when
    /// it began is not known. A look that is too early is ignored.
    pub fn take(&mut self, now_ms: u64, now_unix_ms: u64, looks: impl IntoIterator<Item = LiveObject>) {
        let elapsed_ms = self.latest_ms.map(|latest_ms| now_ms.saturating_sub(latest_ms));
        if elapsed_ms.is_some_and(|elapsed_ms| elapsed_ms < LOOK_MS_MIN) {
            return;
        }
        self.latest_ms = Some(now_ms);
        let time_unix_ms = if elapsed_ms.is_some() { now_unix_ms } else { 0 };
        let mut before = std::mem::take(&mut self.last);
        let mut rows = Vec::new();
        let mut left_out = 0;
        for LiveObject { object, counters, in_flight, labels } in looks {
            if self.last.len() >= self.objects_max && !self.last.contains_key(&object) {
                left_out += 1;
                continue;
            }
            let done = before.remove(&object).map(|before| counters.since(&before)).unwrap_or_default();
            let sample = Sample { time_unix_ms, ..ring::sample_of(&done, elapsed_ms.unwrap_or(1).max(1)) };
            if self.last.insert(object.clone(), counters).is_none() {
                rows.push(LiveRow { object, share: None, in_flight, labels, sample });
            }
        }
        let rows_max = self.table.rows_max;
        if rows.len() > rows_max {
            let busy = |row: &LiveRow| row.sample.all.service_per_s();
            rows.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
            left_out += (rows.len() - rows_max) as u64;
            rows.truncate(rows_max);
        }
        rows.sort_by(|one, other| one.object.cmp(&other.object));
        share_out(&mut rows);
        self.table = LiveTable { time_unix_ms, left_out, rows, ..self.table };
    }

    /// What was done between the latest two looks.
    #[must_use]
    pub fn table(&self) -> &LiveTable {
        &self.table
    }
}

/// Tells each row what its share is.
fn share_out(rows: &mut [LiveRow]) {
    let mut totals = HashMap::<LiveKind, f32>::new();
    for row in &*rows {
        *totals.entry(row.object.kind).or_default() += row.sample.all.service_per_s();
    }
    for row in rows {
        let total = totals.get(&row.object.kind).copied().unwrap_or_default();
        row.share = (total > 0.0).then(|| row.sample.all.service_per_s() / total);
    }
}

impl LiveKind {
    /// The object of this kind and name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> LiveName {
        LiveName { kind: self, name: name.into() }
    }
}

impl Ord for LiveName {
    /// By kind and name; numbers in names by their value, so that `q10` comes after `q9`.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let kinds = self.kind.cmp(&other.kind);
        kinds.then_with(|| pieces(&self.name).cmp(&pieces(&other.name))).then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for LiveName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A text as pieces without digits and the numbers behind them.
fn pieces(text: &str) -> Vec<(&str, u64)> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let digits_at = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(digits_at);
        let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let (digits, behind) = behind.split_at(end);
        pieces.push((word, digits.parse().unwrap_or(0)));
        rest = behind;
    }
    pieces
}

impl fmt::Display for LiveName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.name)
    }
}

impl FromStr for LiveName {
    type Err = LiveNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = text.split_once(':').and_then(|(kind, name)| {
            let kind = LiveKind::ALL.into_iter().find(|known| known.name() == kind)?;
            (!name.is_empty()).then(|| kind.named(name))
        });
        named.ok_or_else(|| LiveNameError(text.chars().filter(|c| !c.is_control()).take(64).collect()))
    }
}

impl Serialize for LiveName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LiveName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::super::latency::bucket;
    use super::*;

    /// An object that has read so many blocks of 4 KiB, each in 100 µs.
    fn look(name: &str, commands: u64) -> LiveObject {
        let mut counters = ObjectCounters::default();
        let read = &mut counters.kinds[0];
        (read.commands, read.bytes, read.latency_sum_us) = (commands, commands * 4096, commands * 100);
        read.latency.0[bucket(100)] = commands;
        let labels = BTreeMap::from([("port".to_owned(), "fabric0".to_owned())]);
        LiveObject { object: LiveKind::Queue.named(name), counters, in_flight: Some(3), labels }
    }

    fn names(live: &Live) -> Vec<&str> {
        live.table().rows.iter().map(|row| row.object.name.as_str()).collect()
    }

    #[test]
    fn two_looks_make_rates() {
        let mut live = Live::new(10, 10);
        assert!(live.table().rows.is_empty());
        live.take(1_000, 50_000, [look("c1/q10", 1_000), look("c1/q2", 0)]);
        assert_eq!((names(&live), live.table().time_unix_ms), (vec!["c1/q2", "c1/q10"], 0));
        assert!(live.table().rows.iter().all(|row| row.sample.all.commands_per_s == 0.0), "one look measures nothing");
        live.take(3_000, 52_000, [look("c1/q10", 1_600), look("c1/q2", 200), look("c1/q3", 99)]);
        insta::assert_snapshot!("live", serde_json::to_string_pretty(live.table()).unwrap());
        let back: LiveTable = serde_json::from_str(&serde_json::to_string(live.table()).unwrap()).unwrap();
        assert_eq!(back, *live.table());
        // Too early, and then counters that went back: somebody began anew.
        live.take(3_100, 52_100, [look("c1/q10", 5_000)]);
        assert_eq!(names(&live), ["c1/q2", "c1/q3", "c1/q10"]);
        live.take(4_000, 53_000, [look("c1/q10", 7)]);
        assert_eq!((names(&live), live.table().rows[0].sample.all.commands_per_s), (vec!["c1/q10"], 0.0));
    }

    #[test]
    fn what_is_looked_at_and_shown_has_limits() {
        let mut live = Live::new(3, 2);
        let all =
            |more: u64| ["a", "b", "c", "d", "d"].into_iter().zip(0..).map(move |(name, at)| look(name, at * more));
        live.take(0, 0, all(1));
        live.take(1_000, 1_000, all(100));
        assert_eq!((names(&live), live.table().left_out), (vec!["b", "c"], 3), "the busiest of those looked at");
        assert_eq!(live.table().rows[1].share.map(|share| (share * 3.0).round()), Some(2.0));
        // The same object twice is one.
        live.take(2_000, 2_000, [look("a", 1), look("a", 2)]);
        assert_eq!(names(&live), ["a"]);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["queue:d3/vf2/c1/q2", "namespace:nvme0n1", "controller:nvme0", "path:nvme0c1"] {
            assert_eq!(text.parse::<LiveName>().unwrap().to_string(), text);
        }
        for text in ["", "queue", "queue:", "target", "drive:d3"] {
            text.parse::<LiveName>().unwrap_err();
        }
        let long = LiveKind::Queue.named(format!("q{}", "9".repeat(50)));
        assert!(long > LiveKind::Queue.named("q"), "{long}");
    }
}
