//! Time, waiting and waking. The only file that calls poll(2).
//!
//! Sequences that wait (connecting, the Admin Queue's loop, re-creating a queue) are `async fn`s
//! whose only await point is a [`Waiter`]. On a thread it sleeps inside of `poll`, so that one poll
//! runs to the end ([`run`]). Stepped, it returns `Pending`, and the caller polls again when
//! something may have happened ([`crate::stepped`]).

pub(crate) mod lock;
pub(crate) mod on_thread;

use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use lock::lock;

/// The clock of a controller.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    clock: Clock,
    began: Instant,
}

/// [`Time::now_ms`] of a simulated clock at its beginning; not 0, so that 0 is in the past.
const SIMULATED_MS: u64 = 1_000_000;

impl Time {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), began: clock.now() }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Milliseconds of a monotonic clock that is cheap to read, with a resolution of a few
    /// milliseconds.
    #[inline]
    pub(crate) fn now_ms(&self) -> u64 {
        if self.clock.is_simulated() {
            return self.simulated_ms();
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        seconds * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
    }

    #[cold]
    fn simulated_ms(&self) -> u64 {
        SIMULATED_MS + self.now_us() / 1000
    }

    /// Microseconds since this was made, for `Idle`.
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.now().saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// The time until `due_ms`; `None` for `u64::MAX`, which is never. One millisecond longer than
    /// the difference: the clock is coarse, and waking too early would be a busy loop.
    pub(crate) fn until(&self, due_ms: u64) -> Option<Duration> {
        (due_ms != u64::MAX).then(|| Duration::from_millis(due_ms.saturating_sub(self.now_ms()) + 1))
    }

    /// See [`Clock::jitter`].
    pub(crate) fn jitter(&self) -> u64 {
        self.clock.jitter()
    }
}

/// Wakes one sleeper, from any thread.
#[derive(Debug)]
pub(crate) struct Waker {
    /// `None` when stepped.
    event: Option<OwnedFd>,
    /// Whether it was woken since it was last cleared: saves `clear` a system call.
    set: AtomicBool,
}

impl Waker {
    /// Makes the descriptor readable until [`Waker::clear`].
    pub(crate) fn wake(&self) {
        if let Some(event) = &self.event {
            // It fails only when 2^64 - 2 wakes have not been cleared: then it is readable already.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
        // After the write, so that `clear` never misses the event.
        self.set.store(true, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        if self.set.load(Ordering::Relaxed) {
            self.set.store(false, Ordering::Release);
            if let Some(event) = &self.event {
                // It fails only if another thread has cleared it meanwhile.
                let _ = rustix::io::read(event, &mut [0u8; 8]);
            }
        }
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(AsFd::as_fd)
    }
}

/// A request to stop, which interrupts every wait. It cannot be withdrawn.
#[derive(Debug)]
pub(crate) struct Cancel {
    set: AtomicBool,
    waker: Waker,
}

impl Cancel {
    pub(crate) fn cancel(&self) {
        self.set.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}

/// What to wait for on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch<'a> {
    /// `None` for a link without a descriptor, as when stepped.
    pub(crate) descriptor: Option<BorrowedFd<'a>>,
    /// Whether to wait until it is writable, too.
    pub(crate) blocked: bool,
}

/// How a sequence waits, and its clock.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) time: Time,
    /// When stepped: when the sequence is to be polled again, if nothing happens before.
    due: Option<Arc<Mutex<Option<Instant>>>>,
}

impl Waiter {
    /// Sleeps, on the thread that polls.
    pub(crate) fn on_thread(clock: &Clock) -> Self {
        Self { time: Time::new(clock), due: None }
    }

    /// Returns `Pending` instead of sleeping, and needs no descriptors.
    pub(crate) fn stepped(clock: &Clock) -> Self {
        Self { time: Time::new(clock), due: Some(Arc::default()) }
    }

    /// A waiter of the same kind for another sequence.
    pub(crate) fn another(&self) -> Self {
        Self { time: self.time.clone(), due: self.due.as_ref().map(|_| Arc::default()) }
    }

    pub(crate) fn is_stepped(&self) -> bool {
        self.due.is_some()
    }

    /// When a stepped sequence is to be polled again, if nothing happens before; `None` for never.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.as_ref().and_then(|due| *lock(due))
    }

    pub(crate) fn waker(&self) -> Result<Waker, Errno> {
        let event = match self.due {
            Some(_) => None,
            None => Some(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
        };
        Ok(Waker { event, set: AtomicBool::new(false) })
    }

    pub(crate) fn cancel(&self) -> Result<Cancel, Errno> {
        Ok(Cancel { set: AtomicBool::new(false), waker: self.waker()? })
    }

    /// Waits until `link` is ready, one of `wakers` is woken, or `deadline`. May return earlier.
    pub(crate) async fn wait(
        &self,
        link: Option<Watch<'_>>,
        wakers: &[&Waker],
        deadline: Option<Instant>,
    ) -> Result<(), Errno> {
        if let Some(due) = &self.due {
            *lock(due) = deadline;
            YieldOnce { yielded: false }.await;
            return Ok(());
        }
        let of_link = link.and_then(|Watch { descriptor, blocked }| Some((descriptor?, blocked)));
        let mut fds = Vec::with_capacity(wakers.len() + 1);
        fds.extend(of_link.map(|(descriptor, blocked)| {
            let interest = if blocked { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(descriptor, interest)
        }));
        let wakers = wakers.iter().filter_map(|waker| waker.descriptor());
        fds.extend(wakers.map(|waker| PollFd::from_borrowed_fd(waker, PollFlags::IN)));
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(self.time.now()));
        wait(&mut fds, timeout).map(drop)
    }

    /// Gives way once, where it is stepped.
    pub(crate) async fn step(&self) {
        if let Some(due) = &self.due {
            *lock(due) = None;
            YieldOnce { yielded: false }.await;
        }
    }

    /// Waits for `time`, or until `cancel` is set.
    pub(crate) async fn sleep(&self, time: Duration, cancel: Option<&Cancel>) {
        let end = self.time.now() + time;
        let waker = cancel.map(Cancel::waker);
        while !cancel.is_some_and(Cancel::is_set) && self.time.now() < end {
            // If the system refuses to wait, the time passes nevertheless.
            let _ = self.wait(None, waker.as_slice(), Some(end)).await;
        }
    }
}

/// Returns `Pending` once.
struct YieldOnce {
    yielded: bool,
}

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.yielded, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Polls a sequence once.
pub(crate) fn step<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(std::task::Waker::noop()))
}

/// Runs a sequence whose waiter sleeps on this thread.
pub(crate) fn run<F: Future>(sequence: F) -> F::Output {
    match step(pin!(sequence)) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a waiter on a thread sleeps until there is something to do"),
    }
}

/// The shorter of two optional durations.
pub(crate) fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// Sleeps until one of `fds` is ready or `timeout` has passed (`None`: for ever). Returns whether
/// one is ready; a signal interrupts it.
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
