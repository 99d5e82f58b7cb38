//! The delayed doorbell of i10 (Hwang et al., NSDI 2020): small requests are held for a short time
//! and sent in one batch (i10's caravan). Decides when to send and owns the timer; the engine owns
//! what is sent.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::options::Options;
use crate::wait::{Time, Waiter};

/// Holds requests until there are enough of them or the first has waited for `timeout`.
#[derive(Debug)]
pub(crate) struct Doorbell {
    timeout: Duration,
    commands_max: u32,
    bytes_max: usize,
    commands: u32,
    bytes: usize,
    /// When the first held request was queued; meaningless without any.
    since: Instant,
    time: Time,
    /// Part of the queue pair's descriptor; `None` when stepped.
    timer: Option<OwnedFd>,
    /// When the timer fires, if it is set. It is never reset: a spurious wake-up costs less than
    /// setting the timer for every batch.
    fires_at: Option<Instant>,
}

/// The longest hold, microseconds.
const TIMEOUT_MAX_US: u32 = 1_000_000;

impl Doorbell {
    /// `None` if the options don't ask for batching.
    ///
    /// # Errors
    /// The system has no timer descriptor.
    pub(crate) fn new(options: &Options, waiter: &Waiter) -> Result<Option<Self>, Errno> {
        if options.batch_timeout_us == 0 {
            return Ok(None);
        }
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = match waiter.is_stepped() {
            true => None,
            false => Some(timerfd_create(TimerfdClockId::Monotonic, flags)?),
        };
        Ok(Some(Self {
            timeout: Duration::from_micros(u64::from(options.batch_timeout_us.min(TIMEOUT_MAX_US))),
            commands_max: u32::from(options.batch_nr.max(1)),
            bytes_max: usize::try_from(options.batch_bytes).unwrap_or(usize::MAX),
            commands: 0,
            bytes: 0,
            since: waiter.time.now(),
            time: waiter.time.clone(),
            timer,
            fires_at: None,
        }))
    }

    /// A request of `bytes` was queued.
    pub(crate) fn note(&mut self, bytes: usize) {
        if self.commands == 0 {
            self.since = self.time.now();
        }
        self.commands += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether queued requests are to be held. If so, the descriptor becomes readable when the hold
    /// ends.
    pub(crate) fn holds(&mut self) -> bool {
        let now = self.time.now();
        if self.fires_at.is_some_and(|at| now >= at) {
            // If the timer has not quite fired yet, it is read the next time.
            if self.timer.as_ref().is_none_or(|timer| rustix::io::read(timer, &mut [0u8; 8]).is_ok()) {
                self.fires_at = None;
            }
        }
        if self.commands == 0 {
            return false;
        }
        let waited = now.duration_since(self.since);
        if self.commands >= self.commands_max || self.bytes >= self.bytes_max || waited >= self.timeout {
            self.sent();
            return false;
        }
        // If the timer is set, it fires before this hold ends and is set again then.
        if self.fires_at.is_none() && !self.set(now, self.timeout - waited) {
            self.sent();
            return false;
        }
        true
    }

    /// The held requests were sent.
    pub(crate) fn sent(&mut self) {
        self.commands = 0;
        self.bytes = 0;
    }

    /// When the held requests are to be sent at the latest; `None` without any.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.commands > 0).then_some(self.since + self.timeout)
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.timer.as_ref().map(AsFd::as_fd)
    }

    fn set(&mut self, now: Instant, time: Duration) -> bool {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        // At least one nanosecond: zero would disarm the timer.
        let nanoseconds = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).max(1);
        let value = Timespec { tv_sec: nanoseconds / 1_000_000_000, tv_nsec: nanoseconds % 1_000_000_000 };
        let set = Itimerspec { it_interval: none, it_value: value };
        if let Some(timer) = &self.timer
            && timerfd_settime(timer, TimerfdTimerFlags::empty(), &set).is_err()
        {
            return false;
        }
        self.fires_at = Some(now + time);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_nvme::Nqn;
    use rustix::event::{PollFd, PollFlags};

    fn doorbell(timeout_us: u32, nr: u16, bytes: u32) -> Option<Doorbell> {
        let mut options = Options::new("127.0.0.1", 4420, Nqn::parse("nqn.2014-08.org.example:a").unwrap());
        options.batch_timeout_us = timeout_us;
        options.batch_nr = nr;
        options.batch_bytes = bytes;
        Doorbell::new(&options, &Waiter::on_thread(&ebof_clock::Clock::system())).unwrap()
    }

    #[test]
    fn without_a_hold_time_requests_are_sent_immediately() {
        assert!(doorbell(0, 16, 65536).is_none());
    }

    #[test]
    fn enough_requests_or_bytes_end_a_hold() {
        let mut bell = doorbell(1_000_000, 3, 10_000).unwrap();
        assert!(!bell.holds(), "there is nothing to hold");
        bell.note(512);
        bell.note(512);
        assert!(bell.holds());
        bell.note(512);
        assert!(!bell.holds(), "three are enough");
        assert!(!bell.holds());
        bell.note(9_999);
        assert!(bell.holds());
        bell.note(1);
        assert!(!bell.holds(), "the bytes are enough");
    }

    #[test]
    fn the_descriptor_says_when_a_hold_is_over() {
        let mut bell = doorbell(2_000, 100, u32::MAX).unwrap();
        for _ in 0..3 {
            bell.note(512);
            let began = Instant::now();
            while bell.holds() {
                crate::wait::wait(
                    &mut [PollFd::from_borrowed_fd(bell.descriptor().unwrap(), PollFlags::IN)],
                    Some(Duration::from_secs(10)),
                )
                .unwrap();
                assert!(began.elapsed() < Duration::from_secs(9), "the timer did not fire");
            }
            assert!(began.elapsed() >= Duration::from_micros(1_900));
        }
    }
}
