//! The way of a reset, a shutdown or the deletion of a queue: what has to happen before it
//! completes, and how far that has got.
//!
//! ```text
//! close the queues -> flush the devices, one by one -> tell the drive (of a reset) -> done
//! ```

use alloc::vec::Vec;

use crate::model::DeviceId;
use crate::task::handle::Handle;

/// What must happen before a reset or shutdown of the controller completes, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quiesce {
    /// Close these connections (I/O queues): accepted commands end, no completion is owed.
    pub close: Vec<Handle>,
    /// Then flush these devices (normal shutdown).
    pub flush: Vec<DeviceId>,
    /// Then tell the drive: the controller is reset or shut down. Otherwise a queue is deleted,
    /// which is no matter of the drive's.
    pub is_reset: bool,
    /// Connections that are still to close.
    closing: usize,
    drive_knows: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum QuiesceStep {
    /// Queues have still to close.
    Wait,
    /// Flush this device, unless it is gone: then it has nothing to flush for anybody.
    Flush(DeviceId),
    /// Tell the drive. If there is none, or when it has answered: ask again.
    TellDrive,
    /// The command completes.
    Done,
}

impl Quiesce {
    /// Of a reset or a shutdown; what is closed and flushed is to be filled in.
    pub(crate) fn reset() -> Self {
        Self { is_reset: true, ..Self::default() }
    }

    /// Begins: the connections to close, each of which is [`closed`](Self::closed) later.
    #[must_use]
    pub fn begin(&mut self) -> Vec<Handle> {
        let close = core::mem::take(&mut self.close);
        self.closing = close.len();
        close
    }

    /// One of the connections is gone.
    pub fn closed(&mut self) {
        self.closing = self.closing.checked_sub(1).expect("each connection closes once");
    }

    /// What comes next; each flush, and the drive, once.
    pub fn advance(&mut self) -> QuiesceStep {
        if self.closing > 0 {
            return QuiesceStep::Wait;
        }
        match self.flush.pop() {
            Some(device) => QuiesceStep::Flush(device),
            None if self.is_reset && !core::mem::replace(&mut self.drive_knows, true) => QuiesceStep::TellDrive,
            None => QuiesceStep::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn queues_close_then_devices_flush_then_the_drive_knows() {
        let mut quiesce = Quiesce {
            close: vec![Handle(1), Handle(2)],
            flush: vec![DeviceId(3), DeviceId(4)],
            is_reset: true,
            ..Quiesce::default()
        };
        assert_eq!(quiesce.begin(), [Handle(1), Handle(2)]);
        quiesce.closed();
        assert_eq!(quiesce.advance(), QuiesceStep::Wait);
        quiesce.closed();
        let steps: Vec<_> = (0..5).map(|_| quiesce.advance()).collect();
        let flush = |device| QuiesceStep::Flush(DeviceId(device));
        assert_eq!(
            steps,
            [flush(4), flush(3), QuiesceStep::TellDrive, QuiesceStep::Done, QuiesceStep::Done],
            "each once"
        );
    }

    #[test]
    fn the_deletion_of_a_queue_is_no_matter_of_the_drives() {
        let mut quiesce = Quiesce { close: vec![Handle(1)], ..Quiesce::default() };
        let _ = quiesce.begin();
        quiesce.closed();
        assert_eq!(quiesce.advance(), QuiesceStep::Done);
    }
}
