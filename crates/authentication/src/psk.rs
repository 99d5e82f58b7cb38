//! The pre-shared keys of TLS on NVMe/TCP: from the configured or generated PSK to the one that TLS
//! uses, and the identity by which both ends find it (NVMe/TCP, TLS PSK and PSK Identity
//! Derivation).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ebof_nvme::Nqn;
use ebof_nvme::nqn::NqnError;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::hash::Hash;
use crate::interchange::{self, CRC_BYTES, Kind, PSK, SECRET, TextError};
use crate::key::KeyMaterial;
use crate::response::Names;

const KIND: Kind = Kind {
    prefix: PSK.0,
    name: PSK.1,
    other: SECRET,
    hashes: ("00 (none), 01 (SHA-256) or 02 (SHA-384)", |hash| hash != Some(Hash::Sha512)),
    lengths: |hash| match hash {
        None => (&[32, 48], "36 or 52"),
        Some(Hash::Sha256) => (&[32], "36"),
        Some(_) => (&[48], "52"),
    },
};

/// Which formula makes a PSK for TLS of a retained one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// The specification's, which has HKDF-Expand-Label of TLS 1.3 (RFC 8446, 7.1).
    Specification,
    /// Deviation: libnvme 1.x, and so nvme-cli 2.x, has the length little endian in
    /// HKDF-Expand-Label and leaves out the two bytes that say how long label and context are.
    Libnvme1,
}

/// Why there is no PSK for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DerivationError {
    /// The names are too long for HKDF-Expand-Label, whose context has at most 255 bytes.
    #[error(
        "the identity has {bytes} bytes, and version 0 of PSK identities allows 255: use shorter names or version 1"
    )]
    Context {
        /// Bytes of the context.
        bytes: usize,
    },
}

/// A PSK as people configure it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredPsk {
    key: KeyMaterial,
    hash: Option<Hash>,
}

/// A PSK of a host and a subsystem, before TLS' own is derived from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Psk {
    key: KeyMaterial,
    origin: KeyOrigin,
    /// The hash of the cipher suite: its digests are as long as the PSK.
    hash: Hash,
}

/// Where a PSK comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    /// It was configured.
    Retained,
    /// Authentication generated it (secure channel concatenation).
    Generated,
}

/// Version of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum IdentityVersion {
    /// Without a digest of the PSK.
    V0 = 0,
    /// With one, so that it tells which of several PSKs is meant.
    V1 = 1,
}

/// The name of a PSK, in the clear on the wire: `NVMe1R01 HOSTNQN SUBNQN DIGEST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where the PSK comes from.
    pub origin: KeyOrigin,
    /// The hash of its cipher suite, SHA-256 or SHA-384.
    pub hash: Hash,
    /// Host and subsystem.
    pub names: Names,
    /// The digest of the PSK, in base64; `None` of version 0.
    pub digest: Option<String>,
}

/// Why a text is no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// It does not begin with `NVMe0` or `NVMe1`.
    #[error("a PSK identity has to begin with NVMe0 or NVMe1")]
    Version,
    /// Neither `R` nor `G`.
    #[error("a PSK identity has R (retained) or G (generated) behind its version")]
    Origin,
    /// Neither 01 nor 02.
    #[error("the hash of a PSK identity has to be 01 (SHA-256) or 02 (SHA-384)")]
    Hash,
    /// Not the number of parts that this version has.
    #[error("a PSK identity has HOSTNQN and SUBNQN, and with version 1 a digest, with a space before each")]
    Parts,
    /// A name is not legal.
    #[error("the {what} of a PSK identity: {error}")]
    Name {
        /// Which one.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        error: NqnError,
    },
    /// The digest is none.
    #[error("the digest of a PSK identity is not base64 of the hash's length")]
    Digest,
}

impl ConfiguredPsk {
    /// The PSK of these bytes.
    ///
    /// # Errors
    /// [`TextError::Length`] or [`TextError::Hash`] if length and hash do not belong together.
    pub fn new(key: KeyMaterial, hash: Option<Hash>) -> Result<Self, TextError> {
        if !KIND.hashes.1(hash) {
            return Err(TextError::Hash { allowed: KIND.hashes.0 });
        }
        KIND.check_length(hash, key.bytes().len().saturating_add(CRC_BYTES))?;
        Ok(Self { key, hash })
    }

    /// Reads `NVMeTLSkey-1:hh:BASE64:`. White space around it is ignored.
    ///
    /// # Errors
    /// What is wrong with the text, without any of it.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let (key, hash) = interchange::parse(text, &KIND)?;
        Ok(Self { key, hash })
    }

    /// The text form, which is as secret as the PSK.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        interchange::encode(KIND.prefix, &self.key, self.hash)
    }

    /// The hash of the text form; `None` if the PSK is the same for all hosts.
    #[must_use]
    pub fn hash(&self) -> Option<Hash> {
        self.hash
    }

    /// Its length in bytes.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.key.bytes().len()
    }

    /// The PSK of this host.
    #[must_use]
    pub fn retained(&self, host: &Nqn, derivation: Derivation) -> Psk {
        let hash = self.cipher_hash();
        let key = match self.hash {
            None => self.key.clone(),
            Some(hash) => {
                let context = host.as_str().as_bytes();
                expand_label(hash, &hash.extract(&self.key), b"HostNQN", context, self.key.bytes().len(), derivation)
            }
        };
        Psk { key, origin: KeyOrigin::Retained, hash }
    }

    /// The PSKs that TLS may use with `identity`.
    fn candidates(&self, identity: &Identity) -> impl Iterator<Item = KeyMaterial> {
        [Derivation::Specification, Derivation::Libnvme1].into_iter().filter_map(|derivation| {
            let psk = self.retained(&identity.names.host, derivation);
            let is_meant = psk.identity(&identity.names, identity.version()) == *identity;
            is_meant.then(|| psk.for_tls(&identity.names, identity.version(), derivation).ok()).flatten()
        })
    }

    /// By the PSK's length: 32 bytes for SHA-256, 48 for SHA-384.
    fn cipher_hash(&self) -> Hash {
        if self.key.bytes().len() == Hash::Sha384.bytes() { Hash::Sha384 } else { Hash::Sha256 }
    }
}

/// A PSK of a host, as its target has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPsk {
    /// As it was configured.
    Configured(ConfiguredPsk),
    /// As TLS uses it with this identity: somebody else has derived it (libnvme, for the kernel's
    /// keyring).
    Derived {
        /// The identity.
        identity: Identity,
        /// The PSK of TLS.
        key: KeyMaterial,
    },
}

impl HostPsk {
    /// The PSKs that TLS may use with `identity`, of the host's: the identity does not tell the
    /// derivation, nor without a digest which of them is meant. What the peer has computed with its
    /// own does.
    #[must_use]
    pub fn candidates(identity: &Identity, psks: &[Self]) -> Vec<KeyMaterial> {
        let mut candidates = Vec::new();
        for psk in psks {
            match psk {
                Self::Configured(configured) => candidates.extend(configured.candidates(identity)),
                Self::Derived { identity: of_key, key } if of_key == identity => candidates.push(key.clone()),
                Self::Derived { .. } => {}
            }
        }
        candidates
    }
}

impl Psk {
    /// One that authentication has generated. There is none with SHA-512, which has no cipher
    /// suite.
    pub(crate) fn generated(key: KeyMaterial, hash: Hash) -> Option<Self> {
        (hash != Hash::Sha512).then_some(Self { key, origin: KeyOrigin::Generated, hash })
    }

    /// The hash of the cipher suite that it is for.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Its name.
    #[must_use]
    pub fn identity(&self, names: &Names, version: IdentityVersion) -> Identity {
        let digest = (version == IdentityVersion::V1).then(|| self.digest(names));
        Identity { origin: self.origin, hash: self.hash, names: names.clone(), digest }
    }

    /// The PSK that TLS uses with [`identity`](Self::identity), as long as the hash.
    ///
    /// # Errors
    /// With version 0, names may be too long.
    pub fn for_tls(
        &self,
        names: &Names,
        version: IdentityVersion,
        derivation: Derivation,
    ) -> Result<KeyMaterial, DerivationError> {
        let context = match version {
            IdentityVersion::V0 => self.identity(names, version).to_string(),
            IdentityVersion::V1 => format!("{:02} {}", self.hash.id(), self.digest(names)),
        };
        let bytes = context.len();
        if derivation == Derivation::Specification && bytes > u8::MAX.into() {
            return Err(DerivationError::Context { bytes });
        }
        let key = self.hash.extract(&self.key);
        Ok(expand_label(self.hash, &key, b"nvme-tls-psk", context.as_bytes(), self.hash.bytes(), derivation))
    }

    /// The digest of version 1, in base64.
    fn digest(&self, names: &Names) -> String {
        let [host, subsystem] = [&names.host, &names.subsystem].map(|name| name.as_str().as_bytes());
        let digest = self.hash.mac(self.key.bytes(), &[host, b" ", subsystem, b" NVMe-over-Fabrics"]);
        STANDARD.encode(digest.bytes())
    }
}

/// HKDF-Expand-Label (RFC 8446, 7.1).
fn expand_label(
    hash: Hash,
    key: &KeyMaterial,
    label: &[u8],
    context: &[u8],
    length: usize,
    derivation: Derivation,
) -> KeyMaterial {
    const PREFIX: &[u8] = b"tls13 ";
    // At most a digest long; labels are constants, and contexts were checked.
    let byte = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
    let mut info = Vec::new();
    match derivation {
        Derivation::Specification => {
            info.extend([0, byte(length), byte(PREFIX.len() + label.len())]);
            info.extend([PREFIX, label].concat());
            info.push(byte(context.len()));
        }
        Derivation::Libnvme1 => {
            info.extend([byte(length), 0]);
            info.extend([PREFIX, label].concat());
        }
    }
    info.extend_from_slice(context);
    hash.expand(key, &info, length)
}

impl Identity {
    /// Its version.
    #[must_use]
    pub fn version(&self) -> IdentityVersion {
        if self.digest.is_some() { IdentityVersion::V1 } else { IdentityVersion::V0 }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            KeyOrigin::Retained => 'R',
            KeyOrigin::Generated => 'G',
        };
        let Names { host, subsystem } = &self.names;
        write!(f, "NVMe{}{origin}{:02} {host} {subsystem}", self.version() as u8, self.hash.id())?;
        self.digest.iter().try_for_each(|digest| write!(f, " {digest}"))
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let rest = text.strip_prefix("NVMe").ok_or(IdentityError::Version)?;
        let (has_digest, rest) = match rest.split_at_checked(1) {
            Some(("0", rest)) => (false, rest),
            Some(("1", rest)) => (true, rest),
            _ => return Err(IdentityError::Version),
        };
        let (origin, rest) = match rest.split_at_checked(1) {
            Some(("R", rest)) => (KeyOrigin::Retained, rest),
            Some(("G", rest)) => (KeyOrigin::Generated, rest),
            _ => return Err(IdentityError::Origin),
        };
        let mut parts = rest.split(' ');
        let hash = match parts.next() {
            Some("01") => Hash::Sha256,
            Some("02") => Hash::Sha384,
            _ => return Err(IdentityError::Hash),
        };
        let mut name = |what| {
            let text = parts.next().ok_or(IdentityError::Parts)?;
            Nqn::parse(text).map_err(|error| IdentityError::Name { what, error })
        };
        let names = Names { host: name("host NQN")?, subsystem: name("subsystem NQN")? };
        let digest = parts.next();
        if parts.next().is_some() || digest.is_some() != has_digest {
            return Err(IdentityError::Parts);
        }
        let is_digest = |digest: &str| STANDARD.decode(digest).is_ok_and(|decoded| decoded.len() == hash.bytes());
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(IdentityError::Digest);
        }
        Ok(Self { origin, hash, names, digest: digest.map(ToString::to_string) })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn names() -> Names {
        let [host, subsystem] =
            ["host", "sub"].map(|name| Nqn::parse(&format!("nqn.2014-08.org.example:{name}")).unwrap());
        Names { host, subsystem }
    }

    #[test]
    fn identities_are_read_as_they_are_written() {
        for (bytes, hash) in [(32, None), (48, None), (32, Some(Hash::Sha256)), (48, Some(Hash::Sha384))] {
            let configured = ConfiguredPsk::new(KeyMaterial::new(vec![9; bytes]), hash).unwrap();
            assert_eq!(ConfiguredPsk::parse(&configured.to_text()).as_ref(), Ok(&configured));
            let psk = configured.retained(&names().host, Derivation::Specification);
            for version in [IdentityVersion::V0, IdentityVersion::V1] {
                let identity = psk.identity(&names(), version);
                assert_eq!(identity.version(), version);
                assert_eq!(identity.to_string().parse(), Ok(identity));
            }
        }
    }

    #[test]
    fn lengths_and_hashes_belong_together() {
        for (bytes, hash) in [(32, Some(Hash::Sha384)), (48, Some(Hash::Sha256)), (64, None), (0, None)] {
            let refused = ConfiguredPsk::new(KeyMaterial::new(vec![9; bytes]), hash);
            assert!(matches!(refused, Err(TextError::Length { .. })), "{refused:?}");
        }
        let refused = ConfiguredPsk::new(KeyMaterial::new(vec![9; 32]), Some(Hash::Sha384)).unwrap_err();
        let told = "the key has 36 bytes with its checksum, and one with hash 02 has 52";
        assert_eq!(alloc::format!("{refused}"), told);
        let refused = ConfiguredPsk::new(KeyMaterial::new(vec![9; 64]), Some(Hash::Sha512));
        assert!(matches!(refused, Err(TextError::Hash { .. })), "{refused:?}");
    }

    #[test]
    fn names_that_are_too_long_for_a_context_are_refused_in_version_0_only() {
        let long = |end: char| {
            Nqn::parse(&format!("nqn.2014-08.org.example:{}", "x".repeat(120)).replace("xx", &format!("x{end}")))
                .unwrap()
        };
        let names = Names { host: long('a'), subsystem: long('b') };
        let psk = ConfiguredPsk::new(KeyMaterial::new(vec![9; 32]), None).unwrap();
        let psk = psk.retained(&names.host, Derivation::Specification);
        let refused = psk.for_tls(&names, IdentityVersion::V0, Derivation::Specification);
        assert_eq!(refused, Err(DerivationError::Context { bytes: 8 + 2 * 145 }));
        psk.for_tls(&names, IdentityVersion::V0, Derivation::Libnvme1).unwrap();
        psk.for_tls(&names, IdentityVersion::V1, Derivation::Specification).unwrap();
    }

    #[test]
    fn what_is_wrong_with_an_identity_is_said() {
        let digest = "Rei4xqnl3mADKzBVtB7cQwjX6+eZez89jcuF6thhbws=";
        let cases = [
            ("", IdentityError::Version),
            ("NVMe2R01 a b", IdentityError::Version),
            ("NVMe0X01 a b", IdentityError::Origin),
            ("NVMe0R03 a b", IdentityError::Hash),
            ("NVMe0R01 a", IdentityError::Parts),
            (&format!("NVMe0R01 a b {digest}"), IdentityError::Parts),
            ("NVMe1R01 a b", IdentityError::Parts),
            ("NVMe1R02 a b AAAA", IdentityError::Digest),
            (&format!("NVMe1R02 a b {digest}"), IdentityError::Digest),
            (&format!("NVMe1R01 a b {digest} c"), IdentityError::Parts),
            ("NVMe0R01  b", IdentityError::Name { what: "host NQN", error: NqnError::Empty }),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Identity>(), Err(error), "{text}");
        }
    }

    /// Each PSK by both derivations, unless the identity tells which it is.
    #[test]
    fn an_identity_leaves_the_psks_that_may_be_meant() {
        let psks = [(1, None), (2, Some(Hash::Sha256)), (3, None)]
            .map(|(byte, hash)| ConfiguredPsk::new(KeyMaterial::new(vec![byte; 32]), hash).unwrap());
        let configured = psks.clone().map(HostPsk::Configured);
        let named = |at: usize, version, derivation| {
            let psk = psks[at].retained(&names().host, derivation);
            let identity = psk.identity(&names(), version);
            let candidates = HostPsk::candidates(&identity, &configured);
            assert!(candidates.contains(&psk.for_tls(&names(), version, derivation).unwrap()));
            candidates.len()
        };
        let both = [Derivation::Specification, Derivation::Libnvme1];
        for derivation in both {
            assert_eq!(named(0, IdentityVersion::V0, derivation), 6);
            assert_eq!(named(0, IdentityVersion::V1, derivation), 2);
            // The digest is of the retained PSK, which the derivations make differently.
            assert_eq!(named(1, IdentityVersion::V1, derivation), 1);
        }
        let psk = psks[0].retained(&names().host, Derivation::Specification);
        let mut identity = psk.identity(&names(), IdentityVersion::V0);
        let key = KeyMaterial::new(vec![4; 32]);
        let derived = HostPsk::Derived { identity: identity.clone(), key: key.clone() };
        assert_eq!(HostPsk::candidates(&identity, core::slice::from_ref(&derived)), [key]);
        identity.origin = KeyOrigin::Generated;
        assert_eq!(HostPsk::candidates(&identity, &[&configured[..], &[derived]].concat()), []);
    }

    proptest! {
        #[test]
        fn no_identity_causes_a_panic(text in ".{0,80}") {
            let _ = text.parse::<Identity>();
            let _ = format!("NVMe1R01 {text}").parse::<Identity>();
        }
    }
}
