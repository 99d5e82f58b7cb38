//! What commands ask of their devices that wait for their function's share of the drive.

use std::collections::VecDeque;

use ebof_backend::{Buffer, Operation};
use ebof_fabrics::DeviceId;

use crate::drives::device::buffer_of;

/// A connection with so many commands that wait takes no more of them,
const HELD_MAX: usize = 32;

/// nor one with so many bytes of them.
const HELD_BYTES_MAX: usize = 1 << 20;

/// What a command that waits asks of its device.
#[derive(Debug)]
pub(crate) struct HeldRequest {
    slot: u32,
    pub(crate) device: DeviceId,
    pub(crate) operation: Operation,
    bytes: usize,
}

/// The commands of a connection that wait, in order.
#[derive(Debug, Default)]
pub(crate) struct HeldCommands {
    list: VecDeque<HeldRequest>,
    bytes: usize,
    /// No more commands may be taken.
    is_full: bool,
}

impl HeldCommands {
    /// Whether more commands may be taken.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        !self.is_full
    }

    fn note_room(&mut self) {
        self.is_full = self.list.len() >= HELD_MAX || self.bytes >= HELD_BYTES_MAX;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn push(&mut self, slot: u32, device: DeviceId, operation: Operation) {
        let bytes = match &operation {
            Operation::Read { len, .. } | Operation::Write { len, .. } => *len,
            Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => 0,
        };
        self.bytes += bytes;
        self.list.push_back(HeldRequest { slot, device, operation, bytes });
        self.note_room();
    }

    /// What the command in `slot` asks for. As a rule it is one of the first.
    pub(crate) fn take(&mut self, slot: u32) -> Option<HeldRequest> {
        let at = self.list.iter().position(|held| held.slot == slot)?;
        let held = self.list.remove(at).expect("its place was found");
        self.bytes -= held.bytes;
        // Both are of the same entries.
        assert!(!self.list.is_empty() || self.bytes == 0, "{} bytes of no command are held", self.bytes);
        self.note_room();
        Some(held)
    }

    /// A command is given up: its buffer.
    pub(crate) fn withdraw(&mut self, slot: u32) -> Option<Buffer> {
        buffer_of(self.take(slot)?.operation)
    }
}
