//! What one connection has yet to send: headers in one arena, payloads by reference, gathered into one send.
//!
//! Owns order and short sends. Does not know PDUs: the transport core encodes headers straight into the arena.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use ebof_backend::Buffer;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::buffer::Pool;

/// Payloads up to this size are copied behind their header: below it an extra gather element costs more than the
/// copy.
pub(crate) const COPY_MAX: usize = 1024;

/// Most gather elements handed to one send: what the kernel takes at once (`IOV_MAX`).
const GATHER_MAX: usize = 1024;

/// Gather elements that suffice for nearly every flush, so that the array on the stack stays small.
const GATHER_FEW: usize = 64;

/// Sent bytes at the front of the arena from which on they are worth removing.
const COMPACT_MIN: usize = 64 << 10;

#[derive(Debug)]
enum Segment {
    /// The next `len` bytes of the arena.
    Arena { len: usize },
    /// `start..end` of a payload buffer, which goes back to the pool once sent.
    Payload { buffer: Buffer, start: usize, end: usize },
}

/// Bytes on their way to one socket.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    arena: Vec<u8>,
    /// First byte of the arena that is not sent yet.
    arena_start: usize,
    /// Arena bytes that already belong to a segment; what lies beyond was appended since.
    arena_sealed: usize,
    segments: VecDeque<Segment>,
    bytes: usize,
}

/// How a flush ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing is left.
    All,
    /// The socket takes no more now.
    Blocked,
}

impl Outbox {
    /// Where headers and small payloads are appended.
    pub(crate) fn arena(&mut self) -> &mut Vec<u8> {
        &mut self.arena
    }

    /// Appends `buffer[..len]` behind what was appended to the arena so far.
    pub(crate) fn push_payload(&mut self, buffer: Buffer, len: usize, pool: &mut Pool) {
        if len <= COPY_MAX {
            self.arena.extend_from_slice(&buffer.as_slice()[..len]);
            pool.put(buffer);
            return;
        }
        self.seal();
        self.bytes += len;
        self.segments.push_back(Segment::Payload { buffer, start: 0, end: len });
    }

    /// Bytes that wait to be sent.
    pub(crate) fn len(&self) -> usize {
        self.bytes + (self.arena.len() - self.arena_sealed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn seal(&mut self) {
        let len = self.arena.len() - self.arena_sealed;
        if len == 0 {
            return;
        }
        self.arena_sealed = self.arena.len();
        self.bytes += len;
        match self.segments.back_mut() {
            Some(Segment::Arena { len: last }) => *last += len,
            _ => self.segments.push_back(Segment::Arena { len }),
        }
    }

    /// Sends as much as the socket takes; spent payload buffers go back to `pool`.
    ///
    /// # Errors
    /// The socket's error, other than that it would block.
    pub(crate) fn flush(&mut self, socket: impl AsFd, pool: &mut Pool) -> io::Result<Flushed> {
        self.seal();
        while self.bytes > 0 {
            let sent = if self.segments.len() <= GATHER_FEW {
                self.send_some::<GATHER_FEW>(&socket)
            } else {
                self.send_some::<GATHER_MAX>(&socket)
            };
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.advance(sent, pool),
                Err(rustix::io::Errno::AGAIN) => return Ok(Flushed::Blocked),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Flushed::All)
    }

    fn send_some<const N: usize>(&self, socket: impl AsFd) -> rustix::io::Result<usize> {
        let mut gather = [IoSlice::new(&[]); N];
        let mut arena_at = self.arena_start;
        let mut used = 0;
        for (segment, slot) in self.segments.iter().zip(&mut gather) {
            *slot = match segment {
                Segment::Arena { len } => {
                    let slice = &self.arena[arena_at..arena_at + len];
                    arena_at += len;
                    IoSlice::new(slice)
                }
                Segment::Payload { buffer, start, end } => IoSlice::new(&buffer.as_slice()[*start..*end]),
            };
            used += 1;
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(socket, &gather[..used], &mut SendAncillaryBuffer::default(), flags)
    }

    fn advance(&mut self, mut sent: usize, pool: &mut Pool) {
        self.bytes -= sent;
        while sent > 0 {
            let Some(front) = self.segments.front_mut() else { break };
            let taken = match front {
                Segment::Arena { len } => {
                    let taken = sent.min(*len);
                    *len -= taken;
                    self.arena_start += taken;
                    (taken, *len == 0)
                }
                Segment::Payload { start, end, .. } => {
                    let taken = sent.min(*end - *start);
                    *start += taken;
                    (taken, start == end)
                }
            };
            sent -= taken.0;
            if taken.1
                && let Some(Segment::Payload { buffer, .. }) = self.segments.pop_front()
            {
                pool.put(buffer);
            }
        }
        if self.bytes == 0 && self.arena_sealed == self.arena.len() {
            self.arena.clear();
            self.arena_start = 0;
            self.arena_sealed = 0;
        } else if self.arena_start >= COMPACT_MIN && self.arena_start * 2 >= self.arena.len() {
            // A connection whose socket is never empty would otherwise keep every header it ever sent.
            self.arena.drain(..self.arena_start);
            self.arena_sealed -= self.arena_start;
            self.arena_start = 0;
        }
    }

    /// Drops everything unsent; payload buffers go back to `pool`.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        for segment in self.segments.drain(..) {
            if let Segment::Payload { buffer, .. } = segment {
                pool.put(buffer);
            }
        }
        self.arena = Vec::new();
        self.arena_start = 0;
        self.arena_sealed = 0;
        self.bytes = 0;
    }

    /// Gives back memory that a burst left behind; called when the connection is idle.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            self.arena = Vec::new();
            self.segments.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (a, listener.accept().unwrap().0)
    }

    #[test]
    fn headers_and_payloads_arrive_in_order_through_short_sends() {
        let (a, mut b) = pair();
        a.set_nonblocking(true).unwrap();
        let mut pool = Pool::new(64 << 20);
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for i in 0..3000_u32 {
            let head = i.to_le_bytes();
            outbox.arena().extend_from_slice(&head);
            expected.extend_from_slice(&head);
            let len = (i as usize * 37) % 9000;
            let mut buffer = pool.take(len.max(1)).unwrap();
            let byte = head[0];
            buffer.as_mut_slice()[..len].fill(byte);
            expected.extend(std::iter::repeat_n(byte, len));
            outbox.push_payload(buffer, len, &mut pool);
        }
        assert_eq!(outbox.len(), expected.len());
        let total = expected.len();
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; total];
            b.read_exact(&mut got).unwrap();
            got
        });
        let mut blocked = 0;
        while outbox.flush(&a, &mut pool).unwrap() == Flushed::Blocked {
            blocked += 1;
            let mut fds = [rustix::event::PollFd::new(&a, rustix::event::PollFlags::OUT)];
            rustix::event::poll(&mut fds, None).unwrap();
        }
        assert!(reader.join().unwrap() == expected, "bytes differ");
        assert!(blocked > 0, "the socket never filled: short sends were not tested");
        assert_eq!(pool.outstanding_bytes(), 0);
    }
}
