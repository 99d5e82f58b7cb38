//! The queue of a file of fio: a queue pair, or with several paths to the namespace a queue over
//! all of them.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use ebof_initiator::{Completion, Controller, Data, Error, IoBuffer, PathQueue, QueuePair, SubmitError, Subsystem};
use ebof_nvme::Sqe;
use ebof_nvme::identify::ProtectionType;

use crate::address::NamespaceAddress;
use crate::failure::JobFailure;
use crate::settings::JobSettings;

/// What keeps a queue connected.
pub(crate) enum JobHost {
    One(Controller),
    Paths(Subsystem),
}

impl JobHost {
    /// Paths that could not be connected, for the user.
    pub(crate) fn missing(&self) -> Option<String> {
        let Self::Paths(subsystem) = self else { return None };
        let missing = subsystem.unreachable().iter();
        let lines: Vec<String> = missing.map(|path| format!("ebof: note: without this path: {}", path.error)).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Ends its connections, and waits for its threads.
    pub(crate) fn disconnect(self) {
        match self {
            Self::One(controller) => controller.disconnect(),
            Self::Paths(subsystem) => subsystem.disconnect(),
        }
    }
}

/// A queue of one thread.
#[expect(clippy::large_enum_variant, reason = "there is one per file, and it is on the way of every operation")]
pub(crate) enum JobQueue<B: IoBuffer> {
    One(QueuePair<B>),
    Paths(PathQueue<B>),
}

/// A namespace that was connected.
pub(crate) struct OpenedPaths<B: IoBuffer> {
    pub(crate) host: JobHost,
    pub(crate) queue: JobQueue<B>,
    pub(crate) block_bytes: u32,
    pub(crate) protection: ProtectionType,
    pub(crate) size_bytes: u64,
    /// The largest transfer of a command.
    pub(crate) transfer_bytes: usize,
}

impl<B: IoBuffer + 'static> OpenedPaths<B> {
    /// Connects to a namespace by its paths, at least one.
    pub(crate) fn connect(
        paths: &[NamespaceAddress],
        settings: &JobSettings,
        depth: usize,
    ) -> Result<Self, JobFailure> {
        let bytes =
            |blocks: u32, block: u32| usize::try_from(u64::from(blocks) * u64::from(block)).unwrap_or(usize::MAX);
        let failure = |error: &Error| JobFailure::of_error("connecting an I/O queue", &paths[0], error);
        if let [address] = paths {
            let controller = Controller::connect(&settings.options(address, depth)?)?;
            let opened = controller
                .namespace(address.nsid)
                .and_then(|namespace| controller.queue_pair().map(|queue| (namespace, queue)));
            let (namespace, queue) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    controller.disconnect();
                    return Err(failure(&error));
                }
            };
            let block_bytes = namespace.block_bytes();
            return Ok(Self {
                host: JobHost::One(controller),
                queue: JobQueue::One(queue),
                block_bytes,
                protection: namespace.protection(),
                size_bytes: u64::try_from(namespace.size_bytes()).unwrap_or(u64::MAX),
                transfer_bytes: bytes(namespace.max_transfer_blocks(), block_bytes),
            });
        }
        let options = paths.iter().map(|path| settings.options(path, depth)).collect::<Result<Vec<_>, _>>()?;
        let subsystem = Subsystem::connect(&options)?;
        let opened = subsystem.namespace(paths[0].nsid);
        let (namespace, queue) =
            match opened.and_then(|namespace| PathQueue::new(&namespace).map(|queue| (namespace, queue))) {
                Ok(opened) => opened,
                Err(error) => {
                    subsystem.disconnect();
                    return Err(failure(&error));
                }
            };
        let block_bytes = namespace.block_bytes();
        Ok(Self {
            host: JobHost::Paths(subsystem),
            queue: JobQueue::Paths(queue),
            block_bytes,
            protection: namespace.protection(),
            size_bytes: u64::try_from(namespace.size_bytes()).unwrap_or(u64::MAX),
            transfer_bytes: bytes(namespace.max_transfer_blocks(), block_bytes),
        })
    }
}

impl<B: IoBuffer + 'static> JobQueue<B> {
    pub(crate) fn capacity(&self) -> usize {
        match self {
            Self::One(queue) => queue.capacity(),
            Self::Paths(queue) => queue.capacity(),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        match self {
            Self::One(queue) => queue.in_flight(),
            Self::Paths(queue) => queue.in_flight(),
        }
    }

    pub(crate) fn submit(&mut self, sqe: Sqe, data: Data<B>, user: u64) -> Result<(), SubmitError<B>> {
        match self {
            Self::One(queue) => queue.submit(sqe, data, user),
            Self::Paths(queue) => queue.submit(sqe, data, user),
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        match self {
            Self::One(queue) => queue.flush(),
            Self::Paths(queue) => queue.flush(),
        }
    }

    pub(crate) fn next_ready(&mut self) -> Option<Completion<B>> {
        match self {
            Self::One(queue) => queue.next_ready(),
            Self::Paths(queue) => queue.next_ready(),
        }
    }

    pub(crate) fn poll(&mut self) -> Result<Option<Completion<B>>, Error> {
        match self {
            Self::One(queue) => queue.poll(),
            Self::Paths(queue) => queue.poll(),
        }
    }

    pub(crate) fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Completion<B>>, Error> {
        match self {
            Self::One(queue) => queue.wait(deadline),
            Self::Paths(queue) => queue.wait(deadline),
        }
    }
}

impl<B: IoBuffer + 'static> AsFd for JobQueue<B> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::One(queue) => queue.as_fd(),
            Self::Paths(queue) => queue.as_fd(),
        }
    }
}
