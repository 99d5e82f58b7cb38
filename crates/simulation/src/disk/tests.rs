//! What the disk takes for a write of blocks that comes too late.

use ebof_backend::{Buffer, Device, Operation, Request, Submitted};
use ebof_clock::Clock;

use super::*;

const DATA: u64 = 1 << 20;

#[test]
fn only_sectors_of_blocks_are_taken_for_late_writes() {
    let clock = Clock::simulated(1);
    let profile = Profile {
        capacity_bytes: 2 * DATA,
        sector_bytes: 512,
        quick: Duration::from_micros(10),
        slow: (0, Duration::ZERO),
        data: DATA,
    };
    let disk = Disk::new(profile, Image::default(), clock, 1);
    let mut io = disk.io_factory(None).make(8).unwrap();
    let word: u64 = 3 << 48 | 77;
    disk.bar(std::iter::once(word));
    // Of block 9.
    let word = word | 9 << 32;
    let mut write = |offset: u64, words: [u64; 64]| {
        let mut data = Buffer::zeroed(512);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        data.as_mut_slice()[..512].copy_from_slice(&bytes);
        let request = Request::new(1, Operation::Write { offset, len: 512, data: data.into(), fua: false });
        assert!(matches!(disk.submit(&mut io, request), Submitted::Pending));
        disk.writes_under_way(Some).len()
    };
    let mut record = [0; 64];
    record[0] = word;
    assert_eq!((write(4096, record), write(DATA + 512, record)), (0, 0), "of a checkpoint, and of a page of tags");
    assert_eq!((write(4096, [word; 64]), disk.late()), (0, None));
    assert_eq!((write(DATA, [word; 64]), disk.late()), (1, Some(3 << 48 | 77)));
}
