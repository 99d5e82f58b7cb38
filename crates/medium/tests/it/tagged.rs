//! Namespaces whose blocks have tags: data and metadata are read as written, and damage is
//! detected.

use std::sync::{Arc, Mutex};

use ebof_backend::{Buffer, Device, Engine, Io, Memory, Operation, Request, Submitted};
use ebof_medium::{BlockFormat, Medium, Notice, Notify, Options, VolumeId, medium_bytes};
use proptest::prelude::*;

use crate::rig::{Event, Recorder, create_coded, deallocate, drive, flush, kill_when_clean, on, read, run, write};

const EXTENT: u64 = 256 << 10;

/// Every block format with tags.
pub(crate) fn block_formats() -> [BlockFormat; 8] {
    let block_format = |block_shift, metadata_bytes, checked| BlockFormat {
        metadata_bytes,
        checked,
        ..BlockFormat::plain(block_shift)
    };
    [
        block_format(9, 0, true),
        block_format(9, 8, false),
        block_format(9, 8, true),
        block_format(12, 0, true),
        block_format(12, 8, false),
        block_format(12, 8, true),
        BlockFormat { encrypted: true, ..block_format(9, 8, false) },
        BlockFormat { encrypted: true, ..block_format(12, 0, true) },
    ]
}

pub(crate) fn small(memory: &Arc<Memory>, told: &Arc<Mutex<Vec<Notice>>>) -> Medium {
    let told = Arc::clone(told);
    let notify = Notify(Arc::new(move |notice| told.lock().unwrap().push(notice)));
    let options =
        Options { create: Some(4 << 20), zeroed: true, notify: Some(notify), tag_cache_bytes: 1, ..Options::default() };
    ebof_medium::open(Arc::clone(memory) as Arc<dyn Device>, options).unwrap().medium
}

/// A block filled with one byte; its metadata, if there are any, with another one.
pub(crate) fn block(block_format: BlockFormat, byte: u8) -> Vec<u8> {
    block_of(block_format, byte, byte ^ 0xFF)
}

fn block_of(block_format: BlockFormat, byte: u8, metadata: u8) -> Vec<u8> {
    let mut block = vec![byte; usize::try_from(block_format.data_bytes()).unwrap()];
    block.resize(usize::try_from(block_format.block_bytes()).unwrap(), metadata);
    block
}

#[derive(Clone, Debug)]
enum Act {
    Write(u64, u64, u8),
    Read(u64, u64),
    Deallocate(u64, u64),
    Zero(u64, u64, bool),
    Clear,
    Flush,
    Reopen(bool),
}

fn act() -> impl Strategy<Value = Act> {
    // More often around the ends of extents than elsewhere.
    let place = prop_oneof![0..1500_u64, (0..12_u64, 0..5_u64).prop_map(|(extent, by)| extent * 63 + by), Just(0)];
    let count = prop_oneof![1..4_u64, 1..700_u64];
    prop_oneof![
        6 => (place.clone(), count.clone(), 1..=255_u8).prop_map(|(at, count, byte)| Act::Write(at, count, byte)),
        3 => (place.clone(), count.clone()).prop_map(|(at, count)| Act::Read(at, count)),
        2 => (place.clone(), count.clone()).prop_map(|(at, count)| Act::Deallocate(at, count)),
        2 => (place, count, any::<bool>()).prop_map(|(at, count, give)| Act::Zero(at, count, give)),
        1 => prop_oneof![4 => Just(Act::Flush), 1 => Just(Act::Clear)],
        1 => any::<bool>().prop_map(Act::Reopen),
    ]
}

fn play(block_format: BlockFormat, acts: &[Act]) -> Result<(), TestCaseError> {
    let memory = Arc::new(Memory::new(medium_bytes(4 << 20).unwrap(), 512, false));
    let (mut told, mut io) = (Arc::default(), Io::new(8).unwrap());
    let mut medium = small(&memory, &told);
    let blocks = block_format.blocks_per_extent(EXTENT) * 7 + 11;
    create_coded(&medium, 1, blocks, block_format);
    let bytes = usize::try_from(block_format.block_bytes()).unwrap();
    let mut model = vec![0; usize::try_from(blocks).unwrap() * bytes];
    let range = |at: u64, count: u64| (at.min(blocks - 1), count.min(blocks - at.min(blocks - 1)));
    let of = |at: u64, count: u64| usize::try_from(at).unwrap() * bytes..usize::try_from(at + count).unwrap() * bytes;
    for act in acts {
        let device = medium.device(VolumeId(1)).unwrap();
        match *act {
            Act::Write(at, count, byte) => {
                let (at, count) = range(at, count);
                let data: Vec<u8> = (0..count)
                    .flat_map(|number| block(block_format, byte ^ u8::try_from(number % 7).unwrap()))
                    .collect();
                write(&device, &mut io, at * bytes as u64, &data).unwrap();
                model[of(at, count)].copy_from_slice(&data);
            }
            Act::Read(at, count) => {
                let (at, count) = range(at, count);
                let all = read(&device, &mut io, at * bytes as u64, of(at, count).len());
                prop_assert!(all == Ok(model[of(at, count)].to_vec()), "{count} blocks from {at} on");
            }
            Act::Deallocate(at, count) => {
                let (at, count) = range(at, count);
                deallocate(&device, &mut io, at * bytes as u64, count * bytes as u64).unwrap();
                model[of(at, count)].fill(0);
            }
            Act::Zero(at, count, deallocate) => {
                let (at, count) = range(at, count);
                let (offset, len) = (at * bytes as u64, count * bytes as u64);
                run(&device, &mut io, Operation::WriteZeroes { offset, len, deallocate, fua: false }).result.unwrap();
                model[of(at, count)].fill(0);
            }
            Act::Clear => {
                on(&medium, |store| store.clear(VolumeId(1))).unwrap();
                model.fill(0);
            }
            Act::Flush => flush(&device, &mut io).unwrap(),
            Act::Reopen(orderly) => {
                drop(device);
                if orderly {
                    medium.stop();
                } else {
                    kill_when_clean(medium);
                }
                prop_assert!(is_fine(&told));
                told = Arc::default();
                medium = small(&memory, &told);
            }
        }
    }
    let device = medium.device(VolumeId(1)).unwrap();
    prop_assert!(read(&device, &mut io, 0, model.len()) == Ok(model), "all of it, at the end");
    prop_assert!(is_fine(&told));
    Ok(())
}

/// Whether nothing was reported but blocks that were written and not flushed when the drive was
/// killed.
fn is_fine(told: &Mutex<Vec<Notice>>) -> bool {
    told.lock().unwrap().iter().all(|notice| matches!(notice, Notice::Mended { .. }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_namespace_with_tags_behaves_like_an_array_of_bytes(
        block_format in prop::sample::select(block_formats().to_vec()),
        acts in proptest::collection::vec(act(), 1..40),
    ) {
        play(block_format, &acts)?;
    }
}

/// Concurrent requests are executed in some order, block by block; no read sees a partial write.
#[test]
fn requests_for_the_same_blocks_are_executed_one_by_one() {
    for (block_format, seed) in block_formats().into_iter().zip(0_u64..) {
        // Threads execute concurrent requests in any order.
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("drive.img");
        let spec = format!("{},size={}", file.display(), medium_bytes(4 << 20).unwrap()).parse().unwrap();
        let options = Options { create: Some(4 << 20), zeroed: true, io: Engine::Threads.into(), ..Options::default() };
        let medium = ebof_medium::open(ebof_backend::open(&spec).unwrap(), options).unwrap().medium;
        let device = create_coded(&medium, 1, block_format.blocks_per_extent(EXTENT) * 4, block_format);
        let mut io = Io::new(64).unwrap();
        let bytes = block_format.block_bytes();
        let first = block_format.blocks_per_extent(EXTENT) - 4;
        for round in 0..15 {
            let mut values = vec![vec![0_u8]; 8];
            for tag in 0..40_u64 {
                let mixed = (seed << 20 ^ round << 8 ^ tag).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let (at, count) = (mixed >> 40 & 3, (mixed >> 50 & 3) + 1);
                let (offset, len) = ((first + at) * bytes, count * bytes);
                let size = usize::try_from(len).unwrap();
                let operation = match mixed >> 60 {
                    0 => Operation::WriteZeroes { offset, len, deallocate: false, fua: false },
                    1 => Operation::Deallocate { ranges: vec![0..offset + len, offset..offset + len] },
                    2..8 => Operation::Read { offset, len: size, data: Buffer::zeroed(size).into() },
                    _ => {
                        let byte = u8::try_from(tag + 1).unwrap();
                        let mut buffer = Buffer::zeroed(size);
                        let data = block(block_format, byte).repeat(usize::try_from(count).unwrap());
                        buffer.as_mut_slice()[..size].copy_from_slice(&data);
                        (at..at + count).for_each(|at| values[usize::try_from(at).unwrap()].push(byte));
                        Operation::Write { offset, len: size, data: buffer.into(), fua: false }
                    }
                };
                let request = Request::new(tag << 8 | count, operation);
                match device.submit(&mut io, request) {
                    Submitted::Done(done) => done.result.unwrap(),
                    submitted => assert!(matches!(submitted, Submitted::Pending)),
                }
            }
            while let Some(done) = io.wait(None).unwrap() {
                done.result.unwrap();
            }
            for (at, values) in (first..).zip(&values) {
                let read = read(&device, &mut io, at * bytes, usize::try_from(bytes).unwrap()).unwrap();
                let zeros = read.iter().all(|byte| *byte == 0);
                let fits = values.iter().any(|&byte| byte > 0 && block(block_format, byte) == read);
                // Without a request that changed it, a block is as in the round before.
                assert!(zeros || fits || values.len() == 1, "block {at} of {block_format:?}");
            }
        }
    }
}

/// Freed extents are zeroed in the background: by then no namespace refers to them, after any power
/// loss.
#[test]
fn extents_freed_before_a_power_loss_are_not_reported_as_damage() {
    for block_format in block_formats().into_iter().filter(|block_format| !block_format.encrypted) {
        let (base, opened) = drive(4 << 20);
        let mut io = Io::new(8).unwrap();
        let blocks = block_format.blocks_per_extent(EXTENT) * 2;
        let device = create_coded(&opened.medium, 1, blocks, block_format);
        let (span, bytes) = (blocks / 2 * block_format.block_bytes(), block_format.block_bytes());
        write(&device, &mut io, 0, &block(block_format, 1)).unwrap();
        write(&device, &mut io, span, &block(block_format, 1)).unwrap();
        flush(&device, &mut io).unwrap();
        let before = base.events.lock().unwrap().len();
        deallocate(&device, &mut io, 0, span).unwrap();
        kill_when_clean(opened.medium);
        let events = base.events.lock().unwrap().clone();
        let zeroed = (before..events.len()).find(|&at| matches!(events[at], Event::Zero(_, EXTENT))).unwrap();
        let flushed = events[..zeroed].iter().rposition(|event| matches!(event, Event::Flush)).unwrap();
        // All unflushed writes are lost, except for the zeros.
        let lost = |at: usize| at > flushed && matches!(events[at], Event::Write(..));
        let left: Vec<Event> = (0..=zeroed).filter(|&at| !lost(at)).map(|at| events[at].clone()).collect();
        let again = Arc::new(Recorder::with(4 << 20, &left));
        let medium = crate::rig::open(&again, None).medium;
        let device = medium.device(VolumeId(1)).unwrap();
        let bytes = usize::try_from(bytes).unwrap();
        assert_eq!(read(&device, &mut io, 0, bytes), Ok(vec![0; bytes]));
        assert_eq!(read(&device, &mut io, span, bytes), Ok(block(block_format, 1)));
    }
}

/// Records of namespaces without tags become durable with a flush; those of tags after them in the
/// journal are durable immediately.
#[test]
fn a_tag_is_durable_after_any_records_in_the_journal() {
    let block_format = BlockFormat { checked: true, ..BlockFormat::plain(9) };
    let (base, opened) = drive(4 << 20);
    let mut io = Io::new(8).unwrap();
    let plain = create_coded(&opened.medium, 1, 8 * 64, BlockFormat::plain(12));
    let tagged = create_coded(&opened.medium, 2, 100, block_format);
    write(&tagged, &mut io, 0, &block(block_format, 1)).unwrap();
    flush(&tagged, &mut io).unwrap();
    for round in 0..6_u8 {
        write(&plain, &mut io, u64::from(round) * EXTENT, &[7; 4096]).unwrap();
        write(&tagged, &mut io, 0, &block(block_format, round + 2)).unwrap();
        let events = base.events.lock().unwrap().clone();
        let flushed = events.iter().rposition(|event| matches!(event, Event::Flush)).unwrap();
        // Of the unflushed writes the data are kept, and all frames of the journal are lost.
        let lost =
            |at: usize| at > flushed && matches!(&events[at], Event::Write(_, bytes) if bytes.starts_with(b"EBOFJRN1"));
        let left: Vec<Event> = (0..events.len()).filter(|&at| !lost(at)).map(|at| events[at].clone()).collect();
        let medium = crate::rig::open(&Arc::new(Recorder::with(4 << 20, &left)), None).medium;
        let device = medium.device(VolumeId(2)).unwrap();
        assert_eq!(read(&device, &mut io, 0, 512), Ok(block(block_format, round + 2)));
    }
}
