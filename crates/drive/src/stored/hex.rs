//! Bytes as hexadecimal text in the JSON of changes and checkpoints.

use alloc::string::String;
use core::fmt::Write as _;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// For `#[serde(with = "hex")]` on arrays of bytes.
pub(crate) fn serialize<S: Serializer, const N: usize>(bytes: &[u8; N], serializer: S) -> Result<S::Ok, S::Error> {
    let mut text = String::with_capacity(N * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").map_err(serde::ser::Error::custom)?;
    }
    serializer.serialize_str(&text)
}

/// The other way.
pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(deserializer: D) -> Result<[u8; N], D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits: Option<alloc::vec::Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let wrong = || D::Error::custom(alloc::format!("{N} bytes as {} hexadecimal digits are expected", N * 2));
    let digits = digits.filter(|digits| digits.len() == N * 2).ok_or_else(wrong)?;
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(pair[0] << 4 | pair[1]).map_err(|_| wrong())?;
    }
    Ok(bytes)
}
