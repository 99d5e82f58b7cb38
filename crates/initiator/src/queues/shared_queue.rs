//! One queue pair shared by many threads: who sends, who polls the connection, who sleeps.
//!
//! There are two locks, and neither is held while a thread sleeps. The queue pair's is held while a
//! thread sends or receives. The submission state's is held for a few instructions. A thread queues
//! its command in the submission state and then tries to lock the queue pair. If it gets it, it
//! sends everything that is queued. If not, the thread that has it looks at the submission state
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

use ebof_idle::{Idle, Step};
use ebof_nvme::QueueId;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::submission::{Command, Look, Owner, Room, Submission, SubmissionState, Wake};
use crate::data::{Buffer, Completion, Data};
use crate::error::Error;
use crate::lock::lock;
use crate::queue::QueuePair;
use crate::wait::{Time, Waker, shorter, wait};

/// Looks at the socket between two calls of `sched_yield` while spinning, as in `QueuePair::wait`.
const LOOKS_PER_YIELD: u32 = 4;
/// How long a caller polls a poll queue before it waits as on the others: a target that is this
/// late is not worth a processor.
const POLL_TIME: Duration = Duration::from_millis(2);
/// Whoever leads looks at the clock at least this often.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// A pause after the system refused something, so that trying again is not a loop.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// See the module.
pub(super) struct SharedQueue<B: Buffer> {
    core: Mutex<Core<B>>,
    state: Mutex<SubmissionState<B>>,
    /// How long whoever leads looks at the socket before it sleeps. The leader works on a copy.
    idle: Mutex<Idle>,
    /// Readable when the queue pair has something to do.
    ready: OwnedFd,
    waker: Arc<Waker>,
    /// Whether callers poll for their completions.
    polled: bool,
    time: Time,
    /// The thread that leads for futures waits for them here, with the submission state.
    tasks_wait: Condvar,
    driver: Mutex<Option<JoinHandle<()>>>,
    /// The generation of the controller that does not have this queue; 0 is none.
    missing_in: AtomicU64,
}

/// What goes with the queue pair.
struct Core<B: Buffer> {
    queue: QueuePair<B>,
    /// Taken from the submission state, and not in the queue pair yet.
    queued: VecDeque<Submission<B>>,
    /// Complete, and not handed to the submission state yet.
    completed: Vec<Completion<B>>,
}

/// What a look at the socket gave.
enum Polled {
    Progress,
    /// Nothing; how long to sleep at most.
    Nothing(Duration),
    Refused,
}

impl<B: Buffer + 'static> SharedQueue<B> {
    pub(super) fn new(queue: QueuePair<B>, polled: bool, spin_us: u64) -> Result<Self, Error> {
        let capacity = u16::try_from(queue.capacity()).unwrap_or(u16::MAX);
        let ready = queue.as_fd().try_clone_to_owned().map_err(|error| Error::System {
            action: "duplicating a descriptor",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        Ok(Self {
            waker: Arc::clone(queue.waker()),
            time: queue.time().clone(),
            core: Mutex::new(Core {
                queue,
                queued: VecDeque::with_capacity(usize::from(capacity)),
                completed: Vec::with_capacity(usize::from(capacity)),
            }),
            idle: Mutex::new(Idle::new(spin_us)),
            state: Mutex::new(SubmissionState::new(capacity)),
            ready,
            polled,
            tasks_wait: Condvar::new(),
            driver: Mutex::new(None),
            missing_in: AtomicU64::new(0),
        })
    }

    pub(super) fn id(&self) -> QueueId {
        lock(&self.core).queue.id()
    }

    /// Whether the queue was not granted any more when the controller came to `generation`.
    pub(super) fn is_missing(&self, generation: u64) -> bool {
        self.missing_in.load(Ordering::Relaxed) == generation
    }

    /// Runs a command and waits for it.
    pub(super) fn execute(&self, command: Command, data: Data<B>) -> Completion<B> {
        let slot = self.wait_for_room();
        lock(&self.state).post(Submission { slot, command, data }, Owner::Thread, None);
        self.send();
        let polled = if self.polled { self.poll_for(slot) } else { None };
        polled.unwrap_or_else(|| self.wait_for(slot))
    }

    fn wait_for_room(&self) -> u16 {
        let this_thread = || Wake::Thread(std::thread::current());
        let ticket = match lock(&self.state).enter(this_thread) {
            Room::Slot(slot) => return slot,
            Room::Wait(ticket) => ticket,
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
            // What the system refused, it will refuse whoever looks at the socket, and a loss is
            // told with the commands.
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

    /// Submits what is queued to the queue pair. Returns an empty list for wakes.
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
                // Its turn comes with the next completion: there is one, for the queue is full.
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
            // Commands that were lost were in the way of a new connection.
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
            // A buffer that nobody wants any more is dropped here: its drop must not come back to
            // this queue.
            drop(state.complete(completion, wakes));
        }
        // It may have been the command that the one who leads waits for.
        if state.leader_sleeps && !leads {
            self.waker.wake();
        }
    }

    /// Wakes, with no lock held, and says whether something was queued while the
    /// queue pair was held.
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
            (false, _) => Polled::Progress,
            (true, false) => Polled::Nothing(core.queue.time_to_sleep().map_or(SLEEP_MAX, |time| time.min(SLEEP_MAX))),
            (true, true) => Polled::Refused,
        };
        self.deliver(&mut core, &mut wakes, leads);
        drop(core);
        if self.wake_all(wakes) {
            self.send();
        }
        found
    }

    /// Looks at the socket once, for those who poll by themselves. True when something was over.
    pub(super) fn poll(&self) -> bool {
        self.try_core().is_some_and(|core| matches!(self.poll_once(core, false), Polled::Progress))
    }

    /// Polls for a command; `None` when that took too long.
    fn poll_for(&self, slot: u16) -> Option<Completion<B>> {
        let until = self.time.now() + POLL_TIME;
        let mut looks = 0u32;
        loop {
            looks += 1;
            if let Some(core) = self.try_core() {
                self.poll_once(core, false);
            }
            if let Look::Over(completion) = self.look(slot, false) {
                return Some(completion);
            }
            if looks.is_multiple_of(LOOKS_PER_YIELD) {
                if self.time.now() >= until {
                    return None;
                }
                std::thread::yield_now();
            }
        }
    }

    /// Looks after one's own command; sees to it that somebody leads when the caller, whose command
    /// is over, goes.
    fn look(&self, slot: u16, lead: bool) -> Look<B> {
        let mut state = lock(&self.state);
        let mut wakes = Wakes::default();
        let look = state.look(slot, lead, &mut wakes.next);
        if let Look::Over(_) = look {
            self.hand_over(&mut state, &mut wakes);
        }
        drop(state);
        wakes.wake();
        look
    }

    /// If nobody leads, somebody who waits has to be woken for it.
    fn hand_over(&self, state: &mut SubmissionState<B>, wakes: &mut Wakes) {
        if state.led {
            return;
        }
        match state.successor() {
            Some(wake) => wakes.successor = Some(wake),
            None if state.tasks > 0 => self.tasks_wait.notify_one(),
            None => {}
        }
    }

    /// Waits for a command of a thread: leads, or sleeps while another does.
    fn wait_for(&self, slot: u16) -> Completion<B> {
        loop {
            let mut state = lock(&self.state);
            let mut wakes = Wakes::default();
            match state.look(slot, true, &mut wakes.next) {
                Look::Over(completion) => {
                    self.hand_over(&mut state, &mut wakes);
                    drop(state);
                    wakes.wake();
                    return completion;
                }
                Look::Led => {
                    state.sleep(slot, Wake::Thread(std::thread::current()));
                    drop(state);
                    std::thread::park();
                }
                Look::Lead => {
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
            |state| match state.look(slot, false, &mut wakes.next) {
                Look::Over(completion) => Some(completion),
                Look::Led | Look::Lead => None,
            },
            false,
        );
        wakes.wake();
        completion
    }

    /// Looks at the socket, spins and sleeps until `done`, which is asked after every look.
    /// `politely`: whoever was woken may need this very processor, and this thread has nothing of
    /// its own to do.
    fn lead<T>(&self, mut done: impl FnMut(&mut SubmissionState<B>) -> Option<T>, politely: bool) -> T {
        let mut looks = 0u32;
        let now_us = || self.time.now_us();
        let mut idle = lock(&self.idle).clone();
        loop {
            looks = looks.wrapping_add(1);
            let polled = self.poll_once(lock(&self.core), true);
            if matches!(polled, Polled::Progress) && idle.is_waiting() {
                idle.found(now_us());
            }
            if let Some(result) = self.finished(&mut done, &mut idle, false) {
                return result;
            }
            if politely {
                std::thread::yield_now();
            }
            match polled {
                Polled::Progress => {}
                Polled::Refused => std::thread::sleep(REFUSED_PAUSE),
                Polled::Nothing(_) if !looks.is_multiple_of(idle.looks_per_step().min(LOOKS_PER_YIELD)) => {}
                Polled::Nothing(time) => {
                    let Step::Sleep(bound_us) = idle.step(now_us()) else {
                        idle.give_way();
                        continue;
                    };
                    // Asked once more, with the note that this thread sleeps: whoever ends a
                    // command wakes it from now on.
                    if let Some(result) = self.finished(&mut done, &mut idle, true) {
                        return result;
                    }
                    let mut ready = [PollFd::new(&self.ready, PollFlags::IN)];
                    let slept = idle.sleep(bound_us, now_us, |bound| wait(&mut ready, shorter(Some(time), bound)));
                    if slept.is_err() {
                        std::thread::sleep(REFUSED_PAUSE);
                    }
                    lock(&self.state).leader_sleeps = false;
                }
            }
        }
    }

    /// If the one who leads is done, it leads no more.
    fn finished<T>(
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
        // What was learned goes to whoever leads next.
        lock(&self.idle).clone_from(idle);
        state.led = false;
        let mut wakes = Wakes::default();
        self.hand_over(&mut state, &mut wakes);
        drop(state);
        wakes.wake();
        Some(result)
    }
}

/// Wakes found under a lock, to be done without it.
#[derive(Default)]
struct Wakes {
    /// Who gets a slot.
    next: Option<Wake>,
    /// Who leads.
    successor: Option<Wake>,
}

impl Wakes {
    fn wake(self) {
        self.next.into_iter().chain(self.successor).for_each(Wake::wake);
    }
}

impl<B: Buffer> Core<B> {
    /// Takes what is over already; whether there was something.
    fn collect(&mut self) -> bool {
        let before = self.completed.len();
        while let Some(completion) = self.queue.next_ready() {
            self.completed.push(completion);
        }
        self.completed.len() > before
    }
}

/// Futures.
impl<B: Buffer + 'static> SharedQueue<B> {
    /// Queues a future's command if there is room; otherwise gives it back.
    pub(super) fn start(&self, command: Command, data: Data<B>) -> Result<u16, (Command, Data<B>)> {
        let Some(slot) = lock(&self.state).try_enter() else { return Err((command, data)) };
        self.post_task(slot, command, data, None);
        Ok(slot)
    }

    pub(super) fn post_task(&self, slot: u16, command: Command, data: Data<B>, waker: Option<&TaskWaker>) {
        {
            let mut state = lock(&self.state);
            state.post(Submission { slot, command, data }, Owner::Task, waker.cloned().map(Wake::Task));
            if !state.led {
                self.tasks_wait.notify_one();
            }
        }
        self.send();
    }

    /// A slot or a ticket for a future.
    pub(super) fn enter_task(&self, waker: &TaskWaker) -> Room {
        lock(&self.state).enter(|| Wake::Task(waker.clone()))
    }

    pub(super) fn redeem_task(&self, ticket: u64, waker: &TaskWaker) -> Option<u16> {
        lock(&self.state).redeem(ticket, || Wake::Task(waker.clone()))
    }

    /// The command's completion, or its future will be woken.
    pub(super) fn look_task(&self, slot: u16, waker: &TaskWaker) -> Option<Completion<B>> {
        let mut state = lock(&self.state);
        let mut wakes = Wakes::default();
        let look = state.look(slot, false, &mut wakes.next);
        let completion = match look {
            Look::Over(completion) => Some(completion),
            Look::Led | Look::Lead => {
                state.sleep(slot, Wake::Task(waker.clone()));
                None
            }
        };
        drop(state);
        wakes.wake();
        completion
    }

    /// The future of a command is dropped.
    pub(super) fn abandon(&self, slot: u16) {
        let (wake, completion) = lock(&self.state).abandon(slot);
        wake.into_iter().for_each(Wake::wake);
        drop(completion);
    }

    /// The future that held a ticket is dropped.
    pub(super) fn give_up(&self, ticket: u64) {
        let wake = lock(&self.state).give_up(ticket);
        wake.into_iter().for_each(Wake::wake);
    }

    /// The thread that leads for futures is there from the first one on.
    pub(super) fn ensure_driver(self: &Arc<Self>) -> Result<(), Error> {
        let mut driver = lock(&self.driver);
        if driver.is_some() {
            return Ok(());
        }
        let queue = Arc::clone(self);
        let thread = std::thread::Builder::new().name("nvme-futures".to_owned()).spawn(move || queue.drive());
        *driver = Some(thread.map_err(|error| Error::System {
            action: "starting a thread",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
        })?);
        Ok(())
    }

    /// Leads while there are futures and nobody else does.
    fn drive(&self) {
        loop {
            {
                let mut state = lock(&self.state);
                while !state.stop && (state.tasks == 0 || state.led) {
                    state = self.tasks_wait.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                if state.stop {
                    return;
                }
                state.led = true;
            }
            self.lead(|state| (state.stop || state.tasks == 0).then_some(()), true);
        }
    }

    /// Ends the thread that leads for futures. Nobody waits for a command any more.
    pub(super) fn stop(&self) {
        lock(&self.state).stop = true;
        self.tasks_wait.notify_one();
        self.waker.wake();
        let driver = lock(&self.driver).take();
        let this: ThreadId = std::thread::current().id();
        // A future that is the last to hold the queues may be dropped by that very thread.
        if let Some(driver) = driver.filter(|driver| driver.thread().id() != this) {
            drop(driver.join());
        }
    }
}
