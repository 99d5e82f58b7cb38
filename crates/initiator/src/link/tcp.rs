//! The link over NVMe/TCP: a byte stream, the transport core, what is received and not taken yet,
//! what waits to be sent, and the data that the controller has asked for (R2T).
//!
//! Owns the socket, no buffer of a command, and knows no command but by its slot.

mod connect;
#[cfg(test)]
mod mixed;
mod send;
mod socket;
mod zerocopy;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::Shutdown;

use ebof_nvme::Sqe;
use ebof_pinned::Pinned;
use ebof_sockets::Stream;
use ebof_tcp::host::{Connection, Event, R2t, Transfer};
use ebof_tcp::{FatalError, Parameters};
use rustix::io::Errno;

pub(crate) use connect::connect;

use super::{DataDirection, Finished, Received, Transport};
use crate::data::AdminData;
use crate::error::Loss;
use crate::slots::Slots;
use crate::wait::{Time, Watch};
use send::SendQueue;

/// One connection.
pub(crate) struct Tcp {
    stream: Stream,
    connection: Connection,
    /// Data bytes that a command capsule may carry.
    in_capsule: usize,
    out: SendQueue,
    /// R2Ts whose data are not all in `out` yet.
    requested: VecDeque<R2t>,
    /// Bytes sent, or queued, for R2Ts of commands that are not over.
    bulk: usize,
    /// The same by slot.
    bulk_of: Box<[usize]>,
    /// When the last command without R2T was queued.
    small_ms: u64,
    /// Received and not yet parsed: `staging[start..end]`.
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    /// Where the next data bytes belong: slot and offset.
    incoming: (u16, usize),
    /// The length of the last data PDU, to guess the next.
    last_length: u32,
    /// The socket takes no more at the moment.
    blocked: bool,
    initialized: Option<Parameters>,
    /// The first bytes that ever came, to tell what is at the other end when it is not NVMe/TCP.
    first_bytes: Vec<u8>,
    /// What the peer did wrong, if that is how it ended.
    fatal: Option<FatalError>,
    /// Commands, by slot, whose data the kernel may still read, where data are sent without a copy.
    pinned: Option<Box<Pinned<u16>>>,
}

/// Bytes that may be queued for sending before more R2Ts are answered: enough to keep a socket
/// busy, and the digest of a piece is computed shortly before it is sent.
const SEND_AHEAD: usize = 1 << 20;
/// The same while small commands come too: they wait behind what is queued.
const SEND_AHEAD_MIXED: usize = 128 << 10;
/// Data of one H2CData PDU, at most: a small command can come in between two.
const H2C_PIECE_MAX: usize = 128 << 10;
/// While small commands come too, the data of a further command are sent only up to this many bytes
/// of commands that are not over: what is in the sockets of both ends cannot be overtaken.
const BULK_MIXED: usize = 512 << 10;
/// Sent in one go, at most: another queue of the same processor, and what was received meanwhile,
/// shall get their turn.
const FLUSH_BYTES_MAX: usize = 1 << 20;
/// How long after a small command it is expected that more will come.
const MIXED_MS: u64 = 10;
/// Staging offered behind data that go straight into a command's buffer. What lands there has to be
/// copied.
const STAGING_BEHIND_LARGE: usize = 8 << 10;
/// First bytes of a stranger that are kept.
const FIRST_BYTES_MAX: usize = 64;
/// From this length on, the data of a PDU are worth receiving into the buffer itself.
const LARGE: u32 = 32 << 10;

/// What a capsule carries before the controller is identified: only Fabrics commands are sent then,
/// which always may have 8192 bytes.
const IN_CAPSULE_FIRST: usize = 8192;
/// More than this goes by R2T, however much a controller claims to take in a capsule: it sets the
/// pace then.
const IN_CAPSULE_MAX: usize = 1 << 20;

impl Tcp {
    /// A link over a fresh connection, with ICReq queued. `staging` bytes are received at once.
    pub(crate) fn new(stream: Stream, mut connection: Connection, staging: usize) -> Self {
        let mut out = SendQueue::default();
        connection.send_ic_request(out.run());
        out.commit();
        Self {
            stream,
            connection,
            in_capsule: IN_CAPSULE_FIRST,
            out,
            requested: VecDeque::new(),
            bulk: 0,
            bulk_of: Box::default(),
            small_ms: 0,
            staging: vec![0; staging].into_boxed_slice(),
            start: 0,
            end: 0,
            incoming: (0, 0),
            last_length: 0,
            blocked: false,
            initialized: None,
            first_bytes: Vec::new(),
            fatal: None,
            pinned: None,
        }
    }

    /// What was agreed on, once `ICResp` has come.
    pub(crate) fn initialized(&self) -> Option<Parameters> {
        self.initialized
    }

    fn submit_in_capsule<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        sqe: &mut Sqe,
        index: u16,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
    ) {
        let payload = slots.bytes(index, lent).unwrap_or_default();
        let trailer = self.connection.send_command(sqe, Transfer::InCapsule { payload }, self.out.run());
        if payload.len() <= SendQueue::COPY_MAX {
            self.out.run().extend_from_slice(payload);
        } else {
            let (length, slot) = (payload.len(), slots.at(index));
            slot.unsent += 1;
            let pinned = slot.is_owner() && self.pins(slot.expected, length);
            self.out.payload(index, 0, length, pinned);
        }
        if let Some(digest) = trailer {
            self.out.run().extend_from_slice(&digest);
        }
        self.out.commit();
    }

    /// `length` bytes were received straight into their place (0 when the read went to staging
    /// only).
    fn take_direct<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
        length: usize,
    ) -> usize {
        let (index, offset) = self.incoming;
        let Some(bytes) = slots.room(index, lent).and_then(|room| room.get(offset..offset + length)) else { return 0 };
        self.connection.data_received(bytes);
        self.incoming.1 += length;
        length
    }

    /// Moves data that the controller asked for into the send queue, as far as it is worth it.
    fn answer_requests<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
        time: &Time,
    ) -> Result<(), Loss> {
        if self.requested.is_empty() {
            return Ok(());
        }
        let mixed = time.now_ms() < self.small_ms + MIXED_MS;
        let ahead = if mixed { SEND_AHEAD_MIXED } else { SEND_AHEAD };
        // Deviation: Linux' target (6.12) computes the data digest over the whole command, whatever
        // part of it a PDU has.
        let piece_max = if self.has_data_digest() { usize::MAX } else { H2C_PIECE_MAX };
        while self.out.queued() < ahead {
            let Some(at) = (if mixed { self.next_request(slots) } else { Some(0) }) else { return Ok(()) };
            let Some(r2t) = self.requested.get_mut(at) else { return Ok(()) };
            // A command may end, with an error, before all its data were sent.
            let Some(index) = slots.find(r2t.cid).filter(|_| r2t.length > 0) else {
                self.requested.remove(at);
                continue;
            };
            let length = (self.connection.h2c_piece(r2t) as usize).min(piece_max);
            let offset = r2t.offset as usize;
            let bytes = slots.bytes(index, lent).and_then(|bytes| bytes.get(offset..offset + length));
            let payload = bytes.ok_or_else(changed_length)?;
            let trailer = self.connection.send_h2c_data(r2t, payload, self.out.run());
            let slot = slots.at(index);
            slot.unsent += 1;
            let pinned = slot.is_owner() && self.pins(slot.expected, length);
            self.out.payload(index, offset, length, pinned);
            self.bulk += length;
            self.bulk_of[usize::from(index)] += length;
            if let Some(digest) = trailer {
                self.out.run().extend_from_slice(&digest);
            }
            self.out.commit();
        }
        Ok(())
    }

    fn has_data_digest(&self) -> bool {
        self.initialized.is_some_and(|parameters| parameters.data_digest)
    }

    /// Whether there is more to send than one flush has sent.
    fn has_more(&self) -> bool {
        self.out.queued() > 0 || !self.requested.is_empty()
    }

    /// The first R2T that may be answered while small commands come too: of a command that was
    /// begun, or of another where few data are under way.
    fn next_request<B: AsRef<[u8]> + AsMut<[u8]>>(&self, slots: &mut Slots<B>) -> Option<usize> {
        self.requested.iter().position(|r2t| {
            let Some(index) = slots.find(r2t.cid).filter(|_| r2t.length > 0) else { return true };
            let is_begun = self.bulk_of[usize::from(index)] > 0;
            is_begun || self.bulk == 0 || self.bulk + slots.at(index).expected as usize <= BULK_MIXED
        })
    }

    /// Tells the peer what it did wrong, if that can be done without waiting.
    fn on_violation(&mut self, fatal: FatalError) -> Loss {
        let mut term = Vec::new();
        self.connection.send_term(&fatal, &mut term);
        // In the middle of another PDU it would be taken for data.
        if self.out.queued() == 0 {
            let _ = self.stream.send(&[IoSlice::new(&term)], false);
        }
        let loss = Loss::Protocol(fatal.to_string().into());
        self.fatal = Some(fatal);
        loss
    }
}

impl Transport for Tcp {
    fn set_slots(&mut self, slots: usize) {
        self.connection.set_queue_entries(slots);
        self.bulk_of = vec![0; slots].into_boxed_slice();
    }

    fn set_in_capsule(&mut self, bytes: usize) {
        self.in_capsule = bytes.min(IN_CAPSULE_MAX);
    }

    fn watch(&self) -> Watch<'_> {
        Watch { descriptor: self.stream.descriptor(), blocked: self.blocked }
    }

    fn is_unsent(&self) -> bool {
        self.out.queued() > 0
    }

    fn owes_data(&self) -> bool {
        !self.requested.is_empty()
    }

    #[inline]
    fn submit<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        sqe: &mut Sqe,
        index: u16,
        direction: DataDirection,
        now_ms: u64,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
    ) {
        let length = slots.at(index).expected;
        let transfer = match direction {
            DataDirection::None => Transfer::None,
            DataDirection::ToHost => Transfer::Read { length },
            DataDirection::FromHost if length as usize > self.in_capsule => Transfer::Write { length },
            DataDirection::FromHost => {
                self.small_ms = now_ms;
                return self.submit_in_capsule(sqe, index, slots, lent);
            }
        };
        if direction != DataDirection::FromHost {
            self.small_ms = now_ms;
        }
        self.connection.send_command(sqe, transfer, self.out.run());
        self.out.commit();
    }

    fn flush<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
        time: &Time,
    ) -> Result<(), Loss> {
        let mut total = 0;
        loop {
            self.answer_requests(slots, lent, time)?;
            if self.out.queued() == 0 {
                self.blocked = false;
                return Ok(());
            }
            let mut gathered = [IoSlice::new(&[]); SendQueue::GATHER_MAX];
            let apart = self.pinned.as_ref().is_some_and(|pinned| pinned.may_send());
            let pin = apart && self.out.starts_pinned();
            let bytes = |slot| slots.bytes(slot, lent);
            let count = self.out.gather(bytes, &mut gathered, apart).ok_or_else(changed_length)?;
            let length: usize = gathered[..count].iter().map(|slice| slice.len()).sum();
            // What is left follows at once: the kernel may fill its last segment with it.
            let more = length < self.out.queued();
            let pinned = self.pinned.as_deref_mut().filter(|_| pin);
            let sent = match zerocopy::send(&mut self.stream, pinned, &gathered[..count], more) {
                Ok(sent) => sent,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => {
                        self.blocked = true;
                        return Ok(());
                    }
                    ErrorKind::Interrupted => continue,
                    // What the peer said before it closed is worth more than the broken pipe: the
                    // next receive finds it, or the end.
                    ErrorKind::BrokenPipe => return Ok(()),
                    _ => return Err(Loss::Network(errno(&error))),
                },
            };
            let pinned = &mut self.pinned;
            self.out.advance(sent, |slot, is_pinned| {
                let kept = pinned.as_mut().filter(|_| is_pinned).is_some_and(|pinned| pinned.finish(slot).is_none());
                if !kept {
                    slots.payload_sent(slot);
                }
            });
            total += sent;
            // The rest goes when the socket is writable, which it may be at once.
            if sent < length || (total >= FLUSH_BYTES_MAX && self.has_more()) {
                self.blocked = true;
                return Ok(());
            }
        }
    }

    fn receive<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
    ) -> Result<Received, Loss> {
        let (index, offset) = self.incoming;
        let wanted = self.connection.data_wanted();
        // All that was received before is parsed: staging is empty.
        let behind = if self.last_length >= LARGE { STAGING_BEHIND_LARGE } else { usize::MAX };
        let limit = self.staging.len().min(behind);
        let room = if wanted == 0 {
            None
        } else {
            slots.room(index, lent).and_then(|room| room.get_mut(offset..offset + wanted))
        };
        let (read, capacity) = match room {
            Some(room) => {
                let capacity = room.len() + limit;
                let mut into = [IoSliceMut::new(room), IoSliceMut::new(&mut self.staging[..limit])];
                (self.stream.receive_parts(&mut into), capacity)
            }
            None => {
                let into = &mut self.staging[..limit];
                let capacity = into.len();
                (self.stream.receive(into), capacity)
            }
        };
        let read = match read {
            Ok(0) => return Err(Loss::Closed),
            Ok(read) => read,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => return Ok(Received::Nothing),
                _ => return Err(Loss::Network(errno(&error))),
            },
        };
        let direct = if wanted == 0 { 0 } else { self.take_direct(slots, lent, wanted.min(read)) };
        (self.start, self.end) = (0, read - direct);
        if self.initialized.is_none() {
            let room = FIRST_BYTES_MAX.saturating_sub(self.first_bytes.len());
            self.first_bytes.extend_from_slice(&self.staging[..self.end.min(room)]);
        }
        Ok(if read == capacity { Received::Full } else { Received::All })
    }

    // One function with the engine's `receive`: ends of commands are not handed over in memory.
    #[inline(always)]
    fn poll<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
        mut on_finished: impl FnMut(&mut Slots<B>, Finished),
    ) -> Result<(), Loss> {
        loop {
            let input = &self.staging[self.start..self.end];
            let wanted = self.connection.data_wanted();
            if wanted > 0 {
                if input.is_empty() {
                    return Ok(());
                }
                let taken = wanted.min(input.len());
                let (index, offset) = self.incoming;
                match slots.room(index, lent).and_then(|room| room.get_mut(offset..offset + taken)) {
                    Some(room) => {
                        room.copy_from_slice(&input[..taken]);
                        self.connection.data_received(&input[..taken]);
                        self.incoming.1 += taken;
                        self.start += taken;
                    }
                    None => self.connection.skip_data(),
                }
                continue;
            }
            let mut rest = input;
            let event = self.connection.poll_event(&mut rest);
            self.start = self.end - rest.len();
            match event {
                Ok(Some(Event::Completion { cqe, transferred, .. })) => {
                    let Some(index) = slots.find(cqe.cid()) else { continue };
                    if self.bulk > 0 {
                        self.bulk -= std::mem::take(&mut self.bulk_of[usize::from(index)]);
                    }
                    on_finished(slots, Finished { index, cqe, transferred });
                }
                Ok(Some(Event::Data { cid, offset, length })) => match slots.find(cid) {
                    Some(index) => {
                        self.incoming = (index, offset as usize);
                        self.last_length = length;
                    }
                    None => self.connection.skip_data(),
                },
                Ok(Some(Event::R2t(r2t))) => self.requested.push_back(r2t),
                Ok(Some(Event::Initialized(parameters))) => {
                    self.initialized = Some(parameters);
                    self.first_bytes = Vec::new();
                }
                // A wrong digest comes back in the completion's status.
                Ok(Some(Event::DataEnd { .. })) => {}
                Ok(Some(Event::TermReceived(termination))) => return Err(Loss::Terminated(termination)),
                Ok(None) if self.connection.data_wanted() > 0 => {}
                Ok(None) => return Ok(()),
                Err(fatal) => return Err(self.on_violation(fatal)),
            }
        }
    }

    fn end_in_order(&mut self) {
        match self.stream.socket() {
            // What is no TCP socket resets nothing.
            Some(socket) => _ = socket2::SockRef::from(socket).set_linger(None),
            None => self.stream.shutdown(Shutdown::Write),
        }
    }

    fn reclaim<B>(&mut self, slots: &mut Slots<B>) -> Result<(), Loss> {
        self.collect(slots)
    }

    fn close<B>(mut self, slots: &mut Slots<B>) {
        self.unpin(slots);
        if self.stream.socket().is_none() {
            // A socket is closed by its drop.
            self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// A caller's buffer that has another length than before: its `AsRef` is broken, and the PDU that
/// was announced cannot be sent.
fn changed_length() -> Loss {
    Loss::Protocol("a buffer of this host changed its length while it was in use".into())
}

/// The system's number of an error; a simulated stream has only its kind.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(match error.kind() {
        ErrorKind::ConnectionRefused => Errno::CONNREFUSED,
        ErrorKind::ConnectionReset => Errno::CONNRESET,
        ErrorKind::TimedOut => Errno::TIMEDOUT,
        ErrorKind::HostUnreachable => Errno::HOSTUNREACH,
        ErrorKind::NetworkUnreachable => Errno::NETUNREACH,
        _ => Errno::IO,
    })
}
