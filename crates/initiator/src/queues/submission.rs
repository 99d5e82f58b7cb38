//! The submission state of a shared queue: queued commands, slots and their owners, waiters for a
//! slot, the leader. Every function is a few instructions under one lock; nothing here waits or
//! makes a system call.

use std::collections::VecDeque;
use std::task::Waker;
use std::thread::Thread;

use ebof_nvme::Sqe;

use crate::command::data::{Completion, Data};
use crate::shared::bindings::Binding;

/// How to wake a waiter.
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

/// A command, with the binding of the only namespace that it may reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedCommand {
    pub(super) sqe: Sqe,
    pub(super) binding: Option<Binding>,
}

/// A command that is to be submitted to the queue pair, with its slot in the submission state.
pub(super) struct Submission<B> {
    pub(super) slot: u16,
    pub(super) command: QueuedCommand,
    pub(super) data: Data<B>,
}

/// Who a slot belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A thread that blocks.
    Thread,
    /// A future, which needs another thread to poll the socket.
    Task,
}

/// `Free` -> `Waiting` -> `Complete` -> `Free`; or `Waiting` -> `Abandoned` -> `Free` when the
/// future is dropped.
#[derive(Debug)]
enum Slot<B> {
    Free,
    Waiting {
        owner: Owner,
        wake: Option<Wake>,
    },
    /// Its future was dropped; the data are dropped when the command completes.
    Abandoned,
    Complete(Completion<B>),
}

/// The state that all users of a shared queue change under its lock.
pub(super) struct SubmissionState<B> {
    slots: Vec<Slot<B>>,
    free: Vec<u16>,
    /// Commands for the next thread that locks the queue pair. At most one per slot.
    pub(super) queued: VecDeque<Submission<B>>,
    /// Waiters for a slot, in order of arrival.
    slot_waiters: VecDeque<(u64, Wake)>,
    /// Slots granted to waiters that have not taken them yet.
    granted: Vec<(u64, u16)>,
    next_ticket: u64,
    /// Whether there is a leader.
    pub(super) has_leader: bool,
    /// The leader sleeps, or is about to.
    pub(super) leader_sleeps: bool,
    /// Threads that sleep until their command is complete, one bit per slot.
    followers: Vec<u64>,
    /// Outstanding commands of futures, abandoned ones included.
    pub(super) tasks: usize,
    pub(super) stop: bool,
    /// An empty list to collect wakes in, kept for its allocation.
    pub(super) spare: Vec<Wake>,
}

/// Result of [`SubmissionState::acquire`].
pub(super) enum SlotOrTicket {
    Slot(u16),
    /// A place in the line of waiters, for [`SubmissionState::redeem`].
    Ticket(u64),
}

/// Result of [`SubmissionState::check`].
pub(super) enum Check<B> {
    Complete(Completion<B>),
    /// Outstanding, and another thread leads.
    Pending,
    /// Outstanding, and the caller is the leader from now on.
    Lead,
}

impl<B> SubmissionState<B> {
    pub(super) fn new(slots: u16) -> Self {
        let count = usize::from(slots);
        Self {
            slots: (0..count).map(|_| Slot::Free).collect(),
            free: (0..slots).rev().collect(),
            queued: VecDeque::with_capacity(count),
            slot_waiters: VecDeque::new(),
            granted: Vec::new(),
            next_ticket: 0,
            has_leader: false,
            leader_sleeps: false,
            followers: vec![0; count.div_ceil(64)],
            tasks: 0,
            stop: false,
            spare: Vec::with_capacity(count),
        }
    }

    /// A free slot, or a ticket: slots that become free go to waiters in order of arrival.
    pub(super) fn acquire(&mut self, wake: impl FnOnce() -> Wake) -> SlotOrTicket {
        if let Some(slot) = self.try_acquire() {
            return SlotOrTicket::Slot(slot);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.slot_waiters.push_back((ticket, wake()));
        SlotOrTicket::Ticket(ticket)
    }

    /// A free slot, unless others wait for one.
    pub(super) fn try_acquire(&mut self) -> Option<u16> {
        if self.slot_waiters.is_empty() { self.free.pop() } else { None }
    }

    /// The slot that was granted to `ticket`; `None` while there is none, and `wake` replaces what
    /// is woken when there is.
    pub(super) fn redeem(&mut self, ticket: u64, wake: impl FnOnce() -> Wake) -> Option<u16> {
        if let Some(at) = self.granted.iter().position(|(given, _)| *given == ticket) {
            return Some(self.granted.swap_remove(at).1);
        }
        if let Some((_, old)) = self.slot_waiters.iter_mut().find(|(given, _)| *given == ticket) {
            *old = wake();
        }
        None
    }

    /// Gives up a ticket, and the slot if it was granted. Returns the next waiter, to be woken.
    pub(super) fn cancel_ticket(&mut self, ticket: u64) -> Option<Wake> {
        self.slot_waiters.retain(|(given, _)| *given != ticket);
        let at = self.granted.iter().position(|(given, _)| *given == ticket)?;
        let slot = self.granted.swap_remove(at).1;
        self.release(slot)
    }

    /// Queues a command in its slot.
    pub(super) fn post(&mut self, submission: Submission<B>, owner: Owner, wake: Option<Wake>) {
        self.slots[usize::from(submission.slot)] = Slot::Waiting { owner, wake };
        self.tasks += usize::from(owner == Owner::Task);
        self.queued.push_back(submission);
    }

    /// Frees a slot. The next waiter gets it and is returned, to be woken.
    fn release(&mut self, slot: u16) -> Option<Wake> {
        self.slots[usize::from(slot)] = Slot::Free;
        match self.slot_waiters.pop_front() {
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

    /// A command completed: adds to `wakes`, and gives back the completion of an abandoned command.
    pub(super) fn complete(&mut self, completion: Completion<B>, wakes: &mut Vec<Wake>) -> Option<Completion<B>> {
        let slot = u16::try_from(completion.user).expect("the user value of a command is its slot");
        self.set_follower(slot, false);
        let state = &mut self.slots[usize::from(slot)];
        match std::mem::replace(state, Slot::Free) {
            Slot::Waiting { owner, wake } => {
                *state = Slot::Complete(completion);
                self.tasks -= usize::from(owner == Owner::Task);
                wakes.extend(wake);
                None
            }
            Slot::Abandoned => {
                self.tasks -= 1;
                wakes.extend(self.release(slot));
                Some(completion)
            }
            // Whatever the target sends: a slot is free again after its completion was taken.
            Slot::Free | Slot::Complete(_) => unreachable!("a queue pair completes each command once"),
        }
    }

    /// Takes the completion of a command, or becomes the leader if `lead` is set and there is none.
    /// `next` is the waiter who got the slot, to be woken.
    pub(super) fn check(&mut self, slot: u16, lead: bool, next: &mut Option<Wake>) -> Check<B> {
        self.set_follower(slot, false);
        let state = &mut self.slots[usize::from(slot)];
        if let Slot::Complete(_) = state {
            if let Slot::Complete(completion) = std::mem::replace(state, Slot::Free) {
                *next = self.release(slot);
                return Check::Complete(completion);
            }
        } else if let Slot::Waiting { wake, .. } = state {
            *wake = None;
        }
        if lead && !self.has_leader {
            self.has_leader = true;
            return Check::Lead;
        }
        Check::Pending
    }

    /// Sets what is woken when the command completes. A thread may be woken earlier, to lead.
    pub(super) fn sleep(&mut self, slot: u16, to_wake: Wake) {
        let thread = matches!(to_wake, Wake::Thread(_));
        if let Slot::Waiting { wake, .. } = &mut self.slots[usize::from(slot)] {
            *wake = Some(to_wake);
            self.set_follower(slot, thread);
        }
    }

    /// The future of the command was dropped. Returns what is to be woken, and dropped.
    pub(super) fn abandon(&mut self, slot: u16) -> (Option<Wake>, Option<Completion<B>>) {
        let state = &mut self.slots[usize::from(slot)];
        match std::mem::replace(state, Slot::Abandoned) {
            Slot::Complete(completion) => (self.release(slot), Some(completion)),
            Slot::Waiting { .. } => (None, None),
            // It has the slot until its completion was taken, or it is dropped, once.
            Slot::Free | Slot::Abandoned => unreachable!("the future of a command that is over"),
        }
    }

    fn set_follower(&mut self, slot: u16, follows: bool) {
        let word = &mut self.followers[usize::from(slot / 64)];
        let bit = 1 << (slot % 64);
        *word = if follows { *word | bit } else { *word & !bit };
    }

    /// A sleeping thread that can become the leader, to be woken.
    pub(super) fn next_leader(&mut self) -> Option<Wake> {
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
        let command = QueuedCommand { sqe: Sqe::new(ebof_nvme::opcode::nvm::FLUSH), binding: None };
        Submission { slot, command, data: Data::None }
    }

    #[test]
    fn slots_go_to_waiters_in_their_order() {
        let mut state: SubmissionState<Vec<u8>> = SubmissionState::new(1);
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        let SlotOrTicket::Slot(slot) = state.acquire(|| wake(&counts[0])) else { panic!("a free slot") };
        state.post(submission(slot), Owner::Task, None);
        let SlotOrTicket::Ticket(second) = state.acquire(|| wake(&counts[1])) else { panic!("no slot") };
        let SlotOrTicket::Ticket(third) = state.acquire(|| wake(&counts[2])) else { panic!("no slot") };
        assert!(state.redeem(second, || wake(&counts[1])).is_none());
        let mut wakes = Vec::new();
        let mut next = None;
        assert!(state.complete(completion(slot), &mut wakes).is_none());
        assert!(matches!(state.check(slot, false, &mut next), Check::Complete(_)));
        wakes.into_iter().chain(next).for_each(Wake::wake);
        assert_eq!((counts[1].0.load(Ordering::Relaxed), counts[2].0.load(Ordering::Relaxed)), (1, 0));
        // A newcomer overtakes neither the waiter that was woken nor the one that still waits.
        assert!(matches!(state.acquire(|| wake(&counts[0])), SlotOrTicket::Ticket(_)));
        assert!(state.redeem(third, || wake(&counts[2])).is_none());
        // The waiter that was woken gives up: the next one gets the slot.
        state.cancel_ticket(second).unwrap().wake();
        assert_eq!(counts[2].0.load(Ordering::Relaxed), 1);
        assert_eq!(state.redeem(third, || wake(&counts[2])), Some(slot));
    }

    #[test]
    fn an_abandoned_command_returns_its_data_and_slot() {
        let mut state: SubmissionState<Vec<u8>> = SubmissionState::new(2);
        let none = || Wake::Task(Waker::noop().clone());
        let SlotOrTicket::Slot(slot) = state.acquire(none) else { panic!("a free slot") };
        state.post(submission(slot), Owner::Task, None);
        assert_eq!(state.tasks, 1);
        assert!(state.abandon(slot).1.is_none());
        assert_eq!(state.tasks, 1, "it is still outstanding");
        assert!(state.complete(completion(slot), &mut Vec::new()).is_some());
        assert_eq!((state.tasks, state.free.len()), (0, 2));
    }

    #[test]
    fn one_thread_receives_and_another_takes_over_when_it_leaves() {
        let mut state: SubmissionState<Vec<u8>> = SubmissionState::new(70);
        let count: Arc<Count> = Arc::default();
        let slots: Vec<u16> = (0..70)
            .map(|_| match state.acquire(|| wake(&count)) {
                SlotOrTicket::Slot(slot) => slot,
                SlotOrTicket::Ticket(_) => panic!("there are 70"),
            })
            .collect();
        for &slot in &slots {
            state.post(submission(slot), Owner::Thread, None);
        }
        assert!(matches!(state.check(slots[0], true, &mut None), Check::Lead));
        assert!(matches!(state.check(slots[69], true, &mut None), Check::Pending));
        state.sleep(slots[69], Wake::Thread(std::thread::current()));
        state.has_leader = false;
        assert!(matches!(state.next_leader(), Some(Wake::Thread(_))));
        assert!(state.next_leader().is_none(), "it is awake");
    }
}
