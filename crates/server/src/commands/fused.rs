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

use std::sync::Arc;

use ebof_fabrics::{Extent, FusedHalf, Handle, IoTask, Task};
use ebof_nvme::Cid;

use crate::commands::command::{Command, CommandPhase};
use crate::commands::slots::Slots;
use crate::shared::mailbox::CommandRef;
use crate::shared::range_lock::{FusedLocks, RangeLock};

/// The second half of a pair has come: the first one knows of it from now on.
pub(crate) fn join_halves(commands: &mut Slots<Command>, first: Cid, second: Cid) {
    if let Some(Command { task: Task::Io(IoTask::Transfer(transfer)), .. }) =
        slot_of(commands, first).and_then(|slot| commands.get_mut(slot))
        && transfer.is_first_half()
    {
        transfer.fused = Some(FusedHalf::First { second: Some(second) });
    }
}

/// The half that belongs to the half in `slot`, if it is still there.
pub(crate) fn other_half(commands: &Slots<Command>, slot: u32) -> Option<u32> {
    let command = commands.get(slot)?;
    let other = slot_of(commands, partner(command)?)?;
    // Identifiers are used again: both have to know of each other.
    (partner(commands.get(other)?)? == command.cid).then_some(other)
}

/// Whether the second half of a pair in `slot` needs nothing more from the host: the first one
/// waits for the lock, or is at the device.
pub(crate) fn is_pair_under_way(commands: &Slots<Command>, slot: u32) -> bool {
    let first = other_half(commands, slot).and_then(|first| commands.get(first));
    first.is_some_and(|first| first.lock.is_some())
}

/// A first half without a second.
pub(crate) fn lone_half(commands: &Slots<Command>) -> Option<u32> {
    let mut halves = commands.iter();
    halves.find(|(_, command)| command.fused() == Some(FusedHalf::First { second: None })).map(|(slot, _)| slot)
}

/// The slot of the command `cid`.
pub(crate) fn slot_of(commands: &Slots<Command>, cid: Cid) -> Option<u32> {
    commands.iter().find(|(_, command)| command.cid == cid).map(|(slot, _)| slot)
}

/// The lock that a command needs before it does its work; `None` if it may do so at once. A half of
/// a pair never waits here: its pair asks for a lock itself, and a half on the list as a change
/// would let the pairs behind its own go first.
pub(crate) fn lock_change(locks: &Arc<FusedLocks>, task: &Task, owner: CommandRef) -> Option<RangeLock> {
    let io = task.io().filter(|io| io.fused().is_none())?;
    locks.lock_change(io.changed_device()?, |range| io.changes(range), owner)
}

/// The bytes that a first half compares; `None` for everything else.
pub(crate) fn first_half(task: &Task) -> Option<Extent> {
    let transfer = task.io()?.transfer()?;
    transfer.is_first_half().then_some(transfer.extent)
}

/// A half of a pair has its data. When the other one has, too, the pair asks for its lock.
pub(crate) fn lock_if_complete(commands: &mut Slots<Command>, slot: u32, handle: Handle, locks: &Arc<FusedLocks>) {
    commands.expect_mut(slot).phase = CommandPhase::Waiting;
    // The second half may have still to come. A first one that ends takes the second with it.
    let Some(other) = other_half(commands, slot) else { return };
    if commands.expect_mut(other).phase != CommandPhase::Waiting {
        return;
    }
    for slot in [slot, other] {
        let command = commands.expect_mut(slot);
        if let Some(extent) = first_half(&command.task) {
            let lock = locks.lock_pair(extent.device, extent.bytes(), CommandRef { handle, slot });
            command.lock = Some(Box::new(lock));
        }
    }
}

/// The identifier of the other half of a pair, as far as that has come.
fn partner(command: &Command) -> Option<Cid> {
    match command.fused()? {
        FusedHalf::First { second } => second,
        FusedHalf::Second { first } => Some(first),
    }
}

#[cfg(test)]
mod tests {
    use ebof_fabrics::{DeviceId, Transfer, TransferKind};
    use ebof_nvme::Nsid;

    use super::*;
    use crate::shared::mailbox::Mailbox;

    const COMMAND: CommandRef = CommandRef { handle: Handle(0), slot: 0 };

    fn extent(offset_bytes: u64) -> Extent {
        Extent { device: DeviceId(1), nsid: Nsid(1), offset_bytes, length_bytes: 4096, fua: false, deallocate: false }
    }

    fn write(offset_bytes: u64, fused: Option<FusedHalf>) -> Task {
        let transfer = Transfer { kind: TransferKind::Write, extent: extent(offset_bytes), fused, checks: None };
        Task::Io(IoTask::Transfer(transfer))
    }

    #[test]
    fn changes_of_a_pairs_bytes_wait_and_other_pairs_wait_in_order() {
        let locks = Arc::new(FusedLocks::new(vec![Mailbox::without_bell()]));
        let pair = locks.lock_pair(DeviceId(1), extent(0).bytes(), COMMAND);
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
