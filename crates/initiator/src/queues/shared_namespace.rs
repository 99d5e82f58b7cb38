//! Reading and writing a namespace over shared queues. Every call is one command; for transfers
//! that are split see [`crate::Namespace`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Sqe};

use super::{Pending, Queues};
use crate::command::data::{Completion, Data, IoBuffer};
use crate::controller::namespace::Namespace;
use crate::error::Error;
use crate::requeue::recovery::Recovery;
use crate::wait::run;

/// A transfer that failed, with its buffer.
pub struct IoError<B> {
    /// Why.
    pub reason: Error,
    /// The buffer, given back. After a read, its contents are unspecified.
    pub buffer: Option<B>,
}

impl<B> std::fmt::Debug for IoError<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IoError").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<B> std::fmt::Display for IoError<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.reason.fmt(f)
    }
}

impl<B> std::error::Error for IoError<B> {}

impl<B> From<IoError<B>> for Error {
    fn from(error: IoError<B>) -> Self {
        error.reason
    }
}

/// A namespace over shared queues. Cheap to clone; for any number of threads.
///
/// A call is one command, of at most [`Namespace::max_transfer_blocks`]. Those that block try again
/// after a loss of the connection and after a status that says so, as [`Namespace`] does; futures
/// give such an error to their owner.
pub struct SharedNamespace<B: IoBuffer + 'static = Vec<u8>> {
    queues: Queues<B>,
    namespace: Namespace,
}

impl<B: IoBuffer + 'static> Clone for SharedNamespace<B> {
    fn clone(&self) -> Self {
        Self { queues: self.queues.clone(), namespace: self.namespace.clone() }
    }
}

impl<B: IoBuffer + 'static> std::fmt::Debug for SharedNamespace<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedNamespace").field("namespace", &self.namespace).field("queues", &self.queues).finish()
    }
}

impl<B: IoBuffer + 'static> SharedNamespace<B> {
    pub(super) fn new(queues: Queues<B>, namespace: Namespace) -> Self {
        Self { queues, namespace }
    }

    /// The namespace: its size, its blocks, its limits.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The same namespace over the poll queues: see [`Queues::polled`].
    #[must_use]
    pub fn polled(&self) -> Self {
        Self { queues: self.queues.polled(), namespace: self.namespace.clone() }
    }

    /// Fills `buffer`, a multiple of the block size, with the blocks from `lba` on.
    ///
    /// # Errors
    /// [`Error::Unaligned`], [`Error::OutOfRange`], [`Error::TooLarge`], [`Error::Status`], and
    /// what ends a connection for good.
    pub fn read(&self, lba: u64, buffer: B) -> Result<B, IoError<B>> {
        let sqe = match self.transfer(nvm::READ, lba, &buffer, false) {
            Ok(sqe) => sqe,
            Err(reason) => return Err(IoError { reason, buffer: Some(buffer) }),
        };
        self.run("Read", sqe, Data::ToHost(buffer)).and_then(into_buffer)
    }

    /// Writes the bytes of `buffer`, a multiple of the block size, from `lba` on; with `fua` they
    /// are on the medium when the call returns.
    ///
    /// # Errors
    /// As [`SharedNamespace::read`].
    pub fn write(&self, lba: u64, buffer: B, fua: bool) -> Result<B, IoError<B>> {
        let sqe = match self.transfer(nvm::WRITE, lba, &buffer, fua) {
            Ok(sqe) => sqe,
            Err(reason) => return Err(IoError { reason, buffer: Some(buffer) }),
        };
        self.run("Write", sqe, Data::FromHost(buffer)).and_then(into_buffer)
    }

    /// Brings everything written before to the medium.
    ///
    /// # Errors
    /// As [`SharedNamespace::read`].
    pub fn flush(&self) -> Result<(), Error> {
        Ok(self.run("Flush", self.plain(nvm::FLUSH), Data::None).map(|_| ())?)
    }

    /// Writes zeros without sending them; with `deallocate` the blocks may be unmapped.
    ///
    /// # Errors
    /// As [`SharedNamespace::read`].
    pub fn write_zeroes(&self, lba: u64, blocks: u32, deallocate: bool) -> Result<(), Error> {
        self.namespace.check_range(lba, u64::from(blocks))?;
        let max = self.namespace.max_zeroes_blocks();
        if blocks == 0 || u64::from(blocks) > max {
            return Err(Error::TooLarge { bytes: usize::try_from(blocks).unwrap_or(usize::MAX) });
        }
        let range = BlockRange { deallocate, ..BlockRange::new(lba, blocks) };
        let sqe = self.namespace.encode(&range, nvm::WRITE_ZEROES);
        Ok(self.run("Write Zeroes", sqe, Data::None).map(|_| ())?)
    }

    /// As [`SharedNamespace::read`], as a future. Sent at once if there is room.
    pub fn read_async(&self, lba: u64, buffer: B) -> TransferFuture<B> {
        match self.transfer(nvm::READ, lba, &buffer, false) {
            Ok(sqe) => TransferFuture::new(
                "Read",
                self.queues.submit_bound(self.namespace.binding(), sqe, Data::ToHost(buffer)),
            ),
            Err(reason) => TransferFuture(TransferState::Refused(reason, Some(buffer))),
        }
    }

    /// As [`SharedNamespace::write`], as a future. Sent at once if there is room.
    pub fn write_async(&self, lba: u64, buffer: B, fua: bool) -> TransferFuture<B> {
        match self.transfer(nvm::WRITE, lba, &buffer, fua) {
            Ok(sqe) => TransferFuture::new(
                "Write",
                self.queues.submit_bound(self.namespace.binding(), sqe, Data::FromHost(buffer)),
            ),
            Err(reason) => TransferFuture(TransferState::Refused(reason, Some(buffer))),
        }
    }

    /// As [`SharedNamespace::flush`], as a future.
    pub fn flush_async(&self) -> impl Future<Output = Result<(), Error>> + Send + use<B> {
        let pending = self.queues.submit_bound(self.namespace.binding(), self.plain(nvm::FLUSH), Data::None);
        async move { outcome("Flush", pending.await).map(|_| ()).map_err(Error::from) }
    }

    fn plain(&self, opcode: u8) -> Sqe {
        Sqe::new(opcode).with_nsid(self.nsid())
    }

    fn nsid(&self) -> Nsid {
        self.namespace.nsid()
    }

    fn transfer(&self, opcode: u8, lba: u64, buffer: &B, fua: bool) -> Result<Sqe, Error> {
        let bytes = buffer.as_ref().len();
        let blocks = self.namespace.block_count(lba, bytes)?;
        let blocks = u32::try_from(blocks).ok().filter(|&n| n > 0 && n <= self.namespace.max_transfer_blocks());
        let blocks = blocks.ok_or(Error::TooLarge { bytes })?;
        Ok(self.namespace.encode(&BlockRange { fua, ..BlockRange::new(lba, blocks) }, opcode))
    }

    /// Runs a command, again after a loss and after a status that says so.
    fn run(&self, command: &'static str, sqe: Sqe, mut data: Data<B>) -> Result<Data<B>, IoError<B>> {
        let controller = self.queues.controller();
        let waiter = &controller.shared().waiter;
        let mut recovery = Recovery::default();
        let has_buffer = !matches!(data, Data::None);
        loop {
            let error = match outcome(command, self.queues.execute_bound(self.namespace.binding(), sqe, data)) {
                Ok(data) => return Ok(data),
                // A network card still holds the buffer: the command cannot be sent again.
                Err((reason, Data::None)) if has_buffer => return Err(IoError { reason, buffer: None }),
                Err((reason, back)) => {
                    data = back;
                    reason
                }
            };
            if let Err(reason) = run(recovery.wait(error, controller.shared(), waiter)) {
                return Err(IoError { reason, buffer: data.into_buffer() });
            }
        }
    }
}

/// The data of a successful command; the error and the data of any other.
pub(crate) fn outcome<B>(command: &'static str, completion: Completion<B>) -> Result<Data<B>, (Error, Data<B>)> {
    let checked =
        completion.result.and_then(|cqe| cqe.status().ok().map_err(|status| Error::Status { command, status }));
    match checked {
        Ok(()) => Ok(completion.data),
        Err(reason) => Err((reason, completion.data)),
    }
}

impl<B> From<(Error, Data<B>)> for Error {
    fn from((reason, _): (Error, Data<B>)) -> Self {
        reason
    }
}

fn into_buffer<B>(data: Data<B>) -> Result<B, IoError<B>> {
    data.into_buffer().ok_or(IoError { reason: Error::Malformed("a transfer without its buffer"), buffer: None })
}

/// A read or a write as a future, which gives the buffer back.
#[must_use = "dropping it gives the command up"]
#[derive(Debug)]
pub struct TransferFuture<B: IoBuffer + 'static>(TransferState<B>);

enum TransferState<B: IoBuffer + 'static> {
    Refused(Error, Option<B>),
    Pending(&'static str, Pending<B>),
    Complete,
}

impl<B: IoBuffer + 'static> std::fmt::Debug for TransferState<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(reason, _) => f.debug_tuple("Refused").field(reason).finish(),
            Self::Pending(command, pending) => f.debug_tuple("Pending").field(command).field(pending).finish(),
            Self::Complete => f.write_str("Complete"),
        }
    }
}

impl<B: IoBuffer + 'static> TransferFuture<B> {
    fn new(command: &'static str, pending: Pending<B>) -> Self {
        Self(TransferState::Pending(command, pending))
    }
}

// No field is pinned: the buffer is only moved.
impl<B: IoBuffer + 'static> Unpin for TransferFuture<B> {}

impl<B: IoBuffer + 'static> Future for TransferFuture<B> {
    type Output = Result<B, IoError<B>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            TransferState::Pending(command, pending) => {
                let command = *command;
                let completion = ready!(Pin::new(pending).poll(context));
                self.0 = TransferState::Complete;
                Poll::Ready(match outcome(command, completion) {
                    Ok(data) => into_buffer(data),
                    Err((reason, data)) => Err(IoError { reason, buffer: data.into_buffer() }),
                })
            }
            TransferState::Refused(..) => match std::mem::replace(&mut self.0, TransferState::Complete) {
                TransferState::Refused(reason, buffer) => Poll::Ready(Err(IoError { reason, buffer })),
                TransferState::Pending(..) | TransferState::Complete => Poll::Pending,
            },
            TransferState::Complete => Poll::Pending,
        }
    }
}
