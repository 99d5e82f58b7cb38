//! What link and command side hand each other: data on their way, what has come, and how a flush
//! ended.

use ebof_backend::{Buffer, Segments};
use ebof_fabrics::SubmissionQueue;
use ebof_nvme::{Cid, DataPointer, QueueId, Sqe, Status};

/// Data of the host on their way into a buffer. The link owns the buffer until all have come, or
/// the command is given up.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) cid: Cid,
    /// Of the command, for [`Event::Fetched`].
    pub(crate) slot: u32,
    /// Where they are, as the command says.
    pub(crate) pointer: DataPointer,
    pub(crate) buffer: Buffer,
    /// Where the data start in the buffer, and how many bytes of them are kept; more may come.
    pub(crate) offset: usize,
    pub(crate) length: u32,
}

impl Fetch {
    /// Copies the data, which a link of whole messages has in memory, into the buffer. `false` if
    /// `source` has less than the command says.
    pub(super) fn fill(&mut self, source: Option<&[u8]>) -> bool {
        let length = self.length as usize;
        let source = source.and_then(|source| source.get(..length));
        let Some(source) = source else { return length == 0 };
        // The buffer was taken for so many bytes, there.
        self.buffer.as_mut_slice()[self.offset..self.offset + length].copy_from_slice(source);
        true
    }
}

/// Data that came with a command, in its capsule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inline<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether their digest matched, or none is used.
    pub(crate) is_intact: bool,
}

/// Why a command whose data are awaited has a buffer at its link.
pub(super) const AWAITED: &str = "a link has the buffer of a command until its data have come";

/// What has become of data that [`Link::stop_fetching`](super::Link::stop_fetching) was asked to
/// give up.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// They are on their way: [`Event::Fetched`] comes, and only then may the command be completed.
    Arriving,
    /// Nothing comes any more.
    Ended(Buffer),
}

/// What a link learns when its connection has become a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) id: QueueId,
    pub(crate) submission_queue: SubmissionQueue,
    /// The most data that a capsule may carry, bytes, where the controller has a limit of its
    /// own.
    pub(crate) in_capsule_bytes: Option<u32>,
}

/// What a link has to tell the command side.
#[derive(Debug)]
pub(crate) enum Event {
    /// A command, with so many bytes of data behind it in its capsule.
    Command { sqe: Sqe, in_capsule: u32 },
    /// A command whose data cannot be found: it is to be completed with this status.
    Refused { sqe: Sqe, status: Status },
    /// The data of a command are in its buffer.
    Fetched { slot: u32, buffer: Buffer, is_intact: bool },
    /// Something that is the link's own; the transport may have queued an answer.
    Progress { answered: bool },
}

/// What was received at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) total: usize,
    pub(crate) in_scratch: usize,
    /// Less than this means that nothing is left.
    pub(crate) room: usize,
}

/// How a flush ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing is left.
    All,
    /// The connection takes no more now.
    Blocked,
    /// As much was sent as the connection may send at once; it takes more.
    Share,
}

/// What a device reads or writes of a command's data.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// Data travel through buffers.
    None,
    /// The host's memory itself.
    Mapped(Segments),
    /// The command's data are nowhere: it ends with this status.
    Refused(Status),
}
