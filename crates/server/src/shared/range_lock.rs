//! The locks of byte ranges for Compare and Write: their holders and waiters. What a pair
//! is, and why it needs the lock, is in `commands/fused.rs`.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebof_fabrics::DeviceId;

use crate::shared::mailbox::{Barrier, CommandRef, CommandReply, Mailbox, Message, mailbox_of};

/// The locks of a target for fused pairs, and their waiters.
pub(crate) struct FusedLocks {
    /// Pairs on the wait lists, those under way included.
    count: AtomicUsize,
    wait_lists: Mutex<WaitLists>,
    reactors: Vec<Mailbox>,
}

#[derive(Default)]
struct WaitLists {
    /// The number of the last waiter.
    next: u64,
    /// A list is there as long as a pair is on it, and a pair is at its head.
    by_device: HashMap<DeviceId, VecDeque<Waiter>>,
}

/// A command that waits, or has the lock. Of a connection no more than its queue has entries.
struct Waiter {
    number: u64,
    owner: CommandRef,
    kind: Kind,
}

enum Kind {
    /// A pair. At the head of the list: how many reactors have not answered yet.
    Pair { range: Range<u64>, awaited: usize },
    /// A change of bytes that the pair at the head of the list was about.
    Change,
}

/// An entry of a wait list, and then the lock, until it is dropped.
pub(crate) struct RangeLock {
    locks: Arc<FusedLocks>,
    device: DeviceId,
    number: u64,
}

impl FusedLocks {
    pub(crate) fn new(reactors: Vec<Mailbox>) -> Self {
        Self { count: AtomicUsize::new(0), wait_lists: Mutex::default(), reactors }
    }

    /// Whether any pair waits or is under way. If not, nothing has to wait.
    #[inline]
    pub(crate) fn is_any_waiting(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    fn lists(&self) -> MutexGuard<'_, WaitLists> {
        self.wait_lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a pair on the wait list. Its first half is sent [`CommandReply::LockGranted`] when it
    /// may read.
    pub(crate) fn lock_pair(self: &Arc<Self>, device: DeviceId, range: Range<u64>, owner: CommandRef) -> RangeLock {
        let mut lists = self.lists();
        self.count.fetch_add(1, Relaxed);
        let number = lists.push(device, owner, Kind::Pair { range, awaited: 0 });
        self.advance(&mut lists, device, number);
        RangeLock { locks: Arc::clone(self), device, number }
    }

    /// The lock that a change of `device` needs before it is made; `None` if it may be made at
    /// once. `changes` says whether it is about bytes of a range. Its command is sent
    /// [`CommandReply::LockGranted`] when it may go on.
    pub(crate) fn lock_change(
        self: &Arc<Self>,
        device: DeviceId,
        changes: impl FnOnce(&Range<u64>) -> bool,
        owner: CommandRef,
    ) -> Option<RangeLock> {
        let mut lists = self.lists();
        match lists.by_device.get(&device)?.front() {
            Some(Waiter { kind: Kind::Pair { range, .. }, .. }) if changes(range) => {}
            _ => return None,
        }
        let number = lists.push(device, owner, Kind::Change);
        Some(RangeLock { locks: Arc::clone(self), device, number })
    }

    /// A reactor answers a [`Barrier`].
    pub(crate) fn answer(&self, barrier: &Barrier) {
        let mut lists = self.lists();
        let head = lists.by_device.get_mut(&barrier.device).and_then(VecDeque::front_mut);
        // The pair may have ended before all have answered, by an Abort or with its connection.
        let Some(Waiter { number, owner, kind: Kind::Pair { awaited, .. } }) = head else { return };
        if *number != barrier.number {
            return;
        }
        // A pair is asked for once, when it comes to the head of its list.
        *awaited = awaited.checked_sub(1).expect("each reactor answers once");
        if *awaited == 0 {
            let reply = *owner;
            let number = *number;
            self.post(reply, Message::Reply { to: reply, reply: CommandReply::LockGranted(number) });
        }
    }

    /// Grants locks to those that are next, if `newest` is at the head of its list now or the head
    /// has gone.
    fn advance(&self, lists: &mut WaitLists, device: DeviceId, newest: u64) {
        let list = lists.by_device.get_mut(&device).expect("it is removed here only, when it is empty");
        // Changes first: their reactors find them in their mailboxes before the next pair's
        // barrier.
        while let Some(&Waiter { number, owner: reply, kind: Kind::Change }) = list.front() {
            list.pop_front();
            self.post(reply, Message::Reply { to: reply, reply: CommandReply::LockGranted(number) });
        }
        match list.front_mut() {
            None => {
                lists.by_device.remove(&device);
            }
            Some(Waiter { number, kind: Kind::Pair { range, awaited }, .. }) if *number >= newest => {
                let barrier = Barrier { device, range: range.clone(), number: *number };
                *awaited = self.reactors.len();
                for reactor in &self.reactors {
                    reactor.post(Message::Barrier(barrier.clone()));
                }
            }
            Some(_) => {}
        }
    }

    fn release(&self, device: DeviceId, number: u64) {
        let mut lists = self.lists();
        // A change that was let go is no longer on it, and its list may be gone.
        let Some(list) = lists.by_device.get_mut(&device) else { return };
        // Numbers rise along a list.
        let Ok(at) = list.binary_search_by_key(&number, |waiter| waiter.number) else { return };
        let left = list.remove(at).expect("its place was found");
        if matches!(left.kind, Kind::Pair { .. }) {
            let before = self.count.fetch_sub(1, Relaxed);
            assert!(before > 0, "a pair counts from the call that makes its lock until the lock is dropped");
        } else {
            assert!(at > 0, "a pair is at the head: changes at it are let go");
        }
        if at == 0 {
            self.advance(&mut lists, device, 0);
        }
    }

    fn post(&self, owner: CommandRef, message: Message) {
        mailbox_of(&self.reactors, owner.handle).post(message);
    }
}

impl WaitLists {
    fn push(&mut self, device: DeviceId, owner: CommandRef, kind: Kind) -> u64 {
        self.next += 1;
        self.by_device.entry(device).or_default().push_back(Waiter { number: self.next, owner, kind });
        self.next
    }
}

impl RangeLock {
    /// Its number, as in [`CommandReply::LockGranted`].
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        self.locks.release(self.device, self.number);
    }
}

impl std::fmt::Debug for RangeLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangeLock").field("device", &self.device).field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::handle::handle;

    const DEVICE: DeviceId = DeviceId(1);

    fn command(slot: u32) -> CommandRef {
        CommandRef { handle: handle(0, 1, 0), slot }
    }

    /// What a reactor is asked, and the locks that its commands are given.
    fn take(reactor: &Mailbox) -> (Vec<Barrier>, Vec<u64>) {
        let (mut all, mut barriers, mut granted) = (Vec::new(), Vec::new(), Vec::new());
        reactor.take(&mut all);
        for message in all {
            match message {
                Message::Barrier(barrier) => barriers.push(barrier),
                Message::Reply { reply: CommandReply::LockGranted(number), .. } => granted.push(number),
                _ => panic!("locks post nothing else"),
            }
        }
        (barriers, granted)
    }

    #[test]
    fn an_answer_to_a_pair_that_has_ended_grants_nothing_to_the_next_one() {
        let reactors = [Mailbox::without_bell(), Mailbox::without_bell()];
        let locks = Arc::new(FusedLocks::new(reactors.to_vec()));
        let first = locks.lock_pair(DEVICE, 0..512, command(1));
        let second = locks.lock_pair(DEVICE, 0..512, command(2));
        let [(old, _), _] = reactors.each_ref().map(take);
        assert_eq!(old.len(), 1, "one pair after the other");
        locks.answer(&old[0]);
        drop(first);
        let [(new, granted), _] = reactors.each_ref().map(take);
        assert_eq!((new.len(), granted.len()), (1, 0));
        locks.answer(&old[0]);
        locks.answer(&new[0]);
        assert!(take(&reactors[0]).1.is_empty(), "one of them has not answered for this pair");
        locks.answer(&new[0]);
        assert_eq!(take(&reactors[0]).1, [second.number()]);
        drop(second);
        locks.answer(&new[0]);
        assert!(!locks.is_any_waiting() && locks.lists().by_device.is_empty());
    }

    #[test]
    fn a_change_that_was_let_go_ends_when_its_list_is_gone_or_another_pairs() {
        let reactor = Mailbox::without_bell();
        let locks = Arc::new(FusedLocks::new(vec![reactor.clone()]));
        for has_next in [false, true] {
            let pair = locks.lock_pair(DEVICE, 0..512, command(1));
            let change = locks.lock_change(DEVICE, |_| true, command(2)).expect("it waits for the pair");
            drop(pair);
            assert_eq!(take(&reactor).1, [change.number()]);
            let next = has_next.then(|| locks.lock_pair(DEVICE, 0..512, command(3)));
            drop(change);
            assert_eq!(locks.is_any_waiting(), has_next);
            drop(next);
        }
        assert!(!locks.is_any_waiting() && locks.lists().by_device.is_empty());
    }
}
