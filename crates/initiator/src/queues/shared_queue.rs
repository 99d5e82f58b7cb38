//! One queue pair shared by many threads: who sends, who polls the connection, who sleeps.
//!
//! There are two locks, and neither is held while a thread sleeps. The queue pair's is held while a
//! thread sends or receives. The submission state's is held for a few instructions. A thread queues
//! its command in the submission state and then tries to lock the queue pair. If it gets it, it
//! sends everything that is queued. If not, the thread that has it checks the submission state
//! again after unlocking.
//!
//! One of the waiting threads is the leader: it polls for all, sleeps in poll(2) with no lock held,
//! and hands over when its own command is complete. If only futures wait, a thread started for them
//! is the leader.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker as TaskWaker;
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use ebof_idle::{Idle, IdleStep};
use ebof_nvme::QueueId;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::submission::{Check, Owner, QueuedCommand, SlotOrTicket, Submission, SubmissionState, Wake};
use crate::command::data::{Completion, Data, IoBuffer};
use crate::error::Error;
use crate::queue::QueuePair;
use crate::wait::lock::lock;
use crate::wait::{Time, Waker, shorter, wait};

/// Polls of the socket between two calls of `sched_yield` while spinning, as in `QueuePair::wait`.
const POLLS_PER_YIELD: u32 = 4;
/// How long a caller polls a poll queue before it waits as on other queues: a slower target is not
/// worth a processor.
const POLL_TIME: Duration = Duration::from_millis(2);
/// The longest sleep of the leader: commands without an answer are found when it polls.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Pause after a failed system call, so that retrying does not become a busy loop.
const ERROR_PAUSE: Duration = Duration::from_millis(1);

/// A queue pair and the commands of all threads and futures that use it.
pub(super) struct SharedQueue<B: IoBuffer> {
    core: Mutex<Core<B>>,
    state: Mutex<SubmissionState<B>>,
    /// How long the leader spins before it sleeps. The leader works on a copy.
    idle: Mutex<Idle>,
    /// Readable when the queue pair has something to do.
    readiness: OwnedFd,
    /// Wakes the leader. Part of `readiness`, but apart from the queue pair's own waker, which
    /// every thread that polls clears: the leader would sleep on if another thread polled before it
    /// ran.
    leader_waker: Waker,
    /// Whether callers poll for their completions.
    polled: bool,
    time: Time,
    /// Wakes the thread that leads for futures. Used with `state`.
    tasks_changed: Condvar,
    futures_thread: Mutex<Option<JoinHandle<()>>>,
    /// The generation of the controller in which this queue was not granted; 0 for none.
    missing_in: AtomicU64,
}

/// What the queue pair's lock protects.
struct Core<B: IoBuffer> {
    queue: QueuePair<B>,
    /// Taken from the submission state, and not in the queue pair yet.
    queued: VecDeque<Submission<B>>,
    /// Complete, and not handed to the submission state yet.
    completed: Vec<Completion<B>>,
}

/// Result of polling the queue pair once.
enum Polled {
    Completions,
    /// No completion. How long the caller may sleep before the next poll, and how many completions
    /// there were until now.
    Empty(Duration, u64),
    /// A system call failed.
    Failed,
}

impl<B: IoBuffer + 'static> SharedQueue<B> {
    pub(super) fn new(mut queue: QueuePair<B>, polled: bool, spin_us: u64) -> Result<Self, Error> {
        let capacity = u16::try_from(queue.capacity()).unwrap_or(u16::MAX);
        let readiness = queue.as_fd().try_clone_to_owned().map_err(|error| Error::System {
            action: "duplicating a descriptor",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        Ok(Self {
            leader_waker: queue.add_waker()?,
            time: queue.time().clone(),
            core: Mutex::new(Core {
                queue,
                queued: VecDeque::with_capacity(usize::from(capacity)),
                completed: Vec::with_capacity(usize::from(capacity)),
            }),
            idle: Mutex::new(Idle::new(spin_us)),
            state: Mutex::new(SubmissionState::new(capacity)),
            readiness,
            polled,
            tasks_changed: Condvar::new(),
            futures_thread: Mutex::new(None),
            missing_in: AtomicU64::new(0),
        })
    }

    pub(super) fn id(&self) -> QueueId {
        lock(&self.core).queue.id()
    }

    /// Whether the controller did not grant this queue in `generation`.
    pub(super) fn is_missing(&self, generation: u64) -> bool {
        self.missing_in.load(Ordering::Relaxed) == generation
    }

    /// Runs a command and waits for it.
    pub(super) fn execute(&self, command: QueuedCommand, data: Data<B>) -> Completion<B> {
        let slot = self.wait_for_slot();
        lock(&self.state).post(Submission { slot, command, data }, Owner::Thread, None);
        self.send();
        let polled = if self.polled { self.poll_for(slot) } else { None };
        polled.unwrap_or_else(|| self.wait_for(slot))
    }

    fn wait_for_slot(&self) -> u16 {
        let this_thread = || Wake::Thread(std::thread::current());
        let ticket = match lock(&self.state).acquire(this_thread) {
            SlotOrTicket::Slot(slot) => return slot,
            SlotOrTicket::Ticket(ticket) => ticket,
        };
        loop {
            std::thread::park();
            if let Some(slot) = lock(&self.state).redeem(ticket, this_thread) {
                return slot;
            }
        }
    }

    /// Sends what is queued, unless another thread has the queue pair: then that one will.
    pub(super) fn send(&self) {
        loop {
            let Some(mut core) = self.try_core() else { return };
            let mut wakes = self.take_queued(&mut core);
            // Nothing is lost by ignoring the result: a failed system call fails again in the next
            // poll, and after a loss every command completes with `Error::Lost`.
            let _ = core.queue.flush();
            core.collect();
            self.deliver(&mut core, &mut wakes, false);
            drop(core);
            if !self.wake_all(wakes) {
                return;
            }
        }
    }

    fn try_core(&self) -> Option<MutexGuard<'_, Core<B>>> {
        match self.core.try_lock() {
            Ok(core) => Some(core),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Submits what is queued to the queue pair. Returns an empty list to collect wakes in.
    fn take_queued(&self, core: &mut Core<B>) -> Vec<Wake> {
        let wakes = {
            let mut state = lock(&self.state);
            if core.queued.is_empty() {
                std::mem::swap(&mut core.queued, &mut state.queued);
            } else {
                core.queued.append(&mut state.queued);
            }
            std::mem::take(&mut state.spare)
        };
        while let Some(submission) = core.queued.pop_front() {
            if let Some(back) = self.submit(core, submission) {
                // Retried after the next completion. There will be one: the queue is full.
                core.queued.push_front(back);
                break;
            }
        }
        wakes
    }

    /// Gives the submission back when the queue is full.
    fn submit(&self, core: &mut Core<B>, submission: Submission<B>) -> Option<Submission<B>> {
        let Submission { slot, command, data } = submission;
        let user = u64::from(slot);
        let Err(mut refused) = core.queue.submit_for(command.binding, command.sqe, data, user) else { return None };
        if matches!(refused.reason, Error::NotConnected(_)) && core.collect() {
            // Lost commands have to be collected before the queue reconnects.
            match core.queue.submit_for(command.binding, command.sqe, refused.data, user) {
                Ok(()) => return None,
                Err(again) => refused = again,
            }
        }
        match refused.reason {
            Error::QueueFull if core.queue.in_flight() > 0 => {
                return Some(Submission { slot, command, data: refused.data });
            }
            Error::NoFreeQueue { .. } => self.missing_in.store(core.queue.generation(), Ordering::Relaxed),
            _ => {}
        }
        core.completed.push(Completion { user, result: Err(refused.reason), data: refused.data });
        None
    }

    /// Hands completions to the submission state.
    fn deliver(&self, core: &mut Core<B>, wakes: &mut Vec<Wake>, leads: bool) {
        if core.completed.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        for completion in core.completed.drain(..) {
            // The buffer of an abandoned command is dropped here, with the locks held: its `drop`
            // must not use this queue.
            drop(state.complete(completion, wakes));
        }
        // The leader may be waiting for one of these commands.
        if state.leader_sleeps && !leads {
            self.leader_waker.wake();
        }
    }

    /// Wakes all of `wakes`, which must happen with no lock held. True if commands were queued
    /// while the queue pair was locked.
    fn wake_all(&self, mut wakes: Vec<Wake>) -> bool {
        wakes.drain(..).for_each(Wake::wake);
        let mut state = lock(&self.state);
        if state.spare.capacity() == 0 {
            state.spare = wakes;
        }
        !state.queued.is_empty()
    }

    /// Sends and receives once.
    fn poll_once(&self, mut core: MutexGuard<'_, Core<B>>, leads: bool) -> Polled {
        let mut wakes = self.take_queued(&mut core);
        let polled = core.queue.poll();
        let refused = matches!(polled, Err(Error::System { .. }));
        core.completed.extend(polled.ok().flatten());
        core.collect();
        let found = match (core.completed.is_empty(), refused) {
            (false, _) => Polled::Completions,
            (true, false) => {
                let time = core.queue.time_to_sleep().map_or(SLEEP_MAX, |time| time.min(SLEEP_MAX));
                Polled::Empty(time, core.queue.completed())
            }
            (true, true) => Polled::Failed,
        };
        self.deliver(&mut core, &mut wakes, leads);
        drop(core);
        if self.wake_all(wakes) {
            self.send();
        }
        found
    }

    /// Polls the socket once if no other thread does. True when a command completed.
    pub(super) fn poll(&self) -> bool {
        self.try_core().is_some_and(|core| matches!(self.poll_once(core, false), Polled::Completions))
    }

    /// Polls for a command; `None` if it is not complete after [`POLL_TIME`], or others need the
    /// processor: then it is waited for as on other queues.
    fn poll_for(&self, slot: u16) -> Option<Completion<B>> {
        let mut idle = lock(&self.idle).clone();
        let until = self.time.now() + POLL_TIME;
        let mut polls = 0u32;
        loop {
            polls += 1;
            if let Some(core) = self.try_core() {
                self.poll_once(core, false);
            }
            if let Check::Complete(completion) = self.check(slot, false) {
                return Some(completion);
            }
            if polls.is_multiple_of(POLLS_PER_YIELD) {
                if idle.is_shared() || self.time.now() >= until {
                    lock(&self.idle).clone_from(&idle);
                    return None;
                }
                idle.give_way(self.time.now_us());
            }
        }
    }

    /// Checks the caller's command. If it is complete, makes sure that another waiter leads.
    fn check(&self, slot: u16, lead: bool) -> Check<B> {
        let mut state = lock(&self.state);
        let mut wakes = Wakes::default();
        let look = state.check(slot, lead, &mut wakes.slot);
        if let Check::Complete(_) = look {
            self.hand_over(&mut state, &mut wakes);
        }
        drop(state);
        wakes.wake();
        look
    }

    /// Without a leader, picks one of those who wait to become it.
    fn hand_over(&self, state: &mut SubmissionState<B>, wakes: &mut Wakes) {
        if state.has_leader {
            return;
        }
        match state.next_leader() {
            Some(wake) => wakes.leader = Some(wake),
            None if state.tasks > 0 => self.tasks_changed.notify_one(),
            None => {}
        }
    }

    /// Waits for a command of a thread: leads, or sleeps while another does.
    fn wait_for(&self, slot: u16) -> Completion<B> {
        loop {
            let mut state = lock(&self.state);
            let mut wakes = Wakes::default();
            match state.check(slot, true, &mut wakes.slot) {
                Check::Complete(completion) => {
                    self.hand_over(&mut state, &mut wakes);
                    drop(state);
                    wakes.wake();
                    return completion;
                }
                Check::Pending => {
                    state.sleep(slot, Wake::Thread(std::thread::current()));
                    drop(state);
                    std::thread::park();
                }
                Check::Lead => {
                    drop(state);
                    return self.lead_for(slot);
                }
            }
        }
    }

    /// Leads until the caller's own command is over.
    fn lead_for(&self, slot: u16) -> Completion<B> {
        let mut wakes = Wakes::default();
        let completion = self.lead(
            |state| match state.check(slot, false, &mut wakes.slot) {
                Check::Complete(completion) => Some(completion),
                Check::Pending | Check::Lead => None,
            },
            false,
        );
        wakes.wake();
        completion
    }

    /// Polls, spins and sleeps until `done` gives a result; it is called after every poll.
    /// `yields`: yield the processor after every poll, for a thread that leads for others only.
    fn lead<T>(&self, mut done: impl FnMut(&mut SubmissionState<B>) -> Option<T>, yields: bool) -> T {
        let mut polls = 0u32;
        let now_us = || self.time.now_us();
        let mut idle = lock(&self.idle).clone();
        loop {
            polls = polls.wrapping_add(1);
            let polled = self.poll_once(lock(&self.core), true);
            if matches!(polled, Polled::Completions) && idle.is_waiting() {
                idle.found(now_us());
            }
            if let Some(result) = self.finish_leading(&mut done, &mut idle, false) {
                return result;
            }
            if yields {
                idle.give_way(now_us());
            }
            match polled {
                Polled::Completions => {}
                Polled::Failed => std::thread::sleep(ERROR_PAUSE),
                Polled::Empty(..) if !polls.is_multiple_of(idle.polls_per_step().min(POLLS_PER_YIELD)) => {}
                Polled::Empty(time, completed) => {
                    let now = now_us();
                    idle.set_work(completed);
                    let IdleStep::Sleep(bound_us) = idle.step(now) else {
                        idle.give_way(now);
                        continue;
                    };
                    // Checks once more, now with `leader_sleeps` set: whoever completes a command
                    // from here on wakes this thread.
                    if let Some(result) = self.finish_leading(&mut done, &mut idle, true) {
                        return result;
                    }
                    let mut ready = [PollFd::new(&self.readiness, PollFlags::IN)];
                    let slept = idle.sleep(bound_us, now_us, |bound| wait(&mut ready, shorter(Some(time), bound)));
                    if slept.is_err() {
                        std::thread::sleep(ERROR_PAUSE);
                    }
                    lock(&self.state).leader_sleeps = false;
                    self.leader_waker.clear();
                }
            }
        }
    }

    /// Stops leading if `done` gives a result; otherwise notes in the state whether the leader is
    /// about to sleep.
    fn finish_leading<T>(
        &self,
        done: &mut impl FnMut(&mut SubmissionState<B>) -> Option<T>,
        idle: &mut Idle,
        sleeps: bool,
    ) -> Option<T> {
        let mut state = lock(&self.state);
        let Some(result) = done(&mut state) else {
            state.leader_sleeps = sleeps;
            return None;
        };
        idle.stop();
        // The next leader starts with what this one has measured.
        lock(&self.idle).clone_from(idle);
        state.has_leader = false;
        let mut wakes = Wakes::default();
        self.hand_over(&mut state, &mut wakes);
        drop(state);
        wakes.wake();
        Some(result)
    }
}

/// Wakes that were found under a lock and are done after it is released.
#[derive(Default)]
struct Wakes {
    /// The next waiter for a slot.
    slot: Option<Wake>,
    /// The next leader.
    leader: Option<Wake>,
}

impl Wakes {
    fn wake(self) {
        self.slot.into_iter().chain(self.leader).for_each(Wake::wake);
    }
}

impl<B: IoBuffer> Core<B> {
    /// Takes the completions that were received already. True if there were any.
    fn collect(&mut self) -> bool {
        let before = self.completed.len();
        while let Some(completion) = self.queue.next_ready() {
            self.completed.push(completion);
        }
        self.completed.len() > before
    }
}

/// What futures use.
impl<B: IoBuffer + 'static> SharedQueue<B> {
    /// Queues a future's command if a slot is free; otherwise gives it back.
    pub(super) fn start(&self, command: QueuedCommand, data: Data<B>) -> Result<u16, (QueuedCommand, Data<B>)> {
        let Some(slot) = lock(&self.state).try_acquire() else { return Err((command, data)) };
        self.post_for_task(slot, command, data, None);
        Ok(slot)
    }

    pub(super) fn post_for_task(&self, slot: u16, command: QueuedCommand, data: Data<B>, waker: Option<&TaskWaker>) {
        {
            let mut state = lock(&self.state);
            state.post(Submission { slot, command, data }, Owner::Task, waker.cloned().map(Wake::Task));
            if !state.has_leader {
                self.tasks_changed.notify_one();
            }
        }
        self.send();
    }

    /// A slot or a ticket for a future.
    pub(super) fn acquire_for_task(&self, waker: &TaskWaker) -> SlotOrTicket {
        lock(&self.state).acquire(|| Wake::Task(waker.clone()))
    }

    pub(super) fn redeem_for_task(&self, ticket: u64, waker: &TaskWaker) -> Option<u16> {
        lock(&self.state).redeem(ticket, || Wake::Task(waker.clone()))
    }

    /// The command's completion; without one, `waker` is woken when there is.
    pub(super) fn check_for_task(&self, slot: u16, waker: &TaskWaker) -> Option<Completion<B>> {
        let mut state = lock(&self.state);
        let mut wakes = Wakes::default();
        let look = state.check(slot, false, &mut wakes.slot);
        let completion = match look {
            Check::Complete(completion) => Some(completion),
            Check::Pending | Check::Lead => {
                state.sleep(slot, Wake::Task(waker.clone()));
                None
            }
        };
        drop(state);
        wakes.wake();
        completion
    }

    /// The future of the command in `slot` was dropped.
    pub(super) fn abandon(&self, slot: u16) {
        let (wake, completion) = lock(&self.state).abandon(slot);
        wake.into_iter().for_each(Wake::wake);
        drop(completion);
    }

    /// The future that held `ticket` was dropped.
    pub(super) fn cancel_ticket(&self, ticket: u64) {
        let wake = lock(&self.state).cancel_ticket(ticket);
        wake.into_iter().for_each(Wake::wake);
    }

    /// Starts the thread that leads for futures, unless it runs already.
    ///
    /// # Errors
    /// The system starts no more threads.
    pub(super) fn ensure_futures_thread(self: &Arc<Self>) -> Result<(), Error> {
        let mut futures_thread = lock(&self.futures_thread);
        if futures_thread.is_some() {
            return Ok(());
        }
        let queue = Arc::clone(self);
        let thread =
            std::thread::Builder::new().name("nvme-futures".to_owned()).spawn(move || queue.run_futures_thread());
        *futures_thread = Some(thread.map_err(|error| Error::System {
            action: "starting a thread",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
        })?);
        Ok(())
    }

    /// Leads while commands of futures are outstanding and no other thread leads.
    fn run_futures_thread(&self) {
        loop {
            {
                let mut state = lock(&self.state);
                while !state.stop && (state.tasks == 0 || state.has_leader) {
                    state = self.tasks_changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                if state.stop {
                    return;
                }
                state.has_leader = true;
            }
            self.lead(|state| (state.stop || state.tasks == 0).then_some(()), true);
        }
    }

    /// Ends the thread that leads for futures. No command may be waited for any more.
    pub(super) fn stop(&self) {
        lock(&self.state).stop = true;
        self.tasks_changed.notify_one();
        self.leader_waker.wake();
        let futures_thread = lock(&self.futures_thread).take();
        let this: ThreadId = std::thread::current().id();
        // The last future may be dropped by that thread itself, which cannot join itself.
        if let Some(futures_thread) = futures_thread.filter(|futures_thread| futures_thread.thread().id() != this) {
            drop(futures_thread.join());
        }
    }
}
