//! The controller's end of a connection.
//!
//! The owner of the queue pair gives it what the adapter reports, and posts what it says:
//! ```text
//! a capsule was received       command = connection.receive(bytes)?
//! the command needs its data   connection.read(tag, segments, length)
//! the command is complete      connection.respond(&cqe, segments), or respond_with_data(...);
//!                              or post connection.respond_now(...) at once, if it returns anything
//! established                  connection.on_established()
//! a READ has completed         connection.on_read_done(tag) -> Fetched
//! a message was sent           connection.on_sent()
//! then                         while let Some(work) = connection.poll_work(room) { post it }
//! and when it is flushed       connection.on_flushed()
//! ```
//! Post a receive again before the response to the command that came in it, or the host's next
//! command may find none.

mod accept;
mod reads;
mod responses;

use ebof_nvme::{Cqe, QueueId, Sqe, Status};

use self::accept::Terms;
pub use self::accept::{Accepted, Limits};
use self::reads::Reads;
use self::responses::{Data, Responses};
use crate::capsule::{self, COMMAND_BYTES, Located};
use crate::error::FatalError;
use crate::private_data::RejectStatus;
use crate::segments::{Lists, Piece, Remote, Segments, refer};

/// A command, and where its data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The submission queue entry. Where its data are a list of descriptors, its data pointer is a
    /// Transport SGL of their length, which [`Segments::from_pointer`] understands.
    pub sqe: Sqe,
    /// Bytes behind it in the capsule.
    pub in_capsule: u32,
    /// Where its data are, or what it has to be completed with: its SGL is wrong.
    pub data: Result<Location, Status>,
}

/// Where the data of a command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// It has none, or says nothing about them.
    None,
    /// In its capsule, from `offset` on; all of them are there.
    InCapsule {
        /// First byte in the capsule, which begins with the command.
        offset: u32,
        /// Bytes, not zero.
        length: u32,
    },
    /// In the host's memory.
    Remote(Segments),
}

/// What is to be posted to the send queue, in this order. Each takes one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEntry {
    /// RDMA READ into the buffer of a command.
    Read {
        /// Whose buffer: the one given to [`Connection::read`].
        tag: u32,
        /// Where in the data, bytes.
        offset: u32,
        /// Bytes, not zero.
        length: u32,
        /// From where.
        remote: Remote,
    },
    /// RDMA WRITE from the buffer of a command, without a completion of its own.
    Write {
        /// Whose buffer: the one given to [`Connection::respond_with_data`].
        tag: u32,
        /// Where in the data, bytes.
        offset: u32,
        /// Bytes, not zero.
        length: u32,
        /// To where.
        remote: Remote,
    },
    /// A response capsule.
    Send {
        /// What it consists of: [`capsule::encode_response`].
        cqe: Cqe,
        /// The key to be invalidated with it.
        invalidate: Option<u32>,
        /// Whose data were written before it: their buffer is free when this message is sent.
        tag: Option<u32>,
    },
}

/// A response that is to be posted now: an RDMA WRITE, if there is any, then the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posting {
    /// Bytes of data from the beginning of the command's buffer, not zero, and where they go.
    pub write: Option<(u32, Remote)>,
    /// The key to be invalidated with the message.
    pub invalidate: Option<u32>,
}

/// Entries of the send queue that a [`Posting`] takes at most.
const POSTING_ENTRIES: usize = 2;

/// The reads of a command are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The command's.
    pub tag: u32,
    /// Whether its data are complete; otherwise they were given up.
    pub is_complete: bool,
}

/// What has become of reads that were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Some are under way: [`Fetched`] follows, and only then is the buffer free.
    UnderWay,
    /// None is.
    Ended,
}

/// The controller's end of one connection, and of one queue.
#[derive(Debug)]
pub struct Connection {
    queue: QueueId,
    /// Commands that may be outstanding.
    entries: u32,
    /// Commands whose responses the host cannot have: they have not been posted, or
    outstanding: u32,
    /// they have, by [`Connection::respond_now`], and have not been flushed.
    answered: u32,
    in_capsule_bytes: u32,
    is_established: bool,
    lists: Lists,
    reads: Reads,
    responses: Responses,
    /// Orders reads and responses.
    sequence: u64,
}

impl Connection {
    /// What becomes of a host's request: `private_data` is what came with it, and `host_reads` how
    /// many RDMA READs at a time the host answers (the initiator depth that the connection manager
    /// reports).
    ///
    /// # Errors
    /// What it has to be rejected with: [`ConnectReject`](crate::private_data::ConnectReject).
    pub fn accept(private_data: &[u8], limits: &Limits, host_reads: u8) -> Result<Accepted, RejectStatus> {
        let terms = Terms::negotiate(private_data, limits, host_reads)?;
        let entries = terms.request.entries;
        let connection = Self {
            queue: terms.request.qid,
            entries,
            outstanding: 0,
            answered: 0,
            in_capsule_bytes: limits.in_capsule_bytes,
            is_established: false,
            lists: Lists::new(terms.capsules()),
            reads: Reads::new(entries as usize, terms.reads),
            responses: Responses::new(entries as usize, terms.sends),
            sequence: 0,
        };
        Ok(terms.accepted(connection, limits.in_capsule_bytes))
    }

    /// The queue that the host asked for in the private data; its Connect command has to say the
    /// same.
    #[must_use]
    pub const fn queue(&self) -> QueueId {
        self.queue
    }

    /// Commands that the host may have outstanding.
    #[must_use]
    #[inline]
    pub const fn entries(&self) -> u32 {
        self.entries
    }

    /// Reads a command capsule. Its bytes stay with the caller until the data in them are used.
    ///
    /// # Errors
    /// The host broke the transport: disconnect.
    #[inline]
    pub fn receive(&mut self, capsule: &[u8]) -> Result<Command, FatalError> {
        let (mut sqe, behind) = capsule::split(capsule)?;
        // A response that has not been posted is one that the host has not seen.
        if self.outstanding == self.entries {
            return Err(FatalError::TooManyCommands { entries: self.entries });
        }
        self.outstanding += 1;
        let behind = &behind[..behind.len().min(self.in_capsule_bytes as usize)];
        let in_capsule = u32::try_from(behind.len()).unwrap_or(self.in_capsule_bytes);
        let data = capsule::locate(&sqe, behind).and_then(|located| self.location(&mut sqe, located));
        Ok(Command { sqe, in_capsule, data })
    }

    #[inline]
    fn location(&mut self, sqe: &mut Sqe, located: Located<'_>) -> Result<Location, Status> {
        Ok(match located {
            Located::None => Location::None,
            Located::InCapsule { offset, length } => Location::InCapsule { offset: COMMAND_BYTES + offset, length },
            Located::Keyed { remote, length, invalidate } => {
                Location::Remote(Segments::one(remote, length, invalidate))
            }
            Located::List(descriptors) => {
                let segments = self.lists.insert(descriptors)?;
                refer(sqe, segments);
                segments.map_or(Location::None, Location::Remote)
            }
        })
    }

    /// Reads the first `length` bytes of a command's data into the buffer that the caller knows by
    /// `tag`, which no other reads that are not over have. [`on_read_done`](Self::on_read_done)
    /// reports when they are there. False: there is nothing to be read.
    #[inline]
    pub fn read(&mut self, tag: u32, segments: Segments, length: u32) -> bool {
        let sequence = self.next_sequence();
        self.reads.push(tag, segments, length, sequence)
    }

    /// Reads no more data of the command with `tag`.
    pub fn cancel(&mut self, tag: u32) -> Cancelled {
        self.reads.cancel(tag)
    }

    /// Queues the response to a command. `segments` are those of the command, if it has any: what
    /// is known of them is forgotten, and their key is invalidated if the host wants that.
    #[inline]
    pub fn respond(&mut self, cqe: &Cqe, segments: Option<Segments>) {
        let sequence = self.next_sequence();
        self.responses.push(*cqe, segments, None, sequence);
    }

    /// Queues the response to a command behind the first `length` bytes of its data, which are
    /// written to the host from the buffer that the caller knows by `tag`. What the segments have
    /// no room for is left out.
    #[inline]
    pub fn respond_with_data(&mut self, tag: u32, segments: Segments, length: u32, cqe: &Cqe) {
        let sequence = self.next_sequence();
        self.responses.push(*cqe, Some(segments), Some(Data { tag, length }), sequence);
    }

    /// The response to a command behind the first `length` bytes of its data, if it can be posted
    /// now: nothing waits before it, the send queue has `room`, and the data go to one piece of
    /// memory. `None`: it has to be queued, with the same meaning, by [`respond`](Self::respond) or
    /// [`respond_with_data`](Self::respond_with_data). What was posted is flushed with a call of
    /// [`on_flushed`](Self::on_flushed).
    #[inline]
    pub fn respond_now(&mut self, segments: Option<Segments>, length: u32, room: usize) -> Option<Posting> {
        let is_next = self.responses.has_turn() && self.reads.next_sequence().is_none();
        if !self.is_established || !is_next || room < POSTING_ENTRIES {
            return None;
        }
        let posting = match segments {
            None => Posting { write: None, invalidate: None },
            Some(segments) => {
                let (announced, remote, invalidate) = segments.single()?;
                let length = length.min(announced);
                let write = if length > 0 { Some((length, remote)) } else { None };
                Posting { write, invalidate: if invalidate { Some(remote.key) } else { None } }
            }
        };
        self.responses.on_posted();
        // The host has not seen it before it is flushed: until then its command counts.
        self.answered += 1;
        Some(posting)
    }

    /// What was posted is flushed now: the host may send further commands.
    ///
    /// # Panics
    /// A command was answered twice: a fault of the caller.
    #[inline]
    pub fn on_flushed(&mut self) {
        let left = self.outstanding.checked_sub(core::mem::take(&mut self.answered));
        self.outstanding = left.expect("a command counts from when it comes until it is answered, once");
    }

    /// A command has ended without a response. `segments` are its own, as in
    /// [`respond`](Self::respond).
    ///
    /// # Panics
    /// None is outstanding: a fault of the caller.
    #[inline]
    pub fn withdraw(&mut self, segments: Option<Segments>) {
        if let Some(segments) = segments {
            self.lists.remove(segments);
        }
        self.outstanding = self.outstanding.checked_sub(1).expect("a command counts from when it comes, until it ends");
    }

    /// The connection is established: what waited for that may be posted.
    pub fn on_established(&mut self) {
        self.is_established = true;
    }

    /// What is to be posted next, if the send queue has `room` for it: to be called until there is
    /// nothing, with the room that is left each time. It is the oldest that can be posted. A send
    /// queue of the size that [`Accepted`] says has room for everything some time.
    #[inline]
    pub fn poll_work(&mut self, room: usize) -> Option<SendEntry> {
        if !self.is_established || room == 0 {
            return None;
        }
        if self.responses.is_begun() {
            return self.post_response();
        }
        let read = self.reads.next_sequence();
        let response = self.responses.next_sequence();
        match (read, response) {
            (Some(read), response) if response.is_none_or(|response| read < response) => {
                let (tag, Piece { offset, length, remote }) = self.reads.post(&self.lists)?;
                Some(SendEntry::Read { tag, offset, length, remote })
            }
            (_, Some(_)) => self.post_response(),
            _ => None,
        }
    }

    /// A READ of the command with `tag` has completed. `None`: others are to come.
    #[inline]
    pub fn on_read_done(&mut self, tag: u32) -> Option<Fetched> {
        self.reads.on_done(tag)
    }

    /// A response was sent: the oldest one. Whoever sends messages past this end, does not tell it.
    ///
    /// # Panics
    /// None is under way: a fault of the caller.
    #[inline]
    pub fn on_sent(&mut self) {
        self.responses.on_sent();
    }

    /// Responses that are queued and not posted.
    #[must_use]
    #[inline]
    pub fn unposted_responses(&self) -> usize {
        self.responses.len()
    }

    /// RDMA READs that are posted and not over.
    #[must_use]
    pub fn reads_under_way(&self) -> u32 {
        self.reads.under_way()
    }

    #[inline]
    fn post_response(&mut self) -> Option<SendEntry> {
        if let Some((tag, Piece { offset, length, remote })) = self.responses.post_data(&self.lists) {
            return Some(SendEntry::Write { tag, offset, length, remote });
        }
        let (cqe, segments, tag) = self.responses.post()?;
        let invalidate = segments.and_then(|segments| self.lists.invalidate(segments));
        self.withdraw(segments);
        Some(SendEntry::Send { cqe, invalidate, tag })
    }

    #[inline]
    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}
