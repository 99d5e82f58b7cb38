//! A queue over all paths to a namespace, for futures: a thread has it, and everything that follows
//! a refusal or a loss is the queue's ([`PathQueue`]).

use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker as TaskWaker};
use std::time::Duration;

use ebof_nvme::Sqe;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::command::data::{Completion, Data, IoBuffer, SubmitError};
use crate::controller::paths::calls::PathNamespace;
use crate::controller::paths::queue::PathQueue;
use crate::error::Error;
use crate::wait::lock::lock;
use crate::wait::{Waker, wait};

/// The pause after a failed system call, so that retrying does not become a busy loop.
const ERROR_PAUSE: Duration = Duration::from_millis(1);

/// The paths to a namespace. Cheap to clone; the thread ends with the last one.
pub(super) struct PathTasks<B: IoBuffer + 'static>(Arc<Handle<B>>);

struct Handle<B: IoBuffer + 'static> {
    namespace: PathNamespace,
    inbox: Arc<Inbox<B>>,
}

/// Commands for the thread: one for each future that was polled and is not sent yet.
struct Inbox<B> {
    waiting: Mutex<Waiting<B>>,
    waker: Waker,
}

struct Waiting<B> {
    commands: VecDeque<Submission<B>>,
    is_closed: bool,
}

struct Submission<B> {
    sqe: Sqe,
    data: Data<B>,
    answer: Arc<Answer<B>>,
}

/// Where a completion is left for a future.
struct Answer<B>(Mutex<Answered<B>>);

struct Answered<B> {
    completion: Option<Completion<B>>,
    task: Option<TaskWaker>,
}

impl<B: IoBuffer + 'static> Clone for PathTasks<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: IoBuffer + 'static> Drop for Handle<B> {
    fn drop(&mut self) {
        lock(&self.inbox.waiting).is_closed = true;
        self.inbox.waker.wake();
    }
}

impl<B: IoBuffer + 'static> PathTasks<B> {
    /// Connects a queue over each path, and starts the thread that has them.
    ///
    /// # Errors
    /// As [`PathQueue::new`]; the system starts no thread.
    pub(super) fn new(namespace: PathNamespace) -> Result<Self, Error> {
        let queue = PathQueue::new(&namespace)?;
        let waker = namespace.first().controller().shared().waiter.waker();
        let waker = waker.map_err(|errno| Error::System { action: "making an event descriptor", errno })?;
        let inbox =
            Arc::new(Inbox { waiting: Mutex::new(Waiting { commands: VecDeque::new(), is_closed: false }), waker });
        let for_thread = Arc::clone(&inbox);
        let thread = std::thread::Builder::new().name("nvme-futures".to_owned());
        let started =
            thread.spawn(move || Server { queue, inbox: for_thread, sent: Vec::new(), free: Vec::new() }.run());
        started.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
            Error::System { action: "starting a thread", errno }
        })?;
        Ok(Self(Arc::new(Handle { namespace, inbox })))
    }

    pub(super) fn namespace(&self) -> &PathNamespace {
        &self.0.namespace
    }

    /// Runs a command over whichever path is best.
    pub(super) fn submit(&self, sqe: Sqe, data: Data<B>) -> PathCommand<B> {
        PathCommand { inbox: Arc::clone(&self.0.inbox), state: State::New(sqe, data) }
    }
}

/// A command as a future. Dropping it gives the command up.
pub(super) struct PathCommand<B: IoBuffer + 'static> {
    inbox: Arc<Inbox<B>>,
    state: State<B>,
}

enum State<B> {
    New(Sqe, Data<B>),
    Sent(Arc<Answer<B>>),
    Complete,
}

// No field is pinned: the buffer is only moved.
impl<B: IoBuffer + 'static> Unpin for PathCommand<B> {}

impl<B: IoBuffer + 'static> Future for PathCommand<B> {
    type Output = Completion<B>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion<B>> {
        match std::mem::replace(&mut self.state, State::Complete) {
            State::New(sqe, data) => {
                let answered = Answered { completion: None, task: Some(context.waker().clone()) };
                let answer = Arc::new(Answer(Mutex::new(answered)));
                let submission = Submission { sqe, data, answer: Arc::clone(&answer) };
                lock(&self.inbox.waiting).commands.push_back(submission);
                self.inbox.waker.wake();
                self.state = State::Sent(answer);
            }
            State::Sent(answer) => {
                let mut answered = lock(&answer.0);
                if let Some(completion) = answered.completion.take() {
                    return Poll::Ready(completion);
                }
                let before = answered.task.replace(context.waker().clone());
                drop(answered);
                // Without the lock: it may be the last reference to another task.
                drop(before);
                self.state = State::Sent(answer);
            }
            // Polled after it was ready, which is a mistake of the executor.
            State::Complete => {}
        }
        Poll::Pending
    }
}

/// The thread with the queue.
struct Server<B: IoBuffer + 'static> {
    queue: PathQueue<B>,
    inbox: Arc<Inbox<B>>,
    /// Who waits for the commands that were submitted, by what they are called there.
    sent: Vec<Option<Arc<Answer<B>>>>,
    free: Vec<usize>,
}

impl<B: IoBuffer + 'static> Server<B> {
    fn run(mut self) {
        loop {
            self.inbox.waker.clear();
            if !self.submit() {
                return;
            }
            let polled = self.queue.flush().and_then(|()| self.complete());
            match polled {
                // There is room for what waits.
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "polling the paths of a namespace");
                    std::thread::sleep(ERROR_PAUSE);
                }
            }
            let mut ready = vec![PollFd::from_borrowed_fd(self.queue.as_fd(), PollFlags::IN)];
            let waker = self.inbox.waker.descriptor();
            ready.extend(waker.map(|waker| PollFd::from_borrowed_fd(waker, PollFlags::IN)));
            if let Err(error) = wait(&mut ready, self.queue.check_after()) {
                tracing::warn!(%error, "waiting for the paths of a namespace");
                std::thread::sleep(ERROR_PAUSE);
            }
        }
    }

    /// Submits what waits, as far as there is room. `false` if nobody has the namespace any more.
    fn submit(&mut self) -> bool {
        while self.queue.in_flight() < self.queue.capacity() {
            let Submission { sqe, data, answer } = {
                let mut waiting = lock(&self.inbox.waiting);
                match waiting.commands.pop_front() {
                    Some(command) => command,
                    None => return !waiting.is_closed,
                }
            };
            if Arc::strong_count(&answer) == 1 {
                // Its future was dropped.
                continue;
            }
            let slot = self.free.pop().unwrap_or_else(|| {
                self.sent.push(None);
                self.sent.len() - 1
            });
            match self.queue.submit(sqe, data, slot as u64) {
                Ok(()) => self.sent[slot] = Some(answer),
                Err(SubmitError { reason, data }) => {
                    self.free.push(slot);
                    answer.set(Completion { user: 0, result: Err(reason), data });
                }
            }
        }
        true
    }

    /// Hands completions to their futures. Returns whether there were any.
    fn complete(&mut self) -> Result<bool, Error> {
        let mut any = false;
        while let Some(completion) = self.queue.poll()? {
            any = true;
            let slot = usize::try_from(completion.user).unwrap_or(usize::MAX);
            let Some(answer) = self.sent.get_mut(slot).and_then(Option::take) else { continue };
            self.free.push(slot);
            answer.set(Completion { user: 0, ..completion });
        }
        Ok(any)
    }
}

impl<B> Answer<B> {
    fn set(&self, completion: Completion<B>) {
        let task = {
            let mut answered = lock(&self.0);
            answered.completion = Some(completion);
            answered.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}
