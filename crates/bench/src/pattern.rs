//! A pattern that depends on the address, so that a read can be verified.

/// The pattern contains its own address once per this many bytes.
const UNIT: usize = 512;

/// Fills `bytes`, which belong at `offset` of the medium. The offset is a multiple of 512.
pub(crate) fn fill(seed: u64, offset: u64, bytes: &mut [u8]) {
    for (unit, at) in bytes.chunks_mut(UNIT).zip((offset..).step_by(UNIT)) {
        let mut word = mix(seed ^ at);
        for eight in unit.chunks_mut(8) {
            eight.copy_from_slice(&word.to_le_bytes()[..eight.len()]);
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(at | 1);
        }
    }
}

/// The first byte, as an offset of the medium, that is not what [`fill`] would have put there.
pub(crate) fn first_difference(seed: u64, offset: u64, bytes: &[u8]) -> Option<u64> {
    let mut expected = [0; UNIT];
    for (unit, at) in bytes.chunks(UNIT).zip((offset..).step_by(UNIT)) {
        let expected = &mut expected[..unit.len()];
        fill(seed, at, expected);
        if let Some(wrong) = unit.iter().zip(expected).position(|(got, want)| got != want) {
            return Some(at + wrong as u64);
        }
    }
    None
}

/// Spreads a number over all bits (the finalizer of splitmix64).
pub(crate) const fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_and_a_wrong_position_are_detected() {
        let mut bytes = vec![0; 2048];
        fill(7, 4096, &mut bytes);
        assert_eq!(first_difference(7, 4096, &bytes), None);
        assert_eq!(first_difference(7, 4608, &bytes[512..]), None, "pieces are what the whole is");
        assert!(first_difference(7, 8192, &bytes).is_some());
        assert!(first_difference(8, 4096, &bytes).is_some());
        bytes[700] ^= 1;
        assert_eq!(first_difference(7, 4096, &bytes), Some(4796));
    }
}
