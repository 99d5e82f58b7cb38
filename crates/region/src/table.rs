//! Entries of a table of regions that somebody else keeps, such as a ring's in the kernel, and
//! their way back when the regions end.
//!
//! Owns the list of entries that were returned. Which regions get an entry, and what is done with
//! one that is returned, is the table's keeper's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A table's side: the entries whose regions are gone.
#[derive(Clone, Debug, Default)]
pub struct EntryTable(Arc<Returned>);

#[derive(Debug, Default)]
struct Returned {
    indices: Mutex<Vec<u16>>,
    /// Whether there are any: changed under the lock, and read without it.
    any: AtomicBool,
}

/// A region's entry in an [`EntryTable`]. Dropping it, on any thread, returns it to the table.
#[derive(Debug)]
pub struct TableEntry {
    table: EntryTable,
    index: u16,
}

impl EntryTable {
    /// The entry `index`, for the region that was put there. The caller makes each entry once until
    /// it has come back.
    #[must_use]
    pub fn entry(&self, index: u16) -> TableEntry {
        TableEntry { table: self.clone(), index }
    }

    /// Whether entries have come back.
    #[inline]
    #[must_use]
    pub fn has_returned(&self) -> bool {
        self.0.any.load(Ordering::Relaxed)
    }

    /// At most `max` entries that have come back.
    #[must_use]
    pub fn take_returned(&self, max: usize) -> Vec<u16> {
        let mut indices = self.0.indices.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = indices.len().saturating_sub(max);
        let taken = indices.split_off(kept);
        self.0.any.store(!indices.is_empty(), Ordering::Relaxed);
        taken
    }
}

impl TableEntry {
    /// Its index, if it is one of `table`'s.
    #[inline]
    #[must_use]
    pub fn index_in(&self, table: &EntryTable) -> Option<u16> {
        Arc::ptr_eq(&self.table.0, &table.0).then_some(self.index)
    }
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        let returned = &self.table.0;
        let mut indices = returned.indices.lock().unwrap_or_else(PoisonError::into_inner);
        indices.push(self.index);
        returned.any.store(true, Ordering::Relaxed);
    }
}
