//! A process that serves a drive is killed, again and again: this test binary, started again,
//! writes identifiable data, and reports through a pipe what it begins and what was acknowledged.
//! The state that the next process finds is compared with that.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebof_backend::{Buffer, Completion, Io, Operation, Request, Submitted};
use ebof_medium::{BlockFormat, Medium, Options, VolumeId, medium_bytes};

use crate::rig::{on, read};

const CAPACITY: u64 = 16 << 20;
/// Bytes of a namespace: together they are more than the drive has.
const SIZE: u64 = 8 << 20;
const EXTENT: u64 = 256 << 10;
/// Blocks that are written: three in each extent.
const BLOCKS: u64 = SIZE / EXTENT * 3;
const NAMESPACES: usize = 3;
const ROUNDS: u64 = 30;

const FILE: &str = "EBOF_KILL_FILE";
const ROUND: &str = "EBOF_KILL_ROUND";

/// The format of a namespace: alternately without and with tags, and every other one encrypted.
fn block_format(name: u64) -> BlockFormat {
    let tagged =
        |block_shift, metadata_bytes| BlockFormat { metadata_bytes, checked: true, ..BlockFormat::plain(block_shift) };
    let block_format = [BlockFormat::plain(12), tagged(12, 8), tagged(9, 0)][usize::try_from(name % 3).unwrap()];
    BlockFormat { encrypted: name / 3 % 2 == 1, ..block_format }
}

fn bytes(name: u64) -> usize {
    usize::try_from(block_format(name).block_bytes()).unwrap()
}

/// Blocks of a namespace.
fn blocks(name: u64) -> u64 {
    SIZE / EXTENT * block_format(name).blocks_per_extent(EXTENT)
}

fn place(name: u64, block: u64) -> u64 {
    let per_extent = block_format(name).blocks_per_extent(EXTENT);
    let lba = block / 3 * per_extent + [0, 5, per_extent - 1][usize::try_from(block % 3).unwrap()];
    lba * block_format(name).block_bytes()
}

fn stamp(name: u64, block: u64, version: u64) -> u64 {
    if version == 0 { 0 } else { name << 48 | block << 32 | version }
}

fn open(file: &Path) -> ebof_medium::Opened {
    let spec = format!("{},size={}", file.display(), medium_bytes(CAPACITY).unwrap()).parse().unwrap();
    let base = ebof_backend::open(&spec).unwrap();
    ebof_medium::open(base, Options { create: Some(CAPACITY), zeroed: true, ..Options::default() }).unwrap()
}

/// What was committed: a number in the snapshot, and one in each change after it.
fn commits(opened: &ebof_medium::Opened) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let last = opened.changes.last().or(opened.snapshot.as_ref());
    last.map_or(0, |bytes| word(bytes))
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}

/// The process that is killed.
#[test]
#[ignore = "its neighbour starts it"]
fn child() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let round: u64 = std::env::var(ROUND).unwrap().parse().unwrap();
    let opened = open(Path::new(&file));
    let state = Arc::new(AtomicU64::new(commits(&opened)));
    let kept = Arc::clone(&state);
    on(&opened.medium, |store| {
        store.set_snapshot(Box::new(move || kept.load(Ordering::SeqCst).to_le_bytes().to_vec()));
    });
    let out = Arc::new(Mutex::new(std::io::stdout()));
    let say = move |line: String| out.lock().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    say("open".to_owned());
    let versions = AtomicU64::new(round * 1_000_000 + 1);
    let names = Mutex::new(opened.medium.volumes().iter().map(|volume| volume.0).collect::<Vec<_>>());
    let mut next = names.lock().unwrap().iter().copied().max().unwrap_or(0).max(round * 100) + 1;
    let (medium, say, versions, names) = (&opened.medium, &say, &versions, &names);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || write_for_ever(medium, names, versions, say, round * 7 + thread + 1));
        }
        let mut seed = round + 99;
        loop {
            let last = state.load(Ordering::SeqCst) + 1;
            say(format!("commit {last}"));
            on(medium, move |store| store.commit(&[&last.to_le_bytes()])).unwrap();
            state.store(last, Ordering::SeqCst);
            say(format!("committed {last}"));
            let count = names.lock().unwrap().len();
            if count < NAMESPACES {
                say(format!("create {next}"));
                on(medium, move |store| {
                    store.create(VolumeId(next), blocks(next), blocks(next), block_format(next)).map(|_| ())
                })
                .unwrap();
                say(format!("created {next}"));
                names.lock().unwrap().push(next);
                next += 1;
            } else if random(&mut seed).is_multiple_of(16) {
                let name = names.lock().unwrap().remove(0);
                say(format!("remove {name}"));
                on(medium, move |store| store.remove(VolumeId(name))).unwrap();
                say(format!("removed {name}"));
            }
        }
    });
}

/// Writes and deallocates blocks of all namespaces, several at a time.
fn write_for_ever(medium: &Medium, names: &Mutex<Vec<u64>>, versions: &AtomicU64, say: &dyn Fn(String), seed: u64) {
    let mut io = Io::new(16).unwrap();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    loop {
        let mut batch: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
        // Threads have separate blocks: of two concurrent writes to one block, either may be the
        // last.
        for _ in 0..8 {
            let names = names.lock().unwrap().clone();
            if names.is_empty() {
                continue;
            }
            let name = names[usize::try_from(random(&mut state)).unwrap() % names.len()];
            let block = random(&mut state) % (BLOCKS / 2) * 2 + seed % 2;
            let Some(device) = medium.device(VolumeId(name)) else { continue };
            if batch.values().any(|(other, at, _)| *other == name && *at == block) {
                continue;
            }
            let tag = versions.fetch_add(1, Ordering::SeqCst);
            let version = if random(&mut state).is_multiple_of(5) { 0 } else { tag % 1_000_000_000 };
            say(format!("write {name} {block} {version}"));
            let operation = if version == 0 {
                let (begin, len) = (place(name, block), bytes(name) as u64);
                Operation::Deallocate { ranges: std::iter::once(begin..begin + len).collect() }
            } else {
                let len = bytes(name);
                let mut buffer = Buffer::zeroed(len);
                let words = stamp(name, block, version).to_le_bytes().repeat(len / 8);
                buffer.as_mut_slice()[..len].copy_from_slice(&words);
                Operation::Write { offset: place(name, block), len, data: buffer.into(), fua: false }
            };
            batch.insert(tag, (name, block, version));
            match device.submit(&mut io, Request::new(tag, operation)) {
                Submitted::Done(done) => finish(&mut batch, &done, say),
                Submitted::Pending => {}
                Submitted::Busy(_) => panic!("there is room for all"),
            }
        }
        while let Some(done) = io.wait(None).unwrap() {
            finish(&mut batch, &done, say);
        }
    }
}

fn finish(batch: &mut BTreeMap<u64, (u64, u64, u64)>, done: &Completion, say: &dyn Fn(String)) {
    let (name, block, version) = batch.remove(&done.tag).unwrap();
    // A namespace may be gone, and the drive may be full: then nothing was acknowledged.
    if done.result.is_ok() {
        say(format!("written {name} {block} {version}"));
    }
}

/// The possible state of the drive: for each block all versions since the last acknowledged one.
#[derive(Default)]
struct Known {
    names: BTreeMap<u64, BTreeMap<u64, Vec<u64>>>,
    /// Begun and not acknowledged: may have happened or not.
    unsure: Vec<u64>,
    commits: (u64, u64),
}

impl Known {
    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or_default();
        match words[0] {
            "commit" => self.commits.1 = number(1),
            "committed" => self.commits.0 = number(1),
            "create" => self.unsure.push(number(1)),
            "created" => {
                self.unsure.retain(|name| *name != number(1));
                self.names.insert(number(1), BTreeMap::new());
            }
            "remove" => self.unsure.push(number(1)),
            "removed" => {
                self.unsure.retain(|name| *name != number(1));
                self.names.remove(&number(1));
            }
            "write" | "written" => {
                // It may exist although its creation was not reported: the process was killed in
                // between.
                let unsure = self.unsure.contains(&number(1));
                let blocks = match self.names.get_mut(&number(1)) {
                    Some(blocks) => blocks,
                    None if unsure => self.names.entry(number(1)).or_default(),
                    None => return,
                };
                let versions = blocks.entry(number(2)).or_insert_with(|| vec![0]);
                match words[0] {
                    "write" => versions.push(number(3)),
                    // The last of that version: deallocations are all alike.
                    _ => {
                        let at = versions.iter().rposition(|version| *version == number(3)).unwrap();
                        versions.drain(..at);
                    }
                }
            }
            _ => {}
        }
    }

    /// Compares it with the drive, and adopts the drive's state.
    fn check(&mut self, file: &Path) {
        let opened = open(file);
        let found = commits(&opened);
        assert!((self.commits.0..=self.commits.1).contains(&found), "{found} of {:?} commits", self.commits);
        let mut io = Io::new(4).unwrap();
        let there: Vec<u64> = opened.medium.volumes().iter().map(|volume| volume.0).collect();
        for name in &there {
            assert!(self.names.contains_key(name) || self.unsure.contains(name), "{name} was removed");
        }
        for name in self.names.keys() {
            assert!(there.contains(name) || self.unsure.contains(name), "{name} is lost");
        }
        self.names.retain(|name, _| there.contains(name));
        for name in there {
            let device = opened.medium.device(VolumeId(name)).unwrap();
            let all = read(&device, &mut io, 0, usize::try_from(blocks(name)).unwrap() * bytes(name)).unwrap();
            let known = self.names.entry(name).or_default();
            for block in 0..BLOCKS {
                let at = usize::try_from(place(name, block)).unwrap();
                let word = u64::from_le_bytes(all[at..at + 8].try_into().unwrap());
                let whole = all[at..at + bytes(name)].chunks(8).all(|bytes| bytes == word.to_le_bytes());
                assert!(whole, "block {block} of {name} is torn");
                let versions = known.entry(block).or_insert_with(|| vec![0]);
                let held = versions.iter().find(|version| stamp(name, block, **version) == word);
                assert!(held.is_some(), "block {block} of {name}: {word:x}, not one of {versions:?}");
                *versions = held.into_iter().copied().collect();
            }
            let words = all.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            assert!(words.filter(|word| *word != 0).all(|word| word >> 48 == name), "{name} has bytes of others");
        }
        (self.unsure, self.commits) = (Vec::new(), (found, found));
        opened.medium.stop();
    }
}

// @test drive.no-lost-data
#[test]
fn a_killed_process_loses_no_acknowledged_data() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("drive.img");
    let (mut known, mut seed, begin) = (Known::default(), 0x1234_5678_9abc_def1, Instant::now());
    let mut acknowledged = 0;
    for round in 1..=ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "kill::child", "--nocapture", "--test-threads=1"])
            .env(FILE, &file)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Some are killed while they open the drive.
        if !round.is_multiple_of(5) {
            lines.by_ref().map(Result::unwrap).find(|line| line.ends_with("open")).expect("it opens the drive");
        }
        let patience = Duration::from_micros(random(&mut seed) % 120_000);
        let reader = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<String>>());
        std::thread::sleep(patience);
        child.kill().unwrap();
        child.wait().unwrap();
        for line in reader.join().unwrap() {
            acknowledged += u64::from(line.starts_with("written"));
            known.hear(&line);
        }
        // Sometimes two are killed one after the other.
        if !round.is_multiple_of(3) {
            known.check(&file);
        }
    }
    known.check(&file);
    println!("{ROUNDS} kills, {acknowledged} acknowledged, {:?}", begin.elapsed());
    assert!(acknowledged > ROUNDS * 10, "{acknowledged} operations in all are no test");
}
