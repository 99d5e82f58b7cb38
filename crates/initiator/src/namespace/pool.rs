//! Queue pairs that the namespaces of a controller share.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::controller::Controller;
use crate::error::Error;
use crate::lock::lock;
use crate::queue::QueuePair;
use crate::wait::Waiter;

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
}

/// A queue pair for exclusive use, or the right to connect one. Dropping it closes the queue pair:
/// an abandoned call may have left commands in it.
pub(crate) struct Lease<'a> {
    pool: &'a Pool,
    /// `None` while it is being connected.
    queue: Option<QueuePair>,
    is_idle: bool,
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
        match self.queue.take() {
            Some(queue) if self.is_idle => lock(&self.pool.inner).idle.push(queue),
            // Closed before `made` allows another one.
            queue => {
                drop(queue);
                lock(&self.pool.inner).made -= 1;
            }
        }
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
                    drop(lease);
                    if !matches!(error, Error::NoFreeQueue { .. }) || lock(&self.inner).made == 0 {
                        return Err(error);
                    }
                }
            }
            self.wait_for_idle(waiter).await;
        }
    }

    fn find(&self) -> Found<'_> {
        let mut inner = lock(&self.inner);
        let queue = inner.idle.pop();
        match queue {
            Some(_) => Found::Idle(Lease { pool: self, queue, is_idle: false }),
            None => {
                inner.made += 1;
                Found::Vacant(Lease { pool: self, queue, is_idle: false })
            }
        }
    }

    /// Waits until one may be idle or vacant.
    async fn wait_for_idle(&self, waiter: &Waiter) {
        if waiter.is_stepped() {
            waiter.step().await;
            return;
        }
        let inner = lock(&self.inner);
        if inner.idle.is_empty() && inner.made > 0 {
            drop(self.freed.wait(inner).unwrap_or_else(PoisonError::into_inner));
        }
    }
}
