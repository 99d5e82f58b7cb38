//! Nothing is left on the backing device of erased namespaces, and of an earlier drive.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebof_backend::{Device, Geometry, Io, Memory, Operation, Request, Submitted};
use ebof_drive::frame::FRAME_BYTES;
use ebof_drive::keys::{KeyTable, WRAPPED_BYTES};
use ebof_drive::layout::{Layout, SUPERBLOCK_BYTES};
use ebof_drive::tag::Tag;
use ebof_medium::{BlockFormat, DriveKey, Medium, OpenError, Opened, Options, Purge, Store, VolumeId, medium_bytes};

use crate::rig::{Event, Faults, Recorder, create, create_coded, kill, on, read, write};

const CAPACITY: u64 = 4 << 20;
const KEYS: std::ops::Range<usize> = 64 << 10..1 << 20;
/// Blocks of a namespace that are written.
const BLOCKS: u64 = 200;

fn options(key: Option<[u8; 32]>) -> Options {
    Options { create: Some(CAPACITY), zeroed: true, key: key.as_ref().map(DriveKey::copy_of), ..Options::default() }
}

fn open(base: &Arc<dyn Device>) -> Opened {
    ebof_medium::open(Arc::clone(base), options(None)).unwrap()
}

fn everything(base: &Arc<dyn Device>) -> Vec<u8> {
    let len = usize::try_from(base.geometry().capacity_bytes).unwrap();
    read(base, &mut Io::new(4).unwrap(), 0, len).unwrap()
}

/// The parts of the device that are not zeros, each with some bytes of the next.
fn parts(base: &Arc<dyn Device>) -> Vec<Vec<u8>> {
    const PART: usize = 64 << 10;
    const MORE: usize = 4096;
    let (all, zeros) = (everything(base), vec![0; PART]);
    let used = all.chunks(PART).enumerate().filter(|(_, part)| **part != zeros[..part.len()]);
    used.map(|(at, part)| all[at * PART..(at * PART + part.len() + MORE).min(all.len())].to_vec()).collect()
}

/// Whether the bytes are anywhere on the device.
fn holds(parts: &[Vec<u8>], wanted: &[u8]) -> bool {
    parts.iter().any(|part| {
        let mut at = 0;
        while let Some(found) = part[at..].iter().position(|&byte| byte == wanted[0]).map(|found| at + found) {
            if part[found..].starts_with(wanted) {
                return true;
            }
            at = found + 1;
        }
        false
    })
}

fn has(base: &Arc<dyn Device>, wanted: &[u8]) -> bool {
    holds(&parts(base), wanted)
}

const METADATA: [u8; 8] = *b"METADATA";
const DATA: &[u8] = b"THE DATA OF A HOST THAT NOBODY IS TO SEE ";

fn block_format() -> BlockFormat {
    BlockFormat { metadata_bytes: 8, checked: true, ..BlockFormat::plain(12) }
}

fn secret() -> Vec<u8> {
    let mut block: Vec<u8> = DATA.iter().copied().cycle().take(4096).collect();
    block.extend(METADATA);
    block
}

/// The tags of the secret's blocks of a namespace.
fn tags(volume: u64) -> Vec<[u8; 16]> {
    let block = secret();
    (0..BLOCKS).map(|lba| Tag::new(VolumeId(volume), lba, &block[..4096], METADATA).0).collect()
}

fn fill(medium: &Medium, volume: u64, block: &[u8]) {
    let device = medium.device(VolumeId(volume)).unwrap();
    let mut io = Io::new(4).unwrap();
    for lba in 0..BLOCKS {
        write(&device, &mut io, lba * block.len() as u64, block).unwrap();
    }
}

fn erase(medium: &Medium) {
    while !on(medium, Store::clean).unwrap() {}
    let mut purge = Purge::default();
    loop {
        let (done, next) = on(medium, move |store| (store.purge(&mut purge).unwrap(), purge));
        purge = next;
        if done {
            return;
        }
        // Concurrent activity: a change, and sometimes a checkpoint.
        on(medium, |store| store.commit(&[&[7; 100_000]])).unwrap();
    }
}

// @test data.erase
#[test]
fn nothing_of_an_erased_namespace_is_left_anywhere() {
    for (removed, incarnation) in [(true, 0), (false, 0), (true, 1), (true, 2)] {
        let base: Arc<dyn Device> = Arc::new(Memory::new(medium_bytes(CAPACITY).unwrap(), 512, false));
        let mut opened = open(&base);
        on(&opened.medium, |store| store.set_snapshot(Box::new(|| vec![9; 50_000])));
        create_coded(&opened.medium, 1, BLOCKS, block_format());
        create(&opened.medium, 2, 1 << 20);
        fill(&opened.medium, 1, &secret());
        fill(&opened.medium, 2, &[3; 4096]);
        // Checkpoints with tags: after a crash it is unknown which of them belong to blocks.
        for _ in 0..incarnation {
            kill(opened.medium);
            opened = open(&base);
            opened.medium.stop();
            opened = open(&base);
            fill(&opened.medium, 1, &secret());
            on(&opened.medium, |store| store.set_snapshot(Box::new(|| vec![9; 500])));
        }
        let tags = tags(1);
        let before = parts(&base);
        assert!(holds(&before, DATA) && tags.iter().step_by(20).all(|tag| holds(&before, tag)));
        if removed {
            on(&opened.medium, |store| store.remove(VolumeId(1))).unwrap();
        } else {
            on(&opened.medium, |store| store.clear(VolumeId(1))).unwrap();
        }
        erase(&opened.medium);
        let after = parts(&base);
        assert!(!holds(&after, DATA) && !holds(&after, &METADATA), "{removed} {incarnation}");
        // Also without their metadata.
        assert!(!tags.iter().step_by(20).any(|tag| holds(&after, &tag[..8])), "{removed} {incarnation}");
        // Other data are kept, now and after a crash.
        kill(opened.medium);
        let again = open(&base);
        let device = again.medium.device(VolumeId(2)).unwrap();
        let mut io = Io::new(4).unwrap();
        assert_eq!(read(&device, &mut io, 0, 4096 * 200).unwrap(), vec![3; 4096 * 200]);
        assert_eq!(again.medium.device(VolumeId(1)).is_some(), !removed);
        again.medium.stop();
        assert_eq!(open(&base).medium.volumes().len(), 1 + usize::from(!removed));
    }
}

/// After a power loss at any write of a purge the drive opens with all its data.
#[test]
fn a_drive_opens_after_a_power_loss_at_any_write_of_a_purge() {
    let base = Arc::new(Recorder::new(medium_bytes(CAPACITY).unwrap()));
    let device: Arc<dyn Device> = Arc::clone(&base) as Arc<dyn Device>;
    let opened = open(&device);
    create_coded(&opened.medium, 1, BLOCKS, block_format());
    create_coded(&opened.medium, 2, BLOCKS, block_format());
    fill(&opened.medium, 1, &secret());
    let mut kept = vec![3; 4096];
    kept.extend([4; 8]);
    fill(&opened.medium, 2, &kept);
    on(&opened.medium, |store| store.remove(VolumeId(1))).unwrap();
    let begin = base.events.lock().unwrap().len();
    erase(&opened.medium);
    kill(opened.medium);
    let events = base.events.lock().unwrap().clone();
    assert!(events.len() > begin + 8);
    for cut in begin..=events.len() {
        let again = Arc::new(Recorder::with(CAPACITY, &events[..cut]));
        let again = open(&(again as Arc<dyn Device>));
        assert_eq!(again.medium.volumes(), [VolumeId(2)], "cut {cut}");
        let device = again.medium.device(VolumeId(2)).unwrap();
        let mut io = Io::new(4).unwrap();
        for lba in [0, 70, BLOCKS - 1] {
            assert!(read(&device, &mut io, lba * 4104, 4104) == Ok(kept.clone()), "cut {cut}: block {lba}");
        }
    }
}

/// Keys by namespace, from the newer of the tables.
fn keys(base: &Arc<dyn Device>) -> BTreeMap<VolumeId, [u8; WRAPPED_BYTES]> {
    let all = everything(base);
    let id = [0; 16];
    let layout = Layout::new(CAPACITY, id).unwrap();
    let table = |which| KeyTable::decode(id, &all[usize::try_from(layout.keys(which)).unwrap()..]);
    let tables = [table(0), table(1)];
    tables.into_iter().flatten().max_by_key(|table| table.sequence).map(|table| table.keys).unwrap_or_default()
}

fn encrypted(medium: &Medium, volume: u64) {
    create_coded(medium, volume, 16, BlockFormat { encrypted: true, ..BlockFormat::plain(12) });
}

/// A power loss while a shorter table replaces a longer one leaves no keys after its end.
// @test data.erase
#[test]
fn no_key_survives_its_namespace_after_a_power_loss_at_any_write() {
    for failing in [false, true] {
        let base = Arc::new(Recorder::new(medium_bytes(CAPACITY).unwrap()));
        let device: Arc<dyn Device> = Arc::clone(&base) as Arc<dyn Device>;
        let opened = open(&device);
        // More than fit into a frame.
        let last = FRAME_BYTES as u64 / 80 + 2;
        (1..=last).for_each(|volume| encrypted(&opened.medium, volume));
        let known = keys(&device);
        assert_eq!(known.len() as u64, last);
        let begin = base.events.lock().unwrap().len();
        for volume in (last - 3..=last).rev() {
            if failing {
                base.plan(Faults { after: 4, count: 2, done: volume == last });
            }
            let removed = on(&opened.medium, move |store| store.remove(VolumeId(volume)));
            base.heal();
            // Which write it is that fails depends on what else the drive's thread has just
            // written.
            if removed.is_err() {
                on(&opened.medium, move |store| store.remove(VolumeId(volume))).unwrap();
            }
        }
        kill(opened.medium);
        let events = base.events.lock().unwrap().clone();
        let mut found = std::collections::BTreeSet::new();
        for cut in begin..=events.len() {
            let again: Arc<dyn Device> = Arc::new(Recorder::with(CAPACITY, &events[..cut]));
            let opened = open(&again);
            // When the thread answers, it has begun.
            let there = on(&opened.medium, |store| (store.forget_keys().unwrap(), store.owes_keys()));
            assert_eq!(there, ((), false));
            let there = opened.medium.volumes();
            let parts = parts(&again);
            for (volume, key) in known.iter().rev().take(6) {
                let expected = there.contains(volume);
                // Not even a part of a key may be left.
                assert_eq!(holds(&parts, &key[24..64]), expected, "cut {cut}: key of {}", volume.0);
            }
            found.insert(there.len());
        }
        assert_eq!(found.len(), 5, "{found:?}");
    }
}

/// A namespace that could not be created leaves no key.
#[test]
fn a_namespace_that_could_not_be_created_leaves_no_key() {
    let base = Arc::new(Recorder::new(medium_bytes(CAPACITY).unwrap()));
    let device: Arc<dyn Device> = Arc::clone(&base) as Arc<dyn Device>;
    let opened = open(&device);
    encrypted(&opened.medium, 1);
    // Both tables and their flushes succeed, the journal fails.
    base.plan(Faults { after: 4, count: 1, done: false });
    let block_format = BlockFormat { encrypted: true, ..BlockFormat::plain(12) };
    on(&opened.medium, move |store| store.create(VolumeId(2), 16, 16, block_format)).unwrap_err();
    base.heal();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while keys(&device).len() != 1 {
        assert!(std::time::Instant::now() < end, "the key of what was not made is still there");
        std::thread::yield_now();
    }
    encrypted(&opened.medium, 2);
    assert_eq!(keys(&device).len(), 2);
}

/// A device with remains of a drive: everything except its superblocks, and the names of its parts.
fn with_an_earlier_drive() -> (Arc<dyn Device>, Vec<Vec<u8>>) {
    let base: Arc<dyn Device> = Arc::new(Memory::new(medium_bytes(CAPACITY).unwrap(), 512, false));
    let opened = open(&base);
    encrypted(&opened.medium, 1);
    create_coded(&opened.medium, 2, BLOCKS, block_format());
    fill(&opened.medium, 2, &secret());
    let mut secrets: Vec<Vec<u8>> = keys(&base).values().map(|key| key[..64].to_vec()).collect();
    secrets.extend(tags(2).into_iter().step_by(20).map(|tag| tag.to_vec()));
    secrets.push(DATA.to_vec());
    opened.medium.stop();
    drop(opened);
    let parts = parts(&base);
    assert!(secrets.iter().all(|secret| holds(&parts, secret)));
    (base, secrets)
}

fn zero(base: &Arc<dyn Device>, at: u64, len: usize) {
    write(base, &mut Io::new(4).unwrap(), at, &vec![0; len]).unwrap();
}

// @test output.destroying-advice
// @test data.create-over-zeros
#[test]
fn a_drive_that_lost_its_superblocks_is_not_overwritten() {
    let (base, _) = with_an_earlier_drive();
    zero(&base, 0, 2 * SUPERBLOCK_BYTES);
    let before = everything(&base);
    for overwrite in [false, true] {
        let options = Options { create: Some(CAPACITY), overwrite, ..Options::default() };
        let error = ebof_medium::open(Arc::clone(&base), options).map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        let told = error.to_string();
        let first = told.find("Copy it before anything else");
        assert!(first.is_some() && first < told.find("overwrite its first 34 MiB with zeros"), "{told}");
    }
    assert!(everything(&base) == before, "it was touched");
    // As the message says.
    zero(&base, 0, 34 << 20);
    let options = Options { create: Some(CAPACITY), overwrite: true, ..Options::default() };
    assert!(ebof_medium::open(Arc::clone(&base), options).unwrap().created);
}

// @test data.create-over-zeros
#[test]
fn a_drive_created_over_an_earlier_one_keeps_nothing_of_it() {
    let (base, secrets) = with_an_earlier_drive();
    let layout = Layout::new(CAPACITY, [0; 16]).unwrap();
    zero(&base, 0, 2 * SUPERBLOCK_BYTES);
    let mut io = Io::new(4).unwrap();
    for at in [layout.keys(0), layout.keys(1), layout.journal(0), layout.journal(1), layout.checkpoint(0)] {
        let mut block = read(&base, &mut io, at, 512).unwrap();
        block[..8].fill(0);
        write(&base, &mut io, at, &block).unwrap();
    }
    let wiped = |options: &Options| ebof_medium::open(Arc::clone(&base), options.clone());
    let mut options = Options { create: Some(CAPACITY), id: [8; 16], ..Options::default() };
    assert!(matches!(wiped(&options), Err(OpenError::HoldsData { .. })));
    options.overwrite = true;
    let opened = wiped(&options).unwrap();
    assert!(opened.created);
    while !on(&opened.medium, Store::clean).unwrap() {}
    let parts = parts(&base);
    assert!(!secrets.iter().any(|secret| holds(&parts, secret)));
    // The option is set again: the existing drive is kept.
    create(&opened.medium, 5, 1 << 20);
    opened.medium.stop();
    drop(opened);
    let again = wiped(&options).unwrap();
    assert!(!again.created && again.medium.volumes() == [VolumeId(5)]);
}

/// A device that ignores requests to zero ranges below an offset.
#[derive(Debug)]
struct Keeps {
    base: Arc<dyn Device>,
    below: u64,
}

impl Device for Keeps {
    fn geometry(&self) -> Geometry {
        self.base.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        match request.operation {
            Operation::WriteZeroes { offset, .. } if offset < self.below => Submitted::Done(request.complete(Ok(()))),
            _ => self.base.submit(io, request),
        }
    }

    fn describe(&self) -> String {
        "a device that keeps what is zeroed".to_owned()
    }
}

/// File systems only record that a range reads as zeros: the old data stay on the disk.
#[test]
fn remains_of_an_earlier_drive_are_overwritten_and_not_only_discarded() {
    let (base, secrets) = with_an_earlier_drive();
    let layout = Layout::new(CAPACITY, [0; 16]).unwrap();
    zero(&base, 0, 2 * SUPERBLOCK_BYTES);
    let mut io = Io::new(4).unwrap();
    for at in [layout.keys(0), layout.keys(1), layout.journal(0), layout.journal(1), layout.checkpoint(0)] {
        let mut block = read(&base, &mut io, at, 512).unwrap();
        block[..8].fill(0);
        write(&base, &mut io, at, &block).unwrap();
    }
    let keeps: Arc<dyn Device> = Arc::new(Keeps { base, below: layout.data() });
    let options = Options { create: Some(CAPACITY), id: [8; 16], overwrite: true, ..Options::default() };
    let opened = ebof_medium::open(Arc::clone(&keeps), options).unwrap();
    assert!(opened.created);
    while !on(&opened.medium, Store::clean).unwrap() {}
    let parts = parts(&keeps);
    assert!(!secrets.iter().any(|secret| holds(&parts, secret)));
}

/// A drive as an earlier version created it.
#[test]
fn an_old_drive_loses_the_keys_of_the_one_before_it() {
    let base: Arc<dyn Device> = Arc::new(Memory::new(medium_bytes(CAPACITY).unwrap(), 512, false));
    let opened = ebof_medium::open(Arc::clone(&base), options(Some([1; 32]))).unwrap();
    encrypted(&opened.medium, 1);
    opened.medium.stop();
    drop(opened);
    let before = everything(&base)[KEYS].to_vec();
    let id = [8; 16];
    zero(&base, 0, 34 << 20);
    for key in [None, Some([2; 32])] {
        let options = Options { id, zeroed: true, ..options(key) };
        drop(ebof_medium::open(Arc::clone(&base), options.clone()).unwrap().medium);
        write(&base, &mut Io::new(4).unwrap(), KEYS.start as u64, &before).unwrap();
        let opened = ebof_medium::open(Arc::clone(&base), options).unwrap();
        assert!(!opened.created);
        on(&opened.medium, |_| ());
        assert!(!has(&base, &before[72..136]));
    }
}

/// Blocks that are released to a file system keep their data, so they are overwritten before.
#[test]
fn extents_to_be_overwritten_are_not_freed_before() {
    let base = Arc::new(Recorder::new(medium_bytes(CAPACITY).unwrap()));
    let device: Arc<dyn Device> = Arc::clone(&base) as Arc<dyn Device>;
    let opened = open(&device);
    create(&opened.medium, 1, 1 << 20);
    fill(&opened.medium, 1, &[3; 4096]);
    let begin = base.events.lock().unwrap().len();
    on(&opened.medium, |store| {
        store.hold_unclean(true);
        store.remove(VolumeId(1)).unwrap();
    });
    while !on(&opened.medium, Store::is_reclaimed) {}
    // Without work the thread would have time to zero it.
    for _ in 0..200 {
        on(&opened.medium, |_| ());
        std::thread::yield_now();
    }
    let extents = on(&opened.medium, |store| {
        store.fill_free(0, store.extents(), 0x5aa5_1234).unwrap();
        store.extents()
    });
    let data = Layout::new(CAPACITY, [0; 16]).unwrap().data();
    let events = base.events.lock().unwrap()[begin..].to_vec();
    let zeroed = events.iter().position(|event| matches!(event, Event::Zero(at, _) if *at >= data));
    let writes = events.iter().filter(|event| matches!(event, Event::Write(at, _) if *at >= data)).count();
    assert_eq!((zeroed, writes), (None, usize::try_from(extents).unwrap()));
    // Then it is freed.
    on(&opened.medium, |store| store.hold_unclean(false));
    while !on(&opened.medium, Store::clean).unwrap() {}
    assert!(!has(&device, &[0x34, 0x12, 0xa5, 0x5a]));
    assert_eq!(on(&opened.medium, |store| store.given_back_bytes()), CAPACITY);
}
