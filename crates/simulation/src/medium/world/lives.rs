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

impl World {
    pub(super) fn open(&mut self) -> Result<(), Failure> {
        let life = Life::open(&self.rig.disk, &self.rig.clock, false)?;
        let commits = life.state.load(Ordering::SeqCst);
        let (sure, one_more) = self.commits;
        if commits != sure && !(one_more && commits == sure + 1) {
            return fail(format!("{commits} commits, {sure} were acknowledged"));
        }
        self.commits = (commits, false);
        self.life = Some(life);
        self.check_namespaces()?;
        self.compare()
    }

    /// Which namespaces there are.
    pub(super) fn check_namespaces(&mut self) -> Result<(), Failure> {
        let Some(life) = &self.life else { return Ok(()) };
        let there: Vec<u64> = life.medium.volumes().iter().map(|volume| volume.0).collect();
        if let Some(name) = there.iter().find(|name| !self.names.contains_key(name)) {
            return fail(format!("namespace {name} is there, and should not be"));
        }
        if let Some((name, _)) = self.names.iter().find(|(name, one)| one.is_sure && !there.contains(name)) {
            return fail(format!("namespace {name} is gone"));
        }
        self.names.retain(|name, _| there.contains(name));
        self.names.values_mut().for_each(|name| name.is_sure = true);
        self.slots.retain(|_, name| there.contains(name));
        for name in there {
            let free = (0..SLOTS + 60).find(|slot| !self.slots.contains_key(slot));
            if let Some(slot) = free.filter(|_| !self.slots.values().any(|other| *other == name)) {
                self.slots.insert(slot, name);
            }
        }
        Ok(())
    }

    /// Reads everything, when nothing is under way.
    pub(super) fn compare(&mut self) -> Result<(), Failure> {
        self.rig.note(|| "everything is read".to_owned());
        self.rig.is_comparing = true;
        let compared = self.compare_blocks();
        self.rig.is_comparing = false;
        compared
    }

    pub(super) fn compare_blocks(&mut self) -> Result<(), Failure> {
        let names: Vec<u64> = self.names.iter().filter(|(_, one)| one.is_sure).map(|(&name, _)| name).collect();
        for name in names {
            let mut blocks: Vec<u64> = self.names[&name].blocks.written().collect();
            blocks.extend((0..BLOCKS).map(|block| self.lba(name, block)));
            blocks.sort_unstable();
            blocks.dedup();
            for lba in blocks {
                self.submit_read(name, lba..lba + 1)?;
                if self.flights.len() >= 32 && !self.until("a read", |world| world.flights.len() < 16)? {
                    return Ok(());
                }
            }
        }
        self.until("a read", |world| world.flights.is_empty()).map(drop)
    }

    /// What could not be made or removed is there or not: from now on that is known.
    pub(super) fn resolve_names(&mut self) -> Result<(), Failure> {
        if self.names.values().all(|name| name.is_sure) || self.rig.disk.is_off() {
            return Ok(());
        }
        self.check_namespaces()
    }

    /// Whether what is mapped is what is used.
    pub(super) fn is_balanced(&mut self) -> bool {
        let Some(life) = &self.life else { return true };
        let thins = life.medium.volumes().into_iter().filter_map(|name| life.medium.thin(name));
        let mapped: u64 = thins.map(|thin| u64::from(thin.allocated_extents()) * EXTENT).sum();
        life.medium.capacity().used_bytes == mapped
    }

    /// Ends a life in order.
    pub(super) fn close(&mut self) -> Result<(), Failure> {
        let Some(mut life) = self.life.take() else { return Ok(()) };
        life.medium.stop();
        self.rig.wind_up(&mut life)
    }

    /// Something that the drive says of itself is damaged, when all of it is flushed: it may be
    /// repaired, or refused, but not ignored.
    pub(super) fn damage(&mut self, clean: bool, place: u64, tolerant: bool) -> Result<(), Failure> {
        self.rest()?;
        if clean {
            self.stop_flushed()?;
        } else {
            if self.done("sync", Store::sync)?.is_none() {
                return Ok(());
            }
            let now = self.rig.now();
            self.names.values_mut().for_each(|name| name.blocks.flushed(now, now));
            // A mark says so.
            self.sleep(Duration::from_millis(20))?;
            self.end(None)?;
        }
        let Some(at) = self.place(place) else { return self.open() };
        let before = self.rig.disk.image();
        self.rig.disk.damage(at, 64);
        self.rig.count("damages");
        self.rig.note(|| format!("64 bytes from {at} on are damaged"));
        let opened = Life::open(&self.rig.disk, &self.rig.clock, tolerant);
        match opened {
            Ok(life) if !life.is_damaged => {
                self.life = Some(life);
                self.check_namespaces()?;
                return self.compare();
            }
            Ok(_damaged) => {}
            Err(failure) => self.rig.note(|| format!("it does not open: {failure}")),
        }
        // Put back, it is as it was.
        self.rig.disk.end(None);
        self.rig.disk.restore(before);
        self.open()
    }

    /// Some sectors cannot be read any more, when nothing is under way. Those blocks that are in
    /// them, or close to one that is, may be errors; all others are there.
    pub(super) fn lose_sectors(&mut self, count: u64) -> Result<(), Failure> {
        self.rest()?;
        let image = self.rig.disk.image();
        let extents = self.rig.profile.capacity_bytes - CAPACITY;
        let mut pages = Vec::new();
        let mut at = extents;
        while let Some(page) = image.next_data(at) {
            pages.push(page);
            at = page + 4096;
        }
        for _ in 0..count.min(pages.len() as u64) {
            let page = pages[self.rig.chances.index(pages.len())];
            let at = page + 512 * self.rig.chances.below(8);
            let sector = at / u64::from(self.rig.profile.sector_bytes) * u64::from(self.rig.profile.sector_bytes);
            let mut bytes = vec![0; self.rig.profile.sector_bytes as usize];
            image.read(sector, &mut bytes);
            let now = self.rig.now();
            let (op, mut is_known) = (self.rig.number(), false);
            for name in self.names.values_mut().filter(|name| !name.block_format.encrypted) {
                for lba in name.blocks.blocks_in(&bytes) {
                    let reach = lba.saturating_sub(8)..lba + 9;
                    name.blocks.lose(op, reach, now);
                    is_known = true;
                }
            }
            // What it has is not known where it is encrypted, or not used any more.
            if is_known {
                self.rig.disk.make_unreadable(sector);
                self.rig.count("lost sectors");
                self.rig.note(|| format!("the sector at {sector} cannot be read"));
            }
        }
        self.compare()
    }

    /// Somewhere in what the drive says of itself that is not zero.
    pub(super) fn place(&self, place: u64) -> Option<u64> {
        let image = self.rig.disk.image();
        let extents = self.rig.profile.capacity_bytes - CAPACITY;
        let mut pages = Vec::new();
        let mut at = 0;
        while let Some(page) = image.next_data(at).filter(|&page| page < extents) {
            pages.push(page);
            at = page + 4096;
        }
        let page = pages.get(usize::try_from(mix(place) % pages.len().max(1) as u64).unwrap_or_default())?;
        Some(page + place % 63 * 64)
    }
}
