//! How the commands of one queue travel, whatever they mean: all that the engine
//! ([`crate::engine`]) knows of a transport.
//!
//! A link owns its connection and what is under way on it. Commands and their buffers stay in the
//! engine's slots, which it lends with every call. A link knows a command by its slot, and no
//! opcode.
//!
//! | what the engine asks | |
//! |---|---|
//! | [`Link::set_slots`], [`Link::set_in_capsule`] | how many commands there will be, and what fits into a capsule |
//! | [`Link::submit`] | queue a command, with its data where these travel with it |
//! | [`Link::flush`] | send what is queued, as far as that goes without waiting |
//! | [`Link::receive`], [`Link::poll`], [`Link::owes_data`] | take what has come: data into their buffers, completions one by one |
//! | [`Link::reclaim`] | buffers that were still being sent are the slots' again |
//! | [`Link::descriptor`], [`Link::is_blocked`], [`Link::is_unsent`] | what to wait for |
//! | [`Link::end_in_order`], [`Link::close`] | the end |

pub(crate) mod tcp;

use ebof_nvme::Cqe;

pub(crate) use tcp::{Link, connect};

/// Which way the data of a command go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    None,
    ToHost,
    FromHost,
}

/// The end of the command in slot `index`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) index: u16,
    pub(crate) cqe: Cqe,
    /// Bytes of data that were transferred.
    pub(crate) transferred: u32,
}

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Nothing was there.
    Nothing,
    /// All that was there.
    All,
    /// As much as there was room for: there may be more.
    Full,
}
