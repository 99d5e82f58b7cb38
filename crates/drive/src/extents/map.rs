//! The extent map of a namespace: which extent of the medium holds which part of it. Many threads
//! read it without a lock, one thread writes it. A count for each group of extents lets a search
//! for mapped or unmapped ones skip whole groups.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use zerocopy::FromZeros;

/// The extents of one namespace, by their index in it. Takes 4 bytes for each extent of the
/// namespace's size; pages of the table that were never written take none.
#[derive(Debug)]
pub struct ExtentMap {
    /// Number of the extent of the medium, plus one; 0 if unmapped.
    extents: Box<[AtomicU32]>,
    /// Mapped extents of each group.
    mapped: Box<[AtomicU32]>,
}

/// Extents of a group: 4 KiB of the table.
const GROUP: u32 = 1024;

/// Where a range of extents of a namespace is on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// None is mapped: they read as zeros.
    Unmapped,
    /// All are mapped, one behind the other, from this extent of the medium on.
    Contiguous(u32),
    /// Some are mapped and some are not, or they lie apart.
    Fragmented,
}

impl ExtentMap {
    /// A map of `extents` extents, none of them mapped; `None` if there is no memory for the table.
    #[must_use]
    pub fn new(extents: u32) -> Option<Self> {
        let table = |len: u32| <[AtomicU32]>::new_box_zeroed_with_elems(usize::try_from(len).ok()?).ok();
        Some(Self { extents: table(extents)?, mapped: table(extents.div_ceil(GROUP))? })
    }

    /// Extents of the namespace.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.extents.len()).expect("the table was made for a `u32`")
    }

    /// Whether the namespace has no size.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// The extent of the medium that holds extent `index`; `None` if it is unmapped, or beyond the
    /// end of the namespace.
    #[must_use]
    pub fn lookup(&self, index: u32) -> Option<u32> {
        // Pairs with `set`: what was written to the extent before it was mapped is seen.
        self.extents.get(index as usize)?.load(Ordering::Acquire).checked_sub(1)
    }

    /// Where `count` extents from `first` on are.
    #[must_use]
    pub fn translate(&self, first: u32, count: u32) -> Mapping {
        let start = self.lookup(first);
        let follows = |at: u32| self.lookup(first.saturating_add(at)) == start.map(|start| start + at);
        match start {
            _ if !(1..count).all(follows) => Mapping::Fragmented,
            Some(start) => Mapping::Contiguous(start),
            None => Mapping::Unmapped,
        }
    }

    /// Maps extent `index`, or unmaps it. Returns what it was mapped to before.
    pub fn set(&self, index: u32, extent: Option<u32>) -> Option<u32> {
        let slot = self.extents.get(index as usize)?;
        let before = slot.swap(extent.map_or(0, |extent| extent + 1), Ordering::AcqRel).checked_sub(1);
        // Readers may see the count a moment late: they then skip an extent that was not mapped
        // when they began.
        let group = &self.mapped[(index / GROUP) as usize];
        match (before, extent) {
            (None, Some(_)) => _ = group.fetch_add(1, Ordering::AcqRel),
            (Some(_), None) => _ = group.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
        before
    }

    /// The first extent in `from..end` that is mapped, or that is not if `mapped` is false; `end`
    /// if there is none.
    #[must_use]
    pub fn next(&self, from: u32, end: u32, mapped: bool) -> u32 {
        let mut steps = u32::MAX;
        self.seek(from, end, mapped, &mut steps)
    }

    /// The same in at most `steps`, which are counted down: stops where none are left. A step looks
    /// at an extent, or at a group of which all or none are mapped.
    #[must_use]
    pub fn seek(&self, from: u32, end: u32, mapped: bool, steps: &mut u32) -> u32 {
        let end = end.min(self.len());
        let mut at = from;
        while at < end && *steps > 0 {
            *steps -= 1;
            let begin = at / GROUP * GROUP;
            let behind = begin.saturating_add(GROUP).min(self.len());
            let count = self.mapped[(at / GROUP) as usize].load(Ordering::Acquire);
            let unwanted = if mapped { count == 0 } else { count == behind - begin };
            if unwanted {
                at = behind;
            } else if self.lookup(at).is_some() == mapped {
                return at;
            } else {
                at += 1;
            }
        }
        at.min(end)
    }

    /// The mapped extents, in runs without gaps: the first index, and the extents of the medium for
    /// it and those behind it.
    pub fn runs(&self) -> impl Iterator<Item = (u32, Vec<u32>)> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            at = self.next(at, self.len(), true);
            let first = at;
            let mut extents = Vec::new();
            while let Some(extent) = self.lookup(at) {
                extents.push(extent);
                at += 1;
            }
            (!extents.is_empty()).then_some((first, extents))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_search_finds_the_next_mapped_or_unmapped_extent() {
        let extents = 5 * GROUP + 7;
        let map = ExtentMap::new(extents).unwrap();
        let indices = [3, GROUP - 1, GROUP, 3 * GROUP + 5, extents - 1];
        indices.iter().for_each(|&index| _ = map.set(index, Some(index)));
        // A group that is full, and the last one, which is short.
        (2 * GROUP..3 * GROUP).for_each(|index| _ = map.set(index, Some(index)));
        (5 * GROUP..extents).for_each(|index| _ = map.set(index, Some(index)));
        for mapped in [true, false] {
            for from in (0..extents).filter(|index| index % 97 == 0 || indices.contains(index)) {
                for end in [from, from + 1, GROUP * 3, extents, u32::MAX].into_iter().filter(|&end| end >= from) {
                    let expected = (from..end.min(extents)).find(|&index| map.lookup(index).is_some() == mapped);
                    let found = map.next(from, end, mapped);
                    assert_eq!(found, expected.unwrap_or(end.min(extents)), "{from} {end}");
                }
            }
        }
        // An empty group, and a full one, are a step each.
        let mut steps = 100;
        assert_eq!(map.seek(GROUP * 4, extents, true, &mut steps), 5 * GROUP);
        assert_eq!(steps, 98);
        assert_eq!(map.seek(2 * GROUP, extents, false, &mut steps), 3 * GROUP);
        assert_eq!(steps, 96);
        let mut few = 2;
        assert_eq!((map.seek(0, extents, true, &mut few), few), (2, 0), "it stops there");
        for index in 0..extents {
            map.set(index, None);
        }
        assert_eq!(map.next(0, extents, true), extents);
    }

    #[test]
    fn runs_are_contiguous_extents() {
        let map = ExtentMap::new(10).unwrap();
        assert_eq!((map.len(), map.translate(0, 10), map.lookup(10)), (10, Mapping::Unmapped, None));
        for (index, extent) in [(2, 7), (3, 8), (4, 9), (6, 1)] {
            assert_eq!(map.set(index, Some(extent)), None);
        }
        assert_eq!(
            (map.translate(2, 3), map.translate(2, 1), map.translate(3, 2)),
            (Mapping::Contiguous(7), Mapping::Contiguous(7), Mapping::Contiguous(8))
        );
        assert_eq!(
            (map.translate(2, 4), map.translate(1, 2), map.translate(4, 3), map.translate(0, 2)),
            (Mapping::Fragmented, Mapping::Fragmented, Mapping::Fragmented, Mapping::Unmapped)
        );
        assert_eq!(map.runs().collect::<Vec<_>>(), [(2, vec![7, 8, 9]), (6, vec![1])]);
        assert_eq!((map.set(3, None), map.lookup(3), map.set(99, Some(1))), (Some(8), None, None));
        assert_eq!(map.translate(9, 5), Mapping::Unmapped);
    }
}
