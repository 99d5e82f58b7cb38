//! How long a thread without work spins before it sleeps, and whether it yields meanwhile.
//!
//! Owns the decision: spinning, yielding to other threads of the processor, or sleeping; and what
//! is learned for it from every sleep and every yield. It does not own the sources of work, the
//! waiting itself, or a clock: the time is a parameter, in microseconds of any monotonic clock.
//!
//! A sleeping thread is woken late: by 10 µs on an idle machine, by tens of them in a virtual
//! machine, by hundreds when the hypervisor is busy. If two ends spin for a shorter time than the
//! other's wake-up takes, each makes the other sleep with every message. So [`Idle`] measures the
//! cost of a wake-up and spins for a multiple of it, but only while work arrives within that time.
//! Otherwise the thread sleeps, and an idle thread uses no processor.
//!
//! Where other programs compute on the same processor a yield takes milliseconds and a wake-up says
//! nothing of the machine. There the ways to wait are tried and compared (`sharing.rs`).

#[cfg(feature = "late-wakes")]
pub mod late;
mod sharing;
mod thread;
mod yields;

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use sharing::{Sharing, WaitMethod};

pub use thread::{Account, cpu_time};
pub use yields::Yields;

/// Polls between two steps while no other thread needs the processor.
const POLLS_PER_STEP: u32 = 8;

/// If `sched_yield` takes this long, another thread ran; otherwise it takes a fraction of it.
const OTHERS_RAN: Duration = Duration::from_micros(2);

/// The longest spin time, whatever a wake-up costs, microseconds. With 4 ms two ends do not sleep
/// on a hypervisor that takes 2 ms to run each of them.
const SPIN_MAX_US: u64 = 4_000;

/// Spinning pays off for this multiple of the cost of a wake-up: at 8 to 11 µs, the cost on an idle
/// machine, that is not much more than the default of 50 µs.
const WORTH: u64 = 8;

/// The longest first sleep of a wait, microseconds: its end shows how late this thread is woken.
const PROBE_US: u64 = 50;

/// A wait of this length, microseconds, or of twice the configured time if that is longer, was too
/// long for spinning, unless wake-ups are so late that it would have paid off. The learned time is
/// reset, and the next sleep is not bounded: longer spinning and a second wake-up for each message
/// would be the main costs of an idle thread.
const SPARSE_US: u64 = 1_000;

/// After this many of these waits in a row a thread sleeps immediately: its work is Keep Alives, or
/// commands for a slow device, and spinning would be most of their cost. A single such wait is not
/// significant: there is one before each burst, and before each command of several messages.
const SPARSE_WAITS: u8 = 2;

/// The upper bound of one sample of the cost, microseconds: a thread that was stopped for a second
/// is not a late wake-up.
const SAMPLE_MAX_US: u64 = 1_000;

/// Of this many waits without a measurement, one spins for the configured time and measures: the
/// machine may have become faster or slower.
const REMEASURE_EVERY: u32 = 64;

/// A thread spins for longer than the configured time only while it waits at least this often...
const TRAFFIC_WAITS: u32 = 100;

/// ...in this time, microseconds: bursts of Keep Alives end soon, and spinning for them would cost
/// more than everything else that an idle thread does. Two ends that take 2 ms to wake wait for
/// each other as often as that.
const TRAFFIC_US: u64 = 500_000;

/// How long a thread spins that does not yield, microseconds, since others use its processor:
/// longer than an end on another processor takes to wake up and answer.
const SHARED_SPIN_US: u64 = 200;

/// Where others use the processor a thread may wait for milliseconds although there is traffic. A
/// wait of this length, microseconds, is a long one there.
const SHARED_SPARSE_US: u64 = 20_000;

/// The next action of a thread without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleStep {
    /// [`Idle::give_way`], then poll again.
    GiveWay,
    /// Sleep until there is work, or for at most this many microseconds; with [`precisely`] if
    /// there is a bound. After the sleep call [`Idle::woke`].
    Sleep(Option<u64>),
}

/// The state of one waiting thread, or of one source of work that threads wait for in turns.
///
/// Most threads call [`Idle::rest`] after every [`Idle::polls_per_step`] polls without work. If
/// yielding and sleeping are in separate places, the order of calls is: [`Idle::step`] after every
/// [`Idle::polls_per_step`] polls without work, [`Idle::woke`] after every sleep, [`Idle::found`]
/// whenever there was work, and [`Idle::stop`] when the thread stops waiting without work.
/// [`Idle::set_work`] says how much there was before a step: by that the ways to wait are
/// compared.
#[derive(Clone, Debug)]
pub struct Idle {
    base_us: u64,
    /// The learned spin time: never less than `base_us`.
    spin_us: u64,
    /// How late a wake-up is, as far as known.
    wake_cost_us: u64,
    wait: Option<Wait>,
    /// Another thread ran at the last yield.
    shares_processor: bool,
    /// Waits since a wake-up was last measured, without those within `base_us`.
    unmeasured: u32,
    /// The number of long waits in a row; not counted beyond [`SPARSE_WAITS`].
    sparse_waits: u8,
    traffic: Traffic,
    sharing: Sharing,
}

/// A time without work.
#[derive(Clone, Debug)]
struct Wait {
    since_us: u64,
    /// How long to spin.
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
    /// `base_us`: the minimum spin time, microseconds, unless work is rare. 0 always sleeps
    /// immediately; beyond 4 ms nothing is learned, and [`u64::MAX`] never sleeps.
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
            sharing: Sharing::new(),
        }
    }

    /// The number of polls before [`Idle::step`] is called.
    #[must_use]
    pub const fn polls_per_step(&self) -> u32 {
        let yields_to_others = self.shares_processor && self.yields();
        if yields_to_others || self.sleeps_at_once() { 1 } else { POLLS_PER_STEP }
    }

    /// Whether other programs compute on the thread's processor, as far as known.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.sharing.is_shared()
    }

    /// All the work that was done until now, in a unit of the caller: commands, or bytes.
    pub const fn set_work(&mut self, work: u64) {
        self.sharing.set_work(work);
    }

    /// Whether [`Idle::give_way`] yields.
    const fn yields(&self) -> bool {
        match self.sharing.method() {
            WaitMethod::Yield => true,
            WaitMethod::Spin => false,
            // One that never sleeps does what comes closest.
            WaitMethod::Sleep => self.base_us == u64::MAX,
        }
    }

    /// The current spin time, microseconds.
    #[must_use]
    pub fn spin_us(&self) -> u64 {
        if self.sleeps_at_once() {
            return 0;
        }
        self.spin_us.min(self.reach_us()).max(self.base_us)
    }

    const fn sleeps_at_once(&self) -> bool {
        let sleeps = matches!(self.sharing.method(), WaitMethod::Sleep) && self.base_us != u64::MAX;
        self.base_us == 0 || self.sparse_waits >= SPARSE_WAITS || sleeps
    }

    /// The longest spin time that pays off, microseconds.
    fn reach_us(&self) -> u64 {
        (self.wake_cost_us * WORTH).min(SPIN_MAX_US).max(self.base_us)
    }

    /// There was no work.
    pub fn step(&mut self, now_us: u64) -> IdleStep {
        self.sharing.on_idle_poll(now_us);
        if self.base_us == 0 {
            return IdleStep::Sleep(None);
        }
        let shared = !matches!(self.sharing.method(), WaitMethod::Yield);
        let measure = self.unmeasured >= REMEASURE_EVERY && !shared;
        let spin_us = match shared {
            _ if measure => self.base_us,
            true if self.sleeps_at_once() => 0,
            true => self.base_us.max(SHARED_SPIN_US),
            false => self.spin_us(),
        };
        let wait = self.wait.get_or_insert(Wait { since_us: now_us, spin_us, sleep: None });
        if wait.sleep.is_none() && now_us.saturating_sub(wait.since_us) < wait.spin_us {
            return IdleStep::GiveWay;
        }
        let measure = wait.sleep.is_none() && (measure || self.sparse_waits == 0) && !shared;
        let bound_us = if measure { Some(PROBE_US) } else { None };
        wait.sleep = Some(Sleep { at_us: now_us, bound_us });
        IdleStep::Sleep(bound_us)
    }

    /// Lets other threads of the processor run, unless these are programs that compute. Their time
    /// does not count as spinning: the other end may be one of them, which was waiting for this
    /// thread's processor.
    pub fn give_way(&mut self, now_us: u64) {
        if !self.yields() {
            return thread::ask_for_short_slices();
        }
        let before = Instant::now();
        std::thread::yield_now();
        let away = before.elapsed();
        #[cfg(feature = "late-wakes")]
        let away = late::measured(away);
        self.gave_way(now_us, away, thread::involuntary_switches);
    }

    /// To be called after [`Idle::polls_per_step`] polls without work: yields, or sleeps as
    /// [`Idle::sleep`] does. Returns whether it slept.
    ///
    /// # Errors
    /// Those of `wait`.
    pub fn rest<E>(
        &mut self,
        now_us: impl Fn() -> u64,
        wait: impl FnOnce(Option<Duration>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let now = now_us();
        match self.step(now) {
            IdleStep::GiveWay => {
                self.give_way(now);
                Ok(false)
            }
            IdleStep::Sleep(bound_us) => self.sleep(bound_us, now_us, wait).map(|_| true),
        }
    }

    /// Sleeps as [`IdleStep::Sleep`] says, and learns from it. `wait` sleeps until there may be
    /// work, at most for the given time (`None`: no bound), and returns whether there may be work.
    ///
    /// # Errors
    /// Those of `wait`.
    pub fn sleep<E>(
        &mut self,
        bound_us: Option<u64>,
        now_us: impl Fn() -> u64,
        wait: impl FnOnce(Option<Duration>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        if self.is_shared() {
            thread::ask_for_short_slices();
        }
        let woken = match bound_us.map(Duration::from_micros) {
            Some(bound) => precisely(|| wait(Some(bound))),
            None => wait(None),
        };
        after_sleep();
        self.woke(now_us(), matches!(woken, Ok(true)));
        woken
    }

    /// Like [`Idle::give_way`], if the caller has yielded itself, from `now_us` on for the time
    /// `away`. `switches` is how often others have run in place of the thread until now although
    /// it did not sleep.
    pub fn gave_way(&mut self, now_us: u64, away: Duration, switches: impl FnOnce() -> u64) {
        self.shares_processor = away >= OTHERS_RAN;
        if !self.shares_processor {
            return;
        }
        let away_us = u64::try_from(away.as_micros()).unwrap_or(u64::MAX);
        self.sharing.yielded(now_us, away_us, switches);
        if let Some(wait) = &mut self.wait {
            wait.since_us = wait.since_us.saturating_add(away_us);
        }
    }

    /// The sleep that [`Idle::step`] requested has ended; `by_event`: because there may be work,
    /// not because of the bound.
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
            // Woken by work or by the timer, it ran this much later than the end of the sleep.
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

    /// Whether the thread is waiting: if not, its caller need not read the clock.
    #[inline]
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// The wait has ended, for whatever reason.
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
        if self.is_shared() {
            let is_long = waited_us >= SHARED_SPARSE_US;
            self.sparse_waits = if is_long { SPARSE_WAITS.min(self.sparse_waits + 1) } else { 0 };
            return;
        }
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
            // With this spin time the thread would not have slept. Twice that, since waits vary.
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
    // If the system refuses, wake-ups seem later than they are.
    let slack = rustix::thread::current_timer_slack().ok().and_then(NonZeroU64::new);
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let result = sleep();
    let _ = rustix::thread::set_current_timer_slack(slack);
    result
}

/// Microseconds since `began`, the time format of [`Idle`].
#[must_use]
pub fn micros_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// To be called after every sleep, before the clock is read. Tests can delay it; otherwise it does
/// nothing.
#[inline]
pub fn after_sleep() {
    #[cfg(feature = "late-wakes")]
    late::after_sleep();
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
