//! Flushes of namespaces about which the journal has something new to say: when they are over, the
//! medium is told what is durable now, and only then are they answered.
//!
//! They are done on a thread of their own, several at a time: a flush may take seconds, and the
//! drive's thread has others to serve. All other flushes go to the backing device at once, on the
//! thread of the request.

use std::sync::Arc;

use crate::Options;
use crate::disk::Disk;
use crate::journal::Point;
use crate::shared::{DeferredRequest, Message, Shared};
use crate::thin::{refused, stopped};

/// Does flushes of which the medium is told afterwards.
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    /// `None` where there is no I/O to be had for it.
    disk: Option<Disk>,
}

impl Flusher {
    /// To be made on the thread that uses it.
    pub(crate) fn new(shared: &Arc<Shared>, options: &Options) -> Self {
        let disk = Disk::new(Arc::clone(&shared.base), &options.io, &shared.clock);
        let disk = disk.inspect_err(|error| tracing::warn!("flushes wait for the drive's thread: {error}"));
        Self { shared: Arc::clone(shared), disk: disk.ok() }
    }

    /// Does these flushes together.
    pub(crate) fn flush(&mut self, deferred_requests: Vec<DeferredRequest>) {
        let shared = &self.shared;
        let Some(disk) = &mut self.disk else {
            for deferred in deferred_requests {
                if let Err(deferred) = shared.send(deferred) {
                    deferred.finish(Err(stopped));
                }
            }
            return;
        };
        // Everything that these flushes are to make durable was over when they were asked for, and
        // so is in here.
        let point = Point::unpack(shared.journal.position());
        match disk.flush() {
            Ok(()) => {
                // The drive's thread answers them, also when it is about to end.
                if let Err(Message::Flushed(_, deferred_requests)) =
                    shared.post_or_give_back(Message::Flushed(point, deferred_requests))
                {
                    deferred_requests.into_iter().for_each(|deferred| deferred.answer(Ok(())));
                }
            }
            Err(error) => {
                shared.saw(&error);
                let mut error = Some(error);
                for deferred in deferred_requests {
                    let error = error.take().unwrap_or_else(|| {
                        let reason = "it cannot be brought to the medium: see the log";
                        refused(&deferred.request.operation, ebof_backend::Class::MediumWrite, reason)
                    });
                    deferred.answer(Err(error));
                }
            }
        }
    }
}
