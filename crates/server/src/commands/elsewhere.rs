//! What other queues, the drive and the reactor do for commands, and what they want of them.
#![deny(clippy::wildcard_enum_match_arm)]

use ebof_backend::Operation;
use ebof_drive::Refusal;
use ebof_fabrics::{DriveTask, IoTask, QuiesceStep, RingTask, Task, TransferKind};
use ebof_nvme::{Nsid, Status};

use crate::commands::Commands;
use crate::commands::command::{AbortRequest, Command, Phase};
use crate::commands::fused::{is_pair_under_way, slot_of};
use crate::drives::DriveReply;
use crate::drives::drain::DrainToken;
use crate::link::Link;
use crate::shared::mailbox::{CommandRef, Message};
use crate::shared::reactor_context::ReactorContext;

impl Commands {
    /// Starts what another queue, the drive or the link does for a command.
    pub(super) fn begin_elsewhere(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        let reply = CommandRef { handle: self.handle, slot };
        match &mut command.task {
            Task::Drive(drive) => {
                let request = drive.take_request().expect("it was not asked before");
                if !self.drive.ask(slot, request, &self.queue, context) {
                    // The drive went away between the decision and now.
                    self.finish(slot, Status::INVALID_FIELD.dnr(), link, context);
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
                    context.shared.post(self.handle, Message::CreateQueue { reply, task: *task });
                }
                result => self.finish(slot, result.err().unwrap_or(Status::SUCCESS), link, context),
            },
            Task::Io(_)
            | Task::Reply(_)
            | Task::Receive
            | Task::Connect
            | Task::DeferConnect(_)
            | Task::Shared
            | Task::LbaStatus(_) => unreachable!("done on the connection's own"),
        }
    }

    // ---- what another queue, the drive or the reactor does for a command

    /// One of the connections that a reset closes is gone.
    pub(crate) fn on_closed(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        if let Some(Command { task: Task::Reset(quiesce), .. }) = self.slots.get_mut(slot) {
            quiesce.closed();
            self.continue_reset(slot, link, context);
        }
    }

    /// A reset completes when the other queues are gone, and what it names is flushed.
    pub(super) fn continue_reset(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(Command { task: Task::Reset(quiesce), .. }) = self.slots.get_mut(slot) else { return };
        let devices = context.devices;
        let next = loop {
            match quiesce.advance() {
                // A device whose namespace was removed meanwhile has nothing to flush for anybody.
                QuiesceStep::Flush(device) if devices.device(device).is_none() => {}
                QuiesceStep::TellDrive if !self.drive.tell_reset(slot, &self.queue, context) => {}
                next @ (QuiesceStep::Wait | QuiesceStep::Flush(_) | QuiesceStep::TellDrive | QuiesceStep::Done) => {
                    break next;
                }
            }
        };
        match next {
            QuiesceStep::Flush(device) => self.send_to_device(slot, device, Some(Operation::Flush), link, context),
            QuiesceStep::Done => self.finish(slot, Status::SUCCESS, link, context),
            QuiesceStep::Wait | QuiesceStep::TellDrive => {}
        }
    }

    /// The drive's answer to a request of this connection.
    pub(crate) fn on_answer(
        &mut self,
        slot: u32,
        answer: Result<DriveReply, Refusal>,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        self.drive.note_answer(slot);
        let Some(command) = self.slots.get_mut(slot) else { return };
        let answer = match (&mut command.task, answer) {
            (Task::Drive(_), Err(refusal)) => Err(refusal),
            (Task::Drive(task), Ok(reply)) => match self.drive.take_answer((slot, task), reply, &self.queue, context) {
                Some(answer) => Ok(answer),
                None => return,
            },
            (Task::Io(IoTask::Transfer(transfer)), answer) if transfer.kind == TransferKind::WriteUncorrectable => {
                let status = answer.err().map_or(Status::SUCCESS, |refusal| refusal.status);
                return self.finish(slot, status, link, context);
            }
            // Whatever the drive makes of a reset, the controller is reset.
            (Task::Reset(_), _) => return self.continue_reset(slot, link, context),
            _ => return,
        };
        self.finish_answer(slot, answer, link, context);
    }

    /// One of the queues whose commands are preempted has nothing left at a device.
    pub(crate) fn on_preempted(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        if let Some(Command { task: Task::Drive(task), .. }) = self.slots.get_mut(slot)
            && let Some(answer) = DriveTask::preempted(task)
        {
            self.finish_answer(slot, Ok(answer), link, context);
        }
    }

    /// The drive's thread has nothing left of the connection, which has ended.
    pub(crate) fn on_drive_done(&mut self, link: &Link, context: &mut ReactorContext<'_>) {
        self.drive.note_end();
        self.report_closed(link, context);
    }

    fn finish_answer(
        &mut self,
        slot: u32,
        answer: Result<ebof_drive::Answer, Refusal>,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let Some(command) = self.slots.remove(slot) else { return };
        let origin = command.origin();
        let step = self.queue.answer(command.executing, answer);
        self.advance(step, origin, link, context);
    }

    /// The answer to an Abort that this connection sent to another queue.
    pub(crate) fn on_abort_answer(
        &mut self,
        slot: u32,
        aborted: bool,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        if self.slots.get(slot).is_some_and(|command| matches!(command.task, Task::Abort(..)))
            && let Some(command) = self.slots.remove(slot)
        {
            // Abort, Command Completion: dword 0 bit 0 is set when the command was not aborted.
            let cqe = self.queue.complete_with(command.executing, Status::SUCCESS, u64::from(!aborted));
            link.respond(&cqe, context);
        }
    }

    /// A queue in the host's memory that was to be created is there, or not.
    pub(crate) fn on_created(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        if self.slots.get(slot).is_some_and(|command| matches!(command.task, Task::Rings(_))) {
            self.finish(slot, status, link, context);
        }
    }

    // ---- what others want of the commands

    /// An Abort for a command of this queue.
    pub(crate) fn on_abort(&mut self, request: AbortRequest, link: &mut Link, context: &mut ReactorContext<'_>) {
        let found = slot_of(&self.slots, request.cid).and_then(|slot| Some((slot, self.slots.get(slot)?)));
        let aborted = match found.map(|(slot, command)| (slot, command.phase, &command.task)) {
            Some((slot, Phase::AwaitingBuffer | Phase::Receiving | Phase::Waiting | Phase::Held, _)) => {
                self.stop(slot, Status::ABORT_REQUESTED, link, context);
                true
            }
            // There may be pieces that are not at the device yet.
            Some((slot, Phase::AtDevice, Task::Io(IoTask::Copy(_)))) => {
                self.stop(slot, Status::ABORT_REQUESTED, link, context);
                false
            }
            Some((slot, Phase::AtDevice, _)) => {
                context.io.cancel(context.tag(self.handle, slot));
                false
            }
            Some((slot, Phase::Elsewhere, _)) => {
                // What the drive's thread has not begun is not done.
                let is_withdrawn = self.drive.withdraw(slot);
                if is_withdrawn {
                    self.finish(slot, Status::ABORT_REQUESTED, link, context);
                }
                is_withdrawn
            }
            None => false,
        };
        context.shared.post(request.reply.handle, Message::AbortAnswer { reply: request.reply, aborted });
    }

    /// Cancels what is at devices of a namespace, or of all for [`Nsid::ALL`]. What has begun there
    /// may end as if it had not been cancelled.
    pub(crate) fn cancel(&mut self, nsid: Nsid, link: &mut Link, context: &mut ReactorContext<'_>) {
        let is_meant =
            |command: &Command| command.phase == Phase::AtDevice && (nsid == Nsid::ALL || command.concerns(nsid));
        let slots: Vec<_> = self.slots.iter().filter(|(_, command)| is_meant(command)).map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(completion) = self.devices.cancel(slot, context) {
                self.on_device(completion, link, context);
            }
        }
    }

    /// Another host has preempted this one and wants its commands to `nsid` ended.
    pub(crate) fn on_preempt(
        &mut self,
        nsid: Nsid,
        reply: CommandRef,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        for (slot, phase) in self.commands_of(nsid) {
            if phase != Phase::Elsewhere {
                self.stop(slot, Status::PREEMPT_ABORT, link, context);
            }
        }
        self.waiters.await_preempted(nsid, reply);
    }

    /// The host has lost a namespace, or all for [`Nsid::ALL`]. What is at a device ends as it may,
    /// a Copy with the piece that is there; what has still to go there is refused.
    pub(crate) fn on_drain(
        &mut self,
        nsid: Nsid,
        token: DrainToken,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let status = Status::INVALID_NAMESPACE.dnr();
        for (slot, phase) in self.commands_of(nsid) {
            if phase.is_before_device() {
                self.stop(slot, status, link, context);
            } else if let Some(command) = self.slots.get_mut(slot)
                && matches!(command.task, Task::Io(IoTask::Copy(_)))
            {
                command.failed = Some(status);
            }
        }
        self.waiters.await_drained(nsid, token);
    }

    fn commands_of(&self, nsid: Nsid) -> Vec<(u32, Phase)> {
        let concerned = self.slots.iter().filter(|(_, command)| command.concerns(nsid));
        concerned.map(|(slot, command)| (slot, command.phase)).collect()
    }

    /// A host connects an I/O queue, and this one is of another association of it: what is at a
    /// device now may not land behind what comes by the new one, and the drive's thread may not
    /// begin then what it was asked before. Commands that still wait for data do not count: their
    /// data may never come.
    pub(crate) fn await_changes(&mut self, reply: CommandRef, context: &ReactorContext<'_>) {
        let under_way = |slot: u32, command: &Command| match command.phase {
            Phase::Held | Phase::AtDevice | Phase::Elsewhere => true,
            Phase::Waiting => command.fused().is_none() || is_pair_under_way(&self.slots, slot),
            Phase::AwaitingBuffer | Phase::Receiving => false,
        };
        let may_change = |command: &Command| command.task.io().is_some_and(IoTask::may_change);
        let changes = self.slots.iter().filter(|&(slot, command)| may_change(command) && under_way(slot, command));
        let commands = changes.map(|(slot, command)| (slot, command.started_us)).collect();
        let on_drive = self.drive.await_reached(reply, &self.queue, context);
        self.waiters.await_changes(reply, commands, on_drive);
    }

    /// Notifies waiters that none of the commands that they wait for is left.
    pub(crate) fn notify_waiters(&mut self, context: &ReactorContext<'_>) {
        if !self.waiters.is_empty() && !self.drive.awaits_end() {
            self.waiters.notify(&self.slots, context.shared);
        }
    }
}
