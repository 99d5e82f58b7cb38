//! How long a thread without work looks for more before it sleeps.
//!
//! Owns the decision: looking on, giving way to other threads of the processor, or sleeping; and
//! what is learned for it from every sleep. It does not own the sources of work, the waiting
//! itself, or a clock: the time is a parameter, in microseconds of any clock that does not go back.
//!
//! A thread that sleeps is woken late: by 10 µs on an idle machine, by tens of them in a virtual
//! machine, by hundreds when the hypervisor is busy. Two ends that look for a shorter time than the
//! other's wake-up takes put each other to sleep with every message. So [`Idle`] measures what a
//! wake-up costs and looks on for some multiple of that, but only while work does come within that
//! time; what comes later is waited for asleep, and an idle thread uses no processor.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

#[cfg(feature = "late-wakes")]
pub mod late;

/// Looks between two steps while nobody else wants the processor.
const LOOKS_PER_STEP: u32 = 8;

/// A `sched_yield` that takes this long has let another thread run; alone it takes a fraction of
/// it.
const OTHERS_RAN: Duration = Duration::from_micros(2);

/// No thread looks for work for longer than this, whatever a wake-up costs, microseconds. With 4 ms
/// a pair of ends outlasts a hypervisor that takes 2 ms to run each of them.
const SPIN_MAX_US: u64 = 4_000;

/// Looking for work is worth this many times what a wake-up costs: at 8 to 11 µs, the cost on an
/// idle machine, that is not much more than the 50 µs that are looked for in any case.
const WORTH: u64 = 8;

/// The first sleep of a wait is at most this long, microseconds: when it ends tells how late this
/// thread is woken.
const PROBE_US: u64 = 50;

/// A wait of this length, microseconds, or of twice the configured time if that is longer, was too
/// long to be looked for, unless wake-ups are so late that it was worth it even so. What was
/// learned is forgotten, and the next sleep is not bounded: a longer look and a second wake-up for
/// each message are what an idle thread would spend most on.
const SPARSE_US: u64 = 1_000;

/// After so many of these waits in a row a thread sleeps at once: what comes is Keep Alives, or
/// commands for a slow device, and looking for them would be most of what each of them costs. One
/// such wait says nothing yet: bursts, and commands of several messages, have one before each of
/// them.
const SPARSE_WAITS: u8 = 2;

/// One sample of what a wake-up costs counts as this at most, microseconds: a thread that was
/// stopped for a second says nothing about wake-ups.
const SAMPLE_MAX_US: u64 = 1_000;

/// Of so many waits in which it was not measured what a wake-up costs, one looks for the configured
/// time and measures it: a machine may have become quick, or slow.
const REMEASURE_EVERY: u32 = 64;

/// A thread looks for longer than the configured time only while it waits at least so often...
const TRAFFIC_WAITS: u32 = 100;

/// ...in this time, microseconds: Keep Alives that come together are soon over, and would be looked
/// for at the cost of more than all the rest of an idle thread. Two ends that take 2 ms to wake
/// wait for each other as often as that.
const TRAFFIC_US: u64 = 500_000;

/// What a thread that found no work does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// [`Idle::give_way`], then look again.
    GiveWay,
    /// Sleep until there is work, or for so many microseconds at most; [`precisely`] if there is a
    /// bound. [`Idle::woke`] is told when the sleep is over.
    Sleep(Option<u64>),
}

/// The state of one waiting thread, or of one source of work that threads wait for in turns.
///
/// Most threads call [`Idle::rest`] after every [`Idle::looks_per_step`] looks that found nothing.
/// Where giving way and sleeping are places of their own, the order of calls is: [`Idle::step`]
/// after every [`Idle::looks_per_step`] looks that found nothing, [`Idle::woke`] after every sleep,
/// [`Idle::found`] whenever there was work, and [`Idle::stop`] by those who stop waiting without
/// any.
#[derive(Clone, Debug)]
pub struct Idle {
    base_us: u64,
    /// What was learned: never less than `base_us`.
    spin_us: u64,
    /// How late a wake-up is, as far as known.
    wake_cost_us: u64,
    wait: Option<Wait>,
    /// Another thread ran when this one last gave way.
    shares_processor: bool,
    /// Waits since a wake-up was last measured, without those within `base_us`.
    unmeasured: u32,
    /// The last so many waits were too long; not counted beyond [`SPARSE_WAITS`].
    sparse_waits: u8,
    traffic: Traffic,
}

/// A time without work.
#[derive(Clone, Debug)]
struct Wait {
    since_us: u64,
    /// For how long to look.
    spin_us: u64,
    sleep: Option<Sleep>,
}

/// How often a thread waits.
#[derive(Clone, Debug)]
struct Traffic {
    since_us: u64,
    /// Since then.
    waits: u32,
    /// The [`TRAFFIC_US`] before had [`TRAFFIC_WAITS`].
    was_busy: bool,
}

impl Traffic {
    fn count(&mut self, now_us: u64) {
        let age_us = now_us.saturating_sub(self.since_us);
        if age_us >= TRAFFIC_US {
            self.was_busy = age_us < 2 * TRAFFIC_US && self.waits >= TRAFFIC_WAITS;
            (self.since_us, self.waits) = (now_us, 0);
        }
        self.waits = self.waits.saturating_add(1);
    }

    const fn is_busy(&self) -> bool {
        self.was_busy || self.waits >= TRAFFIC_WAITS
    }
}

/// The last sleep of a wait.
#[derive(Clone, Copy, Debug)]
struct Sleep {
    at_us: u64,
    bound_us: Option<u64>,
}

impl Idle {
    /// `base_us`: how long to look for work at least, microseconds, unless work has become rare. 0
    /// always sleeps at once; beyond 4 ms nothing is learned, and [`u64::MAX`] never sleeps.
    #[must_use]
    pub const fn new(base_us: u64) -> Self {
        Self {
            base_us,
            spin_us: base_us,
            wake_cost_us: 0,
            wait: None,
            shares_processor: false,
            unmeasured: 0,
            sparse_waits: 0,
            traffic: Traffic { since_us: 0, waits: 0, was_busy: false },
        }
    }

    /// How many looks to take before [`Idle::step`] is asked.
    #[must_use]
    pub const fn looks_per_step(&self) -> u32 {
        if self.shares_processor || self.sleeps_at_once() { 1 } else { LOOKS_PER_STEP }
    }

    /// For how long work is looked for at present, microseconds.
    #[must_use]
    pub fn spin_us(&self) -> u64 {
        if self.sleeps_at_once() {
            return 0;
        }
        self.spin_us.min(self.reach_us()).max(self.base_us)
    }

    const fn sleeps_at_once(&self) -> bool {
        self.base_us == 0 || self.sparse_waits >= SPARSE_WAITS
    }

    /// How long looking for work is at most worth it, microseconds.
    fn reach_us(&self) -> u64 {
        (self.wake_cost_us * WORTH).min(SPIN_MAX_US).max(self.base_us)
    }

    /// There was no work.
    pub fn step(&mut self, now_us: u64) -> Step {
        if self.base_us == 0 {
            return Step::Sleep(None);
        }
        let measure = self.unmeasured >= REMEASURE_EVERY;
        let spin_us = if measure { self.base_us } else { self.spin_us() };
        let wait = self.wait.get_or_insert(Wait { since_us: now_us, spin_us, sleep: None });
        if wait.sleep.is_none() && now_us.saturating_sub(wait.since_us) < wait.spin_us {
            return Step::GiveWay;
        }
        let measure = wait.sleep.is_none() && (measure || self.sparse_waits == 0);
        let bound_us = if measure { Some(PROBE_US) } else { None };
        wait.sleep = Some(Sleep { at_us: now_us, bound_us });
        Step::Sleep(bound_us)
    }

    /// Lets other threads of the processor run. The time for which they did does not count as time
    /// spent looking: the other end may be one of them, and this thread only stood in its way.
    pub fn give_way(&mut self) {
        let before = Instant::now();
        std::thread::yield_now();
        self.gave_way(before.elapsed());
    }

    /// What a thread does that found no work in [`Idle::looks_per_step`] looks: gives way, or
    /// sleeps as [`Idle::sleep`] does. Whether it slept.
    ///
    /// # Errors
    /// Those of `wait`.
    pub fn rest<E>(
        &mut self,
        now_us: impl Fn() -> u64,
        wait: impl FnOnce(Option<Duration>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        match self.step(now_us()) {
            Step::GiveWay => {
                self.give_way();
                Ok(false)
            }
            Step::Sleep(bound_us) => self.sleep(bound_us, now_us, wait).map(|_| true),
        }
    }

    /// Sleeps as [`Step::Sleep`] asks, and learns from it. `wait` sleeps until something has come
    /// that may be work, for the given time at most (`None`: [`Idle`] sets no bound), and says
    /// whether something has.
    ///
    /// # Errors
    /// Those of `wait`.
    pub fn sleep<E>(
        &mut self,
        bound_us: Option<u64>,
        now_us: impl Fn() -> u64,
        wait: impl FnOnce(Option<Duration>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let woken = match bound_us.map(Duration::from_micros) {
            Some(bound) => precisely(|| wait(Some(bound))),
            None => wait(None),
        };
        after_sleep();
        self.woke(now_us(), matches!(woken, Ok(true)));
        woken
    }

    /// As [`Idle::give_way`], where the caller gave way itself and was away for `away`.
    pub fn gave_way(&mut self, away: Duration) {
        self.shares_processor = away >= OTHERS_RAN;
        if self.shares_processor
            && let Some(wait) = &mut self.wait
        {
            let away_us = u64::try_from(away.as_micros()).unwrap_or(u64::MAX);
            wait.since_us = wait.since_us.saturating_add(away_us);
        }
    }

    /// The sleep that [`Idle::step`] asked for is over; `by_event`: because of something that may
    /// be work, not because the time was over.
    pub fn woke(&mut self, now_us: u64, by_event: bool) {
        if let Some(Sleep { at_us, bound_us: Some(bound_us) }) = self.wait.as_ref().and_then(|wait| wait.sleep) {
            self.measure(now_us, at_us, bound_us);
        }
        if by_event {
            self.found(now_us);
        }
    }

    fn measure(&mut self, now_us: u64, at_us: u64, bound_us: u64) {
        self.unmeasured = 0;
        let asleep_us = now_us.saturating_sub(at_us).min(bound_us + SAMPLE_MAX_US);
        match asleep_us.checked_sub(bound_us) {
            // Woken by work or by the timer, it ran again so much later than it was due at the
            // latest.
            Some(late_us) if late_us >= self.wake_cost_us => {
                self.wake_cost_us += (late_us - self.wake_cost_us).div_ceil(2);
            }
            Some(late_us) => self.wake_cost_us -= (self.wake_cost_us - late_us).div_ceil(8),
            // Woken by work: the wake-up took less than the whole sleep.
            None => self.wake_cost_us -= self.wake_cost_us.saturating_sub(asleep_us).div_ceil(8),
        }
    }

    /// There was work.
    #[inline]
    pub fn found(&mut self, now_us: u64) {
        if let Some(wait) = self.wait.take() {
            self.learn(&wait, now_us);
        }
    }

    /// Whether a wait is under way: spares those who found work at once a look at the clock.
    #[inline]
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// Nobody waits any more, for whatever reason.
    pub fn stop(&mut self) {
        self.wait = None;
    }

    fn learn(&mut self, wait: &Wait, now_us: u64) {
        self.traffic.count(now_us);
        let waited_us = now_us.saturating_sub(wait.since_us);
        let Some(sleep) = wait.sleep else {
            self.sparse_waits = 0;
            self.unmeasured += u32::from(waited_us > self.base_us);
            return;
        };
        self.unmeasured += u32::from(sleep.bound_us.is_none());
        let late_us = self.wake_cost_us.min(now_us.saturating_sub(sleep.at_us));
        let came_us = waited_us - late_us.min(waited_us);
        let is_worth_it = came_us <= self.reach_us();
        if !is_worth_it && waited_us >= SPARSE_US.max(self.base_us.saturating_mul(2)) {
            self.sparse_waits = SPARSE_WAITS.min(self.sparse_waits + 1);
            self.spin_us = self.base_us;
            return;
        }
        self.sparse_waits = 0;
        if is_worth_it && self.traffic.is_busy() {
            // Had this thread looked for that long, it would not have slept. Twice that, as waits
            // vary.
            let enough_us = came_us.saturating_mul(2).min(SPIN_MAX_US);
            self.spin_us = self.spin_us.max(enough_us);
        } else {
            self.spin_us -= self.spin_us.saturating_sub(self.base_us).div_ceil(2);
        }
    }
}

/// Runs `sleep`, a wait of microseconds, without the slack that the kernel otherwise adds to a
/// thread's timers, 50 µs.
pub fn precisely<T>(sleep: impl FnOnce() -> T) -> T {
    // Where the system refuses, wake-ups look later than they are.
    let slack = rustix::thread::current_timer_slack().ok().and_then(NonZeroU64::new);
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let result = sleep();
    let _ = rustix::thread::set_current_timer_slack(slack);
    result
}

/// Microseconds since `began`, as [`Idle`] is told the time.
#[must_use]
pub fn micros_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// To be called after every sleep, before the clock is read. Where tests ask for it, it comes back
/// late; otherwise it is nothing.
#[inline]
pub fn after_sleep() {
    #[cfg(feature = "late-wakes")]
    late::after_sleep();
}

#[cfg(test)]
mod tests;
