//! What happens to hosts: commands that end, are lost or can do nothing any more, and connections
//! that are new.

use std::collections::{BTreeMap, BTreeSet};

use super::{Flight, Kind, World, compare, io, learn, lives, manage, proofs, replay, reserve};
use crate::host::{Event, Host};
use crate::model::{Op, serial};
use crate::story::{Failure, fail};

/// Handles an event of a host.
pub(super) fn on_event(world: &mut World, host: usize, event: Event) -> Result<(), Failure> {
    match event {
        Event::Ended(op, ended) => world.ended(op, &ended),
        Event::Lost(ops) => {
            world.rig.note(|| format!("host {host} has lost its connections, with {ops:?}"));
            let is_leaving = matches!(&world.hosts[host], Host::Raw(raw) if raw.is_leaving());
            replay::keep_waiting(world, &ops);
            for op in ops {
                let Some(flight) = world.flights.remove(&op) else { continue };
                let flight = Flight { is_cut_off: is_leaving, ..flight };
                if let Some(space) = world.spaces.get_mut(&flight.nsid) {
                    space.blocks.end_read(op);
                }
                compare::forget_compared(world, op);
                if world.rig.is_comparing && flight.kind == Kind::Read {
                    let (nsid, range) = (flight.nsid, flight.range.clone());
                    world.unread.push(io::Unread { nsid, range, conflicts: false });
                }
                manage::lost(world, op, &flight);
                world.scans.remove(&op);
                // Its time-out has passed: whether it is done yet is known when the controller
                // was reset.
                if flight.kind == Kind::Manage && world.hosts[host].is_live() {
                    world.hosts[host].leave(false, true, world.rig.clock.now());
                }
                world.ghosts.insert(op, flight);
            }
            Ok(())
        }
        Event::Refused(op, why) => learn::refused(world, op, &why),
        Event::Settled => {
            confirm_ended(world, "was told that its queues are closed", host, |_, flight| flight.host == host)
        }
        Event::Proven(begun) => proofs::proven(world, host, begun),
        Event::Denied(begun) => proofs::denied(world, host, begun),
        Event::SettledOnly(ops) => {
            world.threats.connected(host);
            world.rig.count("reconnects");
            confirm_ended(world, "has connected again", host, |op, _| ops.contains(&op))?;
            reserve::join_all(world, host);
            Ok(())
        }
        Event::Live => {
            world.rig.note(|| format!("host {host} is connected"));
            world.threats.connected(host);
            world.spaces.values_mut().for_each(|space| _ = space.strangers.insert(host));
            world.handles.retain(|(of, _), _| *of != host);
            replay::replay(world, host);
            learn::scan(world, host);
            world.rig.count("associations");
            if lives::is_over_rdma(world, host) {
                world.rig.count("associations over RDMA");
            }
            Ok(())
        }
    }
}

/// These of the commands whose connections are gone can do nothing any more.
pub(super) fn end_unknown(world: &mut World, which: impl Fn(Op, &Flight) -> bool) {
    let now = world.rig.now();
    let spaces = &mut world.spaces;
    let mut unregistered = Vec::new();
    world.ghosts.retain(|&op, flight| {
        let is_over = which(op, flight);
        if is_over && let Some(space) = spaces.get_mut(&flight.nsid) {
            space.blocks.end_unknown(op, flight.range.clone(), now);
        }
        unregistered.extend(flight.kind.unregisters().filter(|_| is_over).map(|host| (flight.nsid, host)));
        !is_over
    });
    unregistered.into_iter().for_each(|(nsid, host)| _ = reserve::unregister(world, nsid, host));
}

/// The same, as a host has it from the target: then no write of them is at the disk, nor comes
/// there.
pub(super) fn confirm_ended(
    world: &mut World,
    why: &str,
    host: usize,
    which: impl Fn(Op, &Flight) -> bool,
) -> Result<(), Failure> {
    let writes = world.ghosts.iter().filter(|(op, flight)| flight.is_write() && which(**op, flight));
    let mut serials: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (&op, flight) in writes {
        serials.entry(flight.nsid).or_default().insert(serial(op));
    }
    end_unknown(world, which);
    for (nsid, serials) in serials {
        if let Some(space) = world.spaces.get(&nsid) {
            world.rig.disk.bar(serials.iter().map(|&serial| space.blocks.mark(serial)));
        }
        if !at_disk(world, nsid, &serials).is_empty() {
            return fail(format!("host {host} {why}, and a write of before to namespace {nsid} is still at the disk"));
        }
    }
    Ok(())
}

/// Which of these writes to a namespace are at the disk, as far as that can be seen: where
/// blocks are encrypted it cannot.
pub(super) fn at_disk(world: &World, nsid: u32, serials: &BTreeSet<u32>) -> BTreeSet<u32> {
    let Some(space) = world.spaces.get(&nsid) else { return BTreeSet::new() };
    world.rig.disk.writes_under_way(|word| space.blocks.serial_in(word)).intersection(serials).copied().collect()
}
