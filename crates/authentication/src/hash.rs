//! The hash functions of DH-HMAC-CHAP and of TLS PSKs, and what is built of them.

use alloc::vec::Vec;
use core::fmt;

use ebof_vault::with_clean_stack;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};

use crate::key::KeyMaterial;

/// A hash function (Base, DH-HMAC-CHAP, HashIDs). The same numbers are in the text forms of secrets
/// and, except for SHA-512, in PSK identities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Hash {
    /// SHA-256, with digests of 32 bytes.
    Sha256 = 1,
    /// SHA-384, with digests of 48 bytes.
    Sha384 = 2,
    /// SHA-512, with digests of 64 bytes. There is no TLS cipher suite with it.
    Sha512 = 3,
}

impl Hash {
    /// All, by their numbers.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];
    /// The longest digest in bytes.
    pub const BYTES_MAX: usize = 64;

    /// The hash with this number.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.id() == id)
    }

    /// Its number.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Length of a digest in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The digest of `bytes`.
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> KeyMaterial {
        with_clean_stack(|| match self {
            Self::Sha256 => KeyMaterial::copy_of(&Sha256::digest(bytes)),
            Self::Sha384 => KeyMaterial::copy_of(&Sha384::digest(bytes)),
            Self::Sha512 => KeyMaterial::copy_of(&Sha512::digest(bytes)),
        })
    }

    /// HMAC of all `parts`, one behind the other.
    #[must_use]
    pub fn mac(self, key: &[u8], parts: &[&[u8]]) -> KeyMaterial {
        with_clean_stack(|| match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, parts),
            Self::Sha384 => mac::<Hmac<Sha384>>(key, parts),
            Self::Sha512 => mac::<Hmac<Sha512>>(key, parts),
        })
    }

    /// HKDF-Extract without a salt (RFC 5869, 2.2).
    #[must_use]
    pub(crate) fn extract(self, input: &KeyMaterial) -> KeyMaterial {
        self.mac(&[0; Self::BYTES_MAX][..self.bytes()], &[input.bytes()])
    }

    /// The first `length` bytes of HKDF-Expand (RFC 5869, 2.3), at most 255 digests.
    #[must_use]
    pub(crate) fn expand(self, key: &KeyMaterial, info: &[u8], length: usize) -> KeyMaterial {
        let mut output = zeroize::Zeroizing::new(Vec::with_capacity(length + self.bytes()));
        let mut block = KeyMaterial::new(Vec::new());
        for counter in 1..=u8::MAX {
            if output.len() >= length {
                break;
            }
            block = self.mac(key.bytes(), &[block.bytes(), info, &[counter]]);
            output.extend_from_slice(block.bytes());
        }
        KeyMaterial::copy_of(&output[..length])
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
        })
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> KeyMaterial {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC has keys of every length");
    for part in parts {
        mac.update(part);
    }
    KeyMaterial::copy_of(&mac.finalize().into_bytes())
}
