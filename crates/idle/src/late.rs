//! Sleeps that end late, as on a machine whose hypervisor is busy, and threads whose yields are
//! short on a machine that others use. For tests only: programs are built without this feature.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static LATE_US: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread's own yields are taken for short, whatever else the machine does.
pub fn set_alone() {
    IS_ALONE.set(true);
}

pub(crate) fn measured(away: Duration) -> Duration {
    if IS_ALONE.get() { Duration::ZERO } else { away }
}

/// From now on every sleep in this process ends so many microseconds late.
pub fn set(late_us: u64) {
    LATE_US.store(late_us, Ordering::Relaxed);
}

pub(crate) fn after_sleep() {
    let late = Duration::from_micros(LATE_US.load(Ordering::Relaxed));
    let began = Instant::now();
    while began.elapsed() < late {
        std::thread::yield_now();
    }
}
