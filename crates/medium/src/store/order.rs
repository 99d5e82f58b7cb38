//! The order of writes among the parts of a medium: what is in the journal before what, when a
//! checkpoint is written, and what is flushed first. The parts know of each other only what they
//! are given here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebof_backend::Error as DeviceError;
use ebof_drive::frame::{Checkpoint, FRAME_BYTES, Kind, Planned, Record, frames_max};
use ebof_drive::layout::JOURNAL_BYTES;

use crate::disk::Disk;
use crate::extents::Extents;
use crate::extents::zeroing::ZeroRequest;
use crate::journal::{Journal, Point};
use crate::pages::Places;
use crate::store::owner::OwnerState;
use crate::store::settle::Settling;
use crate::tags::Tags;
use crate::thin::block_tags::places;
use crate::thin::shared::{DeferredRequest, FailedWrite, Shared};
use crate::{Error, Notice, Thin, VolumeId};

/// Bytes that are written to find out whether writing works again.
const PROBE_BYTES: u64 = 1 << 20;

/// The parts of a medium whose writes depend on each other. Used by the drive's thread only.
pub(crate) struct WriteOrder {
    pub(crate) shared: Arc<Shared>,
    pub(crate) disk: Disk,
    pub(crate) journal: Journal,
    pub(crate) extents: Extents,
    pub(crate) tags: Tags,
    pub(crate) settling: Settling,
    pub(crate) owner: OwnerState,
}

impl WriteOrder {
    /// Whether the drive is damaged, and therefore never written.
    pub(crate) fn is_read_only(&self) -> bool {
        self.shared.read_only
    }

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

    /// Takes the new failures of the backing device, and notifies the owner of new faults. Returns
    /// whether these are the first, which somebody has to retry.
    pub(crate) fn check_faults(&mut self) -> bool {
        let elsewhere = std::mem::take(&mut *self.shared.failures());
        let had_faults = self.disk.faults.is_any();
        for fault in self.disk.faults.check(elsewhere, self.shared.clock.now()) {
            self.shared.notify(Notice::Fails(fault));
        }
        !had_faults && self.disk.faults.is_any()
    }

    /// Ranges of bad blocks on the medium.
    pub(crate) fn bad_ranges(&self) -> usize {
        self.shared.thins().iter().map(|thin| thin.bad_blocks().len()).sum()
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
        let zeros = vec![0; usize::try_from(len).expect("at most `PROBE_BYTES`")];
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
        self.settling.begin_all(&mut self.tags);
        let written = self.try_checkpoint(clean);
        self.settling.end_all(written.is_ok(), &self.tags);
        written
    }

    fn try_checkpoint(&mut self, clean: bool) -> Result<(), Error> {
        // The checkpoint replaces the tags in the journal: their pages are durable before it is, or
        // the tags are in it.
        let tags = self.tags.write_back_all(&mut self.disk, &mut self.journal)?;
        let flux = self.settling.records(&self.tags);
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
        self.extents.wants_zeroing()
            || !self.journal.is_settled()
            || self.tags.has_unresolved()
            || self.tags.has_reverted()
    }

    /// Does a part of the maintenance behind a settled journal: recovers tags, zeroes freed
    /// extents.
    pub(crate) fn maintain(&mut self) -> Result<(), Error> {
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

    /// Before blocks are brought into flux in so many more pages: settles everything if there would
    /// be too many.
    pub(crate) fn reserve_flux(&mut self, pages: usize) -> Result<(), Error> {
        if self.settling.exceeds(pages) {
            self.settle_all()?;
        }
        Ok(())
    }

    /// Blocks were written with their tags in the journal. If others keep a flush from ruling out
    /// older tags of all that were journaled since, it records those of these blocks once more.
    /// Returns whether it does.
    pub(crate) fn settle_if_unresolved(&mut self, thin: &Thin, blocks: &Range<u64>) -> bool {
        self.tags.clear_unresolved(&mut self.journal);
        let extent = thin.map.lookup(thin.block_layout.index(blocks.start));
        let Some(extent) = extent.filter(|_| self.journal.has_unresolved()) else { return false };
        self.settling.keep_tags(thin, extent, blocks);
        true
    }

    /// Settles everything if there are too many of them.
    pub(crate) fn bound_recovered(&mut self) -> Result<(), Error> {
        self.settling.add_recovered(&mut self.tags);
        self.reserve_flux(0)
    }

    /// The backing device was flushed: makes the tags durable. With `keeps_written`, what was
    /// written in flux stays so; not if a host flushes.
    fn end_settling(&mut self, volume: VolumeId, keeps_written: bool) -> Result<(), Error> {
        // Blocks that were recovered since the flush began have no record of their tags: they stay.
        self.settling.add_recovered(&mut self.tags);
        let Some((tags, planned)) = self.settling.planned(volume, &self.tags) else { return Ok(()) };
        // With too many tags for the journal, a checkpoint does it.
        let reserved = match self.tags.can_journal(tags) {
            true => self.reserve_journal(&planned),
            false => self.checkpoint_and_report(),
        };
        if let Err(error) = reserved {
            self.settling.cancel(volume);
            return Err(error);
        }
        // A checkpoint may have done it.
        let Some(to_settle) = self.settling.prepare(volume, keeps_written, &self.tags) else { return Ok(()) };
        let appended = self.append(&to_settle.records, true);
        self.settling.end(&to_settle, appended.is_ok(), &self.tags);
        appended
    }

    /// Makes everything that was written durable, with the tags of these namespaces, and writes a
    /// mark.
    pub(crate) fn make_durable(&mut self, volumes: &BTreeSet<VolumeId>) -> Result<(), Error> {
        volumes.iter().for_each(|&volume| _ = self.settling.begin(volume, &mut self.tags));
        if let Err(error) = self.flush() {
            volumes.iter().for_each(|&volume| self.settling.cancel(volume));
            return Err(error.into());
        }
        // All of them, even if one fails.
        let mut settled = Ok(());
        for &volume in volumes {
            let ended = self.end_settling(volume, false);
            settled = settled.and(ended);
        }
        self.mark();
        settled
    }

    /// The same with the tags of all namespaces.
    pub(crate) fn settle_all(&mut self) -> Result<(), Error> {
        self.settling.add_recovered(&mut self.tags);
        let volumes = self.settling.volumes();
        self.make_durable(&volumes)
    }

    /// The backing device was flushed for these requests.
    pub(crate) fn end_flushes(&mut self, flushes: Vec<DeferredRequest>) {
        let (settles, plain): (Vec<_>, Vec<_>) = flushes.into_iter().partition(|flush| flush.settles.any());
        plain.into_iter().for_each(|flush| flush.complete(Ok(())));
        if settles.is_empty() {
            return;
        }
        self.settling.flush_ended();
        let mut namespaces: BTreeMap<VolumeId, (bool, Vec<DeferredRequest>)> = BTreeMap::new();
        for flush in settles {
            let (by_host, flushes) = namespaces.entry(flush.thin.volume).or_default();
            *by_host |= flush.is_awaited();
            flushes.push(flush);
        }
        for (&volume, (by_host, _)) in &namespaces {
            let ended = self.end_settling(volume, !by_host);
            if let Err(error) = &ended
                && !self.has_faults()
            {
                tracing::error!("tags of blocks cannot be brought to the medium: {error}");
            }
        }
        // Before they are answered: else a kill would leave nothing that proves these records.
        self.mark();
        for flush in namespaces.into_values().flat_map(|(_, flushes)| flushes) {
            // Others may have begun to settle the same tags, without success.
            let is_settled = flush.settles.are_tags_settled(&flush.thin);
            let result = if is_settled { Ok(()) } else { Err(flush.not_durable()) };
            flush.complete(result);
        }
    }

    /// A write of blocks in flux has failed on another thread: finds out what is there, as after
    /// any failed write.
    pub(crate) fn write_failed(&mut self, failed: FailedWrite) {
        let FailedWrite { locked, tags } = failed;
        let (thin, blocks) = (Arc::clone(&locked.thin), locked.blocks.clone());
        let is_mapped = thin.map.lookup(thin.block_layout.index(blocks.start)) == Some(locked.extent);
        if is_mapped && !thin.removed.load(Ordering::Acquire) {
            for Places { at, .. } in places(&thin, locked.extent, &blocks) {
                self.settling.add(thin.volume, at);
            }
            for (block, tag) in blocks.clone().zip(tags) {
                self.tags.block_written(&thin, block, tag, false, true);
            }
            thin.count_unsettled();
            let blocks: Vec<(VolumeId, u64)> = blocks.map(|block| (thin.volume, block)).collect();
            self.tags.recover_blocks(&mut self.disk, &mut self.journal, &blocks);
        }
        locked.unlock();
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
