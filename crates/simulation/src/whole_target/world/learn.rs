//! What a host finds out about a namespace before it uses it, as hosts do: one that came in the
//! place of another is not shown, and its commands are refused, until the host has identified it.

use std::collections::BTreeSet;
use std::time::Duration;

use ebof_nvme::identify::{Cns, IdentifyNamespace, NamespaceList};
use ebof_nvme::io::BlockRange;
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::FromBytes;

use super::{Flight, Kind, World, command, compare, io, replay, reserve};
use crate::host::Host;
use crate::model::Op;
use crate::rig::System as _;
use crate::story::{Failure, fail};
use crate::transport::wire::CompletedCommand;

/// After a change of a namespace, for so long an initiator may take it for another one, or for
/// gone.
const HEARD: Duration = Duration::from_secs(5);

/// An initiator asks by itself. The target may have answered before the namespace was made, and the
/// answer may be on its way for so long: then the target takes the host for one that knows.
const ASKED: Duration = Duration::from_secs(1);

/// Whether a host may use a namespace now; has it ask what that is where it does not know.
pub(super) fn may_use(world: &mut World, host: usize, nsid: u32) -> bool {
    let Some(space) = world.spaces.get(&nsid) else { return false };
    if space.is_unsure || !world.hosts[host].is_live() || world.manage.is_sanitizing() {
        return false;
    }
    if !space.strangers.contains(&host) {
        return true;
    }
    // It queries again when it has given up what it held.
    if replay::holds_another(world, host, nsid) {
        return false;
    }
    // The initiator leaves blocks with metadata alone.
    if space.format > 1 && world.hosts[host].is_initiator() {
        return false;
    }
    let is_asking =
        |flight: &Flight| flight.host == host && matches!(flight.kind, Kind::Learn | Kind::Prepare | Kind::Sight);
    if !world.flights.values().any(is_asking) {
        learn(world, host, nsid);
    }
    false
}

/// A host has asked, or is another one to the controller: it knows what is where.
pub(super) fn forget_stale(world: &mut World, host: usize) {
    world.asked.insert(host, world.rig.clock.now());
    world.stale.values_mut().for_each(|hosts| _ = hosts.remove(&host));
}

/// A namespace is gone; `by` is who had it deleted, where that is known.
pub(super) fn remove_space(world: &mut World, nsid: u32, by: Option<usize>) {
    let Some(space) = world.spaces.remove(&nsid) else { return };
    if let Some(by) = by {
        let is_raw = |host: &usize| !world.hosts[*host].is_initiator();
        let hosts = (0..world.hosts.len()).filter(is_raw);
        // Who has asked since the command was sent may have received it.
        let has_asked = |host: &usize| world.asked.get(host).is_some_and(|asked| world.manage.is_begun_by(*asked));
        let knew = hosts.filter(|host| *host != by && !space.strangers.contains(host) && !has_asked(host));
        world.stale.entry(nsid).or_default().extend(knew);
    } else {
        world.stale.remove(&nsid);
    }
}

/// Has a host use a number for what it was, where that is another namespace now.
pub(super) fn read_stale(world: &mut World, host: usize, queue: usize, nsid: u32) -> bool {
    // Of an initiator that holds at any time; others may have received nothing yet.
    let is_known = world.hosts[host].is_initiator() || world.manage.is_idle();
    if !is_stale(world, host, nsid) || !is_known || !world.hosts[host].is_live() || world.rig.chances.percent(40) {
        return false;
    }
    let op = world.rig.number();
    let (begun, at) = (world.rig.now(), world.rig.clock.now());
    let flight = Flight { range: 0..1, ..Flight::new(host, nsid, Kind::Stale, begun, at) };
    let known = world.handles.get(&(host, nsid)).map(|(_, format)| world.coding(*format).block_bytes());
    let bytes = known.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(world.spaces[&nsid].blocks.block_bytes);
    let sqe = BlockRange::new(0, 1).encode(nvm::READ, Nsid(nsid));
    world.submit(op, host, queue, flight, command(sqe, None, bytes))
}

/// Whether a host that uses a number as it knows it must not reach what is there now.
fn is_stale(world: &World, host: usize, nsid: u32) -> bool {
    // An initiator keeps to what it has opened, whatever it has asked since.
    let is_other =
        |&(identity, _): &(u32, usize)| world.spaces.get(&nsid).is_some_and(|space| space.identity != identity);
    world.handles.get(&(host, nsid)).is_some_and(is_other)
        || world.stale.get(&nsid).is_some_and(|hosts| hosts.contains(&host)) && !is_asking(world, host)
}

/// Whether a host waits for what it has asked: that may have been answered already.
fn is_asking(world: &World, host: usize) -> bool {
    let asks =
        |flight: &Flight| flight.host == host && matches!(flight.kind, Kind::Learn | Kind::Prepare | Kind::Sight);
    world.flights.values().any(asks)
}

/// An initiator does not send a command, for what it knows of the namespace.
pub(super) fn refused(world: &mut World, op: Op, why: &str) -> Result<(), Failure> {
    let Some(flight) = world.flights.remove(&op) else { return fail(format!("{op} has ended twice")) };
    world.rig.note(|| format!("{op}: {:?} of host {} is not sent: {why}", flight.kind, flight.host));
    world.rig.count("not sent");
    let (tick, now) = (world.rig.now(), world.rig.clock.now());
    compare::forget_compared(world, op);
    let Flight { host, nsid, kind, ref range, .. } = flight;
    let handle = world.handles.get(&(host, nsid)).copied();
    let is_changing = !world.manage.is_idle();
    let Some(space) = world.spaces.get_mut(&nsid) else { return Ok(()) };
    space.blocks.end_read(op);
    // What is repeated may have been done before.
    space.blocks.end_unknown(op, range.clone(), tick);
    space.strangers.insert(host);
    let is_other = handle != Some((space.identity, space.format));
    let is_explained = is_changing || is_other || space.is_unsure || now < space.changed + HEARD;
    if is_explained || matches!(kind, Kind::Stale | Kind::Learn) {
        return Ok(());
    }
    fail(format!("{op}: {kind:?} {range:?} of namespace {nsid} by host {host} is not sent without a reason: {why}"))
}

pub(super) fn stale_ended(world: &mut World, flight: &Flight, status: Status) -> Result<(), Failure> {
    // It may have asked meanwhile.
    let is_stale = is_stale(world, flight.host, flight.nsid);
    let is_new = world.spaces.get(&flight.nsid).is_none_or(|space| flight.at < space.changed + ASKED);
    let may_have_asked = world.hosts[flight.host].is_initiator() && is_new;
    if status.is_success() && is_stale && !may_have_asked {
        let Flight { host, nsid, .. } = flight;
        return fail(format!("host {host} reads another namespace under the number {nsid} of one that it knew"));
    }
    world.rig.count("stale reads");
    Ok(())
}

/// The same; a host that does not know it mostly waits for what it asks.
pub(super) fn comes_to_use(world: &mut World, host: usize, nsid: u32) -> Result<bool, Failure> {
    for _ in 0..world.rig.chances.below(100) {
        if may_use(world, host, nsid) {
            return Ok(true);
        }
        if !is_asking(world, host) {
            break;
        }
        world.step()?;
    }
    Ok(may_use(world, host, nsid))
}

/// A host queries what there is, as hosts do when they are connected.
pub(super) fn scan(world: &mut World, host: usize) {
    let nsids: Vec<u32> = world.spaces.keys().copied().collect();
    ask(world, host, &nsids);
}

/// Reads which namespaces have changed, which there are, and what this one is.
fn learn(world: &mut World, host: usize, nsid: u32) {
    ask(world, host, &[nsid]);
}

fn ask(world: &mut World, host: usize, nsids: &[u32]) {
    forget_stale(world, host);
    if let Host::Initiator(initiator) = &mut world.hosts[host] {
        for &nsid in nsids {
            let op = world.rig.number();
            if initiator.open(op, Nsid(nsid)) {
                let flight = Flight::new(host, nsid, Kind::Learn, world.rig.now(), world.rig.clock.now());
                world.flights.insert(op, flight);
            }
        }
        return;
    }
    let Some(&first) = nsids.first() else { return };
    let log = GetLogPage::new(Lid::CHANGED_NAMESPACES, 4096).encode(Nsid::ALL);
    query_step(world, host, Kind::Prepare, first, log);
    if let Some(op) = query_step(world, host, Kind::Prepare, first, identify(Cns::ACTIVE_NAMESPACE_LIST, 0)) {
        world.scans.insert(op, nsids.to_vec());
    }
}

/// Sends a command of a scan.
fn query_step(world: &mut World, host: usize, kind: Kind, nsid: u32, sqe: Sqe) -> Option<Op> {
    let op = world.rig.number();
    let flight = Flight::new(host, nsid, kind, world.rig.now(), world.rig.clock.now());
    world.submit(op, host, 0, flight, command(sqe, None, 4096)).then_some(op)
}

/// A host has listed its namespaces: of these it looks at those that are in the list, and what
/// is not there is gone for it.
fn listed_by(world: &mut World, host: usize, wanted: &[u32], data: &[u8]) -> Result<(), Failure> {
    let list = NamespaceList::read_from_bytes(data).map_err(|error| Failure(error.to_string()))?;
    let there: BTreeSet<u32> = list.iter().map(|nsid| nsid.0).collect();
    replay::forget_waiting(world, host, |nsid| !there.contains(&nsid));
    for &nsid in wanted.iter().filter(|nsid| there.contains(nsid)) {
        // As Linux does: it identifies once more only what it keeps.
        query_step(world, host, Kind::Sight, nsid, identify(Cns::NAMESPACE_ID_DESCRIPTORS, nsid));
        query_step(world, host, Kind::Sight, nsid, identify(Cns::INDEPENDENT_NAMESPACE, nsid));
        if !replay::holds_another(world, host, nsid) {
            query_step(world, host, Kind::Learn, nsid, identify(Cns::NAMESPACE, nsid));
        }
    }
    Ok(())
}

pub(super) fn ended(world: &mut World, op: Op, flight: &Flight, ended: &CompletedCommand) -> Result<(), Failure> {
    let status = ended.cqe.status();
    // What went while it asked may have been gone when it was answered.
    forget_stale(world, flight.host);
    if !status.is_success() {
        // It may be gone, or not be shown yet.
        let is_there = world.spaces.contains_key(&flight.nsid) && flight.kind == Kind::Prepare;
        let may_fail = world.rig.may_fail(flight.at) || io::may_be_aborted(world, flight, status);
        if !is_there || may_fail || world.manage.is_sanitizing() {
            return Ok(());
        }
        return Err(io::unexplained(op, flight, status));
    }
    if let Some(wanted) = world.scans.remove(&op) {
        return listed_by(world, flight.host, &wanted, &ended.data);
    }
    if flight.kind == Kind::Sight {
        replay::found(world, flight.host, flight.nsid);
    }
    if flight.kind == Kind::Learn {
        // Which one an initiator has opened now is not known yet.
        world.handles.remove(&(flight.host, flight.nsid));
        let shape = IdentifyNamespace::read_from_bytes(&ended.data).map_err(|error| Failure(error.to_string()))?;
        if let Some(space) = world.spaces.get_mut(&flight.nsid)
            && (usize::from(shape.flbas & 0xf), shape.nsze.get()) == (space.format, space.count)
            && flight.begun > space.born
        {
            space.strangers.remove(&flight.host);
            if world.hosts[flight.host].is_initiator() {
                world.handles.insert((flight.host, flight.nsid), (space.identity, space.format));
            }
            reserve::join(world, flight.host, flight.nsid);
        }
    }
    Ok(())
}

fn identify(cns: Cns, nsid: u32) -> Sqe {
    Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)).with_cdw(10, u32::from(cns.0))
}
