//! How lives of a drive begin and end, and what has to be there then.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ebof_medium::Store;

use super::super::acts::{BLOCKS, SLOTS};
use super::super::life::Life;
use super::{CAPACITY, World};
use crate::random::mix;
use crate::rig::{EXTENT, System as _};
use crate::story::{Failure, fail};

pub(super) fn open(world: &mut World) -> Result<(), Failure> {
    let life = Life::open(&world.rig.disk, &world.rig.clock, false)?;
    let commits = life.state.load(Ordering::SeqCst);
    let (sure, one_more) = world.commits;
    if commits != sure && !(one_more && commits == sure + 1) {
        return fail(format!("{commits} commits, {sure} were acknowledged"));
    }
    world.commits = (commits, false);
    world.life = Some(life);
    check_namespaces(world)?;
    compare(world)
}

/// Which namespaces there are.
pub(super) fn check_namespaces(world: &mut World) -> Result<(), Failure> {
    let Some(life) = &world.life else { return Ok(()) };
    let there: Vec<u64> = life.medium.volumes().iter().map(|volume| volume.0).collect();
    if let Some(name) = there.iter().find(|name| !world.names.contains_key(name)) {
        return fail(format!("namespace {name} is there, and should not be"));
    }
    if let Some((name, _)) = world.names.iter().find(|(name, one)| one.is_sure && !there.contains(name)) {
        return fail(format!("namespace {name} is gone"));
    }
    world.names.retain(|name, _| there.contains(name));
    world.names.values_mut().for_each(|name| name.is_sure = true);
    world.slots.retain(|_, name| there.contains(name));
    for name in there {
        let free = (0..SLOTS + 60).find(|slot| !world.slots.contains_key(slot));
        if let Some(slot) = free.filter(|_| !world.slots.values().any(|other| *other == name)) {
            world.slots.insert(slot, name);
        }
    }
    Ok(())
}

/// Reads everything, when nothing is under way.
pub(super) fn compare(world: &mut World) -> Result<(), Failure> {
    world.rig.note(|| "everything is read".to_owned());
    world.rig.is_comparing = true;
    let compared = compare_blocks(world);
    world.rig.is_comparing = false;
    compared
}

pub(super) fn compare_blocks(world: &mut World) -> Result<(), Failure> {
    let names: Vec<u64> = world.names.iter().filter(|(_, one)| one.is_sure).map(|(&name, _)| name).collect();
    for name in names {
        let mut blocks: Vec<u64> = world.names[&name].blocks.written().collect();
        blocks.extend((0..BLOCKS).map(|block| world.lba(name, block)));
        blocks.sort_unstable();
        blocks.dedup();
        for lba in blocks {
            world.submit_read(name, lba..lba + 1)?;
            if world.flights.len() >= 32 && !world.until("a read", |world| world.flights.len() < 16)? {
                return Ok(());
            }
        }
    }
    world.until("a read", |world| world.flights.is_empty()).map(drop)
}

/// What could not be made or removed is there or not: from now on that is known.
pub(super) fn resolve_names(world: &mut World) -> Result<(), Failure> {
    if world.names.values().all(|name| name.is_sure) || world.rig.disk.is_off() {
        return Ok(());
    }
    check_namespaces(world)
}

/// Whether what is mapped is what is used.
pub(super) fn is_balanced(world: &mut World) -> bool {
    let Some(life) = &world.life else { return true };
    let thins = life.medium.volumes().into_iter().filter_map(|name| life.medium.thin(name));
    let mapped: u64 = thins.map(|thin| u64::from(thin.allocated_extents()) * EXTENT).sum();
    life.medium.capacity().used_bytes == mapped
}

/// Ends a life in order.
pub(super) fn close(world: &mut World) -> Result<(), Failure> {
    let Some(mut life) = world.life.take() else { return Ok(()) };
    life.medium.stop();
    world.rig.wind_up(&mut life)
}

/// Something that the drive says of itself is damaged, when all of it is flushed: it may be
/// repaired, or refused, but not ignored.
pub(super) fn damage(world: &mut World, clean: bool, place: u64, tolerant: bool) -> Result<(), Failure> {
    world.rest()?;
    if clean {
        world.stop_flushed()?;
    } else {
        if world.done("sync", Store::sync)?.is_none() {
            return Ok(());
        }
        let now = world.rig.now();
        world.names.values_mut().for_each(|name| name.blocks.flushed(now, now));
        // A mark says so.
        world.sleep(Duration::from_millis(20))?;
        world.end(None)?;
    }
    let Some(at) = place_of(world, place) else { return open(world) };
    let before = world.rig.disk.image();
    world.rig.disk.damage(at, 64);
    world.rig.count("damages");
    world.rig.note(|| format!("64 bytes from {at} on are damaged"));
    let opened = Life::open(&world.rig.disk, &world.rig.clock, tolerant);
    match opened {
        Ok(life) if !life.is_damaged => {
            world.life = Some(life);
            check_namespaces(world)?;
            return compare(world);
        }
        Ok(_damaged) => {}
        Err(failure) => world.rig.note(|| format!("it does not open: {failure}")),
    }
    // Put back, it is as it was.
    world.rig.disk.end(None);
    world.rig.disk.restore(before);
    open(world)
}

/// Some sectors cannot be read any more, when nothing is under way. Those blocks that are in
/// them, or close to one that is, may be errors; all others are there.
pub(super) fn lose_sectors(world: &mut World, count: u64) -> Result<(), Failure> {
    world.rest()?;
    let image = world.rig.disk.image();
    let extents = world.rig.profile.capacity_bytes - CAPACITY;
    let mut pages = Vec::new();
    let mut at = extents;
    while let Some(page) = image.next_data(at) {
        pages.push(page);
        at = page + 4096;
    }
    for _ in 0..count.min(pages.len() as u64) {
        let page = pages[world.rig.chances.index(pages.len())];
        let at = page + 512 * world.rig.chances.below(8);
        let sector = at / u64::from(world.rig.profile.sector_bytes) * u64::from(world.rig.profile.sector_bytes);
        let mut bytes = vec![0; world.rig.profile.sector_bytes as usize];
        image.read(sector, &mut bytes);
        let now = world.rig.now();
        let (op, mut is_known) = (world.rig.number(), false);
        for name in world.names.values_mut().filter(|name| !name.block_format.encrypted) {
            for lba in name.blocks.blocks_in(&bytes) {
                let reach = lba.saturating_sub(8)..lba + 9;
                name.blocks.lose(op, reach, now);
                is_known = true;
            }
        }
        // What it has is not known where it is encrypted, or not used any more.
        if is_known {
            world.rig.disk.make_unreadable(sector);
            world.rig.count("lost sectors");
            world.rig.note(|| format!("the sector at {sector} cannot be read"));
        }
    }
    compare(world)
}

/// Somewhere in what the drive says of itself that is not zero.
pub(super) fn place_of(world: &World, place: u64) -> Option<u64> {
    let image = world.rig.disk.image();
    let extents = world.rig.profile.capacity_bytes - CAPACITY;
    let mut pages = Vec::new();
    let mut at = 0;
    while let Some(page) = image.next_data(at).filter(|&page| page < extents) {
        pages.push(page);
        at = page + 4096;
    }
    let page = pages.get(usize::try_from(mix(place) % pages.len().max(1) as u64).unwrap_or_default())?;
    Some(page + place % 63 * 64)
}
