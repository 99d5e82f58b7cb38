//! Blocks with checksums that are written again and again without a flush: they are in flux, their
//! checksums are in memory only, and requests for them are done on their callers' threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ebof_backend::{
    Action, Buffer, Class, Completion, Device, Error, Geometry, Io, Memory, Operation, Remote, Request, Submitted,
};
use ebof_drive::frame::{Piece, Record, Series, decode_frame, frame_header};
use ebof_drive::layout::Layout;
use ebof_medium::{BlockFormat, Medium, Notice, Notify, Opened, Options, Store, VolumeId, medium_bytes, open_stepped};

use crate::rig::{Event, Recorder, create_coded, deallocate, drive, flush, kill_when_clean, on, read, run, write};

const EXTENT: u64 = 256 << 10;
const BLOCK: usize = 4096;
const CHECKED: BlockFormat = BlockFormat { checked: true, ..BlockFormat::plain(12) };
const ENCRYPTED: BlockFormat = BlockFormat { encrypted: true, ..CHECKED };

/// In the tag of a request: it reads.
const READ: u64 = 0x80;

fn filled(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK]
}

fn at(block: u64) -> u64 {
    block * BLOCK as u64
}

/// Records of the journal in the order in which they were written.
fn records(events: &[Event]) -> Vec<Record> {
    let mut records = Vec::new();
    for event in events {
        let (Event::Write(_, bytes) | Event::Durable(_, bytes)) = event else { continue };
        for frame in bytes.chunks(BLOCK).filter(|frame| frame.starts_with(b"EBOFJRN1")) {
            let id = frame[8..24].try_into().unwrap();
            let header = frame_header(id, frame).unwrap();
            let frame = decode_frame(Series { id, generation: header.generation }, header.sequence, frame).unwrap();
            records.extend(frame.pieces.into_iter().filter_map(|piece| match piece {
                Piece::Whole(record) => Some(record),
                Piece::Part { .. } => None,
            }));
        }
    }
    records
}

fn events(base: &Recorder) -> Vec<Event> {
    base.events.lock().unwrap().clone()
}

/// The drive as these events have left it, and what it reports.
fn reopened(left: &[Event]) -> (Arc<Recorder>, Opened, Arc<Mutex<Vec<Notice>>>) {
    let base = Arc::new(Recorder::with(4 << 20, left));
    let told: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let keep = Arc::clone(&told);
    let notify = Notify(Arc::new(move |notice| keep.lock().unwrap().push(notice)));
    let options = Options { zeroed: true, notify: Some(notify), ..Options::default() };
    let opened = ebof_medium::open(Arc::clone(&base) as Arc<dyn Device>, options).unwrap();
    (base, opened, told)
}

/// Where the data of a block of the first extent are.
fn place(block: u64) -> u64 {
    Layout::new(4 << 20, [0; 16]).unwrap().data() + block * BLOCK as u64
}

/// A block is written with these bytes behind everybody's back.
fn with_block(mut events: Vec<Event>, block: u64, byte: u8) -> Vec<Event> {
    events.push(Event::Write(place(block), filled(byte)));
    events
}

fn mended(told: &Mutex<Vec<Notice>>) -> Vec<u64> {
    let told = told.lock().unwrap();
    let mut blocks: Vec<u64> = told
        .iter()
        .filter_map(|one| if let Notice::Mended { block, .. } = one { Some(*block) } else { None })
        .collect();
    blocks.sort_unstable();
    blocks
}

/// Whoever flushes each write loses nothing by crashes: no block is ever in flux.
// @test drive.unflushed-block
#[test]
fn blocks_that_are_flushed_before_they_are_written_again_are_never_in_flux() {
    let (base, opened) = drive(4 << 20);
    let mut io = Io::new(8).unwrap();
    let device = create_coded(&opened.medium, 1, 60, CHECKED);
    for round in 0..50_u8 {
        for block in [3, 20, 21] {
            write(&device, &mut io, at(block), &filled(round + 1)).unwrap();
            flush(&device, &mut io).unwrap();
        }
        let fua = Operation::Write { offset: at(40), len: BLOCK, data: Buffer::zeroed(BLOCK).into(), fua: true };
        run(&device, &mut io, fua).result.unwrap();
    }
    let records = records(&events(&base));
    assert!(!records.iter().any(|record| matches!(record, Record::Flux { .. } | Record::Settled(_))));
    assert!(records.iter().filter(|record| matches!(record, Record::Tags { .. })).count() >= 200);
}

/// Writes to blocks in flux need no record at all.
#[test]
fn a_block_comes_into_flux_once_between_two_flushes() {
    let (base, opened) = drive(4 << 20);
    let mut io = Io::new(8).unwrap();
    let device = create_coded(&opened.medium, 1, 60, CHECKED);
    let before = events(&base).len();
    for round in 0..30_u8 {
        for block in 16..32 {
            write(&device, &mut io, at(block), &filled(round + 1)).unwrap();
        }
    }
    let during = records(&events(&base)[before..]);
    let flux = during.iter().filter(|record| matches!(record, Record::Flux { .. })).count();
    let tags = during.iter().filter(|record| matches!(record, Record::Tags { .. })).count();
    assert_eq!((flux, tags), (16, 16), "the first write of each is exact, the second one brings it into flux");
    let marked = during.iter().filter_map(|record| match record {
        Record::Flux { blocks, .. } => Some(blocks.iter().map(|word| word.count_ones()).sum::<u32>()),
        _ => None,
    });
    assert!(marked.max() == Some(1), "a mark is for what is written, and nothing beside it");
    let before = events(&base).len();
    flush(&device, &mut io).unwrap();
    let flushed = records(&events(&base)[before..]);
    let [Record::Settled(volume), Record::OnlyTags { first: 16, tags, .. }] = &flushed[..] else {
        panic!("{flushed:?}")
    };
    assert_eq!((*volume, tags.len()), (VolumeId(1), 16));
    // Another flush has nothing to do.
    let before = events(&base).len();
    flush(&device, &mut io).unwrap();
    assert!(records(&events(&base)[before..]).is_empty());
}

/// After a crash, a block that was flushed has to match its own checksum; one that was written
/// since is taken as it is, and reported.
// @test drive.unflushed-block
#[test]
fn after_a_crash_only_blocks_in_flux_are_mended() {
    for block_format in [CHECKED, ENCRYPTED] {
        let (base, opened) = drive(4 << 20);
        let mut io = Io::new(8).unwrap();
        let device = create_coded(&opened.medium, 1, 60, block_format);
        for round in 1..4 {
            for block in 0..40 {
                write(&device, &mut io, at(block), &filled(round)).unwrap();
            }
        }
        flush(&device, &mut io).unwrap();
        // In flux again: block 17. Block 20 has a record.
        for (block, byte) in [(20, 7), (17, 8), (17, 9)] {
            write(&device, &mut io, at(block), &filled(byte)).unwrap();
        }
        let all = events(&base);
        for (damaged, is_lost) in [(3, true), (39, true), (17, false), (16, true), (25, true)] {
            let (again, opened, told) = reopened(&with_block(all.clone(), damaged, 0xAB));
            assert_eq!((opened.in_flux, opened.was_clean), (1, false));
            let device = opened.medium.device(VolumeId(1)).unwrap();
            for block in 0..40 {
                let expected = if block == 17 {
                    9
                } else if block == 20 {
                    7
                } else {
                    3
                };
                let found = read(&device, &mut io, at(block), BLOCK);
                match (block == damaged, is_lost) {
                    (true, true) => assert_eq!(found, Err(Class::MediumRead), "block {block}"),
                    (true, false) if block_format.encrypted => assert!(found.is_ok()),
                    (true, false) => assert_eq!(found, Ok(filled(0xAB))),
                    (false, _) => assert_eq!(found, Ok(filled(expected)), "block {block} of {damaged}"),
                }
            }
            on(&opened.medium, |_| ());
            assert_eq!(mended(&told), [17]);
            // It stays what it was found to be, with a checksum of its own.
            let found = read(&device, &mut io, at(17), BLOCK).unwrap();
            flush(&device, &mut io).unwrap();
            let both = [with_block(all.clone(), damaged, 0xAB), events(&again)].concat();
            let (_third, opened, told) = reopened(&both);
            let device = opened.medium.device(VolumeId(1)).unwrap();
            assert_eq!(read(&device, &mut io, at(17), BLOCK), Ok(found));
            on(&opened.medium, |_| ());
            assert_eq!(mended(&told), [0_u64; 0], "it was recorded with the flush");
        }
    }
}

/// Zeros have a checksum where they are encrypted, also those that were not flushed.
#[test]
fn zeros_that_are_mended_stay_readable() {
    for block_format in [CHECKED, ENCRYPTED] {
        let (base, opened) = drive(4 << 20);
        let mut io = Io::new(8).unwrap();
        let device = create_coded(&opened.medium, 1, 60, block_format);
        write(&device, &mut io, at(17), &filled(3)).unwrap();
        flush(&device, &mut io).unwrap();
        for byte in [4, 0, 0] {
            write(&device, &mut io, at(17), &filled(byte)).unwrap();
        }
        let all = events(&base);
        let (again, opened, told) = reopened(&all);
        let device = opened.medium.device(VolumeId(1)).unwrap();
        for _ in 0..3 {
            assert!(read(&device, &mut io, at(17), BLOCK) == Ok(filled(0)), "{block_format:?}");
        }
        flush(&device, &mut io).unwrap();
        on(&opened.medium, |_| ());
        assert_eq!(mended(&told), [17]);
        let (_third, opened, _) = reopened(&[all, events(&again)].concat());
        let device = opened.medium.device(VolumeId(1)).unwrap();
        assert!(read(&device, &mut io, at(17), BLOCK) == Ok(filled(0)), "{block_format:?}");
    }
}

/// Whichever writes a power loss leaves, at any point, a flushed block is what it was, and no block
/// is an error: none was torn.
// @test drive.unflushed-block
#[test]
fn a_crash_at_any_point_leaves_every_flushed_block_readable() {
    let (base, opened) = drive(4 << 20);
    let mut io = Io::new(8).unwrap();
    let device = create_coded(&opened.medium, 1, 60, CHECKED);
    // When each block was flushed last, with what, and everything that was written since.
    let mut flushed: Vec<(usize, [u8; 3])> = Vec::new();
    let mut now = [0_u8; 3];
    let start = events(&base).len();
    for round in 1..=24_u8 {
        let which = usize::from(round % 3);
        // Some of them twice between two flushes, so that they come into flux.
        write(&device, &mut io, at(which as u64), &filled(round)).unwrap();
        now[which] = round;
        if round.is_multiple_of(5) {
            flush(&device, &mut io).unwrap();
            flushed.push((events(&base).len(), now));
        }
        if round == 12 {
            on(&opened.medium, Store::sync).unwrap();
            flushed.push((events(&base).len(), now));
        }
    }
    let all = events(&base);
    for cut in start..=all.len() {
        let barrier = all[..cut].iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or_default();
        let sure = flushed.iter().rfind(|(at, _)| *at <= cut).map_or([0; 3], |(_, values)| *values);
        // Of what came behind the last flush: nothing, everything, data alone, the journal alone.
        for keep in 0..4 {
            let is_kept = |(number, event): (usize, &Event)| match event {
                Event::Write(_, bytes) if number > barrier => match keep {
                    0 => false,
                    1 => true,
                    2 => !bytes.starts_with(b"EBOFJRN1"),
                    _ => bytes.starts_with(b"EBOFJRN1"),
                },
                _ => true,
            };
            let left: Vec<Event> =
                all[..cut].iter().enumerate().filter(|&one| is_kept(one)).map(|(_, event)| event.clone()).collect();
            let (_again, opened, _told) = reopened(&left);
            let device = opened.medium.device(VolumeId(1)).unwrap();
            for (block, &sure) in (0_u64..).zip(&sure) {
                let found = read(&device, &mut io, at(block), BLOCK).unwrap_or_else(|error| {
                    panic!("block {block} after {cut} of {} events, kept {keep}: {error:?}", all.len())
                });
                let byte = found[0];
                assert!(found.iter().all(|&one| one == byte) && (byte >= sure || byte == 0 && sure == 0));
            }
        }
    }
}

/// A checkpoint, and a stop, have what is in flux, and what was written is read afterwards.
#[test]
fn checkpoints_and_stops_settle_what_is_in_flux() {
    let (base, opened) = drive(4 << 20);
    let mut io = Io::new(8).unwrap();
    let device = create_coded(&opened.medium, 1, 60, CHECKED);
    on(&opened.medium, |store| store.set_snapshot(Box::new(Vec::new)));
    for round in 1..4 {
        (0..40).for_each(|block| write(&device, &mut io, at(block), &filled(round)).unwrap());
        // More changes than a journal holds.
        (0..17).for_each(|_| on(&opened.medium, |store| store.commit(&[&vec![0; 1 << 20]])).unwrap());
    }
    write(&device, &mut io, at(5), &filled(9)).unwrap();
    write(&device, &mut io, at(5), &filled(10)).unwrap();
    let (_again, killed, told) = reopened(&events(&base));
    assert!(!killed.was_clean && killed.in_flux == 1);
    let device = killed.medium.device(VolumeId(1)).unwrap();
    assert_eq!(read(&device, &mut io, at(5), BLOCK), Ok(filled(10)));
    assert_eq!(read(&device, &mut io, at(6), BLOCK), Ok(filled(3)));
    on(&killed.medium, |_| ());
    assert_eq!(mended(&told), [5]);
    opened.medium.stop();
    let (_again, stopped, told) = reopened(&events(&base));
    assert!(stopped.was_clean && stopped.in_flux == 0);
    let device = stopped.medium.device(VolumeId(1)).unwrap();
    assert_eq!(read(&device, &mut io, at(5), BLOCK), Ok(filled(10)));
    assert_eq!(mended(&told), [0_u64; 0]);
}

/// A failed write leaves the old or the new data, and a namespace that works.
#[test]
fn a_failed_write_of_blocks_in_flux_is_found_out_about() {
    let (base, opened) = drive(4 << 20);
    let mut io = Io::new(8).unwrap();
    let device = create_coded(&opened.medium, 1, 60, CHECKED);
    for round in 1..4 {
        write(&device, &mut io, at(3), &filled(round)).unwrap();
    }
    for (done, expected) in [(false, 3), (true, 8)] {
        base.plan(crate::rig::Faults { after: 0, count: 1, done });
        assert!(write(&device, &mut io, at(3), &filled(8)).is_err());
        assert_eq!(read(&device, &mut io, at(3), BLOCK), Ok(filled(expected)), "{done}");
        flush(&device, &mut io).unwrap();
        let (_again, again, told) = reopened(&events(&base));
        let same = again.medium.device(VolumeId(1)).unwrap();
        assert_eq!(read(&same, &mut io, at(3), BLOCK), Ok(filled(expected)));
        assert_eq!(mended(&told), [0_u64; 0]);
        for _ in 0..3 {
            write(&device, &mut io, at(3), &filled(3)).unwrap();
        }
    }
}

/// A device on which a write waits that is of bytes `0x77` only. Later it is done, and fails all
/// the same.
#[derive(Debug)]
struct Held {
    memory: Memory,
    write: Mutex<Option<(Request, Remote)>>,
    /// The next operation ends it.
    ends: AtomicBool,
}

impl Held {
    fn end(&self) {
        let Some((mut request, remote)) = self.write.lock().unwrap().take() else { return };
        let hook = request.hook.take();
        let mut unused = Io::new(1).unwrap();
        let Submitted::Done(mut done) = self.memory.submit(&mut unused, request) else { unreachable!() };
        let (action, class, reason) = (Action::Write, Class::MediumWrite, "done, and refused, as the test wants");
        done.result = Err(Error::Refused { action, offset: 0, len: 0, class, reason });
        hook.iter().for_each(|hook| hook.finish(&mut done));
        remote.deliver(done);
    }
}

impl Device for Held {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        if let Operation::Write { data, .. } = &request.operation
            && data.as_buffer().is_some_and(|buffer| buffer.as_slice().iter().all(|byte| *byte == 0x77))
            && let Some(remote) = io.remote()
        {
            *self.write.lock().unwrap() = Some((request, remote));
            return Submitted::Pending;
        }
        if self.ends.load(Ordering::SeqCst) {
            self.end();
        }
        self.memory.submit(io, request)
    }

    fn describe(&self) -> String {
        "a device that holds a write".to_owned()
    }
}

/// What became of requests, by their tags: the first byte of their memory.
type Results = BTreeMap<u64, Result<Option<u8>, Class>>;

fn note(results: &mut Results, completion: Completion) {
    let byte = completion.data.as_ref().and_then(|data| data.as_buffer()).map(|buffer| buffer.as_slice()[0]);
    results.insert(completion.tag, completion.result.map(|()| byte).map_err(|error| error.class()));
}

/// A write that fails while the drive is being stopped, or after that, is no damage: whoever reads
/// its block is told that the drive is closed, or what is there.
#[test]
fn a_write_that_fails_when_a_drive_stops_is_not_reported_as_damage() {
    for is_before in [true, false] {
        let memory = Memory::new(medium_bytes(4 << 20).unwrap(), 512, false);
        let base = Arc::new(Held { memory, write: Mutex::default(), ends: AtomicBool::new(false) });
        let options = Options { create: Some(4 << 20), zeroed: true, ..Options::default() };
        let (opened, mut stepper) = open_stepped(Arc::clone(&base) as Arc<dyn Device>, &options).unwrap();
        let medium = opened.medium;
        let made: Arc<Mutex<Option<Arc<dyn Device>>>> = Arc::default();
        let answer = Arc::clone(&made);
        medium.run(Box::new(move |store| {
            *answer.lock().unwrap() = Some(store.create(VolumeId(1), 60, 60, CHECKED).unwrap());
        }));
        stepper.turn();
        let device = made.lock().unwrap().take().unwrap();
        let mut io = Io::new(8).unwrap();
        let mut results = Results::new();
        let submit = |tag: u64, operation: Operation, io: &mut Io, results: &mut Results| match device
            .submit(io, Request::new(tag, operation))
        {
            Submitted::Done(completion) => note(results, completion),
            Submitted::Pending => {}
            Submitted::Busy(_) => panic!("there is room for it"),
        };
        let write = |block, byte| {
            let mut data = Buffer::zeroed(BLOCK);
            data.as_mut_slice().fill(byte);
            Operation::Write { offset: at(block), len: BLOCK, data: data.into(), fua: false }
        };
        let read = || Operation::Read { offset: at(3), len: BLOCK, data: Buffer::zeroed(BLOCK).into() };
        for byte in 1..4 {
            submit(0, write(3, byte), &mut io, &mut results);
            stepper.turn();
            while let Some(completion) = io.poll() {
                completion.result.unwrap();
            }
        }
        // One is in flight; a read of the same block waits for it.
        submit(1, write(3, 0x77), &mut io, &mut results);
        assert!(base.write.lock().unwrap().is_some());
        submit(2, read(), &mut io, &mut results);
        stepper.turn();
        // It fails while the drive's thread does its last request, or when it has ended.
        submit(3, write(40, 9), &mut io, &mut results);
        base.ends.store(is_before, Ordering::SeqCst);
        medium.stop();
        while !stepper.is_over() {
            stepper.turn();
        }
        base.end();
        submit(4, read(), &mut io, &mut results);
        while let Some(completion) = io.poll() {
            note(&mut results, completion);
        }
        assert_eq!(results[&1], Err(Class::MediumWrite));
        let (waited, later) = (results[&2], results[&4]);
        let expected = if is_before { Ok(Some(0x77)) } else { Err(Class::Gone) };
        assert_eq!((waited, later), (expected, expected), "{is_before}");
        // Nothing is damaged when it is opened again.
        drop((device, medium, stepper));
        let opened = ebof_medium::open(base, Options::default()).unwrap();
        let device = opened.medium.device(VolumeId(1)).unwrap();
        assert_eq!(crate::rig::read(&device, &mut io, at(3), BLOCK), Ok(filled(0x77)), "{is_before}");
        opened.medium.stop();
    }
}

/// A drive on a file, whose requests are done by threads in any order.
fn on_file(directory: &std::path::Path, create: bool) -> Medium {
    let bytes = medium_bytes(8 << 20).unwrap();
    let spec = format!("{},size={bytes}", directory.join("drive.img").display()).parse().unwrap();
    let create = create.then_some(8 << 20);
    let io = ebof_backend::Engine::Threads.into();
    let options = Options { create, zeroed: true, io, ..Options::default() };
    ebof_medium::open(ebof_backend::open(&spec).unwrap(), options).unwrap().medium
}

/// Several threads write and read the same blocks: each read finds one write as a whole in each
/// block, and nothing is reported as damaged; flushes, zeroes and deallocations come between.
// @test drive.parallel-checksums
#[test]
fn threads_that_write_and_read_the_same_blocks_find_whole_writes() {
    for block_format in [CHECKED, ENCRYPTED, BlockFormat { checked: true, ..BlockFormat::plain(9) }] {
        let directory = tempfile::tempdir().unwrap();
        let medium = on_file(directory.path(), true);
        let blocks = block_format.blocks_per_extent(EXTENT) * 2;
        let device = create_coded(&medium, 1, blocks, block_format);
        let (bytes, next) = (block_format.data_bytes(), AtomicU64::new(1));
        let first = blocks / 2 - 6;
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (device, next) = (&device, &next);
                scope.spawn(move || {
                    let mut io = Io::with_engine(16, ebof_backend::Engine::Threads).unwrap();
                    let mut random = thread + 1;
                    for round in 0..400_u64 {
                        for tag in 0..8 {
                            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                            let (at, count) = (first + (random >> 33) % 8, 1 + (random >> 40) % 4);
                            let (offset, len) = (at * bytes, usize::try_from(count * bytes).unwrap());
                            let operation = match (random >> 50) % 40 {
                                0 => Operation::WriteZeroes { offset, len: len as u64, deallocate: false, fua: false },
                                1 if round.is_multiple_of(7) => {
                                    let range = offset..offset + len as u64;
                                    Operation::Deallocate { ranges: std::iter::once(range).collect() }
                                }
                                2 => Operation::Flush,
                                3..20 => Operation::Read { offset, len, data: Buffer::zeroed(len).into() },
                                what => {
                                    let serial = next.fetch_add(1, Ordering::Relaxed);
                                    let mut data = Buffer::zeroed(len);
                                    for (block, into) in (at..)
                                        .zip(data.as_mut_slice()[..len].chunks_mut(usize::try_from(bytes).unwrap()))
                                    {
                                        let word = (serial << 16 | block).to_le_bytes();
                                        into.chunks_mut(8).for_each(|into| into.copy_from_slice(&word));
                                    }
                                    Operation::Write { offset, len, data: data.into(), fua: what == 21 }
                                }
                            };
                            let kind = if matches!(operation, Operation::Read { .. }) { READ } else { 0 };
                            let request = Request::new(at << 32 | count << 8 | kind | tag, operation);
                            if let Submitted::Done(done) = device.submit(&mut io, request) {
                                check(&done, bytes);
                            }
                        }
                        while let Some(done) = io.wait(None).unwrap() {
                            check(&done, bytes);
                        }
                    }
                });
            }
        });
        let mut io = Io::new(8).unwrap();
        let len = usize::try_from(blocks * bytes).unwrap();
        let before = read(&device, &mut io, 0, len).unwrap();
        // Killed, and stopped: everything that was acknowledged is there.
        let killed = tempfile::tempdir().unwrap();
        std::fs::copy(directory.path().join("drive.img"), killed.path().join("drive.img")).unwrap();
        medium.stop();
        drop((device, medium));
        for left in [killed.path(), directory.path()] {
            let medium = on_file(left, false);
            let device = medium.device(VolumeId(1)).unwrap();
            assert!(read(&device, &mut io, 0, len).unwrap() == before);
            drop(device);
            medium.stop();
        }
    }
}

/// Each block that was read is of one write, or zeros. The memory of writes is not looked at: it
/// may be encrypted.
fn check(done: &ebof_backend::Completion, bytes: u64) {
    assert!(done.result.is_ok(), "{:?}", done.result);
    let (count, bytes) = (usize::try_from(done.tag >> 8 & 0xff_ffff).unwrap(), usize::try_from(bytes).unwrap());
    let data = done.data.as_ref().and_then(|data| data.as_buffer()).filter(|_| done.tag & READ != 0);
    let Some(data) = data else { return };
    for (block, data) in (done.tag >> 32..).zip(data.as_slice()[..count * bytes].chunks(bytes)) {
        let word = u64::from_le_bytes(data[..8].try_into().unwrap());
        assert!(data.chunks(8).all(|one| one == word.to_le_bytes()), "block {block}: a mixture");
        assert!(word == 0 || word & 0xffff == block, "block {block}: {word:x}");
    }
}

/// More pages are written without a flush than may be in flux: older ones are settled.
#[test]
fn a_bounded_number_of_pages_is_in_flux() {
    const EXTENTS: u64 = 700;
    let capacity = EXTENTS * EXTENT;
    let memory = Arc::new(Memory::new(medium_bytes(capacity).unwrap(), 512, false));
    let options = || Options { create: Some(capacity), zeroed: true, tag_cache_bytes: 1, ..Options::default() };
    let medium = ebof_medium::open(Arc::clone(&memory) as Arc<dyn Device>, options()).unwrap().medium;
    let device = create_coded(&medium, 1, 63 * EXTENTS, CHECKED);
    let mut io = Io::new(8).unwrap();
    for byte in 1..4 {
        for extent in 0..EXTENTS {
            write(&device, &mut io, at(extent * 63 + 7), &filled(byte)).unwrap();
            write(&device, &mut io, at(extent * 63 + 7), &filled(byte)).unwrap();
        }
    }
    assert!(on(&medium, |store| store.tag_cache_bytes()) <= 1024 * 4096);
    deallocate(&device, &mut io, 0, at(63 * 10)).unwrap();
    drop(device);
    kill_when_clean(medium);
    let opened = ebof_medium::open(memory as Arc<dyn Device>, options()).unwrap();
    assert!(opened.in_flux > 0 && opened.in_flux <= 512, "{}", opened.in_flux);
    let device = opened.medium.device(VolumeId(1)).unwrap();
    for extent in 0..EXTENTS {
        let expected = filled(if extent < 10 { 0 } else { 3 });
        assert_eq!(read(&device, &mut io, at(extent * 63 + 7), BLOCK), Ok(expected), "extent {extent}");
    }
}
