//! What is sent: data are gathered into records, which are sealed into one buffer and given to the
//! socket with one call.
//!
//! A record is sealed once. Where the socket takes only a part of them, the rest is kept as it is
//! and sent first at the next call, and the data in it are not taken from the caller again: those
//! are the first bytes that it gives then, because it was not told yet that they were taken
//! ([`Layer::send`](ebof_sockets::Layer::send)).

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::error::RecordError;
use super::half::Half;
use super::{HEADER_BYTES, KEY_UPDATE, PLAINTEXT_BYTES_MAX, TAG_BYTES, content};
use crate::alert::Alert;

/// The sending direction.
pub(super) struct Sender {
    half: Half,
    /// Blocks of the cipher that were used with the key, and how many may be.
    blocks: u64,
    blocks_max: u64,
    /// The peer wants this end's key changed before its next data.
    update_is_due: bool,
    /// Sealed, and not sent.
    kept: Vec<u8>,
    /// The records in `kept`.
    marks: VecDeque<Mark>,
    /// Data that the socket has taken, and the caller was not told of.
    untold: usize,
    /// Most data of one call; less where the socket took only parts before, so that little is kept.
    take_max: usize,
    /// Why nothing more is sent.
    ended: Option<RecordError>,
}

/// A record that is not sent completely.
#[derive(Clone, Copy)]
struct Mark {
    /// Bytes of it that are not sent.
    left: usize,
    /// Data in it.
    data: usize,
}

/// Most data that are sealed in one call.
const TAKE_MAX: usize = 256 << 10;
/// As many are, however little the socket takes: some records.
const TAKE_MIN: usize = 4 * PLAINTEXT_BYTES_MAX;
/// Memory that a thread keeps for sealing.
const SCRATCH_BYTES: usize = TAKE_MAX + (TAKE_MAX / PLAINTEXT_BYTES_MAX + 2) * (HEADER_BYTES + 1 + TAG_BYTES);

thread_local! {
    /// Where records are sealed. All connections of a thread use the same memory, so that it is in
    /// the processor's cache, and idle connections have none.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Sender {
    /// With a key for this many blocks.
    pub(super) fn new(half: Half, blocks_max: u64) -> Self {
        Self {
            half,
            blocks: 0,
            blocks_max,
            update_is_due: false,
            kept: Vec::new(),
            marks: VecDeque::new(),
            untold: 0,
            take_max: TAKE_MAX,
            ended: None,
        }
    }

    #[cfg(test)]
    pub(super) fn kept_capacity(&self) -> usize {
        self.kept.capacity()
    }

    /// The peer has asked for another key (RFC 8446, 4.6.3).
    pub(super) fn update_before_data(&mut self) {
        self.update_is_due = true;
    }

    pub(super) fn send(&mut self, socket: &TcpStream, parts: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        if let Some(fault) = self.ended {
            return Err(fault.into());
        }
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        if !self.kept.is_empty() {
            self.flush(socket, more)?;
        }
        let is_blocked = !self.kept.is_empty();
        if !is_blocked && offered > self.untold {
            self.send_new(socket, parts, more)?;
        }
        let told = self.untold.min(offered);
        self.untold -= told;
        if told == 0 && offered > 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(told) }
    }

    /// Seals what is behind the data that the socket has already, and sends it.
    fn send_new(&mut self, socket: &TcpStream, parts: &[IoSlice<'_>], more: bool) -> io::Result<()> {
        let mut scratch = SCRATCH.take();
        scratch.clear();
        let result = self.seal(&mut scratch, parts).map_err(io::Error::from).and_then(|is_all| {
            let sent = send(socket, &scratch, more || !is_all)?;
            self.account(sent);
            if sent < scratch.len() {
                self.kept = scratch[sent..].to_vec();
                self.take_max = (self.take_max / 2).max(TAKE_MIN);
            } else {
                self.take_max = (self.take_max * 2).min(TAKE_MAX);
            }
            Ok(())
        });
        SCRATCH.set(scratch);
        result.inspect_err(|_| self.ended = self.ended.or(Some(RecordError::Ended)))
    }

    /// Records of data behind those that are untold; whether they are all that there are.
    fn seal(&mut self, out: &mut Vec<u8>, parts: &[IoSlice<'_>]) -> Result<bool, RecordError> {
        let mut data = Gather::new(parts, self.untold);
        let mut left = self.take_max;
        while left > 0 && !data.is_empty() {
            if out.capacity() == 0 {
                out.reserve(SCRATCH_BYTES);
            }
            if self.update_is_due || self.blocks >= self.blocks_max {
                self.update(out)?;
            }
            let start = out.len();
            let mut taken = 0;
            self.half
                .seal(out, content::APPLICATION_DATA, |out| taken = data.take(left.min(PLAINTEXT_BYTES_MAX), out))?;
            left -= taken;
            self.mark(out.len() - start, taken);
        }
        Ok(data.is_empty())
    }

    /// RFC 8446, 4.6.3: the last record with the old key says so. The peer is not asked for the
    /// same: it counts for itself.
    fn update(&mut self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let start = out.len();
        self.half.seal(out, content::HANDSHAKE, |out| out.extend_from_slice(&[KEY_UPDATE, 0, 0, 1, 0]))?;
        self.mark(out.len() - start, 0);
        self.half.update()?;
        self.update_is_due = false;
        self.blocks = 0;
        Ok(())
    }

    fn mark(&mut self, bytes: usize, data: usize) {
        self.marks.push_back(Mark { left: bytes, data });
        // Those of the record, and GCM's own: one for the tag, one for a part of a block.
        self.blocks += bytes as u64 / 16 + 2;
    }

    /// The socket has taken this many bytes of the records.
    fn account(&mut self, mut sent: usize) {
        while let Some(mark) = self.marks.front_mut() {
            if sent < mark.left {
                mark.left -= sent;
                return;
            }
            sent -= mark.left;
            self.untold += mark.data;
            self.marks.pop_front();
        }
        assert!(sent == 0, "a socket takes no more than it is given, which is records with a mark each");
    }

    /// Sends what was kept, or a part of it.
    fn flush(&mut self, socket: &TcpStream, more: bool) -> io::Result<()> {
        let sent = send(socket, &self.kept, more).inspect_err(|_| self.ended = Some(RecordError::Ended))?;
        self.account(sent);
        if sent == self.kept.len() {
            self.kept = Vec::new();
        } else {
            self.kept.drain(..sent);
        }
        Ok(())
    }

    /// Sends an alert, if there is room for it; then nothing more is sent.
    pub(super) fn end(&mut self, socket: &TcpStream, alert: Alert) {
        if self.ended.replace(RecordError::Ended).is_some() {
            return;
        }
        let mut last = std::mem::take(&mut self.kept);
        if self.half.seal(&mut last, content::ALERT, |out| out.extend_from_slice(&alert.record())).is_ok() {
            let _ = send(socket, &last, false);
        }
    }
}

/// Gives bytes to the socket, and says how many it took. None if there is no room.
fn send(socket: &TcpStream, bytes: &[u8], more: bool) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    flags.set(SendFlags::MORE, more);
    loop {
        match rustix::net::send(socket, bytes, flags) {
            Ok(sent) => return Ok(sent),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The bytes of several parts, one behind the other.
struct Gather<'a, 'b> {
    parts: std::slice::Iter<'a, IoSlice<'b>>,
    first: &'a [u8],
}

impl<'a, 'b> Gather<'a, 'b> {
    fn new(parts: &'a [IoSlice<'b>], skip: usize) -> Self {
        let mut gather = Self { parts: parts.iter(), first: &[] };
        let mut left = skip;
        while left > 0 && !gather.is_empty() {
            left -= gather.next(left).len();
        }
        gather
    }

    fn is_empty(&mut self) -> bool {
        while self.first.is_empty() {
            let Some(next) = self.parts.next() else { return true };
            self.first = next;
        }
        false
    }

    /// At most this many bytes, of one part.
    fn next(&mut self, bytes_max: usize) -> &'a [u8] {
        let (next, rest) = self.first.split_at(bytes_max.min(self.first.len()));
        self.first = rest;
        next
    }

    /// Appends at most this many bytes, and says how many.
    fn take(&mut self, bytes_max: usize, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        while out.len() - start < bytes_max && !self.is_empty() {
            let next = self.next(bytes_max - (out.len() - start));
            out.extend_from_slice(next);
        }
        out.len() - start
    }
}
