//! The cache of pages of tags, and the blocks that may have one of several tags. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ebof_backend::Buffer;
use ebof_drive::block_format::TAG_PAGE_BYTES;
use ebof_drive::frame::Record;
use ebof_drive::tag::Tag;

use crate::VolumeId;

/// Bytes of the cache by default.
const CACHE_BYTES: usize = 16 << 20;
/// Pages of the cache at least: one batch needs no more.
const PAGES_MIN: usize = 1024;

/// The cached pages of tags, and the unresolved blocks.
pub(crate) struct Memory {
    /// By offset on the medium.
    pages: BTreeMap<u64, Page>,
    /// How many of them are dirty.
    dirty: usize,
    pages_max: usize,
    /// Counts the uses: pages of the current one are not evicted.
    current_use: u64,
    /// Offsets of pages of new extents, which have their headers on the medium and nothing else.
    blank: BTreeSet<u64>,
    /// Unresolved blocks: tags that they may have instead of the one on their page.
    unresolved: BTreeMap<(VolumeId, u64), Candidates>,
    /// Blocks that turned out to have another tag than their newest one in the journal. The journal
    /// needs a record of it: otherwise, once a flush rules out older tags, such a block would be
    /// taken for damaged after a power loss.
    reverted: BTreeMap<(VolumeId, u64), Tag>,
}

/// What a page of tags belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) volume: VolumeId,
    /// The blocks whose tags it has.
    pub(crate) blocks: Range<u64>,
    /// Index of the extent in the namespace.
    pub(crate) index: u32,
    /// Number of the page in the extent.
    pub(crate) page: u64,
}

/// The tags that a block may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Candidates {
    /// In the order in which they were journaled.
    pub(crate) tags: Vec<Tag>,
    /// It cannot have the one on its page.
    pub(crate) only: bool,
    /// So many of the last are of writes that failed.
    pub(crate) failed: usize,
}

struct Page {
    owner: Owner,
    bytes: Buffer,
    dirty: bool,
    last_use: u64,
}

impl Memory {
    /// Caches `cache_bytes` of pages; 0 for the default.
    pub(crate) fn new(cache_bytes: usize) -> Self {
        let cache_bytes = if cache_bytes == 0 { CACHE_BYTES } else { cache_bytes };
        Self {
            pages: BTreeMap::new(),
            dirty: 0,
            pages_max: (cache_bytes / BYTES).max(PAGES_MIN),
            current_use: 0,
            blank: BTreeSet::new(),
            unresolved: BTreeMap::new(),
            reverted: BTreeMap::new(),
        }
    }

    /// The page of a new extent has its header on the medium, and nothing else.
    pub(crate) fn add_blank(&mut self, offset: u64) {
        self.blank.insert(offset);
    }

    /// Whether a page is blank on the medium. It is not any more from now on.
    pub(crate) fn take_blank(&mut self, offset: u64) -> bool {
        self.blank.remove(&offset)
    }

    /// No page is taken for blank from now on.
    pub(crate) fn clear_blank(&mut self) {
        self.blank.clear();
    }

    /// A block has another tag than its newest one in the journal.
    pub(crate) fn add_reverted(&mut self, volume: VolumeId, block: u64, tag: Tag) {
        self.reverted.insert((volume, block), tag);
    }

    /// Whether there are such blocks.
    pub(crate) fn has_reverted(&self) -> bool {
        !self.reverted.is_empty()
    }

    /// Up to `count` of them, with their tags.
    pub(crate) fn some_reverted(&self, count: usize) -> Vec<((VolumeId, u64), Tag)> {
        self.reverted.iter().take(count).map(|(&key, &tag)| (key, tag)).collect()
    }

    /// Records of these are in the journal.
    pub(crate) fn clear_reverted(&mut self, blocks: impl Iterator<Item = (VolumeId, u64)>) {
        for block in blocks {
            self.reverted.remove(&block);
        }
    }

    /// A checkpoint was written: the pages on the medium have the tags of all of them.
    pub(crate) fn forget_reverted(&mut self) {
        self.reverted.clear();
    }

    /// Begins the next use: pages that are touched or inserted from now on are not evicted before
    /// the next call.
    pub(crate) fn begin_use(&mut self) {
        self.current_use += 1;
    }

    /// Bytes of the cached pages.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.len() * BYTES
    }

    /// Whether a page is cached; then it is part of the current use.
    pub(crate) fn touch(&mut self, at: u64) -> bool {
        let current_use = self.current_use;
        self.pages.get_mut(&at).map(|page| page.last_use = current_use).is_some()
    }

    pub(crate) fn insert(&mut self, at: u64, owner: Owner, bytes: Buffer) {
        self.pages.insert(at, Page { owner, bytes, dirty: false, last_use: self.current_use });
    }

    /// The tag at bytes `at` of a page; `None` if that is not cached.
    pub(crate) fn tag(&self, page: u64, at: &Range<usize>) -> Option<Tag> {
        let bytes = self.pages.get(&page)?.bytes.as_slice().get(at.clone())?;
        Some(Tag(bytes.try_into().ok()?))
    }

    /// Puts a tag into a page; `false` if that is not cached.
    pub(crate) fn put(&mut self, page: u64, at: Range<usize>, tag: Tag) -> bool {
        let Some(page) = self.pages.get_mut(&page) else { return false };
        page.bytes.as_mut_slice()[at].copy_from_slice(&tag.0);
        self.dirty += usize::from(!page.dirty);
        page.dirty = true;
        true
    }

    /// Whether more than half of the cache is dirty.
    pub(crate) fn has_many_dirty(&self) -> bool {
        self.dirty > self.pages_max / 2
    }

    /// Offsets of the dirty pages.
    pub(crate) fn dirty(&self) -> Vec<u64> {
        self.pages.iter().filter(|(_, page)| page.dirty).map(|(&at, _)| at).collect()
    }

    /// A copy of a cached page, to be written.
    pub(crate) fn copy(&self, at: u64) -> Option<Buffer> {
        let mut copy = Buffer::zeroed(BYTES);
        copy.as_mut_slice().copy_from_slice(self.pages.get(&at)?.bytes.as_slice());
        Some(copy)
    }

    /// A page was written.
    pub(crate) fn mark_clean(&mut self, at: u64) {
        if let Some(page) = self.pages.get_mut(&at)
            && page.dirty
        {
            page.dirty = false;
            self.dirty -= 1;
        }
    }

    /// Makes room for `count` pages: evicts the least recently used that are clean and not in use.
    pub(crate) fn make_room(&mut self, count: usize) {
        if self.pages.len() + count <= self.pages_max {
            return;
        }
        let evicted = self.pages.len() + count - self.pages_max + self.pages_max / 8;
        let current_use = self.current_use;
        let idle = self.pages.iter().filter(|(_, page)| !page.dirty && page.last_use < current_use);
        let mut idle: Vec<(u64, u64)> = idle.map(|(&at, page)| (page.last_use, at)).collect();
        if idle.len() > evicted {
            idle.select_nth_unstable(evicted);
            idle.truncate(evicted);
        }
        for (_, at) in idle {
            self.pages.remove(&at);
        }
    }

    /// Whether there is room for `count` more pages. Pages that cannot be written may take as much
    /// again as the cache should have.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.pages.len() + count <= 2 * self.pages_max
    }

    /// Drops the pages in a range of the medium, and resolves the blocks that had tags in them.
    pub(crate) fn forget(&mut self, volume: VolumeId, blocks: Range<u64>, medium: Range<u64>) {
        let gone: Vec<u64> = self.pages.range(medium).map(|(&at, _)| at).collect();
        for at in gone {
            self.mark_clean(at);
            self.pages.remove(&at);
        }
        self.resolve(volume, blocks);
    }

    /// Drops everything about a namespace.
    pub(crate) fn forget_namespace(&mut self, volume: VolumeId) {
        let dirty = &mut self.dirty;
        self.pages.retain(|_, page| {
            let stays = page.owner.volume != volume;
            *dirty -= usize::from(page.dirty && !stays);
            stays
        });
        self.resolve(volume, 0..u64::MAX);
    }

    /// These blocks have the tags on their pages.
    pub(crate) fn resolve(&mut self, volume: VolumeId, blocks: Range<u64>) {
        if self.is_recovered() || blocks.is_empty() {
            return;
        }
        let range = || (volume, blocks.start)..(volume, blocks.end);
        let known = self.unresolved.range(range()).map(|(&key, _)| key);
        let known: Vec<(VolumeId, u64)> = known.chain(self.reverted.range(range()).map(|(&key, _)| key)).collect();
        for key in known {
            self.unresolved.remove(&key);
            self.reverted.remove(&key);
        }
    }

    /// Whether no block is unresolved or reverted: each has its newest tag in the journal, or else
    /// the one on its page.
    pub(crate) fn is_recovered(&self) -> bool {
        self.unresolved.is_empty() && self.reverted.is_empty()
    }

    /// Adds a tag that a block may have. With `only`, no earlier one can be right.
    pub(crate) fn add_candidate(&mut self, volume: VolumeId, block: u64, tag: Tag, only: bool) {
        let candidates = self.unresolved.entry((volume, block)).or_default();
        if only {
            candidates.tags.clear();
            candidates.only = true;
        }
        if candidates.tags.last() != Some(&tag) {
            candidates.tags.push(tag);
        }
        candidates.failed = 0;
    }

    /// Adds the tag of a write that failed: the block may have it nevertheless.
    pub(crate) fn add_failed(&mut self, volume: VolumeId, block: u64, tag: Tag) {
        let candidates = self.unresolved.entry((volume, block)).or_default();
        if candidates.tags.last() != Some(&tag) {
            candidates.tags.push(tag);
            candidates.failed += 1;
        }
    }

    /// Drops the tags of failed writes of a block but the last. Returns whether there is one.
    pub(crate) fn forget_earlier_failures(&mut self, volume: VolumeId, block: u64) -> bool {
        let Some(candidates) = self.unresolved.get_mut(&(volume, block)) else { return false };
        let newest = candidates.tags.len().saturating_sub(1);
        if candidates.failed > 1 {
            candidates.tags.drain(newest + 1 - candidates.failed..newest);
            candidates.failed = 1;
        }
        candidates.failed == 1
    }

    /// The tags that an unresolved block may have; `None` if it is resolved.
    pub(crate) fn candidates(&self, volume: VolumeId, block: u64) -> Option<&Candidates> {
        if self.unresolved.is_empty() {
            return None;
        }
        self.unresolved.get(&(volume, block))
    }

    /// How many tags unresolved blocks have in all.
    pub(crate) fn unresolved_tags(&self) -> usize {
        self.unresolved.values().map(|candidates| candidates.tags.len()).sum()
    }

    /// Up to `count` unresolved blocks, from one on.
    pub(crate) fn some_unresolved(&self, from: (VolumeId, u64), count: usize) -> Vec<(VolumeId, u64)> {
        self.unresolved.range(from..).map(|(&key, _)| key).take(count).collect()
    }

    /// The records for a checkpoint: the tags of unresolved blocks, and of the pages at the offsets
    /// `unwritten`.
    pub(crate) fn records(&self, unwritten: &[u64]) -> Vec<Record> {
        let pages = unwritten.iter().filter_map(|at| self.pages.get(at)).map(|page| {
            let count = usize::try_from(page.owner.blocks.end - page.owner.blocks.start).unwrap_or_default();
            let tags = page.bytes.as_slice()[16..].chunks_exact(16).take(count);
            let tags = tags.map(|bytes| Tag(std::array::from_fn(|at| bytes[at]))).collect();
            // The page on the medium has older tags.
            Record::OnlyTags { volume: page.owner.volume, first: page.owner.blocks.start, tags }
        });
        let blocks = self.unresolved.iter().flat_map(|(&(volume, first), candidates)| {
            let record = move |(at, &tag): (usize, &Tag)| match (at, candidates.only) {
                (0, true) => Record::OnlyTags { volume, first, tags: vec![tag] },
                _ => Record::Tags { volume, first, tags: vec![tag] },
            };
            candidates.tags.iter().enumerate().map(record)
        });
        pages.chain(blocks).collect()
    }
}

/// Bytes of a page.
pub(crate) const BYTES: usize = 4096;
const _: () = assert!(BYTES as u64 == TAG_PAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(at: u64) -> Owner {
        Owner { volume: VolumeId(at), blocks: 0..255, index: 0, page: 0 }
    }

    #[test]
    fn unused_pages_are_evicted_first_and_dirty_ones_are_kept() {
        let mut tags = Memory::new(1);
        for at in 0..1024 {
            tags.begin_use();
            tags.insert(at, owner(at), Buffer::zeroed(BYTES));
        }
        assert!(tags.put(3, 16..32, Tag::LOST) && !tags.put(2000, 16..32, Tag::LOST));
        tags.begin_use();
        assert!(tags.touch(5) && !tags.touch(2000));
        tags.make_room(1);
        assert_eq!(tags.bytes(), (1024 - 129) * BYTES);
        let left: Vec<u64> = (0..1024).filter(|&at| tags.touch(at)).collect();
        assert_eq!(left, [3, 5].into_iter().chain(131..1024).collect::<Vec<_>>());
        assert_eq!((tags.dirty(), tags.tag(3, &(16..32))), (vec![3], Some(Tag::LOST)));
        tags.forget(VolumeId(3), 0..9, 3..4);
        assert_eq!((tags.dirty(), tags.dirty), (vec![], 0));
    }

    #[test]
    fn the_possible_tags_of_a_block_are_kept_in_order() {
        let mut tags = Memory::new(0);
        for version in 0..40 {
            tags.add_candidate(VolumeId(1), 7, Tag([version / 2; 16]), false);
        }
        let expected: Vec<Tag> = (0..20).map(|version| Tag([version; 16])).collect();
        let candidates = Candidates { tags: expected, only: false, failed: 0 };
        assert_eq!((tags.candidates(VolumeId(1), 7), tags.unresolved_tags()), (Some(&candidates), 20));
        tags.add_candidate(VolumeId(1), 8, Tag::LOST, false);
        tags.add_candidate(VolumeId(2), 7, Tag::UNWRITTEN, false);
        // A flush rules out what came before.
        tags.add_candidate(VolumeId(2), 7, Tag::LOST, true);
        tags.add_candidate(VolumeId(2), 7, Tag([3; 16]), false);
        tags.add_reverted(VolumeId(1), 7, Tag::LOST);
        tags.resolve(VolumeId(1), 7..8);
        assert_eq!(tags.some_unresolved((VolumeId(0), 0), 9), [(VolumeId(1), 8), (VolumeId(2), 7)]);
        tags.forget_namespace(VolumeId(1));
        let (volume, first) = (VolumeId(2), 7);
        let expected = [
            Record::OnlyTags { volume, first, tags: vec![Tag::LOST] },
            Record::Tags { volume, first, tags: vec![Tag([3; 16])] },
        ];
        assert_eq!((&tags.records(&[])[..], tags.is_recovered()), (&expected[..], false));
        tags.forget_namespace(VolumeId(2));
        assert!(tags.is_recovered());
    }

    #[test]
    fn of_writes_that_fail_again_and_again_only_the_last_tag_is_kept() {
        let mut tags = Memory::new(0);
        let (volume, tag) = (VolumeId(1), |version| Tag([version; 16]));
        tags.add_candidate(volume, 7, tag(1), false);
        tags.add_failed(volume, 7, tag(2));
        // This one was written: what failed before it is as good as any other tag.
        tags.add_candidate(volume, 7, tag(3), false);
        (4..9).for_each(|version| tags.add_failed(volume, 7, tag(version)));
        tags.add_candidate(volume, 8, tag(1), false);
        assert_eq!(tags.unresolved_tags(), 9);
        assert!(tags.forget_earlier_failures(volume, 7) && !tags.forget_earlier_failures(volume, 8));
        let expected = Candidates { tags: [1, 2, 3, 8].map(tag).to_vec(), only: false, failed: 1 };
        assert_eq!(tags.candidates(volume, 7), Some(&expected));
        tags.add_failed(volume, 7, tag(9));
        assert!(tags.forget_earlier_failures(volume, 7) && !tags.forget_earlier_failures(volume, 9));
        let expected = Candidates { tags: [1, 2, 3, 9].map(tag).to_vec(), only: false, failed: 1 };
        assert_eq!((tags.candidates(volume, 7), tags.unresolved_tags()), (Some(&expected), 5));
    }
}
