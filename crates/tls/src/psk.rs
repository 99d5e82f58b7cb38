//! The keys as a handshake gets them: derived, with the name that goes over the wire.

use ebof_authentication::{Hash, KeyMaterial};
use thiserror::Error;

use crate::schedule::Suite;

/// A pre-shared key that this end would use, and its name. Its bytes are never formatted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPsk {
    identity: String,
    suite: Suite,
    key: KeyMaterial,
}

/// Why a key cannot be used for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PskError {
    /// TLS has no cipher suite with this hash.
    #[error("TLS 1.3 has no cipher suite with {hash}: use a key for SHA-256 or SHA-384")]
    Hash {
        /// The hash.
        hash: Hash,
    },
    /// The identity is empty, or too long for its field.
    #[error("the PSK identity has {bytes} bytes, and TLS 1.3 allows 1 to {IDENTITY_BYTES_MAX}: use shorter names")]
    Identity {
        /// Its length.
        bytes: usize,
    },
    /// The key is not as long as the hash's digests.
    #[error("the key has {bytes} bytes, and one for {hash} has {}: derive it as NVMe/TCP says", hash.bytes())]
    Length {
        /// Its length.
        bytes: usize,
        /// The hash.
        hash: Hash,
    },
    /// All bytes of the key are zero.
    #[error("all bytes of the key are zero: whatever made it did not work, derive it again")]
    Zero,
}

/// Most bytes of an identity: a ClientHello has to have room for it, and be read here.
pub(crate) const IDENTITY_BYTES_MAX: usize = 8192;

impl TlsPsk {
    /// The PSK that TLS uses (not the configured or the retained one) with its identity and the
    /// hash of its cipher suite.
    ///
    /// # Errors
    /// They do not belong together.
    pub fn new(identity: String, hash: Hash, key: KeyMaterial) -> Result<Self, PskError> {
        let suite = Suite::from_hash(hash).ok_or(PskError::Hash { hash })?;
        if identity.is_empty() || identity.len() > IDENTITY_BYTES_MAX {
            return Err(PskError::Identity { bytes: identity.len() });
        }
        let bytes = key.bytes().len();
        if bytes != hash.bytes() {
            return Err(PskError::Length { bytes, hash });
        }
        if key.bytes().iter().fold(0, |all, byte| all | byte) == 0 {
            return Err(PskError::Zero);
        }
        Ok(Self { identity, suite, key })
    }

    /// Its name.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The cipher suite that it is for.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    pub(crate) fn key(&self) -> &KeyMaterial {
        &self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_length_of_its_hash_and_is_not_zero() {
        let psk = |hash, bytes| TlsPsk::new("id".into(), hash, KeyMaterial::new(bytes));
        assert!(psk(Hash::Sha256, vec![1; 32]).is_ok() && psk(Hash::Sha384, vec![1; 48]).is_ok());
        assert_eq!(psk(Hash::Sha512, vec![1; 64]), Err(PskError::Hash { hash: Hash::Sha512 }));
        assert_eq!(psk(Hash::Sha256, vec![1; 48]), Err(PskError::Length { bytes: 48, hash: Hash::Sha256 }));
        assert_eq!(psk(Hash::Sha256, vec![0; 32]), Err(PskError::Zero));
        for bytes in [0, IDENTITY_BYTES_MAX + 1] {
            let refused = TlsPsk::new("x".repeat(bytes), Hash::Sha256, KeyMaterial::new(vec![1; 32]));
            assert_eq!(refused, Err(PskError::Identity { bytes }));
        }
    }

    #[test]
    fn no_byte_of_a_key_is_formatted() {
        let psk = TlsPsk::new("id".into(), Hash::Sha256, KeyMaterial::new(vec![0xab; 32])).unwrap();
        let text = format!("{psk:?}");
        assert!(text.contains("32 secret bytes") && !text.contains("171") && !text.contains("ab"), "{text}");
    }
}
