//! Bytes as lower case hexadecimal digits.

use std::fmt::Write as _;

/// The digits of `bytes`.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of `text`, if it is exactly `N` of them.
pub(crate) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_and_nothing_else_is_taken() {
        let bytes: [u8; 256] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        for wrong in ["", "0", "000", "0g", "0A", "+1", "é"] {
            assert_eq!(decode::<1>(wrong), None, "{wrong}");
        }
    }
}
