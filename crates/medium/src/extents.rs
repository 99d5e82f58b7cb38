//! The extents of a medium: which are free, which of those are zeroed, and how they become free
//! again. An extent that may hold old bytes is zeroed, durably, before it is allocated; one that
//! requests may still access is not free. No records are written here: the store does that, in the
//! order that is needed. The only I/O is that of `extents/zeroing.rs`, on a thread of its own.

pub(crate) mod zeroing;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{SendError, Sender};
use std::time::Duration;

use ebof_backend::{Class, Error as DeviceError, Operation};
use ebof_drive::allocator::Allocator;

use crate::extents::zeroing::ZeroRequest;
use crate::thin::refused;
use crate::thin::shared::{Epoch, Shared};
use crate::{Notice, Thin, VolumeId};

/// Extents by which the high-water mark rises at least: each time costs a flush.
const HIGH_WATER_STEP: u32 = 4096;
/// Extents that are zeroed at a time if the backing device can deallocate.
const ZERO_EXTENTS: usize = 64;
/// Bytes that are zeroed at a time if it cannot.
const ZERO_BYTES: u64 = 4 << 20;
/// Extents that one call of [`Extents::reclaim`] unmaps and frees at most.
const RECLAIM_EXTENTS: u32 = 8192;
/// Steps of the search for mapped extents in one call.
const RECLAIM_STEPS: u32 = 1 << 16;
/// How soon it is checked again whether requests still access freed extents.
const RECLAIM_DELAY: Duration = Duration::from_millis(5);

/// The extents of a medium. Used by the drive's thread only.
pub(crate) struct Extents {
    shared: Arc<Shared>,
    allocator: Allocator,
    /// Unmapped extents, and the epoch in which requests may have looked them up before. The oldest
    /// first: an epoch is over only when those before it are.
    quarantine: VecDeque<(Arc<Epoch>, Vec<u32>)>,
    /// Removed namespaces, and the index from which on they may still have mapped extents.
    removed: VecDeque<(Arc<Thin>, u32)>,
    /// How many extents are being zeroed in the background. They are marked as used.
    zeroing: usize,
    /// Sends extents to the thread that zeroes them; `None` while the drive is being opened.
    zero_requests: Option<Sender<ZeroRequest>>,
    /// Why the last extents could not be zeroed.
    zeroing_failed: Option<DeviceError>,
    /// Extents became free since [`take_freed`](Self::take_freed).
    freed: bool,
    /// A write was refused because there was no free extent, and none became free since.
    full: bool,
    /// Dirty extents are not zeroed in the background.
    keeps_dirty: bool,
}

impl Extents {
    /// Marks the mapped extents of all namespaces as used; the others below `high_water` are dirty.
    ///
    /// # Errors
    /// An extent is mapped twice, or does not exist. Not on a damaged drive, where that may be.
    pub(crate) fn new(shared: &Arc<Shared>, high_water: u32) -> Result<Self, String> {
        let mut allocator = Allocator::new(shared.layout.extents(), high_water);
        for thin in shared.thins() {
            let mut used = 0;
            for extent in thin.map.runs().flat_map(|(_, extents)| extents) {
                if !allocator.claim(extent) && !shared.read_only {
                    return Err(format!("extent {extent} is used twice, or does not exist"));
                }
                used += 1;
            }
            thin.used.store(used, Ordering::Relaxed);
        }
        Ok(Self {
            shared: Arc::clone(shared),
            allocator,
            quarantine: VecDeque::new(),
            removed: VecDeque::new(),
            zeroing: 0,
            zero_requests: None,
            zeroing_failed: None,
            freed: false,
            full: false,
            keeps_dirty: false,
        })
    }

    /// The high-water mark: from this extent on none was ever used.
    pub(crate) fn high_water(&self) -> u32 {
        self.allocator.high_water()
    }

    /// Raises the high-water mark, which is durable.
    pub(crate) fn raise(&mut self, high_water: u32) {
        self.allocator.raise(high_water);
    }

    /// Whether `count` extents can be allocated: free, zeroed, and below the high-water mark.
    pub(crate) fn are_ready(&self, count: u32) -> bool {
        self.clean_below_mark() >= count
    }

    /// Clean extents below the high-water mark, at least. Extents above it are taken for free and
    /// clean; a medium may say otherwise, and [`take_free`](Self::take_free) takes them, too.
    fn clean_below_mark(&self) -> u32 {
        let above = self.shared.layout.extents() - self.allocator.high_water();
        self.allocator.clean_count().saturating_sub(above)
    }

    /// The high-water mark that makes `count` more extents usable; `None` if it cannot rise.
    pub(crate) fn next_high_water(&self, count: u32) -> Option<u32> {
        let high_water = self.allocator.high_water();
        let extents = self.shared.layout.extents();
        (high_water < extents).then(|| high_water.saturating_add(HIGH_WATER_STEP.max(count)).min(extents))
    }

    /// Allocates an extent that reads as zeros; `None` if none is ready.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.allocator.allocate()
    }

    /// Frees an extent that was never mapped. If `is_clean`, nothing was written to it.
    pub(crate) fn put_back(&mut self, extent: u32, is_clean: bool) {
        let is_freed = if is_clean { self.allocator.free_clean(extent) } else { self.allocator.free(extent) };
        assert!(is_freed, "extent {extent} is put back by whoever took it, once");
    }

    /// Allocates all free extents of a range, dirty or not.
    pub(crate) fn take_free(&mut self, range: Range<u32>) -> Vec<u32> {
        range.filter(|&extent| self.allocator.claim(extent)).collect()
    }

    /// A free extent that may hold old bytes, if there is any.
    pub(crate) fn any_dirty(&self) -> Option<u32> {
        self.allocator.dirty(1).first().copied()
    }

    /// Whether any extent is free, dirty or not.
    pub(crate) fn has_free(&self) -> bool {
        self.allocator.free_count() > 0
    }

    /// Whether the backing device zeroes by deallocating.
    fn zeroes_quickly(&self) -> bool {
        self.shared.base.geometry().deallocates
    }

    /// Keeps dirty extents as they are, instead of zeroing them in the background.
    pub(crate) fn set_keeps_dirty(&mut self, keeps_dirty: bool) {
        self.keeps_dirty = keeps_dirty;
    }

    pub(crate) fn keeps_dirty(&self) -> bool {
        self.keeps_dirty
    }

    /// Whether there are dirty extents to be zeroed when there is nothing else to do. If zeroing is
    /// slow, they are zeroed only when they are needed.
    pub(crate) fn wants_zeroing(&self) -> bool {
        self.allocator.has_dirty() && self.zeroes_quickly() && !self.keeps_dirty && self.zeroing == 0
    }

    /// The next dirty extents to be zeroed; `None` if there are none.
    pub(crate) fn next_zero_request(&self) -> Option<ZeroRequest> {
        let layout = self.shared.layout;
        let slowly = usize::try_from(ZERO_BYTES / layout.extent_bytes).unwrap_or(ZERO_EXTENTS).clamp(1, ZERO_EXTENTS);
        let extents = self.allocator.dirty(if self.zeroes_quickly() { ZERO_EXTENTS } else { slowly });
        let runs = extents.chunk_by(|one, next| one + 1 == *next);
        let ranges = runs.map(|run| (layout.extent(run[0]), layout.extent_bytes * run.len() as u64)).collect();
        (!extents.is_empty()).then_some(ZeroRequest { extents, ranges })
    }

    /// Has extents zeroed by whoever receives these requests.
    pub(crate) fn set_zeroing_thread(&mut self, zero_requests: Sender<ZeroRequest>) {
        self.zero_requests = Some(zero_requests);
    }

    pub(crate) fn has_zeroing_thread(&self) -> bool {
        self.zero_requests.is_some()
    }

    /// Whether extents are being zeroed in the background.
    ///
    /// # Errors
    /// The last ones could not be zeroed. Reported once.
    pub(crate) fn check_zeroing(&mut self) -> Result<bool, DeviceError> {
        match self.zeroing_failed.take() {
            Some(error) => Err(error),
            None => Ok(self.zeroing > 0),
        }
    }

    /// Whether extents are being zeroed in the background.
    pub(crate) fn is_zeroing(&self) -> bool {
        self.zeroing > 0
    }

    /// Has free extents zeroed in the background.
    pub(crate) fn start_zeroing(&mut self, zero_request: ZeroRequest) {
        let zero_requests = self.zero_requests.as_ref().expect("callers ask `has_zeroing_thread` first");
        assert!(self.zeroing == 0, "there is one request at a time: `check_zeroing` says when the last one is done");
        // Marked as used: they are not allocated meanwhile.
        for &extent in &zero_request.extents {
            let is_claimed = self.allocator.claim(extent);
            assert!(is_claimed, "extent {extent} was free when the request was made, on this thread");
        }
        self.zeroing = zero_request.extents.len();
        if let Err(SendError(zero_request)) = zero_requests.send(zero_request) {
            // The thread has panicked, and the process is about to end.
            let reason = "the thread that zeroes has ended";
            self.zeroed(zero_request.extents, Err(refused(&Operation::Flush, Class::Gone, reason)));
        }
    }

    /// Frees extents that were being zeroed.
    pub(crate) fn zeroed(&mut self, extents: Vec<u32>, result: Result<(), DeviceError>) {
        assert!(self.zeroing == extents.len(), "a request comes back as it was sent, once");
        self.zeroing = 0;
        for extent in extents {
            self.put_back(extent, result.is_ok());
        }
        self.zeroing_failed = result.err();
        self.freed = true;
        self.publish_used();
    }

    /// Marks free extents as zeroed. They are, durably.
    pub(crate) fn mark_clean(&mut self, extents: Vec<u32>) {
        for extent in extents {
            let is_marked = self.allocator.mark_clean(extent);
            assert!(is_marked, "extent {extent} was free and dirty when zeroing began, on this thread");
        }
    }

    /// Unmaps extents of a namespace; they become free when no request can access them any more.
    /// Returns them: index, and extent of the medium.
    pub(crate) fn release(&mut self, thin: &Thin, range: Range<u32>) -> Vec<(u32, u32)> {
        let unmapped = thin.unmap(range);
        if !unmapped.is_empty() {
            thin.uncount_used(u32::try_from(unmapped.len()).expect("a map has at most `INDEX_MAX` extents"));
            let extents = unmapped.iter().map(|&(_, extent)| extent).collect();
            self.quarantine.push_back((self.shared.next_epoch(), extents));
        }
        unmapped
    }

    /// Unmaps all extents of a removed namespace, in later calls of [`reclaim`](Self::reclaim).
    pub(crate) fn release_all(&mut self, thin: Arc<Thin>) {
        if thin.allocated_extents() > 0 {
            self.removed.push_back((thin, 0));
        }
    }

    /// Unmaps some extents of removed namespaces, and frees some that no request can access any
    /// more: a bounded number of both. Returns how soon it is to be called again; `None` if nothing
    /// is left.
    pub(crate) fn reclaim(&mut self) -> Option<Duration> {
        self.release_removed();
        let mut left = RECLAIM_EXTENTS;
        while left > 0
            && let Some((epoch, extents)) = self.quarantine.front_mut()
            && Arc::strong_count(epoch) == 1
        {
            // Pairs with the drops of the epoch: what those requests did has happened.
            fence(Ordering::Acquire);
            let keep = extents.len().saturating_sub(left as usize);
            left = left.saturating_sub(u32::try_from(extents.len()).unwrap_or(u32::MAX));
            for extent in extents.drain(keep..) {
                let is_freed = self.allocator.free(extent);
                assert!(is_freed, "extent {extent} was mapped: no two namespaces have the same, see `Extents::new`");
            }
            if keep == 0 {
                self.quarantine.pop_front();
            }
            self.publish_used();
            self.freed = true;
            if self.full {
                self.full = false;
                self.shared.notify(Notice::Room);
            }
        }
        let is_over = |(epoch, _): &(Arc<Epoch>, Vec<u32>)| Arc::strong_count(epoch) == 1;
        match self.quarantine.front() {
            _ if !self.removed.is_empty() => Some(Duration::ZERO),
            Some(front) if is_over(front) => Some(Duration::ZERO),
            Some(_) => Some(RECLAIM_DELAY),
            None => None,
        }
    }

    /// Unmaps some extents of the first removed namespace.
    fn release_removed(&mut self) {
        let Some((thin, next)) = self.removed.front_mut() else { return };
        let thin = Arc::clone(thin);
        let begin = *next;
        let mut extents = RECLAIM_EXTENTS;
        let mut steps = RECLAIM_STEPS;
        let end = thin.limit_extents(begin..thin.map.len(), &mut extents, &mut steps);
        *next = end;
        if end >= thin.map.len() {
            self.removed.pop_front();
        }
        // Its tags were dropped when it was removed.
        let _unmapped = self.release(&thin, begin..end);
    }

    /// Whether extents became free since the last call.
    pub(crate) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Lets other threads see how many extents are in use.
    pub(crate) fn publish_used(&self) {
        let used = self.shared.layout.extents() - self.allocator.free_count();
        self.shared.used.store(used, Ordering::Relaxed);
    }

    /// Whether there are extents that were given back and cannot be allocated yet.
    pub(crate) fn is_reclaiming(&self) -> bool {
        !self.quarantine.is_empty() || !self.removed.is_empty() || self.zeroing > 0
    }

    /// Notifies the owner that a write found no free extent, once until some are free again.
    pub(crate) fn report_full(&mut self, volume: VolumeId) {
        if !self.full {
            self.full = true;
            self.shared.notify(Notice::Full(volume));
        }
    }

    /// How many extents were given back and may still hold their old bytes.
    pub(crate) fn unclean(&self) -> u32 {
        let dirty = self.allocator.dirty_count();
        let waiting: usize = self.quarantine.iter().map(|(_, extents)| extents.len()).sum();
        let removed: u32 = self.removed.iter().map(|(thin, _)| thin.allocated_extents()).fold(0, u32::saturating_add);
        let waiting = u32::try_from(waiting + self.zeroing).unwrap_or(u32::MAX);
        dirty.saturating_add(waiting).saturating_add(removed)
    }

    /// Bytes, at most, that were used and whose storage was given back to the backing device.
    pub(crate) fn given_back_bytes(&self) -> u64 {
        let clean = self.clean_below_mark();
        if self.zeroes_quickly() { u64::from(clean) * self.shared.layout.extent_bytes } else { 0 }
    }
}
