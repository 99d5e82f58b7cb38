//! Sets of blocks of one page of tags.

use std::ops::Range;

use ebof_drive::frame::PAGE_MASK_WORDS;

/// Blocks of a page of tags, by their place in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mask(pub(crate) [u64; PAGE_MASK_WORDS]);

impl Mask {
    /// The blocks at these places.
    pub(crate) fn from_places(places: Range<usize>) -> Self {
        let below = |end: usize| {
            let word = |at: usize| match end.saturating_sub(64 * at) {
                bits @ 0..64 => (1 << bits) - 1,
                _ => u64::MAX,
            };
            std::array::from_fn::<u64, PAGE_MASK_WORDS, _>(word)
        };
        let (from, to) = (below(places.start), below(places.end));
        Self(std::array::from_fn(|at| to[at] & !from[at]))
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    pub(crate) fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn has(self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    pub(crate) fn has_all(self, other: Self) -> bool {
        other.without(self).is_empty()
    }

    pub(crate) fn touches(self, other: Self) -> bool {
        !self.both(other).is_empty()
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    pub(crate) fn both(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & other.0[at]))
    }

    /// The places, in order.
    pub(crate) fn places(self) -> impl Iterator<Item = usize> {
        (0..64 * PAGE_MASK_WORDS).filter(move |&place| self.has(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_mask_is_a_set_of_places(ranges in proptest::collection::vec((0..=256_usize, 0..=256_usize), 1..6)) {
            let (mut mask, mut set) = (Mask::default(), BTreeSet::new());
            for (at, &(from, to)) in ranges.iter().enumerate() {
                let range = from.min(to)..to.max(from);
                let part = Mask::from_places(range.clone());
                prop_assert_eq!(part.count(), range.len());
                if at % 3 == 2 {
                    mask = mask.without(part);
                    set.retain(|place| !range.contains(place));
                } else {
                    mask = mask.with(part);
                    set.extend(range.clone());
                }
                prop_assert_eq!(mask.touches(part), range.clone().any(|place| set.contains(&place)));
                prop_assert_eq!(mask.has_all(part), range.clone().all(|place| set.contains(&place)));
                prop_assert_eq!(mask.both(part).count(), range.filter(|place| set.contains(place)).count());
            }
            prop_assert_eq!(mask.places().collect::<BTreeSet<_>>(), set);
            prop_assert_eq!(mask.is_empty(), mask.count() == 0);
        }
    }
}
