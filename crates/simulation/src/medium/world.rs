//! A medium, its disk and those who use it, one step after the other, and what they may see.

mod asks;
mod lives;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use ebof_backend::{Buffer, Class, Completion, Operation, Request, Segments, Submitted};
use ebof_drive::{BlockFormat, VolumeId};
use ebof_medium::{Error, Store};

use super::acts::{SLOTS, What};
use super::life::Life;
use crate::model::{BlockValue, Blocks, Op, Tick, serial, story_lba};
use crate::rig::{EXTENT, Life as _, Rig, System};
use crate::story::{Failure, fail};

/// Bytes of a drive: eight extents, fewer than the namespaces promise.
pub(super) const CAPACITY: u64 = 2 << 20;
/// Extents of a namespace.
const EXTENTS: u64 = 4;
/// Ranges of a request at most.
const RANGES: usize = 256;
/// So many requests to the disk, at most, come before a short one of a host.
const WAIT_MAX: u64 = 1000;

/// A namespace that was made, or was to be.
struct Name {
    block_format: BlockFormat,
    blocks: Blocks,
    /// Whether it is there is known.
    is_sure: bool,
}

/// A request of a host that is under way.
struct Flight {
    name: u64,
    kind: Kind,
    range: Range<u64>,
    begun: Tick,
    at: Instant,
    /// Requests that the disk had completed.
    done: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write {
        fua: bool,
    },
    Zero,
    /// Some blocks of a range.
    Scattered,
    Flush,
}

pub(super) struct World {
    rig: Rig,
    life: Option<Life>,
    slots: BTreeMap<u64, u64>,
    names: BTreeMap<u64, Name>,
    flights: BTreeMap<Op, Flight>,
    /// Changes that were committed, and whether one more may have been.
    commits: (u64, bool),
}

impl World {
    pub(super) fn new(seed: u64) -> Result<Self, Failure> {
        Ok(Self {
            rig: Rig::new(seed, CAPACITY)?,
            life: None,
            slots: BTreeMap::new(),
            names: BTreeMap::new(),
            flights: BTreeMap::new(),
            commits: (0, false),
        })
    }

    fn with(&mut self, slot: u64, act: impl FnOnce(&mut Self, u64) -> Result<(), Failure>) -> Result<(), Failure> {
        match self.slots.get(&slot) {
            Some(&name) => act(self, name),
            None => Ok(()),
        }
    }

    /// Where a block of the story lies.
    fn lba(&self, name: u64, block: u64) -> u64 {
        let per_extent = self.names[&name].block_format.blocks_per_extent(EXTENT);
        story_lba(block, per_extent, per_extent * EXTENTS)
    }

    fn range(&self, name: u64, block: u64, count: u64) -> Range<u64> {
        let per_extent = self.names[&name].block_format.blocks_per_extent(EXTENT);
        let first = self.lba(name, block);
        first..(first + count).min(per_extent * EXTENTS)
    }

    // ---- What hosts do

    fn submit(
        &mut self,
        op: Op,
        name: u64,
        kind: Kind,
        range: Range<u64>,
        operation: Operation,
    ) -> Result<(), Failure> {
        let Some(life) = &mut self.life else { return Ok(()) };
        let at = self.rig.clock.now();
        let Some(device) = life.medium.device(VolumeId(name)) else {
            return fail(format!("namespace {name} has no device"));
        };
        let begun = self.rig.now();
        let blocks = &mut self.names.get_mut(&name).expect("in the model").blocks;
        match kind {
            Kind::Read => blocks.begin_read(op, begun),
            Kind::Write { .. } => blocks.begin(op, range.clone(), BlockValue::Write(serial(op)), begun),
            Kind::Zero => blocks.begin(op, range.clone(), BlockValue::Zeros, begun),
            Kind::Flush | Kind::Scattered => {}
        }
        let done = self.rig.disk.completed();
        self.flights.insert(op, Flight { name, kind, range: range.clone(), begun, at, done });
        if !self.rig.is_comparing {
            self.rig.note(|| format!("{op}: {kind:?} {range:?} of {name}"));
        }
        self.rig.count("requests");
        let life = self.life.as_mut().expect("it was there");
        match device.submit(&mut life.io, Request::new(op, operation)) {
            Submitted::Done(completion) => self.complete(completion)?,
            Submitted::Pending => {}
            Submitted::Busy(_) => {
                let flight = self.flights.remove(&op).expect("just made");
                self.names.get_mut(&name).expect("in the model").blocks.refuse(op, flight.range);
            }
        }
        Ok(())
    }

    fn write(&mut self, slot: u64, block: u64, count: u64, fua: bool) -> Result<(), Failure> {
        self.with(slot, |world, name| {
            let (op, range) = (world.rig.number(), world.range(name, block, count));
            let blocks = &world.names[&name].blocks;
            let block_bytes = blocks.block_bytes;
            let len = block_bytes * usize::try_from(range.end - range.start).expect("few");
            let mut buffer = Buffer::zeroed(len);
            for (lba, into) in range.clone().zip(buffer.as_mut_slice()[..len].chunks_mut(block_bytes)) {
                blocks.fill(lba, serial(op), into);
            }
            let offset = range.start * block_bytes as u64;
            let operation = Operation::Write { offset, len, data: buffer.into(), fua };
            world.submit(op, name, Kind::Write { fua }, range, operation)
        })
    }

    fn submit_read(&mut self, name: u64, range: Range<u64>) -> Result<(), Failure> {
        let block_bytes = self.names[&name].blocks.block_bytes;
        let len = block_bytes * usize::try_from(range.end - range.start).expect("few");
        let mut buffer = Buffer::zeroed(len);
        buffer.as_mut_slice().fill(0xEE);
        let offset = range.start * block_bytes as u64;
        let op = self.rig.number();
        self.submit(op, name, Kind::Read, range, Operation::Read { offset, len, data: buffer.into() })
    }

    /// Zeroes, or deallocates where it is not said how.
    fn submit_zero(&mut self, name: u64, range: Range<u64>, deallocate: Option<bool>) -> Result<(), Failure> {
        let block_bytes = self.names[&name].blocks.block_bytes as u64;
        let (offset, len) = (range.start * block_bytes, (range.end - range.start) * block_bytes);
        let operation = match deallocate {
            Some(deallocate) => Operation::WriteZeroes { offset, len, deallocate, fua: false },
            None => Operation::Deallocate { ranges: std::iter::once(offset..offset + len).collect() },
        };
        let op = self.rig.number();
        self.submit(op, name, Kind::Zero, range, operation)
    }

    /// Deallocates every second block of a part of a namespace, as many as a request takes ranges.
    fn submit_scattered(&mut self, name: u64) -> Result<(), Failure> {
        let block_bytes = self.names[&name].blocks.block_bytes as u64;
        let count = self.names[&name].block_format.blocks_per_extent(EXTENT) * EXTENTS;
        let first = self.rig.chances.below(count);
        let lbas: Vec<u64> = (first..count).step_by(2).take(RANGES).collect();
        let bytes = |lba: &u64| lba * block_bytes..(lba + 1) * block_bytes;
        let operation = Operation::Deallocate { ranges: lbas.iter().map(bytes).collect() };
        let (op, begun) = (self.rig.number(), self.rig.now());
        let blocks = &mut self.names.get_mut(&name).expect("in the model").blocks;
        lbas.iter().for_each(|&lba| blocks.begin(op, lba..lba + 1, BlockValue::Zeros, begun));
        self.submit(op, name, Kind::Scattered, first..count, operation)
    }

    fn submit_flush(&mut self, name: u64) -> Result<(), Failure> {
        let op = self.rig.number();
        self.submit(op, name, Kind::Flush, 0..0, Operation::Flush)
    }

    fn complete(&mut self, completion: Completion) -> Result<(), Failure> {
        let now = self.rig.now();
        let Completion { tag: op, result, data } = completion;
        let Some(flight) = self.flights.remove(&op) else { return fail(format!("{op} has ended twice")) };
        let class = result.as_ref().err().map(ebof_backend::Error::class);
        self.rig.digest(op, class.map_or(0, |class| 1 + class as u64));
        let Flight { name, kind, range, begun, at, done } = flight;
        if !self.rig.is_comparing || result.is_err() {
            self.rig.note(|| format!("{op}: {kind:?} {range:?} of {name} has ended: {}", result_text(&result)));
        }
        let may_fail = self.may_fail(name, at);
        let waited = self.rig.disk.completed() - done;
        // Where no request to the disk takes long itself.
        let is_short = matches!(kind, Kind::Read | Kind::Write { .. }) && self.rig.profile.slow.0 == 0;
        if is_short && waited > WAIT_MAX && !may_fail {
            return fail(format!("{kind:?} of namespace {name} has waited for {waited} requests to the disk"));
        }
        let Some(Name { blocks, .. }) = self.names.get_mut(&name) else { return Ok(()) };
        let durable = kind == Kind::Write { fua: true };
        match (kind, class) {
            (Kind::Read, None) => {
                let buffer = data
                    .and_then(Segments::into_buffer)
                    .ok_or_else(|| Failure("a read without its buffer".to_owned()))?;
                let len = blocks.block_bytes * usize::try_from(range.end - range.start).expect("few");
                let read = blocks.read(op, range, &buffer.as_slice()[..len], now);
                self.rig.count("reads compared");
                read.map_err(|wrong| Failure(wrong.0))
            }
            (Kind::Flush, None) => {
                blocks.flushed(begun, now);
                Ok(())
            }
            (Kind::Write { .. } | Kind::Zero | Kind::Scattered, None) => {
                blocks.end(op, range, durable, now);
                Ok(())
            }
            (_, Some(class)) => {
                let bad = kind == Kind::Read && class == Class::MediumRead && blocks.may_fail(range.clone(), begun);
                blocks.end_read(op);
                blocks.end_unknown(op, range, now);
                let no_space = kind != Kind::Read && class == Class::OutOfSpace;
                if bad || no_space || may_fail {
                    self.rig.count("errors");
                    return Ok(());
                }
                fail(format!("{kind:?} of namespace {name} fails without a reason: {}", result_text(&result)))
            }
        }
    }

    /// Whether something that began then may have failed for what the disk did, or for what became
    /// of the namespace.
    fn may_fail(&self, name: u64, began: Instant) -> bool {
        self.rig.may_fail(began) || self.names.get(&name).is_none_or(|name| !name.is_sure)
    }

    /// Has the drive's thread do something; `None` where the power goes before it is done.
    fn run_on_drive<T: Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Store) -> T + Send + 'static,
    ) -> Result<Option<T>, Failure> {
        let Some(life) = &self.life else { return Ok(None) };
        let answers = life.ask(work);
        let mut answer = None;
        self.until(what, |_| {
            answer = answers.try_recv().ok();
            answer.is_some()
        })?;
        let is_off = self.rig.disk.is_off();
        Ok(answer.filter(|_| !is_off))
    }

    /// The same, for what must not fail unless the disk does; whether it is done is not known where
    /// there is none.
    fn done<T: Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<Option<T>, Failure> {
        let began = self.rig.clock.now();
        match self.run_on_drive(what, work)? {
            None => Ok(None),
            Some(Ok(done)) => Ok(Some(done)),
            Some(Err(error)) => {
                self.rig.note(|| format!("{what}: {error}"));
                if self.rig.may_fail(began) { Ok(None) } else { fail(format!("{what}: {error}")) }
            }
        }
    }
}

impl System for World {
    type What = What;

    fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    fn act(&mut self, what: What) -> Result<(), Failure> {
        match what {
            What::Create { slot, kind } => asks::create(self, slot, kind),
            What::Remove { slot } => asks::remove(self, slot),
            What::Clear { slot } => asks::clear(self, slot),
            What::Write { slot, block, count, fua } => self.write(slot, block, count, fua),
            What::Read { slot, block, count } => self.with(slot, |world, name| {
                let range = world.range(name, block, count);
                world.submit_read(name, range)
            }),
            What::Zero { slot, block, count, deallocate } => self.with(slot, |world, name| {
                let range = world.range(name, block, count);
                world.submit_zero(name, range, Some(deallocate))
            }),
            What::Deallocate { slot, block, extents } => self.with(slot, |world, name| {
                let per_extent = world.names[&name].block_format.blocks_per_extent(EXTENT);
                let first = world.lba(name, block) / per_extent * per_extent;
                let end = (first + per_extent * extents.max(1)).min(per_extent * EXTENTS);
                world.submit_zero(name, first..end, None)
            }),
            What::Scatter { slot, requests } => {
                self.with(slot, |world, name| (0..requests).try_for_each(|_| world.submit_scattered(name)))?;
                // Its neighbours want something small.
                (0..SLOTS).filter(|other| *other != slot).try_for_each(|other| self.write(other, 13, 1, false))
            }
            What::Flush { slot } => self.with(slot, Self::submit_flush),
            What::MarkBad { slot, block } => asks::mark_bad(self, slot, block),
            What::Commit { bytes } => asks::commit(self, bytes),
            What::FillJournal => (0..17).try_for_each(|_| asks::commit(self, 1 << 20)),
            What::Sync => self.run_on_drive("sync", Store::sync).map(drop),
            What::System(act) => self.system_act(act),
            What::Damage { clean, place, tolerant } => lives::damage(self, clean, place, tolerant),
            What::LoseSectors { count } => lives::lose_sectors(self, count),
        }
    }

    fn parts(&self) -> usize {
        self.life.as_ref().map_or(0, Life::parts)
    }

    fn turn(&mut self, part: usize) -> Result<(), Failure> {
        if let Some(life) = &mut self.life {
            life.turn(part);
        }
        Ok(())
    }

    fn after_turns(&mut self) -> Result<(), Failure> {
        while let Some(completion) = self.life.as_mut().and_then(|life| life.io.poll()) {
            if !self.rig.disk.is_off() {
                self.complete(completion)?;
            }
        }
        Ok(())
    }

    fn due(&mut self) -> Option<Instant> {
        self.life.as_mut().and_then(Life::due)
    }

    fn under_way(&self) -> String {
        let few = self.flights.iter().take(8);
        let few: Vec<String> =
            few.map(|(op, one)| format!("{op}: {:?} {:?} of {}", one.kind, one.range, one.name)).collect();
        few.join(", ")
    }

    fn each_blocks(&mut self, change: impl FnMut(&mut Blocks)) {
        self.names.values_mut().map(|name| &mut name.blocks).for_each(change);
    }

    fn start(&mut self) -> Result<(), Failure> {
        lives::open(self)
    }

    fn stop(&mut self) -> Result<(), Failure> {
        lives::close(self)
    }

    fn kill(&mut self) -> Result<(), Failure> {
        self.flights.clear();
        self.life = None;
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        self.until("requests", |world| world.flights.is_empty())?;
        lives::resolve_names(self)?;
        lives::compare(self)?;
        self.until("what was given back", lives::is_balanced).map(drop)
    }
}

fn result_text(result: &Result<(), ebof_backend::Error>) -> String {
    result.as_ref().map_or_else(ToString::to_string, |()| "well".to_owned())
}
