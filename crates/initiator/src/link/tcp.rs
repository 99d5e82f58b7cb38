//! The link over NVMe/TCP: the byte stream, the protocol state, received bytes that are not parsed,
//! the send queue, and the R2Ts whose data are not sent.
//!
//! Owns the socket, but no command's buffer. Identifies commands by their slots.

mod bulk;
mod connect;
mod secure;
mod send;
mod socket;
#[cfg(test)]
mod tests;
mod zerocopy;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;

use ebof_nvme::Sqe;
use ebof_sockets::Stream;
use ebof_tcp::host::{CommandData, Connection, Event, R2t};
use ebof_tcp::{FatalError, FatalStatus, Parameters};
use ebof_tls::RecordError;
use rustix::io::Errno;

pub(crate) use connect::connect;

use super::{DataDirection, LinkCompletion, Received, Transport};
use crate::command::data::{AdminData, IoBuffer};
use crate::command::slots::Slots;
use crate::command::small_commands::SmallCommands;
use crate::command::troubles::{Trouble, Troubles};
use crate::error::Loss;
use crate::wait::{Time, Watch};
use bulk::Bulk;
use send::SendQueue;
use zerocopy::ZeroCopy;

/// One connection.
pub(crate) struct Tcp {
    stream: Stream,
    connection: Connection,
    /// Data bytes that a command capsule may carry.
    in_capsule: usize,
    out: SendQueue,
    /// The most bytes that the run of `out` can have while the controller answers only commands
    /// that it has received.
    run_max: usize,
    /// R2Ts whose data are not completely in `out`.
    r2ts: VecDeque<R2t>,
    /// How many bytes of their data are under way.
    bulk: Bulk,
    /// Received and not yet parsed: `staging[start..end]`.
    staging: Box<[u8]>,
    start: usize,
    end: usize,
    /// Slot and buffer offset of the next data bytes.
    incoming: (u16, usize),
    /// Length of the last data PDU, which predicts the next.
    last_length: u32,
    /// The socket's send buffer is full.
    blocked: bool,
    initialized: Option<Parameters>,
    /// The first bytes received, to identify a peer that does not speak NVMe/TCP.
    first_bytes: Vec<u8>,
    /// The peer's protocol violation, if that ended the connection.
    fatal: Option<FatalError>,
    zerocopy: ZeroCopy,
    /// Where digest errors are counted, once there is a controller.
    troubles: Option<Arc<Troubles>>,
}

/// Bytes in the send queue above which R2T data wait: enough to keep a socket busy, and digests are
/// computed shortly before they are sent.
const SEND_AHEAD: usize = 1 << 20;
/// The same while small commands are sent too, because they wait behind what is queued.
const SEND_AHEAD_MIXED: usize = 128 << 10;
/// Room in the run for a command: its capsule's headers and digests, and data that are copied.
const RUN_PER_COMMAND: usize = SendQueue::COPY_MAX + 256;
/// The largest H2CData PDU, so that small commands can be sent between two of them.
const H2C_PIECE_MAX: usize = 128 << 10;
/// Bytes sent by one flush, so that receiving and other queues of the thread are served too.
const FLUSH_BYTES_MAX: usize = 1 << 20;
/// The same while small commands are sent too, on any queue of the controller.
const FLUSH_BYTES_MAX_MIXED: usize = 256 << 10;
/// Bytes of the receive buffer offered behind data that are received into a command's buffer: data
/// that land there have to be copied.
const STAGING_BEHIND_LARGE: usize = 8 << 10;
/// How many of the first bytes are kept.
const FIRST_BYTES_MAX: usize = 64;
/// Data PDUs from this size on are received into the command's buffer directly.
const LARGE: u32 = 32 << 10;

/// In-capsule data size before the controller is identified: only Fabrics commands are sent then,
/// which may always carry 8192 bytes.
const IN_CAPSULE_FIRST: usize = 8192;
/// The largest in-capsule data, whatever the controller offers: with R2T it controls the flow.
const IN_CAPSULE_MAX: usize = 1 << 20;

impl Tcp {
    /// A link over a new connection, with ICReq queued. `staging` is the size of the receive
    /// buffer.
    pub(crate) fn new(stream: Stream, mut connection: Connection, staging: usize) -> Self {
        let mut out = SendQueue::default();
        connection.send_ic_request(out.run());
        out.commit();
        Self {
            stream,
            connection,
            in_capsule: IN_CAPSULE_FIRST,
            out,
            run_max: SEND_AHEAD,
            r2ts: VecDeque::new(),
            bulk: Bulk::default(),
            staging: vec![0; staging].into_boxed_slice(),
            start: 0,
            end: 0,
            incoming: (0, 0),
            last_length: 0,
            blocked: false,
            initialized: None,
            first_bytes: Vec::new(),
            fatal: None,
            zerocopy: ZeroCopy::default(),
            troubles: None,
        }
    }

    /// Sends large payloads without a copy from now on: see [`ZeroCopy::enable`].
    fn enable_zerocopy(&mut self, min: u32, copied_max: u32) {
        self.zerocopy.enable(&self.stream, min, copied_max);
    }

    /// The negotiated parameters, after `ICResp`.
    pub(crate) fn initialized(&self) -> Option<Parameters> {
        self.initialized
    }

    fn submit_in_capsule<B: IoBuffer>(
        &mut self,
        sqe: &mut Sqe,
        index: u16,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
    ) {
        let payload = slots.data(index, lent).expect("a command with data for the controller has them");
        let trailer = self.connection.send_command(sqe, CommandData::InCapsule { payload }, self.out.run());
        if payload.len() <= SendQueue::COPY_MAX {
            self.out.run().extend_from_slice(payload);
        } else {
            let length = payload.len();
            let slot = slots.at(index);
            slot.unsent += 1;
            let pinned = slot.is_owner() && self.zerocopy.wants(slot.expected, length);
            self.out.payload(index, 0, length, pinned);
        }
        if let Some(digest) = trailer {
            self.out.run().extend_from_slice(&digest);
        }
        self.out.commit();
    }

    /// `length` bytes were received directly into the command's buffer. Returns their number.
    fn take_direct<B: IoBuffer>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
        length: usize,
    ) -> Result<usize, Loss> {
        let (index, offset) = self.incoming;
        let bytes = slots.data_mut(index, lent).and_then(|room| room.get(offset..offset + length));
        self.connection.data_received(bytes.ok_or_else(changed_length)?);
        self.incoming.1 += length;
        Ok(length)
    }

    /// Moves requested data (R2T) into the send queue, up to its limit.
    fn queue_requested_data<B: IoBuffer>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
        time: &Time,
    ) -> Result<(), Loss> {
        if self.r2ts.is_empty() {
            return Ok(());
        }
        let limit = self.bulk.limit(time.now_ms());
        let ahead = if limit.is_some() { SEND_AHEAD_MIXED } else { SEND_AHEAD };
        // Deviation: Linux' target (6.12) computes the data digest over the whole command, whatever
        // part of it a PDU has.
        let piece_max = if self.has_data_digest() { usize::MAX } else { H2C_PIECE_MAX };
        while self.out.queued() < ahead {
            let Some(at) = (match limit {
                Some(limit) => self.next_r2t(slots, limit),
                None => Some(0),
            }) else {
                return Ok(());
            };
            // Without a limit, the list may be empty.
            let Some(r2t) = self.r2ts.get_mut(at) else { return Ok(()) };
            // A command may end, with an error, before all its data were sent.
            let Some(index) = slots.find(r2t.cid).filter(|_| r2t.length > 0) else {
                self.r2ts.remove(at);
                continue;
            };
            let length = (self.connection.h2c_piece(r2t) as usize).min(piece_max);
            let offset = r2t.offset as usize;
            let bytes = slots.data(index, lent).and_then(|bytes| bytes.get(offset..offset + length));
            let payload = bytes.ok_or_else(changed_length)?;
            let trailer = self.connection.send_h2c_data(r2t, payload, self.out.run());
            let slot = slots.at(index);
            slot.unsent += 1;
            let pinned = slot.is_owner() && self.zerocopy.wants(slot.expected, length);
            self.out.payload(index, offset, length, pinned);
            self.bulk.queued(index, length);
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

    /// Adds an R2T. Before the list grows, those of commands that ended without their data are
    /// removed.
    fn add_r2t<B: IoBuffer>(&mut self, r2t: R2t, slots: &Slots<B>) {
        if self.r2ts.len() == self.r2ts.capacity() {
            self.r2ts.retain(|r2t| slots.find(r2t.cid).is_some());
        }
        self.r2ts.push_back(r2t);
    }

    /// Whether there is still something to send.
    fn has_more(&self) -> bool {
        self.out.queued() > 0 || !self.r2ts.is_empty()
    }

    /// Whether one flush has sent as much as it may.
    fn is_enough(&self, bytes: usize, time: &Time) -> bool {
        bytes >= FLUSH_BYTES_MAX || (bytes >= FLUSH_BYTES_MAX_MIXED && self.bulk.limit(time.now_ms()).is_some())
    }

    /// The first R2T whose data may be sent while at most `limit` bytes are to be under way.
    fn next_r2t<B: IoBuffer>(&self, slots: &mut Slots<B>, limit: usize) -> Option<usize> {
        self.r2ts.iter().position(|r2t| {
            let Some(index) = slots.find(r2t.cid).filter(|_| r2t.length > 0) else { return true };
            self.bulk.allows(index, slots.at(index).expected, limit)
        })
    }

    #[cold]
    fn note_digest_error(&self) {
        if let Some(troubles) = &self.troubles {
            troubles.note(Trouble::DataDigest);
        }
    }

    /// Sends H2CTermReq if that is possible without blocking.
    fn on_violation(&mut self, fatal: FatalError) -> Loss {
        let mut term = Vec::new();
        self.connection.send_term(&fatal, &mut term);
        // In the middle of another PDU it would be taken as data.
        if self.out.queued() == 0 {
            // The connection ends whether it is sent or not.
            let _ = self.stream.send(&[IoSlice::new(&term)], false);
        }
        let text = fatal.to_string().into();
        let loss = match fatal.status {
            FatalStatus::HeaderDigest => Loss::HeaderDigest(text),
            _ => Loss::Protocol(text),
        };
        self.fatal = Some(fatal);
        loss
    }
}

impl Transport for Tcp {
    fn set_slots(&mut self, slots: usize) {
        self.connection.set_queue_entries(slots);
        // R2T data are queued up to `SEND_AHEAD`, headers included.
        self.run_max = slots * RUN_PER_COMMAND + 2 * SEND_AHEAD;
        self.bulk.set_slots(slots);
    }

    fn set_in_capsule(&mut self, bytes: usize) {
        self.in_capsule = bytes.min(IN_CAPSULE_MAX);
    }

    fn share_small_commands(&mut self, small_commands: &Arc<SmallCommands>) {
        self.bulk.share(small_commands);
    }

    fn share_troubles(&mut self, troubles: &Arc<Troubles>) {
        self.troubles = Some(Arc::clone(troubles));
    }

    fn watch(&self) -> Watch<'_> {
        // Where there is something to receive that the descriptor does not tell of, nobody waits
        // for it: nearly always, the socket can be written to.
        Watch { descriptor: self.stream.descriptor(), blocked: self.blocked || self.stream.has_received() }
    }

    fn has_unsent(&self) -> bool {
        self.out.queued() > 0
    }

    fn has_received(&self) -> bool {
        self.stream.has_received()
    }

    fn has_unqueued_data(&self) -> bool {
        !self.r2ts.is_empty()
    }

    #[inline]
    fn submit<B: IoBuffer>(
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
            DataDirection::None => CommandData::None,
            DataDirection::ToHost => CommandData::Read { length },
            DataDirection::FromHost if length as usize > self.in_capsule => CommandData::Write { length },
            DataDirection::FromHost => {
                self.bulk.note_small_command(now_ms);
                return self.submit_in_capsule(sqe, index, slots, lent);
            }
        };
        if direction != DataDirection::FromHost {
            self.bulk.note_small_command(now_ms);
        }
        self.connection.send_command(sqe, transfer, self.out.run());
        self.out.commit();
    }

    fn flush<B: IoBuffer>(&mut self, slots: &mut Slots<B>, lent: &AdminData<'_>, time: &Time) -> Result<(), Loss> {
        // Commands leave their slots when they complete, so nothing else bounds the run if the
        // controller completes commands that it does not receive.
        if self.out.run().len() > self.run_max {
            return Err(Loss::Protocol("responses to commands that were not sent".into()));
        }
        let mut total = 0;
        loop {
            self.queue_requested_data(slots, lent, time)?;
            if self.out.queued() == 0 {
                self.blocked = false;
                return Ok(());
            }
            let mut gathered = [IoSlice::new(&[]); SendQueue::GATHER_MAX];
            let separate = self.zerocopy.may_send();
            let pin = separate && self.out.starts_pinned();
            let bytes = |slot| slots.data(slot, lent);
            let count = self.out.gather(bytes, &mut gathered, separate).ok_or_else(changed_length)?;
            let length: usize = gathered[..count].iter().map(|slice| slice.len()).sum();
            // The rest follows at once, so the kernel may delay an incomplete last segment.
            let more = length < self.out.queued();
            let sent = match self.zerocopy.send(&mut self.stream, &gathered[..count], pin, more) {
                Ok(sent) => sent,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => {
                        self.blocked = true;
                        return Ok(());
                    }
                    ErrorKind::Interrupted => continue,
                    // The peer may have sent C2HTermReq before it closed: the next receive reports
                    // that, or the end.
                    ErrorKind::BrokenPipe => return Ok(()),
                    _ => return Err(loss(&error)),
                },
            };
            let zerocopy = &mut self.zerocopy;
            self.out.advance(sent, |slot, is_pinned| {
                if !(is_pinned && zerocopy.keeps(slot)) {
                    slots.payload_sent(slot);
                }
            });
            total += sent;
            // The rest is sent when the socket is writable, possibly at once.
            if sent < length || (self.is_enough(total, time) && self.has_more()) {
                self.blocked = true;
                return Ok(());
            }
        }
    }

    fn receive<B: IoBuffer>(&mut self, slots: &mut Slots<B>, lent: &mut AdminData<'_>) -> Result<Received, Loss> {
        let (index, offset) = self.incoming;
        let wanted = self.connection.data_wanted();
        // Everything received before is parsed, so the receive buffer is empty.
        let behind = if self.last_length >= LARGE { STAGING_BEHIND_LARGE } else { usize::MAX };
        let limit = self.staging.len().min(behind);
        let room = if wanted == 0 {
            None
        } else {
            slots.data_mut(index, lent).and_then(|room| room.get_mut(offset..offset + wanted))
        };
        // A buffer whose length has changed has no room: its data are skipped in `poll`.
        let is_direct = room.is_some();
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
                _ => return Err(loss(&error)),
            },
        };
        let direct = if is_direct { self.take_direct(slots, lent, wanted.min(read))? } else { 0 };
        self.start = 0;
        self.end = read - direct;
        if self.initialized.is_none() {
            let room = FIRST_BYTES_MAX - self.first_bytes.len();
            self.first_bytes.extend_from_slice(&self.staging[..self.end.min(room)]);
        }
        Ok(if read == capacity { Received::Full } else { Received::All })
    }

    // Inlined into the engine's `receive`, so that completions are passed in registers.
    #[inline(always)]
    fn poll<B: IoBuffer>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
        mut on_finished: impl FnMut(&mut Slots<B>, LinkCompletion),
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
                match slots.data_mut(index, lent).and_then(|room| room.get_mut(offset..offset + taken)) {
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
                    self.bulk.completed(index);
                    on_finished(slots, LinkCompletion { index, cqe, transferred });
                }
                Ok(Some(Event::Data { cid, offset, length })) => match slots.find(cid) {
                    Some(index) => {
                        self.incoming = (index, offset as usize);
                        self.last_length = length;
                    }
                    None => self.connection.skip_data(),
                },
                Ok(Some(Event::R2t(r2t))) => self.add_r2t(r2t, slots),
                Ok(Some(Event::Initialized(parameters))) => {
                    self.initialized = Some(parameters);
                    self.first_bytes = Vec::new();
                }
                // A wrong data digest is reported in the completion's status.
                Ok(Some(Event::DataEnd { digest_ok, .. })) => {
                    if !digest_ok {
                        self.note_digest_error();
                    }
                }
                Ok(Some(Event::TermReceived(termination))) => return Err(Loss::Terminated(termination)),
                Ok(None) if self.connection.data_wanted() > 0 => {}
                Ok(None) => return Ok(()),
                Err(fatal) => return Err(self.on_violation(fatal)),
            }
        }
    }

    fn allow_graceful_close(&mut self) {
        self.stream.allow_graceful_close();
    }

    fn reclaim<B>(&mut self, slots: &mut Slots<B>) -> Result<(), Loss> {
        self.zerocopy.collect(&self.stream, slots)
    }

    fn close<B>(mut self, slots: &mut Slots<B>) {
        self.zerocopy.drain(&self.stream, slots);
        self.stream.close();
    }
}

/// A caller's buffer changed its length (its `AsRef` is broken), so the announced PDU cannot be
/// sent.
fn changed_length() -> Loss {
    Loss::Protocol("a buffer of this host changed its length while it was in use".into())
}

/// Why a connection is lost that cannot be received from.
fn loss(error: &io::Error) -> Loss {
    match error.get_ref().and_then(|source| source.downcast_ref::<RecordError>()) {
        Some(wrong) => Loss::Protocol(wrong.to_string().into()),
        None => Loss::Network(errno(error)),
    }
}

/// The errno of an error. Errors of simulated streams have only a kind.
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
