//! Queue pairs that the namespaces of a controller share.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::controller::Controller;
use crate::error::Error;
use crate::queue::QueuePair;
use crate::wait::Waiter;
use crate::wait::lock::lock;

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
}

/// A queue pair for exclusive use, or the right to connect one. Dropping it closes the queue pair:
/// an abandoned call may have left commands in it.
pub(crate) struct Lease<'a> {
    pool: &'a Pool,
    /// `None` while it is being connected.
    queue: Option<QueuePair>,
    is_idle: bool,
    /// All queues are in use: others who look for one now would find the same.
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
        drop(inner);
        self.pool.freed.notify_one();
    }
}

/// Result of [`Pool::find`].
enum Found<'a> {
    Idle(Lease<'a>),
    /// None is idle; one may be connected.
    Vacant(Lease<'a>),
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

    /// An idle queue pair or a new one. If the controller grants no more, waits until one is given
    /// back.
    pub(crate) async fn take(&self, controller: &Controller, waiter: &Waiter) -> Result<Lease<'_>, Error> {
        loop {
            let mut lease = match self.find() {
                Found::Idle(lease) => return Ok(lease),
                Found::Vacant(lease) => lease,
            };
            // Without a reference to the controller, which owns the pool: it would never be
            // dropped.
            let shared = Arc::clone(controller.shared());
            match QueuePair::establish(shared, None, None, waiter.clone()).await {
                Ok(queue) => {
                    lease.queue = Some(queue);
                    return Ok(lease);
                }
                Err(error) => {
                    lease.is_refused = matches!(error, Error::NoFreeQueue { .. });
                    let Lease { is_refused, freed, .. } = lease;
                    drop(lease);
                    if !is_refused || lock(&self.inner).made == 0 {
                        return Err(error);
                    }
                    self.wait_for_idle(freed, waiter).await;
                }
            }
        }
    }

    fn find(&self) -> Found<'_> {
        let mut inner = lock(&self.inner);
        let queue = inner.idle.pop();
        let is_vacant = queue.is_none();
        inner.made += usize::from(is_vacant);
        let lease = Lease { pool: self, queue, is_idle: false, is_refused: false, freed: inner.freed };
        if is_vacant { Found::Vacant(lease) } else { Found::Idle(lease) }
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
