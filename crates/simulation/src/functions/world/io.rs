//! Commands of hosts.

use std::ops::Range;
use std::sync::Arc;

use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, Release,
    ReleaseAction, ReleaseKey, ReservationType,
};
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::IntoBytes;

use super::super::acts::BLOCKS;
use super::{BLOCK_BYTES, COUNT, Flight, HOSTS, Kind, Reservation, World, function_of};
use crate::model::{BlockValue, Op, Wrong, serial, story_lba};
use crate::rig::{EXTENT, PATIENCE, System as _};
use crate::story::{Failure, fail};
use crate::transport::wire::{Command, CompletedCommand};

/// What commands to blocks end with where the disk was slow, and nothing else is the matter.
const DISK_STATUSES: [Status; 1] = [Status::COMMAND_INTERRUPTED];

/// A host that is connected, of the function that has a namespace; or any other one.
pub(super) fn user(world: &mut World, stranger: bool, host: usize, nsid: u32) -> Option<usize> {
    let owner = world.spaces.get(&nsid)?.owner;
    let mut others = (0..HOSTS).map(|at| (at + host) % HOSTS).filter(|&host| world.hosts[host].is_live());
    others.find(|&host| (Some(function_of(host)) == owner) != stranger)
}

fn lba(block: u64) -> u64 {
    story_lba(block % BLOCKS, EXTENT / u64::from(BLOCK_BYTES), COUNT)
}

pub(super) fn transfer(world: &mut World, host: usize, nsid: u32, block: u64, count: u64, writes: bool) {
    let first = lba(block);
    let range = first..(first + count).min(COUNT);
    let op = world.rig.number();
    let blocks = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
    let plain = BlockRange::new(range.start, blocks);
    let Some(space) = world.spaces.get(&nsid) else { return };
    let (kind, sqe, data, read_bytes) = if writes {
        let data = space.blocks.bytes(&range, serial(op));
        (Kind::Write, plain.encode(nvm::WRITE, Nsid(nsid)), Some(Arc::from(data)), 0)
    } else {
        (Kind::Read, plain.encode(nvm::READ, Nsid(nsid)), None, blocks * BLOCK_BYTES)
    };
    send(world, op, host, nsid, kind, range, Command { sqe, data, read_bytes });
}

pub(super) fn flush(world: &mut World, host: usize, nsid: u32) {
    let op = world.rig.number();
    let sqe = Sqe::new(nvm::FLUSH).with_nsid(Nsid(nsid));
    send(world, op, host, nsid, Kind::Flush, 0..0, Command { sqe, data: None, read_bytes: 0 });
}

/// Reserves a namespace for a host, or clears its reservation.
pub(super) fn reserve(world: &mut World, host: usize, nsid: u32, clears: bool) {
    let is_asked =
        |flight: &Flight| flight.nsid == nsid && matches!(flight.kind, Kind::Register | Kind::Acquire | Kind::Clear);
    let is_busy = world.flights.values().chain(world.ghosts.values()).any(is_asked);
    let Some(space) = world.spaces.get_mut(&nsid).filter(|_| !is_busy) else { return };
    let is_free = matches!(space.reservation, Reservation::Free { .. });
    if is_free == clears {
        return;
    }
    let (id, key) = (Nsid(nsid), 1 + host as u64);
    let (ignore_existing_key, rtype) = (false, ReservationType::WriteExclusive.encode());
    let persistence = PersistenceChange::Set;
    let register = Register { action: RegisterAction::Register, ignore_existing_key: true, persistence };
    let keys = RegisterKeys { crkey: 0.into(), nrkey: key.into() };
    let (kind, sqe, data) = if clears {
        let release = Release { action: ReleaseAction::Clear, ignore_existing_key, rtype };
        (Kind::Clear, release.encode(id), ReleaseKey { crkey: key.into() }.as_bytes().to_vec())
    } else {
        let acquire = Acquire { action: AcquireAction::Acquire, ignore_existing_key, rtype };
        (Kind::Acquire, acquire.encode(id), AcquireKeys { crkey: key.into(), prkey: 0.into() }.as_bytes().to_vec())
    };
    space.reservation = Reservation::Unsure;
    let commands = [(Kind::Register, register.encode(id), keys.as_bytes().to_vec()), (kind, sqe, data)];
    for (kind, sqe, data) in commands {
        let op = world.rig.number();
        let command = Command { sqe, data: Some(Arc::from(data)), read_bytes: 0 };
        send(world, op, host, nsid, kind, 0..0, command);
    }
}

fn send(world: &mut World, op: Op, host: usize, nsid: u32, kind: Kind, range: Range<u64>, command: Command) {
    let (begun, at) = (world.rig.now(), world.rig.clock.now());
    if !world.hosts[host].submit(1, op, command, at) {
        return;
    }
    if !world.rig.is_comparing {
        world.rig.note(|| format!("{op}: host {host}: {kind:?} {range:?} of {nsid}"));
    }
    world.rig.count("commands");
    if let Some(space) = world.spaces.get_mut(&nsid) {
        match kind {
            Kind::Read => space.blocks.begin_read(op, begun),
            Kind::Write => space.blocks.begin(op, range.clone(), BlockValue::Write(serial(op)), begun),
            _ => {}
        }
    }
    let port = world.at_port[host];
    world.flights.insert(op, Flight { host, port, nsid, kind, range, begun, at, is_over: false });
}

pub(super) fn ended(world: &mut World, op: Op, ended: &CompletedCommand) -> Result<(), Failure> {
    let Some(flight) = world.flights.remove(&op) else { return fail(format!("{op} has ended twice")) };
    let status = ended.cqe.status();
    world.rig.digest(op, u64::from(status.0));
    if !world.rig.is_comparing || !status.is_success() {
        world.rig.note(|| format!("{op}: {:?} of host {} has ended: {status}", flight.kind, flight.host));
    }
    if status.is_success() {
        check_right(world, op, &flight)?;
        succeeded(world, op, &flight, &ended.data)
    } else {
        failed(world, op, &flight, status)
    }
}

/// Whether a host may use a namespace: its function has it, and is where its controller is.
/// `None` if that has changed since the command began, or nobody knows.
fn has(world: &World, flight: &Flight) -> Option<bool> {
    let (space, function) = (&world.spaces[&flight.nsid], &world.functions[&function_of(flight.host)]);
    let is_known = !space.is_moving && !function.is_changing;
    let is_old = flight.begun > space.since.max(function.since);
    let is_here = function.is_online && function.port == Some(flight.port);
    (is_known && is_old).then_some(is_here && space.owner == Some(function_of(flight.host)))
}

/// A command has done something: nobody else may.
fn check_right(world: &World, op: Op, flight: &Flight) -> Result<(), Failure> {
    let Flight { host, nsid, kind, .. } = flight;
    if has(world, flight) == Some(false) {
        return fail(format!("{op}: {kind:?} of host {host} to namespace {nsid}, which its function has not"));
    }
    match world.spaces[nsid].reservation {
        Reservation::Held { host: holder, since }
            if *kind == Kind::Write && holder != *host && flight.begun > since && !flight.is_over =>
        {
            fail(format!("{op}: host {host} has written to namespace {nsid}, which host {holder} has reserved"))
        }
        _ => Ok(()),
    }
}

fn succeeded(world: &mut World, op: Op, flight: &Flight, data: &[u8]) -> Result<(), Failure> {
    let now = world.rig.now();
    let Some(space) = world.spaces.get_mut(&flight.nsid) else { return Ok(()) };
    let range = flight.range.clone();
    match flight.kind {
        Kind::Read => {
            let wrong = |wrong: Wrong| Failure(format!("{op}, of host {}: {}", flight.host, wrong.0));
            space.blocks.read(op, range, data, now).map_err(wrong)?;
            world.rig.count("reads compared");
        }
        // What is there since is the next owner's.
        Kind::Write if flight.is_over => {}
        Kind::Write => space.blocks.end(op, range, false, now),
        Kind::Flush => space.blocks.flushed(flight.begun, now),
        Kind::Acquire if !flight.is_over => {
            space.reservation = Reservation::Held { host: flight.host, since: now };
            world.rig.count("reservations");
        }
        Kind::Clear if !flight.is_over => space.reservation = Reservation::Free { since: now },
        Kind::Register | Kind::Acquire | Kind::Clear => {}
    }
    Ok(())
}

fn failed(world: &mut World, op: Op, flight: &Flight, status: Status) -> Result<(), Failure> {
    let now = world.rig.now();
    let has = has(world, flight);
    let is_slow = DISK_STATUSES.iter().any(|one| status.is(*one)) || world.rig.may_fail(flight.at);
    let is_live = world.hosts[flight.host].is_live();
    let Some(space) = world.spaces.get_mut(&flight.nsid) else { return Ok(()) };
    space.blocks.end_read(op);
    let is_conflict = status.is(Status::RESERVATION_CONFLICT);
    match flight.kind {
        Kind::Write if flight.is_over => {}
        Kind::Write if is_conflict => space.blocks.refuse(op, flight.range.clone()),
        Kind::Write => space.blocks.end_unknown(op, flight.range.clone(), now),
        _ => {}
    }
    if world.rig.is_comparing && flight.kind == Kind::Read {
        world.unread.push((flight.nsid, flight.range.start));
    }
    let may_conflict = match space.reservation {
        Reservation::Free { since } => flight.begun < since,
        Reservation::Held { host, .. } => host != flight.host,
        Reservation::Unsure => true,
    };
    if is_conflict && may_conflict {
        world.rig.count("conflicts");
        return Ok(());
    }
    if has != Some(true) || !is_live || is_slow {
        world.rig.count("errors");
        return Ok(());
    }
    let Flight { kind, host, nsid, .. } = flight;
    fail(format!("{op}: {kind:?} of namespace {nsid} by host {host} fails without a reason: {status}"))
}

/// Reads every namespace that hosts can reach, when nothing is under way.
pub(super) fn compare(world: &mut World) -> Result<(), Failure> {
    world.rig.note(|| "everything is read".to_owned());
    world.rig.is_comparing = true;
    let compared = read_all(world);
    world.rig.is_comparing = false;
    compared
}

fn read_all(world: &mut World) -> Result<(), Failure> {
    let is_reached = |owner: Option<u16>| owner.is_some_and(|owner| world.is_there(owner));
    let reached = world.spaces.iter().filter(|(_, space)| is_reached(space.owner));
    let reached: Vec<u32> = reached.map(|(&nsid, _)| nsid).collect();
    world.unread.clear();
    for nsid in reached {
        let mut lbas: Vec<u64> = world.spaces[&nsid].blocks.written().collect();
        lbas.extend((0..BLOCKS).map(lba));
        lbas.sort_unstable();
        lbas.dedup();
        world.unread.extend(lbas.into_iter().map(|lba| (nsid, lba)));
    }
    let end = world.rig.clock.now() + PATIENCE;
    while let Some((nsid, lba)) = world.unread.pop() {
        if world.rig.clock.now() > end {
            return fail(format!("block {lba} of namespace {nsid} cannot be read, at rest"));
        }
        let Some(owner) = world.spaces[&nsid].owner else { continue };
        let from = world.rig.chances.index(HOSTS);
        let mut reader = None;
        if !world.until("a host of a function", |world| {
            reader = world.host_at(owner, from);
            reader.is_some()
        })? {
            return Ok(());
        }
        let Some(host) = reader else { continue };
        let op = world.rig.number();
        let sqe = BlockRange::new(lba, 1).encode(nvm::READ, Nsid(nsid));
        send(world, op, host, nsid, Kind::Read, lba..lba + 1, Command { sqe, data: None, read_bytes: BLOCK_BYTES });
        if !world.until("a read", |world| !world.flights.contains_key(&op))? {
            return Ok(());
        }
    }
    world.rig.count("comparisons");
    Ok(())
}
