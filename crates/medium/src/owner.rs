//! The state that the owner of a medium keeps in checkpoints and changes in the journal. Its bytes
//! mean nothing here.

use ebof_drive::frame::Record;

/// The owner's state: asked of the owner, or as it was found until the owner can be asked.
pub(crate) struct OwnerState {
    /// Who gives the state as it is now.
    snapshot: Option<Box<dyn Fn() -> Vec<u8>>>,
    /// The state of the last checkpoint and the changes behind it, until the owner can be asked.
    checkpoint: Vec<u8>,
    changes: Vec<Vec<u8>>,
}

impl OwnerState {
    /// What was found on the medium: the state of the checkpoint, and the changes behind it.
    pub(crate) fn new(state: Vec<u8>, changes: Vec<Vec<u8>>) -> Self {
        Self { snapshot: None, checkpoint: state, changes }
    }

    /// From now on the owner is asked.
    pub(crate) fn set_snapshot(&mut self, snapshot: Box<dyn Fn() -> Vec<u8>>) {
        self.snapshot = Some(snapshot);
        self.checkpoint = Vec::new();
        self.changes = Vec::new();
    }

    /// These changes are in the journal.
    pub(crate) fn committed(&mut self, changes: &[&[u8]]) {
        if self.snapshot.is_none() {
            self.changes.extend(changes.iter().map(|change| change.to_vec()));
        }
    }

    /// The state for a checkpoint, and records of the changes that it does not contain.
    pub(crate) fn now(&self) -> (Vec<u8>, Vec<Record>) {
        match &self.snapshot {
            Some(snapshot) => (snapshot(), Vec::new()),
            None => (self.checkpoint.clone(), self.changes.iter().cloned().map(Record::Change).collect()),
        }
    }
}
