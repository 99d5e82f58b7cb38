//! One NVMe/TCP connection: bytes from the socket into the transport core, commands into the queue, answers back.
//!
//! Owns the socket and the commands under way. What a command means is `ebof_fabrics`' and what bytes mean is
//! `ebof_tcp`'s; the devices are reached through [`Turn`]. The work itself is in `execute.rs`.

mod end;

use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use ebof_fabrics::{Handle, Notice, Queue};
use ebof_nvme::{Cid, Nsid, Status};
use ebof_tcp::controller::{Connection as Transport, Event};

use crate::command::{AbortRequest, Command, Phase, Waiter, Work};
use crate::mailbox::{Asker, Message};
use crate::outbox::{Flushed, Outbox};
use crate::port::PortState;
use crate::share::{BufferUse, Waiting};
use crate::slots::Slots;
use crate::stats::QueueStats;
use crate::turn::Turn;
use crate::zerocopy::Settling;

pub(crate) use end::End;

/// Bytes taken from one socket in one turn, so that a flood does not starve the others on the thread.
const READ_BUDGET: usize = 1 << 20;

/// A read of a socket has room for this much at least, whatever is left of the share: a system call for less is a waste.
const RECEIVE_MIN: usize = 8 << 10;

/// Data of at least this size are received straight into their buffer.
const DIRECT_MIN: usize = 8 << 10;

/// Bytes waiting to be sent beyond which no further command is taken.
const UNSENT_MAX: usize = 16 << 20;

/// The buffer of the first half of a Compare and Write: two blocks.
const HALF_BYTES: usize = 8 << 10;

/// How long the peer may take to close after it was told to go, milliseconds.
const CLOSING_MS: u64 = 2_000;

/// How long a peer may leave everything that we send unread, milliseconds.
pub(crate) const STALLED_MS: u64 = 30_000;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// ICReq and Connect are awaited until the deadline.
    Handshake { deadline_ms: u64 },
    /// Connected: a queue of a controller.
    Open,
    /// Takes no more commands, completes those that it has.
    Draining,
    /// Has been told to go; whatever comes is discarded until the peer closes or the deadline passes.
    Closing { deadline_ms: u64 },
    /// The socket is gone; commands at a device are awaited.
    Gone,
}

/// Data of a PDU that is being received: whose, where the next byte goes, and where what the command needs ends.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    slot: u32,
    at: usize,
    end: usize,
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) handle: Handle,
    pub(crate) socket: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) port: Arc<PortState>,
    pub(crate) transport: Transport,
    pub(crate) queue: Queue,
    pub(crate) commands: Slots<Command>,
    pub(crate) outbox: Outbox,
    /// Commands whose data come by R2T.
    pub(crate) awaiting: Vec<(Cid, u32)>,
    /// Commands that wait for a buffer, in order of arrival.
    pub(crate) parked: VecDeque<u32>,
    /// Copies that go on in the next turn.
    pub(crate) later: VecDeque<u32>,
    pub(crate) at_device: usize,
    /// The connection has ended, and the drive's thread has not said yet that it is done with what it was asked before.
    pub(crate) awaits_drive: bool,
    /// The drive was asked to remember the controller. Until it has done that the controller stays, as one that drains: there are no
    /// more of them, however long the drive's thread takes.
    pub(crate) took_seat: bool,
    /// The registry knows that nothing of the queue can reach the medium any more.
    pub(crate) told_closed: bool,
    /// The largest in-capsule data of a command, bytes.
    pub(crate) in_capsule_bytes: u32,
    pub(crate) buffers: BufferUse,
    /// Until it is a queue.
    pub(crate) waiting: Option<Waiting>,
    pub(crate) stats: Vec<(Nsid, Arc<QueueStats>)>,
    pub(crate) state: State,
    /// Resets that wait until nothing of this connection is left at a device.
    pub(crate) close_askers: Vec<Asker>,
    /// Who waits until some of the commands cannot change the medium any more.
    pub(crate) waiters: Vec<Waiter>,
    incoming: Option<Incoming>,
    /// The data of the last command follow in its capsule.
    data_announced: bool,
    /// Received bytes that cannot be taken yet, from `stashed_from` on: the queue is full, or there is no buffer, or the share
    /// of the turn is used up.
    stash: Vec<u8>,
    stashed_from: usize,
    blocked_since_ms: Option<u64>,
    /// Since when the peer has acknowledged nothing of what is sent without a copy.
    pub(crate) pinned_since_ms: Option<u64>,
    /// What it had acknowledged, in bytes, when that was last asked.
    pub(crate) acknowledged: u64,
    pub(crate) settling: Option<Settling>,
    /// When the host last sent anything: it may not keep data waiting for ever that it has announced.
    pub(crate) last_received_ms: u64,
    /// The deadline that the reactor has noted.
    pub(crate) armed_ms: Option<u64>,
    /// Whether it is on the reactor's list of connections to flush.
    pub(crate) dirty: bool,
    /// Bytes that may still be received, or asked for by reads, in the turn of this number. Below zero when a command was
    /// larger than its share: the next turns pay for it.
    credit: (u32, i64),
    /// Bytes charged that the reactor does not know of yet.
    charged: usize,
}

impl Connection {
    pub(crate) fn new(
        handle: Handle,
        socket: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        port: Arc<PortState>,
        deadline_ms: u64,
        waiting: Waiting,
    ) -> Self {
        let transport = Transport::new(port.transport_config());
        let in_capsule_bytes = PortState::in_capsule_bytes(port.config.in_capsule_data_bytes);
        Self {
            handle,
            socket,
            peer,
            local,
            port,
            transport,
            queue: Queue::new(),
            commands: Slots::new(1),
            outbox: Outbox::default(),
            awaiting: Vec::new(),
            parked: VecDeque::new(),
            later: VecDeque::new(),
            at_device: 0,
            awaits_drive: false,
            took_seat: false,
            told_closed: false,
            in_capsule_bytes,
            buffers: BufferUse::default(),
            waiting: Some(waiting),
            stats: Vec::new(),
            state: State::Handshake { deadline_ms },
            close_askers: Vec::new(),
            waiters: Vec::new(),
            incoming: None,
            data_announced: false,
            stash: Vec::new(),
            stashed_from: 0,
            blocked_since_ms: None,
            pinned_since_ms: None,
            acknowledged: 0,
            settling: None,
            last_received_ms: 0,
            armed_ms: None,
            dirty: false,
            credit: (0, 0),
            charged: 0,
        }
    }

    /// Has its share of the turn, once.
    fn take_share(&mut self, turn: &Turn<'_>) {
        let (number, credit) = self.credit;
        if number != turn.number {
            let share = i64::try_from(turn.share).unwrap_or(i64::MAX);
            self.credit = (turn.number, share.min(credit.saturating_add(share)));
        }
    }

    /// `bytes` were received, or will be sent.
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.charged += bytes;
        self.credit.1 = self.credit.1.saturating_sub_unsigned(bytes as u64);
    }

    /// What was charged since this was last asked, bytes.
    pub(crate) fn take_charged(&mut self) -> usize {
        std::mem::take(&mut self.charged)
    }

    /// Whether received commands wait for the next turn.
    pub(crate) fn share_is_used_up(&self) -> bool {
        self.credit.1 <= 0 && (self.is_stalled() || !self.later.is_empty())
    }

    /// Whether something is left of its share of the turn.
    pub(crate) fn has_share(&self) -> bool {
        self.credit.1 > 0
    }

    /// Takes what the socket holds, up to its share of the turn, and runs all of it. Returns how many bytes that were.
    pub(crate) fn on_readable(&mut self, turn: &mut Turn<'_>) -> Result<usize, End> {
        let mut scratch = std::mem::take(turn.scratch);
        let result = self.receive_all(&mut scratch, turn);
        *turn.scratch = scratch;
        result
    }

    fn receive_all(&mut self, scratch: &mut [u8], turn: &mut Turn<'_>) -> Result<usize, End> {
        let mut taken = 0;
        self.take_share(turn);
        while taken < READ_BUDGET && self.credit.1 > 0 && !self.is_stalled() {
            let limit = usize::try_from(self.credit.1).unwrap_or(usize::MAX).clamp(RECEIVE_MIN, READ_BUDGET);
            let received = match self.receive(limit, scratch) {
                Ok(Received { total: 0, .. }) => return Err(End::PeerClosed),
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            taken += received.total;
            self.charge(received.total);
            self.last_received_ms = turn.now_ms;
            let input = &scratch[..received.in_scratch];
            let left = self.feed(input, turn)?;
            self.stash.extend_from_slice(&input[input.len() - left..]);
            if received.total < received.room {
                break;
            }
        }
        Ok(taken)
    }

    /// One read of about `limit` bytes: into the buffer of the data under way where that pays, the rest into `scratch`.
    fn receive(&mut self, limit: usize, scratch: &mut [u8]) -> io::Result<Received> {
        let room = scratch.len().min(limit);
        let scratch = &mut scratch[..room];
        if matches!(self.state, State::Closing { .. }) {
            let total = (&self.socket).read(scratch)?;
            return Ok(Received { total, in_scratch: 0, room: scratch.len() });
        }
        let all_wanted = self.transport.data_wanted();
        let wanted = all_wanted.min(limit);
        if wanted >= DIRECT_MIN
            && let Some(incoming) = &mut self.incoming
            && incoming.at + wanted <= incoming.end
        {
            let buffer = self.commands.get_mut(incoming.slot).and_then(|command| command.buffer.as_mut());
            if let Some(place) = buffer.and_then(|b| b.as_mut_slice().get_mut(incoming.at..incoming.at + wanted)) {
                let behind = if wanted < all_wanted { 0 } else { scratch.len() };
                let scratch = &mut scratch[..behind];
                let room = place.len() + scratch.len();
                let mut parts = [IoSliceMut::new(place), IoSliceMut::new(scratch)];
                let total = (&self.socket).read_vectored(&mut parts)?;
                let direct = total.min(wanted);
                self.transport.data_received(&place[..direct]);
                incoming.at += direct;
                return Ok(Received { total, in_scratch: total - direct, room });
            }
        }
        let total = (&self.socket).read(scratch)?;
        Ok(Received { total, in_scratch: total, room: scratch.len() })
    }

    /// Takes up what was set aside when the queue was full or buffers were short.
    pub(crate) fn resume(&mut self, turn: &mut Turn<'_>) -> Result<(), End> {
        self.take_share(turn);
        self.unpark(turn)?;
        if !self.later.is_empty() {
            self.go_on_copying(turn);
        }
        if !self.stash.is_empty() && self.can_take(turn) {
            let mut stash = std::mem::take(&mut self.stash);
            let left = self.feed(&stash[self.stashed_from..], turn)?;
            self.stashed_from = if left > 0 { stash.len() - left } else { 0 };
            if left == 0 {
                // It keeps its memory: the next turn may need it again.
                stash.clear();
            }
            self.stash = stash;
        }
        Ok(())
    }

    /// Whether received bytes wait for room: then nothing more is read.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.stash.is_empty()
    }

    /// Whether another command can be taken: a slot, and a buffer for its in-capsule data.
    fn can_take(&self, turn: &Turn<'_>) -> bool {
        let in_capsule = self.in_capsule_bytes as usize;
        // What a first half of a pair holds must not keep its second away.
        let half = if self.queue.awaits_second() { HALF_BYTES } else { 0 };
        let limit = turn.shared.settings.connection_buffer_bytes + half;
        // Answers that the host does not read hold its next commands back: what it can make us keep has a limit.
        let answers_read = self.outbox.len() <= UNSENT_MAX;
        // While data of the host are awaited everything is read on: they come on the same stream. A host that overruns
        // its queue meanwhile is refused by the queue.
        let has_slot = !self.commands.is_full() || !self.awaiting.is_empty();
        let more = 2 * in_capsule;
        let buffers = self.buffers.own() + more <= limit
            && turn.pool.has_room(more)
            && self.buffers.has_share(more, turn.pool.host_share_bytes());
        answers_read && has_slot && buffers && self.credit.1 > 0
    }

    /// Runs what was received. Returns how many bytes at its end cannot be taken yet.
    fn feed(&mut self, mut input: &[u8], turn: &mut Turn<'_>) -> Result<usize, End> {
        loop {
            let wanted = self.transport.data_wanted().min(input.len());
            if wanted > 0 {
                let (chunk, rest) = input.split_at(wanted);
                self.place(chunk);
                input = rest;
            }
            let between_pdus = !self.data_announced && self.incoming.is_none() && self.transport.data_wanted() == 0;
            if between_pdus && !input.is_empty() && !self.can_take(turn) {
                return Ok(input.len());
            }
            match self.transport.poll_event(&mut input)? {
                None => return Ok(0),
                Some(event) => self.on_event(event, &mut input, turn)?,
            }
            if !matches!(self.state, State::Handshake { .. } | State::Open | State::Draining) {
                return Ok(0);
            }
        }
    }

    fn place(&mut self, chunk: &[u8]) {
        if let Some(incoming) = &mut self.incoming {
            let buffer = self.commands.get_mut(incoming.slot).and_then(|command| command.buffer.as_mut());
            let needed = chunk.len().min(incoming.end.saturating_sub(incoming.at));
            if let Some(place) = buffer.and_then(|b| b.as_mut_slice().get_mut(incoming.at..incoming.at + needed)) {
                place.copy_from_slice(&chunk[..needed]);
            }
            incoming.at += chunk.len();
        }
        self.transport.data_received(chunk);
    }

    /// `input` is what follows the event in the stream, as far as it has come.
    fn on_event(&mut self, event: Event, input: &mut &[u8], turn: &mut Turn<'_>) -> Result<(), End> {
        match event {
            Event::Initialized(_) => {
                self.transport.send_ic_response(self.outbox.arena());
                turn.mark_dirty(self);
            }
            Event::Command { sqe, in_capsule } => {
                if self.state == State::Draining {
                    // Not accepted: the host sees the connection end and sends it again elsewhere or later.
                    if in_capsule > 0 {
                        self.transport.skip_data();
                    }
                    return Ok(());
                }
                self.data_announced = self.on_command(&sqe, in_capsule, input, turn)?;
            }
            Event::Data { cid, offset, .. } => {
                self.data_announced = false;
                self.incoming = self.find_incoming(cid, offset as usize);
            }
            Event::DataEnd { digest_ok, complete, .. } => {
                if let Some(Incoming { slot, .. }) = self.incoming.take() {
                    self.on_data_end(slot, digest_ok, complete, turn)?;
                }
            }
            Event::TermReceived(termination) => return Err(End::TermReceived(termination)),
        }
        Ok(())
    }

    fn find_incoming(&self, cid: Cid, offset: usize) -> Option<Incoming> {
        let &(_, slot) = self.awaiting.iter().find(|(awaiting, _)| *awaiting == cid)?;
        let command = self.commands.get(slot)?;
        let from = command.work.data_offset(command.length);
        Some(Incoming { slot, at: from + offset, end: from + command.length as usize })
    }

    fn on_data_end(&mut self, slot: u32, digest_ok: bool, complete: bool, turn: &mut Turn<'_>) -> Result<(), End> {
        let Some(command) = self.commands.get_mut(slot) else { return Ok(()) };
        if command.phase != Phase::Receiving {
            return Ok(());
        }
        if !digest_ok {
            command.failed = Some(Status::TRANSIENT_TRANSPORT_ERROR);
        }
        let cid = command.cid;
        if complete {
            self.awaiting.retain(|&(_, awaiting)| awaiting != slot);
            self.data_complete(slot, turn)?;
        } else {
            self.transport.pump_r2t(cid, self.outbox.arena());
            turn.mark_dirty(self);
        }
        Ok(())
    }

    /// An Abort for a command of this queue: true when it was aborted on the spot.
    pub(crate) fn on_abort(&mut self, request: AbortRequest, turn: &mut Turn<'_>) -> bool {
        let found =
            self.commands.iter().find(|(_, command)| command.cid == request.cid).map(|(slot, c)| (slot, c.phase));
        let aborted = match found {
            Some((slot, Phase::Parked | Phase::Receiving | Phase::Waiting)) => {
                self.stop(slot, Status::ABORT_REQUESTED, turn);
                true
            }
            Some((slot, Phase::AtDevice)) => {
                match self.commands.get(slot).map(|command| &command.work) {
                    // There may be pieces that are not at the device yet.
                    Some(Work::Copy(_)) => self.stop(slot, Status::ABORT_REQUESTED, turn),
                    _ => _ = turn.io.cancel(turn.tag(self.handle, slot)),
                }
                false
            }
            Some((_, Phase::Elsewhere)) => false,
            None => false,
        };
        turn.shared.post(request.reply.handle, Message::AbortAnswer { reply: request.reply, aborted });
        aborted
    }

    /// Delivers a notice of the registry to the queue.
    pub(crate) fn on_notice(&mut self, notice: Notice, turn: &mut Turn<'_>) -> Result<(), End> {
        if let Notice::Connect = notice {
            return self.held_connect().map_or(Ok(()), |slot| self.parameters_complete(slot, turn));
        }
        let reason = if let Notice::Close(reason) = &notice { Some(*reason) } else { None };
        if let Some(cqe) = self.queue.notify(notice, turn.now_ms) {
            self.transport.send_response(&cqe, self.outbox.arena());
        }
        turn.mark_dirty(self);
        reason.map_or(Ok(()), |reason| Err(End::Association(reason)))
    }

    /// Whether the socket took no more at the last flush.
    pub(crate) fn blocked(&self) -> bool {
        self.blocked_since_ms.is_some()
    }

    /// Sends what is queued.
    pub(crate) fn flush(&mut self, turn: &mut Turn<'_>) -> Result<Flushed, End> {
        if self.queue.is_admin() {
            while let Some(cqe) = self.queue.poll_event() {
                self.transport.send_response(&cqe, self.outbox.arena());
            }
        }
        let before = self.outbox.len();
        let pool_before = turn.pool.outstanding_bytes();
        let flushed = self.outbox.flush(&self.socket, turn.share, turn.pool)?;
        self.buffers.give(pool_before - turn.pool.outstanding_bytes());
        if self.outbox.has_zerocopy() {
            self.after_flush(self.outbox.len() < before, turn);
        }
        match flushed {
            Flushed::All | Flushed::Share => self.blocked_since_ms = None,
            Flushed::Blocked if self.blocked_since_ms.is_none() || self.outbox.len() < before => {
                self.blocked_since_ms = Some(turn.now_ms);
            }
            Flushed::Blocked => {}
        }
        Ok(flushed)
    }

    /// When this connection must be looked at next although nothing happens, milliseconds of the target's clock.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        let own = match self.state {
            State::Handshake { deadline_ms } | State::Closing { deadline_ms } => Some(deadline_ms),
            State::Open | State::Draining => None,
            State::Gone => return self.settle_ms(),
        };
        let stalled = self.stalled_since_ms().map(|since| since + STALLED_MS);
        let silent = self.is_owed_data().then_some(self.last_received_ms + STALLED_MS);
        [own, stalled, silent].into_iter().flatten().min()
    }

    /// What a deadline that has passed means.
    pub(crate) fn overdue(&self, now_ms: u64, handshake_ms: u64) -> Option<End> {
        match self.state {
            State::Handshake { deadline_ms } if deadline_ms <= now_ms => Some(End::Handshake(handshake_ms)),
            State::Closing { deadline_ms } if deadline_ms <= now_ms => Some(End::PeerClosed),
            _ if self.is_owed_data() && self.last_received_ms + STALLED_MS <= now_ms => Some(End::Silent),
            _ => self.stalled_since_ms().filter(|since| since + STALLED_MS <= now_ms).map(|_| End::Stalled),
        }
    }

    /// Whether the host has announced something that it has not sent.
    fn is_owed_data(&self) -> bool {
        !self.awaiting.is_empty() || self.queue.awaits_second()
    }

    /// Since when the peer reads nothing of what is there for it: it may not hold our buffers for ever.
    fn stalled_since_ms(&self) -> Option<u64> {
        match (self.blocked_since_ms, self.pinned_since_ms) {
            (Some(blocked), Some(pinned)) => Some(blocked.min(pinned)),
            (blocked, pinned) => blocked.or(pinned),
        }
    }

    /// Whether everything accepted has been answered and sent; outstanding Asynchronous Event Requests do not count.
    pub(crate) fn is_drained(&self) -> bool {
        self.commands.len() == 0 && self.outbox.is_empty()
    }

    /// Whether something goes on without anything else happening first, as soon as there is room or another turn.
    pub(crate) fn waits_for_turn(&self) -> bool {
        self.is_stalled() || !self.parked.is_empty() || !self.later.is_empty()
    }

    /// What waits for room: changes when some of it went on.
    pub(crate) fn backlog(&self) -> (usize, usize) {
        (self.stash.len() - self.stashed_from, self.parked.len())
    }

    /// Whether what is left of the connection can be dropped.
    pub(crate) fn is_finished(&self) -> bool {
        self.state == State::Gone && self.at_device == 0 && !self.awaits_drive && self.settling.is_none()
    }

    /// Tells the peer to go: the TermReq when it broke the transport, then the end of our stream.
    pub(crate) fn start_closing(&mut self, end: &End, turn: &mut Turn<'_>) {
        self.release(turn);
        self.outbox.clear(turn.pool);
        if let End::Fatal(error) = end {
            self.transport.send_term(error, self.outbox.arena());
            // A peer that does not even take the TermReq is beyond help.
            let _ = self.outbox.flush(&self.socket, usize::MAX, turn.pool);
        }
        // Fails when the peer is gone already, which is what we want.
        let _ = self.socket.shutdown(Shutdown::Write);
        self.blocked_since_ms = None;
        self.state = State::Closing { deadline_ms: turn.now_ms + CLOSING_MS };
    }

    /// Ends the connection now. Commands at a device keep it in the table until they return, as do buffers that the kernel still reads.
    pub(crate) fn close(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::Gone {
            return self.settle(turn);
        }
        self.release(turn);
        self.outbox.clear(turn.pool);
        if self.outbox.is_pinning() {
            self.let_go(turn);
        }
        let _ = self.socket.shutdown(Shutdown::Both);
        self.blocked_since_ms = None;
        self.pinned_since_ms = None;
        self.state = State::Gone;
    }

    /// Forgets every command that is not at a device.
    fn release(&mut self, turn: &mut Turn<'_>) {
        let seat = std::mem::take(&mut self.took_seat);
        if seat || self.commands.iter().any(|(_, command)| command.is_on_drive()) {
            self.await_drive(turn);
        }
        self.incoming = None;
        self.stash = Vec::new();
        self.stashed_from = 0;
        self.awaiting.clear();
        self.parked.clear();
        self.later.clear();
        let idle: Vec<u32> = self
            .commands
            .iter()
            .filter(|(_, command)| command.phase != Phase::AtDevice)
            .map(|(slot, _)| slot)
            .collect();
        for slot in idle {
            self.forget(slot, turn);
        }
    }

    /// Drops one command without an answer: its connection is gone.
    pub(crate) fn forget(&mut self, slot: u32, turn: &mut Turn<'_>) {
        if let Some(command) = self.commands.remove(slot) {
            self.queue.abandon(command.executing);
            if let Some(buffer) = command.buffer {
                self.buffers.give(buffer.capacity());
                turn.pool.put(buffer);
            }
        }
    }

    /// Gives back memory that a burst left behind.
    pub(crate) fn shrink(&mut self) {
        self.outbox.shrink();
        self.stash.shrink_to_fit();
    }
}

/// What one read brought.
struct Received {
    total: usize,
    in_scratch: usize,
    room: usize,
}
