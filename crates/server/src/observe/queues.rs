//! What queues do now, for those who ask: remembers the latest look at the counters of all queues
//! while somebody does ([0080](../../../../docs/adr/0080-top.md)). Nothing is kept of what they did
//! before. The looks are in `report/sampling.rs`.

use std::sync::{Mutex, PoisonError};

use ebof_manage::history::live::{Live, LiveObject, LiveTable};

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

impl Queues {
    /// What was done between the latest two looks; the first who asks for a while has the first one
    /// taken, at `now_ms` and `now_unix_ms`.
    pub(crate) fn table(&self, now_ms: u64, now_unix_ms: u64, looks: impl FnOnce() -> Vec<LiveObject>) -> LiveTable {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = state.get_or_insert_with(|| {
            let mut live = Live::new(QUEUES_MAX, ROWS_MAX);
            live.take(now_ms, now_unix_ms, looks());
            Asked { live, last_ms: now_ms }
        });
        asked.last_ms = now_ms;
        asked.live.table().clone()
    }

    /// Looks at the queues if somebody has asked lately; to be called once in a second.
    pub(crate) fn tick(&self, now_ms: u64, now_unix_ms: u64, looks: impl FnOnce() -> Vec<LiveObject>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            Some(asked) if now_ms.saturating_sub(asked.last_ms) <= ASKED_MS => {
                asked.live.take(now_ms, now_unix_ms, looks());
            }
            asked => *asked = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_looks_unless_somebody_asks() {
        let queues = Queues::default();
        let never = || panic!("a look that nobody has asked for");
        queues.tick(0, 0, never);
        assert_eq!(queues.table(1_000, 1_000, Vec::new).time_unix_ms, 0);
        queues.tick(1_000 + ASKED_MS, 20_000, Vec::new);
        assert_eq!(queues.table(1_000 + ASKED_MS, 20_000, never).time_unix_ms, 20_000);
        queues.tick(1_001 + 2 * ASKED_MS, 30_000, never);
        queues.tick(1_002 + 2 * ASKED_MS, 30_000, never);
        assert_eq!(queues.table(1_003 + 2 * ASKED_MS, 30_000, Vec::new).time_unix_ms, 0, "it was forgotten");
    }
}
