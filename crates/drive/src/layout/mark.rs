//! Marks, which say how much of a journal has been flushed.
//!
//! There are two marks, written in turn and not flushed themselves: if they are lost or torn, only
//! the frames say how much was flushed.

use alloc::vec;
use alloc::vec::Vec;

use crate::layout::frame::{FLUSHED_BYTES, FRAME_BYTES, Flushed, crc};

const MAGIC: [u8; 8] = *b"EBOFMRK1";
/// A mark fits into the smallest unit that a medium writes as a whole.
const MARK_BYTES: usize = 512;

/// A mark: how much was flushed of the journal of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Generation of that journal.
    pub generation: u64,
    /// How much of it is flushed.
    pub flushed: Flushed,
}

impl Mark {
    /// The mark as bytes, for drive `id`.
    #[must_use]
    pub fn encode(&self, id: [u8; 16]) -> Vec<u8> {
        let mut block = vec![0; FRAME_BYTES];
        block[..8].copy_from_slice(&MAGIC);
        block[8..24].copy_from_slice(&id);
        block[24..32].copy_from_slice(&self.generation.to_le_bytes());
        block[32..32 + FLUSHED_BYTES].copy_from_slice(&self.flushed.encode());
        let sum = crc(&block[..MARK_BYTES - 4]);
        block[MARK_BYTES - 4..MARK_BYTES].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Decodes a mark; `None` if it is none of drive `id`, or damaged.
    #[must_use]
    pub fn decode(id: [u8; 16], bytes: &[u8]) -> Option<Self> {
        let block = bytes.first_chunk::<MARK_BYTES>()?;
        let (covered, sum) = block.split_at(MARK_BYTES - 4);
        if covered[..8] != MAGIC || covered[8..24] != id || sum != crc(covered).to_le_bytes() {
            return None;
        }
        let generation = u64::from_le_bytes(core::array::from_fn(|at| covered[24 + at]));
        Some(Self { generation, flushed: Flushed::decode(core::array::from_fn(|at| covered[32 + at])) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_mark_round_trips_and_damage_is_detected(
            generation: u64,
            frames: u16,
            data: u16,
            previous in proptest::option::of(0..u16::MAX),
            flip in 0..MARK_BYTES,
        ) {
            let mark = Mark { generation, flushed: Flushed { frames, data, previous } };
            let mut bytes = mark.encode([7; 16]);
            prop_assert_eq!(bytes.len(), FRAME_BYTES);
            prop_assert_eq!(Mark::decode([7; 16], &bytes), Some(mark));
            prop_assert_eq!(Mark::decode([8; 16], &bytes), None);
            bytes[flip] ^= 0x20;
            prop_assert_eq!(Mark::decode([7; 16], &bytes), None);
        }
    }

    #[test]
    fn zeros_are_not_a_mark() {
        assert_eq!(Flushed::decode([0; FLUSHED_BYTES]), Flushed::default());
        assert_eq!(Mark::decode([0; 16], &[0; FRAME_BYTES]), None);
        assert_eq!(Mark::decode([0; 16], &[]), None);
        let (one, other) =
            (Flushed { frames: 3, data: 1, previous: None }, Flushed { frames: 2, data: 2, previous: Some(0) });
        assert_eq!(one.max(other), Flushed { frames: 3, data: 2, previous: Some(0) });
    }
}
