//! Commands whose data are lent for one call: which are still to be sent, and how the call ends.
//! Sends and waits for nothing itself.

use std::iter::Peekable;

use ebof_nvme::{Cqe, Sqe};

use super::connection::QueueConnection;
use crate::command::data::{AdminData, IoBuffer};
use crate::error::Error;
use crate::shared::bindings::Binding;

/// One command of several that share a buffer.
pub(crate) struct TransferPiece {
    pub(crate) sqe: Sqe,
    /// Its part of the buffer.
    pub(crate) start: usize,
    pub(crate) length: u32,
}

/// Commands that share one lent buffer. After the first failure no more are submitted, but the
/// outstanding ones are waited for, because the buffer is lent for one call only.
pub(super) struct LentTransfer<I: Iterator<Item = TransferPiece>> {
    binding: Option<Binding>,
    /// Those that are not sent.
    rest: Peekable<I>,
    failure: Option<Error>,
}

impl<I: Iterator<Item = TransferPiece>> LentTransfer<I> {
    pub(super) fn new(binding: Option<Binding>, pieces: I) -> Self {
        Self { binding, rest: pieces.peekable(), failure: None }
    }

    /// Queues as many as there is room for.
    pub(super) fn submit<B: IoBuffer>(&mut self, connection: &mut QueueConnection<B>, data: &AdminData<'_>) {
        while self.failure.is_none()
            && let Some(&TransferPiece { sqe, start, length }) = self.rest.peek()
        {
            match connection.submit_lent(self.binding, sqe, (start, length), data) {
                Ok(()) => drop(self.rest.next()),
                // Retried after the next completion, unless the caller's own commands fill the
                // queue.
                Err(Error::QueueFull) if connection.lent() > 0 => break,
                Err(error) => self.failure = Some(error),
            }
        }
    }

    /// Takes what has completed. Returns whether there was anything.
    pub(super) fn collect<B: IoBuffer>(
        &mut self,
        connection: &mut QueueConnection<B>,
        on_done: &mut impl FnMut(Cqe) -> Result<(), Error>,
    ) -> bool {
        let mut progress = false;
        while let Some(result) = connection.pop_lent() {
            progress = true;
            if let Err(error) = result.and_then(&mut *on_done) {
                // The first one counts, unless it hides that a command's fate is unknown.
                let hides = |first: &Error| error.is_fate_unknown() && !first.is_fate_unknown();
                if self.failure.as_ref().is_none_or(hides) {
                    self.failure = Some(error);
                }
            }
        }
        progress
    }

    /// The result, once nothing is outstanding and nothing more is to be sent.
    pub(super) fn result<B: IoBuffer>(&mut self, connection: &mut QueueConnection<B>) -> Option<Result<(), Error>> {
        let is_over = connection.lent() == 0 && (self.failure.is_some() || self.rest.peek().is_none());
        is_over.then(|| self.failure.take().map_or(Ok(()), Err))
    }
}
