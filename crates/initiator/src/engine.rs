//! One connection and the commands on it: the data path. Bytes go from the socket to the commands' buffers and back;
//! nothing here waits, knows what a controller is, or reconnects.

#[cfg(test)]
mod counted;
mod least;
#[cfg(test)]
mod mixed;
#[cfg(test)]
mod pair;
mod zerocopy;

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ebof_nvme::{Cqe, Sqe, Status};
use ebof_pinned::Pinned;
use ebof_tcp::host::{Connection, Event, R2t, Transfer};
use ebof_tcp::{FatalError, Parameters};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::data::{AdminData, Completion, Data};
use crate::error::{Error, Loss};
use crate::send::SendQueue;
use crate::slots::{Place, Slots};
use crate::wait::now_ms;

/// A connection with its commands.
pub(crate) struct Engine<B> {
    link: Option<Link>,
    slots: Slots<B>,
    /// Data bytes that a command capsule may carry.
    in_capsule: usize,
    /// Whether success with fewer data than asked for is an error for nearly every command (I/O queues): see [`least::least`].
    strict: bool,
    /// A command was answered with Invalid Namespace: what is known of the namespaces is out of date.
    namespace_missed: bool,
}

/// What goes with the connection.
struct Link {
    socket: OwnedFd,
    connection: Connection,
    out: SendQueue,
    /// R2Ts whose data are not all in `out` yet.
    requested: VecDeque<R2t>,
    /// Bytes sent, or queued, for R2Ts of commands that are not over.
    bulk: usize,
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

/// Bytes that may be queued for sending before more R2Ts are answered: enough to keep a socket busy, and the digest of a
/// piece is computed shortly before it is sent.
const SEND_AHEAD: usize = 1 << 20;
/// The same while small commands come too: they wait behind what is queued.
const SEND_AHEAD_MIXED: usize = 128 << 10;
/// Data of one H2CData PDU, at most: a small command can come in between two.
const H2C_PIECE_MAX: usize = 128 << 10;
/// While small commands come too, the data of a further command are sent only up to this many bytes of commands that are
/// not over: what is in the sockets of both ends cannot be overtaken.
const BULK_MIXED: usize = 512 << 10;
/// Sent in one go, at most: another queue of the same processor, and what was received meanwhile, shall get their turn.
const FLUSH_BYTES_MAX: usize = 1 << 20;
/// How long after a small command it is expected that more will come.
const MIXED_MS: u64 = 10;
/// Reads of the socket in one call of `receive`: another connection of the same thread shall get its turn.
const ROUNDS_MAX: usize = 64;
/// Staging offered behind data that go straight into a command's buffer. What lands there has to be copied.
const STAGING_BEHIND_LARGE: usize = 8 << 10;
/// First bytes of a stranger that are kept.
const FIRST_BYTES_MAX: usize = 64;
/// From this length on, the data of a PDU are worth receiving into the buffer itself.
const LARGE: u32 = 32 << 10;

impl<B: AsRef<[u8]> + AsMut<[u8]>> Engine<B> {
    /// An engine without a connection, for `limit` commands at once. `strict`: see the field.
    pub(crate) fn new(limit: u16, strict: bool) -> Self {
        Self { link: None, slots: Slots::new(limit), in_capsule: 8192, strict, namespace_missed: false }
    }

    /// Starts on a fresh connection with ICReq. `staging` bytes are received at once.
    pub(crate) fn start(&mut self, socket: OwnedFd, mut connection: Connection, staging: usize) {
        connection.set_queue_entries(self.slots.table());
        self.let_go();
        let mut out = SendQueue::default();
        connection.send_ic_request(out.run());
        out.commit();
        self.link = Some(Link {
            socket,
            connection,
            out,
            requested: VecDeque::new(),
            bulk: 0,
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
        });
        // Before Identify is read only Fabrics commands are sent, which always may carry 8192 bytes.
        self.in_capsule = 8192;
    }

    /// Data bytes that a command capsule may carry from now on.
    pub(crate) fn set_in_capsule(&mut self, bytes: usize) {
        self.in_capsule = bytes;
    }

    pub(crate) fn slots(&mut self) -> &mut Slots<B> {
        &mut self.slots
    }

    /// See [`Slots::next_deadline_ms`].
    pub(crate) fn next_deadline_ms(&self) -> u64 {
        self.slots.next_deadline_ms()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.in_flight()
    }

    pub(crate) fn limit(&self) -> usize {
        self.slots.limit()
    }

    /// The socket, while there is a connection.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(|link| link.socket.as_fd())
    }

    /// Whether the socket has to become writable before everything queued can be sent.
    pub(crate) fn is_blocked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.blocked)
    }

    /// Whether something is queued that the socket would take: flush before sleeping.
    pub(crate) fn has_unsent(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.blocked && link.out.queued() > 0)
    }

    /// What was agreed on, once `ICResp` has come.
    pub(crate) fn initialized(&self) -> Option<Parameters> {
        self.link.as_ref().and_then(|link| link.initialized)
    }

    /// The first bytes that came, at most 64, until `ICResp` was understood; and the violation, if there was one.
    pub(crate) fn evidence(&self) -> (Vec<u8>, Option<FatalError>) {
        self.link.as_ref().map_or((Vec::new(), None), |link| (link.first_bytes.clone(), link.fatal.clone()))
    }

    /// Queues a command with data of its own.
    pub(crate) fn submit(
        &mut self,
        sqe: Sqe,
        data: Data<B>,
        user: u64,
        timeout_ms: u64,
    ) -> Result<(), (Error, Data<B>)> {
        let length = match &data {
            Data::None => 0,
            Data::ToHost(buffer) | Data::FromHost(buffer) => buffer.as_ref().len(),
        };
        let Ok(length) = u32::try_from(length) else { return Err((Error::TooLarge { bytes: length }, data)) };
        let place = match data {
            Data::None => Place::None,
            Data::ToHost(buffer) => Place::ToHost(buffer),
            Data::FromHost(buffer) => Place::FromHost(buffer),
        };
        self.enqueue(sqe, place, length, user, timeout_ms, &AdminData::None).map_err(|place| {
            let data = match place {
                Place::ToHost(buffer) => Data::ToHost(buffer),
                Place::FromHost(buffer) => Data::FromHost(buffer),
                Place::None | Place::Lent { .. } => Data::None,
            };
            (Error::QueueFull, data)
        })
    }

    /// Queues a command whose data are `lent[start..start + length]`. The same buffer has to be lent to every call until the
    /// command is over.
    pub(crate) fn submit_lent(
        &mut self,
        sqe: Sqe,
        (start, length): (usize, u32),
        lent: &AdminData<'_>,
        user: u64,
        timeout_ms: u64,
    ) -> Result<(), Error> {
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let place = Place::Lent { start, length: bytes };
        self.enqueue(sqe, place, length, user, timeout_ms, lent).map_err(|_| Error::QueueFull)
    }

    /// On failure (the queue is full) the place comes back.
    fn enqueue(
        &mut self,
        mut sqe: Sqe,
        place: Place<B>,
        length: u32,
        user: u64,
        timeout_ms: u64,
        lent: &AdminData<'_>,
    ) -> Result<(), Place<B>> {
        let Some(link) = &mut self.link else { return Err(place) };
        let now_ms = now_ms();
        let index = self.slots.take(place, user, timeout_ms, now_ms)?;
        let slot = self.slots.at(index);
        sqe.cid = slot.cid.0.into();
        slot.expected = length;
        let to_host = match slot.place {
            Place::None => None,
            Place::ToHost(_) => Some(true),
            Place::FromHost(_) => Some(false),
            Place::Lent { .. } => match lent {
                AdminData::None => None,
                AdminData::ToHost(_) => Some(true),
                AdminData::FromHost(_) => Some(false),
            },
        };
        slot.least = least::least(self.strict, &sqe, length, to_host == Some(true));
        if to_host != Some(false) || length as usize <= self.in_capsule {
            link.small_ms = now_ms;
        }
        match to_host.filter(|_| length > 0) {
            None => {
                link.connection.send_command(&mut sqe, Transfer::None, link.out.run());
            }
            Some(true) => {
                link.connection.send_command(&mut sqe, Transfer::Read { length }, link.out.run());
            }
            Some(false) if length as usize > self.in_capsule => {
                link.connection.send_command(&mut sqe, Transfer::Write { length }, link.out.run());
            }
            Some(false) => self.send_in_capsule(&mut sqe, index, lent),
        }
        if let Some(link) = &mut self.link {
            link.out.commit();
        }
        Ok(())
    }

    fn send_in_capsule(&mut self, sqe: &mut Sqe, index: u16, lent: &AdminData<'_>) {
        let Some(link) = &mut self.link else { return };
        let payload = self.slots.bytes(index, lent).unwrap_or_default();
        let trailer = link.connection.send_command(sqe, Transfer::InCapsule { payload }, link.out.run());
        if payload.len() <= SendQueue::COPY_MAX {
            link.out.run().extend_from_slice(payload);
        } else {
            let (length, slot) = (payload.len(), self.slots.at(index));
            slot.unsent += 1;
            let pinned = slot.is_owner() && link.pins(slot.expected, length);
            link.out.payload(index, 0, length, pinned);
        }
        if let Some(digest) = trailer {
            link.out.run().extend_from_slice(&digest);
        }
    }

    /// Sends as much as the socket takes, and no more than is good for others.
    pub(crate) fn flush(&mut self, lent: &AdminData<'_>) -> Result<(), Loss> {
        let mut total = 0;
        loop {
            let Some(link) = &mut self.link else { return Ok(()) };
            link.answer_requests(&mut self.slots, lent)?;
            if link.out.queued() == 0 {
                link.blocked = false;
                return Ok(());
            }
            let mut gathered = [IoSlice::new(&[]); SendQueue::GATHER_MAX];
            let slots = &self.slots;
            let apart = link.pinned.as_ref().is_some_and(|pinned| pinned.may_send());
            let pin = apart && link.out.starts_pinned();
            let bytes = |slot| slots.bytes(slot, lent);
            let count = link.out.gather(bytes, &mut gathered, apart).ok_or_else(changed_length)?;
            let length: usize = gathered[..count].iter().map(|slice| slice.len()).sum();
            let mut control = SendAncillaryBuffer::default();
            let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            // What is left follows at once: the kernel may fill its last segment with it.
            flags.set(SendFlags::MORE, length < link.out.queued());
            let how = if pin { flags | ebof_pinned::FLAG } else { flags };
            let mut sent = rustix::net::sendmsg(&link.socket, &gathered[..count], &mut control, how);
            if let Some(pinned) = link.pinned.as_mut().filter(|_| pin) {
                match sent {
                    Ok(_) => pinned.note_send(),
                    // No room to remember the pages.
                    Err(Errno::NOBUFS) => {
                        sent = rustix::net::sendmsg(&link.socket, &gathered[..count], &mut control, flags);
                    }
                    Err(_) => {}
                }
            }
            let sent = match sent {
                Ok(sent) => sent,
                Err(Errno::AGAIN) => {
                    link.blocked = true;
                    return Ok(());
                }
                Err(Errno::INTR) => continue,
                // What the peer said before it closed is worth more than the broken pipe: the next receive finds it, or the end.
                Err(Errno::PIPE) => return Ok(()),
                Err(errno) => return Err(Loss::Network(errno)),
            };
            let slots = &mut self.slots;
            let pinned = &mut link.pinned;
            link.out.advance(sent, |slot, is_pinned| {
                let kept = pinned.as_mut().filter(|_| is_pinned).is_some_and(|pinned| pinned.finish(slot).is_none());
                if !kept {
                    slots.payload_sent(slot);
                }
            });
            total += sent;
            // The rest goes when the socket is writable, which it may be at once.
            if sent < length || (total >= FLUSH_BYTES_MAX && link.has_more()) {
                link.blocked = true;
                return Ok(());
            }
        }
    }

    /// Takes everything that the socket holds, and sends the data that were asked for in it: the caller may sleep
    /// afterwards.
    pub(crate) fn receive(&mut self, lent: &mut AdminData<'_>) -> Result<(), Loss> {
        if let Some(link) = &mut self.link {
            link.collect(&mut self.slots)?;
        }
        self.receive_all(lent)?;
        if self.link.as_ref().is_some_and(|link| !link.requested.is_empty()) { self.flush(lent) } else { Ok(()) }
    }

    fn receive_all(&mut self, lent: &mut AdminData<'_>) -> Result<(), Loss> {
        for _ in 0..ROUNDS_MAX {
            let Some(link) = &mut self.link else { return Ok(()) };
            let more = match link.fill(&mut self.slots, lent) {
                Ok(Filled::Nothing) => return Ok(()),
                Ok(Filled::Some) => false,
                Ok(Filled::All) => true,
                Err(loss) => return Err(loss),
            };
            self.parse(lent)?;
            if !more {
                return Ok(());
            }
        }
        Ok(())
    }

    fn parse(&mut self, lent: &mut AdminData<'_>) -> Result<(), Loss> {
        loop {
            let Some(link) = &mut self.link else { return Ok(()) };
            let input = &link.staging[link.start..link.end];
            let wanted = link.connection.data_wanted();
            if wanted > 0 {
                if input.is_empty() {
                    break;
                }
                let taken = wanted.min(input.len());
                let (index, offset) = link.incoming;
                match self.slots.room(index, lent).and_then(|room| room.get_mut(offset..offset + taken)) {
                    Some(room) => {
                        room.copy_from_slice(&input[..taken]);
                        link.connection.data_received(&input[..taken]);
                        link.incoming.1 += taken;
                        link.start += taken;
                    }
                    None => link.connection.skip_data(),
                }
                continue;
            }
            let mut rest = input;
            let event = link.connection.poll_event(&mut rest);
            link.start = link.end - rest.len();
            match event {
                Ok(Some(event)) => self.on_event(event)?,
                Ok(None) if link.connection.data_wanted() > 0 => {}
                Ok(None) => break,
                Err(fatal) => return Err(link.on_violation(fatal)),
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> Result<(), Loss> {
        let Some(link) = &mut self.link else { return Ok(()) };
        match event {
            Event::Initialized(parameters) => {
                link.initialized = Some(parameters);
                link.first_bytes = Vec::new();
            }
            Event::R2t(r2t) => link.requested.push_back(r2t),
            Event::Data { cid, offset, length } => {
                let Some(index) = self.slots.find(cid) else {
                    link.connection.skip_data();
                    return Ok(());
                };
                link.incoming = (index, offset as usize);
                link.last_length = length;
            }
            // A wrong digest comes back in the completion's status.
            Event::DataEnd { .. } => {}
            Event::Completion { cqe, transferred, .. } => self.on_completion(cqe, transferred),
            Event::TermReceived(termination) => return Err(Loss::Terminated(termination)),
        }
        Ok(())
    }

    fn on_completion(&mut self, cqe: Cqe, transferred: u32) {
        let Some(index) = self.slots.find(cqe.cid()) else { return };
        if let Some(link) = &mut self.link {
            link.bulk -= self.slots.at(index).bulk;
        }
        if !cqe.status().is_success() {
            self.namespace_missed |= cqe.status().is(Status::INVALID_NAMESPACE);
        }
        let missing = cqe.status().is_success() && transferred < self.slots.at(index).least;
        let result =
            if missing { Err(Error::Malformed("success although not all data were transferred")) } else { Ok(cqe) };
        self.slots.finish(index, result);
    }

    /// Whether a command was answered with Invalid Namespace since the last call.
    pub(crate) fn take_namespace_missed(&mut self) -> bool {
        std::mem::take(&mut self.namespace_missed)
    }

    /// The next command that is over.
    pub(crate) fn pop(&mut self) -> Option<Completion<B>> {
        self.slots.pop()
    }

    /// Gives the connection up: every command that is not over ends with `loss`.
    pub(crate) fn lose(&mut self, loss: &Loss) {
        self.let_go();
        self.slots.finish_all(&Error::Lost(loss.clone()));
    }
}

impl<B> Engine<B> {
    /// The peer has all that was sent: the end of the connection is no reset then, although there may be commands that wait for the
    /// peer.
    pub(crate) fn end_in_order(&self) {
        if let Some(link) = &self.link {
            // What is no TCP socket resets nothing.
            let _not_tcp = socket2::SockRef::from(&link.socket).set_linger(None);
        }
    }
}

enum Filled {
    /// The socket holds nothing.
    Nothing,
    /// It held less than there was room for, so it is empty.
    Some,
    /// It may hold more.
    All,
}

impl Link {
    /// One read of the socket: into the buffer that the next data belong to, then into staging.
    fn fill<B: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
    ) -> Result<Filled, Loss> {
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
                (rustix::io::readv(&self.socket, &mut into), capacity)
            }
            None => {
                let into = &mut self.staging[..limit];
                let capacity = into.len();
                (rustix::net::recv(&self.socket, into, RecvFlags::DONTWAIT).map(|(read, _)| read), capacity)
            }
        };
        let read = match read {
            Ok(0) => return Err(Loss::Closed),
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Filled::Nothing),
            Err(errno) => return Err(Loss::Network(errno)),
        };
        let direct = if wanted == 0 { 0 } else { self.take_direct(slots, lent, wanted.min(read)) };
        (self.start, self.end) = (0, read - direct);
        if self.initialized.is_none() {
            let room = FIRST_BYTES_MAX.saturating_sub(self.first_bytes.len());
            self.first_bytes.extend_from_slice(&self.staging[..self.end.min(room)]);
        }
        Ok(if read == capacity { Filled::All } else { Filled::Some })
    }

    /// `length` bytes were received straight into their place (0 when the read went to staging only).
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
    ) -> Result<(), Loss> {
        if self.requested.is_empty() {
            return Ok(());
        }
        let mixed = now_ms() < self.small_ms + MIXED_MS;
        let ahead = if mixed { SEND_AHEAD_MIXED } else { SEND_AHEAD };
        // Deviation: Linux' target (6.12) computes the data digest over the whole command, whatever part of it a PDU has.
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
            slot.bulk += length;
            let pinned = slot.is_owner() && self.pins(slot.expected, length);
            self.out.payload(index, offset, length, pinned);
            self.bulk += length;
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

    /// The first R2T that may be answered while small commands come too: of a command that was begun, or of another
    /// where few data are under way.
    fn next_request<B: AsRef<[u8]> + AsMut<[u8]>>(&self, slots: &mut Slots<B>) -> Option<usize> {
        self.requested.iter().position(|r2t| {
            let Some(index) = slots.find(r2t.cid).filter(|_| r2t.length > 0) else { return true };
            let slot = slots.at(index);
            slot.bulk > 0 || self.bulk == 0 || self.bulk + slot.expected as usize <= BULK_MIXED
        })
    }

    /// Tells the peer what it did wrong, if that can be done without waiting.
    fn on_violation(&mut self, fatal: FatalError) -> Loss {
        let mut term = Vec::new();
        self.connection.send_term(&fatal, &mut term);
        // In the middle of another PDU it would be taken for data.
        if self.out.queued() == 0 {
            let _ = rustix::net::send(&self.socket, &term, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        let loss = Loss::Protocol(fatal.to_string().into());
        self.fatal = Some(fatal);
        loss
    }
}

/// A caller's buffer that has another length than before: its `AsRef` is broken, and the PDU that was announced cannot be sent.
fn changed_length() -> Loss {
    Loss::Protocol("a buffer of this host changed its length while it was in use".into())
}
