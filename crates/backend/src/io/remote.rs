//! Completions from other threads to the [`Io`](crate::Io) that waits for them.
//!
//! Used for all requests of the engines on threads and without a kernel, and with io_uring for
//! requests that a device hands to a thread of its own.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::Completion;

/// The queue of completions from other threads.
#[derive(Debug)]
pub(crate) struct Inbox {
    done: Mutex<Vec<Completion>>,
    /// Whether `done` is not empty; read without the lock.
    ready: AtomicBool,
    /// Signalled when `done` becomes non-empty; `None` if nobody sleeps on it.
    event: Option<Arc<OwnedFd>>,
}

impl Inbox {
    /// An inbox, and the descriptor that is readable while something is in it.
    pub(crate) fn new() -> io::Result<(Arc<Inbox>, Arc<OwnedFd>)> {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok((Inbox::with(Some(Arc::clone(&event))), event))
    }

    /// An inbox without a descriptor.
    pub(crate) fn without_event() -> Arc<Inbox> {
        Inbox::with(None)
    }

    fn with(event: Option<Arc<OwnedFd>>) -> Arc<Inbox> {
        Arc::new(Inbox { done: Mutex::default(), ready: AtomicBool::new(false), event })
    }

    /// Adds a completion, and signals the descriptor.
    pub(crate) fn push(&self, completion: Completion) {
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

    /// Moves all completions to `into`.
    pub(crate) fn drain(&self, into: &mut VecDeque<Completion>) {
        if !self.ready.load(Ordering::Acquire) {
            return;
        }
        let mut done = self.lock();
        if let Some(event) = &self.event {
            // Under the lock: whoever adds the next completion finds the queue empty, and signals
            // again. An error can only be EAGAIN, if the counter is 0 already.
            let _counter: Result<usize, Errno> = rustix::io::read(event, &mut [0_u8; 8]);
        }
        self.ready.store(false, Ordering::Relaxed);
        into.extend(done.drain(..));
    }

    /// Whether the completion of the request with this tag is in the queue.
    pub(crate) fn contains(&self, tag: u64) -> bool {
        self.lock().iter().any(|completion| completion.tag == tag)
    }

    /// A poisoned lock is used: nothing here panics between two related changes.
    fn lock(&self) -> MutexGuard<'_, Vec<Completion>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Completes one request from another thread, for a device that returned
/// [`Submitted::Pending`](crate::Submitted::Pending). From [`Io::remote`](crate::Io::remote), once
/// per request; usable on any thread, also after the [`Io`](crate::Io) was dropped.
///
/// If it is dropped without [`deliver`](Remote::deliver), the request stays in flight for ever.
#[derive(Debug)]
#[must_use = "the request is in flight until its completion is delivered"]
pub struct Remote {
    inbox: Arc<Inbox>,
}

impl Remote {
    pub(crate) fn new(inbox: &Arc<Inbox>) -> Remote {
        Remote { inbox: Arc::clone(inbox) }
    }

    /// Delivers the completion to [`Io::poll`](crate::Io::poll), and wakes the thread that waits
    /// for it.
    pub fn deliver(self, completion: Completion) {
        self.inbox.push(completion);
    }
}
