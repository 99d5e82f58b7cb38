//! Compare, alone and fused with Write. What is compared is something that the blocks may hold. Of
//! a pair, both halves are done or none, and a value that one pair has replaced is replaced by no
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Sqe, Status};

use super::{Flight, Kind, World, command, io};
use crate::model::{BlockValue, Op, serial};
use crate::story::{Failure, fail};

/// FUSE of the first and of the second command of a pair (Base, Command Dword 0).
const FIRST: u8 = 1;
const SECOND: u8 = 2;

/// The pairs under way.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// By either half, the other one, and how that has ended.
    halves: BTreeMap<Op, (Op, Option<Status>)>,
    /// Writes that nobody repeats and that a pair has replaced, since the target runs: owner, block
    /// and serial number.
    replaced: BTreeSet<(u16, u64, u32)>,
}

/// What a command is of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pair {
    None,
    First,
    Second { first: Op },
}

impl Pairs {
    fn begin(&mut self, first: Op, second: Op) {
        self.halves.insert(first, (second, None));
        self.halves.insert(second, (first, None));
    }

    /// Nobody will say how it has ended. Gives the other half.
    pub(super) fn lost(&mut self, op: Op) -> Option<Op> {
        let (other, _) = self.halves.remove(&op)?;
        self.halves.remove(&other);
        Some(other)
    }

    /// What a power loss undoes may be replaced again.
    pub(super) fn forget_replaced(&mut self) {
        self.replaced.clear();
    }

    /// Tells which half of a pair has ended.
    pub(super) fn ended(&mut self, op: Op, status: Status) -> Result<Pair, Failure> {
        let Some((other, of_other)) = self.halves.remove(&op) else { return Ok(Pair::None) };
        // The first half has the lower number.
        let half = if op < other { Pair::First } else { Pair::Second { first: other } };
        if let Some(entry) = self.halves.get_mut(&other) {
            entry.1 = Some(status);
        }
        let Some(of_other) = of_other else {
            if half != Pair::First && status.is_success() {
                return fail(format!("{op} has written before {other} has compared"));
            }
            return Ok(half);
        };
        let (compare, write) = if half == Pair::First { (status, of_other) } else { (of_other, status) };
        let is_written_blindly = write.is_success() && !compare.is_success();
        let is_aborted_alone = write.is(Status::ABORTED_FAILED_FUSED) && compare.is_success();
        if is_written_blindly || is_aborted_alone {
            return fail(format!("{op} and {other} are one: Compare has ended as {compare}, Write as {write}"));
        }
        Ok(half)
    }
}

/// What a command that ends has compared; for the second half of a pair, what the first has.
pub(super) fn take_compared(world: &mut World, op: Op, pair: Pair, status: Status) -> Vec<u8> {
    match pair {
        Pair::First if status.is_success() => world.compared.get(&op).cloned(),
        Pair::Second { first } if world.flights.contains_key(&first) => None,
        Pair::Second { first } => world.compared.remove(&first),
        Pair::None | Pair::First => world.compared.remove(&op),
    }
    .unwrap_or_default()
}

/// A command with which blocks were compared will not end, or was not sent.
pub(super) fn forget_compared(world: &mut World, op: Op) {
    let other = world.pairs.lost(op);
    for op in other.into_iter().chain([op]) {
        world.compared.remove(&op);
    }
}

/// Both halves of a pair have succeeded.
pub(super) fn replaced(world: &mut World, op: Op, flight: &Flight, compared: &[u8]) -> Result<(), Failure> {
    let Some(space) = world.spaces.get(&flight.nsid) else { return Ok(()) };
    let owner = space.blocks.owner;
    for (lba, bytes) in flight.range.clone().zip(compared.chunks(space.blocks.block_bytes)) {
        let Some(serial) = space.blocks.serial_of(bytes).filter(|serial| !world.repeated.contains(serial)) else {
            continue;
        };
        if !world.pairs.replaced.insert((owner, lba, serial)) {
            return fail(format!("{op} has replaced write #{serial} of block {lba} of {owner}, which was replaced"));
        }
    }
    Ok(())
}

/// Something that blocks may hold.
pub(super) fn guess(world: &mut World, nsid: u32, range: &Range<u64>) -> Vec<u8> {
    let now = world.rig.now();
    let (space, chances) = (&world.spaces[&nsid], &mut world.rig.chances);
    let mut bytes = space.blocks.bytes(range, 0);
    for (lba, into) in range.clone().zip(bytes.chunks_mut(space.blocks.block_bytes)) {
        let possible = space.blocks.possible(lba, now);
        let value = possible.get(chances.index(possible.len().max(1))).copied();
        space.blocks.fill_value(lba, value.unwrap_or(BlockValue::Zeros), into);
    }
    bytes
}

/// Sends Compare and Write; `false` where the queue does not take both.
pub(super) fn send_pair(world: &mut World, host: usize, queue: usize, nsid: u32, range: Range<u64>) -> bool {
    let (first, second) = (world.rig.number(), world.rig.number());
    let (begun, at) = (world.rig.now(), world.rig.clock.now());
    let compared = guess(world, nsid, &range);
    let written = world.spaces[&nsid].blocks.bytes(&range, serial(second));
    let blocks = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
    let half = |opcode, fuse| -> Sqe {
        let mut sqe = BlockRange::new(range.start, blocks).encode(opcode, Nsid(nsid));
        sqe.flags |= fuse;
        sqe
    };
    let compare = command(half(nvm::COMPARE, FIRST), Some(Arc::from(compared.as_slice())), 0);
    let write = command(half(nvm::WRITE, SECOND), Some(Arc::from(written)), 0);
    if !world.hosts[host].submit_fused(queue, [(first, compare), (second, write)], at) {
        return false;
    }
    world.rig.count("pairs");
    let flight = |kind| Flight { range: range.clone(), ..Flight::new(host, nsid, kind, begun, at) };
    world.submitted(first, queue, flight(Kind::Compare), nvm::COMPARE);
    world.submitted(second, queue, flight(Kind::Write { fua: false }), nvm::WRITE);
    world.pairs.begin(first, second);
    world.compared.insert(first, compared);
    if let Some(space) = world.spaces.get_mut(&nsid) {
        space.blocks.begin_read(first, begun);
    }
    io::begin_write(world, second, nsid, range, begun);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(order: [(Op, Status); 2]) -> Result<Pair, Failure> {
        let mut pairs = Pairs::default();
        pairs.begin(1, 2);
        let [(first, of_first), (second, of_second)] = order;
        pairs.ended(first, of_first)?;
        pairs.ended(second, of_second)
    }

    #[test]
    fn both_halves_are_done_or_none() {
        let (ok, failed, aborted) = (Status::SUCCESS, Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED);
        assert_eq!(ended([(1, ok), (2, ok)]).unwrap(), Pair::Second { first: 1 });
        assert_eq!(ended([(1, failed), (2, aborted)]).unwrap(), Pair::Second { first: 1 });
        assert_eq!(ended([(2, Status::PREEMPT_ABORT), (1, aborted)]).unwrap(), Pair::First);
        for wrong in [[(1, failed), (2, ok)], [(1, ok), (2, aborted)], [(2, ok), (1, ok)]] {
            assert!(ended(wrong).is_err(), "{wrong:?}");
        }
    }
}
