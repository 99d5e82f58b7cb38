//! A command as a future. Owns nothing but its slot in a queue: the data are the queue pair's
//! until the command is over.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Inner;
use super::shared_queue::SharedQueue;
use super::submission::{Command, Room};
use crate::data::{Buffer, Completion, Data};
use crate::error::Error;

/// A command that was started by [`super::Queues::submit`]. Needs no runtime: any executor can poll
/// it.
#[must_use = "dropping it gives the command up"]
pub struct Pending<B: Buffer + 'static> {
    /// Keeps the queues.
    _inner: Arc<Inner<B>>,
    queue: Arc<SharedQueue<B>>,
    state: State<B>,
}

/// `New` -> (`Room` while it waits for a slot) -> `Sent` -> `Over`.
enum State<B> {
    New(Command, Data<B>),
    Room(u64, Command, Data<B>),
    Sent(u16),
    Failed(Error, Data<B>),
    Over,
}

// Nothing in it is pinned: the buffer's bytes are the queue pair's while the command is
// outstanding.
impl<B: Buffer + 'static> Unpin for Pending<B> {}

impl<B: Buffer + 'static> Pending<B> {
    pub(super) fn new(inner: Arc<Inner<B>>, queue: Arc<SharedQueue<B>>, command: Command, data: Data<B>) -> Self {
        let state = match queue.ensure_driver() {
            Err(error) => State::Failed(error, data),
            Ok(()) => match queue.start(command, data) {
                Ok(slot) => State::Sent(slot),
                Err((command, data)) => State::New(command, data),
            },
        };
        Self { _inner: inner, queue, state }
    }
}

impl<B: Buffer + 'static> Future for Pending<B> {
    type Output = Completion<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion<B>> {
        let waker = context.waker();
        loop {
            self.state = match std::mem::replace(&mut self.state, State::Over) {
                State::New(command, data) => match self.queue.enter_task(waker) {
                    Room::Slot(slot) => {
                        self.queue.post_task(slot, command, data, Some(waker));
                        State::Sent(slot)
                    }
                    Room::Wait(ticket) => {
                        self.state = State::Room(ticket, command, data);
                        return Poll::Pending;
                    }
                },
                State::Room(ticket, command, data) => match self.queue.redeem_task(ticket, waker) {
                    Some(slot) => {
                        self.queue.post_task(slot, command, data, Some(waker));
                        State::Sent(slot)
                    }
                    None => {
                        self.state = State::Room(ticket, command, data);
                        return Poll::Pending;
                    }
                },
                State::Sent(slot) => match self.queue.look_task(slot, waker) {
                    Some(completion) => return Poll::Ready(completion),
                    None => {
                        self.state = State::Sent(slot);
                        return Poll::Pending;
                    }
                },
                State::Failed(error, data) => {
                    return Poll::Ready(Completion { user: 0, result: Err(error), data });
                }
                // Polled after its end: a mistake of the executor, which gets what a future may
                // give then.
                State::Over => return Poll::Pending,
            };
        }
    }
}

impl<B: Buffer + 'static> Drop for Pending<B> {
    fn drop(&mut self) {
        match self.state {
            State::Room(ticket, ..) => self.queue.give_up(ticket),
            State::Sent(slot) => self.queue.abandon(slot),
            State::New(..) | State::Failed(..) | State::Over => {}
        }
    }
}

impl<B: Buffer + 'static> std::fmt::Debug for Pending<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.state {
            State::New(..) | State::Room(..) => "waits for room",
            State::Sent(_) => "sent",
            State::Failed(..) | State::Over => "over",
        };
        f.debug_struct("Pending").field("state", &state).finish_non_exhaustive()
    }
}
