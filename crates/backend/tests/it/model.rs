//! Any sequence of operations on any device, compared with an array of bytes.

use std::ops::Range;

use crate::common::{
    LoopDevice, direct_works, engines, open_text, read, read_pieces, read_shared, run, write, write_pieces,
    write_shared,
};
use ebof_backend::{Device, Io, Operation, Spec, open};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::TestCaseError;

const CAPACITY: usize = 512 << 10;

#[derive(Clone, Debug)]
enum Act {
    Read(Range<usize>),
    Write(Range<usize>, u8, bool),
    /// With memory in pieces of this many bytes.
    ReadPieces(Range<usize>, usize),
    WritePieces(Range<usize>, u8, usize),
    /// With shared memory in pieces of this many bytes, so far from the beginning of a page.
    ReadShared(Range<usize>, (usize, usize)),
    WriteShared(Range<usize>, u8, (usize, usize)),
    Zero(Range<usize>, bool, bool),
    Deallocate(Vec<Range<usize>>),
    Flush,
}

/// Ranges in units of `block`, mostly short, sometimes long enough to span chunks of every kind.
fn range(block: usize) -> impl Strategy<Value = Range<usize>> {
    let blocks = CAPACITY / block;
    let len = prop_oneof![4 => 0..=16_usize.min(blocks), 1 => 0..=blocks];
    (0..=blocks, len).prop_map(move |(start, len)| start * block..(start + len).min(blocks) * block)
}

/// Size of a piece of memory: whole blocks, large enough to have few pieces.
fn pieces(block: usize) -> impl Strategy<Value = usize> {
    (CAPACITY / 32 / block..CAPACITY / 2 / block).prop_map(move |blocks| blocks * block)
}

/// Size and alignment of pieces of shared memory: whole blocks, or not.
fn shared_pieces(block: usize) -> impl Strategy<Value = (usize, usize)> {
    let odd = (CAPACITY / 64..CAPACITY / 2, 0_usize..4096);
    prop_oneof![pieces(block).prop_map(|piece| (piece, 0)), odd]
}

fn acts(block: usize) -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => range(block).prop_map(Act::Read),
        4 => (range(block), any::<u8>(), any::<bool>()).prop_map(|(range, seed, fua)| Act::Write(range, seed, fua)),
        2 => (range(block), pieces(block)).prop_map(|(range, piece)| Act::ReadPieces(range, piece)),
        2 => (range(block), any::<u8>(), pieces(block))
            .prop_map(|(range, seed, piece)| Act::WritePieces(range, seed, piece)),
        2 => (range(block), shared_pieces(block)).prop_map(|(range, pieces)| Act::ReadShared(range, pieces)),
        2 => (range(block), any::<u8>(), shared_pieces(block))
            .prop_map(|(range, seed, pieces)| Act::WriteShared(range, seed, pieces)),
        2 => (range(block), any::<bool>(), any::<bool>())
            .prop_map(|(range, deallocate, fua)| Act::Zero(range, deallocate, fua)),
        1 => proptest::collection::vec(range(block), 0..4).prop_map(Act::Deallocate),
        1 => Just(Act::Flush),
    ];
    proptest::collection::vec(act, 1..24)
}

/// Bytes that differ from block to block, so that a misplaced one is detected.
fn pattern(range: &Range<usize>, seed: u8) -> Vec<u8> {
    range.clone().map(|at| (at / 7 + at / 512).to_le_bytes()[0] ^ seed).collect()
}

fn bytes(range: &Range<usize>) -> Range<u64> {
    range.start as u64..range.end as u64
}

fn apply(device: &dyn Device, io: &mut Io, model: &mut [u8], act: &Act) -> Result<(), TestCaseError> {
    match act {
        Act::Read(range) => {
            let got = read(device, io, range.start as u64, range.len()).unwrap();
            prop_assert!(got == model[range.clone()], "{:?} differs", range);
        }
        Act::Write(range, seed, fua) => {
            let data = pattern(range, *seed);
            write(device, io, range.start as u64, &data, *fua).unwrap();
            model[range.clone()].copy_from_slice(&data);
        }
        Act::ReadPieces(range, piece) => {
            let got = read_pieces(device, io, range.start as u64, range.len(), *piece).unwrap();
            prop_assert!(got == model[range.clone()], "{:?} differs in pieces", range);
        }
        Act::WritePieces(range, seed, piece) => {
            let data = pattern(range, *seed);
            write_pieces(device, io, range.start as u64, (&data, *piece), seed % 2 == 0).unwrap();
            model[range.clone()].copy_from_slice(&data);
        }
        Act::ReadShared(range, pieces) => {
            let got = read_shared(device, io, range.start as u64, range.len(), *pieces).unwrap();
            prop_assert!(got == model[range.clone()], "{:?} differs in shared memory", range);
        }
        Act::WriteShared(range, seed, pieces) => {
            let data = pattern(range, *seed);
            write_shared(device, io, range.start as u64, &data, *pieces, seed % 2 == 0).unwrap();
            model[range.clone()].copy_from_slice(&data);
        }
        Act::Zero(range, deallocate, fua) => {
            let (offset, len) = (range.start as u64, range.len() as u64);
            run(device, io, Operation::WriteZeroes { offset, len, deallocate: *deallocate, fua: *fua }).result.unwrap();
            model[range.clone()].fill(0);
        }
        Act::Deallocate(ranges) => {
            run(device, io, Operation::Deallocate { ranges: ranges.iter().map(bytes).collect() }).result.unwrap();
            for range in ranges {
                // Without deallocation the bytes stay, which is also correct.
                if device.geometry().deallocates {
                    model[range.clone()].fill(0);
                }
            }
        }
        Act::Flush => run(device, io, Operation::Flush).result.unwrap(),
    }
    Ok(())
}

fn compare(device: &dyn Device, io: &mut Io, acts: &[Act]) -> Result<(), TestCaseError> {
    let mut model = read(device, io, 0, CAPACITY).unwrap();
    for act in acts {
        apply(device, io, &mut model, act)?;
    }
    let all = read(device, io, 0, CAPACITY).unwrap();
    prop_assert!(all == model, "the device differs in the end");
    prop_assert_eq!(io.in_flight(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // @test data.reads-last-write
    #[test]
    fn memory_is_an_array_of_bytes(acts in acts(1)) {
        for mut io in engines(4) {
            compare(&*open_text(&format!("mem:{CAPACITY}")), &mut io, &acts)?;
        }
    }

    // @test data.reads-last-write
    #[test]
    fn a_buffered_file_is_an_array_of_bytes(acts in acts(1)) {
        let directory = tempfile::tempdir().unwrap();
        for (number, mut io) in engines(4).into_iter().enumerate() {
            let path = directory.path().join(number.to_string());
            compare(&*open_text(&format!("{}:{CAPACITY}", path.display())), &mut io, &acts)?;
        }
    }

    // @test data.reads-last-write
    #[test]
    fn an_uncached_file_is_an_array_of_bytes(acts in acts(4096)) {
        let directory = tempfile::tempdir().unwrap();
        if !direct_works(directory.path()) {
            return Ok(());
        }
        for (number, mut io) in engines(4).into_iter().enumerate() {
            let path = directory.path().join(number.to_string());
            compare(&*open_text(&format!("{},size={CAPACITY},direct", path.display())), &mut io, &acts)?;
        }
    }

    #[test]
    fn data_are_kept_when_a_file_is_opened_again(acts in acts(512)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let mut kept: Option<Vec<u8>> = None;
        for mut io in engines(4) {
            let device = open_text(&format!("{}:{CAPACITY}", path.display()));
            if let Some(kept) = kept {
                prop_assert!(read(&*device, &mut io, 0, CAPACITY).unwrap() == kept);
            }
            compare(&*device, &mut io, &acts)?;
            kept = Some(read(&*device, &mut io, 0, CAPACITY).unwrap());
        }
    }

    #[test]
    fn null_always_reads_zeros(acts in acts(1)) {
        for mut io in engines(4) {
            let device = open_text(&format!("null:{CAPACITY}"));
            for act in &acts {
                apply(&*device, &mut io, &mut vec![0; CAPACITY], &match act {
                    // Null stores nothing: there is nothing to compare.
                    Act::Write(range, ..) => Act::Read(range.clone()),
                    Act::WriteShared(range, _, pieces) => Act::ReadShared(range.clone(), *pieces),
                    other => other.clone(),
                })?;
            }
            write(&*device, &mut io, 0, &[7; 4096], true).unwrap();
            prop_assert_eq!(read(&*device, &mut io, 0, 4096).unwrap(), vec![0; 4096]);
        }
    }
}

#[test]
fn a_block_device_is_an_array_of_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let backing = directory.path().join("backing.img");
    std::fs::File::create(&backing).unwrap().set_len(CAPACITY as u64).unwrap();
    let Some(device) = LoopDevice::over(&backing) else {
        return;
    };
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) };
    for options in ["", ",direct=no"] {
        let device = open_text(&format!("{}{options}", device.path));
        let mut runner = proptest::test_runner::TestRunner::new(config.clone());
        let result =
            runner.run(&acts(512), |acts| engines(4).iter_mut().try_for_each(|io| compare(&*device, io, &acts)));
        result.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_block_device_is_described_and_opened_exclusively() {
    let directory = tempfile::tempdir().unwrap();
    let backing = directory.path().join("backing.img");
    std::fs::File::create(&backing).unwrap().set_len(CAPACITY as u64).unwrap();
    let Some(device) = LoopDevice::over(&backing) else {
        return;
    };
    let spec: Spec = device.path.parse().unwrap();
    let opened = open(&spec).unwrap();
    let geometry = opened.geometry();
    assert_eq!(geometry.capacity_bytes, CAPACITY as u64);
    assert_eq!((geometry.block_bytes, geometry.logical_block_bytes), (512, 512));
    assert_eq!(opened.describe(), format!("block device {}, 512Ki, direct", device.path));

    let error = open(&spec).unwrap_err().to_string();
    let expected = format!(
        "{0} is in use: it is mounted, used as swap, or part of a RAID, LVM or multipath device (see `lsblk {0}`); \
         release it first",
        device.path
    );
    assert_eq!(error, expected);

    let error = open(&Spec::path(&backing)).unwrap_err().to_string();
    let expected = format!(
        "{} is in use: it is the backing file of {1}; detach it first (`losetup -d {1}`)",
        backing.display(),
        device.path
    );
    assert_eq!(error, expected);
    drop(opened);
    open(&spec).unwrap();
}
