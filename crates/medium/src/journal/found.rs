//! The contents of a medium, as recovery hands them to the store.

use ebof_drive::frame::Record;
use ebof_drive::layout::Layout;

use crate::error::damage::Damage;
use crate::journal::Journal;

/// A drive that was found on a medium, or made there.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) layout: Layout,
    pub(crate) journal: Journal,
    /// The owner's state at the last checkpoint.
    pub(crate) state: Vec<u8>,
    /// Records other than changes, to be replayed in order, and in which frame they are; `None` for
    /// those of the checkpoint.
    pub(crate) records: Vec<(Option<u64>, Record)>,
    /// Changes that the state does not include, in order.
    pub(crate) changes: Vec<Vec<u8>>,
    pub(crate) was_clean: bool,
    pub(crate) created: bool,
    /// Damage that loses nothing, but needs a new checkpoint.
    pub(crate) mended: Option<Damage>,
    /// Damage that loses something: the drive is read-only.
    pub(crate) lost: Option<Lost>,
}

/// What is left of a journal with damage in it.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) damage: Damage,
    /// Records behind the damage.
    pub(crate) later: Vec<Record>,
    /// More than one group of frames may be lost: an extent may have moved from one namespace to
    /// another in them.
    pub(crate) several: bool,
}
