//! A repeatable source of numbers: SplitMix64. Every part of a simulation has a stream of its own,
//! so that one that asks more often does not change what the others get.

/// A repeatable source of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream that `seed` begins.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for `part`; the same for the same seed and part.
    #[must_use]
    pub fn for_part(seed: u64, part: u64) -> Self {
        let mut random = Self(seed ^ part.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self(random.number())
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// The next number below `bound`; zero when `bound` is.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias is below 2^-32 for every bound that is used here.
        self.number().checked_rem(bound).unwrap_or_default()
    }

    /// An index into something of `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or_default()
    }

    /// `true` in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several; the weight of each is its first part.
    ///
    /// # Panics
    /// There is nothing to choose from.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> T {
        let mut at = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for &(weight, choice) in choices {
            match at.checked_sub(weight) {
                Some(rest) => at = rest,
                None => return choice,
            }
        }
        choices.last().expect("callers have something to choose from").1
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let number = self.number().to_le_bytes();
            part.copy_from_slice(&number[..part.len()]);
        }
    }
}

/// The output function of SplitMix64: a number that looks random, the same for the same input.
#[must_use]
pub fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_stream_and_parts_have_different_ones() {
        let take = |mut random: Random| -> Vec<u64> { (0..8).map(|_| random.number()).collect() };
        assert_eq!(take(Random::new(7)), take(Random::new(7)));
        assert_ne!(take(Random::for_part(7, 1)), take(Random::for_part(7, 2)));
        // The reference implementation's first output for this seed.
        assert_eq!(Random::new(1_234_567).number(), 6_457_827_717_110_365_317);
    }

    #[test]
    fn bounds_hold_and_weights_count() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(3) < 3 && random.index(1) == 0 && random.below(0) == 0));
        let heads = (0..1000).filter(|_| random.weighted(&[(9, true), (1, false)])).count();
        assert!((850..950).contains(&heads), "{heads}");
    }
}
