//! Virtual machines whose memory keeps the thread waiting.
//!
//! A page of a host's memory that is not there is made, or read from swap, while the thread that
//! accesses it waits, and a host that takes its memory back (holes that it punches) has the kernel
//! hold up whoever accesses it meanwhile, for as long as that takes. All others at the same thread
//! wait, too. So what it takes is charged to the function: it gets a tenth of the thread's time at
//! most, and is left alone until that is so.
//!
//! A turn that takes long is what tells, if pages were missing; the clock is read once in a turn
//! for that. Whose fault it was is measured in the turns that follow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_idle::Account;

use crate::direct::{SharedFunction, lock};

/// A turn that takes so long makes the following ones suspicious, and so much at a time is charged,
/// microseconds. Page faults of a transfer that are nobody's fault take less.
const STALL_US: u64 = 1_000;

/// For how long functions are watched after a long turn, microseconds.
const WATCH_US: u64 = 1_000_000;

/// A function is left alone for so many times what it took.
const REST: u64 = 9;

/// At most for this long, microseconds: hosts lose patience after 30 s.
const REST_MAX_US: u64 = 5_000_000;

/// The thread's account is taken for what follows within this time, if that is of the same
/// function: it takes calls of the system that cost as much as a command does.
const FRESH: Duration = Duration::from_micros(100);

/// What a queue may do in a turn while it is watched, bytes: so many pages are accessed before it
/// is looked at what they took.
pub(super) const WATCHED_SHARE: usize = 32 << 10;

/// Whether functions are watched, and which are left alone.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    until_us: u64,
    /// Those of the thread up to the last long turn.
    page_faults: u64,
    known: Option<Known>,
    rests: Vec<Rest>,
    /// The function that is looked at as a whole now.
    whole: Option<usize>,
}

/// A function that is left alone.
#[derive(Debug)]
struct Rest {
    /// Its address.
    function: usize,
    /// Until when, microseconds of the target's clock.
    until_us: u64,
}

/// The thread's account.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// When it was asked for.
    at: Instant,
    /// The address of the function that has been served since.
    function: usize,
    account: Account,
}

impl Stalls {
    /// Begins to measure what a function takes, if functions are watched.
    pub(super) fn watch(&mut self, function: &SharedFunction, now_us: u64) -> Option<Stopwatch> {
        self.are_watched(now_us).then(|| self.measure(address(function), Instant::now(), Account::of_thread))
    }

    /// Whether what a function takes is measured now.
    pub(super) const fn are_watched(&self, now_us: u64) -> bool {
        now_us < self.until_us
    }

    fn measure(&mut self, function: usize, began: Instant, account: impl FnOnce() -> Account) -> Stopwatch {
        let serves = |known: &Known| known.function == function && began.saturating_duration_since(known.at) < FRESH;
        let known = self.known.filter(serves).unwrap_or_else(|| Known { at: began, function, account: account() });
        self.known = Some(known);
        Stopwatch { began, account: known.account }
    }

    /// A turn that served functions has begun then, and is over. A long one is nobody's fault if no
    /// page was missing since the last long one: others had the processor. Measuring costs more
    /// than a command does.
    pub(super) fn note_turn(&mut self, began_us: u64, now_us: u64) {
        self.note_turn_of(began_us, now_us, Account::of_thread);
    }

    fn note_turn_of(&mut self, began_us: u64, now_us: u64, account: impl FnOnce() -> Account) {
        if now_us.saturating_sub(began_us) < STALL_US {
            return;
        }
        let page_faults = account().page_faults;
        if page_faults != self.page_faults {
            self.page_faults = page_faults;
            self.watch_until(now_us + WATCH_US);
        }
    }

    const fn watch_until(&mut self, until_us: u64) {
        if self.until_us < until_us {
            self.until_us = until_us;
        }
    }

    /// A function is looked at as a whole from now on: what its queues take is not charged to it
    /// again.
    pub(super) fn begin_whole(&mut self, function: &SharedFunction) {
        debug_assert!(self.whole.is_none(), "one function is looked at after the other");
        self.whole = Some(address(function));
    }

    pub(super) fn end_whole(&mut self) {
        self.whole = None;
    }

    /// Whether a function is looked at as a whole now.
    pub(super) fn is_whole(&self, function: &SharedFunction) -> bool {
        self.whole == Some(address(function))
    }

    /// Leaves a function alone for a while, since its memory kept the thread for so long.
    pub(super) fn charge(&mut self, function: &SharedFunction, cost_us: u64, now_us: u64) {
        let until_us = rests_until_us(self.known_until_us(function), cost_us, now_us);
        self.rests.retain(|rest| rest.function != address(function));
        self.rests.push(Rest { function: address(function), until_us });
        // What it does then counts from the first page on.
        self.watch_until(until_us + WATCH_US);
        lock(function).is_resting = true;
    }

    fn known_until_us(&self, function: &SharedFunction) -> Option<u64> {
        let rest = self.rests.iter().find(|rest| rest.function == address(function))?;
        Some(rest.until_us)
    }

    /// Whether a function that was left alone may go on now: its time has come.
    pub(super) fn end_rest(&mut self, function: &SharedFunction, now_us: u64) -> bool {
        if self.known_until_us(function).is_none_or(|until_us| now_us < until_us) {
            return false;
        }
        self.forget(function);
        lock(function).is_resting = false;
        true
    }

    /// When the next one may go on, microseconds of the target's clock.
    pub(super) fn next_end_us(&self) -> Option<u64> {
        self.rests.iter().map(|rest| rest.until_us).min()
    }

    /// The function is gone: another one may have its address.
    pub(super) fn forget(&mut self, function: &SharedFunction) {
        self.rests.retain(|rest| rest.function != address(function));
        self.known.take_if(|known| known.function == address(function));
    }
}

fn address(function: &SharedFunction) -> usize {
    Arc::as_ptr(function).addr()
}

/// What the thread does for a function.
pub(super) struct Stopwatch {
    began: Instant,
    account: Account,
}

impl Stopwatch {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), account: Account::of_thread() }
    }

    /// How long its memory kept the thread, microseconds; 0 is not worth a word.
    pub(super) fn end(self) -> u64 {
        // What took less is nothing, whatever it was.
        match ebof_idle::micros_since(self.began) {
            ..STALL_US => 0,
            elapsed_us => cost_us(self.account, Account::of_thread(), elapsed_us),
        }
    }
}

/// What was taken between two looks, microseconds. The time that others had the processor is theirs
/// unless the thread has waited for something: the kernel does not tell for how long.
fn cost_us(before: Account, after: Account, elapsed_us: u64) -> u64 {
    if after.page_faults == before.page_faults {
        return 0;
    }
    let cost_us = if after.waits == before.waits { after.cpu_us.saturating_sub(before.cpu_us) } else { elapsed_us };
    if cost_us < STALL_US { 0 } else { cost_us }
}

/// Until when a function is left alone that took so long, and may be left alone already.
fn rests_until_us(known_us: Option<u64>, cost_us: u64, now_us: u64) -> u64 {
    let from_us = known_us.unwrap_or(0).max(now_us);
    from_us.saturating_add(cost_us.saturating_mul(REST)).min(now_us + REST_MAX_US)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ebof_nvme::property::{Cap, Version};

    use super::*;
    use crate::direct::DirectFunction;

    const NOTHING: Account = Account { cpu_us: 0, waits: 0, page_faults: 0 };

    // @test limits.slow-guest-memory
    #[test]
    fn who_made_the_thread_wait_is_charged() {
        let after = |cpu_us, waits, page_faults| Account { cpu_us, waits, page_faults };
        assert_eq!(cost_us(NOTHING, after(100, 1, 1), 216_000), 216_000, "it waited for a page");
        assert_eq!(cost_us(NOTHING, after(5_000, 0, 4), 9_000), 5_000, "pages were made, and others had the processor");
        assert_eq!(cost_us(NOTHING, after(5_000, 3, 0), 9_000), 0, "it computed, and waited for something else");
        assert_eq!(cost_us(NOTHING, after(900, 0, 4), 9_000), 0, "as ever");
    }

    // @test limits.slow-guest-memory
    #[test]
    fn a_function_gets_a_tenth() {
        assert_eq!(rests_until_us(None, 2_000, 1_000_000), 1_018_000);
        assert_eq!(rests_until_us(Some(1_018_000), 2_000, 1_010_000), 1_036_000, "what was at a device came back");
        assert_eq!(rests_until_us(Some(7), 2_000, 1_000_000), 1_018_000);
        assert_eq!(rests_until_us(None, 60_000_000, 1_000_000), 6_000_000, "its host does not give up");
        assert_eq!(rests_until_us(None, u64::MAX, 1_000_000), 6_000_000);
    }

    #[test]
    fn an_account_serves_what_begins_soon_after_it_for_the_same_function() {
        let mut stalls = Stalls::default();
        let began = Instant::now();
        let mut asked = 0;
        let served =
            [(1, 0, 1), (1, 60, 1), (1, 99, 1), (1, 100, 2), (1, 150, 2), (1, 5_000, 3), (2, 5_001, 4), (1, 5_002, 5)];
        for (function, after_us, times) in served {
            let account = || {
                asked += 1;
                Account { cpu_us: after_us, ..NOTHING }
            };
            let watch = stalls.measure(function, began + Duration::from_micros(after_us), account);
            assert_eq!(asked, times, "{after_us}");
            assert!(after_us - watch.account.cpu_us < 100 && watch.began == began + Duration::from_micros(after_us));
        }
    }

    // @test limits.slow-guest-memory
    #[test]
    fn functions_are_watched_for_a_while_after_a_long_turn_with_page_faults() {
        let with = |page_faults| move || Account { page_faults, ..NOTHING };
        let mut stalls = Stalls::default();
        stalls.note_turn_of(1_000, 1_999, with(1));
        assert!(!stalls.are_watched(2_000));
        stalls.note_turn_of(2_000, 3_000, with(1));
        assert!(stalls.are_watched(3_000) && stalls.are_watched(1_002_999) && !stalls.are_watched(1_003_000));
        // Another program had the processor.
        stalls.note_turn_of(1_100_000, 1_104_000, with(1));
        assert!(!stalls.are_watched(1_104_000));
        stalls.note_turn_of(1_200_000, 1_204_000, with(2));
        assert!(stalls.are_watched(1_204_000));
    }

    #[test]
    fn a_function_rests_until_its_time_has_come() {
        let function = || Arc::new(Mutex::new(DirectFunction::new(Cap(0), Version::V2_1, 2)));
        let (slow, other) = (function(), function());
        let mut stalls = Stalls::default();
        assert!(!stalls.end_rest(&slow, 1_000_000) && stalls.next_end_us().is_none());
        stalls.charge(&slow, 2_000, 1_000_000);
        assert!(lock(&slow).is_resting && !lock(&other).is_resting);
        assert_eq!(stalls.next_end_us(), Some(1_018_000));
        stalls.charge(&slow, 2_000, 1_010_000);
        assert_eq!(stalls.next_end_us(), Some(1_036_000));
        assert!(!stalls.end_rest(&slow, 1_035_999) && !stalls.end_rest(&other, 1_036_000));
        assert!(stalls.end_rest(&slow, 1_036_000) && !lock(&slow).is_resting);
        assert!(stalls.are_watched(2_035_999), "what it does now counts");
        stalls.charge(&other, 2_000, 2_000_000);
        stalls.forget(&other);
        assert!(stalls.next_end_us().is_none());
    }

    #[test]
    fn a_function_that_is_looked_at_as_a_whole_is_charged_once() {
        let function = || Arc::new(Mutex::new(DirectFunction::new(Cap(0), Version::V2_1, 2)));
        let (one, other) = (function(), function());
        let mut stalls = Stalls::default();
        stalls.begin_whole(&one);
        assert!(stalls.is_whole(&one) && !stalls.is_whole(&other));
        stalls.end_whole();
        assert!(!stalls.is_whole(&one));
    }
}
