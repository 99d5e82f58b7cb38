//! Requests to the drive behind a connection's subsystem, and what is done with its answers.

use std::sync::Arc;

use ebof_drive::{Answer, Refusal, Request};
use ebof_fabrics::{Association, Executing, Extent, LbaStatusQuery, Step, TransferKind};
use ebof_medium::Thin;
use ebof_nvme::{Nsid, Status};

use crate::commands::Commands;
use crate::commands::command::{Command, Phase, Waiter, Work};
use crate::commands::execute::Origin;
use crate::drives::drain::DrainToken;
use crate::drives::{DriveActor, DriveReply, SubmittedRequest};
use crate::link::Link;
use crate::shared::mailbox::{CommandRef, Message};
use crate::shared::reactor_context::ReactorContext;

impl Commands {
    /// Sends a request to the drive of the subsystem; the command waits for the answer.
    pub(crate) fn ask_drive(
        &mut self,
        origin: Origin,
        executing: Executing,
        request: Request,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let Some((association, actor)) = self.drive(context) else {
            // The drive went away between the decision and now.
            let cqe = self.queue.complete(executing, Status::INVALID_FIELD.dnr());
            link.respond(&cqe, context);
            return;
        };
        let command = self.command(origin, executing, Work::Drive { waiting: 0, answer: None }, 0, context);
        let slot = self.slots.insert(command);
        let request = self.submit_request(slot, request, &association, &actor, context);
        self.drive_requests.insert(slot, request);
    }

    /// The drive's answer to a request of this connection.
    pub(crate) fn on_answer(
        &mut self,
        slot: u32,
        answer: Result<DriveReply, Refusal>,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        self.drive_requests.remove(slot);
        let (waiting, kept) = match self.slots.get_mut(slot).map(|command| &mut command.work) {
            Some(Work::Drive { waiting, answer }) => (waiting, answer),
            Some(Work::Transfer(transfer)) if transfer.kind == TransferKind::WriteUncorrectable => {
                let status = answer.err().map_or(Status::SUCCESS, |refusal| refusal.status);
                self.finish(slot, status, link, context);
                return;
            }
            Some(Work::Reset { drive_notified, .. }) if *drive_notified => {
                self.finish(slot, Status::SUCCESS, link, context);
                return;
            }
            _ => return,
        };
        let DriveReply { answer, abort } = match answer {
            Ok(reply) => reply,
            Err(refusal) => return self.finish_answer(slot, Err(refusal), link, context),
        };
        let drive = self.queue.association().map(|association| association.drive.clone());
        let reply = CommandRef { handle: self.handle, slot };
        let mut preempted = Vec::new();
        for (nsid, host) in abort {
            let registry = context.shared.registry();
            let queues = drive.as_ref().map(|nqn| registry.queues_of(nqn, host)).unwrap_or_default();
            preempted.extend(queues.into_iter().map(|handle| (handle, nsid)));
        }
        if preempted.is_empty() {
            return self.finish_answer(slot, Ok(answer), link, context);
        }
        // Reservation Acquire, Preempt and Abort: it completes when those commands cannot reach the
        // medium any more.
        *waiting = preempted.len();
        *kept = Some(answer);
        for (handle, nsid) in preempted {
            context.shared.post(handle, Message::Preempt { handle, nsid, reply });
        }
    }

    /// One of the queues whose commands are preempted has nothing left at a device.
    pub(crate) fn on_preempted(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(Command { work: Work::Drive { waiting, answer }, .. }) = self.slots.get_mut(slot) else {
            return;
        };
        *waiting = waiting.saturating_sub(1);
        if let Some(answer) = answer.take_if(|_| *waiting == 0) {
            self.finish_answer(slot, Ok(answer), link, context);
        }
    }

    fn finish_answer(
        &mut self,
        slot: u32,
        answer: Result<Answer, Refusal>,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let Some(command) = self.slots.remove(slot) else { return };
        let origin = Origin::of(&command);
        let step = self.queue.answer(command.executing, answer);
        self.advance(step, origin, link, context);
    }

    /// Another host has preempted this one and wants its commands to `nsid` ended.
    pub(crate) fn on_preempt(
        &mut self,
        nsid: Nsid,
        reply: CommandRef,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let concerned = self.slots.iter().filter(|(_, command)| command.concerns(nsid));
        let concerned: Vec<_> = concerned.map(|(slot, command)| (slot, command.phase)).collect();
        for (slot, phase) in concerned {
            match phase {
                Phase::AtDevice => {
                    self.fail_with(slot, Status::PREEMPT_ABORT);
                    context.io.cancel(context.tag(self.handle, slot));
                }
                Phase::AwaitingBuffer | Phase::Receiving | Phase::Waiting | Phase::Held => {
                    self.stop(slot, Status::PREEMPT_ABORT, link, context);
                }
                Phase::Elsewhere => {}
            }
        }
        self.waiters.push(Waiter::Preempt(nsid, reply));
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
        let concerned = self.slots.iter().filter(|(_, command)| command.concerns(nsid));
        let concerned: Vec<_> = concerned.map(|(slot, command)| (slot, command.phase)).collect();
        for (slot, phase) in concerned {
            if phase.is_before_device() {
                self.stop(slot, status, link, context);
            } else if matches!(self.slots.get(slot), Some(Command { work: Work::Copy(_), .. })) {
                self.fail_with(slot, status);
            }
        }
        self.waiters.push(Waiter::Drain(nsid, token));
    }

    /// Ends a command with `status` if it waits for the drive's thread to begin it. Returns whether
    /// it did.
    pub(crate) fn withdraw(
        &mut self,
        slot: u32,
        status: Status,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> bool {
        let is_withdrawn = self.drive_requests.withdraw(slot);
        if is_withdrawn {
            self.finish(slot, status, link, context);
        }
        is_withdrawn
    }

    fn fail_with(&mut self, slot: u32, status: Status) {
        if let Some(command) = self.slots.get_mut(slot) {
            command.failed = Some(status);
        }
    }

    /// The connection ends while the drive's thread has work of it. That is done in order: when it
    /// comes to what it is asked now, nothing of this connection is left there.
    pub(crate) fn await_drive(&mut self, context: &ReactorContext<'_>) {
        self.awaits_drive = self.post_after_drive(Message::DriveDone { handle: self.handle }, context);
    }

    /// Has `message` posted to this connection's reactor when the drive's thread has come to the
    /// end of what it was asked before. `false` if there is no such thread.
    fn post_after_drive(&self, message: Message, context: &ReactorContext<'_>) -> bool {
        let mailbox = context.shared.mailbox_of(self.handle).cloned();
        let (Some((_, actor)), Some(mailbox)) = (self.drive(context), mailbox) else {
            return false;
        };
        actor.after_all(move || mailbox.post(message));
        true
    }

    /// A host connects an I/O queue, and this one is of another association of it: what is at a
    /// device now may not land behind what comes by the new one, and the drive's thread may not
    /// begin then what it was asked before. Commands that still wait for data do not count: their
    /// data may never come.
    pub(crate) fn await_changes(&mut self, reply: CommandRef, context: &ReactorContext<'_>) {
        let under_way = |slot: u32, command: &Command| match command.phase {
            Phase::Held | Phase::AtDevice | Phase::Elsewhere => true,
            Phase::Waiting => command.work.fused().is_none() || self.is_pair_under_way(slot),
            Phase::AwaitingBuffer | Phase::Receiving => false,
        };
        let changes =
            self.slots.iter().filter(|&(slot, command)| command.work.may_change() && under_way(slot, command));
        let commands = changes.map(|(slot, command)| (slot, command.started_us)).collect();
        let message = Message::DriveReached { handle: self.handle, reply };
        let on_drive = !self.drive_requests.is_empty() && self.post_after_drive(message, context);
        self.waiters.push(Waiter::Connect { reply, commands, on_drive });
    }

    /// The drive's thread has begun all that it had been asked by this connection when the Connect
    /// `connect` began to wait for it.
    pub(crate) fn drive_reached(&mut self, connect: CommandRef) {
        for waiter in &mut self.waiters {
            if let Waiter::Connect { reply, on_drive, .. } = waiter
                && *reply == connect
            {
                *on_drive = false;
            }
        }
    }

    /// Notifies waiters that none of the commands that they wait for is left at a device.
    pub(crate) fn notify_waiters(&mut self, context: &ReactorContext<'_>) {
        if self.awaits_drive {
            return;
        }
        let commands = &self.slots;
        // What only a drive's thread changes is elsewhere meanwhile.
        let changes = |command: &Command| {
            command.phase == Phase::AtDevice
                || command.phase == Phase::Elsewhere
                    && command.work.transfer_kind() == Some(TransferKind::WriteUncorrectable)
        };
        self.waiters.retain(|waiter| {
            let busy = match waiter {
                // Whatever phases a command has still to go through: only those that cannot reach a
                // device any more do not count.
                Waiter::Drain(nsid, _) => {
                    commands.iter().any(|(_, command)| command.concerns(*nsid) && !command.only_awaits_data())
                }
                Waiter::Preempt(nsid, _) => {
                    commands.iter().any(|(_, command)| command.concerns(*nsid) && changes(command))
                }
                Waiter::Connect { commands: awaited, on_drive, .. } => {
                    *on_drive || commands.iter().any(|(slot, command)| awaited.contains(&(slot, command.started_us)))
                }
            };
            if !busy {
                waiter.notify(context.shared);
            }
            busy
        });
    }

    /// A reset is done as far as queues and devices go: the drive may make something of it before
    /// it completes.
    pub(crate) fn notify_drive_of_reset(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some((association, actor)) = self.drive(context) else {
            self.finish(slot, Status::SUCCESS, link, context);
            return;
        };
        if let Some(Command { work: Work::Reset { drive_notified, .. }, .. }) = self.slots.get_mut(slot) {
            *drive_notified = true;
        }
        // The reset has begun: what the drive makes of it is not withdrawn.
        self.submit_request(slot, Request::Reset, &association, &actor, context);
    }

    /// Has the drive save a severe error at once.
    pub(crate) fn notify_drive(&self, context: &ReactorContext<'_>) {
        if let Some((_, actor)) = self.drive(context) {
            actor.collect_soon();
        }
    }

    fn submit_request(
        &self,
        slot: u32,
        request: Request,
        association: &Association,
        actor: &Arc<DriveActor>,
        context: &ReactorContext<'_>,
    ) -> SubmittedRequest {
        actor.submit(request, association.origin(), self.answer_to(slot, context))
    }

    /// The association, and the drive of its subsystem, if there are both.
    fn drive(&self, context: &ReactorContext<'_>) -> Option<(Arc<Association>, Arc<DriveActor>)> {
        let association = self.queue.association()?;
        let actor = context.shared.drives.actor(&association.drive)?;
        Some((Arc::clone(association), actor))
    }

    /// Posts the drive's answer to the command in `slot` to this connection's reactor.
    fn answer_to(
        &self,
        slot: u32,
        context: &ReactorContext<'_>,
    ) -> impl FnOnce(Result<DriveReply, Refusal>) + Send + use<> {
        let reply = CommandRef { handle: self.handle, slot };
        let mailbox = context.shared.mailbox_of(self.handle).cloned();
        move |answer| {
            if let Some(mailbox) = mailbox {
                mailbox.post(Message::Answer { reply, answer });
            }
        }
    }

    /// Has the drive remember that blocks cannot be read; the command waits.
    pub(crate) fn mark_bad(&mut self, slot: u32, extent: Extent, link: &mut Link, context: &mut ReactorContext<'_>) {
        let kept = self.queue.association().and_then(|of| context.shared.drives.thin(&of.drive, extent.device));
        let devices = context.devices;
        let (Some((actor, thin)), Some(device)) = (kept, devices.device(extent.device)) else {
            return self.finish(slot, Status::INVALID_NAMESPACE.dnr(), link, context);
        };
        if let Some(command) = self.slots.get_mut(slot) {
            command.phase = Phase::Elsewhere;
        }
        let block = u64::from(device.geometry().logical_block_bytes.max(1));
        let first = extent.offset_bytes / block;
        let blocks = first..first + u64::from(extent.length_bytes) / block;
        let request = actor.mark_bad(thin.volume(), blocks, self.answer_to(slot, context));
        self.drive_requests.insert(slot, request);
    }

    /// Answers which blocks are allocated, or cannot be read.
    pub(crate) fn lba_status(
        &mut self,
        origin: Origin,
        executing: Executing,
        query: &LbaStatusQuery,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let kept = self.queue.association().and_then(|of| context.shared.drives.thin(&of.drive, query.device));
        let block = context.devices.device(query.device).map(|device| u64::from(device.geometry().logical_block_bytes));
        let step = match kept.zip(block) {
            Some(((_, thin), block)) => {
                let (ranges, complete) =
                    if query.allocated { allocated(&thin, query, block) } else { bad(&thin, query) };
                self.queue.lba_status(executing, &ranges, complete)
            }
            None => Step::Complete(self.queue.complete(executing, Status::INVALID_NAMESPACE.dnr())),
        };
        self.advance(step, origin, link, context);
    }

    /// Has the drive remember which host has which controller.
    pub(crate) fn assign_cntlid(&mut self, context: &ReactorContext<'_>) {
        if let Some((association, actor)) = self.drive(context) {
            if association.is_secondary() {
                return;
            }
            // Not withdrawn when the association ends, but waited for.
            actor.submit(Request::AssignCntlid, association.origin(), |_| {});
            self.asked_for_cntlid = true;
        }
    }
}

/// Ranges of blocks that cannot be read (first block, blocks), one more than there is room for;
/// they are all that there are otherwise.
fn bad(thin: &Thin, query: &LbaStatusQuery) -> (Vec<(u64, u64)>, bool) {
    let first = query.range.start;
    let end = query.range.end;
    let ranges = thin.bad_ranges(&query.range, query.ranges_max.saturating_add(1)).into_iter();
    let within = ranges.map(|range| (range.start.max(first), range.end.min(end)));
    (within.map(|(start, end)| (start, end - start)).collect(), true)
}

/// Ranges of blocks of `block` bytes that are allocated, and whether all of what was asked for was
/// looked at.
fn allocated(thin: &Thin, query: &LbaStatusQuery, block: u64) -> (Vec<(u64, u64)>, bool) {
    let first = query.range.start;
    let end = query.range.end;
    // What is looked at is bounded, so that the others on the thread do not wait: the host asks on
    // where it ends.
    let bytes = first * block..end * block;
    let runs_max = query.ranges_max.saturating_add(1).saturating_mul(2);
    let runs = thin.allocated(bytes.clone(), runs_max);
    let seen = runs.last().map_or(bytes.start, |run| run.range.end);
    let allocated = runs.iter().filter(|run| run.allocated).map(|run| &run.range);
    // The unit of allocation may end within a block: it is in the range of what is allocated then.
    let blocks = allocated.map(|range| (range.start / block, range.end.div_ceil(block)));
    (blocks.map(|(start, end)| (start, end - start)).collect(), seen >= end * block)
}
