//! The queue pairs of one thread over one path: one for everything, or one for reads and one for
//! the rest, so that small reads do not wait behind large writes. They are used like one queue
//! pair, with one descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use ebof_nvme::Sqe;
use ebof_nvme::opcode::nvm;
use rustix::event::epoll;

use crate::command::data::{Completion, Data, IoBuffer, SubmitError};
use crate::controller::Controller;
use crate::error::Error;
use crate::queue::QueuePair;
use crate::shared::bindings::Binding;
use crate::shared::fence::Fence;
use crate::shared::maps::QueueClass;
use crate::wait::Waiter;

/// The queue pairs of one thread over one path.
#[derive(Debug)]
pub(super) struct LaneQueues<B: IoBuffer> {
    main: QueuePair<B>,
    reads: Option<Reads<B>>,
}

#[derive(Debug)]
struct Reads<B: IoBuffer> {
    queue: QueuePair<B>,
    /// Holds the descriptors of both; `None` when stepped.
    epoll: Option<OwnedFd>,
}

impl<B: IoBuffer> LaneQueues<B> {
    /// With `separate_reads` the controller must have a free queue in its read map, and one in the
    /// default map.
    pub(super) async fn new(controller: &Controller, separate_reads: bool, waiter: &Waiter) -> Result<Self, Error> {
        let open = |class| {
            let (shared, guard) = (Arc::clone(controller.shared()), Some(controller.guard()));
            QueuePair::establish(shared, guard, Some(class), waiter.another())
        };
        let mut main = open(QueueClass::Default).await?;
        main.reconnect_aside();
        if !separate_reads {
            return Ok(Self { main, reads: None });
        }
        let mut queue = open(QueueClass::Read).await?;
        queue.reconnect_aside();
        if waiter.is_stepped() {
            return Ok(Self { main, reads: Some(Reads { queue, epoll: None }) });
        }
        let system = |errno| Error::System { action: "making an epoll descriptor", errno };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        for (number, queue) in [(0, main.as_fd()), (1, queue.as_fd())] {
            epoll::add(&epoll, queue, epoll::EventData::new_u64(number), epoll::EventFlags::IN).map_err(system)?;
        }
        Ok(Self { main, reads: Some(Reads { queue, epoll: Some(epoll) }) })
    }

    /// The identifier of the queue for everything but reads.
    pub(super) fn id(&self) -> u16 {
        self.main.id().0
    }

    /// The most outstanding commands of any kind.
    pub(super) fn capacity(&self) -> usize {
        let reads = self.reads.as_ref().map_or(usize::MAX, |reads| reads.queue.capacity());
        self.main.capacity().min(reads).max(1)
    }

    /// With a binding, for its namespace only: see [`QueuePair::submit_bound`].
    pub(super) fn submit(
        &mut self,
        binding: Option<Binding>,
        sqe: Sqe,
        data: Data<B>,
        user: u64,
    ) -> Result<(), SubmitError<B>> {
        let queue = match &mut self.reads {
            Some(reads) if sqe.opcode == nvm::READ => &mut reads.queue,
            _ => &mut self.main,
        };
        queue.submit_for(binding, sqe, data, user)
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let reads = self.reads.as_mut().map_or(Ok(()), |reads| reads.queue.flush());
        self.main.flush().and(reads)
    }

    /// As [`QueuePair::poll`]. Completions of one queue are returned even while the other one is
    /// not connected.
    pub(super) fn poll(&mut self) -> Result<Option<Completion<B>>, Error> {
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

    /// When to poll again if nothing arrives before.
    pub(super) fn due(&mut self) -> Option<Instant> {
        let of_reads = self.reads.as_mut().and_then(|reads| reads.queue.due());
        self.main.due().into_iter().chain(of_reads).min()
    }

    /// Of the association whose commands have completed last, or were lost.
    pub(super) fn fence(&self) -> Arc<Fence> {
        self.main.fence()
    }
}

impl<B: IoBuffer> AsFd for LaneQueues<B> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let of_both = self.reads.as_ref().and_then(|reads| reads.epoll.as_ref());
        of_both.map_or_else(|| self.main.as_fd(), AsFd::as_fd)
    }
}
