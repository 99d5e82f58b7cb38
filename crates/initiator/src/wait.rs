//! Sleeping until a descriptor is ready, and waking a sleeper. The only place that calls poll(2).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebof_idle::Idle;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Milliseconds of a clock that never goes back, exact to a few of them and cheap to read.
pub(crate) fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Wakes one sleeper, from any thread.
#[derive(Debug)]
pub(crate) struct Waker {
    event: OwnedFd,
    /// Whether `event` was written since it was last cleared: spares those that are awake a system
    /// call.
    set: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> Result<Self, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, set: AtomicBool::new(false) })
    }

    /// Makes the descriptor readable until [`Waker::clear`].
    pub(crate) fn wake(&self) {
        // It fails only when 2^64 - 2 wakes have not been cleared: then it is readable already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        // Behind the write: who sees it clears an event that is there.
        self.set.store(true, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        if self.set.load(Ordering::Relaxed) {
            self.set.store(false, Ordering::Release);
            let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// A request to stop that interrupts every wait; once given it stays.
#[derive(Debug)]
pub(crate) struct Cancel {
    set: AtomicBool,
    waker: Waker,
}

impl Cancel {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { set: AtomicBool::new(false), waker: Waker::new()? })
    }

    pub(crate) fn cancel(&self) {
        self.set.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Sleeps for `time`, or until cancelled.
    pub(crate) fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.is_set() {
            let Some(rest) = end.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) else { return };
            let _ = wait(&mut [PollFd::new(&self.waker, PollFlags::IN)], Some(rest));
        }
    }
}

impl AsFd for Cancel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// Sleeps as `step` of an [`Idle`] asks, until one of `fds` is ready or `timeout` is over, and
/// tells `idle`. `now_us` is the clock that `idle` goes by.
pub(crate) fn wait_idle(
    idle: &mut Idle,
    fds: &mut [PollFd<'_>],
    timeout: Option<Duration>,
    bound_us: Option<u64>,
    now_us: impl Fn() -> u64,
) -> Result<(), Errno> {
    let woken = match bound_us.map(Duration::from_micros) {
        Some(bound) => ebof_idle::precisely(|| wait(fds, Some(timeout.map_or(bound, |timeout| timeout.min(bound))))),
        None => wait(fds, timeout),
    };
    ebof_idle::after_sleep();
    idle.woke(now_us(), matches!(woken, Ok(true)));
    woken.map(drop)
}

/// Sleeps until one of `fds` is ready or `timeout` is over (`None`: for ever). Whether one is
/// ready; a signal ends it early.
pub(crate) fn wait(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<bool, Errno> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    match poll(fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}
