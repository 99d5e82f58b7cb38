//! Latency buckets: fine enough that a percentile is within 6 % of the truth, and found without a
//! search.
//!
//! Up to 16 µs each microsecond has a bucket; from there each octave has eight of equal width, up
//! to 16.8 s. One more holds what is slower.

/// Bits of a value that tell buckets of an octave apart.
const FINE_BITS: u32 = 3;

/// Values below this have a bucket each.
const EXACT: u64 = 1 << (FINE_BITS + 1);

/// Values from here on share the last bucket, microseconds.
const SLOW_US: u64 = 1 << 24;

/// Buckets in all.
pub const BUCKETS: usize = bucket(SLOW_US) + 1;

/// The bucket of a latency.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "at most 176")]
pub const fn bucket(us: u64) -> usize {
    // The leading one and the bits behind it are the bucket; `| EXACT` makes small values have the
    // same number of them, and `SLOW_US` is the largest.
    let us = if us < SLOW_US { us } else { SLOW_US };
    let octave = (us | (EXACT >> 1)).ilog2() - FINE_BITS;
    ((octave as u64) * (1 << FINE_BITS) + (us >> octave)) as usize
}

/// The largest latency of a bucket, microseconds; `None` for the last one.
#[must_use]
pub const fn largest_us(bucket: usize) -> Option<u64> {
    if bucket + 1 >= BUCKETS { None } else { Some(smallest_us(bucket + 1) - 1) }
}

/// The smallest latency of a bucket, microseconds.
#[must_use]
pub const fn smallest_us(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let octave = (bucket >> FINE_BITS) - 1;
    (bucket - (octave << FINE_BITS)) << octave
}

/// How many commands took how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies(pub [u64; BUCKETS]);

impl Default for Latencies {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Latencies {
    /// Commands in all buckets.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(&other.0) {
            *sum += count;
        }
    }

    /// Commands that took less than `us`: exact where a bucket begins there, as at each power of
    /// two.
    #[must_use]
    pub fn below(&self, us: u64) -> u64 {
        self.0[..bucket(us)].iter().sum()
    }

    /// The bucket of the command that `part` of them (0 to 1) are not slower than; `None` without
    /// commands.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a count"
    )]
    pub fn bucket_of(&self, part: f64) -> Option<usize> {
        let count = self.count();
        let rank = ((part * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        self.0.iter().position(|commands| {
            seen += commands;
            seen >= rank
        })
    }

    /// The latency that `part` of the commands (0 to 1) do not exceed, microseconds: within 6 % up
    /// to 16.8 s. `None` without commands.
    #[must_use]
    pub fn percentile_us(&self, part: f64) -> Option<u64> {
        self.bucket_of(part).map(middle_us)
    }
}

/// The latency that stands for a bucket: the one that is wrong by the same part at both ends.
#[must_use]
pub const fn middle_us(bucket: usize) -> u64 {
    let low = smallest_us(bucket);
    match largest_us(bucket) {
        Some(high) if high > low => (2 * low * high + (low + high) / 2) / (low + high),
        _ => low,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_no_gaps_and_are_narrow() {
        assert_eq!(BUCKETS, 177);
        for at in 0..BUCKETS - 1 {
            let (low, high) = (smallest_us(at), largest_us(at).unwrap());
            assert_eq!((bucket(low), bucket(high), bucket(high + 1)), (at, at, at + 1));
            for us in [low, high] {
                assert!(middle_us(at).abs_diff(us) * 1000 <= 60 * us, "{us} in bucket {at}: {}", middle_us(at));
            }
        }
        assert_eq!((bucket(SLOW_US), bucket(u64::MAX), largest_us(BUCKETS - 1)), (BUCKETS - 1, BUCKETS - 1, None));
        assert_eq!((smallest_us(BUCKETS - 1), middle_us(BUCKETS - 1)), (SLOW_US, SLOW_US));
    }

    #[test]
    fn percentiles_are_near_the_truth() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentile_us(0.5), None);
        // 1 to 10 ms, in steps of 1 µs.
        (1_000..10_000).for_each(|us| latencies.0[bucket(us)] += 1);
        for (part, exact_us) in [(0.0, 1_000_u64), (0.5, 5_500), (0.99, 9_910), (0.999, 9_991), (1.0, 9_999)] {
            let found_us = latencies.percentile_us(part).unwrap();
            assert!(found_us.abs_diff(exact_us) * 100 <= 6 * exact_us, "{part}: {found_us} for {exact_us}");
        }
        assert_eq!((latencies.below(1_000), latencies.below(2_048), latencies.below(u64::MAX)), (0, 1_048, 9_000));
    }
}
