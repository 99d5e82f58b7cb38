//! When a small command was last sent on any queue of a controller. Large writes make room for
//! them, whichever queue they are on (`link/tcp/bulk.rs`).

use std::sync::atomic::{AtomicU64, Ordering};

/// How long after a small command large writes are limited, milliseconds.
const RECENT_MS: u64 = 10;

/// Shared by the queues of a controller.
#[derive(Debug, Default)]
pub(crate) struct SmallCommands {
    /// Of [`crate::wait::Time::now_ms`]; 0 before the first one.
    last_ms: AtomicU64,
}

impl SmallCommands {
    /// A small command is sent now. Queues of all processors read this, so that it is written once
    /// in a tick of the clock only.
    #[inline]
    pub(crate) fn note(&self, now_ms: u64) {
        if self.last_ms.load(Ordering::Relaxed) != now_ms {
            self.last_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Whether there are small commands that large writes would delay.
    pub(crate) fn is_recent(&self, now_ms: u64) -> bool {
        now_ms < self.last_ms.load(Ordering::Relaxed) + RECENT_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_command_is_recent_for_ten_milliseconds() {
        let small_commands = SmallCommands::default();
        assert!(!small_commands.is_recent(500));
        small_commands.note(500);
        assert!(small_commands.is_recent(500) && small_commands.is_recent(509) && !small_commands.is_recent(510));
    }
}
