//! The extents of a medium: which are free, how they are made ready for use, and how they come
//! back. What may hold old bytes is zeroed, durably, before it is given to anybody; what somebody
//! may still reach is not free. It writes no records and does no
//! I/O: the store does both, in the order that they need.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{SendError, Sender};
use std::time::Duration;

use ebof_backend::{Class, Error as DeviceError, Operation};
use ebof_drive::allocator::Allocator;

use crate::shared::{Epoch, Shared};
use crate::thin::refused;
use crate::zeroing::ZeroRequest;
use crate::{Notice, Thin, VolumeId};

/// Extents by which the high-water mark rises: so many are taken for each flush of it.
const HIGH_WATER_STEP: u32 = 4096;
/// Extents that are zeroed at a time where the backing device gives their storage back.
const ZERO_EXTENTS: usize = 64;
/// Bytes that are zeroed at a time where it does not.
const ZERO_BYTES: u64 = 4 << 20;
/// Extents that are taken from a namespace that was removed, or become free, between two looks at
/// what others ask for.
const PART: u32 = 8192;
/// Groups of extents without places that are looked at for that.
const PART_LOOKS: u32 = 1 << 16;
/// How soon extents are looked at again that somebody may still reach.
const RECLAIM_AGAIN: Duration = Duration::from_millis(5);

/// The extents of a medium in the hands of the drive's thread.
pub(crate) struct Extents {
    shared: Arc<Shared>,
    allocator: Allocator,
    /// Extents that were given back, behind the epoch in which they were still looked up. The
    /// oldest first: an epoch is over when those before it are.
    quarantine: VecDeque<(Arc<Epoch>, Vec<u32>)>,
    /// Namespaces that were removed and have extents from there on, by number.
    leaving: VecDeque<(Arc<Thin>, u32)>,
    /// How many extents are being zeroed in the background; nobody else has them.
    zeroing: usize,
    /// Who does that, while the drive is served.
    zero_requests: Option<Sender<ZeroRequest>>,
    /// Why the last of it failed.
    zeroing_failed: Option<DeviceError>,
    /// Extents became free since somebody looked.
    gave_back: bool,
    /// A write was refused because there was no free extent, and there was none since.
    full: bool,
    /// What was given back keeps its storage until it is overwritten.
    is_held: bool,
}

impl Extents {
    /// The extents of a medium: those of its namespaces are in use, the others below `high_water`
    /// may hold anything. Where the drive is damaged, one may have two namespaces.
    pub(crate) fn new(shared: &Arc<Shared>, high_water: u32) -> Result<Self, String> {
        let mut allocator = Allocator::new(shared.layout.extents(), high_water);
        for thin in shared.thins() {
            let mut used = 0;
            for place in thin.map.runs().flat_map(|(_, places)| places) {
                if !allocator.claim(place) && !shared.read_only {
                    return Err(format!("extent {place} is used twice, or does not exist"));
                }
                used += 1;
            }
            thin.used.store(used, Ordering::Relaxed);
        }
        Ok(Self {
            shared: Arc::clone(shared),
            allocator,
            quarantine: VecDeque::new(),
            leaving: VecDeque::new(),
            zeroing: 0,
            zero_requests: None,
            zeroing_failed: None,
            gave_back: false,
            full: false,
            is_held: false,
        })
    }

    /// From this extent on none was ever used.
    pub(crate) fn high_water(&self) -> u32 {
        self.allocator.high_water()
    }

    /// The medium has this mark now.
    pub(crate) fn raise(&mut self, high_water: u32) {
        self.allocator.raise(high_water);
    }

    /// Whether `count` extents can be taken: free, below the high-water mark, and zeros.
    pub(crate) fn are_ready(&self, count: u32) -> bool {
        let above = self.shared.layout.extents().saturating_sub(self.allocator.high_water());
        self.allocator.clean().saturating_sub(above) >= count
    }

    /// The mark that makes room for `count` extents; `None` if it cannot rise any more.
    pub(crate) fn next_high_water(&self, count: u32) -> Option<u32> {
        let (high_water, extents) = (self.allocator.high_water(), self.shared.layout.extents());
        (high_water < extents).then(|| high_water.saturating_add(HIGH_WATER_STEP.max(count)).min(extents))
    }

    /// Takes an extent that is ready.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.allocator.take()
    }

    /// Gives back what nobody could reach yet. If `is_clean`, nothing was written to it.
    pub(crate) fn put_back(&mut self, extent: u32, is_clean: bool) {
        if is_clean {
            self.allocator.give_back_clean(extent);
        } else {
            self.allocator.give_back(extent);
        }
    }

    /// Takes all that are free of a range.
    pub(crate) fn take_free(&mut self, range: Range<u32>) -> Vec<u32> {
        range.filter(|&extent| self.allocator.claim(extent)).collect()
    }

    /// A free extent that may hold old bytes.
    pub(crate) fn any_dirty(&self) -> Option<u32> {
        self.allocator.dirty(1).first().copied()
    }

    /// Whether any extent is free, in whatever state.
    pub(crate) fn has_free(&self) -> bool {
        self.allocator.free() > 0
    }

    /// Whether the backing device has what is zeroed by the way.
    fn zeroes_quickly(&self) -> bool {
        self.shared.base.geometry().deallocates
    }

    /// Keeps (`true`) what was given back as it is, instead of having it zeroed in the background.
    pub(crate) fn hold(&mut self, held: bool) {
        self.is_held = held;
    }

    /// Whether it is.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether what was given back should be zeroed when there is nothing else to do; where that is
    /// slow, only when it is needed.
    pub(crate) fn wants_zeroing(&self) -> bool {
        self.allocator.has_dirty() && self.zeroes_quickly() && !self.is_held && self.zeroing == 0
    }

    /// Some of the free extents that may hold old bytes, and where they are; `None` if there are
    /// none.
    pub(crate) fn dirty(&self) -> Option<ZeroRequest> {
        let layout = self.shared.layout;
        let slowly = usize::try_from(ZERO_BYTES / layout.extent_bytes).unwrap_or(ZERO_EXTENTS).clamp(1, ZERO_EXTENTS);
        let extents = self.allocator.dirty(if self.zeroes_quickly() { ZERO_EXTENTS } else { slowly });
        let runs = extents.chunk_by(|one, next| one + 1 == *next);
        let ranges = runs.map(|run| (layout.extent(run[0]), layout.extent_bytes * run.len() as u64)).collect();
        (!extents.is_empty()).then_some(ZeroRequest { extents, ranges })
    }

    /// The thread that zeroes.
    pub(crate) fn set_zeroing_thread(&mut self, zero_requests: Sender<ZeroRequest>) {
        self.zero_requests = Some(zero_requests);
    }

    /// Whether there is a thread that zeroes.
    pub(crate) fn has_zeroing_thread(&self) -> bool {
        self.zero_requests.is_some()
    }

    /// Whether extents are being zeroed in the background.
    ///
    /// # Errors
    /// The last ones could not be. Reported once.
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
        let Some(zero_requests) = &self.zero_requests else { return };
        // Nobody is given them meanwhile.
        for &extent in &zero_request.extents {
            self.allocator.claim(extent);
        }
        self.zeroing = zero_request.extents.len();
        if let Err(SendError(zero_request)) = zero_requests.send(zero_request) {
            // It has panicked, and the process is about to end.
            let reason = "the thread that zeroes has ended";
            self.zeroed(zero_request.extents, Err(refused(&Operation::Flush, Class::Gone, reason)));
        }
    }

    /// These extents were being zeroed, and are free again.
    pub(crate) fn zeroed(&mut self, extents: Vec<u32>, result: Result<(), DeviceError>) {
        self.zeroing = 0;
        for extent in extents {
            self.put_back(extent, result.is_ok());
        }
        self.zeroing_failed = result.err();
        self.gave_back = true;
        self.count();
    }

    /// These free extents read as zeros now, durably.
    pub(crate) fn cleaned(&mut self, extents: Vec<u32>) {
        extents.into_iter().for_each(|extent| self.allocator.mark_clean(extent));
    }

    /// Takes extents from a namespace; they are free when nobody can reach them any more. Gives
    /// them: number, and place.
    pub(crate) fn release(&mut self, thin: &Thin, range: Range<u32>) -> Vec<(u32, u32)> {
        // What has no place is not touched: the table takes memory where it is written.
        let taken = thin.unmap(range);
        if !taken.is_empty() {
            thin.used.fetch_sub(u32::try_from(taken.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
            self.quarantine.push_back((self.shared.turn(), taken.iter().map(|&(_, place)| place).collect()));
        }
        taken
    }

    /// Takes all extents from a namespace that was removed, a part at a time.
    pub(crate) fn release_all(&mut self, thin: Arc<Thin>) {
        if thin.allocated_extents() > 0 {
            self.leaving.push_back((thin, 0));
        }
    }

    /// Takes some extents from namespaces that were removed, and gives back some that nobody can
    /// reach any more: a part that others can wait for. How soon there is to be another one; `None`
    /// if there is nothing left.
    pub(crate) fn reclaim(&mut self) -> Option<Duration> {
        self.take_apart();
        let mut part = PART;
        while part > 0
            && let Some((epoch, extents)) = self.quarantine.front_mut()
            && Arc::strong_count(epoch) == 1
        {
            // With the end of those who had it everything that they did is over.
            fence(Ordering::Acquire);
            let keep = extents.len().saturating_sub(part as usize);
            part = part.saturating_sub(u32::try_from(extents.len()).unwrap_or(u32::MAX));
            extents.drain(keep..).for_each(|extent| self.allocator.give_back(extent));
            if keep == 0 {
                self.quarantine.pop_front();
            }
            self.count();
            self.gave_back = true;
            if self.full {
                self.full = false;
                self.shared.notify(Notice::Room);
            }
        }
        let is_over = |(epoch, _): &(Arc<Epoch>, Vec<u32>)| Arc::strong_count(epoch) == 1;
        match self.quarantine.front() {
            _ if !self.leaving.is_empty() => Some(Duration::ZERO),
            Some(front) if is_over(front) => Some(Duration::ZERO),
            Some(_) => Some(RECLAIM_AGAIN),
            None => None,
        }
    }

    /// Takes some extents from the first namespace that was removed.
    fn take_apart(&mut self) {
        let Some((thin, next)) = self.leaving.front_mut() else { return };
        let (thin, begin) = (Arc::clone(thin), *next);
        let (mut extents, mut looks) = (PART, PART_LOOKS);
        let end = thin.reach_extents(begin..thin.map.len(), &mut extents, &mut looks);
        *next = end;
        if end >= thin.map.len() {
            self.leaving.pop_front();
        }
        // Its tags were forgotten when it was removed: its name may be another one's now.
        let _taken = self.release(&thin, begin..end);
    }

    /// Whether extents became free since this was asked last.
    pub(crate) fn take_gave_back(&mut self) -> bool {
        std::mem::take(&mut self.gave_back)
    }

    /// Counts what is in use, for other threads.
    pub(crate) fn count(&self) {
        let used = self.shared.layout.extents() - self.allocator.free();
        self.shared.used.store(used, Ordering::Relaxed);
    }

    /// Whether extents were given back that are not free yet.
    pub(crate) fn is_reclaiming(&self) -> bool {
        !self.quarantine.is_empty() || !self.leaving.is_empty() || self.zeroing > 0
    }

    /// A write found no free extent.
    pub(crate) fn is_full(&mut self, volume: VolumeId) {
        if !self.full {
            self.full = true;
            self.shared.notify(Notice::Full(volume));
        }
    }

    /// How many were given back and may still hold what was in them.
    pub(crate) fn unclean(&self) -> u32 {
        let reclaimed = self.allocator.free().saturating_sub(self.allocator.clean());
        let waiting: usize = self.quarantine.iter().map(|(_, extents)| extents.len()).sum();
        let leaving: u32 = self.leaving.iter().map(|(thin, _)| thin.allocated_extents()).fold(0, u32::saturating_add);
        let waiting = u32::try_from(waiting + self.zeroing).unwrap_or(u32::MAX);
        reclaimed.saturating_add(waiting).saturating_add(leaving)
    }

    /// Bytes, at most, that were used and whose storage was given back to what is below.
    pub(crate) fn given_back_bytes(&self) -> u64 {
        let never_used = self.shared.layout.extents().saturating_sub(self.allocator.high_water());
        let clean = self.allocator.clean().saturating_sub(never_used);
        if self.zeroes_quickly() { u64::from(clean) * self.shared.layout.extent_bytes } else { 0 }
    }
}
