//! The allocation bitmap: which extents of the medium are free, and which of those are dirty (may
//! hold old bytes).
//!
//! Extents from the high-water mark on were never used: they are clean. The mark is durable before
//! an extent beyond it is used, so that after a crash all free extents below it are taken for
//! dirty.

use alloc::vec;
use alloc::vec::Vec;

/// The allocation state of a medium's extents. Takes two bits for each.
#[derive(Clone, Debug)]
pub struct Allocator {
    used: Bits,
    /// Free extents that may hold old bytes.
    dirty: Bits,
    extents: u32,
    /// How many are free.
    free: u32,
    /// How many are free and clean.
    clean: u32,
    high_water: u32,
    /// Where the next search for a clean extent begins.
    cursor: u32,
}

#[derive(Clone, Debug)]
struct Bits(Vec<u64>);

impl Allocator {
    /// All `extents` free; those below `high_water` may hold old bytes.
    #[must_use]
    pub fn new(extents: u32, high_water: u32) -> Self {
        let high_water = high_water.min(extents);
        let bits = || Bits(vec![0; (extents as usize).div_ceil(64)]);
        let mut new =
            Self { used: bits(), dirty: bits(), extents, free: extents, clean: extents, high_water, cursor: 0 };
        (0..high_water).for_each(|extent| new.mark_dirty(extent));
        new
    }

    /// How many extents are free.
    #[must_use]
    pub fn free_count(&self) -> u32 {
        self.free
    }

    /// How many free extents are clean: they read as zeros.
    #[must_use]
    pub fn clean_count(&self) -> u32 {
        self.clean
    }

    /// The high-water mark: from this extent on none was ever used.
    #[must_use]
    pub fn high_water(&self) -> u32 {
        self.high_water
    }

    /// Raises the high-water mark, which is durable.
    pub fn raise(&mut self, high_water: u32) {
        self.high_water = self.high_water.max(high_water.min(self.extents));
    }

    /// Allocates this extent, dirty or clean. `false` if it is allocated already, or does not
    /// exist.
    pub fn claim(&mut self, extent: u32) -> bool {
        if extent >= self.extents || self.used.get(extent) {
            return false;
        }
        self.used.set(extent, true);
        self.free -= 1;
        if self.dirty.get(extent) {
            self.dirty.set(extent, false);
        } else {
            self.clean -= 1;
        }
        self.assert_counts();
        true
    }

    /// Allocates a clean extent below the high-water mark; `None` if there is none.
    pub fn allocate(&mut self) -> Option<u32> {
        if self.clean == 0 {
            return None;
        }
        let found =
            self.find(self.cursor, self.high_water).or_else(|| self.find(0, self.cursor.min(self.high_water)))?;
        let is_claimed = self.claim(found);
        assert!(is_claimed, "extent {found} was found free in the same map");
        self.cursor = found + 1;
        Some(found)
    }

    /// Frees an extent. It is dirty. `false` if it is free already, or does not exist.
    pub fn free(&mut self, extent: u32) -> bool {
        if extent >= self.extents || !self.used.get(extent) {
            return false;
        }
        self.used.set(extent, false);
        self.free += 1;
        self.clean += 1;
        self.mark_dirty(extent);
        self.assert_counts();
        true
    }

    /// Frees an extent that nothing was written to. It is clean. `false` if it is free already, or
    /// does not exist.
    pub fn free_clean(&mut self, extent: u32) -> bool {
        self.free(extent) && self.mark_clean(extent)
    }

    /// Whether any free extent is dirty.
    #[must_use]
    pub fn has_dirty(&self) -> bool {
        self.clean < self.free
    }

    /// Up to `count` dirty extents, in order.
    pub fn dirty(&self, count: usize) -> Vec<u32> {
        let words = self.dirty.0.iter().enumerate().filter(|(_, word)| **word != 0);
        let extents = words.flat_map(|(at, word)| {
            let base = u32::try_from(at * 64).expect("extents have numbers of 32 bits");
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| base + bit)
        });
        extents.take(count).collect()
    }

    /// Marks a free extent as clean: it was zeroed. `false` if it is not free, or clean already.
    pub fn mark_clean(&mut self, extent: u32) -> bool {
        if !self.dirty.get(extent) {
            return false;
        }
        self.dirty.set(extent, false);
        self.clean += 1;
        self.assert_counts();
        true
    }

    /// How many free extents are dirty.
    #[must_use]
    pub fn dirty_count(&self) -> u32 {
        self.free - self.clean
    }

    /// The counts follow the bits: a bit changes only together with its count, so neither passes
    /// what there is, and none wraps around.
    fn assert_counts(&self) {
        assert!(self.clean <= self.free && self.free <= self.extents, "the counts of extents contradict each other");
    }

    fn mark_dirty(&mut self, extent: u32) {
        if !self.dirty.get(extent) {
            self.dirty.set(extent, true);
            self.clean -= 1;
        }
    }

    /// The first clean extent of a range.
    fn find(&self, from: u32, to: u32) -> Option<u32> {
        let mut at = from;
        while at < to {
            let word = at as usize / 64;
            let taken = self.used.0[word] | self.dirty.0[word];
            let free = !taken & (u64::MAX << (at % 64));
            if free != 0 {
                let found = at / 64 * 64 + free.trailing_zeros();
                return (found < to).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

impl Bits {
    /// `false` for extents that do not exist.
    fn get(&self, at: u32) -> bool {
        self.0.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    fn set(&mut self, at: u32, on: bool) {
        let word = self.0.get_mut(at as usize / 64).expect("only extents that `get` knows, or below the mark, change");
        *word = *word & !(1 << (at % 64)) | u64::from(on) << (at % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::{BTreeMap, BTreeSet};
    use proptest::prelude::*;

    #[test]
    fn extents_are_taken_in_order_below_the_mark_and_never_twice() {
        let mut allocator = Allocator::new(100, 0);
        assert_eq!((allocator.allocate(), allocator.free_count(), allocator.clean_count()), (None, 100, 100));
        allocator.raise(70);
        assert_eq!((0..70).map(|_| allocator.allocate().unwrap()).collect::<Vec<_>>(), (0..70).collect::<Vec<_>>());
        assert_eq!(allocator.allocate(), None);
        allocator.free(3);
        assert_eq!((allocator.allocate(), allocator.dirty(9)), (None, vec![3]));
        allocator.mark_clean(3);
        assert_eq!((allocator.allocate(), allocator.free_count()), (Some(3), 30));
        // What is free, or is none of its extents, is not freed.
        assert_eq!([3, 3, 80, 100, u32::MAX].map(|extent| allocator.free(extent)), [true, false, false, false, false]);
        assert_eq!((allocator.free_count(), allocator.clean_count(), allocator.dirty(9)), (31, 30, vec![3]));
        allocator.mark_clean(3);
        assert_eq!((allocator.allocate(), allocator.free_count()), (Some(3), 30));
        allocator.raise(1000);
        assert_eq!((allocator.high_water(), allocator.allocate()), (100, Some(70)));
    }

    proptest! {
        #[test]
        fn counts_are_consistent_after_any_sequence(
            extents in 1..300_u32,
            high_water in 0..300_u32,
            acts in proptest::collection::vec((0..5_u8, 0..310_u32), 0..300),
        ) {
            let mut allocator = Allocator::new(extents, high_water);
            let mut used = BTreeSet::new();
            let mut dirty: BTreeMap<u32, ()> = (0..high_water.min(extents)).map(|extent| (extent, ())).collect();
            allocator.raise(extents);
            for (act, extent) in acts {
                match act {
                    0 => if let Some(taken) = allocator.allocate() {
                        prop_assert!(used.insert(taken) && !dirty.contains_key(&taken) && taken < extents);
                    } else {
                        prop_assert!((0..extents).all(|extent| used.contains(&extent) || dirty.contains_key(&extent)));
                    },
                    1 => {
                        prop_assert_eq!(allocator.claim(extent), extent < extents && used.insert(extent) );
                        dirty.remove(&extent);
                        used.retain(|extent| *extent < extents);
                    }
                    2 => if used.remove(&extent) { prop_assert!(allocator.free(extent)); dirty.insert(extent, ()); },
                    3 => if used.remove(&extent) { prop_assert!(allocator.free_clean(extent)); },
                    _ => prop_assert_eq!(allocator.mark_clean(extent), dirty.remove(&extent).is_some()),
                }
                prop_assert_eq!(allocator.free_count() as usize, extents as usize - used.len());
                prop_assert_eq!(allocator.clean_count() as usize, extents as usize - used.len() - dirty.len());
                prop_assert_eq!(allocator.dirty(1000), dirty.keys().copied().collect::<Vec<_>>());
            }
        }
    }
}
