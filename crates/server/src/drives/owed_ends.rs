//! Transactions of the box that are over, which a drive could not store yet.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Their identifiers. A start before they are stored would take them back, with everything that
/// was changed since.
#[derive(Default)]
pub(super) struct OwedEnds {
    transactions: Mutex<BTreeSet<String>>,
}

impl OwedEnds {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
