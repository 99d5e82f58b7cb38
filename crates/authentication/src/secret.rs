//! The secret of a host or of a subsystem for DH-HMAC-CHAP (Base, DH-HMAC-CHAP Secret).

use alloc::string::String;

use ebof_nvme::Nqn;
use zeroize::Zeroizing;

use crate::hash::Hash;
pub use crate::interchange::TextError;
use crate::interchange::{self, CRC_BYTES, Kind, PSK, SECRET};
use crate::key::KeyMaterial;

const KIND: Kind = Kind {
    prefix: SECRET.0,
    name: SECRET.1,
    other: PSK,
    hashes: ("00 (none), 01 (SHA-256), 02 (SHA-384) or 03 (SHA-512)", |_| true),
    lengths: |_| (&[32, 48, 64], "36, 52 or 68"),
};

/// A secret: 32, 48 or 64 bytes, and the hash by which they become the key of one NQN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    key: KeyMaterial,
    transform: Option<Hash>,
}

impl Secret {
    /// The secret of these bytes.
    ///
    /// # Errors
    /// [`TextError::Length`] unless there are 32, 48 or 64.
    pub fn new(key: KeyMaterial, transform: Option<Hash>) -> Result<Self, TextError> {
        KIND.check_length(transform, key.bytes().len().saturating_add(CRC_BYTES))?;
        Ok(Self { key, transform })
    }

    /// Reads `DHHC-1:hh:BASE64:`. White space around it is ignored.
    ///
    /// # Errors
    /// What is wrong with the text, without any of it.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let (key, transform) = interchange::parse(text, &KIND)?;
        Ok(Self { key, transform })
    }

    /// The text form, which is as secret as the key.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        interchange::encode(KIND.prefix, &self.key, self.transform)
    }

    /// The hash with which it is transformed; `None` if it is used as it is.
    #[must_use]
    pub fn transform(&self) -> Option<Hash> {
        self.transform
    }

    /// Length of the key in bytes.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.key.bytes().len()
    }

    /// The key for responses of `nqn`, whose secret this is. The hash is the secret's, whatever a
    /// transaction agrees on.
    #[must_use]
    pub(crate) fn transformed(&self, nqn: &Nqn) -> KeyMaterial {
        match self.transform {
            None => self.key.clone(),
            Some(hash) => hash.mac(self.key.bytes(), &[nqn.as_str().as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    /// What `nvme gen-dhchap-key` prints for the bytes 0 to 31.
    const TEXT: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    #[test]
    fn a_text_of_nvme_cli_is_read_and_written() {
        let secret = Secret::parse(TEXT).unwrap();
        assert_eq!(secret.key, KeyMaterial::new((0..32).collect()));
        assert_eq!(secret.transform(), Some(Hash::Sha256));
        assert_eq!(*secret.to_text(), TEXT);
        assert_eq!(Secret::parse(&alloc::format!(" {TEXT}\n")), Ok(secret));
    }

    #[test]
    fn every_hash_goes_with_every_length() {
        for transform in [None, Some(Hash::Sha256), Some(Hash::Sha384), Some(Hash::Sha512)] {
            for bytes in [32, 48, 64] {
                let secret = Secret::new(KeyMaterial::new(vec![0x5a; bytes]), transform).unwrap();
                assert_eq!(Secret::parse(&secret.to_text()).as_ref(), Ok(&secret));
            }
        }
        let short = Secret::new(KeyMaterial::new(vec![0; 31]), None);
        assert_eq!(short, Err(TextError::Length { bytes: 35, hash: 0, expected: "36, 52 or 68" }));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_text() {
        let without = |at: usize| alloc::format!("{}{}", &TEXT[..at], &TEXT[at + 1..]);
        let cases = [
            ("", TextError::Prefix { prefix: "DHHC-1" }),
            ("NVMeTLSkey-1:01:AAAA:", TextError::OtherKind { found: PSK.1, wanted: SECRET.1 }),
            ("DHHC-1:01", TextError::Form { prefix: "DHHC-1" }),
            (&TEXT[..TEXT.len() - 1], TextError::Form { prefix: "DHHC-1" }),
            (&TEXT.replace(":01:", ":04:"), TextError::Hash { allowed: KIND.hashes.0 }),
            (&without(20), TextError::Base64),
            (&TEXT.replace("AAEC", "AAED"), TextError::Checksum),
            ("DHHC-1:01:AAAA:", TextError::Length { bytes: 3, hash: 1, expected: "36, 52 or 68" }),
        ];
        for (text, error) in cases {
            assert_eq!(Secret::parse(text), Err(error), "{text}");
            assert!(!alloc::format!("{error}").contains("AAE"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in ".{0,100}", tail in "[A-Za-z0-9+/=:]{0,100}") {
            let _ = Secret::parse(&text);
            let _ = Secret::parse(&alloc::format!("DHHC-1:01:{tail}"));
        }
    }
}
