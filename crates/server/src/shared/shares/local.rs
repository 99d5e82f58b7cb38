//! What a reactor remembers of shares until its turn comes to them: requests that are done,
//! commands that may go, and when a limit lets the next ones through.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{DriveShares, Ticket, TicketId};
use crate::shared::handle::reactor_of;
use crate::shared::mailbox::CommandRef;

/// What a reactor remembers of shares.
pub(crate) struct LocalShares {
    /// Which reactor it is.
    index: usize,
    /// Requests that are done. They are settled together: what a device has done at once counts as
    /// being there until then, so that a turn has a depth.
    done: Vec<Ticket>,
    /// Commands of this reactor that may go.
    admitted: VecDeque<(TicketId, CommandRef)>,
    /// When to look at a drive again, microseconds.
    timers: Vec<(u64, Arc<DriveShares>)>,
}

impl LocalShares {
    pub(crate) fn new(index: usize) -> Self {
        Self { index, done: Vec::new(), admitted: VecDeque::new(), timers: Vec::new() }
    }

    /// The device has done a request.
    #[cold]
    pub(crate) fn note_done(&mut self, ticket: Option<Ticket>) {
        self.done.extend(ticket);
    }

    /// A command may go: of this reactor in this turn or the next one, otherwise its reactor is
    /// told.
    pub(super) fn admit(&mut self, ticket: TicketId, owner: CommandRef, drive: &DriveShares) {
        if reactor_of(owner.handle) == self.index {
            self.admitted.push_back((ticket, owner));
        } else {
            drive.post(ticket, owner);
        }
    }

    /// A limit of a drive's function lets something through at `due_us`.
    pub(super) fn note_due(&mut self, drive: &Arc<DriveShares>, due_us: Option<u64>) {
        let Some(due_us) = due_us else { return };
        match self.timers.iter_mut().find(|(_, known)| Arc::ptr_eq(known, drive)) {
            Some((at_us, _)) => *at_us = due_us.min(*at_us),
            None => self.timers.push((due_us, Arc::clone(drive))),
        }
    }

    /// Looks at a drive when its limits let something through.
    pub(crate) fn look_when_due(&mut self, drive: &Arc<DriveShares>) {
        let due_us = drive.scheduler().due_us();
        self.note_due(drive, due_us);
    }

    /// Whether there is something to do at once.
    pub(crate) fn has_work(&self) -> bool {
        !(self.done.is_empty() && self.admitted.is_empty())
    }

    /// When there is something to do although nothing happens before, microseconds.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.timers.iter().map(|(due_us, _)| *due_us).min()
    }

    /// Settles what is done, and looks at limits whose time has come. Returns whether there was
    /// anything.
    #[inline]
    pub(crate) fn finish_done(&mut self, now_us: u64) -> bool {
        if !self.has_work() && self.due_us().is_none_or(|due_us| due_us > now_us) {
            return false;
        }
        self.settle_all(now_us);
        true
    }

    fn settle_all(&mut self, now_us: u64) {
        while let Some(at) = self.timers.iter().position(|(due_us, _)| *due_us <= now_us) {
            let (_, drive) = self.timers.swap_remove(at);
            self.settle_drive(&drive, now_us);
        }
        while let Some(last) = self.done.last() {
            let drive = Arc::clone(&last.drive);
            self.settle_drive(&drive, now_us);
        }
    }

    /// Settles what is done by one drive.
    fn settle_drive(&mut self, drive: &Arc<DriveShares>, now_us: u64) {
        let mut scheduler = drive.scheduler();
        self.done.retain_mut(|ticket| {
            let is_other = !Arc::ptr_eq(&ticket.drive, drive);
            if !is_other && let Some(id) = ticket.id.take() {
                scheduler.release(id, now_us);
            }
            is_other
        });
        drive.note_sole(&mut scheduler, now_us);
        drive.admit(&mut scheduler, now_us, &mut |id, owner| self.admit(id, owner, drive));
        let due_us = scheduler.due_us();
        drop(scheduler);
        self.note_due(drive, due_us);
    }

    /// How many commands may go.
    pub(crate) fn admitted(&self) -> usize {
        self.admitted.len()
    }

    /// A command that may go.
    pub(crate) fn next_admitted(&mut self) -> Option<(TicketId, CommandRef)> {
        self.admitted.pop_front()
    }
}
