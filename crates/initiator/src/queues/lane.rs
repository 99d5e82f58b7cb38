//! One queue in the hands of many threads: who sends, who looks at the socket, who sleeps.
//!
//! Two locks, never held while sleeping: the queue pair's, which a thread holds while it sends or
//! receives, and the desk's, held for a few instructions. A command is left at the desk; then
//! whoever gets hold of the queue pair sends all that lie there in one go. A thread that does not
//! get hold of it leaves its command to the one that has, which looks at the desk again after it
//! let go. One of those who wait leads: it looks at the socket for all, sleeps in poll(2) with no
//! lock held, and hands over when its own command is done. Futures have a thread lead for them when
//! nobody else does.

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

use super::desk::{Command, Desk, Letter, Look, Owner, Room, Wake};
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
pub(super) struct Lane<B: Buffer> {
    core: Mutex<Core<B>>,
    desk: Mutex<Desk<B>>,
    /// How long whoever leads looks at the socket before it sleeps. The leader works on a copy.
    idle: Mutex<Idle>,
    /// Readable when the queue pair has something to do.
    ready: OwnedFd,
    waker: Arc<Waker>,
    /// Whether callers poll for their completions.
    polled: bool,
    time: Time,
    /// The thread that leads for futures waits for them here, with the desk.
    tasks_wait: Condvar,
    driver: Mutex<Option<JoinHandle<()>>>,
    /// The generation of the controller that does not have this queue; 0 is none.
    missing_in: AtomicU64,
}

/// What goes with the queue pair.
struct Core<B: Buffer> {
    queue: QueuePair<B>,
    /// Taken from the desk and not in the queue pair yet.
    letters: VecDeque<Letter<B>>,
    /// Over, and not told yet.
    over: Vec<Completion<B>>,
}

/// What a look at the socket gave.
enum Turn {
    Progress,
    /// Nothing; how long to sleep at most.
    Nothing(Duration),
    Refused,
}

impl<B: Buffer + 'static> Lane<B> {
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
                letters: VecDeque::with_capacity(usize::from(capacity)),
                over: Vec::with_capacity(usize::from(capacity)),
            }),
            idle: Mutex::new(Idle::new(spin_us)),
            desk: Mutex::new(Desk::new(capacity)),
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
        let place = self.wait_for_room();
        lock(&self.desk).post(Letter { place, command, data }, Owner::Thread, None);
        self.send();
        let polled = if self.polled { self.poll_for(place) } else { None };
        polled.unwrap_or_else(|| self.wait_for(place))
    }

    fn wait_for_room(&self) -> u16 {
        let this_thread = || Wake::Thread(std::thread::current());
        let ticket = match lock(&self.desk).enter(this_thread) {
            Room::Place(place) => return place,
            Room::Wait(ticket) => ticket,
        };
        loop {
            std::thread::park();
            if let Some(place) = lock(&self.desk).redeem(ticket, this_thread) {
                return place;
            }
        }
    }

    /// Sends what lies at the desk, unless somebody else has the queue pair: then it will.
    pub(super) fn send(&self) {
        loop {
            let Some(mut core) = self.try_core() else { return };
            let mut wakes = self.take_letters(&mut core);
            // What the system refused, it will refuse whoever looks at the socket, and a loss is
            // told with the commands.
            let _ = core.queue.flush();
            core.collect();
            self.tell(&mut core, &mut wakes, false);
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

    /// Gives the queue pair what lies at the desk. Returns an empty list for wakes.
    fn take_letters(&self, core: &mut Core<B>) -> Vec<Wake> {
        let wakes = {
            let mut desk = lock(&self.desk);
            if core.letters.is_empty() {
                std::mem::swap(&mut core.letters, &mut desk.letters);
            } else {
                core.letters.append(&mut desk.letters);
            }
            std::mem::take(&mut desk.spare)
        };
        while let Some(letter) = core.letters.pop_front() {
            if let Some(back) = self.submit(core, letter) {
                // Its turn comes with the next completion: there is one, for the queue is full.
                core.letters.push_front(back);
                break;
            }
        }
        wakes
    }

    /// Gives the letter back when the queue is full.
    fn submit(&self, core: &mut Core<B>, letter: Letter<B>) -> Option<Letter<B>> {
        let Letter { place, command, data } = letter;
        let user = u64::from(place);
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
                return Some(Letter { place, command, data: refused.data });
            }
            Error::NoFreeQueue { .. } => self.missing_in.store(core.queue.generation(), Ordering::Relaxed),
            _ => {}
        }
        core.over.push(Completion { user, result: Err(refused.reason), data: refused.data });
        None
    }

    /// Tells the desk what is over.
    fn tell(&self, core: &mut Core<B>, wakes: &mut Vec<Wake>, leads: bool) {
        if core.over.is_empty() {
            return;
        }
        let mut desk = lock(&self.desk);
        for completion in core.over.drain(..) {
            // A buffer that nobody wants any more is dropped here: its drop must not come back to
            // this queue.
            drop(desk.complete(completion, wakes));
        }
        // It may have been the command that the one who leads waits for.
        if desk.leader_sleeps && !leads {
            self.waker.wake();
        }
    }

    /// Wakes, with no lock held, and says whether something lies at the desk that came while the
    /// queue pair was held.
    fn wake_all(&self, mut wakes: Vec<Wake>) -> bool {
        wakes.drain(..).for_each(Wake::wake);
        let mut desk = lock(&self.desk);
        if desk.spare.capacity() == 0 {
            desk.spare = wakes;
        }
        !desk.letters.is_empty()
    }

    /// Sends and receives once.
    fn turn(&self, mut core: MutexGuard<'_, Core<B>>, leads: bool) -> Turn {
        let mut wakes = self.take_letters(&mut core);
        let polled = core.queue.poll();
        let refused = matches!(polled, Err(Error::System { .. }));
        core.over.extend(polled.ok().flatten());
        core.collect();
        let turn = match (core.over.is_empty(), refused) {
            (false, _) => Turn::Progress,
            (true, false) => Turn::Nothing(core.queue.time_to_sleep().map_or(SLEEP_MAX, |time| time.min(SLEEP_MAX))),
            (true, true) => Turn::Refused,
        };
        self.tell(&mut core, &mut wakes, leads);
        drop(core);
        if self.wake_all(wakes) {
            self.send();
        }
        turn
    }

    /// Looks at the socket once, for those who poll by themselves. True when something was over.
    pub(super) fn poll(&self) -> bool {
        self.try_core().is_some_and(|core| matches!(self.turn(core, false), Turn::Progress))
    }

    /// Polls for a command; `None` when that took too long.
    fn poll_for(&self, place: u16) -> Option<Completion<B>> {
        let until = self.time.now() + POLL_TIME;
        let mut looks = 0u32;
        loop {
            looks += 1;
            if let Some(core) = self.try_core() {
                self.turn(core, false);
            }
            if let Look::Over(completion) = self.look(place, false) {
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
    fn look(&self, place: u16, lead: bool) -> Look<B> {
        let mut desk = lock(&self.desk);
        let mut wakes = Wakes::default();
        let look = desk.look(place, lead, &mut wakes.next);
        if let Look::Over(_) = look {
            self.hand_over(&mut desk, &mut wakes);
        }
        drop(desk);
        wakes.wake();
        look
    }

    /// If nobody leads, somebody who waits has to be woken for it.
    fn hand_over(&self, desk: &mut Desk<B>, wakes: &mut Wakes) {
        if desk.led {
            return;
        }
        match desk.successor() {
            Some(wake) => wakes.successor = Some(wake),
            None if desk.tasks > 0 => self.tasks_wait.notify_one(),
            None => {}
        }
    }

    /// Waits for a command of a thread: leads, or sleeps while another does.
    fn wait_for(&self, place: u16) -> Completion<B> {
        loop {
            let mut desk = lock(&self.desk);
            let mut wakes = Wakes::default();
            match desk.look(place, true, &mut wakes.next) {
                Look::Over(completion) => {
                    self.hand_over(&mut desk, &mut wakes);
                    drop(desk);
                    wakes.wake();
                    return completion;
                }
                Look::Led => {
                    desk.sleep(place, Wake::Thread(std::thread::current()));
                    drop(desk);
                    std::thread::park();
                }
                Look::Lead => {
                    drop(desk);
                    return self.lead_for(place);
                }
            }
        }
    }

    /// Leads until the caller's own command is over.
    fn lead_for(&self, place: u16) -> Completion<B> {
        let mut wakes = Wakes::default();
        let completion = self.lead(
            |desk| match desk.look(place, false, &mut wakes.next) {
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
    fn lead<T>(&self, mut done: impl FnMut(&mut Desk<B>) -> Option<T>, politely: bool) -> T {
        let mut looks = 0u32;
        let now_us = || self.time.now_us();
        let mut idle = lock(&self.idle).clone();
        loop {
            looks = looks.wrapping_add(1);
            let turn = self.turn(lock(&self.core), true);
            if matches!(turn, Turn::Progress) && idle.is_waiting() {
                idle.found(now_us());
            }
            if let Some(result) = self.finished(&mut done, &mut idle, false) {
                return result;
            }
            if politely {
                std::thread::yield_now();
            }
            match turn {
                Turn::Progress => {}
                Turn::Refused => std::thread::sleep(REFUSED_PAUSE),
                Turn::Nothing(_) if !looks.is_multiple_of(idle.looks_per_step().min(LOOKS_PER_YIELD)) => {}
                Turn::Nothing(time) => {
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
                    lock(&self.desk).leader_sleeps = false;
                }
            }
        }
    }

    /// If the one who leads is done, it leads no more.
    fn finished<T>(
        &self,
        done: &mut impl FnMut(&mut Desk<B>) -> Option<T>,
        idle: &mut Idle,
        sleeps: bool,
    ) -> Option<T> {
        let mut desk = lock(&self.desk);
        let Some(result) = done(&mut desk) else {
            desk.leader_sleeps = sleeps;
            return None;
        };
        idle.stop();
        // What was learned goes to whoever leads next.
        lock(&self.idle).clone_from(idle);
        desk.led = false;
        let mut wakes = Wakes::default();
        self.hand_over(&mut desk, &mut wakes);
        drop(desk);
        wakes.wake();
        Some(result)
    }
}

/// Wakes found under a lock, to be done without it.
#[derive(Default)]
struct Wakes {
    /// Who gets a place.
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
        let before = self.over.len();
        while let Some(completion) = self.queue.next_ready() {
            self.over.push(completion);
        }
        self.over.len() > before
    }
}

/// Futures.
impl<B: Buffer + 'static> Lane<B> {
    /// Queues a future's command if there is room; otherwise gives it back.
    pub(super) fn start(&self, command: Command, data: Data<B>) -> Result<u16, (Command, Data<B>)> {
        let Some(place) = lock(&self.desk).try_enter() else { return Err((command, data)) };
        self.post_task(place, command, data, None);
        Ok(place)
    }

    pub(super) fn post_task(&self, place: u16, command: Command, data: Data<B>, waker: Option<&TaskWaker>) {
        {
            let mut desk = lock(&self.desk);
            desk.post(Letter { place, command, data }, Owner::Task, waker.cloned().map(Wake::Task));
            if !desk.led {
                self.tasks_wait.notify_one();
            }
        }
        self.send();
    }

    /// A place or a ticket for a future.
    pub(super) fn enter_task(&self, waker: &TaskWaker) -> Room {
        lock(&self.desk).enter(|| Wake::Task(waker.clone()))
    }

    pub(super) fn redeem_task(&self, ticket: u64, waker: &TaskWaker) -> Option<u16> {
        lock(&self.desk).redeem(ticket, || Wake::Task(waker.clone()))
    }

    /// The command's completion, or its future will be woken.
    pub(super) fn look_task(&self, place: u16, waker: &TaskWaker) -> Option<Completion<B>> {
        let mut desk = lock(&self.desk);
        let mut wakes = Wakes::default();
        let look = desk.look(place, false, &mut wakes.next);
        let completion = match look {
            Look::Over(completion) => Some(completion),
            Look::Led | Look::Lead => {
                desk.sleep(place, Wake::Task(waker.clone()));
                None
            }
        };
        drop(desk);
        wakes.wake();
        completion
    }

    /// The future of a command is dropped.
    pub(super) fn abandon(&self, place: u16) {
        let (wake, completion) = lock(&self.desk).abandon(place);
        wake.into_iter().for_each(Wake::wake);
        drop(completion);
    }

    /// The future that held a ticket is dropped.
    pub(super) fn give_up(&self, ticket: u64) {
        let wake = lock(&self.desk).give_up(ticket);
        wake.into_iter().for_each(Wake::wake);
    }

    /// The thread that leads for futures is there from the first one on.
    pub(super) fn ensure_driver(self: &Arc<Self>) -> Result<(), Error> {
        let mut driver = lock(&self.driver);
        if driver.is_some() {
            return Ok(());
        }
        let lane = Arc::clone(self);
        let thread = std::thread::Builder::new().name("nvme-futures".to_owned()).spawn(move || lane.drive());
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
                let mut desk = lock(&self.desk);
                while !desk.stop && (desk.tasks == 0 || desk.led) {
                    desk = self.tasks_wait.wait(desk).unwrap_or_else(PoisonError::into_inner);
                }
                if desk.stop {
                    return;
                }
                desk.led = true;
            }
            self.lead(|desk| (desk.stop || desk.tasks == 0).then_some(()), true);
        }
    }

    /// Ends the thread that leads for futures. Nobody waits for a command any more.
    pub(super) fn stop(&self) {
        lock(&self.desk).stop = true;
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
