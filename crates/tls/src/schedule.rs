//! The parts of TLS 1.3's key schedule (RFC 8446, 7.1) that are computed here: binders of external
//! pre-shared keys, and the keys of records.

use aws_lc_rs::aead::{self, LessSafeKey, UnboundKey};
use aws_lc_rs::error::Unspecified;
use ebof_authentication::{Hash, KeyMaterial};
use ebof_vault::with_clean_stack;
use zeroize::Zeroizing;

/// A cipher suite. NVMe/TCP has these two; the hash of the pre-shared key decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// TLS_AES_128_GCM_SHA256.
    Aes128GcmSha256,
    /// TLS_AES_256_GCM_SHA384.
    Aes256GcmSha384,
}

impl Suite {
    /// The one with this hash.
    #[must_use]
    pub fn from_hash(hash: Hash) -> Option<Self> {
        match hash {
            Hash::Sha256 => Some(Self::Aes128GcmSha256),
            Hash::Sha384 => Some(Self::Aes256GcmSha384),
            Hash::Sha512 => None,
        }
    }

    /// Its hash.
    #[must_use]
    pub fn hash(self) -> Hash {
        match self {
            Self::Aes128GcmSha256 => Hash::Sha256,
            Self::Aes256GcmSha384 => Hash::Sha384,
        }
    }

    /// Its number on the wire.
    #[must_use]
    pub fn id(self) -> u16 {
        match self {
            Self::Aes128GcmSha256 => 0x1301,
            Self::Aes256GcmSha384 => 0x1302,
        }
    }

    /// Its name in RFC 8446, which s2n-tls uses, too.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128GcmSha256 => "TLS_AES_128_GCM_SHA256",
            Self::Aes256GcmSha384 => "TLS_AES_256_GCM_SHA384",
        }
    }

    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128GcmSha256 => &aead::AES_128_GCM,
            Self::Aes256GcmSha384 => &aead::AES_256_GCM,
        }
    }
}

impl std::fmt::Display for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 12;

/// The key of one direction's records, and what each nonce is made of.
pub(crate) struct TrafficKey {
    pub(crate) key: LessSafeKey,
    pub(crate) iv: Zeroizing<[u8; NONCE_BYTES]>,
}

/// The same, as bytes.
pub(crate) struct RecordKey {
    pub(crate) key: KeyMaterial,
    pub(crate) iv: Zeroizing<[u8; NONCE_BYTES]>,
}

/// The keys of records that a traffic secret stands for (RFC 8446, 7.3).
pub(crate) fn record_key(suite: Suite, secret: &KeyMaterial) -> RecordKey {
    let key = expand_label(suite.hash(), secret, "key", &[], suite.algorithm().key_len());
    let mut iv = Zeroizing::new([0; NONCE_BYTES]);
    iv.copy_from_slice(expand_label(suite.hash(), secret, "iv", &[], NONCE_BYTES).bytes());
    RecordKey { key, iv }
}

/// The same, for aws-lc.
pub(crate) fn traffic_key(suite: Suite, secret: &KeyMaterial) -> Result<TrafficKey, Unspecified> {
    let RecordKey { key, iv } = record_key(suite, secret);
    let key = LessSafeKey::new(with_clean_stack(|| UnboundKey::new(suite.algorithm(), key.bytes()))?);
    Ok(TrafficKey { key, iv })
}

/// The traffic secret that follows this one (RFC 8446, 7.2).
pub(crate) fn next_secret(suite: Suite, secret: &KeyMaterial) -> KeyMaterial {
    expand_label(suite.hash(), secret, "traffic upd", &[], suite.hash().bytes())
}

/// The binder of an external pre-shared key for a ClientHello without its binders
/// (RFC 8446, 4.2.11.2).
pub(crate) fn binder(hash: Hash, psk: &KeyMaterial, truncated_hello: &[u8]) -> KeyMaterial {
    let early_secret = hash.mac(&[0; Hash::BYTES_MAX][..hash.bytes()], &[psk.bytes()]);
    let binder_key = expand_label(hash, &early_secret, "ext binder", hash.digest(&[]).bytes(), hash.bytes());
    let finished_key = expand_label(hash, &binder_key, "finished", &[], hash.bytes());
    hash.mac(finished_key.bytes(), &[hash.digest(truncated_hello).bytes()])
}

/// HKDF-Expand-Label for at most one digest, which all of TLS 1.3's keys fit in: one HMAC.
fn expand_label(hash: Hash, secret: &KeyMaterial, label: &str, context: &[u8], bytes: usize) -> KeyMaterial {
    const PREFIX: &str = "tls13 ";
    let length = |length: usize| u8::try_from(length).expect("lengths of labels, digests and keys are small");
    assert!(bytes <= hash.bytes(), "one block of HKDF-Expand is enough");
    let parts: [&[u8]; 7] = [
        &[0, length(bytes)],
        &[length(PREFIX.len() + label.len())],
        PREFIX.as_bytes(),
        label.as_bytes(),
        &[length(context.len())],
        context,
        &[1],
    ];
    let block = hash.mac(secret.bytes(), &parts);
    KeyMaterial::copy_of(&block.bytes()[..bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// RFC 8448, 3: the server's application traffic secret and its keys.
    #[test]
    fn keys_of_records_are_those_of_rfc_8448() {
        let secret = KeyMaterial::new(bytes("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643"));
        let made = record_key(Suite::Aes128GcmSha256, &secret);
        assert_eq!(made.key.bytes(), bytes("9f02283b6c9c07efc26bb9f2ac92e356"));
        assert_eq!(made.iv.to_vec(), bytes("cf782b88dd83549aadf1e984"));
    }

    #[test]
    fn suites_and_hashes_belong_together() {
        for suite in [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384] {
            assert_eq!(Suite::from_hash(suite.hash()), Some(suite));
            assert_eq!(suite.algorithm().key_len() * 8, if suite.id() == 0x1301 { 128 } else { 256 });
        }
        assert_eq!(Suite::from_hash(Hash::Sha512), None);
    }
}
