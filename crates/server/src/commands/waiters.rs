//! What others want of the commands of a connection, and who waits until they cannot reach the
//! medium any more.

use ebof_fabrics::{IoTask, Task, TransferKind};
use ebof_nvme::{Cid, Nsid, Status};

use crate::commands::command::{Command, CommandPhase};
use crate::commands::execution::Execution;
use crate::commands::fused::{is_pair_under_way, slot_of};
use crate::commands::slots::Slots;
use crate::drives::drain::DrainToken;
use crate::link::Link;
use crate::shared::Shared;
use crate::shared::mailbox::{CommandRef, CommandReply, Message};
use crate::shared::reactor_context::ReactorContext;

/// Those who wait for commands of one connection, or for its end.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// For some of the commands.
    list: Vec<Waiter>,
    /// Resets that wait until nothing of the connection is left at a device.
    resets: Vec<CommandRef>,
}

/// A waiter until commands of a connection cannot change the medium any more.
#[derive(Debug)]
enum Waiter {
    /// Reservation Acquire with Preempt and Abort: for all commands to this namespace.
    Preempt(Nsid, CommandRef),
    /// The host has lost the namespace, or all for [`Nsid::ALL`]; the token is dropped.
    Drain(Nsid, #[expect(dead_code, reason = "dropping it is the notice")] DrainToken),
    /// A Connect of the same host: for these, by slot and time of arrival, and, if `on_drive`,
    /// until the drive's thread has begun what was asked of it before.
    Connect { reply: CommandRef, commands: Vec<(u32, u64)>, on_drive: bool },
}

impl Waiters {
    /// `reply` hears when nothing of the connection is left.
    pub(crate) fn await_end(&mut self, reply: CommandRef) {
        self.resets.push(reply);
    }

    /// Another host has preempted this one and wants its commands to `nsid`, or to any for
    /// [`Nsid::ALL`], ended; `reply` hears when they cannot change the medium.
    pub(crate) fn preempt(
        &mut self,
        nsid: Nsid,
        reply: CommandRef,
        execution: &mut Execution,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        for (slot, phase) in commands_of(&execution.slots, nsid) {
            if phase != CommandPhase::Elsewhere {
                execution.stop(slot, Status::PREEMPT_ABORT, link, context);
            }
        }
        self.list.push(Waiter::Preempt(nsid, reply));
    }

    /// The host has lost a namespace, or all for [`Nsid::ALL`]. What is at a device ends as it may,
    /// a Copy with the piece that is there; what has still to go there is refused. The token is
    /// dropped when no such command can reach the medium.
    pub(crate) fn drain(
        &mut self,
        nsid: Nsid,
        token: DrainToken,
        execution: &mut Execution,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let status = Status::INVALID_NAMESPACE.dnr();
        for (slot, phase) in commands_of(&execution.slots, nsid) {
            if phase.is_before_device() {
                execution.stop(slot, status, link, context);
            } else if let Some(command) = execution.slots.get_mut(slot)
                && matches!(command.task, Task::Io(IoTask::Copy(_)))
            {
                command.failed = Some(status);
            }
        }
        self.list.push(Waiter::Drain(nsid, token));
    }

    /// A host connects an I/O queue, and this one is of another association of it: what is at a
    /// device now may not land behind what comes by the new one, and the drive's thread may not
    /// begin then what it was asked before. Commands that still wait for data do not count: their
    /// data may never come. The Connect `reply` is told when none of the others is left, and the
    /// drive has begun what it was asked (see [`drive_reached`](Self::drive_reached)).
    pub(crate) fn await_changes(&mut self, reply: CommandRef, execution: &Execution, context: &ReactorContext<'_>) {
        let slots = &execution.slots;
        let under_way = |slot: u32, command: &Command| match command.phase {
            CommandPhase::Held | CommandPhase::AtDevice | CommandPhase::Elsewhere => true,
            CommandPhase::Waiting => command.fused().is_none() || is_pair_under_way(slots, slot),
            CommandPhase::AwaitingBuffer | CommandPhase::Receiving => false,
        };
        let may_change = |command: &Command| command.task.io().is_some_and(IoTask::may_change);
        let changes = slots.iter().filter(|&(slot, command)| may_change(command) && under_way(slot, command));
        let commands = changes.map(|(slot, command)| (slot, command.started_us)).collect();
        let on_drive = execution.drive.await_reached(reply, &execution.queue, context);
        self.list.push(Waiter::Connect { reply, commands, on_drive });
    }

    /// The drive's thread has begun all that it had been asked by this connection when the Connect
    /// `connect` began to wait for it.
    pub(crate) fn drive_reached(&mut self, connect: CommandRef) {
        for waiter in &mut self.list {
            if let Waiter::Connect { reply, on_drive, .. } = waiter
                && *reply == connect
            {
                *on_drive = false;
            }
        }
    }

    /// Whether nobody waits for commands.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Notifies those for whom none of `commands` is left.
    pub(crate) fn notify(&mut self, commands: &Slots<Command>, shared: &Shared) {
        self.list.retain(|waiter| {
            let is_busy = waiter.is_busy(commands);
            if !is_busy {
                waiter.notify(shared);
            }
            is_busy
        });
    }

    /// The connection is gone, and with it all commands.
    pub(crate) fn notify_all(&self, shared: &Shared) {
        for waiter in &self.list {
            waiter.notify(shared);
        }
        for &reply in &self.resets {
            shared.post(reply.handle, Message::Reply { to: reply, reply: CommandReply::Closed });
        }
    }
}

impl Waiter {
    /// Whether one of the commands that it waits for is left.
    fn is_busy(&self, commands: &Slots<Command>) -> bool {
        // What only a drive's thread changes is elsewhere meanwhile.
        let changes = |command: &Command| {
            command.phase == CommandPhase::AtDevice
                || command.phase == CommandPhase::Elsewhere
                    && command.transfer_kind() == Some(TransferKind::WriteUncorrectable)
        };
        match self {
            // Whatever phases a command has still to go through: only those that cannot reach a
            // device any more do not count.
            Self::Drain(nsid, _) => {
                commands.iter().any(|(_, command)| command.concerns(*nsid) && !command.only_awaits_data())
            }
            Self::Preempt(nsid, _) => commands.iter().any(|(_, command)| command.concerns(*nsid) && changes(command)),
            Self::Connect { commands: awaited, on_drive, .. } => {
                *on_drive || commands.iter().any(|(slot, command)| awaited.contains(&(slot, command.started_us)))
            }
        }
    }

    /// None is left.
    fn notify(&self, shared: &Shared) {
        match *self {
            Self::Drain(..) => {}
            Self::Preempt(_, reply) => {
                shared.post(reply.handle, Message::Reply { to: reply, reply: CommandReply::Preempted });
            }
            Self::Connect { reply, .. } => shared.acknowledge_check(reply.handle),
        }
    }
}

fn commands_of(commands: &Slots<Command>, nsid: Nsid) -> Vec<(u32, CommandPhase)> {
    let concerned = commands.iter().filter(|(_, command)| command.concerns(nsid));
    concerned.map(|(slot, command)| (slot, command.phase)).collect()
}

/// Aborts a command, if it is there and has not begun at a device. Returns whether it has not and
/// will not be done.
pub(crate) fn abort(execution: &mut Execution, cid: Cid, link: &mut Link, context: &mut ReactorContext<'_>) -> bool {
    let slots = &execution.slots;
    let found = slot_of(slots, cid).and_then(|slot| Some((slot, slots.get(slot)?)));
    match found.map(|(slot, command)| (slot, command.phase, &command.task)) {
        Some((
            slot,
            CommandPhase::AwaitingBuffer | CommandPhase::Receiving | CommandPhase::Waiting | CommandPhase::Held,
            _,
        )) => {
            execution.stop(slot, Status::ABORT_REQUESTED, link, context);
            true
        }
        // There may be pieces that are not at the device yet.
        Some((slot, CommandPhase::AtDevice, Task::Io(IoTask::Copy(_)))) => {
            execution.stop(slot, Status::ABORT_REQUESTED, link, context);
            false
        }
        Some((slot, CommandPhase::AtDevice, _)) => {
            context.io.cancel(context.tag(execution.handle, slot));
            false
        }
        Some((slot, CommandPhase::Elsewhere, _)) => {
            // What the drive's thread has not begun is not done.
            let is_withdrawn = execution.drive.withdraw(slot);
            if is_withdrawn {
                execution.finish(slot, Status::ABORT_REQUESTED, link, context);
            }
            is_withdrawn
        }
        None => false,
    }
}
