//! What one connection has yet to send: headers in one arena, payloads by reference, gathered into one send.
//!
//! Owns order and short sends. Does not know PDUs: the transport core encodes headers straight into the arena.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use ebof_backend::{Buffer, Device, Lent, PAGE_BYTES};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::buffer::Pool;

/// Payloads up to this size are copied behind their header: below it an extra gather element costs more than the
/// copy.
pub(crate) const COPY_MAX: usize = 1024;

/// Most gather elements handed to one send: what the kernel takes at once (`IOV_MAX`).
const GATHER_MAX: usize = 1024;

/// Gather elements that suffice for nearly every flush, so that little of the stack is touched.
const GATHER_FEW: usize = 64;

/// Sent bytes at the front of the arena from which on they are worth removing.
const COMPACT_MIN: usize = 64 << 10;

#[derive(Debug)]
enum Segment {
    /// The next `len` bytes of the arena.
    Arena { len: usize },
    /// `start..end` of a payload buffer, which goes back to the pool once sent.
    Payload { buffer: Buffer, start: usize, end: usize },
    /// Bytes of a device that has them in memory, read when they are sent.
    Lent { lender: usize, offset: u64, len: usize },
    /// `cut[start..end]`.
    Cut { start: usize, end: usize },
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
    /// The devices that segments refer to; empty when nothing is unsent.
    lenders: Vec<Arc<dyn Device>>,
    /// The rest of a device's page of which a send took the first part: a block must not be torn by a write in between.
    cut: Vec<u8>,
    bytes: usize,
}

/// How a flush ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing is left.
    All,
    /// The socket takes no more now.
    Blocked,
    /// As much was sent as the connection may send at once; the socket takes more.
    Share,
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

    /// Appends `len` bytes from `offset` of `device` behind what was appended to the arena so far. What is sent is what
    /// the device holds when it is sent, block for block. The device is [resident](Device::resident), and the range on it.
    pub(crate) fn push_lent(&mut self, device: &Arc<dyn Device>, offset: u64, len: usize) {
        if len <= COPY_MAX {
            self.copy_lent(device, offset, len);
            return;
        }
        self.seal();
        self.bytes += len;
        let known = self.lenders.iter().position(|lender| std::ptr::addr_eq(Arc::as_ptr(lender), Arc::as_ptr(device)));
        let lender = known.unwrap_or_else(|| {
            self.lenders.push(Arc::clone(device));
            self.lenders.len() - 1
        });
        self.segments.push_back(Segment::Lent { lender, offset, len });
    }

    /// As [`Outbox::push_lent`], but what is sent is what the device holds now; gives the bytes.
    pub(crate) fn copy_lent(&mut self, device: &Arc<dyn Device>, offset: u64, len: usize) -> &[u8] {
        let start = self.arena.len();
        let mut left = len;
        let mut at = offset;
        while left > 0
            && let Some(lent) = device.resident().and_then(|resident| resident.lend(at, left, true))
        {
            let bytes = lent.as_ref();
            self.arena.extend_from_slice(bytes);
            left -= bytes.len();
            at += bytes.len() as u64;
        }
        &self.arena[start..]
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

    /// Sends as much as the socket takes, up to `share` bytes and what completes a segment; spent payload buffers go back to
    /// `pool`.
    ///
    /// # Errors
    /// The socket's error, other than that it would block.
    pub(crate) fn flush(&mut self, socket: impl AsFd, share: usize, pool: &mut Pool) -> io::Result<Flushed> {
        self.seal();
        let mut left = share;
        while self.bytes > 0 {
            if left == 0 {
                return Ok(Flushed::Share);
            }
            let sent = if self.segments.len() <= GATHER_FEW {
                self.send_some::<GATHER_FEW>(&socket, left)
            } else {
                self.send_some::<GATHER_MAX>(&socket, left)
            };
            match sent {
                Ok((0, _)) => return Err(io::ErrorKind::WriteZero.into()),
                Ok((sent, cut)) => {
                    left = left.saturating_sub(sent);
                    self.advance(sent, cut, pool);
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(Flushed::Blocked),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Flushed::All)
    }

    /// One send, of `share` bytes and what completes an element. Gives the bytes sent, and how many behind them are in `cut`
    /// now.
    fn send_some<const N: usize>(&mut self, socket: impl AsFd, share: usize) -> rustix::io::Result<(usize, usize)> {
        let Self { arena, arena_start, segments, lenders, cut, bytes, .. } = self;
        let lent = if lenders.is_empty() { ArrayVec::<_, N>::new() } else { borrow(segments, lenders, share) };
        let mut loans = lent.iter();
        let mut gather = ArrayVec::<IoSlice<'_>, N>::new();
        let mut arena_at = *arena_start;
        let mut offered = 0;
        'gather: for segment in segments.iter() {
            if gather.is_full() || offered >= share {
                break;
            }
            match segment {
                Segment::Arena { len } => {
                    gather.push(IoSlice::new(&arena[arena_at..arena_at + len]));
                    arena_at += len;
                }
                Segment::Payload { buffer, start, end } => {
                    gather.push(IoSlice::new(&buffer.as_slice()[*start..*end]));
                }
                Segment::Cut { start, end } => gather.push(IoSlice::new(&cut[*start..*end])),
                Segment::Lent { len, .. } => {
                    let mut left = *len;
                    while left > 0 {
                        let Some(loan) = loans.next().filter(|_| !gather.is_full()) else { break 'gather };
                        left -= loan.as_ref().len();
                        offered += loan.as_ref().len();
                        gather.push(IoSlice::new(loan.as_ref()));
                        if offered >= share {
                            break 'gather;
                        }
                    }
                    continue;
                }
            }
            offered += gather.last().map_or(0, |slice| slice.len());
        }
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // What is left follows at once or in the next turn: the kernel may fill its last segment with it.
        flags.set(SendFlags::MORE, offered < *bytes);
        let sent = sendmsg(socket, &gather, &mut SendAncillaryBuffer::default(), flags)?;
        drop(gather);
        if sent == offered {
            return Ok((sent, 0));
        }
        let torn = torn(segments, &lent, sent).unwrap_or_default();
        if !torn.is_empty() {
            // A cut of before is sent: it stood in front of this one.
            cut.clear();
            cut.extend_from_slice(torn);
        }
        Ok((sent, torn.len()))
    }

    /// `sent` bytes are gone; the `cut_len` bytes behind them are now in `cut`.
    fn advance(&mut self, mut sent: usize, cut_len: usize, pool: &mut Pool) {
        self.bytes -= sent;
        while sent > 0 {
            let Some(front) = self.segments.front_mut() else { break };
            let (taken, spent) = match front {
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
                Segment::Lent { offset, len, .. } => {
                    let taken = sent.min(*len);
                    *offset += taken as u64;
                    *len -= taken;
                    (taken, *len == 0)
                }
                Segment::Cut { start, end } => {
                    let taken = sent.min(*end - *start);
                    *start += taken;
                    (taken, start == end)
                }
            };
            sent -= taken;
            if spent && let Some(Segment::Payload { buffer, .. }) = self.segments.pop_front() {
                pool.put(buffer);
            }
        }
        if cut_len > 0
            && let Some(Segment::Lent { offset, len, .. }) = self.segments.front_mut()
        {
            *offset += cut_len as u64;
            *len -= cut_len;
            if *len == 0 {
                self.segments.pop_front();
            }
            self.segments.push_front(Segment::Cut { start: 0, end: cut_len });
        }
        if self.bytes == 0 {
            self.lenders.clear();
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
        self.lenders = Vec::new();
        self.cut = Vec::new();
        self.bytes = 0;
    }

    /// Gives back memory that a burst left behind; called when the connection is idle.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            self.arena = Vec::new();
            self.segments.shrink_to_fit();
            self.lenders = Vec::new();
            self.cut = Vec::new();
        }
    }
}

/// Loans for as many of the lent segments, in order, as one send of `share` bytes may take and nobody is writing to. It waits for a writer only
/// while it holds no loan, and so never makes one wait that others wait for.
fn borrow<'a, const N: usize>(
    segments: &VecDeque<Segment>,
    lenders: &'a [Arc<dyn Device>],
    share: usize,
) -> ArrayVec<Lent<'a>, N> {
    let mut lent = ArrayVec::new();
    let mut others = 0;
    let mut offered = 0;
    for segment in segments {
        let Segment::Lent { lender, offset, len } = segment else {
            others += 1;
            continue;
        };
        let (mut at, mut left) = (*offset, *len);
        while left > 0 {
            if lent.len() + others >= N || offered >= share {
                return lent;
            }
            let resident = lenders.get(*lender).and_then(|device| device.resident());
            let Some(loan) = resident.and_then(|resident| resident.lend(at, left, lent.is_empty())) else {
                return lent;
            };
            left -= loan.as_ref().len();
            at += loan.as_ref().len() as u64;
            offered += loan.as_ref().len();
            lent.push(loan);
        }
    }
    lent
}

/// What is left of the page of a device that ends up on both sides of a send of `sent` bytes.
fn torn<'a>(segments: &VecDeque<Segment>, lent: &'a [Lent<'_>], sent: usize) -> Option<&'a [u8]> {
    let mut left = sent;
    let mut loans = lent.iter();
    for segment in segments {
        let (offset, len) = match segment {
            Segment::Lent { offset, len, .. } => (*offset, *len),
            Segment::Arena { len } => {
                left = left.checked_sub(*len)?;
                continue;
            }
            Segment::Payload { start, end, .. } | Segment::Cut { start, end } => {
                left = left.checked_sub(end - start)?;
                continue;
            }
        };
        let mut at = 0;
        while at < len {
            let piece = loans.next()?.as_ref();
            if left < piece.len() {
                let position = offset + (at + left) as u64;
                #[expect(clippy::cast_possible_truncation, reason = "less than a page")]
                let in_page = (position % PAGE_BYTES as u64) as usize;
                let begun = in_page > 0 && at + left > 0;
                return begun.then(|| &piece[left..(left + PAGE_BYTES - in_page).min(piece.len())]);
            }
            left -= piece.len();
            at += piece.len();
        }
    }
    None
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
    fn what_is_lent_arrives_whole_block_for_block_while_others_write() {
        let (a, mut b) = pair();
        a.set_nonblocking(true).unwrap();
        let device: Arc<dyn Device> = Arc::new(ebof_backend::Memory::new(4 << 20, 512, false));
        let blocks = (4 << 20) / 4096;
        let fill = |byte: u8, block: u64| device.resident().unwrap().store(block * 4096, &[byte; 4096]).unwrap();
        (0..blocks).for_each(|block| fill(1, block));
        let mut pool = Pool::new(1 << 20);
        let mut outbox = Outbox::default();
        let mut shape = Vec::new();
        let mut total = 0;
        for i in 0..400_usize {
            outbox.arena().extend_from_slice(&[9; 24]);
            let len = [4096, 512, 300 << 10, 8192][i % 4];
            let offset = (i * 7919 * 4096) % ((4 << 20) - len);
            outbox.push_lent(&device, (offset - offset % 4096) as u64, len);
            shape.push(len);
            total += 24 + len;
        }
        assert_eq!(outbox.len(), total);
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; total];
            b.read_exact(&mut got).unwrap();
            got
        });
        let stop = std::sync::atomic::AtomicBool::new(false);
        let mut cuts = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in (0..8_u8).cycle() {
                    (0..blocks).for_each(|block| fill(round, block));
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            });
            while outbox.flush(&a, usize::MAX, &mut pool).unwrap() == Flushed::Blocked {
                cuts += usize::from(matches!(outbox.segments.front(), Some(Segment::Cut { .. })));
                let mut fds = [rustix::event::PollFd::new(&a, rustix::event::PollFlags::OUT)];
                rustix::event::poll(&mut fds, None).unwrap();
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert!(cuts > 0, "no send ended inside a block: what this test is about did not happen");
        let got = reader.join().unwrap();
        let mut at = 0;
        for len in shape {
            assert_eq!(got[at..at + 24], [9; 24]);
            at += 24;
            for block in got[at..at + len].chunks(4096) {
                assert!(block.iter().all(|byte| *byte == block[0]), "a block is of two writes");
            }
            at += len;
        }
        assert!(outbox.is_empty() && outbox.lenders.is_empty());
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
        while outbox.flush(&a, usize::MAX, &mut pool).unwrap() == Flushed::Blocked {
            blocked += 1;
            let mut fds = [rustix::event::PollFd::new(&a, rustix::event::PollFlags::OUT)];
            rustix::event::poll(&mut fds, None).unwrap();
        }
        assert!(reader.join().unwrap() == expected, "bytes differ");
        assert!(blocked > 0, "the socket never filled: short sends were not tested");
        assert_eq!(pool.outstanding_bytes(), 0);
    }

    #[test]
    fn the_arena_of_a_socket_that_is_never_empty_stays_small() {
        let (a, mut b) = pair();
        a.set_nonblocking(true).unwrap();
        let mut pool = Pool::new(1 << 20);
        let mut outbox = Outbox::default();
        while outbox.flush(&a, usize::MAX, &mut pool).unwrap() != Flushed::Blocked {
            outbox.arena().extend_from_slice(&[7; 64 << 10]);
        }
        // The system's buffers grow for some time.
        outbox.arena().extend_from_slice(&vec![7; 16 << 20]);
        let mut piece = vec![0; 64 << 10];
        for _ in 0..2000 {
            outbox.arena().extend_from_slice(&[7; 64 << 10]);
            b.read_exact(&mut piece).unwrap();
            outbox.flush(&a, usize::MAX, &mut pool).unwrap();
            assert!(!outbox.is_empty(), "what this test is about did not happen");
        }
        let (kept, unsent) = (outbox.arena.capacity(), outbox.len());
        assert!(kept <= 4 * (16 << 20), "{kept} bytes for {unsent} unsent");
    }
}
