//! Commands of hosts, and what they may find.

use ebof_initiator::{Data, Error};
use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::IntoBytes;

use super::super::acts::{BLOCKS, HOSTS, IoKind};
use super::super::target::{BLOCK_BYTES, NSID};
use super::{Flight, World};
use crate::host::paths::PathEnd;
use crate::model::{BlockValue, LBA_BITS, serial};
use crate::rig::System as _;
use crate::story::{Failure, fail};

/// Sends a command of a host, if there is room.
pub(super) fn send(world: &mut World, host: usize, kind: IoKind, block: u64, count: u64) {
    let first = block % BLOCKS;
    let range = first..first + count;
    let op = world.rig.number();
    let blocks = u32::try_from(count).unwrap_or(u32::MAX);
    let plain = BlockRange::new(range.start, blocks);
    let nsid = Nsid(NSID);
    let (sqe, data) = match kind {
        IoKind::Read => (plain.encode(nvm::READ, nsid), Data::ToHost(vec![0; (blocks * BLOCK_BYTES) as usize])),
        IoKind::Write => (plain.encode(nvm::WRITE, nsid), Data::FromHost(world.blocks.bytes(&range, serial(op)))),
        IoKind::WriteZeroes => (plain.encode(nvm::WRITE_ZEROES, nsid), Data::None),
        IoKind::Deallocate => {
            let ranges = [DsmRange { cattr: 0.into(), nlb: blocks.into(), slba: range.start.into() }];
            let dsm = Dsm { ranges: 1, deallocate: true, integral_write: false, integral_read: false };
            let sqe = dsm.encode(nsid);
            (sqe, Data::FromHost(ranges.as_bytes().to_vec()))
        }
        IoKind::Flush => (Sqe::new(nvm::FLUSH).with_nsid(nsid), Data::None),
    };
    if !world.hosts[host].submit(op, sqe, data) {
        return;
    }
    let (begun, at) = (world.rig.now(), world.rig.clock.now());
    if !world.rig.is_comparing {
        world.rig.note(|| format!("{op}: host {host}: {kind:?} {range:?}"));
    }
    world.rig.count("commands");
    match kind {
        IoKind::Read => world.blocks.begin_read(op, begun),
        IoKind::Write => world.blocks.begin(op, range.clone(), BlockValue::Write(serial(op)), begun),
        IoKind::WriteZeroes | IoKind::Deallocate => world.blocks.begin(op, range.clone(), BlockValue::Zeros, begun),
        IoKind::Flush => {}
    }
    world.flights.insert(op, Flight { host, kind, range, begun, at });
}

pub(super) fn ended(world: &mut World, end: PathEnd) -> Result<(), Failure> {
    let PathEnd { op, result, data } = end;
    let Some(flight) = world.flights.remove(&op) else { return fail(format!("{op} has ended twice")) };
    let Flight { host, kind, range, begun, .. } = &flight;
    let status = match result {
        Ok(cqe) => cqe.status(),
        Err(error) => return failed(world, op, &flight, &error),
    };
    world.rig.digest(op, u64::from(status.0));
    if !world.rig.is_comparing || !status.is_success() {
        world.rig.note(|| format!("{op}: {kind:?} {range:?} of host {host} has ended: {status}"));
    }
    if !status.is_success() {
        return refused(world, op, &flight, status);
    }
    let now = world.rig.now();
    let range = range.clone();
    match kind {
        IoKind::Read => {
            let read = world.blocks.read(op, range, &data, now);
            read.map_err(|wrong| Failure(format!("{op}, of host {host}: {}", wrong.0)))?;
            world.rig.count("reads compared");
        }
        IoKind::Write => {
            world.blocks.end(op, range, false, now);
            world.written.insert(serial(op), (*begun, now));
        }
        IoKind::WriteZeroes | IoKind::Deallocate => world.blocks.end(op, range, false, now),
        IoKind::Flush => world.blocks.flushed(*begun, now),
    }
    Ok(())
}

/// A command has ended with a status.
fn refused(world: &mut World, op: u64, flight: &Flight, status: Status) -> Result<(), Failure> {
    let now = world.rig.now();
    let Flight { host, kind, range, at, .. } = flight;
    world.blocks.end_read(op);
    if !matches!(kind, IoKind::Read | IoKind::Flush) {
        world.blocks.end_unknown(op, range.clone(), now);
    }
    let was_lost = world.is_lost() || world.was_lost.is_some_and(|lost| lost >= *at);
    if status.is(Status::ANA_PERSISTENT_LOSS) && was_lost {
        world.rig.count("errors");
        return Ok(());
    }
    fail(format!("{op}: {kind:?} of host {host} fails without a reason: {status}"))
}

/// A command has ended without a status.
fn failed(world: &mut World, op: u64, flight: &Flight, error: &Error) -> Result<(), Failure> {
    let Flight { host, kind, .. } = flight;
    world.blocks.end_read(op);
    fail(format!("{op}: {kind:?} of host {host} fails without a reason: {error}"))
}

/// Whether the disk has put an older write over a newer one that had been acknowledged.
pub(super) fn check_replaced(world: &mut World) -> Result<(), Failure> {
    for (before, after) in world.rig.disk.take_replaced() {
        let of = |word: u64| world.blocks.serial_in(word & !LBA_BITS);
        let (Some(before), Some(after)) = (of(before), of(after)) else { continue };
        if before == after {
            continue;
        }
        // The newer one may be under way still: reads have to find it or what comes later.
        let newer = world.written.get(&before).map(|(begun, _)| *begun).or_else(|| {
            let flight = world.flights.iter().find(|(op, _)| serial(**op) == before);
            flight.map(|(_, flight)| flight.begun)
        });
        if let (Some(begun), Some((_, ended))) = (newer, world.written.get(&after))
            && *ended < begun
        {
            return fail(format!(
                "write #{after}, acknowledged at {ended}, comes over #{before}, which began at {begun}"
            ));
        }
    }
    Ok(())
}

/// Reads every block, when nothing else is under way.
pub(super) fn compare(world: &mut World) -> Result<(), Failure> {
    if world.rig.disk.is_off() {
        return Ok(());
    }
    world.rig.note(|| "everything is read".to_owned());
    world.rig.is_comparing = true;
    let compared = read_all(world);
    world.rig.is_comparing = false;
    compared
}

fn read_all(world: &mut World) -> Result<(), Failure> {
    for block in 0..BLOCKS + 3 {
        let host = world.rig.chances.index(HOSTS);
        world.until("a host", |world| world.hosts[host].is_ready())?;
        send_at(world, host, block);
        world.until("a read", |world| world.flights.is_empty())?;
    }
    world.rig.count("comparisons");
    Ok(())
}

fn send_at(world: &mut World, host: usize, block: u64) {
    let (first, count) = if block < BLOCKS { (block, 1) } else { (BLOCKS - 1, block - BLOCKS + 2) };
    send(world, host, IoKind::Read, first, count);
}
