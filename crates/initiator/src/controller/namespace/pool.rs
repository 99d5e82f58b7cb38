//! Queue pairs that the namespaces of a controller share.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::admin::pause::pause_ms;
use crate::controller::Controller;
use crate::error::Error;
use crate::error::connect_error::ConnectError;
use crate::options::Options;
use crate::queue::QueuePair;
use crate::wait::lock::lock;
use crate::wait::{Time, Waiter};

/// The queue pairs that namespaces share: as many as were ever needed at once, and at most as many
/// as the controller has granted.
#[derive(Default)]
pub(crate) struct Pool {
    inner: Mutex<Inner>,
    freed: Condvar,
}

#[derive(Default)]
struct Inner {
    idle: Vec<QueuePair>,
    /// Queue pairs that exist or are being connected.
    made: usize,
    /// Counts the reasons to look for a queue pair again: one was given back or closed, or could
    /// not be connected.
    freed: u64,
    /// The last one could not be connected.
    refusal: Option<Refusal>,
}

/// A queue pair that could not be connected. Until `next` no other is tried, however many calls
/// want one: each attempt costs the target a connection, and perhaps a proof of who the host is.
struct Refusal {
    error: Arc<ConnectError>,
    /// The controller's generation: after a reconnect, the next attempt is made at once.
    generation: u64,
    /// Attempts in a row that have failed, less one.
    failed: u32,
    next: Instant,
}

/// A queue pair for exclusive use, or the right to connect one. Dropping it closes the queue pair:
/// an abandoned call may have left commands in it.
pub(crate) struct Lease<'a> {
    pool: &'a Pool,
    /// `None` while it is being connected.
    queue: Option<QueuePair>,
    is_idle: bool,
    /// All queues are in use, or no other can be connected: others who look for one now would find
    /// the same.
    is_refused: bool,
    /// [`Inner::freed`] when it was taken.
    freed: u64,
}

impl Lease<'_> {
    /// The queue pair.
    pub(crate) fn queue(&mut self) -> &mut QueuePair {
        self.queue.as_mut().expect("only a queue pair that was made is given away")
    }

    /// Makes the queue pair available to other calls.
    pub(crate) fn give_back(mut self) {
        self.is_idle = true;
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // One that is not kept is closed here, before `made` allows another one.
        let kept = self.queue.take().filter(|_| self.is_idle);
        let mut inner = lock(&self.pool.inner);
        match kept {
            Some(queue) => inner.idle.push(queue),
            None => inner.made -= 1,
        }
        // Without this, two that are refused would wake each other until a queue is free.
        if self.is_refused && inner.made > 0 {
            return;
        }
        inner.freed += 1;
        let is_empty = inner.made == 0;
        drop(inner);
        if is_empty {
            // While none can be connected, each of those that wait has to find out.
            self.pool.freed.notify_all();
        } else {
            self.pool.freed.notify_one();
        }
    }
}

/// Result of [`Pool::find`].
enum Found<'a> {
    Idle(Lease<'a>),
    /// None is idle; one may be connected.
    Vacant(Lease<'a>),
    /// None is idle, and it is too early to connect one, with [`Inner::freed`].
    Refused(Error, u64),
}

impl Pool {
    /// Closes the idle queue pairs.
    pub(crate) fn clear(&self) {
        let idle = {
            let mut inner = lock(&self.inner);
            inner.made -= inner.idle.len();
            std::mem::take(&mut inner.idle)
        };
        drop(idle);
    }

    /// An idle queue pair or a new one. If the controller grants no more, or no more can be
    /// connected, waits until one is given back.
    pub(crate) async fn take(&self, controller: &Controller, waiter: &Waiter) -> Result<Lease<'_>, Error> {
        loop {
            // Without a reference to the controller, which owns the pool: it would never be
            // dropped.
            let shared = Arc::clone(controller.shared());
            let generation = shared.generation();
            let (error, freed) = match self.find(generation, &waiter.time) {
                Found::Idle(lease) => return Ok(lease),
                Found::Refused(error, freed) => (error, freed),
                Found::Vacant(mut lease) => match QueuePair::establish(shared, None, None, waiter.clone()).await {
                    Ok(queue) => {
                        lease.queue = Some(queue);
                        lock(&self.inner).refusal = None;
                        return Ok(lease);
                    }
                    Err(error) => {
                        if let Error::Connect(error) = &error {
                            self.refused(error, generation, &waiter.time, controller.options());
                        }
                        lease.is_refused = is_refusal(&error);
                        (error, lease.freed)
                    }
                },
            };
            if !is_refusal(&error) || lock(&self.inner).made == 0 {
                return Err(error);
            }
            self.wait_for_idle(freed, waiter).await;
        }
    }

    fn find(&self, generation: u64, time: &Time) -> Found<'_> {
        let mut inner = lock(&self.inner);
        let queue = inner.idle.pop();
        let is_vacant = queue.is_none();
        if is_vacant
            && let Some(refusal) = &inner.refusal
            && refusal.generation == generation
            && time.now() < refusal.next
        {
            return Found::Refused(Error::Connect(Arc::clone(&refusal.error)), inner.freed);
        }
        inner.made += usize::from(is_vacant);
        let lease = Lease { pool: self, queue, is_idle: false, is_refused: false, freed: inner.freed };
        if is_vacant { Found::Vacant(lease) } else { Found::Idle(lease) }
    }

    /// One could not be connected. The pauses are those of reconnecting the controller.
    fn refused(&self, error: &Arc<ConnectError>, generation: u64, time: &Time, options: &Options) {
        let mut inner = lock(&self.inner);
        let last = inner.refusal.as_ref().filter(|last| last.generation == generation);
        let now = time.now();
        if last.is_some_and(|last| now < last.next) {
            // Another one that was tried at the same time.
            return;
        }
        let failed = last.map_or(0, |last| last.failed.saturating_add(1));
        if failed == 0 {
            tracing::warn!(address = %options.address(), error = %error.summary(), "a queue cannot be connected");
        }
        let pause = Duration::from_millis(pause_ms(failed, options.reconnect_delay_ms, time.jitter()));
        inner.refusal = Some(Refusal { error: Arc::clone(error), generation, failed, next: now + pause });
    }

    /// Waits until one may be idle or vacant, unless that was so since `freed` was counted.
    async fn wait_for_idle(&self, freed: u64, waiter: &Waiter) {
        if waiter.is_stepped() {
            waiter.step().await;
            return;
        }
        let inner = lock(&self.inner);
        if inner.freed == freed && inner.made > 0 {
            drop(self.freed.wait(inner).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Whether there is no other queue pair to be had, but those that exist go on.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::NoFreeQueue { .. } | Error::Connect(_))
}
