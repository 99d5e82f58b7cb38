//! What a daemon has counted, as it tells its clients: JSON with the buckets that are not empty.
//!
//! Numbers of a daemon are taken as they come, but no sum of them overflows.

use std::collections::BTreeMap;

use ebof_initiator::{PathReport, Trouble};
use ebof_manage::history::latency::BUCKETS;
use ebof_manage::history::{KINDS, KindCounters, ObjectCounters};
use serde::{Deserialize, Serialize};

use crate::block_queue::counting::{Sum, Sums};

/// The most queues, and the most namespaces, that are told; each takes some kilobytes.
const ROWS_MAX: usize = 512;

/// The largest number that is believed: the sum of all rows stays below 2^64.
const NUMBER_MAX: u64 = 1 << 54;

/// The same for the commands of one bucket.
const BUCKET_MAX: u64 = 1 << 44;

/// What a daemon has counted since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Its queues, by identifier.
    pub queues: Vec<Counted>,
    /// Its namespaces, by NSID; 0 is of those that are not counted separately.
    pub namespaces: Vec<Counted>,
    /// The paths, in the order in which they were added.
    #[serde(default)]
    pub paths: Vec<CountedPath>,
    /// What went wrong unnoticed, by its name ([`ebof_initiator::Trouble::name`]).
    #[serde(default)]
    pub troubles: BTreeMap<String, u64>,
}

/// What was counted of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedPath {
    /// The number in its name: 1 in `nvme0c1`.
    pub id: u32,
    /// Commands that are under way on it.
    pub in_flight: u64,
    /// What has succeeded over it: reads, writes (and Write Zeroes), others. Each command counts
    /// for the path that has answered it at last, with all of its time.
    pub kinds: [CountedKind; KINDS],
    /// How long a command takes on it, microseconds, as the policy `latency` measures it.
    pub latency_us: Option<u32>,
    /// Commands that it lost or refused, and that went on over another one.
    pub failovers: u64,
    /// Commands that were sent again after it had lost or refused them.
    pub repeated: u64,
    /// How often commands waited until its lost controller executes nothing any more.
    pub fences: u64,
    /// How long they waited altogether, milliseconds.
    pub fenced_ms: u64,
    /// How often its controller was connected again.
    pub reconnects: u64,
}

/// What one of them has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Its identifier.
    pub id: u32,
    /// Commands that have begun and not ended.
    pub in_flight: u64,
    /// Reads, writes (and Write Zeroes), others.
    pub kinds: [CountedKind; KINDS],
}

/// What was counted of one kind of command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedKind {
    /// Commands completed.
    pub commands: u64,
    /// Bytes of data transferred.
    pub bytes: u64,
    /// Of the commands, those that failed.
    pub errors: u64,
    /// Sum of the latencies, microseconds: from the front to the completion, with reconnects and
    /// repetitions.
    pub latency_sum_us: u64,
    /// Buckets of latencies ([`ebof_manage::history::latency`]) and their commands.
    pub latency: Vec<(usize, u64)>,
}

impl Stats {
    /// Of what was counted.
    pub(crate) fn from_counted(
        sums: &Sums,
        paths: &[PathReport],
        troubles: impl IntoIterator<Item = (Trouble, u64)>,
    ) -> Self {
        let queues = sums.queues.iter().take(ROWS_MAX).map(|(&id, sum)| Counted::from_sum(id.into(), sum));
        let namespaces = sums.namespaces.iter().take(ROWS_MAX).map(|(&id, sum)| Counted::from_sum(id, sum));
        let troubles = troubles.into_iter().filter(|(_, count)| *count > 0);
        let troubles = troubles.map(|(trouble, count)| (trouble.name().to_owned(), count)).collect();
        let paths =
            paths.iter().take(ROWS_MAX).map(|report| CountedPath::from_report(report, sums.paths.get(&report.id.0)));
        Self { queues: queues.collect(), namespaces: namespaces.collect(), paths: paths.collect(), troubles }
    }

    /// The queues, the namespaces and the kinds of trouble, as far as there may be any.
    pub(crate) fn bounded(mut self) -> Self {
        self.queues.truncate(ROWS_MAX);
        self.namespaces.truncate(ROWS_MAX);
        self.paths.truncate(ROWS_MAX);
        self.troubles.retain(|name, _| Trouble::ALL.iter().any(|trouble| trouble.name() == name));
        self
    }
}

impl Counted {
    fn from_sum(id: u32, sum: &Sum) -> Self {
        Self { id, in_flight: sum.in_flight, kinds: sum.counters.kinds.each_ref().map(CountedKind::from_counters) }
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> ObjectCounters {
        ObjectCounters { kinds: self.kinds.each_ref().map(CountedKind::counters), waiting: 0 }
    }
}

impl CountedPath {
    fn from_report(report: &PathReport, counted: Option<&ObjectCounters>) -> Self {
        let troubles = report.controller.troubles();
        let repeated = troubles.into_iter().find(|(trouble, _)| *trouble == Trouble::Repeated);
        Self {
            id: report.id.0,
            in_flight: report.in_flight.into(),
            kinds: counted.map(|counted| counted.kinds.each_ref().map(CountedKind::from_counters)).unwrap_or_default(),
            latency_us: report.latency_us,
            failovers: report.failovers,
            repeated: repeated.map_or(0, |(_, count)| count),
            fences: report.fences,
            fenced_ms: u64::try_from(report.fenced.as_millis()).unwrap_or(u64::MAX),
            reconnects: report.reconnects,
        }
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> ObjectCounters {
        ObjectCounters { kinds: self.kinds.each_ref().map(CountedKind::counters), waiting: 0 }
    }
}

impl CountedKind {
    fn from_counters(kind: &KindCounters) -> Self {
        let KindCounters { commands, bytes, errors, latency_sum_us, latency } = kind;
        let latency = latency.0.iter().copied().enumerate().filter(|(_, commands)| *commands > 0).collect();
        Self { commands: *commands, bytes: *bytes, errors: *errors, latency_sum_us: *latency_sum_us, latency }
    }

    fn counters(&self) -> KindCounters {
        let mut counters = KindCounters {
            commands: self.commands.min(NUMBER_MAX),
            bytes: self.bytes.min(NUMBER_MAX),
            errors: self.errors.min(NUMBER_MAX),
            latency_sum_us: self.latency_sum_us.min(NUMBER_MAX),
            ..KindCounters::default()
        };
        for &(bucket, commands) in self.latency.iter().take(BUCKETS) {
            if let Some(count) = counters.latency.0.get_mut(bucket) {
                *count = commands.min(BUCKET_MAX);
            }
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_queue::Op;
    use crate::block_queue::counting::{Counting, Ended, sums};

    #[test]
    fn what_is_told_is_what_was_counted() {
        let mut counting = Counting::new(3);
        for us in [5, 90, 90, 1 << 30] {
            let at = counting.begin(1);
            counting.end(at, None, Op::Read, Ended { bytes: 4096, failed: us == 90, latency_us: us });
        }
        let sums = sums(&[counting.seen()]);
        let text =
            serde_json::to_string(&Stats::from_counted(&sums, &[], [(Trouble::DataDigest, 7), (Trouble::Lost, 0)]))
                .unwrap();
        let back: Stats = serde_json::from_str(&text).unwrap();
        assert_eq!((back.queues[0].id, back.namespaces[0].id), (3, 1));
        assert_eq!(back.bounded().troubles, BTreeMap::from([("data-digest".to_owned(), 7)]));
        let back: Stats = serde_json::from_str(&text).unwrap();
        assert_eq!(back.queues[0].counters(), sums.queues[&3].counters);
        assert_eq!(back.namespaces[0].counters(), sums.namespaces[&1].counters);
    }

    #[test]
    fn nonsense_overflows_nothing() {
        let kind = CountedKind {
            commands: u64::MAX,
            bytes: u64::MAX,
            errors: u64::MAX,
            latency_sum_us: u64::MAX,
            latency: (0..1000).map(|bucket| (bucket, u64::MAX)).chain([(usize::MAX, 1)]).collect(),
        };
        let counted = Counted { id: 1, in_flight: u64::MAX, kinds: [kind.clone(), kind.clone(), kind] };
        let stats = Stats {
            queues: vec![counted; 2 * ROWS_MAX],
            namespaces: Vec::new(),
            paths: vec![CountedPath::default(); 2 * ROWS_MAX],
            troubles: BTreeMap::from([("x".to_owned(), 1)]),
        };
        let stats = stats.bounded();
        assert!(stats.troubles.is_empty());
        assert_eq!((stats.queues.len(), stats.paths.len()), (ROWS_MAX, ROWS_MAX));
        let mut sum = ObjectCounters::default();
        for counted in &stats.queues {
            let counters = counted.counters();
            sum.kinds.iter_mut().zip(&counters.kinds).for_each(|(sum, kind)| sum.add(kind));
        }
        assert!(sum.kinds[0].latency.count() > 0 && sum.kinds[0].latency.percentile_us(0.99).is_some());
    }
}
