//! How long to wait before an attempt to reconnect, and when there is none any more.

use std::time::{Duration, Instant};

/// The first pause before reconnecting: most losses are restarts of the target.
const FIRST_PAUSE_MS: u64 = 50;

/// The pause before attempt `attempt`, in milliseconds: doubles from [`FIRST_PAUSE_MS`] up to
/// `delay_ms`, with a quarter of jitter so that hosts do not all come back at once.
pub(crate) fn pause_ms(attempt: u32, delay_ms: u32, chance: u64) -> u64 {
    let delay = u64::from(delay_ms).max(1);
    let base = FIRST_PAUSE_MS.saturating_mul(1 << attempt.min(30)).min(delay);
    let jitter = chance % (base / 2 + 1);
    base - base / 4 + jitter
}

/// How long a controller has to be live until the pauses begin anew: a service that lets hosts in
/// and ends them at once is not asked more often than one that refuses them.
const STEADY: Duration = Duration::from_secs(5);

/// Attempts to reconnect since the controller was last live for a while.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    made: u32,
    live_since: Option<Instant>,
}

impl Attempts {
    /// The controller is live.
    pub(super) fn succeeded(&mut self, now: Instant) {
        self.live_since = Some(now);
    }

    /// The controller was lost.
    pub(super) fn lost(&mut self, now: Instant) {
        let was_live_for = self.live_since.take().map(|since| now.saturating_duration_since(since));
        if was_live_for.is_some_and(|time| time >= STEADY) {
            self.made = 0;
        }
    }

    /// The number of the next one, 0 for the first.
    pub(super) fn next(&mut self) -> u32 {
        let number = self.made;
        self.made = self.made.saturating_add(1);
        number
    }
}

/// When a controller that was lost `since` is given up, with a limit; `None` for never, which is
/// also what a limit beyond the end of time means.
pub(super) fn gives_up_at(since: Instant, limit: Option<Duration>) -> Option<Instant> {
    since.checked_add(limit?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_clock::Clock;

    #[test]
    fn retry_delays_grow_up_to_the_limit_with_jitter() {
        for attempt in 0..40 {
            let base = (50u64 << attempt.min(20)).min(10_000);
            let pause = pause_ms(attempt, 10_000, Clock::system().jitter());
            assert!(
                (base * 3 / 4..=(base * 5).div_ceil(4)).contains(&pause),
                "attempt {attempt}: {pause} ms around {base}"
            );
        }
        let many: std::collections::HashSet<u64> =
            (0..20).map(|_| pause_ms(20, 10_000, Clock::system().jitter())).collect();
        assert!(many.len() > 1, "hosts must not all come back at once");
    }

    #[test]
    fn pauses_begin_anew_once_the_controller_was_live_for_a_while() {
        let (mut attempts, mut now) = (Attempts::default(), Instant::now());
        let mut lose_after = |live: Duration| {
            attempts.succeeded(now);
            now += live;
            attempts.lost(now);
            [attempts.next(), attempts.next()]
        };
        assert_eq!(lose_after(Duration::ZERO), [0, 1]);
        // It lets hosts in, and ends them.
        assert_eq!(lose_after(Duration::from_millis(10)), [2, 3]);
        assert_eq!(lose_after(STEADY - Duration::from_millis(1)), [4, 5]);
        assert_eq!(lose_after(STEADY), [0, 1]);
    }

    #[test]
    fn a_limit_beyond_the_end_of_time_is_none() {
        let since = Instant::now();
        assert_eq!(gives_up_at(since, Some(Duration::from_secs(600))), Some(since + Duration::from_secs(600)));
        // As `--ctrl-loss-tmo` takes it at most.
        let longest = Duration::from_secs(i64::MAX.unsigned_abs());
        assert_eq!((gives_up_at(since, Some(longest)), gives_up_at(since, None)), (None, None));
    }
}
