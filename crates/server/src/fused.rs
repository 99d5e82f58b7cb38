//! Compare and Write as one: who may change the blocks of a pair while it is under way, on any
//! queue, reactor or host.
//!
//! Pairs take turns, device by device. Before a pair reads, every reactor says that it has no older
//! change of those bytes at the device; from then on changes of them wait until the pair has ended.
//! Nobody holds anything while it waits for data of a host: both halves have their data before the
//! pair lines up. Who only reads is never held up.
//!
//! ```text
//! both halves have their data -> lines up -> first in line: Barrier to all reactors -> all have answered -> Turn
//!   -> read, compare, write -> Hold dropped -> the writes that waited, then the next pair
//! ```
//!
//! Others see none of it but one relaxed load: a reactor that has taken the `Barrier` out of its
//! mailbox sees the count that was raised before (docs/adr/0019-compare-and-write.md).

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
use crate::mailbox::{Asker, Mailbox, Message};
use crate::reactor::Reactor;
use crate::turn::{Turn, reactor_of};

/// The pairs of a target, and who waits for them.
pub(crate) struct Pairs {
    /// Pairs in line, those under way included.
    count: AtomicUsize,
    lines: Mutex<Lines>,
    reactors: Vec<Mailbox>,
}

#[derive(Default)]
struct Lines {
    /// The number of whoever lines up next.
    next: u64,
    /// A line is there as long as a pair stands in it, and a pair is at its head.
    lines: HashMap<DeviceId, VecDeque<Waiter>>,
}

/// Who stands in line. Of a connection no more than its queue has entries.
struct Waiter {
    number: u64,
    asker: Asker,
    kind: Kind,
}

enum Kind {
    /// A pair; of one at the head, so many reactors have not answered yet.
    Pair { range: Range<u64>, awaited: usize },
    /// Something that changes what the pair at the head of the line was about.
    Change,
}

/// A place in line, and what comes with it, until it is dropped.
pub(crate) struct Hold {
    pairs: Arc<Pairs>,
    device: DeviceId,
    number: u64,
}

/// A pair wants to be told when nothing older changes these bytes any more.
#[derive(Clone, Debug)]
pub(crate) struct Barrier {
    device: DeviceId,
    range: Range<u64>,
    number: u64,
}

impl Pairs {
    pub(crate) fn new(reactors: Vec<Mailbox>) -> Self {
        Self { count: AtomicUsize::new(0), lines: Mutex::default(), reactors }
    }

    /// Whether any pair is in line. If not, nothing has to be held up.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pair lines up. Its command is sent [`Message::Turn`] when it may read.
    fn enter(self: &Arc<Self>, extent: &Extent, asker: Asker) -> Hold {
        let mut lines = self.lines();
        self.count.fetch_add(1, Relaxed);
        let kind = Kind::Pair { range: bytes_of(extent), awaited: 0 };
        let number = lines.push(extent.device, asker, kind);
        self.go_on(&mut lines, extent.device, number);
        Hold { pairs: Arc::clone(self), device: extent.device, number }
    }

    /// What a command must hold before it does its work; `None` if it may do so at once. It is sent
    /// [`Message::Turn`] when it may. A half of a pair never waits here: its pair lines up itself,
    /// and a half that stood in line as a change would let the pairs behind its own go first.
    fn enter_change(self: &Arc<Self>, work: &Work, asker: Asker) -> Option<Hold> {
        if work.fused().is_some() {
            return None;
        }
        let device = work.changed_device()?;
        let mut lines = self.lines();
        match lines.lines.get(&device)?.front() {
            Some(Waiter { kind: Kind::Pair { range, .. }, .. }) if work.changes(range) => {}
            _ => return None,
        }
        let number = lines.push(device, asker, Kind::Change);
        Some(Hold { pairs: Arc::clone(self), device, number })
    }

    /// A reactor answers a [`Barrier`].
    fn answer(&self, barrier: &Barrier) {
        let mut lines = self.lines();
        let head = lines.lines.get_mut(&barrier.device).and_then(VecDeque::front_mut);
        let Some(Waiter { number, asker, kind: Kind::Pair { awaited, .. } }) = head else { return };
        if *number != barrier.number {
            return;
        }
        *awaited = awaited.saturating_sub(1);
        if *awaited == 0 {
            let (reply, number) = (*asker, *number);
            self.post(reply, Message::Turn { reply, number });
        }
    }

    /// Lets those go on whose turn it is, if `newest` stands at the head of its line now or the
    /// head has gone.
    fn go_on(&self, lines: &mut Lines, device: DeviceId, newest: u64) {
        let Some(line) = lines.lines.get_mut(&device) else { return };
        // Changes first: their reactors find them in their mailboxes before the next pair's
        // barrier.
        while let Some(&Waiter { number, asker: reply, kind: Kind::Change }) = line.front() {
            line.pop_front();
            self.post(reply, Message::Turn { reply, number });
        }
        match line.front_mut() {
            None => {
                lines.lines.remove(&device);
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

    fn leave(&self, device: DeviceId, number: u64) {
        let mut lines = self.lines();
        let Some(line) = lines.lines.get_mut(&device) else { return };
        // Numbers rise along a line. A change that has had its turn is out of it already.
        let Ok(at) = line.binary_search_by_key(&number, |waiter| waiter.number) else { return };
        let left = line.remove(at);
        if matches!(left, Some(Waiter { kind: Kind::Pair { .. }, .. })) {
            self.count.fetch_sub(1, Relaxed);
        }
        if at == 0 {
            self.go_on(&mut lines, device, 0);
        }
    }

    fn post(&self, asker: Asker, message: Message) {
        if let Some(reactor) = self.reactors.get(reactor_of(asker.handle)) {
            reactor.post(message);
        }
    }
}

impl Lines {
    fn push(&mut self, device: DeviceId, asker: Asker, kind: Kind) -> u64 {
        self.next += 1;
        self.lines.entry(device).or_default().push_back(Waiter { number: self.next, asker, kind });
        self.next
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.pairs.leave(self.device, self.number);
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").field("device", &self.device).field("number", &self.number).finish_non_exhaustive()
    }
}

impl Reactor {
    /// Answers the barriers behind which nothing is left.
    pub(crate) fn settle_barriers(&mut self) {
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
                shared.pairs.answer(barrier);
            }
            is_left
        });
    }
}

impl Commands {
    /// Whether a command has to wait until a pair has ended before it changes what it is about; it
    /// then goes on by itself.
    #[cold]
    pub(crate) fn is_held_up(&mut self, slot: u32, turn: &Turn<'_>) -> bool {
        let asker = Asker { handle: self.handle, slot };
        let Some(command) = self.slots.get_mut(slot) else { return false };
        let Some(hold) = turn.shared.pairs.enter_change(&command.work, asker) else { return false };
        command.hold = Some(Box::new(hold));
        command.phase = Phase::Waiting;
        true
    }

    /// It is the turn of a command that stood in line.
    pub(crate) fn on_turn(&mut self, slot: u32, number: u64, link: &mut Link, turn: &mut Turn<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        // The slot may have a new command: this one was aborted.
        if command.hold.as_ref().is_none_or(|hold| hold.number != number) {
            return;
        }
        let Some(extent) = first_half(&command.work) else {
            command.hold = None;
            return self.go_to_device(slot, link, turn);
        };
        let operation = command.buffer.take().map(|buffer| {
            let len = extent.length_bytes as usize;
            Operation::Read { offset: extent.offset_bytes, len, data: buffer.into() }
        });
        self.send_to_device(slot, extent.device, operation, link, turn);
    }

    /// A half of a pair has its data. When the other one has, too, the pair lines up.
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
                let asker = Asker { handle: self.handle, slot };
                command.hold = Some(Box::new(turn.shared.pairs.enter(&extent, asker)));
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
        let hold = command.hold.take();
        let Some(second) = self.other_half(slot) else { return self.finish_half(slot, status, link, turn) };
        let Some(Command { work: Work::Transfer(transfer), buffer, hold: of_second, .. }) = self.slots.get_mut(second)
        else {
            return self.finish_half(slot, status, link, turn);
        };
        // Whoever is at the device holds: the other half may be given up meanwhile.
        *of_second = hold;
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
        self.parked.retain(|&parked| parked != slot);
        self.later.retain(|&later| later != slot);
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
    pub(crate) fn give_up_halves(&mut self, link: &mut Link, turn: &mut Turn<'_>) {
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

    const ASKER: Asker = Asker { handle: Handle(0), slot: 0 };

    fn extent(offset_bytes: u64) -> Extent {
        Extent { device: DeviceId(1), nsid: Nsid(1), offset_bytes, length_bytes: 4096, fua: false, deallocate: false }
    }

    fn write(offset_bytes: u64, fused: Option<FusedHalf>) -> Work {
        Work::Transfer(Transfer { kind: TransferKind::Write, extent: extent(offset_bytes), fused, checks: None })
    }

    #[test]
    fn changes_of_a_pairs_bytes_wait_and_halves_of_other_pairs_line_up_with_their_own() {
        let pairs = Arc::new(Pairs::new(Vec::new()));
        let pair = pairs.enter(&extent(0), ASKER);
        assert!(pairs.enter_change(&write(0, None), ASKER).is_some());
        assert!(pairs.enter_change(&write(4096, None), ASKER).is_none(), "other bytes");
        assert!(
            pairs.enter_change(&write(0, Some(FusedHalf::Second { first: Cid(1) })), ASKER).is_none(),
            "a later pair's half"
        );
        drop(pair);
        assert!(pairs.enter_change(&write(0, None), ASKER).is_none());
        assert!(!pairs.are_there());
    }
}
