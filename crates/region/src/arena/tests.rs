//! Pieces: zero, of one owner, given back, in huge pages, and found in the files of an arena.

use super::*;
use crate::{MappingAccess, SharedMapping};

const PIECE: usize = 128 << 10;

fn mappings(arena: &Arena) -> Vec<(usize, usize)> {
    let mappings = arena.mappings.lock().unwrap();
    mappings.iter().map(|mapping| (mapping.bytes, mapping.lock().free.len())).collect()
}

#[test]
fn pieces_are_zero_aligned_and_do_not_overlap() {
    let arena = Arena::new(PIECE);
    let mut pieces: Vec<Pages> = (0..40).map(|_| arena.piece()).collect();
    for (byte, piece) in (1..).zip(&mut pieces) {
        assert!(piece.as_bytes().len() == PIECE && piece.as_bytes().iter().all(|byte| *byte == 0));
        assert!(piece.mapping.is_some() && piece.as_bytes().as_ptr().align_offset(PAGE_BYTES) == 0);
        piece.as_mut_bytes().fill(byte);
    }
    assert!((1..).zip(&pieces).all(|(byte, piece)| piece.as_bytes() == [byte; PIECE]));
    assert_eq!(pieces[0].as_bytes().as_ptr().align_offset(HUGE_BYTES), 0, "and lie in huge pages");
    // One after the other, as they are taken.
    assert_eq!(pieces[1].as_bytes().as_ptr(), pieces[0].as_bytes().as_ptr_range().end);
    // Twice as many as before, each time.
    assert_eq!(mappings(&arena), [(HUGE_BYTES, 0), (HUGE_BYTES, 0), (2 * HUGE_BYTES, 24)]);
}

#[test]
fn a_freed_piece_is_given_back_and_reads_as_zeros() {
    let arena = Arena::new(PIECE);
    let mut pieces: Vec<Pages> = (0..16).map(|_| arena.piece()).collect();
    pieces.iter_mut().for_each(|piece| piece.as_mut_bytes().fill(7));
    let address = pieces[5].as_bytes().as_ptr();
    drop(pieces.swap_remove(5));
    assert_eq!(mappings(&arena), [(HUGE_BYTES, 1)]);
    let again = arena.piece();
    assert_eq!(again.as_bytes().as_ptr(), address);
    assert!(again.as_bytes().iter().all(|byte| *byte == 0));
    assert!(pieces.iter().all(|piece| piece.as_bytes() == [7; PIECE]), "the others are as they were");
}

#[test]
fn parts_whose_pieces_are_all_taken_get_huge_pages_and_keep_their_bytes() {
    let arena = Arena::small_at_first(PIECE);
    let mut pieces: Vec<Pages> = (0..15).map(|_| arena.piece()).collect();
    assert!(!arena.has_full_parts() && arena.collapse().is_none(), "one piece is free");
    pieces.push(arena.piece());
    for (byte, piece) in (1..).zip(&mut pieces) {
        piece.as_mut_bytes().fill(byte);
    }
    assert!(arena.has_full_parts());
    match arena.collapse() {
        Some(Ok(())) => {}
        // An old kernel, or one without huge pages.
        Some(Err(refused)) => assert!(matches!(refused, Errno::INVAL | Errno::NOMEM | Errno::AGAIN), "{refused}"),
        None => panic!("nothing to do"),
    }
    assert!((1..).zip(&pieces).all(|(byte, piece)| piece.as_bytes() == [byte; PIECE]));
    assert!(arena.collapse().is_none(), "once");
    pieces.truncate(15);
    pieces.push(arena.piece());
    assert!(pieces[15].as_bytes().iter().all(|byte| *byte == 0), "a part of a huge page is given back");
    assert!(arena.has_full_parts(), "and the rest needs another one");
    pieces.truncate(15);
    assert!(arena.collapse().is_none(), "which it does not get while a piece is free");
}

fn byte(piece: usize) -> u8 {
    u8::try_from(piece % 251 + 1).unwrap()
}

#[test]
fn pieces_in_files_are_found_by_their_place_when_nobody_has_them_any_more() {
    let arena = Arena::small_in_files(PIECE);
    let mut pieces: Vec<Pages> = (0..40).map(|_| arena.piece()).collect();
    for (number, piece) in pieces.iter_mut().enumerate() {
        assert!(piece.as_bytes().iter().all(|byte| *byte == 0));
        piece.as_mut_bytes().fill(byte(number));
    }
    while let Some(collapsed) = arena.collapse() {
        // Refused by an old kernel, or one without huge pages.
        let is_known = |refused| matches!(refused, Errno::INVAL | Errno::NOMEM | Errno::AGAIN | Errno::BUSY);
        assert!(collapsed.map_or_else(is_known, |()| true), "{collapsed:?}");
    }
    // One that is freed reads as zeros, with a huge page below it, too.
    drop(pieces.remove(3));
    let again = arena.piece();
    assert!(again.as_bytes().iter().all(|byte| *byte == 0));
    pieces.insert(3, again);
    let freed = arena.give_up(pieces.pop().unwrap()).unwrap();
    drop(pieces.pop());
    let last = pieces.pop().unwrap();
    let places: Vec<ChunkPlace> = pieces.into_iter().map(|piece| arena.give_up(piece).unwrap()).collect();
    let arena = arena.into_files().expect_err("a piece has an owner");
    drop(last);
    let files = arena.into_files().unwrap();
    assert_eq!(files.iter().map(|file| file.bytes).collect::<Vec<_>>(), [HUGE_BYTES, HUGE_BYTES, 2 * HUGE_BYTES]);
    // As another process maps them, which has descriptors and places only.
    let map = |file: &ArenaFile| {
        SharedMapping::map(&file.file, 0, file.bytes as u64, MappingAccess::ALL).expect("it is sealed")
    };
    let mappings: Vec<_> = files.iter().map(map).collect();
    let read = |place: ChunkPlace| {
        let mut bytes = vec![0xEE; PIECE];
        mappings[place.file as usize].read(place.piece as usize * PIECE, &mut bytes).unwrap();
        bytes
    };
    for (number, place) in places.iter().enumerate() {
        let expected = if number == 3 { 0 } else { byte(number) };
        assert!(read(*place) == [expected; PIECE], "{number} at {place:?}");
    }
    assert!(read(freed) == [byte(39); PIECE]);
    assert!(read(ChunkPlace { file: 0, piece: 3 }) == [0; PIECE], "it was freed, and not taken again");
    for piece in [37, 38] {
        assert!(read(ChunkPlace { file: 2, piece: piece - 32 }) == [0; PIECE], "{piece} was freed");
    }
    assert_eq!(rustix::fs::ftruncate(&files[0].file, 4096), Err(Errno::PERM));
}

#[test]
fn pieces_of_others_have_no_place() {
    let arena = Arena::small_at_first(PIECE);
    let piece = arena.piece();
    assert!(!arena.keeps(&piece));
    drop(arena.give_up(piece).expect_err("it is in no file"));
    let (one, other) = (Arena::small_in_files(PIECE), Arena::small_in_files(PIECE));
    let piece = other.give_up(one.piece()).expect_err("it is in a file of the other");
    assert!(one.keeps(&piece) && !one.keeps(&Pages::zeroed(PIECE / PAGE_BYTES)));
    drop(piece);
    assert!(arena.into_files().unwrap().is_empty());
}

#[test]
fn a_piece_outlives_its_source_on_any_thread() {
    let arena = Arena::new(PIECE);
    let mut piece = arena.piece();
    piece.as_mut_bytes().fill(9);
    drop(arena);
    std::thread::spawn(move || assert_eq!(piece.as_bytes(), [9; PIECE])).join().unwrap();
}

#[test]
fn threads_take_and_free_pieces_at_the_same_time() {
    let arena = Arena::new(PIECE);
    std::thread::scope(|scope| {
        for byte in 1..=4 {
            let arena = &arena;
            scope.spawn(move || {
                for _ in 0..50 {
                    let mut pieces: Vec<Pages> = (0..5).map(|_| arena.piece()).collect();
                    assert!(pieces.iter().all(|piece| piece.as_bytes().iter().all(|found| *found == 0)));
                    pieces.iter_mut().for_each(|piece| piece.as_mut_bytes().fill(byte));
                    assert!(pieces.iter().all(|piece| piece.as_bytes() == [byte; PIECE]));
                }
            });
        }
    });
    assert!(mappings(&arena).iter().all(|(bytes, free)| *free == bytes / PIECE));
}
