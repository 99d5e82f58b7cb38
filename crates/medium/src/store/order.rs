//! The order of writes among the parts of a [`Store`]: what is in the journal before what, when a
//! checkpoint is written, and what is flushed first. The parts know of each other only what they
//! are given here.

use std::ops::Range;
use std::sync::Arc;

use ebof_backend::Error as DeviceError;
use ebof_drive::frame::{Checkpoint, FRAME_BYTES, Kind, Planned, Record, frames_max};
use ebof_drive::layout::JOURNAL_BYTES;

use crate::extents::zeroing::ZeroRequest;
use crate::journal::Point;
use crate::store::retry::RetryFaults;
use crate::{Error, Notice, Store, Thin, VolumeId};

/// Bytes that are written to find out whether writing works again.
const PROBE_BYTES: u64 = 1 << 20;

impl Store {
    /// Appends records to the journal, all or none of them; with `durable` they are durable when it
    /// returns. After an error none of them counts.
    pub(crate) fn append(&mut self, records: &[Record], durable: bool) -> Result<(), Error> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let outcome = self.try_append(records, durable);
        self.report_journal(records, &outcome);
        outcome
    }

    fn try_append(&mut self, records: &[Record], durable: bool) -> Result<(), Error> {
        self.tags.clear_unresolved(&mut self.journal);
        let mut frames = self.journal.encode(records);
        if !self.journal.is_settled() || !self.journal.has_room(frames.len()) {
            self.try_settle_journal(frames.len())?;
            frames = self.journal.encode(records);
        }
        if !self.journal.has_room(frames.len()) {
            let bytes_max = usize::try_from(JOURNAL_BYTES).unwrap_or(usize::MAX);
            return Err(Error::TooLarge { bytes: frames.len(), bytes_max });
        }
        self.journal.write(&mut self.disk, &self.shared.journal, (records, &frames), durable)?;
        let tags = |record: &Record| match record {
            Record::Tags { tags, .. } | Record::OnlyTags { tags, .. } => tags.len(),
            _ => 0,
        };
        self.tags.add_journaled(records.iter().map(tags).sum());
        if !records.iter().any(|record| matches!(record, Record::Tags { .. } | Record::Flux { .. })) {
            // These records need nothing else; the data for tags are still to be written. Before
            // the caller changes a map: a Flush behind a write that finds it changed needs a mark.
            let thins: Vec<Arc<Thin>> =
                records.iter().filter_map(|record| self.shared.thin(volume_of(record)?)).collect();
            self.publish(thins.iter());
            if durable && records.iter().any(is_management) {
                self.mark();
            }
        }
        Ok(())
    }

    /// Settles failed writes to the journal, so that nothing of them can be found on the medium as
    /// its continuation.
    pub(crate) fn settle_journal(&mut self) -> Result<(), Error> {
        let outcome = self.try_settle_journal(0);
        self.report_journal(&[], &outcome);
        outcome
    }

    /// The same, and makes room in the journal for these records, with a checkpoint if necessary.
    pub(crate) fn reserve_journal(&mut self, planned: &[Planned]) -> Result<(), Error> {
        let tags = planned.iter().filter(|planned| matches!(planned.kind, Kind::Tags | Kind::OnlyTags));
        let tags = tags.map(|planned| planned.entries).sum();
        let outcome = if self.tags.can_journal(tags) { Ok(()) } else { self.checkpoint(false) };
        let outcome = outcome.and_then(|()| self.try_settle_journal(frames_max(planned) * FRAME_BYTES));
        self.report_journal(&[], &outcome);
        outcome
    }

    /// Settles the journal, with room for `bytes` of frames.
    fn try_settle_journal(&mut self, bytes: usize) -> Result<(), Error> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        if !self.journal.has_room(bytes) {
            self.checkpoint(false)?;
        }
        if !self.journal.is_settled() {
            let marker = Record::HighWater(self.extents.high_water());
            self.journal.begin(&mut self.disk, &self.shared.journal, &marker)?;
        }
        self.journal.clear_suspect(&self.shared.journal);
        Ok(())
    }

    /// Notifies the owner when the journal begins to fail, and when it works again.
    fn report_journal(&mut self, records: &[Record], outcome: &Result<(), Error>) {
        if let Some(notice) = self.journal.record_outcome(&self.shared.journal, records, outcome) {
            self.shared.notify(notice);
        }
    }

    /// Takes the new failures of the backing device, notifies the owner of new faults, and starts a
    /// job that retries them.
    pub(crate) fn check_faults(&mut self) {
        let elsewhere = std::mem::take(&mut *self.shared.failures());
        let had_faults = self.disk.faults.is_any();
        for fault in self.disk.faults.check(elsewhere, self.shared.clock.now()) {
            self.shared.notify(Notice::Fails(fault));
        }
        if !had_faults && self.disk.faults.is_any() {
            self.start(Box::new(RetryFaults));
        }
    }

    /// Whether there is a fault of the backing device that was logged already.
    pub(crate) fn has_faults(&self) -> bool {
        self.disk.faults.is_any() || self.journal.is_failing()
    }

    /// Writes zeros to a free extent, to find out whether writing works again, and deallocates it
    /// afterwards. `None` if there is no free extent.
    pub(crate) fn probe_write(&mut self) -> Option<bool> {
        let clean = self.extents.take();
        let extent = clean.or_else(|| self.extents.any_dirty())?;
        let layout = self.shared.layout;
        let at = layout.extent(extent);
        let len = layout.extent_bytes.min(PROBE_BYTES);
        let zeros = vec![0; usize::try_from(len).unwrap_or_default()];
        let written = self.disk.write(at, &zeros).and_then(|()| self.flush());
        // Only zeros were written. Whether that failed or not, a clean extent stays clean.
        if clean.is_some() {
            self.extents.put_back(extent, true);
        }
        // Without storage again, so that the next probe has to allocate it, too.
        let emptied = self.disk.zero(std::iter::once((at, len)), true);
        Some(written.is_ok() && emptied.is_ok())
    }

    /// As [`checkpoint`](Self::checkpoint); the owner is notified if it fails.
    pub(crate) fn checkpoint_and_report(&mut self) -> Result<(), Error> {
        let outcome = self.checkpoint(false);
        self.report_journal(&[], &outcome);
        outcome
    }

    /// Writes a checkpoint, and begins a new journal. `clean`: the drive is being closed.
    pub(crate) fn checkpoint(&mut self, clean: bool) -> Result<(), Error> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        self.begin_settling_all();
        let written = self.try_checkpoint(clean);
        self.end_settling_all(written.is_ok());
        written
    }

    fn try_checkpoint(&mut self, clean: bool) -> Result<(), Error> {
        // The checkpoint replaces the tags in the journal: their pages are durable before it is, or
        // the tags are in it.
        let tags = self.tags.write_back_all(&mut self.disk, &mut self.journal)?;
        let flux = self.flux_records();
        let mut records = vec![Record::HighWater(self.extents.high_water())];
        for thin in self.shared.thins() {
            let volume = thin.volume;
            records.push(Record::Create {
                volume,
                blocks: thin.block_count(),
                quota: thin.quota,
                block_format: thin.block_format,
            });
            records.extend(thin.map.runs().map(|(first, extents)| Record::Map { volume, first, extents }));
            let bad = |range: Range<u64>| Record::Bad {
                volume,
                start: range.start,
                blocks: range.end - range.start,
                bad: true,
            };
            records.extend(thin.bad_blocks().iter().map(bad));
        }
        let carried = tags.iter().map(|record| match record {
            Record::Tags { tags, .. } | Record::OnlyTags { tags, .. } => tags.len(),
            _ => 0,
        });
        let carried = carried.sum();
        records.extend(tags);
        records.extend(flux);
        let (state, changes) = self.owner.current();
        records.extend(changes);
        self.journal.checkpoint(&mut self.disk, &Checkpoint { state, records, clean })?;
        self.tags.checkpoint_written(carried);
        self.publish(std::iter::empty());
        Ok(())
    }

    /// Makes `count` extents ready to be allocated, or as many as there are. If `may_wait`, those
    /// that have to be zeroed first are zeroed in the background, and are ready later.
    pub(crate) fn prepare(&mut self, count: u32, may_wait: bool) -> Result<(), Error> {
        while !self.extents.are_ready(count) {
            if let Some(high_water) = self.extents.next_high_water(count) {
                self.append(&[Record::HighWater(high_water)], true)?;
                self.extents.raise(high_water);
            } else if may_wait && self.start_zeroing()? || !self.zero_some()? {
                // Freed extents that requests may still access are not waited for here.
                break;
            }
        }
        Ok(())
    }

    /// Whether [`maintain`](Self::maintain) has something to do.
    pub(crate) fn needs_maintenance(&self) -> bool {
        let pending = self.extents.wants_zeroing()
            || !self.journal.is_settled()
            || self.tags.has_unresolved()
            || self.tags.has_reverted()
            || self.owes_keys();
        pending && !self.is_read_only()
    }

    /// Does a part of the maintenance: settles the journal, destroys keys, recovers tags, zeroes
    /// freed extents.
    pub(crate) fn maintain(&mut self) -> Result<(), Error> {
        self.settle_journal()?;
        if self.owes_keys() {
            self.forget_keys()?;
        }
        self.tags.recover_some(&mut self.disk, &mut self.journal);
        self.bound_recovered()?;
        self.journal_reverted()?;
        if self.extents.keeps_dirty() { Ok(()) } else { self.start_zeroing().map(|_some| ()) }
    }

    /// Writes the tags of blocks to the journal whose newest tag in it turned out to be wrong.
    fn journal_reverted(&mut self) -> Result<(), Error> {
        while self.tags.has_reverted() {
            let (blocks, _) = self.tags.some_reverted();
            // If that writes a checkpoint, it has them.
            self.reserve_journal(&[Planned { kind: Kind::Tags, records: blocks.len(), entries: blocks.len() }])?;
            if !self.tags.has_reverted() {
                break;
            }
            let (blocks, records) = self.tags.some_reverted();
            self.append(&records, false)?;
            self.tags.clear_reverted(blocks);
        }
        Ok(())
    }

    /// Has some dirty extents zeroed in the background. `false` if there are none, and none are
    /// being zeroed.
    pub(crate) fn start_zeroing(&mut self) -> Result<bool, Error> {
        if self.extents.check_zeroing()? {
            return Ok(true);
        }
        if !self.extents.has_zeroing_thread() {
            return self.zero_some();
        }
        let Some(zero_request) = self.extents.next_zero_request() else { return Ok(false) };
        // A failed record that is on the medium all the same may map one of them.
        if !self.journal.is_settled() {
            self.settle_journal()?;
        }
        self.extents.start_zeroing(zero_request);
        Ok(true)
    }

    /// Zeroes some dirty extents; `false` if there are none.
    fn zero_some(&mut self) -> Result<bool, Error> {
        let Some(ZeroRequest { extents, ranges }) = self.extents.next_zero_request() else { return Ok(false) };
        // A failed record that is on the medium all the same may map one of them.
        if !self.journal.is_settled() {
            self.settle_journal()?;
        }
        self.disk.zero(ranges.into_iter(), true)?;
        // Before an extent can be allocated again: a power loss must bring back neither its old
        // bytes nor its old mapping.
        self.flush()?;
        self.extents.mark_clean(extents);
        Ok(true)
    }

    /// Unmaps extents of a namespace; they become free when no request can access them any more.
    pub(crate) fn release(&mut self, thin: &Thin, range: Range<u32>) {
        let unmapped = self.extents.release(thin, range);
        if thin.is_tagged {
            self.tags.forget(thin, &unmapped);
        }
    }

    /// Makes everything that was written so far durable.
    pub(crate) fn flush(&mut self) -> Result<(), DeviceError> {
        self.tags.clear_unresolved(&mut self.journal);
        self.journal.flush(&mut self.disk, &self.shared.journal)
    }

    /// Takes note of a flush on another thread that began at this point, and writes a mark.
    pub(crate) fn flushed(&mut self, point: Point) {
        self.journal.flushed_to(point, &self.shared.journal);
        self.mark();
    }

    /// Lets other threads see the position of the journal; it may have new records about these
    /// namespaces.
    pub(crate) fn publish<'a>(&mut self, thins: impl Iterator<Item = &'a Arc<Thin>>) {
        self.tags.clear_unresolved(&mut self.journal);
        let position = self.journal.publish(&self.shared.journal);
        thins.for_each(|thin| thin.set_last_record(position));
    }

    /// Whether more is flushed than the last mark says.
    pub(crate) fn is_unmarked(&self) -> bool {
        !self.is_read_only() && !self.journal.is_marked()
    }

    /// Writes a mark, if more is flushed than the last one says.
    pub(crate) fn mark(&mut self) {
        if !self.is_read_only() {
            self.journal.mark(&mut self.disk, &self.shared.journal);
        }
    }
}

/// The namespace that a record is about.
fn volume_of(record: &Record) -> Option<VolumeId> {
    match record {
        Record::Create { volume, .. } | Record::Remove(volume) | Record::Clear(volume) => Some(*volume),
        Record::Map { volume, .. } | Record::Unmap { volume, .. } | Record::Bad { volume, .. } => Some(*volume),
        Record::Tags { volume, .. } | Record::OnlyTags { volume, .. } => Some(*volume),
        Record::Flux { volume, .. } | Record::Settled(volume) => Some(*volume),
        Record::HighWater(_) | Record::Change(_) => None,
    }
}

/// Whether a record is one of the administrative ones, which are answered as durable: a mark
/// follows at once.
fn is_management(record: &Record) -> bool {
    match record {
        Record::Create { .. } | Record::Remove(_) | Record::Clear(_) | Record::Bad { .. } | Record::Change(_) => true,
        Record::Map { .. } | Record::Unmap { .. } | Record::Tags { .. } | Record::OnlyTags { .. } => false,
        Record::HighWater(_) | Record::Flux { .. } | Record::Settled(_) => false,
    }
}
