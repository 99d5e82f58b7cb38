//! How often something may happen, by address, session or the like: a bucket of tokens for each,
//! which fills at a steady rate.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most that are told apart. One more makes the one that was seen least recently forgotten.
const KEYS_MAX: usize = 4096;

/// Where a peer is, as far as limits go: its address, or of IPv6 the network /64, which one host
/// may have for itself.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Rates by key.
#[derive(Debug)]
pub(super) struct Rates<K> {
    /// How many at once.
    burst: f64,
    per_second: f64,
    buckets: Mutex<HashMap<K, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl<K: Hash + Eq + Clone> Rates<K> {
    pub(super) fn new(burst: u32, per_second: f64) -> Self {
        Self { burst: burst.into(), per_second, buckets: Mutex::default() }
    }

    /// Takes `cost` tokens, or says how long to wait for them.
    pub(super) fn take(&self, key: &K, cost: u32, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= KEYS_MAX && !buckets.contains_key(key) {
            self.forget(&mut buckets, now);
        }
        let bucket = buckets.entry(key.clone()).or_insert(Bucket { tokens: self.burst, at: now });
        bucket.tokens = self.filled(bucket, now);
        bucket.at = now;
        let cost = f64::from(cost).min(self.burst);
        if bucket.tokens >= cost {
            bucket.tokens -= cost;
            Ok(())
        } else {
            Err(Duration::from_secs_f64((cost - bucket.tokens) / self.per_second))
        }
    }

    /// How long it takes until what was charged is there again; zero if it is.
    pub(super) fn wait(&self, key: &K, now: Instant) -> Duration {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = buckets.get(key).map_or(0.0, |bucket| -self.filled(bucket, now));
        Duration::from_secs_f64((missing / self.per_second).max(0.0))
    }

    /// Takes what was used without asking, down to an empty bucket and below.
    pub(super) fn charge(&self, key: &K, cost: u32, now: Instant) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= KEYS_MAX && !buckets.contains_key(key) {
            self.forget(&mut buckets, now);
        }
        let bucket = buckets.entry(key.clone()).or_insert(Bucket { tokens: self.burst, at: now });
        bucket.tokens = self.filled(bucket, now) - f64::from(cost);
        bucket.at = now;
    }

    fn filled(&self, bucket: &Bucket, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.tokens + passed * self.per_second).min(self.burst)
    }

    /// Those that are full are as if they had never been seen; if none is, the oldest goes.
    fn forget(&self, buckets: &mut HashMap<K, Bucket>, now: Instant) {
        buckets.retain(|_, bucket| self.filled(bucket, now) < self.burst);
        if buckets.len() >= KEYS_MAX
            && let Some(oldest) = buckets.iter().min_by_key(|(_, bucket)| bucket.at).map(|(key, _)| key.clone())
        {
            buckets.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_a_steady_rate() {
        let (rates, mut now) = (Rates::new(10, 4.0), Instant::now());
        for _ in 0..10 {
            assert_eq!(rates.take(&1, 1, now), Ok(()));
        }
        assert_eq!(rates.take(&1, 1, now), Err(Duration::from_millis(250)));
        assert_eq!(rates.take(&2, 1, now), Ok(()), "others have their own");
        now += Duration::from_millis(250);
        assert_eq!(rates.take(&1, 1, now), Ok(()));
        assert_eq!(rates.take(&1, 2, now), Err(Duration::from_millis(500)));
        now += Duration::from_secs(3600);
        assert_eq!(rates.take(&1, 10, now), Ok(()), "no more than a burst");
        assert_eq!(rates.take(&1, 100, now), Err(Duration::from_millis(2500)));
    }

    #[test]
    fn what_was_used_is_waited_for() {
        let (rates, now) = (Rates::new(100, 50.0), Instant::now());
        assert_eq!(rates.wait(&1, now), Duration::ZERO);
        rates.charge(&1, 90, now);
        assert_eq!(rates.wait(&1, now), Duration::ZERO);
        rates.charge(&1, 60, now);
        assert_eq!(rates.wait(&1, now), Duration::from_secs(1));
        assert_eq!(rates.wait(&2, now), Duration::ZERO, "others have their own");
        assert_eq!(rates.wait(&1, now + Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn a_host_has_a_whole_network_of_ipv6() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!([of("2001:db8::1"), of("2001:db8::9:8:7")], ["2001:db8::", "2001:db8::"]);
        assert_eq!([of("2001:db8:0:1::1"), of("::1"), of("::ffff:192.0.2.1")], ["2001:db8:0:1::", "::1", "192.0.2.1"]);
    }

    #[test]
    fn memory_is_bounded() {
        let (rates, now) = (Rates::new(10, 1.0), Instant::now());
        for key in 0..3 * KEYS_MAX {
            let at = now + Duration::from_micros(u64::try_from(key).unwrap());
            assert_eq!(rates.take(&key, 1, at), Ok(()));
        }
        assert!(rates.buckets.lock().unwrap().len() <= KEYS_MAX);
        let first = KEYS_MAX * 3 - 1;
        let later = now + Duration::from_millis(100);
        (0..9).for_each(|_| assert_eq!(rates.take(&first, 1, later), Ok(())));
        assert!(rates.take(&first, 1, later).is_err(), "the newest is remembered");
    }
}
