//! The way of a command through buffer, data and device, until it completes.
//!
//! Knows what a command needs next, and not what it means: what the queue has to decide about is an
//! [`CommandOutcome`] for `commands.rs`.
#![deny(clippy::wildcard_enum_match_arm)]

use std::sync::Arc;

use ebof_backend::{Buffer, Completion, Device, Operation, Segments, Submitted};
use ebof_fabrics::{DeviceId, Failure, Handle, IoTask, Queue, Task, Transfer, TransferKind};
use ebof_nvme::Status;

use crate::commands::buffers::ConnectionBuffers;
use crate::commands::command::{Command, CommandOutcome, CommandPhase, Origin};
use crate::commands::copies::{self, CopyStep, PIECES_MAX, PendingCopies};
use crate::commands::counters::QueueCounters;
use crate::commands::device_access::{self, DeviceAccess};
use crate::commands::drive_access::{self, DriveAccess};
use crate::commands::fused::{first_half, lock_change, lock_if_complete, other_half};
use crate::commands::memory;
use crate::commands::protection;
use crate::commands::slots::Slots;
use crate::drives::device::{buffer_of, operation};
use crate::link::{Fetch, Link, Stopped};
use crate::ports::port::PortState;
use crate::shared::mailbox::CommandRef;
use crate::shared::reactor_context::ReactorContext;
use crate::shared::shares::TicketId;

/// The commands of one connection that are under way, and what they use.
pub(crate) struct Execution {
    pub(super) handle: Handle,
    pub(crate) queue: Queue,
    pub(crate) slots: Slots<Command>,
    pub(crate) buffers: ConnectionBuffers,
    pub(crate) counters: QueueCounters,
    pub(super) drive: DriveAccess,
    pub(super) devices: DeviceAccess,
    pub(super) copies: PendingCopies,
    /// While something is computed for the host's proof, and somebody wants to know.
    pub(super) computed: Option<Arc<()>>,
}

impl Execution {
    pub(super) fn new(handle: Handle, port: Arc<PortState>) -> Self {
        Self {
            handle,
            queue: Queue::new(),
            slots: Slots::new(1),
            buffers: ConnectionBuffers::new(PortState::in_capsule_bytes(port.config.in_capsule_data_bytes)),
            counters: QueueCounters::new(port),
            drive: DriveAccess::new(handle),
            devices: DeviceAccess::new(handle),
            copies: PendingCopies::default(),
            computed: None,
        }
    }

    // ---- its buffer and its data

    /// Takes a buffer for the command and starts to fetch its data, or runs it.
    pub(super) fn start(
        &mut self,
        mut command: Command,
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> CommandOutcome {
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
            command.phase = CommandPhase::AwaitingBuffer;
        }
        let slot = self.slots.insert(command);
        match refused {
            Some(status) => self.end(slot, status, link, context),
            None if waits => self.buffers.enqueue(slot),
            None => return self.fetch(slot, link, context),
        }
        CommandOutcome::Continues
    }

    /// Fetches the data of a command that has its buffer, if the host sends any, and runs it.
    fn fetch(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) -> CommandOutcome {
        let command = self.slots.expect_mut(slot);
        let takes_data = command.task.takes_data() && command.mapped.is_none();
        let Some(buffer) = command.buffer.take_if(|_| takes_data) else { return self.run(slot, link, context) };
        command.phase = CommandPhase::Receiving;
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
        CommandOutcome::Continues
    }

    /// The data of a command have come.
    pub(super) fn on_fetched(
        &mut self,
        slot: u32,
        buffer: Buffer,
        is_intact: bool,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> CommandOutcome {
        // Whoever ends a command has its link stop fetching, and with `Stopped::Arriving` it stays
        // until this.
        let command = self.slots.expect_mut(slot);
        assert!(command.phase == CommandPhase::Receiving, "data came for a command that is {:?}", command.phase);
        command.buffer = Some(buffer);
        command.marks.fetched_us = context.now_us;
        if !is_intact {
            context.shared.trouble(self.counters.host_label(), link.trouble_of_data());
            // Those of a command that was aborted are not waited for.
            command.failed.get_or_insert(Status::TRANSIENT_TRANSPORT_ERROR);
        }
        self.run(slot, link, context)
    }

    /// Goes on with the first command that waits for a buffer, if there is one for it now.
    pub(super) fn resume_next(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) -> Option<CommandOutcome> {
        let slot = self.buffers.first_waiting()?;
        let command = self.slots.expect_mut(slot);
        let buffer = self.buffers.take(command.buffer_bytes(), false, context)?;
        self.buffers.dequeue();
        command.buffer = Some(buffer);
        command.marks.buffered_us = context.now_us;
        Some(self.fetch(slot, link, context))
    }

    // ---- its work

    /// All data of the host have arrived, or there are none: does the work.
    fn run(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) -> CommandOutcome {
        let command = self.slots.expect_mut(slot);
        if let Some(status) = command.failed {
            command.phase = CommandPhase::Waiting;
            self.stop(slot, status, link, context);
        } else if command.task.io().is_none() {
            return CommandOutcome::Parameters(slot);
        } else if !(context.shared.fused_locks.is_any_waiting() && self.must_wait_for_lock(slot, context)) {
            self.run_io(slot, link, context);
        }
        CommandOutcome::Continues
    }

    /// No lock delays the command any more: goes to the device.
    fn run_io(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let command = self.slots.expect_mut(slot);
        if let Err(status) = protection::check_outbound(command, context.shared) {
            return self.end(slot, status, link, context);
        }
        let Task::Io(io) = &mut command.task else { unreachable!("nothing else waits for a lock") };
        let (device, operation) = match io {
            IoTask::Transfer(transfer) => {
                if transfer.fused.is_some() {
                    return lock_if_complete(&mut self.slots, slot, self.handle, &context.shared.fused_locks);
                }
                let Transfer { kind, extent, .. } = *transfer;
                if kind == TransferKind::WriteUncorrectable {
                    command.phase = CommandPhase::Elsewhere;
                    if !self.drive.mark_bad(slot, extent, &self.queue, context) {
                        self.finish(slot, Status::INVALID_NAMESPACE.dnr(), link, context);
                    }
                    return;
                }
                (extent.device, operation(kind, &extent, command.take_memory()))
            }
            IoTask::Copy(copy) if copy.is_writing() => return self.write_piece(slot, link, context),
            IoTask::Copy(_) => return self.copies.push(slot, command),
            IoTask::Flush(device) => (*device, Operation::Flush),
            IoTask::Deallocate(device, ranges) => {
                let ranges = ranges.iter().map(ebof_fabrics::ByteRange::bytes).collect();
                (*device, Operation::Deallocate { ranges })
            }
        };
        self.send(slot, device, operation, link, context);
    }

    /// Sends an operation to its device, as soon as the command's function may.
    fn send(
        &mut self,
        slot: u32,
        device: DeviceId,
        operation: Operation,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let outcome = self.send_to_device(slot, device, operation, link, context);
        assert_continues(outcome);
    }

    /// The same, for any task.
    #[inline(always)]
    pub(super) fn send_to_device(
        &mut self,
        slot: u32,
        device: DeviceId,
        operation: Operation,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> CommandOutcome {
        let devices = context.devices;
        let Some(at) = devices.device(device) else {
            self.end_without_device(slot, operation, link, context);
            return CommandOutcome::Continues;
        };
        let command = self.slots.expect_mut(slot);
        let submitted = self.devices.submit((slot, command), (device, at), operation, &self.queue, context);
        self.on_submitted(submitted, at, link, context)
    }

    /// The namespace has gone away since the queue decided: while its data were on their way, or it
    /// waited for a lock or for its share of the drive.
    #[cold]
    fn end_without_device(
        &mut self,
        slot: u32,
        operation: Operation,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        self.slots.expect_mut(slot).buffer = buffer_of(operation);
        self.end(slot, Status::INVALID_NAMESPACE.dnr(), link, context);
    }

    /// A command that waited for its share of the drive may go to its device.
    pub(super) fn on_admitted(&mut self, slot: u32, id: TicketId, link: &mut Link, context: &mut ReactorContext<'_>) {
        // The slot may have a new command: this one was given up, and its ticket settled.
        let Some(command) = self.slots.get_mut(slot) else { return };
        if command.phase != CommandPhase::Held || !command.ticket.as_ref().is_some_and(|ticket| ticket.is(id)) {
            return;
        }
        // A pair may have begun since the command began to wait.
        if context.shared.fused_locks.is_any_waiting() && self.must_wait_for_lock(slot, context) {
            self.slots.expect_mut(slot).ticket = None;
            return;
        }
        let (device, operation) = self.devices.take_held(slot).expect("a command is held with what it asks for");
        let devices = context.devices;
        let Some(at) = devices.device(device) else {
            return self.end_without_device(slot, operation, link, context);
        };
        let command = self.slots.expect_mut(slot);
        let submitted = self.devices.submit_now((slot, command), at, operation, context);
        let outcome = self.on_submitted(submitted, at, link, context);
        assert_continues(outcome);
    }

    #[inline(always)]
    fn on_submitted(
        &mut self,
        submitted: Submitted,
        device: &Arc<dyn Device>,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> CommandOutcome {
        match submitted {
            Submitted::Done(completion) => return self.on_device(completion, link, context),
            Submitted::Pending => {}
            Submitted::Busy(request) => context.retry.push_back((Arc::clone(device), request)),
        }
        CommandOutcome::Continues
    }

    /// Takes the completion of a device.
    pub(super) fn on_device(
        &mut self,
        completion: Completion,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> CommandOutcome {
        let slot = ReactorContext::slot_of(completion.tag);
        // Neither an Abort nor the end of its connection takes it out before the device is done.
        let command = self.slots.expect_mut(slot);
        assert!(
            command.phase == CommandPhase::AtDevice,
            "a device has completed a command that is {:?}",
            command.phase
        );
        command.buffer = completion.data.and_then(Segments::into_buffer);
        command.phase = CommandPhase::Elsewhere;
        self.devices.note_done(&mut command.ticket, context);
        if link.has_ended() {
            self.forget(slot, context);
            return CommandOutcome::Forgotten;
        }
        let is_whole = matches!(command.task, Task::Io(IoTask::Transfer(Transfer { fused: None, .. })));
        let mut severe = false;
        let status = match completion.result {
            Ok(()) => match protection::check_inbound(command, &mut severe, context.shared) {
                Some(status) => status,
                None => command.compared(),
            },
            Err(error) => {
                let status;
                (status, severe) = device_access::fail(command, &error, self.queue.host(), context.shared);
                status
            }
        };
        match &command.task {
            _ if is_whole => self.finish(slot, status, link, context),
            // Whatever has become of a flush, the controller is reset.
            Task::Reset(_) => return CommandOutcome::Flushed(slot),
            Task::Io(IoTask::Copy(_)) => self.copy_done(slot, status, link, context),
            Task::Io(io) if io.fused().is_some() => self.half_done(slot, status, link, context),
            Task::Io(_) => self.finish(slot, status, link, context),
            Task::Reply(_)
            | Task::Receive
            | Task::Connect
            | Task::DeferConnect(_)
            | Task::Shared
            | Task::Drive(_)
            | Task::LbaStatus(_)
            | Task::Abort(..)
            | Task::Authenticate(_)
            | Task::Rings(_) => unreachable!("it asks nothing of a device"),
        }
        if severe {
            drive_access::save_errors(&self.queue, context);
        }
        CommandOutcome::Continues
    }

    // ---- its end

    /// Completes a command: its data and its response are queued for sending.
    pub(super) fn finish(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let command = self.slots.take(slot);
        if let Some(place) = command.counters {
            self.counters.count(place, &command, status, link, context);
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
        // Who stops all commands of a namespace may come to a half that has ended with the other.
        let Some(command) = self.slots.get_mut(slot) else { return };
        if command.phase == CommandPhase::AtDevice {
            command.failed = Some(status);
            context.io.cancel(context.tag(self.handle, slot));
            return;
        }
        if command.phase == CommandPhase::Receiving {
            match link.stop_fetching(command.cid, slot) {
                Stopped::Arriving => return command.failed = Some(status),
                Stopped::Ended(buffer) => command.buffer = Some(buffer),
            }
        }
        if let Some(buffer) = self.devices.withdraw_held(slot) {
            command.buffer = Some(buffer);
        }
        self.buffers.stop_waiting(slot);
        self.copies.remove(slot);
        self.end(slot, status, link, context);
    }

    /// Drops one command without an answer: its connection is gone.
    pub(super) fn forget(&mut self, slot: u32, context: &mut ReactorContext<'_>) {
        let held = self.devices.withdraw_held(slot);
        let command = self.slots.take(slot);
        self.queue.abandon(command.executing);
        if let Some(buffer) = command.buffer.or(held) {
            self.buffers.give(buffer, context);
        }
    }

    // ---- Compare and Write

    /// Whether a command has to wait until a pair has ended before it changes what it is about; it
    /// then goes on by itself.
    #[cold]
    fn must_wait_for_lock(&mut self, slot: u32, context: &ReactorContext<'_>) -> bool {
        let owner = CommandRef { handle: self.handle, slot };
        let command = self.slots.expect_mut(slot);
        let Some(lock) = lock_change(&context.shared.fused_locks, &command.task, owner) else { return false };
        command.lock = Some(Box::new(lock));
        command.phase = CommandPhase::Waiting;
        true
    }

    /// A command that waited for a lock has it.
    pub(super) fn on_lock_granted(
        &mut self,
        slot: u32,
        number: u64,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        // The command was aborted meanwhile, and its slot may have a new one.
        let Some(command) = self.slots.get_mut(slot) else { return };
        if command.lock.as_ref().is_none_or(|lock| lock.number() != number) {
            return;
        }
        if let Some(extent) = first_half(&command.task) {
            let operation = operation(TransferKind::Compare, &extent, command.take_memory());
            return self.send(slot, extent.device, operation, link, context);
        }
        command.lock = None;
        match self.devices.take_held(slot) {
            // It was to go to its device before.
            Some((device, operation)) => self.send(slot, device, operation, link, context),
            None => self.run_io(slot, link, context),
        }
    }

    /// A device has done its part of a pair, with `status`.
    fn half_done(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let command = self.slots.expect_mut(slot);
        let status = command.failed.filter(|_| status.is_success()).unwrap_or(status);
        if first_half(&command.task).is_none() || !status.is_success() {
            return self.finish_half(slot, status, link, context);
        }
        let lock = command.lock.take();
        // It may have been aborted while this one was at the device.
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
        self.send(second, extent.device, operation, link, context);
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
    pub(super) fn continue_copies(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        for _ in 0..self.copies.len().min(PIECES_MAX) {
            if !link.has_share() {
                return;
            }
            let slot = self.copies.pop().expect("a piece takes no other copy off the list");
            let (device, operation, length) = copies::read_piece(self.slots.expect_mut(slot));
            link.charge(2 * length);
            self.send(slot, device, operation, link, context);
        }
    }

    /// A device has completed a read or write of a copy with `status`.
    fn copy_done(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let command = self.slots.expect_mut(slot);
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
        let (device, operation) = copies::write_piece(self.slots.expect_mut(slot));
        self.send(slot, device, operation, link, context);
    }

    /// What was copied counts as read from the sources' namespaces too.
    fn finish_copy(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let command = self.slots.expect_mut(slot);
        let latency_us = context.now_us.saturating_sub(command.started_us);
        let read = copies::copy_of(command).read_bytes();
        self.counters.count_read(read.into_iter(), latency_us, &self.queue, context.shared);
        self.finish(slot, Status::SUCCESS, link, context);
    }
}

/// Nothing is to be done with an I/O command that was sent: its queue has decided before, and a
/// connection that has ended sends nothing.
#[inline(always)]
fn assert_continues(outcome: CommandOutcome) {
    assert!(matches!(outcome, CommandOutcome::Continues), "{outcome:?} of an I/O command that was sent");
}
