//! Which blocks of a namespace are being read or written by which threads, so that requests for the
//! same blocks come one after the other.
//!
//! Threads other than the drive's never wait: a request that meets another one goes to the drive's
//! thread, which keeps it until the blocks are free. Those for which it waits are not locked by
//! others any more, so that whoever waits has only those to wait for that came before.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks of a namespace; the blocks of an extent have the same one.
const SHARDS: usize = 16;

/// The locked blocks of a namespace.
#[derive(Default)]
pub(crate) struct BlockLocks {
    shards: [Mutex<Shard>; SHARDS],
}

/// Each request in flight has a few entries at most.
#[derive(Default)]
struct Shard {
    held: Vec<HeldLock>,
    /// What requests wait for on the drive's thread, whoever has it.
    awaited: Vec<HeldLock>,
}

/// Blocks that are locked, or awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldLock {
    blocks: Range<u64>,
    /// They are changed, and not only read.
    change: bool,
    /// By the drive's thread, whose requests do not exclude each other.
    by_drive: bool,
}

/// The blocks of an operation of the drive's thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Blocks, and the extents that have them. At most as many as a slice of a long request has.
    pub(crate) ranges: Vec<(Range<u32>, Range<u64>)>,
    /// They are changed, and not only read.
    pub(crate) change: bool,
}

impl HeldLock {
    fn excludes(&self, other: &Self) -> bool {
        let meet = self.blocks.start < other.blocks.end && other.blocks.start < self.blocks.end;
        meet && (self.change || other.change) && !(self.by_drive && other.by_drive)
    }
}

impl BlockLocks {
    fn shard(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard_of(extent: u32) -> usize {
        extent as usize % SHARDS
    }

    /// Locks blocks of one extent, on any thread but the drive's. `false` if others have them, or
    /// the drive's thread waits for them.
    pub(crate) fn try_lock(&self, extent: u32, blocks: &Range<u64>, change: bool) -> bool {
        let mut shard = self.shard(Self::shard_of(extent));
        let own = HeldLock { blocks: blocks.clone(), change, by_drive: false };
        let is_free = !shard.held.iter().chain(&shard.awaited).any(|held| held.excludes(&own));
        if is_free {
            shard.held.push(own);
        }
        is_free
    }

    /// Unlocks them. Returns whether the drive's thread is to be woken: a request of it that waits
    /// can lock its blocks in this shard now.
    pub(crate) fn unlock(&self, extent: u32, blocks: &Range<u64>, change: bool) -> bool {
        let mut shard = self.shard(Self::shard_of(extent));
        let own = HeldLock { blocks: blocks.clone(), change, by_drive: false };
        release(&mut shard.held, &own);
        let is_free = |awaited: &HeldLock| !shard.held.iter().any(|held| held.excludes(awaited));
        shard.awaited.iter().any(|awaited| awaited.excludes(&own) && is_free(awaited))
    }

    /// Locks blocks for the drive's thread: all of them, or none. `false` if others have some of
    /// them: if it waits ([`begin_waiting`](Self::begin_waiting)), whoever unlocks them wakes it.
    pub(crate) fn try_lock_all(&self, wanted: &Wanted) -> bool {
        let Wanted { ranges, change } = wanted;
        for (at, (extents, blocks)) in ranges.iter().enumerate() {
            if !self.try_lock_many(extents, blocks, *change) {
                ranges[..at].iter().for_each(|(extents, blocks)| self.unlock_many(extents, blocks, *change));
                return false;
            }
        }
        true
    }

    /// Unlocks them.
    pub(crate) fn unlock_all(&self, wanted: &Wanted) {
        wanted.ranges.iter().for_each(|(extents, blocks)| self.unlock_many(extents, blocks, wanted.change));
    }

    fn try_lock_many(&self, extents: &Range<u32>, blocks: &Range<u64>, change: bool) -> bool {
        let own = HeldLock { blocks: blocks.clone(), change, by_drive: true };
        let shards = shards(extents);
        for (at, &shard) in shards.iter().enumerate() {
            let mut shard = self.shard(shard);
            if shard.held.iter().any(|held| held.excludes(&own)) {
                drop(shard);
                shards[..at].iter().for_each(|&shard| release(&mut self.shard(shard).held, &own));
                return false;
            }
            shard.held.push(own.clone());
        }
        true
    }

    fn unlock_many(&self, extents: &Range<u32>, blocks: &Range<u64>, change: bool) {
        let own = HeldLock { blocks: blocks.clone(), change, by_drive: true };
        shards(extents).into_iter().for_each(|shard| release(&mut self.shard(shard).held, &own));
    }

    /// A request waits for these blocks on the drive's thread: no other thread locks them any more.
    /// Those that are locked now may be free before anybody is woken: they are to be tried again.
    pub(crate) fn begin_waiting(&self, wanted: &Wanted) {
        for (extents, blocks) in &wanted.ranges {
            let own = HeldLock { blocks: blocks.clone(), change: wanted.change, by_drive: true };
            shards(extents).into_iter().for_each(|shard| self.shard(shard).awaited.push(own.clone()));
        }
    }

    /// It does not wait any more.
    pub(crate) fn end_waiting(&self, wanted: &Wanted) {
        for (extents, blocks) in &wanted.ranges {
            let own = HeldLock { blocks: blocks.clone(), change: wanted.change, by_drive: true };
            shards(extents).into_iter().for_each(|shard| release(&mut self.shard(shard).awaited, &own));
        }
    }
}

/// Takes one of these entries away.
fn release(entries: &mut Vec<HeldLock>, own: &HeldLock) {
    let at = entries.iter().position(|held| held == own);
    entries.swap_remove(at.expect("whoever has locked blocks, or waits for them, ends that once"));
}

/// The locks of extents.
fn shards(extents: &Range<u32>) -> Vec<usize> {
    let count = (extents.end - extents.start) as usize;
    let mut shards: Vec<usize> =
        (extents.start..extents.end).take(count.min(SHARDS)).map(BlockLocks::shard_of).collect();
    shards.sort_unstable();
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(extents: Range<u32>, blocks: Range<u64>) -> Wanted {
        Wanted { ranges: vec![(extents, blocks)], change: true }
    }

    #[test]
    fn reads_share_blocks_and_changes_do_not() {
        let locks = BlockLocks::default();
        assert!(locks.try_lock(0, &(0..8), false) && locks.try_lock(0, &(4..9), false));
        assert!(!locks.try_lock(0, &(7..8), true) && locks.try_lock(0, &(9..10), true));
        assert!(!locks.try_lock(0, &(9..12), false) && !locks.unlock(0, &(4..9), false));
        assert!(!locks.unlock(0, &(0..8), false) && locks.try_lock(0, &(0..9), true));
    }

    #[test]
    fn the_drive_waits_for_others_and_not_for_itself() {
        let locks = BlockLocks::default();
        assert!(locks.try_lock(17, &(1700..1701), true));
        assert!(locks.try_lock_all(&change(0..3, 0..300)) && locks.try_lock_all(&change(0..1, 5..6)));
        assert!(!locks.try_lock_all(&change(0..200, 0..20_000)), "block 1700 is taken");
        locks.begin_waiting(&change(0..200, 0..20_000));
        assert!(!locks.try_lock(1, &(1650..1651), false), "nobody overtakes the drive where it waits");
        assert!(locks.try_lock(4, &(20_400..20_401), true), "elsewhere nothing is in the way");
        assert!(!locks.unlock(4, &(20_400..20_401), true) && locks.unlock(17, &(1700..1701), true), "it is woken");
        assert!(locks.try_lock_all(&change(0..200, 0..20_000)));
        locks.end_waiting(&change(0..200, 0..20_000));
        locks.unlock_all(&change(0..200, 0..20_000));
        locks.unlock_all(&change(0..3, 0..300));
        assert!(!locks.try_lock(0, &(5..6), false) && locks.try_lock(0, &(6..7), true));
        locks.unlock_all(&change(0..1, 5..6));
        assert!(locks.try_lock(0, &(5..6), false));
    }

    /// Others that end do not let newcomers in before the drive's thread.
    #[test]
    fn whoever_waits_for_several_others_is_not_overtaken() {
        let locks = BlockLocks::default();
        assert!(locks.try_lock(0, &(1..2), true) && locks.try_lock(0, &(5..6), true));
        assert!(!locks.try_lock_all(&change(0..1, 0..8)));
        locks.begin_waiting(&change(0..1, 0..8));
        assert!(!locks.unlock(0, &(1..2), true), "it has to wait for the other one, too");
        assert!(!locks.try_lock(0, &(1..2), true), "the drive still waits for it");
        assert!(locks.try_lock(0, &(8..9), true) && !locks.unlock(0, &(8..9), true));
        assert!(!locks.try_lock_all(&change(0..1, 0..8)) && locks.unlock(0, &(5..6), true));
        assert!(!locks.try_lock(0, &(5..6), false) && locks.try_lock_all(&change(0..1, 0..8)));
        locks.end_waiting(&change(0..1, 0..8));
        locks.unlock_all(&change(0..1, 0..8));
        assert!(locks.try_lock(0, &(0..8), true));
    }

    #[test]
    fn the_drive_locks_all_ranges_of_a_request_or_none() {
        let locks = BlockLocks::default();
        assert!(locks.try_lock(20, &(2000..2001), true));
        let both = Wanted { ranges: vec![(0..1, 0..8), (20..21, 1999..2005)], change: true };
        assert!(!locks.try_lock_all(&both) && locks.try_lock(0, &(0..8), true));
        assert!(!locks.unlock(0, &(0..8), true) && !locks.unlock(20, &(2000..2001), true));
        assert!(locks.try_lock_all(&both) && !locks.try_lock(0, &(7..8), false));
        locks.unlock_all(&both);
        assert!(locks.try_lock(0, &(7..8), true) && locks.try_lock(20, &(2004..2005), true));
    }
}
