//! NVMe/TCP: a stream, the transport core, what is received and not taken yet, and what waits to be
//! sent.
//!
//! Owns the stream and the buffers whose data are under way.

use std::io::{self, IoSliceMut};
use std::net::Shutdown;
#[cfg(test)]
use std::net::TcpStream;
#[cfg(test)]
use std::os::fd::AsFd as _;
use std::sync::Arc;

use ebof_backend::{Buffer, Device};
use ebof_nvme::{Cid, Cqe};
use ebof_sockets::Stream;
use ebof_tcp::controller::{Connection, Event as CoreEvent, InCapsule};

use super::event::AWAITED;
use super::message_queue::MessageQueue;
use super::outbox::Outbox;
use super::transport::{Bytes, Capsules, ErrorQueue, Lender, Messages, Notifier, Transport, ZeroCopy};
#[cfg(test)]
use super::zerocopy::AwaitingRelease;
use super::zerocopy::Unacknowledged;
use super::{End, Event, Fetch, Flushed, Inline, Opening, Received, Stopped};
use crate::ports::peer::Peer;
use crate::ports::port::PortState;
use crate::shared::buffer::Pool;
use crate::shared::reactor_context::ReactorContext;

/// Data of at least this size are received straight into their buffer.
const DIRECT_MIN: usize = 8 << 10;
/// A read into a buffer of at least this size takes only [`BEHIND_BYTES`] of what follows, and so
/// does the next one: more of it is likely to be the data of another such command, which would be
/// copied twice.
const LARGE_MIN: usize = 64 << 10;
/// Room for the header of the next PDU, and for a few small ones.
const BEHIND_BYTES: usize = 4 << 10;

/// A fetch, and whether what came of it so far was intact.
#[derive(Debug)]
struct Transfer {
    fetch: Fetch,
    is_intact: bool,
}

/// Data of a PDU that is being received: where the next byte goes, and where what the command needs
/// ends.
#[derive(Debug)]
struct Incoming {
    transfer: Transfer,
    at: usize,
    end: usize,
}

/// What is to happen to the data behind the last command in its capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InlineState {
    /// There are none, or they are taken.
    None,
    /// The command side has not asked for them yet.
    Unclaimed,
    /// They go to a buffer as they come.
    Claimed,
}

/// One connection's NVMe/TCP.
pub(crate) struct Tcp {
    stream: Stream,
    core: Connection,
    queue: MessageQueue,
    outbox: Outbox,
    /// Data that are asked for, and those that will come in a capsule.
    transfers: Vec<Transfer>,
    incoming: Option<Incoming>,
    /// The last payload was large, and nothing tells that the next is not.
    is_large: bool,
    inline: InlineState,
    /// Received bytes that cannot be taken yet, from `unparsed_from` on: the queue is full, or
    /// there is no buffer, or the share of the turn is used up.
    unparsed: Vec<u8>,
    unparsed_from: usize,
    unacknowledged: Unacknowledged,
}

impl Tcp {
    /// A connection that arrived at `port`. Where the port sends without a copy, it does so until
    /// the kernel has copied `copied_max` times in a row all the same.
    pub(crate) fn new(stream: Stream, port: &PortState, copied_max: u32) -> Self {
        let mut outbox = Outbox::default();
        if let Some(least) = port.config.zerocopy_send_bytes.filter(|_| stream.wire().is_some()) {
            outbox.pin_from(least, copied_max);
        }
        Self {
            stream,
            core: Connection::new(port.transport_config()),
            queue: MessageQueue::new(),
            outbox,
            transfers: Vec::new(),
            incoming: None,
            is_large: false,
            inline: InlineState::None,
            unparsed: Vec::new(),
            unparsed_from: 0,
            unacknowledged: Unacknowledged::default(),
        }
    }

    /// Whether payloads are sent without a copy.
    #[inline]
    pub(super) fn sends_without_copy(&self) -> bool {
        self.outbox.has_zerocopy()
    }

    /// One read of the socket; `None` where nothing is there.
    fn receive_with(
        &mut self,
        mut read: impl FnMut(&mut Self) -> io::Result<Received>,
    ) -> Result<Option<Received>, End> {
        loop {
            match read(self) {
                Ok(Received { total: 0, .. }) => return Err(End::PeerClosed),
                Ok(received) => return Ok(Some(received)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn read_scratch(&mut self, scratch: &mut [u8]) -> io::Result<Received> {
        let total = self.stream.receive(scratch)?;
        Ok(Received { total, in_scratch: total, room: scratch.len() })
    }

    fn read(&mut self, limit: usize, scratch: &mut [u8]) -> io::Result<Received> {
        let all_wanted = self.core.data_wanted();
        let wanted = all_wanted.min(limit);
        if wanted >= DIRECT_MIN
            && let Some(incoming) = &mut self.incoming
            && incoming.at + wanted <= incoming.end
        {
            let buffer = incoming.transfer.fetch.buffer.as_mut_slice();
            self.is_large = buffer.len() >= LARGE_MIN;
            let room_behind = if self.is_large { scratch.len().min(BEHIND_BYTES) } else { scratch.len() };
            let target = &mut buffer[incoming.at..incoming.at + wanted];
            let behind = if wanted < all_wanted { 0 } else { room_behind };
            let scratch = &mut scratch[..behind];
            let room = target.len() + scratch.len();
            let mut parts = [IoSliceMut::new(target), IoSliceMut::new(scratch)];
            let total = self.stream.receive_parts(&mut parts)?;
            let direct = total.min(wanted);
            self.core.data_received(&target[..direct]);
            incoming.at += direct;
            return Ok(Received { total, in_scratch: total - direct, room });
        }
        let room = if self.is_large { scratch.len().min(BEHIND_BYTES) } else { scratch.len() };
        let received = self.read_scratch(&mut scratch[..room])?;
        // Where more than that is there, and no large payload, the next read takes all.
        self.is_large &= received.total < room;
        Ok(received)
    }
}

/// The part of `scratch` that one read may fill.
fn within(scratch: &mut [u8], limit: usize) -> &mut [u8] {
    let room = scratch.len().min(limit);
    &mut scratch[..room]
}

impl Transport for Tcp {
    fn notifier(&self) -> Notifier<'_> {
        match self.stream.descriptor() {
            Some(descriptor) => Notifier::Descriptor(descriptor),
            None => Notifier::Simulated(self.stream.readiness().unwrap_or_default()),
        }
    }

    fn is_initialized(&self) -> bool {
        self.core.initialized().is_some()
    }

    fn receive(&mut self, limit: usize, scratch: &mut [u8]) -> Result<Option<Received>, End> {
        let scratch = within(scratch, limit);
        self.receive_with(|tcp| tcp.read(limit, scratch))
    }

    fn unparsed(&self) -> usize {
        self.unparsed.len() - self.unparsed_from
    }

    #[inline]
    fn is_at_command(&self, input: &[u8]) -> bool {
        let between_pdus = self.inline == InlineState::None && self.incoming.is_none() && self.core.data_wanted() == 0;
        between_pdus && !input.is_empty()
    }

    #[inline(always)]
    fn poll(&mut self, input: &mut &[u8], draining: bool) -> Result<Option<Event>, End> {
        let mut answered = false;
        // Not unwrapped before: a command is copied once on the way.
        match self.core.poll_event(input) {
            Err(error) => return Err(error.into()),
            Ok(None) => return Ok(None),
            Ok(Some(CoreEvent::Command { sqe, in_capsule })) if !draining => {
                self.inline = if in_capsule > 0 { InlineState::Unclaimed } else { InlineState::None };
                return Ok(Some(Event::Command { sqe, in_capsule }));
            }
            Ok(Some(CoreEvent::Command { in_capsule, .. })) => {
                if in_capsule > 0 {
                    self.core.skip_data();
                }
            }
            Ok(Some(CoreEvent::Initialized(_))) => {
                self.core.send_ic_response(self.outbox.arena());
                answered = true;
            }
            Ok(Some(CoreEvent::Data { cid, offset, .. })) => {
                self.inline = InlineState::None;
                // Data in a capsule that nobody claims are skipped, and the core takes no others
                // than a command is being asked for. No two of them have the same identifier.
                let at = self.transfers.iter().position(|transfer| transfer.fetch.cid == cid).expect(AWAITED);
                let transfer = self.transfers.swap_remove(at);
                let start = transfer.fetch.offset;
                let end = start + transfer.fetch.length as usize;
                self.incoming = Some(Incoming { transfer, at: start + offset as usize, end });
            }
            Ok(Some(CoreEvent::DataEnd { digest_ok, complete, .. })) => {
                let Incoming { mut transfer, .. } = self.incoming.take().expect("an end comes behind its data");
                transfer.is_intact &= digest_ok;
                let Fetch { cid, slot, .. } = transfer.fetch;
                if complete {
                    let buffer = transfer.fetch.buffer;
                    let is_intact = transfer.is_intact;
                    return Ok(Some(Event::Fetched { slot, buffer, is_intact }));
                }
                self.transfers.push(transfer);
                self.core.pump_r2t(cid, self.outbox.arena());
                answered = true;
            }
            Ok(Some(CoreEvent::TermReceived(termination))) => return Err(End::TermReceived(termination)),
        }
        Ok(Some(Event::Progress { answered }))
    }

    fn fetch(&mut self, fetch: Fetch) -> Result<(), Buffer> {
        if fetch.pointer.is_in_capsule() {
            self.inline = InlineState::Claimed;
            self.transfers.push(Transfer { fetch, is_intact: true });
            return Ok(());
        }
        match self.core.request_data(fetch.cid, fetch.length, self.outbox.arena()) {
            Ok(()) => {
                self.transfers.push(Transfer { fetch, is_intact: true });
                Ok(())
            }
            Err(_) => Err(fetch.buffer),
        }
    }

    fn stop_fetching(&mut self, cid: Cid, slot: u32) -> Stopped {
        if self.core.stop_requesting(cid) {
            return Stopped::Arriving;
        }
        // What is in the middle of a PDU is on its way.
        let at = self.transfers.iter().position(|transfer| transfer.fetch.slot == slot).expect(AWAITED);
        Stopped::Ended(self.transfers.swap_remove(at).fetch.buffer)
    }

    #[inline]
    fn respond(&mut self, cqe: &Cqe) {
        self.core.send_response(&self.queue.complete(cqe), self.outbox.arena());
    }

    fn send_bytes(&mut self, cid: Cid, data: &[u8], cqe: &Cqe) {
        let success = self.core.success_allowed(cqe);
        let arena = self.outbox.arena();
        let trailer = self.core.send_data(cid, 0, data, true, success, arena);
        arena.extend_from_slice(data);
        arena.extend(trailer.iter().flatten());
        if !success {
            self.core.send_response(&self.queue.complete(cqe), arena);
        }
    }

    fn send_buffer(&mut self, cid: Cid, buffer: Buffer, length: u32, cqe: &Cqe, pool: &mut Pool) {
        let length = length as usize;
        let success = self.core.success_allowed(cqe);
        let payload = &buffer.as_slice()[..length];
        let trailer = self.core.send_data(cid, 0, payload, true, success, self.outbox.arena());
        self.outbox.push_payload(buffer, length, pool);
        self.outbox.arena().extend(trailer.iter().flatten());
        if !success {
            self.respond(cqe);
        }
    }

    #[inline]
    fn unsent_bytes(&self) -> usize {
        self.outbox.len()
    }

    fn flush(&mut self, context: &mut ReactorContext<'_>) -> Result<Flushed, End> {
        let before = self.outbox.len();
        let flushed = self.outbox.flush(&mut self.stream, context.share, context.pool)?;
        if self.sends_without_copy() {
            let is_progress = self.outbox.len() < before;
            self.unacknowledged.after_flush(&mut self.outbox, is_progress, context);
        }
        Ok(flushed)
    }

    fn drop_input(&mut self, give: &mut dyn FnMut(Buffer)) {
        self.unparsed = Vec::new();
        self.unparsed_from = 0;
        let incoming = self.incoming.take().map(|incoming| incoming.transfer);
        for transfer in self.transfers.drain(..).chain(incoming) {
            give(transfer.fetch.buffer);
        }
    }

    fn start_closing(&mut self, end: &End, pool: &mut Pool) -> bool {
        self.outbox.clear(pool);
        if let End::Fatal(error) = end {
            self.core.send_term(error, self.outbox.arena());
            // A peer that does not even take the TermReq is beyond help.
            let _ = self.outbox.flush(&mut self.stream, usize::MAX, pool);
        }
        self.stream.shutdown(Shutdown::Write);
        true
    }

    fn close(&mut self, peer: &Peer, context: &mut ReactorContext<'_>) {
        self.outbox.clear(context.pool);
        if self.outbox.is_pinning() {
            self.unacknowledged.let_go(&self.stream, &mut self.outbox, peer, context);
        }
        self.stream.shutdown(Shutdown::Both);
        self.unacknowledged.since_ms = None;
    }

    fn peer_is_gone(&mut self) -> bool {
        self.stream.peer_is_gone()
    }

    fn shrink(&mut self, _pool: &mut Pool) {
        self.outbox.shrink();
        self.unparsed.shrink_to_fit();
    }
}

impl Messages for Tcp {
    fn open(&mut self, opening: &Opening) {
        if let Some(bytes) = opening.in_capsule_bytes {
            self.core.set_in_capsule_bytes(bytes);
        }
        let submission_queue = opening.submission_queue;
        self.queue.open(submission_queue);
        self.core.set_queue(opening.id, submission_queue.entries.into());
        self.core.set_sq_flow_disabled(submission_queue.flow_disabled);
    }

    fn withdraw(&mut self) {
        self.queue.withdraw();
    }
}

impl Bytes for Tcp {
    fn digests(&self) -> Option<(bool, bool)> {
        self.core.initialized().map(|parameters| (parameters.header_digest, parameters.data_digest))
    }

    fn tls_records(&self) -> Option<&'static str> {
        self.stream.layer()
    }

    #[inline]
    fn awaits_data(&self) -> bool {
        !self.transfers.is_empty() || self.incoming.is_some()
    }

    #[inline]
    fn has_received(&self) -> bool {
        self.stream.has_received()
    }

    #[inline]
    fn place_data(&mut self, input: &mut &[u8]) {
        let wanted = self.core.data_wanted().min(input.len());
        if wanted == 0 {
            return;
        }
        let (chunk, rest) = input.split_at(wanted);
        if let Some(incoming) = &mut self.incoming {
            // More may come in a capsule than its command says.
            let needed = chunk.len().min(incoming.end.saturating_sub(incoming.at));
            let buffer = incoming.transfer.fetch.buffer.as_mut_slice();
            if let Some(target) = buffer.get_mut(incoming.at..incoming.at + needed) {
                target.copy_from_slice(&chunk[..needed]);
            }
            incoming.at += chunk.len();
        }
        self.core.data_received(chunk);
        *input = rest;
    }

    fn keep_unparsed(&mut self, bytes: &[u8]) {
        self.unparsed.extend_from_slice(bytes);
    }

    fn take_unparsed(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.unparsed), std::mem::take(&mut self.unparsed_from))
    }

    fn put_unparsed(&mut self, mut kept: Vec<u8>, left: usize) {
        self.unparsed_from = if left > 0 { kept.len() - left } else { 0 };
        if left == 0 {
            // It keeps its memory: the next turn may need it again.
            kept.clear();
        }
        self.unparsed = kept;
    }

    fn discard(&mut self, limit: usize, scratch: &mut [u8]) -> Result<Option<Received>, End> {
        let scratch = within(scratch, limit);
        let received = self.receive_with(|tcp| tcp.read_scratch(scratch))?;
        Ok(received.map(|received| Received { in_scratch: 0, ..received }))
    }
}

impl Capsules for Tcp {
    #[inline]
    fn after_command(&mut self) {
        if self.inline == InlineState::Unclaimed {
            self.inline = InlineState::None;
            self.core.skip_data();
        }
    }

    #[inline]
    fn take_inline<'s, 'i: 's>(&'s mut self, input: &mut &'i [u8]) -> Option<Inline<'s>> {
        let InCapsule { bytes, digest_ok: is_intact } = self.core.take_in_capsule(input)?;
        self.inline = InlineState::None;
        Some(Inline { bytes, is_intact })
    }
}

impl Lender for Tcp {
    #[inline(always)]
    fn lend(&mut self, cid: Cid, device: &Arc<dyn Device>, range: (u64, u32), cqe: &Cqe) {
        let (offset, length) = range;
        let success = self.core.success_allowed(cqe);
        self.core.send_data_header(cid, 0, length, true, success, self.outbox.arena());
        if self.core.uses_data_digest() || self.stream.has_layer() {
            // The digest is of the bytes as they are now, so those must be sent. A layer takes some
            // of them now and some later, in the middle of a block, too.
            let trailer = self.core.trailer(self.outbox.copy_lent(device, offset, length as usize));
            self.outbox.arena().extend(trailer.iter().flatten());
        } else {
            self.outbox.push_lent(device, offset, length as usize);
        }
        if !success {
            self.respond(cqe);
        }
    }
}

impl ErrorQueue for Tcp {
    fn on_sent(&mut self, peer: &Peer, context: &mut ReactorContext<'_>) -> Result<bool, End> {
        self.unacknowledged.on_notifications(&self.stream, &mut self.outbox, peer, context)
    }

    fn failure(&self) -> Option<End> {
        match self.stream.take_error() {
            Ok(None) => None,
            Ok(Some(error)) | Err(error) => Some(End::Socket(error)),
        }
    }
}

impl ZeroCopy for Tcp {
    fn unacknowledged_since_ms(&self) -> Option<u64> {
        self.unacknowledged.since_ms
    }

    fn look_at_stall(&mut self, now_ms: u64) {
        self.unacknowledged.look_at_acknowledged(&self.stream, now_ms);
    }

    fn poll_release(&mut self, peer: &Peer, context: &mut ReactorContext<'_>) {
        self.unacknowledged.poll_release(&self.stream, &mut self.outbox, peer, context);
    }

    fn settle_ms(&self) -> Option<u64> {
        self.unacknowledged.settling.map(|settling| settling.look_ms)
    }
}

#[cfg(test)]
impl Tcp {
    /// Whether everything is sent, and the kernel has buffers of it.
    pub(crate) fn holds_only_sent(&self) -> bool {
        self.outbox.is_empty() && self.outbox.is_pinning()
    }

    /// Ends as if a network card still read its buffers. Gives the socket.
    pub(crate) fn settle_from(&mut self, settling: AwaitingRelease) -> TcpStream {
        self.unacknowledged.settling = Some(settling);
        let wire = self.stream.wire().expect("it is a socket");
        wire.as_fd().try_clone_to_owned().expect("there are descriptors left").into()
    }
}
