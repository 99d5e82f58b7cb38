//! Commands on their way: their data and completions, the slots that hold them while they are
//! outstanding, how large one may be, what a status means for one, and what goes wrong with them
//! that is not reported otherwise.
//!
//! Sends nothing. Which connection a command is on is not known here.

pub(crate) mod data;
pub(crate) mod fate;
pub(crate) mod limits;
pub(crate) mod retry;
pub(crate) mod slots;
pub(crate) mod small_commands;
pub(crate) mod troubles;
