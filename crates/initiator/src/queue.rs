//! A queue pair in the hands of one thread: submit many, flush once, poll many.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use ebof_nvme::{Cqe, QueueId, Sqe};

use crate::controller::AdminData;
use crate::error::{Error, SubmitError};

/// What a command's data may live in while the command is outstanding.
pub trait Buffer: AsRef<[u8]> + AsMut<[u8]> + Send {}
impl<T: AsRef<[u8]> + AsMut<[u8]> + Send> Buffer for T {}

/// The data that goes with a command. The queue pair owns the buffer until the command completes.
#[derive(Debug, Default)]
pub enum Data<B = Vec<u8>> {
    /// The command has no data.
    #[default]
    None,
    /// The controller fills the buffer (Read, Identify ...): exactly its length is asked for.
    ToHost(B),
    /// The controller takes the buffer's bytes (Write, Compare ...).
    FromHost(B),
}

/// A command that is over.
#[derive(Debug)]
pub struct Completion<B = Vec<u8>> {
    /// What [`QueuePair::submit`] was given to find the command again.
    pub user: u64,
    /// The completion queue entry, whatever its status is; or why there will be none ([`Error::Lost`]: the command may
    /// or may not have been executed).
    pub result: Result<Cqe, Error>,
    /// The buffer, given back.
    pub data: Data<B>,
}

/// An I/O queue pair: one connection to the controller. It belongs to one thread at a time and allocates nothing per
/// command.
///
/// After a loss of the connection every outstanding command comes back from [`QueuePair::poll`] with [`Error::Lost`];
/// once the controller is live again the next call of `submit`, `poll` or `wait` re-creates the queue.
pub struct QueuePair<B: Buffer = Vec<u8>> {
    inner: Box<dyn FnMut(B) + Send>,
}

impl<B: Buffer> QueuePair<B> {
    /// The queue's identifier.
    #[must_use]
    pub fn id(&self) -> QueueId {
        todo!()
    }

    /// Commands that may be outstanding at once.
    #[must_use]
    pub fn capacity(&self) -> usize {
        todo!()
    }

    /// Commands that are outstanding, those not yet flushed included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        todo!()
    }

    /// Queues a command; nothing is sent before [`QueuePair::flush`] (which `poll` and `wait` imply). The command
    /// identifier and the data pointer are filled in here.
    ///
    /// # Errors
    /// [`Error::QueueFull`], [`Error::NotConnected`], or data that cannot be described to the controller; the data
    /// comes back with the error.
    pub fn submit(&mut self, sqe: Sqe, data: Data<B>, user: u64) -> Result<(), SubmitError<B>> {
        let _ = (sqe, data, user);
        todo!()
    }

    /// Sends everything queued, in one gathered send where the socket takes it.
    ///
    /// # Errors
    /// Never for a lost connection (that is told by `poll`, with the commands it took along): only when sockets cannot be used at all.
    pub fn flush(&mut self) -> Result<(), Error> {
        todo!()
    }

    /// The next completion, if there is one. Flushes, and reads all that the socket holds when no completion is at hand.
    ///
    /// # Errors
    /// [`Error::NotConnected`] while the connection is lost and nothing is outstanding any more.
    pub fn poll(&mut self) -> Result<Option<Completion<B>>, Error> {
        todo!()
    }

    /// As [`QueuePair::poll`], but waits until `deadline` (`None`: for ever): spins a little, then sleeps.
    ///
    /// # Errors
    /// As [`QueuePair::poll`].
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Completion<B>>, Error> {
        let _ = deadline;
        todo!()
    }

    /// Runs one command with borrowed data and waits for it. Commands submitted before stay outstanding; their
    /// completions are kept for `poll`.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::QueueFull`], [`Error::NotConnected`]. A status other than success is no error here: look at the entry.
    pub fn execute(&mut self, sqe: Sqe, data: AdminData<'_>) -> Result<Cqe, Error> {
        let _ = (sqe, data);
        todo!()
    }

    /// Asks the controller, through the Admin Queue, to abort every command submitted with `user`. Whether it did is seen in
    /// the commands' status. Does not wait.
    pub fn abort(&mut self, user: u64) {
        let _ = user;
        todo!()
    }
}

impl<B: Buffer> AsFd for QueuePair<B> {
    /// Readable when [`QueuePair::poll`] has something to do; the same descriptor for the queue pair's whole life, reconnects
    /// included.
    fn as_fd(&self) -> BorrowedFd<'_> {
        todo!()
    }
}
