//! A drive that is cut off at any moment: by a kill, which loses nothing that was written, and by a power loss, which loses any
//! of what was not flushed, and tears it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebof_backend::{Device, Io, Memory};
use ebof_medium::{Instance, Options, Store, medium_bytes};
use proptest::prelude::*;

use crate::rig::{Event, create, deallocate, drive, flush, on, read, write};

const CAPACITY: u64 = 2 << 20;
const EXTENT: u64 = 256 << 10;
const BLOCK: u64 = 4096;
/// Blocks of a namespace that the histories touch, spread over its extents.
const BLOCKS: u64 = 12;

#[derive(Clone, Debug)]
enum Act {
    Create(u64),
    Remove(u64),
    Write(u64, u64),
    Deallocate(u64, u64),
    Flush(u64),
    Commit,
    Checkpoint,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let instance = 0..3_u64;
    let act = prop_oneof![
        2 => instance.clone().prop_map(Act::Create),
        1 => instance.clone().prop_map(Act::Remove),
        6 => (instance.clone(), 0..BLOCKS).prop_map(|(instance, block)| Act::Write(instance, block)),
        2 => (instance.clone(), 0..BLOCKS).prop_map(|(instance, block)| Act::Deallocate(instance, block)),
        1 => instance.prop_map(Act::Flush),
        1 => Just(Act::Commit),
        1 => Just(Act::Checkpoint),
    ];
    proptest::collection::vec(act, 1..40)
}

/// Where block `block` of the history lies: two in each extent.
fn place(block: u64) -> u64 {
    (block / 2) * EXTENT + (block % 2) * BLOCK
}

/// Bytes that say whose they are: of which namespace, which block, and which write.
fn stamp(name: u64, block: u64, version: u64) -> Vec<u8> {
    let word = (name + 1) << 48 | block << 32 | version;
    word.to_le_bytes().repeat(512)
}

/// What a namespace may hold: by block, all versions from the last one that is sure; 0 for zeros.
type Model = BTreeMap<u64, BTreeMap<u64, Vec<u64>>>;

/// What was true when so many events had happened on the device.
struct Moment {
    events: usize,
    /// What was acknowledged, by the namespace's name on the medium.
    model: Model,
    commits: u64,
}

/// Plays a history; what was acknowledged after each act.
#[expect(clippy::too_many_lines, reason = "an arm for each act")]
fn play(acts: &[Act]) -> (Vec<Event>, Vec<Moment>) {
    let (base, opened) = drive(CAPACITY);
    let medium = &opened.medium;
    let mut io = Io::new(16).expect("an engine");
    let events = || base.events.lock().expect("nobody panicked with it").len();
    let (mut model, mut commits, mut version, mut next) = (Model::new(), 0_u64, 0_u64, 10_u64);
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut moments = vec![Moment { events: events(), model: model.clone(), commits }];
    let state = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let kept = Arc::clone(&state);
    on(medium, move |store| {
        let kept = move || kept.load(std::sync::atomic::Ordering::SeqCst).to_le_bytes().to_vec();
        store.set_snapshot(Box::new(kept));
    });
    for act in acts {
        let name = |slot: &u64| live.get(slot).copied();
        match act {
            Act::Create(slot) if !live.contains_key(slot) => {
                next += 1;
                create(medium, next, 2 << 20);
                live.insert(*slot, next);
                model.insert(next, BTreeMap::new());
            }
            Act::Remove(slot) => {
                if let Some(name) = live.remove(slot) {
                    on(medium, move |store| store.remove(Instance(name))).expect("a healthy device");
                    model.remove(&name);
                }
            }
            Act::Write(slot, block) => {
                if let Some(name) = name(slot) {
                    version += 1;
                    let device = medium.device(Instance(name)).expect("it is there");
                    // A full drive refuses it: nothing has changed then.
                    if write(&device, &mut io, place(*block), &stamp(name, *block, version)).is_ok() {
                        model.entry(name).or_default().insert(*block, vec![version]);
                    }
                }
            }
            Act::Deallocate(slot, block) => {
                if let Some(name) = name(slot) {
                    let device = medium.device(Instance(name)).expect("it is there");
                    let extent = block / 2;
                    deallocate(&device, &mut io, extent * EXTENT, EXTENT).expect("a healthy device");
                    for block in [extent * 2, extent * 2 + 1] {
                        model.entry(name).or_default().insert(block, vec![0]);
                    }
                }
            }
            Act::Flush(slot) => {
                if let Some(name) = name(slot) {
                    flush(&medium.device(Instance(name)).expect("it is there"), &mut io).expect("a healthy device");
                }
            }
            Act::Commit => {
                commits += 1;
                let change = commits.to_le_bytes();
                on(medium, move |store| store.commit(&[&change])).expect("a healthy device");
                state.store(commits, std::sync::atomic::Ordering::SeqCst);
            }
            Act::Checkpoint => {
                // A change that does not fit into what is left of the journal brings one about.
                for _ in 0..17 {
                    on(medium, |store| store.commit(&[&vec![0; 1 << 20]])).expect("a healthy device");
                }
            }
            Act::Create(_) => {}
        }
        let all = base.events.lock().expect("nobody panicked with it");
        moments.push(Moment { events: all.len(), model: model.clone(), commits });
    }
    std::mem::forget(opened);
    let events = base.events.lock().expect("nobody panicked with it").clone();
    (events, moments)
}

/// The device after some of the events.
fn device(events: &[Event], kept: impl Fn(usize) -> bool, torn: impl Fn(usize, usize) -> bool) -> Arc<dyn Device> {
    let bytes = medium_bytes(CAPACITY).expect("a legal size");
    let device: Arc<dyn Device> = Arc::new(Memory::new(bytes, 512, false));
    let mut io = Io::new(16).expect("an engine");
    for (at, event) in events.iter().enumerate().filter(|(at, _)| kept(*at)) {
        match event {
            Event::Write(offset, bytes) => {
                for (sector, part) in bytes.chunks(512).enumerate().filter(|(sector, _)| !torn(at, *sector)) {
                    write(&device, &mut io, offset + sector as u64 * 512, part).expect("memory");
                }
            }
            Event::Zero(offset, len) => deallocate(&device, &mut io, *offset, *len).expect("memory"),
            Event::Flush => {}
        }
    }
    device
}

/// Opens the drive and compares it with what was acknowledged (`sure`) and what was under way until `later`.
fn check(device: Arc<dyn Device>, sure: &Moment, later: &Moment) -> Result<(), TestCaseError> {
    let opened = Store::open(device, Options::default());
    let opened = opened.map_err(|error| TestCaseError::fail(format!("it does not open: {error}")))?;
    let mut io = Io::new(16).expect("an engine");
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let mut commits = opened.snapshot.as_deref().map_or(0, word);
    for change in opened.changes.iter().filter(|change| change.len() == 8) {
        prop_assert_eq!(word(change), commits + 1, "changes come in order");
        commits = word(change);
    }
    prop_assert!((sure.commits..=later.commits).contains(&commits), "{commits} commits of {}", sure.commits);
    let names: Vec<u64> = opened.medium.instances().iter().map(|instance| instance.0).collect();
    for (name, blocks) in sure.model.iter().filter(|(name, _)| later.model.contains_key(name)) {
        prop_assert!(names.contains(name), "namespace {name} is lost");
        let device = opened.medium.device(Instance(*name)).expect("it is there");
        for block in 0..BLOCKS {
            let bytes = read(&device, &mut io, place(block), 4096);
            let bytes = bytes.map_err(|class| TestCaseError::fail(format!("{class:?}")))?;
            let before = blocks.get(&block).cloned().unwrap_or_else(|| vec![0]);
            let after = later.model.get(name).and_then(|blocks| blocks.get(&block)).cloned().unwrap_or_else(|| vec![0]);
            let (least, most) = (before[0], after[0].max(before[0]));
            let word = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
            if word == 0 {
                prop_assert!(bytes.iter().all(|byte| *byte == 0) || later.events != sure.events, "a torn block");
                let was_zero = before.contains(&0) || after.contains(&0) || later.events != sure.events;
                prop_assert!(was_zero, "block {block} of {name} is lost: {before:?}");
                continue;
            }
            let (owner, of, version) = (word >> 48, word >> 32 & 0xffff, word & 0xffff_ffff);
            prop_assert_eq!((owner, of), (name + 1, block), "bytes of somebody else");
            prop_assert!(
                version >= least.min(1) && version <= most.max(version.min(most)),
                "{version} of {least} to {most}"
            );
            prop_assert!(version >= least || after.contains(&0), "an old version: {version} of {least}");
        }
    }
    // Bytes of others anywhere in what can be read.
    for name in names {
        let device = opened.medium.device(Instance(name)).expect("it is there");
        let all = read(&device, &mut io, 0, 2 << 20).map_err(|class| TestCaseError::fail(format!("{class:?}")))?;
        for word in all.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))) {
            prop_assert!(word == 0 || word >> 48 == name + 1, "namespace {name} reads bytes of {}", (word >> 48) - 1);
        }
    }
    opened.medium.stop();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_kill_loses_nothing_that_was_acknowledged(acts in acts(), cut in any::<prop::sample::Index>()) {
        let (events, moments) = play(&acts);
        let cut = moments[0].events + cut.index(events.len() - moments[0].events + 1);
        let device = device(&events, |at| at < cut, |_, _| false);
        let sure = moments.iter().rfind(|moment| moment.events <= cut).expect("the first");
        let later = moments.iter().find(|moment| moment.events >= cut).expect("the last");
        check(device, sure, later)?;
    }

    #[test]
    fn a_power_loss_loses_nothing_that_was_flushed(acts in acts(), cut in any::<prop::sample::Index>(), chance in any::<u64>()) {
        let (events, moments) = play(&acts);
        let cut = moments[0].events + cut.index(events.len() - moments[0].events + 1);
        let flushed = events[..cut].iter().rposition(|event| matches!(event, Event::Flush)).map_or(0, |at| at + 1);
        // A coin for each event, and for each sector of one.
        let coin = |at: usize, sector: usize| {
            let mixed = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (sector as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
            (mixed ^ chance).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 61
        };
        let kept = |at: usize| at < flushed || at < cut && coin(at, 0) > 2;
        let torn = |at: usize, sector: usize| at >= flushed && coin(at, sector + 1) == 0;
        let device = device(&events, kept, torn);
        // What was acknowledged when the last flush began is on the medium.
        let sure = moments.iter().rfind(|moment| moment.events <= flushed).expect("the first");
        let later = moments.iter().find(|moment| moment.events >= cut).expect("the last");
        check(device, sure, later)?;
    }
}
