//! Transactions of the box that a drive remembers.

use std::collections::BTreeMap;

use ebof_drive::Unfinished;

use super::actor::DriveActor;

impl DriveActor {
    /// Those that are not over, by their identifiers.
    pub(crate) fn unfinished(&self) -> BTreeMap<String, Unfinished> {
        self.drive().state().transactions.clone()
    }
}
