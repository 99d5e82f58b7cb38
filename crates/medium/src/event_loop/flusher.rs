//! Flushes of namespaces that have records in the journal since the last mark: after the flush a
//! mark is written, and only then does the request complete.
//!
//! They are done on a thread of their own, several at a time: a flush may take seconds, and the
//! drive's thread serves others meanwhile. All other flushes go to the backing device at once, on
//! the caller's thread.

use std::sync::Arc;

use crate::Options;
use crate::disk::Disk;
use crate::journal::Point;
use crate::thin::shared::{DeferredRequest, Message, Shared};
use crate::thin::stopped;

/// Flushes the backing device for requests that need a mark afterwards.
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    /// `None` if it has no I/O: the drive's thread then does the flushes.
    disk: Option<Disk>,
}

impl Flusher {
    /// To be made on the thread that uses it.
    pub(crate) fn new(shared: &Arc<Shared>, options: &Options) -> Self {
        let disk = Disk::new(Arc::clone(&shared.base), &options.io, &shared.clock);
        let disk = disk.inspect_err(|error| tracing::warn!("flushes wait for the drive's thread: {error}"));
        Self { shared: Arc::clone(shared), disk: disk.ok() }
    }

    /// Does these requests with one flush of the backing device.
    pub(crate) fn flush(&mut self, deferred_requests: Vec<DeferredRequest>) {
        let shared = &self.shared;
        let Some(disk) = &mut self.disk else {
            return deferred_requests.into_iter().for_each(|deferred| shared.send(deferred));
        };
        // Read before the flush: all that these requests have to make durable was written before
        // they were submitted.
        let point = Point::unpack(shared.journal.position());
        match disk.flush() {
            Ok(()) => {
                // The drive's thread completes them, unless it has ended.
                if let Err(Message::Flushed(_, deferred_requests)) =
                    shared.post(Message::Flushed(point, deferred_requests))
                {
                    deferred_requests.into_iter().for_each(end);
                }
            }
            Err(error) => {
                shared.record_failure(&error);
                let (settles, plain): (Vec<_>, Vec<_>) =
                    deferred_requests.into_iter().partition(|one| one.settles.any());
                let mut error = Some(error);
                for deferred in plain {
                    let error = error.take().unwrap_or_else(|| deferred.not_durable());
                    deferred.complete(Err(error));
                }
                let Some(first) = settles.first() else { return };
                let error = error.take().unwrap_or_else(|| first.not_durable());
                if let Err(Message::NotFlushed(_, settles)) = shared.post(Message::NotFlushed(error, settles)) {
                    settles.into_iter().for_each(|deferred| deferred.refuse(stopped));
                }
            }
        }
    }
}

/// Completes a flush that has succeeded when the drive's thread has ended: it cannot settle tags.
pub(crate) fn end(deferred: DeferredRequest) {
    if deferred.settles.any() {
        deferred.refuse(stopped);
    } else {
        deferred.complete(Ok(()));
    }
}
