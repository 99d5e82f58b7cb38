//! What an end of a transaction needs that nobody can foresee.

use core::num::NonZeroU32;

use crate::group::Group;
use crate::hash::Hash;
use crate::key::KeyMaterial;

/// The longest private exponent in bytes.
const EXPONENT_BYTES_MAX: usize = Group::Ffdhe8192.exponent_bytes();

/// Random bytes for one transaction at one end, and its sequence number.
#[derive(Debug)]
pub struct Entropy {
    pub(crate) challenge: [u8; Hash::BYTES_MAX],
    exponent: KeyMaterial,
    pub(crate) sequence: NonZeroU32,
}

impl Entropy {
    /// Takes random bytes from `fill`, which has to be as good as the system's source; `sequence`
    /// is the next one of this host or subsystem.
    pub fn new(sequence: NonZeroU32, mut fill: impl FnMut(&mut [u8])) -> Self {
        let mut challenge = [0; Hash::BYTES_MAX];
        fill(&mut challenge);
        let mut exponent = alloc::vec![0; EXPONENT_BYTES_MAX];
        fill(&mut exponent);
        Self { challenge, exponent: KeyMaterial::new(exponent), sequence }
    }

    /// A private exponent for `group`.
    pub(crate) fn exponent(&self, group: Group) -> KeyMaterial {
        KeyMaterial::copy_of(&self.exponent.bytes()[..group.exponent_bytes()])
    }
}

/// The sequence numbers of a host or a subsystem (Base, DH-HMAC-CHAP, SEQNUM): from a random one
/// on, the next for each challenge, and never 0.
#[derive(Debug)]
pub struct SequenceNumbers(NonZeroU32);

impl SequenceNumbers {
    /// Begins with `random`, or with 1 if that is 0.
    #[must_use]
    pub fn beginning_with(random: u32) -> Self {
        Self(NonZeroU32::new(random).unwrap_or(NonZeroU32::MIN))
    }

    /// The next one.
    pub fn take(&mut self) -> NonZeroU32 {
        let next = self.0;
        self.0 = self.0.checked_add(1).unwrap_or(NonZeroU32::MIN);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_skip_zero() {
        let mut numbers = SequenceNumbers::beginning_with(u32::MAX);
        assert_eq!([numbers.take().get(), numbers.take().get(), numbers.take().get()], [u32::MAX, 1, 2]);
        assert_eq!(SequenceNumbers::beginning_with(0).take().get(), 1);
    }
}
