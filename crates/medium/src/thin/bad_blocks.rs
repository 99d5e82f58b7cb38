//! Blocks that a host has marked as unreadable (Write Uncorrectable).

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of blocks, as ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BadBlocks {
    /// End by beginning.
    ranges: BTreeMap<u64, u64>,
}

impl BadBlocks {
    /// Ranges of all namespaces of a medium at most.
    pub(crate) const MAX: usize = 65536;

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether it has any block of `range`.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        self.ranges.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }

    /// The ranges that have blocks of `blocks`.
    pub(crate) fn touching(&self, blocks: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.range(..=blocks.start).next_back().filter(|(_, end)| **end > blocks.start);
        let start = first.map_or(blocks.start, |(start, _)| *start);
        // A range that begins where it ends has none.
        let ranges = (start < blocks.end).then(|| self.ranges.range(start..blocks.end));
        ranges.into_iter().flatten().map(|(&start, &end)| start..end)
    }

    pub(crate) fn add(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.ranges.range(..=range.end).next_back()
            && end >= range.start
        {
            self.ranges.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        self.ranges.insert(range.start, range.end);
    }

    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.ranges.range(..range.end).next_back()
            && end > range.start
        {
            self.ranges.remove(&start);
            if end > range.end {
                self.ranges.insert(range.end, end);
            }
            if start < range.start {
                self.ranges.insert(start, range.start);
                break;
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_are_those_added_and_not_removed(acts in proptest::collection::vec((any::<bool>(), 0..64_u64, 0..12_u64), 0..60)) {
            let (mut bad, mut model) = (BadBlocks::default(), BTreeSet::new());
            for (add, start, len) in acts {
                let range = start..start + len;
                if add {
                    bad.add(range.clone());
                    model.extend(range.clone());
                } else {
                    bad.remove(&range);
                    model.retain(|block| !range.contains(block));
                }
                let blocks: BTreeSet<u64> = bad.iter().flatten().collect();
                prop_assert_eq!(&blocks, &model);
                let ranges: Vec<_> = bad.iter().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
                for at in 0..70 {
                    let touching: Vec<_> = bad.touching(&(at..at + 3)).collect();
                    let expected: Vec<_> =
                        bad.iter().filter(|range| range.start < at + 3 && range.end > at).collect();
                    prop_assert_eq!(touching, expected);
                    prop_assert_eq!(bad.touches(&(at..at + 3)), (at..at + 3).any(|block| model.contains(&block)));
                }
            }
        }
    }
}
