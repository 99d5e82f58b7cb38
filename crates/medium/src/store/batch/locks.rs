//! The blocks that the requests of a batch have locked. What locks are, and why the drive's thread
//! needs any, is in `thin/locks.rs`.

use std::sync::Arc;

use ebof_backend::Operation;

use crate::Thin;
use crate::store::batch::item::changed_ranges;
use crate::thin::locks::Wanted;
use crate::thin::shared::AwaitedBlocks;

/// Blocks that a batch has locked: no other thread reads or writes them meanwhile.
#[derive(Default)]
pub(crate) struct BatchLocks(Vec<(Arc<Thin>, Wanted)>);

impl BatchLocks {
    /// Locks the blocks of an operation. `false` if another thread has some of them: it tells the
    /// drive's thread when it has finished. `awaited` is kept with the request until this is called
    /// again, so that other threads do not lock the blocks before.
    pub(crate) fn try_lock(
        &mut self,
        thin: &Arc<Thin>,
        operation: &Operation,
        awaited: &mut Option<AwaitedBlocks>,
    ) -> bool {
        if !thin.may_be_in_flux || thin.geometry_check(operation).is_err() {
            *awaited = None;
            return true;
        }
        let wanted = wanted(thin, operation);
        let mut locked = thin.locks.try_lock_all(&wanted);
        // A slice of a long request may be of other blocks than it was.
        if !locked && !awaited.as_ref().is_some_and(|awaited| awaited.is_for(thin, &wanted)) {
            *awaited = Some(AwaitedBlocks::new(Arc::clone(thin), wanted.clone()));
            // Once more: nobody tells of what was unlocked before.
            locked = thin.locks.try_lock_all(&wanted);
        }
        if locked {
            *awaited = None;
            self.0.push((Arc::clone(thin), wanted));
        }
        locked
    }
}

impl Drop for BatchLocks {
    fn drop(&mut self) {
        self.0.iter().for_each(|(thin, wanted)| thin.locks.unlock_all(wanted));
    }
}

/// The blocks of an operation.
fn wanted(thin: &Thin, operation: &Operation) -> Wanted {
    let (bytes, change) = match operation {
        Operation::Read { offset, len, .. } => (vec![(*offset, *len as u64)], false),
        operation => (changed_ranges(operation), true),
    };
    let place = |(offset, len): (u64, u64)| {
        let extents = thin.index(offset)..thin.index(offset + len - 1) + 1;
        (extents, thin.blocks(offset, len))
    };
    let ranges = bytes.into_iter().filter(|(_, len)| *len > 0).map(place).collect();
    Wanted { ranges, change }
}
