//! Barriers: when nothing older that changes certain bytes is left at a device.

use super::connection_table::ConnectionTable;
use crate::commands::command::CommandPhase;
use crate::shared::Shared;
use crate::shared::mailbox::Barrier;

/// Pairs that wait until no older change of their bytes is left at a device.
#[derive(Default)]
pub(super) struct Barriers(Vec<Barrier>);

impl Barriers {
    pub(super) fn push(&mut self, barrier: Barrier) {
        self.0.push(barrier);
    }

    /// Answers the barriers behind which nothing is left.
    pub(super) fn answer(&mut self, connections: &ConnectionTable, shared: &Shared) {
        self.0.retain(|barrier| {
            let mut commands = connections.iter().flat_map(|connection| connection.commands.execution.slots.iter());
            let is_left = commands.any(|(_, command)| {
                // What only a drive's thread changes is elsewhere meanwhile.
                matches!(command.phase, CommandPhase::AtDevice | CommandPhase::Elsewhere)
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
