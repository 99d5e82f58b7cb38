//! What is done with a command: from the queue's decision over buffer, data and device to the
//! answer.
#![deny(clippy::wildcard_enum_match_arm)]

use std::sync::Arc;

use ebof_backend::{Buffer, Class, Completion, Operation, Segments};
use ebof_drive::error_log::is_severe;
use ebof_fabrics::{Executing, Failure, FusedHalf, Step, Task, Transfer, TransferKind};
use ebof_nvme::connect::ConnectData;
use ebof_nvme::{Cid, DataPointer, Nqn, Nsid, Sqe, Status};

use crate::commands::Commands;
use crate::commands::command::{Command, Phase, Work};
use crate::commands::copy::Copy;
use crate::commands::rings::map;
use crate::drives::device::{operation, status_of};
use crate::link::{Fetch, Link};
use crate::observe::log_limit::{self, LogSubject};
use crate::observe::slow::{Done, Marks};
use crate::observe::stats::{QueueStats, SERIES_MAX};
use crate::shared::mailbox::{CommandRef, Message};
use crate::shared::reactor_context::ReactorContext;

/// Length of the data of Connect, bytes.
#[expect(clippy::cast_possible_truncation, reason = "1024")]
pub(crate) const CONNECT_BYTES: u32 = ConnectData::BYTES as u32;

/// What is known of a command when the queue decides about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) cid: Cid,
    pub(crate) nsid: Nsid,
    /// Where its data are, until they have moved.
    pub(crate) pointer: DataPointer,
    /// Bytes of data behind the command in its capsule.
    in_capsule: u32,
}

impl Origin {
    /// A command that goes on: its parameters have come, or its drive has answered.
    pub(crate) fn of(command: &Command) -> Self {
        Self { cid: command.cid, nsid: command.nsid, pointer: command.pointer, in_capsule: 0 }
    }

    /// A command of which no more data will come.
    pub(crate) fn without_data(cid: Cid, nsid: Nsid) -> Self {
        Self { cid, nsid, pointer: DataPointer::NONE, in_capsule: 0 }
    }
}

impl Commands {
    /// Takes a command; `input` is what follows it in the stream, as far as it has come.
    pub(crate) fn on_command(
        &mut self,
        sqe: &Sqe,
        in_capsule: u32,
        input: &mut &[u8],
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let origin = Origin { cid: sqe.cid(), nsid: sqe.nsid(), pointer: sqe.data_pointer(), in_capsule };
        let step = match self.queue.submit(sqe, context.now_ms) {
            Step::Execute(executing, Task::Transfer(transfer)) => {
                self.begin_transfer(executing, transfer, origin, input, link, context)
            }
            step @ (Step::Complete(_)
            | Step::Disconnect(_)
            | Step::Held
            | Step::Unpaired(..)
            | Step::Withdrawn(_)
            | Step::Execute(..)) => Some(step),
        };
        if let Some(step) = step {
            self.advance(step, origin, link, context);
        }
    }

    /// Does what a transfer wants where that needs neither a buffer nor a device's thread;
    /// otherwise gives it back.
    fn begin_transfer(
        &mut self,
        executing: Executing,
        transfer: Transfer,
        origin: Origin,
        input: &mut &[u8],
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> Option<Step> {
        let is_plain = transfer.checks.is_none() && transfer.fused.is_none();
        match transfer.kind {
            TransferKind::Read => {
                link.charge(transfer.transfer_bytes() as usize);
                if is_plain {
                    return self.read_resident(executing, transfer, origin, link, context);
                }
            }
            TransferKind::Write
                if is_plain && origin.in_capsule == transfer.extent.length_bytes && origin.pointer.is_in_capsule() =>
            {
                return self.write_resident(executing, transfer, origin, input, link, context);
            }
            TransferKind::Write
            | TransferKind::Compare
            | TransferKind::Verify
            | TransferKind::WriteZeroes
            | TransferKind::WriteUncorrectable => {}
        }
        Some(Step::Execute(executing, Task::Transfer(transfer)))
    }

    /// Carries out a step.
    pub(crate) fn advance(&mut self, step: Step, origin: Origin, link: &mut Link, context: &mut ReactorContext<'_>) {
        match step {
            Step::Complete(cqe) => link.respond(&cqe, context),
            Step::Disconnect(cqe) => {
                link.respond(&cqe, context);
                link.drain();
            }
            // An event may wait for exactly this request: it is asked for at the flush.
            Step::Held => link.mark_dirty(context),
            Step::Unpaired(first, status, next) => {
                self.fail_unpaired(first, status, link, context);
                self.advance(*next, origin, link, context);
            }
            Step::Withdrawn(next) => {
                link.withdraw();
                self.advance(*next, origin, link, context);
            }
            Step::Execute(executing, task) => self.execute(executing, task, origin, link, context),
        }
    }

    /// Starts a task.
    fn execute(
        &mut self,
        executing: Executing,
        task: Task,
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let (work, length) = match task {
            Task::Transfer(transfer) => {
                if let Some(FusedHalf::Second { first }) = transfer.fused {
                    self.join_halves(first, executing.cid());
                }
                let length = transfer.transfer_bytes();
                (Work::Transfer(transfer), length)
            }
            Task::Reply(data) => return self.reply(origin, executing, &data, link, context),
            Task::Receive => {
                let length = executing.length();
                (Work::Parameter, length)
            }
            Task::Connect => (Work::Connect, CONNECT_BYTES),
            // The registry defers nothing but Connects, and those are taken care of where they are
            // decided.
            Task::DeferConnect(_) => {
                let cqe = self.queue.complete(executing, Status::INTERNAL_ERROR);
                return link.respond(&cqe, context);
            }
            Task::Shared => {
                let shared = context.shared;
                // Delivered under the lock: a later change must not overtake this one on its way to
                // a queue.
                let mut registry = shared.registry();
                let (step, notices) = registry.execute(&mut self.queue, executing, context.now_ms);
                shared.deliver(notices);
                drop(registry);
                shared.wake_control();
                return self.advance(step, origin, link, context);
            }
            Task::Drive(request) => return self.ask_drive(origin, executing, *request, link, context),
            Task::Copy(plan) => {
                let length = executing.length();
                (Work::Copy(Copy::new(plan)), length)
            }
            Task::LbaStatus(query) => return self.lba_status(origin, executing, &query, link, context),
            Task::Flush(device) => (Work::Flush(device), 0),
            Task::Deallocate(device, ranges) => (Work::Deallocate(device, ranges), 0),
            Task::Abort(handle, cid) => {
                let command = self.command(origin, executing, Work::Abort, 0, context);
                let reply = CommandRef { handle: self.handle, slot: self.slots.insert(command) };
                return context.shared.post(handle, Message::Abort { handle, cid, reply });
            }
            Task::Reset(quiesce) => return self.reset(origin, executing, *quiesce, link, context),
            Task::Rings(task) => return self.change_rings(origin, executing, &task, link, context),
        };
        let command = self.command(origin, executing, work, length, context);
        self.start(command, origin, link, context);
    }

    pub(crate) fn command(
        &mut self,
        origin: Origin,
        executing: Executing,
        work: Work,
        length: u32,
        context: &ReactorContext<'_>,
    ) -> Command {
        // Only work that the queue let through is counted: its namespace exists.
        let stats = if work.is_io() { self.stats_of(origin.nsid, context) } else { None };
        Command {
            cid: origin.cid,
            nsid: origin.nsid,
            pointer: origin.pointer,
            executing,
            work,
            phase: Phase::Elsewhere,
            buffer: None,
            mapped: None,
            length,
            failed: None,
            failed_lba: None,
            started_us: context.now_us,
            marks: Marks::default(),
            lock: None,
            stats,
            ticket: None,
        }
    }

    /// Takes a buffer for the command and starts to fetch its data.
    pub(crate) fn start(
        &mut self,
        mut command: Command,
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let in_capsule = command.work.takes_data() && origin.pointer.is_in_capsule();
        // Parameters may come with more behind them; blocks and Connect data have their length.
        let more = matches!(command.work, Work::Parameter) && origin.in_capsule > command.length;
        if in_capsule && origin.in_capsule != command.length && !more {
            let slot = self.slots.insert(command);
            return self.end(slot, Status::DATA_SGL_LENGTH_INVALID.dnr(), link, context);
        }
        if link.is_ring()
            && let Err(status) = map(&mut command, self.slots.len(), link, context.devices)
        {
            let slot = self.slots.insert(command);
            return self.end(slot, status, link, context);
        }
        let bytes = command.buffer_bytes();
        if bytes > 0 {
            command.buffer = if in_capsule || self.awaiting_buffer.is_empty() {
                self.take_buffer(bytes, in_capsule, context)
            } else {
                None
            };
            if command.buffer.is_none() {
                if in_capsule {
                    // `can_take` saw room for twice the largest capsule a moment ago.
                    let slot = self.slots.insert(command);
                    return self.end(slot, Status::INTERNAL_ERROR, link, context);
                }
                command.phase = Phase::AwaitingBuffer;
                let slot = self.slots.insert(command);
                return self.awaiting_buffer.push_back(slot);
            }
        }
        let slot = self.slots.insert(command);
        self.set_off(slot, link, context);
    }

    /// Starts a command that has its buffer: fetches its data, or goes to the device.
    fn set_off(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        if !command.work.takes_data() || command.mapped.is_some() {
            return self.data_complete(slot, link, context);
        }
        if let Some(fetch) = self.fetch(slot)
            && let Err(buffer) = link.fetch(fetch, context)
        {
            self.give_buffer(buffer, context);
            self.end(slot, Status::COMMAND_INTERRUPTED, link, context);
        }
    }

    /// Hands the buffer over: the command waits for its data from now on.
    fn fetch(&mut self, slot: u32) -> Option<Fetch> {
        let command = self.slots.get_mut(slot)?;
        command.phase = Phase::Receiving;
        let length = command.length;
        Some(Fetch {
            cid: command.cid,
            slot,
            pointer: command.pointer,
            buffer: command.buffer.take()?,
            offset: command.work.data_offset(length),
            length,
        })
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
        let Some(command) = self.slots.get_mut(slot) else { return self.give_buffer(buffer, context) };
        command.buffer = Some(buffer);
        command.marks.fetched_us = context.now_us;
        if !is_intact {
            context.shared.trouble(&self.host_label, link.trouble_of_data());
            // Those of a command that was aborted are not waited for.
            command.failed.get_or_insert(Status::TRANSIENT_TRANSPORT_ERROR);
        }
        self.data_complete(slot, link, context);
    }

    /// Starts commands that waited for a buffer, as far as there are buffers now.
    pub(crate) fn resume_awaiting_buffer(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        while let Some(&slot) = self.awaiting_buffer.front() {
            let bytes = self.slots.get(slot).map_or(0, |command| command.work.buffer_bytes(command.length));
            let Some(buffer) = self.take_buffer(bytes, false, context) else { break };
            self.awaiting_buffer.pop_front();
            match self.slots.get_mut(slot) {
                Some(command) => {
                    command.buffer = Some(buffer);
                    command.marks.buffered_us = context.now_us;
                }
                None => self.give_buffer(buffer, context),
            }
            self.set_off(slot, link, context);
        }
    }

    /// All data of the host have arrived, or there are none: does the work.
    pub(crate) fn data_complete(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        if let Some(status) = command.failed {
            command.phase = Phase::Waiting;
            return self.stop(slot, status, link, context);
        }
        if matches!(command.work, Work::Parameter | Work::Connect) {
            return self.parameters_complete(slot, link, context);
        }
        if !(context.shared.fused_locks.is_any_waiting() && self.must_wait_for_lock(slot, context)) {
            self.go_to_device(slot, link, context);
        }
    }

    /// No lock delays the command any more: goes to the device.
    pub(crate) fn go_to_device(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        if let Err(status) = command.check_outbound(context.shared) {
            return self.end(slot, status, link, context);
        }
        match command.work {
            Work::Transfer(ref transfer) => {
                if transfer.fused.is_some() {
                    return self.half_complete(slot, context);
                }
                let kind = transfer.kind;
                let extent = transfer.extent;
                if kind == TransferKind::WriteUncorrectable {
                    return self.mark_bad(slot, extent, link, context);
                }
                let operation = operation(kind, &extent, command.take_memory());
                self.send_to_device(slot, extent.device, operation, link, context);
            }
            Work::Copy(_) => self.copy_on(slot, link, context),
            Work::Parameter | Work::Connect | Work::Abort | Work::Rings | Work::Drive { .. } | Work::Reset { .. } => {}
            Work::Flush(device) => {
                self.send_to_device(slot, device, Some(Operation::Flush), link, context);
            }
            Work::Deallocate(device, ref ranges) => {
                let ranges = ranges
                    .iter()
                    .map(|range| range.offset_bytes..range.offset_bytes.saturating_add(range.length_bytes))
                    .collect();
                self.send_to_device(slot, device, Some(Operation::Deallocate { ranges }), link, context);
            }
        }
    }

    pub(crate) fn parameters_complete(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(mut command) = self.slots.remove(slot) else { return };
        let buffer = command.buffer.take();
        let data = buffer.as_ref().map_or(&[][..], |buffer| &buffer.as_slice()[..command.length as usize]);
        let origin = Origin::of(&command);
        let step = if matches!(command.work, Work::Connect) {
            self.connect(command.executing, data, link, context)
        } else {
            self.queue.resume(command.executing, data, context.now_ms)
        };
        if let Step::Execute(executing, Task::DeferConnect(looks)) = step {
            return self.defer_connect(executing, buffer, &looks, origin, link, context);
        }
        if let Some(buffer) = buffer {
            self.give_buffer(buffer, context);
        }
        self.advance(step, origin, link, context);
    }

    /// Takes the completion of a device.
    pub(crate) fn on_device(&mut self, completion: Completion, link: &mut Link, context: &mut ReactorContext<'_>) {
        let slot = ReactorContext::slot_of(completion.tag);
        self.at_device = self.at_device.saturating_sub(1);
        let Some(command) = self.slots.get_mut(slot) else { return };
        command.buffer = completion.data.and_then(Segments::into_buffer);
        command.phase = Phase::Elsewhere;
        Self::note_share_done(&mut command.ticket, context);
        if link.has_ended() {
            self.forget(slot, context);
            self.report_closed(link, context);
            return;
        }
        if matches!(command.work, Work::Reset { .. }) {
            if let Err(error) = completion.result {
                let about = LogSubject::Device(command.work.device());
                if let Some(more) = context.shared.may_log(about, log_limit::Kind::Device(error.class())) {
                    tracing::error!("flushing at the reset of a controller: {error}{more}");
                }
            }
            self.go_on_resetting(slot, link, context);
            return;
        }
        let mut severe = false;
        let status = match completion.result {
            Ok(()) => match command.check_inbound(&mut severe, context.shared) {
                Some(status) => status,
                None => command.compared(),
            },
            Err(error) => {
                let aborted = command.failed.filter(|_| error.class() == Class::Aborted);
                let status = aborted.unwrap_or_else(|| status_of(&error, command.work.kind()));
                command.locate(&error);
                if error.class() != Class::Aborted {
                    severe = is_severe(status);
                    let about = LogSubject::Device(command.work.device());
                    if let Some(more) = context.shared.may_log(about, log_limit::Kind::Device(error.class())) {
                        let host = text(self.queue.host());
                        let work = &command.work;
                        tracing::error!(host, nsid = command.nsid.0, %work, %status, "device error: {error}{more}");
                    }
                }
                status
            }
        };
        if matches!(command.work, Work::Copy(_)) {
            self.copy_done(slot, status, link, context);
        } else if command.work.fused().is_some() {
            self.half_done(slot, status, link, context);
        } else {
            self.finish(slot, status, link, context);
        }
        if severe {
            self.notify_drive(context);
        }
    }

    /// The answer to an Abort that this connection sent to another queue.
    pub(crate) fn on_abort_answer(
        &mut self,
        slot: u32,
        aborted: bool,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        if self.slots.get(slot).is_some_and(|command| matches!(command.work, Work::Abort))
            && let Some(command) = self.slots.remove(slot)
        {
            // Abort, Command Completion: dword 0 bit 0 is set when the command was not aborted.
            let cqe = self.queue.complete_with(command.executing, Status::SUCCESS, u64::from(!aborted));
            link.respond(&cqe, context);
        }
    }

    /// Completes a command: its data and its response are queued for sending.
    pub(crate) fn finish(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.remove(slot) else { return };
        let moved = if status.is_success() && command.work.moves_data() { u64::from(command.length) } else { 0 };
        if let Some((_, stats)) = command.stats.and_then(|at| self.stats.get(at)) {
            let latency_us = context.now_us.saturating_sub(command.started_us);
            stats.count(command.work.kind(), moved, !status.is_success(), latency_us);
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
        let cqe = if status.is_success() {
            self.queue.complete(command.executing, status)
        } else {
            let failure = Failure { status, result: command.work.failed_result(), lba: command.failed_lba };
            self.queue.fail(command.executing, failure)
        };
        let is_read = command.work.transfer_kind() == Some(TransferKind::Read);
        match command.buffer {
            Some(buffer) if is_read && status.is_success() => {
                self.send_read(command.cid, buffer, command.length, &cqe, link, context);
            }
            buffer => {
                if let Some(buffer) = buffer {
                    self.give_buffer(buffer, context);
                }
                link.respond(&cqe, context);
            }
        }
    }

    /// The counters for commands about `nsid` on this queue: their place in `stats`. Most queues
    /// work on one namespace.
    #[inline]
    pub(crate) fn stats_of(&mut self, nsid: Nsid, context: &ReactorContext<'_>) -> Option<usize> {
        match self.stats.first() {
            Some((known, _)) if *known == nsid => Some(0),
            _ => self.find_stats(nsid, context),
        }
    }

    #[inline(never)]
    fn find_stats(&mut self, nsid: Nsid, context: &ReactorContext<'_>) -> Option<usize> {
        if let Some(at) = self.stats.iter().position(|(known, _)| *known == nsid) {
            return Some(at);
        }
        // A queue that works on very many namespaces has the last of them counted together, as
        // namespace 0.
        let nsid = if self.stats.len() + 1 < SERIES_MAX { nsid } else { Nsid::NONE };
        if self.stats.len() == SERIES_MAX {
            return Some(SERIES_MAX - 1);
        }
        let stats = Arc::new(QueueStats {
            host: text(self.queue.host()).to_owned(),
            counted_as: self.host_label.clone(),
            subsystem: text(self.queue.subsystem()).to_owned(),
            port: self.port.name.clone(),
            controller: self.queue.association().map_or(0, |association| association.cntlid.0),
            queue: self.queue.id().map_or(0, |id| id.0),
            nsid: nsid.0,
            kinds: Default::default(),
        });
        context.shared.add_stats(&stats);
        self.stats.push((nsid, stats));
        Some(self.stats.len() - 1)
    }
}

pub(crate) fn text(nqn: Option<&Nqn>) -> &str {
    nqn.map_or("", Nqn::as_str)
}
