//! Reservations. The model knows who is preempted: with Preempt and Abort nothing of him happens
//! once that is answered.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, Release,
    ReleaseAction, ReleaseKey,
};
use ebof_nvme::{Nsid, Status};
use zerocopy::IntoBytes;

use super::super::acts::Reserve;
use super::{Flight, Kind, World, command, events, io, learn};
use crate::model::{Op, serial};
use crate::story::{Failure, fail};

impl Kind {
    /// Whose registrations the command takes away, `None` for all; `None` for another command.
    pub(super) fn unregisters(self) -> Option<Option<usize>> {
        match self {
            Self::Preempt(victim) => Some(Some(victim)),
            Self::Unregister(victim) => Some(victim),
            _ => None,
        }
    }
}

pub(super) fn reserve(
    world: &mut World,
    host: usize,
    queue: usize,
    slot: usize,
    reserve: Reserve,
) -> Result<(), Failure> {
    let Some(nsid) = world.nsid(slot) else { return Ok(()) };
    if learn::comes_to_use(world, host, nsid)? {
        let reserve = match reserve {
            Reserve::Preempt { victim, kind, abort } => {
                Reserve::Preempt { victim: preempted_host(world, victim, host, nsid), kind, abort }
            }
            other => other,
        };
        send(world, host, queue, nsid, reserve);
    }
    Ok(())
}

/// Preempts a host that does not answer any more, where there is one, and wherever it is
/// registered: `host` does that, or another one that is registered there.
pub(super) fn fence(world: &mut World, host: usize, queue: usize, kind: u8, abort: bool) -> Result<(), Failure> {
    let Some(victim) = gone(world) else { return Ok(()) };
    let nsids: Vec<u32> = world.registered.iter().filter(|(_, host)| *host == victim).map(|&(nsid, _)| nsid).collect();
    for nsid in nsids {
        let hosts = world.hosts.len();
        let can = |host: &usize| world.hosts[*host].is_live() && world.registered.contains(&(nsid, *host));
        let Some(by) = (0..hosts).map(|at| (host + at) % hosts).find(can) else { continue };
        if learn::comes_to_use(world, by, nsid)? {
            send(world, by, queue, nsid, Reserve::Preempt { victim, kind, abort });
        }
    }
    Ok(())
}

/// In a cluster, a host registers with every namespace that it knows.
pub(super) fn join_all(world: &mut World, host: usize) {
    let known = world.spaces.iter().filter(|(_, space)| !space.strangers.contains(&host));
    let nsids: Vec<u32> = known.map(|(&nsid, _)| nsid).collect();
    nsids.into_iter().for_each(|nsid| join(world, host, nsid));
}

/// In a cluster, a host registers before it uses a namespace.
pub(super) fn join(world: &mut World, host: usize, nsid: u32) {
    let is_asking = |flight: &Flight| flight.host == host && flight.nsid == nsid && flight.kind == Kind::Register;
    let is_in = world.registered.contains(&(nsid, host)) || world.flights.values().any(is_asking);
    if world.is_cluster && !is_in && learn::may_use(world, host, nsid) {
        send(world, host, 1, nsid, Reserve::Register);
    }
}

/// A host that is registered somewhere and does not answer: the one that has most under way.
fn gone(world: &World) -> Option<usize> {
    let gone = world.registered.iter().filter(|(_, host)| !world.hosts[*host].is_live());
    gone.max_by_key(|&&(nsid, host)| count_of(world, host, nsid)).map(|&(_, host)| host)
}

/// Commands of a host to a namespace that may still be done.
fn count_of(world: &World, host: usize, nsid: u32) -> usize {
    let all = world.flights.values().chain(world.ghosts.values());
    all.filter(|flight| flight.host == host && flight.nsid == nsid).count()
}

fn send(world: &mut World, host: usize, queue: usize, nsid: u32, reserve: Reserve) {
    let op = world.rig.number();
    let (own, id) = (key(host), Nsid(nsid));
    let acquire = |action, kind| Acquire { action, ignore_existing_key: false, rtype: kind }.encode(id);
    let (kind, sqe, data) = match reserve {
        Reserve::Register => {
            let persistence = PersistenceChange::None;
            let sqe = Register { action: RegisterAction::Register, ignore_existing_key: true, persistence };
            let keys = RegisterKeys { crkey: 0.into(), nrkey: own.into() };
            (Kind::Register, sqe.encode(id), keys.as_bytes().to_vec())
        }
        Reserve::Acquire { kind } => {
            let keys = AcquireKeys { crkey: own.into(), prkey: 0.into() };
            (Kind::Reserve, acquire(AcquireAction::Acquire, kind), keys.as_bytes().to_vec())
        }
        Reserve::Preempt { victim, kind, abort } => {
            let keys = AcquireKeys { crkey: own.into(), prkey: key(victim).into() };
            let action = if abort { AcquireAction::PreemptAndAbort } else { AcquireAction::Preempt };
            let mut all = world.flights.values().chain(world.ghosts.values()).filter(|other| other.nsid == nsid);
            let concerns = |whose: Option<usize>| whose.is_none_or(|whose| whose == victim);
            let is_sure = !all.any(|other| other.kind.unregisters().is_some_and(concerns));
            let is_registered = unregister(world, nsid, Some(victim)) && is_sure;
            let aborts = abort && victim != host && is_registered;
            let what = if aborts { Kind::Preempt(victim) } else { Kind::Unregister(Some(victim)) };
            (what, acquire(action, kind), keys.as_bytes().to_vec())
        }
        Reserve::Release { kind } => {
            let release = Release { action: ReleaseAction::Release, ignore_existing_key: false, rtype: kind };
            (Kind::Reserve, release.encode(id), ReleaseKey { crkey: own.into() }.as_bytes().to_vec())
        }
        Reserve::Clear => {
            unregister(world, nsid, None);
            let release = Release { action: ReleaseAction::Clear, ignore_existing_key: false, rtype: 0 };
            (Kind::Unregister(None), release.encode(id), ReleaseKey { crkey: own.into() }.as_bytes().to_vec())
        }
    };
    let (begun, at) = (world.rig.now(), world.rig.clock.now());
    let preempts = match kind {
        Kind::Preempt(victim) => {
            let writes = writes_of(world, victim, nsid);
            events::at_disk(world, nsid, &writes)
        }
        _ => BTreeSet::new(),
    };
    let flight = Flight { preempts, ..Flight::new(host, nsid, kind, begun, at) };
    world.submit(op, host, queue, flight, command(sqe, Some(Arc::from(data)), 0));
    if let Some(space) = world.spaces.get_mut(&nsid) {
        space.is_reserved = true;
    }
}

/// Writes of a host to a namespace that may still be done, and that it does not repeat.
fn writes_of(world: &World, host: usize, nsid: u32) -> BTreeSet<u32> {
    let sent = world.flights.iter().filter(|(_, flight)| !flight.repeats);
    let all = sent.chain(&world.ghosts);
    let is_his = |flight: &Flight| flight.host == host && flight.nsid == nsid && flight.is_write();
    all.filter(|(_, flight)| is_his(flight)).map(|(&op, _)| serial(op)).collect()
}

/// This host, or the other one that has the most commands that may still be done.
fn preempted_host(world: &mut World, victim: usize, by: usize, nsid: u32) -> usize {
    if world.rig.chances.percent(50) {
        return victim;
    }
    let others = (0..world.hosts.len()).filter(|&host| host != by);
    others.max_by_key(|&one| (count_of(world, one, nsid), one == victim)).unwrap_or(victim)
}

/// Registrations of a namespace may be taken away from now on: of one host, or of all. Whether
/// that one was registered.
pub(super) fn unregister(world: &mut World, nsid: u32, host: Option<usize>) -> bool {
    let now = world.rig.now();
    let hosts = (0..world.hosts.len()).filter(|one| host.is_none_or(|host| host == *one));
    world.unregistered.extend(hosts.map(|host| ((nsid, host), now)));
    let was = host.is_some_and(|host| world.registered.contains(&(nsid, host)));
    world.registered.retain(|(of, whose)| *of != nsid || host.is_some_and(|host| host != *whose));
    was
}

pub(super) fn ended(world: &mut World, op: Op, flight: &Flight, status: Status) -> Result<(), Failure> {
    let whose = if let Kind::Preempt(victim) = flight.kind { victim } else { flight.host };
    let since = world.unregistered.get(&(flight.nsid, whose)).copied().unwrap_or_default();
    if let Some(host) = flight.kind.unregisters() {
        // What was registered since it was sent may be gone, too.
        unregister(world, flight.nsid, host);
    }
    if status.is_success() {
        world.rig.count("reservations");
        let is_sure = flight.begun > since;
        match flight.kind {
            Kind::Register if is_sure => _ = world.registered.insert((flight.nsid, flight.host)),
            Kind::Preempt(victim) if is_sure => return preempted(world, victim, flight),
            _ => {}
        }
        return Ok(());
    }
    let refused = status.is(Status::RESERVATION_CONFLICT) || status.is(Status::INVALID_FIELD);
    let is_unsure = world.spaces.get(&flight.nsid).is_none_or(|space| space.is_unsure);
    let may_fail = world.rig.may_fail(flight.at) || io::may_be_aborted(world, flight, status);
    if refused || may_fail || is_unsure || world.manage.is_sanitizing() {
        return Ok(());
    }
    Err(io::unexplained(op, flight, status))
}

/// A host's registration was taken away: its commands to the namespace are over that were at
/// the disk before, or whose connections the target had closed. What still travels may arrive
/// behind the preemption.
fn preempted(world: &mut World, victim: usize, by: &Flight) -> Result<(), Failure> {
    let (nsid, at_disk) = (by.nsid, &by.preempts);
    world.rig.note(|| format!("host {victim} was preempted, and its lost commands to namespace {nsid} are over"));
    world.rig.count("preempted");
    if !events::at_disk(world, nsid, at_disk).is_empty() {
        return fail(format!(
            "host {victim} was preempted, and a write of it to namespace {nsid} is still at the disk"
        ));
    }
    let is_his = |flight: &Flight| flight.host == victim && flight.nsid == nsid && flight.begun < by.begun;
    events::confirm_ended(world, "was preempted", victim, |op, flight| {
        is_his(flight) && (flight.is_cut_off || flight.is_write() && at_disk.contains(&serial(op)))
    })
}

/// The key of a host.
pub(super) fn key(host: usize) -> u64 {
    0x100 + host as u64
}
