//! Copies under way on one connection. A piece is read in one turn of the reactor and counts
//! against the connection's share of it, so that others are not kept waiting; then it is written.

use std::collections::VecDeque;

use ebof_backend::Operation;
use ebof_fabrics::{Copy, DeviceId, IoTask, Task};
use ebof_nvme::Status;

use crate::commands::command::{Command, CommandPhase};
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
        command.phase = CommandPhase::Waiting;
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

/// Why a copy has its buffer: it gets one before it begins, and each piece comes back from its
/// device with it.
const HAS_BUFFER: &str = "a copy has its buffer between two pieces";

/// The copy that a command is.
///
/// # Panics
/// It is none.
pub(crate) fn copy_of(command: &mut Command) -> &mut Copy {
    let Task::Io(IoTask::Copy(copy)) = &mut command.task else { unreachable!("only copies have pieces") };
    copy
}

/// How to read the next piece of a copy: where, what, and how many bytes.
pub(crate) fn read_piece(command: &mut Command) -> (DeviceId, Operation, usize) {
    let (from, len) = copy_of(command).piece().expect("a copy whose last piece was written is over");
    let data = command.buffer.take().expect(HAS_BUFFER).into();
    (from.device, Operation::Read { offset: from.offset_bytes, len, data }, len)
}

/// How to write the piece that was read.
pub(crate) fn write_piece(command: &mut Command) -> (DeviceId, Operation) {
    let copy = copy_of(command);
    let changed = copy.changed().expect("what was read has a place");
    let device = copy.target_device();
    let fua = copy.fua();
    let len = usize::try_from(changed.end - changed.start).expect("a piece fits into its buffer");
    let data = command.buffer.take().expect(HAS_BUFFER).into();
    (device, Operation::Write { offset: changed.start, len, data, fua })
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
    let (_, length) = copy.piece().expect("it was read");
    let buffer = buffer.as_mut().expect(HAS_BUFFER);
    if let Err(status) = check_piece(copy, &mut buffer.as_mut_slice()[..length], shared) {
        return CopyStep::Damaged(status);
    }
    copy.begin_write();
    CopyStep::Write
}
