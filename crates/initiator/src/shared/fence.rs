//! Whether a controller may still execute commands of an association that was lost.
//!
//! A connection that is gone says nothing about the commands that were sent over it: the controller
//! may execute a write now, or after the same write was repeated over another path and a newer one
//! was acknowledged, which it then undoes. So whoever has such a command waits: until the
//! controller was reset through another one of the subsystem (Cross-Controller Reset), or until the
//! time has passed after which the controller executes nothing any more (Command Quiesce Time).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use ebof_nvme::identify::IdentifyController;
use ebof_nvme::identify::field::ctratt;

use crate::wait::lock::lock;

/// What stands between a command whose fate is unknown and its repetition. One for each
/// association.
#[derive(Debug, Default)]
pub struct Fence {
    /// How long commands may still be executed after a loss.
    hold: Duration,
    lost_at: Mutex<Option<Instant>>,
    is_lifted: AtomicBool,
    /// When somebody who waits has seen that it is over.
    over_at: OnceLock<Instant>,
}

impl Fence {
    /// Of an association whose controller may execute commands for `hold` after it was lost.
    pub(crate) fn new(hold: Duration) -> Self {
        Self { hold, ..Self::default() }
    }

    /// Whether nothing is waited for.
    pub(crate) fn is_none(&self) -> bool {
        self.hold.is_zero()
    }

    /// The association is lost. The first time counts.
    pub(crate) fn lose(&self, now: Instant) {
        lock(&self.lost_at).get_or_insert(now);
    }

    /// When it was lost.
    pub(crate) fn lost_at(&self) -> Option<Instant> {
        *lock(&self.lost_at)
    }

    /// The controller executes nothing of this association any more.
    pub(crate) fn lift(&self) {
        self.is_lifted.store(true, Ordering::Release);
    }

    /// When the controller executes nothing any more, whatever is heard of it; `None` while it is
    /// not lost.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        self.lost_at().and_then(|at| at.checked_add(self.hold))
    }

    /// Whether commands of the association may be repeated.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        let is_over = self.is_lifted.load(Ordering::Acquire) || self.ends_at().is_some_and(|end| now >= end);
        if is_over {
            self.over_at.get_or_init(|| now);
        }
        is_over
    }

    /// How long it has stood until `now`, or until it was over; nothing while it is not lost.
    pub(crate) fn stood(&self, now: Instant) -> Duration {
        let end = if self.is_over(now) { *self.over_at.get_or_init(|| now) } else { now };
        self.lost_at().map_or(Duration::ZERO, |at| end.saturating_duration_since(at))
    }
}

/// How long a controller may execute commands of an association that was lost (TP4129): until it
/// notices, and then for the Command Quiesce Time. One for which all traffic keeps the association
/// alive (TBKAS) looks at the end of each Keep Alive Timeout, and notices after two of them.
/// Controllers that neither say how long, nor can be reset by another one of the subsystem, are
/// taken to end after `otherwise`.
///
/// It rounds the time-out up to its granularity (KAS), though not beyond [`UNNOTICED`]: any number
/// may be in that field. Without Keep Alive it never notices that a host is silent: then only a
/// reset ends it, or that time.
pub(crate) fn quiesced_after(identify: &IdentifyController, keep_alive: Duration, otherwise: Duration) -> Duration {
    let quiesce = Duration::from_millis(u64::from(identify.cqt.get()));
    if quiesce.is_zero() && identify.ccrl == 0 {
        return otherwise;
    }
    let granularity_ms = u128::from(identify.kas.get()) * 100;
    if keep_alive.is_zero() || granularity_ms == 0 {
        return UNNOTICED.max(quiesce).max(otherwise);
    }
    let rounded_ms = keep_alive.as_millis().next_multiple_of(granularity_ms);
    let rounded = Duration::from_millis(u64::try_from(rounded_ms).unwrap_or(u64::MAX));
    let keep_alive = rounded.min(UNNOTICED.max(keep_alive));
    let is_by_traffic = identify.ctratt.get() & ctratt::TRAFFIC_BASED_KEEP_ALIVE != 0;
    keep_alive.saturating_mul(if is_by_traffic { 2 } else { 1 }).saturating_add(quiesce.max(otherwise))
}

/// How long a controller without Keep Alive is taken to execute commands of a host that is silent:
/// as long as a lost controller is waited for.
const UNNOTICED: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_done_when_it_has_noticed_and_quiesced() {
        let identify = |cqt: u16, ccrl, ctratt: u32| IdentifyController {
            kas: 10.into(),
            cqt: cqt.into(),
            ccrl,
            ctratt: ctratt.into(),
            ..IdentifyController::default()
        };
        let after = |identify: &IdentifyController, otherwise| {
            quiesced_after(identify, Duration::from_secs(5), Duration::from_secs(otherwise)).as_secs()
        };
        assert_eq!([0, 3].map(|otherwise| after(&identify(0, 0, 0), otherwise)), [0, 3]);
        let by_traffic = ctratt::TRAFFIC_BASED_KEEP_ALIVE;
        assert_eq!([0, 3].map(|otherwise| after(&identify(2000, 0, 0), otherwise)), [7, 8]);
        assert_eq!([after(&identify(2000, 1, by_traffic), 0), after(&identify(0, 1, 0), 0)], [12, 5]);
        // What it rounds to, and without Keep Alive.
        let coarse = |kas: u16| IdentifyController { kas: kas.into(), ..identify(2000, 0, 0) };
        assert_eq!([30, 100, 0].map(|kas| after(&coarse(kas), 0)), [8, 12, 600]);
        assert_eq!(quiesced_after(&identify(2000, 1, 0), Duration::ZERO, Duration::ZERO), UNNOTICED);
    }

    // @test hostile.paths
    #[test]
    fn a_controller_may_say_anything_and_is_waited_for_so_long() {
        let by_traffic = ctratt::TRAFFIC_BASED_KEEP_ALIVE;
        let identify = IdentifyController {
            kas: u16::MAX.into(),
            cqt: u16::MAX.into(),
            ccrl: u8::MAX,
            ctratt: by_traffic.into(),
            ..IdentifyController::default()
        };
        let after = |seconds| quiesced_after(&identify, Duration::from_secs(seconds), Duration::ZERO).as_secs();
        assert_eq!([after(0), after(5), after(1000)], [600, 2 * 600 + 65, 2 * 1000 + 65]);
        let longest = quiesced_after(&identify, Duration::from_millis(u32::MAX.into()), Duration::MAX);
        assert_eq!(longest, Duration::MAX, "what the user says counts, and nothing overflows");
    }

    #[test]
    fn a_fence_ends_with_its_time_or_when_it_is_lifted() {
        let now = Instant::now();
        let (fence, second) = (Fence::new(Duration::from_secs(2)), Duration::from_secs(1));
        assert!(!fence.is_over(now + 100 * second), "the association is not lost");
        fence.lose(now);
        fence.lose(now + second);
        assert!(!fence.is_over(now + second) && fence.is_over(now + 2 * second), "the first loss counts");
        let lifted = Fence::new(Duration::from_secs(2));
        lifted.lose(now);
        lifted.lift();
        assert!(lifted.is_over(now));
        // Who waits for it says how long it has stood.
        assert_eq!([fence.stood(now + 9 * second), lifted.stood(now + second)], [2 * second, Duration::ZERO]);
        let without = Fence::default();
        without.lose(now);
        assert!(without.is_over(now), "the controller says nothing");
    }
}
