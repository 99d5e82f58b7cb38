//! A connection: both ends, and what adapters and connection managers do between them.
//!
//! Everything is behind one lock, which is held for a chain of work at a time. Bells are rung when
//! it is released.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::end::{Arrival, EndPhase, EndState, SendEntry};
use super::registry::MemoryRegistry;
use crate::ledger::slots::{Slot, Waiting};
use crate::{Event, WindowAccess, WorkStatus};

/// One of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The one that connects.
    Host,
    /// The one that listens.
    Target,
}

impl Side {
    pub(crate) const BOTH: [Side; 2] = [Side::Host, Side::Target];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Host => Self::Target,
            Self::Target => Self::Host,
        }
    }
}

/// A connection.
pub(crate) struct Pair {
    state: Mutex<PairState>,
    /// For each end, whether there are completions or events: read without the lock.
    ready: [AtomicU8; 2],
    pub(crate) registry: Arc<MemoryRegistry>,
    /// Addresses of host and target.
    pub(crate) addresses: [SocketAddr; 2],
    /// Who steps decides when something happens.
    stepped: bool,
    myself: Weak<Pair>,
}

/// What the lock protects.
pub(crate) struct PairState {
    pub(crate) ends: [EndState; 2],
    stepped: bool,
    /// Nothing gets through, in either direction.
    pub(crate) cut: bool,
    /// One of the ends has ended the connection.
    pub(crate) ended: bool,
    /// A request of the host that was not delivered yet.
    pub(crate) request: Option<Asked>,
}

/// What a host asks with, as the target sees it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) private_data: Vec<u8>,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

/// Something that can happen next in a stepped network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The request of the host arrives.
    Request,
    /// The first of an end's work is done, or tried.
    Execute(Side),
    /// The first of an end's RDMA READs that other work overtakes is done.
    Read(Side),
    /// An end sees that its work is done.
    Done(Side),
    /// An end sees a message.
    Arrive(Side),
    /// An end sees an event.
    Event(Side),
}

/// The connection, by where it is, and its end.
pub(crate) type EndName = (usize, Side);

const COMPLETIONS: u8 = 1;
const EVENTS: u8 = 2;
/// Retries of a message without a receive: until there is one.
const RNR_FOREVER: u8 = 7;

impl Pair {
    pub(crate) fn new(registry: Arc<MemoryRegistry>, addresses: [SocketAddr; 2], stepped: bool) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self {
            state: Mutex::new(PairState {
                ends: [EndState::new(), EndState::new()],
                stepped,
                cut: false,
                ended: false,
                request: None,
            }),
            ready: [AtomicU8::new(0), AtomicU8::new(0)],
            registry,
            addresses,
            stepped,
            myself: Weak::clone(myself),
        })
    }

    /// Changes the state, and rings the bells of those that have something to see.
    #[inline]
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut PairState) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        for (ready, end) in self.ready.iter().zip(&state.ends) {
            let completions = if end.completions.is_empty() { 0 } else { COMPLETIONS };
            let events = if end.events.is_empty() { 0 } else { EVENTS };
            ready.store(completions | events, Ordering::Release);
        }
        if state.ends[0].rings || state.ends[1].rings {
            Self::ring(state);
        }
        result
    }

    #[cold]
    fn ring(mut state: MutexGuard<'_, PairState>) {
        let bells = state.ends.each_mut().map(|end| {
            let rings = std::mem::take(&mut end.rings);
            end.bell.clone().filter(|_| rings)
        });
        drop(state);
        bells.into_iter().flatten().for_each(|bell| bell());
    }

    #[inline]
    pub(crate) fn has_completions(&self, side: Side) -> bool {
        self.ready[side as usize].load(Ordering::Acquire) & COMPLETIONS != 0
    }

    #[inline]
    pub(crate) fn has_events(&self, side: Side) -> bool {
        self.ready[side as usize].load(Ordering::Acquire) & EVENTS != 0
    }

    /// Does what the ends have posted, as far as possible, unless the network is stepped.
    pub(crate) fn run(&self, state: &mut PairState) {
        if !self.stepped {
            for side in Side::BOTH {
                while !state.ends[side as usize].work.is_empty() && self.execute(state, side) {}
                while !state.ends[side as usize].reads.is_empty() && self.read(state, side) {}
            }
        }
    }

    /// Does the first of an end's work. `false` if there is none, or it has to wait.
    fn execute(&self, state: &mut PairState, side: Side) -> bool {
        let (from, to) = (&state.ends[side as usize], &state.ends[side.other() as usize]);
        if from.work.is_empty() || state.cut || from.work_held || from.phase != EndPhase::Ready {
            return false;
        }
        match to.phase {
            EndPhase::Ready => {}
            EndPhase::Absent | EndPhase::Open | EndPhase::Connecting => return false,
            EndPhase::Error | EndPhase::Gone => {
                // Retries take seconds; an end that is notified of the disconnect does not wait for
                // them.
                if self.stepped {
                    state.fail_first(side, WorkStatus::RetryExceeded);
                }
                return self.stepped;
            }
        }
        match from.work.front() {
            Some(SendEntry::Message { .. }) => self.send(state, side),
            Some(SendEntry::Read { .. } | SendEntry::Write { .. }) => {
                let [from, _] = state.both(side);
                match from.begin() {
                    Some(read @ (_, SendEntry::Read { .. })) if from.overtakes_reads => from.reads.push_back(read),
                    Some((number, work)) => self.transfer(state, side, number, work),
                    None => {}
                }
                true
            }
            Some(SendEntry::Bind { .. } | SendEntry::Invalidate { .. }) => {
                self.change_window(state, side);
                true
            }
            None => false,
        }
    }

    /// Binds or invalidates a memory window, which is first in the queue.
    fn change_window(&self, state: &mut PairState, side: Side) {
        let Some((number, work)) = state.ends[side as usize].begin() else { return };
        let (is_done, is_told) = match &work {
            SendEntry::Bind { key, to, access, signalled } => {
                (self.registry.bind(*key, to, *access, self.end(side)), *signalled)
            }
            SendEntry::Invalidate { key } => (self.registry.unbind(*key, self.end(side)), true),
            _ => (true, false),
        };
        if !is_done {
            state.done(side, work.over(number, Some(WorkStatus::LocalProtection)));
            state.fail(side);
        } else if is_told {
            state.done(side, work.over(number, None));
        }
    }

    /// Does the first of the RDMA READs that an end has begun. `false` if there is none, or it has
    /// to wait.
    fn read(&self, state: &mut PairState, side: Side) -> bool {
        if !state.can_read(side) {
            return false;
        }
        let [from, to] = state.both(side);
        let Some((number, read)) = from.reads.pop_front() else { return false };
        if to.phase == EndPhase::Ready {
            self.transfer(state, side, number, read);
        } else {
            state.done(side, read.over(number, Some(WorkStatus::RetryExceeded)));
            state.fail(side);
        }
        true
    }

    /// Sends the message that is first in the queue. `false` if it waits for a receive.
    fn send(&self, state: &mut PairState, side: Side) -> bool {
        let [from, to] = state.both(side);
        let Some(mut slot) = to.take_receive(|| Weak::clone(&self.myself) as Weak<dyn Waiting>) else {
            if from.rnr_retry_count >= RNR_FOREVER {
                return false;
            }
            from.rnr_retries += 1;
            // Without steps there is no time in which a receive could be posted between retries.
            if !self.stepped || from.rnr_retries > from.rnr_retry_count {
                state.fail_first(side, WorkStatus::RnrRetryExceeded);
            }
            return true;
        };
        let Some((number, SendEntry::Message { memory, length, invalidate })) = from.begin() else { return false };
        let message = &memory[..length as usize];
        let failure = match slot.memory.get_mut(..message.len()) {
            None => Some((WorkStatus::LocalLength, WorkStatus::RemoteInvalidRequest)),
            Some(_) if invalidate.is_some_and(|key| !self.registry.invalidate(key, self.end(side.other()))) => {
                Some((WorkStatus::LocalProtection, WorkStatus::RemoteAccess))
            }
            Some(into) => {
                into.copy_from_slice(message);
                None
            }
        };
        let arrival = match failure {
            None => Arrival::Received { slot, length, invalidated: invalidate },
            Some((status, _)) => Arrival::NotReceived { slot, status },
        };
        let status = failure.map(|(_, status)| status);
        state.arrive(side.other(), arrival);
        state.done(side, Arrival::Over { number, memory: Some(memory), status });
        if failure.is_some() {
            state.fail(side.other());
            state.fail(side);
        }
        true
    }

    /// Does an RDMA READ or WRITE.
    fn transfer(&self, state: &mut PairState, side: Side, number: u64, work: SendEntry) {
        let [from, to] = state.both(side);
        let (depth, resources) = (from.initiator_depth, to.responder_resources);
        let owner = self.end(side.other());
        let failure = match &work {
            SendEntry::Message { .. } | SendEntry::Bind { .. } | SendEntry::Invalidate { .. } => None,
            SendEntry::Read { .. } if depth == 0 || resources == 0 => Some(WorkStatus::RemoteInvalidRequest),
            SendEntry::Read { to, from } => match self.registry.find(*from, to.length(), WindowAccess::Read, owner) {
                Some(from) => {
                    to.copy_from(&from);
                    None
                }
                None => Some(WorkStatus::RemoteAccess),
            },
            SendEntry::Write { from, to, .. } => {
                match self.registry.find(*to, from.length(), WindowAccess::Write, owner) {
                    Some(to) => {
                        to.copy_from(from);
                        None
                    }
                    None => Some(WorkStatus::RemoteAccess),
                }
            }
        };
        if failure.is_some() || !matches!(work, SendEntry::Write { signalled: false, .. }) {
            state.done(side, work.over(number, failure));
        }
        if failure.is_some() {
            state.fail(side);
            state.fail(side.other());
            state.tell(side.other(), Event::Fatal("the other end used memory that it may not use"));
        }
    }

    /// Names an end, among all of the network.
    pub(crate) fn end(&self, side: Side) -> EndName {
        (std::ptr::from_ref(self).addr(), side)
    }

    /// Adds what can happen next.
    pub(crate) fn activities(&self, mut add: impl FnMut(Activity)) {
        self.with(|state| {
            if state.request.is_some() && !state.cut {
                add(Activity::Request);
            }
            for side in Side::BOTH {
                if state.can_execute(side) {
                    add(Activity::Execute(side));
                }
                if state.can_read(side) {
                    add(Activity::Read(side));
                }
                let end = &state.ends[side as usize];
                if !end.completions_held && !end.done.is_empty() {
                    add(Activity::Done(side));
                }
                if !end.completions_held && !end.arrived.is_empty() {
                    add(Activity::Arrive(side));
                }
                if !end.coming.is_empty() {
                    add(Activity::Event(side));
                }
            }
        });
    }

    /// Lets something happen, if it still can. The request is delivered by the caller.
    pub(crate) fn perform(&self, activity: Activity) {
        self.with(|state| match activity {
            Activity::Request => {}
            Activity::Execute(side) => _ = self.execute(state, side),
            Activity::Read(side) => _ = self.read(state, side),
            Activity::Done(side) => {
                let end = &mut state.ends[side as usize];
                if let Some(arrival) = end.done.pop_front() {
                    end.show(arrival);
                }
            }
            Activity::Arrive(side) => {
                let end = &mut state.ends[side as usize];
                if let Some(arrival) = end.arrived.pop_front() {
                    end.show(arrival);
                }
            }
            Activity::Event(side) => {
                let end = &mut state.ends[side as usize];
                end.events.extend(end.coming.pop_front());
                end.rings = true;
            }
        });
    }

    /// Ends an end: its queue pair is dropped. Returns its slots that it shares with others.
    pub(crate) fn close(&self, side: Side) -> Vec<Slot> {
        let (slots, bell) = self.with(|state| {
            let phase = state.ends[side as usize].phase;
            state.end(side, phase);
            let end = &mut state.ends[side as usize];
            let bell = end.bell.take();
            let arrivals = [&mut end.done, &mut end.arrived, &mut end.completions].map(std::mem::take);
            let slots = arrivals.into_iter().flatten().filter_map(Arrival::slot).collect();
            end.phase = EndPhase::Gone;
            (slots, bell)
        });
        // Without the lock: it may own anything.
        drop(bell);
        slots
    }
}

impl PairState {
    pub(crate) fn both(&mut self, side: Side) -> [&mut EndState; 2] {
        let [host, target] = &mut self.ends;
        match side {
            Side::Host => [host, target],
            Side::Target => [target, host],
        }
    }

    fn can_execute(&self, side: Side) -> bool {
        let (from, to) = (&self.ends[side as usize], &self.ends[side.other() as usize]);
        if self.cut || from.work_held || from.phase != EndPhase::Ready {
            return false;
        }
        match (from.work.front(), to.phase) {
            (None, _) | (_, EndPhase::Absent | EndPhase::Open | EndPhase::Connecting) => false,
            (Some(SendEntry::Message { .. }), EndPhase::Ready) => {
                to.has_receive() || from.rnr_retry_count < RNR_FOREVER
            }
            (Some(_), EndPhase::Ready | EndPhase::Error | EndPhase::Gone) => true,
        }
    }

    fn can_read(&self, side: Side) -> bool {
        let (from, to) = (&self.ends[side as usize], &self.ends[side.other() as usize]);
        let is_there = to.phase == EndPhase::Ready || self.stepped;
        is_there && !(from.reads.is_empty() || self.cut || from.work_held) && from.phase == EndPhase::Ready
    }

    /// An end's work is done.
    pub(crate) fn done(&mut self, side: Side, arrival: Arrival) {
        let end = &mut self.ends[side as usize];
        if self.stepped || end.completions_held { end.done.push_back(arrival) } else { end.show(arrival) }
    }

    /// An end has received something.
    fn arrive(&mut self, side: Side, arrival: Arrival) {
        let end = &mut self.ends[side as usize];
        if self.stepped || end.completions_held { end.arrived.push_back(arrival) } else { end.show(arrival) }
    }

    /// Something has happened to an end.
    pub(crate) fn tell(&mut self, side: Side, event: Event) {
        let end = &mut self.ends[side as usize];
        if !end.exists() {
            return;
        }
        if self.stepped {
            end.coming.push_back(event);
        } else {
            end.events.push_back(event);
            end.rings = true;
        }
    }

    /// An end is in error: everything comes back.
    pub(crate) fn fail(&mut self, side: Side) {
        let hidden = self.stepped || self.ends[side as usize].completions_held;
        let end = &mut self.ends[side as usize];
        if !end.exists() {
            return;
        }
        end.phase = EndPhase::Error;
        end.flush(&mut |end, arrival| match (hidden, &arrival) {
            (false, _) => end.show(arrival),
            (true, Arrival::Over { .. }) => end.done.push_back(arrival),
            (true, _) => end.arrived.push_back(arrival),
        });
    }

    /// Messages that an end has received, and has not polled, come back as receives that were
    /// flushed.
    pub(crate) fn forget_received(&mut self, side: Side) {
        let end = &mut self.ends[side as usize];
        for arrival in end.arrived.iter_mut().chain(&mut end.completions) {
            arrival.forget_message();
        }
    }

    /// The first of an end's work that is not over fails, and with it the end. A message that has
    /// no receive is the first that is not begun.
    pub(crate) fn fail_first(&mut self, side: Side, status: WorkStatus) {
        let end = &mut self.ends[side as usize];
        let read = if status == WorkStatus::RetryExceeded { end.reads.pop_front() } else { None };
        if let Some((number, work)) = read.or_else(|| end.begin()) {
            self.done(side, work.over(number, Some(status)));
            self.fail(side);
        }
    }

    /// Holds back the completions of an end, or shows those that were held back.
    pub(crate) fn hold_completions(&mut self, side: Side, hold: bool) {
        let stepped = self.stepped;
        let end = &mut self.ends[side as usize];
        end.completions_held = hold;
        while !hold
            && !stepped
            && let Some(arrival) = end.done.pop_front().or_else(|| end.arrived.pop_front())
        {
            end.show(arrival);
        }
    }

    /// An end that was in `phase` ends the connection.
    pub(crate) fn end(&mut self, side: Side, phase: EndPhase) {
        self.fail(side);
        let asked = self.request.take().is_some();
        if std::mem::replace(&mut self.ended, true) || self.cut || asked {
            return;
        }
        let other = &self.ends[side.other() as usize];
        match (side, phase, other.phase) {
            // The host is notified before it has seen that it was accepted, too.
            (Side::Target, EndPhase::Ready | EndPhase::Error, _) => self.tell(Side::Host, Event::Disconnected),
            (Side::Target, ..) => {
                let event = Event::Rejected { reason: Event::BY_CONSUMER, private_data: Vec::new() };
                self.tell(Side::Host, event);
                self.fail(Side::Host);
            }
            (Side::Host, ..) if other.told => self.tell(Side::Target, Event::Disconnected),
            (Side::Host, _, EndPhase::Absent | EndPhase::Open | EndPhase::Gone) => {}
            (Side::Host, ..) => {
                self.tell(Side::Target, Event::Unreachable(UNREACHABLE));
                self.fail(Side::Target);
            }
        }
    }
}

/// `-ETIMEDOUT`, as the connection manager reports a peer that does not answer.
pub(crate) const UNREACHABLE: i32 = -110;

impl Waiting for Pair {
    fn retry(&self) {
        self.with(|state| self.run(state));
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [host, target] = self.addresses;
        f.debug_struct("Pair").field("host", &host).field("target", &target).finish_non_exhaustive()
    }
}
