//! How a thread waits whose processor other programs use, too: which of three ways, by what each of
//! them brings.
//!
//! While nobody else computes, a thread spins and yields now and then. Beside a program that
//! computes every such yield gives away a whole slice, milliseconds; spinning without yields is
//! right if the other end runs elsewhere, and sleeping if it needs this processor. No rule says
//! these apart, since it also matters what the other end does, so all are tried: the work done in a
//! period is the measure.
//!
//! Owns the choice and its measurements. It does not spin, yield, sleep or read a clock.

use crate::yields::SLOW_US;

/// So many microseconds after a slow yield another one counts as the second: the processor is
/// shared. A single one may be anything.
const SUSPICION_US: u64 = 50_000;

/// The length of a trial, microseconds, and of what is compared to notice a change: several times
/// as long as others run in between, so that it counts how often the thread runs, and not whether
/// it did. One program takes slices of 3 to 4 ms.
const TRIAL_US: u64 = 16_000;

/// The longest trial, microseconds.
const TRIAL_MAX_US: u64 = 64_000;

/// A trial is longer than the last slow yield by this factor.
const YIELDS_PER_TRIAL: u64 = 4;

/// After so many times of a trial that differ something has changed.
const CHANGED: u8 = 2;

/// A trial that brings less than a third after this part of its time, in sixteenths, ends.
const FAILED_SIXTEENTHS: u64 = 7;

/// A trial of [`WaitMethod::Spin`] that brings about as much takes so long, microseconds: spinning
/// may be better only if both ends do, and the other one begins a trial in this time.
const UNDECIDED_US: u64 = 100_000;

/// Between two trials, microseconds: with the trial 100 ms at most.
const PERIOD_US: u64 = 64_000;

/// The period varies by this, microseconds: two ends that try at the same times would measure each
/// other's trials.
const JITTER_US: u64 = 20_000;

/// After so many trials of another way yields are tried: the processor may not be shared any more.
const TRIALS_PER_YIELD: u32 = 3;

/// After so many periods of [`WaitMethod::Spin`] it has to prove again that it is better. Where
/// both ends spin, and both had better sleep, neither gains by sleeping alone.
const PERIODS_PER_PROOF: u8 = 4;

/// After so many microseconds without a poll, measurements are discarded.
const FORGOTTEN_US: u64 = 2_000_000;

/// A way to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitMethod {
    /// Spins, yields now and then, and sleeps after a while.
    Yield,
    /// Spins for a short time without yielding, then sleeps.
    Spin,
    /// Sleeps immediately.
    Sleep,
}

/// Work in a period.
#[derive(Clone, Copy, Debug, Default)]
struct Harvest {
    work: u64,
    time_us: u64,
}

impl Harvest {
    /// Whether `self` times `parts` is less than `other` times `of`, per time.
    const fn is_less(self, parts: u64, other: Self, of: u64) -> bool {
        let mine = (self.work as u128 * other.time_us as u128).saturating_mul(parts as u128);
        mine < (other.work as u128 * self.time_us as u128).saturating_mul(of as u128)
    }
}

/// A point in time, microseconds, and the work until then.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at_us: u64,
    work: u64,
}

impl Mark {
    const fn until(self, now: Self) -> Harvest {
        Harvest { work: now.work.saturating_sub(self.work), time_us: now.at_us.saturating_sub(self.at_us) }
    }
}

/// What one thread knows of its processor.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    /// The way that brings most. [`WaitMethod::Yield`]: the processor is not shared.
    method: WaitMethod,
    /// The way that is tried in place of it.
    trial: Option<WaitMethod>,
    /// The beginning of the present period or trial.
    began: Mark,
    /// The beginning of the time that is compared with `last`.
    recent: Mark,
    /// All work that was done, in any unit.
    work: u64,
    /// What `way` brought before the trial, or before the last times that differ.
    last: Option<Harvest>,
    /// How often in a row the time of a trial brought far more or far less than `last`.
    changed: u8,
    /// Periods since [`WaitMethod::Spin`] has proved to be better.
    periods: u8,
    /// The time of a trial, microseconds.
    trial_us: u64,
    /// Trials of [`WaitMethod::Spin`] and [`WaitMethod::Sleep`].
    trials: u32,
    /// When a yield was slow for the last time while the processor was not known to be shared,
    /// and the thread's involuntary switches until then.
    suspected: Option<(u64, u64)>,
    polled_us: u64,
}

impl Sharing {
    pub(crate) const fn new() -> Self {
        Self {
            method: WaitMethod::Yield,
            trial: None,
            began: Mark { at_us: 0, work: 0 },
            recent: Mark { at_us: 0, work: 0 },
            work: 0,
            last: None,
            changed: 0,
            periods: 0,
            trial_us: TRIAL_US,
            trials: 0,
            suspected: None,
            polled_us: 0,
        }
    }

    /// Whether other programs compute on this thread's processor.
    pub(crate) const fn is_shared(&self) -> bool {
        !matches!(self.method, WaitMethod::Yield)
    }

    /// How to wait now.
    pub(crate) const fn method(&self) -> WaitMethod {
        match self.trial {
            Some(trial) => trial,
            None => self.method,
        }
    }

    /// The work that was done until now.
    pub(crate) const fn set_work(&mut self, work: u64) {
        self.work = work;
    }

    /// The thread yielded from `now_us` on for `away_us`. `switches` is how often another thread
    /// has run in place of this one although it did not sleep: a hypervisor that takes the
    /// processor away makes a yield slow, too, and no other way is better then.
    pub(crate) fn yielded(&mut self, now_us: u64, away_us: u64, switches: impl FnOnce() -> u64) {
        if away_us < SLOW_US {
            return;
        }
        let now_us = now_us.saturating_add(away_us);
        self.trial_us = away_us.saturating_mul(YIELDS_PER_TRIAL).clamp(TRIAL_US, TRIAL_MAX_US);
        if self.is_shared() {
            if self.trial == Some(WaitMethod::Yield) {
                self.begin(now_us, None);
            }
            return;
        }
        let switches = switches();
        let before = self.suspected.replace((now_us, switches));
        if before.is_some_and(|(at, count)| now_us.saturating_sub(at) <= SUSPICION_US && switches > count) {
            self.suspected = None;
            self.sleep_first(now_us);
        }
    }

    /// There is no work at `now_us`: decides whether the way to wait changes.
    pub(crate) fn on_idle_poll(&mut self, now_us: u64) {
        let unseen_us = now_us.saturating_sub(self.polled_us);
        self.polled_us = now_us;
        if !self.is_shared() {
            return;
        }
        if unseen_us > FORGOTTEN_US {
            *self = Self { work: self.work, polled_us: now_us, ..Self::new() };
            return;
        }
        let now = Mark { at_us: now_us, work: self.work };
        match self.trial {
            None => self.end_period(now),
            Some(tried) => self.end_trial(now, tried),
        }
    }

    fn end_period(&mut self, now: Mark) {
        let recent = self.recent.until(now);
        let period = self.began.until(now);
        let jitter_us = ((self.began.at_us ^ self.began.work).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % JITTER_US;
        let Some(last) = self.last else {
            if recent.time_us >= self.trial_us + jitter_us {
                self.last = Some(recent);
                self.begin(now.at_us, Some(self.other()));
            }
            return;
        };
        if recent.time_us < self.trial_us {
            return;
        }
        self.recent = now;
        let is_worse = recent.is_less(2, last, 1);
        if is_worse || last.is_less(3, recent, 2) {
            self.changed += 1;
        } else {
            self.changed = 0;
            self.last = Some(recent);
        }
        // Programs have come or gone, or the other end waits in another way now, and does not only
        // try it.
        let has_changed = self.changed >= CHANGED;
        if has_changed || period.time_us >= PERIOD_US + jitter_us {
            self.periods = self.periods.saturating_add(1);
            if self.method == WaitMethod::Spin && (self.periods >= PERIODS_PER_PROOF || has_changed && is_worse) {
                return self.sleep_first(now.at_us);
            }
            self.last = Some(if has_changed { recent } else { period });
            self.begin(now.at_us, Some(self.other()));
        }
    }

    fn end_trial(&mut self, now: Mark, tried: WaitMethod) {
        let mut harvest = self.began.until(now);
        let last = self.last.unwrap_or_default();
        let failed_us = self.trial_us * FAILED_SIXTEENTHS / 16;
        let has_failed = harvest.time_us >= failed_us && harvest.is_less(3, last, 1);
        if harvest.time_us < self.trial_us && !has_failed {
            return;
        }
        if tried == WaitMethod::Yield {
            // No yield was slow.
            if !harvest.is_less(4, last, 3) {
                self.method = tried;
            }
            return self.begin(now.at_us, None);
        }
        if tried == WaitMethod::Spin && !has_failed {
            let recent = self.recent.until(now);
            if recent.time_us < self.trial_us {
                return;
            }
            self.recent = now;
            let is_decided = last.is_less(6, recent, 5) || recent.is_less(8, last, 7);
            if !is_decided && harvest.time_us < UNDECIDED_US {
                return;
            }
            harvest = recent;
        }
        self.trials = self.trials.wrapping_add(1);
        if last.is_less(6, harvest, 5) {
            self.method = tried;
            self.periods = 0;
            self.last = Some(harvest);
        }
        let next = self.trials.is_multiple_of(TRIALS_PER_YIELD).then_some(WaitMethod::Yield);
        self.begin(now.at_us, next);
    }

    /// Begins with [`WaitMethod::Sleep`], which is nowhere very wrong: the others have to prove
    /// that they are better than that.
    fn sleep_first(&mut self, now_us: u64) {
        self.method = WaitMethod::Sleep;
        self.last = None;
        self.periods = 0;
        self.begin(now_us, None);
    }

    const fn other(&self) -> WaitMethod {
        if matches!(self.method, WaitMethod::Spin) { WaitMethod::Sleep } else { WaitMethod::Spin }
    }

    fn begin(&mut self, now_us: u64, trial: Option<WaitMethod>) {
        self.trial = trial;
        self.began = Mark { at_us: now_us, work: self.work };
        self.recent = self.began;
        self.changed = 0;
    }
}
