//! The target's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ebof_clock::Clock;

/// How far the calendar may be from what the target's own time says, before it is taken anew: more
/// than a thread waits between reading the one clock and the other, and less than anybody notices.
const STEP_MS: u64 = 100;

/// The target's time: monotonic, from its start.
#[derive(Clone, Debug)]
pub(crate) struct Uptime {
    clock: Clock,
    start: Instant,
    /// Milliseconds since 1970 at which the target started, as far as the calendar was never set
    /// since then.
    start_unix_ms: Arc<AtomicU64>,
}

impl Uptime {
    pub(crate) fn start(clock: Clock) -> Self {
        let unix_ms = calendar_ms(&clock);
        Self { start: clock.now(), clock, start_unix_ms: Arc::new(AtomicU64::new(unix_ms)) }
    }

    #[inline]
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.clock.now().saturating_duration_since(self.start).as_micros()).unwrap_or(u64::MAX)
    }

    /// Milliseconds since 1970.
    pub(crate) fn unix_ms(&self) -> u64 {
        self.unix_ms_at(self.now_ms())
    }

    /// Milliseconds since 1970 when [`Uptime::now_ms`] was `ms`. It is the same whenever it is
    /// asked, unless the calendar was set meanwhile: what is told of the past must not change by
    /// looking at it.
    pub(crate) fn unix_ms_at(&self, ms: u64) -> u64 {
        let (calendar, now_ms) = (calendar_ms(&self.clock), self.now_ms());
        let start = self.start_unix_ms.load(Relaxed);
        if start.saturating_add(now_ms).abs_diff(calendar) <= STEP_MS {
            return start.saturating_add(ms);
        }
        let start = calendar.saturating_sub(now_ms);
        self.start_unix_ms.store(start, Relaxed);
        start.saturating_add(ms)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    /// The moment at which [`Uptime::now_ms`] is `ms`.
    pub(crate) fn moment(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }
}

fn calendar_ms(clock: &Clock) -> u64 {
    u64::try_from(clock.unix_time().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_the_past_does_not_move() {
        let uptime = Uptime::start(Clock::default());
        let at_ms = uptime.now_ms();
        let told = uptime.unix_ms_at(at_ms);
        for _ in 0..200 {
            std::thread::sleep(Duration::from_micros(130));
            assert_eq!(uptime.unix_ms_at(at_ms), told);
        }
        assert!(uptime.unix_ms().abs_diff(calendar_ms(&uptime.clock)) <= STEP_MS);
    }

    #[test]
    fn a_calendar_that_was_set_is_followed() {
        let uptime = Uptime::start(Clock::default());
        // As if it had been wrong by an hour at the start.
        uptime.start_unix_ms.fetch_sub(3_600_000, Relaxed);
        assert!(uptime.unix_ms().abs_diff(calendar_ms(&uptime.clock)) <= STEP_MS);
        assert_eq!(uptime.unix_ms_at(0), uptime.start_unix_ms.load(Relaxed));
    }
}
