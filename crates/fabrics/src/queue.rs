//! One queue of a controller: takes commands in, gives completions out, and knows what is
//! outstanding.
//!
//! What a command means is decided elsewhere (`admin`, `io`, `connect`); here it is made sure that
//! every command completes once, with an entry in the error log if it failed. Where the rings of
//! the Submission and Completion Queue stand is the matter of the link that brings commands and
//! takes completions: SQHD, SQID and phase tag of a completion are zero here.

mod answer;
mod fused;
pub(crate) mod gate;
mod live;
mod role;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use ebof_authentication::{Computed, Entropy};
use ebof_drive::{Answer, Refusal};
use ebof_nvme::command::Fuse;
use ebof_nvme::opcode::{FABRICS, admin as admin_opcode, fabrics};
use ebof_nvme::property::{Csts, offset};
use ebof_nvme::{Cid, Cqe, Nqn, Nsid, QueueId, Sqe, Status};

pub use crate::admin::REGISTER_WRITE;
use crate::admin::memory;
use crate::association::{Association, Counters};
use crate::connect::authentication::Authenticator;
use crate::connect::{SubmissionQueue, Tolerated};
use crate::controller::Controller;
use crate::model::Subsystem;
use crate::notice::Notice;
use crate::task::executing::{Executing, Outstanding};
use crate::task::outcome::{Decision, Fault, Outcome, byte};
use crate::task::step::Step;
use crate::task::{Authenticate, IoTask, Task};
use crate::{admin, connect, io};
use fused::{FusedPart, FusedPlace, Pairs, with_unpaired};
use live::FailedCommand;
pub(crate) use live::Live;
pub(crate) use role::Role;

/// Commands of a host that has still to prove who it is: it sends one after the other.
const GATED_COMMANDS_MAX: usize = 4;

/// The queue of one connection, owned by the thread that serves it.
#[derive(Debug)]
pub struct Queue {
    outstanding: Outstanding,
    /// Commands that may be outstanding once the gate is open.
    entries: usize,
    /// Commands that are under way at a time, where more wait in the host's memory.
    fetched_max: usize,
    closing: bool,
    /// Fused commands, where it is an I/O queue.
    pairs: Pairs,
    live: Option<Live>,
}

/// A command of an Admin Queue has completed without an error.
#[inline(never)]
fn completed(controller: &mut Controller, executing: &Executing) {
    aborted(controller, executing);
    quiesced(controller, executing);
    // A queue in the host's memory that was created exists.
    if executing.opcode() == admin_opcode::CREATE_IO_SQ {
        controller.rings.created(memory::queue_id(&executing.sqe()));
    }
}

/// An Abort command is over.
fn aborted(controller: &mut Controller, executing: &Executing) {
    if executing.opcode() == admin_opcode::ABORT {
        // `Queue::issue` counts it, and each of its tickets comes back.
        controller.aborts = controller.aborts.checked_sub(1).expect("an Abort command that is over was under way");
    }
}

/// What a write of CC had to wait for is done.
fn quiesced(controller: &mut Controller, executing: &Executing) {
    if executing.opcode() == FABRICS && executing.fctype() == fabrics::PROPERTY_SET {
        controller.registers.quiesced();
    }
}

impl Queue {
    /// The queue of a new connection: until Connect has succeeded every other command is a Command
    /// Sequence Error.
    #[must_use]
    pub fn new() -> Self {
        Self {
            outstanding: Outstanding::new(1),
            entries: 1,
            fetched_max: usize::MAX,
            closing: false,
            pairs: Pairs::default(),
            live: None,
        }
    }

    /// Takes a command. Never fails: what cannot be executed is completed with the status that says
    /// so.
    pub fn submit(&mut self, sqe: &Sqe, now_ms: u64) -> Step {
        self.touch(now_ms);
        if sqe.fuse() != Fuse::Normal && self.io_subsystem().is_some() || self.pairs.is_open() {
            return self.submit_fused(sqe);
        }
        self.submit_one(sqe)
    }

    /// Takes a write of CC, which is a register where queues are in the host's memory: as a
    /// Property Set command with an identifier that no command of a host has ([`REGISTER_WRITE`]).
    /// It needs no room: whatever a host has outstanding, it can reset its controller. The last one
    /// has to be through. Its completion is for the link.
    ///
    /// # Panics
    /// The queue is no Admin Queue: a fault of the caller.
    pub fn write_cc(&mut self, value: u32, now_ms: u64) -> Step {
        self.touch(now_ms);
        let sqe = admin::register_write(offset::CC, value);
        if !self.outstanding.add_beyond(REGISTER_WRITE) {
            return Step::Complete(
                self.respond_failed(&FailedCommand::of_command(&sqe), Fault::new(Status::CID_CONFLICT)),
            );
        }
        self.begin(&sqe, |live| match live {
            Some(Live { role: Role::Admin(controller), .. }) => admin::set_property(controller, &sqe),
            _ => unreachable!("registers are an Admin Queue's"),
        })
    }

    /// Whether another command may be fetched, where commands wait in the host's memory until then:
    /// as many as the Submission Queue has entries are executed at a time. The host cannot overrun
    /// such a queue, and no command of it is refused for want of room.
    #[must_use]
    #[inline]
    pub fn may_fetch(&self) -> bool {
        self.outstanding.count() < self.fetched_max || self.fetches_beyond()
    }

    #[cold]
    fn fetches_beyond(&self) -> bool {
        match &self.live {
            // Events that are waited for are no work.
            Some(Live { role: Role::Admin(controller), .. }) => {
                self.outstanding.count() - controller.events.waiting() < self.fetched_max
            }
            _ => false,
        }
    }

    /// CSTS of the controller; `None` unless this is its Admin Queue.
    #[must_use]
    pub fn csts(&self) -> Option<Csts> {
        match &self.live {
            Some(Live { role: Role::Admin(controller), .. }) => Some(controller.registers.csts()),
            _ => None,
        }
    }

    /// Takes a command whose data pointer the link understands only so far that it is wrong: it
    /// completes with `status`.
    #[cold]
    pub fn refuse(&mut self, sqe: &Sqe, status: Status, now_ms: u64) -> Step {
        self.touch(now_ms);
        let fault = Fault::of_data_pointer(sqe, status);
        if self.io_subsystem().is_some() {
            let unpaired = self.pairs.refuse(sqe);
            let refused = self.accept(sqe, |_| Err(fault));
            self.pairs.note(sqe, false);
            return with_unpaired(unpaired, refused);
        }
        self.accept(sqe, |live| match live {
            // Whatever its data pointer says, it comes too early.
            None => connect::submit(sqe).and(Err(fault)),
            Some(_) => Err(fault),
        })
    }

    /// Takes a command that stands for itself.
    fn submit_one(&mut self, sqe: &Sqe) -> Step {
        self.accept(sqe, |live| match live {
            // By itself, so that a command for data is found by one comparison.
            Some(Live { role: Role::Io(subsystem), association, .. }) => io::submit(association, subsystem, sqe),
            Some(Live { role, association, .. }) => role.submit(association, sqe),
            None => connect::submit(sqe),
        })
    }

    /// Takes a command of an I/O queue that is fused, or follows the first of a pair.
    #[cold]
    fn submit_fused(&mut self, sqe: &Sqe) -> Step {
        let FusedPlace { part, unpaired, unpaired_unless_half } = self.pairs.place(sqe);
        let step = match part {
            FusedPart::Single => self.submit_one(sqe),
            FusedPart::Half(half) => self.accept(sqe, |live| match live {
                Some(Live { role: Role::Io(subsystem), association, .. }) => {
                    io::submit_half(association, subsystem, sqe, half)
                }
                _ => unreachable!("only I/O queues have pairs, and they stay what they are"),
            }),
            FusedPart::Refused(fault) => self.accept(sqe, |_| Err(fault)),
        };
        let is_half = fused::is_half(&step);
        self.pairs.note(sqe, is_half);
        with_unpaired(unpaired.or(unpaired_unless_half.filter(|_| !is_half)), step)
    }

    /// Whether the first half of a pair waits for its second.
    #[must_use]
    pub fn awaits_second(&self) -> bool {
        self.pairs.awaits_second()
    }

    /// Takes a command if there is room for it, and has `decide` say what becomes of it.
    #[inline]
    fn accept(&mut self, sqe: &Sqe, decide: impl FnOnce(Option<&mut Live>) -> Outcome) -> Step {
        if self.outstanding.add(sqe.cid()) { self.begin(sqe, decide) } else { self.accept_instead(sqe) }
    }

    /// Has `decide` say what becomes of a command that is outstanding.
    #[inline]
    fn begin(&mut self, sqe: &Sqe, decide: impl FnOnce(Option<&mut Live>) -> Outcome) -> Step {
        if self.closing {
            let fault = Fault::transient(Status::ABORTED_SQ_DELETION);
            return Step::Complete(self.retire_failed(&FailedCommand::of_command(sqe), fault));
        }
        match decide(self.live.as_mut()) {
            Ok(Decision::Go(Task::Io(IoTask::Transfer(transfer)), length)) => {
                let executing = self.outstanding.ticket(sqe, length);
                self.outstanding.give_out();
                Step::Execute(executing, Task::Io(IoTask::Transfer(transfer)))
            }
            outcome => {
                let executing = self.outstanding.ticket(sqe, 0);
                self.issue(executing, outcome)
            }
        }
    }

    /// The queue is full, or has a command of that identifier: takes the new one where an
    /// Asynchronous Event Request gives way to it.
    #[cold]
    fn accept_instead(&mut self, sqe: &Sqe) -> Step {
        // A host that has more outstanding than there is room for overran the queue that it asked
        // for.
        let is_full = self.outstanding.is_full();
        if self.gives_way(sqe.cid()) && self.outstanding.add(sqe.cid()) {
            return Step::Withdrawn(Box::new(self.begin(sqe, |live| match live {
                Some(Live { role: Role::Admin(controller), .. }) => admin::submit(controller, sqe),
                // Other queues have no requests that wait.
                _ => Err(Fault::new(Status::INTERNAL_ERROR)),
            })));
        }
        let status = if is_full { Status::COMMAND_SEQUENCE_ERROR } else { Status::CID_CONFLICT };
        Step::Complete(self.respond_failed(&FailedCommand::of_command(sqe), Fault::new(status)))
    }

    /// Ends the Asynchronous Event Request `cid` without a completion; whether it was one that
    /// waited.
    ///
    /// Deviation: SPDK, all versions so far, at detach, completes its requests for itself and uses
    /// their identifiers for the commands that shut the controller down. Refused as conflicts, no
    /// SPDK host would leave with a clean shutdown.
    #[cold]
    fn gives_way(&mut self, cid: Cid) -> bool {
        if !self.controller_mut().is_some_and(|controller| controller.events.forget(cid)) {
            return false;
        }
        self.outstanding.remove(cid);
        true
    }

    /// Goes on with a command whose parameter data ([`Task::Receive`]) has come.
    pub fn resume(&mut self, executing: Executing, data: &[u8], now_ms: u64) -> Step {
        self.touch(now_ms);
        if executing.opcode() == FABRICS {
            // Connect has another task.
            let message = Authenticate::Message(data.to_vec());
            return self.conclude(executing, Ok(Decision::Go(Task::Authenticate(Box::new(message)), 0)));
        }
        let outcome = match &mut self.live {
            None | Some(Live { role: Role::Gated(_), .. }) => {
                unreachable!("nothing else that passes the gate has parameter data, and no gate shuts again")
            }
            Some(Live { role: Role::Io(subsystem), association, .. }) => {
                io::resume(association, subsystem, &executing, data)
            }
            Some(Live { role: Role::Admin(controller), .. }) => admin::resume(controller, &executing, data),
        };
        self.conclude(executing, outcome)
    }

    /// Goes on with a [`Task::Drive`] that the drive has answered.
    pub fn answer(&mut self, executing: Executing, answer: Result<Answer, Refusal>) -> Step {
        let outcome = answer::of_drive(&executing, answer);
        self.conclude(executing, outcome)
    }

    /// Goes on with a [`Task::LbaStatus`]: the ranges (first block, blocks) that were found, and
    /// whether all of what was asked for was looked at. What there is no room for is left out, and
    /// the host told.
    pub fn lba_status(&mut self, executing: Executing, ranges: &[(u64, u64)], complete: bool) -> Step {
        let outcome = answer::of_lba_status(&executing, ranges, complete);
        self.conclude(executing, outcome)
    }

    /// Goes on with [`crate::Authenticate::Message`].
    pub fn authenticate(&mut self, executing: Executing, message: &[u8], entropy: &Entropy) -> Step {
        let now_ms = self.live.as_ref().map_or(0, |live| live.last_command_ms);
        self.prove(executing, |authenticator| authenticator.receive(message, entropy, now_ms))
    }

    /// Goes on with [`crate::Authenticate::Compute`].
    pub fn computed(&mut self, executing: Executing, computed: Computed) -> Step {
        self.prove(executing, |authenticator| authenticator.computed(computed))
    }

    fn prove(&mut self, executing: Executing, decide: impl FnOnce(&mut Authenticator) -> Outcome) -> Step {
        // Nobody asked the host for a proof.
        let outcome = self.authenticator_mut().map_or(Err(Fault::field(byte::NSID)), decide);
        self.conclude(executing, outcome)
    }

    /// Completes a command without a result.
    #[must_use]
    pub fn complete(&mut self, executing: Executing, status: Status) -> Cqe {
        self.complete_with(executing, status, 0)
    }

    /// Completes a command; `result` is dwords 0 and 1 of the completion.
    #[must_use]
    pub fn complete_with(&mut self, executing: Executing, status: Status, result: u64) -> Cqe {
        if !status.is_success() {
            return self.fail(executing, Failure { status, result, lba: None });
        }
        self.outstanding.take_back(&executing);
        // Nothing of this concerns a command for data.
        if let Some(controller) = self.controller_mut() {
            completed(controller, &executing);
        }
        self.succeed(&executing, result)
    }

    /// Completes a command that has failed.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "the ticket is used up")]
    pub fn fail(&mut self, executing: Executing, failure: Failure) -> Cqe {
        let Failure { status, result, lba } = failure;
        self.take(&executing);
        if let Some(controller) = self.controller_mut() {
            quiesced(controller, &executing);
        }
        self.not_created(&executing);
        self.pairs.failed(executing.cid());
        let subject =
            FailedCommand { lba: lba.unwrap_or(executing.starting_lba()), ..FailedCommand::of_ticket(&executing) };
        self.retire_failed(&subject, Fault::transient(status).with_result(result))
    }

    /// A queue in the host's memory that could not be created does not exist.
    #[inline]
    fn not_created(&mut self, executing: &Executing) {
        if matches!(executing.opcode(), admin_opcode::CREATE_IO_CQ | admin_opcode::CREATE_IO_SQ)
            && let Some(controller) = self.controller_mut()
        {
            controller.rings.forget(executing.opcode(), memory::queue_id(&executing.sqe()));
        }
    }

    /// Forgets a command without a completion, because the connection ends.
    #[expect(clippy::needless_pass_by_value, reason = "the ticket is used up")]
    pub fn abandon(&mut self, executing: Executing) {
        self.take(&executing);
        self.outstanding.remove(executing.cid());
    }

    /// Takes a notice from the registry; the completion, if there is one, is an event. Ask
    /// [`poll_event`](Self::poll_event) for more.
    #[must_use]
    pub fn notify(&mut self, notice: Notice, _now_ms: u64) -> Option<Cqe> {
        let role = self.live.as_mut().map(|live| &mut live.role);
        match (notice, role) {
            (Notice::Close(_), _) => self.closing = true,
            (Notice::Subsystem(next), Some(Role::Io(subsystem))) => *subsystem = next,
            (Notice::Subsystem(next), Some(Role::Admin(controller))) => controller.replace_subsystem(next),
            (Notice::Event(event), Some(Role::Admin(controller))) => {
                controller.events.raise(event, controller.features.events);
            }
            (Notice::Reservation(nsid, event), Some(Role::Admin(controller))) => controller.on_reservation(nsid, event),
            (Notice::Discovery, Some(Role::Admin(controller))) => controller.discovery_changed(),
            (Notice::ControllerReset(instance), Some(Role::Admin(controller))) => controller.reset_done(instance),
            (Notice::Secrets(secrets), _) => {
                // They count from the host's next proof on.
                if let Some(authenticator) = self.authenticator_mut() {
                    authenticator.replace(&secrets);
                }
            }
            // What happens before the host has proven who it is, is nothing to it: behind the gate
            // it begins with what there is then.
            _ => {}
        }
        self.poll_event()
    }

    /// The next completion that no command's own step brings: an event, or an Asynchronous Event
    /// Request that was aborted. To be called until `None` after every turn in which the Admin
    /// Queue took or completed a command or a notice.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Cqe> {
        let (cid, status, dw0) = self.controller_mut()?.events.poll()?;
        let opcode = admin_opcode::ASYNC_EVENT_REQUEST;
        Some(match status.ok() {
            Ok(()) => self.retire(cid, opcode, 0, dw0.into()),
            Err(status) => {
                let subject = FailedCommand { cid, opcode, nsid: Nsid::NONE, lba: 0 };
                self.retire_failed(&subject, Fault::transient(status))
            }
        })
    }

    /// Whether the command `cid` is outstanding.
    #[must_use]
    pub fn is_outstanding(&self, cid: Cid) -> bool {
        self.outstanding.contains(cid)
    }

    /// Commands taken and not completed, held Asynchronous Event Requests included: at most
    /// [`commands_max`](Self::commands_max).
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.count()
    }

    /// Tickets given out and not given back.
    #[must_use]
    pub fn executing(&self) -> usize {
        self.outstanding.executing()
    }

    /// Commands that may be outstanding: as many as the Submission Queue has entries, and where it
    /// is in the host's memory events that are waited for and a register that is written; one
    /// before Connect. More are refused.
    #[must_use]
    pub fn commands_max(&self) -> usize {
        self.outstanding.max()
    }

    /// What Connect agreed on about the Submission Queue; `None` before. For the link.
    #[must_use]
    pub fn submission_queue(&self) -> Option<SubmissionQueue> {
        self.live.as_ref().map(|live| live.submission_queue)
    }

    /// Whether Connect has succeeded.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.live.is_some()
    }

    /// Whether Connect has succeeded and the gate behind it is open: whether the host is who it
    /// says, as far as its subsystem demands a proof.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.live.as_ref().is_some_and(|live| !matches!(live.role, Role::Gated(_)))
    }

    /// Whether the host still has to prove who it is: not if it has, and comes again over TLS.
    #[must_use]
    pub fn is_unproven(&self) -> bool {
        !self.is_open() && self.live().is_some_and(|live| !live.has_generated())
    }

    /// Whether the association has ended, or the host disconnected the queue: close the connection.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Which queue it is; `None` before Connect.
    #[must_use]
    pub fn id(&self) -> Option<QueueId> {
        self.live.as_ref().map(|live| live.id)
    }

    /// Whether it is an Admin Queue.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.id.is_admin())
    }

    /// The association, with names for labels; `None` before Connect.
    #[must_use]
    pub fn association(&self) -> Option<&Arc<Association>> {
        self.live.as_ref().map(|live| &live.association)
    }

    /// The queue's counters; `None` before Connect.
    #[must_use]
    pub fn counters(&self) -> Option<&Arc<Counters>> {
        self.live.as_ref().map(|live| &live.counters)
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> Option<&Nqn> {
        self.association().map(|association| &association.host)
    }

    /// The subsystem.
    #[must_use]
    pub fn subsystem(&self) -> Option<&Nqn> {
        self.association().map(|association| &association.subsystem)
    }

    /// What its Connect was accepted in spite of.
    #[must_use]
    pub fn tolerated(&self) -> Option<Tolerated> {
        self.live.as_ref()?.tolerated
    }

    pub(crate) fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    /// The end of authentication, if the host has to prove who it is.
    pub(crate) fn authenticator_mut(&mut self) -> Option<&mut Authenticator> {
        self.live.as_mut()?.authenticator.as_deref_mut()
    }

    pub(crate) fn io_subsystem(&self) -> Option<&Arc<Subsystem>> {
        match &self.live {
            Some(Live { role: Role::Io(subsystem), .. }) => Some(subsystem),
            _ => None,
        }
    }

    pub(crate) fn controller_mut(&mut self) -> Option<&mut Controller> {
        match &mut self.live {
            Some(Live { role: Role::Admin(controller), .. }) => Some(controller),
            _ => None,
        }
    }

    /// Connect has succeeded: the queue becomes what was asked for, and the Connect command
    /// completes.
    pub(crate) fn install(&mut self, executing: &Executing, live: Live, result: u64) -> Step {
        self.take(executing);
        self.go_live(live);
        Step::Complete(self.succeed(executing, result))
    }

    /// The queue is a controller's from now on, behind its gate.
    pub(crate) fn go_live(&mut self, live: Live) {
        let entries = usize::from(live.submission_queue.entries);
        // An entry of a queue in memory is free as soon as the link has its command: what bounds
        // them is what is fetched.
        let held = if live.association.is_memory_based() {
            self.fetched_max = entries;
            usize::from(live.association.limits.async_events) + 1
        } else {
            0
        };
        self.entries = entries + held;
        let is_gated = live.is_due();
        self.outstanding.set_max(if is_gated { self.entries.min(GATED_COMMANDS_MAX) } else { self.entries });
        self.live = Some(live);
    }

    /// The gate opens: the queue executes commands from now on, and its host is shown its subsystem
    /// as `shown`.
    pub(crate) fn open(&mut self, shown: Option<Arc<Subsystem>>) {
        self.outstanding.set_max(self.entries);
        self.live = self.live.take().map(gate::opened);
        match (shown, self.live.as_mut().map(|live| &mut live.role)) {
            (Some(shown), Some(Role::Admin(controller))) => controller.begin_with(shown),
            (Some(shown), Some(Role::Io(subsystem))) => *subsystem = shown,
            _ => {}
        }
    }

    /// What the registry or the command's data made of a ticket.
    pub(crate) fn conclude(&mut self, executing: Executing, outcome: Outcome) -> Step {
        self.take(&executing);
        self.issue(executing, outcome)
    }

    fn touch(&mut self, now_ms: u64) {
        if let Some(live) = &mut self.live
            && live.last_command_ms != now_ms
        {
            if !live.id.is_admin() {
                live.counters.count_time(now_ms.saturating_sub(live.last_command_ms), self.outstanding.count() > 0);
            }
            live.last_command_ms = now_ms;
            live.counters.last_command_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Gives the ticket out, or ends the command.
    #[inline]
    fn issue(&mut self, executing: Executing, outcome: Outcome) -> Step {
        match outcome {
            Ok(Decision::Go(task, length)) => {
                let executing = executing.with_length(length);
                self.outstanding.give_out();
                if executing.opcode() == admin_opcode::ABORT
                    && let Some(controller) = self.controller_mut()
                {
                    controller.aborts += 1;
                }
                Step::Execute(executing, task)
            }
            Ok(Decision::Done(result)) => Step::Complete(self.succeed(&executing, result)),
            Ok(Decision::Disconnect) => {
                self.closing = true;
                Step::Disconnect(self.succeed(&executing, 0))
            }
            Ok(Decision::Held) => Step::Held,
            Err(fault) => Step::Complete(self.retire_failed(&FailedCommand::of_ticket(&executing), fault)),
        }
    }

    #[inline]
    fn succeed(&mut self, executing: &Executing, result: u64) -> Cqe {
        self.retire(executing.cid(), executing.opcode(), executing.length(), result)
    }

    /// Takes a ticket back.
    #[inline]
    fn take(&mut self, executing: &Executing) {
        self.outstanding.take_back(executing);
        if let Some(controller) = self.controller_mut() {
            aborted(controller, executing);
        }
    }

    /// The command is no longer outstanding: it has succeeded.
    #[inline]
    fn retire(&mut self, cid: Cid, opcode: u8, length: u32, result: u64) -> Cqe {
        self.outstanding.remove(cid);
        if let Some(live) = &self.live {
            live.count(opcode, length);
        }
        Cqe::new(cid, Status::SUCCESS).with_result(result)
    }

    /// The command is no longer outstanding: it has failed.
    #[cold]
    fn retire_failed(&mut self, subject: &FailedCommand, fault: Fault) -> Cqe {
        self.outstanding.remove(subject.cid);
        self.respond_failed(subject, fault)
    }

    #[cold]
    fn respond_failed(&self, subject: &FailedCommand, fault: Fault) -> Cqe {
        let status = self.live.as_ref().map_or(fault.status, |live| live.record(subject, fault));
        Cqe::new(subject.cid, status).with_result(fault.detail.result())
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a command has failed, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status that the host gets.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// The first block that something is wrong with, for the error log; the first of the command's
    /// where it is not known.
    pub lba: Option<u64>,
}
