//! The command side of a connection: the queue, the commands under way, and what each of them does
//! next, until it completes.
//!
//! ```text
//! on_command -> Queue::submit -> start (buffer, data of the host) -> run -> send_to_device
//!   -> on_device -> finish -> Queue::complete -> Link
//! ```
//!
//! Knows nothing of how bytes move: it asks its [`Link`]. What a command means is `ebof_fabrics`';
//! the devices are reached through [`ReactorContext`]. What has state of its own (buffers,
//! counters, who waits, what is at devices and at the drive) is an object in a file of its own: a
//! command's way through buffer, data and device is [`Execution`]'s, what another queue or the
//! drive does for it [`Elsewhere`]'s. Here is what the queue decides about.
#![deny(clippy::wildcard_enum_match_arm)]

mod buffers;
pub(crate) mod command;
mod connect;
mod copies;
mod counters;
mod device_access;
mod drive_access;
mod elsewhere;
mod execution;
mod fused;
mod immediate;
mod memory;
mod protection;
mod slots;
mod waiters;

use std::collections::BTreeSet;
use std::sync::Arc;

use ebof_backend::{Buffer, Completion};
use ebof_fabrics::registry::CONNECT_HOLD_MS;
use ebof_fabrics::{
    Attachment, Authenticate, DeviceId, Executing, Failure, FusedHalf, Handle, IoTask, Notice, Step, Task, Transfer,
    TransferKind,
};
use ebof_nvme::connect::ConnectData;
use ebof_nvme::{Nsid, Sqe, Status};
use ebof_region::Way;

use crate::commands::command::{AbortRequest, Command, CommandOutcome, CommandPhase, Origin};
use crate::commands::connect::Decided;
use crate::commands::elsewhere::Elsewhere;
use crate::commands::execution::Execution;
use crate::commands::fused::{join_halves, slot_of};
use crate::commands::immediate::Immediate;
use crate::commands::waiters::Waiters;
use crate::link::{End, Link, Opening};
use crate::observe::log_limit::{Kind, LogSubject};
use crate::ports::port::PortState;
use crate::shared::mailbox::{CommandRef, CommandReply, Message};
use crate::shared::reactor_context::ReactorContext;

/// Length of the data of Connect, bytes.
#[expect(clippy::cast_possible_truncation, reason = "1024")]
const CONNECT_BYTES: u32 = ConnectData::BYTES as u32;

/// The commands of one connection.
pub(crate) struct Commands {
    pub(crate) execution: Execution,
    pub(crate) waiters: Waiters,
    /// The registry knows that nothing of the queue can reach the medium any more.
    reported_closed: bool,
}

impl Commands {
    pub(crate) fn new(handle: Handle, port: Arc<PortState>) -> Self {
        Self { execution: Execution::new(handle, port), waiters: Waiters::default(), reported_closed: false }
    }

    // ---- a command comes

    /// Whether another command can be taken: a slot, a buffer for its in-capsule data, and room for
    /// its completion.
    pub(crate) fn can_take(&self, link: &Link, context: &ReactorContext<'_>) -> bool {
        // While data of the host are awaited everything is read on: they come on the same stream. A
        // host that overruns its queue meanwhile is refused by the queue.
        let may_fetch =
            self.execution.queue.may_fetch() && !self.execution.slots.is_full() && self.execution.devices.has_room();
        let has_slot = may_fetch || link.awaits_data();
        let has_buffers = self.execution.buffers.has_room(self.execution.queue.awaits_second(), context);
        link.has_completion_room() && has_slot && has_buffers && link.has_share()
    }

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
        let step = match self.execution.queue.submit(sqe, context.now_ms) {
            Step::Execute(executing, Task::Io(IoTask::Transfer(transfer))) => {
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
        let Execution { queue, buffers, counters, .. } = &mut self.execution;
        let mut immediate = Immediate { queue, buffers, counters };
        match transfer.kind {
            TransferKind::Read => {
                link.charge(transfer.transfer_bytes() as usize);
                if is_plain {
                    return immediate.read(executing, transfer, origin, link, context);
                }
            }
            TransferKind::Write
                if is_plain && origin.in_capsule == transfer.extent.length_bytes && origin.pointer.is_in_capsule() =>
            {
                return immediate.write(executing, transfer, origin, input, link, context);
            }
            TransferKind::Write
            | TransferKind::Compare
            | TransferKind::Verify
            | TransferKind::WriteZeroes
            | TransferKind::WriteUncorrectable => {}
        }
        Some(Step::Execute(executing, Task::Io(IoTask::Transfer(transfer))))
    }

    /// A register of the controller was written.
    pub(crate) fn write_cc(&mut self, value: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let step = self.execution.queue.write_cc(value, context.now_ms);
        let origin = Origin::without_data(ebof_fabrics::queue::REGISTER_WRITE, Nsid::NONE);
        self.advance(step, origin, link, context);
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
                if let Some(slot) = slot_of(&self.execution.slots, first) {
                    self.execution.stop(slot, status, link, context);
                }
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
        mut task: Task,
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let length = match &mut task {
            Task::Io(IoTask::Transfer(transfer)) => {
                if let Some(FusedHalf::Second { first }) = transfer.fused {
                    join_halves(&mut self.execution.slots, first, executing.cid());
                }
                transfer.transfer_bytes()
            }
            Task::Io(IoTask::Copy(_)) | Task::Receive => executing.length(),
            Task::Io(IoTask::Flush(_) | IoTask::Deallocate(..)) => 0,
            Task::Connect => CONNECT_BYTES,
            Task::Reply(data) => return self.reply(origin, executing, data, link, context),
            Task::Shared => return self.execute_shared(executing, origin, link, context),
            Task::Authenticate(what) => return self.authenticate(executing, what, origin, link, context),
            Task::LbaStatus(query) => {
                let step = match drive_access::lba_status(query, &self.execution.queue, context) {
                    Some((ranges, complete)) => self.execution.queue.lba_status(executing, &ranges, complete),
                    None => Step::Complete(self.execution.queue.complete(executing, Status::INVALID_NAMESPACE.dnr())),
                };
                return self.advance(step, origin, link, context);
            }
            Task::Drive(_) | Task::Abort(..) | Task::Reset(_) | Task::Rings(_) => {
                let command = Command::new(origin, executing, (task, 0), None, context.now_us);
                let slot = self.execution.slots.insert(command);
                return Elsewhere(&mut self.execution).begin(slot, link, context);
            }
            Task::DeferConnect(_) => unreachable!("the registry defers Connects, see `parameters_complete`"),
        };
        // The queue let it through: if it is an I/O command, its namespace exists.
        let counters =
            task.io().map(|_| self.execution.counters.place(origin.nsid, &self.execution.queue, context.shared));
        let command = Command::new(origin, executing, (task, length), counters, context.now_us);
        let outcome = self.execution.start(command, origin, link, context);
        self.on_outcome(outcome, link, context);
    }

    /// Sends parameter data, if they can be where the command says.
    fn reply(
        &mut self,
        origin: Origin,
        executing: Executing,
        data: &[u8],
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let length = u32::try_from(data.len()).expect("as much as the command asked for");
        if let Err(status) = link.check(&origin.pointer, length, Way::ToHost) {
            let cqe = self.execution.queue.fail(executing, Failure { status, result: 0, lba: None });
            return link.respond(&cqe, context);
        }
        let cqe = self.execution.queue.complete(executing, Status::SUCCESS);
        link.send_bytes(origin.cid, data, &cqe, context);
    }

    /// Has the host's message looked at, or what is to be computed for it computed elsewhere.
    fn authenticate(
        &mut self,
        executing: Executing,
        what: &mut Authenticate,
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let exponentiation = &context.shared.exponentiation;
        match what {
            Authenticate::Message(message) => {
                let step = match exponentiation.entropy() {
                    Ok(entropy) => self.execution.queue.authenticate(executing, message, &entropy),
                    Err(error) => {
                        if let Some(more) = context.shared.may_log(LogSubject::Target, Kind::Unprovable) {
                            tracing::error!("hosts cannot prove who they are: {error}{more}");
                        }
                        Step::Complete(self.execution.queue.complete(executing, Status::INTERNAL_ERROR))
                    }
                };
                self.advance(step, origin, link, context);
            }
            Authenticate::Compute(work) => {
                let task = Task::Authenticate(Box::new(Authenticate::Compute(None)));
                let mut command = Command::new(origin, executing, (task, 0), None, context.now_us);
                command.phase = CommandPhase::Elsewhere;
                let slot = self.execution.slots.insert(command);
                let reply = CommandRef { handle: self.execution.handle, slot };
                let work = work.take().expect("it is begun once");
                match exponentiation.begin(work, reply, link.peer().about()) {
                    Ok(wanted) => self.execution.computed = Some(wanted),
                    Err(error) => {
                        if let Some(more) = context.shared.may_log(LogSubject::Target, Kind::Unprovable) {
                            tracing::error!("no thread for the proofs of hosts: {error}{more}");
                        }
                        self.execution.finish(slot, Status::INTERNAL_ERROR, link, context);
                    }
                }
            }
        }
    }

    fn execute_shared(
        &mut self,
        executing: Executing,
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let shared = context.shared;
        // Delivered under the lock: a later change must not overtake this one on its way to a
        // queue.
        let was_open = self.execution.queue.is_open();
        let mut registry = shared.registry();
        let (step, notices) = registry.execute(&mut self.execution.queue, executing, context.now_ms);
        shared.deliver(notices);
        drop(registry);
        shared.wake_control();
        if !was_open && self.execution.queue.is_open() {
            self.on_admitted(link, context);
        }
        self.advance(step, origin, link, context);
    }

    /// Goes on with a command that has gone as far as it can by itself.
    #[inline(always)]
    fn on_outcome(&mut self, outcome: CommandOutcome, link: &mut Link, context: &mut ReactorContext<'_>) {
        match outcome {
            CommandOutcome::Continues => {}
            CommandOutcome::Parameters(slot) => self.parameters_complete(slot, link, context),
            CommandOutcome::Flushed(slot) => Elsewhere(&mut self.execution).continue_reset(slot, link, context),
            CommandOutcome::Forgotten => self.report_closed(link, context),
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
        let outcome = self.execution.on_fetched(slot, buffer, is_intact, link, context);
        self.on_outcome(outcome, link, context);
    }

    /// Goes on with what waited for a buffer, or for another turn.
    pub(crate) fn resume(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        while let Some(outcome) = self.execution.resume_next(link, context) {
            self.on_outcome(outcome, link, context);
        }
        self.execution.continue_copies(link, context);
    }

    /// Takes the completion of a device.
    pub(crate) fn on_device(&mut self, completion: Completion, link: &mut Link, context: &mut ReactorContext<'_>) {
        let outcome = self.execution.on_device(completion, link, context);
        self.on_outcome(outcome, link, context);
    }

    /// A command has what it waited for.
    pub(crate) fn on_reply(
        &mut self,
        slot: u32,
        reply: CommandReply,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let mut elsewhere = Elsewhere(&mut self.execution);
        let decided = match reply {
            CommandReply::Drive(answer) => elsewhere.on_answer(slot, answer, link, context),
            CommandReply::Preempted => elsewhere.on_preempted(slot),
            CommandReply::Aborted(aborted) => return elsewhere.on_abort_answer(slot, aborted, link, context),
            CommandReply::Closed => return elsewhere.on_closed(slot, link, context),
            CommandReply::Created(status) => return elsewhere.on_created(slot, status, link, context),
            CommandReply::LockGranted(number) => return self.execution.on_lock_granted(slot, number, link, context),
            CommandReply::Computed(computed) => elsewhere.on_computed(slot, computed),
            CommandReply::Admitted(id) => return self.execution.on_admitted(slot, id, link, context),
        };
        if let Some((step, origin)) = decided {
            self.advance(step, origin, link, context);
        }
    }

    /// The parameters of a command have come, or the data of Connect.
    fn parameters_complete(&mut self, slot: u32, link: &mut Link, context: &mut ReactorContext<'_>) {
        let mut command = self.execution.slots.take(slot);
        let buffer = command.buffer.take();
        let data = buffer.as_ref().map_or(&[][..], |buffer| &buffer.as_slice()[..command.length as usize]);
        let origin = command.origin();
        let executing = command.executing;
        let step = if matches!(command.task, Task::Connect) {
            let Decided { step, is_connected } =
                connect::decide(&mut self.execution.queue, self.execution.handle, (executing, data), link, context);
            if is_connected {
                self.on_connected(link, context);
            }
            step
        } else {
            self.execution.queue.resume(executing, data, context.now_ms)
        };
        if let Step::Execute(executing, Task::DeferConnect(looks)) = step {
            return self.defer_connect(executing, buffer, &looks, origin, link, context);
        }
        if let Some(buffer) = buffer {
            self.execution.buffers.give(buffer, context);
        }
        self.advance(step, origin, link, context);
    }

    /// Forgets every command that is not at a device: the connection ends. What the drive's thread
    /// has not begun will not be done.
    pub(crate) fn release(&mut self, context: &mut ReactorContext<'_>) {
        self.execution.drive.end(&self.execution.queue, context);
        self.execution.computed = None;
        self.execution.buffers.clear_waiting();
        self.execution.copies.clear();
        let idle: Vec<u32> = self
            .execution
            .slots
            .iter()
            .filter(|(_, command)| command.phase != CommandPhase::AtDevice)
            .map(|(slot, _)| slot)
            .collect();
        for slot in idle {
            self.execution.forget(slot, context);
        }
    }

    /// The target shuts down: no second half comes any more, and no Connect waits any more.
    pub(crate) fn start_shutdown(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        if let Some(slot) = fused::lone_half(&self.execution.slots).filter(|_| link.is_draining()) {
            self.execution.stop(slot, Status::ABORTED_MISSING_FUSED, link, context);
        }
        if let Some(slot) = self.waiting_connect() {
            self.execution.stop(slot, Status::CONNECT_CONTROLLER_BUSY, link, context);
        }
    }

    // ---- the queue

    /// Delivers a notice of the registry to the queue.
    pub(crate) fn on_notice(&mut self, notice: Notice, link: &mut Link, context: &mut ReactorContext<'_>) {
        if let Notice::Connect = notice {
            if let Some(slot) = self.waiting_connect() {
                self.parameters_complete(slot, link, context);
            }
            return;
        }
        match self.execution.queue.notify(notice, context.now_ms) {
            Some(cqe) => link.respond(&cqe, context),
            // There may be an event to tell: it is asked for at the flush.
            None => link.mark_dirty(context),
        }
    }

    /// Completes the Asynchronous Event Requests for which there is something to tell.
    pub(crate) fn send_events(&mut self, link: &mut Link) {
        if self.execution.queue.is_admin() {
            while let Some(cqe) = self.execution.queue.poll_event() {
                link.push_response(&cqe);
            }
        }
    }

    /// Becomes the queue of a host that is attached directly, without a Connect.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn attach(
        &mut self,
        attachment: &Attachment,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) -> Result<(), End> {
        connect::attach(&mut self.execution.queue, self.execution.handle, attachment, link, context)?;
        self.on_connected(link, context);
        Ok(())
    }

    /// The connection has become a queue; its host may have to prove who it is.
    fn on_connected(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        const IS_QUEUE: &str = "a Connect that has succeeded has made it a queue";
        let id = self.execution.queue.id().expect(IS_QUEUE);
        let submission_queue = self.execution.queue.submission_queue().expect(IS_QUEUE);
        // The port may have got another limit since the controller was created.
        let in_capsule_bytes = self.execution.queue.association().map(|association| association.port.in_capsule_bytes);
        if let Some(bytes) = in_capsule_bytes {
            self.execution.buffers.set_in_capsule_bytes(PortState::in_capsule_bytes(bytes));
        }
        link.open(&Opening { id, submission_queue, in_capsule_bytes });
        self.execution.slots.set_max(self.execution.queue.commands_max());
        if self.execution.queue.is_open() {
            self.on_admitted(link, context);
        }
    }

    /// The host of the queue may use it from now on.
    fn on_admitted(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        link.admit(context);
        self.execution.slots.set_max(self.execution.queue.commands_max());
        if let Some(host) = self.execution.queue.host() {
            self.execution.buffers.join(host, context.host_buffers);
            self.execution.counters.set_host_label(context.shared.host_label(host, link.peer()));
        }
        if self.execution.queue.is_admin() {
            self.execution.drive.assign_cntlid(&self.execution.queue, context);
        }
        connect::report(&self.execution.queue, link, context);
    }

    /// Keeps a Connect, with its data, until [`Notice::Connect`].
    fn defer_connect(
        &mut self,
        executing: Executing,
        buffer: Option<Buffer>,
        looks: &[Handle],
        origin: Origin,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        link.extend_handshake(context.now_ms + 2 * CONNECT_HOLD_MS);
        let mut command = Command::new(origin, executing, (Task::Connect, CONNECT_BYTES), None, context.now_us);
        command.phase = CommandPhase::Waiting;
        command.buffer = buffer;
        let reply = CommandRef { handle: self.execution.handle, slot: self.execution.slots.insert(command) };
        for &handle in looks {
            context.shared.post(handle, Message::Look { handle, reply });
        }
        // The control thread keeps the time of it.
        context.shared.wake_control();
    }

    /// The Connect that waits, if one does.
    fn waiting_connect(&self) -> Option<u32> {
        let waits = |command: &Command| matches!(command.task, Task::Connect) && command.phase == CommandPhase::Waiting;
        self.execution.slots.iter().find(|(_, command)| waits(command)).map(|(slot, _)| slot)
    }

    /// Reports to the registry, once, that nothing of the queue can reach the medium any more, when
    /// that is so.
    pub(crate) fn report_closed(&mut self, link: &Link, context: &mut ReactorContext<'_>) {
        // What an Admin Queue has at devices are flushes.
        let at_device = self.execution.devices.at_device() > 0 && !self.execution.queue.is_admin();
        if !link.has_ended() || at_device || self.execution.drive.awaits_end() {
            return;
        }
        if !std::mem::replace(&mut self.reported_closed, true) {
            context.shared.closed(self.execution.handle);
        }
    }

    /// Whether the host's next queues have to wait for commands of this one.
    pub(crate) fn drains(&self) -> bool {
        !self.reported_closed
    }

    /// The devices that have commands which change something, once nothing else is left of the
    /// queue; `None` if the drive's thread has something, too.
    pub(crate) fn devices_being_changed(&self) -> Option<BTreeSet<DeviceId>> {
        if self.execution.drive.awaits_end() {
            return None;
        }
        let tasks = self.execution.slots.iter().filter_map(|(_, command)| command.task.io());
        Some(tasks.filter_map(IoTask::changed_device).collect())
    }

    /// Whether copies go on in the next turn.
    pub(crate) fn has_pending_copies(&self) -> bool {
        !self.execution.copies.is_empty()
    }

    /// Whether something goes on as soon as there is room or another turn.
    pub(crate) fn waits_for_turn(&self) -> bool {
        self.execution.buffers.waiting() > 0 || self.has_pending_copies()
    }

    /// Whether nothing of it is left anywhere.
    pub(crate) fn is_finished(&self) -> bool {
        self.execution.devices.at_device() == 0 && !self.execution.drive.awaits_end()
    }

    // ---- what others do for a command, and what they want of it

    /// The drive's thread has nothing left of the connection, which has ended.
    pub(crate) fn on_drive_done(&mut self, link: &Link, context: &mut ReactorContext<'_>) {
        self.execution.drive.note_end();
        self.report_closed(link, context);
    }

    /// An Abort for a command of this queue.
    pub(crate) fn on_abort(&mut self, request: AbortRequest, link: &mut Link, context: &mut ReactorContext<'_>) {
        let AbortRequest { cid, reply: to } = request;
        let aborted = waiters::abort(&mut self.execution, cid, link, context);
        context.shared.post(to.handle, Message::Reply { to, reply: CommandReply::Aborted(aborted) });
    }

    /// Cancels what is at devices of a namespace, or of all for [`Nsid::ALL`]. What has begun there
    /// may end as if it had not been cancelled.
    pub(crate) fn cancel(&mut self, nsid: Nsid, link: &mut Link, context: &mut ReactorContext<'_>) {
        let is_meant = |command: &Command| {
            command.phase == CommandPhase::AtDevice && (nsid == Nsid::ALL || command.concerns(nsid))
        };
        let slots: Vec<_> =
            self.execution.slots.iter().filter(|(_, command)| is_meant(command)).map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(completion) = self.execution.devices.cancel(slot, context) {
                self.on_device(completion, link, context);
            }
        }
    }

    /// Notifies waiters that none of the commands that they wait for is left.
    pub(crate) fn notify_waiters(&mut self, context: &ReactorContext<'_>) {
        if !self.waiters.is_empty() && !self.execution.drive.awaits_end() {
            self.waiters.notify(&self.execution.slots, context.shared);
        }
    }
}
