//! Whether a checkpoint has room for the largest of everything that is in it. Tests only.

use ebof_drive::block_format::TAGS_PER_PAGE;
use ebof_drive::budget::STATE_BYTES_MAX;
use ebof_drive::frame::{Checkpoint, FRAME_BYTES, Record, Series};
use ebof_drive::layout::{EXTENTS_MAX, Layout};
use ebof_drive::tag::Tag;

use crate::pages::FLUX_PAGES_MAX;
use crate::store::NAMESPACES_MAX;
use crate::tags::{UNRESOLVED_MAX, UNWRITTEN_PAGES_MAX};
use crate::thin::bad_blocks::BadBlocks;
use crate::{BlockFormat, VolumeId};

/// A checkpoint with as much of everything as there can be: extents of which no two are contiguous,
/// ranges of bad blocks that were split, tags of unresolved blocks.
fn largest(extents: u32) -> Checkpoint {
    let volume = VolumeId(u64::MAX);
    let tags = |first, count| Record::Tags { volume, first, tags: vec![Tag([0xfe; 16]); count] };
    let bad = |start| Record::Bad { volume, start, blocks: 1, bad: true };
    let create = |blocks| Record::Create { volume, blocks, quota: u32::MAX, block_format: BlockFormat::plain(9) };
    let mut records = vec![Record::HighWater(u32::MAX)];
    records.extend((0..NAMESPACES_MAX as u64).map(create));
    records.extend((0..extents).map(|extent| Record::Map { volume, first: extent, extents: vec![extent] }));
    records.extend((0..2 * BadBlocks::MAX as u64).map(bad));
    // A frame has no room for all tags of a page.
    let page = usize::try_from(TAGS_PER_PAGE).unwrap();
    records.extend((0..UNWRITTEN_PAGES_MAX as u64).flat_map(|at| [tags(at, 250), tags(at + 250, page - 250)]));
    records.extend((0..UNRESOLVED_MAX as u64).map(|block| tags(block, 1)));
    let flux = |page: u64| Record::Flux { volume, first: page, blocks: [u64::MAX; 4] };
    // Those that were found when the drive was opened, and new ones.
    records.extend((0..2 * FLUX_PAGES_MAX as u64).map(flux));
    Checkpoint { state: vec![b'x'; STATE_BYTES_MAX], records, clean: true }
}

// @test data.checkpoint-room
#[test]
fn a_checkpoint_has_room_for_the_largest_state() {
    for capacity in [1 << 20, 1 << 30, 40 << 30, (EXTENTS_MAX / 8) * (256 << 10)] {
        let layout = Layout::new(capacity, [3; 16]).unwrap();
        let checkpoint = largest(layout.extents());
        let (header, body) = checkpoint.encode(Series { id: layout.id, generation: 7 }, 1, Some(7));
        let bytes = (header.len() + body.len()) as u64;
        assert_eq!(header.len(), FRAME_BYTES);
        assert!(bytes <= layout.checkpoint_bytes(), "{bytes} of {} for {capacity}", layout.checkpoint_bytes());
        let header = Checkpoint::header(layout.id, &header).unwrap();
        assert!(Checkpoint::decode(&header, &body) == Some(checkpoint), "it is not what was written");
    }
}
