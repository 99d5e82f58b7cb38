//! A connection as the command side sees it: moves commands, data and completions, over any
//! transport.
//!
//! Owns what all transports have in common: the state from the first byte to the end, the
//! connection's share of the reactor's turn, the deadlines. How bytes move is its transport's
//! ([`AnyTransport`]); what a command means and what it needs is the command side's
//! ([`crate::commands`]), which knows a link by what it can ask of it:
//!
//! | what the command side asks | |
//! |---|---|
//! | [`Link::map`] | the host's memory itself, for a device |
//! | [`Link::fetch`], [`Link::take_inline`] | data of a command into a buffer; [`Event::Fetched`] when they are there |
//! | [`Link::stop_fetching`] | the command ends without its data |
//! | [`Link::send_buffer`], [`Link::send_bytes`], [`Link::send_own`], [`Link::lend`] | data to the host, with the completion |
//! | [`Link::respond`] | a completion |
//! | [`Link::withdraw`] | a command ends without one |
//! | [`Link::has_completion_room`] | whether another completion would be taken |
//! | [`Link::charge`], [`Link::has_share`] | its share of the reactor's turn |
//! | [`Link::open`], [`Link::drain`], [`Link::has_ended`], [`Link::peer`] | how far it is, and whose it is |
//!
//! # The transports
//!
//! - **NVMe/TCP** (`server/link/tcp.rs`): one system call reads everything that the socket holds,
//!   `Connection::poll_event` (`tcp/controller.rs`) decodes it, `Connection::send_data` and
//!   `Connection::send_response` encode the PDUs, and `Outbox::flush` (`server/link/outbox.rs`)
//!   sends them with one gathered call.
//! - **NVMe/RDMA** (`server/link/rdma.rs`): a capsule is in a receive of the queue pair, and
//!   `Connection::receive` (`rdma/controller.rs`) decodes it there. The adapter moves data between
//!   the host's memory and buffers that the queue pair holds meanwhile (`verbs/queue_pair.rs`): by
//!   RDMA READs before the device has them, by an RDMA WRITE in front of the response. What is
//!   posted is begun in small batches, so that adapter and thread work at the same time
//!   (`FLUSH_AT`, ADR 0051).
//! - **Direct ports** (vfio-user): a virtual machine's queues are in its memory
//!   (`server/link/ring.rs`), and devices transfer data into and out of that memory
//!   ([`Link::map`]). Its registers and interrupts are in `server/direct.rs`, the client's socket
//!   in `server/reactor/direct/device.rs`. What its memory costs is charged to the function: bytes
//!   in `server/direct/footing.rs`, time in `server/reactor/stalls.rs` (ADR 0060).
//! - **In memory** (`server/link/loopback.rs`): whole commands and completions are passed on. The
//!   queue returns completions without SQHD, which the link adds (`server/link/message_queue.rs`).
//!
//! Drives in memory take a shorter path over all of them: `Immediate::read`
//! (`server/commands/immediate.rs`) completes the command immediately, and the bytes are sent
//! directly from the drive, under the lock of their chunk (`Resident::lend`).

mod any;
mod credit;
mod end;
mod event;
mod loopback;
mod message_queue;
mod outbox;
mod rdma;
mod ring;
mod tcp;
mod transport;
mod zerocopy;

use std::sync::Arc;

use ebof_backend::{Buffer, Device};
use ebof_fabrics::{Handle, RingTask};
use ebof_manage::listen;
use ebof_nvme::{Cid, Cqe, DataPointer, Status};
use ebof_region::Way;

use self::credit::Credit;
use self::transport::{ErrorQueue, OwnMemory, Polled, ZeroCopy};
use crate::observe::troubles::Trouble;
use crate::ports::peer::Peer;
use crate::shared::Agreed;
use crate::shared::buffer::Pool;
use crate::shared::handle::index_of;
use crate::shared::host_limits::Waiting;
use crate::shared::reactor_context::ReactorContext;

pub(crate) use any::{AnyTransport, InMemory};
pub(crate) use end::End;
pub(crate) use event::{Event, Fetch, Flushed, Inline, Mapping, Opening, Received, Stopped};
pub(crate) use loopback::Loopback;
pub(crate) use rdma::Rdma;
pub(crate) use ring::Ring;
pub(crate) use tcp::Tcp;
pub(crate) use transport::{Bytes, Notifier, Rings};
#[cfg(test)]
pub(crate) use zerocopy::AwaitingRelease;

/// Bytes taken from one connection in one turn, so that a flood does not starve the others on the
/// thread.
pub(crate) const READ_BUDGET: usize = 1 << 20;

/// Bytes waiting to be sent beyond which there is no room for more completions.
pub(crate) const UNSENT_MAX: usize = 16 << 20;

/// How long the peer may take to close after it was asked to, milliseconds.
const CLOSING_MS: u64 = 2_000;

/// How long a peer may leave everything that we send unread, milliseconds.
pub(crate) const STALLED_MS: u64 = 30_000;

/// Where a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Both ends' agreement and Connect are awaited until the deadline.
    Handshake { deadline_ms: u64 },
    /// Connected: a queue of a controller.
    Open,
    /// Takes no more commands, completes those that it has.
    Draining,
    /// The peer was asked to close; its input is discarded until the peer closes or the deadline
    /// passes.
    Closing { deadline_ms: u64 },
    /// The connection is gone; commands at a device are awaited.
    Gone,
}

/// One connection's link.
pub(crate) struct Link {
    handle: Handle,
    peer: Peer,
    transport: AnyTransport,
    pub(crate) state: State,
    /// Counts among the connections that are not admitted yet.
    waiting: Option<Waiting>,
    blocked_since_ms: Option<u64>,
    /// When the host last sent anything: it may not keep data waiting for ever that it has
    /// announced.
    last_received_ms: u64,
    /// Whether it is on the reactor's list of connections to flush.
    pub(crate) dirty: bool,
    /// Whether it is on the reactor's list of connections to look at.
    pub(crate) listed: bool,
    credit: Credit,
}

impl Link {
    pub(crate) fn new(
        handle: Handle,
        transport: AnyTransport,
        peer: Peer,
        deadline_ms: u64,
        waiting: Option<Waiting>,
    ) -> Self {
        Self {
            handle,
            peer,
            transport,
            state: State::Handshake { deadline_ms },
            waiting,
            blocked_since_ms: None,
            last_received_ms: 0,
            dirty: false,
            listed: false,
            credit: Credit::default(),
        }
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// What it is if data of the host are not what was sent: NVMe/TCP has digests for that,
    /// elsewhere they have not come whole.
    pub(crate) fn trouble_of_data(&self) -> Trouble {
        match self.peer.port.config.listen.transport {
            listen::Transport::Tcp => Trouble::DataDigest,
            listen::Transport::Rdma | listen::Transport::VfioUser => Trouble::Transfer,
        }
    }

    /// What tells the reactor that there is something.
    pub(crate) fn notifier(&self) -> Notifier<'_> {
        self.transport.ask(|transport| transport.notifier())
    }

    /// Whether the bell, of either kind, has rung once for what has come: who did not look then is
    /// not told again.
    pub(crate) fn rings_once(&self) -> bool {
        matches!(self.notifier(), Notifier::Bell | Notifier::ArmedBell)
    }

    /// Whether there is something to receive that its descriptor does not tell of.
    #[inline]
    pub(crate) fn has_received(&self) -> bool {
        self.transport.bytes().is_some_and(Bytes::has_received)
    }

    /// Whether it is to be looked at in every turn, until [`Link::arm`] has been successful.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        self.transport.polled().is_some_and(Polled::is_polled) && self.state != State::Gone
    }

    /// Has its descriptor or bell tell when there is something. `false`: there is something
    /// already.
    ///
    /// # Errors
    /// The connection has failed.
    pub(crate) fn arm(&mut self) -> Result<bool, End> {
        if !self.is_polled() {
            return Ok(true);
        }
        self.transport.polled_mut().map_or(Ok(true), Polled::arm)
    }

    /// Its bytes, if it is a stream of them.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Option<&mut impl Bytes> {
        self.transport.bytes_mut()
    }

    /// Its rings, if it is a queue in the memory of a host that is attached directly.
    #[inline]
    pub(crate) fn rings(&self) -> Option<&impl Rings> {
        self.transport.rings()
    }

    /// Whether it is such a queue.
    #[inline]
    pub(crate) fn is_ring(&self) -> bool {
        self.rings().is_some()
    }

    /// Whether both ends have agreed on how to talk.
    pub(crate) fn is_initialized(&self) -> bool {
        self.transport.ask(|transport| transport.is_initialized())
    }

    /// Adds the share of this turn to its credit, once per turn.
    pub(crate) fn take_share(&mut self, context: &ReactorContext<'_>) {
        self.credit.take_share(context);
    }

    /// `bytes` were received, or will be sent.
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.credit.charge(bytes);
    }

    /// What was charged since this was last asked, bytes.
    pub(crate) fn take_charged(&mut self) -> usize {
        self.credit.take_charged()
    }

    /// Whether something is left of its share of the turn.
    pub(crate) fn has_share(&self) -> bool {
        self.credit.is_left()
    }

    /// Whether it takes commands, or did so until it began to drain.
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

    /// It is a queue of a controller now, whose host may have to prove who it is.
    pub(crate) fn open(&mut self, opening: &Opening) {
        if let Some(messages) = self.transport.messages() {
            messages.open(opening);
        }
    }

    /// Its host is admitted.
    pub(crate) fn admit(&mut self, context: &ReactorContext<'_>) {
        if matches!(self.state, State::Handshake { .. }) {
            self.state = State::Open;
            self.waiting = None;
        }
        if let Some(bytes) = self.transport.bytes()
            && let Some((header, data)) = bytes.digests()
        {
            let agreed = Agreed { header_digest: header, data_digest: data, tls_records: bytes.tls_records() };
            context.shared.set_agreed(self.handle, agreed);
        }
    }

    /// Takes what is there, once, up to what is left of the share: data under way into their buffer
    /// where that pays, the rest into `scratch`. `None`: nothing is there.
    ///
    /// # Errors
    /// The peer has closed, or the connection has failed.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        context: &ReactorContext<'_>,
    ) -> Result<Option<Received>, End> {
        let limit = self.credit.receive_max();
        let received = match (self.state, self.transport.bytes_mut()) {
            (State::Closing { .. }, Some(bytes)) => bytes.discard(limit, scratch)?,
            (State::Closing { .. }, None) => None,
            _ => self.transport.with(|transport| transport.receive(limit, scratch))?,
        };
        let Some(received) = received else { return Ok(None) };
        self.charge(received.total);
        self.last_received_ms = context.now_ms;
        Ok(Some(received))
    }

    /// How much was received and waits for room, in bytes or messages.
    pub(crate) fn unparsed(&self) -> usize {
        self.transport.ask(|transport| transport.unparsed())
    }

    /// Bytes that wait to be sent.
    #[inline]
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.transport.ask(|transport| transport.unsent_bytes())
    }

    /// Whether something received waits for room.
    pub(crate) fn is_stalled(&self) -> bool {
        self.unparsed() > 0
    }

    /// Whether nothing is received until there is room for what was received before.
    pub(crate) fn is_shut(&self) -> bool {
        self.is_stalled() && !self.transport.receives_when_stalled()
    }

    /// Whether data of the host are awaited that come behind what was received: then everything is
    /// received and taken on.
    #[inline]
    pub(crate) fn awaits_data(&self) -> bool {
        self.transport.bytes().is_some_and(Bytes::awaits_data)
    }

    /// Whether the next event may be a command that has come.
    #[inline]
    pub(crate) fn is_at_command(&self, input: &[u8]) -> bool {
        self.transport.ask(|transport| transport.is_at_command(input))
    }

    /// Takes `input` up to the next event. `None`: all of it is taken.
    ///
    /// # Errors
    /// The host broke the transport, or says that we did.
    #[inline]
    pub(crate) fn poll(&mut self, input: &mut &[u8], context: &mut ReactorContext<'_>) -> Result<Option<Event>, End> {
        // Not unwrapped on the way: an event has a command in it, which is not to be copied.
        let draining = self.state == State::Draining;
        let event = self.transport.with(|transport| transport.poll(input, draining));
        if let Ok(Some(Event::Progress { answered: true })) = event {
            self.mark_dirty(context);
        }
        event
    }

    /// The last command is dealt with: unused data in its capsule are dropped.
    #[inline]
    pub(crate) fn after_command(&mut self) {
        self.transport.with_capsules(|capsules| capsules.after_command());
    }

    /// The data in the capsule of the last command, if all of them have arrived.
    #[inline]
    pub(crate) fn take_inline<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Option<Inline<'s>> {
        self.transport.with_capsules(|capsules| capsules.take_inline(input)).flatten()
    }

    /// The memory of the host that holds a command's data, if devices can use it directly.
    #[inline]
    pub(crate) fn map(&mut self, pointer: &DataPointer, length: u32, way: Way) -> Mapping {
        self.rings().map_or(Mapping::None, |rings| rings.map(pointer, length, way))
    }

    /// Whether a command's data can be where its pointer says.
    ///
    /// # Errors
    /// The status of the command.
    #[inline]
    pub(crate) fn check(&mut self, pointer: &DataPointer, length: u32, way: Way) -> Result<(), Status> {
        self.rings().map_or(Ok(()), |rings| rings.check(pointer, length, way))
    }

    /// Changes the queues in the host's memory.
    ///
    /// # Errors
    /// The status of the command.
    pub(crate) fn change_rings(&mut self, task: &RingTask) -> Result<(), Status> {
        self.rings().map_or(Err(Status::INTERNAL_ERROR), |rings| rings.change(task))
    }

    /// Gets data of a command from the host, or those in the capsule of the last command.
    ///
    /// # Errors
    /// Too many are under way; the buffer comes back.
    pub(crate) fn fetch(&mut self, fetch: Fetch, context: &mut ReactorContext<'_>) -> Result<(), Buffer> {
        if !fetch.pointer.is_in_capsule() {
            self.mark_dirty(context);
        }
        self.transport.with(|transport| transport.fetch(fetch))
    }

    /// Gets no more data of the command in `slot`.
    pub(crate) fn stop_fetching(&mut self, cid: Cid, slot: u32) -> Stopped {
        self.transport.with(|transport| transport.stop_fetching(cid, slot))
    }

    /// Has what is queued sent at the end of the turn.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, context: &mut ReactorContext<'_>) {
        if !self.dirty {
            self.dirty = true;
            context.dirty.push_back(index_of(self.handle));
        }
    }

    /// As [`Link::respond`], for callers that flush anyway.
    pub(crate) fn push_response(&mut self, cqe: &Cqe) {
        self.transport.with(|transport| transport.respond(cqe));
    }

    /// Sends a completion.
    #[inline]
    pub(crate) fn respond(&mut self, cqe: &Cqe, context: &mut ReactorContext<'_>) {
        self.transport.with(|transport| transport.respond(cqe));
        self.mark_dirty(context);
    }

    /// A command has ended without a completion: the host has its entry of the Submission Queue
    /// back.
    pub(crate) fn withdraw(&mut self) {
        if let Some(messages) = self.transport.messages() {
            messages.withdraw();
        }
    }

    /// Whether there is room for the completion of another command.
    #[inline]
    pub(crate) fn has_completion_room(&self) -> bool {
        self.transport.ask(|transport| transport.has_completion_room())
    }

    /// Sends `data`, which did not come from a device, and the completion.
    pub(crate) fn send_bytes(&mut self, cid: Cid, data: &[u8], cqe: &Cqe, context: &mut ReactorContext<'_>) {
        self.transport.with(|transport| transport.send_bytes(cid, data, cqe));
        self.mark_dirty(context);
    }

    /// Sends the first `length` bytes of `buffer`, and the completion. The buffer goes back to the
    /// reactor's pool when they are sent, which is at once if they are few.
    pub(crate) fn send_buffer(
        &mut self,
        cid: Cid,
        buffer: Buffer,
        length: u32,
        cqe: &Cqe,
        context: &mut ReactorContext<'_>,
    ) {
        self.transport.with(|transport| transport.send_buffer(cid, buffer, length, cqe, context.pool));
        self.mark_dirty(context);
    }

    /// Memory of the link's own for `length` bytes of data, if it has any to spare: they are sent
    /// by [`Link::send_own`], to be called next.
    #[inline]
    pub(crate) fn own_memory(&mut self, length: u32) -> Option<&mut [u8]> {
        self.transport.own_memory()?.own_memory(length)
    }

    /// Sends the `length` bytes that were put into [`Link::own_memory`], and the completion.
    #[inline]
    pub(crate) fn send_own(&mut self, cid: Cid, length: u32, cqe: &Cqe, context: &mut ReactorContext<'_>) {
        let memory = self.transport.own_memory().expect("it was given out before");
        memory.send_own(cid, length, cqe);
        self.mark_dirty(context);
    }

    /// Whether [`Link::lend`] can be used.
    #[inline]
    pub(crate) fn lends(&self) -> bool {
        self.transport.lends()
    }

    /// Sends what `device`, whose bytes are in memory, holds when they are sent, and the
    /// completion.
    #[inline]
    pub(crate) fn lend(
        &mut self,
        cid: Cid,
        device: &Arc<dyn Device>,
        range: (u64, u32),
        cqe: &Cqe,
        context: &mut ReactorContext<'_>,
    ) {
        let lent = self.transport.with_lender(|lender| lender.lend(cid, device, range, cqe));
        lent.expect("whoever lends has asked whether it can be used");
        self.mark_dirty(context);
    }

    /// Whether the connection took no more at the last flush.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_since_ms.is_some()
    }

    /// Sends what is queued, up to the share of the turn.
    ///
    /// # Errors
    /// The connection has failed.
    pub(crate) fn flush(&mut self, context: &mut ReactorContext<'_>) -> Result<Flushed, End> {
        let before = self.transport.ask(|transport| transport.unsent_bytes());
        let flushed = self.transport.with(|transport| transport.flush(context))?;
        match flushed {
            Flushed::All | Flushed::Share => self.blocked_since_ms = None,
            Flushed::Blocked
                if self.blocked_since_ms.is_none()
                    || self.transport.ask(|transport| transport.unsent_bytes()) < before =>
            {
                self.blocked_since_ms = Some(context.now_ms);
            }
            Flushed::Blocked => {}
        }
        Ok(flushed)
    }

    /// Whether errors of the descriptor also tell which buffers were sent.
    pub(crate) fn reports_sent_by_errors(&self) -> bool {
        self.transport.error_queue().is_some()
    }

    /// Takes notifications about buffers that were sent without a copy. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn on_sent(&mut self, context: &mut ReactorContext<'_>) -> Result<bool, End> {
        self.transport.error_queue_mut().map_or(Ok(false), |queue| queue.on_sent(&self.peer, context))
    }

    /// What an error of the descriptor means; `None` when it was no failure.
    pub(crate) fn failure(&self) -> Option<End> {
        self.transport.error_queue().map_or(Some(End::PeerClosed), ErrorQueue::failure)
    }

    /// Asks whether a peer that seems to acknowledge nothing does so.
    pub(crate) fn look_at_stall(&mut self, now_ms: u64) {
        if let Some(sends) = self.transport.zero_copy_mut() {
            sends.look_at_stall(now_ms);
        }
    }

    /// Looks again at what is read of a connection that is gone.
    pub(crate) fn poll_release(&mut self, context: &mut ReactorContext<'_>) {
        if let Some(sends) = self.transport.zero_copy_mut() {
            sends.poll_release(&self.peer, context);
        }
    }

    /// Whether nothing of it is left: it is gone, and its buffers are not read any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.state == State::Gone && self.transport.zero_copy().and_then(ZeroCopy::settle_ms).is_none()
    }

    /// Whether the peer has closed its end or is gone, also where what it sent before is still to
    /// be taken.
    pub(crate) fn peer_is_gone(&mut self) -> bool {
        self.transport.with(|transport| transport.peer_is_gone())
    }

    /// What has become of a connection that the adapter has given up, now that its host has come
    /// back on another one.
    pub(crate) fn superseded(&self) -> Option<End> {
        self.transport.loss().map(End::CameBack)
    }

    /// When it must be looked at next although nothing happens, milliseconds of the target's clock.
    /// `is_owed`: the host has announced something that it has not sent.
    pub(crate) fn deadline_ms(&self, is_owed: bool) -> Option<u64> {
        let own = match self.state {
            State::Handshake { deadline_ms } | State::Closing { deadline_ms } => Some(deadline_ms),
            State::Open | State::Draining => None,
            State::Gone => return self.transport.zero_copy().and_then(ZeroCopy::settle_ms),
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
            _ => {
                let stalled = self.stalled_since_ms().filter(|since| since + STALLED_MS <= now_ms);
                stalled.map(|_| self.transport.loss().map_or(End::Stalled, End::Lost))
            }
        }
    }

    /// Since when the peer reads nothing of what is there for it: it may not hold our buffers for
    /// ever.
    fn stalled_since_ms(&self) -> Option<u64> {
        match (self.blocked_since_ms, self.transport.zero_copy().and_then(ZeroCopy::unacknowledged_since_ms)) {
            (Some(blocked), Some(unacknowledged)) => Some(blocked.min(unacknowledged)),
            (blocked, unacknowledged) => blocked.or(unacknowledged),
        }
    }

    /// Drops what has been received; `give` gets the buffers whose data do not come any more.
    pub(crate) fn drop_input(&mut self, mut give: impl FnMut(Buffer)) {
        self.transport.with(|transport| transport.drop_input(&mut give));
    }

    /// Asks the peer to close the connection, with the reason if the transport can express it. Its
    /// input is dropped before.
    pub(crate) fn start_closing(&mut self, end: &End, context: &mut ReactorContext<'_>) {
        let awaits_peer = self.transport.with(|transport| transport.start_closing(end, context.pool));
        self.blocked_since_ms = None;
        self.state =
            if awaits_peer { State::Closing { deadline_ms: context.now_ms + CLOSING_MS } } else { State::Gone };
    }

    /// Breaks the connection off. Buffers that are still read keep the link.
    pub(crate) fn close(&mut self, context: &mut ReactorContext<'_>) {
        self.transport.with(|transport| transport.close(&self.peer, context));
        self.blocked_since_ms = None;
        self.state = State::Gone;
    }

    /// Releases memory that a burst left behind.
    pub(crate) fn shrink(&mut self, pool: &mut Pool) {
        self.transport.with(|transport| transport.shrink(pool));
    }

    #[cfg(test)]
    pub(crate) fn tcp(&mut self) -> &mut Tcp {
        self.transport.tcp()
    }
}
