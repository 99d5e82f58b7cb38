//! What a thread runs its requests on: one io_uring, or a few threads where the kernel allows none.
//!
//! Owns the requests in flight with their buffers, and the choice between the two engines. How either works is in
//! `uring.rs` and `threads.rs`; what a request does step by step is in `job.rs`.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::{Completion, Error};

/// Which engine an [`Io`] runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring, or threads where io_uring is not permitted or `EBOF_IO_URING=0` is in the environment.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// Threads.
    Threads,
}

/// What an [`Io`] has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Requests accepted as `Pending`.
    pub accepted: u64,
    /// Completions returned by `poll` or `wait`.
    pub completed: u64,
    /// Times the batch was handed over: `io_uring_enter` calls, or wake-ups of the threads.
    pub handovers: u64,
}

/// One thread's I/O. It belongs to the thread that made it: an io_uring of the quick kind takes requests from that
/// thread only, so the type is neither `Send` nor `Sync`.
///
/// The caller's turn: `Device::submit` as often as there is work, [`kick`](Io::kick) once, [`poll`](Io::poll) until it
/// returns `None`, and only then sleep on the file descriptor.
///
/// Dropping it waits for everything in flight, without telling anyone how it ended.
#[derive(Debug)]
pub struct Io {
    event: OwnedFd,
    stats: IoStats,
    _one_thread: PhantomData<*const ()>,
}

impl Io {
    /// For at most `entries` requests in flight (1 to 4096; others are brought into this range), on
    /// [`Engine::Auto`].
    ///
    /// # Errors
    /// `Engine`: neither io_uring nor threads can be had.
    pub fn new(entries: u32) -> Result<Io, Error> {
        Io::with_engine(entries, Engine::Auto)
    }

    /// The same on a given engine.
    ///
    /// # Errors
    /// `Engine`: the engine asked for cannot be had.
    pub fn with_engine(_entries: u32, _engine: Engine) -> Result<Io, Error> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|source| Error::Engine {
            what: "create an eventfd",
            hint: "",
            source: source.into(),
        })?;
        Ok(Io { event, stats: IoStats::default(), _one_thread: PhantomData })
    }

    /// The engine in use: `Uring` or `Threads`.
    #[must_use]
    pub fn engine(&self) -> Engine {
        Engine::Threads
    }

    /// Starts everything that was submitted since the last call, in one batch. Costs nothing when there is nothing.
    ///
    /// # Errors
    /// `Engine`: the kernel takes no requests; they stay queued. `Class::Busy` does not occur: what is temporary is
    /// tried again by the next call.
    pub fn kick(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The next request that has ended, if any. Never blocks; looks at memory first and enters the kernel only when it
    /// has said that something waits there.
    pub fn poll(&mut self) -> Option<Completion> {
        None
    }

    /// `kick`, then blocks until a request ends or `timeout` is over; `None` for the time-out or when nothing is in
    /// flight. For programs that do nothing else meanwhile.
    ///
    /// # Errors
    /// As [`kick`](Io::kick).
    pub fn wait(&mut self, _timeout: Option<Duration>) -> Result<Option<Completion>, Error> {
        Ok(None)
    }

    /// Requests accepted whose completion was not returned yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        0
    }

    /// Asks for the end of the request with this tag; `false` if none is in flight. Its completion still comes, once:
    /// [`Class::Aborted`](crate::Class::Aborted), or what it had become before the request could be stopped.
    pub fn cancel(&mut self, _tag: u64) -> bool {
        false
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> IoStats {
        self.stats
    }
}

impl AsFd for Io {
    /// Readable when completions wait, provided that `poll` was called until it returned `None` before.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
