//! Transactions of the box that a drive remembers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use ebof_drive::{Origin, Request, Unfinished};

use super::actor::DriveActor;

impl DriveActor {
    /// Those that are not over, by their identifiers.
    pub(crate) fn unfinished(&self) -> BTreeMap<String, Unfinished> {
        self.drive().state().transactions.clone()
    }

    /// Those that are over, which the drive could not store yet. A start before it can would take
    /// them back, with everything that was changed since.
    pub(crate) fn owed_ends(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.owed_ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the drive store that a transaction is over as soon as it can.
    pub(crate) fn owe_end(&self, transaction: &str) {
        self.owed_ends().insert(transaction.to_owned());
    }

    /// Tries once more to store what could not be stored yet.
    pub(crate) fn pay_ends(self: &Arc<Self>) {
        let owed = self.owed_ends().clone();
        for transaction in owed {
            let own = Arc::clone(self);
            let end = Request::End(transaction.clone());
            let _submitted = self.submit(end, Origin::box_(), move |result| {
                if result.is_ok() {
                    tracing::info!(drive = own.name(), transaction, "it is stored now that the transaction is over");
                    own.owed_ends().remove(&transaction);
                }
            });
        }
    }
}
