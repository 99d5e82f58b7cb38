//! Commands whose data are lent for one call: single ones, and several that share a buffer.

use ebof_nvme::{Cqe, Sqe};

use super::QueuePair;
use crate::command::data::{AdminData, IoBuffer};
use crate::error::{Error, Loss};
use crate::shared::bindings::Binding;
use crate::wait::{Waiter, run};

/// One command of several that share a buffer.
pub(crate) struct TransferPiece {
    pub(crate) sqe: Sqe,
    /// Its part of the buffer.
    pub(crate) start: usize,
    pub(crate) length: u32,
}

impl<B: IoBuffer> QueuePair<B> {
    /// Runs one command with borrowed data and waits for it. Earlier commands stay outstanding;
    /// their completions are kept for `poll`.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::QueueFull`], [`Error::NotConnected`]. A status other than success
    /// is no error here; it is in the entry.
    pub fn execute(&mut self, sqe: Sqe, mut data: AdminData<'_>) -> Result<Cqe, Error> {
        let length = match &data {
            AdminData::None => 0,
            AdminData::ToHost(bytes) => bytes.len(),
            AdminData::FromHost(bytes) => bytes.len(),
        };
        let piece = TransferPiece {
            sqe,
            start: 0,
            length: u32::try_from(length).map_err(|_| Error::TooLarge { bytes: length })?,
        };
        let mut last = None;
        let waiter = self.shared.waiter.another();
        run(self.execute_pieces(&waiter, None, std::iter::once(piece), &mut data, |cqe| {
            last = Some(cqe);
            Ok(())
        }))?;
        last.ok_or(Error::Malformed("a command without an end"))
    }

    /// Runs commands that share one lent buffer, as many at a time as the queue takes. After the
    /// first failure no more are submitted, but the outstanding ones are waited for, because the
    /// buffer is lent for this call only.
    pub(crate) async fn execute_pieces(
        &mut self,
        waiter: &Waiter,
        binding: Option<Binding>,
        pieces: impl IntoIterator<Item = TransferPiece>,
        data: &mut AdminData<'_>,
        on_done: impl FnMut(Cqe) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let done = self.run_pieces(waiter, binding, pieces, data, on_done).await;
        if self.engine.slots().lent() > 0 {
            // Only after a failed system call. The buffer is about to return to its owner, so the
            // connection has to be closed.
            self.lost(Loss::Requested);
            while self.engine.slots().pop_lent().is_some() {}
        }
        done
    }

    async fn run_pieces(
        &mut self,
        waiter: &Waiter,
        binding: Option<Binding>,
        pieces: impl IntoIterator<Item = TransferPiece>,
        data: &mut AdminData<'_>,
        mut on_done: impl FnMut(Cqe) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut pieces = pieces.into_iter().peekable();
        let mut failure = None;
        loop {
            while failure.is_none()
                && let Some(piece) = pieces.peek()
            {
                let timeout_ms = self.timeout_ms();
                let length = piece.length as usize;
                let queued = self.ready().and_then(|()| self.admit(binding, &piece.sqe, length)).and_then(|()| {
                    self.engine.submit_lent(piece.sqe, (piece.start, piece.length), data, 0, timeout_ms)
                });
                match queued {
                    Ok(()) => drop(pieces.next()),
                    // Retried after the next completion, unless the caller's own commands fill the
                    // queue.
                    Err(Error::QueueFull) if self.engine.slots().lent() > 0 => break,
                    Err(error) => failure = Some(error),
                }
            }
            if self.engine.slots().lent() > 0 {
                self.service(data)?;
            }
            let mut progress = false;
            while let Some((_, result)) = self.engine.slots().pop_lent() {
                progress = true;
                if let Err(error) = result.and_then(&mut on_done) {
                    failure.get_or_insert(error);
                }
            }
            if self.engine.slots().lent() == 0 && (failure.is_some() || pieces.peek().is_none()) {
                return failure.map_or(Ok(()), Err);
            }
            if !progress {
                self.idle_with(waiter).await?;
            } else if self.idle.is_waiting() {
                self.idle.found(self.now_us());
            }
        }
    }
}
