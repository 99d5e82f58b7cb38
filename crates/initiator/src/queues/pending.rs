//! A command as a future. Owns only its slot in a queue; the queue pair owns the data until the
//! command completes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Inner;
use super::shared_queue::SharedQueue;
use super::submission::{QueuedCommand, SlotOrTicket};
use crate::command::data::{Completion, Data, IoBuffer};
use crate::error::Error;

/// A command started by [`super::Queues::submit`]. Any executor can poll it.
#[must_use = "dropping it gives the command up"]
pub struct Pending<B: IoBuffer + 'static> {
    /// Keeps the queues connected.
    _inner: Arc<Inner<B>>,
    queue: Arc<SharedQueue<B>>,
    state: State<B>,
}

/// `New` -> (`WaitsForSlot` while it waits for a slot) -> `Sent` -> `Complete`.
enum State<B> {
    New(QueuedCommand, Data<B>),
    WaitsForSlot(u64, QueuedCommand, Data<B>),
    Sent(u16),
    Failed(Error, Data<B>),
    Complete,
}

// No field is pinned: the queue pair owns the buffer while the command is outstanding.
impl<B: IoBuffer + 'static> Unpin for Pending<B> {}

impl<B: IoBuffer + 'static> Pending<B> {
    pub(super) fn new(inner: Arc<Inner<B>>, queue: Arc<SharedQueue<B>>, command: QueuedCommand, data: Data<B>) -> Self {
        let state = match queue.ensure_futures_thread() {
            Err(error) => State::Failed(error, data),
            Ok(()) => match queue.start(command, data) {
                Ok(slot) => State::Sent(slot),
                Err((command, data)) => State::New(command, data),
            },
        };
        Self { _inner: inner, queue, state }
    }
}

impl<B: IoBuffer + 'static> Future for Pending<B> {
    type Output = Completion<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion<B>> {
        let waker = context.waker();
        loop {
            self.state = match std::mem::replace(&mut self.state, State::Complete) {
                State::New(command, data) => match self.queue.acquire_for_task(waker) {
                    SlotOrTicket::Slot(slot) => {
                        self.queue.post_for_task(slot, command, data, Some(waker));
                        State::Sent(slot)
                    }
                    SlotOrTicket::Ticket(ticket) => {
                        self.state = State::WaitsForSlot(ticket, command, data);
                        return Poll::Pending;
                    }
                },
                State::WaitsForSlot(ticket, command, data) => match self.queue.redeem_for_task(ticket, waker) {
                    Some(slot) => {
                        self.queue.post_for_task(slot, command, data, Some(waker));
                        State::Sent(slot)
                    }
                    None => {
                        self.state = State::WaitsForSlot(ticket, command, data);
                        return Poll::Pending;
                    }
                },
                State::Sent(slot) => match self.queue.check_for_task(slot, waker) {
                    Some(completion) => return Poll::Ready(completion),
                    None => {
                        self.state = State::Sent(slot);
                        return Poll::Pending;
                    }
                },
                State::Failed(error, data) => {
                    return Poll::Ready(Completion { user: 0, result: Err(error), data });
                }
                // Polled after it was ready, which is a mistake of the executor: any answer is
                // allowed.
                State::Complete => return Poll::Pending,
            };
        }
    }
}

impl<B: IoBuffer + 'static> Drop for Pending<B> {
    fn drop(&mut self) {
        match self.state {
            State::WaitsForSlot(ticket, ..) => self.queue.cancel_ticket(ticket),
            State::Sent(slot) => self.queue.abandon(slot),
            State::New(..) | State::Failed(..) | State::Complete => {}
        }
    }
}

impl<B: IoBuffer + 'static> std::fmt::Debug for Pending<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.state {
            State::New(..) | State::WaitsForSlot(..) => "waits for a slot",
            State::Sent(_) => "sent",
            State::Failed(..) | State::Complete => "complete",
        };
        f.debug_struct("Pending").field("state", &state).finish_non_exhaustive()
    }
}
