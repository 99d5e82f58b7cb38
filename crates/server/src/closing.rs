//! The end of queues: resets that wait for others to close, and what the registry learns of those
//! that close.

use ebof_backend::Operation;
use ebof_fabrics::{Executing, Quiesce};

use crate::command::{Command, Work};
use crate::commands::Commands;
use crate::execute::Origin;
use crate::link::Link;
use crate::mailbox::{CommandRef, Message};
use crate::reactor_context::ReactorContext;

impl Commands {
    /// Reports to the registry, once, that nothing of the queue can reach the medium any more, when
    /// that is so.
    pub(crate) fn report_closed(&mut self, link: &Link, context: &mut ReactorContext<'_>) {
        if !link.has_ended() {
            return;
        }
        // What an Admin Queue has at devices are flushes.
        let at_device = self.at_device > 0 && !self.queue.is_admin();
        if !(at_device || self.awaits_drive || std::mem::replace(&mut self.reported_closed, true)) {
            context.shared.closed(self.handle);
        }
    }

    /// Whether the host's next queues have to wait for commands of this one.
    pub(crate) fn drains(&self) -> bool {
        !self.reported_closed
    }

    /// Starts a reset or shutdown of the controller: closes the I/O queues that it names.
    pub(crate) fn reset(
        &mut self,
        origin: Origin,
        executing: Executing,
        quiesce: Quiesce,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let work = Work::Reset { closing: quiesce.close.len(), flush: quiesce.flush, drive_notified: false };
        let command = self.command(origin, executing, work, 0, context);
        let slot = self.slots.insert(command);
        for handle in quiesce.close {
            let reply = CommandRef { handle: self.handle, slot };
            context.shared.post(handle, Message::Close { handle, reply });
        }
        self.go_on_resetting(slot, link, context);
    }

    /// One of the connections that a reset closes is gone.
    pub(crate) fn on_closed(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        if let Some(Command { work: Work::Reset { closing, .. }, .. }) = self.slots.get_mut(slot) {
            *closing = closing.saturating_sub(1);
            self.go_on_resetting(slot, link, context);
        }
    }

    /// A reset completes when the other queues are gone, and what it names is flushed.
    pub(crate) fn go_on_resetting(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(Command { work: Work::Reset { closing: 0, flush, .. }, .. }) = self.slots.get_mut(slot) else {
            return;
        };
        let devices = context.devices;
        // A device whose namespace was removed meanwhile has nothing to flush for anybody.
        let next = std::iter::from_fn(|| flush.pop()).find(|device| devices.device(*device).is_some());
        match next {
            Some(device) => self.send_to_device(slot, device, Some(Operation::Flush), link, context),
            None => self.notify_drive_of_reset(slot, link, context),
        }
    }
}
