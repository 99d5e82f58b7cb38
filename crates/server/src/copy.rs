//! Copy: source by source, piece by piece, through one buffer of the connection's budget. A piece
//! is read in one turn of the reactor and counts against the connection's share of it, so that
//! others are not kept waiting.

use std::ops::Range;

use ebof_backend::Operation;
use ebof_fabrics::{CopyPlan, CopyRange, DeviceId};
use ebof_nvme::protection::Rules;
use ebof_nvme::{Nsid, Status};

use crate::command::{Command, Phase, Work};
use crate::commands::Commands;
use crate::link::Link;
use crate::stats::Kind;
use crate::turn::Turn;

/// Bytes of a piece at most.
pub(crate) const PIECE_BYTES: usize = 128 << 10;

/// Pieces of one connection in one turn at most, whatever its share is: whoever has no company now
/// may have some in the next turn.
const PIECES_MAX: usize = 4;

/// A Copy under way.
#[derive(Debug)]
pub(crate) struct Copy {
    plan: Box<CopyPlan>,
    /// The source that is being copied, and how many bytes of it have been.
    source: usize,
    within: u64,
    /// Bytes that have been copied of all sources.
    copied: u64,
    /// The piece has been read, and is being written.
    writing: bool,
}

impl Copy {
    pub(crate) fn new(plan: Box<CopyPlan>) -> Self {
        Self { plan, source: 0, within: 0, copied: 0, writing: false }
    }

    /// The number of the first source that is not copied whole; none is if there are so many.
    pub(crate) fn source(&self) -> u64 {
        self.source as u64
    }

    pub(crate) fn target_device(&self) -> DeviceId {
        self.plan.target.device
    }

    /// The bytes that the piece at hand changes.
    pub(crate) fn changed(&self) -> Option<Range<u64>> {
        let (_, length) = self.piece().filter(|_| self.writing)?;
        let start = self.plan.target.offset_bytes + self.copied;
        Some(start..start + length as u64)
    }

    /// Where the next piece is read, and its length.
    fn piece(&self) -> Option<(CopyRange, usize)> {
        let source = *self.plan.sources.get(self.source)?;
        let left = source.length_bytes - self.within;
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(self.piece_bytes());
        Some((CopyRange { offset_bytes: source.offset_bytes + self.within, ..source }, length))
    }

    /// Bytes of a piece at most: whole blocks.
    fn piece_bytes(&self) -> usize {
        let block = self.plan.data_bytes as usize + usize::from(self.plan.metadata_bytes);
        PIECE_BYTES / block * block
    }

    /// Bytes of buffer that it needs.
    pub(crate) fn buffer_bytes(&self) -> usize {
        usize::try_from(self.plan.target.length_bytes).unwrap_or(usize::MAX).min(self.piece_bytes())
    }

    /// What is done about the protection information of the piece at hand, as it is read and as it
    /// is written; with the bytes of a block's data.
    pub(crate) fn rules(&self) -> Option<(Rules, Rules, usize)> {
        let checks = self.plan.checks.as_ref()?;
        let block = u64::from(self.plan.data_bytes) + u64::from(self.plan.metadata_bytes);
        let read = checks.read.get(self.source)?.after(self.within / block);
        Some((read, checks.write.after(self.copied / block), self.plan.data_bytes as usize))
    }

    /// A piece has been written. Returns whether it was the last.
    fn advance(&mut self) -> bool {
        let Some((_, length)) = self.piece() else { return true };
        self.writing = false;
        self.copied += length as u64;
        self.within += length as u64;
        if self.plan.sources.get(self.source).is_some_and(|source| source.length_bytes == self.within) {
            (self.source, self.within) = (self.source + 1, 0);
        }
        self.source == self.plan.sources.len()
    }

    /// What was read of which namespace.
    pub(crate) fn read_bytes(&self) -> Vec<(Nsid, u64)> {
        let mut all: Vec<(Nsid, u64)> = Vec::new();
        for source in &self.plan.sources {
            match all.iter_mut().find(|(nsid, _)| *nsid == source.nsid) {
                Some((_, bytes)) => *bytes += source.length_bytes,
                None => all.push((source.nsid, source.length_bytes)),
            }
        }
        all
    }
}

impl Commands {
    /// It is read on in the next turn.
    pub(crate) fn queue_copy(&mut self, slot: u32) {
        if let Some(command) = self.slots.get_mut(slot) {
            command.phase = Phase::Waiting;
            self.pending_copies.push_back(slot);
        }
    }

    /// Copies go on, as far as the share of the turn reaches.
    pub(crate) fn continue_copies(&mut self, link: &mut Link, turn: &mut Turn<'_>) {
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
            self.send_to_device(slot, from.device, operation, link, turn);
        }
    }

    /// A device has done its part of a copy, with `status`.
    pub(crate) fn copy_done(&mut self, slot: u32, status: Status, link: &mut Link, turn: &mut Turn<'_>) {
        let Some(Command { work: Work::Copy(copy), failed, buffer, .. }) = self.slots.get_mut(slot) else { return };
        if let Some(status) = failed.or(Some(status)).filter(|status| !status.is_success()) {
            return self.finish(slot, status, link, turn);
        }
        if !copy.writing {
            let length = copy.piece().map_or(0, |(_, length)| length);
            let piece = buffer.as_mut().and_then(|buffer| buffer.as_mut_slice().get_mut(..length));
            if let Some(Err(status)) = piece.map(|piece| copy.check(piece, turn.shared)) {
                self.finish(slot, status, link, turn);
                return self.hurry_drive(turn);
            }
            copy.writing = true;
            if !(turn.shared.fused_locks.is_any_waiting() && self.must_wait_for_lock(slot, turn)) {
                self.write_piece(slot, link, turn);
            }
            return;
        }
        if copy.advance() {
            self.finish_copy(slot, link, turn);
        } else {
            self.queue_copy(slot);
        }
    }

    /// Nothing is in the way of a copy: it begins, or writes what it has read.
    pub(crate) fn copy_on(&mut self, slot: u32, link: &mut Link, turn: &mut Turn<'_>) {
        match self.slots.get(slot).map(|command| &command.work) {
            Some(Work::Copy(copy)) if copy.writing => self.write_piece(slot, link, turn),
            _ => self.queue_copy(slot),
        }
    }

    fn write_piece(&mut self, slot: u32, link: &mut Link, turn: &mut Turn<'_>) {
        let Some(Command { work: Work::Copy(copy), buffer, .. }) = self.slots.get_mut(slot) else { return };
        let (device, fua) = (copy.target_device(), copy.plan.fua);
        let operation = copy.changed().and_then(|changed| {
            let len = usize::try_from(changed.end - changed.start).ok()?;
            Some(Operation::Write { offset: changed.start, len, data: buffer.take()?.into(), fua })
        });
        self.send_to_device(slot, device, operation, link, turn);
    }

    /// What was copied counts as read from the sources' namespaces too.
    fn finish_copy(&mut self, slot: u32, link: &mut Link, turn: &mut Turn<'_>) {
        let Some(Command { work: Work::Copy(copy), started_us, .. }) = self.slots.get(slot) else { return };
        let (read, latency_us) = (copy.read_bytes(), turn.now_us.saturating_sub(*started_us));
        for (nsid, bytes) in read {
            if let Some((_, stats)) = self.stats_of(nsid, turn).and_then(|at| self.stats.get(at)) {
                stats.count(Kind::Read, bytes, false, latency_us);
            }
        }
        self.finish(slot, Status::SUCCESS, link, turn);
    }
}
