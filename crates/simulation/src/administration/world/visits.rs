//! Hosts that come and go, and the controllers that they have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{World, look};
use crate::rig::System as _;
use crate::story::{Failure, fail};

/// Hosts that are connected at a time, at most, besides visitors.
const PRESENT_MAX: u64 = 8;
/// Hosts that connect together the first time.
const TOGETHER: usize = 64;
/// Hosts that connect only for a comparison.
const VISITORS: usize = 4;
/// How long a host stays away that is not asked to come.
const AWAY: Duration = Duration::from_secs(1 << 30);

/// Every host connects once, so that the drive assigns it a controller identifier; some stay.
pub(super) fn introduce(world: &mut World) -> Result<(), Failure> {
    let all: Vec<usize> = (0..world.hosts.len()).collect();
    for some in all.chunks(TOGETHER) {
        come(world, some)?;
        // When the drive's thread has answered, it has recorded all of their controllers.
        look::health(world, some[0])?;
        leave(world, some);
    }
    let count = usize::try_from(1 + world.rig.chances.below(PRESENT_MAX)).unwrap_or(1);
    let some = some_of_those_away(world, count);
    come(world, &some).map(drop)
}

/// Others come instead of some of those that are here.
pub(super) fn change_hosts(world: &mut World, percent: u64) -> Result<(), Failure> {
    let present: Vec<usize> = world.present.iter().copied().collect();
    let leaving: Vec<usize> = present.into_iter().filter(|_| world.rig.chances.percent(percent)).collect();
    let coming = some_of_those_away(world, leaving.len());
    if come(world, &coming)? {
        leave(world, &leaving[..coming.len()]);
    }
    Ok(())
}

/// Hosts are connected; `false` where the power goes before that.
pub(super) fn come(world: &mut World, hosts: &[usize]) -> Result<bool, Failure> {
    let now = world.rig.clock.now();
    for &host in hosts {
        world.present.insert(host);
        world.hosts[host].drop_all(now, Duration::ZERO);
    }
    are_here(world)
}

/// Waits until all hosts are connected; `false` where the power goes before that.
pub(super) fn are_here(world: &mut World) -> Result<bool, Failure> {
    world.until("hosts that connect", |world| world.present.iter().all(|&host| world.hosts[host].is_live()))
}

pub(super) fn leave(world: &mut World, hosts: &[usize]) {
    let now = world.rig.clock.now();
    for host in hosts {
        world.present.remove(host);
        world.informed.remove(host);
        world.hosts[*host].drop_all(now, AWAY);
    }
}

/// The hosts that connect for a comparison: some of these, and some others.
pub(super) fn visitors(world: &mut World, some: BTreeSet<usize>) -> Vec<usize> {
    let mut visitors = some;
    visitors.retain(|host| !world.present.contains(host));
    visitors = visitors.into_iter().take(VISITORS).collect();
    visitors.extend(some_of_those_away(world, VISITORS));
    visitors.into_iter().collect()
}

fn some_of_those_away(world: &mut World, count: usize) -> Vec<usize> {
    let away: Vec<usize> = (0..world.hosts.len()).filter(|host| !world.present.contains(host)).collect();
    let from = world.rig.chances.index(away.len());
    let count = count.min(away.len());
    away.into_iter().cycle().skip(from).take(count).collect()
}

/// A controller identifier that is assigned to a host, connected or not.
pub(super) fn cntlid(world: &World, host: usize) -> Option<u16> {
    let of = |cntlids: &BTreeMap<u16, usize>| cntlids.iter().find_map(|(&one, &its)| (its == host).then_some(one));
    of(&world.met).or_else(|| of(&world.cntlids))
}

/// A host has got a controller: its identifier must be one that is assigned to the host, or to
/// nobody.
pub(super) fn has_controller(world: &mut World, host: usize, cntlid: u16) -> Result<(), Failure> {
    if let Some(other) = world.cntlids.get(&cntlid).filter(|other| **other != host) {
        return fail(format!("host {host} has controller {cntlid}, which the drive has to remember as host {other}'s"));
    }
    // In the same life the previous controller may still be there; the host gets another then.
    let is_first = world.met.values().all(|other| *other != host);
    let is_known = world.cntlids.values().any(|other| *other == host);
    if is_first && is_known && !world.cntlids.contains_key(&cntlid) {
        return fail(format!("host {host} has controller {cntlid}, and had another one that is free"));
    }
    // If a host leaves before its assignment is recorded, another may get the identifier.
    world.met.insert(cntlid, host);
    Ok(())
}
