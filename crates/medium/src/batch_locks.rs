//! The blocks that the requests of a batch have locked. What locks are, and why the drive's thread
//! needs any, is in `locks.rs`.

use std::ops::Range;
use std::sync::Arc;

use ebof_backend::Operation;

use crate::Thin;
use crate::item::changed_ranges;

/// Blocks that a batch has locked: no other thread reads or writes them meanwhile.
#[derive(Default)]
pub(crate) struct BatchLocks(Vec<BatchLock>);

/// Blocks of these extents, which are changed or only read.
struct BatchLock {
    thin: Arc<Thin>,
    extents: Range<u32>,
    blocks: Range<u64>,
    change: bool,
}

impl BatchLocks {
    /// Locks the blocks of an operation. `false` if another thread has some of them: it tells the
    /// drive's thread when it has finished.
    pub(crate) fn try_lock(&mut self, thin: &Arc<Thin>, operation: &Operation) -> bool {
        if !thin.may_be_in_flux || thin.geometry_check(operation).is_err() {
            return true;
        }
        let before = self.0.len();
        let (ranges, change) = match operation {
            Operation::Read { offset, len, .. } => (vec![(*offset, *len as u64)], false),
            operation => (changed_ranges(operation), true),
        };
        for (offset, len) in ranges.into_iter().filter(|(_, len)| *len > 0) {
            let (extents, blocks) = (thin.index(offset)..thin.index(offset + len - 1) + 1, thin.blocks(offset, len));
            if !thin.locks.try_lock_many(&extents, &blocks, change) {
                self.unlock(before);
                return false;
            }
            self.0.push(BatchLock { thin: Arc::clone(thin), extents, blocks, change });
        }
        true
    }

    /// Unlocks all but the first `count`.
    fn unlock(&mut self, count: usize) {
        for BatchLock { thin, extents, blocks, change } in self.0.drain(count..) {
            thin.locks.unlock_many(&extents, &blocks, change);
        }
    }
}

impl Drop for BatchLocks {
    fn drop(&mut self) {
        self.unlock(0);
    }
}
