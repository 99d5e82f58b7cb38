//! Barriers: when nothing older that changes certain bytes is left at a device.

use super::Reactor;
use crate::commands::command::Phase;

impl Reactor {
    /// Answers the barriers behind which nothing is left.
    pub(crate) fn answer_barriers(&mut self) {
        let connections = &self.connections;
        let shared = &self.shared;
        self.barriers.retain(|barrier| {
            let mut commands = connections.iter().flatten().flat_map(|connection| connection.commands.slots.iter());
            let is_left = commands.any(|(_, command)| {
                // What only a drive's thread changes is elsewhere meanwhile.
                matches!(command.phase, Phase::AtDevice | Phase::Elsewhere)
                    && command
                        .task
                        .io()
                        .is_some_and(|io| io.changed_device() == Some(barrier.device) && io.changes(&barrier.range))
            });
            if !is_left {
                shared.fused_locks.answer(barrier);
            }
            is_left
        });
    }
}
