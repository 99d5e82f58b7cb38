//! A queue pair, owned by one thread: submit many, flush once, poll many. This file has waiting:
//! for completions, and for commands with lent data (`queue/pieces.rs`). What is sent and received,
//! time-outs and reconnecting are in `queue/connection.rs`, the commands in `engine`.

mod connection;
mod doorbell;
mod opening;
mod pieces;
mod readiness;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_idle::{Idle, IdleStep};
use ebof_nvme::{Cqe, QueueId, Sqe};
use rustix::event::{PollFd, PollFlags};

use crate::command::data::{AdminData, Completion, Data, IoBuffer, SubmitError};
use crate::error::Error;
use crate::error::state::State;
use crate::shared::SharedController;
use crate::shared::bindings::Binding;
use crate::shared::fence::Fence;
use crate::shared::maps::QueueClass;
use crate::wait::{Time, Waiter, Waker, run, shorter, wait};
use connection::QueueConnection;
use pieces::LentTransfer;
pub(crate) use pieces::TransferPiece;

/// An I/O queue pair: one connection to the controller. It belongs to one thread at a time and
/// allocates nothing per command.
///
/// After a loss of the connection every outstanding command comes back from [`QueuePair::poll`]
/// with [`Error::Lost`]; once the controller is live again, the next call of `submit`, `poll` or
/// `wait` re-creates the queue (which may take as long as connecting takes).
///
/// ```
/// use ebof_initiator::{Controller, Data};
/// use ebof_nvme::{Nsid, io::BlockRange, opcode};
///
/// fn read_eight_blocks(controller: &Controller) -> Result<(), Box<dyn std::error::Error>> {
///     let mut queue = controller.queue_pair::<Vec<u8>>()?;
///     for block in 0..8 {
///         let read = BlockRange::new(block, 1).encode(opcode::nvm::READ, Nsid(1));
///         queue.submit(read, Data::ToHost(vec![0; 512]), block)?;
///     }
///     for _ in 0..8 {
///         let completion = queue.wait(None)?.ok_or("no deadline was given")?;
///         println!("block {}: {:?}", completion.user, completion.result?.status());
///     }
///     Ok(())
/// }
/// ```
pub struct QueuePair<B: IoBuffer = Vec<u8>> {
    connection: QueueConnection<B>,
    /// Keeps the controller connected; `None` for queue pairs that the controller itself owns.
    _controller: Option<ControllerGuard>,
    /// How long a wait spins before it sleeps.
    idle: Idle,
    /// Completions that were handed out.
    completed: u64,
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
        let connection = QueueConnection::establish(shared, class, waiter).await?;
        let idle = Idle::new(connection.spin_us());
        Ok(Self { connection, _controller: controller, idle, completed: 0 })
    }

    /// The queue's identifier.
    #[must_use]
    pub fn id(&self) -> QueueId {
        self.connection.id()
    }

    /// What the queue is for.
    #[must_use]
    pub fn class(&self) -> QueueClass {
        self.connection.class()
    }

    /// Commands that may be outstanding at once: one less than the queue has entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.connection.capacity()
    }

    /// Commands that are outstanding, those not yet flushed or not yet collected included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.connection.in_flight()
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
        self.connection.submit(None, sqe, data, user)
    }

    /// As [`QueuePair::submit`], for the namespace that was opened with `binding` only, whatever
    /// its NSID refers to now, and within the controller's current limits.
    ///
    /// # Errors
    /// As [`QueuePair::submit`]; [`Error::Replaced`], [`Error::Format`],
    /// [`Error::NoSuchNamespace`]. [`Error::TooLarge`] also if the controller's limit is smaller
    /// after a reconnect ([`crate::Limits::transfer_bytes`]).
    pub fn submit_bound(&mut self, binding: Binding, sqe: Sqe, data: Data<B>, user: u64) -> Result<(), SubmitError<B>> {
        self.connection.submit(Some(binding), sqe, data, user)
    }

    pub(crate) fn submit_for(
        &mut self,
        binding: Option<Binding>,
        sqe: Sqe,
        data: Data<B>,
        user: u64,
    ) -> Result<(), SubmitError<B>> {
        self.connection.submit(binding, sqe, data, user)
    }

    /// Sends everything queued, in one gathered send if the socket takes it. With
    /// [`crate::Options::batch_timeout_us`] it may be held: poll, or wait for the descriptor, which
    /// becomes readable when the hold ends.
    ///
    /// # Errors
    /// [`Error::System`]. A lost connection is reported by `poll`, with the commands it ended.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.connection.flush()
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
        let ready = self.connection.ready();
        if let Some(completion) = self.next_ready() {
            return Ok(Some(completion));
        }
        ready?;
        self.connection.poll()?;
        Ok(self.next_ready())
    }

    /// The next completion that was received already, without a system call. For loops that process
    /// all completions of a wait before they submit again.
    pub fn next_ready(&mut self) -> Option<Completion<B>> {
        let completion = self.connection.pop();
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
        self.connection.set_spinning(true);
        let done = self.spin(deadline);
        self.connection.set_spinning(false);
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
            if deadline.is_some_and(|deadline| self.connection.time().now() >= deadline) {
                self.idle.stop();
                return if connected { Ok(None) } else { Err(self.connection.not_connected()) };
            }
            if !connected {
                self.idle.stop();
                self.connection.sleep(deadline)?;
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
            IdleStep::GiveWay => {
                self.idle.give_way(now_us);
                Ok(())
            }
            IdleStep::Sleep(bound_us) => {
                if !self.connection.prepare_to_sleep()? {
                    return Ok(());
                }
                let timeout = self.connection.sleep_max(deadline);
                let mut ready = [PollFd::from_borrowed_fd(self.connection.descriptor(), PollFlags::IN)];
                let time = self.connection.time();
                self.idle
                    .sleep(bound_us, || time.now_us(), |bound| wait(&mut ready, shorter(timeout, bound)))
                    .map_err(|errno| Error::System { action: "waiting for an answer", errno })?;
                self.connection.check_deadlines_soon();
                Ok(())
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.connection.time().now_us()
    }

    /// Sends Abort, through the Admin Queue, for every command submitted with `user`. Does not
    /// wait; aborted commands complete with a status that says so.
    pub fn abort(&mut self, user: u64) {
        self.connection.abort(user);
    }

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
        let waiter = self.connection.waiter().another();
        run(self.execute_pieces(&waiter, None, std::iter::once(piece), &mut data, |cqe| {
            last = Some(cqe);
            Ok(())
        }))?;
        Ok(last.expect("the only command is over, and has not failed"))
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
        // Something is outstanding only after a failed system call.
        self.connection.end_lent();
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
        let mut transfer = LentTransfer::new(binding, pieces.into_iter());
        loop {
            transfer.submit(&mut self.connection, data);
            if self.connection.lent() > 0 {
                self.connection.service(data)?;
            }
            let progress = transfer.collect(&mut self.connection, &mut on_done);
            if let Some(result) = transfer.result(&mut self.connection) {
                return result;
            }
            if !progress {
                self.idle_with(waiter).await?;
            } else if self.idle.is_waiting() {
                self.idle.found(self.now_us());
            }
        }
    }

    /// After a loss, the queue is connected again on a thread of its own: calls return
    /// [`Error::NotConnected`] meanwhile, and the descriptor is readable when that is over.
    pub(crate) fn reconnect_aside(&mut self) {
        self.connection.reconnect_aside();
    }

    /// For commands that were lost with the last connection.
    pub(crate) fn fence(&self) -> Arc<Fence> {
        self.connection.fence()
    }

    /// Another waker that makes the descriptor readable. The queue pair does not clear it.
    pub(crate) fn add_waker(&mut self) -> Result<Waker, Error> {
        self.connection.add_waker()
    }

    /// The generation of the controller that this queue has seen.
    pub(crate) fn generation(&self) -> u64 {
        self.connection.generation()
    }

    /// How long to sleep at most before the next poll, so that deadlines of commands are checked;
    /// `None` without commands.
    pub(crate) fn time_to_sleep(&mut self) -> Option<Duration> {
        self.connection.time_to_sleep()
    }

    /// When to poll again if nothing arrives before: for a command's deadline, the end of a hold,
    /// or the next step of reconnecting the queue. `None`: there is no deadline.
    pub(crate) fn due(&mut self) -> Option<Instant> {
        self.connection.due()
    }

    /// The queue's clock.
    pub(crate) fn time(&self) -> &Time {
        self.connection.time()
    }
}

impl<B: IoBuffer> AsFd for QueuePair<B> {
    /// Readable when [`QueuePair::poll`] has something to do. The descriptor stays the same across
    /// reconnects. While commands are outstanding, poll about once a second anyway, which checks
    /// their deadlines.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.descriptor()
    }
}

impl<B: IoBuffer> std::fmt::Debug for QueuePair<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair")
            .field("id", &self.id())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
