//! The text form in which keys are exchanged: `PREFIX:hh:BASE64:`, where the encoded bytes are the
//! key and its CRC-32 (Base, Secret representation; NVMe/TCP, PSK interchange format).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ebof_vault::with_clean_stack;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::hash::Hash;
use crate::key::KeyMaterial;

/// Bytes of the CRC-32 behind a key.
pub(crate) const CRC_BYTES: usize = 4;

/// Why a text is not a key. No message has a part of the text: it may be a key with one wrong
/// character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// It does not begin as such a key does.
    #[error("the key has to begin with {prefix:?} and a colon")]
    Prefix {
        /// What was expected.
        prefix: &'static str,
    },
    /// It is a key of the other kind.
    #[error("this is {found}, and {wanted} is needed here")]
    OtherKind {
        /// What it is.
        found: &'static str,
        /// What it has to be.
        wanted: &'static str,
    },
    /// There are not four parts, or the last one is not empty.
    #[error("the key has to have the form {prefix}:hh:BASE64: with a colon at its end")]
    Form {
        /// What it begins with.
        prefix: &'static str,
    },
    /// The hash is not one of these.
    #[error("the two digits of the hash have to be {allowed}")]
    Hash {
        /// Those that are allowed.
        allowed: &'static str,
    },
    /// It is not base64.
    #[error("the part behind the hash is not base64 (with padding, without line breaks)")]
    Base64,
    /// The key has another length.
    #[error("the key has {bytes} bytes with its checksum, and one with hash {hash:02} has {expected}")]
    Length {
        /// Decoded bytes.
        bytes: usize,
        /// The hash that is named with it, as in its text.
        hash: u8,
        /// How many there are with that hash, in words.
        expected: &'static str,
    },
    /// The checksum differs: a character was lost or changed.
    #[error("the key's checksum (CRC-32) is wrong: a part of it was lost or changed")]
    Checksum,
}

/// How a secret for DH-HMAC-CHAP begins, and what it is.
pub(crate) const SECRET: (&str, &str) = ("DHHC-1", "a secret for DH-HMAC-CHAP (`ebof gen-dhchap-key`)");
/// The same of a PSK.
pub(crate) const PSK: (&str, &str) = ("NVMeTLSkey-1", "a key for TLS (`ebof gen-tls-key`)");

/// What makes one kind of key different from the other.
pub(crate) struct Kind {
    pub(crate) prefix: &'static str,
    /// What such a key is, in words.
    pub(crate) name: &'static str,
    /// How a key of the other kind begins, and what it is.
    pub(crate) other: (&'static str, &'static str),
    /// Those with which there may be a hash, in words and as a test.
    pub(crate) hashes: (&'static str, HashTest),
    /// Lengths of keys with a hash, without the checksum.
    pub(crate) lengths: fn(Option<Hash>) -> Lengths,
}

type HashTest = fn(Option<Hash>) -> bool;

/// Lengths that a key may have, and the same in words with the checksum.
type Lengths = (&'static [usize], &'static str);

impl Kind {
    /// Checks the length of a key with this hash; `decoded` is that with its checksum.
    pub(crate) fn check_length(&self, hash: Option<Hash>, decoded: usize) -> Result<(), TextError> {
        let (lengths, expected) = (self.lengths)(hash);
        if decoded.checked_sub(CRC_BYTES).is_some_and(|bytes| lengths.contains(&bytes)) {
            return Ok(());
        }
        Err(TextError::Length { bytes: decoded, hash: hash.map_or(0, Hash::id), expected })
    }
}

/// Reads a key and the hash that is named with it; 00 is none.
pub(crate) fn parse(text: &str, kind: &Kind) -> Result<(KeyMaterial, Option<Hash>), TextError> {
    with_clean_stack(|| decode(text, kind))
}

fn decode(text: &str, kind: &Kind) -> Result<(KeyMaterial, Option<Hash>), TextError> {
    let prefix = kind.prefix;
    let rest = text.trim().strip_prefix(prefix).and_then(|rest| rest.strip_prefix(':'));
    let rest = rest.ok_or_else(|| match kind.other {
        (other, found) if text.trim_start().starts_with(other) => TextError::OtherKind { found, wanted: kind.name },
        _ => TextError::Prefix { prefix },
    })?;
    let (digits, rest) = rest.split_once(':').ok_or(TextError::Form { prefix })?;
    let encoded = rest.strip_suffix(':').filter(|encoded| !encoded.contains(':')).ok_or(TextError::Form { prefix })?;
    let unknown = TextError::Hash { allowed: kind.hashes.0 };
    let hash = match digits {
        "00" => None,
        "01" => Some(Hash::Sha256),
        "02" => Some(Hash::Sha384),
        "03" => Some(Hash::Sha512),
        _ => return Err(unknown),
    };
    if !kind.hashes.1(hash) {
        return Err(unknown);
    }
    let decoded = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| TextError::Base64)?);
    kind.check_length(hash, decoded.len())?;
    let (key, crc) = decoded.split_last_chunk::<CRC_BYTES>().ok_or(TextError::Checksum)?;
    if checksum(key) != u32::from_le_bytes(*crc) {
        return Err(TextError::Checksum);
    }
    Ok((KeyMaterial::copy_of(key), hash))
}

/// The text of a key.
pub(crate) fn encode(prefix: &str, key: &KeyMaterial, hash: Option<Hash>) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(key.bytes().len() + CRC_BYTES));
    bytes.extend_from_slice(key.bytes());
    bytes.extend_from_slice(&checksum(key.bytes()).to_le_bytes());
    let encoded = with_clean_stack(|| Zeroizing::new(STANDARD.encode(&*bytes)));
    Zeroizing::new(format!("{prefix}:{:02}:{}:", hash.map_or(0, Hash::id), &*encoded))
}

fn checksum(key: &[u8]) -> u32 {
    // The library returns 64 bits for all of its algorithms.
    let [a, b, c, d, ..] = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, key).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
