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

use super::{DirectDevice, Reactor};
use crate::direct::{SharedFunction, lock};
use crate::observe::troubles::Trouble;
use crate::shared::handle::index_of;

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
pub(in crate::reactor) const WATCHED_SHARE: usize = 32 << 10;

/// Whether functions are watched.
#[derive(Debug, Default)]
pub(in crate::reactor) struct Stalls {
    until_us: u64,
    /// Those of the thread up to the last long turn.
    page_faults: u64,
    known: Option<Known>,
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
    pub(in crate::reactor) fn watch(&mut self, function: &SharedFunction, now_us: u64) -> Option<Stopwatch> {
        let function = Arc::as_ptr(function).addr();
        self.are_watched(now_us).then(|| self.measure(function, Instant::now(), Account::of_thread))
    }

    /// Whether what a function takes is measured now.
    pub(in crate::reactor) const fn are_watched(&self, now_us: u64) -> bool {
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
    fn note_turn(&mut self, began_us: u64, now_us: u64, account: impl FnOnce() -> Account) {
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
}

/// What the thread does for a function.
pub(in crate::reactor) struct Stopwatch {
    began: Instant,
    account: Account,
}

impl Stopwatch {
    pub(in crate::reactor) fn begin() -> Self {
        Self { began: Instant::now(), account: Account::of_thread() }
    }

    /// How long its memory kept the thread, microseconds; 0 is not worth a word.
    pub(in crate::reactor) fn end(self) -> u64 {
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

impl Reactor {
    /// The turn that began then is over.
    pub(in crate::reactor) fn note_turn(&mut self, began_us: u64) {
        if !self.direct.is_empty() {
            self.stalls.note_turn(began_us, self.shared.clock.now_us(), Account::of_thread);
        }
    }

    /// What was done for a function: requests that devices take from it begin, too, since the
    /// kernel accesses their memory then.
    pub(in crate::reactor) fn end_watch(&mut self, watch: Stopwatch) -> u64 {
        // What cannot be started is told at the end of the turn.
        let _ = self.io.kick();
        watch.end()
    }

    /// The queue at `index` belongs to a function whose memory kept the thread for so long.
    #[cold]
    pub(in crate::reactor) fn charge_queue(&mut self, index: u32, cost_us: u64) {
        let is_its = |device: &DirectDevice| device.queues.iter().any(|(_, handle)| index_of(*handle) == index);
        // One that is being looked at is charged as a whole.
        let Some(at) = self.direct.iter().position(|device| device.as_deref().is_some_and(is_its)) else { return };
        let Some(mut device) = self.direct[at].take() else { return };
        self.charge(&mut device, cost_us);
        self.direct[at] = Some(device);
    }

    /// Leaves a function alone for a while, since its memory kept the thread for so long.
    #[cold]
    pub(in crate::reactor) fn charge(&mut self, device: &mut DirectDevice, cost_us: u64) {
        let is_other = |handle| !device.queues.iter().any(|(_, of)| *of == handle);
        if cost_us == 0 || !self.connections.iter().flatten().any(|connection| is_other(connection.handle)) {
            return;
        }
        let now_us = self.shared.clock.now_us();
        let until_us = rests_until_us(device.rests_until_us, cost_us, now_us);
        device.rests_until_us = Some(until_us);
        // What it does then counts from the first page on.
        self.stalls.watch_until(until_us + WATCH_US);
        lock(&device.function).is_resting = true;
        self.shared.trouble(device.host.as_str(), Trouble::Memory);
    }

    /// A function that was left alone goes on, if its time has come. Returns whether it does.
    pub(in crate::reactor) fn end_rest(&mut self, at: usize, now_us: u64) -> bool {
        let Some(device) = self.direct.get_mut(at) else { return false };
        if device.as_ref().and_then(|device| device.rests_until_us).is_none_or(|until_us| now_us < until_us) {
            return false;
        }
        let Some(mut device) = device.take() else { return false };
        device.rests_until_us = None;
        lock(&device.function).is_resting = false;
        let watch = Stopwatch::begin();
        self.resume_function(&mut device, now_us);
        let cost_us = watch.end();
        self.charge(&mut device, cost_us);
        self.direct[at] = Some(device);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        stalls.note_turn(1_000, 1_999, with(1));
        assert!(!stalls.are_watched(2_000));
        stalls.note_turn(2_000, 3_000, with(1));
        assert!(stalls.are_watched(3_000) && stalls.are_watched(1_002_999) && !stalls.are_watched(1_003_000));
        // Another program had the processor.
        stalls.note_turn(1_100_000, 1_104_000, with(1));
        assert!(!stalls.are_watched(1_104_000));
        stalls.note_turn(1_200_000, 1_204_000, with(2));
        assert!(stalls.are_watched(1_204_000));
    }
}
