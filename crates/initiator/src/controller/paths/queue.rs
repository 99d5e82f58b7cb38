//! A queue over all paths, in the hands of one thread: used like a [`crate::QueuePair`].

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_idle::{Idle, IdleStep};
use ebof_nvme::command::Fuse;
use ebof_nvme::{Nsid, Sqe};
use rustix::event::{PollFd, PollFlags};

use super::calls::PathNamespace;
use super::lanes::Lanes;
use crate::command::data::{Completion, Data, IoBuffer, SubmitError};
use crate::command::fate::Fate;
use crate::command::retry::{Retries, Retry};
use crate::command::troubles::Trouble;
use crate::error::Error;
use crate::error::state::State;
use crate::requeue::verdict::PathVerdict;
use crate::requeue::{Requeue, Requeued};
use crate::shared::opened::NamespaceHead;
use crate::wait::{Time, Waiter, shorter, wait};

/// A queue over all paths to a namespace, for one thread. Each command takes the path that is best;
/// one that is refused because of its path, or lost with it, goes on over another one, as calls of
/// [`PathNamespace`] do. Other statuses are the caller's to judge.
pub struct PathQueue<B: IoBuffer> {
    lanes: Lanes<B>,
    requeue: Requeue<Waiting<B>>,
    head: NamespaceHead,
    nsid: Nsid,
    /// The commands that were sent, by what they are called there.
    sent: Vec<Option<Sent>>,
    free: Vec<usize>,
    /// Completions that no path has sent.
    failed: VecDeque<Completion<B>>,
    completed: u64,
    time: Time,
    idle: Idle,
}

struct Waiting<B> {
    sent: Sent,
    data: Data<B>,
}

struct Sent {
    sqe: Sqe,
    user: u64,
    has_data: bool,
    retries: Retries,
    /// For the policy that asks for it.
    began: Option<Instant>,
}

impl Sent {
    /// What may be done with it when it is not known whether it was executed.
    fn fate(&self) -> Fate {
        Fate::of(self.sqe.opcode, self.sqe.fuse() != Fuse::Normal)
    }
}

impl<B> Requeued for Waiting<B> {
    fn retries(&mut self) -> &mut Retries {
        &mut self.sent.retries
    }
}

/// Polls between two looks at the clock.
const POLLS_PER_STEP: u32 = 16;
/// The longest sleep: polling checks for commands that timed out.
const SLEEP_MAX: Duration = Duration::from_secs(1);

impl<B: IoBuffer + 'static> PathQueue<B> {
    /// Connects a queue over each path to `namespace`, for one thread.
    ///
    /// # Errors
    /// As [`Lanes::new`].
    pub fn new(namespace: &PathNamespace) -> Result<Self, Error> {
        let shared = Arc::clone(namespace.subsystem().controller().shared());
        shared.run(Self::establish(namespace, &shared.waiter))
    }

    /// As [`PathQueue::new`], waiting by `waiter`.
    pub(super) async fn establish(namespace: &PathNamespace, waiter: &Waiter) -> Result<Self, Error> {
        let lanes = Lanes::establish(namespace.subsystem(), false, waiter).await?;
        let controller = namespace.subsystem().controller();
        let options = controller.options();
        Ok(Self {
            requeue: Requeue::new(options, lanes.path_changes()),
            lanes,
            head: namespace.head(),
            nsid: namespace.nsid(),
            sent: Vec::new(),
            free: Vec::new(),
            failed: VecDeque::new(),
            completed: 0,
            time: waiter.time.clone(),
            idle: Idle::new(u64::from(options.spin_us)),
        })
    }

    /// Commands that may be outstanding at once.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.lanes.capacity()
    }

    /// Commands that are outstanding: at a controller, waiting for a path, or not yet collected.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.sent.len() - self.free.len() + self.requeue.len() + self.failed.len()
    }

    /// Queues a command to the namespace, as [`crate::QueuePair::submit`]. Without a path it waits
    /// for one, as long as the options say.
    ///
    /// # Errors
    /// [`Error::QueueFull`], with the data.
    pub fn submit(&mut self, sqe: Sqe, data: Data<B>, user: u64) -> Result<(), SubmitError<B>> {
        if self.in_flight() >= self.capacity() {
            return Err(SubmitError { reason: Error::QueueFull, data });
        }
        let has_data = !matches!(data, Data::None);
        let began = self.lanes.wants_latency().then(|| self.time.now());
        let command = Waiting { sent: Sent { sqe, user, has_data, retries: Retries::default(), began }, data };
        if self.requeue.has_waiting() || self.requeue.is_lost() {
            self.requeue.push(command);
        } else {
            self.send(command);
        }
        Ok(())
    }

    /// Sends everything queued.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.lanes.flush()
    }

    /// The next completion, if there is one. Sends and receives. Poll until `None` before waiting
    /// for the descriptor, and [`PathQueue::check_after`] after the last poll at the latest.
    ///
    /// # Errors
    /// [`Error::System`]. Without a path commands wait here, and are completed with the reason when
    /// none is waited for any more.
    pub fn poll(&mut self) -> Result<Option<Completion<B>>, Error> {
        loop {
            if let Some(completion) = self.failed.pop_front() {
                return Ok(Some(completion));
            }
            match self.lanes.poll() {
                Ok(Some((lane, completion))) => {
                    if let Some(completion) = self.settle(lane, completion) {
                        self.completed += 1;
                        return Ok(Some(completion));
                    }
                }
                Ok(None) => break,
                Err(error @ Error::System { .. }) => return Err(error),
                Err(_not_connected) => {
                    self.requeue.note_loss();
                    break;
                }
            }
        }
        if self.requeue.is_lost() || !self.requeue.is_empty() {
            self.send_waiting();
        }
        Ok(self.failed.pop_front())
    }

    /// The next completion that no path has to be asked for.
    pub fn next_ready(&mut self) -> Option<Completion<B>> {
        self.failed.pop_front()
    }

    /// As [`PathQueue::poll`], but waits until `deadline` (`None`: for ever). Returns `None` at
    /// once when nothing is outstanding.
    ///
    /// # Errors
    /// As [`PathQueue::poll`].
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Completion<B>>, Error> {
        loop {
            for _ in 0..POLLS_PER_STEP {
                if let Some(completion) = self.poll()? {
                    if self.idle.is_waiting() {
                        self.idle.found(self.time.now_us());
                    }
                    return Ok(Some(completion));
                }
            }
            let now = self.time.now();
            if self.in_flight() == 0 || deadline.is_some_and(|deadline| now >= deadline) {
                self.idle.stop();
                return Ok(None);
            }
            self.sleep(deadline.map(|deadline| deadline.saturating_duration_since(now)))?;
        }
    }

    /// Spins for a while, then sleeps for at most `limit`.
    fn sleep(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        let now_us = self.time.now_us();
        self.idle.set_work(self.completed);
        match self.idle.step(now_us) {
            IdleStep::GiveWay => self.idle.give_way(now_us),
            IdleStep::Sleep(bound_us) => {
                let timeout = shorter(limit, self.check_after());
                let mut ready = [PollFd::from_borrowed_fd(self.lanes.as_fd(), PollFlags::IN)];
                let time = &self.time;
                self.idle
                    .sleep(bound_us, || time.now_us(), |bound| wait(&mut ready, shorter(timeout, bound)))
                    .map_err(|errno| Error::System { action: "waiting for an answer", errno })?;
            }
        }
        Ok(())
    }

    /// When to poll again at the latest, although the descriptor is not readable; `None` if nothing
    /// is outstanding.
    #[must_use]
    pub fn check_after(&self) -> Option<Duration> {
        self.requeue.check_after().or((self.in_flight() > 0).then_some(SLEEP_MAX))
    }

    /// When to poll again if nothing arrives before.
    pub(super) fn due(&mut self) -> Option<Instant> {
        let check = self.requeue.check_after().map(|pause| self.time.now() + pause);
        self.lanes.due().into_iter().chain(check).min()
    }

    /// Sends a command over a path, or keeps it for later. Returns whether it is off the requeue.
    fn send(&mut self, command: Waiting<B>) -> bool {
        let Some(lane) = self.lanes.choose(Some(self.head), self.nsid) else { return self.without_path(command) };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.sent.push(None);
            self.sent.len() - 1
        });
        let Waiting { sent, data } = command;
        match self.lanes.submit(lane, Some(self.head), sent.sqe, data, slot as u64) {
            Ok(()) => {
                self.sent[slot] = Some(sent);
                true
            }
            Err(SubmitError { reason, data }) => {
                self.free.push(slot);
                let command = Waiting { sent, data };
                if matches!(reason, Error::QueueFull) {
                    self.requeue.put_back(command);
                    return false;
                }
                let verdict = self.lanes.judge(lane, Some(self.head), self.nsid, &reason, command.sent.fate());
                match self.requeue.keep_unsent(command, verdict) {
                    Ok(()) => false,
                    Err(command) => {
                        self.fail(command, reason);
                        true
                    }
                }
            }
        }
    }

    /// No path takes a command: it waits for one. Returns whether it is off the requeue.
    fn without_path(&mut self, command: Waiting<B>) -> bool {
        let Some(outage) = self.lanes.outage(Some(self.head)) else {
            self.requeue.note_loss();
            self.requeue.put_back(command);
            return false;
        };
        if let Err(command) = self.requeue.park(command, outage) {
            let error = self.lanes.not_connected();
            self.fail(command, error);
        }
        true
    }

    fn fail(&mut self, command: Waiting<B>, error: Error) {
        let Waiting { sent, data } = command;
        self.failed.push_back(Completion { user: sent.user, result: Err(error), data });
    }

    /// Sends what waits, if there is a path; fails it if none is waited for any more.
    fn send_waiting(&mut self) {
        self.requeue.end_pauses(|| self.lanes.path_changes());
        if self.requeue.is_given_up(|| self.lanes.state()) {
            let error = self.lanes.not_connected();
            let commands = self.requeue.take_all().collect::<Vec<_>>();
            commands.into_iter().for_each(|command| self.fail(command, error.clone()));
            return;
        }
        while !self.requeue.is_lost()
            && let Some(command) = self.requeue.pop()
        {
            if !self.send(command) {
                break;
            }
        }
        // A lost connection is found by the next poll.
        let _system = self.lanes.flush();
    }

    /// What comes of a completion: `None` if the command is sent again.
    fn settle(&mut self, lane: usize, completion: Completion<B>) -> Option<Completion<B>> {
        let Completion { user: slot, result, data } = completion;
        let slot = usize::try_from(slot).unwrap_or(usize::MAX);
        let sent = self.sent.get_mut(slot).and_then(Option::take)?;
        self.free.push(slot);
        let user = sent.user;
        // A network card that did not release the data after a loss: they cannot be sent again.
        let is_gone = sent.has_data && matches!(data, Data::None);
        let is_repeatable = !is_gone && sent.fate() != Fate::Fail;
        match result {
            Ok(cqe) if cqe.status().is_success() => {
                if let Some(began) = sent.began {
                    self.lanes.note_latency(lane, began, self.time.now());
                }
                Some(Completion { user, result: Ok(cqe), data })
            }
            Ok(cqe) if Retry::is_about_path(cqe.status()) || (is_repeatable && Retry::is_about_queue(cqe.status())) => {
                let verdict = self.lanes.judge_status(lane, Some(self.head), self.nsid, cqe.status());
                let command = self.keep(lane, Waiting { sent, data }, verdict)?;
                Some(Completion { user, result: Ok(cqe), data: command.data })
            }
            Err(error) if error.is_connection() && !is_gone => {
                let verdict = self.lanes.judge(lane, Some(self.head), self.nsid, &error, sent.fate());
                let command = self.keep(lane, Waiting { sent, data }, verdict)?;
                Some(Completion { user, result: Err(error), data: command.data })
            }
            result => Some(Completion { user, result, data }),
        }
    }

    /// Keeps a command that has come back over a path, as `verdict` says; gives it back if it has
    /// failed.
    fn keep(&mut self, lane: usize, command: Waiting<B>, verdict: PathVerdict) -> Option<Waiting<B>> {
        let kept = self.requeue.keep(command, verdict);
        if kept.is_ok() {
            self.lanes.controller(lane).note_trouble(Trouble::Repeated);
        }
        kept.err()
    }

    /// The state of its paths.
    #[must_use]
    pub fn state(&self) -> State {
        self.lanes.state()
    }
}

impl<B: IoBuffer + 'static> AsFd for PathQueue<B> {
    /// Readable when [`PathQueue::poll`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lanes.as_fd()
    }
}

impl<B: IoBuffer> std::fmt::Debug for PathQueue<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PathQueue").field("nsid", &self.nsid).field("lanes", &self.lanes).finish_non_exhaustive()
    }
}
