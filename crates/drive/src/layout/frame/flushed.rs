//! How much of a journal has been flushed. Each frame says it of the frames before it, and marks
//! say it of the last frames.
//!
//! A frame that was flushed must be there after a power loss; one that was not may be missing, even
//! if later ones are there.

/// Bytes that [`Flushed`] takes.
pub const FLUSHED_BYTES: usize = 6;

/// How much of a journal has been flushed, at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// So many frames, from the first on, are durable, and are not written again in this
    /// generation.
    pub frames: u16,
    /// For the tags in so many frames, from the first on, the data are durable, too: a block has
    /// the newest of them, or one that is later in the journal.
    pub data: u16,
    /// Frames of the journal of the generation before, if known: all of them were flushed.
    pub previous: Option<u16>,
}

impl Flushed {
    /// Encodes it. Zeros mean "not known".
    #[must_use]
    pub fn encode(&self) -> [u8; FLUSHED_BYTES] {
        let previous = self.previous.map_or(0, |frames| frames.saturating_add(1));
        let ([a, b], [c, d], [e, f]) = (self.frames.to_le_bytes(), self.data.to_le_bytes(), previous.to_le_bytes());
        [a, b, c, d, e, f]
    }

    /// Undoes [`encode`](Self::encode).
    #[must_use]
    pub fn decode([a, b, c, d, e, f]: [u8; FLUSHED_BYTES]) -> Self {
        let word = |low, high| u16::from_le_bytes([low, high]);
        Self { frames: word(a, b), data: word(c, d), previous: word(e, f).checked_sub(1) }
    }

    /// The larger of both.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            frames: self.frames.max(other.frames),
            data: self.data.max(other.data),
            previous: self.previous.or(other.previous),
        }
    }
}
