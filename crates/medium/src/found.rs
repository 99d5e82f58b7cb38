//! What was found on a medium.

use ebof_drive::frame::Record;
use ebof_drive::layout::Layout;

use crate::damage::Damage;
use crate::journal::Journal;

/// What was found on a medium.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) layout: Layout,
    pub(crate) journal: Journal,
    /// The owner's state at the last checkpoint.
    pub(crate) state: Vec<u8>,
    /// Records that lead from an empty medium to what it holds, without changes, and in which frame
    /// they are; the checkpoint's are in none.
    pub(crate) records: Vec<(Option<u64>, Record)>,
    /// Changes that the state does not contain.
    pub(crate) changes: Vec<Vec<u8>>,
    pub(crate) was_clean: bool,
    pub(crate) created: bool,
    /// What is damaged and could be made good: a new checkpoint is needed.
    pub(crate) mended: Option<Damage>,
    /// What is damaged and lost. Nothing is written then.
    pub(crate) lost: Option<Lost>,
}

/// What is left of a journal with a hole in it.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) damage: Damage,
    /// Records behind the damage, whatever they come to without those that are lost.
    pub(crate) later: Vec<Record>,
    /// More than one group of records may be lost: an extent may have been taken from a namespace
    /// and given to another one.
    pub(crate) several: bool,
}
