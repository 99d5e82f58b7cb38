//! Which blocks of a namespace are being read or written by which threads, so that requests for the
//! same blocks come one after the other.
//!
//! Threads other than the drive's never wait: a request that meets another one goes to the drive's
//! thread, which keeps it until the blocks are free.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks of a namespace; the blocks of an extent have the same one.
const SHARDS: usize = 16;

/// The locked blocks of a namespace.
#[derive(Default)]
pub(crate) struct BlockLocks {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    held: Vec<Held>,
    /// The drive's thread waits for some of them.
    waiting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    blocks: Range<u64>,
    /// They are changed, and not only read.
    change: bool,
    /// By the drive's thread, whose requests do not exclude each other.
    by_drive: bool,
}

impl Held {
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
    /// the drive's thread waits.
    pub(crate) fn try_lock(&self, extent: u32, blocks: &Range<u64>, change: bool) -> bool {
        let mut shard = self.shard(Self::shard_of(extent));
        let own = Held { blocks: blocks.clone(), change, by_drive: false };
        let is_free = !shard.waiting && !shard.held.iter().any(|held| held.excludes(&own));
        if is_free {
            shard.held.push(own);
        }
        is_free
    }

    /// Unlocks them. Returns whether the drive's thread waits: it is to be woken.
    pub(crate) fn unlock(&self, extent: u32, blocks: &Range<u64>, change: bool) -> bool {
        let mut shard = self.shard(Self::shard_of(extent));
        shard.release(&Held { blocks: blocks.clone(), change, by_drive: false });
        std::mem::take(&mut shard.waiting)
    }

    /// Locks blocks of these extents for the drive's thread. `false` if others have some of them:
    /// whoever unlocks them wakes it.
    pub(crate) fn try_lock_many(&self, extents: &Range<u32>, blocks: &Range<u64>, change: bool) -> bool {
        let own = Held { blocks: blocks.clone(), change, by_drive: true };
        let shards = shards(extents);
        for (at, &shard) in shards.iter().enumerate() {
            let mut shard = self.shard(shard);
            if shard.held.iter().any(|held| held.excludes(&own)) {
                shard.waiting = true;
                drop(shard);
                shards[..at].iter().for_each(|&shard| self.shard(shard).release(&own));
                return false;
            }
            shard.held.push(own.clone());
        }
        true
    }

    /// Unlocks them.
    pub(crate) fn unlock_many(&self, extents: &Range<u32>, blocks: &Range<u64>, change: bool) {
        let own = Held { blocks: blocks.clone(), change, by_drive: true };
        shards(extents).into_iter().for_each(|shard| self.shard(shard).release(&own));
    }
}

impl Shard {
    fn release(&mut self, own: &Held) {
        if let Some(at) = self.held.iter().position(|held| held == own) {
            self.held.swap_remove(at);
        }
    }
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
        assert!(locks.try_lock_many(&(0..3), &(0..300), true) && locks.try_lock_many(&(0..1), &(5..6), true));
        assert!(!locks.try_lock_many(&(0..200), &(0..20_000), true), "block 1700 is taken");
        assert!(!locks.try_lock(1, &(1650..1651), false), "nobody overtakes the drive where it waits");
        assert!(locks.try_lock(4, &(400..401), true), "elsewhere nothing is in the way");
        assert!(locks.unlock(17, &(1700..1701), true), "it is woken");
        assert!(!locks.unlock(4, &(400..401), true) && locks.try_lock_many(&(0..200), &(0..20_000), true));
        locks.unlock_many(&(0..200), &(0..20_000), true);
        locks.unlock_many(&(0..3), &(0..300), true);
        assert!(!locks.try_lock(0, &(5..6), false) && locks.try_lock(0, &(6..7), true));
        locks.unlock_many(&(0..1), &(5..6), true);
        assert!(locks.try_lock(0, &(5..6), false));
    }
}
