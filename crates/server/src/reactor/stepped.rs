//! A reactor without a thread: whoever steps it asks when it has something to do.

use super::Reactor;
use super::source::simulated_event;

impl Reactor {
    /// One turn without a thread. Returns whether anything was done.
    pub(crate) fn step(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        let events: Vec<_> =
            self.connections.iter().flatten().filter_map(|connection| simulated_event(connection)).collect();
        let now_us = self.shared.clock.now_us();
        let worked = self.turn(now_us, false, &events, &mut Vec::new());
        // Its caller may wait for something to happen.
        let armed = self.arm_polled(now_us);
        worked || !armed
    }

    /// When [`Reactor::step`] has something to do although nothing happens before, milliseconds of
    /// the target's clock: in the past where there is something to do at once.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        let ready = || self.connections.iter().flatten().any(|connection| simulated_event(connection).is_some());
        let has_work = self.has_completions
            || !(self.aborts.is_empty() && self.dirty.is_empty() && self.polled.is_empty())
            || self.local_shares.has_work();
        if self.mailbox.has_messages() || has_work || ready() {
            return Some(0);
        }
        self.next_deadline_ms(self.shared.clock.now_ms())
    }

    /// Whether it was asked to shut down, and nothing is left.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shutdown_ms.is_some() && self.connections.iter().all(Option::is_none)
    }
}
