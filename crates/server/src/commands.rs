//! The command side of a connection: the queue, the commands under way, their buffers, and who
//! waits for them.
//!
//! Knows nothing of how bytes move: it asks its [`Link`]. What a command means is `ebof_fabrics`';
//! the devices are reached through [`ReactorContext`]. The work itself is in
//! `commands/execute.rs` and the files beside it.

mod closing;
pub(crate) mod command;
mod connect;
mod copy;
mod copy_steps;
mod drive_commands;
mod drive_requests;
pub(crate) mod execute;
mod fused;
mod protection;
mod resident;
mod rings;
mod slots;
mod submit;

use std::collections::VecDeque;
use std::sync::Arc;

use ebof_backend::Buffer;
use ebof_fabrics::{Handle, Notice, Queue};
use ebof_nvme::{Cid, Cqe, Nsid, Status};

use crate::commands::command::{AbortRequest, Command, Phase, Waiter, Work};
use crate::commands::drive_requests::DriveRequests;
use crate::commands::slots::Slots;
use crate::link::Link;
use crate::observe::stats::{Kind, QueueStats};
use crate::ports::port::PortState;
use crate::shared::buffer::Pool;
use crate::shared::mailbox::{CommandRef, Message};
use crate::shared::reactor_context::ReactorContext;
use crate::shared::share::BufferUse;
use crate::shared::shares::{HeldCommands, KnownLane};

/// The buffer of the first half of a Compare and Write: two blocks.
const HALF_BYTES: usize = 8 << 10;

/// The commands of one connection.
pub(crate) struct Commands {
    pub(crate) handle: Handle,
    /// The port that the host has reached.
    pub(crate) port: Arc<PortState>,
    pub(crate) queue: Queue,
    pub(crate) slots: Slots<Command>,
    /// Commands that wait for a buffer, in order of arrival.
    pub(crate) awaiting_buffer: VecDeque<u32>,
    /// Copies that go on in the next turn.
    pub(crate) pending_copies: VecDeque<u32>,
    /// Commands that wait for their function's share of the drive.
    pub(crate) held: HeldCommands,
    /// By which its commands reach a drive that functions share.
    pub(crate) lane: KnownLane,
    pub(crate) at_device: usize,
    pub(crate) drive_requests: DriveRequests,
    /// The connection has ended, and the drive's thread has not said yet that it is done with what
    /// it was asked before.
    pub(crate) awaits_drive: bool,
    /// The drive was asked to remember the controller. Until it has done that the controller stays,
    /// as one that drains: there are no more of them, however long the drive's thread takes.
    pub(crate) asked_for_cntlid: bool,
    /// The registry knows that nothing of the queue can reach the medium any more.
    pub(crate) reported_closed: bool,
    /// The largest in-capsule data of a command, bytes.
    pub(crate) in_capsule_bytes: u32,
    pub(crate) buffers: BufferUse,
    pub(crate) stats: Vec<(Nsid, Arc<QueueStats>)>,
    /// Commands that were completed at once in this turn: their place in `stats`, and how many.
    /// Their latency is known when their completions are sent.
    pub(crate) untimed: Vec<(usize, Kind, u32)>,
    /// The name under which the host is counted.
    pub(crate) host_label: String,
    /// Resets that wait until nothing of this connection is left at a device.
    pub(crate) waiting_resets: Vec<CommandRef>,
    /// Waiters until some of the commands cannot change the medium any more.
    pub(crate) waiters: Vec<Waiter>,
}

impl Commands {
    pub(crate) fn new(handle: Handle, port: Arc<PortState>) -> Self {
        let in_capsule_bytes = PortState::in_capsule_bytes(port.config.in_capsule_data_bytes);
        Self {
            handle,
            port,
            queue: Queue::new(),
            slots: Slots::new(1),
            awaiting_buffer: VecDeque::new(),
            pending_copies: VecDeque::new(),
            held: HeldCommands::default(),
            lane: KnownLane::unknown(),
            at_device: 0,
            drive_requests: DriveRequests::default(),
            awaits_drive: false,
            asked_for_cntlid: false,
            reported_closed: false,
            in_capsule_bytes,
            buffers: BufferUse::default(),
            stats: Vec::new(),
            untimed: Vec::new(),
            host_label: String::new(),
            waiting_resets: Vec::new(),
            waiters: Vec::new(),
        }
    }

    /// Whether copies go on in the next turn.
    pub(crate) fn has_pending_copies(&self) -> bool {
        !self.pending_copies.is_empty()
    }

    /// Whether something goes on as soon as there is room or another turn.
    pub(crate) fn waits_for_turn(&self) -> bool {
        !self.awaiting_buffer.is_empty() || self.has_pending_copies()
    }

    /// Whether nothing of it is left anywhere.
    pub(crate) fn is_finished(&self) -> bool {
        self.at_device == 0 && !self.awaits_drive
    }

    /// Goes on with what waited for a buffer, or for another turn.
    pub(crate) fn resume(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        self.resume_awaiting_buffer(link, context);
        if self.has_pending_copies() {
            self.continue_copies(link, context);
        }
    }

    /// Whether another command can be taken: a slot, a buffer for its in-capsule data, and room for
    /// its completion.
    pub(crate) fn can_take(&self, link: &Link, context: &ReactorContext<'_>) -> bool {
        let in_capsule = self.in_capsule_bytes as usize;
        // What a first half of a pair holds must not keep its second away.
        let half = if self.queue.awaits_second() { HALF_BYTES } else { 0 };
        let limit = context.shared.settings.connection_buffer_bytes + half;
        // While data of the host are awaited everything is read on: they come on the same stream. A
        // host that overruns its queue meanwhile is refused by the queue.
        let may_fetch = self.queue.may_fetch() && !self.slots.is_full() && self.held.has_room();
        let has_slot = may_fetch || link.awaits_data();
        let more = 2 * in_capsule;
        let buffers = self.buffers.own() + more <= limit
            && context.pool.has_room(more)
            && self.buffers.has_share(more, context.pool.host_share_bytes());
        link.has_completion_room() && has_slot && buffers && link.has_share()
    }

    /// An Abort for a command of this queue.
    pub(crate) fn on_abort(&mut self, request: AbortRequest, link: &mut Link, context: &mut ReactorContext<'_>) {
        let found = self.slots.iter().find(|(_, command)| command.cid == request.cid).map(|(slot, c)| (slot, c.phase));
        let aborted = match found {
            Some((slot, Phase::AwaitingBuffer | Phase::Receiving | Phase::Waiting | Phase::Held)) => {
                self.stop(slot, Status::ABORT_REQUESTED, link, context);
                true
            }
            Some((slot, Phase::AtDevice)) => {
                match self.slots.get(slot).map(|command| &command.work) {
                    // There may be pieces that are not at the device yet.
                    Some(Work::Copy(_)) => self.stop(slot, Status::ABORT_REQUESTED, link, context),
                    _ => _ = context.io.cancel(context.tag(self.handle, slot)),
                }
                false
            }
            Some((slot, Phase::Elsewhere)) => self.withdraw(slot, Status::ABORT_REQUESTED, link, context),
            None => false,
        };
        context.shared.post(request.reply.handle, Message::AbortAnswer { reply: request.reply, aborted });
    }

    /// Delivers a notice of the registry to the queue.
    pub(crate) fn on_notice(&mut self, notice: Notice, link: &mut Link, context: &mut ReactorContext<'_>) {
        if let Notice::Connect = notice {
            if let Some(slot) = self.held_connect() {
                self.parameters_complete(slot, link, context);
            }
            return;
        }
        match self.queue.notify(notice, context.now_ms) {
            Some(cqe) => link.respond(&cqe, context),
            // There may be an event to tell: it is asked for at the flush.
            None => link.mark_dirty(context),
        }
    }

    /// Completes the Asynchronous Event Requests for which there is something to tell.
    pub(crate) fn send_events(&mut self, link: &mut Link) {
        if self.queue.is_admin() {
            while let Some(cqe) = self.queue.poll_event() {
                link.push_response(&cqe);
            }
        }
    }

    /// Forgets every command that is not at a device: the connection ends. What the drive's thread
    /// has not begun will not be done.
    pub(crate) fn release(&mut self, context: &mut ReactorContext<'_>) {
        let asked_for_cntlid = std::mem::take(&mut self.asked_for_cntlid);
        if self.drive_requests.withdraw_all() || asked_for_cntlid {
            self.await_drive(context);
        }
        self.awaiting_buffer.clear();
        self.pending_copies.clear();
        let idle: Vec<u32> =
            self.slots.iter().filter(|(_, command)| command.phase != Phase::AtDevice).map(|(slot, _)| slot).collect();
        for slot in idle {
            self.forget(slot, context);
        }
    }

    /// Drops one command without an answer: its connection is gone.
    pub(crate) fn forget(&mut self, slot: u32, context: &mut ReactorContext<'_>) {
        let held = self.withdraw_held(slot);
        if let Some(command) = self.slots.remove(slot) {
            self.queue.abandon(command.executing);
            if let Some(buffer) = command.buffer.or(held) {
                self.give_buffer(buffer, context);
            }
        }
    }

    /// A buffer for a command. Those that wait for the host or for the socket leave room for
    /// in-capsule data: the stream that brings what they wait for must go on.
    pub(crate) fn take_buffer(
        &mut self,
        bytes: usize,
        in_capsule: bool,
        context: &mut ReactorContext<'_>,
    ) -> Option<Buffer> {
        let reserve = if in_capsule { 0 } else { 2 * self.in_capsule_bytes as usize };
        let more = Pool::size_of(bytes) + reserve;
        // One command may always have what it needs, however small the limit was set.
        let own = self.buffers.own();
        if own > 0 && own + more > context.shared.settings.connection_buffer_bytes {
            return None;
        }
        if !self.buffers.has_share(more, context.pool.host_share_bytes()) {
            return None;
        }
        let buffer = if in_capsule { context.pool.take(bytes) } else { context.pool.take_leaving_reserve(bytes) }?;
        self.buffers.add(buffer.capacity());
        Some(buffer)
    }

    /// Sends the data of a read and its completion.
    pub(crate) fn send_read(
        &mut self,
        cid: Cid,
        buffer: Buffer,
        length: u32,
        cqe: &Cqe,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        // A copied payload leaves the buffer at once; the others are given back by `Link::flush`.
        let before = context.pool.outstanding_bytes();
        link.send_buffer(cid, buffer, length, cqe, context);
        self.buffers.give(before - context.pool.outstanding_bytes());
    }

    pub(crate) fn give_buffer(&mut self, buffer: Buffer, context: &mut ReactorContext<'_>) {
        self.buffers.give(buffer.capacity());
        context.pool.put(buffer);
    }
}
