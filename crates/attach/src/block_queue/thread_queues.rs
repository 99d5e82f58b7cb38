//! The queue pairs of one thread: one for everything, or one for reads and one for the rest, so
//! that small reads do not wait behind large writes. They are used like one queue pair, with one
//! descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ebof_initiator::{Binding, Completion, Controller, Data, Error, QueueClass, QueuePair, SubmitError};
use ebof_nvme::Sqe;
use ebof_nvme::opcode::nvm;
use rustix::event::epoll;

use crate::block_queue::buffer::Buffer;

/// The queue pairs of one thread.
pub(crate) struct ThreadQueues {
    main: QueuePair<Buffer>,
    reads: Option<Reads>,
}

struct Reads {
    queue: QueuePair<Buffer>,
    /// Holds the descriptors of both.
    epoll: OwnedFd,
}

impl ThreadQueues {
    /// With `separate_reads` the controller must have a free queue in its read map, and one in the
    /// default map.
    pub(crate) fn new(controller: &Controller, separate_reads: bool) -> Result<Self, Error> {
        let main = controller.queue_pair_of(QueueClass::Default)?;
        if !separate_reads {
            return Ok(Self { main, reads: None });
        }
        let queue: QueuePair<Buffer> = controller.queue_pair_of(QueueClass::Read)?;
        let system = |errno| Error::System { action: "making an epoll descriptor", errno };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        for (number, queue) in [(0, main.as_fd()), (1, queue.as_fd())] {
            epoll::add(&epoll, queue, epoll::EventData::new_u64(number), epoll::EventFlags::IN).map_err(system)?;
        }
        Ok(Self { main, reads: Some(Reads { queue, epoll }) })
    }

    /// The identifier of the queue for everything but reads.
    pub(crate) fn id(&self) -> u16 {
        self.main.id().0
    }

    /// The most outstanding commands of any kind.
    pub(crate) fn capacity(&self) -> usize {
        let reads = self.reads.as_ref().map_or(usize::MAX, |reads| reads.queue.capacity());
        self.main.capacity().min(reads).max(1)
    }

    /// With a binding, for its namespace only: see [`QueuePair::submit_bound`].
    pub(crate) fn submit(
        &mut self,
        binding: Option<Binding>,
        sqe: Sqe,
        data: Data<Buffer>,
        user: u64,
    ) -> Result<(), SubmitError<Buffer>> {
        let queue = match &mut self.reads {
            Some(reads) if sqe.opcode == nvm::READ => &mut reads.queue,
            _ => &mut self.main,
        };
        match binding {
            Some(binding) => queue.submit_bound(binding, sqe, data, user),
            None => queue.submit(sqe, data, user),
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let reads = self.reads.as_mut().map_or(Ok(()), |reads| reads.queue.flush());
        self.main.flush().and(reads)
    }

    /// As [`QueuePair::poll`]. Completions of one queue are returned even while the other one is
    /// not connected.
    pub(crate) fn poll(&mut self) -> Result<Option<Completion<Buffer>>, Error> {
        let main = self.main.poll();
        match (&mut self.reads, main) {
            (Some(reads), Ok(None)) => reads.queue.poll(),
            (Some(reads), Err(error)) => match reads.queue.poll() {
                Ok(Some(completion)) => Ok(Some(completion)),
                _ => Err(error),
            },
            (_, main) => main,
        }
    }
}

impl AsFd for ThreadQueues {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reads.as_ref().map_or_else(|| self.main.as_fd(), |reads| reads.epoll.as_fd())
    }
}
