//! What is mapped, and what an access finds.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;

fn mapping(pages: u64) -> Arc<SharedMapping> {
    SharedMapping::create("test", pages * PAGE).unwrap().1
}

fn insert(memory: &mut GuestMemory, address: u64, pages: u64) -> Result<(), GuestMemoryError> {
    memory.insert(address, pages * PAGE, MappingAccess::ALL, Some(mapping(pages)))
}

#[test]
fn ranges_do_not_overlap_and_are_removed_as_they_were_mapped() {
    let mut memory = GuestMemory::new(4);
    insert(&mut memory, 2 * PAGE, 2).unwrap();
    insert(&mut memory, 6 * PAGE, 1).unwrap();
    insert(&mut memory, 4 * PAGE, 2).unwrap();
    for (page, pages) in [(1, 2), (3, 1), (3, 4), (6, 1), (1, 9), (2, 1)] {
        let overlaps = Err(GuestMemoryError::Overlaps { address: page * PAGE });
        assert_eq!(insert(&mut memory, page * PAGE, pages), overlaps, "{page} {pages}");
    }
    insert(&mut memory, u64::MAX - 2 * PAGE + 1, 1).unwrap();
    assert_eq!(insert(&mut memory, 100 * PAGE, 1), Err(GuestMemoryError::TooMany { max: 4 }));
    for (page, pages) in [(2, 1), (3, 1), (2, 4), (0, 0), (6, 2)] {
        let missing = Err(GuestMemoryError::NotMapped { address: page * PAGE, length: pages * PAGE });
        assert_eq!(memory.remove(page * PAGE, pages * PAGE), missing);
    }
    memory.remove(4 * PAGE, 2 * PAGE).unwrap();
    assert_eq!(memory.read(4 * PAGE - 1, &mut [0; 2]), Err(GuestFault { address: 4 * PAGE }));
    memory.clear();
    assert_eq!((memory.count(), memory.read(2 * PAGE, &mut [0])), (0, Err(GuestFault { address: 2 * PAGE })));
    for (address, length) in [(0, 0), (u64::MAX, 1), (PAGE, u64::MAX)] {
        let range = Err(GuestMemoryError::Range { address });
        assert_eq!(memory.insert(address, length, MappingAccess::ALL, None), range);
    }
    assert_eq!(
        memory.insert(0, 2 * PAGE, MappingAccess::ALL, Some(mapping(1))),
        Err(GuestMemoryError::Range { address: 0 }),
        "another length than that of the mapping"
    );
}

#[test]
fn memory_without_a_file_or_for_one_direction_is_a_fault() {
    let mut memory = GuestMemory::new(4);
    memory.insert(0, PAGE, MappingAccess::ALL, None).unwrap();
    let (file, _) = SharedMapping::create("test", PAGE).unwrap();
    let read_only = MappingAccess { readable: true, writable: false };
    let mapped = SharedMapping::map(&file, 0, PAGE, read_only).unwrap();
    memory.insert(PAGE, PAGE, read_only, Some(mapped)).unwrap();
    let write_only = MappingAccess { readable: false, writable: true };
    memory.insert(2 * PAGE, PAGE, write_only, Some(SharedMapping::map(&file, 0, PAGE, write_only).unwrap())).unwrap();
    let fault = |address| Err(GuestFault { address });
    assert_eq!(memory.read(0, &mut [0; 4]), fault(0));
    assert_eq!(memory.write(PAGE - 4, &[0; 4]), fault(PAGE - 4));
    assert_eq!(memory.write(PAGE, &[0; 4]), fault(PAGE));
    assert_eq!(memory.store(PAGE, 1), fault(PAGE));
    assert_eq!(memory.write_tagged(PAGE, &[0; 16]), fault(PAGE));
    assert_eq!(memory.pieces(PAGE, 4, Way::ToHost, &mut Vec::new()), fault(PAGE));
    assert_eq!(memory.read(2 * PAGE - 2, &mut [0; 4]), fault(2 * PAGE));
    assert_eq!(memory.load(2 * PAGE).map(drop), fault(2 * PAGE));
    // What the one direction wrote, the other reads: it is the same page.
    memory.write(2 * PAGE + 8, b"shared").unwrap();
    let mut bytes = [0; 6];
    memory.read(PAGE + 8, &mut bytes).unwrap();
    assert_eq!(&bytes, b"shared");
    memory.store(2 * PAGE, 7).unwrap();
    assert_eq!(memory.load(PAGE), Ok(7));
    assert_eq!(memory.load(PAGE + 2).map(drop), fault(PAGE + 2), "not aligned");
    assert_eq!(memory.write_tagged(2 * PAGE + 8, &[0; 16]), fault(2 * PAGE + 8), "not aligned");
}

#[test]
fn pieces_keep_memory_that_is_not_mapped_any_more() {
    let mut memory = GuestMemory::new(4);
    insert(&mut memory, PAGE, 1).unwrap();
    insert(&mut memory, 2 * PAGE, 1).unwrap();
    let mut pieces = Vec::new();
    memory.pieces(2 * PAGE - 100, 300, Way::ToHost, &mut pieces).unwrap();
    assert_eq!(pieces.iter().map(SharedPiece::length).collect::<Vec<_>>(), [100, 200]);
    memory.clear();
    for piece in &pieces {
        piece.write(0, &[5; 400]);
        piece.clear(90, 1000);
    }
    let mut bytes = [1; 200];
    pieces[1].read(0, &mut bytes);
    assert!(bytes[..90] == [5; 90] && bytes[90..] == [0; 110]);
    let mut behind = [1; 4];
    pieces[0].read(98, &mut behind);
    assert_eq!(behind, [0, 0, 1, 1], "as far as it goes");
    assert!(memory.pieces(PAGE, 1, Way::FromHost, &mut pieces).is_err());
}

proptest! {
    /// Ranges come and go, and every byte is where a model has it.
    #[test]
    fn it_is_an_array_of_bytes_with_holes(
        acts in proptest::collection::vec((0_u8..8, 0_u64..12, 1_u64..4, 0_usize..9000, any::<u8>()), 1..60),
    ) {
        let mut memory = GuestMemory::new(6);
        let mut ranges: BTreeMap<u64, u64> = BTreeMap::new();
        let mut model: BTreeMap<u64, u8> = BTreeMap::new();
        for (act, page, pages, length, byte) in acts {
            let address = page * PAGE;
            let overlaps = ranges.iter().any(|(begin, count)| *begin < page + pages && page < begin + count);
            match act {
                0 | 1 => {
                    let inserted = insert(&mut memory, address, pages);
                    prop_assert_eq!(inserted.is_ok(), !overlaps && ranges.len() < 6);
                    if inserted.is_ok() {
                        ranges.insert(page, pages);
                        model.extend((address..address + pages * PAGE).map(|at| (at, 0)));
                    }
                }
                2 => {
                    let removed = memory.remove(address, pages * PAGE).is_ok();
                    prop_assert_eq!(removed, ranges.get(&page) == Some(&pages));
                    if removed {
                        ranges.remove(&page);
                        (address..address + pages * PAGE).for_each(|at| _ = model.remove(&at));
                    }
                }
                _ => {
                    let begin = address + u64::from(byte) * 7;
                    let all = begin..begin + length as u64;
                    let hole = all.clone().find(|at| !model.contains_key(at));
                    let expected = hole.map_or(Ok(()), |_| Err(()));
                    if act < 5 {
                        let written = memory.write(begin, &vec![byte; length]);
                        prop_assert_eq!(written.map_err(drop), expected);
                        // Up to the hole, or less.
                        if hole.is_none() {
                            model.extend(all.map(|at| (at, byte)));
                        } else {
                            let mut now = vec![0; 1];
                            for at in all.filter(|at| model.contains_key(at)).collect::<Vec<_>>() {
                                memory.read(at, &mut now).unwrap();
                                model.insert(at, now[0]);
                            }
                        }
                    } else {
                        let mut bytes = vec![0; length];
                        prop_assert_eq!(memory.read(begin, &mut bytes).map_err(drop), expected);
                        if hole.is_none() {
                            prop_assert!(all.clone().zip(&bytes).all(|(at, byte)| model[&at] == *byte));
                        }
                        let mut pieces = Vec::new();
                        prop_assert_eq!(memory.pieces(begin, length, Way::FromHost, &mut pieces).map_err(drop), expected);
                        if hole.is_none() {
                            prop_assert_eq!(pieces.iter().map(SharedPiece::length).sum::<usize>(), length);
                        }
                    }
                }
            }
            prop_assert_eq!(memory.count(), ranges.len());
        }
    }
}
