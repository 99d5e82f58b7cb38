//! The state of the medium's owner: a snapshot of it is in each checkpoint, changes of it are in
//! the journal. Both are opaque bytes here.

use ebof_drive::frame::Record;

/// The owner's state, as the next checkpoint has it.
pub(crate) struct OwnerState {
    /// Returns the current state; `None` until the owner has set it.
    snapshot: Option<Box<dyn Fn() -> Vec<u8>>>,
    /// Until then: the state in the last checkpoint, and the changes since.
    checkpoint: Vec<u8>,
    changes: Vec<Vec<u8>>,
}

impl OwnerState {
    /// With the state in the last checkpoint, and the changes in the journal behind it.
    pub(crate) fn new(state: Vec<u8>, changes: Vec<Vec<u8>>) -> Self {
        Self { snapshot: None, checkpoint: state, changes }
    }

    /// Takes snapshots from the owner from now on.
    pub(crate) fn set_snapshot(&mut self, snapshot: Box<dyn Fn() -> Vec<u8>>) {
        self.snapshot = Some(snapshot);
        self.checkpoint = Vec::new();
        self.changes = Vec::new();
    }

    /// Notes changes that are in the journal now.
    pub(crate) fn committed(&mut self, changes: &[&[u8]]) {
        if self.snapshot.is_none() {
            self.changes.extend(changes.iter().map(|change| change.to_vec()));
        }
    }

    /// The state for a checkpoint, and records of changes that it does not include.
    pub(crate) fn current(&self) -> (Vec<u8>, Vec<Record>) {
        match &self.snapshot {
            Some(snapshot) => (snapshot(), Vec::new()),
            None => (self.checkpoint.clone(), self.changes.iter().cloned().map(Record::Change).collect()),
        }
    }
}
