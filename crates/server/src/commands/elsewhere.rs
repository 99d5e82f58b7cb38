//! What another queue, the drive or the reactor does for a command.
//!
//! Where the queue has to decide next, its step is returned: `commands.rs` carries it out.
#![deny(clippy::wildcard_enum_match_arm)]

use ebof_authentication::Computed;
use ebof_backend::Operation;
use ebof_drive::Refusal;
use ebof_fabrics::{DriveTask, IoTask, QuiesceStep, RingTask, Step, Task, TransferKind};
use ebof_nvme::Status;

use crate::commands::command::{Command, CommandOutcome, Origin};
use crate::commands::execution::Execution;
use crate::drives::DriveReply;
use crate::link::Link;
use crate::shared::mailbox::{CommandRef, Message};
use crate::shared::reactor_context::ReactorContext;

/// The commands of a connection that others do something for.
pub(super) struct Elsewhere<'a>(pub(super) &'a mut Execution);

impl Elsewhere<'_> {
    /// Starts what another queue, the drive or the link does for a command.
    pub(super) fn begin(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let command = self.0.slots.expect_mut(slot);
        let reply = CommandRef { handle: self.0.handle, slot };
        match &mut command.task {
            Task::Drive(drive) => {
                let request = drive.take_request().expect("it was not asked before");
                if !self.0.drive.ask(slot, request, &self.0.queue, context) {
                    // The drive went away between the decision and now.
                    self.0.finish(slot, Status::INVALID_FIELD.dnr(), link, context);
                }
            }
            Task::Abort(handle, cid) => {
                let (handle, cid) = (*handle, *cid);
                context.shared.post(handle, Message::Abort { handle, cid, reply });
            }
            Task::Reset(quiesce) => {
                for handle in quiesce.begin() {
                    context.shared.post(handle, Message::Close { handle, reply });
                }
                self.continue_reset(slot, link, context);
            }
            Task::Rings(task) => match link.change_rings(task) {
                // It needs a connection, which the reactor makes.
                Ok(()) if matches!(task, RingTask::CreateSubmissionQueue { .. }) => {
                    context.shared.post(self.0.handle, Message::CreateQueue { reply, task: *task });
                }
                result => self.0.finish(slot, result.err().unwrap_or(Status::SUCCESS), link, context),
            },
            Task::Io(_)
            | Task::Reply(_)
            | Task::Receive
            | Task::Connect
            | Task::DeferConnect(_)
            | Task::Shared
            | Task::Authenticate(_)
            | Task::LbaStatus(_) => unreachable!("done on the connection's own"),
        }
    }

    /// One of the connections that a reset closes is gone.
    pub(super) fn on_closed(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        // If not, this connection has ended, too, and its commands are forgotten.
        if let Some(Command { task: Task::Reset(quiesce), .. }) = self.0.slots.get_mut(slot) {
            quiesce.closed();
            self.continue_reset(slot, link, context);
        }
    }

    /// A reset completes when the other queues are gone, and what it names is flushed.
    pub(super) fn continue_reset(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let devices = context.devices;
        loop {
            let Task::Reset(quiesce) = &mut self.0.slots.expect_mut(slot).task else {
                unreachable!("nothing takes the slot of a reset before it is done")
            };
            match quiesce.advance() {
                // A device whose namespace was removed meanwhile has nothing to flush for anybody.
                QuiesceStep::Flush(device) if devices.device(device).is_none() => {}
                QuiesceStep::Flush(device) => {
                    match self.0.send_to_device(slot, device, Operation::Flush, link, context) {
                        CommandOutcome::Flushed(_) => {}
                        CommandOutcome::Continues => return,
                        outcome @ (CommandOutcome::Parameters(_) | CommandOutcome::Forgotten) => {
                            unreachable!("{outcome:?} of a flush: a connection that has ended resets nothing")
                        }
                    }
                }
                QuiesceStep::TellDrive if !self.0.drive.tell_reset(slot, &self.0.queue, context) => {}
                QuiesceStep::Wait | QuiesceStep::TellDrive => return,
                QuiesceStep::Done => return self.0.finish(slot, Status::SUCCESS, link, context),
            }
        }
    }

    /// The drive's answer to a request of this connection.
    pub(super) fn on_answer(
        &mut self,
        slot: u32,
        answer: Result<DriveReply, Refusal>,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> Option<(Step, Origin)> {
        self.0.drive.note_answer(slot);
        // Where the connection has ended, what it asked was withdrawn or is heard by nobody.
        let command = self.0.slots.get_mut(slot)?;
        let answer = match (&mut command.task, answer) {
            (Task::Drive(_), Err(refusal)) => Err(refusal),
            (Task::Drive(task), Ok(reply)) => {
                Ok(self.0.drive.take_answer((slot, task), reply, &self.0.queue, context)?)
            }
            (Task::Io(IoTask::Transfer(transfer)), answer) if transfer.kind == TransferKind::WriteUncorrectable => {
                let status = answer.err().map_or(Status::SUCCESS, |refusal| refusal.status);
                self.0.finish(slot, status, link, context);
                return None;
            }
            // Whatever the drive makes of a reset, the controller is reset.
            (Task::Reset(_), _) => {
                self.continue_reset(slot, link, context);
                return None;
            }
            _ => return None,
        };
        self.decide(slot, answer)
    }

    /// One of the queues whose commands are preempted has nothing left at a device.
    pub(super) fn on_preempted(&mut self, slot: u32) -> Option<(Step, Origin)> {
        // The connection may have ended meanwhile, and its commands are forgotten.
        let Some(Command { task: Task::Drive(task), .. }) = self.0.slots.get_mut(slot) else { return None };
        let answer = DriveTask::preempted(task)?;
        self.decide(slot, Ok(answer))
    }

    /// What an authentication had to have computed. The command may be gone, and another one in its
    /// place.
    pub(super) fn on_computed(&mut self, slot: u32, computed: Computed) -> Option<(Step, Origin)> {
        self.0.slots.get(slot).filter(|command| matches!(command.task, Task::Authenticate(_)))?;
        let command = self.0.slots.take(slot);
        self.0.computed = None;
        let origin = command.origin();
        Some((self.0.queue.computed(command.executing, computed), origin))
    }

    fn decide(&mut self, slot: u32, answer: Result<ebof_drive::Answer, Refusal>) -> Option<(Step, Origin)> {
        let command = self.0.slots.take(slot);
        let origin = command.origin();
        Some((self.0.queue.answer(command.executing, answer), origin))
    }

    /// The answer to an Abort that this connection sent to another queue.
    pub(super) fn on_abort_answer(
        &mut self,
        slot: u32,
        aborted: bool,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        if self.0.slots.get(slot).is_some_and(|command| matches!(command.task, Task::Abort(..)))
            && let Some(command) = self.0.slots.remove(slot)
        {
            // Abort, Command Completion: dword 0 bit 0 is set when the command was not aborted.
            let cqe = self.0.queue.complete_with(command.executing, Status::SUCCESS, u64::from(!aborted));
            link.respond(&cqe, context);
        }
    }

    /// A queue in the host's memory that was to be created is there, or not.
    pub(super) fn on_created(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        if self.0.slots.get(slot).is_some_and(|command| matches!(command.task, Task::Rings(_))) {
            self.0.finish(slot, status, link, context);
        }
    }
}
