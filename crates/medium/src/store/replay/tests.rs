//! Records with any numbers in them, and right checksums, as somebody might make them who wants to
//! harm whoever opens the drive.

use std::sync::Arc;

use ebof_backend::{Buffer, Device, Memory, Operation};
use ebof_drive::BlockFormat;
use ebof_drive::frame::Record;
use ebof_drive::layout::Layout;
use ebof_drive::tag::Tag;
use proptest::prelude::*;

use crate::disk::Disk;
use crate::error::damage::{Damage, Part};
use crate::journal::Journal;
use crate::journal::found::{Found, Lost};
use crate::{OpenError, Options, Store, VolumeId};

const BLOCK: usize = 4096;
/// More than two extents, with 63 blocks each.
const BLOCKS: u64 = 150;

/// A drive with one namespace and two of its extents, and then with these records, which are in its
/// journal or `behind_damage`.
fn restored(records: Vec<Record>, behind_damage: bool) -> Result<Store, OpenError> {
    if behind_damage { restored_from(Vec::new(), Some(records)) } else { restored_from(records, None) }
}

fn restored_from(before: Vec<Record>, later: Option<Vec<Record>>) -> Result<Store, OpenError> {
    let layout = Layout::new(4 << 20, [3; 16]).unwrap();
    let base: Arc<dyn Device> = Arc::new(Memory::new(layout.medium_bytes(), 512, false));
    let options = Options::default();
    let disk = Disk::new(base, &options.io, &options.clock).unwrap();
    let volume = VolumeId(1);
    let block_format = BlockFormat { checked: true, ..BlockFormat::plain(12) };
    let create = Record::Create { volume, blocks: BLOCKS, quota: 9, block_format };
    let map = Record::Map { volume, first: 0, extents: vec![4, 5] };
    let begin = [Record::HighWater(8), create, map].map(|record| (None, record));
    let damage = Damage::Checkpoint { generation: 1, at: 0, part: Part::Header };
    let found = Found {
        layout,
        journal: Journal::new(layout, 1, 1),
        state: Vec::new(),
        records: begin.into_iter().chain(before.into_iter().map(|record| (Some(0), record))).collect(),
        changes: Vec::new(),
        was_clean: false,
        created: false,
        mended: None,
        lost: later.map(|later| Lost { damage, later, several: false }),
    };
    Store::restore(disk, found, &options)
}

/// Reads each block, and does what an open drive does.
fn live(mut store: Store) {
    let _pending = (store.needs_maintenance(), store.order.tags.has_unresolved());
    for block in 0..BLOCKS {
        let operation = Operation::Read { offset: block * 4096, len: BLOCK, data: Buffer::zeroed(BLOCK).into() };
        let _read = store.execute(VolumeId(1), operation).result;
        let operation =
            Operation::Write { offset: block * 4096, len: BLOCK, data: Buffer::zeroed(BLOCK).into(), fua: false };
        let _written = store.execute(VolumeId(1), operation).result;
    }
    let _refused =
        (store.maintain(), store.order.settle_all(), store.order.checkpoint(false), store.order.checkpoint(true));
}

#[test]
fn records_that_begin_at_the_end_of_all_numbers_are_no_panic() {
    let volume = VolumeId(1);
    let all = [
        Record::Flux { volume, first: u64::MAX, blocks: [u64::MAX; 4] },
        Record::Flux { volume, first: u64::MAX - 3, blocks: [0x10, 0, 0, 0] },
        Record::Tags { volume, first: u64::MAX, tags: vec![Tag::LOST] },
        Record::OnlyTags { volume, first: u64::MAX - 1, tags: vec![Tag::LOST; 3] },
        Record::Map { volume, first: u32::MAX, extents: vec![2] },
        Record::Unmap { volume, first: u32::MAX, count: u32::MAX },
        Record::Bad { volume, start: u64::MAX - 1, blocks: u64::MAX, bad: true },
    ];
    for record in all {
        let is_refused = !matches!(record, Record::Unmap { .. } | Record::Bad { .. });
        let what = format!("{record:?}");
        assert_eq!(restored(vec![record.clone()], false).map(live).is_err(), is_refused, "{what}");
        assert!(restored(vec![record], true).map(live).is_ok(), "{what}");
    }
}

/// A drive maps no extent above its high-water mark; a medium may say that it did.
#[test]
fn an_extent_that_is_mapped_above_the_mark_is_not_given_away() {
    let map = Record::Map { volume: VolumeId(1), first: 2, extents: vec![12] };
    let mut store = restored(vec![map.clone()], false).unwrap();
    let extents = &mut store.order.extents;
    assert_eq!((extents.high_water(), extents.unclean(), extents.given_back_bytes()), (8, 6, 0));
    assert!(!extents.are_ready(1));
    extents.raise(16);
    assert!(extents.are_ready(7) && !extents.are_ready(8));
    assert_eq!(std::iter::from_fn(|| extents.take()).collect::<Vec<_>>(), [8, 9, 10, 11, 13, 14, 15]);
    restored(vec![map], false).map(live).unwrap();
}

/// A mark is about the blocks of one page of tags.
#[test]
fn blocks_beyond_their_page_are_not_in_flux() {
    let volume = VolumeId(1);
    let in_flux = |first, blocks, behind_damage| {
        let store = restored(vec![Record::Flux { volume, first, blocks }], behind_damage).ok()?;
        Some(store.order.tags.ambiguous().map(|(_, mask)| mask.count()).sum::<usize>())
    };
    // The second extent has blocks 63 to 125, the third one only 126 to 149.
    for (first, blocks, expected) in [
        (0, [u64::MAX >> 1, 0, 0, 0], Some(63)),
        (63, [1, 0, 0, 0], Some(1)),
        (126, [0xff_ffff, 0, 0, 0], Some(24)),
        (0, [1 << 63, 0, 0, 0], None),
        (0, [0, 0, 0, 1 << 63], None),
        (126, [1 << 24, 0, 0, 0], None),
        (1, [1, 0, 0, 0], None),
        (BLOCKS, [0; 4], None),
    ] {
        assert_eq!(in_flux(first, blocks, false), expected, "{blocks:?} from {first} on");
        assert_eq!(in_flux(first, blocks, true), expected.or(Some(0)), "{blocks:?} from {first} on, behind damage");
    }
}

/// Nothing of what they would add is there.
#[test]
fn records_behind_damage_only_take_away() {
    let volume = VolumeId(1);
    let after = |record| {
        let thin = restored(vec![record], true).unwrap().thin(volume).unwrap();
        (thin.allocated_extents(), thin.bad_ranges(&(0..BLOCKS), 9))
    };
    let bad = |bad| Record::Bad { volume, start: 3, blocks: 2, bad };
    assert_eq!(after(bad(true)), (2, std::iter::once(3..5).collect()));
    for (record, extents) in [
        (bad(false), 2),
        (Record::Map { volume, first: 2, extents: vec![6] }, 2),
        (Record::Map { volume, first: 2, extents: vec![5] }, 1),
        (Record::Map { volume: VolumeId(7), first: 9, extents: vec![5, 4] }, 0),
        (Record::Unmap { volume, first: 1, count: 1 }, 1),
        (Record::Unmap { volume, first: 2, count: 1 }, 2),
        (Record::Clear(volume), 0),
        (Record::Remove(volume), 0),
        (Record::Remove(VolumeId(2)), 2),
    ] {
        assert_eq!(after(record.clone()), (extents, Vec::new()), "{record:?}");
    }
}

/// Its key was destroyed when it was removed; only of a damaged drive the record of that may be
/// lost.
#[test]
fn a_namespace_without_its_key_is_refused_or_gone() {
    let block_format = BlockFormat { checked: true, encrypted: true, ..BlockFormat::plain(12) };
    let create = Record::Create { volume: VolumeId(2), blocks: BLOCKS, quota: 9, block_format };
    assert!(restored_from(vec![create.clone()], None).is_err());
    let store = restored_from(vec![create], Some(Vec::new())).unwrap();
    assert!(store.thin(VolumeId(1)).is_some() && store.thin(VolumeId(2)).is_none());
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..200_u64, (1_u64 << 32) - 3..(1 << 32) + 3, u64::MAX - 300..=u64::MAX, any::<u64>()]
}

fn short() -> impl Strategy<Value = u32> {
    prop_oneof![0..20_u32, u32::MAX - 3..=u32::MAX, any::<u32>()]
}

fn record() -> impl Strategy<Value = Record> {
    let volume = || prop_oneof![4 => Just(1), 1 => 0..4_u64].prop_map(VolumeId);
    let tags = || proptest::collection::vec(any::<[u8; 16]>().prop_map(Tag), 0..4);
    let mask = [number(), number(), number(), number()];
    prop_oneof![
        (volume(), number(), short(), any::<bool>(), any::<bool>()).prop_map(
            |(volume, blocks, quota, checked, encrypted)| {
                let block_format =
                    BlockFormat { checked, encrypted, ..BlockFormat::plain(if checked { 9 } else { 12 }) };
                Record::Create { volume, blocks, quota, block_format }
            }
        ),
        (volume(), short(), proptest::collection::vec(short(), 0..3))
            .prop_map(|(volume, first, extents)| Record::Map { volume, first, extents }),
        (volume(), short(), short()).prop_map(|(volume, first, count)| Record::Unmap { volume, first, count }),
        (volume(), number(), number(), any::<bool>()).prop_map(|(volume, start, blocks, bad)| Record::Bad {
            volume,
            start,
            blocks,
            bad
        }),
        (volume(), number(), tags()).prop_map(|(volume, first, tags)| Record::Tags { volume, first, tags }),
        (volume(), number(), tags()).prop_map(|(volume, first, tags)| Record::OnlyTags { volume, first, tags }),
        (volume(), prop_oneof![Just(0), Just(63), Just(126), number()], mask)
            .prop_map(|(volume, first, blocks)| Record::Flux { volume, first, blocks }),
        volume().prop_map(Record::Remove),
        volume().prop_map(Record::Clear),
        volume().prop_map(Record::Settled),
        short().prop_map(Record::HighWater),
    ]
}

proptest! {
    #[test]
    fn no_records_are_a_panic(records in proptest::collection::vec(record(), 1..8), behind_damage: bool) {
        let _refused = restored(records, behind_damage).map(live);
    }
}
