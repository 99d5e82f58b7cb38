//! Time and random bytes, of the system or simulated.
//!
//! Code that needs them takes a [`Clock`]. A system clock asks the kernel. A simulated clock stands
//! still until it is advanced, and its random bytes follow from a seed, so that a run can be
//! repeated exactly.
//!
//! No timers.

#![forbid(unsafe_code)]

use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The date at which a simulated clock begins, since 1970: a fixed day in 2025.
const SIMULATED_EPOCH: Duration = Duration::from_secs(1_750_000_000);

/// The system's random number generator failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandomness;

impl fmt::Display for NoRandomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system gives no random bytes (getrandom)")
    }
}

impl std::error::Error for NoRandomness {}

/// A source of time and random bytes. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    Simulated(Arc<Simulated>),
}

#[derive(Debug)]
struct Simulated {
    /// [`Clock::now`] at virtual time zero. Only differences to it are meaningful.
    begin: Instant,
    elapsed_ns: AtomicU64,
    generator: Mutex<SplitMix64>,
}

impl Clock {
    /// The system's: `CLOCK_MONOTONIC`, `CLOCK_REALTIME` and `getrandom`.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still until it is advanced. Its random bytes follow from `seed`, and are
    /// therefore not secret.
    #[must_use]
    pub fn simulated(seed: u64) -> Self {
        let simulated =
            Simulated { begin: Instant::now(), elapsed_ns: AtomicU64::new(0), generator: Mutex::new(SplitMix64(seed)) };
        Self(Source::Simulated(Arc::new(simulated)))
    }

    /// Whether this is a simulated clock.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        matches!(self.0, Source::Simulated(_))
    }

    /// The current time of a monotonic clock.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System => Instant::now(),
            Source::Simulated(simulated) => simulated.begin + simulated.elapsed(),
        }
    }

    /// The time since 1970, UTC; zero if the system's clock is set before that.
    #[must_use]
    pub fn unix_time(&self) -> Duration {
        match &self.0 {
            Source::System => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Source::Simulated(simulated) => SIMULATED_EPOCH + simulated.elapsed(),
        }
    }

    /// Fills `bytes` with random bytes: cryptographically secure ones on a system clock.
    ///
    /// # Errors
    /// [`NoRandomness`]: the system's generator failed; never on a simulated clock.
    pub fn fill(&self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
        match &self.0 {
            Source::System => getrandom::fill(bytes).map_err(|_| NoRandomness),
            Source::Simulated(simulated) => {
                let mut generator = simulated.generator.lock().unwrap_or_else(PoisonError::into_inner);
                for part in bytes.chunks_mut(8) {
                    part.copy_from_slice(&generator.next().to_le_bytes()[..part.len()]);
                }
                Ok(())
            }
        }
    }

    /// A random number for jitter. It is predictable: not for keys or identifiers.
    #[must_use]
    pub fn jitter(&self) -> u64 {
        match &self.0 {
            Source::System => std::hash::RandomState::new().hash_one(0_u64),
            Source::Simulated(simulated) => simulated.generator.lock().unwrap_or_else(PoisonError::into_inner).next(),
        }
    }

    /// Lets `time` pass: the thread sleeps, or a simulated clock is advanced. For code that polls
    /// something without notifications.
    pub fn sleep(&self, time: Duration) {
        match &self.0 {
            Source::System => std::thread::sleep(time),
            Source::Simulated(_) => self.advance(time),
        }
    }

    /// Advances a simulated clock by `time`. Does nothing to a system clock.
    pub fn advance(&self, time: Duration) {
        if let Source::Simulated(simulated) = &self.0 {
            let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            simulated.elapsed_ns.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// Advances a simulated clock to `moment`, unless it is later already.
    pub fn advance_to(&self, moment: Instant) {
        self.advance(moment.saturating_duration_since(self.now()));
    }
}

impl Simulated {
    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns.load(Ordering::Relaxed))
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_clock_moves_only_when_it_is_advanced_and_its_clones_with_it() {
        let clock = Clock::simulated(1);
        let (begin, date) = (clock.now(), clock.unix_time());
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(clock.now(), begin);
        let clone = clock.clone();
        clone.advance(Duration::from_secs(90));
        assert_eq!(clock.now() - begin, Duration::from_secs(90));
        assert_eq!(clock.unix_time() - date, Duration::from_secs(90));
        clock.advance_to(begin + Duration::from_secs(60));
        assert_eq!(clone.now() - begin, Duration::from_secs(90), "it never goes back");
        clock.advance_to(begin + Duration::from_secs(91));
        assert_eq!(clone.now() - begin, Duration::from_secs(91));
        clock.sleep(Duration::from_secs(9));
        assert_eq!(clone.now() - begin, Duration::from_secs(100), "nobody sleeps, and the time has passed");
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        let bytes = |seed| {
            let clock = Clock::simulated(seed);
            let mut bytes = [0; 21];
            clock.fill(&mut bytes).unwrap();
            (bytes, clock.jitter())
        };
        assert_eq!(bytes(7), bytes(7));
        assert_ne!(bytes(7), bytes(8));
        // The first numbers of the generator with seed 1234567, as published with it.
        let mut generator = SplitMix64(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| generator.next()).collect();
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn the_systems_clock_advances_by_itself() {
        let clock = Clock::system();
        let before = clock.now();
        clock.advance(Duration::from_secs(1000));
        clock.sleep(Duration::from_millis(1));
        let passed = clock.now() - before;
        assert!(passed >= Duration::from_millis(1) && passed < Duration::from_secs(500), "{passed:?}");
        assert!(clock.unix_time() > SIMULATED_EPOCH);
        let (mut first, mut second) = ([0; 32], [0; 32]);
        clock.fill(&mut first).unwrap();
        clock.fill(&mut second).unwrap();
        assert_ne!(first, second);
    }
}
