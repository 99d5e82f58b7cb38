//! Many threads on one drive: allocation, deallocation and removal while others read and write, on
//! both engines; and how long a large drive takes to open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ebof_backend::{Buffer, Class, Engine, Io, Operation, Request, Submitted};
use ebof_drive::frame::{Checkpoint, FRAME_BYTES, Record, Series};
use ebof_drive::layout::Layout;
use ebof_medium::{BlockFormat, Medium, Options, VolumeId, medium_bytes};

use crate::rig::{create, on, read};

const EXTENT: u64 = 256 << 10;
const CAPACITY: u64 = 64 << 20;
const THREADS: u64 = 4;

/// An `Io` on an engine, if this machine permits it.
fn engine(engine: Engine) -> Option<Io> {
    Io::with_engine(64, engine).map_err(|error| println!("SKIPPED on {engine:?}: {error}")).ok()
}

/// Blocks of thread `thread`: every fourth of the namespace, so all threads share each extent.
fn place(thread: u64, block: u64) -> u64 {
    (block * THREADS + thread) * 16384 % (16 << 20)
}

/// Writes, reads back and deallocates its own blocks of a shared namespace, eight at a time.
fn use_it(medium: &Medium, engine: Engine, thread: u64, stop: &AtomicBool) -> u64 {
    let mut io = Io::with_engine(64, engine).unwrap();
    let device = medium.device(VolumeId(1)).unwrap();
    let mut held = [0_u64; 256];
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) || rounds == 0 {
        rounds += 1;
        let blocks: Vec<u64> = (0..8).map(|at| (rounds * 13 + at * 29) % 256).collect();
        let mut submit = |tag: u64, operation: Operation| match device.submit(&mut io, Request::new(tag, operation)) {
            Submitted::Done(done) => Some(done),
            Submitted::Pending => None,
            Submitted::Busy(_) => panic!("there is room for all"),
        };
        for &block in &blocks {
            let stamp = if (rounds + block).is_multiple_of(7) { 0 } else { rounds << 16 | thread << 8 | 1 };
            let offset = place(thread, block);
            let operation = if stamp == 0 {
                Operation::Deallocate { ranges: std::iter::once(offset..offset + 4096).collect() }
            } else {
                let mut buffer = Buffer::zeroed(4096);
                buffer.as_mut_slice().copy_from_slice(&stamp.to_le_bytes().repeat(512));
                Operation::Write { offset, len: 4096, data: buffer.into(), fua: false }
            };
            held[usize::try_from(block).unwrap()] = stamp;
            if let Some(done) = submit(block, operation) {
                done.result.unwrap();
            }
        }
        while let Some(done) = io.wait(None).unwrap() {
            done.result.unwrap();
        }
        for block in blocks {
            let bytes = read(&device, &mut io, place(thread, block), 4096).unwrap();
            let expected = held[usize::try_from(block).unwrap()].to_le_bytes();
            assert!(bytes.chunks(8).all(|word| word == expected), "block {block} of thread {thread}");
        }
    }
    rounds
}

/// A namespace that is created and removed: whole extents are written and deallocated, and it is
/// removed in between.
fn come_and_go(medium: &Medium, engine: Engine, stop: &AtomicBool, next: &AtomicU64) -> u64 {
    let mut io = Io::with_engine(64, engine).unwrap();
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) || rounds == 0 {
        rounds += 1;
        let name = next.fetch_add(1, Ordering::SeqCst);
        let device = create(medium, name, 8 << 20);
        for index in 0..16 {
            let mut buffer = Buffer::zeroed(65536);
            buffer.as_mut_slice().fill(0xA5);
            let operation = Operation::Write { offset: index * EXTENT, len: 65536, data: buffer.into(), fua: false };
            assert!(!matches!(device.submit(&mut io, Request::new(index, operation)), Submitted::Busy(_)));
        }
        let whole = Operation::Deallocate { ranges: vec![0..EXTENT, 2 * EXTENT..4 * EXTENT] };
        assert!(!matches!(device.submit(&mut io, Request::new(99, whole)), Submitted::Busy(_)));
        // In some rounds it is removed while all of these are in progress.
        if rounds % 2 == 0 {
            io.kick().unwrap();
            on(medium, move |store| store.remove(VolumeId(name))).unwrap();
        }
        while let Some(done) = io.wait(None).unwrap() {
            assert!(done.result.is_ok_or_gone(), "requests end, well or with the namespace");
        }
        if rounds % 2 == 1 {
            let bytes = read(&device, &mut io, 0, 8 << 20).unwrap();
            assert!(bytes.iter().all(|byte| [0, 0xA5].contains(byte)), "bytes of others");
            on(medium, move |store| store.remove(VolumeId(name))).unwrap();
        }
        assert_eq!(read(&device, &mut io, 0, 4096), Err(Class::Gone));
    }
    rounds
}

trait OkOrGone {
    fn is_ok_or_gone(&self) -> bool;
}

impl OkOrGone for Result<(), ebof_backend::Error> {
    fn is_ok_or_gone(&self) -> bool {
        self.as_ref().is_ok() || self.as_ref().is_err_and(|error| error.class() == Class::Gone)
    }
}

#[test]
fn threads_share_a_namespace_while_others_are_created_and_deleted() {
    for kind in [Engine::Uring, Engine::Threads] {
        if engine(kind).is_none() {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let spec = format!("{}/d.img,size={}", directory.path().display(), medium_bytes(CAPACITY).unwrap());
        let base = ebof_backend::open(&spec.parse().unwrap()).unwrap();
        let options = Options { create: Some(CAPACITY), zeroed: true, io: kind.into(), ..Options::default() };
        let opened = ebof_medium::open(base, options).unwrap();
        create(&opened.medium, 1, 16 << 20);
        let (stop, next) = (AtomicBool::new(false), AtomicU64::new(100));
        let (medium, stop, next) = (&opened.medium, &stop, &next);
        std::thread::scope(|scope| {
            let users: Vec<_> =
                (0..THREADS).map(|thread| scope.spawn(move || use_it(medium, kind, thread, stop))).collect();
            let others: Vec<_> = (0..2).map(|_| scope.spawn(move || come_and_go(medium, kind, stop, next))).collect();
            std::thread::sleep(Duration::from_millis(1500));
            stop.store(true, Ordering::Relaxed);
            let rounds: u64 = users.into_iter().map(|user| user.join().unwrap()).sum();
            let gone: u64 = others.into_iter().map(|other| other.join().unwrap()).sum();
            println!("{kind:?}: {rounds} rounds, {gone} namespaces");
        });
        assert_eq!(medium.volumes(), [VolumeId(1)]);
        // All extents of the others are free.
        let used = medium.thin(VolumeId(1)).unwrap().allocated_bytes();
        let end = Instant::now() + Duration::from_secs(60);
        while medium.capacity().used_bytes != used {
            assert!(Instant::now() < end, "{} used, {used} allocated", medium.capacity().used_bytes);
            std::thread::yield_now();
        }
        opened.medium.stop();
    }
}

/// A drive of 10 TB whose map is full and fragmented opens in less than a second.
#[test]
fn a_large_drive_opens_quickly() {
    const TEN_TB: u64 = 10_000_000_000_000;
    let layout = Layout::new(TEN_TB, [0; 16]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.img");
    // Sparse: only the drive's state is stored.
    let spec = format!("{},size={}", path.display(), layout.medium_bytes().next_multiple_of(4096));
    let options = Options { create: Some(TEN_TB), zeroed: true, ..Options::default() };
    let base = match ebof_backend::open(&spec.parse().unwrap()) {
        Ok(base) => base,
        Err(error) => return println!("SKIPPED: no file of 10 TB here: {error}"),
    };
    ebof_medium::open(base, options.clone()).unwrap().medium.stop();
    // 100 namespaces that have all extents, in runs of three that lie apart: by hand, as a
    // checkpoint.
    let extents = layout.extents();
    let each = extents / 100;
    let mut records = vec![Record::HighWater(extents)];
    for number in 0..100_u32 {
        let volume = VolumeId(u64::from(number) + 1);
        let blocks = u64::from(each) * 2 * layout.extent_bytes / 4096;
        records.push(Record::Create { volume, blocks, quota: each * 2, block_format: BlockFormat::plain(12) });
        for run in 0..each / 3 {
            let places = (0..3).map(|at| number * each + run * 3 + at).collect();
            records.push(Record::Map { volume, first: run * 6, extents: places });
        }
    }
    let checkpoint = Checkpoint { state: vec![b' '; 1 << 20], records, clean: false };
    let (header, body) = checkpoint.encode(Series { id: layout.id, generation: 9 }, 50, None);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &header, layout.checkpoint(9)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &body, layout.checkpoint(9) + FRAME_BYTES as u64).unwrap();
    drop(file);
    let base = ebof_backend::open(&spec.parse().unwrap()).unwrap();
    let begin = Instant::now();
    let opened = ebof_medium::open(Arc::clone(&base), options).unwrap();
    let took = begin.elapsed();
    println!("{} MiB of map and state, open after {took:?}", body.len() >> 20);
    assert_eq!(opened.medium.volumes().len(), 100);
    assert_eq!(opened.medium.capacity().used_bytes, u64::from(each / 3 * 300) * layout.extent_bytes);
    // The promise is for release builds; tests are built without most optimization, and share the
    // machine.
    assert!(took < Duration::from_secs(5), "{took:?}");
}
