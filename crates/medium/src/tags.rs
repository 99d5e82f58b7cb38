//! Tags of blocks: a write-back cache of their pages, and the recovery of blocks that may have one
//! of several tags after a power loss or a failed write.
//!
//! A page is written after the data of its blocks are durable, and is durable before a checkpoint
//! makes the journal obsolete. So a block's data always match the tag on its page, or a later one
//! in the journal; unless the journal says that it was in flux (`tags/flux.rs`).
//!
//! The pages in memory, which all threads use, are in `pages.rs`; when records are written and
//! flushes end is decided in `store/settle.rs`.

pub(crate) mod flux;
mod memory;
mod reports;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ebof_backend::{Action, Buffer, Class, Error as DeviceError, Operation, Segments};
use ebof_drive::block_format::TAG_PAGE_BYTES;
use ebof_drive::frame::Record;
use ebof_drive::tag::{Tag, header};

use crate::blank::is_zero;
use crate::disk::Disk;
use crate::journal::Journal;
use crate::pages::{BYTES, Mask, Owner, Places};
use crate::thin::block_tags::{MatchedTag, location, match_tag, new_tag, pages_of, place_of};
use crate::thin::shared::Shared;
use crate::{Error, Notice, Thin, VolumeId};

use self::memory::Memory;
use self::reports::ReportLimit;

/// Blocks that are recovered, or pages that are written, at a time.
const AT_ONCE: usize = 256;
/// Tags of unresolved blocks in a checkpoint at most.
pub(crate) const UNRESOLVED_MAX: usize = 16384;
/// Pages that could not be written, and whose tags are in a checkpoint, at most.
pub(crate) const UNWRITTEN_PAGES_MAX: usize = 64;
/// Tags in the journal at most, to bound the time of recovery.
const JOURNALED_MAX: usize = 65536;

/// The tags of a medium's blocks. Used by the drive's thread only; their pages are shared.
pub(crate) struct Tags {
    shared: Arc<Shared>,
    memory: Memory,
    /// Blocks that were in flux when the drive ended and have been looked at: how many, and how
    /// many of them matched no tag.
    ambiguous_seen: u64,
    mended: u64,
    /// Pages with tags of recovered blocks that the journal does not have yet, or beside which it
    /// allows older ones.
    recovered_pages: Vec<(VolumeId, u64)>,
    /// How many tags are in the journal.
    journaled: usize,
    /// Where the background recovery of unresolved blocks goes on; `None` when it is done.
    recovery_cursor: Option<(VolumeId, u64)>,
    reports: ReportLimit,
    mend_reports: ReportLimit,
}

impl Tags {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            memory: Memory::default(),
            ambiguous_seen: 0,
            mended: 0,
            recovered_pages: Vec::new(),
            journaled: 0,
            recovery_cursor: Some((VolumeId(0), 0)),
            reports: ReportLimit::default(),
            mend_reports: ReportLimit::default(),
        }
    }

    /// Bytes of memory that cached pages take.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.pages.bytes()
    }

    /// Counts tags that were appended to the journal.
    pub(crate) fn add_journaled(&mut self, count: usize) {
        self.journaled += count;
    }

    /// Whether so many more tags may go into the journal before a checkpoint.
    pub(crate) fn can_journal(&self, count: usize) -> bool {
        self.journaled + count <= JOURNALED_MAX
    }

    /// Takes note of a checkpoint with so many tags in it: the journal is empty, and the pages on
    /// the medium are current.
    pub(crate) fn checkpoint_written(&mut self, count: usize) {
        self.journaled = count;
        self.memory.forget_reverted();
    }

    /// Tells the journal if no block is unresolved. Not while tags are in the journal whose data
    /// are still being written.
    pub(crate) fn clear_unresolved(&self, journal: &mut Journal) {
        if self.memory.is_recovered() {
            journal.clear_unresolved();
        }
    }

    /// Adds a tag that a block may have. With `only`, no earlier one can be right.
    pub(crate) fn add_candidate(&mut self, volume: VolumeId, block: u64, tag: Tag, only: bool) {
        self.memory.add_candidate(volume, block, tag, only);
    }

    /// These blocks have the tags on their pages.
    pub(crate) fn resolve(&mut self, volume: VolumeId, blocks: Range<u64>) {
        self.memory.resolve(volume, blocks);
    }

    /// Drops everything about a namespace that is removed or cleared.
    pub(crate) fn forget_namespace(&mut self, volume: VolumeId) {
        self.memory.forget_namespace(volume);
        self.shared.pages.forget_namespace(volume);
    }

    /// The journal says that blocks of a page, which begins with block `first`, are in flux.
    pub(crate) fn add_ambiguous(&mut self, volume: VolumeId, first: u64, mask: Mask) {
        self.memory.add_ambiguous(volume, first, mask);
    }

    /// The journal says that no block of a namespace is in flux any more.
    pub(crate) fn end_flux(&mut self, volume: VolumeId) {
        self.memory.end_flux(volume);
    }

    /// Blocks that were in flux when the drive ended and were not looked at since, by the first
    /// block of their page.
    pub(crate) fn ambiguous(&self) -> impl Iterator<Item = ((VolumeId, u64), Mask)> {
        self.memory.ambiguous()
    }

    /// The same of one namespace.
    pub(crate) fn ambiguous_of(&self, volume: VolumeId) -> impl Iterator<Item = (u64, Mask)> {
        self.memory.ambiguous_of(volume)
    }

    /// Whether it is not known which tag a block has.
    pub(crate) fn is_unresolved(&self, volume: VolumeId, block: u64) -> bool {
        self.memory.candidates(volume, block).is_some()
    }

    /// Whether the block was in flux when the drive ended, and has not been looked at since.
    pub(crate) fn is_ambiguous(&self, volume: VolumeId, block: u64) -> bool {
        self.memory.is_ambiguous(volume, block)
    }

    /// Begins to use pages: those that are loaded from now on stay in memory until the next call.
    pub(crate) fn begin_use(&mut self) {
        self.shared.pages.begin_use();
    }

    /// The page at this offset, of a new extent, is blank on the medium: it need not be read.
    pub(crate) fn add_blank(&mut self, offset: u64) {
        self.memory.add_blank(offset);
    }

    /// Takes note of a write of a block, whose tag is in the journal or which is `in_flux`. Returns
    /// `false` if the block is unresolved now: because the write failed (`written` is false), or
    /// its page is not in memory.
    pub(crate) fn block_written(&mut self, thin: &Thin, block: u64, tag: Tag, written: bool, in_flux: bool) -> bool {
        let pages = Arc::clone(&self.shared.pages);
        let places = place_of(thin, block);
        let put = |places: &Places| match in_flux {
            true => pages.end_write(places, std::iter::once(tag)),
            false => pages.put(places.at, places.places.start, tag),
        };
        if written && places.as_ref().is_some_and(put) {
            self.memory.resolve(thin.volume, block..block + 1);
            return true;
        }
        if written {
            self.memory.add_candidate(thin.volume, block, tag, false);
        } else {
            self.memory.add_failed(thin.volume, block, tag);
        }
        if let Some(places) = places {
            pages.withhold(places.at);
            if in_flux {
                pages.set_unsettled(&places);
            }
        }
        false
    }

    /// Ends a batch of changes: writes dirty pages if there are many.
    pub(crate) fn end_batch(&mut self, disk: &mut Disk, journal: &mut Journal) {
        self.memory.clear_blank();
        self.write_back_if_many(disk, journal);
    }

    fn write_back_if_many(&mut self, disk: &mut Disk, journal: &mut Journal) {
        if self.shared.pages.has_many_dirty()
            && let Err(error) = self.write_back(disk, journal)
        {
            tracing::error!("tags of blocks cannot be written: {error}");
        }
    }

    /// Loads pages, which stay in memory until the next [`begin_use`](Self::begin_use). Returns the
    /// offsets of those that cannot be loaded, and why.
    pub(crate) fn load(
        &mut self,
        disk: &mut Disk,
        journal: &mut Journal,
        wanted: impl Iterator<Item = (u64, Owner)>,
    ) -> BTreeMap<u64, Class> {
        let pages = Arc::clone(&self.shared.pages);
        let is_open = |owner: &Owner| self.memory.is_known(owner.volume, &owner.blocks);
        let missing = wanted.filter(|(at, _)| !pages.touch(*at, is_open));
        let mut missing: BTreeMap<u64, Owner> = missing.collect();
        if missing.is_empty() {
            return BTreeMap::new();
        }
        self.write_back_if_many(disk, journal);
        pages.make_room(missing.len());
        if !pages.has_room(missing.len()) {
            return missing.into_keys().map(|at| (at, Class::MediumWrite)).collect();
        }
        // Pages of new extents need not be read.
        let blank: Vec<u64> = missing.keys().copied().filter(|&at| self.memory.take_blank(at)).collect();
        for at in blank {
            let owner = missing.remove(&at).expect("these are some of its keys");
            let (bytes, open) = (page(&owner, 0), self.memory.is_known(owner.volume, &owner.blocks));
            pages.insert(at, owner, bytes, open);
        }
        let read = |&offset: &u64| Operation::Read { offset, len: BYTES, data: Buffer::zeroed(BYTES).into() };
        let operations = missing.keys().map(read).collect();
        let mut failed = BTreeMap::new();
        for ((at, owner), completion) in missing.into_iter().zip(disk.run(operations)) {
            match (completion.result, completion.data.and_then(Segments::into_buffer)) {
                (Ok(()), Some(bytes)) => {
                    let bytes = if bytes.as_slice()[..16] == header_of(&owner) {
                        bytes
                    } else {
                        let volume = owner.volume.0;
                        tracing::error!(
                            instance = volume,
                            at,
                            "the tags of blocks from {} on are lost",
                            owner.blocks.start
                        );
                        page(&owner, 0xFF)
                    };
                    let open = self.memory.is_known(owner.volume, &owner.blocks);
                    pages.insert(at, owner, bytes, open);
                }
                (result, _) => {
                    let error = result.err();
                    let class = error.as_ref().map_or(Class::MediumRead, DeviceError::class);
                    if !has_faults(disk, journal) {
                        let error = error.as_ref().map(ToString::to_string);
                        tracing::error!(instance = owner.volume.0, error, "tags of blocks cannot be read");
                    }
                    failed.insert(at, class);
                }
            }
        }
        failed
    }

    /// Writes all dirty pages, after a flush. Returns the offsets of those that could not be
    /// written.
    ///
    /// # Errors
    /// The flush failed, and nothing was written.
    pub(crate) fn write_back(&mut self, disk: &mut Disk, journal: &mut Journal) -> Result<Vec<u64>, Error> {
        let pages = Arc::clone(&self.shared.pages);
        let dirty = pages.dirty();
        let mut failed = Vec::new();
        if dirty.is_empty() || self.shared.read_only {
            return Ok(failed);
        }
        // The data of a tag must be durable before it replaces an older tag on its page.
        self.clear_unresolved(journal);
        journal.flush(disk, &self.shared.journal)?;
        for some in dirty.chunks(AT_ONCE) {
            let write = |&offset: &u64| {
                let buffer = pages.clean_copy(offset).expect("dirty pages stay, and only this thread drops pages");
                Operation::Write { offset, len: BYTES, data: buffer.into(), fua: false }
            };
            let operations = some.iter().map(write).collect();
            for (&at, completion) in some.iter().zip(disk.run(operations)) {
                if let Err(error) = completion.result {
                    if !has_faults(disk, journal) {
                        tracing::error!("tags of blocks cannot be written: {error}");
                    }
                    pages.set_dirty(at);
                    failed.push(at);
                }
            }
        }
        Ok(failed)
    }

    /// Writes all tags back, for a checkpoint. Returns the records of those that have to be in the
    /// checkpoint, because they could not be written or their blocks are unresolved.
    ///
    /// # Errors
    /// There are too many of them, or the flush failed.
    pub(crate) fn write_back_all(&mut self, disk: &mut Disk, journal: &mut Journal) -> Result<Vec<Record>, Error> {
        if self.memory.unresolved_tags() > UNRESOLVED_MAX {
            let mut from = (VolumeId(0), 0);
            let mut unreadable = Vec::new();
            while let some = self.memory.some_unresolved(from, AT_ONCE)
                && let Some(&(volume, block)) = some.last()
            {
                from = (volume, block + 1);
                unreadable.append(&mut self.recover_blocks(disk, journal, &some));
            }
            if self.memory.unresolved_tags() > UNRESOLVED_MAX {
                self.give_up_failed_writes(disk, journal, unreadable)?;
            }
        }
        let failed = self.write_back(disk, journal)?;
        if failed.len() > UNWRITTEN_PAGES_MAX || self.memory.unresolved_tags() > UNRESOLVED_MAX {
            let reason = "too many tags of blocks cannot be read or written: see the log";
            return Err(Error::Device(DeviceError::Refused {
                action: Action::Write,
                offset: 0,
                len: 0,
                class: Class::MediumWrite,
                reason,
            }));
        }
        let of_page = |at: &u64| {
            let (owner, tags) = self.shared.pages.tags(*at)?;
            // The page on the medium has older tags.
            Some(Record::OnlyTags { volume: owner.volume, first: owner.blocks.start, tags })
        };
        Ok(failed.iter().filter_map(of_page).chain(self.memory.records()).collect())
    }

    /// Has fewer tags of blocks that can be neither written nor read, so that all fit into a
    /// checkpoint: otherwise none could be written, and everything else on the drive would fail
    /// with these blocks. Of each only the last failed write counts then, and of as many as
    /// necessary it counts alone. Their hosts know that it failed; if such a block with older data
    /// can be read again later, it is damaged. Blocks whose last write has not failed are spared.
    ///
    /// # Errors
    /// The flush failed: more than these blocks is broken, and nothing is given up.
    fn give_up_failed_writes(
        &mut self,
        disk: &mut Disk,
        journal: &mut Journal,
        mut unreadable: Vec<(VolumeId, u64)>,
    ) -> Result<(), Error> {
        journal.flush(disk, &self.shared.journal)?;
        unreadable.retain(|&(volume, block)| self.memory.forget_earlier_failures(volume, block));
        let mut given_up = 0;
        for some in unreadable.chunks(AT_ONCE) {
            let excess = self.memory.unresolved_tags().saturating_sub(UNRESOLVED_MAX);
            for (thin, block, ..) in self.locate(disk, journal, &some[..excess.min(some.len())]) {
                self.resolve_as_damaged(&thin, block);
                given_up += 1;
            }
        }
        tracing::error!(blocks = given_up, "too many blocks can be neither written nor read: some are given up");
        Ok(())
    }

    /// Whether [`recover_some`](Self::recover_some) has something to do.
    pub(crate) fn has_unresolved(&self) -> bool {
        self.recovery_cursor.is_some_and(|from| !self.memory.some_unknown(from, 1).is_empty())
    }

    /// Recovers the next unresolved blocks, once each since the drive was opened.
    pub(crate) fn recover_some(&mut self, disk: &mut Disk, journal: &mut Journal) {
        let Some(from) = self.recovery_cursor else { return };
        let some = self.memory.some_unknown(from, AT_ONCE);
        self.recover_blocks(disk, journal, &some);
        // A block that cannot be read now is recovered when a host reads it.
        self.recovery_cursor = some.last().map(|&(volume, block)| (volume, block + 1));
        if self.ambiguous_seen > 0 && !self.has_unresolved() {
            let (blocks, mended) = (std::mem::take(&mut self.ambiguous_seen), std::mem::take(&mut self.mended));
            tracing::warn!(blocks, mended, "blocks that may have been written when the drive ended were verified");
        }
    }

    /// Finds out which of several tags blocks have, by reading their data. Returns the blocks that
    /// cannot be read; they stay unresolved, and so do those whose tags cannot be read.
    pub(crate) fn recover_blocks(
        &mut self,
        disk: &mut Disk,
        journal: &mut Journal,
        blocks: &[(VolumeId, u64)],
    ) -> Vec<(VolumeId, u64)> {
        let located = self.locate(disk, journal, blocks);
        let read = |(thin, _, offset, _): &(Arc<Thin>, u64, u64, u64)| {
            let len = usize::try_from(thin.block_layout.data_bytes).expect("the bytes of a block");
            Operation::Read { offset: *offset, len, data: Buffer::zeroed(len).into() }
        };
        let operations = located.iter().map(read).collect();
        let mut unreadable = Vec::new();
        for ((thin, block, ..), completion) in located.iter().zip(disk.run(operations)) {
            if let (Ok(()), Some(mut data)) = (completion.result, completion.data.and_then(Segments::into_buffer)) {
                let len = usize::try_from(thin.block_layout.data_bytes).expect("the bytes of a block");
                if self.match_block(thin, *block, &mut data.as_mut_slice()[..len]).is_none() {
                    self.report_corrupt(thin, *block);
                    self.resolve_as_damaged(thin, *block);
                }
            } else {
                unreadable.push((thin.volume, *block));
            }
        }
        unreadable
    }

    /// Where unresolved blocks have their data and their tags (offsets), whose pages are loaded.
    /// Blocks are left out whose page cannot be loaded, and resolved where they are unmapped.
    fn locate(
        &mut self,
        disk: &mut Disk,
        journal: &mut Journal,
        blocks: &[(VolumeId, u64)],
    ) -> Vec<(Arc<Thin>, u64, u64, u64)> {
        self.begin_use();
        let mut located: Vec<(Arc<Thin>, u64, u64, u64)> = Vec::new();
        for &(volume, block) in blocks {
            let thin = self.shared.thin(volume);
            match thin.and_then(|thin| location(&thin, block).map(|(data, page)| (thin, block, data, page))) {
                Some(block) => located.push(block),
                None => self.memory.resolve(volume, block..block + 1),
            }
        }
        let pages = located.iter().flat_map(|(thin, block, ..)| pages_of(thin, &(*block..*block + 1)));
        let pages: Vec<_> = pages.collect();
        let failed = self.load(disk, journal, pages.into_iter());
        located.retain(|(.., page)| !failed.contains_key(page));
        located
    }

    /// Whether there are blocks with another tag than their newest one in the journal.
    pub(crate) fn has_reverted(&self) -> bool {
        self.memory.has_reverted()
    }

    /// Some of them, and records of the tags that they have.
    pub(crate) fn some_reverted(&self) -> (Vec<(VolumeId, u64)>, Vec<Record>) {
        let record = |((volume, first), tag)| ((volume, first), Record::Tags { volume, first, tags: vec![tag] });
        self.memory.some_reverted(AT_ONCE).into_iter().map(record).unzip()
    }

    /// The records of these blocks are in the journal.
    pub(crate) fn clear_reverted(&mut self, blocks: Vec<(VolumeId, u64)>) {
        self.memory.clear_reverted(blocks.into_iter());
    }

    /// Finds the tag that matches a block with these data, which are decrypted in place, and
    /// resolves the block. `None` if none matches, or its page is not in memory.
    pub(crate) fn match_block(&mut self, thin: &Thin, block: u64, data: &mut [u8]) -> Option<MatchedTag> {
        let places = place_of(thin, block)?;
        let pages = Arc::clone(&self.shared.pages);
        let on_page = pages.tag(places.at, places.places.start)?;
        let is_ambiguous = self.memory.is_ambiguous(thin.volume, block);
        let candidates = self.memory.candidates(thin.volume, block);
        if candidates.is_none() && !is_ambiguous {
            return match_tag(thin, block, data, std::iter::once(on_page));
        }
        let (tags, only) = candidates.map_or((&[][..], false), |candidates| (&candidates.tags, candidates.only));
        let newest = tags.last().copied();
        // While other blocks are unresolved, a flush rules out none of the older tags.
        let has_others = newest.is_some() && !(only && tags.len() == 1);
        let is_blank = is_ambiguous && is_zero(data);
        let newest_first = tags.iter().rev().copied().chain((!only).then_some(on_page));
        let matched = match_tag(thin, block, data, newest_first);
        let is_mended = matched.is_none() && is_ambiguous;
        let found = matched.or_else(|| is_ambiguous.then(|| new_tag(thin, block, data, is_blank)))?;
        if self.shared.read_only {
            return Some(found);
        }
        if found.on_medium != on_page {
            pages.put(places.at, places.places.start, found.on_medium);
        }
        self.memory.resolve(thin.volume, block..block + 1);
        self.ambiguous_seen += u64::from(is_ambiguous);
        if is_mended {
            self.mended += 1;
            if self.mend_reports.may_report(self.shared.clock.now()) {
                self.shared.notify(Notice::Mended { volume: thin.volume, block });
            }
            // Until its tag is recorded the block is in flux.
            pages.mark(places.at, Mask::from_places(places.places.clone()));
        } else if newest.is_some_and(|newest| newest != found.on_medium) {
            self.memory.add_reverted(thin.volume, block, found.on_medium);
        }
        if is_mended || has_others {
            // Recorded with the namespace's next flush.
            pages.set_unsettled(&places);
            self.recovered_pages.push((thin.volume, places.at));
            thin.count_unsettled();
        }
        Some(found)
    }

    /// Resolves a block that none of its tags matches: it gets the newest, and cannot be read
    /// before it is written.
    fn resolve_as_damaged(&mut self, thin: &Thin, block: u64) {
        let newest = self.memory.candidates(thin.volume, block).and_then(|candidates| candidates.tags.last().copied());
        if let (Some(newest), Some(places)) = (newest, place_of(thin, block))
            && self.shared.pages.put(places.at, places.places.start, newest)
        {
            self.memory.resolve(thin.volume, block..block + 1);
        }
    }

    /// Notifies the owner of a damaged block, within limits.
    pub(crate) fn report_corrupt(&mut self, thin: &Thin, block: u64) {
        if self.reports.may_report(self.shared.clock.now()) {
            self.shared.notify(Notice::Corrupt { volume: thin.volume, block });
        }
    }

    /// Drops the tags of extents (index, extent of the medium) that are unmapped.
    pub(crate) fn forget(&mut self, thin: &Thin, extents: &[(u32, u32)]) {
        let layout = self.shared.layout;
        for &(index, extent) in extents {
            let blocks = thin.block_layout.blocks_of(index..index + 1);
            let begin = layout.extent(extent);
            for page in 0..thin.block_layout.tags_bytes / TAG_PAGE_BYTES {
                self.shared.pages.forget(begin + thin.block_layout.page_at(page));
            }
            self.memory.resolve(thin.volume, blocks);
        }
    }

    /// Takes the pages with tags of recovered blocks that the next flush is to record.
    pub(crate) fn take_recovered_pages(&mut self) -> Vec<(VolumeId, u64)> {
        std::mem::take(&mut self.recovered_pages)
    }
}

/// Whether there is a fault of the backing device that was logged already.
fn has_faults(disk: &Disk, journal: &Journal) -> bool {
    disk.faults.is_any() || journal.is_failing()
}

fn header_of(owner: &Owner) -> [u8; 16] {
    header(owner.volume, owner.index, owner.page)
}

/// A page with its header, and tags whose bytes are all `fill`.
pub(crate) fn page(owner: &Owner, fill: u8) -> Buffer {
    let mut page = Buffer::zeroed(BYTES);
    page.as_mut_slice().fill(fill);
    page.as_mut_slice()[..16].copy_from_slice(&header_of(owner));
    page
}
