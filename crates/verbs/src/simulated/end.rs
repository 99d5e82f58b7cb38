//! One end of a connection: its queues, as its adapter sees them.

use std::collections::VecDeque;
use std::sync::Weak;

use super::memory::Span;
use crate::ledger::slots::{SharedReceives, Slot, Waiting};
use crate::{Bell, Event, Remote, WindowAccess, WorkStatus};

/// The state of an end.
pub(crate) struct EndState {
    pub(crate) phase: EndPhase,
    /// The connection was established, and the end was notified.
    pub(crate) told: bool,
    /// The send queue: what was not done yet.
    pub(crate) work: VecDeque<SendEntry>,
    /// The number of the first of `work`.
    pub(crate) first: u64,
    /// RDMA READs that were begun, where other work overtakes them.
    pub(crate) reads: VecDeque<(u64, SendEntry)>,
    /// Other work does overtake them.
    pub(crate) overtakes_reads: bool,
    pub(crate) receives: Receives,
    /// Done work, and received messages, whose completions the owner does not see yet.
    pub(crate) done: VecDeque<Arrival>,
    pub(crate) arrived: VecDeque<Arrival>,
    /// The completion queue.
    pub(crate) completions: VecDeque<Arrival>,
    /// Events that the owner does not see yet, and those that it does.
    pub(crate) coming: VecDeque<Event>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) bell: Option<Bell>,
    /// The next completion rings the bell.
    pub(crate) armed: bool,
    /// The bell is to be rung.
    pub(crate) rings: bool,
    pub(crate) rnr_retry_count: u8,
    /// How often the first of `work` was tried without a receive.
    pub(crate) rnr_retries: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    /// By a fault: its work is not done, and its completions are not shown.
    pub(crate) work_held: bool,
    pub(crate) completions_held: bool,
}

/// How far an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndPhase {
    /// There is no queue pair yet.
    Absent,
    /// It was opened.
    Open,
    /// A host waits for the answer to its request.
    Connecting,
    /// It sends and receives.
    Ready,
    /// Everything is flushed.
    Error,
    /// It was dropped.
    Gone,
}

/// Receive slots that are posted.
pub(crate) enum Receives {
    Own(VecDeque<Slot>),
    Shared(SharedReceives),
}

/// An entry of the send queue.
pub(crate) enum SendEntry {
    Message { memory: Box<[u8]>, length: u32, invalidate: Option<u32> },
    Read { to: Span, from: Remote },
    Write { from: Span, to: Remote, signalled: bool },
    Bind { key: u32, to: Span, access: WindowAccess, signalled: bool },
    Invalidate { key: u32 },
}

/// An entry of a completion queue.
pub(crate) enum Arrival {
    Received {
        slot: Slot,
        length: u32,
        invalidated: Option<u32>,
    },
    NotReceived {
        slot: Slot,
        status: WorkStatus,
    },
    /// The work of this number. The memory is that of a message.
    Over {
        number: u64,
        memory: Option<Box<[u8]>>,
        status: Option<WorkStatus>,
    },
}

impl EndState {
    pub(crate) fn new() -> Self {
        Self {
            phase: EndPhase::Absent,
            told: false,
            work: VecDeque::new(),
            first: 0,
            reads: VecDeque::new(),
            overtakes_reads: false,
            receives: Receives::Own(VecDeque::new()),
            done: VecDeque::new(),
            arrived: VecDeque::new(),
            completions: VecDeque::new(),
            coming: VecDeque::new(),
            events: VecDeque::new(),
            bell: None,
            armed: false,
            rings: false,
            rnr_retry_count: 0,
            rnr_retries: 0,
            responder_resources: 0,
            initiator_depth: 0,
            work_held: false,
            completions_held: false,
        }
    }

    /// Whether its queue pair exists.
    pub(crate) fn exists(&self) -> bool {
        !matches!(self.phase, EndPhase::Absent | EndPhase::Gone)
    }

    /// A receive slot for a message; if there is none, and others share them, `waiting` is
    /// notified.
    pub(crate) fn take_receive(&mut self, waiting: impl FnOnce() -> Weak<dyn Waiting>) -> Option<Slot> {
        match &mut self.receives {
            Receives::Own(slots) => slots.pop_front(),
            Receives::Shared(shared) => shared.take(waiting),
        }
    }

    pub(crate) fn has_receive(&self) -> bool {
        match &self.receives {
            Receives::Own(slots) => !slots.is_empty(),
            Receives::Shared(shared) => !shared.is_empty(),
        }
    }

    /// Takes the first of its work out, with its number.
    pub(crate) fn begin(&mut self) -> Option<(u64, SendEntry)> {
        let work = self.work.pop_front()?;
        self.first += 1;
        self.rnr_retries = 0;
        Some((self.first - 1, work))
    }

    /// Everything that is posted comes back.
    pub(crate) fn flush(&mut self, over: &mut impl FnMut(&mut Self, Arrival)) {
        while let Some((number, read)) = self.reads.pop_front() {
            over(self, read.over(number, Some(WorkStatus::Flushed)));
        }
        while let Some((number, work)) = self.begin() {
            over(self, work.over(number, Some(WorkStatus::Flushed)));
        }
        while let Receives::Own(slots) = &mut self.receives
            && let Some(slot) = slots.pop_front()
        {
            over(self, Arrival::NotReceived { slot, status: WorkStatus::Flushed });
        }
    }

    /// Moves one entry to the completion queue.
    pub(crate) fn show(&mut self, arrival: Arrival) {
        self.completions.push_back(arrival);
        self.rings |= std::mem::take(&mut self.armed);
    }
}

impl SendEntry {
    pub(crate) fn over(self, number: u64, status: Option<WorkStatus>) -> Arrival {
        let memory = match self {
            Self::Message { memory, .. } => Some(memory),
            Self::Read { .. } | Self::Write { .. } | Self::Bind { .. } | Self::Invalidate { .. } => None,
        };
        Arrival::Over { number, memory, status }
    }
}

impl Arrival {
    /// A received message becomes a receive that was flushed.
    pub(crate) fn forget_message(&mut self) {
        if let Self::Received { slot, .. } = self {
            let slot = Slot { number: slot.number, memory: std::mem::take(&mut slot.memory) };
            *self = Self::NotReceived { slot, status: WorkStatus::Flushed };
        }
    }

    /// The slot that it has.
    pub(crate) fn slot(self) -> Option<Slot> {
        match self {
            Self::Received { slot, .. } | Self::NotReceived { slot, .. } => Some(slot),
            Self::Over { .. } => None,
        }
    }
}
