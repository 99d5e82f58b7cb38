//! What one connection has yet to send: headers in one arena, payloads by reference, gathered into
//! one send.
//!
//! Owns order and short sends. Does not know PDUs: the transport core encodes headers straight into
//! the arena.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use ebof_backend::{Buffer, Device, Lent, PAGE_BYTES};
use ebof_pinned::Collected;
use ebof_sockets::Stream;

use super::Flushed;
use super::transport::{BLOCKS, IN_MEMORY};
use super::zerocopy::Zerocopy;
use crate::observe::sent::Fresh;
use crate::shared::buffer::Pool;

/// Payloads up to this size are copied behind their header: below it an extra gather element costs
/// more than the copy.
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
    /// The rest of a device's page of which a send took the first part: a block must not be torn by
    /// a write in between.
    cut: Vec<u8>,
    bytes: usize,
    /// Where large payloads are sent without a copy.
    zerocopy: Option<Box<Zerocopy>>,
}

/// What the next send is made of.
enum Part {
    /// The payload in front, without a copy.
    Pinned,
    /// As much of so many segments as fits.
    Gathered(usize),
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

    /// Appends `len` bytes from `offset` of `device` behind what was appended to the arena so far.
    /// What is sent is what the device holds when it is sent, block for block. The device is
    /// [resident](Device::resident), and the range on it.
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
        let resident = device.resident().expect(IN_MEMORY);
        let mut left = len;
        let mut at = offset;
        while left > 0 {
            let lent = resident.lend(at, left, true).expect(BLOCKS);
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

    /// Sends as much as the socket takes, up to `share` bytes and what completes a segment; spent
    /// payload buffers go back to `pool`.
    ///
    /// # Errors
    /// The socket's error, other than that it would block.
    pub(crate) fn flush(&mut self, stream: &mut Stream, share: usize, pool: &mut Pool) -> io::Result<Flushed> {
        self.seal();
        let mut left = share;
        while self.bytes > 0 {
            if left == 0 {
                return Ok(Flushed::Share);
            }
            let sent = match self.next_part() {
                Part::Pinned => self.send_pinned(stream),
                Part::Gathered(count) if count <= GATHER_FEW => self.send_some::<GATHER_FEW>(stream, left, count),
                Part::Gathered(count) => self.send_some::<GATHER_MAX>(stream, left, count),
            };
            match sent {
                Ok((0, _)) => return Err(io::ErrorKind::WriteZero.into()),
                Ok((sent, cut)) => {
                    left = left.saturating_sub(sent);
                    self.advance(sent, cut, pool);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flushed::Blocked),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }

    fn next_part(&self) -> Part {
        let Some(zerocopy) = &self.zerocopy else { return Part::Gathered(self.segments.len()) };
        // By the whole payload, also where some of it is sent.
        let pinned = |segment: &Segment| matches!(segment, Segment::Payload { end, .. } if zerocopy.pinned.wants(*end));
        match self.segments.iter().take(GATHER_MAX).position(pinned) {
            Some(0) => Part::Pinned,
            Some(before) => Part::Gathered(before),
            None => Part::Gathered(self.segments.len()),
        }
    }

    /// One send of the payload in front, without a copy; with one where the stream gives no leave,
    /// or the kernel has no room to remember its pages. Gives as [`Outbox::send_some`] does.
    fn send_pinned(&mut self, stream: &mut Stream) -> io::Result<(usize, usize)> {
        let (Some(Segment::Payload { buffer, start, end }), Some(zerocopy)) =
            (self.segments.front(), &mut self.zerocopy)
        else {
            unreachable!("a payload is in front, and payloads are sent without a copy, see `next_part`")
        };
        let payload = [IoSlice::new(&buffer.as_slice()[*start..*end])];
        let more = end - start < self.bytes;
        let Some(sent) = stream.send_pinned(&payload, more)? else {
            zerocopy.fresh.refused += 1;
            return Ok((stream.send(&payload, more)?, 0));
        };
        zerocopy.pinned.note_send();
        zerocopy.fresh.sends += 1;
        Ok((sent, 0))
    }

    /// One send of the first `count` segments, of `share` bytes and what completes an element.
    /// Gives the bytes sent, and how many behind them are in `cut` now.
    fn send_some<const N: usize>(
        &mut self,
        stream: &mut Stream,
        share: usize,
        count: usize,
    ) -> io::Result<(usize, usize)> {
        let Self { arena, arena_start, segments, lenders, cut, bytes, .. } = self;
        let lent =
            if lenders.is_empty() { ArrayVec::<_, N>::new() } else { borrow(segments.range(..count), lenders, share) };
        let mut loans = lent.iter();
        let mut gather = ArrayVec::<IoSlice<'_>, N>::new();
        let mut arena_at = *arena_start;
        let mut offered = 0;
        'gather: for segment in segments.range(..count) {
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
        // What is left follows at once or in the next turn: the kernel may fill its last segment
        // with it.
        let sent = stream.send(&gather, offered < *bytes)?;
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
        // No stream takes more than it is offered.
        self.bytes = self.bytes.checked_sub(sent).expect("no more is sent than there is");
        while sent > 0 {
            let front = self.segments.front_mut().expect("the count is that of the segments");
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
                give_back(&mut self.zerocopy, buffer, pool);
            }
        }
        if cut_len > 0 {
            let Some(Segment::Lent { offset, len, .. }) = self.segments.front_mut() else {
                unreachable!("what is cut is of the segment whose loan the send has ended in")
            };
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
            // A connection whose socket is never empty would otherwise keep every header it ever
            // sent.
            self.arena.drain(..self.arena_start);
            self.arena_sealed -= self.arena_start;
            self.arena_start = 0;
        }
    }

    /// Has payloads of `least` bytes and more sent without a copy, until the kernel has copied
    /// `copied_max` times in a row all the same. The socket is one that [`ebof_pinned::enable`] was
    /// called for.
    pub(crate) fn pin_from(&mut self, least: u32, copied_max: u32) {
        self.zerocopy = Some(Zerocopy::new(least, copied_max));
    }

    /// Whether payloads may be sent without a copy: then the socket's error events are not about
    /// errors alone.
    pub(crate) fn has_zerocopy(&self) -> bool {
        self.zerocopy.is_some()
    }

    /// Whether the kernel may still read payloads that are sent.
    pub(crate) fn is_pinning(&self) -> bool {
        self.zerocopy.as_ref().is_some_and(|zerocopy| zerocopy.pinned.is_waiting())
    }

    /// Takes the kernel's notifications about payloads; buffers that it has finished with go back
    /// to `pool`.
    ///
    /// # Errors
    /// The error queue cannot be read.
    pub(crate) fn collect(&mut self, socket: &impl AsFd, pool: &mut Pool) -> io::Result<Collected> {
        let Some(zerocopy) = &mut self.zerocopy else { return Ok(Collected::default()) };
        zerocopy.pinned.collect(socket, |buffer| pool.put(buffer))
    }

    /// What was counted since this was last asked.
    pub(crate) fn take_fresh(&mut self) -> Option<Fresh> {
        self.zerocopy.as_mut().map(|zerocopy| std::mem::take(&mut zerocopy.fresh))
    }

    /// Gives up buffers that the kernel does not return: their memory is not used again, and
    /// stays charged.
    pub(crate) fn leak(&mut self) {
        if let Some(zerocopy) = &mut self.zerocopy {
            zerocopy.pinned.leak();
        }
    }

    /// Drops everything unsent; payload buffers go back to `pool`, save those that the kernel may
    /// still read.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        for segment in self.segments.drain(..) {
            if let Segment::Payload { buffer, .. } = segment {
                give_back(&mut self.zerocopy, buffer, pool);
            }
        }
        self.arena = Vec::new();
        self.arena_start = 0;
        self.arena_sealed = 0;
        self.lenders = Vec::new();
        self.cut = Vec::new();
        self.bytes = 0;
    }

    /// Releases memory that a burst left behind; called when the connection is idle.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            self.arena = Vec::new();
            self.segments.shrink_to_fit();
            self.lenders = Vec::new();
            self.cut = Vec::new();
        }
    }
}

/// Nothing more of the payload in `buffer` will be sent. Those that the kernel may still read are
/// kept until it has notified us.
fn give_back(zerocopy: &mut Option<Box<Zerocopy>>, buffer: Buffer, pool: &mut Pool) {
    let spent = match zerocopy {
        None => Some(buffer),
        Some(zerocopy) => zerocopy.pinned.finish(buffer),
    };
    if let Some(buffer) = spent {
        pool.put(buffer);
    }
}

/// Loans for as many of the lent segments, in order, as one send of `share` bytes may take and
/// nobody is writing to. It waits for a writer only while it holds no loan, and so never makes one
/// wait that others wait for.
fn borrow<'a, 's, const N: usize>(
    segments: impl Iterator<Item = &'s Segment>,
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
        let mut at = *offset;
        let mut left = *len;
        while left > 0 {
            if lent.len() + others >= N || offered >= share {
                return lent;
            }
            let resident = lenders[*lender].resident().expect(IN_MEMORY);
            let Some(loan) = resident.lend(at, left, lent.is_empty()) else { return lent };
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
mod tests;
