//! The requests that wait or are at the device, by number: a slab, and a list through it for each
//! flow. It grows to the most that there ever were, then nothing is allocated.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use crate::cost::Request;
use crate::flow::Flow;

/// A request, until it was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is not settled stays at the device"]
pub struct Ticket {
    index: u32,
    /// Tells it from those that had the index before.
    number: NonZeroU32,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Waiting,
    AtDevice,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<T> {
    pub(crate) flow: Flow,
    pub(crate) request: Request,
    pub(crate) owner: T,
    pub(crate) state: State,
    /// What it was charged.
    pub(crate) cost: u32,
    /// When it came, and then when it went to the device, microseconds.
    pub(crate) since_us: u64,
    number: NonZeroU32,
    before: u32,
    after: u32,
}

/// The requests of a flow that wait, in the order in which they came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

/// The end of a list.
const NONE: u32 = u32::MAX;

impl Default for List {
    fn default() -> Self {
        Self { head: NONE, tail: NONE }
    }
}

impl List {
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

#[derive(Debug)]
pub(crate) struct Requests<T> {
    entries: Vec<Entry<T>>,
    /// Those that are free, one after the other.
    free: u32,
}

impl<T: Copy> Requests<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: NONE }
    }

    /// A request that waits, at the end of `list`.
    pub(crate) fn push(&mut self, list: &mut List, flow: Flow, request: Request, owner: T, now_us: u64) -> Ticket {
        let index = self.take_free(flow, request, owner);
        let entry = &mut self.entries[index as usize];
        *entry = Entry { flow, request, owner, state: State::Waiting, cost: 0, since_us: now_us, ..*entry };
        entry.before = list.tail;
        entry.after = NONE;
        let ticket = Ticket { index, number: entry.number };
        match list.tail {
            NONE => list.head = index,
            tail => self.entries[tail as usize].after = index,
        }
        list.tail = index;
        ticket
    }

    fn take_free(&mut self, flow: Flow, request: Request, owner: T) -> u32 {
        if self.free != NONE {
            let index = self.free;
            let entry = &self.entries[index as usize];
            assert!(entry.state == State::Free, "a request that waits or is at the device would be overwritten");
            self.free = entry.after;
            return index;
        }
        let index = u32::try_from(self.entries.len()).expect("queues have far less than 2^32 entries together");
        let state = State::Free;
        let (before, after) = (NONE, NONE);
        self.entries.push(Entry {
            flow,
            request,
            owner,
            state,
            cost: 0,
            since_us: 0,
            number: NonZeroU32::MIN,
            before,
            after,
        });
        index
    }

    /// The first one of `list`.
    pub(crate) fn head(&self, list: &List) -> Option<(Ticket, &Entry<T>)> {
        let entry = self.entries.get(list.head as usize)?;
        Some((Ticket { index: list.head, number: entry.number }, entry))
    }

    /// A request that was not settled yet.
    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Entry<T>> {
        let entry = self.entries.get(ticket.index as usize)?;
        (entry.number == ticket.number && entry.state != State::Free).then_some(entry)
    }

    /// The request leaves the list that it is on.
    pub(crate) fn unlink(&mut self, list: &mut List, ticket: Ticket) {
        let Entry { before, after, state, .. } = self.entries[ticket.index as usize];
        assert!(state == State::Waiting, "only what waits is on a list");
        match before {
            NONE => list.head = after,
            before => self.entries[before as usize].after = after,
        }
        match after {
            NONE => list.tail = before,
            after => self.entries[after as usize].before = before,
        }
    }

    /// The request, which is on no list any more, goes to the device.
    pub(crate) fn start(&mut self, ticket: Ticket, cost: u32, now_us: u64) {
        let entry = &mut self.entries[ticket.index as usize];
        assert!(entry.state == State::Waiting, "a request goes to the device once");
        entry.state = State::AtDevice;
        entry.cost = cost;
        entry.since_us = now_us;
    }

    /// The request, which is on no list any more, is done with.
    pub(crate) fn free(&mut self, ticket: Ticket) {
        let entry = &mut self.entries[ticket.index as usize];
        assert!(entry.state != State::Free, "it would be twice among those that are free");
        entry.state = State::Free;
        entry.number = entry.number.checked_add(1).unwrap_or(NonZeroU32::MIN);
        entry.after = self.free;
        self.free = ticket.index;
    }
}
