//! Completions that come from other threads: the way from whoever ends a request to the
//! [`Io`](crate::Io) that waits for it.
//!
//! Used by the engines on threads and without a kernel for all of their requests, and by io_uring
//! for those that a device handed to a thread of its own.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::Completion;

/// Where completions from other threads wait.
#[derive(Debug)]
pub(crate) struct Inbox {
    done: Mutex<Vec<Completion>>,
    /// Whether `done` holds something: looked at without the lock.
    ready: AtomicBool,
    /// Written when `done` stops being empty; `None` where nobody sleeps.
    event: Option<Arc<OwnedFd>>,
}

impl Inbox {
    /// An inbox, and the descriptor that is readable while something is in it.
    pub(crate) fn new() -> io::Result<(Arc<Inbox>, Arc<OwnedFd>)> {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok((Inbox::with(Some(Arc::clone(&event))), event))
    }

    /// One that nobody sleeps on.
    pub(crate) fn without_event() -> Arc<Inbox> {
        Inbox::with(None)
    }

    fn with(event: Option<Arc<OwnedFd>>) -> Arc<Inbox> {
        Arc::new(Inbox { done: Mutex::default(), ready: AtomicBool::new(false), event })
    }

    /// Leaves a completion, and wakes whoever sleeps on the descriptor.
    pub(crate) fn finish(&self, completion: Completion) {
        let mut done = self.lock();
        done.push(completion);
        if done.len() == 1 {
            self.ready.store(true, Ordering::Release);
            if let Some(event) = &self.event {
                // Cannot fail: the counter is far from its limit, and the descriptor is ours.
                let _written: Result<usize, Errno> = rustix::io::write(event, &1_u64.to_ne_bytes());
            }
        }
    }

    /// Takes what is there.
    pub(crate) fn collect(&self, into: &mut VecDeque<Completion>) {
        if !self.ready.load(Ordering::Acquire) {
            return;
        }
        let mut done = self.lock();
        if let Some(event) = &self.event {
            // Under the lock: nobody adds between the reading and the taking, so that whoever adds
            // next finds it empty and writes again. An error here can only be EAGAIN, when the
            // counter is 0 already.
            let _counter: Result<usize, Errno> = rustix::io::read(event, &mut [0_u8; 8]);
        }
        self.ready.store(false, Ordering::Relaxed);
        into.extend(done.drain(..));
    }

    /// Whether the completion of the request with this tag waits here.
    pub(crate) fn holds(&self, tag: u64) -> bool {
        self.lock().iter().any(|completion| completion.tag == tag)
    }

    /// A lock is poisoned when a thread panicked while it held it; nothing here panics between two
    /// related changes.
    fn lock(&self) -> MutexGuard<'_, Vec<Completion>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way back for one request that a device answered with
/// [`Submitted::Pending`](crate::Submitted::Pending) and that another thread will end. Got by
/// [`Io::remote`](crate::Io::remote), once per request; it may be used on any thread, also when the
/// [`Io`](crate::Io) is gone.
///
/// Whoever drops it undelivered leaves the [`Io`](crate::Io) waiting for ever.
#[derive(Debug)]
#[must_use = "the request is in flight until its completion is delivered"]
pub struct Remote {
    inbox: Arc<Inbox>,
}

impl Remote {
    pub(crate) fn new(inbox: &Arc<Inbox>) -> Remote {
        Remote { inbox: Arc::clone(inbox) }
    }

    /// Ends the request: [`Io::poll`](crate::Io::poll) will return the completion, and whoever
    /// sleeps is woken.
    pub fn deliver(self, completion: Completion) {
        self.inbox.finish(completion);
    }
}
