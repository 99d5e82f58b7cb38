//! A queue's connection: commands are admitted, sent and received over it, their deadlines are
//! checked, and it is made again after a loss. Who waits, and how, is in `queue.rs`; the
//! outstanding commands are in `engine`.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use ebof_nvme::{Cqe, QueueId, Sqe};
use rustix::event::{PollFd, PollFlags};

use super::doorbell::Doorbell;
use super::opening::{Opening, open};
use super::readiness::Readiness;
use crate::command::data::{AdminData, Completion, Data, IoBuffer, SubmitError};
use crate::command::limits::Limits;
use crate::engine::Engine;
use crate::error::state::State;
use crate::error::{Error, Loss};
use crate::link::HostLink;
use crate::shared::bindings::{Binding, Restrictions};
use crate::shared::fence::Fence;
use crate::shared::maps::QueueClass;
use crate::shared::{ControllerMessage, Info, SharedController, TakenQueue};
use crate::wait::{Time, Waiter, Waker, shorter, step, wait};

/// The connection of one queue, whatever became of the last one.
pub(super) struct QueueConnection<B: IoBuffer> {
    engine: Engine<B>,
    shared: Arc<SharedController>,
    id: QueueId,
    /// The generation of the controller that this queue has seen.
    generation: u64,
    /// The controller is live again, and this queue has to be reconnected.
    reopen: bool,
    /// The reconnect in progress.
    opening: Option<Opening>,
    /// It is made on a thread of its own.
    reconnects_aside: bool,
    /// For commands that are lost with this connection.
    fence: Arc<Fence>,
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
    time: Time,
    /// The last field: the identifier is free again after the connection is closed.
    _taken: TakenQueue,
}

impl<B: IoBuffer> QueueConnection<B> {
    /// Connects the next unused queue, of `class` if one is given.
    pub(super) async fn establish(
        shared: Arc<SharedController>,
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
        let mut connection = Self {
            engine: Engine::new(info.io_entries - 1, true, waiter.time.clone()),
            time: waiter.time.clone(),
            generation: shared.generation(),
            reopen: false,
            opening: None,
            reconnects_aside: false,
            fence: Arc::clone(&info.fence),
            shared,
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
        let link = open(Arc::clone(&connection.shared), id, Arc::clone(&info), waiter).await?;
        connection.attach(link, &info)?;
        Ok(connection)
    }

    /// See [`super::QueuePair::reconnect_aside`].
    pub(super) fn reconnect_aside(&mut self) {
        self.reconnects_aside = true;
    }

    /// For commands that were lost with the last connection.
    pub(super) fn fence(&self) -> Arc<Fence> {
        Arc::clone(&self.fence)
    }

    pub(super) fn id(&self) -> QueueId {
        self.id
    }

    /// What the queue is for.
    pub(super) fn class(&self) -> QueueClass {
        self.shared.maps().class(self.id)
    }

    /// Commands that may be outstanding at once.
    pub(super) fn capacity(&self) -> usize {
        self.engine.limit()
    }

    /// Commands that are outstanding, those not yet flushed or not yet collected included.
    pub(super) fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }

    /// Outstanding commands whose data are lent.
    pub(super) fn lent(&mut self) -> usize {
        self.engine.slots().lent()
    }

    /// How calls of the controller wait.
    pub(super) fn waiter(&self) -> &Waiter {
        &self.shared.waiter
    }

    /// How long a wait spins before it sleeps, by the options.
    pub(super) fn spin_us(&self) -> u64 {
        u64::from(self.shared.options.spin_us)
    }

    /// The generation of the controller that this queue has seen.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The queue's clock.
    pub(super) fn time(&self) -> &Time {
        &self.time
    }

    /// The descriptor to wait for, which stays the same across reconnects. Without one, when
    /// stepped, nobody waits: `stepped::QueuePair` does not, and a sequence does so by its waiter.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.readiness.as_ref().expect("who sleeps is not stepped").epoll.as_fd()
    }

    /// Queues a command. With a binding, it reaches that namespace or none.
    pub(super) fn submit(
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

    /// Queues a command with the part `(start, length)` of lent data.
    pub(super) fn submit_lent(
        &mut self,
        binding: Option<Binding>,
        sqe: Sqe,
        part: (usize, u32),
        lent: &AdminData<'_>,
    ) -> Result<(), Error> {
        self.ready()?;
        self.admit(binding, &sqe, part.1 as usize)?;
        let timeout_ms = self.timeout_ms();
        self.engine.submit_lent(sqe, part, lent, 0, timeout_ms)
    }

    /// Sends everything queued, unless it is held.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        if self.holds() {
            return Ok(());
        }
        if let Err(loss) = self.engine.flush(&AdminData::None) {
            self.lost(loss);
        }
        self.watch_writable()
    }

    /// Sends and receives once. Asks for a notification of what arrives later only if nothing has.
    pub(super) fn poll(&mut self) -> Result<(), Error> {
        // A notification costs calls of the system. It is needed when there is nothing else.
        let spins = self.engine.set_spinning(true);
        let served = self.service(&mut AdminData::None);
        let unnotified = !spins && self.engine.is_unnotified() && !self.engine.has_completed();
        self.engine.set_spinning(spins);
        served?;
        if unnotified { self.service(&mut AdminData::None) } else { Ok(()) }
    }

    /// The next completion that was received already.
    pub(super) fn pop(&mut self) -> Option<Completion<B>> {
        self.engine.pop()
    }

    /// The result of the next command with lent data that is over.
    pub(super) fn pop_lent(&mut self) -> Option<Result<Cqe, Error>> {
        self.engine.slots().pop_lent().map(|(_, result)| result)
    }

    /// Ends what is outstanding with lent data: they are about to return to their owner, so the
    /// connection has to be closed.
    pub(super) fn end_lent(&mut self) {
        if self.lent() > 0 {
            self.lost(Loss::Requested);
        }
        // Results that nobody collects are not those of the next who lends.
        while self.pop_lent().is_some() {}
    }

    /// Says whether the caller polls again and again.
    pub(super) fn set_spinning(&mut self, spins: bool) {
        self.engine.set_spinning(spins);
    }

    /// A caller that spins is about to sleep: asks for notifications if nothing would wake it.
    /// `false` if something has completed meanwhile.
    pub(super) fn prepare_to_sleep(&mut self) -> Result<bool, Error> {
        if !self.engine.is_unnotified() {
            return Ok(true);
        }
        // Nobody has lent data while a queue pair spins.
        self.engine.set_spinning(false);
        let received = self.service(&mut AdminData::None);
        self.engine.set_spinning(true);
        received?;
        Ok(!self.engine.has_completed())
    }

    /// Sends Abort for every command submitted with `user`.
    pub(super) fn abort(&mut self, user: u64) {
        for cid in self.engine.slots().outstanding_of(user) {
            self.shared.send(ControllerMessage::Abort { queue: self.id, cid });
        }
    }

    /// Another waker that makes the descriptor readable. The queue pair does not clear it.
    pub(super) fn add_waker(&mut self) -> Result<Waker, Error> {
        let system = |errno| Error::System { action: "making an event descriptor", errno };
        let waker = self.shared.waiter.waker().map_err(system)?;
        if let Some(readiness) = &self.readiness {
            readiness.add_waker(&waker)?;
        }
        Ok(waker)
    }

    /// How long to sleep at most before the next poll, so that deadlines of commands are checked;
    /// `None` without commands.
    pub(super) fn time_to_sleep(&mut self) -> Option<Duration> {
        let deadline = self.engine.next_deadline_ms();
        self.next_expiry_ms = self.next_expiry_ms.min(deadline);
        self.time.until(deadline)
    }

    /// When to poll again if nothing arrives before: for a command's deadline, the end of a hold,
    /// or the next step of reconnecting the queue. `None`: there is no deadline.
    pub(super) fn due(&mut self) -> Option<Instant> {
        let expiry = self.time_to_sleep().map(|rest| self.time.now() + rest);
        let opening = self.opening.as_ref().and_then(|opening| opening.waiter.due());
        let held = self.doorbell.as_ref().and_then(|doorbell| doorbell.due());
        [expiry, opening, held].into_iter().flatten().min()
    }

    /// Ensures a connection of the controller's present generation; reconnects the queue if needed.
    pub(super) fn ready(&mut self) -> Result<(), Error> {
        if self.engine.link().is_none() {
            // Before what it tells of is looked at: nothing else clears it while there is no link.
            self.waker.clear();
        }
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
        if !self.reopen || self.engine.in_flight() > 0 || self.engine.slots().has_completed_lent() {
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
                let aside = self.reconnects_aside.then(|| Arc::clone(&self.waker));
                Opening::new(sequence, info, waiter, self.shared.options.tried(self.id.0), aside)
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

    /// Whether a command may be sent over the present connection. To be called after
    /// [`QueueConnection::ready`]: restrictions found at a reconnect are set before the generation changes.
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

    /// Whether queued requests are held (see [`crate::Options::batch_timeout_us`]).
    fn holds(&mut self) -> bool {
        let Some(doorbell) = &mut self.doorbell else { return false };
        if !self.engine.has_unsent() {
            // Sent already, lost, or waiting for the socket to be writable.
            doorbell.sent();
        }
        doorbell.holds()
    }

    fn timeout_ms(&self) -> u64 {
        u64::from(self.shared.options.command_timeout_ms)
    }

    pub(super) fn not_connected(&self) -> Error {
        self.shared.not_connected()
    }

    /// Uses a new link.
    fn attach(&mut self, mut link: HostLink, info: &Info) -> Result<(), Error> {
        link.share_small_commands(&self.shared.small_commands);
        link.share_troubles(&self.shared.troubles);
        self.fence = Arc::clone(&info.fence);
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
    pub(super) fn service(&mut self, data: &mut AdminData<'_>) -> Result<(), Error> {
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
        self.fence.lose(self.time.now());
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
    pub(super) fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let timeout = self.sleep_max(deadline);
        wait(&mut [PollFd::from_borrowed_fd(self.descriptor(), PollFlags::IN)], timeout)
            .map_err(|errno| Error::System { action: "waiting for an answer", errno })?;
        self.check_deadlines_soon();
        Ok(())
    }

    /// How long to sleep at most: until `deadline` or the next deadline of a command.
    pub(super) fn sleep_max(&mut self, deadline: Option<Instant>) -> Option<Duration> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(self.time.now()));
        let expiry = self.time.until(self.engine.next_deadline_ms());
        shorter(left, expiry)
    }

    pub(super) fn check_deadlines_soon(&mut self) {
        self.next_expiry_ms = self.next_expiry_ms.min(self.engine.slots().next_deadline_ms());
    }
}

fn transfer_max(limits: &Limits) -> usize {
    limits.transfer_bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
}
