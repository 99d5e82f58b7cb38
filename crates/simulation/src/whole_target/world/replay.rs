//! Hosts that repeat what waited as soon as they are connected again, as Linux does, and look at
//! the namespaces afterwards: another one may have come under the number.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Status};

use super::super::acts::{BLOCKS, HOSTS};
use super::{Flight, Kind, World, command, events, io, manage};
use crate::host::Host;
use crate::model::{Blocks, Op, Tick, serial};
use crate::random::Random;
use crate::rig::System as _;
use crate::story::{Failure, fail};

/// How often a host repeats a write.
const TRIES: u8 = 5;

/// How long it waits between that.
const DELAY: Duration = Duration::from_secs(1);

/// A write that a host repeats.
#[derive(Clone, Debug)]
pub(super) struct RepeatedWrite {
    host: usize,
    nsid: u32,
    /// The namespace that it is meant for, and since when that has this format.
    identity: u32,
    born: Tick,
    /// Whose blocks are written.
    owner: u16,
    block_bytes: usize,
    range: Range<u64>,
    tries: u8,
    at: Instant,
}

/// Writes of lost connections that hosts repeat.
pub(super) struct Replays {
    /// Hosts that do so.
    hosts: BTreeSet<usize>,
    /// What they would repeat of what is under way.
    repeatable: BTreeMap<Op, RepeatedWrite>,
    /// What waits for that.
    waiting: Vec<RepeatedWrite>,
}

impl Replays {
    /// Some of these hosts are such ones.
    pub(super) fn choose(hosts: &[Host], random: &mut Random) -> Self {
        let raw = (0..hosts.len()).filter(|&host| !hosts[host].is_initiator());
        let hosts = raw.filter(|_| random.percent(60)).collect();
        Self { hosts, repeatable: BTreeMap::new(), waiting: Vec::new() }
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// A write that is under way is one to this namespace, if its host may repeat it.
pub(super) fn note_write(world: &mut World, op: Op, flight: &Flight) {
    if !flight.is_write() || !world.replays.hosts.contains(&flight.host) || world.rig.is_comparing {
        return;
    }
    if let Some(waiting) = repeated_write(world, flight.host, flight.nsid, flight.range.clone()) {
        world.replays.repeatable.insert(op, waiting);
    }
}

/// A write to what this number names now.
fn repeated_write(world: &World, host: usize, nsid: u32, range: Range<u64>) -> Option<RepeatedWrite> {
    let space = world.spaces.get(&nsid)?;
    let (owner, block_bytes) = (space.blocks.owner, space.blocks.block_bytes);
    let (identity, born, at) = (space.identity, space.born, world.rig.clock.now());
    Some(RepeatedWrite { host, nsid, identity, born, owner, block_bytes, range, tries: 0, at })
}

/// A host is away, with writes that wait, while another one deletes the namespace that they are
/// meant for and makes another one, mostly under its number.
pub(super) fn swap(world: &mut World, host: usize, slot: usize, block: u64, pause: Duration) -> Result<(), Failure> {
    let Some(nsid) = world.nsid(slot) else { return Ok(()) };
    let space = &world.spaces[&nsid];
    let knows = |host: &usize| world.hosts[*host].is_live() && !space.strangers.contains(host);
    let mut hosts = (0..HOSTS).map(|at| (host + at) % HOSTS).filter(|host| world.replays.hosts.contains(host));
    let Some(away) = hosts.find(knows).filter(|_| !space.is_unsure) else { return Ok(()) };
    let (format, now) = (space.format, world.rig.clock.now());
    let lost = world.hosts[away].drop_all(now, pause);
    lost.into_iter().try_for_each(|event| events::on_event(world, away, event))?;
    for block in block..block + 3 {
        let first = io::lba(world, nsid, block % BLOCKS);
        if let Some(waiting) = repeated_write(world, away, nsid, first..first + 1) {
            world.replays.waiting.push(waiting);
        }
    }
    let by = (away + 1) % HOSTS;
    manage::delete(world, by, slot)?;
    if world.until("a namespace that is deleted", |world| world.manage.is_idle())? {
        manage::create(world, by, format)?;
    }
    Ok(())
}

/// A command has ended: there is nothing to repeat.
pub(super) fn forget_repeatable(world: &mut World, op: Op, flight: &Flight) {
    if !matches!(flight.kind, Kind::Replay(_)) {
        world.replays.repeatable.remove(&op);
    }
}

/// The connections of these commands are gone.
pub(super) fn keep_waiting(world: &mut World, ops: &[Op]) {
    let now = world.rig.clock.now();
    world.replays.waiting.extend(
        ops.iter().filter_map(|op| world.replays.repeatable.remove(op)).map(|waiting| RepeatedWrite {
            at: now,
            tries: 0,
            ..waiting
        }),
    );
}

/// Whether the host holds another namespace under this number, and has not given it up.
pub(super) fn holds_another(world: &World, host: usize, nsid: u32) -> bool {
    let is_one = |one: &&RepeatedWrite| one.host == host && one.nsid == nsid;
    let mut waiting = world.replays.waiting.iter().chain(world.replays.repeatable.values()).filter(is_one);
    waiting.any(|one| !is_still_meant(world, one))
}

fn is_still_meant(world: &World, waiting: &RepeatedWrite) -> bool {
    let space = world.spaces.get(&waiting.nsid);
    space.is_some_and(|space| (space.identity, space.born) == (waiting.identity, waiting.born))
}

/// A host has found what is under this number: what waits for another one is tried once more.
pub(super) fn found(world: &mut World, host: usize, nsid: u32) {
    let space = world.spaces.get(&nsid).map(|space| (space.identity, space.born));
    let waits = |one: &&mut RepeatedWrite| one.host == host && one.nsid == nsid;
    for waiting in world.replays.waiting.iter_mut().filter(waits) {
        if space != Some((waiting.identity, waiting.born)) {
            waiting.tries = waiting.tries.max(TRIES - 1);
        }
    }
}

/// A host has found that these are gone: what waits for them ends.
pub(super) fn forget_waiting(world: &mut World, host: usize, is_gone: impl Fn(u32) -> bool) {
    let ends = |one: &RepeatedWrite| one.host == host && is_gone(one.nsid);
    world.replays.waiting.retain(|one| !ends(one));
    world.replays.repeatable.values_mut().filter(|one| ends(one)).for_each(|one| one.tries = TRIES);
}

/// When a write is to be repeated.
pub(super) fn due(world: &World) -> Option<Instant> {
    world.replays.waiting.iter().filter(|one| world.hosts[one.host].is_live()).map(|one| one.at).min()
}

/// A host repeats what it is time for.
pub(super) fn replay(world: &mut World, host: usize) {
    let now = world.rig.clock.now();
    if !world.hosts[host].is_live() {
        return;
    }
    let is_due = |one: &RepeatedWrite| one.host == host && one.at <= now;
    let (due, rest): (Vec<RepeatedWrite>, Vec<RepeatedWrite>) =
        std::mem::take(&mut world.replays.waiting).into_iter().partition(is_due);
    world.replays.waiting = rest;
    for waiting in due {
        send_again(world, waiting);
    }
}

fn send_again(world: &mut World, waiting: RepeatedWrite) {
    let RepeatedWrite { host, nsid, owner, block_bytes, ref range, .. } = waiting;
    let is_meant = is_still_meant(world, &waiting);
    let is_formatted = world.spaces.get(&nsid).is_some_and(|space| space.identity == waiting.identity) && !is_meant;
    let is_unsure = world.spaces.get(&nsid).is_some_and(|space| space.is_unsure);
    if is_formatted || is_unsure || !world.manage.is_idle() {
        world.rig.count("replays given up");
        return;
    }
    let op = world.rig.number();
    let (begun, at) = (world.rig.now(), world.rig.clock.now());
    let data = Blocks::new(owner, block_bytes, true).bytes(range, serial(op));
    let blocks = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
    let sqe = BlockRange::new(range.start, blocks).encode(nvm::WRITE, Nsid(nsid));
    let flight = Flight { range: range.clone(), ..Flight::new(host, nsid, Kind::Replay(is_meant), begun, at) };
    if !world.submit(op, host, 1, flight, command(sqe, Some(Arc::from(data)), 0)) {
        let at = at + DELAY;
        world.replays.waiting.push(RepeatedWrite { at, ..waiting });
        return;
    }
    if is_meant {
        io::begin_write(world, op, nsid, range.clone(), begun);
    }
    world.replays.repeatable.insert(op, waiting);
}

pub(super) fn ended(world: &mut World, op: Op, flight: &Flight, status: Status) -> Result<(), Failure> {
    let Some(waiting) = world.replays.repeatable.remove(&op) else { return Ok(()) };
    let Kind::Replay(is_meant) = flight.kind else { return Ok(()) };
    let RepeatedWrite { host, nsid, ref range, tries, .. } = waiting;
    let now = world.rig.now();
    world.rig.count(if is_meant { "replays" } else { "replays that another namespace is behind" });
    if status.is_success() && !is_meant {
        return fail(format!(
            "{op}: what waited of host {host} for a namespace {nsid} of before is written to another one"
        ));
    }
    let is_gated = status.is(Status::NAMESPACE_NOT_READY);
    let is_still = is_still_meant(world, &waiting);
    if let Some(space) = world.spaces.get_mut(&nsid).filter(|_| is_meant && is_still) {
        match status.ok() {
            Ok(()) => space.blocks.end(op, range.clone(), false, now),
            Err(_) if is_gated => space.blocks.refuse(op, range.clone()),
            Err(_) => space.blocks.end_unknown(op, range.clone(), now),
        }
    }
    if is_gated && tries < TRIES {
        world.rig.count("replays told to wait");
        world.replays.waiting.push(RepeatedWrite { tries: tries + 1, at: world.rig.clock.now() + DELAY, ..waiting });
    }
    Ok(())
}
