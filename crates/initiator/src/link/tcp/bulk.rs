//! How much data of large writes is under way on a connection, and whether that is bounded: while
//! small commands are sent on any queue of the controller, because data that are in the sockets
//! cannot be overtaken, and those of other queues take the processors' time at both ends.

use std::sync::Arc;

use crate::command::small_commands::SmallCommands;

/// The data of large writes, which the controller requests (R2T).
#[derive(Default)]
pub(super) struct Bulk {
    small_commands: Arc<SmallCommands>,
    /// [`crate::Options::bulk_bytes`].
    bytes_max: Option<usize>,
    /// Bytes sent or queued for R2Ts of outstanding commands.
    under_way: usize,
    /// The same by slot.
    by_slot: Box<[usize]>,
}

impl Bulk {
    pub(super) fn set_slots(&mut self, slots: usize) {
        self.by_slot = vec![0; slots].into_boxed_slice();
    }

    pub(super) fn set_bytes_max(&mut self, bytes_max: Option<u32>) {
        self.bytes_max = bytes_max.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// From now on small commands of other queues count, too.
    pub(super) fn share(&mut self, small_commands: &Arc<SmallCommands>) {
        self.small_commands = Arc::clone(small_commands);
    }

    /// A command without R2T is queued.
    #[inline]
    pub(super) fn note_small_command(&self, now_ms: u64) {
        self.small_commands.note(now_ms);
    }

    /// The most bytes under way; `None` if nothing small would be delayed, or without a bound.
    pub(super) fn limit(&self, now_ms: u64) -> Option<usize> {
        self.bytes_max.filter(|_| self.small_commands.is_recent(now_ms))
    }

    /// Whether data of the command in slot `index`, which has `length` bytes, may be sent within
    /// `limit`. A command that has begun is finished, and a single one is never refused.
    pub(super) fn allows(&self, index: u16, length: u32, limit: usize) -> bool {
        let is_begun = self.by_slot[usize::from(index)] > 0;
        is_begun || self.under_way == 0 || self.under_way + length as usize <= limit
    }

    /// Data of the command in slot `index` are queued.
    pub(super) fn queued(&mut self, index: u16, length: usize) {
        self.under_way += length;
        self.by_slot[usize::from(index)] += length;
    }

    /// The command in slot `index` is complete.
    #[inline]
    pub(super) fn completed(&mut self, index: u16) {
        if self.under_way > 0 {
            self.under_way -= std::mem::take(&mut self.by_slot[usize::from(index)]);
        }
    }

    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }
}
