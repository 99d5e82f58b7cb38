//! The target's clock.

use std::time::{Duration, Instant};

use ebof_clock::Clock;

/// The target's time: monotonic, from its start.
#[derive(Clone, Debug)]
pub(crate) struct Uptime {
    clock: Clock,
    start: Instant,
}

impl Uptime {
    pub(crate) fn start(clock: Clock) -> Self {
        Self { start: clock.now(), clock }
    }

    #[inline]
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.clock.now().saturating_duration_since(self.start).as_micros()).unwrap_or(u64::MAX)
    }

    /// Milliseconds since 1970.
    pub(crate) fn unix_ms(&self) -> u64 {
        u64::try_from(self.clock.unix_time().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    /// The moment at which [`Uptime::now_ms`] is `ms`.
    pub(crate) fn moment(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }
}
