//! A rate, as a token bucket: kept as the time at which it would be full again, so that nothing has
//! to be added while time passes.

/// A limited rate. Times are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    per_second: u64,
    /// How far it may be ahead.
    burst_ns: u64,
    /// When all that was taken has been earned.
    earned_ns: u64,
}

impl Bucket {
    /// A full bucket of `per_second` tokens each second, for `burst_us` of them.
    pub(crate) fn new(per_second: u64, burst_us: u64) -> Self {
        Self { per_second: per_second.max(1), burst_ns: burst_us * 1000, earned_ns: 0 }
    }

    /// Changes the rate. What was taken stays taken, and holds up nobody for longer than before.
    pub(crate) fn set_rate(&mut self, per_second: u64, now_us: u64) {
        let owed_ns = self.earned_ns.saturating_sub(now_us.saturating_mul(1000));
        let owed = u128::from(owed_ns) * u128::from(self.per_second);
        self.per_second = per_second.max(1);
        let owed_ns = u64::try_from(owed / u128::from(self.per_second)).unwrap_or(u64::MAX).min(owed_ns);
        self.earned_ns = now_us.saturating_mul(1000).saturating_add(owed_ns);
    }

    /// When tokens may be taken, microseconds: in the past if they may be now.
    pub(crate) fn ready_us(&self) -> u64 {
        self.ready_ns().div_ceil(1000)
    }

    /// The same, nanoseconds.
    pub(crate) fn ready_ns(&self) -> u64 {
        self.earned_ns.saturating_sub(self.burst_ns)
    }

    /// Takes `tokens`, also more than are there: then the next ones come later.
    pub(crate) fn take(&mut self, tokens: u64, now_us: u64) {
        let cost_ns = u128::from(tokens) * 1_000_000_000 / u128::from(self.per_second);
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        self.earned_ns = self.earned_ns.max(now_us.saturating_mul(1000)).saturating_add(cost_ns);
    }

    /// Forgets what was not taken before `now_us`.
    pub(crate) fn forget_unused(&mut self, now_us: u64) {
        self.earned_ns = self.earned_ns.max(now_us.saturating_mul(1000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_with_requests_that_come_late_and_a_burst_no_larger_than_allowed() {
        let mut bucket = Bucket::new(1000, 2_000);
        let mut taken = 0;
        let mut at_once = 0;
        for now_us in (1_000_000..2_000_000).step_by(1_700) {
            while bucket.ready_us() <= now_us {
                bucket.take(1, now_us);
                taken += 1;
            }
            if now_us == 1_000_000 {
                at_once = taken;
            }
        }
        assert_eq!(at_once, 3, "the burst and one");
        assert!((995..=1005).contains(&taken), "{taken}");
    }

    #[test]
    fn a_large_request_is_paid_for_afterwards() {
        let mut bucket = Bucket::new(1 << 20, 1_000);
        bucket.take(1 << 20, 5_000_000);
        assert_eq!(bucket.ready_us(), 5_999_000);
        bucket.set_rate(2 << 20, 5_000_000);
        assert_eq!(bucket.ready_us(), 5_499_000, "twice the rate, half the debt");
        bucket.take(0, 0);
        assert_eq!(Bucket::new(0, 0).ready_us(), 0, "no rate is no panic");
    }
}
