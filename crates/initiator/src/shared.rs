//! What the clones of a controller, its queue pairs and its background thread share: state, queue
//! identifiers, the inbox of the thread, subscribers and their events, the open namespaces, what
//! the controller said of itself. Every lock is held for a few instructions only.

pub(crate) mod bell;
pub(crate) mod bindings;
pub(crate) mod event;
pub(crate) mod fence;
mod identity;
mod info;
pub(crate) mod maps;
pub(crate) mod opened;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use ebof_nvme::{Cid, Cqe, QueueId, Sqe};
use rustix::io::Errno;

pub(crate) use info::{GeneratedPsk, Info};

use crate::command::data::Data;
use crate::command::small_commands::SmallCommands;
use crate::command::troubles::Troubles;
use crate::error::state::State;
use crate::error::{Error, Loss, NotConnected};
use crate::options::Options;
use crate::wait::lock::lock;
use crate::wait::{Cancel, Waiter, Waker, run};
use bell::Bell;
use bindings::Bindings;
use event::Event;
use maps::{QueueClass, QueueMaps};
use opened::OpenedNamespaces;

/// The result of an admin command.
pub(crate) type AdminAnswer = Result<(Cqe, Data), Error>;

/// An admin command of a caller.
pub(crate) struct AdminRequest {
    pub(crate) sqe: Sqe,
    pub(crate) data: Data,
    pub(crate) timeout_ms: u64,
    pub(crate) reply: SyncSender<AdminAnswer>,
}

/// A message to the background thread.
pub(crate) enum ControllerMessage {
    /// Run an admin command.
    Admin(AdminRequest),
    /// Abort a command of an I/O queue.
    Abort { queue: QueueId, cid: Cid },
    /// An I/O connection of this generation is lost.
    Lost { generation: u64, loss: Loss },
    /// Drop the connections and make new ones.
    Reset,
    /// Look at the namespaces.
    Rescan,
}

/// The state that a controller's handles, queue pairs and background thread share.
pub(crate) struct SharedController {
    pub(crate) options: Options,
    /// How the background thread waits.
    pub(crate) waiter: Waiter,
    /// Set to disconnect.
    pub(crate) cancel: Cancel,
    /// Wakes the background thread for its inbox.
    pub(crate) inbox_waker: Arc<Waker>,
    /// What went wrong unnoticed.
    pub(crate) troubles: Arc<Troubles>,
    /// What its NSIDs refer to, and which commands are refused.
    pub(crate) bindings: Bindings,
    /// Rung when its state has changed, or the access to its namespaces.
    pub(crate) bell: Bell,
    /// Of all queues.
    pub(crate) small_commands: Arc<SmallCommands>,
    /// [`Options::address`].
    address: Arc<str>,
    /// A [`ControllerMessage::Rescan`] is in the inbox.
    rescan_asked: AtomicBool,
    /// `None` once the thread has ended.
    inbox: Mutex<Option<VecDeque<ControllerMessage>>>,
    status: Mutex<Status>,
    changed: Condvar,
    /// How often the log page of an event about the paths to namespaces was read.
    path_changes: AtomicU64,
    /// Odd while live, even otherwise; every loss and every reconnect increases it.
    generation: AtomicU64,
    /// How often it was connected again.
    reconnects: AtomicU64,
    /// The wakers of the queues' owners, by queue identifier less one.
    queues: Mutex<Queues>,
    /// `None` once the thread has ended.
    subscribers: Mutex<Option<Vec<SyncSender<Event>>>>,
}

struct Status {
    state: State,
    /// When the connection was lost, while it is.
    lost_since: Option<Instant>,
    info: Arc<Info>,
}

#[derive(Default)]
struct Queues {
    owners: Vec<Owner>,
    /// Where the search for a free identifier begins: the target may not have noticed yet that a
    /// recently used one was closed.
    next: usize,
}

/// Who has a queue identifier.
#[derive(Clone)]
enum Owner {
    Nobody,
    /// A queue pair that is being made.
    Unknown,
    /// A queue pair, which is woken when the controller's state changes.
    Known(Arc<Waker>),
}

/// A queue identifier in use. It is free again when this is dropped.
pub(crate) struct TakenQueue {
    shared: Arc<SharedController>,
    id: QueueId,
}

impl TakenQueue {
    pub(crate) fn id(&self) -> QueueId {
        self.id
    }

    /// Sets what is woken when the controller's state changes.
    pub(crate) fn set_waker(&self, waker: &Arc<Waker>) {
        self.set_owner(Owner::Known(Arc::clone(waker)));
    }

    fn set_owner(&self, owner: Owner) {
        // It is one of the list, which does not become shorter (`SharedController::take_queue`).
        lock(&self.shared.queues).owners[usize::from(self.id.0) - 1] = owner;
    }
}

impl Drop for TakenQueue {
    fn drop(&mut self) {
        self.set_owner(Owner::Nobody);
    }
}

/// Unread events per receiver; further ones are dropped.
const EVENTS_MAX: usize = 256;

impl SharedController {
    /// Of a controller that was connected. Controllers that lead to the same namespaces know the
    /// same `opened`.
    pub(crate) fn new(
        options: Options,
        info: Info,
        waiter: Waiter,
        cancel: Cancel,
        opened: Arc<OpenedNamespaces>,
    ) -> Result<Self, Errno> {
        let inbox_waker = Arc::new(waiter.waker()?);
        Ok(Self {
            bindings: Bindings::new(options.nqn.clone(), opened),
            bell: Bell::default(),
            small_commands: Arc::default(),
            address: Arc::from(options.address()),
            rescan_asked: AtomicBool::new(false),
            options,
            cancel,
            troubles: Arc::new(Troubles::new(Arc::clone(&inbox_waker))),
            inbox_waker,
            waiter,
            inbox: Mutex::new(Some(VecDeque::new())),
            status: Mutex::new(Status { state: State::Live, lost_since: None, info: Arc::new(info) }),
            changed: Condvar::new(),
            path_changes: AtomicU64::new(0),
            generation: AtomicU64::new(1),
            reconnects: AtomicU64::new(0),
            queues: Mutex::default(),
            subscribers: Mutex::new(Some(Vec::new())),
        })
    }

    pub(crate) fn state(&self) -> State {
        lock(&self.status).state
    }

    /// The error while there is no connection.
    pub(crate) fn not_connected(&self) -> Error {
        let status = lock(&self.status);
        // A queue pair may notice a loss before the background thread.
        let state = if status.state == State::Live { State::Reconnecting } else { status.state };
        Error::NotConnected(NotConnected {
            state,
            address: Arc::clone(&self.address),
            lost_for: status
                .lost_since
                .map(|since| self.waiter.time.now().saturating_duration_since(since))
                .unwrap_or_default(),
            limit: self.options.ctrl_loss_tmo,
        })
    }

    /// Asks the background thread to scan the namespaces.
    pub(crate) fn ask_rescan(&self) {
        if !self.rescan_asked.swap(true, Ordering::AcqRel) {
            self.send(ControllerMessage::Rescan);
        }
    }

    pub(crate) fn info(&self) -> Arc<Info> {
        Arc::clone(&lock(&self.status).info)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }

    pub(crate) fn path_changes(&self) -> u64 {
        self.path_changes.load(Ordering::Acquire)
    }

    pub(crate) fn count_path_change(&self) {
        self.path_changes.fetch_add(1, Ordering::AcqRel);
        self.bell.ring();
    }

    /// Runs a sequence of a call that waits, on the caller's thread.
    ///
    /// # Errors
    /// [`Error::Stepped`], before anything is done.
    pub(crate) fn run<T>(&self, sequence: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        if self.waiter.is_stepped() { Err(Error::Stepped) } else { run(sequence) }
    }

    /// Waits until live; false at `deadline`, or when disconnected or dead. Does not
    /// wait when stepped.
    pub(crate) fn wait_live(&self, deadline: Option<Instant>) -> bool {
        if self.waiter.is_stepped() {
            return self.state() == State::Live;
        }
        let mut status = lock(&self.status);
        loop {
            match status.state {
                State::Live => return true,
                State::Dead | State::Disconnected => return false,
                State::Reconnecting => {}
            }
            let Some(deadline) = deadline else {
                status = self.changed.wait(status).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(rest) = deadline.checked_duration_since(self.waiter.time.now()).filter(|rest| !rest.is_zero())
            else {
                return false;
            };
            status = self.changed.wait_timeout(status, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// As [`SharedController::wait_live`], waiting by `waiter`.
    pub(crate) async fn live(&self, waiter: &Waiter, deadline: Option<Instant>) -> bool {
        while waiter.is_stepped() {
            match self.state() {
                State::Live => return true,
                State::Dead | State::Disconnected => return false,
                State::Reconnecting => {}
            }
            if deadline.is_some_and(|deadline| waiter.time.now() >= deadline) {
                return false;
            }
            // It fails only where it sleeps.
            let _ = waiter.wait(None, &[], deadline).await;
        }
        self.wait_live(deadline)
    }

    /// The state changes to one without a connection, unless the controller has ended before.
    pub(crate) fn set_down(&self, state: State) {
        {
            let mut status = lock(&self.status);
            if matches!(status.state, State::Dead | State::Disconnected) {
                return;
            }
            status.state = state;
            let now = self.waiter.time.now();
            status.lost_since.get_or_insert(now);
            status.info.fence.lose(now);
            let generation = self.generation.load(Ordering::Relaxed);
            // To the next even number; also from an even one, so that owners see the change.
            self.generation.store(if generation % 2 == 1 { generation + 1 } else { generation + 2 }, Ordering::Release);
        }
        self.announce();
    }

    /// The controller is connected again.
    pub(crate) fn set_live(&self, info: Info) {
        {
            let mut status = lock(&self.status);
            status.state = State::Live;
            status.lost_since = None;
            status.info = Arc::new(info);
            self.reconnects.fetch_add(1, Ordering::Relaxed);
            self.generation.store((self.generation.load(Ordering::Relaxed) + 1) | 1, Ordering::Release);
        }
        self.announce();
    }

    fn announce(&self) {
        self.changed.notify_all();
        self.bell.ring();
        for owner in &lock(&self.queues).owners {
            if let Owner::Known(waker) = owner {
                waker.wake();
            }
        }
    }

    /// How the granted queues are divided.
    pub(crate) fn maps(&self) -> QueueMaps {
        QueueMaps::assign(&self.options, self.info().io_queues)
    }

    /// Takes an unused queue identifier, of `class` if one is given.
    pub(crate) fn take_queue(self: &Arc<Self>, class: Option<QueueClass>) -> Option<TakenQueue> {
        let maps = self.maps();
        let granted = usize::from(maps.total());
        let wanted = |i: usize| class.is_none_or(|class| maps.ids(class).contains(&u16::try_from(i + 1).unwrap_or(0)));
        let mut queues = lock(&self.queues);
        if queues.owners.len() < granted {
            queues.owners.resize(granted, Owner::Nobody);
        }
        let start = queues.next;
        let is_free = |i: usize| matches!(queues.owners[i], Owner::Nobody);
        let free = (0..granted).map(|i| (start + i) % granted).find(|&i| wanted(i) && is_free(i))?;
        let id = u16::try_from(free + 1).ok().map(QueueId)?;
        queues.next = (free + 1) % granted;
        queues.owners[free] = Owner::Unknown;
        Some(TakenQueue { shared: Arc::clone(self), id })
    }

    /// Sends the thread a message. If it has ended, the message and its reply channel are dropped.
    pub(crate) fn send(&self, message: ControllerMessage) {
        if let Some(inbox) = &mut *lock(&self.inbox) {
            inbox.push_back(message);
            self.inbox_waker.wake();
        }
    }

    /// Takes all messages.
    pub(crate) fn take_inbox(&self) -> VecDeque<ControllerMessage> {
        self.inbox_waker.clear();
        self.rescan_asked.store(false, Ordering::Release);
        lock(&self.inbox).as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn subscribe(&self) -> Receiver<Event> {
        let (sender, receiver) = sync_channel(EVENTS_MAX);
        if let Some(subscribers) = &mut *lock(&self.subscribers) {
            subscribers.push(sender);
        }
        receiver
    }

    pub(crate) fn publish(&self, event: &Event) {
        if let Some(subscribers) = &mut *lock(&self.subscribers) {
            subscribers
                .retain(|subscriber| !matches!(subscriber.try_send(event.clone()), Err(TrySendError::Disconnected(_))));
        }
    }

    /// The thread ends: drops all messages and subscribers, which closes their channels.
    pub(crate) fn close(&self) {
        self.set_down(State::Disconnected);
        drop(lock(&self.inbox).take());
        drop(lock(&self.subscribers).take());
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ebof_clock::Clock;
    use ebof_nvme::identify::IdentifyController;
    use ebof_nvme::property::Cap;
    use ebof_nvme::{ControllerId, Nqn};

    use super::*;
    use crate::command::limits::Limits;

    fn shared() -> SharedController {
        let options = Options::new("127.0.0.1", 4420, Nqn::parse("nqn.2014-08.org.example:a").unwrap());
        let identify = IdentifyController::default();
        let info = Info {
            id: ControllerId(1),
            cap: Cap::new(128, 1),
            limits: Limits::new(&identify, None, 4096),
            identify: Arc::new(identify),
            io_queues: 2,
            io_entries: 128,
            peer: SocketAddr::from(([0; 4], 0)),
            namespaces: None,
            inspected: Vec::new(),
            psk: GeneratedPsk::default(),
            fence: Arc::default(),
        };
        let waiter = Waiter::stepped(&Clock::simulated(1));
        let cancel = waiter.cancel().unwrap();
        SharedController::new(options, info, waiter, cancel, Arc::default()).unwrap()
    }

    /// A reset may come from any thread, also when the background thread is ending.
    #[test]
    fn a_controller_that_has_ended_does_not_reconnect() {
        let disconnected = shared();
        disconnected.close();
        disconnected.set_down(State::Reconnecting);
        assert_eq!(disconnected.state(), State::Disconnected);
        assert!(!disconnected.wait_live(None), "nobody waits for it");
        let given_up = shared();
        given_up.set_down(State::Reconnecting);
        given_up.set_down(State::Dead);
        given_up.close();
        assert_eq!(given_up.state(), State::Dead);
        given_up.set_down(State::Reconnecting);
        assert_eq!(given_up.state(), State::Dead);
    }
}
