//! The last step of a command before its device: its function's turn, and the device's queue.

use std::sync::Arc;

use ebof_backend::{Buffer, Device, Operation, Request, Submitted};
use ebof_fabrics::DeviceId;
use ebof_nvme::Status;

use crate::commands::Commands;
use crate::commands::command::{Phase, Work};
use crate::link::Link;
use crate::shared::mailbox::CommandRef;
use crate::shared::reactor_context::ReactorContext;
use crate::shared::shares::{Held, Lane, Ticket, TicketId, request_of};

impl Commands {
    /// Sends an operation to its device, as soon as the command's function may.
    pub(crate) fn send_to_device(
        &mut self,
        slot: u32,
        device: DeviceId,
        operation: Option<Operation>,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let Some(operation) = operation else {
            return self.end(slot, Status::INVALID_NAMESPACE.dnr(), link, context);
        };
        if let Some(lane) = self.lane(context) {
            return self.await_share(slot, device, operation, &lane, link, context);
        }
        self.submit_to(slot, device, operation, link, context);
    }

    /// Hands an operation to its device.
    #[inline(always)]
    fn submit_to(
        &mut self,
        slot: u32,
        device: DeviceId,
        operation: Operation,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let devices = context.devices;
        let Some(device) = devices.device(device) else {
            // The namespace went away between the decision and now.
            self.end(slot, Status::INVALID_NAMESPACE.dnr(), link, context);
            return;
        };
        if let Some(command) = self.slots.get_mut(slot) {
            command.phase = Phase::AtDevice;
            // A copy is there several times.
            if command.marks.submitted_us == 0 {
                command.marks.submitted_us = context.now_us;
            }
            self.at_device += 1;
        }
        let request = Request::new(context.tag(self.handle, slot), operation);
        self.submit(device, request, link, context);
    }

    /// Hands a request to the device, now or when the thread's `Io` has room.
    fn submit(
        &mut self,
        device: &Arc<dyn Device>,
        request: Request,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        match device.submit(context.io, request) {
            Submitted::Done(completion) => self.on_device(completion, link, context),
            Submitted::Pending => {}
            Submitted::Busy(request) => context.retry.push_back((Arc::clone(device), request)),
        }
    }

    /// The lane of the commands if they have to ask before they go to the drive: functions share
    /// it, and this is not the only one that uses it.
    #[inline]
    fn lane(&mut self, context: &ReactorContext<'_>) -> Option<Lane> {
        let Self { lane, queue, .. } = self;
        lane.ask(&context.shared.shares, || queue.subsystem().cloned()).cloned()
    }

    /// Has the command go to its device when its function may; until then it is held.
    #[cold]
    #[inline(never)]
    fn await_share(
        &mut self,
        slot: u32,
        device: DeviceId,
        operation: Operation,
        lane: &Lane,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let owner = CommandRef { handle: self.handle, slot };
        // What a reset flushes is nobody's load.
        let command = self.slots.get_mut(slot).filter(|command| !matches!(command.work, Work::Reset { .. }));
        if let Some(command) = command
            && let Some((ticket, may_go)) =
                lane.submit(request_of(&operation), owner, context.now_us, context.local_shares)
        {
            command.ticket = Some(ticket);
            if !may_go {
                command.phase = Phase::Held;
                return self.held.push(slot, device, operation);
            }
        }
        self.submit_to(slot, device, operation, link, context);
    }

    /// A command that waited may go to its device.
    pub(crate) fn on_admitted(&mut self, slot: u32, id: TicketId, link: &mut Link, context: &mut ReactorContext<'_>) {
        // The slot may have a new command: this one was given up, and its ticket settled.
        let Some(command) = self.slots.get_mut(slot) else { return };
        if command.phase != Phase::Held || !command.ticket.as_ref().is_some_and(|ticket| ticket.is(id)) {
            return;
        }
        // A pair may have begun since the command began to wait.
        if context.shared.fused_locks.is_any_waiting() && self.must_wait_for_lock(slot, context) {
            if let Some(command) = self.slots.get_mut(slot) {
                command.ticket = None;
            }
            return;
        }
        if let Some(Held { device, operation, .. }) = self.held.take(slot) {
            self.submit_to(slot, device, operation, link, context);
        }
    }

    /// A change that waited for a pair to end, and was to go to its device before: asks again.
    /// Returns whether it is one.
    pub(crate) fn ask_again(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let Some(Held { device, operation, .. }) = self.held.take(slot) else { return false };
        self.send_to_device(slot, device, Some(operation), link, context);
        true
    }

    /// A command is given up: the buffer of what it was to ask of its device.
    #[inline]
    pub(crate) fn withdraw_held(&mut self, slot: u32) -> Option<Buffer> {
        if self.held.is_empty() { None } else { self.held.withdraw(slot) }
    }

    /// The device has done what a command asked for.
    #[inline]
    pub(crate) fn note_share_done(ticket: &mut Option<Ticket>, context: &mut ReactorContext<'_>) {
        if ticket.is_some() {
            context.local_shares.note_done(ticket.take());
        }
    }
}
