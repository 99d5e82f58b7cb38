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
    fn a_limit_beyond_the_end_of_time_is_none() {
        let since = Instant::now();
        assert_eq!(gives_up_at(since, Some(Duration::from_secs(600))), Some(since + Duration::from_secs(600)));
        // As `--ctrl-loss-tmo` takes it at most.
        let longest = Duration::from_secs(i64::MAX.unsigned_abs());
        assert_eq!((gives_up_at(since, Some(longest)), gives_up_at(since, None)), (None, None));
    }
}
