//! A flushed block is judged by its own checksum, whatever becomes of the blocks beside it.

use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};

use ebof_backend::{Action, Buffer, Class, Device, Error, Geometry, Io, Operation, Request, Submitted};
use ebof_drive::layout::Layout;
use ebof_medium::{BlockFormat, Options, VolumeId, medium_bytes};

use crate::rig::{Event, Recorder, create_coded, drive, flush, read, run, write};
use crate::tagged::block_formats;

const CAPACITY: u64 = 4 << 20;
const BLOCK: usize = 4096;
const CHECKED: BlockFormat = BlockFormat { checked: true, ..BlockFormat::plain(12) };
const ENCRYPTED: BlockFormat = BlockFormat { encrypted: true, ..CHECKED };

fn filled(block_format: BlockFormat, byte: u8) -> Vec<u8> {
    vec![byte; usize::try_from(block_format.block_bytes()).unwrap()]
}

fn events(base: &Recorder) -> Vec<Event> {
    base.events.lock().unwrap().clone()
}

/// Where the data of a block of the first extent are.
fn place(block_format: BlockFormat, block: u64) -> u64 {
    Layout::new(CAPACITY, [0; 16]).unwrap().data() + block * block_format.data_bytes()
}

/// What was written there, in this order.
fn contents(events: &[Event], block_format: BlockFormat, block: u64) -> Vec<Vec<u8>> {
    let (begin, bytes) = (place(block_format, block), usize::try_from(block_format.data_bytes()).unwrap());
    let of = |event: &Event| match event {
        Event::Write(at, data) | Event::Durable(at, data) => {
            let skip = usize::try_from(begin.checked_sub(*at)?).unwrap();
            Some(data.get(skip..skip + bytes)?.to_vec())
        }
        Event::Zero(..) | Event::Flush => None,
    };
    events.iter().filter_map(of).collect()
}

fn durably(device: &Arc<dyn Device>, io: &mut Io, offset: u64, bytes: &[u8]) {
    let mut buffer = Buffer::zeroed(bytes.len());
    buffer.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
    let operation = Operation::Write { offset, len: bytes.len(), data: buffer.into(), fua: true };
    run(device, io, operation).result.unwrap();
}

/// The namespace of the drive as these events have left it, and how many blocks were in flux.
fn reopened(left: &[Event]) -> (Arc<dyn Device>, ebof_medium::Opened) {
    let base = Arc::new(Recorder::with(CAPACITY, left));
    let options = Options { zeroed: true, ..Options::default() };
    let opened = ebof_medium::open(base as Arc<dyn Device>, options).unwrap();
    (opened.medium.device(VolumeId(1)).unwrap(), opened)
}

/// A block that is never touched again is not made worthless by whoever writes beside it.
// @test drive.unflushed-block
#[test]
fn a_flushed_block_is_judged_by_its_own_checksum_beside_unflushed_ones() {
    for block_format in [CHECKED, ENCRYPTED] {
        let (base, opened) = drive(CAPACITY);
        let mut io = Io::new(8).unwrap();
        let device = create_coded(&opened.medium, 1, 60, block_format);
        for byte in [1, 2] {
            durably(&device, &mut io, 0, &filled(block_format, byte));
        }
        flush(&device, &mut io).unwrap();
        for byte in 3..9 {
            for block in [1, 2, 15] {
                write(&device, &mut io, block * BLOCK as u64, &filled(block_format, byte)).unwrap();
            }
        }
        let all = events(&base);
        let known = contents(&all, block_format, 0);
        let mut flipped = known.last().unwrap().clone();
        flipped[1234] ^= 4;
        for damaged in [vec![0; BLOCK], known[0].clone(), flipped] {
            let mut left = all.clone();
            left.push(Event::Write(place(block_format, 0), damaged));
            let (device, opened) = reopened(&left);
            assert_eq!(opened.in_flux, 3, "the blocks that were written twice");
            assert_eq!(read(&device, &mut io, 0, BLOCK), Err(Class::MediumRead), "{block_format:?}");
            for block in [1, 2, 15] {
                assert_eq!(read(&device, &mut io, block * BLOCK as u64, BLOCK), Ok(filled(block_format, 8)));
            }
        }
    }
}

/// A device of which a part can be neither read nor written.
#[derive(Debug)]
struct PartlyDead {
    base: Recorder,
    dead: Mutex<Range<u64>>,
}

impl Device for PartlyDead {
    fn geometry(&self) -> Geometry {
        self.base.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        let (Operation::Read { offset, len, .. } | Operation::Write { offset, len, .. }) = request.operation else {
            return self.base.submit(io, request);
        };
        let dead = self.dead.lock().unwrap().clone();
        if offset < dead.end && dead.start < offset + len as u64 {
            let action = request.operation.action();
            let class = if action == Action::Read { Class::MediumRead } else { Class::MediumWrite };
            let error = Error::Refused { action, offset, len: len as u64, class, reason: "as the test wants" };
            return Submitted::Done(request.complete(Err(error)));
        }
        self.base.submit(io, request)
    }

    fn describe(&self) -> String {
        "a device with a dead block".to_owned()
    }
}

/// While it is not known what a block has, because it can be neither written nor read, a flush of
/// the others rules out their older contents all the same.
// @test drive.unflushed-block
#[test]
fn a_flush_excludes_older_contents_of_blocks_beside_one_that_is_unknown() {
    for block_format in block_formats().into_iter().filter(|one| one.is_tagged()) {
        let memory = Recorder::new(medium_bytes(CAPACITY).unwrap());
        let base = Arc::new(PartlyDead { base: memory, dead: Mutex::new(0..0) });
        let options = Options { create: Some(CAPACITY), zeroed: true, ..Options::default() };
        let opened = ebof_medium::open(Arc::clone(&base) as Arc<dyn Device>, options).unwrap();
        let mut io = Io::new(8).unwrap();
        let device = create_coded(&opened.medium, 1, 60, block_format);
        let (bytes, at) = (block_format.block_bytes(), |block: u64| block * block_format.block_bytes());
        let len = usize::try_from(bytes).unwrap();
        for block in 0..4 {
            write(&device, &mut io, at(block), &filled(block_format, 1)).unwrap();
        }
        flush(&device, &mut io).unwrap();
        *base.dead.lock().unwrap() = place(block_format, 1)..place(block_format, 2);
        assert_eq!(write(&device, &mut io, at(1), &filled(block_format, 9)), Err(Class::MediumWrite));
        durably(&device, &mut io, at(0), &filled(block_format, 2));
        // It needs no flush.
        let mut left = events(&base.base);
        left.push(Event::Write(place(block_format, 0), contents(&left, block_format, 0)[0].clone()));
        let (again, _opened) = reopened(&left);
        assert_eq!(read(&again, &mut io, at(0), len), Err(Class::MediumRead), "{block_format:?}");
        for byte in [2, 3] {
            write(&device, &mut io, at(2), &filled(block_format, byte)).unwrap();
            flush(&device, &mut io).unwrap();
        }
        write(&device, &mut io, at(3), &filled(block_format, 2)).unwrap();
        let all = events(&base.base);
        // Blocks 0 and 2 go back to what they were before.
        let mut left = all.clone();
        for (block, back) in [(0, 0), (2, 1), (3, 0)] {
            left.push(Event::Write(place(block_format, block), contents(&all, block_format, block)[back].clone()));
        }
        let (again, _opened) = reopened(&left);
        for block in [0, 2] {
            assert_eq!(
                read(&again, &mut io, at(block), len),
                Err(Class::MediumRead),
                "block {block} of {block_format:?}"
            );
        }
        for block in [1, 3] {
            assert!(read(&again, &mut io, at(block), len) == Ok(filled(block_format, 1)), "it was not flushed");
        }
    }
}

/// Blocks that were in flux when the drive ended, and cannot be looked at, are in flux after a
/// flush and after a stop: they have no other record.
#[test]
fn blocks_in_flux_that_cannot_be_looked_at_stay_in_flux() {
    for is_stopped in [false, true] {
        let (base, opened) = drive(CAPACITY);
        let mut io = Io::new(8).unwrap();
        let device = create_coded(&opened.medium, 1, 60, CHECKED);
        for byte in 1..4 {
            write(&device, &mut io, BLOCK as u64, &filled(CHECKED, byte)).unwrap();
        }
        let first = events(&base);
        let dead = Mutex::new(place(CHECKED, 1)..place(CHECKED, 2));
        let base = Arc::new(PartlyDead { base: Recorder::with(CAPACITY, &first), dead });
        let options = Options { zeroed: true, ..Options::default() };
        let opened = ebof_medium::open(Arc::clone(&base) as Arc<dyn Device>, options).unwrap();
        let device = opened.medium.device(VolumeId(1)).unwrap();
        assert_eq!(read(&device, &mut io, BLOCK as u64, BLOCK), Err(Class::MediumRead));
        for byte in 1..4 {
            write(&device, &mut io, 5 * BLOCK as u64, &filled(CHECKED, byte)).unwrap();
        }
        flush(&device, &mut io).unwrap();
        drop(device);
        if is_stopped {
            opened.medium.stop();
        }
        let (device, _opened) = reopened(&[first, events(&base.base)].concat());
        for block in [1, 5] {
            let found = read(&device, &mut io, block * BLOCK as u64, BLOCK);
            assert_eq!(found, Ok(filled(CHECKED, 3)), "block {block}, stopped: {is_stopped}");
        }
    }
}

/// What a thread has done: between which numbers of events.
struct Did {
    begun: usize,
    ended: usize,
    what: What,
}

enum What {
    Write { blocks: Range<u64>, serial: u64, fua: bool },
    Flush,
}

const THREADS: u64 = 3;
const BLOCKS: u64 = 24;

/// A small generator of numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn bytes_of(block: u64, serial: u64) -> Vec<u8> {
    (serial << 16 | block).to_le_bytes().repeat(BLOCK / 8)
}

/// Writes, and now and then flushes, blocks that lie between those of other threads.
fn act(base: &Recorder, device: &Arc<dyn Device>, thread: u64, seed: u64) -> Vec<Did> {
    let (mut io, mut dice) = (Io::new(8).unwrap(), Dice(seed << 8 | thread));
    let count = || base.events.lock().unwrap().len();
    let mut did = Vec::new();
    for step in 1..=60 {
        let begun = count();
        let what = if dice.below(8) == 0 {
            flush(device, &mut io).unwrap();
            What::Flush
        } else {
            let first = (dice.below(BLOCKS / 2 / THREADS) * THREADS + thread) * 2;
            let blocks = first..first + 1 + dice.below(2);
            let serial = thread << 32 | step;
            let bytes: Vec<u8> = blocks.clone().flat_map(|block| bytes_of(block, serial)).collect();
            let fua = dice.below(8) == 0;
            match fua {
                true => durably(device, &mut io, first * BLOCK as u64, &bytes),
                false => write(device, &mut io, first * BLOCK as u64, &bytes).unwrap(),
            }
            What::Write { blocks, serial, fua }
        };
        did.push(Did { begun, ended: count(), what });
    }
    did
}

/// The write that a block has for certain after so many events: it was flushed, and no later one
/// has begun.
fn flushed(did: &[Did], block: u64, events: usize) -> Option<u64> {
    let mut found: Option<(u64, bool)> = None;
    for Did { begun, ended, what } in did {
        let is_over = *ended <= events;
        match what {
            What::Write { blocks, .. } if !blocks.contains(&block) || *begun >= events => {}
            What::Write { .. } if !is_over => found = None,
            What::Write { serial, fua, .. } => found = Some((*serial, *fua)),
            What::Flush if is_over => found = found.map(|(serial, _)| (serial, true)),
            What::Flush => {}
        }
    }
    found.and_then(|(serial, is_flushed)| is_flushed.then_some(serial))
}

/// Several threads write blocks beside each other and flush as they like; the process is killed, or
/// the power fails, at any point; then flushed blocks are damaged. Each of them is found, and
/// nothing else is reported.
// @test drive.unflushed-block
#[test]
fn every_damaged_flushed_block_is_found_after_a_crash_at_any_point() {
    let (mut damaged, mut in_flux) = (0, 0);
    for seed in 1..=4_u64 {
        let block_format = if seed % 2 == 0 { ENCRYPTED } else { CHECKED };
        let (base, opened) = drive(CAPACITY);
        let device = create_coded(&opened.medium, 1, 60, block_format);
        let start = events(&base).len();
        let gate = Barrier::new(usize::try_from(THREADS).unwrap());
        let did: Vec<Vec<Did>> = std::thread::scope(|scope| {
            let start = |thread| {
                let (base, device, gate) = (&base, &device, &gate);
                scope.spawn(move || {
                    gate.wait();
                    act(base, device, thread, seed)
                })
            };
            let threads: Vec<_> = (0..THREADS).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (all, mut dice, mut io) = (events(&base), Dice(seed), Io::new(8).unwrap());
        for round in 0..24 {
            let cut = start + usize::try_from(dice.below((all.len() - start) as u64 + 1)).unwrap();
            let has_power = round % 3 != 0;
            let barrier = all[..cut].iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or_default();
            let mut left = Vec::new();
            for (number, event) in all[..cut].iter().enumerate() {
                let may_be_lost = !has_power && number > barrier && matches!(event, Event::Write(..));
                if !may_be_lost || dice.below(2) == 0 {
                    left.push(event.clone());
                }
            }
            let mut expected = Vec::new();
            for block in 0..BLOCKS {
                let owner = usize::try_from(block / 2 % THREADS).unwrap();
                let Some(serial) = flushed(&did[owner], block, cut) else { continue };
                let known = contents(&all[..cut], block_format, block);
                let last = known.last().unwrap();
                // What power loss leaves of the marks does not rule out older contents.
                let back = match dice.below(if has_power { 6 } else { 4 }) {
                    0 | 1 => None,
                    2 | 3 => {
                        let mut flipped = last.clone();
                        flipped[usize::try_from(dice.below(BLOCK as u64)).unwrap()] ^= 1 << dice.below(8);
                        Some(flipped)
                    }
                    4 => Some(vec![0; BLOCK]),
                    _ => known.iter().rev().find(|one| *one != last).cloned(),
                };
                expected.push((block, if back.is_some() { None } else { Some(serial) }));
                left.extend(back.map(|back| Event::Write(place(block_format, block), back)));
            }
            let (device, opened) = reopened(&left);
            in_flux += opened.in_flux;
            for (block, serial) in expected {
                let expected = serial.map(|serial| bytes_of(block, serial)).ok_or(Class::MediumRead);
                let found = read(&device, &mut io, block * BLOCK as u64, BLOCK);
                assert!(
                    found == expected,
                    "block {block} after {cut} of {} events, seed {seed}, power {has_power}: {:?}, expected {serial:?}",
                    all.len(),
                    found.map(|bytes| bytes[..8].to_vec()),
                );
                damaged += u64::from(serial.is_none());
            }
        }
    }
    // How many there are depends on the threads' turns.
    assert!(damaged > 300 && in_flux > 50, "{damaged} damaged, {in_flux} in flux");
}
