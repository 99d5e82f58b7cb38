//! The send queue: headers and small payloads in one run of bytes, large payloads by reference into
//! the commands' buffers. Owns no command's buffer and makes no system call.

use std::collections::VecDeque;
use std::io::IoSlice;

/// A piece of the stream.
#[derive(Clone, Copy, Debug)]
enum SendPiece {
    /// The next bytes of the run.
    Run(usize),
    /// Bytes of a command's buffer.
    Payload {
        slot: u16,
        offset: usize,
        length: usize,
        /// Sent without a copy, in a system call of its own.
        pinned: bool,
    },
}

impl SendPiece {
    const fn length(self) -> usize {
        match self {
            Self::Run(length) | Self::Payload { length, .. } => length,
        }
    }
}

/// The stream to be sent.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    run: Vec<u8>,
    /// Bytes of `run` that are sent.
    run_sent: usize,
    /// Bytes of `run` that are in `pieces`.
    run_queued: usize,
    pieces: VecDeque<SendPiece>,
    /// Bytes of the first piece that are sent.
    front_sent: usize,
    queued: usize,
}

impl SendQueue {
    /// Pieces that one system call takes at most.
    pub(crate) const GATHER_MAX: usize = 128;
    /// Payloads up to this length are copied, which costs less than an element of the vector.
    pub(crate) const COPY_MAX: usize = 1024;

    /// Where headers are appended. Afterwards call [`SendQueue::payload`] or [`SendQueue::commit`].
    pub(crate) fn run(&mut self) -> &mut Vec<u8> {
        &mut self.run
    }

    /// Queues what was appended to the run.
    pub(crate) fn commit(&mut self) {
        let fresh = self.run.len() - self.run_queued;
        if fresh == 0 {
            return;
        }
        self.run_queued = self.run.len();
        self.queued += fresh;
        match self.pieces.back_mut() {
            Some(SendPiece::Run(length)) => *length += fresh,
            _ => self.pieces.push_back(SendPiece::Run(fresh)),
        }
    }

    /// Queues `length` bytes from `offset` of the buffer of `slot`, behind the run. `pinned`: sent
    /// without a copy, if that is possible by then.
    pub(crate) fn payload(&mut self, slot: u16, offset: usize, length: usize, pinned: bool) {
        self.commit();
        self.queued += length;
        self.pieces.push_back(SendPiece::Payload { slot, offset, length, pinned });
    }

    /// Bytes not yet sent.
    pub(crate) const fn queued(&self) -> usize {
        self.queued
    }

    /// Whether the next piece is a payload to be sent without a copy.
    pub(crate) fn starts_pinned(&self) -> bool {
        matches!(self.pieces.front(), Some(SendPiece::Payload { pinned: true, .. }))
    }

    /// Fills `out` with the next pieces, and returns how many. If `separate`, a payload to be sent
    /// without a copy is returned alone. `buffer` gives a command's bytes; `None` if they are fewer
    /// than announced.
    pub(crate) fn gather<'a>(
        &'a self,
        buffer: impl Fn(u16) -> Option<&'a [u8]>,
        out: &mut [IoSlice<'a>],
        separate: bool,
    ) -> Option<usize> {
        let mut at = self.run_sent;
        let mut skip = self.front_sent;
        let mut count = 0;
        for (piece, slot) in self.pieces.iter().zip(out) {
            let bytes = match *piece {
                SendPiece::Run(length) => {
                    let bytes = self.run.get(at..at + length - skip)?;
                    at += length - skip;
                    bytes
                }
                SendPiece::Payload { pinned: true, .. } if separate && count > 0 => break,
                SendPiece::Payload { slot, offset, length, .. } => buffer(slot)?.get(offset + skip..offset + length)?,
            };
            *slot = IoSlice::new(bytes);
            skip = 0;
            count += 1;
            if separate && matches!(piece, SendPiece::Payload { pinned: true, .. }) {
                break;
            }
        }
        Some(count)
    }

    /// Removes `sent` bytes. Calls `payload_sent` with the slot of every payload that was sent
    /// completely, and whether it was to be sent without a copy.
    pub(crate) fn advance(&mut self, mut sent: usize, mut payload_sent: impl FnMut(u16, bool)) {
        debug_assert!(sent <= self.queued, "a socket sends no more than it is given");
        self.queued -= sent;
        while sent > 0 {
            let &piece = self.pieces.front().expect("what is queued is in pieces");
            let taken = sent.min(piece.length() - self.front_sent);
            sent -= taken;
            self.front_sent += taken;
            if matches!(piece, SendPiece::Run(_)) {
                self.run_sent += taken;
            }
            if self.front_sent == piece.length() {
                self.front_sent = 0;
                self.pieces.pop_front();
                if let SendPiece::Payload { slot, pinned, .. } = piece {
                    payload_sent(slot, pinned);
                }
            }
        }
        self.reclaim();
    }

    /// Removes the sent part of the run, so that it does not grow while the socket is slower than
    /// the host.
    fn reclaim(&mut self) {
        if self.run_sent == self.run.len() {
            self.run.clear();
        } else if self.run_sent >= 64 << 10 {
            self.run.drain(..self.run_sent);
        } else {
            return;
        }
        self.run_queued -= self.run_sent;
        self.run_sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_stream_is_the_same_for_any_short_writes(
            parts in proptest::collection::vec((0usize..40, proptest::option::of(1usize..60)), 1..30),
            cuts in proptest::collection::vec(1usize..50, 1..200),
        ) {
            let buffers: Vec<Vec<u8>> = (0u8..30).map(|i| (0..64).map(|j| i ^ j).collect()).collect();
            let mut queue = SendQueue::default();
            let mut expected = Vec::new();
            let mut payloads = 0;
            for (index, (header, payload)) in parts.iter().enumerate() {
                let header = vec![u8::try_from(index).unwrap() | 0x80; *header];
                queue.run().extend_from_slice(&header);
                expected.extend_from_slice(&header);
                if let Some(length) = payload {
                    let slot = u16::try_from(index).unwrap();
                    queue.payload(slot, 2, *length, slot % 3 == 0);
                    expected.extend_from_slice(&buffers[index][2..2 + length]);
                    payloads += 1;
                }
                queue.commit();
            }
            prop_assert_eq!(queue.queued(), expected.len());
            let mut sent = Vec::new();
            let mut payloads_sent = 0;
            for cut in cuts.iter().cycle() {
                let mut out = [IoSlice::new(&[]); 4];
                let separate = sent.len() % 2 == 0;
                let pinned = separate && queue.starts_pinned();
                let count = queue.gather(|slot| Some(&buffers[usize::from(slot)]), &mut out, separate).unwrap();
                prop_assert!(!pinned || count == 1);
                let bytes: Vec<u8> = out[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
                if bytes.is_empty() {
                    break;
                }
                let taken = bytes.len().min(*cut);
                sent.extend_from_slice(&bytes[..taken]);
                queue.advance(taken, |slot, pinned| payloads_sent += usize::from(pinned == (slot % 3 == 0)));
            }
            prop_assert_eq!(sent, expected);
            prop_assert_eq!((payloads_sent, queue.queued()), (payloads, 0));
        }
    }

    #[test]
    fn a_buffer_that_shrank_is_noticed() {
        let mut queue = SendQueue::default();
        queue.payload(0, 0, 2000, false);
        assert_eq!(queue.gather(|_| Some(&[0; 10]), &mut [IoSlice::new(&[]); 4], true), None);
    }
}
