//! The I/O queues of a controller in the hands of many threads: calls that block, and futures that
//! need no runtime.
//!
//! A [`Queues`] holds a connection for every granted queue and gives each command to the queue of
//! its class that belongs to the caller's processor. The caller sends its command itself if the
//! queue is not busy; otherwise the thread that holds the queue sends it along with its own. One of
//! the waiting threads polls the socket for all. No lock is shared by two queues.
//!
//! ```no_run
//! use ebof_initiator::{Controller, Options, Queues};
//! use ebof_nvme::{Nsid, uri::Uri};
//!
//! let mut options = Options::from_uri(&Uri::parse("nvme+tcp://127.0.0.1:4420/nqn.2014-08.org.example:drive0")?);
//! // Two queues for reads, one for writes and the rest, one that is polled.
//! options.nr_io_queues = 2;
//! options.nr_write_queues = 1;
//! options.nr_poll_queues = 1;
//! let controller = Controller::connect(&options)?;
//! let queues = Queues::new(&controller)?;
//! let namespace = queues.namespace(Nsid(1))?;
//! std::thread::scope(|scope| {
//!     for thread in 0..16 {
//!         let namespace = namespace.clone();
//!         scope.spawn(move || {
//!             let mut buffer = vec![0; 4096];
//!             for block in 0..1000 {
//!                 buffer = namespace.read(thread * 8000 + block * 8, buffer)?;
//!             }
//!             Ok::<(), ebof_initiator::queues::IoError<Vec<u8>>>(())
//!         });
//!     }
//! });
//! // Futures: sent when they are made, awaited anywhere.
//! let many: Vec<_> = (0..32).map(|block| namespace.read_async(block * 8, vec![0; 4096])).collect();
//! let sum = async {
//!     let mut sum = 0u64;
//!     for one in many {
//!         sum += one.await?.iter().map(|&byte| u64::from(byte)).sum::<u64>();
//!     }
//!     Ok::<u64, ebof_initiator::queues::IoError<Vec<u8>>>(sum)
//! };
//! # drop(sum);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! How threads share a queue is in `queues/shared_queue.rs`; reads and writes are in
//! `queues/shared_namespace.rs`, with splitting and retries, for async runtimes, in
//! `queues/asynchronous.rs`.

pub(crate) mod asynchronous;
mod pending;
mod shared_namespace;
mod shared_queue;
mod submission;

use std::sync::Arc;

use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Sqe};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

pub use pending::Pending;
pub(crate) use shared_namespace::outcome;
pub use shared_namespace::{IoError, SharedNamespace, TransferFuture};

use crate::command::data::{Completion, Data, IoBuffer};
use crate::controller::Controller;
use crate::error::Error;
use crate::queue::QueuePair;
use crate::shared::bindings::Binding;
use crate::shared::maps::{QueueClass, QueueMaps};
use shared_queue::SharedQueue;
use submission::QueuedCommand;

/// The I/O queues of a controller, shared by any number of threads. Cheap to clone; all clones are
/// the same queues.
///
/// One command less than a queue has entries may be outstanding on it. Further callers wait for a
/// slot, in order of arrival. A completed future keeps its slot until it is awaited or dropped:
/// don't block in a thread that holds as many futures as a queue has slots.
///
/// After a loss of the connection, outstanding commands end with [`Error::Lost`], and what is
/// started while there is no connection with [`Error::NotConnected`]; [`SharedNamespace`]'s
/// blocking calls wait and try again.
pub struct Queues<B: IoBuffer + 'static = Vec<u8>> {
    inner: Arc<Inner<B>>,
    /// Whether commands of this handle go to the poll queues.
    polled: bool,
}

struct Inner<B: IoBuffer + 'static> {
    controller: Controller,
    /// By class, in the order of their identifiers.
    default: Vec<Arc<SharedQueue<B>>>,
    read: Vec<Arc<SharedQueue<B>>>,
    poll: Vec<Arc<SharedQueue<B>>>,
}

impl<B: IoBuffer + 'static> Clone for Queues<B> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), polled: self.polled }
    }
}

impl<B: IoBuffer + 'static> std::fmt::Debug for Queues<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queues").field("maps", &self.maps()).field("polled", &self.polled).finish_non_exhaustive()
    }
}

impl<B: IoBuffer + 'static> Queues<B> {
    /// Connects every granted queue that nobody else has. Queue i of a class is connected from the
    /// i-th processor this process may use, because targets slot a connection by where its packets
    /// come from.
    ///
    /// # Errors
    /// [`Error::NoFreeQueue`] when no queue of the default map is left; [`Error::Connect`] when the
    /// target refuses one.
    pub fn new(controller: &Controller) -> Result<Self, Error> {
        let maps = controller.queue_maps();
        let inner = Inner {
            default: connect_class(controller, QueueClass::Default, maps)?,
            read: connect_class(controller, QueueClass::Read, maps)?,
            poll: connect_class(controller, QueueClass::Poll, maps)?,
            controller: controller.clone(),
        };
        if inner.default.is_empty() {
            return Err(Error::NoFreeQueue { granted: controller.io_queues() });
        }
        Ok(Self { inner: Arc::new(inner), polled: false })
    }

    /// The controller.
    #[must_use]
    pub fn controller(&self) -> &Controller {
        &self.inner.controller
    }

    /// The queues that are connected here, by class.
    #[must_use]
    pub fn maps(&self) -> QueueMaps {
        let count = |queues: &Vec<_>| u16::try_from(queues.len()).unwrap_or(u16::MAX);
        QueueMaps { default: count(&self.inner.default), read: count(&self.inner.read), poll: count(&self.inner.poll) }
    }

    /// The same queues, with commands going to the poll queues, if there are any: the caller of a
    /// blocking call polls for its completion. Latency for processor time.
    #[must_use]
    pub fn polled(&self) -> Self {
        Self { polled: true, ..self.clone() }
    }

    /// The class of queues that a command takes.
    #[must_use]
    pub fn class_of(&self, sqe: &Sqe) -> QueueClass {
        let class = match sqe.opcode {
            _ if self.polled => QueueClass::Poll,
            nvm::READ | nvm::COMPARE | nvm::VERIFY => QueueClass::Read,
            _ => QueueClass::Default,
        };
        self.maps().serving(class)
    }

    /// Runs a command and waits for it. The completion is returned whatever its status is; `user`
    /// in it means nothing.
    #[must_use]
    pub fn execute(&self, sqe: Sqe, data: Data<B>) -> Completion<B> {
        self.queue(&sqe).execute(QueuedCommand { sqe, binding: None }, data)
    }

    /// As [`Queues::execute`], for just one namespace: see [`QueuePair::submit_bound`].
    #[must_use]
    pub fn execute_bound(&self, binding: Binding, sqe: Sqe, data: Data<B>) -> Completion<B> {
        self.queue(&sqe).execute(QueuedCommand { sqe, binding: Some(binding) }, data)
    }

    /// Starts a command. It is sent at once if there is room, and when the future is first polled
    /// after there is, if not. Dropping the future gives the command up: it may or may not be
    /// executed, and its buffer stays until the controller is done with it.
    pub fn submit(&self, sqe: Sqe, data: Data<B>) -> Pending<B> {
        self.start(QueuedCommand { sqe, binding: None }, data)
    }

    /// As [`Queues::submit`], for just one namespace: see [`QueuePair::submit_bound`].
    pub fn submit_bound(&self, binding: Binding, sqe: Sqe, data: Data<B>) -> Pending<B> {
        self.start(QueuedCommand { sqe, binding: Some(binding) }, data)
    }

    fn start(&self, command: QueuedCommand, data: Data<B>) -> Pending<B> {
        Pending::new(Arc::clone(&self.inner), Arc::clone(self.queue(&command.sqe)), command, data)
    }

    /// Polls once, without waiting, the socket of the queue that commands like `sqe` take on this
    /// processor. True when a command completed. For callers with many futures that poll
    /// themselves.
    pub fn poll(&self, sqe: &Sqe) -> bool {
        self.queue(sqe).poll()
    }

    /// A namespace to read and write.
    ///
    /// # Errors
    /// As [`Controller::namespace`].
    pub fn namespace(&self, nsid: Nsid) -> Result<SharedNamespace<B>, Error> {
        Ok(SharedNamespace::new(self.clone(), self.inner.controller.namespace(nsid)?))
    }

    /// The queue for a command from this processor.
    fn queue(&self, sqe: &Sqe) -> &Arc<SharedQueue<B>> {
        let queues = match self.class_of(sqe) {
            QueueClass::Default => &self.inner.default,
            QueueClass::Read => &self.inner.read,
            QueueClass::Poll => &self.inner.poll,
        };
        let processor = sched_getcpu();
        let queue = &queues[processor % queues.len()];
        let generation = self.inner.controller.shared().generation();
        if !queue.is_missing(generation) {
            return queue;
        }
        // After a reconnect fewer queues may be granted, but at least one.
        queues.iter().find(|queue| !queue.is_missing(generation)).unwrap_or(&self.inner.default[0])
    }
}

impl<B: IoBuffer + 'static> Drop for Inner<B> {
    fn drop(&mut self) {
        for queue in self.default.iter().chain(&self.read).chain(&self.poll) {
            queue.stop();
        }
    }
}

/// Connects the queues of a class that are free.
fn connect_class<B: IoBuffer + 'static>(
    controller: &Controller,
    class: QueueClass,
    maps: QueueMaps,
) -> Result<Vec<Arc<SharedQueue<B>>>, Error> {
    let spin_us = u64::from(controller.options().spin_us);
    let processors = processors();
    let mut queues = Vec::new();
    for index in 0..usize::from(maps.count(class)) {
        let processor = processors.get(index % processors.len().max(1)).copied();
        match connect_from(controller, class, processor) {
            Ok(queue) => queues.push(Arc::new(SharedQueue::new(queue, class == QueueClass::Poll, spin_us)?)),
            Err(Error::NoFreeQueue { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    queues.sort_by_key(|queue| queue.id().0);
    Ok(queues)
}

/// The processors that this process may use.
fn processors() -> Vec<usize> {
    sched_getaffinity(None)
        .map(|set| (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
        .unwrap_or_default()
}

/// Connects a queue in a thread that runs on `processor`.
fn connect_from<B: IoBuffer + 'static>(
    controller: &Controller,
    class: QueueClass,
    processor: Option<usize>,
) -> Result<QueuePair<B>, Error> {
    let connect = || controller.queue_pair_of(class);
    let Some(processor) = processor else { return connect() };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("nvme-connect".to_owned()).spawn_scoped(scope, || {
            let mut set = CpuSet::new();
            set.set(processor);
            // If that is not allowed, the connection is made from any processor.
            let _ = sched_setaffinity(None, &set);
            connect()
        });
        match thread {
            Ok(thread) => thread.join().unwrap_or(Err(Error::Malformed("connecting a queue panicked"))),
            Err(_) => connect(),
        }
    })
}
