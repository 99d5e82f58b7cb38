//! Reads and writes of devices whose bytes are in memory, completed immediately: they need no slot,
//! and no buffer unless the link sends from buffers only. Commands that cannot be completed this
//! way take the usual path in `execute.rs`.

use ebof_backend::{Action, Error, Resident};
use ebof_fabrics::{Executing, Step, Task, Transfer};
use ebof_nvme::Status;

use crate::commands::Commands;
use crate::commands::execute::Origin;
use crate::drives::device::status_of;
use crate::link::Link;
use crate::observe::log_limit;
use crate::observe::stats::Kind;
use crate::observe::troubles::Trouble;
use crate::shared::reactor_context::ReactorContext;

impl Commands {
    /// Answers a read from the device's memory; returns it if that is not possible.
    pub(crate) fn read_resident(
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
            return Some(Step::Execute(executing, Task::Transfer(transfer)));
        };
        let offset = transfer.extent.offset_bytes;
        let length = transfer.extent.length_bytes;
        let checked = device.geometry().check_transfer(Action::Read, offset, length.into());
        if let Err(error) = checked {
            self.fail_resident(executing, &error, Kind::Read, origin, link, context);
            return None;
        }
        if link.lends() {
            self.count_resident(Kind::Read, length, false, origin, context);
            let cqe = self.queue.complete(executing, Status::SUCCESS);
            link.lend(origin.cid, device, (offset, length), &cqe, context);
            return None;
        }
        // Those that wait for a buffer come first.
        let has_turn = self.awaiting_buffer.is_empty();
        if has_turn && let Some(memory) = link.own_memory(length) {
            copy(resident, offset, memory);
            self.count_resident(Kind::Read, length, false, origin, context);
            let cqe = self.queue.complete(executing, Status::SUCCESS);
            link.send_own(origin.cid, length, &cqe, context);
            return None;
        }
        let buffer = if has_turn { self.take_buffer(length as usize, false, context) } else { None };
        let Some(mut buffer) = buffer else {
            return Some(Step::Execute(executing, Task::Transfer(transfer)));
        };
        copy(resident, offset, &mut buffer.as_mut_slice()[..length as usize]);
        self.count_resident(Kind::Read, length, false, origin, context);
        let cqe = self.queue.complete(executing, Status::SUCCESS);
        self.send_read(origin.cid, buffer, length, &cqe, link, context);
        None
    }

    /// Stores the data of a write that are in its capsule, if all of them have arrived; returns it
    /// if that is not possible.
    pub(crate) fn write_resident(
        &mut self,
        executing: Executing,
        transfer: Transfer,
        origin: Origin,
        input: &mut &[u8],
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> Option<Step> {
        if context.shared.fused_locks.is_any_waiting() {
            return Some(Step::Execute(executing, Task::Transfer(transfer)));
        }
        let devices = context.devices;
        let Some(resident) = devices.device(transfer.extent.device).and_then(|device| device.resident()) else {
            return Some(Step::Execute(executing, Task::Transfer(transfer)));
        };
        let Some(data) = link.take_inline(input) else {
            return Some(Step::Execute(executing, Task::Transfer(transfer)));
        };
        if !data.is_intact {
            context.shared.trouble(&self.host_label, Trouble::DataDigest);
            self.count_resident(Kind::Write, 0, true, origin, context);
            let cqe = self.queue.complete(executing, Status::TRANSIENT_TRANSPORT_ERROR);
            link.respond(&cqe, context);
            return None;
        }
        match resident.store(transfer.extent.offset_bytes, data.bytes) {
            Ok(()) => {
                self.count_resident(Kind::Write, transfer.extent.length_bytes, false, origin, context);
                let cqe = self.queue.complete(executing, Status::SUCCESS);
                link.respond(&cqe, context);
            }
            Err(error) => self.fail_resident(executing, &error, Kind::Write, origin, link, context),
        }
        None
    }

    fn fail_resident(
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
        self.count_resident(kind, 0, true, origin, context);
        let cqe = self.queue.complete(executing, status);
        link.respond(&cqe, context);
    }

    /// Counts a command that arrived and was completed in the same turn. Its latency is that of the
    /// turn up to the point where completions are sent, which is looked at once for all of them.
    fn count_resident(&mut self, kind: Kind, bytes: u32, failed: bool, origin: Origin, context: &ReactorContext<'_>) {
        let Some(at) = self.stats_of(origin.nsid, context) else { return };
        let Some((_, stats)) = self.stats.get(at) else { return };
        stats.count_untimed(kind, bytes.into(), failed);
        match self.untimed.iter_mut().find(|(of, untimed, _)| *of == at && *untimed == kind) {
            Some((.., commands)) => *commands += 1,
            // At most one for each of the counters and kinds.
            None => self.untimed.push((at, kind, 1)),
        }
    }

    /// The completions of this turn are sent: how long their commands took.
    pub(crate) fn time_residents(&mut self, context: &ReactorContext<'_>) {
        if self.untimed.is_empty() {
            return;
        }
        let latency_us = context.shared.clock.now_us().saturating_sub(context.now_us);
        for (at, kind, commands) in self.untimed.drain(..) {
            if let Some((_, stats)) = self.stats.get(at) {
                stats.time(kind, commands, latency_us);
            }
        }
    }
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
