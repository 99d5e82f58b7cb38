//! Paths without threads: what [`crate::stepped`] offers of a subsystem. The keepers of paths are
//! sequences that the caller steps, as the Admin Queues of their controllers.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use ebof_nvme::{Nsid, Sqe};

use super::calls::PathNamespace;
use super::path::Path;
use super::sameness::{AddPathError, check_names};
use super::{PATHS_MAX, Subsystem, keeper, queue};
use crate::command::data::{Completion, Data, IoBuffer, SubmitError};
use crate::controller::Controller;
use crate::controller::stepped::{AdminQueue, Sequence, serve};
use crate::error::Error;
use crate::options::Options;
use crate::wait::{Waiter, step};

/// Looks after a path: step it until it ends, with the path's removal or the subsystem.
pub type PathKeeper = Sequence<()>;

/// What the caller has to step for a path.
#[derive(Debug)]
pub struct SteppedPath {
    /// Of the path's controller.
    pub admin_queue: AdminQueue,
    /// Of the path itself.
    pub keeper: PathKeeper,
}

/// The subsystem of a stepped controller, with one path: as [`Subsystem::new`].
#[must_use]
pub fn subsystem(controller: &Controller) -> (Subsystem, PathKeeper) {
    let subsystem = Subsystem::without_paths(Vec::new());
    let path = Arc::new(Path::new(subsystem.next_id(), controller.clone()));
    let keeper = keep(&subsystem, path);
    (subsystem, keeper)
}

/// As [`Subsystem::add`]. The result has the same errors.
#[must_use]
pub fn add_path(subsystem: &Subsystem, options: &Options) -> Sequence<Result<SteppedPath, AddPathError>> {
    let (subsystem, options) = (subsystem.clone(), options.clone());
    let waiter = Waiter::stepped(&options.clock);
    Sequence::new(waiter.clone(), async move {
        let first = subsystem.controller();
        if subsystem.0.paths().len() >= PATHS_MAX {
            return Err(AddPathError::TooMany);
        }
        check_names(first.options(), &options)?;
        let opened = Arc::clone(first.shared().bindings.all_opened());
        let (controller, engine) = Controller::establish(options, waiter.another(), opened).await?;
        let mut admin_queue = serve(&controller, engine);
        let joining = subsystem.join_with(controller, &waiter);
        let path = beside(&mut admin_queue, &waiter, joining).await?;
        let keeper = keep(&subsystem, Arc::clone(&path));
        beside(&mut admin_queue, &waiter, subsystem.0.catch_up(&path, &waiter)).await.map_err(AddPathError::Queues)?;
        Ok(SteppedPath { admin_queue, keeper })
    })
}

/// Runs a sequence that the Admin Queue has to answer.
async fn beside<T>(admin_queue: &mut AdminQueue, waiter: &Waiter, sequence: impl Future<Output = T>) -> T {
    let mut sequence = pin!(sequence);
    loop {
        admin_queue.step();
        match step(sequence.as_mut()) {
            Poll::Ready(done) => return done,
            Poll::Pending => waiter.step().await,
        }
    }
}

fn keep(subsystem: &Subsystem, path: Arc<Path>) -> PathKeeper {
    let waiter = path.controller.shared().waiter.another();
    let keeper = keeper::keep_with(Arc::downgrade(&subsystem.0), Arc::clone(&path), waiter.clone());
    subsystem.0.change(|paths| paths.push(path));
    Sequence::new(waiter, keeper)
}

/// As [`Subsystem::namespace`]. The result has the same errors.
#[must_use]
pub fn path_namespace(subsystem: &Subsystem, nsid: Nsid) -> Sequence<Result<PathNamespace, Error>> {
    let subsystem = subsystem.clone();
    let waiter = subsystem.controller().shared().waiter.another();
    Sequence::new(waiter.clone(), async move { PathNamespace::open(&subsystem, nsid, &waiter).await })
}

/// As [`crate::PathQueue::new`]. The result has the same errors.
#[must_use]
pub fn path_queue<B: IoBuffer + 'static>(namespace: &PathNamespace) -> Sequence<Result<PathQueue<B>, Error>> {
    let namespace = namespace.clone();
    let waiter = namespace.subsystem().controller().shared().waiter.another();
    Sequence::new(waiter.clone(), async move { queue::PathQueue::establish(&namespace, &waiter).await.map(PathQueue) })
}

/// A queue over all paths to a namespace of a stepped subsystem: [`crate::PathQueue`] without its
/// descriptor and the calls that wait.
#[derive(Debug)]
pub struct PathQueue<B: IoBuffer = Vec<u8>>(queue::PathQueue<B>);

impl<B: IoBuffer + 'static> PathQueue<B> {
    /// As [`crate::PathQueue::capacity`].
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// As [`crate::PathQueue::in_flight`].
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    /// As [`crate::PathQueue::submit`].
    ///
    /// # Errors
    /// The same.
    pub fn submit(&mut self, sqe: Sqe, data: Data<B>, user: u64) -> Result<(), SubmitError<B>> {
        self.0.submit(sqe, data, user)
    }

    /// As [`crate::PathQueue::flush`].
    ///
    /// # Errors
    /// The same.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.0.flush()
    }

    /// As [`crate::PathQueue::poll`].
    ///
    /// # Errors
    /// The same.
    pub fn poll(&mut self) -> Result<Option<Completion<B>>, Error> {
        self.0.poll()
    }

    /// When to poll again if nothing arrives before; `None`: there is no deadline.
    pub fn due(&mut self) -> Option<Instant> {
        self.0.due()
    }
}
