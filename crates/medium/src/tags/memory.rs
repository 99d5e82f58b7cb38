//! Tags in memory: pages of them as they are or will be on the medium, and blocks of which it is
//! not known which of several tags is theirs. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ebof_backend::Buffer;
use ebof_drive::block_format::TAG_PAGE_BYTES;
use ebof_drive::frame::Record;
use ebof_drive::tag::Tag;

use crate::VolumeId;

/// Bytes of tag pages that are kept in memory, unless the owner has other wishes.
const CACHE_BYTES: usize = 16 << 20;
/// The fewest pages: what one turn needs at most.
const PAGES_MIN: usize = 1024;
/// The pages of tags that are in memory, and the blocks whose tag is not known yet.
pub(crate) struct Memory {
    /// By place on the medium.
    pages: BTreeMap<u64, Page>,
    dirty: usize,
    pages_max: usize,
    /// Grows with every turn: pages of this one stay.
    turn: u64,
    /// Pages of extents that have just got their headers and nothing else.
    blank: BTreeSet<u64>,
    /// Tags that blocks may have instead of the one on their page.
    pending: BTreeMap<(VolumeId, u64), Candidates>,
    /// Blocks that turned out to have another tag than the newest one in the journal: it is to say
    /// so, or their data would be taken for damaged ones when the newest was to be the right one.
    reverted: BTreeMap<(VolumeId, u64), Tag>,
}

/// Which page of tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) volume: VolumeId,
    /// The blocks whose tags it has.
    pub(crate) blocks: Range<u64>,
    /// Extent of the namespace, and number of the page in it.
    pub(crate) place: (u32, u64),
}

/// The tags that a block may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Candidates {
    /// The newest last.
    pub(crate) tags: Vec<Tag>,
    /// The one on its page is none of them.
    pub(crate) only: bool,
}

struct Page {
    owner: Owner,
    bytes: Buffer,
    dirty: bool,
    turn: u64,
}

impl Memory {
    /// Keeps `cache_bytes` of pages; 0 for what is usual.
    pub(crate) fn new(cache_bytes: usize) -> Self {
        let cache_bytes = if cache_bytes == 0 { CACHE_BYTES } else { cache_bytes };
        Self {
            pages: BTreeMap::new(),
            dirty: 0,
            pages_max: (cache_bytes / BYTES).max(PAGES_MIN),
            turn: 0,
            blank: BTreeSet::new(),
            pending: BTreeMap::new(),
            reverted: BTreeMap::new(),
        }
    }

    /// A page of a new extent has its header on the medium, and nothing else.
    pub(crate) fn made_blank(&mut self, at: u64) {
        self.blank.insert(at);
    }

    /// Whether a page is such a one; asked once.
    pub(crate) fn take_blank(&mut self, at: u64) -> bool {
        self.blank.remove(&at)
    }

    /// New extents are as others are from now on.
    pub(crate) fn forget_blank(&mut self) {
        self.blank.clear();
    }

    /// A block has another tag than the newest one in the journal.
    pub(crate) fn revert(&mut self, volume: VolumeId, block: u64, tag: Tag) {
        self.reverted.insert((volume, block), tag);
    }

    /// Whether there are such blocks.
    pub(crate) fn has_reverted(&self) -> bool {
        !self.reverted.is_empty()
    }

    /// Some of them, with their tags.
    pub(crate) fn some_reverted(&self, count: usize) -> Vec<((VolumeId, u64), Tag)> {
        self.reverted.iter().take(count).map(|(&key, &tag)| (key, tag)).collect()
    }

    /// The journal says which tag these have.
    pub(crate) fn journaled_reverted(&mut self, blocks: impl Iterator<Item = (VolumeId, u64)>) {
        for block in blocks {
            self.reverted.remove(&block);
        }
    }

    /// The pages of tags say it of all of them: a checkpoint has been written.
    pub(crate) fn forget_reverted(&mut self) {
        self.reverted.clear();
    }

    pub(crate) fn next_turn(&mut self) {
        self.turn += 1;
    }

    /// Bytes of pages that are in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.len() * BYTES
    }

    /// Whether a page is in memory; it stays there for this turn.
    pub(crate) fn touch(&mut self, at: u64) -> bool {
        let turn = self.turn;
        self.pages.get_mut(&at).map(|page| page.turn = turn).is_some()
    }

    pub(crate) fn insert(&mut self, at: u64, owner: Owner, bytes: Buffer) {
        self.pages.insert(at, Page { owner, bytes, dirty: false, turn: self.turn });
    }

    /// The tag at this place of a page that is in memory.
    pub(crate) fn tag(&self, page: u64, at: &Range<usize>) -> Option<Tag> {
        let bytes = self.pages.get(&page)?.bytes.as_slice().get(at.clone())?;
        Some(Tag(bytes.try_into().ok()?))
    }

    /// Puts a tag into a page; `false` if that is not in memory.
    pub(crate) fn put(&mut self, page: u64, at: Range<usize>, tag: Tag) -> bool {
        let Some(page) = self.pages.get_mut(&page) else { return false };
        page.bytes.as_mut_slice()[at].copy_from_slice(&tag.0);
        self.dirty += usize::from(!page.dirty);
        page.dirty = true;
        true
    }

    /// Whether so many pages that are to be written call for doing it.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty > self.pages_max / 2
    }

    /// Places of the pages that are to be written.
    pub(crate) fn dirty(&self) -> Vec<u64> {
        self.pages.iter().filter(|(_, page)| page.dirty).map(|(&at, _)| at).collect()
    }

    /// A page that is in memory, to be written.
    pub(crate) fn copy(&self, at: u64) -> Option<Buffer> {
        let mut copy = Buffer::zeroed(BYTES);
        copy.as_mut_slice().copy_from_slice(self.pages.get(&at)?.bytes.as_slice());
        Some(copy)
    }

    /// It is on the medium as it is in memory.
    pub(crate) fn cleaned(&mut self, at: u64) {
        if let Some(page) = self.pages.get_mut(&at)
            && page.dirty
        {
            page.dirty = false;
            self.dirty -= 1;
        }
    }

    /// Makes room for so many pages: lets go of those that were not needed for the longest time.
    pub(crate) fn make_room(&mut self, count: usize) {
        if self.pages.len() + count <= self.pages_max {
            return;
        }
        let goes = self.pages.len() + count - self.pages_max + self.pages_max / 8;
        let turn = self.turn;
        let idle = self.pages.iter().filter(|(_, page)| !page.dirty && page.turn < turn);
        let mut idle: Vec<(u64, u64)> = idle.map(|(&at, page)| (page.turn, at)).collect();
        if idle.len() > goes {
            idle.select_nth_unstable(goes);
            idle.truncate(goes);
        }
        for (_, at) in idle {
            self.pages.remove(&at);
        }
    }

    /// Whether so many pages more are within bounds: those that cannot be written may take some
    /// more than they should.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.pages.len() + count <= 2 * self.pages_max
    }

    /// These blocks, and what lies there on the medium, are of no concern any more.
    pub(crate) fn forget(&mut self, volume: VolumeId, blocks: Range<u64>, medium: Range<u64>) {
        let gone: Vec<u64> = self.pages.range(medium).map(|(&at, _)| at).collect();
        for at in gone {
            self.cleaned(at);
            self.pages.remove(&at);
        }
        self.resolve(volume, blocks);
    }

    /// No block of a namespace is of concern any more.
    pub(crate) fn forget_all(&mut self, volume: VolumeId) {
        let dirty = &mut self.dirty;
        self.pages.retain(|_, page| {
            let stays = page.owner.volume != volume;
            *dirty -= usize::from(page.dirty && !stays);
            stays
        });
        self.resolve(volume, 0..u64::MAX);
    }

    /// The tags of these blocks are those on their pages.
    pub(crate) fn resolve(&mut self, volume: VolumeId, blocks: Range<u64>) {
        if self.is_recovered() || blocks.is_empty() {
            return;
        }
        let range = || (volume, blocks.start)..(volume, blocks.end);
        let known = self.pending.range(range()).map(|(&key, _)| key);
        let known: Vec<(VolumeId, u64)> = known.chain(self.reverted.range(range()).map(|(&key, _)| key)).collect();
        for key in known {
            self.pending.remove(&key);
            self.reverted.remove(&key);
        }
    }

    /// Whether every block has the newest of its tags in the journal, or the one on its page where
    /// there are none.
    pub(crate) fn is_recovered(&self) -> bool {
        self.pending.is_empty() && self.reverted.is_empty()
    }

    /// A block has this tag, or one that it could have before, unless those are ruled out.
    pub(crate) fn add_candidate(&mut self, volume: VolumeId, block: u64, tag: Tag, only: bool) {
        let candidates = self.pending.entry((volume, block)).or_default();
        if only {
            candidates.tags.clear();
            candidates.only = true;
        }
        if candidates.tags.last() != Some(&tag) {
            candidates.tags.push(tag);
        }
    }

    /// The tags that a block may have; `None` if it has the one on its page.
    pub(crate) fn candidates(&self, volume: VolumeId, block: u64) -> Option<&Candidates> {
        if self.pending.is_empty() {
            return None;
        }
        self.pending.get(&(volume, block))
    }

    /// Tags of blocks that may have several.
    pub(crate) fn pending(&self) -> usize {
        self.pending.values().map(|candidates| candidates.tags.len()).sum()
    }

    /// Up to `count` blocks, from one on, that may have several tags.
    pub(crate) fn unrecovered(&self, from: (VolumeId, u64), count: usize) -> Vec<(VolumeId, u64)> {
        self.pending.range(from..).map(|(&key, _)| key).take(count).collect()
    }

    /// What a checkpoint has to say of blocks that may have several tags, and of pages that could
    /// not be written.
    pub(crate) fn records(&self, unwritten: &[u64]) -> Vec<Record> {
        let pages = unwritten.iter().filter_map(|at| self.pages.get(at)).map(|page| {
            let count = usize::try_from(page.owner.blocks.end - page.owner.blocks.start).unwrap_or_default();
            let tags = page.bytes.as_slice()[16..].chunks_exact(16).take(count);
            let tags = tags.map(|bytes| Tag(std::array::from_fn(|at| bytes[at]))).collect();
            // What is on the medium in its place is of an earlier time.
            Record::OnlyTags { volume: page.owner.volume, first: page.owner.blocks.start, tags }
        });
        let blocks = self.pending.iter().flat_map(|(&(volume, first), candidates)| {
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
        Owner { volume: VolumeId(at), blocks: 0..255, place: (0, 0) }
    }

    #[test]
    fn pages_that_were_not_needed_go_first_and_those_to_be_written_stay() {
        let mut tags = Memory::new(1);
        for at in 0..1024 {
            tags.next_turn();
            tags.insert(at, owner(at), Buffer::zeroed(BYTES));
        }
        assert!(tags.put(3, 16..32, Tag::LOST) && !tags.put(2000, 16..32, Tag::LOST));
        tags.next_turn();
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
    fn the_tags_that_a_block_may_have_are_kept_in_order() {
        let mut tags = Memory::new(0);
        for version in 0..40 {
            tags.add_candidate(VolumeId(1), 7, Tag([version / 2; 16]), false);
        }
        let expected: Vec<Tag> = (0..20).map(|version| Tag([version; 16])).collect();
        let candidates = Candidates { tags: expected, only: false };
        assert_eq!((tags.candidates(VolumeId(1), 7), tags.pending()), (Some(&candidates), 20));
        tags.add_candidate(VolumeId(1), 8, Tag::LOST, false);
        tags.add_candidate(VolumeId(2), 7, Tag::UNWRITTEN, false);
        // A flush rules out what came before.
        tags.add_candidate(VolumeId(2), 7, Tag::LOST, true);
        tags.add_candidate(VolumeId(2), 7, Tag([3; 16]), false);
        tags.revert(VolumeId(1), 7, Tag::LOST);
        tags.resolve(VolumeId(1), 7..8);
        assert_eq!(tags.unrecovered((VolumeId(0), 0), 9), [(VolumeId(1), 8), (VolumeId(2), 7)]);
        tags.forget_all(VolumeId(1));
        let (volume, first) = (VolumeId(2), 7);
        let expected = [
            Record::OnlyTags { volume, first, tags: vec![Tag::LOST] },
            Record::Tags { volume, first, tags: vec![Tag([3; 16])] },
        ];
        assert_eq!((&tags.records(&[])[..], tags.is_recovered()), (&expected[..], false));
        tags.forget_all(VolumeId(2));
        assert!(tags.is_recovered());
    }
}
