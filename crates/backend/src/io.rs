//! The I/O of a thread: an io_uring, or a few threads where the kernel does not permit one.
//!
//! Owns the requests in flight with their buffers, and the choice of the engine. The engines are in
//! the folder: `io/uring.rs`, `io/threads.rs`, `io/caller.rs`, `io/external.rs`; the steps of a
//! request are in `job.rs`.

mod caller;
mod external;
mod registered;
pub(crate) mod remote;
pub(crate) mod stats;
mod threads;
#[expect(unsafe_code, reason = "io_uring entries point into buffers; see the rule at the top of the file")]
mod uring;

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use crate::job::Job;
use crate::{Completion, Error};

use caller::CallerIo;
use external::External;
use remote::Remote;
use stats::IoStats;
use threads::Threads;
use uring::Ring;

/// Which engine an [`Io`] runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring, or threads where io_uring is not permitted or `EBOF_IO_URING=0` is in the
    /// environment.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// Threads.
    Threads,
    /// The thread that submits a request does it before that returns, one at a time. For threads
    /// that wait for each; a device whose requests other threads complete refuses as busy.
    Caller,
}

/// The I/O of one thread: the one that made it. It is neither `Send` nor `Sync`, because an
/// io_uring with `IORING_SETUP_SINGLE_ISSUER` takes requests from one thread only.
///
/// The caller's turn: `Device::submit` as often as there is work, [`kick`](Io::kick) once,
/// [`poll`](Io::poll) until it returns `None`, and only then sleep on the file descriptor.
///
/// Dropping it waits for the requests in flight, and drops their completions; it does not wait for
/// requests that other threads complete ([`remote`](Io::remote)).
#[derive(Debug)]
pub struct Io {
    backing: Backing,
    _one_thread: PhantomData<*const ()>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per thread, and it is on the way of every request")]
enum Backing {
    Ring(Ring),
    Threads(Threads),
    Caller(CallerIo),
    External(External),
}

/// The most requests that one [`Io`] can be made for.
const ENTRIES_MAX: u32 = 4096;
/// In the environment, `0` makes [`Engine::Auto`] choose threads.
const ENVIRONMENT: &str = "EBOF_IO_URING";

impl Io {
    /// For at most `entries` requests in flight (clamped to 1 to 4096), on [`Engine::Auto`].
    ///
    /// # Errors
    /// `Engine`: neither io_uring nor threads are available.
    pub fn new(entries: u32) -> Result<Io, Error> {
        Io::with_engine(entries, Engine::Auto)
    }

    /// The same on a given engine.
    ///
    /// # Errors
    /// `Engine`: that engine is not available.
    pub fn with_engine(entries: u32, engine: Engine) -> Result<Io, Error> {
        let entries = usize::try_from(entries.clamp(1, ENTRIES_MAX)).expect("at most 4096");
        let forbidden = || std::env::var_os(ENVIRONMENT).is_some_and(|value| value == "0");
        let backing = match engine {
            Engine::Threads => Backing::Threads(Threads::new(entries)?),
            Engine::Caller => Backing::Caller(CallerIo::default()),
            Engine::Auto if forbidden() => Backing::Threads(Threads::new(entries)?),
            Engine::Uring => Backing::Ring(Ring::new(entries).map_err(no_ring)?),
            Engine::Auto => match Ring::new(entries) {
                Ok(ring) => Backing::Ring(ring),
                Err(error) => {
                    tell_of_threads(&no_ring(error));
                    Backing::Threads(Threads::new(entries)?)
                }
            },
        };
        Ok(Io { backing, _one_thread: PhantomData })
    }

    /// For at most `entries` requests in flight (clamped to 1 to 4096), all of which are completed
    /// by their devices through [`remote`](Io::remote). Makes no system calls: a request to a file
    /// or block device fails with [`Class::Unsupported`](crate::Class::Unsupported).
    ///
    /// [`wait`](Io::wait) calls `advance` until there is a completion. `advance` returns whether
    /// anything has happened; if not, `wait` with a time-out returns `None`, and `wait` without one
    /// panics, because it would never return.
    #[must_use]
    pub fn external(entries: u32, advance: Box<dyn FnMut() -> bool>) -> Io {
        let entries = usize::try_from(entries.clamp(1, ENTRIES_MAX)).expect("at most 4096");
        Io { backing: Backing::External(External::new(entries, advance)), _one_thread: PhantomData }
    }

    /// The engine in use: `Uring`, `Threads` or `Caller`; `None` for [`external`](Io::external).
    #[must_use]
    pub fn engine(&self) -> Option<Engine> {
        match &self.backing {
            Backing::Ring(_) => Some(Engine::Uring),
            Backing::Threads(_) => Some(Engine::Threads),
            Backing::Caller(_) => Some(Engine::Caller),
            Backing::External(_) => None,
        }
    }

    /// Accepts a job, or returns it if as many as allowed are in flight.
    pub(crate) fn start(&mut self, job: Job) -> Result<(), Box<Job>> {
        match &mut self.backing {
            Backing::Ring(ring) => ring.start(job),
            Backing::Threads(threads) => threads.start(job),
            Backing::Caller(caller) => caller.start(job),
            Backing::External(external) => external.start(job),
        }
    }

    /// A handle to complete a request on another thread, for a device that returns
    /// [`Submitted::Pending`](crate::Submitted::Pending). From now on the request counts as in
    /// flight. `None` if as many as allowed are in flight: the device then returns
    /// [`Submitted::Busy`](crate::Submitted::Busy).
    ///
    /// [`cancel`](Io::cancel) does not find such a request.
    pub fn remote(&mut self) -> Option<Remote> {
        match &mut self.backing {
            Backing::Ring(ring) => ring.remote(),
            Backing::Threads(threads) => threads.remote(),
            Backing::Caller(_) => None,
            Backing::External(external) => external.remote(),
        }
    }

    /// Starts everything that was submitted since the last call, in one batch, but for what began
    /// before: an engine need not let many requests wait. Costs nothing if there is nothing.
    ///
    /// # Errors
    /// `Engine`: the kernel takes no requests, even after several attempts. They stay queued for
    /// the next call.
    pub fn kick(&mut self) -> Result<(), Error> {
        match &mut self.backing {
            Backing::Ring(ring) => ring.kick(),
            Backing::Threads(threads) => threads.kick(),
            Backing::Caller(_) | Backing::External(_) => Ok(()),
        }
    }

    /// The next completion, if any. Never blocks, and enters the kernel only if the kernel has
    /// flagged that completions wait there.
    pub fn poll(&mut self) -> Option<Completion> {
        match &mut self.backing {
            Backing::Ring(ring) => ring.poll(),
            Backing::Threads(threads) => threads.poll(),
            Backing::Caller(caller) => caller.poll(),
            Backing::External(external) => external.poll(),
        }
    }

    /// The next completion. If there is none yet, starts what was submitted and blocks, at most for
    /// `timeout`. `None` after that, or if nothing is in flight. For threads that do nothing else.
    ///
    /// # Errors
    /// As [`kick`](Io::kick).
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Completion>, Error> {
        match &mut self.backing {
            Backing::Ring(ring) => ring.wait(timeout),
            Backing::Threads(threads) => threads.wait(timeout),
            Backing::Caller(caller) => caller.wait(timeout),
            Backing::External(external) => Ok(external.wait(timeout)),
        }
    }

    /// How many accepted requests have not returned their completion yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        match &self.backing {
            Backing::Ring(ring) => ring.in_flight(),
            Backing::Threads(threads) => threads.in_flight(),
            Backing::Caller(caller) => caller.in_flight(),
            Backing::External(external) => external.in_flight(),
        }
    }

    /// Cancels the request with this tag; `false` if none is in flight. Its completion still comes,
    /// once: [`Class::Aborted`](crate::Class::Aborted), or its result if it could not be stopped.
    /// Takes effect at the next [`kick`](Io::kick).
    pub fn cancel(&mut self, tag: u64) -> bool {
        match &mut self.backing {
            Backing::Ring(ring) => ring.cancel(tag),
            Backing::Threads(threads) => threads.cancel(tag),
            Backing::Caller(caller) => caller.cancel(tag),
            Backing::External(_) => false,
        }
    }

    /// Readable while completions wait, provided that `poll` has returned `None` before. A
    /// completion may also interrupt a sleeping thread with `EINTR`: poll, or sleep again. `None`
    /// for [`Engine::Caller`] and [`external`](Io::external).
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.backing {
            Backing::Ring(ring) => Some(ring.as_fd()),
            Backing::Threads(threads) => Some(threads.as_fd()),
            Backing::Caller(_) | Backing::External(_) => None,
        }
    }

    /// Gives back what is kept of memory that was freed: pages of regions that the kernel had
    /// registered stay pinned until this call, or until [`kick`](Io::kick) was called, or
    /// [`wait`](Io::wait) has blocked, once for every 8 of these regions. For programs that free
    /// buffers and then idle.
    pub fn release_memory(&mut self) {
        if let Backing::Ring(ring) = &mut self.backing {
            ring.release_memory();
        }
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> IoStats {
        match &self.backing {
            Backing::Ring(ring) => ring.stats(),
            Backing::Threads(threads) => threads.stats(),
            Backing::Caller(caller) => caller.stats(),
            Backing::External(external) => external.stats(),
        }
    }
}

/// Makes [`Io`]s: for those who need one for each of their threads.
#[derive(Clone)]
pub struct IoFactory(Arc<dyn Fn(u32) -> Result<Io, Error> + Send + Sync>);

impl IoFactory {
    /// `make` gets the number of requests that may be in flight, and is called on the thread that
    /// uses the [`Io`].
    pub fn new(make: impl Fn(u32) -> Result<Io, Error> + Send + Sync + 'static) -> IoFactory {
        IoFactory(Arc::new(make))
    }

    /// An [`Io`] for the calling thread, with at most `entries` requests in flight.
    ///
    /// # Errors
    /// `Engine`: there is none to be had.
    pub fn make(&self, entries: u32) -> Result<Io, Error> {
        (self.0)(entries)
    }
}

impl From<Engine> for IoFactory {
    fn from(engine: Engine) -> IoFactory {
        IoFactory::new(move |entries| Io::with_engine(entries, engine))
    }
}

impl Default for IoFactory {
    /// On [`Engine::Auto`].
    fn default() -> IoFactory {
        IoFactory::from(Engine::Auto)
    }
}

impl fmt::Debug for IoFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IoFactory")
    }
}

/// Tells it once, not for every thread that would have a ring; as a warning where a limit is the
/// reason, which somebody can raise.
fn tell_of_threads(error: &Error) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    const WHAT: &str = "no io_uring: files and block devices are served by threads, more slowly";
    if TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    match error {
        Error::Engine { source, .. } if source.kind() == io::ErrorKind::OutOfMemory => {
            tracing::warn!(%error, "{WHAT}");
        }
        _ => tracing::info!(%error, "{WHAT}"),
    }
}

fn no_ring(source: io::Error) -> Error {
    let hint = match Errno::from_io_error(&source) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "; it is not permitted here (see /proc/sys/kernel/io_uring_disabled, or the container's seccomp profile)"
        }
        Some(Errno::NOSYS) => "; it takes Linux 5.6 or later",
        Some(Errno::NOMEM) => "; raise the limit of locked memory (`ulimit -l`, LimitMEMLOCK= of systemd)",
        _ => "",
    };
    Error::Engine { what: "set up io_uring", hint, source }
}
