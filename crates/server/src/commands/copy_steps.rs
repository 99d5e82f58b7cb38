//! Carries out Copy commands: reads and writes pieces one after the other, within the share of the
//! turn. The progress of a copy is kept in `copy.rs`.

use ebof_backend::Operation;
use ebof_nvme::Status;

use crate::commands::Commands;
use crate::commands::command::{Command, Phase, Work};
use crate::link::Link;
use crate::observe::stats::Kind;
use crate::shared::reactor_context::ReactorContext;

/// Pieces of one connection in one turn at most, whatever its share is: a connection without others
/// beside it may have some in the next turn.
const PIECES_MAX: usize = 4;

impl Commands {
    /// The next piece is read in the next turn.
    pub(crate) fn queue_copy(&mut self, slot: u32) {
        if let Some(command) = self.slots.get_mut(slot) {
            command.phase = Phase::Waiting;
            self.pending_copies.push_back(slot);
        }
    }

    /// Continues copies, as far as the share of the turn reaches.
    pub(crate) fn continue_copies(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        for _ in 0..self.pending_copies.len().min(PIECES_MAX) {
            if !link.has_share() {
                return;
            }
            let Some(slot) = self.pending_copies.pop_front() else { return };
            let Some(Command { work: Work::Copy(copy), phase: Phase::Waiting, buffer, .. }) = self.slots.get_mut(slot)
            else {
                continue;
            };
            let Some((from, length)) = copy.piece() else { continue };
            let operation = buffer.take().map(|buffer| Operation::Read {
                offset: from.offset_bytes,
                len: length,
                data: buffer.into(),
            });
            link.charge(2 * length);
            self.send_to_device(slot, from.device, operation, link, context);
        }
    }

    /// A device has completed a read or write of a copy with `status`.
    pub(crate) fn copy_done(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(Command { work: Work::Copy(copy), failed, buffer, .. }) = self.slots.get_mut(slot) else { return };
        if let Some(status) = failed.or(Some(status)).filter(|status| !status.is_success()) {
            return self.finish(slot, status, link, context);
        }
        if !copy.is_writing() {
            let length = copy.piece().map_or(0, |(_, length)| length);
            let piece = buffer.as_mut().and_then(|buffer| buffer.as_mut_slice().get_mut(..length));
            if let Some(Err(status)) = piece.map(|piece| copy.check(piece, context.shared)) {
                self.finish(slot, status, link, context);
                return self.notify_drive(context);
            }
            copy.begin_write();
            if !(context.shared.fused_locks.is_any_waiting() && self.must_wait_for_lock(slot, context)) {
                self.write_piece(slot, link, context);
            }
            return;
        }
        if copy.advance() {
            self.finish_copy(slot, link, context);
        } else {
            self.queue_copy(slot);
        }
    }

    /// No lock delays the copy: it begins, or writes what it has read.
    pub(crate) fn copy_on(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        match self.slots.get(slot).map(|command| &command.work) {
            Some(Work::Copy(copy)) if copy.is_writing() => self.write_piece(slot, link, context),
            _ => self.queue_copy(slot),
        }
    }

    fn write_piece(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(Command { work: Work::Copy(copy), buffer, .. }) = self.slots.get_mut(slot) else { return };
        let device = copy.target_device();
        let fua = copy.fua();
        let operation = copy.changed().and_then(|changed| {
            let len = usize::try_from(changed.end - changed.start).ok()?;
            Some(Operation::Write { offset: changed.start, len, data: buffer.take()?.into(), fua })
        });
        self.send_to_device(slot, device, operation, link, context);
    }

    /// What was copied counts as read from the sources' namespaces too.
    fn finish_copy(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(Command { work: Work::Copy(copy), started_us, .. }) = self.slots.get(slot) else { return };
        let read = copy.read_bytes();
        let latency_us = context.now_us.saturating_sub(*started_us);
        for (nsid, bytes) in read {
            if let Some((_, stats)) = self.stats_of(nsid, context).and_then(|at| self.stats.get(at)) {
                stats.count(Kind::Read, bytes, false, latency_us);
            }
        }
        self.finish(slot, Status::SUCCESS, link, context);
    }
}
