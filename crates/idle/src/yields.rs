//! Yields of a thread that polls for a moment and does not sleep for it.

use std::time::{Duration, Instant};

/// A yield of this length, microseconds, means that another program computes on the processor.
pub(crate) const SLOW_US: u64 = 500;

/// So long after a slow yield there is none.
const PAUSE: Duration = Duration::from_millis(100);

/// Yields while they are short: beside a program that computes each takes as long as that program's
/// slice.
#[derive(Clone, Debug, Default)]
pub struct Yields {
    slow_at: Option<Instant>,
}

impl Yields {
    /// None was slow so far.
    #[must_use]
    pub const fn new() -> Self {
        Self { slow_at: None }
    }

    /// Yields, unless it took long less than 100 ms before `now`. Returns whether it yielded.
    pub fn give_way(&mut self, now: Instant) -> bool {
        if !self.are_short(now) {
            return false;
        }
        let before = Instant::now();
        std::thread::yield_now();
        self.yielded(now, before.elapsed());
        true
    }

    /// Whether a yield at `now` is likely to be short.
    #[must_use]
    pub fn are_short(&self, now: Instant) -> bool {
        self.slow_at.is_none_or(|at| now.saturating_duration_since(at) >= PAUSE)
    }

    fn yielded(&mut self, now: Instant, away: Duration) {
        self.slow_at = (away >= Duration::from_micros(SLOW_US)).then(|| now + away);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_slow_yield_there_is_none_for_a_while() {
        let mut yields = Yields::new();
        let now = Instant::now();
        yields.yielded(now, Duration::from_micros(40));
        assert!(yields.are_short(now));
        yields.yielded(now, Duration::from_millis(3));
        assert!(
            !yields.are_short(now + Duration::from_millis(4)) && !yields.give_way(now + Duration::from_millis(102))
        );
        assert!(yields.are_short(now + Duration::from_millis(103)));
        yields.yielded(now, Duration::from_micros(1));
        assert!(yields.are_short(now));
    }
}
