//! Copies under way on one connection. A piece is read in one turn of the reactor and counts
//! against the connection's share of it, so that others are not kept waiting; then it is written.

use std::collections::VecDeque;

use ebof_backend::Operation;
use ebof_fabrics::{Copy, DeviceId, IoTask, Task};
use ebof_nvme::Status;

use crate::commands::command::{Command, Phase};
use crate::commands::protection::check_piece;
use crate::shared::Shared;

/// Pieces of one connection in one turn at most, whatever its share is: a connection without others
/// beside it may have some in the next turn.
pub(crate) const PIECES_MAX: usize = 4;

/// Copies that read their next piece in the next turn, by slot.
#[derive(Debug, Default)]
pub(crate) struct PendingCopies(VecDeque<u32>);

/// How a copy goes on when a device has done a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CopyStep {
    /// The piece was read: it is written.
    Write,
    /// The piece was written: the next one is read in the next turn.
    Read,
    /// The last piece was written.
    Done,
    /// It fails.
    Failed(Status),
    /// It fails since what was read is not what was written: the medium is damaged.
    Damaged(Status),
}

impl PendingCopies {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The copy in `slot` reads its next piece in the next turn.
    pub(crate) fn push(&mut self, slot: u32, command: &mut Command) {
        command.phase = Phase::Waiting;
        self.0.push_back(slot);
    }

    /// The copy whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.0.pop_front()
    }

    /// The copy in `slot` ends.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.0.retain(|&pending| pending != slot);
    }

    /// All of them end.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The copy that a command is.
pub(crate) fn copy_of(command: &mut Command) -> Option<&mut Copy> {
    if let Task::Io(IoTask::Copy(copy)) = &mut command.task { Some(copy) } else { None }
}

/// How to read the next piece of a copy: where, what, and how many bytes. `None` where the buffer
/// is missing.
pub(crate) fn read_piece(command: &mut Command) -> Option<(DeviceId, Operation, usize)> {
    let (from, len) = copy_of(command)?.piece()?;
    let data = command.buffer.take()?.into();
    Some((from.device, Operation::Read { offset: from.offset_bytes, len, data }, len))
}

/// How to write the piece that was read. `None` where the buffer is missing.
pub(crate) fn write_piece(command: &mut Command) -> Option<(DeviceId, Operation)> {
    let copy = copy_of(command)?;
    let changed = copy.changed()?;
    let device = copy.target_device();
    let fua = copy.fua();
    let len = usize::try_from(changed.end - changed.start).ok()?;
    let data = command.buffer.take()?.into();
    Some((device, Operation::Write { offset: changed.start, len, data, fua }))
}

/// A device has completed a read or write of a copy with `status`.
pub(crate) fn piece_done(command: &mut Command, status: Status, shared: &Shared) -> CopyStep {
    let Command { task: Task::Io(IoTask::Copy(copy)), failed, buffer, .. } = command else {
        unreachable!("only copies have pieces")
    };
    if let Some(status) = failed.or(Some(status)).filter(|status| !status.is_success()) {
        return CopyStep::Failed(status);
    }
    if copy.is_writing() {
        return if copy.advance() { CopyStep::Done } else { CopyStep::Read };
    }
    let length = copy.piece().map_or(0, |(_, length)| length);
    let piece = buffer.as_mut().and_then(|buffer| buffer.as_mut_slice().get_mut(..length));
    if let Some(Err(status)) = piece.map(|piece| check_piece(copy, piece, shared)) {
        return CopyStep::Damaged(status);
    }
    copy.begin_write();
    CopyStep::Write
}
