//! A queue pair, owned by one thread: submit many, flush once, poll many. The data path is in
//! `engine`; this file has waiting, time-outs and reconnecting. When commands that are held are
//! sent is in `queue/doorbell.rs`.

mod doorbell;
mod opening;
mod pieces;
mod readiness;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ebof_idle::{Idle, Step};
use ebof_nvme::{QueueId, Sqe};
use rustix::event::{PollFd, PollFlags};

use crate::command::data::{AdminData, Completion, Data, IoBuffer, SubmitError};
use crate::command::limits::Limits;
use crate::engine::Engine;
use crate::error::state::State;
use crate::error::{Error, Loss};
use crate::link::HostLink;
use crate::shared::bindings::{Binding, Restrictions};
use crate::shared::maps::QueueClass;
use crate::shared::{ControllerMessage, Info, SharedController, TakenQueue};
use crate::wait::{Time, Waiter, Waker, shorter, step, wait};
use doorbell::Doorbell;
use opening::{Opening, open};
pub(crate) use pieces::TransferPiece;
use readiness::Readiness;

/// An I/O queue pair: one connection to the controller. It belongs to one thread at a time and
/// allocates nothing per command.
///
/// After a loss of the connection every outstanding command comes back from [`QueuePair::poll`]
/// with [`Error::Lost`]; once the controller is live again, the next call of `submit`, `poll` or
/// `wait` re-creates the queue (which may take as long as connecting takes).
pub struct QueuePair<B: IoBuffer = Vec<u8>> {
    engine: Engine<B>,
    shared: Arc<SharedController>,
    /// Keeps the controller connected; `None` for queue pairs that the controller itself owns.
    _controller: Option<ControllerGuard>,
    id: QueueId,
    /// The generation of the controller that this queue has seen.
    generation: u64,
    /// The controller is live again, and this queue has to be reconnected.
    reopen: bool,
    /// The reconnect in progress.
    opening: Option<Opening>,
    waker: Arc<Waker>,
    /// Batches small requests, if the options say so.
    doorbell: Option<Box<Doorbell>>,
    /// The descriptor to wait for; `None` when stepped ([`crate::stepped`]).
    readiness: Option<Readiness>,
    /// Which commands are refused, as of `restrictions_version`.
    restrictions: Arc<Restrictions>,
    restrictions_version: u64,
    /// The largest transfer of one command, bytes.
    transfer_max: usize,
    /// When to check the deadlines of commands.
    next_expiry_ms: u64,
    /// How long a wait spins before it sleeps.
    idle: Idle,
    /// Completions that were handed out.
    completed: u64,
    time: Time,
    /// The last field: the identifier is free again after the connection is closed.
    _taken: TakenQueue,
}

/// Keeps a controller connected while it is held.
pub(crate) type ControllerGuard = Arc<dyn Send + Sync>;

impl<B: IoBuffer> QueuePair<B> {
    /// Connects the next unused queue, of `class` if one is given.
    pub(crate) fn connect(
        shared: Arc<SharedController>,
        controller: Option<ControllerGuard>,
        class: Option<QueueClass>,
    ) -> Result<Self, Error> {
        let waiter = shared.waiter.another();
        Arc::clone(&shared).run(Self::establish(shared, controller, class, waiter))
    }

    /// As [`QueuePair::connect`], waiting by `waiter`.
    pub(crate) async fn establish(
        shared: Arc<SharedController>,
        controller: Option<ControllerGuard>,
        class: Option<QueueClass>,
        waiter: Waiter,
    ) -> Result<Self, Error> {
        let system = |action| move |errno| Error::System { action, errno };
        if shared.state() != State::Live {
            return Err(shared.not_connected());
        }
        let info = shared.info();
        let granted = class.map_or(info.io_queues, |class| shared.maps().count(class));
        let taken = shared.take_queue(class).ok_or(Error::NoFreeQueue { granted })?;
        let waker = Arc::new(waiter.waker().map_err(system("making an event descriptor"))?);
        taken.set_waker(&waker);
        let doorbell = Doorbell::new(&shared.options, &waiter).map_err(system("making a timer"))?.map(Box::new);
        let readiness = match waiter.is_stepped() {
            true => None,
            false => Some(Readiness::new(&waker, doorbell.as_deref())?),
        };
        let id = taken.id();
        let mut queue = Self {
            engine: Engine::new(info.io_entries - 1, true, waiter.time.clone()),
            idle: Idle::new(u64::from(shared.options.spin_us)),
            completed: 0,
            time: waiter.time.clone(),
            generation: shared.generation(),
            reopen: false,
            opening: None,
            shared,
            _controller: controller,
            id,
            waker,
            doorbell,
            readiness,
            restrictions: Arc::default(),
            restrictions_version: 0,
            transfer_max: usize::MAX,
            next_expiry_ms: 0,
            _taken: taken,
        };
        let link = open(Arc::clone(&queue.shared), id, Arc::clone(&info), waiter).await?;
        queue.attach(link, &info)?;
        Ok(queue)
    }

    /// The queue's identifier.
    #[must_use]
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// What the queue is for.
    #[must_use]
    pub fn class(&self) -> QueueClass {
        self.shared.maps().class(self.id)
    }

    /// Commands that may be outstanding at once: one less than the queue has entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.engine.limit()
    }

    /// Commands that are outstanding, those not yet flushed or not yet collected included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }

    /// Queues a command; nothing is sent before [`QueuePair::flush`] (which `poll` and `wait`
    /// imply). The command identifier and the data pointer are filled in here.
    ///
    /// # Errors
    /// [`Error::QueueFull`], [`Error::NotConnected`], [`Error::TooLarge`]; the data are given back
    /// with the error. If the command's namespace is open ([`crate::Controller::namespace`]) and
    /// was replaced, reformatted or removed: [`Error::Replaced`], [`Error::Format`],
    /// [`Error::NoSuchNamespace`].
    pub fn submit(&mut self, sqe: Sqe, data: Data<B>, user: u64) -> Result<(), SubmitError<B>> {
        self.submit_for(None, sqe, data, user)
    }

    /// As [`QueuePair::submit`], for the namespace that was opened with `binding` only, whatever
    /// its NSID refers to now, and within the controller's current limits.
    ///
    /// # Errors
    /// As [`QueuePair::submit`]; [`Error::Replaced`], [`Error::Format`],
    /// [`Error::NoSuchNamespace`]. [`Error::TooLarge`] also if the controller's limit is smaller
    /// after a reconnect ([`crate::Limits::transfer_bytes`]).
    pub fn submit_bound(&mut self, binding: Binding, sqe: Sqe, data: Data<B>, user: u64) -> Result<(), SubmitError<B>> {
        self.submit_for(Some(binding), sqe, data, user)
    }

    pub(crate) fn submit_for(
        &mut self,
        binding: Option<Binding>,
        sqe: Sqe,
        data: Data<B>,
        user: u64,
    ) -> Result<(), SubmitError<B>> {
        let length = match &data {
            Data::ToHost(buffer) | Data::FromHost(buffer) => buffer.as_ref().len(),
            Data::None => 0,
        };
        if let Err(reason) = self.ready().and_then(|()| self.admit(binding, &sqe, length)) {
            return Err(SubmitError { reason, data });
        }
        let timeout_ms = self.timeout_ms();
        self.engine.submit(sqe, data, user, timeout_ms).map_err(|(reason, data)| SubmitError { reason, data })?;
        if let Some(doorbell) = &mut self.doorbell {
            doorbell.note(length);
        }
        Ok(())
    }

    /// Whether queued requests are held (see [`crate::Options::batch_timeout_us`]).
    fn holds(&mut self) -> bool {
        let Some(doorbell) = &mut self.doorbell else { return false };
        if !self.engine.has_unsent() {
            // Sent already, lost, or waiting for the socket to be writable.
            doorbell.sent();
        }
        doorbell.holds()
    }

    /// Sends everything queued, in one gathered send if the socket takes it. With
    /// [`crate::Options::batch_timeout_us`] it may be held: poll, or wait for the descriptor, which
    /// becomes readable when the hold ends.
    ///
    /// # Errors
    /// [`Error::System`]. A lost connection is reported by `poll`, with the commands it ended.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.holds() {
            return Ok(());
        }
        if let Err(loss) = self.engine.flush(&AdminData::None) {
            self.lost(loss);
        }
        self.watch_writable()
    }

    /// The next completion, if there is one. Without a received completion it flushes and reads all
    /// that the socket holds. Poll until `None` before waiting for the descriptor.
    ///
    /// # Errors
    /// [`Error::NotConnected`] while the connection is lost and nothing is outstanding.
    pub fn poll(&mut self) -> Result<Option<Completion<B>>, Error> {
        if let Some(completion) = self.next_ready() {
            return Ok(Some(completion));
        }
        let ready = self.ready();
        if let Some(completion) = self.next_ready() {
            return Ok(Some(completion));
        }
        ready?;
        // A notification costs calls of the system. It is needed when there is nothing else.
        let spins = self.engine.set_spinning(true);
        let looked = self.service(&mut AdminData::None);
        let unnotified = !spins && self.engine.is_unnotified() && !self.engine.has_completed();
        self.engine.set_spinning(spins);
        looked?;
        if unnotified {
            self.service(&mut AdminData::None)?;
        }
        Ok(self.next_ready())
    }

    /// The next completion that was received already, without a system call. For loops that process
    /// all completions of a wait before they submit again.
    pub fn next_ready(&mut self) -> Option<Completion<B>> {
        let completion = self.engine.pop();
        self.completed += u64::from(completion.is_some());
        completion
    }

    /// How many commands have completed since the queue pair was made.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// As [`QueuePair::poll`], but waits until `deadline` (`None`: for ever): spins for a short
    /// time, then sleeps. Returns `None` at once when nothing is outstanding. While the controller
    /// reconnects, it waits for that.
    ///
    /// # Errors
    /// As [`QueuePair::poll`].
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Completion<B>>, Error> {
        self.engine.set_spinning(true);
        let done = self.spin(deadline);
        self.engine.set_spinning(false);
        done
    }

    fn spin(&mut self, deadline: Option<Instant>) -> Result<Option<Completion<B>>, Error> {
        loop {
            let mut connected = true;
            for _ in 0..self.idle.polls_per_step() {
                match self.poll() {
                    Ok(None) => {}
                    Err(Error::NotConnected(why)) if why.state == State::Reconnecting => {
                        connected = false;
                        break;
                    }
                    done => {
                        if self.idle.is_waiting() {
                            self.idle.found(self.now_us());
                        }
                        return done;
                    }
                }
            }
            if deadline.is_some_and(|deadline| self.time.now() >= deadline) {
                self.idle.stop();
                return if connected { Ok(None) } else { Err(self.not_connected()) };
            }
            if !connected {
                self.idle.stop();
                self.sleep(deadline)?;
                continue;
            }
            if self.in_flight() == 0 {
                self.idle.stop();
                return Ok(None);
            }
            self.idle(deadline)?;
        }
    }

    /// There was nothing: as [`QueuePair::idle`], or gives way.
    async fn idle_with(&mut self, waiter: &Waiter) -> Result<(), Error> {
        if !waiter.is_stepped() {
            return self.idle(None);
        }
        let due = self.due();
        let waited = waiter.wait(None, &[], due).await;
        waited.map_err(|errno| Error::System { action: "waiting for an answer", errno })
    }

    /// No completion: spins, then sleeps until there is something to do, or `deadline`.
    fn idle(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let now_us = self.now_us();
        self.idle.set_work(self.completed);
        match self.idle.step(now_us) {
            Step::GiveWay => {
                self.idle.give_way(now_us);
                Ok(())
            }
            Step::Sleep(bound_us) => {
                if self.engine.is_unnotified() {
                    // Nobody has lent data while a queue pair spins.
                    self.engine.set_spinning(false);
                    let received = self.service(&mut AdminData::None);
                    self.engine.set_spinning(true);
                    received?;
                    if self.engine.has_completed() {
                        return Ok(());
                    }
                }
                let timeout = self.sleep_max(deadline);
                let Some(readiness) = &self.readiness else { return Ok(()) };
                let mut ready = [PollFd::new(&readiness.epoll, PollFlags::IN)];
                let time = &self.time;
                self.idle
                    .sleep(bound_us, || time.now_us(), |bound| wait(&mut ready, shorter(timeout, bound)))
                    .map_err(|errno| Error::System { action: "waiting for an answer", errno })?;
                self.check_deadlines_soon();
                Ok(())
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.time.now_us()
    }

    /// Sends Abort, through the Admin Queue, for every command submitted with `user`. Does not
    /// wait; aborted commands complete with a status that says so.
    pub fn abort(&mut self, user: u64) {
        for cid in self.engine.slots().outstanding_of(user) {
            self.shared.send(ControllerMessage::Abort { queue: self.id, cid });
        }
    }

    /// Another waker that makes the descriptor readable. The queue pair does not clear it.
    pub(crate) fn add_waker(&mut self) -> Result<Waker, Error> {
        let system = |errno| Error::System { action: "making an event descriptor", errno };
        let waker = self.shared.waiter.waker().map_err(system)?;
        if let Some(readiness) = &self.readiness {
            readiness.add_waker(&waker)?;
        }
        Ok(waker)
    }

    /// The generation of the controller that this queue has seen.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// How long to sleep at most before the next poll, so that deadlines of commands are checked;
    /// `None` without commands.
    pub(crate) fn time_to_sleep(&mut self) -> Option<Duration> {
        let deadline = self.engine.next_deadline_ms();
        self.next_expiry_ms = self.next_expiry_ms.min(deadline);
        self.time.until(deadline)
    }

    /// When to poll again if nothing arrives before: for a command's deadline, the end of a hold,
    /// or the next step of reconnecting the queue. `None`: there is no deadline.
    pub(crate) fn due(&mut self) -> Option<Instant> {
        let expiry = self.time_to_sleep().map(|rest| self.time.now() + rest);
        let opening = self.opening.as_ref().and_then(|opening| opening.waiter.due());
        let held = self.doorbell.as_ref().and_then(|doorbell| doorbell.due());
        [expiry, opening, held].into_iter().flatten().min()
    }

    /// The queue's clock.
    pub(crate) fn time(&self) -> &Time {
        &self.time
    }

    fn timeout_ms(&self) -> u64 {
        u64::from(self.shared.options.command_timeout_ms)
    }

    /// Whether a command may be sent over the present connection. To be called after
    /// [`QueuePair::ready`]: restrictions found at a reconnect are set before the generation changes.
    fn admit(&mut self, binding: Option<Binding>, sqe: &Sqe, length: usize) -> Result<(), Error> {
        let version = self.shared.bindings.version();
        if version != self.restrictions_version {
            self.restrictions = self.shared.bindings.restrictions();
            self.restrictions_version = version;
        }
        if let Err(error) = self.restrictions.check(sqe.nsid(), binding) {
            if matches!(error, Error::NoSuchNamespace(_)) {
                // It may be back; not every controller sends events.
                self.shared.ask_rescan();
            }
            return Err(error);
        }
        if binding.is_some() && length > self.transfer_max {
            return Err(Error::TooLarge { bytes: length });
        }
        Ok(())
    }

    /// Ensures a connection of the controller's present generation; reconnects the queue if needed.
    fn ready(&mut self) -> Result<(), Error> {
        let generation = self.shared.generation();
        if generation != self.generation {
            self.waker.clear();
            self.engine.lose(&Loss::Association);
            self.generation = generation;
            self.opening = None;
            // Odd: the controller is live.
            self.reopen = generation % 2 == 1;
        }
        if self.engine.link().is_some() {
            return Ok(());
        }
        // Lost commands are collected first: they occupy slots.
        if !self.reopen || self.engine.in_flight() > 0 {
            return Err(self.not_connected());
        }
        let opening = match self.opening.take() {
            Some(opening) => opening,
            None => {
                let info = self.shared.info();
                if self.id.0 > info.io_queues {
                    self.reopen = false;
                    return Err(Error::NoFreeQueue { granted: info.io_queues });
                }
                let waiter = self.shared.waiter.another();
                let sequence = open(Arc::clone(&self.shared), self.id, Arc::clone(&info), waiter.clone());
                Opening { sequence: Box::pin(sequence), info, waiter }
            }
        };
        self.continue_opening(opening).inspect_err(|_| {
            if self.opening.is_none() {
                // As on Linux: if a queue cannot be reconnected, the whole association is reset.
                self.shared.send(ControllerMessage::Lost { generation, loss: Loss::Association });
            }
        })
    }

    /// Continues to reconnect the queue: to the end, unless it is stepped.
    fn continue_opening(&mut self, mut opening: Opening) -> Result<(), Error> {
        match step(opening.sequence.as_mut()) {
            Poll::Pending => {
                self.opening = Some(opening);
                Err(self.not_connected())
            }
            Poll::Ready(link) => {
                self.reopen = false;
                self.attach(link?, &opening.info)
            }
        }
    }

    fn not_connected(&self) -> Error {
        self.shared.not_connected()
    }

    /// Uses a new link.
    fn attach(&mut self, mut link: HostLink, info: &Info) -> Result<(), Error> {
        link.share_small_commands(&self.shared.small_commands);
        link.share_troubles(&self.shared.troubles);
        self.engine.attach(link);
        self.engine.slots().set_limit(info.io_entries - 1);
        self.engine.set_in_capsule(info.in_capsule_bytes());
        self.transfer_max = transfer_max(&info.limits);
        let watch = self.engine.link().map(HostLink::watch);
        match (&mut self.readiness, watch) {
            (Some(readiness), Some(watch)) => readiness.add(watch),
            _ => Ok(()),
        }
    }

    /// Sends and receives once, and checks deadlines when they are due. A loss is no error: the
    /// commands complete with it.
    fn service(&mut self, data: &mut AdminData<'_>) -> Result<(), Error> {
        self.waker.clear();
        if self.shared.generation() != self.generation {
            // Also completes commands with lent buffers, which the caller collects; `ready` does
            // the rest later.
            self.engine.lose(&Loss::Association);
            return Ok(());
        }
        let held = self.holds();
        let flushed = if held { Ok(()) } else { self.engine.flush(data) };
        if let Err(loss) = flushed.and_then(|()| self.engine.receive(data)) {
            self.lost(loss);
            return Ok(());
        }
        self.watch_writable()?;
        if self.engine.take_namespace_missed() {
            self.shared.ask_rescan();
        }
        let now = self.time.now_ms();
        if now >= self.next_expiry_ms {
            self.expire(now);
        }
        Ok(())
    }

    fn expire(&mut self, now: u64) {
        self.next_expiry_ms = now + (self.timeout_ms() / 8).clamp(10, 1000);
        let shared = &self.shared;
        let id = self.id;
        let grace_ms = self.timeout_ms();
        let abort_timed_out = self
            .engine
            .slots()
            .expire(now, grace_ms, |cid, _| shared.send(ControllerMessage::Abort { queue: id, cid }));
        if abort_timed_out {
            self.lost(Loss::CommandTimeout);
        }
    }

    fn lost(&mut self, loss: Loss) {
        self.engine.lose(&loss);
        self.shared.send(ControllerMessage::Lost { generation: self.generation, loss });
    }

    /// Lets the descriptor wait for a writable socket while something is left to send.
    fn watch_writable(&mut self) -> Result<(), Error> {
        let blocked = self.engine.is_blocked();
        match (&mut self.readiness, self.engine.link()) {
            (Some(readiness), Some(link)) if readiness.blocked != blocked => readiness.change(link.watch()),
            _ => Ok(()),
        }
    }

    /// Sleeps until there is something to do, `deadline`, or the next deadline of a command.
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let timeout = self.sleep_max(deadline);
        let Some(readiness) = &self.readiness else { return Ok(()) };
        wait(&mut [PollFd::new(&readiness.epoll, PollFlags::IN)], timeout)
            .map_err(|errno| Error::System { action: "waiting for an answer", errno })?;
        self.check_deadlines_soon();
        Ok(())
    }

    /// How long to sleep at most: until `deadline` or the next deadline of a command.
    fn sleep_max(&mut self, deadline: Option<Instant>) -> Option<Duration> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(self.time.now()));
        let expiry = self.time.until(self.engine.next_deadline_ms());
        shorter(left, expiry)
    }

    fn check_deadlines_soon(&mut self) {
        self.next_expiry_ms = self.next_expiry_ms.min(self.engine.slots().next_deadline_ms());
    }
}

fn transfer_max(limits: &Limits) -> usize {
    limits.transfer_bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
}

impl<B: IoBuffer> AsFd for QueuePair<B> {
    /// Readable when [`QueuePair::poll`] has something to do. The descriptor stays the same across
    /// reconnects. While commands are outstanding, poll about once a second anyway, which checks
    /// their deadlines.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_ref().expect("only `stepped::QueuePair` has none, and no `as_fd`").epoll.as_fd()
    }
}

impl<B: IoBuffer> std::fmt::Debug for QueuePair<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair").field("id", &self.id).field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}
