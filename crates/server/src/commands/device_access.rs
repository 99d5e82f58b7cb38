//! The last step of a command before its device: its function's turn, and the device's queue.

use std::sync::Arc;

use ebof_backend::{Buffer, Class, Completion, Device, Error, Operation, Request, Submitted};
use ebof_drive::error_log::is_severe;
use ebof_fabrics::{DeviceId, Handle, Queue, Task};
use ebof_nvme::{Nqn, Status};

use crate::commands::command::{Command, CommandPhase};
use crate::commands::counters::text;
use crate::drives::device::status_of;
use crate::observe::log_limit::{self, LogSubject};
use crate::shared::Shared;
use crate::shared::mailbox::CommandRef;
use crate::shared::reactor_context::ReactorContext;
use crate::shared::shares::{HeldCommands, HeldRequest, KnownLane, Ticket, request_of};

/// How the commands of one connection reach their devices.
pub(crate) struct DeviceAccess {
    handle: Handle,
    /// Commands that wait for their function's share of the drive.
    held: HeldCommands,
    /// By which its commands reach a drive that functions share.
    lane: KnownLane,
    at_device: usize,
}

impl DeviceAccess {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle, held: HeldCommands::default(), lane: KnownLane::unknown(), at_device: 0 }
    }

    /// Whether more commands may be taken.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.held.has_room()
    }

    /// Commands that are at a device.
    #[inline]
    pub(crate) fn at_device(&self) -> usize {
        self.at_device
    }

    /// Sends an operation of the command in `slot` to its device, `id`, as soon as the command's
    /// function may.
    #[inline(always)]
    pub(crate) fn submit(
        &mut self,
        (slot, command): (u32, &mut Command),
        (id, device): (DeviceId, &Arc<dyn Device>),
        operation: Operation,
        queue: &Queue,
        context: &mut ReactorContext<'_>,
    ) -> Submitted {
        // Functions may share the drive, and this one not be the only one that uses it.
        if self.lane.ask(&context.shared.shares, || queue.subsystem().cloned()).is_some()
            && self.must_wait((slot, command), &operation, queue, context)
        {
            command.phase = CommandPhase::Held;
            self.held.push(slot, id, operation);
            return Submitted::Pending;
        }
        self.submit_now((slot, command), device, operation, context)
    }

    /// Hands an operation to its device.
    #[inline(always)]
    pub(crate) fn submit_now(
        &mut self,
        (slot, command): (u32, &mut Command),
        device: &Arc<dyn Device>,
        operation: Operation,
        context: &mut ReactorContext<'_>,
    ) -> Submitted {
        command.phase = CommandPhase::AtDevice;
        // A copy is there several times.
        if command.marks.submitted_us == 0 {
            command.marks.submitted_us = context.now_us;
        }
        self.at_device += 1;
        device.submit(context.io, Request::new(context.tag(self.handle, slot), operation))
    }

    /// Asks for the command's share of the drive. Returns whether it has to wait for it.
    #[cold]
    #[inline(never)]
    fn must_wait(
        &mut self,
        (slot, command): (u32, &mut Command),
        operation: &Operation,
        queue: &Queue,
        context: &mut ReactorContext<'_>,
    ) -> bool {
        let owner = CommandRef { handle: self.handle, slot };
        // What a reset flushes is nobody's load.
        if !matches!(command.task, Task::Reset(_))
            && let Some(lane) = self.lane.ask(&context.shared.shares, || queue.subsystem().cloned())
            && let Some((ticket, may_go)) =
                lane.submit(request_of(operation), owner, context.now_us, context.local_shares)
        {
            command.ticket = Some(ticket);
            return !may_go;
        }
        false
    }

    /// What the command in `slot` was to ask of its device, if it is held: it has to ask again.
    pub(crate) fn take_held(&mut self, slot: u32) -> Option<(DeviceId, Operation)> {
        if self.held.is_empty() {
            return None;
        }
        self.held.take(slot).map(|HeldRequest { device, operation, .. }| (device, operation))
    }

    /// A command is given up: the buffer of what it was to ask of its device.
    #[inline]
    pub(crate) fn withdraw_held(&mut self, slot: u32) -> Option<Buffer> {
        if self.held.is_empty() { None } else { self.held.withdraw(slot) }
    }

    /// A device has done what a command asked for.
    #[inline]
    pub(crate) fn note_done(&mut self, ticket: &mut Option<Ticket>, context: &mut ReactorContext<'_>) {
        self.at_device = self.at_device.checked_sub(1).expect("a device completes what was submitted to it, once");
        if ticket.is_some() {
            context.local_shares.note_done(ticket.take());
        }
    }

    /// Asks the device to give up what the command in `slot` has there; what has begun may end as
    /// if it had not been asked. Returns the completion if the device had no room for it so far.
    pub(crate) fn cancel(&self, slot: u32, context: &mut ReactorContext<'_>) -> Option<Completion> {
        let tag = context.tag(self.handle, slot);
        if context.io.cancel(tag) {
            return None;
        }
        let at = context.retry.iter().position(|(_, request)| request.tag == tag)?;
        let (_, request) = context.retry.remove(at).expect("its place was found");
        let action = request.operation.action();
        Some(request.complete(Err(Error::Aborted { action })))
    }
}

/// The status of a command that a device has failed, and whether the drive has to note it at once.
#[cold]
pub(crate) fn fail(command: &mut Command, error: &Error, host: Option<&Nqn>, shared: &Shared) -> (Status, bool) {
    let is_reset = matches!(command.task, Task::Reset(_));
    let is_aborted = error.class() == Class::Aborted;
    let aborted = command.failed.filter(|_| is_aborted);
    let status = aborted.unwrap_or_else(|| status_of(error, command.kind()));
    command.locate(error);
    if is_reset || !is_aborted {
        log_error(command, error, status, host, shared);
    }
    (status, !is_aborted && !is_reset && is_severe(status))
}

fn log_error(command: &Command, error: &Error, status: Status, host: Option<&Nqn>, shared: &Shared) {
    let about = LogSubject::Device(command.device());
    let Some(more) = shared.may_log(about, log_limit::Kind::Device(error.class())) else { return };
    let Some(work) = command.task.io() else {
        tracing::error!("flushing at the reset of a controller: {error}{more}");
        return;
    };
    let host = text(host);
    tracing::error!(host, nsid = command.nsid.0, %work, %status, "device error: {error}{more}");
}
