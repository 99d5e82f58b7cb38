//! The kinds of records in journal frames and checkpoints, and their numbers on the medium. What a
//! record of each kind holds is in `layout/frame.rs`; `docs/data-file.md` has the bytes.

/// The kind of a record: the number that it begins with. A number is never used for anything else,
/// and a reader refuses numbers that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A namespace is created.
    Create = 1,
    /// A namespace is removed.
    Remove = 2,
    /// All extents of a namespace are unmapped, and it has no bad blocks.
    Clear = 3,
    /// Extents of a namespace are mapped.
    Map = 4,
    /// Extents of a namespace are unmapped.
    Unmap = 5,
    /// Blocks of a namespace are marked bad, or are good again.
    Bad = 6,
    /// The high-water mark: from an extent on none was ever used.
    HighWater = 7,
    /// A change of the owner's state, or a part of one.
    Change = 8,
    /// Tags that blocks are about to get.
    Tags = 9,
    /// The same for blocks that cannot have earlier tags.
    OnlyTags = 10,
    /// Blocks are in flux: they may be written without their tags being in the journal.
    Flux = 11,
    /// No block of a namespace is in flux any more.
    Settled = 12,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Create,
        Self::Remove,
        Self::Clear,
        Self::Map,
        Self::Unmap,
        Self::Bad,
        Self::HighWater,
        Self::Change,
        Self::Tags,
        Self::OnlyTags,
        Self::Flux,
        Self::Settled,
    ];

    /// The number that a record of this kind begins with.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Bytes of a record of this kind, its number included, and the entries of its list left out.
    #[must_use]
    pub const fn fixed_bytes(self) -> usize {
        match self {
            Self::Create => 25,
            Self::Remove | Self::Clear | Self::Settled => 9,
            Self::Map | Self::Unmap => 17,
            Self::Bad => 26,
            Self::HighWater => 5,
            Self::Change => 13,
            Self::Tags | Self::OnlyTags => 21,
            Self::Flux => 49,
        }
    }

    /// Bytes of an entry of its list: of an extent, a tag or a byte. 0 if it has none.
    #[must_use]
    pub const fn entry_bytes(self) -> usize {
        match self {
            Self::Map => 4,
            Self::Change => 1,
            Self::Tags | Self::OnlyTags => 16,
            Self::Create | Self::Remove | Self::Clear | Self::Unmap | Self::Bad => 0,
            Self::HighWater | Self::Flux | Self::Settled => 0,
        }
    }

    /// The kind with this number; `None` for those of later versions.
    #[must_use]
    pub fn with_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}
