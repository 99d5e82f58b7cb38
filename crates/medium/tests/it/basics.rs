//! Namespaces on one medium: reading and writing, space, errors, and their state after closing and
//! opening.

use ebof_backend::{Buffer, Class, Device, Engine, Io, Memory, Operation, Segment, Segments};
use ebof_medium::{BlockFormat, Error, Notice, Notify, OpenError, Options, VolumeId, medium_bytes};
use ebof_region::SharedMapping;
use std::sync::{Arc, Mutex};

use crate::rig::{create, create_coded, deallocate, drive, flush, kill, on, open, read, run, write};

const EXTENT: u64 = 256 << 10;

#[test]
fn written_blocks_are_read_back_and_others_are_zeros() {
    for engine in [Engine::Auto, Engine::Threads] {
        let (_, opened) = drive(16 << 20);
        let mut io = Io::with_engine(64, engine).unwrap();
        let device = create(&opened.medium, 1, 8 << 20);
        assert_eq!(read(&device, &mut io, 0, 4096), Ok(vec![0; 4096]));
        // Within an extent, across two, and across many.
        for (offset, len, byte) in [(8192, 4096, 1), (EXTENT - 4096, 8192, 2), (2 * EXTENT, 1 << 20, 3)] {
            write(&device, &mut io, offset, &vec![byte; len]).unwrap();
            assert_eq!(read(&device, &mut io, offset, len), Ok(vec![byte; len]));
        }
        assert_eq!(read(&device, &mut io, 4096, 4096), Ok(vec![0; 4096]));
        // Half of it was never written.
        let mixed = read(&device, &mut io, 5 * EXTENT, 512 << 10).unwrap();
        assert!(mixed[..256 << 10].iter().all(|byte| *byte == 3) && mixed[256 << 10..].iter().all(|byte| *byte == 0));
        assert_eq!(opened.medium.thin(VolumeId(1)).unwrap().allocated_bytes(), 6 * EXTENT);
        assert_eq!(write(&device, &mut io, (8 << 20) - 4096, &[1; 8192]), Err(Class::OutOfRange));
    }
}

/// Memory for `len` bytes in two pieces that meet at `cut`.
fn halves(len: usize, cut: usize, fill: u8) -> Segments {
    let piece = |bytes: usize| {
        let mut buffer = Buffer::zeroed(bytes + 100);
        buffer.as_mut_slice().fill(fill);
        Segment::new(buffer, 100..100 + bytes).unwrap()
    };
    Segments::from(vec![piece(cut), piece(len - cut)])
}

/// The same of memory that another process shares.
fn shared_halves(len: usize, cut: usize, fill: u8) -> Segments {
    let (_file, mapping) = SharedMapping::create("test", (len as u64 + 4096).next_multiple_of(4096)).unwrap();
    mapping.write(0, &vec![fill; mapping.length()]).unwrap();
    let piece = |offset: usize, bytes: usize| mapping.piece(offset, bytes).unwrap();
    Segments::from(vec![piece(100 + len - cut, cut), piece(100, len - cut)])
}

#[test]
fn memory_in_several_pieces_works_like_a_buffer() {
    several_pieces(halves);
}

#[test]
fn shared_memory_works_like_a_buffer() {
    several_pieces(shared_halves);
}

fn several_pieces(halves: fn(usize, usize, u8) -> Segments) {
    let (_, opened) = drive(32 << 20);
    let mut io = Io::new(64).unwrap();
    let block_formats = [
        BlockFormat::plain(12),
        BlockFormat { encrypted: true, ..BlockFormat::plain(12) },
        BlockFormat { checked: true, metadata_bytes: 8, ..BlockFormat::plain(9) },
        BlockFormat { checked: true, encrypted: true, ..BlockFormat::plain(12) },
    ];
    for (volume, block_format) in (1..).zip(block_formats) {
        let block = usize::try_from(block_format.block_bytes()).unwrap();
        let device = create_coded(&opened.medium, volume, 2048, block_format);
        // First unmapped, then across mapped and unmapped extents, then mapped.
        for (first, blocks, seed) in [(0, 2, 1_u8), (1, 200, 2), (40, 30, 3)] {
            let (offset, len) = ((first * block) as u64, blocks * block);
            let bytes: Vec<u8> = (0..len).map(|at| (at / 100).to_le_bytes()[0] ^ seed).collect();
            // Pieces may also meet in the middle of a block.
            let mut data = halves(len, block + 13, 0);
            data.scatter(&bytes);
            let done = run(&device, &mut io, Operation::Write { offset, len, data, fua: seed == 2 });
            done.result.unwrap();
            // A write does not change the caller's memory.
            assert!(done.data.unwrap().gather(len).as_slice()[..len] == bytes);
            assert!(read(&device, &mut io, offset, len).unwrap() == bytes, "{block_format:?}");
            let operation = Operation::Read { offset, len, data: halves(len, 3 * block / 2, 0xEE) };
            let done = run(&device, &mut io, operation);
            done.result.unwrap();
            assert!(done.data.unwrap().gather(len).as_slice()[..len] == bytes, "{block_format:?} in pieces");
        }
        let (offset, len) = ((1024 * block) as u64, 4 * block);
        let done = run(&device, &mut io, Operation::Read { offset, len, data: halves(len, 7, 0xEE) });
        assert!(done.data.unwrap().gather(len).as_slice()[..len].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn deallocated_blocks_are_zeros_and_their_extents_are_reused_zeroed() {
    let (base, opened) = drive(1 << 20);
    let mut io = Io::new(64).unwrap();
    let first = create(&opened.medium, 1, 1 << 20);
    let second = create(&opened.medium, 2, 1 << 20);
    write(&first, &mut io, 0, &vec![7; 1 << 20]).unwrap();
    assert_eq!(write(&second, &mut io, 0, &[1; 4096]), Err(Class::OutOfSpace));
    // Half an extent is zeroed and not freed.
    deallocate(&first, &mut io, 0, EXTENT / 2).unwrap();
    assert_eq!(read(&first, &mut io, 0, 4096), Ok(vec![0; 4096]));
    assert_eq!(read(&first, &mut io, EXTENT / 2, 4096), Ok(vec![7; 4096]));
    assert_eq!(opened.medium.thin(VolumeId(1)).unwrap().allocated_bytes(), 1 << 20);
    deallocate(&first, &mut io, EXTENT, 2 * EXTENT + 4096).unwrap();
    assert_eq!(read(&first, &mut io, EXTENT, 4096), Ok(vec![0; 4096]));
    assert_eq!(opened.medium.thin(VolumeId(1)).unwrap().allocated_bytes(), 2 * EXTENT);
    write(&second, &mut io, 4096, &[9; 4096]).unwrap();
    let all = read(&second, &mut io, 0, 256 << 10).unwrap();
    assert!(all.iter().enumerate().all(|(at, byte)| *byte == if at / 4096 == 1 { 9 } else { 0 }));
    let runs = opened.medium.thin(VolumeId(2)).unwrap().allocated(0..1 << 20, 9);
    assert_eq!(
        runs.iter().map(|run| (run.range.clone(), run.allocated)).collect::<Vec<_>>(),
        [(0..EXTENT, true), (EXTENT..1 << 20, false)]
    );
    drop(base);
}

#[test]
fn a_namespace_has_a_quota_and_a_full_drive_reports_it() {
    let told: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let notices = Arc::clone(&told);
    let base = Arc::new(Memory::new(medium_bytes(1 << 20).unwrap(), 512, false));
    let notify = Notify(Arc::new(move |notice| notices.lock().unwrap().push(notice)));
    let options = Options { create: Some(1 << 20), zeroed: true, notify: Some(notify), ..Options::default() };
    let medium = ebof_medium::open(base, options).unwrap().medium;
    let mut io = Io::new(64).unwrap();
    let small = on(&medium, |store| store.create(VolumeId(1), 1 << 21, EXTENT / 512, BlockFormat::plain(9))).unwrap();
    let large = create(&medium, 2, 1 << 30);
    write(&small, &mut io, 0, &[1; 4096]).unwrap();
    assert_eq!(write(&small, &mut io, 1 << 20, &[1; 4096]), Err(Class::OutOfSpace));
    for at in 0..3 {
        write(&large, &mut io, at << 24, &[1; 4096]).unwrap();
    }
    assert_eq!(write(&large, &mut io, 1 << 29, &[1; 4096]), Err(Class::OutOfSpace));
    // A write that needs two extents and finds one allocates none.
    deallocate(&large, &mut io, 0, EXTENT).unwrap();
    assert_eq!(write(&large, &mut io, EXTENT * 5 - 4096, &[1; 8192]), Err(Class::OutOfSpace));
    write(&large, &mut io, 1 << 29, &[1; 4096]).unwrap();
    // Whether it is reported full again depends on when the extent is freed.
    let told = told.lock().unwrap();
    assert_eq!(told[..3], [Notice::QuotaReached(VolumeId(1)), Notice::Full(VolumeId(2)), Notice::Room]);
    assert_eq!(medium.capacity().used_bytes, 1 << 20);
}

#[test]
fn everything_is_kept_when_the_drive_is_opened_again() {
    let (base, opened) = drive(16 << 20);
    assert!(opened.created && opened.was_clean && opened.snapshot.is_none());
    let mut io = Io::new(64).unwrap();
    let device = create(&opened.medium, 1, 8 << 20);
    let gone = create(&opened.medium, 2, 8 << 20);
    write(&device, &mut io, EXTENT, &[5; 4096]).unwrap();
    write(&gone, &mut io, 0, &[6; 4096]).unwrap();
    on(&opened.medium, |store| store.commit(&[b"one", b"two"])).unwrap();
    on(&opened.medium, |store| store.remove(VolumeId(2))).unwrap();
    assert_eq!(read(&gone, &mut io, 0, 4096), Err(Class::Gone));
    on(&opened.medium, |store| store.mark_bad(VolumeId(1), 3..5)).unwrap();
    kill(opened.medium);
    for clean in [false, true, true] {
        let again = open(&base, None);
        assert_eq!(again.was_clean, clean);
        let changes: Vec<Vec<u8>> = if clean { Vec::new() } else { vec![b"one".to_vec(), b"two".to_vec()] };
        assert_eq!((again.snapshot, again.changes), (clean.then(|| b"state".to_vec()), changes));
        assert_eq!(again.medium.volumes(), [VolumeId(1)]);
        let device = again.medium.device(VolumeId(1)).unwrap();
        assert_eq!(read(&device, &mut io, EXTENT, 4096), Ok(vec![5; 4096]));
        assert_eq!(read(&device, &mut io, 3 * 4096, 4096), Err(Class::MediumRead));
        on(&again.medium, |store| store.set_snapshot(Box::new(|| b"state".to_vec())));
        again.medium.stop();
    }
}

#[test]
fn bad_blocks_cannot_be_read_until_they_are_written() {
    let (_, opened) = drive(16 << 20);
    let mut io = Io::new(64).unwrap();
    let device = create(&opened.medium, 1, 8 << 20);
    write(&device, &mut io, 0, &[1; 32768]).unwrap();
    on(&opened.medium, |store| store.mark_bad(VolumeId(1), 2..6)).unwrap();
    assert_eq!(read(&device, &mut io, 4096, 4096), Ok(vec![1; 4096]));
    assert_eq!(read(&device, &mut io, 4096, 8192), Err(Class::MediumRead));
    write(&device, &mut io, 3 * 4096, &[2; 4096]).unwrap();
    assert_eq!(read(&device, &mut io, 3 * 4096, 4096), Ok(vec![2; 4096]));
    assert_eq!(opened.medium.thin(VolumeId(1)).unwrap().bad_ranges(&(0..100), 9), [2..3, 4..6]);
    deallocate(&device, &mut io, 0, 1 << 20).unwrap();
    assert_eq!(read(&device, &mut io, 0, 32768), Ok(vec![0; 32768]));
}

#[test]
fn a_device_error_is_reported_and_cleared_when_it_ends() {
    let (base, opened) = drive(16 << 20);
    let mut io = Io::new(64).unwrap();
    let device = create(&opened.medium, 1, 8 << 20);
    write(&device, &mut io, 0, &[1; 4096]).unwrap();
    for after in 0..2 {
        base.fail_after(after);
        assert_eq!(write(&device, &mut io, (2 + after) * EXTENT, &[2; 4096]), Err(Class::MediumWrite), "{after}");
        assert!(on(&opened.medium, |store| store.commit(&[b"lost"])).is_err());
        base.heal();
        assert_eq!(read(&device, &mut io, 0, 4096), Ok(vec![1; 4096]));
        write(&device, &mut io, (2 + after) * EXTENT, &[3; 4096]).unwrap();
        on(&opened.medium, |store| store.commit(&[b"kept"])).unwrap();
    }
    flush(&device, &mut io).unwrap();
    let again = open(&base, None);
    assert_eq!(again.changes, vec![b"kept".to_vec(); 2]);
    let device = again.medium.device(VolumeId(1)).unwrap();
    for at in 2..4 {
        assert_eq!(read(&device, &mut io, at * EXTENT, 4096), Ok(vec![3; 4096]));
    }
}

#[test]
fn everything_is_kept_over_many_journals() {
    let (base, opened) = drive(4 << 20);
    let mut io = Io::new(64).unwrap();
    let device = create(&opened.medium, 1, 4 << 20);
    on(&opened.medium, |store| store.set_snapshot(Box::new(|| b"state".to_vec())));
    let change = vec![7_u8; 900_000];
    for turn in 0..60_u8 {
        write(&device, &mut io, u64::from(turn % 16) * EXTENT, &[turn; 4096]).unwrap();
        let change = change.clone();
        on(&opened.medium, move |store| store.commit(&[&change])).unwrap();
        if turn % 3 == 0 {
            deallocate(&device, &mut io, u64::from(turn % 16) * EXTENT, EXTENT).unwrap();
        }
    }
    let again = open(&base, None);
    assert_eq!(again.snapshot.as_deref(), Some(&b"state"[..]));
    assert!(again.changes.len() < 20 && again.changes.iter().all(|kept| *kept == change));
    let again = again.medium.device(VolumeId(1)).unwrap();
    for turn in 44..60_u8 {
        let offset = u64::from(turn % 16) * EXTENT;
        assert_eq!(read(&again, &mut io, offset, 4096), read(&device, &mut io, offset, 4096), "{turn}");
    }
}

// @test data.create-over-zeros
#[test]
fn other_data_are_not_opened_and_not_overwritten() {
    let refused = |base: Arc<dyn Device>, create: Option<u64>| {
        ebof_medium::open(base, Options { create, ..Options::default() }).map(|_| ()).unwrap_err()
    };
    let memory = |bytes| Arc::new(Memory::new(bytes, 512, false));
    assert!(matches!(refused(memory(1 << 30), None), OpenError::NoDrive { .. }));
    assert!(matches!(refused(memory(1 << 20), Some(1 << 20)), OpenError::Layout { .. }));
    assert!(matches!(refused(memory(1 << 30), Some(1 << 40)), OpenError::Layout { .. }));
    let foreign: Arc<dyn Device> = memory(1 << 30);
    let mut io = Io::new(8).unwrap();
    write(&foreign, &mut io, 0, &[0x5a; 4096]).unwrap();
    assert!(matches!(refused(Arc::clone(&foreign), Some(1 << 20)), OpenError::HoldsData { at: 0, .. }));
    assert_eq!(read(&foreign, &mut io, 0, 4096), Ok(vec![0x5a; 4096]));
    // Labels of file systems, RAIDs and pools are at other offsets; data may be anywhere.
    for at in [4096, 65536, 512 << 20, (1 << 30) - 4096] {
        let data: Arc<dyn Device> = memory(1 << 30);
        write(&data, &mut io, at, &[0x5a; 512]).unwrap();
        let error = refused(Arc::clone(&data), Some(1 << 20));
        assert!(matches!(error, OpenError::HoldsData { at: found, .. } if found == at), "{error}");
        assert!(error.to_string().contains("add `overwrite`"), "{error}");
        assert_eq!(read(&data, &mut io, 0, 4096), Ok(if at == 0 { vec![0x5a; 4096] } else { vec![0; 4096] }));
        let options = Options { create: Some(1 << 20), overwrite: true, ..Options::default() };
        assert!(ebof_medium::open(data, options).unwrap().created);
    }
    let read_only = Arc::new(Memory::new(1 << 30, 512, true));
    assert!(matches!(refused(read_only, Some(1 << 20)), OpenError::ReadOnly { .. }));
    let (base, opened) = drive(16 << 20);
    opened.medium.stop();
    let error = refused(base, Some(32 << 20));
    assert!(matches!(error, OpenError::SizeDiffers { .. }), "{error}");
}

#[test]
fn requests_after_the_stop_are_completed() {
    let (_, opened) = drive(16 << 20);
    let mut io = Io::new(8).unwrap();
    let device = create(&opened.medium, 1, 1 << 20);
    opened.medium.stop();
    assert_eq!(write(&device, &mut io, 0, &[1; 4096]), Err(Class::Gone));
    let zeroes = Operation::WriteZeroes { offset: 0, len: 4096, deallocate: true, fua: false };
    assert_eq!(run(&device, &mut io, zeroes).result.unwrap_err().class(), Class::Gone);
}

#[test]
fn several_threads_use_namespaces_that_are_created_and_deleted() {
    let (_, opened) = drive(32 << 20);
    let medium = &opened.medium;
    let shared = create(medium, 0, 16 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let shared = Arc::clone(&shared);
            let engine = if thread % 2 == 0 { Engine::Auto } else { Engine::Threads };
            scope.spawn(move || {
                let mut io = Io::with_engine(32, engine).unwrap();
                let base = u64::from(thread) << 22;
                for turn in 0..60_u64 {
                    let at = base + (turn % 16) * EXTENT;
                    let stamp = [thread + 1; 4096];
                    write(&shared, &mut io, at, &stamp).unwrap();
                    assert_eq!(read(&shared, &mut io, at, 4096), Ok(stamp.to_vec()));
                    if turn % 3 == 0 {
                        deallocate(&shared, &mut io, at, EXTENT).unwrap();
                        assert_eq!(read(&shared, &mut io, at, 4096), Ok(vec![0; 4096]));
                    }
                }
            });
        }
        scope.spawn(move || {
            let mut io = Io::new(32).unwrap();
            for turn in 1..40_u64 {
                let own = create(medium, turn, 1 << 20);
                assert_eq!(read(&own, &mut io, 0, 1 << 20), Ok(vec![0; 1 << 20]));
                write(&own, &mut io, 4096, &[0xaa; 4096]).unwrap();
                assert_eq!(read(&own, &mut io, 0, 4096), Ok(vec![0; 4096]), "bytes of another namespace");
                on(medium, move |store| store.remove(VolumeId(turn))).unwrap();
            }
        });
    });
}

/// An earlier version let a drive's state grow until it did not fit into a checkpoint.
// @test data.checkpoint-room
#[test]
fn a_state_beyond_its_budget_is_kept_while_it_fits() {
    let (base, opened) = drive(1 << 20);
    let grown = Arc::new(std::sync::atomic::AtomicUsize::new(14_700_000));
    let bytes = Arc::clone(&grown);
    on(&opened.medium, move |store| {
        let bytes = move || vec![7; bytes.load(std::sync::atomic::Ordering::Relaxed)];
        store.set_snapshot(Box::new(bytes));
    });
    // More than the journal holds: checkpoints are written.
    let commit = |count: usize| {
        (0..count).try_for_each(|_| on(&opened.medium, |store| store.commit(&[&[1; 900_000], &[2; 900_000]])))
    };
    commit(20).unwrap();
    grown.store(17 << 20, std::sync::atomic::Ordering::Relaxed);
    let error = commit(20).unwrap_err();
    assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    assert!(matches!(commit(1), Err(Error::NoRoom { .. })), "nothing has to be restarted, but nothing has room");
    grown.store(14_700_000, std::sync::atomic::Ordering::Relaxed);
    commit(20).unwrap();
    opened.medium.stop();
    drop(opened);
    let again = open(&base, None);
    assert_eq!(again.snapshot.map(|state| state.len()), Some(14_700_000));
    assert!(matches!(on(&again.medium, |store| store.commit(&[&[1; 1 << 20][..]; 5])), Err(Error::TooLarge { .. })));
}
