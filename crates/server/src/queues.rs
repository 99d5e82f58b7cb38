//! What queues do now, for those who ask: looks at the counters of all queues while somebody does
//! ([0080](../../../docs/adr/0080-top.md)). Nothing is kept of what they did before.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use ebof_manage::history::ObjectCounters;
use ebof_manage::history::live::{Live, LiveKind, LiveObject, LiveTable};

use crate::sampling::Owners;
use crate::serve::Target;
use crate::shared::Shared;
use crate::stats::QueueStats;

/// Queues that are looked at: 13 KB each while somebody asks.
const QUEUES_MAX: usize = 4096;

/// Queues that are shown: those that did most.
const ROWS_MAX: usize = 256;

/// How long queues are looked at after somebody has asked.
const ASKED_MS: u64 = 10_000;

/// The queues, while somebody asks.
#[derive(Debug, Default)]
pub(crate) struct Queues(Mutex<Option<Asked>>);

#[derive(Debug)]
struct Asked {
    live: Live,
    last_ms: u64,
}

impl Target {
    /// What each queue with I/O commands did in the latest second: those that did most. The first
    /// who asks for a while gets no rates yet.
    #[must_use]
    pub fn queues(&self) -> LiveTable {
        let shared = &self.shared;
        let now_ms = shared.clock.now_ms();
        let mut asked = shared.queues.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = asked.get_or_insert_with(|| {
            let mut live = Live::new(QUEUES_MAX, ROWS_MAX);
            live.take(now_ms, shared.clock.unix_ms(), looks(shared));
            Asked { live, last_ms: now_ms }
        });
        asked.last_ms = now_ms;
        asked.live.table().clone()
    }
}

impl Queues {
    /// Looks at the queues if somebody has asked lately; to be called once in a second.
    pub(crate) fn tick(&self, shared: &Shared) {
        let now_ms = shared.clock.now_ms();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            Some(asked) if now_ms.saturating_sub(asked.last_ms) <= ASKED_MS => {
                asked.live.take(now_ms, shared.clock.unix_ms(), looks(shared));
            }
            asked => *asked = None,
        }
    }
}

/// Subsystem, controller and identifier of a queue.
type Key<'a> = (&'a str, u16, u16);

/// All queues that have had I/O commands, with their counters.
fn looks(shared: &Shared) -> Vec<LiveObject> {
    let owners = Owners::of(shared);
    let stats = shared.live_stats();
    let mut queues: HashMap<Key<'_>, (&QueueStats, ObjectCounters)> = HashMap::new();
    // A queue has counters for each of its namespaces.
    for stats in stats.iter().map(Arc::as_ref) {
        let key = (stats.subsystem.as_str(), stats.controller, stats.queue);
        let (_, counters) = queues.entry(key).or_insert_with(|| (stats, ObjectCounters::default()));
        counters.kinds.iter_mut().zip(&stats.kinds).for_each(|(sum, kind)| kind.add_to(sum));
    }
    let look = |(stats, counters): (&QueueStats, ObjectCounters)| {
        let QueueStats { host, subsystem, port, controller, queue, .. } = stats;
        let object = LiveKind::Queue.named(format!("{}/c{controller}/q{queue}", owners.object(subsystem)));
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let labels = BTreeMap::from([
            label("host", host),
            label("subsystem", subsystem),
            label("port", port),
            label("controller", &controller.to_string()),
            label("queue", &queue.to_string()),
        ]);
        LiveObject { object, counters, in_flight: None, labels }
    };
    queues.into_values().map(look).collect()
}
