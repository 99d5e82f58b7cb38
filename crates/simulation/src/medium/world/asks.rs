//! What is asked of the drive's thread: namespaces that come and go, bad blocks, changes of the
//! owner.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebof_drive::{BlockFormat, VolumeId};
use ebof_medium::Store;

use super::{EXTENTS, Name, World};
use crate::model::{BlockValue, Blocks, InFlux};
use crate::rig::{EXTENT, System as _};
use crate::story::Failure;

pub(super) fn kinds(world: &World) -> Vec<BlockFormat> {
    let block_format = |block_shift, metadata_bytes, checked, encrypted| BlockFormat {
        block_shift,
        metadata_bytes,
        checked,
        encrypted,
    };
    let all = [9, 12].into_iter().flat_map(|shift| {
        [0, 8].into_iter().flat_map(move |metadata| {
            [(false, false), (true, false), (false, true), (true, true)]
                .map(|(checked, encrypted)| block_format(shift, metadata, checked, encrypted))
        })
    });
    let sector = u64::from(world.rig.profile.sector_bytes);
    // A block that is encrypted and has no checksum is a mixture when it is torn: of sectors
    // that nobody wrote.
    let fits = |block_format: &BlockFormat| {
        block_format.data_bytes() >= sector
            && (block_format.is_tagged() || !block_format.encrypted || block_format.data_bytes() == sector)
    };
    all.filter(fits).collect()
}

pub(super) fn create(world: &mut World, slot: u64, kind: usize) -> Result<(), Failure> {
    if world.slots.contains_key(&slot) || world.life.is_none() {
        return Ok(());
    }
    let kinds = kinds(world);
    // Half of them plain.
    let block_format = kinds[if kind.is_multiple_of(2) { 0 } else { kind / 2 % kinds.len() }];
    let name = world.rig.number() & 0xffff;
    let blocks = block_format.blocks_per_extent(EXTENT) * EXTENTS;
    let bytes = usize::try_from(block_format.block_bytes()).expect("few");
    let owner = u16::try_from(name).expect("16 bits");
    let in_flux = InFlux::for_format(block_format, world.rig.profile.sector_bytes);
    let model = Blocks { in_flux, ..Blocks::new(owner, bytes, block_format.is_tagged()) };
    world.names.insert(name, Name { block_format, blocks: model, is_sure: false });
    let made = world
        .done("create", move |store| store.create(VolumeId(name), blocks, blocks, block_format).map(|_device| ()))?;
    if made.is_some() {
        world.names.get_mut(&name).expect("just made").is_sure = true;
        world.slots.insert(slot, name);
    }
    Ok(())
}

pub(super) fn remove(world: &mut World, slot: u64) -> Result<(), Failure> {
    world.with(slot, |world, name| {
        world.names.get_mut(&name).expect("in the model").is_sure = false;
        let removed = world.done("remove", move |store| store.remove(VolumeId(name)))?;
        if removed.is_some() {
            world.slots.remove(&slot);
            world.names.remove(&name);
        }
        Ok(())
    })
}

pub(super) fn clear(world: &mut World, slot: u64) -> Result<(), Failure> {
    world.with(slot, |world, name| {
        // What is under way at the same time may come before or after it.
        if !world.until("requests to a namespace", |world| !world.flights.values().any(|one| one.name == name))? {
            return Ok(());
        }
        let cleared = world.done("clear", move |store| store.clear(VolumeId(name)))?;
        let now = world.rig.now();
        world.names.get_mut(&name).expect("in the model").blocks.cleared(cleared.is_some(), now);
        Ok(())
    })
}

pub(super) fn mark_bad(world: &mut World, slot: u64, block: u64) -> Result<(), Failure> {
    world.with(slot, |world, name| {
        let range = world.range(name, block, 1);
        let (op, begun) = (world.rig.number(), world.rig.now());
        world.names.get_mut(&name).expect("in the model").blocks.begin(op, range.clone(), BlockValue::Bad, begun);
        let marks = range.clone();
        let marked = world.done("mark bad", move |store| store.mark_bad(VolumeId(name), marks))?;
        let now = world.rig.now();
        let blocks = &mut world.names.get_mut(&name).expect("in the model").blocks;
        match marked {
            Some(()) => blocks.end(op, range, true, now),
            None => blocks.end_unknown(op, range, now),
        }
        Ok(())
    })
}

pub(super) fn commit(world: &mut World, bytes: usize) -> Result<(), Failure> {
    let Some(life) = &world.life else { return Ok(()) };
    let (number, state) = (world.commits.0 + 1, Arc::clone(&life.state));
    let work = move |store: &mut Store| {
        let change = number.to_le_bytes();
        store.commit(&[&change, &vec![0; bytes], &change])?;
        state.store(number, Ordering::SeqCst);
        Ok(())
    };
    match world.done("commit", work)? {
        Some(()) => world.commits = (number, false),
        None => world.commits.1 = true,
    }
    Ok(())
}
