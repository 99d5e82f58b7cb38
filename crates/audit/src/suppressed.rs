//! What strangers can cause any number of is counted where there is much of it: a record says how
//! many were left out.

use std::collections::BTreeMap;

use crate::record::{NewRecord, RecordKind, RecordOutcome};

/// Refusals of a kind that are recorded one by one in a span of time.
const EACH_MAX: u64 = 100;

/// The span, milliseconds.
const SPAN_MS: u64 = 60_000;

/// Counts refusals.
#[derive(Debug, Default)]
pub(crate) struct Suppressed {
    /// By kind: recorded and left out in this span.
    counts: BTreeMap<RecordKind, (u64, u64)>,
    began_ms: u64,
}

impl Suppressed {
    /// Whether a record is to be written. Times are of a clock that only goes on.
    pub(crate) fn admits(&mut self, content: &NewRecord, now_ms: u64) -> bool {
        if !content.is_by_strangers() {
            return true;
        }
        if self.counts.is_empty() {
            self.began_ms = now_ms;
        }
        let (recorded, left_out) = self.counts.entry(content.kind).or_default();
        if *recorded < EACH_MAX {
            *recorded += 1;
            return true;
        }
        *left_out += content.count;
        false
    }

    /// What was left out in a span that is over.
    pub(crate) fn due(&mut self, now_ms: u64) -> Vec<NewRecord> {
        if self.counts.is_empty() || now_ms.saturating_sub(self.began_ms) < SPAN_MS {
            return Vec::new();
        }
        self.all()
    }

    /// What was left out so far.
    pub(crate) fn all(&mut self) -> Vec<NewRecord> {
        let counts = std::mem::take(&mut self.counts);
        let left_out = counts.into_iter().filter(|(_, (_, left_out))| *left_out > 0);
        left_out
            .map(|(kind, (_, count))| {
                let detail = format!("refusals of kind {} beyond {EACH_MAX} in a minute are only counted", kind.name());
                NewRecord::new(RecordKind::Log, "suppressed", RecordOutcome::Done)
                    .object(kind.name())
                    .detail(&detail)
                    .count(count)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_changes_are_not_part_of_it() {
        let mut suppressed = Suppressed::default();
        let refused = NewRecord::new(RecordKind::Connection, "connect", RecordOutcome::Refused);
        let admitted = (0..1000).filter(|at| suppressed.admits(&refused, *at)).count();
        assert_eq!(admitted, 100);
        assert!(
            suppressed.admits(&NewRecord::new(RecordKind::Login, "log in", RecordOutcome::Refused), 1000),
            "kinds are apart"
        );
        assert!(suppressed.admits(&NewRecord::new(RecordKind::Change, "change", RecordOutcome::Done), 1000));
        assert!(suppressed.due(59_999).is_empty());
        let due = suppressed.due(60_000);
        assert_eq!((due.len(), due[0].count, due[0].object.as_str()), (1, 900, "connection"));
        assert!(suppressed.admits(&refused, 60_001), "a new span");
        assert!(suppressed.due(200_000).is_empty(), "nothing was left out");
    }
}
