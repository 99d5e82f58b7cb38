//! Brings blocks into flux and out of it: which records are written, when flushes begin and end,
//! and what becomes of tags if they fail. What is in flux, and why, is in `tags/flux.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_backend::Error as DeviceError;
use ebof_drive::frame::{Kind, Planned, Record};

use crate::pages::{Mask, Places, Settled};
use crate::tags::flux::{InFlux, mark, records};
use crate::tags::places;
use crate::thin::shared::{DeferredRequest, FailedWrite, Settles};
use crate::{Error, Store, Thin, VolumeId};

/// How long blocks stay in flux if nobody flushes them.
const FLUX_PERIOD: Duration = Duration::from_secs(10);

impl Store {
    /// Before blocks are brought into flux in so many more pages: settles everything if there would
    /// be too many.
    pub(crate) fn reserve_flux(&mut self, pages: usize) -> Result<(), Error> {
        if self.flux.pages() + pages > self.shared.pages.flux_max() {
            self.settle_all()?;
        }
        Ok(())
    }

    /// The record that brings blocks of a page into flux.
    pub(crate) fn flux_record(thin: &Thin, block: u64, mask: Mask) -> Option<Record> {
        mark(thin.volume, block - thin.block_layout.place(block) as u64, mask)
    }

    /// That record is durable.
    pub(crate) fn marked(&mut self, volume: VolumeId, page: u64, mask: Mask) {
        self.shared.pages.mark(page, mask);
        self.flux.add(volume, page, self.shared.clock.now());
    }

    /// A namespace was in flux when the drive ended.
    pub(crate) fn found_in_flux(&mut self) {
        if self.is_read_only() {
            return;
        }
        let now = self.shared.clock.now();
        let volumes: Vec<VolumeId> = self.tags.ambiguous().map(|((volume, _), _)| volume).collect();
        for volume in volumes {
            self.flux.namespace(volume, now);
            // The next flush ends that for those that are known by then.
            self.shared.thin(volume).iter().for_each(|thin| thin.count_unsettled());
        }
    }

    /// When blocks have been in flux for too long; `None` if there are none, or a flush is under
    /// way. Blocks that were in flux when the drive ended stay so while they are not recovered.
    pub(crate) fn flux_due(&self) -> Option<Instant> {
        let old = self.old_namespaces().map(|(_, namespace)| namespace.since).min();
        old.filter(|_| !self.flux.is_flushing && !self.is_read_only()).map(|since| since + FLUX_PERIOD)
    }

    fn old_namespaces(&self) -> impl Iterator<Item = (&VolumeId, &InFlux)> {
        let is_ambiguous = |volume: VolumeId| self.tags.ambiguous_of(volume).next().is_some();
        self.flux
            .namespaces
            .iter()
            .filter(move |(volume, namespace)| !namespace.pages.is_empty() || !is_ambiguous(**volume))
    }

    /// Blocks were written with their tags in the journal. If others keep a flush from ruling out
    /// older tags of all that were journaled since, it records those of these blocks once more.
    /// Returns whether it does.
    pub(crate) fn settle_if_unresolved(&mut self, thin: &Thin, blocks: &Range<u64>) -> bool {
        self.tags.clear_unresolved(&mut self.journal);
        let extent = thin.map.lookup(thin.block_layout.index(blocks.start));
        let Some(extent) = extent.filter(|_| self.journal.has_unresolved()) else { return false };
        for places in places(thin, extent, blocks) {
            self.shared.pages.set_unsettled(&places);
            self.flux.add(thin.volume, places.at, self.shared.clock.now());
        }
        thin.count_unsettled();
        true
    }

    /// Pages with tags of recovered blocks are kept until these are recorded.
    fn add_recovered(&mut self) {
        let now = self.shared.clock.now();
        for (volume, page) in self.tags.take_recovered_pages() {
            self.flux.add(volume, page, now);
        }
    }

    /// Settles everything if there are too many of them.
    pub(crate) fn bound_recovered(&mut self) -> Result<(), Error> {
        self.add_recovered();
        self.reserve_flux(0)
    }

    /// Begins to settle the tags of a namespace: a flush of the backing device comes next. Returns
    /// how many writes had put tags into memory by now.
    pub(crate) fn begin_settling(&mut self, volume: VolumeId) -> u64 {
        self.add_recovered();
        let Some(thin) = self.shared.thin(volume) else {
            self.flux.namespaces.remove(&volume);
            return 0;
        };
        // Read first: the tags of all writes that are counted are in their pages.
        let count = thin.unsettled();
        let namespace = self.flux.namespace(volume, self.shared.clock.now());
        namespace.settling = Some(count);
        namespace.pages.iter().for_each(|&page| self.shared.pages.begin_settling(volume, page));
        count
    }

    /// The backing device was flushed: makes the tags durable. With `keeps_written`, what was
    /// written in flux stays so; not if a host flushes.
    pub(crate) fn end_settling(&mut self, volume: VolumeId, keeps_written: bool) -> Result<(), Error> {
        // Blocks that were recovered since the flush began have no record of their tags: they stay.
        self.add_recovered();
        let Some(namespace) = self.flux.namespaces.get(&volume) else { return Ok(()) };
        let pages = Arc::clone(&self.shared.pages);
        let tags: usize = namespace.pages.iter().map(|&page| pages.settling(volume, page)).sum();
        // A run of tags has one at least, and a page one mark at most.
        let marks = namespace.pages.len() + self.tags.ambiguous_of(volume).count();
        let planned = [
            Planned { kind: Kind::Settled, records: 1, entries: 0 },
            Planned { kind: Kind::OnlyTags, records: tags, entries: tags },
            Planned { kind: Kind::Flux, records: marks, entries: 0 },
        ];
        // With too many tags for the journal, a checkpoint does it.
        let reserved = match self.tags.can_journal(tags) {
            true => self.reserve_journal(&planned),
            false => self.checkpoint_and_report(),
        };
        if let Err(error) = reserved {
            self.cancel_settling(volume);
            return Err(error);
        }
        // A checkpoint may have done it.
        let Some((count, listed)) =
            self.flux.namespaces.get(&volume).and_then(|one| Some((one.settling?, one.pages.clone())))
        else {
            return Ok(());
        };
        let Some(thin) = self.shared.thin(volume) else {
            self.flux.namespaces.remove(&volume);
            return Ok(());
        };
        let is_unknown = |block: u64| self.tags.is_unresolved(volume, block);
        let settled: Vec<Settled> =
            listed.iter().filter_map(|&page| pages.settle((volume, page), keeps_written, is_unknown)).collect();
        let mut records = records(volume, &settled);
        records.extend(self.ambiguous_records(volume));
        let appended = self.append(&records, true);
        listed.iter().for_each(|&page| pages.end_settling(volume, page, appended.is_ok()));
        if appended.is_ok() {
            thin.set_settled(count);
            self.left_flux(&thin);
        } else if let Some(namespace) = self.flux.namespaces.get_mut(&volume) {
            namespace.settling = None;
            // Not at once again.
            namespace.since = self.shared.clock.now();
        }
        appended
    }

    /// Blocks of a namespace that were in flux when the drive ended, and still are.
    fn ambiguous_records(&self, volume: VolumeId) -> impl Iterator<Item = Record> {
        self.tags.ambiguous_of(volume).filter_map(move |(first, mask)| mark(volume, first, mask))
    }

    /// Only what the pages say is in flux of a namespace.
    fn left_flux(&mut self, thin: &Thin) {
        let (volume, now) = (thin.volume, self.shared.clock.now());
        let is_ambiguous = self.tags.ambiguous_of(volume).next().is_some();
        let Some(namespace) = self.flux.namespaces.get_mut(&volume) else { return };
        namespace.settling = None;
        namespace.since = now;
        namespace.pages.retain(|&page| self.shared.pages.is_marked(volume, page));
        if !namespace.pages.is_empty() {
            // The next flush ends that, also if nothing of it is written.
            thin.count_unsettled();
        }
        if namespace.pages.is_empty() && !is_ambiguous {
            self.flux.namespaces.remove(&volume);
        }
    }

    /// The flush has failed: the next one settles the tags.
    fn cancel_settling(&mut self, volume: VolumeId) {
        if let Some(namespace) = self.flux.namespaces.get_mut(&volume) {
            namespace.settling = None;
            namespace.pages.iter().for_each(|&page| self.shared.pages.end_settling(volume, page, false));
        }
    }

    /// Makes everything that was written durable, with the tags of these namespaces, and writes a
    /// mark.
    pub(crate) fn make_durable(&mut self, volumes: &BTreeSet<VolumeId>) -> Result<(), Error> {
        volumes.iter().for_each(|&volume| _ = self.begin_settling(volume));
        if let Err(error) = self.flush() {
            volumes.iter().for_each(|&volume| self.cancel_settling(volume));
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
        self.add_recovered();
        let volumes: BTreeSet<VolumeId> = self.flux.namespaces.keys().copied().collect();
        self.make_durable(&volumes)
    }

    /// Begins to settle everything for a checkpoint, which has the tags of all pages.
    pub(crate) fn begin_settling_all(&mut self) {
        self.add_recovered();
        let volumes: Vec<VolumeId> = self.flux.namespaces.keys().copied().collect();
        volumes.into_iter().for_each(|volume| _ = self.begin_settling(volume));
    }

    /// The records of what is in flux, for a checkpoint with the tags of all pages, which are
    /// written. Nothing else is in flux from now on.
    pub(crate) fn flux_records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for (&volume, namespace) in &self.flux.namespaces {
            let is_unknown = |block: u64| self.tags.is_unresolved(volume, block);
            let settled =
                namespace.pages.iter().filter_map(|&page| self.shared.pages.settle((volume, page), false, is_unknown));
            records.extend(settled.filter_map(|settled| mark(volume, settled.first, settled.stays)));
        }
        let ambiguous = self.tags.ambiguous().filter_map(|((volume, first), mask)| mark(volume, first, mask));
        records.extend(ambiguous);
        records
    }

    /// That checkpoint counts, or could not be written.
    pub(crate) fn end_settling_all(&mut self, is_durable: bool) {
        let volumes: Vec<VolumeId> = self.flux.namespaces.keys().copied().collect();
        for volume in volumes {
            if !is_durable {
                self.cancel_settling(volume);
                continue;
            }
            let Some(namespace) = self.flux.namespaces.get_mut(&volume) else { continue };
            namespace.pages.iter().for_each(|&page| self.shared.pages.end_settling(volume, page, true));
            let count = namespace.settling;
            match self.shared.thin(volume) {
                Some(thin) => {
                    count.iter().for_each(|&count| thin.set_settled(count));
                    self.left_flux(&thin);
                }
                None => _ = self.flux.namespaces.remove(&volume),
            }
        }
    }

    /// Begins the flushes that wait, if none is under way. Returns those that cannot be begun.
    pub(crate) fn begin_flushes(&mut self) -> Vec<DeferredRequest> {
        if self.flux.is_flushing {
            return Vec::new();
        }
        let now = self.shared.clock.now();
        let mut flushes = self.flux.take_waiting();
        let old = self.old_namespaces().filter(|(_, namespace)| namespace.since + FLUX_PERIOD <= now);
        let old: Vec<VolumeId> = old.map(|(&volume, _)| volume).collect();
        for volume in old {
            match self.shared.thin(volume) {
                Some(thin) => flushes.push(DeferredRequest::settling(thin)),
                None => _ = self.flux.namespaces.remove(&volume),
            }
        }
        if flushes.is_empty() || self.is_read_only() {
            return flushes;
        }
        for flush in &mut flushes {
            let count = self.begin_settling(flush.thin.volume);
            flush.settles = Settles::tags_of(count);
        }
        self.flux.is_flushing = true;
        let refused = self.shared.send_flushes(flushes).err().unwrap_or_default();
        self.flux.is_flushing = refused.is_empty();
        refused
    }

    /// Whether a flush comes back from the thread for flushes, which cannot do any.
    pub(crate) fn flush_returned(&mut self, flush: &DeferredRequest) -> bool {
        let has_returned = flush.settles.any();
        if has_returned {
            self.flux.is_flushing = false;
        }
        has_returned
    }

    /// The backing device was flushed for these requests.
    pub(crate) fn end_flushes(&mut self, flushes: Vec<DeferredRequest>) {
        let (settles, plain): (Vec<_>, Vec<_>) = flushes.into_iter().partition(|flush| flush.settles.any());
        plain.into_iter().for_each(|flush| flush.complete(Ok(())));
        if settles.is_empty() {
            return;
        }
        self.flux.is_flushing = false;
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

    /// The backing device could not be flushed for these requests.
    pub(crate) fn fail_flushes(&mut self, error: DeviceError, flushes: Vec<DeferredRequest>) {
        self.flux.is_flushing = false;
        let mut error = Some(error);
        for flush in flushes {
            self.cancel_settling(flush.thin.volume);
            // Not at once again.
            if let Some(namespace) = self.flux.namespaces.get_mut(&flush.thin.volume) {
                namespace.since = self.shared.clock.now();
            }
            let error = error.take().unwrap_or_else(|| flush.not_durable());
            flush.complete(Err(error));
        }
    }

    /// A write of blocks in flux has failed on another thread: finds out what is there, as after
    /// any failed write.
    pub(crate) fn write_failed(&mut self, failed: FailedWrite) {
        let FailedWrite { locked, tags } = failed;
        let (thin, blocks) = (Arc::clone(&locked.thin), locked.blocks.clone());
        let is_mapped = thin.map.lookup(thin.block_layout.index(blocks.start)) == Some(locked.extent);
        if is_mapped && !thin.removed.load(std::sync::atomic::Ordering::Acquire) {
            for Places { at, .. } in places(&thin, locked.extent, &blocks) {
                self.flux.add(thin.volume, at, self.shared.clock.now());
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
}
