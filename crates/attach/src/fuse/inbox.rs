//! Memory that requests are read into. How much of it a request needs is known when it is there,
//! and the kernel demands room for the largest: so each request is read to the beginning of what is
//! left of a region, and a write keeps no more of it than its payload has. Payloads of one region
//! are sent from it, and when all of them are, it is used again.

use std::collections::VecDeque;
use std::sync::Arc;

use ebof_region::Region;

use crate::block_queue::buffer::Buffer;

/// A region holds so many payloads of the largest size: when less than one is left of it, the rest
/// is not used.
const PAYLOADS: usize = 4;

/// The room for the next request, and the regions of payloads that are in progress.
#[derive(Debug)]
pub(super) struct Inbox {
    largest: usize,
    /// What is left of the last region.
    rest: ebof_region::Buffer,
    /// The others, oldest first. No more than payloads in progress need: the most that there were
    /// together until [`Inbox::trim`].
    regions: VecDeque<Arc<Region>>,
}

impl Inbox {
    /// For requests with up to `largest` bytes of payload.
    pub(super) fn new(largest: usize) -> Self {
        let rest = ebof_region::Buffer::zeroed(largest * PAYLOADS);
        Self { largest, rest, regions: VecDeque::new() }
    }

    /// Where the next request goes.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.rest.as_mut_slice()[..self.largest]
    }

    /// The first `length` bytes of the room, which is another one then.
    pub(super) fn take(&mut self, length: usize) -> Buffer {
        let payload = self.rest.cut(length).expect("a payload is no longer than the room");
        if self.rest.capacity() < self.largest {
            let next = self.unused().unwrap_or_else(|| ebof_region::Buffer::zeroed(self.largest * PAYLOADS));
            let last = std::mem::replace(&mut self.rest, next);
            self.regions.push_back(Arc::clone(last.region()));
        }
        Buffer::from_region(payload, length)
    }

    /// A region whose payloads are all done with.
    fn unused(&mut self) -> Option<ebof_region::Buffer> {
        for _ in 0..self.regions.len() {
            match ebof_region::Buffer::of_unused(self.regions.pop_front()?) {
                Ok(buffer) => return Some(buffer),
                Err(region) => self.regions.push_back(region),
            }
        }
        None
    }

    /// Whether there are regions besides the last.
    pub(super) fn is_kept(&self) -> bool {
        !self.regions.is_empty()
    }

    /// Frees the regions whose payloads are all done with.
    pub(super) fn trim(&mut self) {
        while self.unused().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const LARGEST: usize = 1 << 20;
    const PAYLOAD: usize = 128 << 10;

    /// Writes of 128 KiB at depth 128, as the kernel may send much larger ones: the pages that they
    /// are read to are the same in each round, and not many more than the payloads have.
    // @test speed.block-device-memory
    #[test]
    fn payloads_of_a_deep_queue_use_the_same_memory_again() {
        let mut inbox = Inbox::new(LARGEST);
        let mut places = BTreeSet::new();
        for round in 0..20_u8 {
            let payloads: Vec<_> = (0..128_u8)
                .map(|at| {
                    inbox.room()[..PAYLOAD].fill(at ^ round);
                    inbox.take(PAYLOAD)
                })
                .collect();
            for (at, payload) in (0_u8..).zip(&payloads) {
                assert_eq!(payload.len(), PAYLOAD);
                assert!(payload.iter().all(|byte| *byte == at ^ round), "of another request");
            }
            places.extend(payloads.iter().map(|payload| payload.as_ptr() as usize / LARGEST));
        }
        let kept = inbox.regions.iter().map(|region| region.capacity()).sum::<usize>() + inbox.rest.capacity();
        assert!(kept <= 128 * PAYLOAD * 2, "{kept} bytes");
        assert!(places.len() <= 2 * 128 * PAYLOAD / LARGEST + 8, "{} MiB", places.len());
        inbox.trim();
        assert!(!inbox.is_kept());
    }

    #[test]
    fn a_region_whose_payload_is_in_progress_is_not_used_again() {
        let mut inbox = Inbox::new(LARGEST);
        inbox.room().fill(7);
        let slow = inbox.take(LARGEST);
        for _ in 0..100 {
            inbox.room().fill(8);
            drop(inbox.take(LARGEST - 5));
        }
        inbox.trim();
        assert!(slow.iter().all(|byte| *byte == 7) && inbox.regions.len() == 1);
        drop(slow);
        inbox.trim();
        assert!(!inbox.is_kept());
    }
}
