//! The way of a command through buffer, data and device: what it needs next, until it completes.
#![deny(clippy::wildcard_enum_match_arm)]

use std::sync::Arc;

use ebof_backend::{Buffer, Class, Completion, Device, Operation, Segments, Submitted};
use ebof_drive::error_log::is_severe;
use ebof_fabrics::{DeviceId, Failure, IoTask, Task, Transfer, TransferKind};
use ebof_nvme::Status;

use crate::commands::Commands;
use crate::commands::command::{Command, Origin, Phase};
use crate::commands::copies;
use crate::commands::copies::{CopyStep, PIECES_MAX};
use crate::commands::counters;
use crate::commands::drive_access;
use crate::commands::fused::{first_half, lock_change, other_half};
use crate::commands::memory;
use crate::commands::protection;
use crate::drives::device::{operation, status_of};
use crate::link::{Fetch, Link, Stopped};
use crate::observe::log_limit::{self, LogSubject};
use crate::observe::slow::Done;
use crate::observe::stats::Kind;
use crate::shared::mailbox::CommandRef;
use crate::shared::reactor_context::ReactorContext;
use crate::shared::shares::TicketId;

impl Commands {
    // ---- its buffer and its data

    /// Takes a buffer for the command and starts to fetch its data, or runs it.
    pub(super) fn start(
        &mut self,
        mut command: Command,
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let in_capsule = command.task.takes_data() && origin.pointer.is_in_capsule();
        // Parameters may come with more behind them; blocks and Connect data have their length.
        let more = matches!(command.task, Task::Receive) && origin.in_capsule > command.length;
        let mut refused = (in_capsule && origin.in_capsule != command.length && !more)
            .then_some(Status::DATA_SGL_LENGTH_INVALID.dnr());
        if refused.is_none() && link.is_ring() {
            refused = memory::map(&mut command, self.slots.len(), link, context.devices).err();
        }
        let bytes = command.buffer_bytes();
        let mut waits = false;
        if refused.is_none() && bytes > 0 {
            let has_turn = in_capsule || self.buffers.waiting() == 0;
            command.buffer = if has_turn { self.buffers.take(bytes, in_capsule, context) } else { None };
            match command.buffer {
                Some(_) => {}
                // `can_take` saw room for twice the largest capsule a moment ago.
                None if in_capsule => refused = Some(Status::INTERNAL_ERROR),
                None => waits = true,
            }
        }
        if waits {
            command.phase = Phase::AwaitingBuffer;
        }
        let slot = self.slots.insert(command);
        match refused {
            Some(status) => self.end(slot, status, link, context),
            None if waits => self.buffers.enqueue(slot),
            None => self.fetch(slot, link, context),
        }
    }

    /// Fetches the data of a command that has its buffer, if the host sends any, and runs it.
    fn fetch(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        let takes_data = command.task.takes_data() && command.mapped.is_none();
        let Some(buffer) = command.buffer.take_if(|_| takes_data) else { return self.run(slot, link, context) };
        command.phase = Phase::Receiving;
        let fetch = Fetch {
            cid: command.cid,
            slot,
            pointer: command.pointer,
            buffer,
            offset: command.task.io().and_then(IoTask::transfer).map_or(0, Transfer::data_offset),
            length: command.length,
        };
        if let Err(buffer) = link.fetch(fetch, context) {
            self.buffers.give(buffer, context);
            self.end(slot, Status::COMMAND_INTERRUPTED, link, context);
        }
    }

    /// The data of a command have come.
    pub(crate) fn on_fetched(
        &mut self,
        slot: u32,
        buffer: Buffer,
        is_intact: bool,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let Some(command) = self.slots.get_mut(slot) else { return self.buffers.give(buffer, context) };
        command.buffer = Some(buffer);
        command.marks.fetched_us = context.now_us;
        if !is_intact {
            context.shared.trouble(self.counters.host_label(), link.trouble_of_data());
            // Those of a command that was aborted are not waited for.
            command.failed.get_or_insert(Status::TRANSIENT_TRANSPORT_ERROR);
        }
        self.run(slot, link, context);
    }

    /// Goes on with what waited for a buffer, or for another turn.
    pub(crate) fn resume(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        while let Some(slot) = self.buffers.first_waiting() {
            let bytes = self.slots.get(slot).map_or(0, Command::buffer_bytes);
            let Some(buffer) = self.buffers.take(bytes, false, context) else { break };
            self.buffers.dequeue();
            match self.slots.get_mut(slot) {
                Some(command) => {
                    command.buffer = Some(buffer);
                    command.marks.buffered_us = context.now_us;
                }
                None => self.buffers.give(buffer, context),
            }
            self.fetch(slot, link, context);
        }
        if !self.copies.is_empty() {
            self.continue_copies(link, context);
        }
    }

    // ---- its work

    /// All data of the host have arrived, or there are none: does the work.
    fn run(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        if let Some(status) = command.failed {
            command.phase = Phase::Waiting;
            return self.stop(slot, status, link, context);
        }
        if command.task.io().is_none() {
            return self.parameters_complete(slot, link, context);
        }
        if !(context.shared.fused_locks.is_any_waiting() && self.must_wait_for_lock(slot, context)) {
            self.run_io(slot, link, context);
        }
    }

    /// No lock delays the command any more: goes to the device.
    fn run_io(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        if let Err(status) = protection::check_outbound(command, context.shared) {
            return self.end(slot, status, link, context);
        }
        let Task::Io(io) = &mut command.task else { unreachable!("nothing else waits for a lock") };
        let (device, operation) = match io {
            IoTask::Transfer(transfer) => {
                if transfer.fused.is_some() {
                    return self.half_complete(slot, context);
                }
                let Transfer { kind, extent, .. } = *transfer;
                if kind == TransferKind::WriteUncorrectable {
                    command.phase = Phase::Elsewhere;
                    if !self.drive.mark_bad(slot, extent, &self.queue, context) {
                        self.finish(slot, Status::INVALID_NAMESPACE.dnr(), link, context);
                    }
                    return;
                }
                (extent.device, operation(kind, &extent, command.take_memory()))
            }
            IoTask::Copy(copy) if copy.is_writing() => return self.write_piece(slot, link, context),
            IoTask::Copy(_) => return self.copies.push(slot, command),
            IoTask::Flush(device) => (*device, Some(Operation::Flush)),
            IoTask::Deallocate(device, ranges) => {
                let ranges = ranges.iter().map(ebof_fabrics::ByteRange::bytes).collect();
                (*device, Some(Operation::Deallocate { ranges }))
            }
        };
        self.send_to_device(slot, device, operation, link, context);
    }

    /// Sends an operation to its device, as soon as the command's function may.
    pub(super) fn send_to_device(
        &mut self,
        slot: u32,
        device: DeviceId,
        operation: Option<Operation>,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let devices = context.devices;
        // The namespace may have gone away between the decision and now.
        let (Some(operation), Some(at)) = (operation, devices.device(device)) else {
            return self.end(slot, Status::INVALID_NAMESPACE.dnr(), link, context);
        };
        let Some(command) = self.slots.get_mut(slot) else { return };
        let submitted = self.devices.submit((slot, command), (device, at), operation, &self.queue, context);
        self.on_submitted(submitted, at, link, context);
    }

    /// A command that waited for its share of the drive may go to its device.
    pub(crate) fn on_admitted(&mut self, slot: u32, id: TicketId, link: &mut Link, context: &mut ReactorContext<'_>) {
        // The slot may have a new command: this one was given up, and its ticket settled.
        let Some(command) = self.slots.get_mut(slot) else { return };
        if command.phase != Phase::Held || !command.ticket.as_ref().is_some_and(|ticket| ticket.is(id)) {
            return;
        }
        // A pair may have begun since the command began to wait.
        if context.shared.fused_locks.is_any_waiting() && self.must_wait_for_lock(slot, context) {
            if let Some(command) = self.slots.get_mut(slot) {
                command.ticket = None;
            }
            return;
        }
        let Some((device, operation)) = self.devices.take_held(slot) else { return };
        let devices = context.devices;
        let (Some(command), Some(at)) = (self.slots.get_mut(slot), devices.device(device)) else {
            return self.end(slot, Status::INVALID_NAMESPACE.dnr(), link, context);
        };
        let submitted = self.devices.submit_now((slot, command), at, operation, context);
        self.on_submitted(submitted, at, link, context);
    }

    #[inline(always)]
    fn on_submitted(
        &mut self,
        submitted: Submitted,
        device: &Arc<dyn Device>,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        match submitted {
            Submitted::Done(completion) => self.on_device(completion, link, context),
            Submitted::Pending => {}
            Submitted::Busy(request) => context.retry.push_back((Arc::clone(device), request)),
        }
    }

    /// Takes the completion of a device.
    pub(crate) fn on_device(&mut self, completion: Completion, link: &mut Link, context: &mut ReactorContext<'_>) {
        let slot = ReactorContext::slot_of(completion.tag);
        let Some(command) = self.slots.get_mut(slot) else { unreachable!("a command at a device keeps its slot") };
        command.buffer = completion.data.and_then(Segments::into_buffer);
        command.phase = Phase::Elsewhere;
        self.devices.note_done(&mut command.ticket, context);
        if link.has_ended() {
            self.forget(slot, context);
            self.report_closed(link, context);
            return;
        }
        let is_reset = matches!(command.task, Task::Reset(_));
        let is_whole = matches!(command.task, Task::Io(IoTask::Transfer(Transfer { fused: None, .. })));
        let mut severe = false;
        let status = match completion.result {
            Ok(()) => match protection::check_inbound(command, &mut severe, context.shared) {
                Some(status) => status,
                None => command.compared(),
            },
            Err(error) => {
                let is_aborted = error.class() == Class::Aborted;
                let aborted = command.failed.filter(|_| is_aborted);
                let status = aborted.unwrap_or_else(|| status_of(&error, command.kind()));
                command.locate(&error);
                severe = !is_aborted && !is_reset && is_severe(status);
                if is_reset || !is_aborted {
                    self.log_device_error(slot, &error, status, context);
                }
                status
            }
        };
        match self.slots.get(slot).map(|command| &command.task) {
            _ if is_whole => self.finish(slot, status, link, context),
            // Whatever has become of a flush, the controller is reset.
            Some(Task::Reset(_)) => self.continue_reset(slot, link, context),
            Some(Task::Io(IoTask::Copy(_))) => self.copy_done(slot, status, link, context),
            Some(Task::Io(io)) if io.fused().is_some() => self.half_done(slot, status, link, context),
            _ => self.finish(slot, status, link, context),
        }
        if severe {
            drive_access::save_errors(&self.queue, context);
        }
    }

    #[cold]
    fn log_device_error(&self, slot: u32, error: &ebof_backend::Error, status: Status, context: &ReactorContext<'_>) {
        let Some(command) = self.slots.get(slot) else { return };
        let about = LogSubject::Device(command.device());
        let Some(more) = context.shared.may_log(about, log_limit::Kind::Device(error.class())) else { return };
        let Some(work) = command.task.io() else {
            tracing::error!("flushing at the reset of a controller: {error}{more}");
            return;
        };
        let host = counters::text(self.queue.host());
        tracing::error!(host, nsid = command.nsid.0, %work, %status, "device error: {error}{more}");
    }

    // ---- its end

    /// Completes a command: its data and its response are queued for sending.
    pub(super) fn finish(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.remove(slot) else { return };
        if let Some(place) = command.counters {
            self.count(&command, place, status, link, context);
        }
        let cqe = if status.is_success() {
            self.queue.complete(command.executing, status)
        } else {
            let result = command.task.io().map_or(0, IoTask::failed_result);
            self.queue.fail(command.executing, Failure { status, result, lba: command.failed_lba })
        };
        let is_read =
            matches!(&command.task, Task::Io(IoTask::Transfer(transfer)) if transfer.kind == TransferKind::Read);
        match command.buffer {
            Some(buffer) if is_read && status.is_success() => {
                self.buffers.send(buffer, (command.cid, command.length), &cqe, link, context);
            }
            buffer => {
                if let Some(buffer) = buffer {
                    self.buffers.give(buffer, context);
                }
                link.respond(&cqe, context);
            }
        }
    }

    /// Counts a command that completes, and notes it if it was slow.
    #[inline(always)]
    fn count(&self, command: &Command, place: usize, status: Status, link: &Link, context: &ReactorContext<'_>) {
        let moves_data = command.task.io().is_some_and(IoTask::moves_data);
        let moved = if status.is_success() && moves_data { u64::from(command.length) } else { 0 };
        let latency_us = context.now_us.saturating_sub(command.started_us);
        let stats = self.counters.at(place);
        stats.count(command.kind(), moved, !status.is_success(), latency_us);
        let slow = &context.shared.slow;
        if slow.is_slow(latency_us) {
            let done = Done {
                status,
                bytes: command.length,
                started_us: command.started_us,
                marks: command.marks,
                now_us: context.now_us,
                time_unix_ms: context.shared.clock.unix_ms(),
                unsent_bytes: link.unsent_bytes(),
            };
            slow.note(&command.executing, stats, &done);
        }
    }

    /// Completes a command that nothing waits for; of a half of a pair, the other one as well.
    pub(super) fn end(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        if self.slots.get(slot).is_some_and(|command| command.fused().is_some()) {
            self.finish_half(slot, status, link, context);
        } else {
            self.finish(slot, status, link, context);
        }
    }

    /// Ends a command with `status`. Where data of the host are on their way, the response follows
    /// them; what is at a device ends when that is done with it.
    pub(super) fn stop(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        if command.phase == Phase::AtDevice {
            command.failed = Some(status);
            context.io.cancel(context.tag(self.handle, slot));
            return;
        }
        if command.phase == Phase::Receiving {
            match link.stop_fetching(command.cid, slot) {
                Stopped::Arriving => return command.failed = Some(status),
                Stopped::Ended(buffer) => command.buffer = buffer,
            }
        }
        if let Some(buffer) = self.devices.withdraw_held(slot) {
            command.buffer = Some(buffer);
        }
        self.buffers.stop_waiting(slot);
        self.copies.remove(slot);
        self.end(slot, status, link, context);
    }

    // ---- Compare and Write

    /// Whether a command has to wait until a pair has ended before it changes what it is about; it
    /// then goes on by itself.
    #[cold]
    fn must_wait_for_lock(&mut self, slot: u32, context: &ReactorContext<'_>) -> bool {
        let owner = CommandRef { handle: self.handle, slot };
        let Some(command) = self.slots.get_mut(slot) else { return false };
        let Some(lock) = lock_change(&context.shared.fused_locks, &command.task, owner) else { return false };
        command.lock = Some(Box::new(lock));
        command.phase = Phase::Waiting;
        true
    }

    /// A command that waited for a lock has it.
    pub(crate) fn on_lock_granted(
        &mut self,
        slot: u32,
        number: u64,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        // The slot may have a new command: this one was aborted.
        if command.lock.as_ref().is_none_or(|lock| lock.number() != number) {
            return;
        }
        if let Some(extent) = first_half(&command.task) {
            let operation = operation(TransferKind::Compare, &extent, command.take_memory());
            return self.send_to_device(slot, extent.device, operation, link, context);
        }
        command.lock = None;
        match self.devices.take_held(slot) {
            // It was to go to its device before.
            Some((device, operation)) => self.send_to_device(slot, device, Some(operation), link, context),
            None => self.run_io(slot, link, context),
        }
    }

    /// A half of a pair has its data. When the other one has, too, the pair asks for its lock.
    fn half_complete(&mut self, slot: u32, context: &ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        command.phase = Phase::Waiting;
        let Some(other) = other_half(&self.slots, slot) else { return };
        if self.slots.get(other).is_none_or(|other| other.phase != Phase::Waiting) {
            return;
        }
        for slot in [slot, other] {
            if let Some(command) = self.slots.get_mut(slot)
                && let Some(extent) = first_half(&command.task)
            {
                let owner = CommandRef { handle: self.handle, slot };
                let lock = context.shared.fused_locks.lock_pair(extent.device, extent.bytes(), owner);
                command.lock = Some(Box::new(lock));
            }
        }
    }

    /// A device has done its part of a pair, with `status`.
    fn half_done(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        let status = command.failed.filter(|_| status.is_success()).unwrap_or(status);
        if first_half(&command.task).is_none() || !status.is_success() {
            return self.finish_half(slot, status, link, context);
        }
        let lock = command.lock.take();
        let second = other_half(&self.slots, slot);
        let Some((second, Command { task: Task::Io(IoTask::Transfer(transfer)), buffer, lock: of_second, .. })) =
            second.and_then(|second| Some((second, self.slots.get_mut(second)?)))
        else {
            return self.finish_half(slot, status, link, context);
        };
        // The half at the device has the lock: the other one may be given up meanwhile.
        *of_second = lock;
        let extent = transfer.extent;
        let operation = operation(transfer.kind, &extent, buffer.take().map(Into::into));
        self.finish(slot, Status::SUCCESS, link, context);
        self.send_to_device(second, extent.device, operation, link, context);
    }

    /// Completes a half; if it has failed, the other one as well.
    fn finish_half(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let other = other_half(&self.slots, slot).filter(|_| !status.is_success());
        self.finish(slot, status, link, context);
        if let Some(other) = other {
            self.stop(other, Status::ABORTED_FAILED_FUSED, link, context);
        }
    }

    // ---- Copy

    /// Continues copies, as far as the share of the turn reaches.
    fn continue_copies(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        for _ in 0..self.copies.len().min(PIECES_MAX) {
            if !link.has_share() {
                return;
            }
            let Some(slot) = self.copies.pop() else { return };
            let Some(command) = self.slots.get_mut(slot) else { continue };
            match copies::read_piece(command) {
                Some((device, operation, length)) => {
                    link.charge(2 * length);
                    self.send_to_device(slot, device, Some(operation), link, context);
                }
                None => self.end(slot, Status::INVALID_NAMESPACE.dnr(), link, context),
            }
        }
    }

    /// A device has completed a read or write of a copy with `status`.
    fn copy_done(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        match copies::piece_done(command, status, context.shared) {
            CopyStep::Write => {
                if !(context.shared.fused_locks.is_any_waiting() && self.must_wait_for_lock(slot, context)) {
                    self.write_piece(slot, link, context);
                }
            }
            CopyStep::Read => self.copies.push(slot, command),
            CopyStep::Done => self.finish_copy(slot, link, context),
            CopyStep::Failed(status) => self.finish(slot, status, link, context),
            CopyStep::Damaged(status) => {
                self.finish(slot, status, link, context);
                drive_access::save_errors(&self.queue, context);
            }
        }
    }

    fn write_piece(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        match copies::write_piece(command) {
            Some((device, operation)) => self.send_to_device(slot, device, Some(operation), link, context),
            None => self.end(slot, Status::INVALID_NAMESPACE.dnr(), link, context),
        }
    }

    /// What was copied counts as read from the sources' namespaces too.
    fn finish_copy(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        let latency_us = context.now_us.saturating_sub(command.started_us);
        let read = copies::copy_of(command).map(|copy| copy.read_bytes()).unwrap_or_default();
        for (nsid, bytes) in read {
            let place = self.counters.place(nsid, &self.queue, context.shared);
            self.counters.at(place).count(Kind::Read, bytes, false, latency_us);
        }
        self.finish(slot, Status::SUCCESS, link, context);
    }
}
