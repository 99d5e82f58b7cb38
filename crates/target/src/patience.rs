//! How a reactor without work gives way to other threads of its processor.
//!
//! It does so now and then. When that turns out to let another thread run, which on a processor that is shared with a host is
//! the very thread that brings the next work, it does so at once the next time: every further look is time that the other
//! end lacks. And the time for which others ran is not counted as time spent looking.

use std::time::{Duration, Instant};

/// Turns without work between two `sched_yield`s when nobody else wants the processor.
const YIELD_EVERY: u32 = 8;

/// A `sched_yield` that takes this long has let somebody run; alone it takes a fraction of it.
const SOMEBODY_RAN: Duration = Duration::from_micros(2);

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    shares: bool,
}

impl Patience {
    /// Gives way if it is time to, after so many turns without work; returns for how long others ran, microseconds.
    pub(crate) fn give_way(&mut self, idle_turns: u32) -> u64 {
        if !self.shares && !idle_turns.is_multiple_of(YIELD_EVERY) {
            return 0;
        }
        let before = Instant::now();
        std::thread::yield_now();
        let away = before.elapsed();
        self.shares = away >= SOMEBODY_RAN;
        if self.shares { u64::try_from(away.as_micros()).unwrap_or(u64::MAX) } else { 0 }
    }
}
