//! Messages out of a stream that may be cut anywhere, and the descriptors that belong to each.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use thiserror::Error;

use super::command::{self, Command, number};
use super::reply::Call;
use super::{DESCRIPTORS_MAX, HEADER_BYTES, MESSAGE_BYTES_MAX};
use crate::errno::Errno;

/// The client broke the protocol so that its stream cannot be followed any more: the connection
/// ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Broken {
    /// The size of a message is less than its header or more than
    /// [`MESSAGE_BYTES_MAX`](super::MESSAGE_BYTES_MAX).
    #[error("a message of {size} bytes; it has 16 to {MESSAGE_BYTES_MAX}")]
    Size {
        /// The header's field.
        size: u32,
    },
    /// A message that is no command. This server asks for nothing.
    #[error("a message of type {kind}, which is no command")]
    Type {
        /// The header's field.
        kind: u8,
    },
    /// More descriptors than allowed with one message.
    #[error("{count} descriptors with one message, more than {DESCRIPTORS_MAX}")]
    Descriptors {
        /// How many came.
        count: usize,
    },
}

/// A message of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What to answer to.
    pub call: Call,
    /// How many of the descriptors that came are this message's: the first ones. They are to be
    /// taken also where the command is refused.
    pub descriptors: usize,
    /// The command; or why it is refused, which [`Call::refuse`] answers.
    pub command: Result<Command<'a>, Errno>,
}

/// Takes messages out of a stream.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Of `bytes`, those that were taken.
    taken: usize,
    /// Position in the stream of the first byte that was not taken.
    position: u64,
    /// Descriptors that came, with the position in the stream behind the bytes they came with.
    arrivals: VecDeque<(u64, usize)>,
    /// VERSION has come.
    is_open: bool,
}

impl Decoder {
    /// At the beginning of a connection.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), taken: 0, position: 0, arrivals: VecDeque::new(), is_open: false }
    }

    /// Takes in what one call of the system received, with the number of descriptors that came
    /// along. To be called when [`poll`](Self::poll) has returned `None`, so that less than a
    /// message is kept.
    ///
    /// A call of the system receives bytes of at most one message with descriptors, which begins in
    /// these bytes as the last one, or has begun before: the system ends a call behind them.
    pub fn push(&mut self, bytes: &[u8], descriptors: usize) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
        if descriptors > 0 && !bytes.is_empty() {
            self.arrivals.push_back((self.position + self.bytes.len() as u64, descriptors));
        }
    }

    /// Bytes that came and are no part of a message that was taken.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// The next message; `None` until more bytes come.
    ///
    /// # Errors
    /// The stream cannot be followed.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Message<'_>>, Broken> {
        let rest = &self.bytes[self.taken..];
        let Some(header) = rest.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [id0, id1, command0, command1, s0, s1, s2, s3, f0, _, _, _, ..] = *header;
        let size = u32::from_le_bytes([s0, s1, s2, s3]);
        if size > MESSAGE_BYTES_MAX || (size as usize) < HEADER_BYTES {
            return Err(Broken::Size { size });
        }
        if f0 & 0xf != 0 {
            return Err(Broken::Type { kind: f0 & 0xf });
        }
        let size = size as usize;
        if rest.len() < size {
            return Ok(None);
        }
        let begin = self.taken;
        self.taken += size;
        self.position += size as u64;
        let descriptors = if self.arrivals.is_empty() { 0 } else { self.take_arrivals()? };
        let command = u16::from_le_bytes([command0, command1]);
        let call = Call::new(u16::from_le_bytes([id0, id1]), command, f0 & 0x10 != 0);
        let is_first = !self.is_open;
        let body = &self.bytes[begin + HEADER_BYTES..begin + size];
        let command = if is_first == (command == number::VERSION) {
            command::decode(command, body, descriptors)
        } else {
            Err(Errno::INVALID)
        };
        if is_first && command.is_ok() {
            self.is_open = true;
        }
        Ok(Some(Message { call, descriptors, command }))
    }

    /// The descriptors that came with bytes before the current position.
    #[cold]
    fn take_arrivals(&mut self) -> Result<usize, Broken> {
        let mut count = 0_usize;
        while let Some(&(end, descriptors)) = self.arrivals.front()
            && end <= self.position
        {
            count = count.saturating_add(descriptors);
            self.arrivals.pop_front();
        }
        if count > DESCRIPTORS_MAX { Err(Broken::Descriptors { count }) } else { Ok(count) }
    }
}
