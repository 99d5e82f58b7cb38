//! Inserted information passes the checks, and each wrong bit is detected by its check, unless the
//! tags disable checks.

extern crate std;

use std::vec;
use std::vec::Vec;

use super::*;
use proptest::prelude::*;

const ALL: u8 = prinfo::CHECK_GUARD | prinfo::CHECK_APPLICATION | prinfo::CHECK_REFERENCE;
const ACT: u8 = prinfo::ACTION;

fn tags(reference: u32, application: u16, application_mask: u16) -> Tags {
    Tags { storage_and_reference: reference.into(), application, application_mask, check_storage: false }
}

/// All checks of a type.
fn checks_of(kind: ProtectionType) -> u8 {
    if kind == ProtectionType::Type3 { ALL & !prinfo::CHECK_REFERENCE } else { ALL }
}

fn kinds() -> impl Strategy<Value = ProtectionType> {
    prop_oneof![Just(ProtectionType::Type1), Just(ProtectionType::Type2), Just(ProtectionType::Type3)]
}

/// Blocks of any data with room for their protection information, and the bytes of a block's data.
fn blocks() -> impl Strategy<Value = (Vec<u8>, usize)> {
    (1_usize..5, prop_oneof![Just(512_usize), Just(4096)]).prop_flat_map(|(count, data_bytes)| {
        let bytes = count * (data_bytes + INFORMATION_BYTES);
        (any::<[u8; 16]>().prop_map(move |seed| seed.into_iter().cycle().take(bytes).collect()), Just(data_bytes))
    })
}

#[test]
fn the_guard_is_that_of_t10() {
    assert_eq!(guard(b"123456789"), 0xd0db);
    assert_eq!((guard(&[0; 512]), guard(&[0; 4096])), (0, 0));
    // Two of the specification's test vectors for guards.
    let rising: Vec<u8> = (0..32).collect();
    assert_eq!((guard(&[0xff; 32]), guard(&rising)), (bitwise(&[0xff; 32]), bitwise(&rising)));
}

/// As the specification defines it, bit by bit.
fn bitwise(data: &[u8]) -> u16 {
    data.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| if crc & 0x8000 != 0 { crc << 1 ^ 0x8bb7 } else { crc << 1 })
    })
}

#[test]
fn protection_information_follows_the_data() {
    let rules = Rules::new(ProtectionType::Type1, ACT, 0x1_0203_0405, &tags(0, 0x0a0b, 0)).unwrap();
    let mut block = vec![0; 520];
    block[..9].copy_from_slice(b"123456789");
    rules.insert(&mut block, 512);
    let crc = bitwise(&block[..512]).to_be_bytes();
    assert_eq!(block[512..], [crc[0], crc[1], 0x0a, 0x0b, 0x02, 0x03, 0x04, 0x05]);
}

#[test]
fn reference_tags_follow_the_rules_of_each_type() {
    let of = |kind, slba, reference| {
        let rules = Rules::new(kind, ACT, slba, &tags(reference, 0, 0)).unwrap();
        let mut two = vec![0; 2 * 520];
        rules.insert(&mut two, 512);
        let tag = |at| Guard16::ref_from_bytes(&two[at..at + 8]).unwrap().reference_tag.get();
        (tag(512), tag(1032))
    };
    // With type 1 they are derived from the addresses, whatever the command says.
    assert_eq!(of(ProtectionType::Type1, 0x5_ffff_ffff, 7), (u32::MAX, 0));
    assert_eq!(of(ProtectionType::Type2, 0x5_ffff_ffff, 7), (7, 8));
    assert_eq!(of(ProtectionType::Type2, 0, u32::MAX), (u32::MAX, 0));
    assert_eq!(of(ProtectionType::Type3, 0x5_ffff_ffff, 7), (7, 7));
}

#[test]
fn contradictory_requests_are_invalid_protection_information() {
    let invalid = Err(Status::INVALID_PROTECTION_INFORMATION);
    let new = |kind, prinfo, slba, reference| Rules::new(kind, prinfo, slba, &tags(reference, 0, 0)).map(|_| ());
    let reference = prinfo::CHECK_REFERENCE;
    assert_eq!(new(ProtectionType::Type1, reference, 0x1_0000_0005, 5), Ok(()));
    assert_eq!(new(ProtectionType::Type1, reference, 0x1_0000_0005, 6), invalid);
    assert_eq!(new(ProtectionType::Type1, ACT | reference, 5, 6), invalid);
    assert_eq!(new(ProtectionType::Type1, ALL & !reference, 5, 6), Ok(()));
    assert_eq!(new(ProtectionType::Type2, ALL, 5, 6), Ok(()));
    assert_eq!(new(ProtectionType::Type3, ALL & !reference, 5, 6), Ok(()));
    assert_eq!(new(ProtectionType::Type3, reference, 5, 5), invalid);
    assert_eq!(new(ProtectionType::None, 0, 5, 6), Ok(()));
    for bit in 0..4 {
        assert_eq!(new(ProtectionType::None, 1 << bit, 5, 5), invalid);
    }
}

#[test]
fn blocks_with_escape_values_are_not_checked() {
    let mut block = vec![0x5a; 520];
    block[514..516].fill(0xff);
    let check =
        |kind, block: &[u8]| Rules::new(kind, checks_of(kind), 9, &tags(9, 1, 0xffff)).unwrap().check(block, 512);
    assert_eq!(check(ProtectionType::Type1, &block), Ok(()));
    assert_eq!(check(ProtectionType::Type2, &block), Ok(()));
    assert_eq!(check(ProtectionType::Type3, &block), Err(Bad { block: 0, mismatch: Mismatch::Guard }));
    block[516..].fill(0xff);
    assert_eq!(check(ProtectionType::Type3, &block), Ok(()));
}

#[test]
fn the_guard_is_reported_before_the_application_tag_and_that_before_the_reference_tag() {
    let rules = Rules::new(ProtectionType::Type1, ALL, 3, &tags(3, 1, 0xffff)).unwrap();
    let mut block = vec![0; 520];
    let found = |block: &[u8]| rules.check(block, 512).unwrap_err().mismatch;
    block[0] = 1;
    assert_eq!(found(&block), Mismatch::Guard);
    block[0] = 0;
    assert_eq!(found(&block), Mismatch::Application);
    block[515] = 1;
    assert_eq!(found(&block), Mismatch::Reference);
    block[519] = 3;
    assert_eq!(rules.check(&block, 512), Ok(()));
}

proptest! {
    #[test]
    fn inserted_information_passes_the_checks(
        kind in kinds(),
        (mut blocks, data_bytes) in blocks(),
        slba: u64,
        reference: u32,
        application: u16,
        mask: u16,
    ) {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
        let reference = if kind == ProtectionType::Type1 { slba as u32 } else { reference };
        let tags = tags(reference, application, mask);
        let data = blocks.clone();
        Rules::new(kind, ACT, slba, &tags).unwrap().insert(&mut blocks, data_bytes);
        let rules = Rules::new(kind, checks_of(kind), slba, &tags).unwrap();
        prop_assert_eq!(rules.check(&blocks, data_bytes), Ok(()));
        prop_assert!(same_data(&blocks, &data, data_bytes));
        // From any block on.
        let block_bytes = data_bytes + INFORMATION_BYTES;
        let last = blocks.len() / block_bytes - 1;
        prop_assert_eq!(rules.after(last as u64).check(&blocks[last * block_bytes..], data_bytes), Ok(()));
    }

    #[test]
    fn each_flipped_bit_is_detected_by_its_check_only(
        kind in kinds(),
        (mut blocks, data_bytes) in blocks(),
        reference: u32,
        application in 0..u16::MAX - 1,
        block in any::<prop::sample::Index>(),
        bit in any::<prop::sample::Index>(),
    ) {
        let tags = tags(reference, application, u16::MAX);
        let slba = u64::from(reference);
        Rules::new(kind, ACT, slba, &tags).unwrap().insert(&mut blocks, data_bytes);
        let block_bytes = data_bytes + INFORMATION_BYTES;
        let block = block.index(blocks.len() / block_bytes);
        let bit = bit.index(block_bytes * 8);
        blocks[block * block_bytes + bit / 8] ^= 1 << (bit % 8);
        let (mismatch, check) = match (bit / 8).checked_sub(data_bytes) {
            None | Some(0 | 1) => (Mismatch::Guard, prinfo::CHECK_GUARD),
            Some(2 | 3) => (Mismatch::Application, prinfo::CHECK_APPLICATION),
            Some(_) => (Mismatch::Reference, prinfo::CHECK_REFERENCE),
        };
        // It may have become a tag that says that nothing is checked.
        let information = Guard16::ref_from_bytes(&blocks[block * block_bytes + data_bytes..][..8]).unwrap();
        let found = if information.escapes(kind) { Ok(()) } else { Err(Bad { block: block as u64, mismatch }) };
        for checks in 0..8 {
            if checks & !checks_of(kind) != 0 {
                continue;
            }
            let rules = Rules::new(kind, checks, slba, &tags).unwrap();
            let expected = if checks & check != 0 { found } else { Ok(()) };
            prop_assert_eq!(rules.check(&blocks, data_bytes), expected, "{:?} {:03b}", kind, checks);
        }
    }

    #[test]
    fn the_application_tag_is_compared_under_its_mask(application: u16, stored in 0..u16::MAX, mask: u16) {
        let mut block = vec![1; 520];
        Rules::new(ProtectionType::Type2, ACT, 0, &tags(0, stored, 0)).unwrap().insert(&mut block, 512);
        let rules = Rules::new(ProtectionType::Type2, prinfo::CHECK_APPLICATION, 0, &tags(0, application, mask)).unwrap();
        let same = application & mask == stored & mask;
        prop_assert_eq!(rules.check(&block, 512).is_ok(), same);
    }

    #[test]
    fn stripping_restores_the_data((mut blocks, data_bytes) in blocks()) {
        let whole = blocks.clone();
        let length = strip(&mut blocks, data_bytes);
        let together: Vec<u8> =
            whole.chunks_exact(data_bytes + INFORMATION_BYTES).flat_map(|block| &block[..data_bytes]).copied().collect();
        prop_assert_eq!(&blocks[..length], &together[..]);
        blocks[length..].fill(0);
        spread(&mut blocks, data_bytes);
        prop_assert!(same_data(&blocks, &whole, data_bytes));
    }

    #[test]
    fn write_zeroes_sets_information_as_inserting_does(kind in kinds(), (mut blocks, data_bytes) in blocks(), slba: u64, reference: u32) {
        let tags = tags(reference, 5, 0);
        let mut expected = vec![0; blocks.len()];
        Rules::new(kind, 0, slba, &tags).unwrap().write_zeroes(&mut blocks, data_bytes);
        prop_assert_eq!(&blocks, &expected);
        let rules = Rules::new(kind, ACT, slba, &tags).unwrap();
        rules.insert(&mut expected, data_bytes);
        rules.write_zeroes(&mut blocks, data_bytes);
        prop_assert_eq!(&blocks, &expected);
    }
}
