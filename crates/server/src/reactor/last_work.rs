//! When a reactor had work last: for how long it polls, and when it gives memory back.

/// A reactor that was idle for this long gives memory back, milliseconds.
const SHRINK_MS: u64 = 1_000;

/// When the last work was done, microseconds of the target's clock; `None` once memory was given
/// back.
#[derive(Debug, Default)]
pub(super) struct LastWork(Option<u64>);

impl LastWork {
    pub(super) fn note(&mut self, now_us: u64) {
        self.0 = Some(now_us);
    }

    /// Whether there was work in the last `us` microseconds.
    pub(super) fn is_within(&self, us: u64, now_us: u64) -> bool {
        self.0.is_some_and(|last_us| now_us.saturating_sub(last_us) < us)
    }

    /// Whether memory is to be given back now that a burst may have left behind. It is so only once
    /// for each burst.
    pub(super) fn take_shrink(&mut self, now_us: u64) -> bool {
        let is_due = self.0.is_some_and(|last_us| (now_us / 1000).saturating_sub(last_us / 1000) >= SHRINK_MS);
        if is_due {
            self.0 = None;
        }
        is_due
    }

    /// When that is, milliseconds.
    pub(super) fn shrink_ms(&self) -> Option<u64> {
        self.0.map(|last_us| last_us / 1000 + SHRINK_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_the_last_work() {
        let mut last = LastWork::default();
        assert!(!last.take_shrink(u64::MAX) && last.shrink_ms().is_none() && !last.is_within(u64::MAX, 0));
        last.note(5_000_999);
        assert!(last.is_within(10, 5_001_008) && !last.is_within(10, 5_001_009));
        assert_eq!(last.shrink_ms(), Some(6_000));
        assert!(!last.take_shrink(5_999_999));
        assert!(last.take_shrink(6_000_000) && !last.take_shrink(7_000_000));
        assert!(last.shrink_ms().is_none());
    }
}
