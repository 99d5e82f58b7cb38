//! How lives of a target begin and end, and what hosts find then.

use std::time::Duration;

use super::{Kind, World, events, io, liar, reserve};
use crate::host::{Host, InitiatorHost};
use crate::model::{BlockValue, serial};
use crate::rig::System as _;
use crate::story::Failure;
use crate::target_life::Life;

pub(super) fn open(world: &mut World) -> Result<(), Failure> {
    let nsids: Vec<u32> = world.spaces.keys().copied().collect();
    nsids.into_iter().for_each(|nsid| _ = reserve::unregister(world, nsid, None));
    begin_life(world)?;
    let port = world.life.as_ref().map(Life::port);
    initiators(world).for_each(|host| host.reach().set_target(port.clone()));
    resume(world);
    world.manage.doubt(world.rig.clock.now());
    if let Some(failed) = &mut world.failed_change {
        failed.is_restarted = true;
    }
    if !world.until("hosts that are connected", |world| {
        world.manage.is_idle() && world.replays.is_empty() && world.hosts.iter().all(Host::is_live)
    })? {
        return Ok(());
    }
    io::compare(world)
}

/// Starts the target, in some cases with another configuration. Sometimes the system has not
/// all that it needs: then it does not start, and does the next time.
fn begin_life(world: &mut World) -> Result<(), Failure> {
    world.fabric.restore_device();
    if world.rig.chances.percent(40) {
        world.setting.encrypts = !world.setting.encrypts;
        world.setting.checks |= world.setting.encrypts && world.rig.profile.sector_bytes == 512;
    }
    if world.rig.chances.percent(10) {
        let ios_max = world.rig.chances.index(6);
        match open_life(world, Some(ios_max)) {
            Ok(life) => {
                world.life = Some(life);
                return Ok(());
            }
            Err(Failure(why)) => world.rig.note(|| format!("with {ios_max} of what it asks for: {why}")),
        }
        world.rig.count("failed starts");
        // What it had begun is done, or not.
        world.rig.disk.end(None);
    }
    world.life = Some(open_life(world, None)?);
    Ok(())
}

fn open_life(world: &World, ios_max: Option<usize>) -> Result<Life, Failure> {
    let surroundings = (Some(&world.fabric), world.proofs.as_ref().map(|proofs| &proofs.keys));
    Life::open(&world.rig.disk, &world.rig.clock, world.setting, ios_max, surroundings)
}

/// Whether the queues of a host are over RDMA.
pub(super) fn is_over_rdma(world: &World, host: usize) -> bool {
    match &world.hosts[host] {
        Host::Raw(_) => world.over_rdma[host],
        Host::Initiator(initiator) => initiator.is_over_rdma(),
    }
}

pub(super) fn initiators(world: &World) -> impl Iterator<Item = &InitiatorHost> {
    world.hosts.iter().filter_map(|host| match host {
        Host::Initiator(host) => Some(&**host),
        Host::Raw(_) => None,
    })
}

/// The target is gone, and all connections with it. Initiators come back by themselves.
pub(super) fn drop_hosts(world: &mut World, at_once: bool) -> Result<(), Failure> {
    liar::threaten_all(world);
    world.liar.clear();
    if at_once {
        world.fabric.cut();
    }
    for host in initiators(world) {
        host.reach().set_target(None);
        if at_once {
            host.reach().cut();
        }
    }
    let now = world.rig.clock.now();
    for host in 0..world.hosts.len() {
        if world.hosts[host].is_initiator() {
            continue;
        }
        let lost = world.hosts[host].drop_all(now, Duration::from_millis(1));
        lost.into_iter().try_for_each(|event| events::on_event(world, host, event))?;
    }
    events::end_unknown(world, |_, _| true);
    Ok(())
}

/// What hosts repeat until it has ended is under way in the next life, too.
fn resume(world: &mut World) {
    let now = world.rig.now();
    for (&op, flight) in world.flights.iter().filter(|(_, flight)| flight.repeats) {
        world.rig.count("taken over");
        let Some(space) = world.spaces.get_mut(&flight.nsid) else { continue };
        let range = flight.range.clone();
        match flight.kind {
            Kind::Read => space.blocks.begin_read(op, now),
            Kind::Write { .. } => space.blocks.begin(op, range, BlockValue::Write(serial(op)), now),
            Kind::Zero => space.blocks.begin(op, range, BlockValue::Zeros, now),
            _ => {}
        }
    }
}
