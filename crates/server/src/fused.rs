//! Compare and Write as one: who may change the blocks of a pair while it is under way, on any
//! queue, reactor or host.
//!
//! Pairs of one device lock their bytes one after the other. Before a pair reads, every reactor
//! says that it has no older change of those bytes at the device; from then on changes of them wait
//! until the pair has ended. No lock is held while data of a host are awaited: both halves have
//! their data before the pair asks for it. Reads never wait.
//!
//! ```text
//! both halves have their data -> on the wait list -> first on it: Barrier to all reactors
//!   -> all have answered -> LockGranted -> read, compare, write -> RangeLock dropped
//!   -> the changes that waited, then the next pair
//! ```
//!
//! Other commands pay one relaxed load: a reactor that has taken the `Barrier` out of its mailbox
//! sees the count that was raised before (docs/adr/0019-compare-and-write.md).

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebof_backend::Operation;
use ebof_fabrics::{DeviceId, Extent, FusedHalf};
use ebof_nvme::{Cid, Status};

use crate::command::{Command, Phase, Work, bytes_of};
use crate::commands::Commands;
use crate::link::{Link, Stopped};
use crate::mailbox::{CommandRef, Mailbox, Message};
use crate::reactor::Reactor;
use crate::turn::{Turn, reactor_of};

/// The locks of a target for pairs, and who waits for them.
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
    /// A pair; of one at the head, so many reactors have not answered yet.
    Pair { range: Range<u64>, awaited: usize },
    /// A change of bytes that the pair at the head of the list was about.
    Change,
}

/// A place on a wait list, and the lock that comes with it, until it is dropped.
pub(crate) struct RangeLock {
    locks: Arc<FusedLocks>,
    device: DeviceId,
    number: u64,
}

/// A question to all reactors, answered when nothing older changes these bytes any more.
#[derive(Clone, Debug)]
pub(crate) struct Barrier {
    device: DeviceId,
    range: Range<u64>,
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

    /// Puts a pair on the wait list. Its first half is sent [`Message::LockGranted`] when it may
    /// read.
    fn lock_pair(self: &Arc<Self>, extent: &Extent, owner: CommandRef) -> RangeLock {
        let mut lists = self.lists();
        self.count.fetch_add(1, Relaxed);
        let kind = Kind::Pair { range: bytes_of(extent), awaited: 0 };
        let number = lists.push(extent.device, owner, kind);
        self.advance(&mut lists, extent.device, number);
        RangeLock { locks: Arc::clone(self), device: extent.device, number }
    }

    /// The lock that a command needs before it does its work; `None` if it may do so at once. It is
    /// sent [`Message::LockGranted`] when it may. A half of a pair never waits here: its pair asks
    /// for a lock itself, and a half on the list as a change would let the pairs behind its own go
    /// first.
    fn lock_change(self: &Arc<Self>, work: &Work, owner: CommandRef) -> Option<RangeLock> {
        if work.fused().is_some() {
            return None;
        }
        let device = work.changed_device()?;
        let mut lists = self.lists();
        match lists.by_device.get(&device)?.front() {
            Some(Waiter { kind: Kind::Pair { range, .. }, .. }) if work.changes(range) => {}
            _ => return None,
        }
        let number = lists.push(device, owner, Kind::Change);
        Some(RangeLock { locks: Arc::clone(self), device, number })
    }

    /// A reactor answers a [`Barrier`].
    fn answer(&self, barrier: &Barrier) {
        let mut lists = self.lists();
        let head = lists.by_device.get_mut(&barrier.device).and_then(VecDeque::front_mut);
        let Some(Waiter { number, owner, kind: Kind::Pair { awaited, .. } }) = head else { return };
        if *number != barrier.number {
            return;
        }
        *awaited = awaited.saturating_sub(1);
        if *awaited == 0 {
            let (reply, number) = (*owner, *number);
            self.post(reply, Message::LockGranted { reply, number });
        }
    }

    /// Grants locks to those that are next, if `newest` is at the head of its list now or the head
    /// has gone.
    fn advance(&self, lists: &mut WaitLists, device: DeviceId, newest: u64) {
        let Some(list) = lists.by_device.get_mut(&device) else { return };
        // Changes first: their reactors find them in their mailboxes before the next pair's
        // barrier.
        while let Some(&Waiter { number, owner: reply, kind: Kind::Change }) = list.front() {
            list.pop_front();
            self.post(reply, Message::LockGranted { reply, number });
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
        let Some(list) = lists.by_device.get_mut(&device) else { return };
        // Numbers rise along a list. A change that was let go is no longer on it.
        let Ok(at) = list.binary_search_by_key(&number, |waiter| waiter.number) else { return };
        let left = list.remove(at);
        if matches!(left, Some(Waiter { kind: Kind::Pair { .. }, .. })) {
            self.count.fetch_sub(1, Relaxed);
        }
        if at == 0 {
            self.advance(&mut lists, device, 0);
        }
    }

    fn post(&self, owner: CommandRef, message: Message) {
        if let Some(reactor) = self.reactors.get(reactor_of(owner.handle)) {
            reactor.post(message);
        }
    }
}

impl WaitLists {
    fn push(&mut self, device: DeviceId, owner: CommandRef, kind: Kind) -> u64 {
        self.next += 1;
        self.by_device.entry(device).or_default().push_back(Waiter { number: self.next, owner, kind });
        self.next
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

impl Reactor {
    /// Answers the barriers behind which nothing is left.
    pub(crate) fn answer_barriers(&mut self) {
        let connections = &self.connections;
        let shared = &self.shared;
        self.barriers.retain(|barrier| {
            let mut commands = connections.iter().flatten().flat_map(|connection| connection.commands.slots.iter());
            let is_left = commands.any(|(_, command)| {
                // What only a drive's thread changes is elsewhere meanwhile.
                matches!(command.phase, Phase::AtDevice | Phase::Elsewhere)
                    && command.work.changed_device() == Some(barrier.device)
                    && command.work.changes(&barrier.range)
            });
            if !is_left {
                shared.fused_locks.answer(barrier);
            }
            is_left
        });
    }
}

impl Commands {
    /// Whether a command has to wait until a pair has ended before it changes what it is about; it
    /// then goes on by itself.
    #[cold]
    pub(crate) fn must_wait_for_lock(&mut self, slot: u32, turn: &Turn<'_>) -> bool {
        let owner = CommandRef { handle: self.handle, slot };
        let Some(command) = self.slots.get_mut(slot) else { return false };
        let Some(lock) = turn.shared.fused_locks.lock_change(&command.work, owner) else { return false };
        command.lock = Some(Box::new(lock));
        command.phase = Phase::Waiting;
        true
    }

    /// A command that waited for a lock has it.
    pub(crate) fn on_lock_granted(&mut self, slot: u32, number: u64, link: &mut Link, turn: &mut Turn<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        // The slot may have a new command: this one was aborted.
        if command.lock.as_ref().is_none_or(|lock| lock.number != number) {
            return;
        }
        let Some(extent) = first_half(&command.work) else {
            command.lock = None;
            return self.go_to_device(slot, link, turn);
        };
        let operation = command.buffer.take().map(|buffer| {
            let len = extent.length_bytes as usize;
            Operation::Read { offset: extent.offset_bytes, len, data: buffer.into() }
        });
        self.send_to_device(slot, extent.device, operation, link, turn);
    }

    /// A half of a pair has its data. When the other one has, too, the pair asks for its lock.
    pub(crate) fn half_complete(&mut self, slot: u32, turn: &Turn<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        command.phase = Phase::Waiting;
        let Some(other) = self.other_half(slot) else { return };
        if self.slots.get(other).is_none_or(|other| other.phase != Phase::Waiting) {
            return;
        }
        for slot in [slot, other] {
            if let Some(command) = self.slots.get_mut(slot)
                && let Some(extent) = first_half(&command.work)
            {
                let owner = CommandRef { handle: self.handle, slot };
                command.lock = Some(Box::new(turn.shared.fused_locks.lock_pair(&extent, owner)));
            }
        }
    }

    /// The second half has come: the first one knows of it from now on.
    pub(crate) fn join_halves(&mut self, first: Cid, second: Cid) {
        if let Some(Command { work: Work::Transfer(transfer), .. }) =
            self.slot_of(first).and_then(|slot| self.slots.get_mut(slot))
            && transfer.is_first_half()
        {
            transfer.fused = Some(FusedHalf::First { second: Some(second) });
        }
    }

    /// The first half has no second.
    pub(crate) fn fail_unpaired(&mut self, first: Cid, status: Status, link: &mut Link, turn: &mut Turn<'_>) {
        if let Some(slot) = self.slot_of(first) {
            self.stop(slot, status, link, turn);
        }
    }

    /// A device has done its part of a pair, with `status`.
    pub(crate) fn half_done(&mut self, slot: u32, status: Status, link: &mut Link, turn: &mut Turn<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        let status = command.failed.filter(|_| status.is_success()).unwrap_or(status);
        if first_half(&command.work).is_none() || !status.is_success() {
            return self.finish_half(slot, status, link, turn);
        }
        let lock = command.lock.take();
        let Some(second) = self.other_half(slot) else { return self.finish_half(slot, status, link, turn) };
        let Some(Command { work: Work::Transfer(transfer), buffer, lock: of_second, .. }) = self.slots.get_mut(second)
        else {
            return self.finish_half(slot, status, link, turn);
        };
        // The half at the device has the lock: the other one may be given up meanwhile.
        *of_second = lock;
        let (extent, buffer) = (transfer.extent, buffer.take());
        let operation = buffer.map(|buffer| Operation::Write {
            offset: extent.offset_bytes,
            len: extent.length_bytes as usize,
            data: buffer.into(),
            fua: extent.fua,
        });
        self.finish(slot, Status::SUCCESS, link, turn);
        self.send_to_device(second, extent.device, operation, link, turn);
    }

    /// Completes a half; if it has failed, the other one as well.
    pub(crate) fn finish_half(&mut self, slot: u32, status: Status, link: &mut Link, turn: &mut Turn<'_>) {
        let other = self.other_half(slot).filter(|_| !status.is_success());
        self.finish(slot, status, link, turn);
        if let Some(other) = other {
            self.stop(other, Status::ABORTED_FAILED_FUSED, link, turn);
        }
    }

    /// The half that belongs to the half in `slot`, if it is still there.
    fn other_half(&self, slot: u32) -> Option<u32> {
        let command = self.slots.get(slot)?;
        let other = self.slot_of(partner(&command.work)?)?;
        // Identifiers are used again: both have to know of each other.
        (partner(&self.slots.get(other)?.work)? == command.cid).then_some(other)
    }

    /// Ends a command with `status`. Where data of the host are on their way, the response follows
    /// them; what is at a device ends when that is done with it.
    pub(crate) fn stop(&mut self, slot: u32, status: Status, link: &mut Link, turn: &mut Turn<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        if command.phase == Phase::AtDevice {
            command.failed = Some(status);
            turn.io.cancel(turn.tag(self.handle, slot));
            return;
        }
        if command.phase == Phase::Receiving {
            match link.stop_fetching(command.cid, slot) {
                Stopped::Arriving => return command.failed = Some(status),
                Stopped::Ended(buffer) => command.buffer = buffer,
            }
        }
        self.awaiting_buffer.retain(|&waiting| waiting != slot);
        self.pending_copies.retain(|&pending| pending != slot);
        self.end(slot, status, link, turn);
    }

    /// Completes a command that nothing waits for; of a half of a pair, the other one as well.
    pub(crate) fn end(&mut self, slot: u32, status: Status, link: &mut Link, turn: &mut Turn<'_>) {
        if self.slots.get(slot).is_some_and(|command| command.work.fused().is_some()) {
            self.finish_half(slot, status, link, turn);
        } else {
            self.finish(slot, status, link, turn);
        }
    }

    fn slot_of(&self, cid: Cid) -> Option<u32> {
        self.slots.iter().find(|(_, command)| command.cid == cid).map(|(slot, _)| slot)
    }

    /// The target shuts down: no second half will come any more.
    pub(crate) fn fail_lone_halves(&mut self, link: &mut Link, turn: &mut Turn<'_>) {
        let lone =
            self.slots.iter().find(|(_, command)| command.work.fused() == Some(FusedHalf::First { second: None }));
        if let Some((slot, _)) = lone.filter(|_| link.is_draining()) {
            self.stop(slot, Status::ABORTED_MISSING_FUSED, link, turn);
        }
    }
}

/// The bytes that a first half compares; `None` for everything else.
fn first_half(work: &Work) -> Option<Extent> {
    match work {
        Work::Transfer(transfer) if transfer.is_first_half() => Some(transfer.extent),
        _ => None,
    }
}

/// The identifier of the other half of a pair, as far as that has come.
fn partner(work: &Work) -> Option<Cid> {
    match work.fused()? {
        FusedHalf::First { second } => second,
        FusedHalf::Second { first } => Some(first),
    }
}

#[cfg(test)]
mod tests {
    use ebof_fabrics::{Handle, Transfer, TransferKind};
    use ebof_nvme::Nsid;

    use super::*;

    const COMMAND: CommandRef = CommandRef { handle: Handle(0), slot: 0 };

    fn extent(offset_bytes: u64) -> Extent {
        Extent { device: DeviceId(1), nsid: Nsid(1), offset_bytes, length_bytes: 4096, fua: false, deallocate: false }
    }

    fn write(offset_bytes: u64, fused: Option<FusedHalf>) -> Work {
        Work::Transfer(Transfer { kind: TransferKind::Write, extent: extent(offset_bytes), fused, checks: None })
    }

    #[test]
    fn changes_of_a_pairs_bytes_wait_and_halves_of_other_pairs_line_up_with_their_own() {
        let pairs = Arc::new(FusedLocks::new(Vec::new()));
        let pair = pairs.lock_pair(&extent(0), COMMAND);
        assert!(pairs.lock_change(&write(0, None), COMMAND).is_some());
        assert!(pairs.lock_change(&write(4096, None), COMMAND).is_none(), "other bytes");
        assert!(
            pairs.lock_change(&write(0, Some(FusedHalf::Second { first: Cid(1) })), COMMAND).is_none(),
            "a later pair's half"
        );
        drop(pair);
        assert!(pairs.lock_change(&write(0, None), COMMAND).is_none());
        assert!(!pairs.is_any_waiting());
    }
}
