//! A connection's share of its reactor's turns: how many bytes it may still receive, or have read.

use super::READ_BUDGET;
use crate::shared::reactor_context::ReactorContext;

/// Received at once is this much at least, whatever is left of the share: a system call for less is
/// a waste.
const RECEIVE_MIN: usize = 8 << 10;

#[derive(Debug, Default)]
pub(super) struct Credit {
    /// The number of the turn whose share was added last.
    turn: u32,
    /// What is left, bytes. Below zero when a command was larger than its share: the next turns pay
    /// for it.
    left: i64,
    /// Bytes charged that the reactor does not know of yet.
    charged: usize,
}

impl Credit {
    /// Adds the share of this turn, once per turn.
    #[inline]
    pub(super) fn take_share(&mut self, context: &ReactorContext<'_>) {
        if self.turn != context.number {
            let share = i64::try_from(context.share).unwrap_or(i64::MAX);
            self.turn = context.number;
            self.left = share.min(self.left.saturating_add(share));
        }
    }

    /// `bytes` were received, or will be sent.
    #[inline]
    pub(super) fn charge(&mut self, bytes: usize) {
        self.charged += bytes;
        self.left = self.left.saturating_sub_unsigned(bytes as u64);
    }

    /// What was charged since this was last asked, bytes.
    #[inline]
    pub(super) fn take_charged(&mut self) -> usize {
        std::mem::take(&mut self.charged)
    }

    /// Whether something is left.
    #[inline]
    pub(super) fn is_left(&self) -> bool {
        self.left > 0
    }

    /// How much may be received at once, bytes.
    #[inline]
    pub(super) fn receive_max(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX).clamp(RECEIVE_MIN, READ_BUDGET)
    }
}
