//! Free extents: how they are made ready for use, and how they come back. What may hold old bytes is zeroed, durably, before it
//! is given to anybody; what somebody may still reach is not free.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::SendError;
use std::time::Duration;

use ebof_backend::{Class, Error as DeviceError, Operation};
use ebof_drive::frame::Record;

use crate::journal::Point;
use crate::shared::Epoch;
use crate::thin::refused;
use crate::washer::Load;
use crate::{Error, Instance, Notice, Store, Thin};

/// Extents by which the water mark rises: so many are taken for each flush of it.
const WATER_STEP: u32 = 4096;
/// Extents that are zeroed at a time where the backing device gives their storage back.
const WASH: usize = 64;
/// Bytes that are zeroed at a time where it does not.
const WASH_BYTES: u64 = 4 << 20;
/// Extents that are taken from a namespace that was removed, or become free, between two looks at what others ask for.
const PART: u32 = 8192;
/// Groups of extents without places that are looked at for that.
const PART_LOOKS: u32 = 1 << 16;
/// How soon extents are looked at again that somebody may still reach.
const SETTLE: Duration = Duration::from_millis(5);

impl Store {
    /// Sees to it that `count` extents can be taken that read as zeros: as many as there are. If whoever needs them `may_wait`, what
    /// has to be zeroed first is so in the background, and is there later.
    pub(crate) fn prepare(&mut self, count: u32, may_wait: bool) -> Result<(), Error> {
        while self.ready() < count {
            let water = self.allocator.water();
            if water < self.shared.layout.extents() {
                let next = water.saturating_add(WATER_STEP.max(count)).min(self.shared.layout.extents());
                self.append(&[Record::Water(next)], true)?;
                self.allocator.raise(next);
            } else if may_wait && self.start_wash()? || !self.wash()? {
                // What was just given back may still be read or written by requests that began before: nobody waits for that here.
                break;
            }
        }
        Ok(())
    }

    /// Free extents below the water mark that read as zeros.
    fn ready(&self) -> u32 {
        let above = self.shared.layout.extents().saturating_sub(self.allocator.water());
        self.allocator.clean().saturating_sub(above)
    }

    /// Whether the backing device has what is zeroed by the way.
    pub(crate) fn zeroes_quickly(&self) -> bool {
        self.shared.base.geometry().deallocates
    }

    /// Does a part of what can be done when there is nothing else.
    pub(crate) fn tidy(&mut self) -> Result<(), Error> {
        self.make_sure()?;
        if self.owes_keys() {
            self.forget_keys()?;
        }
        self.settle_some();
        self.journal_reverted()?;
        if self.is_held { Ok(()) } else { self.start_wash().map(|_some| ()) }
    }

    /// Some of the free extents that may hold old bytes, and where they are.
    fn stained(&self) -> Load {
        let layout = self.shared.layout;
        let slowly = usize::try_from(WASH_BYTES / layout.extent_bytes).unwrap_or(WASH).clamp(1, WASH);
        let extents = self.allocator.stained(if self.zeroes_quickly() { WASH } else { slowly });
        let runs = extents.chunk_by(|one, next| one + 1 == *next);
        let ranges = runs.map(|run| (layout.extent(run[0]), layout.extent_bytes * run.len() as u64)).collect();
        Load { extents, ranges }
    }

    /// Has some of the free extents that may hold old bytes zeroed in the background; `false` if there are none, and none are being
    /// zeroed.
    pub(crate) fn start_wash(&mut self) -> Result<bool, Error> {
        if let Some(error) = self.wash_failed.take() {
            return Err(error.into());
        }
        if self.washing > 0 {
            return Ok(true);
        }
        let Some(washer) = self.washer.clone() else { return self.wash() };
        let load = self.stained();
        if load.extents.is_empty() {
            return Ok(false);
        }
        // A record that failed may be in the journal all the same, and give one of them to somebody.
        if !self.is_sure() {
            self.make_sure()?;
        }
        // Nobody is given them meanwhile.
        for &extent in &load.extents {
            self.allocator.claim(extent);
        }
        self.washing = load.extents.len();
        if let Err(SendError(load)) = washer.send(load) {
            // It has panicked, and the process is about to end.
            let reason = "the thread that zeroes has ended";
            self.washed(load.extents, Err(refused(&Operation::Flush, Class::Gone, reason)));
        }
        Ok(true)
    }

    /// These extents were being zeroed, and are free again.
    pub(crate) fn washed(&mut self, extents: Vec<u32>, result: Result<(), DeviceError>) {
        self.washing = 0;
        for extent in extents {
            if result.is_ok() {
                self.allocator.give_back_clean(extent);
            } else {
                self.allocator.give_back(extent);
            }
        }
        self.wash_failed = result.err();
        self.gave_back = true;
        self.count();
    }

    /// Zeroes some of the free extents that may hold old bytes; `false` if there are none.
    pub(crate) fn wash(&mut self) -> Result<bool, Error> {
        let Load { extents: stained, ranges } = self.stained();
        if stained.is_empty() {
            return Ok(false);
        }
        // A record that failed may be in the journal all the same, and give one of them to somebody.
        if !self.is_sure() {
            self.make_sure()?;
        }
        self.disk.zero(ranges.into_iter(), true)?;
        // Before one of them can be in the journal, it must not come back with its old bytes after a power loss; and that it
        // was taken from where it was must not be forgotten.
        self.flush()?;
        stained.into_iter().for_each(|extent| self.allocator.wash(extent));
        Ok(true)
    }

    /// Whether there is something to do when there is nothing else, see [`tidy`](Self::tidy).
    pub(crate) fn is_untidy(&self) -> bool {
        // What was given back is zeroed when there is nothing else to do; where that is slow, only when it is needed.
        let stained = self.allocator.is_stained() && self.zeroes_quickly() && !self.is_held && self.washing == 0;
        let untidy = stained || !self.is_sure() || self.has_unsettled() || self.owes_keys();
        (untidy || !self.tags.reverted.is_empty()) && !self.is_read_only()
    }

    /// Brings everything to the medium.
    pub(crate) fn flush(&mut self) -> Result<(), DeviceError> {
        self.release_tags();
        self.journal.flush(&mut self.disk, &self.shared.journal)
    }

    /// A flush that began at this point is over.
    pub(crate) fn flushed(&mut self, point: Point) {
        self.journal.flushed_to(point, &self.shared.journal);
        self.mark();
    }

    /// Lets the journal know when it is known of all blocks which tag is theirs: no block is being written.
    pub(crate) fn release_tags(&mut self) {
        if self.tags.is_settled() {
            self.journal.release();
        }
    }

    /// Lets others see where the journal is now that it has said something of these namespaces, perhaps.
    pub(crate) fn publish<'a>(&mut self, thins: impl Iterator<Item = &'a Arc<Thin>>) {
        self.release_tags();
        self.journal.publish(&self.shared.journal, thins);
    }

    /// Whether more is flushed than the medium says.
    pub(crate) fn is_unmarked(&self) -> bool {
        !self.is_read_only() && !self.journal.is_marked()
    }

    /// Has the medium say what is flushed, where nothing else will.
    pub(crate) fn mark(&mut self) {
        if !self.is_read_only() {
            self.journal.mark(&mut self.disk, &self.shared.journal);
        }
    }

    /// Whether the drive is damaged, and not written for that reason.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.shared.read_only
    }

    /// Takes extents from a namespace; they are free when nobody can reach them any more.
    pub(crate) fn release(&mut self, thin: &Thin, range: Range<u32>) {
        // What has no place is not touched: the table takes memory where it is written.
        let taken = thin.unmap(range);
        if thin.is_tagged {
            self.forget_tags(thin, &taken);
        }
        self.quarantine_extents(thin, taken.into_iter().map(|(_, place)| place).collect());
    }

    /// These places were a namespace's.
    fn quarantine_extents(&mut self, thin: &Thin, taken: Vec<u32>) {
        if taken.is_empty() {
            return;
        }
        thin.used.fetch_sub(u32::try_from(taken.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.quarantine.push_back((self.shared.turn(), taken));
    }

    /// Takes some extents from namespaces that were removed, and gives back some that nobody can reach any more: a part that others
    /// can wait for. How soon there is to be another one; `None` if there is nothing left.
    pub(crate) fn settle(&mut self) -> Option<Duration> {
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
                self.shared.tell(Notice::Room);
            }
        }
        let is_over = |(epoch, _): &(Arc<Epoch>, Vec<u32>)| Arc::strong_count(epoch) == 1;
        match self.quarantine.front() {
            _ if !self.leaving.is_empty() => Some(Duration::ZERO),
            Some(front) if is_over(front) => Some(Duration::ZERO),
            Some(_) => Some(SETTLE),
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
        let places = thin.unmap(begin..end).into_iter().map(|(_, place)| place).collect();
        self.quarantine_extents(&thin, places);
    }

    /// Counts what is in use, for other threads.
    pub(crate) fn count(&self) {
        let used = self.shared.layout.extents() - self.allocator.free();
        self.shared.used.store(used, Ordering::Relaxed);
    }

    /// Whether extents were given back that are not free yet.
    pub(crate) fn is_settling(&self) -> bool {
        !self.quarantine.is_empty() || !self.leaving.is_empty() || self.washing > 0
    }

    /// A write found no free extent.
    pub(crate) fn is_full(&mut self, instance: Instance) {
        if !self.full {
            self.full = true;
            self.shared.tell(Notice::Full(instance));
        }
    }
}
