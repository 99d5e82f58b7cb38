//! Tags of blocks, between memory and medium: pages are read when they are needed and written some
//! time later, and blocks of which it is not known which tag is theirs are looked at.
//!
//! A page is written after the data of its blocks are durable, and is durable before a checkpoint
//! says that the journal is not needed any more. So a block's data always fit the tag on its page,
//! or one behind that in the journal.

mod memory;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_backend::{Action, Buffer, Class, Error as DeviceError, Operation, Segments};
use ebof_drive::frame::Record;
use ebof_drive::tag::{Tag, header};

use crate::disk::Disk;
use crate::journal::Journal;
use crate::shared::Shared;
use crate::{Error, Notice, Thin, VolumeId};
pub(crate) use memory::{BYTES, Owner};

use self::memory::Memory;

/// Blocks that are looked at together.
const AT_ONCE: usize = 256;
/// Tags that a checkpoint carries for blocks of which it is not known which is theirs.
pub(crate) const CARRIED_MAX: usize = 16384;
/// Pages that could not be written, and whose tags a checkpoint carries.
pub(crate) const PAGES_MAX: usize = 64;
/// Damaged blocks that are told in one [`REPORT_PERIOD`].
const REPORTS_MAX: u32 = 16;
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// Tags in the journal, so that the next incarnation is soon done with them.
const JOURNALED_MAX: usize = 65536;

/// The tags of a medium's blocks in the hands of the drive's thread.
pub(crate) struct Tags {
    shared: Arc<Shared>,
    memory: Memory,
    /// Tags in the journal.
    journaled: usize,
    /// From where on blocks are looked at in the background which tag is theirs; `None` when that
    /// is over.
    cursor: Option<(VolumeId, u64)>,
    reports: ReportLimit,
}

/// How many damaged blocks were told lately.
#[derive(Debug, Default)]
struct ReportLimit {
    since: Option<Instant>,
    count: u32,
}

/// Where the pages for tags of blocks of one extent are; none if it has no place.
pub(crate) fn pages_of(thin: &Thin, blocks: &std::ops::Range<u64>) -> Vec<(u64, Owner)> {
    let (block_layout, index) = (&thin.block_layout, thin.block_layout.index(blocks.start));
    let Some(place) = thin.map.place(index).filter(|_| !blocks.is_empty()) else { return Vec::new() };
    let begin = thin.shared.layout.extent(place);
    let owner = |page| {
        let tagged = block_layout.tagged(index, page);
        let blocks = tagged.start..tagged.end.min(thin.blocks_of_it());
        (begin + block_layout.page_at(page), Owner { volume: thin.volume, blocks, place: (index, page) })
    };
    (block_layout.page(blocks.start)..=block_layout.page(blocks.end - 1)).map(owner).collect()
}

/// Where the data of a block are, and the page of its tag; `None` if its extent has no place.
pub(crate) fn location(thin: &Thin, block: u64) -> Option<(u64, u64)> {
    let begin = thin.shared.layout.extent(thin.map.place(thin.block_layout.index(block))?);
    Some((begin + thin.block_layout.data(block), begin + thin.block_layout.page_at(thin.block_layout.page(block))))
}

/// A tag of a block, as it is on the medium, and what it says.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    on_medium: Tag,
    pub(crate) metadata: [u8; 8],
}

/// The first of these tags that is that of the block with these bytes. They become what was
/// written.
fn match_tag(thin: &Thin, block: u64, data: &mut [u8], tags: impl Iterator<Item = Tag>) -> Option<Found> {
    let zeros = data.iter().all(|byte| *byte == 0);
    if let Some(cipher) = thin.cipher.as_ref().filter(|_| !zeros) {
        cipher.decrypt(block, data.len(), data);
    }
    let clear = |on_medium: Tag| {
        let mut tag = on_medium;
        if let Some(cipher) = &thin.cipher
            && tag != Tag::LOST
        {
            cipher.decrypt_tag(block, &mut tag.0);
        }
        tag
    };
    tags.into_iter().find_map(|on_medium| {
        // One that was never written is neither encrypted nor anything else.
        let (fits, tag) = match on_medium {
            Tag::UNWRITTEN => (zeros, on_medium),
            on_medium => (clear(on_medium).fits(thin.volume, block, data), clear(on_medium)),
        };
        fits.then(|| Found { on_medium, metadata: tag.metadata() })
    })
}

impl Tags {
    /// Keeps `cache_bytes` of pages in memory; 0 for what is usual. Nobody has looked at any block.
    pub(crate) fn new(shared: &Arc<Shared>, cache_bytes: usize) -> Self {
        let cursor = Some((VolumeId(0), 0));
        Self {
            shared: Arc::clone(shared),
            memory: Memory::new(cache_bytes),
            journaled: 0,
            cursor,
            reports: ReportLimit::default(),
        }
    }

    /// Bytes of memory that pages take.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// So many tags were put into the journal.
    pub(crate) fn are_journaled(&mut self, count: usize) {
        self.journaled += count;
    }

    /// Whether the journal is to have so many more.
    pub(crate) fn may_journal(&self, count: usize) -> bool {
        self.journaled + count <= JOURNALED_MAX
    }

    /// A checkpoint was written, with so many tags in it: the journal is empty, and the pages of
    /// tags are right.
    pub(crate) fn are_in_checkpoint(&mut self, count: usize) {
        self.journaled = count;
        self.memory.forget_reverted();
    }

    /// Lets the journal know when it is known of all blocks which tag is theirs: no block is being
    /// written.
    pub(crate) fn release(&self, journal: &mut Journal) {
        if self.memory.is_recovered() {
            journal.release();
        }
    }

    /// A block has this tag, or one that it could have before, unless those are ruled out.
    pub(crate) fn add_candidate(&mut self, volume: VolumeId, block: u64, tag: Tag, only: bool) {
        self.memory.add_candidate(volume, block, tag, only);
    }

    /// The tags of these blocks are those on their pages.
    pub(crate) fn resolve(&mut self, volume: VolumeId, blocks: Range<u64>) {
        self.memory.resolve(volume, blocks);
    }

    /// No block of a namespace is of concern any more.
    pub(crate) fn forget_all(&mut self, volume: VolumeId) {
        self.memory.forget_all(volume);
    }

    /// Some blocks are about to be looked at: their pages stay in memory until the next ones are.
    pub(crate) fn next_turn(&mut self) {
        self.memory.next_turn();
    }

    /// The page at this place, of a new extent, is written: nothing has to be read.
    pub(crate) fn made_blank(&mut self, at: u64) {
        self.memory.made_blank(at);
    }

    /// The data of a block were written, with this tag; `false` if that is not known of both of
    /// them.
    pub(crate) fn was_written(&mut self, thin: &Thin, block: u64, tag: Tag, sure: bool) -> bool {
        let page = location(thin, block).map(|(_, page)| page);
        if sure && page.is_some_and(|page| self.memory.put(page, thin.block_layout.tag(block), tag)) {
            self.memory.resolve(thin.volume, block..block + 1);
            return true;
        }
        self.memory.add_candidate(thin.volume, block, tag, false);
        false
    }

    /// A batch of changes is over: writes pages if there are many to be written.
    pub(crate) fn end_batch(&mut self, disk: &mut Disk, journal: &mut Journal) {
        self.memory.forget_blank();
        self.write_back_some(disk, journal);
    }

    fn write_back_some(&mut self, disk: &mut Disk, journal: &mut Journal) {
        if self.memory.is_dirty()
            && let Err(error) = self.write_back(disk, journal)
        {
            tracing::error!("tags of blocks cannot be written: {error}");
        }
    }

    /// Has these pages in memory for the rest of the turn; gives those that cannot be, and why.
    pub(crate) fn load(
        &mut self,
        disk: &mut Disk,
        journal: &mut Journal,
        wanted: impl Iterator<Item = (u64, Owner)>,
    ) -> BTreeMap<u64, Class> {
        let missing = wanted.filter(|(at, _)| !self.memory.touch(*at));
        let mut missing: BTreeMap<u64, Owner> = missing.collect();
        if missing.is_empty() {
            return BTreeMap::new();
        }
        self.write_back_some(disk, journal);
        self.memory.make_room(missing.len());
        if !self.memory.has_room(missing.len()) {
            return missing.into_keys().map(|at| (at, Class::MediumWrite)).collect();
        }
        // New extents have none yet.
        let blank: Vec<u64> = missing.keys().copied().filter(|&at| self.memory.take_blank(at)).collect();
        for at in blank {
            let Some(owner) = missing.remove(&at) else { continue };
            let bytes = page(&owner, 0);
            self.memory.insert(at, owner, bytes);
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
                    self.memory.insert(at, owner, bytes);
                }
                (result, _) => {
                    let error = result.err();
                    let class = error.as_ref().map_or(Class::MediumRead, DeviceError::class);
                    if !has_faults(disk, journal) {
                        tracing::error!(instance = owner.volume.0, ?error, "tags of blocks cannot be read");
                    }
                    failed.insert(at, class);
                }
            }
        }
        failed
    }

    /// Writes the pages that are not on the medium as they are in memory; gives those that could
    /// not be.
    pub(crate) fn write_back(&mut self, disk: &mut Disk, journal: &mut Journal) -> Result<Vec<u64>, Error> {
        let (dirty, mut failed) = (self.memory.dirty(), Vec::new());
        if dirty.is_empty() || self.shared.read_only {
            return Ok(failed);
        }
        // What these tags fit may not be lost with the power when what was there before them is.
        self.release(journal);
        journal.flush(disk, &self.shared.journal)?;
        for some in dirty.chunks(AT_ONCE) {
            let write = |&offset: &u64| {
                let buffer = self.memory.copy(offset)?;
                Some(Operation::Write { offset, len: BYTES, data: buffer.into(), fua: false })
            };
            let operations = some.iter().filter_map(write).collect();
            for (&at, completion) in some.iter().zip(disk.run(operations)) {
                match completion.result {
                    Ok(()) => self.memory.cleaned(at),
                    Err(error) => {
                        if !has_faults(disk, journal) {
                            tracing::error!("tags of blocks cannot be written: {error}");
                        }
                        failed.push(at);
                    }
                }
            }
        }
        Ok(failed)
    }

    /// Brings all tags to the medium, for a checkpoint; gives what has to be in that because it is
    /// not there.
    pub(crate) fn bring(&mut self, disk: &mut Disk, journal: &mut Journal) -> Result<Vec<Record>, Error> {
        if self.memory.pending() > CARRIED_MAX {
            let mut from = (VolumeId(0), 0);
            while let some = self.memory.unrecovered(from, AT_ONCE)
                && let Some(&(volume, block)) = some.last()
            {
                from = (volume, block + 1);
                self.recover_blocks(disk, journal, &some);
            }
        }
        let failed = self.write_back(disk, journal)?;
        if failed.len() > PAGES_MAX || self.memory.pending() > CARRIED_MAX {
            let reason = "too many tags of blocks cannot be read or written: see the log";
            let (action, class) = (Action::Write, Class::MediumWrite);
            return Err(Error::Device(DeviceError::Refused { action, offset: 0, len: 0, class, reason }));
        }
        Ok(self.memory.records(&failed))
    }

    /// Whether there are blocks that nobody has looked at since the start.
    pub(crate) fn has_unrecovered(&self) -> bool {
        self.cursor.is_some_and(|from| !self.memory.unrecovered(from, 1).is_empty())
    }

    /// Looks at some of them.
    pub(crate) fn recover_some(&mut self, disk: &mut Disk, journal: &mut Journal) {
        let Some(from) = self.cursor else { return };
        let some = self.memory.unrecovered(from, AT_ONCE);
        self.recover_blocks(disk, journal, &some);
        // What cannot be read now is looked at when it is read.
        self.cursor = some.last().map(|&(volume, block)| (volume, block + 1));
    }

    /// Finds out which tag is that of blocks that may have several; what cannot be read stays as it
    /// is.
    pub(crate) fn recover_blocks(&mut self, disk: &mut Disk, journal: &mut Journal, blocks: &[(VolumeId, u64)]) {
        self.memory.next_turn();
        let mut known: Vec<(Arc<Thin>, u64, u64, u64)> = Vec::new();
        for &(volume, block) in blocks {
            let thin = self.shared.thin(volume);
            match thin.and_then(|thin| location(&thin, block).map(|(data, page)| (thin, block, data, page))) {
                Some(known_one) => known.push(known_one),
                None => self.memory.resolve(volume, block..block + 1),
            }
        }
        let pages = known.iter().flat_map(|(thin, block, ..)| pages_of(thin, &(*block..*block + 1)));
        let pages: Vec<_> = pages.collect();
        let failed = self.load(disk, journal, pages.into_iter());
        known.retain(|(.., page)| !failed.contains_key(page));
        let read = |(thin, _, offset, _): &(Arc<Thin>, u64, u64, u64)| {
            let len = usize::try_from(thin.block_layout.data_bytes).unwrap_or_default();
            Operation::Read { offset: *offset, len, data: Buffer::zeroed(len).into() }
        };
        let operations = known.iter().map(read).collect();
        for ((thin, block, ..), completion) in known.iter().zip(disk.run(operations)) {
            if let (Ok(()), Some(mut data)) = (completion.result, completion.data.and_then(Segments::into_buffer)) {
                let len = usize::try_from(thin.block_layout.data_bytes).unwrap_or_default();
                if self.fit(thin, *block, &mut data.as_mut_slice()[..len]).is_none() {
                    self.report_corrupt(thin, *block);
                    self.give_up(thin, *block);
                }
            }
        }
    }

    /// Whether there are blocks with another tag than the newest one in the journal, which does not
    /// say so.
    pub(crate) fn has_reverted(&self) -> bool {
        self.memory.has_reverted()
    }

    /// Some of them, and the records that say so.
    pub(crate) fn reverted(&self) -> (Vec<(VolumeId, u64)>, Vec<Record>) {
        let record = |((volume, first), tag)| ((volume, first), Record::Tags { volume, first, tags: vec![tag] });
        self.memory.some_reverted(AT_ONCE).into_iter().map(record).unzip()
    }

    /// The journal has these records.
    pub(crate) fn journaled_reverted(&mut self, blocks: Vec<(VolumeId, u64)>) {
        self.memory.journaled_reverted(blocks.into_iter());
    }

    /// The tag of a block with these bytes, which become what was written; `None` if none fits, or
    /// its page is not in memory.
    pub(crate) fn fit(&mut self, thin: &Thin, block: u64, data: &mut [u8]) -> Option<Found> {
        let (_, page) = location(thin, block)?;
        let at = thin.block_layout.tag(block);
        let on_page = self.memory.tag(page, &at)?;
        let Some(candidates) = self.memory.candidates(thin.volume, block) else {
            return match_tag(thin, block, data, std::iter::once(on_page));
        };
        let newest = candidates.tags.last().copied();
        let newest_first = candidates.tags.iter().rev().copied().chain((!candidates.only).then_some(on_page));
        let found = match_tag(thin, block, data, newest_first)?;
        if self.shared.read_only {
            return Some(found);
        }
        if found.on_medium != on_page {
            self.memory.put(page, at, found.on_medium);
        }
        self.memory.resolve(thin.volume, block..block + 1);
        if newest != Some(found.on_medium) {
            self.memory.revert(thin.volume, block, found.on_medium);
        }
        Some(found)
    }

    /// None of its tags fits: it has the newest, and cannot be read before it is written.
    fn give_up(&mut self, thin: &Thin, block: u64) {
        let newest = self.memory.candidates(thin.volume, block).and_then(|candidates| candidates.tags.last().copied());
        if let (Some(newest), Some((_, page))) = (newest, location(thin, block))
            && self.memory.put(page, thin.block_layout.tag(block), newest)
        {
            self.memory.resolve(thin.volume, block..block + 1);
        }
    }

    /// What is there of a block is not what was written.
    pub(crate) fn report_corrupt(&mut self, thin: &Thin, block: u64) {
        if self.reports.may_report(self.shared.clock.now()) {
            tracing::error!(instance = thin.volume.0, block, "a block is damaged: its checksum does not fit");
            self.shared.notify(Notice::Corrupt { volume: thin.volume, block });
        }
    }

    /// Extents of a namespace (number, and place on the medium) are not its own any more.
    pub(crate) fn forget(&mut self, thin: &Thin, extents: &[(u32, u32)]) {
        let layout = self.shared.layout;
        for &(index, place) in extents {
            let (blocks, begin) = (thin.block_layout.blocks_of(index..index + 1), layout.extent(place));
            self.memory.forget(thin.volume, blocks, begin..begin + layout.extent_bytes);
        }
    }
}

impl ReportLimit {
    /// Whether another damaged block is to be told now: not thousands in a row.
    fn may_report(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= REPORT_PERIOD) {
            (self.since, self.count) = (Some(now), 0);
        }
        self.count += 1;
        self.count <= REPORTS_MAX
    }
}

/// Whether it is known that the backing device fails: then it has been told.
fn has_faults(disk: &Disk, journal: &Journal) -> bool {
    disk.faults.is_any() || journal.is_failing()
}

fn header_of(owner: &Owner) -> [u8; 16] {
    header(owner.volume, owner.place.0, owner.place.1)
}

/// A page with nothing but its header, and tags that are all the same byte.
pub(crate) fn page(owner: &Owner, fill: u8) -> Buffer {
    let mut page = Buffer::zeroed(BYTES);
    page.as_mut_slice().fill(fill);
    page.as_mut_slice()[..16].copy_from_slice(&header_of(owner));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_blocks_are_told_but_not_thousands_at_a_time() {
        let (mut told, now) = (ReportLimit::default(), Instant::now());
        assert_eq!((0..1000).filter(|_| told.may_report(now)).count(), 16);
        assert!(!told.may_report(now + REPORT_PERIOD / 2) && told.may_report(now + REPORT_PERIOD));
    }
}
