//! A controller without threads: the caller of [`Sequence::step`] is its scheduler. For
//! simulations, which run hosts and targets in one thread and in an order of their own, and for
//! programs that embed a host in their event loop.
//!
//! ```no_run
//! use ebof_initiator::{Options, stepped};
//!
//! # fn example(options: &Options, mut sleep_until: impl FnMut(Option<std::time::Instant>)) -> Result<(), Box<dyn std::error::Error>> {
//! let mut connecting = stepped::connect(options);
//! let (controller, mut admin_queue) = loop {
//!     match connecting.step() {
//!         Some(connected) => break connected?,
//!         None => sleep_until(connecting.due()),
//!     }
//! };
//! let mut opening = stepped::queue_pair::<Vec<u8>>(&controller);
//! let mut queue = loop {
//!     admin_queue.step();
//!     match opening.step() {
//!         Some(opened) => break opened?,
//!         None => sleep_until(opening.due()),
//!     }
//! };
//! // From here on: QueuePair::submit, QueuePair::poll, AdminCommand::poll and AdminQueue::step.
//! # queue.poll()?;
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here blocks, asks the kernel or starts a thread, as long as the options name a
//! [`crate::Transport`] other than TCP, whose connect blocks. With a simulated clock in the
//! options, everything is deterministic.
//!
//! There is no descriptor to wait for. A sequence may be able to continue after a step of the other
//! end or of another sequence of the same controller, and at its deadline: [`Sequence::due`],
//! [`QueuePair::due`]. Namespaces are opened and used by [`namespace`], [`read`], [`write()`],
//! [`flush`], [`write_zeroes`] and [`deallocate`]; several paths to a subsystem by [`subsystem()`],
//! [`add_path`] and [`path_queue`]. Calls that wait ([`Controller::admin`] and those
//! that run it, the rest of [`Namespace`], [`crate::Queues`]) are for controllers with a thread; of
//! a stepped one they return [`Error::Stepped`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::task::Poll;
use std::time::{Duration, Instant};

use ebof_nvme::{Cqe, Nsid, QueueId, Sqe};

use crate::admin;
use crate::command::data::{Completion, Data, IoBuffer, SubmitError};
use crate::controller::Controller;
use crate::controller::namespace::Namespace;
pub use crate::controller::paths::stepped::{
    PathKeeper, PathQueue, SteppedPath, add_path, path_namespace, path_queue, subsystem,
};
use crate::controller::reauthenticate::{self, Reauthenticated};
use crate::engine::Engine;
use crate::error::Error;
use crate::error::connect_error::ConnectError;
use crate::options::Options;
use crate::queue;
use crate::shared::AdminAnswer;
use crate::shared::bindings::Binding;
use crate::shared::maps::QueueClass;
use crate::wait::{self, Waiter};

/// An operation that takes several steps. Dropping it abandons the operation.
pub struct Sequence<T> {
    /// `None` when it has ended.
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    waiter: Waiter,
}

/// Serves a controller's Admin Queue: commands, Keep Alive, events, reconnecting. Ends when the
/// controller is disconnected or given up. Step it until then: these steps also shut the controller
/// down.
pub type AdminQueue = Sequence<()>;

impl<T> Sequence<T> {
    pub(crate) fn new(waiter: Waiter, future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Some(Box::pin(future)), waiter }
    }

    /// Continues as far as possible without waiting. Returns the result once, and `None` before and
    /// after that.
    pub fn step(&mut self) -> Option<T> {
        match wait::step(self.future.as_mut()?.as_mut()) {
            Poll::Pending => None,
            Poll::Ready(result) => {
                self.future = None;
                Some(result)
            }
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.future.is_none()
    }

    /// When to step again if nothing happens before; `None`: there is no deadline.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.future.as_ref().and_then(|_| self.waiter.due())
    }
}

impl<T> std::fmt::Debug for Sequence<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}

/// As [`Controller::connect`]. The result has the same errors.
#[must_use]
pub fn connect(options: &Options) -> Sequence<Result<(Controller, AdminQueue), ConnectError>> {
    let options = options.clone();
    let waiter = Waiter::stepped(&options.clock);
    Sequence::new(waiter.clone(), async move {
        let (controller, engine) = Controller::establish(options, waiter, Arc::default()).await?;
        let admin_queue = serve(&controller, engine);
        Ok((controller, admin_queue))
    })
}

/// Serves the Admin Queue of a controller that was connected.
pub(crate) fn serve(controller: &Controller, engine: Engine<Vec<u8>>) -> AdminQueue {
    let shared = Arc::clone(controller.shared());
    Sequence::new(shared.waiter.clone(), admin::run(shared, engine))
}

/// As [`Controller::queue_pair`]. The result has the same errors.
#[must_use]
pub fn queue_pair<B: IoBuffer + 'static>(controller: &Controller) -> Sequence<Result<QueuePair<B>, Error>> {
    open(controller, None)
}

/// As [`Controller::queue_pair_of`]. The result has the same errors.
#[must_use]
pub fn queue_pair_of<B: IoBuffer + 'static>(
    controller: &Controller,
    class: QueueClass,
) -> Sequence<Result<QueuePair<B>, Error>> {
    open(controller, Some(class))
}

fn open<B: IoBuffer + 'static>(
    controller: &Controller,
    class: Option<QueueClass>,
) -> Sequence<Result<QueuePair<B>, Error>> {
    let shared = Arc::clone(controller.shared());
    let waiter = shared.waiter.another();
    let guard = controller.guard();
    Sequence::new(waiter.clone(), async move {
        queue::QueuePair::establish(shared, Some(guard), class, waiter).await.map(QueuePair)
    })
}

/// An I/O queue pair of a stepped controller: [`crate::QueuePair`] without its descriptor and the
/// calls that wait.
#[derive(Debug)]
pub struct QueuePair<B: IoBuffer = Vec<u8>>(queue::QueuePair<B>);

impl<B: IoBuffer> QueuePair<B> {
    /// The queue's identifier.
    #[must_use]
    pub fn id(&self) -> QueueId {
        self.0.id()
    }

    /// As [`crate::QueuePair::capacity`].
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// As [`crate::QueuePair::in_flight`].
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    /// As [`crate::QueuePair::submit`].
    ///
    /// # Errors
    /// The same.
    pub fn submit(&mut self, sqe: Sqe, data: Data<B>, user: u64) -> Result<(), SubmitError<B>> {
        self.0.submit(sqe, data, user)
    }

    /// As [`crate::QueuePair::submit_bound`].
    ///
    /// # Errors
    /// The same.
    pub fn submit_bound(&mut self, binding: Binding, sqe: Sqe, data: Data<B>, user: u64) -> Result<(), SubmitError<B>> {
        self.0.submit_bound(binding, sqe, data, user)
    }

    /// As [`crate::QueuePair::flush`].
    ///
    /// # Errors
    /// The same.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.0.flush()
    }

    /// As [`crate::QueuePair::poll`]. After a loss it also continues to reconnect the queue.
    ///
    /// # Errors
    /// The same.
    pub fn poll(&mut self) -> Result<Option<Completion<B>>, Error> {
        self.0.poll()
    }

    /// As [`crate::QueuePair::abort`].
    pub fn abort(&mut self, user: u64) {
        self.0.abort(user);
    }

    /// When to poll again if nothing arrives before: for a command's deadline, the end of a hold,
    /// or the next step of reconnecting the queue. `None`: there is no deadline.
    pub fn due(&mut self) -> Option<Instant> {
        self.0.due()
    }
}

/// As [`Controller::reauthenticate`]. The result has the same errors.
#[must_use]
pub fn reauthenticate(controller: &Controller) -> Sequence<Result<Reauthenticated, ConnectError>> {
    let (controller, waiter) = (controller.clone(), controller.shared().waiter.another());
    Sequence::new(waiter.clone(), async move { reauthenticate::again(&controller, &waiter).await })
}

/// As [`Controller::namespace`]. The result has the same errors.
#[must_use]
pub fn namespace(controller: &Controller, nsid: Nsid) -> Sequence<Result<Namespace, Error>> {
    let (controller, waiter) = (controller.clone(), controller.shared().waiter.another());
    Sequence::new(waiter.clone(), async move { Namespace::open(controller, nsid, &waiter).await })
}

/// As [`Namespace::read`], into `data`, which comes back in any case.
#[must_use]
pub fn read(namespace: &Namespace, lba: u64, mut data: Vec<u8>) -> Sequence<(Vec<u8>, Result<(), Error>)> {
    let (namespace, waiter) = handle_and_waiter(namespace);
    Sequence::new(waiter.clone(), async move {
        let done = namespace.read_with(&waiter, lba, &mut data).await;
        (data, done)
    })
}

/// As [`Namespace::write`].
#[must_use]
pub fn write(namespace: &Namespace, lba: u64, data: Vec<u8>, fua: bool) -> Sequence<Result<(), Error>> {
    let (namespace, waiter) = handle_and_waiter(namespace);
    Sequence::new(waiter.clone(), async move { namespace.write_with(&waiter, lba, &data, fua).await })
}

/// As [`Namespace::flush`].
#[must_use]
pub fn flush(namespace: &Namespace) -> Sequence<Result<(), Error>> {
    let (namespace, waiter) = handle_and_waiter(namespace);
    Sequence::new(waiter.clone(), async move { namespace.flush_with(&waiter).await })
}

/// As [`Namespace::write_zeroes`].
#[must_use]
pub fn write_zeroes(namespace: &Namespace, lba: u64, blocks: u64, deallocate: bool) -> Sequence<Result<(), Error>> {
    let (namespace, waiter) = handle_and_waiter(namespace);
    Sequence::new(waiter.clone(), async move { namespace.write_zeroes_with(&waiter, lba, blocks, deallocate).await })
}

/// As [`Namespace::deallocate`].
#[must_use]
pub fn deallocate(namespace: &Namespace, ranges: Vec<(u64, u64)>) -> Sequence<Result<(), Error>> {
    let (namespace, waiter) = handle_and_waiter(namespace);
    Sequence::new(waiter.clone(), async move { namespace.deallocate_with(&waiter, &ranges).await })
}

/// A handle of the namespace and a waiter for a sequence.
fn handle_and_waiter(namespace: &Namespace) -> (Namespace, Waiter) {
    (namespace.clone(), namespace.controller().shared().waiter.another())
}

/// An outstanding admin command.
#[derive(Debug)]
pub struct AdminCommand {
    answer: Receiver<AdminAnswer>,
    controller: Controller,
}

impl AdminCommand {
    /// The completion, whatever its status, and the data: once, after a step of the [`AdminQueue`].
    pub fn poll(&mut self) -> Option<Result<(Cqe, Data), Error>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(self.controller.shared().not_connected())),
        }
    }
}

/// As [`Controller::admin`], with data of its own.
///
/// # Errors
/// [`Error::NotConnected`]. Later errors are returned by [`AdminCommand::poll`].
pub fn admin(controller: &Controller, sqe: Sqe, data: Data, timeout: Option<Duration>) -> Result<AdminCommand, Error> {
    let answer = controller.send_admin(sqe, data, timeout)?;
    Ok(AdminCommand { answer, controller: controller.clone() })
}
