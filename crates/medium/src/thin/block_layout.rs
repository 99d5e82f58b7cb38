//! Where the blocks of a namespace are: which extent has them, and the offsets of their data and
//! tags in it.

use std::ops::Range;

use ebof_drive::BlockFormat;
use ebof_drive::block_format::{TAG_PAGE_BYTES, TAGS_PER_PAGE};

/// The layout of a namespace's blocks in its extents. It never changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLayout {
    /// Blocks of an extent.
    pub(crate) blocks: u64,
    /// Bytes of the namespace that an extent holds.
    pub(crate) span_bytes: u64,
    /// Bytes of a block, without its metadata.
    pub(crate) data_bytes: u64,
    /// Bytes of a block, with its metadata.
    pub(crate) block_bytes: u64,
    /// Offset of the pages of tags in an extent.
    pub(crate) tags_offset: u64,
    /// Bytes of the pages of tags of an extent.
    pub(crate) tags_bytes: u64,
}

impl BlockLayout {
    /// `None`: no block fits into an extent.
    pub(crate) fn new(block_format: BlockFormat, extent_bytes: u64) -> Option<Self> {
        let blocks = block_format.blocks_per_extent(extent_bytes);
        let data_bytes = block_format.data_bytes();
        let block_bytes = block_format.block_bytes();
        let (tags_offset, tags_bytes) = block_format.tags(extent_bytes).unwrap_or((extent_bytes, 0));
        let span_bytes = blocks * block_bytes;
        (blocks > 0).then_some(Self { blocks, span_bytes, data_bytes, block_bytes, tags_offset, tags_bytes })
    }

    /// Index of the extent that holds a block.
    pub(crate) fn index(&self, block: u64) -> u32 {
        u32::try_from(block / self.blocks).unwrap_or(u32::MAX)
    }

    /// The blocks of a range of extents, by index.
    pub(crate) fn blocks_of(&self, extents: Range<u32>) -> Range<u64> {
        u64::from(extents.start) * self.blocks..u64::from(extents.end) * self.blocks
    }

    /// Splits a range of blocks into pieces of at most `most` blocks, each in one extent.
    pub(crate) fn pieces(&self, blocks: Range<u64>, most: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let per_extent = self.blocks;
        let mut at = blocks.start;
        std::iter::from_fn(move || {
            let begin = at;
            at = ((begin / per_extent + 1).saturating_mul(per_extent)).min(blocks.end).min(begin.saturating_add(most));
            (begin < at).then_some(begin..at)
        })
    }

    /// Offset of the data of a block in its extent.
    pub(crate) fn data(&self, block: u64) -> u64 {
        block % self.blocks * self.data_bytes
    }

    /// Number of the page in its extent that has the tag of a block.
    pub(crate) fn page(&self, block: u64) -> u64 {
        block % self.blocks / TAGS_PER_PAGE
    }

    /// Offset of page `page` in an extent.
    pub(crate) fn page_at(&self, page: u64) -> u64 {
        self.tags_offset + page * TAG_PAGE_BYTES
    }

    /// The place of a block's tag in its page.
    pub(crate) fn place(&self, block: u64) -> usize {
        usize::try_from(block % self.blocks % TAGS_PER_PAGE).expect("less than a page")
    }

    /// The blocks whose tags are in page `page` of extent `index`.
    pub(crate) fn tagged(&self, index: u32, page: u64) -> Range<u64> {
        let first = u64::from(index) * self.blocks + page * TAGS_PER_PAGE;
        first..(first + TAGS_PER_PAGE).min((u64::from(index) + 1) * self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_block_has_bytes_and_a_tag_of_its_own() {
        for (block_shift, metadata_bytes) in [(9, 0), (9, 8), (12, 0), (12, 8)] {
            let block_format = BlockFormat { metadata_bytes, checked: true, ..BlockFormat::plain(block_shift) };
            let extent_bytes = 256 << 10;
            let block_layout = BlockLayout::new(block_format, extent_bytes).unwrap();
            let mut tags = BTreeSet::new();
            for block in 0..3 * block_layout.blocks {
                let (index, page, tag) =
                    (block_layout.index(block), block_layout.page(block), block_layout.place(block));
                assert!(block_layout.data(block) + block_layout.data_bytes <= block_layout.tags_offset && tag < 255);
                assert!(
                    block_layout.page_at(page) + 4096 <= extent_bytes
                        && block_layout.tagged(index, page).contains(&block)
                );
                assert!(block_layout.blocks_of(index..index + 1).contains(&block) && tags.insert((index, page, tag)));
            }
            let pieces: Vec<_> = block_layout.pieces(1..3 * block_layout.blocks, 100).collect();
            assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(pieces.iter().all(|piece| block_layout.index(piece.start) == block_layout.index(piece.end - 1)));
            assert_eq!((pieces[0].start, pieces[pieces.len() - 1].end), (1, 3 * block_layout.blocks));
            assert!(pieces.iter().all(|piece| piece.end - piece.start <= 100));
        }
    }
}
