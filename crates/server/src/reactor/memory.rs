//! When a reactor gives memory back.

use super::Reactor;

/// A reactor that was idle for this long gives memory back, milliseconds.
pub(super) const SHRINK_MS: u64 = 1_000;

impl Reactor {
    /// Releases memory that a burst left behind, once, after [`SHRINK_MS`] without work.
    pub(super) fn shrink_after_a_while(&mut self, now_us: u64) {
        if self.last_work_us.is_some_and(|last| (now_us / 1000).saturating_sub(last / 1000) >= SHRINK_MS) {
            self.shrink();
        }
    }

    /// Releases memory that a burst left behind.
    pub(super) fn shrink(&mut self) {
        self.last_work_us = None;
        for connection in self.connections.iter_mut().flatten() {
            connection.shrink(&mut self.pool);
        }
        self.pool.shrink();
        self.io.release_memory();
    }
}
