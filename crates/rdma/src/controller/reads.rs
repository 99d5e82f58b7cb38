//! The data that are fetched from the host: RDMA READs in the order of their commands, no more at a
//! time than the host answers.

use alloc::collections::VecDeque;

use super::{Cancelled, Fetched};
use crate::segments::{Lists, Piece, Pieces, Segments};

/// All reads of a connection.
#[derive(Debug)]
pub(super) struct Reads {
    /// Those of which everything is posted first, then those that wait.
    commands: VecDeque<Read>,
    /// How many at the front are posted completely.
    posted: usize,
    under_way: u32,
    /// Most that may be under way.
    depth: u32,
}

/// The reads of one command.
#[derive(Clone, Copy, Debug)]
struct Read {
    tag: u32,
    pieces: Pieces,
    under_way: u32,
    is_cancelled: bool,
    sequence: u64,
}

impl Reads {
    /// For `commands` commands; not more than `depth` READs are under way.
    pub(super) fn new(commands: usize, depth: u32) -> Self {
        Self { commands: VecDeque::with_capacity(commands), posted: 0, under_way: 0, depth }
    }

    #[inline]
    pub(super) fn push(&mut self, tag: u32, segments: Segments, length: u32, sequence: u64) -> bool {
        let pieces = Pieces::new(segments, length);
        if pieces.is_done() {
            return false;
        }
        debug_assert!(self.commands.iter().all(|read| read.tag != tag), "the tag {tag} is in use");
        self.commands.push_back(Read { tag, pieces, under_way: 0, is_cancelled: false, sequence });
        true
    }

    pub(super) fn cancel(&mut self, tag: u32) -> Cancelled {
        let Some(at) = self.commands.iter().position(|read| read.tag == tag) else { return Cancelled::Ended };
        let read = &mut self.commands[at];
        if read.under_way == 0 {
            self.commands.remove(at);
            return Cancelled::Ended;
        }
        read.is_cancelled = true;
        // The one that is posted in part is behind those that are posted completely.
        if at == self.posted {
            self.posted += 1;
        }
        Cancelled::UnderWay
    }

    /// The sequence number of the next READ; `None` if none can be posted.
    #[inline]
    pub(super) fn next_sequence(&self) -> Option<u64> {
        let next = self.commands.get(self.posted)?;
        (self.under_way < self.depth).then_some(next.sequence)
    }

    /// Takes the next READ, with its command's tag.
    #[inline]
    pub(super) fn post(&mut self, lists: &Lists) -> Option<(u32, Piece)> {
        let read = self.commands.get_mut(self.posted)?;
        let piece = read.pieces.next(lists)?;
        read.under_way += 1;
        self.under_way += 1;
        let tag = read.tag;
        if read.pieces.is_done() {
            self.posted += 1;
        }
        Some((tag, piece))
    }

    #[inline]
    pub(super) fn on_done(&mut self, tag: u32) -> Option<Fetched> {
        // READs are over in their order, so it is most likely the first.
        let at = self.commands.iter().position(|read| read.tag == tag && read.under_way > 0)?;
        self.under_way -= 1;
        let read = &mut self.commands[at];
        read.under_way -= 1;
        if read.under_way > 0 || at >= self.posted {
            return None;
        }
        let is_complete = !read.is_cancelled;
        self.commands.remove(at);
        self.posted -= 1;
        Some(Fetched { tag, is_complete })
    }

    pub(super) const fn under_way(&self) -> u32 {
        self.under_way
    }
}
