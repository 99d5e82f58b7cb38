//! The queue pairs of one thread over all paths of a subsystem. Chooses a path for each command,
//! and says over which one a completion came; what is sent again, and when, is its owner's, with a
//! [`crate::Requeue`].
//!
//! With one path there is nothing to choose, and nothing is looked up, locked or allocated for a
//! command. What changes (paths, access, policy) is taken over between commands, when the
//! subsystem's version is another one.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use ebof_nvme::{Nsid, Sqe, Status};
use rustix::event::epoll;

use super::access::{PathAccess, Rank};
use super::lane::LaneQueues;
use super::path::{Path, PathBindings, PathId, PathTally, outage};
use super::policy::{Candidate, Chooser, PathPolicy, smoothed_us};
use super::{Joining, Subsystem, Thread, node};
use crate::command::data::{Completion, Data, IoBuffer, SubmitError};
use crate::command::fate::Fate;
use crate::command::limits::Limits;
use crate::controller::Controller;
use crate::error::Error;
use crate::error::state::State;
use crate::requeue::Outage;
use crate::requeue::verdict::{OtherPaths, PathVerdict};
use crate::shared::bindings::Binding;
use crate::shared::fence::Fence;
use crate::shared::opened::NamespaceHead;
use crate::wait::lock::lock;
use crate::wait::{Waiter, Waker};

/// Paths without outstanding commands are polled every so many turns: something may have come for
/// them that makes the descriptor readable.
const IDLE_TURNS: u32 = 16;

/// The queue pairs of one thread over all paths of a subsystem.
pub struct Lanes<B: IoBuffer> {
    subsystem: Subsystem,
    lanes: Vec<Lane<B>>,
    newcomers: Arc<Newcomers<B>>,
    version: u64,
    policy: PathPolicy,
    chooser: Chooser,
    candidates: Vec<Candidate>,
    /// The node of this thread's processor when the paths were last looked at.
    node: Option<u32>,
    turns: u32,
    /// Where the next poll begins.
    next: usize,
    /// Watches the first path's queue pairs itself, and those of others as they come; `None` when
    /// stepped.
    front: Option<OwnedFd>,
}

struct Lane<B: IoBuffer> {
    path: Arc<Path>,
    queues: LaneQueues<B>,
    is_connected: bool,
    is_enabled: bool,
    is_preferred: bool,
    is_remote: bool,
    access: Arc<PathAccess>,
    bindings: Arc<PathBindings>,
    /// The last namespace that was looked up.
    last: Option<(NamespaceHead, Binding)>,
    /// Namespaces that the path has refused since the access was last read.
    refused: Vec<NamespaceHead>,
    in_flight: u32,
    completed: u64,
    tally: Arc<PathTally>,
    latency_us: u32,
}

/// Queue pairs over paths that were added: the thread takes them over.
struct Newcomers<B: IoBuffer> {
    separate_reads: bool,
    /// Those that the thread has, or will have: a path may be found twice while it joins.
    known: Mutex<BTreeSet<PathId>>,
    waiting: Mutex<Vec<(Arc<Path>, LaneQueues<B>)>>,
    waker: Waker,
}

impl<B: IoBuffer + 'static> Thread for Newcomers<B> {
    fn join<'j>(&'j self, path: &'j Arc<Path>, waiter: &'j Waiter) -> Joining<'j> {
        Box::pin(async move {
            if !lock(&self.known).insert(path.id) {
                return Ok(());
            }
            let queues = LaneQueues::new(&path.controller, self.separate_reads, waiter).await;
            let queues = queues.inspect_err(|_| {
                lock(&self.known).remove(&path.id);
            })?;
            lock(&self.waiting).push((Arc::clone(path), queues));
            self.waker.wake();
            Ok(())
        })
    }

    fn wake(&self) {
        self.waker.wake();
    }
}

impl<B: IoBuffer> Lane<B> {
    fn new(path: Arc<Path>, queues: LaneQueues<B>) -> Self {
        Self {
            queues,
            is_connected: true,
            is_enabled: true,
            is_preferred: false,
            is_remote: false,
            access: path.access(),
            bindings: path.bindings(),
            last: None,
            refused: Vec::new(),
            in_flight: 0,
            completed: 0,
            tally: path.tally(),
            latency_us: 0,
            path,
        }
    }

    /// Takes over what is said of the path.
    fn refresh(&mut self, node: Option<u32>) {
        let path = &self.path;
        self.is_enabled = path.is_enabled();
        self.is_preferred = path.is_preferred();
        self.is_remote = path.node.is_some() && node.is_some() && path.node != node;
        self.access = path.access();
        self.bindings = path.bindings();
        self.last = None;
        self.refused.clear();
    }

    fn binding(&mut self, head: NamespaceHead) -> Option<Binding> {
        match self.last {
            Some((of, binding)) if of == head => Some(binding),
            _ => {
                let binding = *self.bindings.get(&head)?;
                self.last = Some((head, binding));
                Some(binding)
            }
        }
    }

    fn is_usable(&self, head: NamespaceHead) -> bool {
        self.is_connected && self.is_enabled && self.bindings.contains_key(&head) && !self.refused.contains(&head)
    }

    fn count(&mut self, in_flight: u32) {
        self.in_flight = in_flight;
        self.tally.in_flight.store(in_flight, Ordering::Relaxed);
    }

    /// As [`LaneQueues::poll`]; notes whether the path has a connection.
    fn poll(&mut self) -> Result<Option<Completion<B>>, Error> {
        let polled = self.queues.poll();
        match &polled {
            Ok(None) => self.is_connected = true,
            Ok(Some(completion)) => {
                self.is_connected = !matches!(&completion.result, Err(error) if error.is_connection());
                self.count(self.in_flight.saturating_sub(1));
                self.completed = self.completed.wrapping_add(1);
                self.tally.completed.store(self.completed, Ordering::Relaxed);
            }
            Err(_) => self.is_connected = false,
        }
        polled
    }
}

impl<B: IoBuffer + 'static> Lanes<B> {
    /// Connects the queue pairs of another thread over each path. With `separate_reads`, reads use
    /// queue pairs of the controllers' read maps.
    ///
    /// # Errors
    /// The queues of the first path cannot be connected, or those of one that is live.
    pub fn new(subsystem: &Subsystem, separate_reads: bool) -> Result<Self, Error> {
        let shared = Arc::clone(subsystem.controller().shared());
        shared.run(Self::establish(subsystem, separate_reads, &shared.waiter))
    }

    /// As [`Lanes::new`], waiting by `waiter`.
    pub(super) async fn establish(subsystem: &Subsystem, separate_reads: bool, waiter: &Waiter) -> Result<Self, Error> {
        let system = |action| move |errno| Error::System { action, errno };
        let first = Arc::clone(subsystem.inner().paths().first().expect("a subsystem has a path"));
        let queues = LaneQueues::new(&first.controller, separate_reads, waiter).await?;
        let again =
            |error: std::io::Error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::MFILE);
        let waker = waiter.waker().map_err(system("making an event descriptor"))?;
        let front = match waker.descriptor() {
            None => None,
            Some(descriptor) => {
                let front = queues.as_fd().try_clone_to_owned().map_err(again);
                let front = front.map_err(system("duplicating a descriptor"))?;
                watch(&front, descriptor)?;
                Some(front)
            }
        };
        let known = Mutex::new([first.id].into());
        let newcomers = Arc::new(Newcomers { separate_reads, known, waiting: Mutex::default(), waker });
        let mut lanes = Self {
            subsystem: subsystem.clone(),
            lanes: vec![Lane::new(first, queues)],
            version: 0,
            policy: PathPolicy::default(),
            chooser: Chooser::default(),
            candidates: Vec::new(),
            node: None,
            turns: 0,
            next: 0,
            front,
            newcomers: Arc::clone(&newcomers),
        };
        let thread: Arc<dyn Thread> = newcomers;
        // Before the paths are looked at: one that is added now joins from either side.
        subsystem.enlist(Arc::downgrade(&thread) as Weak<dyn Thread>);
        for path in subsystem.inner().paths().iter() {
            thread.join(path, waiter).await?;
        }
        lanes.refresh();
        Ok(lanes)
    }

    /// Takes over what has changed: paths, access, policy.
    #[cold]
    fn refresh(&mut self) {
        self.newcomers.waker.clear();
        // Before what it counts.
        self.version = self.subsystem.inner().version();
        for (path, queues) in std::mem::take(&mut *lock(&self.newcomers.waiting)) {
            let watched = self.front.as_ref().map_or(Ok(()), |front| watch(front, queues.as_fd()));
            match watched {
                Ok(()) => self.lanes.push(Lane::new(path, queues)),
                Err(error) => tracing::error!(%error, "a path is not used"),
            }
        }
        // The commands of a path that was removed are lost first.
        self.lanes.retain(|lane| !lane.path.is_removed() || lane.in_flight > 0);
        self.policy = self.subsystem.policy();
        let matters = self.lanes.len() > 1 && self.lanes.iter().any(|lane| lane.path.node.is_some());
        self.node = if matters { node::of_thread() } else { None };
        let node = self.node;
        self.lanes.iter_mut().for_each(|lane| lane.refresh(node));
        self.candidates.reserve(self.lanes.len());
    }

    fn look(&mut self) {
        if self.subsystem.inner().version() != self.version {
            self.refresh();
        } else {
            self.newcomers.waker.clear();
        }
    }

    /// The path for a command to a namespace; `None` if none has a connection.
    pub fn choose(&mut self, head: Option<NamespaceHead>, nsid: Nsid) -> Option<usize> {
        self.look();
        let Some(head) = head.filter(|_| self.lanes.len() > 1) else { return (!self.lanes.is_empty()).then_some(0) };
        self.candidates.clear();
        let shared_count = self.policy == PathPolicy::QueueDepth || self.policy == PathPolicy::Latency;
        for (number, lane) in self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_usable(head)) {
            self.candidates.push(Candidate {
                lane: number,
                rank: lane.access.rank(nsid.0),
                is_preferred: lane.is_preferred,
                is_remote: lane.is_remote,
                in_flight: if shared_count { lane.path.totals().0 } else { lane.in_flight },
                latency_us: lane.latency_us,
            });
        }
        if self.candidates.is_empty() && self.forget_refusals(head) {
            // They were refused while another path was there to take them.
            return self.choose(Some(head), nsid);
        }
        self.chooser.choose(self.policy, &self.candidates)
    }

    /// Paths that have refused a namespace are asked again. Whether there are any that can be.
    fn forget_refusals(&mut self, head: NamespaceHead) -> bool {
        let mut found = false;
        for lane in &mut self.lanes {
            let before = lane.refused.len();
            lane.refused.retain(|refused| *refused != head);
            found |= lane.refused.len() < before && lane.is_usable(head);
        }
        found
    }

    /// Queues a command on a path, which [`Lanes::choose`] gave: see
    /// [`crate::QueuePair::submit_bound`].
    ///
    /// # Errors
    /// As [`crate::QueuePair::submit_bound`]; the data are given back.
    pub fn submit(
        &mut self,
        lane: usize,
        head: Option<NamespaceHead>,
        sqe: Sqe,
        data: Data<B>,
        user: u64,
    ) -> Result<(), SubmitError<B>> {
        let lane = &mut self.lanes[lane];
        let binding = match head.map(|head| lane.binding(head)) {
            Some(None) => return Err(SubmitError { reason: Error::NoSuchNamespace(sqe.nsid()), data }),
            binding => binding.flatten(),
        };
        match lane.queues.submit(binding, sqe, data, user) {
            Ok(()) => {
                lane.count(lane.in_flight + 1);
                Ok(())
            }
            Err(refused) => {
                if refused.reason.is_connection() {
                    lane.is_connected = false;
                }
                Err(refused)
            }
        }
    }

    /// Sends everything queued.
    ///
    /// # Errors
    /// [`Error::System`]. Lost connections are reported by [`Lanes::poll`], with the commands they
    /// ended.
    pub fn flush(&mut self) -> Result<(), Error> {
        let flushed = self.lanes.iter_mut().filter(|lane| lane.in_flight > 0).map(|lane| lane.queues.flush());
        flushed.fold(Ok(()), Result::and)
    }

    /// The next completion, and over which path it came. Poll until `None` before waiting for the
    /// descriptor.
    ///
    /// # Errors
    /// [`Error::NotConnected`] while no path has a connection.
    pub fn poll(&mut self) -> Result<Option<(usize, Completion<B>)>, Error> {
        self.look();
        if let [only] = self.lanes.as_mut_slice() {
            return Ok(only.poll()?.map(|completion| (0, completion)));
        }
        self.turns = self.turns.wrapping_add(1);
        let looks_at_idle = self.turns.is_multiple_of(IDLE_TURNS);
        let (count, mut has_connection, mut last) = (self.lanes.len(), false, None);
        for number in (0..count).map(|number| (self.next + number) % count) {
            let lane = &mut self.lanes[number];
            if lane.in_flight == 0 && lane.is_connected && !looks_at_idle {
                has_connection = true;
                continue;
            }
            match lane.poll() {
                Ok(Some(completion)) => {
                    self.next = number;
                    if matches!(&completion.result, Err(error) if error.is_connection()) {
                        lane.path.count_failover();
                    }
                    return Ok(Some((number, completion)));
                }
                Ok(None) => has_connection = true,
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if !has_connection => Err(error),
            _ => Ok(None),
        }
    }

    /// When to poll again if nothing arrives before.
    pub(super) fn due(&mut self) -> Option<Instant> {
        self.lanes.iter_mut().filter_map(|lane| lane.queues.due()).min()
    }

    /// Whether the policy asks for latencies.
    #[must_use]
    pub fn wants_latency(&self) -> bool {
        self.policy == PathPolicy::Latency && self.lanes.len() > 1
    }

    /// How long a command took on a path, for the policy that asks for it.
    pub fn note_latency(&mut self, lane: usize, began: Instant, now: Instant) {
        let took = now.saturating_duration_since(began).as_micros();
        let lane = &mut self.lanes[lane];
        lane.latency_us = smoothed_us(lane.latency_us, u32::try_from(took).unwrap_or(u32::MAX));
        lane.tally.latency_us.store(lane.latency_us, Ordering::Relaxed);
    }

    /// What becomes of a command to a namespace that has come back over a path with a status.
    pub fn judge_status(
        &mut self,
        lane: usize,
        head: Option<NamespaceHead>,
        nsid: Nsid,
        status: Status,
    ) -> PathVerdict {
        PathVerdict::of_status(status, &mut OnLane { lanes: self, lane, head, nsid })
    }

    /// What becomes of a command to a namespace that has come back over a path without a
    /// completion, or was not sent.
    pub fn judge(
        &mut self,
        lane: usize,
        head: Option<NamespaceHead>,
        nsid: Nsid,
        error: &Error,
        fate: Fate,
    ) -> PathVerdict {
        PathVerdict::of_error(error, fate, &mut OnLane { lanes: self, lane, head, nsid })
    }

    /// Why no path takes commands to a namespace; `None` if no path has a connection at all.
    #[must_use]
    pub fn outage(&self, head: Option<NamespaceHead>) -> Option<Outage> {
        if self.state() != State::Live {
            return None;
        }
        let leads = |lane: &&Lane<B>| head.is_some_and(|head| lane.bindings.contains_key(&head));
        Some(outage(self.lanes.iter().filter(leads).map(|lane| &*lane.path)))
    }

    /// See [`OtherPaths::refuse`].
    fn refuse(&mut self, lane: usize, head: Option<NamespaceHead>, nsid: Nsid) -> bool {
        let Some(head) = head.filter(|_| self.lanes.len() > 1) else { return false };
        let takes = |other: &Lane<B>| other.is_usable(head) && other.access.rank(nsid.0) <= Rank::NonOptimized;
        let may_go = self.lanes.iter().enumerate().any(|(number, other)| number != lane && takes(other));
        if may_go {
            self.lanes[lane].path.count_failover();
            if !self.lanes[lane].refused.contains(&head) {
                self.lanes[lane].refused.push(head);
            }
        }
        may_go
    }

    /// See [`OtherPaths::may_come_back`].
    fn may_come_back(&self, lane: usize, nsid: Nsid) -> bool {
        let others = self.lanes.iter().enumerate().filter(|(number, other)| *number != lane && other.is_enabled);
        others.map(|(_, other)| other.access.rank(nsid.0)).any(|rank| rank != Rank::Lost)
    }

    /// Which path it is.
    #[must_use]
    pub fn path(&self, lane: usize) -> PathId {
        self.lanes[lane].path.id
    }

    /// The state of the paths of this thread: live if one has a connection.
    #[must_use]
    pub fn state(&self) -> State {
        match self.lanes.as_slice() {
            [only] => only.path.controller.state(),
            lanes if lanes.iter().any(|lane| lane.is_connected && lane.is_enabled) => State::Live,
            _ => match self.subsystem.state() {
                // A controller is there, and its queue is on its way.
                State::Live => State::Reconnecting,
                state => state,
            },
        }
    }

    /// The error while there is no connection.
    pub(crate) fn not_connected(&self) -> Error {
        self.subsystem.controller().shared().not_connected()
    }

    /// The controller of a path.
    #[must_use]
    pub fn controller(&self, lane: usize) -> &Controller {
        &self.lanes[lane].path.controller
    }

    /// The limits of a path's controller.
    #[must_use]
    pub fn limits(&self, lane: usize) -> Limits {
        self.lanes[lane].path.controller.limits()
    }

    /// How often the access to namespaces changed, over all paths.
    #[must_use]
    pub fn path_changes(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.path.controller.path_changes()).fold(self.version, u64::wrapping_add)
    }

    /// The identifier of the first path's queue for everything but reads.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.lanes.first().map_or(0, |lane| lane.queues.id())
    }

    /// The most outstanding commands of any kind.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.lanes.iter().map(|lane| lane.queues.capacity()).min().unwrap_or(1)
    }
}

/// A command that a path had, and its namespace.
struct OnLane<'l, B: IoBuffer> {
    lanes: &'l mut Lanes<B>,
    lane: usize,
    head: Option<NamespaceHead>,
    nsid: Nsid,
}

impl<B: IoBuffer + 'static> OtherPaths for OnLane<'_, B> {
    fn refuse(&mut self) -> bool {
        self.lanes.refuse(self.lane, self.head, self.nsid)
    }

    fn may_come_back(&self) -> bool {
        self.lanes.may_come_back(self.lane, self.nsid)
    }

    fn fence(&self) -> Option<Arc<Fence>> {
        let lane = &self.lanes.lanes[self.lane];
        let fence = lane.queues.fence();
        lane.path.note_fence(&fence);
        Some(fence)
    }
}

/// Lets `front` be readable when `descriptor` is.
fn watch(front: &OwnedFd, descriptor: BorrowedFd<'_>) -> Result<(), Error> {
    epoll::add(front, descriptor, epoll::EventData::new_u64(3), epoll::EventFlags::IN)
        .map_err(|errno| Error::System { action: "watching a path", errno })
}

impl<B: IoBuffer> AsFd for Lanes<B> {
    /// Readable when [`Lanes::poll`] has something to do. It stays the same whatever becomes of the
    /// paths.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.front.as_ref().expect("who waits for it is not stepped").as_fd()
    }
}

impl<B: IoBuffer> std::fmt::Debug for Lanes<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").field("paths", &self.lanes.len()).finish_non_exhaustive()
    }
}
