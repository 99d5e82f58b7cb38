//! Brings blocks into flux and out of it: which records say so, when flushes begin and end, and
//! what becomes of tags if they fail. What is in flux, and why, is in `tags/flux.rs`; the records
//! are written by `store/order.rs`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_backend::Error as DeviceError;
use ebof_drive::frame::{Kind, Planned, Record};

use crate::pages::{Mask, Settled};
use crate::tags::Tags;
use crate::tags::flux::{Flux, InFlux, mark, records};
use crate::thin::block_tags::places;
use crate::thin::shared::{DeferredRequest, Settles, Shared};
use crate::{Thin, VolumeId};

/// How long blocks stay in flux if nobody flushes them.
const FLUX_PERIOD: Duration = Duration::from_secs(10);

/// What is in flux, and what the next flushes settle of it.
pub(crate) struct Settling {
    shared: Arc<Shared>,
    flux: Flux,
}

/// The records that settle the tags of a namespace.
pub(crate) struct ToSettle {
    thin: Arc<Thin>,
    /// Writes that had put tags into memory when that began.
    count: u64,
    /// Offsets of the pages.
    listed: BTreeSet<u64>,
    pub(crate) records: Vec<Record>,
}

impl Settling {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), flux: Flux::default() }
    }

    /// Whether there would be too many pages with blocks in flux, with so many more.
    pub(crate) fn exceeds(&self, pages: usize) -> bool {
        self.flux.pages() + pages > self.shared.pages.flux_max()
    }

    /// The namespaces that have some.
    pub(crate) fn volumes(&self) -> BTreeSet<VolumeId> {
        self.flux.namespaces.keys().copied().collect()
    }

    /// That record is durable.
    pub(crate) fn marked(&mut self, volume: VolumeId, page: u64, mask: Mask) {
        self.shared.pages.mark(page, mask);
        self.flux.add(volume, page, self.shared.clock.now());
    }

    /// A namespace was in flux when the drive ended.
    pub(crate) fn found_in_flux(&mut self, tags: &Tags) {
        if self.shared.read_only {
            return;
        }
        let now = self.shared.clock.now();
        let volumes: Vec<VolumeId> = tags.ambiguous().map(|((volume, _), _)| volume).collect();
        for volume in volumes {
            self.flux.namespace(volume, now);
            // The next flush ends that for those that are known by then.
            self.shared.thin(volume).iter().for_each(|thin| thin.count_unsettled());
        }
    }

    /// When blocks have been in flux for too long; `None` if there are none, or a flush is under
    /// way. Blocks that were in flux when the drive ended stay so while they are not recovered.
    pub(crate) fn due(&self, tags: &Tags) -> Option<Instant> {
        let old = self.old_namespaces(tags).map(|(_, namespace)| namespace.since).min();
        old.filter(|_| !self.flux.is_flushing && !self.shared.read_only).map(|since| since + FLUX_PERIOD)
    }

    fn old_namespaces<'a>(&'a self, tags: &'a Tags) -> impl Iterator<Item = (&'a VolumeId, &'a InFlux)> {
        let is_ambiguous = move |volume: VolumeId| tags.ambiguous_of(volume).next().is_some();
        self.flux
            .namespaces
            .iter()
            .filter(move |(volume, namespace)| !namespace.pages.is_empty() || !is_ambiguous(**volume))
    }

    /// Blocks of an extent were written with their tags in the journal: the next flush records them
    /// once more.
    pub(crate) fn keep_tags(&mut self, thin: &Thin, extent: u32, blocks: &Range<u64>) {
        for places in places(thin, extent, blocks) {
            self.shared.pages.set_unsettled(&places);
            self.flux.add(thin.volume, places.at, self.shared.clock.now());
        }
        thin.count_unsettled();
    }

    /// Pages with tags of recovered blocks are kept until these are recorded.
    pub(crate) fn add_recovered(&mut self, tags: &mut Tags) {
        let now = self.shared.clock.now();
        for (volume, page) in tags.take_recovered_pages() {
            self.flux.add(volume, page, now);
        }
    }

    /// Begins to settle the tags of a namespace: a flush of the backing device comes next. Returns
    /// how many writes had put tags into memory by now.
    pub(crate) fn begin(&mut self, volume: VolumeId, tags: &mut Tags) -> u64 {
        self.add_recovered(tags);
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

    /// How many records settle the tags of a namespace at most, and how many tags they have; `None`
    /// if there are none.
    pub(crate) fn planned(&self, volume: VolumeId, tags: &Tags) -> Option<(usize, [Planned; 3])> {
        let namespace = self.flux.namespaces.get(&volume)?;
        let settling: usize = namespace.pages.iter().map(|&page| self.shared.pages.settling(volume, page)).sum();
        // A run of tags has one at least, and a page one mark at most.
        let marks = namespace.pages.len() + tags.ambiguous_of(volume).count();
        let planned = [
            Planned { kind: Kind::Settled, records: 1, entries: 0 },
            Planned { kind: Kind::OnlyTags, records: settling, entries: settling },
            Planned { kind: Kind::Flux, records: marks, entries: 0 },
        ];
        Some((settling, planned))
    }

    /// What settles the tags of a namespace; `None` if a checkpoint has done it, or the namespace
    /// is gone. With `keeps_written`, what was written in flux stays so.
    pub(crate) fn prepare(&mut self, volume: VolumeId, keeps_written: bool, tags: &Tags) -> Option<ToSettle> {
        let namespace = self.flux.namespaces.get(&volume)?;
        let (count, listed) = (namespace.settling?, namespace.pages.clone());
        let Some(thin) = self.shared.thin(volume) else {
            self.flux.namespaces.remove(&volume);
            return None;
        };
        let pages = &self.shared.pages;
        let is_unknown = |block: u64| tags.is_unresolved(volume, block);
        let settled: Vec<Settled> =
            listed.iter().filter_map(|&page| pages.finish_flush((volume, page), keeps_written, is_unknown)).collect();
        let mut records = records(volume, &settled);
        records.extend(Self::ambiguous_records(volume, tags));
        Some(ToSettle { thin, count, listed, records })
    }

    /// Those records are durable, or could not be written.
    pub(crate) fn end(&mut self, settled: &ToSettle, is_durable: bool, tags: &Tags) {
        let ToSettle { thin, count, listed, .. } = settled;
        let volume = thin.volume;
        listed.iter().for_each(|&page| self.shared.pages.end_settling(volume, page, is_durable));
        if is_durable {
            thin.set_settled(*count);
            self.left(thin, tags);
        } else if let Some(namespace) = self.flux.namespaces.get_mut(&volume) {
            namespace.settling = None;
            // Not at once again.
            namespace.since = self.shared.clock.now();
        }
    }

    /// Blocks of a namespace that were in flux when the drive ended, and still are.
    fn ambiguous_records(volume: VolumeId, tags: &Tags) -> impl Iterator<Item = Record> {
        tags.ambiguous_of(volume).filter_map(move |(first, mask)| mark(volume, first, mask))
    }

    /// Only what the pages say is in flux of a namespace.
    fn left(&mut self, thin: &Thin, tags: &Tags) {
        let (volume, now) = (thin.volume, self.shared.clock.now());
        let is_ambiguous = tags.ambiguous_of(volume).next().is_some();
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
    pub(crate) fn cancel(&mut self, volume: VolumeId) {
        if let Some(namespace) = self.flux.namespaces.get_mut(&volume) {
            namespace.settling = None;
            namespace.pages.iter().for_each(|&page| self.shared.pages.end_settling(volume, page, false));
        }
    }

    /// Begins to settle everything for a checkpoint, which has the tags of all pages.
    pub(crate) fn begin_all(&mut self, tags: &mut Tags) {
        self.add_recovered(tags);
        let volumes: Vec<VolumeId> = self.flux.namespaces.keys().copied().collect();
        volumes.into_iter().for_each(|volume| _ = self.begin(volume, tags));
    }

    /// The records of what is in flux, for a checkpoint with the tags of all pages, which are
    /// written. Nothing else is in flux from now on.
    pub(crate) fn records(&self, tags: &Tags) -> Vec<Record> {
        let mut records = Vec::new();
        for (&volume, namespace) in &self.flux.namespaces {
            let is_unknown = |block: u64| tags.is_unresolved(volume, block);
            let settled = namespace
                .pages
                .iter()
                .filter_map(|&page| self.shared.pages.finish_flush((volume, page), false, is_unknown));
            records.extend(settled.filter_map(|settled| mark(volume, settled.first, settled.stays)));
        }
        let ambiguous = tags.ambiguous().filter_map(|((volume, first), mask)| mark(volume, first, mask));
        records.extend(ambiguous);
        records
    }

    /// That checkpoint counts, or could not be written.
    pub(crate) fn end_all(&mut self, is_durable: bool, tags: &Tags) {
        let volumes: Vec<VolumeId> = self.flux.namespaces.keys().copied().collect();
        for volume in volumes {
            if !is_durable {
                self.cancel(volume);
                continue;
            }
            let namespace = self.flux.namespaces.get_mut(&volume).expect("each step removes its own at most");
            namespace.pages.iter().for_each(|&page| self.shared.pages.end_settling(volume, page, true));
            let count = namespace.settling;
            match self.shared.thin(volume) {
                Some(thin) => {
                    count.iter().for_each(|&count| thin.set_settled(count));
                    self.left(&thin, tags);
                }
                None => _ = self.flux.namespaces.remove(&volume),
            }
        }
    }

    /// Begins the flushes that wait, if none is under way. Returns those that cannot be begun.
    pub(crate) fn begin_flushes(&mut self, tags: &mut Tags) -> Vec<DeferredRequest> {
        if self.flux.is_flushing {
            return Vec::new();
        }
        let now = self.shared.clock.now();
        let mut flushes = self.flux.take_waiting();
        let old = self.old_namespaces(tags).filter(|(_, namespace)| namespace.since + FLUX_PERIOD <= now);
        let old: Vec<VolumeId> = old.map(|(&volume, _)| volume).collect();
        for volume in old {
            match self.shared.thin(volume) {
                Some(thin) => flushes.push(DeferredRequest::settling(thin)),
                None => _ = self.flux.namespaces.remove(&volume),
            }
        }
        if flushes.is_empty() || self.shared.read_only {
            return flushes;
        }
        for flush in &mut flushes {
            let count = self.begin(flush.thin.volume, tags);
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

    /// A flush that has to settle tags waits until it can begin.
    pub(crate) fn push(&mut self, flush: DeferredRequest) {
        self.flux.push(flush);
    }

    /// Whether a flush waits for nothing any more.
    pub(crate) fn can_begin(&self) -> bool {
        self.flux.can_begin()
    }

    /// Takes the flushes that wait.
    pub(crate) fn take_waiting(&mut self) -> Vec<DeferredRequest> {
        self.flux.take_waiting()
    }

    /// The flush that was under way has ended.
    pub(crate) fn flush_ended(&mut self) {
        self.flux.is_flushing = false;
    }

    /// A page has blocks of which it is not known what they hold.
    pub(crate) fn add(&mut self, volume: VolumeId, page: u64) {
        self.flux.add(volume, page, self.shared.clock.now());
    }

    /// The backing device could not be flushed for these requests.
    pub(crate) fn fail_flushes(&mut self, error: DeviceError, flushes: Vec<DeferredRequest>) {
        self.flux.is_flushing = false;
        let mut error = Some(error);
        for flush in flushes {
            self.cancel(flush.thin.volume);
            // Not at once again.
            if let Some(namespace) = self.flux.namespaces.get_mut(&flush.thin.volume) {
                namespace.since = self.shared.clock.now();
            }
            let error = error.take().unwrap_or_else(|| flush.not_durable());
            flush.complete(Err(error));
        }
    }
}

/// The record that brings blocks of a page into flux.
pub(crate) fn flux_record(thin: &Thin, block: u64, mask: Mask) -> Option<Record> {
    mark(thin.volume, block - thin.block_layout.place(block) as u64, mask)
}
