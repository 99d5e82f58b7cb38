//! Fair queues in front of the drive's thread, and which requests make up its next batch.
//!
//! Each namespace has a queue for requests and one for *long* requests, which may concern any
//! number of extents (Deallocate, Write Zeroes) and are done in slices. A batch takes requests
//! round robin over the namespaces, then a few slices round robin over the namespaces with long
//! requests; the event loop adds one other task. So a request waits for the batch in progress, and
//! for one batch per [`REQUESTS`] requests that are served before it, whatever other namespaces ask
//! for; the length of a batch is bounded.
//!
//! Everything in the queues is in flight at the same time, and may be done in any order. The slices
//! of one request are done in order, and no block is in two of them. Write Zeroes is atomic for
//! each block only (AWUN), so other requests may come between slices.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use ebof_backend::{Error, Operation};

use crate::thin::shared::DeferredRequest;
use crate::{Thin, VolumeId};

/// Requests of a batch at most.
pub(crate) const REQUESTS: usize = 256;
/// A batch takes no more requests when those it has read or write so many bytes.
const BATCH_BYTES: u64 = 64 << 20;
/// Slices of a batch at most.
pub(crate) const SLICES: usize = 4;
/// Mapped extents that a slice unmaps at most.
pub(crate) const SLICE_EXTENTS: u32 = 1024;
/// Bytes that a slice zeroes without unmapping their extents; at least one extent.
const SLICE_BYTES: u64 = 16 << 20;
/// Ranges of a slice: each may have two ends that share an extent with other blocks.
const SLICE_RANGES: usize = 32;
/// Steps of the search for mapped extents of a slice.
const SLICE_STEPS: u32 = 1 << 16;
/// A request is long if it concerns more bytes or ranges than these.
const SHORT_BYTES: u64 = 4 << 20;
const SHORT_RANGES: usize = 4;

/// The requests that wait for the drive's thread.
#[derive(Default)]
pub(crate) struct RequestQueues {
    requests: RoundRobin<DeferredRequest>,
    long: RoundRobin<LongRequest>,
    /// Requests that wait for space.
    waiting: Vec<DeferredRequest>,
    /// Requests that wait for others, which other threads do.
    locked: Vec<DeferredRequest>,
    locked_long: Vec<LongRequest>,
    /// Changes of blocks with tags in the last batch that had any.
    tagged_changes: usize,
}

/// The requests of the next batch.
#[derive(Default)]
pub(crate) struct NextBatch {
    pub(crate) requests: Vec<DeferredRequest>,
    /// One slice of each is done.
    pub(crate) long: Vec<LongRequest>,
}

/// A queue for each namespace, served round robin.
struct RoundRobin<T> {
    queues: BTreeMap<VolumeId, VecDeque<T>>,
    /// Namespaces whose queues are not empty; the next one first.
    order: VecDeque<VolumeId>,
}

impl<T> Default for RoundRobin<T> {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<T> RoundRobin<T> {
    fn push(&mut self, volume: VolumeId, item: T) {
        self.queue(volume).push_back(item);
    }

    /// Puts an item back that is not done: it is the first of its queue.
    fn push_front(&mut self, volume: VolumeId, item: T) {
        self.queue(volume).push_front(item);
    }

    fn queue(&mut self, volume: VolumeId) -> &mut VecDeque<T> {
        self.queues.entry(volume).or_insert_with(|| {
            self.order.push_back(volume);
            VecDeque::new()
        })
    }

    fn pop(&mut self) -> Option<T> {
        let volume = self.order.pop_front()?;
        let queue = self.queues.get_mut(&volume).expect("a namespace in the order has a queue");
        let item = queue.pop_front().expect("a queue without items is removed");
        if queue.is_empty() {
            self.queues.remove(&volume);
        } else {
            self.order.push_back(volume);
        }
        Some(item)
    }
}

impl RequestQueues {
    pub(crate) fn push(&mut self, deferred: DeferredRequest) {
        if is_long(&deferred.request.operation) {
            self.long.push(deferred.thin.volume(), LongRequest::new(deferred));
        } else {
            self.requests.push(deferred.thin.volume(), deferred);
        }
    }

    /// Puts a long request back: its next slice is in one of the next batches.
    pub(crate) fn put_back(&mut self, long: LongRequest) {
        self.long.push_front(long.deferred.thin.volume(), long);
    }

    /// Keeps a request that waits for space, until [`retry_waiting`](Self::retry_waiting).
    pub(crate) fn wait_for_space(&mut self, deferred: DeferredRequest) {
        self.waiting.push(deferred);
    }

    /// Puts the requests that wait for space back into their queues, before later ones.
    pub(crate) fn retry_waiting(&mut self) {
        for deferred in self.waiting.drain(..).rev() {
            self.requests.push_front(deferred.thin.volume(), deferred);
        }
    }

    /// Keeps a request for blocks that another thread reads or writes, until
    /// [`retry_locked`](Self::retry_locked).
    pub(crate) fn wait_for_unlock(&mut self, deferred: DeferredRequest) {
        self.locked.push(deferred);
    }

    /// The same for a long request, whose slice was not done.
    pub(crate) fn wait_for_unlock_long(&mut self, long: LongRequest) {
        self.locked_long.push(long);
    }

    /// Puts the requests that wait for others back into their queues, before later ones.
    pub(crate) fn retry_locked(&mut self) {
        for deferred in self.locked.drain(..).rev() {
            self.requests.push_front(deferred.thin.volume(), deferred);
        }
        for long in self.locked_long.drain(..).rev() {
            self.long.push_front(long.deferred.thin.volume(), long);
        }
    }

    /// When the first of those stops waiting; `None` if there is none.
    pub(crate) fn waiting_until(&self) -> Option<Instant> {
        self.waiting.iter().filter_map(|deferred| deferred.waits_until).min()
    }

    /// A batch had so many changes of blocks with tags.
    pub(crate) fn set_tagged_changes(&mut self, changes: usize) {
        self.tagged_changes = changes;
    }

    /// How many changes of blocks with tags the last batch had: as many are likely to come again.
    pub(crate) fn tagged_changes(&self) -> usize {
        self.tagged_changes
    }

    /// Whether there are requests for a batch. Those that wait for space do not count.
    pub(crate) fn has_requests(&self) -> bool {
        !(self.requests.order.is_empty() && self.long.order.is_empty())
    }

    /// Takes the requests of the next batch.
    pub(crate) fn next_batch(&mut self) -> NextBatch {
        let mut batch = NextBatch::default();
        let mut bytes = 0;
        while batch.requests.len() < REQUESTS
            && bytes < BATCH_BYTES
            && let Some(deferred) = self.requests.pop()
        {
            bytes += match &deferred.request.operation {
                Operation::Read { len, .. } | Operation::Write { len, .. } => *len as u64,
                _ => 0,
            };
            batch.requests.push(deferred);
        }
        // One slice of each namespace: a request that is not done goes on in a later batch.
        let namespaces = self.long.order.len().min(SLICES);
        batch.long.extend((0..namespaces).filter_map(|_| self.long.pop()));
        batch
    }
}

/// Whether an operation is done in slices, because it may take longer than a batch should.
fn is_long(operation: &Operation) -> bool {
    match operation {
        Operation::WriteZeroes { len, .. } => *len > SHORT_BYTES,
        Operation::Deallocate { ranges } => {
            let bytes: u64 =
                ranges.iter().map(|range| range.end.saturating_sub(range.start)).fold(0, u64::saturating_add);
            ranges.len() > SHORT_RANGES || bytes > SHORT_BYTES
        }
        Operation::Read { .. } | Operation::Write { .. } | Operation::Flush => false,
    }
}

/// Why there is a slice: a request is long if it has more bytes than a batch should, and is asked
/// for the next slice only until [`is_done`](LongRequest::is_done).
const SLICED: &str = "a request that is not done has a range left";

/// A request that is done a slice at a time.
pub(crate) struct LongRequest {
    pub(crate) deferred: DeferredRequest,
    /// Bytes that are not done: in order, and the ranges do not touch.
    left: VecDeque<Range<u64>>,
}

impl LongRequest {
    fn new(deferred: DeferredRequest) -> Self {
        let ranges = match &deferred.request.operation {
            Operation::WriteZeroes { offset, len, .. } => {
                Vec::from_iter(std::iter::once(*offset..offset.saturating_add(*len)))
            }
            Operation::Deallocate { ranges } => ranges.clone(),
            Operation::Read { .. } | Operation::Write { .. } | Operation::Flush => Vec::new(),
        };
        Self { deferred, left: merged(ranges).into() }
    }

    /// What is left, to be restored if a slice is not done.
    pub(crate) fn left(&self) -> VecDeque<Range<u64>> {
        self.left.clone()
    }

    /// The slices that were taken since were not done.
    pub(crate) fn restore(&mut self, left: VecDeque<Range<u64>>) {
        self.left = left;
    }

    /// Whether the last slice was taken.
    pub(crate) fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// Takes the next slice.
    pub(crate) fn slice(&mut self) -> Operation {
        let thin = Arc::clone(&self.deferred.thin);
        match self.deferred.request.operation {
            Operation::WriteZeroes { deallocate: false, fua, .. } => {
                let extents = u32::try_from(SLICE_BYTES / thin.span_bytes()).unwrap_or(u32::MAX).max(1);
                let mut slice = self.cut(&thin, extents, 1);
                let range = slice.pop().expect(SLICED);
                // The last slice makes the others durable, too.
                let fua = fua && self.is_done();
                Operation::WriteZeroes { offset: range.start, len: range.end - range.start, deallocate: false, fua }
            }
            Operation::WriteZeroes { fua, .. } => {
                let range = self.cut(&thin, SLICE_EXTENTS, 1).pop().expect(SLICED);
                let fua = fua && self.is_done();
                Operation::WriteZeroes { offset: range.start, len: range.end - range.start, deallocate: true, fua }
            }
            _ => Operation::Deallocate { ranges: self.cut(&thin, SLICE_EXTENTS, SLICE_RANGES) },
        }
    }

    /// Takes ranges with at most so many mapped extents from what is left, at a bounded cost: one
    /// at least, unless nothing is left, as of a Deallocate with nothing but empty ranges. They end
    /// where extents do, or the request does.
    fn cut(&mut self, thin: &Thin, extents: u32, ranges: usize) -> Vec<Range<u64>> {
        let mut extents = extents;
        let mut steps = SLICE_STEPS;
        let mut slice = Vec::new();
        while slice.len() < ranges
            && extents > 0
            && steps > 0
            && let Some(range) = self.left.pop_front()
        {
            let end = thin.limit(range.clone(), &mut extents, &mut steps);
            if end < range.end {
                self.left.push_front(end..range.end);
            }
            slice.push(range.start..end);
        }
        slice
    }

    /// Completes the request.
    pub(crate) fn finish(self, result: Result<(), Error>) {
        self.deferred.complete(result);
    }
}

/// The same bytes as sorted ranges that do not touch.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_served_round_robin_however_long_a_queue_is() {
        let mut queues = RoundRobin::default();
        (0..1000).for_each(|item| queues.push(VolumeId(1), item));
        queues.push(VolumeId(2), 5000);
        queues.push(VolumeId(3), 6000);
        queues.push(VolumeId(2), 5001);
        let order: Vec<_> = (0..8).map_while(|_| queues.pop()).collect();
        assert_eq!(order, [0, 5000, 6000, 1, 5001, 2, 3, 4]);
        // What is put back is the next of its queue; its namespace does not come earlier for it.
        queues.push(VolumeId(2), 7000);
        queues.push_front(VolumeId(1), 4);
        assert_eq!([queues.pop(), queues.pop(), queues.pop()], [Some(4), Some(7000), Some(5)]);
    }

    #[test]
    fn what_may_take_long_is_done_in_slices() {
        let zeroes = |len| Operation::WriteZeroes { offset: 0, len, deallocate: true, fua: false };
        let deallocate = |count: u64, len: u64| Operation::Deallocate {
            ranges: (0..count).map(|at| at << 40..(at << 40) + len).collect(),
        };
        for (operation, expected) in [
            (zeroes(SHORT_BYTES), false),
            (zeroes(SHORT_BYTES + 1), true),
            (deallocate(SHORT_RANGES as u64, 1), false),
            (deallocate(SHORT_RANGES as u64 + 1, 1), true),
            (deallocate(1, SHORT_BYTES), false),
            (deallocate(1, SHORT_BYTES + 1), true),
            (deallocate(2, SHORT_BYTES / 2), false),
            (deallocate(2, SHORT_BYTES / 2 + 1), true),
            (Operation::Flush, false),
        ] {
            assert_eq!(is_long(&operation), expected, "{operation:?}");
        }
    }

    #[test]
    fn ranges_are_merged() {
        let ranges = vec![10..20, 0..5, 18..30, 5..7, 40..40, 50..60, 12..13];
        assert_eq!(merged(ranges), [0..7, 10..30, 50..60]);
        let all: Vec<Range<u64>> = (0..256).map(|_| 0..1 << 40).collect();
        let merged = merged(all);
        assert!(merged.len() == 1 && merged[0] == (0..1 << 40), "{merged:?}");
    }
}
