//! A drive that ends suddenly at any time, again and again: by a kill, which loses no writes, and
//! by a power loss, which loses or tears any unflushed writes.
//!
//! Every block contains its namespace and the number of its write. For each block the model has all
//! contents that are possible: the last durable one, and all that were begun afterwards. A block
//! with a tag is never a mixture: if a power loss has torn it, it cannot be read; unless it was in
//! flux, because it has no metadata and was written more than once since a flush.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ebof_backend::{Buffer, Class, Device, Io, Operation};
use ebof_medium::{BlockFormat, Medium, Options, Store, VolumeId};
use proptest::prelude::*;

use crate::rig::{Event, Faults, Recorder, deallocate, flush, on, read, run};
use crate::tagged::block_formats;

const CAPACITY: u64 = 2 << 20;
const EXTENT: u64 = 256 << 10;
/// Blocks of a namespace that the histories use, spread over its extents.
const BLOCKS: u64 = 12;
/// Namespaces at a time.
const SLOTS: u64 = 3;

#[derive(Clone, Debug)]
enum Act {
    Create(u64),
    Remove(u64),
    Clear(u64),
    /// The first block, how many, and whether durably.
    Write(u64, u64, u64, bool),
    /// A whole extent, or one block of it.
    Deallocate(u64, u64, bool),
    Flush(u64),
    /// Flushes everything, including tags that are only in memory otherwise.
    Sync,
    Commit,
    /// More changes than a journal holds.
    Fill,
    /// Closed and opened again.
    Restart,
    /// The device fails: after how many writes and flushes, how many times, and whether they have
    /// happened all the same.
    Fault(Faults),
    /// The device works again.
    Heal,
}

/// How an incarnation ends, after how many of its events, and the random choices about unflushed
/// writes.
#[derive(Clone, Debug)]
struct End {
    power: bool,
    cut: prop::sample::Index,
    chance: u64,
}

fn incarnation() -> impl Strategy<Value = (Vec<Act>, End)> {
    let (slot, block) = (0..SLOTS, 0..BLOCKS);
    let act = prop_oneof![
        6 => slot.clone().prop_map(Act::Create),
        1 => slot.clone().prop_map(Act::Remove),
        1 => slot.clone().prop_map(Act::Clear),
        16 => (slot.clone(), block.clone(), 1..4_u64, prop::bool::weighted(0.2))
            .prop_map(|(slot, block, count, fua)| Act::Write(slot, block, count, fua)),
        5 => (slot.clone(), block, any::<bool>()).prop_map(|(slot, block, whole)| Act::Deallocate(slot, block, whole)),
        3 => slot.prop_map(Act::Flush),
        2 => Just(Act::Sync),
        2 => Just(Act::Commit),
        1 => Just(Act::Restart),
        2 => (0..6_u32, 1..5_u32, any::<bool>()).prop_map(|(after, count, done)| Act::Fault(Faults { after, count, done })),
        1 => Just(Act::Heal),
    ];
    let acts = proptest::collection::vec(act, 1..40);
    let fill = prop::option::weighted(0.1, any::<prop::sample::Index>());
    let end = (any::<bool>(), any::<prop::sample::Index>(), any::<u64>()).prop_map(|(power, cut, chance)| End {
        power,
        cut,
        chance,
    });
    (acts, fill, end).prop_map(|(mut acts, fill, end)| {
        if let Some(at) = fill {
            acts.insert(at.index(acts.len()), Act::Fill);
        }
        (acts, end)
    })
}

/// The setup of all incarnations.
#[derive(Clone, Copy, Debug)]
struct Rules {
    block_format: BlockFormat,
    /// The unit that the medium writes atomically when power fails.
    sector: usize,
}

impl Rules {
    /// Blocks of an extent.
    fn extent(&self) -> u64 {
        self.block_format.blocks_per_extent(EXTENT)
    }

    /// The LBA of block `block` of the history: two in each extent; the last one of an extent and
    /// the first one of the next are adjacent.
    fn lba(&self, block: u64) -> u64 {
        block.div_ceil(2) * self.extent() - block % 2
    }

    fn place(&self, block: u64) -> u64 {
        self.lba(block) * self.block_format.block_bytes()
    }

    /// Blocks of a namespace.
    fn size(&self) -> u64 {
        self.extent() * (CAPACITY / EXTENT)
    }

    fn bytes(&self) -> usize {
        usize::try_from(self.block_format.block_bytes()).expect("few")
    }

    /// Whether a power loss may tear a block.
    fn tears(&self) -> bool {
        self.block_format.data_bytes() > self.sector as u64
    }
}

/// The contents of a block by sectors, and its metadata.
type Value = [u64; 9];

/// The contents of a block that cannot be read.
const DAMAGED: Value = [u64::MAX; 9];

/// The contents of a block of which a power loss has left a mixture, where nothing is known of it.
const MIXED: Value = [u64::MAX - 1; 9];

/// One value of a block, a namespace or the number of commits.
#[derive(Clone, Debug)]
struct Step<T> {
    to: T,
    /// The number of events of the incarnation when it was begun, and when it was acknowledged:
    /// never, if it failed.
    begun: usize,
    done: usize,
    /// It was acknowledged as durable.
    durable: bool,
}

/// The values of something, in order.
#[derive(Clone, Debug)]
struct History<T>(Vec<Step<T>>);

impl<T: Clone + PartialEq> History<T> {
    fn new(to: T) -> Self {
        Self(vec![Step { to, begun: 0, done: 0, durable: true }])
    }

    /// The possible values after `cut` events, of which all before `flushed` are on the medium.
    fn possible(&self, cut: usize, flushed: usize) -> impl Iterator<Item = &T> {
        let sure = |step: &Step<T>| step.done <= if step.durable { cut } else { flushed };
        let from = self.0.iter().rposition(sure).unwrap_or_default();
        let later = self.0[from + 1..].iter().filter(move |step| step.begun < cut);
        std::iter::once(&self.0[from]).chain(later).map(|step| &step.to)
    }

    fn has_failed(&self) -> bool {
        self.0[self.0.len() - 1].done == NEVER
    }
}

const NEVER: usize = usize::MAX;

/// The expected state of the drive.
struct Model {
    /// By volume id: whether it exists, and its blocks.
    names: BTreeMap<u64, (History<bool>, Vec<History<Value>>)>,
    commits: History<u64>,
    /// Which of them is in which slot.
    slots: BTreeMap<u64, u64>,
    version: u64,
    next: u64,
}

/// The drive in one of its incarnations.
struct Incarnation<'a> {
    base: Arc<Recorder>,
    medium: Medium,
    io: Io,
    state: Arc<AtomicU64>,
    model: &'a mut Model,
    rules: Rules,
}

/// The state is what the owner has committed.
fn open(base: &Arc<Recorder>, state: &Arc<AtomicU64>) -> Result<Medium, TestCaseError> {
    let options = Options { create: Some(CAPACITY), zeroed: true, ..Options::default() };
    let opened = ebof_medium::open(Arc::clone(base) as Arc<dyn Device>, options);
    let opened = opened.map_err(|error| TestCaseError::fail(format!("it does not open: {error}")))?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let mut commits = opened.snapshot.as_deref().map_or(0, word);
    // Commits have two changes, which are atomic.
    let changes: Vec<u64> =
        opened.changes.iter().filter(|change| change.len() == 8).map(|change| word(change)).collect();
    for pair in changes.chunks(2) {
        prop_assert_eq!(pair, [commits + 1; 2], "changes come in order, and together");
        commits += 1;
    }
    state.store(commits, Ordering::SeqCst);
    let kept = Arc::clone(state);
    on(&opened.medium, move |store| {
        store.set_snapshot(Box::new(move || kept.load(Ordering::SeqCst).to_le_bytes().to_vec()));
    });
    Ok(opened.medium)
}

impl Incarnation<'_> {
    fn now(&self) -> usize {
        self.base.events.lock().expect("nobody panicked with it").len()
    }

    /// Records a new value, written since `begun`.
    fn step<T>(&self, to: T, begun: usize, durable: bool) -> Step<T> {
        Step { to, begun, done: self.now(), durable }
    }

    /// The same after a failure: the value may be the old or the new one.
    fn outcome<T, E>(&self, to: T, begun: usize, durable: bool, result: &Result<(), E>) -> Step<T> {
        let step = self.step(to, begun, durable);
        Step { done: if result.is_ok() { step.done } else { NEVER }, ..step }
    }

    fn device(&self, slot: u64) -> Option<(u64, Arc<dyn Device>)> {
        let name = *self.model.slots.get(&slot)?;
        Some((name, self.medium.device(VolumeId(name)).expect("it is there")))
    }

    fn blocks(&mut self, name: u64, blocks: impl Iterator<Item = u64>, step: &Step<Value>) {
        // Data written to a namespace whose removal failed exist only if the namespace does.
        let (there, _) = &self.model.names[&name];
        if step.done != NEVER && there.has_failed() {
            let (begun, durable) = (step.begun, step.durable);
            let step = self.step(true, begun, durable);
            self.model.names.get_mut(&name).expect("it is there").0.0.push(step);
        }
        let (_, all) = self.model.names.get_mut(&name).expect("it is there");
        blocks.for_each(|block| all[usize::try_from(block).expect("few")].0.push(step.clone()));
    }

    /// All extents are free or mapped, once the released ones are free.
    fn counts(&self) -> Result<(), TestCaseError> {
        let thins = self.medium.volumes().into_iter().filter_map(|name| self.medium.thin(name));
        let used: u64 = thins.map(|thin| u64::from(thin.allocated_extents()) * EXTENT).sum();
        let end = Instant::now() + Duration::from_secs(30);
        while self.medium.capacity().used_bytes != used {
            prop_assert!(Instant::now() < end, "{} are used, {used} are mapped", self.medium.capacity().used_bytes);
            std::thread::yield_now();
        }
        Ok(())
    }

    fn play(&mut self, act: &Act) -> Result<(), TestCaseError> {
        let begun = self.now();
        match *act {
            Act::Create(slot) => self.create(slot, begun),
            Act::Remove(slot) => {
                if let Some((name, _)) = self.device(slot) {
                    let result = on(&self.medium, move |store| store.remove(VolumeId(name)));
                    if result.is_ok() {
                        self.model.slots.remove(&slot);
                    }
                    let step = self.outcome(false, begun, true, &result);
                    self.model.names.get_mut(&name).expect("it is there").0.0.push(step);
                }
            }
            Act::Clear(slot) => {
                if let Some((name, _)) = self.device(slot) {
                    let result = on(&self.medium, move |store| store.clear(VolumeId(name)));
                    self.blocks(name, 0..BLOCKS, &self.outcome([0; 9], begun, true, &result));
                }
            }
            Act::Write(slot, block, count, fua) => self.write(slot, block..(block + count).min(BLOCKS), fua, begun),
            Act::Deallocate(slot, block, whole) => {
                if let Some((name, device)) = self.device(slot) {
                    let rules = self.rules;
                    let (lba, per_extent) = (rules.lba(block), rules.extent());
                    let (first, count) = if whole { (lba / per_extent * per_extent, per_extent) } else { (lba, 1) };
                    let (offset, len) =
                        (first * rules.block_format.block_bytes(), count * rules.block_format.block_bytes());
                    let result = deallocate(&device, &mut self.io, offset, len);
                    let inside = |block: &u64| (first..first + count).contains(&rules.lba(*block));
                    self.blocks(name, (0..BLOCKS).filter(inside), &self.outcome([0; 9], begun, false, &result));
                }
            }
            Act::Flush(slot) => {
                if let Some((_, device)) = self.device(slot) {
                    let _may_fail = flush(&device, &mut self.io);
                }
            }
            Act::Sync => {
                let _may_fail = on(&self.medium, Store::sync);
            }
            Act::Commit => {
                let commit = self.state.load(Ordering::SeqCst) + 1;
                let change = commit.to_le_bytes();
                let result = on(&self.medium, move |store| store.commit(&[&change, &[0; 5000], &change]));
                if result.is_ok() {
                    self.state.store(commit, Ordering::SeqCst);
                }
                let step = self.outcome(commit, begun, true, &result);
                self.model.commits.0.push(step);
            }
            Act::Fill => {
                for _ in 0..17 {
                    let _may_fail = on(&self.medium, |store| store.commit(&[&vec![0; 1 << 20]]));
                }
            }
            Act::Restart => {
                self.base.heal();
                self.medium.stop();
                let least = self.state.load(Ordering::SeqCst);
                self.medium = open(&self.base, &self.state)?;
                // After a close everything is flushed; nothing that was refused exists.
                prop_assert_eq!(self.state.load(Ordering::SeqCst), least);
                let names: Vec<u64> = self.medium.volumes().iter().map(|volume| volume.0).collect();
                let slots: Vec<u64> = self.model.slots.values().copied().collect();
                prop_assert!(slots.len() == names.len() && slots.iter().all(|name| names.contains(name)), "{names:?}");
            }
            Act::Fault(faults) => self.base.plan(faults),
            Act::Heal => self.base.heal(),
        }
        Ok(())
    }

    fn create(&mut self, slot: u64, begun: usize) {
        if self.model.slots.contains_key(&slot) {
            return;
        }
        self.model.next += 1;
        let name = self.model.next;
        let (blocks, block_format) = (self.rules.size(), self.rules.block_format);
        let create =
            move |store: &mut Store| store.create(VolumeId(name), blocks, blocks, block_format).map(|_device| ());
        let result = on(&self.medium, create);
        if result.is_ok() {
            self.model.slots.insert(slot, name);
        }
        let mut there = History::new(false);
        there.0.push(self.outcome(true, begun, true, &result));
        self.model.names.insert(name, (there, (0..BLOCKS).map(|_| History::new([0; 9])).collect()));
    }

    /// Adjacent blocks are written by one request, which may need several extents.
    fn write(&mut self, slot: u64, blocks: std::ops::Range<u64>, fua: bool, begun: usize) {
        let Some((name, device)) = self.device(slot) else { return };
        let side_by_side = |first: u64| first % 2 == 1 && first + 1 < blocks.end;
        let mut block = blocks.start;
        while block < blocks.end {
            let count = if side_by_side(block) { 2 } else { 1 };
            self.model.version += 1;
            let version = self.model.version;
            let stamp = |block: u64| (name + 1) << 48 | block << 32 | version;
            let bytes: Vec<u8> = (block..block + count)
                .flat_map(|block| stamp(block).to_le_bytes().repeat(self.rules.bytes() / 8))
                .collect();
            let mut buffer = Buffer::zeroed(bytes.len());
            buffer.as_mut_slice()[..bytes.len()].copy_from_slice(&bytes);
            let write =
                Operation::Write { offset: self.rules.place(block), len: bytes.len(), data: buffer.into(), fua };
            let result = run(&device, &mut self.io, write).result;
            // A full drive refuses it, and nothing has changed.
            if !result.as_ref().is_err_and(|error| error.class() == Class::OutOfSpace) {
                for block in block..block + count {
                    let step = self.outcome([stamp(block); 9], begun, fua, &result);
                    self.blocks(name, std::iter::once(block), &step);
                }
            }
            block += count;
        }
    }
}

/// The events of an incarnation that are kept.
fn left(events: Vec<Event>, cut: usize, flushed: usize, end: &End, sector_bytes: usize) -> Vec<Event> {
    // A random bit for each event, and for each of its sectors.
    let coin = |at: usize, sector: usize| {
        let mixed =
            (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (sector as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
        (mixed ^ end.chance).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 61
    };
    let mut kept = Vec::new();
    for (at, event) in events.into_iter().enumerate().take(cut) {
        match event {
            Event::Write(offset, bytes) if end.power && at >= flushed => {
                let sectors = bytes.chunks(sector_bytes).enumerate();
                let sectors = sectors.filter(|(sector, _)| coin(at, 0) > 2 && coin(at, sector + 1) > 0);
                kept.extend(sectors.map(|(at, part)| Event::Write(offset + (at * sector_bytes) as u64, part.to_vec())));
            }
            Event::Zero(..) if end.power && at >= flushed && coin(at, 0) <= 2 => {}
            event => kept.push(event),
        }
    }
    kept
}

/// Each sector has one of the possible values.
fn sectors(bytes: &[u8], possible: &[Value]) -> Result<Value, String> {
    let mut found: Value = [0; 9];
    for (sector, bytes) in bytes.chunks(512).enumerate() {
        let word = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        let is_whole = bytes.chunks(8).all(|bytes| bytes == word.to_le_bytes());
        if !is_whole || !possible.iter().any(|value| value[sector] == word) {
            return Err(format!("sector {sector}: {word:x} of {possible:x?}"));
        }
        found[sector] = word;
    }
    Ok(found)
}

/// The whole block, with its metadata, has one of the possible values.
fn whole(bytes: &[u8], possible: &[Value], rules: Rules) -> Result<Value, String> {
    let word = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    let is_whole = bytes.len() == rules.bytes() && bytes.chunks(8).all(|bytes| bytes == word.to_le_bytes());
    let is_possible = possible.contains(&[word; 9]);
    if is_whole && is_possible { Ok([word; 9]) } else { Err(format!("{word:x} of {possible:x?}")) }
}

/// Compares the drive with the model, and sets the model to the drive's state.
fn check(incarnation: &mut Incarnation<'_>, cut: usize, flushed: usize, power: bool) -> Result<(), TestCaseError> {
    let commits = incarnation.state.load(Ordering::SeqCst);
    prop_assert!(
        incarnation.model.commits.possible(cut, flushed).any(|possible| *possible == commits),
        "{commits} commits"
    );
    incarnation.model.commits = History::new(commits);
    let names: Vec<u64> = incarnation.medium.volumes().iter().map(|volume| volume.0).collect();
    prop_assert!(names.iter().all(|name| incarnation.model.names.contains_key(name)), "a namespace that nobody made");
    for (name, (there, mut blocks)) in std::mem::take(&mut incarnation.model.names) {
        let is_there = names.contains(&name);
        prop_assert!(
            there.possible(cut, flushed).any(|possible| *possible == is_there),
            "namespace {name}: {is_there}"
        );
        if !is_there {
            continue;
        }
        let device = incarnation.medium.device(VolumeId(name)).expect("it is there");
        let rules = incarnation.rules;
        let all = read(&device, &mut incarnation.io, 0, usize::try_from(rules.size()).expect("small") * rules.bytes());
        prop_assert!(all.is_ok() || all == Err(Class::MediumRead) && rules.tears() && power, "{:?}", all.err());
        for (block, history) in (0..).zip(&mut blocks) {
            let at = usize::try_from(rules.place(block)).expect("small");
            let bytes = match &all {
                Ok(all) => Ok(all[at..at + rules.bytes()].to_vec()),
                Err(_) => read(&device, &mut incarnation.io, rules.place(block), rules.bytes()),
            };
            let possible: Vec<Value> = history.possible(cut, flushed).copied().collect();
            let found = match bytes {
                Ok(_) if possible.contains(&MIXED) => Ok(MIXED),
                Ok(bytes) if rules.block_format.may_be_in_flux() && rules.tears() && power && possible.len() > 1 => {
                    whole(&bytes, &possible, rules).or_else(|_| match rules.block_format.encrypted {
                        true => Ok(MIXED),
                        false => sectors(&bytes, &possible).map(|_| MIXED),
                    })
                }
                Ok(bytes) if rules.block_format.is_tagged() => whole(&bytes, &possible, rules),
                Ok(bytes) => sectors(&bytes, &possible),
                // Torn: its value is unknown.
                Err(Class::MediumRead) if possible.len() > 1 || possible == [DAMAGED] => Ok(DAMAGED),
                Err(class) => Err(format!("{class:?} of {possible:x?}")),
            };
            let found = found.map_err(|what| TestCaseError::fail(format!("block {block} of {name}: {what}")))?;
            *history = History::new(found);
        }
        // Data of other namespaces anywhere in readable blocks. A mixture that was encrypted is of
        // nothing.
        let all = all.unwrap_or_default();
        let all = if rules.block_format.may_be_in_flux() && rules.block_format.encrypted { Vec::new() } else { all };
        for word in all.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))) {
            prop_assert!(word == 0 || word >> 48 == name + 1, "namespace {name} reads bytes of {}", (word >> 48) - 1);
        }
        incarnation.model.names.insert(name, (History::new(true), blocks));
    }
    incarnation.model.slots.retain(|_, name| names.contains(name));
    for name in names {
        if let Some(slot) = (0..SLOTS).find(|slot| !incarnation.model.slots.contains_key(slot))
            && !incarnation.model.slots.values().any(|other| *other == name)
        {
            incarnation.model.slots.insert(slot, name);
        }
    }
    incarnation.counts()
}

/// Runs the incarnations one after the other; after the last one the drive is only checked.
fn live(rules: Rules, incarnations: &[(Vec<Act>, End)]) -> Result<(), TestCaseError> {
    let mut model =
        Model { names: BTreeMap::new(), commits: History::new(0), slots: BTreeMap::new(), version: 0, next: 10 };
    let mut image: Vec<Event> = Vec::new();
    let (mut cut, mut flushed, mut power) = (0, 0, false);
    for number in 0..=incarnations.len() {
        let base = Arc::new(Recorder::with(CAPACITY, &image));
        let events = || base.events.lock().expect("nobody panicked with it").clone();
        let state = Arc::default();
        let medium = open(&base, &state)?;
        // The creation of a drive is not tested here.
        let least = if number == 0 { events().len() } else { 0 };
        let io = Io::new(16).expect("an engine");
        let mut incarnation = Incarnation { base: Arc::clone(&base), medium, io, state, model: &mut model, rules };
        check(&mut incarnation, cut, flushed, power)
            .map_err(|error| TestCaseError::fail(format!("after {number} incarnations: {error}")))?;
        if let Some((acts, end)) = incarnations.get(number) {
            acts.iter().try_for_each(|act| incarnation.play(act))?;
            let events = events();
            base.heal();
            incarnation.counts()?;
            cut = least + end.cut.index(events.len() - least + 1);
            let is_flush = |event: &Event| matches!(event, Event::Flush);
            flushed = if end.power { events[..cut].iter().rposition(is_flush).map_or(0, |at| at + 1) } else { cut };
            power |= end.power;
            image.extend(left(events, cut, flushed, end, rules.sector));
        }
        incarnation.medium.stop();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    // @test drive.no-lost-data
    #[test]
    fn acknowledged_data_survive_any_number_of_crashes(incarnations in proptest::collection::vec(incarnation(), 1..5)) {
        live(Rules { block_format: BlockFormat::plain(12), sector: 512 }, &incarnations)?;
    }

    // @test drive.no-lost-data
    #[test]
    fn blocks_with_tags_or_keys_are_atomic_over_any_number_of_crashes(
        block_format in prop::sample::select([&block_formats()[..], &[BlockFormat { encrypted: true, ..BlockFormat::plain(12) }]].concat()),
        incarnations in proptest::collection::vec(incarnation(), 1..5),
    ) {
        let sector = usize::try_from(block_format.data_bytes()).expect("few");
        live(Rules { block_format, sector }, &incarnations)?;
    }

    #[test]
    fn torn_blocks_with_tags_are_detected(
        block_format in prop::sample::select(block_formats().to_vec()),
        incarnations in proptest::collection::vec(incarnation(), 1..5),
    ) {
        live(Rules { block_format, sector: 512 }, &incarnations)?;
    }
}
