//! What is received: records are read from the socket in large pieces, and decrypted straight into
//! the caller's memory where they fit.

use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::ops::Range;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::error::RecordError;
use super::half::Half;
use super::sender::Sender;
use super::{CIPHERTEXT_BYTES_MAX, HEADER_BYTES, KEY_UPDATE, PLAINTEXT_BYTES_MAX, TAG_BYTES, content};
use crate::alert::Alert;

/// The receiving direction.
pub(super) struct Receiver {
    half: Half,
    /// Bytes of the socket. There is no memory for them while there are none.
    buffer: Vec<u8>,
    /// Where in it the next record begins.
    next: usize,
    /// Where in it data are that were decrypted in place.
    data: Range<usize>,
    /// The beginning of a handshake message.
    message: Vec<u8>,
    /// Records in a row without data.
    idle: u32,
    end: Option<End>,
    /// The peer has closed the connection.
    is_closed: bool,
    /// What the peer is to be told.
    alert: Option<Alert>,
}

/// How the stream ended.
#[derive(Clone, Copy)]
struct End {
    /// With an error.
    fault: Option<RecordError>,
    /// The caller knows.
    is_told: bool,
}

/// What a record was.
enum Record {
    /// Data, which are where they belong.
    Data,
    /// Something else.
    Control { kind: u8 },
}

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;
/// Records of less than this are decrypted in the buffer: what is no data should not be in the
/// caller's memory, and these are cheap to copy.
const DIRECT_BYTES_MIN: usize = 1 << 10;
/// Records in a row that may have no data, whatever else they have.
const IDLE_MAX: u32 = 32;
/// Records that are opened in one call. Where a peer sends many with little in them, others are
/// served before the next.
const RECORDS_MAX: u32 = 256;
/// Most bytes of a handshake message: tickets, which other libraries send, have some hundreds.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// RFC 8446, 4.6.1.
const NEW_SESSION_TICKET: u8 = 4;
/// RFC 8446, 4: msg_type and length.
const MESSAGE_HEADER_BYTES: usize = 4;

impl Receiver {
    /// `received` were read from the socket before.
    pub(super) fn new(half: Half, received: Vec<u8>) -> Self {
        Self {
            half,
            buffer: received,
            next: 0,
            data: 0..0,
            message: Vec::new(),
            idle: 0,
            end: None,
            is_closed: false,
            alert: None,
        }
    }

    /// Whether there is something that the socket does not tell of.
    pub(super) fn has_received(&self) -> bool {
        !self.data.is_empty() || self.end.map_or_else(|| self.has_record(), |end| !end.is_told)
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity() + self.message.capacity()
    }

    /// Whether the peer has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// An alert for the peer, once.
    pub(super) fn take_alert(&mut self) -> Option<Alert> {
        self.alert.take()
    }

    /// Fills `parts` with as much as there is.
    pub(super) fn receive(
        &mut self,
        socket: &TcpStream,
        parts: &mut [IoSliceMut<'_>],
        sender: &mut Sender,
    ) -> io::Result<usize> {
        let mut into = Scatter::new(parts);
        let outcome = self.fill(socket, &mut into, sender);
        self.release();
        if into.filled > 0 || into.is_full() {
            return Ok(into.filled);
        }
        outcome?;
        match &mut self.end {
            None => Err(io::ErrorKind::WouldBlock.into()),
            Some(end) => {
                end.is_told = true;
                end.fault.map_or(Ok(0), |fault| Err(fault.into()))
            }
        }
    }

    /// Until `into` is full, or there is nothing more. An error is the socket's.
    fn fill(&mut self, socket: &TcpStream, into: &mut Scatter<'_, '_>, sender: &mut Sender) -> io::Result<()> {
        let mut is_drained = false;
        let mut records = 0;
        while !into.is_full() {
            if !self.data.is_empty() {
                let taken = into.copy(&self.buffer[self.data.clone()]);
                self.data.start += taken;
            } else if self.end.is_some() {
                break;
            } else if self.has_record() {
                if records == RECORDS_MAX {
                    break;
                }
                records += 1;
                if let Err(fault) = self.open(into, sender) {
                    self.fail(fault);
                }
            } else if is_drained {
                break;
            } else {
                is_drained = self.read(socket)?;
            }
        }
        Ok(())
    }

    fn fail(&mut self, fault: RecordError) {
        // Nothing of the record that is refused is given out.
        self.data = 0..0;
        self.end = Some(End { fault: Some(fault), is_told: false });
        self.alert = fault.alert();
    }

    /// Reads once. Whether the socket had no more than that.
    fn read(&mut self, socket: &TcpStream) -> io::Result<bool> {
        if self.next > 0 {
            self.buffer.drain(..self.next);
            self.next = 0;
            self.data = 0..0;
        }
        self.buffer.reserve(READ_BYTES);
        let room = self.buffer.capacity() - self.buffer.len();
        match rustix::net::recv(socket, spare_capacity(&mut self.buffer), RecvFlags::DONTWAIT) {
            // Deviation: hosts (Linux) close a connection without close_notify. Where a stream was
            // cut is not lost: commands have ends of their own, and none is believed to be
            // complete.
            Ok((0, _)) => {
                self.is_closed = true;
                self.end = Some(End { fault: None, is_told: false });
            }
            Ok((count, _)) => return Ok(count < room),
            Err(Errno::INTR) => return Ok(false),
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Frees the memory of what is not needed any more.
    fn release(&mut self) {
        if !self.data.is_empty() {
            return;
        }
        if self.end.is_some() {
            self.next = self.buffer.len();
        }
        let rest = &self.buffer[self.next..];
        // Where there is a whole record, the caller's memory was full, and it comes back.
        if rest.len() < HEADER_BYTES + CIPHERTEXT_BYTES_MAX {
            self.buffer = rest.to_vec();
            self.next = 0;
            self.data = 0..0;
        }
    }

    /// The header of the next record.
    fn header(&self) -> Option<[u8; HEADER_BYTES]> {
        self.buffer.get(self.next..)?.first_chunk().copied()
    }

    /// Whether the next record is complete, or is wrong already.
    fn has_record(&self) -> bool {
        let Some(header) = self.header() else { return false };
        let complete = |length| self.buffer.len() - self.next >= HEADER_BYTES + length;
        length(header).map_or(true, complete)
    }

    /// Decrypts the next record, which is complete.
    fn open(&mut self, into: &mut Scatter<'_, '_>, sender: &mut Sender) -> Result<(), RecordError> {
        let Some(header) = self.header() else { return Ok(()) };
        let length = length(header)?;
        let body = self.next + HEADER_BYTES..self.next + HEADER_BYTES + length;
        self.next = body.end;
        let inner_bytes = length - TAG_BYTES;
        let record = match into.rest().filter(|rest| rest.len() >= inner_bytes && inner_bytes >= DIRECT_BYTES_MIN) {
            Some(rest) => {
                let plain = &mut rest[..inner_bytes];
                self.half.open_into(header, &self.buffer[body.clone()], plain)?;
                let (kind, bytes) = unpad(plain)?;
                self.check_order(kind)?;
                if kind == content::APPLICATION_DATA {
                    into.advance(bytes);
                    if bytes > 0 { Record::Data } else { Record::Control { kind } }
                } else {
                    self.buffer[body.start..body.start + bytes].copy_from_slice(&plain[..bytes]);
                    self.data = body.start..body.start + bytes;
                    Record::Control { kind }
                }
            }
            None => {
                let plain = self.half.open(header, &mut self.buffer[body.clone()])?;
                let (kind, bytes) = unpad(plain)?;
                self.check_order(kind)?;
                self.data = body.start..body.start + bytes;
                if kind == content::APPLICATION_DATA && bytes > 0 { Record::Data } else { Record::Control { kind } }
            }
        };
        self.take_record(&record, sender)
    }

    /// What follows from a record. If it is no data, it is where data would be.
    fn take_record(&mut self, record: &Record, sender: &mut Sender) -> Result<(), RecordError> {
        let Record::Control { kind } = *record else {
            self.idle = 0;
            return Ok(());
        };
        self.idle += 1;
        if self.idle > IDLE_MAX {
            return Err(RecordError::Flood { max: IDLE_MAX });
        }
        let control = std::mem::take(&mut self.data);
        match kind {
            content::APPLICATION_DATA => Ok(()),
            content::ALERT => self.take_alert_record(control),
            content::HANDSHAKE if control.is_empty() => Err(RecordError::Message { kind: 0 }),
            content::HANDSHAKE => self.take_messages(control, sender),
            kind => Err(RecordError::Record { kind }),
        }
    }

    /// RFC 8446, 5.1: nothing is between the parts of a message.
    fn check_order(&self, kind: u8) -> Result<(), RecordError> {
        if kind != content::HANDSHAKE && !self.message.is_empty() { Err(RecordError::Interleaved) } else { Ok(()) }
    }

    /// RFC 8446, 6: a level, which means nothing, and a description.
    fn take_alert_record(&mut self, record: Range<usize>) -> Result<(), RecordError> {
        let &[_level, description] = &self.buffer[record] else {
            return Err(RecordError::Malformed { kind: content::ALERT });
        };
        match Alert(description) {
            Alert::CLOSE_NOTIFY => self.end = Some(End { fault: None, is_told: false }),
            // It is followed by close_notify.
            Alert::USER_CANCELED => {}
            alert => return Err(RecordError::Alert(alert)),
        }
        Ok(())
    }

    fn take_messages(&mut self, record: Range<usize>, sender: &mut Sender) -> Result<(), RecordError> {
        self.message.extend_from_slice(&self.buffer[record]);
        while let Some(&[kind, high, middle, low]) = self.message.first_chunk() {
            let body = usize::from(high) * 0x1_0000 + usize::from(middle) * 0x100 + usize::from(low);
            let whole = MESSAGE_HEADER_BYTES + body;
            if !matches!(kind, NEW_SESSION_TICKET | KEY_UPDATE) {
                return Err(RecordError::Message { kind });
            }
            if whole > MESSAGE_BYTES_MAX || (kind == KEY_UPDATE && body != 1) {
                return Err(RecordError::Malformed { kind });
            }
            if self.message.len() < whole {
                break;
            }
            if kind == KEY_UPDATE {
                self.update(sender)?;
            }
            // Tickets are for sessions without the configured key.
            self.message.drain(..whole);
        }
        if self.message.is_empty() {
            self.message = Vec::new();
        }
        Ok(())
    }

    /// RFC 8446, 4.6.3.
    fn update(&mut self, sender: &mut Sender) -> Result<(), RecordError> {
        const KIND: RecordError = RecordError::Malformed { kind: KEY_UPDATE };
        // RFC 8446, 5.1: what follows has another key, and begins a record.
        let &[.., requested] = &self.message[..] else { return Err(KIND) };
        if self.message.len() != MESSAGE_HEADER_BYTES + 1 {
            return Err(KIND);
        }
        match requested {
            0 => {}
            1 => sender.update_before_data(),
            _ => return Err(KIND),
        }
        self.half.update()
    }
}

/// Bytes behind a record's header, if it is one that may come.
fn length(header: [u8; HEADER_BYTES]) -> Result<usize, RecordError> {
    let [kind, _, _, high, low] = header;
    // RFC 8446, 5: change_cipher_spec may come until the peer's Finished, which is past, and there
    // is nothing else in the clear.
    if kind != content::APPLICATION_DATA {
        return Err(RecordError::Record { kind });
    }
    let bytes = usize::from(u16::from_be_bytes([high, low]));
    // One byte at least is the type.
    match bytes {
        0..=TAG_BYTES => Err(RecordError::Decrypt),
        _ if bytes > CIPHERTEXT_BYTES_MAX => Err(RecordError::TooLong { bytes }),
        _ => Ok(bytes),
    }
}

/// Type and length of what is in a record (RFC 8446, 5.4).
fn unpad(inner: &[u8]) -> Result<(u8, usize), RecordError> {
    let bytes = inner.iter().rposition(|byte| *byte != 0).ok_or(RecordError::NoType)?;
    if bytes > PLAINTEXT_BYTES_MAX {
        return Err(RecordError::TooLong { bytes });
    }
    Ok((inner[bytes], bytes))
}

/// Several parts that are filled in their order.
struct Scatter<'a, 'b> {
    parts: &'a mut [IoSliceMut<'b>],
    /// The part, and the byte in it, that is next.
    part: usize,
    offset: usize,
    filled: usize,
}

impl<'a, 'b> Scatter<'a, 'b> {
    fn new(parts: &'a mut [IoSliceMut<'b>]) -> Self {
        let mut scatter = Self { parts, part: 0, offset: 0, filled: 0 };
        scatter.advance(0);
        scatter
    }

    fn is_full(&self) -> bool {
        self.part == self.parts.len()
    }

    /// What is left of the part that is next.
    fn rest(&mut self) -> Option<&mut [u8]> {
        self.parts.get_mut(self.part).map(|part| &mut part[self.offset..])
    }

    /// So many bytes of the part that is next are filled.
    fn advance(&mut self, bytes: usize) {
        self.filled += bytes;
        self.offset += bytes;
        while self.parts.get(self.part).is_some_and(|part| part.len() == self.offset) {
            self.part += 1;
            self.offset = 0;
        }
    }

    /// Copies as much of `bytes` as there is room for.
    fn copy(&mut self, mut bytes: &[u8]) -> usize {
        let all = bytes.len();
        while let Some(rest) = self.rest()
            && !bytes.is_empty()
        {
            let count = rest.len().min(bytes.len());
            let (now, later) = bytes.split_at(count);
            rest[..count].copy_from_slice(now);
            bytes = later;
            self.advance(count);
        }
        all - bytes.len()
    }
}
