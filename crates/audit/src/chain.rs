//! The chain: each line has the hash of the line before it, and its own, which is made of all that
//! is before it on the line. A line that was changed has another hash; a line that was removed,
//! moved or inserted breaks the next one's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// What is hashed before each line, so that the hash of a record is nothing else's.
const DOMAIN: &[u8] = b"ebof audit record 1\n";

/// SHA-256 of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

/// The number of a record and its hash. Whoever has written one down elsewhere finds out whether
/// the log still has this record, and with it all that were before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainHead {
    /// The number, from 1 on; 0 before the first record.
    pub n: u64,
    /// The hash.
    pub hash: Hash,
}

/// A text is no [`ChainHead`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not the number of a record and its hash: want N:HASH with 64 hexadecimal digits")]
pub struct ChainHeadError(String);

impl Hash {
    /// Before the first record.
    pub(crate) const NONE: Self = Self([0; 32]);

    /// Of what is on a line before its hash.
    pub(crate) fn of_line(line: &[u8]) -> Self {
        Self(Sha256::new().chain_update(DOMAIN).chain_update(line).finalize().into())
    }
}

impl ChainHead {
    /// Before the first record.
    pub(crate) const NONE: Self = Self { n: 0, hash: Hash::NONE };
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = ChainHeadError;

    fn from_str(text: &str) -> Result<Self, ChainHeadError> {
        let no = || ChainHeadError(text.chars().filter(|c| !c.is_control()).take(100).collect());
        if text.len() != 64 || !text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(no());
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or_else(no)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// `17:9f86d0...`
impl fmt::Display for ChainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.n, self.hash)
    }
}

impl FromStr for ChainHead {
    type Err = ChainHeadError;

    fn from_str(text: &str) -> Result<Self, ChainHeadError> {
        let no = || ChainHeadError(text.chars().filter(|c| !c.is_control()).take(100).collect());
        let (n, hash) = text.split_once(':').ok_or_else(no)?;
        Ok(Self { n: n.parse().map_err(|_no_number| no())?, hash: hash.parse().map_err(|_no_hash| no())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        let head = ChainHead { n: 17, hash: Hash::of_line(b"x") };
        assert_eq!(head.to_string().parse(), Ok(head));
        // sha256sum of "ebof audit record 1\nx".
        assert_eq!(Hash::of_line(b"x").to_string(), "ffbdc9ebec5af74147acf98dda2142d9322b10849586006c0a5a68a4377425f1");
        for text in ["", "17", "17:", ":", "x:y", &head.to_string().to_uppercase(), &format!("{head}0")] {
            assert!(text.parse::<ChainHead>().is_err(), "{text}");
        }
    }
}
