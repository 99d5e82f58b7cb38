//! Waiting for what another thread does.

use std::time::{Duration, Instant};

/// Waits until `holds`, at most 20 seconds, after which it panics with `what` had to hold.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}
