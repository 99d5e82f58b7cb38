//! A medium, its disk and those who use it, one step after the other, and what they may see.

mod asks;
mod lives;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_backend::{Buffer, Class, Completion, Operation, Request, Segments, Submitted};
use ebof_clock::Clock;
use ebof_drive::{BlockFormat, VolumeId};
use ebof_medium::{Error, Store, medium_bytes};

use super::PATIENCE;
use super::acts::{Act, SLOTS, What};
use super::life::Life;
use crate::disk::{Disk, Profile};
use crate::image::Image;
use crate::model::{BlockValue, Blocks, Op, Tick};
use crate::random::{Random, mix};
use crate::story::{Failure, Report, fail, trace};

/// Bytes of a drive: eight extents, fewer than the namespaces promise.
pub(super) const CAPACITY: u64 = 2 << 20;
/// Bytes of an extent.
const EXTENT: u64 = 256 << 10;
/// Extents of a namespace.
const EXTENTS: u64 = 4;
/// After the last failure of the disk, for so long something may fail for that reason.
const GRACE: Duration = Duration::from_secs(2);

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
    seed: u64,
    clock: Clock,
    begin: Instant,
    chances: Random,
    profile: Profile,
    disk: Arc<Disk>,
    life: Option<Life>,
    lives: u64,
    slots: BTreeMap<u64, u64>,
    names: BTreeMap<u64, Name>,
    flights: BTreeMap<Op, Flight>,
    /// Changes that were committed, and whether one more may have been.
    commits: (u64, bool),
    tick: Tick,
    next: u64,
    /// When the disk has last failed at something, or may have.
    failed: Option<Instant>,
    is_comparing: bool,
    digest: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl World {
    pub(super) fn new(seed: u64) -> Result<Self, Failure> {
        let mut random = Random::of(seed, 2);
        let clock = Clock::simulated(random.number());
        let profile = Profile {
            capacity_bytes: medium_bytes(CAPACITY).map_err(|error| Failure(error.to_string()))?,
            sector_bytes: if random.percent(60) { 512 } else { 4096 },
            quick: Duration::from_micros(1 << random.below(10)),
            slow: (random.below(8), Duration::from_millis(1 << random.below(9))),
        };
        let disk = Disk::new(profile, Image::default(), clock.clone(), random.number());
        let begin = clock.now();
        let mut world = Self {
            seed,
            clock,
            begin,
            chances: random,
            profile,
            disk,
            life: None,
            lives: 0,
            slots: BTreeMap::new(),
            names: BTreeMap::new(),
            flights: BTreeMap::new(),
            commits: (0, false),
            tick: 1,
            next: 1,
            failed: None,
            is_comparing: false,
            digest: 0,
            counts: BTreeMap::new(),
        };
        world.open()?;
        Ok(world)
    }

    pub(super) fn report(&self) -> Report {
        let mut counts: BTreeMap<&'static str, u64> = self.counts.clone();
        for (name, count) in self.disk.counts() {
            *counts.entry(name).or_default() += count;
        }
        let time = self.clock.now() - self.begin;
        Report { time, counts: counts.into_iter().collect(), digest: self.digest ^ self.disk.image().digest() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn now(&mut self) -> Tick {
        self.tick += 2;
        self.tick
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let time = self.clock.now() - self.begin;
        trace(|| format!("{time:?} {}", line()));
    }

    pub(super) fn play(&mut self, act: &Act) -> Result<(), Failure> {
        self.chances = Random::new(act.chances);
        let what = act.what;
        self.note(|| format!("-- {what:?}"));
        self.act(what)?;
        for _ in 0..act.steps {
            self.step()?;
        }
        Ok(())
    }

    fn act(&mut self, what: What) -> Result<(), Failure> {
        match what {
            What::Create { slot, kind } => self.create(slot, kind),
            What::Remove { slot } => self.remove(slot),
            What::Clear { slot } => self.clear(slot),
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
            What::MarkBad { slot, block } => self.mark_bad(slot, block),
            What::Commit { bytes } => self.commit(bytes),
            What::FillJournal => (0..17).try_for_each(|_| self.commit(1 << 20)),
            What::Sync => self.on("sync", Store::sync).map(drop),
            What::Sleep(time) => self.sleep(time),
            What::Fail(fault) => {
                self.disk.fail(fault);
                Ok(())
            }
            What::Stand(time) => {
                self.disk.stand(time);
                Ok(())
            }
            What::Heal => {
                self.disk.heal();
                Ok(())
            }
            What::Rest => self.rest(),
            What::Restart => self.restart(),
            What::Kill { after } => self.crash(after, None),
            What::PowerCut { after, loss } => self.crash(after, Some(loss)),
            What::Damage { clean, place, tolerant } => self.damage(clean, place, tolerant),
        }
    }

    fn with(&mut self, slot: u64, act: impl FnOnce(&mut Self, u64) -> Result<(), Failure>) -> Result<(), Failure> {
        match self.slots.get(&slot) {
            Some(&name) => act(self, name),
            None => Ok(()),
        }
    }

    /// Where a block of the story lies: pairs of them at both sides of the borders of extents, and
    /// some inside.
    fn lba(&self, name: u64, block: u64) -> u64 {
        let per_extent = self.names[&name].block_format.blocks_per_extent(EXTENT);
        let (group, within) = (block / 6, block % 6);
        (group * per_extent + within).saturating_sub(3).min(per_extent * EXTENTS - 1)
    }

    fn range(&self, name: u64, block: u64, count: u64) -> Range<u64> {
        let per_extent = self.names[&name].block_format.blocks_per_extent(EXTENT);
        let first = self.lba(name, block);
        first..(first + count).min(per_extent * EXTENTS)
    }

    // ---- What hosts do

    fn submit(&mut self, name: u64, kind: Kind, range: Range<u64>, operation: Operation) -> Result<Op, Failure> {
        let Some(life) = &mut self.life else { return Ok(0) };
        self.next += 1;
        self.tick += 2;
        let (op, begun, at) = (self.next, self.tick, self.clock.now());
        let Some(device) = life.medium.device(VolumeId(name)) else {
            return fail(format!("namespace {name} has no device"));
        };
        let blocks = &mut self.names.get_mut(&name).expect("in the model").blocks;
        match kind {
            Kind::Read => blocks.begin_read(op, begun),
            Kind::Write { .. } => blocks.begin(op, range.clone(), BlockValue::Write(serial(op)), begun),
            Kind::Zero => blocks.begin(op, range.clone(), BlockValue::Zeros, begun),
            Kind::Flush | Kind::Scattered => {}
        }
        let done = self.disk.completed();
        self.flights.insert(op, Flight { name, kind, range: range.clone(), begun, at, done });
        if !self.is_comparing {
            self.note(|| format!("{op}: {kind:?} {range:?} of {name}"));
        }
        self.count("requests");
        let life = self.life.as_mut().expect("it was there");
        match device.submit(&mut life.io, Request::new(op, operation)) {
            Submitted::Done(completion) => self.complete(completion)?,
            Submitted::Pending => {}
            Submitted::Busy(_) => {
                let flight = self.flights.remove(&op).expect("just made");
                self.names.get_mut(&name).expect("in the model").blocks.refuse(op, flight.range);
            }
        }
        Ok(op)
    }

    fn write(&mut self, slot: u64, block: u64, count: u64, fua: bool) -> Result<(), Failure> {
        self.with(slot, |world, name| {
            let range = world.range(name, block, count);
            let blocks = &world.names[&name].blocks;
            let block_bytes = blocks.block_bytes;
            let len = block_bytes * usize::try_from(range.end - range.start).expect("few");
            let mut buffer = Buffer::zeroed(len);
            for (lba, into) in range.clone().zip(buffer.as_mut_slice()[..len].chunks_mut(block_bytes)) {
                blocks.fill(lba, serial(world.next + 1), into);
            }
            let offset = range.start * block_bytes as u64;
            world
                .submit(name, Kind::Write { fua }, range, Operation::Write { offset, len, data: buffer.into(), fua })
                .map(drop)
        })
    }

    fn submit_read(&mut self, name: u64, range: Range<u64>) -> Result<(), Failure> {
        let block_bytes = self.names[&name].blocks.block_bytes;
        let len = block_bytes * usize::try_from(range.end - range.start).expect("few");
        let mut buffer = Buffer::zeroed(len);
        buffer.as_mut_slice().fill(0xEE);
        let offset = range.start * block_bytes as u64;
        self.submit(name, Kind::Read, range, Operation::Read { offset, len, data: buffer.into() }).map(drop)
    }

    /// Zeroes, or deallocates where it is not said how.
    fn submit_zero(&mut self, name: u64, range: Range<u64>, deallocate: Option<bool>) -> Result<(), Failure> {
        let block_bytes = self.names[&name].blocks.block_bytes as u64;
        let (offset, len) = (range.start * block_bytes, (range.end - range.start) * block_bytes);
        let operation = match deallocate {
            Some(deallocate) => Operation::WriteZeroes { offset, len, deallocate, fua: false },
            None => Operation::Deallocate { ranges: std::iter::once(offset..offset + len).collect() },
        };
        self.submit(name, Kind::Zero, range, operation).map(drop)
    }

    /// Deallocates every second block of a part of a namespace, as many as a request takes ranges.
    fn submit_scattered(&mut self, name: u64) -> Result<(), Failure> {
        let block_bytes = self.names[&name].blocks.block_bytes as u64;
        let count = self.names[&name].block_format.blocks_per_extent(EXTENT) * EXTENTS;
        let first = self.chances.below(count);
        let lbas: Vec<u64> = (first..count).step_by(2).take(RANGES).collect();
        let bytes = |lba: &u64| lba * block_bytes..(lba + 1) * block_bytes;
        let operation = Operation::Deallocate { ranges: lbas.iter().map(bytes).collect() };
        let (op, begun) = (self.next + 1, self.tick + 2);
        let blocks = &mut self.names.get_mut(&name).expect("in the model").blocks;
        lbas.iter().for_each(|&lba| blocks.begin(op, lba..lba + 1, BlockValue::Zeros, begun));
        self.submit(name, Kind::Scattered, first..count, operation).map(drop)
    }

    fn submit_flush(&mut self, name: u64) -> Result<(), Failure> {
        self.submit(name, Kind::Flush, 0..0, Operation::Flush).map(drop)
    }

    fn complete(&mut self, completion: Completion) -> Result<(), Failure> {
        let now = self.now();
        let Completion { tag: op, result, data } = completion;
        let Some(flight) = self.flights.remove(&op) else { return fail(format!("{op} has ended twice")) };
        let class = result.as_ref().err().map(ebof_backend::Error::class);
        self.digest = mix(self.digest ^ op ^ class.map_or(0, |class| 1 + class as u64));
        let Flight { name, kind, range, begun, at, done } = flight;
        if !self.is_comparing || result.is_err() {
            self.note(|| format!("{op}: {kind:?} {range:?} of {name} has ended: {}", told(&result)));
        }
        let may_fail = self.may_fail(name, at);
        let waited = self.disk.completed() - done;
        // Where no request to the disk takes long itself.
        let is_short = matches!(kind, Kind::Read | Kind::Write { .. }) && self.profile.slow.0 == 0;
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
                self.count("reads compared");
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
                let bad = kind == Kind::Read && class == Class::MediumRead && blocks.may_fail(range.clone());
                blocks.end_read(op);
                blocks.end_unknown(op, range, now);
                let no_space = kind != Kind::Read && class == Class::OutOfSpace;
                if bad || no_space || may_fail {
                    self.count("errors");
                    return Ok(());
                }
                fail(format!("{kind:?} of namespace {name} fails without a reason: {}", told(&result)))
            }
        }
    }

    /// Whether something that began then may have failed for what the disk did, or for what became
    /// of the namespace.
    fn may_fail(&self, name: u64, began: Instant) -> bool {
        let disk = self.disk.is_faulty() || self.failed.is_some_and(|failed| began <= failed + GRACE);
        disk || self.names.get(&name).is_none_or(|name| !name.is_sure)
    }

    // ---- Steps

    /// Something happens somewhere.
    pub(super) fn step(&mut self) -> Result<(), Failure> {
        if self.disk.is_faulty() {
            self.failed = Some(self.clock.now());
        }
        let Some(life) = &mut self.life else { return Ok(()) };
        let mut due = None;
        let mut order = [0, 1, 2, 3];
        for at in (1..order.len()).rev() {
            order.swap(at, self.chances.index(at + 1));
        }
        for part in order {
            // Not always everybody: who is late is late by a random time.
            if self.chances.percent(25) {
                due = Some(self.clock.now());
                continue;
            }
            let next = match part {
                3 => {
                    self.disk.complete_due();
                    self.disk.due()
                }
                part => life.step(part),
            };
            due = due.into_iter().chain(next).min();
        }
        while let Some(completion) = self.life.as_mut().and_then(|life| life.io.poll()) {
            if !self.disk.is_off() {
                self.complete(completion)?;
            }
        }
        match due {
            Some(due) => self.clock.advance_to(due),
            None => self.clock.advance(Duration::from_millis(1)),
        }
        if self.disk.is_faulty() {
            self.failed = Some(self.clock.now());
        }
        Ok(())
    }

    /// Steps until something holds; `false` where the power goes before that.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) -> Result<bool, Failure> {
        let end = self.clock.now() + PATIENCE;
        let mut steps = 0_u32;
        loop {
            if self.disk.is_off() {
                return Ok(false);
            }
            if holds(self) {
                return Ok(true);
            }
            steps += 1;
            if self.clock.now() > end || steps > 200_000 {
                return fail(format!("{what} does not come to its end"));
            }
            self.step()?;
        }
    }

    fn sleep(&mut self, time: Duration) -> Result<(), Failure> {
        let end = self.clock.now() + time;
        for _ in 0..1000 {
            if self.clock.now() >= end || self.disk.is_off() {
                break;
            }
            self.step()?;
        }
        self.clock.advance_to(end);
        Ok(())
    }

    /// Has the drive's thread do something; `None` where the power goes before it is done.
    fn on<T: Send + 'static>(
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
        let is_off = self.disk.is_off();
        Ok(answer.filter(|_| !is_off))
    }

    /// The same, for what must not fail unless the disk does; whether it is done is not known where
    /// there is none.
    fn done<T: Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<Option<T>, Failure> {
        let began = self.clock.now();
        match self.on(what, work)? {
            None => Ok(None),
            Some(Ok(done)) => Ok(Some(done)),
            Some(Err(error)) => {
                self.note(|| format!("{what}: {error}"));
                let disk = self.disk.is_faulty() || self.failed.is_some_and(|failed| began <= failed + GRACE);
                if disk { Ok(None) } else { fail(format!("{what}: {error}")) }
            }
        }
    }
}

fn serial(op: Op) -> u32 {
    u32::try_from(op & 0xffff_ffff).expect("32 bits")
}

fn told(result: &Result<(), ebof_backend::Error>) -> String {
    result.as_ref().map_or_else(ToString::to_string, |()| "well".to_owned())
}
