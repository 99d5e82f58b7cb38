//! What a target accepts in DH-HMAC-CHAP: hash functions and Diffie-Hellman groups, by their names
//! in the specification.
//!
//! What they do is `ebof_authentication`'s.

use serde::Serialize;

/// A hash function (Base, DH-HMAC-CHAP, HashIDs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DhchapHash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512, with which there is no secure channel concatenation.
    Sha512,
}

/// A group (Base, DH-HMAC-CHAP, DHgIDs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DhchapGroup {
    /// No exchange, and so no secure channel concatenation.
    Null,
    /// 2048 bits.
    Ffdhe2048,
    /// 3072 bits.
    Ffdhe3072,
    /// 4096 bits.
    Ffdhe4096,
    /// 6144 bits.
    Ffdhe6144,
    /// 8192 bits.
    Ffdhe8192,
}

impl DhchapHash {
    /// All of them in the order of the target that is told no other: the strongest first.
    pub const PREFERRED: [Self; 3] = [Self::Sha512, Self::Sha384, Self::Sha256];
    /// Their names, in the order of their numbers.
    pub(crate) const NAMES: &[&str] = &["sha256", "sha384", "sha512"];

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "sha256" => Some(Self::Sha256),
            "sha384" => Some(Self::Sha384),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Whether a key for TLS can be made with it.
    #[must_use]
    pub fn seals(self) -> bool {
        self != Self::Sha512
    }
}

impl DhchapGroup {
    /// All of them in the order of the target that is told no other: first those that cost little
    /// for what they give, and last none.
    pub const PREFERRED: [Self; 6] =
        [Self::Ffdhe3072, Self::Ffdhe4096, Self::Ffdhe2048, Self::Ffdhe6144, Self::Ffdhe8192, Self::Null];
    /// Their names, in the order of their numbers.
    pub(crate) const NAMES: &[&str] = &["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"];

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "null" => Some(Self::Null),
            "ffdhe2048" => Some(Self::Ffdhe2048),
            "ffdhe3072" => Some(Self::Ffdhe3072),
            "ffdhe4096" => Some(Self::Ffdhe4096),
            "ffdhe6144" => Some(Self::Ffdhe6144),
            "ffdhe8192" => Some(Self::Ffdhe8192),
            _ => None,
        }
    }

    /// Whether a key for TLS can be made with it.
    #[must_use]
    pub fn seals(self) -> bool {
        self != Self::Null
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_read_by_the_name_that_it_is_written_with() {
        for name in DhchapHash::NAMES {
            assert_eq!(serde_json::to_value(DhchapHash::named(name)).unwrap(), *name);
        }
        for name in DhchapGroup::NAMES {
            assert_eq!(serde_json::to_value(DhchapGroup::named(name)).unwrap(), *name);
        }
        assert_eq!(DhchapHash::PREFERRED.len(), DhchapHash::NAMES.len());
        assert_eq!(DhchapGroup::PREFERRED.len(), DhchapGroup::NAMES.len());
    }
}
