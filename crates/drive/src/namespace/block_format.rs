//! The format of a namespace's blocks on the medium: plain, or with a tag for each block (metadata
//! and a checksum), and whether they are encrypted.
//!
//! ```text
//! plain   | data of extent_bytes / block_bytes blocks                                        |
//! tagged  | data of fewer blocks                       | pages with a tag for each block     |
//! ```
//! A tag has [`TAG_BYTES`]; a page of tags has [`TAG_PAGE_BYTES`] and begins with a header of the
//! size of a tag. Their contents are in [`tag`](crate::layout::tag).

/// Bytes of the tag of a block.
pub const TAG_BYTES: u64 = 16;
/// Bytes of a page: the unit in which tags are read and written.
pub const TAG_PAGE_BYTES: u64 = 4096;
/// Tags in a page.
pub const TAGS_PER_PAGE: u64 = TAG_PAGE_BYTES / TAG_BYTES - 1;
/// Bytes of metadata in a tag.
pub const METADATA_BYTES: u16 = 8;

/// The format of a namespace's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockFormat {
    /// Bytes of a block's data as a power of two: 9 or 12.
    pub block_shift: u8,
    /// Bytes of metadata that go with each block, at its end (an extended block): 0 or
    /// [`METADATA_BYTES`].
    pub metadata_bytes: u16,
    /// Blocks have a checksum, which is verified when they are read.
    pub checked: bool,
    /// Blocks are encrypted with a key of the namespace's own.
    pub encrypted: bool,
}

impl BlockFormat {
    /// Plain blocks of `1 << block_shift` bytes.
    #[must_use]
    pub const fn plain(block_shift: u8) -> Self {
        Self { block_shift, metadata_bytes: 0, checked: false, encrypted: false }
    }

    /// Whether it is a format that media support.
    #[must_use]
    pub const fn is_legal(&self) -> bool {
        matches!(self.block_shift, 9 | 12) && matches!(self.metadata_bytes, 0 | METADATA_BYTES)
    }

    /// Whether blocks have tags on the medium.
    #[must_use]
    pub const fn is_tagged(&self) -> bool {
        self.metadata_bytes != 0 || self.checked
    }

    /// Whether blocks may be in flux: written before their tags are in the journal. Not if they
    /// have metadata, which are nowhere else than in their tags.
    #[must_use]
    pub const fn may_be_in_flux(&self) -> bool {
        self.checked && self.metadata_bytes == 0
    }

    /// Bytes of a block's data.
    #[must_use]
    pub const fn data_bytes(&self) -> u64 {
        1 << self.block_shift
    }

    /// Bytes of a block as hosts transfer it, with its metadata.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.data_bytes() + u64::from(self.metadata_bytes)
    }

    /// Blocks that an extent holds.
    #[must_use]
    pub fn blocks_per_extent(&self, extent_bytes: u64) -> u64 {
        if !self.is_tagged() {
            return extent_bytes >> self.block_shift;
        }
        // The most for which data and tags fit: a first guess without rounding is at most one page
        // of tags too high.
        let fits = |blocks: u64| (blocks << self.block_shift) + tags_bytes(blocks) <= extent_bytes;
        let mut blocks = extent_bytes / (self.data_bytes() * TAGS_PER_PAGE + TAG_PAGE_BYTES) * TAGS_PER_PAGE;
        blocks += extent_bytes % (self.data_bytes() * TAGS_PER_PAGE + TAG_PAGE_BYTES) / self.data_bytes();
        while blocks > 0 && !fits(blocks) {
            blocks -= 1;
        }
        blocks
    }

    /// Where the tags begin in an extent, and how many bytes they take; `None` if there are none.
    #[must_use]
    pub fn tags(&self, extent_bytes: u64) -> Option<(u64, u64)> {
        let bytes = tags_bytes(self.blocks_per_extent(extent_bytes));
        self.is_tagged().then(|| (extent_bytes - bytes, bytes))
    }

    /// Extents that hold so many blocks.
    #[must_use]
    pub fn extents(&self, blocks: u64, extent_bytes: u64) -> u64 {
        blocks.div_ceil(self.blocks_per_extent(extent_bytes).max(1))
    }

    /// The format as a record keeps it.
    #[must_use]
    pub fn encode(&self) -> u32 {
        let flags = u32::from(self.checked) | u32::from(self.encrypted) << 1;
        u32::from(self.block_shift) | u32::from(self.metadata_bytes) << 8 | flags << 24
    }

    /// The format that a record keeps; `None` for what this version does not know.
    #[must_use]
    pub fn decode(record: u32) -> Option<Self> {
        let [block_shift, low, high, flags] = record.to_le_bytes();
        let metadata_bytes = u16::from_le_bytes([low, high]);
        let block_format = Self { block_shift, metadata_bytes, checked: flags & 1 != 0, encrypted: flags & 2 != 0 };
        (block_format.is_legal() && block_format.encode() == record).then_some(block_format)
    }
}

/// Bytes of the pages for the tags of so many blocks.
fn tags_bytes(blocks: u64) -> u64 {
    blocks.div_ceil(TAGS_PER_PAGE) * TAG_PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = BlockFormat> {
        let flags = [(false, false), (false, true), (true, false), (true, true)];
        [9, 12].into_iter().flat_map(move |block_shift| {
            [0, METADATA_BYTES].into_iter().flat_map(move |metadata_bytes| {
                flags.map(|(checked, encrypted)| BlockFormat { block_shift, metadata_bytes, checked, encrypted })
            })
        })
    }

    #[test]
    fn an_extent_holds_as_many_blocks_with_tags_as_fit() {
        for block_format in all() {
            for shift in 18..=38 {
                let extent_bytes = 1_u64 << shift;
                let blocks = block_format.blocks_per_extent(extent_bytes);
                let data = blocks << block_format.block_shift;
                match block_format.tags(extent_bytes) {
                    None => assert_eq!(data, extent_bytes),
                    Some((at, bytes)) => {
                        assert!(data <= at && at + bytes == extent_bytes && at.is_multiple_of(TAG_PAGE_BYTES));
                        assert!(blocks <= bytes / TAG_PAGE_BYTES * TAGS_PER_PAGE);
                        let more = ((blocks + 1) << block_format.block_shift) + tags_bytes(blocks + 1);
                        assert!(more > extent_bytes, "{block_format:?} {extent_bytes}");
                    }
                }
                assert_eq!(block_format.extents(blocks, extent_bytes), 1);
                assert_eq!(block_format.extents(blocks + 1, extent_bytes), 2);
            }
        }
        let tagged = BlockFormat { checked: true, ..BlockFormat::plain(12) };
        assert_eq!((tagged.blocks_per_extent(256 << 10), tagged.tags(256 << 10)), (63, Some((258_048, 4096))));
        let tagged = BlockFormat { metadata_bytes: 8, ..BlockFormat::plain(9) };
        assert_eq!((tagged.blocks_per_extent(256 << 10), tagged.tags(256 << 10)), (496, Some((253_952, 8192))));
    }

    #[test]
    fn formats_round_trip_and_unknown_ones_are_reported() {
        for block_format in all() {
            assert_eq!(BlockFormat::decode(block_format.encode()), Some(block_format));
        }
        for unknown in [0, 10, 9 | 1 << 8, 9 | 16 << 8, 9 | 4 << 24, u32::MAX] {
            assert_eq!(BlockFormat::decode(unknown), None, "{unknown:x}");
        }
    }
}
