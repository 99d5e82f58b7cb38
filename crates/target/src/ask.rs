//! What a connection asks of the drive behind its subsystem, and what it does with the answer.

use std::sync::Arc;

use ebof_drive::{Answer, Refusal, Request};
use ebof_fabrics::{Association, Executing};
use ebof_nvme::{Nsid, Status};

use crate::command::{Command, Phase, Work};
use crate::connection::{Connection, End};
use crate::drives::{Keeper, Told};
use crate::execute::Origin;
use crate::mailbox::{Asker, Message};
use crate::turn::Turn;

impl Connection {
    /// Has the drive of the subsystem answer; the command waits.
    pub(crate) fn ask_drive(&mut self, origin: Origin, executing: Executing, request: Request, turn: &mut Turn<'_>) {
        let association = self.queue.association().cloned();
        let keeper = association.as_ref().and_then(|association| turn.shared.drives.keeper(&association.subsystem));
        let (Some(association), Some(keeper)) = (association, keeper) else {
            // The drive went away between the decision and now.
            let cqe = self.queue.complete(executing, Status::INVALID_FIELD.dnr());
            self.respond(&cqe, turn);
            return;
        };
        let command = self.command(origin, executing, Work::Drive { waiting: 0, answer: None }, 0, turn);
        let slot = self.commands.insert(command);
        self.submit_request(slot, request, &association, &keeper, turn);
    }

    /// The drive's answer to a request of this connection.
    pub(crate) fn on_answer(
        &mut self,
        slot: u32,
        answer: Result<Told, Refusal>,
        turn: &mut Turn<'_>,
    ) -> Result<(), End> {
        let (waiting, kept) = match self.commands.get_mut(slot).map(|command| &mut command.work) {
            Some(Work::Drive { waiting, answer }) => (waiting, answer),
            Some(Work::Reset { telling, .. }) if *telling => {
                self.finish(slot, Status::SUCCESS, turn);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let Told { answer, abort } = match answer {
            Ok(told) => told,
            Err(refusal) => return self.settle_answer(slot, Err(refusal), turn),
        };
        let subsystem = self.queue.association().map(|association| association.subsystem.clone());
        let reply = Asker { handle: self.handle, slot };
        let mut preempted = Vec::new();
        for (nsid, host) in abort {
            let registry = turn.shared.registry();
            let queues = subsystem.as_ref().map(|nqn| registry.queues_of(nqn, host)).unwrap_or_default();
            preempted.extend(queues.into_iter().map(|handle| (handle, nsid)));
        }
        if preempted.is_empty() {
            return self.settle_answer(slot, Ok(answer), turn);
        }
        // Reservation Acquire, Preempt and Abort: it completes when those commands cannot reach the medium any more.
        *waiting = preempted.len();
        *kept = Some(answer);
        for (handle, nsid) in preempted {
            turn.shared.post(handle, Message::Preempt { handle, nsid, reply });
        }
        Ok(())
    }

    /// One of the queues whose commands are preempted has nothing left at a device.
    pub(crate) fn on_preempted(&mut self, slot: u32, turn: &mut Turn<'_>) -> Result<(), End> {
        let Some(Command { work: Work::Drive { waiting, answer }, .. }) = self.commands.get_mut(slot) else {
            return Ok(());
        };
        *waiting = waiting.saturating_sub(1);
        match answer.take_if(|_| *waiting == 0) {
            Some(answer) => self.settle_answer(slot, Ok(answer), turn),
            None => Ok(()),
        }
    }

    fn settle_answer(&mut self, slot: u32, answer: Result<Answer, Refusal>, turn: &mut Turn<'_>) -> Result<(), End> {
        let Some(command) = self.commands.remove(slot) else { return Ok(()) };
        let origin = Origin::without_data(command.cid, command.nsid);
        let step = self.queue.answer(command.executing, answer);
        self.advance(step, origin, turn).map(|_| ())
    }

    /// Another host has preempted this one and wants its commands to `nsid` ended.
    pub(crate) fn on_preempt(&mut self, nsid: Nsid, reply: Asker, turn: &mut Turn<'_>) {
        let concerned = self.commands.iter().filter(|(_, command)| command.nsid == nsid && command.work.is_io());
        let concerned: Vec<_> = concerned.map(|(slot, command)| (slot, command.phase)).collect();
        for (slot, phase) in concerned {
            match phase {
                Phase::AtDevice => {
                    self.fail_with(slot, Status::PREEMPT_ABORT);
                    turn.io.cancel(turn.tag(self.handle, slot));
                }
                Phase::Parked | Phase::Receiving | Phase::Waiting => self.stop(slot, Status::PREEMPT_ABORT, turn),
                Phase::Elsewhere => {}
            }
        }
        self.preempting.push((nsid, reply));
        self.settle_preempting(turn);
    }

    fn fail_with(&mut self, slot: u32, status: Status) {
        if let Some(command) = self.commands.get_mut(slot) {
            command.failed = Some(status);
        }
    }

    /// Tells those who wait for it that nothing for a namespace is left at a device.
    pub(crate) fn settle_preempting(&mut self, turn: &Turn<'_>) {
        let commands = &self.commands;
        let is_busy =
            |nsid| commands.iter().any(|(_, command)| command.nsid == nsid && command.phase == Phase::AtDevice);
        self.preempting.retain(|&(nsid, reply)| {
            let busy = is_busy(nsid);
            if !busy {
                turn.shared.post(reply.handle, Message::Preempted { reply });
            }
            busy
        });
    }

    /// A reset is done as far as queues and devices go: the drive may make something of it before it completes.
    pub(crate) fn tell_reset(&mut self, slot: u32, turn: &mut Turn<'_>) {
        let association = self.queue.association().cloned();
        let keeper = association.as_ref().and_then(|association| turn.shared.drives.keeper(&association.subsystem));
        let (Some(association), Some(keeper)) = (association, keeper) else {
            self.finish(slot, Status::SUCCESS, turn);
            return;
        };
        if let Some(Command { work: Work::Reset { telling, .. }, .. }) = self.commands.get_mut(slot) {
            *telling = true;
        }
        self.submit_request(slot, Request::Reset, &association, &keeper, turn);
    }

    /// What just failed has to be written down before anything else happens.
    pub(crate) fn hurry_drive(&self, turn: &Turn<'_>) {
        let association = self.queue.association();
        if let Some(keeper) = association.and_then(|association| turn.shared.drives.keeper(&association.subsystem)) {
            keeper.hurry();
        }
    }

    fn submit_request(
        &self,
        slot: u32,
        request: Request,
        association: &Association,
        keeper: &Arc<Keeper>,
        turn: &Turn<'_>,
    ) {
        let reply = Asker { handle: self.handle, slot };
        let mailbox = turn.shared.mailbox_of(self.handle).cloned();
        keeper.submit(request, association.origin(), move |answer| {
            if let Some(mailbox) = mailbox {
                mailbox.post(Message::Answer { reply, answer });
            }
        });
    }

    /// Has the drive remember which host has which controller.
    pub(crate) fn take_seat(&self, turn: &Turn<'_>) {
        let Some(association) = self.queue.association() else { return };
        if let Some(keeper) = turn.shared.drives.keeper(&association.subsystem) {
            keeper.submit(Request::Seat, association.origin(), |_| {});
        }
    }
}
