//! A small repeatable stream of numbers for tests that need variety, not statistics (xorshift64*).

/// A repeatable source of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream that `seed` begins.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The next number below `bound`; zero when `bound` is.
    pub fn below(&mut self, bound: usize) -> usize {
        match u64::try_from(bound) {
            Ok(0) | Err(_) => 0,
            Ok(bound) => usize::try_from((self.number() >> 11) % bound).unwrap_or(0),
        }
    }

    /// `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.number().to_le_bytes()[7]).collect()
    }
}
