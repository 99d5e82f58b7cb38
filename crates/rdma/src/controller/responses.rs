//! The responses that wait to be posted, each behind the RDMA WRITEs of its data, in their order.

use alloc::collections::VecDeque;

use ebof_nvme::Cqe;

use crate::segments::{Lists, Piece, Pieces, Segments};

/// All responses of a connection.
#[derive(Debug)]
pub(super) struct Responses {
    queue: VecDeque<Response>,
    /// What is left of the data of the first one, if some of them were posted: it comes next.
    begun: Option<Pieces>,
    /// Messages that are posted and not sent.
    under_way: u32,
    /// Most that may be under way: the receives of the host, and this end's slots for sends.
    sends: u32,
}

#[derive(Clone, Copy, Debug)]
struct Response {
    cqe: Cqe,
    segments: Option<Segments>,
    data: Option<Data>,
    sequence: u64,
}

/// Data that are written before a response, to its segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) tag: u32,
    /// Bytes.
    pub(super) length: u32,
}

impl Responses {
    /// For `commands` commands; not more than `sends` messages are under way.
    pub(super) fn new(commands: usize, sends: u32) -> Self {
        Self { queue: VecDeque::with_capacity(commands), begun: None, under_way: 0, sends }
    }

    #[inline]
    pub(super) fn push(&mut self, cqe: Cqe, segments: Option<Segments>, data: Option<Data>, sequence: u64) {
        self.queue.push_back(Response { cqe, segments, data, sequence });
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    pub(super) const fn is_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// The sequence number of the next response; `None` if none can be posted.
    #[inline]
    pub(super) fn next_sequence(&self) -> Option<u64> {
        let next = self.queue.front()?;
        (self.under_way < self.sends).then_some(next.sequence)
    }

    /// Takes the next piece of data of the next response, with its tag; `None` when all are posted.
    #[inline]
    pub(super) fn post_data(&mut self, lists: &Lists) -> Option<(u32, Piece)> {
        let Response { segments, data, .. } = self.queue.front()?;
        let Data { tag, length } = (*data)?;
        let pieces = match &mut self.begun {
            Some(pieces) => pieces,
            None => self.begun.insert(Pieces::new((*segments)?, length)),
        };
        Some((tag, pieces.next(lists)?))
    }

    /// Takes the next response, whose data are posted.
    #[inline]
    pub(super) fn post(&mut self) -> Option<(Cqe, Option<Segments>, Option<u32>)> {
        let Response { cqe, segments, data, .. } = self.queue.pop_front()?;
        self.begun = None;
        self.on_posted();
        Some((cqe, segments, data.map(|data| data.tag)))
    }

    /// Whether a response that is not queued may be posted.
    #[inline]
    pub(super) fn has_turn(&self) -> bool {
        self.queue.is_empty() && self.under_way < self.sends
    }

    /// A response is posted.
    #[inline]
    pub(super) const fn on_posted(&mut self) {
        self.under_way += 1;
    }

    #[inline]
    pub(super) fn on_sent(&mut self) {
        self.under_way = self.under_way.checked_sub(1).expect("what is sent was posted, and is sent once");
    }
}
