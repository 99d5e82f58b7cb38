//! Compare and Write as one: keeps commands of any queue, reactor or host from changing the blocks
//! of a pair while it is under way.
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
#![deny(clippy::wildcard_enum_match_arm)]

use std::sync::Arc;

use ebof_fabrics::{Extent, FusedHalf, TransferKind};
use ebof_nvme::{Cid, Status};

use crate::commands::Commands;
use crate::commands::command::{Command, Phase, Work, bytes_of};
use crate::drives::device::operation;
use crate::link::{Link, Stopped};
use crate::shared::mailbox::CommandRef;
use crate::shared::range_lock::{FusedLocks, RangeLock};
use crate::shared::reactor_context::ReactorContext;

impl Commands {
    /// Whether a command has to wait until a pair has ended before it changes what it is about; it
    /// then goes on by itself.
    #[cold]
    pub(crate) fn must_wait_for_lock(&mut self, slot: u32, context: &ReactorContext<'_>) -> bool {
        let owner = CommandRef { handle: self.handle, slot };
        let Some(command) = self.slots.get_mut(slot) else { return false };
        let lock = lock_change(&context.shared.fused_locks, &command.work, owner);
        let Some(lock) = lock else { return false };
        command.lock = Some(Box::new(lock));
        command.phase = Phase::Waiting;
        true
    }

    /// A command that waited for a lock has it.
    pub(crate) fn on_lock_granted(
        &mut self,
        slot: u32,
        number: u64,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        // The slot may have a new command: this one was aborted.
        if command.lock.as_ref().is_none_or(|lock| lock.number() != number) {
            return;
        }
        let Some(extent) = first_half(&command.work) else {
            command.lock = None;
            if self.ask_again(slot, link, context) {
                return;
            }
            return self.go_to_device(slot, link, context);
        };
        let operation = operation(TransferKind::Compare, &extent, command.take_memory());
        self.send_to_device(slot, extent.device, operation, link, context);
    }

    /// A half of a pair has its data. When the other one has, too, the pair asks for its lock.
    pub(crate) fn half_complete(&mut self, slot: u32, context: &ReactorContext<'_>) {
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
                command.lock =
                    Some(Box::new(context.shared.fused_locks.lock_pair(extent.device, bytes_of(&extent), owner)));
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
    pub(crate) fn fail_unpaired(
        &mut self,
        first: Cid,
        status: Status,
        link: &mut Link,
        context: &mut ReactorContext<'_>,
    ) {
        if let Some(slot) = self.slot_of(first) {
            self.stop(slot, status, link, context);
        }
    }

    /// A device has done its part of a pair, with `status`.
    pub(crate) fn half_done(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        let status = command.failed.filter(|_| status.is_success()).unwrap_or(status);
        if first_half(&command.work).is_none() || !status.is_success() {
            return self.finish_half(slot, status, link, context);
        }
        let lock = command.lock.take();
        let Some(second) = self.other_half(slot) else { return self.finish_half(slot, status, link, context) };
        let Some(Command { work: Work::Transfer(transfer), buffer, lock: of_second, .. }) = self.slots.get_mut(second)
        else {
            return self.finish_half(slot, status, link, context);
        };
        // The half at the device has the lock: the other one may be given up meanwhile.
        *of_second = lock;
        let extent = transfer.extent;
        let operation = operation(transfer.kind, &extent, buffer.take().map(Into::into));
        self.finish(slot, Status::SUCCESS, link, context);
        self.send_to_device(second, extent.device, operation, link, context);
    }

    /// Completes a half; if it has failed, the other one as well.
    pub(crate) fn finish_half(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let other = self.other_half(slot).filter(|_| !status.is_success());
        self.finish(slot, status, link, context);
        if let Some(other) = other {
            self.stop(other, Status::ABORTED_FAILED_FUSED, link, context);
        }
    }

    /// Whether the second half of a pair in `slot` needs nothing more from the host: the first one
    /// waits for the lock, or is at the device.
    pub(crate) fn is_pair_under_way(&self, slot: u32) -> bool {
        let first = self.other_half(slot).and_then(|first| self.slots.get(first));
        first.is_some_and(|first| first.lock.is_some())
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
    pub(crate) fn stop(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        let Some(command) = self.slots.get_mut(slot) else { return };
        if command.phase == Phase::AtDevice {
            command.failed = Some(status);
            context.io.cancel(context.tag(self.handle, slot));
            return;
        }
        if command.phase == Phase::Receiving {
            match link.stop_fetching(command.cid, slot) {
                Stopped::Arriving => return command.failed = Some(status),
                Stopped::Ended(buffer) => command.buffer = buffer,
            }
        }
        if let Some(buffer) = self.withdraw_held(slot)
            && let Some(command) = self.slots.get_mut(slot)
        {
            command.buffer = Some(buffer);
        }
        self.awaiting_buffer.retain(|&waiting| waiting != slot);
        self.pending_copies.retain(|&pending| pending != slot);
        self.end(slot, status, link, context);
    }

    /// Completes a command that nothing waits for; of a half of a pair, the other one as well.
    pub(crate) fn end(&mut self, slot: u32, status: Status, link: &mut Link, context: &mut ReactorContext<'_>) {
        if self.slots.get(slot).is_some_and(|command| command.work.fused().is_some()) {
            self.finish_half(slot, status, link, context);
        } else {
            self.finish(slot, status, link, context);
        }
    }

    fn slot_of(&self, cid: Cid) -> Option<u32> {
        self.slots.iter().find(|(_, command)| command.cid == cid).map(|(slot, _)| slot)
    }

    /// The target shuts down: no second half will come any more.
    pub(crate) fn fail_lone_halves(&mut self, link: &mut Link, context: &mut ReactorContext<'_>) {
        let lone =
            self.slots.iter().find(|(_, command)| command.work.fused() == Some(FusedHalf::First { second: None }));
        if let Some((slot, _)) = lone.filter(|_| link.is_draining()) {
            self.stop(slot, Status::ABORTED_MISSING_FUSED, link, context);
        }
    }
}

/// The lock that a command needs before it does its work; `None` if it may do so at once. A half of
/// a pair never waits here: its pair asks for a lock itself, and a half on the list as a change
/// would let the pairs behind its own go first.
fn lock_change(locks: &Arc<FusedLocks>, work: &Work, owner: CommandRef) -> Option<RangeLock> {
    if work.fused().is_some() {
        return None;
    }
    locks.lock_change(work.changed_device()?, |range| work.changes(range), owner)
}

/// The bytes that a first half compares; `None` for everything else.
fn first_half(work: &Work) -> Option<Extent> {
    if let Work::Transfer(transfer) = work
        && transfer.is_first_half()
    {
        return Some(transfer.extent);
    }
    None
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
    use ebof_fabrics::{DeviceId, Handle, Transfer};
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
    fn changes_of_a_pairs_bytes_wait_and_other_pairs_wait_in_order() {
        let locks = Arc::new(FusedLocks::new(Vec::new()));
        let pair = locks.lock_pair(DeviceId(1), bytes_of(&extent(0)), COMMAND);
        assert!(lock_change(&locks, &write(0, None), COMMAND).is_some());
        assert!(lock_change(&locks, &write(4096, None), COMMAND).is_none(), "other bytes");
        assert!(
            lock_change(&locks, &write(0, Some(FusedHalf::Second { first: Cid(1) })), COMMAND).is_none(),
            "a later pair's half"
        );
        drop(pair);
        assert!(lock_change(&locks, &write(0, None), COMMAND).is_none());
        assert!(!locks.is_any_waiting());
    }
}
