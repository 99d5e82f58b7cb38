//! What the threads that share one queue tell each other: whose commands are where, who waits for
//! room, who looks at the socket. Every function is a few instructions under one lock; nothing here
//! waits or makes a system call.

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

/// A command on its way to the queue pair, with the place it has here.
pub(super) struct Letter<B> {
    pub(super) place: u16,
    pub(super) command: Command,
    pub(super) data: Data<B>,
}

/// Who a place belongs to.
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
enum Place<B> {
    Free,
    Waiting {
        owner: Owner,
        wake: Option<Wake>,
    },
    /// Its future is gone: the data are dropped when the command is over.
    Abandoned,
    Done(Completion<B>),
}

/// See the module.
pub(super) struct Desk<B> {
    places: Vec<Place<B>>,
    free: Vec<u16>,
    /// Commands that whoever holds the queue pair takes next. As long as there are places, at most.
    pub(super) letters: VecDeque<Letter<B>>,
    /// Those who wait for a place, in their order.
    room: VecDeque<(u64, Wake)>,
    /// Places given to those who waited, and not yet taken by them.
    granted: Vec<(u64, u16)>,
    next_ticket: u64,
    /// Whether somebody looks at the socket for all.
    pub(super) led: bool,
    /// The one who leads sleeps, or is about to.
    pub(super) leader_sleeps: bool,
    /// Threads that sleep until their command is over, one bit by place.
    followers: Vec<u64>,
    /// Commands of futures, dropped ones included, that are not over.
    pub(super) tasks: usize,
    pub(super) stop: bool,
    /// An empty list to gather wakes in, kept for its memory.
    pub(super) spare: Vec<Wake>,
}

/// What asking for a place gave.
pub(super) enum Room {
    Place(u16),
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

impl<B> Desk<B> {
    pub(super) fn new(places: u16) -> Self {
        let count = usize::from(places);
        Self {
            places: (0..count).map(|_| Place::Free).collect(),
            free: (0..places).rev().collect(),
            letters: VecDeque::with_capacity(count),
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

    /// A place, or a ticket: whoever came first gets the first that is free.
    pub(super) fn enter(&mut self, wake: impl FnOnce() -> Wake) -> Room {
        if let Some(place) = self.try_enter() {
            return Room::Place(place);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.room.push_back((ticket, wake()));
        Room::Wait(ticket)
    }

    /// A place, if one is free and nobody waits for it: what becomes free while somebody waits is
    /// theirs.
    pub(super) fn try_enter(&mut self) -> Option<u16> {
        if self.room.is_empty() { self.free.pop() } else { None }
    }

    /// The place for a ticket, if there is one by now; otherwise `wake` is whom to wake.
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
        let place = self.granted.swap_remove(at).1;
        self.release(place)
    }

    /// A command for the queue.
    pub(super) fn post(&mut self, letter: Letter<B>, owner: Owner, wake: Option<Wake>) {
        self.places[usize::from(letter.place)] = Place::Waiting { owner, wake };
        self.tasks += usize::from(owner == Owner::Task);
        self.letters.push_back(letter);
    }

    /// The place is free: the next in line gets it, and has to be woken.
    fn release(&mut self, place: u16) -> Option<Wake> {
        self.places[usize::from(place)] = Place::Free;
        match self.room.pop_front() {
            Some((ticket, wake)) => {
                self.granted.push((ticket, place));
                Some(wake)
            }
            None => {
                self.free.push(place);
                None
            }
        }
    }

    /// A command is over: puts whom to wake into `wakes`, and gives back what nobody wants any
    /// more.
    pub(super) fn complete(&mut self, completion: Completion<B>, wakes: &mut Vec<Wake>) -> Option<Completion<B>> {
        // What was submitted with: a place.
        let Ok(place) = u16::try_from(completion.user) else { return Some(completion) };
        self.follow(place, false);
        let Some(state) = self.places.get_mut(usize::from(place)) else { return Some(completion) };
        match std::mem::replace(state, Place::Free) {
            Place::Waiting { owner, wake } => {
                *state = Place::Done(completion);
                self.tasks -= usize::from(owner == Owner::Task);
                wakes.extend(wake);
                None
            }
            Place::Abandoned => {
                self.tasks -= 1;
                wakes.extend(self.release(place));
                Some(completion)
            }
            // A queue pair completes each command once.
            other @ (Place::Free | Place::Done(_)) => {
                *state = other;
                Some(completion)
            }
        }
    }

    /// Looks after one's own command, and takes the lead if nobody has it and `lead` says so.
    /// `next` is whoever gets the place, to be woken.
    pub(super) fn look(&mut self, place: u16, lead: bool, next: &mut Option<Wake>) -> Look<B> {
        self.follow(place, false);
        let state = &mut self.places[usize::from(place)];
        if let Place::Done(_) = state {
            if let Place::Done(completion) = std::mem::replace(state, Place::Free) {
                *next = self.release(place);
                return Look::Over(completion);
            }
        } else if let Place::Waiting { wake, .. } = state {
            *wake = None;
        }
        if lead && !self.led {
            self.led = true;
            return Look::Lead;
        }
        Look::Led
    }

    /// Whom to wake when the command is over. A thread may be woken before, to lead.
    pub(super) fn sleep(&mut self, place: u16, to_wake: Wake) {
        let thread = matches!(to_wake, Wake::Thread(_));
        if let Place::Waiting { wake, .. } = &mut self.places[usize::from(place)] {
            *wake = Some(to_wake);
            self.follow(place, thread);
        }
    }

    /// The future of the command is gone; gives whom to wake, and what is to be dropped.
    pub(super) fn abandon(&mut self, place: u16) -> (Option<Wake>, Option<Completion<B>>) {
        let state = &mut self.places[usize::from(place)];
        match std::mem::replace(state, Place::Abandoned) {
            Place::Done(completion) => (self.release(place), Some(completion)),
            _ => (None, None),
        }
    }

    fn follow(&mut self, place: u16, follows: bool) {
        if let Some(word) = self.followers.get_mut(usize::from(place / 64)) {
            let bit = 1 << (place % 64);
            *word = if follows { *word | bit } else { *word & !bit };
        }
    }

    /// Nobody leads: a thread that could, to be woken.
    pub(super) fn successor(&mut self) -> Option<Wake> {
        let word = self.followers.iter().position(|&word| word != 0)?;
        let bit = self.followers[word].trailing_zeros();
        self.followers[word] &= self.followers[word] - 1;
        match &mut self.places[word * 64 + usize::try_from(bit).unwrap_or(0)] {
            Place::Waiting { wake, .. } => wake.take(),
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

    fn completion(place: u16) -> Completion<Vec<u8>> {
        Completion { user: u64::from(place), result: Err(crate::Error::QueueFull), data: Data::None }
    }

    fn letter(place: u16) -> Letter<Vec<u8>> {
        let command = Command { sqe: Sqe::new(ebof_nvme::opcode::nvm::FLUSH), binding: None };
        Letter { place, command, data: Data::None }
    }

    #[test]
    fn room_goes_to_those_who_waited_in_their_order() {
        let mut desk: Desk<Vec<u8>> = Desk::new(1);
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        let Room::Place(place) = desk.enter(|| wake(&counts[0])) else { panic!("a free place") };
        desk.post(letter(place), Owner::Task, None);
        let Room::Wait(second) = desk.enter(|| wake(&counts[1])) else { panic!("no place") };
        let Room::Wait(third) = desk.enter(|| wake(&counts[2])) else { panic!("no place") };
        assert!(desk.redeem(second, || wake(&counts[1])).is_none());
        let (mut wakes, mut next) = (Vec::new(), None);
        assert!(desk.complete(completion(place), &mut wakes).is_none());
        assert!(matches!(desk.look(place, false, &mut next), Look::Over(_)));
        wakes.into_iter().chain(next).for_each(Wake::wake);
        assert_eq!((counts[1].0.load(Ordering::Relaxed), counts[2].0.load(Ordering::Relaxed)), (1, 0));
        // Whoever comes now does not overtake the one who was woken, nor the one who still waits.
        assert!(matches!(desk.enter(|| wake(&counts[0])), Room::Wait(_)));
        assert!(desk.redeem(third, || wake(&counts[2])).is_none());
        // The one who was woken does not want it any more: the next gets it.
        desk.give_up(second).unwrap().wake();
        assert_eq!(counts[2].0.load(Ordering::Relaxed), 1);
        assert_eq!(desk.redeem(third, || wake(&counts[2])), Some(place));
    }

    #[test]
    fn what_was_abandoned_gives_its_data_and_its_place_back() {
        let mut desk: Desk<Vec<u8>> = Desk::new(2);
        let none = || Wake::Task(Waker::noop().clone());
        let Room::Place(place) = desk.enter(none) else { panic!("a free place") };
        desk.post(letter(place), Owner::Task, None);
        assert_eq!(desk.tasks, 1);
        assert!(desk.abandon(place).1.is_none());
        assert_eq!(desk.tasks, 1, "somebody has to collect it");
        assert!(desk.complete(completion(place), &mut Vec::new()).is_some());
        assert_eq!((desk.tasks, desk.free.len()), (0, 2));
    }

    #[test]
    fn one_leads_and_a_follower_is_found_when_it_leaves() {
        let mut desk: Desk<Vec<u8>> = Desk::new(70);
        let count: Arc<Count> = Arc::default();
        let places: Vec<u16> = (0..70)
            .map(|_| match desk.enter(|| wake(&count)) {
                Room::Place(place) => place,
                Room::Wait(_) => panic!("there are 70"),
            })
            .collect();
        for &place in &places {
            desk.post(letter(place), Owner::Thread, None);
        }
        assert!(matches!(desk.look(places[0], true, &mut None), Look::Lead));
        assert!(matches!(desk.look(places[69], true, &mut None), Look::Led));
        desk.sleep(places[69], Wake::Thread(std::thread::current()));
        desk.led = false;
        assert!(matches!(desk.successor(), Some(Wake::Thread(_))));
        assert!(desk.successor().is_none(), "it is awake");
    }
}
