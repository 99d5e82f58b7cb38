//! Data pointers as hosts build them, good and hostile.

use ebof_nvme::{Sqe, Status};
use ebof_testkit::vfio::{HostMemory, descriptor, with_prps, with_sgl};
use ebof_vfio::Memory;
use ebof_vfio::pointer::{DESCRIPTORS_MAX, Piece, walk};
use proptest::prelude::*;

const PAGE: u32 = 4096;
const LIST: u64 = 0x80_0000;

fn pieces(sqe: &Sqe, length: u32, memory: &HostMemory) -> Result<Vec<Piece>, Status> {
    let mut pieces = Vec::new();
    walk(&sqe.data_pointer(), length, PAGE, memory, &mut pieces).map(|()| pieces)
}

fn prps(first: u64, second: u64, length: u32, memory: &HostMemory) -> Result<Vec<(u64, u32)>, Status> {
    pairs(pieces(&with_prps(1, first, second), length, memory))
}

fn pairs(pieces: Result<Vec<Piece>, Status>) -> Result<Vec<(u64, u32)>, Status> {
    pieces.map(|pieces| pieces.into_iter().map(|Piece { address, length }| (address, length)).collect())
}

fn sgl(identifier: u8, address: u64, length: u32, bytes: u32, memory: &HostMemory) -> Result<Vec<(u64, u32)>, Status> {
    pairs(pieces(&with_sgl(1, descriptor(identifier, address, length)), bytes, memory))
}

#[test]
fn one_and_two_entries() {
    let memory = HostMemory::default();
    assert_eq!(prps(0x1000, 0, 0, &memory), Ok(vec![]));
    assert_eq!(prps(0x1000, 0, 512, &memory), Ok(vec![(0x1000, 512)]));
    assert_eq!(prps(0x1000, 1, 4096, &memory), Ok(vec![(0x1000, 4096)]), "the second entry is not used");
    assert_eq!(prps(0x1e00, 0x5000, 1024, &memory), Ok(vec![(0x1e00, 512), (0x5000, 512)]));
    assert_eq!(prps(0x1e00, 0x2000, 4608, &memory), Ok(vec![(0x1e00, 4608)]), "adjacent");
    assert_eq!(prps(0x1002, 0, 512, &memory), Err(Status::PRP_OFFSET_INVALID.dnr()));
    assert_eq!(prps(0x1e00, 0x5200, 1024, &memory), Err(Status::PRP_OFFSET_INVALID.dnr()));
    // The end of a piece has to be an address.
    assert_eq!(prps(u64::MAX - 3, 0x1000, 8, &memory), Err(Status::DATA_TRANSFER_ERROR.dnr()));
    // Pages of another size.
    let mut pieces = Vec::new();
    let pointer = with_prps(1, 0x1000, 0).data_pointer();
    assert_eq!(walk(&pointer, 0xf000, 0x1_0000, &memory, &mut pieces), Ok(()));
    assert_eq!(pieces, [Piece { address: 0x1000, length: 0xf000 }]);
}

#[test]
fn a_list_goes_on_in_the_last_place_of_a_page_only_if_there_is_more() {
    let memory = HostMemory::default();
    memory.map(LIST, 3);
    // Two places are left in the list's first page.
    let list = LIST + 0xff0;
    memory.put_list(list, &[0x5000, 0x7000]);
    assert_eq!(prps(0x1000, list, 3 * PAGE, &memory), Ok(vec![(0x1000, PAGE), (0x5000, PAGE), (0x7000, PAGE)]));
    memory.put_list(list, &[0x5000, LIST + 0x2000]);
    memory.put_list(LIST + 0x2000, &[0x9000, 0xa000]);
    let expected = Ok(vec![(0x1000, PAGE), (0x5000, PAGE), (0x9000, 2 * PAGE - 512)]);
    assert_eq!(prps(0x1000, list, 4 * PAGE - 512, &memory), expected);
    memory.put_list(list, &[0x5000, LIST + 0x2008]);
    assert_eq!(prps(0x1000, list, 4 * PAGE, &memory), Err(Status::PRP_OFFSET_INVALID.dnr()));
    memory.put_list(list, &[0x5004, 0]);
    assert_eq!(prps(0x1000, list, 3 * PAGE, &memory), Err(Status::PRP_OFFSET_INVALID.dnr()));
    assert_eq!(prps(0x1000, list + 4, 3 * PAGE, &memory), Err(Status::PRP_OFFSET_INVALID.dnr()));
    assert_eq!(prps(0x1000, 0x10_0000, 3 * PAGE, &memory), Err(Status::DATA_TRANSFER_ERROR.dnr()));
    assert_eq!(prps(0x1000, u64::MAX - 7, 3 * PAGE, &memory), Err(Status::DATA_TRANSFER_ERROR.dnr()));
}

// @test limits.pointer-lists
#[test]
fn a_list_in_a_circle_ends_with_the_transfer() {
    let memory = HostMemory::default();
    memory.map(LIST, 1);
    // All places, the last one too, name the list itself.
    memory.put_list(LIST, &[LIST; 512]);
    let length = 64 << 20;
    let found = pieces(&with_prps(1, 0x1000, LIST), length, &memory).unwrap();
    assert_eq!(found.iter().map(|piece| u64::from(piece.length)).sum::<u64>(), u64::from(length));
    assert_eq!(found.len(), (length / PAGE) as usize);
    assert!(memory.read_bytes.get() < u64::from(length / PAGE) * 8 + 8 * 512);
    // One place on each page, at its end: it can only go on, and does so at the page's beginning.
    memory.read_bytes.set(0);
    assert!(pieces(&with_prps(1, 0x1000, LIST + 0xff8), length, &memory).is_ok());
    assert!(memory.read_bytes.get() < u64::from(length / PAGE) * 8 + 8 * 512);
}

#[test]
fn descriptors_of_an_sgl() {
    let memory = HostMemory::default();
    memory.map(LIST, 2);
    assert_eq!(sgl(0x00, 0x1003, 700, 700, &memory), Ok(vec![(0x1003, 700)]));
    assert_eq!(sgl(0x00, 0x1000, 512, 1024, &memory), Err(Status::DATA_SGL_LENGTH_INVALID.dnr()));
    assert_eq!(sgl(0x00, 0x1000, 1024, 512, &memory), Err(Status::DATA_SGL_LENGTH_INVALID.dnr()));
    assert_eq!(sgl(0x00, 0, 0, 512, &memory), Err(Status::DATA_SGL_LENGTH_INVALID.dnr()));
    assert_eq!(sgl(0x00, u64::MAX, 512, 512, &memory), Err(Status::DATA_TRANSFER_ERROR.dnr()));
    for identifier in [0x01, 0x10, 0x21, 0x31, 0x40, 0x4f, 0x5a, 0xf0] {
        assert_eq!(sgl(identifier, 0x1000, 512, 512, &memory), Err(Status::SGL_TYPE_INVALID.dnr()), "{identifier:#x}");
    }
    // A segment, whose last descriptor names the last one.
    let put = |at: u64, descriptors: &[(u8, u64, u32)]| {
        for (number, &(identifier, address, length)) in (0..).zip(descriptors) {
            let descriptor = descriptor(identifier, address, length);
            memory.write(at + number * 16, zerocopy::IntoBytes::as_bytes(&descriptor)).unwrap();
        }
    };
    put(LIST, &[(0, 0x1000, 100), (0, 0, 0), (0, 0x1064, 28), (0x30, LIST + 0x1000, 32)]);
    put(LIST + 0x1000, &[(0, 0x9000, 384), (0, 0x5000, 512)]);
    let expected = Ok(vec![(0x1000, 128), (0x9000, 384), (0x5000, 512)]);
    assert_eq!(sgl(0x20, LIST, 64, 1024, &memory), expected);
    let invalid = Err(Status::INVALID_SGL_SEGMENT.dnr());
    // Another segment in the middle, behind a last one, or missing.
    assert_eq!(sgl(0x30, LIST, 64, 1024, &memory), invalid);
    assert_eq!(sgl(0x20, LIST, 48, 128, &memory), invalid);
    put(LIST, &[(0x20, LIST + 0x1000, 32), (0x30, LIST + 0x1000, 32)]);
    assert_eq!(sgl(0x20, LIST, 32, 896, &memory), invalid);
    // No whole descriptors, none, or none that can be read.
    for (address, length) in [(LIST, 24), (LIST, 0), (LIST + 4, 16)] {
        assert_eq!(sgl(0x30, address, length, 512, &memory), invalid, "{address:#x} {length}");
    }
    assert_eq!(sgl(0x30, 0x1000, 16, 512, &memory), Err(Status::DATA_TRANSFER_ERROR.dnr()));
    assert_eq!(sgl(0x30, u64::MAX - 7, 32, 512, &memory), Err(Status::DATA_TRANSFER_ERROR.dnr()));
    assert_eq!(sgl(0x30, LIST, 0xffff_fff0, 512, &memory), Err(Status::INVALID_SGL_COUNT.dnr()));
}

/// Behind the last entry of a list, and the last descriptor of a segment, may be anything.
#[test]
fn nothing_counts_behind_a_list_or_a_segment() {
    let memory = HostMemory::default();
    memory.map(LIST, 5);
    for count in [2, 63, 64, 65, 128, 511, 512] {
        let entries: Vec<u64> = (0..count).map(|number| 0x10_0000 + number * 0x2000).collect();
        memory.put_list(LIST, &[&entries[..], &[0xdead_beef; 70]].concat());
        let pages = entries.iter().map(|&entry| (entry, PAGE));
        let length = (u32::try_from(count).unwrap() + 1) * PAGE;
        let expected: Vec<_> = std::iter::once((0x1000, PAGE)).chain(pages).collect();
        assert_eq!(prps(0x1000, LIST, length, &memory), Ok(expected), "{count} entries");
    }
    for count in [1, 31, 32, 33, 65, DESCRIPTORS_MAX] {
        let expected: Vec<_> = (0..count).map(|number| (0x1000 + u64::from(number) * 32, 16)).collect();
        let data = expected.iter().map(|&(address, length)| descriptor(0, address, length));
        let behind = [descriptor(0xf0, u64::MAX, u32::MAX); 8];
        for (number, descriptor) in (0..).zip(data.chain(behind)) {
            memory.write(LIST + number * 16, zerocopy::IntoBytes::as_bytes(&descriptor)).unwrap();
        }
        assert_eq!(sgl(0x30, LIST, count * 16, count * 16, &memory), Ok(expected), "{count} descriptors");
    }
    let one_more = (DESCRIPTORS_MAX + 1) * 16;
    assert_eq!(sgl(0x30, LIST, one_more, one_more, &memory), Err(Status::INVALID_SGL_COUNT.dnr()));
}

// @test limits.pointer-lists
#[test]
fn segments_in_a_circle_end() {
    let memory = HostMemory::default();
    memory.map(LIST, 1);
    let segment = descriptor(0x20, LIST, 16);
    memory.write(LIST, zerocopy::IntoBytes::as_bytes(&segment)).unwrap();
    assert_eq!(sgl(0x20, LIST, 16, 512, &memory), Err(Status::INVALID_SGL_COUNT.dnr()));
    assert!(memory.read_bytes.get() <= u64::from(DESCRIPTORS_MAX) * 16);
}

proptest! {
    /// Pages anywhere: the bytes of the pieces are those that the host described, in order.
    #[test]
    fn prps_describe_the_transfer(
        pages in proptest::collection::vec(1_u64..40, 1..1200),
        offset in 0_u32..1024,
        cut in 0_u32..4096,
        at in 0_u64..512,
    ) {
        let memory = HostMemory::default();
        memory.map(LIST, 8);
        let address = |page: u64| page * u64::from(PAGE);
        let offset = offset * 4;
        let count = u32::try_from(pages.len()).unwrap();
        let whole = count * PAGE - offset;
        let length = whole - cut.min(whole.min(PAGE) - 1).min(if count == 1 { whole - 1 } else { PAGE - 1 });
        // The list begins somewhere in a page, and goes on in the pages behind it.
        let mut place = LIST + at * 8;
        let entries = &pages[1..];
        for (number, page) in entries.iter().enumerate() {
            let is_last_place = place % 4096 == 4088;
            if is_last_place && number + 1 < entries.len() {
                memory.put_list(place, &[place + 8]);
                place += 8;
            }
            memory.put_list(place, &[address(*page)]);
            place += 8;
        }
        let second = match entries {
            [] => 0,
            [one] => address(*one),
            _ => LIST + at * 8,
        };
        let first = address(pages[0]) + u64::from(offset);
        let found = pieces(&with_prps(2, first, second), length, &memory).unwrap();
        let described = pages.iter().enumerate().flat_map(|(number, page)| {
            let begin = if number == 0 { u64::from(offset) } else { 0 };
            (begin..4096).step_by(4).map(move |at| address(*page) + at)
        });
        let words = found.iter().flat_map(|piece| (0..u64::from(piece.length)).step_by(4).map(move |at| piece.address + at));
        prop_assert_eq!(found.iter().map(|piece| piece.length).sum::<u32>(), length);
        if length.is_multiple_of(4) {
            prop_assert!(words.eq(described.take(length as usize / 4)));
        }
        prop_assert!(found.windows(2).all(|two| two[0].address + u64::from(two[0].length) != two[1].address), "merged");
    }

    /// Whatever is in memory and in the command: the walk ends, with pieces of just the transfer or
    /// a status, and little is read.
    // @test limits.pointer-lists
    #[test]
    fn any_pointer_ends(
        words in proptest::collection::vec(prop_oneof![Just(LIST), (0_u64..0x2000).prop_map(|at| LIST + at), any::<u64>()], 1..64),
        identifiers in proptest::collection::vec(prop_oneof![Just(0_u8), Just(0x20), Just(0x30), any::<u8>()], 1..16),
        first: u64,
        second in prop_oneof![Just(LIST), (0_u64..0x2000).prop_map(|at| LIST + at), any::<u64>()],
        is_sgl: bool,
        length in 0_u32..(4 << 20),
    ) {
        let memory = HostMemory::default();
        memory.map(LIST, 2);
        let all: Vec<u64> = words.iter().copied().cycle().take(1024).collect();
        memory.put_list(LIST, &all);
        for (number, identifier) in (0..512).zip(identifiers.iter().cycle()) {
            if is_sgl {
                memory.write(LIST + number * 16 + 15, &[*identifier]).unwrap();
                memory.write(LIST + number * 16 + 10, &[0, 0]).unwrap();
            }
        }
        let sqe = if is_sgl {
            with_sgl(2, descriptor(identifiers[0], second, length & 0xfff0))
        } else {
            with_prps(2, first & !3, second)
        };
        if let Ok(found) = pieces(&sqe, length, &memory) {
            prop_assert_eq!(found.iter().map(|piece| u64::from(piece.length)).sum::<u64>(), u64::from(length));
            prop_assert!(found.iter().all(|piece| piece.length > 0 && piece.address.checked_add(piece.length.into()).is_some()));
        }
        prop_assert!(memory.read_bytes.get() <= u64::from(length / PAGE) * 8 + 3 * 8 * 512 + u64::from(DESCRIPTORS_MAX) * 16);
    }
}
