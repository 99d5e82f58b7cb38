//! Who waits until commands of a connection cannot reach the medium any more.

use ebof_fabrics::TransferKind;
use ebof_nvme::Nsid;

use crate::commands::command::{Command, Phase};
use crate::commands::slots::Slots;
use crate::drives::drain::DrainToken;
use crate::shared::Shared;
use crate::shared::mailbox::{CommandRef, Message};

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

    /// `reply` hears when commands to `nsid`, or to any for [`Nsid::ALL`], cannot change the
    /// medium.
    pub(crate) fn await_preempted(&mut self, nsid: Nsid, reply: CommandRef) {
        self.list.push(Waiter::Preempt(nsid, reply));
    }

    /// The token is dropped when no command to `nsid`, or to any for [`Nsid::ALL`], can reach the
    /// medium.
    pub(crate) fn await_drained(&mut self, nsid: Nsid, token: DrainToken) {
        self.list.push(Waiter::Drain(nsid, token));
    }

    /// The Connect `reply` is told when none of these commands, by slot and time of arrival, is
    /// left; with `on_drive` not before [`drive_reached`](Self::drive_reached).
    pub(crate) fn await_changes(&mut self, reply: CommandRef, commands: Vec<(u32, u64)>, on_drive: bool) {
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
            shared.post(reply.handle, Message::Closed { reply });
        }
    }
}

impl Waiter {
    /// Whether one of the commands that it waits for is left.
    fn is_busy(&self, commands: &Slots<Command>) -> bool {
        // What only a drive's thread changes is elsewhere meanwhile.
        let changes = |command: &Command| {
            command.phase == Phase::AtDevice
                || command.phase == Phase::Elsewhere
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
            Self::Preempt(_, reply) => shared.post(reply.handle, Message::Preempted { reply }),
            Self::Connect { reply, .. } => shared.looked(reply.handle),
        }
    }
}
