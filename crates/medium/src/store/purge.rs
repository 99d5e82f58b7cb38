//! Overwrites old journals and checkpoints with zeros, so that nothing of erased namespaces is left
//! there.
//!
//! Zeros are written, and not asked for by Write Zeroes: a file system or a disk may keep the old
//! bytes of a range that it is told to zero. The journal and the checkpoint of this generation are
//! not touched.

use std::ops::Range;

use ebof_drive::frame::FRAME_BYTES;

use crate::Error;
use crate::blank::overwrite;
use crate::store::order::WriteOrder;

/// Bytes that one step covers.
const STEP_BYTES: u64 = 8 << 20;

/// How far [`Store::purge`](crate::Store::purge) has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purge {
    /// Where the next step begins; `None` before the first.
    next: Option<u64>,
}

impl Purge {
    /// Does the next part, see [`Store::purge`](crate::Store::purge).
    pub(crate) fn step(&mut self, order: &mut WriteOrder) -> Result<bool, Error> {
        let layout = order.shared.layout;
        let Some(begin) = self.next else {
            // The journal and checkpoint of the new generation have nothing of what was erased.
            order.checkpoint_and_report()?;
            self.next = Some(layout.journal(0));
            return Ok(false);
        };
        order.settle_journal()?;
        let all_end = layout.checkpoint(0) + 2 * layout.checkpoint_bytes();
        let end = (begin + STEP_BYTES).min(all_end);
        let live = order.journal.live_ranges(&mut order.disk)?;
        for stale in outside(begin..end, &live) {
            for slot in [layout.checkpoint(0), layout.checkpoint(1)] {
                // The header first, durably: a header without its body would be taken for damage.
                if stale.contains(&slot) {
                    overwrite(&mut order.disk, slot..slot + FRAME_BYTES as u64)?;
                    order.flush()?;
                }
            }
            overwrite(&mut order.disk, stale)?;
        }
        if end == all_end {
            // Then there are two checkpoints again, for the case that one is damaged.
            order.checkpoint_and_report()?;
        }
        self.next = Some(end);
        Ok(end == all_end)
    }
}

/// The parts of a range that are in none of the ranges `live`, which are sorted.
fn outside(range: Range<u64>, live: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut at = range.start;
    for live in live {
        if at < live.start {
            parts.push(at..live.start.min(range.end));
        }
        at = at.max(live.end);
    }
    parts.push(at..range.end);
    parts.retain(|part| part.start < part.end);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_are_needed_are_not_purged() {
        let live = [10..20, 30..31];
        let parts = |range, live: &[Range<u64>]| -> Vec<(u64, u64)> {
            outside(range, live).into_iter().map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(parts(0..40, &live), [(0, 10), (20, 30), (31, 40)]);
        assert_eq!(parts(12..15, &live), []);
        assert_eq!(parts(0..5, &live), [(0, 5)]);
        assert_eq!(parts(15..30, &live), [(20, 30)]);
        assert_eq!(parts(20..35, &[20..20, 30..40]), [(20, 30)]);
    }
}
