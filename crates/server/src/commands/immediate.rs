//! Reads and writes of devices whose bytes are in memory, completed immediately: they need no slot,
//! and no buffer unless the link sends from buffers only. What cannot be completed this way takes
//! the usual path.

use ebof_backend::{Action, Error, Resident};
use ebof_fabrics::{Executing, IoTask, Queue, Step, Task, Transfer};
use ebof_nvme::Status;

use crate::commands::buffers::ConnectionBuffers;
use crate::commands::command::Origin;
use crate::commands::counters::QueueCounters;
use crate::drives::device::status_of;
use crate::link::Link;
use crate::observe::log_limit;
use crate::observe::stats::Kind;
use crate::observe::troubles::Trouble;
use crate::shared::reactor_context::ReactorContext;

/// What of a connection is needed to complete a command at once.
pub(crate) struct Immediate<'a> {
    pub(crate) queue: &'a mut Queue,
    pub(crate) buffers: &'a mut ConnectionBuffers,
    pub(crate) counters: &'a mut QueueCounters,
}

impl Immediate<'_> {
    /// Answers a read from the device's memory; returns it if that is not possible.
    pub(crate) fn read(
        &mut self,
        executing: Executing,
        transfer: Transfer,
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> Option<Step> {
        let devices = context.devices;
        let device = devices.device(transfer.extent.device);
        let Some((device, resident)) = device.and_then(|device| Some((device, device.resident()?))) else {
            return Some(usual(executing, transfer));
        };
        let offset = transfer.extent.offset_bytes;
        let length = transfer.extent.length_bytes;
        let checked = device.geometry().check_transfer(Action::Read, offset, length.into());
        if let Err(error) = checked {
            self.fail(executing, &error, Kind::Read, origin, link, context);
            return None;
        }
        if link.lends() {
            self.count(Kind::Read, length, false, origin, context);
            let cqe = self.queue.complete(executing, Status::SUCCESS);
            link.lend(origin.cid, device, (offset, length), &cqe, context);
            return None;
        }
        // Those that wait for a buffer come first.
        let has_turn = self.buffers.waiting() == 0;
        if has_turn && let Some(memory) = link.own_memory(length) {
            copy(resident, offset, memory);
            self.count(Kind::Read, length, false, origin, context);
            let cqe = self.queue.complete(executing, Status::SUCCESS);
            link.send_own(origin.cid, length, &cqe, context);
            return None;
        }
        let buffer = if has_turn { self.buffers.take(length as usize, false, context) } else { None };
        let Some(mut buffer) = buffer else { return Some(usual(executing, transfer)) };
        copy(resident, offset, &mut buffer.as_mut_slice()[..length as usize]);
        self.count(Kind::Read, length, false, origin, context);
        let cqe = self.queue.complete(executing, Status::SUCCESS);
        self.buffers.send(buffer, (origin.cid, length), &cqe, link, context);
        None
    }

    /// Stores the data of a write that are in its capsule, if all of them have arrived; returns it
    /// if that is not possible.
    pub(crate) fn write(
        &mut self,
        executing: Executing,
        transfer: Transfer,
        origin: Origin,
        input: &mut &[u8],
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> Option<Step> {
        if context.shared.fused_locks.is_any_waiting() {
            return Some(usual(executing, transfer));
        }
        let devices = context.devices;
        let Some(resident) = devices.device(transfer.extent.device).and_then(|device| device.resident()) else {
            return Some(usual(executing, transfer));
        };
        let Some(data) = link.take_inline(input) else { return Some(usual(executing, transfer)) };
        if !data.is_intact {
            context.shared.trouble(self.counters.host_label(), Trouble::DataDigest);
            self.count(Kind::Write, 0, true, origin, context);
            let cqe = self.queue.complete(executing, Status::TRANSIENT_TRANSPORT_ERROR);
            link.respond(&cqe, context);
            return None;
        }
        match resident.store(transfer.extent.offset_bytes, data.bytes) {
            Ok(()) => {
                self.count(Kind::Write, transfer.extent.length_bytes, false, origin, context);
                let cqe = self.queue.complete(executing, Status::SUCCESS);
                link.respond(&cqe, context);
            }
            Err(error) => self.fail(executing, &error, Kind::Write, origin, link, context),
        }
        None
    }

    fn fail(
        &mut self,
        executing: Executing,
        error: &Error,
        kind: Kind,
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let status = status_of(error, kind);
        if let Some(more) = context.shared.may_log(link.peer().about(), log_limit::Kind::Device(error.class())) {
            tracing::error!(nsid = origin.nsid.0, kind = kind.label(), %status, "device error: {error}{more}");
        }
        self.count(kind, 0, true, origin, context);
        let cqe = self.queue.complete(executing, status);
        link.respond(&cqe, context);
    }

    #[inline(always)]
    fn count(&mut self, kind: Kind, bytes: u32, failed: bool, origin: Origin, context: &ReactorContext<'_>) {
        self.counters.count_untimed(kind, bytes, failed, origin.nsid, self.queue, context.shared);
    }
}

/// The usual path.
fn usual(executing: Executing, transfer: Transfer) -> Step {
    Step::Execute(executing, Task::Io(IoTask::Transfer(transfer)))
}

/// Copies bytes of the device, as a read does: those of a chunk together.
fn copy(resident: &dyn Resident, mut offset: u64, mut into: &mut [u8]) {
    while !into.is_empty() {
        // It may block: the loan of the piece before is over.
        let lent = resident.lend(offset, into.len(), true).expect("refused to those only that must not block");
        let bytes = lent.as_ref();
        let (piece, rest) = into.split_at_mut(bytes.len().min(into.len()));
        piece.copy_from_slice(&bytes[..piece.len()]);
        offset += piece.len() as u64;
        into = rest;
    }
}
