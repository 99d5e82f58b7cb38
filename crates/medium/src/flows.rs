//! Fair queues of the drive's thread: what waits for it, and what of that is done in the next turn.
//!
//! Each namespace has a queue for requests and one for *long* ones, which may concern any number of
//! extents (Deallocate, Write Zeroes) and are done a slice at a time. A turn takes requests round
//! robin over the namespaces, then a few slices round robin over those with long ones; the event
//! loop adds one piece of other work. So whatever others ask for, a request waits for the turn
//! under way and for as many turns as there are namespaces with requests before it, by
//! [`REQUESTS`]; a turn has an end that does not depend on what others ask for.
//!
//! All that is in the queues is under way at the same time, and done in any order. The slices of a
//! request follow each other; no block is in two. Blocks are the unit in which Write Zeroes is
//! atomic (AWUN), so others may come between slices.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use ebof_backend::{Error, Operation};

use crate::shared::DeferredRequest;
use crate::{Thin, VolumeId};

/// Requests of one turn at most.
pub(crate) const REQUESTS: usize = 256;
/// Bytes that the requests of a turn read or write, beside the last of them.
const TURN_BYTES: u64 = 64 << 20;
/// Slices of one turn at most.
pub(crate) const SLICES: usize = 4;
/// Extents with places that a slice takes from a namespace.
pub(crate) const SLICE_EXTENTS: u32 = 1024;
/// Bytes that a slice zeroes whose extents keep their places; one extent at least.
const SLICE_BYTES: u64 = 16 << 20;
/// Ranges of a slice: each may have two ends that share an extent with other blocks.
const SLICE_RANGES: usize = 32;
/// Extents without places, or groups of them, that are looked at for a slice.
const SLICE_LOOKS: u32 = 1 << 16;
/// What a request may concern, and be none of the long ones.
const SHORT_BYTES: u64 = 4 << 20;
const SHORT_RANGES: usize = 4;

/// Requests and long requests that wait for the drive's thread.
#[derive(Default)]
pub(crate) struct Flows {
    requests: RoundRobin<DeferredRequest>,
    long: RoundRobin<LongRequest>,
    /// Requests that wait for space.
    waiting: Vec<DeferredRequest>,
    /// Changes of blocks with tags in the last turn that had requests for such blocks.
    together: usize,
}

/// What one turn does.
#[derive(Default)]
pub(crate) struct Turn {
    pub(crate) requests: Vec<DeferredRequest>,
    pub(crate) long: Vec<LongRequest>,
}

/// Queues that have their turns.
struct RoundRobin<T> {
    queues: BTreeMap<VolumeId, VecDeque<T>>,
    /// Queues with something in them; the next one first.
    order: VecDeque<VolumeId>,
}

impl<T> Default for RoundRobin<T> {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<T> RoundRobin<T> {
    fn push(&mut self, of: VolumeId, item: T) {
        let queue = self.queues.entry(of).or_insert_with(|| {
            self.order.push_back(of);
            VecDeque::new()
        });
        queue.push_back(item);
    }

    /// Puts back what was taken and is not done: it is the first of its queue.
    fn push_front(&mut self, of: VolumeId, item: T) {
        let queue = self.queues.entry(of).or_insert_with(|| {
            self.order.push_back(of);
            VecDeque::new()
        });
        queue.push_front(item);
    }

    fn pop(&mut self) -> Option<T> {
        let of = self.order.pop_front()?;
        let queue = self.queues.get_mut(&of)?;
        let item = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&of);
        } else {
            self.order.push_back(of);
        }
        item
    }
}

impl Flows {
    pub(crate) fn push(&mut self, deferred: DeferredRequest) {
        if is_long(&deferred.request.operation) {
            self.long.push(deferred.thin.volume(), LongRequest::new(deferred));
        } else {
            self.requests.push(deferred.thin.volume(), deferred);
        }
    }

    /// A long request goes on in one of the next turns.
    pub(crate) fn again(&mut self, long: LongRequest) {
        self.long.push_front(long.deferred.thin.volume(), long);
    }

    /// A request waits for space, until [`retry_waiting`](Self::retry_waiting) or its time is over.
    pub(crate) fn wait_for_space(&mut self, deferred: DeferredRequest) {
        self.waiting.push(deferred);
    }

    /// Those that wait for space are tried again, before what was asked later.
    pub(crate) fn retry_waiting(&mut self) {
        for deferred in self.waiting.drain(..).rev() {
            self.requests.push_front(deferred.thin.volume(), deferred);
        }
    }

    /// Until when the first of those waits; `None` if there is none.
    pub(crate) fn waiting_until(&self) -> Option<Instant> {
        self.waiting.iter().filter_map(|deferred| deferred.waits_until).min()
    }

    /// A turn has done so many changes of blocks with tags together.
    pub(crate) fn did_together(&mut self, changes: usize) {
        self.together = changes;
    }

    /// How many changes of blocks with tags are likely to come together the next time.
    pub(crate) fn together(&self) -> usize {
        self.together
    }

    /// Whether requests wait, other than for space.
    pub(crate) fn has_requests(&self) -> bool {
        !(self.requests.order.is_empty() && self.long.order.is_empty())
    }

    /// What is done next.
    pub(crate) fn turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        let mut bytes = 0;
        while turn.requests.len() < REQUESTS
            && bytes < TURN_BYTES
            && let Some(deferred) = self.requests.pop()
        {
            bytes += match &deferred.request.operation {
                Operation::Read { len, .. } | Operation::Write { len, .. } => *len as u64,
                _ => 0,
            };
            turn.requests.push(deferred);
        }
        // One slice of each namespace: a request that is not done goes on in the next turn.
        let namespaces = self.long.order.len().min(SLICES);
        turn.long.extend((0..namespaces).filter_map(|_| self.long.pop()));
        turn
    }
}

/// Whether it may take longer than a turn should.
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

/// A request that is done a slice at a time.
pub(crate) struct LongRequest {
    pub(crate) deferred: DeferredRequest,
    /// Its ranges that are not done, in order and apart from each other.
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

    /// Whether there is nothing left to do.
    pub(crate) fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// The next slice of it.
    pub(crate) fn slice(&mut self) -> Operation {
        let thin = Arc::clone(&self.deferred.thin);
        match self.deferred.request.operation {
            Operation::WriteZeroes { deallocate: false, fua, .. } => {
                let extents = u32::try_from(SLICE_BYTES / thin.span_bytes()).unwrap_or(u32::MAX).max(1);
                let mut slice = self.cut(&thin, extents, 1);
                let range = slice.pop().unwrap_or_default();
                // On the medium when the last of it is.
                let fua = fua && self.is_done();
                Operation::WriteZeroes { offset: range.start, len: range.end - range.start, deallocate: false, fua }
            }
            Operation::WriteZeroes { fua, .. } => {
                let range = self.cut(&thin, SLICE_EXTENTS, 1).pop().unwrap_or_default();
                let fua = fua && self.is_done();
                Operation::WriteZeroes { offset: range.start, len: range.end - range.start, deallocate: true, fua }
            }
            _ => Operation::Deallocate { ranges: self.cut(&thin, SLICE_EXTENTS, SLICE_RANGES) },
        }
    }

    /// Takes ranges with so many extents with places from what is left, at a bounded cost. They end
    /// where extents do, unless the request does.
    fn cut(&mut self, thin: &Thin, extents: u32, ranges: usize) -> Vec<Range<u64>> {
        let (mut extents, mut looks) = (extents, SLICE_LOOKS);
        let mut slice = Vec::new();
        while slice.len() < ranges
            && extents > 0
            && looks > 0
            && let Some(range) = self.left.pop_front()
        {
            let end = thin.reach(range.clone(), &mut extents, &mut looks);
            if end < range.end {
                self.left.push_front(end..range.end);
            }
            slice.push(range.start..end);
        }
        slice
    }

    /// It is over.
    pub(crate) fn finish(self, result: Result<(), Error>) {
        self.deferred.answer(result);
    }
}

/// The same bytes as ranges in order that do not touch each other.
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
    fn queues_have_their_turns_however_long_one_is() {
        let mut queues = RoundRobin::default();
        (0..1000).for_each(|item| queues.push(VolumeId(1), item));
        queues.push(VolumeId(2), 5000);
        queues.push(VolumeId(3), 6000);
        queues.push(VolumeId(2), 5001);
        let order: Vec<_> = (0..8).map_while(|_| queues.pop()).collect();
        assert_eq!(order, [0, 5000, 6000, 1, 5001, 2, 3, 4]);
        // What is put back is the next of its queue, and has no turn before others.
        queues.push(VolumeId(2), 7000);
        queues.push_front(VolumeId(1), 4);
        assert_eq!([queues.pop(), queues.pop(), queues.pop()], [Some(4), Some(7000), Some(5)]);
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
