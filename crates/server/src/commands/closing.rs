//! The end of queues: resets that wait for others to close, and what the registry learns of those
//! that close.

use ebof_backend::{Error, Operation};
use ebof_fabrics::{Executing, Quiesce};
use ebof_nvme::Nsid;
use ebof_nvme::Status;

use crate::commands::Commands;
use crate::commands::command::{Command, Phase, Work};
use crate::commands::execute::Origin;
use crate::link::Link;
use crate::shared::mailbox::{CommandRef, Message};
use crate::shared::reactor_context::ReactorContext;

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

    /// Cancels what is at devices of a namespace, or of all for [`Nsid::ALL`]. What has begun there
    /// may end as if it had not been cancelled.
    pub(crate) fn cancel(&mut self, nsid: Nsid, link: &mut Link, context: &mut ReactorContext<'_>) {
        let is_meant =
            |command: &Command| command.phase == Phase::AtDevice && (nsid == Nsid::ALL || command.concerns(nsid));
        let slots: Vec<_> = self.slots.iter().filter(|(_, command)| is_meant(command)).map(|(slot, _)| slot).collect();
        for slot in slots {
            let tag = context.tag(self.handle, slot);
            if context.io.cancel(tag) {
                continue;
            }
            // The device had no room for it so far.
            let Some(at) = context.retry.iter().position(|(_, request)| request.tag == tag) else { continue };
            if let Some((_, request)) = context.retry.remove(at) {
                let action = request.operation.action();
                self.on_device(request.complete(Err(Error::Aborted { action })), link, context);
            }
        }
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
        let work =
            Work::Reset { closing: quiesce.close.len(), flush: quiesce.flush, drive_notified: !quiesce.is_reset };
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
        let Some(Command { work: Work::Reset { closing: 0, flush, drive_notified }, .. }) = self.slots.get_mut(slot)
        else {
            return;
        };
        let drive_notified = *drive_notified;
        let devices = context.devices;
        // A device whose namespace was removed meanwhile has nothing to flush for anybody.
        let next = std::iter::from_fn(|| flush.pop()).find(|device| devices.device(*device).is_some());
        match next {
            Some(device) => self.send_to_device(slot, device, Some(Operation::Flush), link, context),
            None if drive_notified => self.finish(slot, Status::SUCCESS, link, context),
            None => self.notify_drive_of_reset(slot, link, context),
        }
    }
}
