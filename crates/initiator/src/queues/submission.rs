//! The submission state of a shared queue: queued commands, whose command is in which slot, who
//! waits for a slot, who is the leader. Every function is a few instructions under one lock;
//! nothing here waits or makes a system call.

use std::collections::VecDeque;
use std::task::Waker;
use std::thread::Thread;

use ebof_nvme::Sqe;

use crate::data::{Completion, Data};
use crate::opened::Binding;

/// How to wake whoever waits.
#[derive(Debug)]
pub(super) enum Wake {
    Thread(Thread),
    Task(Waker),
}

impl Wake {
    pub(super) fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }
}

/// A command, and the namespace that it is meant for and no other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) sqe: Sqe,
    pub(super) binding: Option<Binding>,
}

/// A command on its way to the queue pair, with the slot it has here.
pub(super) struct Submission<B> {
    pub(super) slot: u16,
    pub(super) command: Command,
    pub(super) data: Data<B>,
}

/// Who a slot belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A thread that blocks.
    Thread,
    /// A future; somebody else has to look at the socket for it.
    Task,
}

/// `Free` -> `Waiting` -> `Done` -> `Free`; or `Waiting` -> `Abandoned` -> `Free` when the future
/// is dropped.
#[derive(Debug)]
enum Slot<B> {
    Free,
    Waiting {
        owner: Owner,
        wake: Option<Wake>,
    },
    /// Its future is gone: the data are dropped when the command is over.
    Abandoned,
    Done(Completion<B>),
}

/// The state that all users of a shared queue change under its lock.
pub(super) struct SubmissionState<B> {
    slots: Vec<Slot<B>>,
    free: Vec<u16>,
    /// Commands that whoever holds the queue pair takes next. As long as there are slots, at most.
    pub(super) queued: VecDeque<Submission<B>>,
    /// Waiters for a slot, in order of arrival.
    room: VecDeque<(u64, Wake)>,
    /// Slots granted to waiters that have not taken them yet.
    granted: Vec<(u64, u16)>,
    next_ticket: u64,
    /// Whether there is a leader.
    pub(super) led: bool,
    /// The leader sleeps, or is about to.
    pub(super) leader_sleeps: bool,
    /// Threads that sleep until their command is complete, one bit per slot.
    followers: Vec<u64>,
    /// Commands of futures, dropped ones included, that are not over.
    pub(super) tasks: usize,
    pub(super) stop: bool,
    /// An empty list to gather wakes in, kept for its memory.
    pub(super) spare: Vec<Wake>,
}

/// What asking for a slot gave.
pub(super) enum Room {
    Slot(u16),
    /// Wait for it: the ticket.
    Wait(u64),
}

/// What became of a command, seen from its owner.
pub(super) enum Look<B> {
    Over(Completion<B>),
    /// Not over, and somebody looks at the socket.
    Led,
    /// Not over, and the caller is the one who looks at the socket from now on.
    Lead,
}

impl<B> SubmissionState<B> {
    pub(super) fn new(slots: u16) -> Self {
        let count = usize::from(slots);
        Self {
            slots: (0..count).map(|_| Slot::Free).collect(),
            free: (0..slots).rev().collect(),
            queued: VecDeque::with_capacity(count),
            room: VecDeque::new(),
            granted: Vec::new(),
            next_ticket: 0,
            led: false,
            leader_sleeps: false,
            followers: vec![0; count.div_ceil(64)],
            tasks: 0,
            stop: false,
            spare: Vec::with_capacity(count),
        }
    }

    /// A slot, or a ticket: whoever came first gets the first that is free.
    pub(super) fn enter(&mut self, wake: impl FnOnce() -> Wake) -> Room {
        if let Some(slot) = self.try_enter() {
            return Room::Slot(slot);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.room.push_back((ticket, wake()));
        Room::Wait(ticket)
    }

    /// A slot, if one is free and nobody waits for it: what becomes free while somebody waits is
    /// theirs.
    pub(super) fn try_enter(&mut self) -> Option<u16> {
        if self.room.is_empty() { self.free.pop() } else { None }
    }

    /// The slot for a ticket, if there is one by now; otherwise `wake` is whom to wake.
    pub(super) fn redeem(&mut self, ticket: u64, wake: impl FnOnce() -> Wake) -> Option<u16> {
        if let Some(at) = self.granted.iter().position(|(given, _)| *given == ticket) {
            return Some(self.granted.swap_remove(at).1);
        }
        if let Some((_, old)) = self.room.iter_mut().find(|(given, _)| *given == ticket) {
            *old = wake();
        }
        None
    }

    /// The ticket is not needed any more; gives whom to wake.
    pub(super) fn give_up(&mut self, ticket: u64) -> Option<Wake> {
        self.room.retain(|(given, _)| *given != ticket);
        let at = self.granted.iter().position(|(given, _)| *given == ticket)?;
        let slot = self.granted.swap_remove(at).1;
        self.release(slot)
    }

    /// A command for the queue.
    pub(super) fn post(&mut self, submission: Submission<B>, owner: Owner, wake: Option<Wake>) {
        self.slots[usize::from(submission.slot)] = Slot::Waiting { owner, wake };
        self.tasks += usize::from(owner == Owner::Task);
        self.queued.push_back(submission);
    }

    /// The slot is free: the next in line gets it, and has to be woken.
    fn release(&mut self, slot: u16) -> Option<Wake> {
        self.slots[usize::from(slot)] = Slot::Free;
        match self.room.pop_front() {
            Some((ticket, wake)) => {
                self.granted.push((ticket, slot));
                Some(wake)
            }
            None => {
                self.free.push(slot);
                None
            }
        }
    }

    /// A command is over: puts whom to wake into `wakes`, and gives back what nobody wants any
    /// more.
    pub(super) fn complete(&mut self, completion: Completion<B>, wakes: &mut Vec<Wake>) -> Option<Completion<B>> {
        // What was submitted with: a slot.
        let Ok(slot) = u16::try_from(completion.user) else { return Some(completion) };
        self.follow(slot, false);
        let Some(state) = self.slots.get_mut(usize::from(slot)) else { return Some(completion) };
        match std::mem::replace(state, Slot::Free) {
            Slot::Waiting { owner, wake } => {
                *state = Slot::Done(completion);
                self.tasks -= usize::from(owner == Owner::Task);
                wakes.extend(wake);
                None
            }
            Slot::Abandoned => {
                self.tasks -= 1;
                wakes.extend(self.release(slot));
                Some(completion)
            }
            // A queue pair completes each command once.
            other @ (Slot::Free | Slot::Done(_)) => {
                *state = other;
                Some(completion)
            }
        }
    }

    /// Looks after one's own command, and takes the lead if nobody has it and `lead` says so.
    /// `next` is whoever gets the slot, to be woken.
    pub(super) fn look(&mut self, slot: u16, lead: bool, next: &mut Option<Wake>) -> Look<B> {
        self.follow(slot, false);
        let state = &mut self.slots[usize::from(slot)];
        if let Slot::Done(_) = state {
            if let Slot::Done(completion) = std::mem::replace(state, Slot::Free) {
                *next = self.release(slot);
                return Look::Over(completion);
            }
        } else if let Slot::Waiting { wake, .. } = state {
            *wake = None;
        }
        if lead && !self.led {
            self.led = true;
            return Look::Lead;
        }
        Look::Led
    }

    /// Whom to wake when the command is over. A thread may be woken before, to lead.
    pub(super) fn sleep(&mut self, slot: u16, to_wake: Wake) {
        let thread = matches!(to_wake, Wake::Thread(_));
        if let Slot::Waiting { wake, .. } = &mut self.slots[usize::from(slot)] {
            *wake = Some(to_wake);
            self.follow(slot, thread);
        }
    }

    /// The future of the command is gone; gives whom to wake, and what is to be dropped.
    pub(super) fn abandon(&mut self, slot: u16) -> (Option<Wake>, Option<Completion<B>>) {
        let state = &mut self.slots[usize::from(slot)];
        match std::mem::replace(state, Slot::Abandoned) {
            Slot::Done(completion) => (self.release(slot), Some(completion)),
            _ => (None, None),
        }
    }

    fn follow(&mut self, slot: u16, follows: bool) {
        if let Some(word) = self.followers.get_mut(usize::from(slot / 64)) {
            let bit = 1 << (slot % 64);
            *word = if follows { *word | bit } else { *word & !bit };
        }
    }

    /// Nobody leads: a thread that could, to be woken.
    pub(super) fn successor(&mut self) -> Option<Wake> {
        let word = self.followers.iter().position(|&word| word != 0)?;
        let bit = self.followers[word].trailing_zeros();
        self.followers[word] &= self.followers[word] - 1;
        match &mut self.slots[word * 64 + usize::try_from(bit).unwrap_or(0)] {
            Slot::Waiting { wake, .. } => wake.take(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wake(count: &Arc<Count>) -> Wake {
        Wake::Task(Arc::clone(count).into())
    }

    fn completion(slot: u16) -> Completion<Vec<u8>> {
        Completion { user: u64::from(slot), result: Err(crate::Error::QueueFull), data: Data::None }
    }

    fn submission(slot: u16) -> Submission<Vec<u8>> {
        let command = Command { sqe: Sqe::new(ebof_nvme::opcode::nvm::FLUSH), binding: None };
        Submission { slot, command, data: Data::None }
    }

    #[test]
    fn room_goes_to_those_who_waited_in_their_order() {
        let mut state: SubmissionState<Vec<u8>> = SubmissionState::new(1);
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        let Room::Slot(slot) = state.enter(|| wake(&counts[0])) else { panic!("a free slot") };
        state.post(submission(slot), Owner::Task, None);
        let Room::Wait(second) = state.enter(|| wake(&counts[1])) else { panic!("no slot") };
        let Room::Wait(third) = state.enter(|| wake(&counts[2])) else { panic!("no slot") };
        assert!(state.redeem(second, || wake(&counts[1])).is_none());
        let (mut wakes, mut next) = (Vec::new(), None);
        assert!(state.complete(completion(slot), &mut wakes).is_none());
        assert!(matches!(state.look(slot, false, &mut next), Look::Over(_)));
        wakes.into_iter().chain(next).for_each(Wake::wake);
        assert_eq!((counts[1].0.load(Ordering::Relaxed), counts[2].0.load(Ordering::Relaxed)), (1, 0));
        // Whoever comes now does not overtake the one who was woken, nor the one who still waits.
        assert!(matches!(state.enter(|| wake(&counts[0])), Room::Wait(_)));
        assert!(state.redeem(third, || wake(&counts[2])).is_none());
        // The one who was woken does not want it any more: the next gets it.
        state.give_up(second).unwrap().wake();
        assert_eq!(counts[2].0.load(Ordering::Relaxed), 1);
        assert_eq!(state.redeem(third, || wake(&counts[2])), Some(slot));
    }

    #[test]
    fn what_was_abandoned_gives_its_data_and_its_place_back() {
        let mut state: SubmissionState<Vec<u8>> = SubmissionState::new(2);
        let none = || Wake::Task(Waker::noop().clone());
        let Room::Slot(slot) = state.enter(none) else { panic!("a free slot") };
        state.post(submission(slot), Owner::Task, None);
        assert_eq!(state.tasks, 1);
        assert!(state.abandon(slot).1.is_none());
        assert_eq!(state.tasks, 1, "somebody has to collect it");
        assert!(state.complete(completion(slot), &mut Vec::new()).is_some());
        assert_eq!((state.tasks, state.free.len()), (0, 2));
    }

    #[test]
    fn one_leads_and_a_follower_is_found_when_it_leaves() {
        let mut state: SubmissionState<Vec<u8>> = SubmissionState::new(70);
        let count: Arc<Count> = Arc::default();
        let slots: Vec<u16> = (0..70)
            .map(|_| match state.enter(|| wake(&count)) {
                Room::Slot(slot) => slot,
                Room::Wait(_) => panic!("there are 70"),
            })
            .collect();
        for &slot in &slots {
            state.post(submission(slot), Owner::Thread, None);
        }
        assert!(matches!(state.look(slots[0], true, &mut None), Look::Lead));
        assert!(matches!(state.look(slots[69], true, &mut None), Look::Led));
        state.sleep(slots[69], Wake::Thread(std::thread::current()));
        state.led = false;
        assert!(matches!(state.successor(), Some(Wake::Thread(_))));
        assert!(state.successor().is_none(), "it is awake");
    }
}
