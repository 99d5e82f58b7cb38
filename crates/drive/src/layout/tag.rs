//! Tags of blocks: metadata, and a checksum that ties data, metadata and block number together.
//!
//! ```text
//! tag   0 CRC-32C | 4 version 1 | 5 zeros | 8 metadata
//! ```
//! The checksum is over the data, the metadata, the number of the block and the name of the
//! namespace, before encryption. A page of tags begins with a [`header`] of the size of a tag.

use crc_fast::{CrcAlgorithm, Digest};

use crate::namespace::VolumeId;

/// The tag of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub [u8; 16]);

/// Byte 4 of the tag of a block that was written.
const VERSION: u8 = 1;

impl Tag {
    /// The tag of a block that was never written, or was deallocated: its data are zeros.
    pub const UNWRITTEN: Self = Self([0; 16]);
    /// The tag of a block whose tag was lost: it matches no data.
    pub const LOST: Self = Self([0xFF; 16]);

    /// The tag of a block with these data and metadata.
    #[must_use]
    pub fn new(volume: VolumeId, block: u64, data: &[u8], metadata: [u8; 8]) -> Self {
        let mut tag = [0; 16];
        tag[..4].copy_from_slice(&sum(volume, block, data, metadata).to_le_bytes());
        tag[4] = VERSION;
        tag[8..].copy_from_slice(&metadata);
        Self(tag)
    }

    /// The metadata of the block; zeros if it was never written.
    #[must_use]
    pub fn metadata(&self) -> [u8; 8] {
        core::array::from_fn(|at| self.0[8 + at])
    }

    /// Whether this is the tag of that block with these data.
    #[must_use]
    pub fn matches(&self, volume: VolumeId, block: u64, data: &[u8]) -> bool {
        if *self == Self::UNWRITTEN {
            return data.iter().all(|byte| *byte == 0);
        }
        self.0[4..8] == [VERSION, 0, 0, 0] && *self == Self::new(volume, block, data, self.metadata())
    }
}

fn sum(volume: VolumeId, block: u64, data: &[u8], metadata: [u8; 8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut identity = [0; 24];
    identity[..8].copy_from_slice(&metadata);
    identity[8..16].copy_from_slice(&block.to_le_bytes());
    identity[16..].copy_from_slice(&volume.0.to_le_bytes());
    digest.update(data);
    digest.update(&identity);
    u32::try_from(digest.finalize() & 0xffff_ffff).expect("the upper half was masked")
}

/// The header of page `page` of an extent of a namespace.
#[must_use]
pub fn header(volume: VolumeId, extent: u32, page: u64) -> [u8; 16] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut header = [0; 16];
    header[..8].copy_from_slice(&volume.0.to_le_bytes());
    header[8..12].copy_from_slice(&extent.to_le_bytes());
    digest.update(b"EBOFTAG1");
    digest.update(&header[..12]);
    digest.update(&page.to_le_bytes());
    let sum = u32::try_from(digest.finalize() & 0xffff_ffff).expect("the upper half was masked");
    header[12..].copy_from_slice(&sum.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_tag_matches_only_its_block(
            data in proptest::collection::vec(any::<u8>(), 512),
            metadata: [u8; 8],
            (volume, block) in (0..9_u64, 0..9_u64),
            at in 0..528_usize,
            flip in 1..=255_u8,
        ) {
            let volume = VolumeId(volume);
            let tag = Tag::new(volume, block, &data, metadata);
            prop_assert!(tag.matches(volume, block, &data) && tag.metadata() == metadata);
            prop_assert!(!tag.matches(volume, block + 1, &data) && !tag.matches(VolumeId(volume.0 + 1), block, &data));
            let (mut bent, mut bent_data) = (tag, data);
            if at < 16 { bent.0[at] ^= flip } else { bent_data[at - 16] ^= flip }
            prop_assert!(!bent.matches(volume, block, &bent_data));
        }
    }

    #[test]
    fn the_unwritten_tag_matches_zeros_and_the_lost_tag_nothing() {
        let (zeros, mut other) = ([0; 512], [0; 512]);
        other[511] = 1;
        assert!(Tag::UNWRITTEN.matches(VolumeId(1), 7, &zeros) && !Tag::UNWRITTEN.matches(VolumeId(1), 7, &other));
        assert!(!Tag::LOST.matches(VolumeId(1), 7, &zeros) && !Tag::LOST.matches(VolumeId(1), 7, &[0xFF; 512]));
        // Zeros that were written are something else, and both are right for the same bytes.
        let written = Tag::new(VolumeId(1), 7, &zeros, [0; 8]);
        assert!(written != Tag::UNWRITTEN && written.matches(VolumeId(1), 7, &zeros));
    }

    #[test]
    fn every_page_has_a_header_of_its_own() {
        let page = header(VolumeId(3), 4, 5);
        assert!(page != header(VolumeId(2), 4, 5) && page != header(VolumeId(3), 5, 5));
        assert!(page != header(VolumeId(3), 4, 4) && page != [0; 16]);
    }
}
