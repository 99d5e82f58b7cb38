//! Which extents of the medium are free, and which of those may hold old bytes.
//!
//! Extents from the high-water mark on were never used; on a medium that was all zeros they still
//! are. The mark is on the medium before an extent beyond it is used, so that after a sudden end
//! everything below it is known to be suspect.

use alloc::vec;
use alloc::vec::Vec;

/// The free extents of a medium. Takes two bits for each extent.
#[derive(Clone, Debug)]
pub struct Allocator {
    used: Bits,
    /// Free extents that may hold old bytes.
    dirty: Bits,
    extents: u32,
    free: u32,
    clean: u32,
    high_water: u32,
    /// Where the search for a free extent goes on.
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

    /// Free extents.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Free extents that read as zeros.
    #[must_use]
    pub fn clean(&self) -> u32 {
        self.clean
    }

    /// From this extent on none was ever used.
    #[must_use]
    pub fn high_water(&self) -> u32 {
        self.high_water
    }

    /// The mark is on the medium now.
    pub fn raise(&mut self, high_water: u32) {
        self.high_water = self.high_water.max(high_water.min(self.extents));
    }

    /// Takes an extent that was found in use; `false` if it is none, or is in use already.
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
        true
    }

    /// Takes an extent that reads as zeros and lies below the high-water mark.
    pub fn take(&mut self) -> Option<u32> {
        if self.clean == 0 {
            return None;
        }
        let found =
            self.find(self.cursor, self.high_water).or_else(|| self.find(0, self.cursor.min(self.high_water)))?;
        self.claim(found);
        self.cursor = found + 1;
        Some(found)
    }

    /// Gives an extent back, with its old bytes.
    pub fn give_back(&mut self, extent: u32) {
        if extent < self.extents && self.used.get(extent) {
            self.used.set(extent, false);
            self.free += 1;
            self.clean += 1;
            self.mark_dirty(extent);
        }
    }

    /// Gives back an extent that nothing was written to.
    pub fn give_back_clean(&mut self, extent: u32) {
        self.give_back(extent);
        self.mark_clean(extent);
    }

    /// Whether any free extent may hold old bytes.
    #[must_use]
    pub fn has_dirty(&self) -> bool {
        self.clean < self.free
    }

    /// Up to `count` free extents that may hold old bytes, in order.
    pub fn dirty(&self, count: usize) -> Vec<u32> {
        let words = self.dirty.0.iter().enumerate().filter(|(_, word)| **word != 0);
        let extents = words.flat_map(|(at, word)| {
            let base = u32::try_from(at * 64).unwrap_or(u32::MAX);
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| base + bit)
        });
        extents.take(count).collect()
    }

    /// It reads as zeros now.
    pub fn mark_clean(&mut self, extent: u32) {
        if self.dirty.get(extent) {
            self.dirty.set(extent, false);
            self.clean += 1;
        }
    }

    fn mark_dirty(&mut self, extent: u32) {
        if !self.dirty.get(extent) {
            self.dirty.set(extent, true);
            self.clean -= 1;
        }
    }

    /// The first free and clean extent of a range.
    fn find(&self, from: u32, to: u32) -> Option<u32> {
        let mut at = from;
        while at < to {
            let word = at as usize / 64;
            let taken = self.used.0.get(word)? | self.dirty.0.get(word)?;
            let free = !taken & (u64::MAX << (at % 64));
            if free != 0 {
                let found = u32::try_from(word * 64).ok()? + free.trailing_zeros();
                return (found < to).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

impl Bits {
    fn get(&self, at: u32) -> bool {
        self.0.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    fn set(&mut self, at: u32, on: bool) {
        if let Some(word) = self.0.get_mut(at as usize / 64) {
            *word = *word & !(1 << (at % 64)) | u64::from(on) << (at % 64);
        }
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
        assert_eq!((allocator.take(), allocator.free(), allocator.clean()), (None, 100, 100));
        allocator.raise(70);
        assert_eq!((0..70).map(|_| allocator.take().unwrap()).collect::<Vec<_>>(), (0..70).collect::<Vec<_>>());
        assert_eq!(allocator.take(), None);
        allocator.give_back(3);
        assert_eq!((allocator.take(), allocator.dirty(9)), (None, vec![3]));
        allocator.mark_clean(3);
        assert_eq!((allocator.take(), allocator.free()), (Some(3), 30));
        allocator.raise(1000);
        assert_eq!((allocator.high_water(), allocator.take()), (100, Some(70)));
    }

    proptest! {
        #[test]
        fn counts_are_right_whatever_happens(
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
                    0 => if let Some(taken) = allocator.take() {
                        prop_assert!(used.insert(taken) && !dirty.contains_key(&taken) && taken < extents);
                    } else {
                        prop_assert!((0..extents).all(|extent| used.contains(&extent) || dirty.contains_key(&extent)));
                    },
                    1 => {
                        prop_assert_eq!(allocator.claim(extent), extent < extents && used.insert(extent) );
                        dirty.remove(&extent);
                        used.retain(|extent| *extent < extents);
                    }
                    2 => if used.remove(&extent) { allocator.give_back(extent); dirty.insert(extent, ()); },
                    3 => if used.remove(&extent) { allocator.give_back_clean(extent); },
                    _ => { allocator.mark_clean(extent); dirty.remove(&extent); }
                }
                prop_assert_eq!(allocator.free() as usize, extents as usize - used.len());
                prop_assert_eq!(allocator.clean() as usize, extents as usize - used.len() - dirty.len());
                prop_assert_eq!(allocator.dirty(1000), dirty.keys().copied().collect::<Vec<_>>());
            }
        }
    }
}
