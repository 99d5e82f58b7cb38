//! Commands to blocks.

use std::ops::Range;
use std::sync::Arc;

use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::IntoBytes;

use super::super::acts::{BLOCKS, HostIo};
use super::compare::Pair;
use super::{ABORTED_STATUSES, COMMAND_TIMEOUT, Flight, Kind, World, command, compare, learn, reserve};
use crate::model::{BlockValue, Op, Tick, Wrong, serial, story_lba};
use crate::rig::{EXTENT, PATIENCE, System as _};
use crate::story::{Failure, fail};
use crate::transport::wire::CompletedCommand;

/// Blocks that are compared at a time.
const RUN_MAX: u64 = 6;

/// How often hosts try at rest to read what they get Reservation Conflict for.
const ROUNDS_MAX: usize = 50;

/// Blocks that have not been read yet, at rest.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    pub(super) nsid: u32,
    pub(super) range: Range<u64>,
    /// The last try ended as a reservation conflict.
    pub(super) conflicts: bool,
}

/// What commands to blocks end with where the disk fails.
const DISK_STATUSES: [Status; 6] = [
    Status::CAPACITY_EXCEEDED,
    Status::UNRECOVERED_READ_ERROR,
    Status::WRITE_FAULT,
    Status::INTERNAL_ERROR,
    Status::NAMESPACE_WRITE_PROTECTED,
    // The drive tries on.
    Status::FORMAT_IN_PROGRESS,
];

/// Where a block of the story lies.
pub(super) fn lba(world: &World, nsid: u32, block: u64) -> u64 {
    let space = &world.spaces[&nsid];
    let per_extent = space.coding.blocks_per_extent(EXTENT);
    story_lba(block, per_extent, space.count)
}

pub(super) fn transfer(
    world: &mut World,
    host: usize,
    queue: usize,
    slot: usize,
    block: u64,
    count: u64,
    io: HostIo,
) -> Result<(), Failure> {
    let Some(nsid) = world.nsid(slot) else { return Ok(()) };
    if learn::read_stale(world, host, queue, nsid) || !learn::comes_to_use(world, host, nsid)? {
        return Ok(());
    }
    reserve::join(world, host, nsid);
    let first = lba(world, nsid, block);
    let range = first..(first + count).min(world.spaces[&nsid].count);
    if io == HostIo::CompareAndWrite && !world.hosts[host].is_initiator() {
        // More is not atomic (ACWU).
        compare::send_pair(world, host, queue, nsid, first..first + 1);
    } else {
        send(world, host, queue, nsid, range, io);
    }
    Ok(())
}

/// Sends a command; `false` where the queue takes none.
pub(super) fn send(world: &mut World, host: usize, queue: usize, nsid: u32, range: Range<u64>, io: HostIo) -> bool {
    let op = world.rig.number();
    let begun = world.rig.now();
    let at = world.rig.clock.now();
    let space = &world.spaces[&nsid];
    let bytes = space.blocks.block_bytes * usize::try_from(range.end - range.start).expect("few");
    let blocks = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
    let plain = BlockRange::new(range.start, blocks);
    let mut range = range;
    let (kind, sqe, data, read) = match io {
        HostIo::Read => (Kind::Read, plain.encode(nvm::READ, Nsid(nsid)), None, bytes),
        HostIo::Verify => (Kind::Verify, plain.encode(nvm::VERIFY, Nsid(nsid)), None, 0),
        HostIo::Compare | HostIo::CompareAndWrite => {
            let data = compare::guess(world, nsid, &range);
            world.compared.insert(op, data.clone());
            (Kind::Compare, plain.encode(nvm::COMPARE, Nsid(nsid)), Some(Arc::from(data)), 0)
        }
        HostIo::Write { fua } => {
            let data = space.blocks.bytes(&range, serial(op));
            let sqe = BlockRange { fua, ..plain }.encode(nvm::WRITE, Nsid(nsid));
            (Kind::Write { fua }, sqe, Some(Arc::from(data)), 0)
        }
        HostIo::Zero { deallocate } => {
            let sqe = BlockRange { deallocate, ..plain }.encode(nvm::WRITE_ZEROES, Nsid(nsid));
            (Kind::Zero, sqe, None, 0)
        }
        HostIo::Uncorrectable => (Kind::Bad, plain.encode(nvm::WRITE_UNCORRECTABLE, Nsid(nsid)), None, 0),
        HostIo::Flush => (Kind::Flush, Sqe::new(nvm::FLUSH).with_nsid(Nsid(nsid)), None, 0),
        HostIo::Deallocate => {
            let (sqe, data, whole) = deallocate(world, nsid, &range);
            range = whole;
            (Kind::Zero, sqe, Some(data), 0)
        }
    };
    if kind == Kind::Flush {
        range = 0..0;
    }
    let flight = Flight { range: range.clone(), ..Flight::new(host, nsid, kind, begun, at) };
    if !world.submit(op, host, queue, flight, command(sqe, data, read)) {
        compare::forget_compared(world, op);
        return false;
    }
    let space = world.spaces.get_mut(&nsid).expect("looked at before");
    match kind {
        Kind::Read | Kind::Compare | Kind::Verify => space.blocks.begin_read(op, begun),
        Kind::Write { .. } => begin_write(world, op, nsid, range, begun),
        Kind::Zero => space.blocks.begin(op, range, BlockValue::Zeros, begun),
        Kind::Bad => space.blocks.begin(op, range, BlockValue::Bad, begun),
        _ => {}
    }
    true
}

pub(super) fn begin_write(world: &mut World, op: Op, nsid: u32, range: Range<u64>, begun: Tick) {
    let Some(space) = world.spaces.get_mut(&nsid) else { return };
    world.written.insert(serial(op), (space.blocks.owner, range.clone()));
    space.blocks.begin(op, range, BlockValue::Write(serial(op)), begun);
}

/// Dataset Management of the extents of a range, in several pieces.
fn deallocate(world: &World, nsid: u32, range: &Range<u64>) -> (Sqe, Arc<[u8]>, Range<u64>) {
    let space = &world.spaces[&nsid];
    let per_extent = space.coding.blocks_per_extent(EXTENT);
    let first = range.start / per_extent * per_extent;
    let end = (first + per_extent * (range.end - range.start)).min(space.count);
    let piece = ((end - first) / 3).max(1);
    let mut data = Vec::new();
    let mut ranges = 0;
    let mut at = first;
    while at < end {
        let blocks = piece.min(end - at);
        let nlb = u32::try_from(blocks).unwrap_or(u32::MAX);
        data.extend_from_slice(DsmRange { cattr: 0.into(), nlb: nlb.into(), slba: at.into() }.as_bytes());
        (at, ranges) = (at + blocks, ranges + 1);
    }
    let dsm = Dsm { ranges, deallocate: true, integral_write: false, integral_read: false };
    (dsm.encode(Nsid(nsid)), Arc::from(data), first..end)
}

pub(super) fn ended(world: &mut World, op: Op, flight: &Flight, ended: &CompletedCommand) -> Result<(), Failure> {
    let now = world.rig.now();
    let status = ended.cqe.status();
    // Blocks of which requests are still at a slow disk may be had later.
    let is_early = status.is(Status::COMMAND_INTERRUPTED);
    let is_of_disk = DISK_STATUSES.iter().any(|one| status.is(*one)) && world.rig.may_fail(flight.at);
    let may_fail = is_early || is_of_disk || may_be_aborted(world, flight, status);
    let range = flight.range.clone();
    let pair = world.pairs.ended(op, status)?;
    let compared = compare::take_compared(world, op, pair, status);
    if matches!(pair, Pair::Second { .. }) && status.is_success() {
        compare::replaced(world, op, flight, &compared)?;
    }
    let Some(space) = world.spaces.get_mut(&flight.nsid) else { return Ok(()) };
    let blocks = &mut space.blocks;
    let wrong = |wrong: Wrong| Failure(format!("{op}, of host {}: {}", flight.host, wrong.0));
    if status.is_success() {
        match flight.kind {
            Kind::Read => {
                let bytes = blocks.block_bytes * usize::try_from(range.end - range.start).expect("few");
                if ended.data.len() != bytes {
                    return fail(format!("{op}: {} bytes were read, {bytes} asked for", ended.data.len()));
                }
                blocks.read(op, range, &ended.data, now).map_err(wrong)?;
                world.rig.count("reads compared");
            }
            Kind::Compare => {
                blocks.read(op, range, &compared, now).map_err(wrong)?;
                world.rig.count(if pair == Pair::First { "pairs compared" } else { "compares" });
            }
            Kind::Verify => blocks.verified(op, range, now).map_err(wrong)?,
            Kind::Flush => blocks.flushed(flight.begun, now),
            Kind::Write { fua } => blocks.end(op, range, fua, now),
            Kind::Bad => blocks.end(op, range, true, now),
            _ => blocks.end(op, range, false, now),
        }
        return Ok(());
    }
    if flight.kind == Kind::Compare && status.is(Status::COMPARE_FAILURE) {
        world.rig.count("compare failures");
        return blocks.differed(op, range, &compared, now).map_err(wrong);
    }
    let reads = matches!(flight.kind, Kind::Read | Kind::Compare | Kind::Verify);
    let was_bad = reads && status.is(Status::UNRECOVERED_READ_ERROR) && blocks.may_fail(range.clone(), flight.begun);
    blocks.end_read(op);
    if pair != Pair::None && status.is(Status::ABORTED_FAILED_FUSED) {
        blocks.refuse(op, range);
        return Ok(());
    }
    let conflicts = status.is(Status::RESERVATION_CONFLICT) && space.is_reserved;
    // What is repeated may have been done before.
    if conflicts && !flight.repeats && !world.rig.is_comparing {
        space.blocks.refuse(op, range);
        world.rig.count("conflicts");
        return Ok(());
    }
    space.blocks.end_unknown(op, range, now);
    let is_unsure = space.is_unsure || world.manage.is_sanitizing();
    if world.rig.is_comparing && !was_bad {
        world.unread.push(Unread { nsid: flight.nsid, range: flight.range.clone(), conflicts });
    }
    if was_bad || may_fail || is_unsure || conflicts {
        world.rig.count("errors");
        return Ok(());
    }
    Err(unexplained(op, flight, status))
}

/// Reads everything, when nothing is under way.
pub(super) fn compare(world: &mut World) -> Result<(), Failure> {
    world.rig.note(|| "everything is read".to_owned());
    world.rig.is_comparing = true;
    let compared = compare_spaces(world);
    world.rig.is_comparing = false;
    compared
}

fn compare_spaces(world: &mut World) -> Result<(), Failure> {
    let nsids: Vec<u32> = world.spaces.iter().filter(|(_, one)| !one.is_unsure).map(|(&nsid, _)| nsid).collect();
    world.unread.clear();
    for nsid in nsids {
        let mut blocks: Vec<u64> = world.spaces[&nsid].blocks.written().collect();
        blocks.extend((0..BLOCKS).map(|block| lba(world, nsid, block)));
        blocks.sort_unstable();
        blocks.dedup();
        let unread = |range| Unread { nsid, range, conflicts: false };
        world.unread.extend(runs(world, nsid, &blocks).into_iter().map(unread));
    }
    let end = world.rig.clock.now() + PATIENCE;
    for round in 0.. {
        // A reservation may keep all out who can use the namespace.
        if round > ROUNDS_MAX {
            world.unread.retain(|unread| !unread.conflicts);
        }
        if world.unread.is_empty() {
            break;
        }
        if world.rig.clock.now() > end {
            return fail(format!("what cannot be read, at rest: {:?}", world.unread));
        }
        for Unread { nsid, range, .. } in std::mem::take(&mut world.unread) {
            if !read_at_rest(world, nsid, range)? {
                return Ok(());
            }
        }
        if !world.until("reads of everything", |world| world.flights.is_empty())? {
            return Ok(());
        }
    }
    Ok(())
}

/// Has a host read these blocks; `false` where the power goes before that.
fn read_at_rest(world: &mut World, nsid: u32, range: Range<u64>) -> Result<bool, Failure> {
    let Some(host) = reader(world, nsid)? else { return Ok(false) };
    while !send(world, host, 1, nsid, range.clone(), HostIo::Read) {
        let before = world.flights.len();
        world.step()?;
        if !world
            .until("room for a read", |world| world.flights.len() < before.max(1) || !world.hosts[host].is_live())?
        {
            return Ok(false);
        }
        if !world.hosts[host].is_live() {
            world.unread.push(Unread { nsid, range, conflicts: false });
            break;
        }
    }
    Ok(true)
}

/// A host that may read the namespace; `None` where the power goes before there is one.
fn reader(world: &mut World, nsid: u32) -> Result<Option<usize>, Failure> {
    let mut reader = None;
    let first = world.rig.chances.index(world.hosts.len());
    let is_found = world.until("a host that knows a namespace", |world| {
        let hosts = world.hosts.len();
        reader = (0..hosts).map(|host| (host + first) % hosts).find(|&host| learn::may_use(world, host, nsid));
        reader.is_some()
    })?;
    Ok(reader.filter(|_| is_found))
}

/// These blocks, as ranges to be read: those that may be errors alone.
fn runs(world: &World, nsid: u32, blocks: &[u64]) -> Vec<Range<u64>> {
    let space = &world.spaces[&nsid];
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &lba in blocks {
        let joins = |run: &&mut Range<u64>| {
            run.end == lba && run.end - run.start < RUN_MAX && !space.blocks.may_fail(run.end - 1..lba + 1, Tick::MAX)
        };
        match runs.last_mut().filter(joins) {
            Some(run) => run.end += 1,
            None => runs.push(lba..lba + 1),
        }
    }
    runs
}

/// A command has failed in a way that nothing explains.
pub(super) fn unexplained(op: Op, flight: &Flight, status: Status) -> Failure {
    let Flight { host, kind, nsid, range, .. } = flight;
    let what = format!("{kind:?} {range:?} of namespace {nsid} by host {host}");
    Failure(format!("{op}: {what} fails without a reason: {status}"))
}

/// Whether the host leaves, or somebody takes its commands away: they may end unfinished.
pub(super) fn may_be_aborted(world: &World, flight: &Flight, status: Status) -> bool {
    let space = world.spaces.get(&flight.nsid);
    let leaves = !world.hosts[flight.host].is_live();
    let preempted = status.is(Status::PREEMPT_ABORT) && space.is_none_or(|space| space.is_reserved);
    // An initiator aborts what takes longer than its command time-out.
    let is_late = world.rig.clock.now() >= flight.at + COMMAND_TIMEOUT;
    let aborted = status.is(Status::ABORT_REQUESTED) && world.hosts[flight.host].is_initiator() && is_late;
    let interrupted = ABORTED_STATUSES.iter().any(|one| status.is(*one));
    leaves && interrupted || preempted || aborted
}
