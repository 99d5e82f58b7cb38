//! What is received: records are read from the socket in large pieces, and decrypted straight into
//! the caller's memory where they fit.

use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::ops::Range;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::control::{ControlRecords, PeerAsks};
use super::end::ReceiveEnd;
use super::error::RecordError;
use super::half::Half;
use super::sender::Sender;
use super::{CIPHERTEXT_BYTES_MAX, HEADER_BYTES, PLAINTEXT_BYTES_MAX, TAG_BYTES, content};
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
    control: ControlRecords,
    end: Option<ReceiveEnd>,
    /// The peer has closed the connection.
    is_closed: bool,
    /// What the peer is to be told.
    alert: Option<Alert>,
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
/// Records that are opened in one call. Where a peer sends many with little in them, others are
/// served before the next.
const RECORDS_MAX: u32 = 256;

impl Receiver {
    /// `received` were read from the socket before.
    pub(super) fn new(half: Half, received: Vec<u8>) -> Self {
        Self {
            half,
            buffer: received,
            next: 0,
            data: 0..0,
            control: ControlRecords::new(),
            end: None,
            is_closed: false,
            alert: None,
        }
    }

    /// Whether there is something that the socket does not tell of.
    pub(super) fn has_received(&self) -> bool {
        !self.data.is_empty() || self.end.map_or_else(|| self.has_record(), ReceiveEnd::is_news)
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity() + self.control.capacity()
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
            Some(end) => end.tell(),
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
        self.end = Some(ReceiveEnd::with(fault));
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
                self.end = Some(ReceiveEnd::default());
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
        let header = self.header().expect("`has_record` has seen it");
        let length = length(header)?;
        let body = self.next + HEADER_BYTES..self.next + HEADER_BYTES + length;
        self.next = body.end;
        let inner_bytes = length - TAG_BYTES;
        let record = match into.rest().filter(|rest| rest.len() >= inner_bytes && inner_bytes >= DIRECT_BYTES_MIN) {
            Some(rest) => {
                let plain = &mut rest[..inner_bytes];
                self.half.open_into(header, &self.buffer[body.clone()], plain)?;
                let (kind, bytes) = unpad(plain)?;
                self.control.check_order(kind)?;
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
                self.control.check_order(kind)?;
                self.data = body.start..body.start + bytes;
                if kind == content::APPLICATION_DATA && bytes > 0 { Record::Data } else { Record::Control { kind } }
            }
        };
        self.take_record(&record, sender)
    }

    /// What follows from a record. If it is no data, it is where data would be.
    fn take_record(&mut self, record: &Record, sender: &mut Sender) -> Result<(), RecordError> {
        let Record::Control { kind } = *record else {
            self.control.note_data();
            return Ok(());
        };
        let content = std::mem::take(&mut self.data);
        match self.control.take(kind, &self.buffer[content])? {
            PeerAsks::Nothing => {}
            PeerAsks::End => self.end = Some(ReceiveEnd::default()),
            PeerAsks::NextKey { from_both } => {
                if from_both {
                    sender.update_before_data();
                }
                self.half.update()?;
            }
        }
        Ok(())
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
