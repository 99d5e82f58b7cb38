//! The I/O queues of a controller, if they are in the host's memory: which there are.

use alloc::collections::{BTreeMap, BTreeSet};

use ebof_nvme::opcode::admin;

/// The I/O queues of a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rings {
    /// Completion Queues, by identifier.
    pub(crate) completion: BTreeMap<u16, u16>,
    /// The Completion Queue of each Submission Queue.
    pub(crate) submission: BTreeMap<u16, u16>,
    /// Submission Queues whose creation is not complete: they cannot be deleted yet.
    pub(crate) being_created: BTreeSet<u16>,
}

impl Rings {
    pub(crate) fn is_empty(&self) -> bool {
        self.completion.is_empty() && self.submission.is_empty()
    }

    /// The Submission Queue is there: its creation is complete.
    pub(crate) fn created(&mut self, id: u16) {
        self.being_created.remove(&id);
    }

    /// The link could not create what it was told to, or the host has deleted it.
    pub(crate) fn forget(&mut self, opcode: u8, id: u16) {
        match opcode {
            admin::CREATE_IO_SQ | admin::DELETE_IO_SQ => {
                self.being_created.remove(&id);
                self.submission.remove(&id)
            }
            _ => self.completion.remove(&id),
        };
    }
}
