//! Connecting a queue, the first time or again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::task::Poll;
use std::time::Duration;

use ebof_nvme::connect::Connect;
use ebof_nvme::{QueueId, Status};
use rustix::io::Errno;

use crate::connect::establish;
use crate::error::connect_error::{ConnectError, ConnectErrorKind, Tried};
use crate::link::HostLink;
use crate::shared::{Info, SharedController};
use crate::wait::{Waiter, Waker, run};

/// How often connecting is retried while the target still holds the queue identifier.
const OPEN_TRIES: u32 = 10;
/// The pause between two attempts.
const OPEN_PAUSE: Duration = Duration::from_millis(20);

/// A queue that is being reconnected.
pub(super) struct Opening {
    pub(super) sequence: Pin<Box<dyn Future<Output = Result<HostLink, ConnectError>> + Send>>,
    pub(super) info: Arc<Info>,
    pub(super) waiter: Waiter,
}

impl Opening {
    /// Connects by `sequence`. With `aside`, that runs on a thread of its own, which wakes it in
    /// the end: whoever continues the opening does not wait.
    pub(super) fn new(
        sequence: impl Future<Output = Result<HostLink, ConnectError>> + Send + 'static,
        info: Arc<Info>,
        waiter: Waiter,
        tried: Tried,
        aside: Option<Arc<Waker>>,
    ) -> Self {
        let Some(waker) = aside.filter(|_| !waiter.is_stepped()) else {
            return Self { sequence: Box::pin(sequence), info, waiter };
        };
        let (sender, receiver) = sync_channel(1);
        let connect = move || {
            // Nobody takes it if the opening was given up meanwhile.
            let _given_up = sender.send(run(sequence));
            // After the result is there.
            waker.wake();
        };
        let started = std::thread::Builder::new().name("nvme-connect".to_owned()).spawn(connect);
        let mut failed = started.err().map(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
            ConnectError::system(tried.clone(), "starting a thread", errno)
        });
        let aside = std::future::poll_fn(move |_| match receiver.try_recv() {
            Ok(connected) => Poll::Ready(connected),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => {
                let ended = || ConnectError::system(tried.clone(), "connecting on a thread", Errno::INTR);
                Poll::Ready(Err(failed.take().unwrap_or_else(ended)))
            }
        });
        Self { sequence: Box::pin(aside), info, waiter }
    }
}

/// Connects a queue. Retries while the target still holds the identifier of a connection that was
/// just closed.
pub(super) async fn open(
    shared: Arc<SharedController>,
    id: QueueId,
    info: Arc<Info>,
    waiter: Waiter,
) -> Result<HostLink, ConnectError> {
    let SharedController { options, cancel, .. } = &*shared;
    for _ in 0..OPEN_TRIES {
        match establish::io_queue(options, id, &info, &waiter, cancel).await {
            Err(error) if still_held(&error) => waiter.sleep(OPEN_PAUSE, Some(cancel)).await,
            done => return done,
        }
    }
    establish::io_queue(options, id, &info, &waiter, cancel).await
}

/// Whether the target has not noticed yet that the queue's previous connection was closed.
fn still_held(error: &ConnectError) -> bool {
    match error.kind() {
        ConnectErrorKind::Status { status, .. } => {
            status.is(Status::COMMAND_SEQUENCE_ERROR) || status.is(Status::INVALID_QUEUE_ID)
        }
        ConnectErrorKind::InvalidParameter { in_data: false, offset, .. } => *offset == Connect::QID_OFFSET,
        ConnectErrorKind::ControllerBusy { .. } => true,
        _ => false,
    }
}
