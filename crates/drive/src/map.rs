//! The map of a namespace: which extent of the medium holds which part of it. Read without a lock by whoever reads and
//! writes the namespace; written by one thread.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use zerocopy::FromZeros;

/// See the module's description. Takes 4 bytes for each extent of the namespace's size; pages of the table that were never
/// written take none.
#[derive(Debug)]
pub struct ExtentMap {
    /// Number of the extent and one; 0 for none.
    places: Box<[AtomicU32]>,
}

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
        let places = <[AtomicU32]>::new_box_zeroed_with_elems(usize::try_from(extents).ok()?).ok()?;
        Some(Self { places })
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
        slot.swap(place.map_or(0, |place| place + 1), Ordering::AcqRel).checked_sub(1)
    }

    /// The places that there are: first extent of the namespace, and places of it and those behind it.
    pub fn runs(&self) -> impl Iterator<Item = (u32, Vec<u32>)> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            while at < self.len() && self.place(at).is_none() {
                at += 1;
            }
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
