//! The map of a namespace: which extent of the medium holds which part of it. Read without a lock
//! by whoever reads and writes the namespace; written by one thread. A count for each group of
//! extents lets whoever looks for those that have places, or have none, skip the groups where there
//! are none.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use zerocopy::FromZeros;

/// The extents of one namespace, by their position in it. Takes 4 bytes for each extent of the
/// namespace's size; pages of the table that were never written take none.
#[derive(Debug)]
pub struct ExtentMap {
    /// Number of the extent and one; 0 for none.
    places: Box<[AtomicU32]>,
    /// Extents with places of each group.
    placed: Box<[AtomicU32]>,
}

/// Extents of a group: 4 KiB of the table.
const GROUP: u32 = 1024;

/// What is known of neighbouring extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// They have no places, and read as zeros.
    Empty,
    /// They lie one behind the other, from this extent of the medium on.
    Together(u32),
    /// Some have places and some do not, or they lie apart.
    Mixed,
}

impl ExtentMap {
    /// For `extents` extents without places; `None` where there is no memory for that.
    #[must_use]
    pub fn new(extents: u32) -> Option<Self> {
        let table = |len: u32| <[AtomicU32]>::new_box_zeroed_with_elems(usize::try_from(len).ok()?).ok();
        Some(Self { places: table(extents)?, placed: table(extents.div_ceil(GROUP))? })
    }

    /// Extents of the namespace.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Whether the namespace has no size.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Where extent `index` is; `None` if it has no place, or is none of the namespace.
    #[must_use]
    pub fn place(&self, index: u32) -> Option<u32> {
        // What was written to the medium for it happened before it was given its place.
        self.places.get(index as usize)?.load(Ordering::Acquire).checked_sub(1)
    }

    /// Where `count` extents from `first` on are.
    #[must_use]
    pub fn run(&self, first: u32, count: u32) -> Run {
        let start = self.place(first);
        let follows = |at: u32| self.place(first.saturating_add(at)) == start.map(|start| start + at);
        match start {
            _ if !(1..count).all(follows) => Run::Mixed,
            Some(start) => Run::Together(start),
            None => Run::Empty,
        }
    }

    /// Gives extent `index` a place, or takes it; gives what it had.
    pub fn set(&self, index: u32, place: Option<u32>) -> Option<u32> {
        let slot = self.places.get(index as usize)?;
        let before = slot.swap(place.map_or(0, |place| place + 1), Ordering::AcqRel).checked_sub(1);
        // One thread writes: others may see the count a moment late, and then skip what was not
        // there when they began.
        let group = &self.placed[(index / GROUP) as usize];
        match (before, place) {
            (None, Some(_)) => _ = group.fetch_add(1, Ordering::AcqRel),
            (Some(_), None) => _ = group.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
        before
    }

    /// The first extent from `from` on, and below `end`, that has a place, or none if `placed` is
    /// false; `end` where there is no such.
    #[must_use]
    pub fn next(&self, from: u32, end: u32, placed: bool) -> u32 {
        let mut steps = u32::MAX;
        self.seek(from, end, placed, &mut steps)
    }

    /// The same in at most `steps`, which are counted down: where it has come to when there are
    /// none left. A step looks at an extent, or at a group of which all or none have places.
    #[must_use]
    pub fn seek(&self, from: u32, end: u32, placed: bool, steps: &mut u32) -> u32 {
        let end = end.min(self.len());
        let mut at = from;
        while at < end && *steps > 0 {
            *steps -= 1;
            let begin = at / GROUP * GROUP;
            let behind = begin.saturating_add(GROUP).min(self.len());
            let count = self.placed[(at / GROUP) as usize].load(Ordering::Acquire);
            let unwanted = if placed { count == 0 } else { count == behind - begin };
            if unwanted {
                at = behind;
            } else if self.place(at).is_some() == placed {
                return at;
            } else {
                at += 1;
            }
        }
        at.min(end)
    }

    /// The places that there are: first extent of the namespace, and places of it and those behind
    /// it.
    pub fn runs(&self) -> impl Iterator<Item = (u32, Vec<u32>)> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            at = self.next(at, self.len(), true);
            let first = at;
            let mut places = Vec::new();
            while let Some(place) = self.place(at) {
                places.push(place);
                at += 1;
            }
            (!places.is_empty()).then_some((first, places))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn what_is_looked_for_is_found_by_groups() {
        let extents = 5 * GROUP + 7;
        let map = ExtentMap::new(extents).unwrap();
        let places = [3, GROUP - 1, GROUP, 3 * GROUP + 5, extents - 1];
        places.iter().for_each(|&index| _ = map.set(index, Some(index)));
        // A group that is full, and the last one, which is short.
        (2 * GROUP..3 * GROUP).for_each(|index| _ = map.set(index, Some(index)));
        (5 * GROUP..extents).for_each(|index| _ = map.set(index, Some(index)));
        for placed in [true, false] {
            for from in (0..extents).filter(|index| index % 97 == 0 || places.contains(index)) {
                for end in [from, from + 1, GROUP * 3, extents, u32::MAX].into_iter().filter(|&end| end >= from) {
                    let expected = (from..end.min(extents)).find(|&index| map.place(index).is_some() == placed);
                    let found = map.next(from, end, placed);
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
    fn runs_are_what_lies_together() {
        let map = ExtentMap::new(10).unwrap();
        assert_eq!((map.len(), map.run(0, 10), map.place(10)), (10, Run::Empty, None));
        for (index, place) in [(2, 7), (3, 8), (4, 9), (6, 1)] {
            assert_eq!(map.set(index, Some(place)), None);
        }
        assert_eq!(
            (map.run(2, 3), map.run(2, 1), map.run(3, 2)),
            (Run::Together(7), Run::Together(7), Run::Together(8))
        );
        assert_eq!(
            (map.run(2, 4), map.run(1, 2), map.run(4, 3), map.run(0, 2)),
            (Run::Mixed, Run::Mixed, Run::Mixed, Run::Empty)
        );
        assert_eq!(map.runs().collect::<Vec<_>>(), [(2, vec![7, 8, 9]), (6, vec![1])]);
        assert_eq!((map.set(3, None), map.place(3), map.set(99, Some(1))), (Some(8), None, None));
        assert_eq!(map.run(9, 5), Run::Empty);
    }
}
