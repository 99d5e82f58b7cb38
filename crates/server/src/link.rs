//! How one connection's bytes move over NVMe/TCP: the socket, the transport core, what is received and not taken yet, what
//! waits to be sent, and the end of it all.
//!
//! Owns the socket and the buffers whose data are under way. What a command means and what it needs is the command side's
//! ([`crate::commands`]), which knows a link by what it can ask of it:
//!
//! | what the command side asks | |
//! |---|---|
//! | [`Link::fetch`], [`Link::fetch_inline`], [`Link::take_inline`] | data of a command into a buffer; [`Event::Fetched`] when they are there |
//! | [`Link::stop_fetching`] | the command ends without its data |
//! | [`Link::send_buffer`], [`Link::send_bytes`], [`Link::lend`] | data to the host, with the completion |
//! | [`Link::respond`] | a completion |
//! | [`Link::charge`], [`Link::has_share`] | its share of the reactor's turn |
//! | [`Link::open`], [`Link::drain`], [`Link::has_ended`], [`Link::peer`] | how far it is, and whose it is |

use std::io::{self, IoSliceMut, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use ebof_backend::{Buffer, Device};
use ebof_fabrics::Handle;
use ebof_nvme::{Cid, Cqe, QueueId, Sqe};
use ebof_tcp::controller::{Connection as Transport, Event as TransportEvent, InCapsule};

use crate::connection::{End, STALLED_MS};
use crate::outbox::{Flushed, Outbox};
use crate::port::PortState;
use crate::share::Waiting;
use crate::turn::{Turn, place_of};
use crate::zerocopy::Settling;

/// Bytes taken from one socket in one turn, so that a flood does not starve the others on the thread.
pub(crate) const READ_BUDGET: usize = 1 << 20;

/// A read of a socket has room for this much at least, whatever is left of the share: a system call for less is a waste.
const RECEIVE_MIN: usize = 8 << 10;

/// Data of at least this size are received straight into their buffer.
const DIRECT_MIN: usize = 8 << 10;

/// How long the peer may take to close after it was told to go, milliseconds.
const CLOSING_MS: u64 = 2_000;

/// Where a link stands.
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

/// Whom a link leads to, as admission and the log need it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) port: Arc<PortState>,
    /// The host's address.
    pub(crate) remote: SocketAddr,
    /// The address that the host reached.
    pub(crate) local: SocketAddr,
}

impl Peer {
    pub(crate) fn ip(&self) -> IpAddr {
        self.remote.ip()
    }
}

/// Data of the host on their way into a buffer. The link owns the buffer until all have come, or the command is given up.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) cid: Cid,
    /// Of the command, for [`Event::Fetched`].
    pub(crate) slot: u32,
    pub(crate) buffer: Buffer,
    /// Where the data start in the buffer, and how many bytes of them are kept; more may come.
    pub(crate) offset: usize,
    pub(crate) length: u32,
}

/// What has become of data that [`Link::stop_fetching`] was asked to give up.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// They are on their way: [`Event::Fetched`] comes, and only then may the command be completed.
    Arriving,
    /// Nothing comes any more.
    Ended(Option<Buffer>),
}

/// What a link is told when its connection has become a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) id: QueueId,
    pub(crate) entries: usize,
    pub(crate) sq_flow_disabled: bool,
    /// The most data that a capsule may carry, bytes, where the controller was told a limit of its own.
    pub(crate) in_capsule_bytes: Option<u32>,
}

/// What a link has to tell the command side.
#[derive(Debug)]
pub(crate) enum Event {
    /// A command, with so many bytes of data behind it in its capsule.
    Command { sqe: Sqe, in_capsule: u32 },
    /// The data of a command are in its buffer.
    Fetched { slot: u32, buffer: Buffer, is_intact: bool },
    /// Something that is the link's own.
    Progress,
}

/// A fetch, and whether what came of it so far was intact.
#[derive(Debug)]
struct Transfer {
    fetch: Fetch,
    is_intact: bool,
}

/// Data of a PDU that is being received: where the next byte goes, and where what the command needs ends.
#[derive(Debug)]
struct Incoming {
    transfer: Transfer,
    at: usize,
    end: usize,
}

/// What is to happen to the data behind the last command in its capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inline {
    /// There are none, or they are taken.
    None,
    /// Nobody has asked for them yet.
    Unclaimed,
    /// They go to a buffer as they come.
    Claimed,
}

/// One connection's link.
pub(crate) struct Link {
    handle: Handle,
    pub(crate) socket: TcpStream,
    peer: Peer,
    transport: Transport,
    pub(crate) outbox: Outbox,
    pub(crate) state: State,
    /// Counts among the connections that are not admitted yet.
    waiting: Option<Waiting>,
    /// Data that are asked for, and those that will come in a capsule.
    transfers: Vec<Transfer>,
    incoming: Option<Incoming>,
    inline: Inline,
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
    last_received_ms: u64,
    /// Whether it is on the reactor's list of connections to flush.
    pub(crate) dirty: bool,
    /// Bytes that may still be received, or asked for by reads, in the turn of this number. Below zero when a command was
    /// larger than its share: the next turns pay for it.
    credit: (u32, i64),
    /// Bytes charged that the reactor does not know of yet.
    charged: usize,
}

impl Link {
    pub(crate) fn new(handle: Handle, socket: TcpStream, peer: Peer, deadline_ms: u64, waiting: Waiting) -> Self {
        let transport = Transport::new(peer.port.transport_config());
        Self {
            handle,
            socket,
            peer,
            transport,
            outbox: Outbox::default(),
            state: State::Handshake { deadline_ms },
            waiting: Some(waiting),
            transfers: Vec::new(),
            incoming: None,
            inline: Inline::None,
            stash: Vec::new(),
            stashed_from: 0,
            blocked_since_ms: None,
            pinned_since_ms: None,
            acknowledged: 0,
            settling: None,
            last_received_ms: 0,
            dirty: false,
            credit: (0, 0),
            charged: 0,
        }
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether both ends have agreed on how to talk.
    pub(crate) fn is_initialized(&self) -> bool {
        self.transport.initialized().is_some()
    }

    /// Has its share of the turn, once.
    pub(crate) fn take_share(&mut self, turn: &Turn<'_>) {
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

    /// Whether something is left of its share of the turn.
    pub(crate) fn has_share(&self) -> bool {
        self.credit.1 > 0
    }

    /// Whether it takes commands, or did so until it was told to drain.
    pub(crate) fn is_taking(&self) -> bool {
        matches!(self.state, State::Handshake { .. } | State::Open | State::Draining)
    }

    /// Whether nothing that is completed reaches the host any more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Gone | State::Closing { .. })
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.state == State::Draining
    }

    /// Takes no more commands.
    pub(crate) fn drain(&mut self) {
        self.state = State::Draining;
    }

    /// Its Connect may take until `deadline_ms`: waiting is not the host's fault.
    pub(crate) fn extend_handshake(&mut self, until_ms: u64) {
        if let State::Handshake { deadline_ms } = &mut self.state {
            *deadline_ms = (*deadline_ms).max(until_ms);
        }
    }

    /// It is a queue of a controller now.
    pub(crate) fn open(&mut self, opening: &Opening, turn: &Turn<'_>) {
        if let Some(bytes) = opening.in_capsule_bytes {
            self.transport.set_in_capsule_bytes(bytes);
        }
        self.transport.set_queue(opening.id, opening.entries);
        self.transport.set_sq_flow_disabled(opening.sq_flow_disabled);
        if matches!(self.state, State::Handshake { .. }) {
            self.state = State::Open;
            self.waiting = None;
        }
        if let Some(parameters) = self.transport.initialized() {
            turn.shared.set_digests(self.handle, parameters.header_digest, parameters.data_digest);
        }
    }

    /// One read of the socket, of what is left of the share: into the buffer of the data under way where that pays, the rest
    /// into `scratch`. `None`: nothing is there.
    ///
    /// # Errors
    /// The peer has closed, or the socket has failed.
    pub(crate) fn receive(&mut self, scratch: &mut [u8], turn: &Turn<'_>) -> Result<Option<Received>, End> {
        let limit = usize::try_from(self.credit.1).unwrap_or(usize::MAX).clamp(RECEIVE_MIN, READ_BUDGET);
        let received = loop {
            match self.read(limit, scratch) {
                Ok(Received { total: 0, .. }) => return Err(End::PeerClosed),
                Ok(received) => break received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        };
        self.charge(received.total);
        self.last_received_ms = turn.now_ms;
        Ok(Some(received))
    }

    fn read(&mut self, limit: usize, scratch: &mut [u8]) -> io::Result<Received> {
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
            let buffer = incoming.transfer.fetch.buffer.as_mut_slice();
            if let Some(place) = buffer.get_mut(incoming.at..incoming.at + wanted) {
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

    /// Sets received bytes aside that cannot be taken yet.
    pub(crate) fn set_aside(&mut self, bytes: &[u8]) {
        self.stash.extend_from_slice(bytes);
    }

    /// What was set aside, and where in it the first byte is that has not been taken. To be given back.
    pub(crate) fn take_stash(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.stash), self.stashed_from)
    }

    /// All of `stash` but the last `left` bytes has been taken.
    pub(crate) fn put_stash(&mut self, mut stash: Vec<u8>, left: usize) {
        self.stashed_from = if left > 0 { stash.len() - left } else { 0 };
        if left == 0 {
            // It keeps its memory: the next turn may need it again.
            stash.clear();
        }
        self.stash = stash;
    }

    /// Received bytes that wait for room.
    pub(crate) fn stashed_bytes(&self) -> usize {
        self.stash.len() - self.stashed_from
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Whether received bytes wait for room: then nothing more is read.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.stash.is_empty()
    }

    /// Whether data of the host are awaited: they come on the same stream, and everything is read on.
    pub(crate) fn awaits_data(&self) -> bool {
        !self.transfers.is_empty() || self.incoming.is_some()
    }

    /// Puts data of the host where they belong, and leaves what is behind them in `input`.
    pub(crate) fn place_data(&mut self, input: &mut &[u8]) {
        let wanted = self.transport.data_wanted().min(input.len());
        if wanted == 0 {
            return;
        }
        let (chunk, rest) = input.split_at(wanted);
        if let Some(incoming) = &mut self.incoming {
            let needed = chunk.len().min(incoming.end.saturating_sub(incoming.at));
            let buffer = incoming.transfer.fetch.buffer.as_mut_slice();
            if let Some(place) = buffer.get_mut(incoming.at..incoming.at + needed) {
                place.copy_from_slice(&chunk[..needed]);
            }
            incoming.at += chunk.len();
        }
        self.transport.data_received(chunk);
        *input = rest;
    }

    /// Whether what comes next in the stream is a new PDU.
    pub(crate) fn is_between_pdus(&self) -> bool {
        self.inline == Inline::None && self.incoming.is_none() && self.transport.data_wanted() == 0
    }

    /// Takes `input` up to the next event. `None`: all of it is taken.
    ///
    /// # Errors
    /// The host broke the transport, or says that we did.
    pub(crate) fn poll(&mut self, input: &mut &[u8], turn: &mut Turn<'_>) -> Result<Option<Event>, End> {
        let Some(event) = self.transport.poll_event(input)? else { return Ok(None) };
        match event {
            TransportEvent::Initialized(_) => {
                self.transport.send_ic_response(self.outbox.arena());
                self.mark_dirty(turn);
            }
            TransportEvent::Command { in_capsule, .. } if self.state == State::Draining => {
                // Not accepted: the host sees the connection end and sends it again elsewhere or later.
                if in_capsule > 0 {
                    self.transport.skip_data();
                }
            }
            TransportEvent::Command { sqe, in_capsule } => {
                self.inline = if in_capsule > 0 { Inline::Unclaimed } else { Inline::None };
                return Ok(Some(Event::Command { sqe, in_capsule }));
            }
            TransportEvent::Data { cid, offset, .. } => {
                self.inline = Inline::None;
                let at = self.transfers.iter().position(|transfer| transfer.fetch.cid == cid);
                self.incoming = at.map(|at| {
                    let transfer = self.transfers.swap_remove(at);
                    let start = transfer.fetch.offset;
                    let end = start + transfer.fetch.length as usize;
                    Incoming { transfer, at: start + offset as usize, end }
                });
            }
            TransportEvent::DataEnd { digest_ok, complete, .. } => {
                if let Some(Incoming { mut transfer, .. }) = self.incoming.take() {
                    transfer.is_intact &= digest_ok;
                    let Fetch { cid, slot, .. } = transfer.fetch;
                    if complete {
                        let (buffer, is_intact) = (transfer.fetch.buffer, transfer.is_intact);
                        return Ok(Some(Event::Fetched { slot, buffer, is_intact }));
                    }
                    self.transfers.push(transfer);
                    self.transport.pump_r2t(cid, self.outbox.arena());
                    self.mark_dirty(turn);
                }
            }
            TransportEvent::TermReceived(termination) => return Err(End::TermReceived(termination)),
        }
        Ok(Some(Event::Progress))
    }

    /// The command just told is dealt with: data in its capsule that it does not want are dropped.
    pub(crate) fn after_command(&mut self) {
        if self.inline == Inline::Unclaimed {
            self.inline = Inline::None;
            self.transport.skip_data();
        }
    }

    /// The data in the capsule of the command just told, if all of them have come.
    #[inline]
    pub(crate) fn take_inline<'a>(&mut self, input: &mut &'a [u8]) -> Option<InCapsule<'a>> {
        let data = self.transport.take_in_capsule(input)?;
        self.inline = Inline::None;
        Some(data)
    }

    /// Has the data in the capsule of the command just told come into a buffer.
    pub(crate) fn fetch_inline(&mut self, fetch: Fetch) {
        self.inline = Inline::Claimed;
        self.transfers.push(Transfer { fetch, is_intact: true });
    }

    /// Asks the host for data of a command.
    ///
    /// # Errors
    /// Too many are under way; the buffer comes back.
    pub(crate) fn fetch(&mut self, fetch: Fetch, turn: &mut Turn<'_>) -> Result<(), Buffer> {
        self.mark_dirty(turn);
        match self.transport.request_data(fetch.cid, fetch.length, self.outbox.arena()) {
            Ok(()) => {
                self.transfers.push(Transfer { fetch, is_intact: true });
                Ok(())
            }
            Err(_) => Err(fetch.buffer),
        }
    }

    /// Asks for no more data of the command in `slot`.
    pub(crate) fn stop_fetching(&mut self, cid: Cid, slot: u32) -> Stopped {
        if self.transport.stop_requesting(cid) {
            return Stopped::Arriving;
        }
        let at = self.transfers.iter().position(|transfer| transfer.fetch.slot == slot);
        Stopped::Ended(at.map(|at| self.transfers.swap_remove(at).fetch.buffer))
    }

    /// Has what is queued sent at the end of the turn.
    pub(crate) fn mark_dirty(&mut self, turn: &mut Turn<'_>) {
        if !self.dirty {
            self.dirty = true;
            turn.dirty.push_back(place_of(self.handle));
        }
    }

    /// As [`Link::respond`], for one who flushes anyway.
    pub(crate) fn push_response(&mut self, cqe: &Cqe) {
        self.transport.send_response(cqe, self.outbox.arena());
    }

    /// Sends a completion.
    #[inline]
    pub(crate) fn respond(&mut self, cqe: &Cqe, turn: &mut Turn<'_>) {
        self.transport.send_response(cqe, self.outbox.arena());
        self.mark_dirty(turn);
    }

    /// Sends `data`, which did not come from a device, and the completion.
    pub(crate) fn send_bytes(&mut self, cid: Cid, data: &[u8], cqe: &Cqe, turn: &mut Turn<'_>) {
        let success = self.transport.success_allowed(cqe);
        let arena = self.outbox.arena();
        let trailer = self.transport.send_data(cid, 0, data, true, success, arena);
        arena.extend_from_slice(data);
        arena.extend(trailer.iter().flatten());
        if !success {
            self.transport.send_response(cqe, arena);
        }
        self.mark_dirty(turn);
    }

    /// Sends the first `length` bytes of `buffer`, and the completion. The buffer goes back to the reactor's pool when they are
    /// sent, which is at once if they are few.
    pub(crate) fn send_buffer(&mut self, cid: Cid, buffer: Buffer, length: u32, cqe: &Cqe, turn: &mut Turn<'_>) {
        let length = length as usize;
        let success = self.transport.success_allowed(cqe);
        let payload = &buffer.as_slice()[..length];
        let trailer = self.transport.send_data(cid, 0, payload, true, success, self.outbox.arena());
        self.outbox.push_payload(buffer, length, turn.pool);
        self.outbox.arena().extend(trailer.iter().flatten());
        if !success {
            self.transport.send_response(cqe, self.outbox.arena());
        }
        self.mark_dirty(turn);
    }

    /// Sends what `device`, whose bytes are in memory, holds when they are sent, and the completion.
    pub(crate) fn lend(
        &mut self,
        cid: Cid,
        device: &Arc<dyn Device>,
        range: (u64, u32),
        cqe: &Cqe,
        turn: &mut Turn<'_>,
    ) {
        let (offset, length) = range;
        let success = self.transport.success_allowed(cqe);
        self.transport.send_data_header(cid, 0, length, true, success, self.outbox.arena());
        if self.transport.uses_data_digest() {
            // The digest is of the bytes as they are now, so those must be sent.
            let trailer = self.transport.trailer(self.outbox.copy_lent(device, offset, length as usize));
            self.outbox.arena().extend(trailer.iter().flatten());
        } else {
            self.outbox.push_lent(device, offset, length as usize);
        }
        if !success {
            self.transport.send_response(cqe, self.outbox.arena());
        }
        self.mark_dirty(turn);
    }

    /// Whether the socket took no more at the last flush.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_since_ms.is_some()
    }

    /// Sends what is queued, up to the share of the turn.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) fn flush(&mut self, turn: &mut Turn<'_>) -> Result<Flushed, End> {
        let before = self.outbox.len();
        let flushed = self.outbox.flush(&self.socket, turn.share, turn.pool)?;
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

    /// When it must be looked at next although nothing happens, milliseconds of the target's clock. `is_owed`: the host has
    /// announced something that it has not sent.
    pub(crate) fn deadline_ms(&self, is_owed: bool) -> Option<u64> {
        let own = match self.state {
            State::Handshake { deadline_ms } | State::Closing { deadline_ms } => Some(deadline_ms),
            State::Open | State::Draining => None,
            State::Gone => return self.settle_ms(),
        };
        let stalled = self.stalled_since_ms().map(|since| since + STALLED_MS);
        let silent = is_owed.then_some(self.last_received_ms + STALLED_MS);
        [own, stalled, silent].into_iter().flatten().min()
    }

    /// What a deadline that has passed means.
    pub(crate) fn overdue(&self, is_owed: bool, now_ms: u64, handshake_ms: u64) -> Option<End> {
        match self.state {
            State::Handshake { deadline_ms } if deadline_ms <= now_ms => Some(End::Handshake(handshake_ms)),
            State::Closing { deadline_ms } if deadline_ms <= now_ms => Some(End::PeerClosed),
            _ if is_owed && self.last_received_ms + STALLED_MS <= now_ms => Some(End::Silent),
            _ => self.stalled_since_ms().filter(|since| since + STALLED_MS <= now_ms).map(|_| End::Stalled),
        }
    }

    /// Since when the peer reads nothing of what is there for it: it may not hold our buffers for ever.
    fn stalled_since_ms(&self) -> Option<u64> {
        match (self.blocked_since_ms, self.pinned_since_ms) {
            (Some(blocked), Some(pinned)) => Some(blocked.min(pinned)),
            (blocked, pinned) => blocked.or(pinned),
        }
    }

    /// Drops what has been received; `give` gets the buffers whose data do not come any more.
    pub(crate) fn drop_input(&mut self, mut give: impl FnMut(Buffer)) {
        self.stash = Vec::new();
        self.stashed_from = 0;
        let incoming = self.incoming.take().map(|incoming| incoming.transfer);
        for transfer in self.transfers.drain(..).chain(incoming) {
            give(transfer.fetch.buffer);
        }
    }

    /// Tells the peer to go: the TermReq when it broke the transport, then the end of our stream. Its input is dropped before.
    pub(crate) fn start_closing(&mut self, end: &End, turn: &mut Turn<'_>) {
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

    /// Breaks the connection off. Buffers that the kernel still reads keep the link.
    pub(crate) fn close(&mut self, turn: &mut Turn<'_>) {
        self.outbox.clear(turn.pool);
        if self.outbox.is_pinning() {
            self.let_go(turn);
        }
        let _ = self.socket.shutdown(Shutdown::Both);
        self.blocked_since_ms = None;
        self.pinned_since_ms = None;
        self.state = State::Gone;
    }

    /// Gives back memory that a burst left behind.
    pub(crate) fn shrink(&mut self) {
        self.outbox.shrink();
        self.stash.shrink_to_fit();
    }
}

/// What one read brought.
pub(crate) struct Received {
    pub(crate) total: usize,
    pub(crate) in_scratch: usize,
    pub(crate) room: usize,
}
