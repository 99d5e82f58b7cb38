//! The layout of a drive's medium, and the superblock that describes it.
//!
//! ```text
//! 0        superblock, and a copy in the next 4 KiB
//! 64 KiB   keys of encrypted namespaces, and a copy behind them
//! 1016 KiB mark 0 | mark 1: how much of the journal was flushed
//! 1 MiB    journal 0 | journal 1 | checkpoint 0 | checkpoint 1 | firmware slots | extents ...
//! ```
//! Journals, checkpoints and firmware slots begin at multiples of 1 MiB, the extents at a multiple
//! of their own size. The bytes of keys, marks and journals, and the tags of blocks, are in the
//! folder.

pub mod frame;
pub mod keys;
pub mod mark;
pub mod tag;

use alloc::vec;
use alloc::vec::Vec;

use thiserror::Error;

use frame::{FRAME_BYTES, Kind, crc};
use keys::TABLE_BYTES;

/// The smallest extent.
pub const EXTENT_BYTES_MIN: u64 = 256 << 10;
/// Extents of a drive at most: larger drives have larger ones.
pub const EXTENTS_MAX: u64 = 1 << 22;
/// Bytes of a journal.
pub const JOURNAL_BYTES: u64 = 16 << 20;
/// Bytes of a firmware slot.
pub const SLOT_BYTES: u64 = 1 << 20;
/// Firmware slots on the medium.
pub const SLOTS: u8 = 7;
/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// Bytes of a checkpoint for the owner's state, namespaces, bad blocks and tags.
pub const STATE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a mapped extent in a checkpoint at most: a record of its own, if no two are contiguous.
const EXTENT_RECORD_BYTES: u64 = 24;
const _: () = assert!((Kind::Map.fixed_bytes() + Kind::Map.entry_bytes()) as u64 <= EXTENT_RECORD_BYTES);

const MAGIC: [u8; 8] = *b"EBOFDRV1";
const MIB: u64 = 1 << 20;
/// Offset of the key table.
const KEYS_AT: u64 = 64 << 10;

/// Offset of the marks.
const MARKS_AT: u64 = MIB - 2 * FRAME_BYTES as u64;

const _: () = assert!(KEYS_AT + 2 * TABLE_BYTES <= MARKS_AT);

/// The layout of a medium. Everything follows from these fields. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What can be allocated, in bytes: a whole number of extents.
    pub capacity_bytes: u64,
    /// Bytes of an extent, a power of two.
    pub extent_bytes: u64,
    /// Tells the records of this drive from those of another one that was on the same medium.
    pub id: [u8; 16],
}

/// Why a medium cannot hold a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// Not enough room.
    #[error("a drive of {capacity_bytes} bytes takes a medium of {needed_bytes} bytes, this one has {medium_bytes}")]
    TooSmall {
        /// Capacity of the drive.
        capacity_bytes: u64,
        /// Bytes of medium that it needs.
        needed_bytes: u64,
        /// Bytes of the medium.
        medium_bytes: u64,
    },
    /// Outside of what a drive can have.
    #[error("a drive of {capacity_bytes} bytes: it can have 1 MiB to 1 EiB")]
    Capacity {
        /// The size asked for.
        capacity_bytes: u64,
    },
}

/// What is at the position of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Superblock {
    /// One of a drive.
    Drive(Layout),
    /// One of a drive that was damaged, or of a version that this one does not know.
    Unreadable,
    /// Zeros.
    Nothing,
    /// Other data.
    Foreign,
}

impl Layout {
    /// A drive of `capacity_bytes`, rounded up to extents.
    ///
    /// # Errors
    /// `Capacity`.
    pub fn new(capacity_bytes: u64, id: [u8; 16]) -> Result<Self, LayoutError> {
        if !(MIB..=1 << 60).contains(&capacity_bytes) {
            return Err(LayoutError::Capacity { capacity_bytes });
        }
        let extent_bytes = capacity_bytes.div_ceil(EXTENTS_MAX).next_power_of_two().max(EXTENT_BYTES_MIN);
        Ok(Self { capacity_bytes: capacity_bytes.next_multiple_of(extent_bytes), extent_bytes, id })
    }

    /// The largest drive that fits on a medium of `medium_bytes`.
    ///
    /// # Errors
    /// `TooSmall`: not even the smallest one does.
    pub fn largest(medium_bytes: u64, id: [u8; 16]) -> Result<Self, LayoutError> {
        let fits = |capacity: u64| Self::new(capacity, id).is_ok_and(|layout| layout.medium_bytes() <= medium_bytes);
        let (mut good, mut bad) = (MIB, medium_bytes.max(2 * MIB));
        if !fits(good) {
            let needed_bytes = Self::new(MIB, id)?.medium_bytes();
            return Err(LayoutError::TooSmall { capacity_bytes: MIB, needed_bytes, medium_bytes });
        }
        while bad - good > MIB {
            let middle = good + (bad - good) / 2;
            if fits(middle) { good = middle } else { bad = middle }
        }
        let layout = Self::new(good, id)?;
        Ok(Self { capacity_bytes: good - good % layout.extent_bytes, ..layout })
    }

    /// How many extents there are.
    #[must_use]
    pub fn extents(&self) -> u32 {
        u32::try_from(self.capacity_bytes / self.extent_bytes).expect("at most `EXTENTS_MAX`, see `Layout::new`")
    }

    /// Offset of copy `which` (0 or 1) of the key table.
    #[must_use]
    pub fn keys(&self, which: u64) -> u64 {
        KEYS_AT + (which & 1) * TABLE_BYTES
    }

    /// Offset of mark `which` mod 2.
    #[must_use]
    pub fn mark(&self, which: u64) -> u64 {
        MARKS_AT + (which & 1) * FRAME_BYTES as u64
    }

    /// Offset of journal `which` mod 2.
    #[must_use]
    pub fn journal(&self, which: u64) -> u64 {
        MIB + (which & 1) * JOURNAL_BYTES
    }

    /// Offset of checkpoint `which` mod 2.
    #[must_use]
    pub fn checkpoint(&self, which: u64) -> u64 {
        MIB + 2 * JOURNAL_BYTES + (which & 1) * self.checkpoint_bytes()
    }

    /// Bytes of a checkpoint at most.
    #[must_use]
    pub fn checkpoint_bytes(&self) -> u64 {
        (STATE_BYTES_MAX + u64::from(self.extents()) * EXTENT_RECORD_BYTES).next_multiple_of(MIB)
    }

    /// Offset of firmware slot `slot` (1 to 7); `None` for others.
    #[must_use]
    pub fn slot(&self, slot: u8) -> Option<u64> {
        (1..=SLOTS)
            .contains(&slot)
            .then(|| self.checkpoint(0) + 2 * self.checkpoint_bytes() + u64::from(slot - 1) * SLOT_BYTES)
    }

    /// Offset of extent `extent`.
    #[must_use]
    pub fn extent(&self, extent: u32) -> u64 {
        self.data() + u64::from(extent) * self.extent_bytes
    }

    /// Offset of the first extent.
    #[must_use]
    pub fn data(&self) -> u64 {
        let slots = self.checkpoint(0) + 2 * self.checkpoint_bytes();
        (slots + u64::from(SLOTS) * SLOT_BYTES).next_multiple_of(self.extent_bytes)
    }

    /// Bytes of the whole medium.
    #[must_use]
    pub fn medium_bytes(&self) -> u64 {
        self.data() + self.capacity_bytes
    }

    /// Encodes the superblock.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; SUPERBLOCK_BYTES];
        block[..8].copy_from_slice(&MAGIC);
        block[8..16].copy_from_slice(&self.capacity_bytes.to_le_bytes());
        block[16..24].copy_from_slice(&self.extent_bytes.to_le_bytes());
        block[24..40].copy_from_slice(&self.id);
        let sum = crc(&block[..SUPERBLOCK_BYTES - 4]);
        block[SUPERBLOCK_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Decodes a superblock.
    #[must_use]
    pub fn decode(block: &[u8]) -> Superblock {
        if block.iter().all(|byte| *byte == 0) {
            return Superblock::Nothing;
        }
        let Some(block) = block.first_chunk::<SUPERBLOCK_BYTES>() else { return Superblock::Foreign };
        if block[..8] != MAGIC {
            return Superblock::Foreign;
        }
        let number = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| block[at + byte]));
        let mut id = [0; 16];
        id.copy_from_slice(&block[24..40]);
        let sum = u32::from_le_bytes(core::array::from_fn(|byte| block[SUPERBLOCK_BYTES - 4 + byte]));
        let said = Self { capacity_bytes: number(8), extent_bytes: number(16), id };
        match Self::new(said.capacity_bytes, id) {
            Ok(layout) if layout == said && sum == crc(&block[..SUPERBLOCK_BYTES - 4]) => Superblock::Drive(layout),
            _ => Superblock::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_and_extents_do_not_overlap_for_any_size() {
        for (capacity, extent) in [
            (MIB, EXTENT_BYTES_MIN),
            (MIB + 1, EXTENT_BYTES_MIN),
            (100 << 30, EXTENT_BYTES_MIN),
            (1 << 40, EXTENT_BYTES_MIN),
            ((1 << 40) + 1, 512 << 10),
            (10 << 40, 4 << 20),
            (1 << 50, 256 << 20),
            (1 << 60, 256 << 30),
        ] {
            let layout = Layout::new(capacity, [7; 16]).unwrap();
            assert_eq!(layout.extent_bytes, extent, "{capacity}");
            assert!(layout.capacity_bytes >= capacity && layout.capacity_bytes - capacity < extent);
            assert!(u64::from(layout.extents()) <= EXTENTS_MAX);
            let records = u64::from(layout.extents()) * EXTENT_RECORD_BYTES;
            assert!(layout.checkpoint_bytes() >= STATE_BYTES_MAX + records);
            for slot in 1..SLOTS {
                assert_eq!(layout.slot(slot + 1), layout.slot(slot).map(|at| at + SLOT_BYTES));
            }
            let mut at = MIB;
            for (begin, bytes) in [
                (layout.journal(0), JOURNAL_BYTES),
                (layout.journal(1), JOURNAL_BYTES),
                (layout.checkpoint(0), layout.checkpoint_bytes()),
                (layout.checkpoint(1), layout.checkpoint_bytes()),
                (layout.slot(1).unwrap(), u64::from(SLOTS) * SLOT_BYTES),
            ] {
                assert_eq!((begin, begin % MIB), (at, 0));
                at = begin + bytes;
            }
            assert!(layout.extent(0) >= at && layout.extent(0).is_multiple_of(extent));
            assert_eq!(layout.medium_bytes(), layout.extent(layout.extents()));
            assert_eq!(Layout::decode(&layout.encode()), Superblock::Drive(layout));
        }
        assert!(Layout::new(MIB - 1, [0; 16]).is_err() && Layout::new((1 << 60) + 1, [0; 16]).is_err());
        let layout = Layout::new(MIB, [0; 16]).unwrap();
        assert!(layout.slot(0).is_none() && layout.slot(8).is_none());
    }

    #[test]
    fn the_largest_drive_of_a_medium_fits_and_a_larger_one_does_not() {
        for medium in [100 << 20, (1 << 30) + 12345, 100 << 30, 3 << 40] {
            let layout = Layout::largest(medium, [1; 16]).unwrap();
            assert!(layout.medium_bytes() <= medium);
            let more = Layout::new(layout.capacity_bytes + 2 * layout.extent_bytes + MIB, [1; 16]).unwrap();
            assert!(more.medium_bytes() > medium, "{medium}");
            assert_eq!(Layout::decode(&layout.encode()), Superblock::Drive(layout));
        }
        assert!(matches!(Layout::largest(MIB, [0; 16]), Err(LayoutError::TooSmall { .. })));
    }

    #[test]
    fn a_missing_superblock_is_distinguished_from_a_damaged_one() {
        let good = Layout::new(1 << 30, [3; 16]).unwrap().encode();
        assert_eq!(Layout::decode(&[0; SUPERBLOCK_BYTES]), Superblock::Nothing);
        assert_eq!(Layout::decode(&[0x55; SUPERBLOCK_BYTES]), Superblock::Foreign);
        assert_eq!(Layout::decode(&good[..100]), Superblock::Foreign);
        for at in 8..SUPERBLOCK_BYTES {
            let mut block = good.clone();
            block[at] ^= 0x10;
            assert_eq!(Layout::decode(&block), Superblock::Unreadable, "{at}");
        }
    }

    #[test]
    fn the_document_has_all_offsets() {
        let text = include_str!("../../../docs/data-file.md");
        let layout = Layout::new(1 << 30, [3; 16]).unwrap();
        let places = [
            (SUPERBLOCK_BYTES as u64, "its copy"),
            (layout.keys(0), "[keys](#keys) of encrypted namespaces"),
            (layout.keys(1), "their copy"),
            (layout.mark(0), "[mark](#marks) 0"),
            (layout.mark(1), "mark 1"),
            (layout.journal(0), "[journal](#journal) 0: 4096 frames"),
            (layout.journal(1), "journal 1"),
            (layout.checkpoint(0), "[checkpoint](#checkpoints) 0"),
        ];
        for (at, what) in places {
            let row = text.lines().find(|line| line.ends_with(&alloc::format!(" | {what} |"))).unwrap();
            let (number, unit) = if at < MIB { (at >> 10, "KiB") } else { (at / MIB, "MiB") };
            assert!(row.starts_with(&alloc::format!("| {number} {unit} |")), "{row}");
        }
        assert_eq!(JOURNAL_BYTES, 4096 * FRAME_BYTES as u64);
        assert!(text.contains(&alloc::format!("`{}`", core::str::from_utf8(&MAGIC).unwrap())));
    }
}
