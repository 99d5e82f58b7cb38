//! The blocks that may have one of several tags, or any data. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ebof_drive::frame::Record;
use ebof_drive::tag::Tag;

use crate::VolumeId;
use crate::pages::Mask;

/// What is known of blocks beside the tags on their pages.
#[derive(Default)]
pub(crate) struct Memory {
    /// Offsets of pages of new extents, which have their headers on the medium and nothing else.
    blank: BTreeSet<u64>,
    /// Unresolved blocks: tags that they may have instead of the one on their page.
    unresolved: BTreeMap<(VolumeId, u64), Candidates>,
    /// Blocks that were in flux when the drive ended, by the first block of their page: they may
    /// have been written without a record of their tag.
    ambiguous: BTreeMap<(VolumeId, u64), Mask>,
    /// Blocks that turned out to have another tag than their newest one in the journal. The journal
    /// needs a record of it: otherwise, once a flush rules out older tags, such a block would be
    /// taken for damaged after a power loss.
    reverted: BTreeMap<(VolumeId, u64), Tag>,
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

impl Memory {
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

    /// Drops everything about a namespace.
    pub(crate) fn forget_namespace(&mut self, volume: VolumeId) {
        self.resolve(volume, 0..u64::MAX);
        self.end_flux(volume);
    }

    /// These blocks have the tags on their pages.
    pub(crate) fn resolve(&mut self, volume: VolumeId, blocks: Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        self.resolve_ambiguous(volume, &blocks);
        if self.is_recovered() {
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

    fn resolve_ambiguous(&mut self, volume: VolumeId, blocks: &Range<u64>) {
        if self.ambiguous.is_empty() {
            return;
        }
        let from = blocks.start.saturating_sub(MASK_BLOCKS - 1);
        for (&(_, first), mask) in self.ambiguous.range_mut((volume, from)..(volume, blocks.end)) {
            let place = |block: u64| usize::try_from(block.saturating_sub(first).min(MASK_BLOCKS)).unwrap_or_default();
            *mask = mask.without(Mask::from_places(place(blocks.start)..place(blocks.end)));
        }
        self.ambiguous.retain(|_, mask| !mask.is_empty());
    }

    /// The journal says that these blocks, whose page begins with block `first`, are in flux.
    pub(crate) fn add_ambiguous(&mut self, volume: VolumeId, first: u64, mask: Mask) {
        let known = self.ambiguous.entry((volume, first)).or_default();
        *known = known.with(mask);
    }

    /// The journal says that no block of a namespace is in flux any more.
    pub(crate) fn end_flux(&mut self, volume: VolumeId) {
        self.ambiguous.retain(|&(other, _), _| other != volume);
    }

    /// Whether a block may have been written without a record of its tag.
    pub(crate) fn is_ambiguous(&self, volume: VolumeId, block: u64) -> bool {
        let from = block.saturating_sub(MASK_BLOCKS - 1);
        let mut pages = self.ambiguous.range((volume, from)..=(volume, block));
        !self.ambiguous.is_empty()
            && pages.any(|(&(_, first), mask)| mask.has(usize::try_from(block - first).unwrap_or(usize::MAX)))
    }

    /// Such blocks, by the first block of their page.
    pub(crate) fn ambiguous(&self) -> impl Iterator<Item = ((VolumeId, u64), Mask)> {
        self.ambiguous.iter().map(|(&page, &mask)| (page, mask))
    }

    /// The same of one namespace.
    pub(crate) fn ambiguous_of(&self, volume: VolumeId) -> impl Iterator<Item = (u64, Mask)> {
        self.ambiguous.range((volume, 0)..=(volume, u64::MAX)).map(|(&(_, first), &mask)| (first, mask))
    }

    /// Whether nothing is to be found out about these blocks.
    pub(crate) fn is_known(&self, volume: VolumeId, blocks: &Range<u64>) -> bool {
        let range = || (volume, blocks.start)..(volume, blocks.end);
        let any_ambiguous = || {
            let from = blocks.start.saturating_sub(MASK_BLOCKS - 1);
            let mut pages = self.ambiguous.range((volume, from)..(volume, blocks.end));
            pages.any(|(&(_, first), mask)| mask.places().any(|place| blocks.contains(&(first + place as u64))))
        };
        self.unresolved.range(range()).next().is_none()
            && self.reverted.range(range()).next().is_none()
            && !any_ambiguous()
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
        let count = candidates.tags.len();
        assert!(candidates.failed <= count, "each failed write that is counted has added its tag");
        if candidates.failed > 1 {
            let newest = count - 1;
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

    /// Up to `count` blocks of which something is to be found out, from one on.
    pub(crate) fn some_unknown(&self, from: (VolumeId, u64), count: usize) -> Vec<(VolumeId, u64)> {
        let unresolved = self.unresolved.range(from..).map(|(&key, _)| key).take(count);
        let pages = self.ambiguous.range((from.0, from.1.saturating_sub(MASK_BLOCKS - 1))..);
        let blocks =
            pages.flat_map(|(&(volume, first), mask)| mask.places().map(move |place| (volume, first + place as u64)));
        let mut some: Vec<(VolumeId, u64)> =
            unresolved.chain(blocks.filter(|&block| block >= from).take(count)).collect();
        some.sort_unstable();
        some.dedup();
        some.truncate(count);
        some
    }

    /// Up to `count` unresolved blocks, from one on.
    pub(crate) fn some_unresolved(&self, from: (VolumeId, u64), count: usize) -> Vec<(VolumeId, u64)> {
        self.unresolved.range(from..).map(|(&key, _)| key).take(count).collect()
    }

    /// The records of unresolved blocks for a checkpoint.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        self.unresolved.iter().flat_map(|(&(volume, first), candidates)| {
            let record = move |(at, &tag): (usize, &Tag)| match (at, candidates.only) {
                (0, true) => Record::OnlyTags { volume, first, tags: vec![tag] },
                _ => Record::Tags { volume, first, tags: vec![tag] },
            };
            candidates.tags.iter().enumerate().map(record)
        })
    }
}

/// Blocks of a mask.
const MASK_BLOCKS: u64 = 64 * ebof_drive::frame::PAGE_MASK_WORDS as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_possible_tags_of_a_block_are_kept_in_order() {
        let mut tags = Memory::default();
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
        assert_eq!((tags.records().collect::<Vec<_>>(), tags.is_recovered()), (expected.to_vec(), false));
        tags.forget_namespace(VolumeId(2));
        assert!(tags.is_recovered());
    }

    #[test]
    fn of_writes_that_fail_again_and_again_only_the_last_tag_is_kept() {
        let mut tags = Memory::default();
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
